//! What stacks of threads that wait say: where they wait.

use std::sync::Arc;

use super::push_clean;

/// Where a thread waits. Callers are lost where a library keeps no frame pointers: then the wait itself is named.
pub(crate) fn waiting_at(frames: &[Arc<str>]) -> Option<&Arc<str>> {
    let named = || frames.iter().filter(|f| !f.starts_with("[unknown"));
    named().find(|f| !f.starts_with('[') && !is_wait_function(f)).or_else(|| named().next())
}

/// Frames as table columns have them.
pub(crate) fn joined(frames: &[Arc<str>]) -> String {
    let mut out = String::with_capacity(32 * frames.len());
    for (i, frame) in frames.iter().enumerate() {
        if i > 0 {
            out.push(';');
        }
        push_clean(&mut out, frame);
    }
    out
}

/// Frames of the wait itself: the caller is above them.
pub(crate) fn is_wait_function(name: &str) -> bool {
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
        "sync.(*Mutex)",
        "sync.(*RWMutex)",
        "sync.runtime_Sem",
        "Unsafe.park",
        "Unsafe_Park",
        "Parker::park",
        "LockSupport.park",
        "AbstractQueuedSynchronizer",
        "ObjectMonitor::",
        "ObjectSynchronizer::",
        "LightweightSynchronizer::",
        "PlatformEvent::",
        "PlatformMonitor::",
        "JVM_MonitorWait",
        "java.lang.Object.wait",
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
}
