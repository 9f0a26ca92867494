//! Reads BTF, the type information of a kernel (Documentation/bpf/btf.rst), without libbpf.
//!
//! A file is indexed once (about 6 ms and 6 MB for a kernel); a type is decoded when asked for.

mod part;

pub use part::Kernel;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Deeper nesting than any real type has.
pub const MAX_DEPTH: u32 = 24;

/// The types that the contention tracepoints report, by tag or typedef. A member of one of these is a lock; what lies
/// inside it at offset 0 is its own business.
pub const LOCK_TYPES: &[&str] = &[
    "spinlock_t",
    "spinlock",
    "raw_spinlock_t",
    "raw_spinlock",
    "arch_spinlock_t",
    "qspinlock",
    "rqspinlock_t",
    "rwlock_t",
    "arch_rwlock_t",
    "qrwlock",
    "mutex",
    "ww_mutex",
    "rw_semaphore",
    "percpu_rw_semaphore",
    "rt_mutex",
    "rt_mutex_base",
    "semaphore",
];

/// Why there are no kernel types.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file could not be read.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The file is not BTF, or of a kind not known.
    #[error("{}: no BTF this program can read ({what})", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Kinds of types, as `enum` of `include/uapi/linux/btf.h` numbers them.
#[allow(missing_docs)]
pub mod kind {
    pub const INT: u8 = 1;
    pub const PTR: u8 = 2;
    pub const ARRAY: u8 = 3;
    pub const STRUCT: u8 = 4;
    pub const UNION: u8 = 5;
    pub const ENUM: u8 = 6;
    pub const FWD: u8 = 7;
    pub const TYPEDEF: u8 = 8;
    pub const VOLATILE: u8 = 9;
    pub const CONST: u8 = 10;
    pub const RESTRICT: u8 = 11;
    pub const FUNC_PROTO: u8 = 13;
    pub const VAR: u8 = 14;
    pub const DATASEC: u8 = 15;
    pub const FLOAT: u8 = 16;
    pub const TYPE_TAG: u8 = 18;
    pub const ENUM64: u8 = 19;
}

/// One BTF file: its bytes and where each type starts.
#[derive(Debug)]
pub struct Section {
    bytes: Vec<u8>,
    types: Vec<u32>,
    strings: Range<usize>,
    /// Hash of the name and number of each named struct, sorted.
    structs: Vec<(u64, u32)>,
    /// The number of its first type, and the offset of its first string, in a module's numbering.
    first_type: u32,
    first_string: u32,
}

impl Section {
    /// Reads a file; a module's is numbered on from its `base`, the kernel's.
    ///
    /// # Errors
    /// The file cannot be read, or is not BTF of this machine's byte order.
    pub fn read(path: &Path, base: Option<&Section>) -> Result<Section, BtfError> {
        let bytes = fs::read(path).map_err(|source| BtfError::Io { path: path.into(), source })?;
        Section::parse(bytes, base).map_err(|what| BtfError::Malformed { path: path.into(), what })
    }

    /// The same of a file's bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: Vec<u8>, base: Option<&Section>) -> Result<Section, &'static str> {
        let (starts, strings) = index(&bytes)?;
        let (first_type, first_string) = match base {
            // Type 0 is void and stands in no file.
            None => (1, 0),
            Some(b) => (b.first_type + b.types.len() as u32, b.strings.len() as u32),
        };
        let structs = Vec::new();
        let mut section = Section { types: starts, strings, structs, first_type, first_string, bytes };
        section.structs = Types::new(base, &section).structs();
        Ok(section)
    }
}

/// The types of one section, on top of those of its base.
#[derive(Clone, Copy, Debug)]
pub struct Types<'a> {
    base: Option<&'a Section>,
    own: &'a Section,
}

/// The part that all kinds of types have.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Offset of the name, for [`Types::string`].
    pub name: u32,
    /// One of [`kind`].
    pub kind: u8,
    /// How many members, values, parameters or variables follow.
    pub len: usize,
    /// Whether offsets of members carry a bit field's width.
    pub bitfields: bool,
    /// The size in bytes, or the type it refers to, by kind.
    pub size: u32,
    /// Where what follows the common part starts.
    body: usize,
    own: bool,
}

