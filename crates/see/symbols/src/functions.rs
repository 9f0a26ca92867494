//! Functions of a file by their source names.

use std::path::Path;

use ncpu_files::reader::Source;
use object::{Endian, elf};

use crate::debug_file::debug_file;
use crate::demangle::demangle;
use crate::elf::{ENTRY, MAX_ENTRIES, for_entries, symbol_sections};

/// Bytes of the names of a file's symbols.
const MAX_STRINGS: u64 = 64 << 20;
/// The most instances of a function that are returned: a generic one has many.
const MAX_FOUND: usize = 64;
/// Suffixes of a function's copies made by compilers, and of its cold part.
const COPIES: [&str; 4] = [".isra.", ".constprop.", ".lto_priv.", ".llvm."];
const COLD: &str = ".cold";

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Its link-time address.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The cold part of another function, stored apart from it. Not a function of its own.
    pub cold: bool,
    /// The symbol.
    pub symbol: String,
}

/// Functions with the source name `name`. One may have several copies, and generic ones have an instance for
/// each type. The name of a C++ function may be given with or without its parameters. Uses the symbols for
/// debuggers, otherwise those for the dynamic linker.
pub fn functions_named(file: &Source, name: &str) -> Vec<Function> {
    let word = last_word(name);
    let mut found = functions(file, MAX_FOUND, |symbol, _, _| holds(symbol, word) && is_named(symbol, name));
    // A function may have several names.
    found.sort();
    found.dedup_by_key(|f| f.address);
    found
}

/// As [`functions_named`], by the symbols of the file that debuggers have for it where it has none of this name.
pub fn functions_for_debuggers(file: &Source, path: &Path, name: &str) -> Vec<Function> {
    let found = functions_named(file, name);
    if !found.is_empty() {
        return found;
    }
    debug_file(file, path).map_or_else(Vec::new, |(symbols, _)| functions_named(&symbols, name))
}

/// The function of a file that contains a code address.
pub fn function_at(file: &Source, address: u64) -> Option<Function> {
    let within = |_: &[u8], start: u64, size: u64| address.checked_sub(start).is_some_and(|at| at < size);
    functions(file, 1, within).pop()
}

/// The last word of a path, which the mangled name also contains.
fn last_word(name: &str) -> &[u8] {
    let head = name.split(['(', '<']).next().unwrap_or(name);
    let word = head.rsplit([':', ' ']).next().unwrap_or(head);
    if word.is_empty() { name.as_bytes() } else { word.as_bytes() }
}

fn holds(symbol: &[u8], word: &[u8]) -> bool {
    symbol.windows(word.len().max(1)).any(|w| w == word)
}

/// A symbol without the suffixes of copies; and whether it is a cold part.
fn plain(symbol: &str) -> (&str, bool) {
    let mut end = symbol.len();
    for suffix in COPIES {
        end = end.min(symbol.find(suffix).unwrap_or(end));
    }
    let cold = symbol.find(COLD);
    (&symbol[..end.min(cold.unwrap_or(end))], cold.is_some())
}

fn is_named(symbol: &[u8], name: &str) -> bool {
    let Ok(symbol) = std::str::from_utf8(symbol) else { return false };
    let (symbol, _) = plain(symbol);
    if symbol == name {
        return true;
    }
    let Some(shown) = demangle(symbol) else { return false };
    shown == name || shown.strip_prefix(name).is_some_and(|rest| rest.starts_with('('))
}

/// Up to `most` functions accepted by `wanted`, which gets symbol, address and size.
fn functions(file: &Source, most: usize, mut wanted: impl FnMut(&[u8], u64, u64) -> bool) -> Vec<Function> {
    let mut found = Vec::new();
    let Some((endian, sections)) = symbol_sections(file) else { return found };
    for section in &sections {
        let size = section.names.end - section.names.start;
        if size > MAX_STRINGS || (section.entries.end - section.entries.start) / ENTRY as u64 > MAX_ENTRIES {
            continue;
        }
        let mut strings = vec![0; size as usize];
        if file.read_exact_at(&mut strings, section.names.start).is_err() {
            continue;
        }
        // Symbols found before the truncation are valid.
        let _ = for_entries(file, &section.entries, |entry| {
            let number = |at: usize| entry[at..].first_chunk().map_or(0, |b| endian.read_u64(*b));
            let name = entry.first_chunk().map_or(0, |b| endian.read_u32(*b)) as usize;
            let (address, size) = (number(8), number(16));
            if entry[4] & 15 != elf::STT_FUNC.0 || address == 0 {
                return true;
            }
            let symbol = strings.get(name..).and_then(|s| s.split(|b| *b == 0).next()).unwrap_or(&[]);
            if wanted(symbol, address, size) {
                let symbol = String::from_utf8_lossy(symbol).into_owned();
                let cold = plain(&symbol).1;
                found.push(Function { address, size, cold, symbol });
            }
            found.len() < most
        });
        if !found.is_empty() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        for (symbol, name) in [
            ("serve", "serve"),
            ("serve.isra.0", "serve"),
            ("serve.constprop.0.cold", "serve"),
            ("_ZN6server6handleEi", "server::handle"),
            ("_ZN6server6handleEi", "server::handle(int)"),
            ("_ZN6server6handle17h0123456789abcdefE", "server::handle"),
            ("_ZN6server6handle17h0123456789abcdefE.llvm.77", "server::handle"),
        ] {
            assert!(is_named(symbol.as_bytes(), name), "{symbol} {name}");
            assert!(holds(symbol.as_bytes(), last_word(name)), "{symbol} {name}");
        }
        for (symbol, name) in [
            ("serve_all", "serve"),
            ("serve.part.0", "serve"),
            ("_ZN6server6handleEi", "handle"),
            ("_ZN6server6handleEi", "server::handle(long)"),
            ("_ZN6server7handlerEi", "server::handle"),
        ] {
            assert!(!is_named(symbol.as_bytes(), name), "{symbol} {name}");
        }
        assert_eq!((plain("f.cold"), plain("f.isra.0")), (("f", true), ("f", false)));
    }

    #[test]
    fn functions_of_this_test_are_found_by_name_and_place() {
        let me = Source::open(&std::env::current_exe().expect("own path")).expect("own file");
        let name = "ncpu_symbols::functions::functions_named";
        let found = functions_named(&me, name);
        let [function] = &found[..] else { panic!("{found:?}") };
        assert!(function.size > 0 && !function.cold);
        assert_eq!(function_at(&me, function.address + function.size - 1).as_ref(), Some(function));
        assert_eq!(functions_named(&me, "ncpu_symbols::functions::no_such_function"), []);
        let none = Source::open("/etc/passwd".as_ref()).expect("a file");
        assert_eq!((functions_named(&none, "main"), function_at(&none, 1)), (vec![], None));
    }
}
