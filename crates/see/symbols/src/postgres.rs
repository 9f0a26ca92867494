//! The wait events of PostgreSQL backends, as in `pg_stat_activity`: a number at an address that the server
//! exports (`my_wait_event_info`, PostgreSQL 14 and later), and the names of these numbers in this server.
//!
//! Names come from the server's own arrays, so no version needs a table here. If an array is not found, or a
//! lock belongs to an extension, the number is reported.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use ncpu_files::reader::Source;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, elf};

use crate::bounded::Bounded;
use crate::elf::{Segments, named_symbols};
use crate::maps::ProcMaps;

/// The most bytes of a server's sections: they have about 2 MiB of strings and 128 KiB of arrays.
const MAX_STRINGS: u64 = 6 << 20;
const MAX_ARRAYS: u64 = 1 << 20;
/// The most names of an array; there are about 100.
const MAX_NAMES: usize = 256;
/// The most servers that are known at a time; others have no names. A machine has one, as a rule, but any program may be called so.
const MAX_SERVERS: usize = 64;
/// Classes of wait events (`PG_WAIT_LWLOCK`, `PG_WAIT_LOCK`).
const LWLOCK: u32 = 1;
const LOCK: u32 = 3;
/// The first individual lock, and the first of a group of locks, in all versions since 13.
const FIRST: (&str, usize) = ("ShmemIndex", 1);
const FIRST_OF_GROUPS: &str = "XactBuffer";

/// Names of a server's wait events, by number; empty ones are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitEvents {
    lwlocks: Vec<Box<str>>,
    locks: Vec<Box<str>>,
}

impl WaitEvents {
    /// Class and name of a wait event for a lock, as in `pg_stat_activity`; `None` for all others.
    pub fn lock(&self, event: u32) -> Option<(&'static str, String)> {
        let (class, number) = (event >> 24, (event & 0xffff) as usize);
        let (class, names) = match class {
            LWLOCK => ("LWLock", &self.lwlocks),
            LOCK => ("Lock", &self.locks),
            _ => return None,
        };
        let name = names.get(number).filter(|n| !n.is_empty());
        Some((class, name.map_or_else(|| format!("number {number}"), ToString::to_string)))
    }
}

/// The servers seen so far.
#[derive(Debug, Default)]
pub struct Postgres {
    /// By number of the file; `None` for files without the symbols.
    files: HashMap<u32, Option<Server>>,
}

/// A server's program.
#[derive(Debug)]
struct Server {
    segments: Segments,
    /// Exported variables: address and size, at link-time addresses.
    variables: HashMap<&'static str, (u64, u64)>,
    /// Read at first use.
    events: Option<Arc<WaitEvents>>,
}

/// The variable that points to the number, and the arrays of names.
const VARIABLES: [&str; 3] = ["my_wait_event_info", "IndividualLWLockNames", "LockTagTypeNames"];

impl Postgres {
    /// The address in a living backend's memory of the pointer to its wait event; `None` if the server does
    /// not export it.
    pub fn wait_event_at(&mut self, maps: &mut ProcMaps, tgid: u32) -> Option<u64> {
        let (_, bias, server) = self.server(maps, tgid)?;
        Some(bias.wrapping_add(server.variables.get(VARIABLES[0])?.0))
    }

    /// The names of the numbers; `None` if [`Postgres::wait_event_at`] returns `None`.
    pub fn wait_events(&mut self, maps: &mut ProcMaps, tgid: u32) -> Option<Arc<WaitEvents>> {
        let memory = maps.memory(tgid);
        let (file, bias, server) = self.server(maps, tgid)?;
        if server.events.is_none() {
            // A backend that has just ended is unreadable, the next one is not.
            let (memory, source) = (memory?, maps.to_parse(file)?);
            let events = source.parsed(|source| server.names(source, bias, &memory));
            server.events = Some(Arc::new(events.unwrap_or_default()));
        }
        server.events.clone()
    }

    /// The program of a backend: its file, the distance of its load address from its link-time addresses, and what is known of it.
    fn server(&mut self, maps: &mut ProcMaps, tgid: u32) -> Option<(u32, u64, &mut Server)> {
        maps.note_unknown(tgid);
        let all = maps.mapped(tgid);
        let &(file, start, offset) = all.iter().find(|(file, ..)| &*maps.file(*file).label == "postgres")?;
        let room = self.files.values().flatten().count() < MAX_SERVERS;
        let server = match self.files.entry(file) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if !room => return None,
            Entry::Vacant(new) => {
                let source = maps.to_parse(file)?;
                new.insert(source.parsed(Server::read))
            }
        };
        let server = server.as_mut()?;
        let bias = server.segments.bias(start, offset)?;
        Some((file, bias, server))
    }

    /// Drops the data of files, whose numbers are reassigned ([`ProcMaps::forget`]).
    pub fn forget(&mut self) {
        self.files.clear();
    }
}

impl Server {
    fn read(file: &Source) -> Option<Server> {
        let found = named_symbols(file, true, &VARIABLES);
        let variables: HashMap<_, _> =
            VARIABLES.iter().zip(found).filter_map(|(name, at)| Some((*name, at?))).collect();
        let segments = Segments::read(file)?;
        variables.contains_key(VARIABLES[0]).then_some(Server { segments, variables, events: None })
    }

