//! Checks Parquet files before they are decoded. The `parquet` crate allocates the sizes that a file claims
//! for each page and dictionary, and recurses as deep as the schema nests. So this module reads those values
//! first. The headers are structures in Thrift's compact protocol
//! (<https://github.com/apache/parquet-format>).

use std::ops::Range;

use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::{Budget, Error, Result};

/// Maximum bytes of a decompressed page. Writers begin a new page at 1 MiB.
const PAGE: i64 = 64 << 20;

/// Maximum entries of a dictionary. Writers stop at 1 MiB of entries.
const ENTRIES: i64 = 4 << 20;

/// Maximum number of columns and column groups in a schema, and their maximum nesting depth.
const NODES: usize = 1 << 16;
const DEPTH: usize = 16;

/// Memory for each byte of a file's metadata.
const METADATA: u64 = 32;

/// Maximum nesting depth of skipped structures.
const SKIPPED: u32 = 32;

/// A file with checked metadata.
pub(super) struct Checked {
    pub reader: SerializedFileReader<Bytes>,
    bytes: Bytes,
}

impl Checked {
    pub fn open(bytes: Vec<u8>, budget: &mut Budget) -> Result<Checked> {
        let bytes = Bytes::from(bytes);
        let footer = footer(&bytes).ok_or_else(|| wrong("it is not a Parquet file, or is cut off"))?;
        budget.take((footer.len() as u64).saturating_mul(METADATA))?;
        schema(footer).ok_or_else(|| wrong("its metadata are damaged, or its columns nest too deep"))?;
        Ok(Checked { reader: SerializedFileReader::new(bytes.clone())?, bytes })
    }

    /// The rows of some row groups.
    pub fn rows(&self, groups: Range<usize>) -> Result<u64> {
        let mut rows = 0u64;
        for group in groups {
            let count = self.reader.metadata().row_group(group).num_rows();
            let count = u64::try_from(count).ok();
            rows = count
                .and_then(|n| rows.checked_add(n))
                .ok_or_else(|| wrong("it has a negative number of rows"))?;
        }
        Ok(rows)
    }

    /// Checks the pages of a column, and takes their decompressed size out of the budget.
    pub fn pages(&self, group: usize, column: usize, budget: &mut Budget) -> Result<()> {
        let group = self.reader.metadata().row_group(group);
        let column = group.column(column);
        let of = |why: &str| wrong(&format!("column `{}`: {why}", column.column_descr().name()));
        let mut rest = chunk(&self.bytes, column).ok_or_else(|| of("it lies outside of the file"))?;
        let mut values = 0;
        while !rest.is_empty() {
            let page = Page::read(&mut rest).ok_or_else(|| of("the header of a page is damaged"))?;
            let inside = (0..=PAGE).contains(&page.uncompressed);
            if !inside {
                return Err(of("a page is longer than 64 MiB"));
            }
            budget.take(page.uncompressed.unsigned_abs())?;
            let compressed = usize::try_from(page.compressed).ok();
            rest = compressed
                .and_then(|n| rest.get(n..))
                .ok_or_else(|| of("a page lies outside of the file"))?;
            match page.kind {
                Kind::Dictionary => {
                    // A text is preceded by its length; numbers are at least as long as that.
                    let most = match column.column_type() {
                        Physical::FIXED_LEN_BYTE_ARRAY => page.uncompressed,
                        _ => page.uncompressed / 4,
                    };
                    if !(0..=most.min(ENTRIES)).contains(&page.values) {
                        return Err(of("a dictionary is shorter than it says"));
                    }
                }
                Kind::Data => {
                    if !page.decodes() {
                        return Err(of("its encoding is not supported"));
                    }
                    values = Some(page.values)
                        .filter(|n| *n >= 0)
                        .and_then(|n| i64::checked_add(values, n))
                        .filter(|sum| *sum <= group.num_rows())
                        .ok_or_else(|| of("it has more values than the file has rows"))?;
                }
                Kind::Other => {}
            }
        }
        if values != group.num_rows() {
            return Err(of(&format!("it has {values} values for {} rows", group.num_rows())));
        }
        Ok(())
    }
}

fn wrong(why: &str) -> Error {
    Error::Foreign(why.into())
}

/// The metadata at the end of a file.
fn footer(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(b"PAR1")?.strip_suffix(b"PAR1")?;
    let (rest, length) = rest.split_last_chunk::<4>()?;
    let begin = rest.len().checked_sub(u32::from_le_bytes(*length) as usize)?;
    rest.get(begin..)
}

/// The bytes of a column. The reader takes the same bytes.
fn chunk<'a>(bytes: &'a [u8], column: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    let begin = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let begin = usize::try_from(begin).ok()?;
    let length = usize::try_from(column.compressed_size()).ok()?;
    bytes.get(begin..begin.checked_add(length)?)
}

