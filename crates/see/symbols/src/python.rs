//! Functions of Python, by the code objects of its frames: the interpreter's own loop is one C function for
//! all of them.
//!
//! The kernel side follows a thread's frames when it takes its stack, using the addresses in [`PythonAt`],
//! and returns a code object for each. Its name is read from the process's memory here. Python 3.13 and later
//! publish their offsets; those of 3.11 and 3.12 are known. Frames of all other versions stay the
//! interpreter's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use ncpu_files::reader::{Source, Work, charge_names, may_name};

use crate::elf::{Segments, named_symbols};
use crate::maps::ProcMaps;
use crate::recent::Recent;
use crate::tables::Tables;

/// The function that runs Python's functions.
const LOOP: &str = "_PyEval_EvalFrameDefault";
/// Its least size in bytes: 55 KiB in 3.11, 82 KiB in 3.14.
const LEAST_LOOP: u64 = 32 << 10;
/// A thread refers to its frame directly, without a C frame between.
pub const NO_CFRAME: u32 = u32::MAX;
/// The number of code objects with cached names, per generation.
const MAX_NAMES: usize = 1 << 13;
/// The number of processes remembered, per generation.
const MAX_PROCESSES: usize = 1 << 10;
/// The most characters of a name and of a file name, and of a path that is read.
const MAX_NAME: usize = 120;
const MAX_FILE: usize = 60;
const MAX_PATH: usize = 4096;
/// Bits that distinguish a code object's address from a later object at the same place (`TAG` of python.h).
pub(crate) const TAG: u64 = 0xffff << 48;
/// As in table.h of the kernel side.
pub(crate) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Stands for callers beyond the kernel side's limit.
const DEEPER: &str = "[deeper]";

/// The place of the frames of a process's threads: addresses, and offsets in structures.
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
    /// In a thread: its frame, or the object that contains it.
    pub frame: u32,
    /// In that object: the frame; [`NO_CFRAME`]: the thread itself refers to it.
    pub cframe: u32,
    /// In a frame: the caller's.
    pub previous: u32,
    /// In a frame: its code object.
    pub code: u32,
    /// In a frame: the byte that is set if the loop was called for it, and its value then.
    pub entry: u32,
    /// See [`PythonAt::entry`].
    pub is_entry: u32,
    /// In a code object: its name.
    pub name: u32,
    /// In a code object: the line it begins at.
    pub line: u32,
}

/// The places of names: the file's name in a code object, and the bytes of ASCII and of other strings.
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
    /// The range of the loop's main part.
    the_loop: (u64, u64),
    /// The frame for which the loop was called stands for nothing else.
    shim: bool,
}

/// A version's symbols, at link-time addresses.
#[derive(Debug)]
struct Symbols {
    segments: Segments,
    runtime: u64,
    version: u64,
    code_type: u64,
    /// The range of the loop's main part.
    the_loop: (u64, u64),
}

/// Processes of Python seen so far.
#[derive(Debug)]
pub struct Pythons {
    processes: Recent<u32, Option<Process>>,
    files: HashMap<u32, Option<Symbols>>,
    names: Recent<(u32, u64), Option<Arc<str>>>,
    /// Versions seen whose frames are unknown, such as `3.16`.
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
    /// Examines a process whose mappings have just been noted: returns the place of its frames, if it runs
    /// Python.
    pub fn examine(&mut self, maps: &ProcMaps, tgid: u32) -> Option<PythonAt> {
        let found = self.find(maps, tgid);
        if found.is_some() || self.processes.peek(&tgid).is_some() {
            self.processes.insert(tgid, found);
        }
        Some(found?.at)
    }

