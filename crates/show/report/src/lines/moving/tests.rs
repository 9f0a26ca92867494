use proptest::prelude::*;

use super::*;

/// Name, address, size, stride.
fn variables(rows: &[(&str, u64, u64, Option<u64>)]) -> Table {
    let mut out = variables::Rows::new();
    for (name, address, size, stride) in rows {
        out.push(variables::Row {
            address: format!("{address:#x}").into(),
            name: (*name).into(),
            size: Some(*size),
            stride: *stride,
        });
    }
    out.finish()
}

/// Findings, each with one word.
fn findings(rows: &[(u64, u64)]) -> [Table; 2] {
    let (mut findings, mut words) = (findings::Rows::new(), words::Rows::new());
    for (finding, address) in rows {
        let finding = Some(*finding);
        findings.push(findings::Row { finding, fix: "a line each".into(), ..Default::default() });
        let address = format!("{address:#x}").into();
        words.push(words::Row { finding, address, section: ".bss".into(), ..Default::default() });
    }
    [findings.finish(), words.finish()]
}

fn join(rows: &[Of], known: &[(&str, u64, u64, Option<u64>)], found: &[(u64, u64)], pid: u32) -> Moving {
    let [findings, words] = findings(found);
    let (accesses, variables) = (accesses(rows), variables(known));
    moving(
        &accesses::Reader::of(&accesses).unwrap(),
        &variables::Reader::of(&variables).unwrap(),
        &findings::Reader::of(&findings).unwrap(),
        &words::Reader::of(&words).unwrap(),
        Some(pid),
    )
}

struct Of {
    space: u64,
    address: u64,
    tid: u64,
    cpu: u64,
    local: u64,
    remote: u64,
    stores: u64,
    code: &'static str,
}

fn access(address: u64, tid: u64, local: u64, stores: u64) -> Of {
    Of { space: 7, address, tid, cpu: tid, local, remote: 0, stores, code: "work" }
}

fn accesses(rows: &[Of]) -> Table {
    let mut out = accesses::Rows::new();
    for a in rows {
        out.push(accesses::Row {
            line: format!("{:#x}", a.address & !63).into(),
            name: "[heap]".into(),
            code: a.code.into(),
            source: "w.c:12".into(),
            space: Some(a.space),
            offset: Some(a.address & 63),
            pid: Some(7),
            tid: Some(a.tid),
            cpu: Some(a.cpu),
            node: Some(a.cpu / 2),
            local: Some(a.local),
            remote: Some(a.remote),
            loads: Some(a.local + a.remote + 1),
            stores: Some(a.stores),
            locked: Some(0),
            cycles: Some(100 * (a.local + a.remote)),
            timed: Some(a.local + a.remote),
            ..Default::default()
        });
    }
    out.finish()
}

fn verdict(moving: &Moving, row: usize) -> (&str, &str, Option<u64>) {
    (
        moving.lines.text(row, "sharing").unwrap_or(""),
        moving.lines.text(row, "names").unwrap_or(""),
        moving.lines.int(row, "HITM"),
    )
}

#[test]
fn words_that_share_a_line_are_false_sharing_and_one_word_is_true() {
    let known = [("get", 0x1000, 8, None), ("put", 0x1008, 8, None), ("lock", 0x1040, 4, None)];
    let rows = [
        access(0x1000, 1, 40, 9),
        access(0x1008, 2, 30, 9),
        access(0x100c, 2, 1, 0),
        access(0x1040, 1, 5, 5),
        access(0x1040, 2, 6, 5),
        // Of no known word, by one thread on two CPUs.
        Of { cpu: 3, ..access(0x9000, 4, 2, 1) },
        Of { cpu: 5, ..access(0x9008, 4, 1, 1) },
        // Nobody's line: it never moved.
        access(0xa000, 4, 0, 3),
    ];
    let moving = join(&rows, &known, &[(1, 0x1000), (1, 0x1008), (2, 0x1040)], 7);
    assert_eq!(moving.lines.num_rows(), 3);
    assert_eq!(verdict(&moving, 0), ("false", "get, put", Some(71)));
    assert_eq!(verdict(&moving, 1), ("true", "lock", Some(11)));
    assert_eq!(verdict(&moving, 2), ("one thread", "[heap]", Some(3)));
    assert_eq!(moving.lines.text(0, "fix"), Some("a line each"));
    assert_eq!(moving.lines.text(1, "fix"), None, "padding does not part one word");
    assert_eq!(moving.lines.text(2, "CPUs"), Some("3,5"));
    assert_eq!(moving.lines.text(2, "nodes"), Some("1-2"));
    assert_eq!(moving.lines.number(0, "cycles"), Some(100.0));
    let share: f64 = (0..3).filter_map(|r| moving.lines.number(r, "share")).sum();
    assert!((share - 100.0).abs() < 1e-9);
    // The last byte of `put` is put's.
    let put: Vec<u64> = (0..moving.offsets.num_rows())
        .filter(|&r| moving.offsets.text(r, "name") == Some("put"))
        .filter_map(|r| moving.offsets.int(r, "HITM"))
        .collect();
    assert_eq!(put, [31]);
}

