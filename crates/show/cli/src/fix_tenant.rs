//! `ncpu fix --tenant`: tries settings of control groups that protect a tenant of this machine from another, while both run.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_engine::engine::Config;
use ncpu_engine::observation::Observation;
use ncpu_machine::tenant::{By, KERNEL};
use ncpu_measure::compare::Ratio;
use ncpu_observe_core::program::Target;
use ncpu_record::{Gather, Manifest};
use ncpu_remedy::fix::wanted;
use ncpu_remedy::journal::Journal;
use ncpu_remedy::setting::{Setting, restore};
use ncpu_remedy::tenant::{Case, settings};
use ncpu_report::tenants::{Lost, Naming, Tenancy};
use ncpu_schema::{Loss, Purpose};
use ncpu_table::{Column, Format, Kind, Table, Unit, safe};

use crate::table_args::TableArgs;
use crate::{stop, undo};

/// How a tenant is helped.
pub struct Order<'a> {
    /// The tenant's name, or a part that only its name has.
    pub tenant: &'a str,
    /// The level of names.
    pub by: By,
    /// Rounds of each comparison.
    pub rounds: u32,
    /// Per cent that a setting must give.
    pub least: f64,
    /// Per cent of its CPU time that the neighbour may lose.
    pub most_loss: f64,
    /// Only settings with one of these words in their name.
    pub only: &'a [String],
    /// Whether what helps stays.
    pub keep: bool,
    /// Whether nothing is tried.
    pub list: bool,
    /// How the table is printed.
    pub rows: &'a TableArgs,
}

/// Seconds of a part of a period, and parts: after each the harm of a setting is judged.
const PART: f64 = 0.5;
const PARTS: usize = 4;
/// A tenant is worse off if two parts in turn are below all parts without the setting by this factor.
const WORSE: f64 = 0.9;
/// Parts before a neighbour's loss is judged.
const JUDGED: usize = 2;
/// Periods until the tenant is found.
const LOOKS: u32 = 3;
/// A loss must be this part of the capacity to be worth a setting.
const WORTH: f64 = 0.01;
/// Losses that settings are tried against, largest first.
const MOST_LOSSES: usize = 3;
const HZ: u32 = 49;

/// An observation that goes on over all periods.
struct Watch<'a> {
    observation: Observation,
    naming: Naming,
    since: f64,
    stop: &'a AtomicBool,
}

impl Watch<'_> {
    fn begin(by: By, stop: &AtomicBool) -> anyhow::Result<Watch<'_>> {
        let observation = Observation::begin(&Config::onion(Target::All, HZ))?;
        Ok(Watch { observation, naming: Naming { by, ..Naming::default() }, since: 0.0, stop })
    }

    /// The tenants of the next seconds; `None` when it was stopped.
    fn look(&mut self, seconds: f64) -> anyhow::Result<Option<Tenancy>> {
        let mut tables: Vec<Table> = Vec::new();
        let since = self.since;
        let mut take = |table: &Table| -> anyhow::Result<()> {
            tables.push(table.less("t", since)?);
            Ok(())
        };
        let length = Duration::from_secs_f64(seconds);
        let stopped = || self.stop.load(Ordering::Relaxed);
        self.observation.watch(None, Some(Instant::now() + length), 2 * length, &stopped, &mut take)?;
        self.since = self.observation.turn(&mut take)?;
        if stopped() {
            return Ok(None);
        }
        let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |cpus| cpus.len()) as u64;
        let manifest = Manifest::new(Purpose::Watch, cpus, vec!["the machine".into()], seconds);
        let mut gather = Gather::new(manifest);
        tables.iter().try_for_each(|table| gather.append(table))?;
        let recording = gather.finish()?;
        Tenancy::need(&recording, &self.naming).map(Some).map_err(|why| anyhow::anyhow!(why))
    }
}

/// A tenant and its neighbour in a period, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    /// Thread-seconds that the tenant lost to others and to its limit.
    lost: f64,
    /// CPU-seconds that it ran, and that the neighbour ran.
    ran: f64,
    neighbour: f64,
}

