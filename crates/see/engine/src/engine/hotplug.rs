//! CPUs that go offline or come online while they are observed, and which of them leads.
//!
//! The kernel side drops the time a CPU was offline when it comes back (`cpu_comes`); what is left to do
//! here is to stop charging a CPU that is gone, and to give one that came its timers: the kernel
//! removes the perf events of a CPU that goes offline, and does not bring them back with it.

use std::path::Path;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use ncpu_machine::CpuSet;

use super::{Engine, load};
use crate::bpf_support::{perf, perf_event};

/// Time for which a CPU leads: its timer looks at all CPUs, which on a large machine takes a CPU 1 % of its time.
const TURN: Duration = Duration::from_secs(1);

/// On machines of more CPUs than this, CPUs lead in turn.
const MANY: usize = 64;

/// Looks of a leader a second: at most `LOOKS_HZ`, ten times the sampling rate, and on large machines few enough that
/// `CPUS_LOOKED_AT` CPUs a second are looked at, which takes 1 % of the leader's time.
const LOOKS_HZ: usize = 997;
const LOOKS_PER_SAMPLE: usize = 10;
const CPUS_LOOKED_AT: usize = 200_000;
const LEAST_LOOKS_HZ: usize = 97;

/// Sampling periods are chosen anew at this interval, for at most this many CPUs at a time: each is an
/// interrupt on its CPU.
const NEW_PERIODS: Duration = Duration::from_secs(1);
const PERIODS_AT_ONCE: usize = 128;

/// How long a CPU may be online before events of it can be opened.
const COMES: Duration = Duration::from_secs(2);

/// Descriptors of an event of a CPU: its own and that of the link to its program.
const FILES: usize = 2;

/// Which CPUs there were at the last look, and whose timer explains idle ones.
#[derive(Default)]
pub(super) struct Online {
    /// In the order of their numbers.
    pub(super) cpus: Vec<usize>,
    /// `comings` of the kernel side: of all CPUs, and of each.
    all: u64,
    each: Vec<u64>,
    without_timers: Newcomers,
    /// Those that their owner keeps free of others, and of timers where that can be.
    kept_free: CpuSet,
    leader: Option<usize>,
    led_since: Option<Instant>,
    /// CPUs that the machine has at the least, for tests.
    at_least: usize,
    /// Since when the sampling periods are what they are, and the last CPU that got a new one.
    periods_since: Option<Instant>,
    last_period: usize,
    dice: fastrand::Rng,
}

/// CPUs that came online and have no timers yet, and since when: the kernel lists a CPU some milliseconds before its events can be
/// opened.
#[derive(Default)]
struct Newcomers(Vec<(usize, Instant)>);

impl Newcomers {
    /// Starts what can be started on those that are still online; the rest waits for the next call. Those that have waited too long
    /// are given up, with the reason.
    fn start(
        &mut self,
        online: &[usize],
        now: Instant,
        mut start: impl FnMut(usize) -> std::io::Result<()>,
    ) -> Vec<(usize, std::io::Error)> {
        let mut given_up = Vec::new();
        self.0.retain(|&(cpu, since)| match online.binary_search(&cpu).map(|_| start(cpu)) {
            Ok(Err(_)) if now.saturating_duration_since(since) < COMES => true,
            Ok(Err(e)) => {
                given_up.push((cpu, e));
                false
            }
            Ok(Ok(())) | Err(_) => false,
        });
        given_up
    }
}

/// The events that fire on a CPU.
#[derive(Default)]
pub(super) struct Timers {
    sampler: Option<perf::Timer>,
    /// Held, as the next.
    _striker: Option<perf::Timer>,
    /// Held, for they detach when dropped.
    faults: Vec<Link>,
}

impl Timers {
    /// Ends of faults are not told any more.
    pub(super) fn end_faults(&mut self) {
        self.faults.clear();
    }
}

impl Online {
    /// The CPU that leads after the present leader: the next in the order of numbers. CPUs that are kept free do not
    /// lead while there are others.
    fn next_leader(&self) -> Option<usize> {
        let free = |cpu: &&usize| u32::try_from(**cpu).is_ok_and(|cpu| self.kept_free.contains(cpu));
        let after = |cpu: &&usize| self.leader.is_none_or(|leader| **cpu > leader);
        let others = || self.cpus.iter().filter(|cpu| !free(cpu));
        others().find(after).or_else(|| others().next()).or_else(|| self.cpus.first()).copied()
    }

