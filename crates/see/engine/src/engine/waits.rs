//! The rows of the lock table as seven kinds of waits, each with its own figures.

use std::hash::Hash;

use ncpu_schema::CpuState;

use super::Coverage;
use super::layout::{
    Cause, FutexClass, KIND_FUTEX, KIND_LEDGER, KIND_OFF, KIND_PATH, KIND_QUEUE, KIND_SLEEP, KIND_USER,
    LockSlot, OTHERS, UserLock, Wait, state,
};
use super::{FirstWaits, LengthCount, Requests, TimeRow};

/// Waits for one lock of the kernel, by a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelLock {
    /// Address of the lock; `OTHERS` where the row stands for many.
    pub lock: u64,
    /// The stack that these waits came from, where only those whose stack was walked are counted; none in exact rows.
    pub stack: Option<u64>,
    /// The waiting process.
    pub tgid: u32,
    /// The tracepoint's flags (`LCB_F_*`).
    pub flags: u32,
    /// Waits that ended.
    pub count: u64,
    /// ns spent waiting on CPU.
    pub spin: u64,
    /// ns spent waiting off CPU.
    pub block: u64,
    /// ns of the longest wait.
    pub max: u64,
}

/// Threads woken from waits, until they were on CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Woken {
    /// ns that they stood on run queues.
    pub queued: u64,
    /// ns until idle CPUs had woken for them.
    pub waking: u64,
    /// A bit for each thread: the lowest bits of its number.
    pub threads: u64,
}

impl Woken {
    fn add(&mut self, other: &Woken) {
        self.queued += other.queued;
        self.waking += other.waking;
        self.threads |= other.threads;
    }
}

/// Waits for one futex, or for a lock that a system call takes, by a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FutexWaits {
    /// Address of the futex word, what stands for a call's lock, or `OTHERS` where the row stands for many.
    pub futex: u64,
    /// Number of the call site, assigned by user space; 0: none yet.
    pub place: u64,
    /// The waiting process.
    pub tgid: u32,
    /// PostgreSQL's own wait event (`EVENT` of engine.h); 0: nothing.
    pub event: u32,
    /// The verdict that the BPF programs had.
    pub class: FutexClass,
    /// Waits that ended: the sum of the weights of the followed ones.
    pub count: u64,
    /// The variance of that: 0 where all were followed.
    pub variance: u64,
    /// ns spent waiting.
    pub block: u64,
    /// ns of the longest wait.
    pub max: u64,
    /// The thread most of the waiting is blamed on; 0: nobody.
    pub holder: u32,
    /// Waits ended by a waker.
    pub wakes: u64,
    /// Delays of the woken.
    pub woken: Woken,
}

/// Traced waits for one user lock, by a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracedLock {
    /// Address of the lock; `OTHERS` where the row stands for many.
    pub lock: u64,
    /// As in [`KernelLock::stack`].
    pub stack: Option<u64>,
    /// The waiting process.
    pub tgid: u32,
    /// Kind of lock.
    pub kind: UserLock,
    /// Waits that ended.
    pub count: u64,
    /// ns spent waiting on CPU.
    pub spin: u64,
    /// ns spent waiting off CPU.
    pub block: u64,
    /// ns of the longest wait.
    pub max: u64,
    /// The thread most of the waiting is blamed on; 0: nobody.
    pub holder: u32,
    /// Waits ended by a waker; of goroutines those that a window's end has cut short.
    pub wakes: u64,
    /// Delays of the woken.
    pub woken: Woken,
}

/// Time off CPU from one place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OffCpu {
    /// The stack; `OTHERS` where the row stands for many.
    pub stack: u64,
    /// Why.
    pub wait: Wait,
    /// Times off CPU whose stack was walked.
    pub count: u64,
    /// Times off CPU that these stand for.
    pub waits: u64,
    /// ns off CPU.
    pub time: u64,
}

