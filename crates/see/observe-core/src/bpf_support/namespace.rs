//! The kernel passes the machine's process IDs to BPF programs. In a PID namespace, as in a container,
//! `/proc` uses other IDs, so it would describe the wrong process; then it is not read.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A path that never exists: no process has this ID.
const NOWHERE: &str = "/proc/0";

/// Checks that `/proc` is mounted.
///
/// # Errors
/// It is not mounted.
pub fn find_proc() -> Result<(), super::Error> {
    if Path::new("/proc/self/ns/pid").is_symlink() { Ok(()) } else { Err(super::Error::NoProc) }
}

/// Whether this process is in a PID namespace other than the machine's.
pub fn is_own() -> bool {
    static OWN: OnceLock<bool> = OnceLock::new();
    *OWN.get_or_init(|| {
        let own = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        // The initial namespace has this inode number on every kernel.
        own.as_os_str() != "pid:[4026531836]"
    })
}

/// The `/proc` directory of a process ID that a BPF program reported.
pub fn process_dir(pid: u32) -> PathBuf {
    match is_own() {
        false => PathBuf::from(format!("/proc/{pid}")),
        true => PathBuf::from(NOWHERE),
    }
}

/// The root directory whose `/proc` describes such processes.
pub fn root() -> &'static Path {
    Path::new(if is_own() { NOWHERE } else { "/" })
}
