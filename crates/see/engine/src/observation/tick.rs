//! The end of an interval: reads what the kernel side has counted, and hands over the rows that are new.

use std::time::Instant;

use ncpu_schema::{Counter, CpuState, IdleReason, Loss, Per, cpu_time, events, sleeps};
use ncpu_table::Table;

use super::idle::Idled;
use super::stat::Stat;
use super::threads::listed_once;
use super::{Observation, lengths, losses, seconds, served, tenants};
use crate::engine::{Coverage, Locks, Lost, Snapshot, Source, device_of};
use crate::names::call_name;

impl Observation {
    /// Hands the new rows of every table to `sink`.
    ///
    /// # Errors
    /// Those of `sink`.
    pub(super) fn tick<E>(&mut self, sink: &mut dyn FnMut(&Table) -> Result<(), E>) -> Result<(), E> {
        self.engine.rest_contentions();
        self.engine.rest_switches();
        self.engine.follow_hotplug();
        self.live_up_to_now();
        // Counters before events: a stack is sent before anything is counted for it.
        let mut locks = self.engine.locks();
        let mut snap = self.engine.snapshot();
        snap.keep_counted(&self.before);
        self.receive();
        if self.engine.has_ended() {
            self.late_lives();
        }
        self.correct(true);
        // The next steps may take long, and locks of programs that have just begun may not wait for them.
        if let Some(locks) = &mut self.user_locks {
            locks.look(&mut self.engine, Instant::now());
        }
        let t = snap.elapsed;

        let struck = (snap.struck.0 - self.before.struck.0, snap.struck.1 - self.before.struck.1);
        let (threads, stood, bound) = self.thread_table(t, struck, locks.coverage);
        let idled = Idled::between(&self.before, &snap, stood);
        let mut tables = vec![
            cpu_table(t, &self.before, &snap),
            idled.table(t),
            self.event_table(t, &snap, stood, &idled),
            self.interrupts.table(t, &snap.interrupts, &self.before.interrupts),
            threads,
            bound,
            idled.runnable_table(t),
        ];
        if self.needs_kernel_names()
            && let Some(note) = self.symbols.load_kernel()
        {
            self.notes.push(note);
        }
        tables.push(self.path.table(
            t,
            &locks.path,
            [&self.before, &snap],
            &|id| self.locks.off_stack_of(id),
            &mut self.symbols,
            &self.process_names,
            &|user| self.samples.spins_for(user),
        ));
        self.before = snap;
        let lost = std::mem::take(&mut locks.lost);
        // Only tenants are told how much of the time was counted.
        let (spins, coverage) = match self.tenants {
            Some(_) => (losses::spins(&locks.kernel), locks.coverage),
            None => (Vec::new(), Coverage::ALL),
        };
        let requests = std::mem::take(&mut locks.requests);
        let queued = std::mem::take(&mut locks.queued);
        tables.extend(self.named_tables(t, locks));
        tables.push(self.sleep_table(t));
        tables.extend(self.throttle.tables(t));
        tables.extend(self.bandwidth.as_mut().map(|bandwidth| bandwidth.table(t)));
        tables.push(self.devices.table(t, requests, &self.process_names));
        tables.push(self.queued.table(t, queued, self.program, &self.process_names));
        tables.extend(self.tenant_tables(t, idled.by_reason(), lost, spins, coverage));
        if let Some(tenants) = &mut self.tenants {
            self.settings.stood_behind(&std::mem::take(&mut tenants.stood_behind));
        }
        tables.push(self.settings.table(t, &self.process_names));
        self.symbols.forget_unused(Instant::now());
        tables.iter().filter(|table| table.num_rows() > 0).try_for_each(sink)
    }

    fn event_table(&mut self, t: f64, snap: &Snapshot, stood: f64, idled: &Idled) -> Table {
        let before = &self.before;
        let unwound = std::mem::take(&mut self.unwound);
        let served =
            |softirqs| interrupts_served(softirqs, snap).saturating_sub(interrupts_served(softirqs, before));
        let mut events = events::Rows::new();
        let mut row =
            |event, n| events.push(events::Row { time: Some(t), event: Some(event), count: Some(n) });
        for (event, n) in [
            (Counter::ShootdownsSent, snap.tlb_sent - before.tlb_sent),
            (Counter::ShootdownsReceived, snap.tlb_received - before.tlb_received),
            (Counter::Interrupts, served(false)),
            (Counter::Softirqs, served(true)),
            (Counter::Switches, snap.switches - before.switches),
            (Counter::UntracedSwitches, snap.unseen_switches - before.unseen_switches),
            (Counter::RunQueueMicroseconds, (stood * 1e6) as u64),
            (Counter::WakeUpMicroseconds, (idled.woke * 1e6) as u64),
            (Counter::IdleWakeUps, idled.wakings),
            (Counter::IdleTicks, snap.ticks - before.ticks),
            (Counter::StacksUnwound, unwound.stacks),
            (Counter::StacksWhole, unwound.whole),
        ] {
            row(event, n);
        }
        if let Some(shortage) = &mut self.shortage {
            let tcp = shortage.look();
            row(Counter::DelayedAcks, tcp.delayed_acks);
            row(Counter::ListenOverflows, tcp.listen_overflows);
            row(Counter::TcpTimeouts, tcp.timeouts);
            row(Counter::DatagramsDropped, tcp.datagrams);
        }
        events.finish()
    }

