//! Where an ELF file's segments load.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, elf};

/// No real program has more segments.
const MAX_SEGMENTS: usize = 256;
/// No name is longer; one that is, is cut.
const MAX_NAME: usize = 4 << 10;

/// The string at a place of a file's table of strings, without the zero that ends it; `None` where it lies behind the table, or
/// the file has been cut since.
pub(crate) fn string(file: &File, table: &Range<u64>, at: u32) -> Option<Vec<u8>> {
    let begin = table.start.checked_add(at.into()).filter(|b| *b < table.end)?;
    let most = usize::try_from(table.end - begin).map_or(MAX_NAME, |n| n.min(MAX_NAME));
    let mut bytes = Vec::new();
    // Most names are short.
    for length in [most.min(128), most] {
        bytes.resize(length, 0);
        file.read_exact_at(&mut bytes, begin).ok()?;
        if let Some(end) = bytes.iter().position(|&b| b == 0) {
            bytes.truncate(end);
            break;
        }
    }
    Some(bytes)
}

/// The segments of an ELF file that are loaded, and those that are made read-only after loading.
#[derive(Debug, Default)]
pub struct Segments(Vec<Segment>);

#[derive(Debug)]
struct Segment {
    relro: bool,
    code: bool,
    /// In memory, zero-filled data included.
    memory: Range<u64>,
    file: Range<u64>,
}

impl Segments {
    /// Reads the program headers of a 64-bit ELF file; `None` where the file is not one.
    pub fn read(path: &Path) -> Option<Segments> {
        let file = ReadCache::new(File::open(path).ok()?);
        let header = elf::FileHeader64::<Endianness>::parse(&file).ok()?;
        let endian = header.endian().ok()?;
        Some(Segments::of(header.program_headers(endian, &file).ok()?, endian))
    }

    /// The segments of program headers.
    pub fn of<H: ProgramHeader>(headers: &[H], endian: H::Endian) -> Segments {
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
        Segments(headers.iter().take(MAX_SEGMENTS).filter_map(segment).collect())
    }

    fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter().filter(|s| !s.relro)
    }

    /// How far from its own addresses the file was loaded, if `start` maps code of it from `offset` on.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        // Mappings begin on a page, segments need not: the page may hold the end of another segment, whose
        // addresses lie elsewhere.
        let page = |n: u64| n & !0xfff;
        let mut code = self.loaded().filter(|s| s.code);
        let s = code.find(|s| page(s.file.start) == offset || s.file.contains(&offset))?;
        Some(start.wrapping_sub(page(s.memory.start.wrapping_add(offset.wrapping_sub(page(s.file.start))))))
    }

    /// Whether a range of memory is made read-only after loading.
    pub fn protects(&self, range: &Range<u64>) -> bool {
        let mut protected = self.0.iter().filter(|s| s.relro);
        protected.any(|s| s.memory.start <= range.start && range.end <= s.memory.end)
    }

    /// Whether any segment holds this address in memory.
    pub fn holds(&self, address: u64) -> bool {
        self.loaded().any(|s| s.memory.contains(&address))
    }

    /// The address, as the symbols count it, of the byte at `offset` of the file.
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
        let segments = Segments::read(&exe).expect("a test is an ELF file");
        assert_eq!(segments.address(0), Some(0), "a position-independent program starts at 0");
        assert_eq!(segments.address(u64::MAX), None);
    }

    #[test]
    fn a_page_of_two_segments_is_the_codes() {
        // As lld lays them out: the page at 0x47b000 ends the first and begins the second.
        let segment = |offset: u64, address: u64, size, code| Segment {
            relro: false,
            code,
            memory: address..address + size,
            file: offset..offset + size,
        };
        let segments =
            Segments(vec![segment(0, 0, 0x47b560, false), segment(0x47b560, 0x47c560, 0x7c6680, true)]);
        assert_eq!(segments.bias(0x5500_0047_c000, 0x47b000), Some(0x5500_0000_0000));
        assert_eq!(segments.bias(0x5500_0050_0000, 0x4ff000), Some(0x5500_0000_0000));
        assert_eq!(segments.bias(0x5500_0000_0000, 0), None);
    }

    #[test]
    fn damaged_files_have_no_segments() {
        let dir = tempfile::tempdir().unwrap();
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let path = dir.path().join("x");
        for cut in [0, 1, 4, 63, 64, 100] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(Segments::read(&path).is_none(), "{cut} bytes");
        }
        let mut head = whole[..4096].to_vec();
        head[32..64].fill(0xff);
        std::fs::write(&path, &head).unwrap();
        assert!(Segments::read(&path).is_none());
        assert!(crate::debug_file::debug_file(&path).is_none());
    }
}
