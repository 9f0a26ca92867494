//! Functions made at run time, from files that the program writes: perf maps, and jitdumps, which it maps.
//!
//! Both grow while the program runs. So the added part is read when an address has no name, at growing
//! intervals. The files may be hostile: they are read within bounds, whatever they contain.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_files::reader::Source;

use crate::maps::ProcMaps;

/// The most functions kept of one process; further addresses get no names.
const MAX_FUNCTIONS: usize = 1 << 18;
/// Bytes of their names.
const MAX_NAMES: usize = 8 << 20;
/// The most bytes read of a file, and at once; a longer record or line ends the reading.
const MAX_READ: u64 = 256 << 20;
const AT_ONCE: usize = 1 << 20;
/// The most bytes read at once before other addresses are named.
const MAX_AT_ONCE: u64 = 16 << 20;
/// The most files of one process that are remembered.
const MAX_FILES: usize = 64;
/// Bytes of a name.
const MAX_NAME: usize = 1 << 10;
/// The most jitdumps of one process.
const MAX_DUMPS: usize = 8;
/// The time before files are read again for an address without a name: the first, and the longest.
const FIRST_AGAIN: Duration = Duration::from_millis(10);
const LAST_AGAIN: Duration = Duration::from_secs(5);

/// A jitdump's magic number, its header, that of a record, and the record types that are used.
const MAGIC: u32 = 0x4A69_5444;
const HEADER: u64 = 40;
const RECORD: usize = 16;
const LOAD: u32 = 0;
const MOVE: u32 = 1;

/// The functions that a process has generated.
#[derive(Debug, Default)]
pub(crate) struct Generated {
    functions: Functions,
    /// The position in each file, and its identity.
    read: HashMap<(u64, u64), Read>,
    /// The time of the next read, and the waiting time after it.
    next: Option<(Instant, Duration)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Read {
    to: u64,
    total: u64,
}

impl Generated {
    pub fn len(&self) -> usize {
        self.functions.all.len()
    }

    /// Bytes of their names, including replaced ones.
    pub fn bytes(&self) -> usize {
        self.functions.names.len()
    }

    /// The function at an address.
    pub fn lookup(&mut self, maps: &ProcMaps, tgid: u32, address: u64) -> Option<Arc<str>> {
        if let Some(name) = self.functions.lookup(address) {
            return Some(name);
        }
        let now = Instant::now();
        let (next, wait) = self.next.get_or_insert((now, FIRST_AGAIN));
        if now < *next {
            return None;
        }
        *next = now + *wait;
        *wait = (*wait * 2).min(LAST_AGAIN);
        if self.read(maps, tgid) {
            self.next = Some((now + FIRST_AGAIN, FIRST_AGAIN));
        }
        self.functions.lookup(address)
    }

    /// Reads the added parts; returns whether there were any.
    fn read(&mut self, maps: &ProcMaps, tgid: u32) -> bool {
        let mut added = false;
        let user = maps.user(tgid);
        // A planted file could give any name.
        let own = |file: &Source| user.is_none_or(|user| [0, user].contains(&file.user()));
        if let Some(file) = maps.perf_map(tgid).filter(own) {
            added |= file.parsed(|file| self.more(file, false, text));
        }
        for file in maps.jitdumps(tgid).into_iter().take(MAX_DUMPS) {
            added |= file.parsed(|file| self.more(file, true, dump));
        }
        added
    }

    /// Reads the part of a file that was not read yet. A file that was opened long ago may have grown since.
    fn more(
        &mut self,
        file: &Source,
        may_grow: bool,
        parse: fn(&[u8], bool, &mut Functions) -> usize,
    ) -> bool {
        if !file.may_read() {
            return false;
        }
        if self.read.len() >= MAX_FILES {
            self.read.clear();
        }
        let size = if may_grow { u64::MAX } else { file.size() };
        let read = self.read.entry(file.identity()).or_default();
        if size < read.to {
            read.to = 0;
        }
        let most = read.total.saturating_add(MAX_AT_ONCE).min(MAX_READ);
        let mut added = false;
        let mut bytes = vec![0; AT_ONCE];
        while read.to < size && read.total < most {
            let Ok(got) = file.read_at(&mut bytes, read.to) else { break };
            if got == 0 {
                break;
            }
            let used = parse(&bytes[..got], read.to == 0, &mut self.functions) as u64;
            read.to += used;
            // Bytes read without result count too.
            read.total += got as u64;
            added |= used > 0;
            if used == 0 {
                break;
            }
        }
        added
    }
}

/// Functions by start address, without overlaps. A large program has hundreds of thousands, so their names
/// are stored one after another in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    all: BTreeMap<u64, Function>,
    names: String,
    /// Bytes of the names of functions in `all`.
    bytes: usize,
}

/// A function: its size, and the place of its name.
#[derive(Clone, Copy, Debug)]
struct Function {
    size: u64,
    name: u32,
    length: u16,
}

impl Functions {
    fn lookup(&self, address: u64) -> Option<Arc<str>> {
        let (start, function) = self.all.range(..=address).next_back()?;
        (address - start < function.size).then(|| self.name(*function).into())
    }

