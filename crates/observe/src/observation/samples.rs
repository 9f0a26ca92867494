//! What samples and stacks say, with names.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use ncpu_schema::{CpuState, SampleClass, StackKind, samples, stacks};
use ncpu_symbols::{KernelClass, is_tlb, kernel_class};
use ncpu_table::Table;

use super::locks::is_lock_function;
use crate::bpf_support::Stack;
use crate::names::caller::asked;
use crate::names::{Symbols, fold};

/// Where libncpu's locks are.
const NCPU_LOCKS: &str = "libncpu::locks::";

/// Functions of libncpu that wait for a lock, or are about to.
const NCPU_WAITS: [&str; 6] = ["raw_mutex::", "raw_rwlock::", "turn::", "backoff::", "mcs::", "numa_lock::"];

/// User functions that burn CPU waiting for a lock.
fn is_user_spin(leaf: &str) -> bool {
    if let Some(at) = leaf.find(NCPU_LOCKS) {
        let name = &leaf[at + NCPU_LOCKS.len()..];
        return NCPU_WAITS.iter().any(|w| name.starts_with(w)) && !name.contains("unlock");
    }
    ["spin_lock", "s_lock", "spin_delay", "lock_slow", "LockSlow", "spin_wait", "spinlock", "SpinLock"]
        .iter()
        .any(|s| leaf.contains(s))
}

/// The class and detail columns of table `samples`.
fn classify<'a>(kernel: &[&'a str], user: &'a [Arc<str>]) -> (SampleClass, Cow<'a, str>) {
    if kernel.is_empty() {
        let leaf = user.first().map_or("[unknown]", |f| f);
        return (if is_user_spin(leaf) { SampleClass::UserSpin } else { SampleClass::User }, leaf.into());
    }
    let leaf = kernel[0];
    let (class, detail) = match kernel_class(kernel) {
        // The function that wants the lock says more than the slow path it waits in.
        KernelClass::LockSpin => {
            (SampleClass::LockSpin, *kernel.iter().find(|f| !is_lock_function(f)).unwrap_or(&leaf))
        }
        KernelClass::TlbShootdown => {
            let (of, caller) = behind_shootdown(kernel);
            return (
                if waits_for_cpus(kernel) { SampleClass::TlbWait } else { SampleClass::Tlb },
                format!("{of} ({caller})").into(),
            );
        }
        KernelClass::Zeroing => (SampleClass::Zeroing, leaf),
        KernelClass::ContextSwitch => (SampleClass::Switch, leaf),
        KernelClass::Softirq => (SampleClass::Softirq, leaf),
        KernelClass::Interrupt => (SampleClass::Interrupt, leaf),
        KernelClass::Fault => (SampleClass::Fault, leaf),
        KernelClass::Exec => (SampleClass::Exec, leaf),
        KernelClass::Exit => (SampleClass::Exit, leaf),
        KernelClass::Syscall(name) => (SampleClass::Syscall, name),
        KernelClass::Idle => (SampleClass::Idle, leaf),
        KernelClass::KernelThread => (SampleClass::KernelThread, leaf),
        KernelClass::Other => (SampleClass::Other, leaf),
    };
    (class, detail.into())
}

/// Whether a CPU sends a cross-call and waits for the others to answer. The timer cannot strike while it
/// flushes its own TLB with interrupts off, and strikes here right behind: that time is in this too.
fn waits_for_cpus(kernel: &[&str]) -> bool {
    kernel.iter().any(|f| f.starts_with("smp_call_function_") || f.contains("csd_lock_wait"))
}

/// What a shootdown is for: the system call, or what else the CPU was at, and the kernel function that
/// asked.
fn behind_shootdown<'a>(kernel: &[&'a str]) -> (&'a str, &'a str) {
    let rest: Vec<&str> = kernel.iter().copied().filter(|f| !is_tlb(f)).collect();
    let of = match kernel_class(&rest) {
        KernelClass::Syscall(name) => name,
        KernelClass::Fault => "fault",
        KernelClass::Exec => "execve",
        KernelClass::Exit => "exit",
        KernelClass::KernelThread => "kernel thread",
        _ => "other",
    };
    (of, asked(kernel.iter().copied()))
}

/// Samples not yet given names.
#[derive(Default)]
pub(crate) struct Samples {
    pending: HashMap<(CpuState, Stack), u64>,
}

impl Samples {
    pub fn add(&mut self, at: CpuState, stack: Stack) {
        // One row for all threads of a name: thread numbers mean nothing in a flame graph.
        *self.pending.entry((at, Stack { tid: 0, ..stack })).or_default() += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The tables `samples` and `stacks` of what came since the last call.
    pub fn tables(&mut self, symbols: &mut Symbols, hz: u32) -> (Table, Table) {
        let mut classes: HashMap<(CpuState, SampleClass, String, String), u64> = HashMap::new();
        let mut stacks: HashMap<(StackKind, String), u64> = HashMap::new();
        for ((at, stack), n) in self.pending.drain() {
            let kernel = symbols.kernel(&stack.kernel);
            let user = symbols.user(stack.tgid, &stack.user);
            let names: Vec<&str> = kernel.iter().map(|f| &**f).collect();
            let (class, detail) = match names.is_empty() || symbols.kernel_symbols().is_some() {
                true => classify(&names, &user),
                false => (SampleClass::Kernel, "".into()),
            };
            *classes.entry((at, class, detail.to_string(), stack.comm.clone())).or_default() += n;
            if matches!(at, CpuState::Program | CpuState::Spin) {
                let spins = at == CpuState::Spin || class == SampleClass::LockSpin;
                let kind = if spins { StackKind::Spin } else { StackKind::OnCpu };
                *stacks.entry((kind, fold(&stack.comm, &user, &kernel))).or_default() += n;
            }
        }
        let mut samples = samples::Rows::new();
        for ((at, class, detail, process), n) in classes {
            samples.push(samples::Row {
                at: Some(at),
                class: Some(class),
                detail: detail.into(),
                process: process.into(),
                samples: Some(n),
            });
        }
        let mut folded = stacks::Rows::new();
        for ((kind, stack), n) in stacks {
            let seconds = Some(n as f64 / f64::from(hz.max(1)));
            folded.push(stacks::Row { kind: Some(kind), stack: stack.into(), seconds, samples: Some(n) });
        }
        (samples.finish(), folded.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shootdown_is_told_by_what_it_is_for() {
        let class = |stack: &str| {
            let frames: Vec<&str> = stack.split(' ').collect();
            let (class, detail) = classify(&frames, &[]);
            (class, detail.into_owned())
        };
        assert_eq!(
            class(
                "smp_call_function_many_cond on_each_cpu_cond_mask flush_tlb_mm_range tlb_finish_mmu \
                 vms_clear_ptes.part.0 do_vmi_munmap __vm_munmap __x64_sys_munmap do_syscall_64"
            ),
            (SampleClass::TlbWait, "munmap (tlb_finish_mmu)".into())
        );
        assert_eq!(
            class(
                "flush_tlb_mm_range ptep_clear_flush do_wp_page handle_mm_fault exc_page_fault asm_exc_page_fault"
            ),
            (SampleClass::Tlb, "fault (do_wp_page)".into())
        );
        assert_eq!(class("flush_tlb_func"), (SampleClass::Tlb, "other (flush_tlb_func)".into()));
    }
}
