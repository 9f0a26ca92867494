//! Functions of Go programs, and functions inlined into them: from the table that each program carries for
//! its own tracebacks (`runtime.pclntab`), stripped or not. Read at each look-up, so it costs no memory.
//!
//! The formats are those of Go 1.18 and later, whose tables begin with magic numbers of their own. Older programs
//! get no names from here.

use std::ops::Range;
use std::sync::Arc;

use crate::demangle::shown;
use crate::elf::{Sections, named_symbols, string};
use ncpu_files::reader::Source;

/// A version of the table.
#[derive(Debug)]
struct Format {
    /// The start of the table: its version, two zeros; then the instruction quantum, and the size of a pointer.
    magic: [u8; 6],
    /// Bytes of a function's fixed part, the last of which is the number of its data.
    function: u64,
    /// Bytes of an inlined call (`inlinedCall`), and where its name and its place in the caller stand.
    call: u64,
    call_name: u64,
    call_place: u64,
    /// The member of `moduledata` that the data of functions are relative to.
    gofunc: u64,
}

/// Go 1.20 and later; Go 1.18 and 1.19, whose functions have no first line, and whose inlined calls have a file and a line.
const FORMATS: [Format; 2] = [
    Format {
        magic: [0xf1, 0xff, 0xff, 0xff, 0, 0],
        function: 44,
        call: 16,
        call_name: 4,
        call_place: 8,
        gofunc: 320,
    },
    Format {
        magic: [0xf0, 0xff, 0xff, 0xff, 0, 0],
        function: 40,
        call: 20,
        call_name: 12,
        call_place: 16,
        gofunc: 304,
    },
];

/// Bytes of the table's header, and of a row of the index of functions.
const HEADER: usize = 72;
const ROW: u64 = 8;
/// The number of a function's table (`internal/abi/symtab.go`).
const PCDATA_INL_TREE_INDEX: u64 = 2;
const FUNCDATA_INL_TREE: u64 = 3;
/// The member of `moduledata` that the table is relative to: the code.
const MODULE_TEXT: u64 = 176;
/// The most functions of a program; the largest programs have about 300,000.
const MAX_FUNCTIONS: u64 = 4 << 20;
/// The most places in a section that may refer to the table; one of them is in the module's data.
const MAX_PLACES: usize = 64;
/// The depth of nested inlined calls; the compiler's budget ends sooner.
const DEEPEST: usize = 64;
/// Bytes read of a function's table from addresses to calls, by all look-ups for one address.
const MAX_STEPS: usize = 1 << 18;
/// Bytes of it that are read at first, and at most at once.
const STEPS_FIRST: usize = 256;
const STEPS_AT_ONCE: usize = 1 << 14;
/// Bytes of a section that are searched for the module's data, or names.
const MAX_DATA: u64 = 64 << 20;
/// Bytes read at once.
const CHUNK: usize = 1 << 18;

/// The functions of a Go program.
#[derive(Debug)]
pub(crate) struct Go {
    file: Source,
    format: &'static Format,
    /// The link-time address of the code.
    text: u64,
    functions: u64,
    /// The instruction quantum.
    quantum: u64,
    names: Range<u64>,
    steps: Range<u64>,
    index: Range<u64>,
    /// Names of source files, and of each package its numbers of these names.
    files: Range<u64>,
    units: Range<u64>,
    /// The place of inlined calls. `None` if unknown.
    calls: Option<Range<u64>>,
}

/// The function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name.
    pub name: Arc<str>,
    /// The inlined functions at the address, innermost first.
    pub inlined: Arc<[Arc<str>]>,
}

impl Go {
    /// The table of a program; `None` if it is not a Go program, or its version is unknown.
    pub fn read(file: &Source) -> Option<Go> {
        let layout = Sections::read(file)?;
        let named = |name| layout.named(name);
        let (table, address) = named(".gopclntab").or_else(|| named(".data.rel.ro.gopclntab"))?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, table.start).ok()?;
        let format = FORMATS.iter().find(|format| header.starts_with(&format.magic) && header[7] == 8)?;
        let word = |i: usize| header[8 * i..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let part = |i: usize| {
            let start = table.start.checked_add(word(i))?;
            (start <= table.end).then_some(start..table.end)
        };
        let functions = Some(word(1)).filter(|n| *n <= MAX_FUNCTIONS)?;
        let (text, gofunc) = module(file, &layout, address, format)
            .or_else(|| relocated(file, &layout, address, format))
            .or_else(|| symbols(file))?;
        Some(Go {
            format,
            text,
            functions,
            quantum: header[6].into(),
            // Names come before everything else, followed by units.
            names: part(4)?.start..part(5)?.start,
            steps: part(7)?.start..part(8)?.start,
            index: part(8)?,
            files: part(6)?.start..part(7)?.start,
            units: part(5)?.start..part(6)?.start,
            calls: layout.at(gofunc),
            file: file.clone(),
        })
    }

