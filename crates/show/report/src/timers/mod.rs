//! `ncpu timers`: how well calls keep time, and what keeping time costs.

mod calls;
mod doings;
mod herd;
mod who;

pub use calls::{by_call, by_time, machine_line};
pub use doings::{doings, doings_line};
pub use herd::herd;
pub use who::{By, who};

/// A time in its largest unit that has no fraction: `9 ms`, `50 us`, `1 ns`.
pub fn duration(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.iter().find(|(unit, _)| ns >= *unit && ns.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", ns / unit),
        None => format!("{ns} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_no_fraction() {
        let all = [9_000_000, 50_000, 1, 1_000_000_000, 1_500_000_000, 0].map(duration);
        assert_eq!(all, ["9 ms", "50 us", "1 ns", "1 s", "1500 ms", "0 ns"]);
    }
}
