use ncpu_machine::limits::{Area, Knob, Limits, Pressure, Reading, Scope, Setting, Size, Unit};

use super::*;

fn reading(limit: &str, area: Area, value: u64, used: u64, knob: Knob) -> Reading {
    Reading {
        limit: limit.into(),
        area,
        scope: Scope::Machine,
        unit: Unit::Count,
        value: Some(value),
        used: Some(used),
        peak: None,
        hits: None,
        enough: None,
        note: None,
        knob,
    }
}

/// 64 CPUs, 512 GiB, and pid_max set as on the blog's Solaris.
fn limits() -> Limits {
    let cgroup = |path: &str| Scope::Cgroup(path.into());
    let mut throttled = reading(
        "cpu.max",
        Area::Cgroups,
        2000,
        0,
        Knob::CpuMax("/sys/fs/cgroup/it's mine/cpu.max".into(), 100_000),
    );
    throttled.scope = cgroup("/it's mine");
    (throttled.used, throttled.unit) = (None, Unit::MilliCpus);
    (throttled.hits, throttled.enough) = (Some(50), Some(3000));
    let mut memory = reading(
        "memory.max",
        Area::Cgroups,
        1 << 30,
        1 << 29,
        Knob::File("/sys/fs/cgroup/a/memory.max".into()),
    );
    (memory.scope, memory.unit, memory.peak) = (cgroup("/a"), Unit::Bytes, Some(1 << 30));
    let mut files = reading(
        "RLIMIT_NOFILE",
        Area::Processes,
        1024,
        1000,
        Knob::Prlimit { pid: 77, option: "nofile", hard: Some(4096) },
    );
    files.scope = Scope::Process { pid: 77, comm: "evil\u{1b}[2J".into() };
    Limits {
        size: Size { cpus: 64, memory: 512 << 30, nodes: 4, page: 4096 },
        hz: Some(250),
        readings: vec![
            reading("kernel.pid_max", Area::Tasks, 30_000, 900, Knob::Sysctl("kernel.pid_max")),
            reading("fs.nr_open", Area::Files, 1 << 20, 5, Knob::Sysctl("fs.nr_open")),
            reading("fs.file-max", Area::Files, i64::MAX as u64, 5, Knob::Sysctl("fs.file-max")),
            reading("Dentry cache hash", Area::Hashes, 1 << 24, 5, Knob::Boot("dhash_entries")),
            reading(
                "net.ipv4.ip_local_port_range",
                Area::Network,
                28_232,
                27_000,
                Knob::Field { name: "net.ipv4.ip_local_port_range", all: vec![32_768, 60_999], at: 0 },
            ),
            memory,
            throttled,
            files,
        ],
        pressure: vec![Pressure {
            cgroup: None,
            resource: "cpu",
            kind: "some",
            avg: [1.0, 2.0, 3.0],
            total_us: 4,
        }],
        settings: vec![Setting {
            about: "timer",
            name: "CONFIG_HZ".into(),
            value: "250".into(),
            source: "/proc/config.gz".into(),
        }],
        unread: Vec::new(),
    }
}

#[test]
fn worst_first_each_with_its_fit() {
    let limits = limits();
    let judged: Vec<_> = judge(&limits).iter().map(|j| (j.status, j.reading.limit.clone(), j.fit)).collect();
    assert_eq!(
        judged[..4],
        [
            (Status::Hit, "cpu.max".to_string(), Some(3000)),
            (Status::Near, "net.ipv4.ip_local_port_range".into(), Some(54_000)),
            (Status::Near, "RLIMIT_NOFILE".into(), Some(2000)),
            (Status::Small, "kernel.pid_max".into(), Some(65_536)),
        ]
    );
    assert!(
        judged[4..].iter().all(|j| j.0 == Status::Ok),
        "a peak of file cache is not a problem: {judged:?}"
    );
}

#[test]
fn text_fits_and_tells_the_command() {
    insta::assert_snapshot!(render(&limits(), false, 80));
    let wide = render(&limits(), true, 200);
    assert!(wide.lines().all(|l| l.chars().count() <= 200), "{wide}");
    assert!(!wide.contains('\u{1b}'));
    assert!(wide.contains("no limit"), "{wide}");
}

