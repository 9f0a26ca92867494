//! Copy-on-write clones of a directory by overlayfs: files that a clone does not change are the directory's own, and so
//! are their cached pages.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags};

use crate::sys;

/// A clone to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clone {
    /// The directory that is cloned.
    pub lower: PathBuf,
    /// Where the clone is seen.
    pub at: PathBuf,
    /// Files that the clone changes.
    pub upper: PathBuf,
    /// Overlayfs's own.
    pub work: PathBuf,
    /// Inodes of the upper directory and of the one that is cloned.
    pub inodes: [u64; 2],
}

impl Clone {
    /// Options of the mount. Without privileges the marks of overlayfs are user attributes.
    pub fn options(&self, privileged: bool, commit: bool) -> Vec<u8> {
        let mut out = b"lowerdir=".to_vec();
        out.extend(escaped(&self.lower, b":,\\"));
        for (name, path) in [(&b",upperdir="[..], &self.upper), (b",workdir=", &self.work)] {
            out.extend(name);
            out.extend(escaped(path, b",\\"));
        }
        out.extend(match (privileged, commit) {
            (false, _) => &b",userxattr"[..],
            // Files that are taken over later must be whole. With an index, the names of a file stay one file when it
            // changes.
            (true, true) => b",metacopy=off,redirect_dir=off,index=on",
            // A changed mode or owner copies no data.
            (true, false) => b",redirect_dir=on,metacopy=on,index=on",
        });
        out
    }
}

fn escaped(path: &Path, special: &[u8]) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    bytes.iter().flat_map(|b| special.contains(b).then_some(b'\\').into_iter().chain([*b])).collect()
}

/// Changes in a clone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Files with data of their own: copied up or new.
    pub files: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// Names removed.
    pub removed: u64,
}

/// Counts what is in an upper directory.
///
/// # Errors
/// It cannot be read.
pub fn changes(upper: &Path) -> io::Result<Changes> {
    let mut out = Changes::default();
    walk(upper, &mut |path, meta| {
        if whiteout(path, meta) {
            out.removed += 1;
        } else if meta.is_file() && !marked(path, "metacopy") {
            out.files += 1;
            out.bytes += meta.blocks() * 512;
        }
        Ok(())
    })?;
    Ok(out)
}

/// The page cache of all files of a directory, bytes; and how many files could not be asked.
///
/// # Errors
/// The directory cannot be read, or the kernel has no `cachestat` (before Linux 6.5).
pub fn cached(dir: &Path) -> io::Result<(u64, u64)> {
    let (mut pages, mut unread) = (0, 0);
    walk(dir, &mut |path, meta| {
        if !meta.is_file() {
            return Ok(());
        }
        let Ok(file) = File::open(path) else {
            unread += 1;
            return Ok(());
        };
        match sys::cachestat(&file) {
            Ok(cached) => pages += cached.pages,
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => return Err(e),
            Err(_) => unread += 1,
        }
        Ok(())
    })?;
    Ok((pages * ncpu_machine::page_size(), unread))
}

/// Everything below a directory, the directories before what is in them. Mounts are not entered.
fn walk(dir: &Path, each: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>) -> io::Result<()> {
    let device = std::fs::symlink_metadata(dir)?.dev();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            let meta = match std::fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                // Temporary files go while we look.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            each(&path, &meta)?;
            if meta.is_dir() && meta.dev() == device {
                todo.push(path);
            }
        }
    }
    Ok(())
}

/// Whether overlayfs marked a file, by its privileged attribute or by the user's.
fn marked(path: &Path, name: &str) -> bool {
    ["trusted", "user"].iter().any(|space| {
        let mut value = [0u8; 64];
        rustix::fs::lgetxattr(path, format!("{space}.overlay.{name}"), &mut value).is_ok()
    })
}

/// A name that the clone has removed: a device 0,0, or an empty file with the mark where devices cannot be made.
fn whiteout(path: &Path, meta: &Metadata) -> bool {
    (meta.file_type().is_char_device() && meta.rdev() == 0)
        || (meta.is_file() && meta.size() == 0 && marked(path, "whiteout"))
}

/// Removes a directory tree of ours; whether there was one.
///
/// # Errors
/// It cannot be removed.
pub fn remove(path: &Path) -> io::Result<bool> {
    // Overlayfs leaves a directory that not even its owner may read.
    let mut result = std::fs::remove_dir_all(path);
    if result.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied) {
        open_up(path)?;
        result = std::fs::remove_dir_all(path);
    }
    match result {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn open_up(dir: &Path) -> io::Result<()> {
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o700))?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// Prefix of a file's name while it is written.
const PART: &str = ".ncpu-part-";