/// Checks that the schema in a file's metadata nests no deeper than [`DEPTH`].
fn schema(footer: &[u8]) -> Option<()> {
    let mut nodes = None;
    Thrift(footer).fields(|id, ty, thrift| {
        if (id, ty) != (2, Thrift::LIST) {
            return thrift.skip(ty, SKIPPED);
        }
        let (ty, count) = thrift.list()?;
        // A single schema, made of structures.
        (nodes.is_none() && ty == Thrift::STRUCT && count <= NODES).then_some(())?;
        let mut children = Vec::new();
        for _ in 0..count {
            let mut below = 0;
            thrift.fields(|id, ty, thrift| match (id, ty) {
                (5, Thrift::I32) => {
                    below = thrift.number()?;
                    Some(())
                }
                _ => thrift.skip(ty, SKIPPED),
            })?;
            children.push(usize::try_from(below).ok()?);
        }
        nodes = Some(children);
        Some(())
    })?;
    // Number of nodes still to come at each depth.
    let mut open: Vec<usize> = Vec::new();
    for children in nodes? {
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        (open.len() <= DEPTH).then_some(())?;
    }
    Some(())
}

/// The header of a page.
#[derive(Debug)]
struct Page {
    kind: Kind,
    uncompressed: i64,
    compressed: i64,
    values: i64,
    encoding: i64,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Data,
    Dictionary,
    /// An index, which is skipped.
    Other,
}

impl Page {
    fn read(bytes: &mut &[u8]) -> Option<Page> {
        let mut thrift = Thrift(bytes);
        let mut fields = [None; 4];
        // Data, dictionary, data of the second version: values and encoding.
        let mut kinds = [None; 3];
        thrift.fields(|id, ty, thrift| match (id, ty) {
            (1..=3, Thrift::I32) => once(fields.get_mut(id as usize)?, thrift.number()?),
            (5 | 7 | 8, Thrift::STRUCT) => {
                let place = if id == 8 { 4 } else { 2 };
                let (mut values, mut encoding) = (None, None);
                thrift.fields(|id, ty, thrift| match (id, ty) {
                    (1, Thrift::I32) => once(&mut values, thrift.number()?),
                    (id, Thrift::I32) if id == place => once(&mut encoding, thrift.number()?),
                    _ => thrift.skip(ty, SKIPPED),
                })?;
                let at = if id == 5 { 0 } else { id as usize - 6 };
                once(kinds.get_mut(at)?, (values?, encoding?))
            }
            _ => thrift.skip(ty, SKIPPED),
        })?;
        *bytes = thrift.0;
        let (kind, (values, encoding)) = match fields[1]? {
            0 => (Kind::Data, kinds[0]?),
            1 => (Kind::Other, (0, 0)),
            2 => (Kind::Dictionary, kinds[1]?),
            3 => (Kind::Data, kinds[2]?),
            _ => return None,
        };
        Some(Page { kind, uncompressed: fields[2]?, compressed: fields[3]?, values, encoding })
    }

    /// Whether the encoding has no embedded lengths that the decoder would allocate.
    fn decodes(&self) -> bool {
        let known = [
            Encoding::PLAIN,
            Encoding::PLAIN_DICTIONARY,
            Encoding::RLE,
            Encoding::DELTA_BINARY_PACKED,
            Encoding::RLE_DICTIONARY,
            Encoding::BYTE_STREAM_SPLIT,
        ];
        known.iter().any(|encoding| *encoding as i64 == self.encoding)
    }
}

/// Sets a field that a structure may contain once.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// A reader of Thrift's compact protocol.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    const I32: u8 = 5;
    const LIST: u8 = 9;
    const STRUCT: u8 = 12;

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A signed number.
    fn number(&mut self) -> Option<i64> {
        let n = self.varint()?;
        Some((n >> 1).cast_signed() ^ -((n & 1).cast_signed()))
    }

    /// The type and the number of a list's elements.
    fn list(&mut self) -> Option<(u8, usize)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            short => short.into(),
        };
        // Each element takes at least one byte.
        (count <= self.0.len()).then_some((head & 15, count))
    }

    /// Passes the number and the type of each field of a structure to `field`, which reads the value.
    fn fields(&mut self, mut field: impl FnMut(i16, u8, &mut Self) -> Option<()>) -> Option<()> {
        let mut id = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => i16::try_from(self.number()?).ok()?,
                more => id.checked_add(more.into())?,
            };
            field(id, head & 15, self)?;
        }
    }

    fn skip(&mut self, ty: u8, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut bytes = |count: usize| {
            self.0 = self.0.get(count..)?;
            Some(())
        };
        match ty {
            // The type of a Boolean field is its value.
            1 | 2 => Some(()),
            3 => bytes(1),
            4..=6 => self.varint().map(|_| ()),
            7 => bytes(8),
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.0 = self.0.get(length..)?;
                Some(())
            }
            9 | 10 => {
                let (ty, count) = self.list()?;
                (0..count).try_for_each(|_| self.element(ty, depth))
            }
            11 => {
                let count = self.varint()?;
                let types = if count > 0 { self.byte()? } else { 0 };
                (0..count).try_for_each(|_| {
                    self.element(types >> 4, depth)?;
                    self.element(types & 15, depth)
                })
            }
            12 => self.fields(|_, ty, thrift| thrift.skip(ty, depth)),
            13 => bytes(16),
            _ => None,
        }
    }

    /// Skips an element of a list. Booleans take a byte there.
    fn element(&mut self, ty: u8, depth: u32) -> Option<()> {
        match ty {
            1 | 2 => self.byte().map(|_| ()),
            _ => self.skip(ty, depth),
        }
    }
}
