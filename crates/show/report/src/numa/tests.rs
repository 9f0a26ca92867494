use ncpu_schema::{numa_cpu, numa_memory, numa_nodes, numa_processes, numa_segment_memory, numa_segments};
use ncpu_table::Table;

use super::{Effect, Numa, Verdict, render};

/// Four nodes, one without CPUs; a process with all memory on node 3 though it asked for interleaving, one
/// that is local, and a segment both map.
fn tables() -> Vec<Table> {
    let time = Some(1.0);
    let mut nodes = numa_nodes::Rows::new();
    for (n, cpus) in [(0, "0-1"), (1, "2-3"), (2, ""), (3, "4-5")] {
        // Half of the pages in each of two intervals.
        for (time, hit) in [(0.5, 50), (1.0, 50 + n)] {
            nodes.push(numa_nodes::Row {
                time: Some(time),
                node: Some(n),
                cpus: cpus.into(),
                elapsed: Some(0.5),
                total: Some(8 << 30),
                hit: Some(hit),
                ..Default::default()
            });
        }
    }
    let mut processes = numa_processes::Rows::new();
    for (pid, process, threads, libnuma) in [(7, "db", 16, "yes"), (8, "web", 1, "no")] {
        processes.push(numa_processes::Row {
            time,
            pid: Some(pid),
            process: process.into(),
            threads: Some(threads),
            mems: "0-3".into(),
            libnuma: libnuma.into(),
            ..Default::default()
        });
    }
    let mut memory = numa_memory::Rows::new();
    for (t, pid, object, policy, node, mib) in [
        // An earlier look counts no more.
        (0.5, 7, "anonymous", "default", 0, 900),
        (1.0, 7, "anonymous 7f00", "interleave:0-3", 3, 97),
        (1.0, 7, "heap", "default", 0, 3),
        (1.0, 7, "code", "default", 0, 500),
        (1.0, 8, "heap", "bind:1", 1, 10),
    ] {
        memory.push(numa_memory::Row {
            time: Some(t),
            pid: Some(pid),
            object: object.into(),
            policy: policy.into(),
            page: Some(4096),
            node: Some(node),
            bytes: Some(mib << 20),
            ..Default::default()
        });
    }
    let mut cpu = numa_cpu::Rows::new();
    for (pid, node, s) in [(7, 0, 1.0), (7, 1, 1.0), (7, 3, 1.0), (8, 1, 0.5), (9, 0, 0.25)] {
        cpu.push(numa_cpu::Row {
            time,
            pid: Some(pid),
            node: Some(node),
            cpu: Some(s),
            ..Default::default()
        });
    }
    let mut segments = numa_segments::Rows::new();
    segments.push(numa_segments::Row {
        time,
        segment: "/dev/shm/pool".into(),
        kind: "tmpfs".into(),
        size: Some(64 << 20),
        pids: "7 8".into(),
        policy: "default".into(),
        mpol: "interleave:0-3".into(),
        how: "sampled".into(),
        ..Default::default()
    });
    let mut in_segments = numa_segment_memory::Rows::new();
    in_segments.push(numa_segment_memory::Row {
        time,
        segment: "/dev/shm/pool".into(),
        node: Some(2),
        bytes: Some(64 << 20),
    });
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
    let numa = Numa::read(&tables()).unwrap();
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
    let nodes = numa.node_rows();
    assert_eq!((nodes.num_rows(), nodes.text(2, "cpus"), numa.elapsed), (4, None, 1.0));
    assert_eq!((nodes.number(3, "hit"), nodes.number(3, "miss")), (Some(103.0), None), "of both intervals");
}

#[test]
fn the_worst_placement_has_its_line() {
    let numa = Numa::read(&tables()).unwrap();
    let (worst, remedy) = numa.worst().unwrap();
    assert_eq!(
        crate::onion::evidence::placement(worst).unwrap().to_string(),
        "memory: 97 % of db 7's pages on node 3, its threads ran on 3 nodes: Cyclops(3); likely remote 67 %, \
         mean distance 16.7 (10 is local); interleave:0-3 was asked for and did not take effect"
    );
    assert!(remedy.contains("interleave it over nodes 0-1,3"), "{remedy}");
    assert!(Numa::read(&Vec::new()).unwrap().worst().is_none());
}

#[test]
fn text_fits_any_width() {
    let numa = Numa::read(&tables()).unwrap();
    for width in [60, 80, 200] {
        let text = render(&numa, width, true);
        let wide: Vec<&str> = text.lines().filter(|l| l.chars().count() > width).collect();
        assert_eq!(wide, [""; 0], "{width}");
    }
    insta::assert_snapshot!(render(&numa, 80, true));
}

#[test]
fn nothing_is_no_reason_to_panic() {
    let numa = Numa::read(&Vec::new()).unwrap();
    assert!(!render(&numa, 80, true).is_empty());
    for table in [numa.processes(), numa.segment_rows(), numa.requests(), numa.node_rows()] {
        assert_eq!(table.num_rows(), 0);
    }
}
