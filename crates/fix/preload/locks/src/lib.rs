//! `libncpu_locks.so`: times the waits of a program's threads for mutexes, rwlocks, conditions, semaphores and barriers of
//! pthreads, and notes who held them, for `ncpu run --preload locks`.
//!
//! The library stands before the functions that wait. A lock whose word says that it is free costs a look at that word,
//! and the call goes on to libc as if it had come there at once ([`entry`]). Otherwise the wait is timed and libc's own
//! function is called, so kinds of locks, their errors, cancellation and robustness are libc's. A lock that looked free
//! and was taken within the next few instructions is waited for untimed.
//!
//! What a thread notes goes to memory of its own in a file that the process shares with `ncpu` ([`notes`]). A process
//! that never waits makes no file; one that forked makes its own. Nothing is allocated, and no lock is taken: a thread
//! that waits may hold any lock of the program, an allocator's or the dynamic linker's.
//!
//! Seen are callers of libc's functions: not system calls of futex(2) by other libraries, such as Rust's or Go's, and not
//! the mutex that `pthread_cond_wait` takes again, which is part of the wait for the condition.
//!
//! | variable | |
//! | --- | --- |
//! | `NCPU_LOCKS` | the directory of the files; without it the library does nothing |
//!
//! The words that are looked at are those of glibc from 2.25 on, on x86-64. Elsewhere the library is empty.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod entry;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod notes;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod thread;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod waits;
