//! `ncpu foresee --check`: the extrapolation of curves, held to measured ones.

use std::path::Path;
use std::process::ExitCode;

use ncpu_foresee::curve::belief::Beliefs;
use ncpu_foresee::curve::check;
use ncpu_foresee::curve::set::Sets;

use crate::table_args::TableArgs;

/// Fits each curve to its first quarter and sixteenth and foretells the rest.
pub fn run(path: &Path, data: &Path, rows: &TableArgs) -> anyhow::Result<ExitCode> {
    let sets = Sets::read(path, data)?;
    for missing in &sets.missing {
        say!("ncpu foresee: left out {missing}");
    }
    if sets.curves.is_empty() {
        anyhow::bail!("{}: no curve to check", path.display());
    }
    let mut printer = rows.printer()?;
    for table in check::tables(&sets, Beliefs::kept()) {
        printer.table(&rows.select().apply(table)?)?;
    }
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}
