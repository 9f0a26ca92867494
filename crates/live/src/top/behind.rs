//! What is behind a row: a thread's stacks, a lock's waiters, a layer's evidence; and help.

use std::collections::HashMap;
use std::sync::Arc;

use ncpu_table::{Table, safe};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::stacks::Tree;
use super::{Interval, Stack};
use crate::view::write;

/// Different stacks that are summed up at most; what comes after is left out, and that is told.
const MOST: usize = 20_000;

/// What a screen is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Behind {
    Layer(String),
    Thread { pid: u32, tid: u32, name: String, thread: String },
    Process { pid: u32, name: String },
    Lock { lock: Option<String>, kind: Option<String>, process: Option<String> },
    Notes,
    Help,
}

/// A line, and whether it is a headline.
type Line = (String, bool);

/// The screen that is shown instead of a list.
pub(super) struct Screen {
    behind: Behind,
    lines: Vec<Line>,
    scroll: usize,
    height: usize,
    /// Since it was opened.
    seconds: f64,
    stacks: HashMap<Arc<str>, f64>,
    asleep: HashMap<Arc<str>, f64>,
    left_out: bool,
}

impl Screen {
    /// Opens it, with what is known already.
    pub fn of(behind: Behind, interval: Option<&Interval>) -> Screen {
        let mut screen = Screen {
            lines: if behind == Behind::Help { help() } else { Vec::new() },
            behind,
            scroll: 0,
            height: 0,
            seconds: 0.0,
            stacks: HashMap::new(),
            asleep: HashMap::new(),
            left_out: false,
        };
        if let Some(interval) = interval {
            screen.update(interval);
        }
        screen
    }

    /// Takes another interval. Stacks are summed since the screen was opened; all else is of the last interval.
    pub fn update(&mut self, interval: &Interval) {
        self.seconds += interval.elapsed;
        let lines = match &self.behind {
            Behind::Help => return,
            Behind::Layer(name) => layer(interval, name),
            Behind::Notes if interval.notes.is_empty() => vec![("There is nothing to note.".into(), false)],
            Behind::Notes => {
                interval.notes.iter().map(|note| (safe::line(note).into_owned(), false)).collect()
            }
            Behind::Lock { lock, kind, process } => {
                waiters(interval, [lock, kind, process].map(Option::as_deref))
            }
            Behind::Thread { .. } | Behind::Process { .. } => {
                self.gather(interval);
                self.executing(interval)
            }
        };
        self.lines = lines;
    }

    fn gather(&mut self, interval: &Interval) {
        for new in interval.stacks.iter().filter(|stack| is_of(&self.behind, stack)) {
            self.left_out |= !add(&mut self.stacks, &new.stack, new.seconds);
        }
        let name = match &self.behind {
            Behind::Thread { thread, .. } => thread,
            Behind::Process { name, .. } => name,
            _ => return,
        };
        for (stack, seconds) in &interval.asleep {
            if stack.split(';').next() == Some(name.as_str()) {
                self.left_out |= !add(&mut self.asleep, stack, *seconds);
            }
        }
    }

    fn executing(&self, interval: &Interval) -> Vec<Line> {
        let (table, column, number, name) = match &self.behind {
            Behind::Thread { tid, thread, .. } => (&interval.threads, "tid", *tid, thread),
            Behind::Process { pid, name } => (&interval.processes, "pid", *pid, name),
            _ => return Vec::new(),
        };
        let mut lines = Vec::new();
        lines.push((
            match &self.behind {
                Behind::Thread { pid, tid, name, .. } => {
                    format!(
                        "thread {tid} ({}) of process {pid} ({})",
                        safe::line(thread_name(&self.behind)),
                        safe::line(name)
                    )
                }
                _ => format!("process {number} ({})", safe::line(name)),
            },
            true,
        ));
        let row = (0..table.num_rows()).find(|&r| table.int(r, column) == Some(number.into()));
        lines.push(match row {
            None => ("did nothing in the last interval, or has ended".into(), false),
            Some(row) => {
                let part = |name: &str| table.number(row, name).map(|v| format!("{name} {v:.1} %"));
                let parts: Vec<String> =
                    ["CPU", "LAT", "LCK", "SLP", "spin"].iter().filter_map(|n| part(n)).collect();
                (parts.join("   "), false)
            }
        });
        lines.push((String::new(), false));
        let mut tree = Tree::default();
        for (stack, seconds) in &self.stacks {
            tree.add(frames(stack), *seconds);
        }
        lines.push((
            format!("on CPU: {:.2} s of {:.1} s, by timer samples", tree.seconds(), self.seconds),
            true,
        ));
        lines.extend(tree.lines().into_iter().map(|line| (line, false)));
        let mut tree = Tree::default();
        for (stack, seconds) in &self.asleep {
            tree.add(frames(stack), *seconds);
        }
        if tree.seconds() > 0.0 {
            lines.push((String::new(), false));
            let whose = safe::line(name);
            lines.push((format!("off CPU: {:.2} s, all threads named {whose}", tree.seconds()), true));
            lines.extend(tree.lines().into_iter().map(|line| (line, false)));
        }
        if self.left_out {
            lines.push((
                format!("{MOST} different stacks are shown; those that came later are left out"),
                false,
            ));
        }
        lines
    }

