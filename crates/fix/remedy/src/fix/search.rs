//! The search of `ncpu fix`: compares the command with and without each remedy, in the order that the onion calls for,
//! and keeps the remedies that help. A [`Bench`] runs the commands, so that the search can be tested without running
//! any.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ncpu_measure::compare::Ratio;
use ncpu_schema::Layer;
use ncpu_table::safe;

use super::{Kind, Remedy, applied, inapplicable, restore, set};
use crate::Error;
use crate::journal::{Id, Journal};
use crate::program::{self, Program};

/// Runs commands and observes them.
pub trait Bench {
    /// Why nothing can be run, or the search fails.
    type Error: From<Error>;

    /// Runs a command to its end, or for `most`. `first` is true before anything was compared.
    ///
    /// # Errors
    /// It cannot be run at all.
    fn run(&mut self, argv: &[OsString], most: Duration, first: bool) -> Result<Once, Self::Error>;

    /// Seconds and resident set of a command that does nothing; `None` where it failed.
    ///
    /// # Errors
    /// It cannot be run at all.
    fn time(&mut self, argv: &[OsString], most: Duration) -> Result<Option<(f64, u64)>, Self::Error>;

    /// The layers of one observed run; `None` where it was stopped.
    ///
    /// # Errors
    /// It cannot be observed, and why.
    fn peel(&mut self, argv: &[OsString]) -> Result<Option<Layers>, String>;

    /// Remedies for limits that were reached, or nearly.
    fn limits(&mut self) -> Vec<Remedy>;

    /// Whether the user has ended the search.
    fn is_stopped(&self) -> bool;

    /// Shows progress; empty words end it.
    fn progress(&mut self, words: &str);

    /// A comparison was made.
    fn tried(&mut self, tried: &Tried);

    /// Tells the user.
    fn say(&mut self, words: &str);
}

/// Options of a search.
#[derive(Clone, Debug)]
pub struct Options {
    /// The command.
    pub command: Vec<OsString>,
    /// The file of `ncpu` itself.
    pub ncpu: OsString,
    /// Rounds of each comparison.
    pub rounds: u32,
    /// The least gain of a remedy that is kept, per cent.
    pub least: f64,
    /// No comparison begins later than this.
    pub length: Duration,
    /// The throughput is one that the command prints, and not one over its time.
    pub has_metric: bool,
    /// Observe the command.
    pub peel: bool,
}

/// One run of the command.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Units of work a second.
    pub throughput: f64,
    /// Seconds.
    pub elapsed: f64,
    /// CPU seconds of the command and of what it has waited for.
    pub cpu: f64,
    /// Largest resident set of a process, bytes.
    pub rss: u64,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Once {
    /// By itself.
    Ran(Run),
    /// By itself, without a figure.
    Failed(String),
    /// By the user.
    Stopped,
    /// It took too long.
    Late,
}

/// A layer of an onion, with its share and advice.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The layer.
    pub layer: Layer,
    /// Its share of the capacity, 0–1.
    pub share: f64,
    /// The advice to take it away.
    pub advice: String,
    /// Of that, the changes of the program.
    pub of_the_program: String,
}

/// An onion.
pub type Layers = Vec<Part>;

/// A remedy and what came of it.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The remedy.
    pub remedy: Remedy,
    /// Throughput over that without, if all that the onion has of the remedy's layers came back.
    pub foretold: Option<f64>,
    /// The measured ratio.
    pub ratio: Option<Ratio>,
    /// Rounds that were measured.
    pub rounds: usize,
    /// `kept`, or why not.
    pub verdict: String,
    /// Whether it was kept.
    pub kept: bool,
    /// Why there was no comparison.
    pub untried: Option<Untried>,
    /// Largest resident set of a process without the remedy and with it, bytes.
    pub rss: Option<(u64, u64)>,
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
pub enum Untried {
    /// The time is up.
    Late,
    /// The user ended the search.
    Stopped,
    /// It can do nothing for this program.
    Inapplicable(String),
}

impl Untried {
    /// For a sentence.
    pub fn words(&self) -> &str {
        match self {
            Untried::Late => "time is up (--for)",
            Untried::Stopped => "stopped",
            Untried::Inapplicable(why) => why,
        }
    }
}

