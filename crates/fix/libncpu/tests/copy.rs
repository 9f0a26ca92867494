//! Block copy and block zero: every pair of alignments and every length, edges of pages, by every routine that this
//! processor has. `LIBNCPU_STRESS=2` and above also gives every routine every length.

use libncpu::copy::{self, Routine, Tuning};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const PAGE: usize = 4096;
/// Value of bytes that must not be written.
const GUARD: u8 = 0xa5;

/// Something that copies, and its name.
type Copier = (&'static str, Box<dyn Fn(*mut u8, *const u8, usize) + Sync>);
/// Something that clears, and its name.
type Zeroer = (&'static str, Box<dyn Fn(*mut u8, usize) + Sync>);

/// The chosen one first.
fn copiers() -> Vec<Copier> {
    // SAFETY: callers give memory that is theirs, and apart.
    let chosen: Copier = ("chosen", Box::new(|to, from, n| unsafe { copy::copy(to, from, n) }));
    let forced = |routine: &'static Routine| -> Copier {
        // SAFETY: as above.
        (routine.name(), Box::new(|to, from, n| unsafe { routine.copy(to, from, n) }))
    };
    std::iter::once(chosen).chain(Routine::all().map(forced)).collect()
}

fn zeroers() -> Vec<Zeroer> {
    // SAFETY: callers give memory that is theirs.
    let chosen: Zeroer = ("chosen", Box::new(|to, n| unsafe { copy::fill_zero(to, n) }));
    let forced = |routine: &'static Routine| -> Zeroer {
        // SAFETY: as above.
        (routine.name(), Box::new(|to, n| unsafe { routine.zero(to, n) }))
    };
    std::iter::once(chosen).chain(Routine::all().map(forced)).collect()
}

/// Memory of whole pages between two inaccessible ones.
struct Pages {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(bytes: usize) -> Pages {
        let bytes = bytes.next_multiple_of(PAGE);
        // SAFETY: fresh memory, whose inner pages alone are opened.
        unsafe {
            let all = libc::mmap(
                std::ptr::null_mut(),
                bytes + 2 * PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(all, libc::MAP_FAILED);
            let base = all.byte_add(PAGE);
            assert_eq!(libc::mprotect(base, bytes, libc::PROT_READ | libc::PROT_WRITE), 0);
            Pages { base: base.cast(), bytes }
        }
    }

    /// Bytes that differ from their neighbours; `seed` gives others in every place.
    fn with_bytes(bytes: usize, seed: u8) -> Pages {
        let mut pages = Pages::new(bytes);
        for (i, byte) in pages.all_mut().iter_mut().enumerate() {
            *byte = (i as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0] ^ seed;
        }
        pages
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes);
        self.base.wrapping_add(offset)
    }

    fn all(&self) -> &[u8] {
        // SAFETY: open pages of our own.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: open pages of our own.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.base.byte_sub(PAGE).cast(), self.bytes + 2 * PAGE) };
    }
}

/// 0 to 4097, or only the lengths around which a routine changes its method.
fn lengths(all: bool) -> Vec<usize> {
    let near = |n: usize| {
        (0..=160).contains(&n)
            || n % 64 < 2 && n < 1200
            || n % 64 == 63 && n < 1200
            || n % 509 < 3
            || n > 4090
    };
    (0..=4097).filter(|&n| all || near(n)).collect()
}

/// Whether all bytes are this one; in debug builds much faster than an iterator.
fn are(bytes: &[u8], byte: u8) -> bool {
    bytes.is_empty() || bytes[0] == byte && bytes[1..] == bytes[..bytes.len() - 1]
}

fn stress() -> bool {
    std::env::var("LIBNCPU_STRESS").ok().and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n > 1)
}

/// Calls `body` with 0 to 63, from several threads.
fn alignments(body: impl Fn(usize) + Sync) {
    std::thread::scope(|s| {
        for thread in 0..4 {
            let body = &body;
            s.spawn(move || (thread..64).step_by(4).for_each(body));
        }
    });
}

#[test]
fn copies_of_every_alignment_and_length() {
    for (i, (name, copy)) in copiers().into_iter().enumerate() {
        let lengths = lengths(i == 0 || stress());
        // Copied alternately, so that every byte must be written each time.
        let sources = [0, 0xff].map(|seed| Pages::with_bytes(PAGE + 128, seed));
        alignments(|off_to| {
            let mut target = Pages::new(64 + 64 + PAGE + 1 + 64);
            for off_from in 0..64 {
                target.all_mut().fill(GUARD);
                for &n in &lengths {
                    let from = &sources[n % 2];
                    let start = 64 + off_to;
                    copy(target.at(start), from.at(off_from), n);
                    let target = target.all();
                    // Lengths grow, so bytes behind them are still unwritten.
                    assert!(
                        target[start..start + n] == from.all()[off_from..off_from + n]
                            && target[start - 64..start] == [GUARD; 64]
                            && target[start + n..start + n + 64] == [GUARD; 64],
                        "{name}: {n} bytes, source off by {off_from}, target by {off_to}"
                    );
                }
            }
        });
    }
}

