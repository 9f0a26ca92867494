//! What `ncpu top` shows of an interval: rates and shares of what the recording's tables sum.

use std::collections::HashMap;

use ncpu_record::Recording;
use ncpu_schema::{cpu_time, summary, threads, user_locks};
use ncpu_table::{Column, Kind, Result, Table, Unit};

use crate::locks::{self, By, is_futex, is_user_lock};

/// Frames of a waiter's stack that are kept.
const DEPTH: usize = 16;

/// Seconds of a recording; 0 where it does not tell.
pub fn elapsed(recording: &Recording) -> f64 {
    recording.tables.get(summary::NAME).and_then(|s| s.number(0, "elapsed")).unwrap_or(0.0)
}

fn share(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::Percent, Kind::Share, meaning)
}

fn rate(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::PerSecond, Kind::Gauge, meaning)
}

/// Threads that did anything, or with `by_process` processes: times in per cent of the interval, so that a process of two
/// busy threads has 200.
///
/// # Errors
/// A table lacks a column.
pub fn threads(recording: &Recording, by_process: bool) -> Result<Table> {
    let elapsed = elapsed(recording).max(1e-9);
    let mut columns = vec![Column::id("pid", "process")];
    if !by_process {
        columns.push(Column::id("tid", "thread"));
    }
    columns.extend([
        share("CPU", "on CPU, in per cent of one CPU"),
        share("LAT", "runnable, waiting for a CPU"),
        share("LCK", "asleep for a lock"),
        share("SLP", "asleep for anything else"),
        share("spin", "on CPU, spinning in kernel locks"),
        rate("VCX", "voluntary switches"),
        rate("ICX", "involuntary switches"),
        rate("flt", "page faults"),
        Column::text("name", "name of the process"),
        Column::text("thread", "name of the thread"),
    ]);
    let mut out = Table::builder("threads", &columns);
    let Some(raw) = recording.tables.get(threads::NAME) else { return Ok(out.finish()) };
    let grouped;
    let raw = match by_process {
        true => {
            grouped = raw.group_by(&["pid", "process"])?;
            &grouped
        }
        false => raw,
    };
    for row in 0..raw.num_rows() {
        let number = |name: &str| raw.number(row, name);
        let percent = |name: &str| number(name).map(|s| 100.0 * s / elapsed);
        let count = |name: &str| number(name).unwrap_or(0.0);
        if ["CPU", "LAT", "VCX", "ICX"].iter().all(|name| count(name) == 0.0) {
            continue;
        }
        let mut cells = out.row().int_opt(raw.int(row, "pid"));
        if !by_process {
            cells = cells.int_opt(raw.int(row, "tid"));
        }
        for name in ["CPU", "LAT", "LCK", "SLP", "spin"] {
            cells = cells.float_opt(percent(name));
        }
        cells
            .float_opt(number("VCX").map(|n| n / elapsed))
            .float_opt(number("ICX").map(|n| n / elapsed))
            .float((count("minf") + count("majf")) / elapsed)
            .text_opt(raw.text(row, "process"))
            .text_opt(raw.text(row, "thread").filter(|_| !by_process));
    }
    Ok(out.finish())
}

