//! How long users may keep the program waiting.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Whose;

/// Users remembered; with more all begin anew.
const MAX_USERS: usize = 1 << 10;
/// Answers that take less are free: they come from memory.
const FREE: Duration = Duration::from_millis(2);
/// Seconds of waiting that a user, and all together, may cause at once, and more in each second after that.
const WAIT_OF_ONE: Share = Share { at_once: 0.3, each_second: 0.02 };
const WAIT_OF_ALL: Share = Share { at_once: 0.6, each_second: 0.1 };
/// The same of the parsing of their files.
const WORK_OF_ONE: Share = Share { at_once: 0.4, each_second: 0.05 };
const WORK_OF_ALL: Share = Share { at_once: 0.6, each_second: 0.3 };
/// The same of names for addresses of their processes: a program may use new addresses all the time.
const NAMES_OF_ONE: Share = Share { at_once: 1.0, each_second: 0.25 };
const NAMES_OF_ALL: Share = Share { at_once: 2.0, each_second: 0.5 };

/// The same of answers that wait until the reader, or this program, has had a CPU: nobody's fault in particular.
const DELAY_OF_ALL: Share = Share { at_once: 0.4, each_second: 0.2 };
/// A delay that a machine with free CPUs has.
const PROMPT: Duration = Duration::from_micros(200);

#[derive(Clone, Copy, Debug)]
struct Share {
    at_once: f64,
    each_second: f64,
}

/// Seconds used up, at a time.
#[derive(Clone, Copy, Debug)]
struct Used(f64, Instant);

impl Used {
    fn at(self, now: Instant, share: Share) -> f64 {
        (self.0 - now.saturating_duration_since(self.1).as_secs_f64() * share.each_second).max(0.0)
    }

    fn add(&mut self, seconds: f64, now: Instant, share: Share) {
        *self = Used(self.at(now, share) + seconds, now);
    }
}

/// What each user, and all together, have used up.
#[derive(Debug, Default)]
pub(super) struct Times {
    waits: Kind,
    work: Kind,
    names: Kind,
    delay: Option<Used>,
}

#[derive(Debug, Default)]
struct Kind {
    users: HashMap<Whose, Used>,
    all: Option<Used>,
}

impl Kind {
    fn allow(&self, whose: Whose, now: Instant, of_one: Share, of_all: Share) -> bool {
        if whose == Whose::TARGET {
            return true;
        }
        let left = |used: Option<&Used>, share: Share| used.is_none_or(|u| u.at(now, share) < share.at_once);
        left(self.all.as_ref(), of_all) && left(self.users.get(&whose), of_one)
    }

    fn charge(&mut self, whose: Whose, seconds: f64, now: Instant, of_one: Share, of_all: Share) {
        if whose == Whose::TARGET {
            return;
        }
        self.all.get_or_insert(Used(0.0, now)).add(seconds, now, of_all);
        if whose != Whose::OWN {
            if self.users.len() >= MAX_USERS {
                self.users.clear();
            }
            self.users.entry(whose).or_insert(Used(0.0, now)).add(seconds, now, of_one);
        }
    }
}

impl Times {
    /// Whether more may be read for a user.
    pub fn allow(&self, whose: Whose, now: Instant) -> bool {
        self.waits.allow(whose, now, WAIT_OF_ONE, WAIT_OF_ALL)
    }

    /// Whether more may be parsed, too.
    pub fn allow_work(&self, whose: Whose, now: Instant) -> bool {
        self.allow(whose, now) && self.work.allow(whose, now, WORK_OF_ONE, WORK_OF_ALL)
    }

    /// Whether more addresses of a user's processes may be named.
    pub fn allow_names(&self, whose: Whose, now: Instant) -> bool {
        self.names.allow(whose, now, NAMES_OF_ONE, NAMES_OF_ALL)
    }

    /// Charges a user with the time that names took.
    pub fn charge_names(&mut self, whose: Whose, took: Duration, now: Instant) {
        self.names.charge(whose, took.as_secs_f64(), now, NAMES_OF_ONE, NAMES_OF_ALL);
    }

    /// Whether there is time left to wait for the reader.
    pub fn allow_delay(&self, now: Instant) -> bool {
        self.delay.is_none_or(|used| used.at(now, DELAY_OF_ALL) < DELAY_OF_ALL.at_once)
    }

