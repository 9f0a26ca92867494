//! `ncpu locks --import`: lockutil's table of a lockstat file.

use std::path::Path;
use std::process::ExitCode;

use ncpu_record::lockstat;
use ncpu_table::{Format, Select};

use crate::table_args::TableArgs;

/// Reads the file and prints the table: `lockutil`'s own layout unless sorted or formatted otherwise.
pub fn run(file: &Path, ncpu: u64, elapsed: Option<f64>, args: &TableArgs) -> anyhow::Result<ExitCode> {
    let read = lockstat::import(file, ncpu, elapsed)?;
    for note in &read.notes {
        eprintln!("ncpu: {note}");
    }
    let select = args.select();
    if args.format() == Format::Text && select == Select::default() {
        crate::put(&lockstat::render_lockutil(&read))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut printer = args.printer()?;
    printer.table(&select.apply(lockstat::lockstat_table(&read))?)?;
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}
