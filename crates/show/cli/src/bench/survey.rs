//! Benchmarks whose answer is a table of its own.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Context;
use ncpu_machine::Topology;
use ncpu_measure::surveys::{Report, Request, Survey};
use ncpu_measure::{Failure, Options};
use ncpu_schema::Purpose;
use ncpu_table::Format;

use super::BenchArgs;
use crate::out::{progress, progress_over};
use crate::sink::record_once;
use crate::stop;

/// Runs one with its own options.
pub fn run(survey: &Survey, args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let machine = Topology::read("/".as_ref())?;
    let options = Options::parse(survey.flags, &args.options).with_context(|| survey.name.to_string())?;
    let stop = stop::on_signals()?;
    let request = Request {
        options: &options,
        plan: &args.plan(),
        machine: &machine,
        stop: &stop,
        progress: &|doing| progress(doing),
    };
    let outcome = (survey.run)(&request);
    progress_over();
    let report = match outcome {
        Ok(report) => report,
        Err(Failure::Lacks(why)) => {
            say!("ncpu bench: {}: skipped: {why}", survey.name);
            return Ok(ExitCode::SUCCESS);
        }
        Err(failure) => return Err(failure).with_context(|| survey.name.to_string()),
    };
    record_once(
        args.record.as_deref(),
        Purpose::Bench,
        args.names.clone(),
        &report.tables,
        report.notes.clone(),
    )?;
    print(&report, args)?;
    for note in &report.notes {
        say!("{note}");
    }
    for failure in &report.failed {
        say!("ncpu bench: {}: {failure}", survey.name);
    }
    Ok(match report.failed.is_empty() {
        _ if stop.load(Ordering::Relaxed) => ExitCode::from(stop::status()),
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Text is for people: the wide form, unless rows are to be sorted or chosen, or it does not fit.
fn print(report: &Report, args: &BenchArgs) -> anyhow::Result<()> {
    let select = args.rows.select();
    let plain = select.sort.is_none() && select.top.is_none();
    let fits =
        |text: &str| text.lines().all(|l| ncpu_table::width::columns(l) <= crate::table_args::text_width());
    if args.rows.format() == Format::Text && plain && !report.wide.is_empty() {
        let wide: Vec<String> = report
            .wide
            .iter()
            .map(|(title, table)| format!("{title}\n{}", ncpu_table::render_text(table, usize::MAX)))
            .collect();
        if wide.iter().all(|w| fits(w.split_once('\n').map_or("", |(_, table)| table))) {
            return crate::out::put(&wide.join("\n"));
        }
    }
    let mut printer = args.rows.printer()?;
    for table in &report.tables {
        printer.table(&select.apply(table.clone())?)?;
    }
    Ok(printer.finish()?)
}
