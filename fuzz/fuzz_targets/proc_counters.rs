//! Any bytes as /proc/stat, /proc/interrupts and /proc/softirqs: sums or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

// By path: the crate it is part of compiles BPF programs, which fuzzing does not need.
#[path = "../../crates/see/collectors/src/cpus/parse.rs"]
#[allow(dead_code)]
mod parse;

fuzz_target!(|data: &[u8]| {
    let _ = parse::stat(data, |cpu, _| assert!(cpu < parse::MAX_CPUS));
    let mut sums = parse::Sums::default();
    if sums.read(data).is_ok() {
        assert_eq!(sums.cpus.len(), sums.total.len());
        // Read again, as a sampler does: nothing is left of the first time.
        let first = sums.clone();
        let _ = sums.read(data);
        assert_eq!(first, sums);
    }
});
