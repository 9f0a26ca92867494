//! Without memory constructors fail in a defined way: every allocation that one makes is failed once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local!(static LEFT: Cell<Option<u64>> = const { Cell::new(None) });

/// Fails this thread's allocations after `LEFT` of them.
struct Failing;

// SAFETY: the system's allocator, or null, which is an allocator's right.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match LEFT.get() {
            Some(0) => return std::ptr::null_mut(),
            Some(n) => LEFT.set(Some(n - 1)),
            None => {}
        }
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Returns how many allocations it takes.
fn fails_cleanly<T>(make: impl Fn() -> Result<T, ncpu::OutOfMemory>) -> u64 {
    for n in 0.. {
        LEFT.set(Some(n));
        let made = make();
        LEFT.set(None);
        match made {
            Ok(_) => return n,
            Err(error) => assert!(error.to_string().starts_with("out of memory: "), "{error}"),
        }
    }
    unreachable!()
}

#[test]
fn out_of_memory_is_an_error() {
    // Read once per process, and too early to fail in any other way than Rust's.
    ncpu::sys::topology();
    assert!(fails_cleanly(|| ncpu::RwLock::new(0)) >= 1);
    assert!(fails_cleanly(|| ncpu::NumaMutex::new(0)) >= 1);
    assert!(fails_cleanly(|| ncpu::BoundedCounter::new(7)) >= 5);
    assert!(fails_cleanly(ncpu::Counter::new) >= 1);
    // In C: null and ENOMEM.
    LEFT.set(Some(0));
    let counter = ncpu::capi::ncpu_counter_create();
    let errno = std::io::Error::last_os_error().raw_os_error();
    LEFT.set(None);
    assert!(counter.is_null());
    assert_eq!(errno, Some(libc::ENOMEM));
}

/// An arena over another one, used while every allocation from the `n`th on fails: each call succeeds or says so, and
/// afterwards nothing is lost.
#[test]
fn arenas_without_memory() {
    use ncpu::vmem::Options;
    use ncpu::{Constraints, Error, Policy, Vmem};
    ncpu::sys::topology();
    let mut held = Vec::with_capacity(4_000);
    let mut failed_last = true;
    for n in 0.. {
        let mut failures = 0;
        let mut worked = |result: Result<u64, Error>| match result {
            Ok(start) => Some(start),
            Err(Error::OutOfMemory(_)) => {
                failures += 1;
                None
            }
            Err(other) => panic!("{other}"),
        };
        LEFT.set(Some(n));
        let options = Options { cache_to: 4, import: 64, ..Options::default() };
        let made = Vmem::new(options);
        let parent = match made {
            Ok(parent) => parent,
            Err(Error::OutOfMemory(_)) => continue,
            Err(other) => panic!("{other}"),
        };
        if worked(parent.add(0, 1 << 20).map(|()| 0)).is_none() {
            continue;
        }
        {
            let child = match Vmem::with_parent(options, &parent) {
                Ok(child) => child,
                Err(Error::OutOfMemory(_)) => continue,
                Err(other) => panic!("{other}"),
            };
            let odd = Constraints { align: 32, phase: 3, nocross: 64, ..Constraints::default() };
            for turn in 0..3_000u64 {
                let size = 1 + turn % 6;
                let taken = if size == 6 {
                    worked(child.alloc_with(size, Policy::Best, &odd))
                } else {
                    worked(child.alloc(size))
                };
                if let Some(start) = taken {
                    held.push((start, size));
                }
                if turn % 3 == 0
                    && let Some((start, size)) = held.pop()
                {
                    child.free(start, size).unwrap();
                }
            }
            for (start, size) in held.drain(..) {
                child.free(start, size).unwrap();
                assert_eq!(child.free(start, size), Err(Error::NotAllocated { address: start }));
            }
            child.reap().unwrap();
            assert_eq!(child.statistics().totals.total, 0);
        }
        parent.reap().unwrap();
        assert_eq!(parent.statistics().totals.largest, 1 << 20);
        LEFT.set(None);
        failed_last = failures > 0;
        if !failed_last && n > 100 {
            break;
        }
    }
    assert!(!failed_last);
}
