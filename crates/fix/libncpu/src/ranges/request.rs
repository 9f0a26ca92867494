//! What an arena is asked for, and what it answers.

use crate::percpu::OutOfMemory;
use std::fmt;

/// Which free range serves a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The first of a list whose every range is large enough: constant time.
    #[default]
    Instant,
    /// The smallest that fits: least waste, looks through a list.
    Best,
    /// The first after the one handed out last, then from the beginning: integers are reused as late as possible.
    Next,
}

/// Where a range may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// The first integer is a multiple of this power of two, plus `phase`. 0 is the quantum.
    pub align: u64,
    /// Below `align`, a multiple of the quantum.
    pub phase: u64,
    /// The range contains no two integers on different sides of a multiple of this power of two. 0 is no such limit.
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

/// Why an arena did not do what it was asked. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No free range of this many integers, within the constraints.
    Exhausted {
        /// What was asked for.
        size: u64,
    },
    /// No range that is handed out begins here: never was, or was given back before.
    NotAllocated {
        /// What was to be given back.
        address: u64,
    },
    /// The range that begins here has another size.
    WrongSize {
        /// What was to be given back.
        address: u64,
        /// How many integers were handed out.
        allocated: u64,
        /// How many were to be given back.
        given: u64,
    },
    /// Some of these integers are the arena's already.
    Overlap {
        /// The first of the span to be added.
        address: u64,
        /// How many.
        size: u64,
    },
    /// The request makes no sense; what about it.
    Invalid(&'static str),
    /// No memory for the arena's own data.
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
                write!(f, "{size} from {address:#x} are partly there already")
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

/// A part of a span, as [`Arena::walk`](crate::Arena::walk) tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first integer.
    pub start: u64,
    /// How many.
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