    /// CPUs by which is decided how the leader looks.
    fn size(&self) -> usize {
        self.cpus.len().max(self.at_least)
    }

    /// How often the leader looks at all CPUs.
    fn looks_hz(&self, sample_hz: u32) -> u32 {
        let of_size = CPUS_LOOKED_AT / self.size().max(1);
        // Slightly more than a multiple, so that looks and samples do not go in step. Where nothing
        // is sampled, the highest rate.
        let wanted = if sample_hz == 0 { LOOKS_HZ } else { LOOKS_PER_SAMPLE * sample_hz as usize + 7 };
        of_size.min(wanted).clamp(LEAST_LOOKS_HZ, LOOKS_HZ) as u32
    }

    /// The CPUs that get a new sampling period now: the next in the order of numbers.
    fn next_periods(&mut self) -> Vec<usize> {
        let (up_to, from) = self.cpus.split_at(self.cpus.partition_point(|cpu| *cpu <= self.last_period));
        let next: Vec<usize> = from.iter().chain(up_to).copied().take(PERIODS_AT_ONCE).collect();
        self.last_period = next.last().copied().unwrap_or_default();
        next
    }

    /// A period in ns, up to 3 % shorter or longer than at this rate. Otherwise a program that repeats its work in a
    /// period close to a multiple of the timer's would be sampled at the same points of its work each time.
    fn period(&mut self, hz: u32) -> u64 {
        let ns = 1_000_000_000 / u64::from(hz.max(1));
        ns - 3 * ns / 100 + self.dice.u64(..(6 * ns / 100).max(1))
    }
}

/// CPUs that the kernel keeps free by its command line (`isolcpus=`, `nohz_full=`).
fn kept_free(root: &Path) -> CpuSet {
    let list = |name: &str| {
        let text = std::fs::read_to_string(root.join("sys/devices/system/cpu").join(name)).ok()?;
        // Without such CPUs some kernels say `(null)`.
        CpuSet::parse_list(text.trim()).ok()
    };
    ["isolated", "nohz_full"]
        .into_iter()
        .filter_map(list)
        .flat_map(|set| set.iter().collect::<Vec<_>>())
        .collect()
}

/// Makes room for the descriptors of events of all CPUs: of each the sampling timer, and with microstates three more.
pub(super) fn room_for_events(micro: bool, notes: &mut Vec<String>) {
    let events = if micro { 4 } else { 1 };
    if let Err((hard, need)) = perf_event::allow_files(perf::online_cpus().len() * FILES * events) {
        notes.push(format!(
            "a process may open {hard} files here, and events of all CPUs need {need}: some CPUs are not sampled"
        ));
    }
}

impl Engine {
    /// Reads the list of CPUs.
    pub(super) fn meet_cpus(&mut self, at_least: usize) {
        self.online.cpus = perf::online_cpus();
        self.online.at_least = at_least;
        // Never 0, which stays 0.
        self.online.kept_free = kept_free(Path::new("/"));
        self.online.each = self.comings();
        self.online.all = self.all_comings();
    }

