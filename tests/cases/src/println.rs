// println! in four threads: one mutex around stdout, and a write for each line.
use std::time::{Duration, Instant};
fn main() {
    let end = Instant::now() + Duration::from_secs(std::env::args().nth(1).unwrap().parse().unwrap());
    let print = move |i: u64| { let mut x = i; while Instant::now() < end { x = (0..300).fold(x, |a, b: u64| a.wrapping_mul(6364136223846793005).wrapping_add(b)); println!("{i}: {x:x}"); } };
    let threads: Vec<_> = (0..4).map(|i| std::thread::spawn(move || print(i))).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}
