//! Locks with names: what the lock table's addresses and stacks mean.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use ncpu_schema::{StackKind, first_waits, lock_callers, locks, sleepers, stacks, user_locks};
use ncpu_symbols::{Copied, Patterns, Recent};
use ncpu_table::Table;

use super::backends::Backends;
use super::bounds::{self, Names};
use super::call_locks::{self, KERNEL_HALF};
use super::waiters::{Place, Waiters};
use crate::bpf_support::Stack;
use crate::engine::{
    Coverage, Engine, FirstOf, FutexClass, FutexWaits, Locks, OTHERS, TimeRow, TracedLock, Verdict, Waits,
};
use crate::lock_names::LockNamer;
use crate::names::waits::{joined, waiting_at};
use crate::names::{Symbols, call_name, fold, without_probe};

/// `LCB_F_*` of include/trace/events/lock.h.
const SPIN: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const RT: u32 = 8;
const PERCPU: u32 = 16;
const MUTEX: u32 = 32;

fn type_of(flags: u32) -> &'static str {
    match flags {
        f if f & MUTEX != 0 => "mutex",
        f if f & PERCPU != 0 => {
            if f & READ != 0 {
                "percpu-rwsem:R"
            } else {
                "percpu-rwsem:W"
            }
        }
        f if f & RT != 0 => "rt-mutex",
        f if f & SPIN != 0 && f & READ != 0 => "rwlock:R",
        f if f & SPIN != 0 && f & WRITE != 0 => "rwlock:W",
        f if f & READ != 0 => "rwsem:R",
        f if f & WRITE != 0 => "rwsem:W",
        _ => "spinlock",
    }
}

/// No futex lies as low as this, and no call has a higher number.
const MAX_CALL: u64 = 1024;

/// What backends of PostgreSQL are called.
const POSTGRES: &str = "postgres";

/// Functions of the locks themselves: the caller is the first frame outside this list.
pub(super) fn is_lock_function(name: &str) -> bool {
    const STARTS: [&str; 24] = [
        "_raw_spin",
        "_raw_read",
        "_raw_write",
        "__raw_",
        "queued_",
        "native_queued_",
        "__pv_queued",
        "pv_",
        "mutex_",
        "__mutex_",
        "ww_mutex",
        "rwsem_",
        "down_",
        "__down",
        "down",
        "percpu_down",
        "__percpu_down",
        "rt_mutex",
        "rt_spin",
        "osq_lock",
        "__raw_callee_save",
        "do_raw_",
        "virt_spin_lock",
        "folio_lruvec_lock",
    ];
    // `down` alone is the semaphore; `down_something_else` is caught by its own prefix.
    STARTS.iter().any(|s| if *s == "down" { name == "down" } else { name.starts_with(s) })
}

pub(super) fn caller(frames: &[Arc<str>]) -> &str {
    let frames = without_probe(frames);
    frames.iter().find(|f| !is_lock_function(f)).map_or("[unknown]", |f| f)
}

/// What is known of locks and waiters so far.
pub(super) struct LockTables {
    /// Opened when the first lock is seen: it costs 25 ms.
    namer: Option<LockNamer>,
    /// The function that asked for a lock first.
    asked_by: Recent<u64, String>,
    stacks: Recent<u64, Stack>,
    waiters: Waiters,
    backends: Backends,
    off_stacks: Recent<u64, Stack>,
    user_stacks: Recent<u64, Stack>,
    /// Names of locks that system calls take.
    in_calls: Recent<u64, String>,
    /// Names of user locks, by process and futex.
    names: Recent<(u32, u64), Arc<str>>,
    /// A bit for each thread that has waited in a futex, by process and futex.
    threads: Recent<(u32, u64), u64>,
    /// Places at which threads of a process have waited in several futexes for the same.
    shared: Recent<(u32, u64), ()>,
    /// What the kernel side must know since it was asked last.
    forgotten: Forgotten,
}

