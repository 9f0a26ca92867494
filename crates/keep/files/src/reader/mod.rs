//! Files and memory of other users' processes, read by a process that can be given up.
//!
//! A file system may be another user's program (FUSE), or a machine that is down (NFS). A read of it, its opening, even the lookup of
//! its name may then take for ever, and no signal ends it: a thread that waits there keeps its whole process from ending. So
//! another process does all of it, a fork of this one with few capabilities that interprets nothing. When its answer is late it is
//! killed and left behind, a new one takes its place, and what was asked for has no answer.
//!
//! Answers that take long are charged to the user whose process was read, and to all together. A user who has used up their time
//! gets no more reads for a while, so that nobody can hold up the program for longer than that.
//!
//! The reader has three capabilities (`DAC_READ_SEARCH`, `SYS_PTRACE`, `CHECKPOINT_RESTORE`) and may make only the system calls
//! that reading takes (seccomp; `filter`). At most eight are left behind. A small
//! process that is forked at the start starts readers, so that they stay small. A program's file is held by its inode
//! (`/proc/PID/map_files`) from when it is first seen, never opened by the path that its user chose unless device and inode are those
//! of the mapping; only regular files are opened, and no link leads out of a process's root. `benches/hostile.sh` runs some 70
//! hostile programs beside `ncpu serve`.

mod child;
mod filter;
mod message;
mod time;

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::bounded;
use message::{ANSWER, Answer, CHUNK, MAX_PATH, OPEN, OPEN_PROC, READ, REQUEST, Request, START};
use time::Times;

/// How long an answer may take.
const LATE: Duration = Duration::from_millis(300);
/// How long it may take where the reader waits for a CPU, and where the program has to keep pace.
const STARVED: Duration = Duration::from_millis(4000);
const STARVED_IN_PACE: Duration = Duration::from_millis(400);
/// How long reading may go on in all once the program is told to end.
const LAST: Duration = Duration::from_secs(1);
/// How long none is asked for after one could not be started: too many were left behind, and each file and mapping would ask again.
const NONE: Duration = Duration::from_secs(1);
/// How long it may take where the reader computes for [`Whose::TARGET`].
const COMPUTING: Duration = Duration::from_secs(60);
/// `f_type` of file systems whose data come from another process or machine, or may: `statfs(2)`.
const FUSE: u64 = 0x6573_5546;
const NFS: u64 = 0x6969;
const CIFS: u64 = 0xff53_4d42;
const SMB2: u64 = 0xfe53_4d42;
const P9: u64 = 0x0102_1997;
const CEPH: u64 = 0x00c3_6400;
const AFS: [u64; 2] = [0x5346_414f, 0x6b41_4653];
const LUSTRE: u64 = 0x0bd0_0bd0;
const GPFS: u64 = 0x4750_4653;
const BEEGFS: u64 = 0x1983_0326;
const ORANGEFS: u64 = 0x2003_0528;
const CODA: u64 = 0x7375_7245;
const VBOX: u64 = 0x786f_4256;
/// Its files lie in a user's own directory, on whatever that is.
const ECRYPTFS: u64 = 0xf15f;
const REMOTE: [u64; 15] =
    [FUSE, NFS, CIFS, SMB2, P9, CEPH, AFS[0], AFS[1], LUSTRE, GPFS, BEEGFS, ORANGEFS, CODA, VBOX, ECRYPTFS];
/// Those that number files and devices as they like.
const OVERLAY: u64 = 0x794c_7630;
const BTRFS: u64 = 0x9123_683e;
const BCACHEFS: u64 = 0xca45_1a4e;

/// Whose process is read: time is charged to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Whose(u64);

impl Whose {
    /// Of this program's own choosing.
    pub const OWN: Whose = Whose(u64::MAX);

    /// Of a process that is all the program is for: its reads are charged to nobody. The figures of a terabyte of memory take the kernel
    /// seconds.
    pub const TARGET: Whose = Whose(u64::MAX - 1);

    /// The user of a process, whose directory in `/proc` this is; each process of root counts for itself.
    pub fn process(directory: &Path, pid: u32) -> Whose {
        match std::fs::metadata(directory).map(|about| about.uid()) {
            Ok(0) | Err(_) => Whose(1 << 32 | u64::from(pid)),
            Ok(user) => Whose(user.into()),
        }
    }
}

/// A regular file, or a file of `/proc`, that the reader reads.
#[derive(Clone, Debug)]
pub struct Source(Arc<Held>);

