//! The causes for the terminal, and the layers behind them in short.

use std::fmt::Write;

use ncpu_schema::Layer;
use ncpu_table::safe;

use super::{Finding, Findings, Kind, LISTED, Line, figure, middle, short};
use crate::onion::evidence::kinds::Evidence;
use crate::onion::{Onion, Row, SMALL};
use crate::wrap::wrap;

/// The widest that it is: a line that goes on further is not read.
const WIDEST: usize = 120;

/// The columns for which the list of causes is made: more are used where a title needs them.
const USUAL: usize = 80;

const BAR: usize = 12;

/// The part of capacity, and the part of the program's own work, below which a cause is not what a program is slow for.
const SMALL_CAUSE: f64 = 0.1;
const BESIDE_WORK: f64 = 0.2;

/// The part of the elapsed time from which on threads' waits for a cause count beside what it takes of the capacity.
const LONG: f64 = 0.2;

/// The part of the capacity that other programs have, and the thread-seconds behind one of them, of the elapsed time, from which on they
/// are named before a small cause.
const CROWDED: f64 = 0.3;
const STOOD: f64 = 0.2;

/// Beginnings of notes that say how something was measured.
const HOW: [&str; 2] =
    ["static locks are named by their callers", "kernel locks: too many waits to count all"];

/// Renders causes and layers, at most `width` columns wide; for a file or a pipe, which has no edge (`usize::MAX`), as usual.
pub fn render(onion: &Onion, findings: &Findings, width: usize) -> String {
    let width = if width == usize::MAX { USUAL } else { width.clamp(60, WIDEST) };
    if onion.short {
        return crate::onion::render(onion, width);
    }
    let mut out = wrap(&headline(onion), width, "", "  ");
    out += &wrap(&sentence(onion, findings), width, "", "  ");
    out.push('\n');
    causes(&mut out, findings, onion, width);
    let lives = findings.lives.render(width);
    if !lives.is_empty() {
        out += &lives;
        out.push('\n');
    }
    layers(&mut out, findings, onion, width);
    for note in onion.notes.iter().filter(|note| !HOW.iter().any(|how| note.starts_with(how))) {
        out += &wrap(&format!("note: {note}"), width, "", "      ");
    }
    out
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        p if p >= 9.95 => format!("{p:.0} %"),
        p => format!("{p:.1} %"),
    }
}

/// What ran, for how long, on what.
fn headline(onion: &Onion) -> String {
    let command = match onion.command.as_str() {
        "" => "the machine".to_string(),
        command => middle(&safe::line(command), 40),
    };
    let mut line = format!(
        "{command} · {:.1} s · {} CPUs · {:.1} CPU-s of capacity",
        onion.elapsed, onion.cpus, onion.capacity
    );
    let _ = write!(
        line,
        " · {} of it ncpu's own",
        percent(onion.seconds(Layer::Ncpu) / onion.capacity.max(f64::MIN_POSITIVE))
    );
    match onion.status {
        Some(0) | None => {}
        Some(status) => {
            let _ = write!(line, " · exit status {status}");
        }
    }
    line
}

/// What is wrong, or that nothing is.
pub(crate) fn sentence(onion: &Onion, findings: &Findings) -> String {
    let (beside, rest) = (beside(onion, findings), sentence_of_program(onion, findings));
    match beside {
        Some(beside) => format!("{beside} {rest}"),
        None => rest,
    }
}

/// The sentence about other programs, where the program's threads wait behind them for a CPU and no cause in the program is large: a
/// client is observed without its server.
fn beside(onion: &Onion, findings: &Findings) -> Option<String> {
    let share = onion.seconds(Layer::Others) / onion.capacity.max(f64::MIN_POSITIVE);
    let larger = findings.list.first().is_some_and(|first| {
        first.share >= SMALL_CAUSE || first.kind == Kind::Neighbour || is_long(onion, first)
    });
    let (name, behind) = findings.neighbours.first()?;
    // Without a cause and without a loss, the sentence about the program says it already.
    let lost: f64 = onion.rows.iter().filter(|r| r.layer.recoverable()).map(|r| r.share).sum();
    let says = findings.list.is_empty() && lost < SMALL_CAUSE;
    (share >= CROWDED && *behind >= STOOD * onion.elapsed && !larger && !says).then(|| {
        format!(
            "Other programs have {} of the capacity, and the program's threads waited {} thread-s for a CPU behind {}; \
             `ncpu watch -a` shows all of them.",
            percent(share),
            super::figure(*behind),
            safe::line(name)
        )
    })
}

