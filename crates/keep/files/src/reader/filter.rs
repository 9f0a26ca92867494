//! The system calls that the reader may make, as a seccomp filter: those that it makes, and those only with the arguments that only
//! read. A file of another user that got the better of it could then start nothing, connect to nothing and write nowhere.

use std::collections::BTreeMap;
use std::io;
use std::mem::size_of;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

/// `struct open_how`
#[derive(Debug)]
#[repr(C)]
pub(super) struct How {
    pub flags: u64,
    pub mode: u64,
    pub resolve: u64,
}

const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_IN_ROOT: u64 = 0x10;

const fn how(proc_file: bool, follow: bool, rooted: bool) -> How {
    let flags = if proc_file { libc::O_RDONLY | libc::O_NONBLOCK } else { libc::O_PATH };
    let follow = if follow { 0 } else { libc::O_NOFOLLOW };
    // A root is left by no link, be it one of /proc.
    let resolve = if rooted { RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS } else { 0 };
    How { flags: (flags | follow | libc::O_CLOEXEC) as u64, mode: 0, resolve }
}

/// All ways in which a path is opened. They lie in memory that cannot be written, so the filter can tell by its address that a
/// structure is one of them: it sees arguments, and not what they point to.
static HOWS: [How; 8] = [
    how(false, false, false),
    how(true, false, false),
    how(false, true, false),
    how(true, true, false),
    how(false, false, true),
    how(true, false, true),
    how(false, true, true),
    how(true, true, true),
];

/// How a file of `/proc` or another is opened, a link in the last place followed or not, below a root or not.
pub(super) fn how_to_open(proc_file: bool, follow: bool, rooted: bool) -> &'static How {
    &HOWS[usize::from(proc_file) | usize::from(follow) << 1 | usize::from(rooted) << 2]
}

/// The filter. It is made before the reader is forked, which allocates nothing.
pub(super) fn program() -> Result<BpfProgram, BackendError> {
    const WRITES: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) as u64;
    let when = SeccompCondition::new;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in [
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_ppoll,
        libc::SYS_pread64,
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_fstatfs,
        libc::SYS_clock_gettime,
        libc::SYS_restart_syscall,
        libc::SYS_exit,
        libc::SYS_exit_group,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
    ] {
        rules.insert(call, Vec::new());
    }
    // C libraries ask for a descriptor's state by an empty path.
    let by_descriptor = when(3, Dword, MaskedEq(libc::AT_EMPTY_PATH as u64), libc::AT_EMPTY_PATH as u64)?;
    rules.insert(libc::SYS_newfstatat, vec![SeccompRule::new(vec![by_descriptor])?]);
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![when(1, Dword, Eq, libc::F_GETFL as u64)?])?]);
    rules.insert(
        libc::SYS_openat,
        vec![SeccompRule::new(vec![when(2, Dword, MaskedEq(WRITES), libc::O_RDONLY as u64)?])?],
    );
    #[cfg(target_arch = "x86_64")]
    rules.insert(
        libc::SYS_open,
        vec![SeccompRule::new(vec![when(1, Dword, MaskedEq(WRITES), libc::O_RDONLY as u64)?])?],
    );
    let known = |how: &How| {
        SeccompRule::new(vec![
            when(2, Qword, Eq, std::ptr::from_ref(how) as u64)?,
            when(3, Qword, Eq, size_of::<How>() as u64)?,
        ])
    };
    rules.insert(libc::SYS_openat2, HOWS.iter().map(known).collect::<Result<_, _>>()?);
    // An error and no signal: a call that a C library makes one day fails, and the reader says so in its answer.
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Has the filter hold from here on; the number of the error where the kernel has none.
pub(super) fn apply(program: &BpfProgram) -> Result<(), i32> {
    use seccompiler::Error::{Prctl, Seccomp};
    match seccompiler::apply_filter(program) {
        Ok(()) => Ok(()),
        Err(Seccomp(e) | Prctl(e)) => Err(error_of(&e)),
        Err(_) => Err(libc::ENOSYS),
    }
}

