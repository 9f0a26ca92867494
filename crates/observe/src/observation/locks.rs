//! Locks with names: what the lock table's addresses and stacks mean.

use std::collections::HashMap;
use std::sync::Arc;

use ncpu_table::Table;

use super::samples::{Symbols, clean, fold, without_probe};
use super::tables;
use crate::engine::{LockRow, Locks, Stack, USER_LOCK};
use crate::symbols::{LockNamer, UserWait, futex_wait_class, user_wait_class};

/// `LCB_F_*` of include/trace/events/lock.h.
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
        f if f & 1 != 0 && f & READ != 0 => "rwlock:R",
        f if f & 1 != 0 && f & WRITE != 0 => "rwlock:W",
        f if f & READ != 0 => "rwsem:R",
        f if f & WRITE != 0 => "rwsem:W",
        _ => "spinlock",
    }
}

/// Functions of the locks themselves: the caller is the first that is none of them.
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
const SEMAPHORE: u32 = 2;
const FUTEX_CLASS: [&str; 4] = ["unknown", "lock", "semaphore", "condition"];

/// Keeps what came before, so that each call tells what is new.
pub(super) struct LockTables {
    /// Opened when the first lock is seen: it costs 25 ms.
    namer: Option<LockNamer>,
    before: HashMap<(u64, u64, u32, u32), LockRow>,
    stacks: HashMap<u64, Stack>,
    waiters: HashMap<(u32, u64), (Stack, u32)>,
    off_stacks: HashMap<u64, Stack>,
    user_stacks: HashMap<u64, Stack>,
}

/// Stacks kept; past this new ones are told as `[unknown]`.
const MAX_STACKS: usize = 100_000;

impl LockTables {
    pub fn new() -> LockTables {
        LockTables {
            namer: None,
            before: HashMap::new(),
            stacks: HashMap::new(),
            waiters: HashMap::new(),
            off_stacks: HashMap::new(),
            user_stacks: HashMap::new(),
        }
    }

    /// What keeps locks from having names, a line each.
    pub fn notes(&self) -> &[String] {
        self.namer.as_ref().map_or(&[], LockNamer::notes)
    }

    pub fn lock_stack(&mut self, id: u64, stack: Stack) {
        if self.stacks.len() < MAX_STACKS {
            self.stacks.insert(id, stack);
        }
    }

    pub fn user_lock_stack(&mut self, id: u64, stack: Stack) {
        if self.user_stacks.len() < MAX_STACKS {
            self.user_stacks.insert(id, stack);
        }
    }

    pub fn off_stack(&mut self, id: u64, stack: Stack) {
        if self.off_stacks.len() < MAX_STACKS {
            self.off_stacks.insert(id, stack);
        }
    }

    /// A waiter's stack tells what its futex is; the verdict (1 lock, 2 semaphore, 3 condition) goes
    /// back to the kernel side.
    pub fn judge(
        &mut self,
        symbols: &mut Symbols,
        address: u64,
        word: u32,
        value: u32,
        stack: Stack,
    ) -> Option<u32> {
        let frames = symbols.user(stack.tgid, &stack.user);
        let names: Vec<&str> = frames.iter().map(|f| &**f).collect();
        // The operation and FUTEX_PRIVATE_FLAG, as the call had them.
        let op = (word & 0x7f) | ((word >> 8) & 1) << 7;
        let guess = word >> 16;
        let told = match guess {
            0 => futex_wait_class(op, value, &names),
            _ => user_wait_class(&names),
        };
        // glibc waits for semaphores and conditions in one function; the kernel side has told a
        // process-shared semaphore by its value.
        let semaphore = guess == SEMAPHORE && !names.iter().any(|n| n.contains("cond"));
        let verdict = match told {
            UserWait::Lock => Some(1),
            UserWait::Semaphore => Some(SEMAPHORE),
            UserWait::Condition if semaphore => None,
            UserWait::Condition | UserWait::Join | UserWait::Barrier => Some(3),
            UserWait::Unknown => None,
        };
        let class = verdict.unwrap_or(guess);
        if self.waiters.len() < MAX_STACKS {
            self.waiters.insert((stack.tgid, address), (stack, class));
        }
        verdict
    }

