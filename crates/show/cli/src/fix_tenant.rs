//! `ncpu fix --tenant`: tries settings of control groups that protect a tenant of this machine from another, while both run.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_engine::engine::Config;
use ncpu_engine::observation::Observation;
use ncpu_machine::shell_word;
use ncpu_machine::tenant::{By, KERNEL};
use ncpu_measure::compare::Ratio;
use ncpu_observe_core::program::Target;
use ncpu_record::{Gather, Manifest};
use ncpu_remedy::fix::{self, Remedy};
use ncpu_remedy::journal::Journal;
use ncpu_remedy::tenant::settings;
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
    /// Whether what helps stays.
    pub keep: bool,
    /// Whether nothing is tried.
    pub list: bool,
    /// How the table is printed.
    pub rows: &'a TableArgs,
}

/// Seconds of a period.
const PERIOD: f64 = 2.0;
/// A loss must be this part of the capacity to be worth a setting.
const WORTH: f64 = 0.01;
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

    /// The tenants of the next period; `None` when it was stopped.
    fn period(&mut self) -> anyhow::Result<Option<Tenancy>> {
        let mut tables: Vec<Table> = Vec::new();
        let since = self.since;
        let mut take = |table: &Table| -> anyhow::Result<()> {
            tables.push(table.less("t", since)?);
            Ok(())
        };
        let length = Duration::from_secs_f64(PERIOD);
        let stopped = || self.stop.load(Ordering::Relaxed);
        self.observation.watch(None, Some(Instant::now() + length), 2 * length, &stopped, &mut take)?;
        self.since = self.observation.turn(&mut take)?;
        if stopped() {
            return Ok(None);
        }
        let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |cpus| cpus.len()) as u64;
        let manifest = Manifest::new(Purpose::Watch, cpus, vec!["the machine".into()], PERIOD);
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

/// Whether a loss is one that settings can give back.
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

    /// Thread-seconds that a CPU-second of its work takes.
    fn stretch(&self) -> f64 {
        (self.ran + self.lost) / self.ran.max(f64::MIN_POSITIVE)
    }

    fn mean(all: impl Iterator<Item = Seen> + Clone) -> Seen {
        let n = all.clone().count().max(1) as f64;
        let sum = |of: fn(&Seen) -> f64| all.clone().map(|seen| of(&seen)).sum::<f64>() / n;
        Seen { lost: sum(|s| s.lost), ran: sum(|s| s.ran), neighbour: sum(|s| s.neighbour) }
    }
}

/// A setting that was tried, and what both sides were without and with it, round by round.
struct Tried {
    setting: Remedy,
    rounds: Vec<(Seen, Seen)>,
}

impl Tried {
    /// How much faster the tenant comes on.
    fn gain(&self) -> Option<Ratio> {
        let pairs: Vec<(f64, f64)> =
            self.rounds.iter().map(|(without, with)| (with.stretch(), without.stretch())).collect();
        Ratio::of_pairs(&pairs)
    }

