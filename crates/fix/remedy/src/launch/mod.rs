//! Starts a program in a setting of its own: control group, namespaces, mounts, CPUs, memory policy.
//!
//! The child's work between `fork` and `exec` is a list of [`Step`]s, all prepared before the fork: the child makes
//! system calls and nothing else, so that it is right in a process with several threads too.

mod child;
pub mod signals;

use std::ffi::{CString, OsString};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use ncpu_machine::CpuSet;

use crate::schedule::Class;

/// Why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step before it, or the program itself.
    #[error("{what}: {source}")]
    Step {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
        /// The program itself could not be executed.
        exec: bool,
    },
    /// The program is not found.
    #[error("{0}: command not found; give a program in PATH or a path to one")]
    NotFound(String),
    /// No process or no pipe.
    #[error("starting {command}: {source}")]
    Fork {
        /// The program.
        command: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// The exit status, as a shell and env(1) have it.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::NotFound(_) => 127,
            Error::Step { exec: true, .. } => 126,
            _ => 125,
        }
    }
}

/// Modes of memory policies, linux/mempolicy.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Policy {
    /// From one node while it has any.
    Preferred = 1,
    /// From these nodes only.
    Bind = 2,
    /// From these nodes in turn.
    Interleave = 3,
    /// From the node of whoever touches it first.
    Local = 4,
}

/// Something that the child does before it becomes the program.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes a text to a file of the kernel.
    Write {
        /// The file.
        path: CString,
        /// The text.
        text: Vec<u8>,
    },
    /// Namespaces of its own, `CLONE_NEW…` flags.
    Unshare(libc::c_int),
    /// Its mounts are seen by nobody else; others' mounts are seen by it.
    PrivateMounts,
    /// A mount.
    Mount {
        /// The kind of file system.
        kind: CString,
        /// Where.
        at: CString,
        /// The file system's options.
        options: CString,
    },
    /// Goes to a directory.
    Directory(CString),
    /// Switches the loopback interface on.
    Loopback,
    /// The CPUs it may use, a bit for each.
    Affinity(Vec<u64>),
    /// Where its memory comes from: mode and nodes.
    Memory(Policy, Vec<u64>),
    /// How it is scheduled.
    Schedule(Class),
    /// Becomes the first process of a new PID namespace that hands signals on; the program is its child.
    FirstProcess,
}

impl Step {
    /// A text to a file.
    pub fn write(path: &Path, text: impl Into<Vec<u8>>) -> Step {
        Step::Write { path: c(path.as_os_str().as_bytes()), text: text.into() }
    }

    /// A mount of a kind of file system.
    pub fn mount(kind: &str, at: &Path, options: impl Into<Vec<u8>>) -> Step {
        Step::Mount {
            kind: c(kind.as_bytes()),
            at: c(at.as_os_str().as_bytes()),
            options: c(&options.into()),
        }
    }

    /// A directory to be in.
    pub fn directory(path: &Path) -> Step {
        Step::Directory(c(path.as_os_str().as_bytes()))
    }

    /// CPUs it may use.
    pub fn affinity(cpus: &CpuSet) -> Step {
        Step::Affinity(crate::sys::words(cpus))
    }

    /// Where its memory comes from.
    pub fn memory(policy: Policy, nodes: &CpuSet) -> Step {
        Step::Memory(policy, crate::sys::words(nodes))
    }

    /// The operation, for messages.
    pub fn what(&self) -> String {
        match self {
            Step::Write { path, .. } => format!("writing {}", path.to_string_lossy()),
            Step::Unshare(_) => "making namespaces".into(),
            Step::PrivateMounts => "making mounts private".into(),
            Step::Mount { kind, at, .. } => {
                format!("mounting {} at {}", kind.to_string_lossy(), at.to_string_lossy())
            }
            Step::Directory(path) => format!("going to {}", path.to_string_lossy()),
            Step::Loopback => "switching the loopback interface on".into(),
            Step::Affinity(_) => "choosing CPUs".into(),
            Step::Memory(..) => "choosing memory nodes".into(),
            Step::Schedule(class) => format!("choosing the scheduling class ({class:?})"),
            Step::FirstProcess => "starting a process in a PID namespace".into(),
        }
    }
}

