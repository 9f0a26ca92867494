//! `--annotate FUNCTION`: the lines of source come from the files that debug information names.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ncpu_files::reader::Source;
use ncpu_record::Recording;

/// The largest source file that is read, bytes.
const LARGEST: u64 = 8 << 20;

/// Lines of source files.
#[derive(Default)]
struct Files {
    read: BTreeMap<String, Vec<String>>,
    /// Files that are not shown, and why.
    unshown: Vec<(String, Unshown)>,
}

impl Files {
    fn line(&mut self, path: &str, number: usize, created: Duration) -> Option<String> {
        if !self.read.contains_key(path) {
            let lines = match lines(path, created) {
                Some(Ok(lines)) => lines,
                Some(Err(why)) => {
                    self.unshown.push((path.into(), why));
                    Vec::new()
                }
                None => Vec::new(),
            };
            self.read.insert(path.into(), lines);
        }
        self.read.get(path)?.get(number.checked_sub(1)?).cloned()
    }
}

/// Why the lines of a file are not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unshown {
    /// It was written after the program ran.
    Newer,
    /// Root may read it, and others may not.
    Private,
}

/// Whether all users may read a file. A program's debug information names any file that its author likes: root reads only
/// those that all may read.
fn is_public(file: &Path) -> bool {
    let has = |path: &Path, bit: u32| std::fs::metadata(path).is_ok_and(|about| about.mode() & bit != 0);
    has(file, 0o004)
        && std::fs::read_link(file).is_ok_and(|real| real.ancestors().skip(1).all(|dir| has(dir, 0o001)))
}

/// The lines of a file that any user may have named; `None` where it is none that can be read.
fn lines(path: &str, created: Duration) -> Option<Result<Vec<String>, Unshown>> {
    if !Path::new(path).is_absolute() {
        return None;
    }
    let source = Source::open(Path::new(path)).ok()?;
    let size = source.size();
    if size > LARGEST {
        return None;
    }
    if rustix::process::geteuid().is_root() && !is_public(&source.path()) {
        return Some(Err(Unshown::Private));
    }
    let modified = source.local().and_then(|file| file.metadata()?.modified()).ok()?;
    if modified.duration_since(UNIX_EPOCH).unwrap_or_default() > created {
        return Some(Err(Unshown::Newer));
    }
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    source.read_exact_at(&mut bytes, 0).ok()?;
    Some(Ok(String::from_utf8_lossy(&bytes).lines().map(String::from).collect()))
}

/// The text of `--annotate`; `all`: of instructions far from any sample, too.
pub fn text(recording: &Recording, function: &str, all: bool, width: usize) -> anyhow::Result<String> {
    let created = Duration::try_from_secs_f64(recording.manifest.created_unix).unwrap_or_default();
    let mut files = Files::default();
    let mut line = |path: &str, number: usize| files.line(path, number, created);
    let mut text = ncpu_report::annotate::render(recording, function, all, width, &mut line)?;
    for (path, why) in files.unshown {
        let why = match why {
            Unshown::Newer => "was changed since",
            Unshown::Private => "is readable by its owner only, and any program may name it",
        };
        text += &format!("{} {why}: its lines are not shown\n", ncpu_table::safe::line(&path));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_may_not_read_is_not_public() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let file = dir.path().join("source.c");
        std::fs::write(&file, "int main;").unwrap();
        let held = std::fs::File::open(&file).unwrap();
        let path = {
            use std::os::fd::AsRawFd;
            std::path::PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
        };
        let set = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (of_dir, of_file, public) in
            [(0o755, 0o644, true), (0o700, 0o644, false), (0o755, 0o600, false), (0o711, 0o604, true)]
        {
            set(dir.path(), of_dir);
            set(&file, of_file);
            assert_eq!(is_public(&path), public, "{of_dir:o} {of_file:o}");
        }
    }
}
