//! Tables for the answers of an engine.

use ncpu_table::{Column, Kind as Of, Table, Unit};

use crate::ask::{Asked, Question};
use crate::{Result, labels, when};

/// The onion of a fleet.
///
/// # Errors
/// As [`Asked::ask`].
pub fn onion(asked: &mut Asked, question: &Question) -> Result<Table> {
    let raw = asked.ask("layers", include_str!("../sql/onion.sql"), question)?;
    let columns = [
        Column::text("layer", "where capacity went"),
        Column::text("recoverable", "whether it could come back"),
        Column::float("share", Unit::Percent, Of::Share, "share of the group's capacity"),
        Column::float("seconds", Unit::CpuSeconds, Of::Time, "CPU-seconds"),
        Column::float("error", Unit::CpuSeconds, Of::Gauge, "half-width of the 95 % interval; 0 is exact"),
        Column::count("machines", "machines that have it"),
    ];
    made(&raw, question, &columns, |row, r| {
        let number = |c: &str| raw.number(r, c);
        row.text_opt(raw.text(r, "layer"))
            .text_opt(raw.text(r, "recoverable"))
            .float_opt(share(number("us"), number("capacity_us")))
            .float_opt(number("us").map(|us| us / 1e6))
            .float_opt(number("variance").map(|v| v.sqrt() / 1e3))
            .int_opt(raw.int(r, "machines"))
    })
}

/// Kernel or user locks of a fleet.
///
/// # Errors
/// As [`Asked::ask`].
pub fn locks(asked: &mut Asked, question: &Question, user: bool) -> Result<Table> {
    let template =
        if user { include_str!("../sql/user_locks.sql") } else { include_str!("../sql/locks.sql") };
    let raw = asked.ask(if user { "user_locks" } else { "locks" }, template, question)?;
    let mut columns =
        vec![Column::text("lock", "name of the lock"), Column::text("type", "what kind of lock")];
    if user {
        columns.push(Column::text("process", "the waiting process"));
    }
    columns.extend([
        Column::float("share", Unit::Percent, Of::Share, "capacity spent spinning for it"),
        Column::float(
            "waited",
            Unit::Percent,
            Of::Gauge,
            "time waited for it, on CPU and off, over the capacity; above 100 where more threads wait than there are CPUs",
        ),
        Column::float("spin", Unit::Seconds, Of::Time, "time waiting on CPU"),
        Column::float("block", Unit::Seconds, Of::Time, "time waiting off CPU"),
        Column::count("waits", "contended acquisitions"),
        Column::float("max", Unit::Microseconds, Of::Peak, "longest wait"),
        Column::count("machines", "machines that waited"),
    ]);
    made(&raw, question, &columns, |row, r| {
        let number = |c: &str| raw.number(r, c);
        let row = row.text_opt(raw.text(r, "lock")).text_opt(raw.text(r, "type"));
        let row = if user { row.text_opt(raw.text(r, "process")) } else { row };
        let waited = number("spin_us").zip(number("block_us")).map(|(spin, block)| spin + block);
        row.float_opt(share(number("spin_us"), number("capacity_us")))
            .float_opt(share(waited, number("capacity_us")))
            .float_opt(number("spin_us").map(|us| us / 1e6))
            .float_opt(number("block_us").map(|us| us / 1e6))
            .int_opt(raw.int(r, "waits"))
            .float_opt(number("max_us"))
            .int_opt(raw.int(r, "machines"))
    })
}

/// Time that tenants of a fleet lost to each other.
///
/// # Errors
/// As [`Asked::ask`].
pub fn tenants(asked: &mut Asked, question: &Question) -> Result<Table> {
    let raw = asked.ask("tenants", include_str!("../sql/tenants.sql"), question)?;
    let columns = [
        Column::text("victim", "the tenant that lost it"),
        Column::text("culprit", "the one that it was lost to"),
        Column::text("cause", "how"),
        Column::text("lock", "the kernel lock, or the device"),
        Column::float("threads", Unit::Seconds, Of::Time, "time of its threads"),
        Column::float(
            "lost",
            Unit::Percent,
            Of::Gauge,
            "time of its threads over the group's capacity; above 100 where more threads wait than there are CPUs",
        ),
        Column::count("machines", "machines on which it was lost"),
        Column::count("of", "machines with that victim"),
        Column::text("worst", "the machine that lost most"),
        Column::float("there", Unit::Seconds, Of::Time, "time of its threads on that machine"),
    ];
    made(&raw, question, &columns, |row, r| {
        let number = |c: &str| raw.number(r, c);
        row.text_opt(raw.text(r, "victim"))
            .text_opt(raw.text(r, "culprit"))
            .text_opt(raw.text(r, "cause"))
            .text_opt(raw.text(r, "lock").filter(|lock| !lock.is_empty()))
            .float_opt(number("threads_us").map(|us| us / 1e6))
            .float_opt(share(number("threads_us"), number("capacity_us")))
            .int_opt(raw.int(r, "machines"))
            .int_opt(raw.int(r, "victim_machines"))
            .text_opt(raw.text(r, "worst"))
            .float_opt(number("worst_us").map(|us| us / 1e6))
    })
}