/// A futex that threads waited for.
pub(super) struct Futex {
    pub class: FutexClass,
    pub name: String,
    /// The function that waits.
    pub caller: Option<String>,
    /// Threads wait there for others to come or to end.
    pub meets: bool,
}

/// Stacks and callers of a generation: some 300 bytes each.
const MAX_STACKS: usize = 1 << 11;

/// What was forgotten.
#[derive(Default)]
pub(super) struct Forgotten {
    /// Some stacks or waiters, which are to be sent again.
    pub some: bool,
    /// Keys of verdicts on futexes.
    pub futexes: Vec<u64>,
}

impl LockTables {
    pub fn new(patterns: Patterns) -> LockTables {
        LockTables {
            namer: None,
            asked_by: Recent::new(MAX_STACKS),
            stacks: Recent::new(MAX_STACKS),
            waiters: Waiters::new(patterns),
            backends: Backends::default(),
            off_stacks: Recent::new(MAX_STACKS),
            user_stacks: Recent::new(MAX_STACKS),
            in_calls: Recent::new(MAX_STACKS),
            names: Recent::new(MAX_STACKS),
            threads: Recent::new(MAX_STACKS),
            shared: Recent::new(MAX_STACKS),
            forgotten: Forgotten::default(),
        }
    }

    /// What keeps locks from having names, a line each.
    pub fn notes(&self) -> &[String] {
        self.namer.as_ref().map_or(&[], LockNamer::notes)
    }

    /// The name of a kernel lock, as the last tables have it; its address where it has none.
    pub fn kernel_name(&self, lock: u64) -> String {
        self.kernel_lock(lock).unwrap_or_else(|| format!("{lock:#x}"))
    }

    pub fn lock_stack(&mut self, id: u64, stack: Stack) {
        self.forgotten.some |= self.stacks.insert(id, stack).is_some();
    }

    pub fn user_lock_stack(&mut self, id: u64, stack: Stack) {
        self.forgotten.some |= self.user_stacks.insert(id, stack).is_some();
    }

    pub fn off_stack(&mut self, id: u64, stack: Stack) {
        self.forgotten.some |= self.off_stacks.insert(id, stack).is_some();
    }

    /// The stack of a thread that went off CPU.
    pub fn off_stack_of(&self, id: u64) -> Option<Stack> {
        self.off_stacks.peek(&id).cloned()
    }

    /// The name that table `user_locks` has for a futex.
    pub fn name_of(&mut self, symbols: &mut Symbols, tgid: u32, futex: u64) -> Arc<str> {
        let known = self.names.get(&(tgid, futex)).cloned();
        known.unwrap_or_else(|| user_address(&self.in_calls, symbols, tgid, futex).into())
    }

    /// What is known of a futex that threads waited for.
    pub fn futex(&mut self, symbols: &mut Symbols, row: &TimeRow) -> Futex {
        let waits = FutexWaits {
            futex: row.futex,
            place: row.place.into(),
            tgid: row.tgid,
            event: row.event,
            class: row.class,
            ..FutexWaits::default()
        };
        let place = self.waiters.place(&waits);
        let class = match (row.class, place.as_ref().map(|p| p.class)) {
            (FutexClass::Unknown, Some(class)) => class,
            (class, _) => class,
        };
        let name = match self.backends.lock(&waits) {
            Some((_, name)) => name,
            None => self.name_of(symbols, row.tgid, row.futex).to_string(),
        };
        let caller = place.as_ref().and_then(|p| p.caller.as_deref()).map(String::from);
        let meets = place.is_some_and(|p| p.stack.contains("join") || p.stack.contains("barrier"));
        Futex { class, name, caller, meets }
    }

    /// The name that table `locks` has for a lock of the kernel.
    pub fn kernel_lock(&self, lock: u64) -> Option<String> {
        let by = self.asked_by.peek(&lock).map_or("", String::as_str);
        let name = self.namer.as_ref().and_then(|namer| namer.name_for(lock, by));
        name.or_else(|| (!by.is_empty()).then(|| format!("lock in {by}")))
    }

