//! Details of a row: a thread's stacks, a lock's waiters, a layer's evidence; and help.

use std::collections::HashMap;
use std::sync::Arc;

use ncpu_schema::Layer;
use ncpu_table::{Table, objects, safe};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::stacks::Tree;
use super::{Asleep, Interval, Stack};
use crate::view::write;

/// Maximum of different stacks that are summed up; later ones are left out, with a note.
const MOST: usize = 20_000;

/// Subject of a screen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Behind {
    Tenant(String),
    Layer(String),
    Thread { pid: u32, tid: u32, name: String, thread: String },
    Process { pid: u32, name: String },
    Lock { name: String, lock: Option<String>, kind: Option<String>, process: Option<String> },
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

/// Rows of a list behind a layer.
const ROWS: usize = 8;

/// Where in an interval's tables the causes of a layer are.
struct Causes {
    /// Threads that were off CPU for this.
    wait: Option<&'static str>,
    /// Locks: the kernel's, or the programs'.
    locks: Option<Whose>,
    /// Column of the processes.
    process: Option<&'static str>,
    /// Columns of the CPUs.
    cpus: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
enum Whose {
    Kernel,
    Programs,
}

impl Causes {
    fn of(layer: Layer) -> Causes {
        let none = Causes { wait: None, locks: None, process: None, cpus: &[] };
        match layer {
            Layer::UserLock | Layer::LockOrSerial => {
                Causes { wait: Some("user lock"), locks: Some(Whose::Programs), process: Some("LCK"), ..none }
            }
            Layer::KernelSpin => {
                Causes { locks: Some(Whose::Kernel), process: Some("spin"), cpus: &["spin"], ..none }
            }
            Layer::KernelBlock | Layer::KernelLockOrIo => {
                Causes { wait: Some("kernel lock"), locks: Some(Whose::Kernel), process: Some("LCK"), ..none }
            }
            Layer::Io => Causes { wait: Some("I/O"), process: Some("SLP"), ..none },
            Layer::RunQueue | Layer::WakeUp => {
                Causes { wait: Some("run queue"), process: Some("LAT"), cpus: &["prog", "idl"], ..none }
            }
            // The threads that run while others wait for them.
            Layer::Serial => {
                Causes { wait: Some("asleep"), process: Some("CPU"), cpus: &["prog", "idl"], ..none }
            }
            Layer::Interrupts => Causes { cpus: &["intr", "soft"], ..none },
            Layer::Tlb => Causes { cpus: &["tlb"], ..none },
            Layer::Switches => Causes { process: Some("VCX"), ..none },
            Layer::Faults => Causes { process: Some("flt"), ..none },
            Layer::Others => Causes { cpus: &["othr"], ..none },
            Layer::Ncpu => Causes { cpus: &["ncpu"], ..none },
            Layer::Idle => Causes { wait: Some("asleep"), cpus: &["idl"], ..none },
            Layer::User | Layer::Calls | Layer::OtherKernel | Layer::Kernel => {
                Causes { process: Some("CPU"), cpus: &["prog"], ..none }
            }
            Layer::Steal | Layer::Unseen => none,
        }
    }
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
            Behind::Tenant(name) => tenant(interval, name),
            Behind::Layer(_) => {
                self.gather(interval);
                self.layer(interval)
            }
            Behind::Notes if interval.notes.is_empty() => vec![("There is nothing to note.".into(), false)],
            Behind::Notes => {
                interval.notes.iter().map(|note| (safe::line(note).into_owned(), false)).collect()
            }
            Behind::Lock { .. } => {
                self.gather(interval);
                self.waiters(interval)
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
        for new in interval.asleep.iter().filter(|asleep| slept_in(&self.behind, asleep)) {
            self.left_out |= !add(&mut self.asleep, &new.stack, new.seconds);
        }
    }

