//! The two things wanted of an ELF file beyond its symbols: where its segments load, and whether
//! its debug symbols lie elsewhere.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PF_X: u8 = 1;
/// No real program has more segments.
const MAX_SEGMENTS: usize = 256;

/// The loaded segments of a 64-bit ELF file of this machine's byte order.
#[derive(Debug, Default)]
pub(super) struct Segments(Vec<Segment>);

#[derive(Debug)]
struct Segment {
    offset: u64,
    address: u64,
    size: u64,
    /// In memory, zero-filled data included.
    memory: u64,
    code: bool,
}

impl Segments {
    /// Reads the program headers; `None` where the file is no such ELF file.
    pub fn read(path: &Path) -> Option<Segments> {
        let file = File::open(path).ok()?;
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        let class64 = head[4] == 2;
        if &head[..4] != b"\x7fELF" || !class64 {
            return None;
        }
        let (table, size) = (u64_at(&head, 32)?, u16_at(&head, 54)?);
        let count = usize::from(u16_at(&head, 56)?).min(MAX_SEGMENTS);
        if size < 56 {
            return None;
        }
        let mut headers = vec![0; usize::from(size) * count];
        file.read_exact_at(&mut headers, table).ok()?;
        let loads = headers.chunks_exact(usize::from(size)).filter_map(|h| {
            let load = h[..4] == 1u32.to_ne_bytes();
            let segment = Segment {
                offset: u64_at(h, 8)?,
                address: u64_at(h, 16)?,
                size: u64_at(h, 32)?,
                memory: u64_at(h, 40)?,
                code: h[4] & PF_X != 0,
            };
            load.then_some(segment)
        });
        Some(Segments(loads.collect()))
    }

    /// How far from its own addresses the file was loaded, if `start` maps code of it from `offset` on.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        // Mappings begin on a page, segments need not: the page may hold the end of another segment, whose
        // addresses lie elsewhere.
        let page = |n: u64| n & !0xfff;
        let s = self
            .0
            .iter()
            .filter(|s| s.code)
            .find(|s| page(s.offset) == offset || (s.offset..s.offset + s.size).contains(&offset))?;
        Some(start.wrapping_sub(page(s.address.wrapping_add(offset.wrapping_sub(page(s.offset))))))
    }

    /// Whether any segment holds this address in memory.
    pub fn holds(&self, address: u64) -> bool {
        self.0.iter().any(|s| address.checked_sub(s.address).is_some_and(|o| o < s.memory))
    }

    /// The address, as the symbols count it, of the byte at `offset` of the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let s = self.0.iter().find(|s| offset.checked_sub(s.offset).is_some_and(|o| o < s.size))?;
        s.address.checked_add(offset - s.offset)
    }
}

/// The file with the debug symbols of `path`, where the system has it by build id.
pub(super) fn debug_file(path: &Path) -> Option<PathBuf> {
    let id = blazesym::helper::read_elf_build_id(path).ok()??;
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let (dir, file) = hex.split_at_checked(2)?;
    let debug = PathBuf::from(format!("/usr/lib/debug/.build-id/{dir}/{file}.debug"));
    debug.exists().then_some(debug)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
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
        let segment = |offset, address, size, code| Segment { offset, address, size, memory: size, code };
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
        assert!(debug_file(&path).is_none());
    }
}
