//! Names for the addresses that collectors record: functions of the kernel and of programs. Lookups are
//! cached. Also the interpretation of stacks of names.
//!
//! Code compiled by a Java virtual machine has neither frame pointers nor unwind tables. For it,
//! `ncpu_symbols::hotspot` reads the size and the function of each frame from the process's memory, using the
//! structure descriptions that libjvm exports for debuggers. Functions of Java and of scripts are in no file; in
//! stacks they have addresses where no code can lie (`functions`).

pub mod caller;
mod functions;
mod scripts;
pub mod waits;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ncpu_symbols::{
    CodePlace, Copied, Kernel, KernelError, ProcMaps, Pythons, Recent, SourceLine, Unwinding, Unwound, User,
    boundary, made_code, name_parts,
};

use crate::bpf_support::Stack;
use crate::bpf_support::namespace;
use crate::bpf_support::ring::SCRIPT_WORDS;
use functions::Functions;
pub use scripts::Frames;
use scripts::Scripts;

/// Names for addresses, with a cache.
pub struct Symbols {
    kernel: Option<Arc<Kernel>>,
    aside: Option<JoinHandle<Result<Kernel, KernelError>>>,
    loaded: bool,
    names: Recent<u64, Arc<str>>,
    maps: ProcMaps,
    user: User,
    unwinding: Unwinding,
    scripts: Scripts,
    functions: Functions,
    images: Recent<u32, Option<Box<str>>>,
    /// Time of the last reset of all files (`forgot`) and of the last removal of unused entries (`aged`).
    forgot: Instant,
    aged: Instant,
}

/// Whether threads begin with a function, or a separate stack begins with it (Go's `mcall` and
/// `systemstack`).
fn is_beginning(name: &str) -> bool {
    match name_parts(name)[..] {
        ["_start" | "start_thread" | "thread_start"] => true,
        [name] => matches!(
            name.trim_start_matches('_').trim_start_matches("GI___"),
            "libc_start_main" | "libc_start_main_impl" | "libc_start_call_main" | "clone" | "clone3"
        ),
        ["runtime", name] => matches!(
            name,
            "goexit"
                | "goexit1"
                | "mstart"
                | "mstart0"
                | "mstart1"
                | "rt0_go"
                | "mcall"
                | "systemstack"
                | "systemstack_switch"
        ),
        _ => false,
    }
}

/// Number of unwound stacks, and of those that reached the first function of their thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwinds {
    /// All unwound stacks.
    pub stacks: u64,
    /// Stacks that reached the first function.
    pub whole: u64,
}

impl std::ops::AddAssign for Unwinds {
    fn add_assign(&mut self, more: Unwinds) {
        self.stacks += more.stacks;
        self.whole += more.whole;
    }
}

/// Maximum number of kernel addresses with cached names in a generation, and of processes.
const MAX_NAMES: usize = 1 << 13;
const MAX_IMAGES: usize = 1 << 12;
/// Minimum time between two resets of all files, regardless of their number: each file is read again at its
/// next use.
const FORGET: Duration = Duration::from_secs(60);
/// Names and tables are kept for this time to twice this time after their last use.
const UNUSED: Duration = Duration::from_secs(300);
/// Frames of a stack from which on functions of Java that were inlined have no frames of their own.
const MAX_FRAMES: usize = 256;

impl Default for Symbols {
    fn default() -> Symbols {
        Symbols::new()
    }
}

impl Symbols {
    /// For process IDs as `/proc` has them.
    pub fn new() -> Symbols {
        Symbols::below(Path::new("/"))
    }

    /// For process IDs as BPF programs report them.
    pub fn of_bpf() -> Symbols {
        Symbols::below(namespace::root())
    }

    fn below(root: &Path) -> Symbols {
        // Started early, while this process is small. If it fails here, the first read of a file tries again.
        let _ = ncpu_files::reader::start();
        Symbols {
            kernel: None,
            aside: None,
            loaded: false,
            names: Recent::new(MAX_NAMES),
            maps: ProcMaps::new(root),
            user: User::new(),
            unwinding: Unwinding::default(),
            scripts: Scripts::default(),
            functions: Functions::default(),
            images: Recent::new(MAX_IMAGES),
            forgot: Instant::now(),
            aged: Instant::now(),
        }
    }

