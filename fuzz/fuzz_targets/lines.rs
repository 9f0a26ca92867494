//! Any bytes as a program: a report or an error, and every report can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_lines::{Options, bytes, tables};

fuzz_target!(|data: &[u8]| {
    if let Ok(report) = bytes(data, &Options::default()) {
        tables(&[report], 64, true, None);
    }
});
