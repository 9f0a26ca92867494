//! Variables and types from DWARF 2 to 5, in time and memory proportional to the file, even for hostile
//! files.

mod scan;
mod shapes;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugInfoOffset, DebugLine, DwAt, EndianSlice, Reader as _,
    RunTimeEndian, Section as _,
};

use crate::budget::Budget;
use crate::types::{Decl, Shape, TypeId, cut};

type Slice<'d> = EndianSlice<'d, RunTimeEndian>;
type Entry<'d> = gimli::DebuggingInformationEntry<Slice<'d>>;
type Unit<'d> = gimli::Unit<Slice<'d>>;

/// The sections of a file that hold DWARF, uncompressed and relocated.
pub(crate) struct Sections<'f>(gimli::DwarfSections<Cow<'f, [u8]>>, RunTimeEndian);

impl<'f> Sections<'f> {
    /// Takes each section from `get`, which returns an empty one if the section does not exist.
    pub fn load(big_endian: bool, mut get: impl FnMut(&str) -> Cow<'f, [u8]>) -> Sections<'f> {
        let endian = if big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
        let wanted = |id: gimli::SectionId| {
            use gimli::SectionId as Id;
            matches!(
                id,
                Id::DebugAbbrev
                    | Id::DebugAddr
                    | Id::DebugInfo
                    | Id::DebugLine
                    | Id::DebugLineStr
                    | Id::DebugStr
                    | Id::DebugStrOffsets
            )
        };
        let sections = gimli::DwarfSections::load(|id| {
            Ok::<_, std::convert::Infallible>(if wanted(id) {
                get(id.name())
            } else {
                Cow::Borrowed(&[][..])
            })
        });
        let Ok(sections) = sections;
        Sections(sections, endian)
    }

    /// Whether there is any debug information.
    pub fn is_empty(&self) -> bool {
        self.0.debug_info.borrow(|s| Slice::new(s, self.1)).reader().is_empty()
    }
}

/// A variable with its own address.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// With its namespaces, or the function in which it is static.
    pub name: String,
    /// In thread-local storage, the offset in the thread's block.
    pub address: u64,
    pub tls: bool,
    pub ty: Option<TypeId>,
    pub decl: Option<Decl>,
    pub language: Language,
}

/// A struct or class.
#[derive(Clone, Debug)]
pub(crate) struct RecordType {
    /// With its namespaces.
    pub name: String,
    pub ty: TypeId,
    pub decl: Option<Decl>,
    pub language: Language,
}

/// The language in which the padding is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Language {
    #[default]
    C,
    Cpp,
    Rust,
    Go,
    /// Any other language; its syntax for padding is unknown.
    Other,
}

/// The DWARF of a file.
pub(crate) struct Dwarf<'d> {
    dwarf: gimli::Dwarf<Slice<'d>>,
    lines: DebugLine<Slice<'d>>,
    /// By offset.
    units: Vec<UnitInfo<'d>>,
    signatures: HashMap<u64, TypeId>,
    shapes: HashMap<TypeId, Option<Rc<Shape>>>,
    files: HashMap<(usize, u64), Option<Rc<str>>>,
    /// Headers of line programs, by their offsets.
    headers: HashMap<usize, Option<LineHeader<'d>>>,
    /// Remaining reads; a file with circular references exhausts them.
    budget: u64,
    /// Memory that may still be kept.
    memory: Budget,
    /// Number of units whose types are in another file.
    pub split: usize,
    /// Number of units that could not be read.
    pub damaged: usize,
}

type LineHeader<'d> = Rc<gimli::LineProgramHeader<Slice<'d>>>;

/// Bytes of tables for each byte that describes them; a byte may be a file name or an attribute.
const ABBREVIATION: u64 = 40;
const LINE_HEADER: u64 = 160;

struct UnitInfo<'d> {
    start: usize,
    unit: Unit<'d>,
    language: Language,
    /// Offset of the unit's line program.
    lines: Option<gimli::DebugLineOffset>,
}

