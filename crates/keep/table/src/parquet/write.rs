//! Writes tables.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{Array, Float64Array, StringArray, UInt64Array};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType as Stored, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type as Node;

use super::ARROW_SCHEMA;
use crate::{Result, Table, Type};

/// Rows of a row group: few enough to be buffered before they are written.
const ROWS: usize = 1 << 17;
/// Bytes of text of a row group.
const TEXT: usize = 64 << 20;
/// The same for recordings, together with the bytes of their numbers. A recording may be finished during an
/// endless observation, which must stay small in memory.
const RECORDING: usize = 4 << 20;
/// Memory of a buffered number and its validity.
const NUMBER: usize = 16;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For recordings: Snappy compression, unsigned integers.
    Recording,
    /// For query engines, many of which support only signed integers: zstd compression, signed integers.
    /// Numbers from 2^63 on are refused.
    Engines,
}

/// Writes successive tables with the same columns into one file.
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Cells>,
    style: Style,
    /// Maximum rows and bytes of text of a row group.
    most: (usize, usize),
    rows: usize,
    text: usize,
}

/// Buffered cells of a column: the values, and the validity (1: valid) of each row.
enum Cells {
    Text(Vec<ByteArray>, Vec<i16>),
    Int(Vec<i64>, Vec<i16>),
    Float(Vec<f64>, Vec<i16>),
}

impl<W: Write + Send> Writer<W> {
    /// Starts a file with the columns of `first`, without writing its rows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(out: W, first: &Table) -> Result<Writer<W>> {
        Writer::styled(out, first, Style::Recording)
    }

    /// As [`Writer::new`], with a style.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn styled(out: W, first: &Table, style: Style) -> Result<Writer<W>> {
        let fields = first.columns().iter().map(|column| {
            let (physical, logical) = match column.ty {
                Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                Type::Int => (Physical::INT64, Some(LogicalType::integer(64, style == Style::Engines))),
                Type::Float => (Physical::DOUBLE, None),
            };
            let node = Node::primitive_type_builder(&column.name, physical)
                .with_logical_type(logical)
                .with_repetition(Repetition::OPTIONAL);
            node.build().map(Arc::new)
        });
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let schema = Node::group_type_builder("arrow_schema").with_fields(fields).build()?;
        let schema_of_arrow = match style {
            Style::Recording => encoded(&first.batch().schema()),
            Style::Engines => encoded(&signed(&first.batch().schema())),
        };
        let meaning = KeyValue::new(ARROW_SCHEMA.into(), schema_of_arrow);
        let properties = WriterProperties::builder()
            .set_compression(match style {
                Style::Recording => Compression::SNAPPY,
                Style::Engines => Compression::ZSTD(ZstdLevel::default()),
            })
            .set_key_value_metadata(Some(vec![meaning]))
            .build();
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        let columns = first.columns().iter().map(|c| Cells::new(c.ty)).collect();
        let most = match style {
            Style::Recording => (ROWS.min(RECORDING / NUMBER / first.columns().len().max(1)), RECORDING),
            Style::Engines => (ROWS, TEXT),
        };
        Ok(Writer { file, columns, style, most, rows: 0, text: 0 })
    }

    /// Adds the rows of a table with the columns of the first one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, table: &Table) -> Result<()> {
        let mut from = 0;
        while from < table.num_rows() {
            let rows = (table.num_rows() - from).min(self.most.0 - self.rows);
            let part = table.batch().slice(from, rows);
            for (cells, array) in self.columns.iter_mut().zip(part.columns()) {
                self.text += cells.extend(array)?;
                if let (Cells::Int(values, _), Style::Engines) = (&cells, self.style)
                    && values.iter().rev().take(rows).any(|&n| n < 0)
                {
                    return Err(ParquetError::General("a number is 2^63 or larger".into()).into());
                }
            }
            from += rows;
            self.rows += rows;
            if self.rows >= self.most.0 || self.text >= self.most.1 {
                self.row_group()?;
            }
        }
        Ok(())
    }

    /// Writes the remaining rows and the footer. Returns the underlying writer.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn close(mut self) -> Result<W> {
        if self.rows > 0 {
            self.row_group()?;
        }
        Ok(self.file.into_inner()?)
    }

    fn row_group(&mut self) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for cells in &mut self.columns {
            match cells {
                Cells::Text(values, known) => column::<ByteArrayType, _>(&mut group, values, known)?,
                Cells::Int(values, known) => column::<Int64Type, _>(&mut group, values, known)?,
                Cells::Float(values, known) => column::<DoubleType, _>(&mut group, values, known)?,
            }
        }
        group.close()?;
        (self.rows, self.text) = (0, 0);
        Ok(())
    }
}

