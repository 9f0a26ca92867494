use proptest::prelude::*;

use super::*;

fn page() -> Box<Page> {
    // SAFETY: zeroes are a valid page.
    unsafe { Box::new(std::mem::zeroed()) }
}

const ROUND: Settings = Settings { order: Order::RoundRobin, cap: 1_000_000 };
const RANDOM: Settings = Settings { order: Order::Random, cap: 1_000_000 };

#[test]
fn whose_turn_it_is_goes_at_once_and_the_last_waits_longest() {
    let of = |age| delay(&ROUND, 4, age, || unreachable!());
    assert_eq!([of(0), of(1), of(2), of(3), of(4000)], [375_000, 250_000, 125_000, 0, 0]);
    assert_eq!(delay(&ROUND, 1, 0, || unreachable!()), 0, "alone");
    assert_eq!(delay(&RANDOM, 1, 0, || u32::MAX), 0, "alone");
    assert!(delay(&RANDOM, 2, 9, || u32::MAX) > 999_000);
    assert_eq!(delay(&RANDOM, 2, 9, || 0), 0);
}

proptest! {
    #[test]
    fn nobody_is_held_back_longer_than_the_cap(
        crowd: u32, age: u32, chance: u32, cap in 1u32..=100_000_000, random: bool,
    ) {
        let order = if random { Order::Random } else { Order::RoundRobin };
        let settings = Settings { order, cap };
        prop_assert!(delay(&settings, crowd, age, || chance) <= cap);
    }

    #[test]
    fn a_page_of_garbage_does_no_harm(words in prop::collection::vec(any::<u32>(), 1024), cookie: u64) {
        let mut page = page();
        // SAFETY: a page has the size of its words, and consists of integers.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), (&raw mut *page).cast(), 1024) };
        page.alerted();
        if let Some(slot) = page.slot(cookie | 1) {
            slot.announce();
            slot.roll(slot.accepted.load(Relaxed), Wait::Unknown, 0);
            prop_assert!(slot.length() <= EPOCH * 4096);
        }
    }
}

/// Takers that each wait `lateness[i]` before the call; the one with the shortest wait, delay included, wins.
/// In a herd, all others lose if they could see the connection, but a connection that is taken at once is not
/// visible; otherwise only one comes.
fn race(settings: &Settings, lateness: &[u32], herd: bool, connections: u32) -> (Vec<u32>, u32) {
    let page = page();
    let slot = page.slot(7).expect("free");
    let takers: Vec<Taker> = lateness.iter().map(|_| Taker::new()).collect();
    let (mut wins, mut held_back) = (vec![0; takers.len()], 0);
    for _ in 0..connections {
        let at = |(i, taker): (usize, &Taker)| {
            let mut view = taker.view(7, slot);
            if view.epoch != slot.epoch.load(Relaxed) {
                (view.epoch, view.wins) = (slot.epoch.load(Relaxed), 0);
                slot.callers.fetch_add(1, Relaxed);
            }
            taker.keep(view);
            let age = slot.accepted.load(Relaxed).wrapping_sub(view.won);
            let on = slot.hold.load(Relaxed) != 0;
            let held = if on { delay(settings, slot.crowd(), age, || taker.chance()) } else { 0 };
            (lateness[i] + held, held, i)
        };
        let of_all = takers.iter().enumerate().map(at).collect::<Vec<_>>();
        let &(_, held, winner) = if herd { of_all.iter().min().expect("some") } else { &of_all[0] };
        held_back += u32::from(held > 0);
        wins[winner] += 1;
        let seen = herd && of_all.iter().any(|&(_, held, _)| held > 0);
        takers[winner].learn(&page, slot, -1, 5, 0);
        for (i, taker) in takers.iter().enumerate() {
            if i != winner && seen {
                taker.learn(&page, slot, -1, -1, libc::EAGAIN);
            }
        }
    }
    (wins, held_back)
}

fn jain(wins: &[u32]) -> u64 {
    evenness(wins.iter().sum(), wins.len() as u32, wins.iter().map(|&w| u64::from(w).pow(2)).sum())
}

