//! The tables of locks and waits of one interval: rows of the engine with the names of what they are about.

use std::collections::HashMap;
use std::sync::Arc;

use ncpu_schema::{StackKind, first_waits, lock_callers, locks, sleepers, stacks, user_locks};
use ncpu_table::Table;

use super::super::bounds::{self, Names};
use super::super::waiters::Place;
use super::{LockTables, caller, type_of, user_address};
use crate::engine::{
    Coverage, FirstOf, FirstWaits, FutexClass, FutexWaits, KernelLock, Locks, OTHERS, OffCpu, Sleeps,
    TracedLock,
};
use crate::lock_names::LockNamer;
use crate::names::waits::{joined, waiting_at};
use crate::names::{Symbols, call_name, fold, without_probe};

/// Names of processes and threads for the rows of an interval, as of its end.
struct Interval<'a> {
    /// Its end, s.
    time: f64,
    symbols: &'a mut Symbols,
    processes: &'a Names,
    threads: &'a Names,
    /// Names of locks by process (0 is the kernel) and address.
    named: HashMap<(u32, u64), String>,
}

impl<'a> Interval<'a> {
    /// The process that waited for a lock.
    fn process(&self, tgid: u32, lock: u64) -> &'a str {
        match tgid {
            0 if lock == OTHERS => bounds::OTHERS_NAME,
            tgid => self.processes.of(tgid).unwrap_or("[gone]"),
        }
    }
}

fn pid(tgid: u32) -> Option<u64> {
    (tgid != 0).then(|| tgid.into())
}

