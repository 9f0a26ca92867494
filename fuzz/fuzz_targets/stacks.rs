#![no_main]
//! The ring buffer of a perf event that samples stacks and tells of threads.

use libfuzzer_sys::fuzz_target;
use ncpu_machine::events::stacks::{Record, parse};

fuzz_target!(|data: &[u8]| {
    let mut words = 0;
    let rest = parse(data, |record| match record {
        Record::Sample { kernel, user, .. } => words += kernel.len() + user.len(),
        Record::Name { name, .. } => words += name.len() / 24,
        Record::Began { .. } | Record::Ended { .. } | Record::Lost(_) => {}
    });
    // No more comes out than went in.
    assert!(rest <= data.len() && words * 8 <= data.len());
});
