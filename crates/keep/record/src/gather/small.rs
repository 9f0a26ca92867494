//! Keeps a gathered table small.

use ncpu_table::{Result, Table};

/// Bytes of a table beyond which its rows are combined.
const MOST: usize = 4 << 20;
/// The number of different times that are kept before rows are summed up.
const TIMES: usize = 8;
/// The column of times.
const TIME: &str = "t";

/// Columns that may be dropped to combine rows; the first are dropped first.
const LOST: [(&str, &[&[&str]]); 8] = [
    ("threads", &[&["pid", "tid", "thread"], &["process"]]),
    ("samples", &[&["detail"], &["process"]]),
    ("stacks", &[&["stack", "binaries"], &["thread"]]),
    ("locks", &[&["lock"], &["process"]]),
    ("lock_callers", &[&["stack"], &["lock", "caller"], &["process"]]),
    ("user_locks", &[&["lock", "caller", "holder", "stack"], &["process", "pid"]]),
    ("first_waits", &[&["lock"], &["pid"]]),
    ("sleepers", &[&["process", "pid"]]),
];

/// The reductions applied to a table.
#[derive(Debug)]
pub(super) struct Small {
    most: usize,
    /// Seconds: all rows within this time are combined.
    step: f64,
    steps: bool,
    others: bool,
}

impl Small {
    /// For a table sampled every `interval` seconds.
    pub fn new(interval: f64) -> Small {
        let step = if interval.is_finite() && interval > 0.0 { interval } else { 1.0 };
        Small { most: MOST, step, steps: false, others: false }
    }

    /// The size at which the table is folded.
    pub fn most(&self) -> usize {
        self.most
    }

    /// A table of at most half that size, if possible.
    pub fn fold(&mut self, table: Table) -> Result<Table> {
        let enough = MOST / 2;
        let mut table = if self.steps { table.coarser(TIME, self.step)? } else { table }.summed()?;
        while table.bytes() > enough && table.distinct(TIME) > TIMES {
            self.step *= 2.0;
            self.steps = true;
            table = table.coarser(TIME, self.step)?.summed()?;
        }
        let of = LOST.iter().find(|(name, _)| *name == table.name());
        let mut lost = Vec::new();
        for columns in of.map_or(&[][..], |(_, columns)| columns) {
            let (bytes, rows) = (table.bytes(), table.num_rows());
            if bytes <= enough {
                break;
            }
            lost.extend_from_slice(columns);
            self.others = true;
            table = table.folded(&lost, rows * (enough / 2) / bytes)?;
        }
        // Not before it has doubled, so that this is rare.
        self.most = MOST.max(table.bytes() * 2);
        Ok(table)
    }

    /// The note about it.
    pub fn note(&self, table: &str) -> Option<String> {
        let others = "its smallest rows are summed up as [others]";
        match (self.steps, self.others) {
            (false, false) => None,
            (true, false) => Some(format!("{table} has steps of {} s", self.step)),
            (false, true) => Some(format!("{table} had more rows than are held: {others}")),
            (true, true) => Some(format!("{table} has steps of {} s, and {others}", self.step)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ncpu_schema::{CpuState, Per, Purpose, StackKind, cpu_time, stacks, threads};

    use super::*;
    use crate::{Gather, Manifest};

    /// Rows of 100 minutes, one per second: two CPUs, long-lived and short-lived threads, ever new stacks.
    #[test]
    fn hours_take_no_more_than_minutes_and_sum_to_the_same() {
        let mut gather = Gather::new(Manifest::new(Purpose::Watch, 2, Vec::new(), 1.0));
        let mut largest = 0;
        let (mut cpu, mut seconds) = (0.0, 0.0);
        let mut number = 1000;
        for second in 0..6000u64 {
            let t = Some(second as f64 + 1.001);
            let mut rows = cpu_time::Rows::new();
            for cpu in 0..16 {
                let spent = Per::new(|state| Some(if state == CpuState::Idle { 1.0 } else { 0.0 }));
                rows.push(cpu_time::Row { time: t, cpu: Some(cpu), spent, kernel: None });
            }
            gather.append(&rows.finish()).unwrap();
            let mut rows = threads::Rows::new();
            for i in 0..40u64 {
                let tid = if i < 20 { i } else { number };
                number += 1;
                let on = if i < 20 { 0.5 } else { 0.25 };
                cpu += on;
                let name = if i < 20 { "server" } else { "sh" };
                rows.push(threads::Row {
                    time: t,
                    pid: Some(tid),
                    tid: Some(tid),
                    process: name.into(),
                    thread: name.into(),
                    cpu: Some(on),
                    ..Default::default()
                });
            }
            gather.append(&rows.finish()).unwrap();
            let mut rows = stacks::Rows::new();
            for i in 0..4 {
                let stack = format!("server;main;{};f{second}_{i}", "g".repeat(400));
                seconds += 0.01;
                rows.push(stacks::Row {
                    kind: Some(StackKind::OnCpu),
                    stack: stack.as_str().into(),
                    seconds: Some(0.01),
                    samples: Some(1),
                    time: t,
                    ..stacks::Row::default()
                });
            }
            gather.append(&rows.finish()).unwrap();
            largest = largest.max(gather.parts.values().map(|p| p.bytes).sum());
        }
        assert!(largest < 4 * MOST, "{largest}");
        let recording = gather.finish().unwrap();
        let threads = threads::Reader::need(&recording).unwrap();
        let sum: f64 = threads.rows().filter_map(|r| threads.cpu.get(r)).sum();
        assert!((sum - cpu).abs() < 1e-6 * cpu, "{sum} of {cpu}");
        // The most active threads stay separate.
        let server = threads.rows().filter(|&r| threads.tid.get(r) == Some(7));
        let own: f64 = server.filter_map(|r| threads.cpu.get(r)).sum();
        assert!((own - 3000.0).abs() < 1e-6, "{own}");
        let cpu_time = cpu_time::Reader::need(&recording).unwrap();
        assert!((cpu_time.spent.sum(CpuState::Idle) - 96_000.0).abs() < 1e-3);
        assert_eq!(cpu_time.time.max(), Some(6000.001));
        let stacks = stacks::Reader::need(&recording).unwrap();
        let sum: f64 = stacks.rows().filter_map(|r| stacks.seconds.get(r)).sum();
        assert!((sum - seconds).abs() < 1e-6, "{sum} of {seconds}");
        let notes = &recording.manifest.notes;
        assert!(notes.iter().any(|n| n.starts_with("threads has steps of ")), "{notes:?}");
        assert!(notes.iter().any(|n| n.starts_with("stacks ") && n.contains("[others]")), "{notes:?}");
    }
}
