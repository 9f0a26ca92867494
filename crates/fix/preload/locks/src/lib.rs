//! `libncpu_locks.so`: times the waits of a program's threads for mutexes, rwlocks, conditions, semaphores
//! and barriers of pthreads, and records their holders, for `ncpu run --preload locks`.
//!
//! The library replaces the functions that wait. If the lock's word says that it is free, the call costs a
//! look at that word and goes on to libc as if it had come there directly ([`entry`]). Otherwise the wait is
//! timed and libc's own function is called, so kinds of locks, their errors, cancellation and robustness are
//! libc's. A wait for a lock that looked free and was taken within the next few instructions is not timed.
//!
//! A thread records its waits in its own part of a file that the process shares with `ncpu` ([`notes`]). A
//! process that never waits makes no file; a forked process makes its own. Nothing is allocated, and no lock
//! is taken: a waiting thread may hold any lock of the program, an allocator's or the dynamic linker's.
//!
//! Only calls of libc's functions are seen. Not seen are futex(2) system calls of other libraries, such as
//! Rust's or Go's, and the mutex that `pthread_cond_wait` takes again, which is part of the wait for the
//! condition.
//!
//! | variable | |
//! | --- | --- |
//! | `NCPU_LOCKS` | the directory of the files; if it is not set the library does nothing |
//!
//! The library reads the words of glibc from 2.25 on, on x86-64. On other systems it is empty.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod entry;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod notes;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod thread;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod waits;
