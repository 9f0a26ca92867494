//! Files that are cut short or changed: an answer or an error, soon, and never a panic.

mod common;

use std::sync::OnceLock;

use common::{FALSESHARE, compile};
use ncpu_lines::{Options, bytes, tables};
use proptest::prelude::*;

/// Real programs: linked, not linked, with compressed sections, and one of the symbols only.
fn programs() -> &'static Vec<Vec<u8>> {
    static PROGRAMS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let source = std::fs::read_to_string(FALSESHARE).unwrap();
        let flags =
            [&["-g", "-pthread"][..], &["-g", "-c"], &["-g", "-gz", "-pthread"], &["-gdwarf-3", "-pthread"]];
        let compiled = flags.iter().filter_map(|flags| compile(dir.path(), "gcc", "f.c", &source, flags));
        let mut programs: Vec<_> = compiled.map(|path| std::fs::read(path).unwrap()).collect();
        programs.push(common::elf_of(0x1000, 0x100, &[("a_lock", 0x1000, 8), ("b_lock", 0x1008, 8)]));
        programs
    })
}

fn look(data: &[u8]) {
    if let Ok(report) = bytes(data, &Options::default()) {
        tables(&[report], 64, true, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cut_short(which in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>()) {
        let program = which.get(programs());
        look(&program[..cut.index(program.len())]);
    }

    #[test]
    fn changed(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut program = which.get(programs()).clone();
        for (at, byte) in changes {
            let at = at.index(program.len());
            program[at] = byte;
        }
        look(&program);
    }

    /// Most of a file is text; the headers and debug sections describe it.
    #[test]
    fn changed_where_it_hurts(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((0usize..4096, any::<bool>(), prop::sample::select(vec![0u8, 1, 0x7f, 0x80, 0xff])), 1..12),
    ) {
        let mut program = which.get(programs()).clone();
        for (at, from_end, byte) in changes {
            let at = at % program.len();
            let at = if from_end { program.len() - 1 - at } else { at };
            program[at] = byte;
        }
        look(&program);
    }

    #[test]
    fn noise(tail in prop::collection::vec(any::<u8>(), 0..512)) {
        look(&[b"\x7fELF\x02\x01\x01", &tail[..]].concat());
        look(&tail);
    }
}

#[test]
fn a_section_that_claims_terabytes_is_not_unpacked() {
    for program in programs() {
        // In a header of a compressed section: type 1 (zlib), then the size.
        let header = [1u8, 0, 0, 0, 0, 0, 0, 0];
        let mut program = program.clone();
        let places: Vec<_> =
            (64..program.len() - 24).filter(|&at| program[at..].starts_with(&header)).collect();
        for at in places {
            program[at + 8..at + 16].copy_from_slice(&(1u64 << 44).to_le_bytes());
        }
        look(&program);
    }
}
