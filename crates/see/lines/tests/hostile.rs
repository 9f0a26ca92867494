//! Truncated or changed files: a result or an error, soon, and never a panic.

mod common;

use std::sync::OnceLock;

use common::{FALSESHARE, compile};
use ncpu_lines::{Error, Options, bytes, file, tables};
use proptest::prelude::*;

/// Real programs: linked, not linked, with compressed sections, and one with only symbols.
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

/// Peak memory of this process, in megabytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Small files that expand to gigabytes, one after the other: bytes, words of types, names.
#[test]
fn what_unfolds_takes_memory_in_proportion_to_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let section = |name| {
        let lines =
            [&format!(".pushsection .debug_{name},\\\"\\\",@progbits"), ".zero 157286400", ".popsection"];
        format!("__asm__(\"{}\");\n", lines.join("\\n"))
    };
    let zeros = ["info", "str"].map(section).concat();
    let members: String = (0..1000).map(|i| format!("long m{i};")).collect();
    let variables: String = (0..20_000).map(|i| format!("struct s v{i};\n")).collect();
    let typedefs: String = (1..20_000).map(|i| format!("typedef t{} t{i}; t{i} *p{i};\n", i - 1)).collect();
    let sources = [
        format!("{zeros}int main(void) {{ return 0; }}\n"),
        format!("struct s {{ {members} }};\n{variables}int main(void) {{ return 0; }}\n"),
        format!("typedef struct {{ {members} }} t0;\n{typedefs}int main(void) {{ return 0; }}\n"),
    ];
    let began = peak();
    for (name, source) in ["z.c", "v.c", "t.c"].iter().zip(&sources) {
        let flags: &[&str] = if *name == "z.c" { &["-gz", "-c"] } else { &["-g", "-gz", "-c"] };
        let Some(path) = compile(dir.path(), "gcc", name, source, flags) else { return };
        let length = std::fs::metadata(&path).unwrap().len() >> 20;
        assert!(length < 16, "{length}");
        let begin = std::time::Instant::now();
        let report = file(&path, &Options { words: true, ..Options::default() }).unwrap();
        println!("{name}: {length} MB, peak {} MB, {:?}, {:?}", peak(), begin.elapsed(), report.notes);
        let most = 4 * (64 + 16 * length);
        assert!(peak() < began.max(64) + most, "{name} of {length} MB took {} MB", peak());
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{:?}", begin.elapsed());
        let cut = report.notes.iter().any(|note| note.contains("unfold"));
        assert!(cut || *name == "t.c", "{name}: {:?}", report.notes);
    }
}

#[test]
fn names_of_sections_that_overlap_are_not_read_again_and_again() {
    const COUNT: usize = 3000;
    const NAMES: usize = 1 << 20;
    let mut data = common::elf_of(0x1000, 0x100, &[("a_lock", 0x1000, 8), ("b_lock", 0x1008, 8)]);
    data.resize(data.len().next_multiple_of(8), 0);
    let (at, word) = (data.len(), |n: u64| n.to_le_bytes());
    let strings = at + 64 * COUNT;
    for i in 0..COUNT {
        // Its name begins at byte 4 i of one long text; the last section is that text.
        let (kind, offset, size) = if i == COUNT - 1 { (3u32, strings, NAMES) } else { (1, 0, 0) };
        data.extend((4 * i as u32).to_le_bytes());
        data.extend(kind.to_le_bytes());
        for n in [0, 0, offset as u64, size as u64, 0, 1, 0] {
            data.extend(word(n));
        }
    }
    data.extend(vec![b'n'; NAMES - 1]);
    data.push(0);
    data[0x28..0x30].copy_from_slice(&word(at as u64));
    data[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
    data[0x3c..0x3e].copy_from_slice(&(COUNT as u16).to_le_bytes());
    data[0x3e..0x40].copy_from_slice(&(COUNT as u16 - 1).to_le_bytes());
    let report = bytes(&data, &Options::default()).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("unfold to more")), "{:?}", report.notes);
}

#[test]
fn a_time_ends_it() {
    let options = Options { longest: std::time::Duration::ZERO, ..Options::default() };
    let members: String = (0..500).map(|i| format!("long m{i};\n")).collect();
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "gcc", "s.c", &format!("{members}int main(void) {{}}\n"), &["-g"])
    else {
        return;
    };
    let report = file(&path, &options).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("more than 0 s")), "{:?}", report.notes);
}

#[test]
fn holes_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holes");
    std::fs::write(&path, b"\x7fELF\x02\x01\x01").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4 << 30).unwrap();
    assert!(matches!(file(&path, &Options::default()), Err(Error::TooLong(_))));
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(matches!(file(&pipe, &Options::default()), Err(Error::NotAFile(_))));
}
