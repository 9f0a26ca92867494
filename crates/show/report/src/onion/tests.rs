use ncpu_record::{Gather, Manifest, Recording};
use ncpu_schema::{
    Counter, CpuState, IdleReason, Layer, Per, Purpose, SampleClass, counters, cpu_time, events, idle_time,
    samples, throttling,
};
use ncpu_table::Table;

use super::{Onion, Row, render};
use crate::fixtures::table;

/// A row of samples: state, class, detail, process, count.
type Sample<'a> = (CpuState, SampleClass, &'a str, &'a str, u64);

fn samples(of: &[Sample<'_>]) -> Table {
    let mut rows = samples::Rows::new();
    for (at, class, detail, process, n) in of {
        rows.push(samples::Row {
            at: Some(*at),
            class: Some(*class),
            detail: (*detail).into(),
            process: (*process).into(),
            samples: Some(*n),
            time: None,
        });
    }
    rows.finish()
}

/// Ten seconds whose idle time had these reasons.
fn idle_time(of: impl Fn(IdleReason) -> f64) -> Table {
    let mut rows = idle_time::Rows::new();
    rows.push(idle_time::Row { time: Some(10.0), spent: Per::new(|reason| Some(of(reason))) });
    rows.finish()
}

fn events(of: &[(Counter, u64)]) -> Table {
    let mut rows = events::Rows::new();
    for (event, count) in of {
        rows.push(events::Row { time: Some(10.0), event: Some(*event), count: Some(*count) });
    }
    rows.finish()
}

/// Two CPUs for ten seconds: 4 CPU-s spinning, 6 on CPU, 8 idle, 2 of other programs.
fn recording() -> Recording {
    let mut cpu_time = cpu_time::Rows::new();
    for cpu in 0..2 {
        let spent = Per::new(|state| {
            Some(match state {
                CpuState::Idle => 4.0,
                CpuState::Program => 3.0,
                CpuState::Others => 1.0,
                CpuState::Spin => 2.0,
                _ => 0.0,
            })
        });
        cpu_time.push(cpu_time::Row { time: Some(10.0), cpu: Some(cpu), spent, kernel: None });
    }
    // The leader's timer saw half of the idle time; its proportions count.
    let idle_time = idle_time(|reason| match reason {
        IdleReason::UserLock => 1.0,
        IdleReason::Serial => 3.0,
        _ => 0.0,
    });
    let samples = samples(&[
        (CpuState::Program, SampleClass::User, "work", "db", 300),
        (CpuState::Program, SampleClass::Syscall, "dup2", "db", 200),
        (CpuState::Program, SampleClass::Zeroing, "clear_page_erms", "db", 100),
        (CpuState::Spin, SampleClass::LockSpin, "native_queued_spin_lock_slowpath", "db", 400),
    ]);
    let locks = table(
        "locks",
        &["lock", "type", "process"],
        &["count", "spin", "block", "max"],
        &[(&["files_struct.file_lock", "spinlock", "db"], &[4_000_000.0, 4.0, 0.0, 90.0])],
    );
    let manifest = Manifest::new(Purpose::Run, 2, vec!["db".into(), "-x".into()], 1.0);
    let tables = [cpu_time.finish(), idle_time, samples, locks];
    tables.into_iter().fold(Recording::new(manifest), Recording::with)
}

/// 6 CPU-seconds of idle time while the program's threads were runnable, and a cgroup's limit behind it.
fn throttled(reason: IdleReason, seconds: f64) -> Onion {
    let times = idle_time(|r| match r {
        r if r == reason => seconds,
        IdleReason::Asleep => 8.0 - seconds,
        _ => 0.0,
    });
    let mut limits = throttling::Rows::new();
    for time in [5.0, 10.0] {
        limits.push(throttling::Row {
            time: Some(time),
            cgroup: "/job".into(),
            limit: "cpu.max".into(),
            lift: "echo max > /job/cpu.max".into(),
            allowed: Some(1.5),
            periods: Some(50),
            throttled: Some(40),
            held: Some(3.0),
        });
        limits.push(throttling::Row {
            time: Some(time),
            cgroup: "/".into(),
            limit: "cpu.max".into(),
            lift: "echo max > /cpu.max".into(),
            allowed: None,
            periods: Some(50),
            throttled: Some(1),
            held: Some(0.1),
        });
    }
    Onion::peel(&recording().with(times).with(limits.finish())).unwrap()
}

#[test]
fn a_cgroups_limit_is_named_where_it_kept_threads_waiting() {
    let onion = throttled(IdleReason::RunQueue, 6.0);
    let row = onion.rows.iter().find(|r| r.layer == Layer::RunQueue).unwrap();
    assert_eq!(
        row.lines()[0],
        "throttled by cpu.max of /job (1.5 CPUs): 6.000 CPU-s held back, in 80 of 100 periods"
    );
    assert!(row.remedy().starts_with("cpu.max of /job keeps CPUs idle: raise or lift it (echo max > /job/cpu.max), or run no more threads than the 2 it lets run"), "{}", row.remedy());
    assert!(!onion.notes.iter().any(|n| n.contains("throttled")), "said once: {:?}", onion.notes);
    // Where no CPU was idle for it, no layer can tell.
    let onion = throttled(IdleReason::Asleep, 8.0);
    let notes: Vec<_> = onion.notes.iter().filter(|n| n.contains("throttled by cpu.max")).collect();
    assert_eq!(notes.len(), 1, "{:?}", onion.notes);
    assert!(notes[0].ends_with("lift it: echo max > /job/cpu.max"), "{notes:?}");
}

#[test]
fn the_kernels_part_is_one_layer_where_samples_see_user_code_only() {
    let mut cpu_time = cpu_time::Rows::new();
    for cpu in 0..2 {
        let spent = Per::new(|state| Some(if state == CpuState::Program { 6.0 } else { 0.0 }));
        cpu_time.push(cpu_time::Row { time: Some(10.0), cpu: Some(cpu), spent, kernel: Some(2.0) });
    }
    let user = samples(&[
        (CpuState::Program, SampleClass::User, "work", "db", 300),
        (CpuState::Program, SampleClass::UserSpin, "spin_lock", "db", 100),
    ]);
    let onion = Onion::peel(&recording().with(cpu_time.finish()).with(user)).unwrap();
    let seconds = [Layer::Kernel, Layer::User, Layer::UserLock, Layer::Calls].map(|l| onion.seconds(l));
    assert_eq!(seconds, [4.0, 6.0, 2.0, 0.0]);
    let row = onion.rows.iter().find(|r| r.layer == Layer::Kernel).unwrap();
    assert!(row.error > 0.0 && row.layer.recoverable(), "{row:?}");
    assert!(render(&onion, 100).contains("system calls, faults and kernel locks"));
}

#[test]
fn every_second_is_in_one_layer_and_the_largest_that_could_come_back_is_first() {
    let onion = Onion::peel(&recording()).unwrap();
    assert_eq!(onion.capacity, 20.0);
    let sum: f64 = onion.rows.iter().map(|r| r.seconds).sum();
    assert!((sum - 20.0).abs() < 1e-9, "{sum}");
    assert_eq!(onion.rows[0].layer, Layer::Serial);
    let close = |layer, seconds: f64| {
        assert!((onion.seconds(layer) - seconds).abs() < 1e-9, "{layer:?}: {}", onion.seconds(layer));
    };
    close(Layer::Serial, 6.0);
    close(Layer::UserLock, 2.0);
    close(Layer::KernelSpin, 4.0);
    close(Layer::User, 3.0);
    close(Layer::Calls, 2.0);
    close(Layer::Faults, 1.0);
    close(Layer::Others, 2.0);
    assert!((onion.rows[0].gain() - 1.0 / 0.7).abs() < 1e-9);
    let last = onion.rows.iter().rposition(|r| r.layer.recoverable()).unwrap();
    assert!(onion.rows[..=last].iter().all(|r| r.layer.recoverable()));
}

#[test]
fn a_known_lock_has_its_remedy() {
    let onion = Onion::peel(&recording()).unwrap();
    let spin = onion.rows.iter().find(|r| r.layer == Layer::KernelSpin).unwrap();
    assert!(
        spin.lines()[0]
            .starts_with("files_struct.file_lock (spinlock) 100 %: 4000000 waits, 1.0 us spin each"),
        "{:?}",
        spin.evidence
    );
    assert!(spin.remedy().contains("descriptor table"), "{}", spin.remedy());
}

/// The onion of a recording of a program with these samples, of class and detail, beside 100 of user code.
fn sampled(rows: &[(SampleClass, &str, u64)]) -> Onion {
    let user = (CpuState::Program, SampleClass::User, "work", "db", 100);
    let rows = rows.iter().map(|(class, detail, n)| (CpuState::Program, *class, *detail, "db", *n));
    let all: Vec<Sample<'_>> = std::iter::once(user).chain(rows).collect();
    Onion::peel(&recording().with(samples(&all))).unwrap()
}

/// A recording may be anybody's.
#[test]
fn forged_counts_add_up_to_no_overflow() {
    let all = [SampleClass::User, SampleClass::Syscall, SampleClass::Syscall];
    let rows: Vec<Sample<'_>> =
        all.iter().map(|class| (CpuState::Program, *class, "dup2", "db", u64::MAX)).collect();
    let counted: Vec<_> = Counter::ALL.into_iter().flat_map(|counter| [(counter, u64::MAX); 2]).collect();
    let onion = Onion::peel(&recording().with(samples(&rows)).with(events(&counted))).unwrap();
    assert!(onion.rows.iter().all(|row| row.share.is_finite()), "{onion:?}");
}

#[test]
fn advice_takes_more_than_chance() {
    use SampleClass::{Exec, Exit, Fault, Syscall, Tlb, Zeroing};

    let advice = |rows: &[(SampleClass, &str, u64)], layer| {
        sampled(rows).rows.into_iter().find(|r| r.layer == layer).unwrap().remedy()
    };
    let calls = |rows: &[(SampleClass, &str, u64)]| advice(rows, Layer::Calls);
    // Three samples of execve in a hundred: of 6 CPU-s on CPU that is 0.05 to 0.5, of 20 perhaps nothing that matters.
    assert_eq!(calls(&[(Exec, "execve", 1)]), "", "the layer itself may be nothing");
    assert!(!calls(&[(Exec, "execve", 3)]).contains("processes start"));
    assert!(!calls(&[(Exec, "execve", 3), (Syscall, "getpid", 2)]).contains("processes start"));
    assert!(calls(&[(Exec, "execve", 12)]).contains("processes start and end at a high rate (execve)"));
    // No one call of them is more than the others, but all are starts and ends of processes.
    let parts = [(Exec, "execve", 20), (Exit, "exit", 19), (Syscall, "clone", 21), (Syscall, "getpid", 18)];
    assert!(calls(&parts).contains("processes start and end at a high rate (clone)"), "{}", calls(&parts));
    assert_eq!(calls(&[(Syscall, "getpid", 30), (Syscall, "getuid", 28)]), "call less often, or in batches");
    let faults = |zeroing| {
        advice(&[(Zeroing, "clear_huge_page", zeroing), (Fault, "handle_mm_fault", 1)], Layer::Faults)
    };
    assert!(!faults(3).contains("huge pages are zeroed") && faults(30).contains("huge pages are zeroed"));
    let flushes = [(Tlb, "madvise (zap)", 3), (Tlb, "munmap (tlb_finish_mmu)", 2)];
    assert!(!advice(&flushes, Layer::Tlb).contains("jemalloc"));
}

#[test]
fn a_lock_that_costs_nothing_is_not_the_one_to_mend() {
    let none = table(
        "locks",
        &["lock", "type", "process"],
        &["count", "spin", "block", "max"],
        &[(&["mm_struct.mmap_lock", "rwsem", "db"], &[3.0, 0.00001, 0.0, 9.0])],
    );
    let onion = Onion::peel(&recording().with(none)).unwrap();
    let spin = onion.rows.iter().find(|r| r.layer == Layer::KernelSpin).unwrap();
    assert!(spin.remedy().starts_with("name the lock with"), "{}", spin.remedy());
}

#[test]
fn all_samples_in_one_layer_are_no_certainty() {
    let onion = sampled(&[]);
    let user = onion.rows.iter().find(|r| r.layer == Layer::User).unwrap();
    // Wilson's: 100 of 100 is 96.3 % or more.
    assert!((user.seconds - 6.0).abs() < 1e-9 && (user.error - 6.0 * 0.037).abs() < 0.001, "{user:?}");
}

#[test]
fn what_the_idle_timer_tells_is_sampled_too() {
    let onion = Onion::peel(&recording().with(events(&[(Counter::IdleTicks, 100)]))).unwrap();
    let serial = onion.rows.iter().find(|r| r.layer == Layer::Serial).unwrap();
    // Three quarters of 8 CPU-s in 100 looks: Wilson's interval of 75 in 100 is 0.657 to 0.825.
    assert!((serial.error - 8.0 * 0.093).abs() < 0.01, "{serial:?}");
}

#[test]
fn a_lock_that_many_held_is_one_lock() {
    let evidence = |rows: &[(&str, &str, f64, f64)]| {
        let mut locks = ncpu_schema::user_locks::Rows::new();
        for (lock, holder, spin, block) in rows {
            locks.push(ncpu_schema::user_locks::Row {
                lock: (*lock).into(),
                ty: "mutex".into(),
                process: "convoy".into(),
                caller: "start_thread".into(),
                holder: (*holder).into(),
                count: Some(100),
                wakes: Some(100),
                spin: Some(*spin),
                block: Some(*block),
                ..Default::default()
            });
        }
        let onion = Onion::peel(&recording().with(locks.finish())).unwrap();
        onion.rows.into_iter().find(|r| r.layer == Layer::UserLock).unwrap().lines().swap_remove(0)
    };
    let one =
        [("door", "convoy/1", 0.0, 0.4), ("door", "convoy/2", 0.0, 0.3), ("door", "convoy/3", 0.0, 0.3)];
    assert_eq!(evidence(&one), "mutex door of convoy in start_thread: 300 waits, 1.000 thread-s");
    let held = [("door", "convoy/1", 0.0, 0.7), ("door", "convoy/2", 0.0, 0.3)];
    assert!(evidence(&held).ends_with(", woken mostly by convoy/1"), "{}", evidence(&held));
    // A lock with spinning only is known by its spinning.
    let spun = [("door", "convoy/1", 0.7, 0.0), ("gate", "convoy/2", 0.2, 0.0)];
    assert!(evidence(&spun).starts_with("mutex door of convoy"), "{}", evidence(&spun));
    let many = [("a", "convoy/1", 0.0, 0.4), ("b", "convoy/1", 0.0, 0.3), ("c", "convoy/1", 0.0, 0.3)];
    assert!(
        evidence(&many).starts_with("3 mutexes of convoy in start_thread: 300 waits"),
        "{}",
        evidence(&many)
    );
}

#[test]
fn a_recording_of_something_else_is_told() {
    let empty = Gather::new(Manifest::new(Purpose::Run, 2, Vec::new(), 1.0)).finish().unwrap();
    assert!(Onion::peel(&empty).unwrap_err().to_string().contains("cpu_time"));
}

#[test]
fn text_fits_the_width() {
    let onion = Onion::peel(&recording()).unwrap();
    let narrow = render(&onion, 80);
    assert!(narrow.lines().all(|l| l.chars().count() <= 80), "{narrow}");
    insta::assert_snapshot!(render(&onion, 120));
}

#[test]
fn shootdowns_are_told_by_sender_and_reason() {
    let of = |class, detail, n| (CpuState::Program, class, detail, "db", n);
    let samples = samples(&[
        of(SampleClass::User, "work", 300),
        of(SampleClass::TlbWait, "munmap (tlb_finish_mmu)", 200),
        of(SampleClass::Tlb, "munmap (tlb_finish_mmu)", 60),
        of(SampleClass::Tlb, "fault (do_wp_page)", 40),
    ]);
    let events = events(&[(Counter::ShootdownsSent, 1000), (Counter::ShootdownsReceived, 1500)]);
    let onion = Onion::peel(&recording().with(samples).with(events)).unwrap();
    let sum: f64 = onion.rows.iter().map(|r| r.seconds).sum();
    assert!((sum - onion.capacity).abs() < 1e-9, "waiting for shootdowns is in one layer only");
    let row = onion.rows.iter().find(|r| r.layer == Layer::Tlb).unwrap();
    assert_eq!(row.seconds, 3.0);
    let evidence = row.lines().join("; ");
    for part in [
        "100/s sent, 150/s received: 1.5 CPUs",
        "sending and waiting 2.000 CPU-s",
        "of their flushes 1.000",
        "sent by db 100 %; for munmap (tlb_finish_mmu) 87 %, fault (do_wp_page) 13 %",
    ] {
        assert!(evidence.contains(part), "{part} in {evidence}");
    }
    assert!(row.remedy().contains("MALLOC_TRIM_THRESHOLD_"), "{}", row.remedy());
}

#[test]
fn what_the_hardware_counted_is_told_of_user_code() {
    let mut counts = counters::Rows::new();
    for cpu in 0..2 {
        for (event, count) in [
            ("cycles:u", Some(1000.0)),
            ("instructions:u", Some(800.0)),
            ("dtlb_load_misses.walk_active:u", Some(100.0)),
            ("itlb_misses.walk_active:u", Some(25.0)),
            // Had no counter on CPU 1: not known.
            ("LLC-load-misses:u", (cpu == 0).then_some(4.0)),
        ] {
            counts.push(counters::Row { cpu: Some(cpu), event: event.into(), count, ..Default::default() });
        }
    }
    let mut recording = recording().with(counts.finish());
    let said = |recording: &Recording| {
        let onion = Onion::peel(recording).unwrap();
        let user = onion.rows.iter().find(|r| r.layer == Layer::User).unwrap();
        user.lines().into_iter().find(|e| e.contains("a cycle"))
    };
    assert_eq!(
        said(&recording).as_deref(),
        Some("user code of all programs: 0.80 instructions a cycle, 12.5 % of cycles in page walks")
    );
    recording.tables.remove("counters");
    assert_eq!(said(&recording), None);
}

#[test]
fn who_sleeps_with_a_timeout_is_named_and_advised() {
    let sleepers = table(
        "sleepers",
        &["call", "process"],
        &["pid", "count", "asked", "slept", "threads"],
        &[
            (&["poll", "herd"], &[7.0, 50_000.0, 500.0, 505.0, 60.0]),
            // Another interval of the same threads.
            (&["poll", "herd"], &[7.0, 40_000.0, 400.0, 404.0, 60.0]),
            (&["poll", "herd"], &[8.0, 10_000.0, 100.0, 101.0, 40.0]),
            (&["nanosleep", "cron"], &[9.0, 5.0, 50.0, 50.0, 1.0]),
        ],
    );
    let recording = recording().with(sleepers).with(events(&[(Counter::Switches, 210_000)]));
    let onion = Onion::peel(&recording).unwrap();
    let serial = onion.rows.iter().find(|r| r.layer == Layer::Serial).unwrap();
    let told =
        "100 threads of herd asleep in poll: 10000 sleeps/s, 10.0 ms asked for, 10.1 ms slept on average";
    assert!(serial.lines().iter().any(|e| e == told), "{:?}", serial.evidence);
    assert!(!serial.lines().iter().any(|e| e.contains("cron")), "{:?}", serial.evidence);
    let context = super::evidence::Context {
        causes: crate::causes::current(),
        recording: &recording,
        samples: None,
        elapsed: 10.0,
        cpus: 2,
        capacity: 20.0,
        running: 6.0,
        total: 0,
    };
    assert!(
        super::advice::of(Layer::Switches, &context)[0].words.contains("wait in poll for the event itself")
    );
    assert!(super::evidence::of(Layer::Switches, &context).iter().any(|e| e.to_string() == told));
}

#[test]
fn limits_that_were_met_are_told_with_their_remedy() {
    let met = table(
        "limits_met",
        &["limit", "of", "lift"],
        &["allowed", "used", "refused", "killed"],
        &[
            (&["pids.max", "/job", "echo max > /x"], &[20.0, 20.0, 7.0, 0.0]),
            (&["memory.max", "/job", "echo max > /y"], &[f64::from(64 << 20), f64::from(63 << 20), 9.0, 1.0]),
            (&["RLIMIT_NOFILE", "process 7", "prlimit"], &[1024.0, 1000.0, 0.0, 0.0]),
        ],
    );
    let recording = recording().with(met);
    let onion = Onion::peel(&recording).unwrap();
    for told in [
        "limit reached: pids.max of /job: 20 of 20 used, 7 forks refused; lift it: echo max > /x",
        "limit reached: memory.max of /job: 63 MiB of 64 MiB used, reached 9 times, 1 processes killed; lift it: echo max > /y",
        "limit nearly reached: RLIMIT_NOFILE of process 7: 1000 of 1024 used; lift it: prlimit",
    ] {
        assert!(onion.notes.iter().any(|n| n == told), "{told} in {:?}", onion.notes);
    }
}

#[test]
fn memory_and_pressure_explain_layers_only_where_they_do() {
    let said = |grown: u64, stalls: u64, seconds: f64| {
        let memory = table(
            "memory_change",
            &["class"],
            &["before", "most", "after"],
            &[
                (&["AnonPages"], &[f64::from(100 << 20), ((100 << 20) + grown) as f64, f64::from(90 << 20)]),
                (&["Slab"], &[f64::from(100 << 20), f64::from(90 << 20), f64::from(90 << 20)]),
            ],
        );
        let events = table(
            "memory_events",
            &["event"],
            &["count"],
            &[
                (&["allocstall"], &[stalls as f64]),
                (&["pgscan_direct"], &[100.0 * stalls as f64]),
                (&["thp_fault_alloc"], &[12.0]),
            ],
        );
        let pressure = table(
            "pressure",
            &["resource", "kind"],
            &["seconds"],
            &[(&["memory", "some"], &[seconds]), (&["memory", "full"], &[0.0])],
        );
        let onion = Onion::peel(&recording().with(memory).with(events).with(pressure)).unwrap();
        onion.rows.iter().find(|r| r.layer == Layer::Faults).unwrap().lines().join("|")
    };
    let loud = said(512 << 20, 33, 2.5);
    for told in [
        "the machine's memory grew by up to: anonymous memory 512 MiB; 12 huge pages given out",
        "the machine's memory was short: 33 allocations had to free memory first",
        "some task stood still for memory in 25 % of the time",
    ] {
        assert!(loud.contains(told), "{told} in {loud}");
    }
    let quiet = said(1 << 20, 0, 0.01);
    assert!(!quiet.contains("memory"), "{quiet}");
}

#[test]
fn what_the_schema_does_not_know_is_an_error_that_names_it() {
    let wrong = |table: Table| Onion::peel(&recording().with(table)).unwrap_err().to_string();
    let full = recording();
    // The columns of a table, with one left out, renamed or of another type.
    let changed = |name: &str, column: &str, to: Option<ncpu_table::Column>| {
        let mut columns = full.tables[name].columns().to_vec();
        let at = columns.iter().position(|c| c.name == column).unwrap();
        columns.remove(at);
        columns.extend(to);
        Table::builder(name, &columns).finish()
    };
    assert_eq!(
        wrong(changed("locks", "spin", None)),
        "this observation: table `locks` has no column `spin`; its columns are lock, type, process, count, block, max, counted, error, t"
    );
    assert_eq!(
        wrong(changed("locks", "spin", Some(ncpu_table::Column::text("spin", "")))),
        "this observation: column `spin` of table `locks` is text instead of a number"
    );
    let more = ncpu_table::Column::float("dreaming", ncpu_table::Unit::Seconds, ncpu_table::Kind::Time, "");
    let mut columns = full.tables["idle_time"].columns().to_vec();
    columns.push(more);
    assert_eq!(
        wrong(Table::builder("idle_time", &columns).finish()),
        "this observation: table `idle_time` has a column that this ncpu cannot place: unknown idle reason `dreaming`"
    );
    for (at, class, expect) in [
        ("target", "napping", "column `class` of table `samples`, row 0: unknown sample class `napping`"),
        ("moon", "user", "column `at` of table `samples`, row 0: unknown CPU state `moon`"),
    ] {
        let message = wrong(table("samples", &["at", "class"], &["samples"], &[(&[at, class], &[1.0])]));
        assert!(message.contains(expect), "{message}");
    }
}

/// The serial layer of [`recording`] where CPUs idled for each thread: the thread, its activity, its code, and
/// the seconds.
fn serial_of<'a>(idled: impl IntoIterator<Item = (&'a str, &'a str, &'a str, f64)>) -> Row {
    let some = |text: &'a str| Some(text).filter(|t| !t.is_empty());
    let mut path = ncpu_schema::critical_path::Rows::new();
    for (thread, doing, code, idle) in idled {
        path.push(ncpu_schema::critical_path::Row {
            reason: Some(IdleReason::Serial),
            process: "app".into(),
            thread: some(thread).into(),
            doing: doing.into(),
            code: some(code).into(),
            stack: "main;load_config;parse_input".into(),
            idle: Some(idle),
            seconds: Some(idle),
            count: Some(100),
            time: None,
        });
    }
    let onion = Onion::peel(&recording().with(path.finish())).unwrap();
    onion.rows.into_iter().find(|r| r.layer == Layer::Serial).unwrap()
}

