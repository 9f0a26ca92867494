//! Arenas for many threads: compared with a set of integers, imported, at their limit, under load, and as I/O
//! addresses.

use libncpu::vmem::{Options, Part, Use};
use libncpu::{Constraints, Error, Policy, Vmem};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

fn ids(cache_to: u64, total: u64) -> Vmem<'static> {
    let arena = Vmem::new(Options { cache_to, ..Options::default() }).unwrap();
    arena.add(0, total).unwrap();
    arena
}

fn parts(arena: &Vmem) -> Vec<Part> {
    let mut parts = Vec::new();
    arena.walk(|part| parts.push(part));
    parts
}

/// Everything free, in one piece per span.
fn assert_whole(arena: &Vmem) {
    arena.reap().unwrap();
    for part in parts(arena) {
        assert_eq!((part.used, part.first), (Use::Free, true), "{part:?}");
    }
}

/// The longest run of integers below `total` that are not in `held`.
fn longest(held: &BTreeMap<u64, u64>, total: u64) -> u64 {
    let (mut at, mut longest) = (0, 0);
    for (&start, &size) in held {
        longest = longest.max(start - at);
        at = start + size;
    }
    longest.max(total - at)
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(u64),
    Within(u64, u64, u64),
    Free(usize),
    Wrong(u64, u64),
    Reap,
}

