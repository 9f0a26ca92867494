//! Any bytes as a perf map and as a jitdump: what a program writes of functions that it has made.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use ncpu_symbols::{ProcMaps, User};

const PID: u32 = 1;

/// A root with the files of one process, whose jitdump is mapped. The fuzzer is one thread.
fn root() -> &'static PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = std::env::temp_dir().join(format!("ncpu-fuzz-generated-{}", std::process::id()));
        fs::create_dir_all(root.join("proc/1/root/tmp")).expect("a directory");
        fs::write(root.join("proc/1/status"), "Name:\tjava\nNStgid:\t1\n").expect("a file");
        root
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let (map, dump) = (root().join("proc/1/root/tmp/perf-1.map"), root().join("jit-1.dump"));
    let is_dump = kind & 1 == 1;
    fs::write(&map, if is_dump { &[] } else { bytes }).expect("room for it");
    fs::write(&dump, if is_dump { bytes } else { &[] }).expect("room for it");
    let mut maps = ProcMaps::new(root());
    let text =
        format!("1000-2000 r-xp 00000000 fe:00 11 {}\n5000-9000 rwxp 00000000 00:00 0 \n", dump.display());
    assert!(maps.note_maps(PID, text.as_bytes()));
    let addresses: Vec<u64> = (0..64).map(|i| 0x5000 + i * 0x31).collect();
    let names = User::new().symbolize(&mut maps, PID, &addresses);
    assert_eq!(names.len(), addresses.len());
});
