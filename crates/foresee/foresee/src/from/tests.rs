//! Models read out of recordings of known programs, since these were simulated.

use ncpu_record::Recording;
use ncpu_schema::{CpuState, SampleClass, UserCause};
use ncpu_table::{Column, Kind, Table, Unit};

use super::*;
use crate::foretell::{self, Effort};
use crate::hardware::Order;
use crate::model::{LineModel, LockPart, Share};
use crate::program::LockKind;
use crate::recorded::recorded_machine;
use crate::tables;

const EFFORT: Effort = Effort { within: 0.01, events: 3_000_000, seed: 5 };

fn machine(cpus: u32) -> crate::hardware::Hardware {
    let recorded = Recorded {
        cpus,
        of: 0,
        cpu_model: String::new(),
        shape: None,
        sleep_ns: None,
        threads: 0,
        halt_ns: 0.0,
        handover_ns: 0.0,
        transfer_ns: 0.0,
        workers: 0,
        unseen: 0.0,
        resident_bytes: 0,
        command: Vec::new(),
        throughput: 0.0,
        layers: Vec::new(),
    };
    recorded_machine(&recorded).unwrap()
}

/// The model on `cpus` CPUs, as if it had been observed there.
fn observed(model: &Model, cpus: u32) -> (Recording, f64) {
    observed_on(model, cpus, 0.0)
}

/// The same, where a CPU takes `halt_ns` to run a thread that another CPU woke.
fn observed_on(model: &Model, cpus: u32, halt_ns: f64) -> (Recording, f64) {
    observed_there(model, crate::hardware::Hardware { halt_ns, ..machine(cpus) })
}

fn observed_there(model: &Model, hardware: crate::hardware::Hardware) -> (Recording, f64) {
    let cpus = hardware.shape.cpus() as u32;
    let point = foretell::point(model, &hardware, cpus as usize, Order::Spread, &EFFORT, &|| false).unwrap();
    let threads = foretell::workers(model, cpus as usize);
    let mut recording = tables::recording(model, &hardware, &point, Vec::new());
    // The simulator does not say how long its threads asked to sleep; the kernel does.
    let slept: f64 = point.outcome.threads.iter().map(|t| t.1[4] as f64 * 1e-12).sum();
    if model.sleep_ns > 0.0 {
        recording
            .tables
            .insert("sleepers".into(), sleepers(1, &[("clock_nanosleep", threads, slept, slept)]));
    }
    (recording, point.throughput)
}

fn sleepers(pid: u64, rows: &[(&str, u32, f64, f64)]) -> Table {
    let seconds = |name: &str| Column::float(name, Unit::Seconds, Kind::Time, "");
    let columns = [
        Column::id("pid", ""),
        Column::text("call", ""),
        Column::count("threads", ""),
        seconds("asked"),
        seconds("slept"),
    ];
    let mut table = Table::builder("sleepers", &columns);
    for (call, threads, asked, slept) in rows {
        table.row().int(pid).text(*call).int((*threads).into()).float(*asked).float(*slept);
    }
    table.finish()
}

fn plain(threads: u32) -> Model {
    Model {
        name: "p".into(),
        threads,
        work_ns: 20_000.0,
        cv: 1.0,
        batch: 1.0,
        uneven: 1.0,
        ..Model::default()
    }
}

/// The throughput that the model predicts for `threads` threads on `cpus` CPUs.
fn foretold(model: &Model, threads: u32, cpus: u32) -> f64 {
    let model = Model { threads, ..model.clone() };
    observed(&model, cpus).1
}

#[test]
fn the_recorded_machine_is_reproduced() {
    let lock = LockPart {
        name: "l".into(),
        kind: LockKind::Qspin,
        kernel: true,
        takes: 1.0,
        hold_ns: 3000.0,
        cv: 0.5,
        reads: 0.0,
        copies: 1,
        lines: 1.0,
        waiter_ns: None,
        wake_ns: 0.0,
    };
    for (what, model) in [
        ("work", plain(4)),
        ("lock", Model { lock: vec![lock], ..plain(4) }),
        ("sleep", Model { sleep_ns: 60_000.0, ..plain(4) }),
        ("device", Model { io_ns: 60_000.0, ..plain(4) }),
    ] {
        let (recording, x) = observed(&model, 2);
        let learnt = super::recording(&recording, Some(x), None).unwrap().model;
        let found = reproduce(&learnt, &EFFORT, &|| false).unwrap().unwrap();
        assert!(found.good(), "{what}: {found:?} {learnt:?}");
        // And it goes on as it does.
        let (is, says) = (foretold(&model, 8, 2), foretold(&learnt, 8, 2));
        assert!((says / is - 1.0).abs() < 0.1, "{what}: {says} for {is}");
    }
}

#[test]
fn waits_of_the_first_tell_how_long_a_lock_is_held() {
    // Locks with one of two hold times: mostly short, seldom long; or with a constant one, or an
    // exponential one.
    for (kernel, kind, hold, cv) in [
        (true, LockKind::Qspin, 3000.0, 0.0),
        (true, LockKind::Qspin, 3000.0, 1.0),
        (true, LockKind::Mutex, 8000.0, 1.5),
        (false, LockKind::Mutex, 30_000.0, 1.0),
    ] {
        let lock = LockPart {
            name: "l".into(),
            kind,
            kernel,
            takes: 1.0,
            hold_ns: hold,
            cv,
            reads: 0.0,
            copies: 1,
            lines: 1.0,
            waiter_ns: None,
            wake_ns: 0.0,
        };
        let truth = Model { work_ns: 6.0 * hold, lock: vec![lock], ..plain(2) };
        let (with, x) = observed(&truth, 2);
        let mut without = with.clone();
        without.tables.remove("first_waits");
        let off = |recording: &Recording| {
            let lock = super::recording(recording, Some(x), None).unwrap().model.lock.remove(0);
            lock.hold_ns / hold - 1.0
        };
        let (with, without) = (off(&with), off(&without));
        println!(
            "{kind:?}, cv {cv}: hold time {:+.0} % off, {:+.0} % without",
            100.0 * with,
            100.0 * without
        );
        assert!(with.abs() < 0.24, "{kind:?}, cv {cv}: {with} with, {without} without");
    }
}

#[test]
fn waits_tell_how_long_a_cpu_takes_to_wake_up() {
    let lock = LockPart {
        name: "l".into(),
        kind: LockKind::Block,
        kernel: false,
        takes: 1.0,
        hold_ns: 20_000.0,
        cv: 0.5,
        reads: 0.0,
        copies: 1,
        lines: 1.0,
        waiter_ns: None,
        wake_ns: 3000.0,
    };
    let truth = Model { work_ns: 60_000.0, lock: vec![lock], ..plain(2) };
    let told = |halt_ns: f64| {
        let (recording, x) = observed_on(&truth, 2, halt_ns);
        super::recording(&recording, Some(x), None).unwrap().model.recorded.unwrap().halt_ns
    };
    let (none, some) = (told(0.0), told(30_000.0));
    assert!(none < 5_000.0 && (some / 30_000.0 - 1.0).abs() < 0.25, "{none} {some}");
}

