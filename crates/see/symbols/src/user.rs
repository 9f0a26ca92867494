//! Names of user code, by file and offset, so that the process need not be alive.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};
use ncpu_files::reader::{Source as File, Whose, Work, charge_names, may_name};

use crate::debug_file::debug_file;
use crate::demangle::{demangle, shown};
use crate::elf::Segments;
use crate::go::Go;
use crate::jit::Generated;
use crate::maps::ProcMaps;
use crate::methods::has_tables;
use crate::recent::Recent;
use crate::table::{Table, TooMany, What};
use crate::unwind::Copied;

mod code;
mod copy;

pub use code::{CodeKey, CodePlace, made_code};
use copy::{MAX_LINES, private_copy};

/// The most files with cached symbols, and of Go programs; each holds a descriptor.
const MAX_FILES: usize = 128;
/// The most files with known segments.
const MAX_KNOWN: usize = 1 << 12;
/// Names per generation, by (file, offset), and by (file, start of the function).
const MAX_NAMES: usize = 1 << 13;
const MAX_STARTS: usize = 1 << 12;
/// Bytes of these names, per generation.
const MAX_NAME_BYTES: usize = 4 << 20;
/// The most bytes of names of functions made at run time.
const MAX_GENERATED_BYTES: usize = 16 << 20;
/// The time before a file that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// Bytes of cached symbols; the most recently used ones may exceed it.
const KEPT: usize = 8 << 20;
/// The most files with too many symbols that are reported.
const MAX_TOLD: usize = 16;
/// The most processes with cached functions made at run time, and the most such functions.
const MAX_GENERATED: usize = 64;
const MAX_FUNCTIONS: usize = 1 << 18;
/// Functions inlined into one another that are named for a line, at most.
const MAX_INLINED: usize = 12;
/// Time between two looks at the CPU time that names took.
const UNCHARGED: Duration = Duration::from_micros(200);
/// Names of a stack from which on functions that were inlined are left out.
const MAX_FRAMES: usize = 256;

/// Names user addresses, using the mappings that [`ProcMaps`] remembers.
///
/// A file is read once for all processes that ran it (1–50 ms by size), and again after its data was dropped:
/// cached symbols of all files take 8 MiB at most, and those of one file 12. An address seen before costs a
/// hash look-up. Names are demangled. Addresses without a name get `[vdso]`, `[anon]`, `[unknown libfoo.so]`
/// or `[unknown]`.
pub struct User {
    /// How each file is symbolized, by its number in the maps.
    files: HashMap<u32, Program>,
    names: Recent<(u32, u64), Name>,
    /// Ever new addresses of a large function are seen; its name is read from the file and demangled once.
    starts: Recent<(u32, u64), Arc<str>>,
    /// Bytes of new names since both generations were last turned over.
    name_bytes: usize,
    /// Go programs seen; each holds a descriptor.
    go: usize,
    /// Whether some name has inlined functions.
    inlined: bool,
    /// Files with cached symbols, functions and variables counted separately, and their bytes.
    kept: usize,
    bytes: usize,
    /// Counts look-ups, to find the least recently used file.
    resolved: u64,
    /// Its value at the last call of [`User::forget_unused`].
    aged: u64,
    generated: HashMap<u32, Generated>,
    /// Made when the first line is looked up: it reads DWARF.
    lines: Option<Symbolizer>,
    /// Bytes of the copies of files that it reads.
    copied: u64,
    unknown: Arc<str>,
    /// Files with more symbols than the limit.
    too_large: BTreeMap<PathBuf, u64>,
}

/// The name of an address.
#[derive(Clone)]
struct Name {
    function: Arc<str>,
    /// The inlined functions at the address, innermost first.
    inlined: Option<Arc<[Arc<str>]>>,
}

/// A program or library.
struct Program {
    /// The place of its symbols.
    place: Place,
    /// When it is tried again after a failure.
    again: Option<Instant>,
    segments: Segments,
    functions: Symbols,
    variables: Symbols,
    unknown: Arc<str>,
    /// Its function table, if it is a Go program.
    go: Option<Go>,
    /// A copy for reading source lines, if one could be made.
    copy: Option<Option<std::fs::File>>,
}

/// A line of source code, printed as `file.c:12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the compiler was given it: relative to the directory of the build, or absolute.
    pub path: PathBuf,
    /// Counted from 1; `None` for code of no line.
    pub line: Option<u32>,
    /// The functions that the compiler put there in place of calls, innermost first, where debug information names them.
    pub inlined: Vec<String>,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        match self.line {
            Some(line) => write!(f, "{name}:{line}"),
            None => write!(f, "{name}"),
        }
    }
}

