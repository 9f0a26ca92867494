//! States of CPUs and threads, and what they are counted by.

use crate::vocabulary::vocabulary;

vocabulary! {
    /// Where a CPU is. The order is that of `enum at` in the BPF programs.
    pub enum CpuState("CPU state") {
        Idle = "idle": "no thread to run",
        Program = "target": "threads of the program",
        Others = "other": "other programs",
        Ncpu = "ncpu": "ncpu itself",
        Spin = "spin": "the program on CPU in a kernel lock's slow path",
        Hardirq = "hardirq": "interrupt handlers",
        Softirq = "softirq": "softirq handlers",
        Tlb = "tlb": "answering TLB shootdowns",
    }
}

vocabulary! {
    /// Reasons of idle time. The first [`IdleReason::TOLD_APART`] have the order of `enum idle` in the BPF
    /// programs: the leader hands idle CPUs to waiting threads in this order. Two are for observers who cannot
    /// tell two of those apart. The last is known by the CPU's own clock and not by the leader's looks.
    pub enum IdleReason("idle reason") {
        RunQueue = "runq": "a thread stood on another CPU's run queue, behind others",
        KernelLock = "klock": "a thread was blocked in a kernel lock",
        UserLock = "ulock": "a thread was blocked in a user lock",
        Io = "io": "a thread waited for I/O",
        Serial = "serial": "the program was active with fewer threads than CPUs",
        Asleep = "asleep": "no thread of the program was active",
        LockOrSerial = "ulock or serial": "the program was active with fewer threads than CPUs, and a thread waited in a futex: for a lock or for work" since 4,
        KernelLockOrIo = "klock or io": "a thread was blocked in the kernel: for a lock or for I/O" since 4,
        WakeUp = "wake-up": "the CPU had been given a thread, and had not woken for it yet" since 7,
    }
}

impl IdleReason {
    /// Number of reasons that the BPF programs distinguish; each later one stands for two of these.
    pub const TOLD_APART: usize = 6;

    /// How much the reason says about CPUs that the program is bound to, from 0. Where a program is bound to some
    /// CPUs, the idle time of the others is subtracted from the reasons with the lowest first.
    pub const fn bearing(self) -> u8 {
        match self {
            IdleReason::Asleep => 0,
            IdleReason::Serial => 1,
            IdleReason::LockOrSerial => 2,
            IdleReason::RunQueue => 3,
            IdleReason::Io => 4,
            IdleReason::KernelLockOrIo => 5,
            IdleReason::UserLock => 6,
            IdleReason::KernelLock => 7,
            IdleReason::WakeUp => 8,
        }
    }

    /// All of them, lowest [`IdleReason::bearing`] first.
    pub fn by_bearing() -> Vec<IdleReason> {
        let mut all = IdleReason::ALL.to_vec();
        all.sort_by_key(|r| r.bearing());
        all
    }
}

vocabulary! {
    /// Activity of a sampled CPU, from its stack.
    pub enum SampleClass("sample class") {
        User = "user": "user code",
        UserSpin = "user spin": "user code that spins for a lock",
        LockSpin = "lock spin": "the slow path of a kernel lock",
        Tlb = "tlb": "flushing TLBs",
        TlbWait = "tlb wait": "sending a TLB shootdown and waiting for its targets",
        Zeroing = "zeroing": "zeroing pages before they are handed out",
        Fault = "fault": "a page fault",
        Switch = "switch": "leaving or entering a thread",
        Softirq = "softirq": "deferred interrupt work, in ksoftirqd too",
        Interrupt = "interrupt": "a hardware or interprocessor interrupt",
        Syscall = "syscall": "a system call; the detail is its name",
        Exec = "exec": "becoming another program",
        Exit = "exit": "a process or thread that ends",
        Idle = "idle": "the idle loop",
        KernelThread = "kernel thread": "a kernel thread's own work",
        Other = "other": "kernel code of no other class",
        Kernel = "kernel": "kernel code whose functions have no names here" since 4,
        Probe = "probe": "a probe in the program's code, as ncpu has them on some locks" since 6,
        WaitSpin = "wait spin": "user code that spins until other threads have come, or until there is work" since 7,
        Spin = "spin": "user code that spins, for a lock or for other threads" since 7,
    }
}

vocabulary! {
    /// The cause of the time of a sample of user code.
    pub enum UserCause("cause of user time") {
        Computing = "computing": "instructions that waited for nothing but each other",
        Memory = "waiting for memory": "loads, stores and copies that missed their core's own caches" since 7,
        SharedLine = "shared lines": "words in a cache line that one thread writes and others use at the same time" since 7,
        Atomic = "atomic operations": "atomic operations and fences on lines of one thread" since 7,
        Busy = "busy waiting": "loops that do nothing but look at memory until it changes" since 7,
        Long = "long operations": "division, roots and others of ten cycles and more" since 7,
        Unknown = "unknown": "code that could not be read, or too few samples to tell" since 7,
    }
}

