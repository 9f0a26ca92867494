//! `ncpu scale`: throughput over CPU counts, the laws that describe it, the layer that grows.

mod from;
pub(crate) mod peel;
pub(crate) mod plan;
mod runs;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Context;
use clap::Args;
use ncpu_machine::Topology;
use ncpu_measure::scaling::{Analysis, curve_table, laws_table, points_table};
use ncpu_report::scale::Scale;
use ncpu_schema::Purpose;
use ncpu_table::{Format, Table};

use crate::metric::MetricArgs;
use crate::sink::record_once;
use crate::stop;
use crate::table_args::{TableArgs, known_table, text_width};
use plan::Plan;

/// Run a command over CPU counts and fit the laws of scaling: contention, coherency, the peak
#[derive(Args, Debug)]
pub struct ScaleArgs {
    /// CPU counts, as in 1,2,4-8 [default: powers of two up to the machine]. A count beyond the CPUs needs {N} in CMD
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,

    /// Which CPUs come first: spread, pack, node:N, cpus:LIST; free binds nothing and only fills in {N}
    #[arg(long, value_name = "WHERE", default_value = "spread")]
    place: String,

    #[command(flatten)]
    metric: MetricArgs,

    /// Throughput is one over the elapsed time (the default)
    #[arg(long, conflicts_with = "metric")]
    time: bool,

    /// Runs of each point, all points in random order in each round
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Seed of the order of the runs [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Then peel the onion at each point (a run more of each): names the layer that grows
    #[arg(long)]
    peel: bool,

    /// Fit figures measured elsewhere: a table of N and throughput, any further column another curve
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cpus", "metric", "time", "peel", "command"])]
    from: Option<PathBuf>,

    /// Draw the curves up to this N
    #[arg(long, value_name = "N")]
    to: Option<f64>,

    /// Write the plots to FILE as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print a table instead of the report: scale, laws, curves, runs, layers
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    #[command(flatten)]
    rows: TableArgs,

    /// Record the tables in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// The command and its arguments; {N} stands for the CPU count (so does n in braces)
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD",
        required_unless_present = "from"
    )]
    command: Vec<OsString>,
}

/// Runs the command.
pub fn run(args: &ScaleArgs) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.table {
        known_table(name, ["scale", "laws", "curves", "runs", "layers"])?;
    }
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut code = ExitCode::SUCCESS;
    let mut tables: Vec<Table> = Vec::new();
    let mut notes = Vec::new();
    let words: Vec<String>;
    let analyses: Vec<Analysis> = if let Some(file) = &args.from {
        words = vec!["figures".into(), "of".into(), file.display().to_string()];
        let analyse = |(curve, note)| {
            let mut analysis = Analysis::of(curve);
            analysis.notes.extend(note);
            analysis
        };
        from::read(file)?.into_iter().map(analyse).collect()
    } else {
        words = args.command.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        let machine = Topology::read("/".as_ref())?;
        let measure = args.metric.measure()?;
        let plan = Plan::new(args.cpus.as_deref(), &args.place, &args.command, &machine)?;
        if args.rounds == 0 {
            usage!("--rounds 0: give 1 or more");
        }
        let stop = stop::on_signals()?;
        let done = runs::all(&plan, &measure, args.rounds, seed, &stop)?;
        notes.push(format!("seed {seed}: `--seed {seed}` repeats the order of the runs"));
        if let Some(share) = done.disturbance().filter(|s| *s > 0.05) {
            notes.push(format!(
                "other programs took {:.0} % of its CPUs' time in the median run: the figures are theirs too, so measure \
                 where it is quiet",
                100.0 * share
            ));
        }
        tables.push(done.table(&plan));
        let analysis = Analysis::of(done.curve(&plan, &measure));
        if args.peel && !stop.load(Ordering::Relaxed) {
            let peeled = peel::all(&plan, &measure, &done, &stop)?;
            tables.push(peeled.table);
            for words in peeled.failed {
                say!("ncpu scale: {words}");
                code = ExitCode::FAILURE;
            }
        }
        for words in done.lost(&plan) {
            say!("ncpu scale: {words}");
            code = ExitCode::FAILURE;
        }
        if stop.load(Ordering::Relaxed) {
            notes.push("stopped early: what was done is shown".into());
            code = ExitCode::from(stop::status());
        }
        vec![analysis]
    };
    tables.insert(0, points_table(&analyses));
    tables.insert(1, laws_table(&analyses));
    tables.insert(2, curve_table(&analyses, args.to));
    record_once(args.record.as_deref(), Purpose::Scale, words.clone(), &tables, notes.clone())?;
    let by_name: BTreeMap<String, Table> = tables.into_iter().map(|t| (t.name().to_string(), t)).collect();
    let scale = Scale::read(by_name.values(), &words.join(" "), &notes);
    if let Some(file) = &args.svg {
        ncpu_files::NewFile::write(file, crate::out::mode(), scale.svg().as_bytes())
            .with_context(|| format!("writing {}", file.display()))?;
        say!("ncpu: wrote {}", file.display());
    }
    if let Some(file) = &args.html {
        crate::out::page(file, &scale.html())?;
    }
    print(args, &by_name, &scale)?;
    Ok(code)
}

fn print(args: &ScaleArgs, tables: &BTreeMap<String, Table>, scale: &Scale) -> anyhow::Result<()> {
    let select = args.rows.select();
    if args.table.is_none() && args.rows.format() == Format::Text {
        let points = select.apply(tables["scale"].clone())?;
        return crate::out::put(&ncpu_report::scale::render(scale, &points, text_width()));
    }
    let name = args.table.as_deref().unwrap_or("scale");
    let table = tables.get(name).with_context(|| match name {
        "layers" => "there are no layers: give --peel".to_string(),
        _ => format!("there is no table `{name}` of figures measured elsewhere"),
    })?;
    args.rows.print_all(&select.apply(table.clone())?)
}
