//! Keeps instances off each other's data. A server guards its data against a second one by a file with its process number, by
//! shared memory or by a port; in namespaces of its own it does not find the other's.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Config;
use super::words::{Values, fill};
use crate::{Error, Result};

/// Directories of programs, which hold no data of servers.
const PROGRAMS: [&str; 9] = ["bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"];

/// Bytes of a lock file that may hold a process number.
const LOCK: u64 = 4096;

/// Checks that isolated instances have data of their own.
///
/// # Errors
/// They would share a directory, or a clone is of one that a process uses.
pub fn check(config: &Config) -> Result<()> {
    let isolate = config.isolate;
    if !(isolate.net || isolate.ipc || isolate.pid) {
        return Ok(());
    }
    if (isolate.pid || isolate.ipc) && config.clones.is_empty() {
        return Err(Error::Refused(
            "--isolate pid or ipc needs --clone DIR: without clones of its data, two servers would write to one \
             directory, for neither sees the other's processes and shared memory"
                .into(),
        ));
    }
    let shared = named(config).into_iter().find(|dir| is_data(dir) && !is_cloned(config, dir));
    if let Some(dir) = shared {
        let dir = dir.display();
        return Err(Error::Refused(format!(
            "--isolate: the command names {dir}, which all instances would share without seeing each other; give each a \
             clone (--clone {dir}) or a directory of its own ({{i}} in its name)"
        )));
    }
    if isolate.pid || isolate.ipc {
        for clone in &config.clones {
            if let Some((file, pid)) = user(&clone.dir) {
                return Err(Error::Refused(format!(
                    "{}: process {pid} uses the directory; stop it, or clone a backup",
                    file.display()
                )));
            }
        }
    }
    Ok(())
}

/// Directories that the command and its environment name for all instances alike.
fn named(config: &Config) -> Vec<PathBuf> {
    let inherited = std::env::vars_os().filter(|(name, _)| name.as_bytes().ends_with(b"DATA"));
    let set = config.environment.iter().cloned();
    let values = inherited.chain(set).map(|(_, value)| value);
    let words = config.argv.iter().skip(1).cloned().chain(values);
    let alike = |word: &OsString| {
        let filled = |i| fill(word, Values { i, n: 2, cpus: 1 });
        filled(0) == filled(1)
    };
    let mut out = Vec::new();
    for word in words.filter(alike) {
        let bytes = word.as_bytes();
        // `pg`, `--data=pg`, `-Dpg`.
        let value = bytes.iter().position(|&b| b == b'=').map(|at| &bytes[at + 1..]);
        let attached = bytes.strip_prefix(b"-").and_then(|rest| rest.get(1..));
        for part in [Some(bytes), value, attached].into_iter().flatten().filter(|part| !part.is_empty()) {
            let found = std::fs::canonicalize(OsStr::from_bytes(part));
            out.extend(found.ok().filter(|path| path.is_dir()));
        }
    }
    out
}

fn is_data(dir: &Path) -> bool {
    let top = dir.components().nth(1).map(|c| c.as_os_str());
    top.is_some_and(|top| !PROGRAMS.iter().any(|name| top == *name))
}

fn is_cloned(config: &Config, dir: &Path) -> bool {
    config.clones.iter().any(|clone| {
        let at = clone.at.as_deref().map_or(clone.dir.as_os_str(), |at| at);
        std::fs::canonicalize(at).is_ok_and(|at| dir.starts_with(at))
    })
}

/// A file in a directory that names a process which uses the directory, and the process.
fn user(dir: &Path) -> Option<(PathBuf, u32)> {
    let dir = std::fs::canonicalize(dir).ok()?;
    let files = std::fs::read_dir(&dir).ok()?.flatten().filter(|file| {
        let name = file.file_name();
        let name = name.as_bytes();
        // A pipe would be waited for.
        (name.ends_with(b".pid") || name.ends_with(b".lock")) && file.file_type().is_ok_and(|t| t.is_file())
    });
    files.map(|file| file.path()).find_map(|path| {
        let mut text = Vec::new();
        std::fs::File::open(&path).ok()?.take(LOCK).read_to_end(&mut text).ok()?;
        let pid: u32 = str::from_utf8(&text).ok()?.split_whitespace().next()?.parse().ok()?;
        uses(pid, &dir).then_some((path, pid))
    })
}

/// Whether a process has its working directory or an open file in a directory.
fn uses(pid: u32, dir: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let within = |link: PathBuf| std::fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    let files = std::fs::read_dir(process.join("fd"));
    within(process.join("cwd")) || files.into_iter().flatten().flatten().any(|file| within(file.path()))
}

#[cfg(test)]
mod tests {
    use super::super::{Data, Isolate};
    use super::*;

    fn config(argv: &[&str], clones: &[&Path], isolate: &str) -> Config {
        let data = |dir: &&Path| Data { dir: dir.into(), at: None };
        Config {
            argv: argv.iter().map(OsString::from).collect(),
            clones: clones.iter().map(data).collect(),
            isolate: isolate.parse::<Isolate>().unwrap(),
            ..Config::default()
        }
    }

    #[test]
    fn isolated_instances_do_not_share_data() {
        let place = tempfile::tempdir().unwrap();
        let (data, other) = (place.path().join("pg"), place.path().join("other"));
        std::fs::create_dir(&data).unwrap();
        std::fs::create_dir(&other).unwrap();
        let pg = data.to_str().unwrap();
        let refused = |config: &Config| check(config).err().map(|e| e.to_string());
        for isolate in ["pid", "ipc", "pid,ipc", "net,pid"] {
            let e = refused(&config(&["postgres", "-D", pg], &[], isolate)).expect("no clone");
            assert!(e.contains("needs --clone"), "{e}");
            // A clone of something else does not help.
            for argument in [pg, &format!("-D{pg}"), &format!("--datadir={pg}")] {
                let e = refused(&config(&["server", argument], &[&other], isolate)).expect("not cloned");
                assert!(e.contains(pg) && e.contains("share"), "{e}");
            }
            assert_eq!(refused(&config(&["postgres", "-D", pg], &[&data], isolate)), None);
            let own = format!("{pg}{{i}}");
            assert_eq!(refused(&config(&["postgres", "-D", &own, "-L", "/usr"], &[&data], isolate)), None);
        }
        // A port does not guard anything in a network of its own.
        assert!(refused(&config(&["server", pg], &[], "net")).is_some());
        assert_eq!(refused(&config(&["server", "-p", "80"], &[], "net")), None);
        assert_eq!(
            refused(&Config { isolate: Isolate::default(), ..config(&["server", pg], &[], "net") }),
            None
        );
        let environment = vec![("PGDATA".into(), pg.into())];
        assert!(refused(&Config { environment, ..config(&["postgres"], &[&other], "pid") }).is_some());
    }

    #[test]
    fn data_that_a_process_uses_is_not_cloned_for_isolated_instances() {
        let place = tempfile::tempdir().unwrap();
        let mut sleep =
            std::process::Command::new("sleep").arg("100").current_dir(place.path()).spawn().unwrap();
        let config = config(&["postgres"], &[place.path()], "pid");
        std::fs::write(place.path().join("postmaster.pid"), format!("{}\n/data\n", sleep.id())).unwrap();
        let e = check(&config).unwrap_err().to_string();
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(e.contains(&format!("process {} uses the directory", sleep.id())), "{e}");
        // The file of a server that was killed does not count, nor does a number that another process has.
        assert!(check(&config).is_ok());
        std::fs::write(place.path().join("postmaster.pid"), "1\n").unwrap();
        assert!(check(&config).is_ok());
    }
}
