//! Processes and threads: their begin and end.

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;

use super::common::{alone, flag, owned};
use crate::case::{Batch, Batches, Bench, Case, Failure, tried};
use crate::shared::Area;

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "fork",
        about: "fork a small process, which waits for all of its batch",
        flags: &[],
        setup: |_| herd("hold", 0, FORK | MEET, WAIT),
    },
    Case {
        name: "exit",
        about: "end a small process that was forked before, and wait for it",
        flags: &[flag('e', "", "", "by _exit, which does not run what was registered to run at exit")],
        setup: |o| herd(if o.has('e') { "_exit" } else { "exit" }, FORK, MEET | WAIT, 0),
    },
    Case {
        name: "vfork",
        about: "vfork a process that ends at once, and wait for it",
        flags: &[],
        setup: |_| {
            alone(|_| {
                let stack = Area::new(STACK)?;
                // SAFETY: posix_spawn's way of it: the parent's memory, on a stack of its own, until it ends.
                Ok(tried(move || unsafe {
                    let top = stack.at().add(STACK).cast();
                    let how = libc::CLONE_VFORK | libc::CLONE_VM | libc::SIGCHLD;
                    ended(libc::clone(at_once, top, how, std::ptr::null_mut()))
                }))
            })
        },
    },
    Case {
        name: "exec",
        about: "execute a small program, which executes itself, a batch in a row",
        flags: &[],
        setup: |_| {
            let program = Arc::new(Program::new()?);
            Ok(Box::new(Batches(128, move |_| {
                Ok(Box::new(Exec { program: program.clone(), count: CString::default() }) as Box<dyn Batch>)
            })))
        },
    },
    Case {
        name: "posix_spawn",
        about: "start a small program with posix_spawn, and wait for its end",
        flags: &[],
        setup: |_| {
            let program = Arc::new(Program::new()?);
            alone(move |_| {
                let program = program.clone();
                Ok(tried(move || program.spawn()))
            })
        },
    },
    Case {
        name: "system",
        about: "run a command in a shell",
        flags: &[flag('c', "COMMAND", "A=$$", "the command")],
        setup: |o| {
            let command = o.path('c')?;
            alone(move |_| {
                let command = command.clone();
                // SAFETY: a command that ends in a zero.
                Ok(tried(move || unsafe { libc::system(command.as_ptr()) == 0 }))
            })
        },
    },
    Case {
        name: "popen",
        about: "run a command in a shell and read its output to the end",
        flags: &[flag('c', "COMMAND", "A=$$", "the command")],
        setup: |o| {
            let command = o.path('c')?;
            alone(move |_| {
                let command = command.clone();
                Ok(tried(move || popen(&command)))
            })
        },
    },
    Case {
        name: "pthread_create",
        about: "create a thread",
        flags: &[flag('s', "SIZE", "0", "bytes of its stack; 0 for the system's choice")],
        setup: |o| {
            let stack = o.size('s')?;
            alone(move |_| Ok(Box::new(Threads::new(stack)?) as Box<dyn Batch>))
        },
    },
];

const STACK: usize = 64 << 10;

extern "C" fn at_once(_: *mut c_void) -> i32 {
    0
}

/// Waits for a process; whether it was one and ended well.
fn ended(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: a live int.
    pid > 0 && unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0
}

// The commands that the small program understands, see c/small.c.
const FORK: u32 = 1;
const MEET: u32 = 2;
const WAIT: u32 = 4;

/// Processes that a small program of each worker forks, that wait until all have come so far, and end or are held;
/// what is done before a batch, in it and after.
fn herd(how: &'static str, before: u32, run: u32, after: u32) -> Result<Box<dyn Bench>, Failure> {
    let program = Arc::new(Program::new()?);
    alone(move |_| {
        let mut child = std::process::Command::new(program.path().to_string_lossy().as_ref())
            .arg("herd")
            .arg(how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Failed("a process without the pipes that were asked for".into()));
        };
        Ok(Box::new(Herd { child, orders: Some(orders), answers, steps: [before, run, after] })
            as Box<dyn Batch>)
    })
}

struct Herd {
    child: std::process::Child,
    orders: Option<std::process::ChildStdin>,
    answers: std::process::ChildStdout,
    steps: [u32; 3],
}

impl Herd {
    /// Has a step done with `n` processes; how many failed.
    fn order(&mut self, what: u32, n: u64) -> u64 {
        if what == 0 {
            return 0;
        }
        let mut order = [0; 8];
        order[..4].copy_from_slice(&what.to_ne_bytes());
        order[4..].copy_from_slice(&(n as u32).to_ne_bytes());
        let mut answer = [0; 4];
        let told = self.orders.as_mut().is_some_and(|orders| orders.write_all(&order).is_ok());
        if told && self.answers.read_exact(&mut answer).is_ok() {
            u64::from(u32::from_ne_bytes(answer))
        } else {
            n
        }
    }
}

