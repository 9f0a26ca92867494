//! A process's own affairs: who it is, what time it is, what it allocates.

use std::ffi::c_char;
use std::hint::black_box;

use crate::case::{Alone, Batch, Bench, Case, Failure, Worker, each, tried};
use crate::options::{Flag, Options};

/// A case without options whose workers share nothing.
macro_rules! plain {
    ($name:literal, $about:literal, $make:expr) => {
        Case { name: $name, about: $about, flags: &[], setup: |_| Ok(Box::new(Alone(|_: Worker| Ok($make)))) }
    };
}

/// The cases of this file.
pub const CASES: &[Case] = &[
    plain!("nop", "nothing: what the runner itself adds", each(|| black_box(()))),
    plain!("getpid", "ask the kernel for the process ID", {
        // SAFETY: no arguments.
        tried(|| unsafe { libc::syscall(libc::SYS_getpid) } > 0)
    }),
    plain!("gettimeofday", "read the time of day", {
        let f = black_box(
            libc::gettimeofday as unsafe extern "C" fn(*mut libc::timeval, *mut libc::timezone) -> i32,
        );
        tried(move || {
            let mut t = libc::timeval { tv_sec: 0, tv_usec: 0 };
            // SAFETY: a live timeval.
            unsafe { f(&raw mut t, std::ptr::null_mut()) == 0 }
        })
    }),
    plain!("time", "read the time in seconds", {
        let f = black_box(libc::time as unsafe extern "C" fn(*mut libc::time_t) -> libc::time_t);
        // SAFETY: null is allowed.
        tried(move || unsafe { f(std::ptr::null_mut()) } != -1)
    }),
    plain!("times", "ask for the process's CPU times", {
        tried(|| {
            let mut t = libc::tms { tms_utime: 0, tms_stime: 0, tms_cutime: 0, tms_cstime: 0 };
            // SAFETY: a live tms.
            unsafe { libc::times(&raw mut t) != -1 }
        })
    }),
    plain!("getrusage", "ask for the process's use of resources", {
        tried(|| {
            let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
            // SAFETY: room for a rusage.
            unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) == 0 }
        })
    }),
    plain!("localtime_r", "turn a time into local year, month, day, hour, minute, second", {
        let mut tm = local(0);
        let mut clock: libc::time_t = 0;
        tried(move || {
            clock ^= 1;
            // SAFETY: a live time and a live tm.
            !unsafe { libc::localtime_r(&raw const clock, &raw mut tm) }.is_null()
        })
    }),
    plain!("mktime", "turn local year, month, day, hour, minute, second into a time", {
        // SAFETY: null is allowed.
        let now = unsafe { libc::time(std::ptr::null_mut()) };
        let tms = [local(now), local(now + 1)];
        let mut i = 0;
        tried(move || {
            i ^= 1;
            let mut tm = tms[i];
            // SAFETY: a live tm.
            unsafe { libc::mktime(&raw mut tm) != -1 }
        })
    }),
    Case {
        name: "strftime",
        about: "print a time",
        flags: &[Flag { letter: 'f', value: "FORMAT", default: "%c", about: "how" }],
        setup: |o| {
            let format = std::ffi::CString::new(o.text('f').unwrap_or("%c"))
                .map_err(|_| Failure::Failed("-f: a zero in the format".into()))?;
            Ok(Box::new(Alone(move |_: Worker| {
                let (format, tms) = (format.clone(), [local(0), local(1)]);
                let (mut text, mut i) = ([0 as c_char; 80], 0);
                Ok(tried(move || {
                    i ^= 1;
                    // SAFETY: the buffer is as long as told; the format ends in a zero.
                    unsafe {
                        libc::strftime(text.as_mut_ptr(), text.len(), format.as_ptr(), &raw const tms[i]) > 0
                    }
                }))
            })))
        },
    },
    plain!("log", "a logarithm", {
        let f = black_box(f64::ln as fn(f64) -> f64);
        let mut x = 0.01;
        each(move || {
            x += 0.1;
            black_box(f(x));
        })
    }),
    plain!("exp", "an exponential", {
        let f = black_box(f64::exp as fn(f64) -> f64);
        let mut x = 0.01;
        each(move || {
            x += 0.1;
            black_box(f(1.0 / x));
        })
    }),
    plain!("lrand48", "a random number, from a state that all threads share", {
        let f = black_box(libc::lrand48 as unsafe extern "C" fn() -> libc::c_long);
        // SAFETY: threads that race for the state get some number, as libMicro's do.
        each(move || unsafe {
            black_box(f());
        })
    }),
    Case {
        name: "getenv",
        about: "look for an environment variable that is not there",
        flags: &[Flag {
            letter: 's',
            value: "N",
            default: "100",
            about: "variables that there are at least",
        }],
        setup: getenv,
    },
    Case {
        name: "malloc",
        about: "allocate and free: one of each is an operation",
        flags: &[
            Flag { letter: 's', value: "SIZE", default: "32", about: "bytes" },
            Flag { letter: 'g', value: "N", default: "100", about: "allocated before they are freed" },
        ],
        setup: malloc,
    },
    Case {
        name: "isatty",
        about: "ask whether a file is a terminal",
        flags: &[Flag { letter: 'f', value: "FILE", default: "/dev/tty", about: "the file" }],
        setup: |o| {
            let path = o.text('f').unwrap_or("/dev/tty").to_string();
            Ok(Box::new(Alone(move |_: Worker| {
                use std::os::fd::AsRawFd;
                let file = std::fs::File::open(&path).map_err(|e| Failure::Lacks(format!("{path}: {e}")))?;
                // SAFETY: an open descriptor.
                Ok(each(move || unsafe {
                    black_box(libc::isatty(file.as_raw_fd()));
                }))
            })))
        },
    },
    Case {
        name: "recurse",
        about: "call a function of 1 KB of stack that calls itself: a batch deep",
        flags: &[],
        setup: |_| Ok(Box::new(Alone(|_: Worker| Ok(Box::new(Recurse) as Box<dyn Batch>)))),
    },
];