/// Sleeps with a timeout, by a call and a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sleeps {
    /// Number of the system call.
    pub call: u32,
    /// The process; 0 where the row stands for many.
    pub tgid: u32,
    /// Sleeps that ended.
    pub count: u64,
    /// ns asked for.
    pub asked: u64,
    /// ns slept.
    pub slept: u64,
    /// Threads that slept.
    pub threads: u64,
}

/// Time on run queues behind what ran there.
#[derive(Clone, Debug, PartialEq)]
pub struct Queued {
    /// State of the CPU meanwhile.
    pub at: CpuState,
    /// The process that ran there; none where the row stands for many, or for a state without a process.
    pub behind: Option<u32>,
    /// Waits that ended.
    pub count: u64,
    /// ns spent waiting.
    pub time: u64,
    /// ns of the longest wait.
    pub max: u64,
}

/// Idle time charged to the thread whose wake-up ended it.
#[derive(Clone, Debug, PartialEq)]
pub struct Charged {
    /// Process of the thread.
    pub tgid: u32,
    /// Cause of the wake-up.
    pub cause: Cause,
    /// Number of the system call that the thread waited in.
    pub call: Option<u32>,
    /// Process of the waker.
    pub waker: u32,
    /// Stack of the wait.
    pub stack: u64,
    /// Reason of the wait.
    pub wait: Wait,
    /// Idle reason of the CPUs: an index into [`ncpu_schema::IdleReason::ALL`].
    pub reason: usize,
    /// Waits that ended.
    pub count: u64,
    /// ns of idle CPUs.
    pub idle: u64,
    /// ns with at least one idle CPU.
    pub time: u64,
}

/// Time that a tenant lost to another, by numbers of the BPF programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// The tenant that lost it.
    pub victim: u32,
    /// The one that it lost it to, where that is known.
    pub culprit: Option<u32>,
    /// [`Lost::QUEUE`] and so on.
    pub cause: u32,
    /// Address of the kernel lock; code of the device; of a run queue where the culprit is not known the CPU + 1; of a limit of
    /// memory that is not that of the tenant's own group the level of that group, 0 where it is not known. `OTHERS` where the row stands for many.
    pub lock: u64,
    /// Times.
    pub count: u64,
    /// ns of threads.
    pub threads: u64,
    /// ns of CPUs.
    pub cpus: u64,
    /// Whether it stands for many that found no place in the table.
    pub unplaced: bool,
}

impl Lost {
    /// On run queues behind the other (`enum loss`).
    pub const QUEUE: u32 = 0;
    /// On run queues behind a thread of the kernel that served softirqs.
    pub const SOFTIRQ: u32 = 1;
    /// For a kernel lock that the other held.
    pub const LOCK: u32 = 2;
    /// To softirqs of the network.
    pub const NETWORK: u32 = 3;
    /// While a device served the other's requests. Without a culprit the whole wait, and in `cpus` what the request takes alone.
    pub const DEVICE: u32 = 4;
    /// Freeing memory because the machine has none.
    pub const RECLAIM: u32 = 5;
    /// Freeing memory because its group may have no more; without a culprit that group is not its own.
    pub const LIMIT: u32 = 6;
    /// To calls of other CPUs.
    pub const CALL: u32 = 7;
}

/// Rows of which the smallest are summed up, to bound their number per interval.
pub(crate) trait Waits: Sized {
    /// Rows of the same class are summed up.
    type Class: Eq + Hash;
    /// See [`Waits::Class`].
    fn class(&self) -> Self::Class;
    /// Size for the ranking: ns, then waits.
    fn size(&self) -> (u64, u64);
    /// The row as one of many.
    fn unnamed(self) -> Self;
    /// Takes another in.
    fn add(&mut self, other: &Self);
}