    /// Names from the memory of a process that was loaded at a distance of `bias` from the file's addresses.
    fn names(&self, file: &Source, bias: u64, memory: &Source) -> Option<WaitEvents> {
        let bounded = Bounded::new(file);
        let header = elf::FileHeader64::<Endianness>::parse(&bounded).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &bounded).ok()?;
        let section = |name: &str, most: u64| {
            let (_, section) = sections.section_by_name(endian, name.as_bytes())?;
            let data =
                (section.sh_size(endian) <= most).then(|| section.data(endian, &bounded).ok())??.to_vec();
            let address = section.sh_addr(endian);
            Some((address..address.checked_add(data.len() as u64)?, data))
        };
        let strings = section(".rodata", MAX_STRINGS)?;
        let (range, mut bytes) = section(".data.rel.ro", MAX_ARRAYS)?;
        memory.read_exact_at(&mut bytes, bias.wrapping_add(range.start)).ok()?;
        let words = bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap_or_default()));
        let names: Vec<Option<&str>> = words.map(|at| name(&strings, at.wrapping_sub(bias))).collect();
        let array = |symbol: &str| {
            let &(address, size) = self.variables.get(symbol)?;
            let first = usize::try_from(address.checked_sub(range.start)? / 8).ok()?;
            let count = usize::try_from(size / 8).ok()?.min(MAX_NAMES);
            names.get(first..first.checked_add(count)?)
        };
        let owned =
            |names: &[Option<&str>]| names.iter().map(|n| n.unwrap_or_default().into()).collect::<Vec<_>>();
        let locks = array(VARIABLES[2]).map(owned).unwrap_or_default();
        let at = |name: &str| names.iter().position(|n| *n == Some(name));
        // `n` names from there on.
        let groups = at(FIRST_OF_GROUPS)
            .map(|first| (first, names[first..].iter().take(MAX_NAMES).take_while(|n| n.is_some()).count()));
        let lwlocks = match (array(VARIABLES[1]), groups, at(FIRST.0)) {
            // Up to version 16 individual locks have an array of their own, and groups come after them.
            (Some(own), Some((first, n)), _) => owned(&[own, &names[first..first + n]].concat()),
            (Some(own), None, _) => owned(own),
            // Since then one array has all of them.
            (None, Some((groups, n)), Some(first)) if first < groups && groups - first < MAX_NAMES => {
                owned(&[&[None; FIRST.1], &names[first..groups + n]].concat())
            }
            _ => Vec::new(),
        };
        Some(WaitEvents { lwlocks, locks })
    }
}

/// The string at an address, if it is valid as a lock's name.
fn name((range, data): &(Range<u64>, Vec<u8>), address: u64) -> Option<&str> {
    let from = usize::try_from(address.checked_sub(range.start)?).ok()?;
    let rest = data.get(from..)?;
    let length = rest.iter().take(64).position(|&b| b == 0).filter(|&n| n > 0)?;
    let text = std::str::from_utf8(&rest[..length]).ok()?;
    text.bytes().all(|b| b.is_ascii_graphic() || b == b' ').then_some(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn events_have_the_names_of_their_array_or_their_number() {
        let names = |all: &[&str]| all.iter().map(|n| Box::from(*n)).collect::<Vec<Box<str>>>();
        let events = WaitEvents { lwlocks: names(&["", "ShmemIndex"]), locks: names(&["relation"]) };
        let lock = |event| events.lock(event).map(|(class, name)| format!("{class}:{name}"));
        assert_eq!(lock(1 << 24 | 1).as_deref(), Some("LWLock:ShmemIndex"));
        assert_eq!(lock(1 << 24).as_deref(), Some("LWLock:number 0"));
        assert_eq!(lock(1 << 24 | 99).as_deref(), Some("LWLock:number 99"));
        assert_eq!(lock(3 << 24).as_deref(), Some("Lock:relation"));
        assert_eq!((lock(6 << 24), lock(0)), (None, None));
    }

    #[test]
    fn other_programs_have_none() {
        let mut maps = ProcMaps::new(Path::new("/"));
        let mut postgres = Postgres::default();
        assert!(postgres.wait_event_at(&mut maps, std::process::id()).is_none());
        assert!(postgres.wait_events(&mut maps, std::process::id()).is_none());
        assert!(Server::read(&Source::open(&std::env::current_exe().unwrap()).unwrap()).is_none());
        assert!(Server::read(&Source::open("/etc/passwd".as_ref()).unwrap()).is_none());
    }

    #[test]
    fn names_are_whole_and_can_be_printed() {
        let strings = (100..112, b"one\0\x1b[1m\0two".to_vec());
        assert_eq!(name(&strings, 100), Some("one"));
        assert_eq!(name(&strings, 102), Some("e"));
        assert_eq!(name(&strings, 103), None, "empty");
        assert_eq!(name(&strings, 104), None, "a control character");
        assert_eq!(name(&strings, 109), None, "cut");
        assert_eq!((name(&strings, 99), name(&strings, 200)), (None, None));
    }
}
