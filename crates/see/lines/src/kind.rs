//! The purpose of a word, from its type's name, else guessed from its own name.

use ncpu_btf::LOCK_TYPES;

/// The purpose of a writable word, the hottest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A lock, semaphore or condition: each use writes it.
    Lock,
    /// An atomic or reference count: several CPUs write it, otherwise it would not be atomic.
    Atomic,
    /// An integer whose name means that it counts.
    Counter,
    /// Anything else.
    Data,
    /// A constant, a function pointer, a table of operations: set once, then read.
    ReadMostly,
}

impl Kind {
    /// The word that tables and views show.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::Atomic => "atomic",
            Kind::Counter => "counter",
            Kind::Data => "data",
            Kind::ReadMostly => "read-mostly",
        }
    }

    /// Whether several CPUs write it by design.
    pub fn is_hot(self) -> bool {
        matches!(self, Kind::Lock | Kind::Atomic)
    }
}

/// Lock types, without `struct` or a namespace: POSIX, C11, C++, Rust, Linux, BSD and Solaris kernels, GLib,
/// libuv, APR, PostgreSQL, Abseil, Qt, TBB.
const LOCKS: &[&str] = &[
    "pthread_mutex_t",
    "pthread_rwlock_t",
    "pthread_spinlock_t",
    "pthread_cond_t",
    "pthread_barrier_t",
    // The parts of those locks in glibc: nobody separates the words of a lock.
    "__pthread_mutex_s",
    "__pthread_rwlock_arch_t",
    "__pthread_cond_s",
    "sem_t",
    "mtx_t",
    "cnd_t",
    "_IO_lock_t",
    "__libc_lock_t",
    "__libc_lock_recursive_t",
    "__rtld_lock_recursive_t",
    // C++
    "mutex",
    "timed_mutex",
    "recursive_mutex",
    "recursive_timed_mutex",
    "shared_mutex",
    "shared_timed_mutex",
    "condition_variable",
    "condition_variable_any",
    "spin_mutex",
    "spin_rw_mutex",
    "queuing_mutex",
    "Mutex",
    "CondVar",
    "QMutex",
    "QBasicMutex",
    "QReadWriteLock",
    // Rust: the types without data of their own, since a generic wrapper has the same word
    "RwLock",
    "Condvar",
    "ReentrantLock",
    "RawMutex",
    "RawRwLock",
    "RawFairMutex",
    // Go
    "sync.Mutex",
    "sync.RWMutex",
    "sync.WaitGroup",
    "sync.Cond",
    "internal/sync.Mutex",
    "runtime.mutex",
    "runtime.rwmutex",
    // Linux, in addition to ncpu_btf::LOCK_TYPES
    "seqlock_t",
    "lockref",
    "wait_queue_head",
    "wait_queue_head_t",
    "swait_queue_head",
    "completion",
    "percpu_counter",
    "bpf_spin_lock",
    "local_lock_t",
    // BSD and Solaris kernels
    "kmutex_t",
    "krwlock_t",
    "kcondvar_t",
    "ksema_t",
    "mtx",
    "sx",
    "rwlock",
    "rmlock",
    "lwkt_token",
    "kmutex",
    "krwlock",
    // libraries and servers
    "GMutex",
    "GRecMutex",
    "GRWLock",
    "GCond",
    "uv_mutex_t",
    "uv_rwlock_t",
    "uv_sem_t",
    "apr_thread_mutex_t",
    "slock_t",
    "LWLock",
    "ngx_shmtx_t",
    "ck_spinlock_t",
    "SRWLOCK",
];

/// Types that are atomics or reference counts.
const ATOMICS: &[&str] = &[
    "atomic_t",
    "atomic64_t",
    "atomic_long_t",
    "refcount_t",
    "refcount_struct",
    "kref",
    "sig_atomic_t",
    "atomic_flag",
    "percpu_ref",
    "pg_atomic_uint32",
    "pg_atomic_uint64",
    "pg_atomic_flag",
    "gatomicrefcount",
    "grefcount",
    "AO_t",
    "QAtomicInt",
    "QBasicAtomicInt",
    "Atomic32",
    "Atomic64",
    "ngx_atomic_t",
    "_Py_atomic_int",
];