    /// Stacks off CPU, below a headline that begins with these words.
    fn asleep(&self, words: &str) -> Vec<Line> {
        let mut tree = Tree::default();
        for (stack, seconds) in &self.asleep {
            tree.add(stack.split(';'), *seconds);
        }
        if tree.seconds() <= 0.0 {
            return Vec::new();
        }
        let head =
            format!("off CPU{words}: {:.2} s of all threads, in {:.1} s", tree.seconds(), self.seconds);
        let lines = tree.lines().into_iter().map(|line| (line, false));
        [(String::new(), false), (head, true)].into_iter().chain(lines).collect()
    }

    /// Stacks on CPU.
    fn on_cpu(&self) -> Vec<Line> {
        let mut tree = Tree::default();
        for (stack, seconds) in &self.stacks {
            tree.add(frames(stack), *seconds);
        }
        let head = format!("on CPU: {:.2} s of {:.1} s, by timer samples", tree.seconds(), self.seconds);
        let lines = tree.lines().into_iter().map(|line| (line, false));
        [(String::new(), false), (head, true)].into_iter().chain(lines).collect()
    }

    /// The causes of a layer: locks, processes, CPUs, and stacks since the screen was opened.
    fn layer(&self, interval: &Interval) -> Vec<Line> {
        let Behind::Layer(name) = &self.behind else { return Vec::new() };
        let table = &interval.layers;
        let row = (0..table.num_rows()).find(|&row| table.text(row, "layer") == Some(name));
        let mut lines = match row {
            Some(row) => layer_lines(table, row),
            None => vec![(format!("{}: nothing in the last interval", safe::line(name)), true)],
        };
        // One of a newer version may be unknown.
        let Ok(layer) = Layer::of_name(name) else { return lines };
        let causes = Causes::of(layer);
        if let Some(whose) = causes.locks {
            lines.extend(locks(&interval.locks, whose));
        }
        if let Some(column) = causes.process {
            lines.extend(largest(&interval.processes, &[column], "processes", |row| {
                let name = safe::line(interval.processes.text(row, "name").unwrap_or("?")).into_owned();
                format!(
                    "{name} ({})",
                    interval.processes.int(row, "pid").map_or("?".into(), |pid| pid.to_string())
                )
            }));
        }
        if !causes.cpus.is_empty() {
            lines.extend(largest(&interval.cpus_table, causes.cpus, "CPUs", |row| {
                format!(
                    "CPU {}",
                    interval.cpus_table.int(row, "CPU").map_or("?".into(), |cpu| cpu.to_string())
                )
            }));
        }
        if !self.stacks.is_empty() {
            lines.extend(self.on_cpu());
        }
        lines.extend(self.asleep(&causes.wait.map_or(String::new(), |wait| match wait {
            "asleep" => String::new(),
            wait => format!(" for {wait}"),
        })));
        lines.extend(self.bound());
        lines
    }

    /// That some stacks are left out.
    fn bound(&self) -> Option<Line> {
        let words = || format!("{MOST} different stacks are shown; those that came later are left out");
        self.left_out.then(|| (words(), false))
    }