#[test]
fn a_planned_machine() {
    let limits = limits();
    let size = Size { cpus: 2048, memory: 32 << 40, nodes: 32, page: 4096 };
    let plan = planned(&limits, size);
    let of = |limit: &str| plan.iter().find(|p| p.reading.limit == limit).unwrap();
    let pids = of("kernel.pid_max");
    assert_eq!((pids.there, pids.fit, pids.small, pids.by), (30_000, 2 << 20, true, By::Set));
    let files = of("fs.nr_open");
    assert_eq!((files.there, files.fit, files.by), (1 << 20, 2 << 20, By::Fixed));
    // 512 GiB have 2^24 buckets by the kernel's formula, so the kernel sized it and will there too.
    let dentries = of("Dentry cache hash");
    assert!(dentries.by == By::Boot && !dentries.small, "{dentries:?}");
    let text = super::plan(&limits, size, false, 80);
    assert!(text.contains("3 of 5 limits would be too small, 2 would fit."), "{text}");
    let file = sysctl_file(&limits, Some(size));
    assert!(
        file.contains("\nkernel.pid_max = 2097152\n") && file.contains("\nfs.nr_open = 2097152\n"),
        "{file}"
    );
    assert!(boot_parameters(&limits, Some(size)).is_empty());
    assert!(sysctl_file(&limits, None).contains("net.ipv4.ip_local_port_range = 11536 65535\n"));
}

#[test]
fn the_tables_hold_what_the_text_tells() {
    let limits = limits();
    let t = table(&limits);
    assert_eq!((t.num_rows(), t.text(0, "status"), t.int(0, "fit")), (8, Some("hit"), Some(3000)));
    assert_eq!(t.text(0, "set"), Some("echo '300000 100000' > '/sys/fs/cgroup/it'\\''s mine/cpu.max'"));
    assert_eq!(t.text(2, "set"), Some("prlimit --pid 77 --nofile=2000:"));
    assert_eq!(pressure(&limits).num_rows(), 1);
    assert_eq!(settings(&limits).text(0, "value"), Some("250"));
    assert_eq!(plan_table(&limits, limits.size).num_rows(), 5);
}

#[test]
fn two_numbers_of_one_sysctl_are_one_line() {
    let mut limits = limits();
    let knob = |at| Knob::Field { name: "kernel.sem", all: vec![1, 2, 3, 4], at };
    limits.readings = vec![
        reading("kernel.sem[2]", Area::Ipc, 2, 2, knob(1)),
        reading("kernel.sem[4]", Area::Ipc, 4, 4, knob(3)),
    ];
    let file = sysctl_file(&limits, None);
    assert_eq!(file.matches("kernel.sem").count(), 1, "{file}");
    assert!(file.ends_with("\nkernel.sem = 1 4 3 8\n"), "{file}");
}

#[test]
fn limits_that_were_met_are_lifted_where_they_bind() {
    let mut all = limits();
    let mut files = reading("fs.file-max", Area::Files, 1000, 990, Knob::Sysctl("fs.file-max"));
    files.hits = None;
    let mut tasks =
        reading("pids.max", Area::Cgroups, 4, 4, Knob::File("/sys/fs/cgroup/pids/b/c/pids.max".into()));
    (tasks.scope, tasks.hits) = (Scope::Cgroup("/b/c".into()), Some(3));
    all.readings = vec![files, tasks];
    let of = |groups: &[&str]| -> Vec<(String, String)> {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let lifts = lifts(&all, &groups).into_iter();
        lifts.map(|l| (l.file.display().to_string(), l.value)).collect()
    };
    let machine = ("/proc/sys/fs/file-max".to_string(), of(&[])[0].1.clone());
    assert!(machine.1.parse::<u64>().unwrap() >= 1980, "{machine:?}");
    let group = ("/sys/fs/cgroup/pids/b/c/pids.max".to_string(), "8".to_string());
    assert_eq!(of(&["/b"]), std::slice::from_ref(&machine));
    assert_eq!(of(&["/b/cd"]), std::slice::from_ref(&machine));
    for own in ["/b/c", "/b/c/d"] {
        let mut both = of(&["/x", own]);
        both.sort();
        assert_eq!(both, [machine.clone(), group.clone()], "{own}");
    }
    // A limit that merely does not fit the machine is left alone.
    assert!(lifts(&limits(), &["/a".into()]).iter().all(|l| l.limit != "kernel.pid_max"));
}