/// A directory that is held open. Its user may put a link in its place meanwhile; what is done goes on here.
pub(crate) struct Held {
    fd: OwnedFd,
    /// For messages.
    path: PathBuf,
}

impl Held {
    pub(crate) fn open(path: &Path) -> io::Result<Held> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Held { fd: rustix::fs::open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// A directory in this one; a link is none.
    fn below(&self, name: &OsStr) -> io::Result<Held> {
        Ok(Held { path: self.path.join(name), ..Held::open(&self.at(name))? })
    }

    /// A path to a name in it, whatever its own path leads to by now.
    fn at(&self, name: &OsStr) -> PathBuf {
        through(&self.fd).join(name)
    }

    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_ino)
    }

    /// Makes a directory that only this user may enter.
    pub(crate) fn make(path: &Path) -> io::Result<Held> {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        let made = Held::open(path)?;
        if rustix::fs::fstat(&made.fd)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it was replaced while it was made"));
        }
        std::fs::set_permissions(through(&made.fd), PermissionsExt::from_mode(0o700))?;
        Ok(made)
    }

    /// [`Held::make`] in this one.
    pub(crate) fn make_below(&self, name: &str) -> io::Result<Held> {
        Ok(Held { path: self.path.join(name), ..Held::make(&self.at(name.as_ref()))? })
    }

    /// Gives it a mode, and as root an owner.
    pub(crate) fn give(&self, user: u32, group: u32, mode: u32) -> io::Result<()> {
        let at = through(&self.fd);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&at, Some(user), Some(group))?;
        }
        std::fs::set_permissions(&at, PermissionsExt::from_mode(mode))
    }

    /// The path that it was opened or made by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The path of what a descriptor stands for.
fn through(fd: &impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into()
}

/// Takes the changes of a clone over into the directory it was made of. It may be cut short at any moment and done
/// again: the upper directory is left as it is.
///
/// Others may write to the directories above both, or to the directory itself: no link is followed, and a directory in the place of one
/// of both, which have the given inodes, is left alone.
///
/// # Errors
/// A file cannot be written, or a directory was replaced.
pub fn commit(upper: &Path, lower: &Path, inodes: [u64; 2]) -> io::Result<()> {
    let held = |path: &Path, inode: u64| {
        let held = Held::open(path)?;
        // The journals of older versions have none.
        match inode == 0 || held.inode()? == inode {
            true => Ok(held),
            false => Err(io::Error::other(format!("{} was replaced: left alone", path.display()))),
        }
    };
    take_over(&held(upper, inodes[0])?, &held(lower, inodes[1])?)
}

fn take_over(upper: &Held, lower: &Held) -> io::Result<()> {
    let context = |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    for entry in std::fs::read_dir(through(&upper.fd)).map_err(|e| context(&upper.path, e))? {
        let name = entry?.file_name();
        one(upper, lower, &name).map_err(|e| context(&lower.path.join(&name), e))?;
    }
    Ok(())
}