fn step() -> impl Strategy<Value = Step> {
    let size = || prop_oneof![8 => 1..5u64, 3 => 1..12u64, 1 => 1..100u64];
    prop_oneof![
        12 => size().prop_map(Step::Alloc),
        2 => (size(), 0..250u64, 0..50u64).prop_map(|(size, min, more)| Step::Within(size, min, min + more)),
        9 => any::<prop::sample::Index>().prop_map(|which| Step::Free(which.index(1 << 20))),
        2 => (0..250u64, 0..12u64).prop_map(|(start, size)| Step::Wrong(start, size)),
        1 => Just(Step::Reap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// With magazines in between: still a set of integers that refuses no request that fits.
    #[test]
    fn is_a_set_of_integers(
        cache_to in 0..9u64,
        total in 1..250u64,
        steps in prop::collection::vec(step(), 1..500),
    ) {
        let arena = ids(cache_to, total);
        let mut held = BTreeMap::<u64, u64>::new();
        for step in steps {
            let (size, low, high, taken) = match step {
                Step::Alloc(size) => (size, 0, u64::MAX, arena.alloc(size)),
                Step::Within(size, min, max) => {
                    let window = Constraints { min, max, ..Constraints::default() };
                    (size, min, max, arena.alloc_with(size, Policy::Best, &window))
                }
                Step::Free(which) => {
                    let Some((&start, &size)) = held.iter().nth(which % held.len().max(1)) else { continue };
                    let wrong = Error::WrongSize { address: start, allocated: size, given: size + 1 };
                    prop_assert_eq!(arena.free(start, size + 1), Err(wrong));
                    prop_assert_eq!(arena.free(start, size), Ok(()));
                    prop_assert_eq!(arena.free(start, size), Err(Error::NotAllocated { address: start }));
                    held.remove(&start);
                    continue;
                }
                Step::Wrong(start, size) => {
                    if held.get(&start) != Some(&size) {
                        prop_assert!(arena.free(start, size).is_err());
                    }
                    continue;
                }
                Step::Reap => {
                    arena.reap().unwrap();
                    continue;
                }
            };
            match taken {
                Ok(start) => {
                    prop_assert!(start >= low && start + size <= total && start + size - 1 <= high);
                    if let Some((&before, &length)) = held.range(..start + size).next_back() {
                        prop_assert!(before + length <= start, "{start} of {size} is handed out twice");
                    }
                    held.insert(start, size);
                }
                Err(Error::Exhausted { .. }) if high == u64::MAX => {
                    prop_assert!(longest(&held, total) < size, "{size} overlooked in {held:?}");
                }
                Err(Error::Exhausted { .. }) => {
                    let free = |start: u64| {
                        start + size - 1 <= high
                            && start + size <= total
                            && held.range(..start + size).next_back().is_none_or(|(at, n)| at + n <= start)
                    };
                    let found = (low..=high).find(|&start| free(start));
                    prop_assert_eq!(found, None, "{} overlooked", size);
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
            let used: u64 = held.values().sum();
            let statistics = arena.statistics();
            prop_assert_eq!(statistics.totals.free + statistics.cached + used, total);
        }
        for (start, size) in held {
            arena.free(start, size).unwrap();
        }
        assert_whole(&arena);
    }

    /// Two arenas over one: integers that neither of the two holds are free in the parent.
    #[test]
    fn imports_and_gives_back(
        quanta in (0..3u32, 0..3u32),
        import in 0..40u64,
        steps in prop::collection::vec((any::<bool>(), step()), 1..300),
    ) {
        let total = 1 << 10;
        let parent = Vmem::new(Options { quantum: 1 << quanta.0, cache_to: 8, ..Options::default() }).unwrap();
        parent.add(0, total).unwrap();
        let unit = 1 << quanta.1;
        let options = Options { quantum: unit, cache_to: 4 * unit, import, ..Options::default() };
        let children = [(); 2].map(|()| Vmem::with_parent(options, &parent).unwrap());
        let mut held = BTreeMap::<u64, (u64, usize)>::new();
        for (which, step) in steps {
            let which = usize::from(which);
            let (size, taken) = match step {
                Step::Alloc(size) => (size, children[which].alloc(size)),
                Step::Within(size, min, max) => {
                    let c = Constraints {
                        min,
                        max: max * 4,
                        align: unit << (min % 4),
                        nocross: 128,
                        ..Constraints::default()
                    };
                    let taken = children[which].alloc_with(size, Policy::Instant, &c);
                    if let Ok(start) = taken {
                        prop_assert_eq!(start % c.align, 0);
                        prop_assert!(start >= min && start + size - 1 <= c.max);
                        prop_assert_eq!(start / 128, (start + size - 1) / 128);
                    }
                    (size, taken)
                }
                Step::Free(which) => {
                    let Some((&start, &(size, child))) = held.iter().nth(which % held.len().max(1)) else {
                        continue;
                    };
                    let other = children[1 - child].free(start, size);
                    prop_assert_eq!(other, Err(Error::NotAllocated { address: start }));
                    prop_assert_eq!(children[child].free(start, size), Ok(()));
                    held.remove(&start);
                    continue;
                }
                Step::Wrong(..) => continue,
                Step::Reap => {
                    children[which].reap().unwrap();
                    continue;
                }
            };
            match taken {
                Ok(start) => {
                    let size = size.next_multiple_of(unit);
                    if let Some((&before, &(length, _))) = held.range(..start + size).next_back() {
                        prop_assert!(before + length <= start, "{start} of {size} is handed out twice");
                    }
                    held.insert(start, (size, which));
                }
                Err(Error::Exhausted { .. } | Error::Invalid(_)) => {}
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        for (start, (size, child)) in held {
            children[child].free(start, size).unwrap();
        }
        for child in &children {
            child.reap().unwrap();
            prop_assert_eq!(parts(child), []);
            let statistics = child.statistics();
            prop_assert_eq!(statistics.imports, statistics.releases);
        }
        assert_whole(&parent);
    }
}

#[test]
fn a_child_has_all_of_its_parent() {
    let parent = ids(0, 256);
    {
        let child = Vmem::with_parent(Options { import: 100, ..Options::default() }, &parent).unwrap();
        let all: Vec<u64> = (0..256).map(|_| child.alloc(1).unwrap()).collect();
        assert_eq!(child.alloc(1), Err(Error::Exhausted { size: 1 }));
        all[..250].iter().for_each(|&id| child.free(id, 1).unwrap());
        assert!(child.alloc(257).is_err());
        // All integers are free in the parent, except spans that were given back only in part.
        assert!(parent.statistics().totals.free > 0);
    }
    // Dropped with a range handed out: its spans stay taken.
    let left = parent.statistics().totals;
    assert!(left.free > 0 && left.free < 256, "{left:?}");
    assert!(left.allocated_segments > 0);
}

#[test]
fn options_that_make_no_sense() {
    let refused = |options| matches!(Vmem::new(options), Err(Error::Invalid(_)));
    assert!(refused(Options { quantum: 0, ..Options::default() }));
    assert!(refused(Options { quantum: 24, ..Options::default() }));
    assert!(refused(Options { cache_to: 65, ..Options::default() }));
    assert!(refused(Options { policy: Policy::Next, ..Options::default() }));
    let arena = ids(8, 10);
    assert_eq!(arena.alloc(0), Err(Error::Invalid("the size must not be 0")));
    assert_eq!(arena.alloc(u64::MAX), Err(Error::Exhausted { size: u64::MAX }));
    assert_eq!(arena.free(3, 0), Err(Error::NotAllocated { address: 3 }));
}

/// Identifiers that are not reused soon, as a kernel hands out process numbers.
#[test]
fn next_fit_goes_round() {
    let arena = Vmem::new(Options { cache_to: 0, policy: Policy::Next, ..Options::default() }).unwrap();
    arena.add(2, 98).unwrap();
    for turn in 0..3 {
        for id in 2..100 {
            assert_eq!(arena.alloc(1), Ok(id), "turn {turn}");
            arena.free(id, 1).unwrap();
        }
    }
}

fn effort() -> u64 {
    std::env::var("LIBNCPU_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Threads that together never want more than the arena has: every refusal is wrong, wherever the integers
/// are cached.
fn nobody_is_refused(arena: &Vmem, threads: u64, each: u64, turns: u64) {
    let taken: Vec<AtomicBool> = (0..threads * each * 3).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|s| {
        for thread in 0..threads {
            let taken = &taken;
            s.spawn(move || {
                for turn in 0..turns * effort() {
                    let sizes: Vec<u64> = match (turn + thread) % 3 {
                        0 => vec![1; each as usize],
                        1 => vec![3; (each / 3) as usize],
                        _ => vec![1],
                    };
                    let held: Vec<(u64, u64)> = sizes
                        .into_iter()
                        .map(|size| (arena.alloc(size).unwrap_or_else(|error| panic!("{error}")), size))
                        .collect();
                    for &(start, size) in &held {
                        for id in start..start + size {
                            assert!(!taken[id as usize].swap(true, SeqCst), "{id} is handed out twice");
                        }
                    }
                    if turn % 16 == 0 {
                        std::thread::yield_now();
                    }
                    for (start, size) in held {
                        for id in start..start + size {
                            taken[id as usize].store(false, SeqCst);
                        }
                        arena.free(start, size).unwrap();
                    }
                }
            });
        }
    });
    assert_whole(arena);
}

#[test]
fn under_load_nothing_is_overlooked() {
    let (threads, each) = (24, 12);
    // Single integers only, exactly as needed.
    let exact = ids(1, threads);
    nobody_is_refused(&exact, threads, 1, 400);
    // Ranges of three among single ones: with three times the integers one is always free, whatever the
    // order.
    let arena = ids(8, threads * each * 3);
    nobody_is_refused(&arena, threads, each, 400);
    let plenty = ids(8, 1 << 20);
    let statistics = || plenty.statistics();
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                for i in 0..20_000 {
                    let size = 1 + i % 9;
                    let start = plenty.alloc(size).unwrap();
                    plenty.free(start, size).unwrap();
                }
            });
        }
    });
    // Sizes 1 to 8 are cached, 9 is not.
    let served = statistics();
    assert!(served.hits > threads * 20_000 / 2, "{served:?}");
    assert_eq!((served.refusals, served.drains), (0, 0));
    assert_whole(&plenty);
}

/// More requested than available: refused in part, never handed out twice.
#[test]
fn at_the_limit_nothing_is_handed_out_twice() {
    let arena = ids(2, 10);
    let holders: Vec<AtomicU32> = (0..10).map(|_| AtomicU32::new(0)).collect();
    let refused = libncpu::Counter::new().unwrap();
    std::thread::scope(|s| {
        for _ in 0..16 {
            s.spawn(|| {
                for i in 0..3_000 {
                    let Ok(id) = arena.alloc(1) else {
                        refused.add(1);
                        continue;
                    };
                    assert_eq!(holders[id as usize].fetch_add(1, SeqCst), 0);
                    if i % 8 == 0 {
                        std::thread::yield_now();
                    }
                    holders[id as usize].fetch_sub(1, SeqCst);
                    arena.free(id, 1).unwrap();
                }
            });
        }
    });
    assert_eq!(arena.statistics().refusals, refused.sum() as u64);
    assert_whole(&arena);
}

/// If many threads free the same range, one succeeds.
#[test]
fn given_back_once() {
    let arena = ids(4, 1_000);
    for turn in 0..300 {
        let start = arena.alloc(2).unwrap();
        let given = AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| match arena.free(start, 2) {
                    Ok(()) => {
                        given.fetch_add(1, SeqCst);
                    }
                    Err(error) => assert_eq!(error, Error::NotAllocated { address: start }),
                });
            }
        });
        assert_eq!(given.into_inner(), 1, "turn {turn}");
    }
    assert_whole(&arena);
}

