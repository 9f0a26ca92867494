//! Functions of Python, by the code objects of its frames: the interpreter's own loop is one function of C for all of them.
//!
//! The kernel side follows a thread's frames when it takes its stack, as [`PythonAt`] tells where they lie, and hands over a
//! code object for each. Its name is read from the process's memory here. Python 3.13 and later say themselves where their
//! members are; of 3.11 and 3.12 that is known. Of all others frames stay the interpreter's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use ncpu_files::reader::Source;

use crate::elf::{Segments, named_symbols};
use crate::maps::ProcMaps;
use crate::recent::Recent;
use crate::tables::Tables;

/// The function that runs Python's.
const LOOP: &str = "_PyEval_EvalFrameDefault";
/// Bytes that it has at least: 55 KiB in 3.11, 82 KiB in 3.14.
const LEAST_LOOP: u64 = 32 << 10;
/// A thread's frame has no frame of C between.
pub const NO_CFRAME: u32 = u32::MAX;
/// Code objects whose names are remembered, a generation.
const MAX_NAMES: usize = 1 << 13;
/// Processes remembered, a generation.
const MAX_PROCESSES: usize = 1 << 10;
/// Characters told of a name and of a file's, and read of its path.
const MAX_NAME: usize = 120;
const MAX_FILE: usize = 60;
const MAX_PATH: usize = 4096;
/// Bits of a code object's address that tell it from another which comes to lie there (`TAG` of python.h).
const TAG: u64 = 0xffff << 48;
/// As table.h of the kernel side has it.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Stands for callers that the kernel side had no room for.
const DEEPER: &str = "[deeper]";

/// Where a process keeps the frames of its threads: addresses, and offsets in structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonAt {
    /// The pointer to the main interpreter.
    pub main: u64,
    /// In an interpreter: its first thread.
    pub threads: u32,
    /// In a thread: the next.
    pub next: u32,
    /// In a thread: `pthread_self`, which is its thread pointer.
    pub thread_id: u32,
    /// In a thread: its frame, or what has that.
    pub frame: u32,
    /// In the latter: the frame; [`NO_CFRAME`]: the thread has it.
    pub cframe: u32,
    /// In a frame: the caller's.
    pub previous: u32,
    /// In a frame: its code object.
    pub code: u32,
    /// In a frame: the byte which says whether the loop was called for it, and its value then.
    pub entry: u32,
    /// See [`PythonAt::entry`].
    pub is_entry: u32,
    /// In a code object: its name.
    pub name: u32,
    /// In a code object: the line it begins at.
    pub line: u32,
}

/// Where names lie: the file's in a code object, and the bytes of strings of ASCII and of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Names {
    file: u64,
    ascii: u64,
    other: u64,
    /// The type of all code objects.
    code_type: u64,
}

/// A process of Python.
#[derive(Clone, Copy, Debug)]
struct Process {
    at: PythonAt,
    names: Names,
    /// Where most of the loop is that runs its functions.
    the_loop: (u64, u64),
    /// The frame for which the loop was called stands for nothing else.
    shim: bool,
}

/// A version's symbols, as its file counts addresses.
#[derive(Debug)]
struct Symbols {
    segments: Segments,
    runtime: u64,
    version: u64,
    code_type: u64,
    /// Where most of the loop is that runs functions.
    the_loop: (u64, u64),
}

/// Processes of Python seen so far.
#[derive(Debug)]
pub struct Pythons {
    processes: Recent<u32, Option<Process>>,
    files: HashMap<u32, Option<Symbols>>,
    names: Recent<(u32, u64), Option<Arc<str>>>,
    /// Versions met whose frames are not known, `3.16` say.
    unknown: Vec<String>,
}

impl Default for Pythons {
    fn default() -> Pythons {
        Pythons {
            processes: Recent::new(MAX_PROCESSES),
            files: HashMap::new(),
            names: Recent::new(MAX_NAMES),
            unknown: Vec::new(),
        }
    }
}

impl Pythons {
    /// Looks at a process whose mappings have just been noted: where its frames are, if it is one of Python.
    pub fn meet(&mut self, maps: &ProcMaps, tgid: u32) -> Option<PythonAt> {
        let found = self.find(maps, tgid);
        if found.is_some() || self.processes.peek(&tgid).is_some() {
            self.processes.insert(tgid, found);
        }
        Some(found?.at)
    }

    /// Whether a process has loaded something of Python's.
    pub fn may_be(maps: &ProcMaps, tgid: u32) -> bool {
        maps.mapped(tgid).iter().any(|(file, ..)| is_python(&maps.file(*file).label))
    }

