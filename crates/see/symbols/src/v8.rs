//! Functions of JavaScript in V8 (Node.js), by what their frames keep.
//!
//! The kernel side follows a thread's frames when it takes its stack, and returns the address of each one's code with the
//! `SharedFunctionInfo` of its function. Its name, file and line are read from the process's memory here, by the offsets that V8
//! publishes for debuggers (`v8dbg_…`, src/diagnostics and tools/gen-postmortem-metadata.py of V8). Nothing has to be
//! switched on in the program.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use ncpu_files::reader::{Source, Work, charge_names, may_name};

use crate::elf::{Segments, named_symbols};
use crate::maps::ProcMaps;
use crate::python::{SPREAD, Spliced, TAG, ending, file_name};
use crate::recent::Recent;

/// The interpreter's code for a function of JavaScript that has called another.
const INTERPRETER: &str = "Builtins_InterpreterEntryTrampoline";
/// How names of code begin that is V8's own, and neither of C++ nor made at run time.
const BUILTINS: &str = "Builtins_";
/// The number of functions with cached names, per generation, of processes, and of scripts with known lines.
const MAX_NAMES: usize = 1 << 13;
const MAX_PROCESSES: usize = 1 << 10;
const MAX_SCRIPTS: usize = 16;
/// The most characters of a name, and of a path and a script that is read.
const MAX_NAME: usize = 120;
const MAX_PATH: usize = 4096;
const MAX_SOURCE: usize = 4 << 20;
/// The most lines of a script; functions beyond have none.
const MAX_LINES: usize = 1 << 16;
/// The most strings that one leads to.
const MAX_STRINGS: usize = 8;
/// V8 keeps the names of this many variables of a function, or more, in a table.
const TABLE: u64 = 75;
/// The lowest bit of a pointer to an object on V8's heap.
const HEAP_OBJECT: u64 = 1;

/// Offsets in objects, by which the kernel side follows a process's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V8At {
    /// In a function: what all its closures share.
    pub shared: u32,
    /// In that: its name.
    pub name: u32,
}

/// Declares the numbers that are read, with their names after `v8dbg_`, which differ by version.
macro_rules! numbers {
    ($($field:ident = $($name:literal)|+,)*) => {
        /// Numbers that V8 publishes: offsets in objects, types and masks.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        struct Numbers {
            $($field: u64,)*
        }

        impl Numbers {
            const NAMES: &[&[&str]] = &[$(&[$(concat!("v8dbg_", $name),)+],)*];

            /// Of N numbers, one for each name.
            fn of(numbers: &[u64]) -> Option<Numbers> {
                let mut numbers = numbers.iter().copied();
                Some(Numbers { $($field: numbers.next()?,)* })
            }
        }
    };
}

numbers! {
    tagged_size = "TaggedSize",
    in_frame_function = "off_fp_function",
    in_frame_context = "off_fp_context",
    shared = "class_JSFunction__shared__SharedFunctionInfo",
    instance_type = "class_Map__instance_type__uint16_t",
    name = "class_SharedFunctionInfo__name_or_scope_info__Object"
        | "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_"
        | "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
    script = "class_SharedFunctionInfo__script_or_debug_info__HeapObject"
        | "class_SharedFunctionInfo__raw_script__Tagged_Object_",
    script_name = "class_Script__name__Object",
    script_source = "class_Script__source__Object",
    shared_type = "type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
    scope_type = "type_ScopeInfo__SCOPE_INFO_TYPE",
    script_type = "type_Script__SCRIPT_TYPE",
    first_other = "FirstNonstringType",
    representation = "StringRepresentationMask",
    seq = "SeqStringTag",
    cons = "ConsStringTag",
    thin = "ThinStringTag",
    sliced = "SlicedStringTag",
    encoding = "StringEncodingMask",
    one_byte = "OneByteStringTag",
    length = "class_String__length__int32_t",
    one_byte_chars = "class_SeqOneByteString__chars__char",
    two_byte_chars = "class_SeqTwoByteString__chars__char",
    cons_first = "class_ConsString__first__String",
    cons_second = "class_ConsString__second__String",
    thin_actual = "class_ThinString__actual__String",
    sliced_parent = "class_SlicedString__parent__String",
    sliced_offset = "class_SlicedString__offset__SMI",
    scope_locals = "scopeinfo_idx_ncontextlocals",
    scope_first = "scopeinfo_idx_first_vars",
}