/// CPUs that the arena did not count at its start, as when a container is moved to a larger machine.
#[test]
fn more_cpus_than_at_start() {
    let arena = Vmem::on(Options::default(), 1).unwrap();
    arena.add(0, 24 * 12 * 3).unwrap();
    nobody_is_refused(&arena, 24, 12, 200);
}

/// Threads that free ranges which others took.
#[test]
fn one_way() {
    let arena = ids(1, 100);
    let (send, receive) = std::sync::mpsc::sync_channel(50);
    std::thread::scope(|s| {
        let arena = &arena;
        s.spawn(move || {
            for _ in 0..20_000 {
                // At most 50 in the channel, 1 on either side of it.
                send.send(arena.alloc(1).unwrap()).unwrap();
            }
        });
        s.spawn(move || receive.iter().for_each(|id| arena.free(id, 1).unwrap()));
    });
    assert_whole(&arena);
}

/// A child process has a consistent arena if the locks were taken before the fork.
#[test]
fn fork_while_others_use_it() {
    let arena = ids(4, 10_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    for size in 1..6 {
                        let start = arena.alloc(size).unwrap();
                        arena.free(start, size).unwrap();
                    }
                }
            });
        }
        for turn in 0..20 {
            let parent = parts(&arena).len();
            assert!(parent > 0);
            arena.before_fork();
            // SAFETY: the child calls only what needs no other thread, and ends by _exit.
            let status = unsafe {
                let child = libc::fork();
                assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
                arena.after_fork(child == 0);
                if child == 0 {
                    libc::alarm(60);
                    let mut taken = [0; 1000];
                    let mut right = true;
                    for _ in 0..2 {
                        for start in &mut taken {
                            *start = arena.alloc(2).unwrap_or(u64::MAX);
                        }
                        right &= taken.iter().all(|&start| arena.free(start, 2).is_ok());
                    }
                    right &= arena.reap().is_ok();
                    libc::_exit(if right { 0 } else { 1 });
                }
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                status
            };
            assert_eq!(status, 0, "turn {turn}");
        }
        stop.store(true, SeqCst);
    });
    assert_whole(&arena);
}

