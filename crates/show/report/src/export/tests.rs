use ncpu_record::{Gather, Manifest, Recording};
use ncpu_schema::{
    CpuState, Microstate, Per, Purpose, StackKind, cpu_time, stacks, summary, tenant_names, threads,
};

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
    let worker = Some(("web", "worker"));
    for (kind, stack, of, wait, seconds, samples) in [
        (StackKind::OnCpu, "worker;main;work", worker, None, 0.5, 50),
        (StackKind::OnCpu, "worker;main;work", worker, None, 0.25, 25),
        (StackKind::OnCpu, "worker;main;run (pool.py:7)", worker, None, 0.03125, 3),
        (StackKind::OnCpu, "worker;main;<chan::Rx<T>>::recv", worker, None, 0.015625, 1),
        (
            StackKind::Spin,
            "web;main;write;ksys_write_[k];queued_spin_lock_[k]",
            Some(("web", "web")),
            None,
            0.125,
            12,
        ),
        (
            StackKind::OffCpu,
            "user lock;worker;main;wait\nfor\u{202e};futex_wait_[k];schedule_[k];__schedule_[k]",
            worker,
            Some("user lock"),
            2.5,
            0,
        ),
        (StackKind::OffCpu, "asleep;db;__schedule_[k]", Some(("db", "db")), Some("asleep"), 0.25, 0),
        (StackKind::OnCpu, "[others]", None, None, 0.0625, 6),
        (StackKind::OffCpu, "I/O;[others]", None, Some("I/O"), 0.125, 0),
    ] {
        rows.push(stacks::Row {
            kind: Some(kind),
            stack: stack.into(),
            seconds: Some(seconds),
            samples: Some(samples),
            time: None,
            process: of.map(|(process, _)| process).into(),
            thread: of.map(|(_, thread)| thread).into(),
            wait: wait.into(),
            binaries: stack.starts_with("worker;main;work").then_some("libc.so.6*1;web*1").into(),
            at: None,
            class: None,
            lock: None::<&str>.into(),
            waits: None,
        });
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
        "[others] 62500\n\
         web;main;write;ksys_write_[k];queued_spin_lock_[k] 125000\n\
         worker;main;<chan::Rx<T>>::recv 15625\n\
         worker;main;run (pool.py:7) 31250\n\
         worker;main;work 750000\n"
    );
    assert_eq!(text(StackKind::Spin), "web;main;write;ksys_write_[k];queued_spin_lock_[k] 125000\n");
    assert_eq!(
        text(StackKind::OffCpu),
        "I/O;[others] 125000\nasleep;db;__schedule_[k] 250000\nuser lock;worker;main;wait\\nfor\\u202e;futex_wait_[k] 2500000\n"
    );
}

#[test]
fn names_of_others_cannot_turn_or_move_what_a_tool_prints() {
    let profile = pprof(&recording(), StackKind::OffCpu).unwrap();
    for bytes in [profile, perfetto(&recording()).unwrap(), otlp(&recording()).unwrap()] {
        let found = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        assert!(found(b"web") && !found("\u{202e}".as_bytes()));
    }
}

#[test]
fn stacks_of_older_recordings_have_their_parts_in_their_text() {
    let table = |kind, stack: &str| {
        let mut rows = stacks::Rows::new();
        rows.push(stacks::Row { kind: Some(kind), stack: stack.into(), ..Default::default() });
        rows.finish().project(&["kind", "stack", "seconds", "samples"]).unwrap()
    };
    for (kind, stack, process, wait, frames) in [
        (StackKind::OnCpu, "web;main;work", "web", None, "main;work"),
        (StackKind::OnCpu, "asleep;main", "asleep", None, "main"),
        (StackKind::OffCpu, "user lock;web;main", "web", Some("user lock"), "main"),
        (StackKind::OffCpu, ";web;main", "web", None, "main"),
        (StackKind::OffCpu, "web;main", "web", None, "main"),
        (StackKind::OffCpu, "web", "web", None, "web"),
        (StackKind::OnCpu, "[others]", "[others]", None, "[others]"),
    ] {
        let recording =
            Recording::new(Manifest::new(Purpose::Watch, 2, Vec::new(), 1.0)).with(table(kind, stack));
        let recording = Recording { manifest: Manifest { schema: 4, ..recording.manifest }, ..recording };
        let reader = stacks::Reader::need(&recording).unwrap();
        let parts = Parts { process, thread: process, wait, frames, binaries: "" };
        assert_eq!(Parts::of(&reader, 0), Some(parts), "{stack}");
    }
}

