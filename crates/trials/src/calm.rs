//! CPU time of other programs, from `/proc/stat` and `/proc/PID/stat`.

use std::collections::HashMap;

/// Ticks since the machine started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Of all CPUs together.
    all: u64,
    /// Of CPUs at work, and of CPUs that the hypervisor gave to other guests.
    busy: u64,
    /// Of this process and its descendants.
    own: u64,
}

impl Sample {
    pub fn take() -> Sample {
        // Own time first: what falls between the two readings counts as others'.
        let own = descendants(std::process::id(), &processes());
        let stat = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
        let (all, busy) = cpus(&stat).expect("/proc/stat begins with the sum of all CPUs");
        Sample { all, busy, own }
    }

    /// Part of all CPUs' time since `before` in which they worked for no process of this test.
    pub fn others_since(&self, before: &Sample) -> f64 {
        let own = self.own.saturating_sub(before.own);
        let others = self.busy.saturating_sub(before.busy).saturating_sub(own);
        others as f64 / self.all.saturating_sub(before.all).max(1) as f64
    }
}

/// Ticks of all CPUs, and of those at work, from the first line of `/proc/stat`.
fn cpus(stat: &str) -> Option<(u64, u64)> {
    // user nice system idle iowait irq softirq steal; guests' time is in user's and nice's.
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().take(8);
    let fields: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let all = fields.iter().sum::<u64>();
    Some((all, all - fields.get(3)? - fields.get(4)?))
}

/// A process as `/proc/PID/stat` has it.
struct Process {
    parent: u32,
    /// Ticks, with those of its children that it has waited for.
    ticks: u64,
}

fn process(stat: &str) -> Option<Process> {
    // The name may hold spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>());
    Some(Process { parent: fields.get(1)?.parse().ok()?, ticks: ticks.sum::<Result<_, _>>().ok()? })
}

fn processes() -> HashMap<u32, Process> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, process(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// Ticks of a process and its descendants.
fn descendants(root: u32, processes: &HashMap<u32, Process>) -> u64 {
    let below = |mut pid: u32| {
        // No longer than a chain can be: processes were read one after another, and numbers are used again.
        for _ in 0..processes.len() {
            if pid == root {
                return true;
            }
            match processes.get(&pid) {
                Some(process) => pid = process.parent,
                None => return false,
            }
        }
        false
    };
    processes.iter().filter(|&(&pid, _)| below(pid)).map(|(_, process)| process.ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_read_by_their_fields() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 90 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(cpus(stat), Some((4671, 171)));
        assert_eq!(cpus("cpu0 1 2 3 4 5 6 7 8 9 10\n"), None);
        let child =
            process("71 (a) b (c) S 70 71 71 0 -1 4194304 1 2 3 4 10 20 300 4000 20 0 1 0 5 6 7\n").unwrap();
        assert_eq!((child.parent, child.ticks), (70, 4330));
        assert!(process("71 (a").is_none());
    }

    #[test]
    fn descendants_are_own_and_circles_end() {
        let all =
            [(1, 0, 1), (70, 1, 10), (71, 70, 100), (72, 71, 1000), (80, 1, 5000), (90, 91, 7), (91, 90, 7)];
        let all = all.map(|(pid, parent, ticks)| (pid, Process { parent, ticks })).into();
        assert_eq!(descendants(70, &all), 1110);
    }

    #[test]
    fn what_neither_sample_has_is_of_others() {
        let before = Sample { all: 1000, busy: 300, own: 50 };
        let after = Sample { all: 1200, busy: 400, own: 90 };
        assert_eq!(after.others_since(&before), 0.3);
        // Two clocks: own time may be ahead.
        assert_eq!(Sample { own: 500, ..after }.others_since(&before), 0.0);
    }

    mod quiet {
        use std::process::Command;
        use std::time::Duration;

        use super::*;

        /// Others' part of one CPU while a shell's loop runs as this script begins it.
        fn others_while(script: &str) -> f64 {
            let script = script.replace("LOOP", "timeout 1 sh -c 'while :; do :; done'");
            let mut shell = Command::new("sh").args(["-c", &script]).spawn().unwrap();
            // The loop runs for one second from some moment of this time.
            std::thread::sleep(Duration::from_millis(300));
            let before = Sample::take();
            std::thread::sleep(Duration::from_millis(500));
            let others = Sample::take().others_since(&before);
            shell.wait().unwrap();
            std::thread::sleep(Duration::from_millis(500));
            others * std::thread::available_parallelism().unwrap().get() as f64
        }

        /// Other programs only add to what is measured.
        fn least(script: &str) -> f64 {
            (0..3).map(|_| others_while(script)).fold(f64::INFINITY, f64::min)
        }

        #[test]
        fn a_child_is_own_and_an_orphan_is_another() {
            let others = crate::others_asleep(Duration::from_secs(1));
            if others > crate::OTHERS {
                return eprintln!("skipped: other programs take the CPUs: {others:.2} of them");
            }
            let (own, orphan) = (least("LOOP; true"), least("LOOP & true"));
            assert!(own < 0.3, "{own} of a CPU by others while a child works");
            assert!(orphan > 0.6, "{orphan} of a CPU by others while an orphan works");
        }
    }
}
