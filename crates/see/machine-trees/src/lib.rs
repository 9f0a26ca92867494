//! Trees of `/sys` and `/proc` that tests read: written by them, gathered on real machines, or generated.

pub mod generate;

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

/// The gathered machines: those in `trees`, and the archives in the directory `NCPU_MACHINES`.
///
/// # Panics
/// A directory cannot be read.
pub fn machines() -> Vec<PathBuf> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees");
    let more = std::env::var_os("NCPU_MACHINES").map(PathBuf::from);
    let mut found = Vec::new();
    for dir in [Some(ours), more].into_iter().flatten() {
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        found.extend(entries.map(|e| e.unwrap_or_else(|e| panic!("{}: {e}", dir.display())).path()));
    }
    found.retain(|p| p.extension().is_none_or(|e| e != "md"));
    found.sort();
    found
}

/// Writes the tree of a machine below `into`; its root.
///
/// # Panics
/// The file is damaged, or `tar` cannot unpack the archive.
pub fn unpack(machine: &Path, into: &Path) -> PathBuf {
    let own = into.join(machine.file_name().expect("a file"));
    std::fs::create_dir_all(&own).expect("a directory of tests");
    if machine.extension().is_none_or(|e| e != "bz2") {
        let text = std::fs::read_to_string(machine).unwrap_or_else(|e| panic!("{}: {e}", machine.display()));
        write(&text, &own);
        return own;
    }
    let tar = Command::new("tar").arg("xjf").arg(machine).arg("-C").arg(&own).status();
    assert!(tar.is_ok_and(|s| s.success()), "tar cannot unpack {}", machine.display());
    let mut entries = std::fs::read_dir(&own).expect("just unpacked").flatten().map(|e| e.path());
    entries.find(|p| p.is_dir()).unwrap_or_else(|| panic!("{} holds no directory", machine.display()))
}

/// Writes the tree of the machine of this name (`2i386-2c-nohugepage`) below `into`; its root.
///
/// # Panics
/// There is no such machine.
pub fn tree(name: &str, into: &Path) -> PathBuf {
    unpack(&Path::new(env!("CARGO_MANIFEST_DIR")).join("trees").join(name), into)
}

/// Writes the files that a text lists, in the format of `trees/README.md`.
fn write(text: &str, root: &Path) {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(dirs) = line.strip_suffix('/') {
            for dir in spread(dirs) {
                std::fs::create_dir_all(root.join(dir)).expect("a directory of tests");
            }
            continue;
        }
        let (files, content) = match line.strip_suffix(" <<") {
            Some(files) => {
                let mut content = String::new();
                while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
                    content.push_str(&line[1..]);
                    content.push('\n');
                }
                (files, content)
            }
            None => {
                let (files, value) =
                    line.split_once(" = ").unwrap_or_else(|| panic!("neither file nor directory: {line}"));
                (files, format!("{value}\n"))
            }
        };
        spread(files).iter().for_each(|file| put(root, file, &content));
    }
}

/// `cpu{0-1,4}/x` stands for cpu0/x, cpu1/x and cpu4/x.
fn spread(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.into()] };
    let (numbers, after) = rest.split_once('}').unwrap_or_else(|| panic!("no }} in {pattern}"));
    let numbers = ncpu_machine::CpuSet::parse_list(numbers).unwrap_or_else(|e| panic!("{pattern}: {e}"));
    let after = spread(after);
    numbers.iter().flat_map(|n| after.iter().map(move |after| format!("{before}{n}{after}"))).collect()
}
