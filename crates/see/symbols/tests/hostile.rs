//! ELF files with impossible contents: without bounds, each kind took gigabytes or minutes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ncpu_files::reader::Source;
use ncpu_symbols::{
    Copied, ProcMaps, Pythons, Sections, Segments, Unwinding, User, go_functions, go_wait_reasons,
    named_symbols,
};

const CODE: u64 = 0x1000;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOTE: u32 = 7;
const DYNSYM: u32 = 11;
const GB: u64 = 1 << 30;
/// The memory of the process is measured, so tests run one at a time.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[derive(Clone, Copy, Default)]
struct Section {
    name: u32,
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
}

impl Section {
    fn bytes(self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend([self.name, self.kind].iter().flat_map(|w| w.to_le_bytes()));
        out.extend([0, self.address, self.offset, self.size].iter().flat_map(|w| w.to_le_bytes()));
        out.extend([self.link, self.info].iter().flat_map(|w| w.to_le_bytes()));
        out.extend([1u64, 24].iter().flat_map(|w| w.to_le_bytes()));
        out
    }
}

/// A sparse file of this length with a code segment, and these sections at 0x2000. Counts of program and
/// section headers are those of the header.
fn file(
    path: &Path,
    length: u64,
    sections: &[Section],
    (phnum, shnum): (u16, u16),
    parts: &[(u64, Vec<u8>)],
) {
    let file = File::create(path).unwrap();
    file.set_len(length).unwrap();
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    head.extend([CODE, 64, 0x2000].iter().flat_map(|w| w.to_le_bytes()));
    head.extend(0u32.to_le_bytes());
    head.extend([64, 56, phnum, 64, shnum, 1].iter().flat_map(|w: &u16| w.to_le_bytes()));
    let segment = [1 | 5 << 32, 0, 0, 0, 0x10_0000, 0x10_0000, 0x1000u64];
    head.extend(segment.iter().flat_map(|w| w.to_le_bytes()));
    file.write_all_at(&head, 0).unwrap();
    let all: Vec<u8> = sections.iter().flat_map(|s| s.bytes()).collect();
    file.write_all_at(&all, 0x2000).unwrap();
    for (at, bytes) in parts {
        file.write_all_at(bytes, *at).unwrap();
    }
}

/// Reads everything of a program that an observer reads.
fn read_all(path: &Path) {
    let source = Source::open(path).unwrap();
    let _ = (Segments::read(&source), Sections::read(&source));
    let _ = named_symbols(&source, true, &["_PyRuntime", "no_such"]);
    let _ = named_symbols(&source, false, &["runtime.text"]);
    let _ = go_functions(&source, &["runtime.semacquire1"]);
    let _ = go_wait_reasons(&source);
    let mut maps = ProcMaps::new("/nonexistent".as_ref());
    let text = format!("400000-500000 r-xp 00000000 fe:00 11 {}\n", path.display());
    assert!(maps.note_maps(1, text.as_bytes()));
    let mut user = User::new();
    let stack: Vec<u64> = (0x40_1000..0x40_1080).collect();
    assert_eq!(user.symbolize(&mut maps, 1, &stack).len(), stack.len());
    user.variable(&maps, 1, 0x40_1000);
    user.source_line(&maps, 1, 0x40_1000, true);
    let copy = Copied {
        regs: [0x40_1000, 0x7000, 0x7100, 0x40_1000],
        words: vec![0x40_1000; 64],
        ..Copied::default()
    };
    assert!(!Unwinding::default().unwind(&mut maps, 1, &copy).frames.is_empty());
    assert!(Pythons::default().examine(&maps, 1).is_none());
}

/// The peak memory of the process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Reads a file, which must take neither time nor memory.
fn within_bounds(
    name: &str,
    length: u64,
    sections: &[Section],
    counts: (u16, u16),
    parts: &[(u64, Vec<u8>)],
) {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    file(&path, length, sections, counts, parts);
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, began) = (peak(), Instant::now());
    read_all(&path);
    let (took, used) = (began.elapsed(), peak().saturating_sub(before));
    assert!(took < Duration::from_secs(10), "{name}: {took:?}");
    assert!(used < 64 << 20, "{name}: {} MB", used >> 20);
}

#[test]
fn counts_of_headers_are_checked_before_they_are_read() {
    let many = Section { info: (4 * GB / 56) as u32, ..Section::default() };
    within_bounds("program-headers", 5 * GB, &[many], (0xffff, 1), &[]);
    let many = Section { size: 5 * GB / 64, ..Section::default() };
    within_bounds("section-headers", 6 * GB, &[many], (1, 0), &[]);
}

