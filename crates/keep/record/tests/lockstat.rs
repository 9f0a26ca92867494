//! Every option set of lockstat, and every fault of its output.

use std::path::{Path, PathBuf};

use ncpu_record::lockstat::{
    Class, Error, LockFile, Measure, import, lockstat_table, lockutil_table, parse, render_lockutil,
};
use ncpu_table::Table;
use proptest::prelude::*;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/lockstat").join(format!("{name}.txt"))
}

fn read(name: &str, ncpu: u64) -> LockFile {
    import(&data(name), ncpu, None).unwrap()
}

fn text(text: &str) -> Result<LockFile, Error> {
    parse(text.as_bytes(), Path::new("x.out"), 512, None)
}

/// CPU-util with three digits, lock and caller of each row.
fn utils(file: &LockFile) -> Vec<(String, String, String)> {
    let table = lockutil_table(file);
    let word = |row, column| table.text(row, column).unwrap_or("-").to_string();
    (0..table.num_rows())
        .map(|row| {
            let util = table.number(row, "CPU-util").map_or_else(|| "-".into(), |u| format!("{u:.3}"));
            (util, word(row, "Lock"), word(row, "Caller"))
        })
        .collect()
}

fn total(file: &LockFile) -> Option<f64> {
    let table = lockutil_table(file);
    table.number(table.num_rows() - 1, "CPU-util")
}

fn sum(table: &Table, column: &str) -> f64 {
    (0..table.num_rows()).filter_map(|row| table.number(row, column)).sum()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1.0)
}

#[track_caller]
fn noted(file: &LockFile, part: &str) {
    assert!(file.notes.iter().any(|n| n.contains(part)), "no note of `{part}`: {:#?}", file.notes);
}

#[test]
fn the_document_s_lockutil_to_the_blank() {
    let file = read("blog-kWP", 512);
    assert_eq!(render_lockutil(&file), std::fs::read_to_string(data("blog-lockutil")).unwrap());
    noted(&file, "line 12: rows were left out here");
    noted(&file, "line 1: Adaptive mutex spin: the rows listed hold 1635208 of 1713116 events (95.5 %)");
    assert_eq!(file.sections[0].elapsed, Some(30.214));
}

#[test]
fn the_document_s_first_sample() {
    let file = read("blog-nsec", 256);
    let util = lockutil_table(&file).number(0, "CPU-util").unwrap();
    assert!(near(util, 557_331.0 * 88_454.0 / (10.135 * 256.0 * 1e9)));
    assert_eq!(utils(&file)[0], ("0.019".into(), "0x60033047000".into(), "timeout_common+0x4".into()));
    noted(&file, "line 1: skipped `# lockstat sleep 10`");
}

#[test]
fn retries_are_not_time() {
    let file = read("blog-counts", 256);
    assert_eq!(file.sections[0].measure, Measure::Spins);
    assert_eq!(utils(&file)[0].0, "-");
    assert_eq!(utils(&file)[1], ("-".into(), "TOTAL".into(), "TOTAL".into()));
    assert!(render_lockutil(&file).contains("\n        -  0x6009a065000        timeout_common+0x4\n"));
    noted(&file, "line 2: Adaptive mutex spin: `spin` counts retries");
    let table = lockstat_table(&file);
    assert_eq!(table.number(0, "retries"), Some(17.0));
    assert_eq!(table.number(0, "total"), None);

    // Block events of the same file have times, but take no CPU time.
    let file = read("solaris-C-counts", 256);
    let table = lockstat_table(&file);
    let block = (0..table.num_rows()).find(|&r| table.text(r, "class") == Some("block")).unwrap();
    assert!(table.number(block, "total").unwrap() > 0.3);
    assert_eq!(table.number(block, "CPU-util"), None);
    assert_eq!(file.notes.len(), 3, "{:#?}", file.notes);
}