/// As the C library takes it; at a NUL, which no path or argument can hold, it ends.
fn c(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).unwrap_or_default()
}

/// A program that is to be started.
pub struct Launch {
    argv: Vec<CString>,
    environment: Vec<CString>,
    steps: Vec<Step>,
    output: Option<OwnedFd>,
}

/// A program that was started.
#[derive(Debug)]
pub struct Started {
    /// The process, leader of a process group of its own.
    pub pid: u32,
    failure: std::io::PipeReader,
    what: Vec<String>,
    command: String,
}

impl Launch {
    /// A program with its arguments and its whole environment.
    pub fn new(argv: &[OsString], environment: Vec<(OsString, OsString)>) -> Launch {
        let pair = |(name, value): (OsString, OsString)| {
            let mut all = name.into_vec();
            all.push(b'=');
            all.extend(value.into_vec());
            c(&all)
        };
        Launch {
            argv: argv.iter().map(|a| c(a.as_bytes())).collect(),
            environment: environment.into_iter().map(pair).collect(),
            steps: Vec::new(),
            output: None,
        }
    }

    /// Sets the steps before it, in order.
    #[must_use]
    pub fn steps(mut self, steps: Vec<Step>) -> Launch {
        self.steps = steps;
        self
    }

    /// Where its output and its errors go.
    #[must_use]
    pub fn output(mut self, file: OwnedFd) -> Launch {
        self.output = Some(file);
        self
    }

    /// Forks. The program gets a process group of its own, reads nothing, and is killed when this process dies.
    /// [`Started::wait_for_exec`] says whether it could be executed.
    ///
    /// # Errors
    /// No process, or no pipe.
    pub fn start(&self) -> Result<Started, Error> {
        let command = self.argv.first().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
        let failed = |source| Error::Fork { command: command.clone(), source };
        let (failure, report) = std::io::pipe().map_err(failed)?;
        let pointers = |all: &[CString]| -> Vec<*const libc::c_char> {
            all.iter().map(|a| a.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, environment) = (pointers(&self.argv), pointers(&self.environment));
        let prepared = child::Prepared {
            argv: &argv,
            environment: &environment,
            steps: &self.steps,
            output: self.output.as_ref().map(|o| o.as_raw_fd()),
            report: report.as_raw_fd(),
            parent: std::process::id(),
        };
        // SAFETY: the child makes async-signal-safe calls only until it execs or exits.
        let pid = unsafe { libc::fork() };
        match pid {
            0 => prepared.run(),
            -1 => Err(failed(std::io::Error::last_os_error())),
            pid => {
                let what = self.steps.iter().map(Step::what).collect();
                Ok(Started { pid: pid as u32, failure, what, command })
            }
        }
    }

    /// Does the steps in this process, which then becomes the program.
    pub fn become_it(&self) -> Error {
        for step in &self.steps {
            if let Err(errno) = child::step(step, -1) {
                let source = std::io::Error::from_raw_os_error(errno);
                return Error::Step { what: step.what(), source, exec: false };
            }
        }
        let pointers = |all: &[CString]| -> Vec<*const libc::c_char> {
            all.iter().map(|a| a.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, environment) = (pointers(&self.argv), pointers(&self.environment));
        // SAFETY: both lists end with a null pointer.
        unsafe { libc::execvpe(argv[0], argv.as_ptr(), environment.as_ptr()) };
        let command = self.argv.first().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
        exec_error(command, std::io::Error::last_os_error())
    }
}

fn exec_error(command: String, source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound(command),
        _ => Error::Step { what: command, source, exec: true },
    }
}

impl Started {
    /// Waits until the program itself runs.
    ///
    /// # Errors
    /// A step failed, or it cannot be executed. The process is then gone, and still to be waited for.
    pub fn wait_for_exec(&mut self) -> Result<(), Error> {
        let mut report = [0u8; 8];
        if self.failure.read_exact(&mut report).is_err() {
            // Exec closed the pipe. If the child was killed before that, its exit status says so.
            return Ok(());
        }
        let number =
            |at: usize| i32::from_ne_bytes([report[at], report[at + 1], report[at + 2], report[at + 3]]);
        let (at, source) = (number(0), std::io::Error::from_raw_os_error(number(4)));
        match usize::try_from(at).ok().and_then(|at| self.what.get(at)) {
            Some(what) => Err(Error::Step { what: what.clone(), source, exec: false }),
            None => Err(exec_error(self.command.clone(), source)),
        }
    }
}

/// How a program ended and what it and all it waited for used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ended {
    /// Exit status as a shell has it: 128 + signal for a killed program.
    pub status: i32,
    /// User time, seconds.
    pub user: f64,
    /// System time, seconds.
    pub system: f64,
    /// Largest resident set of any of its processes, bytes.
    pub max_rss: u64,
}

