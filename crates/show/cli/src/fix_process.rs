//! `ncpu fix -p`: tries settings on a process that runs, judged by what it gets done.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_collectors::doses::Doses;
use ncpu_dose::search::{Bench, Order as Window, Went};
use ncpu_machine::Topology;
use ncpu_measure::compare::Ratio;
use ncpu_remedy::fix::{Allowed, wanted};
use ncpu_remedy::journal::Journal;
use ncpu_remedy::running::settings;
use ncpu_remedy::setting::{Setting, restore};
use ncpu_remedy::sys;
use ncpu_table::{Column, Format, Kind, Table, Unit, safe};

use crate::dose::subject::Subject;
use crate::dose::windows::Windows;
use crate::dose::{NOTHING_TO_COUNT, candidates, count_bins, speed_of};
use crate::out::{progress, progress_over};
use crate::table_args::TableArgs;
use crate::{stop, undo};

/// How a process is helped.
pub struct Order<'a> {
    /// The process.
    pub pid: u32,
    /// The counter that says what it gets done.
    pub metric_url: Option<&'a str>,
    /// Or the call or function.
    pub count: Option<&'a str>,
    /// Rounds of each comparison.
    pub rounds: u32,
    /// Per cent that a setting must give.
    pub least: f64,
    /// No comparison begins after this.
    pub length: Duration,
    /// Only settings with one of these words in their name.
    pub only: &'a [String],
    /// Settings beyond the process's own.
    pub allowed: Allowed,
    /// Whether what helps most stays.
    pub keep: bool,
    /// Whether nothing is tried.
    pub list: bool,
    /// How the table is printed.
    pub rows: &'a TableArgs,
}

/// Length of a part of a period, and parts: after each the harm of a setting is judged.
const PART: Duration = Duration::from_millis(250);
const PARTS: usize = 4;
/// Two parts in turn that are slower than each part without the setting, by this factor, are its harm.
const WORSE: f64 = 0.98;
/// Harm is seen by chance now and then: of several settings that do nothing, in one. The second time it is the setting's.
const STRIKES: u32 = 2;
/// Parts in a row that may give no figure.
const MOST_LOST: u32 = 8;

/// How the trial of a setting ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// All rounds were made.
    Whole,
    /// A signal came, or the process has ended.
    Stopped,
    /// It was undone at once.
    Worse,
    /// The kernel did not take it.
    Refused(String),
}

/// A setting that was tried, and the speeds without and with it, round by round.
struct Tried {
    setting: Setting,
    rounds: Vec<(f64, f64)>,
    end: End,
}

impl Tried {
    /// How many times as fast the process is with the setting.
    fn gain(&self) -> Option<Ratio> {
        Ratio::of_pairs(&self.rounds)
    }

    fn helps(&self, least: f64) -> bool {
        self.end == End::Whole && self.gain().is_some_and(|gain| gain.gains(least))
    }

    fn verdict(&self, least: f64, kept: bool) -> String {
        let interval = self.gain().and_then(|gain| gain.interval);
        match &self.end {
            End::Worse => "worse, undone at once".into(),
            End::Refused(why) => format!("refused: {why}"),
            End::Stopped => "stopped".into(),
            End::Whole if kept => "helps, kept".into(),
            End::Whole if self.helps(least) => "helps, undone".into(),
            End::Whole if interval.is_none() => "unknown".into(),
            End::Whole if interval.is_some_and(|(_, high)| high < 1.0) => "worse".into(),
            End::Whole => "no difference".into(),
        }
    }
}

/// Whether the last two parts with a setting are slower than each part without it.
fn is_worse(without: &[f64], with: &[f64]) -> bool {
    let least = without.iter().copied().reduce(f64::min);
    let slow = |speed: &f64| least.is_some_and(|least| *speed < WORSE * least);
    with.len() >= 2 && with[with.len() - 2..].iter().all(slow)
}

/// Measures speed, part by part.
trait Meter {
    /// Operations a second of the next part; `None` when it was stopped or the process has ended.
    fn part(&mut self) -> anyhow::Result<Option<f64>>;
}

