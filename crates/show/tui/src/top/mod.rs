//! A whole machine on one screen: the onion, threads, locks and CPUs, a view each, and what is behind a row.
//!
//! It is given the tables of an interval after the other. All text in them is foreign: it is escaped where it is drawn.

mod behind;
mod list;
mod stacks;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

use ncpu_schema::Layer;
use ncpu_table::{Table, safe};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};

use crate::view::write;
use crate::{GLANCE, Key, Place, View, on_terminal, wait};
use behind::{Behind, Screen};
use list::{Cell, List, Shown};

/// Results of an interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Seconds.
    pub elapsed: f64,
    /// CPUs online.
    pub cpus: u64,
    /// The onion: `layer`, `share`, `seconds`, `error`, `recoverable`, `gain`, `evidence`, `advice`.
    pub layers: Table,
    /// Threads: `pid`, `tid`, `CPU` and other shares, rates, `name`, `thread`.
    pub threads: Table,
    /// The same by process, without `tid` and `thread`.
    pub processes: Table,
    /// Locks: `lock`, `name`, `type`, `process`, `waiting`, `util`, `waits`, `spin_us`, `block_us`, `max`.
    pub locks: Table,
    /// Their waiters: `lock`, `type`, `process`, `caller`, `holder`, `count`, `spin`, `block`, `stack`.
    pub waiters: Table,
    /// Tenants of the whole machine, most first: `share`, `waiting`, `tenant`, `culprit`; none of a part of it.
    pub tenants: Table,
    /// Their layers: `tenant`, `layer`, `share`, `seconds`.
    pub tenant_layers: Table,
    /// Their losses to each other: `victim`, `culprit`, `cause`, `lock`, `threads`, `cpus`.
    pub ledger: Table,
    /// Activity of each CPU: `CPU`, and shares of its time; `idl` is idle.
    pub cpus_table: Table,
    /// Functions that threads executed.
    pub stacks: Vec<Stack>,
    /// Where threads were off CPU.
    pub asleep: Vec<Asleep>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Functions that a thread executed for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name, then frames, outermost first, `;` between them.
    pub stack: Arc<str>,
    /// The layer that it is in.
    pub layer: Layer,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Where threads of one name were off CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Asleep {
    /// Name of the process.
    pub process: Arc<str>,
    /// Name of the threads.
    pub thread: Arc<str>,
    /// Reason of the wait: `run queue`, `kernel lock`, `user lock`, `I/O` or `asleep`.
    pub wait: Arc<str>,
    /// Frames, outermost first, `;` between them.
    pub stack: Arc<str>,
    /// Seconds, of all threads together.
    pub seconds: f64,
}

/// A view of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tab {
    Tenants,
    Onion,
    Threads,
    Locks,
    Cpus,
}

impl Tab {
    const ALL: [Tab; 5] = [Tab::Tenants, Tab::Onion, Tab::Threads, Tab::Locks, Tab::Cpus];

    fn name(self) -> &'static str {
        match self {
            Tab::Tenants => "tenants",
            Tab::Onion => "onion",
            Tab::Threads => "threads",
            Tab::Locks => "locks",
            Tab::Cpus => "CPUs",
        }
    }

    /// Keys and their effect here, most important first; entries without room are left out.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Tab::Tenants => &[
                "q quit",
                "1-4 view",
                "Enter onion, culprits",
                "k sort",
                "/ filter",
                "p pause",
                "? help",
                "r reverse",
            ],
            Tab::Onion => &["q quit", "1-4 view", "Enter more", "p pause", "/ filter", "k sort", "? help"],
            Tab::Threads => &[
                "q quit",
                "1-4 view",
                "Enter stacks",
                "k sort",
                "/ filter",
                "p pause",
                "f processes",
                "? help",
                "r reverse",
            ],
            Tab::Locks => &[
                "q quit",
                "1-4 view",
                "Enter waiters",
                "k sort",
                "/ filter",
                "p pause",
                "? help",
                "r reverse",
            ],
            Tab::Cpus => &["q quit", "1-4 view", "arrows move", "k metric", "f cores", "p pause", "? help"],
        }
    }
}