impl Waits for KernelLock {
    type Class = (bool, u32);
    fn class(&self) -> Self::Class {
        (self.stack.is_some(), self.flags)
    }
    fn size(&self) -> (u64, u64) {
        (self.spin + self.block, self.count)
    }
    fn unnamed(self) -> Self {
        KernelLock { lock: OTHERS, stack: self.stack.map(|_| OTHERS), tgid: 0, ..self }
    }
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.spin += other.spin;
        self.block += other.block;
        self.max = self.max.max(other.max);
    }
}

impl Waits for FutexWaits {
    type Class = FutexClass;
    fn class(&self) -> FutexClass {
        self.class
    }
    fn size(&self) -> (u64, u64) {
        (self.block, self.count)
    }
    fn unnamed(self) -> Self {
        FutexWaits { futex: OTHERS, place: 0, tgid: 0, event: 0, holder: 0, ..self }
    }
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.variance += other.variance;
        self.block += other.block;
        self.max = self.max.max(other.max);
        self.wakes += other.wakes;
        self.woken.add(&other.woken);
    }
}

impl Waits for TracedLock {
    type Class = UserLock;
    fn class(&self) -> UserLock {
        self.kind
    }
    fn size(&self) -> (u64, u64) {
        (self.spin + self.block, self.count)
    }
    fn unnamed(self) -> Self {
        TracedLock { lock: OTHERS, tgid: 0, holder: 0, ..self }
    }
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.spin += other.spin;
        self.block += other.block;
        self.max = self.max.max(other.max);
        self.wakes += other.wakes;
        self.woken.add(&other.woken);
    }
}

impl Waits for OffCpu {
    type Class = Wait;
    fn class(&self) -> Wait {
        self.wait
    }
    fn size(&self) -> (u64, u64) {
        (self.time, self.count)
    }
    fn unnamed(self) -> Self {
        OffCpu { stack: OTHERS, ..self }
    }
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.waits += other.waits;
        self.time += other.time;
    }
}

impl Waits for Sleeps {
    type Class = u32;
    fn class(&self) -> u32 {
        self.call
    }
    fn size(&self) -> (u64, u64) {
        (self.slept, self.count)
    }
    fn unnamed(self) -> Self {
        Sleeps { tgid: 0, ..self }
    }
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.asked += other.asked;
        self.slept += other.slept;
        self.threads += other.threads;
    }
}

impl Waits for Queued {
    type Class = CpuState;
    fn class(&self) -> CpuState {
        self.at
    }
    fn size(&self) -> (u64, u64) {
        (self.time, self.count)
    }
    fn unnamed(self) -> Self {
        Queued { behind: None, ..self }
    }
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.time += other.time;
        self.max = self.max.max(other.max);
    }
}

/// Counts since the last call, summed over CPUs.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// Kernel locks.
    pub kernel: Vec<KernelLock>,
    /// How much of the time those were counted in.
    pub coverage: Coverage,
    /// Futexes, and locks that system calls take.
    pub futexes: Vec<FutexWaits>,
    /// User locks with static tracepoints, and Go's.
    pub traced: Vec<TracedLock>,
    /// Time off CPU by stack.
    pub off_cpu: Vec<OffCpu>,
    /// Idle time charged to threads whose wake-up ended it.
    pub path: Vec<Charged>,
    /// Sleeps with a timeout.
    pub sleeps: Vec<Sleeps>,
    /// Time on run queues by what ran there.
    pub queued: Vec<Queued>,
    /// Losses of tenants to each other.
    pub lost: Vec<Lost>,
    /// Requests to block devices.
    pub requests: Vec<Requests>,
    /// Waits of threads that were first in a lock's queue, by length.
    pub first: Vec<FirstWaits>,
    /// Time off CPU by role and by what was waited for.
    pub(crate) times: Vec<TimeRow>,
    /// Requests of clients that were answered.
    pub(crate) served: Vec<super::RequestRow>,
    /// How long what happens often takes.
    pub(crate) lengths: Vec<LengthCount>,
    /// Fraction of the time in which waits of goroutines were counted.
    pub goroutines: Coverage,
}

