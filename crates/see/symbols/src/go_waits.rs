//! The reasons for which goroutines are parked, in the words of their program's own runtime.

use std::ops::Range;

use memchr::memmem;
use ncpu_files::reader::Source;

use crate::elf::Sections;
use crate::go::each_chunk;

/// `runtime.waitReasonStrings` begins with an empty string and this one, in all versions since Go 1.11.
const FIRST: &[u8] = b"GC assist marking";
/// The most reasons of a program, and the most bytes of one; Go 1.26 has 47, of 36 bytes and less.
const MAX_REASONS: usize = 128;
const MAX_WORDS: u64 = 64;
/// Bytes of a string's address and length.
const STRING: usize = 16;

/// The reasons for which goroutines of a program are parked, by their numbers (`runtime.waitReason`). Found without symbols, by what the
/// table of them refers to. Nothing where the file is not of Go, is position-independent or damaged.
pub fn go_wait_reasons(file: &Source) -> Vec<String> {
    read(file).unwrap_or_default()
}

fn read(file: &Source) -> Option<Vec<String>> {
    let layout = Sections::read(file)?;
    let (strings, address) = layout.named(".rodata")?;
    let first = address.checked_add(first_string(file, &strings)?)?;
    for section in [".data", ".noptrdata", ".go.module"] {
        let Some((range, _)) = layout.named(section) else { continue };
        let Some(at) = table(file, &range, first) else { continue };
        let mut bytes = vec![0; (STRING * MAX_REASONS).min((range.end - at) as usize)];
        file.read_exact_at(&mut bytes, at).ok()?;
        let known =
            bytes.as_chunks::<STRING>().0.iter().map_while(|entry| text(file, &strings, address, entry));
        // The first is the empty one.
        return Some([String::new()].into_iter().chain(known).collect());
    }
    None
}

/// Where the first reason's words are, from the start of the read-only data.
fn first_string(file: &Source, strings: &Range<u64>) -> Option<u64> {
    let (mut found, mut before) = (None, Vec::new());
    each_chunk(file, strings, |at, bytes| {
        if found.is_some() {
            return;
        }
        // Also across the bound of two chunks.
        let kept = before.len();
        before.extend_from_slice(&bytes[..bytes.len().min(FIRST.len() - 1)]);
        found = memmem::find(&before, FIRST).map(|i| at - kept as u64 + i as u64);
        found = found.or_else(|| memmem::find(bytes, FIRST).map(|i| at + i as u64));
        before = bytes[bytes.len().saturating_sub(FIRST.len() - 1)..].to_vec();
    })?;
    found
}

/// The place in the file of the string's address and length, which an empty string stands before.
fn table(file: &Source, range: &Range<u64>, first: u64) -> Option<u64> {
    let entry = [[0; 2], [first, FIRST.len() as u64]];
    let (mut found, mut last) = (None, [0; 3]);
    each_chunk(file, range, |at, bytes| {
        for (i, word) in bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).enumerate() {
            if found.is_none() && [last[0], last[1], last[2], word] == *entry.as_flattened() {
                found = (range.start + at + 8 * i as u64).checked_sub(8);
            }
            last = [last[1], last[2], word];
        }
    })?;
    found
}

/// A string of the read-only data.
fn text(file: &Source, strings: &Range<u64>, address: u64, entry: &[u8; STRING]) -> Option<String> {
    let (at, length) = entry.split_first_chunk().map(|(at, length)| (u64::from_le_bytes(*at), length))?;
    let length = u64::from_le_bytes(length.try_into().ok()?);
    let begin = strings.start.checked_add(at.checked_sub(address)?)?;
    if length == 0 || length > MAX_WORDS || begin.checked_add(length).is_none_or(|end| end > strings.end) {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, begin).ok()?;
    // Other strings follow the table, or none.
    let plain = bytes.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
    plain.then(|| String::from_utf8(bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::process::Command;

    use super::*;

    #[test]
    fn reasons_are_those_of_the_programs_source() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("main.go"), "package main\n\nfunc main() { select {} }\n")
            .expect("room");
        let Ok(root) = Command::new("go").args(["env", "GOROOT"]).output() else {
            println!("skipped: no go");
            return;
        };
        let root = String::from_utf8(root.stdout).expect("a path");
        let source = format!("{}/src/runtime/runtime2.go", root.trim_end());
        let source = std::fs::read_to_string(source).expect("Go's source");
        // waitReasonSelect: "select",
        let table = source.split_once("var waitReasonStrings = [...]string{").expect("the table").1;
        let texts: HashMap<&str, &str> = table
            .split_once("\n}")
            .expect("its end")
            .0
            .lines()
            .filter_map(|line| Some((line.trim().split_once(':')?.0, line.split('"').nth(1)?)))
            .collect();
        // In the order of the constants, one a line.
        let constants = source.split_once("waitReasonZero  ").expect("the constants").1;
        let constants = constants.lines().skip(1).map_while(|line| line.split_whitespace().next());
        let named = ["waitReasonZero"].into_iter().chain(constants.take_while(|word| *word != ")"));
        let named: Vec<String> = named.map(|constant| texts[constant].to_string()).collect();
        assert!(named.len() > 20, "{named:?}");
        for flags in ["-ldflags=", "-ldflags=-s -w"] {
            let program = dir.path().join("program");
            let done = Command::new("go")
                .args(["build", flags, "-o"])
                .args([program.as_os_str(), "main.go".as_ref()])
                .envs([("GOTOOLCHAIN", "local"), ("GO111MODULE", "off")])
                .current_dir(dir.path())
                .output()
                .expect("go");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            let found = go_wait_reasons(&Source::open(&program).expect("it was built"));
            assert_eq!(found.get(..named.len()), Some(&named[..]), "{flags}");
        }
    }

    #[test]
    fn other_files_have_none() {
        let own = std::env::current_exe().expect("own path");
        assert_eq!(go_wait_reasons(&Source::open(&own).expect("own file")), Vec::<String>::new());
    }
}
