//! Any text as what stands behind the `?` of a request to `ncpu serve`, and as its `Accept`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/show/serve/src/query.rs"]
#[allow(dead_code)]
mod query;

use query::{Query, preferred};

const KNOWN: [&str; 8] = ["from", "to", "k", "A", "m", "top", "each", "rows"];
const TYPES: [&str; 3] = ["application/json", "text/csv", "text/plain; version=0.0.4"];

fuzz_target!(|text: (&str, &str)| {
    let (query, accept) = text;
    match Query::read(query, &KNOWN) {
        Ok(query) => {
            for newest in [0.0, 1e9] {
                if let Ok((from, to)) = query.time(newest) {
                    assert!(from < to && from.is_finite() && to.is_finite());
                }
            }
            if let Ok(select) = query.select() {
                assert!(select.top != Some(0) && select.bands != Some(0));
            }
            if let Ok(Some(rows)) = query.number("rows", 1.0, 10.0) {
                assert!((1.0..=10.0).contains(&rows));
            }
            assert!(query.text("surely not").is_none());
        }
        // It is told to a terminal or a page.
        Err(wrong) => assert!(!wrong.0.contains(char::is_control), "{wrong}"),
    }
    let best = preferred(Some(accept), &TYPES);
    assert!(best.is_none_or(|best| TYPES.contains(&best)));
    // What is best of all is so alone too.
    assert!(best.is_none_or(|best| preferred(Some(accept), &[best]) == Some(best)));
});