#[test]
fn hand_overs_of_a_spinlock_are_told_from_the_time_it_is_held() {
    // Held for less than it takes to hand it over: most of the time is neither work nor holding.
    let lock = LockPart {
        name: "l".into(),
        kind: LockKind::Qspin,
        kernel: true,
        takes: 2.0,
        hold_ns: 150.0,
        cv: 0.5,
        reads: 0.0,
        copies: 1,
        lines: locks::LINES,
        waiter_ns: None,
        wake_ns: 0.0,
    };
    for threads in [2, 4] {
        for handover_ns in [0.0, 600.0] {
            let truth = Model { work_ns: 250.0, lock: vec![lock.clone()], ..plain(threads) };
            let hardware = crate::hardware::Hardware { handover_ns, ..machine(2) };
            let (recording, x) = observed_there(&truth, hardware.clone());
            let learnt = super::recording(&recording, Some(x), None).unwrap().model;
            let found = reproduce(&learnt, &EFFORT, &|| false).unwrap().unwrap();
            let told = learnt.recorded.as_ref().unwrap().handover_ns;
            let held = learnt.lock[0].hold_ns;
            println!("{threads} threads, {handover_ns} ns: {told:.0} ns, held {held:.0} ns, {found:?}");
            assert!(found.good(), "{threads} threads, {handover_ns} ns: {found:?} {learnt:?}");
            // Where all threads come in step, hold time and hand-over add up, and cannot be separated well.
            assert!((told - handover_ns).abs() < 0.25 * handover_ns + 20.0, "{told} for {handover_ns}");
        }
    }
}

#[test]
fn sleeps_in_futexes_have_their_cost() {
    let (mut recording, _) = observed(&plain(2), 2);
    let seconds = sum(&recording.tables["cpu_time"], "target");
    let mut samples = ncpu_schema::samples::Rows::new();
    for (class, detail, n) in [(SampleClass::User, "", 90), (SampleClass::Syscall, "futex", 10)] {
        samples.push(ncpu_schema::samples::Row {
            at: Some(CpuState::Program),
            class: Some(class),
            detail: detail.into(),
            samples: Some(n),
            ..Default::default()
        });
    }
    recording.tables.insert("samples".into(), samples.finish());
    let columns = [Column::count("count", "")];
    let mut locks = Table::builder("user_locks", &columns);
    locks.row().int((seconds * 1e5) as u64);
    recording.tables.insert("user_locks".into(), locks.finish());
    // A tenth of a second in 100,000 sleeps a second.
    let ns = locks::in_futex(&recording);
    assert!((ns / 1000.0 - 1.0).abs() < 0.01, "{ns}");
    recording.tables.remove("samples");
    assert_eq!(locks::in_futex(&recording), 0.0);
}

/// Threads of a process: number, seconds on CPU, ready and asleep, and how often it went to sleep.
fn threads_of(pid: u64, all: &[(u64, f64, f64, f64, u64)]) -> Table {
    threads_in(&vec![pid; all.len()], all)
}

/// The same of threads of several processes.
fn threads_in(pids: &[u64], all: &[(u64, f64, f64, f64, u64)]) -> Table {
    let seconds = |name: &str| Column::float(name, Unit::Seconds, Kind::Time, "");
    let columns = [
        Column::id("pid", ""),
        Column::id("tid", ""),
        seconds("CPU"),
        seconds("LAT"),
        seconds("SLP"),
        Column::count("VCX", ""),
    ];
    let mut table = Table::builder("threads", &columns);
    for (pid, &(tid, cpu, ready, sleep, slept)) in pids.iter().zip(all) {
        table.row().int(*pid).int(tid).float(cpu).float(ready).float(sleep).int(slept);
    }
    table.finish()
}

#[test]
fn who_has_a_tenth_of_the_work_is_a_worker() {
    let (mut recording, _) = observed(&plain(2), 2);
    let all = [(1, 0.4, 0.1, 0.5, 10), (2, 0.5, 0.0, 0.5, 10), (3, 0.01, 0.0, 0.99, 10)];
    recording.tables.insert("threads".into(), threads_of(7, &all));
    let (found, others) = threads::workers(&recording, 1.0).unwrap();
    assert_eq!(found.threads, 2);
    assert!((found.active(1.0) - 1.0).abs() < 1e-9 && (found.each_sleep() - 0.05).abs() < 1e-9, "{found:?}");
    assert!((others - 0.99).abs() < 1e-9);

    // Three threads slept because they asked to: the workers, and one that only waits for them.
    let all = [("clock_nanosleep", 3, 1.79, 1.89), ("epoll_wait", 1, 99.0, 50.0)];
    recording.tables.insert("sleepers".into(), sleepers(7, &all));
    let (asked, late, _) = threads::pauses(&recording, &found, others, 1.0);
    assert!((asked - 0.8).abs() < 1e-9 && (late - 0.1).abs() < 1e-9, "{asked} {late}");
}

#[test]
fn what_a_recording_lacks_is_said() {
    let (mut recording, x) = observed(&plain(4), 2);
    for (without, says) in [("locks", "no table `locks`"), ("threads", "no table `threads`")] {
        let mut less = recording.clone();
        less.tables.remove(without);
        let notes = super::recording(&less, Some(x), None).unwrap().notes;
        assert!(notes.iter().any(|n| n.contains(says)), "{notes:?}");
    }
    let learnt = super::recording(&recording, None, None).unwrap();
    assert_eq!(learnt.model.unit, "CPU microseconds");
    assert!(learnt.notes.iter().any(|n| n.contains("no throughput is known")), "{:?}", learnt.notes);
    recording.tables.remove("cpu_time");
    let why = super::recording(&recording, None, None).unwrap_err().to_string();
    assert!(why.contains("no table `cpu_time`"), "{why}");
}

#[test]
fn the_band_of_one_cpu_holds_locks_that_it_cannot_show() {
    let share = |class, detail: &str, weight| Share { class, detail: detail.into(), weight };
    let (call, user) = (SampleClass::Syscall, SampleClass::User);
    let mix = vec![share(call, "munmap", 6.0), share(call, "getpid", 2.0), share(user, "", 2.0)];
    let truth = Model { mix, ..plain(4) };
    let (run, x) = observed(&truth, 1);
    let learnt = super::recording(&run, Some(x), None).unwrap();
    let unseen = learnt.model.recorded.as_ref().unwrap().unseen;
    assert!((unseen - 0.6).abs() < 0.05, "{unseen}");
    assert!(learnt.notes.iter().any(|n| n.contains("locks of the process (munmap)")), "{:?}", learnt.notes);
    let point = |model: &Model, cpus: u32| {
        foretell::point(model, &machine(cpus), cpus as usize, Order::Spread, &EFFORT, &|| false).unwrap()
    };
    // 0.4 of the work on two CPUs, and 0.6 of it on one at a time.
    let two = point(&learnt.model, 2);
    assert!(two.band.0 < two.throughput / 1.55 && two.band.0 > two.throughput / 2.4, "{:?}", two.band);
    // Processes share neither memory nor files, and two CPUs show waits, except short ones.
    let mut apart = run.clone();
    let rows: Vec<_> = (0..4).map(|i| (10 + i, 0.25, 0.75, 0.0, 0)).collect();
    apart.tables.insert("threads".into(), threads_in(&[10, 11, 12, 13], &rows));
    let none =
        |run: &Recording, x| super::recording(run, Some(x), None).unwrap().model.recorded.unwrap().unseen;
    assert_eq!(none(&apart, x), 0.0);
    let (run, x) = observed(&truth, 2);
    let left = none(&run, x);
    assert!(left > 0.05 && left < 0.15, "{left}");
}

