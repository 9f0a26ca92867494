//! An object for each CPU, on cache lines of its own.

use crate::sys;
use std::fmt;

/// Alone on its cache lines: two, since processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Out of memory, for an object of this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory(pub usize);

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: {} bytes", self.0)
    }
}

impl std::error::Error for OutOfMemory {}

/// A slice made element by element, or an error if memory runs out.
pub fn boxed<T>(length: usize, make: impl FnMut(usize) -> T) -> Result<Box<[T]>, OutOfMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(length).map_err(|_| OutOfMemory(length.saturating_mul(size_of::<T>())))?;
    all.extend((0..length).map(make));
    // The capacity is exact: no reallocation, which could fail.
    Ok(all.into_boxed_slice())
}

/// A value on the heap, or an error if memory runs out.
pub fn one<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(1).map_err(|_| OutOfMemory(size_of::<T>()))?;
    all.push(value);
    // SAFETY: a slice of one element has the layout of the element.
    Ok(unsafe { Box::from_raw(Box::into_raw(all.into_boxed_slice()).cast()) })
}

/// A `T` for each CPU that the machine may ever have.
///
/// The CPU of a thread is a hint: the thread may move at any time, and CPUs beyond those possible at start (a
/// container moved to another machine) share the slots of others. So several threads may use one `T` at a
/// time.
pub struct PerCpu<T> {
    slots: Box<[Padded<T>]>,
}

impl<T> PerCpu<T> {
    /// One `T` for each CPU, made by `make` from its number.
    pub fn new(make: impl FnMut(usize) -> T) -> Result<PerCpu<T>, OutOfMemory> {
        PerCpu::with_slots(sys::topology().cpus(), make)
    }

    /// As `new` for a machine of `cpus` CPUs, at least 1.
    pub(crate) fn with_slots(
        cpus: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<PerCpu<T>, OutOfMemory> {
        Ok(PerCpu { slots: boxed(cpus.max(1), |cpu| Padded(make(cpu)))? })
    }

    /// The slot number of the CPU that the thread is on.
    #[inline(always)]
    pub fn here(&self) -> usize {
        self.slot(sys::cpu_or_thread() as usize)
    }

    /// The slot of a CPU.
    #[inline(always)]
    pub(crate) fn slot(&self, cpu: usize) -> usize {
        if cpu < self.slots.len() { cpu } else { cpu % self.slots.len() }
    }

    /// All slots, by CPU.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &slot.0)
    }

    /// The number of slots.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

impl<T> std::ops::Index<usize> for PerCpu<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, slot: usize) -> &T {
        &self.slots[slot].0
    }
}
