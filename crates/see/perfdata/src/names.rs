//! Names of the frames of a stack, and what the CPU was doing.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ncpu_schema::SampleClass;
use ncpu_symbols::{Kernel, KernelClass, ProcMaps, User, kernel_class};

use crate::file::{Bytes, Record, kind, text};

/// Mappings of code that are kept of all processes.
const MAX_MAPPINGS: usize = 1 << 18;
/// Mappings that are copied, compared and handed on, all together: a file may change them at each record.
const MOST_WORK: usize = 1 << 28;
/// Numbers of processes here: none that lives has one so high, so nothing is looked up in `/proc`.
const ABOVE_ALL: u32 = 1 << 30;

/// A mapping of code.
#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    path: Arc<str>,
}

/// A stack with names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    pub process: Arc<str>,
    pub thread: Arc<str>,
    /// Outermost first, `;` between frames.
    pub frames: String,
    pub binaries: String,
    pub class: SampleClass,
    pub detail: String,
}

impl Stack {
    /// The row that stands for stacks for which there was no room.
    pub fn others(self) -> Stack {
        let all: Arc<str> = "[others]".into();
        Stack { process: all.clone(), thread: all, frames: String::new(), binaries: String::new(), ..self }
    }
}

/// The symbols of the kernel that runs here, where they may be read.
fn this_kernel() -> Option<&'static Kernel> {
    static KERNEL: OnceLock<Option<Kernel>> = OnceLock::new();
    KERNEL.get_or_init(|| Kernel::load(Path::new("/")).ok()).as_ref()
}

/// Names for addresses.
pub(crate) struct Names {
    maps: ProcMaps,
    user: User,
    kernel: Option<&'static Kernel>,
    /// The kernel's code lies where this machine's does.
    same_kernel: bool,
    mappings: HashMap<u32, Vec<Mapping>>,
    kept: usize,
    work: usize,
    /// Processes of which mappings came since they were handed on.
    changed: HashSet<u32>,
    pub dropped: u64,
    /// Kernel frames were met that have no names.
    pub nameless_kernel: bool,
}

impl Names {
    /// `release` is that of the kernel that was observed.
    pub fn new(release: &str) -> Names {
        let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let same = !release.is_empty() && here.trim() == release;
        Names {
            maps: ProcMaps::new(Path::new("/")),
            user: User::new(),
            kernel: if same { this_kernel() } else { None },
            same_kernel: false,
            mappings: HashMap::new(),
            kept: 0,
            work: 0,
            changed: HashSet::new(),
            dropped: 0,
            nameless_kernel: false,
        }
    }

    /// A process executes another program.
    pub fn forget(&mut self, pid: u32) {
        self.kept -= self.mappings.remove(&pid).map_or(0, |all| all.len());
    }

    /// A process begins with the mappings of its parent.
    pub fn fork(&mut self, parent: u32, pid: u32) {
        self.forget(pid);
        let Some(count) = self.mappings.get(&parent).map(Vec::len) else { return };
        if self.kept + count > MAX_MAPPINGS || !self.may_work(count) {
            self.dropped += 1;
            return;
        }
        let all = self.mappings.get(&parent).cloned().unwrap_or_default();
        self.kept += all.len();
        self.changed.insert(pid);
        self.mappings.insert(pid, all);
    }

    /// Counts mappings that are looked at once more, and says whether the limit is kept.
    fn may_work(&mut self, mappings: usize) -> bool {
        self.work = self.work.saturating_add(mappings);
        self.work <= MOST_WORK
    }

