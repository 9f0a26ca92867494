//! Any bytes as /proc/PID/numa_maps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_machine::numa_maps;

fuzz_target!(|data: &[u8]| {
    for mapping in numa_maps::parse(data) {
        assert!(mapping.nodes.iter().all(|n| n.0 <= numa_maps::MAX_NODE));
        assert!(mapping.bytes() >= mapping.nodes.iter().map(|n| n.1).max().unwrap_or(0));
    }
    let _ = numa_maps::unescape(&String::from_utf8_lossy(data));
});
