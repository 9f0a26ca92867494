//! `ncpu numa` for people: a headline for each process and segment, its nodes in columns.

use std::fmt::Write;

use super::{Effect, Node, Numa, Placement, Process, Request, Segment, Verdict};
use ncpu_table::size::compact as bytes;

use crate::wrap::wrap;

/// Processes and segments shown unless all are asked for.
const SHOWN: usize = 8;

/// Renders at most `width` columns wide; `all` shows every process and segment that was looked at.
pub fn render(numa: &Numa, width: usize, all: bool) -> String {
    let width = width.clamp(60, 200);
    let mut out = String::new();
    machine(&mut out, numa, width);
    let one = numa.nodes.len() < 2;
    let most = if all { usize::MAX } else { SHOWN };
    let worth = |p: &&Process| {
        all || p.placement.seconds() > 0.0 || p.requests.iter().any(|q| q.effect >= Effect::Partly)
    };
    let shown: Vec<&Process> = numa.processes.iter().filter(worth).take(most).collect();
    let label = |pid: u32| {
        numa.processes.iter().find(|p| p.pid == pid).map_or(pid.to_string(), |p| format!("{} {pid}", p.name))
    };
    for p in &shown {
        let _ = writeln!(out);
        process(&mut out, numa, p, width, one);
    }
    let left = numa.processes.len() - shown.len();
    if left > 0 {
        let shown: Vec<u32> = shown.iter().map(|p| p.pid).collect();
        let rest = || numa.processes.iter().filter(|p| !shown.contains(&p.pid));
        let cpu: f64 = rest().map(|p| p.placement.seconds()).sum();
        let memory: u64 = rest().map(|p| p.placement.bytes()).sum();
        let memory = bytes(memory);
        let line = format!("{left} more processes: {cpu:.3} CPU-s, {memory} (-p PID, --every or -o json)");
        let _ = writeln!(out);
        out.push_str(&wrap(&line, width, "", "  "));
    }
    if numa.gone >= 0.001 {
        let line = format!("processes that ended before their memory was looked at: {:.3} CPU-s", numa.gone);
        out.push_str(&wrap(&line, width, "", "  "));
    }
    for s in numa.segments.iter().take(most) {
        let _ = writeln!(out);
        segment(&mut out, numa, s, width, one, &label);
    }
    let left = numa.segments.len().saturating_sub(most);
    if left > 0 {
        let memory: u64 = numa.segments.iter().skip(most).map(|s| s.placement.bytes()).sum();
        let line = format!("{left} more segments: {} (--every or --table segments)", bytes(memory));
        let _ = writeln!(out);
        out.push_str(&wrap(&line, width, "", "  "));
    }
    out
}

fn machine(out: &mut String, numa: &Numa, width: usize) {
    let setting = |name: &str| numa.settings.get(name).map(String::as_str);
    if let [node] = &numa.nodes[..] {
        let why =
            setting("cmdline").map(|w| format!(" (the kernel was started with {w})")).unwrap_or_default();
        let line = format!(
            "One NUMA node, {} CPUs, {}{why}: all memory is local. Pages, huge pages and policies follow.",
            node.cpus.len(),
            bytes(node.memory.total.unwrap_or(0)),
        );
        out.push_str(&wrap(&line, width, "", ""));
    } else {
        let only: Vec<String> =
            numa.nodes.iter().filter(|n| n.cpus.is_empty()).map(|n| n.id.to_string()).collect();
        let mut line = format!("{} NUMA nodes", numa.nodes.len());
        if !only.is_empty() {
            let _ = write!(line, " (memory only: {})", only.join(", "));
        }
        let _ = write!(line, ", {:.2} s observed", numa.elapsed);
        match setting("cpu_time") {
            Some("exact") => line.push_str(", CPU time by node exact"),
            Some("sampled") => line.push_str(", CPU time by node sampled"),
            _ => line.push_str(", no CPU time observed"),
        }
        out.push_str(&wrap(&line, width, "", "  "));
    }
    nodes(out, numa, width);
    balancing(out, numa, width);
}