vocabulary! {
    /// The microstates of `prstat -m`. The order is that of `enum micro` in the BPF programs.
    pub enum Microstate("microstate") {
        Usr = "USR": "in user code",
        Sys = "SYS": "in system calls",
        Trp = "TRP": "in traps (page faults)",
        Tfl = "TFL": "asleep in a fault on code",
        Dfl = "DFL": "asleep in a fault on data",
        Lck = "LCK": "asleep for a lock, kernel's or user's",
        Slp = "SLP": "asleep for anything else",
        Lat = "LAT": "runnable, waiting for a CPU",
    }
}

impl Microstate {
    /// Those in which the thread has a CPU.
    pub const ON_CPU: [Microstate; 3] = [Microstate::Usr, Microstate::Sys, Microstate::Trp];
}

vocabulary! {
    /// The wait that a runnable thread ended before. The order is that of `enum wait` in the BPF programs.
    pub enum Runnable("reason for being runnable") {
        New = "new": "it has just begun" since 8,
        Preempted = "preempted": "another thread took its CPU" since 8,
        KernelLock = "kernel lock": "it was woken from a wait for a lock of the kernel" since 8,
        UserLock = "user lock": "from one for a lock of the program" since 8,
        Io = "I/O": "from one for a device, or in a fault" since 8,
        Asleep = "asleep": "from any other: a pipe, a timer, a condition" since 8,
    }
}

vocabulary! {
    /// Activities of the program's threads, each moment of a thread one of these; and parts of the latency of a request.
    pub enum Activity("activity of a thread") {
        User = "user code": "on CPU in the program's own code" since 9,
        System = "kernel code": "on CPU in the kernel" since 9,
        RunQueue = "waiting for a CPU": "runnable, on a run queue" since 9,
        Lock = "user lock": "asleep for a lock of the program" since 9,
        KernelLock = "kernel lock": "asleep for a lock of the kernel" since 9,
        FileLock = "file lock": "asleep in flock or fcntl for a lock of a file" since 9,
        Semaphore = "semaphore": "asleep for a semaphore: of System V, or of the program" since 9,
        MessageQueue = "message queue": "asleep for a message, or for room for one" since 9,
        Device = "device": "asleep for a block device or a file system" since 9,
        Fault = "page fault": "asleep in a page fault, or while memory is reclaimed" since 9,
        Socket = "socket": "asleep for a peer of a socket" since 9,
        Pipe = "pipe": "asleep for the other end of a pipe" since 9,
        Events = "events": "asleep until one of several files is ready, or for a signal: epoll, poll, select, pause" since 9,
        Timer = "timer": "asleep until a time has passed" since 9,
        Child = "child": "asleep until a child process ends or stops, or has a program of its own" since 9,
        Thread = "another thread": "asleep for another thread: a condition, a join, a barrier, or a futex of unknown purpose" since 9,
        Idle = "waiting for work": "threads of a pool without work, and threads that slept in a futex throughout" since 9,
        Stopped = "stopped": "stopped by a signal, a debugger or the freezer" since 9,
        Quota = "quota": "runnable, but the quota of its control group was used up" since 9,
        Unread = "unread": "of a request: in the socket, while the thread that reads it did something else" since 9,
        Aside = "set aside": "of a request: read, while its thread did something else" since 9,
        Parked = "parked": "of a request of a Go program: its goroutine waited, for what the runtime names (a lock, a channel, a timer, the network), or was with another thread" since 9,
        Handed = "handed over": "of a request: on its way from the thread that read it to the one that answered" since 9,
        Rest = "rest": "asleep for anything else" since 9,
    }
}

vocabulary! {
    /// Events whose lengths table `lengths` has. The order is that of `enum length_of` in the BPF programs.
    pub enum Length("kind of length") {
        RunQueue = "run queue": "from a thread's wake-up, or the end of its time slice, to its next run" since 9,
        WakeUp = "wake-up": "of that, while the CPU that it was given to idled and had not woken yet" since 9,
        Slice = "time slice": "from a thread's coming on CPU to its leaving" since 9,
        Late = "timer lateness": "from the end of a timeout until the thread was woken" since 9,
        KernelLock = "kernel lock": "a wait for a lock of the kernel, on CPU or off" since 9,
        UserLock = "user lock": "asleep for a lock of the program" since 9,
        FileLock = "file lock": "asleep in flock or fcntl" since 9,
        Semaphore = "semaphore": "asleep for a semaphore of System V" since 9,
        Device = "device": "a request in a block device: of the program, and of kernel threads for any program" since 9,
        Call = "system call": "from entry to return" since 9,
        Request = "request": "of a client, from its arrival to the end of the answer" since 9,
    }
}

