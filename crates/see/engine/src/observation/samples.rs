//! Tables of samples and stacks, with names.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ncpu_instructions::Registers;
use ncpu_schema::{CpuState, IdleReason, Layer, SampleClass, StackKind, samples, stacks};
use ncpu_symbols::{KernelClass, Patterns, Pythons, UserWait, is_tlb, is_zeroing, kernel_class, name_parts};
use ncpu_table::Table;

use super::call_results::CallResults;
use super::locks::is_lock_function;
use super::user_code::{Met, UserCode};
use crate::bpf_support::Stack;
use crate::names::caller::asked;
use crate::names::{Symbols, fold};

/// How far from an instruction with which a loop pauses the rest of that loop may be, in bytes. Such loops are short: they look
/// at a word, count, and pause.
const LOOP: u64 = 24;

/// The class of user code that spins, and the name of what it waits for. Python's functions never spin.
fn spinning(patterns: &Patterns, user: &[Arc<str>], pauses: bool) -> Option<(SampleClass, String)> {
    let leaf = user.first().filter(|leaf| !Pythons::is_function(leaf))?;
    let names: Vec<&str> = user.iter().take(LOOKED_AT).map(|f| &**f).collect();
    let told = patterns.spins_for(&names, pauses)?;
    let class = match told.map_or(UserWait::Unknown, |t| t.wait) {
        UserWait::Lock => SampleClass::UserSpin,
        UserWait::Condition | UserWait::Join | UserWait::Barrier => SampleClass::WaitSpin,
        UserWait::Semaphore | UserWait::Unknown => SampleClass::Spin,
    };
    let bare = |frame: &str| match frame.strip_prefix("[unknown ") {
        Some(file) => file.trim_end_matches(']').to_string(),
        None => frame.to_string(),
    };
    let detail = match told {
        Some(told) => format!("{} ({})", patterns.list()[told.pattern].name, bare(names[told.frame])),
        None => leaf.to_string(),
    };
    Some((class, detail))
}

/// Whether user code is in the C library's function that gives the CPU to others.
fn yields(user: &[Arc<str>]) -> bool {
    user.first().is_some_and(|leaf| {
        let name = name_parts(leaf);
        matches!(name[..], ["sched_yield" | "__sched_yield" | "__GI_sched_yield" | "__GI___sched_yield"])
    })
}

/// Frames of user code that are looked at to know what it spins for.
const LOOKED_AT: usize = 16;

