//! Writable variables of an ELF file from its symbols, and the location of its debug information.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ncpu_symbols::{Segments, demangle};
use object::{
    File, Object, ObjectKind, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget, SectionFlags,
    SectionIndex, SymbolKind,
};

use crate::budget::Budget;
use crate::dwarf::{Language, Sections};

/// The storage class of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Storage {
    /// A single instance for all CPUs.
    Shared,
    /// The kernel's per-CPU data: a copy for each CPU, which other CPUs may access.
    PerCpu,
    /// Thread-local: a copy for each thread, which other threads may access by pointer.
    ThreadLocal,
}

/// A writable section.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub name: String,
    /// Synthetic in an object file that is not linked yet.
    pub address: u64,
    pub size: u64,
    pub storage: Storage,
    /// `.data..read_mostly`: its variables are declared as mostly read.
    pub read_mostly: bool,
    index: SectionIndex,
}

/// A variable from the symbol table.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    /// Demangled.
    pub name: String,
    pub address: u64,
    pub size: u64,
    /// Index in [`Elf::sections`].
    pub section: usize,
    pub language: Language,
}

/// The contents of an ELF file without its debug information.
pub(crate) struct Elf<'d> {
    file: File<'d>,
    segments: Segments,
    /// All sections by name; of sections with the same name, the first.
    names: HashMap<Vec<u8>, SectionIndex>,
    /// By address; thread-local ones by offset, after the others.
    pub sections: Vec<Section>,
    bases: HashMap<SectionIndex, u64>,
    /// The index of each section in `sections`.
    places: HashMap<SectionIndex, usize>,
    is_go: bool,
    pub budget: Budget,
}

/// Maximum length of section and symbol names. Longer names are cut before use: all names may be parts of one
/// long text.
const MAX_SECTION_NAME: usize = 256;
const MAX_SYMBOL_NAME: usize = 4096;

/// Sections that the loader writes, and then no one.
const LOADERS: &[&str] = &[
    ".dynamic",
    ".init_array",
    ".fini_array",
    ".preinit_array",
    ".ctors",
    ".dtors",
    ".jcr",
    ".got",
    ".got.plt",
    ".tm_clone_table",
    ".eh_frame",
    ".gcc_except_table",
];

impl<'d> Elf<'d> {
    /// Reads the headers.
    pub fn parse(data: &'d [u8], budget: Budget) -> object::Result<Elf<'d>> {
        let file = File::parse(data)?;
        let segments = match &file {
            File::Elf32(f) => Segments::from_headers(f.elf_program_headers(), f.endian()),
            File::Elf64(f) => Segments::from_headers(f.elf_program_headers(), f.endian()),
            _ => Segments::default(),
        };
        let relocatable = file.kind() == ObjectKind::Relocatable;
        let mut names = HashMap::new();
        for section in file.sections() {
            let name = section.name_bytes().unwrap_or_default();
            // Names may overlap, so each may be as long as the file. Searching for one would then read all of
            // them.
            if !budget.keep(96 + name.len() as u64) {
                break;
            }
            if name.len() <= MAX_SECTION_NAME {
                names.entry(name.to_vec()).or_insert(section.index());
            }
        }
        let (mut sections, mut bases) = (Vec::new(), HashMap::new());
        let mut free = 1 << 16;
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            if !sh_flags.contains(object::elf::SHF_WRITE) || !sh_flags.contains(object::elf::SHF_ALLOC) {
                continue;
            }
            let name = section.name_bytes().unwrap_or_default();
            let name = String::from_utf8_lossy(&name[..name.len().min(MAX_SECTION_NAME)]).into_owned();
            if !budget.keep(2 * size_of::<Section>() as u64 + name.len() as u64) {
                break;
            }
            let (mut address, size) = (section.address(), section.size());
            if relocatable {
                // Each section gets its own pages, since their final layout is unknown.
                address = free;
                free = free.saturating_add(size).saturating_add(0x1fff) & !0xfff;
                bases.insert(section.index(), address);
            }
            // The thread-local part is a template; each thread writes a copy.
            let protected = !sh_flags.contains(object::elf::SHF_TLS)
                && segments.protects(&(address..address.saturating_add(size)));
            let constant = name.starts_with(".data.rel.ro") || name.contains("ro_after_init");
            if protected || constant || LOADERS.contains(&name.as_str()) || size == 0 {
                continue;
            }
            let storage = if sh_flags.contains(object::elf::SHF_TLS) {
                Storage::ThreadLocal
            } else if name.contains("percpu") {
                Storage::PerCpu
            } else {
                Storage::Shared
            };
            if storage == Storage::ThreadLocal && !relocatable {
                // Symbols count from the start of the thread's block.
                let block = sections.iter().find(|s: &&Section| s.storage == Storage::ThreadLocal);
                address = block.map_or(0, |b| address.saturating_sub(bases[&b.index]));
                bases.entry(section.index()).or_insert(section.address());
            }
            let read_mostly = name.contains("read_mostly");
            sections.push(Section { name, address, size, storage, read_mostly, index: section.index() });
        }
        if !relocatable {
            bases = HashMap::new();
        }
        let places = sections.iter().enumerate().map(|(at, section)| (section.index, at)).collect();
        // Whether the Go linker made the file.
        let is_go = [".go.buildinfo", ".gopclntab"].iter().any(|name| names.contains_key(name.as_bytes()));
        Ok(Elf { file, segments, names, sections, bases, places, is_go, budget })
    }