impl LockTables {
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
        let named = HashMap::new();
        let mut interval = Interval { time: t, symbols, processes: process, threads, named };
        let [locks, callers] = self.kernel_rows(&mut interval, &new.kernel, new.coverage);
        let mut user = user_locks::Rows::new();
        self.futex_rows(&mut interval, new.futexes, &mut user);
        self.traced_rows(&mut interval, &new.traced, new.goroutines, &mut user);
        let stacks = self.off_cpu_rows(&mut interval, &new.off_cpu);
        let sleepers = sleep_rows(&interval, &new.sleeps);
        let first = first_rows(&interval, &new.first);
        [locks, callers, user.finish(), stacks, sleepers, first]
    }

    /// Tables `locks` and `lock_callers`.
    fn kernel_rows(
        &mut self,
        interval: &mut Interval,
        rows: &[KernelLock],
        coverage: Coverage,
    ) -> [Table; 2] {
        let mut addresses: Vec<u64> = rows.iter().map(|r| r.lock).filter(|&l| l != OTHERS).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if !addresses.is_empty() {
            let kernel = interval.symbols.kernel_symbols();
            self.namer.get_or_insert_with(|| LockNamer::open(kernel)).resolve(&addresses);
        }
        // An unnamed lock is known by its callers.
        for row in rows {
            if let Some(stack) = row.stack.and_then(|stack| self.stacks.get(&stack))
                && self.asked_by.get(&row.lock).is_none()
            {
                let frames = interval.symbols.kernel(&stack.kernel);
                self.asked_by.insert(row.lock, caller(&frames).to_string());
            }
        }
        let mut locks = locks::Rows::new();
        let mut callers = lock_callers::Rows::new();
        for row in rows {
            let name = match row.lock {
                OTHERS => bounds::OTHERS_NAME.into(),
                lock => {
                    // Keeps the caller of a lock while threads wait for it.
                    let _ = self.asked_by.get(&lock);
                    self.kernel_name(lock)
                }
            };
            let process = interval.process(row.tgid, row.lock);
            let scaled = |ns: u64| coverage.of(ns) as f64 / 1e9;
            let (spin, block) = (scaled(row.spin), scaled(row.block));
            let Some(stack) = row.stack else {
                interval.named.entry((0, row.lock)).or_insert_with(|| name.clone());
                locks.push(locks::Row {
                    lock: name.into(),
                    ty: type_of(row.flags).into(),
                    process: process.into(),
                    count: Some(coverage.of(row.count)),
                    spin: Some(spin),
                    block: Some(block),
                    max: Some(row.max as f64 / 1e3),
                    counted: Some(row.count),
                    error: Some(coverage.error(row.count)),
                    time: Some(interval.time),
                });
                continue;
            };
            let stack = self.stacks.get(&stack);
            let frames = stack.map(|s| interval.symbols.kernel(&s.kernel)).unwrap_or_default();
            let path = without_probe(&frames).join(";");
            callers.push(lock_callers::Row {
                lock: name.into(),
                ty: type_of(row.flags).into(),
                process: process.into(),
                caller: caller(&frames).into(),
                stack: path.into(),
                walked: Some(row.count),
                spin: Some(spin),
                block: Some(block),
                time: Some(interval.time),
            });
        }
        [locks.finish(), callers.finish()]
    }

    /// Adds futexes, and locks that system calls take, to table `user_locks`.
    fn futex_rows(&mut self, interval: &mut Interval, rows: Vec<FutexWaits>, user: &mut user_locks::Rows) {
        let mut futexes = self.gathered(rows);
        // A futex that is several things is named after what most was waited for there.
        futexes.sort_by_key(|(row, _)| row.block);
        for (row, words) in &futexes {
            let place = self.waiters.place(row);
            // Only the kernel side knows what is a lock by those who post it.
            let class = row.class.or(place.as_ref().map(|p| p.class));
            let text = |of: fn(&Place) -> Option<&Arc<str>>| place.as_deref().and_then(of).map(|s| &**s);
            // A wait event that the waiter itself publishes is exact, and names the lock.
            let said = self.backends.lock(row);
            let of_said = said.as_ref().map(|(class, name)| self.waiters.of(&format!("{class}:{name}")));
            let [pattern, advice] = of_said.unwrap_or_else(|| {
                [text(|p| p.pattern.as_ref()), text(|p| p.advice.as_ref())].map(|t| t.map(Arc::from))
            });
            let name = said.map_or_else(
                || user_address(&self.in_calls, interval.symbols, row.tgid, row.futex),
                |(_, name)| name,
            );
            // Users do not know the name of a part of a variable; the lock that the pattern stands for has a
            // known name.
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
                interval.named.insert((row.tgid, *futex), name.clone());
                self.names.insert((row.tgid, *futex), shown.clone());
            }
            user.push(user_locks::Row {
                lock: name.into(),
                ty: class.name().into(),
                process: interval.process(row.tgid, row.futex).into(),
                pid: pid(row.tgid),
                caller: text(|p| p.caller.as_ref()).into(),
                holder: holder(row.holder, interval.threads).into(),
                count: Some(row.count),
                counted: Some(row.counted()),
                error: Some(row.error()),
                wakes: Some(row.wakes),
                // A futex has no record of how long its waiter spun before.
                spin: None,
                block: Some(row.block as f64 / 1e9),
                max: Some(row.max as f64 / 1e3),
                stack: place.as_ref().map_or("", |p| &p.stack).into(),
                pattern: pattern.as_deref().into(),
                advice: advice.as_deref().into(),
                time: Some(interval.time),
                queued: Some(row.woken.queued as f64 / 1e9),
                waking: Some(row.woken.waking as f64 / 1e9),
                threads: Some(row.woken.threads.count_ones().into()),
                futexes: Some(words.len() as u64),
            });
        }
    }

    /// Adds locks with tracepoints of their own to table `user_locks`.
    fn traced_rows(
        &mut self,
        interval: &mut Interval,
        rows: &[TracedLock],
        goroutines: Coverage,
        user: &mut user_locks::Rows,
    ) {
        // The waiter with the longest walked wait stands for all.
        let mut longest: HashMap<(u32, u64), &TracedLock> = HashMap::new();
        for row in rows.iter().filter(|r| r.stack.is_some()) {
            let have = longest.entry((row.tgid, row.lock)).or_insert(row);
            if row.spin + row.block > have.spin + have.block {
                *have = row;
            }
        }
        for row in rows.iter().filter(|r| r.stack.is_none()) {
            let scaled = Scaled::of(row, goroutines);
            let stack = longest.get(&(row.tgid, row.lock)).and_then(|r| self.user_stacks.get(&r.stack?));
            let frames = stack.map(|s| interval.symbols.user(s.tgid, &s.user)).unwrap_or_default();
            let at = waiting_at(&frames);
            let name = user_address(&self.in_calls, interval.symbols, row.tgid, row.lock);
            interval.named.entry((row.tgid, row.lock)).or_insert_with(|| name.clone());
            let kind = row.kind.name();
            // Goroutines do not stand on run queues of CPUs.
            let woken = |ns: u64| (!row.kind.is_go()).then_some(ns as f64 / 1e9);
            let [pattern, advice] = self.waiters.named(kind.split(':').next().unwrap_or(kind));
            user.push(user_locks::Row {
                lock: name.into(),
                ty: kind.into(),
                process: interval.process(row.tgid, row.lock).into(),
                pid: pid(row.tgid),
                caller: at.into(),
                holder: holder(row.holder, interval.threads).into(),
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
                time: Some(interval.time),
                queued: woken(row.woken.queued),
                waking: woken(row.woken.waking),
                threads: (!row.kind.is_go()).then(|| row.woken.threads.count_ones().into()),
                futexes: None,
            });
        }
    }

    /// The off-CPU rows of table `stacks`.
    fn off_cpu_rows(&mut self, interval: &mut Interval, rows: &[OffCpu]) -> Table {
        let mut stacks = stacks::Rows::new();
        for row in rows {
            let (folded, process, thread, binaries) = match self.off_stacks.get(&row.stack).cloned() {
                None if row.stack == OTHERS => (bounds::OTHERS_NAME.into(), None, None, String::new()),
                None => continue,
                Some(stack) => {
                    let kernel = interval.symbols.kernel(&stack.kernel);
                    let user = interval.symbols.user(stack.tgid, &stack.user);
                    let folded = fold(&stack.comm, &user, without_probe(&kernel));
                    let process = interval.processes.of(stack.tgid).unwrap_or(&stack.comm).to_owned();
                    let binaries = interval.symbols.binaries(stack.tgid, &stack.user, user.len());
                    (folded, Some(process), Some(stack.comm), binaries)
                }
            };
            let why = row.wait.name();
            stacks.push(stacks::Row {
                kind: Some(StackKind::OffCpu),
                stack: format!("{why};{folded}").into(),
                seconds: Some(row.time as f64 / 1e9),
                samples: Some(row.count),
                time: Some(interval.time),
                process: process.into(),
                thread: thread.into(),
                wait: why.into(),
                binaries: Some(binaries).filter(|files| !files.is_empty()).into(),
                at: None,
                class: None,
                lock: None::<&str>.into(),
                waits: Some(row.waits),
            });
        }
        stacks.finish()
    }
}

