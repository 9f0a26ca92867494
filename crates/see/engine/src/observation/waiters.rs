//! Why threads sleep in a futex: a verdict for each futex, or for each place at which one is waited for.
//!
//! A mutex is a mutex for every waiter. But many threads sleep in one futex of their own for every kind of wait (a Java
//! thread, a PostgreSQL backend, a parked Rust thread). There the place decides: the futex, the stack pointer, and the
//! deciding word of the stack, a return address; the kernel side looks for all three at the next wait. If no pattern
//! matches, the reason of the wait stays unknown, and it does not count as a lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_files::reader::{Work, put_off};
use ncpu_symbols::{Copied, Patterns, Pythons, Recent, StackWait, UserWait};

use crate::bpf_support::Stack;
use crate::engine::{FutexClass, FutexWaits, Verdict, futex_key, site_key};
use crate::names::Symbols;
use crate::names::waits::{joined, waiting_at};

/// Stacks judged in a second: some 50 µs each, and a program may have futexes without number. Those with long names take longer.
const MAX_JUDGED: u32 = 500;
const MAX_SPENT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 100 });
/// Keys of verdicts of a generation; the kernel side has room for two.
const MAX_KEYS: usize = 1 << 13;
/// Places of a generation: some 600 bytes each, or more where functions have long names.
const MAX_PLACES: usize = 1 << 12;
const MAX_PLACE_BYTES: usize = 4 << 20;
/// Classes of a generation.
const MAX_CLASSES: usize = 1 << 11;
/// Stacks that had code without names when they were judged (a virtual machine's, or names that there was no time to read): kept, and
/// looked at again at this interval.
const MAX_DOUBTS: usize = 64;
const AGAIN: Duration = Duration::from_secs(1);
/// The first number of a place: 0 and 1 stand for none and for many (`OTHERS` of engine.h).
const FIRST: u32 = 2;

/// The verdict on waits at a place, and its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub class: FutexClass,
    /// The lock's name for its users, and the remedy.
    pub pattern: Option<Arc<str>>,
    pub advice: Option<Arc<str>>,
    pub caller: Option<Arc<str>>,
    pub stack: Arc<str>,
}

/// A verdict as the kernel side has it.
#[derive(Clone, Copy, Debug)]
struct Known {
    class: FutexClass,
    place: u32,
    word: Option<(u32, u64)>,
}

/// The verdicts so far.
pub(super) struct Waiters {
    patterns: Patterns,
    /// Name and advice of each pattern.
    told: Vec<[Option<Arc<str>>; 2]>,
    places: Recent<u32, Arc<Place>>,
    numbers: Recent<Arc<Place>, u32>,
    next: u32,
    /// Bytes of the places since they were last turned over.
    bytes: usize,
    keys: Recent<u64, Known>,
    /// Keys the kernel side is to forget.
    gone: Vec<u64>,
    /// The second at hand, and the stacks judged in it.
    second: Option<Instant>,
    judged: u32,
    spent: Duration,
    doubts: Vec<Doubt>,
    doubted: Option<Instant>,
    /// Classes by the names on a stack, hashed with a seed that nobody can foresee: threads that begin for ever wait in futexes of their
    /// own, in the same places.
    classes: Recent<u64, (Option<StackWait>, FutexClass)>,
    seed: RandomState,
}

/// A wait that was not found to be for a lock, while code of its stack had no names: they may come later.
struct Doubt {
    futex: u64,
    stack: Stack,
    copy: Option<Copied>,
    unnamed: usize,
    /// There was no time to read them.
    put_off: bool,
}

/// A stack with names, and where in its copy each return address was found.
struct Named {
    frames: Vec<Arc<str>>,
    words: Vec<Option<usize>>,
}

impl Named {
    /// Frames in code made at run time that nobody has named.
    fn unnamed(&self) -> usize {
        self.frames.iter().filter(|f| f.starts_with("[anon")).count()
    }
}

impl Waiters {
    pub fn new(patterns: Patterns) -> Waiters {
        let some = |s: &str| (!s.is_empty()).then(|| Arc::from(s));
        Waiters {
            told: patterns.list().iter().map(|p| [some(&p.name), some(&p.advice)]).collect(),
            patterns,
            places: Recent::new(MAX_PLACES),
            numbers: Recent::new(MAX_PLACES),
            next: FIRST,
            bytes: 0,
            keys: Recent::new(MAX_KEYS),
            gone: Vec::new(),
            second: None,
            judged: 0,
            spent: Duration::ZERO,
            doubts: Vec::new(),
            doubted: None,
            classes: Recent::new(MAX_CLASSES),
            seed: RandomState::new(),
        }
    }

