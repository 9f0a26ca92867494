//! The machine as a tree, like parts told once.

use std::fmt::Write;

use ncpu_machine::{CpuSet, Topology};

use super::{bytes, count, shown};

/// A part of the machine and what is in it.
struct Part {
    /// Its kind and number: `Package 0`.
    label: String,
    /// The key by which two parts are alike: label without a number, and allowed or not.
    likeness: String,
    /// Whether a run of identical parts is printed once.
    folds: bool,
    /// Its rank among parts with the same CPUs.
    rank: u32,
    core: bool,
    cpus: CpuSet,
    children: Vec<Part>,
}

/// Renders the machine, `width` columns wide where that can be.
pub fn tree(t: &Topology, width: usize) -> String {
    let mut out = heading(t);
    for line in lines(&grow(t)) {
        line.print(&mut out, width);
    }
    if let Some(text) = distances(t) {
        let _ = writeln!(out, "{text}");
    }
    out
}

fn heading(t: &Topology) -> String {
    let mut parts = Vec::new();
    for (n, what) in [
        (t.packages.len(), "package"),
        (t.dies.len(), "die"),
        (t.cores.len(), "core"),
        (t.cpus.len(), "CPU"),
        (t.nodes.len(), "NUMA node"),
    ] {
        if n > 0 {
            parts.push(count(n, what));
        }
    }
    if t.memory() > 0 {
        parts.push(bytes(t.memory()) + " memory");
    }
    let mut out = parts.join(", ") + "\n";
    let mut models: Vec<String> = Vec::new();
    for p in &t.packages {
        // A part number means nothing without its maker.
        let bare = |m: &String| m.starts_with("part ") || m.starts_with("machine ");
        let vendor = p.vendor.as_deref().filter(|_| p.model.as_ref().is_none_or(bare));
        let name = [vendor, p.model.as_deref()];
        let mut words: Vec<String> = name.into_iter().flatten().map(shown).collect();
        words.extend(p.mhz.map(|m| format!("({m:.0} MHz)")));
        let text = words.join(" ");
        if !text.is_empty() && !models.contains(&text) {
            models.push(text);
        }
    }
    models.iter().for_each(|m| out.push_str(&format!("{m}\n")));
    for kind in &t.kinds {
        let _ = writeln!(out, "{}: CPUs {}", shown(&kind.name), kind.cpus);
    }
    if let Some(words) = super::classic::devices(t) {
        let _ = writeln!(out, "{words}");
    }
    if !t.offline().is_empty() {
        let _ = writeln!(out, "offline: CPUs {}", t.offline());
    }
    if !t.online.is_subset(&t.allowed) {
        let allowed = if t.allowed.is_empty() { "none".into() } else { t.allowed.to_list() };
        let _ = writeln!(out, "allowed: CPUs {allowed}");
    }
    let nodes: CpuSet = t.nodes.iter().map(|n| n.id).collect();
    if !nodes.is_subset(&t.allowed_nodes) {
        let _ = writeln!(out, "allowed: memory of nodes {}", t.allowed_nodes);
    }
    out.push('\n');
    out
}

