//! Cache lines that several threads of a process use at once, by the operands of samples.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Bytes of a cache line.
pub const LINE: u64 = 64;
/// Lines remembered of all processes; of more none is.
pub const MAX_LINES: usize = 1 << 15;
/// Threads and writing functions remembered of a line.
const MAX_THREADS: usize = 64;
const MAX_WRITERS: usize = 4;
/// How often a line must have changed hands between samples: memory that one thread gave back and another got changes hands once.
const CHANGES: u32 = 4;
/// Samples that the thread with the second most must have.
const SECOND: u32 = 3;

/// An operand that a thread had.
#[derive(Clone, Debug)]
pub struct Touch {
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// The address of its first byte.
    pub at: u64,
    /// Bytes.
    pub size: u16,
    /// It is written, if perhaps not alone.
    pub writes: bool,
}

/// A line of a process.
#[derive(Debug, Default)]
pub struct Line {
    threads: Vec<User>,
    last: u32,
    changes: u32,
    writers: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct User {
    tid: u32,
    touches: u32,
    /// A bit for each byte.
    reads: u64,
    writes: u64,
    /// The same of first bytes of operands.
    begins: u64,
}

/// How threads use a line together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The same word.
    True,
    /// Each its own.
    False,
}

impl Sharing {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Sharing::True => "true",
            Sharing::False => "false",
        }
    }
}

impl Line {
    /// How its threads share it; `None` where they do not, or too few samples say so.
    pub fn sharing(&self) -> Option<Sharing> {
        let mut touches: Vec<u32> = self.threads.iter().map(|t| t.touches).collect();
        touches.sort_unstable();
        let second = touches.iter().rev().nth(1).copied().unwrap_or(0);
        if self.changes < CHANGES || second < SECOND {
            return None;
        }
        // A write moves the line, whatever the other threads do with it.
        let pairs = self.threads.iter().enumerate().flat_map(|(i, a)| {
            self.threads.iter().enumerate().filter(move |(j, _)| *j != i).map(move |(_, b)| (a, b))
        });
        let written = pairs.clone().any(|(a, _)| a.writes != 0);
        let same = pairs.clone().any(|(a, b)| a.writes & (b.reads | b.writes) != 0);
        written.then_some(if same { Sharing::True } else { Sharing::False })
    }

    /// Threads that use it, as far as they are remembered.
    pub fn threads(&self) -> u64 {
        self.threads.len() as u64
    }

    /// These threads with their touches, the one with most first.
    pub fn users(&self) -> Vec<(u32, u32)> {
        let mut users: Vec<(u32, u32)> = self.threads.iter().map(|t| (t.tid, t.touches)).collect();
        users.sort_by_key(|(tid, touches)| (std::cmp::Reverse(*touches), *tid));
        users
    }

    /// Touches of all threads.
    pub fn touches(&self) -> u64 {
        self.threads.iter().map(|t| u64::from(t.touches)).sum()
    }

    /// Whether a thread writes it.
    pub fn is_written(&self) -> bool {
        self.threads.iter().any(|t| t.writes != 0)
    }

    /// Whether an operand lies, even in part, in its eight bytes from place `word` on.
    pub fn uses(&self, word: u64) -> bool {
        self.threads.iter().any(|t| (t.reads | t.writes) >> word & 0xff != 0)
    }

    /// Functions that write it.
    pub fn writers(&self) -> String {
        self.writers.iter().map(|w| &**w).collect::<Vec<_>>().join(", ")
    }

    /// The place in the line of the word that most threads use.
    pub fn first_word(&self) -> u64 {
        let users = |bit: u32| self.threads.iter().filter(|t| t.begins >> bit & 1 == 1).count();
        (0..u64::BITS).rev().max_by_key(|bit| users(*bit)).unwrap_or(0).into()
    }

    /// The words used, by their first bytes in the line.
    pub fn words(&self) -> String {
        let begins = self.threads.iter().fold(0, |all, t| all | t.begins);
        let words: Vec<String> =
            (0..LINE).filter(|bit| begins >> bit & 1 == 1).map(|bit| format!("+{bit}")).collect();
        words.join(" ")
    }
}

/// Lines by process and address.
#[derive(Debug, Default)]
pub struct Lines(HashMap<(u32, u64), Line>);

