//! Block copy and block zero beside libc's, the compiler's and the processor's own, by size and alignment.

use super::Options;
use libncpu::copy::{self, Routine, Tuning};
use ncpu::copy::ncpu_copy;
use std::hint::black_box;
use std::time::Instant;

/// Offset of the target, offset of the source, bytes.
type Block = (usize, usize, usize);

/// Copies or clears one block after another, from the second pointer to the first.
type Run = Box<dyn Fn(*mut u8, *const u8, &[Block])>;

/// A way to copy, or to clear.
struct Subject {
    name: &'static str,
    /// The least number of bytes for which it is measured.
    least: usize,
    run: Run,
}

/// Each subject has its own loop around `one`, so that `one` can be inlined.
fn subject(name: &'static str, one: impl Fn(*mut u8, *const u8, usize) + 'static) -> Subject {
    let run = move |to: *mut u8, from: *const u8, blocks: &[Block]| {
        for &(off_to, off_from, n) in blocks {
            one(to.wrapping_add(black_box(off_to)), from.wrapping_add(black_box(off_from)), black_box(n));
        }
    };
    Subject { name, least: 0, run: Box::new(run) }
}

/// The least number of bytes for which threads are measured.
const PARALLEL: usize = 16 << 20;

#[allow(clippy::undocumented_unsafe_blocks)] // `table` gives memory that is large enough for its blocks, and apart.
fn copiers() -> Vec<Subject> {
    let c_copy = black_box(ncpu_copy as unsafe extern "C" fn(_, _, _) -> _);
    let mut all = vec![
        subject("ncpu", |to, from, n| unsafe { copy::copy(to, from, n) }),
        subject("memcpy", |to, from, n| unsafe {
            libc::memcpy(to.cast(), from.cast(), n);
        }),
        subject("std", |to, from, n| unsafe { std::ptr::copy_nonoverlapping(from, to, n) }),
        // As in C: not inlined.
        subject("ncpu_copy", move |to, from, n| unsafe {
            c_copy(to.cast(), from.cast(), n);
        }),
    ];
    all.extend(
        Routine::all()
            .map(|routine| subject(routine.name(), |to, from, n| unsafe { routine.copy(to, from, n) })),
    );
    let parallel = subject("parallel", |to, from, n| unsafe { copy::copy_parallel(to, from, n, 0) });
    all.push(Subject { least: PARALLEL, ..parallel });
    all
}

#[allow(clippy::undocumented_unsafe_blocks)] // As above.
fn zeroers() -> Vec<Subject> {
    let mut all = vec![
        subject("ncpu", |to, _, n| unsafe { copy::fill_zero(to, n) }),
        subject("memset", |to, _, n| unsafe {
            libc::memset(to.cast(), 0, n);
        }),
        subject("std", |to, _, n| unsafe { to.write_bytes(0, n) }),
    ];
    all.extend(
        Routine::all().map(|routine| subject(routine.name(), |to, _, n| unsafe { routine.zero(to, n) })),
    );
    all
}

/// Populated memory.
fn memory(bytes: usize) -> *mut u8 {
    // SAFETY: fresh memory, which the process keeps.
    unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED, "no memory for {bytes} bytes");
        at.cast::<u8>().write_bytes(1, bytes);
        at.cast()
    }
}

/// Gigabytes a second.
fn sample(subject: &Subject, to: *mut u8, from: *const u8, blocks: &[Block], options: &Options) -> f64 {
    (subject.run)(to, from, blocks);
    let (start, mut rounds) = (Instant::now(), 0);
    loop {
        (subject.run)(to, from, blocks);
        rounds += 1;
        let elapsed = start.elapsed();
        // This table has many more cells than the others, and no thread waits in them.
        if elapsed >= options.time / 20 {
            let bytes: usize = blocks.iter().map(|block| block.2).sum();
            return (bytes * rounds) as f64 / elapsed.as_secs_f64() / 1e9;
        }
    }
}

/// Small blocks of mixed sizes, at mixed alignments, as programs have them: half are of up to 32 bytes.
fn mixed() -> Vec<Block> {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below) as usize
    };
    (0..4096).map(|i| (random(64), random(64), random(if i % 2 == 0 { 32 } else { 512 }) + 1)).collect()
}

fn table(name: &str, about: &str, subjects: Vec<Subject>, two: bool, options: &Options) {
    let subjects: Vec<_> = subjects.into_iter().filter(|subject| options.wants(subject.name)).collect();
    let (measured, ns) = Tuning::measured();
    println!("{name}: {about}; ratio: the first over the second\n{}", Tuning::current());
    println!("measured as on an unknown processor, in {} us: {measured}", ns / 1000);
    print!("{:>10} {:>7}", "size", "off");
    for subject in &subjects {
        print!(" {:>width$}", subject.name, width = subject.name.len().max(7));
    }
    println!(" {:>6}", "ratio");
    let largest = options.sizes.iter().copied().max().unwrap_or(0).max(512) + 4096;
    let (to, from) = (memory(largest), memory(largest));
    let offsets: &[(usize, usize)] = if two { &[(0, 0), (1, 0), (0, 1), (1, 1)] } else { &[(0, 0), (1, 1)] };
    let mut rows: Vec<(String, String, Vec<Block>)> = Vec::new();
    for &size in &options.sizes {
        for &(off_from, off_to) in offsets {
            let off = if two { format!("{off_from}/{off_to}") } else { off_to.to_string() };
            let repeats = (65_536 / size.max(1)).clamp(1, 1024);
            rows.push((size.to_string(), off, vec![(off_to, off_from, size); repeats]));
        }
    }
    rows.push(("1 to 512".into(), "any".into(), mixed()));
    for (size, off, blocks) in rows {
        let mut rates = vec![Vec::new(); subjects.len()];
        for _ in 0..options.rounds {
            for (subject, rates) in subjects.iter().zip(&mut rates) {
                if blocks[0].2 >= subject.least {
                    rates.push(sample(subject, to, from, &blocks, options));
                }
            }
        }
        print!("{size:>10} {off:>7}");
        let mut shown = Vec::new();
        for (subject, rates) in subjects.iter().zip(rates) {
            let width = subject.name.len().max(7);
            if rates.is_empty() {
                print!(" {:>width$}", "-");
            } else {
                shown.push(options.pick(&rates));
                print!(" {:>width$.2}", shown[shown.len() - 1]);
            }
        }
        match shown[..] {
            [first, second, ..] => println!(" {:>6.2}", first / second),
            _ => println!(),
        }
    }
    println!();
    // SAFETY: mapped above, used no more.
    unsafe {
        libc::munmap(to.cast(), largest);
        libc::munmap(from.cast(), largest);
    }
}

/// The requested tables.
pub fn tables(options: &Options) {
    if options.wants_group("copy") {
        let about = "GB/s (1e9 bytes) by size and bytes that source/target are off a line";
        table("copy", about, copiers(), true, options);
    }
    if options.wants_group("zero") {
        table("zero", "GB/s (1e9 bytes) by size and bytes off a line", zeroers(), false, options);
    }
}