#[test]
fn serial_phases_name_the_code_that_all_waited_for() {
    let serial = serial_of([
        ("main", "running", "parse_input <- load_config", 3.0),
        ("main", "waiting for I/O in read", "load_config", 0.6),
        ("main", "waiting in poll", "idle", 0.3),
        ("", "about to run: on a run queue", "", 0.1),
    ]);
    assert_eq!(
        serial.lines()[..3],
        [
            "3.00 CPU-s (75 %) while main was in parse_input <- load_config: without it up to 3.00 s sooner, with half of it 1.50 s",
            "0.60 CPU-s (15 %) while main was waiting for I/O in read in load_config: without it up to 0.60 s sooner, with half of it 0.30 s",
            // Nobody knows what ended it.
            "0.30 CPU-s (8 %) while main was waiting in poll in idle",
        ]
    );
    assert!(serial.remedy().contains("while main is in parse_input <- load_config"), "{}", serial.remedy());
}

#[test]
fn what_cpus_idled_for_is_no_more_than_they_idled() {
    // Six of the eight seconds of its idle time are serial.
    let serial = serial_of([("reader", "running", "work", 6.0), ("writer", "running", "work", 2.0)]);
    assert_eq!(
        serial.lines()[..2],
        [
            "4.50 CPU-s (75 %) while reader was in work: without it up to 4.50 s sooner, with half of it 2.25 s",
            "1.50 CPU-s (25 %) while writer was in work: without it up to 1.50 s sooner, with half of it 0.75 s",
        ]
    );
}