/// Rows of what each node has; nodes are columns, as everywhere here.
fn nodes(out: &mut String, numa: &Numa, width: usize) {
    let each = |of: fn(&Node) -> Option<u64>| -> Vec<Option<u64>> { numa.nodes.iter().map(of).collect() };
    let size = |v: Option<u64>| v.map_or("-".into(), bytes);
    let sum = |v: &[Option<u64>]| v.iter().flatten().sum::<u64>();
    let mut rows = vec![(
        "CPUs".to_string(),
        numa.nodes.iter().map(|n| n.cpus.len()).sum::<usize>().to_string(),
        numa.nodes.iter().map(|n| n.cpus.len().to_string()).collect::<Vec<_>>(),
    )];
    for (title, v) in [
        ("memory", each(|n| n.memory.total)),
        ("free", each(|n| n.memory.free)),
        ("THP", each(|n| n.memory.thp)),
        ("huge pool", each(|n| n.memory.hugetlb)),
        ("unused", each(|n| n.memory.hugetlb_free)),
    ] {
        if sum(&v) > 0 {
            rows.push((title.into(), bytes(sum(&v)), v.iter().map(|b| size(*b)).collect()));
        }
    }
    for (title, v) in [
        ("hit/s", each(|n| n.pages.hit)),
        ("miss/s", each(|n| n.pages.miss)),
        ("foreign/s", each(|n| n.pages.foreign)),
        ("il_hit/s", each(|n| n.pages.interleave_hit)),
        ("other/s", each(|n| n.pages.other)),
    ] {
        if sum(&v) > 0 {
            let rate = |n: u64| count(n as f64 / numa.elapsed.max(1e-9));
            rows.push((title.into(), rate(sum(&v)), v.iter().map(|n| n.map_or("-".into(), rate)).collect()));
        }
    }
    grid(out, numa, width, &rows);
}

fn balancing(out: &mut String, numa: &Numa, width: usize) {
    let event = |name: &str| numa.events.get(name).copied().unwrap_or(0);
    let on = match numa.settings.get("numa_balancing").map(String::as_str) {
        None => return,
        Some("0") => "off",
        Some(_) => "on",
    };
    let acts = event("numa_pte_updates") + event("numa_hint_faults") + event("numa_pages_migrated");
    if acts == 0 && (on == "off" || numa.nodes.len() < 2) {
        if numa.nodes.len() > 1 {
            let _ = writeln!(out, "NUMA balancing is off");
        }
        return;
    }
    let faults = event("numa_hint_faults");
    let line = format!(
        "NUMA balancing is {on}: {} pages marked, {faults} hint faults, {:.0} % of them local, {} pages moved",
        event("numa_pte_updates"),
        100.0 * event("numa_hint_faults_local") as f64 / faults.max(1) as f64,
        event("numa_pages_migrated"),
    );
    out.push_str(&wrap(&line, width, "", "  "));
}

fn told(p: &Placement) -> String {
    match p.verdict {
        Verdict::Idle if p.bytes() == 0 => "idle, no memory".into(),
        Verdict::Idle => "idle".into(),
        v => format!("{v}, likely remote {:.0} %, distance {:.1}", 100.0 * p.remote, p.distance),
    }
}

fn process(out: &mut String, numa: &Numa, p: &Process, width: usize, one: bool) {
    let threads = if p.threads == 1 { "1 thread".into() } else { format!("{} threads", p.threads) };
    let verdict = if one { String::new() } else { format!(": {}", told(&p.placement)) };
    out.push_str(&wrap(&format!("{} {} ({threads}){verdict}", p.name, p.pid), width, "", "  "));
    let mut rows = place(numa, &p.placement);
    for (size, nodes) in &p.hugetlb {
        let cells = numa.nodes.iter().map(|n| nodes.get(&n.id).map_or("-".into(), |b| bytes(*b))).collect();
        rows.push((format!("{} pages", bytes(*size)), bytes(nodes.values().sum()), cells));
    }
    grid(out, numa, width, &rows);
    if let Some(thp) = p.thp.filter(|b| *b > 0) {
        let _ = writeln!(out, "  {} of it in transparent huge pages", bytes(thp));
    }
    if let (Some(mems), false) = (&p.mems, one)
        && numa.nodes.iter().any(|n| n.memory.total.is_some_and(|b| b > 0) && !mems.contains(n.id))
    {
        let _ = writeln!(out, "  its cpuset allows nodes {mems}");
    }
    requests(out, &p.requests, width);
    if matches!(p.placement.verdict, Verdict::Cyclops(_) | Verdict::Misplaced) && !p.asked && !one {
        let lib = if p.libnuma { "libnuma is loaded, but" } else { "libnuma is not loaded and" };
        let line = format!(
            "asked: nothing. {lib} every mapping has the default policy: a NUMA setting of the program, if it has one, did not reach the kernel"
        );
        out.push_str(&wrap(&line, width, "  ", "    "));
    }
    if let Some((remote, n)) = p.faults.filter(|f| f.1 >= 100) {
        let _ = writeln!(out, "  measured: {:.0} % of {n} NUMA hint faults were remote", 100.0 * remote);
    }
    if let Some(n) = p.sampled {
        let line =
            format!("sampled: {n} pages stand for all; policies not read (--exact walks its page tables)");
        out.push_str(&wrap(&line, width, "  ", "    "));
    }
    if let (Some(remedy), false) = (p.remedy(), one) {
        out.push_str(&wrap(&remedy, width, "  -> ", "     "));
    }
}

