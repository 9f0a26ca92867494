//! Kernel locks counted in windows, and the waits between them. Skipped without root or BPF.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{Seen, allowed, observe, part};
use ncpu_engine::engine::{Config, Probes};

/// A window of 5 ms in each 25 ms, however few the contentions are and however they wait.
fn windows(config: &mut Config) {
    config.lock_windows = Some([Duration::from_millis(5), Duration::from_millis(25)]);
}

fn auto(config: &mut Config) {
    config.probes = Probes::Auto;
}

fn noted(seen: &Seen, words: &str) -> bool {
    seen.notes.iter().any(|note| note.contains(words))
}

fn capacity(seen: &Seen) -> f64 {
    let mut cpus: Vec<_> = seen.rows("cpu_time").filter_map(|(t, r)| t.int(r, "CPU")).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus.len() as f64 * seen.elapsed
}

fn assert_sums(seen: &Seen) {
    let states = ["idle", "target", "other", "ncpu", "spin", "hardirq", "softirq", "tlb"];
    let sum: f64 = states.iter().map(|s| seen.sum("cpu_time", s)).sum();
    let capacity = capacity(seen);
    assert!((0.99..1.0005).contains(&(sum / capacity)), "{sum} CPU-s of a capacity of {capacity}");
}

#[test]
fn the_sums_stay_exact_while_contentions_are_counted_in_windows() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("torture"), windows);
    assert_sums(&seen);
    // A CPU that waits when a window closes is not taken to wait from then on.
    let (spin, capacity) = (seen.sum("cpu_time", "spin"), capacity(&seen));
    assert!(spin < 0.35 * capacity, "{spin} CPU-s in traced waits, in a fifth of {capacity}");
    let (count, counted) = (seen.sum("locks", "count"), seen.sum("locks", "counted"));
    if counted < 1000.0 {
        return eprintln!("skipped: the threads hardly met for a lock ({counted} times)");
    }
    // Windows come late, and last longer, where the observer waits for a CPU.
    assert!((1.2..40.0).contains(&(count / counted)), "{counted} scaled to {count}");
    let error = seen.sum("locks", "error");
    assert!(error > 0.0 && error < 3.0 * count, "{count} +- {error}");
}

#[test]
fn one_hot_spinlock_is_counted_in_windows_unless_all_are_asked_for() {
    // How long the windows may be is a matter of how often two threads meet, on this machine and at the moment.
    const SCALED: f64 = 1.1;
    let Some(_one) = allowed() else { return };
    let of = |seen: &Seen| ["count", "counted", "error"].map(|c| seen.sum("locks", c));
    let mut seen = observe(&part("torture"), auto);
    // Beside other programs the observer may not get a CPU in time.
    for _ in 0..4 {
        assert_sums(&seen);
        let [count, counted, _] = of(&seen);
        if count > SCALED * counted {
            break;
        }
        seen = observe(&part("torture"), auto);
    }
    let [count, counted, error] = of(&seen);
    // Windows that scale the count were opened for many.
    if count <= SCALED * counted && count < 100_000.0 * seen.elapsed {
        return eprintln!("skipped: the threads hardly met for a lock ({count} times)");
    }
    assert!(noted(&seen, "in short windows") && noted(&seen, "--probes all"), "{:#?}", seen.notes);
    assert!(count > SCALED * counted && error > 0.0, "{counted} scaled to {count} +- {error}");
    // The spinning between windows is in the samples.
    let spun = |stack: &str| stack.contains("queued_spin_lock_slowpath");
    let kinds = ["on-cpu", "spin"].map(|kind| seen.seconds_in(kind, spun));
    assert!(kinds.iter().sum::<f64>() > 0.0, "{:#?}", seen.stacks());
    let all = observe(&part("torture"), |config| config.probes = Probes::All);
    assert!(!noted(&all, "in short windows"), "{:#?}", all.notes);
    assert_eq!(
        (all.sum("locks", "counted"), all.sum("locks", "error")),
        (all.sum("locks", "count"), 0.0),
        "exact"
    );
    let off = observe(&part("torture"), |config| config.probes = Probes::Off);
    assert_eq!(off.sum("locks", "count"), 0.0);
}

/// Where the part `sleep_for_memory` writes the seconds that its threads slept, by their own clocks.
struct Own(PathBuf);

impl Own {
    fn new() -> Own {
        let file = std::env::temp_dir().join(format!("ncpu-windows-{}", std::process::id()));
        // SAFETY: no other thread of this test reads the environment at the moment: one observes at a time.
        unsafe { std::env::set_var("NCPU_TEST_SLEPT", &file) };
        Own(file)
    }

