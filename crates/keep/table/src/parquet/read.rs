//! Reads tables, including Parquet files of other tools if they contain numbers and texts.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{ArrayBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::types::{Float64Type, UInt64Type};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::basic::{ConvertedType, Encoding, LogicalType, Type as Physical};
use parquet::column::page::Page;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{AsBytes, DataType};
use parquet::file::metadata::FileMetaData;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::schema::types::ColumnDescriptor;

use super::ARROW_SCHEMA;
use super::check::Checked;
use crate::{Budget, Column, Error, Kind, Result, Table, Type, Unit};

/// Rows that are decoded at a time.
const ROWS: usize = 8192;

/// Memory for a cell besides its text: 64 bits and a validity bit, rounded up.
const NUMBER: u64 = 9;

/// Reads the wanted columns of a Parquet file. Columns written by `ncpu` are restored exactly. Of other
/// files, integers are unsigned if none is negative, other numbers are floats, Booleans are texts, and dates
/// and times are the stored numbers. Without `meanings` the table has no units, kinds and meanings, which
/// take long to read compared with a few rows.
///
/// # Errors
/// The file is not Parquet, has lists, structures or bytes, has another number of rows, or exceeds the
/// budget.
pub fn read(
    name: &str,
    bytes: Vec<u8>,
    rows: Option<u64>,
    budget: &mut Budget,
    wanted: impl Fn(&str) -> bool,
    meanings: bool,
) -> Result<Table> {
    guarded(|| {
        let file = Checked::open(bytes, budget)?;
        let groups = 0..file.reader.num_row_groups();
        let found = file.rows(groups.clone())?;
        match rows {
            Some(rows) if rows != found => {
                Err(wrong(format!("it holds {found} rows and the manifest says {rows}")))
            }
            _ => decoded(name, &file, groups, wanted, meanings, budget),
        }
    })
}

/// The rows of a Parquet file, one row group at a time, without units, kinds and meanings.
pub struct Groups {
    name: String,
    file: Checked,
    next: usize,
    bytes: u64,
}

impl Groups {
    /// Opens a file.
    ///
    /// # Errors
    /// The file is not Parquet.
    pub fn open(name: &str, bytes: Vec<u8>) -> Result<Groups> {
        let length = bytes.len() as u64;
        let file = guarded(|| Checked::open(bytes, &mut Budget::for_bytes(length)))?;
        Ok(Groups { name: name.into(), file, next: 0, bytes: length })
    }
}

impl Iterator for Groups {
    type Item = Result<Table>;

    fn next(&mut self) -> Option<Result<Table>> {
        let at = self.next;
        self.next += 1;
        // One row group is in memory at a time.
        let mut budget = Budget::for_bytes(self.bytes);
        let read = || decoded(&self.name, &self.file, at..at + 1, |_| true, false, &mut budget);
        (at < self.file.reader.num_row_groups()).then(|| guarded(read))
    }
}

/// The distinct texts of a Parquet column, in any order. If the file has a dictionary of them, rows are not
/// decoded.
///
/// # Errors
/// The file is not Parquet, or has no such column of texts.
pub fn texts(bytes: Vec<u8>, column: &str) -> Result<HashSet<String>> {
    let mut budget = Budget::for_bytes(bytes.len() as u64);
    guarded(|| {
        let file = Checked::open(bytes, &mut budget)?;
        let columns = file.reader.metadata().file_metadata().schema_descr().columns();
        let at = columns.iter().position(|c| c.name() == column);
        let at = at.ok_or_else(|| wrong(format!("it has no column `{column}`")))?;
        let mut out = HashSet::new();
        for group in 0..file.reader.num_row_groups() {
            file.pages(group, at, &mut budget)?;
            match words(file.reader.get_row_group(group)?.as_ref(), at)? {
                Some(words) => out.extend(words),
                None => {
                    let wanted = |c: &str| c == column;
                    let table = decoded("texts", &file, group..group + 1, wanted, false, &mut budget)?;
                    let cells = (0..table.num_rows()).filter_map(|r| table.text(r, column));
                    out.extend(cells.map(String::from));
                }
            }
        }
        Ok(out)
    })
}