/// Time and memory of remedies before the command begins, measured by a command that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Seconds.
    pub seconds: f64,
    /// Resident set, bytes.
    pub rss: u64,
}

impl Start {
    /// The resident set of a command, if it is more than that of the start.
    fn above(&self, rss: f64) -> Option<u64> {
        (rss > 1.1 * self.rss as f64).then_some(rss as u64)
    }
}

/// Results of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// The remedies that help.
    pub kept: Vec<Remedy>,
    /// All comparisons, in their order.
    pub tried: Vec<Tried>,
    /// The onion at first and after each remedy that was kept.
    pub onions: Vec<Layers>,
    /// The gain of all kept remedies together.
    pub all: Option<Ratio>,
    /// The start of remedies themselves, by the names of those that are applied.
    pub starts: HashMap<String, Start>,
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
/// A run may take this many times the longest of the first ones.
const MUCH_LONGER: u32 = 10;
/// CPU seconds, and the factor, by which a first run stands out of the later ones.
const MORE_AT_FIRST: (f64, f64) = (0.1, 3.0);
/// How much of user code is taken to wait for memory when remedies are put in order: more than other programs spend so would
/// put what may help before what will.
const USER_CODE_FOR_MEMORY: f64 = 0.25;

/// Searches among remedies, which are put back before this returns. Results from before an error are in `found`.
///
/// # Errors
/// The command fails as it is, does not repeat its work, or the journal cannot be kept.
pub fn search<B: Bench>(
    bench: &mut B,
    journal: &mut Journal,
    options: &Options,
    remedies: Vec<Remedy>,
    found: &mut Found,
) -> Result<(), B::Error> {
    let begin = Instant::now();
    Search { bench, journal, options, found, begin, set: Vec::new(), most: Duration::MAX }.go(remedies)
}

fn refused<E: From<Error>>(why: String) -> E {
    Error::Refused(why).into()
}

struct Search<'a, B> {
    bench: &'a mut B,
    journal: &'a mut Journal,
    options: &'a Options,
    found: &'a mut Found,
    begin: Instant,
    set: Vec<(Id, PathBuf)>,
    /// How long a run may take.
    most: Duration,
}