    /// Futexes in which one thread each has waited at one place, as one: where each thread sleeps in a futex of its own for all
    /// that it waits for, the place says what for. One in which several threads wait is an object of its own. Also the
    /// futexes of each row.
    fn gathered(&mut self, rows: Vec<FutexWaits>) -> Vec<(FutexWaits, Vec<u64>)> {
        let mut out: Vec<(FutexWaits, Vec<u64>)> = Vec::new();
        let mut at: HashMap<(u32, u32, u32, &str), usize> = HashMap::new();
        for mut row in rows {
            let key = (row.tgid, row.futex);
            let threads = self.threads.peek(&key).copied().unwrap_or(0) | row.woken.threads;
            self.threads.insert(key, threads);
            let apart = row.futex == OTHERS || threads.count_ones() > 1;
            let place = self.waiters.deciding_place(&row).filter(|_| !apart);
            let Some(place) = place else {
                let futex = row.futex;
                out.push((row, vec![futex]));
                continue;
            };
            row.place = place.into();
            if let (FutexClass::Unknown, Some(known)) = (row.class, self.waiters.place(&row)) {
                row.class = known.class;
            }
            match at.entry((row.tgid, place, row.event, row.class.name())) {
                Entry::Occupied(have) => {
                    let (sum, futexes) = &mut out[*have.get()];
                    if row.block > sum.block {
                        (sum.futex, sum.holder) = (row.futex, row.holder);
                    }
                    sum.add(&row);
                    if !futexes.contains(&row.futex) {
                        futexes.push(row.futex);
                    }
                }
                Entry::Vacant(free) => {
                    free.insert(out.len());
                    let futex = row.futex;
                    out.push((row, vec![futex]));
                }
            }
        }
        out
    }

    /// What was forgotten since the last call.
    pub fn forgotten(&mut self) -> Forgotten {
        let mut forgotten = std::mem::take(&mut self.forgotten);
        forgotten.futexes = self.waiters.gone();
        forgotten.some |= !forgotten.futexes.is_empty();
        forgotten
    }

    /// Whether waits for a futex, those at a place if that matters, were judged to be for a lock.
    pub fn is_lock(&self, tgid: u32, futex: u64, place: u64) -> bool {
        self.waiters.is_lock(tgid, futex, place)
    }

    /// A thread waits whose process may tell itself what for.
    pub fn met(&mut self, stack: &Stack, engine: &Engine) {
        if stack.comm == POSTGRES {
            self.backends.met(stack.tgid, engine);
        }
    }

    /// A thread waits for a lock that its system call takes: the kernel side knows its kind. Its stack tells who asked for it.
    pub fn met_in_call(
        &mut self,
        symbols: &mut Symbols,
        address: u64,
        stack: &Stack,
        copy: Option<&Copied>,
        number: u32,
    ) {
        if self.in_calls.get(&address).is_none() {
            self.in_calls.insert(address, call_locks::name(address, stack.tgid, number));
        }
        let _ = self.waiters.judge(symbols, address, stack, copy, false);
    }

    /// A waiter's stack tells what it waits for; the verdicts go back to the kernel side. None where there was no time.
    pub fn judge(
        &mut self,
        symbols: &mut Symbols,
        futex: u64,
        stack: &Stack,
        copy: Option<&Copied>,
        again: bool,
    ) -> Vec<Verdict> {
        let verdicts = self.waiters.judge(symbols, futex, stack, copy, again);
        // It is asked for again.
        self.forgotten.some |= verdicts.is_none() && !again;
        verdicts.unwrap_or_default()
    }

    /// Verdicts on waits whose code had no names when they were judged, and has now.
    pub fn judge_again(&mut self, symbols: &mut Symbols) -> Vec<Verdict> {
        self.waiters.judge_again(symbols, Instant::now())
    }

