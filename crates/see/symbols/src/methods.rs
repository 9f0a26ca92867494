//! Functions of an interpreter without symbols, by its tables of methods: `{"array_merge", zif_array_merge, …}` of PHP,
//! `{"sort", list_sort, …}` of Python. The name is a pointer to text, and the function's address follows.

use std::ops::Range;

use ncpu_files::reader::Source;

use crate::elf::Sections;

/// The most bytes of pointers, of texts and of the index of functions that are read.
const MAX_POINTERS: u64 = 4 << 20;
const MAX_TEXTS: u64 = 4 << 20;
const MAX_INDEX: u64 = 2 << 20;
/// The most characters of a name.
const MAX_NAME: usize = 60;
/// Bytes of an `Elf64_Rela`.
const RELOCATION: usize = 24;
/// Relocations of x86-64 and AArch64 that are an address of the file itself.
const RELATIVE: [u32; 2] = [8, 1027];

/// A function: its address, its size, and the place of its name in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub start: u64,
    pub size: u32,
    pub name: u64,
}

/// Whether a file is an interpreter whose tables have the name before the function: other programs have tables in which a text belongs
/// to the function before it.
pub(crate) fn has_tables(label: &str) -> bool {
    let name = label.strip_prefix("lib").unwrap_or(label);
    let version = |of: &str| {
        let rest = name.strip_prefix(of);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    version("php") || version("python") || label.contains(".cpython-3")
}

/// The functions of such a file, by address.
pub(crate) fn methods(file: &Source) -> Vec<Method> {
    find(file).unwrap_or_default()
}

fn find(file: &Source) -> Option<Vec<Method>> {
    let sections = Sections::read(file)?;
    let whole = |range: &Range<u64>, most: u64| {
        let length = range.end.checked_sub(range.start).filter(|length| *length <= most)?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        file.read_exact_at(&mut bytes, range.start).ok()?;
        Some(bytes)
    };
    let (code, code_at) = sections.named(".text")?;
    let code = code_at..code_at.checked_add(code.end - code.start)?;
    let (texts, texts_at) = sections.named(".rodata")?;
    let texts_file = texts.start;
    let texts = whole(&texts, MAX_TEXTS)?;
    let name = |address: u64| {
        let at = usize::try_from(address.checked_sub(texts_at)?).ok()?;
        is_name(texts.get(at..)?).then_some(texts_file + at as u64)
    };
    // A program at a fixed address has them as they are, others as relocations.
    let relocations = sections.named(".rela.dyn").and_then(|(range, _)| whole(&range, MAX_POINTERS));
    let mut pointers = relocated(&relocations.unwrap_or_default());
    if pointers.is_empty() {
        let (data, at) = sections.named(".data")?;
        let words = whole(&data, MAX_POINTERS)?;
        let words = words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        pointers = words.enumerate().map(|(i, word)| (at.wrapping_add(8 * i as u64), word)).collect();
    }
    pointers.sort_unstable();
    let (index, index_at) = sections.named(".eh_frame_hdr")?;
    let starts = starts(&whole(&index, MAX_INDEX)?, index_at)?;
    let mut found: Vec<Method> = Vec::new();
    for pair in pointers.windows(2) {
        let [(at, text), (next, start)] = [pair[0], pair[1]];
        if next != at.wrapping_add(8) || !code.contains(&start) {
            continue;
        }
        let row = starts.partition_point(|s| *s < start);
        let size = starts.get(row..row + 2).filter(|rows| rows[0] == start).map(|rows| rows[1] - start);
        let size = size.and_then(|size| u32::try_from(size).ok());
        if let (Some(size), Some(name)) = (size, name(text)) {
            found.push(Method { start, size, name });
        }
    }
    found.sort_by_key(|method| (method.start, method.name));
    found.dedup_by_key(|method| method.start);
    Some(found)
}

/// Whether a text begins with an identifier and its end.
fn is_name(text: &[u8]) -> bool {
    let end = text.iter().take(MAX_NAME + 1).position(|&b| b == 0);
    let name = end.map_or(&[][..], |end| &text[..end]);
    name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && name.first().is_some_and(|b| !b.is_ascii_digit())
}

/// Places of pointers and their values, of relocations.
fn relocated(bytes: &[u8]) -> Vec<(u64, u64)> {
    let word = |entry: &[u8], at: usize| entry[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let relative = bytes.chunks_exact(RELOCATION).filter(|entry| RELATIVE.contains(&(word(entry, 8) as u32)));
    relative.map(|entry| (word(entry, 0), word(entry, 16))).collect()
}

/// Addresses of functions, ascending, from the index of the unwind tables in the form that linkers give it.
fn starts(index: &[u8], at: u64) -> Option<Vec<u64>> {
    // Version 1; the pointer to the tables in four bytes, their number in four bytes, and rows relative to the index.
    if index.get(..4)? != [1, 0x1b, 3, 0x3b] {
        return None;
    }
    let number = |from: usize| Some(i32::from_le_bytes(*index.get(from..)?.first_chunk()?));
    let rows = usize::try_from(number(8)?).ok()?.min(index.len() / 8);
    let starts: Option<Vec<u64>> =
        (0..rows).map(|row| at.checked_add_signed(number(12 + 8 * row)?.into())).collect();
    starts.filter(|starts| starts.is_sorted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interpreters_with_such_tables_are_searched() {
        for label in [
            "php8.2",
            "php",
            "libphp8.2.so",
            "python3.11",
            "libpython3.11.so.1.0",
            "_json.cpython-311-x86_64-linux-gnu.so",
        ] {
            assert!(has_tables(label), "{label}");
        }
        for label in ["phpmd", "pythonic", "node", "libruby-3.1.so.3.1.2", "bash", "libc.so.6"] {
            assert!(!has_tables(label), "{label}");
        }
    }

    #[test]
    fn names_are_identifiers() {
        assert!(is_name(b"array_merge\0x") && is_name(b"_a1\0"));
        for text in [&b"\0"[..], b"1a\0", b"a b\0", b"no end", b"", &[b'a'; 70]] {
            assert!(!is_name(text), "{text:?}");
        }
    }

    #[test]
    fn indexes_are_read_within_their_bounds() {
        let mut index = vec![1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 2, 0, 0, 0];
        for (start, entry) in [(0x100_i32, 0_i32), (0x180, 0)] {
            index.extend(start.to_le_bytes());
            index.extend(entry.to_le_bytes());
        }
        assert_eq!(starts(&index, 0x1000), Some(vec![0x1100, 0x1180]));
        assert_eq!(starts(&index[..20], 0x1000).map(|s| s.len()), None);
        index[8] = 200;
        assert_eq!(starts(&index, 0x1000), None, "more rows than there are bytes");
        assert_eq!(starts(&[1, 2, 3, 4], 0), None);
    }

    #[test]
    fn damaged_files_have_fewer_functions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let php = std::fs::read("/usr/bin/php8.2");
        let mut bytes = php.or_else(|_| std::fs::read("/bin/sh")).unwrap();
        for cut in [bytes.len(), bytes.len() / 2, 4096, 64, 0] {
            bytes.truncate(cut);
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(file) = Source::open(&path) {
                assert!(cut >= 4096 || methods(&file).is_empty());
            }
        }
        // Headers with numbers that fit nothing.
        let mut bytes = std::fs::read("/bin/sh").unwrap();
        let table = u64::from_le_bytes(*bytes[40..].first_chunk().unwrap()) as usize;
        for at in (table..bytes.len()).step_by(3) {
            bytes[at] = 0xff;
            std::fs::write(&path, &bytes).unwrap();
            let _ = Source::open(&path).map(|file| methods(&file));
        }
    }

    #[test]
    fn functions_of_an_interpreter_without_symbols_have_their_methods_names() {
        let php = std::path::Path::new("/usr/bin/php8.2");
        let Ok(file) = Source::open(php) else { return eprintln!("skipped: no php") };
        let found = methods(&file);
        let name = |method: &Method| {
            let mut bytes = [0; 12];
            file.read_exact_at(&mut bytes, method.name).map(|()| bytes).unwrap_or_default()
        };
        let merges: Vec<&Method> = found.iter().filter(|m| name(m) == *b"array_merge\0").collect();
        assert!(matches!(&merges[..], [one] if one.size > 16), "{merges:?} of {}", found.len());
    }
}
