//! The observed program: forked, held, and released once everything is attached.

use std::ffi::{CString, OsString};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ncpu_machine::CpuSet;
use rustix::process::{Pid, WaitOptions};

use super::{User, keys};

/// Why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program does not exist.
    #[error("{0}: command not found; give a program in PATH or a path to one")]
    NotFound(String),
    /// The program cannot be executed.
    #[error("cannot run {command}: {source}")]
    CannotRun {
        /// The program.
        command: String,
        /// The cause.
        source: std::io::Error,
    },
    /// No process could be created.
    #[error("starting {command}: {source}")]
    Fork {
        /// The program.
        command: String,
        /// The cause.
        source: std::io::Error,
    },
}

impl StartError {
    /// The exit status as a shell reports it: 127 if the command does not exist, 126 if it cannot run.
    pub fn exit_status(&self) -> u8 {
        match self {
            StartError::NotFound(_) => 127,
            _ => 126,
        }
    }
}

/// Signals that programs started from here ignore, one bit each.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Makes later programs ignore this signal, although `ncpu` itself catches it. The parent of `ncpu` asked for
/// that (`nohup`, a background job of a script).
pub fn ignore_in_programs(signal: i32) {
    IGNORED.fetch_or(1 << signal, Ordering::Relaxed);
}

/// A child that waits before its `exec`.
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    gate: Option<OwnedFd>,
    failure: std::io::PipeReader,
    command: String,
}

/// Exit status and resource use of a program and the descendants that it waited for, as in the shell's
/// `time`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// Exit status as a shell gives it: 128 + signal for a killed program.
    pub status: i32,
    /// User time, seconds.
    pub user: f64,
    /// System time, seconds.
    pub system: f64,
    /// Largest resident set of any of its processes, bytes.
    pub max_rss: u64,
    /// Events in the kernel.
    pub counts: Counts,
}

/// Events of processes in the kernel, from getrusage(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Context switches to wait.
    pub voluntary: u64,
    /// Context switches in favour of another thread.
    pub involuntary: u64,
    /// Bytes read from storage.
    pub read: u64,
    /// Bytes written to storage.
    pub written: u64,
}

impl Ended {
    /// From the result of wait4(2).
    pub fn from_wait(status: i32, usage: &libc::rusage) -> Ended {
        let seconds =
            |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000).as_secs_f64();
        Ended {
            status: if libc::WIFSIGNALED(status) {
                128 + libc::WTERMSIG(status)
            } else {
                libc::WEXITSTATUS(status)
            },
            user: seconds(usage.ru_utime),
            system: seconds(usage.ru_stime),
            max_rss: usage.ru_maxrss as u64 * 1024,
            counts: Counts {
                minor_faults: usage.ru_minflt as u64,
                major_faults: usage.ru_majflt as u64,
                voluntary: usage.ru_nvcsw as u64,
                involuntary: usage.ru_nivcsw as u64,
                // In sectors of 512 bytes.
                read: usage.ru_inblock as u64 * 512,
                written: usage.ru_oublock as u64 * 512,
            },
        }
    }
}

/// Settings with which a program starts, where they differ from `ncpu`'s own.
#[derive(Default)]
pub struct Setting<'a> {
    /// The CPUs on which it may run [default: those of `ncpu`].
    pub cpus: Option<&'a CpuSet>,
    /// The user who runs it [default: the user of `ncpu`].
    pub user: Option<&'a User>,
    /// Destination of its output and errors. It then has no input, and a process group of its own.
    pub output: Option<BorrowedFd<'a>>,
    /// Destination of its standard output only.
    pub stdout: Option<BorrowedFd<'a>>,
    /// Variables that are added to `ncpu`'s environment or replace those in it.
    pub variables: &'a [(OsString, OsString)],
}

impl Child {
    /// Forks; the child waits for [`Child::release`].
    ///
    /// # Errors
    /// The system refuses a pipe or a process.
    pub fn hold(argv: &[OsString]) -> Result<Child, StartError> {
        Child::hold_in(argv, &Setting::default())
    }