/// Whether threads wait for a cause for a part of the time that matters, whatever it takes of the capacity.
fn is_long(onion: &Onion, found: &Finding) -> bool {
    found.waited.is_some_and(|waited| waited >= LONG * onion.elapsed)
}

fn sentence_of_program(onion: &Onion, findings: &Findings) -> String {
    let share = |layer: Layer| onion.seconds(layer) / onion.capacity.max(f64::MIN_POSITIVE);
    if let Some(first) = findings.list.first() {
        let first_says = safe::line(&first.sentence);
        let small = first.share < SMALL_CAUSE
            && first.share < BESIDE_WORK * share(Layer::User)
            && !is_long(onion, first);
        return match findings.hot.as_ref() {
            Some((chain, part)) if small => format!(
                "Most is the program's own work, {} of it in {}. Beside it: {first_says}",
                percent(*part),
                safe::line(chain)
            ),
            None if small => format!(
                "Most is the program's own work{}, {} of the capacity. Beside it: {first_says}",
                whose(onion),
                percent(share(Layer::User))
            ),
            _ => first_says.into_owned() + &of_serial(first, findings),
        };
    }
    let beside: f64 = onion
        .rows
        .iter()
        .filter(|r| r.layer.recoverable() && r.layer != Layer::Serial)
        .map(|r| r.share)
        .sum();
    if let Some(alone) =
        findings.alone.as_ref().filter(|_| beside < f64::max(0.1, 0.5 * share(Layer::Serial)))
    {
        let idle = percent(share(Layer::Serial));
        let (within, more) = match &findings.hot {
            Some((chain, part)) => {
                (format!(", {} of its work in {}", percent(*part), safe::line(chain)), String::new())
            }
            None => (
                String::new(),
                ": several of it at once, or its threads if it has an option for them, use more CPUs".into(),
            ),
        };
        return format!(
            "{} runs one thread at a time{within}, and {idle} of the capacity idles meanwhile{more}.",
            safe::line(alone)
        );
    }
    if let Some((place, part)) = &findings.waits {
        return format!(
            "The program hardly runs, {} of the capacity: its threads wait, {} of that time {}.",
            percent(share(Layer::User) + share(Layer::Calls)),
            percent(*part),
            safe::line(place)
        );
    }
    let mut lost: Vec<(f64, Layer)> =
        onion.rows.iter().filter(|r| r.layer.recoverable()).map(|r| (r.share, r.layer)).collect();
    lost.sort_by(|a, b| b.0.total_cmp(&a.0));
    let sum: f64 = lost.iter().map(|(share, _)| share).sum();
    if sum >= 0.1 {
        let largest: Vec<String> = lost
            .iter()
            .take(3)
            .filter(|(s, _)| *s >= LISTED)
            .map(|(s, l)| match &findings.called {
                Some((called, part)) if *l == Layer::Calls => {
                    format!("{} {}, {} of it {}", l.name(), percent(*s), percent(*part), safe::line(called))
                }
                _ if *l == Layer::Serial && findings.alone.is_some() => {
                    let alone = findings.alone.as_deref().unwrap_or_default();
                    format!("{} {} (mostly while {} runs alone)", l.name(), percent(*s), safe::line(alone))
                }
                _ => format!("{} {}", l.name(), percent(*s)),
            })
            .collect();
        let lost =
            format!("o single cause is known for the {} that is lost: {}.", percent(sum), largest.join(", "));
        return match findings.hot.as_ref() {
            None if share(Layer::User) >= sum => format!(
                "Most is the program's own work{}, {} of the capacity. N{lost}",
                whose(onion),
                percent(share(Layer::User))
            ),
            Some((chain, part)) if share(Layer::User) >= sum => format!(
                "Most is the program's own work, {} of the capacity, {} of it in {}. N{lost}",
                percent(share(Layer::User)),
                percent(*part),
                safe::line(chain)
            ),
            _ => format!("N{lost}"),
        };
    }
    if share(Layer::Idle) > share(Layer::User) && share(Layer::Idle) >= LISTED {
        return format!("Nothing stands out: nobody wanted {} of the capacity.", percent(share(Layer::Idle)));
    }
    let hot = findings.hot.as_ref().filter(|_| share(Layer::User) >= LISTED);
    let within = hot.map_or_else(String::new, |(chain, part)| {
        format!(", {} of it in {}", percent(*part), safe::line(chain))
    });
    if share(Layer::Others) > share(Layer::User) {
        let behind: Vec<String> = findings
            .neighbours
            .iter()
            .take(2)
            .filter(|(_, seconds)| *seconds >= 0.05)
            .map(|(name, seconds)| format!("{} thread-s for {}", super::figure(*seconds), safe::line(name)))
            .collect();
        let behind = match behind.is_empty() {
            true => String::new(),
            false => format!(" Its threads waited {}.", behind.join(" and ")),
        };
        return format!(
            "Nothing stands out in the program, which had {} of the capacity{within}: other programs had {}.{behind}",
            percent(share(Layer::User)),
            percent(share(Layer::Others))
        );
    }
    format!(
        "Nothing stands out: {} of the capacity is the program's own work{}{within}.",
        percent(share(Layer::User)),
        whose(onion)
    )
}

