//! Cross-calls that CPUs received, as the kernel counts them in /proc/interrupts: for kernels that cannot load the programs, and for
//! any architecture. Senders and costs are unknown.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_schema::{crosscall_cpus, crosscall_summary, crosscalls_received};
use ncpu_table::Table;
use rustix::event::{PollFd, PollFlags};

use super::layout::CAUSES;

/// Counts by CPU and index of `CAUSES`.
type Counts = BTreeMap<(u32, usize), u64>;

/// An observation of counts.
pub struct Received {
    root: PathBuf,
    first: Counts,
    began: Instant,
    packages: u64,
    notes: Vec<String>,
}

impl Received {
    /// Begins counting. `why` there is no more than counts is the first note; `packages` is how many the machine has.
    ///
    /// # Errors
    /// /proc/interrupts cannot be read.
    pub fn begin(root: &Path, why: String, packages: usize) -> io::Result<Received> {
        let first = read(root)?;
        let mut notes = vec![format!(
            "{why}: counted are the cross-calls that CPUs received, by /proc/interrupts, from all programs; senders, targets and times \
             are not known"
        )];
        notes.extend(super::broadcast());
        Ok(Received { root: root.into(), first, began: Instant::now(), packages: packages as u64, notes })
    }

    /// Counts until the process behind `pidfd` ends, `deadline` passes or `stop` is set.
    pub fn watch(&self, pidfd: Option<BorrowedFd<'_>>, deadline: Option<Instant>, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) && deadline.is_none_or(|d| Instant::now() < d) {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            // A signal may come just before the wait begins.
            let time = left.unwrap_or(Duration::MAX).min(Duration::from_millis(200));
            let time =
                rustix::time::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
            let mut fds: Vec<PollFd<'_>> =
                pidfd.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
            // Interrupted by a signal: the loop looks at `stop`.
            let _ = rustix::event::poll(&mut fds, Some(&time));
            if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                break;
            }
        }
    }

    /// Ends counting and hands over the tables; returns what a reader must know, a line each.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn finish<E>(
        mut self,
        sink: &mut dyn FnMut(&Table) -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<String>, E> {
        let elapsed = self.began.elapsed().as_secs_f64();
        let last = read(&self.root).unwrap_or_else(|e| {
            self.notes.push(format!("nothing was counted: /proc/interrupts: {e}"));
            self.first.clone()
        });
        let mut cpus = crosscall_cpus::Rows::new();
        let mut sums = [0u64; CAUSES.len()];
        for ((cpu, cause), now) in &last {
            // A CPU that came meanwhile begins at what it had.
            let Some(before) = self.first.get(&(*cpu, *cause)) else { continue };
            let received = now.saturating_sub(*before);
            sums[*cause] += received;
            cpus.push(crosscall_cpus::Row {
                cpu: Some(u64::from(*cpu)),
                cause: CAUSES[*cause].into(),
                received: Some(received),
                ..Default::default()
            });
        }
        let mut received = crosscalls_received::Rows::new();
        for (cause, sum) in CAUSES.iter().zip(sums).filter(|(_, sum)| *sum > 0) {
            received.push(crosscalls_received::Row {
                cause: (*cause).into(),
                received: Some(sum),
                ..Default::default()
            });
        }
        let mut summary = crosscall_summary::Rows::new();
        let online: std::collections::BTreeSet<u32> = last.keys().map(|(cpu, _)| *cpu).collect();
        summary.push(crosscall_summary::Row {
            elapsed: Some(elapsed),
            cpus: Some(online.len() as u64),
            packages: Some(self.packages),
            ..Default::default()
        });
        for table in [cpus.finish(), received.finish(), summary.finish()] {
            if table.num_rows() > 0 {
                sink(&table)?;
            }
        }
        Ok(self.notes)
    }
}

fn read(root: &Path) -> io::Result<Counts> {
    let text = std::fs::read_to_string(root.join("proc/interrupts"))?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a table of interrupts"))
}

/// By what a line says at its end, which is the same where names differ (RES, IPI0). x86 counts shootdowns among the function calls, too.
fn cause(words: &str) -> Option<&'static str> {
    match words {
        "Rescheduling interrupts" => Some("reschedule"),
        "Function call interrupts" => Some("function call"),
        "TLB shootdowns" => Some("TLB shootdown"),
        "IRQ work interrupts" => Some("irq work"),
        _ => None,
    }
}