    /// Starts to read the kernel's symbols on another CPU, with low priority. [`Symbols::load_kernel`] waits
    /// for the result.
    pub fn load_kernel_aside(&mut self) {
        let read = || {
            let batch = libc::sched_param { sched_priority: 0 };
            // SAFETY: this thread, and a live local. If the call fails, the thread keeps its normal
            // scheduling policy.
            let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const batch) };
            Kernel::load(Path::new("/"))
        };
        // If no thread can be started, the symbols are read on demand.
        self.aside = std::thread::Builder::new().name("ncpu-symbols".into()).spawn(read).ok();
    }

    /// Reads the kernel's symbols. The note gives the reason if there are none.
    pub fn load_kernel(&mut self) -> Option<String> {
        self.loaded = true;
        let aside = self.aside.take().and_then(|aside| aside.join().ok());
        match aside.unwrap_or_else(|| Kernel::load(Path::new("/"))) {
            Ok(kernel) => {
                self.kernel = Some(Arc::new(kernel));
                None
            }
            Err(e) => Some(format!("kernel functions have no names: {e}")),
        }
    }

    /// Whether [`Symbols::load_kernel`] was called, successfully or not.
    pub fn kernel_loaded(&self) -> bool {
        self.loaded
    }

    /// The kernel's symbols, if they could be read.
    pub fn kernel_symbols(&self) -> Option<Arc<Kernel>> {
        self.kernel.clone()
    }

    /// Whether [`Symbols::load_kernel`] would not have to wait.
    pub fn kernel_read(&self) -> bool {
        self.loaded || self.aside.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// The code with which CPUs flush their TLB for others, if known.
    pub fn flush_code(&self) -> Option<u64> {
        self.kernel.as_ref()?.address_of("flush_tlb_func")
    }

    /// The functions in which threads sleep for kernel locks; empty if unknown.
    pub fn lock_code(&self) -> Vec<Range<u64>> {
        self.kernel.as_ref().map(|kernel| kernel.ranges(ncpu_symbols::sleeps_for_lock)).unwrap_or_default()
    }

    /// Remembers a process's mappings while it lives. A new name of its first thread means that the process has executed another
    /// program; other threads have names of their own.
    pub fn note(&mut self, tgid: u32, tid: u32, comm: &str) {
        let is_first = tid == tgid;
        let known = |name: &Option<Box<str>>| !is_first || name.as_deref() == Some(comm);
        if tgid == 0 || self.images.get(&tgid).is_some_and(known) {
            return;
        }
        self.read(tgid, is_first.then_some(comm));
    }

    /// A process has executed a program.
    pub fn note_exec(&mut self, tgid: u32, comm: &str) {
        self.read(tgid, Some(comm));
    }

    /// As [`Symbols::note_exec`], right after the call, when the kernel may not have mapped the program's code yet. Returns whether there
    /// were any mappings of code.
    pub fn note_begun(&mut self, tgid: u32) -> bool {
        self.read(tgid, None)
    }

    /// Reads a process's mappings; whether there were any. `comm`: the name of its first thread, if it is known.
    fn read(&mut self, tgid: u32, comm: Option<&str>) -> bool {
        if self.maps.is_full() && self.forgot.elapsed() >= FORGET {
            self.forgot = Instant::now();
            self.maps.forget();
            self.user.forget();
            self.unwinding.forget();
            self.scripts.forget();
            self.images.clear();
        }
        let lives = self.maps.note_process(tgid);
        self.scripts.examine(&self.maps, tgid);
        self.images.insert(tgid, comm.map(Box::from));
        lives
    }

    /// Removes unused entries, once in a while between two intervals. Otherwise the entries of short-lived
    /// programs would stay until a limit is reached, and memory would grow for hours in a long observation.
    pub fn forget_unused(&mut self, now: Instant) {
        if now.duration_since(self.aged) < UNUSED {
            return;
        }
        self.aged = now;
        self.names.turn();
        self.maps.release_unused();
        self.user.forget_unused();
        self.unwinding.forget_unused();
    }

    /// Examines new processes again, which may have loaded an interpreter since.
    pub fn look(&mut self, now: Instant) {
        self.scripts.look(&mut self.maps, now);
    }

    /// Time of the next such examination.
    pub fn next_look(&self) -> Option<Instant> {
        self.scripts.next()
    }

    /// Processes that run scripts, found since the last call, and what tells their frames.
    pub fn new_scripts(&mut self) -> Vec<(u32, Frames)> {
        // These processes had an unmapped address before: a library may have been loaded.
        for tgid in self.maps.take_read_again() {
            self.scripts.examine(&self.maps, tgid);
        }
        self.scripts.take_new()
    }

    /// As [`Symbols::note`], for a process that may already have ended, from the text of its `maps`.
    pub fn note_maps(&mut self, tgid: u32, comm: &str, maps: &[u8]) {
        if !self.maps.note_process(tgid) {
            self.maps.note_maps(tgid, maps);
        }
        self.images.insert(tgid, Some(comm.into()));
    }

    /// Names of kernel frames, innermost first. A return address lies after its call, so callers are looked
    /// up one byte before.
    pub fn kernel(&mut self, frames: &[u64]) -> Vec<Arc<str>> {
        let kernel = self.kernel.as_ref();
        let names = &mut self.names;
        let name = |(i, &addr): (usize, &u64)| {
            let addr = addr - u64::from(i > 0);
            if let Some(name) = names.get(&addr) {
                return name.clone();
            }
            let name: Arc<str> = match kernel.and_then(|k| k.lookup(addr)) {
                Some((name, _)) => name.into(),
                None => format!("{addr:#x}").into(),
            };
            names.insert(addr, name.clone());
            name
        };
        frames.iter().enumerate().map(name).collect()
    }

    /// The static variable at an address, if the program's symbols contain it. A library's variable has the
    /// library's name after it.
    pub fn data(&mut self, tgid: u32, address: u64) -> Option<String> {
        let name = self.user.variable(&self.maps, tgid, address)?;
        let file = self.maps.file_of(tgid, address);
        Some(match file.filter(|file| file.contains(".so")) {
            Some(library) => format!("{name} ({library})"),
            None => name,
        })
    }

    /// The location of the code around an address; see [`User::code_place`].
    pub fn code_place(&mut self, tgid: u32, address: u64) -> Option<CodePlace> {
        self.user.code_place(&self.maps, tgid, address)
    }

    /// See [`made_code`].
    pub fn made_code(&self, tgid: u32, address: u64) -> Option<CodePlace> {
        made_code(&self.maps, tgid, address)
    }

    /// The bytes of that code.
    pub fn code_bytes(&self, place: &CodePlace) -> Option<Vec<u8>> {
        self.user.code_bytes(&self.maps, place)
    }

    /// The function or the static variable at an address.
    pub fn at(&mut self, tgid: u32, address: u64) -> Option<String> {
        if self.maps.label(tgid, address).is_none() {
            return self.data(tgid, address);
        }
        let name = self.user(tgid, &[address]).pop()?;
        (!name.starts_with('[')).then(|| name.to_string())
    }

    /// The program or library that code belongs to; `None` for code made at run time.
    pub fn file_of_code(&self, tgid: u32, address: u64) -> Option<String> {
        self.maps.label(tgid, address).filter(|label| !label.starts_with('[')).map(String::from)
    }

    /// The source line of an address: without `dwarf`, of Go programs alone.
    pub fn source_line(&mut self, tgid: u32, address: u64, dwarf: bool) -> Option<SourceLine> {
        self.user.source_line(&self.maps, tgid, address, dwarf)
    }

    /// Reasons why functions of programs have no names, one per line.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let unread = ncpu_files::reader::counts();
        let late = (unread.late + unread.refused > 0).then(|| {
            let late = format!("{} reads of programs' files or memory did not end in time", unread.late);
            let refused = format!("{} reads of programs' files or memory were not tried", unread.refused);
            let why = match (unread.late, unread.refused) {
                (_, 0) => late,
                (0, _) => format!("{refused}, since the time for the files of their owner was used up"),
                (_, more) => format!("{late}, and {more} more were not tried"),
            };
            format!("some functions have no names: {why}")
        });
        let unfiltered = ncpu_files::reader::unfiltered().map(|why| {
            format!(
                "programs' files are read by a process whose system calls are not filtered (seccomp): {why}"
            )
        });
        self.user.notes().chain(self.scripts.notes()).chain(late).chain(unfiltered)
    }

    /// User frames, innermost first, including the functions that the Go compiler has inlined.
    pub fn user(&mut self, tgid: u32, frames: &[u64]) -> Vec<Arc<str>> {
        let names = self.functions(tgid, frames);
        if frames.iter().any(|&frame| Functions::is_one(frame)) {
            return names;
        }
        let code: Vec<u64> = frames.iter().enumerate().map(called).collect();
        self.user.with_inlined(&self.maps, tgid, &code, names)
    }

    /// The files of user frames that yielded `names` names: `libc.so.6*2;python3.13*14;-*1`, outermost first.
    /// Empty if inlining added names and the frames are from several files, since their assignment is then
    /// unknown; and if they are too long.
    pub fn binaries(&self, tgid: u32, frames: &[u64], names: usize) -> String {
        let label = |(i, address): (usize, &u64)| {
            let known = || {
                self.maps
                    .label(tgid, called((i, address)))
                    .filter(|label| !label.is_empty() && !label.starts_with('['))
            };
            if Functions::is_one(*address) { "-" } else { known().unwrap_or("-") }
        };
        let labels: Vec<&str> = frames.iter().enumerate().map(label).collect();
        let mut runs: Vec<(&str, usize)> =
            labels.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).rev().collect();
        if names != frames.len() {
            match &mut runs[..] {
                [(_, count)] => *count = names,
                _ => return String::new(),
            }
        }
        let mut out = String::new();
        // Names of files are long, too.
        if runs.iter().map(|(label, _)| label.len()).sum::<usize>() > LONGEST {
            return out;
        }
        for (label, count) in runs {
            if !out.is_empty() {
                out.push(';');
            }
            push_clean(&mut out, label);
            out.push_str(&format!("*{count}"));
        }
        out
    }

    /// A name for each user frame.
    pub fn functions(&mut self, tgid: u32, frames: &[u64]) -> Vec<Arc<str>> {
        if frames.is_empty() {
            return Vec::new();
        }
        let code: Vec<u64> =
            frames.iter().enumerate().filter(|(_, a)| !Functions::is_one(**a)).map(called).collect();
        let names = self.user.symbolize(&mut self.maps, tgid, &code);
        match code.len() == frames.len() {
            true => names,
            false => self.functions.among(frames, names),
        }
    }

    /// Replaces the callers found by frame pointers with those found by unwind tables if the latter go
    /// further. Also returns the words of the copy that distinguish it from similar stacks
    /// ([`Unwound::marks`]).
    pub fn complete(&mut self, stack: &mut Stack, copy: Option<&Copied>) -> (Unwinds, Vec<usize>) {
        let (unwinds, marks) = self.unwound(stack, copy);
        // The callers found by frame pointers.
        let java = self.unwinding.java(&mut self.maps, stack.tgid, &stack.user);
        if !java.is_empty() {
            (stack.user, _) = self.with_java(&stack.user, &[], &java);
        }
        (unwinds, marks)
    }

    fn unwound(&mut self, stack: &mut Stack, copy: Option<&Copied>) -> (Unwinds, Vec<usize>) {
        let Some(copy) = copy else { return Default::default() };
        // Frames of scripts arrive without a copy too.
        let unwound = (!copy.words.is_empty()).then(|| self.unwind(stack.tgid, copy));
        let (stacks, mut whole, mut marks) = (unwound.is_some().into(), false, Vec::new());
        let mut codes = None;
        if let Some(unwound) = unwound {
            (whole, marks) = (unwound.whole, unwound.marks);
            if whole || unwound.frames.len() >= stack.user.len() {
                stack.user = unwound.frames;
                codes = self.codes_in_copy(stack, &unwound.words, copy);
            }
            marks.extend(self.add_gos_caller(stack, copy));
            whole = whole || self.begins(stack);
        }
        let codes = match &codes {
            Some((codes, more)) => {
                marks.extend(more);
                codes
            }
            None => &copy.codes,
        };
        if !codes.is_empty() {
            let names = self.functions(stack.tgid, &stack.user);
            let codes = (&codes[..], SCRIPT_WORDS);
            self.scripts.splice(&self.maps, stack, (&names, whole), codes, &mut self.functions);
        }
        (Unwinds { stacks, whole: whole.into() }, marks)
    }

    /// Adds the caller of a function of Go that keeps no frame pointer; returns the word that it was read from.
    fn add_gos_caller(&mut self, stack: &mut Stack, copy: &Copied) -> Option<usize> {
        if stack.user.first() != Some(&copy.regs[0]) {
            return None;
        }
        let (word, caller) = self.user.gos_caller(&self.maps, stack.tgid, copy)?;
        if stack.user.get(1) != Some(&caller) {
            stack.user.insert(1, caller);
            stack.user.truncate(MAX_FRAMES);
        }
        Some(word)
    }

    /// The functions of frames of JavaScript, and the words of the copy that distinguish them, of a stack unwound from its copy.
    fn codes_in_copy(
        &mut self,
        stack: &Stack,
        words: &[Option<usize>],
        copy: &Copied,
    ) -> Option<(Vec<u64>, Vec<usize>)> {
        if !self.scripts.runs_v8(stack.tgid) {
            return None;
        }
        let names = self.functions(stack.tgid, &stack.user);
        self.scripts.in_copy(&self.maps, stack, (&names, words), copy)
    }

    /// Whether the outermost frame is a function with which threads begin. Frame pointers can reach it too,
    /// even across stacks, while the copy holds only one stack.
    fn begins(&mut self, stack: &Stack) -> bool {
        let Some(outermost) = stack.user.last().map(|address| address.saturating_sub(1)) else {
            return false;
        };
        let name = self.user.symbolize(&mut self.maps, stack.tgid, &[outermost]);
        name.first().is_some_and(|name| is_beginning(name))
    }

    /// The range of frames found by [`Symbols::complete`] that belong to the interpreter and precede the next
    /// Python function.
    pub fn of_interpreter(&self, tgid: u32, frames: &[u64]) -> Range<usize> {
        let Some(end) = frames.iter().position(|&f| Functions::is_one(f)) else { return 0..0 };
        let own = |f: &&u64| Pythons::owns(&self.maps, tgid, f.saturating_sub(1));
        end - frames[..end].iter().rev().take_while(own).count()..end
    }

    /// The callers of a thread, by its program's unwind tables and a copy of the top of its stack.
    pub fn unwind(&mut self, tgid: u32, copy: &Copied) -> Unwound {
        let mut unwound = self.unwinding.unwind(&mut self.maps, tgid, copy);
        let java = std::mem::take(&mut unwound.java);
        if !java.is_empty() {
            (unwound.frames, unwound.words) = self.with_java(&unwound.frames, &unwound.words, &java);
        }
        unwound
    }

    /// Puts functions of Java in the places of code without a file. Returns the frames, and the words of all
    /// but the innermost.
    fn with_java(
        &mut self,
        frames: &[u64],
        words: &[Option<usize>],
        java: &[(usize, Arc<[Arc<str>]>)],
    ) -> (Vec<u64>, Vec<Option<usize>>) {
        let mut java = java.iter().peekable();
        let (mut all, mut of) = (Vec::new(), Vec::new());
        for (i, &frame) in frames.iter().enumerate() {
            // The word before the first frame is dropped below.
            of.push(i.checked_sub(1).and_then(|i| words.get(i).copied().flatten()));
            match java.next_if(|(at, _)| *at == i) {
                Some((_, functions)) => {
                    let room = MAX_FRAMES.saturating_sub(all.len()).max(1);
                    // The compiled function is the last.
                    let shown = functions.len().saturating_sub(room)..;
                    all.extend(functions[shown].iter().map(|name| self.functions.number(name.clone())));
                    of.resize(all.len(), None);
                }
                None => all.push(frame),
            }
        }
        of.drain(..1.min(of.len()));
        (all, of)
    }
}

