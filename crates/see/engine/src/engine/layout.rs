//! Types that the BPF programs write (engine.h): the skeleton's own, or ours that the compiler compares with them.

use std::ffi::c_char;

use ncpu_schema::{CpuState, Microstate};
use ncpu_symbols::{PythonAt, V8At};

use super::skel::types;
use crate::bpf_support::ring::{EventHead, SCRIPT_WORDS, same_records};
use crate::bpf_support::{Plain, same_layout};

/// Where a CPU is, by its number in the BPF programs (`enum at`).
pub(crate) fn state(raw: u32) -> CpuState {
    CpuState::ALL.get(raw as usize).copied().unwrap_or(CpuState::Others)
}

/// Why a thread is off CPU (`enum wait`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Not known.
    #[default]
    Unknown,
    /// Runnable, on a run queue.
    RunQueue,
    /// Blocked in a lock of the kernel.
    KernelLock,
    /// Blocked in a futex that is a lock.
    UserLock,
    /// For a device, or asleep inside a page fault.
    Io,
    /// Anything else: pipe, poll, timer, child, condition.
    Asleep,
}

impl Wait {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Unknown => "",
            Wait::RunQueue => "run queue",
            Wait::KernelLock => "kernel lock",
            Wait::UserLock => "user lock",
            Wait::Io => "I/O",
            Wait::Asleep => "asleep",
        }
    }
}

impl From<u32> for Wait {
    fn from(raw: u32) -> Wait {
        use Wait::{Asleep, Io, KernelLock, RunQueue, Unknown, UserLock};
        let all = [Unknown, RunQueue, KernelLock, UserLock, Io, Asleep];
        all.get(raw as usize).copied().unwrap_or(Unknown)
    }
}

/// A goroutine that waits.
pub(super) use types::go_wait as GoWait;

/// Kinds of rows of the lock table, in the upper bits of [`LockSlot::kind`]; below them are flags of the kind.
/// One half of a table is written while the other is read.
pub(super) const HALVES: usize = 2;

/// The rows of one half of a table.
pub(super) fn of_half(rows: usize, half: usize) -> std::ops::Range<usize> {
    let rows = rows / HALVES;
    half * rows..(half + 1) * rows
}

/// The ends of a quarter of an octave, ns.
pub(super) fn quarter(octave: u32, part: u64) -> (u64, u64) {
    let step = 1u64 << (octave.clamp(2, 62) - 2);
    ((4 + part) * step, (5 + part) * step)
}

pub(super) const KIND_FUTEX: u32 = 0x8000_0000;
pub(super) const KIND_OFF: u32 = 0x4000_0000;
pub(super) const KIND_SLEEP: u32 = 0x2000_0000;
pub(super) const KIND_QUEUE: u32 = 0x0800_0000;
pub(super) const KIND_USER: u32 = 0x1000_0000;
pub(super) const KIND_PATH: u32 = 0x0400_0000;
pub(super) const KIND_LEDGER: u32 = 0x0200_0000;

/// Lock, or stack, of a row that stands for many: those for which there was no room (`OTHERS` of engine.h).
pub(crate) const OTHERS: u64 = 1;
/// The cause that ended the wait of a thread that idle CPUs are charged to (`enum cause`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An interrupt, or a thread on another CPU.
    Unknown,
    /// A thread of the program.
    Program,
    /// A thread of another program.
    Other,
    /// A thread of the kernel.
    Kernel,
    /// Its timeout, or a timer that it waits for.
    Timer,
}

impl From<u64> for Cause {
    fn from(raw: u64) -> Cause {
        match raw {
            2 => Cause::Program,
            3 => Cause::Other,
            4 => Cause::Kernel,
            5 => Cause::Timer,
            _ => Cause::Unknown,
        }
    }
}

/// The purpose of waits for a futex (`enum futex_class`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FutexClass {
    /// Nobody knows.
    #[default]
    Unknown,
    /// A lock.
    Lock,
    /// A semaphore that may stand for anything, or a condition in a function that sounds like a lock.
    Semaphore,
    /// Something to happen.
    Condition,
    /// A semaphore or condition that its waiters post: a lock.
    SemaphoreLock,
    /// That depends on the place it is waited at.
    ByPlace,
}

impl FutexClass {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            FutexClass::Unknown | FutexClass::ByPlace => "unknown",
            FutexClass::Lock | FutexClass::SemaphoreLock => "lock",
            FutexClass::Semaphore => "semaphore",
            FutexClass::Condition => "condition",
        }
    }

    /// This one, else what the place of the wait says.
    pub fn or(self, place: Option<FutexClass>) -> FutexClass {
        if self == FutexClass::Unknown { place.unwrap_or(self) } else { self }
    }
}

