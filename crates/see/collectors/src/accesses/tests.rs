use std::sync::atomic::AtomicU64;

use ncpu_machine::events::{Encoding, TYPE_SOFTWARE};

use super::*;

/// A load that hit a line modified in another cache of the node, and one of another node; a plain store.
const LOCAL: u64 = 0x02 | (0x40 | 0x02) << 5 | 0x10 << 19;
const REMOTE: u64 = 0x02 | (0x400 | 0x02) << 5 | 0x10 << 19;
const STORE: u64 = 0x04 | (0x08 | 0x02) << 5;

#[repr(align(64))]
struct Line([AtomicU64; 2]);
static SHARED_BY_THE_TEST: Line = Line([const { AtomicU64::new(0) }; 2]);

/// A record as the kernel writes it.
fn record(address: u64, ip: u64, tid: u32, source: u64) -> Vec<u8> {
    let ids = u64::from(std::process::id()) | u64::from(tid) << 32;
    let mut out = [9u32.to_ne_bytes(), [0, 0, 56, 0]].concat();
    out.extend([ip, ids, address, 0, 100, source].iter().flat_map(|w| w.to_ne_bytes()));
    out
}

fn collected(bytes: &[u8]) -> Counted {
    let mut counted = Counted::default();
    counted.take(bytes, |_| true);
    counted
}

#[test]
fn samples_are_joined_with_names() {
    let address = |n: usize| SHARED_BY_THE_TEST.0[n].as_ptr() as u64;
    let ip = samples_are_joined_with_names as fn() as usize as u64;
    let heap = Box::new([0u64; 64]);
    let quiet = heap.as_ptr() as u64;
    let bytes = [
        record(address(0), ip, 1, LOCAL),
        record(address(0), ip, 1, LOCAL),
        record(address(1), ip, 2, REMOTE),
        record(address(1), ip, 2, STORE),
        record(quiet, ip, 2, STORE),
        record(0, ip, 2, STORE),
    ]
    .concat();
    let counted = collected(&bytes);
    assert_eq!((counted.totals().samples, counted.totals().without), (6, 1));
    assert_eq!(counted.hottest(), Some(std::process::id()));
    let mut names = names::Names::default();
    names.met(std::process::id());
    let [accesses, totals] = tables::of(&counted, None, &mut names, 64);
    assert_eq!(accesses.num_rows(), 2, "the heap's line never moved");
    assert_eq!(
        (totals.int(0, "local"), totals.int(0, "remote"), totals.int(0, "stores")),
        (Some(2), Some(1), Some(2))
    );
    for (row, offset, counts) in [(0, 0, [2, 0, 2, 0]), (1, 8, [0, 1, 1, 1])] {
        assert_eq!(accesses.int(row, "offset"), Some(offset));
        let name = accesses.text(row, "name").unwrap_or_default();
        assert!(name.contains("SHARED_BY_THE_TEST"), "{name}");
        assert!(
            accesses.text(row, "code").unwrap_or_default().contains("samples_are_joined"),
            "{accesses:?}"
        );
        assert!(accesses.text(row, "source").unwrap_or_default().starts_with("tests.rs:"), "{accesses:?}");
        let found = ["local", "remote", "loads", "stores"].map(|c| accesses.int(row, c).unwrap_or(99));
        assert_eq!(found, counts);
        assert_eq!(accesses.int(row, "cycles"), Some(100 * counts[2]));
    }
}

#[test]
fn memory_is_bounded_and_what_moved_is_kept() {
    let mut counted = Counted::default();
    counted.take(&record(0x1000, 1, 1, LOCAL), |_| true);
    for n in 0..MOST as u64 + 10 {
        counted.take(&record(0x10_0000 + 64 * n, 1, 1, STORE), |_| true);
    }
    assert!(counted.accesses().count() <= MOST / 2);
    assert!(counted.accesses().any(|(a, _)| a.address == 0x1000));
    assert!(counted.totals().forgotten >= MOST as u64);
    assert!(notes(counted.totals(), 99, false).iter().any(|n| n.starts_with("dropped")));
}

