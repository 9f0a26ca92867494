//! Layers over time for the terminal.

use std::fmt::Write;

use ncpu_schema::Layer;

use super::Timeline;
use crate::onion::{Onion, render_part};
use crate::wrap::wrap;

/// Rows of the chart.
const ROWS: usize = 10;
/// Characters before it.
const MARGIN: usize = 7;
/// Layers below this share of a phase are left out of its line.
const SMALL: f64 = 0.01;

/// A layer's letter in the chart: in capitals where CPUs idled.
fn letter(layer: Layer) -> char {
    match layer {
        Layer::User => 'u',
        Layer::Calls => 'c',
        Layer::Faults => 'f',
        Layer::Tlb => 't',
        Layer::Switches => 'w',
        Layer::OtherKernel => 'k',
        Layer::Kernel => 'y',
        Layer::KernelSpin => 's',
        Layer::Interrupts => 'i',
        Layer::Others => 'o',
        Layer::Ncpu => 'n',
        Layer::Steal => 'x',
        Layer::UserLock => 'L',
        Layer::KernelBlock => 'B',
        Layer::LockOrSerial => 'Z',
        Layer::KernelLockOrIo => 'V',
        Layer::Io => 'D',
        Layer::RunQueue => 'Q',
        Layer::WakeUp => 'W',
        Layer::Serial => 'S',
        Layer::Unseen => '?',
        Layer::Idle => '.',
    }
}

/// Renders layers over time, the phases, and where there are several the onion of each.
pub fn render(timeline: &Timeline, onions: &[(f64, f64, Onion)], width: usize) -> String {
    let width = width.clamp(60, 240);
    let phases = timeline.phases();
    let drawn = drawn(timeline, &phases, width - MARGIN - (phases.len() - 1));
    let mut out = String::new();
    let end = timeline.columns.last().map_or(0.0, |c| c.to);
    let marks = match phases.len() {
        1 => "one phase".to_string(),
        n => format!("{n} phases, | between them"),
    };
    let columns: usize = drawn.iter().map(Vec::len).sum();
    let head = format!(
        "Over time: {} s a column, {} % of capacity a row; {marks}",
        figure(end / columns.max(1) as f64),
        100 / ROWS
    );
    out.push_str(&wrap(&head, width, "", "  "));
    chart(&mut out, timeline, &drawn);
    axis(&mut out, timeline, &phases, &drawn);
    legend(&mut out, timeline, width);
    out.push('\n');
    for (i, (from, to)) in phases.iter().enumerate() {
        let mut shares: Vec<(Layer, f64)> = timeline
            .layers
            .iter()
            .copied()
            .zip(timeline.shares(*from, *to))
            .filter(|(_, s)| *s >= SMALL)
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        let most: Vec<String> =
            shares.iter().take(4).map(|(layer, s)| format!("{} {:.1} %", layer.name(), 100.0 * s)).collect();
        let (begin, end) = (timeline.columns[*from].from, timeline.columns[*to - 1].to);
        let line = format!("phase {}, {begin:.2}-{end:.2} s: {}", i + 1, most.join(", "));
        out.push_str(&wrap(&line, width, "", "  "));
    }
    for (i, (begin, end, onion)) in onions.iter().enumerate() {
        let title = format!("Phase {} of {}, {begin:.2}-{end:.2} s", i + 1, onions.len());
        let _ = write!(out, "\n{}", render_part(onion, width, &title));
    }
    out
}

/// Shares by layer of each column that is drawn, by phase. No column belongs to two phases, and each phase has one.
fn drawn(timeline: &Timeline, phases: &[(usize, usize)], room: usize) -> Vec<Vec<Vec<f64>>> {
    let by = timeline.columns.len().div_ceil(room.max(1)).max(1);
    // The excess of rounding up makes columns coarser, and does not go beyond the right of the screen.
    let needs = |by: usize| phases.iter().map(|(from, to)| (to - from).div_ceil(by)).sum::<usize>();
    let by = (by..).find(|by| needs(*by) <= room || *by > timeline.columns.len()).unwrap_or(by);
    let columns = |(from, to): &(usize, usize)| {
        (*from..*to).step_by(by).map(|at| timeline.shares(at, (at + by).min(*to))).collect()
    };
    phases.iter().map(columns).collect()
}

fn chart(out: &mut String, timeline: &Timeline, drawn: &[Vec<Vec<f64>>]) {
    for row in 0..ROWS {
        let label = match row {
            0 => "100 % ".into(),
            r if r == ROWS / 2 => format!("{:>3} % ", 100 - 100 * r / ROWS),
            _ => String::new(),
        };
        let _ = write!(out, "{label:>MARGIN$}");
        // The layer at the middle of the cell.
        let height = 1.0 - (row as f64 + 0.5) / ROWS as f64;
        for (i, phase) in drawn.iter().enumerate() {
            if i > 0 {
                out.push('|');
            }
            for shares in phase {
                let mut below = 0.0;
                let at = shares.iter().position(|s| {
                    below += s;
                    below > height
                });
                out.push(at.map_or(' ', |at| letter(timeline.layers[at])));
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
}

/// A rule with the beginnings of phases below it, if they have room.
fn axis(out: &mut String, timeline: &Timeline, phases: &[(usize, usize)], drawn: &[Vec<Vec<f64>>]) {
    let rule: Vec<String> = drawn.iter().map(|phase| "-".repeat(phase.len())).collect();
    let rule = rule.join("+");
    let _ = writeln!(out, "{:>MARGIN$}{rule}", "0 % ");
    let end = format!("{:.2} s", timeline.columns.last().map_or(0.0, |c| c.to));
    let mut line = String::new();
    let mut at = 0;
    let last = rule.chars().count().saturating_sub(end.len());
    for (i, (from, _)) in phases.iter().enumerate() {
        let label = format!("{:.2}", timeline.columns.get(*from).map_or(0.0, |c| c.from));
        if line.len() <= at && at + label.len() < last {
            let _ = write!(line, "{}{label} ", " ".repeat(at - line.len()));
        }
        at += drawn[i].len() + 1;
    }
    let pad = last.saturating_sub(line.len());
    let _ = writeln!(out, "{}{line}{}{end}", " ".repeat(MARGIN), " ".repeat(pad));
}

fn legend(out: &mut String, timeline: &Timeline, width: usize) {
    let most = |i: usize| timeline.columns.iter().map(|c| c.seconds[i]).sum::<f64>();
    let all: f64 = (0..timeline.layers.len()).map(most).sum();
    // A layer that fills no cell needs no letter.
    let shown = |i: &usize| most(*i) >= 0.002 * all;
    let words: Vec<String> = (0..timeline.layers.len())
        .rev()
        .filter(shown)
        .map(|i| {
            format!("{}={}", letter(timeline.layers[i]), timeline.layers[i].name().replace(' ', "\u{a0}"))
        })
        .collect();
    let lines = wrap(&words.join(", "), width, "       ", "       ");
    out.push_str(&lines.replace('\u{a0}', " "));
}

fn figure(seconds: f64) -> String {
    match seconds {
        s if s < 0.0995 => format!("{s:.3}"),
        s if s < 9.95 => format!("{s:.2}"),
        s => format!("{s:.0}"),
    }
}
