//! Known functions of known libraries. A program's own function may have any word of theirs in its name, so whole names are compared, or
//! the beginning of a path that only the library has.

/// A C symbol without what the library and the linker put around it: `__GI___pthread_mutex_lock@@GLIBC_2.2.5` is `pthread_mutex_lock`.
pub(super) fn c_name(frame: &str) -> &str {
    let bare = frame.split('@').next().unwrap_or(frame).trim_start_matches('_');
    bare.strip_prefix("GI_").unwrap_or(bare).trim_start_matches('_')
}

/// Whether a function's path begins with one of these, or that of the type which it is of (`<std::sync::Mutex<T>>::lock`).
pub(super) fn begins_with(frame: &str, paths: &[&str]) -> bool {
    let bare = frame.trim_start_matches(['<', '&']);
    paths.iter().any(|path| bare.starts_with(path))
}

/// Whether a function is of the C library's allocator: what programs call, and its own parts.
pub(super) fn is_c_allocator(frame: &str) -> bool {
    const NAMES: [&str; 30] = [
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "free",
        "cfree",
        "memalign",
        "posix_memalign",
        "aligned_alloc",
        "int_malloc",
        "int_free",
        "int_free_chunk",
        "int_free_create_chunk",
        "int_free_maybe_consolidate",
        "int_free_merge_chunk",
        "int_realloc",
        "int_memalign",
        "tcache_get",
        "tcache_put",
        "tcache_init",
        "sysmalloc",
        "sysmalloc_mmap",
        "systrim",
        "default_morecore",
        "glibc_morecore",
        "sbrk",
        "munmap_chunk",
        "heap_trim",
        "shrink_heap",
        "grow_heap",
    ];
    let name = c_name(frame).split(['.', '(']).next().unwrap_or(frame);
    let name = name.strip_prefix("libc_").unwrap_or(name);
    NAMES.contains(&name)
}

/// Whether a function makes memory or gives it back: the C library's, or a language's own.
pub(super) fn is_allocator(frame: &str) -> bool {
    const PATHS: [&str; 7] = [
        "operator new",
        "operator delete",
        "std::__new_allocator<",
        "alloc::alloc::",
        "alloc::raw_vec::",
        "runtime.mallocgc",
        "runtime.newobject",
    ];
    // Rust's shims, which later compilers have in a crate of their own.
    let last = frame.rsplit("::").next().unwrap_or(frame);
    is_c_allocator(frame)
        || begins_with(frame, &PATHS)
        || ["__rust_", "__rdl_", "__rg_"].iter().any(|shim| last.starts_with(shim))
}

/// Whether a function gives memory back to the C library's allocator, or Rust's.
pub(super) fn gives_memory_back(frame: &str) -> bool {
    const NAMES: [&str; 10] = [
        "free",
        "cfree",
        "int_free",
        "int_free_chunk",
        "int_free_maybe_consolidate",
        "int_free_merge_chunk",
        "tcache_put",
        "systrim",
        "munmap_chunk",
        "heap_trim",
    ];
    let name = c_name(frame).split(['.', '(']).next().unwrap_or(frame);
    let name = name.strip_prefix("libc_").unwrap_or(name);
    let last = frame.rsplit("::").next().unwrap_or(frame);
    NAMES.contains(&name)
        || begins_with(frame, &["operator delete"])
        || ["__rust_dealloc", "__rdl_dealloc", "__rg_dealloc"].contains(&last)
}