    /// As [`Child::hold`], with settings. CPUs that are not allowed are an error of [`Child::release`].
    ///
    /// # Errors
    /// The system refuses a pipe or a process.
    pub fn hold_in(argv: &[OsString], setting: &Setting<'_>) -> Result<Child, StartError> {
        let command = argv.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
        let fork_error = |source| StartError::Fork { command: command.clone(), source };
        let args: Vec<CString> = argv
            .iter()
            .map(|a| CString::new(a.clone().into_vec()))
            .collect::<Result<_, _>>()
            .map_err(|e| fork_error(e.into()))?;
        let mut pointers: Vec<*const libc::c_char> = args.iter().map(|a| a.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let (gate_read, gate) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| fork_error(e.into()))?;
        let (failure, failure_write) = std::io::pipe().map_err(fork_error)?;
        let mut mask = Vec::new();
        for cpu in setting.cpus.into_iter().flat_map(CpuSet::iter) {
            mask.resize(mask.len().max(cpu as usize / 64 + 1), 0u64);
            mask[cpu as usize / 64] |= 1 << (cpu % 64);
        }

        let variables = environment_of(setting).map_err(fork_error)?;
        let no_keys = setting.user.filter(|user| keys::may_be_pushed(user.uid)).map(|_| keys::filter());
        let filter = no_keys
            .as_ref()
            .map(|filter| libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() });
        let mut environment: Vec<*const libc::c_char> = variables.iter().map(|v| v.as_ptr()).collect();
        environment.push(std::ptr::null());

        // SAFETY: the child calls only async-signal-safe functions before it execs or exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; all pointers were made before the fork.
            unsafe {
                use std::os::fd::AsRawFd;
                let mut byte = 0u8;
                libc::close(gate.as_raw_fd());
                let go = libc::read(gate_read.as_raw_fd(), (&raw mut byte).cast(), 1);
                if go != 1 {
                    libc::_exit(1); // ncpu died before it released the child
                }
                let fail = || {
                    let errno = *libc::__errno_location();
                    libc::write(failure_write.as_raw_fd(), (&raw const errno).cast(), 4);
                    libc::_exit(127);
                };
                if let Some(output) = setting.output {
                    let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
                    let put = |from, to| libc::dup2(from, to) < 0;
                    if libc::setpgid(0, 0) < 0
                        || put(nothing, 0)
                        || put(output.as_raw_fd(), 1)
                        || put(output.as_raw_fd(), 2)
                    {
                        fail();
                    }
                }
                if let Some(stdout) = setting.stdout
                    && libc::dup2(stdout.as_raw_fd(), 1) < 0
                {
                    fail();
                }
                // Beyond CPU 1023 libc's cpu_set_t is too short.
                let size = mask.len() * 8;
                if size > 0 && libc::syscall(libc::SYS_sched_setaffinity, 0, size, mask.as_ptr()) != 0 {
                    fail();
                }
                // The Rust runtime ignores SIGPIPE. exec resets all signals that ncpu catches.
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                let ignored = IGNORED.load(Ordering::Relaxed);
                for signal in (1..64).filter(|signal| ignored & (1 << signal) != 0) {
                    libc::signal(signal, libc::SIG_IGN);
                }
                if let Some(filter) = &filter
                    && libc::prctl(
                        libc::PR_SET_SECCOMP,
                        libc::SECCOMP_MODE_FILTER,
                        std::ptr::from_ref(filter),
                    ) != 0
                {
                    fail();
                }
                if let Some(user) = setting.user
                    && (libc::setgroups(user.groups.len(), user.groups.as_ptr()) != 0
                        || libc::setresgid(user.gid, user.gid, user.gid) != 0
                        || libc::setresuid(user.uid, user.uid, user.uid) != 0)
                {
                    fail();
                }
                libc::execvpe(pointers[0], pointers.as_ptr(), environment.as_ptr());
                fail();
            }
        }
        if pid < 0 {
            return Err(fork_error(std::io::Error::last_os_error()));
        }
        let pid = Pid::from_raw(pid).ok_or_else(|| fork_error(std::io::Error::other("fork gave no pid")))?;
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            .map_err(|e| fork_error(e.into()))?;
        Ok(Child { pid, pidfd, gate: Some(gate), failure, command })
    }

    /// The child's process ID.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// A descriptor that becomes readable when the program has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Lets the child exec its program.
    ///
    /// # Errors
    /// The program cannot be executed.
    pub fn release(&mut self) -> Result<(), StartError> {
        if let Some(gate) = self.gate.take() {
            // A child that has already died has reported its failure, or its exit status shows it.
            let _ = rustix::io::write(&gate, b"g");
        }
        let mut errno = [0u8; 4];
        match self.failure.read_exact(&mut errno) {
            Err(_) => Ok(()), // closed by a successful exec
            Ok(()) => {
                let source = std::io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                let _ = self.wait(true);
                Err(match source.kind() {
                    std::io::ErrorKind::NotFound => StartError::NotFound(self.command.clone()),
                    _ => StartError::CannotRun { command: self.command.clone(), source },
                })
            }
        }
    }

    /// How the program ended; `None` while it runs, if `block` is false.
    pub fn wait(&self, block: bool) -> Option<Ended> {
        let mut status = 0;
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        let flags = if block { 0 } else { WaitOptions::NOHANG.bits() as i32 };
        let pid = self.pid.as_raw_nonzero().get();
        loop {
            // SAFETY: both pointers are to live locals.
            let got = unsafe { libc::wait4(pid, &raw mut status, flags, usage.as_mut_ptr()) };
            if got == pid {
                break;
            }
            if got == 0 {
                return None;
            }
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return Some(Ended::default()); // reaped elsewhere
            }
        }
        // SAFETY: zeroed is a valid rusage, and wait4 has filled it.
        let usage = unsafe { usage.assume_init() };
        Some(Ended::from_wait(status, &usage))
    }
}

