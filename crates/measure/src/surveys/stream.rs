//! STREAM (McCalpin): sustainable memory bandwidth of copy, scale, add and triad, with its rules for the size, for
//! the best of several times, and for the validation of the results.

use std::time::Duration;

use ncpu_table::{Column, Kind, Table, Unit, size};

use super::{Report, Request, Survey};
use crate::failure::Failure;
use crate::memory::{Area, PageSize, largest_cache, room};
use crate::options::Flag;
use crate::place;
use crate::runner::{Barrier, look, now};

/// `ncpu bench stream`.
pub const SURVEY: Survey = Survey {
    name: "stream",
    about: "STREAM: memory bandwidth of copy, scale, add and triad, best of N, validated",
    flags: &[
        Flag {
            letter: 's',
            value: "N",
            default: "",
            about: "elements of 8 bytes of each array [default: 10,000,000, or 4 times the caches if that is more]",
        },
        Flag { letter: 'n', value: "N", default: "10", about: "times; the first does not count" },
        Flag {
            letter: 'p',
            value: "SIZE",
            default: "",
            about: "of the pages: 4k, thp, 2m or 1g; as malloc's without",
        },
    ],
    run,
};

/// A kernel: what it is called, and arrays of `n` elements that it reads or writes.
const KERNELS: [(&str, f64); 4] = [("copy", 2.0), ("scale", 2.0), ("add", 3.0), ("triad", 3.0)];

const SCALAR: f64 = 3.0;

/// STREAM's bound for 8-byte elements: the mean error relative to the value expected.
const EPSILON: f64 = 1e-13;

/// A thread's part of the arrays.
struct Part<'a> {
    a: &'a mut [f64],
    b: &'a mut [f64],
    c: &'a mut [f64],
}

impl Part<'_> {
    /// STREAM's values, doubled as its clock check does; whoever writes first gets the memory near.
    fn fill(&mut self) {
        self.a.fill(2.0);
        self.b.fill(2.0);
        self.c.fill(0.0);
    }

    #[inline(never)]
    fn kernel(&mut self, which: usize) {
        let Part { a, b, c } = self;
        match which {
            0 => c.iter_mut().zip(a.iter()).for_each(|(c, a)| *c = std::hint::black_box(*a)),
            1 => b.iter_mut().zip(c.iter()).for_each(|(b, c)| *b = SCALAR * c),
            2 => c.iter_mut().zip(a.iter()).zip(b.iter()).for_each(|((c, a), b)| *c = a + b),
            _ => a.iter_mut().zip(b.iter()).zip(c.iter()).for_each(|((a, b), c)| *a = b + SCALAR * c),
        }
    }
}

/// Values of the three arrays after all kernels ran `times` times.
fn expected(times: usize) -> [f64; 3] {
    (0..times).fold([2.0, 2.0, 0.0], |[a, _, _], _| {
        let b = SCALAR * a;
        let c = a + b;
        [b + SCALAR * c, b, c]
    })
}

/// Mean absolute error of an array, relative to what is expected.
fn error(array: &[f64], expected: f64) -> f64 {
    let sum: f64 = array.iter().map(|x| (x - expected).abs()).sum();
    sum / array.len().max(1) as f64 / expected.abs()
}

/// Begin and end of a thread at a kernel, nanoseconds.
type Span = (u64, u64);

/// Results of a thread: its spans of every time, the error of each array, the change of its clock's speed.
type Told = (Vec<[Span; 4]>, [f64; 3], f64);

/// The threads of a run.
struct Team<'a> {
    /// The CPUs that they are bound to, in turn.
    order: Option<&'a [u32]>,
    barrier: Barrier,
    workers: usize,
    /// Whether each has a CPU of its own to wait on.
    spin: bool,
    times: usize,
}

