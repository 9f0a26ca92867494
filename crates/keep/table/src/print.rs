//! Prints tables: text, JSON lines, CSV, Parquet.

use std::io::Write;
use std::str::FromStr;

use crate::parquet::ParquetWriter;
use crate::{Cell, Error, Result, Table, Unit, objects, render_text, safe};

/// How tables are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: aligned, fitted to the terminal.
    #[default]
    Text,
    /// One JSON object per row, in one format for all tables: see [`crate::Column::key`].
    Json,
    /// Comma-separated values with one header line.
    Csv,
    /// Apache Parquet.
    Parquet,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(s: &str) -> Result<Format, String> {
        match s {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            "csv" => Ok(Format::Csv),
            "parquet" => Ok(Format::Parquet),
            _ => Err(format!("unknown output format `{s}`; expected text, json, csv or parquet")),
        }
    }
}

/// Writes a sequence of tables (one per interval) to one stream.
pub struct Printer<W: Write + Send> {
    format: Format,
    width: usize,
    out: Option<W>,
    first: Option<Table>,
    parquet: Option<ParquetWriter<W>>,
    printed: usize,
    head: fn(&str) -> String,
    version: Option<u32>,
}

impl<W: Write + Send> Printer<W> {
    /// A printer for text `width` columns wide (other formats ignore the width).
    pub fn new(out: W, format: Format, width: usize) -> Printer<W> {
        Printer {
            format,
            width,
            out: Some(out),
            first: None,
            parquet: None,
            printed: 0,
            head: str::to_string,
            version: None,
        }
    }

    /// Ends each object of JSON with the version of the schema: [`crate::VERSION_KEY`].
    #[must_use]
    pub fn versioned(self, version: u32) -> Printer<W> {
        Printer { version: Some(version), ..self }
    }

    /// Passes every text table to `paint`, which may colour the header line.
    #[must_use]
    pub fn painted(self, paint: fn(&str) -> String) -> Printer<W> {
        Printer { head: paint, ..self }
    }

    /// Writes one table.
    ///
    /// # Errors
    /// The stream cannot be written, or a CSV or Parquet stream is given a second table whose
    /// columns differ from the first's.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        self.same_columns(table)?;
        let first = self.printed == 0;
        self.printed += 1;
        if self.format == Format::Parquet {
            if self.parquet.is_none() {
                let Some(out) = self.out.take() else { return Ok(()) };
                self.parquet = Some(ParquetWriter::new(out, table)?);
            }
            if let Some(writer) = &mut self.parquet {
                writer.write(table)?;
            }
            return Ok(());
        }
        let Some(out) = self.out.as_mut() else { return Ok(()) };
        match self.format {
            Format::Text => {
                if !first {
                    writeln!(out)?;
                }
                out.write_all((self.head)(&render_text(table, self.width)).as_bytes())?;
            }
            Format::Json => {
                out.write_all(safe::json(&crate::json::lines(table, self.version)?).as_bytes())?;
            }
            Format::Csv => {
                out.write_all(&separated(table, first).map_err(std::io::Error::from)?)?;
            }
            Format::Parquet => {}
        }
        out.flush()?;
        Ok(())
    }

    fn same_columns(&mut self, table: &Table) -> Result<()> {
        let format = match self.format {
            Format::Csv => "csv",
            Format::Parquet => "parquet",
            Format::Text | Format::Json => return Ok(()),
        };
        match &self.first {
            Some(first) if first.columns() != table.columns() => {
                Err(Error::MixedTables { format, first: first.name().into(), second: table.name().into() })
            }
            Some(_) => Ok(()),
            None => {
                self.first = Some(table.clone());
                Ok(())
            }
        }
    }

    /// Writes the end of the stream (Parquet's footer).
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn finish(mut self) -> Result<()> {
        if let Some(parquet) = self.parquet.take() {
            parquet.close()?;
        }
        Ok(())
    }
}

