//! `ncpu topology`: what the machine is.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use ncpu_machine::Topology;
use ncpu_report::topology as view;
use ncpu_schema::Purpose;
use ncpu_table::Format;

use crate::sink::record_once;
use crate::table_args::{TableArgs, text_width};

/// Show packages, cores, CPUs, caches and NUMA nodes
#[derive(clap::Args, Clone, Debug)]
#[command(visible_alias = "psrinfo")]
pub struct Args {
    /// Packages, their cores and CPUs, as `psrinfo -pv` prints them
    #[arg(long, group = "view")]
    psrinfo: bool,

    /// Locality groups, as `lgrpinfo` prints them
    #[arg(long, group = "view")]
    lgrp: bool,

    /// NUMA nodes and their distances, as `numactl --hardware` prints them
    #[arg(long, group = "view")]
    numactl: bool,

    /// Each CPU and its core, as the `showcores` script prints them
    #[arg(long, group = "view")]
    showcores: bool,

    /// Print this table [default: `objects` with -o csv, json or parquet]
    #[arg(long, value_name = "TABLE", group = "view")]
    table: Option<TableName>,

    /// Only what this process may use: its affinity and cpuset
    #[arg(long)]
    allowed: bool,

    /// Read the machine whose sys/ and proc/ are in DIR
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    #[command(flatten)]
    rows: TableArgs,

    /// Record all tables in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

/// The tables of this command.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum TableName {
    /// Everything from the machine down to its CPUs
    Objects,
    /// A row for each CPU, offline ones too
    Cpus,
    /// A row for each core
    Cores,
    /// A row for each cache
    Caches,
    /// A row for each NUMA node
    Nodes,
    /// A row for each pair of NUMA nodes
    Distances,
}

/// Runs `ncpu topology`.
///
/// # Errors
/// The machine cannot be read, a column is not there, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut machine = Topology::read(&args.root)?;
    for warning in &machine.warnings {
        say!("ncpu topology: {warning}");
    }
    if args.allowed {
        machine = machine.allowed_only();
    }
    let tables = [view::objects, view::cpus, view::cores, view::caches, view::nodes, view::distances];
    if args.record.is_some() {
        let tables = tables.map(|table| table(&machine));
        record_once(
            args.record.as_deref(),
            Purpose::Topology,
            vec!["the machine".into()],
            &tables,
            machine.warnings.clone(),
        )?;
    }
    let layout: Option<fn(&Topology) -> String> = match args {
        Args { psrinfo: true, .. } => Some(view::psrinfo),
        Args { lgrp: true, .. } => Some(view::lgrp),
        Args { numactl: true, .. } => Some(view::numactl),
        Args { showcores: true, .. } => Some(view::showcores),
        _ => None,
    };
    let select = args.rows.select();
    // -k, -A and --top are about rows, so they ask for a table as -o json does.
    let rows = args.rows.format() != Format::Text || select != ncpu_table::Select::default();
    if layout.is_some() && rows {
        usage!(
            "--psrinfo, --lgrp, --numactl and --showcores are layouts of text; for rows give --table instead"
        );
    }
    if layout.is_none() && (rows || args.table.is_some()) {
        let table = tables[args.table.unwrap_or(TableName::Objects) as usize](&machine);
        args.rows.print_all(&select.apply(table)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = layout.map_or_else(|| view::tree(&machine, text_width()), |layout| layout(&machine));
    crate::out::put(&text)?;
    Ok(ExitCode::SUCCESS)
}