    /// The verdict on the waits of a row: by its place, or by its futex where the waits had no place yet.
    pub fn place(&mut self, row: &FutexWaits) -> Option<Arc<Place>> {
        let place = match u32::try_from(row.place).unwrap_or(0) {
            place if place >= FIRST => place,
            _ => self.keys.peek(&futex_key(row.tgid, row.futex)).map(|k| k.place)?,
        };
        self.places.get(&place).cloned()
    }

    /// Whether waits for a futex, those at a place if that matters, were judged to be for a lock.
    pub fn is_lock(&self, tgid: u32, futex: u64, place: u64) -> bool {
        let class = |key| self.keys.peek(&key).map(|k| k.class);
        match class(futex_key(tgid, futex)) {
            Some(FutexClass::ByPlace) => class(place) == Some(FutexClass::Lock),
            class => class == Some(FutexClass::Lock),
        }
    }

    /// The number of the place that decides what a row's futex was waited for; `None` where the futex itself decides.
    pub fn deciding_place(&self, row: &FutexWaits) -> Option<u32> {
        let known = self.keys.peek(&futex_key(row.tgid, row.futex))?;
        let place = u32::try_from(row.place).ok().filter(|place| *place >= FIRST).unwrap_or(known.place);
        (known.class == FutexClass::ByPlace).then_some(place)
    }