#[test]
fn the_band_of_one_cpu_holds_shared_memory_of_code_that_was_not_read() {
    let (run, x) = observed(&plain(4), 1);
    let all = run.tables["samples"].clone();
    let sum: u64 = (0..all.num_rows()).filter_map(|row| all.int(row, "samples")).sum();
    let learnt = |unknown: f64, run: &Recording| {
        let mut run = run.clone();
        let mut rows = ncpu_schema::user_causes::Rows::new();
        for (cause, share) in [(UserCause::Unknown, unknown), (UserCause::Computing, 1.0 - unknown)] {
            let samples = Some(share * sum as f64);
            rows.push(ncpu_schema::user_causes::Row { cause: Some(cause), samples, ..Default::default() });
        }
        run.tables.insert("user_causes".into(), rows.finish());
        super::recording(&run, Some(x), None).unwrap()
    };
    let unseen = |learnt: &super::Learnt| learnt.model.recorded.as_ref().unwrap().unseen;
    let noted = |learnt: &super::Learnt| learnt.notes.iter().any(|n| n.contains("could not read"));
    let whole = learnt(1.0, &run);
    assert!(unseen(&whole) > 0.9 && noted(&whole), "{} {:?}", unseen(&whole), whole.notes);
    let point = |cpus: u32| {
        foretell::point(&whole.model, &machine(cpus), cpus as usize, Order::Spread, &EFFORT, &|| false)
            .unwrap()
    };
    let (one, two) = (point(1), point(2));
    assert!(
        two.band.0 < one.throughput && two.band.1 > 1.8 * one.throughput,
        "{:?} {:?}",
        one.band,
        two.band
    );
    // A little that is unknown is like what is known.
    let part = learnt(0.3, &run);
    assert!(unseen(&part) == 0.0 && !noted(&part), "{} {:?}", unseen(&part), part.notes);
    // Processes share no memory.
    let mut apart = run.clone();
    let rows: Vec<_> = (0..4).map(|i| (10 + i, 0.25, 0.75, 0.0, 0)).collect();
    apart.tables.insert("threads".into(), threads_in(&[10, 11, 12, 13], &rows));
    let apart = learnt(1.0, &apart);
    assert!(unseen(&apart) == 0.0 && !noted(&apart), "{} {:?}", unseen(&apart), apart.notes);
}

#[test]
fn cpus_that_seldom_ran_a_program_together_hide_its_locks() {
    let used = |cpus: u32, target: f64| super::Used {
        cpus,
        numbers: (0..u64::from(cpus)).collect(),
        all: cpus,
        elapsed: 1.0,
        target,
        spin: 0.0,
        tlb: 0.0,
        interrupts: 0.0,
        idle: 0.0,
        others: f64::from(cpus) - target,
    };
    let hidden = |cpus: u32, target: f64| super::hidden(0.8, super::overlap(&used(cpus, target)));
    assert_eq!(hidden(1, 1.0), 0.8);
    // Both CPUs had nothing else to do, and would have shown a lock that is busy for more than a tenth.
    assert!((hidden(2, 2.0) - 0.1).abs() < 1e-9);
    // Other programs took seven eighths.
    assert!((hidden(2, 0.25) - (0.875 * 0.8 + 0.125 * 0.1)).abs() < 1e-9);
    assert!(hidden(16, 16.0) <= 0.1 + 1e-9);
    // Lines that the model has already are not counted twice.
    let line =
        crate::model::LineModel { name: "count".into(), writes: 100.0, copies: 1, among: 1, bounded: false };
    let shared = Model { line: vec![line], ..plain(4) };
    let left = super::without_modelled(&shared, 0.1);
    assert!(left > 0.0 && left < 0.06, "{left}");
    assert_eq!(super::without_modelled(&plain(4), 0.1), 0.1);
}

#[test]
fn a_second_recording_decides_what_the_first_leaves_open() {
    // A fifth of the work is serial; the recording of two CPUs is read as having none of it.
    let truth = Model { serial_ns: 4000.0, work_ns: 16_000.0, ..plain(2) };
    let learn = |cpus: u32| {
        let (recording, x) = observed(&truth, cpus);
        super::recording(&recording, Some(x), None).unwrap()
    };
    let wrong = {
        let mut learnt = learn(2);
        // Twice too much of it, instead of the waits that stand for it.
        learnt.model.serial_ns = 8000.0;
        learnt.model.work_ns = 12_000.0;
        learnt.model.wait_ns = 0.0;
        learnt
    };
    let off = |model: &Model| {
        let x = foretold(model, 2, 2);
        (x / observed(&truth, 2).1 - 1.0).abs()
    };
    let before = off(&wrong.model);
    let both = sharpen(vec![learn(1), wrong]).unwrap().unwrap();
    assert!(both.notes.iter().any(|n| n.contains("recorded on 1 CPUs")), "{:?}", both.notes);
    let after = off(&both.model);
    assert!(after < 0.05 && after < 0.6 * before, "{before} {after}");
}

#[test]
fn hand_overs_are_learnt_and_cost_more_where_a_cpu_idles() {
    // A client and its server, recorded on one CPU.
    let model = Model { threads: 1, handovers: 2.0, ..plain(1) };
    let (mut recording, x) = observed(&model, 1);
    let elapsed = recording.tables["summary"].number(0, "elapsed").unwrap();
    let each = (x * elapsed) as u64;
    let all = [1, 2].map(|tid| (tid, 0.5 * elapsed, 0.0, 0.5 * elapsed, each));
    recording.tables.insert("threads".into(), threads_of(7, &all));
    let learnt = super::recording(&recording, Some(x), None).unwrap().model;
    assert!((learnt.handovers - 2.0).abs() < 0.05, "{learnt:?}");
    let on = |cpus: u32| {
        let hardware = crate::hardware::Hardware { halt_ns: 10_000.0, ..machine(cpus) };
        let learnt = Model { threads: 1, ..learnt.clone() };
        foretell::point(&learnt, &hardware, cpus as usize, Order::Spread, &EFFORT, &|| false)
            .unwrap()
            .throughput
    };
    assert!((on(1) / x - 1.0).abs() < 0.03, "{} for {x}", on(1));
    // Each of two hand-overs waits for 10 us, and for what waking takes.
    let (was, is) = (1e9 / on(1), 1e9 / on(2));
    assert!((is - was - 26_000.0).abs() < 1500.0, "{was} {is}");
}

/// `ncpu crosscalls` of a program: shootdowns and other calls in two seconds, at 1000 units a second.
fn crosscalls() -> Recording {
    let count = |name: &str| Column::count(name, "");
    let mut sent =
        Table::builder("crosscalls", &[Column::text("cause", ""), count("calls"), count("targets")]);
    sent.row().text("TLB shootdown").int(3000).int(4500);
    sent.row().text("TLB shootdown").int(1000).int(1500);
    sent.row().text("reschedule").int(9000).int(9000);
    let seconds = Column::float("seconds", Unit::Seconds, Kind::Time, "");
    let mut received =
        Table::builder("crosscalls_received", &[Column::text("cause", ""), count("received"), seconds]);
    received.row().text("TLB shootdown").int(6000).float(0.009);
    let elapsed = Column::float("elapsed", Unit::Seconds, Kind::Time, "");
    let mut summary = Table::builder("crosscall_summary", &[elapsed]);
    summary.row().float(2.0);
    let (mut recording, _) = observed(&plain(1), 1);
    recording.tables.clear();
    recording.manifest.throughput =
        Some(ncpu_record::Throughput { metric: String::new(), per_second: 1000.0 });
    for table in [sent.finish(), received.finish(), summary.finish()] {
        recording.tables.insert(table.name().into(), table);
    }
    recording
}

