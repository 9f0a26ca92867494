use ncpu_record::{Manifest, Recording};
use ncpu_schema::{Layer, Purpose};
use ncpu_table::Table;

use super::{Findings, render, why_cause, why_layer};
use crate::fixtures::table;
use crate::onion::Onion;

/// Two CPUs for ten seconds, of which the program ran 16 CPU-seconds, and other programs and idle CPUs had the rest.
fn recording(others: f64, tables: Vec<Table>) -> Recording {
    observed(8.0, others, tables)
}

/// The same, of which the program ran `ran` seconds on each CPU.
fn observed(ran: f64, others: f64, tables: Vec<Table>) -> Recording {
    let mut manifest = Manifest::new(Purpose::Run, 2, vec!["./stamps".into(), "4".into()], 1.0);
    manifest.complete = true;
    let of_cpu = |cpu: f64| [10.0, cpu, ran, others, 10.0 - ran - others];
    let cpus = table(
        "cpu_time",
        &[],
        &["t", "CPU", "target", "other", "idle"],
        &[(&[], &of_cpu(0.0)), (&[], &of_cpu(1.0))],
    );
    let idle = table("idle_time", &[], &["t", "asleep"], &[(&[], &[10.0, 20.0 - 2.0 * (ran + others)])]);
    tables.into_iter().chain([cpus, idle]).fold(Recording::new(manifest), Recording::with)
}

/// A stack on CPU: class and frames, outermost first; samples.
fn stacks(of: &[(&str, &str, f64)]) -> Vec<Table> {
    let process = "stamps";
    let texts: Vec<[&str; 6]> =
        of.iter().map(|(class, stack, _)| ["on-cpu", "target", class, process, process, stack]).collect();
    let counts: Vec<[f64; 1]> = of.iter().map(|(.., n)| [*n]).collect();
    let rows: Vec<(&[&str], &[f64])> = texts.iter().zip(&counts).map(|(t, n)| (&t[..], &n[..])).collect();
    let words: Vec<[&str; 4]> = of.iter().map(|(class, ..)| ["target", class, "x", process]).collect();
    let samples: Vec<(&[&str], &[f64])> = words.iter().zip(&counts).map(|(t, n)| (&t[..], &n[..])).collect();
    vec![
        table("stacks", &["kind", "at", "class", "process", "thread", "stack"], &["samples"], &rows),
        table("samples", &["at", "class", "detail", "process"], &["samples"], &samples),
    ]
}

fn lock(waits: f64, block: f64) -> Table {
    table(
        "user_locks",
        &["lock", "type", "process", "caller", "stack"],
        &["count", "block"],
        &[(
            &[
                "table_lock",
                "lock",
                "stamps",
                "insert",
                "__lll_lock_wait;pthread_mutex_lock;insert;handle;start_thread",
            ],
            &[waits, block],
        )],
    )
}

/// A program whose lock costs calls, its own functions and nothing else: 8 of 16 CPU-seconds.
fn contended() -> Recording {
    let mut tables = stacks(&[
        ("user", "stamps;start_thread;handle;insert;update", 800.0),
        ("user", "stamps;start_thread;handle;insert;pthread_mutex_lock", 200.0),
        (
            "syscall",
            "stamps;start_thread;handle;insert;pthread_mutex_lock;__lll_lock_wait;do_syscall_64_[k];__x64_sys_futex_[k]",
            500.0,
        ),
        // Given back by a function that waits for no lock.
        (
            "syscall",
            "stamps;start_thread;handle;finish;pthread_mutex_unlock;do_syscall_64_[k];do_futex_[k]",
            100.0,
        ),
        ("syscall", "stamps;start_thread;log;write;do_syscall_64_[k];__x64_sys_write_[k]", 0.0),
    ]);
    tables.push(lock(1000.0, 5.0));
    recording(0.0, tables)
}

fn text(recording: &Recording) -> String {
    render(&Onion::peel(recording).unwrap(), &Findings::of(recording).unwrap(), 80)
}

#[test]
fn a_lock_has_its_calls_and_instructions_from_all_layers() {
    let findings = Findings::of(&contended()).unwrap();
    let found = &findings.list[0];
    assert_eq!((&*found.id, findings.list.len()), ("contended-lock", 1));
    // 16 CPU-s are 1600 samples; 800 of them are the lock's.
    assert!((found.seconds - 8.0).abs() < 1e-9, "{found:?}");
    let of = |layer| found.parts.iter().filter(|p| p.layer == layer).map(|p| p.seconds).sum::<f64>();
    assert!((of(Layer::Calls) - 6.0).abs() < 1e-9 && (of(Layer::User) - 2.0).abs() < 1e-9, "{found:?}");
    // Code that is run with the lock is in the upper end of the gain alone.
    assert!(found.gain.0 < 1.7 && found.gain.1 > 3.0, "{:?}", found.gain);
    assert!((findings.left(Layer::Calls)).abs() < 1e-9 && (findings.left(Layer::User) - 8.0).abs() < 1e-9);
    assert_eq!(findings.of_layer(Layer::Calls), [(1, 6.0)]);
}

