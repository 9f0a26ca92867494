//! What samples and stacks say, with names.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ncpu_table::Table;

use super::locks::is_lock_function;
use super::tables;
use crate::crosscalls::caller::asked;
use crate::engine::{Stack, Where};
use crate::symbols::{Kernel, KernelClass, ProcMaps, User, is_tlb, kernel_class};

/// Names for addresses, with what they cost paid once.
pub(crate) struct Symbols {
    kernel: Option<Arc<Kernel>>,
    loaded: bool,
    names: HashMap<u64, Arc<str>>,
    maps: ProcMaps,
    user: User,
    images: HashMap<u32, String>,
}

impl Symbols {
    pub fn new() -> Symbols {
        Symbols {
            kernel: None,
            loaded: false,
            names: HashMap::new(),
            maps: ProcMaps::new(Path::new("/")),
            user: User::new(),
            images: HashMap::new(),
        }
    }

    /// Reads the kernel's symbols; the note says why there are none.
    pub fn load_kernel(&mut self) -> Option<String> {
        self.loaded = true;
        match Kernel::load(Path::new("/")) {
            Ok(kernel) => {
                self.kernel = Some(Arc::new(kernel));
                None
            }
            Err(e) => Some(format!("kernel functions have no names: {e}")),
        }
    }

    /// Whether [`Symbols::load_kernel`] was called, whatever came of it.
    pub fn kernel_loaded(&self) -> bool {
        self.loaded
    }

    /// The kernel's symbols, where they could be read.
    pub fn kernel_symbols(&self) -> Option<Arc<Kernel>> {
        self.kernel.clone()
    }

    /// Remembers a process's mappings while it lives. A new name means that it has run another
    /// program since.
    pub fn note(&mut self, tgid: u32, comm: &str) {
        if tgid == 0 || self.images.get(&tgid).is_some_and(|c| c == comm) {
            return;
        }
        self.maps.note_process(tgid);
        self.images.insert(tgid, comm.to_string());
    }

    /// Kernel frames, innermost first. Return addresses lie behind their call, so callers' are
    /// looked up one byte before.
    pub fn kernel(&mut self, frames: &[u64]) -> Vec<Arc<str>> {
        let kernel = self.kernel.as_ref();
        frames
            .iter()
            .enumerate()
            .map(|(i, &addr)| {
                let addr = addr - u64::from(i > 0);
                self.names
                    .entry(addr)
                    .or_insert_with(|| match kernel.and_then(|k| k.lookup(addr)) {
                        Some((name, _)) => name.into(),
                        None => format!("{addr:#x}").into(),
                    })
                    .clone()
            })
            .collect()
    }

    /// The static variable at an address, where the program's symbols have it.
    pub fn data(&mut self, tgid: u32, address: u64) -> Option<String> {
        self.user.variable(&self.maps, tgid, address)
    }

    pub fn user(&mut self, tgid: u32, frames: &[u64]) -> Vec<Arc<str>> {
        if frames.is_empty() {
            return Vec::new();
        }
        let frames: Vec<u64> =
            frames.iter().enumerate().map(|(i, &a)| a.saturating_sub(u64::from(i > 0))).collect();
        self.user.symbolize(&mut self.maps, tgid, &frames)
    }
}

/// Kernel frames without those of the probe itself, which come first in a tracepoint's stack.
pub(crate) fn without_probe(frames: &[Arc<str>]) -> &[Arc<str>] {
    let probe = frames.iter().take(8).rposition(|f| {
        f.starts_with("bpf_")
            || f.starts_with("__traceiter_")
            || f.starts_with("__bpf_")
            || f.starts_with("0x")
    });
    &frames[probe.map_or(0, |i| i + 1)..]
}

/// Functions of libncpu that wait for a lock, or are about to.
const NCPU_WAITS: [&str; 6] = ["raw_mutex::", "raw_rwlock::", "turn::", "backoff::", "mcs::", "numa_lock::"];

/// User functions that burn CPU waiting for a lock.
fn is_user_spin(leaf: &str) -> bool {
    if let Some(at) = leaf.find("ncpu::") {
        let name = &leaf[at + 6..];
        return NCPU_WAITS.iter().any(|w| name.starts_with(w)) && !name.contains("unlock");
    }
    ["spin_lock", "s_lock", "spin_delay", "lock_slow", "LockSlow", "spin_wait", "spinlock", "SpinLock"]
        .iter()
        .any(|s| leaf.contains(s))
}