#[test]
fn frames_have_the_files_of_their_runs() {
    let files = |frames, binaries| {
        let parts = Parts { process: "p", thread: "p", wait: None, frames, binaries };
        parts.with_files().map(|(_, file)| file.unwrap_or("?")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(files("a;b;c;d_[k]", "libc.so.6*1;x*2"), "libc.so.6 x x ?");
    assert_eq!(files("a;b;c", "-*1;a*b*1"), "? a*b ?");
    assert_eq!(files("a;b", "x*0;y*1;z*99999999999999999999"), "y ?");
    assert_eq!(files("a_[k]", ""), "?");
}

/// Runs a program on a file; `None`, with a message, if it is not installed.
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
    let pprof = |kind: &str, more: &[&str]| {
        let index = format!("-sample_index={kind}");
        let mut args = vec!["tool", "pprof", "-unit=ms", "-nodecount=100", "-symbolize=none", &index];
        args.extend(more);
        args.push(file.to_str().unwrap());
        run("go", &args, "no go tool pprof")
    };
    let top = |kind: &str, more: &[&str]| {
        let text = pprof(kind, &[&["-top"], more].concat())?;
        // flat flat% sum% cum cum% name
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let number = |word: Option<&str>| word?.trim_end_matches("ms").parse::<f64>().ok();
            let flat = number(words.next())?;
            let cum = number(words.nth(2))?;
            Some((words.skip(1).collect::<Vec<_>>().join(" "), flat, cum))
        };
        Some(text.lines().skip_while(|l| !l.contains("flat%")).skip(1).filter_map(row).collect::<Vec<_>>())
    };
    let Some(cpu) = top("cpu", &[]) else { return };
    let of = |rows: &[(String, f64, f64)], name: &str| {
        rows.iter().find(|r| r.0 == name).map(|r| (r.1, r.2)).unwrap_or_else(|| panic!("no {name}: {rows:?}"))
    };
    assert_eq!(of(&cpu, "work"), (750.0, 750.0));
    assert_eq!(of(&cpu, "main"), (0.0, 921.88));
    assert_eq!(of(&cpu, "queued_spin_lock"), (125.0, 125.0));
    // Names are whole, and Python's have their file and line.
    assert_eq!(of(&cpu, "<chan::Rx<T>>::recv"), (15.62, 15.62));
    assert_eq!(of(&cpu, "run"), (31.25, 31.25));
    let lines = pprof("cpu", &["-traces", "-lines"]).unwrap();
    assert!(lines.contains("run pool.py:7"), "{lines}");
    // The files that have the code are mappings.
    let raw = pprof("cpu", &["-raw"]).unwrap();
    for file in ["libc.so.6", "web", "[kernel]", "[programs]"] {
        let named = |line: &str| line.contains("[FN]") && line.split_whitespace().any(|word| word == file);
        assert!(raw.lines().any(named), "no mapping {file}: {raw}");
    }
    // Labels: process, thread, and the reason to be off CPU.
    assert_eq!(of(&top("cpu", &["-tagfocus=process=web"]).unwrap(), "work"), (750.0, 750.0));
    assert!(!top("cpu", &["-tagfocus=thread=^web$"]).unwrap().iter().any(|r| r.0 == "work"));
    assert_eq!(of(&top("cpu", &["-tagfocus=thread=worker"]).unwrap(), "work"), (750.0, 750.0));
    let tags = pprof("off-cpu", &["-tags"]).unwrap();
    for tag in ["process: Total", "thread: Total", "wait: Total", "user lock", "asleep"] {
        assert!(tags.contains(tag), "no {tag}: {tags}");
    }
    let off = top("off-cpu", &[]).unwrap();
    assert_eq!(of(&off, "__schedule"), (250.0, 250.0), "where there is nothing else");
    assert_eq!(of(&top("off-cpu", &["-tagfocus=wait=user lock"]).unwrap(), "futex_wait"), (2500.0, 2500.0));
    let spin = top("spin", &[]).unwrap();
    assert_eq!(of(&spin, "ksys_write"), (0.0, 125.0));
    assert!(!spin.iter().any(|r| r.0 == "work" && r.2 > 0.0), "{spin:?}");
    assert_eq!(of(&off, "futex_wait"), (2500.0, 2500.0));
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

#[test]
fn speedscope_has_each_second_of_each_kind_once() {
    let file: serde_json::Value =
        serde_json::from_slice(&speedscope(&recording(), "web --port 80").unwrap()).unwrap();
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    assert_eq!(file["name"], "web --port 80");
    let frames = file["shared"]["frames"].as_array().unwrap();
    let mut sums = Vec::new();
    for profile in file["profiles"].as_array().unwrap() {
        let (samples, weights) =
            (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
        assert_eq!(samples.len(), weights.len());
        assert!(
            samples.iter().all(|s| s
                .as_array()
                .unwrap()
                .iter()
                .all(|n| n.as_u64().unwrap() < frames.len() as u64))
        );
        let sum: f64 = weights.iter().map(|w| w.as_f64().unwrap()).sum();
        assert!((sum - profile["endValue"].as_f64().unwrap()).abs() < 1e-9);
        sums.push((profile["name"].as_str().unwrap(), sum));
    }
    let names: Vec<&str> = sums.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["on CPU", "spinning", "off CPU"]);
    let folded = String::from_utf8(folded(&recording(), StackKind::OnCpu).unwrap()).unwrap();
    let microseconds: f64 =
        folded.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    assert!((sums[0].1 - microseconds / 1e6).abs() < 1e-5, "{sums:?} {microseconds}");
    assert!((sums[1].1 - 0.125).abs() < 1e-9 && sums[2].1 >= 2.75, "{sums:?}");
    // A frame of the kernel says so, and the scheduler's are left out.
    let named = |name: &str| frames.iter().find(|f| f["name"] == name);
    assert_eq!(named("queued_spin_lock").unwrap()["file"], "[kernel]");
    assert!(named("__schedule").is_none() || named("__schedule_[k]").is_none());
    assert!(named("user lock").is_some() && named("work").is_some());
}

/// Values, by type, and resources, as OpenTelemetry's own messages have them.
const PROFILES: &str = r#"
import sys
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
request = ExportProfilesServiceRequest.FromString(open(sys.argv[1], "rb").read())
d = request.dictionary
word = lambda n: d.string_table[n]
def value(v):
    kind = v.WhichOneof("value")
    return [value(x) for x in v.array_value.values] if kind == "array_value" else getattr(v, kind)
for table in d.DESCRIPTOR.fields:
    entries = [e if isinstance(e, str) else e.SerializeToString(deterministic=True) for e in getattr(d, table.name)]
    assert not entries[0], table.name
    assert len(set(entries)) == len(entries), table.name
attributes = lambda numbers: " ".join(f"{word(d.attribute_table[n].key_strindex)}={value(d.attribute_table[n].value)}" for n in numbers)
def frame(location):
    [line] = location.lines
    function = d.function_table[line.function_index]
    file = word(d.mapping_table[location.mapping_index].filename_strindex)
    source = f"@{word(function.filename_strindex)}:{line.line}" if line.line else ""
    return word(function.name_strindex) + source + (f"<{file}>" if file else "") + attributes(location.attribute_indices)
for resource in request.resource_profiles:
    print("resource", *(f"{a.key}={value(a.value)}" for a in resource.resource.attributes))
    [scope] = resource.scope_profiles
    assert scope.scope.name == "ncpu"
    for p in scope.profiles:
        kind = word(p.sample_type.type_strindex)
        print("profile", kind, word(p.sample_type.unit_strindex), p.time_unix_nano, p.duration_nano, p.period)
        for sample in p.samples:
            [number] = sample.values
            locations = d.stack_table[sample.stack_index].location_indices
            assert 0 not in locations
            print(kind, number, ",".join(frame(d.location_table[n]) for n in locations), attributes(sample.attribute_indices))
"#;

#[test]
fn opentelemetry_s_own_messages_read_the_profiles() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("profiles.otlp");
    std::fs::write(&file, otlp(&recording()).unwrap()).unwrap();
    let args = ["-c", PROFILES, file.to_str().unwrap()];
    let Some(printed) = run("python3", &args, "no Python package opentelemetry-proto") else { return };
    let host = Manifest::new(Purpose::Watch, 2, Vec::new(), 1.0).host;
    let machine = format!("resource host.name={host} os.type=linux");
    for line in [
        &format!("{machine} process.executable.name=web process.pid=7"),
        &format!("{machine} process.executable.name=db"),
        &machine,
        "profile cpu nanoseconds 1700000000000000000 2000000000 10101010",
        "profile off_cpu nanoseconds 1700000000000000000 2000000000 0",
        "cpu 750000000 work<web>,main<libc.so.6> thread.name=worker",
        "samples 75 work<web>,main<libc.so.6> thread.name=worker",
        "cpu 31250000 run@pool.py:7,main thread.name=worker",
        "cpu 125000000 queued_spin_lock<[kernel]>profile.frame.type=kernel,ksys_write<[kernel]>profile.frame.type=kernel,write,main thread.name=web",
        "spin 125000000 queued_spin_lock<[kernel]>profile.frame.type=kernel,ksys_write<[kernel]>profile.frame.type=kernel,write,main thread.name=web",
        "off_cpu 2500000000 futex_wait<[kernel]>profile.frame.type=kernel,wait\\nfor\\u202e,main thread.name=worker ncpu.wait=user lock",
        "cpu 62500000 [others] ",
        "off_cpu 125000000 [others] ncpu.wait=I/O",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "no {line} in {printed}");
    }
    // Viewers show the first profile.
    assert!(printed.lines().nth(1).unwrap().starts_with("profile cpu"), "{printed}");
    let sum = |kind: &str| -> u64 {
        let rows = printed.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        rows.map(|row| row.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!(sum("cpu"), 500_000_000 + 250_000_000 + 31_250_000 + 15_625_000 + 125_000_000 + 62_500_000);
    assert_eq!((sum("spin"), sum("off_cpu")), (125_000_000, 2_500_000_000 + 250_000_000 + 125_000_000));
    assert_eq!(sum("samples"), 50 + 25 + 3 + 1 + 12 + 6);
}

#[test]
fn a_profile_s_resource_is_what_all_processes_of_the_name_share() {
    const ID: &str = "3f9d0e4a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566";
    const POD: &str = "/kubepods/burstable/pod7a1d2c3b-4e5f-6071-8293-a4b5c6d7e8f9";
    let with = |groups: &[(&str, Option<&str>)]| {
        let mut rows = tenant_names::Rows::new();
        for (number, (cgroup, pod)) in (4..).zip(groups) {
            rows.push(tenant_names::Row {
                tenant: Some(number),
                cgroup: (*cgroup).into(),
                program: "web".into(),
                pod: (*pod).into(),
                ..Default::default()
            });
        }
        let bytes = otlp(&recording().with(rows.finish())).unwrap();
        move |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    let group = format!("{POD}/{ID}");
    let one = with(&[(&group, Some("shop/web-0"))]);
    for text in
        ["container.id", ID, "k8s.pod.uid", "7a1d2c3b-4e5f-6071-8293-a4b5c6d7e8f9", "k8s.pod.name", "web-0"]
    {
        assert!(one(text), "no {text}");
    }
    // Another container of the pod has processes of the name, too.
    let other = format!("{POD}/{}", ID.replace('3', "4"));
    let two = with(&[(&group, Some("shop/web-0")), (&other, Some("shop/web-0"))]);
    assert!(two("k8s.pod.uid") && !two("container.id"));
    let none = with(&[(&group, Some("shop/web-0")), ("/system.slice/web.service", None)]);
    assert!(!none("k8s.pod.uid") && !none("container.id") && !none("k8s.pod.name"));
    // Numbers that no recording has do not become negative ones.
    assert_eq!(super::words::nanoseconds(1e300), i64::MAX as u64);
}
