//! Classifies the activity of a CPU by its kernel stack.

/// The activity of a sample in the kernel, from its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelClass<'a> {
    /// Spinning for a lock, or queueing to spin.
    LockSpin,
    /// Invalidating cached translations of CPUs: sending, waiting for the others, or handling the request.
    TlbShootdown,
    /// Zeroing pages before their use.
    Zeroing,
    /// Leaving or entering a thread.
    ContextSwitch,
    /// Deferred interrupt work, also in ksoftirqd.
    Softirq,
    /// A hardware interrupt or an interprocessor one.
    Interrupt,
    /// A page fault, wherever it occurred: in user code, in a system call's copy, in a pre-fault.
    Fault,
    /// Starting another program.
    Exec,
    /// A process or thread ending, and the release of its memory.
    Exit,
    /// A system call, by name; `entry` is the way in and out of the kernel itself.
    Syscall(&'a str),
    /// Idle.
    Idle,
    /// A kernel thread's own work.
    KernelThread,
    /// A probe in the program's code, of any tracer: the trap, its handler, and the step over the
    /// instruction.
    Probe,
    /// None of these.
    Other,
}

/// Classifies a kernel stack, leaf first.
///
/// Only the innermost context counts: frames below an interrupt, a softirq or an exception belong to the
/// interrupted code. Within it the first class that applies is the result:
///
/// 1. `LockSpin`: the leaf is a slow path of a lock, whatever code takes it (also in an interrupt);
/// 2. `TlbShootdown`: also within a fault, munmap or exit, and in the interrupt that it sends;
/// 3. `Zeroing`: also within a fault or a system call;
/// 4. `ContextSwitch`: also if a fault, a system call or an exit blocks, or an interrupt preempts;
/// 5. `Softirq`, then `Interrupt`: the one nearest the leaf;
/// 6. `Fault`: also within a system call (copying to or from user memory) or exec;
/// 7. `Exec`, then `Exit`: exec releases the old memory, which is part of exec;
/// 8. `Probe`, also by its own system calls; 9. `Syscall`, 10. `Idle`, 11. `KernelThread`, 12. `Other`.
pub fn kernel_class<'a>(frames: &[&'a str]) -> KernelClass<'a> {
    let (context, entry) = context(frames);
    let any = |holds: fn(&str) -> bool| context.iter().any(|f| holds(base(f)));
    if let Some(leaf) = context.iter().map(|f| base(f)).find(|f| !is_spin_helper(f))
        && is_spin(leaf)
    {
        return KernelClass::LockSpin;
    }
    if any(is_tlb) {
        return KernelClass::TlbShootdown;
    }
    if any(is_zeroing) {
        return KernelClass::Zeroing;
    }
    if any(is_switch) {
        return KernelClass::ContextSwitch;
    }
    match entry {
        Some(Entry::Softirq) => return KernelClass::Softirq,
        Some(Entry::Interrupt) => return KernelClass::Interrupt,
        Some(Entry::Fault) => return KernelClass::Fault,
        Some(Entry::Exception) if any(is_probe) => return KernelClass::Probe,
        Some(Entry::Exception) => return KernelClass::Other,
        None => {}
    }
    if any(is_fault) {
        KernelClass::Fault
    } else if any(is_exec) {
        KernelClass::Exec
    } else if any(is_exit) {
        KernelClass::Exit
    } else if any(is_probe) {
        KernelClass::Probe
    } else if let Some(name) = syscall(context) {
        KernelClass::Syscall(name)
    } else if any(is_idle) {
        KernelClass::Idle
    } else if any(is_thread_function) {
        KernelClass::KernelThread
    } else if any(|f| f.starts_with("ret_from_fork")) {
        // A child's path to its first instruction.
        KernelClass::Syscall("clone")
    } else {
        KernelClass::Other
    }
}

/// The name without suffixes of compilers: `.isra.0`, `.part.3`, `.constprop.0`, `.cold`, `.llvm.1`.
fn base(frame: &str) -> &str {
    match frame.find('.') {
        Some(i) if i > 0 => &frame[..i],
        _ => frame,
    }
}

/// The entry of the innermost context.
#[derive(Clone, Copy)]
enum Entry {
    Softirq,
    Interrupt,
    Fault,
    Exception,
}

