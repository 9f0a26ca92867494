//! `ncpu fix`: peels a command, tries the remedies that need no change of it, and keeps those that help.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
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
use ncpu_remedy::journal::{self, Id, Journal, Undo};
use ncpu_remedy::preload::Places;
use ncpu_remedy::program::{self, Program};
use ncpu_report::onion::Onion;
use ncpu_table::{Column, Format, Kind, Table, Unit};

use crate::command::{Held, Ran};
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

    /// Begin no comparison after SECONDS; a first run that takes longer is ended
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 900.0, value_parser = crate::duration::seconds)]
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
    /// Why there was no comparison.
    untried: Option<Untried>,
    /// Largest resident set of a process without the remedy and with it, bytes.
    rss: Option<(u64, u64)>,
}

impl Tried {
    fn without_comparison(remedy: Remedy, why: Untried) -> Tried {
        let verdict = match &why {
            Untried::Inapplicable(why) => format!("not applicable: {why}"),
            why => format!("not tried: {}", why.words()),
        };
        Tried {
            remedy,
            foretold: None,
            ratio: None,
            rounds: 0,
            verdict,
            kept: false,
            untried: Some(why),
            rss: None,
        }
    }
}

/// Why a remedy was not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Untried {
    /// `--for` is over.
    Late,
    /// Ctrl-C.
    Stopped,
    /// It can do nothing for this program.
    Inapplicable(String),
}

impl Untried {
    fn words(&self) -> &str {
        match self {
            Untried::Late => "time is up (--for)",
            Untried::Stopped => "stopped",
            Untried::Inapplicable(why) => why,
        }
    }
}

/// One run of the command.
#[derive(Clone, Copy, Debug)]
struct Run {
    throughput: f64,
    elapsed: f64,
    /// CPU seconds of the command and of what it has waited for.
    cpu: f64,
    rss: u64,
}

/// What remedies take before the command begins, by a command that does nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    seconds: f64,
    rss: u64,
}

impl Start {
    /// The resident set of a command, if it is more than that of the start.
    fn above(&self, rss: f64) -> Option<u64> {
        (rss > 1.1 * self.rss as f64).then_some(rss as u64)
    }
}

/// A comparison.
struct Compared {
    ratio: Option<Ratio>,
    rounds: usize,
    verdict: String,
    stopped: bool,
    rss: Option<(u64, u64)>,
}

/// The verdict on a remedy that helps.
const KEPT: &str = "kept";
/// Runs after which a command, or a remedy for one that fails, is taken to work.
const TRIALS: u32 = 3;
/// Runs of `true` with and without a remedy, for the time that the remedy itself takes to start.
const STARTS: usize = 5;
/// A first run that takes longer is worth a line.
const LONG: Duration = Duration::from_secs(30);
/// A run may take so many times as long as the longest of the first ones.
const MUCH_LONGER: u32 = 10;
/// CPU seconds by which a first run stands out of the later ones, and how many times as much it then is.
const MORE_AT_FIRST: (f64, f64) = (0.1, 3.0);
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
        most: Duration::MAX,
        starts: HashMap::new(),
        token: format!("fix-{}-{:x}", std::process::id(), fastrand::u64(..)),
    };
    // Only if this command is killed: what a run leaves behind by itself is the user's own.
    let runs = search.journal.will(Undo::Marked { token: search.token.clone() })?;
    let result = search.go(remedies);
    let Search { mut journal, kept, tried, onions, all, ncpu, starts, .. } = search;
    let forgotten = journal.done(runs);
    undo::tell(&journal.finish(), false);
    result?;
    forgotten?;
    report(args, &Found { kept, tried, onions, all, starts }, &ncpu)?;
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
    /// How long a run may take.
    most: Duration,
    /// What remedies themselves take to start, by the names of those that are applied.
    starts: HashMap<String, Start>,
    /// What marks the processes of runs.
    token: String,
}

/// What came of one run.
enum Once {
    Ran(Run),
    Failed(String),
    Stopped,
    Late,
}