/// Whether a function takes, gives back or waits for a lock, as a library's.
pub(super) fn is_lock_function(frame: &str) -> bool {
    // Names that POSIX and glibc reserve.
    const RESERVED: [&str; 7] = [
        "lll_",
        "pthread_mutex_",
        "pthread_rwlock_",
        "pthread_cond_",
        "pthread_spin_",
        "futex_abstimed_wait",
        "futex_reltimed_wait",
    ];
    const FUTEX: [&str; 8] = [
        "futex_wait",
        "futex_wait_simple",
        "futex_wait_cancelable",
        "futex_wake",
        "futex_lock_pi",
        "futex_lock_pi64",
        "futex_unlock_pi",
        "syscall",
    ];
    const PATHS: [&str; 28] = [
        "std::sync::mutex",
        "std::sync::rwlock",
        "std::sync::poison",
        "std::sync::nonpoison",
        "std::sys::sync::mutex",
        "std::sys::sync::rwlock",
        "std::sys::unix::locks",
        "std::sys_common::mutex",
        "tokio::sync::mutex",
        "tokio::sync::rwlock",
        "parking_lot::",
        "parking_lot_core::",
        "lock_api::",
        "dashmap::lock::",
        "sync.(*Mutex)",
        "sync.(*RWMutex)",
        "internal/sync.(*Mutex)",
        "runtime.futex",
        "runtime.lock2",
        "runtime.unlock2",
        "std::mutex::",
        "std::recursive_mutex::",
        "std::shared_mutex::",
        "std::__shared_mutex_pthread::",
        "std::lock_guard<",
        "std::unique_lock<",
        "std::shared_lock<",
        "std::scoped_lock<",
    ];
    let name = c_name(frame);
    FUTEX.contains(&name)
        || RESERVED.iter().any(|start| name.starts_with(start))
        || begins_with(frame, &PATHS)
}

/// Whether a function takes or gives back a lock that many readers may have: each writes the lock's line.
pub(super) fn is_read_lock(frame: &str) -> bool {
    const C: [&str; 5] = [
        "pthread_rwlock_rdlock",
        "pthread_rwlock_tryrdlock",
        "pthread_rwlock_timedrdlock",
        "pthread_rwlock_clockrdlock",
        "pthread_rwlock_unlock",
    ];
    const PATHS: [&str; 17] = [
        "std::shared_mutex::",
        "std::shared_timed_mutex::",
        "std::__shared_mutex_pthread::",
        "std::__shared_mutex_cv::",
        "std::shared_lock<",
        "boost::shared_mutex::",
        "folly::SharedMutexImpl",
        "sync.(*RWMutex)",
        "std::sync::rwlock",
        "std::sync::poison::rwlock",
        "std::sync::nonpoison::rwlock",
        "std::sys::sync::rwlock",
        "std::sys::unix::locks::futex_rwlock",
        "parking_lot::raw_rwlock",
        "lock_api::rwlock",
        "tokio::sync::rwlock",
        "java.util.concurrent.locks.ReentrantReadWriteLock",
    ];
    C.iter().any(|name| c_name(frame).starts_with(name)) || begins_with(frame, &PATHS)
}

/// Whether a function is of a library by which threads are begun.
pub(super) fn begins_thread(frame: &str) -> bool {
    const C: [&str; 7] = [
        "create_thread",
        "clone",
        "clone3",
        "clone_internal",
        "thread_start",
        "JVM_StartThread",
        "Java_java_lang_Thread_start0",
    ];
    const PATHS: [&str; 6] = [
        "std::thread",
        "std::sys::thread",
        "std::sys::pal::unix::thread",
        "os::create_thread",
        "java.lang.Thread.start",
        "Thread.start (threading.py:",
    ];
    let name = c_name(frame);
    name.starts_with("pthread_create") || C.contains(&name) || begins_with(frame, &PATHS)
}

/// Whether a function makes a thread and may wait until it has begun; it is not on the stack of the new thread.
pub(super) fn is_thread_start(frame: &str) -> bool {
    const PATHS: [&str; 4] =
        ["JVM_StartThread", "os::create_thread", "java.lang.Thread.start", "Thread.start (threading.py:"];
    c_name(frame).starts_with("pthread_create") || begins_with(frame, &PATHS)
}

