//! What a core tells: threads, signal, mappings, build IDs.

use std::collections::BTreeMap;

use crate::Error;
use crate::arch;
use crate::notes::{NT_FILE, NT_OWN, NT_PRPSINFO, NT_PRSTATUS, OWN};
use crate::read::Contents;
use crate::seekable::{Source, Trailer};

/// Notes and tables that a core may have at most, bytes.
const LARGEST: u64 = 1 << 30;

/// A thread of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its number.
    pub tid: i32,
    /// The signal it was about to receive, or died of; 0 is none.
    pub signal: i32,
    /// Program counter.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
}

/// A file that was mapped.
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
    /// Where in the file.
    pub offset: u64,
    /// PF_X, PF_W, PF_R.
    pub flags: u32,
}

/// What a core tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Name of the program.
    pub program: Vec<u8>,
    /// Its arguments, as far as the kernel keeps them here.
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
    /// Our own note, as JSON text; empty in cores of others.
    pub own: String,
    /// What the dump tells at its end.
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

/// Reads what a core tells.
///
/// # Errors
/// It is no 64-bit ELF core of this machine's kind, or damaged where it is looked at.
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
            4 if size <= LARGEST => {
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

/// Reads memory of a core; shorter where it is not stored.
pub fn memory<S: Source>(contents: &Contents<S>, loads: &[Load], address: u64, length: usize) -> Vec<u8> {
    let Some(load) = loads.iter().find(|l| l.start <= address && address - l.start < l.stored) else {
        return Vec::new();
    };
    let within = address - load.start;
    let length = (load.stored - within).min(length as u64) as usize;
    let Some(offset) = load.offset.checked_add(within) else { return Vec::new() };
    contents.read(offset, length).unwrap_or_default()
}

/// The build ID of a file whose beginning lies at an address.
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
        // Notes of the beginning of a file; those further away are not looked for.
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