impl Team<'_> {
    /// What one thread does with its part of the arrays.
    fn work(&self, r: &Request<'_>, index: usize, mut part: Part<'_>) -> Result<Told, Failure> {
        let placed = (|| {
            if let Some(order) = self.order {
                place::bind(order[index % order.len()])?;
            }
            r.plan.memory.apply(r.machine)
        })();
        if let Err(e) = placed {
            self.barrier.break_up();
            return Err(Failure::Failed(e.to_string()));
        }
        let gone = |_| Failure::Failed(String::new());
        part.fill();
        let pace = look().pace;
        let mut spans = Vec::with_capacity(self.times);
        for _ in 0..self.times {
            let mut row = [(0, 0); 4];
            for (which, span) in row.iter_mut().enumerate() {
                self.barrier.wait(self.workers as u32, self.spin).map_err(gone)?;
                let begin = now();
                part.kernel(which);
                *span = (begin, now());
            }
            spans.push(row);
        }
        let wants = expected(self.times);
        let errors = [error(part.a, wants[0]), error(part.b, wants[1]), error(part.c, wants[2])];
        let paces = [pace, look().pace];
        Ok((spans, errors, paces[0].max(paces[1]) as f64 / paces[0].min(paces[1]).max(1) as f64))
    }
}

fn run(r: &Request<'_>) -> Result<Report, Failure> {
    let order = r.plan.place.order(r.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    r.plan.memory.check(r.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    let threads = (r.plan.threads * r.plan.processes).max(1);
    let times = r.options.number('n')?.clamp(2, 10_000) as usize;
    let size: PageSize = r.options.parsed('p')?;
    let cache: u64 = largest_cache(r.machine) * last_level(r);
    let elements = match r.options.has('s') {
        true => r.options.number('s')?,
        false => (4 * cache / 8).max(10_000_000),
    };
    if elements < threads as u64 {
        return Err(Failure::Failed(format!("-s {elements}: fewer elements than threads ({threads})")));
    }
    let bytes = elements.saturating_mul(8);
    room(bytes.saturating_mul(3), r.plan.memory, r.machine, "/".as_ref()).map_err(|e| {
        Failure::Failed(format!("stream: 3 arrays of {elements} elements: {e}; give fewer with -s"))
    })?;
    (r.progress)(&format!("{threads} threads, 3 arrays of {}", size::words(bytes)));
    let areas: Vec<Area> = (0..3).map(|_| Area::map(bytes as usize, size)).collect::<Result<_, Failure>>()?;
    let mut parts: Vec<Part<'_>> = Vec::new();
    let n = elements as usize;
    // SAFETY: each area has n elements or more, aligned, zero as fresh memory is; each is borrowed once.
    let mut arrays =
        areas.iter().map(|area| unsafe { std::slice::from_raw_parts_mut(area.as_ptr().cast::<f64>(), n) });
    if let (Some(a), Some(b), Some(c)) = (arrays.next(), arrays.next(), arrays.next()) {
        let chunk = n.div_ceil(threads);
        let slices = a.chunks_mut(chunk).zip(b.chunks_mut(chunk)).zip(c.chunks_mut(chunk));
        parts.extend(slices.map(|((a, b), c)| Part { a, b, c }));
    }
    let usable = order.as_ref().map_or(r.machine.online.and(&r.machine.allowed).len(), Vec::len);
    let (workers, spin) = (parts.len(), parts.len() <= usable);
    let team = Team { order: order.as_deref(), barrier: Barrier::default(), workers, spin, times };
    let work = |index: usize, part: Part<'_>| team.work(r, index, part);
    let outcomes: Vec<Result<Told, Failure>> = std::thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> =
            parts.into_iter().enumerate().map(|(i, part)| scope.spawn(move || work(i, part))).collect();
        let dead = |_| Err(Failure::Failed("stream: a worker panicked".into()));
        started.into_iter().map(|t| t.join().unwrap_or_else(dead)).collect()
    });
    // The failure that has words is the one the others follow from.
    if let Some(Err(failure)) =
        outcomes.iter().find(|o| matches!(o, Err(f) if *f != Failure::Failed(String::new())))
    {
        return Err(failure.clone());
    }
    let done = outcomes.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let mut report = Report::default();
    let worst: [f64; 3] = std::array::from_fn(|i| done.iter().map(|d| d.1[i]).fold(0.0, f64::max));
    for (name, error) in ["a", "b", "c"].iter().zip(worst) {
        // Not a number counts as a large error.
        if error.is_nan() || error > EPSILON {
            report.failed.push(format!("array {name} is wrong: mean relative error {error:e}"));
        }
    }
    if report.failed.is_empty() {
        report.notes.push(format!("Solution Validates: avg error less than {EPSILON:e} on all three arrays"));
    }
    let speed = done.iter().map(|d| d.2).fold(1.0, f64::max);
    if speed > 1.05 {
        report.notes.push(format!("clock speed moved by {:.0} %", 100.0 * (speed - 1.0)));
    }
    if bytes < 4 * cache {
        report.notes.push(format!(
            "an array of {} is under 4 times the caches' {}: STREAM's rules want more",
            size::words(bytes),
            size::words(cache)
        ));
    }
    let spans: Vec<&Vec<[Span; 4]>> = done.iter().map(|d| &d.0).collect();
    report.tables.push(table(&spans, elements, threads));
    Ok(report)
}

