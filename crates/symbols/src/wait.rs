//! What a thread that sleeps in a futex waits for, from its user stack.

/// What a futex waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UserWait {
    /// A lock somebody holds.
    Lock,
    /// Something to happen: most often work to come to an idle worker.
    Condition,
    /// A thread to end.
    Join,
    /// The other threads of a team to arrive.
    Barrier,
    /// A semaphore, which may stand for a lock or for a condition.
    Semaphore,
    /// The stack does not say.
    Unknown,
}

use UserWait::{Barrier, Condition, Join, Lock, Semaphore};

/// What begins so, after leading underscores.
const BEGINNINGS: &[(&str, UserWait)] = &[
    // The C library (glibc and musl)
    ("lll_lock_wait", Lock),
    ("lll_timedlock_wait", Lock),
    ("lll_clocklock_wait", Lock),
    ("pthread_mutex_lock", Lock),
    ("pthread_mutex_timedlock", Lock),
    ("pthread_mutex_clocklock", Lock),
    ("pthread_mutex_cond_lock", Lock),
    ("pthread_rwlock_", Lock),
    ("pthread_spin_lock", Lock),
    ("mtx_lock", Lock),
    ("mtx_timedlock", Lock),
    ("pthread_cond_", Condition),
    ("cnd_wait", Condition),
    ("cnd_timedwait", Condition),
    ("pthread_join", Join),
    ("pthread_timedjoin", Join),
    ("pthread_clockjoin", Join),
    ("pthread_tryjoin", Join),
    ("thrd_join", Join),
    ("pthread_barrier_wait", Barrier),
    ("sem_wait", Semaphore),
    ("sem_timedwait", Semaphore),
    ("sem_clockwait", Semaphore),
    ("new_sem_wait", Semaphore),
    // GLib, libuv, nsync
    ("g_mutex_lock", Lock),
    ("g_rec_mutex_lock", Lock),
    ("g_rw_lock_", Lock),
    ("g_cond_wait", Condition),
    ("g_async_queue_", Condition),
    ("uv_mutex_lock", Lock),
    ("uv_rwlock_", Lock),
    ("uv_cond_", Condition),
    ("uv_sem_wait", Semaphore),
    ("uv_barrier_wait", Barrier),
    ("nsync_mu_", Lock),
    ("nsync_cv_", Condition),
    // OpenMP
    ("gomp_mutex_lock", Lock),
    ("gomp_set_lock", Lock),
    ("gomp_critical", Lock),
    ("GOMP_critical", Lock),
    ("omp_set_lock", Lock),
    ("kmp_acquire_", Lock),
    ("kmp_wait_", Barrier),
    ("gomp_barrier_wait", Barrier),
    ("gomp_team_barrier_wait", Barrier),
    ("gomp_simple_barrier", Barrier),
    ("kmp_hyper_barrier", Barrier),
    ("kmp_fork_barrier", Barrier),
    ("kmp_join_barrier", Barrier),
    ("kmp_barrier", Barrier),
    ("gomp_sem_wait", Semaphore),
    // Databases
    ("LWLockAcquire", Lock),
    ("PGSemaphoreLock", Lock),
    ("ProcSleep", Lock),
    ("sync_array_wait_event", Lock),
    ("rw_lock_", Lock),
    ("MDL_wait::", Lock),
    ("MDL_context::acquire", Lock),
    ("inline_mysql_mutex_lock", Lock),
    ("inline_mysql_rwlock_", Lock),
    // Allocators
    ("malloc_mutex_lock", Lock),
    ("je_malloc_mutex_lock", Lock),
    // Interpreters
    ("take_gil", Lock),
    ("PyMutex_Lock", Lock),
    ("PyRWMutex_", Lock),
    ("PyThread_acquire_lock", Lock),
    ("PyEval_RestoreThread", Lock),
    ("PyEvent_Wait", Condition),
    ("rb_native_mutex_lock", Lock),
    ("gvl_acquire", Lock),
    ("thread_sched_to_running", Lock),
    // Go
    ("runtime.lock", Lock),
    ("runtime.notesleep", Condition),
    ("runtime.notetsleep", Condition),
];

