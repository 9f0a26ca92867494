//! Adds recordings to a fleet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ncpu_record::Opened;

use crate::labels::Labels;
use crate::parts::{self, Compacted, Span};
use crate::rollup::{self, Rolled};
use crate::store::{Hold, Store};
use crate::tables::Kept;
use crate::threads::each;
use crate::{Error, Result, compact, when};

const MANIFEST: &str = "manifest.json";

/// Recordings that are rolled up before they are written; this determines the memory use.
const CHUNK: usize = 5_000;

/// How far a machine's clock may be ahead before it is reported, in microseconds.
const AHEAD: i64 = 86_400_000_000;

/// Options of an addition.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Labels of all machines.
    pub labels: Labels,
    /// Labels by host.
    pub by_host: HashMap<String, Labels>,
    /// Whether unfinished recordings are added.
    pub unfinished: bool,
    /// Threads.
    pub threads: usize,
    /// Whether small parts of the changed hours and days are merged afterwards.
    pub tidy: bool,
}

/// Result of an addition.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Recordings added.
    pub added: usize,
    /// Recordings that the fleet already had.
    pub known: usize,
    /// Recordings that were left out, and the reasons.
    pub left_out: Vec<(PathBuf, String)>,
    /// Recordings whose clock is more than a day ahead of this machine's.
    pub ahead: usize,
    /// Whether it was stopped before its end.
    pub stopped: bool,
    /// Why small parts could not be merged.
    pub untidy: Option<String>,
}

/// A recording to add.
struct Candidate {
    path: PathBuf,
    id: String,
    host: String,
    at_us: i64,
}

/// Adds recordings, and those in directories.
///
/// # Errors
/// A directory is missing, or the fleet cannot be read or written. Recordings added before stay, and are not
/// added again.
pub fn add(
    store: &dyn Store,
    dirs: &[PathBuf],
    options: &Options,
    progress: &(dyn Fn(usize, usize) + Sync),
    stop: &AtomicBool,
) -> Result<Outcome> {
    let held = compact::not_compacted(store, Hold::Add)?;
    let compacted = Compacted::default();
    let mut found = Vec::new();
    for dir in dirs {
        let before = found.len();
        find(dir, &mut found)?;
        if found.len() == before {
            return Err(Error::Recording {
                path: dir.clone(),
                why: "it is neither a recording nor a directory with recordings".into(),
            });
        }
    }
    let mut outcome = Outcome::default();
    let jobs = candidates(&found, options, stop, &mut outcome)?;
    let work = unknown(store, &compacted, jobs, options.threads, stop, &mut outcome)?;
    let total: usize = work.iter().map(|(_, c)| c.len()).sum();
    let (done, added) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let left_out = Mutex::new(&mut outcome.left_out);
    let result = each(options.threads, &work, stop, |(hour, candidates)| {
        let mut rolled: Vec<Rolled> = Vec::with_capacity(candidates.len());
        for one in candidates {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // Whatever is wrong with one recording, the others are added.
            let fault = |why| {
                let why = format!("it cannot be read: {why}");
                Err(Error::Recording { path: one.path.clone(), why })
            };
            match ncpu_files::guarded(|| roll(one, options)).unwrap_or_else(fault) {
                Ok(one) => rolled.push(one),
                Err(e) => {
                    let mut left_out = left_out.lock().unwrap_or_else(PoisonError::into_inner);
                    left_out.push((one.path.clone(), e.to_string()));
                }
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(256) {
                progress(done, total);
            }
        }
        parts::commit(store, &compacted, hour, &rolled)?;
        added.fetch_add(rolled.len(), Ordering::Relaxed);
        Ok(())
    });
    let added = added.into_inner();
    if let Err(e) = result {
        return Err(match e {
            Error::Store { name, action, why } => Error::Store {
                name,
                action,
                why: format!(
                    "{why}; {added} of {total} recordings were added before: run it again, and what is there already \
                     is left out"
                ),
            },
            other => other,
        });
    }
    outcome.added = added;
    outcome.stopped = stop.load(Ordering::Relaxed);
    outcome.left_out.sort();
    drop(held);
    if options.tidy && added > 0 && !outcome.stopped {
        let hours: Vec<Span> = work.into_iter().map(|(hour, _)| hour).collect();
        // This is CPU-bound, and each thread holds rows in memory.
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        let how = compact::Options { take_over: false, threads: cpus.min(options.threads), now: when::now() };
        // The addition itself is complete, whatever the result of this.
        outcome.untidy = compact::tidy(store, &hours, &how).err().map(|e| e.to_string());
    }
    Ok(outcome)
}

/// The recordings by the hour in which they began, each once; invalid ones are left out.
fn candidates(
    found: &[PathBuf],
    options: &Options,
    stop: &AtomicBool,
    outcome: &mut Outcome,
) -> Result<BTreeMap<Span, Vec<Candidate>>> {
    let looked = each(options.threads, found, stop, |path| Ok(look(path, options)))?;
    let mut jobs: BTreeMap<Span, Vec<Candidate>> = BTreeMap::new();
    let mut ids = HashSet::new();
    let late = when::now() + AHEAD;
    for (path, one) in found.iter().zip(looked) {
        match one {
            None => {}
            Some(Err(e)) => outcome.left_out.push((path.clone(), e.to_string())),
            Some(Ok(one)) if !ids.insert(one.id.clone()) => outcome.known += 1,
            Some(Ok(one)) => {
                outcome.ahead += usize::from(one.at_us > late);
                jobs.entry(Span::hour_at(one.at_us)).or_default().push(one);
            }
        }
    }
    Ok(jobs)
}

/// The recordings that the fleet does not have, in chunks.
fn unknown(
    store: &dyn Store,
    compacted: &Compacted,
    jobs: BTreeMap<Span, Vec<Candidate>>,
    threads: usize,
    stop: &AtomicBool,
    outcome: &mut Outcome,
) -> Result<Vec<(Span, Vec<Candidate>)>> {
    let hours: Vec<&Span> = jobs.keys().collect();
    let known = each(threads, &hours, stop, |hour| parts::ids(store, compacted, Kept::Recordings, hour))?;
    let total: usize = jobs.values().map(Vec::len).sum();
    // Small enough that all threads have work until the end.
    let chunk = (total / (threads * 4).max(1)).clamp(100, CHUNK);
    let mut work: Vec<(Span, Vec<Candidate>)> = Vec::new();
    for ((hour, mut candidates), known) in jobs.into_iter().zip(known) {
        let before = candidates.len();
        candidates.retain(|c| !known.iter().flatten().any(|ids| ids.contains(&c.id)));
        outcome.known += before - candidates.len();
        candidates.sort_by(|a, b| (a.at_us, &a.host, &a.id).cmp(&(b.at_us, &b.host, &b.id)));
        while !candidates.is_empty() {
            let rest = candidates.split_off(chunk.min(candidates.len()));
            work.push((hour.clone(), std::mem::replace(&mut candidates, rest)));
        }
    }
    Ok(work)
}

/// The recordings at and below a directory. Links are not followed, because they may form a cycle.
fn find(dir: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |e: std::io::Error| Error::store(dir.display().to_string(), "read the directory", e);
    if std::fs::symlink_metadata(dir.join(MANIFEST)).is_ok() {
        out.push(dir.into());
        return Ok(());
    }
    let mut below = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            below.push(entry.path());
        }
    }
    below.sort();
    below.iter().try_for_each(|dir| find(dir, out))
}

