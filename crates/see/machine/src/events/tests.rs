//! Sysfs trees of machines: an Intel server, a hybrid, AMD, Arm, and one without a PMU.

use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use ncpu_machine_trees::put;

/// Writes a tree: `PATH TEXT` per line, paths below `sys/bus/event_source/devices` unless they begin with
/// `/`.
fn tree(files: &str) -> (TempDir, Sources) {
    let root = TempDir::new().unwrap();
    for line in files.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (path, text) = line.split_once(' ').unwrap_or((line, ""));
        let path = match path.strip_prefix('/') {
            Some(absolute) => absolute.to_owned(),
            None => format!("sys/bus/event_source/devices/{path}"),
        };
        put(root.path(), path, &(text.replace("\\n", "\n") + "\n"));
    }
    let mut sources = Sources::read(root.path()).unwrap();
    sources.read_tracepoints(root.path(), "*:*");
    (root, sources)
}

const SKYLAKE_SERVER: &str = "
    /proc/cpuinfo processor : 0\\nvendor_id : GenuineIntel\\ncpu family : 6\\nmodel : 85\\n\\nprocessor : 1
    cpu/type 4
    cpu/format/event config:0-7
    cpu/format/umask config:8-15
    cpu/format/edge config:18
    cpu/format/any config:21
    cpu/format/inv config:23
    cpu/format/cmask config:24-31
    cpu/format/offcore_rsp config1:0-63
    cpu/format/ldlat config1:0-15
    cpu/events/cpu-cycles event=0x3c
    cpu/events/instructions event=0xc0
    cpu/events/mem-loads event=0xcd,umask=0x1,ldlat=3
    cpu/events/topdown-slots-retired event=0xc2,umask=0x2
    cpu/events/topdown-slots-retired.scale 2
    software/type 1
    tracepoint/type 2
    power/type 18
    power/cpumask 0,24
    power/format/event config:0-7
    power/events/energy-pkg event=0x02
    power/events/energy-pkg.scale 2.3283064365386962890625e-10
    power/events/energy-pkg.unit Joules
    uncore_imc_0/type 20
    uncore_imc_0/cpumask 0,24
    uncore_imc_0/format/event config:0-7
    uncore_imc_0/format/umask config:8-15
    uncore_imc_0/events/cas_count_read event=0x04,umask=0x03
    uncore_imc_0/events/cas_count_read.scale 6.103515625e-5
    uncore_imc_0/events/cas_count_read.unit MiB
    uncore_imc_1/type 21
    uncore_imc_1/cpumask 0,24
    uncore_imc_1/format/event config:0-7
    uncore_imc_1/format/umask config:8-15
    uncore_imc_1/events/cas_count_read event=0x04,umask=0x03
    /sys/kernel/tracing/events/sched/sched_switch/id 314
    /sys/kernel/tracing/events/sched/sched_wakeup/id 317
    /sys/kernel/tracing/events/sched/enable 0
    /sys/kernel/tracing/events/raw_syscalls/sys_enter/id 21
";

const HYBRID: &str = "
    /proc/cpuinfo processor : 0\\nvendor_id : GenuineIntel\\ncpu family : 6\\nmodel : 151
    cpu_core/type 4
    cpu_core/cpus 0-15
    cpu_core/format/event config:0-7
    cpu_core/format/umask config:8-15
    cpu_core/format/cmask config:24-31
    cpu_core/events/slots event=0x00,umask=0x4
    cpu_atom/type 10
    cpu_atom/cpus 16-23
    cpu_atom/format/event config:0-7
    cpu_atom/format/umask config:8-15
";

const ZEN3: &str = "
    /proc/cpuinfo processor : 0\\nvendor_id : AuthenticAMD\\ncpu family : 25\\nmodel : 1
    cpu/type 4
    cpu/format/event config:0-7,32-35
    cpu/format/umask config:8-15
    cpu/events/cpu-cycles event=0x76
    amd_l3/type 11
    amd_l3/cpumask 0,8
    amd_l3/format/event config:0-7