    fn name(&self, function: Function) -> &str {
        let begin = function.name as usize;
        &self.names[begin..begin + usize::from(function.length)]
    }

    /// Adds a function, replacing those at its addresses.
    fn add(&mut self, start: u64, size: u64, name: &str) {
        let Some(end) = start.checked_add(size).filter(|end| *end > start) else { return };
        let before = self.all.range(..start).next_back().map(|(at, function)| (*at, at + function.size));
        let over: Vec<u64> = self.all.range(start..end).map(|(at, _)| *at).collect();
        for at in over.into_iter().chain(before.filter(|(_, to)| *to > start).map(|(at, _)| at)) {
            self.remove(at);
        }
        if self.all.len() >= MAX_FUNCTIONS || self.bytes >= MAX_NAMES {
            return;
        }
        if self.names.len() >= 2 * MAX_NAMES {
            self.compact();
        }
        let length = crate::demangle::boundary(name, MAX_NAME);
        let at = self.names.len() as u32;
        self.names.push_str(&name[..length]);
        self.bytes += length;
        self.all.insert(start, Function { size, name: at, length: length as u16 });
    }

    fn remove(&mut self, start: u64) -> Option<Function> {
        let removed = self.all.remove(&start);
        self.bytes -= removed.map_or(0, |function| usize::from(function.length));
        removed
    }

    /// Removes the names of functions that were removed.
    fn compact(&mut self) {
        let mut names = String::with_capacity(self.bytes);
        for function in self.all.values_mut() {
            let begin = function.name as usize;
            let name = &self.names[begin..begin + usize::from(function.length)];
            function.name = names.len() as u32;
            names.push_str(name);
        }
        self.names = names;
    }
}

/// Parses the complete lines of a perf map: `start size name`, numbers in hex. Returns the number of bytes
/// parsed.
pub(crate) fn text(bytes: &[u8], _: bool, into: &mut Functions) -> usize {
    let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    for line in bytes[..end].split(|b| *b == b'\n') {
        let line = String::from_utf8_lossy(line);
        let parts =
            line.trim().split_once(' ').and_then(|(start, rest)| Some((start, rest.split_once(' ')?)));
        let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).ok();
        if let Some((start, (size, name))) = parts
            && let Some((start, size)) = hex(start).zip(hex(size))
        {
            into.add(start, size, name);
        }
    }
    end
}

