//! Crashes by a socket: since Linux 6.17 the kernel connects to our socket for each crash (`@@` in
//! core_pattern), requests instructions for the core, and sends it. The kernel then starts no program; a
//! small server does, which runs all the time.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::{AT_A_TIME, Crash, PATTERN, SOCKET};
use crate::Error;
use crate::sys::{ioctl, iowr};

/// core_pattern for the socket.
pub(super) fn pattern() -> String {
    format!("@@{SOCKET}")
}

/// Whether a kernel of this release supports such sockets.
pub(super) fn supported(release: &str) -> bool {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(17))
}

/// Makes the socket, replacing an older one, and starts `program` as its server.
pub(super) fn start(program: &Path) -> Result<(), Error> {
    let partial = format!("{SOCKET}.partial");
    if let Some(directory) = Path::new(SOCKET).parent() {
        fs::create_dir_all(directory).map_err(|e| Error::file(directory, e))?;
    }
    match fs::remove_file(&partial) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::file(&partial, e)),
        _ => {}
    }
    let listener = UnixListener::bind(&partial).map_err(|e| Error::file(&partial, e))?;
    // Only the kernel should connect, which does so as root.
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o600)).map_err(|e| Error::file(&partial, e))?;
    fs::rename(&partial, SOCKET).map_err(|e| Error::file(SOCKET, e))?;
    Command::new(program)
        .args(["dump", "--crash-server"])
        .current_dir("/")
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
        .map_err(|e| Error::file(program, e))
}

/// The server: starts this program again for each crash, with the connection as its standard input. Ends once
/// core_pattern no longer names the socket, another server has replaced it, or `stop` is set, which sends
/// crashes through a pipe.
///
/// # Errors
/// Standard input is not a listening socket.
pub fn serve(stop: &AtomicBool) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(|e| Error::call("finding out where ncpu is", e))?;
    // SAFETY: standard input is the socket, and no other code here uses it.
    let listener = unsafe { UnixListener::from_raw_fd(io::stdin().as_raw_fd()) };
    listener.set_nonblocking(true).map_err(|e| Error::call("listening", e))?;
    // SAFETY: no arguments. The user who installed it may close the terminal.
    unsafe { libc::setsid() };
    // It has little memory to free, and without it crashes leave no dump. If this is refused it has the usual
    // priority.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let own = fs::metadata(SOCKET).map_err(|e| Error::file(SOCKET, e))?.ino();
    let mut handlers: Vec<Child> = Vec::new();
    // The installation writes the pattern only after it has started the server.
    let mut seen = false;
    let mut rounds = 0;
    loop {
        let ours = fs::read_to_string(PATTERN).is_ok_and(|now| now.trim_end() == pattern());
        seen |= ours;
        rounds += 1;
        let mine = fs::metadata(SOCKET).is_ok_and(|data| data.ino() == own);
        if !mine || (!ours && (seen || rounds > 10)) {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return fs::write(PATTERN, super::pattern(&program)?).map_err(|e| Error::file(PATTERN, e));
        }
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&raw mut poll, 1, 1000) };
        handlers.retain_mut(|handler| matches!(handler.try_wait(), Ok(None)));
        while let Ok((connection, _)) = listener.accept() {
            if handlers.len() >= AT_A_TIME {
                super::report(&format!("ncpu: a crash left no core: {AT_A_TIME} are handled already"), None);
                continue;
            }
            let handler = Command::new(&program)
                .args(["dump", "--crash-socket"])
                .stdin(OwnedFd::from(connection))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            match handler {
                Ok(handler) => handlers.push(handler),
                Err(e) => {
                    super::report(&format!("ncpu: a crash left no core: {}: {e}", program.display()), None)
                }
            }
        }
    }
}

/// `SO_PEERPIDFD` of asm-generic/socket.h.
const SO_PEERPIDFD: i32 = 77;