    fn seconds(&self) -> f64 {
        std::fs::read_to_string(&self.0).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Missing where the part has failed, which the test says.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn lck(seen: &Seen) -> f64 {
    let of = seen.rows("threads").filter(|(t, r)| t.text(*r, "thread") == Some("sleeper"));
    of.filter_map(|(t, r)| t.number(r, "LCK")).sum()
}

fn of_rwsem(seen: &Seen, column: &str) -> f64 {
    let rwsem = |(t, r): &(&ncpu_table::Table, usize)| {
        t.text(*r, "type").is_some_and(|kind| kind.starts_with("rwsem"))
    };
    seen.rows("locks").filter(rwsem).filter_map(|(t, r)| t.number(r, column)).sum()
}

#[test]
fn threads_that_sleep_for_a_lock_are_known_whether_it_is_traced_or_not() {
    let Some(_one) = allowed() else { return };
    let own = Own::new();
    // Most of these waits sleep: they stay traced.
    let seen = observe(&part("sleep_for_memory"), auto);
    let slept = own.seconds();
    if slept < 0.2 {
        return eprintln!("skipped: the threads hardly met for a lock: {slept} s");
    }
    assert!(!noted(&seen, "in short windows"), "{:#?}", seen.notes);
    assert_eq!(of_rwsem(&seen, "counted"), of_rwsem(&seen, "count"));
    let part_of = lck(&seen) / slept;
    assert!((0.9..1.1).contains(&part_of), "LCK {} s, by their own clocks {slept} s", lck(&seen));
    // And in windows, whatever they do.
    let seen = observe(&part("sleep_for_memory"), windows);
    let slept = own.seconds();
    let (count, counted) = (of_rwsem(&seen, "count"), of_rwsem(&seen, "counted"));
    let block = of_rwsem(&seen, "block");
    let said = format!(
        "LCK {} s, by their own clocks {slept} s; {counted} waits scaled to {count}, {block} s",
        lck(&seen)
    );
    eprintln!("{said}");
    assert!(counted < 0.6 * count, "{said}");
    assert!((0.9..1.1).contains(&(lck(&seen) / slept)), "{said}");
    // Counted when they begin, and whole when they outlast their window. They hold what run queues took, too.
    assert!(block > 0.5 * slept && block < 2.0 * slept, "{said}");
    assert_sums(&seen);
}

/// Programs that are observed: this test's executable plays them.
mod parts {
    use std::time::{Duration, Instant};

    #[test]
    #[ignore = "a part played under observation"]
    fn torture() {
        let until = Instant::now() + Duration::from_millis(1500);
        std::thread::scope(|scope| {
            for to in 500..504 {
                scope.spawn(move || {
                    while Instant::now() < until {
                        for _ in 0..100 {
                            // SAFETY: a number far above any descriptor in use; the copy is closed at once.
                            unsafe {
                                libc::dup2(0, to);
                                libc::close(to);
                            }
                        }
                    }
                });
            }
        });
    }

    /// Seconds that this thread neither ran nor stood on a run queue, since it began to count.
    struct Slept {
        began: Instant,
        before: f64,
    }

    impl Slept {
        /// Seconds on CPU and on run queues.
        fn ran() -> f64 {
            let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            text.split_whitespace().take(2).map(|ns| ns.parse::<f64>().unwrap() / 1e9).sum()
        }

        fn begin() -> Slept {
            Slept { before: Slept::ran(), began: Instant::now() }
        }

        fn seconds(&self) -> f64 {
            self.began.elapsed().as_secs_f64() - (Slept::ran() - self.before)
        }
    }

    /// Threads map and unmap memory of one process, with its lock held while pages are populated.
    #[test]
    #[ignore = "a part played under observation"]
    fn sleep_for_memory() {
        const BYTES: usize = 1 << 20;
        let sleep = || {
            let slept = Slept::begin();
            let until = Instant::now() + Duration::from_secs(2);
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            while Instant::now() < until {
                // SAFETY: a fresh mapping, which nobody else has.
                unsafe {
                    let at = libc::mmap(std::ptr::null_mut(), BYTES, prot, flags | libc::MAP_POPULATE, -1, 0);
                    assert_ne!(at, libc::MAP_FAILED);
                    libc::munmap(at, BYTES);
                }
            }
            slept.seconds()
        };
        let slept: f64 = std::thread::scope(|scope| {
            let spawn = |_| std::thread::Builder::new().name("sleeper".into()).spawn_scoped(scope, sleep);
            let threads: Vec<_> = (0..4).map(spawn).collect();
            threads.into_iter().map(|thread| thread.unwrap().join().unwrap()).sum()
        });
        std::fs::write(std::env::var_os("NCPU_TEST_SLEPT").unwrap(), slept.to_string()).unwrap();
    }
}
