//! What `ncpu top` shows of an interval: rates and shares of what the recording's tables sum.

use std::collections::HashMap;

use ncpu_record::Recording;
use ncpu_schema::{
    CpuState, Error, Microstate, cpu_time, locks as kernel_locks, summary, threads, user_locks,
};
use ncpu_table::{Column, Kind, Table, Unit};

use crate::locks::{self, By, is_futex, is_user_lock};
use crate::tenants::Tenancy;

/// Frames of a waiter's stack that are kept.
const DEPTH: usize = 16;

/// Seconds of a recording; 0 where they were not recorded.
///
/// # Errors
/// The table is not what the schema says.
pub fn elapsed(recording: &Recording) -> Result<f64, Error> {
    Ok(summary::Reader::open(recording)?.and_then(|s| s.elapsed.get(0)).unwrap_or(0.0))
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
/// A table is not what the schema says.
pub fn threads(recording: &Recording, by_process: bool) -> Result<Table, Error> {
    let elapsed = elapsed(recording)?.max(1e-9);
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
    use threads::col;
    let grouped = match by_process {
        true => ncpu_schema::grouped(recording, threads::NAME, &[col::pid, col::process])?,
        false => recording.tables.get(threads::NAME).cloned(),
    };
    let Some(grouped) = grouped else { return Ok(out.finish()) };
    let t = threads::Reader::grouped(&grouped)?;
    for row in t.rows() {
        let state = |state| t.micro.get(row, state);
        let (vcx, icx) = (t.vcx.get(row), t.icx.get(row));
        let ran = |time: Option<f64>| time.is_some_and(|s| s != 0.0);
        let switched = |n: Option<u64>| n.is_some_and(|n| n != 0);
        if !ran(t.cpu.get(row)) && !ran(state(Microstate::Lat)) && !switched(vcx) && !switched(icx) {
            continue;
        }
        let mut cells = out.row().int_opt(t.pid.get(row));
        if !by_process {
            cells = cells.int_opt(t.tid.get(row));
        }
        let (lat, lck, slp) = (state(Microstate::Lat), state(Microstate::Lck), state(Microstate::Slp));
        for time in [t.cpu.get(row), lat, lck, slp, t.spin.get(row)] {
            cells = cells.float_opt(time.map(|s| 100.0 * s / elapsed));
        }
        let faults = t.minf.get(row).unwrap_or(0) + t.majf.get(row).unwrap_or(0);
        cells
            .float_opt(vcx.map(|n| n as f64 / elapsed))
            .float_opt(icx.map(|n| n as f64 / elapsed))
            .float(faults as f64 / elapsed)
            .text_opt(t.process.get(row))
            .text_opt(t.thread.get(row).filter(|_| !by_process));
    }
    Ok(out.finish())
}

/// Tenants, most first: their share of the capacity, the threads that wait because of others, and whom most.
pub fn tenants(tenancy: &Tenancy) -> Table {
    let mut out = Table::builder(
        "tenants",
        &[
            share("share", "share of capacity that it had on CPUs"),
            Column::float(
                "waiting",
                Unit::Figure,
                Kind::Gauge,
                "threads that wait because of others, on average",
            ),
            Column::text("tenant", "its name"),
            Column::text("culprit", "what it loses most to"),
        ],
    );
    let (elapsed, capacity) = (tenancy.elapsed.max(1e-9), tenancy.capacity.max(1e-9));
    let victims = tenancy.victims();
    for part in &tenancy.parts {
        let Some(name) = part.name.as_deref() else { continue };
        let lost = victims.iter().find(|(victim, _)| *victim == name).map_or(0.0, |(_, seconds)| *seconds);
        let most = tenancy.losses.iter().find(|lost| lost.victim == name && lost.to_another());
        let most = most.filter(|lost| lost.threads >= 1e-3 * elapsed);
        let words = most.and_then(|lost| {
            let how = lost.lock.as_deref().unwrap_or(lost.cause.name());
            Some(format!("{}: {how}", lost.culprit.as_deref()?))
        });
        out.row()
            .float(100.0 * part.busy() / capacity)
            .float(lost / elapsed)
            .text(name)
            .text_opt(words.as_deref());
    }
    out.finish()
}

/// Locks that were waited for, the kernel's and the programs'.
///
/// # Errors
/// A table is not what the schema says.
pub fn locks(recording: &Recording) -> Result<Table, Error> {
    let elapsed = elapsed(recording)?.max(1e-9);
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
    let mut add = |lock: Option<&str>, ty: Option<&str>, name: &str, process: Option<&str>, wait: Wait| {
        let count = (wait.count as f64).max(1.0);
        out.row()
            .text_opt(lock)
            .text(name)
            .text_opt(ty)
            .float((wait.spin.unwrap_or(0.0) + wait.block) / elapsed)
            .float_opt(wait.spin.map(|s| 100.0 * s / capacity))
            .float(wait.count as f64 / elapsed)
            .float_opt(wait.spin.map(|s| 1e6 * s / count))
            .float(1e6 * wait.block / count)
            .float(wait.max)
            .text_opt(process);
    };
    let keys = [kernel_locks::col::lock, kernel_locks::col::ty];
    if let Some(grouped) = ncpu_schema::grouped(recording, kernel_locks::NAME, &keys)? {
        let t = kernel_locks::Reader::grouped(&grouped)?;
        let wait = |r| Wait {
            count: t.count.get(r).unwrap_or(0),
            spin: Some(t.spin.get(r).unwrap_or(0.0)),
            block: t.block.get(r).unwrap_or(0.0),
            max: t.max.get(r).unwrap_or(0.0),
        };
        let mut rows: Vec<(usize, Wait)> = t.rows().map(|r| (r, wait(r))).collect();
        rows.sort_by(|(_, a), (_, b)| {
            b.spin.partial_cmp(&a.spin).unwrap_or(std::cmp::Ordering::Equal).then(b.block.total_cmp(&a.block))
        });
        for (r, wait) in rows {
            let lock = t.lock.get(r);
            add(lock, t.ty.get(r), lock.unwrap_or("?"), None, wait);
        }
    }
    use user_locks::col;
    if let Some((grouped, all)) =
        ncpu_schema::grouped(recording, user_locks::NAME, &[col::lock, col::ty, col::process])?
            .zip(recording.tables.get(user_locks::NAME))
    {
        let (t, all) = (user_locks::Reader::grouped(&grouped)?, user_locks::Reader::grouped(all)?);
        // The place that is waited at longest gives a lock its name.
        let waited = |row| all.spin.get(row).unwrap_or(0.0) + all.block.get(row).unwrap_or(0.0);
        let mut longest: HashMap<_, usize> = HashMap::new();
        for row in all.rows() {
            let most = longest.entry([all.lock, all.ty, all.process].map(|c| c.get(row))).or_insert(row);
            if waited(row) > waited(*most) {
                *most = row;
            }
        }
        for r in t.rows().filter(|&r| t.ty.get(r).is_some_and(is_user_lock)) {
            let key = [t.lock, t.ty, t.process].map(|c| c.get(r));
            let (process, kind) = (key[2].unwrap_or("?"), key[1].unwrap_or(""));
            let most = longest.get(&key).copied();
            let (caller, pattern) =
                (most.and_then(|row| all.caller.get(row)), most.and_then(|row| all.pattern.get(row)));
            let name = locks::user_lock_name(key[0].unwrap_or(""), kind, caller, pattern);
            let wait = Wait {
                count: t.count.get(r).unwrap_or(0),
                spin: Some(t.spin.get(r).unwrap_or(0.0)).filter(|_| !is_futex(kind)),
                block: t.block.get(r).unwrap_or(0.0),
                max: t.max.get(r).unwrap_or(0.0),
            };
            add(key[0], key[1], &format!("{name} of {process}"), Some(process), wait);
        }
    }
    Ok(out.finish())
}

/// Waits for a lock; how long waiters of a futex spun is not known.
struct Wait {
    count: u64,
    spin: Option<f64>,
    block: f64,
    max: f64,
}

/// Waiters of the locks of [`locks`], with stacks, innermost frame first.
///
/// # Errors
/// A table is not what the schema says.
pub fn waiters(recording: &Recording) -> Result<Table, Error> {
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
    let kernel = Some(locks::table(recording, By::LockAndCaller, DEPTH)?);
    for (table, user) in [(kernel, false), (locks::user_table(recording, false, DEPTH)?, true)] {
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
    Ok(out.finish())
}

/// Time of each CPU by state, in per cent.
///
/// # Errors
/// The table is not what the schema says.
pub fn cpus(recording: &Recording) -> Result<Table, Error> {
    const STATES: [(CpuState, &str, &str); 8] = [
        (CpuState::Program, "prog", "threads of the program"),
        (CpuState::Others, "othr", "other programs"),
        (CpuState::Spin, "spin", "in a kernel lock's slow path"),
        (CpuState::Hardirq, "intr", "interrupts"),
        (CpuState::Softirq, "soft", "softirqs"),
        (CpuState::Tlb, "tlb", "answering TLB shootdowns"),
        (CpuState::Ncpu, "ncpu", "ncpu itself"),
        (CpuState::Idle, "idl", "idle"),
    ];
    let mut columns = vec![Column::id("CPU", "CPU number")];
    columns.extend(STATES.map(|(_, name, meaning)| share(name, meaning)));
    let mut out = Table::builder("cpus", &columns);
    let Some(t) = cpu_time::Reader::open(recording)? else { return Ok(out.finish()) };
    for row in t.rows() {
        let spent = STATES.map(|(state, ..)| t.spent.get(row, state).unwrap_or(0.0));
        let all: f64 = spent.iter().sum();
        let cells = out.row().int_opt(t.cpu.get(row));
        spent.into_iter().fold(cells, |cells, s| cells.float(100.0 * s / all.max(1e-9)));
    }
    Ok(out.finish())
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
        assert_eq!(all.num_rows(), 2, "threads that did nothing are left out");
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
        let who = waiters(&recording()).unwrap();
        let row = (0..who.num_rows()).find(|&r| who.text(r, "lock") == Some("queue")).unwrap();
        assert_eq!((who.text(row, "holder"), who.text(row, "stack")), (Some("db/9"), Some("push;main")));
    }

    #[test]
    fn cpus_in_per_cent_of_their_time() {
        let all = cpus(&recording()).unwrap();
        assert_eq!(
            (all.number(0, "prog"), all.number(0, "spin"), all.number(0, "idl")),
            (Some(50.0), Some(25.0), Some(25.0))
        );
        assert_eq!(all.number(1, "idl"), Some(100.0));
    }
}
