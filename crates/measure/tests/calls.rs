//! The cases of docs/calls.md and the surveys, each run for real with tiny batches.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ncpu_machine::Topology;
use ncpu_measure::surveys::{self, Report, Request};
use ncpu_measure::{Failure, Options, Outcome, Plan, cases, runner};

fn machine() -> Topology {
    Topology::read("/".as_ref()).unwrap()
}

fn quick(threads: usize, processes: usize) -> Plan {
    let duration = Duration::from_millis(20);
    Plan { threads, processes, min_samples: 3, duration, precision: 1.0, ..Plan::default() }
}

fn run(name: &str, words: &[&str], plan: &Plan) -> Result<Outcome, Failure> {
    let case = cases::find(name).unwrap_or_else(|| panic!("unknown case {name}"));
    let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
    runner::run(case, &words, plan, &machine(), &AtomicBool::new(false))
}

fn figure(o: &Outcome, name: &str) -> Option<f64> {
    o.figures.iter().find(|(n, _)| n == name).map(|(_, x)| *x)
}

/// One at a time: the runner forks, and each run disturbs the others.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn one() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

#[test]
fn every_case_runs_with_threads_and_with_processes() {
    let _one = one();
    let names = [
        "dup2_close",
        "mmap_munmap",
        "poll_9ms",
        "poll_10ms",
        "poll_11ms",
        "accept",
        "accept_poll",
        "accept_epoll",
        "accept_exclusive",
        "accept_reuseport",
        "copy_memcpy",
        "copy_movsb",
        "copy_stream",
        "copy_loop",
        "fault_4k",
        "fault_thp",
        "fault_hugetlb",
        "switch_pipe",
        "switch_futex",
        "futex_wake_none",
        "futex_wake",
        "lock_std",
        "lock_parking_lot",
        "lock_pthread",
        "lock_adaptive",
        "counter_atomic",
        "counter_sharded",
        "counter_thread",
        "counter_mutex",
        "alloc_pair",
        "alloc_mixed",
        "alloc_handoff",
    ];
    for name in names {
        for (threads, processes) in [(3, 1), (1, 2)] {
            let plan = Plan { batch: Some(3), ..quick(threads, processes) };
            match run(name, &[], &plan) {
                Ok(o) => {
                    assert!(!o.samples.is_empty(), "{name}");
                    assert_eq!(o.errors(), 0, "{name}");
                    assert!(o.summary().median > 0.0, "{name}");
                    // Lost updates of locks and counters would have a figure.
                    assert_eq!(figure(&o, "lost"), None, "{name}");
                }
                Err(Failure::Lacks(why)) => eprintln!("{name}: {why}"),
                Err(e) => panic!("{name}: {e}"),
            }
        }
    }
}

#[test]
fn shared_memory_tells_its_parts() {
    let _one = one();
    for name in ["shm_sysv", "shm_posix", "shm_memfd", "shm_hugetlb"] {
        match run(name, &["-s", "2m"], &quick(2, 1)) {
            Ok(o) => {
                assert_eq!(o.errors(), 0);
                let of = |n: &str| figure(&o, n).unwrap();
                let parts = of("create") + of("lock") + of("destroy");
                assert!(
                    (parts - of("ms/GB")).abs() < 1e-6 * parts && of("lock") > 0.0,
                    "{name}: {:?}",
                    o.figures
                );
            }
            Err(Failure::Lacks(why)) => eprintln!("{name}: {why}"),
            Err(e) => panic!("{name}: {e}"),
        }
    }
    let e = run("shm_memfd", &["-s", "1000t"], &quick(1, 1)).unwrap_err().to_string();
    assert!(e.contains("are wanted, and"), "{e}");
}