    fn all_comings(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.comings)
    }

    fn comings(&self) -> Vec<u64> {
        (0..self.tables.slots.len()).map(|cpu| self.tables.slots.get(cpu).comings).collect()
    }

    /// Reads the list of online CPUs, starts the timers of CPUs that came online, and changes the leader when it is
    /// time.
    pub(crate) fn follow_hotplug(&mut self) {
        let (now, all) = (perf::online_cpus(), self.all_comings());
        if now != self.online.cpus || all != self.online.all {
            let each = self.comings();
            // One may go and come back between two looks: all but one do where the machine is suspended.
            let before = |cpu: &usize| self.online.cpus.binary_search(cpu).is_ok();
            let again = |cpu: &usize| each.get(*cpu) != self.online.each.get(*cpu);
            let came: Vec<usize> = now.iter().copied().filter(|cpu| !before(cpu) || again(cpu)).collect();
            let went = self.online.cpus.iter().filter(|c| now.binary_search(c).is_err());
            self.changed.extend(came.iter().chain(went).map(|c| *c as u32));
            let gone = |leader: usize| now.binary_search(&leader).is_err() || came.contains(&leader);
            if self.online.leader.is_some_and(gone) {
                self.online.led_since = None;
            }
            (self.online.cpus, self.online.all, self.online.each) = (now, all, each);
            let waiting = &mut self.online.without_timers.0;
            waiting.retain(|(cpu, _)| !came.contains(cpu));
            waiting.extend(came.into_iter().map(|cpu| (cpu, Instant::now())));
        }
        self.start_timers_of_newcomers();
        self.choose_periods();
        // With few CPUs a look takes next to nothing.
        let turns = self.online.size() > MANY;
        let over = |since: Instant| turns && since.elapsed() >= TURN;
        if self.online.leader.is_some() && self.online.led_since.is_none_or(over) {
            self.pass_lead();
        }
    }

    fn start_timers_of_newcomers(&mut self) {
        if self.online.without_timers.0.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.online.without_timers);
        let online = self.online.cpus.clone();
        let given_up = waiting.start(&online, Instant::now(), |cpu| {
            // Those of before, and those that an earlier try began.
            self.timers.remove(&cpu);
            self.start_timers(cpu)
        });
        self.online.without_timers = waiting;
        for (cpu, e) in given_up {
            self.notes.push(format!("no timers on CPU {cpu}, which came online: {e}"));
        }
    }

    /// Gives sampling timers another period, when it is time.
    fn choose_periods(&mut self) {
        if self.online.periods_since.is_some_and(|since| since.elapsed() < NEW_PERIODS) {
            return;
        }
        self.online.periods_since = Some(Instant::now());
        for cpu in self.online.next_periods() {
            let ns = self.online.period(self.hz);
            if let Some(timer) = self.timers.get(&cpu).and_then(|timers| timers.sampler.as_ref()) {
                // Of a CPU that has just gone it fails, and does not matter.
                let _ = timer.set_period(ns);
            }
        }
    }

    /// Has the next CPU explain idle ones, or one after it: a CPU may have gone offline since.
    pub(super) fn pass_lead(&mut self) {
        let mut failed = None;
        for _ in 0..self.online.cpus.len().min(4) {
            let Some(next) = self.online.next_leader() else { break };
            self.online.leader = Some(next);
            match self.lead(next) {
                Ok(()) => {
                    self.online.led_since = Some(Instant::now());
                    return;
                }
                Err(e) => failed = Some(e),
            }
        }
        // Until CPUs come or go nobody is asked again.
        (self.online.leader, self.online.led_since) = (None, None);
        if let Some(e) = failed {
            self.notes.push(format!("idle CPUs are not explained: {e}"));
        }
    }

    /// A line about the CPUs that were offline for a part of the time, if there were any.
    pub(crate) fn hotplug_note(&self) -> Option<String> {
        let cpus: CpuSet = self.changed.iter().copied().collect();
        let (plural, were) = if self.changed.len() == 1 { ("", "was") } else { ("s", "were") };
        (!self.changed.is_empty()).then(|| {
            format!("CPU{plural} {cpus} {were} offline for a part of the time, which is not accounted for")
        })
    }

    /// Starts the sampling timer, and the events that end faults, of one CPU.
    pub(super) fn start_timers(&mut self, cpu: usize) -> std::io::Result<()> {
        let mut timers = Timers::default();
        if self.hz > 0 {
            let timer = perf::Timer::start(&self.skel.progs.sample, cpu, self.hz)?;
            // Where this cannot be, it is the nominal one.
            let _ = timer.set_period(self.online.period(self.hz));
            timers.sampler = Some(timer);
        }
        if self.micro {
            timers.faults.extend(load::attach_faults(&self.skel, cpu)?);
        }
        self.timers.insert(cpu, timers);
        self.start_striking(cpu)
    }

    /// Starts the timer that tells user code from the kernel, of one CPU, where tracing moves time between them.
    pub(super) fn start_striking(&mut self, cpu: usize) -> std::io::Result<()> {
        if self.strike_hz > 0 {
            let timer = perf::Timer::start(&self.skel.progs.strike, cpu, self.strike_hz)?;
            let _ = timer.set_period(self.online.period(self.strike_hz));
            self.timers.entry(cpu).or_default()._striker = Some(timer);
        }
        Ok(())
    }

    /// Starts the timer of the CPU that looks what idle CPUs are idle for.
    fn lead(&mut self, cpu: usize) -> std::io::Result<()> {
        // Two at a time would write to the same sums.
        self.lead = None;
        self.lead = Some(perf::Timer::start(&self.skel.progs.leader, cpu, self.online.looks_hz(self.hz))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.18 lists a CPU before it lets events of it be opened (ENODEV).
    #[test]
    fn a_cpu_that_came_gets_its_timers_as_soon_as_it_can() {
        let began = Instant::now();
        let mut waiting = Newcomers([3, 4, 5, 6].map(|cpu| (cpu, began)).into());
        let later = |ms| began + Duration::from_millis(ms);
        let mut tries = Vec::new();
        let mut start = |waiting: &mut Newcomers, ms, ready: &[usize]| {
            waiting.start(&[0, 3, 4, 5], later(ms), |cpu| {
                tries.push(cpu);
                match ready.contains(&cpu) {
                    true => Ok(()),
                    false => Err(std::io::Error::from_raw_os_error(libc::ENODEV)),
                }
            })
        };
        assert!(start(&mut waiting, 0, &[3]).is_empty());
        assert!(start(&mut waiting, 100, &[4]).is_empty());
        let given_up = start(&mut waiting, 3000, &[]);
        assert!(matches!(&given_up[..], [(5, e)] if e.raw_os_error() == Some(libc::ENODEV)), "{given_up:?}");
        assert!(start(&mut waiting, 3100, &[]).is_empty());
        // The last went offline again.
        assert_eq!(tries, [3, 4, 5, 4, 5, 5]);
    }

    #[test]
    fn each_leads_in_turn_but_those_that_are_kept_free() {
        let kept_free = [1, 2].into_iter().collect();
        let mut online = Online { cpus: vec![0, 1, 2, 5, 7], kept_free, ..Online::default() };
        let mut led = Vec::new();
        for _ in 0..5 {
            online.leader = online.next_leader();
            led.extend(online.leader);
        }
        assert_eq!(led, [0, 5, 7, 0, 5]);
        // It has gone offline meanwhile.
        online.cpus = vec![0, 1, 2, 7];
        assert_eq!(online.next_leader(), Some(7));
        online.cpus = vec![1, 2];
        assert_eq!(online.next_leader(), Some(1));
        online.cpus.clear();
        assert_eq!(online.next_leader(), None);
    }

    #[test]
    fn a_leader_of_many_cpus_looks_less_often() {
        let hz = |cpus: usize| Online { cpus: (0..cpus).collect(), ..Online::default() }.looks_hz(99);
        assert_eq!([2, 200, 400, 2048, 8192].map(hz), [997, 997, 500, 97, 97]);
        assert_eq!(Online { cpus: vec![0, 1], at_least: 2048, ..Online::default() }.looks_hz(99), 97);
        let few = |sample_hz| Online { cpus: vec![0, 1], ..Online::default() }.looks_hz(sample_hz);
        assert_eq!([0, 1, 49, 4000].map(few), [997, 97, 497, 997]);
    }

    #[test]
    fn periods_are_new_cpu_by_cpu_and_within_bounds() {
        let mut online = Online {
            cpus: (0..300).step_by(2).collect(),
            dice: fastrand::Rng::with_seed(1),
            ..Online::default()
        };
        let first = online.next_periods();
        assert_eq!((first.len(), first[0], first[127]), (128, 2, 256));
        let second = online.next_periods();
        assert_eq!((second[0], second[20], second[21]), (258, 298, 0));
        online.cpus = vec![5];
        assert_eq!(online.next_periods(), [5]);
        online.cpus.clear();
        assert!(online.next_periods().is_empty());
        let periods: Vec<u64> = (0..1000).map(|_| online.period(100)).collect();
        assert!(periods.iter().all(|ns| (9_700_000..10_300_000).contains(ns)));
        let mean = periods.iter().sum::<u64>() / 1000;
        assert!(mean.abs_diff(10_000_000) < 30_000, "{mean}");
    }

    #[test]
    fn cpus_that_are_kept_free_are_read() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("isolated"), "2-3\n").unwrap();
        std::fs::write(dir.join("nohz_full"), "  (null)\n").unwrap();
        assert_eq!(kept_free(root.path()), [2, 3].into_iter().collect());
        std::fs::write(dir.join("nohz_full"), "3,9\n").unwrap();
        assert_eq!(kept_free(root.path()), [2, 3, 9].into_iter().collect());
    }
}
