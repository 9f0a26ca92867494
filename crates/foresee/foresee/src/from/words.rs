//! Which words share a cache line and which lines move, by `ncpu lines`.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_schema::{Layer, Place};

use crate::model::{LineModel, LockPart, Model};

/// A line whose words were found.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shared {
    /// The struct, or the section of variables.
    of: String,
    /// Its hot words.
    words: Vec<String>,
}

/// A line that moved between CPUs while accesses were sampled.
#[derive(Clone, Debug, PartialEq)]
struct Moved {
    name: String,
    kernel: bool,
    /// Loads that found it modified in another cache, of those sampled.
    weight: f64,
}

/// Words that share lines, and lines that move.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    shared: Vec<Shared>,
    moved: Vec<Moved>,
}

/// Lines that moved less often than all others together but for this share are left out.
const REST: f64 = 0.1;
/// The most lines that a layer's growth is divided among.
const MOST: usize = 8;

impl Words {
    /// The words in a recording of `ncpu lines`.
    pub(super) fn of(recording: &Recording) -> Option<Words> {
        let (findings, words) = (recording.tables.get("findings")?, recording.tables.get("words")?);
        let mut hot = BTreeMap::<u64, Vec<String>>::new();
        for r in 0..words.num_rows() {
            let is_hot = matches!(words.text(r, "kind"), Some("lock" | "atomic" | "counter"));
            if let (Some(finding), Some(name), true) =
                (words.int(r, "finding"), words.text(r, "name"), is_hot)
            {
                hot.entry(finding).or_default().push(name.into());
            }
        }
        // Each CPU and thread has its own of the others.
        let common = [Place::Variables.name(), Place::Struct.name()];
        let shared = (0..findings.num_rows())
            .filter(|&r| findings.text(r, "in").is_some_and(|place| common.contains(&place)))
            .filter_map(|r| {
                let words = hot.remove(&findings.int(r, "finding")?)?;
                Some(Shared { of: findings.text(r, "name").unwrap_or_default().into(), words })
            })
            .collect();
        let mut moved = recording.tables.get("lines").map_or_else(Vec::new, |t| {
            (0..t.num_rows())
                .filter_map(|r| {
                    let name = match t.text(r, "names").filter(|n| !n.is_empty()) {
                        Some(names) => names,
                        None => t.text(r, "line")?,
                    };
                    Some(Moved {
                        name: name.into(),
                        kernel: t.int(r, "space") == Some(0),
                        weight: t.number(r, "HITM")?,
                    })
                })
                .filter(|m| m.weight > 0.0)
                .collect::<Vec<_>>()
        });
        moved.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        Some(Words { shared, moved })
    }

    /// Puts lines that locks of the model share into it, and says which lines the growth of its layers is.
    pub(super) fn put(&self, model: &mut Model, notes: &mut Vec<String>) {
        let grows = self.growth(model, notes);
        let found = self.locks(model, notes) || grows;
        if !self.moved.is_empty() && !found {
            let all: f64 = self.moved.iter().map(|m| m.weight).sum();
            let most: Vec<String> = self
                .moved
                .iter()
                .take(3)
                .map(|m| format!("{} ({:.0} %)", m.name, 100.0 * m.weight / all))
                .collect();
            notes.push(format!(
                "ncpu lines: these moved between CPUs: {}. How often each is written, samples do not tell, for they are as many a second \
                 whatever happens: give a recording of `ncpu scale --peel` too, which tells what all of them take",
                most.join(", ")
            ));
        } else if !found {
            notes.push(
                "ncpu lines: no two locks that were waited for share a line: nothing is taken from it".into(),
            );
        }
    }

    /// Each acquisition of one of the locks writes the line of all.
    fn locks(&self, model: &mut Model, notes: &mut Vec<String>) -> bool {
        let mut any = false;
        for shared in &self.shared {
            let here = |lock: &&LockPart| shared.words.iter().any(|word| names(&lock.name, &shared.of, word));
            let locks: Vec<&LockPart> = model.lock.iter().filter(here).collect();
            if locks.len() < 2 {
                continue;
            }
            let names: Vec<&str> = locks.iter().map(|l| l.name.as_str()).collect();
            let name = format!("of {}", names.join("+"));
            let writes = locks.iter().map(|l| l.takes).sum();
            notes.push(format!(
                "ncpu lines: locks {} share a line: who takes one of them takes the line from the others (`line {name} per-cpu` of --fix \
                 parts them)",
                names.join(" and ")
            ));
            model.line.push(LineModel { name, writes, copies: 1, among: 1, bounded: false });
            any = true;
        }
        any
    }

    /// `ncpu scale --peel` measured the growth of a layer; these are its lines.
    fn growth(&self, model: &mut Model, notes: &mut Vec<String>) -> bool {
        let mut any = false;
        let mut lines = Vec::new();
        for line in std::mem::take(&mut model.line) {
            let kernel = line.name != Layer::User.name();
            let mine: Vec<&Moved> = self.moved.iter().filter(|m| m.kernel == kernel).take(MOST).collect();
            let all: f64 = mine.iter().map(|m| m.weight).sum();
            let mut sum = 0.0;
            let enough: Vec<&&Moved> = mine
                .iter()
                .take_while(|m| {
                    let more = sum < (1.0 - REST) * all;
                    sum += m.weight;
                    more
                })
                .collect();
            if enough.is_empty() {
                lines.push(line);
                continue;
            }
            let kept: f64 = enough.iter().map(|m| m.weight).sum();
            let told: Vec<&str> = enough.iter().map(|m| m.name.as_str()).collect();
            any = true;
            notes.push(format!("ncpu lines: what grows of {} moves with {}", line.name, told.join("; ")));
            for m in enough {
                let name = format!("{} of {}", m.name, line.name);
                lines.push(LineModel {
                    name,
                    writes: line.writes * m.weight / kept,
                    among: 1,
                    ..line.clone()
                });
            }
        }
        model.line = lines;
        any
    }
}

/// Whether a lock of a recording is this word of that struct, or that variable.
fn names(lock: &str, of: &str, word: &str) -> bool {
    lock == word || lock.strip_prefix(of).and_then(|l| l.strip_prefix('.')) == Some(word)
}