/// The frames of the innermost context, with its entry unless that is a system call.
fn context<'s, 'a>(frames: &'s [&'a str]) -> (&'s [&'a str], Option<Entry>) {
    for (i, frame) in frames.iter().enumerate() {
        if let Some(entry) = entry(base(frame)) {
            return (&frames[..=i], Some(entry));
        }
    }
    (frames, None)
}

/// Includes debuggers' breakpoints, which are rare. Excludes `uprobe_mmap` and similar functions, which run
/// in every program.
fn is_probe(f: &str) -> bool {
    let f = f.strip_prefix("arch_").unwrap_or(f);
    f.starts_with("uretprobe_")
        || matches!(
            f,
            "exc_int3"
                | "asm_exc_int3"
                | "exc_debug"
                | "exc_debug_user"
                | "asm_exc_debug"
                | "uprobe_notify_resume"
                | "uprobe_pre_sstep_notifier"
                | "uprobe_post_sstep_notifier"
                | "uprobe_pre_xol"
                | "uprobe_post_xol"
                | "uprobe_skip_sstep"
                | "uprobe_dispatcher"
                | "uprobe_multi_link_handler"
                | "uprobe_multi_link_ret_handler"
                | "uprobe_perf_func"
                | "__uprobe_perf_func"
                | "handle_swbp"
                | "handle_singlestep"
                | "handler_chain"
                | "handle_uretprobe_chain"
                | "prepare_uretprobe"
                | "__x64_sys_uretprobe"
                | "__x64_sys_uprobe"
                // AArch64: a breakpoint, and the step behind it.
                | "el0_dbg"
                | "el0_brk64"
                | "el0_softstp"
                | "do_debug_exception"
                | "brk_handler"
                | "uprobe_breakpoint_handler"
                | "uprobe_brk_handler"
                | "uprobe_single_step_handler"
                | "single_step_handler"
        )
}

fn entry(f: &str) -> Option<Entry> {
    match f {
        "handle_softirqs" | "__do_softirq" | "____do_softirq" | "do_softirq_own_stack" => {
            Some(Entry::Softirq)
        }
        "asm_common_interrupt"
        | "common_interrupt"
        | "gic_handle_irq"
        | "do_interrupt_handler"
        | "el1_interrupt"
        | "el0_interrupt"
        | "el1h_64_irq"
        | "el0t_64_irq"
        | "el0t_32_irq"
        | "exc_nmi"
        | "asm_exc_nmi"
        | "end_repeat_nmi"
        | "do_IRQ"
        | "ret_from_intr"
        | "apic_timer_interrupt" => Some(Entry::Interrupt),
        "asm_exc_page_fault" | "exc_page_fault" | "page_fault" | "do_mem_abort" | "el0_da" | "el0_ia"
        | "el1_abort" => Some(Entry::Fault),
        _ if f.starts_with("asm_sysvec_") || f.starts_with("sysvec_") => Some(Entry::Interrupt),
        _ if f.starts_with("asm_exc_") => Some(Entry::Exception),
        _ => None,
    }
}

/// Functions that a spinning slow path calls between attempts to take the lock.
fn is_spin_helper(f: &str) -> bool {
    f.starts_with("__raw_callee_save_")
        || matches!(
            f,
            "kvm_wait"
                | "xen_qlock_wait"
                | "hv_qlock_wait"
                | "pv_native_safe_halt"
                | "native_safe_halt"
                | "native_halt"
                | "native_io_delay"
                | "vcpu_is_preempted"
                | "__kvm_vcpu_is_preempted"
                | "pv_native_vcpu_is_preempted"
                | "__native_vcpu_is_preempted"
                | "native_vcpu_is_preempted"
                | "need_resched"
                | "owner_on_cpu"
                | "rwsem_owner_flags"
                | "mutex_can_spin_on_owner"
        )
}

fn is_spin(f: &str) -> bool {
    f.ends_with("queued_spin_lock_slowpath")
        || f.starts_with("__mutex_lock")
        || f.contains("_mcs_queue")
        || matches!(
            f,
            "mcs_spin_lock"
                | "pv_wait_node"
                | "pv_wait_head_or_lock"
                | "osq_lock"
                | "osq_unlock"
                | "osq_wait_next"
                | "mutex_spin_on_owner"
                | "mutex_optimistic_spin"
                | "__ww_mutex_lock"
                | "rwsem_spin_on_owner"
                | "rwsem_optimistic_spin"
                | "rwsem_can_spin_on_owner"
                | "rwsem_down_read_slowpath"
                | "rwsem_down_write_slowpath"
                | "queued_read_lock_slowpath"
                | "queued_write_lock_slowpath"
                | "rtmutex_spin_on_owner"
                | "rt_mutex_adaptive_spinwait"
                | "virt_spin_lock"
                | "resilient_tas_spin_lock"
        )
}