/// Whether a function is an interpreter's of Ruby, PHP or Perl, by which it runs any script.
pub(super) fn runs_scripts(frame: &str) -> bool {
    const STARTS: [&str; 20] = [
        "ruby_run_node",
        "ruby_exec",
        "rb_vm_",
        "rb_funcall",
        "rb_yield",
        "rb_ensure",
        "rb_protect",
        "rb_rescue",
        "rb_iterate",
        "rb_block_call",
        "rb_call_super",
        "php_execute_script",
        "zend_execute",
        "zend_call_",
        "execute_ex",
        "perl_run",
        "perl_parse",
        "Perl_runops",
        "Perl_call_",
        "S_run_body",
    ];
    STARTS.iter().any(|start| frame.starts_with(start))
}

/// Whether a function of a library makes a process of this one.
pub(super) fn makes_process(frame: &str) -> bool {
    const C: [&str; 8] = [
        "fork",
        "vfork",
        "Fork",
        "clone",
        "clone3",
        "clone_internal",
        "clone_internal_fallback",
        "posix_spawn",
    ];
    let name = c_name(frame);
    let name = name.strip_prefix("libc_").unwrap_or(name);
    C.contains(&name) || ["fork_", "os_fork", "spawni"].iter().any(|start| name.starts_with(start))
}

/// Whether a function of Java sleeps for a time, in a futex.
pub(super) fn is_java_sleep(frame: &str) -> bool {
    begins_with(frame, &["JavaThread::sleep", "java.lang.Thread.sleep"])
}

/// Whether a function is of a thread of one of HotSpot's collectors, before Java 19 and since.
pub(super) fn is_collectors_worker(frame: &str) -> bool {
    begins_with(
        frame,
        &["WorkGang::", "GangWorker::", "AbstractGangWorker::", "WorkerThreads::", "WorkerThread::run"],
    )
}

/// Whether a function is of a runtime's own threads, or of workers without work.
pub(super) fn keeps_house(frame: &str) -> bool {
    const OWN: [&str; 11] = [
        "runtime.sysmon",
        "runtime.templateThread",
        "runtime.stopm",
        "runtime.findRunnable",
        "WatcherThread::",
        "VMThread::",
        // HotSpot's collectors, before Java 19 and since.
        "WorkGang::",
        "GangWorker::",
        "WorkerThreads::",
        "ConcurrentGCThread::",
        // Of Java 25: they load what was archived, at the start.
        "ArchiveWorker",
    ];
    begins_with(frame, &OWN)
}

