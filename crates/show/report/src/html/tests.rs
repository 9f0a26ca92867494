//! A small composed recording, and unkind ones.

use ncpu_record::{Manifest, Recording};
use ncpu_table::Table;

use super::page;
use crate::fixtures::table;

const WHERE: [&str; 10] =
    ["t", "CPU", "idle", "target", "other", "ncpu", "spin", "hardirq", "softirq", "tlb"];

fn cpu_time(cpus: u64, intervals: u64) -> Table {
    let mut rows = Vec::new();
    for i in 0..intervals {
        for cpu in 0..cpus {
            let spin = if cpu % 2 == 0 { 0.3 } else { 0.0 };
            rows.push([(i + 1) as f64, cpu as f64, 0.1, 0.8 - spin, 0.05, 0.01, spin, 0.02, 0.01, 0.01]);
        }
    }
    let rows: Vec<(&[&str], &[f64])> = rows.iter().map(|r| (&[][..], &r[..])).collect();
    table("cpu_time", &[], &WHERE, &rows)
}

fn recording(tables: Vec<Table>) -> Recording {
    let mut manifest = Manifest::new(ncpu_schema::Purpose::Run, 4, vec!["make".into(), "-j4".into()], 1.0);
    manifest.host = "host".into();
    manifest.kernel = "6.1".into();
    manifest.created_unix = 1_709_208_000.0;
    manifest.complete = true;
    tables.into_iter().fold(Recording::new(manifest), Recording::with)
}

/// Every table of an observation, with `name` where a process, lock or frame is named.
fn whole(name: &str) -> Recording {
    let frame = format!("{name};main;__x64_sys_close_[k]");
    recording(vec![
        cpu_time(4, 3),
        table(
            "idle_time",
            &[],
            &["t", "runq", "klock", "ulock", "io", "serial", "asleep"],
            &[(&[], &[1.0, 0.0, 0.1, 0.2, 0.0, 0.1, 0.0]), (&[], &[2.0, 0.0, 0.0, 0.4, 0.0, 0.0, 0.0])],
        ),
        table(
            "samples",
            &["at", "class", "detail", "process"],
            &["samples"],
            &[
                (&["target", "user", name, name], &[600.0]),
                (&["target", "syscall", name, name], &[200.0]),
                (&["target", "exec", "", "cc1"], &[100.0]),
                (&["other", "user", "x", "y"], &[50.0]),
            ],
        ),
        table(
            "stacks",
            &["kind", "stack"],
            &["seconds", "samples"],
            &[
                (&["on-cpu", &frame], &[6.0, 600.0]),
                (&["on-cpu", "cc1;worker 3"], &[1.0, 100.0]),
                (&["spin", &frame], &[0.5, 50.0]),
                (&["off-cpu", &format!("user lock;{frame}")], &[2.0, 20.0]),
            ],
        ),
        table(
            "locks",
            &["lock", "type", "process"],
            &["count", "spin", "block", "max"],
            &[
                (&["rq(CPU 0)", "spinlock", "make"], &[10.0, 0.1, 0.0, 9.0]),
                (&[name, "spinlock", name], &[1_170_899.0, 1.2, 0.0, 50.0]),
                (&[name, "spinlock", "cc1"], &[1.0, 0.6, 0.0, 70.0]),
            ],
        ),
        table(
            "lock_callers",
            &["lock", "type", "process", "caller", "stack"],
            &["walked", "spin", "block"],
            &[
                (&[name, "spinlock", name, "close_fd", ""], &[9.0, 0.3, 0.0]),
                (&[name, "spinlock", name, "ksys_dup3", ""], &[9.0, 0.1, 0.0]),
            ],
        ),
        table(
            "user_locks",
            &["lock", "type", "process", "caller", "holder", "pattern", "advice"],
            &["pid", "count", "wakes", "block", "max"],
            &[
                (&["0x10", "condition", name, "pool_wait", "make/9", "", ""], &[7.0, 1.0, 1.0, 50.0, 9.0]),
                (&[name, "lock", name, "work", name, "GIL", name], &[7.0, 4.0, 4.0, 3.0, 9.0]),
                (&[name, "lock", name, "work", "make/9", "GIL", name], &[7.0, 2.0, 2.0, 1.0, 9.0]),
            ],
        ),
        table(
            "threads",
            &["process", "thread"],
            &["t", "pid", "tid", "USR", "SYS", "TRP", "TFL", "DFL", "LCK", "SLP", "LAT", "spin", "ICX"],
            &[
                (&[name, name], &[1.0, 7.0, 8.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.25, 0.0, 0.25, 0.1, 5.0]),
                (&[name, name], &[2.0, 7.0, 8.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.25, 0.0, 0.25, 0.1, 5.0]),
            ],
        ),
        table("sleeps", &["call"], &["seconds"], &[(&["futex"], &[4.0]), (&[name], &[1.0])]),
        table(
            "summary",
            &[],
            &["elapsed", "user", "system", "hz", "status"],
            &[(&[], &[3.0, 6.0, 3.0, 99.0, 2.0])],
        ),
    ])
}