/// Number of caches of the largest size.
fn last_level(r: &Request<'_>) -> u64 {
    let size = largest_cache(r.machine);
    r.machine.caches.iter().filter(|c| !c.memory_side && c.size == size).count().max(1) as u64
}

/// Best rate, mean, least and largest time of each kernel over all times but the first.
fn table(threads: &[&Vec<[Span; 4]>], elements: u64, workers: usize) -> Table {
    let ms = |name: &str, meaning: &str| Column::float(name, Unit::Milliseconds, Kind::Gauge, meaning);
    let mut out = Table::builder(
        "stream",
        &[
            Column::text("function", "the kernel"),
            Column::float(
                "MB/s",
                Unit::None,
                Kind::Gauge,
                "best rate, million bytes a second: STREAM's figure",
            ),
            ms("avg", "mean time, the first left out"),
            ms("min", "least time, the first left out"),
            ms("max", "largest time, the first left out"),
            Column::int("threads", Unit::None, Kind::Key, "threads that did it"),
            Column::int("elements", Unit::None, Kind::Key, "of 8 bytes in each array"),
        ],
    );
    let times = threads.first().map_or(0, |t| t.len());
    for (k, (name, arrays)) in KERNELS.iter().enumerate() {
        let took: Vec<f64> = (1..times)
            .map(|i| {
                let begin = threads.iter().map(|t| t[i][k].0).min().unwrap_or(0);
                let end = threads.iter().map(|t| t[i][k].1).max().unwrap_or(0);
                Duration::from_nanos(end.saturating_sub(begin)).as_secs_f64()
            })
            .collect();
        let min = took.iter().copied().fold(f64::INFINITY, f64::min);
        let max = took.iter().copied().fold(0.0, f64::max);
        let mean = took.iter().sum::<f64>() / took.len().max(1) as f64;
        out.row()
            .text(name)
            .float(arrays * 8.0 * elements as f64 / min.max(1e-9) / 1e6)
            .float(mean * 1e3)
            .float(min * 1e3)
            .float(max * 1e3)
            .int(workers as u64)
            .int(elements);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_give_what_the_validation_expects() {
        let (mut a, mut b, mut c) = (vec![0.0; 100], vec![0.0; 100], vec![9.0; 100]);
        let mut part = Part { a: &mut a, b: &mut b, c: &mut c };
        part.fill();
        for _ in 0..3 {
            (0..4).for_each(|k| part.kernel(k));
        }
        let wants = expected(3);
        // By hand: b becomes 3a, c 4a, and a 15a.
        assert_eq!(wants[0], 2.0 * 15f64.powi(3));
        assert_eq!((wants[1], wants[2]), (3.0 * 2.0 * 225.0, 4.0 * 2.0 * 225.0));
        assert!(
            error(&a, wants[0]) < EPSILON && error(&b, wants[1]) < EPSILON && error(&c, wants[2]) < EPSILON
        );
        a[7] += 1.0;
        assert!(error(&a, wants[0]) > EPSILON);
    }

    #[test]
    fn the_best_time_gives_the_rate_and_the_first_does_not_count() {
        // Two threads, three times; the first is the fastest.
        let row = |begin: u64, ms: u64| [(begin, begin + ms * 1_000_000); 4];
        let one = vec![row(0, 1), row(100, 8), row(200, 4)];
        let two = vec![row(0, 1), row(100, 10), row(200, 5)];
        let t = table(&[&one, &two], 1_000_000, 2);
        assert_eq!(
            (t.number(0, "min"), t.number(0, "max"), t.number(0, "avg")),
            (Some(5.0), Some(10.0), Some(7.5))
        );
        assert_eq!(t.number(0, "MB/s"), Some(16e6 / 5e-3 / 1e6));
        assert_eq!(t.number(3, "MB/s"), Some(24e6 / 5e-3 / 1e6));
    }
}
