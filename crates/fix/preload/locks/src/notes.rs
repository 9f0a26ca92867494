//! The storage for a thread's waits: its own part of the process's file.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use ncpu_preload::waits::{
    AT_ENTRIES, AT_MAPS, AT_THREADS, ENTRIES, Entry, Header, Kind, MAGIC, SIZE, TABLE, THREADS, Thread,
    VARIABLE, nanoseconds, processor_ticks,
};
use ncpu_preload::{errno, set_errno};

use crate::thread::{Call, Mine, glibc_is_known, mine, tid};

/// The thread that a wait is blamed on, or 0.
#[derive(Clone, Copy)]
pub struct Blame(pub u32);

/// State of one process, in a page that the kernel clears in children, which begin anew.
struct Process {
    /// Not 0, and different from the session of any other process.
    session: AtomicU64,
    /// One of the states below.
    state: AtomicU32,
    /// The address of the mapped file, once it exists.
    base: AtomicUsize,
}

const NONE: u32 = 0;
const OPENING: u32 = 1;
const OPEN: u32 = 2;
const REFUSED: u32 = 3;

/// Null if nothing is to be recorded.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// Set when system calls must end, because seccomp might kill the program for them. Inherited by children.
static SEALED: AtomicBool = AtomicBool::new(false);
static KEY: AtomicU32 = AtomicU32::new(0);

/// The directory as a C string, written once before there are threads.
struct Directory(UnsafeCell<[u8; 4096]>);
// SAFETY: only `begin` writes it, before any thread can read it.
unsafe impl Sync for Directory {}
static DIRECTORY: Directory = Directory(UnsafeCell::new([0; 4096]));

/// Initialises the library if it has work to do; returns whether it has.
pub fn begin() -> bool {
    let Some(directory) = std::env::var_os(VARIABLE) else { return false };
    let bytes = directory.as_encoded_bytes();
    if !bytes.starts_with(b"/") || bytes.len() > 4000 || !glibc_is_known() {
        return false;
    }
    // SAFETY: the program has not begun; the length fits.
    unsafe { (&mut *DIRECTORY.0.get())[..bytes.len()].copy_from_slice(bytes) };
    let mut key = 0;
    // SAFETY: a function that a thread's end may call, and a live local.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } != 0 {
        return false;
    }
    KEY.store(key, Relaxed);
    // SAFETY: a new mapping of one page.
    unsafe {
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), 4096, read_write, private, -1, 0);
        if page == libc::MAP_FAILED || libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            return false;
        }
        PROCESS.store(page.cast(), Release);
    }
    true
}

fn process() -> Option<&'static Process> {
    // SAFETY: null, or the page that stays; all zeroes are a valid one.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// Whether [`ticks`] reads the processor's counter.
static TSC: AtomicBool = AtomicBool::new(false);

/// A counter that is read in 10 ns rather than in 23: the processor's, if the kernel's own clock is based on
/// it, otherwise the clock.
fn ticks() -> u64 {
    if TSC.load(Relaxed) { processor_ticks() } else { now() }
}

/// Checks whether the kernel's clock is based on the processor's counter, which is then equal on all CPUs and
/// never stops.
fn find_ticks() {
    let mut name = [0u8; 16];
    // SAFETY: a C string and a live local.
    unsafe {
        let clock = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let fd = libc::open(clock.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::read(fd, name.as_mut_ptr().cast(), name.len());
            libc::close(fd);
        }
    }
    TSC.store([&b"tsc\n"[..], b"kvm-clock\n"].iter().any(|known| name.starts_with(known)), Relaxed);
}

fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// This thread's words, brought up to date after a fork.
fn myself(process: &Process) -> &'static Mine {
    // SAFETY: static thread-local memory.
    let mine = unsafe { &*mine() };
    let mut session = process.session.load(Relaxed);
    if session == 0 {
        let new = now() | 1;
        session = process.session.compare_exchange(0, new, Relaxed, Relaxed).err().unwrap_or(new);
    }
    if mine.session.get() != session {
        mine.place.set(0);
        mine.taking.set(false);
        mine.session.set(session);
    }
    mine
}

/// A thread's place in the file.
#[derive(Clone, Copy)]
struct Place {
    thread: &'static Thread,
    entries: &'static [Entry; ENTRIES],
}

