use std::io::Read;
use std::time::{Duration, Instant};
#[inline(never)]
fn count_lines(path: &str) -> usize { std::fs::File::open(path).unwrap().bytes().take(20000).filter(|b| matches!(b, Ok(b'\n'))).count() }
fn main() {
    let end = Instant::now() + Duration::from_secs_f64(std::env::args().nth(1).unwrap().parse().unwrap());
    let mut n = 0;
    while Instant::now() < end { n += count_lines("/etc/services"); }
    println!("{n}");
}
