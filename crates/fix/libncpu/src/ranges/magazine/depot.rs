//! The depot's contents: its magazine size, and its surplus.

use super::rounds::{List, Magazine};
use crate::sys::Instant;

/// Rounds in a magazine, as the paper's kernel grew them.
const SIZES: [u32; 9] = [1, 3, 7, 15, 31, 47, 63, 95, 143];
/// The initial size, as an index.
const FIRST: usize = 3;
/// The interval after which the depot evaluates its contention and its surplus: 15 seconds.
const INTERVAL_NS: u64 = 15_000_000_000;
/// The number of times that the depot's lock may be found taken within an interval before magazines get
/// larger.
const CONTENDED: u32 = 3;

/// Under the depot's lock.
pub(super) struct Stock {
    /// Magazines that hold objects.
    pub(super) full: List,
    pub(super) empty: List,
    /// Index into `SIZES`.
    pub(super) size: usize,
    contended: u32,
    /// The start of the interval; `None` before the first.
    since: Option<Instant>,
    /// The numbers of full and of empty magazines that the last interval did not need.
    surplus: [usize; 2],
}

// SAFETY: magazines are owned, and all threads may use the objects.
unsafe impl Send for Stock {}

impl Stock {
    pub(super) const NONE: Stock = Stock {
        full: List::EMPTY,
        empty: List::EMPTY,
        size: FIRST,
        contended: 0,
        since: None,
        surplus: [0; 2],
    };

    /// Rounds in a new magazine.
    pub(super) fn rounds(&self) -> u32 {
        SIZES[self.size]
    }

    /// Whether the last interval had a surplus.
    pub(super) fn has_surplus(&self) -> bool {
        self.surplus != [0; 2]
    }

    /// Updates contention and surplus at each use of the depot. Returns whether an interval ended.
    #[inline]
    pub(super) fn used(&mut self, contended: bool) -> bool {
        let now = Instant::now();
        let ended = self.since.is_none_or(|since| now.since(since) >= INTERVAL_NS);
        if ended {
            self.end_interval();
            (self.since, self.contended) = (Some(now), 0);
        }
        if contended {
            self.contended += 1;
            if self.contended > CONTENDED && self.size + 1 < SIZES.len() {
                self.size += 1;
                self.contended = 0;
            }
        }
        ended
    }

    /// Magazines that were not needed since the interval began are surplus.
    pub(super) fn end_interval(&mut self) {
        self.surplus = [self.full.least, self.empty.least];
        self.full.least = self.full.length;
        self.empty.least = self.empty.length;
    }

    /// A list of the surplus magazines of the last interval, full and empty.
    pub(super) fn take_surplus(&mut self) -> *mut Magazine {
        let mut list: *mut Magazine = std::ptr::null_mut();
        let [full, empty] = std::mem::take(&mut self.surplus);
        for (stack, surplus) in [(&mut self.full, full), (&mut self.empty, empty)] {
            for _ in 0..surplus {
                let magazine = stack.pop();
                if magazine.is_null() {
                    break;
                }
                // SAFETY: a magazine, now of this list.
                unsafe { (*magazine).next = list };
                list = magazine;
            }
        }
        list
    }

    /// Lists of all the magazines, full and empty.
    pub(super) fn take_all(&mut self) -> [*mut Magazine; 2] {
        [&mut self.full, &mut self.empty].map(|stack| std::mem::replace(stack, List::EMPTY).head)
    }
}