impl Cells {
    fn new(ty: Type) -> Cells {
        match ty {
            Type::Text => Cells::Text(Vec::new(), Vec::new()),
            Type::Int => Cells::Int(Vec::new(), Vec::new()),
            Type::Float => Cells::Float(Vec::new(), Vec::new()),
        }
    }

    /// Appends an array's cells. Returns the bytes of their text.
    fn extend(&mut self, array: &dyn Array) -> Result<usize> {
        let any = array.as_any();
        let valid = |row: &usize| array.is_valid(*row);
        let (known, text) = match self {
            Cells::Text(values, known) => {
                let texts = any.downcast_ref::<StringArray>().ok_or_else(other)?;
                // One copy for all cells; each cell is a part of it.
                let base = texts.value_offsets().first().map_or(0, |&o| o as usize);
                let end = texts.value_offsets().last().map_or(0, |&o| o as usize);
                let bytes = Bytes::copy_from_slice(&texts.value_data()[base..end]);
                let cell = |row: usize| {
                    let at = texts.value_offsets()[row] as usize - base;
                    ByteArray::from(bytes.slice(at..at + texts.value_length(row) as usize))
                };
                values.extend((0..texts.len()).filter(valid).map(cell));
                (known, end - base)
            }
            Cells::Int(values, known) => {
                let ints = any.downcast_ref::<UInt64Array>().ok_or_else(other)?;
                values.extend(ints.iter().flatten().map(u64::cast_signed));
                (known, 0)
            }
            Cells::Float(values, known) => {
                let floats = any.downcast_ref::<Float64Array>().ok_or_else(other)?;
                values.extend(floats.iter().flatten());
                (known, 0)
            }
        };
        known.extend((0..array.len()).map(|row| i16::from(array.is_valid(row))));
        Ok(text)
    }
}

fn other() -> ParquetError {
    ParquetError::General("a table has a column whose type differs from the file's".into())
}

fn column<T: Stored, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
    known: &mut Vec<i16>,
) -> Result<()> {
    let mut writer = group.next_column()?.ok_or_else(other)?;
    writer.typed::<T>().write_batch(values, Some(known), None)?;
    writer.close()?;
    values.clear();
    known.clear();
    Ok(())
}

/// The schema with signed integers.
fn signed(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::UInt64 => field.as_ref().clone().with_data_type(DataType::Int64),
        _ => field.as_ref().clone(),
    };
    Schema::new_with_metadata(
        schema.fields().iter().map(field).collect::<Vec<_>>(),
        schema.metadata().clone(),
    )
}

/// The schema in the form that other Parquet readers expect: an Arrow message after its length, in base 64.
fn encoded(schema: &Schema) -> String {
    let mut dictionaries = DictionaryTracker::new(true);
    let message = IpcDataGenerator::default()
        .schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &IpcWriteOptions::default())
        .ipc_message;
    let mut bytes = vec![0xff; 4];
    bytes.extend((message.len() as u32).to_le_bytes());
    bytes.extend(message);
    BASE64_STANDARD.encode(bytes)
}
