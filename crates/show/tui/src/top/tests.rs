use ncpu_table::{Column, Kind, Type, Unit};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

/// A table of cells as text: numbers where the column begins with `#`, `-` is null.
fn table(name: &str, columns: &[&str], rows: &[&[&str]]) -> Table {
    let shown: Vec<Column> = columns
        .iter()
        .map(|column| match column.strip_prefix('#') {
            Some(name @ ("pid" | "tid")) => Column::id(name, ""),
            Some("cpu") => Column::id("CPU", ""),
            Some(name) => Column::float(name, Unit::Percent, Kind::Share, ""),
            None => Column::text(column, ""),
        })
        .collect();
    let mut out = Table::builder(name, &shown);
    for cells in rows {
        let mut row = out.row();
        for (cell, column) in cells.iter().zip(&shown) {
            row = match column.ty {
                _ if *cell == "-" => row.null(),
                Type::Text => row.text(cell),
                Type::Int => row.int(cell.parse().unwrap()),
                Type::Float => row.float(cell.parse().unwrap()),
            };
        }
    }
    out.finish()
}

fn stack(pid: u32, tid: u32, stack: &str, layer: Layer, seconds: f64) -> Stack {
    Stack { pid, tid, stack: stack.into(), layer, seconds }
}

fn asleep(process: &str, thread: &str, wait: &str, stack: &str, seconds: f64) -> Asleep {
    Asleep { process: process.into(), thread: thread.into(), wait: wait.into(), stack: stack.into(), seconds }
}

/// A name that would turn the terminal red, set its title and turn the reading direction.
const HOSTILE: &str = "ev\x1b[31mil\x1b]0;x\x07\u{202e}";

fn interval() -> Interval {
    let thread =
        ["#pid", "#tid", "#CPU", "#LAT", "#LCK", "#SLP", "#spin", "#VCX", "#ICX", "#flt", "name", "thread"];
    let process: Vec<&str> = thread.into_iter().filter(|c| !matches!(*c, "#tid" | "thread")).collect();
    Interval {
        elapsed: 2.0,
        cpus: 2,
        tenants: table("tenants", &["#share", "#waiting", "tenant", "culprit"], &[]),
        tenant_layers: table("tenants", &["tenant", "layer", "#share", "#seconds"], &[]),
        ledger: table("ledger", &["victim", "culprit", "cause", "lock", "#threads", "#cpus"], &[]),
        layers: table(
            "layers",
            &["layer", "#share", "#seconds", "#error", "recoverable", "#gain", "evidence", "advice"],
            &[
                &[
                    "kernel lock spin",
                    "31.2",
                    "1.248",
                    "0.051",
                    "yes",
                    "1.45",
                    "files_struct.file_lock 98 % (fdtorture); 457671 waits",
                    "give each thread a table of descriptors of its own (unshare(CLONE_FILES)), or let fewer threads open and close files",
                ],
                &["system calls", "4.1", "0.164", "0.02", "yes", "1.04", "dup2 60 %; close 40 %", ""],
                &["user code", "52.5", "2.1", "0.06", "no", "-", "cc1 90 %", ""],
                &["idle", "12.2", "0.488", "0", "no", "-", "", ""],
            ],
        ),
        threads: table(
            "threads",
            &thread,
            &[
                &["70", "71", "12.5", "3", "0", "84.5", "0", "120", "8", "0", "postgres", "postgres"],
                &[
                    "80",
                    "80",
                    "98.2",
                    "1.8",
                    "0",
                    "0",
                    "61.2",
                    "0.5",
                    "30",
                    "1234567",
                    "fdtorture",
                    "fdtorture",
                ],
                &["90", "91", "40", "0", "60", "0", "0", "15000", "3", "7", HOSTILE, "w1"],
                &["90", "92", "20", "0", "0", "80", "0", "1", "0", "0", HOSTILE, "w2"],
            ],
        ),
        processes: table(
            "processes",
            &process,
            &[
                &["70", "12.5", "3", "0", "84.5", "0", "120", "8", "0", "postgres"],
                &["80", "98.2", "1.8", "0", "0", "61.2", "0.5", "30", "1234567", "fdtorture"],
                &["90", "60", "0", "60", "80", "0", "15001", "3", "7", HOSTILE],
            ],
        ),
        locks: table(
            "locks",
            &[
                "lock",
                "name",
                "type",
                "#waiting",
                "#util",
                "#waits",
                "#spin_us",
                "#block_us",
                "#max",
                "process",
            ],
            &[
                &[
                    "files_struct.file_lock",
                    "files_struct.file_lock",
                    "spinlock",
                    "0.624",
                    "31.2",
                    "228835",
                    "2.7",
                    "0",
                    "96",
                    "-",
                ],
                &["0x7f00", "GIL of python3", "lock", "1.2", "-", "400", "-", "3000", "12000", HOSTILE],
                &["0x7f10", HOSTILE, "lock", "0.1", "-", "40", "-", "300", "120", "web"],
            ],
        ),
        waiters: table(
            "waiters",
            &["lock", "type", "process", "caller", "holder", "#count", "#spin", "#block", "stack"],
            &[
                &[
                    "files_struct.file_lock",
                    "spinlock",
                    "-",
                    "close_fd",
                    "-",
                    "3",
                    "0.4",
                    "0",
                    "close_fd;__x64_sys_close;do_syscall_64",
                ],
                &["0x7f00", "lock", HOSTILE, "push", "w2/92", "800", "0", "2.4", "push;run;main"],
            ],
        ),
        cpus_table: table(
            "cpus",
            &["#cpu", "#prog", "#othr", "#spin", "#intr", "#soft", "#tlb", "#ncpu", "#idl"],
            &[
                &["0", "60", "0", "30", "1", "1", "0", "2", "6"],
                &["1", "40", "0", "32", "2", "4", "1", "3", "18"],
            ],
        ),
        stacks: vec![
            Stack {
                pid: 80,
                tid: 80,
                stack: "fdtorture;main;dup2;do_syscall_64_[k];file_lock_[k]".into(),
                layer: Layer::KernelSpin,
                seconds: 1.2,
            },
            stack(80, 80, "fdtorture;main;close;do_syscall_64_[k]", Layer::Calls, 0.6),
            stack(90, 91, "w1;start;\x1b[2Jwork", Layer::User, 0.4),
            stack(90, 92, "w2;start;other", Layer::User, 0.2),
        ],
        asleep: vec![
            asleep(HOSTILE, "w1", "user lock", "start;push;futex_wait_[k]", 1.2),
            asleep(HOSTILE, "w2", "asleep", "start;sleep", 1.6),
            asleep("another", "w1", "asleep", "elsewhere", 7.0),
        ],
        notes: vec!["no hardware counters".into()],
    }
}

