//! Callers of a waiting thread, from a copy of the top of its stack and the unwind tables of its program. C
//! libraries and most distributions' programs have no frame pointers, and words on a stack that look like
//! return addresses may be left from calls that returned long ago.
//!
//! So the top of a sampled or sleeping thread's stack is copied, page by page up to 16 KiB, in addition to
//! the frames found by frame pointers. The callers are found by the program's unwind tables (framehop), which
//! are read once per file and kept within bounds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use ncpu_files::reader::{Whose, Work, put_off_unless};

use crate::hotspot::{Frame, Machines};
use crate::maps::ProcMaps;
use crate::tables::{Bytes, Tables};

/// The most processes whose modules are kept.
const MAX_PROCESSES: usize = 64;
/// The most bytes of unwind tables kept, of all files.
const MAX_TABLES: u64 = 4 << 20;
/// The cost of a file in addition to its tables.
const ENTRY: u64 = 1 << 10;
/// The most time for all stacks of a process in a period. A stack takes about 20 µs, and the tables of a
/// large program take about 20 ms once; without optimization, 850 stacks of a Java program took more than 300 ms.
const MAX_SPENT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 900 } else { 300 });
const PERIOD: Duration = Duration::from_secs(5);
/// The same for all processes of a user, which may begin ever new ones, and for all users.
const MAX_SPENT_OF_USER: Duration = Duration::from_millis(900);
const MAX_SPENT_OF_ALL: Duration = Duration::from_millis(2000);
/// The most frames of a stack.
const MAX_FRAMES: usize = 128;

/// The top of a thread's stack, copied when it was interrupted or went to sleep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Instruction, stack and frame pointer, and the link register of AArch64.
    pub regs: [u64; 4],
    /// Words from the stack pointer on.
    pub words: Vec<u64>,
    /// The functions of its frames of a script, innermost first. Python: code objects, the lowest bit set if the interpreter was called
    /// for one. V8: of each frame the address of its code, and what its function shares.
    pub codes: Vec<u64>,
}

/// A stack that was unwound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwound {
    /// Addresses, innermost first; those of callers follow their call.
    pub frames: Vec<u64>,
    /// For each frame but the first, the word of the copy that its address was read from, if known.
    pub words: Vec<Option<usize>>,
    /// Whether the thread's first function was reached.
    pub whole: bool,
    /// Words of the copy that distinguish the stack from others of the same depth: return addresses, and the
    /// functions that Java's interpreter runs.
    pub marks: Vec<usize>,
    /// Frames of Java, by their index among the others, and their functions: innermost first, the others
    /// being those that it was inlined into.
    pub java: Vec<(usize, Arc<[Arc<str>]>)>,
}

/// The data of programs and libraries for unwinding, within bounds.
#[derive(Default)]
pub struct Unwinding {
    processes: HashMap<u32, Process>,
    files: HashMap<u32, Option<Arc<Tables>>>,
    bytes: u64,
    machines: Machines,
    spent: Spent,
}

/// The time spent on the stacks of each process and user in a period: a program's tables may be made to take
/// long.
struct Spent {
    since: Instant,
    processes: HashMap<u32, Duration>,
    users: HashMap<Whose, Duration>,
    all: Duration,
}

impl Default for Spent {
    fn default() -> Spent {
        let (processes, users) = Default::default();
        Spent { since: Instant::now(), processes, users, all: Duration::ZERO }
    }
}

impl Spent {
    /// The time until which another stack may take; `None` if none is left.
    fn until(&mut self, tgid: u32, whose: Whose, now: Instant) -> Option<Instant> {
        if now.duration_since(self.since) >= PERIOD {
            *self = Spent { since: now, ..Spent::default() };
        }
        let process = self.processes.get(&tgid).copied().unwrap_or_default();
        let user = self.users.get(&whose).copied().unwrap_or_default();
        let spent = [(MAX_SPENT, process), (MAX_SPENT_OF_USER, user), (MAX_SPENT_OF_ALL, self.all)];
        let left = spent.map(|(most, spent)| most.saturating_sub(spent)).into_iter().min()?;
        (!left.is_zero()).then(|| now + left)
    }

    fn add(&mut self, tgid: u32, whose: Whose, took: Duration) {
        *self.processes.entry(tgid).or_default() += took;
        *self.users.entry(whose).or_default() += took;
        self.all += took;
    }
}