/// Reads the manifest only, not the tables.
fn look(path: &Path, options: &Options) -> Result<Candidate> {
    let Opened { manifest, text, .. } = open(path)?;
    let bad = |why: String| Error::Recording { path: path.into(), why };
    if !manifest.complete && !options.unfinished {
        return Err(bad(
            "it is unfinished, or still being written; --unfinished adds the recoverable part".into()
        ));
    }
    if manifest.simulated {
        return Err(bad("it is a simulation".into()));
    }
    let at_us = rollup::begin(&manifest).map_err(bad)?;
    Ok(Candidate { path: path.into(), id: rollup::id(text.as_bytes()), host: manifest.host, at_us })
}

fn roll(one: &Candidate, options: &Options) -> Result<Rolled> {
    let bad = |why: String| Error::Recording { path: one.path.clone(), why };
    // The manifests of all recordings would take too much memory.
    let opened = open(&one.path)?;
    if rollup::id(opened.text.as_bytes()) != one.id {
        return Err(bad("it changed while it was added".into()));
    }
    let recording = opened.tables(Some(rollup::READ)).map_err(|e| bad(e.to_string()))?;
    let mut own = Labels::default();
    for (key, value) in &recording.manifest.labels {
        own.set(key, value).map_err(|e| bad(e.to_string()))?;
    }
    // Labels given here are newer than those in the recording.
    let labels = own.with(Some(&options.labels)).with(options.by_host.get(&one.host));
    rollup::roll(recording, &one.id, labels.text(), &one.path)
}

fn open(path: &Path) -> Result<Opened> {
    Opened::open(path).map_err(|e| Error::Recording { path: path.into(), why: e.to_string() })
}
