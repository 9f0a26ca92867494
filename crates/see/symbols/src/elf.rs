//! The load addresses of an ELF file's segments, and the places of symbols looked up by name.

use std::ops::Range;

use ncpu_files::reader::Source;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endian, Endianness, elf};

use crate::bounded::Bounded;

/// More program headers than any real program has, and more segments that are loaded: programs have four or five. Those of
/// thousands of files are kept, by several parts of the program.
const MAX_HEADERS: usize = 256;
const MAX_SEGMENTS: usize = 32;
/// The longest name; a longer one is cut off.
pub(crate) const MAX_NAME: usize = 4 << 10;
/// Bytes of a section's name.
const MAX_SECTION_NAME: usize = 64;
/// Bytes of an `Elf64_Sym`.
pub(crate) const ENTRY: usize = 24;
/// Symbols of a table, of all kinds. The largest programs (browsers, compilers) have two million.
pub(crate) const MAX_ENTRIES: u64 = 4 << 20;
/// Symbols read at once.
pub(crate) const AT_ONCE: usize = 1 << 12;
/// Bytes of a table of strings that is searched.
const MAX_STRINGS: u64 = 16 << 20;

/// The string at an offset of a file's string table, without the terminating zero; `None` if it lies behind
/// the table, or the file was truncated.
pub(crate) fn string(file: &Source, table: &Range<u64>, at: u32) -> Option<Vec<u8>> {
    let begin = table.start.checked_add(at.into()).filter(|b| *b < table.end)?;
    let most = usize::try_from(table.end - begin).map_or(MAX_NAME, |n| n.min(MAX_NAME));
    let mut bytes = Vec::new();
    // Most names are short.
    for length in [most.min(256), most] {
        bytes.resize(length, 0);
        file.read_exact_at(&mut bytes, begin).ok()?;
        if let Some(end) = bytes.iter().position(|&b| b == 0) {
            bytes.truncate(end);
            break;
        }
    }
    Some(bytes)
}

/// A section of symbols: the range of its entries, and its strings.
pub(crate) struct SymbolSection {
    pub entries: Range<u64>,
    pub names: Range<u64>,
    pub dynamic: bool,
}

/// The symbol sections of a 64-bit file: the debuggers', then the dynamic linker's.
pub(crate) fn symbol_sections(file: &Source) -> Option<(Endianness, Vec<SymbolSection>)> {
    let bounded = Bounded::new(file);
    let header = elf::FileHeader64::<Endianness>::parse(&bounded).ok()?;
    let endian = header.endian().ok()?;
    let all = header.section_headers(endian, &bounded).ok()?;
    let range = |header: &elf::SectionHeader64<Endianness>| {
        let (start, size) = header.file_range(endian)?;
        let end = start.checked_add(size)?;
        (end <= file.size()).then_some(start..end)
    };
    let mut sections = Vec::new();
    for (kind, dynamic) in [(elf::SHT_SYMTAB, false), (elf::SHT_DYNSYM, true)] {
        // A file has one of each.
        let of_kind = all.iter().find(|s| s.sh_type(endian) == kind);
        sections.extend(of_kind.and_then(|s| {
            let strings = all.get(s.sh_link(endian) as usize)?;
            Some(SymbolSection { entries: range(s)?, names: range(strings)?, dynamic })
        }));
    }
    Some((endian, sections))
}