fn top() -> Top {
    let places = (0..2).map(|cpu| Place { cpu, core: cpu, package: 0 }).collect();
    let mut top = Top::new("the machine", places, false);
    top.update(interval());
    top
}

fn press(top: &mut Top, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '^' => KeyCode::Esc,
            'v' => KeyCode::Down,
            '<' => KeyCode::Backspace,
            '\t' => KeyCode::Tab,
            key => KeyCode::Char(key),
        };
        assert!(!top.press(code, KeyModifiers::NONE), "{key} leaves");
    }
}

fn screen(top: &mut Top, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| top.draw(frame)).unwrap();
    terminal.backend().to_string()
}

fn show(keys: &str) -> String {
    let mut top = top();
    press(&mut top, keys);
    screen(&mut top, 80, 24)
}

#[test]
fn the_views() {
    insta::assert_snapshot!("onion", show(""));
    insta::assert_snapshot!("threads", show("2"));
    insta::assert_snapshot!("locks", show("3"));
    insta::assert_snapshot!("cpus", show("4"));
    insta::assert_snapshot!("processes", show("2f"));
    assert_eq!(show("\t\t"), show("3"));
}

#[test]
fn wide_screens_show_more() {
    let mut top = top();
    top.update(interval());
    insta::assert_snapshot!("onion_wide", screen(&mut top, 160, 12));
    press(&mut top, "3");
    insta::assert_snapshot!("locks_wide", screen(&mut top, 160, 8));
}

#[test]
fn what_is_behind_a_row() {
    insta::assert_snapshot!("thread", show("2\n"));
    insta::assert_snapshot!("lock", show("3\n"));
    insta::assert_snapshot!("layer", show("\n"));
    insta::assert_snapshot!("help", show("?"));
    let thread = show("2v\n");
    assert!(thread.contains("\\x1b[2Jwork") && thread.contains(": 1.20 s of all threads"), "{thread}");
    assert!(thread.contains("futex_wait_[k]") && !thread.contains("elsewhere"), "{thread}");
    let process = show("2fv\n");
    assert!(
        process.contains("other") && process.contains("0.60 s of 2.0 s"),
        "both of its threads: {process}"
    );
    assert!(process.contains(": 2.80 s of all threads"), "and not those of another name: {process}");
    // More than the panel below the onion has: the layer's locks, processes, CPUs and stacks, and no others.
    let layer = show("\n");
    for cause in [
        "files_struct.file_lock (spinlock), 228835 waits",
        "spin   61.2 %  fdtorture (80)",
        "CPU 1",
        "file_lock_[k]",
    ] {
        assert!(layer.contains(cause), "no {cause}: {layer}");
    }
    assert!(!layer.contains("GIL") && !layer.contains("%  close"), "{layer}");
    let lock = show("3\n");
    assert!(lock.contains("GIL of python3 (lock) at 0x7f00") && lock.contains("futex_wait_[k]"), "{lock}");
    assert_eq!(show("2\n^"), show("2"), "and back");
    assert!(show("n").contains("no hardware counters"));
}