#[test]
fn a_race_that_one_always_wins_becomes_even() {
    for settings in [ROUND, RANDOM] {
        let lateness = [0, 10_000, 12_000, 15_000];
        let (first, _) = race(&settings, &lateness, true, 128);
        assert_eq!(first, [128, 0, 0, 0], "the first epoch is only observed");
        let (wins, _) = race(&settings, &lateness, true, 5_000);
        assert!(jain(&wins) > 950, "{:?}: {wins:?}", settings.order);
        assert!(wins[0] > wins[3], "now and then no taker is held back: {wins:?}");
    }
}

#[test]
fn without_a_herd_delays_are_tried_ever_more_seldom() {
    // As EPOLLEXCLUSIVE wakes: always the same taker, alone.
    let (wins, held) = race(&ROUND, &[0, 0, 0, 0], false, 100_000);
    assert_eq!(wins, [100_000, 0, 0, 0]);
    // 781 epochs: after 1, 1 + 8, 1 + 8 + 16 and so on.
    assert!((3 * QUIET..=9 * QUIET).contains(&held), "{held}");
}

#[test]
fn an_even_race_and_a_busy_herd_are_left_alone() {
    let page = page();
    let slot = page.slot(7).expect("free");
    let end = |slot: &Slot, callers, squares| {
        slot.callers.store(callers, Relaxed);
        slot.squares.store(squares, Relaxed);
        slot.accepted.fetch_add(128, Relaxed);
        slot.roll(slot.accepted.load(Relaxed), Wait::Unknown, 0);
        slot.hold.load(Relaxed)
    };
    assert_eq!(end(slot, 4, 4 * 32 * 32), 0, "even");
    assert_eq!(end(slot, 1, 128 * 128), 0, "alone");
    assert_eq!(end(slot, 4, 128 * 128), HOLD);
    slot.lose();
    let at = slot.accepted.load(Relaxed);
    slot.doubt(at + QUIET - 1);
    assert_eq!(slot.hold.load(Relaxed), HOLD);
    slot.doubt(at + QUIET);
    assert_eq!((slot.hold.load(Relaxed), slot.rest.load(Relaxed)), (0, 1), "no call loses at full load");
    assert_eq!(end(slot, 4, 128 * 128), 0, "it rests");
}

#[test]
fn one_that_alone_gets_what_an_exclusive_listener_has_gives_turns_a_try() {
    let page = page();
    let slot = page.slot(7).expect("free");
    // An epoch in which each of `callers` gets the same number; returns how long turns stay on.
    let end = |callers: u32, waiters| {
        slot.callers.store(callers, Relaxed);
        let length = u64::from(slot.length());
        slot.squares.store(length * length / u64::from(callers), Relaxed);
        slot.accepted.fetch_add(length as u32, Relaxed);
        slot.roll(slot.accepted.load(Relaxed), Wait::Exclusive, waiters);
        slot.hold.load(Relaxed)
    };
    assert_eq!(end(1, 1), 0, "no other thread waits");
    assert_eq!(end(1, 4), TURNS * HOLD);
    for left in (0..TURNS * HOLD).rev() {
        assert_eq!(end(1, 4), left);
    }
    for _ in 0..REST {
        assert_eq!(end(1, 4), 0, "they had no effect");
    }
    assert_eq!(end(1, 4), TURNS * HOLD, "but are tried again");
    for left in (0..TURNS * HOLD).rev() {
        assert_eq!(end(4, 4), left);
    }
    assert_eq!(end(2, 4), 2 * TURNS * HOLD, "they had an effect, and are still needed");
}

#[test]
fn turns_that_make_shares_more_even_stay_on() {
    let page = page();
    let slot = page.slot(7).expect("free");
    // Of forty threads that waited, most wait for other events, or have ended.
    let end = |callers: u32| {
        slot.callers.store(callers, Relaxed);
        let length = u64::from(slot.length());
        slot.squares.store(length * length / u64::from(callers), Relaxed);
        slot.accepted.fetch_add(length as u32, Relaxed);
        slot.roll(slot.accepted.load(Relaxed), Wait::Exclusive, 40);
        slot.hold.load(Relaxed)
    };
    assert_eq!(end(1), TURNS * HOLD);
    for left in (0..TURNS * HOLD).rev() {
        assert_eq!(end(4), left);
    }
    assert_eq!(end(1), 2 * TURNS * HOLD);
    for left in (0..2 * TURNS * HOLD).rev() {
        assert_eq!(end(1), left);
    }
    assert_eq!(end(1), 0, "no more even than before");
}