impl Lines {
    /// The line that an address lies in.
    pub fn line(at: u64) -> u64 {
        at & !(LINE - 1)
    }

    /// An operand of a sample. They come in the order of time.
    pub fn touch(&mut self, touch: &Touch, function: &Arc<str>) {
        let line = Lines::line(touch.at);
        if self.0.len() >= MAX_LINES && !self.0.contains_key(&(touch.tgid, line)) {
            return;
        }
        let known = self.0.entry((touch.tgid, line)).or_default();
        // The next line's part is left out.
        let length = u64::from(touch.size).clamp(1, LINE);
        let bytes = (u64::MAX >> (LINE - length)) << (touch.at - line);
        if touch.writes && known.writers.len() < MAX_WRITERS {
            known.writers.insert(function.clone());
        }
        if known.last != touch.tid && !known.threads.is_empty() {
            known.changes += 1;
        }
        known.last = touch.tid;
        let user = match known.threads.iter().position(|t| t.tid == touch.tid) {
            Some(i) => &mut known.threads[i],
            None if known.threads.len() < MAX_THREADS => {
                known.threads.push(User { tid: touch.tid, touches: 0, reads: 0, writes: 0, begins: 0 });
                let Some(user) = known.threads.last_mut() else { return };
                user
            }
            None => return,
        };
        user.touches += 1;
        user.begins |= 1 << (touch.at - line);
        *if touch.writes { &mut user.writes } else { &mut user.reads } |= bytes;
    }

    /// The line of an address of a process, if a touch of it is remembered.
    pub fn get(&self, tgid: u32, at: u64) -> Option<&Line> {
        self.0.get(&(tgid, Lines::line(at)))
    }

    /// All lines, by process and address.
    pub fn iter(&self) -> impl Iterator<Item = (&(u32, u64), &Line)> {
        self.0.iter()
    }

    /// Forgets lines that one thread alone has used.
    pub fn forget_private(&mut self) {
        if self.0.len() >= MAX_LINES {
            self.0.retain(|_, line| line.threads.len() > 1);
            if self.0.len() >= MAX_LINES / 2 {
                self.0.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(touches: &[(u32, u64, u16, bool)]) -> Lines {
        let mut lines = Lines::default();
        for &(tid, at, size, writes) in touches {
            lines.touch(&Touch { tgid: 1, tid, at, size, writes }, &"f".into());
        }
        lines
    }

    fn turns(
        one: (u32, u64, u16, bool),
        other: (u32, u64, u16, bool),
        times: usize,
    ) -> Vec<(u32, u64, u16, bool)> {
        [one, other].into_iter().cycle().take(2 * times).collect()
    }

    #[test]
    fn threads_that_take_turns_share_a_line_if_one_writes() {
        let sharing = |touches: &[_]| touched(touches).get(1, 0x1000).unwrap().sharing();
        assert_eq!(sharing(&turns((1, 0x1000, 8, true), (2, 0x1000, 8, true), 4)), Some(Sharing::True));
        assert_eq!(sharing(&turns((1, 0x1000, 8, true), (2, 0x1008, 8, true), 4)), Some(Sharing::False));
        assert_eq!(sharing(&turns((1, 0x1000, 8, true), (2, 0x1004, 4, false), 4)), Some(Sharing::True));
        assert_eq!(sharing(&turns((1, 0x1000, 8, false), (2, 0x1000, 8, false), 4)), None, "nobody writes");
        assert_eq!(sharing(&turns((1, 0x1000, 8, true), (2, 0x1000, 8, true), 2)), None, "too few");
        let mut one_after_the_other = vec![(1, 0x1000, 8, true); 20];
        one_after_the_other.extend([(2, 0x1000, 8, true); 20]);
        assert_eq!(sharing(&one_after_the_other), None, "memory that was given back");
    }

    #[test]
    fn words_are_their_places_in_the_line() {
        let lines = touched(&[
            (1, 0x1008, 8, true),
            (2, 0x1010, 8, true),
            (2, 0x1020, 4, false),
            (2, 0x103c, 16, true),
        ]);
        assert_eq!(lines.get(1, 0x1000).unwrap().words(), "+8 +16 +32 +60");
        assert_eq!(lines.get(1, 0x1000).unwrap().first_word(), 8, "the first of the words with most threads");
    }
}