/// The mapped file.
#[derive(Clone, Copy)]
struct File(usize);

impl File {
    fn header(self) -> &'static Header {
        // SAFETY: the mapping is permanent and aligned to pages, and all bytes are valid.
        unsafe { &*(self.0 as *const Header) }
    }

    fn thread_at(self, index: usize) -> usize {
        self.0 + AT_THREADS + index * size_of::<Thread>()
    }

    fn place(self, index: usize) -> Place {
        // SAFETY: as above; `index` is below THREADS.
        unsafe {
            Place {
                thread: &*(self.thread_at(index) as *const Thread),
                entries: &*((self.0 + AT_ENTRIES + index * TABLE) as *const [Entry; ENTRIES]),
            }
        }
    }

    /// Allocates a thread's pages in the file system: otherwise the first write could end the program
    /// (SIGBUS).
    fn has_room(self, index: usize) -> bool {
        populated(self.thread_at(index) & !4095, 4096)
            && populated(self.0 + AT_ENTRIES + index * TABLE, TABLE)
    }
}

fn populated(at: usize, length: usize) -> bool {
    // SAFETY: pages of the mapping.
    unsafe { libc::madvise(at as *mut c_void, length, libc::MADV_POPULATE_WRITE) == 0 }
}

/// The process's file, made if there is none yet.
fn file(process: &Process) -> Option<File> {
    for _ in 0..1000 {
        match process.state.load(Acquire) {
            OPEN => return Some(File(process.base.load(Relaxed))),
            REFUSED => return None,
            NONE if SEALED.load(Relaxed) => return None,
            NONE if process.state.compare_exchange(NONE, OPENING, Relaxed, Relaxed).is_ok() => {
                let opened = open();
                process.base.store(opened.unwrap_or(0), Relaxed);
                process.state.store(if opened.is_some() { OPEN } else { REFUSED }, Release);
            }
            // Another thread makes it, or this thread does and a signal interrupted it. This thread is about
            // to wait in any case.
            // SAFETY: always.
            _ => drop(unsafe { libc::sched_yield() }),
        }
    }
    None
}

