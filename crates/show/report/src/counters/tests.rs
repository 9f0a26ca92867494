use ncpu_machine_trees::generate::{Shape, write};
use ncpu_machine_trees::put;

use super::*;

/// A machine of two nodes of one core of two strands, with the PMU of a Skylake server.
fn machine() -> (tempfile::TempDir, Topology, Sources) {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), &Shape { nodes: 2, cores: 1, threads: 2 }).unwrap();
    for (file, text) in [
        ("cpu/type", "4"),
        ("cpu/format/event", "config:0-7"),
        ("cpu/format/umask", "config:8-15"),
        ("cpu/format/cmask", "config:24-31"),
        ("msr/type", "11"),
        ("msr/format/event", "config:0-63"),
        ("msr/events/tsc", "event=0x00"),
        ("msr/events/mperf", "event=0x02"),
        ("power/type", "12"),
        ("power/cpumask", "0"),
        ("power/format/event", "config:0-7"),
        ("power/events/energy-pkg", "event=2"),
        ("power/events/energy-pkg.unit", "Joules"),
        ("power/events/energy-pkg.scale", "0.5"),
    ] {
        put(&root.path().join("sys/bus/event_source/devices"), file, text);
    }
    let cpuinfo = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\n";
    std::fs::write(root.path().join("proc/cpuinfo"), cpuinfo).unwrap();
    let topology = Topology::read(root.path()).unwrap();
    let sources = Sources::read(root.path()).unwrap();
    (root, topology, sources)
}

/// Table `counters`: CPU, event, count, seconds to count, seconds counted.
fn raw(rows: &[(u64, &str, Option<f64>, f64, f64)]) -> Table {
    let mut out = Table::builder(
        "counters",
        &[
            Column::id("CPU", ""),
            Column::id("pid", ""),
            Column::text("process", ""),
            Column::text("event", ""),
            Column::float("count", Unit::None, Kind::Count, ""),
            Column::text("unit", ""),
            Column::float("enabled", Unit::CpuSeconds, Kind::Time, ""),
            Column::float("running", Unit::CpuSeconds, Kind::Time, ""),
        ],
    );
    for &(cpu, event, count, enabled, running) in rows {
        let unit = event.contains("energy").then_some("Joules");
        out.row()
            .int(cpu)
            .int(cpu + 100)
            .text("p")
            .text(event)
            .float_opt(count)
            .text_opt(unit)
            .float(enabled)
            .float(running);
    }
    out.finish()
}

fn parse(sources: &Sources, names: &[&str]) -> Vec<Event> {
    sources.parse(&names.join(",")).unwrap()
}

fn layout(view: View, by: By, sources: &Sources, names: &[&str]) -> Layout {
    let events = parse(sources, names);
    Layout::new(view, by, false, &events.iter().collect::<Vec<_>>(), Facts::of(sources, None))
}

fn columns(table: &Table) -> Vec<&str> {
    table.columns().iter().map(|c| c.name.as_str()).collect()
}

#[test]
fn cores_as_corestat_shows_them() {
    let (_root, topology, sources) = machine();
    let facts = Facts::of(&sources, None);
    let names = View::Core.events(&sources, &facts);
    assert_eq!(names, ["cycles", "instructions", "msr/mperf/", "msr/tsc/"]);
    // On x86 CPU 2 is CPU 0's other strand.
    let mut rows = Vec::new();
    for (cpu, instructions, cycles, mperf) in
        [(0, 3e9, 2e9, 2e9), (1, 0.0, 0.0, 0.0), (2, 1e9, 1e9, 1e9), (3, 1e9, 2e9, 2e9)]
    {
        rows.push((cpu, "cycles", Some(cycles), 1.0, 1.0));
        rows.push((cpu, "instructions", Some(instructions), 1.0, 1.0));
        rows.push((cpu, "msr/mperf/", Some(mperf), 1.0, 1.0));
        rows.push((cpu, "msr/tsc/", Some(2e9), 1.0, 0.5));
    }
    let raw = raw(&rows);
    let table = layout(View::Core, By::Core, &sources, &names).table(&raw, &topology, 0.0);
    assert_eq!(columns(&table), ["core", "instr", "busy", "IPC", "pipe", "counted", "CPUs"]);
    assert_eq!(table.num_rows(), 2);
    assert_eq!((table.int(0, "instr"), table.text(0, "CPUs")), (Some(4_000_000_000), Some("0,2")));
    assert_eq!((table.number(0, "busy"), table.number(1, "busy")), (Some(75.0), Some(50.0)));
    // 4e9 instructions of 2e9 cycles a second of 4 slots.
    assert_eq!(table.number(0, "pipe"), Some(50.0));
    assert_eq!(table.number(0, "counted"), Some(50.0));
    let nodes = layout(View::Core, By::Node, &sources, &names).table(&raw, &topology, 0.0);
    assert_eq!((nodes.num_rows(), nodes.number(1, "IPC")), (2, Some(0.5)));
}

