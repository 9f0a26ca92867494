//! The arithmetic of counts that shared a counter: deltas, scaling, sums.

/// A counter at one moment, as read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Events while it ran.
    pub value: u64,
    /// Nanoseconds it was to count.
    pub enabled: u64,
    /// Nanoseconds it did; less where there are more events than counters.
    pub running: u64,
}

impl Reading {
    /// The growth since an earlier reading.
    pub fn since(self, before: Reading) -> Reading {
        Reading {
            value: self.value.wrapping_sub(before.value),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }
}

/// A count scaled to the whole time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Events; `None` where it never ran although it was to.
    pub count: Option<f64>,
    /// Seconds it was to count.
    pub enabled: f64,
    /// Seconds it did.
    pub running: f64,
}

impl Count {
    /// Scales what one event counted.
    pub fn of(delta: Reading) -> Count {
        Count::of_kinds(&[delta])
    }

    /// Scales the counts of one thread's events on each kind of core. Each event counts only while the
    /// thread is on its kind, so they complement each other: only the time in which none of them counted is
    /// scaled for, not the time in which one was idle while another counted.
    pub fn of_kinds(deltas: &[Reading]) -> Count {
        let value: u128 = deltas.iter().map(|d| u128::from(d.value)).sum();
        let enabled = deltas.iter().map(|d| d.enabled).max().unwrap_or(0);
        // Clocks are read one after another, so their sum may exceed the whole by a little.
        let running = deltas.iter().fold(0u64, |sum, d| sum.saturating_add(d.running)).min(enabled);
        let count = match (enabled, running) {
            (0, _) => Some(value as f64),
            (_, 0) => None,
            (e, r) => Some(value as f64 * (e as f64 / r as f64)),
        };
        Count { count, enabled: enabled as f64 / 1e9, running: running as f64 / 1e9 }
    }

    /// Adds another's. One that is not known makes the sum so: a part is not the whole.
    pub fn add(&mut self, other: Count) {
        self.count = self.count.zip(other.count).map(|(a, b)| a + b);
        self.enabled += other.enabled;
        self.running += other.running;
    }
}

/// Takes apart what a read of a group gave: its number of events, two times, and the counts.
/// `None` where that is not `members` events: the kernel took the group apart, as it does when the CPU
/// goes offline.
pub fn parse_group(words: &[u64], members: usize) -> Option<impl Iterator<Item = Reading> + '_> {
    let [nr, enabled, running, values @ ..] = words else { return None };
    (*nr == members as u64 && values.len() == members)
        .then(|| values.iter().map(|&value| Reading { value, enabled: *enabled, running: *running }))
}

/// Takes apart what a read of a single event gave.
pub fn parse_single(words: &[u64]) -> Option<Reading> {
    match *words {
        [value, enabled, running] => Some(Reading { value, enabled, running }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reading(value: u64, enabled: u64, running: u64) -> Reading {
        Reading { value, enabled, running }
    }

    #[test]
    fn a_count_is_scaled_by_the_time_it_ran() {
        assert_eq!(Count::of(reading(100, 2_000_000_000, 500_000_000)).count, Some(400.0));
        assert_eq!(Count::of(reading(100, 7, 7)).count, Some(100.0));
    }

    #[test]
    fn never_run_is_not_zero() {
        assert_eq!(Count::of(reading(0, 1000, 0)).count, None);
        // A thread that slept all the time had nothing to count.
        assert_eq!(Count::of(reading(0, 0, 0)).count, Some(0.0));
        let mut sum = Count::of(reading(5, 10, 10));
        sum.add(Count::of(reading(0, 10, 0)));
        assert_eq!(sum.count, None);
    }

    #[test]
    fn kinds_of_core_complement_each_other() {
        // 10 ms in all: 6 on fast cores, 4 on slow ones, always counted.
        let count = Count::of_kinds(&[reading(600, 10, 6), reading(100, 10, 4)]);
        assert_eq!(count.count, Some(700.0));
        assert_eq!(count.running, count.enabled);
        // Half of the time neither counted.
        assert_eq!(Count::of_kinds(&[reading(300, 10, 3), reading(50, 10, 2)]).count, Some(700.0));
        // Never on a slow core.
        assert_eq!(Count::of_kinds(&[reading(300, 10, 10), reading(0, 10, 0)]).count, Some(300.0));
    }

    #[test]
    fn times_that_lie_do_not_overflow() {
        let count = Count::of_kinds(&[reading(u64::MAX, 10, u64::MAX), reading(u64::MAX, 5, u64::MAX)]);
        assert_eq!((count.count, count.running), (Some(2.0 * u64::MAX as f64), count.enabled));
    }

    #[test]
    fn deltas_are_scaled_and_not_totals() {
        // Counted the whole first second, a tenth of the next.
        let (first, second) = (reading(1000, 100, 100), reading(1100, 200, 110));
        assert_eq!(Count::of(second.since(first)).count, Some(1000.0));
    }

    #[test]
    fn a_group_taken_apart_is_noticed() {
        let words = [2, 50, 40, 7, 8];
        let read: Vec<_> = parse_group(&words, 2).unwrap().collect();
        assert_eq!(read, [reading(7, 50, 40), reading(8, 50, 40)]);
        assert!(parse_group(&[1, 50, 40, 7], 2).is_none());
        assert!(parse_group(&words[..4], 2).is_none());
        assert!(parse_group(&[], 2).is_none());
        assert_eq!(parse_single(&[7, 50, 40]), Some(reading(7, 50, 40)));
        assert_eq!(parse_single(&[]), None);
    }

    proptest! {
        #[test]
        fn any_words_are_survived(words in prop::collection::vec(any::<u64>(), 0..9), members in 0usize..6) {
            if let Some(read) = parse_group(&words, members) {
                for r in read {
                    let count = Count::of(r.since(reading(words[0], 1, 1)));
                    prop_assert!(count.count.is_none_or(|c| c >= 0.0));
                }
            }
        }

        #[test]
        fn scaling_never_lowers_a_count(value in 0u64..1 << 50, running in 1u64..1 << 40, idle in 0u64..1 << 40) {
            let count = Count::of(reading(value, running + idle, running)).count.unwrap();
            prop_assert!(count >= value as f64 * (1.0 - 1e-12));
        }
    }
}
