//! Functions of programs in Go, and those that its compiler has put into them: from the table that each carries for its own
//! tracebacks (`runtime.pclntab`), stripped or not. Read where it is asked, so that it costs no memory.
//!
//! The formats are of Go 1.20 and later, whose table begins with a number of its own; others have no names from here.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, ReadCache, elf};

use crate::elf::string;

/// How the table begins: its version, two zeros; then the least size of an instruction, and of a pointer.
const MAGIC: [u8; 6] = [0xf1, 0xff, 0xff, 0xff, 0, 0];
/// Bytes of the table's header, of a row of the index of functions, and of a function's part that has a fixed size.
const HEADER: usize = 72;
const ROW: u64 = 8;
const FUNCTION: u64 = 44;
/// Bytes of a call that was put in the caller's place (`inlinedCall`).
const CALL: u64 = 16;
/// Which of a function's tables (`internal/abi/symtab.go`).
const PCDATA_INL_TREE_INDEX: u64 = 2;
const FUNCDATA_INL_TREE: u64 = 3;
/// Where `moduledata` keeps what the table is relative to: the code, and what functions refer to.
const MODULE_TEXT: u64 = 176;
const MODULE_GOFUNC: u64 = 320;
/// No program has more sections.
const MAX_SECTIONS: u32 = 1 << 16;
/// Calls within calls; the compiler's budget ends sooner.
const DEEPEST: usize = 64;
/// Bytes of the table from addresses to calls that are read for a function.
const MAX_STEPS: usize = 1 << 18;
/// Bytes of a section that are read to find the module's data.
const MAX_DATA: usize = 64 << 20;
/// Bytes of it read at once.
const CHUNK: usize = 1 << 16;

/// The functions of a program in Go.
#[derive(Debug)]
pub(crate) struct Go {
    file: File,
    /// Where code begins, as addresses in the file count.
    text: u64,
    functions: u64,
    /// The least size of an instruction.
    quantum: u64,
    names: Range<u64>,
    steps: Range<u64>,
    index: Range<u64>,
    /// Where the calls are that were put into callers. `None` where that is not known.
    calls: Option<Range<u64>>,
}

/// A function that an address lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name.
    pub name: Arc<str>,
    /// Those that were put into it and in which the address lies, the innermost first.
    pub inlined: Arc<[Arc<str>]>,
}

/// Sections by their names, and in memory.
struct Layout {
    sections: Vec<(Vec<u8>, Range<u64>, u64)>,
}

impl Layout {
    fn read(file: &File) -> Option<Layout> {
        let cache = ReadCache::new(file);
        let length = file.metadata().ok()?.len();
        let header = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = header.endian().ok().filter(|e| *e == Endianness::Little)?;
        header.shnum(endian, &cache).ok().filter(|count| *count <= MAX_SECTIONS)?;
        let all = header.sections(endian, &cache).ok()?;
        let section = |s: &elf::SectionHeader64<Endianness>| {
            let (start, size) = s.file_range(endian)?;
            let end = start.checked_add(size).filter(|end| *end <= length)?;
            Some((all.section_name(endian, s).ok()?.to_vec(), start..end, s.sh_addr(endian)))
        };
        Some(Layout { sections: all.iter().filter_map(section).collect() })
    }

    fn named(&self, name: &str) -> Option<(Range<u64>, u64)> {
        let found = self.sections.iter().find(|(n, ..)| n == name.as_bytes());
        found.map(|(_, range, address)| (range.clone(), *address))
    }

    /// From an address on, where its section lies in the file.
    fn at(&self, address: u64) -> Option<Range<u64>> {
        self.sections.iter().find_map(|(_, range, start)| {
            let into = address.checked_sub(*start).filter(|_| *start != 0)?;
            (into < range.end - range.start).then(|| range.start + into..range.end)
        })
    }
}