/// Locks that were waited for, the kernel's and the programs'.
///
/// # Errors
/// A table lacks a column.
pub fn locks(recording: &Recording) -> Result<Table> {
    let elapsed = elapsed(recording).max(1e-9);
    let capacity = locks::capacity(recording).max(1e-9);
    let mut out = Table::builder(
        "locks",
        &[
            Column::text("lock", "symbol of the lock, or its address"),
            Column::text("name", "the name that says most, and the process"),
            Column::text("type", "spinlock, mutex, futex …"),
            Column::float("waiting", Unit::Figure, Kind::Gauge, "threads that wait for it, on average"),
            share("util", "share of capacity spent spinning for it"),
            rate("waits", "contended acquisitions"),
            Column::float("spin_us", Unit::Microseconds, Kind::Mean, "mean wait on CPU"),
            Column::float("block_us", Unit::Microseconds, Kind::Mean, "mean wait off CPU"),
            Column::float("max", Unit::Microseconds, Kind::Peak, "longest wait"),
            Column::text("process", "the waiting process, of a program's lock"),
        ],
    );
    let mut add = |table: &Table, row: usize, name: &str, process: Option<&str>| {
        let number = |name: &str| table.number(row, name).unwrap_or(0.0);
        let count = number("count").max(1.0);
        let told = !table.text(row, "type").is_some_and(|kind| process.is_some() && is_futex(kind));
        let spin = Some(number("spin")).filter(|_| told);
        out.row()
            .text_opt(table.text(row, "lock"))
            .text(name)
            .text_opt(table.text(row, "type"))
            .float((spin.unwrap_or(0.0) + number("block")) / elapsed)
            .float_opt(spin.map(|s| 100.0 * s / capacity))
            .float(number("count") / elapsed)
            .float_opt(spin.map(|s| 1e6 * s / count))
            .float(1e6 * number("block") / count)
            .float(number("max"))
            .text_opt(process);
    };
    let kernel = locks::table(recording, By::Lock, 0);
    (0..kernel.num_rows()).for_each(|row| add(&kernel, row, kernel.text(row, "lock").unwrap_or("?"), None));
    if let Some(all) = recording.tables.get(user_locks::NAME) {
        let keys = ["lock", "type", "process"];
        // The place that is waited at longest gives a lock its name.
        let key = |table: &Table, row: usize| keys.map(|key| table.text(row, key).map(str::to_owned));
        let waited = |row: usize| ["spin", "block"].iter().filter_map(|c| all.number(row, c)).sum::<f64>();
        let mut longest: HashMap<_, usize> = HashMap::new();
        for row in 0..all.num_rows() {
            let most = longest.entry(key(all, row)).or_insert(row);
            if waited(row) > waited(*most) {
                *most = row;
            }
        }
        let user = all.group_by(&keys)?;
        for row in (0..user.num_rows()).filter(|&row| user.text(row, "type").is_some_and(is_user_lock)) {
            let process = user.text(row, "process").unwrap_or("?");
            let most = longest.get(&key(&user, row)).copied();
            let of = |column: &str| most.and_then(|row| all.text(row, column));
            let [lock, kind] = ["lock", "type"].map(|column| user.text(row, column).unwrap_or(""));
            let name = locks::user_lock_name(lock, kind, of("caller"), of("pattern"));
            add(&user, row, &format!("{name} of {process}"), Some(process));
        }
    }
    Ok(out.finish())
}

/// Who waits for the locks of [`locks`], with stacks, innermost frame first.
pub fn waiters(recording: &Recording) -> Table {
    let mut out = Table::builder(
        "waiters",
        &[
            Column::text("lock", "name of the lock"),
            Column::text("type", "spinlock, mutex, futex …"),
            Column::text("process", "the waiting process, of a program's lock"),
            Column::text("caller", "the function that asked for it"),
            Column::text("holder", "the thread most of the wait is blamed on"),
            Column::count("count", "contended acquisitions"),
            Column::float("spin", Unit::Seconds, Kind::Time, "time waiting on CPU"),
            Column::float("block", Unit::Seconds, Kind::Time, "time waiting off CPU"),
            Column::text("stack", "callers, innermost first"),
        ],
    );
    let kernel = Some(locks::table(recording, By::LockAndCaller, DEPTH));
    for (table, user) in [(kernel, false), (locks::user_table(recording, false, DEPTH), true)] {
        let Some(table) = table else { continue };
        for row in 0..table.num_rows() {
            let text = |name: &str| table.text(row, name);
            out.row()
                .text_opt(text("lock"))
                .text_opt(text("type"))
                .text_opt(text("process").filter(|_| user))
                .text_opt(text("caller"))
                .text_opt(text("holder").filter(|_| user))
                .int_opt(table.int(row, "count"))
                .float_opt(table.number(row, "spin"))
                .float_opt(table.number(row, "block"))
                .text_opt(text("stack"));
        }
    }
    out.finish()
}