/// Passes the entries of a symbol section to `take`, in parts, until it returns false. `None` if there are
/// too many, or the file was truncated.
pub(crate) fn for_entries(
    file: &Source,
    entries: &Range<u64>,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Option<()> {
    if (entries.end - entries.start) / ENTRY as u64 > MAX_ENTRIES {
        return None;
    }
    let mut at = entries.start;
    let mut bytes = vec![0; AT_ONCE * ENTRY];
    while at < entries.end {
        let length = (bytes.len() as u64).min(entries.end - at) as usize;
        file.read_exact_at(&mut bytes[..length], at).ok()?;
        for entry in bytes[..length].chunks_exact(ENTRY) {
            if !take(entry) {
                return Some(());
            }
        }
        at += length as u64;
    }
    Some(())
}

/// Addresses and sizes of symbols by their names, from the symbols for debuggers or for the dynamic linker;
/// `None` for names that the file does not define.
pub fn named_symbols(file: &Source, dynamic: bool, names: &[&str]) -> Vec<Option<(u64, u64)>> {
    let mut found = vec![None; names.len()];
    let Some((endian, sections)) = symbol_sections(file) else { return found };
    let Some(section) = sections.iter().find(|s| s.dynamic == dynamic) else { return found };
    let size = section.names.end - section.names.start;
    if size > MAX_STRINGS || (section.entries.end - section.entries.start) / ENTRY as u64 > MAX_ENTRIES {
        return found;
    }
    let mut strings = vec![0; size as usize];
    if file.read_exact_at(&mut strings, section.names.start).is_err() {
        return found;
    }
    let is = |at: u32, name: &str| {
        let behind = strings.get(at as usize..).and_then(|s| s.strip_prefix(name.as_bytes()));
        behind.is_some_and(|rest| rest.first() == Some(&0))
    };
    let mut left = names.len();
    // Symbols found before the truncation are valid.
    let _ = for_entries(file, &section.entries, |entry| {
        let number = |at: usize| entry[at..].first_chunk().map_or(0, |b| endian.read_u64(*b));
        let name = entry.first_chunk().map_or(0, |b| endian.read_u32(*b));
        let address = number(8);
        if address != 0 && name != 0 {
            let wanted = found.iter().zip(names).position(|(f, n)| f.is_none() && is(name, n));
            if let Some(i) = wanted {
                found[i] = Some((address, number(16)));
                left -= 1;
            }
        }
        left > 0
    });
    found
}

/// Sections of a 64-bit file by name, with their place in the file and their address.
#[derive(Debug)]
pub struct Sections(Vec<(Vec<u8>, Range<u64>, u64)>);

impl Sections {
    /// Reads the section headers of a file of this machine's byte order; `None` if it has none, or is
    /// damaged.
    pub fn read(file: &Source) -> Option<Sections> {
        let bounded = Bounded::new(file);
        let header = elf::FileHeader64::<Endianness>::parse(&bounded).ok()?;
        let endian = header.endian().ok().filter(|e| *e == Endianness::default())?;
        let all = header.sections(endian, &bounded).ok()?;
        let section = |s: &elf::SectionHeader64<Endianness>| {
            let (start, size) = s.file_range(endian)?;
            let end = start.checked_add(size).filter(|end| *end <= file.size())?;
            // Linkers' names have about 20 bytes; names may overlap.
            let name = all.section_name(endian, s).ok().filter(|name| name.len() <= MAX_SECTION_NAME)?;
            Some((name.to_vec(), start..end, s.sh_addr(endian)))
        };
        Some(Sections(all.iter().filter_map(section).collect()))
    }

    /// Whether it is a program of Go.
    pub fn is_go(&self) -> bool {
        self.named(".go.buildinfo").is_some()
    }

    /// The place of a section, and its address.
    pub fn named(&self, name: &str) -> Option<(Range<u64>, u64)> {
        let found = self.0.iter().find(|(n, ..)| n == name.as_bytes());
        found.map(|(_, range, address)| (range.clone(), *address))
    }

    /// The part of the file from this address to the end of its section.
    pub(crate) fn at(&self, address: u64) -> Option<Range<u64>> {
        self.0.iter().find_map(|(_, range, start)| {
            let into = address.checked_sub(*start).filter(|_| *start != 0)?;
            (into < range.end - range.start).then(|| range.start + into..range.end)
        })
    }
}

/// The loaded segments of an ELF file, and those that are made read-only after loading.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    all: Box<[Segment]>,
    /// Number of the processor that the code is for (`e_machine`); 0 where it is not known.
    machine: u16,
}

#[derive(Clone, Debug)]
struct Segment {
    relro: bool,
    code: bool,
    /// In memory, including zero-filled data.
    memory: Range<u64>,
    file: Range<u64>,
}

impl Segments {
    /// Reads the program headers of a 64-bit ELF file; `None` if the file is not one.
    pub fn read(file: &Source) -> Option<Segments> {
        let bounded = Bounded::new(file);
        let header = elf::FileHeader64::<Endianness>::parse(&bounded).ok()?;
        let endian = header.endian().ok()?;
        let segments = Segments::from_headers(header.program_headers(endian, &bounded).ok()?, endian);
        Some(Segments { machine: header.e_machine(endian).0, ..segments })
    }

    /// The segments described by program headers.
    pub fn from_headers<H: ProgramHeader>(headers: &[H], endian: H::Endian) -> Segments {
        let range = |start: u64, size: u64| start..start.saturating_add(size);
        let segment = |h: &H| {
            let relro = h.p_type(endian) == elf::PT_GNU_RELRO;
            (relro || h.p_type(endian) == elf::PT_LOAD).then(|| Segment {
                relro,
                code: h.p_flags(endian).contains(elf::PF_X),
                memory: range(h.p_vaddr(endian).into(), h.p_memsz(endian).into()),
                file: range(h.p_offset(endian).into(), h.p_filesz(endian).into()),
            })
        };
        let found = headers.iter().take(MAX_HEADERS).filter_map(segment).take(MAX_SEGMENTS);
        Segments { all: found.collect(), machine: 0 }
    }