/// Processes of V8 seen so far.
#[derive(Debug)]
pub struct V8s {
    processes: Recent<u32, Option<Numbers>>,
    files: HashMap<u32, Option<Numbers>>,
    names: Recent<(u32, u64), Option<Arc<str>>>,
    /// By a process, the address of code made at run time and a function: what the kernel side would send for it.
    shared: Recent<(u32, u64, u64), Option<u64>>,
    lines: Recent<(u32, u64, u64), Arc<[u32]>>,
}

impl Default for V8s {
    fn default() -> V8s {
        V8s {
            processes: Recent::new(MAX_PROCESSES),
            files: HashMap::new(),
            names: Recent::new(MAX_NAMES),
            shared: Recent::new(MAX_NAMES),
            lines: Recent::new(MAX_SCRIPTS),
        }
    }
}

impl V8s {
    /// Examines a process whose mappings have just been noted: what tells its functions, if it runs V8.
    pub fn examine(&mut self, maps: &ProcMaps, tgid: u32) -> Option<V8At> {
        let found = self.find(maps, tgid);
        if found.is_some() || self.processes.peek(&tgid).is_some() {
            self.processes.insert(tgid, found);
        }
        let numbers = found?;
        Some(V8At { shared: u32::try_from(numbers.shared).ok()?, name: u32::try_from(numbers.name).ok()? })
    }

    /// Whether a process is known to run V8.
    pub fn runs(&self, tgid: u32) -> bool {
        self.processes.peek(&tgid).is_some_and(Option::is_some)
    }

    /// Whether a process has loaded a part of V8.
    pub fn may_be(maps: &ProcMaps, tgid: u32) -> bool {
        maps.mapped(tgid).iter().any(|(file, ..)| is_v8(&maps.file(*file).label))
    }

