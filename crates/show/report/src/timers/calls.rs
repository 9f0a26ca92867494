//! Requested against actual: the waits of table `timeouts`, put together by call and time.

use std::collections::BTreeMap;

use ncpu_schema::{timeouts, timer_machine};
use ncpu_table::{Column, Kind, Table, Unit};

use super::duration;

/// Waits of one call.
#[derive(Default)]
struct Call {
    unit: u64,
    /// By argument (ns): how long each wait took (ns), sorted.
    took: BTreeMap<u64, Vec<u64>>,
    /// The same without timer slack.
    unslacked: BTreeMap<u64, Vec<u64>>,
    /// When after a tick each wait ended (ns).
    phases: Vec<u64>,
}

impl Call {
    fn argument(&self, time: u64) -> u64 {
        time.max(1).div_ceil(self.unit.max(1)) * self.unit.max(1)
    }

    fn at(&self, time: u64) -> &[u64] {
        self.took.get(&self.argument(time)).map_or(&[], Vec::as_slice)
    }

    /// How late all waits were, us, sorted; early ones are below 0.
    fn lateness(waits: &BTreeMap<u64, Vec<u64>>) -> Vec<f64> {
        let mut late: Vec<f64> =
            waits.iter().flat_map(|(&asked, took)| took.iter().map(move |&t| late(t, asked))).collect();
        late.sort_by(f64::total_cmp);
        late
    }

    fn woken_by(&self, tick: u64) -> Option<&'static str> {
        woken_by(&self.phases, percentile(&Call::lateness(&self.took), 50.0), tick)
    }
}

fn late(took: u64, asked: u64) -> f64 {
    (took as f64 - asked as f64) / 1e3
}

/// The calls in order of first appearance.
fn gather(waits: &timeouts::Reader<'_>) -> Vec<(String, Call)> {
    let slack = waits.rows().filter_map(|r| waits.slack.get(r)).max();
    let mut calls: Vec<(String, Call)> = Vec::new();
    for row in waits.rows() {
        let (Some(name), Some(asked), Some(took)) =
            (waits.call.get(row), waits.asked.get(row), waits.took.get(row))
        else {
            continue;
        };
        let at = calls.iter().position(|(n, _)| n == name).unwrap_or_else(|| {
            calls.push((name.into(), Call::default()));
            calls.len() - 1
        });
        let call = &mut calls[at].1;
        call.unit = waits.unit.get(row).unwrap_or(1);
        let by_asked = if waits.slack.get(row) == slack { &mut call.took } else { &mut call.unslacked };
        by_asked.entry(asked).or_default().push(took);
        call.phases.extend(waits.phase.get(row));
    }
    for (_, call) in &mut calls {
        call.took.values_mut().chain(call.unslacked.values_mut()).for_each(|v| v.sort_unstable());
    }
    calls
}

