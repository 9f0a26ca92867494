//! The functions' entries: a free lock is taken here, as libc would take it; all other calls go to libc's
//! function or to ours.
//!
//! A lock and its unlock take 7 ns. A jump through here and a look at the lock's word would be a tenth of
//! that, since the processor waits for all loads before it changes a word atomically. So libc's work for a
//! free lock is done here: the same words get the same values, and libc's own unlock, wait and errors follow.
//! Only plain kinds of locks are taken in this way, and none if glibc is not as expected ([`STATE`]).
//!
//! Arguments stay in their registers and the stack is unchanged: to libc it looks as if the program had
//! called it. Our functions get two more arguments, the return address and the frame pointer of the caller.

use std::arch::naked_asm;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::thread::{CANCELS, Call, STATE, TID, Waits, glibc_is_known};
use crate::waits;

/// Whether glibc is as expected: a mutex that it locked has the thread's number in the expected place.
fn glibc_is_as_expected() -> bool {
    if !glibc_is_known() {
        return false;
    }
    let mut mutex = libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    let at = (&raw mut mutex).cast::<u32>();
    let (tid, libc): (u32, Option<Waits>);
    // SAFETY: the thread's own memory, a mutex of this function, and words of it.
    unsafe {
        std::arch::asm!("mov {:e}, dword ptr fs:[{}]", out(reg) tid, const TID, options(nostack, readonly));
        libc = pthread_mutex_lock::LIBC.find();
        let Some(lock) = libc else { return false };
        let locked = || [0, 1, 2, 3, 4].map(|word| at.add(word).read_volatile());
        let mut good = tid == libc::gettid() as u32;
        for times in 1..3 {
            lock(at as usize, 0, 0, 0);
            // __lock, __count, __owner, __nusers, __kind
            good &= locked() == [1, times, tid, 1, 1];
        }
        libc::pthread_mutex_unlock(&raw mut mutex);
        libc::pthread_mutex_unlock(&raw mut mutex);
        good && locked() == [0, 0, 0, 0, 1]
    }
}

/// The libc function behind one of ours, looked up once.
pub struct Libc {
    name: &'static CStr,
    /// The required version, if libc has an older one for other objects.
    version: Option<&'static CStr>,
    at: &'static AtomicPtr<libc::c_void>,
}

impl Libc {
    /// The function; `None` if this libc lacks it.
    pub fn find(&self) -> Option<Waits> {
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            if let Some(version) = self.version {
                // SAFETY: C strings.
                at = unsafe { libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) };
            }
            if at.is_null() {
                // SAFETY: as above.
                at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            }
            self.at.store(at, Ordering::Relaxed);
        }
        // SAFETY: a null pointer is `None`; a function ignores arguments beyond its own.
        unsafe { std::mem::transmute::<*mut libc::c_void, Option<Waits>>(at) }
    }
}

/// Functions that replace libc's: `take` takes a free lock and returns, or jumps to 9; `look` jumps to 2 if
/// the call may have to wait, and otherwise to libc.
macro_rules! entries {
    ($($name:ident $text:literal $(@ $version:literal)? $([$($take:literal),*])? ($($look:literal),*) $({$($known:tt)*})? $slow:path;)*) => {
        /// All entries.
        pub static ALL: &[&Libc] = &[$(&$name::LIBC),*];
        $(
            mod $name {
                use super::*;

                static AT: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
                pub static LIBC: Libc = Libc { name: $text, version: entries!(@ $($version)?), at: &AT };

                #[doc = concat!("`", stringify!($name), "(3)`.")]
                ///
                /// # Safety
                /// As for libc's.
                #[unsafe(naked)]
                #[unsafe(no_mangle)]
                pub unsafe extern "C-unwind" fn $name() {
                    naked_asm!(
                        $($($take,)*)?
                        "9: mov rax, qword ptr [rip + {at}]",
                        "test rax, rax",
                        "jz 2f",
                        $($look,)*
                        "2: mov r8, qword ptr [rsp]",
                        "mov r9, rbp",
                        "jmp {slow}",
                        at = sym AT,
                        slow = sym slow,
                        $($($known)*)?
                    )
                }

                unsafe extern "C-unwind" fn slow(
                    a: usize, b: usize, c: usize, d: usize, caller: usize, frame: usize,
                ) -> c_int {
                    let Some(libc) = LIBC.find() else { return libc::ENOSYS };
                    // SAFETY: the caller's arguments.
                    unsafe { $slow(Call { arguments: [a, b, c, d], libc, caller, frame }) }
                }
            }
        )*
    };
    (@) => { None };
    (@ $version:literal) => { Some($version) };
}