/// What each CPU did, in per cent of its time.
pub fn cpus(recording: &Recording) -> Table {
    const STATES: [(&str, &str, &str); 8] = [
        ("target", "prog", "threads of the program"),
        ("other", "othr", "other programs"),
        ("spin", "spin", "in a kernel lock's slow path"),
        ("hardirq", "intr", "interrupts"),
        ("softirq", "soft", "softirqs"),
        ("tlb", "tlb", "answering TLB shootdowns"),
        ("ncpu", "ncpu", "ncpu itself"),
        ("idle", "idl", "idle"),
    ];
    let mut columns = vec![Column::id("CPU", "CPU number")];
    columns.extend(STATES.map(|(_, name, meaning)| share(name, meaning)));
    let mut out = Table::builder("cpus", &columns);
    let Some(raw) = recording.tables.get(cpu_time::NAME) else { return out.finish() };
    for row in 0..raw.num_rows() {
        let spent = STATES.map(|(state, ..)| raw.number(row, state).unwrap_or(0.0));
        let all: f64 = spent.iter().sum();
        let cells = out.row().int_opt(raw.int(row, "CPU"));
        spent.into_iter().fold(cells, |cells, s| cells.float(100.0 * s / all.max(1e-9)));
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use ncpu_record::{Gather, Manifest};
    use ncpu_schema::Purpose;

    use super::*;
    use crate::fixtures::table;

    /// Two seconds of two CPUs.
    fn recording() -> Recording {
        let mut gather = Gather::new(Manifest::new(Purpose::Watch, 2, vec!["the machine".into()], 2.0));
        let tables = [
            table("summary", &[], &["elapsed", "cpus", "hz"], &[(&[], &[2.0, 2.0, 99.0])]),
            table(
                "cpu_time",
                &[],
                &["CPU", "target", "spin", "idle"],
                &[(&[], &[0.0, 1.0, 0.5, 0.5]), (&[], &[1.0, 0.0, 0.0, 2.0])],
            ),
            table(
                "threads",
                &["process", "thread"],
                &["pid", "tid", "CPU", "LAT", "LCK", "SLP", "spin", "VCX", "ICX", "minf", "majf"],
                &[
                    (&["db", "worker"], &[7.0, 8.0, 1.0, 0.2, 0.4, 0.4, 0.5, 10.0, 4.0, 5.0, 1.0]),
                    (&["db", "worker"], &[7.0, 9.0, 0.5, 0.0, 0.0, 1.5, 0.0, 2.0, 0.0, 0.0, 0.0]),
                    (&["db", "idle"], &[7.0, 10.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
                ],
            ),
            table(
                "locks",
                &["lock", "type", "process"],
                &["count", "spin", "block", "max"],
                &[
                    (&["pcf", "spinlock", "db"], &[100.0, 0.4, 0.0, 90.0]),
                    (&["pcf", "spinlock", "make"], &[100.0, 0.1, 0.0, 70.0]),
                ],
            ),
            table(
                "user_locks",
                &["lock", "type", "process", "caller", "holder", "stack"],
                &["pid", "count", "spin", "block", "max"],
                &[
                    (&["queue", "lock", "db", "push", "db/9", "push;main"], &[7.0, 4.0, 0.0, 0.8, 400.0]),
                    (&["idlers", "condition", "db", "pop", "", ""], &[7.0, 4.0, 0.0, 9.0, 900.0]),
                ],
            ),
        ];
        tables.iter().for_each(|t| gather.append(t).unwrap());
        gather.finish().unwrap()
    }

    #[test]
    fn threads_in_per_cent_of_the_interval() {
        let all = threads(&recording(), false).unwrap();
        assert_eq!(all.num_rows(), 2, "who did nothing is left out");
        assert_eq!(
            (all.int(0, "tid"), all.number(0, "CPU"), all.number(0, "LCK")),
            (Some(8), Some(50.0), Some(20.0))
        );
        assert_eq!((all.number(0, "VCX"), all.number(0, "flt")), (Some(5.0), Some(3.0)));
        assert_eq!((all.text(0, "name"), all.text(0, "thread")), (Some("db"), Some("worker")));
        let processes = threads(&recording(), true).unwrap();
        assert_eq!((processes.num_rows(), processes.number(0, "CPU")), (1, Some(75.0)));
    }

    #[test]
    fn locks_of_the_kernel_and_of_programs() {
        let all = locks(&recording()).unwrap();
        assert_eq!(all.num_rows(), 2, "conditions are no locks");
        assert_eq!((all.text(0, "lock"), all.text(0, "process")), (Some("pcf"), None));
        assert_eq!((all.number(0, "util"), all.number(0, "waiting")), (Some(12.5), Some(0.25)));
        assert_eq!((all.number(0, "waits"), all.number(0, "spin_us")), (Some(100.0), Some(2500.0)));
        assert_eq!((all.text(1, "lock"), all.text(1, "process")), (Some("queue"), Some("db")));
        assert_eq!(
            (all.number(1, "util"), all.number(1, "waiting")),
            (None, Some(0.4)),
            "spinning is not known"
        );
        let who = waiters(&recording());
        let row = (0..who.num_rows()).find(|&r| who.text(r, "lock") == Some("queue")).unwrap();
        assert_eq!((who.text(row, "holder"), who.text(row, "stack")), (Some("db/9"), Some("push;main")));
    }

    #[test]
    fn cpus_in_per_cent_of_their_time() {
        let all = cpus(&recording());
        assert_eq!(
            (all.number(0, "prog"), all.number(0, "spin"), all.number(0, "idl")),
            (Some(50.0), Some(25.0), Some(25.0))
        );
        assert_eq!(all.number(1, "idl"), Some(100.0));
    }
}