";

const ARM: &str = "
    /proc/cpuinfo processor : 0\\nCPU implementer : 0x41\\nCPU part : 0xd49
    armv8_pmuv3_0/type 8
    armv8_pmuv3_0/cpus 0-127
    armv8_pmuv3_0/format/event config:0-15
    armv8_pmuv3_0/caps/slots 0x00000005
    armv8_pmuv3_0/events/dtlb_walk event=0x0034
    armv8_pmuv3_0/events/cpu_cycles event=0x0011
";

fn one(sources: &Sources, name: &str) -> Event {
    let mut events = sources.parse(name).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(events.len(), 1, "{name}");
    events.remove(0)
}

fn opened(event: &Event) -> Vec<(u32, u64, u64)> {
    event.encodings.iter().map(|e| (e.kind, e.config[0], e.config[1])).collect()
}

#[test]
fn generic_raw_and_described_events_of_an_intel_server() {
    let (_root, m) = tree(SKYLAKE_SERVER);
    assert_eq!(m.warnings, Vec::<String>::new());
    assert_eq!(opened(&one(&m, "cycles")), [(0, 0, 0)]);
    assert_eq!(opened(&one(&m, "cpu-cycles")), [(0, 0, 0)]);
    assert_eq!(opened(&one(&m, "instructions")), [(0, 1, 0)]);
    // Level 2, operation 0, result 1.
    assert_eq!(opened(&one(&m, "LLC-load-misses")), [(3, 0x1_0002, 0)]);
    assert_eq!(opened(&one(&m, "node-loads")), [(3, 6, 0)]);
    assert_eq!(opened(&one(&m, "r01c2")), [(4, 0x1c2, 0)]);
    assert_eq!(opened(&one(&m, "cpu/event=0x08,umask=0x10,cmask=1/")), [(4, 0x0100_1008, 0)]);
    assert_eq!(opened(&one(&m, "cpu/event=0x3c,any,inv/k")), [(4, 0xa0_003c, 0)]);
    assert_eq!(opened(&one(&m, "cpu/mem-loads/")), [(4, 0x1cd, 3)]);
    assert_eq!(opened(&one(&m, "cpu/mem-loads,ldlat=30/")), [(4, 0x1cd, 30)]);
    assert_eq!(opened(&one(&m, "mem-loads")), [(4, 0x1cd, 3)]);
    assert_eq!(opened(&one(&m, "cpu/config=0x7,config1=9/")), [(4, 7, 9)]);
    assert_eq!(one(&m, "cpu/event=1,name=walks/").name, "walks");
    // Not in sysfs, but the model is known.
    assert_eq!(opened(&one(&m, "dtlb_load_misses.walk_active")), [(4, 0x0100_1008, 0)]);
}

#[test]
fn modifiers() {
    let (_root, m) = tree(SKYLAKE_SERVER);
    let user = Exclude { kernel: true, hv: true, ..Exclude::default() };
    for name in
        ["cycles:u", "cpu/event=0x3c/u", "cpu/event=0x3c/:u", "sched:sched_switch:u", "r3c:u", "faults:u"]
    {
        assert_eq!(one(&m, name).exclude, user, "{name}");
    }
    assert_eq!(one(&m, "cycles:uk").exclude, Exclude { hv: true, ..Exclude::default() });
    assert_eq!(one(&m, "cycles:G").exclude, Exclude { host: true, ..Exclude::default() });
    assert_eq!(m.parse("cycles:p").unwrap_err().problem, Problem::Modifier('p'));
}