    /// Moves over lines that have no room.
    pub fn scroll(&mut self, code: KeyCode) {
        let page = self.height.max(1);
        let to = match code {
            KeyCode::Up => self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll + 1,
            KeyCode::PageUp => self.scroll.saturating_sub(page),
            KeyCode::PageDown => self.scroll + page,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.scroll,
        };
        self.scroll = to.min(self.lines.len().saturating_sub(self.height));
    }

    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect) {
        self.height = area.height.into();
        let lines: Vec<Line> = match self.behind {
            Behind::Help => self.lines.clone(),
            _ => self.lines.iter().flat_map(|line| wrapped(line, area.width.into())).collect(),
        };
        self.scroll = self.scroll.min(lines.len().saturating_sub(self.height));
        draw_lines(buffer, area, lines.iter().skip(self.scroll));
    }
}

/// Whether a stack is of what a screen is about.
fn is_of(behind: &Behind, stack: &Stack) -> bool {
    match behind {
        Behind::Thread { pid, tid, .. } => stack.pid == *pid && stack.tid == *tid,
        Behind::Process { pid, .. } => stack.pid == *pid,
        _ => false,
    }
}

/// Adds to a stack's time; tells whether there was room.
fn add(sums: &mut HashMap<Arc<str>, f64>, stack: &Arc<str>, seconds: f64) -> bool {
    let room = sums.len() < MOST;
    match sums.get_mut(stack) {
        Some(sum) => *sum += seconds,
        None if room => drop(sums.insert(stack.clone(), seconds)),
        None => return false,
    }
    true
}

fn thread_name(behind: &Behind) -> &str {
    match behind {
        Behind::Thread { thread, .. } => thread,
        _ => "",
    }
}

/// The frames of a stack, without the name before them.
fn frames(stack: &str) -> impl Iterator<Item = &str> {
    stack.split(';').skip(1)
}

