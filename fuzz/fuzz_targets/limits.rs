//! Any text as a boot log, as /proc/PID/limits, as a pressure file and as a cgroup's `cpu.stat`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_machine::limits::throttle::Bandwidth;
use ncpu_machine::limits::{parse_boot_log, parse_pressure, parse_rlimits};

fuzz_target!(|text: &str| {
    assert!(parse_boot_log(text).keys().all(|name| !name.is_empty() && name.len() <= 64));
    assert!(parse_rlimits(text).iter().all(|(name, _)| !name.contains("  ")));
    assert!(parse_pressure(text, "io", None).iter().all(|p| p.avg.iter().all(|a| a.is_finite())));
    let b = Bandwidth::parse(text);
    assert_eq!(b.since(b), Bandwidth::default());
});