/// The class and detail columns of table `samples`.
fn classify<'a>(
    kernel: &[&'a str],
    user: &'a [Arc<str>],
    pauses: bool,
    patterns: &Patterns,
) -> (SampleClass, Cow<'a, str>) {
    let spins = |pauses| spinning(patterns, user, pauses).map(|(class, detail)| (class, detail.into()));
    let Some(&leaf) = kernel.first() else {
        let leaf = user.first().map_or("[unknown]", |f| f);
        return spins(pauses).unwrap_or((SampleClass::User, leaf.into()));
    };
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
        // The outermost: it says whether the page is a huge one.
        KernelClass::Zeroing => {
            (SampleClass::Zeroing, *kernel.iter().rfind(|f| is_zeroing(f)).unwrap_or(&leaf))
        }
        KernelClass::ContextSwitch => (SampleClass::Switch, leaf),
        KernelClass::Softirq => (SampleClass::Softirq, leaf),
        KernelClass::Interrupt => (SampleClass::Interrupt, leaf),
        KernelClass::Fault => (SampleClass::Fault, leaf),
        KernelClass::Exec => (SampleClass::Exec, leaf),
        KernelClass::Exit => (SampleClass::Exit, leaf),
        // Code that spins gives the CPU up meanwhile: that call is part of the spinning. Other callers stay system calls.
        KernelClass::Syscall(name @ ("sched_yield" | "entry")) if yields(user) => match spins(true) {
            Some((class, detail)) if class != SampleClass::Spin => return (class, detail),
            _ => (SampleClass::Syscall, name),
        },
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

/// The cause of a shootdown: the system call, or another activity of the CPU, and the kernel function that
/// asked for it.
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

/// The code that one thread was executing, with names.
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

/// Samples with one stack.
#[derive(Default)]
struct Seen {
    count: u64,
    /// Of user code, where they were asked for.
    met: Vec<Met>,
}

/// Samples not yet given names.
#[derive(Default)]
pub(crate) struct Samples {
    /// By state and stack, and the futex that its system call is for.
    pending: HashMap<(CpuState, Stack, Option<u64>), Seen>,
    /// Causes of the time of user code.
    user_code: UserCode,
    /// Results of system calls.
    results: CallResults,
    /// Where user code paused in a loop, by process.
    paused: HashMap<u32, BTreeSet<u64>>,
    patterns: Patterns,
    /// Those of the last tables by process, state and class, where they are wanted.
    by_process: Option<HashMap<(u32, CpuState, SampleClass), u64>>,
    /// Those of the last tables by thread, where they are wanted.
    by_thread: Option<Vec<ThreadStack>>,
}

impl Samples {
    /// Spinning code is known by these patterns; `source_lines`: those of instructions are read from debug information.
    pub fn new(patterns: Patterns, source_lines: bool) -> Samples {
        Samples { patterns, user_code: UserCode::new(source_lines), ..Samples::default() }
    }

    /// The reason for which a CPU would idle if a thread that spins with this stack slept instead.
    pub fn spins_for(&self, user: &[Arc<str>]) -> Option<IdleReason> {
        match spinning(&self.patterns, user, true)?.0 {
            SampleClass::UserSpin => Some(IdleReason::UserLock),
            SampleClass::WaitSpin => Some(IdleReason::Serial),
            _ => Some(IdleReason::LockOrSerial),
        }
    }

    /// A sample; `pauses`: user code was at an instruction with which spinning code pauses; `futex`: that its system call is for;
    /// `registers`: those of user code, and when.
    pub fn add(
        &mut self,
        at: CpuState,
        stack: Stack,
        pauses: bool,
        futex: Option<u64>,
        registers: Option<(Box<Registers>, u64)>,
    ) {
        if let Some(&place) = stack.user.first().filter(|_| pauses) {
            self.paused.entry(stack.tgid).or_default().insert(place);
        }
        if let Some((registers, _)) = &registers {
            self.results.met(stack.tgid, registers);
        }
        // One row for all threads of a name: thread numbers mean nothing in a flame graph. The first has that of its process.
        let apart = self.by_thread.is_some() || stack.tid == stack.tgid;
        let (thread, tid) = (stack.tid, if apart { stack.tid } else { 0 });
        let seen = self.pending.entry((at, Stack { tid, ..stack }, futex)).or_default();
        seen.count += 1;
        seen.met.extend(registers.map(|(registers, time)| Met { tid: thread, time, registers }));
    }

    /// Counts from now on the samples of each process until the next tables.
    pub fn count_processes(&mut self) {
        self.by_process = Some(HashMap::new());
    }

    /// The samples of each process before the last tables, taken out.
    pub fn take_processes(&mut self) -> HashMap<(u32, CpuState, SampleClass), u64> {
        self.by_process.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Keeps from now on what each thread was executing until the next tables.
    pub fn keep_threads(&mut self) {
        self.by_thread = Some(Vec::new());
    }

    /// Takes the stacks of threads before the last tables.
    pub fn take_threads(&mut self) -> Vec<ThreadStack> {
        self.by_thread.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Keeps the code at `ip` of a process, where it was made at run time.
    pub fn keep_code(&mut self, symbols: &Symbols, tgid: u32, ip: u64) {
        self.user_code.keep_code(symbols, tgid, ip);
    }

    /// The tables `user_causes` and `data` of samples whose cause is known; `last`: those of all samples, and the table `instructions`.
    pub fn causes(
        &mut self,
        t: f64,
        last: bool,
        symbols: &mut Symbols,
        process: &dyn Fn(u32) -> Option<String>,
    ) -> Vec<Table> {
        self.user_code.tables(t, last, symbols, process)
    }

    /// The tables `samples`, `stacks` and `call_results` of what came since the last call, up to `t`. `process` names a process.
    pub fn tables(
        &mut self,
        t: f64,
        symbols: &mut Symbols,
        hz: u32,
        process: &dyn Fn(u32) -> Option<String>,
        lock: &mut dyn FnMut(&mut Symbols, u32, u64) -> Arc<str>,
    ) -> [Table; 3] {
        let mut classes: HashMap<(CpuState, SampleClass, String, String), u64> = HashMap::new();
        // By kind, state, class, process, thread, stack and files, and user lock.
        type Sampled = (StackKind, CpuState, SampleClass, [String; 4], Option<Arc<str>>);
        let mut stacks: HashMap<Sampled, u64> = HashMap::new();
        let seconds = |n: u64| n as f64 / f64::from(hz.max(1));
        if let Some(by_thread) = &mut self.by_thread {
            by_thread.clear();
        }
        let paused = std::mem::take(&mut self.paused);
        for ((at, stack, futex), Seen { count: n, met }) in self.pending.drain() {
            let in_loop = |place: &u64| {
                let places = paused.get(&stack.tgid);
                let around = place.saturating_sub(LOOP)..=place.saturating_add(LOOP);
                places.is_some_and(|places| places.range(around).next().is_some())
            };
            let pauses = stack.user.first().is_some_and(in_loop);
            let kernel = symbols.kernel(&stack.kernel);
            let user = symbols.user(stack.tgid, &stack.user);
            let names: Vec<&str> = kernel.iter().map(|f| &**f).collect();
            // A function of Python says more than that of the interpreter which works for it.
            let interpreter = symbols.of_interpreter(stack.tgid, &stack.user);
            let own = &user[if interpreter.start == 0 { interpreter.end } else { 0 }..];
            let (class, detail) = match names.is_empty() || symbols.kernel_symbols().is_some() {
                true => classify(&names, own, pauses, &self.patterns),
                false => (SampleClass::Kernel, "".into()),
            };
            // The name that its process had then: a program that another executes later has a name of its own.
            let process = match stack.tid == stack.tgid {
                true => stack.comm.clone(),
                false => process(stack.tgid).unwrap_or_else(|| stack.comm.clone()),
            };
            if let (CpuState::Program, Some(function)) = (at, user.first()) {
                met.iter().for_each(|m| self.results.add(&process, stack.tgid, function, &m.registers));
            }
            if at == CpuState::Program && class == SampleClass::User && !met.is_empty() {
                self.user_code.add(&stack, &detail, n, met);
            }
            *classes.entry((at, class, detail.to_string(), stack.comm.clone())).or_default() += n;
            if let Some(by_process) = &mut self.by_process {
                *by_process.entry((stack.tgid, at, class)).or_default() += n;
            }
            if matches!(at, CpuState::Program | CpuState::Spin) {
                let spins = at == CpuState::Spin || class == SampleClass::LockSpin;
                let kind = if spins { StackKind::Spin } else { StackKind::OnCpu };
                let folded = fold(&stack.comm, &user, &kernel);
                if let Some(by_thread) = &mut self.by_thread {
                    let layer = if spins { Layer::KernelSpin } else { class.into() };
                    let (pid, tid, stack) = (stack.tgid, stack.tid, folded.as_str().into());
                    by_thread.push(ThreadStack { pid, tid, stack, layer, seconds: seconds(n) });
                }
                let binaries = symbols.binaries(stack.tgid, &stack.user, user.len());
                let lock = futex.map(|futex| lock(symbols, stack.tgid, futex));
                let names = [process, stack.comm, folded, binaries];
                *stacks.entry((kind, at, class, names, lock)).or_default() += n;
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
        for ((kind, at, class, [process, thread, stack, binaries], lock), n) in stacks {
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
                at: Some(at),
                class: Some(class),
                lock: lock.as_deref().into(),
                waits: None,
            });
        }
        [samples.finish(), folded.finish(), self.results.table(t)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unnamed(_: &mut Symbols, _: u32, _: u64) -> Arc<str> {
        "".into()
    }

    #[test]
    fn a_shootdown_is_told_by_what_it_is_for() {
        let class = |stack: &str| {
            let frames: Vec<&str> = stack.split(' ').collect();
            let (class, detail) = classify(&frames, &[], false, &Patterns::default());
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
    fn user_code_spins_where_it_pauses_and_not_by_its_name() {
        let patterns = Patterns::default();
        let class = |user: &str, pauses: bool| {
            let user: Vec<Arc<str>> = user.split(" < ").map(Into::into).collect();
            let (class, detail) = classify(&[], &user, pauses, &patterns);
            (class, detail.into_owned())
        };
        let work = |name: &str| (SampleClass::User, name.to_string());
        for name in [
            "update_stats_locked",
            "RawMutex::unlock_slow",
            "spin_lock",
            "blocks_of",
            "[unknown libgomp.so.1]",
        ] {
            assert_eq!(class(name, false), work(name));
        }
        assert_eq!(class("f (a.py)", true).0, SampleClass::Spin, "this name lacks a line, so it is C");
        assert_eq!(
            class("[unknown libgomp.so.1.0.0] < start_thread", true),
            (SampleClass::WaitSpin, "OpenMP barrier (libgomp.so.1.0.0)".into())
        );
        assert_eq!(class("own_lock < main", true), (SampleClass::Spin, "own_lock".into()));
        let yields = ["do_sched_yield", "__x64_sys_sched_yield", "do_syscall_64"];
        let yielding = |user: &str| {
            let user: Vec<Arc<str>> = user.split(" < ").map(Into::into).collect();
            classify(&yields, &user, false, &patterns).0
        };
        for spins in [
            "__sched_yield < [unknown libopenblas.so.0] < start_thread",
            "__sched_yield < [unknown libopenblasp-r0.3.21.so] < exec_blas < f",
        ] {
            assert_eq!(yielding(spins), SampleClass::WaitSpin, "{spins}");
        }
        assert_eq!(yielding("__sched_yield < polite_work < main"), SampleClass::Syscall);
    }

    #[test]
    fn a_loop_is_around_its_pause() {
        let at = |ip| Stack { tgid: 7, tid: 8, comm: "worker".into(), user: vec![ip], ..Stack::default() };
        let mut samples = Samples::default();
        samples.add(CpuState::Program, at(0x1010), true, None, None);
        for ip in [0x1004, 0x1020, 0x1100] {
            samples.add(CpuState::Program, at(ip), false, None, None);
        }
        let [table, ..] = samples.tables(1.0, &mut Symbols::new(), 10, &|_| None, &mut unnamed);
        let of = |class: &str| -> u64 {
            let rows = (0..table.num_rows()).filter(|&r| table.text(r, "class") == Some(class));
            rows.filter_map(|r| table.int(r, "samples")).sum()
        };
        // User code has its class without the kernel's symbols.
        assert_eq!((of("spin"), of("user")), (3, 1));
        samples.add(CpuState::Program, at(0x1010), false, None, None);
        let [table, ..] = samples.tables(2.0, &mut Symbols::new(), 10, &|_| None, &mut unnamed);
        assert_eq!(table.text(0, "class"), Some("user"), "each interval has its own");
    }

    #[test]
    fn a_process_has_the_name_that_it_had_before_it_executed_another_program() {
        let stack = |tid| Stack { tgid: 7, tid, comm: "init".into(), user: vec![16], ..Stack::default() };
        let mut samples = Samples::default();
        samples.add(CpuState::Program, stack(7), false, None, None);
        samples.add(CpuState::Program, stack(8), false, None, None);
        let name = |_| Some("true".to_string());
        let [_, table, _] = samples.tables(1.0, &mut Symbols::new(), 10, &name, &mut unnamed);
        let mut names: Vec<_> = (0..table.num_rows()).filter_map(|row| table.text(row, "process")).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["init", "true"],
            "a thread has a name of its own, and that of its process is the newest"
        );
    }

    #[test]
    fn threads_of_one_name_are_told_apart_where_that_is_wanted() {
        let stack = |tid| Stack { tgid: 7, tid, comm: "worker".into(), user: vec![16], ..Stack::default() };
        let mut symbols = Symbols::new();
        let mut samples = Samples::default();
        samples.add(CpuState::Program, stack(8), false, None, None);
        samples.add(CpuState::Program, stack(9), false, None, None);
        assert_eq!(samples.tables(1.0, &mut symbols, 10, &|_| None, &mut unnamed)[1].num_rows(), 1);
        assert!(samples.take_threads().is_empty());
        samples.keep_threads();
        for tid in [8, 9, 9] {
            samples.add(CpuState::Program, stack(tid), false, None, None);
        }
        let [_, table, _] = samples.tables(1.0, &mut symbols, 10, &|_| None, &mut unnamed);
        assert_eq!((table.num_rows(), table.number(0, "seconds")), (1, Some(0.3)), "the table is as before");
        let mut threads = samples.take_threads();
        threads.sort_by_key(|thread| thread.tid);
        let told: Vec<_> = threads.iter().map(|t| (t.pid, t.tid, t.seconds)).collect();
        assert_eq!(told, [(7, 8, 0.1), (7, 9, 0.2)]);
        assert!(threads[0].stack.starts_with("worker;"), "{}", threads[0].stack);
        samples.tables(1.0, &mut symbols, 10, &|_| None, &mut unnamed);
        assert!(samples.take_threads().is_empty(), "each is returned once");
    }
}
