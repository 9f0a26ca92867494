// Visits counted in a HashMap with integer keys and the standard hasher (SipHash-1-3). `twin`: a multiplicative hasher.
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};
#[derive(Default, Clone)]
struct Fx(u64);
impl Hasher for Fx {
    fn write(&mut self, bytes: &[u8]) { for b in bytes { self.write_u64(*b as u64) } }
    fn write_u32(&mut self, x: u32) { self.write_u64(x as u64) }
    fn write_u64(&mut self, x: u64) { self.0 = (self.0.rotate_left(5) ^ x).wrapping_mul(0x517cc1b727220a95) }
    fn finish(&self) -> u64 { self.0.rotate_left(20) }
}
#[derive(Hash, PartialEq, Eq, Clone, Copy)]
struct Key { site: u32, page: u32, user: u64 }
#[inline(never)]
fn count_visits<S: BuildHasher>(counts: &mut HashMap<Key, u32, S>, seed: &mut u64) {
    for _ in 0..1000 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = (*seed >> 33) as u32;
        *counts.entry(Key { site: x & 15, page: (x >> 4) & 31, user: 7 }).or_default() += 1;
    }
}
fn serve<S: BuildHasher + Default>(until: Instant, mut seed: u64) -> u64 {
    let mut counts: HashMap<Key, u32, S> = HashMap::default();
    let mut n = 0;
    while Instant::now() < until { count_visits(&mut counts, &mut seed); n += 1000; }
    n + counts.len() as u64 % 2
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let secs: f64 = args[1].parse().unwrap();
    let twin = args.get(2).is_some_and(|a| a == "twin");
    let until = Instant::now() + Duration::from_secs_f64(secs);
    let threads: Vec<_> = (0..2).map(|t| std::thread::spawn(move || if twin { serve::<BuildHasherDefault<Fx>>(until, t) } else { serve::<std::hash::RandomState>(until, t) })).collect();
    let n: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    println!("{:.1} M visits/s", n as f64 / secs / 1e6);
}