/// Puts every part into the smallest one that holds it.
fn grow(t: &Topology) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut put = |label: &str, id: Option<u32>, folds: bool, rank: u32, cpus: &CpuSet, note: &str| {
        let state = if cpus.is_empty() || cpus.is_subset(&t.allowed) {
            ""
        } else if cpus.intersects(&t.allowed) {
            PARTLY
        } else {
            NOT_ALLOWED
        };
        let numbered = id.map_or(label.to_string(), |id| format!("{label} {id}"));
        parts.push(Part {
            label: numbered + note,
            likeness: format!("{label}{note}{state}"),
            folds,
            rank,
            core: rank == CORE,
            cpus: cpus.clone(),
            children: Vec::new(),
        });
    };
    t.drawers.iter().for_each(|g| put("Drawer", g.id, false, 0, &g.cpus, ""));
    t.books.iter().for_each(|g| put("Book", g.id, false, 1, &g.cpus, ""));
    t.packages.iter().for_each(|p| put("Package", p.id, false, 2, &p.cpus, ""));
    t.dies.iter().for_each(|g| put("Die", g.id, false, 3, &g.cpus, ""));
    for n in &t.nodes {
        let mut note = match (n.total, n.free) {
            (Some(total), Some(free)) => format!(" {} ({} free)", bytes(total), bytes(free)),
            (Some(total), None) => format!(" {}", bytes(total)),
            _ => String::new(),
        };
        for cache in &n.side_caches {
            let _ = write!(note, ", memory-side cache {}", bytes(cache.size));
        }
        if n.cpus.is_empty() {
            note.push_str(", memory only");
            if !n.local_cpus.is_empty() {
                let _ = write!(note, ", nearest to CPUs {}", n.local_cpus);
            }
        }
        if !t.allowed_nodes.contains(n.id) {
            note.push_str(", memory not allowed");
        }
        put("Node", Some(n.id), false, 4, &n.cpus, &note);
    }
    // A part without usable CPUs is shown only where it has a number.
    t.clusters.iter().filter(|g| !g.cpus.is_empty()).for_each(|g| put("Cluster", None, true, 5, &g.cpus, ""));
    for c in t.caches.iter().filter(|c| !c.cpus.is_empty()) {
        let rank = 10 + (5 - c.level.min(5)) * 3 + u32::from(c.name().ends_with('i'));
        let what = if c.memory_side { " memory-side cache" } else { "" };
        // A device tree need not say how large caches are.
        let size = if c.size > 0 { bytes(c.size) } else { "of unknown size".into() };
        put(&c.name(), None, true, rank, &c.cpus, &format!(" {size}{what}"));
    }
    for c in t.cores.iter().filter(|c| !c.cpus.is_empty()) {
        let kind = c.cpus.first().and_then(|cpu| t.cpu(cpu)?.kind);
        let kind = kind.map_or(String::new(), |k| format!(" ({})", t.kinds[k].name));
        let threads = if c.cpus.len() > 1 { format!(" of {} CPUs", c.cpus.len()) } else { String::new() };
        put("Core", None, true, CORE, &c.cpus, &(kind + &threads));
    }
    // CPUs the kernel gives no core.
    let cored = t.cores.iter().fold(CpuSet::new(), |set, c| set.or(&c.cpus));
    for cpu in t.online.minus(&cored).iter() {
        put("CPU", None, true, CORE, &CpuSet::from_iter([cpu]), "");
    }
    nest(parts)
}

const CORE: u32 = 50;
const NOT_ALLOWED: &str = " (not allowed)";
const PARTLY: &str = " (partly allowed)";

/// Nests parts, largest first: the one each lies in is the last that took its first CPU.
fn nest(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by_key(|p| (std::cmp::Reverse(p.cpus.len()), p.rank, p.cpus.first()));
    let last = parts.iter().filter_map(|p| p.cpus.last()).max().map_or(0, |c| c as usize + 1);
    let mut smallest: Vec<Option<usize>> = vec![None; last];
    let mut parents = Vec::with_capacity(parts.len());
    for (i, part) in parts.iter().enumerate() {
        parents.push(part.cpus.first().and_then(|c| smallest[c as usize]));
        part.cpus.iter().for_each(|c| smallest[c as usize] = Some(i));
    }
    // A child comes after its parent, so from the end each part is whole when it is moved.
    let mut slots: Vec<Option<Part>> = parts.into_iter().map(Some).collect();
    let mut roots = Vec::new();
    for i in (0..slots.len()).rev() {
        let Some(mut part) = slots[i].take() else { continue };
        part.children.sort_by_key(|c| (c.cpus.first().unwrap_or(u32::MAX), c.rank));
        match parents[i].and_then(|p| slots[p].as_mut()) {
            Some(parent) => parent.children.push(part),
            None => roots.push(part),
        }
    }
    roots.reverse();
    roots.sort_by_key(|p| (p.cpus.first().unwrap_or(u32::MAX), p.rank));
    roots
}

/// A line of the tree before it is fitted.
struct Line {
    depth: usize,
    text: String,
    /// CPUs, most telling form first.
    cpus: Vec<String>,
}

