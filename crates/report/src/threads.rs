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
    let busy = |r: usize| number(r, "USR") + number(r, "SYS") + number(r, "TRP");
    let mut rows: Vec<usize> = (0..raw.num_rows())
        .filter(|&r| every || busy(r) > 0.0 || number(r, "VCX") + number(r, "ICX") + number(r, "LAT") > 0.0)
        .collect();
    rows.sort_by(|&a, &b| busy(b).total_cmp(&busy(a)));
    let mut out = Table::builder("threads", &columns);
    for r in rows {
        let time: f64 = STATES.iter().map(|s| number(r, s)).sum();
        let mut row = out.row().int_opt(raw.int(r, "pid"));
        if !by_process {
            row = row.int_opt(raw.int(r, "tid"));
        }
        for s in STATES {
            row = row.float_opt((time > 0.0).then(|| 100.0 * number(r, s) / time));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_of_each_threads_own_time() {
        let mut columns = vec![
            Column::id("pid", ""),
            Column::id("tid", ""),
            Column::text("process", ""),
            Column::text("thread", ""),
        ];
        columns.extend(STATES.iter().map(|s| Column::float(s, Unit::Seconds, Kind::Time, "")));
        columns.extend(COUNTS.iter().map(|c| Column::count(c, "")));
        let mut b = Table::builder("threads", &columns);
        let mut add = |tid: u64, times: [f64; 8], vcx: u64| {
            let mut row = b.row().int(7).int(tid).text("db").text("worker");
            for t in times {
                row = row.float(t);
            }
            row.int(vcx);
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
}