#[derive(Debug)]
struct Held {
    /// Stands for the file, and is not opened: what happens to its path meanwhile does not matter.
    fd: OwnedFd,
    whose: Whose,
    about: Answer,
    /// It did not answer.
    late: AtomicBool,
}

impl Source {
    /// A regular file by its path.
    ///
    /// # Errors
    /// There is none, it is no regular file, it may not be read, or its file system does not answer in time.
    pub fn open(path: &Path) -> io::Result<Source> {
        Source::find(OPEN, Path::new(""), path, true, Whose::OWN)
    }

    /// A regular file that a process has mapped, by the name of the mapping in `map_files`.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn mapped(path: &Path, whose: Whose) -> io::Result<Source> {
        Source::find(OPEN, Path::new(""), path, true, whose)
    }

    /// A regular file by its path below a root, which no link leads out of. A link in the last place is followed where
    /// `follow` says so.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn below(root: &Path, path: &Path, follow: bool, whose: Whose) -> io::Result<Source> {
        Source::find(OPEN, root, path, follow, whose)
    }

    /// A file of a process's directory in `/proc`: `maps`, `mem`.
    ///
    /// # Errors
    /// There is none, or it may not be read.
    pub fn of_proc(path: &Path, whose: Whose) -> io::Result<Source> {
        let nowhere = Path::new("");
        let found = Source::find(OPEN_PROC, nowhere, path, false, whose);
        match found {
            // A tree that was made to look like it.
            Err(e) if e.raw_os_error() == Some(EINVAL) => Source::find(OPEN, nowhere, path, false, whose),
            found => found,
        }
    }

    /// A file that this process has open. Its reads are charged to `whose`.
    ///
    /// # Errors
    /// It cannot be described.
    pub fn opened(file: std::fs::File, whose: Whose) -> io::Result<Source> {
        let known = file.metadata()?;
        let about = Answer {
            size: known.len(),
            blocks: known.blocks(),
            device: known.dev(),
            inode: known.ino(),
            user: known.uid(),
            ..Answer::default()
        };
        Ok(Source(Arc::new(Held { fd: file.into(), whose, about, late: AtomicBool::new(false) })))
    }

    fn find(kind: u32, root: &Path, path: &Path, follow: bool, whose: Whose) -> io::Result<Source> {
        let (root, path) = (root.as_os_str().as_bytes(), path.as_os_str().as_bytes());
        if root.len() >= MAX_PATH || path.len() >= MAX_PATH || root.contains(&0) || path.contains(&0) {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let request = Request {
            kind,
            root: root.len() as u16,
            path: path.len() as u16,
            follow: follow.into(),
            ..Request::default()
        };
        let (about, fd) = ask(whose, &request, &[root, b"\0", path, b"\0"].concat(), None, &mut [])?;
        let fd = fd.ok_or(io::ErrorKind::InvalidData)?;
        // A user's misdeeds are not to keep others from the names of libraries that all share.
        let whose = if kind == OPEN && is_roots(&about) { Whose::OWN } else { whose };
        Ok(Source(Arc::new(Held { fd, whose, about, late: AtomicBool::new(false) })))
    }

    /// Fills `into` from a place on; how many bytes there were.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::TimedOut`] where there was no answer in time, [`io::ErrorKind::ResourceBusy`] where nothing
    /// more is read of that user for a while.
    pub fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let held = &*self.0;
        if held.late.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut got = 0;
        while got < into.len() {
            let part = (into.len() - got).min(CHUNK);
            let offset = at.checked_add(got as u64).ok_or(io::ErrorKind::InvalidInput)?;
            let request = Request { kind: READ, length: part as u32, offset, ..Request::default() };
            let answer =
                ask(held.whose, &request, &[], Some(held.fd.as_raw_fd()), &mut into[got..got + part]);
            if answer.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::TimedOut) {
                held.late.store(true, Ordering::Relaxed);
            }
            let (answer, _) = answer?;
            got += answer.length as usize;
            if (answer.length as usize) < part {
                break;
            }
        }
        Ok(got)
    }

    /// Fills all of `into`.
    ///
    /// # Errors
    /// As [`Source::read_at`], or [`io::ErrorKind::UnexpectedEof`].
    pub fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        match self.read_at(into, at)? == into.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// How many bytes it had when it was opened; 0 for a file of `/proc`.
    pub fn size(&self) -> u64 {
        self.0.about.size
    }

    /// How many bytes of it were on disk when it was opened.
    pub fn on_disk(&self) -> u64 {
        self.0.about.blocks.saturating_mul(512)
    }

    /// Device and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.0.about.device, self.0.about.inode)
    }

    /// To whom it belongs.
    pub fn user(&self) -> u32 {
        self.0.about.user
    }

    /// Whose process it was opened for.
    pub fn whose(&self) -> Whose {
        self.0.whose
    }

    /// Whether its user has time left for more to be read and parsed.
    pub fn may_read(&self) -> bool {
        put_off_unless(!refused_at_the_end() && state().times.allow_work(self.0.whose, Instant::now()))
    }

    /// The result of `parse`. Its CPU time ([`Work`]) is charged to the file's user.
    pub fn parsed<T>(&self, parse: impl FnOnce(&Source) -> T) -> T {
        let began = Work::begin();
        let result = parse(self);
        state().times.charge_work(self.0.whose, began.elapsed(), Instant::now());
        result
    }

    /// Whether its data come from another process or machine, which may not answer.
    pub fn is_remote(&self) -> bool {
        is_remote(&self.0.about)
    }

    /// Whether its data may come from another process or machine, which may not answer. An overlay does not show what lies below: one that
    /// root has mounted answers, one in a user's own namespace may not. `process`: the directory in `/proc` of a process that has mapped it.
    pub fn may_not_answer(&self, process: &Path) -> bool {
        self.is_remote()
            || self.0.about.system & 0xffff_ffff == OVERLAY && !self.is_in_mounts_of_root(process)
    }

    /// Whether the mount it lies in is among those of a process whose mounts are in our user namespace.
    fn is_in_mounts_of_root(&self, process: &Path) -> bool {
        const LONGEST: u64 = 16 << 20;
        let read = |path: &Path| bounded(std::fs::File::open(path)?, LONGEST);
        let own = || {
            let mounts = std::fs::File::open(process.join("ns/mnt"))?;
            // SAFETY: takes no argument. `NS_GET_USERNS` of linux/nsfs.h.
            let owner = unsafe { libc::ioctl(mounts.as_raw_fd(), 0xb701) };
            if owner < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a descriptor that has just been made for us.
            let owner = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(owner) }).metadata()?;
            let ours = std::fs::metadata("/proc/self/ns/user")?;
            Ok((owner.dev(), owner.ino()) == (ours.dev(), ours.ino()))
        };
        let listed = || {
            let about = read(&Path::new("/proc/self/fdinfo").join(self.0.fd.as_raw_fd().to_string()))?;
            let about = String::from_utf8_lossy(&about);
            let id =
                about.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(|id| id.trim().as_bytes());
            let mounts = read(&process.join("mountinfo"))?;
            io::Result::Ok(mounts.split(|b| *b == b'\n').any(|line| line.split(|b| *b == b' ').next() == id))
        };
        // A namespace that cannot be asked is none of ours.
        own().unwrap_or(false) && listed().unwrap_or(false)
    }

    /// Whether its file system may have other numbers for its files and devices than `/proc/PID/maps` has.
    pub fn has_other_numbers(&self) -> bool {
        [OVERLAY, BTRFS, BCACHEFS].contains(&(self.0.about.system & 0xffff_ffff))
    }

    /// Opens it in this process.
    ///
    /// # Errors
    /// Another process or machine would have to answer ([`io::ErrorKind::Unsupported`]), or it may not be read.
    pub fn local(&self) -> io::Result<std::fs::File> {
        if self.is_remote() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        std::fs::File::open(self.path())
    }

    /// A path that leads to it as long as it is held.
    pub fn path(&self) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", self.0.fd.as_raw_fd()).into()
    }
}

