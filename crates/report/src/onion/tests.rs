use ncpu_record::{Gather, Manifest, Recording};
use ncpu_table::{Builder, Column, Kind, Table, Unit};

use super::{Layer, Onion, render};

fn samples() -> Builder {
    let columns = ["at", "class", "detail", "process"].map(|name| Column::text(name, ""));
    Table::builder("samples", &[&columns[..], &[Column::count("samples", "")]].concat())
}

/// Two CPUs for ten seconds: 4 CPU-s spinning, 6 on CPU, 8 idle, 2 of other programs.
fn recording() -> Recording {
    let places = ["idle", "target", "other", "ncpu", "spin", "hardirq", "softirq", "tlb"];
    let mut columns = vec![Column::float("t", Unit::Seconds, Kind::Key, ""), Column::id("CPU", "")];
    columns.extend(places.iter().map(|p| Column::float(p, Unit::CpuSeconds, Kind::Time, "")));
    let mut cpu_time = Table::builder("cpu_time", &columns);
    for cpu in 0..2 {
        let mut row = cpu_time.row().float(10.0).int(cpu);
        for s in [4.0, 3.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0] {
            row = row.float(s);
        }
    }
    let why = ["runq", "klock", "ulock", "io", "serial", "asleep"];
    let mut columns = vec![Column::float("t", Unit::Seconds, Kind::Key, "")];
    columns.extend(why.iter().map(|p| Column::float(p, Unit::CpuSeconds, Kind::Time, "")));
    let mut idle_time = Table::builder("idle_time", &columns);
    // The leader's timer saw half of the idle time; its proportions count.
    let mut row = idle_time.row().float(10.0);
    for s in [0.0, 0.0, 1.0, 0.0, 3.0, 0.0] {
        row = row.float(s);
    }
    let _ = row;
    let mut samples = samples();
    samples.row().text("target").text("user").text("work").text("db").int(300);
    samples.row().text("target").text("syscall").text("dup2").text("db").int(200);
    samples.row().text("target").text("zeroing").text("clear_page_erms").text("db").int(100);
    samples.row().text("spin").text("lock spin").text("native_queued_spin_lock_slowpath").text("db").int(400);
    let mut locks = Table::builder(
        "locks",
        &[
            Column::text("lock", ""),
            Column::text("type", ""),
            Column::text("process", ""),
            Column::count("count", ""),
            Column::float("spin", Unit::Seconds, Kind::Time, ""),
            Column::float("block", Unit::Seconds, Kind::Time, ""),
            Column::float("max", Unit::Microseconds, Kind::Peak, ""),
        ],
    );
    locks
        .row()
        .text("files_struct.file_lock")
        .text("spinlock")
        .text("db")
        .int(4_000_000)
        .float(4.0)
        .float(0.0)
        .float(90.0);
    let mut gather = Gather::new(Manifest::new(2, vec!["db".into(), "-x".into()], 1.0));
    for table in [cpu_time.finish(), idle_time.finish(), samples.finish(), locks.finish()] {
        gather.append(&table).unwrap();
    }
    gather.finish().unwrap()
}

/// 6 CPU-seconds of idle time while the program's threads were runnable, and a cgroup's limit behind it.
fn throttled(idle: [f64; 6]) -> Onion {
    let mut recording = recording();
    let why = ["runq", "klock", "ulock", "io", "serial", "asleep"];
    let columns: Vec<_> = why.iter().map(|p| Column::float(p, Unit::CpuSeconds, Kind::Time, "")).collect();
    let mut times = Table::builder("idle_time", &columns);
    let mut row = times.row();
    for s in idle {
        row = row.float(s);
    }
    let _ = row;
    let mut limits = Table::builder(
        "throttling",
        &[
            Column::float("t", Unit::Seconds, Kind::Key, ""),
            Column::text("cgroup", ""),
            Column::text("limit", ""),
            Column::text("lift", ""),
            Column::float("allowed", Unit::None, Kind::Gauge, ""),
            Column::count("periods", ""),
            Column::count("throttled", ""),
            Column::float("held", Unit::CpuSeconds, Kind::Time, ""),
        ],
    );
    for t in [5.0, 10.0] {
        let row = limits.row().float(t).text("/job").text("cpu.max").text("echo max > /job/cpu.max");
        row.float(1.5).int(50).int(40).float(3.0);
        limits
            .row()
            .float(t)
            .text("/")
            .text("cpu.max")
            .text("echo max > /cpu.max")
            .null()
            .int(50)
            .int(1)
            .float(0.1);
    }
    recording.tables.insert("idle_time".into(), times.finish());
    recording.tables.insert("throttling".into(), limits.finish());
    Onion::peel(&recording).unwrap()
}

