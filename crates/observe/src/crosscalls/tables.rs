//! Columns of the tables of an observation of cross-calls.

use ncpu_table::{Builder, Column, Kind, Table, Unit};

fn seconds(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::CpuSeconds, Kind::Time, meaning)
}

fn keys() -> Vec<Column> {
    vec![
        Column::text("cause", "TLB shootdown, reschedule, function call or irq work"),
        Column::text("function", "what the targets run, for calls and irq work"),
        Column::text("process", "the sender"),
        Column::id("pid", "its process ID"),
        Column::text("call", "the system call the sender was in, or what else it was at"),
    ]
}

fn counts() -> Vec<Column> {
    vec![
        Column::count("targets", "CPUs asked, of all calls"),
        Column::count("IPIs", "interrupts sent; none to a CPU that polls or has one pending"),
        Column::count("packages", "distinct packages among the targets, of all calls"),
        Column::count("waited", "calls whose sender waited for the targets"),
        seconds("wait", "time senders waited for their targets"),
        Column::int("max", Unit::None, Kind::Peak, "most targets of a call"),
        Column::float("longest", Unit::Microseconds, Kind::Peak, "longest wait"),
    ]
}

/// Calls sent, by sender: exact counts.
pub(super) fn sent() -> Builder {
    let mut columns = keys();
    columns.push(Column::count("calls", "calls sent"));
    columns.extend(counts());
    Table::builder("crosscalls", &columns)
}

/// Calls whose stack was walked.
pub(super) fn callers() -> Builder {
    let mut columns = keys();
    columns.push(Column::text("caller", "the kernel function that asked for it"));
    columns.push(Column::text("user", "the program's function that entered the kernel"));
    columns.push(Column::text("stack", "frames, innermost first, the kernel's marked _[k]"));
    columns.push(Column::count("walked", "calls whose stack was walked"));
    columns.extend(counts());
    Table::builder("crosscall_callers", &columns)
}

/// What CPUs answered, and what all of them were asked.
pub(super) fn received() -> Builder {
    Table::builder(
        "crosscalls_received",
        &[
            Column::text("cause", "TLB shootdown, reschedule, function call or irq work"),
            Column::text("function", "what was run"),
            Column::count("received", "times it was answered, whoever asked"),
            seconds("seconds", "time in the handlers"),
            Column::count("sent", "calls of all senders, the program's and others'"),
            Column::count("asked", "targets of those"),
        ],
    )
}

/// By CPU and cause.
pub(super) fn by_cpu() -> Builder {
    Table::builder(
        "crosscall_cpus",
        &[
            Column::id("CPU", "the CPU"),
            Column::text("cause", "TLB shootdown, reschedule, function call or irq work"),
            Column::count("calls", "calls the program sent from it"),
            Column::count("targets", "CPUs asked by those"),
            Column::count("IPIs", "interrupts sent for those"),
            seconds("wait", "time waited for the targets"),
            Column::count("received", "calls it answered, whoever sent them"),
            seconds("seconds", "time it spent on that"),
        ],
    )
}

/// How many calls had how many targets.
pub(super) fn fanout() -> Builder {
    Table::builder(
        "crosscall_fanout",
        &[
            Column::text("cause", "TLB shootdown, reschedule, function call or irq work"),
            Column::int("from", Unit::None, Kind::Key, "fewest targets of a call"),
            Column::int("to", Unit::None, Kind::Key, "most targets of a call"),
            Column::count("calls", "calls the program sent to so many CPUs"),
        ],
    )
}

/// TLB flushes by reason, on all CPUs, whoever caused them.
pub(super) fn flushes() -> Builder {
    Table::builder(
        "tlb_flushes",
        &[
            Column::text("reason", "the kernel's word for why"),
            Column::count("flushes", "how often"),
            Column::count("pages", "pages flushed one by one"),
            Column::count("whole", "flushes of everything"),
        ],
    )
}

/// One row: the whole observation.
pub(super) fn summary() -> Builder {
    let gauge = |name: &str, meaning: &str| Column::int(name, Unit::None, Kind::Gauge, meaning);
    Table::builder(
        "summary",
        &[
            Column::float("elapsed", Unit::Seconds, Kind::Time, "length of the observation"),
            gauge("cpus", "CPUs online"),
            gauge("packages", "packages they lie on"),
            gauge("hz", "timer samples a second on each CPU"),
            Column::count("samples", "timer samples of the program"),
            Column::count("waiting", "those that found it waiting for other CPUs"),
            gauge("targets_told", "1 where the kernel tells the targets of each call"),
            gauge("senders_told", "1 where it tells the senders of other calls than shootdowns"),
        ],
    )
}

/// What was not counted.
pub(super) fn drops() -> Builder {
    Table::builder("drops", &[Column::text("what", "what was dropped"), Column::count("count", "how often")])
}