#[test]
fn sections_that_overlap_count_as_often_as_they_are_read() {
    let strings = 0x2000 + 64 * 65_279;
    let head =
        [Section::default(), Section { kind: STRTAB, offset: strings, size: 1 << 19, ..Section::default() }];
    let note = |i: u64| Section { kind: NOTE, offset: CODE + 4 * i, size: 65_532, ..Section::default() };
    let all: Vec<Section> = head.into_iter().chain((2..65_279).map(note)).collect();
    within_bounds("notes", strings + (1 << 20), &all, (1, 65_279), &[]);
    let named = |i: u32| Section { name: 4 * i, kind: 1, offset: CODE, size: 16, ..Section::default() };
    let all: Vec<Section> = head.into_iter().chain((2..65_279).map(named)).collect();
    let text = vec![b'n'; (1 << 19) - 1];
    within_bounds("section-names", strings + (1 << 20), &all, (1, 65_279), &[(strings, text)]);
}

#[test]
fn symbols_without_number_are_not_read() {
    for (kind, name) in
        [(DYNSYM, "libpython3.11.so"), (DYNSYM, "postgres"), (DYNSYM, "libjvm.so"), (SYMTAB, "no-functions")]
    {
        let all = [
            Section::default(),
            Section { kind: STRTAB, offset: GB, size: 8 * GB, ..Section::default() },
            Section { kind, offset: GB, size: 60 * GB / 24 * 24, link: 1, ..Section::default() },
        ];
        within_bounds(name, 64 * GB, &all, (1, 3), &[]);
    }
}

#[test]
fn names_that_overlap_take_no_memory() {
    let word = |i: u64| [(1 + i % 3999) | 0x12 << 32 | 1 << 48, CODE + 2 * i, 2];
    let symbols: Vec<u8> = (0..400_000).flat_map(word).flat_map(u64::to_le_bytes).collect();
    let (at, strings) = (1 << 20, 16 << 20);
    let section =
        |kind| Section { kind, offset: at, size: symbols.len() as u64, link: 1, ..Section::default() };
    let names = Section { kind: STRTAB, offset: strings, size: 8192, ..Section::default() };
    let all = [Section::default(), names, section(SYMTAB), section(DYNSYM)];
    let parts = [(at, symbols.clone()), (strings, [&[0][..], &[b'x'; 8000][..]].concat())];
    for name in ["python3", "libjvm.so", "many-symbols"] {
        within_bounds(name, strings + 8192, &all, (1, 4), &parts);
    }
}