impl From<u32> for FutexClass {
    fn from(class: u32) -> FutexClass {
        use FutexClass::{ByPlace, Condition, Lock, Semaphore, SemaphoreLock, Unknown};
        let all = [Unknown, Lock, Semaphore, Condition, SemaphoreLock, ByPlace];
        all.get(class as usize).copied().unwrap_or(Unknown)
    }
}

/// The purpose of the waits for a futex, or of those at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// See [`futex_key`] and [`site_key`].
    pub key: u64,
    /// The purpose of the wait.
    pub class: FutexClass,
    /// The place number of these waits, as in [`super::FutexWaits::place`]; 0: none.
    pub place: u32,
    /// The word of the stack that decided, and its value.
    pub word: Option<(u32, u64)>,
}

/// The multiplier that spreads bits (`SPREAD` of table.h).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A process's futex, as futexes.h has it.
pub(crate) fn futex_key(tgid: u32, futex: u64) -> u64 {
    (u64::from(tgid) << 48) ^ futex
}

/// A futex waited for where the stack pointer is `sp`; `word` is the word that decides where another had decided before.
pub(crate) fn site_key(futex: u64, sp: u64, word: Option<u64>) -> u64 {
    futex ^ sp.wrapping_mul(SPREAD) ^ word.map_or(0, |word| word.wrapping_mul(SPREAD))
}

/// PostgreSQL's number of a wait for a lock, of what rows of futexes keep of it (`EVENT` of engine.h); 0: none.
pub(crate) fn wait_event(flags: u32) -> u32 {
    flags >> 16 << 24 | flags & 0xffff
}

/// `NO_WORD` of engine.h.
pub(super) const NO_WORD: u32 = u32::MAX;
pub(super) use types::verdict as KernelVerdict;

/// Words of a stack by which its place is known (`PLACE_WORDS` of places.h).
pub(super) const PLACE_WORDS: usize = 16;
const _: () = assert!(size_of::<types::place>() == 16 + 2 * PLACE_WORDS);
/// Where a record's copy of the stack begins: behind the room for its frames.
pub(super) const COPY_AT: usize = size_of::<types::stack_event>();
const _: () = assert!(COPY_AT == std::mem::offset_of!(types::copied_stack, ip));
const _: () = assert!(COPY_AT + 40 + 8 * SCRIPT_WORDS == std::mem::offset_of!(types::copied_stack, bytes));
/// Where the frames of a process of Python are, for the kernel side.
pub(super) use types::python as KernelPython;

/// User locks whose waits are traced: libncpu's, by static tracepoints, and Go's (`enum user_lock`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UserLock {
    /// Not known.
    #[default]
    Unknown,
    /// A mutex of libncpu.
    Mutex,
    /// Its queue lock.
    Queue,
    /// Its read-write lock, for reading.
    Read,
    /// For writing.
    Write,
    /// `sync.Mutex`.
    GoMutex,
    /// `sync.RWMutex`, for reading.
    GoRead,
    /// For writing.
    GoWrite,
}

impl UserLock {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            UserLock::Unknown => "",
            UserLock::Mutex => "mutex",
            UserLock::Queue => "queue lock",
            UserLock::Read => "rwlock:R",
            UserLock::Write => "rwlock:W",
            UserLock::GoMutex => "sync.Mutex",
            UserLock::GoRead => "sync.RWMutex:R",
            UserLock::GoWrite => "sync.RWMutex:W",
        }
    }

    /// Whether goroutines wait for it.
    pub fn is_go(self) -> bool {
        self >= UserLock::GoMutex
    }
}

impl From<u32> for UserLock {
    fn from(raw: u32) -> UserLock {
        use UserLock::{GoMutex, GoRead, GoWrite, Mutex, Queue, Read, Unknown, Write};
        let all = [Unknown, Mutex, Queue, Read, Write, GoMutex, GoRead, GoWrite];
        all.get(raw as usize).copied().unwrap_or(Unknown)
    }
}

/// The details of a stack record, by its kind.
pub(super) use types::{asked as Asked, sampled as Sampled, went_off as WentOff};

/// ns asleep by system call, of a CPU.
pub(crate) use types::calls as Calls;
/// Each CPU's own state and sums.
pub(crate) use types::cpu_slot as CpuSlot;
/// An octave of waits of who was first in a lock's queue.
pub(crate) use types::first_slot as FirstSlot;
/// A request that is queued or in flight.
pub(crate) use types::io_request as IoRequest;
/// Requests to a device of a kind, by a process.
pub(crate) use types::io_row as IoRow;
/// Counts of a kind of interrupt on a CPU.
pub(crate) use types::irq_row as IrqRow;
/// A row of the lock table.
pub(crate) use types::lock_slot as LockSlot;
/// Hits of probes on a CPU, by `enum probe_group`.
pub(crate) use types::probe_counts as ProbeCounts;
/// By which a tenant's number is found.
pub(super) use types::tenant_key as TenantKey;
/// Idle CPUs of a tenant.
pub(super) use types::tenant_look as TenantLook;
/// Time of a tenant on a CPU.
pub(super) use types::tenant_slot as TenantSlot;

