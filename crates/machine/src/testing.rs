//! The trees that tests read: written by them, or gathered, where those are at hand.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a file of a tree, and makes the directories it lies in.
///
/// # Panics
/// It cannot be written.
#[track_caller]
pub fn put(root: &Path, file: impl AsRef<Path>, text: &str) {
    let path = root.join(file);
    let written =
        std::fs::create_dir_all(path.parent().unwrap_or(root)).and_then(|()| std::fs::write(&path, text));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// The archives: in the directory `NCPU_MACHINES` names, else `shared/machines` beside the
/// repository. Prints one line where there are none.
pub fn archives() -> Vec<PathBuf> {
    let dir = std::env::var_os("NCPU_MACHINES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/machines"),
        PathBuf::from,
    );
    let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut found: Vec<_> = entries.filter(|p| p.to_string_lossy().ends_with(".tar.bz2")).collect();
    found.sort();
    if found.is_empty() {
        println!("skipped: no trees in {}; set NCPU_MACHINES", dir.display());
    }
    found
}

/// Unpacks an archive below `into`; the root of the tree, `None` where tar fails.
pub fn unpack(archive: &Path, into: &Path) -> Option<PathBuf> {
    let own = into.join(archive.file_name()?);
    std::fs::create_dir_all(&own).ok()?;
    let tar = Command::new("tar").arg("xjf").arg(archive).arg("-C").arg(&own).status();
    if !tar.is_ok_and(|s| s.success()) {
        println!("skipped: tar cannot unpack {}", archive.display());
        return None;
    }
    std::fs::read_dir(&own).ok()?.flatten().map(|e| e.path()).find(|p| p.is_dir())
}

/// Unpacks the archive of this name (`2i386-2c-nohugepage`).
pub fn tree(name: &str, into: &Path) -> Option<PathBuf> {
    let file = format!("{name}.tar.bz2");
    let archive = archives().into_iter().find(|a| a.file_name().is_some_and(|f| f == file.as_str()))?;
    unpack(&archive, into)
}