/// Makes and maps the file.
fn open() -> Option<usize> {
    let mut name = [0u8; 4200];
    // SAFETY: not written any more.
    let directory = unsafe { &*DIRECTORY.0.get() };
    let mut length = directory.iter().position(|&b| b == 0)?;
    name[..length].copy_from_slice(&directory[..length]);
    // SAFETY: always.
    let pid = unsafe { libc::getpid() } as u32;
    // A process may run several programs, one after the other.
    for (parting, number) in [(b'/', u64::from(pid)), (b'.', now())] {
        name[length] = parting;
        length += 1;
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = number;
        for at in (length..length + digits).rev() {
            name[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        length += digits;
    }
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: live locals, a C string, a file just made and a new mapping of it.
    unsafe {
        // A file larger than the limit would raise SIGXFSZ.
        if libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut most) != 0 || most.rlim_cur < SIZE as u64 {
            return None;
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let fd = libc::open(name.as_ptr().cast(), flags, 0o600);
        if fd < 0 {
            return None;
        }
        let mut at = libc::MAP_FAILED;
        if libc::ftruncate(fd, SIZE as i64) == 0 {
            at = libc::mmap(
                std::ptr::null_mut(),
                SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            );
        }
        libc::close(fd);
        if at == libc::MAP_FAILED {
            return None;
        }
        if !populated(at as usize, AT_THREADS) {
            libc::munmap(at, SIZE);
            return None;
        }
        let header = File(at as usize).header();
        header.pid.store(pid, Relaxed);
        find_ticks();
        header.ticks.store(TSC.load(Relaxed).into(), Relaxed);
        describe(at as usize);
        header.magic.store(MAGIC, Release);
        Some(at as usize)
    }
}

unsafe extern "C" {
    static program_invocation_short_name: *const libc::c_char;
}

/// Stores the process's name and mappings, for readers of the file after it has ended.
unsafe fn describe(at: usize) {
    let header = File(at).header();
    // SAFETY: libc's own string, and pages of the mapping that are allocated.
    unsafe {
        for (i, to) in header.name[..15].iter().enumerate() {
            let byte = *program_invocation_short_name.add(i) as u8;
            if byte == 0 {
                break;
            }
            to.store(byte, Relaxed);
        }
        let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let mut read = 0;
        while maps >= 0 && read < AT_THREADS - AT_MAPS {
            match libc::read(maps, (at + AT_MAPS + read) as *mut c_void, AT_THREADS - AT_MAPS - read) {
                n @ 1.. => read += n as usize,
                _ => break,
            }
        }
        libc::close(maps);
        header.maps.store(read as u32, Relaxed);
    }
}

/// This thread's place, taken if it has none yet; `None` if all places are used.
fn take() -> Option<Place> {
    let process = process()?;
    let mine = myself(process);
    if mine.place.get() > 0 {
        return Some(File(process.base.load(Relaxed)).place(mine.place.get() as usize - 1));
    }
    if mine.taking.replace(true) {
        return None;
    }
    let was = errno();
    let index = file(process).and_then(|file| new_place(file, tid()));
    if let Some(index) = index {
        mine.place.set(index as u32 + 1);
        // SAFETY: the key is ours; its value only has to be non-null.
        unsafe { libc::pthread_setspecific(KEY.load(Relaxed), std::ptr::dangling::<c_void>()) };
    }
    set_errno(was);
    // A thread that finds no place does not search again.
    mine.taking.set(index.is_none());
    index.map(|index| File(process.base.load(Relaxed)).place(index))
}

/// The number of places of ended threads that are examined before a new one is used.
const LOOKS: usize = 64;

fn new_place(file: File, tid: u32) -> Option<usize> {
    let header = file.header();
    let free = |index: usize| {
        let thread = file.place(index).thread;
        thread.tid.load(Relaxed) == 0 && thread.tid.compare_exchange(0, tid, Acquire, Relaxed).is_ok()
    };
    loop {
        let used = header.used.load(Acquire) as usize;
        let looks = if used < THREADS { used.min(LOOKS) } else { THREADS };
        if let Some(index) = (0..looks).find(|&index| free(index)) {
            return Some(index);
        }
        if used == THREADS || SEALED.load(Relaxed) || !file.has_room(used) {
            header.turned_away.fetch_add(1, Relaxed);
            return None;
        }
        if header.used.compare_exchange(used as u32, used as u32 + 1, AcqRel, Relaxed).is_ok() && free(used) {
            return Some(used);
        }
    }
}

/// A thread that had a place has ended: it may have been cancelled while it waited.
extern "C" fn ended(_: *mut c_void) {
    let Some(process) = process() else { return };
    let mine = myself(process);
    let Some(place) = (mine.place.get() > 0).then(take).flatten() else { return };
    settle(place, now(), ticks());
    mine.place.set(0);
    place.thread.tid.store(0, Release);
}

fn add(to: &AtomicU64, more: u64) {
    // Only this thread writes it.
    to.store(to.load(Relaxed).wrapping_add(more), Relaxed);
}

/// The entry of a lock and its caller, made if it does not exist; `None` if all are in use.
fn entry(place: Place, lock: usize, caller: usize, kind: Kind) -> Option<usize> {
    let hash = (lock ^ caller.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    for i in 0..ENTRIES / 4 {
        let index = (hash + i) % ENTRIES;
        let entry = &place.entries[index];
        match entry.kind.load(Relaxed) {
            0 => {
                entry.lock.store(lock as u64, Relaxed);
                entry.caller.store(caller as u64, Relaxed);
                entry.kind.store(kind as u32, Release);
                return Some(index);
            }
            have if have == kind as u32
                && entry.lock.load(Relaxed) == lock as u64
                && entry.caller.load(Relaxed) == caller as u64 =>
            {
                return Some(index);
            }
            _ => {}
        }
    }
    None
}

/// Stores the callers of an entry that has none yet, as far as frame pointers lead.
fn walk(entry: &Entry, frame: usize) {
    if SEALED.load(Relaxed) {
        return;
    }
    let here = 0u8;
    let (mut below, mut at, mut depth) = (&raw const here as usize, frame, 0);
    // SAFETY: always.
    let pid = unsafe { libc::getpid() };
    for frame in &entry.frames {
        if at <= below || at - below > 1 << 20 || at % 8 != 0 {
            break;
        }
        let mut pair = [0usize; 2];
        let local = libc::iovec { iov_base: pair.as_mut_ptr().cast(), iov_len: 16 };
        let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: 16 };
        // SAFETY: the kernel reads the other address, which may be invalid.
        if unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) } != 16
            || pair[1] == 0
        {
            break;
        }
        frame.store(pair[1] as u64, Relaxed);
        depth += 1;
        (below, at) = (at, pair[0]);
    }
    entry.depth.store(depth, Release);
}