impl Meter for Windows<'_> {
    fn part(&mut self) -> anyhow::Result<Option<f64>> {
        for _ in 0..MOST_LOST {
            match self.window(Window::Free)? {
                Went::Well(seen) => return Ok(Some(seen.speed)),
                Went::Over => return Ok(None),
                Went::Lost | Went::Refused(_) => {}
            }
        }
        let why = self.unread.take().unwrap_or_else(|| "the process gave no figure".into());
        anyhow::bail!("no speed in {MOST_LOST} parts: {why}")
    }
}

/// Runs the trials.
///
/// # Errors
/// There is no such process, its speed cannot be counted, or a setting cannot be undone.
pub fn run(order: &Order<'_>) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signals()?;
    let machine = Topology::read(Path::new("/"))?;
    let mut subject = Subject::process(order.pid, &stop)?;
    require!(
        !sys::tree_of(order.pid).contains(&std::process::id()),
        "process {} has started this ncpu, which would be changed with it",
        order.pid
    );
    let all = settings(Path::new("/"), order.pid, &machine, order.allowed)?;
    let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
    let all: Vec<Setting> = all.into_iter().filter(|one| wanted(order.only, &one.name)).collect();
    anyhow::ensure!(
        !all.is_empty() || order.only.is_empty(),
        "--try {}: no such setting; expected words of one of: {}",
        order.only.join(","),
        names.join(", ")
    );
    if order.list {
        order.rows.print(list(&all))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut doses = Doses::load(&subject.target())?;
    progress("a first look at the process");
    let bins = match order.metric_url.is_some() || order.count.is_some() {
        true => Vec::new(),
        false => match count_bins(&mut subject, &mut doses)? {
            Some(bins) => bins,
            None => return Ok(ExitCode::from(stop::status())),
        },
    };
    let files = candidates::code_of(order.pid);
    let chosen = speed_of(order.metric_url, order.count, &files, &bins)?.context(NOTHING_TO_COUNT)?;
    let cpu = sys::affinity(order.pid).context("its CPUs")?.iter().next().unwrap_or(0);
    let mut meter = Windows::new(doses, subject, chosen.speed, PART, None, cpu, &[], &stop);
    meter.count()?;
    let mut first = Vec::new();
    while first.len() < PARTS {
        let Some(speed) = meter.part()? else { return Ok(ExitCode::from(stop::status())) };
        first.push(speed);
    }
    progress_over();
    if order.rows.format() == Format::Text {
        let name = ncpu_machine::process::name(Path::new(&format!("/proc/{}", order.pid)));
        let name = name.unwrap_or_else(|| "process".into());
        let speed = first.iter().sum::<f64>() / PARTS as f64;
        let words = format!("{name} ({}): {speed:.0} {} a second", order.pid, chosen.words);
        crate::out::put(&format!("{}\n", safe::line(&words)))?;
    }
    anyhow::ensure!(
        first.iter().any(|speed| *speed > 0.0),
        "it gets nothing done by that count: give --metric-url, or --count"
    );
    let began = Instant::now();
    let (mut journal, _alone) = undo::begin_trials()?;
    let mut tried: Vec<Tried> = Vec::new();
    let mut left = 0;
    let mut result = Ok(None);
    for setting in all {
        if began.elapsed() >= order.length {
            left += 1;
            continue;
        }
        match compare(&mut meter, &stop, &mut journal, setting, order.rounds) {
            Ok(one) => {
                let stopped = one.end == End::Stopped;
                tried.push(one);
                if stopped {
                    break;
                }
            }
            Err(why) => {
                result = Err(why);
                break;
            }
        }
    }
    if result.is_ok() && order.keep && !stop.load(Ordering::Relaxed) {
        result = keep(&mut meter, &stop, &mut journal, &mut tried, order);
    }
    progress_over();
    undo::tell(&journal.finish(), false);
    order.rows.print(table(&tried, order.least, result?))?;
    if left > 0 {
        say!("ncpu fix: {left} not tried: time is up (--for)");
    }
    if !order.keep && tried.iter().any(|one| one.helps(order.least)) {
        say!("ncpu fix: all was undone; --keep leaves the setting that helps most");
    }
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(stop::status()) } else { ExitCode::SUCCESS })
}

