//! Tables in: what [`crate::Printer`] wrote, or anything else of its formats.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use crate::{Error, Result, Table};

impl Table {
    /// Reads a file of Parquet, JSON lines or comma-separated values with a line of names, told apart by what it
    /// begins with. Lines that begin with `#` are comments in the latter. Numbers become [`crate::Type::Float`] where one of a
    /// column is no unsigned integer; units and meanings come with Parquet only. Its name is the file's.
    ///
    /// # Errors
    /// [`Error::Read`] names the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<Table> {
        let wrong = |why: String| Error::Read { path: path.to_path_buf(), why };
        let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        Table::from_bytes(&name, bytes).map_err(|e| wrong(e.to_string()))
    }

    /// [`Table::read`] of what has been read already.
    ///
    /// # Errors
    /// The bytes are no table.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Table> {
        Table::from_batch(name, plain(&parse(bytes)?)?)
    }
}

fn parse(bytes: Vec<u8>) -> Result<RecordBatch> {
    if bytes.starts_with(b"PAR1") {
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes::Bytes::from(bytes), 8192)?;
        let schema = arrow_array::RecordBatchReader::schema(&reader);
        let batches = reader.collect::<Result<Vec<_>, _>>()?;
        return Ok(arrow_select::concat::concat_batches(&schema, &batches)?);
    }
    // The readers take lines, and one that ends within a line is whole all the same.
    let first = bytes.iter().copied().find(|b| !b.is_ascii_whitespace());
    let (schema, batches) = match first {
        None => return Err(ArrowError::SchemaError("it is empty".into()).into()),
        Some(b'{') => {
            let (schema, _) = arrow_json::reader::infer_json_schema_from_seekable(Cursor::new(&bytes), None)?;
            let schema = Arc::new(schema);
            let reader = arrow_json::ReaderBuilder::new(schema.clone()).build(Cursor::new(&bytes))?;
            (schema, reader.collect::<Result<Vec<_>, _>>()?)
        }
        Some(_) => {
            let format = arrow_csv::reader::Format::default().with_header(true).with_comment(b'#');
            let (schema, _) = format.infer_schema(Cursor::new(&bytes), None)?;
            // Names stand between spaces where people wrote them.
            let schema = Arc::new(Schema::new(
                schema
                    .fields()
                    .iter()
                    .map(|f| f.as_ref().clone().with_name(f.name().trim()))
                    .collect::<Vec<Field>>(),
            ));
            let reader = arrow_csv::ReaderBuilder::new(schema.clone())
                .with_format(format)
                .build(Cursor::new(&bytes))?;
            (schema, reader.collect::<Result<Vec<_>, _>>()?)
        }
    };
    Ok(arrow_select::concat::concat_batches(&schema, &batches)?)
}

/// The same with columns of the types that tables have.
fn plain(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let to = match field.data_type() {
            DataType::UInt64 | DataType::Float64 | DataType::Utf8 => array.data_type().clone(),
            t if t.is_integer() && cast_with_options(array, &DataType::UInt64, &strict).is_ok() => {
                DataType::UInt64
            }
            t if t.is_numeric() => DataType::Float64,
            _ => DataType::Utf8,
        };
        arrays.push(cast_with_options(array, &to, &strict)?);
        fields.push(Field::new(field.name(), to, true).with_metadata(field.metadata().clone()));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Format, Kind, Printer, Type, Unit};

    fn read(bytes: &[u8]) -> Result<Table> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("name.x");
        std::fs::write(&path, bytes).unwrap();
        Table::read(&path)
    }

    #[test]
    fn what_was_printed_is_read_back() {
        let mut b = Table::builder(
            "bench",
            &[
                Column::text("benchmark", "name"),
                Column::count("samples", "n"),
                Column::float("time", Unit::Microseconds, Kind::Gauge, "t"),
            ],
        );
        b.row().text("a, \"b\"").int(7).float(0.5);
        b.row().text("c").null().float(2.25);
        let table = b.finish();
        for format in [Format::Json, Format::Csv, Format::Parquet] {
            let mut out = Vec::new();
            let mut p = Printer::new(&mut out, format, 80);
            p.table(&table).unwrap();
            p.finish().unwrap();
            let back = read(&out).unwrap();
            assert_eq!(back.num_rows(), 2, "{format:?}");
            assert_eq!(back.text(0, "benchmark"), Some("a, \"b\""), "{format:?}");
            assert_eq!((back.int(0, "samples"), back.int(1, "samples")), (Some(7), None), "{format:?}");
            assert_eq!(back.number(1, "time"), Some(2.25), "{format:?}");
            if format == Format::Parquet {
                assert_eq!(back.columns(), table.columns());
            }
        }
    }

    #[test]
    fn tables_by_hand() {
        let t = read(b"# users against scripts\nN , x\n1,64.9\n18,995.9\n36,\n").unwrap();
        assert_eq!((t.name(), t.num_rows()), ("name", 3));
        assert_eq!(
            t.columns().iter().map(|c| (c.name.as_str(), c.ty)).collect::<Vec<_>>(),
            [("N", Type::Int), ("x", Type::Float)]
        );
        assert_eq!((t.int(1, "N"), t.number(1, "x"), t.number(2, "x")), (Some(18), Some(995.9), None));
    }

    #[test]
    fn what_is_no_table_is_told_by_name() {
        for bytes in [&b""[..], b"PAR1xx", b"{\"a\":", b"a,b\n1\n2,3,4\n"] {
            let e = read(bytes).unwrap_err().to_string();
            assert!(e.contains("name.x: "), "{e}");
        }
        assert!(
            Table::read("/nowhere/x.csv".as_ref())
                .unwrap_err()
                .to_string()
                .contains("/nowhere/x.csv: No such file")
        );
    }
}