    fn helps(&self, least: f64) -> bool {
        let certain = |gain: &Ratio| gain.interval.is_some_and(|(low, _)| low > 1.0);
        self.gain().is_some_and(|gain| certain(&gain) && gain.value >= 1.0 + least / 100.0)
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

/// The largest loss that settings may help against, as sums by culprit and cause.
fn largest(tenancy: &Tenancy, victim: &str) -> Option<Lost> {
    let mut sums: Vec<Lost> = Vec::new();
    let ours = |lost: &&Lost| {
        lost.victim == victim && counts(lost) && [Loss::RunQueue, Loss::Quota].contains(&lost.cause)
    };
    for lost in tenancy.losses.iter().filter(ours).filter(|lost| lost.culprit.as_deref() != Some(KERNEL)) {
        match sums.iter_mut().find(|sum| sum.culprit == lost.culprit && sum.cause == lost.cause) {
            Some(sum) => sum.threads += lost.threads,
            None => sums.push(lost.clone()),
        }
    }
    sums.into_iter().max_by(|a, b| a.threads.total_cmp(&b.threads))
}

/// Runs the trials.
///
/// # Errors
/// The machine cannot be observed, there is no such tenant, or a setting cannot be undone.
pub fn run(order: &Order<'_>) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signals()?;
    let mut watch = Watch::begin(order.by, &stop)?;
    let Some(first) = watch.period()? else { return Ok(ExitCode::from(130)) };
    let victim = find(&first, order.tenant)?;
    let seen = Seen::of(&first, &victim, None);
    let worst = largest(&first, &victim).filter(|lost| lost.threads >= WORTH * first.capacity);
    let Some(worst) = worst else {
        crate::out::put(&format!(
            "{}: no loss to other tenants' threads or to its CPU limit worth a setting ({:.2} thread-seconds a second in all)\n",
            safe::line(&victim),
            seen.lost
        ))?;
        return Ok(ExitCode::SUCCESS);
    };
    let neighbour = worst.culprit.clone().filter(|culprit| *culprit != victim);
    let member = |name: &str| first.members.get(name).with_context(|| format!("{name} has no control group"));
    let other = neighbour.as_deref().map(member).transpose()?;
    let all = settings(Path::new("/"), member(&victim)?, other, worst.cause);
    let behind = neighbour
        .as_deref()
        .map_or_else(|| "its own CPU limit".into(), |name| format!("{name} ({})", worst.cause.name()));
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
            "ncpu fix: no setting of control groups parts {} from it (docs/tenants.md)",
            safe::line(&victim)
        );
        return Ok(ExitCode::SUCCESS);
    }
    if order.list {
        order.rows.print(fix::found::remedies_table(&all))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut journal = undo::begin()?;
    let mut tried = Vec::new();
    let result = all.into_iter().try_for_each(|setting| {
        let rounds =
            compare(&mut watch, &mut journal, &setting, (&victim, neighbour.as_deref()), order.rounds)?;
        tried.push(Tried { setting, rounds });
        anyhow::Ok(())
    });
    let kept = result.and_then(|()| if order.keep { keep(&tried, order.least) } else { Ok(None) });
    undo::tell(&journal.finish(), false);
    order.rows.print(table(&tried, order.least, kept?))?;
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// Periods without and with a setting, in turn: which of both is first changes, so that what drifts is in both.
fn compare(
    watch: &mut Watch<'_>,
    journal: &mut Journal,
    setting: &Remedy,
    (victim, neighbour): (&str, Option<&str>),
    rounds: u32,
) -> anyhow::Result<Vec<(Seen, Seen)>> {
    let mut out = Vec::new();
    for round in 0..rounds {
        let mut both = [Seen::default(); 2];
        for with in if round % 2 == 0 { [false, true] } else { [true, false] } {
            let mut set = Vec::new();
            let done = if with { fix::set(journal, &[setting], &mut set) } else { Ok(()) };
            // A refused setting is undone before the error is reported.
            let period = done.map_err(anyhow::Error::from).and_then(|()| watch.period());
            fix::restore(journal, &mut set)?;
            match period? {
                Some(tenancy) => both[usize::from(with)] = Seen::of(&tenancy, victim, neighbour),
                None => return Ok(out),
            }
        }
        out.push((both[0], both[1]));
    }
    Ok(out)
}

/// Makes the setting that helps most, if one does, and says how to undo it.
fn keep(tried: &[Tried], least: f64) -> anyhow::Result<Option<usize>> {
    let value = |tried: &Tried| tried.gain().map_or(0.0, |gain| gain.value);
    let best = tried.iter().enumerate().filter(|(_, one)| one.helps(least));
    let Some((at, best)) = best.max_by(|a, b| value(a.1).total_cmp(&value(b.1))) else { return Ok(None) };
    for (file, new) in &best.setting.settings {
        let old = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        std::fs::write(file, new).with_context(|| file.display().to_string())?;
        let name = shell_word(&file.display().to_string());
        say!("ncpu fix: kept; undo with: echo '{}' > {}", safe::line(old.trim()), safe::line(&name));
    }
    Ok(Some(at))
}

fn table(tried: &[Tried], least: f64, kept: Option<usize>) -> Table {
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
    for (i, one) in tried.iter().enumerate() {
        let gain = one.gain();
        let without = Seen::mean(one.rounds.iter().map(|round| round.0));
        let with = Seen::mean(one.rounds.iter().map(|round| round.1));
        let (interval, whole) = (gain.and_then(|gain| gain.interval), !one.rounds.is_empty());
        let verdict = match (one.helps(least), kept == Some(i)) {
            (_, true) => "helps, kept",
            (true, _) => "helps, undone",
            (false, _) if interval.is_none() => "unknown",
            (false, _) => "no difference",
        };
        out.row()
            .text(&one.setting.name)
            .float_opt(gain.map(|gain| gain.value))
            .float_opt(interval.map(|ends| ends.0))
            .float_opt(interval.map(|ends| ends.1))
            .float_opt(whole.then_some(without.lost))
            .float_opt(whole.then_some(with.lost))
            .float_opt(whole.then_some(without.neighbour))
            .float_opt(whole.then_some(with.neighbour))
            .text(verdict);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn tried(rounds: &[(f64, f64)]) -> Tried {
        let seen = |lost: f64| Seen { lost, ran: 1.0, neighbour: 1.0 };
        let rounds = rounds.iter().map(|(without, with)| (seen(*without), seen(*with))).collect();
        Tried { setting: fix::lifted("x", "y", PathBuf::from("/z"), "1".into()), rounds }
    }

    /// A setting is kept only where the gain is certain and large enough.
    #[test]
    fn what_may_be_chance_does_not_help() {
        let helps = tried(&[(1.0, 0.1), (1.1, 0.2), (0.9, 0.1), (1.0, 0.15), (1.0, 0.1)]);
        assert!(helps.helps(2.0) && !helps.helps(900.0));
        let noise = tried(&[(1.0, 0.1), (0.1, 1.2), (0.9, 0.8), (0.4, 0.9), (1.0, 0.6)]);
        assert!(!noise.helps(2.0));
        assert!(!tried(&[]).helps(0.0) && !tried(&[(1.0, 0.0)]).helps(2.0));
        let table = table(&[helps, noise, tried(&[])], 2.0, None);
        let verdicts: Vec<_> = (0..3).filter_map(|row| table.text(row, "verdict")).collect();
        assert_eq!(verdicts, ["helps, undone", "no difference", "unknown"]);
        assert!(table.number(0, "lost").is_some() && table.number(2, "lost").is_none());
    }
}