/// The page without style, script and data.
fn body(page: &str) -> &str {
    let from = page.find("<body>").unwrap();
    &page[from..page.find("<script type=application/json").unwrap()]
}

/// Tags, classes and text, a line each: the structure a change should show up in.
fn outline(page: &str) -> String {
    let mut out = String::new();
    for part in body(page).split('<').skip(1).filter(|p| !p.starts_with('/')) {
        let (tag, text) = part.split_once('>').unwrap_or((part, ""));
        let name = tag.split_whitespace().next().unwrap_or("");
        // Coordinates are the library's, evidence the onion's.
        if matches!(name, "rect" | "polygon" | "i" | "b" | "g" | "li") || tag.starts_with("text x") {
            continue;
        }
        out.push_str(&format!("{name} {}\n", text.trim()));
    }
    out
}

#[test]
fn structure() {
    let page = page(&whole("files_struct.file_lock")).unwrap();
    insta::assert_snapshot!(outline(&page));
}

#[test]
fn nothing_is_fetched_and_no_other_script_runs() {
    let page = page(&whole("x")).unwrap();
    assert!(page.contains("default-src 'none'") && page.contains("script-src 'sha256-"));
    for outside in ["http://", "https://", "@import", "url("] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside}");
    }
    // The hash is of the whole script element, so nothing in it may end it early.
    assert!(!super::SCRIPT.contains("</") && !super::STYLE.contains("</"));
}

#[test]
fn hostile_names_stay_text() {
    for name in [
        "</script><img src=x onerror=alert(1)>",
        "\"><svg onload=alert(1)>",
        "';alert(1)//\u{2028}\u{1}\n]]>",
        "# 12 34",
    ] {
        let mut hostile = whole(name);
        hostile.manifest.command = vec![name.into()];
        hostile.manifest.host = name.into();
        hostile.manifest.notes = vec![name.into()];
        hostile.manifest.ncpu_version = name.into();
        let page = page(&hostile).unwrap();
        assert!(!page.contains("<img") && !page.contains("<svg onload") && !page.contains("</script><img"));
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(page.matches("<script").count(), 2);
        let data = page.split("id=data>").nth(1).unwrap().split("</script>").next().unwrap();
        serde_json::from_str::<serde_json::Value>(data).unwrap();
    }
}

#[test]
fn frames_that_look_like_counts_keep_their_weight() {
    let page = page(&whole("x 5")).unwrap();
    assert!(page.contains("cc1;worker 3 1000000\n"), "{page}");
    assert!(page.contains("x 5;main;__x64_sys_close_[k] 6000000\n"), "{page}");
}

#[test]
fn locks_have_the_names_and_advice_of_their_patterns() {
    let row = |locks: Table| {
        let mut section = String::new();
        super::tables::user_locks(&mut section, &recording(vec![locks]));
        section.split("<tr>").find(|row| row.starts_with("<td>0x7f</td>")).unwrap().to_string()
    };
    let mut locks = ncpu_schema::user_locks::Rows::new();
    for holder in ["python3/8", "python3/9"] {
        locks.push(ncpu_schema::user_locks::Row {
            lock: "0x7f".into(),
            ty: "lock".into(),
            process: "python3".into(),
            caller: "take_gil".into(),
            holder: holder.into(),
            pattern: Some("GIL").into(),
            advice: Some("processes instead of threads").into(),
            count: Some(2),
            block: Some(1.0),
            ..Default::default()
        });
    }
    let locks = locks.finish();
    let told = row(locks.clone());
    assert!(told.contains("<td>0x7f</td><td>GIL</td><td>lock</td>"), "{told}");
    assert!(told.contains("<td class=w>python3/8 50\u{a0}%, python3/9 50\u{a0}%</td>"), "{told}");
    assert!(told.contains("<td class=w>processes instead of threads</td>"), "{told}");
    // As older versions recorded it.
    let older: Vec<&str> = locks.columns().iter().map(|c| c.name.as_str()).collect();
    let older: Vec<&str> = older.into_iter().filter(|c| !matches!(*c, "pattern" | "advice")).collect();
    let told = row(locks.project(&older).unwrap());
    assert!(told.contains("<td>0x7f</td><td>lock</td>") && told.contains("python3/8 50\u{a0}%"), "{told}");
}

