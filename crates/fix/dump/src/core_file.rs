//! The contents of a core: threads, signal, mappings, build IDs.

use std::collections::BTreeMap;

use crate::Error;
use crate::arch;
use crate::notes::{NT_FILE, NT_OWN, NT_PRPSINFO, NT_PRSTATUS, OWN};
use crate::read::Contents;
use crate::seekable::{Source, Trailer};

/// The most bytes of a core's program headers, and of all its notes together.
const LARGEST: u64 = 1 << 30;

/// A thread of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its number.
    pub tid: i32,
    /// The signal it was about to receive, or died of; 0 for none.
    pub signal: i32,
    /// Program counter.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
}

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// Lowest address.
    pub start: u64,
    /// The end of the highest mapping.
    pub end: u64,
    /// The build ID, if the first page of the file is in the core and has one.
    pub build_id: Option<Vec<u8>>,
}

/// A segment of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// First address.
    pub start: u64,
    /// Bytes of memory.
    pub size: u64,
    /// Bytes in the file.
    pub stored: u64,
    /// The offset in the file.
    pub offset: u64,
    /// PF_X, PF_W, PF_R.
    pub flags: u32,
}

/// The contents of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Name of the program.
    pub program: Vec<u8>,
    /// Its arguments, as far as the kernel stores them here.
    pub arguments: Vec<u8>,
    /// Process and user.
    pub pid: i32,
    /// Real user.
    pub uid: u32,
    /// Threads; the one that received the signal comes first.
    pub threads: Vec<ThreadInfo>,
    /// Segments.
    pub loads: Vec<Load>,
    /// Mapped files.
    pub files: Vec<FileInfo>,
    /// Our own note, as JSON text; empty in cores of other programs.
    pub own: String,
    /// The trailer at the end of the dump.
    pub trailer: Option<Trailer>,
    /// Bytes that are missing at the end of the core.
    pub missing: u64,
}

fn bad(what: &str) -> Error {
    Error::Format(format!("not a core: {what}"))
}

/// Numbers in bytes; missing bytes are zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end));
        bytes.and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }
}

/// Reads the contents of a core.
///
/// # Errors
/// It is not a 64-bit ELF core of this machine's kind, or a part that is read is damaged.
pub fn info<S: Source>(contents: &Contents<S>) -> Result<Info, Error> {
    let header = contents.read(0, 64)?;
    let header = Bytes(&header);
    if header.array(0) != *b"\x7fELF\x02\x01" || header.u16(16) != 4 {
        return Err(bad("no header of a 64-bit core"));
    }
    if header.u16(18) != arch::MACHINE {
        return Err(bad("it is of another kind of processor"));
    }
    let mut count = u64::from(header.u16(56));
    if count == 0xffff {
        let section = contents.read(header.u64(40), 64)?;
        count = u64::from(Bytes(&section).u32(44));
    }
    if header.u16(54) != 56 || count * 56 > LARGEST {
        return Err(bad("its program headers are damaged"));
    }
    let table = contents.read(header.u64(32), (count * 56) as usize)?;
    if (table.len() as u64) < count * 56 {
        return Err(bad("its program headers are cut off"));
    }
    let mut info = Info { trailer: contents.dump().trailer().cloned(), ..Info::default() };
    let mut notes_left = LARGEST;
    for row in table.chunks_exact(56) {
        let row = Bytes(row);
        let (offset, size) = (row.u64(8), row.u64(32));
        if let Some(end) = offset.checked_add(size) {
            info.missing = info.missing.max(end.saturating_sub(contents.size()));
        }
        match row.u32(0) {
            1 => info.loads.push(Load {
                start: row.u64(16),
                size: row.u64(40),
                stored: size,
                offset,
                flags: row.u32(4),
            }),
            4 if size <= notes_left => {
                notes_left -= size;
                let notes = contents.read(offset, size as usize)?;
                notes_of(&notes, |name, kind, body| note(&mut info, name, kind, body));
            }
            _ => {}
        }
    }
    info.loads.sort_by_key(|load| load.start);
    for file in &mut info.files {
        file.build_id = build_id(contents, &info.loads, file.start);
    }
    Ok(info)
}