#[test]
fn all_contention_events() {
    let file = read("solaris-C", 256);
    assert!(file.notes.is_empty(), "{:#?}", file.notes);
    let events: Vec<_> = file.sections.iter().map(|s| (s.event.as_str(), s.class)).collect();
    assert_eq!(events.len(), 8);
    assert_eq!(events[2], ("Spin lock spin", Class::Spin));
    assert_eq!(events[3], ("Thread lock spin", Class::Spin));
    assert!(events[4..].iter().all(|(name, class)| name.starts_with("R/W") && *class == Class::Block));
    let shown = utils(&file);
    assert_eq!(shown.len(), 4 + 2 + 2 + 1, "only busy-waiting");
    assert_eq!(shown[0].0, "0.019");
    assert!(near(total(&file).unwrap(), sum(&lockstat_table(&file), "CPU-util")));
}

#[test]
fn freebsds_events_and_names() {
    let file = read("freebsd-C", 4);
    assert!(file.notes.is_empty(), "{:#?}", file.notes);
    let class = |name: &str| file.sections.iter().find(|s| s.event == name).unwrap().class;
    assert_eq!(file.sections.len(), 16);
    for name in ["R/W writer spin on writer", "R/W reader spin on write wanted", "SX shared spin"] {
        assert_eq!(class(name), Class::Spin, "{name}");
    }
    assert_eq!(
        (class("SX exclusive block"), class("R/W writer blocked by writer")),
        (Class::Block, Class::Block)
    );
    let shown = utils(&file);
    let lock = |name: &str| shown.iter().filter(|(_, lock, _)| lock == name).collect::<Vec<_>>();
    assert_eq!(
        lock("vm page free queue"),
        [&("0.013".into(), "vm page free queue".into(), "vm_page_alloc_domain_iter+0x1f0".into())]
    );
    assert_eq!(lock("in pcb: tcp|udp").len(), 1, "{shown:?}");
    // By hand, in ns: 520 ms of mutexes, 0.2 of spin and thread locks, 560 + 1.0 + 0.4 + 0.3 of R/W, 8 + 3 of
    // SX.
    assert!((total(&file).unwrap() - 1.0929 / 40.0).abs() < 1e-9, "{:?}", total(&file));
    let held = read("freebsd-HI", 4);
    assert_eq!(held.sections[3].class, Class::Profile);
    assert!(held.sections[..3].iter().all(|s| s.class == Class::Hold) && total(&held).is_none());
    let parsable = import(&data("freebsd-p"), 4, Some(10.0)).unwrap();
    let events: Vec<&str> = parsable.sections.iter().map(|s| s.event.as_str()).collect();
    assert_eq!(
        events,
        ["Adaptive mutex spin", "R/W writer spin on writer", "SX exclusive block", "SX shared spin"]
    );
    assert_eq!(parsable.sections[1].rows[1].lock, "in pcb: tcp|udp");
    assert!((total(&parsable).unwrap() - (0.52 + 0.56 + 0.003) / 40.0).abs() < 1e-9);
}

#[test]
fn an_event_of_an_unknown_name_is_told() {
    let of = |event: &str| {
        let rows = "    9  90%  90% 0.00     2540 0x30000031380          tcp_rput_data+0x2b90\n";
        let columns = "Count indv cuml rcnt     nsec Lock                   Caller\n";
        text(&format!("{event}: 9 events in 10.135 seconds (1 events/sec)\n\n{columns}{rows}")).unwrap()
    };
    noted(&of("Quantum lock spin on owner"), "no event of a lockstat known here; taken for spin");
    assert!(total(&of("Quantum lock spin on owner")).is_some());
    noted(&of("Quantum lock wait"), "no event of a lockstat known here; not counted as busy-waiting");
    assert!(!of("Spin lock spin").notes.iter().any(|n| n.contains("known here")));
}