#[test]
fn shared_units_are_opened_on_the_cpus_they_name() {
    let (_root, m) = tree(SKYLAKE_SERVER);
    let energy = one(&m, "power/energy-pkg/");
    assert_eq!((energy.unit.as_deref(), energy.class), (Some("Joules"), Class::Shared));
    assert!((energy.scale - 2f64.powi(-32)).abs() < 1e-20);
    assert_eq!(energy.encodings[0].cpus, Some([0, 24].into_iter().collect()));
    assert_eq!(one(&m, "energy-pkg").encodings, energy.encodings);
    for name in ["uncore_imc/cas_count_read/", "imc/cas_count_read/"] {
        assert_eq!(opened(&one(&m, name)), [(20, 0x304, 0), (21, 0x304, 0)]);
    }
    assert_eq!(opened(&one(&m, "uncore_imc_1/event=4/")), [(21, 4, 0)]);
}

#[test]
fn tracepoints_by_name_and_by_pattern() {
    let (root, m) = tree(SKYLAKE_SERVER);
    assert_eq!(opened(&one(&m, "sched:sched_switch")), [(2, 314, 0)]);
    let names: Vec<_> = m.parse("sched:*,cs").unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["sched:sched_switch", "sched:sched_wakeup", "cs"]);
    assert_eq!(m.parse("sched:no*").unwrap_err().problem, Problem::Unknown);
    let read = |list: &str| {
        let mut m = Sources::read(root.path()).unwrap();
        m.read_tracepoints(root.path(), list);
        m.tracepoints.unwrap().into_keys().collect::<Vec<_>>()
    };
    assert_eq!(read("cycles:u,sched:sched_switch:k"), ["sched:sched_switch"]);
    assert_eq!(read("raw_*:sys_*,raw_syscalls:*").len(), 3, "the pattern is matched later");
    assert_eq!(read("raw_syscalls:*"), ["raw_syscalls:sys_enter"]);
    assert_eq!(read("cs,sched:../raw_syscalls,::,:"), [""; 0]);
    let (_root, none) = tree("software/type 1");
    let problem = none.parse("sched:sched_switch").unwrap_err().problem;
    assert_eq!(problem, Problem::NoTracepoints("it is not there".into()));
}

#[test]
fn a_hybrid_machine_opens_one_event_for_each_kind_of_core() {
    let (_root, m) = tree(HYBRID);
    let cycles = one(&m, "cycles");
    assert_eq!(opened(&cycles), [(0, 10 << 32, 0), (0, 4 << 32, 0)]);
    assert_eq!(cycles.encodings[1].cpus, Some((0..16).collect()));
    assert_eq!(opened(&one(&m, "LLC-loads")), [(3, 10 << 32 | 2, 0), (3, 4 << 32 | 2, 0)]);
    assert_eq!(opened(&one(&m, "r3c")), [(10, 0x3c, 0), (4, 0x3c, 0)]);
    // Page walks are known for the fast cores only.
    assert_eq!(opened(&one(&m, "dtlb_load_misses.walk_active")), [(4, 0x0100_1012, 0)]);
    assert_eq!(m.width().slots, 6);
}