/// Whether a loss is one that settings may give back.
fn counts(lost: &Lost) -> bool {
    lost.to_another() || lost.cause == Loss::Quota
}

impl Seen {
    fn of(tenancy: &Tenancy, victim: &str, neighbour: Option<&str>) -> Seen {
        let ran = |name: &str| -> f64 {
            let parts = tenancy.parts.iter().filter(|part| part.name.as_deref() == Some(name));
            parts.map(ncpu_report::tenants::Part::busy).sum()
        };
        let lost: f64 = tenancy
            .losses
            .iter()
            .filter(|lost| lost.victim == victim && counts(lost))
            .map(|lost| lost.threads)
            .sum();
        let second = tenancy.elapsed.max(f64::MIN_POSITIVE);
        Seen {
            lost: lost / second,
            ran: ran(victim) / second,
            neighbour: neighbour.map_or(0.0, ran) / second,
        }
    }

    /// Work that a thread-second of the tenant does, of what it would do without losses; `None` if it did nothing.
    fn speed(&self) -> Option<f64> {
        (self.ran > 1e-4).then(|| self.ran / (self.ran + self.lost))
    }

    fn mean<'a>(all: impl Iterator<Item = &'a Seen> + Clone) -> Seen {
        let n = all.clone().count().max(1) as f64;
        let sum = |of: fn(&Seen) -> f64| all.clone().map(of).sum::<f64>() / n;
        Seen { lost: sum(|s| s.lost), ran: sum(|s| s.ran), neighbour: sum(|s| s.neighbour) }
    }
}

/// The side that is worse off with a setting, so that the setting is undone at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Tenant,
    Neighbour,
}

/// Judges the parts with a setting by the parts of the period before it.
fn harm(without: &[Seen], with: &[Seen], most_loss: f64) -> Option<Harm> {
    let least = without.iter().filter_map(Seen::speed).reduce(f64::min);
    let slow = |seen: &Seen| least.is_some_and(|least| seen.speed().is_some_and(|now| now < WORSE * least));
    if with.len() >= 2 && with[with.len() - 2..].iter().all(slow) {
        return Some(Harm::Tenant);
    }
    let (before, now) = (Seen::mean(without.iter()).neighbour, Seen::mean(with.iter()).neighbour);
    let too_much = with.len() >= JUDGED && before > WORTH && now < (1.0 - most_loss / 100.0) * before;
    too_much.then_some(Harm::Neighbour)
}

/// How the trial of a setting ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// All rounds were made.
    Whole,
    /// A signal came.
    Stopped,
    /// It was undone at once.
    Harm(Harm),
    /// The kernel did not take it.
    Refused(String),
}

/// A setting that was tried, and the state of both sides without and with it, round by round.
struct Tried {
    setting: Setting,
    rounds: Vec<(Seen, Seen)>,
    end: End,
}

impl Tried {
    /// How many times as fast the tenant is with the setting.
    fn gain(&self) -> Option<Ratio> {
        let pair = |(without, with): &(Seen, Seen)| Some((without.speed()?, with.speed()?));
        let pairs: Vec<(f64, f64)> = self.rounds.iter().filter_map(pair).collect();
        Ratio::of_pairs(&pairs)
    }

    fn helps(&self, least: f64) -> bool {
        self.end == End::Whole && self.gain().is_some_and(|gain| gain.gains(least))
    }

    fn verdict(&self, least: f64, kept: bool) -> String {
        match &self.end {
            End::Harm(Harm::Tenant) => "worse, undone at once".into(),
            End::Harm(Harm::Neighbour) => "takes too much of the neighbour, undone at once".into(),
            End::Refused(why) => format!("refused: {why}"),
            End::Stopped => "stopped".into(),
            _ if kept => "helps, kept".into(),
            _ if self.helps(least) => "helps, undone".into(),
            _ if self.gain().and_then(|gain| gain.interval).is_none() => "unknown".into(),
            _ => "no difference".into(),
        }
    }
}

