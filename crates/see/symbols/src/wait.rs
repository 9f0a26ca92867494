//! The object that a thread sleeping in a futex waits for, from its user stack.

use crate::function_name::parts;
use crate::patterns::{Patterns, UserWait};

use UserWait::{Barrier, Condition, Join, Lock, Semaphore};

/// The frames above a condition or semaphore in which the construct built on it is searched for.
const CONSTRUCT_DEPTH: usize = 10;

/// The frames above spinning code in which its wait is searched for.
const SPIN_DEPTH: usize = 4;

/// Classification of a waiter's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackWait {
    /// The object that it waits for.
    pub wait: UserWait,
    /// The matching pattern, by its index in [`Patterns::list`].
    pub pattern: usize,
    /// The matching frame.
    pub frame: usize,
}

impl Patterns {
    /// Classifies the user stack of a futex waiter, leaf first, names demangled; `None` if it shows no known
    /// wait.
    ///
    /// The known frame nearest the leaf decides: a mutex taken again after a condition is a lock. But many
    /// locks are built on conditions and semaphores (Java's monitors, Python's interpreter lock, PostgreSQL's
    /// light-weight locks): above such layers, the next known frame within a few frames decides.
    pub fn judge(&self, frames: &[&str]) -> Option<StackWait> {
        let known = || {
            frames.iter().enumerate().filter_map(|(frame, name)| {
                let pattern = self.find(name, &frames[frame + 1..])?;
                Some(StackWait { wait: self.list()[pattern].wait, pattern, frame })
            })
        };
        // Frames far above show the purpose of the thread, and not its wait.
        let first = known().next().filter(|t| t.frame <= CONSTRUCT_DEPTH)?;
        if first.wait == Lock {
            // A primitive that locks are built on may be identified by its caller.
            let frame = first.frame + 1;
            let asked = frames.get(frame).zip(frames.get(frame + 1..));
            let named = asked.and_then(|(name, callers)| self.find_with_caller(name, callers));
            let named = named.map(|pattern| StackWait { wait: self.list()[pattern].wait, pattern, frame });
            return Some(named.filter(|t| t.wait == Lock).unwrap_or(first));
        }
        if matches!(first.wait, Join | Barrier) {
            return Some(first);
        }
        let construct = known()
            .take_while(|t| t.frame <= first.frame + CONSTRUCT_DEPTH)
            .find(|t| !self.is_layer(frames[t.frame]) || matches!(t.wait, Lock));
        // Of layers only the outermost is specific.
        let layers = known().take_while(|t| t.frame <= first.frame + CONSTRUCT_DEPTH);
        let outer =
            layers.take_while(|t| self.is_layer(frames[t.frame])).filter(|t| t.wait == first.wait).last();
        Some(match construct {
            Some(c) if matches!(c.wait, Lock | Join | Barrier) || first.wait == c.wait => c,
            // A queue built on semaphores.
            Some(c) if first.wait == Semaphore && c.wait == Condition => c,
            _ => outer.unwrap_or(first),
        })
    }

    /// Whether a function is part of a wait, of any kind.
    pub fn knows(&self, frame: &str) -> bool {
        self.is_layer(frame) || self.find(frame, &[]).is_some()
    }

    /// The wait that user code spins for, from its frames, leaf first. Code spins at a pause instruction
    /// (`pauses`) or in a function known to do nothing else; `None` if it does neither, `Some(None)` if the
    /// wait is unknown.
    pub fn spins_for(&self, frames: &[&str], pauses: bool) -> Option<Option<StackWait>> {
        let known = frames.split_first().and_then(|(leaf, callers)| self.spins(leaf, callers));
        let known = known.map(|pattern| StackWait { wait: self.list()[pattern].wait, pattern, frame: 0 });
        let judged = || self.judge(frames).filter(|found| found.frame < SPIN_DEPTH);
        match (known, pauses) {
            // Its caller may be more specific.
            (Some(known), _) => Some(Some(judged().unwrap_or(known))),
            (None, true) => Some(judged()),
            (None, false) => None,
        }
    }

    /// Whether the name of the function that uses a condition or semaphore suggests a lock.
    pub fn sounds_like_a_lock(&self, frames: &[&str]) -> bool {
        const LOCKS: [&str; 12] = [
            "lock", "rwlock", "rdlock", "wrlock", "lwlock", "spinlock", "trylock", "relock", "acquire",
            "mutex", "critical", "monitor",
        ];
        let of_the_wait = |f: &&&str| {
            let parts = parts(f);
            let futex = parts.last().is_some_and(|name| words(name).any(|word| word == "futex"));
            self.is_layer(f) || self.find(f, &[]).is_some() || futex || **f == "syscall"
        };
        let asked = frames.iter().skip_while(of_the_wait).find(|f| !f.starts_with('['));
        // The types of its arguments, such as `std::unique_lock<std::mutex>&`, do not count.
        asked.is_some_and(|f| {
            let parts = parts(f);
            let own = parts.iter().rev().take(2);
            own.flat_map(|part| words(part)).any(|word| LOCKS.contains(&&*word.to_ascii_lowercase()))
        })
    }
}

