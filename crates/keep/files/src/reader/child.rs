//! The process that opens and reads. It is a fork of a program that may have threads, so it calls only async-signal-safe
//! functions and allocates nothing. It interprets nothing that it reads.

use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;
use std::ptr::null_mut;

use seccompiler::BpfProgram;

use super::filter;
use super::message::{
    ANSWER, Answer, CHUNK, MAX_PATH, MAX_READERS, OPEN, OPEN_PROC, READ, REQUEST, Request, START,
};

/// The descriptor of its end of the socket.
const SOCKET: RawFd = 3;
/// Files kept open between two requests, and how long after the last request, in milliseconds.
const MAX_OPEN: usize = 32;
const IDLE: i32 = 2000;

/// A file kept open, since reads come in series.
#[derive(Clone, Copy)]
struct Open {
    fd: RawFd,
    device: u64,
    inode: u64,
    used: u64,
}

/// What a process has to have for the requests it gets: files and memory of other users' processes.
const CAPABILITIES: [u32; 3] = [2, 19, 40]; // CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE

/// Room for one message each way.
struct Buffers {
    request: [u8; REQUEST + 2 * MAX_PATH + 2],
    answer: [u8; ANSWER + CHUNK],
    control: [u64; 8],
}

static mut BUFFERS: Buffers =
    Buffers { request: [0; REQUEST + 2 * MAX_PATH + 2], answer: [0; ANSWER + CHUNK], control: [0; 8] };

/// Starts readers and kills them, as it is ordered to, until the other end of the socket is closed. It is forked while the program
/// is small, so that those that it forks are small, too; and it waits for no file.
///
/// # Safety
/// Only for the child of a fork, which has one thread.
pub(super) unsafe fn start_readers(socket: RawFd, filter: Option<&BpfProgram>) -> ! {
    // SAFETY: the caller's promise; all pointers are to locals or to `BUFFERS`, which this thread alone uses.
    unsafe {
        become_reader(socket);
        let buffers = &raw mut BUFFERS;
        let buffers = &mut *buffers;
        let mut readers = [0; MAX_READERS];
        loop {
            let received = receive(buffers);
            for reader in &mut readers {
                if *reader > 0 && libc::waitpid(*reader, null_mut(), libc::WNOHANG) != 0 {
                    *reader = 0;
                }
            }
            let Some((length, given)) = received else {
                for reader in readers.into_iter().filter(|reader| *reader > 0) {
                    libc::kill(reader, libc::SIGKILL);
                }
                libc::_exit(0)
            };
            if length < size_of::<i32>() {
                continue;
            }
            let order = (&raw const buffers.request).cast::<i32>().read_unaligned();
            if order != START {
                // One that was not waited for yet, so its number is its own.
                if readers.contains(&order) {
                    libc::kill(order, libc::SIGKILL);
                }
                continue;
            }
            let mut pid = -1;
            if let Some(free) = readers.iter_mut().find(|reader| **reader == 0)
                && given >= 0
            {
                pid = libc::fork();
                if pid == 0 {
                    libc::dup2(given, SOCKET);
                    libc::syscall(libc::SYS_close_range, SOCKET as u32 + 1, u32::MAX, 0);
                    read_for_others(filter);
                }
                *free = pid.max(0);
            }
            if given >= 0 {
                libc::close(given);
            }
            (&raw mut buffers.answer).cast::<i32>().write_unaligned(pid);
            send(buffers, size_of::<i32>(), -1);
        }
    }
}

/// Answers requests until the other end of the socket is closed.
unsafe fn read_for_others(filter: Option<&BpfProgram>) -> ! {
    let unfiltered = filter.map_or(Err(libc::ENOSYS), filter::apply).err().unwrap_or(0);
    // SAFETY: as above.
    unsafe {
        let buffers = &raw mut BUFFERS;
        let buffers = &mut *buffers;
        let mut open = [Open { fd: -1, device: 0, inode: 0, used: 0 }; MAX_OPEN];
        let mut tick = 0;
        loop {
            let mut poll = libc::pollfd { fd: SOCKET, events: libc::POLLIN, revents: 0 };
            if libc::poll(&raw mut poll, 1, IDLE) == 0 {
                // A file that is held open keeps its file system from being unmounted.
                for kept in open.iter_mut().filter(|o| o.fd >= 0) {
                    libc::close(kept.fd);
                    kept.fd = -1;
                }
                continue;
            }
            tick += 1;
            let Some((length, given)) = receive(buffers) else { libc::_exit(0) };
            let began = now();
            let request = (&raw const buffers.request).cast::<Request>().read_unaligned();
            let mut answer = Answer { unfiltered, ..Answer::default() };
            let mut returned = -1;
            let done = if length < REQUEST {
                Err(libc::EINVAL)
            } else {
                match request.kind {
                    READ => read(buffers, &request, given, &mut open, tick).map(|n| answer.length = n),
                    OPEN | OPEN_PROC => {
                        open_path(buffers, &request, length, &mut answer).map(|fd| returned = fd)
                    }
                    _ => Err(libc::EINVAL),
                }
            };
            if given >= 0 {
                libc::close(given);
            }
            answer.error = done.err().unwrap_or(0);
            answer.ns = now().saturating_sub(began);
            (&raw mut buffers.answer).cast::<Answer>().write_unaligned(answer);
            send(buffers, ANSWER + answer.length as usize, returned);
            if returned >= 0 {
                libc::close(returned);
            }
        }
    }
}