    fn find(&mut self, maps: &ProcMaps, tgid: u32) -> Option<Process> {
        for (file, start, offset) in maps.mapped(tgid) {
            let mapped = maps.file(file);
            if !is_python(&mapped.label) {
                continue;
            }
            let symbols = match self.files.entry(file) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let Some(source) = maps.to_parse(file) else { continue };
                    new.insert(symbols(&source))
                }
            };
            // The program itself may only load the library that has them.
            let Some(symbols) = symbols else { continue };
            let bias = symbols.segments.bias(start, offset)?;
            let memory = maps.memory(tgid)?;
            let version = word(&memory, bias.wrapping_add(symbols.version))?;
            let (major, minor) = (version >> 24, version >> 16 & 0xff);
            let runtime = bias.wrapping_add(symbols.runtime);
            let (from, to) = symbols.the_loop;
            let the_loop = (bias.wrapping_add(from), bias.wrapping_add(to));
            let found = process(minor as u32, runtime, bias.wrapping_add(symbols.code_type), &memory)
                .map(|process| Process { the_loop, ..process });
            let told = format!("{major}.{minor}");
            if found.is_none() && !self.unknown.contains(&told) && self.unknown.len() < 8 {
                self.unknown.push(told);
            }
            return found;
        }
        None
    }

    /// What keeps functions of Python from having names, a line each.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let of = |v: &String| format!("functions of Python {v} have no names: its frames are not known here");
        self.unknown.iter().map(of)
    }

    /// Forgets what is known of files, whose numbers are given anew ([`ProcMaps::forget`]), and of processes.
    pub fn forget(&mut self) {
        *self = Pythons { unknown: std::mem::take(&mut self.unknown), ..Pythons::default() };
    }

    /// The functions of a stack, innermost first, in the places of the loop that runs them: `is_loop` tells it among the
    /// frames of the stack, `codes` are what the kernel side found. Those left over follow behind a stack that ends early;
    /// where `codes` end early, which `most` of them do, the rest stays as it is.
    pub fn splice<'a, T>(
        &mut self,
        maps: &ProcMaps,
        tgid: u32,
        (stack, whole): (&'a [T], bool),
        is_loop: impl Fn(&T) -> bool,
        (codes, most): (&[u64], usize),
    ) -> Option<Vec<Spliced<'a, T>>> {
        let process = self.processes.get(&tgid).copied().flatten()?;
        let cut = codes.len() >= most;
        let mut memory = None;
        let mut codes = codes.iter();
        let mut out = Vec::with_capacity(stack.len());
        let mut named = |pythons: &mut Pythons, code: u64| match code & 1 != 0 && process.shim {
            true => None,
            false => pythons.name(maps, tgid, code & !1, &process, &mut memory).map(Spliced::Python),
        };
        for frame in stack {
            if !is_loop(frame) {
                out.push(Spliced::Kept(frame));
                continue;
            }
            let before = out.len();
            let mut ended = false;
            for &code in codes.by_ref() {
                out.extend(named(self, code));
                ended = code & 1 != 0;
                if ended {
                    break;
                }
            }
            if out.len() == before {
                out.push(Spliced::Kept(frame));
            } else if !ended && cut {
                out.push(Spliced::Python(DEEPER.into()));
            }
        }
        if !whole {
            for &code in codes {
                out.extend(named(self, code));
            }
            if cut {
                out.push(Spliced::Python(DEEPER.into()));
            }
        }
        Some(out)
    }

    /// What a code object is called; its address has a tag. Where that is not the one it has now, another lies there.
    fn name(
        &mut self,
        maps: &ProcMaps,
        tgid: u32,
        code: u64,
        process: &Process,
        memory: &mut Option<Option<Source>>,
    ) -> Option<Arc<str>> {
        if let Some(name) = self.names.get(&(tgid, code)) {
            return name.clone();
        }
        let memory = memory.get_or_insert_with(|| maps.memory(tgid)).as_ref();
        let name: Option<Arc<str>> = memory.and_then(|memory| told(memory, code, process)).map(Into::into);
        self.names.insert((tgid, code), name.clone());
        name
    }

    /// Whether code at an address is the interpreter's own.
    pub fn owns(maps: &ProcMaps, tgid: u32, address: u64) -> bool {
        maps.find(tgid, address).is_some_and(|(file, _)| is_python(&maps.file(file).label))
    }

    /// Whether code at an address of a process, which has this name, is the interpreter's loop. Compilers part it in two, and a
    /// program without all its symbols has a name for one of them.
    pub fn is_loop(&self, tgid: u32, address: u64, name: &str) -> bool {
        let held = || {
            let (from, to) = self.processes.peek(&tgid).copied().flatten().map_or((0, 0), |p| p.the_loop);
            (from..to).contains(&address)
        };
        name.starts_with(LOOP) || name.starts_with("[unknown") && held()
    }

    /// Whether a name is one of a function of Python, as they are told here: `work (deep.py:3)`.
    pub fn is_function(name: &str) -> bool {
        let line =
            name.strip_suffix(')').and_then(|n| n.rsplit_once(" (")).and_then(|(_, at)| at.rsplit_once(':'));
        line.is_some_and(|(_, line)| !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// A frame of a stack that Python's were put into.
#[derive(Debug, PartialEq, Eq)]
pub enum Spliced<'a, T> {
    /// As it was.
    Kept(&'a T),
    /// A function of Python.
    Python(Arc<str>),
}

/// `python3.11`, `libpython3.12.so.1.0`, `python`.
fn is_python(label: &str) -> bool {
    let name = label.strip_prefix("lib").unwrap_or(label);
    name.strip_prefix("python").is_some_and(|rest| rest.is_empty() || rest.starts_with('3'))
}

fn symbols(file: &Source) -> Option<Symbols> {
    let began = Instant::now();
    let found = named_symbols(file, true, &["_PyRuntime", "Py_Version", "PyCode_Type"]);
    file.charge(began.elapsed());
    let mut found = found.into_iter().map(|at| at.map_or(0, |(address, _)| address));
    let (runtime, version, code_type) = (found.next()?, found.next()?, found.next()?);
    // Before 3.11 there is no Py_Version, and no frames as here.
    if runtime == 0 || version == 0 || code_type == 0 {
        return None;
    }
    // No other function of the interpreter is nearly as large.
    let segments = Segments::read(file)?;
    let largest = Tables::read(file).and_then(|(tables, _)| tables.largest());
    let the_loop = largest.filter(|l| l.end - l.start >= LEAST_LOOP).map_or((0, 0), |l| (l.start, l.end));
    Some(Symbols { segments, runtime, version, code_type, the_loop })
}

/// Where the frames of a version are; `None` where that is not known.
fn process(minor: u32, runtime: u64, code_type: u64, memory: &Source) -> Option<Process> {
    let main = runtime.wrapping_add(48);
    let names = Names { file: 112, ascii: 48, other: 72, code_type };
    Some(match minor {
        11 => Process {
            at: PythonAt {
                main,
                threads: 16,
                next: 8,
                thread_id: 152,
                frame: 56,
                cframe: 8,
                previous: 48,
                code: 32,
                entry: 68,
                is_entry: 1,
                name: 128,
                line: 72,
            },
            names,
            the_loop: (0, 0),
            shim: false,
        },
        12 => Process {
            at: PythonAt {
                main,
                threads: 72,
                next: 8,
                thread_id: 136,
                frame: 56,
                cframe: 0,
                previous: 8,
                code: 0,
                entry: 70,
                is_entry: 3,
                name: 128,
                line: 68,
            },
            names: Names { ascii: 40, other: 56, ..names },
            the_loop: (0, 0),
            shim: true,
        },
        13 => of_debug_offsets(&OFFSETS_13, runtime, code_type, memory)?,
        14 => of_debug_offsets(&OFFSETS_14, runtime, code_type, memory)?,
        15 => of_debug_offsets(&OFFSETS_15, runtime, code_type, memory)?,
        _ => return None,
    })
}

/// Which words of `struct _Py_DebugOffsets` (pycore_debug_offsets.h) tell what; each version has members of its own.
struct Offsets {
    next: usize,
    frame: usize,
    thread_id: usize,
    previous: usize,
    code: usize,
    owner: usize,
    file: usize,
    name: usize,
    line: usize,
}

const OFFSETS_13: Offsets = Offsets {
    next: 21,
    frame: 23,
    thread_id: 24,
    previous: 29,
    code: 30,
    owner: 33,
    file: 35,
    name: 37,
    line: 39,
};
const OFFSETS_14: Offsets = Offsets {
    next: 24,
    frame: 26,
    thread_id: 27,
    previous: 32,
    code: 33,
    owner: 36,
    file: 40,
    name: 42,
    line: 44,
};
const OFFSETS_15: Offsets = Offsets {
    next: 24,
    frame: 26,
    thread_id: 30,
    previous: 40,
    code: 41,
    owner: 44,
    file: 48,
    name: 50,
    line: 52,
};

/// What Python tells of itself since 3.13.
fn of_debug_offsets(offsets: &Offsets, runtime: u64, code_type: u64, memory: &Source) -> Option<Process> {
    let mut bytes = [0; 8 * 53];
    memory.read_exact_at(&mut bytes, runtime).ok()?;
    let all: Vec<u64> =
        bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap_or_default())).collect();
    // The cookie; a build without the interpreter's lock keeps its frames otherwise.
    if all[0] != u64::from_ne_bytes(*b"xdebugpy") || all[2] != 0 {
        return None;
    }
    let small = |i: usize| all.get(i).and_then(|o| u32::try_from(*o).ok()).filter(|o| *o < 1 << 20);
    Some(Process {
        at: PythonAt {
            // The main interpreter's pointer lies behind that of the newest.
            main: runtime.wrapping_add(small(5)?.into()).wrapping_add(8),
            threads: small(9)?,
            next: small(offsets.next)?,
            thread_id: small(offsets.thread_id)?,
            frame: small(offsets.frame)?,
            cframe: NO_CFRAME,
            previous: small(offsets.previous)?,
            code: small(offsets.code)?,
            entry: small(offsets.owner)?,
            is_entry: 3,
            name: small(offsets.name)?,
            line: small(offsets.line)?,
        },
        names: Names { file: small(offsets.file)?.into(), ascii: 40, other: 56, code_type },
        the_loop: (0, 0),
        shim: true,
    })
}

