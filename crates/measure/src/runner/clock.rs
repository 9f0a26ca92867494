//! The clock, what reading it costs, and whether the CPU was ours and of steady speed.

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Properties of the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Nanoseconds that a reading adds to what is timed: the median of two readings in a row.
    pub overhead: u64,
    /// The smallest step seen, nanoseconds.
    pub resolution: u64,
}

impl Clock {
    /// Measures it, in some 100 µs.
    pub fn measure() -> Clock {
        let mut steps: Vec<u64> = (0..1001)
            .map(|_| {
                let t = now();
                now() - t
            })
            .collect();
        steps.sort_unstable();
        Clock {
            overhead: steps[steps.len() / 2],
            resolution: steps.iter().copied().find(|&s| s > 0).unwrap_or(1),
        }
    }
}

/// Results of a short look at the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Nanoseconds that a fixed number of dependent multiplications takes at best: the clock's speed.
    pub pace: u64,
    /// Nanoseconds in which the CPU did something else: another thread, an interrupt, another guest.
    pub lost: u64,
    /// Nanoseconds it took.
    pub took: u64,
}

/// Watches the CPU for some 50 µs.
pub fn look() -> Look {
    const PARTS: usize = 64;
    let mut times = [0u64; PARTS];
    let mut x = std::hint::black_box(3u64);
    let mut last = now();
    let begin = last;
    for time in &mut times {
        for _ in 0..256 {
            x = std::hint::black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        let t = now();
        *time = t - last;
        last = t;
    }
    std::hint::black_box(x);
    let pace = times.iter().copied().min().unwrap_or(0);
    // A time twice as long is more than jitter of the pipeline.
    let lost = times.iter().filter(|&&t| t > 2 * pace).map(|t| t - pace).sum();
    Look { pace, lost, took: last - begin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward_and_a_look_adds_up() {
        let clock = Clock::measure();
        assert!(clock.resolution > 0 && clock.overhead < 1_000_000);
        let look = look();
        assert!(look.pace > 0 && look.lost < look.took && look.pace * 64 <= look.took);
    }
}
