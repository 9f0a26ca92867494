//! What each CPU spends on the kernel's housekeeping, and CPU 0 against the rest.

use ncpu_table::{Column, Kind, Table, Unit};

/// Columns of the view, the columns of table `cpu_doings` each is the sum of, and its meaning.
const SHARES: [(&str, &[&str], &str); 7] = [
    ("tick", &["tick"], "the tick's handler"),
    ("timer", &["timer_irq", "hrtimers", "timer", "hrtimer"], "other timers: interrupts, handlers, softirqs"),
    ("sched", &["sched", "migration"], "load balancing: softirq SCHED, migration threads"),
    ("rcu", &["rcu", "rcu_threads"], "RCU: softirq and threads"),
    ("work", &["kworker"], "workqueues"),
    ("kthr", &["ksoftirqd", "kthreads"], "ksoftirqd and other kernel threads"),
    (
        "soft",
        &["hi", "net_tx", "net_rx", "block", "irq_poll", "tasklet"],
        "softirqs of devices and the network",
    ),
];

/// A row for each CPU: per cent of its time by kind of housekeeping, `all` their sum; `raw` is table
/// `cpu_doings`.
pub fn doings(raw: &Table) -> Table {
    let share = |name: &str, kind, meaning: &str| Column::float(name, Unit::Percent, kind, meaning);
    let rate = |name: &str, meaning: &str| Column::float(name, Unit::PerSecond, Kind::Count, meaning);
    let mut columns = vec![Column::id("CPU", "CPU number"), share("all", Kind::Share, "all housekeeping")];
    columns.extend(SHARES.iter().map(|(name, _, meaning)| share(name, Kind::Share, meaning)));
    columns.push(rate("ticks", "runs of the tick's handler"));
    columns.push(rate("jiffies", "ticks in which the kernel's time advanced: all of them where it is kept"));
    columns.push(share("programs", Kind::Mean, "threads of programs: user code and system calls"));
    columns.push(share("idle", Kind::Mean, "idle"));
    let mut out = Table::builder("housekeeping", &columns);
    for row in 0..raw.num_rows() {
        let elapsed = raw.number(row, "elapsed").unwrap_or(0.0).max(f64::MIN_POSITIVE);
        let percent = |columns: &[&str]| {
            100.0 * columns.iter().filter_map(|c| raw.number(row, c)).sum::<f64>() / elapsed
        };
        let shares = SHARES.map(|(_, columns, _)| percent(columns));
        let mut cells = out.row().int_opt(raw.int(row, "CPU")).float(shares.iter().sum());
        for share in shares {
            cells = cells.float(share);
        }
        cells
            .float_opt(raw.number(row, "ticks").map(|n| n / elapsed))
            .float_opt(raw.number(row, "jiffies").map(|n| n / elapsed))
            .float(percent(&["programs"]))
            .float(percent(&["idle"]));
    }
    out.finish()
}

/// CPU 0 against the rest, and who keeps the time, in words; `table` is what [`doings`] gives, `tick` the
/// length of a tick, ns.
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
        let names = [
            "idle",
            "programs",
            "ksoftirqd",
            "rcu_threads",
            "kworker",
            "migration",
            "kthreads",
            "timer_irq",
            "tick",
            "hrtimers",
            "hi",
            "timer",
            "net_tx",
            "net_rx",
            "block",
            "irq_poll",
            "tasklet",
            "sched",
            "hrtimer",
            "rcu",
        ];
        let mut columns =
            vec![Column::id("CPU", ""), Column::float("elapsed", Unit::Seconds, Kind::Gauge, "")];
        columns.extend(names.map(|n| Column::float(n, Unit::Seconds, Kind::Time, "")));
        columns.extend(["ticks", "jiffies"].map(|n| Column::count(n, "")));
        let mut b = Table::builder("cpu_doings", &columns);
        for cpu in 0..3u64 {
            let busy = if cpu == 0 { 0.7 } else { 0.05 };
            let mut row = b.row().int(cpu).float(10.0);
            for i in 0..20 {
                row = row.float(if i < 2 { (10.0 - 18.0 * busy / 2.0) / 2.0 } else { busy / 2.0 });
            }
            row.int(2500).int(if cpu == 0 { 2400 } else { 50 });
        }
        b.finish()
    }

    #[test]
    fn every_state_is_in_one_column() {
        let mut counted: Vec<&str> =
            SHARES.iter().flat_map(|(_, columns, _)| columns.iter().copied()).collect();
        counted.extend(["idle", "programs"]);
        counted.sort_unstable();
        let raw = raw();
        let mut states: Vec<&str> = raw.columns()[2..22].iter().map(|c| c.name.as_str()).collect();
        states.sort_unstable();
        assert_eq!(counted, states);
        let t = doings(&raw);
        for row in 0..3 {
            let sum: f64 = ["all", "programs", "idle"].iter().filter_map(|c| t.number(row, c)).sum();
            assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        }
    }

    #[test]
    fn cpu_0_is_told_from_the_rest() {
        let words = doings_line(&doings(&raw()), 4_000_000);
        assert!(words.contains("takes 63.00 % of CPU 0, 4.50 % of each of the 2 others"), "{words}");
        assert!(words.contains("CPU 0 keeps the time: it advanced in 96 %"), "{words}");
    }
}