impl FutexWaits {
    /// Waits that were followed, if all have the same weight.
    pub fn counted(&self) -> u64 {
        let count = self.count as f64;
        if self.variance == 0 {
            self.count
        } else {
            (count * count / (count + self.variance as f64)).round() as u64
        }
    }

    /// Half-width of the 95 % interval of `count`.
    pub fn error(&self) -> f64 {
        1.96 * (self.variance as f64).sqrt()
    }
}

impl Locks {
    /// Adds a row, summed over CPUs, to the rows of its kind.
    pub(super) fn put(&mut self, row: &LockSlot) {
        let stack = (row.stack != 0).then_some(row.stack);
        let &LockSlot { lock, tgid, kind, count, spin, block, max, holder, wakes, .. } = row;
        let woken = Woken { queued: row.queued, waking: row.waking, threads: row.threads };
        // The kind's own flags; those of PostgreSQL's waits reach further.
        let low = kind & 0xff;
        if kind & KIND_FUTEX != 0 {
            let (event, class) = (kind & !KIND_FUTEX, FutexClass::from(row.futex >> 16));
            let (futex, place) = (lock, row.stack);
            self.futexes.push(FutexWaits {
                futex,
                place,
                tgid,
                event,
                class,
                count,
                variance: spin,
                block,
                max,
                holder,
                wakes,
                woken,
            });
        } else if kind & KIND_USER != 0 {
            let kind = UserLock::from(low);
            self.traced.push(TracedLock {
                lock,
                stack,
                tgid,
                kind,
                count,
                spin,
                block,
                max,
                holder,
                wakes,
                woken,
            });
        } else if kind & KIND_SLEEP != 0 {
            let call = lock.saturating_sub(1) as u32;
            self.sleeps.push(Sleeps { call, tgid, count, asked: spin, slept: block, threads: wakes });
        } else if kind & KIND_QUEUE != 0 {
            let behind = (lock != OTHERS).then(|| lock.saturating_sub(2) as u32);
            self.queued.push(Queued { at: state(low), behind, count, time: block, max });
        } else if kind & KIND_OFF != 0 {
            let (stack, wait) = (row.stack, Wait::from(low));
            self.off_cpu.push(OffCpu { stack, wait, count, waits: spin, time: block });
        } else if kind & KIND_PATH != 0 {
            self.path.push(Charged {
                tgid,
                cause: Cause::from(lock >> 48),
                call: u32::from((lock >> 32) as u16).checked_sub(1),
                waker: lock as u32,
                stack: row.stack,
                wait: Wait::from(kind >> 8 & 0xff),
                reason: low as usize,
                count,
                idle: block,
                time: spin,
            });
        } else if kind & KIND_LEDGER != 0 {
            // The rows for all that found no place do not say who lost it.
            let victim = if tgid == 0 { super::tenant::OTHERS } else { tgid };
            self.lost.push(Lost {
                victim,
                culprit: (lock != OTHERS).then(|| lock.saturating_sub(2) as u32),
                cause: low,
                lock: row.stack,
                count,
                threads: block,
                cpus: spin,
                unplaced: tgid == 0,
            });
        } else {
            self.kernel.push(KernelLock { lock, stack, tgid, flags: kind, count, spin, block, max });
        }
    }
}

