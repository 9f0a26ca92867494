//! The operations of a model's threads, in cycles that repeat.

use crate::model::{Error, FIRST_LINE, LineModel, LockPart, MOST_THREADS, Memory, Model};
use crate::program::{Activity, Class, Handover, LockModel, Op, Owner, Pick, Program};
use crate::sim::Time;

/// Work handed to a helper at a time, ns: large enough that handing it over costs little.
const CHUNK: f64 = 1e6;
/// The longest cycle of a thread, ns.
const LONGEST: f64 = 2e7;
/// One write of a bounded counter in this many needs the shared reserve.
const RESERVE: f64 = 64.0;

impl Model {
    /// Units of work in a cycle of a thread: the most frequent operation happens once a cycle, and a cycle takes no
    /// more than some milliseconds, for units of any length.
    fn cycle(&self) -> f64 {
        let most = self
            .lock
            .iter()
            .map(|l| l.takes)
            .chain(self.line.iter().map(|l| l.writes))
            .chain([self.shootdowns, self.handovers])
            .fold(0.0, f64::max);
        let held: f64 = self.lock.iter().map(|l| l.takes * l.hold_ns).sum();
        let long =
            (self.work_ns + held + self.sleep_ns + self.wait_ns + self.io_ns + self.serial_ns) / LONGEST;
        1.0 / most.max(long).max(1.0)
    }

    /// The program as it is simulated, with `threads` workers, and the number of its cycles in a unit.
    ///
    /// # Errors
    /// There would be more threads than can be simulated.
    pub fn program(&self, threads: u32, cpus: u32) -> Result<(Program, f64), Error> {
        let all = u64::from(threads) * u64::from(if self.shared_work() > 0.0 { self.populate } else { 1 });
        if all > u64::from(MOST_THREADS) {
            return Err(Error::Value(format!(
                "populate {} with {threads} workers makes {all} threads, more than the {MOST_THREADS} that can be simulated",
                self.populate
            )));
        }
        let part = self.cycle();
        let mut program = Program {
            activities: [Activity::new("user", ""), Activity::new("serial", "")]
                .into_iter()
                .chain(self.line.iter().map(|line| Activity::new("line", &line.name)))
                .collect(),
            slice_ns: 3e6,
            tick: (self.tick_ns > 0.0 && self.tick_hz > 0.0).then_some((self.tick_ns, self.tick_hz)),
            ticks_on_one: self.ticks_on_one,
            shootdown_misses: self.shootdown_misses,
            shootdown_handle_ns: self.shootdown_handle_ns,
            ..Program::default()
        };
        let compute =
            |ns: f64, activity| Op::Compute { time: Time { mean: ns * 1e3, cv: self.cv }, activity };
        let mut ops = Vec::new();
        let parts = self.lock.len() as f64 + 1.0;
        // Work is spread between the locks, since a burst of locks without work between them is another program.
        let shared = self.shared_work();
        let slice = (self.work_ns - shared) * part / parts;
        for lock in &self.lock {
            ops.push(compute(slice, 0));
            take_lock(&mut program, &mut ops, lock, part);
        }
        ops.push(compute(slice, 0));
        for (activity, line) in (FIRST_LINE..).zip(&self.line) {
            write_line(&mut program, &mut ops, line, activity, part, cpus);
        }
        if self.memory_bytes > 0.0 {
            let node = match self.memory {
                Memory::Local => Some(u32::MAX),
                Memory::Node0 => Some(0),
                Memory::Interleaved => None,
            };
            ops.push(Op::Memory { node, bytes: self.memory_bytes * part, parallel: 8.0, activity: 0 });
        }
        sometimes(
            &mut ops,
            self.shootdowns * part,
            &[Op::Shootdown { per_package: self.shootdowns_per_package }],
        );
        sometimes(&mut ops, self.handovers * part, &[Op::HandOver]);
        if self.serial_ns > 0.0 {
            let lock = program.locks.len() as u32;
            program
                .locks
                .push(LockModel { owner: Owner::Serial, ..LockModel::new("serial part", Handover::Block) });
            // Rare and long, as phases are.
            let phase = (self.serial_ns * part).max(50_000.0);
            let often = self.serial_ns * part / phase;
            sometimes(
                &mut ops,
                often,
                &[Op::Acquire { lock, pick: Pick::One }, compute(phase, 1), Op::Release],
            );
        }
        if shared > 0.0 {
            self.populate(&mut program, &mut ops, shared * part, threads);
        }
        for (ns, io) in [(self.sleep_ns + self.wait_ns, false), (self.io_ns, true)] {
            if ns > 0.0 {
                // Sleeps shorter than a switch are not slept.
                let each = (ns * part * self.batch).max(5_000.0);
                let op = Op::Sleep { time: Time::exponential(each), io };
                sometimes(&mut ops, ns * part / each, &[op]);
            }
        }
        ops.push(Op::Done);
        program.classes.insert(0, Class { name: self.name.clone(), threads, bound: false, ops });
        Ok((program, 1.0 / part))
    }