    /// The number of the processor that the code is for (`e_machine` of the file's header).
    pub fn machine(&self) -> u16 {
        self.machine
    }

    fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.all.iter().filter(|s| !s.relro)
    }

    /// The distance between the file's own addresses and its load address, if `start` maps code of it from
    /// `offset` on.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        // Mappings begin on a page, segments need not: the page may contain the end of another segment with
        // other addresses.
        // SAFETY: a query without pointers.
        let size = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let page = |n: u64| n & !(size - 1);
        let mut code = self.loaded().filter(|s| s.code);
        let s = code.find(|s| page(s.file.start) == offset || s.file.contains(&offset))?;
        Some(start.wrapping_sub(page(s.memory.start.wrapping_add(offset.wrapping_sub(page(s.file.start))))))
    }

    /// Whether a range of memory is made read-only after loading.
    pub fn protects(&self, range: &Range<u64>) -> bool {
        let mut protected = self.all.iter().filter(|s| s.relro);
        protected.any(|s| s.memory.start <= range.start && range.end <= s.memory.end)
    }

    /// Whether a segment covers this address in memory.
    pub fn holds(&self, address: u64) -> bool {
        self.loaded().any(|s| s.memory.contains(&address))
    }

    /// The file offset of the byte that is loaded at an address.
    pub fn offset(&self, address: u64) -> Option<u64> {
        self.loaded().find_map(|s| {
            let within = address.checked_sub(s.memory.start).filter(|at| *at < s.file.end - s.file.start)?;
            s.file.start.checked_add(within)
        })
    }

    /// The link-time address of the byte at `offset` of the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let s = self.loaded().find(|s| s.file.contains(&offset))?;
        s.memory.start.checked_add(offset - s.file.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_this_program() {
        let exe = std::env::current_exe().unwrap();
        let segments = Segments::read(&Source::open(&exe).unwrap()).expect("a test is an ELF file");
        assert_eq!(segments.address(0), Some(0), "a position-independent program starts at 0");
        assert_eq!(segments.address(u64::MAX), None);
    }

    #[test]
    fn a_page_of_two_segments_is_the_codes() {
        // As lld arranges them: the page at 0x47b000 ends the first segment and begins the second.
        let segment = |offset: u64, address: u64, size, code| Segment {
            relro: false,
            code,
            memory: address..address + size,
            file: offset..offset + size,
        };
        let segments = [segment(0, 0, 0x47b560, false), segment(0x47b560, 0x47c560, 0x7c6680, true)];
        let segments = Segments { all: segments.into(), machine: 0 };
        assert_eq!(segments.bias(0x5500_0047_c000, 0x47b000), Some(0x5500_0000_0000));
        assert_eq!(segments.bias(0x5500_0050_0000, 0x4ff000), Some(0x5500_0000_0000));
        assert_eq!(segments.bias(0x5500_0000_0000, 0), None);
    }

    #[test]
    fn few_segments_of_a_file_are_kept() {
        use elf::ProgramHeader64;
        use object::{LittleEndian, U32, U64};
        let e = LittleEndian;
        let header = |i: u64| ProgramHeader64 {
            p_type: U32::new(e, elf::PT_LOAD),
            p_flags: U32::new(e, elf::PF_X),
            p_offset: U64::new(e, i << 12),
            p_vaddr: U64::new(e, i << 12),
            p_paddr: U64::new(e, 0),
            p_filesz: U64::new(e, 1 << 12),
            p_memsz: U64::new(e, 1 << 12),
            p_align: U64::new(e, 1 << 12),
        };
        let headers: Vec<ProgramHeader64<LittleEndian>> = (0..65_535).map(header).collect();
        let segments = Segments::from_headers(&headers, e);
        assert!(size_of_val(&*segments.all) <= 2048, "{} segments", segments.all.len());
        assert_eq!(segments.offset(0x5001), Some(0x5001));
    }

    #[test]
    fn damaged_files_have_no_segments() {
        let dir = tempfile::tempdir().unwrap();
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let path = dir.path().join("x");
        for cut in [0, 1, 4, 63, 64, 100] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(Segments::read(&Source::open(&path).unwrap()).is_none(), "{cut} bytes");
        }
        let mut head = whole[..4096].to_vec();
        head[32..64].fill(0xff);
        std::fs::write(&path, &head).unwrap();
        let source = Source::open(&path).unwrap();
        assert!(Segments::read(&source).is_none());
        assert!(crate::debug_file::debug_file(&source, &path).is_none());
    }
}
