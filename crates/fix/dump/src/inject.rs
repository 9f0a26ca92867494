//! Makes a thread of another process execute system calls for us.
//!
//! The danger is that we are killed half way: the thread would continue with our registers. So the thread
//! gets the data to restore itself before any register is changed. Below its stack (and below the red zone)
//! we write the frame that the kernel itself writes for a signal handler: all registers, the extended state
//! and the signal mask. Then one call of ptrace sets the registers so that the thread executes `syscall;
//! ret`, instructions that its C library or the vDSO contains, and `ret` leads to `rt_sigreturn`, which
//! restores everything from the frame. Normally we stop the thread at the exit of the call and restore its
//! registers ourselves, so the frame is not used. If we are killed at any instant, then either the registers
//! are the thread's own, or the thread completes the call and returns through the frame, as from a signal
//! handler.
//!
//! Only in that last case are there traces: a descriptor that the call made, and EINTR from a call that
//! restarts with the rest of its timeout, as it may return after any signal.

use crate::Error;
use crate::arch::{self, Frame, Gadgets, General, Sets};
use crate::memory::{self, Memory};
use crate::seccomp::{self, Filters, Verdict};
use crate::target::{Mapping, Status};
use crate::trace::{self, Change, Stop, ptrace, ptrace_read, set_general, set_mask};

/// Why calls are not injected into this process. The caller must find another way.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

/// Code of the process that executes calls.
pub(crate) struct Injector {
    pid: i32,
    gadgets: Gadgets,
}

/// The space of a frame below the stack pointer, without the extended state.
const ROOM: u64 = 1 << 10;
/// The space left below both frames.
const MARGIN: u64 = 8 << 10;
/// Code is searched in pieces of this size.
const PIECE: usize = 1 << 20;

impl Injector {
    /// Checks whether calls can be injected, and looks for the instructions.
    pub(crate) fn find(status: &Status, memory: &Memory, mappings: &[Mapping]) -> Result<Self, Refused> {
        if status.shadow_stack {
            return Err(Refused("it has a shadow stack".into()));
        }
        let (mut call, mut sigreturn) = (None, None);
        let code = mappings.iter().filter(|m| m.execute && m.read && m.name != b"[vsyscall]");
        // The vDSO comes last, but is smallest.
        let (vdso, files): (Vec<_>, Vec<_>) = code.partition(|m| m.name == b"[vdso]");
        for mapping in vdso.into_iter().chain(files) {
            let mut start = mapping.start;
            while start < mapping.end && (call.is_none() || sigreturn.is_none()) {
                // Pieces overlap, since an instruction may lie across their border.
                let end = mapping.end.min(start + (PIECE + 16) as u64);
                let mut piece = vec![0; (end - start) as usize];
                if memory.read_exact(start, &mut piece).is_err() {
                    break;
                }
                let found = arch::find_gadgets(&piece);
                call = call.or(found.0.map(|at| start + at as u64));
                sigreturn = sigreturn.or(found.1.map(|at| start + at as u64));
                start += PIECE as u64;
            }
        }
        match (call, sigreturn) {
            (Some(call), Some(sigreturn)) => {
                Ok(Self { pid: status.tgid, gadgets: Gadgets { call, sigreturn } })
            }
            _ => Err(Refused("its code contains no system call and rt_sigreturn".into())),
        }
    }

