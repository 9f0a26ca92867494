// Each request clones and drops one Arc: all threads write its count.
use std::sync::Arc;
use std::time::{Duration, Instant};
struct Config {
    limit: u64,
}
#[inline(never)]
fn handle(config: &Arc<Config>, n: u64) -> u64 {
    let mine = Arc::clone(config);
    std::hint::black_box(&mine).limit ^ n
}
fn main() {
    let end = Instant::now() + Duration::from_secs_f64(std::env::args().nth(1).unwrap().parse().unwrap());
    let config = Arc::new(Config { limit: 7 });
    let all: Vec<_> = (0..4)
        .map(|_| {
            let config = config.clone();
            std::thread::spawn(move || {
                let mut n = 0;
                while Instant::now() < end {
                    for i in 0..1000 {
                        n = handle(&config, n + i);
                    }
                }
                n
            })
        })
        .collect();
    println!("{}", all.into_iter().map(|t| t.join().unwrap() & 1).sum::<u64>());
}
