//! What a thread that sleeps in a futex waits for, from its user stack.

use crate::patterns::{Patterns, UserWait};

use UserWait::{Barrier, Condition, Join, Lock, Semaphore};

/// How far above a condition or semaphore the construct that is made of it is looked for.
const CONSTRUCT_DEPTH: usize = 10;

/// What the stack of a waiter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Told {
    /// What it waits for.
    pub wait: UserWait,
    /// The pattern that says so, by its place in [`Patterns::list`].
    pub pattern: usize,
    /// The frame that it was found in.
    pub frame: usize,
}

impl Patterns {
    /// Classifies the user stack of a futex waiter, leaf first, names demangled; `None` where it does not say.
    ///
    /// The known frame nearest the leaf decides: a mutex taken again after a condition is a lock. But many
    /// locks are made of conditions and semaphores (Java's monitors, Python's interpreter lock,
    /// PostgreSQL's light-weight locks): past such layers, the next known frame a little above decides.
    pub fn judge(&self, frames: &[&str]) -> Option<Told> {
        let known = || {
            frames.iter().enumerate().filter_map(|(frame, name)| {
                let pattern = self.of(name, &frames[frame + 1..])?;
                Some(Told { wait: self.list()[pattern].wait, pattern, frame })
            })
        };
        // What is far above is what the thread is for, and not what it waits for.
        let first = known().next().filter(|t| t.frame <= CONSTRUCT_DEPTH)?;
        if first.wait == Lock {
            // What locks are made of may be known by who asked for it.
            let frame = first.frame + 1;
            let asked = frames.get(frame).zip(frames.get(frame + 1..));
            let named = asked.and_then(|(name, callers)| self.of_caller(name, callers));
            let named = named.map(|pattern| Told { wait: self.list()[pattern].wait, pattern, frame });
            return Some(named.filter(|t| t.wait == Lock).unwrap_or(first));
        }
        if matches!(first.wait, Join | Barrier) {
            return Some(first);
        }
        let construct = known()
            .take_while(|t| t.frame <= first.frame + CONSTRUCT_DEPTH)
            .find(|t| !self.is_layer(frames[t.frame]) || matches!(t.wait, Lock));
        // Of layers alone the outermost says most.
        let layers = known().take_while(|t| t.frame <= first.frame + CONSTRUCT_DEPTH);
        let outer =
            layers.take_while(|t| self.is_layer(frames[t.frame])).filter(|t| t.wait == first.wait).last();
        Some(match construct {
            Some(c) if matches!(c.wait, Lock | Join | Barrier) || first.wait == c.wait => c,
            // A queue made of semaphores.
            Some(c) if first.wait == Semaphore && c.wait == Condition => c,
            _ => outer.unwrap_or(first),
        })
    }

    /// Whether a function is a part of a wait, whatever for.
    pub fn knows(&self, frame: &str) -> bool {
        self.is_layer(frame) || self.of(frame, &[]).is_some()
    }

    /// Whether the function that asked for a condition or semaphore sounds as if it took a lock.
    pub fn sounds_like_a_lock(&self, frames: &[&str]) -> bool {
        let of_the_wait = |f: &&&str| {
            self.is_layer(f) || self.of(f, &[]).is_some() || f.contains("futex") || **f == "syscall"
        };
        let asked = frames.iter().skip_while(of_the_wait).find(|f| !f.starts_with('['));
        asked.is_some_and(|f| {
            // What it is called with, `std::unique_lock<std::mutex>&` say, is not what it does.
            let f = f.replace("(anonymous namespace)", "");
            let f = f.split('(').next().unwrap_or_default().to_ascii_lowercase();
            let others = ["unlock", "block", "clock", "deadlock"];
            let lock = f.contains("lock") && !others.iter().any(|w| f.contains(w));
            lock || ["acquire", "mutex", "critical"].iter().any(|w| f.contains(w))
        })
    }
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
            let told = patterns.judge(&frames).map_or("", |t| &patterns.list()[t.pattern].name);
            assert!(name.is_empty() || told == name, "{told}: {stack}");
            lines += 1;
        }
        assert!(lines > 30, "read only {lines} stacks");
        assert_eq!(of(&[]), UserWait::Unknown);
        assert_eq!(of(&["", "_", "main"]), UserWait::Unknown);
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
        ] {
            assert!(sounds(&format!("{wait}{name}")), "{name}");
        }
        for name in [
            "f",
            "pop_block",
            "wait_clock",
            "unlock_all",
            "slave_deadlock_handler",
            "worker < take_lock",
            "[unknown lock.so] < main",
            "Pool::wait_for_tasks(std::unique_lock<std::mutex>&, int)",
        ] {
            assert!(!sounds(&format!("{wait}{name}")), "{name}");
        }
    }
}
