//! Recovers an Arrow IPC stream that was cut off at any byte.
//!
//! The three column types of a table are decoded here: the Arrow reader trusts the lengths and offsets of a
//! stream, and on wrong ones it panics or allocates any amount of memory.

use std::io::{self, Read};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Message, MessageHeader, Precision, Type, root_as_message};
use arrow_schema::{DataType, SchemaRef};

/// The readable part of a stream.
pub struct Recovered {
    /// The stream's schema.
    pub schema: SchemaRef,
    /// The complete batches, in order.
    pub batches: Vec<RecordBatch>,
    /// Bytes after the last complete batch.
    pub dropped: usize,
    /// Why bytes were dropped; `None` if none were.
    pub why: Option<String>,
}

/// Reads the complete batches at the start of a stream. `Ok(None)`: the stream was cut off before its schema
/// was complete, so there is nothing to recover. `Err`: it does not begin as a stream of a table.
pub fn recover(bytes: &[u8]) -> Result<Option<Recovered>, String> {
    let (schema, mut end) = match head(bytes) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(None),
        // A truncated start, and zeros to the end of the file.
        Err(_) if matches!(frame(trim_zeros(bytes)), Frame::Cut) => return Ok(None),
        Err(why) => return Err(why),
    };
    let mut batches = Vec::new();
    let why = loop {
        match frame(&bytes[end..]) {
            Frame::Whole { message, body, len } => match batch(&schema, message, body) {
                Ok(batch) => {
                    batches.push(batch);
                    end += len;
                }
                Err(why) => break Some(why),
            },
            Frame::Cut if end == bytes.len() => break None,
            Frame::Cut => break Some("the stream is cut off".into()),
            Frame::Zeros => break Some("they never reached the disk".into()),
            Frame::End if end + END == bytes.len() => {
                end += END;
                break None;
            }
            Frame::End => break Some("they lie behind the end of the stream".into()),
            Frame::Wrong(why) => break Some(why.into()),
        }
    };
    Ok(Some(Recovered { schema, batches, dropped: bytes.len() - end, why }))
}

/// Reads back a complete stream that this process wrote, batch by batch.
pub(crate) struct Batches<R> {
    from: R,
    schema: SchemaRef,
    frame: Vec<u8>,
}

impl<R: Read> Batches<R> {
    /// Reads the schema.
    pub(crate) fn new(mut from: R) -> io::Result<Batches<R>> {
        let mut frame = Vec::new();
        fill(&mut from, &mut frame)?;
        let schema = match head(&frame) {
            Ok(Some((schema, _))) => schema,
            Ok(None) => return Err(changed("it is cut off")),
            Err(why) => return Err(changed(&why)),
        };
        Ok(Batches { from, schema, frame })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<RecordBatch>> {
        fill(&mut self.from, &mut self.frame)?;
        match frame(&self.frame) {
            Frame::Whole { message, body, .. } => {
                batch(&self.schema, message, body).map(Some).map_err(|why| changed(&why))
            }
            Frame::End => Ok(None),
            Frame::Cut if self.frame.is_empty() => Ok(None),
            Frame::Cut | Frame::Zeros => Err(changed("it is cut off")),
            Frame::Wrong(why) => Err(changed(why)),
        }
    }
}

/// Reads the next frame: its head and metadata, which contain the length of its body, and the body.
fn fill(from: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    let mut more = |bytes: &mut Vec<u8>, count: usize| from.by_ref().take(count as u64).read_to_end(bytes);
    more(bytes, 8)?;
    let Some(length) = bytes.get(4..8).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) else {
        return Ok(());
    };
    more(bytes, length as usize)?;
    let body = root_as_message(&bytes[8..]).map(|message| message.bodyLength());
    if let Some(body) = body.ok().and_then(|length| usize::try_from(length).ok()) {
        more(bytes, body)?;
    }
    Ok(())
}

fn changed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is not what was written: {why}"))
}

/// The schema and the length of its frame.
fn head(bytes: &[u8]) -> Result<Option<(SchemaRef, usize)>, String> {
    match frame(bytes) {
        Frame::Whole { message, body: [], len } => Ok(Some((schema(message)?, len))),
        Frame::Whole { .. } => Err("its schema message has a body".into()),
        Frame::Cut | Frame::Zeros => Ok(None),
        Frame::End => Err("it ends before its schema".into()),
        Frame::Wrong(why) => Err(format!("it does not begin as an Arrow stream: {why}")),
    }
}

fn trim_zeros(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1)]
}

/// Continuation marker and a length of zero.
const END: usize = 8;

enum Frame<'a> {
    /// `len` is the whole frame's length, `body` the part after the metadata.
    Whole {
        message: Message<'a>,
        body: &'a [u8],
        len: usize,
    },
    /// The bytes end before the frame does.
    Cut,
    /// The marker that ends a stream.
    End,
    /// Zeros up to the end of the file.
    Zeros,
    Wrong(&'static str),
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let (Some(marker), Some(length)) = (word(0), word(4)) else { return Frame::Cut };
    match (marker, length) {
        (u32::MAX, 0) => return Frame::End,
        (u32::MAX, _) => {}
        // A file that grew before its blocks reached the disk reads as zeros there.
        (0, 0) if bytes.iter().all(|&b| b == 0) => return Frame::Zeros,
        _ => return Frame::Wrong("a message does not begin with ffffffff"),
    }
    let Some((metadata, rest)) = bytes[8..].split_at_checked(length as usize) else { return Frame::Cut };
    let Ok(message) = root_as_message(metadata) else { return Frame::Wrong("a message cannot be decoded") };
    let Ok(body) = usize::try_from(message.bodyLength()) else {
        return Frame::Wrong("a message has a negative length");
    };
    match rest.get(..body) {
        Some(body) => Frame::Whole { message, body, len: 8 + metadata.len() + body.len() },
        None => Frame::Cut,
    }
}