/// Parses the complete records of a jitdump; with `first` its header comes before them. Returns the number of
/// bytes parsed. An invalid file or record ends the parsing.
pub(crate) fn dump(bytes: &[u8], first: bool, into: &mut Functions) -> usize {
    let small = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let large = |bytes: &[u8], at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let mut at = 0;
    if first {
        // The file must have this machine's byte order.
        let header = small(bytes, 8).map_or(0, u64::from);
        if small(bytes, 0) != Some(MAGIC) || header < HEADER || header > bytes.len() as u64 {
            return 0;
        }
        at = header as usize;
    }
    while let Some((kind, size)) = small(bytes, at).zip(small(bytes, at + 4)) {
        let Some(record) = bytes.get(at..at.saturating_add(size as usize)).filter(|r| r.len() >= RECORD)
        else {
            break;
        };
        let body = &record[RECORD..];
        match kind {
            // pid, tid, virtual address; the code's address, its size, its number; the name.
            LOAD => {
                let code = large(body, 16).zip(large(body, 24));
                if let Some(((start, size), name)) = code.zip(body.get(40..)) {
                    let end = name.iter().position(|b| *b == 0).unwrap_or(0).min(4 * MAX_NAME);
                    into.add(start, size, &String::from_utf8_lossy(&name[..end]));
                }
            }
            // pid, tid, virtual address; the code's old address, its new address, its size.
            MOVE => {
                let moved = large(body, 16).zip(large(body, 24)).zip(large(body, 32));
                if let Some(((from, to), size)) = moved
                    && let Some(function) = into.remove(from)
                {
                    let name = into.name(function).to_string();
                    into.add(to, size, &name);
                }
            }
            _ => {}
        }
        at += size as usize;
    }
    at
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parsed(all: &str) -> Functions {
        let mut functions = Functions::default();
        text(all.as_bytes(), true, &mut functions);
        functions
    }

    /// Makes a record of a jitdump.
    fn record(kind: u32, words: &[u64], name: &[u8]) -> Vec<u8> {
        let size = (RECORD + 8 * words.len() + name.len()) as u32;
        let head = [kind.to_ne_bytes(), size.to_ne_bytes()].concat();
        let words: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        [&head[..], &7u64.to_ne_bytes(), &words, name].concat()
    }

    fn header() -> Vec<u8> {
        let mut header = [MAGIC, 1, HEADER as u32].map(u32::to_ne_bytes).concat();
        header.resize(HEADER as usize, 0);
        header
    }

    #[test]
    fn perf_maps_name_generated_code() {
        let map =
            parsed("7f00 20 Lfoo;::bar\nbad\n7f00 10 LazyCompile:*x a.js\n\u{fffd} 1 2\n0x9000 8 y z\n");
        assert_eq!(map.lookup(0x7f05).as_deref(), Some("LazyCompile:*x a.js"));
        assert_eq!(map.lookup(0x7f10), None);
        assert_eq!(map.lookup(0x9007).as_deref(), Some("y z"));
        assert_eq!(map.lookup(0x10), None);
        // An incomplete line is read once it is complete.
        assert_eq!(text(b"1 2 a\n3 4", true, &mut Functions::default()), 6);
        // Later code replaces earlier code at the same place.
        let map = parsed("100 100 old\n180 10 new\nffffffffffffffff 10 none\n300 0 none\n");
        assert_eq!((map.lookup(0x110), map.all.len()), (None, 1));
    }

    #[test]
    fn jitdumps_name_generated_code() {
        let load = record(LOAD, &[1, 0, 0x5000, 0x20, 1], b"add\0\x90\x90");
        let moved = record(MOVE, &[1, 0, 0x5000, 0x6000, 0x20, 1], b"");
        let other = record(2, &[3], b"debug");
        let all = [header(), load, other, moved].concat();
        let mut functions = Functions::default();
        assert_eq!(dump(&all, true, &mut functions), all.len());
        assert_eq!(functions.lookup(0x601f).as_deref(), Some("add"));
        assert_eq!(functions.lookup(0x5000), None);
        // Cut anywhere, parsing continues at the cut.
        for cut in 0..all.len() {
            let mut functions = Functions::default();
            let used = dump(&all[..cut], true, &mut functions);
            assert!(used <= cut);
            let used = used + dump(&all[used..], used == 0, &mut functions);
            assert_eq!(used, all.len());
            assert_eq!(functions.lookup(0x6000).as_deref(), Some("add"), "{cut}");
        }
        assert_eq!(dump(b"ELF and more than forty bytes of what is none", true, &mut functions), 0);
    }

    /// Code that a program generates again and again at the same place.
    #[test]
    fn names_of_functions_that_were_replaced_take_no_memory() {
        let mut functions = Functions::default();
        let long = "x".repeat(MAX_NAME);
        functions.add(0x100, 0x10, "stays");
        for i in 0..(5 * MAX_NAMES / MAX_NAME) as u64 {
            functions.add(0x1000 + i % 7, 1, &format!("{i}{long}"));
            assert!(functions.names.capacity() <= 4 * MAX_NAMES + MAX_NAME, "{}", functions.names.capacity());
        }
        assert_eq!(functions.lookup(0x10f).as_deref(), Some("stays"));
        assert!(functions.lookup(0x1003).is_some_and(|name| name.ends_with('x') && name.len() == MAX_NAME));
        assert_eq!(functions.bytes, 7 * MAX_NAME + 5);
    }

    #[test]
    fn what_grows_is_read_again_and_what_is_planted_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc/5");
        fs::create_dir_all(proc.join("root/tmp")).unwrap();
        fs::write(proc.join("maps"), "7f00-8f00 rwxp 0 00:00 0 \n").unwrap();
        fs::write(proc.join("status"), "Name:\tjava\nNStgid:\t5\t1\n").unwrap();
        let map = proc.join("root/tmp/perf-1.map");
        fs::write(&map, "7f00 20 Interpreter\n").unwrap();
        let maps = ProcMaps::new(dir.path());
        let mut made = Generated::default();
        assert_eq!(made.lookup(&maps, 5, 0x7f04).as_deref(), Some("Interpreter"));
        assert_eq!(made.lookup(&maps, 5, 0x7f44), None);
        fs::write(&map, "7f00 20 Interpreter\n7f40 20 late\n").unwrap();
        std::thread::sleep(2 * FIRST_AGAIN);
        assert_eq!(made.lookup(&maps, 5, 0x7f44).as_deref(), Some("late"));
        // A link or a pipe is not opened, or not waited for.
        fs::remove_file(&map).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &map).unwrap();
        assert_eq!(Generated::default().lookup(&maps, 5, 0x7f04), None);
        fs::remove_file(&map).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&map).status().unwrap().success());
        assert_eq!(Generated::default().lookup(&maps, 5, 0x7f04), None);
    }

    mod any {
        use super::*;
        use proptest::prelude::*;

        fn words() -> impl Strategy<Value = u32> {
            prop_oneof![Just(MAGIC), 0..80u32, any::<u32>()]
        }

        proptest! {
            #[test]
            fn nonsense_is_read_within_its_bounds(
                words in proptest::collection::vec(words(), 0..60), first: bool, tail in any::<Vec<u8>>()
            ) {
                let words: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
                let mut functions = Functions::default();
                let good = if first { header() } else { Vec::new() };
                for bytes in [[&words[..], &tail].concat(), [&good[..], &words, &tail].concat()] {
                    prop_assert!(dump(&bytes, first, &mut functions) <= bytes.len());
                    prop_assert!(text(&bytes, first, &mut functions) <= bytes.len());
                }
                let mut last = 0;
                for (start, function) in &functions.all {
                    prop_assert!(*start >= last && function.size > 0 && functions.name(*function).len() <= MAX_NAME);
                    last = start + function.size;
                }
            }
        }
    }
}
