//! Restartable sequences: the CPU's number by one load, and changes to data of that CPU.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::barrier::fence_rseq;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering};

/// The place of glibc's registration of restartable sequences relative to the thread pointer.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod area {
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Offset of `struct rseq` from the thread pointer, or one of the two that no aligned structure can have.
    static OFFSET: AtomicUsize = AtomicUsize::new(UNKNOWN);
    const UNKNOWN: usize = 1;
    const NONE: usize = 2;

    #[cold]
    fn look() -> usize {
        let symbol = |name: &std::ffi::CStr| {
            // SAFETY: a valid C string; the symbols are data of glibc ≥ 2.35 that never go away.
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
        };
        let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
        let found = if offset.is_null() || size.is_null() {
            NONE
        } else {
            // SAFETY: glibc's `const ptrdiff_t` and `const unsigned int`; size is 0 if registration failed.
            unsafe { if *size.cast::<u32>() == 0 { NONE } else { *offset.cast::<usize>() } }
        };
        OFFSET.store(found, Ordering::Relaxed);
        found
    }

    /// The offset of `struct rseq` from the thread pointer.
    #[inline(always)]
    pub(super) fn offset() -> Option<usize> {
        let offset = match OFFSET.load(Ordering::Relaxed) {
            UNKNOWN => look(),
            known => known,
        };
        (offset != NONE).then_some(offset)
    }
}

/// The CPU this thread runs on, which may have changed when the caller uses it; `None` if it cannot be read
/// without a system call.
///
/// One load from the thread's `struct rseq`, which the kernel keeps up to date.
#[inline(always)]
pub fn cpu() -> Option<u32> {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let offset = area::offset()?;
        let cpu: u32;
        // SAFETY: glibc's registered area of this thread: `cpu_id_start` is its first word, always a possible CPU.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!("mov {cpu:e}, dword ptr fs:[{offset}]", cpu = out(reg) cpu, offset = in(reg) offset,
                options(nostack, readonly, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!("mrs {at}, tpidr_el0", "ldr {cpu:w}, [{at}, {offset}]", at = out(reg) _,
                cpu = out(reg) cpu, offset = in(reg) offset, options(nostack, readonly, preserves_flags));
        }
        Some(cpu)
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    {
        None
    }
}

/// The CPU or, if it cannot be read cheaply, a number of the thread's own that spreads as well.
#[inline(always)]
pub fn cpu_or_thread() -> u32 {
    match cpu() {
        Some(cpu) => cpu,
        None => thread_number(),
    }
}

fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Makes the instructions from 3 to 4 a sequence that begins again at 6 if it is interrupted, with `done` 0.
/// glibc registered the signature before 5.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! begin_sequence {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "2: .long 0, 0\n",
            ".quad 3f, 4f - 3f, 5f\n",
            ".popsection\n",
            ".pushsection .text.rseq_abort, \"ax\", @progbits\n",
            // An undefined instruction before the signature, for disassemblers.
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "5: jmp 6f\n",
            ".popsection\n",
            "6: lea {at}, [rip + 2b]\n",
            "mov qword ptr fs:[{rseq} + 8], {at}\n",
            "xor {done:e}, {done:e}",
        )
    };
}

