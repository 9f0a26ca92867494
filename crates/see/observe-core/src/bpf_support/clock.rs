//! The clock of BPF programs and of perf events: `CLOCK_MONOTONIC` of the machine.
//!
//! In a time namespace (`unshare --time`, restored containers) user space reads another `CLOCK_MONOTONIC`, while BPF programs go
//! on with the machine's. The kernel shows the difference.

use std::sync::OnceLock;

/// ns of the clock that BPF programs read.
pub fn monotonic_ns() -> u64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let here = t.tv_sec * 1_000_000_000 + t.tv_nsec;
    u64::try_from(here.saturating_sub(*OFFSET.get_or_init(offset))).unwrap_or(0)
}

/// ns by which this process's `CLOCK_MONOTONIC` is ahead of the machine's.
fn offset() -> i64 {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    // The offsets are those of the namespace that children begin in.
    if namespace("time") != namespace("time_for_children") {
        return 0;
    }
    std::fs::read_to_string("/proc/self/timens_offsets").ok().and_then(|text| parsed(&text)).unwrap_or(0)
}

/// The offset of `CLOCK_MONOTONIC` in the text of `timens_offsets`: a line for each clock, with its seconds and nanoseconds.
fn parsed(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<i64>);
    let (seconds, ns) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        assert_eq!(parsed("monotonic           0         0\nboottime            0         0\n"), Some(0));
        assert_eq!(
            parsed("monotonic      100000         7\nboottime           -5         0\n"),
            Some(100_000_000_000_007)
        );
        assert_eq!(parsed("monotonic          -5 500000000\n"), Some(-4_500_000_000));
        assert_eq!(parsed("boottime -5 0\n"), None);
        assert_eq!(parsed("monotonic 9223372036854775807 0\n"), None);
    }
}