#[test]
fn cross_calls_tell_how_many_shootdowns_reach_how_many_and_for_how_long() {
    let (run, x) = observed(&plain(4), 4);
    let mut beside = Beside::default();
    assert!(!beside.add(&run) && beside.add(&crosscalls()));
    let learnt = super::recording_beside(&run, Some(x), None, &beside).unwrap().model;
    // 2000 a second at 1000 units a second, each to one and a half of three others, for 1.5 us.
    assert!((learnt.shootdowns - 2.0).abs() < 1e-9, "{learnt:?}");
    assert!((learnt.shootdown_misses - 0.5).abs() < 0.01, "{learnt:?}");
    assert!((learnt.shootdown_handle_ns - 1500.0).abs() < 1e-6, "{learnt:?}");
    // Without a throughput of its own the other's is taken, and that is said.
    let mut without = crosscalls();
    without.manifest.throughput = None;
    let mut beside = Beside::default();
    beside.add(&without);
    let learnt = super::recording_beside(&run, Some(x), None, &beside).unwrap();
    assert!((learnt.model.shootdowns - 2000.0 / x).abs() < 0.02 * 2000.0 / x, "{:?}", learnt.model);
    assert!(learnt.notes.iter().any(|n| n.contains("has no throughput")), "{:?}", learnt.notes);
}

/// A program that takes a lock `takes` times a unit, and holds it for `hold_ns` each time.
fn taking(kind: LockKind, name: &str, takes: f64, hold_ns: f64) -> Model {
    let lock = LockPart {
        name: name.into(),
        kind,
        kernel: kind == LockKind::Qspin,
        takes,
        hold_ns,
        cv: 0.5,
        reads: 0.0,
        copies: 1,
        lines: 1.0,
        waiter_ns: None,
        wake_ns: 0.0,
    };
    Model { work_ns: 2.0 * takes * hold_ns, lock: vec![lock], ..plain(4) }
}

#[test]
fn a_counted_lock_is_taken_as_often_as_was_counted_and_held_for_as_long_as_follows() {
    for (kind, takes, hold) in
        [(LockKind::Qspin, 3.0, 400.0), (LockKind::Block, 8.0, 3000.0), (LockKind::Mutex, 5.0, 2000.0)]
    {
        let (mut run, x) = observed(&taking(kind, "l", takes, hold), 2);
        // Few waits: their lengths tell nothing but their mean.
        run.tables.remove("first_waits");
        let learn = |beside: &Beside| super::recording_beside(&run, Some(x), None, beside).unwrap();
        let without = learn(&Beside::default()).model.lock.remove(0);
        let beside = Beside { takes: vec![("l".into(), takes), ("other".into(), 7.0)], ..Beside::default() };
        let with = learn(&beside);
        let found = reproduce(&with.model, &EFFORT, &|| false).unwrap().unwrap();
        let lock = &with.model.lock[0];
        println!(
            "{kind:?}: taken {:.2} times for {:.0} ns, {:.0} ns with the count; in truth {takes} times for {hold} ns; {found:?}",
            without.takes, without.hold_ns, lock.hold_ns
        );
        assert_eq!(lock.takes, takes, "{kind:?}");
        assert!((lock.hold_ns / hold - 1.0).abs() < 0.2, "{kind:?}: {lock:?}");
        assert!(found.good(), "{kind:?}: {found:?}");
        let said = with.notes.iter().find(|n| n.contains("times a unit by --takes"));
        let apart = (without.takes / takes).max(takes / without.takes) > 1.5;
        assert_eq!(said.map(|n| n.contains("the count is used")), Some(apart), "{kind:?}: {:?}", with.notes);
    }
}

#[test]
fn a_count_below_the_waits_is_of_something_else() {
    let (run, x) = observed(&taking(LockKind::Block, "l", 8.0, 3000.0), 2);
    let without = super::recording(&run, Some(x), None).unwrap().model;
    let beside = Beside { takes: vec![("l".into(), 0.001)], ..Beside::default() };
    let with = super::recording_beside(&run, Some(x), None, &beside).unwrap();
    assert_eq!(with.model, without);
    assert!(with.notes.iter().any(|n| n.contains("the count is of something else")), "{:?}", with.notes);
}

#[test]
fn a_count_with_which_the_recorded_machine_is_not_reproduced_is_not_used() {
    let (run, x) = observed(&taking(LockKind::Qspin, "l", 0.5, 4000.0), 2);
    let without = super::recording(&run, Some(x), None).unwrap().model;
    assert!(reproduce(&without, &EFFORT, &|| false).unwrap().unwrap().good());
    // A unit of 8 us has no time for 3000 acquisitions.
    let beside = Beside { takes: vec![("l".into(), 3000.0)], ..Beside::default() };
    let with = super::recording_beside(&run, Some(x), None, &beside).unwrap();
    println!("{:?}", with.notes);
    assert_eq!(with.model, without);
    assert!(with.notes.iter().any(|n| n.contains("what the waits say is used")), "{:?}", with.notes);
}

/// `ncpu counters` of a program: calls in two seconds.
fn calls(throughput: Option<f64>, rows: &[(&str, u64)]) -> Recording {
    let t = Column::float("t", Unit::Seconds, Kind::Key, "");
    let columns = [t, Column::text("event", ""), Column::count("count", "")];
    let mut table = Table::builder("counters", &columns);
    for (event, count) in rows {
        for t in [1.0, 2.0] {
            table.row().float(t).text(*event).int(count / 2);
        }
    }
    let (mut recording, _) = observed(&plain(1), 1);
    recording.tables.clear();
    recording.manifest.kind = Some(ncpu_schema::Purpose::Counters);
    recording.manifest.throughput =
        throughput.map(|per_second| ncpu_record::Throughput { metric: String::new(), per_second });
    recording.tables.insert("counters".into(), table.finish());
    recording
}