/// The words of a name: `lock_row`, `lockRow` and `RWLock2` have two each.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let of_case = |word| {
        let mut rest: &str = word;
        std::iter::from_fn(move || {
            let upper = |c: char| c.is_ascii_uppercase() || !c.is_ascii_alphabetic();
            let begin = rest.find(|c| !upper(c)).unwrap_or(rest.len());
            let end = rest[begin..].find(upper).map_or(rest.len(), |end| begin + end);
            let (word, behind) = rest.split_at(end);
            rest = behind;
            (!word.is_empty()).then_some(word)
        })
    };
    name.split(|c: char| !c.is_ascii_alphanumeric()).flat_map(of_case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_have_their_class() {
        let patterns = Patterns::default();
        let of = |frames: &[&str]| patterns.judge(frames).map_or(UserWait::Unknown, |t| t.wait);
        let mut lines = 0;
        for line in include_str!("testdata/wait_stacks.txt").lines() {
            let Some((class, stack)) = line.split_once(": ").filter(|_| !line.starts_with('#')) else {
                continue;
            };
            let frames: Vec<&str> = stack.split(" < ").map(str::trim).collect();
            let (class, name) = class.split_once(' ').unwrap_or((class, ""));
            assert_eq!(format!("{:?}", of(&frames)), class, "{stack}");
            let found = patterns.judge(&frames).map_or("", |t| &patterns.list()[t.pattern].name);
            assert!(name.is_empty() || found == name, "{found}: {stack}");
            lines += 1;
        }
        assert!(lines > 30, "read only {lines} stacks");
        assert_eq!(of(&[]), UserWait::Unknown);
        assert_eq!(of(&["", "_", "main"]), UserWait::Unknown);
    }

    #[test]
    fn spinning_is_known_by_evidence_or_whole_names() {
        let patterns = Patterns::default();
        let of = |stack: &str, pauses: bool| {
            let frames: Vec<&str> = stack.split(" < ").collect();
            let spins = patterns.spins_for(&frames, pauses)?;
            Some(spins.map_or(("", UserWait::Unknown), |t| (&*patterns.list()[t.pattern].name, t.wait)))
        };
        let omp = Some(("OpenMP barrier", UserWait::Barrier));
        for (stack, pauses, wanted) in [
            ("[unknown libgomp.so.1.0.0] < [unknown libgomp.so.1.0.0] < start_thread", true, omp),
            ("gomp_team_barrier_wait_end < gomp_thread_start", false, omp),
            ("gomp_barrier_wait_end < gomp_thread_start < start_thread", false, omp),
            ("__kmp_wait_template < __kmp_hyper_barrier_release < __kmp_fork_barrier", true, omp),
            (
                "[unknown libgomp.so.1.0.0] < GOMP_critical_start < f._omp_fn.0",
                true,
                Some(("OpenMP critical", UserWait::Lock)),
            ),
            (
                "<std::sys::sync::mutex::futex::Mutex>::lock_contended < app::f",
                false,
                Some(("Rust Mutex", UserWait::Lock)),
            ),
            (
                "std::sys::sync::mutex::futex::Mutex::lock_contended < app::f",
                false,
                Some(("Rust Mutex", UserWait::Lock)),
            ),
            (
                "SpinPause < ObjectMonitor::TrySpin(JavaThread*) < ObjectMonitor::enter(JavaThread*)",
                true,
                Some(("Java monitor", UserWait::Lock)),
            ),
            (
                "ObjectMonitor::TrySpin(JavaThread*) < ObjectMonitor::enter(JavaThread*)",
                false,
                Some(("Java monitor", UserWait::Lock)),
            ),
            (
                "absl::lts_20230802::base_internal::SpinLock::SpinLoop() < f()",
                false,
                Some(("absl SpinLock", UserWait::Lock)),
            ),
            (
                "runtime.procyield.abi0 < runtime.lock2 < runtime.mallocgc",
                true,
                Some(("Go runtime lock", UserWait::Lock)),
            ),
            (
                "[unknown libtbb.so.12.8] < [unknown libtbb.so.12.8]",
                true,
                Some(("TBB worker", UserWait::Barrier)),
            ),
            ("my_own_loop < main", true, Some(("", UserWait::Unknown))),
            // Work, whatever its name.
            ("update_stats_locked < main", false, None),
            ("RawMutex::unlock_slow < main", false, None),
            ("spin_lock < main", false, None),
            ("make_spinlock_table < main", false, None),
            ("[unknown libgomp.so.1.0.0] < main", false, None),
            ("deep_in_lock_code < a < b < c < d < __lll_lock_wait", true, Some(("", UserWait::Unknown))),
        ] {
            assert_eq!(of(stack, pauses), wanted, "{stack}");
        }
        assert_eq!(patterns.spins_for(&[], false), None);
    }

    #[test]
    fn who_asks_may_sound_like_a_lock() {
        let patterns = Patterns::default();
        let sounds = |stack: &str| {
            let frames: Vec<&str> = stack.split(" < ").collect();
            patterns.sounds_like_a_lock(&frames)
        };
        let wait = "__futex_abstimed_wait_common < ___pthread_cond_wait < ";
        for name in [
            "acquire",
            "Table::lockRow(int)",
            "enter_critical",
            "my_mutex_take < main",
            "(anonymous namespace)::lock()",
            "MyMutex::enter(int)",
            "rowLock",
        ] {
            assert!(sounds(&format!("{wait}{name}")), "{name}");
        }
        for name in [
            "f",
            "pop_block",
            "wait_clock",
            "unlock_all",
            "update_stats_locked",
            "locks::Table::next",
            "blocker",
            "acquired",
            "slave_deadlock_handler",
            "worker < take_lock",
            "[unknown lock.so] < main",
            "Pool::wait_for_tasks(std::unique_lock<std::mutex>&, int)",
        ] {
            assert!(!sounds(&format!("{wait}{name}")), "{name}");
        }
    }
}