    /// Keys of verdicts that were forgotten since the last call.
    pub fn gone(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.gone)
    }

    fn may_judge(&mut self) -> bool {
        let now = Instant::now();
        if self.second.is_none_or(|s| now.duration_since(s) >= Duration::from_secs(1)) {
            (self.second, self.judged, self.spent) = (Some(now), 0, Duration::ZERO);
        }
        self.judged += 1;
        self.judged <= MAX_JUDGED && self.spent < MAX_SPENT
    }

    /// Judges a wait by the waiter's stack, for the kernel side; `None` if there is no time to look.
    pub fn judge(
        &mut self,
        symbols: &mut Symbols,
        futex: u64,
        stack: &Stack,
        copy: Option<&Copied>,
        again: bool,
    ) -> Option<Vec<Verdict>> {
        if !self.may_judge() {
            return None;
        }
        let began = Work::begin();
        let verdicts = self.judged(symbols, futex, stack, copy, again);
        self.spent += began.elapsed();
        Some(verdicts)
    }

    fn judged(
        &mut self,
        symbols: &mut Symbols,
        futex: u64,
        stack: &Stack,
        copy: Option<&Copied>,
        again: bool,
    ) -> Vec<Verdict> {
        let (named, put_off) = self.frames(symbols, stack, copy);
        if again && self.class_of(&named).1 == FutexClass::Unknown {
            // A stack that no pattern matches does not overrule an earlier verdict.
            return Vec::new();
        }
        let before = again.then(|| self.keys.peek(&futex_key(stack.tgid, futex)).map(|k| k.class)).flatten();
        let python = python(symbols, stack, copy);
        let (is_lock, verdicts) = self.tell(&named, &python, futex, stack, copy);
        // The kernel side may have found out more of a semaphore.
        if before.is_some_and(|before| verdicts.iter().all(|v| v.class == before)) {
            return Vec::new();
        }
        let unnamed = named.unnamed();
        if (unnamed > 0 || put_off) && !is_lock {
            // The one that was first in doubt of all that are: it has been looked at most often.
            if self.doubts.len() == MAX_DOUBTS {
                self.doubts.remove(0);
            }
            self.doubts.push(Doubt { futex, stack: stack.clone(), copy: copy.cloned(), unnamed, put_off });
        }
        verdicts
    }

    /// Verdicts on waits whose stacks have got more names since they were judged. A wait in progress keeps its verdict;
    /// the next wait at that place gets the new one.
    pub fn judge_again(&mut self, symbols: &mut Symbols, now: Instant) -> Vec<Verdict> {
        if self.doubts.is_empty() || self.doubted.is_some_and(|at| now < at + AGAIN) {
            return Vec::new();
        }
        self.doubted = Some(now);
        let mut verdicts = Vec::new();
        for mut doubt in std::mem::take(&mut self.doubts) {
            let (named, put_off) = self.frames(symbols, &doubt.stack, doubt.copy.as_ref());
            let unnamed = named.unnamed();
            let mut settled = unnamed == 0 && !put_off;
            if unnamed < doubt.unnamed || doubt.put_off && !put_off {
                let copy = doubt.copy.as_ref();
                let python = python(symbols, &doubt.stack, copy);
                let (is_lock, told) = self.tell(&named, &python, doubt.futex, &doubt.stack, copy);
                verdicts.extend(told);
                settled |= is_lock;
            }
            (doubt.unnamed, doubt.put_off) = (unnamed, put_off);
            if !settled {
                self.doubts.push(doubt);
            }
        }
        verdicts
    }

    /// The class of a wait by the names on its stack.
    fn class_of(&mut self, named: &Named) -> (Option<StackWait>, FutexClass) {
        let key = self.seed.hash_one(&named.frames);
        if let Some(known) = self.classes.get(&key) {
            return *known;
        }
        let names: Vec<&str> = named.frames.iter().map(|f| &**f).collect();
        let told = self.patterns.judge(&names);
        let class = match told.map_or(UserWait::Unknown, |t| t.wait) {
            UserWait::Lock => FutexClass::Lock,
            UserWait::Semaphore => FutexClass::Semaphore,
            // It may be what a lock is made of: whether it is, who wakes whom tells.
            UserWait::Condition if self.patterns.sounds_like_a_lock(&names) => FutexClass::Semaphore,
            UserWait::Condition | UserWait::Join | UserWait::Barrier => FutexClass::Condition,
            UserWait::Unknown => FutexClass::Unknown,
        };
        self.classes.insert(key, (told, class));
        (told, class)
    }

    /// Whether a stack with names shows a lock, and the verdicts for the kernel side. `python` is the stack
    /// with functions of Python; empty without any.
    fn tell(
        &mut self,
        named: &Named,
        python: &[Arc<str>],
        futex: u64,
        stack: &Stack,
        copy: Option<&Copied>,
    ) -> (bool, Vec<Verdict>) {
        let names: Vec<&str> = named.frames.iter().map(|f| &**f).collect();
        let (told, class) = self.class_of(named);
        let [pattern, advice] = told.map_or([None, None], |t| self.told[t.pattern].clone());
        let above = named.frames.get(told.map_or(0, |t| t.frame + 1)..).unwrap_or_default();
        let asked: Vec<Arc<str>> = above.iter().skip_while(|f| self.patterns.knows(f)).cloned().collect();
        // C functions below a function of Python are the interpreter's: its users know that function alone.
        let function = python.iter().find(|frame| Pythons::is_function(frame));
        let caller = function.or_else(|| waiting_at(&asked)).or_else(|| waiting_at(&named.frames)).cloned();
        let frames = if function.is_some() { python } else { &named.frames };
        let place = self.number(Place { class, pattern, advice, caller, stack: joined(frames).into() });
        // A lock that is not made of something else is one for all, and so is a semaphore.
        let of_itself = told.is_some_and(|t| {
            t.wait == UserWait::Semaphore
                || t.wait == UserWait::Lock && !names[..t.frame].iter().any(|f| self.patterns.is_layer(f))
        });
        let key = futex_key(stack.tgid, futex);
        // Unless the same word was something else before: memory that was freed, and is used again.
        let two_uses =
            self.keys.peek(&key).is_some_and(|k| k.class != class && k.class != FutexClass::Unknown);
        let Some(copy) = copy.filter(|_| !of_itself || two_uses) else {
            return (class == FutexClass::Lock, vec![self.know(key, Known { class, place, word: None })]);
        };
        let by_futex = self.know(key, Known { class: FutexClass::ByPlace, place, word: None });
        let site = site_key(key, copy.regs[1], None);
        // The word at which another decided there has another value now.
        let other = self
            .keys
            .peek(&site)
            .and_then(|k| k.word)
            .and_then(|(word, value)| copy.words.get(word as usize).copied().filter(|&now| now != value));
        let site = if other.is_some() { site_key(key, copy.regs[1], other) } else { site };
        let word = told.and_then(|t| named.words.get(t.frame).copied().flatten());
        let word = word.and_then(|w| Some((u32::try_from(w).ok()?, *copy.words.get(w)?)));
        (class == FutexClass::Lock, vec![self.know(site, Known { class, place, word }), by_futex])
    }

    fn know(&mut self, key: u64, known: Known) -> Verdict {
        self.gone.extend(self.keys.insert(key, known).into_iter().flat_map(|gone| gone.into_keys()));
        Verdict { key, class: known.class, place: known.place, word: known.word }
    }

    /// Name and advice of a pattern with this name.
    pub fn named(&self, name: &str) -> [Option<Arc<str>>; 2] {
        let told = self.told.iter().find(|told| told[0].as_deref() == Some(name));
        told.cloned().unwrap_or_default()
    }

    /// Name and advice of the pattern that a lock has whose waiters name it themselves.
    pub fn of(&self, lock: &str) -> [Option<Arc<str>>; 2] {
        let told = self.patterns.judge(&[lock]).map(|t| self.told[t.pattern].clone());
        told.unwrap_or_default()
    }

    /// The waiter's stack, and whether there was no time to read all of it.
    fn frames(&self, symbols: &mut Symbols, stack: &Stack, copy: Option<&Copied>) -> (Named, bool) {
        let before = put_off();
        let named = self.named_frames(symbols, stack, copy);
        (named, put_off() != before)
    }

    /// By unwinding, or by frame pointers, whichever tells.
    fn named_frames(&self, symbols: &mut Symbols, stack: &Stack, copy: Option<&Copied>) -> Named {
        let mut unwound = Named { frames: Vec::new(), words: Vec::new() };
        if let Some(copy) = copy {
            let by_tables = symbols.unwind(stack.tgid, copy);
            unwound.frames = symbols.functions(stack.tgid, &by_tables.frames);
            unwound.words = std::iter::once(None).chain(by_tables.words).collect();
            // The innermost alone is what a stack is that there was no time for: it tells the kind of wait, and no caller.
            if by_tables.whole || unwound.frames.len() > 1 && self.tells(&unwound.frames) {
                return unwound;
            }
        }
        let frames = symbols.functions(stack.tgid, &stack.user);
        if !self.tells(&frames) && unwound.frames.len() >= frames.len() {
            return unwound;
        }
        let words = copy.map_or(&[][..], |c| &c.words[..]);
        let words = stack.user.iter().map(|address| words.iter().position(|w| w == address)).collect();
        Named { frames, words }
    }

    fn tells(&self, frames: &[Arc<str>]) -> bool {
        let names: Vec<&str> = frames.iter().map(|f| &**f).collect();
        self.patterns.judge(&names).is_some()
    }

    fn number(&mut self, place: Place) -> u32 {
        let place = Arc::new(place);
        if let Some(&n) = self.numbers.get(&place)
            && self.places.get(&n).is_some()
        {
            return n;
        }
        let n = self.next;
        self.next = self.next.checked_add(1).unwrap_or(FIRST);
        self.bytes += size_of::<Place>() + place.stack.len();
        if self.bytes > MAX_PLACE_BYTES {
            self.bytes = 0;
            self.places.turn();
            self.numbers.turn();
        }
        self.places.insert(n, place.clone());
        self.numbers.insert(place, n);
        n
    }
}

