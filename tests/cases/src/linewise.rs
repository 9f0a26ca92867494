// Rust's stdout flushes at each end of a line: a write call for each.
use std::io::Write;
use std::time::{Duration, Instant};
#[inline(never)]
fn export_row(out: &mut impl Write, i: u64) {
    writeln!(out, "{i},{}", i * 7).unwrap();
}
fn main() {
    let end = Instant::now() + Duration::from_secs_f64(std::env::args().nth(1).unwrap().parse().unwrap());
    let mut out = std::io::stdout().lock();
    let mut i = 0;
    while Instant::now() < end {
        for _ in 0..100 {
            export_row(&mut out, i);
            i += 1;
        }
    }
}