unsafe fn become_reader(socket: RawFd) {
    // SAFETY: plain calls; pointers are to locals and constants.
    unsafe {
        libc::dup2(socket, SOCKET);
        // Whoever reads what the program prints waits for all that hold the other end.
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in 0..3 {
            if nothing >= 0 {
                libc::dup2(nothing, fd);
            } else {
                libc::close(fd);
            }
        }
        libc::syscall(libc::SYS_close_range, SOCKET as u32 + 1, u32::MAX, 0);
        // Ctrl-C is for the program: it ends this process by closing its end of the socket.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGUSR1]
        {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut all: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, null_mut());
        libc::prctl(libc::PR_SET_NAME, c"ncpu-reader".as_ptr());
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        drop_capabilities();
    }
}

/// Keeps those of [`CAPABILITIES`] that the program has.
unsafe fn drop_capabilities() {
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    // Effective, permitted, inheritable; low words, then high words.
    let mut sets = [0u32; 6];
    // SAFETY: the arrays have the layout of the two structures.
    unsafe {
        if libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) != 0 {
            return;
        }
        let mut kept = [0u32; 2];
        for capability in CAPABILITIES {
            kept[capability as usize / 32] |= 1 << (capability % 32);
        }
        for word in 0..2 {
            let keep = sets[3 * word + 1] & kept[word];
            (sets[3 * word], sets[3 * word + 1], sets[3 * word + 2]) = (keep, keep, 0);
        }
        libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr());
    }
}

unsafe fn now() -> u64 {
    // SAFETY: a live local.
    unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// A request's length and the descriptor that came with it, or -1; `None` when the program has ended.
unsafe fn receive(buffers: &mut Buffers) -> Option<(usize, RawFd)> {
    // SAFETY: the buffers are as long as the message header says.
    unsafe {
        let mut part =
            libc::iovec { iov_base: (&raw mut buffers.request).cast(), iov_len: buffers.request.len() };
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut buffers.control).cast();
        header.msg_controllen = size_of::<[u64; 8]>() as _;
        let length = libc::recvmsg(SOCKET, &raw mut header, libc::MSG_CMSG_CLOEXEC);
        if length <= 0 {
            return None;
        }
        Some((length as usize, descriptor(&header)))
    }
}

/// The first descriptor of a message, or -1.
pub(super) unsafe fn descriptor(header: &libc::msghdr) -> RawFd {
    // SAFETY: the kernel filled the control messages in.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header);
        if control.is_null()
            || (*control).cmsg_level != libc::SOL_SOCKET
            || (*control).cmsg_type != libc::SCM_RIGHTS
        {
            return -1;
        }
        libc::CMSG_DATA(control).cast::<RawFd>().read_unaligned()
    }
}

unsafe fn send(buffers: &mut Buffers, length: usize, fd: RawFd) {
    // SAFETY: the buffers are at least as long as the message header says.
    unsafe {
        let mut part = libc::iovec { iov_base: (&raw mut buffers.answer).cast(), iov_len: length };
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        attach(&mut header, &mut buffers.control, fd);
        if libc::sendmsg(SOCKET, &raw const header, libc::MSG_NOSIGNAL) < 0 {
            libc::_exit(0);
        }
    }
}

/// Has a message carry a descriptor, unless it is -1.
pub(super) unsafe fn attach(header: &mut libc::msghdr, control: &mut [u64; 8], fd: RawFd) {
    if fd < 0 {
        return;
    }
    // SAFETY: the control buffer has room for a descriptor and is aligned.
    unsafe {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(fd);
    }
}

/// Reads a part of a file or of a process's memory into the answer.
unsafe fn read(
    buffers: &mut Buffers,
    request: &Request,
    given: RawFd,
    open: &mut [Open; MAX_OPEN],
    tick: u64,
) -> Result<u32, i32> {
    // SAFETY: plain calls; the buffer is as long as is read at most.
    unsafe {
        let flags = libc::fcntl(given, libc::F_GETFL);
        if flags < 0 {
            return Err(libc::EBADF);
        }
        let fd = if flags & libc::O_PATH == 0 { given } else { reopened(given, open, tick)? };
        let room = (&raw mut buffers.answer).cast::<u8>().add(ANSWER);
        let most = (request.length as usize).min(CHUNK);
        let mut got = 0;
        // A file of /proc gives a page at a time.
        while got < most {
            let n = libc::pread64(
                fd,
                room.add(got).cast(),
                most - got,
                request.offset.wrapping_add(got as u64) as i64,
            );
            match n {
                0 => break,
                n if n > 0 => got += n as usize,
                _ if errno() == libc::EINTR => {}
                _ if got > 0 => break,
                _ => return Err(errno()),
            }
        }
        Ok(got as u32)
    }
}

