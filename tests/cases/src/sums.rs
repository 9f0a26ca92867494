use std::time::*;
fn main() { let secs: u64 = std::env::args().nth(1).unwrap().parse().unwrap(); let end = Instant::now() + Duration::from_secs(secs);
 let t: Vec<_> = (0..2).map(|k| std::thread::spawn(move || { let mut v: Vec<u64> = (0..10_000).collect(); let mut s = k; while Instant::now() < end { for x in v.iter_mut() { *x = x.wrapping_mul(6364136223846793005).rotate_left(17); s ^= *x; } } s })).collect();
 for h in t { println!("{}", h.join().unwrap()); } }