#[test]
fn futexes_of_unknown_kind_are_told_and_no_more_workers_asked_for() {
    let serial = |unknown: f64, condition: f64| {
        let mut locks = ncpu_schema::user_locks::Rows::new();
        for (ty, block) in [("unknown", unknown), ("condition", condition)] {
            locks.push(ncpu_schema::user_locks::Row {
                lock: "0x7f".into(),
                ty: ty.into(),
                process: "db".into(),
                count: Some(100),
                block: Some(block),
                ..Default::default()
            });
        }
        let mut path = ncpu_schema::critical_path::Rows::new();
        path.push(ncpu_schema::critical_path::Row {
            reason: Some(IdleReason::Serial),
            process: "db".into(),
            thread: Some("db").into(),
            doing: "running".into(),
            idle: Some(6.0),
            seconds: Some(6.0),
            count: Some(100),
            ..Default::default()
        });
        let onion = Onion::peel(&recording().with(locks.finish()).with(path.finish())).unwrap();
        onion.rows.into_iter().find(|r| r.layer == Layer::Serial).unwrap()
    };
    let told = "12.50 thread-s in futexes of unknown kind, perhaps a lock: `ncpu locks --futexes` shows them";
    let row = serial(12.5, 30.0);
    assert!(row.lines().iter().any(|e| e == told), "{:?}", row.evidence);
    assert!(row.remedy().starts_with("threads wait in futexes of unknown kind"), "{}", row.remedy());
    // A small part of the waiting, or of the time, does not show which threads wait for which.
    for (unknown, condition) in [(2.0, 30.0), (0.4, 0.0)] {
        let row = serial(unknown, condition);
        assert!(!row.lines().join("").contains("unknown kind"), "{:?}", row.evidence);
        assert!(row.remedy().starts_with("the others wait while db runs alone"), "{}", row.remedy());
    }
}