fn segment(
    out: &mut String,
    numa: &Numa,
    s: &Segment,
    width: usize,
    one: bool,
    label: &dyn Fn(u32) -> String,
) {
    let users = match &s.pids[..] {
        [] => "mapped by nobody".to_string(),
        pids if pids.len() > 3 => format!("mapped by {} processes", pids.len()),
        pids => format!("mapped by {}", pids.iter().map(|p| label(*p)).collect::<Vec<_>>().join(", ")),
    };
    let kind = if s.name.starts_with(&s.kind) { String::new() } else { format!(" ({})", s.kind) };
    let how = match s.how.as_str() {
        "all pages" => ", all pages looked at",
        "sampled" => ", a sample of pages looked at",
        _ => "",
    };
    let verdict = if one { String::new() } else { format!(": {}", told(&s.placement)) };
    let line = format!("segment {}{kind}, {users}{how}{verdict}", s.name);
    out.push_str(&wrap(&line, width, "", "  "));
    grid(out, numa, width, &place(numa, &s.placement));
    requests(out, &s.requests, width);
    if let (Some(remedy), false) = (s.remedy(), one) {
        out.push_str(&wrap(&remedy, width, "  -> ", "     "));
    }
}

fn requests(out: &mut String, requests: &[Request], width: usize) {
    // Requests that took effect share a line; each of the others has its own.
    let mut met: Vec<&str> =
        requests.iter().filter(|q| q.effect == Effect::Yes).map(|q| q.asked.as_str()).collect();
    met.sort_unstable();
    met.dedup();
    if !met.is_empty() {
        let memory: u64 = requests.iter().filter(|q| q.effect == Effect::Yes).map(|q| q.bytes).sum();
        let line = format!("asked: {} for {}: took effect", met.join(", "), bytes(memory));
        out.push_str(&wrap(&line, width, "  ", "    "));
    }
    for q in requests.iter().filter(|q| q.effect >= Effect::Partly).take(4) {
        let what = match q.effect {
            Effect::Partly => "took effect in part",
            _ => "DID NOT TAKE EFFECT",
        };
        let line = format!("asked: {} for {} of {}: {what}, {}", q.asked, bytes(q.bytes), q.object, q.why);
        out.push_str(&wrap(&line, width, "  ", "    "));
    }
}

type Line = (String, String, Vec<String>);

fn place(numa: &Numa, p: &Placement) -> Vec<Line> {
    let share = |s: f64| match s {
        0.0 => "-".into(),
        s if s < 0.005 => "<1%".into(),
        s => format!("{:.0}%", 100.0 * s),
    };
    let mut rows: Vec<Line> = vec![(
        "memory".into(),
        bytes(p.bytes()),
        numa.nodes.iter().map(|n| share(p.memory_share(n.id))).collect(),
    )];
    if p.seconds() > 0.0 {
        let cells = numa.nodes.iter().map(|n| share(p.cpu_share(n.id))).collect();
        rows.push(("CPU time".into(), format!("{:.2} s", p.seconds()), cells));
    }
    rows
}

/// Rows with a total and a column for each node, in as many blocks as the width needs.
fn grid(out: &mut String, numa: &Numa, width: usize, rows: &[Line]) {
    const LEFT: usize = 22;
    const CELL: usize = 7;
    let nodes: Vec<usize> = (0..numa.nodes.len()).collect();
    let one = nodes.len() == 1;
    for (block, nodes) in nodes.chunks(((width - LEFT) / CELL).max(1)).enumerate() {
        if !one {
            let mut line = format!("  {:<9} {:>9} ", "", if block == 0 { "total" } else { "" });
            for &n in nodes {
                let _ = write!(line, "{:>CELL$}", format!("N{}", numa.nodes[n].id));
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        for (title, total, cells) in rows {
            let mut line = format!("  {title:<9} {:>9} ", if block == 0 { total.as_str() } else { "" });
            if !one {
                for &n in nodes {
                    let _ = write!(line, "{:>CELL$}", cells[n]);
                }
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

/// A count in at most six characters.
fn count(n: f64) -> String {
    match n {
        n if n < 10_000.0 => format!("{n:.0}"),
        n if n < 1e7 => format!("{:.0}k", n / 1e3),
        n => format!("{:.0}M", n / 1e6),
    }
}
