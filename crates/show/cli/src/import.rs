//! `ncpu locks --import`: lockutil's table of a lockstat file.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use ncpu_record::lockstat;
use ncpu_table::{Format, Select};

use crate::table_args::TableArgs;

/// Reads the file, or standard input for `-`, and prints the table: `lockutil`'s own layout unless sorted or formatted otherwise.
pub fn run(file: &Path, ncpu: u64, elapsed: Option<f64>, args: &TableArgs) -> anyhow::Result<ExitCode> {
    let read = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("reading standard input")?;
        lockstat::parse(&bytes, Path::new("standard input"), ncpu, elapsed)?
    } else {
        lockstat::import(file, ncpu, elapsed)?
    };
    for note in &read.notes {
        say!("ncpu: {note}");
    }
    let select = args.select();
    if args.format() == Format::Text && select == Select::default() {
        crate::out::put(&lockstat::render_lockutil(&read))?;
        return Ok(ExitCode::SUCCESS);
    }
    args.print_all(&select.apply(lockstat::lockstat_table(&read))?)?;
    Ok(ExitCode::SUCCESS)
}
