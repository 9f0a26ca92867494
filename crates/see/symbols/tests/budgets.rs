//! Files with the longest names and the largest tables that are read: memory and time have bounds.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_files::reader::Source;
use ncpu_symbols::{Postgres, ProcMaps, User};

const CODE: u64 = 0x1000;
const STRTAB: u32 = 3;
const DYNSYM: u32 = 11;

/// A section: name, kind, place in the file and address, bytes, and the section that its strings are in.
struct Section(&'static str, u32, u64, u64, u32);

/// A file with these sections, and these bytes in it; the rest are holes.
fn elf(path: &Path, sections: &[Section], parts: &[(u64, &[u8])]) {
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let (table, strings) = (0x2000, 0x3000);
    let (mut names, mut heads) = (b"\0".to_vec(), vec![0; 64]);
    let own = Section("", STRTAB, strings, 0x100, 0);
    for Section(name, kind, at, size, link) in sections.iter().chain([&own]) {
        heads.extend([names.len() as u32, *kind].iter().flat_map(|w| w.to_le_bytes()));
        heads.extend(words(&[0, *at, *at, *size, u64::from(*link), 1, 24]));
        names.extend(name.as_bytes());
        names.push(0);
    }
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    head.extend(words(&[CODE, 64, table]));
    let last = sections.len() as u16 + 1;
    head.extend([0, 0, 64, 56, 1, 64, last + 1, last].iter().flat_map(|w: &u16| w.to_le_bytes()));
    head.extend(words(&[1 | 5 << 32, 0, 0, 0, 0x10_0000, 0x10_0000, 0x1000]));
    let file = File::create(path).expect("a file");
    file.set_len(sections.iter().map(|s| s.2 + s.3).max().unwrap_or(0).max(0x10_0000)).expect("room");
    for (at, bytes) in [(0, &head[..]), (table, &heads[..]), (strings, &names[..])].iter().chain(parts) {
        file.write_all_at(bytes, *at).expect("room");
    }
}

/// Mappings of a process that has mapped these files.
fn maps(paths: &[PathBuf]) -> ProcMaps {
    let mut maps = ProcMaps::new("/nonexistent".as_ref());
    for (i, path) in paths.iter().enumerate() {
        let inode = std::fs::metadata(path).expect("it is there").ino();
        let text = format!("400000-500000 r-xp 00000000 fe:00 {inode} {}\n", path.display());
        assert!(maps.note_maps(1 + i as u32, text.as_bytes()));
    }
    maps
}

#[test]
fn stacks_of_functions_that_are_all_inlined_are_short() {
    const LEVELS: u64 = 60;
    let words = |words: &[u64]| words.iter().flat_map(|w| (*w as u32).to_le_bytes()).collect::<Vec<u8>>();
    let names: Vec<u8> =
        (0..=LEVELS).flat_map(|i| format!("{i:02}{}\0", "n".repeat(3997)).into_bytes()).collect();
    // Call 0 up to place 0x1000, then a call for each place, then none.
    let steps = [&[0, 2, 0x80, 0x20][..], &[2, 1].repeat(LEVELS as usize - 1), &[0x77, 1, 0]].concat();
    let function = words(&[0, 4000 * LEVELS, 0, 0, 0, 0, 0, 3, 0, 0, 4 << 24, 0, 0, 1, 0, 0, 0, 0]);
    let (table, calls, data) = (0x1_0000, 0x8_0000, 0x9_0000);
    let after = |at: u64, bytes: &[u8]| at + bytes.len() as u64;
    let units = after(72, &names);
    let places = [1, 0, CODE, 72, units, units, units, after(units, &steps)];
    let mut all = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
    all.extend(places.iter().flat_map(|w| w.to_le_bytes()));
    all.extend([&names[..], &steps, &words(&[0, 16, 0x1000, 0]), &function].concat());
    let tree: Vec<u8> = (0..LEVELS).flat_map(|i| words(&[0, 4000 * i, 0x1000 + i, 0])).collect();
    let mut module = vec![0; 400];
    for (place, value) in [(0, table), (160, CODE), (176, CODE), (320, calls)] {
        module[place..place + 8].copy_from_slice(&value.to_le_bytes());
    }
    let sections = [
        Section(".text", 1, CODE, 0x1000, 0),
        Section(".gopclntab", 1, table, all.len() as u64, 0),
        Section(".go.func", 1, calls, tree.len() as u64, 0),
        Section(".noptrdata", 1, data, 400, 0),
    ];
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("program");
    elf(&path, &sections, &[(table, &all), (calls, &tree), (data, &module)]);
    let (mut maps, mut user) = (maps(&[path]), User::new());
    let stack: Vec<u64> = (0x40_1000..0x40_1078).collect();
    let began = Instant::now();
    // Its user's time may be used up for a while.
    let all: Vec<Arc<str>> = loop {
        let names = user.symbolize(&mut maps, 1, &stack);
        let all = user.with_inlined(&maps, 1, &stack, names);
        if all.iter().any(|name| name.starts_with("00n")) {
            break all;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{all:?}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(all.len() > stack.len() && all.len() <= stack.len() + 256, "{} names", all.len());
    assert!(all.iter().all(|name| name.len() <= 1024), "{:?}", all.iter().map(|name| name.len()).max());
}

#[test]
fn whoever_has_many_large_servers_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let servers: Vec<PathBuf> = (0..200)
        .map(|i| {
            let path = dir.path().join(format!("{i}/postgres"));
            std::fs::create_dir(dir.path().join(i.to_string())).expect("a directory");
            // As many symbols as are read, none of which is the wanted one.
            let sections = [
                Section(".dynsym", DYNSYM, 1 << 20, 24 << 22, 2),
                Section(".dynstr", STRTAB, 128 << 20, 16 << 20, 0),
            ];
            elf(&path, &sections, &[]);
            path
        })
        .collect();
    let (mut maps, mut postgres) = (maps(&servers), Postgres::default());
    let source = Source::open(&servers[0]).expect("a file");
    let refused = (1..=200).find(|pid| {
        assert_eq!(postgres.wait_event_at(&mut maps, *pid), None);
        !source.may_read()
    });
    assert!(refused.is_some(), "their reading is charged");
}

#[test]
fn few_servers_are_known_at_a_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let servers: Vec<PathBuf> = (0..100)
        .map(|i| {
            let path = dir.path().join(format!("{i}/postgres"));
            std::fs::create_dir(dir.path().join(i.to_string())).expect("a directory");
            let sections =
                [Section(".dynsym", DYNSYM, 0x4000, 48, 2), Section(".dynstr", STRTAB, 0x5000, 64, 0)];
            let symbol = [1u64 | 0x11 << 32 | 1 << 48, 0x8000, 8].map(u64::to_le_bytes).concat();
            elf(&path, &sections, &[(0x4018, &symbol), (0x5001, b"my_wait_event_info")]);
            path
        })
        .collect();
    let (mut maps, mut postgres) = (maps(&servers), Postgres::default());
    let began = Instant::now();
    let mut known = std::collections::BTreeSet::new();
    while known.len() < 64 {
        known.extend((1..=100).filter(|pid| postgres.wait_event_at(&mut maps, *pid) == Some(0x40_8000)));
        assert!(began.elapsed() < Duration::from_secs(60), "{known:?}");
    }
    assert_eq!((1..=100).filter(|pid| postgres.wait_event_at(&mut maps, *pid).is_some()).count(), 64);
    postgres.forget();
    while postgres.wait_event_at(&mut maps, 100).is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "there is room again");
    }
}
