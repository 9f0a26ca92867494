//! Arguments.

use std::time::Duration;

const HELP: &str = "\
Usage: cargo bench -p libncpu -- [OPTIONS]

  --threads 1,2,4,16,64  numbers of threads
  --inside 0,100,1000    nanoseconds with the lock held
  --outside 0            nanoseconds between two of a thread's critical sections
  --time 200             milliseconds a sample
  --rounds 3             samples a cell, interleaved over all cells; the median is shown
  --best                 show the best sample instead of the median: for a machine that others disturb
  --per-cpu              operations a CPU-second instead of a second: what waiting costs others
  --only std,ncpu        these only, the first to be compared to the others
  --group mutex          these tables only: mutex, robust, rwlock-99, rwlock-50, bounded-far, bounded-near,
                         counter, timers, getenv, getenv-absent, getenv-alike, getenv-set, vmem, vmem-io,
                         copy, zero
  --sizes 64,4k,16m      bytes of a block of copy and zero
";

/// The measurements to make.
pub struct Options {
    pub threads: Vec<usize>,
    /// Nanoseconds inside and outside.
    pub sections: Vec<(u64, u64)>,
    pub time: Duration,
    pub rounds: usize,
    pub best: bool,
    pub per_cpu: bool,
    /// Bytes.
    pub sizes: Vec<usize>,
    only: Vec<String>,
    groups: Vec<String>,
}

impl Options {
    /// Parses the command line; exits with 2 if it is invalid.
    pub fn from_args() -> Options {
        let mut threads = vec![1, 2, 4, 16, 64];
        let (mut inside, mut outside) = (vec![0, 100, 1000], vec![0]);
        let (mut time, mut rounds, mut best, mut per_cpu) = (200, 3, false, false);
        let (mut only, mut groups) = (Vec::new(), Vec::new());
        let mut sizes =
            vec![1, 8, 16, 32, 64, 100, 128, 200, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10];
        sizes.extend([64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]);
        let mut args = std::env::args().skip(1);
        while let Some(option) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| wrong(&format!("{option} needs a value")));
            match option.as_str() {
                "--threads" => threads = list(&option, &value()),
                "--inside" => inside = list(&option, &value()),
                "--outside" => outside = list(&option, &value()),
                "--time" => time = list(&option, &value())[0],
                "--rounds" => rounds = list(&option, &value())[0],
                "--group" => groups = value().split(',').map(str::to_owned).collect(),
                "--sizes" => sizes = value().split(',').map(|size| bytes(&option, size)).collect(),
                "--best" => best = true,
                "--per-cpu" => per_cpu = true,
                "--only" => only = value().split(',').map(str::to_owned).collect(),
                // Cargo adds it.
                "--bench" => {}
                "--help" | "-h" => {
                    print!("{HELP}");
                    std::process::exit(0);
                }
                _ => wrong(&format!("unknown option {option}")),
            }
        }
        if threads.contains(&0) || rounds == 0 || time == 0 {
            wrong("threads, rounds and time must be at least 1");
        }
        let sections = inside.iter().flat_map(|&i| outside.iter().map(move |&o| (i, o))).collect();
        Options {
            threads,
            sections,
            time: Duration::from_millis(time),
            rounds,
            best,
            per_cpu,
            sizes,
            only,
            groups,
        }
    }

    /// The representative sample of a cell.
    pub fn pick(&self, samples: &[f64]) -> f64 {
        if self.best { samples.iter().copied().fold(0.0, f64::max) } else { median(samples) }
    }

    /// The duration of a sample with this number of threads: all of them must run, in turns of some
    /// milliseconds.
    pub fn time_of(&self, threads: usize) -> Duration {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.time.max(Duration::from_millis(20) * threads.div_ceil(cpus) as u32)
    }

    /// Whether a table is requested.
    pub fn wants_group(&self, name: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|group| group == name)
    }

    /// Whether a subject is requested.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Bytes of a size like 4096, 4k or 16m.
fn bytes(option: &str, size: &str) -> usize {
    let (digits, unit) = match size.strip_suffix(['k', 'm']) {
        Some(digits) => (digits, if size.ends_with('k') { 1 << 10 } else { 1 << 20 }),
        None => (size, 1),
    };
    list::<usize>(option, digits)[0].saturating_mul(unit)
}

fn list<T: std::str::FromStr>(option: &str, value: &str) -> Vec<T> {
    value
        .split(',')
        .map(|n| n.parse().unwrap_or_else(|_| wrong(&format!("{option}: {n:?} is not a number"))))
        .collect()
}

fn wrong(why: &str) -> ! {
    eprintln!("primitives: {why}\n\n{HELP}");
    std::process::exit(2)
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
