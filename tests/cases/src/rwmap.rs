// A map behind a read-write lock that is only read: each reader writes the count of readers.
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1.0);
    let map = Arc::new(RwLock::new((0..1000).map(|i| (i, i)).collect::<HashMap<u64, u64>>()));
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let read = |mut i: u64| {
        let map = map.clone();
        std::thread::spawn(move || {
            let mut sum = 0;
            while i % 1000 != 0 || Instant::now() < end {
                i += 1;
                sum += map.read().unwrap().get(&(i % 1000)).copied().unwrap_or(0);
            }
            sum
        })
    };
    let threads: Vec<_> = (0..4).map(read).collect();
    println!("{}", threads.into_iter().map(|t| t.join().unwrap()).fold(0, u64::wrapping_add));
}
