//! The place at which a thread waits, from its stack.

use std::sync::Arc;

use ncpu_symbols::name_parts;

use super::{cut, cut_at, is_beginning, push_clean};

/// The function that waits, from frames leaf first. If no function of the program has a name, its file is
/// returned, never the first function of its threads. A library without frame pointers loses the callers;
/// then the wait function itself is returned.
pub fn waiting_at(frames: &[Arc<str>]) -> Option<&Arc<str>> {
    let named = || frames.iter().filter(|f| !f.starts_with("[unknown") && !is_beginning(f));
    let own = named().find(|f| !f.starts_with('[') && !is_wait_function(f));
    let file = || frames.iter().find(|f| f.starts_with("[unknown ") && !is_of_c_library(f));
    own.or_else(file).or_else(|| named().next())
}

/// Whether a frame without a name lies in the C library or in code mapped by the kernel.
fn is_of_c_library(frame: &str) -> bool {
    let file = frame.trim_start_matches("[unknown ");
    ["libc.so", "libc-", "libpthread", "ld-", "libc.musl", "[vdso]"]
        .iter()
        .any(|start| file.starts_with(start))
}

/// Frames in the format of table columns. Names of a stack that is too long are cut.
pub fn joined(frames: &[Arc<str>]) -> String {
    let most = cut_at(frames.iter().map(|name| name.len()));
    let mut out = String::with_capacity(32 * frames.len());
    for (i, frame) in frames.iter().enumerate() {
        if i > 0 {
            out.push(';');
        }
        push_clean(&mut out, cut(frame, most));
    }
    out
}

/// Classes of which all functions wait.
const WAITING_CLASSES: [&str; 9] = [
    "ObjectMonitor",
    "ObjectSynchronizer",
    "LightweightSynchronizer",
    "PlatformEvent",
    "PlatformMonitor",
    "Parker",
    "LockSupport",
    "AbstractQueuedSynchronizer",
    "AbstractQueuedLongSynchronizer",
];

/// Frames of the wait itself: the caller is above them. Names are compared whole, or by the prefix common to
/// a library's functions.
pub fn is_wait_function(name: &str) -> bool {
    let parts = name_parts(name);
    let Some((&last, before)) = parts.split_last() else { return false };
    let Some(&class) = before.last() else { return is_c_wait(last) };
    let outer = class.split('$').next().unwrap_or(class);
    // libncpu's own, in Rust.
    parts[0] == "libncpu"
        || WAITING_CLASSES.contains(&outer)
        || matches!(
            (class, last),
            ("futex", "futex_wait")
                | (
                    "sync",
                    "runtime_SemacquireMutex" | "runtime_SemacquireRWMutex" | "runtime_SemacquireRWMutexR"
                )
                | ("Unsafe", "park")
                | ("Object", "wait" | "wait0")
                | ("Mutex", "lock_contended" | "lockSlow")
                | ("RwLock", "read_contended" | "write_contended")
                | ("runtime", "futex" | "futexsleep")
        )
        || before.ends_with(&["sync", class]) && matches!(class, "Mutex" | "RWMutex")
}

/// C functions that wait, including libncpu's.
fn is_c_wait(name: &str) -> bool {
    const LIBRARIES: [&str; 4] = ["pthread_mutex_", "pthread_cond_", "pthread_rwlock_", "ncpu_"];
    let name = name.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    LIBRARIES.iter().any(|library| name.starts_with(library))
        || matches!(
            name,
            "syscall"
                | "futex"
                | "futex_wait"
                | "do_futex_wait"
                | "futex_abstimed_wait"
                | "futex_abstimed_wait64"
                | "futex_abstimed_wait_common"
                | "futex_abstimed_wait_common64"
                | "futex_abstimed_wait_cancelable64"
                | "futex_reltimed_wait"
                | "lll_lock_wait"
                | "lll_lock_wait_private"
                | "lll_timedlock_wait"
                | "lll_clocklock_wait"
                | "sem_wait"
                | "sem_timedwait"
                | "sem_clockwait"
                | "new_sem_wait"
                | "new_sem_wait_slow64"
                | "new_sem_wait_slow"
                | "Unsafe_Park"
                | "JVM_MonitorWait"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|n| Arc::from(*n)).collect()
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
        // The file is known, but not the name. The first function of a thread is never a caller.
        let stripped =
            ["__lll_lock_wait", "___pthread_mutex_lock", "[unknown sort]", "start_thread", "clone3"];
        assert_eq!(at(&stripped), Some("[unknown sort]".into()));
        assert_eq!(at(&stripped[2..]), Some("[unknown sort]".into()));
        assert_eq!(
            at(&["libncpu::probe::mutex_slow", "[unknown libfoo.so]"]),
            Some("[unknown libfoo.so]".into())
        );
        // The C library has lost the caller.
        let lost = ["__lll_lock_wait", "[unknown libc.so.6]", "start_thread"];
        assert_eq!(at(&lost), Some("__lll_lock_wait".into()));
        assert_eq!(at(&["start_thread", "clone3"]), None);
        assert_eq!(at(&["__lll_lock_wait", "pthread_mutex_lock@GLIBC", "f"]), Some("f".into()));
        assert_eq!(at(&["[unknown]"]), None);
        for name in [
            "__lll_lock_wait",
            "___pthread_mutex_lock@GLIBC_2.2.5",
            "std::sys::pal::unix::futex::futex_wait",
            "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
            "internal/sync.(*Mutex).lockSlow",
            "sync.(*RWMutex).RLock",
            "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await",
            "os::PlatformEvent::park()",
        ] {
            assert!(is_wait_function(name), "{name}");
        }
        for name in [
            "my_futex_table",
            "app::syscalls",
            "main.sync.Mutexes",
            "sem_waiters",
            "lll_lock_waits",
            "",
            "Parkers::run",
        ] {
            assert!(!is_wait_function(name), "{name}");
        }
    }
}
