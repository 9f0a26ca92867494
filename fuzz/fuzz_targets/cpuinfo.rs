//! Any text as /proc/cpuinfo.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (cpus, _) = ncpu_machine::parse_cpuinfo(text);
    assert!(cpus.iter().all(|(_, info)| info.mhz.is_none_or(|mhz| mhz.is_finite() && mhz > 0.0)));
});