impl Go {
    /// The table of a program; `None` where it is none in Go, or of a version that is not known.
    pub fn read(path: &Path) -> Option<Go> {
        let file = File::open(path).ok()?;
        let layout = Layout::read(&file)?;
        let named = |name| layout.named(name);
        let (table, address) = named(".gopclntab").or_else(|| named(".data.rel.ro.gopclntab"))?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, table.start).ok()?;
        if !header.starts_with(&MAGIC) || header[7] != 8 {
            return None;
        }
        let word = |i: usize| header[8 * i..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let part = |i: usize| {
            let start = table.start.checked_add(word(i))?;
            (start <= table.end).then_some(start..table.end)
        };
        let (text, gofunc) = module(&file, &layout, address)
            .or_else(|| relocated(&file, &layout, address))
            .or_else(|| symbols(path))?;
        Some(Go {
            text,
            functions: word(1),
            quantum: header[6].into(),
            // Names lie before all else, and units after them.
            names: part(4)?.start..part(5)?.start,
            steps: part(7)?.start..part(8)?.start,
            index: part(8)?,
            calls: layout.at(gofunc),
            file,
        })
    }

    /// The function that an address lies in.
    pub fn lookup(&self, address: u64) -> Option<Found> {
        let pc = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let row = |i: u64| self.u32_at(&self.index, i.checked_mul(ROW)?);
        // The last row is where the code ends.
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
        let name = self.name(self.u32_at(&self.index, at + 4)?)?;
        let inlined = self.inlined(at, pc - entry).unwrap_or_default();
        Some(Found { name, inlined: inlined.into() })
    }

    /// Where functions lie that have these names, as addresses in the file count; `None` for a name that none has.
    fn find(&self, names: &[&str]) -> Option<Vec<Option<Range<u64>>>> {
        let mut found = vec![None; names.len()];
        // The parts of functions lie in their order, so both are read once, from the beginning to the end.
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

    /// Where names lie among the names of functions.
    fn places(&self, names: &[&str]) -> Option<Vec<Option<u32>>> {
        let size = self.names.end.checked_sub(self.names.start)?;
        let size = usize::try_from(size).ok().filter(|n| *n <= MAX_DATA)?;
        let mut all = vec![0; size];
        self.file.read_exact_at(&mut all, self.names.start).ok()?;
        let mut places = vec![None; names.len()];
        let mut at = 0;
        for name in all.split(|b| *b == 0) {
            if let Some(i) = names.iter().position(|n| n.as_bytes() == name) {
                places[i] = places[i].or(u32::try_from(at).ok());
            }
            at += name.len() + 1;
        }
        Some(places)
    }

    /// The calls that lie at a place of a function, by what the runtime does for its own tracebacks.
    fn inlined(&self, function: u64, mut place: u32) -> Option<Vec<Arc<str>>> {
        let tree = self.calls.as_ref()?;
        let tables = u64::from(self.u32_at(&self.index, function + 28)?);
        let others = u64::from(self.u32_at(&self.index, function + 40)? >> 24);
        if tables <= PCDATA_INL_TREE_INDEX || others <= FUNCDATA_INL_TREE {
            return None;
        }
        let table = self.u32_at(&self.index, function + FUNCTION + 4 * PCDATA_INL_TREE_INDEX)?;
        let calls = self.u32_at(&self.index, function + FUNCTION + 4 * (tables + FUNCDATA_INL_TREE))?;
        if table == 0 || calls == u32::MAX {
            return None;
        }
        let mut names = Vec::new();
        while let Some(call) = self.value(table, place).and_then(|value| u64::try_from(value).ok()) {
            let at = u64::from(calls) + call.checked_mul(CALL)?;
            names.push(self.name(self.u32_at(tree, at + 4)?)?);
            place = self.u32_at(tree, at + 8)?;
            if names.len() >= DEEPEST {
                return None;
            }
        }
        Some(names)
    }

    /// The value that a table of steps has at a place of its function: -1, but for what was put there.
    fn value(&self, table: u32, place: u32) -> Option<i32> {
        let mut steps =
            Steps { go: self, at: self.steps.start + u64::from(table), bytes: Vec::new(), used: 0 };
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
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into())
    }

    fn u32_at(&self, part: &Range<u64>, at: u64) -> Option<u32> {
        let at = part.start.checked_add(at).filter(|at| at.saturating_add(4) <= part.end)?;
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_le_bytes(bytes))
    }
}

/// Where functions of a program in Go lie, by their names and as addresses in the file count, by the table that also stripped
/// programs have; nothing of a name that no function has, and of no Go program.
pub fn go_functions(path: &Path, names: &[&str]) -> Vec<Option<Range<u64>>> {
    let found = Go::read(path).and_then(|go| go.find(names));
    found.unwrap_or_else(|| vec![None; names.len()])
}

