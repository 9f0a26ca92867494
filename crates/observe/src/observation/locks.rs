//! Locks with names: what the lock table's addresses and stacks mean.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_schema::{StackKind, lock_callers, locks, sleepers, stacks, user_locks};
use ncpu_symbols::{Recent, UserWait, user_wait_class};
use ncpu_table::Table;

use super::bounds::{self, Names};
use crate::bpf_support::Stack;
use crate::engine::{LockRow, Locks, OTHERS, USER_LOCK};
use crate::lock_names::LockNamer;
use crate::names::{Symbols, call_name, clean, fold, without_probe};

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

/// Name and kind of what a thread waits for in user space.
const UNKNOWN: u32 = 0;
const LOCK: u32 = 1;
const SEMAPHORE: u32 = 2;
const CONDITION: u32 = 3;
const FUTEX_CLASS: [&str; 5] = ["unknown", "lock", "semaphore", "condition", "semaphore"];

/// What is known of locks and waiters so far.
pub(super) struct LockTables {
    /// Opened when the first lock is seen: it costs 25 ms.
    namer: Option<LockNamer>,
    /// The function that asked for a lock first.
    asked_by: Recent<u64, String>,
    stacks: Recent<u64, Stack>,
    waiters: Recent<(u32, u64), (Stack, u32)>,
    off_stacks: Recent<u64, Stack>,
    user_stacks: Recent<u64, Stack>,
    /// What the kernel side must know since it was asked last.
    forgotten: Forgotten,
    /// The second at hand, and the stacks searched in it.
    second: Option<Instant>,
    searched: u32,
}

/// Stacks whose words are searched in a second.
const MAX_SEARCHES: u32 = 500;
/// Stacks, waiters and callers of a generation: some 300 bytes each.
const MAX_STACKS: usize = 1 << 12;

/// What was forgotten.
#[derive(Default)]
pub(super) struct Forgotten {
    /// Some stacks or waiters, which are to be sent again.
    pub some: bool,
    /// Futexes that were judged, by process and address.
    pub futexes: Vec<(u32, u64)>,
}

impl LockTables {
    pub fn new() -> LockTables {
        LockTables {
            namer: None,
            asked_by: Recent::new(MAX_STACKS),
            stacks: Recent::new(MAX_STACKS),
            waiters: Recent::new(MAX_STACKS),
            off_stacks: Recent::new(MAX_STACKS),
            user_stacks: Recent::new(MAX_STACKS),
            forgotten: Forgotten::default(),
            second: None,
            searched: 0,
        }
    }

