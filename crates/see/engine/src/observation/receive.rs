//! What the kernel side sends while an observation runs: stacks, threads that end, programs that begin.

use std::time::Instant;

use ncpu_schema::CpuState;

use super::Observation;
use crate::bpf_support::Stack;
use crate::engine::Event;
use crate::names::Frames;

impl Observation {
    /// Takes in all that has been sent.
    pub(super) fn receive(&mut self) {
        for event in self.engine.drain() {
            self.tell_scripts();
            self.take_in(event);
        }
        for verdict in self.locks.judge_again(&mut self.symbols) {
            self.engine.judge_futex(&verdict);
            self.corrections.judged();
        }
        self.tell_scripts();
        self.correct(false);
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Sample { at, mut stack, copy, idling, pauses, registers, cpu, time, futex } => {
                self.note_process(&stack);
                self.unwound += self.symbols.complete(&mut stack, copy.as_ref()).0;
                self.process_names.met(stack.tgid, &stack.comm);
                self.path.sample(&stack, idling);
                if at == CpuState::Program {
                    self.settings.met(stack.tgid);
                    self.path.beside(&stack, pauses, cpu, time, self.engine.hz());
                }
                if let Some(registers) = registers.as_ref().filter(|_| stack.kernel.is_empty()) {
                    self.samples.keep_code(&self.symbols, stack.tgid, registers.ip());
                }
                let registers = registers.map(|registers| (registers, time));
                self.samples.add(at, stack, pauses, futex, registers);
            }
            Event::Exit(mut thread) => {
                // Its last waits may have been judged since.
                if self.locks.is_lock(thread.tgid, thread.unjudged, thread.unjudged_place) {
                    thread.last_waits_were_for_a_lock();
                }
                self.placement.met(thread.tgid);
                self.process_names.set(thread.tgid, thread.process());
                self.thread_names.set(thread.tid, thread.name());
                if let Some(time) = &mut self.thread_time {
                    time.ended.push(*thread);
                }
                self.exited.push(*thread);
            }
            Event::Request(slow) => self.slow.met(*slow),
            Event::Tenant(new) => {
                if let Some(tenants) = &mut self.tenants {
                    tenants.meet(&new);
                }
            }
            Event::LockStack(id, stack) => {
                self.process_names.met(stack.tgid, &stack.comm);
                self.locks.lock_stack(id, stack);
            }
            Event::UserLockStack(id, stack) => {
                self.note_process(&stack);
                self.process_names.met(stack.tgid, &stack.comm);
                self.locks.user_lock_stack(id, stack);
            }
            Event::Exec(pid, comm) => {
                self.symbols.note_exec(pid, &comm);
                self.tell_scripts();
                if let Some(locks) = &mut self.user_locks
                    && locks.began(pid, Instant::now())
                {
                    self.engine.forget_go(pid);
                }
            }
            Event::OffCpu { id, chain, mut stack, copy } => {
                self.note_process(&stack);
                let (unwound, marks) = self.symbols.complete(&mut stack, copy.as_ref());
                self.unwound += unwound;
                if let Some(chain) = chain
                    && let Some(place) = self.places.meet(chain, id, copy.as_ref(), &marks)
                {
                    self.engine.tell_place(&place);
                }
                self.locks.off_stack(id, stack);
            }
            Event::Futex { address, stack, copy, again, number } => {
                self.note_process(&stack);
                self.locks.met(&stack, &self.engine);
                if let Some(number) = number {
                    self.locks.met_in_call(&mut self.symbols, address, &stack, copy.as_ref(), number);
                    return;
                }
                for verdict in self.locks.judge(&mut self.symbols, address, &stack, copy.as_ref(), again) {
                    self.engine.judge_futex(&verdict);
                    self.corrections.judged();
                }
            }
        }
    }

    fn note_process(&mut self, stack: &Stack) {
        self.symbols.note(stack.tgid, stack.tid, &stack.comm);
        self.tell_scripts();
    }

    /// Tells the kernel side of processes of Python and V8 as soon as they are known: what it sends until then has no functions.
    fn tell_scripts(&mut self) {
        if self.symbols.next_look().is_some_and(|at| at <= Instant::now()) {
            self.symbols.look(Instant::now());
        }
        for (tgid, frames) in self.symbols.new_scripts() {
            match frames {
                Frames::Python(at) => self.engine.tell_python(tgid, &at),
                Frames::V8(at) => self.engine.tell_v8(tgid, &at),
            }
        }
    }

    /// Charges waits for futexes that have been judged since they began: their threads wait still, or have
    /// just waited.
    pub(super) fn correct(&mut self, last: bool) {
        let began = Instant::now();
        if !self.corrections.begin(began, last) {
            return;
        }
        if let Err(e) = self.engine.correct_waits() {
            self.note(format!("a thread's first wait for a user lock is missing from the table: {e}"));
        }
        self.corrections.done(began, Instant::now());
    }
}
