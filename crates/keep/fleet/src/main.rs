//! `ncpu-fleet`, which `ncpu fleet` executes: arguments in, tables out.

mod out;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Parser;
use ncpu_fleet::add::{self, Options};
use ncpu_fleet::answers;
use ncpu_fleet::ask::{self, Asked, Question};
use ncpu_fleet::canary::{self, Verdict};
use ncpu_fleet::engine::{Engine, Kind};
use ncpu_fleet::labels::{self, Labels};
use ncpu_fleet::when::{self, Period};
use ncpu_fleet::{compact, delta, install, outliers, page, regress, store};
use ncpu_fleet_args::{
    AddArgs, AskArgs, CompactArgs, DeltaArgs, EngineCommand, FixArgs, FleetCommand, OutliersArgs, Program,
    RegressArgs, Rows, Scope, SqlArgs,
};
use ncpu_schema::Layer;
use out::say;

/// The number of left-out recordings that are named; further ones are only counted.
const NAMED: usize = 20;

/// The stack size for arguments and answers. `ulimit -s` may leave much less.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    if limit.is_none_or(|bytes| bytes >= STACK as u64) {
        return command_line();
    }
    // A thread's stack is not limited by it.
    match std::thread::Builder::new().stack_size(STACK).spawn(command_line).map(|thread| thread.join()) {
        Ok(joined) => joined.unwrap_or(ExitCode::FAILURE),
        Err(e) => {
            say(&format!("ncpu fleet: no memory for a stack: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn command_line() -> ExitCode {
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(e) => return out::usage(&e),
    };
    match run(program.args.command) {
        Ok(code) => code,
        Err(e) if out::broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            say(&format!("ncpu fleet: {e:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: FleetCommand) -> anyhow::Result<ExitCode> {
    match command {
        FleetCommand::Add(args) => add(&args),
        FleetCommand::Onion(args) => onion(&args),
        FleetCommand::Locks(args) => question(&args, include_str!("../sql/locks.sql"), |asked, question| {
            answers::locks(asked, question, false)
        }),
        FleetCommand::UserLocks(args) => {
            question(&args, include_str!("../sql/user_locks.sql"), |asked, question| {
                answers::locks(asked, question, true)
            })
        }
        FleetCommand::Calls(args) => question(&args, include_str!("../sql/calls.sql"), answers::calls),
        FleetCommand::Tenants(args) => question(&args, include_str!("../sql/tenants.sql"), answers::tenants),
        FleetCommand::Machines(args) => {
            question(&args, include_str!("../sql/machines.sql"), answers::machines)
        }
        FleetCommand::Regress(args) => regress(&args),
        FleetCommand::Fix(args) => fix(&args),
        FleetCommand::Outliers(args) => outliers(&args),
        FleetCommand::Sql(args) => sql(&args),
        FleetCommand::Compact(args) => compact(&args),
        FleetCommand::Delta(args) => delta(&args),
        FleetCommand::Engine(args) => engine(&args.command),
    }
}

/// Set by SIGINT and similar signals: work in progress is finished, and no more is begun.
fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM, rustix::process::Signal::HUP]
    {
        let flag = Arc::clone(&stop);
        // SAFETY: the handler only stores to an atomic.
        unsafe {
            signal_hook_registry::register(signal.as_raw(), move || flag.store(true, Ordering::Relaxed))
                .context("cannot catch signals")?;
        }
    }
    Ok(stop)
}

fn add(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let mut options = Options { unfinished: args.unfinished, ..Options::default() };
    let mut own = Labels::default();
    args.label.iter().try_for_each(|l| own.assign(l))?;
    options.labels = own;
    if let Some(file) = &args.labels {
        options.by_host = labels::by_host(file)?;
    }
    // The threads wait for the disk, or for S3, much of the time.
    options.threads = threads(args.threads, 4);
    let store = store::open_or_make(&args.root, args.mode)?;
    // Engines that read a log miss parts that were merged since it was written.
    options.tidy = !args.no_compact && (args.delta || !delta::kept(store.as_ref())?);
    let stop = stop_on_signals()?;
    let begun = std::time::Instant::now();
    let progress = |done, total| {
        out::progress(&format!("{done} of {total} recordings, {:.0} s", begun.elapsed().as_secs_f64()));
    };
    let result = add::add(store.as_ref(), &args.dirs, &options, &progress, &stop);
    out::progress("");
    let outcome = result?;
    for (_, why) in outcome.left_out.iter().take(NAMED) {
        say(&format!("ncpu fleet: left out: {why}"));
    }
    if outcome.left_out.len() > NAMED {
        say(&format!("ncpu fleet: and {} more were left out", outcome.left_out.len() - NAMED));
    }
    if outcome.ahead > 0 {
        say(&format!(
            "ncpu fleet: {} recordings began more than a day from now by their machines' clocks: they are added under \
             those dates, which --since leaves out",
            outcome.ahead
        ));
    }
    if let Some(why) = &outcome.untidy {
        say(&format!("ncpu fleet: small parts were not merged: {why}"));
    }
    if args.delta && !outcome.stopped {
        delta::update(store.as_ref())?;
    }
    say(&format!(
        "ncpu fleet: {} added, {} there already, {} left out in {:.1} s",
        outcome.added,
        outcome.known,
        outcome.left_out.len(),
        begun.elapsed().as_secs_f64()
    ));
    if outcome.stopped {
        say("ncpu fleet: stopped; run it again to add the rest");
        return Ok(ExitCode::from(130));
    }
    // Among thousands some are always invalid; if none could be added it is a failure.
    let nothing = outcome.added + outcome.known == 0;
    Ok(if nothing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn threads(asked: Option<u16>, of_each_cpu: usize) -> usize {
    asked.map_or_else(
        || of_each_cpu * std::thread::available_parallelism().map_or(1, |n| n.get()),
        usize::from,
    )
}

fn notes(notes: &[String]) {
    notes.iter().for_each(|note| say(&format!("ncpu fleet: {note}")));
}

/// Prints the SQL of a question instead of asking it.
fn explained(scope: &Scope, question: &Question, template: &str) -> anyhow::Result<Option<ExitCode>> {
    if !scope.explain {
        return Ok(None);
    }
    let asked = Asked::open(scope)?;
    out::put(&asked.sql(template, question)?)?;
    Ok(Some(ExitCode::SUCCESS))
}

fn question(
    args: &AskArgs,
    template: &str,
    ask: impl Fn(&mut Asked, &Question) -> ncpu_fleet::Result<ncpu_table::Table>,
) -> anyhow::Result<ExitCode> {
    let by = ask::by(&args.by)?;
    let question = Question::new(by, args.since.as_deref(), args.until.as_deref(), args.top)?;
    if let Some(code) = explained(&args.scope, &question, template)? {
        return Ok(code);
    }
    let mut asked = Asked::open(&args.scope)?;
    let table = ask(&mut asked, &question)?;
    notes(&asked.notes);
    if table.num_rows() == 0 {
        say("ncpu fleet: no recording of the fleet matches");
    }
    answered(&args.rows, table, &asked)
}

/// Prints an answer, or writes it as a page.
fn answered(rows: &Rows, table: ncpu_table::Table, asked: &Asked) -> anyhow::Result<ExitCode> {
    match &rows.html {
        None => out::table(rows, table)?,
        Some(file) => {
            let text = page::of_table(asked, &rows.select().apply(table)?);
            out::file(file, rows.mode, text.as_bytes())?;
            say(&format!("ncpu fleet: wrote {}", file.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The onion, whose page shows the machines too.
fn onion(args: &AskArgs) -> anyhow::Result<ExitCode> {
    let Some(file) = args.rows.html.as_ref().filter(|_| !args.scope.explain) else {
        return question(args, include_str!("../sql/onion.sql"), answers::onion);
    };
    let question = Question::new(ask::by(&args.by)?, args.since.as_deref(), args.until.as_deref(), args.top)?;
    let mut asked = Asked::open(&args.scope)?;
    let text = page::page(&mut asked, &question)?;
    out::file(file, args.rows.mode, text.as_bytes())?;
    say(&format!("ncpu fleet: wrote {}", file.display()));
    notes(&asked.notes);
    Ok(ExitCode::SUCCESS)
}

fn regress(args: &RegressArgs) -> anyhow::Result<ExitCode> {
    let by = ask::by(&args.by)?;
    let (before, after) = (Period::parse(&args.before)?, Period::parse(&args.after)?);
    let question = Question::of_change(by, before, after)?;
    if let Some(code) = explained(&args.scope, &question, include_str!("../sql/regress.sql"))? {
        return Ok(code);
    }
    let mut asked = Asked::open(&args.scope)?;
    let answer = regress::ask(&mut asked, &question, args.least / 100.0)?;
    notes(&asked.notes);
    notes(&answer.notes);
    let table = match args.machines {
        true => answer.machines(&question.by, args.top),
        false => answer.table(&question.by, args.top),
    };
    if table.num_rows() == 0 {
        say("ncpu fleet: nothing changed beyond noise");
    }
    answered(&args.rows, table, &asked)
}

fn fix(args: &FixArgs) -> anyhow::Result<ExitCode> {
    if args.scope.explain {
        anyhow::bail!("--explain: a fix asks what `regress` asks, which explains it");
    }
    if let Some(remedy) = &args.remedy {
        let before = args.before.as_deref().context("--remedy needs --before, the period before it")?;
        let mut asked = Asked::open(&args.scope)?;
        let plan = canary::plan(&mut asked, &args.name, remedy, before, args.canary / 100.0)?;
        notes(&asked.notes);
        say(&format!(
            "ncpu fleet: {} of {} machines are the canaries of `{}`: give them the remedy and nothing else, record all as before, \
             and judge by --after",
            plan.canaries.len(),
            plan.canaries.len() + plan.others.len(),
            args.name
        ));
        return answered(&args.rows, plan.table(), &asked);
    }
    anyhow::ensure!(args.scope.filter.is_none(), "--where: the plan has chosen the machines");
    let after = Period::parse(args.after.as_deref().context("--after FROM..TO")?)?;
    let layer = args.layer.as_deref().map(layer).transpose()?;
    let mut asked = Asked::open(&args.scope)?;
    let plan = canary::read(&asked, &args.name)?;
    let answer = canary::judge(&mut asked, &plan, after, layer, args.least / 100.0)?;
    notes(&asked.notes);
    notes(&answer.notes);
    let what = match answer.verdict {
        Verdict::Adopt => "adopt it: it helps beyond chance".into(),
        Verdict::Undo => "undo it: it harms beyond chance".into(),
        Verdict::Drop => format!("drop it: it does not give {} % of capacity", args.least),
        Verdict::Widen(n) => format!("not certain: widen it to some {n} machines"),
    };
    say(&format!("ncpu fleet: {}: {what}", plan.remedy));
    answered(&args.rows, answer.table(), &asked)
}

/// The layer of this name.
fn layer(name: &str) -> anyhow::Result<Layer> {
    let found = Layer::ALL.into_iter().find(|layer| layer.name() == name);
    found.with_context(|| {
        let names: Vec<&str> = Layer::ALL.iter().map(|layer| layer.name()).collect();
        format!("--layer {name}: unknown layer; expected one of: {}", names.join(", "))
    })
}

fn outliers(args: &OutliersArgs) -> anyhow::Result<ExitCode> {
    let by = ask::by(&args.by)?;
    let question = Question::new(by, args.since.as_deref(), args.until.as_deref(), None)?;
    if args.scope.explain {
        let by = if question.by.is_empty() { ask::by(&outliers::BY.map(String::from))? } else { question.by };
        let asked = Asked::open(&args.scope)?;
        out::put(&asked.sql(include_str!("../sql/outliers.sql"), &Question { by, ..question })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut asked = Asked::open(&args.scope)?;
    let answer = outliers::ask(&mut asked, &question, args.least / 100.0)?;
    notes(&asked.notes);
    notes(&answer.notes);
    let table = answer.shown(&question.by, args.top);
    if table.num_rows() == 0 {
        say("ncpu fleet: no outliers");
    }
    answered(&args.rows, table, &asked)
}

fn sql(args: &SqlArgs) -> anyhow::Result<ExitCode> {
    let mut asked = Asked::open(&args.scope)?;
    if args.scope.explain {
        let views = asked.views(&args.sql)?;
        out::put(&views.iter().map(|v| format!("{v};\n")).collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let table = asked.query(&args.sql)?;
    notes(&asked.notes);
    answered(&args.rows, table, &asked)
}

fn compact(args: &CompactArgs) -> anyhow::Result<ExitCode> {
    let store = store::open_to_write(&args.root, args.mode)?;
    let how = compact::Options { take_over: args.take_over, threads: threads(None, 1), now: when::now() };
    let outcome = compact::compact(store.as_ref(), &how)?;
    if args.delta {
        delta::update(store.as_ref())?;
    }
    say(&format!("ncpu fleet: {} parts instead of {}", outcome.after, outcome.before));
    Ok(ExitCode::SUCCESS)
}

fn delta(args: &DeltaArgs) -> anyhow::Result<ExitCode> {
    let store = store::open_to_write(&args.root, args.mode)?;
    let entries = delta::update(store.as_ref())?;
    say(&format!("ncpu fleet: {entries} entries written to the Delta log"));
    Ok(ExitCode::SUCCESS)
}

fn engine(command: &EngineCommand) -> anyhow::Result<ExitCode> {
    let path = match command {
        EngineCommand::Install(args) => install::install(args.from.as_deref(), &args.registry)?,
        EngineCommand::Which => install::find()?,
    };
    let mut engine = Engine::open(Kind::Duckdb(path.clone()))?;
    let version = engine.version()?;
    notes(&engine.notes);
    out::put(&format!("DuckDB {version}, {}\n", Path::new(&path).display()))?;
    Ok(ExitCode::SUCCESS)
}