    /// Prepares a stopped thread. Its registers are its own until the first call.
    pub(crate) fn enter(
        &self,
        stop: &Stop,
        tid: i32,
        mappings: &[Mapping],
        memory: &Memory,
    ) -> Result<Session<'_>, Refused> {
        let refused = |e: std::io::Error| Refused(format!("thread {tid}: {e}"));
        if stop.has_signal(tid) {
            return Err(Refused(format!("thread {tid} is about to receive a signal")));
        }
        // The code that executes calls was found in the program that ran at that time. While a thread is
        // stopped, no other thread can replace the program.
        if !memory.is_alive(self.gadgets.call) {
            return Err(Refused("it has executed another program".into()));
        }
        let original = trace::general(tid).map_err(refused)?;
        let sets = trace::sets(tid);
        let mask = trace::mask(tid).map_err(refused)?;
        let filters = filters(tid)?;
        // Without these the injection could not be undone.
        for number in [libc::SYS_rt_sigreturn, libc::SYS_close] {
            if filters.verdict(&self.filtered(number, [0; 6])) != Verdict::Allow {
                return Err(Refused(
                    "its seccomp filter forbids system calls that an injected call needs".into(),
                ));
            }
        }
        // The thread's frame, and that of a copy of the process.
        let state: usize = sets.iter().map(|(_, bytes)| bytes.len()).sum();
        let room = 2 * (state as u64 + ROOM) + MARGIN;
        if !spare_stack(self.pid, tid, &original, mappings, memory, room) {
            return Err(Refused(format!("thread {tid} has no stack with room that is certainly unused")));
        }
        if in_restartable_sequence(tid, &original, memory) {
            return Err(Refused(format!("thread {tid} is in a restartable sequence")));
        }
        let form = || Refused("its registers have an unknown form".into());
        let frame = arch::frame(&original, &sets, mask, self.gadgets).ok_or_else(form)?;
        Ok(Session {
            pid: self.pid,
            tid,
            original,
            sets,
            mask,
            filters,
            frame,
            injector: self,
            before: Vec::new(),
            copy: None,
            deferred: Vec::new(),
            entered: false,
        })
    }

    /// A call in the form that filters see.
    fn filtered(&self, number: i64, arguments: [u64; 6]) -> seccomp::Call {
        let pc = self.gadgets.call + arch::CALL_LENGTH;
        seccomp::Call { number, arch: arch::AUDIT, pc, arguments }
    }
}

/// The seccomp filters of a stopped thread.
fn filters(tid: i32) -> Result<Filters, Refused> {
    match Status::read(tid).map_err(|e| Refused(e.to_string()))?.seccomp {
        0 => Ok(Filters::default()),
        1 => Err(Refused("it is in seccomp's strict mode".into())),
        _ => Filters::read(tid).map_err(|e| {
            Refused(format!(
                "it has a seccomp filter that cannot be read ({e}; takes CAP_SYS_ADMIN and CONFIG_CHECKPOINT_RESTORE) and \
                 might kill it for the call"
            ))
        }),
    }
}

/// Options of ptrace during injected calls, and during a call that copies the process.
const OPTIONS: u64 = libc::PTRACE_O_TRACESYSGOOD as u64;
const CLONING: u64 = OPTIONS | libc::PTRACE_O_TRACECLONE as u64;

/// A thread that executes calls for us. Dropping it restores the thread's registers; it is then stopped as
/// before.
pub(crate) struct Session<'a> {
    pid: i32,
    tid: i32,
    original: General,
    sets: Sets,
    mask: u64,
    filters: Filters,
    frame: Frame,
    injector: &'a Injector,
    /// The previous contents of the stack at the frames, by address.
    before: Vec<(u64, Vec<u8>)>,
    /// The copy of the process made by a call.
    copy: Option<i32>,
    /// Signals that came meanwhile and cannot be blocked.
    deferred: Vec<i32>,
    /// Whether registers and mask are not the thread's own.
    entered: bool,
}

