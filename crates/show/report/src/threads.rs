//! Microstates as `prstat -mL` prints them.

use ncpu_table::{Column, Kind, Table, Unit};

const STATES: [&str; 8] = ["USR", "SYS", "TRP", "TFL", "DFL", "LCK", "SLP", "LAT"];
const COUNTS: [&str; 6] = ["VCX", "ICX", "SCL", "SIG", "minf", "majf"];

/// One interval's threads: each microstate in per cent of the thread's own time (a thread that began
/// or ended inside the interval has less), busiest first.
///
/// `raw` is table `threads` of an observation, in seconds. With `by_process` a row is a process, its
/// threads' times put together. Threads that slept all the time are left out unless `every`.
pub fn table(raw: &Table, by_process: bool, every: bool) -> Table {
    let grouped;
    let raw = if by_process {
        match raw.group_by(&["pid", "process"]) {
            Ok(t) => {
                grouped = t;
                &grouped
            }
            Err(_) => raw,
        }
    } else {
        raw
    };
    let mut columns = vec![Column::id("PID", "process")];
    if !by_process {
        columns.push(Column::id("TID", "thread"));
    }
    let meanings = [
        "in user code",
        "in system calls",
        "in page faults",
        "asleep for a page of code",
        "asleep for a page of data",
        "asleep for a lock, the kernel's or the program's",
        "asleep for anything else",
        "runnable, waiting for a CPU",
    ];
    columns.extend(STATES.iter().zip(meanings).map(|(s, m)| Column::float(s, Unit::Percent, Kind::Share, m)));
    let merged = (0..raw.num_rows()).any(|r| raw.number(r, "OFF").is_some());
    if merged {
        columns.push(Column::float(
            "OFF",
            Unit::Percent,
            Kind::Share,
            "asleep for anything: TFL, DFL, LCK and SLP together",
        ));
    }
    columns.push(Column::float(
        "NCPU",
        Unit::Percent,
        Kind::Share,
        "in ncpu's tracing of its calls and faults",
    ));
    let sampled = (0..raw.num_rows()).any(|r| raw.number(r, "error").is_some());
    if sampled {
        columns.push(Column::float(
            "+-",
            Unit::Percent,
            Kind::Share,
            "half-width of the 95 % interval of USR, and of SYS and TRP together, where they are sampled",
        ));
    }
    let meanings = [
        "voluntary switches",
        "involuntary switches",
        "system calls",
        "signals",
        "minor faults",
        "major faults",
    ];
    columns.extend(COUNTS.iter().zip(meanings).map(|(c, m)| Column::count(c, m)));
    columns.push(Column::float("time", Unit::Seconds, Kind::Time, "the time the percentages are of"));
    columns.push(Column::text("process", "name of the process"));
    if !by_process {
        columns.push(Column::text("thread", "name of the thread"));
    }
    let number = |r: usize, c: &str| raw.number(r, c).unwrap_or(0.0);
    let busy = |r: usize| on_cpu(raw, r);
    let mut rows: Vec<usize> = (0..raw.num_rows())
        .filter(|&r| every || busy(r) > 0.0 || number(r, "VCX") + number(r, "ICX") + number(r, "LAT") > 0.0)
        .collect();
    rows.sort_by(|&a, &b| busy(b).total_cmp(&busy(a)));
    let mut out = Table::builder("threads", &columns);
    for r in rows {
        let time = lived(raw, r);
        let mut row = out.row().int_opt(raw.int(r, "pid"));
        if !by_process {
            row = row.int_opt(raw.int(r, "tid"));
        }
        for s in STATES {
            row = row.float_opt(raw.number(r, s).filter(|_| time > 0.0).map(|s| 100.0 * s / time));
        }
        if merged {
            row = row.float_opt(raw.number(r, "OFF").filter(|_| time > 0.0).map(|s| 100.0 * s / time));
        }
        let own = raw.number(r, "NCPU");
        row = row.float_opt(own.filter(|_| time > 0.0).map(|own| 100.0 * own / time));
        if sampled {
            row = row.float_opt(raw.number(r, "error").filter(|_| time > 0.0).map(|e| 100.0 * e / time));
        }
        for c in COUNTS {
            row = row.int_opt(raw.int(r, c));
        }
        row = row.float(time).text_opt(raw.text(r, "process"));
        if !by_process {
            row.text_opt(raw.text(r, "thread"));
        }
    }
    out.finish()
}

/// Seconds on CPU: a column of its own where user code and calls are not separate.
pub(crate) fn on_cpu(threads: &Table, row: usize) -> f64 {
    let split = || ["USR", "SYS", "TRP"].iter().filter_map(|c| threads.number(row, c)).sum();
    threads.number(row, "CPU").unwrap_or_else(split)
}

/// Seconds that a thread lived in an interval, whatever it did.
pub(crate) fn lived(threads: &Table, row: usize) -> f64 {
    let off = ["TFL", "DFL", "LCK", "SLP", "LAT", "OFF"];
    on_cpu(threads, row) + off.iter().filter_map(|c| threads.number(row, c)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_of_each_threads_own_time() {
        let mut b = ncpu_schema::threads::Rows::new();
        let mut add = |tid: u64, times: [f64; 8], vcx: u64| {
            b.push(ncpu_schema::threads::Row {
                pid: Some(7),
                tid: Some(tid),
                process: "db".into(),
                thread: "worker".into(),
                micro: ncpu_schema::Per::new(|state| Some(times[state as usize])),
                vcx: Some(vcx),
                ..Default::default()
            });
        };
        add(1, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0], 0);
        add(2, [0.1, 0.1, 0.0, 0.0, 0.0, 0.2, 0.1, 0.0], 3);
        let raw = b.finish();
        let t = table(&raw, false, false);
        assert_eq!((t.num_rows(), t.int(0, "TID")), (1, Some(2)), "the thread that slept is left out");
        let sum: f64 = STATES.iter().map(|s| t.number(0, s).unwrap()).sum();
        assert!((sum - 100.0).abs() < 1e-9);
        assert!((t.number(0, "LCK").unwrap() - 40.0).abs() < 1e-9);
        assert_eq!(table(&raw, true, true).num_rows(), 1);
    }

    #[test]
    fn what_was_not_measured_is_not_nothing() {
        let mut columns = vec![Column::id("pid", ""), Column::id("tid", "")];
        columns.extend(
            ["USR", "SYS", "LCK", "SLP", "CPU"].map(|s| Column::float(s, Unit::Seconds, Kind::Time, "")),
        );
        columns.extend(["VCX", "SCL"].map(|c| Column::count(c, "")));
        let mut raw = Table::builder("threads", &columns);
        raw.row().int(7).int(7).null().null().float(1.0).float(0.0).float(3.0).int(5).null();
        let t = table(&raw.finish(), false, false);
        assert_eq!((t.number(0, "USR"), t.number(0, "SYS"), t.int(0, "SCL")), (None, None, None));
        assert_eq!(
            (t.number(0, "LCK"), t.number(0, "time"), t.int(0, "VCX")),
            (Some(25.0), Some(4.0), Some(5))
        );
    }
}