#[test]
fn counted_calls_tell_how_often_a_lock_of_the_kernel_is_taken() {
    let rows = [
        ("syscalls:sys_enter_dup2", 2000),
        ("syscalls:sys_enter_close", 1000),
        ("syscalls:sys_enter_pipe2", 500),
        ("syscalls:sys_enter_getpid", 9000),
        ("raw_syscalls:sys_enter", 12_500),
    ];
    let (run, x) = observed(&taking(LockKind::Qspin, "files_struct.file_lock", 2.0, 400.0), 2);
    let learn = |counters: &Recording, x: Option<f64>| {
        let mut beside = Beside::default();
        assert!(beside.add(counters));
        super::recording_beside(&run, x, None, &beside).unwrap()
    };
    // 4000 acquisitions in two seconds, of 1000 units each.
    let told = learn(&calls(Some(1000.0), &rows), Some(x));
    assert!((told.model.lock[0].takes - 2.0).abs() < 1e-9, "{:?}", told.model.lock);
    assert!(told.notes.iter().any(|n| n.contains("(dup2, close, pipe2)")), "{:?}", told.notes);
    // As many units a second as in the run, where nobody told; that is said.
    let as_often: Vec<(&str, u64)> = vec![("syscalls:sys_enter_close", (4.0 * x) as u64)];
    let assumed = learn(&calls(None, &as_often), Some(x));
    assert!((assumed.model.lock[0].takes - 2.0).abs() < 0.01, "{:?}", assumed.model.lock);
    assert!(
        assumed.notes.iter().any(|n| n.contains("that of the other recording is assumed")),
        "{:?}",
        assumed.notes
    );
    // A lock that readers take too is taken by more than these.
    let mut read = taking(LockKind::Rwsem, "mm_struct.mmap_lock", 2.0, 4000.0);
    read.lock[0].kernel = true;
    let (mut run, x) = observed(&read, 2);
    let seconds = |name: &str| Column::float(name, Unit::Seconds, Kind::Time, "");
    let columns = [
        Column::text("lock", ""),
        Column::text("type", ""),
        Column::count("count", ""),
        seconds("spin"),
        seconds("block"),
    ];
    let mut waits = Table::builder("locks", &columns);
    for (how, count, wait) in [("rwsem:R", 3000, 0.004), ("rwsem:W", 9000, 0.01)] {
        waits.row().text("mm_struct.mmap_lock").text(how).int(count).float(wait).float(0.0);
    }
    run.tables.insert("locks".into(), waits.finish());
    let without = super::recording(&run, Some(x), None).unwrap().model;
    let mut beside = Beside::default();
    assert!(beside.add(&calls(Some(1000.0), &[("syscalls:sys_enter_mmap", 4000)])));
    let learnt = super::recording_beside(&run, Some(x), None, &beside).unwrap();
    assert_eq!(learnt.model, without);
    assert!(learnt.notes.iter().any(|n| n.contains("the count is not used")), "{:?}", learnt.notes);
    // Calls of which none is known to take a lock, and counts of something else, say nothing.
    assert!(!Beside::default().add(&calls(None, &[("raw_syscalls:sys_enter", 5)])));
}

#[test]
fn measured_line_transfers_are_the_recorded_machines_and_a_new_ones_without_any() {
    let columns = [
        Column::id("cpu", ""),
        Column::id("other", ""),
        Column::float("latency", Unit::Nanoseconds, Kind::Gauge, ""),
        Column::text("notes", ""),
    ];
    let mut table = Table::builder("core-to-core", &columns);
    for (a, b, ns, relation) in [
        (0, 1, 90.0, "same package"),
        (0, 2, 110.0, "same package"),
        (1, 2, 100.0, "same package"),
        (0, 4, 9.0, "same core"),
        (0, 8, 300.0, "other package"),
    ] {
        table.row().int(a).int(b).float(ns).text(relation);
    }
    let (mut recording, x) = observed(&plain(2), 2);
    let run = recording.clone();
    recording.tables.clear();
    recording.tables.insert("core-to-core".into(), table.finish());
    let mut beside = Beside::default();
    assert!(beside.add(&recording));
    let learnt = super::recording_beside(&run, Some(x), None, &beside).unwrap().model;
    let there = recorded_machine(learnt.recorded.as_ref().unwrap()).unwrap();
    assert_eq!(there.transfer.cluster, 100.0);
    let mut hardware = crate::hardware::Hardware::of_shape("2x4x2".parse().unwrap());
    beside.transfer.unwrap().put(&mut hardware);
    let t = &hardware.transfer;
    assert_eq!((t.sibling, t.cluster, t.package, t.remote, t.hop), (9.0, 100.0, 100.0, 300.0, 150.0));
}

/// Layers over CPU counts as `ncpu scale --peel` records them, of a program with one thread per CPU.
fn peeled(model: &Model, counts: &[u32], serial: impl Fn(u32) -> f64) -> Recording {
    let float = |name: &str| Column::float(name, Unit::None, Kind::Gauge, "");
    let mut layers =
        Table::builder("layers", &[float("N"), Column::text("layer", ""), float("cost"), float("error")]);
    let mut points = Table::builder("scale", &[float("N"), Column::text("CPUs", "")]);
    let mut first = 0.0;
    for &n in counts {
        let point = foretell::point(
            &Model { threads: n, ..model.clone() },
            &machine(n),
            n as usize,
            Order::Spread,
            &EFFORT,
            &|| false,
        )
        .unwrap();
        let unit =
            point.outcome.mode(crate::sim::Mode::Work) * 1e-3 * point.cycles / point.outcome.done as f64;
        first = if first > 0.0 { first } else { unit };
        points.row().float(n.into()).text(format!("0-{}", n - 1));
        for (layer, cost) in [("system calls", 100.0 * unit / first), ("serial phases", serial(n))] {
            layers.row().float(n.into()).text(layer).float(cost).float(0.5);
        }
    }
    // Threads without a CPU of their own: what they take more says nothing of lines.
    points.row().float(64.0).text("0-3");
    layers.row().float(64.0).text("system calls").float(900.0).float(0.5);
    let (mut recording, _) = observed(&plain(1), 1);
    recording.tables.clear();
    for table in [layers.finish(), points.finish()] {
        recording.tables.insert(table.name().into(), table);
    }
    recording
}

fn line(name: &str, writes: f64) -> LineModel {
    LineModel { name: name.into(), writes, copies: 1, among: 1, bounded: false }
}

#[test]
fn growth_that_is_in_no_lock_becomes_a_line() {
    let truth = Model { work_ns: 500.0, line: vec![line("count", 2.0)], ..plain(1) };
    let peel = peeled(&truth, &[1, 2, 4], |_| 0.0);
    let mut beside = Beside::default();
    assert!(beside.add(&peel));
    for cpus in [1, 2] {
        let (mut run, x) = observed(&Model { threads: cpus, ..truth.clone() }, cpus);
        // The kernel's lines are in no sample of the program's code.
        run.tables.remove("data");
        let learnt = super::recording_beside(&run, Some(x), None, &beside).unwrap();
        let found = &learnt.model.line;
        assert!(found.len() == 1 && found[0].name == "system calls", "{found:?}");
        assert!((found[0].writes / 2.0 - 1.0).abs() < 0.15, "from {cpus}: {found:?}");
        assert!(learnt.notes.iter().any(|n| n.contains("more on 4 CPUs than on 1")), "{:?}", learnt.notes);
        // One line is all that 16 CPUs wait for.
        let (is, says) = (foretold(&truth, 16, 16), foretold(&learnt.model, 16, 16));
        assert!((says / is - 1.0).abs() < 0.15, "from {cpus}: {says} for {is}");
        let without = super::recording(&run, Some(x), None).unwrap().model;
        assert!(foretold(&without, 16, 16) > 1.5 * is);
    }
}