/// Periods without and with a setting, in turn: which of both is first changes, so that what drifts is in both. The setting is undone
/// after each period, at once when it does harm, at each signal and before any error is reported.
fn compare(
    meter: &mut impl Meter,
    stop: &AtomicBool,
    journal: &mut Journal,
    setting: Setting,
    rounds: u32,
) -> anyhow::Result<Tried> {
    let mut tried = Tried { setting, rounds: Vec::new(), end: End::Whole };
    let mut without: Vec<f64> = Vec::new();
    let mut strikes = 0;
    for round in 0..rounds {
        progress(&format!("{}: round {} of {rounds}", tried.setting.name, round + 1));
        let mut both = [None; 2];
        for with in if round % 2 == 0 { [false, true] } else { [true, false] } {
            if stop.load(Ordering::Relaxed) {
                tried.end = End::Stopped;
                return Ok(tried);
            }
            let mut set = Vec::new();
            if with && let Err(why) = tried.setting.set(journal, &mut set) {
                restore(journal, &mut set)?;
                tried.end = End::Refused(why.to_string());
                return Ok(tried);
            }
            let parts = parts(meter, with.then_some(&without[..]));
            restore(journal, &mut set)?;
            let (parts, end) = parts?;
            match end {
                End::Whole => both[usize::from(with)] = Some(parts.iter().sum::<f64>() / parts.len() as f64),
                End::Worse => strikes += 1,
                End::Stopped | End::Refused(_) => {
                    tried.end = end;
                    return Ok(tried);
                }
            }
            if strikes == STRIKES {
                tried.end = End::Worse;
                return Ok(tried);
            }
            if !with {
                without.extend(parts);
            }
        }
        if let [Some(one), Some(other)] = both {
            tried.rounds.push((one, other));
        }
    }
    Ok(tried)
}

/// The parts of a period. With a setting it ends as soon as it does harm.
fn parts(meter: &mut impl Meter, without: Option<&[f64]>) -> anyhow::Result<(Vec<f64>, End)> {
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        let Some(speed) = meter.part()? else { return Ok((parts, End::Stopped)) };
        parts.push(speed);
        if without.is_some_and(|without| is_worse(without, &parts)) {
            return Ok((parts, End::Worse));
        }
    }
    Ok((parts, End::Whole))
}

/// Leaves the setting that helps most, if one does and a second comparison finds the same. Says how to undo it.
fn keep(
    meter: &mut impl Meter,
    stop: &AtomicBool,
    journal: &mut Journal,
    tried: &mut [Tried],
    order: &Order<'_>,
) -> anyhow::Result<Option<usize>> {
    let value = |one: &Tried| one.gain().map_or(0.0, |gain| gain.value);
    let best = tried.iter().enumerate().filter(|(_, one)| one.helps(order.least));
    let Some((at, _)) = best.max_by(|a, b| value(a.1).total_cmp(&value(b.1))) else { return Ok(None) };
    let best = &mut tried[at];
    *best = compare(meter, stop, journal, best.setting.clone(), order.rounds)?;
    if !best.helps(order.least) {
        return Ok(None);
    }
    undo::leave(journal, &best.setting)?;
    Ok(Some(at))
}

fn list(all: &[Setting]) -> Table {
    let columns = [Column::text("setting", "its name, for --try"), Column::text("about", "its effect")];
    let mut out = Table::builder("settings", &columns);
    for setting in all {
        out.row().text(&setting.name).text(&setting.about);
    }
    out.finish()
}