    /// The function at an address.
    pub fn lookup(&self, address: u64) -> Option<Found> {
        let (function, place) = self.function(address)?;
        let name = self.name(self.u32_at(&self.index, function + 4)?)?;
        let inlined = self.inlined(function, place).unwrap_or_default();
        Some(Found { name, inlined: inlined.into() })
    }

    /// Bytes of the stack that the function at an address has taken there: its return address lies behind them.
    pub fn frame(&self, address: u64) -> Option<u32> {
        let (function, place) = self.function(address)?;
        let table = self.u32_at(&self.index, function + 16).filter(|table| *table != 0)?;
        let mut left = MAX_STEPS;
        u32::try_from(self.value(table, place, &mut left)?).ok()
    }

    /// The source file and line of an address: of inlined code its own.
    pub fn line(&self, address: u64) -> Option<(String, u32)> {
        let (function, place) = self.function(address)?;
        let mut left = MAX_STEPS;
        let mut value = |field| {
            let table = self.u32_at(&self.index, function + field).filter(|table| *table != 0)?;
            u32::try_from(self.value(table, place, &mut left)?).ok()
        };
        let (file, line) = (value(20)?, value(24)?);
        let unit = u64::from(self.u32_at(&self.index, function + 32)?);
        let name = self.u32_at(&self.units, 4 * (unit + u64::from(file)))?;
        let bytes = string(&self.file, &self.files, name).filter(|bytes| !bytes.is_empty())?;
        Some((String::from_utf8_lossy(&bytes).into_owned(), line))
    }

    /// The function around an address: its place in the index, and the address in it.
    fn function(&self, address: u64) -> Option<(u64, u32)> {
        let pc = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let row = |i: u64| self.u32_at(&self.index, i.checked_mul(ROW)?);
        // The last row is the end of the code.
        let (mut low, mut high) = (0, self.functions);
        if pc < row(0)? || pc >= row(self.functions)? {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            *(if row(middle)? <= pc { &mut low } else { &mut high }) = middle;
        }
        let at = u64::from(self.u32_at(&self.index, low * ROW + 4)?);
        let entry = self.u32_at(&self.index, at).filter(|entry| *entry <= pc)?;
        Some((at, pc - entry))
    }

    /// The ranges of functions with these names, at link-time addresses; `None` for a name that no function
    /// has.
    fn find(&self, names: &[&str]) -> Option<Vec<Option<Range<u64>>>> {
        let mut found = vec![None; names.len()];
        // The parts of functions are in index order, so both are read once, from beginning to end.
        let (mut rows, mut parts) = (Ahead::new(&self.file), Ahead::new(&self.file));
        let wanted = self.places(names)?;
        let mut last = 0;
        for i in 0..self.functions {
            let row = self.index.start.checked_add(i.checked_mul(ROW)?)?;
            let part = u64::from(rows.u32_at(row + 4, self.index.end)?);
            if part < last {
                return None;
            }
            last = part;
            let name = parts.u32_at(self.index.start + part + 4, self.index.end)?;
            let Some(which) = wanted.iter().position(|place| *place == Some(name)) else { continue };
            let (begin, end) = (rows.u32_at(row, self.index.end)?, rows.u32_at(row + ROW, self.index.end)?);
            let address = |pc: u32| self.text.checked_add(pc.into());
            found[which] = Some(address(begin)?..address(end)?);
        }
        Some(found)
    }

    /// The places of names in the name table.
    fn places(&self, names: &[&str]) -> Option<Vec<Option<u32>>> {
        let mut places = vec![None; names.len()];
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        // A name, and its start; only the beginning of a long one.
        let (mut name, mut begin) = (Vec::new(), 0u64);
        each_chunk(&self.file, &self.names, |at, bytes| {
            for (i, &byte) in bytes.iter().enumerate() {
                if byte != 0 {
                    if name.len() <= longest {
                        name.push(byte);
                    }
                    continue;
                }
                if let Some(which) = names.iter().position(|n| n.as_bytes() == name) {
                    places[which] = places[which].or(u32::try_from(begin).ok());
                }
                name.clear();
                begin = at + i as u64 + 1;
            }
        })?;
        Some(places)
    }

