//! Where each CPU was, by the kernel's ticks and the program's clocks.

use std::collections::BTreeMap;

use ncpu_schema::CpuState;

use crate::cpus::parse;

/// Seconds of a CPU by [`CpuState`].
pub(super) type Spent = [f64; CpuState::ALL.len()];

/// What /proc/stat says since boot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ticks {
    /// By CPU: user, nice, system, idle, iowait, irq, softirq, steal, in clock ticks.
    cpus: BTreeMap<u32, [u64; parse::TIMES]>,
    /// Processes and threads that were started.
    pub started: u64,
}

const IDLE: usize = 3;
const IOWAIT: usize = 4;
const IRQ: usize = 5;
const SOFTIRQ: usize = 6;
const STEAL: usize = 7;

impl Ticks {
    /// Reads it; nothing where it cannot be read.
    pub fn read() -> Ticks {
        Ticks::parse(&std::fs::read("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &[u8]) -> Ticks {
        let mut out = Ticks::default();
        // Damaged parts are left out, with the CPUs behind them: these CPUs are not accounted for.
        let _ = parse::stat(text, |cpu, times| {
            out.cpus.insert(cpu, times);
        });
        let line = text.split(|&b| b == b'\n').find_map(|l| l.strip_prefix(b"processes "));
        out.started = line.and_then(|l| std::str::from_utf8(l).ok()?.trim().parse().ok()).unwrap_or(0);
        out
    }

    /// CPUs in it.
    pub fn cpus(&self) -> Vec<u32> {
        self.cpus.keys().copied().collect()
    }

    /// Seconds of some columns since an earlier reading, all CPUs together.
    fn sum(&self, before: &Ticks, columns: &[usize]) -> f64 {
        let of = |cpu: &u32| columns.iter().map(|&c| self.since(before, *cpu, c)).sum::<f64>();
        self.cpus.keys().map(of).sum()
    }

    fn since(&self, before: &Ticks, cpu: u32, column: usize) -> f64 {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let of = |t: &Ticks| t.cpus.get(&cpu).map_or(0, |times| times[column]);
        // A CPU that comes begins at nothing, and the kernel may count iowait back.
        if before.cpus.contains_key(&cpu) { of(self).saturating_sub(of(before)) as f64 / ticks } else { 0.0 }
    }

    /// CPU-seconds idle since an earlier reading.
    pub fn idle(&self, before: &Ticks) -> f64 {
        self.sum(before, &[IDLE, IOWAIT])
    }

    /// CPU-seconds idle with I/O outstanding since an earlier reading.
    pub fn iowait(&self, before: &Ticks) -> f64 {
        self.sum(before, &[IOWAIT])
    }

    /// CPU-seconds that the hypervisor took since an earlier reading.
    pub fn steal(&self, before: &Ticks) -> f64 {
        self.sum(before, &[STEAL])
    }

    /// CPU-seconds of user code and of the kernel for it since an earlier reading, of all programs. Each tick is one or
    /// the other, whatever process it falls into.
    pub fn user_and_system(&self, before: &Ticks) -> (f64, f64) {
        (self.sum(before, &[0, 1]), self.sum(before, &[2]))
    }
}

/// The program's time on CPU.
pub(super) enum Program<'a> {
    /// Seconds on each CPU.
    ByCpu(&'a BTreeMap<u32, f64>),
    /// Seconds in all, on CPUs unknown.
    Together(f64),
    /// All that runs is the program, but for the observer.
    Everything,
}

/// Divides `elapsed` seconds of each CPU that is in both readings. `own` is the observer's CPU time.
pub(super) fn divide(
    elapsed: f64,
    before: &Ticks,
    now: &Ticks,
    program: &Program<'_>,
    own: f64,
) -> BTreeMap<u32, Spent> {
    let mut out = BTreeMap::new();
    let mut rests = Vec::new();
    for &cpu in now.cpus.keys().filter(|cpu| before.cpus.contains_key(cpu)) {
        let since = |column| now.since(before, cpu, column);
        let clock = match program {
            Program::ByCpu(clocks) => clocks.get(&cpu).copied().unwrap_or(0.0).min(elapsed),
            Program::Together(_) | Program::Everything => 0.0,
        };
        // The clock is exact, and idle time has the resolution of a tick.
        let idle = (since(IDLE) + since(IOWAIT)).min(elapsed - clock);
        let busy = elapsed - idle;
        let interrupts = [IRQ, SOFTIRQ].map(since);
        let fits = (busy / interrupts.iter().sum::<f64>().max(f64::MIN_POSITIVE)).min(1.0);
        let [hard, soft] = interrupts.map(|s| s * fits);
        let rest = (busy - hard - soft).max(0.0);
        let mut spent = Spent::default();
        spent[CpuState::Idle as usize] = idle;
        spent[CpuState::Hardirq as usize] = hard;
        spent[CpuState::Softirq as usize] = soft;
        // Interrupts strike the running program, and its clock runs on.
        spent[CpuState::Program as usize] = if busy > 0.0 { clock * rest / busy } else { 0.0 };
        rests.push(rest);
        out.insert(cpu, spent);
    }
    let all: f64 = rests.iter().sum();
    let together = match program {
        Program::ByCpu(_) => None,
        Program::Together(seconds) => Some(*seconds),
        Program::Everything => Some((all - own).max(0.0)),
    };
    if let Some(seconds) = together {
        let part = (seconds / all.max(f64::MIN_POSITIVE)).min(1.0);
        for (spent, rest) in out.values_mut().zip(&rests) {
            spent[CpuState::Program as usize] = rest * part;
        }
    }
    let left = |spent: &Spent, rest: f64| (rest - spent[CpuState::Program as usize]).max(0.0);
    let all: f64 = out.values().zip(&rests).map(|(spent, &rest)| left(spent, rest)).sum();
    let part = (own / all.max(f64::MIN_POSITIVE)).min(1.0);
    for (spent, &rest) in out.values_mut().zip(&rests) {
        let left = left(spent, rest);
        spent[CpuState::Ncpu as usize] = left * part;
        spent[CpuState::Others as usize] = left * (1.0 - part);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: fn(&Spent, CpuState) -> f64 = |spent, state| spent[state as usize];

    #[test]
    fn ten_seconds_of_two_cpus_are_divided() {
        let ticks = rustix::param::clock_ticks_per_second();
        let s = |n: u64| n * ticks;
        let before =
            Ticks::parse(b"cpu  1 1 1 1\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nprocesses 40\n");
        let text = format!(
            "cpu  1 1 1 1\ncpu0 {} 0 {} {} {} {} 0 0\ncpu1 0 0 0 {} 0 0 0 0\nintr 5\nprocesses 70\n",
            s(5),
            s(1),
            s(2),
            s(1),
            s(1),
            s(10),
        );
        let now = Ticks::parse(text.as_bytes());
        assert_eq!((now.started, now.cpus()), (70, vec![0, 1]));
        assert_eq!((now.idle(&before), now.iowait(&before)), (13.0, 1.0));
        assert_eq!(now.user_and_system(&before), (5.0, 1.0));
        let clocks = BTreeMap::from([(0, 3.5), (1, 0.5)]);
        let out = divide(10.0, &before, &now, &Program::ByCpu(&clocks), 1.0);
        // 7 s busy, 1 s of them in interrupts: a seventh of the program's clock was too.
        assert_eq!((AT(&out[&0], CpuState::Idle), AT(&out[&0], CpuState::Hardirq)), (3.0, 1.0));
        assert!((AT(&out[&0], CpuState::Program) - 3.0).abs() < 1e-9);
        assert!((AT(&out[&0], CpuState::Ncpu) - 1.0).abs() < 1e-9);
        assert!((AT(&out[&0], CpuState::Others) - 2.0).abs() < 1e-9);
        // The clock knows better than the ticks, which say that it was idle throughout.
        assert_eq!((AT(&out[&1], CpuState::Idle), AT(&out[&1], CpuState::Program)), (9.5, 0.5));
        let out = divide(10.0, &before, &now, &Program::Everything, 1.0);
        assert!(
            (AT(&out[&0], CpuState::Program) - 5.0).abs() < 1e-9 && AT(&out[&0], CpuState::Others) < 1e-9
        );
        assert!((AT(&out[&0], CpuState::Ncpu) - 1.0).abs() < 1e-9, "{out:?}");
        let out = divide(10.0, &before, &now, &Program::Together(3.0), 0.0);
        assert_eq!((AT(&out[&0], CpuState::Program), AT(&out[&1], CpuState::Program)), (3.0, 0.0));
    }

    #[test]
    fn a_damaged_file_and_cpus_that_come_are_borne() {
        assert_eq!(Ticks::parse(b"nonsense"), Ticks::default());
        let (none, one) = (Ticks::default(), Ticks::parse(b"cpu0 1 2 3 4\n"));
        assert_eq!((one.idle(&none), one.steal(&none)), (0.0, 0.0));
        assert!(divide(1.0, &none, &one, &Program::Together(1.0), 0.0).is_empty());
    }

    proptest! {
        #[test]
        fn each_cpus_seconds_add_up(times in prop::collection::vec(0u64..2000, 16), clock in 0.0f64..20.0, own in 0.0f64..5.0) {
            let of = |t: &[u64]| t.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            let before = Ticks::parse(b"cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n");
            let now = Ticks::parse(format!("cpu0 {}\ncpu1 {}\n", of(&times[..8]), of(&times[8..])).as_bytes());
            let clocks = BTreeMap::from([(0, clock), (1, clock / 2.0)]);
            for program in [Program::ByCpu(&clocks), Program::Together(clock), Program::Everything] {
                for spent in divide(10.0, &before, &now, &program, own).values() {
                    prop_assert!((spent.iter().sum::<f64>() - 10.0).abs() < 1e-6, "{spent:?}");
                    prop_assert!(spent.iter().all(|s| *s >= 0.0), "{spent:?}");
                }
            }
        }
    }
}
