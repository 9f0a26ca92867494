//! `-k`, `-A`, `-m`, `--top` and `-o`: the options every command that prints a table takes.

use std::io::BufWriter;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ncpu_table::{Format, Printer, Select, SortKey, Table};

use crate::out::Out;
use crate::paint;

/// Options for printing a command's tables.
pub type OutPrinter = Printer<BufWriter<Out>>;

/// Flattened into the arguments of a command that prints tables.
#[derive(Args, Clone, Debug)]
pub struct TableArgs {
    #[command(flatten)]
    rows: RowArgs,

    /// Divide the sorted rows into N bands of equal size and print a row for each
    #[arg(short = 'A', value_name = "N", requires = "sort")]
    bands: Option<usize>,
}

impl TableArgs {
    /// Processing of each table before it is printed.
    pub fn select(&self) -> Select {
        self.rows.select(self.bands)
    }

    /// The printer of the command's report.
    pub fn printer(&self) -> anyhow::Result<OutPrinter> {
        self.rows.printer()
    }

    /// Prints a table, with the rows and the order that were asked for.
    pub fn print(&self, table: Table) -> anyhow::Result<()> {
        self.print_all(&self.select().apply(table)?)
    }

    /// Prints a table as it is.
    pub fn print_all(&self, table: &Table) -> anyhow::Result<()> {
        self.rows.print_all(table)
    }

    /// The format chosen with `-o`.
    pub fn format(&self) -> Format {
        self.rows.format
    }
}

/// [`TableArgs`] without `-A`, for a command whose `-A` takes more than a number.
#[derive(Args, Clone, Debug)]
pub struct RowArgs {
    /// Sort by COLUMN, highest first; COLUMN:asc sorts lowest first
    #[arg(short = 'k', value_name = "COLUMN")]
    sort: Option<SortKey>,

    /// Print the mean of each band instead of the sum
    #[arg(short = 'm', requires = "bands")]
    mean: bool,

    /// Print only the first N rows
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Output format; json: an object a row, durations in seconds, shares as fractions of 1
    #[arg(short = 'o', value_name = "FORMAT", default_value = "text",
          value_parser = PossibleValuesParser::new(["text", "json", "csv", "parquet"])
              .try_map(|s| s.parse::<Format>()))]
    format: Format,

    /// Write the report to FILE, which appears when it is complete; a command's own output stays apart
    // `out::begin` takes it from the matches.
    #[arg(id = "report-file", long = "output", value_name = "FILE")]
    output: Option<PathBuf>,

    /// Permissions of the files that it writes, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = permissions, hide_short_help = true)]
    mode: u32,
}

/// Refuses a table that a command does not have.
///
/// # Errors
/// `name` is none of `tables`.
pub fn known_table<'a>(name: &str, tables: impl IntoIterator<Item = &'a str>) -> anyhow::Result<()> {
    let tables: Vec<&str> = tables.into_iter().collect();
    if tables.contains(&name) { Ok(()) } else { Err(no_table(name, tables)) }
}

/// Error for an unknown table.
pub fn no_table<'a>(name: &str, tables: impl IntoIterator<Item = &'a str>) -> anyhow::Error {
    let tables: Vec<&str> = tables.into_iter().collect();
    mistake!("unknown table `{name}`; expected one of: {}", tables.join(", "))
}

/// Permissions of a file, in octal.
pub fn permissions(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        // Without its owner's leave to read, ncpu could not make Parquet of it.
        Ok(mode @ 0..=0o777) if mode & 0o600 == 0o600 => Ok(mode),
        _ => Err(format!(
            "invalid mode of a file `{text}`; expected an octal number as 640, with 6 for the owner"
        )),
    }
}

impl RowArgs {
    /// Processing of each table with the given bands.
    pub fn select(&self, bands: Option<usize>) -> Select {
        Select { sort: self.sort.clone(), bands, mean: self.mean, top: self.top }
    }

    /// The printer of the command's report.
    pub fn printer(&self) -> anyhow::Result<OutPrinter> {
        let out = Out::new(self.format == Format::Text);
        if self.format == Format::Parquet && out.is_terminal() {
            usage!("parquet is binary: send it to a file, as in `-o parquet --output out.parquet`");
        }
        let paint = if paint::wanted(out.is_terminal()) { paint::table } else { str::to_string };
        let printer = Printer::new(BufWriter::new(out), self.format, text_width());
        Ok(printer.painted(paint).versioned(ncpu_schema::VERSION))
    }

    /// Prints a table as it is.
    pub fn print_all(&self, table: &Table) -> anyhow::Result<()> {
        let mut printer = self.printer()?;
        printer.table(table)?;
        Ok(printer.finish()?)
    }

    /// The format chosen with `-o`.
    pub fn format(&self) -> Format {
        self.format
    }
}

/// How wide text may be: `COLUMNS` where it is set, else the terminal's width; a pipe or a file has
/// no edge, so nothing is cut for it.
pub fn text_width() -> usize {
    if let Some(columns) = std::env::var("COLUMNS").ok().and_then(|s| s.parse().ok()).filter(|&n| n > 0) {
        return columns;
    }
    Out::new(true).columns().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        table: TableArgs,
        numbers: Vec<u64>,
    }

    #[test]
    fn the_solaris_example_parses() {
        let c = Command::try_parse_from(["mpstat", "-k", "intr", "-A", "4", "-m", "10", "5"]).unwrap();
        let select = c.table.select();
        assert_eq!(select.sort, Some("intr".parse().unwrap()));
        assert_eq!((select.bands, select.mean), (Some(4), true));
        assert_eq!(c.numbers, [10, 5]);
        assert_eq!(c.table.format(), Format::Text);
    }

    #[test]
    fn options_that_need_another_say_so() {
        for args in [&["x", "-m"][..], &["x", "-A", "4"], &["x", "-o", "xml"]] {
            assert!(Command::try_parse_from(args).is_err(), "{args:?}");
        }
        assert!(Command::try_parse_from(["x", "-o", "csv", "--top", "3"]).is_ok());
    }
}
