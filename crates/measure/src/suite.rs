//! Suites: lists of standard invocations of cases.

use std::cell::OnceCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
/// asked for, and go when this is dropped.
#[derive(Debug)]
pub struct Files {
    tmp: PathBuf,
    usr: PathBuf,
    made: OnceCell<()>,
}

/// Not on the heap, for freeing it would change the heap's thresholds; behind a lock, since data that could be written
/// to takes no room in the program's file.
static MEGABYTE: Mutex<[u8; 1 << 20]> = Mutex::new([0; 1 << 20]);

const DEEP: [&str; 2] = ["0/1/2/3/4/5/6/7/8/9", "1/2/3/4/5/6/7/8/9/0"];

impl Files {
    /// Names them.
    ///
    /// # Errors
    /// None yet.
    pub fn make() -> std::io::Result<Files> {
        let name = format!("ncpu-bench.{}", std::process::id());
        let [tmp, usr] = ["/tmp", "/var/tmp"].map(|dir| Path::new(dir).join(&name));
        Ok(Files { tmp, usr, made: OnceCell::new() })
    }

    fn create(&self) -> Result<(), String> {
        if self.made.get().is_some() {
            return Ok(());
        }
        // Dropped even if only a part of them comes to be.
        let _ = self.made.set(());
        for dir in [&self.tmp, &self.usr] {
            let told = |e: std::io::Error| format!("{}: {e}", dir.display());
            for deep in DEEP {
                std::fs::create_dir_all(dir.join(deep)).map_err(told)?;
            }
            let mut data = std::fs::File::create(dir.join("data")).map_err(told)?;
            // As dd writes it: the size of a write decides the size of the pages in the page cache.
            let zeros = MEGABYTE.lock().unwrap_or_else(PoisonError::into_inner);
            (0..10).try_for_each(|_| data.write_all(&zeros[..])).map_err(told)?;
        }
        std::fs::write(self.tmp.join("empty"), "").map_err(|e| format!("{}: {e}", self.tmp.display()))
    }

    fn fill(&self, word: &str) -> Result<String, String> {
        let path = match word {
            "{tmp}" => self.tmp.join("data"),
            "{usr}" => self.usr.join("data"),
            "{empty}" => self.tmp.join("empty"),
            "{tmpdir1}" => self.tmp.join(DEEP[0]),
            "{tmpdir2}" => self.tmp.join(DEEP[1]),
            "{usrdir1}" => self.usr.join(DEEP[0]),
            "{usrdir2}" => self.usr.join(DEEP[1]),
            _ => return Ok(word.into()),
        };
        self.create()?;
        Ok(path.to_string_lossy().into_owned())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.made.get().is_none() {
            return;
        }
        for dir in [&self.tmp, &self.usr] {
            // Left behind in a temporary directory, they harm nobody.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
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
        let files = Files { tmp: "/none/t".into(), usr: "/none/u".into(), made: OnceCell::from(()) };
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
        assert_eq!((plan.batch, own), (Some(32), vec!["-f".to_string(), "/none/u/data".into()]));
    }

    #[test]
    fn files_come_and_go() {
        let files = Files::make().unwrap();
        let dir = files.tmp.clone();
        assert!(!dir.exists(), "nothing is made before it is used");
        assert_eq!(std::fs::metadata(files.fill("{usr}").unwrap()).unwrap().len(), 10 << 20);
        assert!(Path::new(&files.fill("{usrdir2}").unwrap()).is_dir());
        drop(files);
        assert!(!dir.exists());
    }
}