#[test]
fn tlb_and_memory_by_the_names_the_machine_has() {
    let (_root, topology, sources) = machine();
    let facts = Facts::of(&sources, None);
    let names = View::Tlb.events(&sources, &facts);
    let mut rows = vec![(0, "cycles", Some(1000.0), 1.0, 1.0)];
    rows.extend(names[1..4].iter().zip([100.0, 50.0, 10.0]).map(|(n, c)| (0, *n, Some(c), 1.0, 1.0)));
    let table = layout(View::Tlb, By::Cpu, &sources, &names).table(&raw(&rows), &topology, 0.0);
    assert_eq!(columns(&table)[..5], ["CPU", "dload", "dstore", "icode", "wload"]);
    assert_eq!((table.number(0, "wload"), table.number(0, "walk")), (Some(10.0), Some(16.0)));
    assert_eq!(table.int(0, "dload"), None, "not counted is not zero");

    let names = View::Memory.events(&sources, &facts);
    let rows = [(0, "node-loads", Some(30.0), 1.0, 1.0), (0, "node-load-misses", Some(10.0), 1.0, 1.0)];
    let table = layout(View::Memory, By::Package, &sources, &names).table(&raw(&rows), &topology, 0.0);
    assert_eq!((table.int(0, "far"), table.number(0, "remote")), (Some(10), Some(25.0)));
}

#[test]
fn figures_of_modified_events_keep_to_their_kind() {
    let (_root, topology, sources) = machine();
    let names = ["cycles:u", "instructions:u", "cycles:k", "power/energy-pkg/"];
    let rows = [
        (0, "cycles:u", Some(100.0), 1.0, 1.0),
        (0, "instructions:u", Some(250.0), 1.0, 1.0),
        (0, "cycles:k", Some(1.0), 1.0, 1.0),
        (0, "power/energy-pkg/", Some(2.5), 1.0, 1.0),
        (1, "cycles:u", None, 1.0, 0.0),
    ];
    let table = layout(View::Events, By::Cpu, &sources, &names).table(&raw(&rows), &topology, 0.0);
    assert_eq!(
        columns(&table),
        ["CPU", "cycles:u", "instructions:u", "cycles:k", "power/energy-pkg/", "IPC:u", "counted"]
    );
    assert_eq!((table.number(0, "IPC:u"), table.number(0, "power/energy-pkg/")), (Some(2.5), Some(2.5)));
    assert_eq!((table.int(1, "cycles:u"), table.number(1, "counted")), (None, Some(0.0)));
}

#[test]
fn bands_of_sorted_cpus() {
    let (_root, topology, sources) = machine();
    let rows: Vec<_> = (0..4).map(|cpu| (cpu, "cs", Some(10.0 * cpu as f64), 1.0, 1.0)).collect();
    let table = layout(View::Events, By::Cpu, &sources, &["cs"]).table(&raw(&rows), &topology, 0.0);
    let select =
        ncpu_table::Select { sort: Some("cs".parse().unwrap()), bands: Some(2), mean: true, top: None };
    let bands = select.apply(table).unwrap();
    assert_eq!((bands.number(0, "cs"), bands.number(1, "cs")), (Some(25.0), Some(5.0)));
    assert_eq!(bands.text(0, "CPU"), Some("2-3"));
}

#[test]
fn totals_as_text() {
    let (_root, _, sources) = machine();
    let rows = [
        (0, "task-clock", Some(1500.0), 1.5, 1.5),
        (0, "cycles", Some(3e9), 1.5, 1.5),
        (0, "instructions", Some(4.5e9), 1.5, 1.5),
        (0, "dtlb_load_misses.walk_active", Some(3e8), 1.5, 0.75),
        (0, "LLC-loads", None, 1.5, 0.0),
        (0, "page-faults", Some(100.0), 1.5, 1.5),
        (1, "page-faults", Some(20.0), 1.5, 1.5),
    ];
    let text = totals_text(&raw(&rows), &Facts::of(&sources, None), 3.0);
    assert_eq!(
        text,
        "     count  event\n\
         \u{20}  1500.00  task-clock                    0.50 CPUs used\n\
         3000000000  cycles                        1.00 G/s\n\
         4500000000  instructions                  1.50 a cycle\n\
         \u{20}300000000  dtlb_load_misses.walk_active  10.0 % of cycles  (counted 50.0 % of the time, scaled)\n\
         \u{20}        -  LLC-loads                       (counted 0.0 % of the time, scaled)\n\
         \u{20}      120  page-faults                   40.0 /s\n"
            .replace("1500.00", "   1500")
    );
    let table = totals(&raw(&rows)).unwrap();
    assert_eq!((table.num_rows(), table.number(5, "count")), (6, Some(120.0)));
}

#[test]
fn every_view_has_a_layout_on_a_machine_without_pmu() {
    let root = tempfile::tempdir().unwrap();
    let sources = Sources::read(root.path()).unwrap();
    let facts = Facts::of(&sources, None);
    let names = View::Summary.events(&sources, &facts);
    let table = layout(View::Summary, By::Cpu, &sources, &names).table(&raw(&[]), &Topology::default(), 0.0);
    assert_eq!(columns(&table), ["CPU", "csw", "migr", "minf", "mjf"]);
}
