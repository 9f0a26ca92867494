//! CPUs that go offline or come online while they are observed.
//!
//! The kernel side drops the time a CPU was offline when it comes back (`cpu_comes`); what is left to do
//! here is to stop charging a CPU that is gone, and to give one that came its timers: the kernel
//! removes the perf events of a CPU that goes offline, and does not bring them back with it.

use ncpu_machine::CpuSet;

use super::{Engine, load};
use crate::bpf_support::perf;

impl Engine {
    /// Looks which CPUs are online now and starts the timers of those that were not.
    pub(crate) fn follow_hotplug(&mut self) {
        let now = perf::online_cpus();
        if now == self.online {
            return;
        }
        let came: Vec<usize> =
            now.iter().copied().filter(|c| self.online.binary_search(c).is_err()).collect();
        let went = self.online.iter().filter(|c| now.binary_search(c).is_err());
        self.changed.extend(came.iter().chain(went).map(|c| *c as u32));
        for cpu in came {
            self.timers.remove(&cpu);
            if let Err(e) = self.start_timers(cpu) {
                self.notes.push(format!("no timers on CPU {cpu}, which came online: {e}"));
            }
        }
        let leads = self.leader.is_some_and(|cpu| now.binary_search(&cpu).is_err());
        if let (true, Some(&first)) = (leads, now.first())
            && let Err(e) = self.lead(first)
        {
            self.notes.push(format!("idle CPUs are no longer explained: {e}"));
        }
        self.online = now;
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
    pub(super) fn lead(&mut self, cpu: usize) -> std::io::Result<()> {
        let hz = if self.online.len() <= 64 { 997 } else { 97 };
        let fd = perf::cpu_clock(cpu, hz)?;
        self.lead = Some(perf::attach(&self.skel.progs.leader, fd)?);
        self.leader = Some(cpu);
        Ok(())
    }
}