impl Session<'_> {
    /// Writes a frame to unused stack. If we end before it is used, nothing has changed.
    fn place(&mut self, at: u64, bytes: &[u8], memory: &Memory) -> Result<(), Error> {
        let mut before = vec![0; bytes.len()];
        memory.read_exact(at, &mut before)?;
        instant();
        memory::write(self.pid, at, bytes).map_err(|_| Error::Gone(self.pid))?;
        self.before.push((at, before));
        Ok(())
    }

    /// Executes a call and returns its raw result: an error is a negated number.
    ///
    /// # Errors
    /// The thread has ended, or its seccomp filter would do more than refuse the call, which is then not
    /// made.
    pub(crate) fn call(&mut self, number: i64, arguments: [u64; 6], memory: &Memory) -> Result<i64, Error> {
        let pid = self.pid;
        let gone = move |_| Error::Gone(pid);
        match self.filters.verdict(&self.injector.filtered(number, arguments)) {
            Verdict::Allow => {}
            Verdict::Errno(error) => return Ok(-i64::from(error)),
            Verdict::Trouble => {
                return Err(Error::Unsupported(format!(
                    "its seccomp filter would end it for system call {number}"
                )));
            }
        }
        if !self.entered {
            let bytes = std::mem::take(&mut self.frame.bytes);
            self.place(self.frame.sp, &bytes, memory)?;
        }
        instant();
        let registers = self.original.calling(self.injector.gadgets, self.frame.sp, number, arguments);
        // From here on the thread, if released, makes the call and restores itself.
        set_general(self.tid, &registers).map_err(gone)?;
        instant();
        if !self.entered {
            self.entered = true;
            // Signals wait until the call is over. The frame contains the mask, so this is restored too.
            set_mask(self.tid, u64::MAX).map_err(gone)?;
            instant();
        }
        self.run_to_call()?;
        instant();
        self.run_to_call()?;
        instant();
        Ok(trace::general(self.tid).map_err(gone)?.result())
    }

    /// Makes the thread copy its process; the copy is stopped from its first instruction on. Returns the
    /// copy's number for us, and its number in the process's own namespace.
    ///
    /// If we end before we trace the copy, it must not run as a second instance of the process. So it has a
    /// separate stack, below the thread's frame, with a frame that leads to `exit_group`.
    ///
    /// # Errors
    /// The thread has ended, a filter forbids it, or the kernel refuses it.
    pub(crate) fn copy(&mut self, memory: &Memory) -> Result<(i32, i64), Error> {
        let pid = self.pid;
        let gone = move |_| Error::Gone(pid);
        let gadgets = self.injector.gadgets;
        if self.filters.verdict(&self.injector.filtered(libc::SYS_exit_group, [0; 6])) != Verdict::Allow {
            return Err(Error::Unsupported("its seccomp filter forbids exit_group".into()));
        }
        let last = self.original.calling(gadgets, self.frame.sp - 256, libc::SYS_exit_group, [0; 6]);
        let frame = arch::frame(&last, &self.sets, u64::MAX, gadgets)
            .ok_or_else(|| Error::Unsupported("its registers have an unknown form".into()))?;
        self.place(frame.sp, &frame.bytes, memory)?;
        // Descriptors are shared, so that none stays open because of the copy. No signal reports its end.
        let flags = (libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_IO) as u64;
        ptrace(libc::PTRACE_SETOPTIONS, self.tid, 0, CLONING).map_err(gone)?;
        let number = self.call(libc::SYS_clone, [flags, frame.sp, 0, 0, 0, 0], memory);
        ptrace(libc::PTRACE_SETOPTIONS, self.tid, 0, OPTIONS).map_err(gone)?;
        match (number?, self.copy.take()) {
            (number @ 1.., Some(copy)) => Ok((copy, number)),
            (number, _) => Err(Error::call("clone", std::io::Error::from_raw_os_error(-number as i32))),
        }
    }

    /// The previous contents at the frames, by address: the copy of a process contains the frames as well.
    pub(crate) fn before(&self) -> &[(u64, Vec<u8>)] {
        &self.before
    }

    /// An address on its stack where 128 bytes are free for our use, once the first call is prepared.
    pub(crate) fn scratch(&self) -> u64 {
        self.frame.scratch
    }

    /// Lets the thread run to the next entry or exit of a call.
    fn run_to_call(&mut self) -> Result<(), Error> {
        loop {
            ptrace(libc::PTRACE_SYSCALL, self.tid, 0, 0).map_err(|_| Error::Gone(self.pid))?;
            instant();
            match trace::change(self.tid, true) {
                Change::Call => return Ok(()),
                Change::Signal(signal) => self.deferred.push(signal),
                // Its process was stopped by a signal at this moment.
                Change::Stopped => {}
                Change::Cloned => {
                    let mut copy: libc::c_ulong = 0;
                    // The kernel writes one word.
                    let result = ptrace_read(libc::PTRACE_GETEVENTMSG, self.tid, 0, (&raw mut copy).cast());
                    result.map_err(|_| Error::Gone(self.pid))?;
                    self.copy = Some(copy as i32);
                }
                Change::Ended | Change::None => return Err(Error::Gone(self.pid)),
            }
        }
    }

    /// Restores the thread's registers and mask, and leaves it stopped.
    fn leave(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.entered) {
            return Ok(());
        }
        let gone = |_| Error::Gone(self.pid);
        // The thread is at the exit of a call. On our request it stops before its next instruction, the only
        // place where the kernel checks the registers that we set and restarts the call that our stop
        // interrupted.
        ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0).map_err(gone)?;
        instant();
        loop {
            ptrace(libc::PTRACE_CONT, self.tid, 0, 0).map_err(gone)?;
            instant();
            match trace::change(self.tid, true) {
                Change::Stopped => break,
                Change::Signal(signal) => self.deferred.push(signal),
                Change::Call | Change::Cloned => {}
                Change::Ended | Change::None => return Err(Error::Gone(self.pid)),
            }
        }
        set_mask(self.tid, self.mask).map_err(gone)?;
        instant();
        // From here on the thread has its own state.
        set_general(self.tid, &self.original).map_err(gone)?;
        instant();
        // Below the stack pointer, in unused memory; its contents are restored so that the dump has them.
        for (at, bytes) in self.before.drain(..) {
            let _ = memory::write(self.pid, at, &bytes);
        }
        for signal in self.deferred.drain(..) {
            // SAFETY: plain numbers.
            unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.tid, signal) };
        }
        Ok(())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Fails only if the thread was killed.
        let _ = self.leave();
    }
}

