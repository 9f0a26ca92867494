//! Static tracepoints (USDT) of provider `ncpu`, which `ncpu locks`, bpftrace or perf can count and time.
//!
//! | probe | arguments | fires |
//! | --- | --- | --- |
//! | `mutex_slow` | lock | the lock was found taken |
//! | `mutex_spin` | lock, attempts | a spinning phase ended, with or without the lock |
//! | `mutex_block` | lock | the thread is about to sleep |
//! | `mutex_wakeup` | lock | the thread woke up |
//! | `mutex_acquired` | lock, attempts | the lock was taken after `mutex_slow` |
//! | `mutex_abandoned` | lock, attempts | the timeout expired after `mutex_slow` |
//! | `queue_slow`, `queue_block`, `queue_wakeup`, `queue_acquired` | lock | the same for queue locks, MCS and
//! NUMA |
//! | `read_slow`, `read_acquired` | lock | a reader found the rwlock closed; the reader took it |
//! | `write_slow`, `write_acquired` | lock | a writer found the rwlock taken; the writer took it |
//!
//! An rwlock also waits in its mutex: `mutex_*` fire between its own `slow` and `acquired`. Other waits do
//! not nest.
//!
//! An untraced probe is one `nop`. All probes are on slow paths.

/// A probe: a `nop` and a note in `.note.stapsdt` that gives tracers its address and the places of its
/// arguments.
///
/// The layout is that of SystemTap's `<sys/sdt.h>`, version 3, without a semaphore.
macro_rules! probe {
    ($name:literal, $a:expr, $b:expr) => {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: one nop; the operands are only read.
        unsafe {
            std::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"?\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte 0",
                ".asciz \"ncpu\"",
                concat!(".asciz \"", $name, "\""),
                ".asciz \"8@{a} 8@{b}\"",
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base,\"aGR\",\"progbits\",.stapsdt.base,comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                a = in(reg) $a as u64,
                b = in(reg) $b as u64,
                options(att_syntax, readonly, nostack, preserves_flags),
            );
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = ($a, $b);
    };
}

/// A mutex was found taken.
#[inline(never)]
pub fn mutex_slow(lock: *const ()) {
    probe!("mutex_slow", lock, 0u64);
}

/// A spinning phase of `attempts` attempts ended.
#[inline(never)]
pub fn mutex_spin(lock: *const (), attempts: u32) {
    probe!("mutex_spin", lock, attempts);
}

/// The thread is about to sleep.
#[inline(never)]
pub fn mutex_block(lock: *const ()) {
    probe!("mutex_block", lock, 0u64);
}

/// The thread woke up.
#[inline(never)]
pub fn mutex_wakeup(lock: *const ()) {
    probe!("mutex_wakeup", lock, 0u64);
}

/// The lock was taken after [`mutex_slow`].
#[inline(never)]
pub fn mutex_acquired(lock: *const (), attempts: u32) {
    probe!("mutex_acquired", lock, attempts);
}

/// The timeout expired after [`mutex_slow`].
#[inline(never)]
pub fn mutex_abandoned(lock: *const (), attempts: u32) {
    probe!("mutex_abandoned", lock, attempts);
}

/// A queue lock was found taken.
#[inline(never)]
pub fn queue_slow(lock: *const ()) {
    probe!("queue_slow", lock, 0u64);
}

/// The thread is about to sleep for a queue lock.
#[inline(never)]
pub fn queue_block(lock: *const ()) {
    probe!("queue_block", lock, 0u64);
}

/// The thread woke up.
#[inline(never)]
pub fn queue_wakeup(lock: *const ()) {
    probe!("queue_wakeup", lock, 0u64);
}

/// The lock was taken after [`queue_slow`].
#[inline(never)]
pub fn queue_acquired(lock: *const ()) {
    probe!("queue_acquired", lock, 0u64);
}

/// A reader found the rwlock closed.
#[inline(never)]
pub fn read_slow(lock: *const ()) {
    probe!("read_slow", lock, 0u64);
}

/// The reader took the rwlock after [`read_slow`].
#[inline(never)]
pub fn read_acquired(lock: *const ()) {
    probe!("read_acquired", lock, 0u64);
}

/// A writer found the rwlock taken, by readers or a writer.
#[inline(never)]
pub fn write_slow(lock: *const ()) {
    probe!("write_slow", lock, 0u64);
}

/// The writer took the rwlock after [`write_slow`].
#[inline(never)]
pub fn write_acquired(lock: *const ()) {
    probe!("write_acquired", lock, 0u64);
}