    /// Charges all together with the time that an answer took besides its reading.
    pub fn charge_delay(&mut self, took: Duration, now: Instant) {
        if took > PROMPT {
            self.delay.get_or_insert(Used(0.0, now)).add(took.as_secs_f64(), now, DELAY_OF_ALL);
        }
    }

    /// Charges a user with the time of an answer.
    pub fn charge(&mut self, whose: Whose, took: Duration, now: Instant) {
        if took > FREE {
            self.waits.charge(whose, took.as_secs_f64(), now, WAIT_OF_ONE, WAIT_OF_ALL);
        }
    }

    /// Charges a user with the time of parsing.
    pub fn charge_work(&mut self, whose: Whose, took: Duration, now: Instant) {
        self.work.charge(whose, took.as_secs_f64(), now, WORK_OF_ONE, WORK_OF_ALL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_user_is_refused_until_time_has_passed_and_others_are_not() {
        let (mut times, now) = (Times::default(), Instant::now());
        let (slow, other) = (Whose(1000), Whose(1001));
        for _ in 0..1000 {
            times.charge(slow, Duration::from_millis(1), now);
        }
        assert!(times.allow(slow, now), "answers from memory are free");
        times.charge(slow, Duration::from_millis(200), now);
        assert!(times.allow(slow, now));
        times.charge(slow, Duration::from_millis(150), now);
        assert!(!times.allow(slow, now) && times.allow(other, now));
        times.charge(Whose::TARGET, Duration::from_secs(100), now);
        assert!(times.allow(Whose::TARGET, now) && times.allow(other, now), "at the user's own expense");
        assert!(!times.allow(slow, now + Duration::from_secs(2)));
        assert!(times.allow(slow, now + Duration::from_secs(3)));
        times.charge_work(other, Duration::from_millis(500), now);
        assert!(times.allow(other, now) && !times.allow_work(other, now));
        assert!(times.allow_work(other, now + Duration::from_secs(3)));
    }

    #[test]
    fn names_of_a_users_processes_take_a_share_of_the_time() {
        let (mut times, now) = (Times::default(), Instant::now());
        let spend = |times: &mut Times, user: u64, now| {
            let one = Duration::from_millis(1);
            (0..100_000)
                .take_while(|_| {
                    times.charge_names(Whose(user), one, now);
                    times.allow_names(Whose(user), now)
                })
                .count()
        };
        assert!((950..1050).contains(&spend(&mut times, 1000, now)));
        assert!(times.allow_names(Whose(1001), now) && times.allow_work(Whose(1000), now));
        assert!((200..300).contains(&spend(&mut times, 1000, now + Duration::from_secs(1))));
        let all: usize = (1001..1100).map(|user| spend(&mut times, user, now)).sum();
        // Each user charges one before it is refused.
        assert!(all < 1400, "{all}");
        assert!(!times.allow_names(Whose(2000), now));
    }

    #[test]
    fn delays_of_the_reader_are_bounded_together() {
        let (mut times, now) = (Times::default(), Instant::now());
        for _ in 0..100_000 {
            times.charge_delay(Duration::from_micros(100), now);
        }
        assert!(times.allow_delay(now), "a free machine");
        let waited = (0..1000).take_while(|_| {
            times.charge_delay(Duration::from_millis(3), now);
            times.allow_delay(now)
        });
        let waited = waited.count();
        assert!((100..=140).contains(&waited), "{waited}");
        assert!(times.allow(Whose(7), now), "no user is blamed");
        assert!(times.allow_delay(now + Duration::from_secs(1)));
    }

    #[test]
    fn many_slow_users_are_refused_together() {
        let (mut times, now) = (Times::default(), Instant::now());
        let (mut waited, mut worked) = (Duration::ZERO, Duration::ZERO);
        let one = Duration::from_millis(250);
        for user in 0..100 {
            if times.allow(Whose(user), now) {
                times.charge(Whose(user), one, now);
                waited += one;
            }
            if times.allow_work(Whose(user), now) {
                times.charge_work(Whose(user), one, now);
                worked += one;
            }
        }
        assert!(waited <= Duration::from_millis(750), "{waited:?}");
        assert!(worked <= Duration::from_millis(750), "{worked:?}");
        assert!(!times.allow(Whose(1000), now));
        assert!(times.allow_work(Whose(1000), now + Duration::from_secs(10)));
    }
}
