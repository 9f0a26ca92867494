//! Memory of a process that outlives it for some seconds.
//!
//! A thread of ours reads one byte of it through /proc/PID/mem into a missing page of our own, and we leave
//! that fault (userfaultfd) unresolved. The call lasts that long, and meanwhile the kernel keeps the address
//! space, to which `mem_rw` has a reference (`mm_users`). The process itself can end, be waited for, and
//! start again.
//!
//! Once the fault is resolved the call returns, and the kernel frees the memory. If we end before, so does
//! the call.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;

use ncpu_machine::page_size;

use crate::sys::ioctl;
use crate::userfaultfd::{FLAGS, REGISTER_MISSING, UFFD_API, UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE};

/// The memory stays until this is dropped.
pub(crate) struct Hold {
    faults: OwnedFd,
    /// The missing page.
    page: *mut u8,
    reader: Option<JoinHandle<()>>,
}

/// The address of the page, for the thread that reads into it.
struct Target(usize);

impl Hold {
    /// Holds the memory behind `memory`, an open /proc/PID/mem. `readable` is a readable address in it.
    ///
    /// # Errors
    /// The kernel has no userfaultfd, or does not permit it; the address is unreadable.
    pub(crate) fn new(memory: &File, readable: u64) -> io::Result<Self> {
        // SAFETY: plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, FLAGS) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, and no other code has it.
        let faults = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        ioctl(faults.as_raw_fd(), UFFDIO_API, &mut [UFFD_API, 0, 0])?;
        let length = page_size() as usize;
        // SAFETY: a new mapping.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // From here on its drop undoes everything.
        let mut hold = Self { faults, page: page.cast(), reader: None };
        let register = &mut [page as u64, length as u64, REGISTER_MISSING, 0];
        ioctl(hold.faults.as_raw_fd(), UFFDIO_REGISTER, register)?;
        let (memory, target) = (memory.try_clone()?, Target(page as usize));
        hold.reader = Some(std::thread::Builder::new().spawn(move || {
            let target = target;
            // SAFETY: the page is unmapped only after this thread has ended, and no other code uses it.
            let buffer = unsafe { std::slice::from_raw_parts_mut(target.0 as *mut u8, 1) };
            // The value read is not used.
            let _ = memory.read_at(buffer, readable);
        })?);
        hold.wait()?;
        Ok(hold)
    }

    /// Waits until the thread is inside its call, which the fault shows.
    fn wait(&self) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.faults.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        loop {
            // SAFETY: one descriptor.
            if unsafe { libc::poll(&raw mut poll, 1, 1) } > 0 {
                return Ok(());
            }
            if self.reader.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(io::Error::other("the process's memory is unreadable"));
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let length = page_size();
        if let Some(reader) = self.reader.take() {
            // The page is provided, and the call returns, whether the thread is waiting already or not.
            let served =
                ioctl(self.faults.as_raw_fd(), UFFDIO_ZEROPAGE, &mut [self.page as u64, length, 0, 0]);
            if served.is_err() && !reader.is_finished() {
                // The thread would wait forever, and so would joining it. Both end with this process.
                return;
            }
            // Its result is not used.
            let _ = reader.join();
        }
        // SAFETY: the mapping made for it, whose only user, the thread, has ended.
        unsafe { libc::munmap(self.page.cast(), length as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Whether the kernel lets us handle faults of its own.
    fn allowed() -> bool {
        // SAFETY: no arguments.
        unsafe { libc::geteuid() == 0 }
    }

    #[test]
    fn memory_is_there_after_its_process_is_gone_until_it_is_let_go() {
        if !allowed() {
            return eprintln!("skipped: not root");
        }
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        // Until it executes its own program it has another address space.
        while std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim_end() != "cat" {
            std::thread::yield_now();
        }
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let start = u64::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap();
        let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
        let mut before = [0; 4096];
        memory.read_exact_at(&mut before, start).unwrap();
        assert_eq!(before[..4], *b"\x7fELF");

        assert!(Hold::new(&memory, 0).is_err(), "the page of address 0 was read");
        let hold = Hold::new(&memory, start).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
        let mut after = [0; 4096];
        memory.read_exact_at(&mut after, start).unwrap();
        assert!(before == after);
        drop(hold);
        assert_eq!(memory.read_at(&mut after, start).unwrap(), 0, "it is still there");
    }
}