/// Only the types of tables: UTF-8, unsigned 64-bit and 64-bit float, no dictionaries, no nesting.
fn schema(message: Message) -> Result<SchemaRef, String> {
    let Some(schema) = message.header_as_schema() else {
        return Err("its first message is not a schema".into());
    };
    let fields = schema.fields().unwrap_or_default();
    if fields.is_empty() {
        return Err("its schema has no columns".into());
    }
    for field in fields {
        let name = field.name().unwrap_or("");
        let plain = field.dictionary().is_none() && field.children().is_none_or(|c| c.is_empty());
        let known = match field.type_type() {
            Type::Utf8 => field.type_as_utf_8().is_some(),
            Type::Int => field.type_as_int().is_some_and(|t| t.bitWidth() == 64 && !t.is_signed()),
            Type::FloatingPoint => {
                field.type_as_floating_point().is_some_and(|t| t.precision() == Precision::DOUBLE)
            }
            _ => false,
        };
        if !(plain && known) || name.is_empty() {
            return Err(format!("column `{name}` has a type that tables do not have"));
        }
    }
    try_fb_to_schema(schema).map(Arc::new).map_err(|e| e.to_string())
}

fn batch(schema: &SchemaRef, message: Message, body: &[u8]) -> Result<RecordBatch, String> {
    if message.header_type() != MessageHeader::RecordBatch {
        return Err("a message is not a record batch".into());
    }
    let Some(batch) = message.header_as_record_batch() else {
        return Err("a record batch cannot be decoded".into());
    };
    if batch.compression().is_some() {
        return Err("a record batch is compressed".into());
    }
    let rows = batch.length();
    // The narrowest column takes 4 bytes per row, so there cannot be more rows than bytes.
    let Some(n) = usize::try_from(rows).ok().filter(|&n| n <= body.len()) else {
        return Err(format!("a record batch of {} bytes claims {rows} rows", body.len()));
    };
    let mut nodes = batch.nodes().unwrap_or_default().iter();
    // Each column is copied, so no byte may belong to several.
    let mut left = body.len();
    let mut buffers = batch.buffers().unwrap_or_default().iter().map(|b| {
        let (at, len) = (usize::try_from(b.offset()).ok()?, usize::try_from(b.length()).ok()?);
        left = left.checked_sub(len)?;
        body.get(at..at.checked_add(len)?)
    });
    let mut buffer = || match buffers.next() {
        Some(Some(bytes)) => Ok(bytes),
        Some(None) => Err("a column of a record batch lies outside it, or in another"),
        None => Err("a record batch has too few columns"),
    };
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let Some(node) = nodes.next().filter(|node| node.length() == rows) else {
            return Err(format!("column `{}` of a record batch has another length", field.name()));
        };
        let valid = buffer()?;
        let nulls = (node.null_count() > 0).then(|| nulls(valid, n)).transpose()?;
        columns.push(match field.data_type() {
            DataType::UInt64 => {
                let values = words(buffer()?, n)?.map(u64::from_le_bytes).collect::<ScalarBuffer<_>>();
                Arc::new(UInt64Array::new(values, nulls)) as ArrayRef
            }
            DataType::Float64 => {
                let values = words(buffer()?, n)?.map(f64::from_le_bytes).collect::<ScalarBuffer<_>>();
                Arc::new(Float64Array::new(values, nulls))
            }
            _ => {
                let offsets = offsets(buffer()?, n)?;
                let text = Buffer::from(buffer()?);
                Arc::new(StringArray::try_new(offsets, text, nulls).map_err(|e| e.to_string())?)
            }
        });
    }
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| e.to_string())
}

const SHORT: &str = "a column of a record batch is too short";

fn nulls(bytes: &[u8], rows: usize) -> Result<NullBuffer, &'static str> {
    let bytes = bytes.get(..rows.div_ceil(8)).ok_or(SHORT)?;
    Ok(NullBuffer::new(BooleanBuffer::new(Buffer::from(bytes), 0, rows)))
}

/// The first `count` items of `N` bytes each.
fn words<const N: usize>(bytes: &[u8], count: usize) -> Result<impl Iterator<Item = [u8; N]>, &'static str> {
    let bytes = count.checked_mul(N).and_then(|len| bytes.get(..len)).ok_or(SHORT)?;
    Ok(bytes.as_chunks::<N>().0.iter().copied())
}

fn offsets(bytes: &[u8], rows: usize) -> Result<OffsetBuffer<i32>, &'static str> {
    if rows == 0 {
        return Ok(OffsetBuffer::new_empty());
    }
    let offsets: Vec<i32> = words(bytes, rows + 1)?.map(i32::from_le_bytes).collect();
    if offsets[0] < 0 || !offsets.is_sorted() {
        return Err("a text column of a record batch has wrong offsets");
    }
    Ok(OffsetBuffer::new(offsets.into()))
}