    /// Whether a process has loaded a part of Python.
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
                    new.insert(source.parsed(symbols))
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
            let version = format!("{major}.{minor}");
            if found.is_none() && !self.unknown.contains(&version) && self.unknown.len() < 8 {
                self.unknown.push(version);
            }
            return found;
        }
        None
    }

    /// Reasons why functions of Python have no names, one per line.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let of = |v: &String| {
            format!("functions of Python {v} have no names: the layout of its frames is unknown")
        };
        self.unknown.iter().map(of)
    }

    /// Drops the data of files, whose numbers are reassigned ([`ProcMaps::forget`]), and of processes.
    pub fn forget(&mut self) {
        *self = Pythons { unknown: std::mem::take(&mut self.unknown), ..Pythons::default() };
    }

    /// Puts the functions of a stack, innermost first, in the places of the loop that runs them. `is_loop`
    /// recognises the loop among the frames of the stack, `codes` come from the kernel side. Surplus
    /// functions follow after a stack that ends early. If `codes` end early, as `most` of them do, the rest
    /// is unchanged.
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
            false => pythons.name(maps, tgid, code & !1, &process, &mut memory).map(Spliced::Named),
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
                out.push(Spliced::Named(DEEPER.into()));
            }
        }
        if !whole {
            for &code in codes {
                out.extend(named(self, code));
            }
            if cut {
                out.push(Spliced::Named(DEEPER.into()));
            }
        }
        Some(out)
    }

    /// The name of a code object, whose address has a tag. If the tag differs from the current one, another
    /// object lies there.
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
        let whose = maps.whose(tgid);
        if !may_name(whose) {
            return None;
        }
        let began = Work::begin();
        let memory = memory.get_or_insert_with(|| maps.memory(tgid)).as_ref();
        let name: Option<Arc<str>> =
            memory.and_then(|memory| describe(memory, code, process)).map(Into::into);
        charge_names(whose, began.elapsed());
        self.names.insert((tgid, code), name.clone());
        name
    }

    /// Whether code at an address belongs to the interpreter.
    pub fn owns(maps: &ProcMaps, tgid: u32, address: u64) -> bool {
        maps.find(tgid, address).is_some_and(|(file, _)| is_python(&maps.file(file).label))
    }

    /// Whether code at an address of a process, with this name, is the interpreter's loop. Compilers split it
    /// in two, and a program without all its symbols has a name for one part only.
    pub fn is_loop(&self, tgid: u32, address: u64, name: &str) -> bool {
        let held = || {
            let (from, to) = self.processes.peek(&tgid).copied().flatten().map_or((0, 0), |p| p.the_loop);
            (from..to).contains(&address)
        };
        name.starts_with(LOOP) || name.starts_with("[unknown") && held()
    }

    /// Whether a name has the form of a Python function's name as used here: `work (deep.py:3)`.
    pub fn is_function(name: &str) -> bool {
        let line =
            name.strip_suffix(')').and_then(|n| n.rsplit_once(" (")).and_then(|(_, at)| at.rsplit_once(':'));
        line.is_some_and(|(_, line)| !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// A frame of a stack with functions of a script inserted.
#[derive(Debug, PartialEq, Eq)]
pub enum Spliced<'a, T> {
    /// An unchanged frame.
    Kept(&'a T),
    /// A function.
    Named(Arc<str>),
}

/// `python3.11`, `libpython3.12.so.1.0`, `python`.
fn is_python(label: &str) -> bool {
    let name = label.strip_prefix("lib").unwrap_or(label);
    name.strip_prefix("python").is_some_and(|rest| rest.is_empty() || rest.starts_with('3'))
}

fn symbols(file: &Source) -> Option<Symbols> {
    let found = named_symbols(file, true, &["_PyRuntime", "Py_Version", "PyCode_Type"]);
    let mut found = found.into_iter().map(|at| at.map_or(0, |(address, _)| address));
    let (runtime, version, code_type) = (found.next()?, found.next()?, found.next()?);
    // Before 3.11 there is no Py_Version, and frames differ.
    if runtime == 0 || version == 0 || code_type == 0 {
        return None;
    }
    // No other function of the interpreter is nearly that large.
    let segments = Segments::read(file)?;
    let largest = Tables::read(file).and_then(|(tables, _)| tables.largest());
    let the_loop = largest.filter(|l| l.end - l.start >= LEAST_LOOP).map_or((0, 0), |l| (l.start, l.end));
    Some(Symbols { segments, runtime, version, code_type, the_loop })
}

/// The frames' layout in a version; `None` if unknown.
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

/// Indices of the words of `struct _Py_DebugOffsets` (pycore_debug_offsets.h); each version has its own
/// members.
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

/// The offsets that Python publishes since 3.13.
fn of_debug_offsets(offsets: &Offsets, runtime: u64, code_type: u64, memory: &Source) -> Option<Process> {
    let mut bytes = [0; 8 * 53];
    memory.read_exact_at(&mut bytes, runtime).ok()?;
    let all: Vec<u64> =
        bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap_or_default())).collect();
    // The cookie. A build without the global interpreter lock stores its frames differently.
    if all[0] != u64::from_ne_bytes(*b"xdebugpy") || all[2] != 0 {
        return None;
    }
    let small = |i: usize| all.get(i).and_then(|o| u32::try_from(*o).ok()).filter(|o| *o < 1 << 20);
    Some(Process {
        at: PythonAt {
            // The pointer to the main interpreter follows the pointer to the newest.
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

/// The name of the code object with a tagged address: its function, file and first line.
fn describe(memory: &Source, tagged: u64, process: &Process) -> Option<String> {
    let (names, code) = (&process.names, tagged & !TAG);
    let at = |offset: u64| word(memory, code.checked_add(offset)?);
    let name = at(process.at.name.into())?;
    let line = at(process.at.line.into())? as u32;
    let tag = (name ^ u64::from(line) << 40).wrapping_mul(SPREAD) & TAG;
    if tag != tagged & TAG || at(8)? != names.code_type {
        return None;
    }
    let path = text(memory, at(names.file)?, names, MAX_PATH)?;
    let file = file_name(&path);
    Some(format!("{} ({file}:{line})", text(memory, name, names, MAX_NAME)?))
}

/// The name of a file of scripts, without its folders.
pub(crate) fn file_name(path: &str) -> String {
    ending(path.rsplit('/').next().unwrap_or(path))
}

/// The end of a long path, which says more than its beginning.
pub(crate) fn ending(path: &str) -> String {
    let long = path.chars().count().saturating_sub(MAX_FILE);
    path.chars().skip(long).collect()
}

/// A Python string of at most `most` characters.
fn text(memory: &Source, at: u64, names: &Names, most: usize) -> Option<String> {
    // Length, and after the hash the state: interned, kind, compact, ascii.
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
        assert!(pythons.examine(&maps, std::process::id()).is_none());
        assert!(pythons.splice(&maps, std::process::id(), (&[1, 2], true), |_| true, (&[8], 2)).is_none());
        assert_eq!(pythons.notes().count(), 0);
        assert!(symbols(&Source::open(&std::env::current_exe().unwrap()).unwrap()).is_none());
    }
}
