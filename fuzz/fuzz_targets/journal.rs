//! Any text as a journal of what `ncpu fix` has set. It is read, and nothing is undone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_remedy::journal;

fuzz_target!(|text: &str| {
    let (_, entries, bad) = journal::parse(text.as_bytes());
    assert!(entries.len() + bad <= text.lines().count());
    // A line cut short never happened, and what follows a whole journal takes nothing from it but what it says is done.
    if let Some(end) = text.rfind('\n') {
        let (_, whole, also_bad) = journal::parse(&text.as_bytes()[..=end]);
        assert_eq!((whole.len(), also_bad), (entries.len(), bad));
        for ((id, undo), (whole_id, whole_undo)) in entries.iter().zip(&whole) {
            assert_eq!((id, undo.to_string()), (whole_id, whole_undo.to_string()));
        }
    } else {
        assert!(entries.is_empty() && bad == 0);
    }
});