#[test]
fn connections_are_counted_by_who_accepts_them() {
    let _one = one();
    for name in ["accept", "accept_reuseport", "accept_exclusive"] {
        let o = run(name, &["-w", "2", "-u", "1000"], &Plan { batch: Some(50), ..quick(2, 1) }).unwrap();
        let of = |n: &str| figure(&o, n).unwrap();
        assert!(
            (0.5..=1.0).contains(&of("evenness")) && (0.5..=1.0).contains(&of("most to one")),
            "{:?}",
            o.figures
        );
        assert!(of("returns/conn") >= 1.0 && of("wakeups/conn") > 0.0, "{:?}", o.figures);
    }
    // One process has all, which is as even as can be.
    let o = run("accept_epoll", &["-w", "1"], &Plan { batch: Some(20), ..quick(1, 1) }).unwrap();
    assert_eq!((figure(&o, "evenness"), figure(&o, "most to one")), (Some(1.0), Some(1.0)));
}

#[test]
fn a_timeout_is_never_early_and_a_page_is_one_fault() {
    let _one = one();
    let o = run("poll_11ms", &["-t", "2"], &quick(2, 1)).unwrap();
    assert_eq!(figure(&o, "early"), Some(0.0));
    assert!(o.summary().min >= 2e6);
    let o = run("fault_4k", &[], &Plan { batch: Some(500), ..quick(1, 1) }).unwrap();
    let faults = figure(&o, "faults a page").unwrap();
    assert!((1.0..1.2).contains(&faults), "{faults}");
}

#[test]
fn an_environment_that_is_written_harms_nobody_else() {
    let _one = one();
    let o = run("getenv_writers", &["-w", "0"], &quick(2, 1)).unwrap();
    assert_eq!(figure(&o, "missed a million"), Some(0.0));
    // With writers glibc may answer wrongly, or die, which ends that run alone.
    match run("getenv_writers", &["-w", "2"], &quick(2, 1)) {
        Ok(o) => assert!(figure(&o, "missed a million").is_some()),
        Err(e) => assert!(e.to_string().contains("signal"), "{e}"),
    }
}

#[test]
fn wrong_options_are_told() {
    let _one = one();
    for (name, words, says) in [
        ("lock_std", &["-c", "long"][..], "-c long: not a number"),
        ("fault_hugetlb", &["-s", "4k"], "give 2m or 1g"),
        ("alloc_pair", &["-l", "libnosuch.so"], "libnosuch.so"),
        ("copy_memcpy", &["-s", "1000t"], "are wanted, and"),
    ] {
        let e = run(name, words, &quick(1, 1)).unwrap_err().to_string();
        assert!(e.contains(says), "{name}: {e}");
    }
}

fn survey(name: &str, words: &[&str], plan: &Plan) -> Result<Report, Failure> {
    let survey = surveys::find(name).unwrap_or_else(|| panic!("unknown survey {name}"));
    let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
    let options = Options::parse(survey.flags, &words)?;
    let (machine, stop) = (machine(), AtomicBool::new(false));
    let request = Request { options: &options, plan, machine: &machine, stop: &stop, progress: &|_| () };
    (survey.run)(&request)
}

#[test]
fn sweeps_fill_their_tables() {
    let _one = one();
    for (name, words, rows, columns) in [
        ("block-copy", &["-s", "64,1k", "-a", "0/0,1/3"][..], 16, 6),
        ("page-faults", &["-t", "1"], 3, 4),
        ("locks", &["-t", "1,2", "-c", "0/0,100/50"], 16, 7),
        ("counters", &["-t", "1,2"], 8, 5),
        ("allocators", &["-t", "2"], 3, 4),
    ] {
        let report = survey(name, words, &Plan { min_samples: 2, ..quick(1, 1) }).unwrap();
        assert!(report.failed.is_empty(), "{name}: {:?}", report.failed);
        assert_eq!(report.tables[0].num_rows(), rows, "{name}");
        let wide = &report.wide[0].1;
        assert_eq!(wide.columns().len(), columns, "{name}");
        for row in 0..wide.num_rows() {
            // The first case is on every machine.
            let first = wide.columns().iter().position(|c| c.ty == ncpu_table::Type::Float).unwrap();
            assert!(wide.number(row, &wide.columns()[first].name).unwrap() > 0.0, "{name}");
        }
    }
}