/// Functions in which a thread sleeps while it waits for a kernel lock: those between the tracepoints `contention_begin`
/// and `contention_end` of locks that sleep. A compiler's suffix is left out.
pub fn sleeps_for_lock(f: &str) -> bool {
    matches!(
        f.split('.').next().unwrap_or(f),
        "__mutex_lock"
            | "__ww_mutex_lock"
            | "__mutex_lock_common"
            | "rwsem_down_read_slowpath"
            | "rwsem_down_write_slowpath"
            | "percpu_rwsem_wait"
            | "percpu_down_write"
            | "__down"
            | "__down_common"
            | "___down_common"
            | "__down_interruptible"
            | "__down_killable"
            | "__down_timeout"
            | "rt_mutex_slowlock"
            | "rt_mutex_slowlock_block"
            | "__rt_mutex_slowlock_locked"
            | "rtlock_slowlock_locked"
            | "rwbase_read_lock"
            | "rwbase_write_lock"
    )
}

/// Functions that flush TLBs, this CPU's or those of others.
pub fn is_tlb(f: &str) -> bool {
    f.starts_with("flush_tlb_")
        || f.starts_with("__flush_tlb_")
        || f.contains("_flush_tlb_multi")
        || matches!(
            f,
            "arch_tlbbatch_flush"
                | "try_to_unmap_flush"
                | "try_to_unmap_flush_dirty"
                | "tlb_flush_mmu_tlbonly"
                | "tlb_flush"
                | "ptep_clear_flush"
                | "pmdp_huge_clear_flush"
                | "native_flush_tlb_one_user"
                | "native_flush_tlb_global"
                | "native_flush_tlb_local"
                | "broadcast_tlb_flush"
        )
}

/// Functions that zero pages: for a huge page, one that calls those for small pages.
pub fn is_zeroing(f: &str) -> bool {
    f.starts_with("clear_page_") && !f.starts_with("clear_page_dirty")
        || f.starts_with("clear_huge_page")
        || matches!(
            f,
            "clear_page"
                | "__pi_clear_page"
                | "clear_subpage"
                | "clear_gigantic_page"
                | "folio_zero_user"
                | "clear_user_page"
                | "clear_user_highpage"
                | "clear_highpage"
                | "kernel_init_pages"
                | "mte_zero_clear_page_tags"
        )
}

fn is_switch(f: &str) -> bool {
    matches!(
        f,
        "__schedule"
            | "schedule"
            | "schedule_idle"
            | "schedule_tail"
            | "finish_task_switch"
            | "__switch_to"
            | "__switch_to_asm"
            | "context_switch"
            | "switch_mm_irqs_off"
            | "preempt_schedule"
            | "preempt_schedule_common"
            | "preempt_schedule_irq"
            | "pick_next_task"
            | "pick_next_task_fair"
    )
}

fn is_fault(f: &str) -> bool {
    matches!(
        f,
        "handle_mm_fault" | "do_user_addr_fault" | "do_page_fault" | "faultin_page" | "fixup_user_fault"
    )
}

fn is_exec(f: &str) -> bool {
    f.contains("_sys_execve")
        || matches!(f, "do_execveat_common" | "bprm_execve" | "load_elf_binary" | "begin_new_exec")
}

fn is_exit(f: &str) -> bool {
    matches!(f, "do_exit" | "do_group_exit" | "exit_mmap" | "mmput" | "__mmput" | "exit_mm" | "release_task")
}

fn is_idle(f: &str) -> bool {
    matches!(f, "do_idle" | "cpu_startup_entry" | "default_idle_call" | "cpuidle_enter" | "play_idle_precise")
}

/// Functions that kernel threads run in. A forked child has none of them at the bottom of its stack.
fn is_thread_function(f: &str) -> bool {
    matches!(
        f,
        "kthread" | "worker_thread" | "io_wq_worker" | "io_sq_thread" | "vhost_task_fn" | "kernel_init"
    )
}

/// The system call that a kernel stack, innermost first, belongs to, whatever it is doing there; `entry` is
/// the path into and out of the kernel.
pub fn system_call<'a>(stack: &[&'a str]) -> Option<&'a str> {
    syscall(stack)
}

