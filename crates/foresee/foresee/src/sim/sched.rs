//! CPUs: segments, run queues, slices, stealing, and the accounts.

use super::{Cpu, Job, Mode, NONE, SEGMENT, SLICE, Sim, State, Thread, WAKE, event, ps};

impl Sim<'_> {
    pub(super) fn add_thread(&mut self, class: u16, bound: bool, cpu: u32) {
        let id = self.threads.len() as u32;
        self.threads.push(Thread {
            class,
            state: State::Asleep,
            bound,
            pc: 0,
            cpu,
            left: 0,
            mode: Mode::Work,
            activity: 0,
            held: Vec::new(),
            unpreemptible: 0,
            wait: NONE,
            wait_since: 0,
            wait_in: 0,
            first: false,
            spun: 0,
            spin_since: 0,
            epoch: 0,
            since: 0,
            micro: [0; 6],
            voluntary: 0,
            involuntary: 0,
        });
        self.live += 1;
        self.queue.push(0, event(WAKE, id, 0));
    }

    /// Charges idle CPUs to what they are idle for, up to now. Called before anything of that changes.
    #[inline]
    pub(super) fn flow(&mut self) {
        let dt = (self.now - self.flow_at) as f64;
        self.flow_at = self.now;
        if dt == 0.0 || self.idle == 0 {
            return;
        }
        let mut left = self.idle;
        for (reason, n) in
            [self.queued, self.waiting[1], self.waiting[2], self.waiting[3]].into_iter().enumerate()
        {
            let taken = left.min(n);
            self.flow[reason] += dt * f64::from(taken);
            left -= taken;
        }
        self.flow[if self.active > 0 { 4 } else { 5 }] += dt * f64::from(left);
    }

    /// Charges a CPU's time since the last change to what it did.
    #[inline]
    pub(super) fn account(&mut self, cpu: u32) {
        let c = &mut self.cpus[cpu as usize];
        let dt = self.now - c.since;
        if dt == 0 {
            return;
        }
        c.since = self.now;
        c.used[c.mode as usize] += dt;
        c.left -= dt as f64 * c.rate;
        if c.thread != NONE {
            let t = &mut self.threads[c.thread as usize];
            let micro = match c.mode {
                Mode::Work => {
                    self.activities[c.activity as usize] += dt;
                    self.micro_of[c.activity as usize]
                }
                Mode::UserSpin => 0,
                _ => 1,
            };
            t.micro[micro] += dt;
        }
    }

    /// Charges a thread's time off CPU.
    pub(super) fn account_off_cpu(&mut self, thread: u32) {
        let t = &mut self.threads[thread as usize];
        let dt = self.now - t.since;
        t.since = self.now;
        match t.state {
            State::Ready => t.micro[5] += dt,
            State::Waiting(1 | 2) => t.micro[3] += dt,
            State::Waiting(_) | State::Asleep => t.micro[4] += dt,
            State::Running | State::Spinning | State::Ended => {}
        }
    }

    /// The speed of a CPU with the present number of busy strands of its core.
    fn rate(&self, cpu: u32) -> f64 {
        let c = &self.cpus[cpu as usize];
        let base = self.base;
        let busy = self.cores[c.place.core as usize]
            .iter()
            .filter(|&&s| s == cpu || self.cpus[s as usize].mode != Mode::Idle)
            .count() as f64;
        base * (1.0 + (self.hardware.smt - 1.0) * (busy - 1.0) / (self.strands - 1.0)) / busy
    }

    /// Puts a CPU into a mode for `work`; `None`: without a deadline.
    pub(super) fn begin_segment(&mut self, cpu: u32, mode: Mode, activity: u16, work: Option<u64>) {
        self.account(cpu);
        let c = &mut self.cpus[cpu as usize];
        let changes = (c.mode == Mode::Idle) != (mode == Mode::Idle);
        let package = c.place.package as usize;
        if changes {
            self.flow();
        }
        let c = &mut self.cpus[cpu as usize];
        c.mode = mode;
        c.paying = false;
        c.activity = activity;
        c.epoch = c.epoch.wrapping_add(1);
        c.left = work.map_or(f64::INFINITY, |w| w as f64);
        if changes {
            if mode == Mode::Idle {
                self.idle += 1;
                self.idle_in[package] += 1;
            } else {
                self.idle -= 1;
                self.idle_in[package] -= 1;
            }
            if self.strands > 1.0 {
                self.siblings_change(cpu);
            }
        }
        let c = &self.cpus[cpu as usize];
        if work.is_some() {
            self.schedule_end(cpu, c.left, c.rate, c.epoch);
        }
    }

    fn schedule_end(&mut self, cpu: u32, left: f64, rate: f64, epoch: u32) {
        let at = self.now + (left.max(0.0) / rate).ceil() as u64;
        self.queue.push(at, event(SEGMENT, cpu, epoch));
    }

    /// Multiplies the rest of a CPU's segment by `factor`.
    pub(super) fn stretch(&mut self, cpu: u32, factor: f64) {
        self.account(cpu);
        let c = &mut self.cpus[cpu as usize];
        c.left *= factor;
        c.epoch = c.epoch.wrapping_add(1);
        let (left, rate, epoch) = (c.left, c.rate, c.epoch);
        self.schedule_end(cpu, left, rate, epoch);
    }

    fn siblings_change(&mut self, cpu: u32) {
        let core = self.cpus[cpu as usize].place.core as usize;
        for i in 0..self.cores[core].len() {
            let s = self.cores[core][i];
            self.account(s);
            let rate = self.rate(s);
            let c = &mut self.cpus[s as usize];
            if c.rate == rate {
                continue;
            }
            c.rate = rate;
            if s != cpu && c.mode != Mode::Idle && c.left.is_finite() {
                c.epoch = c.epoch.wrapping_add(1);
                let (left, epoch) = (c.left, c.epoch);
                self.schedule_end(s, left, rate, epoch);
            }
        }
    }

    /// Begins a segment of a thread that is on CPU.
    pub(super) fn work(&mut self, thread: u32, mode: Mode, activity: u16, work: u64) {
        let t = &mut self.threads[thread as usize];
        t.mode = mode;
        t.activity = activity;
        let cpu = t.cpu;
        self.begin_segment(cpu, mode, activity, Some(work));
    }

    /// [`Sim::work`] of a time that does not depend on how fast the CPU is.
    pub(super) fn stall(&mut self, thread: u32, mode: Mode, activity: u16, time: u64) {
        let cpu = self.threads[thread as usize].cpu;
        let work = time as f64 * self.cpus[cpu as usize].rate;
        self.work(thread, mode, activity, work as u64);
    }

    pub(super) fn segment_ends(&mut self, cpu: u32, epoch: u32) {
        if self.cpus[cpu as usize].epoch != epoch {
            return;
        }
        self.account(cpu);
        let c = &mut self.cpus[cpu as usize];
        let thread = c.thread;
        if thread == NONE {
            return;
        }
        // Interrupts came meanwhile: their time is added.
        let (tlb, irq) = (std::mem::take(&mut c.stolen_tlb), std::mem::take(&mut c.stolen_irq));
        let ended = !c.paying && c.mode != Mode::Switch;
        if ended {
            self.threads[thread as usize].left = 0;
        }
        if tlb + irq > 0 {
            let mode = if tlb > 0 { Mode::Tlb } else { Mode::Interrupt };
            if tlb > 0 && irq > 0 {
                self.cpus[cpu as usize].stolen_irq = irq;
            }
            let time = if tlb > 0 { tlb } else { irq };
            let work = time as f64 * self.cpus[cpu as usize].rate;
            self.begin_segment(cpu, mode, 0, Some(work as u64));
            self.cpus[cpu as usize].paying = true;
            return;
        }
        let t = &self.threads[thread as usize];
        if t.left > 0 {
            // The switch is over: what it was taken off in goes on.
            let (mode, activity, left) = (t.mode, t.activity, t.left);
            self.work(thread, mode, activity, left);
            return;
        }
        self.step(thread);
    }

    pub(super) fn slice_ends(&mut self, cpu: u32, epoch: u32) {
        let c = &mut self.cpus[cpu as usize];
        if c.slice_epoch != epoch {
            return;
        }
        c.sliced = false;
        if c.run.is_empty() || c.thread == NONE {
            return;
        }
        let t = &self.threads[c.thread as usize];
        let sleeps = t.state == State::Spinning && self.locks[t.wait as usize].sleeps();
        if sleeps {
            // A thread that spins for a lock it may sleep for does so where others want the CPU.
            let thread = c.thread;
            return self.give_up_spinning(thread);
        }
        if t.unpreemptible > 0 || matches!(c.mode, Mode::Switch | Mode::Spin) {
            c.resched = true;
            return;
        }
        self.preempt(cpu);
    }

    /// Puts the running thread behind the others of its CPU.
    pub(super) fn preempt(&mut self, cpu: u32) {
        let thread = self.cpus[cpu as usize].thread;
        self.account(cpu);
        let c = &mut self.cpus[cpu as usize];
        c.resched = false;
        let left = if c.left.is_finite() { c.left.max(1.0) as u64 } else { 0 };
        let t = &mut self.threads[thread as usize];
        // An interrupt's time is not the thread's own.
        if !c.paying {
            t.left = left;
        }
        t.involuntary += 1;
        self.switches.1 += 1;
        if t.state == State::Spinning {
            t.spun += self.now - t.spin_since;
        }
        t.state = State::Ready;
        t.since = self.now;
        self.flow();
        self.queued += 1;
        self.cpus[cpu as usize].run.push_back(thread);
        self.cpus[cpu as usize].thread = NONE;
        self.holder_leaves(thread);
        self.jobs.push(Job::Dispatch(cpu));
    }

    /// Takes a thread off CPU to wait or sleep.
    pub(super) fn leave(&mut self, thread: u32, state: State) {
        let cpu = self.threads[thread as usize].cpu;
        self.account(cpu);
        self.flow();
        match state {
            State::Waiting(reason) => self.waiting[reason as usize] += 1,
            _ => self.active -= 1,
        }
        let t = &mut self.threads[thread as usize];
        t.state = state;
        t.since = self.now;
        t.voluntary += 1;
        t.left = 0;
        self.switches.0 += 1;
        self.cpus[cpu as usize].thread = NONE;
        self.holder_leaves(thread);
        self.jobs.push(Job::Dispatch(cpu));
    }

    /// Makes a thread runnable that another one wakes: it runs on an idle CPU where there is one, once that has left its
    /// halt.
    pub(super) fn wake_by(&mut self, thread: u32) {
        let halt = ps(self.hardware.halt_ns);
        if halt == 0 || self.idle == 0 {
            return self.wake(thread);
        }
        let epoch = self.threads[thread as usize].epoch;
        self.queue.push(self.now + halt, event(WAKE, thread, epoch));
    }

    /// Makes a waiting or sleeping thread runnable.
    pub(super) fn wake(&mut self, thread: u32) {
        self.account_off_cpu(thread);
        self.flow();
        let t = &mut self.threads[thread as usize];
        t.epoch = t.epoch.wrapping_add(1);
        match t.state {
            State::Waiting(reason) => self.waiting[reason as usize] -= 1,
            State::Asleep => self.active += 1,
            _ => return,
        }
        t.state = State::Ready;
        let cpu = self.choose(thread);
        let t = &mut self.threads[thread as usize];
        t.cpu = cpu;
        self.queued += 1;
        let c = &mut self.cpus[cpu as usize];
        c.run.push_back(thread);
        if c.thread == NONE {
            self.jobs.push(Job::Dispatch(cpu));
        } else {
            self.arm(cpu);
        }
    }

    fn arm(&mut self, cpu: u32) {
        let slice = self.slice;
        let c = &mut self.cpus[cpu as usize];
        if !c.sliced && !c.run.is_empty() {
            c.sliced = true;
            c.slice_epoch = c.slice_epoch.wrapping_add(1);
            self.queue.push(self.now + slice, event(SLICE, cpu, c.slice_epoch));
        }
    }

    /// The CPU for a thread that wakes: its last if idle, else an idle one near, best with its whole core idle.
    fn choose(&self, thread: u32) -> u32 {
        let t = &self.threads[thread as usize];
        let free = |c: &Cpu| c.mode == Mode::Idle && c.thread == NONE && c.run.is_empty();
        if t.bound || self.idle == 0 || free(&self.cpus[t.cpu as usize]) {
            return t.cpu;
        }
        let home = self.cpus[t.cpu as usize].place.package as usize;
        let n = self.packages.len();
        for package in (0..n).map(|i| (home + i) % n) {
            if self.idle_in[package] == 0 {
                continue;
            }
            let mut any = None;
            for &cpu in &self.packages[package] {
                if !free(&self.cpus[cpu as usize]) {
                    continue;
                }
                let core = self.cpus[cpu as usize].place.core as usize;
                if self.cores[core].iter().all(|&s| free(&self.cpus[s as usize])) {
                    return cpu;
                }
                any.get_or_insert(cpu);
            }
            if let Some(cpu) = any {
                return cpu;
            }
        }
        t.cpu
    }

    /// Finds the CPU something to run: its own queue first, else another's near, else it idles.
    pub(super) fn dispatch(&mut self, cpu: u32) {
        if self.cpus[cpu as usize].thread != NONE {
            return;
        }
        let next = match self.cpus[cpu as usize].run.pop_front() {
            Some(thread) => Some(thread),
            None if self.queued > 0 => self.steal(cpu),
            None => None,
        };
        let Some(thread) = next else {
            if self.cpus[cpu as usize].mode != Mode::Idle {
                self.begin_segment(cpu, Mode::Idle, 0, None);
            }
            return;
        };
        self.account_off_cpu(thread);
        self.flow();
        self.queued -= 1;
        let was_idle = self.cpus[cpu as usize].mode == Mode::Idle;
        let spins = self.resume_wait(thread);
        let t = &mut self.threads[thread as usize];
        t.cpu = cpu;
        t.state = if spins { State::Spinning } else { State::Running };
        if spins {
            t.spin_since = self.now;
        }
        self.cpus[cpu as usize].thread = thread;
        let cost = self.hardware.switch_ns + if was_idle { self.hardware.wake_ns } else { 0.0 };
        if spins {
            let mode = self.spin_mode(self.threads[thread as usize].wait);
            self.begin_segment(cpu, mode, 0, None);
        } else if cost > 0.0 {
            let work = cost * 1e3 * self.cpus[cpu as usize].rate;
            self.begin_segment(cpu, Mode::Switch, 0, Some(work as u64));
        } else {
            let t = &self.threads[thread as usize];
            if t.left > 0 {
                let (mode, activity, left) = (t.mode, t.activity, t.left);
                self.work(thread, mode, activity, left);
            } else {
                self.jobs.push(Job::Step(thread));
            }
        }
        self.arm(cpu);
    }

    fn steal(&mut self, cpu: u32) -> Option<u32> {
        let home = self.cpus[cpu as usize].place.package as usize;
        let n = self.packages.len();
        for package in (0..n).map(|i| (home + i) % n) {
            let victim =
                self.packages[package].iter().copied().max_by_key(|&c| self.cpus[c as usize].run.len())?;
            let run = &self.cpus[victim as usize].run;
            let at = (0..run.len()).rev().find(|&i| !self.threads[run[i] as usize].bound);
            if let Some(at) = at {
                return self.cpus[victim as usize].run.remove(at);
            }
        }
        None
    }

    /// Interrupts a CPU for a time.
    pub(super) fn interrupt(&mut self, cpu: u32, ns: f64) {
        let cpu = &mut self.cpus[cpu as usize];
        if cpu.works() {
            cpu.stolen_tlb += ps(ns);
        }
    }
}
