//! The offsets of members in a Java virtual machine's structures, which libjvm contains in tables for
//! debuggers (`vmStructs.cpp` of HotSpot), from JDK 9 on.

use std::collections::HashMap;

use ncpu_files::reader::Source;

use super::memory::{Memory, Pages};
use crate::elf::named_symbols;

/// Entries read of a table.
const MAX_ENTRIES: u64 = 1 << 14;
/// Bytes of a name.
const MAX_NAME: usize = 120;
/// From this version on, numbers in scope tables have no zero bytes (JDK-8292758).
const WITHOUT_ZEROS: u64 = 20;

/// The tables' link-time addresses: the first entries, and the offsets of an entry's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbols([u64; SYMBOLS.len()]);

const SYMBOLS: [&str; 12] = [
    "gHotSpotVMStructs",
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryTypeStringOffset",
    "gHotSpotVMStructEntryIsStaticOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMTypes",
    "gHotSpotVMTypeEntryTypeNameOffset",
    "gHotSpotVMTypeEntrySizeOffset",
    "gHotSpotVMTypeEntryArrayStride",
];

impl Symbols {
    /// The symbols of a libjvm; `None` if it is not HotSpot.
    pub fn read(file: &Source) -> Option<Symbols> {
        let found = file.parsed(|file| named_symbols(file, true, &SYMBOLS));
        let mut found = found.into_iter().map(|at| at.map_or(0, |(address, _)| address));
        let found: [u64; SYMBOLS.len()] = std::array::from_fn(|_| found.next().unwrap_or(0));
        found.iter().all(|a| *a != 0).then_some(Symbols(found))
    }
}

/// A member of a structure: its offset, and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub at: u64,
    pub bytes: u8,
}

impl Member {
    /// Its value in the structure at `structure`.
    pub fn value(self, memory: &impl Memory, structure: u64) -> Option<u64> {
        memory.number(structure.checked_add(self.at)?, self.bytes)
    }

    /// Its value as a signed number.
    pub fn signed(self, memory: &impl Memory, structure: u64) -> Option<i64> {
        let unused = 64 - 8 * u32::from(self.bytes);
        Some((self.value(memory, structure)? << unused) as i64 >> unused)
    }
}

/// A part that a member refers to: by a pointer, or by its distance from a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Pointer(Member),
    Offset(Member),
}

impl Part {
    /// Its address, for the structure at `structure`.
    pub fn address(self, memory: &impl Memory, structure: u64, base: u64) -> Option<u64> {
        match self {
            Part::Pointer(member) => member.value(memory, structure).filter(|p| *p != 0),
            Part::Offset(member) => base.checked_add(member.value(memory, structure)?),
        }
    }
}

/// The members used here, by their names in the virtual machine's sources. Static variables are given by
/// their link-time addresses.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub heaps: u64,
    pub interpreter: u64,
    pub array_length: Member,
    pub array_data: Member,
    pub heap_memory: u64,
    pub heap_segments: u64,
    pub heap_shift: Member,
    pub space_low: Member,
    pub space_high: Member,
    pub block_used: Member,
    pub block_size: u64,
    pub queue_buffer: Member,
    pub queue_limit: Member,
    pub blob_name: Member,
    pub blob_size: Member,
    pub blob_code: Part,
    pub blob_complete: Member,
    pub blob_frame: Member,
    pub nmethod_method: Member,
    pub nmethod_number: Member,
    pub method_const: Member,
    pub const_pool: Member,
    pub const_name: Member,
    pub pool_holder: Member,
    pub pool_length: Member,
    pub pool_size: u64,
    pub klass_name: Member,
    pub symbol_length: Member,
    pub symbol_body: u64,
    pub scopes: Option<Scopes>,
}

/// The places in compiled code that describe its inlined functions.
#[derive(Clone, Debug)]
pub(super) struct Scopes {
    /// The program counters, 16 bytes each, and their end: parts of `base`.
    pub counters: Part,
    pub counters_end: Part,
    /// The base of the two fields before: the code object, or the address it points to.
    pub base: Option<Member>,
    /// The scopes: a pointer, or a part of `base`.
    pub data: Part,
    /// The functions that scopes name by number.
    pub metadata: Metadata,
    pub without_zeros: bool,
}

/// The place of the functions that scopes refer to by number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Metadata {
    /// At this distance from the code object's beginning.
    Offset(Member),
    /// At the second distance from the address that the first points to.
    Behind(Member, Member),
}

