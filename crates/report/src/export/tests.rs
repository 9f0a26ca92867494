use ncpu_record::{Gather, Manifest, Recording};
use ncpu_schema::{CpuState, Microstate, Per, Purpose, StackKind, cpu_time, stacks, summary, threads};

use super::*;

/// Two intervals of 1 s of two CPUs, with three stacks.
fn recording() -> Recording {
    let mut manifest = Manifest::new(Purpose::Watch, 2, Vec::new(), 1.0);
    manifest.created_unix = 1_700_000_000.0;
    let mut gather = Gather::new(manifest);
    let mut rows = cpu_time::Rows::new();
    for (t, cpu, busy) in [(1.0, 0, 0.25), (1.0, 1, 0.5), (2.0, 0, 1.0), (2.0, 1, 0.0)] {
        let spent = Per::new(|state| match state {
            CpuState::Program => Some(busy),
            CpuState::Idle => Some(1.0 - busy),
            _ => Some(0.0),
        });
        rows.push(cpu_time::Row { time: Some(t), cpu: Some(cpu), spent, kernel: None });
    }
    gather.append(&rows.finish()).unwrap();
    let mut rows = threads::Rows::new();
    for (t, tid, cpu) in [(1.0, 7, 0.75), (2.0, 7, 0.5), (2.0, 8, 0.5)] {
        rows.push(threads::Row {
            time: Some(t),
            pid: Some(7),
            tid: Some(tid),
            process: "web".into(),
            thread: if tid == 7 { "web" } else { "worker" }.into(),
            cpu: Some(cpu),
            spin: Some(0.0),
            micro: Per::new(|state| (state == Microstate::Slp).then_some(1.0 - cpu)),
            ..Default::default()
        });
    }
    gather.append(&rows.finish()).unwrap();
    let mut rows = stacks::Rows::new();
    for (kind, stack, seconds, samples) in [
        (StackKind::OnCpu, "web;main;work", 0.5, 50),
        (StackKind::OnCpu, "web;main;work", 0.25, 25),
        (StackKind::Spin, "web;main;write;ksys_write_[k];queued_spin_lock_[k]", 0.125, 12),
        (StackKind::OffCpu, "web;main;wait\nfor\u{202e};futex_wait_[k]", 2.5, 0),
        (StackKind::OnCpu, "[others]", 0.0625, 6),
    ] {
        let (stack, kind) = (stack.into(), Some(kind));
        rows.push(stacks::Row { kind, stack, seconds: Some(seconds), samples: Some(samples), time: None });
    }
    gather.append(&rows.finish()).unwrap();
    let mut rows = summary::Rows::new();
    rows.push(summary::Row { elapsed: Some(2.0), cpus: Some(2), hz: Some(99), ..Default::default() });
    gather.append(&rows.finish()).unwrap();
    gather.finish().unwrap()
}

#[test]
fn stacks_as_lines() {
    let text = |kind| String::from_utf8(folded(&recording(), kind).unwrap()).unwrap();
    assert_eq!(
        text(StackKind::OnCpu),
        "[others] 62500\nweb;main;work 750000\nweb;main;write;ksys_write_[k];queued_spin_lock_[k] 125000\n"
    );
    assert_eq!(text(StackKind::Spin), "web;main;write;ksys_write_[k];queued_spin_lock_[k] 125000\n");
    assert_eq!(text(StackKind::OffCpu), "web;main;wait\\nfor\\u202e;futex_wait_[k] 2500000\n");
}

#[test]
fn names_of_others_cannot_turn_or_move_what_a_tool_prints() {
    let profile = pprof(&recording(), StackKind::OffCpu).unwrap();
    for bytes in [profile, perfetto(&recording()).unwrap()] {
        let found = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        assert!(found(b"web") && !found("\u{202e}".as_bytes()));
    }
}

/// Runs a program on a file; `None`, with words, where there is none.
fn run(program: &str, args: &[&str], skip: &str) -> Option<String> {
    let Ok(out) = std::process::Command::new(program).args(args).output() else {
        eprintln!("skipped: {skip}");
        return None;
    };
    let (told, wrong) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if wrong.contains("No module named") {
        eprintln!("skipped: {skip}");
        return None;
    }
    assert!(out.status.success(), "{wrong}");
    Some(told.into_owned())
}