/// The place of a program's symbols.
#[derive(Debug)]
enum Place {
    Nowhere,
    /// In the program itself.
    Own,
    /// In a separate file, of this device and inode.
    Beside(PathBuf, (u64, u64)),
}

/// Symbols of a kind.
#[derive(Default)]
struct Symbols {
    /// `None` if they were dropped, or are not needed yet.
    table: Option<Table>,
    /// It has none, or too many.
    none: bool,
    used: u64,
}

impl Default for User {
    fn default() -> User {
        User::new()
    }
}

impl User {
    /// An empty cache.
    pub fn new() -> User {
        User {
            files: HashMap::new(),
            names: Recent::new(MAX_NAMES),
            starts: Recent::new(MAX_STARTS),
            name_bytes: 0,
            go: 0,
            inlined: false,
            kept: 0,
            bytes: 0,
            resolved: 0,
            aged: 0,
            generated: HashMap::new(),
            lines: None,
            copied: 0,
            unknown: "[unknown]".into(),
            too_large: BTreeMap::new(),
        }
    }

    /// Files without names because they have too many symbols, one per line.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.too_large.iter().map(|(path, count)| {
            let path = path.display();
            format!("functions of {path} have no names: its {count} symbols exceed the limit")
        })
    }

    /// The names of `addrs` in process `tgid`, one for each. A process not noted before is noted now,
    /// if it lives. Return addresses should come less 1, so that they lie in the calling function.
    pub fn symbolize(&mut self, maps: &mut ProcMaps, tgid: u32, addrs: &[u64]) -> Vec<Arc<str>> {
        maps.note_unknown(tgid);
        let mut places: Vec<_> = addrs.iter().map(|&a| maps.find(tgid, a)).collect();
        // It may have loaded a library since: a process is first seen in its loader.
        if places.contains(&None) && maps.note_again(tgid) {
            places = addrs.iter().map(|&a| maps.find(tgid, a)).collect();
        }
        let mut wanted: HashMap<u32, Vec<u64>> = HashMap::new();
        for &(file, offset) in places.iter().flatten() {
            if maps.file(file).path.is_some() && self.names.get(&(file, offset)).is_none() {
                wanted.entry(file).or_default().push(offset);
            }
        }
        let whose = maps.whose(tgid);
        for (file, mut offsets) in wanted {
            offsets.sort_unstable();
            offsets.dedup();
            self.resolve(maps, file, &offsets, whose);
        }
        let (names, generated) = (&self.names, &mut self.generated);
        let name = |(place, &addr): (&Option<(u32, u64)>, &u64)| {
            let Some((file, offset)) = *place else { return self.unknown.clone() };
            let known = names.peek(&(file, offset)).map(|name| name.function.clone());
            if maps.file(file).jit
                && known.as_deref().is_none_or(|n| n.starts_with("[unknown"))
                && let Some(name) = generated.entry(tgid).or_default().lookup(maps, tgid, addr)
            {
                return name;
            }
            known.unwrap_or_else(|| match &*maps.file(file).label {
                label if label.starts_with('[') => label.into(),
                label => format!("[unknown {label}]").into(),
            })
        };
        let names = places.iter().zip(addrs).map(name).collect();
        self.trim();
        names
    }

    /// The names that [`User::symbolize`] returned for such addresses, each preceded by the functions that
    /// the Go compiler inlined.
    pub fn with_inlined(
        &self,
        maps: &ProcMaps,
        tgid: u32,
        addrs: &[u64],
        names: Vec<Arc<str>>,
    ) -> Vec<Arc<str>> {
        if !self.inlined {
            return names;
        }
        let mut all = Vec::with_capacity(names.len());
        for (name, &addr) in names.into_iter().zip(addrs) {
            let known = maps.find(tgid, addr).and_then(|place| self.names.peek(&place));
            let inlined = known.and_then(|known| known.inlined.as_deref()).unwrap_or_default();
            let room = MAX_FRAMES.saturating_sub(all.len());
            all.extend(inlined.iter().take(room).cloned());
            all.push(name);
        }
        all
    }

    /// The static variable that contains `addr`, as `name` or `name+0x10`; `None` for heap and stack.
    pub fn variable(&mut self, maps: &ProcMaps, tgid: u32, addr: u64) -> Option<String> {
        for (file, start, offset) in maps.mapped(tgid) {
            let Some(program) = self.program(maps, file) else { continue };
            let Some(address) = program.segments.bias(start, offset).map(|bias| addr.wrapping_sub(bias))
            else {
                continue;
            };
            if !program.segments.holds(address) {
                continue;
            }
            let table = self.symbols(maps, file, What::Variables).unwrap_or_default();
            let found = table.and_then(|table| table.lookup(address));
            self.trim();
            return found.map(|(name, offset)| match (shown(name), offset) {
                (name, 0) => name,
                (name, offset) => format!("{name}+{offset:#x}"),
            });
        }
        None
    }

    /// The caller of a thread in a function of Go, and the word of the copied stack with it. Of functions that keep no frame pointer, as
    /// those that copy and compare memory, frame pointers say their caller's caller.
    pub fn gos_caller(&mut self, maps: &ProcMaps, tgid: u32, copy: &Copied) -> Option<(usize, u64)> {
        let [ip, ..] = copy.regs;
        let (file, offset) = maps.find(tgid, ip).filter(|_| cfg!(target_arch = "x86_64"))?;
        let program = self.program(maps, file)?;
        let address = program.segments.address(offset)?;
        program.go.as_ref()?;
        let whose = program.source(maps, file).filter(File::may_read)?;
        let size = whose.parsed(|_| program.go.as_ref().and_then(|go| go.frame(address)))?;
        let word = size as usize / 8;
        let caller = *copy.words.get(word).filter(|_| size % 8 == 0)?;
        let of = maps.find(tgid, caller.checked_sub(1)?)?.0;
        (of == file).then_some((word, caller))
    }

    /// The source line of `addr`: of Go's programs from the table that they carry, else from debug information (`dwarf`), whose first
    /// look-up in a program may take a second. `None` without either.
    pub fn source_line(&mut self, maps: &ProcMaps, tgid: u32, addr: u64, dwarf: bool) -> Option<SourceLine> {
        let (file, offset) = maps.find(tgid, addr)?;
        let left = MAX_LINES.saturating_sub(self.copied);
        let program = self.program(maps, file)?;
        let address = program.segments.address(offset)?;
        if program.go.is_none() && !dwarf {
            return None;
        }
        let whose = program.source(maps, file).filter(File::may_read)?;
        if let Some((path, line)) = whose.parsed(|_| program.go.as_ref().and_then(|go| go.line(address))) {
            return Some(SourceLine { path: path.into(), line: Some(line), inlined: Vec::new() });
        }
        if !dwarf {
            return None;
        }
        if program.copy.is_none() {
            let copy = whose.parsed(|whose| private_copy(whose, left));
            let size = copy.as_ref().map_or(0, |_| whose.size());
            program.copy = Some(copy);
            self.copied += size;
        }
        whose.parsed(|_| self.line_in_copy(file, address))
    }

    /// The same from the copy of a file.
    fn line_in_copy(&mut self, file: u32, address: u64) -> Option<SourceLine> {
        let copy = self.files.get(&file)?.copy.as_ref()?.as_ref()?;
        let source = Source::Elf(Elf::new(format!("/proc/self/fd/{}", copy.as_raw_fd())));
        let lines = self.lines.get_or_insert_with(|| {
            Symbolizer::builder()
                .enable_code_info(true)
                .enable_inlined_fns(true)
                .enable_demangling(false)
                .build()
        });
        let found = lines.symbolize_single(&source, Input::VirtOffset(address)).ok()?;
        let sym = found.into_sym()?;
        // For inlined code its own line, not that of the call.
        let code = match sym.inlined.last() {
            Some(inner) => inner.code_info.as_ref(),
            None => sym.code_info.as_deref(),
        }?;
        let name = |name: &str| shown(demangle(name).unwrap_or_else(|| name.to_string()));
        let inlined = sym.inlined.iter().rev().take(MAX_INLINED).map(|of| name(&of.name)).collect();
        Some(SourceLine { path: code.to_path().into_owned(), line: code.line, inlined })
    }

    /// The symbols of a file; `None` if it is unreadable at the moment.
    fn program(&mut self, maps: &ProcMaps, file: u32) -> Option<&mut Program> {
        let now = Instant::now();
        if self.files.get(&file).is_some_and(|program| program.again.is_some_and(|again| now >= again)) {
            self.files.remove(&file);
        }
        if !self.files.contains_key(&file) {
            let program = Program::find(maps, file)?;
            self.go += usize::from(program.go.is_some());
            self.files.insert(file, program);
        }
        self.files.get_mut(&file)
    }

    /// A known file's symbols, read unless they are cached; an error if that is impossible at the moment.
    fn symbols(&mut self, maps: &ProcMaps, file: u32, what: What) -> Result<Option<&Table>, Later> {
        let Some(program) = self.files.get_mut(&file) else { return Ok(None) };
        self.resolved += 1;
        program.kind(what).used = self.resolved;
        if program.kind(what).table.is_none() && !program.kind(what).none {
            let source = program.source(maps, file);
            if source.as_ref().is_some_and(|source| !source.may_read()) {
                return Err(Later);
            }
            let with_methods = what == What::Functions && has_tables(&maps.file(file).label);
            let read = |source: &File| {
                let table = Table::read(source, what)?;
                Ok(if with_methods { table.map(Table::with_methods) } else { table })
            };
            let table = source.map_or(Ok(None), |source| source.parsed(read));
            match table {
                Ok(Some(table)) => {
                    self.kept += 1;
                    self.bytes += table.bytes();
                    program.kind(what).table = Some(table);
                }
                Ok(None) => program.kind(what).none = true,
                Err(TooMany(count)) => {
                    program.kind(what).none = true;
                    if self.too_large.len() < MAX_TOLD
                        && let Some(path) = &maps.file(file).path
                    {
                        self.too_large.insert(path.clone(), count);
                    }
                }
            }
        }
        let program = self.files.get(&file);
        Ok(program
            .and_then(|p| if what == What::Functions { &p.functions } else { &p.variables }.table.as_ref()))
    }

    /// Names offsets of one file while `whose` has time left. Offsets without a name are named when they are seen again.
    fn resolve(&mut self, maps: &ProcMaps, file: u32, offsets: &[u64], whose: Whose) {
        let Some(program) = self.program(maps, file).filter(|program| program.again.is_none()) else {
            return;
        };
        let unknown = program.unknown.clone();
        let addresses: Vec<_> = offsets.iter().map(|&o| program.segments.address(o)).collect();
        let mut starts = std::mem::replace(&mut self.starts, Recent::new(1));
        let mut bytes = 0;
        let table = self.symbols(maps, file, What::Functions);
        // Address by address: one of a hostile program may take long. CPU time is asked of the kernel, which takes longer than most names.
        let (mut began, mut looked) = (Work::begin(), None::<Instant>);
        let mut in_time = || {
            if looked.is_some_and(|looked| looked.elapsed() < UNCHARGED) {
                return true;
            }
            charge_names(whose, std::mem::replace(&mut began, Work::begin()).elapsed());
            looked = Some(Instant::now());
            may_name(whose)
        };
        let names: Option<Vec<_>> = table.ok().map(|table| {
            let mut name = |address: Option<u64>| {
                let (address, table) = (address?, table?);
                let start = (file, table.start(address)?);
                if let Some(name) = starts.get(&start) {
                    return Some(name.clone());
                }
                let name: Arc<str> = shown(table.lookup(address)?.0).into();
                bytes += name.len();
                starts.insert(start, name.clone());
                Some(name)
            };
            let named = addresses.iter().take_while(|_| in_time());
            named.map(|&at| name(at).unwrap_or_else(|| unknown.clone())).collect()
        });
        self.starts = starts;
        let Some(names) = names else { return };
        let Some(program) = self.files.get(&file) else { return };
        let mut known: Vec<Name> = Vec::with_capacity(names.len());
        for (address, function) in addresses.into_iter().zip(names) {
            if program.go.is_some() && !in_time() {
                break;
            }
            let found = program.go.as_ref().and_then(|go| go.lookup(address?));
            let inlined = found.as_ref().map(|f| f.inlined.clone()).filter(|i| !i.is_empty());
            known.push(match found.filter(|_| function == program.unknown) {
                Some(found) => Name { function: found.name, inlined },
                None => Name { function, inlined },
            });
        }
        charge_names(whose, began.elapsed());
        for (&offset, name) in offsets.iter().zip(known) {
            self.inlined |= name.inlined.is_some();
            // For Go each one is a separate text.
            let inlined = name.inlined.iter().flat_map(|names| names.iter());
            bytes += inlined.map(|name| name.len()).sum::<usize>() + size_of::<Name>();
            self.names.insert((file, offset), name);
        }
        self.name_bytes += bytes;
        if self.name_bytes > MAX_NAME_BYTES {
            self.name_bytes = 0;
            self.names.turn();
            self.starts.turn();
        }
    }

    /// Drops the data of files, whose numbers are reassigned ([`ProcMaps::forget`]), and of processes.
    pub fn forget(&mut self) {
        self.files.clear();
        (self.kept, self.bytes, self.go, self.copied) = (0, 0, 0, 0);
        self.names.clear();
        self.starts.clear();
        self.generated.clear();
        self.lines = None;
    }

    /// Drops names and symbols that were not used since the last call.
    pub fn forget_unused(&mut self) {
        self.names.turn();
        self.starts.turn();
        for program in self.files.values_mut() {
            for symbols in [&mut program.functions, &mut program.variables] {
                if symbols.used <= self.aged
                    && let Some(table) = symbols.table.take()
                {
                    self.kept -= 1;
                    self.bytes -= table.bytes();
                }
            }
        }
        self.aged = self.resolved;
        self.lines = None;
    }

    /// Drops caches that exceed their bounds; needed entries are loaded again.
    fn trim(&mut self) {
        if self.files.len() > MAX_KNOWN || self.go > MAX_FILES {
            self.files.clear();
            (self.kept, self.bytes, self.go, self.copied) = (0, 0, 0, 0);
            self.lines = None;
        } else if self.kept > MAX_FILES || self.bytes > KEPT {
            self.drop_oldest();
        }
        let functions: usize = self.generated.values().map(Generated::len).sum();
        let bytes: usize = self.generated.values().map(Generated::bytes).sum();
        let many = functions > MAX_FUNCTIONS || bytes > MAX_GENERATED_BYTES;
        if many && self.generated.len() > 1 || self.generated.len() > MAX_GENERATED {
            self.generated.clear();
        }
    }

    /// Drops the least recently used symbols, down to three quarters of the limit, so that this is rare.
    fn drop_oldest(&mut self) {
        let mut kept: Vec<(u64, &mut Symbols)> = Vec::new();
        for program in self.files.values_mut() {
            let both = [&mut program.functions, &mut program.variables];
            kept.extend(both.into_iter().filter(|s| s.table.is_some()).map(|s| (s.used, s)));
        }
        kept.sort_unstable_by_key(|(used, _)| *used);
        // The last one was used just now.
        kept.pop();
        for (_, symbols) in kept {
            if self.kept <= MAX_FILES / 4 * 3 && self.bytes <= KEPT / 4 * 3 {
                break;
            }
            self.kept -= 1;
            self.bytes -= symbols.table.take().map_or(0, |table| table.bytes());
        }
        self.lines = None;
    }
}