impl Layout {
    /// Reads the tables of a virtual machine that was loaded at a distance of `bias` from its link-time
    /// addresses.
    pub fn read(memory: &impl Memory, symbols: &Symbols, bias: u64) -> Option<Layout> {
        let pages = Pages::new(memory);
        let tables = Tables::read(&pages, symbols, bias)?;
        let member =
            |structure: &str, name: &str| tables.members.get(&format!("{structure}::{name}")).copied();
        let fixed = |structure: &str, name: &str| {
            tables.statics.get(&format!("{structure}::{name}")).map(|at| at.wrapping_sub(bias))
        };
        let size = |name: &str| tables.sizes.get(name).copied();
        let of_arrays = ["GrowableArrayBase", "GenericGrowableArray"];
        let of_nmethods = ["nmethod", "CompiledMethod"];
        let first = |structures: &[&str], name: &str| structures.iter().find_map(|s| member(s, name));
        let code = member("CodeBlob", "_code_begin")
            .map(Part::Pointer)
            .or_else(|| member("CodeBlob", "_code_offset").map(Part::Offset))?;
        let version = fixed("Abstract_VM_Version", "_vm_major_version")
            .and_then(|at| pages.number(at.wrapping_add(bias), 4));
        let scopes = version.and_then(|version| {
            let base = member("nmethod", "_immutable_data");
            let data = match base {
                Some(_) => Part::Offset(member("nmethod", "_scopes_data_offset")?),
                None => Part::Pointer(first(&of_nmethods, "_scopes_data_begin")?),
            };
            let metadata = match member("nmethod", "_metadata_offset") {
                Some(offset) => Metadata::Offset(offset),
                None => Metadata::Behind(
                    member("CodeBlob", "_mutable_data")?,
                    member("CodeBlob", "_relocation_size")?,
                ),
            };
            let end = if base.is_some() { "_scopes_data_offset" } else { "_dependencies_offset" };
            Some(Scopes {
                counters: Part::Offset(member("nmethod", "_scopes_pcs_offset")?),
                counters_end: Part::Offset(member("nmethod", end)?),
                base,
                data,
                metadata,
                without_zeros: version >= WITHOUT_ZEROS,
            })
        });
        Some(Layout {
            heaps: fixed("CodeCache", "_heaps")?,
            interpreter: fixed("AbstractInterpreter", "_code")?,
            array_length: first(&of_arrays, "_len")?,
            array_data: member("GrowableArray<int>", "_data")?,
            heap_memory: member("CodeHeap", "_memory")?.at,
            heap_segments: member("CodeHeap", "_segmap")?.at,
            heap_shift: member("CodeHeap", "_log2_segment_size")?,
            space_low: member("VirtualSpace", "_low")?,
            space_high: member("VirtualSpace", "_high")?,
            block_used: member("HeapBlock::Header", "_used")?,
            block_size: size("HeapBlock")?,
            queue_buffer: member("StubQueue", "_stub_buffer")?,
            queue_limit: member("StubQueue", "_buffer_limit")?,
            blob_name: member("CodeBlob", "_name")?,
            blob_size: member("CodeBlob", "_size")?,
            blob_code: code,
            blob_complete: member("CodeBlob", "_frame_complete_offset")?,
            blob_frame: member("CodeBlob", "_frame_size")?,
            nmethod_method: first(&of_nmethods, "_method")?,
            nmethod_number: first(&of_nmethods, "_compile_id")?,
            method_const: member("Method", "_constMethod")?,
            const_pool: member("ConstMethod", "_constants")?,
            const_name: member("ConstMethod", "_name_index")?,
            pool_holder: member("ConstantPool", "_pool_holder")?,
            pool_length: member("ConstantPool", "_length")?,
            pool_size: size("ConstantPool")?,
            klass_name: member("Klass", "_name")?,
            symbol_length: member("Symbol", "_length")?,
            symbol_body: member("Symbol", "_body[0]")?.at,
            scopes,
        })
    }
}

/// The structures that are used.
const STRUCTURES: [&str; 19] = [
    "Abstract_VM_Version",
    "AbstractInterpreter",
    "CodeBlob",
    "CodeCache",
    "CodeHeap",
    "CompiledMethod",
    "ConstMethod",
    "ConstantPool",
    "GenericGrowableArray",
    "GrowableArray<int>",
    "GrowableArrayBase",
    "HeapBlock",
    "HeapBlock::Header",
    "Klass",
    "Method",
    "StubQueue",
    "Symbol",
    "VirtualSpace",
    "nmethod",
];

#[derive(Default)]
struct Tables {
    members: HashMap<String, Member>,
    statics: HashMap<String, u64>,
    sizes: HashMap<String, u64>,
}

