//! `foresee-check`: the tables of docs/foresee.md, and the beliefs that the laws of curves start from.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ncpu_foresee_check::curve::belief::Beliefs;
use ncpu_foresee_check::curve::check;
use ncpu_foresee_check::curve::learn;
use ncpu_foresee_check::curve::set::Sets;
use ncpu_foresee_check::documents;
use ncpu_table::{Format, Printer, Table};

/// Compare predictions of ncpu-foresee with published curves and measurements
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Output format: text, csv, json or parquet
    #[arg(short = 'o', value_name = "FORMAT", default_value = "text", global = true)]
    format: Format,
}

#[derive(Subcommand)]
enum Command {
    /// Fit each curve to its first quarter and sixteenth, and predict the rest. Exit status 1 if all published sets are
    /// present and a claim of docs/foresee.md does not hold
    Curves(SetArgs),
    /// Compare the simulator with measurements from the literature
    Documents,
    /// Print the beliefs that whole curves give, as in data/belief.toml
    Learn {
        #[command(flatten)]
        sets: SetArgs,

        /// Learn from every Nth curve of the two largest families only, and print the tables of `curves` for these beliefs
        #[arg(long, value_name = "N")]
        thin: Option<usize>,
    },
}

#[derive(Args)]
struct SetArgs {
    /// A set in TOML, or a directory of sets
    path: PathBuf,

    /// Directory of the data files [default: beside the sets]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl SetArgs {
    fn read(&self) -> anyhow::Result<Sets> {
        let sets = Sets::read(&self.path, self.data.as_deref())?;
        for missing in &sets.missing {
            eprintln!("foresee-check: left out {missing}");
        }
        if sets.curves.is_empty() {
            anyhow::bail!("{}: no curves to check", Path::display(&self.path));
        }
        Ok(sets)
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("foresee-check: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Curves(sets) => curves(&sets.read()?, cli.format),
        Command::Documents => {
            print(&[documents::table()?], cli.format)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Learn { sets, thin } => {
            let mut sets = sets.read()?;
            if let Some(step) = thin {
                sets.thin(*step);
            }
            let beliefs = learn::beliefs(&sets);
            writeln!(io::stdout(), "{}", beliefs.told())?;
            if thin.is_some() {
                print(&check::tables(&sets, &beliefs), cli.format)?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn curves(sets: &Sets, format: Format) -> anyhow::Result<ExitCode> {
    let tables = check::tables(sets, Beliefs::kept());
    print(&tables, format)?;
    // The claims are about all published curves together.
    if !check::published(sets) {
        return Ok(ExitCode::SUCCESS);
    }
    let unmet = check::unmet(&tables);
    for claim in &unmet {
        eprintln!("foresee-check: not met: {claim}");
    }
    Ok(if unmet.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(tables: &[Table], format: Format) -> anyhow::Result<()> {
    let mut printer = Printer::new(io::stdout(), format, usize::MAX);
    for table in tables {
        printer.table(table)?;
    }
    printer.finish()?;
    Ok(())
}