#[test]
fn serial_phases_of_more_cpus_are_of_a_recording_on_one() {
    let truth = plain(1);
    // A tenth of the work is one thread's.
    let peel = peeled(&truth, &[1, 2, 4], |n| 10.0 * (f64::from(n) - 1.0));
    let mut beside = Beside::default();
    assert!(beside.add(&peel));
    let (run, x) = observed(&truth, 1);
    let learnt = super::recording_beside(&run, Some(x), None, &beside).unwrap();
    assert!((learnt.model.serial_ns / 2000.0 - 1.0).abs() < 0.05, "{:?}", learnt.model);
    assert!(
        learnt.model.line.is_empty() && learnt.notes.iter().any(|n| n.contains("no lines are in the model"))
    );
    // A single point shows no growth.
    let mut beside = Beside::default();
    assert!(!beside.add(&peeled(&truth, &[1], |_| 0.0)));
}

/// What `ncpu lines` found: words by finding, and lines that moved.
fn words(findings: &[(&str, &str, &[&str])], moved: &[(u64, &str, u64)]) -> Recording {
    let mut rows = Table::builder(
        "findings",
        &[Column::id("finding", ""), Column::text("in", ""), Column::text("name", "")],
    );
    let mut all = Table::builder(
        "words",
        &[Column::id("finding", ""), Column::text("name", ""), Column::text("kind", "")],
    );
    for (i, (place, name, hot)) in (1..).zip(findings) {
        rows.row().int(i).text(*place).text(*name);
        for word in *hot {
            all.row().int(i).text(*word).text("lock");
        }
        all.row().int(i).text("more").text("data");
    }
    let mut lines = Table::builder(
        "lines",
        &[
            Column::id("space", ""),
            Column::text("line", ""),
            Column::text("names", ""),
            Column::count("HITM", ""),
        ],
    );
    for (space, name, hitm) in moved {
        lines.row().int(*space).text("0x1000").text(*name).int(*hitm);
    }
    let (mut recording, _) = observed(&plain(1), 1);
    recording.tables.clear();
    for table in [rows.finish(), all.finish(), lines.finish()] {
        recording.tables.insert(table.name().into(), table);
    }
    recording
}

#[test]
fn locks_that_share_a_line_take_it_from_one_another() {
    let lock = |name: &str, kernel| LockPart {
        name: name.into(),
        kind: if kernel { LockKind::Qspin } else { LockKind::Block },
        kernel,
        takes: 1.0,
        hold_ns: 2000.0,
        cv: 0.5,
        reads: 0.0,
        copies: 1,
        lines: 1.0,
        waiter_ns: None,
        wake_ns: 0.0,
    };
    let truth = Model { lock: vec![lock("s.a", true), lock("s.b", true)], work_ns: 6000.0, ..plain(4) };
    let (run, x) = observed(&truth, 4);
    let learn = |recording: &Recording| {
        let mut beside = Beside::default();
        assert!(beside.add(recording));
        super::recording_beside(&run, Some(x), None, &beside).unwrap()
    };
    let together = learn(&words(&[("struct", "s", &["a", "c", "b"])], &[]));
    let [line] = &together.model.line[..] else { panic!("{:?}", together.model.line) };
    assert!(line.name.contains("s.a") && line.name.contains("s.b"), "{line:?}");
    assert!(line.writes > 1.0, "{line:?}");
    assert!(reproduce(&together.model, &EFFORT, &|| false).unwrap().unwrap().off.abs() < 0.03);
    // Per CPU, of another struct, or alone in their lines.
    for other in
        [("per-CPU", "s", &["a", "b"][..]), ("struct", "t", &["a", "b"]), ("struct", "s", &["a", "c"])]
    {
        let apart = learn(&words(&[other], &[]));
        assert!(apart.model.line.is_empty(), "{other:?}");
        assert!(apart.notes.iter().any(|n| n.contains("nothing is taken from it")), "{:?}", apart.notes);
    }
}

