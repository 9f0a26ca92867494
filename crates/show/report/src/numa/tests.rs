use ncpu_table::{Column, Kind, Table, Unit};

use super::{Effect, Numa, Verdict, render};

fn int(name: &str) -> Column {
    Column::int(name, Unit::Bytes, Kind::Gauge, "")
}

fn float(name: &str) -> Column {
    Column::float(name, Unit::Seconds, Kind::Time, "")
}

fn text(name: &str) -> Column {
    Column::text(name, "")
}

/// Four nodes, one without CPUs; a process whose memory is all on node 3 though interleaving was asked
/// for, one that is local, and a segment both map.
fn tables() -> Vec<Table> {
    let mut nodes = Table::builder(
        "numa_nodes",
        &[float("t"), Column::id("node", ""), text("cpus"), float("elapsed"), int("total"), int("hit")],
    );
    for (n, cpus) in [(0, "0-1"), (1, "2-3"), (2, ""), (3, "4-5")] {
        nodes.row().float(1.0).int(n).text(cpus).float(1.0).int(8 << 30).int(100 + n);
    }
    let mut processes = Table::builder(
        "numa_processes",
        &[
            float("t"),
            Column::id("pid", ""),
            text("process"),
            int("threads"),
            text("mems"),
            text("libnuma"),
            float("together"),
        ],
    );
    processes.row().float(1.0).int(7).text("db").int(16).text("0-3").text("yes").null();
    processes.row().float(1.0).int(8).text("web").int(1).text("0-3").text("no").null();
    let mut memory = Table::builder(
        "numa_memory",
        &[
            float("t"),
            Column::id("pid", ""),
            text("process"),
            text("object"),
            text("segment"),
            text("policy"),
            Column::id("page", ""),
            Column::id("node", ""),
            int("bytes"),
        ],
    );
    let mut add = |t: f64, pid, object: &str, policy: &str, node, mib: u64| {
        memory
            .row()
            .float(t)
            .int(pid)
            .text("")
            .text(object)
            .null()
            .text(policy)
            .int(4096)
            .int(node)
            .int(mib << 20);
    };
    // An earlier look counts no more.
    add(0.5, 7, "anonymous", "default", 0, 900);
    add(1.0, 7, "anonymous 7f00", "interleave:0-3", 3, 97);
    add(1.0, 7, "heap", "default", 0, 3);
    add(1.0, 7, "code", "default", 0, 500);
    add(1.0, 8, "heap", "bind:1", 1, 10);
    let mut cpu = Table::builder(
        "numa_cpu",
        &[float("t"), Column::id("pid", ""), Column::id("node", ""), float("cpu")],
    );
    for (pid, node, s) in [(7, 0, 1.0), (7, 1, 1.0), (7, 3, 1.0), (8, 1, 0.5), (9, 0, 0.25)] {
        cpu.row().float(1.0).int(pid).int(node).float(s);
    }
    let mut segments = Table::builder(
        "numa_segments",
        &[
            float("t"),
            text("segment"),
            text("kind"),
            int("size"),
            text("pids"),
            text("policy"),
            text("mpol"),
            text("how"),
        ],
    );
    segments
        .row()
        .float(1.0)
        .text("/dev/shm/pool")
        .text("tmpfs")
        .int(64 << 20)
        .text("7 8")
        .text("default")
        .text("interleave:0-3")
        .text("sampled");
    let mut in_segments = Table::builder(
        "numa_segment_memory",
        &[float("t"), text("segment"), Column::id("node", ""), int("bytes")],
    );
    in_segments.row().float(1.0).text("/dev/shm/pool").int(2).int(64 << 20);
    vec![
        nodes.finish(),
        processes.finish(),
        memory.finish(),
        cpu.finish(),
        segments.finish(),
        in_segments.finish(),
    ]
}

#[test]
fn verdicts_requests_and_segments() {
    let numa = Numa::read(&tables());
    let [db, web] = &numa.processes[..] else { panic!("{:?}", numa.processes) };
    assert_eq!((db.pid, db.placement.verdict), (7, Verdict::Cyclops(3)));
    assert_eq!(db.placement.bytes(), 100 << 20);
    assert!((db.placement.remote - 0.667).abs() < 0.01, "{}", db.placement.remote);
    assert_eq!(db.requests[0].effect, Effect::No);
    assert_eq!((web.placement.verdict, web.requests[0].effect), (Verdict::Local, Effect::Yes));
    let [pool] = &numa.segments[..] else { panic!("{:?}", numa.segments) };
    assert_eq!((pool.placement.verdict, &pool.pids[..]), (Verdict::Cyclops(2), &[7, 8][..]));
    assert!(pool.requests[0].asked == "mpol=interleave:0-3" && pool.requests[0].effect == Effect::No);
    assert!((numa.gone - 0.25).abs() < 1e-9);
    assert_eq!(numa.processes().num_rows(), 2);
    assert_eq!(numa.requests().num_rows(), 3);
    assert_eq!(numa.node_rows().text(2, "cpus"), None);
}

#[test]
fn the_worst_placement_has_its_line() {
    let numa = Numa::read(&tables());
    let (worst, remedy) = numa.worst().unwrap();
    assert_eq!(
        crate::onion::evidence::placement(worst).unwrap().to_string(),
        "memory: 97 % of db 7's pages on node 3, its threads ran on 3 nodes: Cyclops(3); likely remote 67 %, \
         mean distance 16.7 (10 is local); interleave:0-3 was asked for and did not take effect"
    );
    assert!(remedy.contains("interleave it over nodes 0-1,3"), "{remedy}");
    assert!(Numa::read([]).worst().is_none());
}

#[test]
fn text_fits_any_width() {
    let numa = Numa::read(&tables());
    for width in [60, 80, 200] {
        let text = render(&numa, width, true);
        let wide: Vec<&str> = text.lines().filter(|l| l.chars().count() > width).collect();
        assert_eq!(wide, [""; 0], "{width}");
    }
    insta::assert_snapshot!(render(&numa, 80, true));
}

#[test]
fn nothing_is_no_reason_to_panic() {
    let numa = Numa::read([]);
    assert!(!render(&numa, 80, true).is_empty());
    for table in [numa.processes(), numa.segment_rows(), numa.requests(), numa.node_rows()] {
        assert_eq!(table.num_rows(), 0);
    }
}
