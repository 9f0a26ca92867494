//! A copy of a process, made by the process itself (`clone` without shared memory), with its memory at that
//! moment.
//!
//! The copy never executes an instruction of the program. It starts stopped, because we trace the thread that
//! makes it. If we end before we learn of it, it exits by itself (see [`Session::copy`]); after that the
//! kernel kills it with us (PTRACE_O_EXITKILL, which is set only for the copy). The copy may then remain in
//! the process table, because no signal reports its end to its parent. A helper process of ours, which waits
//! for our end, makes the parent reap it. If we end before we can give the helper the copy's number, it
//! recognises the copy by two properties: its end raises no signal, and it began after this dump.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::inject::{Injector, Refused, Session};
use crate::memory::{self, Memory};
use crate::target::{self, Mapping, Status};
use crate::trace::{self, Change, Stop, ptrace};

/// The number of threads tried for one that calls can be injected into.
const CANDIDATES: usize = 64;

/// The copy. Dropping it kills it.
pub(crate) struct Twin {
    /// Its process ID for us.
    pub(crate) pid: i32,
    /// Its process ID in the namespace of its parent.
    number: i64,
    /// The process that was copied.
    parent: i32,
}

impl Twin {
    /// Makes a process, all of whose threads are stopped, copy itself.
    ///
    /// # Errors
    /// Its filters, limits or memory do not allow it.
    pub(crate) fn make(
        injector: &Injector,
        stop: &Stop,
        tids: impl Iterator<Item = i32>,
        parent: i32,
        mappings: &[Mapping],
        memory: &Memory,
        reaper: Option<&mut Reaper>,
    ) -> Result<Self, Refused> {
        let mut last = Refused("it has no threads".into());
        for tid in tids {
            let mut session = match injector.enter(stop, tid, mappings, memory) {
                Ok(session) => session,
                Err(refused) => {
                    last = refused;
                    continue;
                }
            };
            let made = session.copy(memory).map_err(|e| Refused(e.to_string()));
            let (pid, number) = made?;
            let twin = Self { pid, number, parent };
            if let Some(reaper) = reaper {
                reaper.announce(&twin);
            }
            if let Err(refused) = twin.settle(&session) {
                drop(twin);
                // Fails only if the thread was killed, and the process with it.
                let _ = forget(&mut session, number, memory);
                return Err(refused);
            }
            return Ok(twin);
        }
        Err(last)
    }

    /// Takes control of the copy at its first stop, and removes our data from its stack.
    fn settle(&self, session: &Session) -> Result<(), Refused> {
        let gone = || Refused("the copy of it was killed".into());
        if trace::change(self.pid, true) != Change::Stopped {
            return Err(gone());
        }
        let options = libc::PTRACE_O_EXITKILL as u64;
        ptrace(libc::PTRACE_SETOPTIONS, self.pid, 0, options).map_err(|_| gone())?;
        for (at, bytes) in session.before() {
            memory::write(self.pid, *at, bytes).map_err(|_| gone())?;
        }
        // Pages that the process writes meanwhile exist twice. If memory runs out, the copy must be killed
        // first.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", self.pid), "1000");
        Ok(())
    }

    fn kill(&self) {
        // SAFETY: plain numbers. It is our tracee, so no other process has its number.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        while trace::change(self.pid, true) != Change::Ended {}
    }

    /// Ends the copy, and makes its parent reap it.
    ///
    /// # Errors
    /// No thread of the process could reap it: it stays a zombie until the process ends.
    pub(crate) fn end(self, injector: &Injector, memory: &Memory) -> Result<(), Error> {
        let parent = self.parent;
        let number = self.number;
        drop(self);
        forget_by_any_thread(injector, parent, number, memory)
    }
}

