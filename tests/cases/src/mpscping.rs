use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
fn main() {
    let end = Instant::now() + Duration::from_secs_f64(std::env::args().nth(1).unwrap().parse().unwrap());
    let (ask, asked) = channel::<u64>(); let (answer, answered) = channel::<u64>();
    let server = std::thread::Builder::new().name("server".into()).spawn(move || { for q in asked { if answer.send(q + 1).is_err() { break; } } }).unwrap();
    let mut n = 0;
    while Instant::now() < end { ask.send(n).unwrap(); n = answered.recv().unwrap(); }
    drop(ask); server.join().unwrap(); println!("{n}");
}
