//! Requests to an arena, and its answers.

use crate::percpu::OutOfMemory;
use std::fmt;

/// Selects the free range that serves a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The first of a list whose ranges are all large enough: constant time.
    #[default]
    Instant,
    /// The smallest that fits: least waste, searches a list.
    Best,
    /// The first after the one handed out last, then from the beginning: integers are reused as late as possible.
    Next,
}

/// Where a range may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// The first integer is a multiple of this power of two, plus `phase`. 0 stands for the quantum.
    pub align: u64,
    /// Below `align`, a multiple of the quantum.
    pub phase: u64,
    /// The range contains no two integers on different sides of a multiple of this power of two. 0 disables
    /// the limit.
    pub nocross: u64,
    /// No integer of the range is below.
    pub min: u64,
    /// No integer of the range is above.
    pub max: u64,
}

impl Default for Constraints {
    fn default() -> Constraints {
        Constraints { align: 0, phase: 0, nocross: 0, min: 0, max: u64::MAX }
    }
}

/// Why an arena refused a request. A refused request changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No free range of this many integers, within the constraints.
    Exhausted {
        /// The requested size.
        size: u64,
    },
    /// No allocated range begins here: it never did, or was freed before.
    NotAllocated {
        /// The address to free.
        address: u64,
    },
    /// The range that begins here has another size.
    WrongSize {
        /// The address to free.
        address: u64,
        /// The number of integers that were allocated.
        allocated: u64,
        /// The number of integers to free.
        given: u64,
    },
    /// The arena already holds some of these integers.
    Overlap {
        /// The first of the span to be added.
        address: u64,
        /// Its size.
        size: u64,
    },
    /// The request is invalid; the text says why.
    Invalid(&'static str),
    /// Out of memory for the arena's own data.
    OutOfMemory(OutOfMemory),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Exhausted { size } => write!(f, "no free range of {size}"),
            Error::NotAllocated { address } => write!(f, "{address:#x} is not allocated"),
            Error::WrongSize { address, allocated, given } => {
                write!(f, "{address:#x} was allocated as {allocated}, freed as {given}")
            }
            Error::Overlap { address, size } => {
                write!(f, "the arena already holds some of the {size} integers from {address:#x}")
            }
            Error::Invalid(what) => f.write_str(what),
            Error::OutOfMemory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Error {
        Error::OutOfMemory(error)
    }
}

/// A part of a span, as passed by [`Arena::walk`](crate::Arena::walk).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first integer.
    pub start: u64,
    /// Its size.
    pub size: u64,
    /// Whether it is handed out.
    pub allocated: bool,
    /// Whether a span begins with it.
    pub first: bool,
}

/// Sums over an arena; sizes in integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// In all spans.
    pub total: u64,
    /// Not handed out.
    pub free: u64,
    /// The longest free range.
    pub largest: u64,
    /// Free ranges.
    pub free_segments: usize,
    /// Ranges handed out.
    pub allocated_segments: usize,
    /// Spans.
    pub spans: usize,
}
