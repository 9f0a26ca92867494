//! A herd of threads that poll nothing: calls and switches a second, beside what to expect.

use ncpu_table::{Column, Kind, Table, Unit};

/// A row for each time asked for. `raw` is table `herd`; `tick` the length of a tick, ns.
pub fn herd(raw: &Table, tick: u64) -> Table {
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
    for row in 0..raw.num_rows() {
        let number = |column: &str| raw.number(row, column).unwrap_or(0.0);
        let (ms, threads, elapsed) = (number("ms"), number("threads"), number("elapsed"));
        let per_second = |column: &str| raw.number(row, column).map(|n| n / elapsed.max(f64::MIN_POSITIVE));
        out.row()
            .int(ms as u64)
            .int(threads as u64)
            .float_opt(per_second("calls"))
            .float(threads * 1e3 / ms.max(f64::MIN_POSITIVE))
            .float(threads * ticked(ms, tick as f64 / 1e6))
            .float(threads * ticked(ms, 10.0))
            .float_opt(per_second("voluntary"))
            .float_opt(per_second("involuntary"))
            .float_opt(raw.number(row, "machine"))
            .int_opt(raw.int(row, "early"));
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
    fn the_threads_documents_figures() {
        assert_eq!([9.0, 10.0, 11.0].map(|ms| ticked(ms, 10.0)), [100.0, 50.0, 50.0]);
        assert_eq!(ticked(9.0, 4.0), 1e3 / 12.0);
    }

    #[test]
    fn rates_are_of_the_time_it_ran() {
        let int = |name: &str| Column::count(name, "");
        let columns = ["ms", "threads", "calls", "early", "voluntary", "involuntary", "machine"].map(int);
        let mut b = Table::builder(
            "herd",
            &[&columns[..], &[Column::float("elapsed", Unit::Seconds, Kind::Time, "")]].concat(),
        );
        b.row().int(10).int(100).int(19_880).int(0).int(19_900).int(40).null().float(2.0);
        let t = herd(&b.finish(), 4_000_000);
        assert_eq!((t.number(0, "calls"), t.number(0, "expected")), (Some(9_940.0), Some(10_000.0)));
        assert_eq!((t.number(0, "by_100Hz"), t.number(0, "machine")), (Some(5_000.0), None));
    }
}