/// The types with an `atomic_` variant in stdatomic.h.
const C11_ATOMICS: &[&str] = &[
    "bool",
    "char",
    "schar",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "llong",
    "ullong",
    "size_t",
    "ptrdiff_t",
    "intptr_t",
    "uintptr_t",
    "intmax_t",
    "uintmax_t",
    "wchar_t",
];

/// Generic types that are atomics, by the word before `<`.
const ATOMIC_TEMPLATES: &[&str] = &[
    "atomic",
    "__atomic_base",
    "__atomic_float",
    "atomic_ref",
    "Atomic",
    "QAtomicInteger",
    "QAtomicPointer",
];

/// The kind from the name of a type: a lock, an atomic, mostly read, or `None` for any other. `extra` lists
/// further lock types.
pub fn of_type(name: &str, extra: &[String]) -> Option<Kind> {
    let (plain, generic) = match name.split_once('<') {
        Some((plain, _)) => (plain, true),
        None => (name, false),
    };
    let last = plain.rsplit("::").next().unwrap_or(plain);
    let go = ["sync/atomic.", "internal/runtime/atomic.", "runtime/internal/atomic."];
    if go.iter().any(|package| name.starts_with(package)) {
        return Some(Kind::Atomic);
    }
    if extra.iter().any(|e| e == name || e == plain || e == last) {
        return Some(Kind::Lock);
    }
    if generic {
        return ATOMIC_TEMPLATES.contains(&last).then_some(Kind::Atomic);
    }
    if LOCKS.contains(&last) || LOCK_TYPES.contains(&last) {
        return Some(Kind::Lock);
    }
    let rust = ["AtomicBool", "AtomicPtr"].contains(&last)
        || ["AtomicUsize", "AtomicIsize"].contains(&last)
        || last.strip_prefix("AtomicU").or(last.strip_prefix("AtomicI")).is_some_and(is_number);
    // The typedefs of C11's stdatomic.h: before DWARF 5, the named type is not marked as atomic.
    let c11 = last
        .strip_prefix("atomic_")
        .is_some_and(|of| C11_ATOMICS.contains(&of) || of.starts_with("int_") || of.starts_with("uint_"));
    if ATOMICS.contains(&last) || rust || c11 {
        return Some(Kind::Atomic);
    }
    let ops = ["_ops", "_operations", "_vtbl", "_vtable", "_funcs"].iter().any(|end| last.ends_with(end));
    // Written during initialisation, then only read.
    let once = ["Once", "pthread_once_t", "once_flag", "static_key", "static_key_true", "static_key_false"]
        .contains(&last);
    (ops || once).then_some(Kind::ReadMostly)
}

fn is_number(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())
}

/// Parts of names that mean "lock".
const LOCK_WORDS: &[&str] =
    &["lock", "mutex", "mtx", "lck", "spinlock", "rwlock", "rwsem", "semaphore", "latch", "futex"];

/// Words that end in "lock" but are not locks.
const NO_LOCKS: &[&str] = &["clock", "block", "flock", "unblock", "unlock", "superblock", "datablock"];

const COUNTER_WORDS: &[&str] = &[
    "count",
    "counts",
    "counter",
    "counters",
    "cnt",
    "cnts",
    "ctr",
    "nr",
    "num",
    "total",
    "totals",
    "stat",
    "stats",
    "hits",
    "misses",
    "hit",
    "miss",
    "refs",
    "refcnt",
    "refcount",
    "usage",
    "requests",
    "reqs",
    "packets",
    "pkts",
    "bytes",
    "errors",
    "errs",
    "drops",
    "dropped",
    "ticks",
    "events",
    "calls",
    "allocs",
    "frees",
    "ops",
    "seq",
    "seqno",
    "generation",
    "inflight",
    "pending",
    "active",
    "done",
    "sent",
    "received",
    "reads",
    "writes",
    "faults",
    "wakeups",
    "switches",
];

