//! Limits for people: what is wrong first, the rest in a few lines.

use std::fmt::Write;

use ncpu_machine::limits::{Area, Limits, Size, Unit};
use ncpu_table::size::compact as bytes;
use ncpu_table::width;

use super::{Judged, Status, boot_parameters, command, judge, planned, scope};

const INDENT: usize = 8;

/// Renders the limits, `width` columns wide where that can be: each of them with `every`.
pub fn render(limits: &Limits, every: bool, width: usize) -> String {
    let mut out = format!("{}\n", machine(limits.size, limits.hz));
    let all = judge(limits);
    let (wrong, fine): (Vec<_>, Vec<_>) = all.into_iter().partition(|j| j.status != Status::Ok);
    if wrong.is_empty() {
        out.push_str("\nNo limit is hit, near, or too small for this machine.\n");
    } else {
        out.push('\n');
        problems(&mut out, &wrong, width);
    }
    if every {
        list(&mut out, &fine, width);
    } else {
        summary(&mut out, &fine, width);
    }
    pressure(&mut out, limits, if every { usize::MAX } else { 3 });
    settings(&mut out, limits, every, width);
    out
}

fn machine(size: Size, hz: Option<u64>) -> String {
    let s = |n: u64| if n == 1 { "" } else { "s" };
    let ticks = hz.map_or(String::new(), |hz| format!(", {hz} ticks a second"));
    format!(
        "{} CPU{}, {} memory, {} NUMA node{}{ticks}",
        size.cpus,
        s(size.cpus),
        bytes(size.memory),
        size.nodes,
        s(size.nodes)
    )
}

/// A number of a limit as people write it.
fn amount(n: Option<u64>, unit: Unit) -> String {
    let Some(n) = n else { return "-".into() };
    match unit {
        // A value this large was set to mean no limit.
        _ if n >= 1 << 62 => "no limit".into(),
        Unit::Bytes => bytes(n),
        Unit::KiB => bytes(n.saturating_mul(1024)),
        Unit::MilliCpus => format!("{} CPU", (n as f64 / 10.0).round() / 100.0),
        Unit::Count | Unit::Pages | Unit::Jiffies => n.to_string(),
    }
}

/// Names come from files that others wrote: no control character reaches the terminal.
fn shown(text: &str) -> String {
    ncpu_table::safe::line(text).into_owned()
}

fn cut(text: &str, width: usize) -> String {
    width::start(&shown(text), width)
}

/// Breaks a text between words; what does not fit in a line stays whole.
fn wrapped(out: &mut String, text: &str, indent: usize, width: usize) {
    let room = width.saturating_sub(indent).max(24);
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && width::columns(&line) + 1 + width::columns(word) > room {
            let _ = writeln!(out, "{:indent$}{line}", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
}

/// Rows of a table whose first three columns are words and whose others are numbers.
fn aligned(rows: &[Vec<String>], words: usize, width: usize) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let mut widths: Vec<usize> =
        (0..columns).map(|c| rows.iter().map(|r| width::columns(&r[c])).max().unwrap_or(0)).collect();
    // The words give way, the widest first, until the line fits.
    while widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1) > width {
        let Some(widest) = (0..words).max_by_key(|&c| widths[c]).filter(|&c| widths[c] > 12) else { break };
        widths[widest] -= 1;
    }
    rows.iter()
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(c, cell)| {
                    let w = widths[c];
                    if c < words { width::filled(&cut(cell, w), w) } else { format!("{cell:>w$}") }
                })
                .collect();
            cells.join("  ").trim_end().to_string()
        })
        .collect()
}

