//! Any bytes as lockstat output: an answer or an error, and every answer can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_record::lockstat::{lockstat_table, parse, render_lockutil};

fuzz_target!(|data: &[u8]| {
    if let Ok(file) = parse(data, "fuzz".as_ref(), 64, Some(10.0)) {
        render_lockutil(&file);
        lockstat_table(&file);
    }
});
