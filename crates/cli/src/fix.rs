//! `ncpu fix`: peels a command, tries the remedies that need no change of it, and keeps those that help.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_machine::Topology;
use ncpu_machine::limits::Limits;
use ncpu_measure::compare::Ratio;
use ncpu_remedy::fix::{self, Allowed, Kind as RemedyKind, Remedy};
use ncpu_remedy::journal::{self, Id, Journal};
use ncpu_remedy::preload::Places;
use ncpu_report::onion::Onion;
use ncpu_table::{Column, Format, Kind, Table, Unit};

use crate::command::Held;
use crate::metric::{Measure, MetricArgs};
use crate::out::{progress, progress_over};
use crate::scale::peel;
use crate::scale::plan::Spot;
use crate::stop;
use crate::table_args::{TableArgs, known_table, text_width};
use crate::undo;

/// Find what makes a command faster without changing it: peel, try remedies, keep what helps; undo what was left behind
#[derive(Args, Debug)]
pub struct FixArgs {
    /// Undo what commands that were killed had changed, and end
    #[arg(long, conflicts_with_all = ["command", "list"])]
    undo: bool,

    /// Show the remedies that would be tried, and end
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    metric: MetricArgs,

    /// Rounds of each comparison: the command with and without a remedy, in random order
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,

    /// Keep a remedy only if it gives at least so many per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    least: f64,

    /// Begin no comparison after so many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 900.0)]
    length: f64,

    /// Try settings of the whole machine and of control groups too; they are undone at the end
    #[arg(long)]
    allow_system: bool,

    /// Try real-time scheduling too, which can starve other programs
    #[arg(long)]
    allow_realtime: bool,

    /// Try only remedies with one of these words in their name
    #[arg(long = "try", value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,

    /// Do not peel: remedies are tried in the order of --list
    #[arg(long)]
    no_peel: bool,

    /// Print a table instead of the path: path, onions, remedies
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    /// Write the command with what helped to FILE, as a drop-in of a systemd service
    #[arg(long, value_name = "FILE")]
    systemd: Option<PathBuf>,

    #[command(flatten)]
    rows: TableArgs,

    /// The command and its arguments; n in braces stands for the number of workers, 1 at first
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD",
          required_unless_present_any = ["undo"])]
    command: Vec<OsString>,
}

/// A comparison that was made.
struct Tried {
    remedy: Remedy,
    foretold: Option<f64>,
    ratio: Option<Ratio>,
    rounds: usize,
    verdict: String,
    kept: bool,
}

/// The verdict on a remedy that helps.
const KEPT: &str = "kept";
/// Runs after which a command, or a remedy for one that fails, is taken to work.
const TRIALS: u32 = 3;
/// How much of user code is taken to wait for memory when remedies are put in order: more than other programs spend so would
/// put what may help before what will.
const USER_CODE_FOR_MEMORY: f64 = 0.25;

/// Layers of an onion: name, share, advice.
type Layers = Vec<(String, f64, String)>;

