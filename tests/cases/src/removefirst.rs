// A queue in a Vec: taking the first element moves all others.
use std::time::{Duration, Instant};
#[inline(never)]
fn next_job(queue: &mut Vec<u64>) -> u64 { queue.remove(0) }
fn main() {
    let end = Instant::now() + Duration::from_secs_f64(std::env::args().nth(1).unwrap().parse().unwrap());
    let mut queue: Vec<u64> = (0..200_000).collect();
    let mut n = 0;
    while Instant::now() < end { let job = next_job(&mut queue); queue.push(job); n += job; }
    println!("{n}");
}
