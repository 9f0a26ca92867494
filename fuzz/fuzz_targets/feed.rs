//! Any bytes as what `ncpu serve` hands to ncpu-serve: settings, then intervals with their tables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_feed::{Packed, Ready};

fuzz_target!(|bytes: &[u8]| {
    let _ = Ready::hear(bytes);
    let mut rest = bytes;
    let _ = ncpu_feed::settings(&mut rest);
    let mut rest = bytes;
    while let Ok(Some(packed)) = Packed::receive(&mut rest) {
        let mut sent = Vec::new();
        packed.send(&mut sent).expect("memory takes it");
        let again = Packed::receive(&mut sent.as_slice()).expect("it was sent").expect("it is whole");
        // A time may be no number, which JSON does not have; what is read from JSON is one.
        assert_eq!(again, packed);
        let Ok(parts) = packed.parts() else { continue };
        assert!(parts.iter().map(|(_, part)| part.len()).sum::<usize>() <= packed.body.len());
        for (name, part) in parts {
            if let Ok(table) = ncpu_feed::table(name, part) {
                assert_eq!(table.name(), name);
            }
        }
    }
});