    /// The tables whose rows have names of code, locks and processes.
    fn named_tables(&mut self, t: f64, mut counted: Locks) -> Vec<Table> {
        let times = std::mem::take(&mut counted.times);
        let lengths = std::mem::take(&mut counted.lengths);
        let answered = std::mem::take(&mut counted.served);
        let Observation {
            engine,
            symbols,
            samples,
            locks,
            process_names,
            thread_names,
            user_locks,
            goroutines,
            ..
        } = self;
        let process = |tgid| process_names.of(tgid).map(String::from);
        let mut tables = Vec::from(locks.tables(t, counted, symbols, process_names, thread_names));
        if let Some(time) = &mut self.thread_time {
            tables.push(time.table(t, &times, locks, symbols, process_names, thread_names));
        }
        if let (Some(goroutines), Some(found)) = (goroutines, &*user_locks) {
            tables.push(goroutines.table(t, found, symbols, process_names));
        }
        let functions = engine.functions();
        let mut names = served::Names {
            locks: &mut *locks,
            symbols: &mut *symbols,
            processes: process_names,
            threads: thread_names,
            functions: &functions,
            go_wait_reasons: &|pid| user_locks.as_ref().and_then(|found| found.go_wait_reasons(pid)),
        };
        tables.extend(served::tables(t, &answered, &mut names));
        tables.push(self.slow.table(t, engine, &mut names));
        tables.push(lengths::table(
            t,
            &lengths,
            locks,
            symbols,
            process_names,
            &mut self.devices,
            &functions,
        ));
        let mut name_of = |symbols: &mut _, tgid, futex| locks.name_of(symbols, tgid, futex);
        tables.extend(samples.tables(t, symbols, engine.hz(), &process, &mut name_of));
        tables.extend(samples.causes(t, false, symbols, &process));
        let forgotten = locks.forgotten();
        forgotten.futexes.iter().for_each(|key| engine.forget_futex(*key));
        if forgotten.some {
            engine.send_again();
        }
        tables
    }

    /// Sleeps by the system call that they were in.
    fn sleep_table(&mut self, t: f64) -> Table {
        let mut rows = sleeps::Rows::new();
        for (nr, ns) in self.engine.sleep_calls() {
            let before = self.sleeps.insert(nr, ns).unwrap_or(0);
            if ns > before {
                rows.push(sleeps::Row {
                    call: call_name(nr).into(),
                    seconds: Some(seconds(ns, before)),
                    time: Some(t),
                });
            }
        }
        rows.finish()
    }

    /// The tables of tenants, of what came since the last ones.
    fn tenant_tables(
        &mut self,
        t: f64,
        idle: [f64; IdleReason::ALL.len()],
        lost: Vec<Lost>,
        spins: Vec<losses::Spin>,
        coverage: Coverage,
    ) -> Vec<Table> {
        let Some(tenants) = &mut self.tenants else { return Vec::new() };
        let shares = self.engine.take_tenants(&self.before, &tenants.take_living());
        let stolen = Stat::read().steal;
        let ticks = stolen.saturating_sub(std::mem::replace(&mut self.stolen, stolen));
        let (locks, devices, throttle) = (&self.locks, &mut self.devices, &self.throttle);
        tenants.tables(tenants::Interval {
            t,
            shares,
            idle,
            sampled: self.samples.take_processes(),
            lost,
            spins,
            coverage,
            steal: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            limit: &|group| throttle.holds_back(group),
            lock: &mut |cause, lock| match cause {
                Loss::Device => devices.name(device_of(lock)).into(),
                _ => locks.kernel_name(lock),
            },
        })
    }

    /// Takes in the lives of threads before waits are read: a wait that ends in between counts as one in progress,
    /// under its reason. Threads that end in between come with the next tables; see [`Observation::late_lives`] for the last ones.
    fn live_up_to_now(&mut self) {
        if self.thread_time.is_none() {
            return;
        }
        self.receive();
        let living = self.engine.threads().unwrap_or_default();
        if let Some(time) = &mut self.thread_time {
            let ended = std::mem::take(&mut time.ended);
            time.threads(&listed_once(&ended, &living));
        }
    }

    /// Takes in threads whose last record came after [`Observation::live_up_to_now`]: no tables follow that they could come with.
    fn late_lives(&mut self) {
        if let Some(time) = &mut self.thread_time {
            let ended = std::mem::take(&mut time.ended);
            time.threads(&listed_once(&ended, &[]));
        }
    }
}

/// The time of each CPU by its state.
fn cpu_table(t: f64, before: &Snapshot, now: &Snapshot) -> Table {
    let mut rows = cpu_time::Rows::new();
    for (cpu, at) in &now.cpus {
        // In the order of their numbers.
        let known = before.cpus.binary_search_by_key(cpu, |(c, _)| *c);
        let before = known.map_or_else(|_| Default::default(), |at| before.cpus[at].1);
        rows.push(cpu_time::Row {
            time: Some(t),
            cpu: Some(*cpu as u64),
            spent: Per::new(|state: CpuState| Some(seconds(at[state as usize], before[state as usize]))),
            kernel: None,
        });
    }
    rows.finish()
}

/// Softirqs, or interrupts, without ncpu's own.
fn interrupts_served(softirqs: bool, snap: &Snapshot) -> u64 {
    let of = |(source, _): &(&Source, _)| matches!(source, Source::Softirq(_)) == softirqs;
    snap.interrupts.iter().filter(of).map(|(_, served)| served.count).sum()
}
