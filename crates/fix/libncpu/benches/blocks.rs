//! Zeroing and scanning of a large block beside memset and a plain loop, in one run, interleaved:
//! `cargo bench -p libncpu --bench blocks -- [MIB [ROUNDS]]`.

use libncpu::blocks::{fill_at, scan};
use libncpu::populate::{Access, Helpers, Segment, SegmentOptions, populate};
use std::hint::black_box;
use std::time::Instant;

type Way<'a> = (String, Box<dyn Fn() + 'a>);

fn main() {
    // Cargo says --bench.
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let bytes = numbers.first().copied().unwrap_or(1024) << 20;
    let rounds = numbers.get(1).copied().unwrap_or(11);
    let segment = Segment::create(bytes, &SegmentOptions::default()).expect("memory");
    let (at, bytes) = (segment.as_ptr(), segment.len());
    populate(at, bytes, Access::Write, Helpers::default()).expect("memory");
    // SAFETY: initialised by the kernel, and written only between uses of the slice.
    let memory = || unsafe { std::slice::from_raw_parts(at, bytes) };
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut threads: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|&n| n < cpus).collect();
    threads.push(cpus);
    // SAFETY: the whole segment is ours.
    let zero = |threads: usize| move || unsafe { fill_at(at, bytes, 0, Helpers(threads - 1)) };
    let mut zeroing: Vec<Way> =
        // SAFETY: as above.
        vec![("memset".into(), Box::new(|| unsafe { std::ptr::write_bytes(at, black_box(0), bytes) }))];
    // A comparison word by word that stops at the first difference, as programs write it.
    let mut scanning: Vec<Way> = vec![(
        "loop".into(),
        Box::new(|| {
            let (words, _) = memory().as_chunks::<8>();
            assert_eq!(black_box(words.iter().position(|word| u64::from_ne_bytes(*word) != 0)), None);
        }),
    )];
    for &n in &threads {
        zeroing.push((format!("zero, {n} threads"), Box::new(zero(n))));
        scanning.push((
            format!("scan, {n} threads"),
            Box::new(move || assert_eq!(black_box(scan(memory(), 0, Helpers(n - 1))).first, None)),
        ));
    }
    println!("{:<18} {:>8} {:>6}   {} MiB, median of {rounds}", "", "GB/s", "ratio", bytes >> 20);
    for ways in [zeroing, scanning] {
        let mut seconds = vec![Vec::new(); ways.len()];
        for _ in 0..=rounds {
            for ((_, way), seconds) in ways.iter().zip(&mut seconds) {
                let begin = Instant::now();
                way();
                seconds.push(begin.elapsed().as_secs_f64());
            }
        }
        // The first round warms up.
        let median = |seconds: &[f64]| {
            let mut seconds = seconds[1..].to_vec();
            seconds.sort_by(f64::total_cmp);
            seconds[seconds.len() / 2]
        };
        let first = median(&seconds[0]);
        for ((name, _), seconds) in ways.iter().zip(&seconds) {
            let seconds = median(seconds);
            println!("{name:<18} {:>8.2} {:>6.2}", bytes as f64 / seconds / 1e9, first / seconds);
        }
    }
}
