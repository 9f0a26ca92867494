//! Rows that are new since the last tables, and notes on the whole.

use std::collections::BTreeMap;

use ncpu_schema::{Counter, CpuState, Microstate, Per, View, cpu_time, events, idle_time, threads};
use ncpu_table::Table;

use super::capacity::{Spent, Ticks};
use super::locks::Locks;
use super::processes::{Accounts, Thread};
use super::{SHORT, Unprivileged};
use crate::program::Ended;

impl Unprivileged {
    /// The growth of each CPU's time since the last table. All is computed from the beginning on, so that time lost
    /// to rounding in one interval comes in the next.
    pub(super) fn cpu_time(&mut self, t: f64, spent: BTreeMap<u32, Spent>, kernel: Option<f64>) -> Table {
        let mut rows = Vec::new();
        for (cpu, sums) in spent {
            let told = self.told.spent.entry(cpu).or_default();
            let mut new = Spent::default();
            for ((new, told), sum) in new.iter_mut().zip(told).zip(sums) {
                *new = (sum - *told).max(0.0);
                *told += *new;
            }
            rows.push((cpu, new));
        }
        let program = |new: &Spent| new[CpuState::Program as usize];
        let all: f64 = rows.iter().map(|(_, new)| program(new)).sum();
        let new = kernel.map(|sum| (sum - self.told.kernel).clamp(0.0, all));
        self.told.kernel += new.unwrap_or(0.0);
        let mut out = cpu_time::Rows::new();
        for (cpu, new_of) in &rows {
            out.push(cpu_time::Row {
                time: Some(t),
                cpu: Some((*cpu).into()),
                spent: Per::new(|state| Some(new_of[state as usize])),
                kernel: new.map(|new| new * program(new_of) / all.max(f64::MIN_POSITIVE)),
            });
        }
        out.finish()
    }

    pub(super) fn idle_time(&mut self, t: f64) -> Table {
        let before = std::mem::replace(&mut self.told.idle, self.idle.clone());
        let mut out = idle_time::Rows::new();
        let new = |reason| self.idle.spent[reason as usize] - before.spent[reason as usize];
        out.push(idle_time::Row { time: Some(t), spent: Per::new(|reason| Some(new(reason))) });
        out.finish()
    }

    pub(super) fn events(&mut self, t: f64, accounts: &Accounts) -> Table {
        let mut out = events::Rows::new();
        let waited = self.waited();
        let new = waited.saturating_sub(std::mem::replace(&mut self.told.waited.1, waited));
        let mut migrations = 0;
        for (tid, n) in self.processes.migrations() {
            migrations += n.saturating_sub(self.told.migrations.insert(tid, n).unwrap_or(0));
        }
        let looks = self.idle.looks - std::mem::replace(&mut self.told.looks, self.idle.looks);
        let met = accounts.met;
        let before = std::mem::replace(&mut self.told.met, met);
        for (event, n) in [
            (Counter::RunQueueMicroseconds, new / 1000),
            (Counter::IdleTicks, looks),
            (Counter::MinorFaults, met.minor_faults.saturating_sub(before.minor_faults)),
            (Counter::MajorFaults, met.major_faults.saturating_sub(before.major_faults)),
            (Counter::VoluntarySwitches, met.voluntary.saturating_sub(before.voluntary)),
            (Counter::InvoluntarySwitches, met.involuntary.saturating_sub(before.involuntary)),
            (Counter::Migrations, migrations),
            (Counter::BytesRead, met.read.saturating_sub(before.read)),
            (Counter::BytesWritten, met.written.saturating_sub(before.written)),
        ] {
            out.push(events::Row { time: Some(t), event: Some(event), count: Some(n) });
        }
        out.finish()
    }

