use ncpu_record::{Gather, Manifest};

use super::lines::{footer, lines};
use super::*;

fn column(name: &str) -> Column {
    match name {
        "pid" => Column::id(name, ""),
        "wait" | "seconds" => Column::float(name, Unit::CpuSeconds, Kind::Time, ""),
        "elapsed" => Column::float(name, Unit::Seconds, Kind::Time, ""),
        "longest" => Column::float(name, Unit::Microseconds, Kind::Peak, ""),
        "max" => Column::int(name, Unit::None, Kind::Peak, ""),
        "from" | "to" => Column::int(name, Unit::None, Kind::Key, ""),
        "calls" | "targets" | "IPIs" | "packages" | "waited" | "walked" | "received" | "sent" | "asked"
        | "flushes" | "pages" | "whole" | "samples" | "waiting" => Column::count(name, ""),
        "cpus" | "hz" | "targets_told" => Column::int(name, Unit::None, Kind::Gauge, ""),
        _ => Column::text(name, ""),
    }
}

/// Rows of words; `-` is nothing.
fn make(name: &str, columns: &str, rows: &[&str]) -> Table {
    let columns: Vec<Column> = columns.split(' ').map(column).collect();
    let mut out = Table::builder(name, &columns);
    for row in rows {
        let mut cells = out.row();
        for (cell, column) in row.split(' ').zip(&columns) {
            cells = match (cell, column.ty) {
                ("-", _) => cells.null(),
                (_, ncpu_table::Type::Text) => cells.text(cell),
                (_, ncpu_table::Type::Int) => cells.int(cell.parse().unwrap()),
                (_, ncpu_table::Type::Float) => cells.float(cell.parse().unwrap()),
            };
        }
    }
    out.finish()
}

/// Ten seconds of 48 CPUs on 4 packages. The shootdowns of `db` cost twice those of `web`, by targets;
/// a quarter of what CPUs were asked came from others.
fn recording() -> Recording {
    let counts = "targets IPIs packages waited wait max longest";
    let mut gather = Gather::new(Manifest::new(ncpu_schema::Purpose::Crosscalls, 48, Vec::new(), 1.0));
    for table in [
        make(
            "crosscalls",
            &format!("cause function process pid call calls {counts}"),
            &[
                "tlb - db 7 munmap 1000 4000 3900 2000 1000 2.0 40 99",
                "tlb - web 8 [fault] 1000 2000 2000 1000 1000 1.0 2 99",
                "call sync db 7 membarrier 10 470 470 40 10 0.5 47 99",
            ],
        ),
        make(
            "crosscall_callers",
            &format!("cause function process pid call caller user stack walked {counts}"),
            &[
                "tlb - db 7 munmap finish free a;b;c 30 90 90 60 30 0.06 4 99",
                "tlb - db 7 munmap finish free a;b;d 10 10 10 10 10 0.03 4 99",
                "tlb - db 7 munmap zap trim e 10 100 100 40 10 0.01 40 99",
            ],
        ),
        make(
            "crosscalls_received",
            "cause function received seconds sent asked",
            &["tlb - 8000 4.0 3000 8000", "call sync 470 0.25 10 470"],
        ),
        make("crosscall_fanout", "cause from to calls", &["tlb 0 0 500", "tlb 3 4 500", "tlb 3 4 1000"]),
        make("tlb_flushes", "reason flushes pages whole", &["send 2000 3000 500", "switch 100 0 100"]),
        make(
            "crosscall_summary",
            "elapsed cpus packages hz samples waiting targets_told",
            &["10.0 48 4 100 1000 250 1"],
        ),
    ] {
        gather.append(&table).unwrap();
    }
    gather.finish().unwrap()
}

fn row<'a>(t: &'a Table, column: &str, name: &str) -> impl Fn(&str) -> f64 + 'a {
    let r = (0..t.num_rows()).find(|&r| t.text(r, column) == Some(name)).unwrap();
    move |c| t.number(r, c).unwrap()
}

#[test]
fn receivers_time_is_its_senders_by_the_targets_they_asked() {
    let t = table(&recording(), By::Process, 0);
    let db = row(&t, "process", "db");
    assert_eq!((db("calls"), db("fan-out"), db("saved"), db("max")), (1000.0, 4.0, 2.0, 40.0));
    assert_eq!((db("answer"), db("wait"), db("wait_us")), (2.0, 2.0, 2000.0));
    assert!((db("CPU-util") - 4.0 / 480.0).abs() < 1e-12);
    assert_eq!(row(&t, "process", "web")("answer"), 1.0, "a quarter was asked by others");
    assert_eq!(row(&table(&recording(), By::Cause, 0), "function", "sync")("answer"), 0.25);
}

