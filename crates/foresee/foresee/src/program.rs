//! The simulated program: classes of threads, their operations, and the objects that they share.

use serde::{Deserialize, Serialize};

use crate::random::Time;

/// A part of a thread's time on CPU, as the onion knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Class of code, a class of the table `samples`: `user`, `syscall`, `fault`, `tlb`, `switch`, `kernel`.
    pub class: String,
    /// Which system call or function.
    pub detail: String,
}

impl Activity {
    /// An activity of a class.
    pub fn new(class: &str, detail: &str) -> Activity {
        Activity { class: class.into(), detail: detail.into() }
    }
}

/// A kind of lock, by the name that models, fixes and recordings give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockKind {
    /// A ticket lock.
    Ticket,
    /// The kernel's qspinlock, or an MCS lock.
    Qspin,
    /// A test-and-set lock.
    Tas,
    /// A queue lock for each package.
    Numa,
    /// The kernel's or pthreads' mutex.
    Mutex,
    /// The kernel's semaphore of readers and writers.
    Rwsem,
    /// An adaptive mutex.
    Adaptive,
    /// A lock whose waiters sleep at once.
    Block,
}

impl LockKind {
    /// All of them.
    pub const ALL: [LockKind; 8] = [
        LockKind::Ticket,
        LockKind::Qspin,
        LockKind::Tas,
        LockKind::Numa,
        LockKind::Mutex,
        LockKind::Rwsem,
        LockKind::Adaptive,
        LockKind::Block,
    ];

    /// The name in models, fixes and recordings.
    pub const fn name(self) -> &'static str {
        match self {
            LockKind::Ticket => "ticket",
            LockKind::Qspin => "qspin",
            LockKind::Tas => "tas",
            LockKind::Numa => "numa",
            LockKind::Mutex => "mutex",
            LockKind::Rwsem => "rwsem",
            LockKind::Adaptive => "adaptive",
            LockKind::Block => "block",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<LockKind> {
        LockKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How a lock hands itself on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Handover {
    /// First in, first out; all waiters spin on one line, so a hand-over costs more with each of them.
    Ticket {
        /// Nanoseconds a hand-over takes longer for each waiter; without it, the caches that the waiters read the line
        /// from again decide ([`crate::hardware::Hardware::shared_reads`]).
        waiter_ns: Option<f64>,
    },
    /// Any waiter may win; all retry at once, so a hand-over costs more with each of them.
    TestAndSet {
        /// As of [`Handover::Ticket`].
        waiter_ns: Option<f64>,
    },
    /// First in, first out; each waiter spins on a line of its own (MCS, the kernel's qspinlock).
    Queue,
    /// A queue for each package; passed on within a package a limited number of times before it goes to the
    /// next.
    Numa {
        /// Hand-overs within a package before another package's turn.
        passes: u32,
    },
    /// Waiters spin while the holder runs, and sleep where it does not; the woken one tries again.
    Mutex {
        /// Longest spin, ns.
        spin_ns: f64,
    },
    /// A writer spins while another writer holds it and runs, and sleeps while readers hold it; a reader sleeps at
    /// once. Readers are woken together (Linux's rw_semaphore).
    Rwsem {
        /// Longest spin, ns.
        spin_ns: f64,
    },
    /// Waiters spin while the holder runs and sleep while it does not; where no waiter spins, all sleepers are woken
    /// and try again (Solaris' and libncpu's adaptive mutex).
    Adaptive,
    /// Waiters sleep at once.
    Block,
}

impl Handover {
    /// The name of its kind, as models and recordings have it.
    pub const fn name(self) -> &'static str {
        let kind = match self {
            Handover::Ticket { .. } => LockKind::Ticket,
            Handover::TestAndSet { .. } => LockKind::Tas,
            Handover::Queue => LockKind::Qspin,
            Handover::Numa { .. } => LockKind::Numa,
            Handover::Mutex { .. } => LockKind::Mutex,
            Handover::Rwsem { .. } => LockKind::Rwsem,
            Handover::Adaptive => LockKind::Adaptive,
            Handover::Block => LockKind::Block,
        };
        kind.name()
    }
}

/// The owner of a lock, which decides what its waits count as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The kernel's: the holder of a spinlock is not preempted.
    Kernel,
    /// The program's.
    User,
    /// Not a lock: a part of the work that only one thread can do. Its waiters have nothing to do.
    Serial,
}

/// A lock.
#[derive(Clone, Debug, PartialEq)]
pub struct LockModel {
    /// Its name.
    pub name: String,
    /// How it hands itself on.
    pub kind: Handover,
    /// Its owner.
    pub owner: Owner,
    /// Lines that move with it from one CPU to another.
    pub lines: f64,
    /// Hand-overs are exponentially distributed instead of fixed; for checks against chains.
    pub exponential: bool,
    /// CPU time that it takes to wake a waiter that sleeps, ns, and that the waiter took to fall asleep.
    pub wake_ns: f64,
}

impl LockModel {
    /// A lock of a kind.
    pub fn new(name: &str, kind: Handover) -> LockModel {
        LockModel {
            name: name.into(),
            kind,
            owner: Owner::Kernel,
            lines: 1.0,
            exponential: false,
            wake_ns: 0.0,
        }
    }
}

/// Which of several equal things an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The only one.
    One,
    /// A random one of this many.
    Random(u32),
    /// The thread's number, modulo this.
    Own(u32),
    /// The number of the CPU's package, modulo this.
    Package(u32),
}