    fn delta(&mut self, row: &LockRow, kind: u32) -> Option<LockRow> {
        let before =
            self.before.insert((row.lock, row.stack, row.tgid, kind), row.clone()).unwrap_or_default();
        let mut new = row.clone();
        new.count = row.count.saturating_sub(before.count);
        // An estimate where not all waits are timed, so it may step back a little.
        new.spin = row.spin.saturating_sub(before.spin);
        new.block = row.block.saturating_sub(before.block);
        new.wakes = row.wakes.saturating_sub(before.wakes);
        (new.count > 0).then_some(new)
    }

    /// Tables `locks`, `lock_callers`, `user_locks`, the off-CPU and spin rows of `stacks`, and `sleepers`.
    pub fn tables(
        &mut self,
        now: &Locks,
        symbols: &mut Symbols,
        process: &HashMap<u32, String>,
        threads: &HashMap<u32, String>,
    ) -> [Table; 5] {
        let unknown = String::from("[gone]");
        let process = |tgid: u32| process.get(&tgid).unwrap_or(&unknown);
        let mut addresses: Vec<u64> = now.kernel.iter().map(|r| r.lock).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if !addresses.is_empty() {
            self.namer.get_or_insert_with(|| LockNamer::open(symbols.kernel_symbols())).resolve(&addresses);
        }

        let mut locks = tables::locks();
        let mut callers = tables::lock_callers();
        let mut user = tables::user_locks();
        let mut stacks = tables::stacks();
        // An unnamed lock is known by who asks for it.
        let mut asked_by: HashMap<u64, String> = HashMap::new();
        for row in now.kernel.iter().filter(|r| r.stack != 0) {
            if let Some(stack) = self.stacks.get(&row.stack) {
                let frames = symbols.kernel(&stack.kernel);
                asked_by.entry(row.lock).or_insert_with(|| caller(&frames).to_string());
            }
        }
        for row in &now.kernel {
            let Some(new) = self.delta(row, row.flags) else { continue };
            let by = asked_by.get(&row.lock).map_or("", String::as_str);
            let name =
                self.namer.as_ref().and_then(|n| n.name_for(row.lock, by)).unwrap_or_else(|| match by {
                    "" => format!("{:#x}", row.lock),
                    _ => format!("lock in {by}"),
                });
            let (spin, block) = (new.spin as f64 / 1e9, new.block as f64 / 1e9);
            if row.stack == 0 {
                let cells = locks.row().text(name).text(type_of(row.flags)).text(process(row.tgid));
                cells.int(new.count).float(spin).float(block).float(row.max as f64 / 1e3);
                continue;
            }
            let frames = self.stacks.get(&row.stack).map(|s| symbols.kernel(&s.kernel)).unwrap_or_default();
            let path = without_probe(&frames).join(";");
            let cells = callers.row().text(name).text(type_of(row.flags)).text(process(row.tgid));
            cells.text(caller(&frames)).text(path).int(new.count).float(spin).float(block);
        }
        for row in &now.user {
            let Some(new) = self.delta(row, 1 << 31) else { continue };
            let waiter = self.waiters.get(&(row.tgid, row.lock));
            let class = waiter.map_or(row.futex >> 16, |(_, class)| *class);
            let frames = waiter.map(|(s, _)| symbols.user(s.tgid, &s.user)).unwrap_or_default();
            let at = waiting_at(&frames);
            let holder = holder(row, threads);
            let name = symbols.data(row.tgid, row.lock).unwrap_or_else(|| format!("{:#x}", row.lock));
            let cells = user.row().text(name).text(FUTEX_CLASS[class.min(3) as usize]);
            let cells = cells.text(process(row.tgid)).int(row.tgid.into()).text_opt(at).text_opt(holder);
            // What it spun for before it slept, nobody tells.
            let cells = cells.int(new.count).int(new.wakes).float_opt(None).float(new.block as f64 / 1e9);
            cells.float(row.max as f64 / 1e3).text(joined(&frames));
        }
        // Whoever waited longest where it was looked stands for all.
        let mut longest: HashMap<(u32, u64), &LockRow> = HashMap::new();
        for row in now.traced.iter().filter(|r| r.stack != 0) {
            let have = longest.entry((row.tgid, row.lock)).or_insert(row);
            if row.spin + row.block > have.spin + have.block {
                *have = row;
            }
        }
        for row in now.traced.iter().filter(|r| r.stack == 0) {
            let Some(new) = self.delta(row, 1 << 28 | row.flags) else { continue };
            let stack = longest.get(&(row.tgid, row.lock)).and_then(|r| self.user_stacks.get(&r.stack));
            let frames = stack.map(|s| symbols.user(s.tgid, &s.user)).unwrap_or_default();
            let at = waiting_at(&frames);
            let name = symbols.data(row.tgid, row.lock).unwrap_or_else(|| format!("{:#x}", row.lock));
            let kind = USER_LOCK.get(row.flags as usize).copied().unwrap_or("");
            let cells = user.row().text(name).text(kind).text(process(row.tgid)).int(row.tgid.into());
            let cells = cells.text_opt(at).text_opt(holder(row, threads)).int(new.count).int(new.wakes);
            let cells = cells.float_opt(Some(new.spin as f64 / 1e9)).float(new.block as f64 / 1e9);
            cells.float(row.max as f64 / 1e3).text(joined(&frames));
        }
        for row in &now.off_cpu {
            let Some(new) = self.delta(row, 1 << 30 | row.flags) else { continue };
            let Some(stack) = self.off_stacks.get(&row.stack).cloned() else { continue };
            let kernel = symbols.kernel(&stack.kernel);
            let folded = fold(&stack.comm, &symbols.user(stack.tgid, &stack.user), without_probe(&kernel));
            let why = crate::engine::WAIT.get(row.flags as usize).copied().unwrap_or("");
            stacks
                .row()
                .text("off-cpu")
                .text(format!("{why};{folded}"))
                .float(new.block as f64 / 1e9)
                .int(new.count);
        }
        let mut sleepers = tables::sleepers();
        for row in &now.sleeps {
            let Some(new) = self.delta(row, 1 << 29) else { continue };
            sleepers
                .row()
                .text(super::call_name(row.lock as u32))
                .text(process(row.tgid))
                .int(row.tgid.into())
                .int(new.count)
                .float(new.spin as f64 / 1e9)
                .float(new.block as f64 / 1e9)
                .int(new.wakes);
        }
        [locks.finish(), callers.finish(), user.finish(), stacks.finish(), sleepers.finish()]
    }
}