    fn find(&mut self, maps: &ProcMaps, tgid: u32) -> Option<Numbers> {
        for (file, ..) in maps.mapped(tgid) {
            if !is_v8(&maps.file(file).label) {
                continue;
            }
            let numbers = match self.files.entry(file) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let Some(source) = maps.to_parse(file) else { continue };
                    *new.insert(source.parsed(numbers))
                }
            };
            // The program itself may only load the library that has them.
            if numbers.is_some() {
                return numbers;
            }
        }
        None
    }

    /// Drops the data of files, whose numbers are reassigned ([`ProcMaps::forget`]), and of processes.
    pub fn forget(&mut self) {
        *self = V8s::default();
    }

    /// The functions of an unwound stack in the form in which the kernel side sends them, from the stack's copy: its frames behind
    /// code of C++ are found as well. And the words of the copy that distinguish the stack from those of other functions which the
    /// interpreter runs. `frames`: unwound, and whether each is V8's own
    /// code; `at`: of each but the first, the word of the copy that its address was read from. `None` for other processes.
    pub fn in_copy(
        &mut self,
        maps: &ProcMaps,
        tgid: u32,
        (frames, at): (&[(u64, bool)], &[Option<usize>]),
        copy: &[u64],
    ) -> Option<(Vec<u64>, Vec<usize>)> {
        let numbers = self.processes.get(&tgid).copied().flatten()?;
        let mut heap = Charged { maps, tgid, numbers, heap: None };
        let (mut codes, mut marks) = (Vec::new(), Vec::new());
        for ((code, _), at) in frames.iter().zip(at).filter(|((_, own), at)| *own && at.is_some()) {
            // Below the address at which the caller goes on: the caller's frame, the context, the function.
            let Some(at) = at.and_then(|at| at.checked_sub(3)) else { continue };
            let Some(&[function, context]) = copy.get(at..at + 2) else { continue };
            if function & context & HEAP_OBJECT == 0 {
                continue;
            }
            let made = is_made(maps, tgid, code.wrapping_sub(1));
            // Code that was made is of one function; another may come to lie where that of an interpreter's frame lay.
            let known = made.then(|| self.shared.get(&(tgid, *code, function)).copied()).flatten();
            let shared = known.unwrap_or_else(|| {
                let shared = heap.read(|heap| heap.shared(function))?;
                if made {
                    self.shared.insert((tgid, *code, function), shared);
                }
                shared
            });
            let Some(shared) = shared else { continue };
            codes.extend([*code, shared]);
            if !made {
                marks.push(at);
            }
        }
        Some((codes, marks))
    }

    /// Puts the functions of a stack, innermost first, in the places of their code made at run time, and behind V8's own code that
    /// works for them. `stack`: addresses, and whether a function stands for the frame. `codes` come from the kernel side: the
    /// address of a frame's code, and what its function shares. Surplus functions follow after a stack that ends early.
    pub fn splice<'a>(
        &mut self,
        maps: &ProcMaps,
        tgid: u32,
        (stack, whole): (&'a [(u64, bool)], bool),
        codes: &[u64],
    ) -> Option<Vec<Spliced<'a, (u64, bool)>>> {
        let numbers = self.processes.get(&tgid).copied().flatten()?;
        let mut heap = Charged { maps, tgid, numbers, heap: None };
        let mut named: Vec<(u64, Arc<str>)> = Vec::new();
        for pair in codes.chunks_exact(2) {
            let known = self.names.get(&(tgid, pair[1])).cloned();
            let name = known.unwrap_or_else(|| {
                let name = heap.read(|heap| heap.describe(pair[1], tgid, &mut self.lines))?;
                let name: Option<Arc<str>> = name.map(Arc::from);
                self.names.insert((tgid, pair[1]), name.clone());
                name
            });
            named.extend(name.map(|name| (pair[0], name)));
        }
        Some(joined(stack, whole, &named))
    }

    /// Whether code at an address, with this name, runs functions of JavaScript or works for them.
    pub fn is_own(maps: &ProcMaps, tgid: u32, address: u64, name: &str) -> bool {
        name.starts_with(BUILTINS) || V8s::stands_for(maps, tgid, address, name)
    }

    /// Whether a function of JavaScript stands for code at an address, with this name: code made at run time, and the interpreter.
    pub fn stands_for(maps: &ProcMaps, tgid: u32, address: u64, name: &str) -> bool {
        name.starts_with(INTERPRETER) || is_made(maps, tgid, address)
    }
}

/// Whether code at an address was made at run time.
fn is_made(maps: &ProcMaps, tgid: u32, address: u64) -> bool {
    maps.find(tgid, address).is_some_and(|(file, _)| maps.file(file).path.is_none())
}

/// A stack with the functions of some of its addresses, in order: in their places, or behind the address.
fn joined<'a>(
    stack: &'a [(u64, bool)],
    whole: bool,
    named: &[(u64, Arc<str>)],
) -> Vec<Spliced<'a, (u64, bool)>> {
    let mut out = Vec::with_capacity(stack.len() + named.len());
    let mut rest = named;
    for frame in stack {
        let Some(at) = rest.iter().position(|(code, _)| *code == frame.0) else {
            out.push(Spliced::Kept(frame));
            continue;
        };
        if !frame.1 {
            out.push(Spliced::Kept(frame));
        }
        out.push(Spliced::Named(rest[at].1.clone()));
        rest = &rest[at + 1..];
    }
    if !whole {
        out.extend(rest.iter().map(|(_, name)| Spliced::Named(name.clone())));
    }
    out
}

