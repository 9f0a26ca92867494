//! Stops the threads of a process, reads their registers and releases them.
//!
//! Everything here is done by one thread of ours, the kernel's tracer. If that thread ends, for any reason,
//! the kernel detaches all tracees and lets them run (`exit_ptrace`). Nothing here changes registers, so they
//! continue unaffected. PTRACE_O_EXITKILL, which would kill them, is not used.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use crate::Error;
use crate::arch::{self, General, Sets};
use crate::target::{Status, threads};

/// A request of ptrace without data.
pub(crate) fn ptrace(request: libc::c_uint, tid: i32, address: u64, data: u64) -> io::Result<()> {
    // SAFETY: for requests with a number as data; requests with pointers have separate functions.
    let result = unsafe { libc::ptrace(request, tid, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A request of ptrace that writes to `data`, and returns a number.
pub(crate) fn ptrace_read(
    request: libc::c_uint,
    tid: i32,
    address: u64,
    data: *mut libc::c_void,
) -> io::Result<i64> {
    // SAFETY: every caller passes a buffer of the size that the request writes.
    let result = unsafe { libc::ptrace(request, tid, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Reads a set of registers; an error if the processor or the kernel lacks it.
pub(crate) fn read_set(tid: i32, kind: u32, room: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; room];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel writes at most iov_len bytes to the buffer and the length it wrote to the vector.
    let result = unsafe {
        libc::ptrace(libc::PTRACE_GETREGSET, tid, u64::from(kind), std::ptr::from_mut(&mut vector))
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(vector.iov_len);
    Ok(bytes)
}

/// The general registers of a stopped thread.
pub(crate) fn general(tid: i32) -> io::Result<General> {
    let bytes = read_set(tid, NT_PRSTATUS, arch::GENERAL)?;
    General::from_bytes(&bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Sets the general registers of a stopped thread.
pub(crate) fn set_general(tid: i32, registers: &General) -> io::Result<()> {
    let mut bytes = registers.to_bytes();
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel reads iov_len bytes from the buffer.
    let result = unsafe {
        libc::ptrace(libc::PTRACE_SETREGSET, tid, u64::from(NT_PRSTATUS), std::ptr::from_mut(&mut vector))
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The other registers of a stopped thread.
pub(crate) fn sets(tid: i32) -> Sets {
    // A set that the processor lacks is refused, and has no note.
    arch::SETS.iter().filter_map(|&kind| Some((kind, read_set(tid, kind, 16384).ok()?))).collect()
}

const NT_PRSTATUS: u32 = 1;
const PTRACE_EVENT_STOP: i32 = 128;

/// The state of a thread that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Unchanged.
    None,
    /// Stopped on our request, or with its whole process.
    Stopped,
    /// Stopped at a system call.
    Call,
    /// About to receive a signal.
    Signal(i32),
    /// Has made another thread or process, which is stopped as well.
    Cloned,
    /// Gone.
    Ended,
}

/// Checks whether a thread has stopped, or waits for it.
pub(crate) fn change(tid: i32, wait: bool) -> Change {
    let mut status = 0;
    let flags = libc::__WALL | if wait { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: status is writable.
        let result = unsafe { libc::waitpid(tid, &raw mut status, flags) };
        match result {
            0 => return Change::None,
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            -1 => return Change::Ended,
            _ => break,
        }
    }
    if !libc::WIFSTOPPED(status) {
        Change::Ended
    } else if status >> 16 == PTRACE_EVENT_STOP {
        Change::Stopped
    } else if status >> 16 == libc::PTRACE_EVENT_CLONE {
        Change::Cloned
    } else if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
        Change::Call
    } else {
        Change::Signal(libc::WSTOPSIG(status))
    }
}

/// The state of a stopped thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) tid: i32,
    pub(crate) general: General,
    pub(crate) sets: Sets,
    /// The signal it was about to receive; 0 for none.
    pub(crate) signal: i32,
    /// `siginfo_t` of that signal.
    pub(crate) siginfo: Vec<u8>,
    /// Signals it blocks.
    pub(crate) mask: u64,
    /// Whether all of its registers are known. A thread in an uninterruptible call does not stop.
    pub(crate) stopped: bool,
}

/// The threads of a process that were asked to stop. Dropping it releases all of them.
pub(crate) struct Stop {
    pid: i32,
    /// Threads that have stopped, with the signal they are about to receive.
    stopped: Vec<(i32, i32)>,
    /// Threads that were asked to stop and have not.
    running: Vec<i32>,
}

/// Why a thread does not stop.
const ASLEEP: &str = "it sleeps uninterruptibly, as in vfork until its child executes a program or ends";

/// How long to poll for threads without sleeping.
const BRISK: Duration = Duration::from_micros(200);
/// How long to wait for threads in uninterruptible sleep, after all others have stopped.
const PATIENCE: Duration = Duration::from_millis(20);

impl Stop {
    /// Attaches to one thread and stops it. The others keep running.
    ///
    /// # Errors
    /// It cannot be traced, has ended, or does not stop.
    pub(crate) fn one(pid: i32, tid: i32) -> Result<Self, Error> {
        let mut stop = Self { pid, stopped: Vec::new(), running: Vec::new() };
        stop.ask(tid)?;
        stop.wait();
        if stop.stopped.is_empty() {
            return Err(Error::Unsupported(format!("thread {tid} does not stop: {ASLEEP}")));
        }
        Ok(stop)
    }

    /// Attaches to all threads and stops them, including threads that they create meanwhile.
    ///
    /// # Errors
    /// The process cannot be traced, has ended, or all its threads sleep uninterruptibly.
    pub(crate) fn all(pid: i32) -> Result<Self, Error> {
        let stop = Self::all_that_stop(pid)?;
        match stop.stopped.is_empty() {
            true => Err(Error::Unsupported(format!("no thread of it stops: {ASLEEP}"))),
            false => Ok(stop),
        }
    }

    /// As [`Stop::all`], also if all threads sleep uninterruptibly: these execute nothing meanwhile.
    ///
    /// # Errors
    /// The process cannot be traced, or has ended.
    pub(crate) fn all_that_stop(pid: i32) -> Result<Self, Error> {
        let mut stop = Self { pid, stopped: Vec::new(), running: Vec::new() };
        let mut known = BTreeSet::new();
        loop {
            // Once every thread of the last list has stopped, no thread is left that could create another.
            let new: Vec<i32> = threads(pid)?.into_iter().filter(|tid| !known.contains(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                known.insert(tid);
                match stop.ask(tid) {
                    Ok(()) | Err(Error::Gone(_)) => {}
                    Err(e) => return Err(e),
                }
            }
            stop.wait();
        }
        if stop.stopped.is_empty() && stop.running.is_empty() { Err(Error::Gone(pid)) } else { Ok(stop) }
    }

    /// The thread runs until the stop takes effect. If we end here it runs on.
    fn ask(&mut self, tid: i32) -> Result<(), Error> {
        match ptrace(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as u64) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Err(Error::Gone(self.pid)),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                let state = Status::read(tid);
                // SAFETY: no arguments.
                let us = unsafe { libc::gettid() };
                if state.as_ref().is_ok_and(|status| status.tracer == us) {
                    // Asked before, while it slept uninterruptibly.
                    self.running.push(tid);
                    return Ok(());
                }
                return Err(match state {
                    Ok(status) if status.tracer != 0 => {
                        Error::Traced { pid: self.pid, tracer: status.tracer }
                    }
                    // A main thread that has ended while others run.
                    Ok(status) if status.state == 'Z' => Error::Gone(self.pid),
                    _ => Error::NotPermitted(self.pid),
                });
            }
            Err(e) => return Err(Error::call(format!("tracing thread {tid}"), e)),
        }
        self.running.push(tid);
        // Fails only for a thread that has just ended, which the wait will see.
        let _ = ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0);
        Ok(())
    }

    /// Waits until all threads have stopped, except those that sleep uninterruptibly.
    fn wait(&mut self) {
        let mut since = None;
        loop {
            self.look();
            if self.running.is_empty() {
                return;
            }
            let since = *since.get_or_insert_with(Instant::now);
            // The common case takes microseconds. After that a thread waits for its CPU, which may be ours.
            if since.elapsed() < BRISK {
                std::thread::yield_now();
            } else {
                std::thread::sleep(BRISK / 4);
            }
            if since.elapsed() > PATIENCE {
                let awake = |tid: &i32| Status::read(*tid).is_ok_and(|s| !matches!(s.state, 'D' | 'I'));
                if !self.running.iter().any(awake) || since.elapsed() > 100 * PATIENCE {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn look(&mut self) {
        let mut stopped = Vec::new();
        self.running.retain(|&tid| match change(tid, false) {
            Change::None => true,
            // Stops for calls and clones come only while we inject calls.
            Change::Stopped | Change::Call | Change::Cloned => {
                stopped.push((tid, 0));
                false
            }
            Change::Signal(signal) => {
                stopped.push((tid, signal));
                false
            }
            Change::Ended => false,
        });
        self.stopped.extend(stopped);
    }

    /// Whether the threads that were not released all sleep uninterruptibly. The kernel releases them when we
    /// end.
    pub(crate) fn is_asleep(&self) -> bool {
        let asleep = |tid: &i32| Status::read(*tid).is_ok_and(|s| matches!(s.state, 'D' | 'I'));
        self.stopped.is_empty() && self.running.iter().all(asleep)
    }

    /// Whether a thread stopped because it is about to receive a signal.
    pub(crate) fn has_signal(&self, tid: i32) -> bool {
        self.stopped.iter().any(|&(t, signal)| t == tid && signal != 0)
    }

    /// The registers of all threads; the main one comes first.
    pub(crate) fn registers(&self) -> Vec<Thread> {
        let mut all = Vec::with_capacity(self.stopped.len() + self.running.len());
        for &(tid, signal) in &self.stopped {
            // A thread that was killed meanwhile has no registers and is left out.
            let Ok(general) = general(tid) else { continue };
            let siginfo = if signal == 0 { Vec::new() } else { siginfo(tid) };
            let mask = mask(tid).unwrap_or(0);
            all.push(Thread { tid, general, sets: sets(tid), signal, siginfo, mask, stopped: true });
        }
        all.extend(self.running.iter().filter_map(|&tid| unstopped(self.pid, tid)));
        all.sort_by_key(|thread| (thread.tid != self.pid, thread.tid));
        all
    }

    /// Releases all threads, each with the signal it was about to receive. Threads that did not stop are
    /// released once they do: call it again until it returns that none is left.
    pub(crate) fn release(&mut self) -> bool {
        loop {
            for (tid, signal) in self.stopped.drain(..) {
                // Fails only for a thread that was killed.
                let _ = ptrace(libc::PTRACE_DETACH, tid, 0, signal as u64);
            }
            self.look();
            if self.stopped.is_empty() {
                return self.running.is_empty();
            }
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.release();
    }
}

/// `siginfo_t` of the signal that a thread is about to receive.
fn siginfo(tid: i32) -> Vec<u8> {
    let mut bytes = vec![0u8; 128];
    // SAFETY: a siginfo_t has 128 bytes.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0, bytes.as_mut_ptr()) };
    if result < 0 { Vec::new() } else { bytes }
}

const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

/// The signals that a stopped thread blocks.
pub(crate) fn mask(tid: i32) -> io::Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes the 8 bytes that are passed.
    let result = unsafe { libc::ptrace(PTRACE_GETSIGMASK, tid, 8usize, std::ptr::from_mut(&mut mask)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(mask) }
}

/// Sets the signals that a stopped thread blocks.
pub(crate) fn set_mask(tid: i32, mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads the 8 bytes that are passed.
    let result = unsafe { libc::ptrace(PTRACE_SETSIGMASK, tid, 8usize, std::ptr::from_ref(&mask)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A thread in uninterruptible sleep, from /proc: the last two words are stack pointer and program counter.
pub(crate) fn unstopped(pid: i32, tid: i32) -> Option<Thread> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let mut words = text.split_whitespace().rev();
    let mut word = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (pc, sp) = (word().unwrap_or(0), word().unwrap_or(0));
    let general = General::known(pc, sp);
    Some(Thread { tid, general, sets: Sets::new(), signal: 0, siginfo: Vec::new(), mask: 0, stopped: false })
}