/// Activity of programs on CPU.
///
/// # Errors
/// As [`Asked::ask`].
pub fn calls(asked: &mut Asked, question: &Question) -> Result<Table> {
    let raw = asked.ask("calls", include_str!("../sql/calls.sql"), question)?;
    let columns = [
        Column::text("class", "what the program did on CPU"),
        Column::text("detail", "which system call, or which function"),
        Column::float("share", Unit::Percent, Of::Share, "share of capacity"),
        Column::float("seconds", Unit::CpuSeconds, Of::Time, "CPU-seconds that the samples stand for"),
        Column::count("samples", "timer samples"),
        Column::count("machines", "machines that did it"),
    ];
    made(&raw, question, &columns, |row, r| {
        let number = |c: &str| raw.number(r, c);
        row.text_opt(raw.text(r, "class"))
            .text_opt(raw.text(r, "detail"))
            .float_opt(share(number("us"), number("capacity_us")))
            .float_opt(number("us").map(|us| us / 1e6))
            .int_opt(raw.int(r, "samples"))
            .int_opt(raw.int(r, "machines"))
    })
}

/// The machines of a fleet.
///
/// # Errors
/// As [`Asked::ask`].
pub fn machines(asked: &mut Asked, question: &Question) -> Result<Table> {
    let raw = asked.ask("machines", include_str!("../sql/machines.sql"), question)?;
    let columns = [
        Column::text("host", "its name, the latest"),
        Column::float("recoverable", Unit::Percent, Of::Share, "capacity that could come back"),
        Column::int("cpus", Unit::None, Of::Gauge, "CPUs"),
        Column::text("kernel", "kernel release, the latest"),
        Column::text("cpu_model", "model of the first CPU"),
        Column::text("labels", "its labels"),
        Column::count("recordings", "recordings"),
        Column::text("last", "when the last one began, UTC"),
        Column::text("source", "where that was added from"),
        Column::count("names", "host names it has had"),
        Column::text("machine", "what tells it from others"),
    ];
    made(&raw, question, &columns, |row, r| {
        let number = |c: &str| raw.number(r, c);
        let last =
            raw.int(r, "last_us").map(|us| format!("{} {}h", when::date(us as i64), when::hour(us as i64)));
        row.text_opt(raw.text(r, "host"))
            .float_opt(share(number("back_us"), number("capacity_us")))
            .int_opt(raw.int(r, "cpus"))
            .text_opt(raw.text(r, "kernel"))
            .text_opt(raw.text(r, "cpu_model"))
            .text_opt(raw.text(r, "labels").map(|l| labels::decoded(l.trim_matches(';'))))
            .int_opt(raw.int(r, "recordings"))
            .text_opt(last)
            .text_opt(raw.text(r, "source"))
            .int_opt(raw.int(r, "hosts"))
            .text_opt(raw.text(r, "machine"))
    })
}

fn share(us: Option<f64>, capacity: Option<f64>) -> Option<f64> {
    Some(100.0 * us? / capacity.filter(|c| *c > 0.0)?)
}

/// A table of an engine's answer: its groups, and then these columns.
fn made(
    raw: &Table,
    question: &Question,
    columns: &[Column],
    fill: impl Fn(ncpu_table::Row<'_>, usize) -> ncpu_table::Row<'_>,
) -> Result<Table> {
    let groups = question.by.iter().map(|b| Column::text(&b.name, "the group"));
    let all: Vec<Column> = groups.chain(columns.iter().cloned()).collect();
    let mut out = Table::builder(raw.name(), &all);
    for r in 0..raw.num_rows() {
        let row = question.by.iter().fold(out.row(), |row, by| row.text_opt(raw.text(r, &by.name)));
        fill(row, r);
    }
    Ok(out.finish())
}