#[test]
fn a_cgroups_limit_is_named_where_it_kept_threads_waiting() {
    let onion = throttled([6.0, 0.0, 0.0, 0.0, 0.0, 2.0]);
    let row = onion.rows.iter().find(|r| r.layer == Layer::RunQueue).unwrap();
    assert_eq!(
        row.evidence[0],
        "throttled by cpu.max of /job (1.5 CPUs): 6.000 CPU-s held back, in 80 of 100 periods"
    );
    assert!(row.advice.starts_with("cpu.max of /job keeps CPUs idle: raise or lift it (echo max > /job/cpu.max), or run no more threads than the 2 it lets run"), "{}", row.advice);
    assert!(!onion.notes.iter().any(|n| n.contains("throttled")), "said once: {:?}", onion.notes);
    // Where no CPU was idle for it, no layer can tell.
    let onion = throttled([0.0, 0.0, 0.0, 0.0, 0.0, 8.0]);
    let notes: Vec<_> = onion.notes.iter().filter(|n| n.contains("throttled by cpu.max")).collect();
    assert_eq!(notes.len(), 1, "{:?}", onion.notes);
    assert!(notes[0].ends_with("lift it: echo max > /job/cpu.max"), "{notes:?}");
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
        spin.evidence[0]
            .starts_with("files_struct.file_lock (spinlock) 100 %: 4000000 waits, 1.0 us spin each"),
        "{:?}",
        spin.evidence
    );
    assert!(spin.advice.contains("descriptor table"), "{}", spin.advice);
}

#[test]
fn a_recording_of_something_else_is_told() {
    let empty = Gather::new(Manifest::new(2, Vec::new(), 1.0)).finish().unwrap();
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
    let r = recording();
    let mut gather = Gather::new(Manifest::new(2, vec!["db".into()], 1.0));
    for name in ["cpu_time", "idle_time"] {
        gather.append(&r.tables[name]).unwrap();
    }
    let mut samples = samples();
    for (class, detail, n) in [
        ("user", "work", 300),
        ("tlb wait", "munmap (tlb_finish_mmu)", 200),
        ("tlb", "munmap (tlb_finish_mmu)", 60),
        ("tlb", "fault (do_wp_page)", 40),
    ] {
        samples.row().text("target").text(class).text(detail).text("db").int(n);
    }
    let mut counters = Table::builder("counters", &[Column::text("event", ""), Column::count("count", "")]);
    counters.row().text("TLB shootdowns sent").int(1000);
    counters.row().text("TLB shootdowns received").int(1500);
    gather.append(&samples.finish()).unwrap();
    gather.append(&counters.finish()).unwrap();
    let onion = Onion::peel(&gather.finish().unwrap()).unwrap();
    let sum: f64 = onion.rows.iter().map(|r| r.seconds).sum();
    assert!((sum - onion.capacity).abs() < 1e-9, "waiting for shootdowns is in one layer only");
    let row = onion.rows.iter().find(|r| r.layer == Layer::Tlb).unwrap();
    assert_eq!(row.seconds, 3.0);
    let evidence = row.evidence.join("; ");
    for part in [
        "100/s sent, 150/s received: 1.5 CPUs",
        "sending and waiting 2.000 CPU-s",
        "of their flushes 1.000",
        "sent by db 100 %; for munmap (tlb_finish_mmu) 87 %, fault (do_wp_page) 13 %",
    ] {
        assert!(evidence.contains(part), "{part} in {evidence}");
    }
    assert!(row.advice.contains("MALLOC_TRIM_THRESHOLD_"), "{}", row.advice);
}

#[test]
fn what_the_hardware_counted_is_told_of_user_code() {
    let mut recording = recording();
    let columns = [
        Column::id("CPU", ""),
        Column::text("event", ""),
        Column::float("count", Unit::None, Kind::Count, ""),
    ];
    let mut counts = Table::builder("hardware", &columns);
    for cpu in 0..2 {
        counts.row().int(cpu).text("cycles:u").float(1000.0);
        counts.row().int(cpu).text("instructions:u").float(800.0);
        counts.row().int(cpu).text("dtlb_load_misses.walk_active:u").float(100.0);
        counts.row().int(cpu).text("itlb_misses.walk_active:u").float(25.0);
        // Had no counter on CPU 1: not known.
        counts.row().int(cpu).text("LLC-load-misses:u").float_opt((cpu == 0).then_some(4.0));
    }
    recording.tables.insert("hardware".into(), counts.finish());
    let said = |recording: &Recording| {
        let onion = Onion::peel(recording).unwrap();
        let user = onion.rows.iter().find(|r| r.layer == Layer::User).unwrap();
        user.evidence.iter().find(|e| e.contains("a cycle")).cloned()
    };
    assert_eq!(
        said(&recording).as_deref(),
        Some("user code of all programs: 0.80 instructions a cycle, 12.5 % of cycles in page walks")
    );
    recording.tables.remove("hardware");
    assert_eq!(said(&recording), None);
}