/// The dictionary of a text column; `None` if some of its values are outside the dictionary.
fn words(group: &dyn RowGroupReader, column: usize) -> Result<Option<Vec<String>>> {
    let mut pages = group.get_column_page_reader(column)?;
    let mut words = None;
    while let Some(page) = pages.get_next_page()? {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                let mut words_here = Vec::new();
                let mut rest = &buf[..];
                for _ in 0..num_values {
                    let split = rest.split_first_chunk::<4>();
                    let (word, after) = split
                        .and_then(|(length, rest)| {
                            rest.split_at_checked(u32::from_le_bytes(*length) as usize)
                        })
                        .ok_or_else(|| wrong("a dictionary is cut off".into()))?;
                    let word =
                        str::from_utf8(word).map_err(|e| wrong(format!("a text is not UTF-8: {e}")))?;
                    words_here.push(word.to_string());
                    rest = after;
                }
                words = Some(words_here);
            }
            Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. } => {
                if !matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) {
                    return Ok(None);
                }
            }
        }
    }
    Ok(words)
}

fn guarded<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    let gave_up = |why| Err(wrong(format!("it is damaged: the Parquet reader gave up ({why})")));
    ncpu_files::guarded(read).unwrap_or_else(gave_up)
}

fn wrong(why: String) -> Error {
    Error::Foreign(why)
}

/// Decodes some row groups of a file, with units, kinds and meanings if requested.
fn decoded(
    name: &str,
    file: &Checked,
    groups: Range<usize>,
    wanted: impl Fn(&str) -> bool,
    with_meanings: bool,
    budget: &mut Budget,
) -> Result<Table> {
    let meta = file.reader.metadata().file_metadata();
    let mut meanings = if with_meanings { meanings(meta) } else { HashMap::new() };
    let described = meta.schema_descr().columns().iter().enumerate();
    let described: Vec<_> = described.filter(|(_, c)| wanted(c.path().parts()[0].as_str())).collect();
    let mut columns = described.iter().map(|(_, c)| Decoded::new(c)).collect::<Result<Vec<_>>>()?;
    let rows = file.rows(groups.clone())?;
    budget.take(rows.saturating_mul(NUMBER).saturating_mul(columns.len() as u64))?;
    for at in groups {
        let group = file.reader.get_row_group(at)?;
        for (column, (i, described)) in columns.iter_mut().zip(&described) {
            file.pages(at, *i, budget)?;
            column.read(group.get_column_reader(*i)?, described.max_def_level(), budget)?;
        }
    }
    let (columns, arrays) = columns
        .into_iter()
        .zip(described)
        .map(|(decoded, (_, described))| {
            let (ty, array) = decoded.finish();
            let (unit, kind, meaning) = meanings.remove(described.name()).unwrap_or_else(of_others);
            (Column { name: described.name().into(), ty, unit, kind, meaning }, array)
        })
        .unzip();
    match with_meanings {
        true => Table::from_parts(name, columns, arrays),
        false => Table::of_cells(name, columns, arrays),
    }
}

/// Unit, kind and meaning of a column.
type Meaning = (Unit, Kind, String);

/// For columns without metadata.
fn of_others() -> Meaning {
    (Unit::from_symbol(""), Kind::from_word(""), String::new())
}