#[test]
fn a_table_without_its_event_needs_the_elapsed_time() {
    let rows = "  900  90%  90% 0.00   254000 0x30000031380          tcp_rput_data+0x2b90\n  100  10% 100% 0.00 1000 vm page queue f+0x1\n";
    let columns =
        "Count indv cuml rcnt     nsec Lock                   Caller\n----------------------------------\n";
    for bare in [format!("{columns}{rows}"), rows.to_string()] {
        assert!(matches!(text(&bare), Err(Error::NoElapsed { .. })), "{bare}");
        let file = parse(bare.as_bytes(), Path::new("x"), 2, Some(10.0)).unwrap();
        assert!((total(&file).unwrap() - (900.0 * 254_000.0 + 100_000.0) / 20e9).abs() < 1e-12, "{bare}");
        noted(&file, "a table without its event; assumed to be busy-waiting");
        assert_eq!(file.sections[0].rows[1].lock, "vm page queue");
    }
}

#[test]
fn options_that_change_the_columns() {
    let plain = read("solaris-C", 256);
    let first = lockutil_table(&plain).number(0, "CPU-util").unwrap();

    let file = read("solaris-b", 256);
    assert_eq!(file.sections[0].measure, Measure::Nothing);
    assert_eq!(utils(&file)[0], ("-".into(), "0x60033047000".into(), "timeout_common+0x4".into()));
    noted(&file, "-b measures no time");

    // A rate is cut to whole events per second, so it agrees up to that.
    let file = read("solaris-R", 256);
    let rate = lockutil_table(&file).number(0, "CPU-util").unwrap();
    assert!((rate - first).abs() < 1e-6, "{rate} {first}");
    assert!((lockstat_table(&file).number(0, "count").unwrap() - 557_331.0).abs() < 10.135);

    let file = read("solaris-P-D2", 256);
    assert_eq!(utils(&file)[0].0, "0.019");
    noted(&file, "the rows listed hold 598353 of 607405 events (98.5 %)");

    let file = read("solaris-D0", 256);
    assert_eq!(utils(&file), [("-".into(), "TOTAL".into(), "TOTAL".into())]);
    assert_eq!(file.sections[0].events, Some(607_405));
    noted(&file, "-D 0");

    let file = read("solaris-c", 256);
    assert_eq!(utils(&file)[1].1, "pse_mutex[65536]");

    let file = read("solaris-kw", 256);
    assert_eq!(utils(&file)[0].2, "timeout_common");

    let file = read("solaris-kg", 256);
    assert_eq!(utils(&file)[1].0, "0.019");
    assert_eq!(total(&file), None);
    noted(&file, "with -g rows overlap");
}

#[test]
fn hold_profile_and_error_events_take_no_cpu_time() {
    let file = read("solaris-H", 4);
    assert_eq!(file.sections.iter().filter(|s| s.class == Class::Hold).count(), 4);
    assert_eq!(utils(&file).len(), 1);
    let file = read("solaris-CEI", 256);
    assert_eq!(utils(&file).len(), 3);
    assert_eq!(file.sections[1].class, Class::Profile);
    assert_eq!(file.sections[1].rows[1].caller, "(usermode)");
    assert_eq!(file.sections[2].measure, Measure::Unnamed);
    assert_eq!(lockstat_table(&file).num_rows(), 5);
}

#[test]
fn histograms_and_stacks() {
    let file = read("solaris-h", 64);
    let row = &file.sections[0].rows[0];
    assert_eq!(row.histogram[..2], [(512, 5), (1024, 2)]);
    assert!(row.stack.is_empty());

    let file = read("solaris-s10", 64);
    assert_eq!(file.sections.len(), 2);
    let rows = &file.sections[0].rows;
    assert_eq!((rows[0].histogram.len(), rows[0].stack.len()), (7, 6));
    assert_eq!(rows[1].stack[3..], ["ip_rput+0xec4", "sbus_intr_wrapper+0x30"]);
    assert_eq!(file.sections[1].rows[0].stack[2], "segkmem_page_create+0x64");
    assert!(file.notes.is_empty(), "{:#?}", file.notes);
    let table = lockstat_table(&file);
    assert!(table.text(0, "stack").unwrap().starts_with("tcp_rput_data+0x2b90;putnext+0x78;"));
    assert_eq!(table.number(0, "mean"), Some(2540.0));

    // Stacks wrapped by the manual's typesetting.
    let text = std::fs::read_to_string(data("solaris-s10")).unwrap();
    let wrapped = text.replace("_c_putnext+0x148", "\n_c_putnext+0x148");
    let wrapped = parse(wrapped.as_bytes(), Path::new("x"), 64, None).unwrap();
    assert_eq!(wrapped.sections[0].rows[0].stack, rows[0].stack);
}

