//! How the kernel schedules a thread: its policy, niceness and slice.

use std::io;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// How the kernel schedules a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO` with a priority.
    Fifo(u32),
    /// `SCHED_RR` with a priority.
    RoundRobin(u32),
    /// As usual, with a slice of this many nanoseconds (Linux 6.12).
    Slice(u64),
}

impl std::str::FromStr for Class {
    type Err = String;
    fn from_str(text: &str) -> Result<Class, String> {
        let wrong =
            || format!("{text}: give batch, idle, fifo:1-99, rr:1-99 or slice:MILLISECONDS (0.1 to 100)");
        let priority = |p: &str| p.parse().ok().filter(|p| (1..100).contains(p)).ok_or_else(wrong);
        Ok(match text.split_once(':') {
            None if text == "batch" => Class::Batch,
            None if text == "idle" => Class::Idle,
            Some(("fifo", p)) => Class::Fifo(priority(p)?),
            Some(("rr", p)) => Class::RoundRobin(priority(p)?),
            Some(("slice", ms)) => {
                let ms = ms.parse::<f64>().ok().filter(|ms| (0.1..=100.0).contains(ms)).ok_or_else(wrong)?;
                Class::Slice((ms * 1e6) as u64)
            }
            _ => return Err(wrong()),
        })
    }
}

/// Attributes of `sched_getattr(2)` and `sched_setattr(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Schedule {
    policy: u32,
    nice: i32,
    priority: u32,
    /// Of the usual policies, the slice in ns since Linux 6.12; 0 is the kernel's.
    runtime: u64,
}

/// That of linux/sched/types.h in its first size.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// New threads get the policy of the one that starts them only without this flag.
const RESET_ON_FORK: u64 = 1;

impl Schedule {
    /// That of a class, at a niceness.
    pub fn of(class: Class, nice: i32) -> Schedule {
        let (policy, priority, runtime) = match class {
            Class::Batch => (libc::SCHED_BATCH, 0, 0),
            Class::Idle => (libc::SCHED_IDLE, 0, 0),
            Class::Fifo(priority) => (libc::SCHED_FIFO, priority, 0),
            Class::RoundRobin(priority) => (libc::SCHED_RR, priority, 0),
            Class::Slice(ns) => (libc::SCHED_OTHER, 0, ns),
        };
        Schedule { policy: policy as u32, nice, priority, runtime }
    }

    /// That of a thread; thread 0 is the calling one. Its slice is 0 where it is the kernel's. `None` where it has a deadline, or its
    /// children lose its policy: that could not be given back.
    ///
    /// # Errors
    /// It is gone.
    pub fn read(tid: u32) -> io::Result<Option<Schedule>> {
        let a = attributes(tid)?;
        let runtime = if a.runtime == usual_slice() { 0 } else { a.runtime };
        let schedule = Schedule { policy: a.policy, nice: a.nice, priority: a.priority, runtime };
        let known = schedule.is_fair() || schedule.is_realtime();
        Ok((known && a.flags & RESET_ON_FORK == 0).then_some(schedule))
    }

    /// Gives it to a thread; thread 0 is the calling one.
    ///
    /// # Errors
    /// It is gone or not ours, or we may not.
    pub fn set(self, tid: u32) -> io::Result<()> {
        let attributes = Attributes {
            size: size_of::<Attributes>() as u32,
            policy: self.policy,
            nice: self.nice,
            priority: self.priority,
            runtime: self.runtime,
            ..Attributes::default()
        };
        // SAFETY: a plain call; the structure has the length in its field.
        let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether its threads share the CPUs by weight.
    pub fn is_fair(self) -> bool {
        [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&(self.policy as i32))
    }

    fn is_realtime(self) -> bool {
        [libc::SCHED_FIFO, libc::SCHED_RR].contains(&(self.policy as i32))
    }

    /// This one at another niceness.
    pub fn at(self, nice: i32) -> Schedule {
        Schedule { nice, ..self }
    }

    /// Its niceness.
    pub fn nice(self) -> i32 {
        self.nice
    }
}

/// ns of the kernel's slice, as this process has it; 0 before Linux 6.12, where a slice has no effect.
pub fn usual_slice() -> u64 {
    static SLICE: OnceLock<u64> = OnceLock::new();
    *SLICE.get_or_init(|| attributes(std::process::id()).map_or(0, |a| a.runtime))
}

fn attributes(tid: u32) -> io::Result<Attributes> {
    let mut a = Attributes::default();
    // SAFETY: the kernel writes at most the given number of bytes.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut a, size_of::<Attributes>(), 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_a_class_and_its_own_back() {
        // A thread of its own: the others of this test keep theirs.
        std::thread::spawn(|| {
            let Some(before) = Schedule::read(0).unwrap() else { return };
            assert_eq!(before.runtime, 0);
            for class in [Class::Batch, Class::Slice(100_000_000)] {
                let other = Schedule::of(class, before.nice());
                if other.runtime > 0 && usual_slice() == 0 {
                    continue;
                }
                other.set(0).unwrap();
                assert_eq!(Schedule::read(0).unwrap(), Some(other));
                before.set(0).unwrap();
                assert_eq!(Schedule::read(0).unwrap(), Some(before));
            }
        })
        .join()
        .unwrap();
        assert!(Schedule::read(u32::MAX >> 1).is_err());
    }
}
