//! Time off CPU by role and by what was waited for, as the BPF programs counted it.

use std::collections::HashMap;

use super::layout::{FutexClass, TimeSlot};
use super::{Engine, layout};
use crate::names::call_name;

/// The reason why a thread is off CPU (`enum life` of engine.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Life {
    #[default]
    Rest,
    Futex,
    KernelLock,
    FileLock,
    Semaphore,
    MessageQueue,
    Device,
    Fault,
    Socket,
    Pipe,
    Events,
    Timer,
    Child,
    Stopped,
    /// A sleep that was only timed, and of which its call does not tell the kind.
    Passed,
    /// Of calls: it depends on the file.
    ByFile,
    /// On a run queue, where that is said of the thread that ended a wait (`LIFE_QUEUED`).
    Queued,
}

impl Life {
    const ALL: [Life; 16] = [
        Life::Rest,
        Life::Futex,
        Life::KernelLock,
        Life::FileLock,
        Life::Semaphore,
        Life::MessageQueue,
        Life::Device,
        Life::Fault,
        Life::Socket,
        Life::Pipe,
        Life::Events,
        Life::Timer,
        Life::Child,
        Life::Stopped,
        Life::Passed,
        Life::ByFile,
    ];

    /// By its number.
    pub fn new(raw: u32) -> Life {
        match raw as usize == Life::ALL.len() {
            true => Life::Queued,
            false => Life::ALL.get(raw as usize).copied().unwrap_or_default(),
        }
    }

    /// Sleeps in a system call.
    pub fn in_call(name: &str) -> Life {
        match name {
            "recvfrom" | "recvmsg" | "recvmmsg" | "sendto" | "sendmsg" | "sendmmsg" | "accept"
            | "accept4" | "connect" => Life::Socket,
            "read" | "write" | "readv" | "writev" | "pread64" | "pwrite64" | "preadv" | "pwritev"
            | "preadv2" | "pwritev2" | "sendfile" | "splice" | "tee" | "vmsplice" => Life::ByFile,
            "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2"
            | "io_uring_enter" | "io_getevents" | "io_pgetevents" | "pause" | "rt_sigsuspend"
            | "rt_sigtimedwait" => Life::Events,
            "nanosleep" | "clock_nanosleep" => Life::Timer,
            // A parent stands still in the second line until its child has another program, or ends.
            "wait4" | "waitid" => Life::Child,
            "vfork" | "clone" | "clone3" => Life::Child,
            "futex" | "futex_wait" | "futex_waitv" => Life::Futex,
            "flock" | "fcntl" => Life::FileLock,
            "semop" | "semtimedop" => Life::Semaphore,
            "msgsnd" | "msgrcv" | "mq_timedsend" | "mq_timedreceive" => Life::MessageQueue,
            "fsync" | "fdatasync" | "sync" | "syncfs" | "msync" | "sync_file_range" => Life::Device,
            _ => Life::Rest,
        }
    }
}

/// `call_life` of thread_time.h.
pub(super) fn call_lives() -> [u8; 512] {
    std::array::from_fn(|nr| Life::in_call(&call_name(nr as u32)) as u8)
}

/// `role_hash` of thread_time.h, with whether the thread is the first of its process.
pub(crate) fn role_hash(comm: &[u8], first: bool) -> u64 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = 0u64;
    let mut digit = false;
    for c in comm.iter().take(16) {
        let is = c.is_ascii_digit();
        if *c != 0 && !(is && digit) {
            hash = (hash ^ u64::from(if is { b'#' } else { *c })).wrapping_mul(SPREAD);
            hash ^= hash >> 32;
        }
        digit = is;
    }
    hash ^ u64::from(first)
}

/// Waits of threads of one role for one thing, that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TimeRow {
    /// Process.
    pub tgid: u32,
    /// See [`role_hash`].
    pub role: u64,
    pub life: Life,
    /// Each wait stands for others that were only timed.
    pub stands: bool,
    /// The object, in the code of its kind (thread_time.h); 1 if it has none.
    pub what: u64,
    pub futex: u64,
    pub place: u32,
    pub class: FutexClass,
    pub event: u32,
    pub count: u64,
    pub ns: u64,
    pub max: u64,
    /// The thread that ended most of the waiting; 0: nobody.
    pub holder: u32,
    pub vote: u64,
    pub held: u64,
    pub held_asleep: u64,
    pub asleep_life: Life,
    pub asleep_call: u32,
    pub asleep_vote: u64,
}

