use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static TESTED: AtomicU64 = AtomicU64::new(0);

fn mul_mod(a: u64, b: u64, n: u64) -> u64 {
    (a as u128 * b as u128 % n as u128) as u64
}

fn pow_mod(mut base: u64, mut exponent: u64, n: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = mul_mod(result, base, n);
        }
        base = mul_mod(base, base, n);
        exponent >>= 1;
    }
    result
}

struct Montgomery {
    n: u64,
    inverse: u64,
    one: u64,
    square: u64,
}

impl Montgomery {
    fn new(n: u64) -> Self {
        let mut inverse = n;
        for _ in 0..6 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(inverse)));
        }
        let one = (u64::MAX % n) + 1;
        let square = (one as u128 * one as u128 % n as u128) as u64;
        Montgomery { n, inverse: inverse.wrapping_neg(), one, square }
    }

    fn mul(&self, a: u64, b: u64) -> u64 {
        let t = a as u128 * b as u128;
        let m = (t as u64).wrapping_mul(self.inverse);
        let (sum, over) = t.overflowing_add(m as u128 * self.n as u128);
        let high = (sum >> 64) as u64;
        if over || high >= self.n { high.wrapping_sub(self.n) } else { high }
    }

    fn pow(&self, base: u64, mut exponent: u64) -> u64 {
        let mut base = self.mul(base, self.square);
        let mut result = self.one;
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = self.mul(result, base);
            }
            base = self.mul(base, base);
            exponent >>= 1;
        }
        self.mul(result, 1)
    }
}

fn probably_prime(n: u64, montgomery: bool) -> bool {
    let context = Montgomery::new(n);
    [2, 3, 5, 7].iter().all(|&witness| {
        let rest = if montgomery { context.pow(witness, n - 1) } else { pow_mod(witness, n - 1, n) };
        rest == 1
    })
}

fn search(first: u64, until: Instant, montgomery: bool) -> u64 {
    let (mut candidate, mut found) = (first | 1, 0);
    while Instant::now() < until {
        for _ in 0..64 {
            found += probably_prime(candidate, montgomery) as u64;
            candidate += 2;
        }
        TESTED.fetch_add(64, Ordering::Relaxed);
    }
    found
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seconds: f64 = args[1].parse().unwrap();
    let montgomery = args.len() > 2;
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let threads: Vec<_> = (0..std::thread::available_parallelism().unwrap().get() as u64)
        .map(|i| std::thread::spawn(move || search((1 << 62) + (i << 40), until, montgomery)))
        .collect();
    let found: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    println!("{} tested, {} primes", TESTED.load(Ordering::Relaxed), found);
}