#[test]
fn exact_totals_are_divided_among_callers_and_none_is_lost() {
    let t = table(&recording(), By::Sender, 0);
    let finish = row(&t, "caller", "finish");
    assert_eq!((finish("calls"), finish("fan-out")), (800.0, 2.5));
    assert_eq!((finish("wait"), finish("answer"), finish("max")), (1.8, 1.0, 4.0));
    let sum = |t: &Table, c: &str| (0..t.num_rows()).filter_map(|r| t.number(r, c)).sum::<f64>();
    for by in [By::Sender, By::Caller, By::Process, By::Syscall, By::Cause] {
        let t = table(&recording(), by, 0);
        assert_eq!(sum(&t, "calls"), 2010.0, "{by:?}");
        assert!((sum(&t, "answer") - 3.25).abs() < 1e-9 && (sum(&t, "wait") - 3.5).abs() < 1e-9, "{by:?}");
    }
    assert_eq!((0..t.num_rows()).filter(|&r| t.text(r, "caller") == Some("[not walked]")).count(), 2);
}

#[test]
fn stacks_are_told_apart_no_deeper_than_asked() {
    let stacks = |depth| {
        let t = table(&recording(), By::Caller, depth);
        (0..t.num_rows()).filter(|&r| t.text(r, "caller") == Some("finish")).count()
    };
    assert_eq!((stacks(2), stacks(3)), (1, 2));
}

#[test]
fn the_lines_below() {
    let lines = lines(&recording()).join("\n");
    for part in [
        "201 calls/s; senders waited 3.500 CPU-s (0.73 % of capacity), all receivers answered for 4.250",
        "targets of a tlb: 0: 25.0 %, 3-4: 75.0 %",
        "send 2000 (2 pages each, 500 of everything); switch 100 (100 of everything)",
        "one message a package (4): 3040 instead of 6470, 2.1 times fewer; 12.0 times for a call to all 48",
        "second estimate, by sampling: senders waited 2.500 +- 0.278 CPU-s",
    ] {
        assert!(lines.contains(part), "{part} in\n{lines}");
    }
    let narrow = footer(&recording(), 60);
    assert!(narrow.lines().all(|l| l.chars().count() <= 60), "{narrow}");
}

#[test]
fn the_documents_arithmetic() {
    // Massive Solaris Scalability, part 2: M5-32 has 1536 CPUs on 32 sockets, T5-8 1024 on 8.
    assert_eq!(saved(1536.0, 32.0), Some(48.0));
    assert_eq!(saved(1024.0, 8.0), Some(128.0));
    assert_eq!(saved(0.0, 0.0), None);
}

#[test]
fn a_kernel_that_tells_no_targets() {
    let mut gather = Gather::new(Manifest::new(ncpu_schema::Purpose::Crosscalls, 2, Vec::new(), 1.0));
    for table in [
        make(
            "crosscalls",
            "cause function process pid call calls targets IPIs packages waited wait max longest",
            &["tlb - db 7 munmap 100 - - - 0 - - -"],
        ),
        make("crosscalls_received", "cause function received seconds sent asked", &["tlb - 300 0.5 200 -"]),
        make(
            "crosscall_summary",
            "elapsed cpus packages hz samples waiting targets_told",
            &["1.0 2 1 100 10 0 0"],
        ),
    ] {
        gather.append(&table).unwrap();
    }
    let r = gather.finish().unwrap();
    let t = table(&r, By::Process, 0);
    assert_eq!((t.number(0, "fan-out"), t.number(0, "saved"), t.number(0, "IPIs")), (None, None, None));
    assert_eq!(t.number(0, "answer"), Some(0.25), "by its calls");
    assert_eq!(
        table(
            &Gather::new(Manifest::new(ncpu_schema::Purpose::Crosscalls, 2, Vec::new(), 1.0))
                .finish()
                .unwrap(),
            By::Cpu,
            0
        )
        .num_rows(),
        0
    );
}

#[test]
fn a_wait_that_was_not_timed_is_not_called_nothing() {
    let mut untimed = recording();
    let columns = "cause function process pid call calls targets waited wait";
    let table = make("crosscalls", columns, &["call - db 7 membarrier 10 20 10 -"]);
    untimed.tables.insert("crosscalls".into(), table);
    let text = lines(&untimed).join("\n");
    assert!(
        text.contains("1 calls/s; all receivers answered for") && !text.contains("calls/s; senders"),
        "{text}"
    );
}
