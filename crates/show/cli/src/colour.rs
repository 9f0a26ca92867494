//! `ncpu colour`: whether cache colour matters on this machine.

use std::process::ExitCode;

use clap::Args;
use ncpu_machine::Topology;
use ncpu_remedy::colour;
use ncpu_table::Format;

use crate::table_args::TableArgs;

/// Measure whether cache colour matters on this machine: what lines cost that compete for one set
#[derive(Args, Debug)]
pub struct ColourArgs {
    #[command(flatten)]
    rows: TableArgs,
}

/// Runs the command.
///
/// # Errors
/// The machine describes no caches.
pub fn run(args: &ColourArgs) -> anyhow::Result<ExitCode> {
    let machine = Topology::read("/".as_ref())?;
    let mut printer = args.rows.printer()?;
    let (costs, notes) = colour::measure(&machine)?;
    printer.table(&args.rows.select().apply(colour::costs_table(&costs))?)?;
    printer.finish()?;
    notes.iter().for_each(|n| say!("ncpu: {n}"));
    if args.rows.format() == Format::Text && costs.iter().any(colour::Cost::matters) {
        say!("ncpu: `ncpu lines -p PID --sets` names what of a process competes for one set");
    }
    Ok(ExitCode::SUCCESS)
}
