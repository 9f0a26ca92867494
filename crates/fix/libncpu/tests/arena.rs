//! The arena compared with a set of integers that searches every place.

use libncpu::{Arena, Constraints, Error, Policy};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The number of possible integers, counted from the base.
const UNITS: u64 = 192;

/// Allocated ranges and spans by their start, all in quanta from the base.
#[derive(Default)]
struct Model {
    spans: BTreeMap<u64, u64>,
    allocated: BTreeMap<u64, u64>,
    rotor: u64,
}

impl Model {
    /// Maximal free ranges within spans.
    fn holes(&self) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        for (&start, &size) in &self.spans {
            let mut at = start;
            for (&used, &length) in self.allocated.range(start..start + size) {
                holes.push((at, used - at));
                at = used + length;
            }
            holes.push((at, start + size - at));
        }
        holes.retain(|&(_, size)| size > 0);
        holes
    }

    /// Every place where `size` may lie, with the size of the hole it is in.
    fn places(&self, base: u64, quantum: u64, size: u64, c: &Constraints) -> Vec<(u64, u64)> {
        let mut places = Vec::new();
        for (start, length) in self.holes() {
            for at in start..(start + length).saturating_sub(size - 1) {
                let (first, last) = (base + at * quantum, base + (at + size) * quantum - 1);
                let aligned = c.align == 0 || first % c.align == c.phase;
                let whole = c.nocross == 0 || first / c.nocross == last / c.nocross;
                if aligned && whole && first >= c.min && last <= c.max {
                    places.push((at, length));
                }
            }
        }
        places
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        size: u64,
        slack: u64,
        policy: Policy,
        c: Constraints,
    },
    /// The index of an allocated range, and an error to add to its size or address.
    Free(usize, u64),
    FreeAnything(u64, u64),
    Span(u64, u64),
}

fn constraints() -> impl Strategy<Value = Constraints> {
    let plain = Just(Constraints::default());
    // In quanta here.
    let any = (0..6u32, 0..64u64, prop::option::of(0..7u32), 0..UNITS, 0..2 * UNITS).prop_map(
        |(align, phase, nocross, min, more)| Constraints {
            align: 1 << align,
            phase: phase % (1 << align),
            nocross: nocross.map_or(0, |n| 1 << n),
            min: min.saturating_sub(UNITS / 2),
            max: if more > UNITS { u64::MAX } else { min + more },
        },
    );
    let aligned = (0..6u32).prop_map(|align| Constraints { align: 1 << align, ..Constraints::default() });
    prop_oneof![4 => plain, 1 => aligned, 3 => any]
}

