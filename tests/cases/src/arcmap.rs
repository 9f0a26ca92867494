// Eight threads count in one Arc<Mutex<HashMap>>.
use std::{collections::HashMap, sync::{Arc, Mutex}, time::{Duration, Instant}};
#[inline(never)]
fn record_hit(map: &Mutex<HashMap<u64, u64>>, key: u64) { let mut m = map.lock().unwrap(); *m.entry(key % 1000).or_default() += 1; }
fn main() {
    let end = Instant::now() + Duration::from_secs(std::env::args().nth(1).unwrap().parse().unwrap());
    let map = Arc::new(Mutex::new(HashMap::new()));
    let threads: Vec<_> = (0..8u64).map(|i| { let map = map.clone(); std::thread::spawn(move || { let mut x = i + 1; while Instant::now() < end { for _ in 0..100 { x = x.wrapping_mul(6364136223846793005).wrapping_add(1); record_hit(&map, x >> 33); } } }) }).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}
