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
        // SAFETY: a page is as long as its words, and made of integers.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), (&raw mut *page).cast(), 1024) };
        page.alerted();
        if let Some(slot) = page.slot(cookie | 1) {
            slot.announce();
            slot.roll(slot.accepted.load(Relaxed));
            prop_assert!(slot.length() <= EPOCH * 4096);
        }
    }
}

/// `n` takers of which each waits `lateness[i]` until it calls; who has waited least, delay included, wins.
fn race(settings: &Settings, lateness: &[u32], connections: u32) -> Vec<u32> {
    let page = page();
    let slot = page.slot(7).expect("free");
    let takers: Vec<Taker> = lateness.iter().map(|_| Taker::new()).collect();
    let mut wins = vec![0; takers.len()];
    for _ in 0..connections {
        let at = |(i, taker): (usize, &Taker)| {
            let mut view = taker.view(7, slot);
            if view.epoch != slot.epoch.load(Relaxed) {
                (view.epoch, view.wins) = (slot.epoch.load(Relaxed), 0);
                slot.callers.fetch_add(1, Relaxed);
            }
            taker.keep(view);
            let age = slot.accepted.load(Relaxed).wrapping_sub(view.won);
            let held = if slot.hold.load(Relaxed) == 0 {
                0
            } else {
                delay(settings, slot.crowd(), age, || taker.chance())
            };
            (lateness[i] + held, i)
        };
        let (_, winner) = takers.iter().enumerate().map(at).min().expect("some");
        wins[winner] += 1;
        takers[winner].learn(&page, slot, 5, 0);
        for (i, taker) in takers.iter().enumerate() {
            if i != winner {
                taker.learn(&page, slot, -1, libc::EAGAIN);
            }
        }
    }
    wins
}

fn jain(wins: &[u32]) -> u64 {
    evenness(wins.iter().sum(), wins.len() as u32, wins.iter().map(|&w| u64::from(w).pow(2)).sum())
}

#[test]
fn a_race_that_one_always_wins_becomes_even() {
    for settings in [ROUND, RANDOM] {
        let first = race(&settings, &[0, 10_000, 12_000, 15_000], 128);
        assert_eq!(first, [128, 0, 0, 0], "the first epoch is only watched");
        let wins = race(&settings, &[0, 10_000, 12_000, 15_000], 5_000);
        assert!(jain(&wins) > 950, "{:?}: {wins:?}", settings.order);
        assert!(wins[0] > wins[3], "now and then nobody is held back: {wins:?}");
    }
}

#[test]
fn an_even_race_and_a_server_without_one_are_left_alone() {
    assert_eq!(judge(128, 300, 990, (0, 0)), (0, HOLD), "a herd, but even");
    assert_eq!(judge(128, 7, 300, (0, 0)), (0, HOLD), "uneven, but hardly any loss");
    assert_eq!(judge(128, 8, 300, (0, 0)), (HOLD, 2 * HOLD));
    assert_eq!(judge(128, 0, 300, (5, 32)), (0, HOLD), "full load");
    assert_eq!(judge(128, 9, 300, (5, 32)), (4, 32));
    assert_eq!(judge(128, u32::MAX, 0, (0, MAX_HOLD)), (MAX_HOLD, MAX_HOLD));
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
            taker.learn(&page, slot, -1, libc::EAGAIN);
            looked += 1;
            if looked % 64 == 0 {
                page.alert.store(0, Relaxed); // as if it had run out
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
fn sleepers_are_woken_by_the_connection() {
    let page = page();
    let slot = page.slot(7).expect("free");
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| slot.hold_back(0, 999_999_999));
        while slot.waiting.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        // A sleeper that is counted and not asleep yet is not woken, but sees the new count.
        slot.announce();
        sleeper.join().expect("no panic");
    });
    assert_eq!(slot.accepted.load(Relaxed), 1);
    assert_eq!(slot.waiting.load(Relaxed), 0);
    // What a killed sleeper leaves is cleared by the next connection.
    slot.waiting.store(3, Relaxed);
    slot.announce();
    assert_eq!(slot.waiting.load(Relaxed), 0);
}
