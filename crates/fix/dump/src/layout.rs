//! The order of the parts of an ELF core: headers, notes, memory, and the source of each byte of the file.

use crate::arch;
use crate::pagemap::{Ranges, push, within};
use crate::target::Mapping;
use ncpu_machine::page_size;

/// Bytes of a frame before compression.
pub(crate) const CHUNK: u64 = 4 << 20;
/// Holes of at least this size get a segment of their own.
const HOLE: u64 = CHUNK;
/// Large pieces are aligned so that a huge page of memory is a huge page of the file.
const HUGE: u64 = 2 << 20;
/// All segments of holes share the same zeros of the file, of this size at most.
const WINDOW: u64 = 1 << 30;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const EHDR: u64 = 64;
const PHDR: u64 = 56;
const SHDR: u64 = 64;
/// The count of program headers that refers to the first section for the true count.
const PN_XNUM: u64 = 0xffff;

/// A mapping's part of the core.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// PF_X, PF_W, PF_R.
    pub(crate) flags: u32,
    /// Number of bytes stored, from its start.
    pub(crate) stored: u64,
}

impl Segment {
    pub(crate) fn new(mapping: &Mapping, stored: u64) -> Self {
        let flags = u32::from(mapping.execute) | u32::from(mapping.write) << 1 | u32::from(mapping.read) << 2;
        Self { start: mapping.start, end: mapping.end, flags, stored }
    }
}

/// Memory in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    offset: u64,
    start: u64,
    end: u64,
}

/// A core to write.
pub(crate) struct Layout {
    head: Vec<u8>,
    pieces: Vec<Piece>,
    /// Pages with data; all others are zero.
    pub(crate) filled: std::sync::Arc<Ranges>,
    size: u64,
}

/// A range of memory within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The offset in the chunk.
    pub(crate) at: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Layout {
    /// Lays out a core. `filled` are the pages with data.
    pub(crate) fn new(segments: &[Segment], filled: std::sync::Arc<Ranges>, notes: &[u8]) -> Self {
        // The segments of the file: start, end, flags, their stored part, and the end of the memory they
        // cover. As in the kernel's cores, the unstored part of a mapping is the rest of the segment with its
        // beginning.
        enum Stored {
            Not,
            Memory,
            Zeros,
        }
        let mut rows = Vec::new();
        for segment in segments {
            let stored = segment.start + segment.stored.min(segment.end - segment.start);
            let mut at = segment.start;
            for (low, high) in holes(&filled, segment.start, stored) {
                if at < low {
                    rows.push((at, low, segment.flags, Stored::Memory, low));
                }
                at = low;
                while at < high {
                    let end = high.min(at + WINDOW);
                    rows.push((at, end, segment.flags, Stored::Zeros, end));
                    at = end;
                }
            }
            if at < stored {
                rows.push((at, stored, segment.flags, Stored::Memory, segment.end));
            } else if stored < segment.end {
                rows.push((stored, segment.end, segment.flags, Stored::Not, segment.end));
            }
        }
        let headers = rows.len() as u64 + 1;
        let extended = headers >= PN_XNUM;
        let table = EHDR + if extended { SHDR } else { 0 };
        let notes_at = table + headers * PHDR;
        let mut offset = (notes_at + notes.len() as u64).next_multiple_of(page_size());
        let mut pieces = Vec::new();
        for (start, end, _, stored, _) in &rows {
            if matches!(stored, Stored::Memory) {
                if end - start >= CHUNK {
                    offset += (start % HUGE + HUGE - offset % HUGE) % HUGE;
                }
                pieces.push(Piece { offset, start: *start, end: *end });
                offset += end - start;
            }
        }
        let zeros = offset;
        let window = rows.iter().filter(|row| matches!(row.3, Stored::Zeros)).map(|row| row.1 - row.0).max();
        let size = zeros + window.unwrap_or(0);

        let mut head = header(headers, table);
        if extended {
            // A section without contents, whose sh_info has the count.
            let mut section = [0; SHDR as usize];
            section[44..48].copy_from_slice(&(headers as u32).to_ne_bytes());
            head.extend_from_slice(&section);
        }
        program_header(&mut head, PT_NOTE, 0, [notes_at, 0, 0, notes.len() as u64, 0, 4]);
        let mut next = pieces.iter();
        for (start, end, flags, stored, covers) in &rows {
            let length = end - start;
            let (offset, in_file) = match stored {
                Stored::Memory => (next.next().map_or(0, |piece| piece.offset), length),
                Stored::Zeros => (zeros, length),
                Stored::Not => (0, 0),
            };
            program_header(
                &mut head,
                PT_LOAD,
                *flags,
                [offset, *start, 0, in_file, covers - start, page_size()],
            );
        }
        head.extend_from_slice(notes);
        Self { head, pieces, filled, size }
    }

    /// Size of the core in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The number of chunks of the core.
    pub(crate) fn chunks(&self) -> usize {
        self.size.div_ceil(CHUNK) as usize
    }

    /// Size of a chunk in bytes; only the last is short.
    pub(crate) fn length(&self, chunk: usize) -> usize {
        (self.size - chunk as u64 * CHUNK).min(CHUNK) as usize
    }

    /// The addresses at which chunks begin. Chunks after all memory have the largest address.
    pub(crate) fn firsts(&self) -> Vec<u64> {
        (0..self.chunks())
            .map(|chunk| {
                let at = chunk as u64 * CHUNK;
                let index = self.pieces.partition_point(|p| p.offset + (p.end - p.start) <= at);
                self.pieces.get(index).map_or(u64::MAX, |p| p.start + at.saturating_sub(p.offset))
            })
            .collect()
    }

    /// Copies the chunk's part of headers and notes.
    pub(crate) fn copy_head(&self, chunk: usize, buffer: &mut [u8]) {
        let at = chunk * CHUNK as usize;
        if let Some(head) = self.head.get(at..) {
            let length = head.len().min(buffer.len());
            buffer[..length].copy_from_slice(&head[..length]);
        }
    }

    /// Whether a chunk consists of zeros only.
    pub(crate) fn is_zero(&self, chunk: usize) -> bool {
        self.head.len() <= chunk * CHUNK as usize && self.filled_parts(chunk).is_empty()
    }

    /// The memory in a chunk, whether filled or not.
    pub(crate) fn parts(&self, chunk: usize) -> Vec<Part> {
        let (low, high) = (chunk as u64 * CHUNK, (chunk as u64 + 1) * CHUNK);
        let first = self.pieces.partition_point(|p| p.offset + (p.end - p.start) <= low);
        let mut out = Vec::new();
        for piece in self.pieces[first..].iter().take_while(|piece| piece.offset < high) {
            let from = piece.offset.max(low);
            let to = (piece.offset + (piece.end - piece.start)).min(high);
            let start = piece.start + (from - piece.offset);
            out.push(Part { at: (from - low) as usize, start, end: start + (to - from) });
        }
        out
    }

    /// The memory in a chunk that contains data.
    pub(crate) fn filled_parts(&self, chunk: usize) -> Vec<Part> {
        let mut out = Vec::new();
        for part in self.parts(chunk) {
            for (start, end) in within(&self.filled, part.start, part.end) {
                out.push(Part { at: part.at + (start - part.start) as usize, start, end });
            }
        }
        out
    }
}

