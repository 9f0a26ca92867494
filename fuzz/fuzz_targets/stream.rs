//! Any bytes as a stream that was cut off.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_record::recover_stream;

fuzz_target!(|data: &[u8]| {
    if let Ok(Some(found)) = recover_stream(data) {
        assert!(found.dropped <= data.len());
        for batch in found.batches {
            assert_eq!(batch.schema(), found.schema);
        }
    }
});