#[test]
fn an_index_is_jains() {
    assert_eq!(evenness(20, 4, 100), 1000);
    assert_eq!(evenness(8, 4, 64), 250);
    assert_eq!(evenness(0, 0, 0), 0);
    assert!(evenness(u32::MAX, u32::MAX, u64::MAX) <= 1, "no overflow");
}

#[test]
fn a_listener_has_one_slot_and_old_ones_are_used_again() {
    let page = page();
    for cookie in 1..=SLOTS as u64 {
        let slot = page.slot(cookie).expect("there are enough");
        slot.used.store(now_ms(), Relaxed);
        assert!(std::ptr::eq(slot, page.slot(cookie).expect("the same")));
    }
    assert!(page.slot(1000).is_none(), "all are in use");
    let old = page.slot(3).expect("there");
    old.used.store(now_ms().wrapping_sub(STALE_MS + 1), Relaxed);
    old.hold.store(7, Relaxed);
    assert!(std::ptr::eq(page.slot(1000).expect("one was stale"), old));
    assert_eq!(old.hold.load(Relaxed), 0);
    assert!(page.slot(3).is_none());
}

#[test]
fn alerts_end() {
    let page = page();
    assert!(!page.alerted());
    page.alert_for(1000);
    assert!(page.alerted());
    page.alert.store(now_ms().wrapping_sub(2) | 1, Relaxed);
    assert!(!page.alerted());
    assert_eq!(page.alert.load(Relaxed), 0, "no clock is read any more");
}

#[test]
fn failures_without_a_race_are_looked_at_ever_more_seldom() {
    let page = page();
    let taker = Taker::new();
    let slot = page.slot(7).expect("free");
    page.takers.store(2, Relaxed);
    taker.count(&page);
    let mut alerts = 0;
    let mut looked = 0;
    for _ in 0..100_000 {
        if page.alert.load(Relaxed) != 0 {
            let view = taker.view(7, slot);
            taker.keep(view);
            taker.learn(&page, slot, -1, -1, libc::EAGAIN);
            looked += 1;
            if looked % 64 == 0 {
                page.alert.store(0, Relaxed); // As if it had expired.
            }
        } else {
            taker.suspects(&page, 3);
            alerts += u32::from(page.alert.load(Relaxed) != 0);
        }
    }
    assert!((5..=20).contains(&alerts), "{alerts}");
}

#[test]
fn who_is_alone_is_never_looked_at() {
    let page = page();
    let taker = Taker::new();
    for _ in 0..1000 {
        taker.suspects(&page, 3);
        assert!(!page.alerted());
    }
    taker.reset();
    taker.count(&page);
    assert_eq!(page.takers.load(Relaxed), 2, "a forked child is another");
}

#[test]
fn shares_are_looked_at_ever_more_seldom() {
    let page = page();
    let taker = Taker::new();
    page.takers.store(1, Relaxed);
    let mut looks = Vec::new();
    for i in 0..100_000 {
        taker.got(&page);
        if page.alert.swap(0, Relaxed) != 0 {
            looks.push(i);
        }
    }
    assert_eq!(page.takers.load(Relaxed), 2, "counted once");
    assert_eq!(looks[..3], [65, 194, 451]);
    assert!(looks.len() < 12, "{looks:?}");
}

#[test]
fn sleepers_are_woken_by_the_connection() {
    let page = page();
    let slot = page.slot(7).expect("free");
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| slot.hold_back(0, 999_999_999));
        while slot.waiting.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        // A sleeper that is counted but not asleep yet is not woken, but sees the new count.
        slot.announce();
        sleeper.join().expect("no panic");
    });
    assert_eq!(slot.accepted.load(Relaxed), 1);
    assert_eq!(slot.waiting.load(Relaxed), 0);
    // The next connection clears the count that a killed sleeper leaves.
    slot.waiting.store(3, Relaxed);
    slot.announce();
    assert_eq!(slot.waiting.load(Relaxed), 0);
}