fn local(t: libc::time_t) -> libc::tm {
    let mut tm = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: zeroes are a valid tm; a live time and room for a tm.
    unsafe {
        libc::localtime_r(&raw const t, tm.as_mut_ptr());
        tm.assume_init()
    }
}

fn getenv(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let least = o.number('s')?.min(1_000_000) as usize;
    for i in std::env::vars_os().count()..least {
        // SAFETY: the process has one thread yet.
        unsafe { std::env::set_var(format!("VAR_{i}"), i.to_string()) };
    }
    Ok(Box::new(Alone(|_: Worker| {
        let f = black_box(libc::getenv as unsafe extern "C" fn(*const c_char) -> *mut c_char);
        // SAFETY: a name that ends in a zero, and nobody changes the environment.
        Ok(tried(move || unsafe { f(c"RUMPELSTILTSKIN".as_ptr()).is_null() }))
    })))
}

struct Malloc {
    size: usize,
    held: Vec<*mut libc::c_void>,
}

impl Batch for Malloc {
    fn run(&mut self, n: u64) -> u64 {
        let (mut left, mut errors) = (n, 0);
        while left > 0 {
            let now = self.held.len().min(left as usize);
            for at in &mut self.held[..now] {
                // SAFETY: any size may be asked for.
                *at = black_box(unsafe { libc::malloc(self.size) });
                errors += u64::from(at.is_null());
            }
            for at in &mut self.held[..now] {
                // SAFETY: what malloc gave, once.
                unsafe { libc::free(*at) };
            }
            left -= now as u64;
        }
        errors
    }
}

fn malloc(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let (size, held) = (o.number('s')? as usize, o.number('g')?.clamp(1, 1 << 24) as usize);
    Ok(Box::new(Alone(move |_: Worker| {
        Ok(Box::new(Malloc { size, held: vec![std::ptr::null_mut(); held] }) as Box<dyn Batch>)
    })))
}

struct Recurse;

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth as u8; 1024]);
    if depth == 0 {
        0
    } else {
        1 + recurse(depth - 1) + u64::from(black_box(frame[7]) == 255 && depth == u64::MAX)
    }
}

impl Batch for Recurse {
    fn run(&mut self, n: u64) -> u64 {
        // Deeper than 4096 a thread's stack of 8 MB might not do.
        let (whole, rest) = (n / 4096, n % 4096);
        for _ in 0..whole {
            black_box(recurse(4096));
        }
        black_box(recurse(rest));
        0
    }
}
