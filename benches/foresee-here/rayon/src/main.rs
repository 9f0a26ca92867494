//! pool THREADS SECONDS: maps, sums and sorts 200,000 numbers by Rayon, over and over. Tells requests a second.

use rayon::prelude::*;
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<f64>().expect("a number"));
    let (threads, seconds) = (args.next().expect("threads"), args.next().expect("seconds"));
    rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build_global().expect("threads");
    let mut numbers: Vec<u64> = (0..200_000).collect();
    let (begun, mut done) = (Instant::now(), 0u64);
    while begun.elapsed().as_secs_f64() < seconds {
        numbers.par_iter_mut().for_each(|n| *n = n.rotate_left(7).wrapping_mul(0xD1342543DE82EF95) ^ done);
        std::hint::black_box(numbers.par_iter().map(|n| n % 1_000_003).sum::<u64>());
        numbers.par_sort_unstable();
        done += 1;
    }
    println!("{:.2} requests/s", done as f64 / begun.elapsed().as_secs_f64());
}