/// `node`, `nodejs`, `libnode.so.108`, `electron`.
fn is_v8(label: &str) -> bool {
    matches!(label, "node" | "nodejs" | "electron" | "d8") || label.starts_with("libnode.so")
}

/// The numbers that a program publishes; `None` without them, or where its frames and objects have another form than the kernel
/// side reads.
fn numbers(file: &Source) -> Option<Numbers> {
    let segments = Segments::read(file)?;
    let all: Vec<&str> = Numbers::NAMES.concat();
    let mut addresses = named_symbols(file, true, &all).into_iter();
    let of = |names: &&[&str]| {
        let (address, _) = addresses.by_ref().take(names.len()).fold(None, Option::or)?;
        let mut bytes = [0; 4];
        // A zero lies in no file.
        if let Some(offset) = segments.offset(address) {
            file.read_exact_at(&mut bytes, offset).ok()?;
        }
        // Offsets, types and masks are small numbers.
        i16::try_from(i32::from_ne_bytes(bytes)).ok().map(sixteen_bits)
    };
    let found: Option<Vec<u64>> = Numbers::NAMES.iter().map(of).collect();
    let numbers = Numbers::of(&found?)?;
    let fits = numbers.tagged_size == 8
        && numbers.in_frame_function == sixteen_bits(-16)
        && numbers.in_frame_context == sixteen_bits(-8);
    fits.then_some(numbers)
}

fn sixteen_bits(number: i16) -> u64 {
    number.cast_unsigned().into()
}

/// The heap of a process.
struct Heap {
    memory: Source,
    numbers: Numbers,
}

/// The heap of a process, opened when it is first read, at the expense of the process's user.
struct Charged<'a> {
    maps: &'a ProcMaps,
    tgid: u32,
    numbers: Numbers,
    heap: Option<Option<Heap>>,
}

impl Charged<'_> {
    /// The result of `read`; `None` if the user has no time left, so that nothing is known.
    fn read<T>(&mut self, read: impl FnOnce(&Heap) -> Option<T>) -> Option<Option<T>> {
        let whose = self.maps.whose(self.tgid);
        if !may_name(whose) {
            return None;
        }
        let began = Work::begin();
        let open = || self.maps.memory(self.tgid).map(|memory| Heap { memory, numbers: self.numbers });
        let found = self.heap.get_or_insert_with(open).as_ref().and_then(read);
        charge_names(whose, began.elapsed());
        Some(found)
    }
}

/// The bits that distinguish a function by its name.
fn tag(name: u64) -> u64 {
    name.wrapping_mul(SPREAD) & TAG
}

/// The value of a small number; `None` for a pointer.
fn small(word: u64) -> Option<u64> {
    (word & 0xffff_ffff == 0).then_some(word >> 32)
}