/// What contains so, for names with namespaces, classes and parameters.
const PARTS: &[(&str, UserWait)] = &[
    // Rust
    ("Mutex::lock_contended", Lock),
    ("RwLock::read_contended", Lock),
    ("RwLock::write_contended", Lock),
    ("RawMutex::lock_slow", Lock),
    ("RawRwLock::lock_", Lock),
    ("RawReentrantMutex", Lock),
    ("sync::once::", Lock),
    ("Once::call", Lock),
    ("Condvar::wait", Condition),
    ("condvar::Condvar", Condition),
    ("thread::park", Condition),
    ("Parker::park", Condition),
    ("rayon_core::sleep", Condition),
    ("JoinHandle", Join),
    ("JoinInner", Join),
    ("thread::Thread::join", Join),
    ("ScopedJoinHandle", Join),
    ("Barrier::wait", Barrier),
    // C++
    ("std::mutex::lock", Lock),
    ("std::recursive_mutex::lock", Lock),
    ("std::timed_mutex::", Lock),
    ("std::shared_mutex::lock", Lock),
    ("std::shared_timed_mutex::lock", Lock),
    ("std::condition_variable", Condition),
    ("std::__condvar::wait", Condition),
    ("std::thread::join", Join),
    ("std::barrier", Barrier),
    ("std::latch", Barrier),
    ("std::counting_semaphore", Semaphore),
    ("boost::condition_variable", Condition),
    ("boost::thread::join", Join),
    ("boost::barrier", Barrier),
    ("Mutex::LockSlow", Lock),
    ("Mutex::ReaderLock", Lock),
    ("absl::base_internal::SpinLock", Lock),
    ("SpinLock::SlowLock", Lock),
    ("CondVar::Wait", Condition),
    ("absl::Notification", Condition),
    ("absl::Barrier", Barrier),
    ("absl::BlockingCounter", Barrier),
    ("folly::SharedMutex", Lock),
    ("folly::MicroLock", Lock),
    ("DistributedMutex", Lock),
    ("folly::Baton", Condition),
    ("LifoSem", Condition),
    ("WTF::Lock::lockSlow", Lock),
    ("QMutex::lock", Lock),
    ("QBasicMutex::lock", Lock),
    ("QReadWriteLock::", Lock),
    ("QWaitCondition::wait", Condition),
    ("QSemaphore::acquire", Semaphore),
    ("QThread::wait", Join),
    ("TTASEventMutex", Lock),
    // Java: the virtual machine's own functions, then compiled ones
    ("ObjectMonitor::enter", Lock),
    ("ObjectMonitor::EnterI", Lock),
    ("ObjectMonitor::ReenterI", Lock),
    ("ObjectSynchronizer::enter", Lock),
    ("Monitor::lock", Lock),
    ("Mutex::lock(", Lock),
    ("ObjectMonitor::wait", Condition),
    ("ObjectMonitor::Wait", Condition),
    ("Monitor::wait", Condition),
    ("PlatformMonitor::wait", Condition),
    ("PlatformEvent::park", Condition),
    ("Unsafe_Park", Condition),
    ("AbstractQueuedSynchronizer$ConditionObject", Condition),
    ("SynchronousQueue", Condition),
    ("BlockingQueue", Condition),
    ("ForkJoinPool", Condition),
    ("AbstractQueuedSynchronizer.acquire", Lock),
    ("AbstractQueuedSynchronizer;::acquire", Lock),
    ("locks/ReentrantLock", Lock),
    ("locks/ReentrantReadWriteLock", Lock),
    ("java.lang.Thread.join", Join),
    ("java/lang/Thread;::join", Join),
    ("CyclicBarrier", Barrier),
    ("CountDownLatch", Barrier),
    // .NET
    ("CrstBase::Enter", Lock),
    ("AwareLock::Enter", Lock),
    ("CLREvent::Wait", Condition),
];

/// How far above a condition or semaphore the construct that is made of it is looked for.
const CONSTRUCT_DEPTH: usize = 10;

/// Parts of the names of conditions and semaphores that locks and barriers are made of.
const LAYERS: &[&str] = &[
    "pthread_cond_",
    "cnd_",
    "sem_",
    "ondvar",
    "condition_variable",
    "Event::park",
    "Unsafe_Park",
    "::park",
];

/// Classifies the user stack of a futex waiter, leaf first, names demangled.
///
/// The known frame nearest the leaf decides: a mutex taken again after a condition is a lock. But many
/// locks are made of conditions and semaphores (Java's monitors, Python's interpreter lock,
/// PostgreSQL's light-weight locks): past such layers, the next known frame a little above decides if
/// it is a lock, a join or a barrier.
pub fn user_wait_class(frames: &[&str]) -> UserWait {
    let known = || frames.iter().enumerate().filter_map(|(i, f)| Some((i, f, class(f)?)));
    let Some((leaf, _, first)) = known().next() else { return UserWait::Unknown };
    let construct = known()
        .take_while(|(i, ..)| *i <= leaf + CONSTRUCT_DEPTH)
        .find(|(_, frame, _)| !LAYERS.iter().any(|layer| frame.contains(layer)));
    match (first, construct) {
        (Condition | Semaphore, Some((_, _, construct @ (Lock | Join | Barrier)))) => construct,
        _ => first,
    }
}

fn class(frame: &str) -> Option<UserWait> {
    let plain = frame.trim_start_matches('_');
    let plain = plain.strip_prefix("GI_").unwrap_or(plain).trim_start_matches('_');
    let beginning = BEGINNINGS.iter().find(|(begin, _)| plain.starts_with(begin));
    // Newer Rust writes `<std::sync::Mutex>::lock` for what was `std::sync::Mutex::lock`.
    let bare: String = frame.chars().filter(|c| !matches!(c, '<' | '>')).collect();
    let part = || PARTS.iter().find(|(part, _)| frame.contains(part) || bare.contains(part));
    beginning.or_else(part).map(|(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_have_their_class() {
        let mut lines = 0;
        for line in include_str!("testdata/wait_stacks.txt").lines() {
            let Some((class, stack)) = line.split_once(": ").filter(|_| !line.starts_with('#')) else {
                continue;
            };
            let frames: Vec<&str> = stack.split(" < ").map(str::trim).collect();
            assert_eq!(format!("{:?}", user_wait_class(&frames)), class, "{stack}");
            lines += 1;
        }
        assert!(lines > 30, "read only {lines} stacks");
        assert_eq!(user_wait_class(&[]), UserWait::Unknown);
        assert_eq!(user_wait_class(&["", "_", "main"]), UserWait::Unknown);
    }
}