/// Whether there is unused space below the stack pointer. Only stacks for which this is certain are used:
/// languages with small stacks of their own keep other data below.
fn spare_stack(
    pid: i32,
    tid: i32,
    registers: &General,
    mappings: &[Mapping],
    memory: &Memory,
    room: u64,
) -> bool {
    let sp = registers.sp();
    let Some(index) = mappings.iter().position(|m| m.start <= sp && sp < m.end) else { return false };
    let mapping = &mappings[index];
    if !mapping.write || mapping.shared || sp - mapping.start < room {
        return false;
    }
    // The stack that the kernel made for the main thread.
    if tid == pid && mapping.name == b"[stack]" {
        return true;
    }
    // A thread of the C library has its control block on top of its stack, whose first word is its own
    // address.
    let block = registers.thread_block();
    let mut word = [0; 8];
    sp < block
        && block < mapping.end
        && !mapping.is_file()
        && memory.read_exact(block, &mut word).is_ok()
        && u64::from_ne_bytes(word) == block
}

const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// Whether the thread is in a sequence that the kernel would restart if it noticed an interruption (rseq).
/// With changed registers the kernel would not notice.
fn in_restartable_sequence(tid: i32, registers: &General, memory: &Memory) -> bool {
    let mut configuration = [0u64; 3];
    // SAFETY: the kernel writes at most the 24 bytes that are passed.
    let result =
        unsafe { libc::ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, 24usize, configuration.as_mut_ptr()) };
    // Before Linux 5.13 this cannot be queried; a C library that old does not use it.
    if result < 0 || configuration[0] == 0 {
        return false;
    }
    let mut word = [0; 8];
    if memory.read_exact(configuration[0] + 8, &mut word).is_err() {
        return true;
    }
    let section = u64::from_ne_bytes(word);
    if section == 0 {
        return false;
    }
    // version and flags, start, length, abort
    let mut bytes = [0; 32];
    if memory.read_exact(section, &mut bytes).is_err() {
        return true;
    }
    let at = |n: usize| u64::from_ne_bytes(bytes[n..n + 8].try_into().unwrap_or_default());
    registers.pc().wrapping_sub(at(8)) < at(16)
}