/// Adds `n` to the counter of the CPU that the thread is on: the one `cpu * stride` bytes after `first`, of
/// `slots`. Returns false, with nothing added, if the CPU has no slot.
///
/// One restartable sequence if the process has them, so that no other thread writes the slot at the same
/// time; otherwise an atomic addition. A process always uses the same of the two.
///
/// # Safety
/// There are `slots` counters at that distance, and only this function writes them.
#[inline(always)]
pub unsafe fn add_here(first: *const AtomicI64, stride: usize, slots: usize, n: i64) -> bool {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    if let Some(rseq) = area::offset() {
        let done: u32;
        // SAFETY: the sequence from 3 to 4 has one store, its last instruction, within the slot of a CPU below
        // `slots`. If it is interrupted the kernel goes on at 5, which begins anew.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!(
                begin_sequence!(),
                "3: mov {at:e}, dword ptr fs:[{rseq} + 4]",
                "cmp {at}, {slots}",
                "jae 7f",
                "imul {at}, {stride}",
                "add qword ptr [{first} + {at}], {n}",
                "4: mov {done:e}, 1",
                "7:",
                at = out(reg) _,
                done = out(reg) done,
                rseq = in(reg) rseq,
                slots = in(reg) slots,
                stride = in(reg) stride,
                first = in(reg) first,
                n = in(reg) n,
                options(nostack),
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!(
                ".pushsection __rseq_cs, \"aw\", %progbits",
                ".balign 32",
                "2: .long 0, 0",
                ".quad 3f, 4f - 3f, 5f",
                ".popsection",
                ".pushsection .text.rseq_abort, \"ax\", %progbits",
                // The signature is an instruction: brk #0x45e0.
                ".inst 0xd428bc00",
                "5: b 6f",
                ".popsection",
                "mrs {area}, tpidr_el0",
                "add {area}, {area}, {rseq}",
                "6: adrp {at}, 2b",
                "add {at}, {at}, :lo12:2b",
                "str {at}, [{area}, #8]",
                "mov {done:w}, wzr",
                "3: ldr {at:w}, [{area}, #4]",
                "cmp {at}, {slots}",
                "b.hs 7f",
                "madd {at}, {at}, {stride}, {first}",
                "ldr {sum}, [{at}]",
                "add {sum}, {sum}, {n}",
                "str {sum}, [{at}]",
                "4: mov {done:w}, #1",
                "7:",
                at = out(reg) _,
                area = out(reg) _,
                sum = out(reg) _,
                done = out(reg) done,
                rseq = in(reg) rseq,
                slots = in(reg) slots,
                stride = in(reg) stride,
                first = in(reg) first,
                n = in(reg) n,
                options(nostack),
            );
        }
        return done != 0;
    }
    let cpu = cpu_or_thread() as usize % slots;
    // SAFETY: a counter, as the caller promised.
    unsafe { (*first.byte_add(cpu * stride)).fetch_add(n, Ordering::Relaxed) };
    true
}

/// Whether [`lock_here`] and [`fence_rseq`] work in this process: glibc 2.35, Linux 5.10, x86-64.
pub fn locks_by_rseq() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        area::offset().is_some() && fence_rseq()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// Makes the first of two words 1 if both are 0: those of the CPU that the thread is on, `cpu * stride` bytes
/// after `first`, of `slots`. Returns the CPU. `None`, with nothing changed, if one word is not 0 or the CPU
/// has no slot.
///
/// A restartable sequence, so of threads on one CPU only one succeeds, without an atomic operation. An
/// acquire of accesses before the word became 0, since x86 does not reorder loads. Another CPU keeps threads
/// out by making the second word 1 and then calling [`fence_rseq`]: a thread that was in the sequence has
/// stored by then, or finds the word 1.
///
/// # Safety
/// [`locks_by_rseq`] returned true. There are `slots` pairs at that distance, the first aligned to 4 bytes, and
/// no other code makes a first word 1.
#[inline(always)]
pub unsafe fn lock_here(first: *const [AtomicU16; 2], stride: usize, slots: usize) -> Option<usize> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let rseq = area::offset()?;
        let (cpu, done): (usize, u32);
        // SAFETY: as in `add_here`: one store, the last instruction, to a word of a CPU below `slots`.
        unsafe {
            std::arch::asm!(
                begin_sequence!(),
                "3: mov {cpu:e}, dword ptr fs:[{rseq} + 4]",
                "cmp {cpu}, {slots}",
                "jae 7f",
                "mov {at}, {cpu}",
                "imul {at}, {stride}",
                "cmp dword ptr [{first} + {at}], 0",
                "jne 7f",
                "mov word ptr [{first} + {at}], 1",
                "4: mov {done:e}, 1",
                "7:",
                at = out(reg) _,
                cpu = out(reg) cpu,
                done = out(reg) done,
                rseq = in(reg) rseq,
                slots = in(reg) slots,
                stride = in(reg) stride,
                first = in(reg) first,
                options(nostack),
            );
        }
        (done != 0).then_some(cpu)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = (first, stride, slots);
        None
    }
}
