//! The function that requested a cross-call, from the sender's stack.

use std::sync::Arc;

/// Functions that carry out or forward a cross-call: the caller is the first frame outside this list.
fn passes_on(name: &str) -> bool {
    const STARTS: [&str; 15] = [
        "smp_call_function",
        "__smp_call_",
        "on_each_cpu",
        "native_flush_tlb_",
        "kvm_flush_tlb_",
        "hyperv_flush_tlb_",
        "xen_flush_tlb_",
        "flush_tlb_",
        "__flush_tlb_",
        "native_smp_",
        "irq_work_",
        "__irq_work_",
        "try_to_wake_up",
        "ttwu_",
        "wake_up_",
    ];
    let exact = matches!(
        name,
        "generic_exec_single"
            | "send_call_function_single_ipi"
            | "ptep_clear_flush"
            | "tlb_flush_mmu"
            | "tlb_flush_mmu_tlbonly"
            | "resched_curr"
            | "__resched_curr"
            | "resched_curr_lazy"
            | "wakeup_preempt"
            | "check_preempt_curr"
            | "check_preempt_wakeup_fair"
            | "check_preempt_wakeup"
            | "default_wake_function"
            | "autoremove_wake_function"
            | "wake_q_add"
            | "call_function_single_prep_ipi"
            | "x2apic_send_IPI"
            | "smp_cross_call"
            | "smp_send_reschedule"
            | "arch_smp_send_reschedule"
            | "arch_send_call_function_single_ipi"
            | "arch_send_call_function_ipi_mask"
            | "arch_irq_work_raise"
    );
    exact || STARTS.iter().any(|s| name.starts_with(s))
}

/// The kernel function that requested a cross-call: the first one after those that carry it out. Frames are
/// leaf first and without those of the probe.
pub fn asked<'a>(frames: impl Iterator<Item = &'a str> + Clone) -> &'a str {
    // A sample's leaf may be a helper of these functions.
    let inside = frames.clone().skip_while(|f| !passes_on(f)).find(|f| !passes_on(f));
    // Without suffixes from the compiler, such as `.isra.0`.
    inside.or_else(|| frames.clone().next()).map_or("[unknown]", |f| f.split('.').next().unwrap_or(f))
}

/// The program's function that entered the kernel: the innermost one except the C library's wrapper with the
/// name of the system call.
pub fn entered<'a>(user: &'a [Arc<str>], call: &str) -> Option<&'a str> {
    let entry = |f: &str| {
        let name = f.trim_start_matches("__GI_").trim_start_matches('_');
        name == call || name == "syscall" || name.strip_suffix("64") == Some(call)
    };
    let own = user.iter().find(|f| !entry(f) && !f.starts_with("[unknown"));
    own.or(user.first()).map(|f| &**f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &str) -> Vec<Arc<str>> {
        names.split(' ').map(Into::into).collect()
    }

    #[test]
    fn who_asked_is_behind_those_that_pass_it_on() {
        let of = |stack: &'static str| asked(stack.split_whitespace());
        assert_eq!(
            of("native_flush_tlb_multi flush_tlb_mm_range tlb_finish_mmu vms_clear_ptes __x64_sys_munmap"),
            "tlb_finish_mmu"
        );
        assert_eq!(
            of("smp_call_function_many_cond on_each_cpu_cond_mask membarrier_private_expedited"),
            "membarrier_private_expedited"
        );
        assert_eq!(
            of("resched_curr wakeup_preempt ttwu_do_activate try_to_wake_up wake_up_q futex_wake.isra.0"),
            "futex_wake"
        );
        assert_eq!(
            of("native_write_msr x2apic_send_IPI smp_call_function_many_cond flush_tlb_mm_range do_wp_page"),
            "do_wp_page"
        );
        // AArch64.
        assert_eq!(
            of(
                "smp_cross_call arch_send_call_function_single_ipi send_call_function_single_ipi __smp_call_single_queue \
                ttwu_queue_wakelist try_to_wake_up wake_up_q futex_wake do_futex __arm64_sys_futex invoke_syscall"
            ),
            "futex_wake"
        );
        assert_eq!(of("flush_tlb_all"), "flush_tlb_all", "nothing else is known");
        assert_eq!(of("sched_balance_trigger scheduler_tick"), "sched_balance_trigger");
        assert_eq!(of(""), "[unknown]");
    }

    #[test]
    fn the_c_librarys_entry_is_passed_over() {
        assert_eq!(entered(&frames("__munmap worker start_thread"), "munmap"), Some("worker"));
        assert_eq!(entered(&frames("__GI_madvise"), "madvise"), Some("__GI_madvise"));
        assert_eq!(entered(&frames("syscall [unknown] main"), "membarrier"), Some("main"));
        assert_eq!(entered(&[], "munmap"), None);
    }
}