impl Tables {
    fn read<M: Memory>(pages: &Pages<'_, M>, symbols: &Symbols, bias: u64) -> Option<Tables> {
        let mut values = [0; SYMBOLS.len()];
        for (value, at) in values.iter_mut().zip(symbols.0) {
            *value = pages.number(at.wrapping_add(bias), 8)?;
        }
        let [
            first,
            structure,
            name,
            kind,
            fixed,
            offset,
            address,
            stride,
            types,
            type_name,
            size,
            types_stride,
        ] = values;
        let mut tables = Tables::default();
        for i in 0..MAX_ENTRIES {
            let entry = first.checked_add(i.checked_mul(stride)?)?;
            // Both tables end with an entry without a name.
            let Some(at) = pages.pointer(entry.checked_add(structure)?) else { break };
            let Some(structure) = pages.string(at, MAX_NAME).filter(|s| STRUCTURES.contains(&s.as_str()))
            else {
                continue;
            };
            let text = |part: u64| pages.string(pages.pointer(entry.checked_add(part)?)?, MAX_NAME);
            let Some(name) = text(name) else { continue };
            let full = format!("{structure}::{name}");
            if pages.number(entry.checked_add(fixed)?, 4)? != 0 {
                tables.statics.insert(full, pages.number(entry.checked_add(address)?, 8)?);
            } else {
                let bytes = bytes_of(&text(kind).unwrap_or_default());
                let at = pages.number(entry.checked_add(offset)?, 8)?;
                tables.members.insert(full, Member { at, bytes });
            }
        }
        for i in 0..MAX_ENTRIES {
            let entry = types.checked_add(i.checked_mul(types_stride)?)?;
            let Some(at) = pages.pointer(entry.checked_add(type_name)?) else { break };
            if let Some(name) = pages.string(at, MAX_NAME).filter(|s| STRUCTURES.contains(&s.as_str())) {
                tables.sizes.insert(name, pages.number(entry.checked_add(size)?, 8)?);
            }
        }
        Some(tables)
    }
}

/// The size in bytes of a C++ type, by its name.
fn bytes_of(kind: &str) -> u8 {
    let plain = kind.trim_start_matches("volatile ").trim();
    match plain {
        _ if plain.contains('*') => 8,
        "address" | "size_t" | "uint64_t" | "int64_t" | "intptr_t" | "uintptr_t" | "long" => 8,
        "u1" | "bool" | "char" | "signed char" | "unsigned char" | "uint8_t" | "int8_t" | "CodeBlobKind" => 1,
        "u2" | "jushort" | "jshort" | "uint16_t" | "int16_t" | "short" | "unsigned short" => 2,
        _ => 4,
    }
}

#[cfg(any(test, fuzzing))]
impl Layout {
    /// The layout of OpenJDK 17, with its variables at the beginning of the file.
    pub fn example() -> Layout {
        let member = |at: u64, bytes: u8| Member { at, bytes };
        Layout {
            heaps: 0,
            interpreter: 8,
            array_length: member(0, 4),
            array_data: member(8, 8),
            heap_memory: 8,
            heap_segments: 120,
            heap_shift: member(256, 4),
            space_low: member(16, 8),
            space_high: member(24, 8),
            block_used: member(8, 1),
            block_size: 16,
            queue_buffer: member(8, 8),
            queue_limit: member(20, 4),
            blob_name: member(96, 8),
            blob_size: member(12, 4),
            blob_code: Part::Pointer(member(32, 8)),
            blob_complete: member(20, 4),
            blob_frame: member(28, 4),
            nmethod_method: member(112, 8),
            nmethod_number: member(304, 4),
            method_const: member(8, 8),
            const_pool: member(8, 8),
            const_name: member(34, 2),
            pool_holder: member(24, 8),
            pool_length: member(60, 4),
            pool_size: 72,
            klass_name: member(24, 8),
            symbol_length: member(4, 2),
            symbol_body: 6,
            scopes: Some(Scopes {
                counters: Part::Offset(member(268, 4)),
                counters_end: Part::Offset(member(272, 4)),
                base: None,
                data: Part::Pointer(member(120, 8)),
                metadata: Metadata::Offset(member(260, 4)),
                without_zeros: false,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_sizes() {
        let sizes = [("u2", 2), ("const char*", 8), ("volatile signed char", 1), ("int", 4), ("size_t", 8)];
        for (kind, bytes) in
            sizes.into_iter().chain([("address", 8), ("CompLevel", 4), ("int16_t", 2), ("bool", 1)])
        {
            assert_eq!(bytes_of(kind), bytes, "{kind}");
        }
    }

    #[test]
    fn what_is_no_virtual_machine_has_no_tables() {
        for path in [std::env::current_exe().unwrap(), "/etc/passwd".into()] {
            assert!(Symbols::read(&Source::open(&path).unwrap()).is_none(), "{path:?}");
        }
    }
}