/// The file that a descriptor stands for, open to be read.
unsafe fn reopened(given: RawFd, open: &mut [Open; MAX_OPEN], tick: u64) -> Result<RawFd, i32> {
    // SAFETY: plain calls; pointers are to locals.
    unsafe {
        let mut about: libc::stat64 = zeroed();
        if libc::fstat64(given, &raw mut about) != 0 {
            return Err(errno());
        }
        if about.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(libc::EINVAL);
        }
        let is_it = |o: &&mut Open| o.fd >= 0 && (o.device, o.inode) == (about.st_dev, about.st_ino);
        if let Some(kept) = open.iter_mut().find(is_it) {
            kept.used = tick;
            return Ok(kept.fd);
        }
        let mut path = *b"/proc/self/fd/0000000000\0";
        decimal(&mut path[14..], given as u32);
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let fd = libc::open64(path.as_ptr().cast(), flags);
        if fd < 0 {
            return Err(errno());
        }
        let mut oldest = 0;
        for i in 0..MAX_OPEN {
            if open[i].fd < 0 {
                oldest = i;
                break;
            }
            if open[i].used < open[oldest].used {
                oldest = i;
            }
        }
        if open[oldest].fd >= 0 {
            libc::close(open[oldest].fd);
        }
        open[oldest] = Open { fd, device: about.st_dev, inode: about.st_ino, used: tick };
        Ok(fd)
    }
}

/// Writes a number and the zero that ends it.
fn decimal(into: &mut [u8], mut number: u32) {
    let mut digits = [0; 10];
    let mut n = 0;
    loop {
        digits[n] = b'0' + (number % 10) as u8;
        number /= 10;
        n += 1;
        if number == 0 {
            break;
        }
    }
    for i in 0..n {
        into[i] = digits[n - 1 - i];
    }
    into[n] = 0;
}

/// Finds a regular file by its path below a root, and says what it is. Nothing of it is opened to be read, but for files of
/// /proc.
unsafe fn open_path(
    buffers: &mut Buffers,
    request: &Request,
    length: usize,
    answer: &mut Answer,
) -> Result<RawFd, i32> {
    let (root, path) = (request.root as usize, request.path as usize);
    if root >= MAX_PATH || path >= MAX_PATH || length < REQUEST + root + 1 + path + 1 {
        return Err(libc::EINVAL);
    }
    // SAFETY: both strings lie within the request and end with a zero, which is written here.
    unsafe {
        let text = (&raw mut buffers.request).cast::<u8>().add(REQUEST);
        *text.add(root) = 0;
        *text.add(root + 1 + path) = 0;
        let begin = match root {
            0 => libc::AT_FDCWD,
            _ => libc::open64(text.cast(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC),
        };
        if begin < 0 && begin != libc::AT_FDCWD {
            return Err(errno());
        }
        let proc_file = request.kind == OPEN_PROC;
        let how = filter::how_to_open(proc_file, request.follow != 0, root > 0);
        let name = text.add(root + 1).cast::<libc::c_char>();
        let mut fd =
            libc::syscall(libc::SYS_openat2, begin, name, std::ptr::from_ref(how), size_of::<filter::How>())
                as RawFd;
        if fd < 0 && errno() == libc::ENOSYS && root == 0 {
            fd = libc::openat64(begin, name, how.flags as i32);
        }
        let failed = errno();
        if begin >= 0 {
            libc::close(begin);
        }
        if fd < 0 {
            return Err(failed);
        }
        match described(fd, proc_file, answer) {
            Ok(()) => Ok(fd),
            Err(error) => {
                libc::close(fd);
                Err(error)
            }
        }
    }
}

const PROC_SUPER_MAGIC: u64 = 0x9fa0;

unsafe fn described(fd: RawFd, proc_file: bool, answer: &mut Answer) -> Result<(), i32> {
    // SAFETY: live locals.
    unsafe {
        let (mut about, mut system): (libc::stat64, libc::statfs64) = (zeroed(), zeroed());
        if libc::fstat64(fd, &raw mut about) != 0 || libc::fstatfs64(fd, &raw mut system) != 0 {
            return Err(errno());
        }
        if about.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(libc::EINVAL);
        }
        answer.system = system.f_type as u64;
        if proc_file && answer.system != PROC_SUPER_MAGIC {
            return Err(libc::EINVAL);
        }
        answer.device = about.st_dev;
        answer.inode = about.st_ino;
        answer.size = about.st_size.max(0) as u64;
        answer.blocks = about.st_blocks.max(0) as u64;
        answer.user = about.st_uid;
        Ok(())
    }
}