/// Sums a row of a CPU into that of all; the majority vote of each CPU is joined by weight.
pub(super) fn add(sum: &mut LockSlot, row: &LockSlot) {
    (sum.lock, sum.stack, sum.tgid, sum.kind) = (row.lock, row.stack, row.tgid, row.kind);
    sum.count += row.count;
    sum.spin += row.spin;
    sum.block += row.block;
    sum.max = sum.max.max(row.max);
    sum.wakes += row.wakes;
    sum.queued += row.queued;
    sum.waking += row.waking;
    sum.threads |= row.threads;
    sum.futex = sum.futex.max(row.futex);
    if sum.holder == row.holder {
        sum.vote += row.vote;
    } else if sum.vote < row.vote {
        sum.holder = row.holder;
        sum.vote = row.vote - sum.vote;
    } else {
        sum.vote -= row.vote;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(row: LockSlot) -> Locks {
        let mut locks = Locks::default();
        locks.put(&row);
        locks
    }

    #[test]
    fn each_kind_of_row_is_read_as_what_it_is() {
        let row = LockSlot {
            tgid: 7,
            count: 3,
            spin: 10,
            block: 20,
            max: 9,
            holder: 5,
            wakes: 2,
            ..LockSlot::default()
        };
        let with = |lock, stack, kind| LockSlot { lock, stack, kind, ..row };
        let kernel = told(with(0xffff, 0, 33)).kernel;
        assert_eq!(
            (kernel[0].lock, kernel[0].stack, kernel[0].flags, kernel[0].spin),
            (0xffff, None, 33, 10)
        );
        let event = 3 << 16 | 4;
        let futex = told(LockSlot { futex: 2 << 16 | 1 << 8, ..with(0x1000, 2, KIND_FUTEX | event) }).futexes;
        assert_eq!((futex[0].futex, futex[0].place, futex[0].event), (0x1000, 2, event));
        assert_eq!((futex[0].class, futex[0].holder), (FutexClass::Semaphore, 5));
        let traced = told(with(0x2000, 8, KIND_USER | 6)).traced;
        assert_eq!((traced[0].kind, traced[0].stack, traced[0].wakes), (UserLock::GoRead, Some(8), 2));
        let sleeps = told(with(231, 0, KIND_SLEEP)).sleeps;
        assert_eq!((sleeps[0].call, sleeps[0].asked, sleeps[0].slept, sleeps[0].threads), (230, 10, 20, 2));
        let queued = told(with(44, 0, KIND_QUEUE | CpuState::Others as u32)).queued;
        assert_eq!((queued[0].at, queued[0].behind, queued[0].time), (CpuState::Others, Some(42), 20));
        assert_eq!(told(with(OTHERS, 0, KIND_QUEUE)).queued[0].behind, None);
        let off = told(with(0, 77, KIND_OFF | 4)).off_cpu;
        assert_eq!((off[0].stack, off[0].wait, off[0].waits, off[0].time), (77, Wait::Io, 10, 20));
        let path = told(with(2 << 48 | 36 << 32 | 99, 77, KIND_PATH | 5 << 8 | 4)).path;
        assert_eq!((path[0].cause, path[0].call, path[0].waker), (Cause::Program, Some(35), 99));
        assert_eq!((path[0].wait, path[0].reason, path[0].idle, path[0].time), (Wait::Asleep, 4, 20, 10));
        assert_eq!(told(with(99, 0, KIND_PATH)).path[0].call, None);
        let lost = told(with(9, 0xffff, KIND_LEDGER | Lost::LOCK)).lost;
        assert_eq!((lost[0].victim, lost[0].culprit, lost[0].cause), (7, Some(7), Lost::LOCK));
        assert_eq!((lost[0].lock, lost[0].threads, lost[0].cpus), (0xffff, 20, 10));
        assert_eq!(told(with(OTHERS, 0, KIND_LEDGER)).lost[0].culprit, None);
    }

    #[test]
    fn the_holder_of_most_of_the_wait_is_blamed() {
        let mut sum = LockSlot::default();
        for (holder, vote) in [(1, 50), (2, 30), (3, 10), (1, 5)] {
            add(&mut sum, &LockSlot { holder, vote, count: 1, max: vote, ..LockSlot::default() });
        }
        assert_eq!((sum.holder, sum.vote, sum.count, sum.max), (1, 15, 4, 50));
    }
}
