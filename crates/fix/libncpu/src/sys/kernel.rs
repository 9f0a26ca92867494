//! System calls without libc's `errno`, for threads that have no thread-local storage of their own.

use libc::c_long;

/// Makes a system call; an error is a number of `<errno.h>`.
///
/// # Safety
/// As for the call itself.
#[inline(always)]
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: the caller's promise; the kernel preserves all registers except the listed ones.
    let result = unsafe { raw(number, arguments) };
    // Linux returns errors as -4095 to -1.
    if result > usize::MAX - 4095 { Err((result.wrapping_neg()) as i32) } else { Ok(result) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn raw(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> usize {
    let result;
    // SAFETY: the kernel's calling convention on x86-64.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as usize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
unsafe fn raw(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> usize {
    let result;
    // SAFETY: the kernel's calling convention on AArch64.
    unsafe {
        std::arch::asm!("svc 0", in("x8") number as usize, inlateout("x0") a => result, in("x1") b, in("x2") c,
            in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    result
}

/// Other targets, and Miri, use libc: correct while one thread at a time uses this `errno`.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
unsafe fn raw(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> usize {
    // SAFETY: the caller's promise.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        // SAFETY: this thread's errno.
        -1 => unsafe { -(*libc::__errno_location()) as isize as usize },
        result => result as usize,
    }
}

/// `madvise`, repeated if a signal interrupted it.
pub fn madvise(at: usize, length: usize, advice: i32) -> Result<(), i32> {
    loop {
        // SAFETY: callers give advice that keeps memory's contents, or own the memory.
        match unsafe { call(libc::SYS_madvise, [at, length, advice as usize, 0, 0, 0]) } {
            Err(libc::EINTR) => {}
            result => return result.map(drop),
        }
    }
}

/// `mmap` of new memory, private to this process.
pub fn map(length: usize) -> Result<usize, i32> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: maps new memory at any address.
    unsafe { call(libc::SYS_mmap, [0, length, protection as usize, flags as usize, usize::MAX, 0]) }
}

/// `munmap`.
///
/// # Safety
/// The memory is unused.
pub unsafe fn unmap(at: usize, length: usize) -> Result<(), i32> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_munmap, [at, length, 0, 0, 0, 0]) }.map(drop)
}

/// `mlock2`.
pub fn mlock(at: usize, length: usize, flags: usize) -> Result<(), i32> {
    // SAFETY: locking changes no contents.
    let locked = unsafe {
        // mlock2 is newer than mlock.
        if flags == 0 {
            call(libc::SYS_mlock, [at, length, 0, 0, 0, 0])
        } else {
            call(libc::SYS_mlock2, [at, length, flags, 0, 0, 0])
        }
    };
    locked.map(drop)
}

/// Size of the machine's base page in bytes.
pub fn page() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    match PAGE.load(Relaxed) {
        0 => {
            // SAFETY: takes no pointers; from the auxiliary vector.
            let page = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
            let page = if page.is_power_of_two() { page } else { 4096 };
            PAGE.store(page, Relaxed);
            page
        }
        page => page,
    }
}