/// Numbers of a file that are read in its order, a chunk at a time.
struct Ahead<'a> {
    file: &'a File,
    start: u64,
    bytes: Vec<u8>,
}

impl Ahead<'_> {
    fn new(file: &File) -> Ahead<'_> {
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

/// Numbers of a table of steps, read a piece at a time.
struct Steps<'a> {
    go: &'a Go,
    at: u64,
    bytes: Vec<u8>,
    used: usize,
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
            let left = self.go.steps.end.checked_sub(begin).filter(|left| *left > 0)?;
            let more = usize::try_from(left).map_or(256, |left| left.min(256));
            if self.used + more > MAX_STEPS {
                return None;
            }
            self.bytes.resize(self.used + more, 0);
            self.go.file.read_exact_at(&mut self.bytes[self.used..], begin).ok()?;
        }
        self.used += 1;
        Some(self.bytes[self.used - 1])
    }
}

/// The words of a section, if it is not too large.
fn words(file: &File, range: Range<u64>) -> Option<Vec<u64>> {
    let size = usize::try_from(range.end - range.start).ok().filter(|n| *n <= MAX_DATA)?;
    let mut words = Vec::with_capacity(size / 8);
    let mut bytes = vec![0; size.min(CHUNK)];
    let mut at = range.start;
    while at < range.end {
        let length = usize::try_from(range.end - at).map_or(CHUNK, |left| left.min(CHUNK));
        file.read_exact_at(&mut bytes[..length], at).ok()?;
        words.extend(bytes[..length].as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)));
        at += length as u64;
    }
    Some(words)
}