fn draw_lines<'a>(buffer: &mut Buffer, area: Rect, lines: impl Iterator<Item = &'a Line>) {
    for (i, (text, head)) in lines.take(area.height.into()).enumerate() {
        let style = if *head { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        write(buffer, Rect { y: area.y + i as u16, height: 1, ..area }, 0, text, style);
    }
}

/// A line of words that is too long goes on in the next, as far to the right as it began; a tree's goes on nowhere.
fn wrapped((text, head): &Line, width: usize) -> Vec<Line> {
    if text.chars().count() <= width || text.contains(" %  ") {
        return vec![(text.clone(), *head)];
    }
    let begin = text.chars().take_while(|c| *c == ' ').count();
    let indent = if text.starts_with("-> ") { 3 } else { begin }.min(width / 2);
    let mut out: Vec<String> = Vec::new();
    let mut line = " ".repeat(begin.min(indent));
    for word in text.split_whitespace() {
        if line.trim().is_empty() || line.chars().count() + 1 + word.chars().count() <= width {
            if !line.trim().is_empty() {
                line.push(' ');
            }
        } else {
            out.push(std::mem::replace(&mut line, " ".repeat(indent)));
        }
        line.push_str(word);
    }
    out.push(line);
    out.into_iter().map(|line| (line, *head)).collect()
}

/// What is known of a layer, a line each.
fn layer_lines(table: &Table, row: usize) -> Vec<Line> {
    let text = |name: &str| table.text(row, name).unwrap_or("");
    let number = |name: &str| table.number(row, name).unwrap_or(0.0);
    let mut head =
        format!("{}: {:.1} %, {:.3} CPU-s", safe::line(text("layer")), number("share"), number("seconds"));
    if number("error") > 0.0 {
        head += &format!(" +- {:.3}", number("error"));
    }
    if let Some(gain) = table.number(row, "gain") {
        head += &format!("; at most x{gain:.2} without it");
    }
    let mut lines = vec![(head, true)];
    let evidence = text("evidence").split("; ").filter(|part| !part.is_empty());
    lines.extend(evidence.map(|part| (format!("   {}", safe::line(part)), false)));
    if !text("advice").is_empty() {
        lines.push((format!("-> {}", safe::line(text("advice"))), false));
    }
    lines
}

/// The layer that is selected, below the onion.
pub(super) fn draw_layer(buffer: &mut Buffer, area: Rect, table: &Table, row: usize) {
    let mut lines = vec![(String::new(), false)];
    lines.extend(layer_lines(table, row).iter().flat_map(|line| wrapped(line, area.width.into())));
    draw_lines(buffer, area, lines.iter());
}

fn layer(interval: &Interval, name: &str) -> Vec<Line> {
    let table = &interval.layers;
    match (0..table.num_rows()).find(|&row| table.text(row, "layer") == Some(name)) {
        Some(row) => layer_lines(table, row),
        None => vec![(format!("{}: nothing in the last interval", safe::line(name)), true)],
    }
}

/// Who waits for a lock.
fn waiters(interval: &Interval, lock: [Option<&str>; 3]) -> Vec<Line> {
    let table = &interval.waiters;
    let names = ["lock", "type", "process"];
    let [name, kind, process] = lock.map(|text| safe::line(text.unwrap_or("?")));
    let mut head = format!("{name} ({kind})");
    if lock[2].is_some() {
        head += &format!(" of {process}");
    }
    let mut lines = vec![(head, true)];
    let mut rows: Vec<usize> =
        (0..table.num_rows()).filter(|&row| (0..3).all(|i| table.text(row, names[i]) == lock[i])).collect();
    let number = |row: usize, name: &str| table.number(row, name).unwrap_or(0.0);
    let waited = |row: usize| number(row, "spin") + number(row, "block");
    rows.sort_by(|&a, &b| waited(b).total_cmp(&waited(a)));
    let all: f64 = rows.iter().map(|&row| waited(row)).sum();
    if rows.is_empty() {
        lines.push(("nobody waited for it in the last interval".into(), false));
    }
    for row in rows {
        lines.push((String::new(), false));
        let share = 100.0 * waited(row) / all.max(f64::MIN_POSITIVE);
        let caller = safe::line(table.text(row, "caller").unwrap_or("?"));
        let mut words = format!("{share:.1} % of the waiting, {} waits, in {caller}", number(row, "count"));
        if let Some(holder) = table.text(row, "holder").filter(|h| !h.is_empty()) {
            words += &format!(", held by {}", safe::line(holder));
        }
        lines.push((words, true));
        let stack = table.text(row, "stack").unwrap_or("");
        let frames = stack.split(';').filter(|f| !f.is_empty());
        lines.extend(frames.map(|frame| (format!("    {}", safe::line(frame)), false)));
    }
    lines
}

fn help() -> Vec<Line> {
    const HELP: &str = "\
*Views
 1 2 3 4, Tab   onion, threads, locks, CPUs
 Enter          behind the row: a layer's evidence and remedy, a thread's or
                process's stacks, a lock's waiters with their stacks
 Esc            back; no filter
 n              notes: what could not be observed
 q, Ctrl-C      leave
*Rows
 arrows, PageUp, PageDown, Home, End   select; the row stays so where it goes
 k K            sort by the next column, the one before;  r  the other way round
 /              only rows whose names contain a text, or of that PID or TID
 f              threads by process, CPUs by core
 p, blank       pause: the interval stays on the screen, observing goes on
*Columns
 onion    share of the capacity, CPUs x time; CPU-s; +-: half the 95 % interval
          of what is sampled; gain: throughput without the layer, at most
 threads  per cent of the interval: CPU on a CPU, LAT waiting for one, LCK
          asleep for a lock, SLP for anything else, spin (of CPU) in locks;
          VCX, ICX, flt: voluntary, involuntary switches and faults a second
 locks    waiting: threads that wait, on average; util: per cent of capacity
          that spins for it; mean and longest waits in microseconds
 CPUs     per cent: prog programs, othr others, spin kernel locks, intr and soft
          interrupts, tlb shootdowns, ncpu ncpu itself, idl idle";
    HELP.lines()
        .map(|line| match line.strip_prefix('*') {
            Some(head) => (head.to_string(), true),
            None => (line.to_string(), false),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_small_terminal() {
        assert!(help().iter().all(|(line, _)| line.chars().count() <= 80));
    }

    #[test]
    fn long_lines_go_on_below_and_lose_nothing() {
        let text = "   one two three four five six seven eight nine ten".to_string();
        let lines = wrapped(&(text.clone(), false), 20);
        assert!(
            lines.len() > 2 && lines.iter().all(|(l, _)| l.chars().count() <= 20 && l.starts_with("   "))
        );
        let words = lines.iter().map(|(l, _)| l.trim()).collect::<Vec<_>>().join(" ");
        assert_eq!(words, text.trim());
        let long = wrapped(&("x".repeat(50), false), 20);
        assert_eq!(long.len(), 1, "a word that is too long is cut by the screen");
    }
}
