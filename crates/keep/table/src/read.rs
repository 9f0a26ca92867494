//! Reads tables: the output of [`crate::Printer`], or any other file of its formats.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::gathered::Gathered;
use crate::{Budget, Error, Result, Table};

/// Maximum bytes that are read from a file.
const MOST: u64 = 256 << 20;

/// Memory for a cell while its column grows.
const CELL: u64 = size_of::<Option<String>>() as u64;

/// The magic number of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

impl Table {
    /// Reads a file of Parquet, JSON lines or comma-separated values. The first bytes decide which. Values
    /// may have a header line of names. A first line with only numbers is data, and the columns are then
    /// named `column 1`, `column 2`, … Lines that begin with `#` are comments. Numbers become
    /// [`crate::Type::Float`] if a number of the column is not an unsigned integer. Only Parquet has units
    /// and meanings. The table's name is the file's.
    ///
    /// # Errors
    /// [`Error::Read`] names the file and the fault; the limits are 256 MiB for the file and 1 MiB for a
    /// line.
    pub fn read(path: &Path) -> Result<Table> {
        let wrong = |why: String| Error::Read { path: path.to_path_buf(), why };
        let bytes = ncpu_files::read(path, MOST).map_err(|e| wrong(e.to_string()))?;
        if !bytes.starts_with(PARQUET) {
            ncpu_files::lines(&bytes).map_err(|e| wrong(e.to_string()))?;
        }
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        Table::from_bytes(&name, bytes).map_err(|e| wrong(e.to_string()))
    }

    /// As [`Table::read`], for bytes already in memory.
    ///
    /// # Errors
    /// The bytes do not contain a table.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Table> {
        let mut budget = Budget::for_bytes(bytes.len() as u64);
        let batch = match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
            None => return Err(empty()),
            Some(_) if bytes.starts_with(PARQUET) => {
                return crate::parquet::read(name, bytes, None, &mut budget, |_| true, true);
            }
            Some(b'{') => json(&bytes, &mut budget)?,
            Some(_) => separated(&bytes)?,
        };
        Table::from_batch(name, batch)
    }
}

/// Named columns as a batch.
fn batch(columns: Vec<(String, Gathered)>) -> Result<RecordBatch> {
    let arrays = columns.into_iter().map(|(name, cells)| (name, cells.finish(), true));
    Ok(RecordBatch::try_from_iter_with_nullable(arrays)?)
}

fn separated(bytes: &[u8]) -> Result<RecordBatch> {
    let mut rows =
        csv::ReaderBuilder::new().has_headers(false).comment(Some(b'#')).from_reader(bytes).into_records();
    let Some(first) = rows.next().transpose().map_err(text)? else {
        return Err(empty());
    };
    let headless = first.iter().all(|name| name.trim().parse::<f64>().is_ok());
    // Blanks around names are ignored.
    let name = |(i, name): (usize, &str)| match headless {
        true => format!("column {}", i + 1),
        false => name.trim().to_string(),
    };
    let mut columns: Vec<_> =
        first.iter().enumerate().map(name).map(|name| (name, Gathered::default())).collect();
    let data = headless.then_some(Ok(first)).into_iter().chain(rows);
    for row in data {
        for (cell, (_, column)) in row.map_err(text)?.iter().zip(&mut columns) {
            column.push((!cell.is_empty()).then(|| cell.to_string()));
        }
    }
    batch(columns)
}

