//! Recovering an Arrow IPC stream that was cut off at any byte.
//!
//! The frames are checked here before the Arrow reader sees them, because it trusts lengths and
//! offsets: a bad one would make it panic or ask for any amount of memory.

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::{MessageHeader, Precision, Type, root_as_message};
use arrow_schema::SchemaRef;

/// What could be read of a stream.
pub struct Recovered {
    /// The stream's schema.
    pub schema: SchemaRef,
    /// The whole batches, in order.
    pub batches: Vec<RecordBatch>,
    /// Bytes behind the last whole batch.
    pub dropped: usize,
    /// Why the bytes were dropped; `None` where nothing was.
    pub why: Option<String>,
}

/// Reads the whole batches at the head of a stream. `Ok(None)`: the stream was cut off before its
/// schema was whole, so there is nothing to recover. `Err`: the head is no stream of a table.
pub fn recover(bytes: &[u8]) -> Result<Option<Recovered>, String> {
    let head = match frame(bytes) {
        Frame::Whole { message, len, body } => {
            check_schema(message)?;
            if body != 0 {
                return Err("its schema message has a body".into());
            }
            len
        }
        Frame::Cut | Frame::Zeros => return Ok(None),
        Frame::End => return Err("it ends before its schema".into()),
        Frame::Wrong(why) => return Err(format!("it does not begin as an Arrow stream: {why}")),
    };
    let columns = schema_columns(bytes);
    let mut end = head;
    let why = loop {
        match frame(&bytes[end..]) {
            Frame::Whole { message, len, body } => match check_batch(message, body, columns) {
                Ok(()) => end += len,
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

    let reader = StreamReader::try_new(&bytes[..end], None).map_err(|e| e.to_string())?;
    let schema = reader.schema();
    let mut batches = Vec::new();
    for batch in reader {
        match batch {
            Ok(batch) => batches.push(batch),
            // The frames are sound but the contents are not, so it was not cut off but damaged.
            Err(e) => return Err(format!("batch {} cannot be read: {e}", batches.len() + 1)),
        }
    }
    Ok(Some(Recovered { schema, batches, dropped: bytes.len() - end, why }))
}

/// Continuation marker and a length of zero.
const END: usize = 8;

enum Frame<'a> {
    /// `len` is the whole frame's, `body` the part behind the metadata.
    Whole {
        message: arrow_ipc::Message<'a>,
        len: usize,
        body: usize,
    },
    /// The bytes end before the frame does.
    Cut,
    /// The marker that ends a stream.
    End,
    /// Nothing but zeros up to the end of the file.
    Zeros,
    Wrong(&'static str),
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    };
    let (Some(marker), Some(length)) = (word(0), word(4)) else { return Frame::Cut };
    match (marker, length) {
        (u32::MAX, 0) => return Frame::End,
        (u32::MAX, _) => {}
        // A file that grew before its blocks reached the disk reads as zeros behind them.
        (0, 0) if bytes.iter().all(|&b| b == 0) => return Frame::Zeros,
        _ => return Frame::Wrong("a message does not begin with ffffffff"),
    }
    let Some(metadata) = bytes.get(8..8 + length as usize) else { return Frame::Cut };
    let Ok(message) = root_as_message(metadata) else { return Frame::Wrong("a message cannot be decoded") };
    let Ok(body) = usize::try_from(message.bodyLength()) else {
        return Frame::Wrong("a message has a negative length");
    };
    let rest = bytes.len() - 8 - metadata.len();
    if body > rest {
        return Frame::Cut;
    }
    Frame::Whole { message, len: 8 + metadata.len() + body, body }
}

/// Only what a table has: UTF-8, unsigned 64-bit and 64-bit float, no dictionaries, no nesting.
fn check_schema(message: arrow_ipc::Message) -> Result<(), String> {
    let Some(fields) = message.header_as_schema().and_then(|s| s.fields()) else {
        return Err("its first message is no schema".into());
    };
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
            return Err(format!("column `{name}` is of a type no table has"));
        }
        let whole = |kv: &arrow_ipc::KeyValue| kv.key().is_some() && kv.value().is_some();
        if !field.custom_metadata().is_none_or(|m| m.iter().all(|kv| whole(&kv))) {
            return Err(format!("column `{name}` has metadata without key or value"));
        }
    }
    Ok(())
}

/// Buffers of each column of the schema in the first frame: text has one more, its offsets.
fn schema_columns(bytes: &[u8]) -> Columns {
    let Frame::Whole { message, .. } = frame(bytes) else { return Columns::default() };
    let Some(fields) = message.header_as_schema().and_then(|s| s.fields()) else { return Columns::default() };
    let texts = fields.iter().filter(|f| f.type_type() == Type::Utf8).count();
    Columns { nodes: fields.len(), buffers: 2 * fields.len() + texts }
}

#[derive(Clone, Copy, Default)]
struct Columns {
    nodes: usize,
    buffers: usize,
}

fn check_batch(message: arrow_ipc::Message, body: usize, columns: Columns) -> Result<(), String> {
    if message.header_type() != MessageHeader::RecordBatch {
        return Err("a message is no record batch".into());
    }
    let Some(batch) = message.header_as_record_batch() else {
        return Err("a record batch cannot be decoded".into());
    };
    if batch.compression().is_some() {
        return Err("a record batch is compressed".into());
    }
    let rows = batch.length();
    // The narrowest column takes 4 bytes a row, so more rows than bytes is a lie.
    if usize::try_from(rows).map_or(true, |rows| rows > body) {
        return Err(format!("a record batch of {body} bytes claims {rows} rows"));
    }
    let (Some(nodes), Some(buffers)) = (batch.nodes(), batch.buffers()) else {
        return Err("a record batch has no columns".into());
    };
    if nodes.len() != columns.nodes || buffers.len() != columns.buffers {
        return Err("a record batch does not have the schema's columns".into());
    }
    if nodes.iter().any(|n| n.length() != rows || !(0..=rows).contains(&n.null_count())) {
        return Err("a column of a record batch has another length".into());
    }
    let inside = |b: &arrow_ipc::Buffer| {
        let (Ok(at), Ok(len)) = (usize::try_from(b.offset()), usize::try_from(b.length())) else {
            return false;
        };
        at.checked_add(len).is_some_and(|end| end <= body)
    };
    if !buffers.iter().all(inside) {
        return Err("a column of a record batch lies outside it".into());
    }
    Ok(())
}