// pthread_mutex_t: __lock at 0, __count, __owner, __nusers, __kind at 16: 0 normal, 1 recursive, 2 error
// checking, 3 adaptive; 128 shared between processes; all others are left to libc.
// pthread_rwlock_t: __readers at 0: bit 0 the writers' phase, bit 1 a writer, from bit 3 on readers; __flags
// at 48: 0 if readers have priority.
// sem_t: the value at 0, the number of waiters at 4.
entries! {
    pthread_mutex_lock c"pthread_mutex_lock" [
        "mov ecx, dword ptr [rdi + 16]",
        "movzx r11d, byte ptr [rip + {state}]",
        "mov edx, dword ptr fs:[{tid}]",
        "xor eax, eax",
        "mov esi, 1",
        "test r11d, r11d",
        "jz 9f",
        "test ecx, -132",
        "jnz 9f",
        "cmp ecx, 1",
        "je 5f",
        "cmp ecx, 129",
        "je 5f",
        "cmp r11d, 1",
        "je 7f",
        "3: lock cmpxchg dword ptr [rdi], esi",
        "jne 2f",
        "4: mov dword ptr [rdi + 8], edx",
        "add dword ptr [rdi + 12], 1",
        "xor eax, eax",
        "ret",
        // Recursive.
        "5: cmp dword ptr [rdi + 8], edx",
        "jne 6f",
        "mov eax, dword ptr [rdi + 4]",
        "add eax, 1",
        "jz 2f",
        "mov dword ptr [rdi + 4], eax",
        "xor eax, eax",
        "ret",
        "6: lock cmpxchg dword ptr [rdi], esi",
        "jne 2f",
        "mov dword ptr [rdi + 4], esi",
        "jmp 4b",
        // One thread: no other thread can lock it, only another process.
        "7: test ecx, ecx",
        "jnz 3b",
        "cmp dword ptr [rdi], eax",
        "jne 2f",
        "mov dword ptr [rdi], esi",
        "jmp 4b"
    ] ("cmp dword ptr [rdi], 0", "jne 2f", "jmp rax") {state = sym STATE, tid = const TID} waits::mutex;
    pthread_mutex_timedlock c"pthread_mutex_timedlock"
        ("cmp dword ptr [rdi], 0", "jne 2f", "jmp rax") waits::mutex;
    pthread_mutex_clocklock c"pthread_mutex_clocklock"
        ("cmp dword ptr [rdi], 0", "jne 2f", "jmp rax") waits::mutex;
    mtx_lock c"mtx_lock" ("cmp dword ptr [rdi], 0", "jne 2f", "jmp rax") waits::mutex;
    mtx_timedlock c"mtx_timedlock" ("cmp dword ptr [rdi], 0", "jne 2f", "jmp rax") waits::mutex;
    pthread_rwlock_rdlock c"pthread_rwlock_rdlock" [
        "cmp byte ptr [rip + {state}], 0",
        "je 9f",
        "cmp dword ptr [rdi + 48], 0",
        "jne 9f",
        "mov eax, dword ptr [rdi]",
        "test eax, -0x7fffffff",
        "jnz 9f",
        "lea edx, [rax + 8]",
        "lock cmpxchg dword ptr [rdi], edx",
        "jne 9f",
        "xor eax, eax",
        "ret"
    ] ("test byte ptr [rdi], 2", "jnz 2f", "jmp rax") {state = sym STATE} waits::read;
    pthread_rwlock_timedrdlock c"pthread_rwlock_timedrdlock"
        ("test byte ptr [rdi], 2", "jnz 2f", "jmp rax") waits::read;
    pthread_rwlock_clockrdlock c"pthread_rwlock_clockrdlock"
        ("test byte ptr [rdi], 2", "jnz 2f", "jmp rax") waits::read;
    // A writer starts from the writers' phase that the last one left; from the readers' phase it takes more
    // steps.
    pthread_rwlock_wrlock c"pthread_rwlock_wrlock" [
        "cmp byte ptr [rip + {state}], 0",
        "je 9f",
        "mov eax, dword ptr [rdi]",
        "cmp eax, 1",
        "jne 9f",
        "mov edx, 3",
        "lock cmpxchg dword ptr [rdi], edx",
        "jne 9f",
        "mov ecx, dword ptr fs:[{tid}]",
        "mov dword ptr [rdi + 24], ecx",
        "xor eax, eax",
        "ret"
    ] ("test dword ptr [rdi], -2", "jnz 2f", "jmp rax") {state = sym STATE, tid = const TID} waits::write;
    pthread_rwlock_timedwrlock c"pthread_rwlock_timedwrlock"
        ("test dword ptr [rdi], -2", "jnz 2f", "jmp rax") waits::write;
    pthread_rwlock_clockwrlock c"pthread_rwlock_clockwrlock"
        ("test dword ptr [rdi], -2", "jnz 2f", "jmp rax") waits::write;
    pthread_cond_wait c"pthread_cond_wait" @ c"GLIBC_2.3.2" () waits::condition;
    pthread_cond_timedwait c"pthread_cond_timedwait" @ c"GLIBC_2.3.2" () waits::condition;
    pthread_cond_clockwait c"pthread_cond_clockwait" () waits::condition;
    cnd_wait c"cnd_wait" () waits::condition;
    cnd_timedwait c"cnd_timedwait" () waits::condition;
    pthread_barrier_wait c"pthread_barrier_wait" () waits::barrier;
    sem_wait c"sem_wait" [
        "cmp byte ptr [rip + {state}], 0",
        "je 9f",
        "cmp byte ptr [rip + {cancels}], 0",
        "jne 9f",
        "mov rax, qword ptr [rdi]",
        "test eax, eax",
        "jz 2f",
        "lea rdx, [rax - 1]",
        "lock cmpxchg qword ptr [rdi], rdx",
        "jne 9f",
        "xor eax, eax",
        "ret"
    ] ("cmp dword ptr [rdi], 0", "je 2f", "jmp rax") {state = sym STATE, cancels = sym CANCELS} waits::semaphore;
    sem_timedwait c"sem_timedwait" ("cmp dword ptr [rdi], 0", "je 2f", "jmp rax") waits::semaphore;
    sem_clockwait c"sem_clockwait" ("cmp dword ptr [rdi], 0", "je 2f", "jmp rax") waits::semaphore;
    sem_post c"sem_post" [
        "cmp byte ptr [rip + {state}], 0",
        "je 9f",
        "mov rax, qword ptr [rdi]",
        // A thread waits, or the value is at its maximum.
        "cmp rax, 0x7fffffff",
        "jae 9f",
        "lea rdx, [rax + 1]",
        "lock cmpxchg qword ptr [rdi], rdx",
        "jne 9f",
        "xor eax, eax",
        "ret"
    ] ("cmp dword ptr [rdi + 4], 0", "jne 2f", "jmp rax") {state = sym STATE} waits::post;
    // Replaced only to notice that the program has threads, and cancels them.
    pthread_create c"pthread_create" () waits::create;
    pthread_cancel c"pthread_cancel" () waits::cancel;
}
/// Functions by which a program confines itself. [`crate::waits::confine`] is called first, then libc's
/// function with all of its arguments, up to seven.
macro_rules! confining {
    ($($name:ident $text:literal [$($look:literal),*];)*) => {
        /// All entries.
        pub static CONFINING: &[&Libc] = &[$(&$name::LIBC),*];
        $(
            mod $name {
                use super::*;

                static AT: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
                pub static LIBC: Libc = Libc { name: $text, version: None, at: &AT };

                #[doc = concat!("`", stringify!($name), "(2)`.")]
                ///
                /// # Safety
                /// As for libc's.
                #[unsafe(naked)]
                #[unsafe(no_mangle)]
                pub unsafe extern "C-unwind" fn $name() {
                    naked_asm!(
                        "mov rax, qword ptr [rip + {at}]",
                        "test rax, rax",
                        "jz 2f",
                        $($look,)*
                        "2: push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
                        "call {confine}",
                        "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                        "mov rax, qword ptr [rip + {at}]",
                        "test rax, rax",
                        "jz 3f",
                        "jmp rax",
                        // Every libc has the function.
                        "3: mov rax, -1",
                        "ret",
                        at = sym AT,
                        confine = sym confine,
                    )
                }

                extern "C" fn confine(a: usize, b: usize) {
                    LIBC.find();
                    waits::confine(a, b);
                }
            }
        )*
    };
}

confining! {
    prctl c"prctl" ["cmp edi, 22", "je 2f", "jmp rax"];
    syscall c"syscall" ["cmp rdi, 317", "je 2f", "cmp rdi, 157", "je 2f", "jmp rax"];
}
const _: () = assert!(libc::SYS_seccomp == 317 && libc::SYS_prctl == 157 && libc::PR_SET_SECCOMP == 22);

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// From here on the entries' assumptions about the words of a free lock hold.
fn take_free_locks() {
    if glibc_is_as_expected() {
        // Threads that began before us were started by other libraries' constructors.
        let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
        STATE.store(if alone { 1 } else { 2 }, Ordering::SeqCst);
    }
}

extern "C" fn begin() {
    for libc in ALL.iter().chain(CONFINING) {
        libc.find();
    }
    if crate::notes::begin() {
        take_free_locks();
    }
}