impl TimeRow {
    fn of(row: &TimeSlot) -> TimeRow {
        TimeRow {
            tgid: row.tgid,
            role: row.role,
            life: Life::new(row.life & 0xff),
            stands: row.life & 0x100 != 0,
            what: row.what,
            futex: row.futex,
            place: row.place,
            class: FutexClass::from(row.class),
            event: row.event,
            count: row.count,
            ns: row.ns,
            max: row.max,
            holder: row.holder,
            vote: row.vote,
            held: row.held,
            held_asleep: row.held_asleep,
            asleep_life: Life::new(row.asleep_life),
            asleep_call: row.asleep_call,
            asleep_vote: row.asleep_vote,
        }
    }

    /// Takes in waits for the same.
    pub fn add(&mut self, other: &TimeRow) {
        self.count += other.count;
        self.ns += other.ns;
        self.max = self.max.max(other.max);
        self.held += other.held;
        self.held_asleep += other.held_asleep;
        if self.holder == other.holder {
            self.vote += other.vote;
        } else if self.vote < other.vote {
            (self.holder, self.vote) = (other.holder, other.vote - self.vote);
        } else {
            self.vote -= other.vote;
        }
        if (self.asleep_life, self.asleep_call) == (other.asleep_life, other.asleep_call) {
            self.asleep_vote += other.asleep_vote;
        } else if self.asleep_vote < other.asleep_vote {
            (self.asleep_life, self.asleep_call) = (other.asleep_life, other.asleep_call);
            self.asleep_vote = other.asleep_vote - self.asleep_vote;
        } else {
            self.asleep_vote -= other.asleep_vote;
        }
        if other.class != FutexClass::Unknown {
            (self.futex, self.place, self.class, self.event) =
                (other.futex, other.place, other.class, other.event);
        }
    }
}

impl Engine {
    /// Takes the rows of one half of the table out of it.
    pub(super) fn time_rows(&mut self, half: usize) -> Vec<TimeRow> {
        let mut sums: HashMap<(u64, u64, u32, u32), TimeRow> = HashMap::new();
        let rows = layout::of_half(self.tables.times.len(), half);
        for row in self.tables.times.take(rows) {
            let new = TimeRow::of(&row);
            sums.entry((row.what, row.role, row.tgid, row.life))
                .and_modify(|sum| sum.add(&new))
                .or_insert(new);
        }
        let mut all: Vec<TimeRow> = sums.into_values().collect();
        all.sort_by_key(|row| (row.tgid, row.role, row.life, row.what, row.stands));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_do_not_part_roles() {
        let hash = |name: &str| role_hash(name.as_bytes(), false);
        assert_eq!(hash("worker-1"), hash("worker-27"));
        assert_eq!(hash("w3 io 12\0\0"), hash("w10 io 1"));
        assert_ne!(hash("worker-"), hash("worker-1"));
        assert_ne!(hash("worker-1"), role_hash(b"worker-1", true));
    }

    #[test]
    fn calls_are_known_by_their_names() {
        let lives = call_lives();
        let of = |nr: i64| Life::new(lives[nr as usize].into());
        assert_eq!(of(libc::SYS_read), Life::ByFile);
        assert_eq!(of(libc::SYS_recvfrom), Life::Socket);
        assert_eq!(of(libc::SYS_wait4), Life::Child);
        assert_eq!(of(libc::SYS_getpid), Life::Rest);
        assert_eq!(of(libc::SYS_nanosleep), Life::Timer);
        assert_eq!(of(libc::SYS_rt_sigtimedwait), Life::Events);
        assert_eq!(of(libc::SYS_clone3), Life::Child);
        assert_eq!(of(libc::SYS_futex_waitv), Life::Futex);
    }

    #[test]
    fn most_of_the_waiting_names_the_holder() {
        let row = |holder, ns, life| TimeRow {
            holder,
            vote: ns,
            ns,
            held: ns,
            asleep_life: life,
            asleep_vote: ns,
            ..TimeRow::default()
        };
        let mut sum = row(7, 30, Life::Device);
        sum.add(&row(9, 50, Life::Socket));
        sum.add(&row(7, 40, Life::Device));
        assert_eq!((sum.holder, sum.asleep_life, sum.ns, sum.held), (7, Life::Device, 120, 120));
    }
}
