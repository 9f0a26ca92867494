//! The time in which the kernel calls programs at switches and wake-ups, measured when an observation begins.
//!
//! The programs time themselves. The way from the tracepoint to the program and back is outside of that. Two processes
//! of our own wake each other in turn on one CPU, several times without and several times with a program that does nothing at the
//! switch; the difference is taken out of what a CPU was doing, too.
//!
//! A thread measures while the kernel looks at the programs that are loaded, which takes longer. The program that does nothing stays
//! until the others have been attached: where a tracepoint loses its last program, the next one that gets its first waits for all
//! CPUs, some 20 ms.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::thread::JoinHandle;

use ncpu_observe_core::program::keep_only;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};

/// Round trips of a part, and parts of a measurement. The fastest part is one that was not disturbed.
const TRIPS: u32 = 8;
const PARTS: u32 = 45;
/// Measurements of which the median is taken: other CPUs may slow one down and not the next.
const ROUNDS: usize = 5;

/// ns that it takes to call the programs, without their own time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Around {
    /// The program at a switch.
    pub switch: f64,
    /// Those at a wake-up.
    pub wake: f64,
}

/// A thread that measures.
pub(super) struct Measuring(Option<JoinHandle<std::io::Result<(Around, OwnedFd)>>>);

impl Measuring {
    /// Starts it.
    pub fn start() -> Measuring {
        let measure = || Pair::start()?.measure();
        Measuring(std::thread::Builder::new().name("ncpu-around".into()).spawn(measure).ok())
    }

    /// The times, and the program that does nothing, attached until it is dropped.
    pub fn end(self) -> std::io::Result<(Around, OwnedFd)> {
        let result = self.0.and_then(|thread| thread.join().ok());
        result.unwrap_or_else(|| Err(std::io::Error::other("no thread could measure it")))
    }
}

/// Two processes that wake each other; killed when dropped.
struct Pair {
    children: [Pid; 2],
    orders: OwnedFd,
    answers: OwnedFd,
}

impl Pair {
    /// Starts them on this CPU.
    fn start() -> std::io::Result<Pair> {
        let (orders_read, orders) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answers, answers_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (there_read, there) = pipe_with(PipeFlags::CLOEXEC)?;
        let (back_read, back) = pipe_with(PipeFlags::CLOEXEC)?;
        let cpu = rustix::thread::sched_getcpu();
        let fork = |kept: &[RawFd], child: &dyn Fn()| -> std::io::Result<Pid> {
            // SAFETY: the child calls only async-signal-safe functions until it exits.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                keep_only(kept);
                let mut set = rustix::thread::CpuSet::new();
                set.set(cpu);
                if rustix::thread::sched_setaffinity(None, &set).is_ok() {
                    child();
                }
                // SAFETY: runs no destructors.
                unsafe { libc::_exit(0) };
            }
            Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(std::io::Error::last_os_error)
        };
        let [orders_fd, answers_fd] = [&orders_read, &answers_write].map(AsRawFd::as_raw_fd);
        let [there_read_fd, there_fd, back_read_fd, back_fd] =
            [&there_read, &there, &back_read, &back].map(AsRawFd::as_raw_fd);
        let echo = fork(&[there_read_fd, back_fd], &|| while get(&there_read) && put(&back, 1) {})?;
        let first = fork(&[orders_fd, answers_fd, there_fd, back_read_fd], &|| {
            while get(&orders_read) {
                let mut best = u64::MAX;
                for _ in 0..PARTS {
                    let begin = monotonic();
                    for _ in 0..TRIPS {
                        if !put(&there, 1) || !get(&back_read) {
                            return;
                        }
                    }
                    best = best.min(monotonic() - begin);
                }
                // SAFETY: writes a live local.
                if unsafe { libc::write(answers_write.as_raw_fd(), (&raw const best).cast(), 8) } != 8 {
                    return;
                }
            }
        });
        let first = match first {
            Ok(first) => first,
            Err(e) => {
                end(echo);
                return Err(e);
            }
        };
        Ok(Pair { children: [first, echo], orders, answers })
    }

    /// ns of a switch and a wake-up, in the fastest part.
    fn work(&self) -> std::io::Result<f64> {
        rustix::io::write(&self.orders, &[1])?;
        let mut answer = [0; 8];
        if rustix::io::read(&self.answers, &mut answer)? != answer.len() {
            return Err(std::io::Error::other("a process that is measured has ended"));
        }
        Ok(u64::from_ne_bytes(answer) as f64 / f64::from(2 * TRIPS))
    }

    /// The median of several measurements.
    fn median(&self) -> std::io::Result<f64> {
        let mut all = [0.0; ROUNDS];
        for one in &mut all {
            *one = self.work()?;
        }
        all.sort_unstable_by(f64::total_cmp);
        Ok(all[ROUNDS / 2])
    }

    fn measure(&self) -> std::io::Result<(Around, OwnedFd)> {
        let plain = self.median()?;
        let nothing = attach_nothing()?;
        let switch = (self.median()? - plain).max(0.0);
        // Two programs are called at a wake-up.
        Ok((Around { switch, wake: 2.0 * switch }, nothing))
    }
}

/// Attaches a program that does nothing to switches, until the descriptor is closed.
fn attach_nothing() -> std::io::Result<OwnedFd> {
    let instruction = |code: u32| libbpf_sys::bpf_insn { code: code as u8, ..Default::default() };
    // r0 = 0; return.
    let set_r0 = instruction(libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K);
    let program = [set_r0, instruction(libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT)];
    let owned = |fd: i32| match fd {
        // SAFETY: a descriptor that was made for this call alone.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        error => Err(std::io::Error::from_raw_os_error(-error)),
    };
    // SAFETY: both strings and the instructions live meanwhile; no options are given.
    let loaded = owned(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
            c"nothing".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            program.as_ptr(),
            program.len() as _,
            std::ptr::null_mut(),
        )
    })?;
    // SAFETY: as above.
    owned(unsafe { libbpf_sys::bpf_raw_tracepoint_open(c"sched_switch".as_ptr(), loaded.as_raw_fd()) })
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.children.into_iter().for_each(end);
    }
}

fn end(child: Pid) {
    // Gone already is as good.
    let _ = rustix::process::kill_process(child, Signal::KILL);
    let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
}

fn monotonic() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn get(from: &OwnedFd) -> bool {
    let mut byte = 0u8;
    // SAFETY: reads a byte into a live local.
    unsafe { libc::read(from.as_raw_fd(), (&raw mut byte).cast(), 1) == 1 }
}

fn put(to: &OwnedFd, byte: u8) -> bool {
    // SAFETY: writes a live local.
    unsafe { libc::write(to.as_raw_fd(), (&raw const byte).cast(), 1) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_wake_each_other_and_are_gone_afterwards() {
        let pair = Pair::start().expect("two processes");
        let [first, echo] = pair.children;
        let ns = pair.work().expect("a measurement");
        assert!(ns > 50.0 && ns < 1e6, "{ns} ns a switch");
        drop(pair);
        for child in [first, echo] {
            assert!(rustix::process::test_kill_process(child).is_err(), "{child:?} is still there");
        }
    }
}
