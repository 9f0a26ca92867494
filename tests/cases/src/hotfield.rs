// One field of 192 bytes is looked at in a scan of all particles. Twin "soa": the field stands in an array of its own.
use std::time::{Duration, Instant};
#[derive(Clone)]
pub struct Particle {
    pub name: [u8; 64],
    pub at: [f64; 3],
    pub speed: [f64; 3],
    pub charge: f64,
    pub id: u64,
    pub rest: [u64; 8],
}
#[inline(never)]
fn charge_of_all(p: &[Particle]) -> f64 {
    p.iter().map(|p| p.charge).sum()
}
#[inline(never)]
fn charge_of_column(p: &[f64]) -> f64 {
    p.iter().sum()
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let secs: f64 = a[1].parse().unwrap();
    let n = 400_000;
    let mut all =
        vec![Particle { name: [1; 64], at: [0.; 3], speed: [0.; 3], charge: 1., id: 0, rest: [0; 8] }; n];
    for (i, p) in all.iter_mut().enumerate() {
        p.charge = (i % 7) as f64;
        p.id = i as u64
    }
    let column: Vec<f64> = all.iter().map(|p| p.charge).collect();
    let end = Instant::now() + Duration::from_secs_f64(secs);
    let (mut rounds, mut sum) = (0u64, 0.0);
    while Instant::now() < end {
        sum += if a.len() > 2 { charge_of_column(&column) } else { charge_of_all(&all) };
        rounds += 1
    }
    eprintln!("{sum}");
    println!("{:.0}", rounds as f64 / secs);
}
