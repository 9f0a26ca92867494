//! The tables of an observation. Each holds what is new since the tables before, so that a
//! recording cut short has lost only its last interval; readers put rows of a key together.

use ncpu_table::{Builder, Column, Kind, Table, Unit};

use crate::engine::{IDLE, MICRO, Where};

fn time(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::CpuSeconds, Kind::Time, meaning)
}

fn seconds(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::Seconds, Kind::Time, meaning)
}

fn at() -> Column {
    Column::float("t", Unit::Seconds, Kind::Key, "end of the interval, since the observation began")
}

/// Where each CPU was, by interval.
pub(super) fn cpu_time() -> Builder {
    let mut columns = vec![at(), Column::id("CPU", "CPU number")];
    let meanings = [
        "no thread to run",
        "threads of the program",
        "other programs",
        "ncpu itself",
        "the program on CPU in a kernel lock's slow path",
        "interrupt handlers",
        "softirq handlers",
        "answering TLB shootdowns",
    ];
    columns.extend(Where::ALL.iter().zip(meanings).map(|(w, m)| time(w.word(), m)));
    Table::builder("cpu_time", &columns)
}

/// What idle CPUs were idle for, by interval.
pub(super) fn idle_time() -> Builder {
    let meanings = [
        "a thread stood on another CPU's run queue",
        "a thread was blocked in a kernel lock",
        "a thread was blocked in a user lock",
        "a thread waited for I/O",
        "the program was active with fewer threads than CPUs",
        "no thread of the program was active",
    ];
    let mut columns = vec![at()];
    columns.extend(IDLE.iter().zip(meanings).map(|(name, m)| time(name, m)));
    Table::builder("idle_time", &columns)
}

/// Events by interval.
pub(super) fn counters() -> Builder {
    Table::builder(
        "counters",
        &[at(), Column::text("event", "what was counted"), Column::count("count", "how often")],
    )
}

/// Timer samples by what the CPU was doing.
pub(super) fn samples() -> Builder {
    Table::builder(
        "samples",
        &[
            Column::text("at", "where the CPU was, as the columns of cpu_time"),
            Column::text("class", "what it was doing there, from its stack"),
            Column::text("detail", "which system call, or which function"),
            Column::text("process", "name of the thread"),
            Column::count("samples", "timer samples"),
        ],
    )
}

/// Stacks, outermost first, `;` between frames, `_[k]` behind kernel frames.
pub(super) fn stacks() -> Builder {
    Table::builder(
        "stacks",
        &[
            Column::text("kind", "on-cpu, spin (kernel locks) or off-cpu"),
            Column::text("stack", "frames, outermost first"),
            seconds("seconds", "time with this stack (sampled)"),
            Column::count("samples", "samples behind it"),
        ],
    )
}

/// Kernel locks; exact.
pub(super) fn locks() -> Builder {
    Table::builder(
        "locks",
        &[
            Column::text("lock", "name of the lock"),
            Column::text("type", "spinlock, mutex, rwsem …"),
            Column::text("process", "name of the waiting process"),
            Column::count("count", "contended acquisitions"),
            seconds("spin", "time waiting on CPU"),
            seconds("block", "time waiting off CPU"),
            Column::float("max", Unit::Microseconds, Kind::Peak, "longest wait"),
        ],
    )
}

/// Kernel locks by caller; from the contentions whose stack was walked.
pub(super) fn lock_callers() -> Builder {
    Table::builder(
        "lock_callers",
        &[
            Column::text("lock", "name of the lock"),
            Column::text("type", "spinlock, mutex, rwsem …"),
            Column::text("process", "name of the waiting process"),
            Column::text("caller", "the function that asked for it"),
            Column::text("stack", "its callers, innermost first"),
            Column::count("walked", "contentions walked"),
            seconds("spin", "time waiting on CPU in those"),
            seconds("block", "time waiting off CPU in those"),
        ],
    )
}

/// User locks, and other futexes; exact.
pub(super) fn user_locks() -> Builder {
    Table::builder(
        "user_locks",
        &[
            Column::text(
                "lock",
                "symbol of the lock, or of its futex word, where it is static, else its address",
            ),
            Column::text(
                "type",
                "of futexes: lock, semaphore, condition or unknown; mutex, queue lock and rwlock are libncpu's",
            ),
            Column::text("process", "name of the waiting process"),
            Column::id("pid", "the waiting process"),
            Column::text("caller", "where it waits, where that can be told"),
            Column::text("holder", "the thread that most of the wait is blamed on: it woke the waiters"),
            Column::count("count", "waits"),
            Column::count("wakes", "waits ended by a waker"),
            seconds("spin", "time waiting on CPU, where the lock tells"),
            seconds("block", "time waiting off CPU"),
            Column::float("max", Unit::Microseconds, Kind::Peak, "longest wait"),
            Column::text("stack", "a waiter's, innermost first"),
        ],
    )
}

