//! Sleeps of threads that sleep often, followed in windows and timed always. Skipped without root or BPF.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{Seen, allowed, observe, part};
use ncpu_engine::engine::{Config, Probes};

/// A window of 5 ms in each 25 ms, whatever the budget says.
fn windows(config: &mut Config) {
    config.probes = Probes::Auto;
    config.switch_windows = Some([Duration::from_millis(5), Duration::from_millis(25)]);
}

fn noted(seen: &Seen) -> bool {
    seen.notes.iter().any(|note| note.starts_with("switches: ") && note.contains("--probes all"))
}

fn assert_sums(seen: &Seen) {
    let states = ["idle", "target", "other", "ncpu", "spin", "hardirq", "softirq", "tlb"];
    let sum: f64 = states.iter().map(|s| seen.sum("cpu_time", s)).sum();
    let mut cpus: Vec<_> = seen.rows("cpu_time").filter_map(|(t, r)| t.int(r, "CPU")).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let capacity = cpus.len() as f64 * seen.elapsed;
    assert!((0.99..1.0005).contains(&(sum / capacity)), "{sum} CPU-s of a capacity of {capacity}");
}

/// Where the part `wake_each_other` writes what its threads know of themselves.
struct Own(PathBuf);

impl Own {
    fn new() -> Own {
        let file = std::env::temp_dir().join(format!("ncpu-switches-{}", std::process::id()));
        // SAFETY: no other thread of this test reads the environment at the moment: one observes at a time.
        unsafe { std::env::set_var("NCPU_TEST_OWN", &file) };
        Own(file)
    }

    /// Waits, and seconds on CPU, on run queues and asleep, of all threads.
    fn sums(&self) -> [f64; 4] {
        let text = std::fs::read_to_string(&self.0).unwrap();
        let mut sums = [0.0; 4];
        for line in text.lines() {
            sums.iter_mut().zip(line.split(' ')).for_each(|(sum, n)| *sum += n.parse::<f64>().unwrap());
        }
        sums
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Missing where the part has failed, which the test says.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Seconds of the threads in a microstate.
fn state(seen: &Seen, column: &str) -> f64 {
    let of = seen.rows("threads").filter(|(t, r)| t.text(*r, "thread") == Some("waker"));
    of.filter_map(|(t, r)| t.number(r, column)).sum()
}

/// Waits for futexes: their number, those that were followed, and the half-width of the number's interval.
fn futexes(seen: &Seen) -> [f64; 3] {
    let [count, counted] = ["count", "counted"].map(|column| seen.sum("user_locks", column));
    let of = seen.rows("user_locks").filter_map(|(t, r)| t.number(r, "error"));
    [count, counted, of.map(|e| e * e).sum::<f64>().sqrt()]
}

#[test]
fn sleeps_between_windows_are_timed_and_the_others_stand_for_them() {
    let Some(_one) = allowed() else { return };
    let own = Own::new();
    let seen = observe(&part("wake_each_other"), windows);
    assert_sums(&seen);
    assert!(noted(&seen), "{:#?}", seen.notes);
    let [waits, ran, queued, asleep] = own.sums();
    let [count, counted, error] = futexes(&seen);
    let said = format!("{counted} of {waits} waits scaled to {count} +- {error}");
    eprintln!("{said}");
    if waits < 5000.0 {
        return eprintln!("skipped: the threads hardly got a CPU");
    }
    assert!(counted > 0.0 && counted < 0.7 * count && error > 0.0, "{said}");
    // Windows come late, and last longer, where the observer waits for a CPU.
    assert!((0.6..1.6).contains(&(count / waits)), "{said}");
    let [slp, lat] = ["SLP", "LAT"].map(|column| state(&seen, column));
    let said = format!("SLP {slp} s of {asleep}, LAT {lat} s of {queued}, {ran} s on CPU");
    eprintln!("{said}");
    let room = 0.03 * (ran + queued + asleep);
    assert!((slp - asleep).abs() < room && (lat - queued).abs() < room, "{said}");
}

#[test]
fn threads_that_switch_all_the_time_are_followed_in_windows_unless_all_are_asked_for() {
    let Some(_one) = allowed() else { return };
    let own = Own::new();
    let seen = observe(&part("wake_each_other"), |config| config.probes = Probes::Auto);
    assert_sums(&seen);
    let [waits, ..] = own.sums();
    if waits < 100_000.0 * seen.elapsed {
        eprintln!("skipped: the threads seldom switched ({waits} times)");
    } else {
        assert!(noted(&seen), "{waits} waits: {:#?}", seen.notes);
    }
    let all = observe(&part("wake_each_other"), |config| config.probes = Probes::All);
    assert!(!noted(&all), "{:#?}", all.notes);
    let [waits, ..] = own.sums();
    let [count, counted, error] = futexes(&all);
    assert_eq!((counted, error), (count, 0.0), "exact");
    assert!((count - waits).abs() < 0.02 * waits + 50.0, "{count} of {waits} waits");
}

/// Windows as they are where following all sleeps costs too much.
fn seldom(config: &mut Config) {
    config.probes = Probes::Auto;
    config.switch_windows = Some([5, 200].map(Duration::from_millis));
}

#[test]
fn sleeps_between_windows_are_those_of_their_place_and_not_of_the_lock_waited_for_before() {
    let Some(_one) = allowed() else { return };
    let own = Own::new();
    let seen = observe(&part("wait_and_nap"), seldom);
    assert_sums(&seen);
    assert!(noted(&seen), "{:#?}", seen.notes);
    let [waits, waited, napped, _] = own.sums();
    let [lck, slp] = ["LCK", "SLP"].map(|column| state(&seen, column));
    let said = format!("LCK {lck} s of {waited} in {waits} waits, SLP {slp} s of {napped}");
    eprintln!("{said}");
    if waits < 300.0 {
        return eprintln!("skipped: the threads hardly met for the lock");
    }
    // The first waits are over before it is known that they are for a lock.
    let room = 0.02 * (waited + napped);
    assert!(
        (lck - waited).abs() < 0.2 * waited + room && (slp - napped).abs() < room + 0.2 * waited,
        "{said}"
    );
}

/// Programs that are observed: this test's executable plays them.
mod parts {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    /// ns on CPU and on run queues.
    fn schedstat() -> [f64; 2] {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let mut of = text.split_whitespace().map(|ns| ns.parse::<f64>().unwrap() / 1e9);
        std::array::from_fn(|_| of.next().unwrap())
    }

    /// Waits until the word is no longer `value`; how often it slept.
    fn wait(word: &AtomicU32, value: u32) -> u64 {
        let mut slept = 0;
        while word.load(Ordering::Acquire) == value {
            // SAFETY: a futex of this process, which lives longer than the call.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    word.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    value,
                    std::ptr::null::<u8>(),
                )
            };
            slept += u64::from(done == 0);
        }
        slept
    }