#[test]
fn who_everybody_waited_for_is_a_flame_graph() {
    let path = |rows: &[(&[&str], &[f64])]| {
        let path = table(
            "critical_path",
            &["reason", "process", "thread", "doing", "code", "stack"],
            &["idle", "seconds", "count"],
            rows,
        );
        page(&recording(vec![cpu_time(2, 2), path])).unwrap()
    };
    let page = path(&[
        (&["serial", "app", "main", "running", "parse", "main;load;parse"], &[3.0, 3.0, 30.0]),
        (&["serial", "app", "main", "running", "parse", "main;load;parse"], &[1.0, 1.0, 10.0]),
        (&["asleep", "app", "main", "asleep for a time in nanosleep", "", "main;retry"], &[4.0, 2.0, 5.0]),
        (&["asleep", "", "", "waiting for a timer", "", ""], &[2.0, 1.0, 5.0]),
    ]);
    let from = page.find("id=flame-waited-for").expect("the graph");
    let graph = page[from..].split("</pre>").next().unwrap();
    assert!(
        graph.starts_with(
            "id=flame-waited-for data-now=stacks-waited-for><h3>Threads that the others waited for <small>10.00 s</small>"
        ),
        "{graph}"
    );
    // Without a stack it is what was done alone.
    let told = "asleep for a time in nanosleep;main;retry 4000000\nrunning;main;load;parse 4000000\nwaiting for a timer 2000000\n";
    assert!(graph.ends_with(&format!("id=stacks-waited-for tabindex=0>{told}")), "{graph}");
    // Where no CPU waited for a thread, there is no graph.
    assert!(!path(&[]).contains("flame-waited-for"));
}

#[test]
fn empty_tables_and_missing_ones() {
    assert!(page(&recording(Vec::new())).is_err());
    let full = whole("x");
    let empty = full.tables.values().map(|t| Table::from_batch(t.name(), t.batch().slice(0, 0)).unwrap());
    for tables in [vec![cpu_time(0, 0)], vec![cpu_time(2, 2)], empty.collect()] {
        let page = page(&recording(tables)).unwrap();
        assert!(page.contains("No thread was seen.") && page.contains("No timer sample hit the program."));
    }
}

#[test]
fn values_no_observation_has() {
    let odd = [f64::NAN, f64::INFINITY, -1.0, 1e308];
    let mut tables: Vec<Table> = odd
        .iter()
        .map(|v| table("stacks", &["kind", "stack"], &["seconds"], &[(&["on-cpu", ";;a;_[k]"], &[*v])]))
        .collect();
    tables.push(table("stacks", &["kind"], &["seconds"], &[(&["on-cpu"], &[1.0])]));
    for stacks in tables {
        let cell = [odd[0], 0.0, odd[1], odd[2], odd[3], 0.0, 0.0, 0.0, 0.0, 0.0];
        for elapsed in odd {
            let summary = table("summary", &[], &["elapsed"], &[(&[], &[elapsed])]);
            let times = table("cpu_time", &[], &WHERE, &[(&[], &cell)]);
            let mut r = recording(vec![times, summary, stacks.clone()]);
            r.manifest.created_unix = f64::NAN;
            assert_eq!(page(&r).is_ok(), elapsed == 1e308, "{elapsed}");
        }
    }
}

#[test]
fn deep_stacks_are_cut_and_wide_graphs_get_coarser() {
    let deep = vec!["f"; 100_000].join(";");
    let wide: Vec<String> =
        (0..4000).map(|i| format!("p;{}{i}", "function_of_a_long_name_".repeat(5))).collect();
    let mut rows: Vec<(Vec<&str>, [f64; 1])> = vec![(vec!["on-cpu", &deep], [1.0])];
    rows.extend(wide.iter().map(|w| (vec!["on-cpu", w.as_str()], [0.001])));
    let rows: Vec<(&[&str], &[f64])> = rows.iter().map(|(w, n)| (&w[..], &n[..])).collect();
    let page =
        page(&recording(vec![cpu_time(1, 1), table("stacks", &["kind", "stack"], &["seconds"], &rows)]))
            .unwrap();
    assert!(page.len() < 700_000, "{}", page.len());
    assert!(page.contains("Frames below 0.02 % are not drawn."));
}

#[test]
fn one_interval_is_said() {
    let page = page(&recording(vec![cpu_time(2, 1)])).unwrap();
    assert!(page.contains("There is one interval only"));
}

#[test]
fn a_recovered_recording_has_no_summary() {
    let mut cut = whole("x");
    cut.tables.remove("summary");
    assert!(!page(&cut).unwrap().contains("incomplete"));
    cut.manifest.complete = false;
    let page = page(&cut).unwrap();
    assert!(page.contains("<li>the recording is incomplete: its writer did not finish. It holds "), "{page}");
    assert!(page.contains("until about 2024-02-29 12:00:0") && page.contains("known of commands run"));
}

#[test]
fn large_machines_make_no_large_page() {
    let page = page(&recording(vec![cpu_time(2048, 30)])).unwrap();
    assert!(page.contains("each row is the mean of 8 CPUs"));
    assert!(page.len() < 400_000, "{}", page.len());
}

/// For looking at: `PAGE=/tmp/big.html cargo test --release -p ncpu-report write_a_page -- --ignored`.
#[test]
#[ignore = "writes a page to look at"]
fn write_a_page() {
    let Ok(file) = std::env::var("PAGE") else { return };
    let mut big = whole("files_struct.file_lock");
    big.tables.remove("summary");
    big.tables.insert("cpu_time".into(), cpu_time(2048, 600));
    std::fs::write(file, page(&big).unwrap()).unwrap();
}
