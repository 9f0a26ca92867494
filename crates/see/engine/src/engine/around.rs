//! The time in which the kernel calls programs at switches and wake-ups, measured when an observation begins.
//!
//! The programs time themselves. The way from the tracepoint to the program and back is outside of that. Two processes
//! of our own wake each other in turn on one CPU, with a program that does nothing at the switch and without, several times; the
//! median of the differences is taken out of what a CPU was doing, too.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};

use libbpf_rs::Link;

use crate::bpf_support::Result;

/// Round trips of a part, and parts of a measurement. The fastest part is one that was not disturbed.
const TRIPS: u32 = 8;
const PARTS: u32 = 45;
/// Differences of which the median is taken: other CPUs may slow one measurement down and not the next. To attach and detach takes
/// 20 ms each time.
const ROUNDS: usize = 3;

/// ns that it takes to call the programs, without their own time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Around {
    /// The program at a switch.
    pub switch: f64,
    /// Those at a wake-up.
    pub wake: f64,
}

/// Two processes that wake each other; killed when dropped.
pub(super) struct Pair {
    children: [Pid; 2],
    orders: OwnedFd,
    answers: OwnedFd,
}

impl Pair {
    /// Starts them on this CPU.
    pub fn start() -> std::io::Result<Pair> {
        let (orders_read, orders) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answers, answers_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (there_read, there) = pipe_with(PipeFlags::CLOEXEC)?;
        let (back_read, back) = pipe_with(PipeFlags::CLOEXEC)?;
        let cpu = rustix::thread::sched_getcpu();
        let fork = |child: &dyn Fn()| -> std::io::Result<Pid> {
            // SAFETY: the child calls only async-signal-safe functions until it exits.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
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
        let echo = fork(&|| while get(&there_read) && put(&back, 1) {})?;
        let first = fork(&|| {
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

    /// Measures, where `attach` attaches a program that does nothing to switches.
    pub fn measure(&self, attach: &dyn Fn() -> Result<Vec<Link>>) -> std::io::Result<Around> {
        let mut differences = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let plain = self.work()?;
            let _links = attach().map_err(std::io::Error::other)?;
            differences.push(self.work()? - plain);
        }
        differences.sort_unstable_by(f64::total_cmp);
        let switch = differences[ROUNDS / 2].max(0.0);
        // Two programs are called at a wake-up.
        Ok(Around { switch, wake: 2.0 * switch })
    }
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
