//! The child's steps after the fork: system calls only.

use std::ffi::{CStr, c_char, c_int};

use super::{Report, Step};
use crate::schedule::{Class, Schedule};

/// All that the child needs, made before the fork.
pub(super) struct Prepared<'a> {
    pub argv: &'a [*const c_char],
    pub environment: &'a [*const c_char],
    pub steps: &'a [Step],
    pub output: Option<c_int>,
    pub report: Report,
    pub parent: u32,
}

const NOT_STARTED: c_int = 125;

fn errno() -> c_int {
    // SAFETY: the C library's own, of this thread.
    unsafe { *libc::__errno_location() }
}

/// The call's error, if it gave one.
fn call(result: libc::c_long) -> Result<(), c_int> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

impl Prepared<'_> {
    /// Becomes the program, or reports what failed.
    pub fn run(&self) -> ! {
        if let Err(errno) = self.settle() {
            fail(self.report, -1, errno);
        }
        for (at, each) in self.steps.iter().enumerate() {
            if let Err(errno) = step(each, self.report) {
                fail(self.report, at as i32, errno);
            }
        }
        // Changed credentials have taken it back.
        if let Err(errno) = die_with_parent() {
            fail(self.report, -1, errno);
        }
        // SAFETY: both lists end with a null pointer; what they point to was made before the fork.
        unsafe { libc::execvpe(self.argv[0], self.argv.as_ptr(), self.environment.as_ptr()) };
        fail(self.report, -1, errno())
    }

    fn settle(&self) -> Result<(), c_int> {
        // SAFETY: system calls on descriptors and memory of our own.
        unsafe {
            call(libc::setpgid(0, 0).into())?;
            die_with_parent()?;
            // It may have died before we asked.
            if libc::getppid() != self.parent as i32 {
                return Err(libc::ESRCH);
            }
            // Rust ignores SIGPIPE, and the supervisor blocks what it waits for.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut none = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&raw mut none);
            call(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()).into())?;
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            call(null.into())?;
            call(libc::dup2(null, 0).into())?;
            if let Some(output) = self.output {
                call(libc::dup2(output, 1).into())?;
                call(libc::dup2(output, 2).into())?;
            }
            Ok(())
        }
    }
}

fn die_with_parent() -> Result<(), c_int> {
    // SAFETY: a plain system call.
    call(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }.into())
}

/// Tells the parent which step failed and why.
fn fail(report: Report, at: i32, errno: c_int) -> ! {
    let mut words = [0u8; 8];
    words[..4].copy_from_slice(&at.to_ne_bytes());
    words[4..].copy_from_slice(&errno.to_ne_bytes());
    // SAFETY: our own memory and descriptor. Eight bytes go into a pipe whole or not at all.
    unsafe {
        libc::write(report, words.as_ptr().cast(), words.len());
        libc::_exit(NOT_STARTED)
    }
}

/// Does one step.
pub(super) fn step(step: &Step, report: Report) -> Result<(), c_int> {
    // SAFETY: system calls with strings and memory that were made before the fork.
    unsafe {
        match step {
            Step::Write { path, text } => write(path, text),
            Step::Unshare(flags) => call(libc::unshare(*flags).into()),
            Step::PrivateMounts => {
                let flags = libc::MS_REC | libc::MS_SLAVE;
                let null = std::ptr::null();
                call(libc::mount(null, c"/".as_ptr(), null, flags, null.cast()).into())
            }
            Step::Mount { kind, at, options } => call(
                libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()).into(),
            ),
            Step::Directory(path) => call(libc::chdir(path.as_ptr()).into()),
            Step::Loopback => loopback(),
            Step::Affinity(mask) => {
                call(libc::syscall(libc::SYS_sched_setaffinity, 0, mask.len() * 8, mask.as_ptr()))
            }
            Step::Memory(policy, nodes) => {
                // `local` takes no nodes.
                let local = *policy == super::Policy::Local;
                let (mask, bits) =
                    if local { (std::ptr::null(), 0) } else { (nodes.as_ptr(), nodes.len() * 64 + 1) };
                call(libc::syscall(libc::SYS_set_mempolicy, *policy as c_int, mask, bits))
            }
            Step::Schedule(class) => schedule(*class),
            Step::FirstProcess => first_process(report),
        }
    }
}

fn write(path: &CStr, text: &[u8]) -> Result<(), c_int> {
    // SAFETY: as above.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        call(file.into())?;
        let written = call(libc::write(file, text.as_ptr().cast(), text.len()) as libc::c_long);
        libc::close(file);
        written
    }
}

/// Niceness stays as it is.
fn schedule(class: Class) -> Result<(), c_int> {
    // SAFETY: a plain call.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    Schedule::of(class, nice).set(0).map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL))
}

fn loopback() -> Result<(), c_int> {
    // SAFETY: the structure is zeroed, and its name fits.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        call(socket.into())?;
        let mut request = std::mem::zeroed::<libc::ifreq>();
        request.ifr_name[0] = b'l' as c_char;
        request.ifr_name[1] = b'o' as c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        let done = call(libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request).into());
        libc::close(socket);
        done
    }
}

/// Forks twice after `CLONE_NEWPID`: this process stays outside, waits and ends as its child did. The child is the
/// namespace's first process, which reaps orphans; a first process gets no signal that it has no handler for, so that
/// the program is not it, but its child.
fn first_process(report: Report) -> Result<(), c_int> {
    // SAFETY: system calls of a process with one thread.
    unsafe {
        let first = libc::fork();
        call(first.into())?;
        if first > 0 {
            stay_behind(report, first);
        }
        die_with_parent()?;
        let program = libc::fork();
        call(program.into())?;
        if program > 0 {
            stay_behind(report, program);
        }
        Ok(())
    }
}

/// Waits for a child, reaps others, and ends as the child did. Signals are for the program.
fn stay_behind(report: Report, child: libc::pid_t) -> ! {
    // SAFETY: system calls only. All descriptors but the first three go, so that pipes of the program's parent close
    // when the program ends.
    unsafe {
        if report >= 0 {
            libc::close(report);
        }
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        for signal in 1..=31 {
            if signal != libc::SIGCHLD {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        loop {
            let mut status = 0;
            let ended = libc::waitpid(-1, &raw mut status, 0);
            if ended == child {
                if libc::WIFEXITED(status) {
                    libc::_exit(libc::WEXITSTATUS(status));
                }
                // As if the signal had met us.
                let signal = libc::WTERMSIG(status);
                libc::signal(signal, libc::SIG_DFL);
                libc::kill(libc::getpid(), signal);
                libc::_exit(128 + signal);
            }
            if ended < 0 && errno() == libc::ECHILD {
                libc::_exit(NOT_STARTED);
            }
        }
    }
}