/// Runs the command.
///
/// # Errors
/// The command fails as it is, or the journal cannot be kept.
pub fn run(args: &FixArgs) -> anyhow::Result<ExitCode> {
    if args.undo {
        return undo_all();
    }
    if let Some(name) = &args.table {
        known_table(name, ["path", "onions", "remedies"])?;
    }
    anyhow::ensure!(args.least >= 0.0 && args.least.is_finite(), "--least {}: give 0 or more", args.least);
    let length = Duration::try_from_secs_f64(args.length).context("--for: give seconds")?;
    let ncpu = std::env::current_exe().context("finding ncpu itself")?;
    let root = std::path::Path::new("/");
    let machine = Topology::read(root)?;
    let places = Places::of(&ncpu, std::env::var_os("NCPU_PRELOAD_DIR").as_deref());
    let preloads: Vec<String> = places.list().into_iter().map(|l| l.name).collect();
    let allowed = Allowed { system: args.allow_system, realtime: args.allow_realtime };
    let mut remedies = fix::catalogue(root, &machine, &args.command, &preloads, allowed)?;
    let names: Vec<String> = remedies.iter().map(|r| r.name.to_string()).collect();
    remedies.retain(|r| wanted(&args.only, r));
    anyhow::ensure!(
        !remedies.is_empty() || names.is_empty(),
        "--try {}: no remedy has that in its name; there are {}",
        args.only.join(","),
        names.join(", ")
    );
    if args.list {
        return list(args, &remedies);
    }
    let stop = stop::on_signals()?;
    let mut search = Search {
        args,
        measure: args.metric.measure()?,
        ncpu: ncpu.into_os_string(),
        journal: undo::begin()?,
        stop: &stop,
        kept: Vec::new(),
        tried: Vec::new(),
        onions: Vec::new(),
        begin: Instant::now(),
        length,
        set: Vec::new(),
        all: None,
    };
    let result = search.go(remedies);
    let Search { journal, kept, tried, onions, all, .. } = search;
    undo::tell(&journal.finish(), false);
    result?;
    report(args, &kept, &tried, &onions, all)?;
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// Whether a remedy is one of those asked for.
fn wanted(only: &[String], remedy: &Remedy) -> bool {
    only.is_empty() || only.iter().any(|word| remedy.name.contains(word.trim()))
}

fn undo_all() -> anyhow::Result<ExitCode> {
    let mut whole = true;
    let all = journal::replay(&journal::directory())?;
    for replayed in &all {
        whole &= undo::tell(replayed, true);
    }
    if all.is_empty() {
        say!("ncpu: nothing to undo");
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn remedies_table(remedies: &[Remedy]) -> Table {
    let columns = [
        Column::text("remedy", "its name, for --try"),
        Column::text("about", "what it does"),
        Column::text("layers", "layers of the onion that call for it"),
    ];
    let mut table = Table::builder("remedies", &columns);
    for remedy in remedies {
        table.row().text(&remedy.name).text(&remedy.about).text(remedy.layers.join(", "));
    }
    table.finish()
}

fn list(args: &FixArgs, remedies: &[Remedy]) -> anyhow::Result<ExitCode> {
    let mut printer = args.rows.printer()?;
    printer.table(&args.rows.select().apply(remedies_table(remedies))?)?;
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

struct Search<'a> {
    args: &'a FixArgs,
    measure: Measure,
    ncpu: OsString,
    journal: Journal,
    stop: &'a AtomicBool,
    kept: Vec<Remedy>,
    tried: Vec<Tried>,
    onions: Vec<Layers>,
    begin: Instant,
    length: Duration,
    set: Vec<(Id, PathBuf)>,
    /// What all that was kept gives.
    all: Option<Ratio>,
}

impl Search<'_> {
    fn go(&mut self, mut left: Vec<Remedy>) -> anyhow::Result<()> {
        // A command that fails now and then is to be mended before anything is compared.
        let mut failed = None;
        for _ in 0..TRIALS {
            match self.once(&[])? {
                None => return Ok(()),
                Some(Err(why)) => {
                    failed = Some(why);
                    break;
                }
                Some(Ok(_)) => {}
            }
        }
        // It has run: what it ran into can be seen.
        left.extend(self.limits_met());
        if let Some(why) = failed {
            self.mend(&mut left, &why)?;
        }
        self.peel();
        while !left.is_empty() && !self.stop.load(Ordering::Relaxed) {
            let layers = self.onions.last().cloned().unwrap_or_default();
            let share = |r: &Remedy| called(&layers, r, USER_CODE_FOR_MEMORY);
            // What the onion calls for first; of equal ones the catalogue's order.
            let best =
                (0..left.len()).max_by(|&a, &b| share(&left[a]).total_cmp(&share(&left[b])).then(b.cmp(&a)));
            let Some(best) = best else { break };
            let remedy = left.remove(best);
            let foretold = foretold(&layers, &remedy);
            if self.begin.elapsed() >= self.length {
                let verdict = "not tried: time is up".into();
                self.tried.push(Tried { remedy, foretold, ratio: None, rounds: 0, verdict, kept: false });
                continue;
            }
            let chosen = self.beside(&remedy);
            let (mut ratio, mut rounds, mut verdict) =
                self.compare(&self.kept.clone(), &chosen, &remedy.name)?;
            // Of a dozen remedies that do nothing, one seems to help by chance now and then. It does so seldom twice, and
            // the second figure is not one that was picked for being large.
            if verdict == KEPT {
                let again = self.compare(&self.kept.clone(), &chosen, &format!("{}, again", remedy.name))?;
                rounds += again.1;
                (ratio, verdict) = (again.0.or(ratio), again.2);
                if verdict != KEPT {
                    verdict = format!("not found again: {verdict}");
                }
            }
            let kept = verdict == KEPT;
            if kept {
                // Another of the kind can still take its place, but only one that was not tried before it.
                self.kept = chosen;
            }
            self.tried.push(Tried { remedy, foretold, ratio, rounds, verdict, kept });
            self.tell_last();
            if kept {
                self.peel();
            }
        }
        // The product of the steps' gains is not the gain of all.
        if self.tried.iter().any(|t| t.kept) && self.tried.iter().all(|t| !t.kept || t.ratio.is_some()) {
            self.all = self.compare(&[], &self.kept.clone(), "all that helped")?.0;
        }
        progress_over();
        Ok(())
    }

    /// Limits that were reached by now, or nearly, and that settings lift.
    fn limits_met(&self) -> Vec<Remedy> {
        if !self.args.allow_system {
            return Vec::new();
        }
        let limits = match Limits::read("/".as_ref()) {
            Ok(limits) => limits,
            Err(e) => {
                say!("ncpu fix: limits are not looked at: {}", undo::shown(&e.to_string(), 200));
                return Vec::new();
            }
        };
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups: Vec<String> =
            own.lines().filter_map(|l| Some(l.splitn(3, ':').nth(2)?.to_string())).collect();
        let lifts = ncpu_report::limits::lifts(&limits, &groups);
        let lifts = lifts.into_iter().map(|l| fix::lifted(&l.limit, &l.why, l.file, l.value));
        lifts.filter(|r| wanted(&self.args.only, r)).collect()
    }

    /// The command fails as it is: takes the first remedy with which it works three times in a row.
    fn mend(&mut self, left: &mut Vec<Remedy>, why: &str) -> anyhow::Result<()> {
        let why = undo::shown(why, 300);
        for at in 0..left.len() {
            // Speed is no matter here; these change what a program does.
            if !matches!(
                left[at].kind,
                RemedyKind::Library | RemedyKind::Allocator | RemedyKind::Limits | RemedyKind::System
            ) {
                continue;
            }
            progress(&format!("{}: does the command work with it", left[at].name));
            let mut works = 0;
            while works < TRIALS {
                match self.once(&self.beside(&left[at]))? {
                    Some(Ok(_)) => works += 1,
                    Some(Err(_)) => break,
                    None => return Ok(()),
                }
            }
            if works == TRIALS {
                let remedy = left.remove(at);
                self.kept.push(remedy.clone());
                let verdict = format!("kept: without it the command fails: {why}");
                self.tried.push(Tried {
                    remedy,
                    foretold: None,
                    ratio: None,
                    rounds: TRIALS as usize,
                    verdict,
                    kept: true,
                });
                self.tell_last();
                return Ok(());
            }
        }
        progress_over();
        anyhow::bail!("the command fails as it is: {why}")
    }

    /// The last comparison, as soon as it is made.
    fn tell_last(&self) {
        let Some(tried) = self.tried.last() else { return };
        if self.args.rows.format() == Format::Text && std::io::stderr().is_terminal() {
            progress_over();
            say!("{}: {}", tried.remedy.name, tried.verdict);
        }
    }

    /// What is kept, and this one; of its kind it alone, but for libraries.
    fn beside(&self, remedy: &Remedy) -> Vec<Remedy> {
        let mut chosen = self.kept.clone();
        chosen.retain(|k| k.kind != remedy.kind || remedy.kind == RemedyKind::Library);
        chosen.push(remedy.clone());
        chosen
    }

    fn argv(&self, chosen: &[Remedy]) -> Vec<OsString> {
        let remedies: Vec<&Remedy> = chosen.iter().collect();
        fix::applied(&self.args.command, &remedies, &self.ncpu).0
    }

    /// Peels the command as it stands, where that can be.
    fn peel(&mut self) {
        if self.args.no_peel {
            return;
        }
        progress("peeling");
        let chosen = self.kept.clone();
        let argv = self.argv(&chosen);
        let spot = Spot { n: 1, cpus: None, oversubscribed: false, argv };
        let remedies: Vec<&Remedy> = chosen.iter().collect();
        let peeled = fix::set(&mut self.journal, &remedies, &mut self.set)
            .map_err(anyhow::Error::from)
            .and_then(|()| peel::observe(&spot, self.stop));
        let restored = fix::restore(&mut self.journal, &mut self.set);
        let layers = match (peeled, restored) {
            (Ok(Some((_, recording))), Ok(())) => Onion::peel(&recording).map_err(|e| e.to_string()),
            (Ok(None), _) => return,
            (Err(e), _) => Err(format!("{e:#}")),
            (_, Err(e)) => Err(e.to_string()),
        };
        match layers {
            Ok(onion) => {
                // Advice is to be typed, and so is ncpu's own name in it.
                let own = self.ncpu.to_string_lossy().into_owned();
                let rows = onion.rows.iter();
                let row = |r: &ncpu_report::onion::Row| {
                    (r.layer.name().to_string(), r.share, r.advice.replace(&own, "ncpu"))
                };
                self.onions.push(rows.map(row).collect());
            }
            Err(why) => {
                say!("ncpu fix: not peeled, so remedies are tried in no order: {}", undo::shown(&why, 200));
            }
        }
    }

    /// One run; its throughput, or why it has none. `None` where it was stopped.
    fn once(&mut self, chosen: &[Remedy]) -> anyhow::Result<Option<Result<f64, String>>> {
        let argv = self.argv(chosen);
        let remedies: Vec<&Remedy> = chosen.iter().collect();
        let set = fix::set(&mut self.journal, &remedies, &mut self.set);
        let ran = match set {
            Ok(()) => Held::new(&argv, None)?.run(self.stop),
            Err(e) => {
                fix::restore(&mut self.journal, &mut self.set)?;
                return Ok(Some(Err(e.to_string())));
            }
        };
        fix::restore(&mut self.journal, &mut self.set)?;
        Ok(ran?.map(|done| self.measure.of(&done)))
    }

    /// Compares the command with some remedies and with others; the verdict is `kept` or why not.
    fn compare(
        &mut self,
        before: &[Remedy],
        after: &[Remedy],
        name: &str,
    ) -> anyhow::Result<(Option<Ratio>, usize, String)> {
        let mut pairs: Vec<(f64, f64)> = Vec::new();
        let least = 1.0 + self.args.least / 100.0;
        for round in 0..self.args.rounds {
            progress(&format!("{name}: round {} of {}", round + 1, self.args.rounds));
            let mut pair = [0.0; 2];
            let mut order = [false, true];
            fastrand::shuffle(&mut order);
            for with in order {
                match self.once(if with { after } else { before })? {
                    None => return Ok((Ratio::of_pairs(&pairs), pairs.len(), "stopped".into())),
                    Some(Ok(x)) => pair[usize::from(with)] = x,
                    Some(Err(why)) if with => {
                        let why = undo::shown(&why, 200);
                        return Ok((None, pairs.len(), format!("the command fails with it: {why}")));
                    }
                    Some(Err(why)) => anyhow::bail!("the command fails as it is: {}", undo::shown(&why, 300)),
                }
            }
            pairs.push((pair[0], pair[1]));
            // Four rounds in a row without the least gain are not outweighed by those that are left.
            if pairs.len() >= 4 && pairs.iter().all(|(a, b)| b / a < least) {
                break;
            }
        }
        let ratio = Ratio::of_pairs(&pairs);
        let verdict = match ratio {
            None => "no figure".to_string(),
            Some(r) if r.interval.is_some_and(|i| i.0 > 1.0) && r.value >= least => KEPT.into(),
            Some(r) if r.interval.is_some_and(|i| i.1 < 1.0) => "slower".into(),
            Some(r) if r.value >= least => "not beyond noise".into(),
            Some(_) => "no gain".into(),
        };
        Ok((ratio, pairs.len(), verdict))
    }
}

/// What the onion has in the layers of a remedy; of user code, `of_user_code` of it.
fn called(layers: &Layers, remedy: &Remedy, of_user_code: f64) -> f64 {
    let share = |(name, share, _): &(String, f64, String)| match name.as_str() {
        _ if !remedy.layers.contains(&name.as_str()) => 0.0,
        "user code" => of_user_code * share,
        _ => *share,
    };
    layers.iter().map(share).sum()
}

/// What a remedy could give: throughput over that without, if all that the onion has of its layers came back. How much of
/// user code waits for memory the onion cannot tell, so that layer calls for a remedy and foretells nothing.
fn foretold(layers: &Layers, remedy: &Remedy) -> Option<f64> {
    let back = called(layers, remedy, 0.0);
    (back > 0.0 && back < 1.0).then(|| 1.0 / (1.0 - back))
}

fn path_table(tried: &[Tried]) -> Table {
    let x = |name: &str, meaning: &str| Column::float(name, Unit::None, Kind::Gauge, meaning);
    let columns = [
        Column::text("remedy", "what was tried, beside what was kept before"),
        x(
            "foretold",
            "throughput over that without, if all that the onion has of its layers came back; user code is not counted",
        ),
        x("x", "median of the rounds' throughput over that without"),
        x("low", "lower end of its 95 % interval"),
        x("high", "upper end of its 95 % interval"),
        Column::count("rounds", "rounds that were measured"),
        Column::text("verdict", "kept, or why not"),
    ];
    let mut table = Table::builder("path", &columns);
    for t in tried {
        table
            .row()
            .text(&t.remedy.name)
            .float_opt(t.foretold)
            .float_opt(t.ratio.map(|r| r.value))
            .float_opt(t.ratio.and_then(|r| r.interval).map(|i| i.0))
            .float_opt(t.ratio.and_then(|r| r.interval).map(|i| i.1))
            .int(t.rounds as u64)
            .text(&t.verdict);
    }
    table.finish()
}

fn onions_table(onions: &[Layers]) -> Table {
    let columns = [
        Column::count("step", "remedies kept before"),
        Column::text("layer", "layer of the onion"),
        Column::float("share", Unit::Percent, Kind::Gauge, "share of capacity in it"),
        Column::text("advice", "what takes it away"),
    ];
    let mut table = Table::builder("onions", &columns);
    for (step, layers) in onions.iter().enumerate() {
        for (name, share, advice) in layers {
            table.row().int(step as u64).text(name).float(100.0 * share).text(advice);
        }
    }
    table.finish()
}

fn report(
    args: &FixArgs,
    kept: &[Remedy],
    tried: &[Tried],
    onions: &[Layers],
    all: Option<Ratio>,
) -> anyhow::Result<()> {
    let chosen: Vec<&Remedy> = kept.iter().collect();
    let (_, typed) = fix::applied(&args.command, &chosen, "ncpu".as_ref());
    if let Some(file) = &args.systemd {
        std::fs::write(file, format!("[Service]\nExecStart=\nExecStart={typed}\n"))
            .with_context(|| format!("writing {}", file.display()))?;
        say!("ncpu: wrote {}", file.display());
    }
    if args.table.is_some() || args.rows.format() != Format::Text {
        let table = match args.table.as_deref() {
            Some("onions") => onions_table(onions),
            Some("remedies") => remedies_table(kept),
            _ => path_table(tried),
        };
        let mut printer = args.rows.printer()?;
        printer.table(&args.rows.select().apply(table)?)?;
        return Ok(printer.finish()?);
    }
    let mut out = String::new();
    let onion = |layers: &Layers| {
        let mut sorted: Vec<_> = layers.iter().filter(|l| l.1 >= 0.01).collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let words: Vec<String> =
            sorted.iter().take(5).map(|(name, share, _)| format!("{name} {:.0} %", 100.0 * share)).collect();
        words.join(", ")
    };
    if let Some(first) = onions.first() {
        out.push_str(&format!("onion: {}\n\n", onion(first)));
    }
    let table = args.rows.select().apply(path_table(tried))?;
    out.push_str(&ncpu_table::render_text(&table, text_width()));
    out.push('\n');
    let helped: Vec<&Tried> = tried.iter().filter(|t| t.kept).collect();
    if helped.is_empty() {
        out.push_str("Nothing helps that needs no change of the program.\n");
    } else {
        let gain = match all {
            Some(Ratio { value, interval: Some((low, high)) }) => {
                format!("x{value:.2} ({low:.2} to {high:.2})")
            }
            Some(all) => format!("x{:.2}", all.value),
            None => "It works".into(),
        };
        let said = format!("{gain} by:");
        out.push_str(&format!("{said}\n  {}\n", undo::shown(&typed, 4000)));
        for (path, value) in kept.iter().flat_map(|r| &r.settings) {
            let file = undo::shown(&path.display().to_string(), 400);
            out.push_str(&format!("  with {value} in {file} (put back now)\n"));
        }
    }
    if let Some(last) = onions.last() {
        if onions.len() > 1 {
            out.push_str(&format!("onion after it: {}\n", onion(last)));
        }
        let mut rest: Vec<_> = last.iter().filter(|l| l.1 >= 0.02 && l.1 < 1.0 && !l.2.is_empty()).collect();
        rest.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (name, share, advice) in rest.into_iter().take(3) {
            out.push_str(&format!(
                "a change of the program could give x{:.2} ({name}): {advice}\n",
                1.0 / (1.0 - share)
            ));
        }
    }
    crate::out::put(&out)
}