/// A child that has ended, if there is one: its number and how.
pub fn reap() -> Option<(u32, Ended)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both point to memory of the right size.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    (pid > 0).then(|| {
        // SAFETY: zeroed at first, and filled by the call that succeeded.
        let usage = unsafe { usage.assume_init() };
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        let status =
            if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
        let ended = Ended {
            status,
            user: seconds(usage.ru_utime),
            system: seconds(usage.ru_stime),
            max_rss: usage.ru_maxrss as u64 * 1024,
        };
        (pid as u32, ended)
    })
}

/// The file descriptor that reports a failed step; -1 where the error is returned.
pub(crate) type Report = RawFd;

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pid: u32) -> i32 {
        let mut status = 0;
        // SAFETY: a plain call.
        let got = unsafe { libc::waitpid(pid as i32, &raw mut status, 0) };
        assert_eq!(got as u32, pid);
        if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
    }

    fn sh(script: &str) -> Launch {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Launch::new(&["sh".into(), "-c".into(), script.into()], vec![("PATH".into(), path)])
    }

    #[test]
    fn steps_are_done_before_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out");
        let all = crate::sys::affinity(0).unwrap();
        let one: CpuSet = all.first().into_iter().collect();
        let launch = sh("pwd > out; sed -n 's/Cpus_allowed_list:\t//p' /proc/self/status >> out; exit 3")
            .steps(vec![Step::directory(dir.path()), Step::affinity(&one)]);
        let mut started = launch.start().unwrap();
        started.wait_for_exec().unwrap();
        assert_eq!(wait(started.pid), 3);
        let text = std::fs::read_to_string(file).unwrap();
        assert_eq!(text, format!("{}\n{}\n", dir.path().canonicalize().unwrap().display(), one.to_list()));
    }

    #[test]
    fn a_step_that_fails_is_named() {
        let mut started = sh("true").steps(vec![Step::directory("/no/such".as_ref())]).start().unwrap();
        let error = started.wait_for_exec().unwrap_err();
        assert!(error.to_string().starts_with("going to /no/such: No such file"), "{error}");
        assert_eq!((error.exit_status(), wait(started.pid)), (125, 125));
        for (command, status) in [("no-such-command-x", 127), ("/", 126)] {
            let mut started = Launch::new(&[command.into()], Vec::new()).start().unwrap();
            assert_eq!(started.wait_for_exec().unwrap_err().exit_status(), status, "{command}");
            wait(started.pid);
        }
    }

    #[test]
    fn a_pid_namespace_tells_the_status_and_passes_signals() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let launch = |script: &str| {
            sh(script).steps(vec![
                Step::Unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS),
                Step::PrivateMounts,
                Step::FirstProcess,
                Step::mount("proc", "/proc".as_ref(), ""),
            ])
        };
        let mut started = launch("test $$ = 2 && exit 7").start().unwrap();
        started.wait_for_exec().unwrap();
        assert_eq!(wait(started.pid), 7);
        let mut started = launch("trap 'exit 9' TERM; while :; do sleep 0.01; done").start().unwrap();
        started.wait_for_exec().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let group = rustix::process::Pid::from_raw(started.pid as i32).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::TERM).unwrap();
        assert_eq!(wait(started.pid), 9);
    }
}
