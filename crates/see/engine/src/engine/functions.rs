//! Functions of the program whose calls are requests (`--request`): where they begin and where they return.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use ncpu_files::reader::Source;
use ncpu_instructions::{Machine, entry, exits};
use ncpu_symbols::{Function, Sections, Segments, function_at, functions_named};

use super::usdt::Probe;

/// Functions that one observation may follow.
pub const MOST_FUNCTIONS: usize = 16;
/// Functions that a function goes on in by a jump, and that these go on in, which are looked into.
const FOLLOWED: usize = 16;
/// Code of a function, in bytes.
const LONGEST: u64 = 1 << 20;

/// A function whose calls are requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalledFunction {
    /// Its library [default: the program itself].
    library: Option<String>,
    name: String,
}

impl FromStr for CalledFunction {
    type Err = String;

    /// `FUNC` or `LIBRARY:FUNC`. Names may hold `::`.
    fn from_str(text: &str) -> Result<CalledFunction, String> {
        let single =
            |(at, _): &(usize, char)| !text[..*at].ends_with(':') && !text[at + 1..].starts_with(':');
        let colon = text.char_indices().filter(|(_, c)| *c == ':').find(single).map(|(at, _)| at);
        let (library, name) = match colon {
            Some(at) => (Some(text[..at].to_owned()), &text[at + 1..]),
            None => (None, text),
        };
        if name.is_empty() || library.as_deref() == Some("") {
            return Err(format!("invalid function {text:?}; expected FUNC or LIBRARY:FUNC"));
        }
        Ok(CalledFunction { library, name: name.to_owned() })
    }
}