/// The environment, with the variables that identify the user.
fn environment_of(setting: &Setting<'_>) -> std::io::Result<Vec<CString>> {
    let own = setting.user.map_or(vec![], |u| {
        vec![
            ("HOME", u.home.clone()),
            ("SHELL", u.shell.clone()),
            ("USER", u.name.clone()),
            ("LOGNAME", u.name.clone()),
        ]
    });
    let own = own.iter().map(|(name, value)| ((*name).into(), value.into()));
    let own: Vec<(OsString, OsString)> = own.chain(setting.variables.iter().cloned()).collect();
    let kept: Vec<_> = std::env::vars_os().filter(|(name, _)| !own.iter().any(|(n, _)| name == n)).collect();
    let join = |(name, value): (OsString, OsString)| {
        CString::new([name.into_vec(), b"=".to_vec(), value.into_vec()].concat())
            .map_err(std::io::Error::from)
    };
    kept.into_iter().chain(own).map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str]) -> Result<Ended, StartError> {
        let argv: Vec<OsString> = argv.iter().map(Into::into).collect();
        let mut child = Child::hold(&argv)?;
        assert!(child.wait(false).is_none(), "a held child does not run");
        child.release()?;
        Ok(child.wait(true).unwrap())
    }

    #[test]
    fn status_is_passed_on() {
        assert_eq!(run(&["true"]).unwrap().status, 0);
        assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap().status, 7);
        assert_eq!(run(&["sh", "-c", "kill -9 $$"]).unwrap().status, 137);
    }

    #[test]
    fn a_program_that_cannot_run_has_the_exit_status_of_a_shell() {
        let e = run(&["no-such-program-here"]).unwrap_err();
        assert_eq!(e.exit_status(), 127);
        assert!(e.to_string().starts_with("no-such-program-here: command not found"));
        assert_eq!(run(&["/etc/passwd"]).unwrap_err().exit_status(), 126);
    }

    #[test]
    fn a_setting_of_its_own() {
        use std::io::{Read, Seek};
        let mut file = tempfile::tempfile().unwrap();
        let first: CpuSet = ncpu_machine::online_cpus("/".as_ref()).unwrap().iter().take(1).collect();
        let argv = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; read x; echo read $? >&2"]
            .map(Into::into);
        let setting = Setting { cpus: Some(&first), output: Some(file.as_fd()), ..Setting::default() };
        let mut child = Child::hold_in(&argv, &setting).unwrap();
        child.release().unwrap();
        assert_eq!(child.wait(true).unwrap().status, 0);
        let mut said = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("Cpus_allowed_list:\t{}\nread 1\n", first.to_list()));
        let beyond: CpuSet = [8000].into_iter().collect();
        let mut child =
            Child::hold_in(&argv, &Setting { cpus: Some(&beyond), ..Setting::default() }).unwrap();
        assert!(matches!(child.release(), Err(StartError::CannotRun { .. })));
    }

    #[test]
    fn as_another_user() {
        use std::io::{Read, Seek};
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can run a program as another user");
        }
        let nobody = User::find("nobody").unwrap();
        assert!(nobody.uid > 0 && !nobody.groups.contains(&0), "{nobody:?}");
        let mut file = tempfile::tempfile().unwrap();
        let argv = ["sh", "-c", "id -u; id -G; echo $USER $HOME; exit 4"].map(Into::into);
        let setting = Setting { user: Some(&nobody), output: Some(file.as_fd()), ..Setting::default() };
        let mut child = Child::hold_in(&argv, &setting).unwrap();
        child.release().unwrap();
        assert_eq!(child.wait(true).unwrap().status, 4);
        let mut said = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut said).unwrap();
        let groups: Vec<String> = nobody.groups.iter().map(u32::to_string).collect();
        assert_eq!(said, format!("{}\n{}\nnobody {}\n", nobody.uid, groups.join(" "), nobody.home));
        assert!(User::find("no such user").unwrap_err().to_string().contains("no such user"));
    }

    #[test]
    fn used_time_is_counted_with_that_of_its_children() {
        let ended =
            run(&["sh", "-c", "sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; true"]).unwrap();
        assert!(ended.user + ended.system > 0.0 && ended.max_rss > 0);
    }
}
