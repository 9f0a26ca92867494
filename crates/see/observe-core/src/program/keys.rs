//! Keys that a program of another user could push into our terminal, where they would be commands to our shell.

use std::fs::{File, read_to_string};

// Of asm-generic/ioctls.h: pushes a key; and orders to a virtual console, as to paste.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// Numbers of `ioctl` in all ways in which this machine's programs call the kernel: of 64 bits, of 32, and x32. Other calls of
/// these numbers have no such second argument.
#[cfg(target_arch = "x86_64")]
const IOCTL: [u32; 4] = [16, 54, 0x4000_0000 + 514, 0x4000_0000 + 16];
#[cfg(not(target_arch = "x86_64"))]
const IOCTL: [u32; 2] = [29, 54];

/// Whether a program of this user could push keys: it is another's than ours, we have a terminal, and the kernel still allows it.
pub(super) fn may_be_pushed(user: u32) -> bool {
    // Before Linux 6.2 it is always allowed.
    let allowed = read_to_string("/proc/sys/dev/tty/legacy_tiocsti").map_or(true, |text| text.trim() != "0");
    allowed && user != rustix::process::geteuid().as_raw() && File::open("/dev/tty").is_ok()
}

/// A seccomp filter that refuses to push keys and allows all else. Of calls but `ioctl` the kernel knows by the number alone that they
/// are allowed.
pub(super) fn filter() -> Vec<libc::sock_filter> {
    let load = |at: u32| (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let equals = |value: u32, then: usize, no: usize| {
        (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, then as u8, no as u8, value)
    };
    let end = |verdict: u32| (libc::BPF_RET | libc::BPF_K, 0, 0, verdict);
    let mut out = vec![load(0)];
    for (at, number) in IOCTL.into_iter().enumerate() {
        // Over the numbers left, and the end behind them.
        out.push(equals(number, IOCTL.len() - at, 0));
    }
    out.push(end(libc::SECCOMP_RET_ALLOW));
    // The lower half of the second argument of `struct seccomp_data`.
    out.push(load(if cfg!(target_endian = "little") { 24 } else { 28 }));
    out.push(equals(TIOCSTI, 1, 0));
    out.push(equals(TIOCLINUX, 0, 1));
    out.push(end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    out.push(end(libc::SECCOMP_RET_ALLOW));
    let filter = |(code, jt, jf, k): (u32, u8, u8, u32)| libc::sock_filter { code: code as u16, jt, jf, k };
    out.into_iter().map(filter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a child: the filter stays.
    #[test]
    fn no_keys_are_pushed_and_all_else_is_allowed() {
        let filter = filter();
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the child calls only async-signal-safe functions until it exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let errno = || std::io::Error::last_os_error().raw_os_error();
            let mut winsize = [0u16; 4];
            // SAFETY: live locals, and descriptors that are or are not there.
            let code = unsafe {
                if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                    || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
                {
                    libc::_exit(9);
                }
                let key = b'x';
                let push = |request: u32| {
                    libc::ioctl(1000, u64::from(request) as libc::c_ulong, &raw const key) == -1
                        && errno() == Some(libc::EPERM)
                };
                let other = libc::ioctl(1000, libc::TIOCGWINSZ, winsize.as_mut_ptr()) == -1
                    && errno() == Some(libc::EBADF);
                // The upper half of a request is not looked at by the kernel.
                let upper = libc::syscall(
                    libc::SYS_ioctl,
                    1000,
                    0x1_0000_0000u64 | u64::from(TIOCSTI),
                    &raw const key,
                ) == -1
                    && errno() == Some(libc::EPERM);
                i32::from(!push(TIOCSTI))
                    + 2 * i32::from(!push(TIOCLINUX))
                    + 4 * i32::from(!other)
                    + 8 * i32::from(!upper)
            };
            // SAFETY: runs no destructors.
            unsafe { libc::_exit(code) }
        }
        let mut status = 0;
        // SAFETY: our child, and a live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 0, "bits: TIOCSTI, TIOCLINUX, another request, upper half");
    }
}