struct Process {
    /// Mapped code: its file, start, end and offset.
    mapped: Vec<(u32, u64, u64, u64)>,
    /// Whether the tables of each mapping were looked for: a program may map hundreds of libraries, whose tables together are more
    /// than is kept, and its stacks pass through a few of them.
    looked_for: Vec<bool>,
    unwinder: arch::Unwinder<Bytes>,
    /// Loaded tables: start and end of the code, and its distance from the link-time addresses.
    tables: Vec<(u64, u64, u64, Arc<Tables>)>,
    /// A cache per process, because rules are found by addresses.
    cache: arch::Cache,
}

/// Registers and addresses of this processor, for unwinding.
#[cfg(target_arch = "x86_64")]
mod arch {
    pub(super) use framehop::x86_64::{
        CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as Unwinder,
    };

    /// Registers of a frame; `highest` is an address of the program.
    pub(super) fn registers([ip, sp, bp, _]: [u64; 4], _highest: u64) -> Registers {
        Registers::new(ip, sp, bp)
    }

    /// The place of a return address: `before` are the registers of the callee, and `now` those of the caller. The
    /// return address lies below the caller's frame, except for a signal's frame.
    pub(super) fn return_address(_before: &Registers, now: &Registers) -> u64 {
        now.sp().wrapping_sub(8)
    }

    pub(super) fn frame_pointer(regs: &Registers) -> u64 {
        regs.bp()
    }

    /// The address in a saved word of the stack.
    pub(super) fn address(word: u64, _regs: &Registers) -> u64 {
        word
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use framehop::aarch64::PtrAuthMask;
    pub(super) use framehop::aarch64::{
        CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as Unwinder,
    };

    /// Registers of a frame; `highest` is an address of the program. The bits above its highest bit may hold a
    /// signature (pointer authentication). A stack lies near the end of the address space.
    pub(super) fn registers([_, sp, fp, lr]: [u64; 4], highest: u64) -> Registers {
        Registers::new_with_ptr_auth_mask(PtrAuthMask::from_max_known_address(highest.max(1)), lr, sp, fp)
    }

    /// The place of a return address: `before` are the registers of the callee. The address lies in the callee's
    /// frame record, at its frame pointer; a leaf function has no record.
    pub(super) fn return_address(before: &Registers, _now: &Registers) -> u64 {
        before.fp().wrapping_add(8)
    }

    pub(super) fn frame_pointer(regs: &Registers) -> u64 {
        regs.fp()
    }

    /// The address in a saved word of the stack, without its signature.
    pub(super) fn address(word: u64, regs: &Registers) -> u64 {
        regs.lr_mask().strip_ptr_auth(word)
    }
}

impl Unwinding {
    /// Unwinds as far as tables, frame pointers and the copy reach. On x86-64, code of Java virtual machines is
    /// unwound by its own rules. Other code without tables (generated code, Go's) is assumed to have frame pointers,
    /// while these lead to code.
    pub fn unwind(&mut self, maps: &mut ProcMaps, tgid: u32, copy: &Copied) -> Unwound {
        maps.note_unknown(tgid);
        let (work, whose) = (Work::begin(), maps.whose(tgid));
        let Some(until) = self.spent.until(tgid, whose, Instant::now()) else {
            put_off_unless(false);
            return Unwound { frames: vec![copy.regs[0]], ..Unwound::default() };
        };
        let (unwound, unknown) = self.attempt(maps, tgid, copy, until);
        // As for names: a process is first seen in its loader, and opens libraries later.
        let unwound = match unknown && maps.note_again(tgid) {
            true => self.attempt(maps, tgid, copy, until).0,
            false => unwound,
        };
        self.spent.add(tgid, whose, work.elapsed());
        unwound
    }