/// Whether a function is of a library by which threads wait.
pub(super) fn waits(frame: &str) -> bool {
    const PATHS: [&str; 29] = [
        "std::sync::mpmc::",
        "std::sync::mpsc::",
        "std::thread::park",
        "std::thread::thread::Thread>::park",
        "std::thread::Thread>::park",
        "crossbeam_channel::",
        "std::sync::condvar",
        "std::sync::poison::condvar",
        "std::sync::nonpoison::condvar",
        "std::sys::sync::condvar",
        "std::condition_variable",
        "std::_V2::condition_variable",
        "tokio::sync::",
        "ObjectSynchronizer::",
        "ObjectMonitor::",
        "Monitor::wait",
        "Monitor::lock",
        "PlatformMonitor::",
        "os::PlatformMonitor::",
        "PlatformEvent::",
        "os::PlatformEvent::",
        "PlatformWaitImpl",
        "PosixSemaphore::",
        "Parker::",
        "Unsafe_Park",
        "java.lang.Object.wait",
        "java.util.concurrent.locks.",
        "jdk.internal.misc.Unsafe.park",
        "sun.misc.Unsafe.park",
    ];
    const C: [&str; 4] = ["JVM_MonitorWait", "sem_wait", "sem_timedwait", "sem_clockwait"];
    let name = c_name(frame);
    frame.starts_with('[')
        || frame.starts_with("__")
        || C.contains(&name)
        || name.starts_with("pthread_")
        || is_lock_function(frame)
        || begins_with(frame, &PATHS)
        // The pool's own waiting, where its workers look for work.
        || frame.starts_with("java.util.concurrent.ForkJoinPool.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_own_functions_are_no_librarys() {
        let own = [
            "update_pthread_mutex_stats",
            "report_futex_wait_times",
            "scrolll_down",
            "game::sync::mutex_pool::work",
            "com.shop.FileWatcherThread.run",
            "com.shop.GameThread.sleepier",
            "MyRwLockStats::add",
            "my_shared_mutex_test",
            "park::parking_lot::assign",
            "make_clone3_request",
            "main.RWMutexBench",
        ];
        for function in own {
            let known = [is_lock_function, is_read_lock, begins_thread, is_java_sleep, keeps_house, waits];
            assert!(!known.iter().any(|of| of(function)), "{function}");
        }
    }

    #[test]
    fn what_runs_any_script_is_known_and_what_scripts_call_is_not() {
        for frame in ["rb_vm_exec", "execute_ex", "php_execute_script", "Perl_runops_standard"] {
            assert!(runs_scripts(frame), "{frame}");
        }
        for frame in ["rb_str_plus", "php_implode", "Perl_pp_match", "array_merge()"] {
            assert!(!runs_scripts(frame), "{frame}");
        }
    }

    #[test]
    fn allocators_are_known_by_their_names() {
        for frame in [
            "__libc_malloc",
            "free",
            "_int_malloc",
            "_int_free_maybe_consolidate",
            "_int_free.part.0",
            "realloc@@GLIBC_2.2.5",
            "tcache_put",
            "sysmalloc_mmap.isra.0",
        ] {
            assert!(is_c_allocator(frame) && is_allocator(frame), "{frame}");
        }
        for frame in [
            "operator new(unsigned long)",
            "<alloc::raw_vec::RawVec<T, A>>::grow_one",
            "__rdl_alloc_zeroed",
            "__rustc[5224e6b81cd82a8f]::__rust_dealloc",
            "runtime.mallocgc",
        ] {
            assert!(is_allocator(frame) && !is_c_allocator(frame), "{frame}");
        }
        for frame in ["free_list_walk", "app::malloc_stats", "print_allocations", "freeze", "int_free_list"] {
            assert!(!is_allocator(frame) && !gives_memory_back(frame), "{frame}");
        }
        for frame in [
            "cfree@GLIBC_2.2.5",
            "__libc_free",
            "_int_free.part.0",
            "operator delete(void*)",
            "__rustc[5224e6b81cd82a8f]::__rust_dealloc",
        ] {
            assert!(gives_memory_back(frame), "{frame}");
        }
        assert!(!gives_memory_back("__libc_malloc") && !gives_memory_back("__rustc::__rust_alloc"));
    }

    #[test]
    fn functions_of_libraries_are_known_by_their_names() {
        for lock in [
            "__GI___pthread_mutex_lock",
            "___pthread_mutex_lock",
            "pthread_mutex_lock@@GLIBC_2.2.5",
            "__pthread_mutex_lock_full",
            "__futex_lock_pi64",
            "__lll_lock_wait_private",
            "<std::sync::poison::mutex::Mutex<T>>::lock",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "<parking_lot::raw_mutex::RawMutex as lock_api::mutex::RawMutex>::lock",
            "internal/sync.(*Mutex).lockSlow",
            "std::lock_guard<std::mutex>::lock_guard(std::mutex&)",
        ] {
            assert!(is_lock_function(lock), "{lock}");
        }
        for lock in [
            "__GI___pthread_rwlock_rdlock",
            "sync.(*RWMutex).RLock",
            "<std::sync::poison::rwlock::RwLock<T>>::read",
        ] {
            assert!(is_read_lock(lock) && is_lock_function(lock), "{lock}");
        }
        assert!(!is_read_lock("__pthread_rwlock_wrlock") && !is_read_lock("sync.(*Mutex).Lock"));
        for begins in [
            "__pthread_create_2_1",
            "__clone3",
            "std::thread::Builder::spawn_unchecked_",
            "java.lang.Thread.start0",
        ] {
            assert!(begins_thread(begins), "{begins}");
        }
        assert!(is_thread_start("java.lang.Thread.start0") && is_thread_start("__pthread_create_2_1"));
        assert!(!is_thread_start("__clone3") && !is_thread_start("std::thread::Builder::spawn_unchecked_"));
    }
}