#[test]
fn text_of_others_moves_no_cursor() {
    for keys in ["2", "2f", "3", "2v\n", "2fv\n", "3\n"] {
        let mut top = top();
        press(&mut top, keys);
        let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
        terminal.draw(|frame| top.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        assert!(!cells.iter().any(|c| c.symbol().chars().any(safe::is_unsafe)), "{keys}");
    }
    assert!(show("2").contains(r"ev\x1b[31mil"), "{}", show("2"));
}

#[test]
fn rows_are_sorted_filtered_and_turned_round() {
    let first = |keys: &str| {
        let mut top = top();
        press(&mut top, keys);
        let (table, row) = top.list().unwrap().selected().unwrap();
        table.text(row, "thread").unwrap().to_string()
    };
    assert_eq!(first("2"), "fdtorture");
    assert_eq!(first("2r"), "postgres");
    assert_eq!(first("2k"), "postgres", "more LAT than any other");
}

#[test]
fn sorting_by_each_column_comes_round() {
    let mut top = top();
    press(&mut top, "2");
    let mut seen = Vec::new();
    for _ in 0..THREADS.iter().filter(|c| c.sorts()).count() {
        seen.push(top.threads.told());
        press(&mut top, "k");
    }
    assert_eq!(top.threads.told(), seen[0], "all columns once: {seen:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), THREADS.iter().filter(|c| c.sorts()).count());
    press(&mut top, "K");
    assert_ne!(top.threads.told(), seen[0]);
}

#[test]
fn a_filter_is_typed_and_wiped_out() {
    let mut top = top();
    press(&mut top, "2/POST");
    assert!(screen(&mut top, 80, 24).contains("filter: POST_"));
    press(&mut top, "\n");
    let text = screen(&mut top, 80, 24);
    assert!(
        text.contains("postgres") && !text.contains("fdtorture") && text.contains("1 of 4 rows"),
        "{text}"
    );
    press(&mut top, "/<<<<91\n");
    let text = screen(&mut top, 80, 24);
    assert!(text.contains("w1") && !text.contains("w2") && !text.contains("postgres"), "{text}");
    press(&mut top, "^");
    assert!(screen(&mut top, 80, 24).contains("postgres"));
    // Keys that leave elsewhere are text there.
    press(&mut top, "/q1");
    assert!(screen(&mut top, 80, 24).contains("filter: q1_"));
    press(&mut top, "^");
    assert!(!screen(&mut top, 80, 24).contains("filter:"));
}

#[test]
fn a_selected_row_stays_so_where_it_goes() {
    let mut top = top();
    press(&mut top, "2v");
    let chosen = |top: &mut Top| {
        let (table, row) = top.list().unwrap().selected().unwrap();
        table.int(row, "tid")
    };
    assert_eq!(chosen(&mut top), Some(91));
    press(&mut top, "r");
    assert_eq!(chosen(&mut top), Some(91));
    let mut next = interval();
    next.threads = table(
        "threads",
        &["#pid", "#tid", "#CPU", "name", "thread"],
        &[&["90", "91", "1", "a", "b"], &["1", "2", "9", "c", "d"]],
    );
    top.update(next.clone());
    assert_eq!(chosen(&mut top), Some(91));
    next.threads =
        table("threads", &["#pid", "#tid", "#CPU", "name", "thread"], &[&["1", "2", "9", "c", "d"]]);
    top.update(next);
    assert_eq!(chosen(&mut top), Some(2), "it has ended");
}

#[test]
fn paused_nothing_changes_and_stacks_are_summed_otherwise() {
    let mut top = top();
    press(&mut top, "2\n");
    let mut next = interval();
    next.cpus = 7;
    press(&mut top, "p");
    top.update(next.clone());
    let text = screen(&mut top, 80, 24);
    assert!(text.contains("PAUSED") && text.contains("2 CPUs") && text.contains("1.80 s of 2.0 s"), "{text}");
    press(&mut top, "p");
    top.update(next);
    let text = screen(&mut top, 80, 24);
    assert!(
        !text.contains("PAUSED") && text.contains("7 CPUs") && text.contains("3.60 s of 4.0 s"),
        "{text}"
    );
    top.end();
    assert!(screen(&mut top, 80, 24).contains("ENDED"));
}

#[test]
fn any_size_of_screen_and_no_rows() {
    let mut empty = interval();
    for table in
        [&mut empty.layers, &mut empty.threads, &mut empty.processes, &mut empty.locks, &mut empty.waiters]
    {
        *table = Table::from_batch(table.name(), table.batch().slice(0, 0)).unwrap();
    }
    for interval in [interval(), empty] {
        for keys in ["", "2", "3", "4", "\n", "2\n", "3\n", "?", "2/x"] {
            let mut top = top();
            top.update(interval.clone());
            press(&mut top, keys);
            for (width, height) in [(1, 1), (3, 2), (20, 5), (79, 23), (120, 40), (400, 100)] {
                screen(&mut top, width, height);
            }
            for code in
                [KeyCode::End, KeyCode::PageDown, KeyCode::Down, KeyCode::Up, KeyCode::PageUp, KeyCode::Home]
            {
                top.press(code, KeyModifiers::NONE);
                screen(&mut top, 60, 4);
            }
        }
    }
    let mut new = Top::new("the machine", Vec::new(), true);
    for keys in ["\n", "2\nf", "3", "4", "/x^"] {
        press(&mut new, keys);
        screen(&mut new, 80, 24);
    }
}

#[test]
fn ways_out() {
    assert!(top().press(KeyCode::Char('q'), KeyModifiers::NONE));
    assert!(top().press(KeyCode::Char('c'), KeyModifiers::CONTROL));
    let mut typing = top();
    press(&mut typing, "2/");
    assert!(typing.press(KeyCode::Char('c'), KeyModifiers::CONTROL));
}

#[test]
fn tenants_come_first_where_there_are_some_and_show_whom_they_lose_to() {
    let mut top = Top::new("the machine", Vec::new(), false);
    let machine = |mut interval: Interval| {
        let tenants = ["#share", "#waiting", "tenant", "culprit"];
        let rows: [&[&str]; 2] =
            [&["60", "0", "batch.service", "-"], &["30", "0.8", HOSTILE, "batch.service: run queue"]];
        interval.tenants = table("tenants", &tenants, &rows);
        let layers = ["tenant", "layer", "#share", "#seconds"];
        let rows: [&[&str]; 2] =
            [&[HOSTILE, "user code", "25", "1"], &["batch.service", "user code", "60", "2.4"]];
        interval.tenant_layers = table("tenants", &layers, &rows);
        let ledger = ["victim", "culprit", "cause", "lock", "#threads", "#cpus"];
        let rows: [&[&str]; 3] = [
            &[HOSTILE, "batch.service", "run queue", "-", "1.2", "1.2"],
            // The same on other grounds.
            &[HOSTILE, "batch.service", "run queue", "-", "0.4", "0.4"],
            &[HOSTILE, HOSTILE, "CPU limit", "-", "0.2", "0"],
        ];
        interval.ledger = table("ledger", &ledger, &rows);
        interval
    };
    top.update(machine(interval()));
    let first = screen(&mut top, 80, 24);
    assert!(first.contains("1 tenants  2 onion") && first.contains("batch.service: run queue"), "{first}");
    press(&mut top, "v\n");
    let behind = screen(&mut top, 80, 24);
    assert!(behind.contains("25.0 %  user code") && !behind.contains("60.0 %"), "{behind}");
    assert!(
        behind.contains("1.600  batch.service: run queue")
            && behind.matches("batch.service: run queue").count() == 1
            && behind.contains("itself: CPU limit"),
        "{behind}"
    );
    assert!(!behind.contains('\x1b') && behind.contains("\\x1b"), "{behind}");
    // A view that the user has chosen stays.
    press(&mut top, "^2");
    top.update(machine(interval()));
    assert!(screen(&mut top, 80, 24).contains("kernel lock spin"));
}

#[test]
fn help_is_shown_before_keys_that_help_lists() {
    let keys: Vec<String> = Tab::Tenants.keys().iter().map(ToString::to_string).collect();
    for room in 6..100 {
        let text = super::fitting(&keys, room);
        assert!(text.len() <= room && text.contains("? help"), "{room}: {text}");
    }
    assert_eq!(super::fitting(&keys, 100), keys.join("  "));
}