/// The class and detail columns of table `samples`.
fn classify<'a>(kernel: &[&'a str], user: &'a [Arc<str>]) -> (&'static str, Cow<'a, str>) {
    if kernel.is_empty() {
        let leaf = user.first().map_or("[unknown]", |f| f);
        return (if is_user_spin(leaf) { "user spin" } else { "user" }, leaf.into());
    }
    let leaf = kernel[0];
    let (class, detail) = match kernel_class(kernel) {
        // Who wants the lock tells more than which slow path it waits in.
        KernelClass::LockSpin => {
            ("lock spin", *kernel.iter().find(|f| !is_lock_function(f)).unwrap_or(&leaf))
        }
        KernelClass::TlbShootdown => {
            let (of, caller) = behind_shootdown(kernel);
            return (
                if waits_for_cpus(kernel) { "tlb wait" } else { "tlb" },
                format!("{of} ({caller})").into(),
            );
        }
        KernelClass::Zeroing => ("zeroing", leaf),
        KernelClass::ContextSwitch => ("switch", leaf),
        KernelClass::Softirq => ("softirq", leaf),
        KernelClass::Interrupt => ("interrupt", leaf),
        KernelClass::Fault => ("fault", leaf),
        KernelClass::Exec => ("exec", leaf),
        KernelClass::Exit => ("exit", leaf),
        KernelClass::Syscall(name) => ("syscall", name),
        KernelClass::Idle => ("idle", leaf),
        KernelClass::KernelThread => ("kernel thread", leaf),
        KernelClass::Other => ("other", leaf),
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

/// `outermost;…;leaf` behind the process's name, as flame graphs take it.
pub(crate) fn fold(process: &str, user: &[Arc<str>], kernel: &[Arc<str>]) -> String {
    let mut out = clean(process);
    for frame in user.iter().rev() {
        out.push(';');
        out.push_str(&clean(frame));
    }
    for frame in kernel.iter().rev() {
        out.push(';');
        out.push_str(&clean(frame));
        out.push_str("_[k]");
    }
    out
}

/// `;` parts frames and a line break ends a stack, so neither may be in a name.
pub(super) fn clean(name: &str) -> String {
    name.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }).collect()
}

/// Samples not yet given names.
#[derive(Default)]
pub(super) struct Samples {
    pending: HashMap<(Where, Stack), u64>,
}

impl Samples {
    pub fn add(&mut self, at: Where, stack: Stack) {
        // One row for all threads of a name: the thread's number tells nothing in a flame graph.
        *self.pending.entry((at, Stack { tid: 0, ..stack })).or_default() += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The tables `samples` and `stacks` of what came since the last call.
    pub fn tables(&mut self, symbols: &mut Symbols, hz: u32) -> (Table, Table) {
        let mut classes: HashMap<(Where, &'static str, String, String), u64> = HashMap::new();
        let mut stacks: HashMap<(&'static str, String), u64> = HashMap::new();
        for ((at, stack), n) in self.pending.drain() {
            let kernel = symbols.kernel(&stack.kernel);
            let user = symbols.user(stack.tgid, &stack.user);
            let names: Vec<&str> = kernel.iter().map(|f| &**f).collect();
            let (class, detail) = classify(&names, &user);
            *classes.entry((at, class, detail.to_string(), stack.comm.clone())).or_default() += n;
            if matches!(at, Where::Target | Where::Spin) {
                let kind = if at == Where::Spin || class == "lock spin" { "spin" } else { "on-cpu" };
                *stacks.entry((kind, fold(&stack.comm, &user, &kernel))).or_default() += n;
            }
        }
        let mut samples = tables::samples();
        for ((at, class, detail, process), n) in classes {
            samples.row().text(at.word()).text(class).text(detail).text(process).int(n);
        }
        let mut folded = tables::stacks();
        for ((kind, stack), n) in stacks {
            folded.row().text(kind).text(stack).float(n as f64 / f64::from(hz.max(1))).int(n);
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
            ("tlb wait", "munmap (tlb_finish_mmu)".into())
        );
        assert_eq!(
            class(
                "flush_tlb_mm_range ptep_clear_flush do_wp_page handle_mm_fault exc_page_fault asm_exc_page_fault"
            ),
            ("tlb", "fault (do_wp_page)".into())
        );
        assert_eq!(class("flush_tlb_func"), ("tlb", "other (flush_tlb_func)".into()));
    }
}