fn step() -> impl Strategy<Value = Step> {
    let policy = prop_oneof![Just(Policy::Instant), Just(Policy::Best), Just(Policy::Next)];
    let size = prop_oneof![4 => 1..5u64, 2 => 1..24u64, 1 => 1..80u64];
    prop_oneof![
        8 => (size, 0..8u64, policy, constraints())
            .prop_map(|(size, slack, policy, c)| Step::Alloc { size, slack, policy, c }),
        6 => (any::<prop::sample::Index>(), prop_oneof![9 => Just(0), 1 => 1..9u64])
            .prop_map(|(which, wrong)| Step::Free(which.index(1 << 20), wrong)),
        1 => (0..UNITS, 0..4u64).prop_map(|(at, size)| Step::FreeAnything(at, size)),
        1 => (0..UNITS, 1..60u64).prop_map(|(at, size)| Step::Span(at, size.min(UNITS - at))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn is_a_set_of_integers(
        shift in 0..4u32,
        high in any::<bool>(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let quantum = 1u64 << shift;
        // At the beginning of all integers, or somewhere above.
        let base = if high { 1 << 40 } else { 0 };
        let mut arena = Arena::new(quantum).unwrap();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Span(at, size) => {
                    let added = arena.add(base + at * quantum, size * quantum, false);
                    if model.spans.iter().any(|(&start, &length)| start < at + size && at < start + length) {
                        let refused = matches!(added, Err(Error::Overlap { .. }));
                        prop_assert!(refused, "{added:?}");
                    } else {
                        prop_assert_eq!(added, Ok(()));
                        model.spans.insert(at, size);
                    }
                }
                Step::Alloc { size, slack, policy, c } => {
                    let bound = |at: u64| if at == u64::MAX { at } else { base + at * quantum };
                    let c = Constraints {
                        align: c.align * quantum,
                        phase: c.phase * quantum,
                        nocross: c.nocross * quantum,
                        min: if c.min == 0 { 0 } else { bound(c.min) },
                        max: bound(c.max),
                    };
                    let asked = (size * quantum).saturating_sub(slack % quantum);
                    let rounded = arena.round(asked).unwrap();
                    prop_assert_eq!(rounded, size * quantum);
                    let places = model.places(base, quantum, size, &c);
                    match arena.alloc(rounded, &c, policy) {
                        Ok(start) => {
                            let at = (start - base) / quantum;
                            let place = places.iter().find(|&&(place, _)| place == at);
                            prop_assert!(place.is_some(), "{start:#x} has no room for {rounded}");
                            if policy == Policy::Best {
                                let least = places.iter().map(|&(_, hole)| hole).min();
                                prop_assert_eq!(place.map(|&(_, hole)| hole), least, "not the best fit");
                            }
                            if policy == Policy::Next {
                                let next = places.iter().find(|&&(place, _)| place >= model.rotor);
                                prop_assert_eq!(Some(at), next.or(places.first()).map(|&(place, _)| place));
                                model.rotor = at + size;
                            }
                            model.allocated.insert(at, size);
                        }
                        Err(Error::Exhausted { .. }) => prop_assert_eq!(places, [], "overlooked"),
                        Err(Error::Invalid(_)) => prop_assert_eq!(places, [], "called invalid"),
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Step::Free(which, wrong) => {
                    let count = model.allocated.len();
                    let Some((&at, &size)) = model.allocated.iter().nth(which % count.max(1)) else { continue };
                    let (address, given) = (base + at * quantum, (size + wrong) * quantum);
                    let freed = arena.free(address, given);
                    if wrong == 0 {
                        prop_assert_eq!(freed, Ok(false));
                        model.allocated.remove(&at);
                        prop_assert_eq!(arena.free(address, given), Err(Error::NotAllocated { address }));
                    } else {
                        prop_assert_eq!(
                            freed,
                            Err(Error::WrongSize { address, allocated: size * quantum, given })
                        );
                    }
                }
                Step::FreeAnything(at, size) => {
                    if model.allocated.get(&at) != Some(&size) {
                        prop_assert!(arena.free(base + at * quantum, size * quantum).is_err());
                    }
                }
            }
            if let Err(wrong) = arena.audit() {
                prop_assert!(false, "{wrong}");
            }
            let totals = arena.totals();
            let holes = model.holes();
            prop_assert_eq!(totals.free, holes.iter().map(|&(_, size)| size).sum::<u64>() * quantum);
            prop_assert_eq!(totals.largest, holes.iter().map(|&(_, size)| size).max().unwrap_or(0) * quantum);
            prop_assert_eq!(
                (totals.free_segments, totals.allocated_segments, totals.spans),
                (holes.len(), model.allocated.len(), model.spans.len())
            );
        }
        let (mut free, mut allocated) = (Vec::new(), Vec::new());
        arena.walk(|segment| {
            let list = if segment.allocated { &mut allocated } else { &mut free };
            list.push(((segment.start - base) / quantum, segment.size / quantum));
        });
        prop_assert_eq!(free, model.holes());
        prop_assert_eq!(allocated, model.allocated.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn all_integers() {
    let mut arena = Arena::new(1).unwrap();
    assert!(matches!(arena.add(2, u64::MAX, false), Err(Error::Invalid(_))), "beyond the last");
    arena.add(1, u64::MAX, false).unwrap();
    assert!(matches!(arena.add(0, 1, false), Err(Error::Invalid(_))), "2^64 integers");
    let last = Constraints { min: u64::MAX, ..Constraints::default() };
    for policy in [Policy::Instant, Policy::Best, Policy::Next] {
        assert_eq!(arena.alloc(1, &last, policy), Ok(u64::MAX));
        assert_eq!(arena.alloc(1, &last, policy), Err(Error::Exhausted { size: 1 }));
        assert_eq!(arena.free(u64::MAX, 1), Ok(false));
        assert_eq!(arena.alloc(u64::MAX, &Constraints::default(), policy), Ok(1));
        assert_eq!(arena.free(1, u64::MAX), Ok(false));
    }
    let half = Constraints { align: 1 << 63, nocross: 1 << 63, ..Constraints::default() };
    assert_eq!(arena.alloc(1 << 63, &half, Policy::Instant), Ok(1 << 63));
    assert_eq!(arena.alloc(1 << 62, &half, Policy::Best), Err(Error::Exhausted { size: 1 << 62 }));
    arena.audit().unwrap();
}

#[test]
fn requests_that_make_no_sense() {
    assert!(matches!(Arena::new(0), Err(Error::Invalid(_))));
    assert!(matches!(Arena::new(12), Err(Error::Invalid(_))));
    let mut arena = Arena::new(16).unwrap();
    for (start, size) in [(0, 0), (8, 16), (16, 8), (u64::MAX - 15, 32)] {
        assert!(matches!(arena.add(start, size, false), Err(Error::Invalid(_))), "{start} {size}");
    }
    arena.add(0, 1024, false).unwrap();
    assert_eq!(arena.round(0), Err(Error::Invalid("the size must not be 0")));
    assert_eq!(arena.round(u64::MAX), Err(Error::Exhausted { size: u64::MAX }));
    assert_eq!(arena.round(17), Ok(32));
    let any = Constraints::default();
    for wrong in [
        Constraints { align: 24, ..any },
        Constraints { align: 32, phase: 32, ..any },
        Constraints { align: 32, phase: 8, ..any },
        Constraints { nocross: 48, ..any },
        Constraints { nocross: 16, ..any },
        Constraints { align: 64, phase: 48, nocross: 64, ..any },
        Constraints { min: 2, max: 1, ..any },
    ] {
        let refused = arena.alloc(32, &wrong, Policy::Instant);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{wrong:?}: {refused:?}");
    }
    assert!(matches!(arena.alloc(24, &any, Policy::Best), Err(Error::Invalid(_))));
    assert_eq!(arena.free(0, 16), Err(Error::NotAllocated { address: 0 }));
}

#[test]
fn imported_spans_can_be_removed() {
    let mut arena = Arena::new(1).unwrap();
    let any = Constraints::default();
    arena.add(100, 10, true).unwrap();
    arena.add(0, 10, false).unwrap();
    arena.add(50, 10, true).unwrap();
    let all: Vec<u64> = (0..30).map(|_| arena.alloc(1, &any, Policy::Next).unwrap()).collect();
    assert_eq!(all, (0..10).chain(50..60).chain(100..110).collect::<Vec<u64>>());
    for &at in &all {
        // The last integer of an imported span.
        assert_eq!(arena.free(at, 1), Ok(at == 59 || at == 109), "{at}");
    }
    assert_eq!(arena.remove(Some(5)), None, "not imported");
    assert_eq!(arena.remove(Some(55)), Some((50, 10)));
    assert_eq!(arena.remove(None), Some((100, 10)));
    assert_eq!(arena.remove(None), None);
    arena.audit().unwrap();
    assert_eq!(arena.room(), (10, 10));
    assert_eq!(arena.alloc(10, &any, Policy::Next), Ok(0));
}