#[test]
fn lines_that_moved_are_those_that_grow() {
    let moved =
        words(&[], &[(0, "f_count", 60), (0, "dentry.d_lockref", 30), (0, "rare", 2), (9, "stats", 8)]);
    let truth = Model { work_ns: 500.0, line: vec![line("count", 2.0)], ..plain(1) };
    let (mut run, x) = observed(&truth, 1);
    run.tables.remove("data");
    let mut beside = Beside::default();
    assert!(beside.add(&moved));
    let learnt = super::recording_beside(&run, Some(x), None, &beside).unwrap();
    let told = "f_count (60 %), dentry.d_lockref (30 %), stats (8 %)";
    assert!(learnt.notes.iter().any(|n| n.contains(told)), "{:?}", learnt.notes);
    assert!(learnt.model.line.is_empty());
    assert!(beside.add(&peeled(&truth, &[1, 2, 4], |_| 0.0)));
    let found = super::recording_beside(&run, Some(x), None, &beside).unwrap().model.line;
    let names: Vec<&str> = found.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["f_count of system calls", "dentry.d_lockref of system calls"]);
    assert!((found[0].writes / found[1].writes - 2.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn a_busiest_worker_holds_the_others_up_until_accept_is_balanced() {
    let (mut run, _) = observed(&plain(4), 4);
    let elapsed = run.tables["summary"].number(0, "elapsed").unwrap();
    // Four have 1, 1/2, 1/4 and 1/4 of their time to do.
    let rows: Vec<_> = [1.0, 0.5, 0.25, 0.25]
        .iter()
        .enumerate()
        .map(|(i, s)| (i as u64, s * elapsed, 0.0, (1.0 - s) * elapsed, 100))
        .collect();
    run.tables.insert("threads".into(), threads_in(&[1, 2, 3, 4], &rows));
    let seconds = Column::float("seconds", Unit::Seconds, Kind::Time, "");
    let sleeps = |call: &str| {
        let mut table = Table::builder("sleeps", &[Column::text("call", ""), seconds.clone()]);
        table.row().text(call).float(2.0 * elapsed);
        table.finish()
    };
    run.tables.insert("sleeps".into(), sleeps("epoll_wait"));
    let learnt = super::recording(&run, Some(1000.0), None).unwrap();
    assert!((learnt.model.uneven - 2.0).abs() < 1e-9, "{:?}", learnt.model);
    assert_eq!(learnt.model.recorded.as_ref().unwrap().threads, 2);
    assert!(learnt.notes.iter().any(|n| n.contains("accepted unevenly")), "{:?}", learnt.notes);
    let mut model = Model { threads: foretell::active(&learnt.model, 8), ..learnt.model };
    let before = foretold(&model, model.threads, 8);
    let (mut hardware, mut order) = (machine(8), Order::Spread);
    crate::fix::Fix::AcceptBalanced.apply(&mut model, &mut hardware, &mut order).unwrap();
    assert_eq!(model.threads, 8);
    let gain = foretold(&model, model.threads, 8) / before;
    assert!((gain - 2.0).abs() < 0.1, "{gain}");
    let again = crate::fix::Fix::AcceptBalanced.apply(&mut model, &mut hardware, &mut order).unwrap_err();
    assert!(again.to_string().contains("equal shares"), "{again}");
    // A worker that waits for something else did not lack connections.
    run.tables.insert("sleeps".into(), sleeps("futex"));
    assert_eq!(super::recording(&run, Some(1000.0), None).unwrap().model.uneven, 1.0);
}

/// CPUs 0 to 3 are the first strands of four cores, and 4 to 7 their second ones.
fn four_cores_of_two() -> ncpu_record::Shape {
    let cpus = vec![vec!["0-3".into(), "4-7".into()]];
    ncpu_record::Shape { packages: 1, cores: 4, strands: 2, cpus }
}

#[test]
fn a_machine_with_strands_is_foretold_from_itself() {
    let own = crate::hardware::Hardware::of_shape("1x4x2".parse().unwrap());
    let (mut run, x) = observed_there(&plain(8), own.clone());
    let on = |run: &Recording, cpus: usize| {
        let learnt = super::recording(run, Some(x), None).unwrap().model;
        let found = reproduce(&learnt, &EFFORT, &|| false).unwrap().unwrap();
        assert!(found.good(), "{found:?}");
        let model = Model { threads: cpus as u32, ..learnt };
        foretell::point(&model, &own, cpus, Order::Spread, &EFFORT, &|| false).unwrap().throughput
    };
    // The recording without the shape of the machine, which shows the CPUs that share a core.
    assert!(on(&run, 8) < 0.7 * x, "{} of {x}", on(&run, 8));
    run.manifest.shape = Some(four_cores_of_two());
    let says = on(&run, 8);
    assert!((says / x - 1.0).abs() < 0.03, "{says} of {x}");
    // And with each core's first strand alone.
    let half = foretell::point(&plain(4), &own, 4, Order::Spread, &EFFORT, &|| false).unwrap().throughput;
    let says = on(&run, 4);
    assert!((says / half - 1.0).abs() < 0.05, "{says} of {half}");
}

#[test]
fn cpus_that_were_used_lie_as_the_manifest_tells() {
    let of = |machine: &ncpu_record::Shape, numbers: &[u64]| {
        let (run, _) = observed(&plain(2), 2);
        Used { numbers: numbers.to_vec(), ..Used::of(&run, None).unwrap() }.shape(machine)
    };
    let one = four_cores_of_two();
    assert_eq!(of(&one, &[0, 1, 2, 3, 4, 5, 6, 7]).as_deref(), Some("1x4x2"));
    assert_eq!(of(&one, &[0, 1, 2, 3]).as_deref(), Some("1x4x1"));
    assert_eq!(of(&one, &[0, 4, 1, 5]).as_deref(), Some("1x2x2"));
    // Three cores, one of which has both of its strands at work.
    assert_eq!(of(&one, &[0, 4, 1, 2]).as_deref(), Some("1x3x2"));
    // A CPU that is not of this machine.
    assert_eq!(of(&one, &[0, 9]), None);
    let cpus = [["0-1", "4-5"], ["2-3", "6-7"]].map(|p| p.map(String::from).to_vec()).to_vec();
    let two = ncpu_record::Shape { packages: 2, cores: 2, strands: 2, cpus };
    assert_eq!(of(&two, &[0, 1, 2, 3]).as_deref(), Some("2x2x1"));
    assert_eq!(of(&two, &[0, 1, 4, 5]).as_deref(), Some("1x2x2"));
    assert_eq!(of(&two, &[0, 1, 2]).as_deref(), Some("1x3x1"));
    let plain = ncpu_record::Shape { packages: 1, cores: 4, strands: 1, cpus: Vec::new() };
    assert_eq!(of(&plain, &[0, 2, 3]).as_deref(), Some("1x3x1"));
}

#[test]
fn the_band_widens_with_threads_and_with_load_as_with_cpus() {
    let truth = Model { work_ns: 2_000.0, sleep_ns: 60_000.0, ..plain(4) };
    let (run, x) = observed(&truth, 2);
    let learnt = super::recording(&run, Some(x), None).unwrap().model;
    let wide = |model: &Model, threads: u32, cpus: u32| {
        let model = Model { threads, ..model.clone() };
        let point = foretell::point(&model, &machine(cpus), cpus as usize, Order::Spread, &EFFORT, &|| false);
        let point = point.unwrap();
        (point.band.1 / point.throughput).ln() / (1.645 * foretell::ASTRAY)
    };
    let near = |doublings: f64, is: f64| assert!((doublings - is).abs() < 0.12, "{doublings} {is}");
    near(wide(&learnt, 4, 2), 0.0);
    near(wide(&learnt, 16, 2), 2.0);
    // The same number of threads on more CPUs, and twice the threads and CPUs: doubling both is one
    // doubling.
    near(wide(&learnt, 4, 8), 2.0);
    near(wide(&learnt, 8, 4), 1.0);
    // A pause of a quarter is a load of nearly four times.
    let loaded = Model { sleep_ns: learnt.sleep_ns / 4.0, ..learnt.clone() };
    let unit = |m: &Model| m.work_ns + m.sleep_ns + m.wait_ns + m.apart_ns;
    let more = (unit(&learnt) / unit(&loaded)).log2();
    assert!(more > 1.5, "{more}");
    near(wide(&loaded, 4, 2), more);
    near(wide(&loaded, 8, 2), 1.0 + more);
}

#[test]
fn lines_that_threads_share_limit_what_more_cpus_do() {
    // Two writes to a line that all share, and little else: what a reference count costs.
    let truth = Model { work_ns: 20.0, line: vec![line("count", 2.0)], ..plain(2) };
    let sixteen = foretold(&truth, 16, 16);
    let (recording, x) = observed(&truth, 2);
    let learnt = super::recording(&recording, Some(x), None).unwrap();
    assert!(learnt.notes.iter().any(|n| n.starts_with("line count: ")), "{:?}", learnt.notes);
    let found = reproduce(&learnt.model, &EFFORT, &|| false).unwrap().unwrap();
    assert!(found.off.abs() < 0.05, "{found:?} {:?}", learnt.model);
    let (says, without) = (
        foretold(&learnt.model, 16, 16),
        foretold(&Model { line: Vec::new(), ..learnt.model.clone() }, 16, 16),
    );
    assert!((says / sixteen - 1.0).abs() < 0.2 && without > 4.0 * sixteen, "{says} {without} for {sixteen}");
    // One CPU does not wait for the line, but its samples show how often it is written.
    let (recording, x) = observed(&truth, 1);
    let learnt = super::recording(&recording, Some(x), None).unwrap();
    let says = foretold(&learnt.model, 16, 16);
    assert!((says / sixteen).ln().abs() < 0.4, "{says} for {sixteen}");
    let point = |n: usize| {
        foretell::points(&learnt.model, &machine(16), &[n], Order::Spread, &EFFORT, &|| false)
            .unwrap()
            .remove(0)
    };
    let slower = point(16).chances.unwrap().at_most(x);
    assert!(slower > 0.75, "{slower}");
}

/// Waits for user locks: name, type, count, seconds and stack.
fn user_locks_by(rows: &[(&str, &str, u64, f64, &str)]) -> Table {
    let mut table = ncpu_schema::user_locks::Rows::new();
    for &(lock, ty, count, block, stack) in rows {
        table.push(ncpu_schema::user_locks::Row {
            lock: lock.into(),
            ty: ty.into(),
            process: "p".into(),
            pid: Some(1),
            count: Some(count),
            block: Some(block),
            stack: stack.into(),
            ..Default::default()
        });
    }
    table.finish()
}

/// The same by stacks without frames.
fn user_locks_of(rows: &[(&str, &str, u64, f64)]) -> Table {
    user_locks_by(
        &rows.iter().map(|&(lock, ty, count, block)| (lock, ty, count, block, "")).collect::<Vec<_>>(),
    )
}

#[test]
fn a_lock_of_several_words_and_ways_is_one_by_the_name_of_its_cause() {
    let (mut recording, x) = observed(&plain(2), 2);
    let elapsed = recording.tables["summary"].number(0, "elapsed").unwrap();
    let rows = [
        ("0x7f00", "lock", 3000, 0.1 * elapsed),
        ("0x7f40", "lock", 2000, 0.1 * elapsed),
        ("table", "sync.RWMutex:R", 1000, 0.02 * elapsed),
        ("table", "sync.RWMutex:W", 3000, 0.06 * elapsed),
        ("0x8000", "condition", 5000, 0.5 * elapsed),
    ];
    recording.tables.insert("user_locks".into(), user_locks_of(&rows));
    let named = |name: &str, rows: &[usize], lost| NamedLock {
        name: name.into(),
        rows: rows.to_vec(),
        lost,
        inside: 0.0,
        entering: 0.0,
    };
    let locks = vec![
        named("Java monitor in Map.get", &[0, 1], 0.4 * elapsed),
        named("RWMutex in lookup", &[2, 3], 0.02 * elapsed),
    ];
    let beside = Beside { locks: Some(locks), ..Beside::default() };
    let model = recording_beside(&recording, Some(x), None, &beside).unwrap().model;
    let names: Vec<&str> = model.lock.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["Java monitor in Map.get", "RWMutex in lookup"]);
    assert!((model.lock[1].reads - 0.25).abs() < 1e-9, "{:?}", model.lock);
    // A fifth of the capacity is lost to one of them: it is held for most of the time, and the other hardly ever.
    let busy = |i: usize| model.lock[i].takes * model.lock[i].hold_ns * x * 1e-9;
    assert!(busy(0) > 0.7 && busy(1) < 0.5, "{} {}", busy(0), busy(1));
    // Without names each is what its own word says, and conditions are nobody's.
    let alone = super::recording(&recording, Some(x), None).unwrap().model;
    assert_eq!(alone.lock.len(), 3, "{:?}", alone.lock);
}

#[test]
fn one_cpu_shows_a_lock_by_holders_that_lose_it() {
    let (mut recording, x) = observed(&plain(4), 1);
    let elapsed = recording.tables["summary"].number(0, "elapsed").unwrap();
    let threads = |slept: u64| {
        let mut rows = ncpu_schema::threads::Rows::new();
        for tid in 1..=4 {
            rows.push(ncpu_schema::threads::Row {
                pid: Some(1),
                tid: Some(tid),
                cpu: Some(0.25 * elapsed),
                icx: Some(250),
                vcx: Some(slept),
                ..Default::default()
            });
        }
        rows.finish()
    };
    recording.tables.insert("threads".into(), threads(160));
    recording.tables.insert("user_locks".into(), user_locks_of(&[("table", "lock", 600, 0.3 * elapsed)]));
    let model = super::recording(&recording, Some(x), None).unwrap().model;
    let busy = model.lock[0].takes * model.lock[0].hold_ns * x * 1e-9;
    assert!((busy - 0.6).abs() < 0.05, "{busy}: {:?}", model.lock);
    // Threads that mostly sleep for something else say nothing of it.
    recording.tables.insert("threads".into(), threads(1000));
    let learnt = super::recording(&recording, Some(x), None).unwrap();
    assert!(learnt.model.lock.is_empty(), "{:?}", learnt.model.lock);
    assert!(learnt.notes.iter().any(|n| n.contains("no lock was waited for enough")), "{:?}", learnt.notes);
    // Nor does a mutex that a condition's sleepers take again: who wakes them loses the CPU to them.
    recording.tables.insert("threads".into(), threads(160));
    let again = "syscall;<std::sys::sync::mutex::futex::Mutex>::lock_contended;<std::sys::sync::condvar::futex::Condvar>::wait;main";
    let rows = [("table", "lock", 600, 0.3 * elapsed, again)];
    recording.tables.insert("user_locks".into(), user_locks_by(&rows));
    let learnt = super::recording(&recording, Some(x), None).unwrap();
    assert!(learnt.model.lock.is_empty(), "{:?}", learnt.model.lock);
}

#[test]
fn on_one_cpu_a_lock_is_held_for_no_longer_than_its_code_ran_while_holders_stand_on_the_run_queue() {
    let (mut recording, x) = observed(&plain(4), 1);
    let elapsed = recording.tables["summary"].number(0, "elapsed").unwrap();
    let four = [1, 2, 3, 4].map(|tid| (tid, 0.25 * elapsed, 0.0, 0.75 * elapsed, 160));
    recording.tables.insert("threads".into(), threads_of(1, &four));
    recording.tables.insert("user_locks".into(), user_locks_of(&[("0x7f00", "lock", 600, 0.3 * elapsed)]));
    let busy = |holder_in: &str, inside: f64| {
        let mut recording = recording.clone();
        let mut waits = ncpu_schema::thread_time::Rows::new();
        waits.push(ncpu_schema::thread_time::Row {
            what: "0x7f00".into(),
            holder_in: holder_in.into(),
            held: Some(0.3 * elapsed),
            ..Default::default()
        });
        recording.tables.insert("thread_time".into(), waits.finish());
        let lock = NamedLock { name: "lock in put".into(), rows: vec![0], lost: 0.0, inside, entering: 0.0 };
        let beside = Beside { locks: Some(vec![lock]), ..Beside::default() };
        let model = recording_beside(&recording, Some(x), None, &beside).unwrap().model;
        model.lock[0].takes * model.lock[0].hold_ns * x * 1e-9
    };
    let (ran, unknown, slept) = (
        busy(ncpu_schema::ON_QUEUE, 0.05 * elapsed),
        busy(ncpu_schema::ON_QUEUE, 0.0),
        busy("read", 0.05 * elapsed),
    );
    assert!((ran - 0.05).abs() < 0.01, "{ran}");
    assert!(unknown > 0.5, "{unknown}");
    assert!(slept > 0.5, "a holder that sleeps is not seen to run: {slept}");
}

#[test]
fn a_program_that_is_bound_is_recorded_on_the_cpus_it_may_use() {
    let (mut recording, x) = observed(&Model { threads: 1, ..plain(1) }, 2);
    let cpus = |recording: &Recording| {
        super::recording(recording, Some(x), None).unwrap().model.recorded.unwrap().cpus
    };
    assert_eq!(cpus(&recording), 2);
    let busiest = {
        let t = &recording.tables["cpu_time"];
        let most = (0..2).max_by(|a, b| {
            t.number(*a, "target").unwrap_or(0.0).total_cmp(&t.number(*b, "target").unwrap_or(0.0))
        });
        t.int(most.unwrap(), "CPU").unwrap()
    };
    let mut bound = ncpu_schema::bound::Rows::new();
    bound.push(ncpu_schema::bound::Row {
        pid: Some(1),
        cpus: busiest.to_string().into(),
        ..Default::default()
    });
    recording.tables.insert("bound".into(), bound.finish());
    // Threads of the simulation move; those that are bound to one CPU do not run on the other.
    let elsewhere = {
        let t = &recording.tables["cpu_time"];
        let of = |r: usize| t.number(r, "target").unwrap_or(0.0);
        let all = of(0) + of(1);
        (0..2).filter(|&r| t.int(r, "CPU") != Some(busiest)).map(of).sum::<f64>() / all
    };
    assert_eq!(cpus(&recording), if elsewhere < 0.05 { 1 } else { 2 }, "{elsewhere}");
}
