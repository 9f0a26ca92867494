//! Any text as the journal of a compaction of a fleet that was cut off: whatever it says, no recording's rows are lost.
#![no_main]

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use libfuzzer_sys::fuzz_target;
use ncpu_fleet::compact::not_compacted;
use ncpu_fleet::parts::{self, Span};
use ncpu_fleet::store::{Entry, Hold, Store};
use ncpu_fleet::tables::{self, Kept};
use ncpu_fleet::Result;

const JOURNAL: &str = "compacting.json";

/// A fleet in memory. Its lock is always free.
struct Memory(Mutex<BTreeMap<String, Vec<u8>>>);

impl Store for Memory {
    fn root(&self) -> &str {
        "memory"
    }

    fn list(&self, below: &str) -> Result<Vec<Entry>> {
        let files = self.0.lock().expect("no panic");
        let below = format!("{below}/");
        let found = files.iter().filter(|(name, _)| name.starts_with(&below));
        Ok(found.map(|(name, bytes)| Entry { name: name.clone(), bytes: bytes.len() as u64 }).collect())
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.0.lock().expect("no panic").get(name).cloned())
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let mut files = self.0.lock().expect("no panic");
        let free = !files.contains_key(name);
        files.entry(name.into()).or_insert_with(|| bytes.into());
        Ok(free)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.lock().expect("no panic").remove(name);
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        Some(Path::new("/memory"))
    }

    fn lock(&self, _: Hold) -> Result<Option<Box<dyn Any + Send>>> {
        Ok(Some(Box::new(())))
    }
}

/// Parts of events: three of an hour with a recording each, one of the day with two of them, and one of another table.
fn files() -> &'static BTreeMap<String, Vec<u8>> {
    static FILES: OnceLock<BTreeMap<String, Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let part = |table: Kept, ids: &[&str]| {
            let mut rows = table.builder();
            for id in ids {
                let row = (0..4).fold(rows.row().text(id), |row, _| row.text("same"));
                row.int(2).int(0).text(";").int(1).text("a").int(1);
            }
            tables::parquet(table, &rows.finish()).expect("a part")
        };
        let (day, hour) = (Span::Day("2026-11-10".into()), Span::Hour("2026-11-10".into(), "07".into()));
        let parts = [
            (Kept::Events, &hour, 1, &["a"][..]),
            (Kept::Events, &hour, 2, &["b"]),
            (Kept::Events, &hour, 3, &["c"]),
            (Kept::Events, &day, 1, &["a", "b"]),
        ];
        parts.map(|(table, span, number, ids)| (parts::name(table, span, number), part(table, ids))).into()
    })
}

/// The recordings whose rows are there.
fn recordings(files: &BTreeMap<String, Vec<u8>>) -> BTreeSet<String> {
    let parts = files.iter().filter(|(name, _)| *name != JOURNAL);
    parts.flat_map(|(name, bytes)| tables::ids(name, bytes.clone()).expect("a part")).collect()
}

fuzz_target!(|journal: &[u8]| {
    let before = files();
    let mut with = before.clone();
    with.insert(JOURNAL.into(), journal.into());
    let store = Memory(Mutex::new(with));
    let done = not_compacted(&store, Hold::Add);
    let after = store.0.into_inner().expect("no panic");
    assert_eq!(done.is_ok(), !after.contains_key(JOURNAL), "what cannot be finished stays");
    assert_eq!(recordings(&after), recordings(before));
});
