//! All that `ncpu` says and writes: reports to standard output or `--output`, pages to `--html`, words to standard
//! error.
//!
//! Everything goes through here, so that no text of others reaches the terminal as it is: `print!` and `eprint!` are
//! used nowhere else. Formats for machines are made safe where they are written, by [`ncpu_table::Printer`].

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use clap::ArgMatches;
use ncpu_files::NewFile;
use ncpu_table::{Format, safe, width};

use crate::paint;

/// Whether a command of the user's is run, whose output has standard output.
static COMMAND_HAS_STDOUT: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the program began (`>&-`). The standard library opens /dev/null in its place, where all
/// that is written would be lost without an error.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the standard library opens anything.
extern "C" fn look_at_stdout() {
    // SAFETY: the call takes no pointer.
    if unsafe { libc::fcntl(1, libc::F_GETFD) } < 0 {
        STDOUT_CLOSED.store(true, Ordering::Relaxed);
    }
}

// SAFETY: the section holds pointers to functions of this type, which the loader calls once.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// An error where standard output was closed.
///
/// # Errors
/// It was.
pub fn stdout_is_open() -> std::io::Result<()> {
    match STDOUT_CLOSED.load(Ordering::Relaxed) {
        true => Err(std::io::Error::other("standard output is closed")),
        false => Ok(()),
    }
}

/// Whether the format is text for people.
static TEXT: AtomicBool = AtomicBool::new(true);

/// Permissions of files that are written.
static MODE: AtomicU32 = AtomicU32::new(ncpu_files::PRIVATE);

/// Files that were created before anything else ran, so a path that cannot be written is an error at once.
static OUTPUT: Mutex<Option<NewFile>> = Mutex::new(None);
static PAGE: Mutex<Option<NewFile>> = Mutex::new(None);

/// Says `ncpu: …`-like words on standard error, as one line.
macro_rules! say {
    ($($words:tt)*) => { $crate::out::say_line(&format!($($words)*)) };
}

/// Begins the files that `--output` and `--html` of a command name.
///
/// # Errors
/// One of them cannot be written.
pub fn begin(matches: &ArgMatches) -> anyhow::Result<()> {
    let mut matches = matches;
    while let Some((_, sub)) = matches.subcommand() {
        matches = sub;
    }
    if let Ok(Some(mode)) = matches.try_get_one::<u32>("mode") {
        MODE.store(*mode, Ordering::Relaxed);
    }
    if let Ok(Some(format)) = matches.try_get_one::<Format>("format") {
        TEXT.store(*format == Format::Text, Ordering::Relaxed);
    }
    let file = |id: &str, name: &str| -> anyhow::Result<Option<NewFile>> {
        match matches.try_get_one::<PathBuf>(id) {
            Ok(Some(path)) if path != Path::new("-") => {
                let file = NewFile::begin(path, mode());
                Ok(Some(file.with_context(|| format!("--{name} {}", path.display()))?))
            }
            _ => Ok(None),
        }
    };
    *held(&OUTPUT) = file("report-file", "output")?;
    *held(&PAGE) = file("html", "html")?;
    Ok(())
}

/// Puts what was written in its place, or removes it where the command failed.
///
/// # Errors
/// It cannot be put there.
pub fn end(complete: bool) -> anyhow::Result<()> {
    held(&PAGE).take();
    match held(&OUTPUT).take() {
        Some(file) if complete => file.done().context("--output"),
        _ => Ok(()),
    }
}

fn held(file: &Mutex<Option<NewFile>>) -> MutexGuard<'_, Option<NewFile>> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Permissions of files that are written: `--mode`.
pub fn mode() -> u32 {
    MODE.load(Ordering::Relaxed)
}

/// Writes the page of `--html`.
///
/// # Errors
/// It cannot be written.
pub fn page(path: &Path, text: &str) -> anyhow::Result<()> {
    let begun = held(&PAGE).take();
    let written = match begun {
        Some(mut file) => file.write_all(text.as_bytes()).and_then(|()| file.done()),
        None if path == Path::new("-") => {
            stdout_is_open().and_then(|()| std::io::stdout().lock().write_all(text.as_bytes()))
        }
        // A second report takes the place of the first.
        None => NewFile::write(path, mode(), text.as_bytes()),
    };
    written.with_context(|| format!("writing {}", path.display()))?;
    if path != Path::new("-") {
        say!("ncpu: wrote {}", path.display());
    }
    Ok(())
}

/// A new file for a page, in the directory for temporary files. It stays.
///
/// # Errors
/// It cannot be made.
pub fn new_page() -> anyhow::Result<PathBuf> {
    let file = tempfile::Builder::new().prefix("ncpu-").suffix(".html").tempfile();
    let (_, path) = file.context("a file for the page")?.keep().context("keeping the file for the page")?;
    Ok(path)
}

/// Opens a page in the user's browser. Without a display or xdg-open a line says so, and the page stays.
///
/// # Errors
/// xdg-open says no.
pub fn open(page: &Path) -> anyhow::Result<()> {
    if ["DISPLAY", "WAYLAND_DISPLAY"].iter().all(|name| std::env::var_os(name).is_none_or(|v| v.is_empty())) {
        say!("ncpu: no display (DISPLAY, WAYLAND_DISPLAY): open the page where there is a browser");
        return Ok(());
    }
    // A report after a signal is made ahead of other programs; a browser is one of them.
    if rustix::process::getpriority_process(None).is_ok_and(|nice| nice < 0) {
        let _ = rustix::process::setpriority_process(None, 0);
    }
    let opened = Command::new("xdg-open").arg(page).stdin(Stdio::null()).stdout(Stdio::null()).status();
    match opened {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => anyhow::bail!("xdg-open {}: {status}", page.display()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            say!("ncpu: no xdg-open (package xdg-utils): open the page in a browser");
            Ok(())
        }
        Err(e) => Err(e).context("starting xdg-open"),
    }
}

