//! The arguments of `ncpu fleet`.
//!
//! `ncpu` reads them for its help, manual pages, completions and errors, and then executes `ncpu-fleet`, which reads them
//! again: drivers of engines and clients of object stores stay out of `ncpu`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use ncpu_table::{Format, Select, SortKey};

/// Ask many machines' recordings as one table
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct FleetArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// `ncpu-fleet` as a program of its own.
#[derive(Parser, Debug)]
#[command(name = "ncpu fleet", bin_name = "ncpu fleet", version, max_term_width = 100)]
pub struct Program {
    /// The arguments.
    #[command(flatten)]
    pub args: FleetArgs,
}

/// The commands of `ncpu fleet`.
#[derive(Subcommand, Debug)]
pub enum FleetCommand {
    /// Roll recordings up into a fleet
    Add(AddArgs),
    /// Where the capacity of the fleet goes, by group
    Onion(AskArgs),
    /// Kernel locks by the capacity they cost
    Locks(AskArgs),
    /// User locks by the time threads waited for them
    UserLocks(AskArgs),
    /// Time of programs on CPU, by class and system call
    Calls(AskArgs),
    /// Which tenants (pods, containers, jobs, services, sessions, programs) lost time to which others, and where
    Tenants(AskArgs),
    /// The machines, with what they could get back
    Machines(AskArgs),
    /// Which layers and locks changed between two periods, and on which machines
    Regress(RegressArgs),
    /// Try a remedy on a few machines first: choose them, then judge by recordings whether to adopt, widen, drop or undo it
    Fix(FixArgs),
    /// Machines unlike their kin
    Outliers(OutliersArgs),
    /// Ask the fleet's tables in SQL
    Sql(SqlArgs),
    /// Make few large files of many small ones
    Compact(CompactArgs),
    /// Write a Delta log of the files there are, for engines that read one
    Delta(DeltaArgs),
    /// Fetch the embedded engine, or say which one is used
    Engine(EngineArgs),
}

/// Arguments of `add`.
#[derive(Args, Debug)]
pub struct AddArgs {
    /// The fleet: a directory, made where it is missing, or s3://BUCKET/PREFIX
    pub root: String,

    /// Recordings, or directories that hold recordings at any depth
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,

    /// Give the machines a label, as in type=web; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,

    /// Labels by host: comma-separated values, the first column `host`, the others named as the labels
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,

    /// Take recordings that were not finished as far as they can be recovered; they are left out otherwise
    #[arg(long)]
    pub unfinished: bool,

    /// Write a Delta log too
    #[arg(long)]
    pub delta: bool,

    /// Leave small files as they are [default: merge those of a past hour or day]
    #[arg(long)]
    pub no_compact: bool,

    /// Number of threads [default: four per CPU]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Permissions of the files of a fleet in a directory, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = permissions, hide_short_help = true)]
    pub mode: u32,
}

/// Which recordings a question is about, and who answers it.
#[derive(Args, Clone, Debug)]
pub struct Scope {
    /// The fleet: a directory or s3://BUCKET/PREFIX
    pub root: String,

    /// Only recordings that SQL holds for, as in "kernel LIKE '6.18%' AND label:type = 'web'"
    #[arg(long = "where", value_name = "SQL")]
    pub filter: Option<String>,

    /// Engine: duckdb, the path of its library, or grpc://HOST:PORT of a Flight SQL server such as Sail
    #[arg(long, value_name = "ENGINE", default_value = "duckdb")]
    pub engine: String,

    /// The fleet as the engine reaches it, where that is another path; delta: or delta:PATH to read its Delta log
    #[arg(long, value_name = "PATH")]
    pub engine_root: Option<String>,

    /// Print the SQL instead of asking
    #[arg(long)]
    pub explain: bool,
}

/// How a table is printed.
#[derive(Args, Clone, Debug)]
pub struct Rows {
    /// Sort by COLUMN, highest first; COLUMN:asc sorts lowest first
    #[arg(short = 'k', value_name = "COLUMN")]
    pub sort: Option<SortKey>,

    /// Output format; json: an object a row, durations in seconds, shares as fractions of 1
    #[arg(short = 'o', value_name = "FORMAT", default_value = "text",
          value_parser = PossibleValuesParser::new(["text", "json", "csv", "parquet"])
              .try_map(|s| s.parse::<Format>()))]
    pub format: Format,

    /// Write the report to FILE, which appears when it is complete
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write the answer to FILE as one self-contained HTML page
    #[arg(id = "fleet-html", long = "html", value_name = "FILE", conflicts_with_all = ["format", "output"])]
    pub html: Option<PathBuf>,

    /// Permissions of what is written, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = permissions, hide_short_help = true)]
    pub mode: u32,
}

impl Rows {
    /// Processing of a table before it is printed.
    pub fn select(&self) -> Select {
        Select { sort: self.sort.clone(), ..Select::default() }
    }
}

/// Arguments of a question.
#[derive(Args, Clone, Debug)]
pub struct AskArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: Scope,

    /// Group by columns: kernel, cpu_model, cpus, host, machine, day, label:KEY, separated by commas
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub by: Vec<String>,

    /// Only recordings since then: 30m, 12h, 7d, or a date as 2026-11-10
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,

    /// Only recordings before then
    #[arg(long, value_name = "WHEN")]
    pub until: Option<String>,

    /// Print only the first N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub top: Option<u64>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub rows: Rows,
}

