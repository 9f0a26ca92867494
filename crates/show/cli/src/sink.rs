//! `--record`: sinks that write where the options say, and tell it.

use std::path::Path;

use anyhow::Context;
use ncpu_record::{Sink, Target};
use ncpu_schema::Purpose;
use ncpu_table::Table;

/// Opens a sink, which records in the directory of `--record`.
///
/// # Errors
/// The recording cannot be begun.
pub fn open(
    kind: Purpose,
    command: Vec<String>,
    interval_s: f64,
    record: Option<&Path>,
) -> anyhow::Result<Sink> {
    let target = record.map(|dir| Target { dir, mode: crate::out::mode() });
    let sink = Sink::open(kind, command, interval_s, target, crate::out::say_line);
    if record.is_some() { sink.context("--record") } else { Ok(sink?) }
}

/// Records the tables of a command that looks once, where `--record` asks for it.
///
/// # Errors
/// The recording cannot be written.
pub fn record_once(
    record: Option<&Path>,
    kind: Purpose,
    words: Vec<String>,
    tables: &[Table],
    notes: Vec<String>,
) -> anyhow::Result<()> {
    if record.is_none() {
        return Ok(());
    }
    let mut sink = open(kind, words, 0.0, record)?;
    for table in tables {
        sink.table(table)?;
    }
    sink.finish(notes)?.1.map_or(Ok(()), |failed| Err(failed.into()))
}
