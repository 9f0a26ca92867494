//! A range of memory in pieces, which threads take one after the other.

use super::Helpers;
use crate::memory::crew;
use crate::sys::cpus::Cpus;
use crate::sys::{self, Instant};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Pieces begin at multiples of this size: the memory that one page of page tables maps, so that no two
/// threads share one, and the size of a transparent huge page.
const HUGE: usize = 2 << 20;
/// The largest piece. Larger ones gain nothing, and signals wait until a piece is done.
const LARGEST: usize = 64 << 20;
/// Pieces for each thread, because some cost more than others.
const EACH: usize = 32;
/// Work of fewer nanoseconds is not shared: a helper takes tens of microseconds to come and go.
const WORTH: u64 = 300_000;

/// In percent. If a call follows that does the rest and goes through all pages once more, helpers are stopped
/// unless all threads together are this fast, compared with the caller alone: going through pages costs a
/// seventh of making them.
const GAIN: u64 = 125;
/// Nanoseconds until that comparison.
const UNTIL_ASKED: u64 = 3_000_000;

/// The job for a piece, `address, length`; an error contains the address at which it failed.
pub type Job<'a> = &'a (dyn Fn(usize, usize) -> Result<(), (i32, usize)> + Sync);

/// The range.
pub struct Pieces {
    at: usize,
    end: usize,
    unit: usize,
    helpers: usize,
    /// Whether the rest may be left undone.
    may_leave: bool,
}

impl Pieces {
    /// Whole pages of `unit` bytes at `at`, for the caller and at most this many helpers.
    pub fn new(at: usize, length: usize, unit: usize, helpers: Helpers) -> Pieces {
        Pieces { at, end: at + length, unit: unit.max(HUGE), helpers: helpers.0, may_leave: false }
    }

    /// The same, but if helpers give no gain because other programs use the CPUs, the rest is left undone.
    pub fn leave_if_slow(self) -> Pieces {
        Pieces { may_leave: true, ..self }
    }

    /// The number of helpers that have a CPU each, beside the caller's.
    fn helpers(&self, near: Option<&Cpus>) -> usize {
        if self.helpers == 0 {
            return 0;
        }
        let cpus = match near {
            Some(near) => *near,
            None => match Cpus::allowed() {
                Some(allowed) => allowed,
                None => return 0,
            },
        };
        let here = sys::cpu_and_node().0 as usize;
        self.helpers.min(cpus.count() - usize::from(cpus.contains(here)))
    }

    /// Measures a part in the middle to decide whether sharing the work pays. If so, returns the nanoseconds
    /// that `unit` bytes took, 0 if not measured. The part is done twice; if it fails here, it fails again in
    /// its turn.
    fn worth(&self, job: Job<'_>) -> Option<u64> {
        let length = self.end - self.at;
        if length < 2 * self.unit {
            return None;
        }
        // Work on larger pages always pays, and one page alone would take long.
        if self.unit > HUGE {
            return Some(0);
        }
        let middle = (self.at + length / 2) / self.unit * self.unit;
        let begin = Instant::now();
        let done = job(middle.max(self.at), self.unit.min(self.end - middle));
        let (took, parts) = (Instant::now().since(begin), (length / self.unit) as u64);
        (done.is_ok() && took.saturating_mul(parts) > WORTH).then_some(took)
    }

    /// Calls `job` for all pieces, with helpers on the CPUs of `near` if that pays.
    ///
    /// # Errors
    /// The first failure by address: pieces are begun in order, and all pieces begun before it are completed.
    pub fn each(&self, near: Option<&Cpus>, job: Job<'_>) -> Result<(), (i32, usize)> {
        let mut helpers = self.helpers(near);
        let alone = if helpers > 0 { self.worth(job) } else { None };
        if alone.is_none() {
            helpers = 0;
        }
        let size = self.size(helpers + 1);
        let base = self.at / self.unit * self.unit;
        let count = (self.end - base).div_ceil(size);
        let next = AtomicUsize::new(0);
        // Offset in pages in the upper half, error in the lower: the minimum is the first by address.
        let failed = AtomicU64::new(u64::MAX);
        let (begin, done) = (Instant::now(), AtomicUsize::new(0));
        let slow = || {
            let took = Instant::now().since(begin);
            let units = (done.load(Relaxed) / self.unit) as u64;
            took > UNTIL_ASKED && took.saturating_mul(GAIN) > alone.unwrap_or(0).saturating_mul(units * 100)
        };
        crew::run(helpers.min(count.saturating_sub(1)), &|_| near, &|number| {
            if failed.load(Relaxed) != u64::MAX {
                return false;
            }
            let piece = next.fetch_add(1, Relaxed);
            if piece >= count {
                return false;
            }
            let from = base.wrapping_add(piece.wrapping_mul(size));
            let to = from.saturating_add(size).min(self.end);
            let from = from.max(self.at);
            if let Err((error, at)) = job(from, to.wrapping_sub(from)) {
                let offset = at.wrapping_sub(self.at) as u64 / 4096;
                failed.fetch_min(offset << 12 | error as u64 & 0xfff, Relaxed);
            }
            done.fetch_add(to.wrapping_sub(from), Relaxed);
            if self.may_leave && number == 0 && alone.is_some_and(|ns| ns > 0) && slow() {
                // No piece is left for any thread.
                next.store(count, Relaxed);
                return false;
            }
            true
        });
        match failed.into_inner() {
            u64::MAX => Ok(()),
            failed => Err(((failed & 0xfff) as i32, self.at + (failed >> 12) as usize * 4096)),
        }
    }