fn json(bytes: &[u8], budget: &mut Budget) -> Result<RecordBatch> {
    let mut columns: Vec<(String, Gathered)> = Vec::new();
    let mut place: HashMap<String, usize> = HashMap::new();
    let mut rows = 0_usize;
    for object in serde_json::Deserializer::from_slice(bytes).into_iter::<Object>() {
        for (key, value) in object.map_err(text)?.0 {
            // The version of the schema, in each line.
            if key == crate::VERSION_KEY {
                continue;
            }
            let at = *place.entry(key).or_insert_with_key(|key| {
                columns.push((key.clone(), Gathered::default()));
                columns.len() - 1
            });
            let column = &mut columns[at].1;
            // A key that first appears late needs empty cells for all rows before it.
            budget.take((rows.saturating_sub(column.len()) as u64 + 1) * CELL)?;
            if column.len() > rows {
                let key = &columns[at].0;
                return Err(text(format!("key `{key}` occurs twice in object {}", rows + 1)));
            }
            column.fill(rows);
            match value {
                Value::Null => column.push(None),
                Value::String(word) => column.push_text(word),
                // A number, or a value that tables do not support, as written.
                value => column.push(Some(value.to_string())),
            }
        }
        rows += 1;
    }
    for (_, column) in &mut columns {
        budget.take((rows - column.len()) as u64 * CELL)?;
        column.fill(rows);
    }
    batch(columns)
}

/// A JSON object's members in their order.
struct Object(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;
            fn expecting(&self, f: &mut Formatter) -> fmt::Result {
                f.write_str("one object per line")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        from.deserialize_map(Members)
    }
}

fn text(why: impl Display) -> Error {
    ArrowError::ParseError(why.to_string()).into()
}