    /// A process maps code.
    pub fn mapped(&mut self, record: &Record<'_>) -> Option<()> {
        let mut body = Bytes(record.body);
        let (pid, _) = (body.u32()?, body.u32()?);
        let (start, length, offset) = (body.u64()?, body.u64()?, body.u64()?);
        let (mut device, mut inode) = ((0, 0), 0);
        if record.kind == kind::MMAP2 {
            // A build ID stands in the place of the inode.
            match record.misc & 1 << 14 != 0 {
                true => _ = body.take(24)?,
                false => {
                    device = (body.u32()?, body.u32()?);
                    inode = body.u64()?;
                    body.u64()?;
                }
            }
            let protection = body.u32()?;
            body.u32()?;
            if protection & 4 == 0 {
                return Some(());
            }
        }
        let path = text(body.0);
        if pid == u32::MAX {
            // The kernel: the name ends with a symbol, and the offset is the symbol's address.
            if let Some(symbol) = path.strip_prefix("[kernel.kallsyms]")
                && let Some(kernel) = self.kernel
            {
                self.same_kernel = !symbol.is_empty() && kernel.address_of(symbol) == Some(offset);
            }
            return Some(());
        }
        let count = self.mappings.get(&pid).map_or(0, Vec::len);
        if self.kept >= MAX_MAPPINGS || !self.may_work(count) {
            self.dropped += 1;
            return Some(());
        }
        let end = start.saturating_add(length);
        let all = self.mappings.entry(pid).or_default();
        let before = all.len();
        all.retain(|mapping| mapping.end <= start || mapping.start >= end);
        all.push(Mapping { start, end, offset, device, inode, path: path.into() });
        self.kept = self.kept - before + all.len();
        self.changed.insert(pid);
        Some(())
    }

    /// The names of a sample. Addresses come innermost first.
    pub fn stack(
        &mut self,
        pid: u32,
        process: Arc<str>,
        thread: Arc<str>,
        kernel: &[u64],
        user: &[u64],
    ) -> Stack {
        let number = pid.saturating_add(ABOVE_ALL);
        let count = self.mappings.get(&pid).map_or(0, Vec::len);
        // A line is read in some hundred times the time that a comparison takes.
        if self.changed.remove(&pid) && self.may_work(16 * count) {
            let text = self.mappings.get(&pid).map_or_else(String::new, |all| as_text(all));
            self.maps.note_maps(number, text.as_bytes());
        }
        let user_names = match user.is_empty() {
            true => Vec::new(),
            false => self.user.symbolize(&mut self.maps, number, user),
        };
        let table = self.kernel.filter(|_| self.same_kernel);
        let kernel_names: Vec<&str> = kernel
            .iter()
            .map(|address| {
                table.and_then(|table| table.lookup(*address)).map_or("[unknown]", |(name, _)| name)
            })
            .collect();
        let (mut frames, mut binaries) = (String::new(), String::new());
        let (mut file, mut count) = (String::new(), 0u32);
        for (name, address) in user_names.iter().zip(user).rev() {
            let label =
                self.maps.label(number, *address).filter(|label| !label.starts_with('[')).unwrap_or("-");
            if count > 0 && file != label {
                _ = write!(binaries, "{file}*{count};");
                count = 0;
            }
            count += 1;
            label.clone_into(&mut file);
            push(&mut frames, name, "");
        }
        if count > 0 {
            _ = write!(binaries, "{file}*{count}");
        }
        for name in kernel_names.iter().rev() {
            push(&mut frames, name, "_[k]");
        }
        let (class, detail) = match kernel_names.first() {
            None => (SampleClass::User, user_names.first().map_or("[unknown]", |name| &**name)),
            Some(_) if table.is_none() => {
                self.nameless_kernel = true;
                (SampleClass::Kernel, "[unknown]")
            }
            Some(leaf) => class(&kernel_names, leaf),
        };
        Stack { process, thread, frames, binaries, class, detail: detail.into() }
    }
}

fn push(frames: &mut String, name: &str, mark: &str) {
    if !frames.is_empty() {
        frames.push(';');
    }
    frames.push_str(&name.replace(';', ","));
    frames.push_str(mark);
}

/// The class of a sample in the kernel, and its detail.
fn class<'a>(names: &[&'a str], leaf: &'a str) -> (SampleClass, &'a str) {
    match kernel_class(names) {
        KernelClass::LockSpin => (SampleClass::LockSpin, leaf),
        KernelClass::TlbShootdown => (SampleClass::Tlb, leaf),
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
    }
}

/// Mappings as `/proc/PID/maps` has them, in the order of their addresses.
fn as_text(mappings: &[Mapping]) -> String {
    let mut sorted: Vec<&Mapping> = mappings.iter().collect();
    sorted.sort_by_key(|mapping| mapping.start);
    let mut out = String::new();
    for Mapping { start, end, offset, device: (major, minor), inode, path } in sorted {
        // perf has a name for memory that has none.
        let path = if &**path == "//anon" { "" } else { path };
        let path = path.replace('\n', "\\012");
        _ = writeln!(out, "{start:x}-{end:x} r-xp {offset:08x} {major:02x}:{minor:02x} {inode} {path}");
    }
    out
}
