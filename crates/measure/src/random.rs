//! Numbers that are random enough for orders and offsets.

/// A pseudo-random sequence: Marsaglia's xorshift64. Its state never waits for memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From a seed that is not 0.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `n`, by the high half of a product (Lemire).
    #[inline(always)]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}
