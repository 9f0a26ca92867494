//! Threads: the ID of this one, whether another lives, and the library's own helpers.

use super::cpu::bind;
use super::fork::forks;
use std::cell::Cell;
use std::ffi::c_void;
use std::io::{self, Write};

pub(super) fn errno() -> i32 {
    // SAFETY: always a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Whether this thread is the only one of the process; false if the C library does not report it (glibc
/// before 2.32).
///
/// May allocate in that case.
pub fn alone() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: a C string; the symbol is a char of glibc that is never unloaded, and is cleared before a second thread runs.
    unsafe {
        let alone = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()).cast::<u8>();
        !alone.is_null() && *alone != 0
    }
}

/// Lets another thread run.
pub fn yield_now() {
    std::thread::yield_now();
}

thread_local! {
    /// The generation of the process in which this thread read its ID, and the ID.
    static ME: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// The kernel's ID of this thread: read once in each process, since a forked child's only thread has another.
#[inline]
pub fn thread_id() -> u32 {
    let generation = forks();
    let (known, id) = ME.get();
    if known == generation && generation != 0 { id } else { ask_id(generation) }
}

#[cold]
fn ask_id(generation: u32) -> u32 {
    // SAFETY: no arguments; always succeeds.
    let id = unsafe { libc::syscall(libc::SYS_gettid) as u32 };
    ME.set((generation, id));
    id
}

/// Whether a thread of any process in this PID namespace has not ended. True if that cannot be determined.
pub fn thread_lives(id: u32) -> bool {
    // A zombie accepts signals, so kill(2) is not enough.
    match std::fs::read_to_string(format!("/proc/{id}/stat")) {
        // After the last parenthesis of the name, which may contain any character.
        Ok(stat) => !matches!(
            stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next()),
            Some('Z' | 'X' | 'x')
        ),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => false,
        // No such thread, or /proc hides it or is not mounted. A thread of another user cannot be signalled,
        // but exists.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = libc::pid_t::try_from(id).unwrap_or(libc::pid_t::MAX);
            // Miri has no kill, and its thread IDs do not exist in /proc.
            // SAFETY: signal 0 is not sent.
            !cfg!(miri) && unsafe { libc::kill(id, 0) == 0 || errno() != libc::ESRCH }
        }
        Err(_) => true,
    }
}

/// The work of a [`Helper`].
pub trait Serve {
    /// The body of the thread.
    fn serve(&self);
}

/// A thread that belongs to the library. No signal handler of the program runs on it.
pub struct Helper(libc::pthread_t);

impl Helper {
    /// Starts a helper. Fails without memory, or if the limit of threads is reached.
    ///
    /// # Safety
    /// `server` outlives the thread: [`Helper::join`] comes first.
    pub unsafe fn start<S: Serve + Sync>(server: *const S) -> io::Result<Helper> {
        extern "C" fn body<S: Serve>(server: *mut c_void) -> *mut c_void {
            // SAFETY: from below, alive until the join.
            unsafe { &*server.cast_const().cast::<S>() }.serve();
            std::ptr::null_mut()
        }
        // SAFETY: all pointers are to locals, and the start routine gets the pointer that it expects.
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

/// For a helper: names its thread after its CPU and binds it. If binding is refused the kernel decides where
/// it runs.
pub fn settle(cpu: usize) {
    // Zero-terminated, and without heap memory, which might be short.
    let mut name = [0u8; 16];
    let _cut = write!(&mut name[..15], "ncpu-timer/{cpu}");
    // SAFETY: reads up to 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    bind(cpu);
}