/// Threads by interval.
pub(super) fn threads() -> Builder {
    let mut columns = vec![
        at(),
        Column::id("pid", "process"),
        Column::id("tid", "thread"),
        Column::text("process", "name of the process"),
        Column::text("thread", "name of the thread"),
    ];
    let meanings = [
        "in user code",
        "in system calls",
        "in traps (page faults)",
        "asleep in a fault on code",
        "asleep in a fault on data",
        "asleep for a lock, kernel's or user's",
        "asleep for anything else",
        "runnable, waiting for a CPU",
    ];
    columns.extend(MICRO.iter().zip(meanings).map(|(name, m)| seconds(name, m)));
    columns.push(seconds("spin", "spinning in kernel locks, a part of the time on CPU"));
    for (name, meaning) in [
        ("VCX", "voluntary context switches"),
        ("ICX", "involuntary context switches"),
        ("SCL", "system calls"),
        ("SIG", "signals delivered"),
        ("minf", "minor faults"),
        ("majf", "major faults"),
    ] {
        columns.push(Column::count(name, meaning));
    }
    Table::builder("threads", &columns)
}

/// Time asleep by system call.
pub(super) fn sleeps() -> Builder {
    Table::builder(
        "sleeps",
        &[Column::text("call", "system call"), seconds("seconds", "time asleep in it, all threads")],
    )
}

/// Sleeps that a time was asked for.
pub(super) fn sleepers() -> Builder {
    Table::builder(
        "sleepers",
        &[
            Column::text("call", "system call"),
            Column::text("process", "name of the process"),
            Column::id("pid", "the process"),
            Column::count("count", "sleeps that end with a time; those for ever are left out"),
            seconds("asked", "time asked for, at most, of all sleeps"),
            seconds("slept", "time they took"),
            Column::count("threads", "threads that began to sleep so"),
        ],
    )
}

/// What limits of CPU bandwidth did to the program's cgroups, by interval; exact.
pub(super) fn throttling() -> Builder {
    Table::builder(
        "throttling",
        &[
            at(),
            Column::text("cgroup", "the group whose limit it is"),
            Column::text("limit", "cpu.max (cgroup v2) or cpu.cfs_quota_us (v1)"),
            Column::text("lift", "the command that lifts it"),
            Column::float("allowed", Unit::None, Kind::Gauge, "CPUs the limit allows"),
            Column::count("periods", "periods in which the group had something to run"),
            Column::count("throttled", "periods in which it had used up its limit"),
            time("held", "CPU time for which its run queues were held back"),
        ],
    )
}

/// Limits that the program reached or came near to.
pub(super) fn limits_met() -> Builder {
    let number = |name: &str, kind, meaning: &str| Column::int(name, Unit::None, kind, meaning);
    Table::builder(
        "limits_met",
        &[
            Column::text("limit", "the file or resource that sets it"),
            Column::text("of", "the control group or process it binds"),
            number(
                "allowed",
                Kind::Gauge,
                "what it allows, tasks, files or bytes; none where it was reached before",
            ),
            number("used", Kind::Peak, "most used at the ends of intervals"),
            number(
                "refused",
                Kind::Count,
                "how often more was wanted: forks refused, pages to be reclaimed first",
            ),
            number("killed", Kind::Count, "processes killed for it"),
            Column::text("lift", "the command that lifts it"),
        ],
    )
}

/// Memory of the machine, by class.
pub(super) fn memory_change() -> Builder {
    Table::builder(
        "memory_change",
        &[
            Column::text("class", "as in /proc/meminfo"),
            Column::int("before", Unit::Bytes, Kind::Gauge, "when the observation began"),
            Column::int("most", Unit::Bytes, Kind::Gauge, "most at the end of an interval"),
            Column::int("after", Unit::Bytes, Kind::Gauge, "when it ended"),
        ],
    )
}

/// How the kernel got at memory that was short, and huge pages.
pub(super) fn memory_events() -> Builder {
    Table::builder(
        "memory_events",
        &[
            Column::text("event", "as in /proc/vmstat"),
            Column::count("count", "how often, on the whole machine"),
        ],
    )
}

/// Pressure stall information.
pub(super) fn pressure() -> Builder {
    Table::builder(
        "pressure",
        &[
            Column::text("resource", "cpu, memory, io or irq"),
            Column::text(
                "kind",
                "some: at least one task of the machine stood still for want of it; full: all did",
            ),
            seconds("seconds", "for how long"),
        ],
    )
}

/// What was not counted.
pub(super) fn drops() -> Builder {
    Table::builder("drops", &[Column::text("what", "what was dropped"), Column::count("count", "how often")])
}

/// One row: the whole observation.
pub(super) fn summary() -> Builder {
    Table::builder(
        "summary",
        &[
            seconds("elapsed", "length of the observation"),
            seconds("user", "user time of the command and its children (wait4)"),
            seconds("system", "system time of the command and its children (wait4)"),
            Column::int("cpus", Unit::None, Kind::Gauge, "CPUs observed"),
            Column::float(
                "steal",
                Unit::CpuSeconds,
                Kind::Time,
                "time the hypervisor gave to others (/proc/stat)",
            ),
            Column::float(
                "iowait",
                Unit::CpuSeconds,
                Kind::Time,
                "idle time with I/O outstanding (/proc/stat)",
            ),
            Column::int("hz", Unit::None, Kind::Gauge, "timer samples a second on each CPU"),
            Column::int("status", Unit::None, Kind::Gauge, "exit status of the command"),
            Column::int(
                "max_rss",
                Unit::Bytes,
                Kind::Gauge,
                "largest resident set of the command's processes",
            ),
        ],
    )
}
