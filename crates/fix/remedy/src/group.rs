//! Removing a control group that `ncpu` made: what partitions and the journal both do.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Kills what is in a group of ours, and removes it and the groups in it; whether there was one.
///
/// # Errors
/// Its processes do not end, or the kernel refuses.
pub fn remove(path: &Path) -> io::Result<bool> {
    if !path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("ncpu-")) {
        return Err(io::Error::other("not a group that ncpu makes: left alone"));
    }
    if !path.exists() {
        return Ok(false);
    }
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match remove_once(path) {
            Ok(()) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            // Processes that were killed are still leaving.
            Err(e) if Instant::now() > until => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn remove_once(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_once(&entry.path())?;
        }
    }
    // Linux 5.14 kills all of them at once.
    if std::fs::write(path.join("cgroup.kill"), "1").is_err() {
        for pid in processes(path) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // Gone already is as good.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
    std::fs::remove_dir(path)
}

/// The processes in a group; none where it is gone.
pub fn processes(group: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|l| l.parse().ok()).collect()
}
