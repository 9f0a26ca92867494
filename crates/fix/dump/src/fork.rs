//! A copy of a process, made by the process itself (`clone` without shared memory), which shows its memory as it was.
//!
//! The copy never executes an instruction of the program. It is born stopped, because we trace the thread that makes it;
//! if we end before we know of it, it exits by itself (see [`Session::copy`]); afterwards the kernel kills it with us
//! (PTRACE_O_EXITKILL, which is set for the copy alone). What may then be left is the number of the copy in the table of
//! processes, for no signal tells its process of it: another process of ours, which waits for our end, has it forgotten. Where
//! we end before we can give it the number, it knows the copy by what no other child has: its end raises no signal, and it
//! began after this dump.

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

/// How many threads are tried for one that calls can be injected into.
const CANDIDATES: usize = 64;

/// The copy. Dropping it kills it.
pub(crate) struct Twin {
    /// Its number for us.
    pub(crate) pid: i32,
    /// Its number in the namespace of its process.
    number: i64,
    /// Its process.
    parent: i32,
}

impl Twin {
    /// Has a process, all of whose threads stand, make a copy of itself.
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
                reaper.tell(&twin);
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

    /// Takes hold of the copy at its first stop, and cleans what is ours from its stack.
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
        // Pages that the process writes meanwhile exist twice. If memory runs out, the copy has to go first.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", self.pid), "1000");
        Ok(())
    }

    fn kill(&self) {
        // SAFETY: plain numbers. It is our tracee, so nobody else has its number.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        while trace::change(self.pid, true) != Change::Ended {}
    }

    /// Ends the copy, and has its process forget it.
    ///
    /// # Errors
    /// No thread of the process could be made to wait for it: its number stays until the process ends.
    pub(crate) fn end(self, injector: &Injector, memory: &Memory) -> Result<(), Error> {
        let parent = self.parent;
        let number = self.number;
        drop(self);
        forget_by_any_thread(injector, parent, number, memory)
    }
}

/// Has a thread of a process wait for the process's copy, which has been killed.
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

/// A process of ours that outlives us where we are killed, and then has a process forget its copy.
pub(crate) struct Reaper(Child);

/// The last word to a reaper that is not needed.
const DONE: &[u8] = b"done";

impl Reaper {
    /// Starts it: `program` calls [`reap`] for the argument `--reap`.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(crate) fn start(program: &Path, process: i32) -> io::Result<Reaper> {
        let mut command = Command::new(program);
        command.args(["dump", "--reap", &process.to_string()]);
        // In a group of its own, which a terminal's Ctrl-C and a kill of our group do not reach.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Reaper)
    }

    /// Tells it of the copy.
    fn tell(&mut self, twin: &Twin) {
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

/// How long a copy is waited for whose tracer was killed.
const DYING: Duration = Duration::from_secs(10);
/// How long a copy is looked for of which nobody has told: the call that makes it may just be on its way.
const UNTOLD: Duration = Duration::from_millis(500);

/// The work of a [`Reaper`]: waits until standard input ends. Without [`DONE`] at its end, has the process forget the copy.
///
/// # Errors
/// The process could not be made to.
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
        // Killed before there was a copy, or before it could tell of it.
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
        // The one that was killed may trace threads for a moment longer.
        match forget_copy(process, number) {
            Err(_) if began.elapsed() < DYING => std::thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
}

/// The copy that a process has made of itself since a time, in clock ticks since boot: its number for us and in the namespace
/// of its process.
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

/// Has a process wait for its copy, which has been killed.
fn forget(session: &mut Session, number: i64, memory: &Memory) -> Result<(), Error> {
    let flags = (libc::__WALL | libc::WNOHANG) as u64;
    match session.call(libc::SYS_wait4, [number as u64, 0, flags, 0, 0, 0], memory)? {
        result if result == number => Ok(()),
        // Somebody has waited for children of every kind.
        result if result == -i64::from(libc::ECHILD) => Ok(()),
        result => Err(Error::Unsupported(format!("wait4 in the process returned {result}"))),
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.kill();
    }
}
