//! A copy of a process, made by the process itself (`clone` without shared memory), which shows its memory as it was.
//!
//! The copy never executes an instruction of the program. It is born stopped, because we trace the thread that makes it;
//! if we end before we know of it, it exits by itself (see [`Session::copy`]); afterwards the kernel kills it with us
//! (PTRACE_O_EXITKILL, which is set for the copy alone). What may then be left is the number of the copy in the table of
//! processes, until the process ends: it has no handler for it, as no signal tells it.

use crate::Error;
use crate::inject::{Injector, Refused, Session};
use crate::memory::{self, Memory};
use crate::target::{self, Mapping};
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