/// One thing a thread does.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Runs for a time.
    Compute {
        /// How long on a core that has its package to itself.
        time: Time,
        /// Index into [`Program::activities`].
        activity: u16,
    },
    /// Takes a lock for itself.
    Acquire {
        /// Index of the first into [`Program::locks`].
        lock: u32,
        /// Which one.
        pick: Pick,
    },
    /// Takes a lock to read.
    AcquireShared {
        /// Index of the first into [`Program::locks`].
        lock: u32,
        /// Which one.
        pick: Pick,
    },
    /// Gives back the lock taken last.
    Release,
    /// Writes a line that others write.
    Line {
        /// Index of the first line.
        line: u32,
        /// Which one.
        pick: Pick,
        /// Index into [`Program::activities`].
        activity: u16,
    },
    /// Moves bytes between memory and CPU.
    Memory {
        /// The package of the memory: `None` is spread over all packages, `Some(u32::MAX)` the CPU's own.
        node: Option<u32>,
        /// Bytes.
        bytes: f64,
        /// How many of its cache misses wait at the same time.
        parallel: f64,
        /// Index into [`Program::activities`].
        activity: u16,
    },
    /// Sleeps for a time: a timer, a disk, a client.
    Sleep {
        /// How long.
        time: Time,
        /// For a device, and so waited for; a mere pause otherwise.
        io: bool,
    },
    /// Makes the other CPUs that run the program drop translations.
    Shootdown {
        /// One interrupt goes to each package, which passes it on without one; else one to each CPU.
        per_package: bool,
    },
    /// Waits until all threads that use the barrier have come.
    Barrier {
        /// Index into [`Program::barriers`].
        barrier: u32,
    },
    /// Puts an item into a queue, waiting while it is full.
    Put {
        /// Index into [`Program::queues`].
        queue: u32,
    },
    /// Takes an item from a queue, waiting while it is empty.
    Get {
        /// Index into [`Program::queues`].
        queue: u32,
    },
    /// Wakes another thread and waits until that one wakes it. The two are simulated as one that goes on at once, on an
    /// idle CPU where there is one.
    HandOver,
    /// Skips the next operations, but for this share of times.
    Sometimes {
        /// Probability that they are done.
        probability: f64,
        /// How many operations.
        skip: u32,
    },
    /// A unit of work is done.
    Done,
    /// The thread ends; without it, it begins again.
    Exit,
}

/// Threads that do the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Name of the process.
    pub name: String,
    /// How many.
    pub threads: u32,
    /// Each stays on the CPU it began on.
    pub bound: bool,
    /// Operations of each thread, over and over.
    pub ops: Vec<Op>,
}

/// The program that is simulated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Threads.
    pub classes: Vec<Class>,
    /// Activities that their time is charged to.
    pub activities: Vec<Activity>,
    /// Locks.
    pub locks: Vec<LockModel>,
    /// Number of lines.
    pub lines: u32,
    /// For each barrier, how many threads it waits for.
    pub barriers: Vec<u32>,
    /// Capacity of each queue.
    pub queues: Vec<u32>,
    /// Time slice where threads wait for a CPU, ns.
    pub slice_ns: f64,
    /// Length of a timer tick, ns, and ticks a second on each CPU.
    pub tick: Option<(f64, f64)>,
    /// Share of the CPUs that run the program which a shootdown leaves alone, 0 to 1: they have been idle or in the kernel.
    pub shootdown_misses: f64,
    /// How long a CPU is at a shootdown that it is sent, ns; 0 is what the machine says.
    pub shootdown_handle_ns: f64,
    /// The first CPU handles the ticks of all.
    pub ticks_on_one: bool,
}
