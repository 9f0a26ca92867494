//! CPUs that go offline or come online while they are observed, and which of them leads.
//!
//! The kernel side drops the time a CPU was offline when it comes back (`cpu_comes`); what is left to do
//! here is to stop charging a CPU that is gone, and to give one that came its timers: the kernel
//! removes the perf events of a CPU that goes offline, and does not bring them back with it.

use std::path::Path;
use std::time::{Duration, Instant};

use ncpu_machine::CpuSet;

use super::{Engine, load};
use crate::bpf_support::{perf, perf_event};

/// A CPU leads for so long: its timer looks at all CPUs, which on a large machine takes a CPU a per cent of its time.
const TURN: Duration = Duration::from_secs(1);

/// Above so many CPUs the leader looks less often: a look takes time for each of them.
const MANY: usize = 64;

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
    /// Those that their owner keeps free of others, and of timers where that can be.
    kept_free: CpuSet,
    leader: Option<usize>,
    led_since: Option<Instant>,
}

impl Online {
    /// Who leads after the present leader: the next in the order of numbers, and of CPUs that are kept free none while there
    /// are others.
    fn next_leader(&self) -> Option<usize> {
        let free = |cpu: &&usize| u32::try_from(**cpu).is_ok_and(|cpu| self.kept_free.contains(cpu));
        let after = |cpu: &&usize| self.leader.is_none_or(|leader| **cpu > leader);
        let others = || self.cpus.iter().filter(|cpu| !free(cpu));
        others().find(after).or_else(|| others().next()).or_else(|| self.cpus.first()).copied()
    }
}

/// CPUs that the kernel was told to keep free (`isolcpus=`, `nohz_full=`).
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

/// Makes room for the descriptors of events of all CPUs: of each the sampling timer, and with microstates two more.
pub(super) fn room_for_events(micro: bool, notes: &mut Vec<String>) {
    let events = if micro { 3 } else { 1 };
    if let Err((hard, need)) = perf_event::allow_files(perf::online_cpus().len() * FILES * events) {
        notes.push(format!(
            "a process may open {hard} files here, and events of all CPUs need {need}: some CPUs are not sampled"
        ));
    }
}

impl Engine {
    /// Learns which CPUs there are.
    pub(super) fn meet_cpus(&mut self) {
        self.online.cpus = perf::online_cpus();
        self.online.kept_free = kept_free(Path::new("/"));
        self.online.each = self.comings();
        self.online.all = self.all_comings();
    }

    fn all_comings(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.comings)
    }

    fn comings(&self) -> Vec<u64> {
        (0..self.slots.len()).map(|cpu| self.slots.get(cpu).comings).collect()
    }

    /// Looks which CPUs are online now, starts the timers of those that came, and has another CPU lead when it is time.
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
            for cpu in came {
                self.timers.remove(&cpu);
                if let Err(e) = self.start_timers(cpu) {
                    self.notes.push(format!("no timers on CPU {cpu}, which came online: {e}"));
                }
            }
        }
        // With few CPUs a look takes next to nothing, and what is charged by looks of one timer is more even.
        let turns = self.online.cpus.len() > MANY;
        let over = |since: Instant| turns && since.elapsed() >= TURN;
        if self.online.leader.is_some() && self.online.led_since.is_none_or(over) {
            self.pass_lead();
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
        let mut links = Vec::new();
        if self.hz > 0 {
            let fd = perf::cpu_clock(cpu, self.hz)?;
            links.push(perf::attach(&self.skel.progs.sample, fd)?);
        }
        if self.micro {
            links.extend(load::attach_faults(&self.skel, cpu)?);
        }
        self.timers.insert(cpu, links);
        Ok(())
    }

    /// Starts the timer of the CPU that looks what idle CPUs are idle for.
    fn lead(&mut self, cpu: usize) -> std::io::Result<()> {
        // Two at a time would write to the same sums.
        self.lead = None;
        let hz = if self.online.cpus.len() <= MANY { 997 } else { 97 };
        let fd = perf::cpu_clock(cpu, hz)?;
        self.lead = Some(perf::attach(&self.skel.progs.leader, fd)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