impl Heap {
    /// The word in an object, whose pointer has its lowest bit set.
    fn word(&self, object: u64, offset: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let at = object.checked_sub(HEAP_OBJECT)?.checked_add(offset)?;
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// The type of an object.
    fn kind(&self, object: u64) -> Option<u64> {
        if object & HEAP_OBJECT == 0 {
            return None;
        }
        let map = self.word(object, 0).filter(|map| map & HEAP_OBJECT != 0)?;
        Some(self.word(map, self.numbers.instance_type)? & 0xffff)
    }

    /// The `SharedFunctionInfo` of a function, with the tag that the kernel side gives it.
    fn shared(&self, function: u64) -> Option<u64> {
        let shared = self.word(function, self.numbers.shared)?;
        if self.kind(shared)? != self.numbers.shared_type {
            return None;
        }
        Some(shared & !TAG | tag(self.word(shared, self.numbers.name)?))
    }

    /// The name of a function, its file and the line it begins at: `work (app.js:3)`.
    fn describe(
        &self,
        tagged: u64,
        tgid: u32,
        lines: &mut Recent<(u32, u64, u64), Arc<[u32]>>,
    ) -> Option<String> {
        let n = &self.numbers;
        let shared = tagged & !TAG;
        if self.kind(shared)? != n.shared_type {
            return None;
        }
        let name = self.word(shared, n.name)?;
        if tag(name) != tagged & TAG {
            return None;
        }
        let script = self.word(shared, n.script)?;
        if self.kind(script)? != n.script_type {
            return None;
        }
        let (name, position) = match self.kind(name) {
            Some(kind) if kind < n.first_other => (self.text(name, MAX_NAME), None),
            Some(kind) if kind == n.scope_type => self.of_scope(name),
            _ => (None, None),
        };
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| match position {
            Some(0) => "<module>".into(),
            _ => "<anonymous>".into(),
        });
        let name = name.replace('\n', "\u{fffd}");
        let path = self.text(self.word(script, n.script_name)?, MAX_PATH).unwrap_or_default();
        let path = path.replace('\n', "\u{fffd}");
        let file = if path.starts_with("node:") { ending(&path) } else { file_name(&path) };
        let file = if file.is_empty() { "[eval]".into() } else { file };
        let line = position.and_then(|position| self.line(script, position, tgid, lines));
        Some(match line {
            Some(line) => format!("{name} ({file}:{line})"),
            None => format!("{name} ({file})"),
        })
    }

    /// A function's name and where it begins in its script, in characters, from what V8 keeps of its variables: after its head
    /// their names and a small number for each, then what it is called or takes its name from. Where it begins and ends stands
    /// before its variables, as versions since 11 have it, or behind its name.
    fn of_scope(&self, scope: u64) -> (Option<String>, Option<u64>) {
        let n = &self.numbers;
        let slot = |i: u64| self.word(scope, 8 + 8 * i);
        let number = |i: u64| slot(i).and_then(small);
        let Some(locals) = number(n.scope_locals) else { return (None, None) };
        let head = n.scope_locals + 1;
        let mut range = number(head).zip(number(head + 1)).filter(|(from, to)| from <= to);
        let first = if range.is_some() { n.scope_first.max(head + 2) } else { n.scope_first };
        let behind = first + if locals < TABLE { 2 * locals } else { 1 + locals };
        let mut name = None;
        for word in (behind..behind + 3).map_while(slot).filter(|word| small(*word).is_none()) {
            // The scope around it follows, or another object.
            if self.kind(word).is_none_or(|kind| kind >= n.first_other) || name.is_some() {
                break;
            }
            name = self.text(word, MAX_NAME).filter(|name| !name.is_empty());
        }
        if range.is_none() {
            // The last two of the numbers that follow on another.
            let begins = (behind..behind + 4).find(|i| number(*i).is_some() && number(i + 1).is_some());
            range = begins.and_then(|at| {
                let end = (at + 2..at + 5).find(|i| number(*i).is_none())?;
                number(end - 2).zip(number(end - 1)).filter(|(from, to)| from <= to)
            });
        }
        (name, range.map(|(from, _)| from))
    }

    /// The line, from 1, of a position in a script.
    fn line(
        &self,
        script: u64,
        position: u64,
        tgid: u32,
        lines: &mut Recent<(u32, u64, u64), Arc<[u32]>>,
    ) -> Option<u32> {
        if position >= MAX_SOURCE as u64 {
            return None;
        }
        let source = self.word(script, self.numbers.script_source)?;
        let key = (tgid, script, source);
        let ends = match lines.get(&key) {
            Some(known) => known.clone(),
            None => {
                let text = self.text(source, MAX_SOURCE)?;
                let ends = text.chars().enumerate().filter(|(_, c)| *c == '\n').map(|(at, _)| at as u32);
                let ends: Arc<[u32]> = ends.take(MAX_LINES).collect();
                lines.insert(key, ends.clone());
                ends
            }
        };
        let before = ends.partition_point(|end| u64::from(*end) < position);
        (before < MAX_LINES).then_some(before as u32 + 1)
    }