/// Counts of lengths on a CPU, and a row of those by object.
pub(crate) use types::{length_slot as LengthSlot, lengths as Lengths};
/// Kinds of waits (`LIFE_N` of engine.h).
pub(crate) const LIVES: usize = 16;
/// A row of the table of time off CPU.
pub(crate) use types::time_slot as TimeSlot;
/// Requests of clients: a row of their table, and one that is sent.
pub(crate) use types::{client_request as ClientRequest, request_slot as RequestSlot};

/// `struct thread_out`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ThreadOut {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Parent process.
    pub ppid: u32,
    pub(crate) target: u32,
    /// ns since boot when it started.
    pub start: u64,
    /// ns by [`Microstate`].
    pub micro: [u64; 8],
    /// ns spun in kernel locks (a part of the time on CPU).
    pub spin: u64,
    /// Voluntary context switches.
    pub vcx: u64,
    /// Involuntary context switches.
    pub icx: u64,
    /// System calls.
    pub scl: u64,
    /// Signals delivered.
    pub sig: u64,
    /// Minor faults.
    pub minf: u64,
    /// Major faults.
    pub majf: u64,
    /// Faults whose length was traced.
    pub faults: u64,
    /// ns of USR in which calls and faults were not traced.
    pub untraced: u64,
    /// Of a timer meanwhile, in user code, a call or a fault.
    pub ticks: [u32; 4],
    /// The futex of its last waits, where they have ended before anybody said what they were for; else 0.
    pub(crate) unjudged: u64,
    /// The place of those waits, a key of verdicts.
    pub(crate) unjudged_place: u64,
    /// ns of those waits, a part of SLP.
    pub(crate) unjudged_ns: u64,
    /// A bit for each of the first 64 CPUs that it may use.
    pub(crate) cpus: u64,
    /// CPUs that it may use; 0 of threads of the kernel.
    pub(crate) allowed: u32,
    /// Number of its tenant.
    pub(crate) tenant: u32,
    /// The CPU on whose queue it stands, and one more; 0: on none.
    pub(crate) queue: u32,
    /// How often the limit of its group held it back, without what goes on.
    pub(crate) holds: u32,
    /// Of its ns on run queues, those for which that limit held it back.
    pub(crate) held: u64,
    /// ns off CPU, but for run queues, by what was waited for (`enum life`).
    pub(crate) by: [u64; LIVES],
    /// ns on CPU in user code and in the kernel, by the kernel's ticks, since the thread began.
    pub(crate) utime: u64,
    pub(crate) stime: u64,
    /// Bytes of files that it wrote, and that it had read from devices.
    pub(crate) dirtied: u64,
    pub(crate) read: u64,
    /// The object of the wait in progress, and its length so far; 0 ns: no wait.
    pub(crate) what: u64,
    pub(crate) asleep: u64,
    pub(crate) futex: u64,
    pub(crate) place: u32,
    pub(crate) class: u32,
    pub(crate) event: u32,
    pub(crate) life: u32,
    pub(crate) comm: [c_char; 16],
    pub(crate) group: [c_char; 16],
}

impl ThreadOut {
    /// It has been on a CPU or a run queue since it was seen first.
    pub(crate) fn has_run(&self) -> bool {
        let awake = [Microstate::Usr, Microstate::Sys, Microstate::Trp, Microstate::Lat];
        self.vcx + self.icx > 0 || awake.iter().any(|state| self.micro[*state as usize] > 0)
    }

    /// Moves the waits that ended without a verdict from SLP to LCK.
    pub(crate) fn last_waits_were_for_a_lock(&mut self) {
        let [lck, slp] = [Microstate::Lck, Microstate::Slp].map(|state| state as usize);
        let ns = std::mem::take(&mut self.unjudged_ns).min(self.micro[slp]);
        self.micro[slp] -= ns;
        self.micro[lck] += ns;
    }
}