/// Of one thread at work: what most of the program's own work is.
fn of_serial(found: &Finding, findings: &Findings) -> String {
    let hot = findings.hot.as_ref().filter(|_| found.id == "serial-thread");
    hot.map_or_else(String::new, |(chain, part)| {
        format!(" Of the program's own work, {} is in {}.", percent(*part), safe::line(chain))
    })
}

/// The processes that user code is of.
fn whose(onion: &Onion) -> String {
    let own = onion.rows.iter().find(|row| row.layer == Layer::User);
    let of = own.into_iter().flat_map(|row| &row.evidence).find_map(|evidence| match evidence {
        Evidence::Processes(processes) => processes.processes.first(),
        _ => None,
    });
    of.map_or_else(String::new, |part| match part.share.0 >= 0.995 {
        true => format!(" ({})", safe::line(&part.name)),
        false => format!(" ({} {})", safe::line(&part.name), percent(part.share.0)),
    })
}

fn causes(out: &mut String, findings: &Findings, onion: &Onion, width: usize) {
    if findings.list.is_empty() {
        return;
    }
    // Behind the title: seconds, share and gain.
    let named =
        |(i, found): (usize, &Finding)| format!("{} {}", i + 1, safe::line(&found.title)).chars().count();
    let longest = findings.list.iter().enumerate().map(named).max().unwrap_or(0);
    let title = longest.clamp(USUAL.min(width) - 28, width - 28);
    let _ = writeln!(out, "{:<title$} {:>6} {:>6}  if removed", "causes", "CPU-s", "share");
    for (i, found) in findings.list.iter().enumerate() {
        cause(out, i + 1, found, title, width);
    }
    *out += &wrap(&rest(findings, onion), width, "  rest        ", "              ");
    out.push('\n');
}

/// The recoverable seconds that no listed cause has.
pub(crate) fn rest(findings: &Findings, onion: &Onion) -> String {
    let rest: f64 = findings.left.iter().filter(|(layer, _)| layer.recoverable()).map(|(_, s)| s).sum();
    let capacity = onion.capacity.max(f64::MIN_POSITIVE);
    let mut large: Vec<(f64, Layer)> = findings
        .left
        .iter()
        .filter(|(layer, s)| layer.recoverable() && *s >= LISTED * capacity)
        .map(|(layer, s)| (s / capacity, *layer))
        .collect();
    large.sort_by(|a, b| b.0.total_cmp(&a.0));
    let large: Vec<String> = large.iter().map(|(s, l)| format!("{} {}", l.name(), percent(*s))).collect();
    let large = if large.is_empty() { "nothing above 2 %".to_string() } else { large.join(", ") };
    format!("{} CPU-s ({}), {large}", figure(rest), percent(rest / capacity))
}

fn cause(out: &mut String, n: usize, found: &Finding, title: usize, width: usize) {
    let name = middle(&format!("{n} {}", safe::line(&found.title)), title);
    let pad = title.saturating_sub(name.chars().count());
    let _ = writeln!(
        out,
        "{name}{:pad$} {:>6} {:>6}  {}",
        "",
        figure(found.seconds),
        percent(found.share),
        found.gain_words()
    );
    let mut line = |label: &str, text: &str| {
        *out += &wrap(&safe::line(text), width, &format!("    {label:<9} "), "              ");
    };
    for Line { label, text } in &found.lines {
        line(label, text);
    }
    let made = made_of(found);
    if made.len() > 1 {
        line("made of", &made.join(", "));
    }
    if let Some(advice) = &found.advice {
        line("do", &advice.words);
    }
}

/// The parts of a cause by what they went to, most first.
pub(crate) fn made_of(found: &Finding) -> Vec<String> {
    let mut whats: Vec<(&str, f64)> = Vec::new();
    for part in &found.parts {
        match whats.iter_mut().find(|(what, _)| *what == part.what) {
            Some((_, sum)) => *sum += part.seconds,
            None => whats.push((part.what, part.seconds)),
        }
    }
    whats.sort_by(|a, b| b.1.total_cmp(&a.1));
    let large = whats.iter().filter(|(_, seconds)| *seconds >= 0.01 * found.seconds);
    large.map(|(what, seconds)| format!("{what} {}", figure(*seconds))).collect()
}

