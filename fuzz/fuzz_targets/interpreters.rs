//! Any bytes as a program named as Python's or PostgreSQL's, and as the memory of its process.
#![no_main]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use ncpu_symbols::{Postgres, ProcMaps, Pythons, Spliced};

const PID: u32 = 1;
/// Where the program is mapped, as far as its memory goes.
const BASE: u64 = 0x1000;
const CODES: u64 = 16;
/// How addresses of code are tagged.
const TAG: u64 = 0xffff << 48;
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A root with the files of one process. The fuzzer is one thread.
fn root() -> &'static PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = std::env::temp_dir().join(format!("ncpu-fuzz-interpreters-{}", std::process::id()));
        fs::create_dir_all(root.join("proc/1")).expect("a directory");
        root
    })
}

// The length of the program, the program, and what its memory holds from where it is mapped.
fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes(*length));
    let Some((program, memory)) = rest.split_at_checked(length) else { return };
    let mem = File::create(root().join("proc/1/mem")).expect("a file");
    mem.write_all_at(memory, BASE).expect("room for it");
    for name in ["python3.11", "postgres"] {
        let path = root().join(name);
        fs::write(&path, program).expect("room for it");
        let mut maps = ProcMaps::new(root());
        let text = format!("{BASE:x}-9000 r-xp 00000000 fe:00 11 {}\n", path.display());
        assert!(maps.note_maps(PID, text.as_bytes()));
        let mut postgres = Postgres::default();
        if postgres.wait_event_at(&mut maps, PID).is_some()
            && let Some(events) = postgres.wait_events(&mut maps, PID)
        {
            for event in [0x0100_0001, 0x0300_0000, 0x0100_ffff, 0x0300_0003] {
                let (_, name) = events.lock(event).expect("a lock");
                assert!(!name.is_empty());
            }
            assert_eq!(events.lock(0), None);
        }
        let mut pythons = Pythons::default();
        if pythons.meet(&maps, PID).is_some() {
            // The kernel's side tags an address with what lay there.
            let word = |at: u64| memory.get(at as usize..).and_then(|bytes| bytes.first_chunk()).copied();
            let tagged = |at: u64| {
                let name = u64::from_ne_bytes(word(at + 128).unwrap_or_default());
                let lines = [68, 72].map(|line| word(at + line).map_or(0, |w| u64::from_ne_bytes(w) as u32));
                lines.map(|line| (BASE + at) | (name ^ u64::from(line) << 40).wrapping_mul(SPREAD) & TAG)
            };
            let codes: Vec<u64> = (0..CODES).flat_map(|i| tagged(8 * i)).collect();
            let stack = ["_PyEval_EvalFrameDefault", "main"];
            let is_loop = |name: &&str| name.starts_with("_PyEval_EvalFrame");
            let spliced = pythons.splice(&maps, PID, (&stack, true), is_loop, (&codes, 64));
            for frame in spliced.into_iter().flatten() {
                // They go into lines of a terminal.
                assert!(!matches!(frame, Spliced::Python(name) if name.contains(char::is_control)));
            }
        }
    }
});
