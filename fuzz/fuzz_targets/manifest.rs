//! Any text as a manifest: what is read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_record::Manifest;

fuzz_target!(|text: &str| {
    if let Ok(manifest) = Manifest::parse(text, "manifest.json".as_ref()) {
        for name in manifest.files.keys() {
            assert!(!name.contains('/') && name.ends_with(".parquet"));
        }
        let again = serde_json::to_string(&manifest).expect("a manifest is JSON");
        assert_eq!(Manifest::parse(&again, "manifest.json".as_ref()).expect("it was read before"), manifest);
    }
});
