//! Threads that help with one call and end before it returns.
//!
//! # Why not pthreads
//!
//! Functions that assist `mmap`, `mlock` or `munmap` may be called with an allocator's locks held, in a
//! signal handler, or in a process that must stay single-threaded (`unshare`, `setns`). So a helper is a bare
//! kernel thread: made by `clone` on a stack of this module, with all signals blocked, unknown to libc. It
//! allocates nothing, takes no lock, and shares the caller's thread-local storage, which it therefore must
//! not touch: its code makes system calls by [`crate::sys::kernel`] and does not panic. Since libc does not
//! know of it, a program stays single-threaded in libc's view, whose locks and reference counts are cheaper
//! then.
//!
//! # Signals
//!
//! While helpers run, the caller's signals are blocked: a handler that left by `longjmp` would leave helpers
//! behind that work for a call that no longer exists. The caller checks for signals between steps. When a
//! signal is pending, helpers end and signals are unblocked. If the call continues after the handler, it goes
//! on with new helpers.
//!
//! # Memory ordering
//!
//! The kernel clears a helper's `tid` after its last instruction, and wakes the caller by futex; `Acquire` there makes
//! what helpers wrote visible. `stop` is a hint.

use crate::sys::cpus::Cpus;
use crate::sys::kernel::{self, call};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Bytes of a helper's stack. Only shallow code of this crate runs there.
const STACK: usize = 128 << 10;
/// The most helpers of one call.
pub const MOST: usize = 1024;

/// The step that all threads of a call repeat, each with its own number, until it returns false. Number 0 is
/// the caller.
pub type Step<'a> = &'a (dyn Fn(usize) -> bool + Sync);

/// State shared by the threads of a call.
struct Work<'a> {
    step: Step<'a>,
    stop: AtomicBool,
}

/// At the lowest bytes of a helper's stack.
struct Helper {
    /// The kernel's number of the thread; cleared by the kernel when it has ended.
    tid: AtomicI32,
    number: usize,
    work: *const Work<'static>,
    cpus: *const Cpus,
}

/// A signal mask, in the kernel's form.
#[derive(Clone, Copy)]
struct Signals(u64);

impl Signals {
    /// Blocks all signals; returns the previous mask.
    fn block() -> Result<Signals, i32> {
        Signals(u64::MAX).set()
    }

    /// Sets this mask; returns the previous one.
    fn set(self) -> Result<Signals, i32> {
        let mut before = Signals(0);
        let (new, old) = ((&raw const self.0) as usize, (&raw mut before.0) as usize);
        // SAFETY: two sets of 8 bytes.
        unsafe { call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, new, old, 8, 0, 0]) }?;
        Ok(before)
    }

    /// Whether a signal is pending that this mask lets through.
    fn waiting(self) -> bool {
        let mut pending = 0u64;
        // SAFETY: a set of 8 bytes.
        let asked = unsafe { call(libc::SYS_rt_sigpending, [(&raw mut pending) as usize, 8, 0, 0, 0, 0]) };
        asked.is_ok() && pending & !self.0 != 0
    }
}

/// Repeats `step` until there is no more to do, on this thread and up to `helpers` others, or fewer if the
/// kernel creates fewer. `cpus` returns the CPUs of helper number N, from 1; `None`: the CPUs of the caller.
///
/// When this returns, the helpers are gone. `step` must neither panic nor use thread-local storage.
pub fn run<'a>(helpers: usize, cpus: &dyn Fn(usize) -> Option<&'a Cpus>, step: Step<'_>) {
    let helpers = helpers.min(MOST);
    if helpers > 0
        && let Ok(stacks) = kernel::map(helpers * STACK)
    {
        while with_helpers(stacks, helpers, cpus, step) {}
        // SAFETY: no helper is left. Memory of our own, whole: it cannot fail.
        let _ = unsafe { kernel::unmap(stacks, helpers * STACK) };
    }
    // Does all of the work if there can be no helpers; otherwise returns at once, as nothing is left.
    while step(0) {}
}

/// Works until all is done, or until a signal is pending: then it delivers the signal and returns true.
fn with_helpers<'a>(
    stacks: usize,
    helpers: usize,
    cpus: &dyn Fn(usize) -> Option<&'a Cpus>,
    step: Step<'_>,
) -> bool {
    let Ok(before) = Signals::block() else { return false };
    let work = Work { step, stop: AtomicBool::new(false) };
    let mut begun = 0;
    for number in 1..=helpers {
        let place = (stacks + (number - 1) * STACK) as *mut Helper;
        let helper = Helper {
            tid: AtomicI32::new(0),
            number,
            // The helpers end before this function does.
            work: (&raw const work).cast(),
            cpus: cpus(number).map_or(std::ptr::null(), |cpus| cpus as *const Cpus),
        };
        // SAFETY: the lowest bytes of a stack that is still unused.
        if !unsafe {
            place.write(helper);
            start(place)
        } {
            break;
        }
        begun = number;
    }
    let mut signalled = false;
    while !signalled && step(0) {
        signalled = before.waiting();
    }
    if signalled {
        work.stop.store(true, Ordering::Relaxed);
    }
    for number in 1..=begun {
        // SAFETY: begun with its place written.
        unsafe { join(&*((stacks + (number - 1) * STACK) as *const Helper)) };
    }
    // The previous mask: this cannot fail.
    let _ = before.set();
    signalled
}

