//! Live views in a terminal: every CPU of a machine as one cell of a grid, coloured by what it does, and in [`top`] the
//! onion, threads and locks beside it.
//!
//! They are given tables and the place of each CPU, and know nothing of where they come from.

mod grid;
pub mod top;
mod view;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_table::Table;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec};

pub use view::View;

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of its package.
    pub package: u32,
    /// Number of its core, distinct over all packages.
    pub core: u32,
    /// Its own number.
    pub cpu: u32,
}

/// A request of the user to the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Move the selection.
    Left,
    /// Move the selection.
    Right,
    /// Move the selection.
    Up,
    /// Move the selection.
    Down,
    /// Move the selection a screen up.
    PageUp,
    /// Move the selection a screen down.
    PageDown,
    /// Select the first cell.
    Home,
    /// Select the last cell.
    End,
    /// Colour by the next metric.
    NextMetric,
    /// Colour by the metric before.
    PreviousMetric,
    /// A cell for each core, or for each CPU.
    Fold,
    /// Stop taking samples, or go on.
    Pause,
    /// Leave.
    Quit,
}

impl Key {
    fn of(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        Some(match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
            KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
            KeyCode::Left => Key::Left,
            KeyCode::Right => Key::Right,
            KeyCode::Up => Key::Up,
            KeyCode::Down => Key::Down,
            KeyCode::PageUp => Key::PageUp,
            KeyCode::PageDown => Key::PageDown,
            KeyCode::Home => Key::Home,
            KeyCode::End => Key::End,
            KeyCode::Char('k') => Key::NextMetric,
            KeyCode::Char('K') => Key::PreviousMetric,
            KeyCode::Char('f') => Key::Fold,
            KeyCode::Char('p' | ' ') => Key::Pause,
            _ => return None,
        })
    }
}

/// Shows the view until the user leaves it or `stop` is set. `sample` yields the rates since it was
/// last called, with notes for the user.
///
/// The terminal is restored on every way out, a panic included.
///
/// # Errors
/// The terminal cannot be used, or `sample` fails.
pub fn run<E: From<io::Error>>(
    mut view: View,
    interval: Duration,
    stop: &AtomicBool,
    sample: impl FnMut() -> Result<(Table, Vec<String>), E>,
) -> Result<(), E> {
    on_terminal(|terminal| show(terminal, &mut view, interval, stop, sample))?
}

/// Runs a view in the terminal, and restores the terminal.
fn on_terminal<R>(show: impl FnOnce(&mut ratatui::DefaultTerminal) -> R) -> io::Result<R> {
    let over = Arc::new(AtomicBool::new(false));
    let watched = over.clone();
    std::thread::Builder::new().name("ncpu-terminal".into()).spawn(move || end_with_terminal(&watched))?;
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal);
    over.store(true, Ordering::Relaxed);
    ratatui::try_restore()?;
    Ok(result)
}

/// How long a view may go on after its terminal has gone.
const FAREWELL: Duration = Duration::from_secs(2);

/// Ends the process where its terminal goes and the view does not end: where that happens while crossterm looks for input, it reads the
/// end of the terminal for ever.
fn end_with_terminal(over: &AtomicBool) {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return;
    }
    loop {
        let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
    std::thread::sleep(FAREWELL);
    if !over.load(Ordering::Relaxed) {
        std::process::exit(128 + rustix::process::Signal::HUP.as_raw());
    }
}

/// How long a signal may go unseen.
const GLANCE: Duration = Duration::from_millis(100);

/// Waits for input of the user; returns whether there is any, and nothing where the terminal has gone or
/// `stop` is set.
fn wait(time: Duration, stop: &AtomicBool) -> io::Result<Option<bool>> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        // Then keys come from elsewhere.
        return poll(time).map(Some);
    }
    // Of a terminal that has gone, crossterm would read the end for ever.
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    // A wait that a signal interrupts is repeated.
    let _ = rustix::event::poll(&mut fds, Some(&limit));
    let gone = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    if gone || stop.load(Ordering::Relaxed) { Ok(None) } else { poll(Duration::ZERO).map(Some) }
}

fn poll(time: Duration) -> io::Result<bool> {
    match event::poll(time) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        ready => ready,
    }
}

fn show<E: From<io::Error>>(
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
    interval: Duration,
    stop: &AtomicBool,
    mut sample: impl FnMut() -> Result<(Table, Vec<String>), E>,
) -> Result<(), E> {
    // The first sample comes soon, so that the screen is not empty for long.
    let mut due = Instant::now() + interval.min(GLANCE);
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        let mut changed = false;
        while !changed {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let left = due.saturating_duration_since(Instant::now());
            let Some(ready) = wait(left.min(GLANCE), stop)? else { return Ok(()) };
            if ready {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        match Key::of(key.code, key.modifiers) {
                            Some(Key::Quit) => return Ok(()),
                            Some(key) => view.key(key),
                            None => {}
                        }
                        changed = true;
                    }
                    Event::Resize(..) => changed = true,
                    _ => {}
                }
            }
            if Instant::now() >= due {
                due = (due + interval).max(Instant::now());
                if !view.is_paused() {
                    let (table, notes) = sample()?;
                    view.update(table, notes);
                    changed = true;
                }
            }
        }
    }
}