fn word(memory: &Source, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, at).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// What the code object with a tagged address is called: its function, file and first line.
fn told(memory: &Source, tagged: u64, process: &Process) -> Option<String> {
    let (names, code) = (&process.names, tagged & !TAG);
    let at = |offset: u64| word(memory, code.checked_add(offset)?);
    let name = at(process.at.name.into())?;
    let line = at(process.at.line.into())? as u32;
    let tag = (name ^ u64::from(line) << 40).wrapping_mul(SPREAD) & TAG;
    if tag != tagged & TAG || at(8)? != names.code_type {
        return None;
    }
    let path = text(memory, at(names.file)?, names, MAX_PATH)?;
    let file = path.rsplit('/').next().unwrap_or(&path);
    // Of a long one its end says more.
    let long = file.chars().count().saturating_sub(MAX_FILE);
    let file: String = file.chars().skip(long).collect();
    Some(format!("{} ({file}:{line})", text(memory, name, names, MAX_NAME)?))
}

/// A string of Python, of so many characters at most.
fn text(memory: &Source, at: u64, names: &Names, most: usize) -> Option<String> {
    // Length, and behind the hash the state: interned, kind, compact, ascii.
    let length = word(memory, at.checked_add(16)?)?;
    let state = word(memory, at.checked_add(32)?)? as u32;
    let (kind, compact, ascii) = (state >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
    if !matches!(kind, 1 | 2 | 4) || compact == 0 {
        return None;
    }
    let from = at.checked_add(if ascii == 1 { names.ascii } else { names.other })?;
    let count = usize::try_from(length).unwrap_or(usize::MAX).min(most);
    let mut bytes = vec![0; count * kind as usize];
    memory.read_exact_at(&mut bytes, from).ok()?;
    let character = |unit: &[u8]| {
        let code = unit.iter().rev().fold(0u32, |sum, b| sum << 8 | u32::from(*b));
        char::from_u32(code).filter(|c| !c.is_control()).unwrap_or('\u{fffd}')
    };
    Some(bytes.chunks_exact(kind as usize).map(character).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn names_are_those_of_python() {
        for label in ["python3.11", "libpython3.12.so.1.0", "python3", "python"] {
            assert!(is_python(label), "{label}");
        }
        for label in ["python2.7", "libpython2.7.so.1.0", "ipython", "libc.so.6", "python-config"] {
            assert!(!is_python(label), "{label}");
        }
        assert!(Pythons::is_function("work (deep.py:12)") && Pythons::is_function("<module> (a b.py:1)"));
        for name in ["foo(int)", "foo (int)", "work (deep.py:)", "work", "(:1"] {
            assert!(!Pythons::is_function(name), "{name}");
        }
        let pythons = Pythons::default();
        assert!(
            pythons.is_loop(1, 8, "_PyEval_EvalFrameDefault.cold")
                && !pythons.is_loop(1, 8, "PyEval_EvalCode")
        );
    }

    #[test]
    fn other_programs_are_none() {
        let mut maps = ProcMaps::new(Path::new("/"));
        maps.note_process(std::process::id());
        let mut pythons = Pythons::default();
        assert!(pythons.meet(&maps, std::process::id()).is_none());
        assert!(pythons.splice(&maps, std::process::id(), (&[1, 2], true), |_| true, (&[8], 2)).is_none());
        assert_eq!(pythons.notes().count(), 0);
        assert!(symbols(&Source::open(&std::env::current_exe().unwrap()).unwrap()).is_none());
    }
}