/// The first keys that fit `room` columns beside help, which lists all keys.
fn fitting(keys: &[String], room: usize) -> String {
    const BETWEEN: &str = "  ";
    const HELP: &str = "? help";
    let has_help = keys.iter().any(|key| key == HELP);
    let mut shown: Vec<&str> = Vec::new();
    let columns = |shown: &[&str]| shown.iter().map(|key| key.len() + BETWEEN.len()).sum::<usize>();
    for key in keys.iter().map(String::as_str) {
        let later =
            if has_help && key != HELP && !shown.contains(&HELP) { HELP.len() + BETWEEN.len() } else { 0 };
        if columns(&shown) + key.len() + later > room {
            if later > 0 && columns(&shown) + HELP.len() <= room {
                shown.push(HELP);
            }
            break;
        }
        shown.push(key);
    }
    shown.join(BETWEEN)
}

const TENANTS: &[Shown] = &[
    Shown::new("share", "CPU%", 6, Cell::Number(1)),
    Shown::new("share", "", 21, Cell::Bar).wide(),
    Shown::new("waiting", "lost", 6, Cell::Number(2)),
    Shown::new("tenant", "tenant", 26, Cell::Text),
    Shown::new("share", "before", 24, Cell::Trend).wide(),
    Shown::new("culprit", "most of it", 0, Cell::Text),
];

const LAYERS: &[Shown] = &[
    Shown::new("share", "share", 6, Cell::Number(1)),
    Shown::new("seconds", "CPU-s", 7, Cell::Number(3)),
    Shown::new("error", "+-", 6, Cell::Number(3)),
    Shown::new("layer", "layer", 27, Cell::Text),
    Shown::new("share", "", 21, Cell::Bar),
    Shown::new("gain", "gain", 6, Cell::Number(2)),
    Shown::new("share", "before", 24, Cell::Trend).wide(),
    Shown::new("evidence", "evidence", 0, Cell::Text).wide(),
];

const THREADS: &[Shown] = &[
    Shown::new("pid", "PID", 7, Cell::Whole),
    Shown::new("tid", "TID", 7, Cell::Whole),
    Shown::new("CPU", "CPU%", 5, Cell::Number(1)),
    Shown::new("LAT", "LAT%", 5, Cell::Number(1)),
    Shown::new("LCK", "LCK%", 5, Cell::Number(1)),
    Shown::new("SLP", "SLP%", 5, Cell::Number(1)),
    Shown::new("spin", "spin%", 5, Cell::Number(1)),
    Shown::new("VCX", "VCX/s", 5, Cell::Number(0)),
    Shown::new("ICX", "ICX/s", 5, Cell::Number(0)).wide(),
    Shown::new("flt", "flt/s", 5, Cell::Number(0)).wide(),
    Shown::new("CPU", "", 21, Cell::Bar).wide(),
    Shown::new("name", "process", 16, Cell::Text),
    Shown::new("thread", "thread", 0, Cell::Text),
];

const LOCKS: &[Shown] = &[
    Shown::new("waiting", "waiting", 7, Cell::Number(3)),
    Shown::new("util", "util%", 5, Cell::Number(1)),
    Shown::new("waits", "waits/s", 7, Cell::Number(0)),
    Shown::new("spin_us", "spin us", 7, Cell::Number(1)),
    Shown::new("block_us", "block us", 8, Cell::Number(1)),
    Shown::new("max", "max us", 7, Cell::Number(0)).wide(),
    Shown::new("type", "type", 11, Cell::Text),
    Shown::new("waiting", "", 21, Cell::Bar).wide(),
    Shown::new("lock", "symbol or address", 20, Cell::Text).wide(),
    Shown::new("name", "lock", 0, Cell::Text),
];

/// Lines below the onion for what is known of the layer that is selected.
const PANEL: u16 = 7;