vocabulary! {
    /// Kind of time in a row of table `stacks`.
    pub enum StackKind("kind of stack") {
        OnCpu = "on-cpu": "on CPU, by timer samples",
        Spin = "spin": "in a kernel lock's slow path, by timer samples",
        OffCpu = "off-cpu": "off CPU, by walked switches",
    }
}

vocabulary! {
    /// Origin of a request to a device. The order is that of `enum io_by` in the BPF programs.
    pub enum AskedBy("way to ask for a request") {
        Call = "call": "a thread that waits for it in the same call" since 5,
        Ahead = "ahead": "a thread that goes on and asks later whether it is done: io_submit, io_uring" since 5,
        Kernel = "kernel": "a kernel thread, for nobody knows whom: data written back, encrypted" since 5,
    }
}

vocabulary! {
    /// Events of table `events`.
    pub enum Counter("counter") {
        ShootdownsSent = "TLB shootdowns sent": "calls that made other CPUs flush",
        ShootdownsReceived = "TLB shootdowns received": "CPUs that answered one",
        Interrupts = "interrupts": "hardware interrupts",
        Softirqs = "softirqs": "softirq handlers run",
        Switches = "context switches": "threads that left a CPU",
        UntracedSwitches = "context switches not traced": "switches that were missed because a BPF program was running",
        RunQueueMicroseconds = "run-queue waiting, us": "time threads of the program stood on run queues, in microseconds",
        WakeUpMicroseconds = "wake-up latency, us": "of that, time in which their CPU idled and had not woken yet, in microseconds" since 7,
        IdleWakeUps = "wake-ups of idle CPUs": "threads of the program for which a CPU woke" since 7,
        IdleTicks = "idle ticks": "times the leader looked what idle CPUs were idle for",
        StacksUnwound = "stacks unwound": "user stacks that were copied and unwound" since 5,
        StacksWhole = "stacks whole": "of those, the ones that reached the function their thread began with" since 5,
        MinorFaults = "minor faults": "page faults of the program that needed no I/O" since 4,
        MajorFaults = "major faults": "page faults of the program that needed I/O" since 4,
        VoluntarySwitches = "voluntary switches": "times threads of the program left a CPU to wait" since 4,
        InvoluntarySwitches = "involuntary switches": "times threads of the program were taken off a CPU" since 4,
        Migrations = "migrations": "times threads of the program went to another CPU" since 4,
        BytesRead = "bytes read": "bytes that the program had read from storage" since 4,
        BytesWritten = "bytes written": "bytes that the program had written to storage" since 4,
        DelayedAcks = "delayed ACKs": "acknowledgements that TCP kept back for 40 ms, of all programs in ncpu's network namespace" since 8,
        ListenOverflows = "accept queues full": "requests for connections that TCP dropped because the queue of a listening socket was full, of all programs in ncpu's network namespace" since 9,
        TcpTimeouts = "TCP timeouts": "times TCP sent again because no acknowledgement had come, of all programs in ncpu's network namespace" since 9,
        DatagramsDropped = "datagrams dropped": "datagrams of UDP that were dropped because the buffer of a receiving socket was full, of all programs in ncpu's network namespace" since 9,
    }
}

vocabulary! {
    /// Cause of time that a tenant lost.
    pub enum Loss("cause of a loss") {
        RunQueue = "run queue": "its threads were runnable, and the other's thread ran on that CPU" since 9,
        WakeUp = "wake-up": "its threads were runnable, and their idle CPU had not woken yet" since 9,
        Quota = "CPU limit": "its threads were runnable, and the CPU time that a limit of its group or of one above allows was used up" since 9,
        KernelLock = "kernel lock": "its threads waited for a mutex or semaphore of the kernel that the other held" since 9,
        Spin = "kernel spinlock": "its threads spun for a spinlock of the kernel that the other takes" since 9,
        Interrupts = "interrupts": "interrupts and softirqs were served on CPUs that ran its threads" since 9,
        Network = "network": "softirqs of the network were served on CPUs that ran its threads or held them in the run queue, for packets that the other sent or reads" since 9,
        Device = "device": "its threads waited for a block device that served the other's requests meanwhile" since 9,
        Reclaim = "memory reclaim": "its threads freed memory because the machine had none; the other took some meanwhile" since 9,
        MemoryLimit = "memory limit": "its threads freed memory because a control group may have no more" since 9,
        Shootdown = "TLB shootdown": "CPUs that ran its threads dropped translations of its memory" since 9,
        Steal = "steal": "the hypervisor ran another machine" since 9,
    }
}

