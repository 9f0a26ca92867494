//! Calls on what all threads of a process share: descriptors, the address space, the environment; and timeouts.

use std::ffi::CString;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once};

use crate::case::{Alone, Batch, Bench, Case, Failure, Worker, tried};
use crate::options::{Flag, Options};
use crate::runner::now;
use crate::shared::Shared;

const fn poll(name: &'static str, about: &'static str, flags: &'static [Flag]) -> Case {
    Case { name, about, flags, setup: timeout }
}

const TIMEOUT: Flag = Flag { letter: 't', value: "MS", default: "9", about: "milliseconds" };

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "dup2_close",
        about: "dup2 to a descriptor of the thread's own and close it: all threads share the table",
        flags: &[],
        setup: |_| {
            Ok(Box::new(Alone(|me: Worker| {
                let (from, _) = rustix::pipe::pipe().map_err(|e| Failure::Failed(format!("pipe: {e}")))?;
                // A number of the thread's own, above those that the runner's files have.
                let to = 512 + me.thread as i32;
                if !dup2_and_close(from.as_raw_fd(), to) {
                    return Err(Failure::os(&format!("dup2 to descriptor {to} (ulimit -n)")));
                }
                Ok(tried(move || dup2_and_close(from.as_raw_fd(), to)))
            })))
        },
    },
    Case {
        name: "mmap_munmap",
        about: "map memory, touch its pages, unmap it: all threads share the address space",
        flags: &[
            Flag { letter: 's', value: "SIZE", default: "8k", about: "bytes" },
            Flag { letter: 'u', value: "", default: "", about: "leave it untouched" },
        ],
        setup: |o| {
            let (size, touch) = (o.number('s')?.max(1) as usize, !o.has('u'));
            Ok(Box::new(Alone(move |_: Worker| Ok(tried(move || map_and_unmap(size, touch))))))
        },
    },
    Case {
        name: "getenv_writers",
        about: "look for a variable while other threads set and unset others (glibc before 2.41 races)",
        flags: &[
            Flag { letter: 'w', value: "N", default: "1", about: "threads that write" },
            Flag { letter: 's', value: "N", default: "100", about: "least number of variables" },
        ],
        setup: environment,
    },
    poll("poll_9ms", "poll nothing with a timeout of 9 ms", &[TIMEOUT]),
    poll("poll_10ms", "poll nothing with a timeout of 10 ms", &[Flag { default: "10", ..TIMEOUT }]),
    poll("poll_11ms", "poll nothing with a timeout of 11 ms", &[Flag { default: "11", ..TIMEOUT }]),
];

fn dup2_and_close(from: i32, to: i32) -> bool {
    // SAFETY: nobody else uses the number, so nobody's file is closed.
    unsafe { libc::dup2(from, to) == to && libc::close(to) == 0 }
}

fn map_and_unmap(size: usize, touch: bool) -> bool {
    // SAFETY: fresh memory, touched within its length, given back and not used after.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0);
        if at == libc::MAP_FAILED {
            return false;
        }
        if touch {
            (0..size).step_by(4096).for_each(|i| at.cast::<u8>().add(i).write_volatile(1));
        }
        libc::munmap(at, size) == 0
    }
}

struct Environment {
    writers: u64,
    start: Once,
    stop: Arc<AtomicBool>,
    missed: Shared<AtomicU64>,
    looks: Shared<AtomicU64>,
    name: CString,
}

fn environment(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let (writers, least) = (o.number('w')?.min(1000), o.number('s')?.clamp(1, 1_000_000));
    for i in std::env::vars_os().count() as u64..least {
        // SAFETY: the process has one thread yet.
        unsafe { std::env::set_var(format!("VAR_{i}"), i.to_string()) };
    }
    // SAFETY: as above. The last one is looked for, which takes longest.
    unsafe { std::env::set_var("RUMPELSTILTSKIN", "1") };
    let zero = || Shared::new(AtomicU64::new(0));
    Ok(Box::new(Environment {
        writers,
        start: Once::new(),
        stop: Arc::default(),
        missed: zero()?,
        looks: zero()?,
        name: c"RUMPELSTILTSKIN".into(),
    }))
}

/// Sets and unsets variables until told to stop.
fn write_environment(writer: u64, stop: &AtomicBool) {
    let names: Vec<CString> =
        (0..8).filter_map(|i| CString::new(format!("NCPU_{writer}_{i}")).ok()).collect();
    while !stop.load(Relaxed) {
        for name in &names {
            // SAFETY: texts that end in zeroes. That readers beside it are not safe is what is shown here.
            unsafe { libc::setenv(name.as_ptr(), c"value".as_ptr(), 1) };
        }
        for name in &names {
            // SAFETY: as above.
            unsafe { libc::unsetenv(name.as_ptr()) };
        }
    }
}

impl Bench for Environment {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        let mut failure = None;
        self.start.call_once(|| {
            for writer in 0..self.writers {
                let stop = self.stop.clone();
                let started = std::thread::Builder::new().spawn(move || write_environment(writer, &stop));
                failure = failure.take().or(started.err());
            }
        });
        failure.map_or(Ok(()), |e| Err(Failure::Failed(format!("starting a writer: {e}"))))?;
        Ok(Box::new(Look(self)))
    }
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let looks = self.looks.load(Relaxed).max(1) as f64;
        vec![("missed a million", self.missed.load(Relaxed) as f64 * 1e6 / looks)]
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

struct Look<'a>(&'a Environment);

impl Batch for Look<'_> {
    fn run(&mut self, n: u64) -> u64 {
        let f = black_box(libc::getenv as unsafe extern "C" fn(*const libc::c_char) -> *mut libc::c_char);
        // SAFETY: a name that ends in a zero. The runner reports a process that the race kills.
        let missed = (0..n).map(|_| u64::from(unsafe { f(self.0.name.as_ptr()).is_null() })).sum();
        self.0.missed.fetch_add(missed, Relaxed);
        self.0.looks.fetch_add(n, Relaxed);
        missed
    }
}

struct Timeout {
    ms: i32,
    calls: Shared<AtomicU64>,
    early: Shared<AtomicU64>,
    late: Shared<AtomicU64>,
}

fn timeout(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let ms = o.number('t')?.min(60_000) as i32;
    let zero = || Shared::new(AtomicU64::new(0));
    Ok(Box::new(Timeout { ms, calls: zero()?, early: zero()?, late: zero()? }))
}

impl Bench for Timeout {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        Ok(tried(move || {
            let begin = now();
            // SAFETY: no descriptors.
            let done = unsafe { libc::poll(std::ptr::null_mut(), 0, self.ms) };
            let took = now() - begin;
            let asked = self.ms as u64 * 1_000_000;
            self.calls.fetch_add(1, Relaxed);
            self.early.fetch_add(u64::from(took < asked), Relaxed);
            self.late.fetch_add(took.saturating_sub(asked), Relaxed);
            done == 0
        }))
    }
    fn batch(&self) -> Option<u64> {
        Some(1)
    }
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let calls = self.calls.load(Relaxed).max(1) as f64;
        vec![
            ("us late", self.late.load(Relaxed) as f64 / 1e3 / calls),
            ("early", self.early.load(Relaxed) as f64),
        ]
    }
}
