#![no_main]
//! The ring buffer of a perf event that samples accesses.

use libfuzzer_sys::fuzz_target;
use ncpu_machine::events::sample::{Record, records};

fuzz_target!(|data: &[u8]| {
    let mut bytes = 0;
    let end = records(data, |record| {
        if let Record::Sample(sample) = record {
            // Whatever was decoded, its parts agree.
            let source = sample.source;
            assert!(source.hitm().is_none() || source.load());
            assert!(!source.unknown() || !source.store());
            bytes += 56;
        }
    });
    assert!(bytes <= data.len());
    assert!(end.is_ok() || end.is_err_and(|e| e.at < data.len()));
});
