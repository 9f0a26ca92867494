//! The kernel tells BPF programs the machine's numbers of processes. In a PID namespace, as in a container, /proc has others:
//! what it says of such a number is of another process, so it is not asked there.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Leads nowhere: no process has this number.
const NOWHERE: &str = "/proc/0";

/// Whether this process is in another PID namespace than the machine's.
pub fn is_own() -> bool {
    static OWN: OnceLock<bool> = OnceLock::new();
    *OWN.get_or_init(|| {
        let own = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        // The first namespace has this number on every kernel.
        own.as_os_str() != "pid:[4026531836]"
    })
}

/// What /proc says of a process that a BPF program told.
pub fn process_dir(pid: u32) -> PathBuf {
    match is_own() {
        false => PathBuf::from(format!("/proc/{pid}")),
        true => PathBuf::from(NOWHERE),
    }
}

/// Below which /proc is that of such processes.
pub fn root() -> &'static Path {
    Path::new(if is_own() { NOWHERE } else { "/" })
}