fn one(upper: &Held, lower: &Held, name: &OsStr) -> io::Result<()> {
    let (from, to) = (&upper.at(name), &lower.at(name));
    let meta = std::fs::symlink_metadata(from)?;
    let there = std::fs::symlink_metadata(to).ok();
    if whiteout(from, &meta) {
        return clear(to, there.as_ref());
    }
    if meta.is_dir() {
        if there.as_ref().is_some_and(|t| !t.is_dir()) || marked(from, "opaque") {
            clear(to, there.as_ref())?;
        }
        match std::fs::create_dir(to) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let inner = lower.below(name)?;
        take_over(&upper.below(name)?, &inner)?;
        return same_attributes(from, &inner.fd, &meta);
    }
    if there.as_ref().is_some_and(Metadata::is_dir) {
        clear(to, there.as_ref())?;
    }
    // A file of several names that the clone changed, and did not replace, stays one file. Cut short, it is written again.
    if meta.is_file()
        && marked(from, "origin")
        && let Some(t) = there.as_ref().filter(|t| t.is_file() && t.nlink() > 1 && t.uid() == meta.uid())
    {
        let mut file = open_file(to, File::options().write(true))?;
        let now = file.metadata()?;
        if (now.dev(), now.ino()) != (t.dev(), t.ino()) {
            return Err(io::Error::other("it was replaced meanwhile"));
        }
        file.set_len(0)?;
        io::copy(&mut open_file(from, File::options().read(true))?, &mut file)?;
        return same_attributes(from, &file, &meta);
    }
    let mut part = std::ffi::OsString::from(PART);
    part.push(name);
    let part = lower.at(&part);
    // An earlier attempt may have left the file.
    match std::fs::remove_file(&part) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    if meta.is_file() {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        // A reflink where the file system can.
        io::copy(&mut open_file(from, File::options().read(true))?, &mut file)?;
        same_attributes(from, &file, &meta)?;
    } else if meta.is_symlink() {
        std::os::unix::fs::symlink(std::fs::read_link(from)?, &part)?;
        std::os::unix::fs::lchown(&part, Some(meta.uid()), Some(meta.gid()))?;
        rustix::fs::utimensat(CWD, &part, &times(&meta), AtFlags::SYMLINK_NOFOLLOW)?;
    } else {
        let kind = rustix::fs::FileType::from_raw_mode(meta.mode());
        rustix::fs::mknodat(CWD, &part, kind, Mode::from_raw_mode(meta.mode()), meta.rdev())?;
        let made = rustix::fs::open(&part, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&made)?.st_mode) != kind {
            return Err(io::Error::other("it was replaced meanwhile"));
        }
        same_attributes(from, &made, &meta)?;
    }
    std::fs::rename(&part, to)
}

/// Opens a regular file, and nothing that was put in its place.
fn open_file(path: &Path, options: &mut std::fs::OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it was replaced meanwhile"));
    }
    Ok(file)
}