/// The address to look up for a frame: return addresses lie after their call, except the innermost.
fn called((i, &address): (usize, &u64)) -> u64 {
    address.saturating_sub(u64::from(i > 0))
}

/// Kernel frames without those of the probe itself, which come first in a tracepoint's stack.
pub fn without_probe(frames: &[Arc<str>]) -> &[Arc<str>] {
    let probe = frames.iter().take(8).rposition(|f| {
        f.starts_with("bpf_")
            || f.starts_with("__traceiter_")
            || f.starts_with("__bpf_")
            || f.starts_with("0x")
    });
    &frames[probe.map_or(0, |i| i + 1)..]
}

/// Bytes of the names of a stack's text. Programs choose their names, and tables have thousands of stacks.
const LONGEST: usize = 16 << 10;

/// The length to which names are cut so that all of them together have [`LONGEST`] bytes: the longest lose most.
fn cut_at(frames: impl Iterator<Item = usize>) -> usize {
    let mut lengths: Vec<usize> = frames.collect();
    if lengths.iter().sum::<usize>() <= LONGEST {
        return usize::MAX;
    }
    lengths.sort_unstable();
    let (mut left, count) = (LONGEST, lengths.len());
    for (i, length) in lengths.into_iter().enumerate() {
        let each = left / (count - i);
        if length > each {
            return each;
        }
        left -= length;
    }
    usize::MAX
}

