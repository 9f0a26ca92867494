//! Limits the cost of one file. Its sections may expand to a thousand times their size on disk, and a few
//! bytes may describe a thousand words. So the kept memory is limited in proportion to the file, and the time
//! is limited too.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes that may be kept of any file, and for each byte of it. Debug information expands to four times its
/// length, and its variables and types take three times that.
const LEAST: u64 = 64 << 20;
const FOR_EACH_BYTE: u64 = 16;
/// Maximum for the largest file.
const MOST: u64 = 6 << 30;

/// The remaining memory and time. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Rc<Left>);

#[derive(Debug)]
struct Left {
    bytes: Cell<u64>,
    steps: Cell<u32>,
    until: Instant,
    longest: Duration,
    over: Cell<Option<Over>>,
}

/// The exhausted resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Memory,
    Time,
}

impl Budget {
    /// For a file of this length.
    pub fn of_file(length: u64, longest: Duration) -> Budget {
        let bytes = length.saturating_mul(FOR_EACH_BYTE).saturating_add(LEAST).min(MOST);
        let until = Instant::now() + longest;
        Budget(Rc::new(Left {
            bytes: Cell::new(bytes),
            steps: Cell::new(0),
            until,
            longest,
            over: Cell::new(None),
        }))
    }

    /// Takes memory for something to keep. Returns whether enough was left; after a failure nothing is left.
    pub fn keep(&self, bytes: u64) -> bool {
        match self.0.bytes.get().checked_sub(bytes) {
            Some(left) => self.0.bytes.set(left),
            None => self.end(Over::Memory),
        }
        self.goes_on()
    }

    /// Takes one step. Returns whether there is time for more.
    pub fn goes_on(&self) -> bool {
        let left = &*self.0;
        left.steps.set(left.steps.get().wrapping_add(1));
        if left.steps.get().is_multiple_of(256) && Instant::now() > left.until {
            self.end(Over::Time);
        }
        left.over.get().is_none()
    }

    fn end(&self, over: Over) {
        self.0.bytes.set(0);
        self.0.over.set(self.0.over.get().or(Some(over)));
    }

    /// A note about the exhausted resource, if any.
    pub fn note(&self) -> Option<String> {
        Some(match self.0.over.get()? {
            Over::Memory => "its symbols and debug information unfold to more than fits a file of its size: \
                the rest was left out"
                .into(),
            Over::Time => {
                format!("reading it took more than {} s: the rest was left out", self.0.longest.as_secs())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_end() {
        let budget = Budget::of_file(1 << 20, Duration::from_secs(600));
        assert!(budget.keep(79 << 20) && budget.clone().keep(1 << 20) && budget.note().is_none());
        assert!(!budget.keep(1) && !budget.keep(0) && !budget.goes_on());
        assert!(budget.note().unwrap().contains("unfold"));
        assert!(!Budget::of_file(u64::MAX, Duration::from_secs(600)).keep(MOST + 1));
        let late = Budget::of_file(1, Duration::ZERO);
        assert!((0..256).any(|_| !late.goes_on()));
        assert!(late.note().unwrap().contains("more than 0 s"));
    }
}