/// The kind from the name of a variable or member whose type does not decide it: a lock, a counter, or data.
/// Only an integer of up to 8 bytes can be a counter.
pub fn of_name(name: &str, integer: bool, lock: bool) -> Kind {
    let words = words(name);
    let is_lock = |w: &String| {
        !NO_LOCKS.iter().any(|no| w.ends_with(no))
            && (LOCK_WORDS.contains(&w.as_str()) || w.ends_with("lock") || w.ends_with("mutex"))
    };
    // `lock_timeout` and `nlocks` are about locks. In the name of a lock the word is the last one.
    let numbered = words.iter().rev().find(|w| !is_number(w));
    if lock && numbered.is_some_and(is_lock) {
        return Kind::Lock;
    }
    let counts = words.iter().any(|w| COUNTER_WORDS.contains(&w.as_str()));
    if integer && (counts || words.first().is_some_and(|w| w == "n" && words.len() > 1)) {
        return Kind::Counter;
    }
    Kind::Data
}

/// The words of `page_lock`, `pageLock` and `PAGE_LOCK2`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars().take(256) {
        let breaks = !c.is_alphanumeric()
            || (c.is_uppercase() && before.is_lowercase())
            || (c.is_ascii_digit() != before.is_ascii_digit());
        if breaks && words.last().is_some_and(|w| !w.is_empty()) {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|w| !w.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_many_languages_are_known() {
        for (name, kind) in [
            ("pthread_mutex_t", Some(Kind::Lock)),
            ("std::mutex", Some(Kind::Lock)),
            ("std::sys::sync::mutex::futex::Mutex", Some(Kind::Lock)),
            ("std::sync::poison::mutex::Mutex<u64>", None),
            ("parking_lot::raw_mutex::RawMutex", Some(Kind::Lock)),
            ("std::atomic<long int>", Some(Kind::Atomic)),
            ("AtomicUsize", Some(Kind::Atomic)),
            ("core::sync::atomic::AtomicU64", Some(Kind::Atomic)),
            ("Atomic<usize>", Some(Kind::Atomic)),
            ("AtomicUnit", None),
            ("atomic_ulong", Some(Kind::Atomic)),
            ("atomic_notifier_head", None),
            ("raw_spinlock_t", Some(Kind::Lock)),
            ("refcount_t", Some(Kind::Atomic)),
            ("file_operations", Some(Kind::ReadMostly)),
            ("int", None),
            ("", None),
            ("<", None),
        ] {
            assert_eq!(of_type(name, &[]), kind, "{name}");
        }
        assert_eq!(of_type("my_ticket", &["my_ticket".into()]), Some(Kind::Lock));
        assert_eq!(of_type("ns::Ticket<int>", &["Ticket".into()]), Some(Kind::Lock));
    }

    #[test]
    fn names_say_what_types_do_not() {
        for (name, kind) in [
            ("uvm_fpageqlock", Kind::Lock),
            ("uvm_kernel_object", Kind::Data),
            ("clock", Kind::Data),
            ("super_block", Kind::Data),
            ("pageLock", Kind::Lock),
            ("lock2", Kind::Lock),
            ("lock_timeout", Kind::Data),
            ("nr_pages", Kind::Counter),
            ("n_users", Kind::Counter),
            ("requestCount", Kind::Counter),
            ("next", Kind::Data),
            ("", Kind::Data),
        ] {
            assert_eq!(of_name(name, true, true), kind, "{name}");
        }
        assert_eq!(of_name("nr_pages", false, true), Kind::Data, "a pointer does not count");
        assert_eq!(of_name("page_lock", true, false), Kind::Data, "its type is known not to be a lock");
    }
}