/// The system call of a context: the outermost frame that names one, otherwise the frame that the dispatcher
/// called (a handler may end in a tail call and leave no frame).
fn syscall<'a>(context: &[&'a str]) -> Option<&'a str> {
    if let Some(name) = context.iter().rev().find_map(|f| handler(base(f))) {
        return Some(name);
    }
    let dispatch = context.iter().position(|f| is_dispatch(base(f)))?;
    let Some(&called) = dispatch.checked_sub(1).and_then(|i| context.get(i)) else { return Some("entry") };
    let called = base(called);
    Some(match called {
        "vm_mmap_pgoff" | "ksys_mmap_pgoff" => "mmap",
        "__vm_munmap" => "munmap",
        "kernel_clone" => "clone",
        "kernel_wait4" => "wait4",
        "do_sys_openat2" | "do_sys_open" => "openat",
        "do_group_exit" => "exit_group",
        "ksys_dup3" => "dup3",
        _ if is_entry_work(called) => "entry",
        _ => ["ksys_", "__sys_", "do_sys_", "do_"]
            .iter()
            .find_map(|p| called.strip_prefix(p))
            .unwrap_or(called),
    })
}

fn handler(f: &str) -> Option<&str> {
    const ARCH: [&str; 9] = [
        "__x64_sys_",
        "__arm64_sys_",
        "__se_sys_",
        "__do_sys_",
        "__ia32_sys_",
        "__ia32_compat_sys_",
        "__arm64_compat_sys_",
        "__se_compat_sys_",
        "__do_compat_sys_",
    ];
    let name = ARCH.iter().find_map(|p| f.strip_prefix(p))?;
    // The kernel's names of calls with another well-known name.
    Some(match name {
        "newfstat" => "fstat",
        "newstat" => "stat",
        "newlstat" => "lstat",
        "newfstatat" => "fstatat",
        "newuname" => "uname",
        "sendfile64" => "sendfile",
        _ => name,
    })
}

fn is_dispatch(f: &str) -> bool {
    f.starts_with("entry_SYSCALL_") || f.starts_with("entry_SYSENTER_") || f.starts_with("entry_INT80_") || {
        matches!(
            f,
            "do_syscall_64"
                | "x64_sys_call"
                | "ia32_sys_call"
                | "do_int80_emulation"
                | "do_fast_syscall_32"
                | "invoke_syscall"
                | "el0_svc_common"
                | "do_el0_svc"
                | "el0_svc"
        )
    }
}

fn is_entry_work(f: &str) -> bool {
    f.starts_with("syscall_")
        || f.starts_with("exit_to_user_mode")
        || f.starts_with("__audit_syscall")
        || f.starts_with("entry_")
        || f.starts_with("__get_user_")
        || matches!(
            f,
            "srso_alias_return_thunk" | "__x86_return_thunk" | "fpregs_restore_userregs" | "do_notify_resume"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_have_their_class() {
        let mut lines = 0;
        for line in include_str!("testdata/kernel_stacks.txt").lines() {
            let Some((class, stack)) = line.split_once(": ").filter(|_| !line.starts_with('#')) else {
                continue;
            };
            let frames: Vec<&str> = stack.split_whitespace().collect();
            assert_eq!(format!("{:?}", kernel_class(&frames)), class, "{stack}");
            lines += 1;
        }
        assert!(lines > 40, "read only {lines} stacks");
        assert_eq!(kernel_class(&[]), KernelClass::Other);
        for probe in [
            &["irqentry_exit_to_user_mode", "exc_debug_user", "asm_exc_debug"][..],
            &["handler_chain", "uprobe_notify_resume", "irqentry_exit_to_user_mode", "asm_exc_int3"],
            &["uretprobe_instance_free", "__x64_sys_uretprobe", "do_syscall_64"],
        ] {
            assert_eq!(kernel_class(probe), KernelClass::Probe, "{probe:?}");
        }
        let every_program = ["uprobe_mmap", "mmap_region", "do_mmap", "__x64_sys_mmap", "do_syscall_64"];
        assert_eq!(kernel_class(&every_program), KernelClass::Syscall("mmap"));
        assert_eq!(kernel_class(&["fixup_bug", "exc_invalid_op", "asm_exc_invalid_op"]), KernelClass::Other);
    }
}