#[test]
fn parsable_output() {
    let plain = read("solaris-C", 256);
    assert!(matches!(import(&data("solaris-p"), 256, None), Err(Error::NoElapsed { line: 1, .. })));
    let file = import(&data("solaris-p"), 256, Some(10.135)).unwrap();
    assert_eq!(file.sections.len(), 2);
    assert_eq!(utils(&file)[..4], utils(&plain)[..4]);
    noted(&file, "-p does not name its unit");

    let file = read("solaris-pb", 256);
    assert_eq!(utils(&file)[0].0, "-");

    let file = import(&data("solaris-ps"), 64, Some(10.135)).unwrap();
    let stacks = read("solaris-s10", 64);
    assert_eq!(file.sections[0].rows[0].stack, stacks.sections[0].rows[0].stack);
    assert_eq!(total(&file), total(&LockFile { sections: stacks.sections[..1].to_vec(), ..stacks.clone() }));
}

#[test]
fn netbsd_counts_a_lock_once() {
    let file = read("netbsd", 8);
    assert_eq!(file.sections.len(), 9);
    assert!(file.notes.is_empty(), "{:#?}", file.notes);
    let table = lockstat_table(&file);
    let spun = (3120.55 + 2401.25 + 0.35 + 12.50 + 61.25 + 3.10 + 0.95 + 0.05) / 1e3;
    let capacity = 10.01 * 8.0;
    assert!(near(total(&file).unwrap(), spun / capacity), "{:?} {}", total(&file), spun / capacity);
    assert!(near(sum(&table, "CPU-util"), spun / capacity));
    assert!((0..table.num_rows()).all(|r| table.text(r, "caller") != Some("<all>")));
    assert!(utils(&file).iter().any(|(_, lock, caller)| lock == "uvm_pageqlock" && caller == "<all>"));
    // Neither sleeping nor a deferred preemption is busy-waiting.
    let class = |event| file.sections.iter().find(|s| s.event == event).unwrap().class;
    assert_eq!(class("RW lock sleep (reader)"), Class::Block);
    assert_eq!(class("Kernel preemption defer"), Class::Other);
}

#[test]
fn netbsd_options() {
    let plain = read("netbsd-c", 8);
    let spun = total(&plain).unwrap();
    for name in ["netbsd-l", "netbsd-s", "netbsd-p", "netbsd-ps"] {
        let file = read(name, 8);
        let found = total(&file).unwrap();
        // Two digits of a millisecond, averaged over CPUs and seconds.
        assert!((found - spun).abs() < 2e-4, "{name}: {found} {spun}");
        let events = sum(&lockstat_table(&file), "count");
        let whole = 385_420.0 + 358_310.0 + 50.0 + 811.0;
        assert!((events - whole).abs() < 3.0 * 80.1, "{name}: {events}");
    }
    assert_eq!(utils(&read("netbsd-l", 8)).len(), 3);
    assert_eq!(utils(&read("netbsd-f", 8))[0].1, "0000000000000000");
    assert!(near(total(&read("netbsd-f", 8)).unwrap(), 5.5218 / 80.08));
    assert_eq!(read("netbsd-x", 8).sections[0].class, Class::Spin);
    let none = read("netbsd-none", 8);
    assert!(none.sections.is_empty());
    assert_eq!(total(&none), None);
}