fn table(tried: &[Tried], least: f64, kept: Option<usize>) -> Table {
    let columns = [
        Column::text("setting", "what was set"),
        Column::float("speed", Unit::None, Kind::Gauge, "work a second, with the setting over without"),
        Column::float("low", Unit::None, Kind::Gauge, "lower end of its 95 % interval"),
        Column::float("high", Unit::None, Kind::Gauge, "upper end"),
        Column::float("done", Unit::PerSecond, Kind::Gauge, "work a second without it"),
        Column::float("done_with", Unit::PerSecond, Kind::Gauge, "work a second with it"),
        Column::text("verdict", "whether it helps"),
    ];
    let mut out = Table::builder("settings", &columns);
    for (i, one) in tried.iter().enumerate() {
        let gain = one.gain();
        let interval = gain.and_then(|gain| gain.interval);
        let n = one.rounds.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| (n > 0.0).then(|| one.rounds.iter().map(of).sum::<f64>() / n);
        out.row()
            .text(&one.setting.name)
            .float_opt(gain.map(|gain| gain.value))
            .float_opt(interval.map(|ends| ends.0))
            .float_opt(interval.map(|ends| ends.1))
            .float_opt(mean(|round| round.0))
            .float_opt(mean(|round| round.1))
            .text(one.verdict(least, kept == Some(i)));
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service whose speed is the number in a file, with noise: 100 at first.
    struct Made {
        file: std::path::PathBuf,
        noise: fastrand::Rng,
        /// Speeds that were measured, and those beside which the file held another value.
        parts: u32,
        slow: u32,
    }

    impl Meter for Made {
        fn part(&mut self) -> anyhow::Result<Option<f64>> {
            let per_cent: f64 = std::fs::read_to_string(&self.file)?.trim().parse()?;
            self.parts += 1;
            self.slow += u32::from(per_cent < 100.0);
            Ok(Some(per_cent * (1.0 + 0.01 * (self.noise.f64() - 0.5))))
        }
    }

    /// The setting that a file holds this value in place of 100.
    fn trial(value: &str, seed: u64) -> (Tried, Made) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("speed");
        std::fs::write(&file, "100").unwrap();
        let setting = Setting::of_files("speed".into(), "", vec![(file.clone(), value.into())]);
        let mut made = Made { file: file.clone(), noise: fastrand::Rng::with_seed(seed), parts: 0, slow: 0 };
        let mut journal = Journal::begin(&dir.path().join("undo"), &[]).unwrap();
        let tried = compare(&mut made, &AtomicBool::new(false), &mut journal, setting, 7).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "100");
        assert!(journal.finish().undone.is_empty());
        (tried, made)
    }

    #[test]
    fn what_helps_is_seen_and_what_harms_is_undone_at_once() {
        let (helps, made) = trial("110", 1);
        assert!(helps.helps(5.0) && !helps.helps(20.0), "{:?}", helps.rounds);
        assert_eq!(made.parts, 7 * 2 * PARTS as u32);
        assert_eq!(helps.verdict(5.0, false), "helps, undone");
        let (harms, made) = trial("90", 2);
        assert_eq!(harms.verdict(2.0, false), "worse, undone at once");
        // Two parts each time, twice.
        assert_eq!(made.slow, 4);
        let gone = Setting::of_files("gone".into(), "", vec![("/nonexistent/file".into(), "1".into())]);
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(dir.path(), &[]).unwrap();
        let mut made = made;
        std::fs::create_dir_all(made.file.parent().unwrap()).unwrap();
        std::fs::write(&made.file, "100").unwrap();
        let refused = compare(&mut made, &AtomicBool::new(false), &mut journal, gone, 7).unwrap();
        assert!(refused.verdict(2.0, false).starts_with("refused: "), "{}", refused.verdict(2.0, false));
        std::fs::remove_dir_all(made.file.parent().unwrap()).unwrap();
    }

    /// Settings that do nothing: hardly any seems to help or to harm, and none is kept by a second comparison.
    #[test]
    fn what_does_nothing_makes_no_difference() {
        let mut helped = 0;
        let mut harmed = 0;
        for seed in 0..200 {
            let (tried, _) = trial("100", 100 + seed);
            helped += u32::from(tried.helps(2.0));
            harmed += u32::from(tried.verdict(2.0, false).starts_with("worse, undone"));
        }
        assert_eq!(helped, 0);
        assert!(harmed <= 4, "{harmed} of 200");
    }
}
