//! Constructors fail in a defined way when memory runs out: each of their allocations is failed once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local!(static LEFT: Cell<Option<u64>> = const { Cell::new(None) });

/// Fails this thread's allocations after `LEFT` of them.
struct Failing;

// SAFETY: the system's allocator, or null, which an allocator may return.
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

/// Returns the number of allocations.
fn fails_cleanly<T>(make: impl Fn() -> Result<T, libncpu::OutOfMemory>) -> u64 {
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
    libncpu::innards::topology();
    assert!(fails_cleanly(|| libncpu::RwLock::new(0)) >= 1);
    assert!(fails_cleanly(|| libncpu::NumaMutex::new(0)) >= 1);
    assert!(
        fails_cleanly(|| {
            libncpu::BoundedCounter::new(7).map_err(|error| match error {
                libncpu::counters::bounded::Error::OutOfMemory(error) => error,
                other => panic!("{other}"),
            })
        }) >= 5
    );
    assert!(fails_cleanly(libncpu::Counter::new) >= 1);
    assert!(fails_cleanly(libncpu::Timers::new) >= 2);
    let timers = libncpu::Timers::new().expect("memory");
    assert!(fails_cleanly(|| timers.timer(|_| ())) >= 1);
    let timer = timers.timer(|_| ()).expect("memory");
    // The CPU's first timer needs its wheel.
    LEFT.set(Some(0));
    let armed = timer.arm(std::time::Duration::from_secs(3600));
    LEFT.set(None);
    assert_eq!(armed.unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    assert!(!timer.is_armed());
    assert!(!timer.arm(std::time::Duration::from_secs(3600)).expect("memory"));
    // Every variable is a new string, and some need a longer list or table. A failed call has changed
    // nothing.
    let mut most = 0;
    for n in 0..300 {
        let name = std::ffi::CString::new(format!("OUT_OF_MEMORY_{n}")).unwrap();
        let (wanted, mut needed) = (c"1", 0);
        loop {
            LEFT.set(Some(needed));
            let set = libncpu::env::set(&name, wanted, true);
            LEFT.set(None);
            match set {
                Ok(()) => break,
                Err(error) => assert!(error.to_string().starts_with("out of memory: "), "{error}"),
            }
            assert_eq!(libncpu::env::get(&name), None);
            needed += 1;
        }
        assert_eq!(libncpu::env::get(&name), Some(wanted));
        most = needed.max(most);
    }
    assert!(most >= 3, "{most}");
    // In C: null and ENOMEM.
    LEFT.set(Some(0));
    let counter = ncpu::counters::ncpu_counter_create();
    let errno = std::io::Error::last_os_error().raw_os_error();
    LEFT.set(None);
    assert!(counter.is_null());
    assert_eq!(errno, Some(libc::ENOMEM));
}

#[test]
fn segments_need_little_of_the_heap() {
    use libncpu::populate::{Backing, Helpers, Segment, SegmentOptions};
    libncpu::innards::topology();
    // A name is copied; if memory runs out no object is left under it.
    let name = std::ffi::CString::new(format!("/ncpu-memory-test.{}", std::process::id())).expect("a name");
    let options = SegmentOptions { backing: Backing::Posix(name), ..SegmentOptions::default() };
    for _ in 0..2 {
        LEFT.set(Some(0));
        let refused = Segment::create(4 << 20, &options).map(|_| ());
        LEFT.set(None);
        assert_eq!(
            refused.map_err(|error| error.to_string()),
            Err("malloc: Cannot allocate memory (os error 12)".into())
        );
    }
    Segment::create(4 << 20, &options).expect("a segment").destroy().expect("its end");
    // No other allocation is made.
    LEFT.set(Some(0));
    let segment = Segment::create(9 << 20, &SegmentOptions::default());
    let found = segment.as_ref().map(|segment| {
        // SAFETY: our own memory, all of it initialised.
        unsafe {
            libncpu::blocks::fill_at(segment.as_ptr(), segment.len(), 5, Helpers(3));
            let memory = std::slice::from_raw_parts(segment.as_ptr(), segment.len());
            libncpu::blocks::scan(memory, 5, Helpers(3)).first
        }
    });
    LEFT.set(None);
    assert_eq!(found.expect("a segment"), None);
}

/// An arena over another one, used while every allocation from the `n`th on fails: each call succeeds or
/// returns an error, and afterwards no integer is lost.
#[test]
fn arenas_without_memory() {
    use libncpu::vmem::Options;
    use libncpu::{Constraints, Error, Policy, Vmem};
    libncpu::innards::topology();
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