/// The metadata of each column in the file's Arrow schema; empty if there is no readable schema.
fn meanings(meta: &FileMetaData) -> HashMap<String, Meaning> {
    let found = || {
        let pairs = meta.key_value_metadata()?;
        let text = pairs.iter().find(|pair| pair.key == ARROW_SCHEMA)?.value.as_ref()?;
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        // Older writers omit the marker before the length of the message.
        let message = bytes.strip_prefix(&[0xff; 4]).unwrap_or(&bytes).get(4..)?;
        let message = arrow_ipc::root_as_message(message).ok()?;
        let fields = message.header_as_schema()?.fields()?;
        let of = |field: arrow_ipc::Field| {
            let mut meaning = of_others();
            for pair in field.custom_metadata()? {
                match (pair.key()?, pair.value()?) {
                    ("unit", symbol) => meaning.0 = Unit::from_symbol(symbol),
                    ("kind", word) => meaning.1 = Kind::from_word(word),
                    ("meaning", text) => meaning.2 = text.into(),
                    _ => {}
                }
            }
            Some((field.name()?.to_string(), meaning))
        };
        Some(fields.iter().filter_map(of).collect())
    };
    found().unwrap_or_default()
}

/// The interpretation of a column's stored values.
#[derive(Clone, Copy)]
enum Stored {
    Text,
    Truth,
    Unsigned,
    Signed,
    Float,
    /// Integers to be divided by this number.
    Decimal(f64),
    /// Only nulls.
    Nothing,
}

/// A column that grows row group by row group.
struct Decoded {
    stored: Stored,
    texts: StringBuilder,
    ints: Int64Builder,
    floats: Float64Builder,
}

impl Decoded {
    fn new(column: &ColumnDescriptor) -> Result<Decoded> {
        let name = column.name();
        let refused =
            |what: &str| wrong(format!("column `{name}` has type {what}; tables hold numbers and texts"));
        if column.path().parts().len() > 1 || column.max_rep_level() > 0 {
            let name = column.path().parts().first().map_or(name, String::as_str);
            return Err(wrong(format!(
                "column `{name}` holds lists or structures; tables hold numbers and texts"
            )));
        }
        let (logical, converted) = (column.logical_type_ref(), column.converted_type());
        let unit = || 10f64.powi(column.type_scale());
        let decimal = matches!(logical, Some(LogicalType::Decimal(_))) || converted == ConvertedType::DECIMAL;
        let unsigned = match logical {
            Some(LogicalType::Integer(int)) => !int.is_signed,
            _ => matches!(
                converted,
                ConvertedType::UINT_8
                    | ConvertedType::UINT_16
                    | ConvertedType::UINT_32
                    | ConvertedType::UINT_64
            ),
        };
        let text = matches!(logical, Some(LogicalType::String | LogicalType::Enum | LogicalType::Json))
            || matches!(converted, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON);
        let stored = match column.physical_type() {
            _ if matches!(logical, Some(LogicalType::Unknown)) => Stored::Nothing,
            Physical::BYTE_ARRAY if text => Stored::Text,
            Physical::FIXED_LEN_BYTE_ARRAY if matches!(logical, Some(LogicalType::Float16)) => {
                return Err(refused("Float16"));
            }
            Physical::INT96 => Stored::Signed,
            _ if decimal => Stored::Decimal(unit()),
            Physical::INT32 | Physical::INT64 if unsigned => Stored::Unsigned,
            Physical::INT32 | Physical::INT64 => Stored::Signed,
            Physical::BOOLEAN => Stored::Truth,
            Physical::FLOAT | Physical::DOUBLE => Stored::Float,
            other => return Err(refused(&other.to_string())),
        };
        Ok(Decoded {
            stored,
            texts: StringBuilder::new(),
            ints: Int64Builder::new(),
            floats: Float64Builder::new(),
        })
    }

