//! The places of code and its bytes, for whatever decodes instructions.

use super::User;
use crate::maps::ProcMaps;
use crate::table::What;

/// The most bytes of a function that is decoded from its beginning.
const MAX_CODE: u64 = 64 << 10;
/// Code without symbols is read in pages of this size, with this many bytes before and after in which to find
/// instructions.
const CODE_PAGE: u64 = 4 << 10;
const LEAD_IN: u64 = 128;
const LEAD_OUT: u64 = 16;

/// The place of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// Its identity.
    pub key: CodeKey,
    /// Whether it begins with an instruction.
    pub whole: bool,
    /// Its address in the process.
    pub address: u64,
    /// Its address as the file has it; that in the process for code made at run time.
    pub in_file: u64,
    /// Bytes.
    pub length: u64,
    /// The number of the processor that it is for (`e_machine` of the file); `None`: code made at run time, for this one.
    pub machine: Option<u16>,
}

/// The identity of code: equal for all processes that map a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeKey {
    /// A file by its number in the maps, and an offset in it.
    File(u32, u64),
    /// A process and an address.
    Memory(u32, u64),
}

/// The place of code generated at run time: the page around `addr`. `None` for code of a file.
pub fn made_code(maps: &ProcMaps, tgid: u32, addr: u64) -> Option<CodePlace> {
    let (file, _) = maps.find(tgid, addr)?;
    maps.file(file).path.is_none().then(|| page_of(tgid, addr))
}

/// The page around an address of code without a file.
fn page_of(tgid: u32, addr: u64) -> CodePlace {
    let address = (addr & !(CODE_PAGE - 1)).saturating_sub(LEAD_IN);
    let length = LEAD_IN + CODE_PAGE + LEAD_OUT;
    CodePlace {
        key: CodeKey::Memory(tgid, address),
        whole: false,
        address,
        in_file: address,
        length,
        machine: None,
    }
}

impl User {
    /// The place of the code around `addr` of a process: its function, if symbols define it, otherwise its
    /// page.
    pub fn code_place(&mut self, maps: &ProcMaps, tgid: u32, addr: u64) -> Option<CodePlace> {
        let (file, offset) = maps.find(tgid, addr)?;
        if maps.file(file).path.is_none() {
            return Some(page_of(tgid, addr));
        }
        let program = self.program(maps, file)?;
        let address = program.segments.address(offset)?;
        let machine = Some(program.segments.machine());
        let table = self.symbols(maps, file, What::Functions).ok()?;
        let range = table.and_then(|table| table.range(address)).filter(|r| r.end - r.start <= MAX_CODE);
        self.trim();
        let (whole, begin, length) = match range {
            Some(range) => (true, offset.checked_sub(address - range.start)?, range.end - range.start),
            None => {
                let page = offset & !(CODE_PAGE - 1);
                let begin = page.saturating_sub(LEAD_IN);
                (false, begin, page - begin + CODE_PAGE + LEAD_OUT)
            }
        };
        let (address, in_file) = (addr.wrapping_sub(offset - begin), address.wrapping_sub(offset - begin));
        Some(CodePlace { key: CodeKey::File(file, begin), whole, address, in_file, length, machine })
    }

    /// The available bytes of code; those in memory while the process lives.
    pub fn code_bytes(&self, maps: &ProcMaps, place: &CodePlace) -> Option<Vec<u8>> {
        let (source, begin) = match place.key {
            CodeKey::File(file, begin) => (maps.source(file)?, begin),
            CodeKey::Memory(tgid, address) => (maps.memory(tgid)?, address),
        };
        if !source.may_read() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(place.length.min(MAX_CODE)).ok()?];
        let got = source.parsed(|source| source.read_at(&mut bytes, begin));
        bytes.truncate(got.ok()?);
        Some(bytes)
    }
}