impl Line {
    fn print(&self, out: &mut String, width: usize) {
        let head = format!("{}{}", "  ".repeat(self.depth), self.text);
        let used = head.chars().count() + 2;
        let fits = |c: &&String| used + c.chars().count() <= width;
        let cpus = self.cpus.iter().find(fits).cloned().or_else(|| {
            let shortest = self.cpus.last()?;
            let room = width.saturating_sub(used + 1).max(12);
            Some(shortest.chars().take(room).chain(['…']).collect())
        });
        let _ = match cpus.filter(|c| !c.is_empty()) {
            Some(cpus) => writeln!(out, "{head}  {cpus}"),
            None => writeln!(out, "{head}"),
        };
    }
}

fn lines(parts: &[Part]) -> Vec<Line> {
    let mut out = Vec::new();
    list(parts, 0, Some(&CpuSet::new()), &mut out);
    out
}

/// Lists sibling parts. `outer` is what they lie in; nothing where they stand for each of several
/// alike, whose CPUs differ.
fn list(parts: &[Part], depth: usize, outer: Option<&CpuSet>, out: &mut Vec<Line>) {
    let mut at = 0;
    while at < parts.len() {
        let like = signature(&parts[at]);
        let run = parts[at..].iter().take_while(|p| p.folds && signature(p) == like).count().max(1);
        let run = &parts[at..at + run];
        at += run.len();
        // A part that is all of another joins its line.
        let mut chain = vec![&run[0]];
        while let [only] = chain[chain.len() - 1].children.as_slice() {
            if only.cpus != run[0].cpus {
                break;
            }
            chain.push(only);
        }
        let names: Vec<&str> = chain
            .iter()
            .map(|p| if run.len() > 1 || p.folds { p.likeness.as_str() } else { p.label.as_str() })
            .collect();
        let mut text = names.join(" + ");
        // Each says whether it is allowed; once is enough.
        for state in [NOT_ALLOWED, PARTLY] {
            if text.matches(state).count() > 1 {
                text = text.replace(state, "") + state;
            }
        }
        if run.len() > 1 {
            text = format!("{} x {text}", run.len());
        }
        let inner = chain[chain.len() - 1];
        let all = run.iter().fold(CpuSet::new(), |set, p| set.or(&p.cpus));
        let mut cpus = Vec::new();
        if let Some(outer) = outer.filter(|_| !all.is_empty()) {
            if inner.core && run.len() > 1 && inner.cpus.len() > 1 {
                let each: Vec<String> = run.iter().map(|p| p.cpus.to_list()).collect();
                cpus.push(format!("CPUs {}", each.join(" ")));
            }
            if *outer == all {
                cpus.push(String::new());
            } else {
                cpus.push(format!("CPU{} {all}", if all.len() == 1 { "" } else { "s" }));
            }
        }
        out.push(Line { depth, text, cpus });
        let here = out.len();
        list(&inner.children, depth + 1, outer.filter(|_| run.len() == 1).map(|_| &all), out);
        // "Package 0" and "2 x Core" below it are one short line.
        if let [only] = &out[here..]
            && only.cpus.iter().all(String::is_empty)
            && out[here - 1].text.len() + only.text.len() < 32
        {
            let only = out.remove(here);
            out[here - 1].text.push_str(&format!(": {}", only.text));
        }
    }
}

fn signature(part: &Part) -> String {
    let inner: Vec<String> = part.children.iter().map(signature).collect();
    format!("{}[{}]", part.likeness, inner.join(";"))
}

fn distances(t: &Topology) -> Option<String> {
    let n = t.distances.len();
    let pairs = || (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
    let far = || pairs().filter(|(a, b)| a != b).map(|(a, b)| t.distances[a][b]);
    let (least, most) = (far().min()?, far().max()?);
    let own: Vec<u32> = (0..n).map(|a| t.distances[a][a]).collect();
    let range = |least: u32, most: u32| {
        if least == most { least.to_string() } else { format!("{least} to {most}") }
    };
    Some(format!(
        "\nDistance between nodes {}, within {}",
        range(least, most),
        range(*own.iter().min()?, *own.iter().max()?)
    ))
}