#[test]
fn three_lines_have_the_answer() {
    let text = text(&contended());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("./stamps 4 · 10.0 s · 2 CPUs · 20.0 CPU-s of capacity"), "{text}");
    assert_eq!(lines[1], "One lock takes 40 % of the machine: table_lock, taken in handle → insert.");
    assert!(text.contains("\n1 lock table_lock ") && text.contains("\n    do        do less with"), "{text}");
    assert!(text.contains("system calls               30 %  ████          → 1\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_gain_has_an_upper_end_where_that_says_something() {
    let gains = [(1.4, 1.8), (1.21, 1.24), (1.1, 50.0), (12.0, 14.0)].map(super::gain);
    assert_eq!(gains, ["x1.4–1.8", "x1.2", "x1.1 or more", "x12–14"]);
}

#[test]
fn useful_work_is_no_cause_whatever_its_name() {
    let recording =
        recording(0.0, stacks(&[("user", "stamps;start_thread;work;update_stats_locked", 1600.0)]));
    assert!(Findings::of(&recording).unwrap().list.is_empty());
    let text = text(&recording);
    assert!(
        text.contains("\nNothing stands out: 80 % of the capacity is the program's own work (stamps).\n"),
        "{text}"
    );
}

#[test]
fn a_lock_costs_time_where_others_have_the_cpus() {
    let of = |others| {
        let mut tables = stacks(&[("user", "stamps;start_thread;handle;work", 1600.0)]);
        tables.push(lock(100.0, 6.0));
        Findings::of(&recording(others, tables)).unwrap()
    };
    assert!(of(2.0).list[0].sentence.starts_with("Threads wait 6.00 thread-seconds in 10.0 s for one lock"));
    assert!(of(0.0).list.is_empty(), "CPUs idled, and not for the lock");
}

#[test]
fn a_thread_that_starves_is_seen_where_all_cpus_do_useful_work() {
    let of = |ran, waited| {
        let mut tables = stacks(&[("user", "stamps;start_thread;handle;work", 1600.0)]);
        tables.push(lock(3.0, waited));
        Findings::of(&observed(ran, 0.0, tables)).unwrap()
    };
    let found = of(10.0, 6.0);
    let sentence = "Threads wait 6.00 thread-seconds in 10.0 s for one lock: table_lock. Other threads keep the CPUs busy";
    assert!(found.list[0].sentence.starts_with(sentence), "{:?}", found.list);
    assert!(of(10.0, 2.0).list.is_empty(), "a fifth of the time is not much");
    assert!(of(7.0, 6.0).list.is_empty(), "CPUs idled, and not for the lock");
}

#[test]
fn a_lock_that_hardly_anybody_waited_for_has_no_instructions() {
    let mut tables = stacks(&[
        ("user", "stamps;start_thread;handle;insert;pthread_mutex_lock", 200.0),
        ("user", "stamps;start_thread;handle;insert;update", 1400.0),
    ]);
    tables.push(lock(35.0, 0.007));
    let found = Findings::of(&recording(0.0, tables)).unwrap();
    assert!(found.list.iter().all(|found| found.kind != super::Kind::Lock), "{:?}", found.list);
}

#[test]
fn results_tell_which_calls_are_in_vain() {
    let of = |results: &[(&[&str], &[f64])]| {
        let mut tables = stacks(&[
            (
                "syscall",
                "stamps;start_thread;take;__libc_recv;do_syscall_64_[k];__x64_sys_recvfrom_[k]",
                300.0,
            ),
            ("syscall", "stamps;start_thread;take;__libc_recv;entry_SYSCALL_64_[k]", 300.0),
            ("user", "stamps;start_thread;take", 1000.0),
        ]);
        tables.push(table(
            "call_results",
            &["process", "function", "descriptor", "error"],
            &["samples", "returned"],
            results,
        ));
        Findings::of(&recording(0.0, tables)).unwrap().list.remove(0)
    };
    let none: &[&str] = &["stamps", "__libc_recv", "socket", "EAGAIN"];
    let some: &[&str] = &["stamps", "__libc_recv", "socket", ""];
    let found = of(&[(none, &[40.0, 0.0]), (some, &[10.0, 80.0])]);
    assert_eq!(found.id, "asked-again");
    assert!(found.lines.iter().any(|line| (line.label, &*line.text) == ("on", "socket")), "{found:?}");
    let found = of(&[(none, &[10.0, 0.0]), (some, &[40.0, 320.0])]);
    assert_eq!(found.id, "small-writes-and-reads");
    assert!(found.lines.iter().any(|line| line.text == "8 bytes a call"), "{found:?}");
    assert_eq!(of(&[(none, &[5.0, 0.0])]).id, "small-writes-and-reads", "five results say nothing");
}

#[test]
fn why_shows_stacks_and_what_was_ruled_out() {
    let recording = contended();
    let (onion, findings) = (Onion::peel(&recording).unwrap(), Findings::of(&recording).unwrap());
    let cause = why_cause(&findings, &onion, 1, 100).unwrap();
    let words = cause.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("__lll_lock_wait ← pthread_mutex_lock ← insert ← handle"), "{cause}");
    assert!(
        cause.contains("ruled out") && words.contains("a more particular cause has all but 0.00"),
        "{cause}"
    );
    assert!(why_cause(&findings, &onion, 0, 100).is_none() && why_cause(&findings, &onion, 2, 100).is_none());
    let layer = why_layer(&findings, &onion, Layer::Calls, 100).unwrap();
    assert!(layer.contains("6.00 CPU-s → 1 lock table_lock"), "{layer}");
    assert!(why_layer(&findings, &onion, Layer::Steal, 100).is_none());
}

#[test]
fn layers_name_their_causes_for_programs() {
    let recording = contended();
    let table = Findings::of(&recording).unwrap().layers(&Onion::peel(&recording).unwrap());
    let row = (0..table.num_rows()).find(|&r| table.text(r, "layer") == Some("system calls")).unwrap();
    let causes: serde_json::Value = serde_json::from_str(table.text(row, "causes").unwrap()).unwrap();
    assert_eq!((&causes[0]["number"], &causes[0]["cause"]), (&1.into(), &"contended-lock".into()));
}