fn error_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of some calls, made by a fork of this process behind the filter.
    fn behind_the_filter<const N: usize>(calls: fn() -> [i64; N]) -> [i32; N] {
        let program = program().unwrap();
        let mut ends = [0; 2];
        // SAFETY: the child makes system calls alone, and exits; pointers are to live values.
        unsafe {
            let kind = libc::SOCK_SEQPACKET;
            assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()), 0);
            let child = libc::fork();
            if child == 0 {
                let mut errors = [-1; N];
                if apply(&program).is_ok() {
                    errors = calls().map(|result| result as i32);
                }
                let mut part =
                    libc::iovec { iov_base: errors.as_mut_ptr().cast(), iov_len: size_of_val(&errors) };
                let mut header: libc::msghdr = std::mem::zeroed();
                (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
                libc::sendmsg(ends[1], &raw const header, 0);
                libc::_exit(0);
            }
            libc::close(ends[1]);
            let mut errors = [0i32; N];
            let got = libc::read(ends[0], errors.as_mut_ptr().cast(), size_of_val(&errors));
            libc::close(ends[0]);
            libc::waitpid(child, std::ptr::null_mut(), 0);
            assert_eq!(got as usize, size_of_val(&errors));
            errors
        }
    }

    /// 0, or the number of the error.
    fn error(result: i64) -> i64 {
        if result >= 0 { 0 } else { error_of(&io::Error::last_os_error()).into() }
    }

    #[test]
    fn all_but_reading_is_refused() {
        let errors = behind_the_filter(|| {
            let (path, passwd) = (c"/bin/true".as_ptr(), c"/etc/passwd".as_ptr());
            let none = std::ptr::null::<libc::c_char>();
            let argv = [path, none];
            let how = How { flags: libc::O_RDONLY as u64, mode: 0, resolve: 0 };
            // SAFETY: pointers are to live values; each call is refused.
            unsafe {
                [
                    libc::syscall(libc::SYS_execve, path, argv.as_ptr(), argv.as_ptr().add(1)),
                    libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0),
                    libc::syscall(libc::SYS_connect, 0, path, 16),
                    libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0),
                    libc::syscall(libc::SYS_mount, path, path, path, 0, 0),
                    libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0),
                    libc::syscall(libc::SYS_kill, 1, 0),
                    libc::syscall(libc::SYS_write, 1, path, 0),
                    libc::syscall(libc::SYS_mmap, 0, 4096, libc::PROT_READ, libc::MAP_PRIVATE, 0, 0),
                    libc::syscall(libc::SYS_mprotect, 0, 4096, libc::PROT_READ),
                    libc::syscall(libc::SYS_process_vm_writev, 1, 0, 0, 0, 0, 0),
                    libc::syscall(libc::SYS_bpf, 0, 0, 0),
                    libc::syscall(libc::SYS_setuid, 0),
                    libc::syscall(libc::SYS_openat, libc::AT_FDCWD, passwd, libc::O_RDWR),
                    libc::syscall(libc::SYS_openat, libc::AT_FDCWD, passwd, libc::O_WRONLY | libc::O_APPEND),
                    libc::syscall(libc::SYS_openat, libc::AT_FDCWD, passwd, libc::O_TRUNC),
                    // A way to open that is not one of the known ones, whatever it says.
                    libc::syscall(
                        libc::SYS_openat2,
                        libc::AT_FDCWD,
                        passwd,
                        &raw const how,
                        size_of::<How>(),
                    ),
                    libc::syscall(libc::SYS_fcntl, 0, libc::F_SETFL, 0),
                    libc::syscall(
                        libc::SYS_newfstatat,
                        libc::AT_FDCWD,
                        passwd,
                        std::ptr::null_mut::<u8>(),
                        0,
                    ),
                ]
                .map(error)
            }
        });
        assert!(errors.iter().all(|e| *e == libc::EPERM), "{errors:?}");
    }

    #[test]
    fn what_the_reader_does_is_allowed() {
        let errors = behind_the_filter(|| {
            let passwd = c"/etc/passwd".as_ptr();
            let mut byte = [0u8; 1];
            // SAFETY: pointers are to live values.
            unsafe {
                let mut about: libc::stat64 = std::mem::zeroed();
                let mut system: libc::statfs64 = std::mem::zeroed();
                let how = how_to_open(false, true, false);
                let path = libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, passwd, how, size_of::<How>());
                let file =
                    i64::from(libc::open64(passwd, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC));
                [
                    error(path),
                    error(file),
                    error(libc::fstat64(path as i32, &raw mut about).into()),
                    error(libc::fstatfs64(path as i32, &raw mut system).into()),
                    error(libc::fcntl(path as i32, libc::F_GETFL).into()),
                    error(libc::pread64(file as i32, byte.as_mut_ptr().cast(), 1, 0) as i64),
                    error(libc::poll(std::ptr::null_mut(), 0, 1).into()),
                    error(libc::close(file as i32).into()),
                ]
            }
        });
        assert!(errors.iter().all(|e| *e == 0), "{errors:?}");
    }
}
