//! CPUs' time that is moved from one state to another after it was counted.

use ncpu_schema::CpuState;

use super::Snapshot;

impl Snapshot {
    /// Lets no state of a CPU have less time than it had `before`. What is taken out of a state after it was counted there, as
    /// ncpu's own time is, comes out of later time of this state. Until then the states with the most new time have that much less, so
    /// that the states of each CPU still sum to its time.
    pub(crate) fn keep_counted(&mut self, before: &Snapshot) {
        for (cpu, at) in &mut self.cpus {
            let Ok(place) = before.cpus.binary_search_by_key(cpu, |(c, _)| *c) else { continue };
            keep_counted(&before.cpus[place].1, at);
        }
    }
}

fn keep_counted(before: &[u64; CpuState::ALL.len()], at: &mut [u64; CpuState::ALL.len()]) {
    let mut owed = 0;
    for (at, before) in at.iter_mut().zip(before) {
        owed += before.saturating_sub(*at);
        *at = (*at).max(*before);
    }
    while owed > 0 {
        let new = |i: &usize| at[*i] - before[*i];
        let Some(most) = (0..at.len()).max_by_key(new).filter(|i| new(i) > 0) else { break };
        let taken = new(&most).min(owed);
        at[most] -= taken;
        owed -= taken;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn time_that_leaves_a_state_comes_out_of_its_later_time() {
        let counted = [100, 50, 0, 0, 0, 0, 0, 0];
        // 30 ns of state 1 went to state 3, and 40 ns of state 0 are new.
        let mut at = [140, 20, 0, 30, 0, 0, 0, 0];
        keep_counted(&counted, &mut at);
        assert_eq!(at, [110, 50, 0, 30, 0, 0, 0, 0]);
        let mut later = [140, 90, 0, 30, 0, 0, 0, 0];
        keep_counted(&at, &mut later);
        assert_eq!(later, [140, 90, 0, 30, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn no_state_loses_time_and_the_sum_stays(
            before in prop::array::uniform8(0..1_000u64),
            now in prop::array::uniform8(0..1_000u64),
        ) {
            let mut at = now;
            keep_counted(&before, &mut at);
            prop_assert!(at.iter().zip(&before).all(|(at, before)| at >= before));
            let sum = |at: &[u64; 8]| at.iter().sum::<u64>();
            prop_assert_eq!(sum(&at), sum(&now).max(sum(&before)));
        }
    }
}
