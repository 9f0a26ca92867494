//! A process's own data: its identity, the time, its allocations.

use std::ffi::c_char;
use std::hint::black_box;

use super::common::linked;
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
                .map_err(|_| Failure::Usage("-f: a zero in the format".into()))?;
            Ok(Box::new(Alone(move |_: Worker| {
                let (format, tms) = (format.clone(), [local(0), local(1)]);
                let (mut text, mut i) = ([0 as c_char; 80], 0);
                Ok(tried(move || {
                    i ^= 1;
                    // SAFETY: the buffer has the given length; the format ends in a zero.
                    unsafe {
                        libc::strftime(text.as_mut_ptr(), text.len(), format.as_ptr(), &raw const tms[i]) > 0
                    }
                }))
            })))
        },
    },
    plain!("log", "a logarithm", Box::new(Maths { f: log, invert: false }) as Box<dyn Batch>),
    plain!("exp", "an exponential", Box::new(Maths { f: exp, invert: true }) as Box<dyn Batch>),
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
        flags: &[Flag { letter: 's', value: "N", default: "100", about: "least number of variables" }],
        setup: getenv,
    },
    Case {
        name: "malloc",
        about: "allocate and free: one of each is an operation",
        flags: &[
            Flag { letter: 's', value: "SIZE", default: "32", about: "bytes; several -s are taken in turn" },
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
];

unsafe extern "C" {
    fn log(x: f64) -> f64;
    fn exp(x: f64) -> f64;
}

/// A function of numbers, ten times for each of them.
struct Maths {
    f: unsafe extern "C" fn(f64) -> f64,
    invert: bool,
}

impl Batch for Maths {
    fn run(&mut self, n: u64) -> u64 {
        let (mut i, f) = (0, black_box(self.f));
        while i < n {
            let x = i as f64 + 0.01;
            let x = black_box(if self.invert { 1.0 / x } else { x });
            for _ in 0..10.min(n - i) {
                // SAFETY: takes any number.
                black_box(unsafe { f(x) });
            }
            i += 10;
        }
        0
    }
}

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
    sizes: Vec<usize>,
    held: Vec<*mut libc::c_void>,
}

impl Batch for Malloc {
    fn run(&mut self, n: u64) -> u64 {
        let malloc = linked!(libc::malloc: fn(size: usize) -> *mut libc::c_void);
        let free = linked!(libc::free: fn(at: *mut libc::c_void) -> ());
        let (mut left, mut errors) = (n as usize, 0);
        while left > 0 {
            let now = self.held.len().min(left);
            let sizes = self.sizes.iter().cycle();
            for (at, &size) in self.held[..now].iter_mut().zip(sizes) {
                // SAFETY: any size may be asked for.
                *at = unsafe { malloc(size) };
                errors += u64::from(at.is_null());
            }
            for at in &mut self.held[..now] {
                // SAFETY: what malloc gave, once.
                unsafe { free(*at) };
            }
            left -= now;
        }
        errors
    }
}

/// glibc raises the sizes from which on it maps memory and gives it back, when a mapped block is freed.
/// Small blocks get them as in a new process, whatever ncpu itself has freed before; with larger ones, the
/// case itself raises them.
fn fresh_thresholds(sizes: &[usize]) {
    const INITIAL: usize = 128 << 10;
    #[cfg(target_env = "gnu")]
    if sizes.iter().all(|&size| size < INITIAL) {
        // SAFETY: numbers only.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, INITIAL as i32);
            libc::mallopt(libc::M_TRIM_THRESHOLD, INITIAL as i32);
        }
    }
}

/// Takes the free blocks that ncpu has left behind, for good, so that the case finds a heap as in a new
/// process: all that is free lies at its end.
fn fill_holes() {
    // SAFETY: any size may be asked for; what is kept is not used.
    unsafe {
        let end = libc::malloc(100 << 10);
        for size in [64, 32, 16, 8, 4, 2, 1].map(|kb| kb << 10) {
            for _ in 0..10_000 {
                let at = libc::malloc(size);
                if at.is_null() || at > end {
                    libc::free(at);
                    break;
                }
            }
        }
    }
}

fn malloc(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let sizes: Vec<usize> = o.numbers('s')?.into_iter().map(|s| s as usize).collect();
    let held = o.number('g')?.clamp(1, 1 << 24) as usize;
    fresh_thresholds(&sizes);
    fill_holes();
    Ok(Box::new(Alone(move |_: Worker| {
        Ok(Box::new(Malloc { sizes: sizes.clone(), held: vec![std::ptr::null_mut(); held] })
            as Box<dyn Batch>)
    })))
}