#[test]
fn parked_threads_are_not_told_to_be_too_few() {
    let advice = |block: f64| {
        let mut locks = ncpu_schema::user_locks::Rows::new();
        for (pattern, how, block) in [("Java park", "`jstack` tells", block), ("Java wait", "", 30.0)] {
            locks.push(ncpu_schema::user_locks::Row {
                lock: "0x7f".into(),
                ty: "condition".into(),
                process: "java".into(),
                pattern: Some(pattern).into(),
                advice: Some(how).filter(|how| !how.is_empty()).into(),
                count: Some(100),
                block: Some(block),
                ..Default::default()
            });
        }
        let onion = Onion::peel(&recording().with(locks.finish())).unwrap();
        onion.rows.into_iter().find(|r| r.layer == Layer::Serial).unwrap().remedy()
    };
    assert_eq!(advice(25.0), "Java park: `jstack` tells");
    // A pool that hardly waited.
    assert!(advice(4.0).starts_with("too few runnable threads"), "{}", advice(4.0));
}

#[test]
fn who_ran_alone_through_many_places_is_named_itself() {
    let names: Vec<String> = (0..20).map(|n| format!("pass_{n}")).collect();
    let time = |n| 0.1 + if n == 7 { 0.06 } else { 0.0 };
    let places = names.iter().enumerate().map(|(n, code)| ("lto1-ltrans", "running", code.as_str(), time(n)));
    let serial = serial_of(places.chain([("make", "running", "read_makefile", 0.4)]));
    assert_eq!(
        serial.lines()[..2],
        [
            "2.06 CPU-s (84 %) while lto1-ltrans ran, 8 % of it in pass_7: without it up to 2.06 s sooner, with half of it 1.03 s",
            "0.40 CPU-s (16 %) while make was in read_makefile: without it up to 0.40 s sooner, with half of it 0.20 s",
        ]
    );
    assert!(
        serial.remedy().starts_with("the others wait while lto1-ltrans runs alone: "),
        "{}",
        serial.remedy()
    );
}

