use std::time::*;
#[inline(never)]
fn answer(rows: Vec<String>) -> usize { rows.iter().map(|r| r.len()).sum() }
fn main() {
    let secs: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let rows: Vec<String> = (0..20_000).map(|i| format!("row number {i} of the table")).collect();
    let end = Instant::now() + Duration::from_secs(secs);
    let mut n = 0;
    while Instant::now() < end { n += answer(rows.clone()); }
    println!("{n}");
}