#[test]
fn rows_without_a_head() {
    let path = data("netbsd-list-fault");
    let message = import(&path, 40, None).unwrap_err().to_string();
    assert!(message.contains("netbsd-list-fault.txt:1:") && message.contains("--elapsed"), "{message}");
    let file = import(&path, 40, Some(52.331)).unwrap();
    noted(&file, "line 1: rows without a head; assumed to be busy-waiting");
    assert!(near(total(&file).unwrap(), 184.255 / (52.331 * 40.0)));
    let table = lockstat_table(&file);
    assert_eq!(table.num_rows(), 4, "one event is of a caller that the list does not have");
    assert_eq!((table.text(0, "caller"), table.number(0, "count")), (Some("<not listed>"), Some(1.0)));

    // Rows were left out, so the sum exceeds the listed callers.
    let file = import(&data("netbsd-list-ubc"), 40, Some(68.6)).unwrap();
    noted(&file, "line 5: rows were left out");
    assert!(near(total(&file).unwrap(), 321.20106 / (68.6 * 40.0)));
    let table = lockstat_table(&file);
    assert_eq!(table.text(0, "caller"), Some("<not listed>"));
    assert_eq!(table.number(0, "count"), Some(585_505.0 - 291_550.0 - 255_967.0 - 35_632.0));
    assert!(near(sum(&table, "CPU-util"), total(&file).unwrap()));
}

#[test]
fn several_runs_in_one_file() {
    let one = std::fs::read_to_string(data("blog-nsec")).unwrap();
    let two = one.replace("10.135", "30.405");
    let file = text(&format!("{one}{two}")).unwrap();
    noted(&file, "2 runs of lockstat");
    let spun = 2.0 * 557_331.0 * 88_454.0 / 1e9;
    assert!(near(total(&file).unwrap(), spun / ((10.135 + 30.405) * 512.0)));
}

#[test]
fn the_file_s_elapsed_time_is_right() {
    let file = import(&data("blog-nsec"), 256, Some(99.0)).unwrap();
    assert_eq!(utils(&file)[0].0, "0.019");
    noted(&file, "the file says 10.135 s; --elapsed 99 is not used");
}

/// Seconds given by hand are rounded, so a difference of one in a hundred gives no note.
#[test]
fn an_elapsed_time_given_beside_the_files_may_be_rounded() {
    let notes = |given| import(&data("blog-nsec"), 256, Some(given)).unwrap().notes;
    for (given, contradicts) in [(10.0, true), (10.04, false), (10.2, false), (10.3, true)] {
        let said = notes(given).iter().any(|note| note.contains("is not used"));
        assert_eq!(said, contradicts, "{given}: {:?}", notes(given));
    }
}

/// Only a number with a point, at the third place or later, ends the names of lock and caller.
#[test]
fn names_with_blanks_points_and_numbers_in_parsable_output() {
    let lines = "0 5 pool 7 of a.b caller.part+0x4 0.000000 100\n0 6 1.5 2.5 0.000000 100\n";
    let file = parse(lines.as_bytes(), Path::new("x.out"), 8, Some(1.0)).unwrap();
    let rows: Vec<_> = utils(&file).into_iter().map(|(_, lock, caller)| (lock, caller)).collect();
    let name = |lock: &str, caller: &str| (lock.to_string(), caller.to_string());
    assert!(rows.contains(&name("pool 7 of a.b", "caller.part+0x4")), "{rows:?}");
    assert!(rows.contains(&name("1.5", "2.5")), "{rows:?}");
}

#[test]
fn more_than_all_cpus_is_doubted() {
    noted(&read("blog-kWP", 2), "is -n right?");
}

#[test]
fn output_that_may_be_cut_off_is_told() {
    let whole = std::fs::read_to_string(data("solaris-C")).unwrap();
    let cut = whole.rfind("---").map(|end| &whole[..end - 76]).unwrap();
    noted(&text(cut).unwrap(), "no closing rule, so the output may be cut off");
    noted(
        &text("lockstat: warning: ran out of data records (use -n for more)\n0 1 a b 0.000000\n").unwrap(),
        "ran out",
    );
}