/// The state of the screen: the last interval, and what the user chose to see of it.
pub struct Top {
    words: String,
    tab: Tab,
    /// The user has chosen a view.
    chosen: bool,
    tenants: List,
    layers: List,
    threads: List,
    locks: List,
    grid: View,
    processes: bool,
    interval: Option<Interval>,
    paused: bool,
    /// Nothing more comes.
    over: bool,
    /// A filter that is being typed.
    typing: Option<String>,
    screen: Option<Screen>,
}

impl Top {
    /// A screen for what `words` name, on a machine with these CPUs. Without `color` bold and reversed text tell all.
    pub fn new(words: &str, places: Vec<Place>, color: bool) -> Top {
        Top {
            words: safe::line(words).into_owned(),
            tab: Tab::Onion,
            chosen: false,
            tenants: List::new(TENANTS, &["tenant"], None, color),
            layers: List::new(LAYERS, &["layer"], None, color),
            threads: List::new(THREADS, &["pid", "tid"], Some("CPU"), color),
            locks: List::new(LOCKS, &["lock", "type", "process"], Some("waiting"), color),
            grid: View::new(places, color),
            processes: false,
            interval: None,
            paused: false,
            over: false,
            typing: None,
            screen: None,
        }
    }

    /// Takes an interval, unless the user wants to look at the one before.
    pub fn update(&mut self, interval: Interval) {
        if self.paused {
            return;
        }
        self.tenants.update(interval.tenants.clone());
        if !self.chosen && interval.tenants.num_rows() > 1 {
            self.tab = Tab::Tenants;
        }
        self.layers.update(interval.layers.clone());
        self.locks.update(interval.locks.clone());
        self.grid.update(interval.cpus_table.clone(), Vec::new());
        if let Some(screen) = &mut self.screen {
            screen.update(&interval);
        }
        self.interval = Some(interval);
        self.show_threads();
    }

    fn show_threads(&mut self) {
        if let Some(interval) = &self.interval {
            let table = if self.processes { &interval.processes } else { &interval.threads };
            self.threads.update(table.clone());
        }
    }

    /// The observed program has ended: the screen stays as it is.
    pub fn end(&mut self) {
        self.over = true;
    }