#[test]
fn zeros_of_every_alignment_and_length() {
    for (name, zero) in zeroers() {
        alignments(|off| {
            let mut target = Pages::new(64 + 64 + PAGE + 1 + 64);
            for n in 0..=4097 {
                let start = 64 + off;
                target.all_mut()[start - 64..start + n + 64].fill(GUARD);
                zero(target.at(start), n);
                let target = target.all();
                assert!(
                    are(&target[start..start + n], 0)
                        && target[start - 64..start] == [GUARD; 64]
                        && target[start + n..start + n + 64] == [GUARD; 64],
                    "{name}: {n} bytes, off by {off}"
                );
            }
        });
    }
}

/// Lengths up to beyond the size from which whole pages are copied side by side.
fn long_lengths() -> impl Iterator<Item = usize> {
    (0..=4097).chain((4098..=5 * PAGE).step_by(97)).chain([2, 3, 4, 5].into_iter().flat_map(|pages| {
        let edge = pages * PAGE;
        [edge - 65, edge - 64, edge - 1, edge].into_iter().chain((edge < 5 * PAGE).then_some(edge + 1))
    }))
}

/// A read or write beyond a block's end, or before it, kills this test.
#[test]
fn nothing_beyond_the_edges_of_pages() {
    let bytes = 5 * PAGE;
    let sources = [0, 0xff].map(|seed| Pages::with_bytes(bytes, seed));
    let target = Pages::new(bytes);
    for (name, copy) in copiers() {
        for n in long_lengths() {
            for (at_end_from, at_end_to) in [(true, true), (true, false), (false, true), (false, false)] {
                let from = if at_end_from { bytes - n } else { 0 };
                let to = if at_end_to { bytes - n } else { 0 };
                let source = &sources[n % 2];
                copy(target.at(to), source.at(from), n);
                assert!(
                    target.all()[to..to + n] == source.all()[from..from + n],
                    "{name}: {n} bytes from {from} to {to}"
                );
            }
        }
    }
    for (name, zero) in zeroers() {
        for n in long_lengths() {
            for to in [bytes - n, 0] {
                zero(target.at(to), n);
                assert!(are(&target.all()[to..to + n], 0), "{name}: {n} bytes at {to}");
                // So that the next call must write it.
                // SAFETY: within both.
                unsafe { copy::copy(target.at(to), sources[0].at(0), n) };
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Blocks of all sizes anywhere: distances modulo a page decide the direction.
    #[test]
    fn blocks_anywhere(from in 0usize..9000, to in 0usize..9000, n in 0usize..70_000, seed: u8) {
        let source = Pages::with_bytes(80_000, seed);
        for (name, copy) in copiers() {
            let mut target = Pages::new(80_000);
            target.all_mut().fill(!seed);
            copy(target.at(to), source.at(from), n);
            let target = target.all();
            prop_assert!(target[to..to + n] == source.all()[from..from + n], "{}", name);
            prop_assert!(are(&target[..to], !seed) && are(&target[to + n..], !seed), "{}", name);
        }
    }

    #[test]
    fn zeros_anywhere(to in 0usize..9000, n in 0usize..70_000) {
        for (name, zero) in zeroers() {
            let mut target = Pages::new(80_000);
            target.all_mut().fill(GUARD);
            zero(target.at(to), n);
            let target = target.all();
            prop_assert!(are(&target[to..to + n], 0), "{}", name);
            prop_assert!(are(&target[..to], GUARD) && are(&target[to + n..], GUARD), "{}", name);
        }
    }

    /// A block copied in parts, as by threads.
    #[test]
    fn parts_of_a_large_block(cuts in proptest::collection::vec(0usize..60_000, 0..6), off in 0usize..64) {
        let source = Pages::with_bytes(60_064, 1);
        let target = Pages::new(60_064);
        let mut cuts = cuts;
        cuts.extend([0, 60_000]);
        cuts.sort_unstable();
        for part in cuts.windows(2) {
            // SAFETY: within both.
            unsafe {
                let (to, from) = (target.at(off + part[0]), source.at(part[0]));
                copy::copy_part(to, from, part[1] - part[0], usize::MAX - 1);
            }
        }
        prop_assert!(target.all()[off..off + 60_000] == source.all()[..60_000]);
        for part in cuts.windows(2) {
            // SAFETY: within it.
            unsafe { copy::zero_part(target.at(off + part[0]), part[1] - part[0], usize::MAX - 1) };
        }
        prop_assert!(are(&target.all()[off..off + 60_000], 0));
    }
}

#[test]
fn threads_copy_every_byte() {
    let bytes = (5 << 20) + 12_345;
    for (from, to, n) in
        [(0, 0, bytes), (1, 63, bytes - 100), (7, 4095, bytes - 5000), (3, 3, 100), (0, 0, 0)]
    {
        let source = Pages::with_bytes(bytes, 9);
        for threads in [0, 1, 2, 3, 7, 1000] {
            let mut target = Pages::new(bytes);
            target.all_mut().fill(GUARD);
            // SAFETY: within both.
            unsafe { copy::copy_parallel(target.at(to), source.at(from), n, threads) };
            let target = target.all();
            assert!(target[to..to + n] == source.all()[from..from + n], "{threads} threads, {n} bytes");
            assert!(are(&target[..to], GUARD) && are(&target[to + n..], GUARD));
        }
    }
}

/// A thread may find the routine of one tuning and the thresholds of another.
#[test]
fn tunings_change_while_others_copy() {
    let (stop, before) = (AtomicBool::new(false), Tuning::current());
    std::thread::scope(|s| {
        for seed in 1..4 {
            let stop = &stop;
            s.spawn(move || {
                let source = Pages::with_bytes(40_000, seed);
                let target = Pages::new(40_000);
                let mut n = 0;
                while !stop.load(Relaxed) {
                    n = (n * 5 + 7919) % 40_000;
                    // SAFETY: within both.
                    unsafe { copy::fill_zero(target.at(0), n) };
                    assert!(are(&target.all()[..n], 0));
                    // SAFETY: within both.
                    unsafe { copy::copy(target.at(0), source.at(0), n) };
                    assert!(target.all()[..n] == source.all()[..n]);
                }
            });
        }
        let vectors: Vec<_> = Routine::all()
            .filter(|routine| ["avx512", "avx2", "sse2", "neon"].contains(&routine.name()))
            .collect();
        for i in 0..2000 {
            let sizes = [200, 1000, 9000, usize::MAX];
            let [rep, stream] = [sizes[i % 4], sizes[i / 4 % 4]];
            Tuning { vectors: vectors[i % vectors.len()], rep, stream, zero_rep: stream, zero_stream: rep }
                .set();
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
    before.set();
    assert_eq!(Tuning::current().to_string(), before.to_string());
}

/// Run by [`report_of`] in a process of its own.
#[test]
#[ignore = "run by another test"]
fn tells_its_tuning() {
    let (from, mut to) = (vec![3; 5000], vec![0; 5000]);
    copy::copy_slice(&mut to, &from);
    assert_eq!(from, to);
    println!("tuning {}", Tuning::current());
}

/// The tuning of a process with this `NCPU_COPY`, and its output on standard error.
fn report_of(value: &str) -> (String, String) {
    let mut own = std::process::Command::new(std::env::current_exe().expect("own path"));
    // Under an emulator the new process is emulated too.
    if let (true, Ok(runner)) =
        (cfg!(target_arch = "aarch64"), std::env::var("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"))
    {
        let mut words = runner.split_whitespace();
        let mut emulated = std::process::Command::new(words.next().expect("a runner"));
        emulated.args(words).arg(own.get_program());
        own = emulated;
    }
    let done = own
        .args(["--exact", "tells_its_tuning", "--ignored", "--nocapture"])
        .env("NCPU_COPY", value)
        .output()
        .expect("run this test's program");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{out}{err}");
    let tuning = out.split("tuning ").nth(1).and_then(|rest| rest.split_whitespace().next());
    (tuning.unwrap_or_else(|| panic!("{out}")).to_owned(), err.into_owned())
}

#[test]
fn the_environment_tells_thresholds() {
    let vectors = Routine::all().last().expect("a routine").name().trim_end_matches("-stream");
    let (tuning, complaint) =
        report_of(&format!("vectors={vectors},rep=4k,stream=1m,zero-rep=300,zero-stream=never"));
    let wanted = format!("vectors={vectors},rep=4096,stream=1048576,zero-rep=300,zero-stream=never");
    assert_eq!((tuning, complaint), (wanted, String::new()));
}

#[test]
fn a_wrong_environment_is_told() {
    let (tuning, complaint) = report_of("stream=2m,rep=lots");
    assert!(tuning.contains(",stream=2097152,"), "{tuning}");
    assert_eq!(
        complaint,
        "libncpu: NCPU_COPY: \"rep=lots\" is ignored: invalid size; expected bytes like 4096, 16k, 8m, or never\n"
    );
    // A longer value: cut off, not lost.
    let (_, complaint) = report_of(&"x".repeat(1000));
    assert!(complaint.starts_with("libncpu: NCPU_COPY: \"xxx") && complaint.ends_with("x\n"), "{complaint}");
}

#[test]
fn slices() {
    let mut to = [1u8; 300];
    copy::copy_slice(&mut to, &[2; 300]);
    assert_eq!(to, [2; 300]);
    copy::zero_slice(&mut to[1..299]);
    assert_eq!((to[0], to[299], to[1..299].iter().max()), (2, 2, Some(&0)));
    copy::copy_slice(&mut [], &[]);
}

#[test]
#[should_panic = "lengths of target and source differ"]
fn slices_of_different_lengths() {
    copy::copy_slice(&mut [0; 3], &[0; 4]);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic = "the blocks overlap"]
fn overlap_is_found_in_debug_builds() {
    let mut bytes = [0u8; 100];
    let to = bytes.as_mut_ptr();
    // SAFETY: within the array; the contract that is broken here is checked first.
    unsafe { copy::copy(to, to.add(99).cast_const().sub(1), 99) };
}