/// The tenant that is meant: of this name, else the only one whose name holds it.
fn find(tenancy: &Tenancy, word: &str) -> anyhow::Result<String> {
    let names: Vec<&str> = tenancy.parts.iter().filter_map(|part| part.name.as_deref()).collect();
    if names.contains(&word) {
        return Ok(word.into());
    }
    let fits: Vec<&str> = names.iter().copied().filter(|name| name.contains(word)).collect();
    match fits[..] {
        [one] => Ok(one.into()),
        [] => {
            let names: Vec<&str> = names.into_iter().take(12).collect();
            anyhow::bail!(
                "--tenant {}: no such tenant; the largest are {}",
                safe::line(word),
                safe::line(&names.join(", "))
            )
        }
        _ => anyhow::bail!(
            "--tenant {}: {} have that in their names",
            safe::line(word),
            safe::line(&fits.join(", "))
        ),
    }
}

/// The largest losses that settings may help against, as sums by culprit and cause.
fn largest(tenancy: &Tenancy, victim: &str) -> Vec<Lost> {
    let mut sums: Vec<Lost> = Vec::new();
    let causes = [Loss::RunQueue, Loss::Quota, Loss::Network, Loss::Interrupts];
    let ours = |lost: &&Lost| lost.victim == victim && counts(lost) && causes.contains(&lost.cause);
    for lost in tenancy.losses.iter().filter(ours) {
        match sums.iter_mut().find(|sum| sum.culprit == lost.culprit && sum.cause == lost.cause) {
            Some(sum) => sum.threads += lost.threads,
            None => sums.push(lost.clone()),
        }
    }
    sums.retain(|lost| lost.threads >= WORTH * tenancy.capacity);
    sums.sort_by(|a, b| b.threads.total_cmp(&a.threads));
    sums
}

/// A setting, the loss that it is against, and the neighbour that it takes from.
type Against = (Setting, Loss, Option<String>);

/// Settings against the largest losses for which there are settings, each once.
fn against(order: &Order<'_>, first: &Tenancy, victim: &str, seen: &Seen) -> anyhow::Result<Vec<Against>> {
    let tenant = first.members.get(victim).with_context(|| format!("{victim} has no control group"))?;
    let mut all: Vec<Against> = Vec::new();
    let mut losses = 0;
    for lost in largest(first, victim) {
        let before = all.len();
        let neighbour = lost.culprit.clone().filter(|name| name != victim && name != KERNEL);
        let culprit = neighbour.as_deref().and_then(|name| first.members.get(name));
        let demand = seen.ran + seen.lost;
        for setting in settings(Path::new("/"), &Case { victim: tenant, culprit, cause: lost.cause, demand })
        {
            let is_new = all.iter().all(|(other, ..)| other.name != setting.name);
            if is_new && wanted(order.only, &setting.name) {
                all.push((setting, lost.cause, neighbour.clone()));
            }
        }
        losses += usize::from(all.len() > before);
        if losses == MOST_LOSSES {
            break;
        }
    }
    Ok(all)
}