fn empty() -> Error {
    ArrowError::SchemaError("it is empty".into()).into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
            // All durations in JSON are in seconds.
            let unit = if format == Format::Json { 1e-6 } else { 1.0 };
            assert_eq!(back.number(1, "time"), Some(2.25 * unit), "{format:?}");
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
    fn a_first_line_of_numbers_is_data() {
        let t = read(b"# users, scripts\n1,10\n2,19.5\n4,30\n").unwrap();
        assert_eq!(t.num_rows(), 3);
        assert_eq!(t.columns().iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["column 1", "column 2"]);
        assert_eq!((t.int(0, "column 1"), t.number(0, "column 2")), (Some(1), Some(10.0)));
        // One word among the numbers makes the line a header.
        assert_eq!(read(b"n,1,2\n3,4,5\n").unwrap().columns()[1].name, "1");
    }

    #[test]
    fn json_by_hand() {
        let lines = br#"{"n": 1, "x": 2, "of": "12", "ok": true}
            {"x": 2.5, "n": null, "more": [1, 2]}"#;
        let t = read(lines).unwrap();
        let columns = t.columns().iter().map(|c| (c.name.as_str(), c.ty)).collect::<Vec<_>>();
        let text = Type::Text;
        assert_eq!(
            columns,
            [("n", Type::Int), ("x", Type::Float), ("of", text), ("ok", text), ("more", text)]
        );
        assert_eq!((t.int(0, "n"), t.int(1, "n"), t.number(0, "x")), (Some(1), None, Some(2.0)));
        assert_eq!((t.text(0, "of"), t.text(1, "of"), t.text(0, "ok")), (Some("12"), None, Some("true")));
        assert_eq!((t.text(0, "more"), t.text(1, "more")), (None, Some("[1,2]")));
    }

    #[test]
    fn the_version_of_a_json_line_is_no_column() {
        let t = read(b"{\"n\":1,\"ncpu_schema\":9}\n{\"n\":2,\"ncpu_schema\":10}\n").unwrap();
        assert_eq!((t.columns().len(), t.int(1, "n")), (1, Some(2)));
    }

    #[test]
    fn a_column_with_a_word_is_text_as_written() {
        let t = read(b"id,n,x\n007,-1, 1e3\nseven,2,\n").unwrap();
        assert_eq!(
            (t.text(0, "id"), t.number(0, "n"), t.number(0, "x")),
            (Some("007"), Some(-1.0), Some(1e3))
        );
        assert_eq!(t.number(1, "x"), None);
    }

    #[test]
    fn parquet_of_others_becomes_numbers_and_texts() {
        use arrow_array::types::Int32Type;
        use arrow_array::{
            ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Int64Array,
            LargeStringArray, ListArray, TimestampMillisecondArray,
        };
        let columns: [(&str, ArrayRef); 8] = [
            ("n", Arc::new(Int64Array::from(vec![Some(4), None]))),
            ("below", Arc::new(Int64Array::from(vec![-4, 5]))),
            ("x", Arc::new(Float32Array::from(vec![0.5, 2.0]))),
            ("ok", Arc::new(BooleanArray::from(vec![true, false]))),
            ("name", Arc::new(LargeStringArray::from(vec!["a", "b"]))),
            ("coded", Arc::new(vec!["a", "a"].into_iter().collect::<DictionaryArray<Int32Type>>())),
            ("at", Arc::new(TimestampMillisecondArray::from(vec![7, 8]).with_timezone("UTC"))),
            ("day", Arc::new(Date32Array::from(vec![3, 4]))),
        ];
        let price = Decimal128Array::from(vec![150, 275]).with_precision_and_scale(9, 2).unwrap();
        let columns = columns.into_iter().chain([("price", Arc::new(price) as ArrayRef)]);
        let written = |batch: &RecordBatch| {
            let mut out = Vec::new();
            let mut writer = ::parquet::arrow::ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
            writer.write(batch).unwrap();
            writer.close().unwrap();
            out
        };
        let t = read(&written(&RecordBatch::try_from_iter(columns).unwrap())).unwrap();
        assert_eq!((t.int(0, "n"), t.int(1, "n"), t.number(0, "below")), (Some(4), None, Some(-4.0)));
        assert_eq!(
            (t.number(1, "x"), t.text(1, "ok"), t.text(1, "name")),
            (Some(2.0), Some("false"), Some("b"))
        );
        assert_eq!((t.text(1, "coded"), t.int(0, "at"), t.int(1, "day")), (Some("a"), Some(7), Some(4)));
        assert_eq!(t.number(1, "price"), Some(2.75));
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]);
        let list = RecordBatch::try_from_iter([("many", Arc::new(list) as ArrayRef)]).unwrap();
        let e = read(&written(&list)).unwrap_err().to_string();
        assert!(e.contains("column `many`"), "{e}");
    }

    /// Another writer's pages of both versions, and several row groups.
    #[test]
    fn pages_and_groups_of_another_writer() {
        use ::parquet::arrow::ArrowWriter;
        use ::parquet::file::properties::{WriterProperties, WriterVersion};
        use arrow_array::{ArrayRef, StringArray, UInt64Array};
        let names: Vec<Option<String>> = (0..100).map(|i| (i % 7 > 0).then(|| format!("name {i}"))).collect();
        let counts: Vec<u64> = (0..100).map(|i| i * i).collect();
        let columns: [(&str, ArrayRef); 2] = [
            ("name", Arc::new(StringArray::from(names.clone()))),
            ("count", Arc::new(UInt64Array::from(counts.clone()))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            // Pages of the second version have levels outside of what is compressed.
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_max_row_group_row_count(Some(40))
                .build();
            let mut file = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            let whole = read(&file).unwrap();
            let groups = crate::ParquetGroups::open("x", file).unwrap().take(10);
            let groups: Vec<Table> = groups.map(Result::unwrap).collect();
            let rows: Vec<usize> = groups.iter().map(Table::num_rows).collect();
            assert_eq!(rows, [40, 40, 20], "{version:?}");
            for (at, table, row) in (0..100).map(|at| (at, &groups[at / 40], at % 40)) {
                assert_eq!(
                    (table.text(row, "name"), table.int(row, "count")),
                    (names[at].as_deref(), Some(counts[at]))
                );
                assert_eq!(whole.text(at, "name"), names[at].as_deref());
            }
        }
    }

    #[test]
    fn what_is_no_table_is_told_by_name() {
        for bytes in
            [&b""[..], b"PAR1xx", b"{\"a\":", b"{\"a\":1} [2]", b"{\"a\":1,\"a\":2}", b"a,b\n1\n2,3,4\n"]
        {
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