/// Where a thread waits. Callers are lost where a library keeps no frame pointers: then the wait itself is named.
fn waiting_at(frames: &[Arc<str>]) -> Option<&Arc<str>> {
    let named = || frames.iter().filter(|f| !f.starts_with("[unknown"));
    named().find(|f| !is_wait_function(f)).or_else(|| named().next())
}

fn joined(frames: &[Arc<str>]) -> String {
    frames.iter().map(|f| clean(f)).collect::<Vec<_>>().join(";")
}

/// The thread that most of the waiting is blamed on.
fn holder(row: &LockRow, threads: &HashMap<u32, String>) -> Option<String> {
    (row.holder != 0).then(|| match threads.get(&row.holder) {
        Some(name) => format!("{name}/{}", row.holder),
        None => row.holder.to_string(),
    })
}

/// Frames of the wait itself: who asked is above them.
fn is_wait_function(name: &str) -> bool {
    // libncpu's own, in Rust and C.
    if name.starts_with("ncpu::") || name.contains("<ncpu::") || name.starts_with("ncpu_") {
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
        let wait = ["ncpu::probe::mutex_slow", "ncpu::raw_mutex::RawMutex::lock_slow", "ncpu_mutex_lock"];
        assert_eq!(at(&[&wait[..], &["take_it", "worker"]].concat()), Some("take_it".into()));
        assert_eq!(at(&["<ncpu::mutex::Mutex<T>>::lock", "app::work"]), Some("app::work".into()));
        assert_eq!(
            at(&["ncpu::probe::mutex_slow", "[unknown libfoo.so]"]),
            Some("ncpu::probe::mutex_slow".into())
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