#[test]
fn many_short_processes_are_told_to_run_beside_each_other() {
    let advice = |pids: u64, lived: f64| {
        let mut path = ncpu_schema::critical_path::Rows::new();
        path.push(ncpu_schema::critical_path::Row {
            reason: Some(IdleReason::Serial),
            process: "cc1".into(),
            thread: Some("cc1").into(),
            doing: "running".into(),
            code: Some("ggc_alloc").into(),
            idle: Some(6.0),
            seconds: Some(6.0),
            count: Some(100),
            ..Default::default()
        });
        let mut threads = ncpu_schema::threads::Rows::new();
        for pid in 0..pids {
            threads.push(ncpu_schema::threads::Row {
                pid: Some(pid),
                tid: Some(pid),
                process: "cc1".into(),
                thread: "cc1".into(),
                micro: Per::new(|state| (state as usize == 6).then_some(lived - 0.1)),
                cpu: Some(0.1),
                ..Default::default()
            });
        }
        let onion = Onion::peel(&recording().with(path.finish()).with(threads.finish())).unwrap();
        onion.rows.into_iter().find(|r| r.layer == Layer::Serial).unwrap().remedy()
    };
    let told = advice(20, 0.3);
    assert!(
        told.starts_with("the others wait while 20 short processes of cc1 run one after another: start more"),
        "{told}"
    );
    // A few, or such as live long: a pool of workers.
    for told in [advice(3, 0.3), advice(20, 9.0)] {
        assert!(told.starts_with("the others wait while cc1 is in ggc_alloc: split that work"), "{told}");
    }
}