/// An instant at which we might be killed. Tests kill at each of them.
#[cfg(not(test))]
fn instant() {}
#[cfg(test)]
use tests::instant;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::target;

    /// Instants until we kill ourselves; negative is never.
    static LEFT: AtomicI64 = AtomicI64::new(-1);

    pub(super) fn instant() {
        if LEFT.fetch_sub(1, Ordering::Relaxed) == 0 {
            // SAFETY: plain numbers.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }

    /// Starts the program that watches its own registers.
    fn watcher(directory: &std::path::Path, what: &str) -> Child {
        let program = directory.join("registers");
        if !program.exists() {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/registers.c");
            let cc =
                Command::new("cc").args(["-O2", "-pthread", source, "-o"]).arg(&program).status().unwrap();
            assert!(cc.success());
        }
        let mut child = Command::new(program).arg(what).stdout(Stdio::piped()).spawn().unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        child
    }

    /// Makes a thread of the process call getpid and getppid, and returns their results.
    fn two_calls(pid: i32) -> [i64; 2] {
        let status = Status::read(pid).unwrap();
        let memory = Memory::open(pid).unwrap();
        let mappings = target::mappings(pid).unwrap();
        let injector = Injector::find(&status, &memory, &mappings).unwrap();
        let stop = Stop::one(pid, pid).unwrap();
        let mut session = injector.enter(&stop, pid, &mappings, &memory).unwrap();
        [libc::SYS_getpid, libc::SYS_getppid].map(|number| session.call(number, [0; 6], &memory).unwrap())
    }

    /// Not a separate test: the process that is killed.
    #[test]
    #[ignore = "run by a_killed_tracer_leaves_the_process_as_it_was"]
    fn tracer() {
        let number = |name| std::env::var(name).unwrap().parse().unwrap();
        LEFT.store(number("INSTANTS"), Ordering::Relaxed);
        two_calls(number("TARGET") as i32);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn calls_are_executed_by_the_process() {
        let directory = tempfile::tempdir().unwrap();
        for what in ["compute", "read", "sleep"] {
            let mut child = watcher(directory.path(), what);
            let pid = child.id() as i32;
            for _ in 0..50 {
                assert_eq!(two_calls(pid), [i64::from(pid), i64::from(std::process::id())], "{what}");
            }
            // SAFETY: plain numbers.
            unsafe { libc::kill(pid, libc::SIGTERM) };
            assert_eq!(child.wait().unwrap().code(), Some(0), "{what}: its registers changed");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_killed_tracer_leaves_the_process_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        for what in ["compute", "read", "sleep"] {
            let mut child = watcher(directory.path(), what);
            let pid = child.id() as i32;
            let mut killed = 0;
            loop {
                let mut tracer = Command::new(std::env::current_exe().unwrap());
                tracer.args(["--exact", "inject::tests::tracer", "--ignored"]).stdout(Stdio::null());
                tracer.env("TARGET", pid.to_string()).env("INSTANTS", killed.to_string());
                if tracer.status().unwrap().success() {
                    break;
                }
                let status = Status::read(pid).unwrap();
                assert_eq!(status.tracer, 0, "{what} {killed}");
                assert!(matches!(status.state, 'R' | 'S'), "{what} {killed}: {}", status.state);
                killed += 1;
            }
            // Two calls and the restoration have more instants than that.
            assert!(killed > 15, "{what}: {killed}");
            // SAFETY: plain numbers.
            unsafe { libc::kill(pid, libc::SIGTERM) };
            assert_eq!(child.wait().unwrap().code(), Some(0), "{what}: something was not restored");
        }
    }
}
