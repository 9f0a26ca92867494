//! What timers need of the machine: a clock, alarms, threads on a CPU of their own, and to know of forks.

use crate::raw_mutex::RawMutex;
use crate::sys::{self, AtomicBool, AtomicU32, Instant, Ordering};
use Ordering::{Acquire, Relaxed, Release};
use std::ffi::c_void;
use std::io::{self, Write};

/// The time on `CLOCK_MONOTONIC` in ns.
pub fn clock() -> u64 {
    Instant::now().ns()
}

/// The CPU this thread is on. Unlike [`sys::cpu`] at any price: a timer shall expire where it was armed.
#[inline]
pub fn here() -> usize {
    let ask = || {
        // SAFETY: takes nothing; negative only on kernels without it.
        u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
    };
    sys::cpu().unwrap_or_else(ask) as usize
}

/// A timerfd. Anybody may set it while its one waiter waits, which costs the waiter nothing.
pub struct Alarm(libc::c_int);

impl Alarm {
    /// One that is not set. Fails without descriptors or memory.
    pub fn new() -> io::Result<Alarm> {
        // SAFETY: takes no pointers.
        match unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) } {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(Alarm(fd)),
        }
    }

    /// Lets [`Alarm::wait`] return at `at` ns, at once if that has passed, and not at the time set before.
    pub fn set(&self, at: u64) -> io::Result<()> {
        // Zero would switch it off.
        let at = at.max(1);
        let value = libc::timespec {
            tv_sec: (at / 1_000_000_000) as libc::time_t,
            tv_nsec: (at % 1_000_000_000) as libc::c_long,
        };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let times = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: reads `times`.
        let done =
            unsafe { libc::timerfd_settime(self.0, libc::TFD_TIMER_ABSTIME, &times, std::ptr::null_mut()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for the time set last.
    pub fn wait(&self) -> io::Result<()> {
        let mut times = 0u64;
        loop {
            // SAFETY: eight writable bytes.
            let got = unsafe { libc::read(self.0, (&raw mut times).cast::<c_void>(), size_of::<u64>()) };
            if got == size_of::<u64>() as isize {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: its own descriptor.
        unsafe { libc::close(self.0) };
    }
}

/// What a [`Helper`] does.
pub trait Serve {
    /// The thread's life.
    fn serve(&self);
}

/// A thread of the library's own. No signal handler of the program runs on it.
pub struct Helper(libc::pthread_t);

impl Helper {
    /// Starts one. Fails without memory or if there may be no more threads.
    ///
    /// # Safety
    /// `server` outlives the thread: [`Helper::join`] comes first.
    pub unsafe fn start<S: Serve + Sync>(server: *const S) -> io::Result<Helper> {
        extern "C" fn body<S: Serve>(server: *mut c_void) -> *mut c_void {
            // SAFETY: from below, alive until the join.
            unsafe { &*server.cast_const().cast::<S>() }.serve();
            std::ptr::null_mut()
        }
        // SAFETY: all pointers are to locals, and the start routine takes what it is given.
        unsafe {
            let (mut all, mut old, mut thread) = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            let error = libc::pthread_create(
                &mut thread,
                std::ptr::null(),
                body::<S>,
                server.cast_mut().cast::<c_void>(),
            );
            libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
            if error == 0 { Ok(Helper(thread)) } else { Err(io::Error::from_raw_os_error(error)) }
        }
    }

    /// Waits for its end.
    pub fn join(self) {
        // SAFETY: joined once, since that consumes it.
        unsafe { libc::pthread_join(self.0, std::ptr::null_mut()) };
    }
}

/// Binds this thread to a CPU. False if it may not run there.
pub fn bind(cpu: usize) -> bool {
    // As many CPUs as Linux can be built for; `cpu_set_t` has fewer.
    let mut set = [0u64; 128];
    let Some(word) = set.get_mut(cpu / 64) else { return false };
    *word = 1 << (cpu % 64);
    // SAFETY: reads the set.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) == 0 }
}

/// For a helper: names its thread after its CPU and binds it. Where that is refused the kernel decides where it runs.
pub fn settle(cpu: usize) {
    // Zero at its end, and without memory of the heap, which might be short.
    let mut name = [0u8; 16];
    let _cut = write!(&mut name[..15], "ncpu-timer/{cpu}");
    // SAFETY: reads up to 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    bind(cpu);
}

static FORKS: AtomicU32 = AtomicU32::new(0);
static RENEWING: RawMutex = RawMutex::new();

extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
    // SAFETY: a child of fork has one thread.
    unsafe { RENEWING.reset_after_fork() };
}

/// How many forks lie between this process and the one that called [`watch_forks`] first.
#[inline(always)]
pub fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// Lets [`forks`] count from now on. False without memory.
pub fn watch_forks() -> bool {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Acquire) {
        // Twice, if threads meet here: then a fork counts for two, which does no harm.
        // SAFETY: the handler is a function of this library.
        if unsafe { libc::pthread_atfork(None, None, Some(forked)) } != 0 {
            return false;
        }
        WATCHED.store(true, Release);
    }
    true
}

/// Runs `renew` while no other thread does.
pub fn once_forked(renew: impl FnOnce()) {
    RENEWING.lock();
    renew();
    // SAFETY: taken above.
    unsafe { RENEWING.unlock() };
}