    /// Tables `locks`, `lock_callers`, `user_locks`, the off-CPU and spin rows of `stacks`, `sleepers` and `first_waits`, of
    /// what came up to `t`.
    pub fn tables(
        &mut self,
        t: f64,
        new: Locks,
        symbols: &mut Symbols,
        process: &Names,
        threads: &Names,
    ) -> [Table; 6] {
        let new = bounds::of(new, |row| row.class);
        let name_of = |tgid| process.of(tgid);
        let process = |tgid: u32, lock: u64| match tgid {
            0 if lock == OTHERS => bounds::OTHERS_NAME,
            tgid => process.of(tgid).unwrap_or("[gone]"),
        };
        let mut addresses: Vec<u64> = new.kernel.iter().map(|r| r.lock).filter(|&l| l != OTHERS).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if !addresses.is_empty() {
            self.namer.get_or_insert_with(|| LockNamer::open(symbols.kernel_symbols())).resolve(&addresses);
        }

        let coverage = new.coverage;
        let mut locks = locks::Rows::new();
        let mut callers = lock_callers::Rows::new();
        let mut user = user_locks::Rows::new();
        let mut stacks = stacks::Rows::new();
        // Names by process (0 is the kernel) and address.
        let mut named: HashMap<(u32, u64), String> = HashMap::new();
        // An unnamed lock is known by who asks for it.
        for row in &new.kernel {
            if let Some(stack) = row.stack.and_then(|stack| self.stacks.get(&stack))
                && self.asked_by.get(&row.lock).is_none()
            {
                let frames = symbols.kernel(&stack.kernel);
                self.asked_by.insert(row.lock, caller(&frames).to_string());
            }
        }
        for row in &new.kernel {
            let by = self.asked_by.get(&row.lock).map_or("", String::as_str);
            let known = match row.lock {
                OTHERS => Some(bounds::OTHERS_NAME.into()),
                lock => self.namer.as_ref().and_then(|n| n.name_for(lock, by)),
            };
            let name = known.unwrap_or_else(|| match by {
                "" => format!("{:#x}", row.lock),
                _ => format!("lock in {by}"),
            });
            let scaled = |ns: u64| coverage.of(ns) as f64 / 1e9;
            let (spin, block) = (scaled(row.spin), scaled(row.block));
            let Some(stack) = row.stack else {
                named.entry((0, row.lock)).or_insert_with(|| name.clone());
                locks.push(locks::Row {
                    lock: name.into(),
                    ty: type_of(row.flags).into(),
                    process: process(row.tgid, row.lock).into(),
                    count: Some(coverage.of(row.count)),
                    spin: Some(spin),
                    block: Some(block),
                    max: Some(row.max as f64 / 1e3),
                    counted: Some(row.count),
                    error: Some(coverage.error(row.count)),
                    time: Some(t),
                });
                continue;
            };
            let frames = self.stacks.get(&stack).map(|s| symbols.kernel(&s.kernel)).unwrap_or_default();
            let path = without_probe(&frames).join(";");
            callers.push(lock_callers::Row {
                lock: name.into(),
                ty: type_of(row.flags).into(),
                process: process(row.tgid, row.lock).into(),
                caller: caller(&frames).into(),
                stack: path.into(),
                walked: Some(row.count),
                spin: Some(spin),
                block: Some(block),
                time: Some(t),
            });
        }
        let pid = |tgid: u32| (tgid != 0).then(|| tgid.into());
        let mut futexes = self.gathered(new.futexes);
        // A futex that is several things is named after what most was waited for there.
        futexes.sort_by_key(|(row, _)| row.block);
        for (row, words) in &futexes {
            let place = self.waiters.place(row);
            // What is a lock by those who post it, the kernel side alone knows.
            let class = match (row.class, place.as_ref().map(|p| p.class)) {
                (FutexClass::Unknown, Some(class)) => class,
                (class, _) => class,
            };
            let text = |of: fn(&Place) -> Option<&Arc<str>>| place.as_deref().and_then(of).map(|s| &**s);
            let holder = holder(row.holder, threads);
            // What the waiter says itself is exact, and names the lock.
            let said = self.backends.lock(row);
            let of_said = said.as_ref().map(|(class, name)| self.waiters.of(&format!("{class}:{name}")));
            let [pattern, advice] = of_said.unwrap_or_else(|| {
                [text(|p| p.pattern.as_ref()), text(|p| p.advice.as_ref())].map(|t| t.map(Arc::from))
            });
            let name = said
                .map_or_else(|| user_address(&self.in_calls, symbols, row.tgid, row.futex), |(_, name)| name);
            // A part of a variable is no name that anybody knows; the lock that the pattern stands for has one.
            let site = (row.tgid, row.place);
            if words.len() > 1 {
                self.shared.insert(site, ());
            }
            let shared = row.woken.threads.count_ones() <= 1 || words.len() > 1;
            let shared = shared && self.shared.get(&site).is_some() && name.starts_with("0x");
            let name = match (&pattern, whole(&name)) {
                // Its first words may be others than the one that is slept in.
                (Some(pattern), Some(whole)) if pattern.starts_with("pthread ") => whole,
                (Some(pattern), _) if shared || name.contains("+0x") => pattern.to_string(),
                _ => name,
            };
            let shown: Arc<str> = name.as_str().into();
            for futex in words {
                named.insert((row.tgid, *futex), name.clone());
                self.names.insert((row.tgid, *futex), shown.clone());
            }
            user.push(user_locks::Row {
                lock: name.into(),
                ty: class.name().into(),
                process: process(row.tgid, row.futex).into(),
                pid: pid(row.tgid),
                caller: text(|p| p.caller.as_ref()).into(),
                holder: holder.into(),
                count: Some(row.count),
                counted: Some(row.counted()),
                error: Some(row.error()),
                wakes: Some(row.wakes),
                // A futex does not tell how long its waiter spun before.
                spin: None,
                block: Some(row.block as f64 / 1e9),
                max: Some(row.max as f64 / 1e3),
                stack: place.as_ref().map_or("", |p| &p.stack).into(),
                pattern: pattern.as_deref().into(),
                advice: advice.as_deref().into(),
                time: Some(t),
                queued: Some(row.woken.queued as f64 / 1e9),
                waking: Some(row.woken.waking as f64 / 1e9),
                threads: Some(row.woken.threads.count_ones().into()),
                futexes: Some(words.len() as u64),
            });
        }
        // The waiter whose walked wait was longest stands for all.
        let mut longest: HashMap<(u32, u64), &TracedLock> = HashMap::new();
        for row in new.traced.iter().filter(|r| r.stack.is_some()) {
            let have = longest.entry((row.tgid, row.lock)).or_insert(row);
            if row.spin + row.block > have.spin + have.block {
                *have = row;
            }
        }
        for row in new.traced.iter().filter(|r| r.stack.is_none()) {
            let scaled = Scaled::of(row, new.goroutines);
            let stack = longest.get(&(row.tgid, row.lock)).and_then(|r| self.user_stacks.get(&r.stack?));
            let frames = stack.map(|s| symbols.user(s.tgid, &s.user)).unwrap_or_default();
            let at = waiting_at(&frames);
            let name = user_address(&self.in_calls, symbols, row.tgid, row.lock);
            named.entry((row.tgid, row.lock)).or_insert_with(|| name.clone());
            let kind = row.kind.name();
            // Goroutines do not stand on run queues of CPUs.
            let woken = |ns: u64| (!row.kind.is_go()).then_some(ns as f64 / 1e9);
            let [pattern, advice] = self.waiters.named(kind.split(':').next().unwrap_or(kind));
            user.push(user_locks::Row {
                lock: name.into(),
                ty: kind.into(),
                process: process(row.tgid, row.lock).into(),
                pid: pid(row.tgid),
                caller: at.into(),
                holder: holder(row.holder, threads).into(),
                count: Some(scaled.count),
                counted: Some(row.count),
                error: Some(scaled.error),
                wakes: Some(scaled.wakes),
                spin: Some(row.spin as f64 / 1e9),
                block: Some(scaled.block),
                max: Some(row.max as f64 / 1e3),
                stack: joined(&frames).into(),
                pattern: pattern.as_deref().into(),
                advice: advice.as_deref().into(),
                time: Some(t),
                queued: woken(row.woken.queued),
                waking: woken(row.woken.waking),
                threads: (!row.kind.is_go()).then(|| row.woken.threads.count_ones().into()),
                futexes: None,
            });
        }
        for row in &new.off_cpu {
            let (folded, process, thread, binaries) = match self.off_stacks.get(&row.stack).cloned() {
                None if row.stack == OTHERS => (bounds::OTHERS_NAME.into(), None, None, String::new()),
                None => continue,
                Some(stack) => {
                    let kernel = symbols.kernel(&stack.kernel);
                    let user = symbols.user(stack.tgid, &stack.user);
                    let folded = fold(&stack.comm, &user, without_probe(&kernel));
                    let process = name_of(stack.tgid).unwrap_or(&stack.comm).to_owned();
                    let binaries = symbols.binaries(stack.tgid, &stack.user, user.len());
                    (folded, Some(process), Some(stack.comm), binaries)
                }
            };
            let why = row.wait.name();
            stacks.push(stacks::Row {
                kind: Some(StackKind::OffCpu),
                stack: format!("{why};{folded}").into(),
                seconds: Some(row.time as f64 / 1e9),
                samples: Some(row.count),
                time: Some(t),
                process: process.into(),
                thread: thread.into(),
                wait: why.into(),
                binaries: Some(binaries).filter(|files| !files.is_empty()).into(),
                at: None,
                class: None,
                lock: None::<&str>.into(),
            });
        }
        let mut sleepers = sleepers::Rows::new();
        for row in &new.sleeps {
            // The idle threads, whose number that is too, do not sleep in calls.
            let process = if row.tgid == 0 { bounds::OTHERS_NAME } else { process(row.tgid, 0) };
            sleepers.push(sleepers::Row {
                call: call_name(row.call).into(),
                process: process.into(),
                pid: pid(row.tgid),
                count: Some(row.count),
                asked: Some(row.asked as f64 / 1e9),
                slept: Some(row.slept as f64 / 1e9),
                threads: Some(row.threads),
                time: Some(t),
            });
        }
        let (mut first, mut others) = (first_waits::Rows::new(), 0);
        for waits in &new.first {
            // Locks that were summed up with others are not told apart here either.
            let Some(name) = named.get(&(waits.tgid, waits.lock)).filter(|_| waits.lock != OTHERS) else {
                others += waits.count;
                continue;
            };
            let ty = match waits.kind {
                FirstOf::Kernel(flags) => type_of(flags),
                FirstOf::Futex => FutexClass::Lock.name(),
                FirstOf::Traced(kind) => kind.name(),
            };
            first.push(first_waits::Row {
                lock: name.into(),
                ty: ty.into(),
                pid: (waits.tgid != 0).then(|| waits.tgid.into()),
                ahead: Some(waits.ahead.into()),
                from: Some(waits.from as f64 / 1e3),
                to: Some(waits.to as f64 / 1e3),
                count: Some(waits.count),
                time: Some(t),
            });
        }
        if others > 0 {
            first.push(first_waits::Row {
                lock: bounds::OTHERS_NAME.into(),
                count: Some(others),
                time: Some(t),
                ..Default::default()
            });
        }
        [locks.finish(), callers.finish(), user.finish(), stacks.finish(), sleepers.finish(), first.finish()]
    }
}

