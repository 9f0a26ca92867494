//! System calls by what they do, and the call that a sample is in.

use ncpu_schema::SampleClass;

use super::view::Sampled;

/// Calls that map memory.
pub(super) const MAPPING: [&str; 6] = ["mmap", "munmap", "mremap", "mprotect", "brk", "madvise"];

/// Calls that wait until data is on a device.
pub(super) const SYNC: [&str; 5] = ["fsync", "fdatasync", "msync", "sync_file_range", "syncfs"];

/// The system call that a sample is in, by the kernel's functions; `entry` is the way into the kernel and out of it.
pub(super) fn call_of<'a>(sample: &Sampled<'a>) -> Option<&'a str> {
    match sample.class {
        SampleClass::Syscall => Some(call_in(&sample.kernel).unwrap_or("entry")),
        SampleClass::Exec => Some("execve"),
        SampleClass::Exit => Some("exit"),
        _ => None,
    }
}

/// The system call of a stack in the kernel, innermost first.
pub(super) fn call_in<'a>(kernel: &[&'a str]) -> Option<&'a str> {
    ncpu_symbols::system_call(kernel)
}
