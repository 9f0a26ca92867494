//! Any text as a CPU list and as a mask: what is read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_machine::CpuSet;

fuzz_target!(|text: &str| {
    for set in [CpuSet::parse_list(text), CpuSet::parse_mask(text)].into_iter().flatten() {
        assert_eq!(set.iter().count(), set.len());
        assert_eq!(CpuSet::parse_list(&set.to_list()).expect("a list it wrote"), set);
        assert_eq!(CpuSet::parse_mask(&set.to_mask()).expect("a mask it wrote"), set);
    }
});