/// The variable at whose beginning an address lies, within the size of the C library's locks.
fn whole(name: &str) -> Option<String> {
    const LOCK: u64 = 64;
    let (variable, rest) = name.split_once("+0x")?;
    let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
    let offset = u64::from_str_radix(&rest[..digits], 16).ok()?;
    (offset < LOCK).then(|| format!("{variable}{}", &rest[digits..]))
}

/// What a user lock is called by its address, or by what stands for one.
fn user_address(in_calls: &Recent<u64, String>, symbols: &mut Symbols, tgid: u32, lock: u64) -> String {
    match lock {
        OTHERS => bounds::OTHERS_NAME.into(),
        lock if lock >= KERNEL_HALF => {
            in_calls.peek(&lock).cloned().unwrap_or_else(|| "[unknown file]".into())
        }
        0 => "[unknown]".into(),
        // A call that stands for a futex.
        lock if lock <= MAX_CALL => call_name(lock as u32 - 1),
        lock => symbols.data(tgid, lock).unwrap_or_else(|| format!("{lock:#x}")),
    }
}

/// The figures of a lock that tells of its waits.
struct Scaled {
    count: u64,
    error: f64,
    wakes: u64,
    block: f64,
}

impl Scaled {
    /// Of goroutines, waits that a window's end has cut short are counted as wakes: their time until then is in the row's, and
    /// their mean length is that of all, as of waits whose end does not depend on how long they have lasted.
    fn of(row: &TracedLock, goroutines: Coverage) -> Scaled {
        let go = row.kind.is_go();
        if !go || !goroutines.scaled() {
            let wakes = if go { 0 } else { row.wakes };
            return Scaled { count: row.count, error: 0.0, wakes, block: row.block as f64 / 1e9 };
        }
        let begun = row.count + row.wakes;
        let block = row.block as f64 * begun as f64 / row.count.max(1) as f64;
        Scaled {
            count: goroutines.of(begun),
            error: goroutines.error(begun),
            wakes: 0,
            block: block * goroutines.scale / 1e9,
        }
    }
}