/// Arguments of `regress`.
#[derive(Args, Clone, Debug)]
pub struct RegressArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: Scope,

    /// The period before, both ends included, as in 2026-11-10..12 or 2026-11-10T06..2026-11-10T18
    #[arg(long, value_name = "FROM..TO")]
    pub before: String,

    /// The period after, as in 2026-11-14..
    #[arg(long, value_name = "FROM..TO")]
    pub after: String,

    /// Group machines by columns: kernel, cpu_model, cpus, label:KEY, separated by commas; the value after counts
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub by: Vec<String>,

    /// Least change to report, in per cent of capacity
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1)]
    pub least: f64,

    /// Print the machines that changed instead of the groups
    #[arg(long)]
    pub machines: bool,

    /// Print only the first N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub top: Option<u64>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub rows: Rows,
}

/// Arguments of `fix`.
#[derive(Args, Clone, Debug)]
pub struct FixArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: Scope,

    /// The name of the fix, under which its plan is kept in the fleet
    pub name: String,

    /// Plan it: the remedy, in words, as in 'vm.max_map_count 262144'
    #[arg(long, value_name = "WORDS", required_unless_present = "after", conflicts_with = "after")]
    pub remedy: Option<String>,

    /// The period before the remedy, both ends included, as in 2026-11-10..12
    #[arg(long, value_name = "FROM..TO", requires = "remedy")]
    pub before: Option<String>,

    /// The part of the machines that gets it, in per cent; 3 machines at least
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    pub canary: f64,

    /// Judge it by recordings of this period, in which the canaries have the remedy, as in 2026-11-14..
    #[arg(long, value_name = "FROM..TO")]
    pub after: Option<String>,

    /// Judge by this layer [default: all that could come back]
    #[arg(long, value_name = "LAYER", requires = "after")]
    pub layer: Option<String>,

    /// Least gain to adopt it for, in per cent of capacity
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5)]
    pub least: f64,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub rows: Rows,
}

/// `5` or `5%`.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("expected a percentage above 0, as in 5%".into()),
    }
}

/// Arguments of `outliers`.
#[derive(Args, Clone, Debug)]
pub struct OutliersArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: Scope,

    /// Columns in which kin must agree [default: kernel, cpu_model, cpus and labels; fewer of them where fewer than 8
    /// machines agree in all]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub by: Vec<String>,

    /// Only recordings since then: 30m, 12h, 7d, or a date as 2026-11-10
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,

    /// Only recordings before then
    #[arg(long, value_name = "WHEN")]
    pub until: Option<String>,

    /// Least difference to report, in per cent of capacity
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub least: f64,

    /// Print only the first N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub top: Option<u64>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub rows: Rows,
}

/// Arguments of `sql`.
#[derive(Args, Clone, Debug)]
pub struct SqlArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub scope: Scope,

    /// The question, about recordings, layers, locks, user_locks, calls, events, lengths and ledger
    pub sql: String,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub rows: Rows,
}

/// Arguments of `compact`.
#[derive(Args, Debug)]
pub struct CompactArgs {
    /// The fleet: a directory or s3://BUCKET/PREFIX
    pub root: String,

    /// Keep the Delta log up to date too
    #[arg(long)]
    pub delta: bool,

    /// Finish a compaction that was cut off on another machine; make sure that it does not run any more
    #[arg(long)]
    pub take_over: bool,

    /// Permissions of the files of a fleet in a directory, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = permissions, hide_short_help = true)]
    pub mode: u32,
}

/// Arguments of `delta`.
#[derive(Args, Debug)]
pub struct DeltaArgs {
    /// The fleet: a directory or s3://BUCKET/PREFIX
    pub root: String,

    /// Permissions of the files of a fleet in a directory, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = permissions, hide_short_help = true)]
    pub mode: u32,
}

/// Arguments of `engine`.
#[derive(Args, Debug)]
pub struct EngineArgs {
    /// The action.
    #[command(subcommand)]
    pub command: EngineCommand,
}

/// The commands of `engine`.
#[derive(Subcommand, Debug)]
pub enum EngineCommand {
    /// Fetch DuckDB from the npm registry, check it, and keep it below the user's data
    Install(InstallArgs),
    /// Say which engine answers, and from where it was loaded
    Which,
}

/// Arguments of `engine install`.
#[derive(Args, Debug)]
pub struct InstallArgs {
    /// A package that was fetched before, for machines without a network
    #[arg(long, value_name = "FILE.tgz")]
    pub from: Option<PathBuf>,

    /// The npm registry
    #[arg(
        long,
        value_name = "URL",
        env = "NPM_CONFIG_REGISTRY",
        hide_env_values = true,
        default_value = "https://registry.npmjs.org"
    )]
    pub registry: String,
}

fn permissions(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode @ 0..=0o777) if mode & 0o600 == 0o600 => Ok(mode),
        _ => Err(format!(
            "invalid mode of a file `{text}`; expected an octal number as 640, with 6 for the owner"
        )),
    }
}