fn is_remote(about: &Answer) -> bool {
    REMOTE.contains(&(about.system & 0xffff_ffff))
}

/// Whether it is root's own file on a disk of this machine. What lies below an overlay is not known.
fn is_roots(about: &Answer) -> bool {
    about.user == 0 && !is_remote(about) && about.system & 0xffff_ffff != OVERLAY
}

/// Whether a user has time left for more names of addresses.
pub fn may_name(whose: Whose) -> bool {
    put_off_unless(!refused_at_the_end() && state().times.allow_names(whose, Instant::now()))
}

/// CPU time of the calling thread since some moment. Parsing and naming are charged by it: on a machine that is short of CPUs elapsed
/// time includes that of other programs.
#[derive(Clone, Copy, Debug)]
pub struct Work(Duration);

impl Work {
    /// From now on.
    pub fn begin() -> Work {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Work(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    /// CPU time since then.
    pub fn elapsed(self) -> Duration {
        Work::begin().0.saturating_sub(self.0)
    }
}

/// Charges a user with the CPU time that names of addresses took.
pub fn charge_names(whose: Whose, took: Duration) {
    state().times.charge_names(whose, took, Instant::now());
}

/// Bytes of a file of `/proc` by its path, `most` of them.
///
/// # Errors
/// As [`Source::of_proc`].
pub fn proc_text(path: &Path, whose: Whose, most: usize) -> io::Result<Vec<u8>> {
    let source = Source::of_proc(path, whose)?;
    let mut text = Vec::new();
    while text.len() < most {
        let before = text.len();
        text.resize((before + CHUNK).min(most), 0);
        let got = source.read_at(&mut text[before..], before as u64)?;
        text.truncate(before + got);
        if got == 0 {
            break;
        }
    }
    Ok(text)
}

/// Bytes of a file of a process's directory that are read, at most: a line of `maps` has some 100 bytes.
const MAX_TEXT: usize = 64 << 20;

/// The bytes of a file in a process's directory in `/proc`, such as `maps`. The kernel holds the lock of the process's mappings
/// for some of these files, and another user may make it wait for that lock.
///
/// # Errors
/// As [`Source::of_proc`].
pub fn process_text(directory: &Path, pid: u32, name: &str) -> io::Result<Vec<u8>> {
    proc_text(&directory.join(name), Whose::process(directory, pid), MAX_TEXT)
}

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

/// Answers that did not come in time, and requests that were refused since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Readers that were given up.
    pub late: u64,
    /// Requests that were not made, since their user had none left.
    pub refused: u64,
}

static LATE_ANSWERS: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

static PUT_OFF: AtomicU64 = AtomicU64::new(0);

/// How often so far something was not read, parsed or named for lack of time: it may be had later.
pub fn put_off() -> u64 {
    PUT_OFF.load(Ordering::Relaxed)
}

/// `allowed`; counts where it is not.
pub fn put_off_unless(allowed: bool) -> bool {
    PUT_OFF.fetch_add(u64::from(!allowed), Ordering::Relaxed);
    allowed
}

/// Why the reader's system calls are not filtered; 0: they are.
static UNFILTERED: AtomicI32 = AtomicI32::new(0);

/// Why a reader's system calls were not filtered, where the kernel has no seccomp or refuses it.
pub fn unfiltered() -> Option<io::Error> {
    let error = UNFILTERED.load(Ordering::Relaxed);
    (error != 0).then(|| io::Error::from_raw_os_error(error))
}

/// What was not read so far.
pub fn counts() -> Counts {
    Counts { late: LATE_ANSWERS.load(Ordering::Relaxed), refused: REFUSED.load(Ordering::Relaxed) }
}

/// Starts the reader, which else the first request does: while the program is small, and before it gives up what it may do.
///
/// # Errors
/// There can be no more processes.
pub fn start() -> io::Result<()> {
    state().child().map(drop)
}

static IN_PACE: AtomicBool = AtomicBool::new(false);

/// From here on the program has to keep pace: names that would be late are given up, where otherwise the program would wait until
/// the reader has had a CPU.
pub fn keep_pace() {
    IN_PACE.store(true, Ordering::Relaxed);
}

/// The flag that tells the program to end, and when reading ends after that.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static ENDS: OnceLock<Instant> = OnceLock::new();

/// Once the flag is set reading goes on for a second more, and what was not read until then has no answer: who told the program to
/// end waits for it. The first flag counts.
pub fn end_with(stop: &Arc<AtomicBool>) {
    STOP.get_or_init(|| stop.clone());
}

/// How long reading may still go on; `None`: for ever.
fn left() -> Option<Duration> {
    let stopped = STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed));
    stopped.then(|| {
        let now = Instant::now();
        ENDS.get_or_init(|| now + LAST).saturating_duration_since(now)
    })
}