#[test]
fn bad_lines_say_file_line_and_what_was_expected() {
    let head = "Adaptive mutex spin: 9 events in 10.135 seconds (1 events/sec)\n";
    let columns = "Count indv cuml rcnt     nsec Lock                   Caller\n----------\n";
    let row = "    9  90%  90% 0.00     2540 pcf                    page_free\n";
    for (case, line, expected) in [
        ("hello world\n".to_string(), 1, "`EVENT: N events in S seconds (R events/sec)`"),
        (head.replace("9 events", "x events"), 1, "`EVENT: N events"),
        (head.replace("10.135", "0.000"), 1, "`EVENT: N events"),
        (head.replace("10.135", "inf"), 1, "`EVENT: N events"),
        (head.to_string(), 1, "rows after the head"),
        (format!("{head}{row}"), 2, "the column head"),
        (format!("{head}Count indv nsec Lock Caller\n"), 2, "the column head"),
        (format!("{head}{columns}{}", &row[..40]), 4, "a row `COUNT INDV% CUML% RCNT NSEC LOCK CALLER`"),
        (format!("{head}{columns}{}", row.replace("2540", "25x0")), 4, "a row"),
        (format!("{head}{columns}{}", row.replace("   9 ", "  -9 ")), 4, "a row"),
        (format!("{head}{columns}{}", row.replacen("90%", "90", 1)), 4, "a row"),
        (format!("{head}{columns}{}", row.replace("2540", "99999999999999999999")), 4, "a row"),
        (format!("{head}{columns}{} extra\n", row.trim_end()), 4, "a row"),
        (format!("{head}{columns}       512 |@@@   5\n"), 4, "a row before its histogram"),
        (format!("{head}{columns}{row}\x1b[2J\n"), 5, "text without control characters"),
        ("Elapsed time: soon\n".into(), 1, "`Elapsed time: S seconds.`"),
        ("Elapsed time: 0.00 seconds.\n".into(), 1, "`Elapsed time: S seconds.`, above 0"),
        ("Elapsed time: inf seconds.\n".into(), 1, "`Elapsed time: S seconds.`, above 0"),
        ("Elapsed time: 1.00 seconds.\nTotal%  Count   Time/ms  Lock  Caller\n".into(), 2, "`-- EVENT`"),
        (
            "-- Spin mutex spin\n 51.63  585505 321201.06 ffff\n".into(),
            2,
            "a row `TOTAL% COUNT TIME/MS LOCK CALLER`",
        ),
        ("0 557331 pcf page_free 0.000000 1 2 3\n".into(), 1, "a row of lockstat -p"),
        ("0 1 a b 0.000000 5\n0 1 a b 0.000000\n".into(), 2, "the columns of the rows before it"),
        ("99 1 a b 0.000000 5\n".into(), 1, "a row of lockstat -p"),
    ] {
        let message = match text(&case) {
            Err(e) => e.to_string(),
            Ok(file) => panic!("{case:?} was read as {file:#?}"),
        };
        assert!(message.starts_with(&format!("x.out:{line}:")), "{message}: {case:?}");
        assert!(message.contains(expected), "{message} lacks {expected}");
    }
    let long = format!("{}\n", "x".repeat(500));
    assert!(text(&long).unwrap_err().to_string().len() < 300);
    let bytes = parse(b"abc\xff\n", Path::new("x.out"), 1, None).unwrap_err().to_string();
    assert!(bytes.contains("x.out:1: expected text in UTF-8"), "{bytes}");
}

#[test]
fn what_cannot_be_imported_is_told() {
    assert!(matches!(text(""), Err(Error::Empty(_))));
    assert!(matches!(text("\n\n"), Err(Error::Empty(_))));
    assert!(matches!(text("Count indv cuml rcnt     nsec Lock   Caller\n"), Err(Error::Empty(_))));
    assert!(matches!(import(&data("solaris-T"), 1, None), Err(Error::Trace { line: 1, .. })));
    assert!(matches!(import(&data("solaris-C"), 0, None), Err(Error::Ncpu)));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(import(&data("solaris-C"), 1, Some(bad)), Err(Error::Elapsed)));
    }
    let message = import(Path::new("/none/lockstat.out"), 1, None).unwrap_err().to_string();
    assert!(message.contains("/none/lockstat.out: cannot read: No such file"), "{message}");
    let missing = std::fs::read_to_string(data("solaris-s10")).unwrap();
    let missing: Vec<&str> = missing.lines().filter(|l| !l.contains("1024 |@@@@@@  ")).collect();
    let message = text(&missing.join("\n")).unwrap_err().to_string();
    assert!(message.contains("x.out:6: the histogram adds up to 7 of 9 events"), "{message}");
}