#[test]
fn the_cores_alone_can_be_read() {
    for text in [SKYLAKE_SERVER, HYBRID, ARM] {
        let (root, all) = tree(text);
        let cores = Sources::read_cores(root.path()).unwrap();
        assert_eq!(cores.pmus, all.cores().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn amd_and_arm() {
    let (_root, zen) = tree(ZEN3);
    assert_eq!(opened(&one(&zen, "cpu/event=0x1c0,umask=1/")), [(4, 0x1_0000_01c0, 0)]);
    assert_eq!(zen.role(Role::MemoryRemote), Some("ls_any_fills_from_sys.mem_io_remote"));
    assert_eq!(opened(&one(&zen, "ls_any_fills_from_sys.dram_io_far")), [(4, 0x4044, 0)]);
    assert_eq!(zen.role(Role::WalkLoad), None);
    assert_eq!(zen.width().slots, 6);

    let (_root, arm) = tree(ARM);
    assert_eq!(opened(&one(&arm, "cycles")), [(0, 0, 0)]);
    assert_eq!(opened(&one(&arm, "dtlb_walk")), [(8, 0x34, 0)]);
    assert_eq!(arm.width(), Width { slots: 5, from: "armv8_pmuv3_0/caps/slots".into() });
    assert_eq!(arm.role(Role::MemoryRemote), None);
}

#[test]
fn accesses_are_sampled_where_the_machine_can() {
    let of = |text: &str| {
        let (_root, sources) = tree(text);
        let events = sources.access_events()?;
        let leads = |e: &AccessEvent| e.leader.as_ref().map(|l| l.config[0]);
        Ok(events
            .iter()
            .map(|e| (e.name.clone(), e.encoding.kind, e.encoding.config[..2].to_vec(), leads(e)))
            .collect())
    };
    let event = |name: &str, kind, config: [u64; 2], lead| (name.to_string(), kind, config.to_vec(), lead);
    assert_eq!(of(SKYLAKE_SERVER), Ok(vec![event("cpu/mem-loads,ldlat=30/", 4, [0x1cd, 30], None)]));
    let stores =
        "\n cpu/events/mem-stores event=0xd0,umask=0x82\n cpu/events/mem-loads-aux event=0x03,umask=0x82";
    assert_eq!(
        of(&format!("{SKYLAKE_SERVER}{stores}")),
        Ok(vec![
            event("cpu/mem-loads,ldlat=30/", 4, [0x1cd, 30], Some(0x8203)),
            event("cpu/mem-stores/", 4, [0x82d0, 0], None),
        ])
    );
    let ibs = "\n ibs_op/type 11\n ibs_op/format/cnt_ctl config:19\n ibs_op/format/rand_en config:57";
    assert_eq!(of(&format!("{ZEN3}{ibs}")), Ok(vec![event("ibs_op/cnt_ctl=1/", 11, [1 << 19, 0], None)]));
    assert_eq!(of("ibs_op/type 11"), Ok(vec![event("ibs_op/config=0/", 11, [0, 0], None)]));
    assert_eq!(of(ZEN3), Err(NoAccessEvent::None));
    assert_eq!(of(ARM), Err(NoAccessEvent::None));
    assert_eq!(of(&format!("{ARM}\n arm_spe_0/type 12")), Err(NoAccessEvent::Spe));
    assert_eq!(of("software/type 1"), Err(NoAccessEvent::None));
    let (_root, hybrid) = tree(&format!("{HYBRID}\n cpu_core/events/mem-loads event=0xcd,umask=0x1"));
    let core = &hybrid.access_events().unwrap()[0];
    assert_eq!(core.encoding.cpus.as_ref().map(ToString::to_string).as_deref(), Some("0-15"));
}

#[test]
fn roles_by_generation() {
    let (_root, skx) = tree(SKYLAKE_SERVER);
    assert_eq!(skx.role(Role::WalkStore), Some("dtlb_store_misses.walk_active"));
    assert_eq!(skx.role(Role::MemoryRemote), Some("node-load-misses"));
    assert!(!skx.local_is_all());
    let (_root, ivy) = tree(&SKYLAKE_SERVER.replace("model : 85", "model : 62"));
    assert_eq!(ivy.role(Role::WalkLoad), Some("dtlb_load_misses.walk_duration"));
    assert_eq!(opened(&one(&ivy, "dtlb_load_misses.walk_duration")), [(4, 0x8408, 0)]);
    assert!(ivy.local_is_all());
    let (_root, unknown) = tree(&SKYLAKE_SERVER.replace("model : 85", "model : 250"));
    assert_eq!(unknown.role(Role::WalkLoad), None);
    assert!(unknown.width().from.contains("assumed"));
}

#[test]
fn without_a_pmu_software_events_are_there_and_the_rest_is_told() {
    let (_root, m) = tree(
        "/proc/cpuinfo processor : 0\\nvendor_id : GenuineIntel\\ncpu family : 6\\nmodel : 207
         software/type 1
         msr/type 10
         msr/format/event config:0-63
         msr/events/tsc event=0x00",
    );
    assert_eq!(opened(&one(&m, "page-faults")), [(1, 2, 0)]);
    assert_eq!(opened(&one(&m, "msr/tsc/")), [(10, 0, 0)]);
    assert_eq!(one(&m, "task-clock").unit.as_deref(), Some("ms"));
    for name in ["cycles", "LLC-loads", "r3c", "cpu/event=1/", "itlb_misses.walk_active"] {
        assert_eq!(m.parse(name).unwrap_err().problem, Problem::NoPmu, "{name}");
    }
    let listed: Vec<_> = m.list(None).unwrap().into_iter().map(|l| l.name).collect();
    assert!(listed.contains(&"msr/tsc/".into()) && !listed.contains(&"cycles".into()));
}

#[test]
fn what_is_wrong_is_told() {
    let (_root, m) = tree(SKYLAKE_SERVER);
    let problem = |name: &str| m.parse(name).unwrap_err().to_string();
    assert!(problem("cycels").contains("unknown event"));
    assert!(problem("cpu/evnt=1/").contains("no field or event `evnt`"));
    assert!(problem("cpu/event=0x1c0/").contains("at most 0xff"));
    assert!(problem("cpu/event=0x3c").contains("second `/`"));
    assert!(problem("cpu//").contains("between the `/`"));
    assert!(problem("gpu/x/").contains("expected one of cpu, power"));
    assert!(problem("cycles,,instructions").contains("between commas"));
    assert!(problem("{cycles,instructions}").contains("without braces"));
}

#[test]
fn a_list_has_every_name() {
    let (_root, m) = tree(SKYLAKE_SERVER);
    let listed = m.list(None).unwrap();
    let kind = |name: &str| listed.iter().find(|l| l.name == name).map(|l| l.kind());
    assert_eq!(kind("cycles"), Some("hardware"));
    assert_eq!(kind("cpu/mem-loads/"), Some("core"));
    assert_eq!(kind("itlb_misses.walk_active"), Some("core"));
    assert_eq!(kind("power/energy-pkg/"), Some("shared"));
    assert_eq!(kind("sched:sched_switch"), None);
    assert_eq!(m.list(Some("sched:*")).unwrap().len(), 2);
    assert_eq!(m.list(Some("node-*")).unwrap().len(), 6);
}

#[test]
fn broken_files_cost_only_themselves() {
    let (_root, m) = tree(
        "cpu/type 4\ncpu/format/event config:9-1\ncpu/format/umask config:8-15\ncpu/events/bad =,=\n\
         cpu/events/good umask=2\nodd/type x\nshared/type 7\nshared/cpumask 3-1",
    );
    assert_eq!(m.pmus.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["cpu", "shared"]);
    assert_eq!(m.warnings.len(), 2, "{:?}", m.warnings);
    assert_eq!(opened(&one(&m, "cpu/good/")), [(4, 0x200, 0)]);
    assert!(m.parse("cpu/bad/").is_err());
}

#[test]
fn this_machine_can_be_read() {
    let m = Sources::read(Path::new("/")).unwrap();
    assert_eq!(opened(&one(&m, "task-clock")), [(1, 1, 0)]);
}

proptest! {
    #[test]
    fn no_name_panics(name in "([a-zA-Z0-9:/,=*?_.\\-\\[{} ]{0,30}|.{0,20})") {
        static MACHINE: LazyLock<Sources> = LazyLock::new(|| {
            tree("cpu/type 4\ncpu/format/event config:0-7\n/sys/kernel/tracing/events/a/b/id 1").1
        });
        let _ = MACHINE.parse(&name);
        let _ = MACHINE.list(Some(&name));
    }
}
