//! The gain of a stack bias: `cargo bench -p libncpu --bench stacks -- --help`.

use libncpu::thread::Builder;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

const HELP: &str = "\
Usage: cargo bench -p libncpu --bench stacks -- [OPTIONS]

  --threads 8,16,64,256,1024,2048  numbers of threads
  --lines 2                        hot cache lines of each thread's frame
  --span 4096                      bytes that biases are spread over
  --time 100                       milliseconds a sample
  --rounds 5                       samples a cell, with and without bias in turn; the median is shown
";

const LINE: usize = 64;
const LINES_MOST: usize = 64;
/// In bytes.
const STACK: usize = 256 << 10;

#[repr(align(64))]
struct Lines([u8; LINE * LINES_MOST]);

fn wrong(why: &str) -> ! {
    eprintln!("stacks: {why}\n\n{HELP}");
    std::process::exit(2)
}

fn list(option: &str, value: &str) -> Vec<usize> {
    let number = |n: &str| match n.parse() {
        Ok(n) if n > 0 => n,
        _ => wrong(&format!("{option}: {n:?} is not a number above 0")),
    };
    value.split(',').map(number).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Binds this thread, and those it starts, to the CPU that it is on.
fn stay() {
    // SAFETY: no arguments.
    let cpu = unsafe { libc::sched_getcpu() };
    assert!(cpu >= 0 && libncpu::innards::bind(cpu as usize), "this thread cannot be bound to its CPU");
}

/// Reserves `lines` lines of a thread's stack, at the same depth in each thread: calls `f` with the first.
#[inline(never)]
fn frame<R>(f: impl FnOnce(*mut u8) -> R) -> R {
    let mut lines = Lines([0; LINE * LINES_MOST]);
    f(black_box(lines.0.as_mut_ptr()))
}

fn builder(biased: bool) -> Builder {
    let builder = Builder::new().stack_size(STACK);
    if biased { builder } else { builder.bias(0) }
}

/// Runs threads with a frame each while `measure` runs, which gets the frames' addresses.
fn with_frames(threads: usize, biased: bool, measure: impl FnOnce(&[usize]) -> f64) -> f64 {
    let (frames, ready, done) =
        (Mutex::new(Vec::new()), Barrier::new(threads + 1), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let builder = builder(biased);
            let (frames, ready, done) = (&frames, &ready, &done);
            let body = move || {
                frame(|lines| {
                    frames.lock().expect("not poisoned").push(lines as usize);
                    ready.wait();
                    done.wait();
                });
            };
            builder.spawn_scoped(scope, body).expect("a thread");
        }
        ready.wait();
        let measured = measure(&frames.lock().expect("not poisoned"));
        done.wait();
        measured
    })
}

/// One thread that reads the hot lines of all other threads' frames, as a lock's owner reads its waiters, or
/// a garbage collector stacks: ns per line.
fn walk(threads: usize, lines: usize, time: Duration, biased: bool) -> f64 {
    with_frames(threads, biased, |frames| {
        let (start, mut walks, mut sum) = (Instant::now(), 0u64, 0usize);
        while start.elapsed() < time {
            for _ in 0..8 {
                for &frame in frames {
                    for line in 0..lines {
                        // Each address depends on the previous value, which is 0: no two loads at once.
                        let at = (frame + line * LINE + sum) as *const u8;
                        // SAFETY: in a frame that exists until `done`, and no thread writes.
                        sum += unsafe { at.read_volatile() } as usize;
                    }
                }
            }
            walks += 8;
        }
        start.elapsed().as_nanos() as f64 / (walks as usize * frames.len() * lines) as f64
    })
}

/// Threads on one CPU that take turns and use their hot lines in each: ns per turn.
fn turns(threads: usize, lines: usize, time: Duration, biased: bool) -> f64 {
    let turn: Vec<AtomicU32> = (0..threads).map(|_| AtomicU32::new(0)).collect();
    let (stop, taken) = (AtomicU32::new(0), AtomicUsize::new(0));
    let ready = Barrier::new(threads + 1);
    let wake = |of: usize| {
        turn[of].store(1, SeqCst);
        // SAFETY: the word outlives the call.
        unsafe {
            libc::syscall(libc::SYS_futex, turn[of].as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        }
    };
    let wait = |of: usize| {
        while turn[of].swap(0, SeqCst) == 0 {
            // SAFETY: as above; no time-out.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    turn[of].as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    0,
                    std::ptr::null::<libc::timespec>(),
                );
            }
        }
    };
    let mut elapsed = 0.0;
    std::thread::scope(|scope| {
        for own in 0..threads {
            let builder = builder(biased);
            let (stop, taken, ready, wake, wait) = (&stop, &taken, &ready, &wake, &wait);
            let body = move || {
                frame(|hot| {
                    ready.wait();
                    loop {
                        wait(own);
                        for line in 0..lines {
                            // SAFETY: within the frame.
                            unsafe {
                                let at = hot.add(line * LINE);
                                at.write_volatile(at.read_volatile().wrapping_add(1));
                            }
                        }
                        taken.store(taken.load(Relaxed) + 1, Relaxed);
                        // Read within the turn: a thread that leaves after it must not get another.
                        let last = stop.load(Relaxed) != 0;
                        wake((own + 1) % threads);
                        if last {
                            break;
                        }
                    }
                });
            };
            builder.spawn_scoped(scope, body).expect("a thread");
        }
        ready.wait();
        wake(0);
        // One round for the caches.
        while taken.load(Relaxed) < threads {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (start, before) = (Instant::now(), taken.load(Relaxed));
        std::thread::sleep(time);
        elapsed = start.elapsed().as_nanos() as f64 / (taken.load(Relaxed) - before).max(1) as f64;
        stop.store(1, Relaxed);
    });
    elapsed
}

fn main() {
    let (mut threads, mut lines) = (vec![8, 16, 64, 256, 1024, 2048], 2);
    let (mut time, mut rounds, mut span) = (100, 5, 4096);
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| wrong(&format!("{option} needs a value")));
        match option.as_str() {
            "--threads" => threads = list(&option, &value()),
            "--lines" => lines = list(&option, &value())[0],
            "--span" => span = list(&option, &value())[0],
            "--time" => time = list(&option, &value())[0],
            "--rounds" => rounds = list(&option, &value())[0],
            // Cargo adds it.
            "--bench" => {}
            "--help" | "-h" => return print!("{HELP}"),
            _ => wrong(&format!("unknown option {option}")),
        }
    }
    if lines > LINES_MOST {
        wrong(&format!("--lines must be at most {LINES_MOST}"));
    }
    if !libncpu::thread::set_bias_span(span) {
        wrong("--span must be a multiple of 64, at most 65536");
    }
    let time = Duration::from_millis(time as u64);
    stay();
    type Measure = fn(usize, usize, Duration, bool) -> f64;
    for (name, about, measure) in [
        ("walk", "one thread reads these lines of all frames in turn; ns a line", walk as Measure),
        ("turns", "threads on one CPU take turns, each writes its lines; ns a turn", turns as Measure),
    ] {
        println!("{name}: {lines} hot lines at the same depth of each stack; {about}");
        println!("{:>7} {:>9} {:>9} {:>7}", "threads", "no bias", "bias", "gain");
        for &threads in &threads {
            let mut all = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                for (samples, biased) in all.iter_mut().zip([false, true]) {
                    samples.push(measure(threads, lines, time, biased));
                }
            }
            let [without, with] = all.map(median);
            println!("{threads:>7} {without:>9.2} {with:>9.2} {:>6.1}%", 100.0 * (without / with - 1.0));
        }
        println!();
    }
}