/// Writes bytes for another program to standard output.
///
/// # Errors
/// They cannot be written, or would go to a terminal and are not plain text.
pub fn raw(bytes: &[u8]) -> anyhow::Result<()> {
    stdout_is_open().context("writing output")?;
    let mut out = std::io::stdout().lock();
    let plain = std::str::from_utf8(bytes).is_ok_and(|t| t.chars().all(|c| c == '\n' || !c.is_control()));
    anyhow::ensure!(
        plain || !out.is_terminal(),
        "this is not for a terminal: name a file, or write to a pipe"
    );
    out.write_all(bytes).context("writing output")
}

/// A command is run: from now on text for people goes to standard error, for standard output is the command's.
pub fn leave_stdout_to_command() {
    COMMAND_HAS_STDOUT.store(true, Ordering::Relaxed);
}

/// One line on standard error, broken at words where a terminal is narrower. That it cannot be written is no reason to fail.
pub fn say_line(words: &str) {
    let line = safe::line(words);
    let room = Out::Stderr(std::io::stderr()).columns().unwrap_or(usize::MAX);
    let text = match width::columns(&line) > room {
        true => ncpu_report::wrap(&line, room, "", "      "),
        false => format!("{line}\n"),
    };
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a report for people: to `--output`, else to standard output, or to standard error where a command has that.
///
/// # Errors
/// It cannot be written.
pub fn put(text: &str) -> anyhow::Result<()> {
    painted(text, paint::onion)
}

/// [`put`] of a table whose first line names its columns.
///
/// # Errors
/// It cannot be written.
pub fn put_table(text: &str) -> anyhow::Result<()> {
    painted(text, paint::table)
}

fn painted(text: &str, paint: fn(&str) -> String) -> anyhow::Result<()> {
    let mut out = Out::new(true);
    let safe = safe::block(text);
    let written = match paint::wanted(out.is_terminal()) {
        true => out.write_all(paint(&safe).as_bytes()),
        false => out.write_all(safe.as_bytes()),
    };
    written.and_then(|()| out.flush()).context("writing output")
}

/// A blank line between two reports for people; other formats need none.
///
/// # Errors
/// It cannot be written.
pub fn between() -> anyhow::Result<()> {
    if TEXT.load(Ordering::Relaxed) { put("\n") } else { Ok(()) }
}

/// Words of the standard library's parsers of numbers, and those of other messages.
const NUMBERS: [(&str, &str); 5] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "expected a number"),
    ("cannot parse float from empty string", "expected a number"),
];

/// The text of an error of clap, without styles.
pub fn clap_words(error: &clap::Error) -> String {
    NUMBERS.iter().fold(error.render().to_string(), |text, (parser, words)| text.replace(*parser, words))
}

/// Help and version as clap renders them; a mistaken argument, which it would repeat as it is, without styles.
pub fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let text = clap_words(error);
        // As all other errors begin.
        let text = text.strip_prefix("error: ").map_or(text.clone(), |rest| format!("ncpu: {rest}"));
        let _ = write!(std::io::stderr().lock(), "{}", safe::block(&text));
    } else if let Err(e) = stdout_is_open().and_then(|()| error.print())
        && e.kind() != std::io::ErrorKind::BrokenPipe
    {
        say!("ncpu: writing output: {e}");
        return ExitCode::FAILURE;
    }
    ExitCode::from(error.exit_code() as u8)
}

/// Where a report goes.
pub enum Out {
    /// `--output`.
    File,
    /// Standard output.
    Stdout(std::io::Stdout),
    /// Standard error.
    Stderr(std::io::Stderr),
}

impl Out {
    /// The place of text for people, or of a format for machines.
    pub fn new(text: bool) -> Out {
        if held(&OUTPUT).is_some() {
            return Out::File;
        }
        match text && COMMAND_HAS_STDOUT.load(Ordering::Relaxed) {
            true => Out::Stderr(std::io::stderr()),
            false => Out::Stdout(std::io::stdout()),
        }
    }

    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        match self {
            Out::File => false,
            Out::Stdout(out) => out.is_terminal(),
            Out::Stderr(out) => out.is_terminal(),
        }
    }

    /// Columns of the terminal, if it is one.
    pub fn columns(&self) -> Option<usize> {
        let size = match self {
            Out::File => return None,
            Out::Stdout(out) => rustix::termios::tcgetwinsize(out),
            Out::Stderr(out) => rustix::termios::tcgetwinsize(out),
        };
        size.ok().map(|size| size.ws_col.into()).filter(|&n| n > 0)
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Out::File => held(&OUTPUT).as_mut().map_or(Ok(bytes.len()), |file| file.write(bytes)),
            Out::Stdout(out) => stdout_is_open().and_then(|()| out.write(bytes)),
            Out::Stderr(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Out::File => held(&OUTPUT).as_mut().map_or(Ok(()), Write::flush),
            Out::Stdout(out) => out.flush(),
            Out::Stderr(out) => out.flush(),
        }
    }
}

/// Progress, in one line that is written over, on a terminal only.
pub fn progress(words: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        // It is only progress: nothing depends on its being seen.
        let _ = write!(err, "\r\x1b[K{}", safe::line(words)).and_then(|()| err.flush());
    }
}

/// Wipes out the line of [`progress`].
pub fn progress_over() {
    progress("");
}