/// Whether the program is told to end, and nothing more is read. Counts.
fn refused_at_the_end() -> bool {
    let over = left().is_some_and(|left| left.is_zero());
    if over {
        REFUSED.fetch_add(1, Ordering::Relaxed);
    }
    over
}

/// The process id of the reader, if there is one.
pub fn pid() -> Option<u32> {
    state().child.as_ref().map(|child| child.pid.unsigned_abs())
}

/// The process id of the one that starts readers, if there is one: readers are its children.
pub fn starter() -> Option<u32> {
    state().starter.as_ref().map(|starter| starter.pid.unsigned_abs())
}

/// The reader, and the process that starts readers.
#[derive(Debug, Default)]
struct State {
    starter: Option<Starter>,
    child: Option<Child>,
    /// Until when there is none, since none could be started.
    none_until: Option<Instant>,
    times: Times,
}

/// The process that starts readers, which is small and waits for no file.
#[derive(Debug)]
struct Starter {
    socket: OwnedFd,
    pid: i32,
    /// Whose child it is: another fork of the program must have its own.
    parent: u32,
}

#[derive(Debug)]
struct Child {
    socket: OwnedFd,
    pid: i32,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// The state, locked.
struct Locked(std::sync::MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Locked {
    type Target = State;

    fn deref(&self) -> &State {
        // Filled in by `state`.
        self.0.as_ref().expect("filled in")
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        self.0.get_or_insert_with(State::default)
    }
}

fn state() -> Locked {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.get_or_insert_with(State::default);
    Locked(state)
}

impl State {
    /// The reader, started where there is none.
    fn child(&mut self) -> io::Result<&Child> {
        let own = std::process::id();
        if self.starter.as_ref().is_some_and(|starter| starter.parent != own) {
            // Of the process that this one is a fork of.
            (self.child, self.starter) = (None, None);
        }
        if self.child.is_none() {
            let started = match &self.starter {
                Some(starter) => starter.reader(),
                None => Err(io::ErrorKind::NotFound.into()),
            };
            self.child = Some(match started {
                Ok(child) => child,
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => return Err(e),
                // It has ended, by whatever cause.
                Err(_) => self.starter.insert(Starter::start()?).reader()?,
            });
        }
        self.child.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Gives up the reader. Killed, it may still wait for its file system.
    fn abandon(&mut self) {
        if let (Some(child), Some(starter)) = (self.child.take(), &self.starter) {
            // A starter that has ended has killed its readers.
            let _ = rustix::io::write(&starter.socket, &child.pid.to_ne_bytes());
        }
    }
}

/// Both ends of a connection.
fn ends() -> io::Result<[OwnedFd; 2]> {
    let mut ends = [0; 2];
    // SAFETY: a live local; both are open, and this process's alone.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        if libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ends.map(|end| OwnedFd::from_raw_fd(end)))
    }
}

impl Starter {
    fn start() -> io::Result<Starter> {
        let [own, other] = ends()?;
        // Where the machine has no such filters it is read without.
        let filter = filter::program().ok();
        // SAFETY: the child calls only async-signal-safe functions until it exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the child of a fork has one thread.
            unsafe { child::start_readers(other.as_raw_fd(), filter.as_ref()) }
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Starter { socket: own, pid, parent: std::process::id() })
    }

    /// Has a reader started.
    fn reader(&self) -> io::Result<Child> {
        let [own, other] = ends()?;
        send(&self.socket, &START.to_ne_bytes(), &[], Some(other.as_raw_fd()))?;
        drop(other);
        if !wait(&self.socket, self.pid, Instant::now(), starved(Whose::OWN))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut pid = [0; 4];
        let got = rustix::io::read(&self.socket, &mut pid)?;
        match i32::from_ne_bytes(pid) {
            pid if got == 4 && pid > 0 => Ok(Child { socket: own, pid }),
            _ if got == 4 => Err(io::ErrorKind::ResourceBusy.into()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Starters that were given up and may not have ended yet.
static GIVEN_UP: Mutex<Vec<i32>> = Mutex::new(Vec::new());

impl Drop for Starter {
    /// Never waits. A program that has given up root may not kill a starter from before, which ends by itself when it sees that
    /// its socket is closed; a later call finds that it has.
    fn drop(&mut self) {
        if self.parent != std::process::id() {
            return;
        }
        let mut given_up = GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.push(self.pid);
        // SAFETY: plain numbers; each is a child that was not waited for yet.
        unsafe {
            libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR);
            libc::kill(self.pid, libc::SIGKILL);
            given_up.retain(|pid| libc::waitpid(*pid, std::ptr::null_mut(), libc::WNOHANG) == 0);
        }
    }
}

/// Whether a process waits for a CPU, and for nothing else.
fn is_runnable(pid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = stat.iter().rposition(|b| *b == b')').map_or(0, |at| at + 2);
    stat.get(behind) == Some(&b'R')
}

/// Has the reader answer a request; bytes that it read come to `into`.
fn ask(
    whose: Whose,
    request: &Request,
    text: &[u8],
    fd: Option<RawFd>,
    into: &mut [u8],
) -> io::Result<(Answer, Option<OwnedFd>)> {
    if refused_at_the_end() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let mut state = state();
    let in_pace = IN_PACE.load(Ordering::Relaxed);
    let now = Instant::now();
    let is_none = state.none_until.is_some_and(|until| now < until);
    if !put_off_unless(
        !is_none && state.times.allow(whose, now) && (!in_pace || state.times.allow_delay(now)),
    ) {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    // One that has ended, by whatever cause, is replaced once.
    for _ in 0..2 {
        // One that cannot be started is as late as one that does not answer.
        let child = match state.child() {
            Ok(child) => child,
            Err(e) => {
                state.none_until = Some(Instant::now() + NONE);
                count_late();
                return Err(e);
            }
        };
        let began = Instant::now();
        // SAFETY: it has no padding that is not initialised: all its members are numbers.
        let head = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(request).cast::<u8>(), REQUEST) };
        if send(&child.socket, head, text, fd).is_err() {
            state.abandon();
            continue;
        }
        if !wait(&child.socket, child.pid, began, starved(whose))? {
            state.times.charge(whose, began.elapsed(), Instant::now());
            state.abandon();
            count_late();
            return Err(io::ErrorKind::TimedOut.into());
        }
        let Some((answer, fd)) = receive(child, into)? else {
            state.abandon();
            continue;
        };
        let (now, took) = (Instant::now(), Duration::from_nanos(answer.ns));
        state.times.charge(whose, took, now);
        state.times.charge_delay(began.elapsed().saturating_sub(took), now);
        if answer.unfiltered != 0 {
            UNFILTERED.store(answer.unfiltered, Ordering::Relaxed);
        }
        return match answer.error {
            0 => Ok((answer, fd)),
            error => Err(io::Error::from_raw_os_error(error)),
        };
    }
    count_late();
    Err(io::ErrorKind::BrokenPipe.into())
}

fn count_late() {
    LATE_ANSWERS.fetch_add(1, Ordering::Relaxed);
    put_off_unless(false);
}

fn send(socket: &OwnedFd, head: &[u8], text: &[u8], fd: Option<RawFd>) -> io::Result<()> {
    let mut control = [0u64; 8];
    // SAFETY: pointers are to live values as long as the message header says.
    unsafe {
        let mut parts = [
            libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
            libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() },
        ];
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = 2;
        child::attach(&mut header, &mut control, fd.unwrap_or(-1));
        match libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) {
            n if n >= 0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The timeout of an answer while the reader is runnable.
fn starved(whose: Whose) -> Duration {
    match IN_PACE.load(Ordering::Relaxed) || left().is_some() {
        true => STARVED_IN_PACE,
        false if whose == Whose::TARGET => COMPUTING,
        false => STARVED,
    }
}

/// Waits for the answer of a process; whether it came in time.
fn wait(socket: &OwnedFd, pid: i32, began: Instant, starved: Duration) -> io::Result<bool> {
    let mut most = LATE;
    loop {
        let starved = left().map_or(starved, |left| starved.min(began.elapsed() + left));
        let left = most.saturating_sub(began.elapsed());
        let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: a live local.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32 + 1) };
        match ready {
            1.. => return Ok(true),
            0 if began.elapsed() < starved && is_runnable(pid) => {
                most = (began.elapsed() + LATE / 10).min(starved);
            }
            0 => return Ok(false),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// The answer; `None` where the reader has ended.
fn receive(child: &Child, into: &mut [u8]) -> io::Result<Option<(Answer, Option<OwnedFd>)>> {
    let mut answer = Answer::default();
    let mut control = [0u64; 8];
    // SAFETY: pointers are to live values as long as the message header says; a descriptor that came is this process's alone.
    unsafe {
        let mut parts = [
            libc::iovec { iov_base: (&raw mut answer).cast(), iov_len: ANSWER },
            libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() },
        ];
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = 2;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        let got = libc::recvmsg(child.socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC);
        let fd = match child::descriptor(&header) {
            fd if got > 0 && fd >= 0 => Some(OwnedFd::from_raw_fd(fd)),
            _ => None,
        };
        let bytes = usize::try_from(got).ok().and_then(|got| got.checked_sub(ANSWER));
        Ok(bytes.filter(|n| *n == answer.length as usize && *n <= into.len()).map(|_| (answer, fd)))
    }
}

#[cfg(test)]
mod tests;