/// Runs the trials.
///
/// # Errors
/// The machine cannot be observed, there is no such tenant, or a setting cannot be undone.
pub fn run(order: &Order<'_>) -> anyhow::Result<ExitCode> {
    require!(
        (0.0..=100.0).contains(&order.most_loss),
        "--most-loss {}: expected a percentage from 0 to 100",
        order.most_loss
    );
    let stop = stop::on_signals()?;
    let mut watch = Watch::begin(order.by, &stop)?;
    let mut looks = 0;
    let (first, victim) = loop {
        looks += 1;
        let Some(first) = watch.look(PARTS as f64 * PART)? else { return Ok(ExitCode::from(stop::status())) };
        match find(&first, order.tenant) {
            Ok(victim) => break (first, victim),
            // One that others keep off CPUs may not have come on any.
            Err(_) if looks < LOOKS => {}
            Err(why) => return Err(why),
        }
    };
    let seen = Seen::of(&first, &victim, None);
    let Some(worst) = largest(&first, &victim).into_iter().next() else {
        crate::out::put(&format!(
            "{}: no loss to other tenants' threads, to interrupts or to its CPU limit worth a setting ({:.2} thread-seconds a second in \
             all)\n",
            safe::line(&victim),
            seen.lost
        ))?;
        return Ok(ExitCode::SUCCESS);
    };
    let all = against(order, &first, &victim, &seen)?;
    let behind = match worst.culprit.as_deref().filter(|culprit| *culprit != victim) {
        Some(name) => format!("{name} ({})", worst.cause.name()),
        None => "its own CPU limit".into(),
    };
    let said = format!(
        "{victim} loses {:.2} thread-seconds a second, {:.2} of them to {behind}",
        seen.lost,
        worst.threads / first.elapsed.max(f64::MIN_POSITIVE)
    );
    if order.rows.format() == Format::Text {
        crate::out::put(&format!("{}\n", safe::line(&said)))?;
    }
    if all.is_empty() {
        say!(
            "ncpu fix: no setting{} helps {} against it (docs/tenants.md)",
            if order.only.is_empty() { "" } else { " of --try" },
            safe::line(&victim)
        );
        return Ok(ExitCode::SUCCESS);
    }
    if order.list {
        order.rows.print(list(&all))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut journal, _alone) = undo::begin_trials()?;
    let mut tried: Vec<(Tried, Option<String>)> = Vec::new();
    let mut result = Ok(None);
    for (setting, _, neighbour) in all {
        match compare(&mut watch, &mut journal, setting, (&victim, neighbour.as_deref()), order) {
            Ok(one) => {
                let stopped = one.end == End::Stopped;
                tried.push((one, neighbour));
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
        result = keep(&mut watch, &mut journal, &mut tried, &victim, order);
    }
    undo::tell(&journal.finish(), false);
    order.rows.print(table(&tried, order.least, result?))?;
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(stop::status()) } else { ExitCode::SUCCESS })
}

/// Periods without and with a setting, in turn: which of both is first changes, so that what drifts is in both. The setting is undone
/// at once when one side is worse off, at each signal and before any error is reported.
fn compare(
    watch: &mut Watch<'_>,
    journal: &mut Journal,
    setting: Setting,
    (victim, neighbour): (&str, Option<&str>),
    order: &Order<'_>,
) -> anyhow::Result<Tried> {
    let mut tried = Tried { setting, rounds: Vec::new(), end: End::Whole };
    let mut without: Vec<Seen> = Vec::new();
    for round in 0..order.rounds {
        let mut both = [Seen::default(); 2];
        for with in if round % 2 == 0 { [false, true] } else { [true, false] } {
            if watch.stop.load(Ordering::Relaxed) {
                tried.end = End::Stopped;
                return Ok(tried);
            }
            let mut set = Vec::new();
            if with && let Err(why) = tried.setting.set(journal, &mut set) {
                restore(journal, &mut set)?;
                tried.end = End::Refused(why.to_string());
                return Ok(tried);
            }
            let parts = parts(watch, (victim, neighbour), with.then_some((&without[..], order.most_loss)));
            restore(journal, &mut set)?;
            let (parts, end) = parts?;
            both[usize::from(with)] = Seen::mean(parts.iter());
            if end != End::Whole {
                // The parts until then are reported.
                if with && matches!(end, End::Harm(_)) {
                    tried.rounds.push((Seen::mean(without.iter()), both[1]));
                }
                tried.end = end;
                return Ok(tried);
            }
            if !with {
                without = parts;
            }
        }
        tried.rounds.push((both[0], both[1]));
    }
    Ok(tried)
}

