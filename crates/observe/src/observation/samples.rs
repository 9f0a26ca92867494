//! What samples and stacks say, with names.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use ncpu_schema::{CpuState, Layer, SampleClass, StackKind, samples, stacks};
use ncpu_symbols::{KernelClass, Pythons, is_tlb, kernel_class};
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
    if Pythons::is_function(leaf) {
        return false;
    }
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
        KernelClass::Probe => (SampleClass::Probe, leaf),
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

/// What one thread was executing, with names.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadStack {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name, then frames, outermost first, `;` between them.
    pub stack: Arc<str>,
    /// The layer that it is in.
    pub layer: Layer,
    /// Time with this stack (sampled).
    pub seconds: f64,
}

/// Samples not yet given names.
#[derive(Default)]
pub(crate) struct Samples {
    pending: HashMap<(CpuState, Stack), u64>,
    /// Those of the last tables by thread, where they are wanted.
    by_thread: Option<Vec<ThreadStack>>,
}

impl Samples {
    pub fn add(&mut self, at: CpuState, stack: Stack) {
        // One row for all threads of a name: thread numbers mean nothing in a flame graph.
        let tid = if self.by_thread.is_some() { stack.tid } else { 0 };
        *self.pending.entry((at, Stack { tid, ..stack })).or_default() += 1;
    }

    /// Keeps from now on what each thread was executing until the next tables.
    pub fn keep_threads(&mut self) {
        self.by_thread = Some(Vec::new());
    }

    /// What threads were executing before the last tables, taken out.
    pub fn take_threads(&mut self) -> Vec<ThreadStack> {
        self.by_thread.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The tables `samples` and `stacks` of what came since the last call, up to `t`. `process` names a process.
    pub fn tables(
        &mut self,
        t: f64,
        symbols: &mut Symbols,
        hz: u32,
        process: &dyn Fn(u32) -> Option<String>,
    ) -> (Table, Table) {
        let mut classes: HashMap<(CpuState, SampleClass, String, String), u64> = HashMap::new();
        // By kind, process, thread, stack and files.
        let mut stacks: HashMap<(StackKind, [String; 4]), u64> = HashMap::new();
        let seconds = |n: u64| n as f64 / f64::from(hz.max(1));
        if let Some(by_thread) = &mut self.by_thread {
            by_thread.clear();
        }
        for ((at, stack), n) in self.pending.drain() {
            let kernel = symbols.kernel(&stack.kernel);
            let user = symbols.user(stack.tgid, &stack.user);
            let names: Vec<&str> = kernel.iter().map(|f| &**f).collect();
            // A function of Python says more than that of the interpreter which works for it.
            let interpreter = symbols.of_interpreter(stack.tgid, &stack.user);
            let own = &user[if interpreter.start == 0 { interpreter.end } else { 0 }..];
            let (class, detail) = match names.is_empty() || symbols.kernel_symbols().is_some() {
                true => classify(&names, own),
                false => (SampleClass::Kernel, "".into()),
            };
            *classes.entry((at, class, detail.to_string(), stack.comm.clone())).or_default() += n;
            if matches!(at, CpuState::Program | CpuState::Spin) {
                let spins = at == CpuState::Spin || class == SampleClass::LockSpin;
                let kind = if spins { StackKind::Spin } else { StackKind::OnCpu };
                let folded = fold(&stack.comm, &user, &kernel);
                if let Some(by_thread) = &mut self.by_thread {
                    let layer = if spins { Layer::KernelSpin } else { class.into() };
                    let (pid, tid, stack) = (stack.tgid, stack.tid, folded.as_str().into());
                    by_thread.push(ThreadStack { pid, tid, stack, layer, seconds: seconds(n) });
                }
                let process = process(stack.tgid).unwrap_or_else(|| stack.comm.clone());
                let binaries = symbols.binaries(stack.tgid, &stack.user, user.len());
                *stacks.entry((kind, [process, stack.comm, folded, binaries])).or_default() += n;
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
                time: Some(t),
            });
        }
        let mut folded = stacks::Rows::new();
        for ((kind, [process, thread, stack, binaries]), n) in stacks {
            folded.push(stacks::Row {
                kind: Some(kind),
                stack: stack.into(),
                seconds: Some(seconds(n)),
                samples: Some(n),
                time: Some(t),
                process: process.into(),
                thread: thread.into(),
                wait: None::<&str>.into(),
                binaries: Some(binaries).filter(|files| !files.is_empty()).into(),
            });
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

    #[test]
    fn threads_of_one_name_are_told_apart_where_that_is_wanted() {
        let stack = |tid| Stack { tgid: 7, tid, comm: "worker".into(), user: vec![16], ..Stack::default() };
        let mut symbols = Symbols::new();
        let mut samples = Samples::default();
        samples.add(CpuState::Program, stack(8));
        samples.add(CpuState::Program, stack(9));
        assert_eq!(samples.tables(1.0, &mut symbols, 10, &|_| None).1.num_rows(), 1);
        assert!(samples.take_threads().is_empty());
        samples.keep_threads();
        for tid in [8, 9, 9] {
            samples.add(CpuState::Program, stack(tid));
        }
        let (_, table) = samples.tables(1.0, &mut symbols, 10, &|_| None);
        assert_eq!((table.num_rows(), table.number(0, "seconds")), (1, Some(0.3)), "the table is as before");
        let mut threads = samples.take_threads();
        threads.sort_by_key(|thread| thread.tid);
        let told: Vec<_> = threads.iter().map(|t| (t.pid, t.tid, t.seconds)).collect();
        assert_eq!(told, [(7, 8, 0.1), (7, 9, 0.2)]);
        assert!(threads[0].stack.starts_with("worker;"), "{}", threads[0].stack);
        samples.tables(1.0, &mut symbols, 10, &|_| None);
        assert!(samples.take_threads().is_empty(), "each is told once");
    }
}