/// The names of a stack with its functions of Python; empty without any.
fn python(symbols: &mut Symbols, stack: &Stack, copy: Option<&Copied>) -> Vec<Arc<str>> {
    if copy.is_none_or(|copy| copy.codes.is_empty()) {
        return Vec::new();
    }
    let mut whole = stack.clone();
    symbols.complete(&mut whole, copy);
    symbols.functions(whole.tgid, &whole.user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use ncpu_files::reader::{Whose, charge_names};

    #[test]
    fn stacks_that_take_long_to_judge_are_judged_later() {
        let (mut symbols, mut waiters) = (Symbols::new(), Waiters::new(Patterns::default()));
        let stack = Stack { tgid: std::process::id(), ..Stack::default() };
        let mut judge = |waiters: &mut Waiters| waiters.judge(&mut symbols, 0x1000, &stack, None, false);
        assert!(judge(&mut waiters).is_some() && waiters.spent > Duration::ZERO);
        waiters.spent = MAX_SPENT;
        assert!(judge(&mut waiters).is_none());
        waiters.second = Instant::now().checked_sub(Duration::from_secs(2));
        assert!(judge(&mut waiters).is_some());
    }

    #[test]
    fn places_with_long_stacks_take_little_memory() {
        let mut waiters = Waiters::new(Patterns::default());
        for i in 0..2000 {
            let stack = format!("{i}{}", "x".repeat(16 << 10)).into();
            let place = Place { stack, ..Place::default() };
            let number = waiters.number(place.clone());
            assert_eq!(waiters.number(place.clone()), number);
            assert_eq!(waiters.places.get(&number).map(|p| &**p), Some(&place));
            assert!(
                waiters.places.len() <= 520 && waiters.numbers.len() <= 520,
                "{i}: {}",
                waiters.places.len()
            );
        }
    }

    /// Names that there was no time to read, as on a machine that is short of it.
    #[test]
    fn a_wait_whose_names_were_put_off_is_judged_when_they_come() {
        let libc_of = |pid: u32| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
            let first = maps.lines().find(|line| line.ends_with("/libc.so.6"))?;
            u64::from_str_radix(first.split('-').next()?, 16).ok()
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id();
        let begins = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            libc_of(pid)
        });
        let own = libc_of(std::process::id()).expect("a C library");
        let lock = (libc::pthread_mutex_lock as *const () as u64) - own + begins.expect("a C library") + 1;
        let whose = Whose::process(format!("/proc/{pid}").as_ref(), pid);
        let mut symbols = Symbols::new();
        let mut waiters = Waiters::new(Patterns::default());
        let stack = Stack { tgid: pid, comm: "sleep".into(), user: vec![lock], ..Stack::default() };
        let class = |verdicts: &[Verdict]| verdicts.iter().map(|v| v.class).collect::<Vec<_>>();
        charge_names(whose, Duration::from_millis(1200));
        let first = waiters.judge(&mut symbols, 0x1000, &stack, None, false).expect("there is time");
        let start = Instant::now();
        let again = (1..400).find_map(|n| {
            std::thread::sleep(Duration::from_millis(20));
            let verdicts = waiters.judge_again(&mut symbols, start + AGAIN * n);
            (!verdicts.is_empty()).then_some(verdicts)
        });
        child.kill().and_then(|()| child.wait()).expect("it is killed");
        assert_eq!(class(&first), [FutexClass::Unknown]);
        assert_eq!(class(&again.expect("there is time again")), [FutexClass::Lock]);
        assert_eq!(class(&waiters.judge_again(&mut symbols, start + AGAIN * 500)), [], "it is settled");
    }

    /// Two functions of code made at run time, of which the second gets its name later.
    #[test]
    fn what_a_wait_is_for_is_judged_again_when_names_come() {
        let me = std::process::id();
        let path = format!("/tmp/perf-{me}.map");
        let write = |name: &str, at: u64| {
            let mut map =
                std::fs::OpenOptions::new().create(true).append(true).open(&path).expect("a perf map");
            writeln!(map, "{at:x} 100 {name}").expect("written");
        };
        // SAFETY: anonymous memory that nothing else uses, given back at the end of the test.
        let code = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0)
        };
        assert_ne!(code, libc::MAP_FAILED);
        let (park, acquire) = (code as u64 + 0x10, code as u64 + 0x210);
        write("Unsafe_Park", park - 0x10);
        let mut symbols = Symbols::new();
        let mut waiters = Waiters::new(Patterns::default());
        let stack = Stack { tgid: me, comm: "java".into(), user: vec![park, acquire], ..Stack::default() };
        let class = |verdicts: &[Verdict]| verdicts.iter().map(|v| v.class).collect::<Vec<_>>();
        let first = waiters.judge(&mut symbols, 0x1000, &stack, None, false).expect("there is time");
        assert_eq!(class(&first), [FutexClass::Condition]);
        let start = Instant::now();
        assert_eq!(class(&waiters.judge_again(&mut symbols, start)), [], "no names have come");
        write("java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire", acquire - 0x10);
        let again = (1..40).find_map(|n| {
            // The map is read again ever more seldom.
            std::thread::sleep(Duration::from_millis(20));
            let verdicts = waiters.judge_again(&mut symbols, start + AGAIN * n);
            (!verdicts.is_empty()).then_some(verdicts)
        });
        std::fs::remove_file(&path).expect("it was written");
        // SAFETY: mapped above, and no reference into it is left.
        assert_eq!(unsafe { libc::munmap(code, 4096) }, 0);
        assert_eq!(class(&again.expect("names have come")), [FutexClass::Lock]);
        assert_eq!(class(&waiters.judge_again(&mut symbols, start + AGAIN * 50)), [], "it is settled");
    }
}