    fn wake(word: &AtomicU32) {
        word.fetch_add(1, Ordering::Release);
        // SAFETY: as above.
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
        };
    }

    /// Two threads on one CPU wake each other in turn.
    #[test]
    #[ignore = "a part played under observation"]
    fn wake_each_other() {
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        let stop = AtomicBool::new(false);
        let until = Instant::now() + Duration::from_millis(1500);
        let cpu = rustix::thread::sched_getcpu();
        let play = |me: usize| {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            rustix::thread::sched_setaffinity(None, &set).unwrap();
            let (began, before) = (Instant::now(), schedstat());
            let mut slept = 0;
            for round in 0.. {
                let last = if me == 0 {
                    let last = round % 64 == 63 && Instant::now() >= until;
                    stop.store(last, Ordering::Relaxed);
                    wake(&words[0]);
                    slept += wait(&words[1], round);
                    last
                } else {
                    slept += wait(&words[0], round);
                    let last = stop.load(Ordering::Relaxed);
                    wake(&words[1]);
                    last
                };
                if last {
                    break;
                }
            }
            let after = schedstat();
            let [ran, queued] = [after[0] - before[0], after[1] - before[1]];
            format!("{slept} {ran} {queued} {}\n", began.elapsed().as_secs_f64() - ran - queued)
        };
        let play = &play;
        let own: String = std::thread::scope(|scope| {
            let spawn = |me| {
                std::thread::Builder::new()
                    .name("waker".into())
                    .spawn_scoped(scope, move || play(me))
                    .unwrap()
            };
            let threads = [0, 1].map(spawn);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        std::fs::write(std::env::var_os("NCPU_TEST_OWN").unwrap(), own).unwrap();
    }
    /// Two threads take a lock that a third holds most of the time, and sleep longer after it.
    #[test]
    #[ignore = "a part played under observation"]
    fn wait_and_nap() {
        struct Lock(std::cell::UnsafeCell<libc::pthread_mutex_t>);
        // SAFETY: made for threads.
        unsafe impl Sync for Lock {}
        static LOCK: Lock = Lock(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let lock = || {
            // SAFETY: a mutex that lives for ever and is never moved.
            assert_eq!(unsafe { libc::pthread_mutex_lock(LOCK.0.get()) }, 0);
        };
        let unlock = || {
            // SAFETY: as above; the thread has locked it.
            assert_eq!(unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) }, 0);
        };
        let until = Instant::now() + Duration::from_millis(3000);
        // Time off CPU, but for that on run queues.
        let asleep = |part: &dyn Fn()| {
            let (began, before) = (Instant::now(), schedstat());
            part();
            let after = schedstat();
            began.elapsed().as_secs_f64() - (after[0] - before[0]) - (after[1] - before[1])
        };
        let waker = || {
            let [mut waits, mut waited, mut napped] = [0.0; 3];
            while Instant::now() < until {
                let ns = asleep(&|| {
                    lock();
                    unlock();
                });
                waits += f64::from(ns > 20e-6);
                waited += ns;
                napped += asleep(&|| std::thread::sleep(Duration::from_millis(5)));
            }
            format!("{waits} {waited} {napped} 0\n")
        };
        let own: String = std::thread::scope(|scope| {
            scope.spawn(|| {
                while Instant::now() < until {
                    lock();
                    let held = Instant::now();
                    while held.elapsed() < Duration::from_micros(500) {}
                    unlock();
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
            let spawn =
                |_| std::thread::Builder::new().name("waker".into()).spawn_scoped(scope, waker).unwrap();
            let threads = [0, 1].map(spawn);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        std::fs::write(std::env::var_os("NCPU_TEST_OWN").unwrap(), own).unwrap();
    }
}