#[test]
fn a_word_read_by_all_beside_one_that_is_written_is_false_sharing() {
    let rows = [access(0x1000, 1, 20, 0), access(0x1000, 2, 20, 0), access(0x1020, 3, 0, 50)];
    let got = join(&rows, &[], &[], 7);
    assert_eq!(verdict(&got, 0).0, "false");
    let rows = [access(0x1000, 1, 20, 9), access(0x1000, 2, 20, 9), access(0x1020, 3, 1, 50)];
    let got = join(&rows, &[], &[], 7);
    assert_eq!(verdict(&got, 0).0, "both");
    // Without any store sampled it is not known whether threads write.
    let rows = [access(0x1000, 1, 20, 0), access(0x1000, 2, 20, 0)];
    let got = join(&rows, &[], &[], 7);
    assert_eq!(verdict(&got, 0).0, "true");
}

#[test]
fn elements_of_an_array_are_words() {
    let known = [("workers", 0x1000, 1024, Some(16))];
    let rows = [access(0x1000, 1, 5, 1), access(0x1010, 2, 9, 1)];
    let got = join(&rows, &known, &[], 7);
    assert_eq!(verdict(&got, 0), ("false", "workers[1], workers[0]", Some(14)));
    // The same address in another process is another's memory.
    let got = join(&rows, &known, &[], 8);
    assert_eq!(verdict(&got, 0), ("false", "[heap]", Some(14)));
}

#[test]
fn lines_from_other_nodes_come_first() {
    let rows = [
        access(0x1000, 1, 10, 1),
        access(0x1000, 2, 10, 1),
        Of { remote: 8, ..access(0x2000, 1, 0, 1) },
        access(0x2000, 2, 0, 1),
    ];
    let got = join(&rows, &[], &[], 7);
    assert_eq!(got.lines.text(0, "line"), Some("0x2000"));
    assert_eq!((got.lines.int(0, "local"), got.lines.int(0, "remote")), (Some(0), Some(8)));
}

fn totals() -> Table {
    let mut out = access_totals::Rows::new();
    out.push(access_totals::Row {
        loads: Some(1000),
        stores: Some(200),
        local: Some(70),
        remote: Some(8),
        ..Default::default()
    });
    out.finish()
}