/// Table `sleepers`.
fn sleep_rows(interval: &Interval, rows: &[Sleeps]) -> Table {
    let mut sleepers = sleepers::Rows::new();
    for row in rows {
        // The idle threads, which also have number 0, do not sleep in calls.
        let process = if row.tgid == 0 { bounds::OTHERS_NAME } else { interval.process(row.tgid, 0) };
        sleepers.push(sleepers::Row {
            call: call_name(row.call).into(),
            process: process.into(),
            pid: pid(row.tgid),
            count: Some(row.count),
            asked: Some(row.asked as f64 / 1e9),
            slept: Some(row.slept as f64 / 1e9),
            threads: Some(row.threads),
            time: Some(interval.time),
        });
    }
    sleepers.finish()
}

/// Table `first_waits`. Locks that were summed up together have one row here too.
fn first_rows(interval: &Interval, rows: &[FirstWaits]) -> Table {
    let (mut first, mut others) = (first_waits::Rows::new(), 0);
    for waits in rows {
        let named = interval.named.get(&(waits.tgid, waits.lock));
        let Some(name) = named.filter(|_| waits.lock != OTHERS) else {
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
            pid: pid(waits.tgid),
            ahead: Some(waits.ahead.into()),
            from: Some(waits.from as f64 / 1e3),
            to: Some(waits.to as f64 / 1e3),
            count: Some(waits.count),
            time: Some(interval.time),
        });
    }
    if others > 0 {
        first.push(first_waits::Row {
            lock: bounds::OTHERS_NAME.into(),
            count: Some(others),
            time: Some(interval.time),
            ..Default::default()
        });
    }
    first.finish()
}

/// The variable at whose beginning an address lies, within the size of the C library's locks.
fn whole(name: &str) -> Option<String> {
    const LOCK: u64 = 64;
    let (variable, rest) = name.split_once("+0x")?;
    let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
    let offset = u64::from_str_radix(&rest[..digits], 16).ok()?;
    (offset < LOCK).then(|| format!("{variable}{}", &rest[digits..]))
}

/// The figures of a lock with tracepoints of its own.
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
}
