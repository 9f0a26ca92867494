//! Time of each CPU in the kernel's housekeeping, and CPU 0 against the rest.

use ncpu_schema::{Doing, cpu_doings};
use ncpu_table::{Column, Kind, Table, Unit};

/// Columns of the view, what each is the sum of, and its meaning.
const SHARES: [(&str, &[Doing], &str); 7] = [
    ("tick", &[Doing::Tick], "the tick's handler"),
    (
        "timer",
        &[Doing::TimerIrq, Doing::Hrtimers, Doing::Timer, Doing::Hrtimer],
        "other timers: interrupts, handlers, softirqs",
    ),
    ("sched", &[Doing::Sched, Doing::Migration], "load balancing: softirq SCHED, migration threads"),
    ("rcu", &[Doing::Rcu, Doing::RcuThreads], "RCU: softirq and threads"),
    ("work", &[Doing::Kworker], "workqueues"),
    ("kthr", &[Doing::Ksoftirqd, Doing::Kthreads], "ksoftirqd and other kernel threads"),
    (
        "soft",
        &[Doing::Hi, Doing::NetTx, Doing::NetRx, Doing::Block, Doing::IrqPoll, Doing::Tasklet],
        "softirqs of devices and the network",
    ),
];

/// A row for each CPU: per cent of its time by kind of housekeeping, `all` their sum.
pub fn doings(raw: &cpu_doings::Reader<'_>) -> Table {
    let share = |name: &str, kind, meaning: &str| Column::float(name, Unit::Percent, kind, meaning);
    let rate = |name: &str, meaning: &str| Column::float(name, Unit::PerSecond, Kind::Count, meaning);
    let mut columns = vec![Column::id("CPU", "CPU number"), share("all", Kind::Share, "all housekeeping")];
    columns.extend(SHARES.iter().map(|(name, _, meaning)| share(name, Kind::Share, meaning)));
    columns.push(rate("ticks", "runs of the tick's handler"));
    columns.push(rate("jiffies", "ticks in which the kernel's time advanced: all of them where it is kept"));
    columns.push(share("programs", Kind::Mean, "threads of programs: user code and system calls"));
    columns.push(share("idle", Kind::Mean, "idle"));
    let mut out = Table::builder("housekeeping", &columns);
    for row in raw.rows() {
        let elapsed = raw.elapsed.get(row).unwrap_or(0.0).max(f64::MIN_POSITIVE);
        let percent = |doings: &[Doing]| {
            100.0 * doings.iter().filter_map(|d| raw.spent.get(row, *d)).sum::<f64>() / elapsed
        };
        let shares = SHARES.map(|(_, doings, _)| percent(doings));
        let mut cells = out.row().int_opt(raw.cpu.get(row)).float(shares.iter().sum());
        for share in shares {
            cells = cells.float(share);
        }
        cells
            .float_opt(raw.ticks.get(row).map(|n| n as f64 / elapsed))
            .float_opt(raw.jiffies.get(row).map(|n| n as f64 / elapsed))
            .float(percent(&[Doing::Programs]))
            .float(percent(&[Doing::Idle]));
    }
    out.finish()
}

/// CPU 0 against the rest, and the CPU that keeps the time, in words; `table` is the result of [`doings`],
/// `tick` the length of a tick, ns.
pub fn doings_line(table: &Table, tick: u64) -> String {
    let rows = || (0..table.num_rows()).filter_map(|r| Some((table.int(r, "CPU")?, table.number(r, "all")?)));
    let mut line = String::new();
    if let Some((_, zero)) = rows().find(|(cpu, _)| *cpu == 0) {
        line += &format!("housekeeping takes {zero:.2} % of CPU 0");
        let rest: Vec<(u64, f64)> = rows().filter(|(cpu, _)| *cpu != 0).collect();
        if let Some((most_cpu, most)) = rest.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
            let mean = rest.iter().map(|(_, all)| all).sum::<f64>() / rest.len() as f64;
            line += &format!(
                ", {mean:.2} % of each of the {} others, at most {most:.2} % (CPU {most_cpu})",
                rest.len()
            );
        }
        line += "\n";
    }
    let kept = |r: usize| table.number(r, "jiffies").unwrap_or(0.0);
    let keeper = (0..table.num_rows()).max_by(|&a, &b| kept(a).total_cmp(&kept(b)));
    if let Some(row) = keeper.filter(|&r| kept(r) > 0.0)
        && let Some(cpu) = table.int(row, "CPU")
    {
        // Ticks of other CPUs overlap the one that advances the time, so the others' do not add up.
        let share = (kept(row) * tick as f64 / 1e7).min(100.0);
        line += &format!("CPU {cpu} keeps the time: it advanced in {share:.0} % of all ticks\n");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> Table {
        let mut rows = cpu_doings::Rows::new();
        for cpu in 0..3u64 {
            let busy = if cpu == 0 { 0.7 } else { 0.05 };
            rows.push(cpu_doings::Row {
                cpu: Some(cpu),
                elapsed: Some(10.0),
                spent: ncpu_schema::Per::new(|doing| {
                    let own = matches!(doing, Doing::Idle | Doing::Programs);
                    Some(if own { (10.0 - 18.0 * busy / 2.0) / 2.0 } else { busy / 2.0 })
                }),
                ticks: Some(2500),
                jiffies: Some(if cpu == 0 { 2400 } else { 50 }),
            });
        }
        rows.finish()
    }

    #[test]
    fn every_state_is_in_one_column() {
        let mut counted: Vec<Doing> =
            SHARES.iter().flat_map(|(_, doings, _)| doings.iter().copied()).collect();
        counted.extend([Doing::Idle, Doing::Programs]);
        counted.sort_unstable();
        assert_eq!(counted, Doing::ALL);
        let raw = raw();
        let raw = cpu_doings::Reader::of(&raw).unwrap();
        let t = doings(&raw);
        for row in 0..3 {
            let sum: f64 = ["all", "programs", "idle"].iter().filter_map(|c| t.number(row, c)).sum();
            assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        }
    }

    #[test]
    fn cpu_0_is_told_from_the_rest() {
        let raw = raw();
        let words = doings_line(&doings(&cpu_doings::Reader::of(&raw).unwrap()), 4_000_000);
        assert!(words.contains("takes 63.00 % of CPU 0, 4.50 % of each of the 2 others"), "{words}");
        assert!(words.contains("CPU 0 keeps the time: it advanced in 96 %"), "{words}");
    }
}