#[test]
fn where_debug_registers_watched_each_move_says_what_is_shared_and_samples_say_what_matters() {
    let mut out = accesses::Rows::new();
    // Line, word, thread, moves, those for a word that the other had written, samples in the line.
    for (line, word, tid, moves, same, timer) in [
        (0x1000, 0, 1, 30, 0, 40),
        (0x1000, 16, 2, 31, 1, 40),
        // A thread that goes from CPU to CPU does not make it the same word.
        (0x1000, 16, 1, 1, 0, 40),
        (0x2000, 8, 1, 5, 5, 300),
        (0x2000, 8, 2, 5, 5, 300),
        (0x3000, 8, 1, 50, 50, 7),
        (0x3000, 24, 2, 50, 0, 7),
    ] {
        out.push(accesses::Row {
            space: Some(7),
            line: format!("{line:#x}").into(),
            offset: Some(word),
            pid: Some(7),
            tid: Some(tid),
            cpu: Some(tid),
            local: Some(moves),
            same: Some(same),
            timer: Some(timer),
            ..Default::default()
        });
    }
    let accesses = out.finish();
    let ([findings, words], variables) = (findings(&[]), variables(&[]));
    let got = moving(
        &accesses::Reader::of(&accesses).unwrap(),
        &variables::Reader::of(&variables).unwrap(),
        &findings::Reader::of(&findings).unwrap(),
        &words::Reader::of(&words).unwrap(),
        Some(7),
    );
    let lines: Vec<_> = (0..3).map(|r| (got.lines.text(r, "line"), got.lines.text(r, "sharing"))).collect();
    let expected = [("0x2000", "true"), ("0x1000", "false"), ("0x3000", "both")];
    assert_eq!(lines, expected.map(|(line, sharing)| (Some(line), Some(sharing))));
    let mut out = access_totals::Rows::new();
    out.push(access_totals::Row {
        samples: Some(400),
        local: Some(172),
        remote: Some(0),
        timer: Some(1000),
        lines: Some(9),
        still: Some(4),
        turns: Some(1),
        watched: Some(0.25),
        own: Some(0.0123),
        ..Default::default()
    });
    let totals = out.finish();
    let text = moving_text(&got, &access_totals::Reader::of(&totals).unwrap(), 10, 400);
    for part in [
        "1000 timer samples chose 9 lines, 4 not shared while watched, 2 in less than 1 % of the samples, which debug registers watched in 1 turn of 250 ms in all, at a cost of 12 ms: 400 accesses seen, 172 of them",
        "1. true sharing: 0x2000, in 30 % of the samples, 5.8 % of moves",
        "moves  loads",
    ] {
        assert!(text.replace("\n  ", " ").contains(part), "{part}:\n{text}");
    }
}

fn text(moving: &Moving, most: usize, width: usize) -> String {
    moving_text(moving, &access_totals::Reader::of(&totals()).unwrap(), most, width)
}

#[test]
fn text_fits_any_width() {
    let known = [
        ("ns::a_rather_long_name_of_a_counter_of_gets", 0x1000, 8, None),
        ("ns::a_rather_long_name_of_a_counter_of_puts", 0x1008, 8, None),
    ];
    let long = "ns::worker_loop_with_a_name_that_goes_on<std::allocator<int>>";
    let mut rows: Vec<Of> =
        (0..20).map(|n| Of { code: long, ..access(0x1000 + 2 * n, 1 + n % 3, 4, n) }).collect();
    rows.push(Of { space: 0, ..access(0xffff_8880_0000_4000, 1, 3, 3) });
    let got = join(&rows, &known, &[(1, 0x1000)], 7);
    for width in [60, 80, 120, 200] {
        let text = text(&got, 10, width);
        let widest = text.lines().map(|l| l.chars().count()).max().unwrap();
        assert!(widest <= width, "{widest} at {width}:\n{text}");
    }
    let text = text(&got, 1, 160);
    assert!(
        text.contains(
            "78 loads found their line modified in another cache (7.8 %), 8 of them on another node"
        ),
        "{text}"
    );
    assert!(text.contains("1 more: --top"), "{text}");
    assert!(text.contains("places more"), "{text}");
}

proptest! {
    #[test]
    fn no_tables_panic(
        rows in prop::collection::vec((any::<u64>(), any::<u64>(), 0u64..4, any::<u32>(), 0u64..1 << 40), 0..30),
        known in prop::collection::vec((any::<u64>(), any::<u64>(), prop::option::of(any::<u64>())), 0..10),
        width in 0usize..300,
    ) {
        let of = |&(space, address, tid, n, cpu): &(u64, u64, u64, u32, u64)| Of {
            space: space % 3, cpu, ..access(address, tid, n.into(), 1)
        };
        let rows: Vec<Of> = rows.iter().map(of).collect();
        let named: Vec<_> = known.iter().map(|&(address, size, stride)| ("w", address, size, stride)).collect();
        let got = join(&rows, &named, &known.iter().zip(1..).map(|(k, n)| (n, k.0)).collect::<Vec<_>>(), 1);
        let accesses = accesses(&rows);
        let all: u64 = (0..accesses.num_rows()).filter_map(|r| accesses.int(r, "local")).sum();
        let told: u64 = (0..got.lines.num_rows()).filter_map(|r| got.lines.int(r, "HITM")).sum();
        prop_assert_eq!(all, told, "every HITM is in one line");
        text(&got, 5, width);
    }
}
