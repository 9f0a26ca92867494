//! Any text as a format file, as the terms of an event, and as the name of one.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ncpu_machine::events::{Format, Pmu, Sources, terms};

static MACHINE: LazyLock<Sources> = LazyLock::new(|| {
    let field = |text| Format::parse(text).expect("a format");
    let formats = [("event", "config:0-7,32-35"), ("umask", "config:8-15"), ("offcore_rsp", "config1:0-63")];
    Sources {
        pmus: vec![Pmu {
            name: "cpu".into(),
            kind: 4,
            formats: formats.into_iter().map(|(name, text)| (name.into(), field(text))).collect(),
            ..Pmu::default()
        }],
        tracepoints: Some([("sched:sched_switch".to_string(), 1)].into()),
        ..Sources::default()
    }
});

fuzz_target!(|text: &str| {
    if let Some(format) = Format::parse(text) {
        let mut config = [0; 4];
        format.put(format.max(), &mut config);
        let bits: u32 = config.iter().map(|w| w.count_ones()).sum();
        assert!(bits <= format.max().count_ones());
    }
    let _ = terms(text);
    for event in MACHINE.parse(text).into_iter().flatten() {
        assert!(!event.encodings.is_empty());
    }
    let _ = MACHINE.list(Some(text));
});
