//! tracefs, which may be missing at its place in containers and small machines.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::root::Dir;

/// Mounts tracefs without a path: only the descriptor leads to its root, and the mount ends with the
/// descriptor.
///
/// # Errors
/// The kernel has no tracefs, or the caller lacks `CAP_SYS_ADMIN`.
pub fn mount_tracefs() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// The directory of all tracepoints below a root directory, or why it cannot be read. This machine's tracefs
/// is mounted if it is not mounted yet.
pub(super) fn events(dir: &Dir, root: &Path) -> Result<Dir, String> {
    let places = ["sys/kernel/tracing/events", "sys/kernel/debug/tracing/events"];
    if let Some(events) = places.iter().find_map(|place| dir.dir(place)) {
        return Ok(events);
    }
    if root != Path::new("/") {
        return Err("it is not there".into());
    }
    let mounted = mount_tracefs().map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => "that takes root".to_string(),
        _ => format!("it cannot be mounted: {e}"),
    })?;
    Dir::from_fd(mounted, "/sys/kernel/tracing").open_dir("events").map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a mount namespace of its own, in which an empty file system hides existing mounts.
    #[test]
    fn tracefs_need_not_be_mounted() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root mounts tracefs");
        }
        if let Err(e) = mount_tracefs() {
            return println!("skipped: tracefs cannot be mounted here: {e}");
        }
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let named = std::thread::spawn(|| {
            // SAFETY: the thread still shares its file descriptors; only its mounts and directories are
            // separated.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
            // A chroot's root need not be a mount, so the mounts above the two places are separated one by
            // one.
            let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
            let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
            for point in points.filter(|point| Path::new("/sys/kernel/tracing").starts_with(point)) {
                rustix::mount::mount_change(point, rustix::mount::MountPropagationFlags::PRIVATE).unwrap();
            }
            for place in ["/sys/kernel/debug", "/sys/kernel/tracing"] {
                let none = rustix::mount::MountFlags::empty();
                let _ = rustix::mount::mount("none", place, "tmpfs", none, None::<&std::ffi::CStr>);
            }
            let mut sources = super::super::Sources::default();
            sources.read_tracepoints(Path::new("/"), "sched:sched_switch");
            sources
        });
        let sources = named.join().unwrap();
        assert_eq!(sources.no_tracefs, None);
        assert!(sources.parse("sched:sched_switch").is_ok(), "{:?}", sources.tracepoints);
        assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    }

    #[test]
    fn another_root_is_not_given_this_machines() {
        let root = tempfile::tempdir().unwrap();
        let mut sources = super::super::Sources::default();
        sources.read_tracepoints(root.path(), "sched:sched_switch");
        let error = sources.parse("sched:sched_switch").unwrap_err().to_string();
        assert!(error.contains("/sys/kernel/tracing cannot be read: it is not there"), "{error}");
    }
}