/// `struct pidfd_info` of linux/pidfd.h.
#[repr(C)]
#[derive(Default)]
struct PidInfo {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ruid: u32,
    rgid: u32,
    others: [u32; 6],
    exit_code: i32,
    coredump: u32,
    spare: u32,
}

const PIDFD_GET_INFO: u64 = iowr(0xff, 11, size_of::<PidInfo>());
const INFO_PID: u64 = 1 << 0;
const INFO_CREDENTIALS: u64 = 1 << 1;
const INFO_COREDUMP: u64 = 1 << 4;
/// The process is dying with a core.
const COREDUMPED: u32 = 1 << 0;
/// Its owner may have the dump.
const COREDUMP_USER: u32 = 1 << 2;

// linux/coredump.h
const KERNEL: u64 = 1 << 0;
const WAIT: u64 = 1 << 3;
/// The bytes sent of `struct coredump_ack`: its size, a zero, the mask.
const ACK: usize = 16;

/// Reads from the connection on standard input which process has crashed, and requests the core from the
/// kernel. The core follows in the same connection, and the process exists until it is closed.
pub(super) fn take(connection: &mut UnixStream) -> Result<Crash, Error> {
    let error = |e| Error::call("talking to the kernel", e);
    connection.set_read_timeout(Some(Duration::from_secs(10))).map_err(error)?;
    let mut fd = 0i32;
    let mut length = size_of::<i32>() as u32;
    // SAFETY: the kernel writes a descriptor to `fd`, whose size is passed.
    let got = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if got < 0 {
        return Err(Error::last("SO_PEERPIDFD"));
    }
    // SAFETY: the kernel has just made it, and no other code has it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = PidInfo { mask: INFO_PID | INFO_CREDENTIALS | INFO_COREDUMP, ..PidInfo::default() };
    ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &mut info).map_err(|e| Error::call("PIDFD_GET_INFO", e))?;
    if info.mask & INFO_COREDUMP == 0 || info.coredump & COREDUMPED == 0 {
        return Err(Error::Unsupported(format!("process {} connected, and does not crash", info.tgid)));
    }

    // Size of the request and of the longest answer, and all known answers.
    let mut request = [0; 16];
    connection.read_exact(&mut request).map_err(error)?;
    let word = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap_or_default());
    let (size, size_ack) = (word(0) as u32 as usize, (word(0) >> 32) as usize);
    if !(request.len()..=4096).contains(&size) || size_ack < ACK || word(8) & (KERNEL | WAIT) != KERNEL | WAIT
    {
        return Err(Error::Unsupported("the kernel's request has an unknown form".into()));
    }
    let mut rest = vec![0; size - request.len()];
    connection.read_exact(&mut rest).map_err(error)?;
    let mut ack = [0; ACK];
    ack[..4].copy_from_slice(&(ACK as u32).to_ne_bytes());
    ack[8..].copy_from_slice(&(KERNEL | WAIT).to_ne_bytes());
    connection.write_all(&ack).map_err(error)?;
    let mut mark = [0; 4];
    connection.read_exact(&mut mark).map_err(error)?;
    if mark != [0; 4] {
        return Err(Error::Unsupported(format!(
            "the kernel rejected our answer: {}",
            u32::from_ne_bytes(mark)
        )));
    }
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    Ok(Crash {
        pid: info.tgid as i32,
        // The first note contains it.
        signal: 0,
        uid: info.ruid,
        gid: info.rgid,
        time,
        mode: if info.coredump & COREDUMP_USER != 0 { 1 } else { 2 },
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn kernels_since_6_17_have_it() {
        for (release, has) in [
            ("6.17.0", true),
            ("6.18.5-arch1", true),
            ("7.0-rc1", true),
            ("6.16.9", false),
            ("5.19.0-50-generic", false),
            ("", false),
        ] {
            assert_eq!(super::supported(release), has, "{release}");
        }
    }
}
