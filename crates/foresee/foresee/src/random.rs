//! Random numbers that are the same on every machine, and the distributions of times.

/// xoshiro256++ (Blackman and Vigna 2019), seeded by splitmix64.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// A generator whose numbers depend on the seed alone.
    pub fn new(seed: u64) -> Random {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Random([next(), next(), next(), next()])
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Above 0, at most 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Below `n`, which is above 0.
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Of the standard normal distribution (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A time to be drawn: its mean and its coefficient of variation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// Picoseconds.
    pub mean: f64,
    /// Standard deviation over mean: 0 is always the mean, 1 is exponential, anything else lognormal.
    pub cv: f64,
}

impl Time {
    /// A constant time, in nanoseconds.
    pub fn fixed(ns: f64) -> Time {
        Time { mean: ns * 1e3, cv: 0.0 }
    }

    /// Exponentially distributed, mean in nanoseconds.
    pub fn exponential(ns: f64) -> Time {
        Time { mean: ns * 1e3, cv: 1.0 }
    }

    /// A time in picoseconds.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        if self.cv == 0.0 {
            self.mean as u64
        } else if self.cv == 1.0 {
            (-random.unit().ln() * self.mean) as u64
        } else {
            let v = (1.0 + self.cv * self.cv).ln();
            (self.mean * (v.sqrt() * random.normal() - 0.5 * v).exp()) as u64
        }
    }

    /// The same shape, longer by `factor`.
    pub fn times(self, factor: f64) -> Time {
        Time { mean: self.mean * factor, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations_are_those_asked_for() {
        for cv in [0.0, 0.5, 1.0, 2.0] {
            let mut random = Random::new(7);
            let time = Time { mean: 1e6, cv };
            let n = 400_000;
            let all: Vec<f64> = (0..n).map(|_| time.draw(&mut random) as f64).collect();
            let mean = all.iter().sum::<f64>() / n as f64;
            let sd = (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
            assert!((mean / 1e6 - 1.0).abs() < 0.01, "cv {cv}: mean {mean}");
            assert!((sd / 1e6 - cv).abs() < 0.05 * cv.max(0.1), "cv {cv}: {sd}");
        }
    }
}