#[test]
fn requests_in_flight_say_what_io_wait_is() {
    let waits = idle_time(|reason| if reason == IdleReason::Io { 8.0 } else { 0.0 });
    let told = |count: f64, seconds: f64| {
        let requests = table(
            "requests",
            &["device", "process", "operation", "by"],
            &["count", "bytes", "queued", "seconds", "max"],
            &[
                (&["vda", "fio", "read", "ahead"], &[count, count * 4096.0, 0.0, seconds / 2.0, 9000.0]),
                (&["vda", "fio", "write", "ahead"], &[count, count * 4096.0, 0.0, seconds / 2.0, 8000.0]),
                (&["vda", "[kernel]", "write", "kernel"], &[10.0, 1e6, 0.0, 0.001, 100.0]),
            ],
        );
        let onion = Onion::peel(&recording().with(waits.clone()).with(requests)).unwrap();
        let row = onion.rows.into_iter().find(|r| r.layer == Layer::Io).unwrap();
        (row.lines().join("\n"), row.remedy())
    };
    // 320 seconds of requests in 10 s are 32 in flight.
    let (evidence, advice) = told(10_000.0, 320.0);
    assert!(
        evidence.contains(
            "vda: 32.0 requests in flight on average of fio, by io_uring or io_submit: 2000/s of 4 KiB, 16.0 ms each in \
             the device and 0 us queued before, longest 9.0 ms"
        ),
        "{evidence}"
    );
    assert!(!evidence.contains("kernel threads"), "{evidence}");
    assert!(advice.contains("more of them only queue") && advice.contains("faster device"), "{advice}");
    let (evidence, advice) = told(10_000.0, 9.0);
    assert!(evidence.contains("vda: 0.90 requests in flight"), "{evidence}");
    assert!(advice.contains("more requests in flight"), "{advice}");
}

#[test]
fn other_programs_are_told_with_who_stood_behind_them_and_why() {
    let rows: &[(&[&str], &[f64])] = &[
        (&["other", "hog", "nice -10, and the program's is 0", "renice -n 0 -p 7"], &[100.0, 3.0]),
        (&["other", "cron", "", ""], &[10.0, 0.5]),
        (&["target", "", "", ""], &[900.0, 90.0]),
    ];
    let queued = table("queued", &["at", "process", "cause", "remedy"], &["waits", "seconds"], rows);
    let onion = Onion::peel(&recording().with(queued)).unwrap();
    let row = onion.rows.iter().find(|r| r.layer == Layer::Others).unwrap();
    let evidence = row.lines().join("\n");
    assert!(
        evidence.contains(
            "the program's threads stood 3.5 s on run queues behind them: hog 3.0 s, cron 500.0 ms"
        ),
        "{evidence}"
    );
    assert!(evidence.contains("hog goes first: nice -10"), "{evidence}");
    assert!(row.remedy().contains("renice -n 0 -p 7"), "{}", row.remedy());
    // Without anything queued nothing is said.
    let onion = Onion::peel(&recording()).unwrap();
    let row = onion.rows.iter().find(|r| r.layer == Layer::Others).unwrap();
    assert!(row.remedy().is_empty() && !row.lines().join("").contains("run queues"), "{row:?}");
}

/// A row of what CPUs idled for.
fn charged(
    reason: IdleReason,
    process: &'static str,
    doing: &'static str,
    stack: &'static str,
    idle: f64,
) -> ncpu_schema::critical_path::Row<'static> {
    ncpu_schema::critical_path::Row {
        reason: Some(reason),
        process: process.into(),
        thread: process.into(),
        doing: doing.into(),
        code: "work".into(),
        stack: stack.into(),
        idle: Some(idle),
        seconds: Some(idle),
        count: Some(100),
        time: None,
    }
}

/// The evidence of a layer where CPUs idled for a reason, and of all these rows.
fn idled_for(
    command: &[&str],
    reason: IdleReason,
    rows: Vec<ncpu_schema::critical_path::Row<'static>>,
    tables: Vec<Table>,
) -> Vec<String> {
    let mut path = ncpu_schema::critical_path::Rows::new();
    rows.into_iter().for_each(|row| path.push(row));
    let mut recording = recording().with(idle_time(|r| if r == reason { 6.0 } else { 0.0 }));
    recording.manifest.command = command.iter().map(|word| (*word).to_string()).collect();
    let recording = tables.into_iter().fold(recording.with(path.finish()), Recording::with);
    let layer = Layer::from(reason);
    Onion::peel(&recording).unwrap().rows.into_iter().find(|r| r.layer == layer).unwrap().lines()
}

#[test]
fn a_kernel_lock_is_held_in_the_kernel() {
    let rows = || {
        vec![
            charged(IdleReason::KernelLock, "spinner", "running", "main;work", 3.0),
            charged(IdleReason::KernelLock, "sleeper", "asleep for a time in clock_nanosleep", "main", 2.0),
            charged(
                IdleReason::KernelLock,
                "agent",
                "running",
                "main;read;ksys_read_[k];show_smaps_rollup_[k]",
                1.0,
            ),
        ]
    };
    let told = idled_for(&["app"], IdleReason::KernelLock, rows(), vec![]);
    let path: Vec<&String> = told.iter().filter(|line| line.contains("CPU-s")).collect();
    assert_eq!(
        path,
        ["1.00 CPU-s (17 %) while agent was in work: without it up to 1.00 s sooner, with half of it 0.50 s"]
    );
    // A machine has no end that could come sooner.
    for command in [&["the machine"][..], &["process 7"], &["cgroup /a"], &[]] {
        let told = idled_for(command, IdleReason::KernelLock, rows(), vec![]);
        assert!(told.iter().all(|line| !line.contains("sooner")), "{told:?}");
        assert!(told.iter().any(|line| line == "1.00 CPU-s (17 %) while agent was in work"), "{told:?}");
    }
}

#[test]
fn a_programs_lock_is_not_held_by_another_program() {
    let locks = table(
        "user_locks",
        &["lock", "type", "process", "caller"],
        &["count", "block"],
        &[(&["0x7f", "lock", "app", "take"], &[100.0, 5.0])],
    );
    let rows = vec![
        charged(IdleReason::UserLock, "spinner", "running", "main;work", 4.0),
        charged(IdleReason::UserLock, "app", "running", "main;work", 2.0),
    ];
    let told = idled_for(&["the machine"], IdleReason::UserLock, rows, vec![locks]);
    let path: Vec<&String> = told.iter().filter(|line| line.contains("CPU-s")).collect();
    assert_eq!(path, ["2.00 CPU-s (33 %) while app was in work"]);
}

