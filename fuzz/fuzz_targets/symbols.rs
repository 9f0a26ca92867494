//! Any bytes as a program whose functions are to have names.
#![no_main]

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use ncpu_symbols::{ProcMaps, User};

/// One file for all inputs: the fuzzer is one thread.
fn path() -> &'static Path {
    static PATH: OnceLock<std::path::PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::temp_dir().join(format!("ncpu-fuzz-symbols-{}", std::process::id())))
}

fuzz_target!(|bytes: &[u8]| {
    let mut file = std::fs::File::create(path()).expect("a file in the temporary directory");
    file.write_all(bytes).expect("room for it");
    let mut maps = ProcMaps::new(Path::new("/nonexistent"));
    let text = format!("400000-500000 r-xp 00000000 fe:00 11 {}\n", path().display());
    assert!(maps.note_maps(1, text.as_bytes()));
    let mut user = User::new();
    let addresses: Vec<u64> = (0..64).map(|i| 0x40_0000 + i * 61).collect();
    let names = user.symbolize(&mut maps, 1, &addresses);
    assert_eq!(names.len(), addresses.len());
    assert!(user.with_inlined(&maps, 1, &addresses, names).len() >= addresses.len());
    for address in addresses {
        user.variable(&maps, 1, address);
    }
    assert!(user.notes().next().is_none(), "so small a file cannot have too many symbols");
});
