use std::time::*;
#[inline(never)]
fn remember(log: &mut Vec<[u64; 4]>, n: u64) { log.insert(0, [n; 4]); }
fn main() {
    let secs: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let end = Instant::now() + Duration::from_secs(secs); let mut n = 0u64; let mut log = Vec::new();
    while Instant::now() < end { remember(&mut log, n); n += 1; if log.len() > 50_000 { log.clear(); } }
    println!("{n}");
}