    /// At most N characters of a string, N being `most`, of 16 bits each.
    fn text(&self, string: u64, most: usize) -> Option<String> {
        let n = &self.numbers;
        let (mut string, mut skip, mut length) = (string, 0, None);
        for _ in 0..MAX_STRINGS {
            let kind = self.kind(string).filter(|kind| *kind < n.first_other)?;
            let own = (self.word(string, n.length)? & 0xffff_ffff) as usize;
            let length = *length.get_or_insert(own);
            match kind & n.representation {
                form if form == n.seq => {
                    let one = kind & n.encoding == n.one_byte;
                    let chars = if one { n.one_byte_chars } else { n.two_byte_chars };
                    let width = if one { 1 } else { 2 };
                    let count = length.min(own.checked_sub(skip)?).min(most);
                    let at = string.checked_sub(HEAP_OBJECT)?.checked_add(chars)?;
                    let at = at.checked_add((skip * width) as u64)?;
                    return self.characters(at, count, one);
                }
                // A flat one is all in its first part.
                form if form == n.cons => {
                    let second = self.word(string, n.cons_second)?;
                    if self.word(second, n.length)? & 0xffff_ffff != 0 {
                        return None;
                    }
                    string = self.word(string, n.cons_first)?;
                }
                form if form == n.thin => string = self.word(string, n.thin_actual)?,
                form if form == n.sliced => {
                    skip += usize::try_from(small(self.word(string, n.sliced_offset)?)?).ok()?;
                    string = self.word(string, n.sliced_parent)?;
                }
                // Outside of the heap, as the sources of Node's own library.
                _ => return None,
            }
        }
        None
    }

    /// Characters of one byte (Latin-1) or two.
    fn characters(&self, mut at: u64, count: usize, one: bool) -> Option<String> {
        let (mut left, mut out) = (count, String::with_capacity(count));
        let mut bytes = vec![0; 1 << 16];
        while left > 0 {
            let some = left.min(bytes.len() / 2);
            let read = &mut bytes[..if one { some } else { 2 * some }];
            self.memory.read_exact_at(read, at).ok()?;
            let clean = |code: u32| {
                char::from_u32(code).filter(|c| !c.is_control() || *c == '\n').unwrap_or('\u{fffd}')
            };
            match one {
                true => out.extend(read.iter().map(|b| clean(u32::from(*b)))),
                false => {
                    out.extend(
                        read.chunks_exact(2).map(|b| clean(u32::from(u16::from_ne_bytes([b[0], b[1]])))),
                    );
                }
            }
            at = at.checked_add(read.len() as u64)?;
            left -= some;
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ncpu_files::reader::Whose;
    use proptest::prelude::*;

    use super::*;

    /// As Node 20 publishes them.
    const NODE_20: Numbers = Numbers {
        tagged_size: 8,
        in_frame_function: 65520,
        in_frame_context: 65528,
        shared: 24,
        instance_type: 12,
        name: 16,
        script: 32,
        script_name: 16,
        script_source: 8,
        shared_type: 262,
        scope_type: 261,
        script_type: 167,
        first_other: 128,
        representation: 7,
        seq: 0,
        cons: 1,
        thin: 5,
        sliced: 3,
        encoding: 8,
        one_byte: 8,
        length: 12,
        one_byte_chars: 16,
        two_byte_chars: 16,
        cons_first: 16,
        cons_second: 24,
        thin_actual: 16,
        sliced_parent: 16,
        sliced_offset: 24,
        scope_locals: 2,
        scope_first: 3,
    };

    /// This process's own memory, in which objects are made.
    struct Made {
        words: Box<[u64]>,
        used: usize,
    }

    impl Made {
        fn new() -> Made {
            Made { words: vec![0; 512].into(), used: 0 }
        }

        /// An object of these words; a pointer to it.
        fn object(&mut self, words: &[u64]) -> u64 {
            let at = &mut self.words[self.used..self.used + words.len()];
            at.copy_from_slice(words);
            self.used += words.len();
            at.as_ptr().addr() as u64 + HEAP_OBJECT
        }

        fn of_kind(&mut self, kind: u64, words: &[u64]) -> u64 {
            let map = self.object(&[HEAP_OBJECT, kind << 32]);
            self.object(&[&[map], words].concat())
        }

        fn text(&mut self, text: &str) -> u64 {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(text.len().next_multiple_of(8), 0);
            let words: Vec<u64> =
                bytes.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().expect("eight"))).collect();
            self.of_kind(NODE_20.one_byte, &[&[(text.len() as u64) << 32], &words[..]].concat())
        }

        /// The name of a function with this name or scope, in a file of four lines.
        fn described(&mut self, name: u64) -> Option<String> {
            let (source, path) = (self.text("one\ntwo\nthree\nfour"), self.text("/srv/app.js"));
            let script = self.of_kind(NODE_20.script_type, &[source, path]);
            let shared = self.of_kind(NODE_20.shared_type, &[0, name, 0, script]);
            heap(NODE_20).describe(shared & !TAG | tag(name), 1, &mut Recent::new(1))
        }
    }

