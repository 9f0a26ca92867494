// Items are given to workers by a key that nearly all of them have in common.
use std::sync::mpsc::{sync_channel, SyncSender};
use std::time::{Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
#[inline(never)]
fn score(seed: u64) -> u64 { let mut x = seed | 1; for i in 0..60_000u64 { x ^= x << 13; x ^= x >> 7; x ^= x << 17; x = x.wrapping_add(i); } x }
#[inline(never)]
fn shard_of(tenant: u64, order: u64, n: usize, good: bool) -> usize { if good { (order % n as u64) as usize } else { (tenant % n as u64) as usize } }
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let secs: u64 = args[1].parse().unwrap();
    let good = args.get(2).map_or(false, |m| m == "good");
    let done = Arc::new(AtomicU64::new(0));
    let mut queues: Vec<SyncSender<u64>> = Vec::new();
    let mut threads = Vec::new();
    for i in 0..4 {
        let (tx, rx) = sync_channel::<u64>(64);
        queues.push(tx);
        let done = done.clone();
        threads.push(std::thread::Builder::new().name(format!("shard-{i}")).spawn(move || {
            while let Ok(item) = rx.recv() { std::hint::black_box(score(item)); done.fetch_add(1, Ordering::Relaxed); }
        }).unwrap());
    }
    let end = Instant::now() + Duration::from_secs(secs);
    let mut n = 0u64;
    while Instant::now() < end {
        n += 1;
        // Nineteen of twenty orders are of one tenant.
        let tenant = if n % 20 == 0 { n / 20 } else { 7 };
        queues[shard_of(tenant, n, 4, good)].send(n).unwrap();
    }
    println!("{} orders/s", done.load(Ordering::Relaxed) / secs);
    std::process::exit(0);
}
