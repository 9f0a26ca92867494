//! `--annotate FUNCTION`: the lines of source come from the files that debug information names.

use std::collections::BTreeMap;
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
    /// Files that were written after the program ran.
    newer: Vec<String>,
}

impl Files {
    fn line(&mut self, path: &str, number: usize, created: Duration) -> Option<String> {
        if !self.read.contains_key(path) {
            let lines = match lines(path, created) {
                Some(Ok(lines)) => lines,
                Some(Err(Newer)) => {
                    self.newer.push(path.into());
                    Vec::new()
                }
                None => Vec::new(),
            };
            self.read.insert(path.into(), lines);
        }
        self.read.get(path)?.get(number.checked_sub(1)?).cloned()
    }
}

/// The file was written after the program ran.
struct Newer;

/// The lines of a file that any user may have named; `None` where it is none that can be read.
fn lines(path: &str, created: Duration) -> Option<Result<Vec<String>, Newer>> {
    if !Path::new(path).is_absolute() {
        return None;
    }
    let source = Source::open(Path::new(path)).ok()?;
    let size = source.size();
    if size > LARGEST {
        return None;
    }
    let modified = source.local().and_then(|file| file.metadata()?.modified()).ok()?;
    if modified.duration_since(UNIX_EPOCH).unwrap_or_default() > created {
        return Some(Err(Newer));
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
    for path in files.newer {
        text += &format!("{} was changed since: its lines are not shown\n", ncpu_table::safe::line(&path));
    }
    Ok(text)
}