    fn heap(numbers: Numbers) -> Heap {
        // Charged to nobody: these reads would use up what other tests of this program have.
        let memory = format!("/proc/{}/mem", std::process::id());
        let memory = Source::of_proc(memory.as_ref(), Whose::TARGET).expect("its own memory");
        Heap { memory, numbers }
    }

    fn number(n: u64) -> u64 {
        n << 32
    }

    #[test]
    fn a_function_is_told_by_its_name_file_and_line() {
        let mut made = Made::new();
        let name = made.text("work");
        assert_eq!(
            made.described(name).as_deref(),
            Some("work (app.js)"),
            "not compiled: its place is not known"
        );
        let around = made.of_kind(NODE_20.scope_type, &[]);
        let variable = made.text("x");
        let empty = made.text("");
        // With its place before its variables, and behind them.
        for words in [
            &[0, number(1), number(1), number(8), number(12), variable, number(5), name, around][..],
            &[0, number(1), number(1), variable, number(5), name, number(2), number(8), number(12), around],
            &[0, number(1), number(0), name, number(8), number(12), around],
        ] {
            let scope = made.of_kind(NODE_20.scope_type, words);
            assert_eq!(made.described(scope).as_deref(), Some("work (app.js:3)"), "{words:x?}");
        }
        for (words, told) in [
            (&[0, 0, number(0), number(0), number(17), empty, around][..], "<module> (app.js:1)"),
            (&[0, 0, number(0), number(4), number(17), around, name], "<anonymous> (app.js:2)"),
        ] {
            let scope = made.of_kind(NODE_20.scope_type, words);
            assert_eq!(made.described(scope).as_deref(), Some(told), "{words:x?}");
        }
        let other = made.of_kind(200, &[0, name]);
        assert_eq!(heap(NODE_20).describe(other, 1, &mut Recent::new(1)), None, "no function");
    }