    /// The inlined calls at a place of a function, found as in the runtime's own tracebacks.
    fn inlined(&self, function: u64, mut place: u32) -> Option<Vec<Arc<str>>> {
        let tree = self.calls.as_ref()?;
        let tables = u64::from(self.u32_at(&self.index, function + 28)?);
        let fixed = self.format.function;
        let others = u64::from(self.u32_at(&self.index, function + fixed - 4)? >> 24);
        if tables <= PCDATA_INL_TREE_INDEX || others <= FUNCDATA_INL_TREE {
            return None;
        }
        let table = self.u32_at(&self.index, function + fixed + 4 * PCDATA_INL_TREE_INDEX)?;
        let calls = self.u32_at(&self.index, function + fixed + 4 * (tables + FUNCDATA_INL_TREE))?;
        if table == 0 || calls == u32::MAX {
            return None;
        }
        let (mut names, mut left) = (Vec::new(), MAX_STEPS);
        while let Some(call) = self.value(table, place, &mut left).and_then(|value| u64::try_from(value).ok())
        {
            let at = u64::from(calls) + call.checked_mul(self.format.call)?;
            names.push(self.name(self.u32_at(tree, at + self.format.call_name)?)?);
            place = self.u32_at(tree, at + self.format.call_place)?;
            if names.len() >= DEEPEST {
                return None;
            }
        }
        Some(names)
    }

    /// The value that a step table has at a place of its function: -1 except for inlined code. `left` are the
    /// bytes that may still be read.
    fn value(&self, table: u32, place: u32, left: &mut usize) -> Option<i32> {
        let at = self.steps.start + u64::from(table);
        let mut steps = Steps { go: self, at, bytes: Vec::new(), used: 0, left };
        let (mut value, mut end, mut first) = (-1i32, 0u64, true);
        loop {
            let change = steps.number()?;
            if change == 0 && !first {
                return None;
            }
            first = false;
            let change = if change & 1 == 0 { change >> 1 } else { !(change >> 1) };
            value = value.wrapping_add(change as i32);
            end += u64::from(steps.number()?) * self.quantum;
            if u64::from(place) < end {
                return Some(value);
            }
        }
    }

    fn name(&self, at: u32) -> Option<Arc<str>> {
        let bytes = string(&self.file, &self.names, at)?;
        (!bytes.is_empty()).then(|| shown(String::from_utf8_lossy(&bytes).into_owned()).into())
    }

    fn u32_at(&self, part: &Range<u64>, at: u64) -> Option<u32> {
        let at = part.start.checked_add(at).filter(|at| at.saturating_add(4) <= part.end)?;
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_le_bytes(bytes))
    }
}

/// The ranges of functions of a Go program, by name and at link-time addresses, from the table that stripped
/// programs also have. Names without a function, and files that are not Go programs, give `None`.
pub fn go_functions(file: &Source, names: &[&str]) -> Vec<Option<Range<u64>>> {
    let found = Go::read(file).and_then(|go| go.find(names));
    found.unwrap_or_else(|| vec![None; names.len()])
}

/// Numbers of a file read in increasing order, in chunks.
struct Ahead<'a> {
    file: &'a Source,
    start: u64,
    bytes: Vec<u8>,
}

impl Ahead<'_> {
    fn new(file: &Source) -> Ahead<'_> {
        Ahead { file, start: 0, bytes: Vec::new() }
    }

    /// The number at a place, if it ends before `end`.
    fn u32_at(&mut self, at: u64, end: u64) -> Option<u32> {
        let within = |read: &Self| {
            let from = usize::try_from(at.checked_sub(read.start)?).ok()?;
            read.bytes.get(from..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
        };
        if let Some(number) = within(self) {
            return Some(number);
        }
        let left = end.checked_sub(at).filter(|left| *left >= 4)?;
        self.start = at;
        self.bytes.resize(usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK)), 0);
        self.file.read_exact_at(&mut self.bytes, at).ok()?;
        within(self)
    }
}

