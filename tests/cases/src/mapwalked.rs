// Jobs wait in a map; the next one is the first of its iterator. Twin: the map is drained at once.
use std::collections::HashMap;
use std::time::{Duration, Instant};
struct Backlog { jobs: HashMap<u64, u64>, ready: Vec<(u64, u64)>, good: bool }
impl Backlog {
    #[inline(never)]
    fn refill(&mut self) { for i in 0..150_000u64 { self.jobs.insert(i.wrapping_mul(0x9E3779B97F4A7C15), i); } }
    #[inline(never)]
    fn take_any(&mut self) -> Option<(u64, u64)> {
        if self.good {
            if self.ready.is_empty() { self.ready.extend(self.jobs.drain()); }
            return self.ready.pop();
        }
        let id = *self.jobs.keys().next()?;
        self.jobs.remove_entry(&id)
    }
}
#[inline(never)]
fn work_on(job: (u64, u64)) -> u64 { let mut x = job.0 ^ job.1; for _ in 0..60 { x = x.rotate_left(7).wrapping_mul(0xD6E8FEB86659FD93); } x }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let good = a.get(2).map(|s| s == "twin").unwrap_or(false);
    let end = Instant::now() + Duration::from_secs_f64(a[1].parse().unwrap());
    let mut b = Backlog { jobs: HashMap::new(), ready: vec![], good };
    let (mut done, mut sum) = (0u64, 0u64);
    'all: loop {
        b.refill();
        while let Some(j) = b.take_any() {
            sum ^= work_on(j); done += 1;
            if done % 256 == 0 && Instant::now() > end { break 'all }
        }
    }
    println!("{done} jobs {}", sum & 1);
}
