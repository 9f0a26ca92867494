//! Locks with names: what the lock table's addresses and stacks mean.

mod rows;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use ncpu_symbols::{Copied, Patterns, Recent};

use super::backends::Backends;
use super::bounds;
use super::call_locks::{self, KERNEL_HALF};
use super::waiters::Waiters;
use crate::bpf_support::Stack;
use crate::engine::{Engine, FutexClass, FutexWaits, OTHERS, TimeRow, Verdict, Waits};
use crate::lock_names::LockNamer;
use crate::names::{Symbols, call_name, without_probe};

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

/// The name of a backend process of PostgreSQL.
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

/// The locks and waiters known so far.
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
    /// The keys that were forgotten since the kernel side was last updated.
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

/// Keys that user space has forgotten.
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

    /// Reasons why locks have no names, a line each.
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

    /// The class, name and caller of a futex that threads waited for.
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
        let class = row.class.or(place.as_ref().map(|p| p.class));
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
            row.class = row.class.or(self.waiters.place(&row).map(|p| p.class));
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

    /// The keys that were forgotten since the last call.
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

    /// A thread waits whose process may publish the reason of its waits.
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

    /// Judges a wait by the waiter's stack; the verdicts go back to the kernel side. `None` if there was no time.
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

    /// Verdicts on waits whose code had no names when they were judged, and has names now.
    pub fn judge_again(&mut self, symbols: &mut Symbols) -> Vec<Verdict> {
        self.waiters.judge_again(symbols, Instant::now())
    }
}

/// The name of a user lock by its address, or by the code that stands for an address.
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
    fn types_from_flags() {
        assert_eq!(type_of(1), "spinlock");
        assert_eq!(type_of(MUTEX | 1), "mutex");
        assert_eq!(type_of(READ), "rwsem:R");
        assert_eq!(type_of(1 | WRITE), "rwlock:W");
    }
}
