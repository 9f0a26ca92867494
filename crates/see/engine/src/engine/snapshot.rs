//! All counters of the BPF programs at one moment.

use std::collections::BTreeMap;

use ncpu_schema::{CpuState, IdleReason, Runnable};

use super::interrupts::{self, Served, Source};
use super::{Engine, monotonic_ns};

/// Everything counted since the observation began.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds since the observation began.
    pub elapsed: f64,
    /// Per CPU that was seen: its number and ns by [`CpuState`].
    pub cpus: Vec<(usize, [u64; CpuState::ALL.len()])>,
    /// ns of idle CPUs by [`IdleReason`], by the leader's timer.
    pub idle: [u64; IdleReason::TOLD_APART],
    /// ns of idle CPUs while threads of the program ran, and ns for which there were any, by [`IdleReason`].
    pub busy: [(u64, u64); IdleReason::TOLD_APART],
    /// ns of idle CPUs while one was about to run, by [`IdleReason`].
    pub queued: [u64; IdleReason::TOLD_APART],
    /// ns of idle CPUs that no wake-up has ended yet, and for how long, by [`IdleReason`].
    pub pending: [(u64, u64); IdleReason::TOLD_APART],
    /// Ticks of the leader's timer.
    pub ticks: u64,
    /// ns that threads stood on run queues, summed.
    pub runnable: u64,
    /// Times a timer met threads of the program in user code, and anywhere; none where tracing moves no time between these.
    pub struck: (u64, u64),
    /// Threads of the program that were runnable and came on CPU, by reason.
    pub runnables: [Runnables; Runnable::ALL.len()],
    /// Of the CPUs that idled beside run queues, ns for threads woken from user locks, and from sleeps.
    pub woken_idle: [u64; 2],
    /// TLB shootdowns sent.
    pub tlb_sent: u64,
    /// TLB shootdowns answered.
    pub tlb_received: u64,
    /// Interrupts and softirqs served, by kind and device.
    pub interrupts: BTreeMap<Source, Served>,
    /// Context switches.
    pub switches: u64,
    /// Switches the kernel did not trace, found out at the next event.
    pub unseen_switches: u64,
    /// Counts of dropped records by kind: never silent.
    pub drops: Vec<(&'static str, u64)>,
}

/// Threads that were runnable and came on CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Runnables {
    /// How often.
    pub count: u64,
    /// ns that they stood on run queues of CPUs that ran something else.
    pub queued: u64,
    /// ns for which idle CPUs had been given one of them, and had not woken yet.
    pub waking: u64,
    /// Threads for which CPUs woke so.
    pub wakings: u64,
}

impl Runnables {
    /// Since an earlier snapshot.
    pub fn since(&self, before: &Runnables) -> Runnables {
        Runnables {
            count: self.count.saturating_sub(before.count),
            queued: self.queued.saturating_sub(before.queued),
            waking: self.waking.saturating_sub(before.waking),
            wakings: self.wakings.saturating_sub(before.wakings),
        }
    }
}

impl Engine {
    /// Reads all counters; O(CPUs).
    pub fn snapshot(&self) -> Snapshot {
        let end = self.ended.unwrap_or_else(monotonic_ns);
        let mut snap =
            Snapshot { elapsed: end.saturating_sub(self.began) as f64 / 1e9, ..Snapshot::default() };
        let bss = self.skel.maps.bss_data.as_ref();
        let (epoch, closed) = bss.map_or((0, 0), |bss| (bss.lock_epoch, bss.lock_closed));
        let mut drops = [0u64; 9];
        for cpu in 0..self.tables.slots.len() {
            // The CPU charges time meanwhile: with an old `last` beside a new `at` that time would count twice.
            let now = self.tables.slots.get_whole(cpu, |a, b| (a.last, a.at) == (b.last, b.at));
            // Never seen, or seen once and about to come online again.
            if now.last == 0 && now.at == [0; CpuState::ALL.len()] {
                continue;
            }
            let start = self.start.get(cpu).copied().unwrap_or_default();
            let mut at: [u64; CpuState::ALL.len()] = std::array::from_fn(|i| now.at[i]);
            // The state it is in has not been charged yet.
            if now.last != 0 && self.online.cpus.binary_search(&cpu).is_ok() {
                let since = now.last.max(self.began);
                // A wait that a window's end has cut short.
                let cut = if now.lock_epoch == epoch { end } else { closed.clamp(since, end.max(since)) };
                at[now.now_at() as usize] += cut.saturating_sub(since);
                at[now.after_wait() as usize] += end.saturating_sub(cut.max(since));
            }
            snap.cpus.push((cpu, at));
            snap.struck.0 += now.struck_user - start.struck_user;
            snap.struck.1 += now.struck - start.struck;
            for (i, sum) in snap.runnables.iter_mut().enumerate() {
                let (now, start) = (&now.runnable[i], &start.runnable[i]);
                sum.count += now.count - start.count;
                sum.queued += now.queued - start.queued;
                sum.waking += now.waking - start.waking;
                sum.wakings += now.wakings - start.wakings;
            }
            snap.tlb_sent += now.tlb_sent - start.tlb_sent;
            snap.tlb_received += now.tlb_received - start.tlb_received;
            for (i, (now, start)) in now.irqs.iter().zip(&start.irqs).enumerate() {
                if let Some(source) = interrupts::source(i, now.number) {
                    *snap.interrupts.entry(source).or_default() += interrupts::since(now, start);
                }
            }
            snap.switches += now.switches - start.switches;
            snap.unseen_switches += now.unseen - start.unseen;
            let lost = [
                now.drop_lock,
                now.drop_nest,
                now.drop_task,
                now.drop_ring,
                now.lost_fault_end,
                now.drop_io,
                // Of tenants, which all CPUs count together.
                0,
                now.drop_lengths,
                now.drop_requests,
            ];
            drops.iter_mut().zip(lost).for_each(|(sum, n)| *sum += n);
        }
        if let Some(bss) = &self.skel.maps.bss_data {
            snap.idle = bss.idle_ns;
            snap.woken_idle = bss.woken_idle;
            snap.ticks = bss.leader_ticks;
            let both = |idle: &[u64], time: &[u64]| std::array::from_fn(|i| (idle[i], time[i]));
            snap.busy = both(&bss.busy_idle, &bss.busy_time);
            snap.queued = bss.queue_idle;
            snap.pending = both(&bss.pending.idle, &bss.pending.time);
            snap.runnable = bss.runnable_ns;
            drops[5] += bss.io_left_out + self.unseen_ends;
            drops[6] += bss.tenants_missed;
        }
        let names = [
            "lock waits (lock table full)",
            "lock waits (nested too deeply, or an end missed in an interrupt)",
            "threads (no memory for a record)",
            "stacks and samples (ring buffer full)",
            "fault ends (perf throttled)",
            "requests to devices (tables full, or an end missed in an interrupt)",
            "threads of tenants (no number, or no room in the ring buffer, was free): they count as tenant other",
            "lengths of waits (their table full); their sums are not affected",
            "parts of requests (their table full); the count of requests is not affected",
        ];
        snap.drops = names.into_iter().zip(drops).filter(|(_, n)| *n > 0).collect();
        snap
    }
}