    /// A section by its name or by the name of its compressed form (`.zdebug_info`).
    fn section(&self, name: &str) -> Option<object::Section<'d, '_>> {
        let compressed = || self.names.get(format!(".zdebug_{}", name.strip_prefix(".debug_")?).as_bytes());
        let index = self.names.get(name.as_bytes()).or_else(compressed)?;
        self.file.section_by_index(*index).ok()
    }

    /// The name of the file with the debug information, and that file's checksum: a text that ends with a
    /// zero, then a number on the next word boundary.
    fn debug_link(&self) -> Option<(&'d str, u32)> {
        let data = self.section(".gnu_debuglink")?.data().ok()?;
        let end = data.iter().position(|&byte| byte == 0)?;
        let sum = *data.get((end + 4) & !3..)?.first_chunk()?;
        let sum = if self.big_endian() { u32::from_be_bytes(sum) } else { u32::from_le_bytes(sum) };
        Some((std::str::from_utf8(&data[..end]).ok()?, sum))
    }

    /// The distance between the addresses in memory and in the file, if `start` maps code of the file from
    /// `offset` on.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        self.segments.bias(start, offset)
    }

    /// Whether the file is not linked yet.
    pub fn relocatable(&self) -> bool {
        self.file.kind() == ObjectKind::Relocatable
    }

    pub fn big_endian(&self) -> bool {
        !self.file.is_little_endian()
    }

    pub fn build_id(&self) -> Option<&'d [u8]> {
        self.file.build_id().ok().flatten()
    }

    /// The section of an address, or of an offset in thread-local storage.
    pub fn section_of(&self, address: u64, tls: bool) -> Option<usize> {
        self.sections.iter().position(|s| {
            (s.storage == Storage::ThreadLocal) == tls
                && address.checked_sub(s.address).is_some_and(|offset| offset < s.size)
        })
    }

    /// The variables by address, one per address; whether the symbol table was complete (a stripped file has
    /// only its exports); and the number of common symbols without an address.
    pub fn symbols(&self) -> (Vec<Symbol>, bool, usize) {
        let full = self.file.symbol_table().is_some();
        let mut commons = 0;
        let mut symbols = Vec::new();
        let mut take = |symbol: object::Symbol<'d, '_>| {
            commons += usize::from(symbol.is_common());
            symbols.extend(self.symbol(&symbol));
        };
        let all = match full {
            true => self.file.symbols(),
            false => self.file.dynamic_symbols(),
        };
        all.take_while(|_| self.budget.goes_on()).for_each(&mut take);
        // If an address has several names, the simplest one is kept, with a size that any of them has.
        symbols.sort_by(|a: &Symbol, b| {
            let key = |s: &Symbol| (s.section, s.address, s.name.starts_with('_'), s.name.len());
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        symbols.dedup_by(|next, kept| {
            let same = (next.section, next.address) == (kept.section, kept.address);
            if same {
                kept.size = kept.size.max(next.size);
            }
            same
        });
        // A symbol without a size (assembly) extends to the next one.
        for i in 0..symbols.len() {
            if symbols[i].size == 0 {
                let section = &self.sections[symbols[i].section];
                let end = symbols.get(i + 1).filter(|n| n.section == symbols[i].section).map(|n| n.address);
                let end = end.unwrap_or(section.address.saturating_add(section.size));
                symbols[i].size = end.saturating_sub(symbols[i].address);
            }
        }
        (symbols, full, commons)
    }

    fn symbol(&self, symbol: &object::Symbol<'d, '_>) -> Option<Symbol> {
        if !symbol.is_definition() || !matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Tls) {
            return None;
        }
        let index = symbol.section_index()?;
        let section = *self.places.get(&index)?;
        let base = self.bases.get(&index).copied().unwrap_or(0);
        let address = symbol.address().checked_add(base)?;
        let place = &self.sections[section];
        let room = address.checked_sub(place.address).and_then(|offset| place.size.checked_sub(offset))?;
        let raw = symbol.name_bytes().ok()?;
        let raw = String::from_utf8_lossy(&raw[..raw.len().min(MAX_SYMBOL_NAME)]);
        // `stderr@GLIBC_2.2.5`: the version is not part of the name.
        let raw = raw.split('@').next().unwrap_or(&raw);
        let plain = demangle(raw);
        let language = match (&plain, raw.starts_with("_ZN") && raw.contains("17h")) {
            (None, _) if self.is_go => Language::Go,
            (None, _) => Language::C,
            (Some(_), rust) if rust || raw.starts_with("_R") => Language::Rust,
            _ => Language::Cpp,
        };
        let name: String = crate::types::cut(&plain.unwrap_or_else(|| raw.to_owned())).into();
        self.budget.keep(2 * size_of::<Symbol>() as u64 + name.len() as u64).then_some(())?;
        Some(Symbol {
            name,
            address,
            // A symbol is cut at the end of its section.
            size: symbol.size().min(room),
            section,
            language,
        })
    }

    /// The DWARF sections, uncompressed, and relocated if the linker has not done so.
    pub fn dwarf(&self) -> Sections<'d> {
        Sections::load(self.big_endian(), |name| self.debug_section(name).unwrap_or_default())
    }

    /// The kernel's type information, if the file contains it.
    pub fn btf(&self) -> Option<Vec<u8>> {
        let section = self.debug_section(".BTF")?;
        // Memory of the parsed types.
        self.budget.keep((section.len() as u64).saturating_mul(8)).then(|| section.into_owned())
    }

    fn debug_section(&self, name: &str) -> Option<Cow<'d, [u8]>> {
        let section = self.section(name)?;
        let compressed = section.compressed_data().ok()?;
        // No compressor exceeds this ratio; a header that claims more is meant to exhaust memory.
        let most = (compressed.data.len() as u64).saturating_mul(1100).saturating_add(4096);
        let packed = compressed.format != object::CompressionFormat::None;
        if compressed.uncompressed_size > most
            || (packed || self.relocatable()) && !self.budget.keep(compressed.uncompressed_size)
        {
            return None;
        }
        let mut data = compressed.decompress().ok()?;
        if self.relocatable() {
            self.relocate(&section, data.to_mut());
        }
        Some(data)
    }

    fn relocate(&self, section: &object::Section<'d, '_>, data: &mut [u8]) {
        for (offset, relocation) in section.relocations().take_while(|_| self.budget.goes_on()) {
            let (RelocationKind::Absolute, RelocationTarget::Symbol(target)) =
                (relocation.kind(), relocation.target())
            else {
                continue;
            };
            let Ok(symbol) = self.file.symbol_by_index(target) else { continue };
            let base = symbol.section_index().and_then(|i| self.bases.get(&i)).copied().unwrap_or(0);
            let value = symbol.address().wrapping_add(base).wrapping_add_signed(relocation.addend());
            let width = usize::from(relocation.size()) / 8;
            let Some(place) =
                usize::try_from(offset).ok().and_then(|o| data.get_mut(o..o.checked_add(width)?))
            else {
                continue;
            };
            match (width, self.big_endian()) {
                (4, false) => place.copy_from_slice(&(value as u32).to_le_bytes()),
                (4, true) => place.copy_from_slice(&(value as u32).to_be_bytes()),
                (8, false) => place.copy_from_slice(&value.to_le_bytes()),
                (8, true) => place.copy_from_slice(&value.to_be_bytes()),
                _ => {}
            }
        }
    }

    /// Possible locations of the debug information of the file at `path`: by build ID, then by the name in
    /// the file together with the required checksum.
    pub fn debug_files(&self, path: &Path, debug_dir: &Path) -> Vec<(PathBuf, Option<u32>)> {
        let mut files = Vec::new();
        if let Some(id) = self.build_id().filter(|id| id.len() > 1) {
            let hex: String = id.iter().take(64).map(|b| format!("{b:02x}")).collect();
            files.push((
                debug_dir.join(".build-id").join(&hex[..2]).join(format!("{}.debug", &hex[2..])),
                None,
            ));
        }
        if let Some((name, checksum)) = self.debug_link()
            && !name.contains('/')
            && let Some(dir) = path.parent()
        {
            let below = dir.strip_prefix("/").unwrap_or(dir);
            for dir in [dir.to_path_buf(), dir.join(".debug"), debug_dir.join(below)] {
                files.push((dir.join(name), Some(checksum)));
            }
        }
        // The file may name itself.
        files.retain(|(file, _)| file != path);
        files
    }
}