    /// The views: of tenants where there are some.
    fn tabs(&self) -> &'static [Tab] {
        let some = self.interval.as_ref().is_some_and(|interval| interval.tenants.num_rows() > 0);
        if some || self.tab == Tab::Tenants { &Tab::ALL } else { &Tab::ALL[1..] }
    }

    fn list(&mut self) -> Option<&mut List> {
        match self.tab {
            Tab::Tenants => Some(&mut self.tenants),
            Tab::Onion => Some(&mut self.layers),
            Tab::Threads => Some(&mut self.threads),
            Tab::Locks => Some(&mut self.locks),
            Tab::Cpus => None,
        }
    }

    /// Does what the user asked; returns whether to leave.
    pub fn press(&mut self, code: KeyCode, modifiers: KeyModifiers) -> bool {
        if code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL) {
            return true;
        }
        if self.typing.is_some() {
            self.type_filter(code);
            return false;
        }
        if let Some(screen) = &mut self.screen {
            match code {
                KeyCode::Char('q') => return true,
                KeyCode::Char('p' | ' ') => self.paused = !self.paused,
                KeyCode::Char('1'..='5') | KeyCode::Tab | KeyCode::BackTab => {
                    self.screen = None;
                    self.turn(code);
                }
                KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Char('?' | 'n') => {
                    self.screen = None;
                }
                code => screen.scroll(code),
            }
            return false;
        }
        match code {
            KeyCode::Char('q') => return true,
            KeyCode::Esc => {
                if let Some(list) = self.list() {
                    list.filter_by(String::new());
                }
            }
            KeyCode::Char('1'..='5') | KeyCode::Tab | KeyCode::BackTab => self.turn(code),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('?' | 'h') => self.screen = Some(Screen::of(Behind::Help, None)),
            KeyCode::Char('n') => self.screen = Some(Screen::of(Behind::Notes, self.interval.as_ref())),
            KeyCode::Enter => self.open(),
            KeyCode::Char('f') if self.tab == Tab::Threads => {
                self.processes = !self.processes;
                self.show_threads();
            }
            _ if self.tab == Tab::Cpus => {
                if let Some(key) = Key::of(code, modifiers) {
                    self.grid.key(key);
                }
            }
            KeyCode::Char('/') => {
                self.typing = Some(self.list().map_or_else(String::new, |l| l.filter().into()))
            }
            code => {
                if let Some(list) = self.list() {
                    list.press(code);
                }
            }
        }
        false
    }

    fn type_filter(&mut self, code: KeyCode) {
        let Some(mut text) = self.typing.take() else { return };
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => text.clear(),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) if !safe::is_unsafe(c) && text.len() < 64 => text.push(c),
            _ => {}
        }
        if let Some(list) = self.list() {
            list.filter_by(text.clone());
        }
        self.typing = Some(text).filter(|_| code != KeyCode::Esc);
    }

    fn turn(&mut self, code: KeyCode) {
        let tabs = self.tabs();
        let at = tabs.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        let n = tabs.len();
        self.chosen = true;
        self.tab = match code {
            KeyCode::Char(c) => {
                c.to_digit(10).and_then(|d| tabs.get(d as usize - 1).copied()).unwrap_or(self.tab)
            }
            KeyCode::BackTab => tabs[(at + n - 1) % n],
            _ => tabs[(at + 1) % n],
        };
    }

    /// Shows what is behind the row that is selected.
    fn open(&mut self) {
        let processes = self.processes;
        let tab = self.tab;
        let Some((table, row)) = self.list().and_then(|list| list.selected()) else { return };
        let text = |name: &str| table.text(row, name).unwrap_or("?").to_string();
        let number = |name: &str| table.int(row, name).and_then(|n| u32::try_from(n).ok());
        let behind = match tab {
            Tab::Tenants => Behind::Tenant(text("tenant")),
            Tab::Onion => Behind::Layer(text("layer")),
            Tab::Threads => match (number("pid"), number("tid")) {
                (Some(pid), _) if processes => Behind::Process { pid, name: text("name") },
                (Some(pid), Some(tid)) => {
                    Behind::Thread { pid, tid, name: text("name"), thread: text("thread") }
                }
                _ => return,
            },
            Tab::Locks => Behind::Lock {
                name: text("name"),
                lock: table.text(row, "lock").map(str::to_string),
                kind: table.text(row, "type").map(str::to_string),
                process: table.text(row, "process").map(str::to_string),
            },
            Tab::Cpus => return,
        };
        self.screen = Some(Screen::of(behind, self.interval.as_ref()));
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame) {
        let [title, area, help] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        let buffer = frame.buffer_mut();
        self.draw_title(buffer, title);
        if let Some(screen) = &mut self.screen {
            screen.draw(buffer, area);
        } else if self.interval.is_none() {
            let words = if self.over { "It has ended." } else { "The first interval has not ended yet." };
            write(buffer, area, 0, words, Style::new());
        } else {
            match self.tab {
                Tab::Tenants => self.tenants.draw(buffer, area),
                Tab::Onion => {
                    let panel = if area.height >= 3 * PANEL { PANEL } else { 0 };
                    let [list, panel] =
                        Layout::vertical([Constraint::Min(0), Constraint::Length(panel)]).areas(area);
                    self.layers.draw(buffer, list);
                    if let (Some((table, row)), 1..) = (self.layers.selected(), panel.height) {
                        behind::draw_layer(buffer, panel, table, row);
                    }
                }
                Tab::Threads => self.threads.draw(buffer, area),
                Tab::Locks => self.locks.draw(buffer, area),
                Tab::Cpus => self.grid.draw_in(buffer, area),
            }
        }
        self.draw_keys(buffer, help);
    }

    fn draw_title(&self, buffer: &mut ratatui::buffer::Buffer, area: Rect) {
        let mut at = 0;
        for (i, tab) in self.tabs().iter().copied().enumerate() {
            let style = match tab == self.tab {
                true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
                false => Style::new(),
            };
            let text = format!(" {} {} ", i + 1, tab.name());
            write(buffer, area, at, &text, style);
            at += text.len() as u16;
        }
        let mut title = format!("  {}", self.words);
        if let Some(interval) = &self.interval {
            title += &format!(", {} CPUs, {:.1} s", interval.cpus, interval.elapsed);
        }
        let state = match (self.paused, self.over) {
            (_, true) => "ENDED",
            (true, _) => "PAUSED",
            _ => "",
        };
        let room = usize::from(area.width.saturating_sub(at)).saturating_sub(state.len() + 1);
        let title: String = title.chars().take(room).collect();
        write(buffer, area, at, &title, Style::new().add_modifier(Modifier::BOLD));
        let end = area.width.saturating_sub(state.len() as u16);
        write(buffer, area, end, state, Style::new().add_modifier(Modifier::REVERSED));
    }

    fn draw_keys(&mut self, buffer: &mut ratatui::buffer::Buffer, area: Rect) {
        if let Some(text) = &self.typing {
            let text = format!("filter: {text}_   Enter done  Esc none");
            return write(buffer, area, 0, &text, Style::new().add_modifier(Modifier::BOLD));
        }
        let behind = self.screen.is_some();
        let keys = match behind {
            true => &["q quit", "Esc back", "arrows scroll", "p pause"],
            false => self.tab.keys(),
        };
        // At the right: which rows there are, where not all are on the screen as they came.
        let told = match behind {
            true => String::new(),
            false => self.list().map_or_else(String::new, |list| list.told()),
        };
        let room = usize::from(area.width).saturating_sub(if told.is_empty() {
            0
        } else {
            ncpu_table::width::columns(&told) + 2
        });
        let views = self.tabs().len();
        let keys: Vec<String> =
            keys.iter().map(|key| key.replace("1-4 view", &format!("1-{views} view"))).collect();
        let text = fitting(&keys, room);
        write(buffer, area, 0, text.trim_end(), Style::new().add_modifier(Modifier::DIM));
        let end = usize::from(area.width).saturating_sub(ncpu_table::width::columns(&told));
        write(buffer, area, end as u16, &told, Style::new().add_modifier(Modifier::BOLD));
    }
}

