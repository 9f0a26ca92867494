//! Suites: lists of standard invocations of cases.

use std::cell::OnceCell;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::failure::Failure;
use crate::options::number;
use crate::runner::Plan;

/// A case with options, under a name of its own: `memset_1k` is `memset -s 1k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Its name.
    pub name: &'static str,
    /// The case.
    pub case: &'static str,
    words: Vec<&'static str>,
}

/// libMicro 0.4's standard list of invocations, a line each: name, case, options. `{…}` stand for
/// [`Files`].
const LIBMICRO: &str = include_str!("libmicro.suite");

/// The suite of a name: `libmicro`.
pub fn find(name: &str) -> Option<Vec<Invocation>> {
    (name == "libmicro").then(libmicro)
}

/// libMicro's standard invocations.
pub fn libmicro() -> Vec<Invocation> {
    LIBMICRO
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            Some(Invocation { name: words.next()?, case: words.next()?, words: words.collect() })
        })
        .collect()
}

impl Invocation {
    /// The plan and the case's own options: `-P`, `-T`, `-B` and `-C` are the runner's.
    ///
    /// # Errors
    /// A number is none, or the files cannot be made.
    pub fn resolve(&self, plan: &Plan, files: &Files) -> Result<(Plan, Vec<String>), Failure> {
        let mut plan = plan.clone();
        let mut own = Vec::new();
        let mut words = self.words.iter();
        while let Some(&word) = words.next() {
            if !["-P", "-T", "-B", "-C"].contains(&word) {
                own.push(files.fill(word).map_err(|e| Failure::Failed(format!("{}: {e}", self.name)))?);
                continue;
            }
            let n = words
                .next()
                .and_then(|w| number(w))
                .ok_or_else(|| Failure::Failed(format!("{}: {word} lacks its number", self.name)))?;
            match word {
                "-P" => plan.processes = n as usize,
                "-T" => plan.threads = n as usize,
                "-B" => plan.batch = plan.batch.or(Some(n)),
                _ => plan.min_samples = plan.min_samples.min(n as usize),
            }
        }
        Ok((plan, own))
    }
}

/// Files and directories that invocations work on, as libMicro's script makes them: in /tmp and in /var/tmp
/// 10 MB of zeroes and two deep directories each, and an empty file. They are made when the first one is
/// asked for, in directories that nobody can have made before, and go when this is dropped.
#[derive(Debug, Default)]
pub struct Files(OnceCell<[TempDir; 2]>);

/// Not on the heap, for freeing it would change the heap's thresholds; behind a lock, since data that could be written
/// to takes no room in the program's file.
static MEGABYTE: Mutex<[u8; 1 << 20]> = Mutex::new([0; 1 << 20]);

const DEEP: [&str; 2] = ["0/1/2/3/4/5/6/7/8/9", "1/2/3/4/5/6/7/8/9/0"];

impl Files {
    fn create(&self) -> Result<[&Path; 2], String> {
        let made = match self.0.get() {
            Some(made) => made,
            None => {
                // Dropped if only a part of them comes to be.
                let made = [files_below("/tmp")?, files_below("/var/tmp")?];
                let empty = made[0].path().join("empty");
                std::fs::write(&empty, "").map_err(|e| format!("{}: {e}", empty.display()))?;
                self.0.get_or_init(|| made)
            }
        };
        Ok(made.each_ref().map(TempDir::path))
    }

    fn fill(&self, word: &str) -> Result<String, String> {
        let (at, name) = match word {
            "{tmp}" => (0, "data"),
            "{usr}" => (1, "data"),
            "{empty}" => (0, "empty"),
            "{tmpdir1}" => (0, DEEP[0]),
            "{tmpdir2}" => (0, DEEP[1]),
            "{usrdir1}" => (1, DEEP[0]),
            "{usrdir2}" => (1, DEEP[1]),
            _ => return Ok(word.into()),
        };
        Ok(self.create()?[at].join(name).to_string_lossy().into_owned())
    }
}

/// A directory of our own below another, with its files.
fn files_below(above: &str) -> Result<TempDir, String> {
    let own = std::fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new().prefix("ncpu-bench.").permissions(own).tempdir_in(above);
    let dir = dir.map_err(|e| format!("{above}: {e}"))?;
    let told = |e: std::io::Error| format!("{}: {e}", dir.path().display());
    for deep in DEEP {
        std::fs::create_dir_all(dir.path().join(deep)).map_err(told)?;
    }
    let mut data = std::fs::File::create(dir.path().join("data")).map_err(told)?;
    // As dd writes it: the size of a write decides the size of the pages in the page cache.
    let zeros = MEGABYTE.lock().unwrap_or_else(PoisonError::into_inner);
    (0..10).try_for_each(|_| data.write_all(&zeros[..])).map_err(told)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invocation_has_a_name_of_its_own_and_plain_options() {
        let suite = libmicro();
        assert_eq!(suite.len(), 260);
        let names: std::collections::BTreeSet<_> = suite.iter().map(|i| i.name).collect();
        assert_eq!(names.len(), suite.len());
        let files = Files::default();
        for invocation in &suite {
            let (_, own) = invocation.resolve(&Plan::default(), &files).unwrap();
            assert!(own.iter().all(|w| !w.contains('{')), "{}: {own:?}", invocation.name);
        }
        let of = |name: &str| {
            suite.iter().find(|i| i.name == name).unwrap().resolve(&Plan::default(), &files).unwrap()
        };
        let (plan, own) = of("getenvT2");
        assert_eq!((plan.threads, own), (2, vec!["-s".to_string(), "100".into()]));
        let (plan, own) = of("close_usr");
        let data = files.fill("{usr}").unwrap();
        assert_eq!((plan.batch, own), (Some(32), vec!["-f".to_string(), data]));
    }

    #[test]
    fn files_come_and_go() {
        let files = Files::default();
        assert_eq!(files.fill("word").unwrap(), "word");
        assert!(files.0.get().is_none(), "nothing is made before it is used");
        let data = files.fill("{usr}").unwrap();
        assert_eq!(std::fs::metadata(&data).unwrap().len(), 10 << 20);
        let dir = Path::new(&data).parent().unwrap().to_owned();
        assert_eq!(
            std::fs::metadata(&dir).unwrap().permissions().mode() & 0o077,
            0,
            "others change nothing in it"
        );
        assert!(Path::new(&files.fill("{usrdir2}").unwrap()).starts_with(&dir));
        assert!(Path::new(&files.fill("{usrdir2}").unwrap()).is_dir());
        drop(files);
        assert!(!dir.exists());
    }
}