/// Large holes between two addresses, cut to huge pages.
fn holes(filled: &[(u64, u64)], start: u64, end: u64) -> Ranges {
    let mut out = Ranges::new();
    let mut at = start;
    for (low, high) in within(filled, start, end).chain([(end, end)]) {
        let (from, to) = (at.next_multiple_of(HUGE), if low == end { end } else { low & !(HUGE - 1) });
        if to > from && to - from >= HOLE {
            push(&mut out, from, to);
        }
        at = high;
    }
    out
}

fn header(headers: u64, table: u64) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    let extended = headers >= PN_XNUM;
    // ET_CORE
    for half in [4, arch::MACHINE] {
        out.extend_from_slice(&half.to_ne_bytes());
    }
    out.extend_from_slice(&1u32.to_ne_bytes());
    for word in [0, table, if extended { EHDR } else { 0 }] {
        out.extend_from_slice(&u64::to_ne_bytes(word));
    }
    out.extend_from_slice(&0u32.to_ne_bytes());
    let count = headers.min(PN_XNUM) as u16;
    let sections = u16::from(extended);
    for half in [EHDR as u16, PHDR as u16, count, SHDR as u16 * sections, sections, 0] {
        out.extend_from_slice(&half.to_ne_bytes());
    }
    out
}

/// `rest`: offset, address, physical address, bytes in the file, bytes in memory, alignment.
fn program_header(out: &mut Vec<u8>, kind: u32, flags: u32, rest: [u64; 6]) {
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    for word in rest {
        out.extend_from_slice(&word.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core_file;
    use crate::read::Contents;
    use crate::seekable::{Codec, Seekable, pack};

    const PAGE: u64 = 4096;

    fn head(layout: &Layout) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in 0..layout.chunks() {
            let mut bytes = vec![0; layout.length(chunk)];
            layout.copy_head(chunk, &mut bytes);
            out.append(&mut bytes);
        }
        assert_eq!(out.len() as u64, layout.size());
        out
    }

    #[test]
    fn large_holes_begin_and_end_at_huge_pages() {
        let (begin, end) = (8 * CHUNK, 16 * CHUNK);
        assert_eq!(holes(&[], begin, end), [(begin, end)]);
        assert_eq!(
            holes(&[], begin + PAGE, end - PAGE),
            [(begin + HUGE, end - PAGE)],
            "the rest is a hole to its end"
        );
        let filled =
            [(begin + PAGE, begin + 2 * PAGE), (begin + 2 * CHUNK + PAGE, begin + 2 * CHUNK + 2 * PAGE)];
        let expected = [(begin + HUGE, begin + 2 * CHUNK), (begin + 2 * CHUNK + HUGE, end)];
        assert_eq!(holes(&filled, begin, end), expected);
        assert_eq!(holes(&filled, begin, begin + CHUNK), [], "what is left of it is small");
        assert_eq!(holes(&[], begin, begin + CHUNK), [(begin, begin + CHUNK)]);
        assert_eq!(holes(&[], begin, begin + CHUNK - PAGE), []);
        assert_eq!(holes(&[(begin, end)], begin, end), []);
    }

    /// A filled segment, one with holes, one with a single stored page, and one that is not stored.
    fn layout() -> Layout {
        let segment =
            |start: u64, length: u64, stored: u64| Segment { start, end: start + length, flags: 6, stored };
        let segments = [
            segment(16 * CHUNK, 3 * CHUNK + PAGE, u64::MAX),
            segment(32 * CHUNK + PAGE, 8 * CHUNK, u64::MAX),
            segment(64 * CHUNK, CHUNK, PAGE),
            segment(80 * CHUNK, CHUNK, 0),
        ];
        let filled = vec![
            (16 * CHUNK, 19 * CHUNK + PAGE),
            (36 * CHUNK + PAGE, 36 * CHUNK + 3 * PAGE),
            (64 * CHUNK, 64 * CHUNK + PAGE),
        ];
        Layout::new(&segments, Arc::new(filled), b"")
    }

    #[test]
    fn every_stored_byte_lies_once_in_the_chunks() {
        let layout = layout();
        let firsts = layout.firsts();
        assert_eq!(firsts.len(), layout.chunks());
        let mut stored = Ranges::new();
        for (chunk, first) in firsts.iter().enumerate() {
            let parts = layout.parts(chunk);
            for part in &parts {
                assert!(part.at + (part.end - part.start) as usize <= layout.length(chunk));
                stored.push((part.start, part.end));
            }
            assert!(parts.is_sorted_by(|a, b| a.at + (a.end - a.start) as usize <= b.at), "{parts:?}");
            match parts.first() {
                Some(part) if part.at == 0 => assert_eq!(*first, part.start),
                Some(part) => assert!(*first <= part.start),
                None => assert_eq!(*first, u64::MAX, "nothing but zeros from chunk {chunk} on"),
            }
            let filled: u64 = layout.filled_parts(chunk).iter().map(|p| p.end - p.start).sum();
            assert_eq!(layout.is_zero(chunk), filled == 0 && chunk > 0, "chunk {chunk}");
        }
        let bytes: u64 = stored.iter().map(|(start, end)| end - start).sum();
        crate::pagemap::join(&mut stored);
        assert_eq!(stored.iter().map(|(start, end)| end - start).sum::<u64>(), bytes, "none twice");
        let filled: u64 =
            (0..layout.chunks()).flat_map(|c| layout.filled_parts(c)).map(|p| p.end - p.start).sum();
        assert_eq!(filled, layout.filled.iter().map(|(start, end)| end - start).sum::<u64>());
        // Three chunks of memory begin like huge pages, so that a huge page of memory is one of the file.
        let large = layout.pieces.iter().filter(|p| p.end - p.start >= CHUNK);
        assert!(large.clone().count() > 0 && large.clone().all(|p| p.offset % HUGE == p.start % HUGE));
    }

    #[test]
    fn what_is_not_stored_is_the_rest_of_a_segment() {
        let core = head(&layout());
        let contents = Contents::new(Seekable::open(pack(&core, Codec::Lz4).unwrap()).unwrap());
        let info = core_file::info(&contents).unwrap();
        let at = |address: u64| info.loads.iter().find(|l| l.start == address).map(|l| (l.size, l.stored));
        assert_eq!(at(16 * CHUNK), Some((3 * CHUNK + PAGE, 3 * CHUNK + PAGE)));
        assert_eq!(at(64 * CHUNK), Some((CHUNK, PAGE)));
        assert_eq!(at(80 * CHUNK), Some((CHUNK, 0)));
        let all: u64 = info.loads.iter().map(|l| l.size).sum();
        assert_eq!((all, info.missing), (3 * CHUNK + PAGE + 8 * CHUNK + 2 * CHUNK, 0));
        assert!(info.loads.iter().all(|l| l.flags == 6));
    }

    /// ELF counts program headers in 16 bits; for more, the first section has the count.
    #[test]
    fn more_segments_than_a_header_can_count() {
        for segments in [PN_XNUM - 2, PN_XNUM - 1, PN_XNUM + 5] {
            let all: Vec<Segment> = (1..=segments)
                .map(|n| Segment { start: 2 * n * PAGE, end: (2 * n + 1) * PAGE, flags: 4, stored: 0 })
                .collect();
            let core = head(&Layout::new(&all, Arc::default(), b""));
            let contents = Contents::new(Seekable::open(pack(&core, Codec::Lz4).unwrap()).unwrap());
            let loads = core_file::info(&contents).unwrap().loads;
            assert_eq!(loads.len() as u64, segments);
            assert!(loads.iter().zip(&all).all(|(load, s)| (load.start, load.size) == (s.start, PAGE)));
        }
    }
}
