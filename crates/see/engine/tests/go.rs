//! Functions that Go's compiler has inlined, in a program whose functions' shares are given. Needs root and BPF, and
//! Go; skips with a message otherwise.

mod common;

use common::{Seen, allowed, go, observe};

/// Seconds on CPU in stacks that have these frames next to each other, callers first.
fn within(seen: &Seen, frames: &str) -> f64 {
    seen.seconds_in("on-cpu", |stack| format!("{stack};").contains(&format!(";{frames};")))
}

#[test]
fn functions_that_were_put_into_others_have_their_shares() {
    let Some(_one) = allowed() else { return };
    // Also of a program without symbols: its own table has them all.
    for flags in ["-ldflags=", "-ldflags=-s -w"] {
        let Some(built) = go("inlined.go", flags) else { return };
        let seen = observe(&[built.clone().into()], |_| {});
        assert_eq!(seen.ended.status, 0);
        let (long, short) = ("main.outer;main.middle;main.long", "main.outer;main.middle;main.short");
        let (long, short) = (within(&seen, long), within(&seen, short));
        let outer = within(&seen, "main.outer");
        println!("{flags}: long {long:.2} s, short {short:.2} s of {outer:.2} s below outer");
        assert!(outer > 0.2, "{outer}");
        let stacks: Vec<_> = seen.rows("stacks").map(|(t, r)| t.text(r, "stack")).collect();
        assert!((long / outer - 0.75).abs() < 0.15, "{long} of {outer}: {stacks:#?}");
        assert!((short / outer - 0.25).abs() < 0.15, "{short} of {outer}: {stacks:#?}");
        std::fs::remove_file(built).expect("it was built");
    }
}