/// The beginning of a name: at most `most` bytes.
fn cut(name: &str, most: usize) -> &str {
    &name[..boundary(name, most)]
}

/// `outermost;…;leaf` after the process's name, the format of flame graphs. Names of a stack that is too long are cut.
pub fn fold(process: &str, user: &[Arc<str>], kernel: &[Arc<str>]) -> String {
    let most = cut_at(user.iter().chain(kernel).map(|name| name.len()));
    let mut out = String::with_capacity(32 * (1 + user.len() + kernel.len()));
    push_clean(&mut out, process);
    for frame in user.iter().rev() {
        out.push(';');
        push_clean(&mut out, cut(frame, most));
    }
    for frame in kernel.iter().rev() {
        out.push(';');
        push_clean(&mut out, cut(frame, most));
        out.push_str("_[k]");
    }
    out
}

/// Adds a name to a folded stack. `;` separates frames and a line break ends a stack, so both are replaced.
pub fn push_clean(out: &mut String, name: &str) {
    if name.bytes().all(|b| matches!(b, b' '..=b'~') && b != b';') {
        out.push_str(name);
    } else {
        out.extend(name.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }));
    }
}

/// System calls with numbers below this are counted separately (`SYSCALLS` of syscall.h).
pub const MOST_CALLS: u32 = 512;