/// Numbers of a step table, read in pieces.
struct Steps<'a> {
    go: &'a Go,
    at: u64,
    bytes: Vec<u8>,
    used: usize,
    /// Bytes that may still be read.
    left: &'a mut usize,
}

impl Steps<'_> {
    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        if self.used == self.bytes.len() {
            let begin = self.at + self.used as u64;
            let rest = self.go.steps.end.checked_sub(begin).filter(|rest| *rest > 0)?;
            // Most tables are short.
            let part = self.used.clamp(STEPS_FIRST, STEPS_AT_ONCE);
            let more = usize::try_from(rest).map_or(part, |rest| rest.min(part));
            *self.left = self.left.checked_sub(more)?;
            self.bytes.resize(self.used + more, 0);
            self.go.file.read_exact_at(&mut self.bytes[self.used..], begin).ok()?;
        }
        self.used += 1;
        Some(self.bytes[self.used - 1])
    }
}

/// Passes the bytes of a part of a file to `take`, in chunks with their offsets. `None` if it is too large,
/// or truncated.
pub(crate) fn each_chunk(file: &Source, range: &Range<u64>, mut take: impl FnMut(u64, &[u8])) -> Option<()> {
    let size = range.end.checked_sub(range.start).filter(|n| *n <= MAX_DATA)?;
    let mut bytes = vec![0; usize::try_from(size).map_or(CHUNK, |n| n.min(CHUNK))];
    let mut at = 0;
    while at < size {
        let length = usize::try_from(size - at).map_or(CHUNK, |left| left.min(CHUNK));
        file.read_exact_at(&mut bytes[..length], range.start + at).ok()?;
        take(at, &bytes[..length]);
        at += length as u64;
    }
    Some(())
}

/// The word at a place of a section.
fn word_at(file: &Source, range: &Range<u64>, at: u64) -> Option<u64> {
    let begin =
        range.start.checked_add(at).filter(|b| b.checked_add(8).is_some_and(|end| end <= range.end))?;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, begin).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// The start of the code, and the base of the data of functions, from the module's own data, which begin with