/// A wait in progress.
#[derive(Clone, Copy)]
pub struct Wait(&'static Thread);

impl Wait {
    /// Ends the wait. The thread may now hold the lock and make others wait, so this does as little as
    /// possible.
    pub fn end(self) {
        self.0.ended.store(ticks(), Release);
    }
}

/// To be called before a wait; `None` if the wait is not recorded.
pub fn begin_wait(call: &Call, kind: Kind, blame: Blame) -> Option<Wait> {
    let place = take()?;
    let (mut since, mut began) = (now(), ticks());
    settle(place, since, began);
    let lock = call.arguments[0];
    let index = entry(place, lock, call.caller, kind);
    if let Some(entry) = index.map(|i| &place.entries[i])
        && entry.count.load(Relaxed) == 0
        && entry.depth.load(Relaxed) == 0
    {
        let was = errno();
        walk(entry, call.frame);
        set_errno(was);
        (since, began) = (now(), ticks());
    }
    let for_lock = match kind {
        Kind::Mutex | Kind::Read | Kind::Write => true,
        // A semaphore is a lock to threads that post it themselves.
        Kind::Semaphore => has_posted(place, lock),
        Kind::Condition | Kind::Barrier | Kind::Post => false,
    };
    let thread = place.thread;
    thread.entry.store(index.map_or(0, |i| i as u32 + 1), Relaxed);
    thread.blame.store(blame.0, Relaxed);
    thread.since.store(since, Relaxed);
    thread.began.store(began, Relaxed);
    thread.ended.store(0, Relaxed);
    thread.waits.store(if for_lock { 1 } else { 2 }, Release);
    Some(Wait(thread))
}

/// Adds the thread's last wait to its sums, unless it was added already.
fn settle(place: Place, now: u64, ticks: u64) {
    let thread = place.thread;
    let waited_for = thread.waits.load(Relaxed);
    if waited_for == 0 {
        return;
    }
    let ended = match thread.ended.load(Relaxed) {
        // The wait was cut short: the thread was cancelled, or left it by a jump.
        0 => ticks,
        ended => ended,
    };
    let ns = nanoseconds((thread.since.load(Relaxed), thread.began.load(Relaxed)), ended, (now, ticks));
    thread.waits.store(0, Release);
    add(if waited_for == 1 { &thread.for_locks } else { &thread.for_others }, ns);
    let Some(entry) = (thread.entry.load(Relaxed) as usize).checked_sub(1).and_then(|i| place.entries.get(i))
    else {
        add(&thread.dropped, 1);
        add(&thread.dropped_ns, ns);
        return;
    };
    add(&entry.count, 1);
    add(&entry.ns, ns);
    if ns > entry.longest.load(Relaxed) {
        entry.longest.store(ns, Relaxed);
    }
    let blame = thread.blame.load(Relaxed);
    if blame != 0 {
        let ahead = entry.ahead.load(Relaxed);
        if entry.holder.load(Relaxed) == blame {
            entry.ahead.store(ahead.wrapping_add(ns), Relaxed);
        } else if ahead > ns {
            entry.ahead.store(ahead - ns, Relaxed);
        } else {
            entry.holder.store(blame, Relaxed);
            entry.ahead.store(ns - ahead, Relaxed);
        }
    }
}

fn has_posted(place: Place, lock: usize) -> bool {
    let post = |e: &&Entry| e.kind.load(Relaxed) == Kind::Post as u32 && e.lock.load(Relaxed) == lock as u64;
    place.entries.iter().any(|e| post(&e))
}

/// To be called when a semaphore is posted while other threads wait for it.
pub fn posted(lock: usize) {
    if let Some(place) = take()
        && let Some(index) = entry(place, lock, 0, Kind::Post)
    {
        add(&place.entries[index].count, 1);
    }
}

/// To be called when the program enters seccomp: makes everything that will be needed.
pub fn seal() {
    take();
    SEALED.store(true, Relaxed);
}