#[test]
fn others_are_left_out_and_damage_is_counted() {
    let mut counted = Counted::default();
    counted.take(&record(8, 1, 1, STORE), |pid| pid == 1);
    assert_eq!(counted.totals().samples, 0);
    counted.take(&record(8, 1, 1, STORE)[..40], |_| true);
    assert_eq!((counted.totals().samples, counted.totals().damaged), (0, 1));
    assert!(notes(counted.totals(), 99, false)[0].starts_with("no access was sampled"));
}

/// An event that every machine can sample: page faults have an address, too. They take the way of any access,
/// but for the hardware.
fn faults() -> AccessEvent {
    let encoding = Encoding { pmu: "software".into(), kind: TYPE_SOFTWARE, config: [2, 0, 0, 0], cpus: None };
    AccessEvent { name: "page-faults".into(), encoding, leader: None, any_instruction: false }
}

/// Whether this user may open events at all.
fn allowed(found: Result<Collector, Error>) -> Option<Collector> {
    match found {
        Ok(collector) => Some(collector),
        Err(Error::Open { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: perf events are not allowed here");
            None
        }
        Err(e) => panic!("{e}: {:?}", std::error::Error::source(&e)),
    }
}

/// Touches fresh memory and gives its range.
fn touch(pages: usize) -> std::ops::Range<u64> {
    let size = pages * 4096;
    // SAFETY: a fresh private mapping, written within its bounds.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        libc::madvise(at, size, libc::MADV_NOHUGEPAGE);
        (0..pages).for_each(|n| at.cast::<u8>().add(n * 4096).write_volatile(1));
        at as u64..at as u64 + size as u64
    }
}

#[test]
fn a_process_is_sampled_through_real_rings() {
    let opened = Collector::open(Scope::Process(std::process::id()), &[faults()]);
    let Some(mut collector) = allowed(opened) else { return };
    collector.start().unwrap();
    let stop = AtomicBool::new(false);
    let range = std::thread::scope(|scope| {
        // A thread that was not there when the events were opened is sampled where the CPUs are.
        let toucher = scope.spawn(|| {
            let range = touch(4096);
            stop.store(true, Ordering::Relaxed);
            range
        });
        collector.watch(None, None, &stop);
        toucher.join().unwrap()
    });
    let totals = *collector.counted().totals();
    assert!(totals.samples > 0 && totals.damaged == 0, "{totals:?}");
    // Software events tell no source, so only their number is counted.
    assert_eq!(totals.without, totals.samples);
    assert!(!range.is_empty());
}

#[test]
fn a_program_is_sampled_from_its_exec_on() {
    use crate::program::Child;
    let mut child = Child::hold(&["sh".into(), "-c".into(), "ls / >/dev/null; true".into()]).unwrap();
    let Some(mut collector) = allowed(Collector::open(Scope::Program(child.pid()), &[faults()])) else {
        return;
    };
    child.release().unwrap();
    collector.watch(Some(child.pidfd()), None, &AtomicBool::new(false));
    assert_eq!(child.wait(true).unwrap().status, 0);
    let totals = collector.counted().totals();
    assert!(totals.samples > 0 && totals.damaged == 0, "{totals:?}");
    assert!(
        collector.notes().iter().any(|n| n.contains("samples lack the address")),
        "{:?}",
        collector.notes()
    );
}

#[test]
fn an_event_that_is_not_there_is_named() {
    let mut event = faults();
    event.encoding.kind = 0x7fff_0000;
    let e = Collector::open(Scope::Process(std::process::id()), &[event]).err().unwrap();
    assert!(matches!(&e, Error::Open { event, .. } if event == "page-faults"), "{e:?}");
}