/// the table's address. In position-independent programs these fields are zero in the file.
fn module(file: &Source, layout: &Sections, table: u64, format: &Format) -> Option<(u64, u64)> {
    let code = layout.named(".text")?.1;
    // A section of its own since Go 1.26.
    for section in [".go.module", ".noptrdata", ".data"] {
        let Some((range, _)) = layout.named(section) else { continue };
        let mut places = Vec::new();
        each_chunk(file, &range, |at, bytes| {
            let words = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).enumerate();
            let refers = words.filter(|(_, word)| *word == table).map(|(i, _)| at + 8 * i as u64);
            places.extend(refers.take(MAX_PLACES - places.len().min(MAX_PLACES)));
        })?;
        let found = places.into_iter().find_map(|at| {
            let of = |field: u64| word_at(file, &range, at.checked_add(field)?);
            sound(layout, code, [MODULE_TEXT, MODULE_TEXT - 16, format.gofunc].map(of))
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The same for position-independent programs, from the relocations.
fn relocated(file: &Source, layout: &Sections, table: u64, format: &Format) -> Option<(u64, u64)> {
    let code = layout.named(".text")?.1;
    for section in [".rela", ".rela.dyn"] {
        let Some((range, _)) = layout.named(section) else { continue };
        // Place, type, value. Chunks contain whole entries.
        let each = |take: &mut dyn FnMut(u64, u64)| {
            let size = (range.end - range.start) / 24 * 24;
            let mut rest = Vec::new();
            each_chunk(file, &(range.start..range.start + size), |_, bytes| {
                rest.extend_from_slice(bytes);
                let (entries, left) = rest.as_chunks::<24>();
                for entry in entries {
                    let word = |i: usize| entry[8 * i..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                    take(word(0), word(2));
                }
                let left = left.len();
                rest.drain(..rest.len() - left);
            })
        };
        let mut places = Vec::new();
        each(&mut |place, value| {
            if value == table && places.len() < MAX_PLACES {
                places.push(place);
            }
        })?;
        let fields = [MODULE_TEXT, MODULE_TEXT - 16, format.gofunc];
        let mut values = vec![[None; 3]; places.len()];
        each(&mut |place, value| {
            for (of, at) in values.iter_mut().zip(&places) {
                if let Some(i) = fields.iter().position(|field| at.checked_add(*field) == Some(place)) {
                    of[i] = of[i].or(Some(value));
                }
            }
        })?;
        let found = values.into_iter().find_map(|values| sound(layout, code, values));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The starts of code and calls, if these fields of a module contain them: the least address of code stands
/// beside its start, and the calls lie in the file.
fn sound(layout: &Sections, code: u64, [text, least, gofunc]: [Option<u64>; 3]) -> Option<(u64, u64)> {
    let (text, least, gofunc) = (text?, least?, gofunc?);
    (text >= code && least >= text && layout.at(gofunc).is_some()).then_some((text, gofunc))
}

/// The same from the symbols for debuggers.
fn symbols(file: &Source) -> Option<(u64, u64)> {
    let found = named_symbols(file, false, &["runtime.text", "go:func.*"]);
    let mut addresses = found.into_iter().map(|found| found.map(|(address, _)| address));
    addresses.next()?.zip(addresses.next()?)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    /// `innermost` is inlined into `middle`, and that into `outer`, which the compiler must not inline.
    /// Prints the function and the line that Go's runtime itself finds innermost at places from `outer` on.
    const SOURCE: &str = "package main

import (
	\"fmt\"
	\"os\"
	\"reflect\"
	\"runtime\"
	\"strconv\"
)

func innermost(n uint64) uint64 {
	for i := uint64(0); i < 2000; i++ {
		n = n*6364136223846793005 + 1442695040888963407
	}
	return n
}

func middle(n uint64) uint64 { return innermost(n) ^ 1 }

//go:noinline
func outer(n uint64) uint64 { return middle(n) + 1 }

func main() {
	outer(uint64(len(os.Args)))
	base := reflect.ValueOf(outer).Pointer()
	for _, arg := range os.Args[1:] {
		place, _ := strconv.Atoi(arg)
		frame, _ := runtime.CallersFrames([]uintptr{base + uintptr(place) + 1}).Next()
		fmt.Printf(\"%s\\t%s:%d\\n\", frame.Function, frame.File, frame.Line)
	}
}
";

    /// Programs built with the options that move the tables; `None` without Go.
    fn built(dir: &Path) -> Option<Vec<PathBuf>> {
        let programs = built_by("go", dir)?;
        // Go 1.19 of Debian 12 writes the older format.
        let older = built_by("/usr/lib/go-1.19/bin/go", &dir.join("older"));
        Some(programs.into_iter().chain(older.unwrap_or_default()).collect())
    }

    fn built_by(go: &str, dir: &Path) -> Option<Vec<PathBuf>> {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("main.go"), SOURCE).unwrap();
        let ways: [(&str, &[&str]); 4] = [
            ("plain", &[]),
            ("stripped", &["-ldflags=-s -w"]),
            ("pie", &["-buildmode=pie"]),
            ("stripped-pie", &["-ldflags=-s -w", "-buildmode=pie"]),
        ];
        let mut programs = Vec::new();
        for (name, how) in ways {
            let program = dir.join(name);
            let done = Command::new(go)
                .arg("build")
                .args(how)
                .args(["-o".as_ref(), program.as_os_str(), "main.go".as_ref()])
                .env("GOTOOLCHAIN", "local")
                .env("GO111MODULE", "off")
                .current_dir(dir)
                .output()
                .ok()?;
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            programs.push(program);
        }
        Some(programs)
    }

    /// A program of Go 1.18 or 1.19 with one function of 16 bytes; another function is inlined into bytes 8 to 15.
    fn older() -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let longs = |longs: &[u64]| longs.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let (code, table, calls, data) = (0x40_1000u64, 0x41_0000u64, 0x42_0000u64, 0x43_0000u64);
        let (names, steps) = (b"\0main.outer\0main.inner\0\0".to_vec(), vec![0u8, 0, 8, 2, 8, 0, 0, 0]);
        // The step table at 1: nothing for 8 bytes, call 0 for 8.
        let after = 72 + names.len() as u64;
        let places = [1, 0, code, 72, after, after, after, after + steps.len() as u64];
        let function = words(&[0, 1, 0, 0, 0, 0, 0, 3, 0, 4 << 24, 0, 0, 1, 0, 0, 0, 0]);
        let index = [words(&[0, 16, 16, 0]), function].concat();
        let magic = vec![0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        let lines = [magic, longs(&places), names, steps, index].concat();
        let tree = words(&[0, 0, 0, 12, 0]);
        let mut module = vec![0; 400];
        for (place, value) in [(0, table), (160, code), (176, code), (304, calls)] {
            module[place..place + 8].copy_from_slice(&longs(&[value]));
        }
        file_of(&[
            (".text", code, vec![0x90; 16]),
            (".gopclntab", table, lines),
            (".go.func", calls, tree),
            (".noptrdata", data, module),
        ])
    }

    /// An ELF file of these sections, with their addresses.
    fn file_of(sections: &[(&str, u64, Vec<u8>)]) -> Vec<u8> {
        let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        // The header, the contents, names of sections, and the table of sections, of which the first is empty.
        let (mut bytes, mut names, mut heads) = (vec![0; 64], vec![0u8], vec![0; 64]);
        let mut head = |kind: u32, name: u32, address: u64, at: usize, size: usize| {
            heads.extend([name, kind].iter().flat_map(|w| w.to_le_bytes()));
            heads.extend(words(&[0, address, at as u64, size as u64, 0, 1, 0]));
        };
        for (name, address, content) in sections {
            head(1, names.len() as u32, *address, bytes.len(), content.len());
            names.extend([name.as_bytes(), b"\0"].concat());
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        head(3, 0, 0, bytes.len(), names.len());
        bytes.extend(&names);
        let mut start = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
        start.extend(words(&[0, 0, bytes.len() as u64]));
        let last = sections.len() as u16 + 1;
        start.extend([0u16, 0, 64, 56, 0, 64, last + 1, last].iter().flat_map(|w| w.to_le_bytes()));
        bytes[..start.len()].copy_from_slice(&start);
        bytes.extend(heads);
        bytes
    }

    #[test]
    fn tables_of_go_1_18_and_1_19_have_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("older");
        std::fs::write(&path, older()).unwrap();
        let source = Source::open(&path).unwrap();
        let go = Go::read(&source).expect("a table");
        let name = |address: u64| {
            let found = go.lookup(address)?;
            Some([&found.inlined[..], &[found.name]].concat().join(" < "))
        };
        assert_eq!(name(0x40_1000).as_deref(), Some("main.outer"));
        assert_eq!(name(0x40_1008).as_deref(), Some("main.inner < main.outer"));
        assert_eq!(name(0x40_1010), None);
        assert_eq!(go_functions(&source, &["main.outer"]), [Some(0x40_1000..0x40_1010)]);
    }

    #[test]
    fn calls_that_were_put_into_their_callers_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let Some(programs) = built(dir.path()) else { return eprintln!("skipped: no go") };
        for program in &programs {
            let go = Go::read(&Source::open(program).unwrap()).expect("a table");
            let name = |address: u64| {
                let found = go.lookup(address)?;
                Some([&found.inlined[..], &[found.name]].concat().join(" < "))
            };
            let last = u64::from(go.u32_at(&go.index, go.functions * ROW).unwrap());
            let begins = |i: u64| go.text + u64::from(go.u32_at(&go.index, i * ROW).unwrap());
            let outer =
                (0..go.functions).find(|&i| name(begins(i)).is_some_and(|n| n.ends_with("main.outer")));
            let outer = outer.map(|i| begins(i)..begins(i + 1)).expect("it is not put into others");
            let of_outer: Vec<String> = outer.clone().filter_map(name).collect();
            let whole = "main.innermost < main.middle < main.outer";
            assert!(of_outer.iter().any(|n| n == whole), "{program:?}: {of_outer:?}");
            assert!(of_outer.iter().any(|n| n == "main.outer"), "its first instructions: {program:?}");
            assert_eq!(go.lookup(go.text + last), None);
            assert_eq!(go.lookup(go.text - 1), None);
            // Everywhere the function that Go's runtime finds.
            let places: Vec<u64> =
                outer.clone().chain((go.text..go.text + last).step_by(last as usize / 1000)).collect();
            let asked = places.iter().map(|at| (at.wrapping_sub(outer.start) as i64).to_string());
            let output = Command::new(program).args(asked).output().unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            let (mut inlined, mut same) = (0, 0);
            assert_eq!(output.lines().count(), places.len());
            // For some addresses it finds none.
            for (output, &at) in output.lines().zip(&places).filter(|(output, _)| !output.starts_with('\t')) {
                let (output, line) = output.split_once('\t').unwrap();
                // It looks up the previous byte, as for a return address.
                let behind = go.lookup(at + 1).map(|f| f.name);
                let Some(found) = go.lookup(at).filter(|f| behind.as_ref() == Some(&f.name)) else {
                    continue;
                };
                inlined += usize::from(!found.inlined.is_empty());
                same += 1;
                let innermost = found.inlined.first().unwrap_or(&found.name);
                let of_line = go.line(at).map_or("?:0".into(), |(file, n)| format!("{file}:{n}"));
                assert_eq!(of_line, line, "{program:?}: {at:#x}");
                // The runtime leaves out type arguments.
                let plain = innermost.split('[').next().unwrap();
                assert_eq!(output.split('[').next().unwrap(), plain, "{program:?}: {at:#x}");
            }
            assert!(inlined > 100 && same > 900, "{inlined} and {same} of {}", places.len());
        }
    }

    #[test]
    fn the_stack_that_a_function_has_taken_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let Some(programs) = built(dir.path()) else { return eprintln!("skipped: no go") };
        for program in &programs {
            let source = Source::open(program).unwrap();
            let go = Go::read(&source).unwrap();
            let found = go_functions(&source, &["runtime.memmove", "runtime.semacquire1"]);
            let [copies, waits] = [0, 1].map(|which| found[which].clone().expect("it is there"));
            // Copies keep no frame; others take theirs after the first instructions.
            assert!(copies.clone().take(16).all(|at| go.frame(at) == Some(0)), "{program:?}");
            assert_eq!(go.frame(waits.start), Some(0));
            assert!(waits.clone().filter_map(|at| go.frame(at)).max() > Some(8), "{program:?}");
            assert_eq!(go.frame(go.text - 1), None);
        }
    }

    #[test]
    fn functions_are_found_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let Some(programs) = built(dir.path()) else { return eprintln!("skipped: no go") };
        let names = ["main.outer", "no.such", "runtime.semacquire1", "main.innermost"];
        for program in &programs {
            let source = Source::open(program).unwrap();
            let found = go_functions(&source, &names);
            let go = Go::read(&source).unwrap();
            for which in [0, 2] {
                let range = found[which].clone().unwrap_or_else(|| panic!("{} of {program:?}", names[which]));
                assert_eq!(&*go.lookup(range.start).unwrap().name, names[which]);
                assert_ne!(go.lookup(range.start - 1).map(|f| f.name).as_deref(), Some(names[which]));
                assert_ne!(go.lookup(range.end).map(|f| f.name).as_deref(), Some(names[which]));
            }
            assert_eq!(found[1], None);
            assert_eq!(found[3], None, "it lies in others only");
        }
        assert_eq!(go_functions(&Source::open("/bin/sh".as_ref()).unwrap(), &names), vec![None; 4]);
    }

    #[test]
    fn damaged_tables_have_fewer_names() {
        let dir = tempfile::tempdir().unwrap();
        let Some(programs) = built(dir.path()) else { return eprintln!("skipped: no go") };
        let whole = std::fs::read(&programs[0]).unwrap();
        let go = Go::read(&Source::open(&programs[0]).unwrap()).unwrap();
        let damaged = dir.path().join("damaged");
        let mut state = 7u64;
        for _ in 0..20 {
            let mut bytes = whole.clone();
            let parts = [&go.index, &go.steps, &go.units, go.calls.as_ref().unwrap()];
            for part in parts {
                let part = part.start as usize..(part.start as usize + 200_000).min(part.end as usize);
                for byte in &mut bytes[part] {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    if state >> 60 == 0 {
                        *byte = (state >> 32) as u8;
                    }
                }
            }
            std::fs::write(&damaged, &bytes).unwrap();
            let Some(bad) = Go::read(&Source::open(&damaged).unwrap()) else { continue };
            // It ends, whatever it finds.
            for address in (bad.text..bad.text + 600_000).step_by(997) {
                bad.lookup(address);
                bad.line(address);
            }
            bad.find(&["main.outer", "runtime.semacquire1"]);
        }
        for cut in [0, 64, 4096, whole.len() / 2] {
            std::fs::write(&damaged, &whole[..cut]).unwrap();
            assert!(Go::read(&Source::open(&damaged).unwrap()).is_none(), "{cut}");
        }
        assert!(Go::read(&Source::open("/bin/sh".as_ref()).unwrap()).is_none());
    }
}