/// Any file cut at any byte is an error, or reports a missing part, or is complete.
#[test]
fn nothing_half_read_passes_as_whole() {
    for name in ["solaris-C", "solaris-s10", "solaris-kw"] {
        let whole = std::fs::read(data(name)).unwrap();
        let sections = read(name, 64).sections;
        for cut in 0..whole.len() {
            if let Ok(file) = parse(&whole[..cut], Path::new("x"), 64, None)
                && file.notes.is_empty()
            {
                // Complete sections cannot be lost; a shortened name is invisible only in the last.
                let same = file.sections.iter().zip(&sections).all(|(a, b)| a == b);
                assert!(same, "{name} cut at {cut}: {:#?}", file.sections.last());
            }
        }
    }
}

fn any_row() -> impl Strategy<Value = (u64, u64, String, String)> {
    (1..1u64 << 40, 0..1u64 << 40, "[a-z_]([a-z0-9_\\[\\]+:|]| [a-z0-9_]){0,15}", "[a-z_(][a-z0-9_+)]{0,30}")
}

proptest! {
    /// Lines in lockstat's own formats are read back, and the arithmetic matches the formula.
    #[test]
    fn rows_read_back(
        rows in proptest::collection::vec(any_row(), 1..20),
        elapsed in 1..1_000_000u64,
        ncpu in 1..4096u64,
    ) {
        let elapsed = elapsed as f64 / 1e3;
        let events: u64 = rows.iter().map(|r| r.0).sum();
        let mut out = format!("\nThread lock spin: {events} events in {elapsed:.3} seconds (1 events/sec)\n\n");
        out += "Count indv cuml rcnt     nsec Lock                   Caller                  \n";
        out += &format!("{}\n", "-".repeat(79));
        for (count, nsec, lock, caller) in &rows {
            out += &format!("{count:>5} {:>3}% {:>3}% 0.00 {nsec:>8} {lock:<22} {caller:<24}\n", 1, 100);
        }
        out += &format!("{}\n", "-".repeat(79));
        let file = parse(out.as_bytes(), Path::new("x"), ncpu, None).unwrap();
        prop_assert_eq!(file.sections[0].rows.len(), rows.len());
        let table = lockutil_table(&file);
        let mut sum = 0.0;
        for (at, (count, nsec, lock, caller)) in rows.iter().enumerate() {
            let util = *count as f64 * *nsec as f64 / (elapsed * ncpu as f64 * 1e9);
            sum += util;
            let found = table.number(at, "CPU-util").unwrap();
            prop_assert!((found - util).abs() <= 1e-9 * util, "{found} is not {util}");
            prop_assert_eq!(table.text(at, "Lock"), Some(lock.as_str()));
            prop_assert_eq!(table.text(at, "Caller"), Some(caller.as_str()));
        }
        let found = total(&file).unwrap();
        prop_assert!((found - sum).abs() <= 1e-9 * sum, "{found} is not {sum}");
    }

    /// Any text gives a result or an error.
    #[test]
    fn no_text_panics(
        name in proptest::sample::select(vec!["solaris-C", "solaris-s10", "solaris-ps", "netbsd", "blog-kWP"]),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..12),
        swap in any::<(proptest::sample::Index, proptest::sample::Index)>(),
        elapsed in proptest::option::of(0.001..1e6f64),
    ) {
        let mut bytes = std::fs::read(data(name)).unwrap();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        let mut lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').collect();
        let (a, b) = (swap.0.index(lines.len()), swap.1.index(lines.len()));
        lines.swap(a, b);
        for bytes in [&bytes, &lines.join(&b'\n')] {
            if let Ok(file) = parse(bytes, Path::new("x"), 8, elapsed) {
                render_lockutil(&file);
                lockstat_table(&file);
            }
        }
    }
}