#[test]
fn readers_and_writers_of_a_lock_have_callers_of_their_own() {
    let locks = table(
        "locks",
        &["lock", "type", "process"],
        &["count", "spin", "block", "max"],
        &[
            (&["mm_struct.mmap_lock", "rwsem:R", "agent"], &[100.0, 0.0, 3.0, 90.0]),
            (&["mm_struct.mmap_lock", "rwsem:W", "app"], &[500.0, 0.0, 4.0, 90.0]),
        ],
    );
    let callers = table(
        "lock_callers",
        &["lock", "type", "process", "caller", "stack"],
        &["walked", "spin", "block"],
        &[
            (&["mm_struct.mmap_lock", "rwsem:R", "agent", "show_smaps_rollup", ""], &[10.0, 0.0, 0.3]),
            (&["mm_struct.mmap_lock", "rwsem:W", "app", "vm_mmap_pgoff", ""], &[50.0, 0.0, 0.4]),
        ],
    );
    let told = idled_for(&["app"], IdleReason::KernelLock, vec![], vec![locks, callers]);
    assert!(told[0].ends_with("from vm_mmap_pgoff 100 %") && told[0].contains("rwsem:W"), "{told:?}");
    assert!(told[1].ends_with("from show_smaps_rollup 100 %") && told[1].contains("rwsem:R"), "{told:?}");
}

/// The layer of interrupts where these were served in ten seconds: kind, name, count, seconds.
fn interrupted(of: &[(ncpu_schema::InterruptKind, Option<&str>, u64, f64)]) -> Row {
    interrupted_and_entered(of, 0.0)
}

/// The same where `entered` of the time of each passed before its handler.
fn interrupted_and_entered(of: &[(ncpu_schema::InterruptKind, Option<&str>, u64, f64)], entered: f64) -> Row {
    let mut rows = ncpu_schema::interrupts::Rows::new();
    for (kind, name, count, seconds) in of {
        rows.push(ncpu_schema::interrupts::Row {
            time: Some(10.0),
            kind: Some(*kind),
            number: (*kind == ncpu_schema::InterruptKind::Device).then_some(24),
            name: (*name).into(),
            count: Some(*count),
            seconds: Some(*seconds),
            own: Some(0),
            own_seconds: Some(0.0),
            entry_seconds: Some(entered * *seconds),
        });
    }
    let mut cpu_time = cpu_time::Rows::new();
    for cpu in 0..2 {
        let spent = Per::new(|state| Some(if state == CpuState::Hardirq { 0.5 } else { 9.5 / 7.0 }));
        cpu_time.push(cpu_time::Row { time: Some(10.0), cpu: Some(cpu), spent, kernel: None });
    }
    let onion = Onion::peel(&recording().with(cpu_time.finish()).with(rows.finish())).unwrap();
    onion.rows.into_iter().find(|r| r.layer == Layer::Interrupts).unwrap()
}

#[test]
fn interrupts_are_told_by_kind_and_advised_by_what_they_are() {
    use ncpu_schema::InterruptKind::{Device, Reschedule, Softirq, Timer, Tlb};
    let ticks = interrupted(&[
        (Timer, None, 5000, 0.5),
        (Device, Some("virtio0-input.0"), 80, 0.01),
        (Softirq, Some("NET_RX"), 80, 0.02),
        // Of a layer of its own.
        (Tlb, None, 100_000, 3.0),
    ]);
    assert_eq!(
        ticks.lines()[0],
        "timer 500/s of 100 us each (94 %), softirq NET_RX 8/s of 250 us each (4 %), device virtio0-input.0 (interrupt 24) 8/s of 125 us each (2 %)"
    );
    // Of 0.1 s in 5000 interrupts, half.
    let entered =
        interrupted_and_entered(&[(Timer, None, 5000, 0.1), (Softirq, Some("TIMER"), 80, 0.02)], 0.5);
    let line = &entered.lines()[0];
    assert!(line.ends_with("; 10 us of each passes before its handler begins"), "{line}");
    assert!(ticks.remedy().contains("timers (500/s, ticks among them)"), "{}", ticks.remedy());
    for (of, word) in [
        // Queues are worth spreading only where there are interrupts to spread.
        (vec![(Softirq, Some("NET_RX"), 90_000, 0.5), (Device, Some("eth0"), 40_000, 0.2)], "RSS"),
        (
            vec![(Softirq, Some("NET_RX"), 90_000, 0.5), (Device, Some("eth0"), 80, 0.01)],
            "within this machine",
        ),
        (vec![(Reschedule, None, 400_000, 0.5), (Timer, None, 5000, 0.1)], "wake one another"),
        (vec![(Softirq, Some("RCU"), 9000, 0.5)], "RCU"),
        (vec![(Device, Some("nvme0q1"), 40_000, 0.5)], "device nvme0q1 (interrupt 24)"),
    ] {
        let row = interrupted(&of);
        assert!(row.remedy().contains(word), "{word}: {}", row.remedy());
        assert_eq!(row.remedy().contains("RSS"), word == "RSS", "{}", row.remedy());
    }
}