#[test]
fn stream_validates_with_any_number_of_threads() {
    let _one = one();
    for threads in [1, 3] {
        let report = survey("stream", &["-s", "1000", "-n", "4"], &quick(threads, 1)).unwrap();
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        assert!(report.notes[0].starts_with("Solution Validates"), "{:?}", report.notes);
        assert_eq!(report.tables[0].num_rows(), 4);
        assert_eq!(report.tables[0].int(3, "elements"), Some(1000));
    }
    let e = survey("stream", &["-s", "1000t"], &quick(1, 1)).unwrap_err().to_string();
    assert!(e.contains("3 arrays of") && e.contains("are wanted, and"), "{e}");
    assert!(survey("stream", &["-s", "2"], &quick(3, 1)).is_err());
}

#[test]
fn the_matrix_has_a_cell_for_each_two_nodes() {
    let _one = one();
    let report = survey("matrix", &["-p", "64", "-l", "1"], &quick(1, 1)).unwrap();
    let nodes = machine().nodes.len();
    assert!(nodes == 0 || report.tables[0].num_rows() >= nodes);
    assert!(report.tables[0].number(0, "latency").unwrap() > 0.0);
    assert!(report.tables[0].number(0, "MB/s").unwrap() > 0.0);
    assert!(report.notes.iter().any(|n| n.contains("give more PAGES")), "{:?}", report.notes);
}

#[test]
fn cores_talk_to_each_other() {
    let _one = one();
    match survey("core-to-core", &["-n", "3", "-r", "20"], &quick(1, 1)) {
        Ok(report) => {
            let t = &report.tables[0];
            let cpus = machine().online.and(&machine().allowed).len();
            assert_eq!(t.num_rows(), cpus * (cpus - 1));
            assert!((0..t.num_rows()).all(|row| t.number(row, "latency").unwrap() > 0.0));
        }
        Err(Failure::Lacks(why)) => eprintln!("skipped: {why}"),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn logical_reads_are_those_the_engine_counts() {
    let _one = one();
    let report = match survey("logical-reads", &["-n", "1,2", "-d", "1", "-s", "2m"], &quick(1, 1)) {
        Ok(report) => report,
        Err(Failure::Lacks(why)) => return eprintln!("skipped: {why}"),
        Err(e) => panic!("{e}"),
    };
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    let t = &report.tables[0];
    // Of two engines with two counts of sessions each, those that are here.
    let lacking: Vec<&String> = report.notes.iter().filter(|n| n.starts_with("skipped")).collect();
    lacking.iter().for_each(|why| eprintln!("{why}"));
    assert!(
        lacking.len() < 2 && t.num_rows() == 2 * (2 - lacking.len()),
        "{} rows: {:?}",
        t.num_rows(),
        report.notes
    );
    // Nothing that would make the counts doubtful was noted.
    assert!(!report.notes.iter().any(|n| n.contains("by EXPLAIN")), "{:?}", report.notes);
    for row in 0..t.num_rows() {
        let of = |name: &str| t.number(row, name).unwrap();
        // A thousand rows, each a descent of an index and a page of the table at least.
        assert!(of("reads/query") > 2000.0 && of("queries") > 0.0, "row {row}");
        assert!(of("reads/cpu-s") > 0.0 && of("cpus") > 0.0, "row {row}");
        assert_eq!(of("misses"), 0.0, "row {row}");
    }
}

#[test]
fn logical_reads_refuses_what_cannot_be() {
    let _one = one();
    for (words, says) in [
        (&["-e", "oracle"][..], "give postgres, sqlite"),
        (&["-n", "0"], "above 0"),
        (&["-s", "1k"], "give at least"),
        (&["-e", "sqlite", "-s", "200g", "-n", "5000"], "are wanted, and"),
        (&["-e", "postgres", "-s", "200g"], "are wanted, and"),
    ] {
        let e = survey("logical-reads", words, &quick(1, 1)).unwrap_err().to_string();
        assert!(e.contains(says) || e.contains("is not here"), "{words:?}: {e}");
    }
}
