use ncpu_record::{Manifest, Recording};
use ncpu_schema::{Layer, Purpose};
use ncpu_table::Table;

use super::{Findings, render, why_cause, why_layer};
use crate::fixtures::table;
use crate::onion::Onion;

/// Two CPUs for ten seconds, of which the program ran 16 CPU-seconds, and other programs and idle CPUs had the rest.
pub(super) fn recording(others: f64, tables: Vec<Table>) -> Recording {
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
pub(super) fn stacks(of: &[(&str, &str, f64)]) -> Vec<Table> {
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
fn a_holder_that_sleeps_is_said_to() {
    let path = |rows: &[([&str; 6], f64)]| {
        let rows: Vec<([&str; 6], [f64; 3])> =
            rows.iter().map(|(texts, n)| (*texts, [*n, *n, 9.0])).collect();
        let rows: Vec<(&[&str], &[f64])> = rows.iter().map(|(t, n)| (&t[..], &n[..])).collect();
        let keys = ["reason", "process", "thread", "doing", "code", "stack"];
        let idle = table("idle_time", &[], &["t", "ulock"], &[(&[], &[10.0, 3.0])]);
        let path = table("critical_path", &keys, &["idle", "seconds", "count"], &rows);
        let recording = contended().with(idle).with(path);
        text(&recording).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let sleep = "asleep for a time in clock_nanosleep";
    let of = |doing, code| {
        ["ulock", "stamps", "stamps", doing, code, if code.is_empty() { "" } else { "stamps;ask" }]
    };
    let text = path(&[(of(sleep, "ask"), 1.0), (of(sleep, ""), 1.5), (of("running", "work"), 1.0)]);
    assert!(
        text.contains("meanwhile stamps is asleep for a time in clock_nanosleep, in ask (71 %)"),
        "{text}"
    );
    let text = path(&[(of(sleep, "ask"), 0.5), (of("running", "work"), 2.0)]);
    assert!(text.contains("meanwhile stamps runs work (80 %)"), "{text}");
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
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = "Nothing stands out: 80 % of the capacity is the program's own work (stamps), 100 % of it in work → update_stats_locked.";
    assert!(words.contains(sentence), "{text}");
}

/// New memory is the program's that asked for it, through the library of Java or of C.
#[test]
fn new_memory_is_touched_where_the_program_asked_for_it() {
    const FAULT: &str = "asm_exc_page_fault_[k];do_anonymous_page_[k];clear_page_erms_[k]";
    let title = |user: &str, work: f64| {
        let zeroing = format!("stamps;{user};{FAULT}");
        let stacks = stacks(&[("zeroing", &zeroing, 800.0), ("user", "stamps;main;work", work)]);
        let found = Findings::of(&recording(0.0, stacks)).unwrap();
        found.list.into_iter().find(|f| f.id == "memory-touched-first").map(|found| found.title)
    };
    let java = "JavaMain;Shop.main;Shop.buffer;java.nio.DirectByteBuffer.<init>;jdk.internal.misc.Unsafe.setMemory0;Copy::fill(void*)";
    assert_eq!(title(java, 100.0).as_deref(), Some("new memory touched in Shop.buffer"));
    assert_eq!(
        title("main;make_row;__memset_avx2_unaligned", 100.0).as_deref(),
        Some("new memory touched in make_row")
    );
    // Work takes longer than the memory that it is done with.
    assert_eq!(title(java, 900.0), None);
}

/// A program of one thread that runs for all of ten seconds but a half, on one of two CPUs, in `of`.
fn of_one_thread(of: &[(&str, &str, f64)]) -> Recording {
    beside_others(0.0, of)
}

/// The same, where other programs have the other CPU for `others` seconds.
fn beside_others(others: f64, of: &[(&str, &str, f64)]) -> Recording {
    let mut manifest = Manifest::new(Purpose::Run, 2, vec!["xz".into(), "nums".into()], 1.0);
    manifest.complete = true;
    let cpus: [&[f64]; 2] = [&[10.0, 0.0, 9.5, 0.0, 0.5], &[10.0, 1.0, 0.0, others, 10.0 - others]];
    let alone = 9.5 * (10.0 - others) / 10.0;
    let serial = [10.0, alone, 1.0];
    let charged = ["serial", "stamps", "stamps", "running", "compress", "stamps;compress"];
    let mut tables = stacks(of);
    tables.extend([
        table("cpu_time", &[], &["t", "CPU", "target", "other", "idle"], &[(&[], cpus[0]), (&[], cpus[1])]),
        table("idle_time", &[], &["t", "serial", "asleep"], &[(&[], &serial)]),
        table(
            "critical_path",
            &["reason", "process", "thread", "doing", "code", "stack"],
            &["idle", "seconds"],
            &[(&charged, &[alone, alone])],
        ),
    ]);
    tables.into_iter().fold(Recording::new(manifest), Recording::with)
}

#[test]
fn a_program_of_one_thread_is_called_that() {
    let text = text(&of_one_thread(&[("user", "stamps;compress", 950.0)]));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = "stamps runs one thread at a time, 100 % of its work in compress, and 48 % of the capacity idles meanwhile.";
    assert!(words.contains(sentence), "{text}");
}

#[test]
fn work_that_moves_between_threads_is_of_one_at_a_time() {
    // Others had a fifth of the other CPU: it idled for less than the program ran, but nothing else of the program ran meanwhile.
    let mut recording = beside_others(2.0, &[("user", "stamps;compress", 950.0)]);
    let rows: [(&[&str], &[f64]); 2] = [
        (&["stamps", "stamps"], &[10.0, 7.0, 7.0, 5.0, 900.0]),
        (&["stamps", "stamps"], &[10.0, 7.0, 8.0, 4.5, 900.0]),
    ];
    let threads = table("threads", &["process", "thread"], &["t", "pid", "tid", "USR", "VCX"], &rows);
    recording = recording.with(threads);
    let found = Findings::of(&recording).unwrap();
    assert!(found.list.iter().all(|cause| cause.id != "serial-function"), "{:?}", found.list);
    assert!(found.alone.is_some());
}

#[test]
fn work_for_a_librarys_threads_is_given_by_the_programs_own_function() {
    let take = "pthread_cond_wait;java.util.concurrent.SynchronousQueue.take;java.lang.Thread.run";
    let words = ["0x5580", "condition", "stamps", "java.util.concurrent.SynchronousQueue.take", take];
    let waits: (&[&str], &[f64]) = (&words, &[500_000.0, 5.0]);
    let gives = "stamps;Shop.main;Shop.hand;java.util.concurrent.SynchronousQueue.put;pthread_cond_signal;do_futex_[k];futex_wake_[k]";
    let mut tables = stacks(&[("user", "stamps;Shop.main;Shop.hand", 600.0), ("syscall", gives, 400.0)]);
    let columns = ["lock", "type", "process", "caller", "stack"];
    tables.push(table("user_locks", &columns, &["count", "block"], &[waits]));
    let found = Findings::of(&recording(0.0, tables)).unwrap().list;
    let titles: Vec<_> = found.iter().map(|cause| &*cause.title).collect();
    assert!(titles.contains(&"hand-offs in Shop.hand"), "{titles:?}");
}

#[test]
fn functions_that_a_compiler_put_into_the_programs_are_named() {
    let texts = ["function", "file", "text", "inlined", "around", "cause"];
    let of = |inlined, around, samples: f64| {
        (["take_any", "stamps", "xor", inlined, around, "computing"], [10.0, 4096.0, samples])
    };
    let rotate = "std::collections::vec_deque::VecDeque<T,A>::rotate_left";
    let rows = [of("core::ptr::mut_ptr::<impl *mut T>::swap", rotate, 90.0), of("", "", 10.0)];
    let rows: Vec<(&[&str], &[f64])> = rows.iter().map(|(t, n)| (&t[..], &n[..])).collect();
    let recording = of_one_thread(&[("user", "stamps;take_any", 950.0)]);
    let text = text(&recording.with(table("instructions", &texts, &["t", "address", "samples"], &rows)));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("take_any (std::collections::vec_deque::VecDeque::rotate_left 90 %)"), "{text}");
}

/// A row of table `instructions` in code of `file`: function, text, inlined function, those around it, line of source.
fn instructions(rows: &[([&str; 5], f64)]) -> Table {
    let columns = ["function", "text", "inlined", "around", "source", "file"];
    let texts: Vec<[&str; 6]> =
        rows.iter().map(|([a, b, c, d, e], _)| [*a, *b, *c, *d, *e, "stamps"]).collect();
    let numbers: Vec<[f64; 3]> =
        rows.iter().enumerate().map(|(at, (_, samples))| [10.0, at as f64, *samples]).collect();
    let rows: Vec<(&[&str], &[f64])> = texts.iter().zip(&numbers).map(|(t, n)| (&t[..], &n[..])).collect();
    table("instructions", &columns, &["t", "address", "samples"], &rows)
}

#[test]
fn a_method_that_is_interpreted_beside_other_programs_is_named() {
    let first = |others: f64| {
        let stack = "stamps;start_thread;JavaCalls::call_helper;App.main;[Interpreter];App.decode";
        let mut tables = stacks(&[("user", stack, 75.0)]);
        tables.push(table(
            "threads",
            &["process", "thread"],
            &["pid", "tid", "VCX"],
            &[(&["stamps", "stamps"], &[7.0, 7.0, 1.0]), (&["stamps", "C2 CompilerThre"], &[7.0, 9.0, 1.0])],
        ));
        // 1.5 of 20 CPU-seconds.
        Findings::of(&observed(0.75, others, tables)).unwrap().list.into_iter().map(|f| f.id).next()
    };
    assert_eq!(first(8.0).as_deref(), Some("java-method-not-compiled"));
    assert_eq!(first(0.0), None);
}

#[test]
fn goroutines_that_wait_for_a_busy_receiver_need_no_more_places() {
    let found = |runnable: f64| {
        let sends = "runtime.goexit.abi0;main.publish;runtime.chansend1;runtime.chansend;runtime.gopark";
        let goroutines = table(
            "goroutines",
            &["process", "state", "stack"],
            &["places", "count", "seconds"],
            &[
                (&["stamps", "looked at", ""], &[0.0, 50.0, 10.0]),
                (&["stamps", "chan send", sends], &[300.0, 600.0, 60.0]),
                (&["stamps", "runnable", ""], &[0.0, runnable * 50.0, runnable * 10.0]),
            ],
        );
        let mut tables = stacks(&[("user", "stamps;runtime.goexit.abi0;main.take;runtime.chanrecv", 400.0)]);
        tables.push(goroutines);
        let list = Findings::of(&observed(4.0, 0.0, tables)).unwrap().list;
        list.into_iter().any(|f| f.id == "goroutines-wait-for-a-place")
    };
    assert!(found(0.0));
    assert!(!found(2.0));
}

#[test]
fn turns_that_gos_runtime_gives_up_are_not_the_programs() {
    let first = |call: &str| {
        let caller: String =
            format!("stamps;runtime.goexit.abi0;main.wait;{call}runtime.Gosched;runtime.mcall");
        let rest = "stamps;runtime.mcall;runtime.gosched_m;runtime.goschedImpl;runtime.schedule";
        let tables = stacks(&[("user", &caller, 60.0), ("user", rest, 740.0)]);
        Findings::of(&recording(0.0, tables)).unwrap().list.into_iter().map(|f| f.id).next()
    };
    assert_eq!(first("").as_deref(), Some("goroutines-yield"));
    assert_eq!(first("runtime.GC;"), None);
}

#[test]
fn an_instruction_that_copies_is_a_copy_of_its_function() {
    let first = |text: &str| {
        let tables = stacks(&[("user", "stamps;main;main.volume", 800.0)]);
        let row = ["main.main", text, "main.volume", "", "/src/book.go:20"];
        let recording = recording(0.0, tables).with(instructions(&[(row, 800.0)]));
        Findings::of(&recording).unwrap().list.into_iter().map(|f| f.id).next()
    };
    assert_eq!(first("rep movsq (%rsi),(%rdi)").as_deref(), Some("memory-copied"));
    assert_eq!(first("rep stosq %rax,(%rdi)").as_deref(), Some("memory-cleared"));
    assert_eq!(first("mov (%rsi),%rdi"), None);
}

#[test]
fn the_headline_names_the_functions_put_into_another_and_the_line() {
    let tables = stacks(&[("user", "stamps;main;app::main", 800.0)]);
    let rows = [(["app::main", "imul %rax,%rbx", "app::Grid::step", "", "/src/grid.rs:31"], 700.0)];
    let text = text(&recording(0.0, tables).with(instructions(&rows)));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("app::main → app::Grid::step (grid.rs:31)"), "{text}");
}

#[test]
fn processes_whose_rows_were_summed_up_are_counted() {
    let row = |pid: Option<u64>, ended, cpu| ncpu_schema::threads::Row {
        pid,
        tid: pid,
        process: "stamps".into(),
        thread: "stamps".into(),
        cpu: Some(cpu),
        ended: Some(ended),
        ..Default::default()
    };
    let mut rows = ncpu_schema::threads::Rows::new();
    // A number that two processes had, one after the other, and processes that had no room of their own.
    rows.push(row(Some(100), 2, 2e-4));
    (101..119).for_each(|pid| rows.push(row(Some(pid), 1, 1e-4)));
    rows.push(row(None, 9_980, 1.0));
    let stacks = stacks(&[("exec", "stamps;do_syscall_64_[k];__x64_sys_execve_[k];bprm_execve_[k]", 800.0)]);
    let found = Findings::of(&recording(0.0, stacks).with(rows.finish())).unwrap();
    assert_eq!(found.list[0].title, "1,000 processes a second: stamps");
}

#[test]
fn cpus_that_idle_beside_a_program_of_one_thread_are_gained_with_its_time() {
    let known = ("user", "stamps;compress;__strlen_avx2", 760.0);
    let found = Findings::of(&of_one_thread(&[known, ("user", "stamps;compress", 190.0)])).unwrap();
    let (low, high) = found.list[0].gain;
    // A fifth of 9.5 s is left, and half a second in which nothing runs.
    assert!(low < 10.0 / 2.4 && high > 10.0 / 2.4 && low > 3.0, "{low} {high}");
    let both = recording(0.0, stacks(&[known, ("user", "stamps;compress", 190.0)]));
    let (_, high) = Findings::of(&both).unwrap().list[0].gain;
    assert!(high < 3.6, "{high}: no CPU idled for it");
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
fn few_waits_are_a_locks_only_where_they_are_long() {
    let of = |waits, block| {
        let work = stacks(&[("user", "stamps;main;handle", 1600.0)]);
        let recording = recording(1.0, work.into_iter().chain([lock(waits, block)]).collect());
        let findings = Findings::of(&recording).expect("findings");
        let mut all = findings.list.iter().chain(&findings.others);
        all.any(|found| found.id == "contended-lock")
    };
    assert!(!of(4.0, 0.3), "a holder that other programs held up");
    assert!(of(4.0, 2.0));
    assert!(of(40.0, 0.3));
}

#[test]
fn calls_without_a_cause_have_their_place() {
    let recv = "stamps;main;peek_line;__recv;do_syscall_64_[k];__x64_sys_recvfrom_[k];_copy_to_iter_[k]";
    let text = text(&recording(1.0, stacks(&[("syscall", recv, 1600.0)])));
    assert!(text.replace("\n  ", " ").contains("of it recvfrom in peek_line"), "{text}");
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
fn pauses_between_calls_that_fail_are_a_part_of_trying_again() {
    let of = |paused_in: &str| {
        let pause = format!(
            "stamps;start_thread;{paused_in};clock_nanosleep;do_syscall_64_[k];__x64_sys_clock_nanosleep_[k]"
        );
        let mut tables = stacks(&[
            (
                "syscall",
                "stamps;start_thread;worker;take;__libc_recv;do_syscall_64_[k];__x64_sys_recvfrom_[k]",
                150.0,
            ),
            ("syscall", "stamps;start_thread;worker;take;__libc_recv;entry_SYSCALL_64_[k]", 150.0),
            ("syscall", &pause, 600.0),
            ("user", "stamps;start_thread;worker;take", 700.0),
        ]);
        tables.push(table(
            "call_results",
            &["process", "function", "descriptor", "error"],
            &["samples", "returned"],
            &[(&["stamps", "__libc_recv", "socket", "EAGAIN"], &[40.0, 0.0])],
        ));
        tables.push(table(
            "sleepers",
            &["call", "process"],
            &["count", "asked", "slept", "threads"],
            &[(&["clock_nanosleep", "stamps"], &[200_000.0, 4.0, 8.0, 2.0])],
        ));
        Findings::of(&recording(0.0, tables)).unwrap().list
    };
    let found = of("worker");
    assert_eq!(found.iter().map(|found| &*found.id).collect::<Vec<_>>(), ["asked-again"]);
    let pauses = found[0].parts.iter().filter(|part| part.what == "pauses between");
    assert!((pauses.map(|part| part.seconds).sum::<f64>() - 6.0).abs() < 1e-6, "{:?}", found[0].parts);
    assert!(found[0].lines.iter().any(|line| line.text == "20 us each, 20,000 times a second"), "{found:?}");
    let mut apart: Vec<String> = of("tick").into_iter().map(|found| found.id).collect();
    apart.sort();
    assert_eq!(apart, ["asked-again", "short-sleeps"], "another thread may sleep for another reason");
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

/// Stacks off CPU of process `stamps`: thread, stack behind the reason and the thread, seconds, waits.
fn slept(of: &[(&str, &str, f64, f64)]) -> Table {
    let stacks: Vec<String> =
        of.iter().map(|(thread, stack, ..)| format!("asleep;{thread};{stack}")).collect();
    let texts: Vec<[&str; 5]> = of
        .iter()
        .zip(&stacks)
        .map(|((thread, ..), stack)| ["off-cpu", "asleep", "stamps", *thread, &**stack])
        .collect();
    let numbers: Vec<[f64; 2]> = of.iter().map(|(.., seconds, n)| [*seconds, *n]).collect();
    let rows: Vec<(&[&str], &[f64])> = texts.iter().zip(&numbers).map(|(t, n)| (&t[..], &n[..])).collect();
    table("stacks", &["kind", "wait", "process", "thread", "stack"], &["seconds", "samples"], &rows)
}

const SLEEPS: &str = "clock_nanosleep;__x64_sys_clock_nanosleep_[k];hrtimer_nanosleep_[k];do_nanosleep_[k]";
const RECEIVES: &str = "__recv;__x64_sys_recvfrom_[k];tcp_recvmsg_[k];tcp_recvmsg_locked_[k]";

fn first(recording: &Recording) -> String {
    Findings::of(recording).unwrap().list.first().map_or_else(String::new, |found| found.id.clone())
}

#[test]
fn several_that_wait_for_one_sleeper_have_their_turn_one_after_another() {
    // By two ways of a runtime to one place; six clients wait six sleeps each.
    let of = |clients: f64| {
        let ways = [format!("main;lookup;{SLEEPS}"), format!("main;lookup;__nanosleep;{SLEEPS}")];
        let client = format!("client;ask;{RECEIVES}");
        recording(
            0.0,
            vec![slept(&[
                ("loop", &ways[0], 8.0, 800.0),
                ("loop", &ways[1], 1.0, 100.0),
                ("client", &client, 10.0 * clients, 900.0),
            ])],
        )
    };
    assert_eq!(first(&of(6.0)), "fixed-sleep");
    let few = slept(&[
        ("loop", &format!("main;lookup;{SLEEPS}"), 9.0, 900.0),
        ("client", &format!("client;ask;{RECEIVES}"), 9.0, 20.0),
    ]);
    assert_eq!(
        first(&recording(0.0, vec![few])),
        "",
        "a client that waits 45 times as long waits for something else"
    );
}

#[test]
fn sleeps_of_a_runtime_itself_are_no_polling() {
    let of = |sleeper: &str, waiter: &str| {
        let waits = format!("{waiter};runtime.futex.abi0;__x64_sys_futex_[k];do_futex_[k]");
        let sleeper = format!("{sleeper};{SLEEPS}");
        first(&recording(0.0, vec![slept(&[("app", &sleeper, 9.0, 900.0), ("app", &waits, 9.0, 900.0)])]))
    };
    assert_eq!(of("runtime.mstart1;runtime.sysmon;runtime.usleep.abi0", "main.wait"), "");
    assert_eq!(of("main.poll", "runtime.mcall;runtime.findRunnable;runtime.stopm"), "");
    assert_eq!(of("main.poll", "main.wait"), "fixed-sleep");
    let unknown = "[unknown];[unknown];do_nanosleep_[k];hrtimer_nanosleep_[k]";
    let waits = "main.wait;runtime.futex.abi0;do_futex_[k]";
    let nameless = slept(&[("app", unknown, 9.0, 900.0), ("app", waits, 9.0, 900.0)]);
    assert_eq!(first(&recording(0.0, vec![nameless])), "", "nothing is known of who sleeps");
    let often = |sleeper: &str| {
        let sleep = format!("{sleeper};runtime.usleep.abi0;__x64_sys_nanosleep_[k];do_nanosleep_[k]");
        let mut tables = stacks_of_switches();
        tables[0] = slept(&[("stamps", &sleep, 9.0, 90_000.0)]);
        let sleeps: (&[&str], &[f64]) = (&["nanosleep", "stamps"], &[90_000.0, 8.0, 9.0, 1.0]);
        tables.push(table(
            "sleepers",
            &["call", "process"],
            &["count", "asked", "slept", "threads"],
            &[sleeps],
        ));
        let threads: (&[&str], &[f64]) = (&["stamps", "stamps"], &[1.0, 90_000.0]);
        tables.push(table("threads", &["process", "thread"], &["tid", "VCX"], &[threads]));
        let all = Findings::of(&recording(0.0, tables)).unwrap();
        all.list.iter().chain(&all.others).any(|found| found.id == "short-sleeps")
    };
    assert!(!often("runtime.mstart1;runtime.sysmon"));
    assert!(often("main.main;main.look"));
}

/// Switches of a process on CPU.
fn stacks_of_switches() -> Vec<Table> {
    stacks(&[("switch", "stamps;start_thread;look;schedule_[k]", 800.0)])
}

#[test]
fn sleeps_of_a_library_are_waits_for_its_lock() {
    let busy = format!("main;order;sqlite3_step;{SLEEPS}");
    let of = |stack: &str| recording(0.0, vec![slept(&[("stamps", stack, 18.0, 900.0)])]);
    assert_eq!(first(&of(&busy)), "sqlite-busy");
    assert_eq!(first(&of(&format!("main;order;{SLEEPS}"))), "", "nobody waits for it");
}

#[test]
fn threads_whose_time_is_up_are_no_herd() {
    let of = |timeouts: f64, asked: f64| {
        let poll = "look;ppoll;__x64_sys_ppoll_[k];do_sys_poll_[k];poll_schedule_timeout_[k]";
        let threads: Vec<[f64; 2]> = (0..16).map(|tid| [f64::from(tid), 50_000.0]).collect();
        let rows: Vec<(&[&str], &[f64])> =
            threads.iter().map(|n| (&["stamps", "stamps"][..], &n[..])).collect();
        let mut tables = stacks(&[("switch", "stamps;start_thread;look;ppoll;schedule_[k]", 800.0)]);
        tables[0] = slept(&[("stamps", poll, 100.0, 800_000.0)]);
        tables.push(table("threads", &["process", "thread"], &["tid", "VCX"], &rows));
        tables.push(table(
            "sleepers",
            &["call", "process"],
            &["count", "asked", "slept", "threads"],
            &[(&["ppoll", "stamps"], &[timeouts, asked, 40.0, 16.0])],
        ));
        Findings::of(&recording(0.0, tables))
            .unwrap()
            .list
            .into_iter()
            .map(|found| found.id)
            .collect::<Vec<_>>()
    };
    let herd = |found: Vec<String>| found.contains(&"accept-herd".to_string());
    assert!(!herd(of(790_000.0, 40.0)), "{:?}", of(790_000.0, 40.0));
    assert!(herd(of(100.0, 0.01)), "{:?}", of(100.0, 0.01));
    assert!(herd(of(790_000.0, 79_000.0)), "woken long before their time was up");
}

#[test]
fn threads_bound_to_one_cpu_stand_behind_one_another_whoever_has_the_others() {
    let of = |behind: f64| {
        let bound = table(
            "bound",
            &["process", "cpus", "by"],
            &["pid", "threads", "queued"],
            &[
                (&["stamps", "1", "affinity"], &[7.0, 2.0, 15.0]),
                (&["stamps", "1", "affinity"], &[8.0, 2.0, 15.0]),
            ],
        );
        let queued = table(
            "queued",
            &["at"],
            &["waits", "seconds"],
            &[(&["target"], &[900.0, behind]), (&["other"], &[900.0, 30.0 - behind])],
        );
        Findings::of(&observed(5.0, 5.0, vec![bound, queued])).unwrap()
    };
    let found = of(28.0);
    assert_eq!((found.list.len(), &*found.list[0].id), (1, "bound-threads"), "{:?}", found.list);
    assert!(found.list[0].title.contains("4 threads of stamps"), "{}", found.list[0].title);
    assert!(of(4.0).list.is_empty(), "behind other programs they would stand elsewhere, too");
}

#[test]
fn a_line_that_holds_a_lock_is_a_part_of_what_the_lock_costs() {
    let waiting = |object: &str, line: &str, block: f64| {
        let mut tables = stacks(&[
            ("user", "stamps;start_thread;handle;insert;update", 1000.0),
            ("user", "stamps;start_thread;handle;insert", 600.0),
        ]);
        tables.push(lock(10_000.0, block));
        tables.push(table(
            "user_causes",
            &["process", "function", "instruction", "cause"],
            &["samples"],
            &[
                (&["stamps", "insert", "load", "shared lines"], &[580.0]),
                (&["stamps", "insert", "plain", "computing"], &[20.0]),
            ],
        ));
        tables.push(table(
            "data",
            &["process", "object", "line", "cause", "sharing", "words", "writers"],
            &["pid", "threads", "samples"],
            &[(&["stamps", object, line, "shared lines", "true", "+0", "insert"], &[7.0, 4.0, 580.0])],
        ));
        Findings::of(&recording(0.0, tables)).unwrap()
    };
    let of = |object: &str, line: &str| waiting(object, line, 5.0);
    let shared = |findings: &Findings| {
        findings.list.iter().chain(&findings.others).any(|found| found.id == "shared-word")
    };
    assert!(!shared(&of("table_lock+0x8", "0x4040")), "{:?}", of("table_lock+0x8", "0x4040").list);
    let other = of("unknown", "0x8080");
    let found =
        other.list.iter().chain(&other.others).find(|found| found.id == "shared-word").expect("another line");
    assert_eq!(found.title, "shared line of insert", "it has no name of its own");
    // Threads that wait for the lock longer than for the line write the line with it.
    assert!(!shared(&waiting("unknown", "0x8080", 12.0)));
}

#[test]
fn a_line_is_written_by_who_calls_the_library() {
    let of = |writer: &str, stack: &str| {
        let mut tables = stacks(&[("user", stack, 1600.0)]);
        tables.push(table(
            "user_causes",
            &["process", "function", "instruction", "cause"],
            &["samples"],
            &[(&["stamps", writer, "atomic", "shared lines"], &[1600.0])],
        ));
        tables.push(table(
            "data",
            &["process", "object", "line", "cause", "sharing", "words", "writers"],
            &["pid", "threads", "samples"],
            &[(&["stamps", "routes", "0x4040", "shared lines", "true", "+0", writer], &[7.0, 4.0, 1600.0])],
        ));
        Findings::of(&recording(0.0, tables)).unwrap().list.remove(0)
    };
    let add = "sync/atomic.(*Int32).Add";
    let found = of(add, &format!("stamps;main.lookup;sync.(*RWMutex).RLock;{add}"));
    assert_eq!(found.id, "readers-write-a-line");
    assert!(found.sentence.ends_with("in main.lookup)."), "{}", found.sentence);
    let found = of(add, &format!("stamps;main.count;{add}"));
    assert_eq!(
        (&*found.id, found.sentence.ends_with("in main.count.")),
        ("shared-word", true),
        "{}",
        found.sentence
    );
}

#[test]
fn code_is_serial_though_other_programs_use_the_cpus_beside_it() {
    let of = |ran: f64, alone: f64, others: f64| {
        let mut tables =
            stacks(&[("user", "stamps;main;prepare", 800.0), ("user", "stamps;start_thread;compute", 500.0)]);
        tables.push(table(
            "critical_path",
            &["reason", "process", "thread", "doing", "code", "stack"],
            &["idle", "seconds", "count"],
            &[(
                &["serial", "stamps", "stamps", "running", "prepare", "stamps;main;prepare"],
                &[alone, alone, 100.0],
            )],
        ));
        let busy: Vec<[f64; 2]> = vec![[1.0, 8.0], [2.0, 5.0]];
        let rows: Vec<(&[&str], &[f64])> = busy.iter().map(|n| (&["stamps", "stamps"][..], &n[..])).collect();
        tables.push(table("threads", &["process", "thread"], &["tid", "CPU"], &rows));
        let mut recording = observed(ran, others, tables);
        let idle = 20.0 - 2.0 * (ran + others);
        recording = recording.with(table("idle_time", &[], &["t", "serial"], &[(&[], &[10.0, idle])]));
        first(&recording)
    };
    assert_eq!(of(6.5, 7.0, 0.0), "serial-function");
    assert_eq!(of(6.5, 2.4, 2.2), "serial-function", "others had most of the CPU that it left");
    assert_eq!(of(6.5, 2.4, 0.0), "", "it ran beside the program's own threads");
    assert_eq!(of(9.6, 7.0, 0.0), "", "every program begins with one thread");
}

#[test]
fn a_lock_of_the_kernel_has_its_call_and_the_remedy_of_its_entry() {
    let write = "start_thread;append;__write;do_syscall_64_[k];ksys_write_[k];fdget_pos_[k];__mutex_lock_[k]";
    let of = |lock: &str, caller: &str| {
        let mut tables = stacks(&[
            ("user", "stamps;start_thread;append", 1200.0),
            ("lock spin", &format!("stamps;{write};mutex_spin_on_owner_[k]"), 400.0),
        ]);
        tables.push(table(
            "locks",
            &["lock", "type", "process"],
            &["count", "spin", "block"],
            &[(&[lock, "mutex", "stamps"], &[9000.0, 4.0, 3.0])],
        ));
        tables.push(table(
            "lock_callers",
            &["lock", "type", "process", "caller"],
            &["walked", "spin"],
            &[(&[lock, "mutex", "stamps", caller], &[90.0, 0.04])],
        ));
        Findings::of(&recording(0.0, tables)).unwrap()
    };
    let findings = of("file.f_pos_lock", "fdget_pos");
    let found = &findings.list[0];
    assert_eq!((&*found.id, findings.list.len()), ("lock-of-the-kernel", 1));
    assert_eq!(found.title, "kernel lock file.f_pos_lock in write, append");
    assert!((found.seconds - 4.0).abs() < 1e-9, "{found:?}");
    assert!(found.advice.as_ref().is_some_and(|advice| advice.words.contains("pread")), "{found:?}");
    assert!(of("kmalloc-cg-2k+0x104", "futex_wake").list.is_empty(), "a bucket of futexes");
}

#[test]
fn messages_may_be_waited_for_in_one_function_by_all() {
    let of = |threads: &[f64]| {
        let rows: Vec<[f64; 2]> = threads.iter().enumerate().map(|(tid, n)| [tid as f64, *n]).collect();
        let rows: Vec<(&[&str], &[f64])> = rows.iter().map(|n| (&["stamps", "stamps"][..], &n[..])).collect();
        let read = "main;pass_on;__read;__x64_sys_read_[k];vfs_read_[k];anon_pipe_read_[k]";
        let mut tables =
            stacks(&[("syscall", "stamps;main;pass_on;__write;do_syscall_64_[k];ksys_write_[k]", 1600.0)]);
        tables[0] = slept(&[("stamps", read, 60.0, 300_000.0)]);
        tables.push(table("threads", &["process", "thread"], &["tid", "VCX"], &rows));
        let mut recording = recording(0.0, tables);
        recording = recording.with(table("idle_time", &[], &["t", "serial"], &[(&[], &[10.0, 4.0])]));
        first(&recording)
    };
    assert_eq!(of(&[50_000.0; 6]), "small-messages");
    assert_eq!(of(&[300_000.0]), "", "one thread alone has nobody to hand anything to");
}

#[test]
fn what_most_of_the_work_is_in_is_the_longest_chain_of_calls_with_most_of_it() {
    let of = |parts: &[(&str, &str, f64)]| Findings::of(&recording(0.0, stacks(parts))).unwrap().hot;
    let (chain, part) = of(&[
        ("user", "stamps;main;serve;lookup;hash", 500.0),
        ("user", "stamps;main;serve;lookup;compare", 700.0),
        ("user", "stamps;main;serve;answer", 400.0),
    ])
    .expect("one chain");
    assert_eq!(chain, "serve → lookup (compare 44 %, hash 31 %)");
    assert!((part - 0.75).abs() < 1e-9, "{part}");
    let apart = of(&[("user", "stamps;main;a", 800.0), ("user", "stamps;main;b", 800.0)]);
    assert_eq!(apart, None, "main says nothing");
}

#[test]
fn what_a_line_of_a_script_calls_is_named_with_the_line() {
    let of =
        |parts: &[(&str, &str, f64)]| Findings::of(&recording(0.0, stacks(parts))).unwrap().hot.unwrap().0;
    let python = "stamps;main;<module> (a.py:1);add (a.py:7);list_sort;list_sort_impl";
    let (merges, compares) = (format!("{python};merge_at"), format!("{python};unsafe_long_compare"));
    assert_eq!(
        of(&[
            ("user", &merges, 500.0),
            ("user", &compares, 900.0),
            ("user", "stamps;main;<module> (a.py:1)", 200.0)
        ]),
        "list.sort, called by add (a.py:7) ← <module> (a.py:1) (unsafe_long_compare 56 %, merge_at 31 %)"
    );
    let php = "stamps;php_execute_script;execute_ex;php_implode";
    assert_eq!(of(&[("user", php, 1600.0)]), "php_implode", "not what runs any script");
    let other = "stamps;php_execute_script;execute_ex;array_merge()";
    assert_eq!(
        of(&[("user", php, 800.0), ("user", other, 800.0)]),
        "the interpreter (array_merge 50 %, php_implode 50 %)"
    );
}

#[test]
fn a_general_entry_does_not_hide_a_particular_one_that_it_calls() {
    let call = "stamps;main;price (a.js:5);v8::internal::Intl::NumberToLocaleString(v8::internal::Isolate*)";
    let make = format!("{call};v8::internal::JSNumberFormat::New(v8::internal::Isolate*)");
    let found =
        Findings::of(&recording(0.0, stacks(&[("user", &make, 900.0), ("user", call, 700.0)]))).unwrap();
    assert_eq!(found.list[0].id, "formatters-made");
}

#[test]
fn a_device_holds_up_who_waits_for_it_a_third_of_the_time() {
    // Other programs have most of the CPUs; the program's threads ran or stood for a CPU for `active` seconds.
    let of = |active: Option<f64>| {
        let read = "main;load;__read;__x64_sys_read_[k];vfs_read_[k];filemap_get_pages_[k];io_schedule_[k]";
        let row: [&str; 5] = ["off-cpu", "I/O", "stamps", "stamps", &format!("I/O;stamps;{read}")];
        let columns = ["kind", "wait", "process", "thread", "stack"];
        let waits = table("stacks", &columns, &["seconds", "samples"], &[(&row, &[5.0, 900.0])]);
        let threads = active.map(|active| {
            let rows: &[(&[&str], &[f64])] = &[(&["stamps", "stamps"], &[1.0, active])];
            table("threads", &["process", "thread"], &["tid", "CPU"], rows)
        });
        first(&observed(0.5, 9.0, [waits].into_iter().chain(threads).collect()))
    };
    assert_eq!(of(Some(4.0)), "reads-in-turn");
    assert_eq!(of(Some(14.0)), "", "most of its threads had work meanwhile");
    assert_eq!(of(None), "", "it is not known whether they had");
}

#[test]
fn a_known_function_counts_of_the_cpus_that_other_programs_leave() {
    let read = "stamps;main;price_of;Fraction.__new__ (fractions.py:62)";
    let tables = stacks(&[("user", read, 81.0), ("user", "stamps;main;print_all", 9.0)]);
    let of = |others| {
        let found = Findings::of(&observed(0.45, others, tables.clone())).unwrap();
        found.list.iter().map(|f| f.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of(9.4), ["python-fractions"], "4 % of the machine, and most of what it had");
    assert_eq!(of(0.0), Vec::<String>::new(), "CPUs that idle are left to it, and it hardly uses them");
}

/// Threads that wait for locks of Java: pattern, stack and thread-seconds; beside them code on CPU.
fn of_java(locks: &[(&str, &str, f64)], on_cpu: &[(&str, &str, f64)]) -> Recording {
    let mut tables = stacks(on_cpu);
    let texts: Vec<[&str; 6]> = locks
        .iter()
        .map(|(pattern, stack, _)| ["0x7f00", "lock", pattern, "stamps", "App.serve", stack])
        .collect();
    let counts: Vec<[f64; 2]> = locks.iter().map(|(.., block)| [2000.0, *block]).collect();
    let rows: Vec<(&[&str], &[f64])> = texts.iter().zip(&counts).map(|(t, n)| (&t[..], &n[..])).collect();
    let columns = ["lock", "type", "pattern", "process", "caller", "stack"];
    tables.push(table("user_locks", &columns, &["count", "block"], &rows));
    recording(0.0, tables)
}

#[test]
fn who_waits_until_its_new_thread_has_begun_waits_for_no_lock() {
    let call = "stamps;start_thread;App.serve;java.lang.Thread.start0;JVM_StartThread;Mutex::lock;__futex_abstimed_wait_common;do_syscall_64_[k];do_futex_[k]";
    let on_cpu = [("user", "stamps;start_thread;App.serve;App.count", 900.0), ("syscall", call, 300.0)];
    let of = |between: &str| {
        let stack =
            format!("__futex_abstimed_wait_common;Mutex::lock;{between}App.serve;start_thread;clone3");
        let found = Findings::of(&of_java(&[("JVM lock", &stack, 5.0)], &on_cpu)).unwrap();
        found.list.iter().chain(&found.others).any(|f| f.id.contains("lock"))
    };
    assert!(of("") && !of("JVM_StartThread;java.lang.Thread.start0;"));
}

#[test]
fn spinning_for_a_monitor_is_a_part_of_it_where_code_has_no_names() {
    let stack = "ObjectMonitor::enter;ObjectSynchronizer::enter;App.serve;start_thread";
    let on_cpu = [
        ("user", "stamps;start_thread;App.serve;App.count", 1200.0),
        ("user spin", "stamps;start_thread;ObjectSynchronizer::enter;ObjectMonitor::TrySpin", 400.0),
    ];
    let locks = [("Java monitor", stack, 5.0), ("JVM lock", "Mutex::lock;App.load;start_thread", 15.0)];
    let list = Findings::of(&of_java(&locks, &on_cpu)).unwrap().list;
    assert!(list[0].title.contains("monitor") && list[0].seconds > 3.9, "{list:?}");
}

#[test]
fn a_pool_has_nothing_to_do_while_another_thread_runs_alone() {
    let work = "start_thread;java.util.concurrent.ForkJoinPool.runWorker;App.sum;java.util.List.get";
    let of = |alone: &str, helps: &str| {
        let (name, pool) = ("java", "ForkJoinPool.co");
        let tables = vec![
            table(
                "stacks",
                &["kind", "at", "class", "process", "thread", "stack"],
                &["samples"],
                &[
                    (&["on-cpu", "target", "user", name, pool, &format!("{pool};{work}")], &[800.0]),
                    (
                        &[
                            "on-cpu",
                            "target",
                            "user",
                            name,
                            "java",
                            &format!("java;App.main;{helps};App.sum"),
                        ],
                        &[300.0],
                    ),
                ],
            ),
            table(
                "samples",
                &["at", "class", "detail", "process"],
                &["samples"],
                &[(&["target", "user", "x", name], &[1100.0])],
            ),
            table("threads", &["process", "thread"], &["tid", "CPU"], &[(&[name, pool], &[9.0, 8.0])]),
            table(
                "critical_path",
                &["reason", "process", "thread", "doing", "code", "stack"],
                &["idle", "seconds"],
                &[(&["serial", name, alone, "running", "App.sum", "x;App.sum"], &[4.0, 4.0])],
            ),
        ];
        let recording = observed(8.0, 0.0, tables);
        let recording = recording.with(table("idle_time", &[], &["t", "serial"], &[(&[], &[10.0, 4.0])]));
        let list = Findings::of(&recording).unwrap().list;
        list.first().map_or_else(String::new, |f| format!("{} {}", f.id, f.lines[0].text))
    };
    assert_eq!(of("ForkJoinPool.co", "App.ask"), "full-thread-pool App.sum");
    assert_eq!(of("main", "App.ask"), "");
    let helps = "java.util.concurrent.ForkJoinTask.doExec";
    assert_eq!(of("ForkJoinPool.co", helps), "", "who joins its tasks runs them");
}

#[test]
fn code_between_parallel_regions_is_serial_whoever_has_the_cpus_beside_it() {
    let of = |region: &str| {
        let region = format!("stamps;start_thread;{region};compute");
        let mut tables = stacks(&[("user", "stamps;main;prepare", 700.0), ("user", &region, 500.0)]);
        let text: &[&str] = &["serial", "stamps", "stamps", "running", "prepare", "stamps;main;prepare"];
        let columns = ["reason", "process", "thread", "doing", "code", "stack"];
        tables.push(table("critical_path", &columns, &["idle", "seconds"], &[(text, &[0.5, 0.5])]));
        let busy: [(&[&str], &[f64]); 2] =
            [(&["stamps", "stamps"], &[1.0, 7.0]), (&["stamps", "stamps"], &[2.0, 5.0])];
        tables.push(table("threads", &["process", "thread"], &["tid", "CPU"], &busy));
        let recording = observed(6.0, 3.0, tables);
        first(&recording.with(table("idle_time", &[], &["t", "serial"], &[(&[], &[10.0, 2.0])])))
    };
    assert_eq!(of("main._omp_fn.0"), "serial-function");
    assert_eq!(of("work"), "", "it may run beside other threads");
}

#[test]
fn a_pool_that_is_always_full_holds_up_where_others_have_the_cpus() {
    let of = |threads: f64, idle: f64| {
        let of = [
            ("on-cpu", "stamps;start_thread;worker;node::ThreadPoolWork;hash", 100.0, 0.0),
            // Code without unwinding rules.
            ("on-cpu", "stamps;[forgotten];sha512_block", 700.0, 0.0),
            ("off-cpu", "asleep;stamps;uv__io_poll;epoll_pwait;__x64_sys_epoll_pwait_[k]", 50.0, 9.5),
            ("off-cpu", "asleep;stamps;start_thread;worker;uv_cond_wait;__x64_sys_futex_[k]", 50.0, idle),
        ];
        let words = of.map(|(kind, stack, ..)| [kind, "target", "user", "stamps", "stamps", "asleep", stack]);
        let numbers = of.map(|(.., samples, seconds)| [samples, seconds]);
        let rows: Vec<(&[&str], &[f64])> =
            words.iter().zip(&numbers).map(|(words, numbers)| (&words[..], &numbers[..])).collect();
        let columns = ["kind", "at", "class", "process", "thread", "wait", "stack"];
        let mut tables = vec![table("stacks", &columns, &["samples", "seconds"], &rows)];
        tables
            .extend(stacks(&[("user", "stamps;main", 800.0)]).into_iter().filter(|t| t.name() == "samples"));
        let setting: &[&str] = &["stamps", "UV_THREADPOOL_SIZE"];
        tables.push(table(
            "settings",
            &["process", "name"],
            &["pid", "value"],
            &[(setting, &[7.0, threads])],
        ));
        first(&observed(4.0, 6.0, tables))
    };
    assert_eq!(of(1.0, 0.1), "libuv-pool");
    assert_eq!(of(1.0, 6.0), "", "it waits for work");
    assert_eq!(of(4.0, 0.1), "", "more threads have no more CPUs");
}

/// 14 of 16 threads that wait for a pool of 2: thread-seconds by who woke them. `locked`: thread-seconds for a lock; `others`: CPU seconds of
/// other programs.
fn small_pool(by: &[(Option<&str>, f64)], locked: f64, others: f64) -> Recording {
    let stack = "pthread_cond_wait;Pool::take;serve;start_thread";
    let mut locks: Vec<(Vec<&str>, [f64; 2])> = by
        .iter()
        .map(|(holder, block)| {
            let words = ["0x7f01", "condition", "stamps", "Pool::take", holder.unwrap_or(""), stack];
            (words.to_vec(), [10.0 * block, *block])
        })
        .collect();
    if locked > 0.0 {
        let stack = "__lll_lock_wait;pthread_mutex_lock;insert;handle;start_thread";
        locks.push((vec!["table_lock", "lock", "stamps", "insert", "worker-4/10", stack], [100.0, locked]));
    }
    let rows: Vec<(&[&str], &[f64])> = locks.iter().map(|(w, n)| (&w[..], &n[..])).collect();
    let columns = ["lock", "type", "process", "caller", "holder", "stack"];
    let mut tables = Vec::new();
    let waits: [(&[&str], &[f64]); 1] =
        [(&["stamps", "user lock", "table_lock", "a run queue"], &[locked, 100.0, locked, 0.0])];
    let words = ["process", "doing", "what", "holder_in"];
    tables.push(table("thread_time", &words, &["seconds", "waits", "held", "held_asleep"], &waits));
    tables.push(table("user_locks", &columns, &["count", "block"], &rows));
    let asleep = "start_thread;serve;Pool::take;pthread_cond_wait;do_futex_[k]";
    tables.push(slept(&[("worker-1", asleep, 140.0, 1400.0)]));
    let threads: Vec<[f64; 3]> = (1..=16).map(|tid| [f64::from(tid), 0.03, 10.0]).collect();
    let rows: Vec<(&[&str], &[f64])> =
        threads.iter().map(|row| (&["stamps", "worker-1"][..], &row[..])).collect();
    tables.push(table("threads", &["process", "thread"], &["tid", "CPU", "SLP"], &rows));
    observed(0.5, others, tables)
}

#[test]
fn a_pool_is_known_by_the_wake_ups_that_were_followed() {
    let of = |by: &[(Option<&str>, f64)]| first(&small_pool(by, 0.0, 0.0));
    assert_eq!(of(&[(Some("worker-3/9"), 140.0)]), "small-pool");
    assert_eq!(of(&[(Some("worker-3/9"), 50.0), (None, 90.0)]), "small-pool");
    assert_eq!(of(&[(Some("worker-3/9"), 10.0), (None, 130.0)]), "", "too few are known");
    assert_eq!(of(&[(Some("worker-3/9"), 50.0), (Some("main/7"), 60.0), (None, 30.0)]), "", "others give");
}

#[test]
fn a_wait_of_a_moment_does_not_hide_one_that_lasts() {
    let of = |locked: f64| first(&small_pool(&[(Some("worker-3/9"), 140.0)], locked, 19.0));
    assert_eq!([of(5.0), of(60.0)], ["small-pool", "contended-lock"]);
}

#[test]
fn a_lock_that_holds_threads_up_goes_first_where_others_have_the_cpus() {
    let of = |others: f64, waited: f64, queued: f64| {
        let mut tables = stacks(&[
            ("user", "stamps;start_thread;handle;stamp;__strftime_l", 600.0),
            ("user", "stamps;start_thread;handle;insert", 200.0),
        ]);
        tables.push(lock(1000.0, waited));
        let waits: [(&[&str], &[f64]); 1] =
            [(&["stamps", "user lock", "table_lock", "a run queue"], &[waited, 1000.0, waited, queued])];
        let words = ["process", "doing", "what", "holder_in"];
        tables.push(table("thread_time", &words, &["seconds", "waits", "held", "held_asleep"], &waits));
        let list = Findings::of(&observed(4.0, others, tables)).unwrap().list;
        list.into_iter().map(|found| (found.id, found.sentence)).collect::<Vec<_>>()
    };
    let found = of(6.0, 5.0, 0.5);
    assert_eq!((&*found[0].0, &*found[1].0), ("contended-lock", "functions-of-libraries"));
    assert!(found[0].1.starts_with("Threads wait 5.00 thread-seconds"), "{}", found[0].1);
    assert_eq!(of(6.0, 0.9, 0.0).len(), 1, "a tenth of the threads' lives");
    assert_eq!(of(6.0, 5.0, 4.0)[0].0, "functions-of-libraries", "its holders waited for a CPU");
    assert_eq!(of(0.0, 5.0, 0.5)[0].0, "functions-of-libraries", "CPUs idled, and not for the lock");
}

#[test]
fn a_lock_goes_before_a_function_of_a_library_that_takes_up_to_twice_as_much() {
    let of = |locked: f64| {
        let wait = "stamps;start_thread;handle;insert;pthread_mutex_lock;__lll_lock_wait;do_syscall_64_[k];__x64_sys_futex_[k]";
        let mut tables = stacks(&[
            ("user", "stamps;start_thread;handle;stamp;__strftime_l", 800.0),
            ("user", "stamps;start_thread;handle;insert", 700.0 - locked),
            ("syscall", wait, locked),
        ]);
        tables.push(lock(1000.0, 5.0));
        let list = Findings::of(&recording(0.0, tables)).unwrap().list;
        list.into_iter().map(|found| found.id).collect::<Vec<_>>()
    };
    assert_eq!(of(500.0), ["contended-lock", "functions-of-libraries"]);
    assert_eq!(of(300.0), ["functions-of-libraries", "contended-lock"]);
}

#[test]
fn what_is_known_of_code_with_names_goes_before_a_compiler_that_ends() {
    let of = |known: f64| {
        let row = |thread, stack| ["on-cpu", "target", "user", "java", thread, stack];
        let rows = [
            (row("C2 CompilerThre", "C2 CompilerThre;start_thread;Compile::Optimize()"), [300.0]),
            (row("app", "x;App.seal;javax.crypto.Cipher.getInstance"), [known]),
            (row("app", "x;App.seal;App.store"), [700.0 - known]),
            (row("app", "x;[anon];[anon]"), [600.0]),
        ];
        let rows: Vec<(&[&str], &[f64])> = rows.iter().map(|(texts, n)| (&texts[..], &n[..])).collect();
        let tables = vec![
            table("stacks", &["kind", "at", "class", "process", "thread", "stack"], &["samples"], &rows),
            table(
                "samples",
                &["at", "class", "detail", "process"],
                &["samples"],
                &[(&["target", "user", "x", "java"], &[1600.0])],
            ),
        ];
        let list = Findings::of(&recording(0.0, tables)).unwrap().list;
        list.into_iter().map(|found| found.id).collect::<Vec<_>>()
    };
    // A fifth of the code with names; of all it is an eighth.
    assert_eq!(of(150.0), ["algorithms-fetched", "java-compiles"]);
    assert_eq!(of(80.0), ["java-compiles"]);
}

#[test]
fn casts_within_a_librarys_stream_are_the_streams() {
    let of = |between: &str| {
        let stack =
            format!("stamps;start_thread;render;{between}std::use_facet<std::ctype<char> >;__dynamic_cast");
        first(&recording(
            0.0,
            stacks(&[("user", &stack, 800.0), ("user", "stamps;start_thread;render", 800.0)]),
        ))
    };
    assert_eq!(of("std::basic_ios<char, std::char_traits<char> >::init(int);"), "streams-made");
    assert_eq!(of(""), "dynamic-casts");
}

/// The program stands behind another, which has much of the machine.
fn behind(process: &str, seconds: f64) -> Table {
    table("queued", &["at", "process"], &["seconds"], &[(&["other", process], &[seconds])])
}

#[test]
fn a_program_behind_another_is_told_so_before_a_small_cause() {
    let of = |others: f64, seconds: f64| {
        let recv = "stamps;main;peek_line;__recv;do_syscall_64_[k];__x64_sys_recvfrom_[k];_copy_to_iter_[k]";
        let mut tables = stacks(&[("syscall", recv, 300.0)]);
        tables.push(behind("postgres", seconds));
        text(&observed(2.0, others, tables)).replace("\n  ", " ")
    };
    let crowded = of(7.0, 6.5);
    let words = "Other programs have 70 % of the capacity, and the program's threads waited 6.50 thread-s for a CPU behind \
                 postgres; `ncpu watch -a` shows all of them. ";
    assert!(crowded.contains(words), "{crowded}");
    assert!(!of(7.0, 0.5).contains("Other programs have"), "{}", of(7.0, 0.5));
    assert!(!of(1.0, 6.5).contains("Other programs have"), "{}", of(1.0, 6.5));
}

#[test]
fn a_wide_terminal_shows_titles_whole_and_figures_beside_them() {
    let mut tables = stacks(&[("user", "stamps;start_thread;handle;insert", 1600.0)]);
    tables.push(table(
        "user_locks",
        &["lock", "type", "process", "caller", "stack"],
        &["count", "block"],
        &[(
            &[
                "a_lock_whose_name_is_longer_than_a_narrow_terminal_shows",
                "lock",
                "stamps",
                "insert",
                "pthread_mutex_lock;insert",
            ],
            &[20_000.0, 30.0],
        )],
    ));
    let idle = table("idle_time", &[], &["t", "ulock"], &[(&[], &[10.0, 4.0])]);
    let recording = tables.into_iter().chain([idle]).fold(recording(0.0, Vec::new()), Recording::with);
    let of = |width| render(&Onion::peel(&recording).unwrap(), &Findings::of(&recording).unwrap(), width);
    assert!(of(80).contains('…') && !of(200).contains('…'), "{}", of(200));
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(longest(&of(80)) <= 80 && longest(&of(200)) <= 120, "{}", of(200));
    assert_eq!(of(usize::MAX), of(80), "a file has no edge");
}

#[test]
fn all_code_of_a_program_without_symbols_is_not_run_with_its_lock() {
    let of = |place: &str| {
        let mut tables = stacks(&[("user", &format!("stamps;start_thread;{place}"), 1400.0)]);
        let stack = format!("__lll_lock_wait;pthread_mutex_lock;{place}");
        tables.push(table(
            "user_locks",
            &["lock", "type", "process", "caller", "stack"],
            &["count", "block"],
            &[(&["0x7f00", "lock", "stamps", place, &stack], &[20_000.0, 30.0])],
        ));
        let idle = table("idle_time", &[], &["t", "ulock"], &[(&[], &[10.0, 2.0])]);
        let recording = tables.into_iter().chain([idle]).fold(recording(0.0, Vec::new()), Recording::with);
        Findings::of(&recording).unwrap().list[0].gain.1
    };
    assert!(of("insert") > 2.0, "{}", of("insert"));
    assert!(of("[unknown git]") < 1.5, "{}", of("[unknown git]"));
}

#[test]
fn new_pages_of_javas_heap_are_not_the_functions_that_meet_them_first() {
    let frames =
        "stamps;JavaThread::run;JavaCalls::call_helper;Pool.work;java.lang.StringConcatHelper.prepend";
    let of = |class| {
        let page = format!("{frames};asm_exc_page_fault_[k];clear_page_erms_[k]");
        let own = format!("{frames};java.lang.String.getBytes");
        let tables =
            stacks(&[("user", &own, 800.0), (class, &page, 600.0), ("user", "stamps;main;Pool.work", 200.0)]);
        let found = Findings::of(&recording(0.0, tables)).unwrap();
        let of_entry = found.list.iter().find(|found| found.id == "java-strings-concatenated");
        of_entry.map_or(0.0, |found| found.seconds)
    };
    assert!((of("fault") - 8.0).abs() < 0.1, "{}", of("fault"));
    assert!((of("user") - 14.0).abs() < 0.1, "{}", of("user"));
}

#[test]
fn code_without_a_name_is_no_place_of_a_serial_part() {
    let of = |code: &str| {
        let alone = table(
            "critical_path",
            &["reason", "process", "thread", "doing", "code"],
            &["idle", "seconds", "count"],
            &[(&["serial", "sim", "sim", "running", code], &[6.0, 2.0, 600.0])],
        );
        let threads = table(
            "threads",
            &["process", "thread"],
            &["pid", "tid", "CPU"],
            &[(&["sim", "sim"], &[7.0, 7.0, 6.0]), (&["sim", "sim"], &[7.0, 8.0, 3.0])],
        );
        let idle = table("idle_time", &[], &["t", "serial"], &[(&[], &[10.0, 4.0])]);
        let recording = [alone, threads, idle].into_iter().fold(recording(0.0, Vec::new()), Recording::with);
        Findings::of(&recording).unwrap().list.first().map(|found| found.title.clone()).unwrap_or_default()
    };
    assert_eq!(of("merge <- step <- main"), "serial code merge of sim");
    assert_eq!(of("[unknown zstd] <- [unknown zstd]"), "one thread at work: sim");
}

#[test]
fn without_names_the_sentence_begins_with_the_program_that_works() {
    let mut tables = stacks(&[("user", "stamps;[unknown stamps]", 1400.0)]);
    let samples = table(
        "samples",
        &["at", "class", "detail", "process"],
        &["samples"],
        &[(&["target", "user", "[unknown stamps]", "stamps"], &[1400.0])],
    );
    tables[1] = samples;
    let stack = "__lll_lock_wait;pthread_mutex_lock;[unknown stamps]";
    tables.push(table(
        "user_locks",
        &["lock", "type", "process", "caller", "stack"],
        &["count", "block"],
        &[(&["0x7f00", "lock", "stamps", "[unknown stamps]", stack], &[20_000.0, 1.0])],
    ));
    let idle = table("idle_time", &[], &["t", "ulock"], &[(&[], &[10.0, 0.5])]);
    let recording = tables.into_iter().chain([idle]).fold(observed(9.6, 0.0, Vec::new()), Recording::with);
    let text = text(&recording).replace("\n  ", " ");
    assert!(
        text.contains("Most is the program's own work (stamps), 96 % of the capacity. Beside it: One lock"),
        "{text}"
    );
}

#[test]
fn sleeps_of_one_thread_do_not_cost_what_others_do() {
    let sleep = "stamps;start_thread;keep;clock_nanosleep;__x64_sys_clock_nanosleep_[k];schedule_[k]";
    let other = "stamps;start_thread;serve;epoll_wait;__x64_sys_epoll_wait_[k];schedule_[k]";
    let of = |sleeps: f64| {
        let mut tables = stacks(&[
            ("switch", sleep, 50.0),
            ("switch", other, 400.0),
            ("switch", "stamps;start_thread;serve;exit_to_user_mode_loop_[k];schedule_[k]", 100.0),
            ("syscall", "stamps;start_thread;serve;send;entry_SYSCALL_64_[k]", 300.0),
            ("syscall", "stamps;start_thread;keep;clock_nanosleep;entry_SYSCALL_64_[k]", 10.0),
        ]);
        let threads: (&[&str], &[f64]) = (&["stamps", "stamps"], &[1.0, 100_000.0]);
        tables.push(table("threads", &["process", "thread"], &["tid", "VCX"], &[threads]));
        let sleeps: (&[&str], &[f64]) = (&["clock_nanosleep", "stamps"], &[sleeps, 8.0, 9.0, 1.0]);
        tables.push(table(
            "sleepers",
            &["call", "process"],
            &["count", "asked", "slept", "threads"],
            &[sleeps],
        ));
        let all = Findings::of(&recording(0.0, tables)).unwrap();
        let found = all.list.into_iter().chain(all.others).find(|found| found.id == "short-sleeps");
        let parts = found.expect("it sleeps a thousand times a second").parts;
        parts.iter().filter(|part| part.what == "switches").map(|part| part.seconds).sum::<f64>()
    };
    // Its own switches, and of 100 that are known for nobody the part of its sleeps: 60 and 150 samples.
    let ratio = of(10_000.0) / of(100_000.0);
    assert!((0.39..0.41).contains(&ratio), "{ratio}");
}

#[test]
fn sleeps_that_are_fewer_than_calls_do_not_lie_between_them() {
    let of = |sleeps: f64| {
        let mut tables = stacks(&[
            ("syscall", "stamps;main;list;getdents64;__x64_sys_getdents64_[k];iterate_dir_[k]", 500.0),
            ("user", "stamps;main;list", 300.0),
        ]);
        let sleeps: (&[&str], &[f64]) = (&["clock_nanosleep", "stamps"], &[sleeps, 0.1, 0.1, 1.0]);
        tables.push(table(
            "sleepers",
            &["call", "process"],
            &["count", "asked", "slept", "threads"],
            &[sleeps],
        ));
        let found = Findings::of(&recording(0.0, tables)).unwrap().list.swap_remove(0);
        found.lines.iter().any(|line| line.label == "sleeps")
    };
    assert!(of(50_000.0));
    assert!(!of(5.0));
}

#[test]
fn memory_that_each_process_maps_once_is_not_mapped_again_and_again() {
    let of = |processes: usize| {
        let mut tables = stacks(&[
            ("syscall", "stamps;main;free;munmap;do_syscall_64_[k];__x64_sys_munmap_[k]", 12.0),
            ("fault", "stamps;main;fill;asm_exc_page_fault_[k];do_anonymous_page_[k]", 60.0),
            ("user", "stamps;main;fill", 100.0),
        ]);
        let numbers: Vec<[f64; 3]> = (0..processes).map(|i| [7.0 + i as f64, 7.0 + i as f64, 9.0]).collect();
        let rows: Vec<(&[&str], &[f64])> =
            numbers.iter().map(|n| (&["stamps", "stamps"][..], &n[..])).collect();
        tables.push(table("threads", &["process", "thread"], &["pid", "tid", "VCX"], &rows));
        let all = Findings::of(&recording(0.0, tables)).unwrap();
        all.list.iter().chain(&all.others).any(|found| found.id == "map-churn")
    };
    assert!(of(1));
    assert!(!of(6));
}

#[test]
fn a_server_whose_answers_wait_for_an_acknowledgement_waits_for_the_next_request() {
    let poll = "main;serve;gets;poll;__x64_sys_poll_[k];do_sys_poll_[k]";
    let of = |waits: f64, seconds: f64, acks: f64| {
        let events: (&[&str], &[f64]) = (&["delayed ACKs"], &[acks]);
        let tables =
            vec![slept(&[("app", poll, seconds, waits)]), table("events", &["event"], &["count"], &[events])];
        first(&recording(0.0, tables))
    };
    assert_eq!(of(220.0, 9.7, 225.0), "delayed-ack");
    assert_ne!(of(220.0, 9.7, 20.0), "delayed-ack", "the kernel delayed few");
    assert_ne!(of(220.0, 9.7, 900.0), "delayed-ack", "of other programs");
    assert_ne!(of(280.0, 9.7, 280.0), "delayed-ack", "35 ms are too short");
}

/// A program whose first thread runs `prepare` alone while CPUs idle, and runs 11 CPU-seconds; stacks, threads as process, number and
/// seconds.
fn alone(on_cpu: &[(&str, &str, f64)], busy: &[[f64; 3]]) -> Findings {
    let mut tables = stacks(on_cpu);
    tables.push(table(
        "critical_path",
        &["reason", "process", "thread", "doing", "code", "stack"],
        &["idle", "seconds", "count"],
        &[(&["serial", "stamps", "stamps", "running", "prepare", "stamps;main;prepare"], &[8.0, 8.0, 100.0])],
    ));
    let rows: Vec<(&[&str], &[f64])> = busy.iter().map(|n| (&["stamps", "stamps"][..], &n[..])).collect();
    tables.push(table("threads", &["process", "thread"], &["pid", "tid", "CPU"], &rows));
    let idle = table("idle_time", &[], &["t", "serial"], &[(&[], &[10.0, 9.0])]);
    Findings::of(&observed(5.5, 0.0, tables).with(idle)).unwrap()
}

#[test]
fn what_runs_beside_a_runtimes_collector_is_not_parallel() {
    let of = |stack: &str| {
        let found = alone(
            &[("user", "stamps;main;prepare", 900.0), ("user", stack, 150.0)],
            &[[1.0, 1.0, 6.0], [1.0, 2.0, 5.0]],
        );
        found.list.first().map_or_else(String::new, |found| found.id.clone())
    };
    assert_eq!(of("stamps;start_thread;compute"), "serial-function");
    assert_eq!(of("stamps;runtime.goexit.abi0;runtime.gcBgMarkWorker;runtime.gcDrain"), "");
}

#[test]
fn processes_one_after_another_are_no_workers_of_one_program() {
    let of = |pids: [f64; 3]| {
        let [a, b, c] = pids;
        let on_cpu = [("user", "stamps;main;prepare", 900.0), ("user", "stamps;main;compute", 200.0)];
        let found = alone(&on_cpu, &[[a, 1.0, 4.0], [b, 2.0, 4.0], [c, 3.0, 3.0]]);
        found.list.first().map_or_else(String::new, |found| found.id.clone())
    };
    assert_eq!(of([1.0, 1.0, 1.0]), "serial-function");
    assert_eq!(of([1.0, 2.0, 3.0]), "");
}

#[test]
fn a_collectors_workers_that_wait_for_the_next_run_hand_no_work_over() {
    let of = |function: &str| {
        let stack = format!("PosixSemaphore::wait;{function};start_thread;clone3");
        let mut tables = stacks(&[
            ("user", "stamps;start_thread;work", 900.0),
            (
                "syscall",
                &format!(
                    "stamps;start_thread;{function};PosixSemaphore::wait;do_syscall_64_[k];do_futex_[k]"
                ),
                400.0,
            ),
        ]);
        tables.push(table(
            "user_locks",
            &["lock", "type", "process", "caller", "stack"],
            &["count", "block"],
            &[(&["0x7f00", "semaphore", "stamps", function, &stack], &[30_000.0, 9.0])],
        ));
        first(&recording(0.0, tables))
    };
    assert_eq!(of("Mailbox::take"), "fine-hand-offs");
    assert_eq!(of("GangWorker::loop"), "");
}

#[test]
fn threads_of_one_name_with_work_of_their_own_are_of_several_kinds() {
    let of = |other: &str| {
        let other = format!("stamps;start_thread;{other};prepare");
        let mut tables =
            stacks(&[("user", "stamps;start_thread;logger;format", 950.0), ("user", &other, 250.0)]);
        tables.push(table(
            "user_locks",
            &["lock", "type", "process", "caller", "holder", "stack"],
            &["count", "block"],
            &[(
                &[
                    "0x5580",
                    "condition",
                    "stamps",
                    "submit",
                    "stamps/13",
                    "pthread_cond_wait;submit;deal;main",
                ],
                &[10_000.0, 8.0],
            )],
        ));
        let busy = [[7.0, 13.0, 9.5], [7.0, 10.0, 1.2], [7.0, 11.0, 1.2]];
        let rows: Vec<(&[&str], &[f64])> = busy.iter().map(|n| (&["stamps", "stamps"][..], &n[..])).collect();
        tables.push(table("threads", &["process", "thread"], &["pid", "tid", "CPU"], &rows));
        let idle = table("idle_time", &[], &["t", "serial"], &[(&[], &[10.0, 8.0])]);
        let found = Findings::of(&observed(6.0, 0.0, tables).with(idle)).unwrap();
        found.list.iter().any(|found| found.id == "work-given-to-one-thread")
    };
    assert!(of("logger") && !of("worker"));
}

#[test]
fn taking_tasks_back_is_a_part_of_handing_them_out() {
    let of = |function: &str| {
        let stack = format!("stamps;java.util.concurrent.ForkJoinTask.doExec;App.compute;{function}");
        first(&recording(0.0, stacks(&[("user", "stamps;App.compute", 1000.0), ("user", &stack, 400.0)])))
    };
    assert_eq!(of("java.util.concurrent.ForkJoinTask.awaitDone"), "tasks-too-small");
    assert_eq!(of("java.util.concurrent.ForkJoinTask.join"), "tasks-too-small");
    assert_eq!(of("App.merge"), "");
}

#[test]
fn making_direct_buffers_is_a_part_of_collecting_for_them() {
    let of = |function: &str| {
        let buffers = format!("java;start_thread;App.encode;{function};__memset_avx2_unaligned");
        let collects =
            "GC Thread#0;start_thread;thread_native_entry(Thread*);G1ParScanThreadState::trim_queue";
        let asks =
            "asleep;java;App.encode;java.nio.Bits.reserveMemory;java.lang.Runtime.gc;JVM_GC;do_futex_[k]";
        let texts = [
            ["on-cpu", "target", "user", "asleep", "java", "GC Thread#0", collects],
            ["on-cpu", "target", "fault", "asleep", "java", "java", &buffers],
            ["off-cpu", "target", "user", "asleep", "java", "java", asks],
        ];
        let numbers = [[3.0, 300.0], [3.0, 300.0], [3.0, 20.0]];
        let rows: Vec<(&[&str], &[f64])> =
            texts.iter().zip(&numbers).map(|(t, n)| (&t[..], &n[..])).collect();
        let columns = ["kind", "at", "class", "wait", "process", "thread", "stack"];
        let samples: [(&[&str], &[f64]); 2] =
            [(&["target", "user", "x", "java"], &[300.0]), (&["target", "fault", "x", "java"], &[300.0])];
        let tables = vec![
            table("stacks", &columns, &["seconds", "samples"], &rows),
            table("samples", &["at", "class", "detail", "process"], &["samples"], &samples),
        ];
        let found = Findings::of(&recording(0.0, tables)).unwrap();
        let first = found
            .list
            .iter()
            .find(|found| found.id == "java-direct-memory-collects")
            .unwrap_or_else(|| panic!("{:?}", found.list));
        first.seconds
    };
    let (others, buffers) = (of("App.fill"), of("Unsafe_SetMemory0"));
    assert!(buffers > 1.8 * others && others > 0.0, "{others} {buffers}");
}

#[test]
fn a_cause_to_act_on_goes_before_that_one_thread_is_at_work() {
    let of = |listing: f64| {
        let call = "stamps;main;open;getdents64;do_syscall_64_[k];__x64_sys_getdents64_[k];iterate_dir_[k]";
        let mut tables = stacks(&[
            ("user", "stamps;main;prepare", 1000.0 - listing),
            ("user", "stamps;start_thread;compute", 400.0),
            ("syscall", call, listing),
        ]);
        let code = ["prepare", "read", "sort"];
        let rows = code.map(|code| ["serial", "stamps", "stamps", "running", code, code]);
        let rows: Vec<(&[&str], &[f64])> = rows.iter().map(|row| (&row[..], &[2.0, 2.0, 50.0][..])).collect();
        let columns = ["reason", "process", "thread", "doing", "code", "stack"];
        tables.push(table("critical_path", &columns, &["idle", "seconds", "count"], &rows));
        let busy = [[7.0, 7.0, 9.0], [7.0, 8.0, 4.0]];
        let rows: Vec<(&[&str], &[f64])> = busy.iter().map(|n| (&["stamps", "stamps"][..], &n[..])).collect();
        tables.push(table("threads", &["process", "thread"], &["pid", "tid", "CPU"], &rows));
        let idle = table("idle_time", &[], &["t", "serial"], &[(&[], &[10.0, 6.0])]);
        first(&observed(7.0, 0.0, tables).with(idle))
    };
    assert_eq!(of(120.0), "directory-listings");
    assert_eq!(of(60.0), "serial-thread", "too small to be advised on");
}

#[test]
fn another_way_to_do_the_same_may_spare_more_than_a_functions_own_time() {
    let replaced = "stamps;main;execute_command;pat_subst;xdupmbstowcs";
    let found = Findings::of(&recording(
        0.0,
        stacks(&[("user", replaced, 500.0), ("user", "stamps;main;work", 900.0)]),
    ));
    let found = found.unwrap().list;
    assert_eq!((&*found[0].id, found[0].gain_at_most()), ("texts-replaced-in-bash", None));
    assert!(found[0].gain_words().ends_with("or more"), "{}", found[0].gain_words());
    let lock = Findings::of(&contended()).unwrap().list;
    assert_eq!((&*lock[0].id, lock[0].gain_at_most()), ("contended-lock", Some(lock[0].gain.1)));
}

#[test]
fn pythons_own_lock_is_not_taken_too_often_by_the_program() {
    let of = |caller: &str| {
        let locked = format!("stamps;main;insert;PyEval_RestoreThread;{caller};__pthread_mutex_lock");
        first(&recording(
            0.0,
            stacks(&[("user", &locked, 300.0), ("user", "stamps;main;insert;step", 900.0)]),
        ))
    };
    assert_eq!([of("take_gil"), of("enter")], ["", "lock-functions"]);
}

#[test]
fn a_function_that_only_takes_a_lock_does_not_hold_it() {
    let of = |caller: &str, stack: &str, on_cpu: &[(&str, &str, f64)]| {
        let mut tables = stacks(on_cpu);
        let words: &[&str] = &["0x7f01", "lock", "stamps", caller, stack];
        tables.push(table(
            "user_locks",
            &["lock", "type", "process", "caller", "stack"],
            &["count", "block"],
            &[(words, &[100.0, 8.0])],
        ));
        super::named_locks(&observed(8.0, 0.0, tables)).unwrap()[0].inside
    };
    let stack = "__lll_lock_wait;pthread_mutex_lock;enter;put;worker;start_thread";
    let work = ("user", "stamps;start_thread;worker;factor", 600.0);
    let send = ("user", "stamps;start_thread;worker;put;send", 100.0);
    let check = ("user", "stamps;start_thread;worker;put;enter;check", 100.0);
    let take = ("user", "stamps;start_thread;worker;put;enter;pthread_mutex_lock", 100.0);
    let [its_own, callers, workers] =
        [&[work, check][..], &[work, send, take], &[work]].map(|on_cpu| of("enter", stack, on_cpu));
    // Two CPUs ran the program for eight seconds each.
    let near = |got: f64, want: f64| (got - want).abs() < 0.01;
    assert!(near(its_own, 16.0 / 7.0), "{its_own}");
    assert!(near(callers, 16.0 / 8.0), "{callers}");
    assert!(near(workers, 16.0), "{workers}");
}

#[test]
fn keys_in_certificates_that_tls_settings_read_are_of_these() {
    let of = |frame: &str| {
        let stack =
            format!("stamps;main;session;{frame};PEM_X509_INFO_read_bio_ex;d2i_PUBKEY;OSSL_DECODER_from_bio");
        first(&observed(8.0, 0.0, stacks(&[("user", &stack, 800.0)])))
    };
    assert_eq!(of("SSL_CTX_load_verify_locations"), "clients-made");
    assert_eq!(of("read_key"), "keys-parsed");
}

#[test]
fn pools_without_work_do_not_hide_what_the_program_waits_for() {
    let polls = "main;ask;poll;__x64_sys_poll_[k];do_sys_poll_[k]";
    let pool = "start_thread;worker;pthread_cond_wait;__x64_sys_futex_[k];do_futex_[k]";
    let of = |asked: f64| {
        let mut tables = vec![slept(&[("stamps", polls, asked, 100.0), ("stamps", pool, 36.0, 20.0)])];
        let row: &[f64] = &[1.0, 0.3, 36.0 + asked];
        tables.push(table(
            "threads",
            &["process", "thread"],
            &["tid", "CPU", "SLP"],
            &[(&["stamps", "stamps"], row)],
        ));
        Findings::of(&observed(0.2, 0.0, tables)).unwrap().waits.map(|(words, _)| words)
    };
    assert!(of(9.0).unwrap().starts_with("in poll"), "{:?}", of(9.0));
    assert!(of(0.1).unwrap().starts_with("in futex"), "nothing else is waited for: {:?}", of(0.1));
}