/// The table's rows as comma-separated values. Names and texts pass through [`safe::cell`].
fn separated(table: &Table, header: bool) -> Result<Vec<u8>, csv::Error> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    if header {
        rows.write_record(table.columns().iter().map(|c| safe::cell(&c.name).into_owned()))?;
    }
    for row in 0..table.num_rows() {
        for column in 0..table.columns().len() {
            match table.cell(row, column) {
                Cell::Null => rows.write_field(""),
                Cell::Int(n) => rows.write_field(n.to_string()),
                Cell::Float(x) => rows.write_field(format!("{x:?}")),
                Cell::Text(text) if table.columns()[column].unit == Unit::Objects => {
                    rows.write_field(safe::cell(&objects::words(text)).as_bytes())
                }
                Cell::Text(text) => rows.write_field(safe::cell(text).as_bytes()),
            }?;
        }
        rows.write_record(None::<&[u8]>)?;
    }
    rows.into_inner().map_err(|e| e.into_error().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Kind};

    fn table() -> Table {
        let mut b = Table::builder(
            "locks",
            &[
                Column::text("lock", "name"),
                Column::count("count", "events"),
                Column::float("util", Unit::Share, Kind::Share, "share"),
            ],
        );
        b.row().text("a \"quoted\", name").int(7).float(0.5);
        b.row().text("b");
        b.finish()
    }

    fn printed(format: Format) -> Vec<u8> {
        let mut out = Vec::new();
        let mut p = Printer::new(&mut out, format, 80);
        p.table(&table()).unwrap();
        p.table(&table()).unwrap();
        p.finish().unwrap();
        out
    }

    #[test]
    fn json_is_one_object_a_row_with_nulls_said() {
        let out = String::from_utf8(printed(Format::Json)).unwrap();
        assert_eq!(out.lines().count(), 4);
        assert_eq!(out.lines().nth(1), Some(r#"{"lock":"b","count":null,"util":null}"#));
    }

    /// Only JSON has the version of the schema; only text is painted.
    #[test]
    fn versions_and_paint_are_for_one_format_each() {
        let printed = |format| {
            let mut out = Vec::new();
            let mut printer =
                Printer::new(&mut out, format, 80).versioned(7).painted(|text| format!("<{text}>"));
            printer.table(&table()).unwrap();
            printer.finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        let json = printed(Format::Json);
        assert_eq!(json.lines().nth(1), Some(r#"{"lock":"b","count":null,"util":null,"ncpu_schema":7}"#));
        let text = printed(Format::Text);
        assert!(text.starts_with("<lock") && text.ends_with(">"), "{text}");
        assert!(printed(Format::Csv).starts_with("lock,count,util\n"));
    }

    #[test]
    fn no_format_for_eyes_lets_controls_through() {
        let mut b = Table::builder("x", &[Column::text("comm", "name")]);
        let names = ["\x1b]2;own\x07", "a\nb", "\u{9b}31m", "exe\u{202e}txt", "=cmd|' /C calc'!A0"];
        for name in names {
            b.row().text(name);
        }
        let table = b.finish();
        for format in [Format::Text, Format::Json, Format::Csv] {
            let mut out = Vec::new();
            let mut printer = Printer::new(&mut out, format, 80);
            printer.table(&table).unwrap();
            printer.finish().unwrap();
            let out = String::from_utf8(out).unwrap();
            assert!(!out.chars().any(|c| c != '\n' && safe::is_unsafe(c)), "{out:?}");
            assert_eq!(out.lines().count(), names.len() + usize::from(format != Format::Json), "{out}");
            assert!(format != Format::Csv || out.contains("\n'=cmd|"), "{out}");
            if format == Format::Json {
                let back = Table::from_bytes("x", out.into_bytes()).unwrap();
                names.iter().enumerate().for_each(|(i, n)| assert_eq!(back.text(i, "comm"), Some(*n)));
            }
        }
    }

    #[test]
    fn csv_has_one_header() {
        let out = String::from_utf8(printed(Format::Csv)).unwrap();
        assert_eq!(out.lines().filter(|l| *l == "lock,count,util").count(), 1);
        assert!(out.contains(r#""a ""quoted"", name",7,0.5"#), "{out}");
    }

    #[test]
    fn a_reader_that_went_away_is_told_from_failures() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        for format in [Format::Text, Format::Json, Format::Csv, Format::Parquet] {
            let mut p = Printer::new(Closed, format, 80);
            let printed = p.table(&table()).and_then(|()| p.finish());
            assert!(printed.unwrap_err().is_broken_pipe(), "{format:?}");
        }
    }

    #[test]
    fn parquet_reads_back_with_units() {
        let out = printed(Format::Parquet);
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes::Bytes::from(out), 1024);
        let batches: Vec<_> = reader.unwrap().map(|b| b.unwrap()).collect();
        let back = Table::from_batch("locks", batches[0].clone()).unwrap();
        assert_eq!(back.columns(), table().columns());
        assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 4);
    }

    #[test]
    fn csv_refuses_a_second_shape() {
        let mut p = Printer::new(Vec::new(), Format::Csv, 80);
        p.table(&table()).unwrap();
        let other = table().project(&["lock"]).unwrap();
        assert!(p.table(&other).unwrap_err().to_string().contains("use -o json"));
    }
}