    /// Unwinds by the known data of the process; returns also whether it reached unknown code.
    fn attempt(&mut self, maps: &ProcMaps, tgid: u32, copy: &Copied, until: Instant) -> (Unwound, bool) {
        let [ip, sp, ..] = copy.regs;
        let mut out = Unwound { frames: vec![ip], ..Unwound::default() };
        self.prepare(maps, tgid);
        let Unwinding { processes, files, bytes, .. } = self;
        let Some(process) = processes.get_mut(&tgid) else { return (out, true) };
        let mut java = self.machines.machine_of(maps, tgid);
        let mut word_at = |address: u64| {
            let at = address.checked_sub(sp).filter(|o| o % 8 == 0).ok_or(())? as usize / 8;
            copy.words.get(at).copied().ok_or(())
        };
        let known = |address: framehop::FrameAddress| maps.find(tgid, address.address_for_lookup()).is_some();
        let highest = process.mapped.iter().map(|(_, _, end, _)| *end).fold(sp, u64::max);
        let mut regs = arch::registers(copy.regs, highest);
        let mut address = framehop::FrameAddress::from_instruction_pointer(ip);
        // A frame of a forged Java virtual machine may take longer than many stacks.
        while out.frames.len() < MAX_FRAMES && Instant::now() < until {
            // A corrupt frame pointer would be followed, or taken for an end.
            if !known(address) {
                return (out, true);
            }
            let before = regs.sp();
            let callee = regs;
            if let Some(java) = java.as_mut()
                && java.holds(address.address_for_lookup())
            {
                let ip = *out.frames.last().unwrap_or(&ip);
                let frame = Frame { ip, sp: before, bp: arch::frame_pointer(&regs) };
                let is_code = |ip: u64| ip > 0 && maps.find(tgid, ip - 1).is_some();
                let (functions, caller) =
                    java.caller(frame, out.frames.len() == 1, &mut |at| word_at(at).ok(), is_code);
                if !functions.is_empty() {
                    out.java.push((out.frames.len() - 1, functions));
                }
                let Some(caller) = caller.filter(|c| c.frame.sp > before) else { break };
                let Some(next) = framehop::FrameAddress::from_return_address(caller.frame.ip) else { break };
                let Frame { ip, sp: now, bp } = caller.frame;
                regs = arch::registers([ip, now, bp, 0], highest);
                out.frames.push(ip);
                let word = |at: u64| at.checked_sub(sp).map(|o| o as usize / 8);
                out.words.push(word(caller.word));
                out.marks.extend(caller.method.and_then(word).into_iter().chain(word(caller.word)));
                address = next;
                continue;
            }
            *bytes += process.load(maps, files, address.address_for_lookup());
            let Some(read) = process.need(address.address_for_lookup()) else { break };
            *bytes += read;
            let next = process.unwinder.unwind_frame(address, &mut regs, &mut process.cache, &mut word_at);
            let Ok(next) = next else { break };
            let Some(next) = next.and_then(framehop::FrameAddress::from_return_address) else {
                out.whole = true;
                break;
            };
            if !known(next) {
                return (out, true);
            }
            if regs.sp() < before {
                break;
            }
            let caller = next.address();
            let at = arch::return_address(&callee, &regs).checked_sub(sp).map(|o| o as usize / 8);
            out.frames.push(caller);
            let word =
                at.filter(|&at| copy.words.get(at).is_some_and(|word| arch::address(*word, &regs) == caller));
            out.words.push(word);
            out.marks.extend(word);
            address = next;
        }
        (out, false)
    }

    /// The functions of the frames, innermost first, in code that a Java virtual machine generated, in the
    /// form of [`Unwound::java`].
    pub fn java(&mut self, maps: &mut ProcMaps, tgid: u32, frames: &[u64]) -> Vec<(usize, Arc<[Arc<str>]>)> {
        // A process is first seen in its loader. The upper half of addresses belongs to no program.
        if frames.iter().any(|&ip| ip < 1 << 63 && maps.find(tgid, ip.saturating_sub(1)).is_none()) {
            maps.note_again(tgid);
        }
        let (work, whose) = (Work::begin(), maps.whose(tgid));
        let Some(until) = self.spent.until(tgid, whose, Instant::now()) else { return Vec::new() };
        let java = self.machines.machine_of(maps, tgid);
        let found = java.map(|java| java.functions_of(frames, until)).unwrap_or_default();
        self.spent.add(tgid, whose, work.elapsed());
        found
    }

    /// Drops unwind tables, some of which may have served programs that ended long ago. Needed ones are read
    /// again.
    pub fn forget_unused(&mut self) {
        self.files.clear();
        self.processes.clear();
        self.bytes = 0;
    }

    /// Drops the data of files, whose numbers are reassigned ([`ProcMaps::forget`]).
    pub fn forget(&mut self) {
        *self = Unwinding::default();
    }

    /// Begins with the process's mappings anew if they have changed.
    fn prepare(&mut self, maps: &ProcMaps, tgid: u32) {
        // Also for a known process: it needs more and more pages.
        if self.bytes > MAX_TABLES {
            self.forget_unused();
        }
        let mapped = maps.code(tgid);
        if self.processes.get(&tgid).is_some_and(|p| p.mapped == mapped) {
            return;
        }
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.clear();
        }
        let process = Process {
            looked_for: vec![false; mapped.len()],
            mapped,
            unwinder: arch::Unwinder::new(),
            tables: Vec::new(),
            cache: arch::Cache::new(),
        };
        self.processes.insert(tgid, process);
    }
}