// SAFETY: integers only.
unsafe impl Plain for Asked {}
// SAFETY: integers only.
unsafe impl Plain for WentOff {}
// SAFETY: integers and an array of integers only.
unsafe impl Plain for Sampled {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for CpuSlot {}
// SAFETY: integers only.
unsafe impl Plain for IoRequest {}
// SAFETY: integers only.
unsafe impl Plain for LockSlot {}
// SAFETY: integers only.
unsafe impl Plain for TimeSlot {}
// SAFETY: integers only.
unsafe impl Plain for RequestSlot {}
// SAFETY: integers and an array of structs of integers only.
unsafe impl Plain for ClientRequest {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for Lengths {}
// SAFETY: integers and an array of integers only.
unsafe impl Plain for LengthSlot {}
// SAFETY: integers and an array of integers only.
unsafe impl Plain for FirstSlot {}
// SAFETY: integers only.
unsafe impl Plain for GoWait {}
// SAFETY: integers only.
unsafe impl Plain for IoRow {}
// SAFETY: integers only.
unsafe impl Plain for Calls {}
// SAFETY: integers only.
unsafe impl Plain for ProbeCounts {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for ThreadOut {}
// SAFETY: integers and an array of integers only.
unsafe impl Plain for TenantKey {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for TenantLook {}
// SAFETY: arrays of integers only.
unsafe impl Plain for TenantSlot {}
// SAFETY: integers only.
unsafe impl Plain for TenantHead {}

/// `struct tenant_event` without its path, which follows.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct TenantHead {
    pub(super) head: EventHead,
    pub(super) tenant: u32,
    pub(super) uid: u32,
    pub(super) bytes: u32,
    pub(super) pad: u32,
}
same_layout!(TenantHead, types::tenant_event: head = head, tenant = tenant, uid = uid, bytes = bytes);
const _: () = assert!(size_of::<TenantHead>() == std::mem::offset_of!(types::tenant_event, path));

/// As the kernel side has it, in bytes.
pub(super) fn python(at: &PythonAt) -> [u8; size_of::<KernelPython>()] {
    let small = [
        at.threads,
        at.next,
        at.thread_id,
        at.frame,
        at.cframe,
        at.previous,
        at.code,
        at.entry,
        at.is_entry,
        at.name,
        at.line,
        0,
    ];
    let mut bytes = [0; size_of::<KernelPython>()];
    bytes[..8].copy_from_slice(&at.main.to_ne_bytes());
    for (into, n) in bytes[8..].chunks_exact_mut(4).zip(small) {
        into.copy_from_slice(&n.to_ne_bytes());
    }
    bytes
}

/// As the kernel side has it, in bytes.
pub(super) fn v8(at: &V8At) -> [u8; size_of::<types::v8>()] {
    let mut bytes = [0; size_of::<types::v8>()];
    bytes[..4].copy_from_slice(&at.shared.to_ne_bytes());
    bytes[4..].copy_from_slice(&at.name.to_ne_bytes());
    bytes
}
const _: () = assert!(std::mem::offset_of!(types::v8, name) == 4 && size_of::<types::v8>() == 8);
const _: () = assert!(size_of::<KernelPython>() == 8 + 12 * 4);
const _: () = assert!(std::mem::offset_of!(KernelPython, threads) == 8);
const _: () = assert!(std::mem::offset_of!(KernelPython, cframe) == 24);
const _: () = assert!(std::mem::offset_of!(KernelPython, is_entry) == 40);
const _: () = assert!(std::mem::offset_of!(KernelPython, line) == 48);

const _: () = assert!(std::mem::offset_of!(types::request_event, request) == size_of::<EventHead>());
same_records!(super::skel::types);
same_layout!(ThreadOut, types::thread_out:
    tgid = tgid, tid = tid, ppid = ppid, target = target, start = start, micro = micro, spin = spin, vcx = vcx,
    icx = icx, scl = scl, sig = sig, minf = minf, majf = majf, faults = faults, untraced = untraced, ticks = ticks, cpus = cpus, allowed = allowed, tenant = tenant, queue = queue, by = by, utime = utime, stime = stime, dirtied = dirtied, read = read, what = what, asleep = asleep,
    futex = futex, place = place, class = class, event = event, life = life, comm = comm, group = group);
const _: () = assert!(size_of::<ThreadOut>() == size_of::<types::thread_out>());
const _: () = assert!(std::mem::offset_of!(types::exit_event, thread) == size_of::<EventHead>());

impl CpuSlot {
    /// ns for which the program ran.
    pub(crate) fn ran(&self) -> u64 {
        self.at[CpuState::Program as usize] + self.at[CpuState::Spin as usize]
    }

    /// Where the CPU is now if its waits for locks are over; see [`CpuSlot::now_at`].
    pub(crate) fn after_wait(&self) -> CpuState {
        let depth = self.depth as usize;
        let nested = (1..=3).contains(&depth);
        if nested { state(self.irq[depth - 1].into()) } else { state(self.base) }
    }

    /// Where the CPU is now; the mirror of `at()` in cpu_states.h.
    pub(crate) fn now_at(&self) -> CpuState {
        let depth = self.depth as usize;
        if depth == 0 || depth > 3 {
            let base = state(self.base);
            let waits = self.waits > 0 || self.spinning[0] > 0;
            return if waits && base == CpuState::Program { CpuState::Spin } else { base };
        }
        if self.spinning[depth] > 0 { CpuState::Spin } else { state(self.irq[depth - 1].into()) }
    }
}