impl<'a> Types<'a> {
    /// The types of `own`, which goes on where `base` ends.
    pub fn new(base: Option<&'a Section>, own: &'a Section) -> Types<'a> {
        Types { base, own }
    }

    /// The type numbered `id`.
    pub fn record(&self, id: u32) -> Option<Record> {
        let own = id >= self.own.first_type;
        let section = if own { self.own } else { self.base? };
        let at = *section.types.get(id.checked_sub(section.first_type)? as usize)? as usize;
        let info = u32_at(&section.bytes, at + 4)?;
        Some(Record {
            name: u32_at(&section.bytes, at)?,
            kind: ((info >> 24) & 0x1f) as u8,
            len: (info & 0xffff) as usize,
            bitfields: info >> 31 != 0,
            size: u32_at(&section.bytes, at + 8)?,
            body: at + 12,
            own,
        })
    }

    /// The three numbers of a type's `i`th part: name, type and offset of a member; type, offset and
    /// size of a section's variable; element, index and length of an array.
    pub fn body(&self, record: &Record, i: usize) -> Option<[u32; 3]> {
        let section = if record.own { self.own } else { self.base? };
        words(&section.bytes, record.body + i * 12)
    }

    /// The text at an offset of the string section.
    pub fn string(&self, offset: u32) -> Option<&'a str> {
        let section = if offset >= self.own.first_string { self.own } else { self.base? };
        let text = section.bytes.get(section.strings.clone())?;
        let text = text.get((offset - section.first_string) as usize..)?;
        let end = text.iter().position(|&b| b == 0)?;
        std::str::from_utf8(&text[..end]).ok()
    }

    /// The numbers of its own section's types.
    pub fn own_ids(&self) -> Range<u32> {
        self.own.first_type..self.own.first_type + self.own.types.len() as u32
    }

    fn structs(&self) -> Vec<(u64, u32)> {
        let named = |id| {
            let r = self.record(id).filter(|r| r.kind == kind::STRUCT && r.name != 0)?;
            Some((hash(self.string(r.name)?), id))
        };
        let mut all: Vec<_> = self.own_ids().filter_map(named).collect();
        all.sort_unstable();
        all
    }

    /// The struct of its own section that has this name.
    pub fn find_struct(&self, name: &str) -> Option<u32> {
        let wanted = hash(name);
        let first = self.own.structs.partition_point(|s| s.0 < wanted);
        let same = self.own.structs[first..].iter().take_while(|s| s.0 == wanted);
        same.map(|s| s.1).find(|&id| self.record(id).and_then(|r| self.string(r.name)) == Some(name))
    }

    /// The data section of its own section that has this name.
    pub fn find_section(&self, name: &str) -> Option<u32> {
        // They stand at the end.
        self.own_ids().rev().find(|&id| {
            self.record(id).is_some_and(|r| r.kind == kind::DATASEC && self.string(r.name) == Some(name))
        })
    }

    /// The type behind typedefs and qualifiers; `seen` is called with each on the way, the last too.
    pub fn strip(&self, mut id: u32, mut seen: impl FnMut(&Record)) -> Option<u32> {
        for _ in 0..MAX_DEPTH {
            let r = self.record(id)?;
            seen(&r);
            match r.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => id = r.size,
                _ => return Some(id),
            }
        }
        None
    }

    /// The size of a type in bytes.
    pub fn size(&self, id: u32) -> Option<u64> {
        self.size_below(id, 0)
    }

    fn size_below(&self, id: u32, depth: u32) -> Option<u64> {
        let r = self.record(self.strip(id, |_| ())?)?;
        match r.kind {
            kind::ARRAY if depth < MAX_DEPTH => {
                let [element, _, count] = self.body(&r, 0)?;
                self.size_below(element, depth + 1)?.checked_mul(u64::from(count))
            }
            kind::PTR => Some(8),
            kind::ARRAY => None,
            _ => Some(u64::from(r.size)),
        }
    }
}

/// Where each type starts, and where the strings lie.
fn index(bytes: &[u8]) -> Result<(Vec<u32>, Range<usize>), &'static str> {
    let word = |at: usize| u32_at(bytes, at).ok_or("cut short");
    if word(0)? & 0xffff != 0xeb9f {
        return Err("bad magic");
    }
    let part = |offset: u32, len: u32| {
        let start = (word(4).ok()? as usize).checked_add(offset as usize)?;
        let end = start.checked_add(len as usize)?;
        (end <= bytes.len()).then_some(start..end)
    };
    let types = part(word(8)?, word(12)?).ok_or("cut short")?;
    let strings = part(word(16)?, word(20)?).ok_or("cut short")?;
    let mut starts = Vec::with_capacity(types.len() / 20);
    let mut at = types.start;
    while at < types.end {
        starts.push(at as u32);
        let info = word(at + 4)?;
        let len = (info & 0xffff) as usize;
        at += 12
            + match (info >> 24) & 0x1f {
                1 | 14 | 17 => 4,
                2 | 7..=12 | 16 | 18 => 0,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * len,
                6 | 13 => 8 * len,
                _ => return Err("unknown kind of type"),
            };
    }
    Ok((starts, strings))
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn words(bytes: &[u8], at: usize) -> Option<[u32; 3]> {
    Some([u32_at(bytes, at)?, u32_at(bytes, at.checked_add(4)?)?, u32_at(bytes, at.checked_add(8)?)?])
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
