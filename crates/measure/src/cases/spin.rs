//! Work of a known length that touches no memory.

use std::hint::black_box;
use std::sync::OnceLock;

use crate::runner::now;

/// Computes for a number of nanoseconds at the clock speed it was made at.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    turns: u64,
}

/// Turns in a nanosecond.
static PACE: OnceLock<f64> = OnceLock::new();

impl Spin {
    /// For `nanos` nanoseconds; 0 is no work at all.
    pub fn of(nanos: u64) -> Spin {
        Spin { turns: if nanos == 0 { 0 } else { (nanos as f64 * pace()).round() as u64 } }
    }

    /// Does it.
    #[inline]
    pub fn run(self) {
        let mut x = 3u64;
        for _ in 0..self.turns {
            x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        black_box(x);
    }
}

/// Turns in a nanosecond at the fastest that was seen, measured once in some 20 ms; processes forked later have the
/// same, so that figures which are compared did the same work.
pub fn pace() -> f64 {
    *PACE.get_or_init(|| {
        const TURNS: u64 = 2000;
        // The shortest of many short ones, apart: whatever disturbs only adds, and passes.
        let shortest = (0..100)
            .map(|_| {
                std::thread::sleep(std::time::Duration::from_micros(100));
                let begin = now();
                Spin { turns: TURNS }.run();
                now() - begin
            })
            .min();
        TURNS as f64 / shortest.unwrap_or(1).max(1) as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_never_shorter_than_asked_by_much() {
        Spin::of(0).run();
        // The shortest of many, since others may take the CPU away.
        let shortest = (0..50)
            .map(|_| {
                let begin = now();
                Spin::of(100_000).run();
                now() - begin
            })
            .min();
        assert!(shortest.unwrap() > 30_000, "{shortest:?}");
    }
}