#[test]
fn unwind_tables_that_jump_are_not_followed() {
    // A common entry, and one for the code, with an expression that jumps to itself; and the index.
    let (frame, index) = (0x1_0000u64, 0x3000u64);
    let mut data =
        vec![20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    let begin = data.len() as u64;
    data.extend(20u32.to_le_bytes());
    data.extend((begin as u32 + 4).to_le_bytes());
    data.extend((CODE.wrapping_sub(frame + begin + 8) as i32).to_le_bytes());
    data.extend(0x1000u32.to_le_bytes());
    data.extend([0, 0x0f, 3, 0x2f, 0xfd, 0xff, 0, 0]);
    data.extend([0; 4]);
    let mut head = vec![1, 0x1b, 3, 0x3b];
    head.extend(((frame - index - 4) as u32).to_le_bytes());
    head.extend(1u32.to_le_bytes());
    head.extend((CODE.wrapping_sub(index) as i32).to_le_bytes());
    head.extend(((frame + begin - index) as i32).to_le_bytes());
    let names = b"\0.eh_frame\0.eh_frame_hdr\0".to_vec();
    let part = |name, address, bytes: &[u8]| Section {
        name,
        kind: 1,
        address,
        offset: address,
        size: bytes.len() as u64,
        ..Section::default()
    };
    let strings = Section { kind: STRTAB, offset: 0x2800, size: names.len() as u64, ..Section::default() };
    let whole = [Section::default(), strings, part(1, frame, &data), part(11, index, &head)];
    let parts = [(0x2800, names), (frame, data), (index, head)];
    for sections in [&whole[..], &whole[..3]] {
        within_bounds("unwind-tables", 1 << 20, sections, (1, sections.len() as u16), &parts);
    }
}

/// A file of 12 MiB with these sections, whose contents lie at their addresses in it.
fn named_sections(name: &str, parts: &[(&str, u64, Vec<u8>)]) {
    let mut names = b"\0".to_vec();
    let mut all = vec![Section::default(), Section::default()];
    let mut bytes = Vec::new();
    for (name, address, data) in parts {
        let (start, size) = (names.len() as u32, data.len() as u64);
        names.extend(name.as_bytes());
        names.push(0);
        all.push(Section {
            name: start,
            kind: 1,
            address: *address,
            offset: *address,
            size,
            ..Section::default()
        });
        bytes.push((*address, data.clone()));
    }
    all[1] = Section { kind: STRTAB, offset: 0x2800, size: names.len() as u64, ..Section::default() };
    bytes.push((0x2800, names));
    // Debug information in a file that is mostly holes is not read.
    bytes.push((0x30_0000, vec![1; 1 << 20]));
    within_bounds(name, 12 << 20, &all, (1, all.len() as u16), &bytes);
}

#[test]
fn a_common_part_of_unwind_entries_is_not_followed_for_each() {
    let frame = 0x1_0000u64;
    for (augmentation, instructions) in
        [(&b"zR\0"[..], 650_000), (&[&b"zR"[..], &[b'S'; 650_000], b"\0"].concat(), 0)]
    {
        let mut common =
            [&[0, 0, 0, 0, 1], augmentation, &[1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1]].concat();
        common.extend(std::iter::repeat_n([0x2e, 0], instructions / 2).flatten());
        common.resize(common.len().next_multiple_of(4), 0);
        let mut data = [&(common.len() as u32).to_le_bytes()[..], &common].concat();
        for _ in 0..16_000 {
            let start = data.len() as u64;
            data.extend(16u32.to_le_bytes());
            data.extend((start as u32 + 4).to_le_bytes());
            data.extend((CODE.wrapping_sub(frame + start + 8) as i32).to_le_bytes());
            data.extend(0x1000u32.to_le_bytes());
            data.extend([0; 4]);
        }
        data.extend([0; 4]);
        named_sections("common-part", &[(".eh_frame", frame, data)]);
    }
}

#[test]
fn go_tables_that_lead_in_circles_end() {
    // Each step goes up to the one inlined call, and down again; the call is inlined into itself.
    let (names, steps) = (72u64, 88u64);
    let mut table = vec![0, 2, 0];
    while table.len() < (256 << 10) - 64 {
        table.extend([2, 0, 1, 0]);
    }
    table.extend([2, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
    let index = steps + table.len() as u64;
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let longs = |longs: &[u64]| longs.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let functions = [
        words(&[0, 16, 0x1000, 0]),
        words(&[0, 1, 0, 0, 0, 0, 0, 3, 0, 0]),
        vec![0, 0, 0, 4],
        words(&[0, 0, 1, u32::MAX, u32::MAX, u32::MAX, 0]),
    ];
    let header = longs(&[1, 0, CODE, names, steps, steps, steps, index]);
    let magic = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
    let all = [magic, header, b"\0main.circle\0\0\0\0".to_vec(), table, functions.concat()].concat();
    let (at, calls, data) = (0x1_0000u64, 0x8_0000u64, 0x9_0000u64);
    let mut module = vec![0; 400];
    for (place, value) in [(0, at), (160, CODE), (176, CODE), (320, calls)] {
        module[place..place + 8].copy_from_slice(&longs(&[value]));
    }
    named_sections(
        "circle",
        &[
            (".text", CODE, vec![0xeb, 0xfe]),
            (".gopclntab", at, all),
            (".rodata", calls, words(&[0, 1, 5, 0]).repeat(8)),
            (".noptrdata", data, module),
        ],
    );
}

#[test]
fn debug_information_that_nests_or_repeats_is_read_within_bounds() {
    // Unit, function and inlined function, all with the code's range and with children.
    let entry =
        |code, tag: u8, more: &[u8]| [&[code, tag, 1][..], more, &[0x11, 1, 0x12, 6], &[0, 0]].concat();
    let abbreviations = [
        entry(1, 0x11, &[0x10, 0x17]),
        entry(2, 0x2e, &[0x31, 0x13]),
        entry(3, 0x1d, &[0x31, 0x13]),
        vec![0],
    ]
    .concat();
    let range = [&CODE.to_le_bytes()[..], &0x1000u32.to_le_bytes()].concat();
    let unit = |depth: usize| {
        let mut body = [&4u16.to_le_bytes()[..], &0u32.to_le_bytes(), &[8]].concat();
        body.extend([&[1, 0, 0, 0, 0][..], &range].concat());
        for code in std::iter::once(2).chain(std::iter::repeat_n(3, depth)) {
            // The origin is the first function, and so itself.
            body.extend([&[code][..], &28u32.to_le_bytes(), &range].concat());
        }
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    };
    // A row for each byte.
    let mut program = vec![1, 1, 1, 1, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0];
    program.extend([&b"x.c\0"[..], &[0, 0, 0, 0]].concat());
    let head = program.len() as u32;
    let mut lines = [&4u16.to_le_bytes()[..], &head.to_le_bytes()].concat();
    lines.extend(&program[..]);
    lines.extend([&[0, 9, 2][..], &CODE.to_le_bytes()].concat());
    lines.resize(lines.len() + (6 << 20), 0x4b);
    lines.extend([0, 1, 1]);
    let lines = [&(lines.len() as u32).to_le_bytes()[..], &lines].concat();
    for depth in [3, 50_000] {
        named_sections(
            "debug",
            &[
                (".debug_abbrev", 0x1_0000, abbreviations.clone()),
                (".debug_info", 0x2_0000, unit(depth)),
                (".debug_line", 0x40_0000, lines.clone()),
            ],
        );
    }
}