    fn read(&mut self, reader: ColumnReader, nullable: i16, budget: &mut Budget) -> Result<()> {
        let unsigned = matches!(self.stored, Stored::Unsigned);
        match reader {
            ColumnReader::BoolColumnReader(r) => each(r, nullable, |cell| {
                self.texts.append_option(cell.map(|yes| if yes { "true" } else { "false" }));
                Ok(())
            }),
            ColumnReader::Int32ColumnReader(r) => each(r, nullable, |cell| {
                self.int(cell.map(|n| if unsigned { i64::from(n.cast_unsigned()) } else { i64::from(n) }))
            }),
            ColumnReader::Int64ColumnReader(r) => each(r, nullable, |cell| self.int(cell)),
            ColumnReader::Int96ColumnReader(r) => {
                each(r, nullable, |cell| self.int(cell.map(|time| time.to_nanos())))
            }
            ColumnReader::FloatColumnReader(r) => each(r, nullable, |cell| {
                self.floats.append_option(cell.map(f64::from));
                Ok(())
            }),
            ColumnReader::DoubleColumnReader(r) => each(r, nullable, |cell| {
                self.floats.append_option(cell);
                Ok(())
            }),
            ColumnReader::ByteArrayColumnReader(r) => {
                each(r, nullable, |cell| self.bytes(cell.as_ref().map(AsBytes::as_bytes), budget))
            }
            ColumnReader::FixedLenByteArrayColumnReader(r) => {
                each(r, nullable, |cell| self.bytes(cell.as_ref().map(AsBytes::as_bytes), budget))
            }
        }
    }

    fn int(&mut self, cell: Option<i64>) -> Result<()> {
        match self.stored {
            Stored::Decimal(unit) => self.floats.append_option(cell.map(|n| n as f64 / unit)),
            _ => self.ints.append_option(cell),
        }
        Ok(())
    }

    /// Text, or a decimal number: big-endian, in two's complement.
    fn bytes(&mut self, cell: Option<&[u8]>, budget: &mut Budget) -> Result<()> {
        if let Stored::Decimal(unit) = self.stored {
            let number = |bytes: &[u8]| {
                let below = bytes.first().is_some_and(|b| b & 0x80 != 0);
                bytes.iter().fold(if below { -1.0 } else { 0.0 }, |n, &b| n * 256.0 + f64::from(b))
            };
            self.floats.append_option(cell.map(|bytes| number(bytes) / unit));
            return Ok(());
        }
        budget.take(cell.map_or(0, |text| text.len() as u64))?;
        if self.texts.values_slice().len() + cell.map_or(0, <[u8]>::len) > i32::MAX as usize {
            return Err(wrong("a column has more than 2 GiB of text".into()));
        }
        let text = cell.map(str::from_utf8).transpose();
        self.texts.append_option(text.map_err(|e| wrong(format!("a text is not UTF-8: {e}")))?);
        Ok(())
    }

    fn finish(mut self) -> (Type, ArrayRef) {
        match self.stored {
            Stored::Text | Stored::Truth => (Type::Text, Arc::new(self.texts.finish())),
            Stored::Nothing => {
                (0..self.ints.len() + self.floats.len()).for_each(|_| self.texts.append_null());
                (Type::Text, Arc::new(self.texts.finish()))
            }
            Stored::Float | Stored::Decimal(_) => (Type::Float, Arc::new(self.floats.finish())),
            Stored::Signed | Stored::Unsigned => {
                let ints = self.ints.finish();
                match self.stored {
                    Stored::Signed if ints.iter().flatten().any(|n| n < 0) => {
                        (Type::Float, Arc::new(ints.unary::<_, Float64Type>(|n| n as f64)))
                    }
                    _ => (Type::Int, Arc::new(ints.unary::<_, UInt64Type>(i64::cast_unsigned))),
                }
            }
        }
    }
}

/// Passes every cell of a column chunk to `cell`, `None` for null.
fn each<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    nullable: i16,
    mut cell: impl FnMut(Option<T::T>) -> Result<()>,
) -> Result<()> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    loop {
        values.clear();
        levels.clear();
        let (rows, ..) = reader.read_records(ROWS, Some(&mut levels), None, &mut values)?;
        if rows == 0 {
            return Ok(());
        }
        let mut values = values.drain(..);
        if nullable == 0 {
            values.try_for_each(|value| cell(Some(value)))?;
            continue;
        }
        for &level in &levels {
            match level == nullable {
                true => cell(Some(values.next().ok_or_else(|| wrong("a column is too short".into()))?))?,
                false => cell(None)?,
            }
        }
    }
}