impl<'d> Dwarf<'d> {
    pub fn new(sections: &'d Sections<'_>, memory: Budget) -> Dwarf<'d> {
        let mut dwarf = sections.0.borrow(|s| Slice::new(s, sections.1));
        // This crate reads line programs itself, and only on demand.
        let lines = std::mem::replace(&mut dwarf.debug_line, DebugLine::new(&[], sections.1));
        let size = dwarf.debug_info.reader().len() as u64;
        let mut this = Dwarf {
            dwarf,
            lines,
            units: Vec::new(),
            signatures: HashMap::new(),
            shapes: HashMap::new(),
            files: HashMap::new(),
            headers: HashMap::new(),
            memory,
            budget: (1 << 20) + size.saturating_mul(16),
            split: 0,
            damaged: 0,
        };
        this.open_units();
        this
    }

    /// Whether reading stopped before the end of the file's information.
    pub fn exhausted(&self) -> bool {
        self.budget == 0
    }

    fn open_units(&mut self) {
        let mut headers = Vec::new();
        let mut iter = self.dwarf.units();
        loop {
            match iter.next() {
                // Including the memory of the unit that it becomes.
                Ok(Some(header)) if self.keep(2 * size_of::<UnitInfo>() as u64) => headers.push(header),
                Ok(Some(_)) => break,
                Ok(None) => break,
                Err(_) => {
                    self.damaged += 1;
                    break;
                }
            }
        }
        if !self.keep((self.dwarf.debug_abbrev.reader().len() as u64).saturating_mul(ABBREVIATION)) {
            return;
        }
        let tables = self.abbreviations(headers.iter().map(|h| h.debug_abbrev_offset().0).collect());
        for header in headers {
            if !self.keep(0) {
                return;
            }
            let start = header.debug_info_offset().map_or(0, |o| o.0);
            let kind = header.type_();
            let Some(table) = tables.get(&header.debug_abbrev_offset().0) else {
                self.damaged += 1;
                continue;
            };
            let Some((unit, lines)) = self.open_unit(header, table.clone()) else {
                self.damaged += 1;
                continue;
            };
            if let gimli::UnitType::Type { type_signature, type_offset } = kind {
                self.signatures.insert(type_signature.0, start.saturating_add(type_offset.0));
            }
            self.split += usize::from(unit.dwo_id.is_some());
            let root = unit.entry(unit.header.root_offset()).ok();
            let language = match root.and_then(|r| r.attr_value(gimli::DW_AT_language)) {
                Some(AttributeValue::Language(l)) => language(l),
                _ => Language::C,
            };
            self.units.push(UnitInfo { start, unit, language, lines });
        }
        self.units.sort_by_key(|u| u.start);
    }

    /// The unit without the header of its line program, and the offset of that header. Few units need the
    /// header, but gimli would always read it.
    fn open_unit(
        &self,
        header: gimli::UnitHeader<Slice<'d>>,
        abbreviations: Arc<Abbreviations>,
    ) -> Option<(Unit<'d>, Option<gimli::DebugLineOffset>)> {
        let root = header.entry(&abbreviations, header.root_offset()).ok()?;
        let encoding = header.encoding();
        let dwo_id = match (header.type_(), root.attr_value(gimli::DW_AT_GNU_dwo_id)) {
            (gimli::UnitType::Skeleton(id) | gimli::UnitType::SplitCompilation(id), _) => Some(id),
            (_, Some(AttributeValue::DwoId(id))) => Some(id),
            _ => None,
        };
        let file = gimli::DwarfFileType::Main;
        let mut unit = gimli::Unit {
            header,
            abbreviations: abbreviations.clone(),
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, file),
            rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, file),
            line_program: None,
            dwo_id,
        };
        if let Some(AttributeValue::DebugStrOffsetsBase(base)) =
            root.attr_value(gimli::DW_AT_str_offsets_base)
        {
            unit.str_offsets_base = base;
        }
        let addresses = root.attr_value(gimli::DW_AT_addr_base);
        if let Some(AttributeValue::DebugAddrBase(base)) =
            addresses.or_else(|| root.attr_value(gimli::DW_AT_GNU_addr_base))
        {
            unit.addr_base = base;
        }
        let string = |name| self.dwarf.attr_string(&unit, root.attr_value(name)?).ok();
        (unit.name, unit.comp_dir) = (string(gimli::DW_AT_name), string(gimli::DW_AT_comp_dir));
        let lines = match root.attr_value(gimli::DW_AT_stmt_list) {
            Some(AttributeValue::DebugLineRef(offset)) => Some(offset),
            _ => None,
        };
        Some((unit, lines))
    }

    /// Reads each table once, and none beyond the start of the next one. So all tables cost no more than the
    /// section's size, even if units claim that a table starts at every byte.
    fn abbreviations(&self, starts: BTreeSet<usize>) -> HashMap<usize, Arc<Abbreviations>> {
        let all = self.dwarf.debug_abbrev.reader();
        let ends = starts.iter().skip(1).copied().chain([all.len()]);
        let table = |(&start, end): (&usize, usize)| {
            let bytes = all.slice().get(start..end.min(all.len()))?;
            let table = DebugAbbrev::new(bytes, all.endian()).abbreviations(gimli::DebugAbbrevOffset(0));
            Some((start, Arc::new(table.ok()?)))
        };
        starts.iter().zip(ends).filter_map(table).collect()
    }

    fn spend(&mut self, cost: u64) {
        self.budget = self.budget.saturating_sub(cost);
        self.keep(0);
    }

    /// Takes memory. Returns whether it may be kept; if not, reading stops.
    fn keep(&mut self, bytes: u64) -> bool {
        let may = self.memory.keep(bytes);
        if !may {
            self.budget = 0;
        }
        may
    }

    fn text(&mut self, at: usize, entry: &Entry<'d>, name: DwAt) -> Option<String> {
        let text = self.dwarf.attr_string(&self.units[at].unit, entry.attr_value(name)?).ok()?;
        self.spend(text.len() as u64 / 8);
        let text = String::from_utf8_lossy(&text.slice()[..text.len().min(4096)]);
        Some(if name == gimli::DW_AT_linkage_name { text.into_owned() } else { cut(&text).into() })
    }

    fn reference(&self, at: usize, entry: &Entry<'d>, name: DwAt) -> Option<TypeId> {
        match entry.attr_value(name)? {
            AttributeValue::UnitRef(offset) => self.units[at].start.checked_add(offset.0),
            AttributeValue::DebugInfoRef(DebugInfoOffset(offset)) => Some(offset),
            AttributeValue::DebugTypesRef(signature) => self.signatures.get(&signature.0).copied(),
            _ => None,
        }
    }

    fn decl(&mut self, at: usize, entry: &Entry<'d>) -> Option<Decl> {
        let line = entry.attr(gimli::DW_AT_decl_line)?.udata_value()?;
        let file = match entry.attr_value(gimli::DW_AT_decl_file)? {
            AttributeValue::FileIndex(index) => index,
            other => other.udata_value()?,
        };
        let file = match self.files.get(&(at, file)) {
            Some(known) => known.clone(),
            None => {
                let name: Option<Rc<str>> = self.file(at, file).map(Rc::from);
                if !self.keep(96 + name.as_ref().map_or(0, |name| name.len() as u64)) {
                    return None;
                }
                self.files.insert((at, file), name.clone());
                name
            }
        };
        Some(Decl { file: file?, line })
    }

    /// The header of a unit's line program, which other units may share.
    fn line_header(&mut self, at: usize) -> Option<LineHeader<'d>> {
        let offset = self.units[at].lines?;
        if let Some(known) = self.headers.get(&offset.0) {
            return known.clone();
        }
        let length = self.line_header_length(offset);
        if !self.keep(length.unwrap_or(0).saturating_mul(LINE_HEADER).saturating_add(96)) {
            return None;
        }
        let unit = &self.units[at].unit;
        let size = unit.header.address_size();
        let program = length.and_then(|_| self.lines.program(offset, size, unit.comp_dir, unit.name).ok());
        let header = program.map(|p| Rc::new(p.header().clone()));
        self.headers.insert(offset.0, header.clone());
        header
    }

    /// Bytes of the header of a line program.
    fn line_header_length(&self, offset: gimli::DebugLineOffset) -> Option<u64> {
        let mut rest = *self.lines.reader();
        rest.skip(offset.0).ok()?;
        let (_, format) = rest.read_initial_length().ok()?;
        if rest.read_u16().ok()? >= 5 {
            rest.skip(2).ok()?;
        }
        Some(rest.read_length(format).ok()? as u64)
    }

    /// The path of a unit's file, relative to the compilation directory if the file lies there.
    fn file(&mut self, at: usize, index: u64) -> Option<String> {
        let header = self.line_header(at)?;
        let file = header.file(index)?;
        let unit = &self.units[at].unit;
        let string = |value| {
            let text = self.dwarf.attr_string(unit, value).ok()?;
            Some(String::from_utf8_lossy(&text.slice()[..text.len().min(4096)]).into_owned())
        };
        let name = string(file.path_name())?;
        let dir = (file.directory_index() > 0).then(|| string(file.directory(&header)?)).flatten();
        let path = match dir {
            Some(dir) if !name.starts_with('/') && !dir.is_empty() => format!("{dir}/{name}"),
            _ => name,
        };
        let home = unit.comp_dir.map(|d| d.to_string_lossy().into_owned()).filter(|d| !d.is_empty());
        let short = home.and_then(|home| path.strip_prefix(&home)?.strip_prefix('/').map(str::to_owned));
        Some(short.unwrap_or(path))
    }
}

fn language(language: gimli::DwLang) -> Language {
    use gimli::constants as c;
    match language {
        c::DW_LANG_Rust => Language::Rust,
        c::DW_LANG_Go => Language::Go,
        c::DW_LANG_C
        | c::DW_LANG_C89
        | c::DW_LANG_C99
        | c::DW_LANG_C11
        | c::DW_LANG_C17
        | c::DW_LANG_ObjC => Language::C,
        c::DW_LANG_C_plus_plus
        | c::DW_LANG_C_plus_plus_03
        | c::DW_LANG_C_plus_plus_11
        | c::DW_LANG_C_plus_plus_14
        | c::DW_LANG_C_plus_plus_17
        | c::DW_LANG_C_plus_plus_20
        | c::DW_LANG_ObjC_plus_plus => Language::Cpp,
        _ => Language::Other,
    }
}