/// The addresses that an IOMMU maps for devices: 2 GiB, pages of 8 KiB, transfers of common sizes, and
/// drivers that keep large pools, until the addresses are used up.
#[test]
fn device_addresses_run_out() {
    const KIB: u64 = 1 << 10;
    let arena = Vmem::new(Options { quantum: 8 * KIB, cache_to: 128 * KIB, ..Options::default() }).unwrap();
    let (base, total) = (2 << 30, 2 << 30);
    arena.add(base, total).unwrap();
    // Permanent pools, aligned and within windows as devices need them.
    let within = Constraints { align: 1 << 20, nocross: 16 << 20, ..Constraints::default() };
    let pools: Vec<u64> =
        (0..256).map(|_| arena.alloc_with(4 << 20, Policy::Best, &within).unwrap()).collect();
    let mut random = 1u64;
    let mut next = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    let sizes = [8, 8, 8, 16, 16, 32, 64, 64, 128, 1024].map(|size| size * KIB);
    let (mut held, mut refused) = (Vec::new(), 0);
    for _ in 0..60_000 {
        if next(16) < 11 || held.is_empty() {
            let size = sizes[next(sizes.len() as u64) as usize];
            match arena.alloc(size) {
                Ok(start) => {
                    assert!(start >= base && start + size <= base + total && start % (8 * KIB) == 0);
                    held.push((start, size));
                }
                Err(error) => {
                    assert_eq!(error, Error::Exhausted { size });
                    refused += 1;
                    if refused % 64 == 1 {
                        for part in parts(&arena) {
                            assert!(part.used == Use::Allocated || part.size < size, "{part:?} overlooked");
                        }
                    }
                }
            }
        } else {
            let (start, size) = held.swap_remove(next(held.len() as u64) as usize);
            arena.free(start, size).unwrap();
        }
    }
    assert!(refused > 64, "only {refused} refused");
    let told = arena.statistics();
    assert_eq!(told.refusals, refused);
    let used: u64 = held.iter().map(|&(_, size)| size).sum::<u64>() + (pools.len() as u64) * (4 << 20);
    assert_eq!(told.totals.free + told.cached + used, total);
    // Every page can be taken at once, whatever size it was cached as.
    let pages = (total - used) / (8 * KIB);
    let singles: Vec<u64> = (0..pages).map(|_| arena.alloc(8 * KIB).unwrap()).collect();
    assert!(arena.alloc(1).is_err());
    singles.into_iter().for_each(|start| arena.free(start, 8 * KIB).unwrap());
    held.into_iter().for_each(|(start, size)| arena.free(start, size).unwrap());
    pools.into_iter().for_each(|start| arena.free(start, 4 << 20).unwrap());
    assert_whole(&arena);
}