impl<B: Bench> Search<'_, B> {
    /// Runs the command as it is, a few times; why it fails, if so. `None` where it was stopped.
    fn first_runs(&mut self) -> Result<Option<Option<String>>, B::Error> {
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..TRIALS {
            self.most = self.options.length.saturating_sub(self.begin.elapsed());
            match self.once(&[])? {
                Once::Stopped => return Ok(None),
                Once::Failed(why) => return Ok(Some(Some(why))),
                Once::Ran(run) => runs.push(run),
                Once::Late if runs.is_empty() => {
                    return Err(refused(format!(
                        "the command did not end within {} s (--for) and was ended: give a command that ends, such as a \
                         load generator with its server, or more time",
                        self.options.length.as_secs_f64()
                    )));
                }
                Once::Late => break,
            }
        }
        let longest = runs.iter().map(|r| r.elapsed).fold(0.0, f64::max);
        self.most = (MUCH_LONGER * Duration::from_secs_f64(longest)).max(Duration::from_secs(10));
        // With a metric, the work of a run may change if the figure is of the same work.
        if !self.options.has_metric
            && let Some((first, later)) = more_at_first(&runs)
        {
            return Err(refused(format!(
                "the command does not repeat its work: {first:.3} CPU-seconds in its first run, {later:.3} in the next: \
                 nothing can be compared; make it begin anew each time, as in `sh -c 'make clean; make -j{{n}}'`"
            )));
        }
        Ok(Some(None))
    }

    /// Notes that nothing more is compared.
    fn give_up(&mut self, left: Vec<Remedy>, why: &Untried) {
        self.found
            .tried
            .extend(left.into_iter().map(|remedy| Tried::without_comparison(remedy, why.clone())));
    }

    /// Takes out remedies that can do nothing for the program.
    fn sort_out(&mut self, left: &mut Vec<Remedy>) {
        let path = std::env::var_os("PATH");
        let Some(name) = self.options.command.first() else { return };
        let program =
            program::find(name, path.as_deref()).and_then(|file| Program::look(&file, path.as_deref()));
        // Where it cannot be looked at, running it says why.
        let Ok(program) = program else { return };
        for remedy in std::mem::take(left) {
            match inapplicable(&remedy, &program) {
                Some(why) => {
                    let why = format!("{} {why}", program.loaded.display());
                    self.found.tried.push(Tried::without_comparison(remedy, Untried::Inapplicable(why)));
                }
                None => left.push(remedy),
            }
        }
    }

    fn go(&mut self, mut left: Vec<Remedy>) -> Result<(), B::Error> {
        self.sort_out(&mut left);
        // A command that fails now and then is to be mended before anything is compared.
        let Some(failed) = self.first_runs()? else {
            self.give_up(left, &Untried::Stopped);
            return Ok(());
        };
        // It has run: what it ran into can be seen.
        left.extend(self.bench.limits());
        if let Some(why) = failed {
            self.mend(&mut left, &why)?;
        }
        self.peel();
        while !left.is_empty() {
            let over = match (self.bench.is_stopped(), self.begin.elapsed() >= self.options.length) {
                (true, _) => Some(Untried::Stopped),
                (_, true) => Some(Untried::Late),
                _ => None,
            };
            if let Some(why) = over {
                self.give_up(std::mem::take(&mut left), &why);
                break;
            }
            let layers = self.found.onions.last().cloned().unwrap_or_default();
            let remedy = left.remove(next(&left, &layers));
            let foretold = foretold(&layers, &remedy);
            let chosen = self.beside(&remedy);
            let mut compared = self.compare(&self.found.kept.clone(), &chosen, &remedy.name)?;
            // Of a dozen remedies that do nothing, one seems to help by chance now and then. It does so seldom twice, and
            // the second figure is not one that was picked for being large.
            if compared.verdict == KEPT {
                let again =
                    self.compare(&self.found.kept.clone(), &chosen, &format!("{}, again", remedy.name))?;
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
                self.found.kept = chosen;
            }
            let untried = stopped.then_some(Untried::Stopped);
            self.found.tried.push(Tried { remedy, foretold, ratio, rounds, verdict, kept, untried, rss });
            self.tell_last();
            if kept {
                self.peel();
            }
        }
        // The product of the steps' gains is not the gain of all.
        if self.found.tried.iter().any(|t| t.kept)
            && self.found.tried.iter().all(|t| !t.kept || t.ratio.is_some())
        {
            self.found.all = self.compare(&[], &self.found.kept.clone(), "all that helped")?.ratio;
        }
        self.bench.progress("");
        Ok(())
    }

    /// The command fails as it is: takes the first remedy with which it works three times in a row.
    fn mend(&mut self, left: &mut Vec<Remedy>, why: &str) -> Result<(), B::Error> {
        let why = safe::cut(why, 300);
        for at in 0..left.len() {
            // Speed does not matter here; these kinds change the behaviour of a program.
            if !matches!(left[at].kind, Kind::Library | Kind::Allocator | Kind::Limits | Kind::System) {
                continue;
            }
            self.bench.progress(&format!("{}: does the command work with it", left[at].name));
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
                self.found.kept.push(remedy.clone());
                let verdict = format!("kept: without it the command fails: {why}");
                self.found.tried.push(Tried {
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
        self.bench.progress("");
        Err(refused(format!("the command fails as it is: {why}")))
    }

    /// The last comparison, as soon as it is made.
    fn tell_last(&mut self) {
        if let Some(tried) = self.found.tried.last() {
            self.bench.tried(tried);
        }
    }

    /// The kept remedies, and this one; it replaces others of its kind, except libraries.
    fn beside(&self, remedy: &Remedy) -> Vec<Remedy> {
        let mut chosen = self.found.kept.clone();
        chosen.retain(|k| k.kind != remedy.kind || remedy.kind == Kind::Library);
        chosen.push(remedy.clone());
        chosen
    }

    fn argv(&self, chosen: &[Remedy]) -> Vec<OsString> {
        let remedies: Vec<&Remedy> = chosen.iter().collect();
        applied(&self.options.command, &remedies, &self.options.ncpu).0
    }

    /// Peels the command as it stands, where that can be.
    fn peel(&mut self) {
        if !self.options.peel {
            return;
        }
        self.bench.progress("peeling");
        let chosen = self.found.kept.clone();
        let argv = self.argv(&chosen);
        let remedies: Vec<&Remedy> = chosen.iter().collect();
        let peeled = match set(self.journal, &remedies, &mut self.set) {
            Ok(()) => self.bench.peel(&argv),
            Err(e) => Err(e.to_string()),
        };
        let restored = restore(self.journal, &mut self.set).map_err(|e| e.to_string());
        match peeled.and_then(|layers| restored.map(|()| layers)) {
            Ok(layers) => self.found.onions.extend(layers),
            Err(why) => {
                let why = safe::cut(&why, 200);
                self.bench.say(&format!("ncpu fix: not peeled, so remedies are tried in no order: {why}"));
            }
        }
    }

    /// One run.
    fn once(&mut self, chosen: &[Remedy]) -> Result<Once, B::Error> {
        let argv = self.argv(chosen);
        self.run(chosen, &argv)
    }

    fn run(&mut self, chosen: &[Remedy], argv: &[OsString]) -> Result<Once, B::Error> {
        let remedies: Vec<&Remedy> = chosen.iter().collect();
        if let Err(e) = set(self.journal, &remedies, &mut self.set) {
            restore(self.journal, &mut self.set)?;
            return Ok(Once::Failed(e.to_string()));
        }
        let first = self.found.tried.iter().all(|t| t.untried.is_some()) && self.found.onions.is_empty();
        let ran = self.bench.run(argv, self.most, first);
        restore(self.journal, &mut self.set)?;
        ran
    }

    /// Time and memory of remedies before the command begins, measured with `true`; they do not matter for a command
    /// that runs long.
    fn start_of(&mut self, chosen: &[Remedy]) -> Result<Start, B::Error> {
        let names: Vec<&str> =
            chosen.iter().filter(|r| !r.prefix.is_empty()).map(|r| r.name.as_str()).collect();
        let name = names.join(", ");
        if let Some(&known) = self.found.starts.get(&name) {
            return Ok(known);
        }
        let idle = ["true".into()];
        let all: Vec<&Remedy> = chosen.iter().collect();
        let (with, _) = applied(&idle, &all, &self.options.ncpu);
        let mut times: [Vec<f64>; 2] = Default::default();
        let mut rss = 0;
        for _ in 0..STARTS {
            for (argv, times) in [&idle[..], &with[..]].into_iter().zip(&mut times) {
                if let Some((elapsed, size)) = self.bench.time(argv, self.most)? {
                    times.push(elapsed);
                    rss = size;
                }
            }
        }
        let [without, with] = times.map(|mut t| median(&mut t));
        let seconds = match (names.is_empty(), without.zip(with)) {
            (false, Some((without, with))) => (with - without).max(0.0),
            _ => 0.0,
        };
        let start = Start { seconds, rss };
        self.found.starts.insert(name, start);
        Ok(start)
    }

    /// Compares the command with some remedies and with others; the verdict is `kept` or why not.
    fn compare(&mut self, before: &[Remedy], after: &[Remedy], name: &str) -> Result<Compared, B::Error> {
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
        let least = 1.0 + self.options.least / 100.0;
        for round in 0..self.options.rounds {
            self.bench.progress(&format!("{name}: round {} of {}", round + 1, self.options.rounds));
            let mut pair = [0.0; 2];
            let mut order = [false, true];
            fastrand::shuffle(&mut order);
            for with in order {
                let side = usize::from(with);
                match self.once(if with { after } else { before })? {
                    Once::Stopped => return Ok(without_figure("stopped".into(), &pairs, true)),
                    Once::Ran(run) => {
                        let start = starts[side].seconds;
                        // The rest of such a run is mostly the error of the start.
                        if !self.options.has_metric && run.elapsed < 1.25 * start {
                            let verdict = format!(
                                "too short to compare: ncpu's own start takes {:.0} ms, the run {:.0} ms",
                                1e3 * start,
                                1e3 * run.elapsed
                            );
                            return Ok(without_figure(verdict, &pairs, false));
                        }
                        pair[side] = match self.options.has_metric {
                            false => 1.0 / (run.elapsed - start),
                            true => run.throughput,
                        };
                        sizes[side].push(run.rss as f64);
                    }
                    Once::Failed(why) if with => {
                        let verdict = format!("the command fails with it: {}", safe::cut(&why, 200));
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
                        let why = safe::cut(&why, 300);
                        return Err(refused(format!("the command fails as it is: {why}")));
                    }
                    Once::Late => {
                        return Err(refused(format!(
                            "the command as it is did not end within {:.0} s, {MUCH_LONGER} times what its first runs took",
                            self.most.as_secs_f64()
                        )));
                    }
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
            Some(r) if r.gains(self.options.least) => KEPT.into(),
            // At least as large as a gain must be: by the interval alone 5 % of remedies without any effect are slower or faster.
            Some(r) if r.interval.is_some_and(|i| i.1 < 1.0) && r.value <= 1.0 / least => "slower".into(),
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
    let workers = |r: &Remedy| r.kind == Kind::Workers;
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

/// The share of the remedy's layers in the onion; of user code, the part `of_user_code`.
fn called(layers: &Layers, remedy: &Remedy, of_user_code: f64) -> f64 {
    let share = |part: &Part| match part.layer {
        layer if !remedy.layers.contains(&layer) => 0.0,
        Layer::User => of_user_code * part.share,
        _ => part.share,
    };
    layers.iter().map(share).sum()
}

/// The possible gain of a remedy: throughput over that without it, if its layers in the onion came back whole. The
/// onion does not show how much of user code waits for memory, so that layer calls for a remedy and predicts nothing.
fn foretold(layers: &Layers, remedy: &Remedy) -> Option<f64> {
    let back = called(layers, remedy, 0.0);
    (back > 0.0 && back < 1.0).then(|| 1.0 / (1.0 - back))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;

    fn run(cpu: f64) -> Run {
        Run { throughput: 1.0, elapsed: 1.0, cpu, rss: 1 << 30 }
    }

    fn remedy(name: &str, kind: Kind, layers: &'static [Layer]) -> Remedy {
        Remedy {
            name: name.into(),
            about: String::new(),
            kind,
            layers,
            prefix: vec!["env".into(), format!("{name}=1").into()],
            workers: None,
            settings: Vec::new(),
        }
    }

    /// A command with a gain for each remedy, and layers that remedies take away. Times repeat with a spread of 1 %.
    struct Made {
        gains: Vec<(&'static str, f64)>,
        needs: Option<&'static str>,
        runs: u64,
        most: u64,
        said: Vec<String>,
    }

    impl Made {
        fn new(gains: &[(&'static str, f64)]) -> Made {
            Made { gains: gains.to_vec(), needs: None, runs: 0, most: u64::MAX, said: Vec::new() }
        }

        fn has(argv: &[OsString], name: &str) -> bool {
            argv.iter().any(|word| word.to_string_lossy() == format!("{name}=1"))
        }
    }

    impl Bench for Made {
        type Error = Error;

        fn run(&mut self, argv: &[OsString], _: Duration, _: bool) -> Result<Once> {
            self.runs += 1;
            if self.is_stopped() {
                return Ok(Once::Stopped);
            }
            if self.needs.is_some_and(|needed| !Made::has(argv, needed)) {
                return Ok(Once::Failed("exit status 1".into()));
            }
            let gain: f64 =
                self.gains.iter().filter(|(name, _)| Made::has(argv, name)).map(|(_, x)| x).product();
            // 0, 1 and -1 per cent in turn, whatever the order of the two sides.
            let noise = 1.0 + 0.01 * ((self.runs % 3) as f64 - 1.0);
            let elapsed = noise / gain;
            Ok(Once::Ran(Run { throughput: 1.0 / elapsed, elapsed, ..run(1.0) }))
        }

        fn time(&mut self, _: &[OsString], _: Duration) -> Result<Option<(f64, u64)>> {
            Ok(Some((0.001, 1 << 20)))
        }

        fn peel(&mut self, _: &[OsString]) -> Result<Option<Layers>, String> {
            let part =
                |layer, share| Part { layer, share, advice: String::new(), of_the_program: String::new() };
            Ok(Some(vec![part(Layer::Faults, 0.4), part(Layer::Calls, 0.1)]))
        }

        fn limits(&mut self) -> Vec<Remedy> {
            Vec::new()
        }

        fn is_stopped(&self) -> bool {
            self.runs > self.most
        }

        fn progress(&mut self, _: &str) {}

        fn tried(&mut self, tried: &Tried) {
            self.said.push(tried.remedy.name.clone());
        }

        fn say(&mut self, words: &str) {
            self.said.push(words.into());
        }
    }

    fn searched(made: &mut Made, remedies: &[Remedy]) -> (Result<()>, Found) {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(dir.path(), &[]).unwrap();
        let options = Options {
            command: vec!["/bin/true".into()],
            ncpu: "ncpu".into(),
            rounds: 12,
            least: 5.0,
            length: Duration::from_secs(60),
            has_metric: false,
            peel: true,
        };
        let mut found = Found::default();
        let result = search(made, &mut journal, &options, remedies.to_vec(), &mut found);
        journal.finish();
        (result, found)
    }

    fn three() -> [Remedy; 3] {
        [
            remedy("calls", Kind::Scheduling, &[Layer::Calls]),
            remedy("pages", Kind::Pages, &[Layer::Faults]),
            remedy("nothing", Kind::Placement, &[Layer::Idle]),
        ]
    }

    #[test]
    fn what_helps_is_kept_and_what_the_onion_calls_for_comes_first() {
        let mut made = Made::new(&[("calls", 0.5), ("pages", 2.0)]);
        let (result, found) = searched(&mut made, &three());
        result.unwrap();
        assert_eq!(made.said, ["pages", "calls", "nothing"]);
        assert_eq!(found.kept.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["pages"]);
        let verdicts: Vec<&str> = found.tried.iter().map(|t| t.verdict.as_str()).collect();
        assert_eq!(verdicts, ["kept", "slower", "no gain"]);
        assert!((found.tried[0].foretold.unwrap() - 1.0 / 0.6).abs() < 1e-9);
        // An onion at first and one after the remedy; the gain of all that was kept.
        assert_eq!(found.onions.len(), 2);
        assert!((found.all.unwrap().value - 2.0).abs() < 0.05, "{:?}", found.all);
    }

    #[test]
    fn a_command_that_fails_is_mended_first() {
        let mut made = Made { needs: Some("files"), ..Made::new(&[]) };
        let remedies = [three()[0].clone(), remedy("files", Kind::Limits, &[])];
        let (result, found) = searched(&mut made, &remedies);
        result.unwrap();
        assert_eq!(found.kept[0].name, "files");
        assert!(found.tried[0].verdict.starts_with("kept: without it the command fails: exit status 1"));
        // Without such a remedy nothing can be compared.
        let (result, found) = searched(&mut made, &remedies[..1]);
        assert!(result.unwrap_err().to_string().contains("the command fails as it is: exit status 1"));
        assert!(found.tried.is_empty());
    }

    #[test]
    fn what_the_user_stops_is_not_tried() {
        let mut made = Made { most: 10, ..Made::new(&[("pages", 2.0)]) };
        let (result, found) = searched(&mut made, &three());
        result.unwrap();
        assert!(found.kept.is_empty(), "{:?}", found.kept);
        assert!(found.tried.iter().all(|t| t.untried == Some(Untried::Stopped)), "{:?}", found.tried);
        assert_eq!(found.tried.len(), 3);
    }

    #[test]
    fn a_command_whose_work_is_done_is_known_by_its_first_run() {
        let runs = |cpu: &[f64]| cpu.iter().map(|&cpu| run(cpu)).collect::<Vec<Run>>();
        assert_eq!(more_at_first(&runs(&[2.57, 0.004, 0.004])), Some((2.57, 0.004)));
        // Cold caches, short commands, and a run that is not the first.
        for cpu in [&[1.3, 1.0, 1.0][..], &[0.05, 0.004, 0.004], &[1.0, 0.1, 1.0], &[1.0], &[]] {
            assert_eq!(more_at_first(&runs(cpu)), None, "{cpu:?}");
        }
    }

    #[test]
    fn workers_come_first_and_then_what_the_onion_calls_for() {
        let left = [
            remedy("a", Kind::Library, &[Layer::Calls]),
            remedy("b", Kind::Pages, &[Layer::Faults]),
            remedy("2 workers", Kind::Workers, &[Layer::Idle]),
            remedy("4 workers", Kind::Workers, &[Layer::Idle]),
        ];
        // A busy machine: nothing is idle.
        let layers = vec![Part {
            layer: Layer::Faults,
            share: 0.4,
            advice: String::new(),
            of_the_program: String::new(),
        }];
        assert_eq!(next(&left, &layers), 2);
        assert_eq!(next(&left[..2], &layers), 1);
        assert_eq!(next(&left[..2], &Vec::new()), 0);
    }
}