/// Starts a helper; false if the kernel creates no thread.
///
/// # Safety
/// `place` is initialised, and lies at the lowest bytes of a free stack.
unsafe fn start(place: *mut Helper) -> bool {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    // SAFETY: this thread's errno, which must stay unchanged for the outer caller.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the stack is the helper's alone; its place outlives it.
    unsafe {
        let before = *errno;
        let tid = (&raw mut (*place).tid).cast::<libc::pid_t>();
        let top = place.byte_add(STACK).cast();
        let thread =
            libc::clone(helper, top, flags, place.cast(), tid, std::ptr::null_mut::<libc::c_void>(), tid);
        *errno = before;
        thread > 0
    }
}

extern "C" fn helper(place: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` was given it, and the thread that started the helper waits for its end.
    let (helper, work) = unsafe {
        let helper = &*place.cast::<Helper>();
        (helper, &*helper.work)
    };
    // SAFETY: null, or as above.
    if let Some(cpus) = unsafe { helper.cpus.as_ref() } {
        cpus.confine();
    }
    while (work.step)(helper.number) {
        if work.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    0
}

/// Waits for a helper's end.
fn join(helper: &Helper) {
    let thread = helper.tid.load(Ordering::Acquire);
    let mut tid = thread;
    while tid != 0 {
        let word = helper.tid.as_ptr() as usize;
        // Not a private futex: the kernel's wake-up at a thread's end isn't.
        // SAFETY: sleeps while the word has this value.
        let _ = unsafe { call(libc::SYS_futex, [word, libc::FUTEX_WAIT as usize, tid as usize, 0, 0, 0]) };
        tid = helper.tid.load(Ordering::Acquire);
    }
    if thread == 0 {
        return;
    }
    // The helper may still be counted among the process's threads, and some calls are refused to a process
    // with several threads. The wait takes a few microseconds. It is bounded, in case the number belongs to
    // another thread already.
    // SAFETY: signal 0 only checks, and yielding does no harm.
    unsafe {
        let process = call(libc::SYS_getpid, [0; 6]).unwrap_or(0);
        for _ in 0..1000 {
            if call(libc::SYS_tgkill, [process, thread as usize, 0, 0, 0, 0]).is_err() {
                break;
            }
            let _ = call(libc::SYS_sched_yield, [0; 6]);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Steps done by each thread of a call that has `work` to do.
    fn shared(helpers: usize, work: usize) -> Vec<usize> {
        let left = AtomicUsize::new(0);
        let by: Vec<AtomicUsize> = (0..=helpers).map(|_| AtomicUsize::new(0)).collect();
        run(helpers, &|_| None, &|number| {
            if left.fetch_add(1, Relaxed) >= work {
                return false;
            }
            by[number].fetch_add(1, Relaxed);
            true
        });
        by.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn all_is_done_once() {
        for (helpers, work) in [(0, 10), (1, 0), (3, 1), (7, 100_000), (40, 1000)] {
            assert_eq!(shared(helpers, work).into_iter().sum::<usize>(), work);
        }
    }

    #[test]
    fn helpers_help() {
        // Each thread waits for all others: without helpers the test would hang.
        let threads = 4;
        let met = AtomicUsize::new(0);
        run(threads - 1, &|_| None, &|_| {
            met.fetch_add(1, Relaxed);
            while met.load(Relaxed) < threads {
                std::hint::spin_loop();
            }
            false
        });
        assert!(met.into_inner() >= threads);
    }

    #[test]
    fn helpers_keep_to_their_cpus() {
        let allowed = Cpus::allowed().expect("affinity");
        let last = (0..8192).rev().find(|&cpu| allowed.contains(cpu)).expect("a CPU");
        let mut one = Cpus::none();
        one.add(last);
        let seen = AtomicUsize::new(usize::MAX);
        run(1, &|_| Some(&one), &|number| {
            if number == 1 {
                let cpus = Cpus::allowed();
                seen.store(usize::from(cpus == Some(one)), Relaxed);
            }
            // The caller waits for the helper's answer.
            number == 0 && seen.load(Relaxed) == usize::MAX
        });
        assert_eq!(seen.into_inner(), 1);
        assert_eq!(Cpus::allowed(), Some(allowed), "the caller's CPUs are unchanged");
    }

    #[test]
    fn signals_come_in_between_steps() {
        static CAUGHT: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn caught(_: libc::c_int) {
            CAUGHT.fetch_add(1, Relaxed);
        }
        // SAFETY: the handler only counts, and the signal goes to this thread alone.
        unsafe {
            libc::signal(libc::SIGUSR2, caught as *const () as libc::sighandler_t);
        }
        let steps = AtomicUsize::new(0);
        run(2, &|_| None, &|number| {
            if number > 0 {
                return steps.load(Relaxed) < 50;
            }
            let step = steps.fetch_add(1, Relaxed);
            if step >= 50 {
                return false;
            }
            if step.is_multiple_of(10) {
                assert_eq!(
                    CAUGHT.load(Relaxed),
                    step / 10,
                    "none while it is blocked, all before the next step"
                );
                // SAFETY: to this thread.
                unsafe { libc::raise(libc::SIGUSR2) };
                assert_eq!(CAUGHT.load(Relaxed), step / 10);
            }
            true
        });
        assert_eq!(CAUGHT.load(Relaxed), 5);
    }

    #[test]
    fn nothing_is_left() {
        shared(4, 100);
        // SAFETY: only reads.
        let errno = unsafe { *libc::__errno_location() };
        shared(4, 100);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, errno);
    }
}