vocabulary! {
    /// How the other side of a loss is known.
    pub enum Grounds("grounds") {
        Traced = "traced": "each loss was followed: the thread that ran, or the holder by the lock's own word" since 9,
        Shares = "shares": "divided by how often each tenant does what causes it" since 9,
        Unknown = "unknown": "nobody is known" since 9,
    }
}

vocabulary! {
    /// Kinds of interrupts. The first five have the order of `enum irq_kind` in the BPF programs.
    pub enum InterruptKind("kind of interrupt") {
        Timer = "timer": "the CPU's own timer: ticks, and timers of high resolution" since 7,
        Reschedule = "reschedule": "another CPU has a thread for this one" since 7,
        Call = "call": "another CPU has this one run a function" since 7,
        Work = "work": "work of the CPU's own that code put off because it may not do it where it runs" since 7,
        Tlb = "TLB": "another CPU has this one drop translations" since 7,
        Device = "device": "a device, by number and name" since 7,
        Softirq = "softirq": "what interrupts put off, by name" since 7,
    }
}

vocabulary! {
    /// End of a wait of table `timeouts`.
    pub enum WaitScope("end of a wait") {
        Thread = "thread": "the thread's own time out",
        Process = "process": "a signal to the process",
        Cpu = "cpu": "CPU time that was used up",
    }
}

vocabulary! {
    /// Mechanism that expires a timer.
    pub enum TimerKind("kind of timer") {
        High = "hrtimer": "the timer interrupt, at the time asked for",
        Wheel = "tick": "a tick, by the timer wheel",
    }
}

vocabulary! {
    /// Work of a CPU, to distinguish housekeeping from programs. The order is that of `enum doing` in the BPF programs.
    pub enum Doing("work of a CPU") {
        Idle = "idle": "idle",
        Programs = "programs": "threads of programs: user code and system calls",
        Ksoftirqd = "ksoftirqd": "ksoftirqd, beside the softirqs it serves",
        RcuThreads = "rcu_threads": "RCU's threads",
        Kworker = "kworker": "workqueues",
        Migration = "migration": "migration threads",
        Kthreads = "kthreads": "other kernel threads",
        TimerIrq = "timer_irq": "timer interrupts, beside the handlers they call",
        Tick = "tick": "the tick's handler",
        Hrtimers = "hrtimers": "other handlers of timers of high resolution",
        Hi = "hi": "softirq HI",
        Timer = "timer": "softirq TIMER: the timer wheel",
        NetTx = "net_tx": "softirq NET_TX",
        NetRx = "net_rx": "softirq NET_RX",
        Block = "block": "softirq BLOCK",
        IrqPoll = "irq_poll": "softirq IRQ_POLL",
        Tasklet = "tasklet": "softirq TASKLET",
        Sched = "sched": "softirq SCHED: load balancing",
        Hrtimer = "hrtimer": "softirq HRTIMER",
        Rcu = "rcu": "softirq RCU",
    }
}

vocabulary! {
    /// Where the words of a finding of `ncpu lines` lie.
    pub enum Place("place of a finding") {
        Variables = "variables": "variables of all threads",
        PerCpu = "per-CPU": "per-CPU variables",
        ThreadLocal = "thread-local": "thread-local variables",
        Struct = "struct": "any object of a struct",
    }
}

vocabulary! {
    /// Kinds of places that `ncpu dose` makes slower.
    pub enum DosePlace("kind of place") {
        KernelLock = "kernel lock": "a contended acquisition of a kernel lock, while it is held" since 8,
        UserLock = "user lock": "a function that takes a lock, at its return" since 8,
        Call = "system call": "a system call, at its exit" since 8,
        Faults = "page faults": "a page fault of user code" since 8,
        WakeUps = "wake-ups": "a wake-up, by the thread that wakes" since 8,
        Function = "function": "a function of the program, at its entry" since 8,
        Softirq = "softirq": "the end of a softirq" since 8,
        Interrupt = "interrupt": "the end of a device's interrupt" since 8,
        Processes = "processes started": "a process: as it first returns from the kernel, as a program starts in it, and at its end" since 9,
    }
}

vocabulary! {
    /// Effect of a place on the program's speed.
    pub enum DoseVerdict("verdict of a dose") {
        Binds = "binds": "the program waits for it beyond the CPU that it takes" since 8,
        Parallel = "parallel": "it costs the time that it takes, side by side on all CPUs" since 8,
        Nothing = "nothing": "without it the program would gain less than 2 %" since 8,
        Unknown = "unknown": "the windows do not say" since 8,
    }
}
