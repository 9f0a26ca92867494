// Two threads split lines and read numbers.
use std::time::{Duration, Instant};
#[inline(never)]
fn parse_line(line: &str) -> (u64, f64) {
    let (mut number, mut price) = (0, 0.0);
    for (i, field) in line.split(',').enumerate() {
        match i {
            0 => number = field.parse().unwrap_or(0),
            3 => price = field.parse().unwrap_or(0.0),
            _ => number ^= field.len() as u64,
        }
    }
    (number, price)
}
fn main() {
    let seconds: f64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let text: String = (0..5000).map(|i| format!("{i},name{},city{},{i}.{}\n", i * 7, i % 97, i % 100)).collect();
    let read = |text: String| move || {
        let mut sum = 0.0;
        while Instant::now() < end {
            sum += text.lines().map(|line| parse_line(line).1).sum::<f64>();
        }
        sum
    };
    let other = std::thread::spawn(read(text.clone()));
    println!("{} {}", read(text)(), other.join().unwrap());
}