impl Search<'_> {
    /// Runs the command as it is, a few times; why it fails, if so. `None` where it was stopped.
    fn first_runs(&mut self) -> anyhow::Result<Option<Option<String>>> {
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..TRIALS {
            self.most = self.length.saturating_sub(self.begin.elapsed());
            match self.once(&[])? {
                Once::Stopped => return Ok(None),
                Once::Failed(why) => return Ok(Some(Some(why))),
                Once::Ran(run) => runs.push(run),
                Once::Late if runs.is_empty() => anyhow::bail!(
                    "the command did not end within {} s (--for) and was ended: give a command that ends, such as a load \
                     generator with its server, or more time",
                    self.args.length
                ),
                Once::Late => break,
            }
        }
        let longest = runs.iter().map(|r| r.elapsed).fold(0.0, f64::max);
        self.most = (MUCH_LONGER * Duration::from_secs_f64(longest)).max(Duration::from_secs(10));
        // With a metric, the work of a run may change as long as the figure is of the same.
        if self.args.metric.metric.is_none()
            && let Some((first, later)) = more_at_first(&runs)
        {
            anyhow::bail!(
                "the command does not repeat its work: {first:.3} CPU-seconds in its first run, {later:.3} in the next: \
                 nothing can be compared; make it begin anew each time, as in `sh -c 'make clean; make -j{{n}}'`"
            );
        }
        Ok(Some(None))
    }

    /// Notes that nothing more is compared.
    fn give_up(&mut self, left: Vec<Remedy>, why: &Untried) {
        self.tried.extend(left.into_iter().map(|remedy| Tried::without_comparison(remedy, why.clone())));
    }

    /// Takes out remedies that can do nothing for the program.
    fn sort_out(&mut self, left: &mut Vec<Remedy>) {
        let path = std::env::var_os("PATH");
        let program = program::find(&self.args.command[0], path.as_deref())
            .and_then(|file| Program::look(&file, path.as_deref()));
        // Where it cannot be looked at, running it says why.
        let Ok(program) = program else { return };
        for remedy in std::mem::take(left) {
            match fix::inapplicable(&remedy, &program) {
                Some(why) => {
                    let why = format!("{} {why}", program.loaded.display());
                    self.tried.push(Tried::without_comparison(remedy, Untried::Inapplicable(why)));
                }
                None => left.push(remedy),
            }
        }
    }

    fn go(&mut self, mut left: Vec<Remedy>) -> anyhow::Result<()> {
        self.sort_out(&mut left);
        // A command that fails now and then is to be mended before anything is compared.
        let Some(failed) = self.first_runs()? else {
            self.give_up(left, &Untried::Stopped);
            return Ok(());
        };
        // It has run: what it ran into can be seen.
        left.extend(self.limits_met());
        if let Some(why) = failed {
            self.mend(&mut left, &why)?;
        }
        self.peel();
        while !left.is_empty() {
            let over = match (self.stop.load(Ordering::Relaxed), self.begin.elapsed() >= self.length) {
                (true, _) => Some(Untried::Stopped),
                (_, true) => Some(Untried::Late),
                _ => None,
            };
            if let Some(why) = over {
                self.give_up(std::mem::take(&mut left), &why);
                break;
            }
            let layers = self.onions.last().cloned().unwrap_or_default();
            let remedy = left.remove(next(&left, &layers));
            let foretold = foretold(&layers, &remedy);
            let chosen = self.beside(&remedy);
            let mut compared = self.compare(&self.kept.clone(), &chosen, &remedy.name)?;
            // Of a dozen remedies that do nothing, one seems to help by chance now and then. It does so seldom twice, and
            // the second figure is not one that was picked for being large.
            if compared.verdict == KEPT {
                let again = self.compare(&self.kept.clone(), &chosen, &format!("{}, again", remedy.name))?;
                let rounds = compared.rounds + again.rounds;
                compared = Compared { rounds, ratio: again.ratio.or(compared.ratio), ..again };
                if compared.verdict != KEPT {
                    compared.verdict = format!("not found again: {}", compared.verdict);
                }
            }
            let Compared { ratio, rounds, verdict, stopped, rss } = compared;
            let kept = verdict == KEPT;
            if kept {
                // Another of the kind can still take its place, but only one that was not tried before it.
                self.kept = chosen;
            }
            let untried = stopped.then_some(Untried::Stopped);
            self.tried.push(Tried { remedy, foretold, ratio, rounds, verdict, kept, untried, rss });
            self.tell_last();
            if kept {
                self.peel();
            }
        }
        // The product of the steps' gains is not the gain of all.
        if self.tried.iter().any(|t| t.kept) && self.tried.iter().all(|t| !t.kept || t.ratio.is_some()) {
            self.all = self.compare(&[], &self.kept.clone(), "all that helped")?.ratio;
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
                    Once::Ran(_) => works += 1,
                    Once::Failed(_) | Once::Late => break,
                    Once::Stopped => return Ok(()),
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
                    untried: None,
                    rss: None,
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

    /// One run.
    fn once(&mut self, chosen: &[Remedy]) -> anyhow::Result<Once> {
        let argv = self.argv(chosen);
        self.run(chosen, &argv)
    }

    fn run(&mut self, chosen: &[Remedy], argv: &[OsString]) -> anyhow::Result<Once> {
        let remedies: Vec<&Remedy> = chosen.iter().collect();
        let set = fix::set(&mut self.journal, &remedies, &mut self.set);
        let ran = match set {
            Ok(()) => self.held(argv),
            Err(e) => {
                fix::restore(&mut self.journal, &mut self.set)?;
                return Ok(Once::Failed(e.to_string()));
            }
        };
        fix::restore(&mut self.journal, &mut self.set)?;
        Ok(match ran? {
            Ran::Stopped => Once::Stopped,
            Ran::Late => Once::Late,
            Ran::Done(done) => match self.measure.of(&done) {
                Ok(throughput) => Once::Ran(Run {
                    throughput,
                    elapsed: done.elapsed,
                    cpu: done.ended.user + done.ended.system,
                    rss: done.ended.max_rss,
                }),
                Err(why) => Once::Failed(why),
            },
        })
    }

    fn held(&self, argv: &[OsString]) -> anyhow::Result<Ran> {
        let mark = [("NCPU_RUN".into(), self.token.clone().into())];
        let mut said = false;
        let first = self.tried.iter().all(|t| t.untried.is_some()) && self.onions.is_empty();
        Held::with(argv, None, &mark)?.run_for(self.stop, self.most, &mut |time| {
            if first && !said && time >= LONG {
                said = true;
                say!(
                    "ncpu fix: the command has run for {} s; it is ended after {:.0} s if it does not end by itself",
                    LONG.as_secs(),
                    self.most.as_secs_f64()
                );
            }
        })
    }

    /// What remedies take before the command begins, which is no matter for one that runs long: what `true` takes with them.
    fn start_of(&mut self, chosen: &[Remedy]) -> anyhow::Result<Start> {
        let names: Vec<&str> =
            chosen.iter().filter(|r| !r.prefix.is_empty()).map(|r| r.name.as_str()).collect();
        let name = names.join(", ");
        if let Some(&known) = self.starts.get(&name) {
            return Ok(known);
        }
        let idle = ["true".into()];
        let all: Vec<&Remedy> = chosen.iter().collect();
        let (with, _) = fix::applied(&idle, &all, &self.ncpu);
        let mut times: [Vec<f64>; 2] = Default::default();
        let mut rss = 0;
        for _ in 0..STARTS {
            for (argv, times) in [&idle[..], &with[..]].into_iter().zip(&mut times) {
                if let Ran::Done(done) = self.held(argv)?
                    && done.ended.status == 0
                {
                    times.push(done.elapsed);
                    rss = done.ended.max_rss;
                }
            }
        }
        let [without, with] = times.map(|mut t| median(&mut t));
        let seconds = match (names.is_empty(), without.zip(with)) {
            (false, Some((without, with))) => (with - without).max(0.0),
            _ => 0.0,
        };
        let start = Start { seconds, rss };
        self.starts.insert(name, start);
        Ok(start)
    }

    /// Compares the command with some remedies and with others; the verdict is `kept` or why not.
    fn compare(&mut self, before: &[Remedy], after: &[Remedy], name: &str) -> anyhow::Result<Compared> {
        let mut pairs: Vec<(f64, f64)> = Vec::new();
        let mut sizes: [Vec<f64>; 2] = Default::default();
        let starts = [self.start_of(before)?, self.start_of(after)?];
        let without_figure = |verdict: String, pairs: &[(f64, f64)], stopped| Compared {
            ratio: if stopped { Ratio::of_pairs(pairs) } else { None },
            rounds: pairs.len(),
            verdict,
            stopped,
            rss: None,
        };
        let least = 1.0 + self.args.least / 100.0;
        for round in 0..self.args.rounds {
            progress(&format!("{name}: round {} of {}", round + 1, self.args.rounds));
            let mut pair = [0.0; 2];
            let mut order = [false, true];
            fastrand::shuffle(&mut order);
            for with in order {
                let side = usize::from(with);
                match self.once(if with { after } else { before })? {
                    Once::Stopped => return Ok(without_figure("stopped".into(), &pairs, true)),
                    Once::Ran(run) => {
                        let start = starts[side].seconds;
                        // What is left of such a run is mostly the error of the start.
                        if self.args.metric.metric.is_none() && run.elapsed < 1.25 * start {
                            let verdict = format!(
                                "too short to compare: ncpu's own start takes {:.0} ms, the run {:.0} ms",
                                1e3 * start,
                                1e3 * run.elapsed
                            );
                            return Ok(without_figure(verdict, &pairs, false));
                        }
                        pair[side] = match self.args.metric.metric {
                            None => 1.0 / (run.elapsed - start),
                            Some(_) => run.throughput,
                        };
                        sizes[side].push(run.rss as f64);
                    }
                    Once::Failed(why) if with => {
                        let verdict = format!("the command fails with it: {}", undo::shown(&why, 200));
                        return Ok(without_figure(verdict, &pairs, false));
                    }
                    Once::Late if with => {
                        let verdict = format!(
                            "with it the command did not end within {:.0} s",
                            self.most.as_secs_f64()
                        );
                        return Ok(without_figure(verdict, &pairs, false));
                    }
                    Once::Failed(why) => {
                        anyhow::bail!("the command fails as it is: {}", undo::shown(&why, 300))
                    }
                    Once::Late => anyhow::bail!(
                        "the command as it is did not end within {:.0} s, {MUCH_LONGER} times what its first runs took",
                        self.most.as_secs_f64()
                    ),
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
        let [without, with] = sizes.map(|mut s| median(&mut s));
        let above = |side: usize, size: Option<f64>| size.and_then(|size| starts[side].above(size));
        let rss = above(0, without).zip(above(1, with));
        Ok(Compared { ratio, rounds: pairs.len(), verdict, stopped: false, rss })
    }
}

/// The middle of some figures.
fn median(all: &mut [f64]) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// CPU seconds of the first run and the most of a later one, where the first did work that the later ones did not.
fn more_at_first(runs: &[Run]) -> Option<(f64, f64)> {
    let (first, later) = runs.split_first()?;
    let most = later.iter().map(|r| r.cpu).reduce(f64::max)?;
    let (beyond, times) = MORE_AT_FIRST;
    (first.cpu - most > beyond && first.cpu > times * most).then_some((first.cpu, most))
}

/// The place of the remedy to try next: the number of workers, which every other remedy depends on; then what the onion calls
/// for; of equal ones the catalogue's order.
fn next(left: &[Remedy], layers: &Layers) -> usize {
    let share = |r: &Remedy| called(layers, r, USER_CODE_FOR_MEMORY);
    let workers = |r: &Remedy| r.kind == RemedyKind::Workers;
    let of = |at: usize| &left[at];
    (0..left.len())
        .max_by(|&a, &b| {
            let shares = if workers(of(a)) {
                std::cmp::Ordering::Equal
            } else {
                share(of(a)).total_cmp(&share(of(b)))
            };
            workers(of(a)).cmp(&workers(of(b))).then(shares).then(b.cmp(&a))
        })
        .unwrap_or(0)
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
        Column::int("rss_before", Unit::Bytes, Kind::Gauge, "largest resident set of a process without it"),
        Column::int("rss", Unit::Bytes, Kind::Gauge, "largest resident set of a process with it"),
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
            .int_opt(t.rss.map(|r| r.0))
            .int_opt(t.rss.map(|r| r.1))
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

/// What the search has found.
struct Found {
    kept: Vec<Remedy>,
    tried: Vec<Tried>,
    onions: Vec<Layers>,
    all: Option<Ratio>,
    starts: HashMap<String, Start>,
}

/// Layers that are not the program's: no change of it takes them away.
const NOT_THE_PROGRAM: [&str; 3] = ["other programs", "steal", "ncpu itself"];

/// Commands that change how a program runs. `fix` has tried those that it can; others are no change of the program.
const COMMANDS: [&str; 8] = [
    "ncpu hugepages",
    "ncpu place",
    "ncpu partition",
    "ncpu preload",
    "renice",
    "chrt",
    "taskset",
    "without a change of it",
];

/// Of advice, what is a change of the program.
fn of_the_program(advice: &str) -> String {
    let kept: Vec<&str> =
        advice.split("; ").filter(|part| !COMMANDS.iter().any(|command| part.contains(command))).collect();
    kept.join("; ")
}

/// How many of the remedies were compared, where not all of them.
fn not_tried(tried: &[Tried]) -> Option<String> {
    let why = |t: &Tried| t.untried.clone().filter(|u| !matches!(u, Untried::Inapplicable(_)));
    let left: Vec<Untried> = tried.iter().filter_map(why).collect();
    let reason = left.last()?.words();
    Some(format!("{} of {} not tried: {reason}", left.len(), tried.len()))
}

/// The drop-in of a service.
fn drop_in(args: &FixArgs, kept: &[&Remedy], ncpu: &OsStr) -> anyhow::Result<String> {
    let argv = fix::absolute(&args.command, kept, ncpu).context("--systemd")?;
    let mut out = String::new();
    for (path, value) in kept.iter().flat_map(|r| &r.settings) {
        let file = undo::shown(&path.display().to_string(), 400);
        out.push_str(&format!(
            "# with {} in {file}, which is not set by this file\n",
            undo::shown(value, 100)
        ));
    }
    out.push_str(&format!("[Service]\nExecStart=\nExecStart={}\n", fix::exec_start(&argv)));
    Ok(out)
}

fn report(args: &FixArgs, found: &Found, ncpu: &OsStr) -> anyhow::Result<()> {
    let Found { kept, tried, onions, all, starts } = found;
    let chosen: Vec<&Remedy> = kept.iter().collect();
    let (_, typed) = fix::applied(&args.command, &chosen, "ncpu".as_ref());
    if let Some(file) = &args.systemd {
        std::fs::write(file, drop_in(args, &chosen, ncpu)?)
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
    let mut own: Vec<String> = starts
        .iter()
        .filter(|s| s.1.seconds >= 1e-3)
        .map(|(name, s)| format!("{name} {:.0} ms", 1e3 * s.seconds))
        .collect();
    if !own.is_empty() {
        own.sort();
        out.push_str(&format!("not counted, their own start: {}\n", own.join(", ")));
    }
    out.push('\n');
    let helped: Vec<&Tried> = tried.iter().filter(|t| t.kept).collect();
    let untried = not_tried(tried);
    if let Some(untried) = &untried {
        let rest = tried.iter().filter(|t| t.untried.is_none()).count();
        match (helped.is_empty(), rest) {
            (true, 0) => out.push_str(&format!("Nothing was compared: {untried}.\n")),
            (true, n) => out.push_str(&format!("None of the {n} that were tried helps; {untried}.\n")),
            (false, _) => out.push_str(&format!("{untried}.\n")),
        }
    } else if helped.is_empty() {
        out.push_str("Nothing helps that needs no change of the program.\n");
    }
    if !helped.is_empty() {
        let gain = match all {
            &Some(Ratio { value, interval: Some((low, high)) }) => {
                format!("x{value:.2} ({low:.2} to {high:.2})")
            }
            Some(all) => format!("x{:.2}", all.value),
            None => "It works".into(),
        };
        let mut sizes = helped.iter().filter_map(|t| t.rss);
        let memory = match (sizes.clone().next(), sizes.next_back()) {
            (Some((before, _)), Some((_, after))) if after > before + before / 10 => {
                format!(
                    ", for {} of memory instead of {} in its largest process",
                    ncpu_table::size::words(after),
                    ncpu_table::size::words(before)
                )
            }
            _ => String::new(),
        };
        let said = format!("{gain}{memory} by:");
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
        let mut rest: Vec<_> = last
            .iter()
            .filter(|l| l.1 >= 0.02 && l.1 < 1.0 && !NOT_THE_PROGRAM.contains(&l.0.as_str()))
            .map(|(name, share, advice)| (name, share, of_the_program(advice)))
            .filter(|l| !l.2.is_empty())
            .collect();
        rest.sort_by(|a, b| b.1.total_cmp(a.1));
        for (name, share, advice) in rest.into_iter().take(3) {
            out.push_str(&format!(
                "a change of the program could give x{:.2} ({name}): {advice}\n",
                1.0 / (1.0 - share)
            ));
        }
    }
    crate::out::put(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_whose_work_is_done_is_known_by_its_first_run() {
        let runs = |cpu: &[f64]| -> Vec<Run> {
            cpu.iter().map(|&cpu| Run { throughput: 1.0, elapsed: 1.0, cpu, rss: 0 }).collect()
        };
        assert_eq!(more_at_first(&runs(&[2.57, 0.004, 0.004])), Some((2.57, 0.004)));
        // Cold caches, short commands, and a run that is not the first.
        for cpu in [&[1.3, 1.0, 1.0][..], &[0.05, 0.004, 0.004], &[1.0, 0.1, 1.0], &[1.0], &[]] {
            assert_eq!(more_at_first(&runs(cpu)), None, "{cpu:?}");
        }
    }

    #[test]
    fn advice_is_a_change_of_the_program() {
        let advice = "touch less fresh memory, huge pages; without a change of it: `ncpu hugepages -- node`";
        assert_eq!(of_the_program(advice), "touch less fresh memory, huge pages");
        assert_eq!(of_the_program("`renice 5 -p 17`"), "");
        assert_eq!(of_the_program("batch; `ncpu lines` counts them"), "batch; `ncpu lines` counts them");
    }

    #[test]
    fn workers_come_first_and_then_what_the_onion_calls_for() {
        let remedy = |name: &str, kind, layers| Remedy {
            name: name.into(),
            about: String::new(),
            kind,
            layers,
            prefix: Vec::new(),
            workers: None,
            settings: Vec::new(),
        };
        let left = [
            remedy("a", RemedyKind::Library, &["system calls"]),
            remedy("b", RemedyKind::Pages, &["page faults and zeroing"]),
            remedy("2 workers", RemedyKind::Workers, &["idle"]),
            remedy("4 workers", RemedyKind::Workers, &["idle"]),
        ];
        // A busy machine: nothing is idle.
        let layers = vec![("page faults and zeroing".to_string(), 0.4, String::new())];
        assert_eq!(next(&left, &layers), 2);
        assert_eq!(next(&left[..2], &layers), 1);
        assert_eq!(next(&left[..2], &Vec::new()), 0);
    }

    #[test]
    fn what_was_not_tried_is_counted() {
        let tried = |untried: Option<Untried>| {
            let remedy = fix::lifted("x", "y", "/f".into(), "1".into());
            let mut tried = Tried::without_comparison(remedy, Untried::Late);
            tried.untried = untried;
            tried
        };
        let all = [None, Some(Untried::Late), Some(Untried::Late), Some(Untried::Inapplicable("z".into()))];
        let all: Vec<Tried> = all.into_iter().map(tried).collect();
        assert_eq!(not_tried(&all).unwrap(), "2 of 4 not tried: time is up (--for)");
        assert_eq!(not_tried(&all[..1]), None);
    }
}