impl Process {
    /// Loads the tables of the mapping at an address, unless it has. Returns the number of bytes that count as kept for that.
    fn load(&mut self, maps: &ProcMaps, files: &mut HashMap<u32, Option<Arc<Tables>>>, address: u64) -> u64 {
        let at = self.mapped.iter().position(|(_, start, end, _)| (*start..*end).contains(&address));
        let Some(at) = at.filter(|&at| !self.looked_for[at]) else { return 0 };
        let (file, start, end, offset) = self.mapped[at];
        let (tables, bytes) = match files.get(&file) {
            Some(known) => (known.clone(), 0),
            None => {
                let Some(source) = maps.to_parse(file) else {
                    // One that could not be read now is looked for with the next stack.
                    self.looked_for[at] = maps.file(file).path.is_none();
                    return 0;
                };
                let (tables, kept) = source.parsed(Tables::read).unzip();
                // A file without tables is remembered, too.
                let tables = tables.map(Arc::new);
                files.insert(file, tables.clone());
                (tables, ENTRY + kept.unwrap_or(0))
            }
        };
        self.looked_for[at] = true;
        let Some(tables) = tables else { return bytes };
        let Some(bias) = tables.segments.bias(start, offset) else { return bytes };
        let range = |(address, data): &(u64, Bytes)| {
            (*address..address.saturating_add(data.len() as u64), data.clone())
        };
        let (frame_range, frame) = range(&tables.frame);
        let (index_range, index) = tables.index.as_ref().map(range).unzip();
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: Some(frame_range),
            eh_frame: Some(frame),
            eh_frame_hdr_svma: index_range,
            eh_frame_hdr: index,
            ..Default::default()
        };
        self.unwinder.add_module(Module::new(String::new(), start..end, bias, sections));
        self.tables.push((start, end, bias, tables));
        bytes
    }

    /// Reads the data for unwinding the function at an address. Returns the number of bytes read; `None` if
    /// it must not be unwound.
    fn need(&self, address: u64) -> Option<u64> {
        let at = self.tables.iter().find(|(start, end, ..)| (*start..*end).contains(&address));
        at.map_or(Some(0), |(_, _, bias, tables)| tables.need(address.wrapping_sub(*bias)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn tables_are_read_of_code_that_a_stack_passes_through() {
        let (pid, mut maps) = (std::process::id(), ProcMaps::new(Path::new("/")));
        let ip = tables_are_read_of_code_that_a_stack_passes_through as *const () as u64 + 1;
        let mut unwinding = Unwinding::default();
        unwinding.unwind(&mut maps, pid, &Copied { regs: [ip, 0x1000, 0, 0], ..Copied::default() });
        let process = &unwinding.processes[&pid];
        let own = process.mapped.iter().position(|(_, start, end, _)| (*start..*end).contains(&ip));
        let looked_for: Vec<usize> = (0..process.mapped.len()).filter(|&i| process.looked_for[i]).collect();
        assert_eq!(looked_for, Vec::from_iter(own));
        assert!(process.mapped.len() > 2 && process.tables.len() == 1, "{:?}", process.mapped);
    }

    #[test]
    fn a_user_who_begins_ever_new_processes_has_one_share() {
        let (mut spent, now) = (Spent::default(), Instant::now());
        let user = |pid: u32| Whose::process(Path::new("/nonexistent"), pid);
        let one = Duration::from_millis(50);
        let spend = |spent: &mut Spent, pids: std::ops::Range<u32>, whose| {
            pids.take_while(|&pid| {
                spent.add(pid, whose, one);
                spent.until(pid + 1, whose, now).is_some()
            })
            .count()
        };
        assert_eq!(spend(&mut spent, 0..100, user(1)), 17);
        assert_eq!(spent.until(200, user(2), now), Some(now + MAX_SPENT));
        spend(&mut spent, 200..300, user(2));
        assert!(spent.until(400, user(3), now).is_some());
        spend(&mut spent, 400..500, user(3));
        assert!(spent.until(600, user(4), now).is_none() && spent.all <= MAX_SPENT_OF_ALL + one);
        assert!(spent.until(600, user(1), now + PERIOD).is_some());
    }
}