    /// Bytes of a piece for this number of threads.
    fn size(&self, threads: usize) -> usize {
        let share = (self.end - self.at) / (threads * EACH);
        share.clamp(HUGE, LARGEST).next_multiple_of(self.unit)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The pieces of a range, in order, without the part that is measured first.
    fn pieces(at: usize, length: usize, unit: usize, helpers: usize) -> Vec<(usize, usize)> {
        let done = Mutex::new(Vec::with_capacity(100_000));
        // The requested number of helpers, whatever this machine has.
        let range = Pieces::new(at, length, unit, Helpers(0));
        let size = range.size(helpers + 1);
        assert!(size.is_multiple_of(unit.max(HUGE)));
        range
            .each(None, &|at, length| {
                done.lock().expect("lock").push((at, length));
                Ok(())
            })
            .expect("no error");
        let mut done = done.into_inner().expect("lock");
        done.sort_unstable();
        done
    }

    #[test]
    fn every_byte_is_in_one_piece() {
        for (at, length, unit) in [
            (0, 4096, 4096),
            (4096, 4096, 4096),
            (HUGE - 4096, 8192, 4096),
            (HUGE, HUGE, HUGE),
            (3 * HUGE + 4096, 1 << 30, 4096),
            (1 << 30, 3 << 30, 1 << 30),
        ] {
            let pieces = pieces(at, length, unit, 3);
            let mut next = at;
            for &(at, length) in &pieces {
                assert_eq!(at, next);
                assert!(length > 0 && (at.is_multiple_of(unit.max(HUGE)) || at == pieces[0].0));
                next = at + length;
            }
            assert_eq!(next, at + length);
        }
    }

    #[test]
    fn the_first_error_by_address_is_told() {
        let range = Pieces::new(1 << 30, 64 * HUGE, 4096, Helpers(3));
        let bad = (1 << 30) + 40 * HUGE + 8192;
        for _ in 0..20 {
            let failed = range.each(None, &|at, length| match bad >= at && bad < at + length {
                true => Err((libc::ENOMEM, bad)),
                false => Ok(()),
            });
            assert_eq!(failed, Err((libc::ENOMEM, bad)));
        }
    }

    #[test]
    fn what_takes_no_time_is_not_shared_out() {
        let range = Pieces::new(HUGE, 8 * HUGE, 4096, Helpers(3));
        assert_eq!(range.worth(&|_, _| Ok(())), None);
        let slow = |_, _| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            Ok(())
        };
        assert!(range.worth(&slow).is_some_and(|ns| ns >= 1_000_000));
        assert_eq!(range.worth(&|at, _| Err((libc::EFAULT, at))), None);
    }

    /// The number of pieces done of a job that takes a millisecond alone, and `times` milliseconds with several
    /// threads.
    fn done_of(range: Pieces, times: u32) -> usize {
        let (calls, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let job = |_, length: usize| {
            let units = (length / HUGE) as u32;
            let times = if calls.fetch_add(1, Relaxed) == 0 { 1 } else { times };
            // The first call measures how long a piece takes alone.
            bytes.fetch_add(if calls.load(Relaxed) == 1 { 0 } else { length }, Relaxed);
            let begin = Instant::now();
            while Instant::now().since(begin) < u64::from(units * times) * 1_000_000 {
                crate::sys::pause(1);
            }
            Ok(())
        };
        range.each(None, &job).expect("no error");
        bytes.into_inner()
    }

    #[test]
    fn the_rest_is_left_where_helpers_are_slow() {
        let range = || Pieces::new(1 << 30, 512 * HUGE, 4096, Helpers(1));
        if range().helpers(None) == 0 {
            return; // one CPU
        }
        assert_eq!(done_of(Pieces::new(1 << 30, 32 * HUGE, 4096, Helpers(1)), 4), 32 * HUGE);
        assert!(done_of(range().leave_if_slow(), 4) < 256 * HUGE);
    }
}