impl Batch for Herd {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        match self.order(self.steps[0], n) {
            0 => Ok(()),
            failed => {
                Err(Failure::Lacks(format!("{failed} of {n} processes could not be forked; a smaller -B?")))
            }
        }
    }

    fn run(&mut self, n: u64) -> u64 {
        self.order(self.steps[1], n)
    }

    fn after(&mut self, n: u64) {
        self.order(self.steps[2], n);
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        // If no command arrives, it exits and kills its children.
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// The small program, in memory.
struct Program(OwnedFd);

impl Program {
    fn new() -> Result<Program, Failure> {
        let cannot = |e| Failure::Lacks(format!("a program in memory (memfd_create): {e}"));
        // Open over exec, since the program is executed by this number again and again.
        // SAFETY: a name that ends in a zero.
        let fd = owned(unsafe { libc::memfd_create(c"ncpu-small".as_ptr(), 0) }).map_err(cannot)?;
        let mut file = std::fs::File::from(fd);
        file.write_all(include_bytes!(concat!(env!("OUT_DIR"), "/small")))?;
        let program = Program(file.into());
        if program.spawn() { Ok(program) } else { Err(cannot(std::io::Error::last_os_error())) }
    }

    fn path(&self) -> CString {
        CString::new(format!("/proc/self/fd/{}", self.0.as_raw_fd())).unwrap_or_default()
    }

    fn spawn(&self) -> bool {
        let path = self.path();
        let arguments = [path.as_ptr().cast_mut(), c"1".as_ptr().cast_mut(), std::ptr::null_mut()];
        let mut pid = -1;
        // SAFETY: arguments that end in a null, an environment as C has it.
        let error = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                path.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                arguments.as_ptr(),
                environ,
            )
        };
        error == 0 && ended(pid)
    }
}

unsafe extern "C" {
    static environ: *const *mut c_char;
}

struct Exec {
    program: Arc<Program>,
    count: CString,
}

impl Batch for Exec {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        self.count = CString::new(n.to_string()).unwrap_or_default();
        Ok(())
    }

    fn run(&mut self, _: u64) -> u64 {
        let path = self.program.path();
        let arguments = [path.as_ptr(), self.count.as_ptr(), std::ptr::null()];
        // SAFETY: the child executes, or ends.
        match unsafe { libc::fork() } {
            // SAFETY: arguments that end in a null.
            0 => unsafe {
                libc::execv(path.as_ptr(), arguments.as_ptr());
                libc::_exit(1)
            },
            pid => u64::from(!ended(pid)),
        }
    }
}

fn popen(command: &CStr) -> bool {
    let mut buffer = [0u8; 4096];
    // SAFETY: names that end in a zero; the buffer has the given length; closed once.
    unsafe {
        let stream = libc::popen(command.as_ptr(), c"r".as_ptr());
        if stream.is_null() {
            return false;
        }
        while libc::fread(buffer.as_mut_ptr().cast(), 1, buffer.len(), stream) > 0 {}
        libc::pclose(stream) == 0
    }
}

/// Threads that are created while a lock is held for which they wait, and let go after the batch.
struct Threads {
    threads: Vec<libc::pthread_t>,
    attributes: Option<libc::pthread_attr_t>,
    /// Its address stays.
    lock: Box<libc::pthread_mutex_t>,
}

impl Threads {
    fn new(stack: usize) -> Result<Threads, Failure> {
        let mut attributes = None;
        if stack > 0 {
            let mut a = std::mem::MaybeUninit::uninit();
            // SAFETY: room for the attributes, which are made before they are used.
            let error = unsafe {
                libc::pthread_attr_init(a.as_mut_ptr());
                libc::pthread_attr_setstacksize(a.as_mut_ptr(), stack)
            };
            if error != 0 {
                let e = std::io::Error::from_raw_os_error(error);
                return Err(Failure::Failed(format!("-s {stack}: as a thread's stack: {e}")));
            }
            // SAFETY: made above.
            attributes = Some(unsafe { a.assume_init() });
        }
        Ok(Threads { threads: Vec::new(), attributes, lock: Box::new(libc::PTHREAD_MUTEX_INITIALIZER) })
    }
}

extern "C" fn lock_and_unlock(lock: *mut c_void) -> *mut c_void {
    // SAFETY: the mutex outlives the thread, which is joined.
    unsafe {
        libc::pthread_mutex_lock(lock.cast());
        libc::pthread_mutex_unlock(lock.cast());
    }
    lock
}

impl Batch for Threads {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        self.threads.reserve(n as usize);
        // SAFETY: a live mutex, free.
        unsafe { libc::pthread_mutex_lock(&raw mut *self.lock) };
        Ok(())
    }

    fn run(&mut self, n: u64) -> u64 {
        let attributes = self.attributes.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let lock: *mut c_void = (&raw mut *self.lock).cast();
        for made in 0..n {
            let mut thread = std::mem::MaybeUninit::uninit();
            // SAFETY: room for a thread's name; the mutex outlives it.
            if unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes, lock_and_unlock, lock) } != 0 {
                return n - made;
            }
            // SAFETY: created.
            self.threads.push(unsafe { thread.assume_init() });
        }
        0
    }

    fn after(&mut self, _: u64) {
        // SAFETY: we hold it.
        unsafe { libc::pthread_mutex_unlock(&raw mut *self.lock) };
        for thread in self.threads.drain(..) {
            // SAFETY: created by the batch, joined once.
            unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        }
    }
}
