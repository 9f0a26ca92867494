//! `ncpu power`: watts at rest and under a command, joules, what they cost in a year.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use ncpu_machine::power::{self, Energy, Meter};
use ncpu_observe_core::program::Child;
use ncpu_schema::Purpose;
use ncpu_table::{Column, Format, Kind, Table, Unit};

use crate::sink::record_once;
use crate::stop;
use crate::table_args::TableArgs;

/// Watts of the machine at rest and under a command, joules, and what a year costs
#[derive(Args, Debug)]
pub struct PowerArgs {
    /// Price of a kWh, in any currency: adds the cost of a year
    #[arg(allow_negative_numbers = true, long, value_name = "PER_KWH")]
    price: Option<f64>,

    /// Seconds to watch, before the command where there is one; 0 leaves that out
    #[arg(allow_negative_numbers = true, long, value_name = "SECONDS", default_value_t = 5.0, value_parser = crate::duration::seconds)]
    seconds: f64,

    /// Read meters below DIR instead of /
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    #[command(flatten)]
    rows: TableArgs,

    /// Record the table in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command; exits with CMD's status.
pub fn run(args: &PowerArgs) -> anyhow::Result<ExitCode> {
    let Some(watch) = Duration::try_from_secs_f64(args.seconds).ok().filter(|d| d.as_secs() < 366 * 86_400)
    else {
        usage!("--seconds {}: give a number of seconds, 0 or more", args.seconds);
    };
    if let Some(price) = args.price.filter(|p| !(p.is_finite() && *p >= 0.0)) {
        usage!("--price {price}: give the price of a kWh, 0 or more");
    }
    if watch.is_zero() && args.command.is_empty() {
        usage!("--seconds 0 and no command: there is nothing to measure");
    }
    let meters = power::find(&args.root)?;
    let stop = stop::on_signals()?;
    let rest =
        (!watch.is_zero()).then(|| power::during(&meters, || stop::wait(Instant::now() + watch, &stop)).1);
    let mut code = ExitCode::SUCCESS;
    let mut under = None;
    if !args.command.is_empty() && !stop.load(Ordering::Relaxed) {
        crate::out::leave_stdout_to_command();
        let mut child = Child::hold(&args.command)?;
        let _passed_on = crate::stop::PassedOn::to(child.pidfd());
        let (ended, energies) = power::during(&meters, || {
            child.release()?;
            anyhow::Ok(child.wait(true).unwrap_or_default())
        });
        code = ExitCode::from(ended?.status as u8);
        under = Some(energies);
    } else if stop.load(Ordering::Relaxed) {
        code = ExitCode::from(stop::status());
    }
    let table = table(&meters, rest.as_deref(), under.as_deref(), args.price);
    let words = args.command.iter().map(|w| w.to_string_lossy().into_owned());
    record_once(
        args.record.as_deref(),
        Purpose::Power,
        std::iter::once("power".into()).chain(words).collect(),
        std::slice::from_ref(&table),
        vec![],
    )?;
    let table = args.rows.select().apply(table)?;
    if args.rows.format() == Format::Text && under.is_some() {
        // The command's own output has stdout up to here.
        crate::out::put("\n")?;
    }
    let mut printer = args.rows.printer()?;
    let empty =
        |c: &&str| (0..table.num_rows()).all(|r| table.number(r, c).is_none() && table.text(r, c).is_none());
    let shown: Vec<&str> = table.columns().iter().map(|c| c.name.as_str()).filter(|c| !empty(c)).collect();
    match args.rows.format() {
        Format::Text => printer.table(&table.project(&shown)?)?,
        _ => printer.table(&table)?,
    }
    printer.finish()?;
    Ok(code)
}

fn table(meters: &[Meter], rest: Option<&[Energy]>, under: Option<&[Energy]>, price: Option<f64>) -> Table {
    let figure = |name: &str, meaning: &str| Column::float(name, Unit::Figure, Kind::Gauge, meaning);
    let mut out = Table::builder(
        "power",
        &[
            Column::text("meter", "its name; the last row is their sum for the machine"),
            Column::text("part", "which part of the machine it is for"),
            Column::text("kind", "RAPL, hwmon or battery"),
            figure("rest_W", "mean power before the command, or all the time without one"),
            figure("cmd_W", "mean power while the command ran"),
            Column::float("cmd_s", Unit::Seconds, Kind::Time, "how long it ran"),
            figure("cmd_J", "energy while it ran"),
            figure("over_rest_J", "that above what the machine takes at rest"),
            figure("year_kWh", "a year at this power: the command's, else that at rest"),
            figure("year_cost", "what that costs at --price"),
        ],
    );
    let mut row = |name: &str, part: &str, kind: &str, rest: Option<Energy>, under: Option<Energy>| {
        let steady = under.as_ref().or(rest.as_ref());
        let above = rest.as_ref().zip(under.as_ref()).map(|(r, u)| u.joules - r.watts() * u.seconds);
        out.row()
            .text(name)
            .text(part)
            .text(kind)
            .float_opt(rest.as_ref().map(Energy::watts))
            .float_opt(under.as_ref().map(Energy::watts))
            .float_opt(under.as_ref().map(|u| u.seconds))
            .float_opt(under.as_ref().map(|u| u.joules))
            .float_opt(above)
            .float_opt(steady.map(Energy::yearly_kwh))
            .float_opt(steady.zip(price).map(|(e, p)| e.yearly_kwh() * p));
    };
    let of = |energies: Option<&[Energy]>, i: usize| energies.and_then(|e| e.get(i).cloned());
    for (i, m) in meters.iter().enumerate() {
        row(&m.name, m.part.name(), m.kind, of(rest, i), of(under, i));
    }
    let whole = |energies: Option<&[Energy]>| energies.and_then(|e| power::total(meters, e));
    if let Some((_, of)) = whole(rest).or(whole(under)) {
        row("total", of, "", whole(rest).map(|t| t.0), whole(under).map(|t| t.0));
    }
    out.finish()
}