    /// The time of each thread since the last table, as far as looks saw it.
    pub(super) fn threads(&mut self, t: f64) -> Table {
        let mut out = threads::Rows::new();
        let length = t - std::mem::replace(&mut self.told.time, t);
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let uptime = boot.tv_sec as f64 + boot.tv_nsec as f64 / 1e9;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let ended: Vec<(u32, Thread)> = std::mem::take(&mut self.told.ended);
        let living = self.processes.threads.iter().map(|(tid, thread)| (*tid, thread.clone()));
        let now: Vec<(u32, Thread)> = living.chain(ended).collect();
        for (tid, now) in &now {
            let old = self.told.threads.get(tid).filter(|old| old.start == now.start);
            let new = |of: fn(&Thread) -> u64| of(now).saturating_sub(old.map_or(0, of));
            let seconds = |of| Some(new(of) as f64 / 1e9);
            let (ran, waited) = (seconds(|t| t.ran), seconds(|t| t.waited));
            // The kernel's tick divides, the scheduler's clock measures.
            let (user, system) = (new(|t| t.divided.0) as f64, new(|t| t.divided.1) as f64);
            let part = |of: f64| ran.filter(|_| user + system > 0.0).map(|ran| ran * of / (user + system));
            // Sleep between the last look and the thread's end was not seen.
            let lives = self.processes.threads.contains_key(tid);
            let lived = (uptime - now.start as f64 / ticks).clamp(0.0, length);
            let slept = (lived - ran.unwrap_or(0.0) - waited.unwrap_or(0.0)).max(0.0);
            out.push(threads::Row {
                error: None,
                time: Some(t),
                pid: Some(now.pid.into()),
                tid: Some((*tid).into()),
                process: self.processes.names.get(&now.pid).unwrap_or(&now.name).into(),
                thread: (&now.name).into(),
                micro: Per::new(|state| match state {
                    Microstate::Usr => part(user),
                    Microstate::Sys => part(system),
                    Microstate::Lat => waited,
                    // Not measured separately.
                    Microstate::Trp
                    | Microstate::Tfl
                    | Microstate::Dfl
                    | Microstate::Lck
                    | Microstate::Slp => None,
                }),
                vcx: Some(new(|t| t.switches.0)),
                icx: Some(new(|t| t.switches.1)),
                minf: Some(new(|t| t.minor_faults)),
                majf: Some(new(|t| t.major_faults)),
                cpu: ran,
                off: lives.then_some(slept),
                ..threads::Row::default()
            });
        }
        self.told.threads = self.processes.threads.iter().map(|(tid, t)| (*tid, t.clone())).collect();
        out.finish()
    }

    /// Notes on the whole observation.
    pub(super) fn conclude(&mut self, ended: Option<&Ended>, now: &Ticks) {
        let limit = self.limit.as_deref();
        let words = self.rules.words(self.view(), self.kernel_names, self.refused.as_ref(), limit);
        self.notes.insert(0, words);
        let program: f64 = self.told.spent.values().map(|s| s[CpuState::Program as usize]).sum();
        let used = self.so_far.user + self.so_far.system;
        // The clocks run on while the hypervisor runs others.
        let more = program - used - now.steal(&self.first);
        if self.sampler.is_some() && !self.everything && more > 0.01 * program + 0.05 {
            self.notes.push(format!(
                "the program was on CPU for {program:.2} s, of which the times of its processes tell {used:.2} s: nobody \
                 waited for the rest"
            ));
        }
        self.notes.extend(self.locks.as_ref().map(Locks::words));
        let deep = matches!(self.view(), View::Machine | View::Program);
        if !deep && self.short_lived(program, now) {
            self.notes.push(
                "its processes were too short for the kernel to divide their times: user code and the kernel are told apart \
                 by the machine's ticks, with those of other programs"
                    .into(),
            );
        } else if !deep && self.started as f64 * SHORT > program {
            self.notes.push(
                "its processes were so short that the kernel calls most of their time user code: the kernel's part is \
                 too small"
                    .into(),
            );
        }
        if ended.is_some() {
            let left = self.processes.living();
            if let Some((first, name)) = left.first() {
                let who = match left.len() {
                    1 => format!("a process of the program lives on ({name} {first})"),
                    n => format!("{n} processes of the program live on ({name} {first} and others)"),
                };
                self.notes.push(format!(
                    "{who}: observed until the command itself ended; `ncpu watch -p {first}` observes on"
                ));
            }
        }
    }
}