fn problems(out: &mut String, wrong: &[Judged<'_>], width: usize) {
    let head = ["status", "limit", "scope", "value", "used", "peak", "fits"].map(String::from).to_vec();
    let mut rows = vec![head];
    for j in wrong {
        let r = j.reading;
        rows.push(vec![
            j.status.word().into(),
            r.limit.clone(),
            scope(&r.scope),
            amount(r.value, r.unit),
            amount(r.used, r.unit),
            amount(r.peak, r.unit),
            amount(j.fit, r.unit),
        ]);
    }
    let lines = aligned(&rows, 3, width);
    let _ = writeln!(out, "{}", lines[0]);
    for (line, j) in lines[1..].iter().zip(wrong) {
        let _ = writeln!(out, "{line}");
        let note = j.reading.note.iter().map(|n| shown(n));
        let why = [j.why.clone()].into_iter().filter(|w| !w.is_empty()).chain(note).collect::<Vec<_>>();
        wrapped(out, &why.join("; "), INDENT, width);
        if let Some(set) = j.fit.and_then(|fit| command::command(j.reading, fit)) {
            let _ = writeln!(out, "{:INDENT$}{}", "", shown(&set));
        }
    }
}

/// Every limit that is well, by area.
fn list(out: &mut String, fine: &[Judged<'_>], width: usize) {
    let head =
        ["limit", "scope", "value", "used", "used%", "peak", "hits", "fits"].map(String::from).to_vec();
    let mut rows = vec![head];
    for j in fine {
        let r = j.reading;
        rows.push(vec![
            r.limit.clone(),
            scope(&r.scope),
            amount(r.value, r.unit),
            amount(r.used, r.unit),
            j.percent.map_or("-".into(), |p| format!("{p:.1}")),
            amount(r.peak, r.unit),
            amount(r.hits, Unit::Count),
            amount(j.fit, r.unit),
        ]);
    }
    let lines = aligned(&rows, 2, width.saturating_sub(2));
    let _ = write!(out, "\nWithin their limits:\n  {}\n", lines[0]);
    let mut area = None;
    let long = lines.iter().map(|l| width::columns(l)).max().unwrap_or(0);
    for (line, j) in lines[1..].iter().zip(fine) {
        if area.replace(j.reading.area) != Some(j.reading.area) {
            let _ = writeln!(out, "{}", j.reading.area.name());
        }
        // Where the terminal is wide there is room for what else is known.
        let room = width.min(240).saturating_sub(long + 4);
        let note = j.reading.note.as_deref().filter(|_| room >= 40).map(|n| cut(n, room));
        let _ = match note {
            Some(note) => writeln!(out, "  {line:<long$}  {note}"),
            None => writeln!(out, "  {line}"),
        };
    }
}

/// One line for each area: how many limits are well, and the fullest.
fn summary(out: &mut String, fine: &[Judged<'_>], width: usize) {
    let mut rows = Vec::new();
    for area in Area::ALL {
        let of: Vec<&Judged<'_>> = fine.iter().filter(|j| j.reading.area == area).collect();
        if of.is_empty() {
            continue;
        }
        let percent = |j: &Judged<'_>| j.percent.unwrap_or(-1.0);
        let fullest =
            of.iter().max_by(|a, b| percent(a).total_cmp(&percent(b))).filter(|j| percent(j) >= 0.05);
        let told = fullest.map_or("nothing of them is used, or that is not known".to_string(), |j| {
            let r = j.reading;
            let whose = if r.scope == ncpu_machine::limits::Scope::Machine {
                String::new()
            } else {
                format!(" ({})", scope(&r.scope))
            };
            format!("{} {:.1} % of {}{whose}", r.limit, percent(j), amount(r.value, r.unit))
        });
        rows.push(vec![area.name().to_string(), of.len().to_string(), told]);
    }
    if rows.is_empty() {
        return;
    }
    out.push_str("\nWithin their limits (--all shows each):\n");
    let wide = rows.iter().map(|r| r[0].len()).max().unwrap_or(0);
    let long = rows.iter().map(|r| r[1].len()).max().unwrap_or(0);
    for row in rows {
        let line = format!("  {:<wide$}  {:>long$}  fullest: {}", row[0], row[1], row[2]);
        let _ = writeln!(out, "{}", cut(&line.replace("fullest: nothing", "nothing"), width));
    }
}

/// Pressure of the machine, and of the `most` cgroups that stand still most.
fn pressure(out: &mut String, limits: &Limits, most: usize) {
    let words = |p: &ncpu_machine::limits::Pressure| {
        format!("{} {} {:.1} {:.1} {:.1}", p.resource, p.kind, p.avg[0], p.avg[1], p.avg[2])
    };
    // CPU pressure of the whole machine is never full.
    let whole = |p: &&ncpu_machine::limits::Pressure| {
        p.cgroup.is_none() && !(p.resource == "cpu" && p.kind == "full")
    };
    let machine: Vec<String> = limits.pressure.iter().filter(whole).map(words).collect();
    if machine.is_empty() {
        return;
    }
    out.push_str("\nPressure: tasks stood still, per cent of the last 10, 60 and 300 seconds:\n");
    for three in machine.chunks(3) {
        let _ = writeln!(out, "  {}", three.join(", "));
    }
    let mut groups: Vec<_> =
        limits.pressure.iter().filter(|p| p.cgroup.is_some() && p.avg[1] >= 1.0).collect();
    groups.sort_by(|a, b| b.avg[1].total_cmp(&a.avg[1]));
    for p in groups.into_iter().take(most) {
        let _ = writeln!(out, "  {}: {}", shown(p.cgroup.as_deref().unwrap_or("")), words(p));
    }
}

/// Settings: those of the boot and of timers, or `every` one.
fn settings(out: &mut String, limits: &Limits, every: bool, width: usize) {
    let mut about: Vec<&str> =
        limits.settings.iter().map(|s| s.about).filter(|a| every || matches!(*a, "boot" | "timer")).collect();
    about.sort_unstable();
    about.dedup();
    if about.is_empty() {
        return;
    }
    out.push_str("\nSettings:\n");
    for about in about {
        let of: Vec<String> = limits
            .settings
            .iter()
            .filter(|s| s.about == about)
            .map(|s| format!("{}={}", s.name, shown(&s.value).replace(' ', ",")))
            .collect();
        let mut text = String::new();
        wrapped(&mut text, &of.join(" "), 12, width);
        let _ = write!(out, "  {about:<10}{}", text.strip_prefix(&" ".repeat(12)).unwrap_or(&text));
    }
}

/// Renders what the limits of this machine would be on another.
pub fn plan(limits: &Limits, size: Size, every: bool, width: usize) -> String {
    let mut out = format!("Planned: {}\nHere:    {}\n\n", machine(size, None), machine(limits.size, None));
    let all = planned(limits, size);
    let total = all.len();
    let shown_ones: Vec<_> = all.iter().filter(|p| every || p.small).collect();
    let mut rows = vec![["status", "limit", "set by", "here", "there", "fits"].map(String::from).to_vec()];
    for p in &shown_ones {
        let r = p.reading;
        rows.push(vec![
            if p.small { "small" } else { "ok" }.into(),
            r.limit.clone(),
            p.by.word().into(),
            amount(r.value, r.unit),
            amount(Some(p.there), r.unit),
            amount(Some(p.fit), r.unit),
        ]);
    }
    if shown_ones.is_empty() {
        let _ = writeln!(out, "All {total} limits that follow CPUs or memory would fit.");
        return out;
    }
    let lines = aligned(&rows, 3, width);
    let _ = writeln!(out, "{}", lines[0]);
    for (line, p) in lines[1..].iter().zip(&shown_ones) {
        let _ = writeln!(out, "{line}");
        if p.small {
            wrapped(&mut out, p.why, INDENT, width);
            if let Some(set) = command::command(p.reading, p.fit) {
                let _ = writeln!(out, "{:INDENT$}{set}", "");
            }
        }
    }
    let small = all.iter().filter(|p| p.small).count();
    let _ = writeln!(out, "\n{small} of {total} limits would be too small, {} would fit.", total - small);
    let boot = boot_parameters(limits, Some(size));
    if !boot.is_empty() {
        let _ = writeln!(out, "Kernel command line: {}", boot.join(" "));
    }
    out
}