/// Where code begins, and what functions refer to, by the module's own data: they begin with the table's address. Those of
/// programs that are moved when they are loaded are zeros in the file.
fn module(file: &File, layout: &Layout, table: u64) -> Option<(u64, u64)> {
    let code = layout.named(".text")?.1;
    // A section of its own since Go 1.26.
    for section in [".go.module", ".noptrdata", ".data"] {
        let Some((range, _)) = layout.named(section) else { continue };
        let words = words(file, range)?;
        let of = |at: usize, field: u64| words.get(at + field as usize / 8).copied();
        let found = words.iter().enumerate().filter(|(_, w)| **w == table).find_map(|(at, _)| {
            sound(layout, code, [MODULE_TEXT, MODULE_TEXT - 16, MODULE_GOFUNC].map(|field| of(at, field)))
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The same where a program is moved when it is loaded, by what is to be written there then.
fn relocated(file: &File, layout: &Layout, table: u64) -> Option<(u64, u64)> {
    let code = layout.named(".text")?.1;
    for section in [".rela", ".rela.dyn"] {
        let Some((range, _)) = layout.named(section) else { continue };
        let words = words(file, range)?;
        // Place, type, value.
        let entries: &[[u64; 3]] = words.as_chunks().0;
        let at = |place: u64| entries.iter().find(|e| e[0] == place).map(|e| e[2]);
        let found = entries.iter().filter(|e| e[2] == table).find_map(|e| {
            let field = |field: u64| at(e[0].checked_add(field)?);
            sound(layout, code, [MODULE_TEXT, MODULE_TEXT - 16, MODULE_GOFUNC].map(field))
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Where code and calls begin, if that is what those fields of a module say: the least address of code is told beside where
/// it begins, and the calls lie in the file.
fn sound(layout: &Layout, code: u64, [text, least, gofunc]: [Option<u64>; 3]) -> Option<(u64, u64)> {
    let (text, least, gofunc) = (text?, least?, gofunc?);
    (text >= code && least >= text && layout.at(gofunc).is_some()).then_some((text, gofunc))
}

/// The same by the symbols for debuggers.
fn symbols(path: &Path) -> Option<(u64, u64)> {
    use object::{Object, ObjectSymbol};
    let file = File::open(path).ok()?;
    let cache = ReadCache::new(&file);
    let elf = object::File::parse(&cache).ok()?;
    let (mut text, mut gofunc) = (None, None);
    for symbol in elf.symbols() {
        match symbol.name_bytes() {
            Ok(b"runtime.text") => text = Some(symbol.address()),
            Ok(b"go:func.*") => gofunc = Some(symbol.address()),
            _ => {}
        }
    }
    text.zip(gofunc)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// `innermost` is put into `middle`, and that into `outer`, which the compiler must leave alone. Says which function Go's
    /// runtime itself takes for the innermost at places from `outer` on.
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
		fmt.Println(frame.Function)
	}
}
";

    /// Programs built in the ways that change where things are; `None` without Go.
    fn built(dir: &Path) -> Option<Vec<PathBuf>> {
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
            let done = Command::new("go")
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

    #[test]
    fn calls_that_were_put_into_their_callers_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let Some(programs) = built(dir.path()) else { return eprintln!("skipped: no go") };
        for program in &programs {
            let go = Go::read(program).expect("a table");
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
            // Everywhere the function that Go's runtime tells.
            let places: Vec<u64> =
                outer.clone().chain((go.text..go.text + last).step_by(last as usize / 1000)).collect();
            let asked = places.iter().map(|at| (at.wrapping_sub(outer.start) as i64).to_string());
            let told = Command::new(program).args(asked).output().unwrap();
            let told = String::from_utf8(told.stdout).unwrap();
            let (mut inlined, mut same) = (0, 0);
            assert_eq!(told.lines().count(), places.len());
            // Of a few it tells nothing.
            for (told, &at) in told.lines().zip(&places).filter(|(told, _)| !told.is_empty()) {
                // It looks for the function of the byte behind, as of one that is returned to.
                let behind = go.lookup(at + 1).map(|f| f.name);
                let Some(found) = go.lookup(at).filter(|f| behind.as_ref() == Some(&f.name)) else {
                    continue;
                };
                inlined += usize::from(!found.inlined.is_empty());
                same += 1;
                let innermost = found.inlined.first().unwrap_or(&found.name);
                // The runtime leaves out what types generic functions are for.
                let plain = innermost.split('[').next().unwrap();
                assert_eq!(told.split('[').next().unwrap(), plain, "{program:?}: {at:#x}");
            }
            assert!(inlined > 100 && same > 900, "{inlined} and {same} of {}", places.len());
        }
    }

    #[test]
    fn functions_are_found_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let Some(programs) = built(dir.path()) else { return eprintln!("skipped: no go") };
        let names = ["main.outer", "no.such", "runtime.semacquire1", "main.innermost"];
        for program in &programs {
            let found = go_functions(program, &names);
            let go = Go::read(program).unwrap();
            for which in [0, 2] {
                let range = found[which].clone().unwrap_or_else(|| panic!("{} of {program:?}", names[which]));
                assert_eq!(&*go.lookup(range.start).unwrap().name, names[which]);
                assert_ne!(go.lookup(range.start - 1).map(|f| f.name).as_deref(), Some(names[which]));
                assert_ne!(go.lookup(range.end).map(|f| f.name).as_deref(), Some(names[which]));
            }
            assert_eq!(found[1], None);
            assert_eq!(found[3], None, "it lies in others only");
        }
        assert_eq!(go_functions(Path::new("/bin/sh"), &names), vec![None; 4]);
    }

    #[test]
    fn damaged_tables_have_fewer_names() {
        let dir = tempfile::tempdir().unwrap();
        let Some(programs) = built(dir.path()) else { return eprintln!("skipped: no go") };
        let whole = std::fs::read(&programs[0]).unwrap();
        let go = Go::read(&programs[0]).unwrap();
        let damaged = dir.path().join("damaged");
        let mut state = 7u64;
        for _ in 0..20 {
            let mut bytes = whole.clone();
            let parts = [&go.index, &go.steps, go.calls.as_ref().unwrap()];
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
            let Some(bad) = Go::read(&damaged) else { continue };
            // It comes to an end, whatever it finds.
            for address in (bad.text..bad.text + 600_000).step_by(997) {
                bad.lookup(address);
            }
            bad.find(&["main.outer", "runtime.semacquire1"]);
        }
        for cut in [0, 64, 4096, whole.len() / 2] {
            std::fs::write(&damaged, &whole[..cut]).unwrap();
            assert!(Go::read(&damaged).is_none(), "{cut}");
        }
        assert!(Go::read(Path::new("/bin/sh")).is_none());
    }
}
