//! Where threads run and where their memory lies: chosen once for a program, or kept level while it runs.

pub mod balance;
mod follow;
pub mod level;
pub mod loads;
pub mod memory;
pub mod policy;

use ncpu_table::{Column, Kind, Table, Unit};

use policy::Choice;

/// Something done, or that would be.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Seconds since the beginning.
    pub at: f64,
    /// The process.
    pub pid: u32,
    /// The thread; none for memory.
    pub tid: Option<u32>,
    /// Name of the process.
    pub name: String,
    /// `node`, `cache`, `core` or `memory`.
    pub what: &'static str,
    /// Where it was: CPUs, or nodes for memory.
    pub from: String,
    /// Where it is now.
    pub to: String,
    /// Bytes moved.
    pub bytes: Option<u64>,
    /// Why.
    pub reason: String,
    /// `yes`, `no` in a dry run, or the error.
    pub done: String,
}

/// Moves that were made, or would be.
pub fn moves_table(done: &[Done]) -> Table {
    let columns = [
        Column::float("at", Unit::Seconds, Kind::Gauge, "time since the beginning"),
        Column::id("pid", "the process"),
        Column::id("tid", "the thread; none for memory"),
        Column::text("process", "its name"),
        Column::text("what", "the level that a thread was moved at, or memory"),
        Column::text("from", "the CPUs it was moved from; nodes for memory"),
        Column::text("to", "the CPUs it may use since; nodes for memory"),
        Column::int("bytes", Unit::Bytes, Kind::Count, "memory moved"),
        Column::text("done", "yes; no in a dry run; else why it failed"),
        Column::text("reason", "why"),
    ];
    let mut table = Table::builder("moves", &columns);
    for d in done {
        table
            .row()
            .float(d.at)
            .int(d.pid.into())
            .int_opt(d.tid.map(Into::into))
            .text(&d.name)
            .text(d.what)
            .text(&d.from)
            .text(&d.to)
            .int_opt(d.bytes)
            .text(&d.done)
            .text(&d.reason);
    }
    table.finish()
}

/// A choice, as one row.
pub fn choice_table(choice: &Choice) -> Table {
    let columns = [
        Column::text("cpus", "CPUs the program may use"),
        Column::text("memory", "how its memory is chosen among nodes"),
        Column::text("nodes", "the nodes it comes from"),
        Column::text("reason", "why these"),
    ];
    let mut table = Table::builder("placement", &columns);
    let memory = format!("{:?}", choice.memory).to_lowercase();
    let cpus = choice.cpus.as_ref().map_or("any".into(), ncpu_machine::CpuSet::to_list);
    table.row().text(cpus).text(memory).text(choice.nodes.to_list()).text(&choice.reason);
    table.finish()
}