/// Shows the screen until the user leaves it or `stop` is set. `feed` yields an interval after the other; when it ends, the
/// last one stays.
///
/// The terminal is restored on every way out, a panic included.
///
/// # Errors
/// The terminal cannot be used, or `feed` yields an error.
pub fn run<E: From<io::Error>>(
    mut top: Top,
    stop: &AtomicBool,
    feed: &Receiver<Result<Interval, E>>,
) -> Result<(), E> {
    on_terminal(|terminal| show(terminal, &mut top, stop, feed))?
}

fn show<E: From<io::Error>>(
    terminal: &mut ratatui::DefaultTerminal,
    top: &mut Top,
    stop: &AtomicBool,
    feed: &Receiver<Result<Interval, E>>,
) -> Result<(), E> {
    loop {
        terminal.draw(|frame| top.draw(frame))?;
        let mut changed = false;
        while !changed {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let Some(ready) = wait(GLANCE, stop)? else { return Ok(()) };
            if ready {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        if top.press(key.code, key.modifiers) {
                            return Ok(());
                        }
                        changed = true;
                    }
                    Event::Resize(..) => changed = true,
                    _ => {}
                }
            }
            match feed.try_recv() {
                Ok(interval) => {
                    top.update(interval?);
                    changed = true;
                }
                Err(TryRecvError::Disconnected) if !top.over => {
                    top.end();
                    changed = true;
                }
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