    /// The waiters of a lock.
    fn waiters(&self, interval: &Interval) -> Vec<Line> {
        let Behind::Lock { name, lock, kind, process } = &self.behind else { return Vec::new() };
        let lock = [lock, kind, process].map(Option::as_deref);
        let mut lines = waiters(interval, name, lock);
        if lock[2].is_some() {
            lines.extend(self.asleep(&format!(" for locks of {}", safe::line(lock[2].unwrap_or("?")))));
        }
        lines.extend(self.bound());
        lines
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
        lines.extend(self.on_cpu());
        lines.extend(self.asleep(&format!(", by name ({})", safe::line(name))));
        lines.extend(self.bound());
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
        Behind::Layer(name) => {
            let merged = stack.layer.merged().map(Layer::name);
            stack.layer.name() == name || merged.is_some_and(|merged| merged == name)
        }
        Behind::Tenant(_) | Behind::Lock { .. } | Behind::Notes | Behind::Help => false,
    }
}

/// Whether threads that were off CPU are of what a screen is about. Only names are known of them.
fn slept_in(behind: &Behind, asleep: &Asleep) -> bool {
    match behind {
        Behind::Thread { name, thread, .. } => *asleep.process == **name && *asleep.thread == **thread,
        Behind::Process { name, .. } => *asleep.process == **name,
        Behind::Layer(name) => {
            let wait = Layer::of_name(name).ok().and_then(|layer| Causes::of(layer).wait);
            wait.is_some_and(|wait| *asleep.wait == *wait)
        }
        Behind::Lock { process: Some(process), .. } => {
            *asleep.process == **process && &*asleep.wait == "user lock"
        }
        Behind::Tenant(_) | Behind::Lock { process: None, .. } | Behind::Notes | Behind::Help => false,
    }
}

/// The onion of a tenant, who it loses time to, and who loses time to it.
fn tenant(interval: &Interval, name: &str) -> Vec<Line> {
    let mut lines = vec![(safe::line(name).into_owned(), true)];
    let layers = &interval.tenant_layers;
    let mut rows: Vec<usize> =
        (0..layers.num_rows()).filter(|&row| layers.text(row, "tenant") == Some(name)).collect();
    let share = |row: usize| layers.number(row, "share").unwrap_or(0.0);
    rows.sort_by(|&a, &b| share(b).total_cmp(&share(a)));
    if rows.is_empty() {
        lines.push(("did nothing in the last interval".into(), false));
    }
    lines.extend(rows.iter().filter(|&&row| share(row) >= 0.05).map(|&row| {
        (format!("   {:>6.1} %  {}", share(row), safe::line(layers.text(row, "layer").unwrap_or("?"))), false)
    }));
    for (head, own, other) in
        [("lost to, thread-s", "victim", "culprit"), ("took from, thread-s", "culprit", "victim")]
    {
        let table = &interval.ledger;
        // Seconds that are measured and seconds that are estimated have a row each.
        let mut sums: Vec<(Option<&str>, &str, f64)> = Vec::new();
        for row in (0..table.num_rows()).filter(|&row| table.text(row, own) == Some(name)) {
            let who = table.text(row, other);
            if own == "culprit" && who == Some(name) {
                continue;
            }
            let how = table.text(row, "lock").or(table.text(row, "cause")).unwrap_or("");
            let threads = table.number(row, "threads").unwrap_or(0.0);
            match sums.iter_mut().find(|(w, h, _)| (*w, *h) == (who, how)) {
                Some((.., sum)) => *sum += threads,
                None => sums.push((who, how, threads)),
            }
        }
        sums.retain(|(.., threads)| *threads >= 0.0005);
        sums.sort_by(|a, b| b.2.total_cmp(&a.2));
        if sums.is_empty() {
            continue;
        }
        lines.extend([(String::new(), false), (head.to_string(), true)]);
        lines.extend(sums.iter().take(2 * ROWS).map(|(who, how, threads)| {
            let who = match who {
                Some(who) if *who == name => "itself".into(),
                Some(who) => safe::line(who),
                None => "unknown".into(),
            };
            (format!("   {threads:>8.3}  {who}: {}", safe::line(how)), false)
        }));
    }
    lines
}

/// The rows of a table of shares with most in these columns, together, below a headline.
fn largest(table: &Table, columns: &[&str], head: &str, name: impl Fn(usize) -> String) -> Vec<Line> {
    let value = |row: usize| columns.iter().filter_map(|c| table.number(row, c)).sum::<f64>();
    let mut rows: Vec<usize> = (0..table.num_rows()).filter(|&row| value(row) > 0.0).collect();
    rows.sort_by(|&a, &b| value(b).total_cmp(&value(a)));
    if rows.is_empty() {
        return Vec::new();
    }
    let unit = |column: &str| if matches!(column, "VCX" | "flt") { "/s" } else { " %" };
    let mut lines = vec![(String::new(), false), (format!("{head} by {}", columns.join(" and ")), true)];
    lines.extend(rows.iter().take(ROWS).map(|&row| {
        let cells =
            columns.iter().map(|c| format!("{c} {:>6.1}{}", table.number(row, c).unwrap_or(0.0), unit(c)));
        (format!("   {}  {}", cells.collect::<Vec<_>>().join("  "), name(row)), false)
    }));
    if rows.len() > ROWS {
        lines.push((format!("   and {} more", rows.len() - ROWS), false));
    }
    lines
}

/// The locks that most threads wait for.
fn locks(table: &Table, whose: Whose) -> Vec<Line> {
    let waiting = |row: usize| table.number(row, "waiting").unwrap_or(0.0);
    let of = |row: &usize| table.text(*row, "process").is_some() == (whose == Whose::Programs);
    let mut rows: Vec<usize> = (0..table.num_rows()).filter(of).filter(|&row| waiting(row) > 0.0).collect();
    rows.sort_by(|&a, &b| waiting(b).total_cmp(&waiting(a)));
    if rows.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![(String::new(), false), ("locks by threads that wait, on average".into(), true)];
    lines.extend(rows.iter().take(ROWS).map(|&row| {
        let [name, kind] = ["name", "type"].map(|c| safe::line(table.text(row, c).unwrap_or("?")));
        let waits = table.number(row, "waits").unwrap_or(0.0);
        (format!("   {:>7.3}  {name} ({kind}), {waits:.0} waits a second", waiting(row)), false)
    }));
    if rows.len() > ROWS {
        lines.push((format!("   and {} more", rows.len() - ROWS), false));
    }
    lines
}

/// Adds to a stack's time; returns whether there was room.
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
    if ncpu_table::width::columns(text) <= width || text.contains(" %  ") {
        return vec![(text.clone(), *head)];
    }
    let begin = text.chars().take_while(|c| *c == ' ').count();
    let indent = if text.starts_with("-> ") { 3 } else { begin }.min(width / 2);
    let mut out: Vec<String> = Vec::new();
    let mut line = " ".repeat(begin.min(indent));
    for word in text.split_whitespace() {
        if line.trim().is_empty()
            || ncpu_table::width::columns(&line) + 1 + ncpu_table::width::columns(word) <= width
        {
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

/// Facts about a layer, a line each.
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
    let evidence = objects::word_list(text("evidence"));
    lines.extend(evidence.iter().map(|words| (format!("   {}", safe::line(words)), false)));
    let advice = objects::word_list(text("advice")).join("; ");
    if !advice.is_empty() {
        lines.push((format!("-> {}", safe::line(&advice)), false));
    }
    lines
}

/// The layer that is selected, below the onion.
pub(super) fn draw_layer(buffer: &mut Buffer, area: Rect, table: &Table, row: usize) {
    let mut lines = vec![(String::new(), false)];
    lines.extend(layer_lines(table, row).iter().flat_map(|line| wrapped(line, area.width.into())));
    draw_lines(buffer, area, lines.iter());
}

/// The waiters of a lock.
fn waiters(interval: &Interval, shown: &str, lock: [Option<&str>; 3]) -> Vec<Line> {
    let table = &interval.waiters;
    let names = ["lock", "type", "process"];
    let [symbol, kind, _] = lock.map(|text| safe::line(text.unwrap_or("?")));
    let mut head = format!("{} ({kind})", safe::line(shown));
    if !shown.starts_with(&*symbol) {
        head += &format!(" at {symbol}");
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
 1 to 5, Tab    tenants (of a whole machine), onion, threads, locks, CPUs
 Enter          behind the row: a tenant's onion and losses, a layer's locks,
                processes, CPUs and stacks, a thread's or process's stacks, a
                lock's waiters with their stacks
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
 tenants  share of the capacity on CPU; lost: threads that wait because of
          other tenants, on average, and the largest cause
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
