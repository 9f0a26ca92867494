//! Results of system calls, by timer samples right behind one.
//!
//! The `syscall` instruction of x86-64 leaves the address of the next one in rcx. A timer that is due while the kernel has interrupts off,
//! on the way out of a call, strikes there: rax is the result then, and rdi still the first argument. On AArch64 the instruction before is
//! `svc` there, x0 is the result, and the kernel keeps the first argument of a thread's last call. Nothing is traced for it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use ncpu_instructions::{Called, Registers};
use ncpu_schema::call_results;
use ncpu_table::Table;

use crate::bpf_support::namespace::process_dir;

/// Descriptors that are named in an interval, and rows of a table.
const MOST: usize = 512;

/// The largest error that a call returns (MAX_ERRNO of include/linux/err.h).
const MAX_ERRNO: i64 = 4095;

/// Descriptors beyond are other arguments.
const LARGEST: u64 = 1 << 20;

#[derive(PartialEq, Eq, Hash)]
struct Key {
    process: Arc<str>,
    function: Arc<str>,
    descriptor: Option<Arc<str>>,
    error: Option<i32>,
}

/// Results since the last table.
#[derive(Default)]
pub(super) struct CallResults {
    descriptors: HashMap<(u32, u64), Option<Arc<str>>>,
    /// Samples, and the sum of the results.
    sums: HashMap<Key, (u64, f64)>,
}

impl CallResults {
    /// A sample has come: its descriptor is looked up while it is open.
    pub fn met(&mut self, tgid: u32, registers: &Registers) {
        let Some(Called { first, .. }) = registers.called() else { return };
        if first < LARGEST && self.descriptors.len() < MOST {
            self.descriptors.entry((tgid, first)).or_insert_with(|| {
                let path = fs::read_link(process_dir(tgid).join(format!("fd/{first}"))).ok()?;
                Some(described(&path.to_string_lossy()).into())
            });
        }
    }

    /// A sample of user code in `function`.
    pub fn add(&mut self, process: &str, tgid: u32, function: &Arc<str>, registers: &Registers) {
        let Some(Called { result, first }) = registers.called() else { return };
        let error = (-MAX_ERRNO..0).contains(&result).then_some(-result as i32);
        let descriptor = self.descriptors.get(&(tgid, first)).cloned().flatten();
        let key = Key { process: process.into(), function: function.clone(), descriptor, error };
        if self.sums.len() < MOST || self.sums.contains_key(&key) {
            let sum = self.sums.entry(key).or_default();
            *sum = (sum.0 + 1, sum.1 + if error.is_none() { result as f64 } else { 0.0 });
        }
    }

    /// The table of what came since the last one.
    pub fn table(&mut self, t: f64) -> Table {
        self.descriptors.clear();
        let mut rows = call_results::Rows::new();
        for (key, (samples, returned)) in self.sums.drain() {
            rows.push(call_results::Row {
                time: Some(t),
                process: Some(&*key.process).into(),
                function: Some(&*key.function).into(),
                descriptor: key.descriptor.as_deref().into(),
                error: key.error.map(error_name).as_deref().into(),
                samples: Some(samples),
                returned: Some(returned),
            });
        }
        rows.finish()
    }
}

/// The kind of file in a link of /proc/PID/fd, without the number of an inode: `socket` of `socket:[4711]`.
fn described(link: &str) -> &str {
    let bare = link.strip_prefix("anon_inode:").unwrap_or(link);
    match bare.split_once(":[") {
        Some((kind, _)) => kind,
        None => bare.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(bare),
    }
}

/// The name that programmers know an error by.
fn error_name(error: i32) -> Cow<'static, str> {
    macro_rules! names {
        ($($name:ident)*) => {
            match error {
                $(libc::$name => stringify!($name).into(),)*
                other => format!("error {other}").into(),
            }
        };
    }
    names! {
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR
        EISDIR EINVAL ENFILE EMFILE ENOTTY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE ERANGE EDEADLK ENAMETOOLONG ENOSYS ENOTEMPTY
        ELOOP ENODATA ETIME ENOTSOCK EMSGSIZE EOPNOTSUPP EADDRINUSE ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN
        ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTUNREACH EALREADY EINPROGRESS
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use ncpu_instructions::registers::aarch64;
    use ncpu_instructions::registers::x86_64::{COUNT, RAX, RCX, RDI, RIP};

    use super::*;

    fn behind_a_call(result: i64, first: u64) -> Registers {
        let mut all = [0; COUNT];
        (all[RIP], all[RCX]) = (0x40_1000, 0x40_1000);
        (all[RAX], all[RDI]) = (result as u64, first);
        Registers::X86_64(all)
    }

    fn behind_a_call_of_arm(result: i64, first: u64, called: u64) -> Registers {
        let mut all = [0; aarch64::COUNT];
        (all[aarch64::PC], all[0]) = (0x40_1000, result as u64);
        (all[aarch64::FIRST], all[aarch64::CALLED]) = (first, called);
        Registers::Aarch64(all)
    }

    #[test]
    fn results_are_told_by_function_descriptor_and_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let (fd, pid) = (file.as_file().as_raw_fd() as u64, std::process::id());
        let mut results = CallResults::default();
        let Registers::X86_64(mut elsewhere) = behind_a_call(7, fd) else { unreachable!() };
        elsewhere[RCX] = 0;
        let function: Arc<str> = "__read".into();
        for registers in [
            behind_a_call(100, fd),
            behind_a_call_of_arm(20, fd, 1),
            behind_a_call(-11, fd),
            Registers::X86_64(elsewhere),
            behind_a_call_of_arm(7, fd, 0),
        ] {
            results.met(pid, &registers);
            results.add("app", pid, &function, &registers);
        }
        let table = results.table(1.0);
        let told = |error: Option<&str>| {
            let row = (0..table.num_rows()).find(|&row| table.text(row, "error") == error)?;
            Some((table.int(row, "samples")?, table.number(row, "returned")?, table.text(row, "descriptor")?))
        };
        let path = file.path().display().to_string();
        assert_eq!(told(None), Some((2, 120.0, &*path)), "{table:?}");
        assert_eq!(told(Some("EAGAIN")), Some((1, 0.0, &*path)), "{table:?}");
        assert_eq!(results.table(2.0).num_rows(), 0);
    }

    #[test]
    fn arguments_that_are_no_descriptors_have_no_name() {
        let mut results = CallResults::default();
        for first in [u64::from(u32::MAX), 1 << 19] {
            results.met(std::process::id(), &behind_a_call(-2, first));
            results.add("app", std::process::id(), &"stat".into(), &behind_a_call(-2, first));
        }
        let table = results.table(1.0);
        assert_eq!((table.num_rows(), table.text(0, "descriptor")), (1, None));
        assert_eq!(table.text(0, "error"), Some("ENOENT"));
    }

    #[test]
    fn kinds_of_descriptors_have_no_numbers() {
        for (link, name) in [
            ("socket:[4711]", "socket"),
            ("pipe:[1]", "pipe"),
            ("anon_inode:[eventpoll]", "eventpoll"),
            ("/dev/urandom", "/dev/urandom"),
            ("/tmp/a:[b", "/tmp/a"),
        ] {
            assert_eq!(described(link), name);
        }
        assert_eq!(error_name(4000), "error 4000");
    }
}