/// The `p`-th percentile of sorted values, by nearest rank: a value that was measured.
fn percentile<T: Copy>(sorted: &[T], p: f64) -> Option<T> {
    let rank = (p / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// What wakes a call's waiters, a tick or a timer, by waits that began evenly spread over the tick. Ticks
/// make them late by half a tick and more (`late` is the median, us), and gather their ends just behind
/// ticks. A timer of high resolution leaves the ends as spread as the beginnings, except on a machine so
/// busy that threads get a CPU only at its next tick. The measure of that is the shortest part of a tick
/// that holds half of the ends, so that up to half of them may have been disturbed (the shortest half:
/// Andrews and others, "Robust Estimates of Location", 1972): close to 0, or close to a half.
fn woken_by(phases: &[u64], late: Option<f64>, tick: u64) -> Option<&'static str> {
    if late? * 1e3 < tick as f64 / 4.0 {
        return Some("hrtimer");
    }
    if phases.len() < 5 || tick == 0 {
        return None;
    }
    let mut phases: Vec<u64> = phases.iter().map(|p| p % tick).collect();
    phases.sort_unstable();
    let (n, half) = (phases.len(), phases.len().div_ceil(2));
    let arc = |i: usize| (phases[(i + half - 1) % n] + tick - phases[i]) % tick;
    let shortest = (0..n).map(arc).min()? as f64 / tick as f64;
    match shortest {
        s if s < 0.15 => Some("tick"),
        s if s > 0.25 => Some("hrtimer"),
        _ => None,
    }
}

/// The smallest difference between two times that a call can tell apart.
fn resolution(call: &Call, tick: u64) -> Option<u64> {
    Some(match call.woken_by(tick)? {
        "tick" => call.unit.max(tick),
        _ => call.unit,
    })
}

fn tick(machine: &timer_machine::Reader<'_>) -> u64 {
    machine.tick.get(0).unwrap_or(0)
}

/// The unit that waits of this time are shown in, and its ns.
fn scale(time: u64) -> (Unit, f64) {
    if time < 1_000_000 {
        (Unit::Microseconds, 1e3)
    } else if time < 1_000_000_000 {
        (Unit::Milliseconds, 1e6)
    } else {
        (Unit::Seconds, 1e9)
    }
}

/// A row for each call: what it runs by, its resolution, how late it was for all times, and the median
/// of what it took for each time (ns) of `times`.
pub fn by_call(waits: &timeouts::Reader<'_>, machine: &timer_machine::Reader<'_>, times: &[u64]) -> Table {
    let tick = tick(machine);
    let mut columns = vec![
        Column::text("call", "name of the call"),
        Column::text("by", "what ends the wait: a timer of high resolution, or a tick"),
        Column::text("resolution", "smallest difference between two times that it distinguishes"),
        Column::float("late", Unit::Microseconds, Kind::Mean, "median time past the time asked for"),
        Column::float("p99", Unit::Microseconds, Kind::Mean, "99th percentile of that"),
    ];
    for &time in times {
        let name = duration(time).replace(' ', "");
        columns.push(Column::float(&name, scale(time).0, Kind::Mean, "median of what such a wait took"));
    }
    columns.push(Column::float("max", Unit::Microseconds, Kind::Peak, "longest time past that asked for"));
    columns.push(Column::float(
        "no_slack",
        Unit::Microseconds,
        Kind::Mean,
        "`late` with a timer slack of 1 ns",
    ));
    let mut out = Table::builder("timeouts", &columns);
    for (name, call) in gather(waits) {
        let late = Call::lateness(&call.took);
        let mut row = out
            .row()
            .text(name)
            .text_opt(call.woken_by(tick))
            .text_opt(resolution(&call, tick).map(duration))
            .float_opt(percentile(&late, 50.0))
            .float_opt(percentile(&late, 99.0));
        for &time in times {
            row = row.float_opt(percentile(call.at(time), 50.0).map(|ns| ns as f64 / scale(time).1));
        }
        row.float_opt(late.last().copied()).float_opt(percentile(&Call::lateness(&call.unslacked), 50.0));
    }
    out.finish()
}

/// A row for each call and time (ns) of `times`.
pub fn by_time(waits: &timeouts::Reader<'_>, machine: &timer_machine::Reader<'_>, times: &[u64]) -> Table {
    let tick = tick(machine);
    let late = |name: &str, kind, meaning: &str| Column::float(name, Unit::Microseconds, kind, meaning);
    let mut out = Table::builder(
        "timeouts",
        &[
            Column::text("call", "name of the call"),
            Column::text("by", "what ends the wait: a timer of high resolution, or a tick"),
            Column::text("time", "time wanted"),
            Column::float("asked", Unit::Milliseconds, Kind::Gauge, "that in the call's unit, rounded up"),
            Column::float("took", Unit::Milliseconds, Kind::Mean, "median of what the wait took"),
            late("p50", Kind::Mean, "median time past the time asked for"),
            late("p95", Kind::Mean, "95th percentile of that"),
            late("p99", Kind::Mean, "99th percentile of that"),
            late("max", Kind::Peak, "longest time past the time asked for"),
            Column::count("early", "waits that ended before the time asked for"),
            Column::count("samples", "waits measured"),
        ],
    );
    for (name, call) in gather(waits) {
        for &time in times {
            let (asked, took) = (call.argument(time), call.at(time));
            let lateness: Vec<f64> = took.iter().map(|&t| self::late(t, asked)).collect();
            if took.is_empty() {
                continue;
            }
            out.row()
                .text(&name)
                .text_opt(call.woken_by(tick))
                .text(duration(time))
                .float(asked as f64 / 1e6)
                .float_opt(percentile(took, 50.0).map(|ns| ns as f64 / 1e6))
                .float_opt(percentile(&lateness, 50.0))
                .float_opt(percentile(&lateness, 95.0))
                .float_opt(percentile(&lateness, 99.0))
                .float_opt(lateness.last().copied())
                .int(took.iter().filter(|&&t| t < asked).count() as u64)
                .int(took.len() as u64);
        }
    }
    out.finish()
}

/// The clocks and the tick that the machine's timers run by, in a line of words.
pub fn machine_line(machine: &timer_machine::Reader<'_>) -> String {
    let ns = |column: Option<u64>| column.map_or("-".into(), duration);
    let hz = 1_000_000_000 / tick(machine).max(1);
    format!(
        "tick {} (CONFIG_HZ={hz}), timer slack {}, resolution of CLOCK_MONOTONIC {}, of CLOCK_REALTIME {}\n",
        ns(machine.tick.get(0)),
        ns(machine.slack.get(0)),
        ns(machine.monotonic.get(0)),
        ns(machine.realtime.get(0))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: u64 = 4_000_000;
    /// us: a tick or a busy machine.
    const LATE: Option<f64> = Some(5_000.0);

    fn machine() -> Table {
        let mut rows = timer_machine::Rows::new();
        rows.push(timer_machine::Row {
            tick: Some(TICK),
            slack: Some(50_000),
            monotonic: Some(1),
            realtime: Some(1),
        });
        rows.finish()
    }

    /// Waits of 9 ms that begin evenly spread over the tick: `end` gives the end for a beginning.
    type Case<'a> = (&'a str, u64, &'a dyn Fn(u64) -> u64);

    fn waits(calls: &[Case<'_>]) -> Table {
        let mut rows = timeouts::Rows::new();
        for (name, unit, end) in calls {
            for n in 0..40u64 {
                let begin = n * TICK / 40;
                let end = end(begin);
                rows.push(timeouts::Row {
                    call: (*name).into(),
                    scope: Some(ncpu_schema::WaitScope::Thread),
                    unit: Some(*unit),
                    asked: Some(9_000_000),
                    slack: Some(50_000),
                    took: Some(end - begin),
                    phase: Some(end % TICK),
                });
            }
        }
        rows.finish()
    }

    fn by(view: View, calls: &[Case<'_>], times: &[u64]) -> Table {
        let (waits, machine) = (waits(calls), machine());
        view(&timeouts::Reader::of(&waits).unwrap(), &timer_machine::Reader::of(&machine).unwrap(), times)
    }

    type View =
        for<'a, 'b, 'c> fn(&'a timeouts::Reader<'b>, &'a timer_machine::Reader<'c>, &'a [u64]) -> Table;

    #[test]
    fn ticks_and_timers_are_told_apart() {
        // schedule_timeout(): the first tick that is no earlier than the time asked for, and one more.
        let by_tick = |begin: u64| (begin + 9_000_000).next_multiple_of(TICK) + TICK + 20_000;
        let by_timer = |begin: u64| begin + 9_000_000 + 57_000;
        let calls: &[Case<'_>] = &[("recv", 1_000, &by_tick), ("nanosleep", 1, &by_timer)];
        let table = by(by_call, calls, &[9_000_000]);
        assert_eq!((table.text(0, "by"), table.text(0, "resolution")), (Some("tick"), Some("4 ms")));
        assert_eq!((table.text(1, "by"), table.text(1, "resolution")), (Some("hrtimer"), Some("1 ns")));
        assert_eq!(table.number(1, "late"), Some(57.0));
        assert_eq!(table.number(1, "9ms"), Some(9.057));
        let late = table.number(0, "late").unwrap();
        assert!((4_000.0..8_100.0).contains(&late), "{late}");
    }

    #[test]
    fn a_time_below_the_unit_is_rounded_up_to_it() {
        let table = by(by_time, &[("poll", 9_000_000, &|begin| begin + 9_000_000)], &[1_000, 9_000_000]);
        assert_eq!((table.num_rows(), table.number(0, "asked")), (2, Some(9.0)));
        assert_eq!((table.int(0, "early"), table.int(0, "samples")), (Some(0), Some(40)));
        assert_eq!(table.number(0, "max"), Some(0.0));
    }

    #[test]
    fn an_early_return_is_told() {
        let table = by(by_time, &[("nanosleep", 1, &|begin| begin + 8_999_000)], &[9_000_000]);
        assert_eq!((table.int(0, "early"), table.number(0, "p50")), (Some(40), Some(-1.0)));
    }

    #[test]
    fn percentiles_are_values_measured() {
        let hundred: Vec<u64> = (1..=100).collect();
        let of = |p| percentile(&hundred, p).unwrap();
        assert_eq!((of(50.0), of(95.0), of(99.0), of(100.0)), (50, 95, 99, 100));
        assert_eq!(percentile(&[7], 50.0), Some(7));
        assert_eq!(percentile::<u64>(&[], 50.0), None);
    }

    #[test]
    fn phases_that_are_neither_are_not_judged() {
        let part: Vec<u64> = (0..40).map(|n| n * TICK / 100).collect();
        assert_eq!(woken_by(&part, LATE, TICK), None);
        assert_eq!(woken_by(&[1, 2, 3, 4], LATE, TICK), None, "four say nothing");
    }

    #[test]
    fn what_is_disturbed_now_and_then_is_judged_all_the_same() {
        let spread = |n: u64| n * TICK / 40;
        // Some are late by whatever the machine did; ticks lie at the seam of the circle.
        let late = |n: u64| if n.is_multiple_of(3) { spread(n) } else { (TICK + n * 900 - 18_000) % TICK };
        let by_tick: Vec<u64> = (0..40).map(late).collect();
        assert_eq!(woken_by(&by_tick, LATE, TICK), Some("tick"));
        let by_timer: Vec<u64> =
            (0..40).map(|n: u64| if n.is_multiple_of(5) { 20_000 } else { spread(n) }).collect();
        assert_eq!(woken_by(&by_timer, LATE, TICK), Some("hrtimer"));
        assert_eq!(woken_by(&by_tick, Some(60.0), TICK), Some("hrtimer"), "no tick is that quick");
    }

    proptest! {
        #[test]
        fn a_percentile_is_no_less_than_a_lower_one(
            mut values in prop::collection::vec(0u64..1000, 1..200), a in 0.0..100.0f64, b in 0.0..100.0f64
        ) {
            values.sort_unstable();
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(percentile(&values, low) <= percentile(&values, high));
        }
    }
}