    #[test]
    fn strings_are_read_in_all_their_forms() {
        let mut made = Made::new();
        let whole = made.text("a long text");
        let empty = made.text("");
        let flat = made.of_kind(NODE_20.cons, &[number(11), whole, empty]);
        let thin = made.of_kind(NODE_20.thin, &[number(11), flat]);
        let part = made.of_kind(NODE_20.sliced, &[number(4), thin, number(2)]);
        let wide = made.of_kind(0, &[number(3), 0x0041_20ac_0042]);
        let joined = made.of_kind(NODE_20.cons, &[number(22), whole, whole]);
        let beyond = made.of_kind(NODE_20.sliced, &[number(4), whole, number(12)]);
        let heap = heap(NODE_20);
        let text = |string: u64| heap.text(string, 100);
        for (string, is) in [
            (whole, "a long text"),
            (flat, "a long text"),
            (thin, "a long text"),
            (part, "long"),
            (wide, "B€A"),
        ] {
            assert_eq!(text(string).as_deref(), Some(is));
        }
        assert_eq!(heap.text(whole, 6).as_deref(), Some("a long"));
        assert_eq!([text(joined), text(beyond), text(number(7)), text(1)], [const { None }; 4]);
        // One that leads to itself.
        let round = made.of_kind(NODE_20.thin, &[number(1), 0]);
        let at = made.used - 1;
        made.words[at] = round;
        assert_eq!(super::tests::heap(NODE_20).text(round, 100), None);
    }

    proptest! {
        // Each makes some hundreds of requests of the reader.
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever lies there, and whatever a program says of itself, it is read within bounds.
        #[test]
        fn foreign_memory_is_read_within_bounds(
            words in prop::collection::vec(prop_oneof![0..64u64, (0..32u64).prop_map(number), any::<u64>()], 64),
            pointers in prop::collection::vec((0..64usize, 0..60usize), 40),
            numbers in prop::collection::vec(prop_oneof![0..40u64, 0..=0xffffu64], Numbers::NAMES.len()),
        ) {
            let mut made = Made::new();
            let begin = made.object(&words);
            for (at, to) in pointers {
                made.words[at] = begin + 8 * to as u64;
            }
            let heap = heap(Numbers::of(&numbers).expect("one for each name"));
            for at in 0..60 {
                let object = begin + 8 * at;
                let _ = heap.describe(object, 1, &mut Recent::new(1));
                let _ = heap.text(object, 1000);
                let _ = heap.of_scope(object);
                let _ = heap.line(object, 5, 1, &mut Recent::new(1));
            }
        }
    }

    #[test]
    fn functions_stand_for_code_made_at_run_time_and_behind_other_code() {
        let stack = [(10, false), (20, true), (30, false), (40, true)];
        let name = |name: &str| -> Arc<str> { name.into() };
        let named = |pairs: &[(u64, &str)]| pairs.iter().map(|(at, n)| (*at, name(n))).collect::<Vec<_>>();
        let told = |whole: bool, pairs: &[(u64, &str)]| -> Vec<String> {
            let all = joined(&stack, whole, &named(pairs));
            all.into_iter()
                .map(|f| match f {
                    Spliced::Kept((at, _)) => at.to_string(),
                    Spliced::Named(name) => name.to_string(),
                })
                .collect()
        };
        assert_eq!(told(true, &[(10, "a"), (20, "b"), (40, "c")]), ["10", "a", "b", "30", "c"]);
        assert_eq!(told(true, &[(15, "a"), (20, "b"), (50, "c")]), ["10", "b", "30", "40"]);
        assert_eq!(told(false, &[(20, "b"), (50, "c")]), ["10", "b", "30", "40", "c"]);
        assert_eq!(told(true, &[]), ["10", "20", "30", "40"]);
    }

    #[test]
    fn other_programs_are_none() {
        for label in ["node", "libnode.so.108", "nodejs"] {
            assert!(is_v8(label), "{label}");
        }
        for label in ["nodemon", "libnodejs.so", "node_exporter", "python3"] {
            assert!(!is_v8(label), "{label}");
        }
        let mut maps = ProcMaps::new(Path::new("/"));
        maps.note_process(std::process::id());
        let mut v8s = V8s::default();
        assert_eq!(v8s.examine(&maps, std::process::id()), None);
        assert!(v8s.splice(&maps, std::process::id(), (&[(1, true)], true), &[1, 9]).is_none());
        assert_eq!(numbers(&Source::open(&std::env::current_exe().unwrap()).unwrap()), None);
    }
}