/// Removes what is there.
fn clear(path: &Path, there: Option<&Metadata>) -> io::Result<()> {
    match there {
        None => Ok(()),
        Some(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Some(_) => std::fs::remove_file(path),
    }
}

/// Owner, mode, attributes and times, for what a descriptor stands for.
fn same_attributes(from: &Path, to: &impl AsFd, meta: &Metadata) -> io::Result<()> {
    let to = through(to);
    std::os::unix::fs::chown(&to, Some(meta.uid()), Some(meta.gid()))?;
    std::fs::set_permissions(&to, meta.permissions())?;
    copy_attributes(from, &to)?;
    Ok(rustix::fs::utimensat(CWD, &to, &times(meta), AtFlags::empty())?)
}

fn times(meta: &Metadata) -> rustix::fs::Timestamps {
    let at =
        |seconds: i64, nanoseconds: i64| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    rustix::fs::Timestamps {
        last_access: at(meta.atime(), meta.atime_nsec()),
        last_modification: at(meta.mtime(), meta.mtime_nsec()),
    }
}

/// Extended attributes, overlayfs's own left out. A file system without them has none to copy.
fn copy_attributes(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0u8; 65536];
    let length = match rustix::fs::llistxattr(from, &mut names) {
        Err(rustix::io::Errno::NOTSUP) => return Ok(()),
        other => other?,
    };
    for name in names[..length].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        if name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.") {
            continue;
        }
        let name = OsStr::from_bytes(name);
        let mut value = vec![0u8; 65536];
        let length = rustix::fs::lgetxattr(from, name, &mut value)?;
        rustix::fs::setxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn paths_with_separators_are_escaped() {
        let clone = Clone {
            lower: "/a:b,c\\d".into(),
            at: "/x".into(),
            upper: "/u:v,w".into(),
            work: "/w".into(),
            inodes: [0; 2],
        };
        let options = String::from_utf8(clone.options(false, false)).unwrap();
        assert_eq!(options, r"lowerdir=/a\:b\,c\\d,upperdir=/u:v\,w,workdir=/w,userxattr");
    }

    /// Every path below a directory, with its kind, mode and text.
    fn tree(dir: &Path) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        walk(dir, &mut |path, meta| {
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            let text = if meta.is_file() {
                std::fs::read_to_string(path).unwrap()
            } else if meta.is_symlink() {
                format!("-> {}", std::fs::read_link(path).unwrap().display())
            } else {
                "/".into()
            };
            out.insert(name, format!("{:o} {text}", meta.mode()));
            Ok(())
        })
        .unwrap();
        out
    }

    #[test]
    fn a_commit_makes_the_directory_what_the_clone_was_and_may_be_repeated() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: needs root");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["lower/keep", "lower/gone", "lower/sub/a", "lower/new-dir/old", "lower/to-link"] {
            ncpu_machine_trees::put(dir.path(), name, name);
        }
        for name in ["upper", "work", "at"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        // Of two files with two names each, one is changed and one replaced.
        for (name, other) in [("changed", "changed-too"), ("replaced", "not-replaced")] {
            ncpu_machine_trees::put(&path("lower"), name, "first\n");
            std::fs::hard_link(path("lower").join(name), path("lower").join(other)).unwrap();
        }
        let clone = Clone {
            lower: path("lower"),
            at: path("at"),
            upper: path("upper"),
            work: path("work"),
            inodes: [0; 2],
        };
        let options = String::from_utf8(clone.options(true, true)).unwrap();
        // Mounted in a namespace of its own, so that nothing is left if this test is killed.
        let script = format!(
            "mount -t overlay overlay -o '{options}' {at} && cd {at} && rm gone && echo more >> sub/a \
             && rm -r new-dir && mkdir new-dir && echo x > new-dir/fresh && rm to-link && ln -s keep to-link \
             && echo second >> changed && echo third > new && mv new replaced && chmod 751 sub && mkfifo pipe && cp -a . {seen}",
            at = path("at").display(),
            seen = path("seen").display()
        );
        let status =
            std::process::Command::new("unshare").args(["-m", "sh", "-ec", &script]).status().unwrap();
        assert!(status.success(), "{script}");
        assert_eq!(changes(&path("upper")).unwrap().removed, 1);
        assert_eq!(changes(&path("upper")).unwrap().files, 4);
        let seen = tree(&path("seen"));
        assert!(seen["changed-too"].ends_with("first\nsecond\n"), "{seen:?}");
        assert!(seen["not-replaced"].ends_with("first\n"), "{seen:?}");
        // Cut short in the middle, then done again.
        std::fs::write(path("lower/.ncpu-part-to-link"), "half").unwrap();
        let inodes = ["upper", "lower"].map(|name| std::fs::metadata(path(name)).unwrap().ino());
        for _ in 0..2 {
            commit(&path("upper"), &path("lower"), inodes).unwrap();
            assert_eq!(tree(&path("lower")), tree(&path("seen")));
            let number = |name: &str| std::fs::metadata(path("lower").join(name)).unwrap().ino();
            assert_eq!(number("changed"), number("changed-too"));
            assert_ne!(number("replaced"), number("not-replaced"));
        }
    }

    /// The user of the directory puts links where the changes go.
    #[test]
    fn a_commit_follows_no_link_and_leaves_what_was_put_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["upper/new", "upper/sub/inside", "elsewhere/kept", "lower/old"] {
            ncpu_machine_trees::put(dir.path(), name, name);
        }
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(path(to), path(name)).unwrap();
        link("elsewhere", "lower/sub");
        link("elsewhere/kept", "lower/new");
        link("elsewhere/kept", "lower/.ncpu-part-new");
        let inodes = ["upper", "lower"].map(|name| std::fs::metadata(path(name)).unwrap().ino());
        commit(&path("upper"), &path("lower"), inodes).unwrap();
        let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        assert_eq!(
            (text("lower/new").as_str(), text("lower/sub/inside").as_str()),
            ("upper/new", "upper/sub/inside")
        );
        let untouched = || {
            assert_eq!(text("elsewhere/kept"), "elsewhere/kept");
            assert_eq!(std::fs::read_dir(path("elsewhere")).unwrap().count(), 1);
        };
        untouched();
        // After a crash, before the next command goes on with it.
        std::fs::rename(path("lower"), path("before")).unwrap();
        link("elsewhere", "lower");
        assert!(commit(&path("upper"), &path("lower"), inodes).is_err());
        assert!(commit(&path("upper"), &path("lower"), [0, 0]).is_err());
        assert!(
            commit(&path("upper"), &path("elsewhere"), inodes).unwrap_err().to_string().contains("replaced")
        );
        assert!(
            commit(&path("before"), &path("before"), inodes).unwrap_err().to_string().contains("replaced")
        );
        untouched();
    }

    #[test]
    fn cached_pages_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![1; 100_000]).unwrap();
        match cached(dir.path()) {
            Ok((bytes, 0)) => assert_eq!(bytes, 100_000u64.next_multiple_of(ncpu_machine::page_size())),
            other => eprintln!("skipped: {other:?}"),
        }
    }
}
