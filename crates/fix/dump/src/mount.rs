//! A dump as a plain core in a directory (FUSE), so that any debugger reads it without decompressing the
//! file.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, Request,
};
use ncpu_machine::process::unescape;

use crate::Error;
use crate::read::Contents;

/// The name of the core in the directory.
pub const NAME: &str = "core";

const CORE: INodeNo = INodeNo(2);
/// Neither names nor attributes change.
const FOREVER: Duration = Duration::from_secs(3600);

struct Files {
    contents: Arc<Contents<File>>,
    uid: u32,
    gid: u32,
    time: SystemTime,
}

impl Files {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o500, 2, 0),
            CORE => (FileType::RegularFile, 0o400, 1, self.contents.size()),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: self.time,
            mtime: self.time,
            ctime: self.time,
            crtime: self.time,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        })
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(CORE) {
            Some(attributes) if parent == INodeNo::ROOT && name == NAME => {
                reply.entry(&FOREVER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode != CORE {
            return reply.error(Errno::EISDIR);
        }
        match self.contents.read(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (CORE, FileType::RegularFile, NAME),
        ];
        for (n, (inode, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(inode, n as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

/// The name that identifies our mounts.
const SOURCE: &str = "ncpu-dump";

/// Unmounts a dead mount of a killed program of ours, below which every access fails.
///
/// # Errors
/// It is dead, and cannot be unmounted.
fn remove_dead(directory: &Path) -> Result<(), Error> {
    // Attributes may be cached; opening a directory needs the program.
    let dead = std::fs::read_dir(directory).err().and_then(|e| e.raw_os_error()) == Some(libc::ENOTCONN);
    let path = std::path::absolute(directory).map_err(|e| Error::file(directory, e))?;
    if !dead || !is_ours(&path) {
        return Ok(());
    }
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|e| Error::file(directory, std::io::Error::from(e)))?;
    // SAFETY: a zero-terminated string.
    let unmounted = unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) } == 0;
    if unmounted {
        return Ok(());
    }
    let refused = std::io::Error::last_os_error();
    let helped = ["fusermount3", "fusermount"].iter().any(|program| {
        Command::new(program).arg("-u").arg(&path).status().is_ok_and(|status| status.success())
    });
    if helped { Ok(()) } else { Err(Error::call(format!("unmounting {}", directory.display()), refused)) }
}

/// Whether the newest mount at a path is ours.
fn is_ours(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let at = |line: &&str| {
        line.split(' ').nth(4).is_some_and(|point| unescape(point.as_bytes()) == path.as_os_str().as_bytes())
    };
    let newest = mounts.lines().rfind(at);
    newest.is_some_and(|line| line.split(" - ").nth(1).is_some_and(|kind| kind.contains(SOURCE)))
}

/// Shows a dump in a directory until it is unmounted or the flag is set; `mounted` is called once it is
/// mounted.
///
/// # Errors
/// It cannot be mounted: without root this takes the program fusermount3.
pub fn mount(
    dump: Contents<File>,
    directory: &Path,
    stop: &AtomicBool,
    mounted: impl FnOnce(),
) -> Result<(), Error> {
    remove_dead(directory)?;
    // SAFETY: no arguments, cannot fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let files = Files { contents: Arc::new(dump), uid, gid, time: SystemTime::now() };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::FSName(SOURCE.into()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some(threads.min(8));
    let session = fuser::spawn_mount(files, directory, &config).map_err(|e| Error::file(directory, e))?;
    mounted();
    while !stop.load(Ordering::Relaxed) && !session.guard.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
    }
    // Unmounts unless another program did so.
    let _ = session.umount_and_join();
    Ok(())
}