/// The parts of a period. With a setting it ends as soon as one side is worse off than before.
fn parts(
    watch: &mut Watch<'_>,
    (victim, neighbour): (&str, Option<&str>),
    guard: Option<(&[Seen], f64)>,
) -> anyhow::Result<(Vec<Seen>, End)> {
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        let Some(tenancy) = watch.look(PART)? else { return Ok((parts, End::Stopped)) };
        parts.push(Seen::of(&tenancy, victim, neighbour));
        if let Some((without, most_loss)) = guard
            && let Some(harm) = harm(without, &parts, most_loss)
        {
            return Ok((parts, End::Harm(harm)));
        }
    }
    Ok((parts, End::Whole))
}

/// Leaves the setting that helps most, if one does and a second comparison finds the same: of several that do nothing, one seems to
/// help by chance now and then. Says how to undo it.
fn keep(
    watch: &mut Watch<'_>,
    journal: &mut Journal,
    tried: &mut [(Tried, Option<String>)],
    victim: &str,
    order: &Order<'_>,
) -> anyhow::Result<Option<usize>> {
    let value = |tried: &Tried| tried.gain().map_or(0.0, |gain| gain.value);
    let best = tried.iter().enumerate().filter(|(_, (one, _))| one.helps(order.least));
    let Some((at, _)) = best.max_by(|a, b| value(&a.1.0).total_cmp(&value(&b.1.0))) else { return Ok(None) };
    let (best, neighbour) = &mut tried[at];
    let again = compare(watch, journal, best.setting.clone(), (victim, neighbour.as_deref()), order)?;
    *best = again;
    if !best.helps(order.least) {
        return Ok(None);
    }
    undo::leave(journal, &best.setting)?;
    Ok(Some(at))
}

fn list(all: &[Against]) -> Table {
    let columns = [
        Column::text("remedy", "its name, for --try"),
        Column::text("cause", "the loss that it is against"),
        Column::text("neighbour", "the tenant that it takes from"),
        Column::text("about", "its effect"),
    ];
    let mut out = Table::builder("settings", &columns);
    for (setting, cause, neighbour) in all {
        let row = out.row().text(&setting.name).text(cause.name());
        row.text_opt(neighbour.as_deref()).text(&setting.about);
    }
    out.finish()
}