    /// What keeps locks from having names, a line each.
    pub fn notes(&self) -> &[String] {
        self.namer.as_ref().map_or(&[], LockNamer::notes)
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

    /// What was forgotten since the last call.
    pub fn forgotten(&mut self) -> Forgotten {
        std::mem::take(&mut self.forgotten)
    }

    /// Whether the words of another stack may be searched: some 50 µs each, and a program may have futexes without
    /// number.
    fn may_search(&mut self) -> bool {
        let now = Instant::now();
        if self.second.is_none_or(|s| now.duration_since(s) >= Duration::from_secs(1)) {
            (self.second, self.searched) = (Some(now), 0);
        }
        self.searched += 1;
        self.searched <= MAX_SEARCHES
    }

    /// Whether a process's futex was judged to be a lock.
    pub fn is_lock(&self, tgid: u32, futex: u64) -> bool {
        self.waiters.peek(&(tgid, futex)).is_some_and(|(_, class)| *class == LOCK)
    }

    /// A waiter's stack tells what its futex is; the verdict (1 lock, 2 semaphore, 3 condition) goes back to the
    /// kernel side. Without a stack that tells, it stays unknown, but for operations that only locks use: the value
    /// of a barrier or a condition may be any, that of a mutex too.
    pub fn judge(&mut self, symbols: &mut Symbols, address: u64, word: u32, stack: Stack) -> Option<u32> {
        if self.waiters.get(&(stack.tgid, address)).is_some_and(|(_, class)| *class != UNKNOWN) {
            return None; // the kernel side had forgotten that it asked
        }
        let frames = symbols.user(stack.tgid, &stack.user);
        let names: Vec<&str> = frames.iter().map(|f| &**f).collect();
        let guess = word >> 16;
        let told = match user_wait_class(&names) {
            // The kernel side has put the words on its stack where kernel frames are: return addresses are among
            // them, and the first of a known function is the call that waits.
            UserWait::Unknown if self.may_search() => {
                let words: Vec<u64> = stack.kernel.iter().map(|w| w.saturating_sub(1)).collect();
                let words = symbols.user(stack.tgid, &words);
                let known: Vec<&str> =
                    words.iter().map(|f| &**f).filter(|f| !f.starts_with("[unknown")).collect();
                user_wait_class(&known)
            }
            told => told,
        };
        let verdict = match told {
            UserWait::Lock => Some(LOCK),
            UserWait::Semaphore => Some(SEMAPHORE),
            UserWait::Condition | UserWait::Join | UserWait::Barrier => Some(CONDITION),
            UserWait::Unknown => None,
        };
        let class = verdict.unwrap_or(guess);
        let stack = Stack { kernel: Vec::new(), ..stack };
        if let Some(gone) = self.waiters.insert((stack.tgid, address), (stack, class)) {
            self.forgotten.some = true;
            let judged = gone.into_iter().filter(|(_, (_, class))| *class != UNKNOWN);
            self.forgotten.futexes.extend(judged.map(|(key, _)| key));
        }
        verdict
    }

    /// Tables `locks`, `lock_callers`, `user_locks`, the off-CPU and spin rows of `stacks`, and `sleepers`.
    pub fn tables(
        &mut self,
        new: Locks,
        symbols: &mut Symbols,
        process: &Names,
        threads: &Names,
    ) -> [Table; 5] {
        let new = bounds::of(new, |row| {
            self.waiters.peek(&(row.tgid, row.lock)).map_or(row.futex >> 16, |(_, class)| *class)
        });
        let process = |row: &LockRow| match row.tgid {
            0 if row.lock == OTHERS => bounds::OTHERS_NAME,
            tgid => process.of(tgid).unwrap_or("[gone]"),
        };
        let mut addresses: Vec<u64> = new.kernel.iter().map(|r| r.lock).filter(|&l| l != OTHERS).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if !addresses.is_empty() {
            self.namer.get_or_insert_with(|| LockNamer::open(symbols.kernel_symbols())).resolve(&addresses);
        }

        let mut locks = locks::Rows::new();
        let mut callers = lock_callers::Rows::new();
        let mut user = user_locks::Rows::new();
        let mut stacks = stacks::Rows::new();
        // An unnamed lock is known by who asks for it.
        for row in new.kernel.iter().filter(|r| r.stack != 0) {
            if let Some(stack) = self.stacks.get(&row.stack)
                && self.asked_by.get(&row.lock).is_none()
            {
                let frames = symbols.kernel(&stack.kernel);
                self.asked_by.insert(row.lock, caller(&frames).to_string());
            }
        }
        for row in &new.kernel {
            let by = self.asked_by.get(&row.lock).map_or("", String::as_str);
            let named = match row.lock {
                OTHERS => Some(bounds::OTHERS_NAME.into()),
                lock => self.namer.as_ref().and_then(|n| n.name_for(lock, by)),
            };
            let name = named.unwrap_or_else(|| match by {
                "" => format!("{:#x}", row.lock),
                _ => format!("lock in {by}"),
            });
            let (spin, block) = (row.spin as f64 / 1e9, row.block as f64 / 1e9);
            if row.stack == 0 {
                locks.push(locks::Row {
                    lock: name.into(),
                    ty: type_of(row.flags).into(),
                    process: process(row).into(),
                    count: Some(row.count),
                    spin: Some(spin),
                    block: Some(block),
                    max: Some(row.max as f64 / 1e3),
                });
                continue;
            }
            let frames = self.stacks.get(&row.stack).map(|s| symbols.kernel(&s.kernel)).unwrap_or_default();
            let path = without_probe(&frames).join(";");
            callers.push(lock_callers::Row {
                lock: name.into(),
                ty: type_of(row.flags).into(),
                process: process(row).into(),
                caller: caller(&frames).into(),
                stack: path.into(),
                walked: Some(row.count),
                spin: Some(spin),
                block: Some(block),
            });
        }
        let address = |symbols: &mut Symbols, row: &LockRow| match row.lock {
            OTHERS => bounds::OTHERS_NAME.into(),
            lock => symbols.data(row.tgid, lock).unwrap_or_else(|| format!("{lock:#x}")),
        };
        let pid = |row: &LockRow| (row.tgid != 0).then(|| row.tgid.into());
        // The idle threads, whose number that is too, neither sleep in calls nor wait for futexes.
        let sleeper = |row: &LockRow| if row.tgid == 0 { bounds::OTHERS_NAME } else { process(row) };
        for row in &new.user {
            let waiter = self.waiters.get(&(row.tgid, row.lock));
            let class = waiter.map_or(row.futex >> 16, |(_, class)| *class);
            let frames = waiter.map(|(s, _)| symbols.user(s.tgid, &s.user)).unwrap_or_default();
            let at = waiting_at(&frames);
            let holder = holder(row, threads);
            let name = address(symbols, row);
            user.push(user_locks::Row {
                lock: name.into(),
                ty: FUTEX_CLASS[class.min(4) as usize].into(),
                process: process(row).into(),
                pid: pid(row),
                caller: at.into(),
                holder: holder.into(),
                count: Some(row.count),
                wakes: Some(row.wakes),
                // A futex does not tell how long its waiter spun before.
                spin: None,
                block: Some(row.block as f64 / 1e9),
                max: Some(row.max as f64 / 1e3),
                stack: joined(&frames).into(),
            });
        }
        // The waiter whose walked wait was longest stands for all.
        let mut longest: HashMap<(u32, u64), &LockRow> = HashMap::new();
        for row in new.traced.iter().filter(|r| r.stack != 0) {
            let have = longest.entry((row.tgid, row.lock)).or_insert(row);
            if row.spin + row.block > have.spin + have.block {
                *have = row;
            }
        }
        for row in new.traced.iter().filter(|r| r.stack == 0) {
            let stack = longest.get(&(row.tgid, row.lock)).and_then(|r| self.user_stacks.get(&r.stack));
            let frames = stack.map(|s| symbols.user(s.tgid, &s.user)).unwrap_or_default();
            let at = waiting_at(&frames);
            let name = address(symbols, row);
            let kind = USER_LOCK.get(row.flags as usize).copied().unwrap_or("");
            user.push(user_locks::Row {
                lock: name.into(),
                ty: kind.into(),
                process: process(row).into(),
                pid: pid(row),
                caller: at.into(),
                holder: holder(row, threads).into(),
                count: Some(row.count),
                wakes: Some(row.wakes),
                spin: Some(row.spin as f64 / 1e9),
                block: Some(row.block as f64 / 1e9),
                max: Some(row.max as f64 / 1e3),
                stack: joined(&frames).into(),
            });
        }
        for row in &new.off_cpu {
            let folded = match self.off_stacks.get(&row.stack).cloned() {
                None if row.stack == OTHERS => bounds::OTHERS_NAME.into(),
                None => continue,
                Some(stack) => {
                    let kernel = symbols.kernel(&stack.kernel);
                    fold(&stack.comm, &symbols.user(stack.tgid, &stack.user), without_probe(&kernel))
                }
            };
            let why = crate::engine::WAIT.get(row.flags as usize).copied().unwrap_or("");
            stacks.push(stacks::Row {
                kind: Some(StackKind::OffCpu),
                stack: format!("{why};{folded}").into(),
                seconds: Some(row.block as f64 / 1e9),
                samples: Some(row.count),
            });
        }
        let mut sleepers = sleepers::Rows::new();
        for row in &new.sleeps {
            sleepers.push(sleepers::Row {
                call: call_name(row.lock as u32).into(),
                process: sleeper(row).into(),
                pid: pid(row),
                count: Some(row.count),
                asked: Some(row.spin as f64 / 1e9),
                slept: Some(row.block as f64 / 1e9),
                threads: Some(row.wakes),
            });
        }
        [locks.finish(), callers.finish(), user.finish(), stacks.finish(), sleepers.finish()]
    }
}

/// Where a thread waits. Callers are lost where a library keeps no frame pointers: then the wait itself is named.
pub(crate) fn waiting_at(frames: &[Arc<str>]) -> Option<&Arc<str>> {
    let named = || frames.iter().filter(|f| !f.starts_with("[unknown"));
    named().find(|f| !is_wait_function(f)).or_else(|| named().next())
}

/// Frames as table columns have them.
pub(crate) fn joined(frames: &[Arc<str>]) -> String {
    frames.iter().map(|f| clean(f)).collect::<Vec<_>>().join(";")
}

/// The thread that most of the waiting is blamed on.
fn holder(row: &LockRow, threads: &Names) -> Option<String> {
    (row.holder != 0).then(|| match threads.of(row.holder) {
        Some(name) => format!("{name}/{}", row.holder),
        None => row.holder.to_string(),
    })
}

/// Frames of the wait itself: the caller is above them.
fn is_wait_function(name: &str) -> bool {
    // libncpu's own, in Rust and C.
    if name.starts_with("libncpu::") || name.contains("<libncpu::") || name.starts_with("ncpu_") {
        return true;
    }
    [
        "futex",
        "lll_lock",
        "pthread_mutex",
        "pthread_cond",
        "pthread_rwlock",
        "sem_wait",
        "new_sem",
        "lock_contended",
        "syscall",
    ]
    .iter()
    .any(|s| name.contains(s))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn who_waits_is_above_the_wait() {
        let at = |names: &[&str]| waiting_at(&frames(names)).map(|f| f.to_string());
        let wait = [
            "libncpu::locks::probe::mutex_slow",
            "libncpu::locks::raw_mutex::RawMutex::lock_slow",
            "ncpu_mutex_lock",
        ];
        assert_eq!(at(&[&wait[..], &["take_it", "worker"]].concat()), Some("take_it".into()));
        assert_eq!(at(&["<libncpu::locks::mutex::Mutex<T>>::lock", "app::work"]), Some("app::work".into()));
        assert_eq!(
            at(&["libncpu::probe::mutex_slow", "[unknown libfoo.so]"]),
            Some("libncpu::probe::mutex_slow".into())
        );
        assert_eq!(at(&["__lll_lock_wait", "pthread_mutex_lock@GLIBC", "f"]), Some("f".into()));
        assert_eq!(at(&["[unknown]"]), None);
    }

    #[test]
    fn types_from_flags() {
        assert_eq!(type_of(1), "spinlock");
        assert_eq!(type_of(MUTEX | 1), "mutex");
        assert_eq!(type_of(READ), "rwsem:R");
        assert_eq!(type_of(1 | WRITE), "rwlock:W");
    }
}
