//! Any text as /proc/iomem and /proc/zoneinfo: ranges come out ordered and disjoint.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_machine::memory::{parse_iomem, parse_zoneinfo};

fuzz_target!(|text: &str| {
    let ranges = parse_iomem(text);
    assert!(ranges.iter().all(|r| r.0 < r.1));
    assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0));
    assert!(parse_zoneinfo(text).len() <= text.lines().count());
});