    /// Work of a unit that helpers share, ns.
    fn shared_work(&self) -> f64 {
        if self.populate < 2 { 0.0 } else { self.work_ns * self.populating() }
    }

    /// Hands `work` ns of a cycle to helpers, a chunk now and then, and waits for them.
    fn populate(&self, program: &mut Program, ops: &mut Vec<Op>, work: f64, threads: u32) {
        let chunk = work.max(CHUNK);
        let (todo, done) = (program.queues.len() as u32, program.queues.len() as u32 + 1);
        let room = self.populate * threads.max(1);
        program.queues.extend([room, room]);
        // The thread itself is one of those who share it.
        let helpers = self.populate - 1;
        let part = Op::Compute {
            time: Time { mean: chunk / f64::from(self.populate) * 1e3, cv: self.cv.min(0.3) },
            activity: 0,
        };
        let mut hand = vec![Op::Put { queue: todo }; helpers as usize];
        hand.push(part.clone());
        hand.extend(vec![Op::Get { queue: done }; helpers as usize]);
        sometimes(ops, work / chunk, &hand);
        program.classes.push(Class {
            name: self.name.clone(),
            threads: helpers * threads.max(1),
            bound: false,
            ops: vec![Op::Get { queue: todo }, part, Op::Put { queue: done }],
        });
    }
}

/// Adds a lock with its copies to the program, and how often in a cycle it is taken.
fn take_lock(program: &mut Program, ops: &mut Vec<Op>, lock: &LockPart, part: f64) {
    let first = program.locks.len() as u32;
    for copy in 0..lock.copies {
        let name = if copy == 0 { lock.name.clone() } else { format!("{} {copy}", lock.name) };
        let mut model = LockModel::new(&name, lock.handover());
        model.owner = if lock.kernel { Owner::Kernel } else { Owner::User };
        model.wake_ns = lock.wake_ns;
        model.lines = lock.lines;
        program.locks.push(model);
    }
    let pick = if lock.copies > 1 { Pick::Random(lock.copies) } else { Pick::One };
    let hold = Op::Compute { time: Time { mean: lock.hold_ns * 1e3, cv: lock.cv }, activity: 0 };
    let exclusive = [Op::Acquire { lock: first, pick }, hold.clone(), Op::Release];
    let shared = [Op::AcquireShared { lock: first, pick }, hold, Op::Release];
    for (takes, what) in [(lock.takes * (1.0 - lock.reads), exclusive), (lock.takes * lock.reads, shared)] {
        sometimes(ops, takes * part, &what);
    }
}

/// Adds a line with its copies, and how often in a cycle it is written.
fn write_line(
    program: &mut Program,
    ops: &mut Vec<Op>,
    line: &LineModel,
    activity: u16,
    part: f64,
    cpus: u32,
) {
    let first = program.lines;
    let copies = if line.copies == 0 || line.bounded { cpus } else { line.copies };
    program.lines += copies.max(line.among) + u32::from(line.bounded);
    let pick = match (copies, line.among) {
        (1, 1) => Pick::One,
        (1, among) => Pick::Random(among),
        _ => Pick::Own(copies),
    };
    sometimes(ops, line.writes * part, &[Op::Line { line: first, pick, activity }]);
    if line.bounded {
        let reserve = Op::Line { line: first + copies.max(line.among), pick: Pick::One, activity };
        sometimes(ops, line.writes * part / RESERVE, &[reserve]);
    }
}

/// Adds operations that happen `times` times a cycle.
fn sometimes(ops: &mut Vec<Op>, times: f64, what: &[Op]) {
    let whole = times.floor() as usize;
    for _ in 0..whole.min(64) {
        ops.extend_from_slice(what);
    }
    let rest = times - whole as f64;
    if rest > 1e-9 {
        ops.push(Op::Sometimes { probability: rest, skip: what.len() as u32 });
        ops.extend_from_slice(what);
    }
}
