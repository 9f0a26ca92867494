//! Every tree at hand is read as hwloc reads it: objects, their CPUs, memory, caches.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ncpu_machine::{CacheType, CpuSet, Topology, generate, testing};

/// One line an object, as hwloc's XML and our model have it in common.
fn ours(t: &Topology) -> Vec<String> {
    let id = |id: Option<u32>| id.map_or("-".into(), |id| id.to_string());
    let mut lines = Vec::new();
    lines.extend(t.cpus.iter().map(|c| format!("PU {} {}", c.id, c.id)));
    lines.extend(t.cores.iter().map(|c| format!("Core {} {}", id(c.id), c.cpus)));
    lines.extend(t.packages.iter().map(|p| format!("Package {} {}", id(p.id), p.cpus)));
    lines.extend(t.dies.iter().map(|d| format!("Die {} {}", id(d.id), d.cpus)));
    lines.extend(t.books.iter().map(|d| format!("Book {} {}", id(d.id), d.cpus)));
    lines.extend(t.drawers.iter().map(|d| format!("Drawer {} {}", id(d.id), d.cpus)));
    lines.extend(t.caches.iter().map(|c| {
        let kind = match c.ty {
            CacheType::Unified => 0,
            CacheType::Data => 1,
            CacheType::Instruction => 2,
        };
        format!("Cache L{} type {kind} size {} line {} ways {} {}", c.level, c.size, c.line, c.ways, c.cpus)
    }));
    lines.extend(
        t.nodes.iter().map(|n| format!("NUMANode {} memory {} {}", n.id, n.total.unwrap_or(0), n.local_cpus)),
    );
    lines.extend(t.nodes.iter().flat_map(|n| {
        n.side_caches.iter().map(|s| format!("MemCache {} size {} {}", s.level, s.size, n.local_cpus))
    }));
    lines.sort();
    lines
}

fn lstopo(root: &Path, options: &[&str]) -> Option<Vec<String>> {
    let out = Command::new("lstopo-no-graphics")
        .args(["--if", "fsroot", "--of", "xml", "--no-io", "--input"])
        .arg(root)
        .args(options)
        .output()
        .ok()?;
    assert!(out.status.success(), "lstopo: {}", String::from_utf8_lossy(&out.stderr));
    let xml = String::from_utf8(out.stdout).unwrap();
    let mut lines: Vec<String> = xml.split("<object ").skip(1).filter_map(object).collect();
    lines.sort();
    Some(lines)
}

fn object(tag: &str) -> Option<String> {
    let tag = &tag[..tag.find('>')?];
    let mut attributes = BTreeMap::new();
    let mut rest = tag;
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, next) = after.split_once('"')?;
        attributes.insert(key.trim(), value);
        rest = next;
    }
    let get = |key: &str| attributes.get(key).copied().unwrap_or("0");
    let id = attributes.get("os_index").copied().unwrap_or("-");
    // hwloc writes a group of zeros as nothing.
    let group = |g: &str| if g.is_empty() { "0".into() } else { g.replace("0x", "") };
    let mask = get("cpuset").split(',').map(group).collect::<Vec<_>>().join(",");
    let cpus = CpuSet::parse_mask(&mask).unwrap();
    let line = match get("type") {
        kind @ ("PU" | "Core" | "Package" | "Die") => format!("{kind} {id} {cpus}"),
        "NUMANode" => format!("NUMANode {id} memory {} {cpus}", get("local_memory")),
        "MemCache" => format!("MemCache {} size {} {cpus}", get("depth"), get("cache_size")),
        "Group" => match get("subtype") {
            kind @ ("Book" | "Drawer") => format!("{kind} {id} {cpus}"),
            _ => return None,
        },
        kind if kind.starts_with('L') => format!(
            "Cache L{} type {} size {} line {} ways {} {cpus}",
            get("depth"),
            get("cache_type"),
            get("cache_size"),
            get("cache_linesize"),
            get("cache_associativity"),
        ),
        _ => return None,
    };
    Some(line)
}

fn compare(name: &str, root: &Path) -> bool {
    let t = Topology::read(root).unwrap();
    for (options, t) in [(&["--disallowed"][..], &t), (&[], &t.allowed_only())] {
        let Some(theirs) = lstopo(root, options) else {
            println!("skipped: lstopo-no-graphics is not installed (Debian: hwloc-nox)");
            return false;
        };
        let ours = ours(t);
        let only = |a: &[String], b: &[String]| {
            a.iter().filter(|l| !b.contains(l)).cloned().collect::<Vec<_>>().join("\n  ")
        };
        assert!(
            ours == theirs,
            "{name} {options:?}\nonly here:\n  {}\nonly hwloc:\n  {}",
            only(&ours, &theirs),
            only(&theirs, &ours)
        );
    }
    true
}

#[test]
fn gathered_trees() {
    let dir = tempfile::tempdir().unwrap();
    for archive in testing::archives() {
        let Some(root) = testing::unpack(&archive, dir.path()) else { continue };
        if !compare(&archive.display().to_string(), &root) {
            return;
        }
    }
}

#[test]
fn generated_tree() {
    let dir = tempfile::tempdir().unwrap();
    generate::write(dir.path(), &generate::Shape { nodes: 3, cores: 5, threads: 3 }).unwrap();
    compare("generated", dir.path());
}

#[test]
fn this_machine() {
    // hwloc asks this machine's processors too when told it is at home, so as a tree it is.
    let t = Topology::read("/".as_ref()).unwrap();
    assert!(t.ncpu() > 0);
    assert_eq!(t.ncpu(), t.online.len());
    assert!(t.allowed.is_subset(&t.online));
}