fn texts_then_ints(name: &str, texts: &[&str], ints: &[&str]) -> ncpu_table::Builder {
    let columns: Vec<Column> =
        texts.iter().map(|n| Column::text(n, "")).chain(ints.iter().map(|n| Column::count(n, ""))).collect();
    Table::builder(name, &columns)
}

#[test]
fn who_sleeps_with_a_timeout_is_named_and_advised() {
    let mut recording = recording();
    let columns = [
        Column::text("call", ""),
        Column::text("process", ""),
        Column::count("count", ""),
        Column::float("asked", Unit::Seconds, Kind::Time, ""),
        Column::float("slept", Unit::Seconds, Kind::Time, ""),
        Column::count("threads", ""),
    ];
    let mut sleepers = Table::builder("sleepers", &columns);
    sleepers.row().text("poll").text("herd").int(90_000).float(900.0).float(909.0).int(60);
    sleepers.row().text("poll").text("herd").int(10_000).float(100.0).float(101.0).int(40);
    sleepers.row().text("nanosleep").text("cron").int(5).float(50.0).float(50.0).int(1);
    recording.tables.insert("sleepers".into(), sleepers.finish());
    let mut counters = texts_then_ints("counters", &["event"], &["count"]);
    counters.row().text("context switches").int(210_000);
    recording.tables.insert("counters".into(), counters.finish());
    let onion = Onion::peel(&recording).unwrap();
    let serial = onion.rows.iter().find(|r| r.layer == Layer::Serial).unwrap();
    let told =
        "100 threads of herd asleep in poll: 10000 sleeps/s, 10.0 ms asked for, 10.1 ms slept on average";
    assert!(serial.evidence.iter().any(|e| e == told), "{:?}", serial.evidence);
    assert!(!serial.evidence.iter().any(|e| e.contains("cron")), "{:?}", serial.evidence);
    let context = super::evidence::Context { recording: &recording, elapsed: 10.0, cpus: 2, capacity: 20.0 };
    assert!(super::advice::of(Layer::Switches, &context).contains("wait in poll for the event itself"));
    assert!(super::evidence::of(Layer::Switches, &context).contains(&told.to_string()));
}

#[test]
fn limits_that_were_met_are_told_with_their_remedy() {
    let mut recording = recording();
    let mut met =
        texts_then_ints("limits_met", &["limit", "of", "lift"], &["allowed", "used", "refused", "killed"]);
    met.row().text("pids.max").text("/job").text("echo max > /x").int(20).int(20).int(7).int(0);
    met.row().text("memory.max").text("/job").text("echo max > /y").int(64 << 20).int(63 << 20).int(9).int(1);
    met.row().text("RLIMIT_NOFILE").text("process 7").text("prlimit").int(1024).int(1000).int(0).int(0);
    recording.tables.insert("limits_met".into(), met.finish());
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
    let mut recording = recording();
    let table = |grown: u64, stalls: u64, seconds: f64| {
        let mut memory = texts_then_ints("memory_change", &["class"], &["before", "most", "after"]);
        memory.row().text("AnonPages").int(100 << 20).int((100 << 20) + grown).int(90 << 20);
        memory.row().text("Slab").int(100 << 20).int(90 << 20).int(90 << 20);
        let mut events = texts_then_ints("memory_events", &["event"], &["count"]);
        events.row().text("allocstall").int(stalls);
        events.row().text("thp_fault_alloc").int(12);
        let columns = [
            Column::text("resource", ""),
            Column::text("kind", ""),
            Column::float("seconds", Unit::Seconds, Kind::Time, ""),
        ];
        let mut pressure = Table::builder("pressure", &columns);
        pressure.row().text("memory").text("some").float(seconds);
        pressure.row().text("memory").text("full").float(0.0);
        [memory.finish(), events.finish(), pressure.finish()]
    };
    let mut said = |tables: [Table; 3]| {
        tables.into_iter().for_each(|t| drop(recording.tables.insert(t.name().to_owned(), t)));
        let onion = Onion::peel(&recording).unwrap();
        onion.rows.iter().find(|r| r.layer == Layer::Faults).unwrap().evidence.join("|")
    };
    let loud = said(table(512 << 20, 33, 2.5));
    for told in [
        "the machine's memory grew by up to: anonymous memory 512 MiB; 12 huge pages given out",
        "the machine's memory was short: 33 allocations had to free memory first",
        "some task stood still for memory in 25 % of the time",
    ] {
        assert!(loud.contains(told), "{told} in {loud}");
    }
    let quiet = said(table(1 << 20, 0, 0.01));
    assert!(!quiet.contains("memory"), "{quiet}");
}
