//! `-k`, `-A`, `-m`, `--top` and `-o`: the options every command that prints a table takes.

use std::io::{BufWriter, IsTerminal, Stdout};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ncpu_table::{Format, Printer, Select, SortKey};

/// What the tables of a command are printed with.
pub type StdoutPrinter = Printer<BufWriter<Stdout>>;

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
    /// What to do with each table before it is printed.
    pub fn select(&self) -> Select {
        self.rows.select(self.bands)
    }

    /// The printer of standard output.
    pub fn printer(&self) -> anyhow::Result<StdoutPrinter> {
        self.rows.printer()
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

    /// Output format
    #[arg(short = 'o', value_name = "FORMAT", default_value = "text",
          value_parser = PossibleValuesParser::new(["text", "json", "csv", "parquet"])
              .try_map(|s| s.parse::<Format>()))]
    format: Format,
}

impl RowArgs {
    /// What to do with each table, given the bands asked for.
    pub fn select(&self, bands: Option<usize>) -> Select {
        Select { sort: self.sort.clone(), bands, mean: self.mean, top: self.top }
    }

    /// The printer of standard output.
    pub fn printer(&self) -> anyhow::Result<StdoutPrinter> {
        let out = std::io::stdout();
        if self.format == Format::Parquet && out.is_terminal() {
            anyhow::bail!("parquet is binary: send it to a file, as in `-o parquet > out.parquet`");
        }
        Ok(Printer::new(BufWriter::new(out), self.format, text_width()))
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
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => usize::MAX,
    }
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