fn table(tried: &[(Tried, Option<String>)], least: f64, kept: Option<usize>) -> Table {
    let columns = [
        Column::text("setting", "what was set"),
        Column::float(
            "speed",
            Unit::None,
            Kind::Gauge,
            "work of the tenant for each thread-second, with the setting over without",
        ),
        Column::float("low", Unit::None, Kind::Gauge, "lower end of its 95 % interval"),
        Column::float("high", Unit::None, Kind::Gauge, "upper end"),
        Column::float("lost", Unit::Seconds, Kind::Gauge, "thread-seconds that the tenant lost in a second"),
        Column::float("lost_with", Unit::Seconds, Kind::Gauge, "the same, with the setting"),
        Column::float("ran", Unit::CpuSeconds, Kind::Gauge, "CPU-seconds that the tenant ran in a second"),
        Column::float("ran_with", Unit::CpuSeconds, Kind::Gauge, "the same, with the setting"),
        Column::float(
            "neighbour",
            Unit::CpuSeconds,
            Kind::Gauge,
            "CPU-seconds that the neighbour ran in a second",
        ),
        Column::float("neighbour_with", Unit::CpuSeconds, Kind::Gauge, "the same, with the setting"),
        Column::text("verdict", "whether it helps"),
    ];
    let mut out = Table::builder("settings", &columns);
    for (i, (one, neighbour)) in tried.iter().enumerate() {
        let gain = one.gain();
        let without = Seen::mean(one.rounds.iter().map(|round| &round.0));
        let with = Seen::mean(one.rounds.iter().map(|round| &round.1));
        let (interval, whole) = (gain.and_then(|gain| gain.interval), !one.rounds.is_empty());
        let beside = whole && neighbour.is_some();
        out.row()
            .text(&one.setting.name)
            .float_opt(gain.map(|gain| gain.value))
            .float_opt(interval.map(|ends| ends.0))
            .float_opt(interval.map(|ends| ends.1))
            .float_opt(whole.then_some(without.lost))
            .float_opt(whole.then_some(with.lost))
            .float_opt(whole.then_some(without.ran))
            .float_opt(whole.then_some(with.ran))
            .float_opt(beside.then_some(without.neighbour))
            .float_opt(beside.then_some(with.neighbour))
            .text(one.verdict(least, kept == Some(i)));
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine::tenant::Tenant;
    use ncpu_machine_trees::put;

    /// A setting that raises the limit of a made-up group.
    fn setting() -> Setting {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "proc/self/mounts", "c /cg cgroup2 rw 0 0\n");
        put(dir.path(), "cg/a/cpu.max", "50000 100000\n");
        let victim = Tenant { cgroup: "/a".into(), ..Tenant::default() };
        let case = Case { victim: &victim, culprit: None, cause: Loss::Quota, demand: 1.0 };
        settings(dir.path(), &case).remove(0)
    }

    fn seen(lost: f64, neighbour: f64) -> Seen {
        Seen { lost, ran: 1.0, neighbour }
    }

    fn tried(rounds: &[(f64, f64)], end: End) -> (Tried, Option<String>) {
        let rounds = rounds.iter().map(|(without, with)| (seen(*without, 1.0), seen(*with, 1.0))).collect();
        (Tried { setting: setting(), rounds, end }, Some("b".into()))
    }

    /// A setting is kept only where the gain is certain and large enough.
    #[test]
    fn what_may_be_chance_does_not_help() {
        let helps = tried(&[(1.0, 0.1), (1.1, 0.2), (0.9, 0.1), (1.0, 0.15), (1.0, 0.1)], End::Whole);
        assert!(helps.0.helps(2.0) && !helps.0.helps(900.0));
        let gain = helps.0.gain().unwrap();
        assert!((gain.value - 1.75).abs() < 1e-6, "{gain:?}");
        let noise = tried(&[(1.0, 0.1), (0.1, 1.2), (0.9, 0.8), (0.4, 0.9), (1.0, 0.6)], End::Whole);
        assert!(!noise.0.helps(2.0));
        let (none, one) = (tried(&[], End::Whole), tried(&[(1.0, 0.0)], End::Whole));
        assert!(!none.0.helps(0.0) && !one.0.helps(2.0));
        let harmful = tried(&[(1.0, 2.0)], End::Harm(Harm::Tenant));
        let refused = tried(&[], End::Refused("no room".into()));
        let all = [helps, noise, none, harmful, refused];
        let table = table(&all, 2.0, None);
        let verdicts: Vec<_> = (0..5).filter_map(|row| table.text(row, "verdict")).collect();
        let expected =
            ["helps, undone", "no difference", "unknown", "worse, undone at once", "refused: no room"];
        assert_eq!(verdicts, expected);
        assert!(table.number(0, "lost").is_some() && table.number(2, "lost").is_none());
    }

    #[test]
    fn harm_ends_a_trial_at_once() {
        let without = [seen(1.0, 1.0), seen(1.2, 1.0), seen(0.9, 1.0)];
        // The speed without is 1/2.2 at least.
        let slow = seen(2.0, 1.0);
        assert_eq!(harm(&without, &[slow], 50.0), None, "one part may be chance");
        assert_eq!(harm(&without, &[slow, seen(1.0, 1.0)], 50.0), None);
        assert_eq!(harm(&without, &[seen(1.0, 1.0), slow, slow], 50.0), Some(Harm::Tenant));
        assert_eq!(harm(&without, &[seen(0.1, 0.4), seen(0.1, 0.4)], 50.0), Some(Harm::Neighbour));
        assert_eq!(harm(&without, &[seen(0.1, 0.6), seen(0.1, 0.6)], 50.0), None);
        assert_eq!(harm(&without, &[seen(0.1, 0.0), seen(0.1, 0.0)], 100.0), None);
        assert_eq!(harm(&[], &[slow, slow], 50.0), None);
        let idle = Seen::default();
        assert_eq!(harm(&[idle], &[idle, idle], 0.0), None, "nobody runs");
    }
}