/// The name of a system call.
pub fn call_name(nr: u32) -> String {
    match syscalls::Sysno::new(nr as usize) {
        Some(call) => call.name().into(),
        None => format!("syscall {nr}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::waits::joined;
    use super::{LONGEST, fold, is_beginning};

    #[test]
    fn the_text_of_a_stack_is_short_whatever_names_it_has() {
        let names = |count: usize, length: usize| -> Vec<Arc<str>> {
            (0..count).map(|i| format!("{i:04}{}", "ä".repeat(length / 2)).into()).collect()
        };
        for (count, length) in [(1, 1 << 20), (127, 1000), (127, 4000), (8000, 4000), (127, 20), (0, 0)] {
            let (user, kernel) = (names(count, length), names(9, 20));
            let text = fold("comm", &user, &kernel);
            assert!(text.len() <= LONGEST + 5 * (count + 9) + 4, "{count} names of {length}: {}", text.len());
            assert_eq!(text.split(';').count(), 1 + count + 9, "no frame is lost");
            assert!(joined(&user).len() <= LONGEST + count, "{count} names of {length}");
        }
        // The long ones lose, and nothing is lost where there is room.
        let mut mixed = names(20, 4000);
        mixed.extend(names(20, 30));
        let text = fold("", &mixed, &[]);
        assert!(
            mixed[20..].iter().all(|name| text.contains(&**name)) && text.len() > LONGEST - 40,
            "{}",
            text.len()
        );
        assert_eq!(fold("p", &names(127, 20), &[]).len(), 1 + 127 * (1 + 4 + 20));
    }

    #[test]
    fn stacks_begin_with_whole_names() {
        for name in [
            "_start",
            "__libc_start_main@@GLIBC_2.34",
            "__libc_start_call_main",
            "start_thread",
            "__clone3",
            "__GI___clone3",
            "runtime.goexit.abi0",
            "runtime.systemstack.abi0",
        ] {
            assert!(is_beginning(name), "{name}");
        }
        for name in [
            "start",
            "clone_table",
            "start_threads",
            "app::clone",
            "runtime.mcallback",
            "[unknown libc.so.6]",
            "",
        ] {
            assert!(!is_beginning(name), "{name}");
        }
    }
}