#[test]
fn memory_is_short_where_something_waited_for_it_and_whose_is_told() {
    let evidence = |events: &[(&'static str, f64)], stalled: Option<f64>, refaults: f64| {
        let mut rows = ncpu_schema::memory_events::Rows::new();
        for (event, count) in events {
            rows.push(ncpu_schema::memory_events::Row { event: (*event).into(), count: Some(*count as u64) });
        }
        let mut stalls = ncpu_schema::pressure::Rows::new();
        if let Some(seconds) = stalled {
            stalls.push(ncpu_schema::pressure::Row {
                resource: "memory".into(),
                kind: "some".into(),
                seconds: Some(seconds),
            });
        }
        let met = table(
            "limits_met",
            &["limit", "of", "lift"],
            &["allowed", "used", "refused", "killed", "refaults"],
            &[(
                &["memory.max", "/job", "echo max > /x"],
                &[f64::from(64 << 20), f64::from(63 << 20), 2700.0, 0.0, refaults],
            )],
        );
        let tables = vec![rows.finish(), stalls.finish(), met];
        let told = idled_for(&["app"], IdleReason::Io, vec![], tables);
        told.into_iter().filter(|line| line.contains("short") || line.contains("pieces")).collect::<Vec<_>>()
    };
    // Two dozen pages, and nobody waited: nothing was short.
    let kswapd = [("pgscan_kswapd", 1e6), ("workingset_refault", 40.0)];
    assert!(evidence(&kswapd, Some(0.01), 0.0).is_empty());
    assert!(evidence(&kswapd, None, 0.0).is_empty());
    // A group at its limit: the kernel does not look for the machine's sake.
    let group = [("workingset_refault", 1e6)];
    let told = evidence(&group, Some(0.9), 1e6);
    assert_eq!(
        told,
        [
            "control group /job was short of memory: its memory.max of 64 MiB was reached 2700 times, and 100000 of its pages a \
             second were read again soon after they were dropped"
        ]
    );
    let machine = [("pgscan_direct", 1e6), ("allocstall", 500.0), ("workingset_refault", 1e6)];
    for stalled in [Some(0.9), None] {
        let told = evidence(&machine, stalled, 0.0);
        assert!(
            told.len() == 1 && told[0].starts_with("the machine's memory was short: 500 alloc"),
            "{told:?}"
        );
    }
    let told = evidence(&[("compact_stall", 500.0)], Some(0.0), 0.0);
    assert_eq!(told, ["free memory was in pieces: 500 allocations had to move pages first"]);
}

#[test]
fn more_than_a_limit_allows_is_no_nearly_reached_limit() {
    let met = table(
        "limits_met",
        &["limit", "of", "lift"],
        &["allowed", "used", "refused", "killed"],
        &[
            (&["RLIMIT_NOFILE", "process 7", "prlimit"], &[64.0, 65.0, 0.0, 0.0]),
            (&["RLIMIT_NOFILE", "process 8", "prlimit"], &[64.0, 64.0, 0.0, 0.0]),
        ],
    );
    let notes = Onion::peel(&recording().with(met)).unwrap().notes;
    for told in [
        "limit reached: RLIMIT_NOFILE of process 7: 65 used, 64 allowed since it was lowered; lift it: prlimit",
        "limit reached: RLIMIT_NOFILE of process 8: 64 of 64 used; lift it: prlimit",
    ] {
        assert!(notes.iter().any(|n| n == told), "{told} in {notes:?}");
    }
}

#[test]
fn threads_that_bind_themselves_are_why_cpus_idled() {
    let mut bound = ncpu_schema::bound::Rows::new();
    for time in [5.0, 10.0] {
        bound.push(ncpu_schema::bound::Row {
            time: Some(time),
            process: "app".into(),
            pid: Some(7),
            cpus: "0".into(),
            by: "affinity".into(),
            threads: Some(4),
            queued: Some(6.0),
        });
    }
    let stood =
        events(&[(Counter::RunQueueMicroseconds, 12_500_000), (Counter::WakeUpMicroseconds, 500_000)]);
    let onion = Onion::peel(
        &recording()
            .with(idle_time(|r| if r == IdleReason::RunQueue { 8.0 } else { 0.0 }))
            .with(stood)
            .with(bound.finish()),
    )
    .unwrap();
    let row = onion.rows.iter().find(|r| r.layer == Layer::RunQueue).unwrap();
    assert_eq!(
        row.lines()[..2],
        [
            "1.20 threads queued behind others on average",
            "4 threads of app may use CPUs 0 only (affinity) and stood 12.0 s on run queues; the other CPUs idled 4.0 s meanwhile"
        ]
    );
    assert!(row.remedy().starts_with("let these threads use more CPUs than 0"), "{}", row.remedy());
    assert!(!row.remedy().contains("ncpu place"), "{}", row.remedy());
}

#[test]
fn a_cpu_that_wakes_is_told_apart_from_a_queue() {
    let woke = events(&[(Counter::WakeUpMicroseconds, 2_000_000), (Counter::IdleWakeUps, 400_000)]);
    let times = idle_time(|r| match r {
        IdleReason::WakeUp => 2.0,
        IdleReason::Serial => 6.0,
        _ => 0.0,
    });
    let onion = Onion::peel(&recording().with(times).with(woke)).unwrap();
    let row = onion.rows.iter().find(|r| r.layer == Layer::WakeUp).unwrap();
    assert!((row.seconds - 2.0).abs() < 1e-9 && onion.seconds(Layer::RunQueue) == 0.0);
    assert_eq!(row.lines(), ["idle CPUs woke 40000/s for threads of the program, 5 us each"]);
    assert!(row.remedy().contains("spin briefly before sleeping"), "{}", row.remedy());
}

#[test]
fn a_run_of_milliseconds_gets_no_shares_and_no_advice() {
    let of = |elapsed: f64| {
        let part = elapsed / 10.0;
        let mut cpu_time = cpu_time::Rows::new();
        for cpu in 0..2 {
            let spent = Per::new(|state| {
                Some(match state {
                    CpuState::Spin => 6.0 * part,
                    CpuState::Idle => 4.0 * part,
                    _ => 0.0,
                })
            });
            cpu_time.push(cpu_time::Row { time: Some(elapsed), cpu: Some(cpu), spent, kernel: None });
        }
        let onion = Onion::peel(&recording().with(cpu_time.finish())).unwrap();
        (render(&onion, 100), onion)
    };
    let (text, onion) = of(0.009);
    assert!(!text.contains('%') && !text.contains("->") && !text.contains("gain"), "{text}");
    assert!(text.contains("CPU-milliseconds, of 18.0 on 2 CPUs: kernel lock spin 10.8"), "{text}");
    assert!(text.contains("too short to say what to change: 9 ms"), "{text}");
    assert!(onion.rows.iter().all(|row| row.remedy().is_empty()));
    let (text, onion) = of(10.0);
    assert!(text.contains(" 60.0 %") && text.contains("->") && !onion.short, "{text}");
}

#[test]
fn threads_that_begin_and_end_are_no_processes() {
    let advice = |pids: u64, threads: u64| {
        let mut rows = ncpu_schema::threads::Rows::new();
        for pid in 0..pids {
            for thread in 0..threads {
                rows.push(ncpu_schema::threads::Row {
                    pid: Some(1000 * pid),
                    tid: Some(1000 * pid + thread),
                    process: "app".into(),
                    thread: "app".into(),
                    cpu: Some(0.001),
                    ..Default::default()
                });
            }
        }
        let calls = samples(&[
            (CpuState::Program, SampleClass::Syscall, "clone3", "app", 500),
            (CpuState::Program, SampleClass::Exit, "", "app", 300),
            (CpuState::Program, SampleClass::User, "work", "app", 100),
        ]);
        let onion = Onion::peel(&recording().with(calls).with(rows.finish())).unwrap();
        onion.rows.into_iter().find(|r| r.layer == Layer::Calls).unwrap().remedy()
    };
    assert!(
        advice(1, 900).starts_with("threads start and end at a high rate (clone3)"),
        "{}",
        advice(1, 900)
    );
    assert!(advice(900, 1).starts_with("processes start and end at a high rate (clone3)"));
    // Few threads for all of the time are a pool already.
    assert!(advice(1, 8).starts_with("processes start"));
}
