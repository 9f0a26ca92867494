//! A benchmark: its name, its options, and the code that workers run.

pub use crate::failure::Failure;
use crate::options::{Flag, Options};

/// A benchmark, registered by name.
pub struct Case {
    /// Its name, libMicro's where libMicro has it.
    pub name: &'static str,
    /// The meaning of one operation.
    pub about: &'static str,
    /// The options of its own.
    pub flags: &'static [Flag],
    /// Sets up what the workers share, in the first worker process before there are others. What
    /// must be shared between processes goes into [`crate::Shared`] memory.
    pub setup: fn(&Options) -> Result<Box<dyn Bench>, Failure>,
}

/// Which worker a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its index among all workers of all processes.
    pub index: usize,
    /// Its process's index.
    pub process: usize,
    /// Its index in its process.
    pub thread: usize,
    /// Workers in all.
    pub workers: usize,
}

/// State that is set up once and shared by all workers; dropped, it is torn down.
pub trait Bench: Sync {
    /// The code of one worker; made in the worker, on its CPU.
    ///
    /// # Errors
    /// The worker cannot work.
    fn worker(&self, me: Worker) -> Result<Box<dyn Batch + '_>, Failure>;

    /// The batch size, where it must be just so; else it is calibrated.
    fn batch(&self) -> Option<u64> {
        None
    }

    /// The largest batch that a calibration may choose: what a batch holds – descriptors, a file's
    /// length – may have an end.
    fn most(&self) -> Option<u64> {
        None
    }

    /// Further figures of the whole run, named, by the first worker process at the end.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// The work of a worker, a batch at a time.
pub trait Batch {
    /// Before a batch of `n` operations; not timed.
    ///
    /// # Errors
    /// The batch cannot be run.
    fn before(&mut self, _n: u64) -> Result<(), Failure> {
        Ok(())
    }

    /// Does the operation `n` times and returns how often it failed; timed.
    fn run(&mut self, n: u64) -> u64;

    /// After a batch of `n`; not timed.
    fn after(&mut self, _n: u64) {}
}

struct Each<F>(F);

impl<F: FnMut() -> bool> Batch for Each<F> {
    fn run(&mut self, n: u64) -> u64 {
        let mut errors = 0;
        for _ in 0..n {
            errors += u64::from(!(self.0)());
        }
        errors
    }
}

/// A batch that is an operation, again and again, which says whether it went well.
pub fn tried<'a>(op: impl FnMut() -> bool + 'a) -> Box<dyn Batch + 'a> {
    Box::new(Each(op))
}

/// A batch that is an operation, again and again, that cannot fail.
pub fn each<'a>(mut op: impl FnMut() + 'a) -> Box<dyn Batch + 'a> {
    tried(move || {
        op();
        true
    })
}

/// A [`Bench`] whose workers share nothing but what the closure captured.
pub struct Alone<F>(pub F);

impl<F> Bench for Alone<F>
where
    F: Fn(Worker) -> Result<Box<dyn Batch + 'static>, Failure> + Sync,
{
    fn worker(&self, me: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        (self.0)(me)
    }
}

/// The same with a batch of this size [default: calibrated].
pub struct Batches<F>(pub u64, pub F);

impl<F> Bench for Batches<F>
where
    F: Fn(Worker) -> Result<Box<dyn Batch + 'static>, Failure> + Sync,
{
    fn worker(&self, me: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        (self.1)(me)
    }

    fn batch(&self) -> Option<u64> {
        Some(self.0)
    }
}