fn notes_of(bytes: &[u8], mut with: impl FnMut(&[u8], u32, &[u8])) {
    let mut rest = bytes;
    while rest.len() >= 12 {
        let head = Bytes(rest);
        let (name, size, kind) = (head.u32(0) as usize, head.u32(4) as usize, head.u32(8));
        let body = 12 + name.next_multiple_of(4);
        let (Some(name), Some(contents)) =
            (rest.get(12..12 + name), body.checked_add(size).and_then(|end| rest.get(body..end)))
        else {
            return;
        };
        with(name.strip_suffix(b"\0").unwrap_or(name), kind, contents);
        rest = rest.get(body + size.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn note(info: &mut Info, name: &[u8], kind: u32, body: &[u8]) {
    let bytes = Bytes(body);
    let text = |from: usize, length: usize| {
        let field = body.get(from..from + length).unwrap_or_default();
        field.split(|&b| b == 0).next().unwrap_or_default().to_vec()
    };
    match (name, kind) {
        (OWN, NT_OWN) => info.own = String::from_utf8_lossy(body).into_owned(),
        (b"CORE", NT_PRSTATUS) => {
            let registers = body.get(112..112 + arch::GENERAL).and_then(arch::General::from_bytes);
            let Some(registers) = registers else { return };
            info.threads.push(ThreadInfo {
                tid: bytes.u32(32) as i32,
                signal: bytes.u16(12).into(),
                pc: registers.pc(),
                sp: registers.sp(),
            });
        }
        (b"CORE", NT_PRPSINFO) => {
            (info.uid, info.pid) = (bytes.u32(16), bytes.u32(24) as i32);
            (info.program, info.arguments) = (text(40, 16), text(56, 80));
        }
        (b"CORE", NT_FILE) => info.files = files(body),
        _ => {}
    }
}

/// The files of NT_FILE, each once.
fn files(body: &[u8]) -> Vec<FileInfo> {
    let bytes = Bytes(body);
    let count = usize::try_from(bytes.u64(0)).unwrap_or(usize::MAX);
    let Some(names) = count.checked_mul(24).and_then(|size| body.get(size.checked_add(16)?..)) else {
        return Vec::new();
    };
    let mut all: BTreeMap<&[u8], (u64, u64)> = BTreeMap::new();
    for (n, name) in names.split(|&b| b == 0).take(count).enumerate() {
        let (start, end) = (bytes.u64(16 + 24 * n), bytes.u64(24 + 24 * n));
        let range = all.entry(name).or_insert((start, end));
        *range = (range.0.min(start), range.1.max(end));
    }
    let mut files: Vec<FileInfo> = all
        .into_iter()
        .map(|(name, (start, end))| FileInfo { name: name.to_vec(), start, end, build_id: None })
        .collect();
    files.sort_by_key(|file| file.start);
    files
}

/// Reads memory of a core. `loads` are in the order of addresses. Memory that the core lacks is left out.
pub fn memory<S: Source>(contents: &Contents<S>, loads: &[Load], address: u64, length: usize) -> Vec<u8> {
    let after = loads.partition_point(|load| load.start <= address);
    let Some(load) = after.checked_sub(1).map(|at| &loads[at]) else { return Vec::new() };
    let within = address - load.start;
    let length = load.stored.saturating_sub(within).min(length as u64) as usize;
    let Some(offset) = load.offset.checked_add(within) else { return Vec::new() };
    contents.read(offset, length).unwrap_or_default()
}

/// The build ID of the file that begins at an address.
fn build_id<S: Source>(contents: &Contents<S>, loads: &[Load], start: u64) -> Option<Vec<u8>> {
    let page = memory(contents, loads, start, 4096);
    let header = Bytes(&page);
    if header.array(0) != *b"\x7fELF\x02" {
        return None;
    }
    let table = usize::try_from(header.u64(32)).ok()?;
    for n in 0..usize::from(header.u16(56)) {
        let row = Bytes(page.get(table.checked_add(n * 56)?..)?);
        if row.u32(0) != 4 {
            continue;
        }
        // Notes at the beginning of a file; notes further away are not searched for.
        let (offset, size) = (usize::try_from(row.u64(8)).ok()?, usize::try_from(row.u64(32)).ok()?);
        let Some(notes) = offset.checked_add(size).and_then(|end| page.get(offset..end)) else { continue };
        let mut found = None;
        notes_of(notes, |name, kind, body| {
            if name == b"GNU" && kind == 3 {
                found = Some(body.to_vec());
            }
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::layout::{CHUNK, Layout, Segment};
    use crate::notes::put;
    use crate::seekable::{Codec, Seekable, pack};

    const PAGE: u64 = 4096;
    const CODE: u64 = 0x40_0000;
    const HEAP: u64 = 0x7f00_0000_0000;

    fn contents(core: &[u8]) -> Contents<Vec<u8>> {
        Contents::new(Seekable::open(pack(core, Codec::Zstd(1)).unwrap()).unwrap())
    }

    /// A page of a program with a build ID of four bytes.
    fn program() -> Vec<u8> {
        let mut page = vec![0; PAGE as usize];
        page[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut notes = Vec::new();
        put(&mut notes, b"GNU", 1, b"abi!");
        put(&mut notes, b"GNU", 3, &[0xde, 0xad, 0xbe, 0xef]);
        let (table, at) = (64u64, 200usize);
        page[32..40].copy_from_slice(&table.to_ne_bytes());
        page[56..58].copy_from_slice(&1u16.to_ne_bytes());
        page[64..68].copy_from_slice(&4u32.to_ne_bytes());
        page[72..80].copy_from_slice(&(at as u64).to_ne_bytes());
        page[96..104].copy_from_slice(&(notes.len() as u64).to_ne_bytes());
        page[at..at + notes.len()].copy_from_slice(&notes);
        page
    }

    /// A core of two threads, a program's first page, and a heap with one page of data.
    fn core() -> Vec<u8> {
        let mut notes = Vec::new();
        put(&mut notes, OWN, NT_OWN, b"{}");
        for (tid, signal) in [(71i32, 11u16), (72, 0)] {
            let mut status = vec![0; 112 + arch::GENERAL + 8];
            status[12..14].copy_from_slice(&signal.to_ne_bytes());
            status[32..36].copy_from_slice(&tid.to_ne_bytes());
            put(&mut notes, b"CORE", NT_PRSTATUS, &status);
        }
        let mut process = vec![0; 136];
        process[16..20].copy_from_slice(&1000u32.to_ne_bytes());
        process[24..28].copy_from_slice(&71i32.to_ne_bytes());
        process[40..44].copy_from_slice(b"name");
        process[56..63].copy_from_slice(b"name -x");
        put(&mut notes, b"CORE", NT_PRPSINFO, &process);
        let words = [2, PAGE, CODE, CODE + PAGE, 0, CODE + 4 * PAGE, CODE + 5 * PAGE, 4];
        let mut files: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        files.extend_from_slice(b"/bin/name\0/bin/name\0");
        put(&mut notes, b"CORE", NT_FILE, &files);

        let segments = [
            Segment { start: CODE, end: CODE + 4 * PAGE, flags: 5, stored: PAGE },
            Segment { start: HEAP, end: HEAP + 4 * CHUNK, flags: 6, stored: 4 * CHUNK },
        ];
        let filled = vec![(CODE, CODE + PAGE), (HEAP + PAGE, HEAP + 2 * PAGE)];
        let layout = Layout::new(&segments, Arc::new(filled), &notes);
        let mut core = Vec::new();
        for chunk in 0..layout.chunks() {
            let mut bytes = vec![0; layout.length(chunk)];
            layout.copy_head(chunk, &mut bytes);
            for part in layout.filled_parts(chunk) {
                let length = (part.end - part.start) as usize;
                let page = if part.start == CODE { program() } else { vec![7; PAGE as usize] };
                bytes[part.at..part.at + length].copy_from_slice(&page[..length]);
            }
            assert_eq!(layout.is_zero(chunk), bytes.iter().all(|&b| b == 0));
            core.append(&mut bytes);
        }
        assert_eq!(core.len() as u64, layout.size());
        core
    }

    #[test]
    fn what_a_core_was_made_of_is_found_in_it() {
        let contents = contents(&core());
        let info = info(&contents).unwrap();
        assert_eq!(
            (&*info.program, &*info.arguments, info.pid, info.uid),
            (&b"name"[..], &b"name -x"[..], 71, 1000)
        );
        let threads: Vec<_> = info.threads.iter().map(|t| (t.tid, t.signal)).collect();
        assert_eq!(threads, [(71, 11), (72, 0)]);
        assert_eq!(info.files.len(), 1);
        let file = &info.files[0];
        assert_eq!((&*file.name, file.start, file.end), (&b"/bin/name"[..], CODE, CODE + 5 * PAGE));
        assert_eq!(file.build_id.as_deref(), Some(&[0xde, 0xad, 0xbe, 0xef][..]));
        assert_eq!((info.own.as_str(), info.missing), ("{}", 0));
        // All memory of the mappings is covered, each address once; the part that is not stored is the rest
        // of its segment.
        let mut covered: Vec<(u64, u64)> = info.loads.iter().map(|l| (l.start, l.start + l.size)).collect();
        covered.dedup_by(|next, last| {
            last.1 == next.0 && {
                last.1 = next.1;
                true
            }
        });
        assert_eq!(covered, [(CODE, CODE + 4 * PAGE), (HEAP, HEAP + 4 * CHUNK)]);
        let read = |at, length| memory(&contents, &info.loads, at, length);
        assert_eq!(read(CODE, 4096), program());
        assert_eq!(read(CODE + PAGE, 8), b"");
        assert_eq!(read(HEAP + PAGE - 1, 3), [0, 7, 7]);
        assert_eq!(read(HEAP + 2 * PAGE - 1, 2), [7, 0]);
        assert_eq!(read(HEAP + 4 * CHUNK - 1, 9), [0]);
        assert_eq!(read(HEAP + 4 * CHUNK, 1), b"");
    }

    #[test]
    fn a_core_cut_off_says_what_is_missing_or_is_none() {
        let core = core();
        for length in (0..0x1000).step_by(61).chain([core.len() - 1]) {
            match info(&contents(&core[..length])) {
                Ok(info) => assert!(info.missing > 0 && info.missing <= core.len() as u64, "{length}"),
                Err(e) => assert!(matches!(e, Error::Format(_)) && length < 64 + 8 * 56, "{length}: {e}"),
            }
        }
    }

    #[test]
    fn a_changed_word_of_its_headers_or_notes_ends_in_words_or_in_an_error() {
        let core = core();
        for at in (0..0x500).step_by(4) {
            for word in [0u32, 1, 4, 0xffff, 0x7fff_ffff, u32::MAX] {
                let mut changed = core[..0x2000].to_vec();
                changed[at..at + 4].copy_from_slice(&word.to_ne_bytes());
                if let Ok(info) = info(&contents(&changed)) {
                    assert!(info.threads.len() <= 2 && info.files.len() <= 2, "{at} {word}");
                }
            }
        }
    }

    #[test]
    fn many_headers_for_the_same_notes_read_no_more_than_one() {
        // Each header claims a sparse gigabyte as its notes.
        let (headers, size) = (2000u64, 64 << 20);
        let mut core = b"\x7fELF\x02\x01\x01".to_vec();
        core.resize(64, 0);
        core[16..18].copy_from_slice(&4u16.to_ne_bytes());
        core[18..20].copy_from_slice(&arch::MACHINE.to_ne_bytes());
        core[32..40].copy_from_slice(&64u64.to_ne_bytes());
        core[54..56].copy_from_slice(&56u16.to_ne_bytes());
        core[56..58].copy_from_slice(&(headers as u16).to_ne_bytes());
        for _ in 0..headers {
            let mut row = [0; 56];
            row[..4].copy_from_slice(&4u32.to_ne_bytes());
            row[32..40].copy_from_slice(&LARGEST.to_ne_bytes());
            core.extend_from_slice(&row);
        }
        core.resize(size, 0);
        let begun = std::time::Instant::now();
        let info = info(&contents(&core)).unwrap();
        assert_eq!(info.missing, LARGEST - size as u64);
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }
}
