//! A herd of threads that poll nothing: calls and switches a second, beside what to expect.

use ncpu_schema::herd;
use ncpu_table::{Column, Kind, Table, Unit};

/// A row for each time asked for; `tick` is the length of a tick, ns.
pub fn herd(raw: &herd::Reader<'_>, tick: u64) -> Table {
    let rate = |name: &str, meaning: &str| Column::float(name, Unit::PerSecond, Kind::Mean, meaning);
    let mut out = Table::builder(
        "herd",
        &[
            Column::int("asked", Unit::Milliseconds, Kind::Gauge, "timeout of each call"),
            Column::int("threads", Unit::None, Kind::Gauge, "threads that poll"),
            rate("calls", "calls of poll that returned"),
            rate("expected", "calls if each took just its timeout"),
            rate("by_tick", "calls if a tick of this kernel ended each timeout"),
            rate("by_100Hz", "calls if a tick of 10 ms did, as in Solaris"),
            rate("vcx", "voluntary switches of the threads"),
            rate("icx", "involuntary switches of the threads"),
            rate("machine", "switches of the whole machine, those to and from idle too"),
            Column::count("early", "calls that returned before their time"),
        ],
    );
    for row in raw.rows() {
        let (ms, threads) = (raw.ms.get(row).unwrap_or(0), raw.threads.get(row).unwrap_or(0));
        let elapsed = raw.elapsed.get(row).unwrap_or(0.0).max(f64::MIN_POSITIVE);
        let per_second = |count: Option<u64>| count.map(|n| n as f64 / elapsed);
        let each = ms as f64;
        out.row()
            .int(ms)
            .int(threads)
            .float_opt(per_second(raw.calls.get(row)))
            .float(threads as f64 * 1e3 / each.max(f64::MIN_POSITIVE))
            .float(threads as f64 * ticked(each, tick as f64 / 1e6))
            .float(threads as f64 * ticked(each, 10.0))
            .float_opt(per_second(raw.voluntary.get(row)))
            .float_opt(per_second(raw.involuntary.get(row)))
            .float_opt(raw.machine.get(row))
            .int_opt(raw.early.get(row));
    }
    out.finish()
}

/// Calls a second of a thread whose every call begins just behind a tick and ends with the first tick
/// after its time.
fn ticked(ms: f64, tick_ms: f64) -> f64 {
    1e3 / (((ms / tick_ms).floor() + 1.0) * tick_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_polls_makes_as_many_calls_as_ticks_allow() {
        assert_eq!([9.0, 10.0, 11.0].map(|ms| ticked(ms, 10.0)), [100.0, 50.0, 50.0]);
        assert_eq!(ticked(9.0, 4.0), 1e3 / 12.0);
    }

    #[test]
    fn rates_are_of_the_time_it_ran() {
        let mut raw = herd::Rows::new();
        raw.push(herd::Row {
            ms: Some(10),
            threads: Some(100),
            elapsed: Some(2.0),
            calls: Some(19_880),
            early: Some(0),
            voluntary: Some(19_900),
            involuntary: Some(40),
            machine: None,
        });
        let t = herd(&herd::Reader::of(&raw.finish()).unwrap(), 4_000_000);
        assert_eq!((t.number(0, "calls"), t.number(0, "expected")), (Some(9_940.0), Some(10_000.0)));
        assert_eq!((t.number(0, "by_100Hz"), t.number(0, "machine")), (Some(5_000.0), None));
    }
}
