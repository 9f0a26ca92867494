//! The last observation, kept for `ncpu report` and `ncpu why` where no recording is named.
//!
//! It lies where files end with the machine's run and nobody else may write: /run for root, `$XDG_RUNTIME_DIR` for others.
//! The variable `NCPU_LAST` names another directory; where it is empty, nothing is kept.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ncpu_record::Recording;
use rustix::fs::{CWD, RenameFlags};

const NAME: &str = "ncpu-last";
/// Rows of all tables together that are kept at most: such directories lie in memory, as a rule.
const MOST: usize = 1_000_000;

/// Where the last observation is kept; `None` where none is to be, or there is no place for it.
pub fn place() -> Option<PathBuf> {
    let place =
        place_by(std::env::var_os("NCPU_LAST").as_deref(), rustix::process::geteuid().is_root(), || {
            std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        });
    place.filter(|place| place.parent().is_some_and(Path::is_dir))
}

fn place_by(named: Option<&OsStr>, root: bool, runtime: impl Fn() -> Option<PathBuf>) -> Option<PathBuf> {
    match named {
        Some(named) => (!named.is_empty()).then(|| named.into()),
        None if root => Some(Path::new("/run").join(NAME)),
        None => Some(runtime().filter(|dir| dir.is_absolute())?.join(NAME)),
    }
}

/// Keeps an observation in the place of the one before. A failure gives a line and nothing else: its report has been printed.
///
pub fn keep(recording: &Recording) {
    let Some(place) = place() else { return };
    if recording.tables.values().map(ncpu_table::Table::num_rows).sum::<usize>() > MOST {
        return;
    }
    if let Err(e) = put(recording, &place) {
        crate::out::say_line(&format!("ncpu: not kept for `ncpu report` in {}: {e:#}", place.display()));
    }
}

/// Writes it beside and changes the names, so that there is one whole recording at any time, also if another process does the same.
fn put(recording: &Recording, place: &Path) -> anyhow::Result<()> {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let fresh = place.with_file_name(name);
    let written = recording.save(&fresh).map_err(anyhow::Error::from).and_then(|()| {
        match rustix::fs::renameat_with(CWD, &fresh, CWD, place, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => {
                Ok(rustix::fs::renameat_with(CWD, &fresh, CWD, place, RenameFlags::EXCHANGE)?)
            }
            done => Ok(done?),
        }
    });
    // The one before, or what was begun.
    match std::fs::remove_dir_all(&fresh) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            written.and(Err(e).with_context(|| format!("remove {}", fresh.display())))
        }
        _ => written,
    }
}

/// The last observation's directory.
///
/// # Errors
/// There is none.
pub fn dir() -> anyhow::Result<PathBuf> {
    let none = "no recording is named, and none is kept of the last `ncpu run` or `ncpu watch`";
    let place = place().with_context(|| format!("{none}: there is no directory for it"))?;
    anyhow::ensure!(place.is_dir(), "{none} in {}", place.display());
    Ok(place)
}

#[cfg(test)]
mod tests {
    use ncpu_record::Manifest;
    use ncpu_schema::Purpose;

    use super::*;

    #[test]
    fn its_place_is_nobody_elses() {
        let none = || None;
        let user = || Some("/run/user/1000".into());
        assert_eq!(place_by(None, true, user), Some("/run/ncpu-last".into()));
        assert_eq!(place_by(None, false, user), Some("/run/user/1000/ncpu-last".into()));
        assert_eq!(place_by(None, false, none), None);
        assert_eq!(place_by(None, false, || Some("relative".into())), None);
        assert_eq!(place_by(Some("/tmp/x".as_ref()), true, none), Some("/tmp/x".into()));
        assert_eq!(place_by(Some("".as_ref()), true, user), None);
    }

    #[test]
    fn the_newest_is_in_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("last");
        for command in ["first", "second"] {
            let manifest = Manifest::new(Purpose::Run, 2, vec![command.into()], 0.0);
            put(&Recording::new(manifest), &place).unwrap();
            assert_eq!(Recording::open(&place).unwrap().manifest.command, [command]);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the one before is gone");
    }
}