/// The thread that most of the waiting is blamed on.
fn holder(tid: u32, threads: &Names) -> Option<String> {
    (tid != 0).then(|| match threads.of(tid) {
        Some(name) => format!("{name}/{tid}"),
        None => tid.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::UserLock;

    fn frames(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|n| Arc::from(*n)).collect()
    }

    #[test]
    fn the_caller_is_behind_probe_and_lock_functions() {
        let stack = frames(&[
            "bpf_prog_1234_contention_begin",
            "bpf_trace_run2",
            "__traceiter_contention_begin",
            "native_queued_spin_lock_slowpath",
            "_raw_spin_lock",
            "close_fd",
            "__x64_sys_close",
        ]);
        assert_eq!(caller(&stack), "close_fd");
        assert_eq!(
            caller(&frames(&["__traceiter_contention_begin", "__mutex_lock", "pipe_write"])),
            "pipe_write"
        );
        assert_eq!(caller(&frames(&["down_read", "down_write_killable"])), "[unknown]");
        assert_eq!(caller(&frames(&["download_thing"])), "download_thing");
    }

    #[test]
    fn waits_of_goroutines_are_scaled_to_all_of_the_time() {
        // Of 40 waits 30 ended in the windows, a tenth of the time; those lasted 3 ms.
        let row = TracedLock {
            kind: UserLock::GoMutex,
            count: 30,
            wakes: 10,
            block: 3_000_000,
            ..TracedLock::default()
        };
        let all = Scaled::of(&row, Coverage::ALL);
        assert_eq!((all.count, all.wakes, all.block, all.error), (30, 0, 0.003, 0.0));
        let some = Scaled::of(&row, Coverage { scale: 10.0, spread: Some(0.1) });
        assert_eq!((some.count, some.wakes), (400, 0));
        assert!((some.block - 0.04).abs() < 1e-9, "each of 400 lasted 0.1 ms: {}", some.block);
        assert!(some.error > 40.0, "{}", some.error);
        // libncpu's are never scaled: their wakes are wakes.
        let own = TracedLock { kind: UserLock::Mutex, ..row };
        let own = Scaled::of(&own, Coverage { scale: 10.0, spread: None });
        assert_eq!((own.count, own.wakes), (30, 10));
    }

    #[test]
    fn types_from_flags() {
        assert_eq!(type_of(1), "spinlock");
        assert_eq!(type_of(MUTEX | 1), "mutex");
        assert_eq!(type_of(READ), "rwsem:R");
        assert_eq!(type_of(1 | WRITE), "rwlock:W");
    }
}