fn parse(text: &str) -> Option<Counts> {
    let mut lines = text.lines();
    let cpu = |word: &str| word.strip_prefix("CPU")?.parse::<u32>().ok();
    let cpus: Vec<u32> = lines.next()?.split_ascii_whitespace().map(cpu).collect::<Option<_>>()?;
    let mut counts = Counts::new();
    for line in lines {
        let Some((_, rest)) = line.split_once(':') else { continue };
        let mut words = rest.split_ascii_whitespace();
        let numbers: Vec<u64> = words.by_ref().take(cpus.len()).map_while(|w| w.parse().ok()).collect();
        let words: Vec<&str> = words.collect();
        let Some(cause) = cause(&words.join(" ")).filter(|_| numbers.len() == cpus.len()) else { continue };
        let cause = CAUSES.iter().position(|known| *known == cause)?;
        for (cpu, n) in cpus.iter().zip(numbers) {
            *counts.entry((*cpu, cause)).or_default() += n;
        }
    }
    // Each shootdown is a function call, too, in the kernel's counts.
    let (tlb, call) = (cause_index("TLB shootdown"), cause_index("function call"));
    for cpu in &cpus {
        let shootdowns = tlb.and_then(|tlb| counts.get(&(*cpu, tlb))).copied().unwrap_or(0);
        if let Some(calls) = call.and_then(|call| counts.get_mut(&(*cpu, call))) {
            *calls = calls.saturating_sub(shootdowns);
        }
    }
    Some(counts)
}

fn cause_index(cause: &str) -> Option<usize> {
    CAUSES.iter().position(|known| *known == cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str, cause: &str) -> Vec<(u32, u64)> {
        let cause = cause_index(cause).unwrap();
        parse(text)
            .unwrap()
            .into_iter()
            .filter(|((_, c), _)| *c == cause)
            .map(|((cpu, _), n)| (cpu, n))
            .collect()
    }

    #[test]
    fn x86_counts_shootdowns_apart_from_other_calls() {
        let text = "            CPU0       CPU3       \n  24:   5   6  IO-APIC   4-edge  ttyS0\n RES:        100        200   Rescheduling \
                    interrupts\n CAL:        30         40   Function call interrupts\n TLB:         10          7   TLB shootdowns\n ERR:  3\n";
        assert_eq!(counts(text, "reschedule"), [(0, 100), (3, 200)]);
        assert_eq!(counts(text, "TLB shootdown"), [(0, 10), (3, 7)]);
        assert_eq!(counts(text, "function call"), [(0, 20), (3, 33)]);
    }

    #[test]
    fn arm_has_names_of_its_own_and_no_shootdowns() {
        let text = "     CPU0 CPU1\nIPI0:  9 4  Rescheduling interrupts\nIPI1: 1 2 Function call interrupts\nIPI5:   0 3      IRQ work interrupts\nErr: 0\n";
        assert_eq!(counts(text, "reschedule"), [(0, 9), (1, 4)]);
        assert_eq!(counts(text, "function call"), [(0, 1), (1, 2)]);
        assert_eq!(counts(text, "irq work"), [(0, 0), (1, 3)]);
        assert_eq!(counts(text, "TLB shootdown"), []);
    }

    #[test]
    fn what_is_no_table_of_interrupts_is_told() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("CPU0 foo\n"), None);
        // A line cut short is left out.
        assert_eq!(counts("CPU0 CPU1\nRES: 1\n", "reschedule"), []);
    }

    #[test]
    fn what_came_since_the_beginning_is_handed_over() {
        let root = tempfile::tempdir().unwrap();
        let put = |a: u64, b: u64| {
            let text = format!(" CPU0 CPU1\n RES: {a} {b}   Rescheduling interrupts\n");
            ncpu_machine_trees::put(root.path(), "proc/interrupts", &text);
        };
        put(5, 6);
        let received = Received::begin(root.path(), "an old kernel".into(), 2).unwrap();
        put(15, 6);
        let mut tables = Vec::new();
        let notes = received.finish(&mut |t| {
            tables.push((t.name().to_string(), t.clone()));
            Ok::<_, ()>(())
        });
        assert!(notes.unwrap()[0].starts_with("an old kernel: "));
        let of = |name: &str| &tables.iter().find(|(n, _)| n == name).unwrap().1;
        assert_eq!(of("crosscalls_received").int(0, "received"), Some(10));
        assert_eq!(of("crosscalls_received").number(0, "seconds"), None);
        assert_eq!(
            (of("crosscall_cpus").int(0, "received"), of("crosscall_cpus").int(1, "received")),
            (Some(10), Some(0))
        );
        assert_eq!(of("crosscall_cpus").int(0, "calls"), None);
    }
}
