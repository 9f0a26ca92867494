//! Output: tables to standard output or `--output`, messages to standard error. Foreign text is escaped
//! before it reaches a terminal.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use ncpu_files::NewFile;
use ncpu_fleet_args::Rows;
use ncpu_table::{Format, Printer, Table, safe};

/// Prints one line to standard error. A write error is ignored.
pub fn say(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", safe::line(words));
}

/// Shows progress in one line that is overwritten, if standard error is a terminal.
pub fn progress(words: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{}", safe::line(words)).and_then(|()| err.flush());
    }
}

/// Text to standard output.
pub fn put(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(safe::block(text).as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes a file that appears whole or not at all.
pub fn file(path: &Path, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
    NewFile::write(path, mode, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Prints a table in the requested format.
pub fn table(rows: &Rows, table: Table) -> anyhow::Result<()> {
    let table = rows.select().apply(table)?;
    let Some(path) = &rows.output else {
        let out = std::io::stdout();
        if rows.format == Format::Parquet && out.is_terminal() {
            anyhow::bail!("parquet is binary: send it to a file, as in `-o parquet --output out.parquet`");
        }
        return print(BufWriter::new(out), rows.format, width(), &table);
    };
    let mut file = NewFile::begin(path, rows.mode).with_context(|| format!("--output {}", path.display()))?;
    let mut bytes = Vec::new();
    print(&mut bytes, rows.format, usize::MAX, &table)?;
    file.write_all(&bytes).and_then(|()| file.done()).with_context(|| format!("writing {}", path.display()))
}

fn print<W: Write + Send>(out: W, format: Format, width: usize, table: &Table) -> anyhow::Result<()> {
    let mut printer = Printer::new(out, format, width).versioned(ncpu_schema::VERSION);
    printer.table(table)?;
    printer.finish()?;
    Ok(())
}

/// Columns of the terminal; a pipe has no limit.
fn width() -> usize {
    if let Some(columns) = std::env::var("COLUMNS").ok().and_then(|s| s.parse().ok()).filter(|&n| n > 0) {
        return columns;
    }
    let out = std::io::stdout();
    match out.is_terminal() {
        true => rustix::termios::tcgetwinsize(&out).ok().map_or(usize::MAX, |s| s.ws_col.max(20).into()),
        false => usize::MAX,
    }
}

/// Prints an error of the arguments, or the requested help.
pub fn usage(e: &clap::Error) -> ExitCode {
    let text = e.render();
    if e.use_stderr() {
        let text = text.to_string();
        // In the form of all other errors.
        let text = text.strip_prefix("error: ").map_or(text.clone(), |rest| format!("ncpu fleet: {rest}"));
        let _ = write!(std::io::stderr().lock(), "{}", safe::block(&text));
        return ExitCode::from(2);
    }
    let _ = write!(std::io::stdout().lock(), "{}", text.ansi());
    ExitCode::SUCCESS
}

/// Whether the reader of our output closed it.
pub fn broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|cause| {
        cause.downcast_ref::<ncpu_table::Error>().is_some_and(ncpu_table::Error::is_broken_pipe)
            || cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