/// The upper end over the lower from which on the upper one says nothing: all that the program does may be done with the lock.
const OPEN: f64 = 5.0;

/// `x1.4–1.8`, one figure where both are the same, and no upper end where it says nothing.
pub(crate) fn gain((low, high): (f64, f64)) -> String {
    let figure = |gain: f64| if gain >= 9.95 { format!("{gain:.0}") } else { format!("{gain:.1}") };
    if high >= OPEN * low {
        return format!("x{} or more", figure(low));
    }
    match (figure(low), figure(high)) {
        (low, high) if low == high => format!("x{low}"),
        (low, high) => format!("x{low}–{high}"),
    }
}

/// The layers, largest first, with the causes that they went to.
fn layers(out: &mut String, findings: &Findings, onion: &Onion, width: usize) {
    let capacity = onion.capacity.max(f64::MIN_POSITIVE);
    let _ = writeln!(out, "{:<24} {:>6}  {:<BAR$}  belongs to", "capacity", "share", "");
    let mut rows: Vec<&Row> = onion.rows.iter().filter(|row| row.share >= SMALL).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    for row in rows {
        let filled = ((row.share * BAR as f64).round() as usize).min(BAR);
        let parts = findings.of_layer(row.layer);
        let given: f64 = parts.iter().map(|(_, s)| s).sum();
        let mut belongs: Vec<String> = parts
            .iter()
            .filter(|(_, s)| *s >= SMALL * capacity)
            .map(|(n, s)| match *s >= 0.95 * row.seconds {
                true => format!("→ {n}"),
                false => format!("{} → {n}", number(s / capacity)),
            })
            .collect();
        let rest = row.seconds - given;
        let named = row.layer != Layer::User;
        if named && !belongs.is_empty() && rest >= SMALL * capacity && rest >= 0.05 * row.seconds {
            belongs.push(format!("others {}", number(rest / capacity)));
        }
        let room = width.saturating_sub(24 + 8 + 2 + BAR + 2);
        if row.layer == Layer::User {
            let used: usize = belongs.iter().map(|text| text.chars().count() + 2).sum();
            belongs.extend(functions(row, room.saturating_sub(used)));
        }
        if row.layer == Layer::Others {
            belongs.extend(programs(row));
        }
        let name =
            if row.layer.name().len() > 24 { middle(row.layer.name(), 24) } else { row.layer.name().into() };
        let line = format!(
            "{name:<24} {:>6}  {}{}  {}",
            percent(row.share),
            "█".repeat(filled),
            " ".repeat(BAR - filled),
            middle(&safe::line(&belongs.join(", ")), room)
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// A percentage without its sign.
fn number(share: f64) -> String {
    percent(share).trim_end_matches(" %").to_string()
}

/// The programs that most of a layer is of, at most two, with their parts of it.
fn programs(row: &Row) -> Option<String> {
    let of = row.evidence.iter().find_map(|evidence| match evidence {
        Evidence::Processes(processes) => Some(&processes.processes),
        _ => None,
    })?;
    let large = of.iter().filter(|part| part.share.0 >= 0.1).take(2);
    let words: Vec<String> =
        large.map(|part| format!("{} {:.0} %", safe::line(&part.name), 100.0 * part.share.0)).collect();
    (!words.is_empty()).then(|| format!("of it {}", words.join(", ")))
}

/// The name of a function in a table: a program without symbols has none.
fn in_table(name: &str, room: usize) -> String {
    match name.strip_prefix("[unknown ").and_then(|rest| rest.strip_suffix(']')) {
        Some(file) if file.chars().count() + " (no symbols)".len() <= room => format!("{file} (no symbols)"),
        _ => middle(&short(name), room),
    }
}

/// The functions that most of the program's own time is in, at most two, within `room` columns.
fn functions(row: &Row, room: usize) -> Option<String> {
    let of = row.evidence.iter().find_map(|evidence| match evidence {
        Evidence::Functions(functions) => Some(&functions.functions),
        _ => None,
    })?;
    let mut words = String::new();
    for part in of.iter().filter(|part| part.share.0 >= 0.1).take(2) {
        let before = if words.is_empty() { "in " } else { ", " };
        let figure = format!(" {:.0} %", 100.0 * part.share.0);
        let left = room.saturating_sub(words.chars().count() + before.len() + figure.chars().count());
        if left < 8 {
            break;
        }
        words += &format!("{before}{}{figure}", in_table(&part.name, left));
    }
    (!words.is_empty()).then_some(words)
}