/// The time budget of a file's owner is used up; it will be renewed.
struct Later;

impl Program {
    /// Examines a file; `None` if that is impossible at the moment.
    fn find(maps: &ProcMaps, file: u32) -> Option<Program> {
        let mapped = maps.file(file);
        let mut program = Program {
            place: Place::Nowhere,
            again: None,
            segments: Segments::default(),
            functions: Symbols::default(),
            variables: Symbols::default(),
            unknown: format!("[unknown {}]", mapped.label).into(),
            go: None,
            copy: None,
        };
        let Some(path) = &mapped.path else { return Some(program) };
        let Some(source) = maps.source(file) else {
            program.again = Some(Instant::now() + AGAIN);
            return Some(program);
        };
        if !source.may_read() {
            return None;
        }
        source.parsed(|source| {
            let Some(segments) = Segments::read(source) else { return };
            program.segments = segments;
            program.go = Go::read(source);
            program.place = match debug_file(source, path) {
                Some((debug, path)) => Place::Beside(path, debug.identity()),
                None => Place::Own,
            };
        });
        Some(program)
    }

    /// The file with its symbols.
    fn source(&self, maps: &ProcMaps, file: u32) -> Option<File> {
        match &self.place {
            Place::Nowhere => None,
            Place::Own => maps.source(file),
            Place::Beside(path, identity) => {
                let whose = maps.source(file).map_or(Whose::OWN, |source| source.whose());
                let found = File::below("".as_ref(), path, true, whose).ok();
                found.filter(|found| found.identity() == *identity)
            }
        }
    }

    fn kind(&mut self, what: What) -> &mut Symbols {
        if what == What::Functions { &mut self.functions } else { &mut self.variables }
    }
}

#[cfg(test)]
mod tests;
