//! A file of perf, and the same file damaged.
//!
//! `data/burn.data` is of `perf record -e cpu-clock -F 199 -g --switch-events` (perf 6.1) of a program that worked 0.20 s by the clock of its
//! CPU time and slept ten times. It printed `three_parts 0.120 one_part 0.040 in_the_kernel 0.040 asleep 0.044; rusage user 0.163695 system
//! 0.038311`. `perf report -n` has 40 samples of it, 7 of them in the kernel; `perf script --show-switch-events` 400 switches.

use ncpu_perfdata::{Error, Imported, import};
use ncpu_table::Table;

const BURN: &[u8] = include_bytes!("data/burn.data");
/// A few records of `perf record -a`.
const MACHINE: &[u8] = include_bytes!("data/machine.data");

/// `perf record -e cpu-clock:u -F 99 -g` and `--call-graph dwarf,64` of a loop in `main` that was built without frame pointers.
const NO_FRAMES: &[u8] = include_bytes!("data/no_frames.data");
const COPIES: &[u8] = include_bytes!("data/copies.data");

fn table<'a>(imported: &'a Imported, name: &str) -> &'a Table {
    imported.tables.iter().find(|table| table.name() == name).unwrap()
}

fn sum(table: &Table, column: &str) -> f64 {
    (0..table.num_rows()).filter_map(|row| table.number(row, column)).sum()
}

#[test]
fn a_program_s_time_is_what_it_measured_itself() {
    let burn = import(BURN).unwrap();
    assert_eq!((burn.cpus, burn.machine, burn.host.as_str()), (2, false, "vm"));
    assert_eq!(burn.command[burn.command.len() - 2..], ["./burn", "0.04"]);
    assert!((burn.elapsed - 0.330).abs() < 0.001, "{}", burn.elapsed);
    let threads = table(&burn, "threads");
    assert_eq!((threads.num_rows(), threads.text(0, "process")), (1, Some("burn")));
    let rusage = 0.163695 + 0.038311;
    assert!((sum(threads, "CPU") - rusage).abs() < 0.02 * rusage, "{}", sum(threads, "CPU"));
    assert!((sum(threads, "OFF") - 0.044).abs() < 0.001, "{}", sum(threads, "OFF"));
    assert_eq!((sum(threads, "VCX"), sum(threads, "VCX") + sum(threads, "ICX")), (10.0, 200.0));
    // On CPU, asleep and runnable: all of its life.
    let life = sum(threads, "CPU") + sum(threads, "OFF") + sum(threads, "LAT");
    assert!((life - burn.elapsed).abs() < 1e-6, "{life} {}", burn.elapsed);
    assert!((sum(table(&burn, "cpu_time"), "target") - sum(threads, "CPU")).abs() < 1e-9);
    let samples = table(&burn, "samples");
    assert_eq!(sum(samples, "samples"), 40.0);
    let user = (0..samples.num_rows()).filter(|&row| samples.text(row, "class") == Some("user"));
    assert_eq!(user.filter_map(|row| samples.number(row, "samples")).sum::<f64>(), 33.0);
    let stacks = table(&burn, "stacks");
    let off = (0..stacks.num_rows()).filter(|&row| stacks.text(row, "kind") == Some("off-cpu"));
    let off: f64 = off.filter_map(|row| stacks.number(row, "seconds")).sum();
    assert!((off - sum(threads, "OFF") - sum(threads, "LAT")).abs() < 1e-9, "{off}");
    assert_eq!(table(&burn, "drops").num_rows(), 0);
    let notes = burn.notes.join("\n");
    assert!(notes.contains("the program alone") && !notes.contains("--switch-events"), "{notes}");
}

#[test]
fn other_files_are_refused_with_a_reason() {
    assert_eq!(import(b"").unwrap_err(), Error::NotPerf);
    assert_eq!(import(b"\x7fELF and more").unwrap_err(), Error::NotPerf);
    let pipe = [&BURN[..8], &16u64.to_le_bytes()].concat();
    assert!(import(&pipe).unwrap_err().to_string().contains("perf record -o"));
    // perf was killed: the length of the records is not in the header yet.
    let mut killed = BURN.to_vec();
    killed[48..56].fill(0);
    assert!(import(&killed).unwrap_err().to_string().contains("killed"));
    for length in 1..BURN.len() {
        assert!(import(&BURN[..length]).is_err(), "{length} bytes are a file");
    }
    // Sizes that overflow.
    for at in (8..104).step_by(8) {
        let mut huge = BURN.to_vec();
        huge[at..at + 8].fill(0xff);
        let _ = import(&huge);
    }
}

#[test]
fn times_of_all_threads_may_be_as_long_as_numbers_go() {
    // Words that are all ones: some are times, and then threads run for as long as a number can say.
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..200 {
        let mut bytes = MACHINE.to_vec();
        for _ in 0..4 {
            let at = random.usize(104..bytes.len() - 8) & !7;
            bytes[at..at + 8].fill(0xff);
        }
        let _ = import(&bytes);
    }
}

#[test]
fn damaged_files_are_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(99);
    for _ in 0..4000 {
        let mut bytes = if random.u8(..4) == 0 { BURN } else { MACHINE }.to_vec();
        for _ in 0..random.usize(1..8) {
            let at = random.usize(..bytes.len());
            match random.u8(..4) {
                0 => bytes[at] = random.u8(..),
                1 => bytes[at] ^= 1 << random.u8(..8),
                2 => {
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].fill(if random.bool() { 0xff } else { 0 });
                }
                _ => {
                    let end = (at + random.usize(..64)).min(bytes.len());
                    bytes.drain(at..end);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        let Ok(imported) = import(&bytes) else { continue };
        assert!(imported.elapsed.is_finite() && imported.elapsed >= 0.0);
        for (name, column) in [("threads", "CPU"), ("stacks", "seconds"), ("cpu_time", "target")] {
            let sum = sum(table(&imported, name), column);
            assert!(sum.is_finite() && sum >= 0.0, "{name} {column} {sum}");
        }
    }
}

#[test]
fn missing_callers_are_explained_by_how_perf_was_run() {
    for (bytes, says) in [(NO_FRAMES, "without frame pointers"), (COPIES, "--call-graph dwarf")] {
        let notes = import(bytes).unwrap().notes.join("\n");
        assert!(notes.contains("no callers") && notes.contains(says), "{notes}");
        assert!(!notes.contains("`perf record -g` records them"), "{notes}");
    }
    let notes = import(MACHINE).unwrap().notes.join("\n");
    assert!(!notes.contains("although perf looked"), "{notes}");
}
