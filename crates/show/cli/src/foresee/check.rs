//! `ncpu foresee --check`: the extrapolation of curves, held to measured ones.

use std::path::Path;
use std::process::ExitCode;

use ncpu_foresee::curve::belief::Beliefs;
use ncpu_foresee::curve::check;
use ncpu_foresee::curve::set::Sets;

use crate::table_args::TableArgs;

/// Fits each curve to its first quarter and sixteenth and foretells the rest. Fails where all published curves are there and
/// what the manual claims of them does not hold.
pub fn run(path: &Path, data: Option<&Path>, rows: &TableArgs) -> anyhow::Result<ExitCode> {
    let sets = Sets::read(path, data)?;
    for missing in &sets.missing {
        say!("ncpu foresee: left out {missing}");
    }
    if sets.curves.is_empty() {
        anyhow::bail!("{}: no curve to check", path.display());
    }
    let mut printer = rows.printer()?;
    let tables = check::tables(&sets, Beliefs::kept());
    for table in &tables {
        printer.table(&rows.select().apply(table.clone())?)?;
    }
    printer.finish()?;
    if !check::published(&sets) {
        return Ok(ExitCode::SUCCESS);
    }
    let unmet = check::unmet(&tables);
    for what in &unmet {
        say!("ncpu foresee: not met: {what}");
    }
    Ok(if unmet.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
