//! Any bytes as a file of perf record: tables or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = ncpu_perfdata::import(data);
});