#[test]
fn go_tool_pprof_finds_what_the_tables_tell() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("profile.pb");
    std::fs::write(&file, pprof(&recording(), StackKind::OnCpu).unwrap()).unwrap();
    let top = |kind: &str| {
        let index = format!("-sample_index={kind}");
        let args = [
            "tool",
            "pprof",
            "-top",
            "-unit=ms",
            "-nodecount=100",
            "-symbolize=none",
            &index,
            file.to_str().unwrap(),
        ];
        let text = run("go", &args, "no go tool pprof")?;
        // flat flat% sum% cum cum% name
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let number = |word: Option<&str>| word?.trim_end_matches("ms").parse::<f64>().ok();
            let flat = number(words.next())?;
            let cum = number(words.nth(2))?;
            Some((words.nth(1)?.to_owned(), flat, cum))
        };
        Some(text.lines().skip_while(|l| !l.contains("flat%")).skip(1).filter_map(row).collect::<Vec<_>>())
    };
    let Some(cpu) = top("cpu") else { return };
    let of = |rows: &[(String, f64, f64)], name: &str| {
        rows.iter().find(|r| r.0 == name).map(|r| (r.1, r.2)).unwrap_or_else(|| panic!("no {name}: {rows:?}"))
    };
    assert_eq!(of(&cpu, "work"), (750.0, 750.0));
    assert_eq!(of(&cpu, "main"), (0.0, 875.0));
    assert_eq!(of(&cpu, "queued_spin_lock"), (125.0, 125.0));
    let spin = top("spin").unwrap();
    assert_eq!(of(&spin, "ksys_write"), (0.0, 125.0));
    assert!(!spin.iter().any(|r| r.0 == "work" && r.2 > 0.0), "{spin:?}");
    assert_eq!(of(&top("off-cpu").unwrap(), "futex_wait"), (2500.0, 2500.0));
}

/// Prints tracks and their values as Perfetto's own messages have them.
const DECODE: &str = r#"
import sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
trace = Trace.FromString(open(sys.argv[1], "rb").read())
names, parents = {}, {}
for p in trace.packet:
    assert p.trusted_packet_sequence_id == 1
    if p.HasField("clock_snapshot"):
        print("clocks", p.clock_snapshot.primary_trace_clock, [(c.clock_id, c.timestamp) for c in p.clock_snapshot.clocks])
    if p.HasField("track_descriptor"):
        t = p.track_descriptor
        name = t.name or t.process.process_name and f"{t.process.process_name}/{t.process.pid}" or f"{t.thread.thread_name}/{t.thread.tid}"
        names[t.uuid] = names.get(t.parent_uuid, "") + ">" + name
        assert not t.HasField("counter") or t.counter.unit_name == "CPUs"
    if p.HasField("track_event"):
        e = p.track_event
        assert e.type == e.TYPE_COUNTER
        print(names[e.track_uuid], p.timestamp / 1e9, e.double_counter_value)
"#;

#[test]
fn perfetto_s_own_messages_read_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.perfetto-trace");
    std::fs::write(&file, perfetto(&recording()).unwrap()).unwrap();
    let args = ["-c", DECODE, file.to_str().unwrap()];
    let Some(told) = run("python3", &args, "no Python package perfetto") else { return };
    let lines: Vec<&str> = told.lines().collect();
    for line in [
        "clocks 6 [(6, 0), (1, 1700000000000000000)]",
        ">all CPUs>target 0.0 0.75",
        ">all CPUs>target 1.0 1.0",
        ">all CPUs>target 2.0 0.0",
        ">CPU 0>target 1.0 1.0",
        ">CPU 1>target 0.0 0.5",
        ">CPU 1>target 1.0 0.0",
        ">web/7>web/7>cpu 0.0 0.75",
        ">web/7>web/7>off-cpu 1.0 0.5",
        ">web/7>worker/8>cpu 1.0 0.5",
        ">web/7>worker/8>cpu 2.0 0.0",
    ] {
        assert!(lines.contains(&line), "no {line} in {told}");
    }
    assert!(!told.contains("worker/8>cpu 0.0"), "{told}");
    assert!(!told.contains("spin"), "what was never above 0 has no track: {told}");
}
