//! Any bytes as a program whose unwind tables are used, and as the stack of a thread in it.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use ncpu_symbols::{Copied, ProcMaps, Unwinding};

/// One file for all inputs: the fuzzer is one thread.
fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::temp_dir().join(format!("ncpu-fuzz-unwind-{}", std::process::id())))
}

const BASE: u64 = 0x40_0000;
const STACK: u64 = 0x7fff_0000;
const WORDS: usize = 64;

// The last bytes are where the thread is, and its stack.
fuzz_target!(|bytes: &[u8]| {
    let Some((program, stack)) = bytes.split_at_checked(bytes.len().saturating_sub(8 * WORDS)) else {
        return;
    };
    std::fs::write(path(), program).expect("room for it");
    let mut maps = ProcMaps::new("/nonexistent".as_ref());
    let text = format!("{BASE:x}-{:x} r-xp 00000000 fe:00 11 {}\n", BASE + 0x10_0000, path().display());
    assert!(maps.note_maps(1, text.as_bytes()));
    let words: Vec<u64> =
        stack.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect();
    let mut unwinding = Unwinding::default();
    for at in 0..16 {
        // Most words are addresses of the program, so that there are callers.
        let near = |word: &u64| if word % 4 == 0 { *word } else { BASE + word % 0x2000 };
        let ip = words.get(at).map_or(BASE + 0x1000 + 16 * at as u64, near);
        let copy = Copied {
            regs: [ip, STACK, STACK + 8 * (at as u64)],
            words: words.iter().map(near).collect(),
            python: Vec::new(),
        };
        let out = unwinding.unwind(&mut maps, 1, &copy);
        assert!(!out.frames.is_empty() && out.words.len() + 1 == out.frames.len());
        let found =
            |(frame, at): (&u64, &Option<usize>)| at.is_none_or(|at| copy.words.get(at) == Some(frame));
        assert!(out.frames[1..].iter().zip(&out.words).all(found));
    }
});