/// Makes a thread of a process reap the process's copy, which was killed.
fn forget_by_any_thread(injector: &Injector, parent: i32, number: i64, memory: &Memory) -> Result<(), Error> {
    let mappings = target::mappings_only(parent)?;
    let mut last = Error::Gone(parent);
    for tid in target::threads(parent)?.into_iter().take(CANDIDATES) {
        let stop = match Stop::one(parent, tid) {
            Ok(stop) => stop,
            Err(e) => {
                last = e;
                continue;
            }
        };
        let waited = match injector.enter(&stop, tid, &mappings, memory) {
            Ok(mut session) => forget(&mut session, number, memory),
            Err(Refused(why)) => Err(Error::Unsupported(why)),
        };
        match waited {
            Ok(()) => return Ok(()),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// A helper process that outlives us if we are killed, and then makes a process reap its copy.
pub(crate) struct Reaper(Child);

/// The message that ends a reaper without work.
const DONE: &[u8] = b"done";

impl Reaper {
    /// Starts the helper: `program` calls [`reap`] for the argument `--reap`.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(crate) fn start(program: &Path, process: i32) -> io::Result<Reaper> {
        let mut command = Command::new(program);
        command.args(["dump", "--reap", &process.to_string()]);
        // In a group of its own, which a terminal's Ctrl-C and a signal to our group do not reach.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Reaper)
    }

    /// Sends it the numbers of the copy.
    fn announce(&mut self, twin: &Twin) {
        if let Some(pipe) = &mut self.0.stdin {
            // Fails only if it was killed.
            let _ = pipe.write_all(format!("{} {}\n", twin.pid, twin.number).as_bytes());
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(DONE);
        }
        let _ = self.0.wait();
    }
}

/// How long to wait for the end of a copy whose tracer was killed.
const DYING: Duration = Duration::from_secs(10);
/// How long to look for a copy whose number was not received: the call that makes it may be in progress.
const UNTOLD: Duration = Duration::from_millis(500);

/// The work of a [`Reaper`]: waits until standard input ends. Unless the input ends with [`DONE`], makes the
/// process reap the copy.
///
/// # Errors
/// The process could not be made to reap it.
pub fn reap(process: i32) -> Result<(), Error> {
    let since = target::started(std::process::id() as i32).ok_or(Error::NoProcess(process))?;
    let mut text = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut text);
    read.map_err(|e| Error::call("reading standard input", e))?;
    if text.ends_with(DONE) {
        return Ok(());
    }
    let numbers: Vec<i64> =
        String::from_utf8_lossy(&text).split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let (copy, number) = match numbers[..] {
        [copy, number] => (copy, number),
        // Killed before the copy was made, or before its number was sent.
        _ => match find_copy(process, since) {
            Some(found) => found,
            None => return Ok(()),
        },
    };
    let began = Instant::now();
    while Status::read(copy as i32).is_ok_and(|status| status.state != 'Z') && began.elapsed() < DYING {
        std::thread::sleep(Duration::from_millis(1));
    }
    loop {
        // The killed process may trace threads for a moment longer.
        match forget_copy(process, number) {
            Err(_) if began.elapsed() < DYING => std::thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
}

/// The copy that a process has made of itself since a time, in clock ticks since boot: its number for us and
/// in the namespace of its parent.
fn find_copy(process: i32, since: u64) -> Option<(i64, i64)> {
    let began = Instant::now();
    let level = Status::read(process).ok()?.numbers.len().checked_sub(1)?;
    loop {
        for child in target::children(process) {
            if target::is_copy(child, process, since)
                && let Ok(status) = Status::read(child)
                && let Some(number) = status.numbers.get(level)
            {
                return Some((child.into(), (*number).into()));
            }
        }
        if began.elapsed() > UNTOLD {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn forget_copy(process: i32, number: i64) -> Result<(), Error> {
    let status = target::check(process)?;
    let memory = Memory::open(process)?;
    let mappings = target::mappings_only(process)?;
    let injector =
        Injector::find(&status, &memory, &mappings).map_err(|Refused(why)| Error::Unsupported(why))?;
    forget_by_any_thread(&injector, process, number, &memory)
}

/// Makes a process reap its copy, which was killed.
fn forget(session: &mut Session, number: i64, memory: &Memory) -> Result<(), Error> {
    let flags = (libc::__WALL | libc::WNOHANG) as u64;
    match session.call(libc::SYS_wait4, [number as u64, 0, flags, 0, 0, 0], memory)? {
        result if result == number => Ok(()),
        // The program has already waited for children of every kind.
        result if result == -i64::from(libc::ECHILD) => Ok(()),
        result => Err(Error::Unsupported(format!("wait4 in the process returned {result}"))),
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.kill();
    }
}