impl std::fmt::Display for CalledFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.library {
            Some(library) => write!(f, "{library}:{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// Where a function has probes in a file.
#[derive(Debug, PartialEq)]
pub(super) struct Probes {
    /// Where its calls end.
    pub returns: Vec<Probe>,
    pub begins: Vec<Probe>,
    /// Some calls end by a jump into another file: what these do there is not counted.
    pub leaves: bool,
}

impl CalledFunction {
    /// The file of its library, where that is given.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.library.as_deref().filter(|library| library.contains('/')).map(Path::new)
    }

    /// Whether a file is the one that has it: `libpq` is also `libpq.so.5` and `libpq-5.so`.
    fn is_in(&self, path: &Path, program: bool) -> bool {
        let Some(library) = &self.library else { return program };
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = file.strip_prefix(library.as_str());
        path == Path::new(library)
            || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', ' ']))
    }

    /// Where its calls return, and where they begin; nothing in a file that does not have it.
    ///
    /// # Errors
    /// It has no end that can be seen.
    pub(super) fn probes(
        &self,
        number: usize,
        file: &Source,
        path: &Path,
        program: bool,
    ) -> Result<Option<Probes>, String> {
        if !self.is_in(path, program) {
            return Ok(None);
        }
        let Some(sections) = Sections::read(file) else { return Ok(None) };
        if sections.is_go() {
            return Err(format!(
                "calls of {self} are not followed: goroutines move from thread to thread within a call of Go"
            ));
        }
        let found = functions_named(file, &self.name);
        if found.iter().all(|f| f.cold) {
            return Ok(None);
        }
        let segments = Segments::read(file).unwrap_or_default();
        let not_understood = |what: &str| format!("{self}: the code of {what} is not understood");
        let Some(machine) = Machine::of_elf(segments.machine()) else {
            return Err(not_understood("another processor"));
        };
        let outside = || format!("{self} lies outside of the file");
        let place = |address: u64| segments.offset(address).ok_or_else(outside);
        let probe = |offset, event| Probe {
            name: "the function",
            offset,
            semaphore: 0,
            cookie: (number as u64) << 8 | event,
        };
        let mut returns = Vec::new();
        let mut begins = Vec::new();
        let mut leaves = false;
        // Parts that run seldom are reached by a jump, too.
        let mut left: Vec<Function> = found;
        let mut known: Vec<u64> = left.iter().map(|f| f.address).collect();
        let own: Vec<u64> = left.iter().filter(|f| !f.cold).map(|f| f.address).collect();
        let most = known.len() + FOLLOWED;
        while let Some(function) = left.pop() {
            if function.size == 0 || function.size > LONGEST {
                return Err(format!("{self} has no length, or too large a one: {} bytes", function.size));
            }
            let mut code = vec![0; function.size as usize];
            file.read_exact_at(&mut code, place(function.address)?).map_err(|_| outside())?;
            let Some(exits) = exits(machine, &code, function.address) else {
                return Err(not_understood(&function.symbol));
            };
            if own.contains(&function.address) {
                begins.push(probe(place(function.address + u64::from(entry(machine, &code)))?, 0));
            }
            for at in exits.returns {
                returns.push(probe(place(function.address + u64::from(at))?, 1));
            }
            let next: HashMap<u64, Function> =
                exits.jumps.iter().filter_map(|&to| Some((to, function_at(file, to)?))).collect();
            for (at, to) in exits.ends {
                // Functions of other files are reached by code that no symbol covers.
                if to.is_none_or(|to| !next.contains_key(&to)) {
                    returns.push(probe(place(function.address + u64::from(at))?, 1));
                    leaves = true;
                }
            }
            for next in exits.jumps.iter().filter_map(|to| next.get(to)) {
                if known.contains(&next.address) {
                    continue;
                }
                if known.len() < most && next.size > 0 && next.size <= LONGEST {
                    known.push(next.address);
                    left.push(next.clone());
                }
            }
        }
        if returns.is_empty() {
            return Err(format!(
                "{self} has no instruction that returns: name the function that it goes on in"
            ));
        }
        Ok(Some(Probes { returns, begins, leaves }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(text: &str) -> CalledFunction {
        text.parse().expect("a function")
    }

    #[test]
    fn a_library_is_named_before_a_single_colon() {
        let of = |text: &str| (function(text).library, function(text).name);
        assert_eq!(of("serve"), (None, "serve".into()));
        assert_eq!(of("server::handle"), (None, "server::handle".into()));
        assert_eq!(of("libpq:PQexec"), (Some("libpq".into()), "PQexec".into()));
        assert_eq!(of("libapp.so:app::handle(int)"), (Some("libapp.so".into()), "app::handle(int)".into()));
        for wrong in ["", ":f", "libpq:"] {
            assert!(wrong.parse::<CalledFunction>().is_err(), "{wrong}");
        }
        assert_eq!(function("libpq:PQexec").to_string(), "libpq:PQexec");
    }

    #[test]
    fn files_are_those_of_the_library_and_else_the_program() {
        let pq = function("libpq:PQexec");
        for (path, is) in [
            ("/usr/lib/libpq.so.5", true),
            ("/usr/lib/libpq-5.so", true),
            ("/usr/lib/libpqxx.so", false),
            ("/usr/bin/libpq", true),
        ] {
            assert_eq!(pq.is_in(Path::new(path), false), is, "{path}");
        }
        assert!(function("/opt/a/liba.so:f").is_in(Path::new("/opt/a/liba.so"), false));
        assert!(!function("/opt/a/liba.so:f").is_in(Path::new("/opt/b/liba.so"), false));
        assert!(function("f").is_in(Path::new("/bin/any"), true));
        assert!(!function("f").is_in(Path::new("/bin/any"), false));
    }

    #[test]
    fn calls_begin_at_the_function_and_end_at_its_returns() {
        let me = std::env::current_exe().expect("own path");
        let file = Source::open(&me).expect("own file");
        let bytes = std::fs::read(&me).expect("own file");
        let name = "ncpu_engine::engine::functions::CalledFunction::is_in";
        let name = functions_named(&file, name).pop().map_or("main", |_| name);
        let Probes { returns, begins, .. } =
            function(name).probes(3, &file, &me, true).expect("followed").expect("it is there");
        assert_eq!(begins.len(), 1);
        assert!(begins.iter().all(|p| p.cookie == 3 << 8));
        for probe in &returns {
            assert_eq!(probe.cookie, 3 << 8 | 1);
            let at = &bytes[probe.offset as usize..];
            match Machine::OWN {
                Some(Machine::Aarch64) => {
                    assert!(at[3] == 0xd6 || at[3] >> 2 == 0b000101, "a return or a jump");
                }
                _ => assert!(
                    matches!(at[0], 0xc3 | 0xc2 | 0xf3 | 0xf2 | 0xe9 | 0xeb | 0xff),
                    "a return or a jump"
                ),
            }
        }
        assert_eq!(function("no_such_function").probes(0, &file, &me, true), Ok(None));
        assert_eq!(function("main").probes(0, &file, &me, false), Ok(None), "of a library");
    }
}
