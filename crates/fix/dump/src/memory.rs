//! The memory of another process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::Error;
use crate::hold::Hold;

/// The memory of a process as it is now. After the end of the process, reads fail: it is never the memory of
/// a program that the process executes later, or of a later process with the same number.
pub(crate) struct Memory {
    pid: i32,
    /// Bound to the address space at the time it was opened. Slower than process_vm_readv, but it also reads
    /// memory that the process itself may not read.
    file: File,
    /// The process may have ended, and its number may be reused: only the file is read.
    held: bool,
}

/// Vectors of one call; the kernel's limit is 1024.
const VECTORS: usize = 512;

impl Memory {
    /// Opens the memory.
    ///
    /// # Errors
    /// The process has ended or may not be accessed.
    pub(crate) fn open(pid: i32) -> Result<Self, Error> {
        match File::open(format!("/proc/{pid}/mem")) {
            Ok(file) => Ok(Self { pid, file, held: false }),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Err(Error::Gone(pid)),
            Err(_) => Err(Error::NotPermitted(pid)),
        }
    }

    /// Keeps the memory after its process has ended, while the returned value exists; `readable` is the
    /// address of a readable byte.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub(crate) fn hold(&mut self, readable: u64) -> io::Result<Hold> {
        let hold = Hold::new(&self.file, readable)?;
        self.held = true;
        Ok(hold)
    }

    /// The process that it belongs to.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the address space still exists: no end, no exec.
    pub(crate) fn is_alive(&self, address: u64) -> bool {
        let mut byte = [0];
        // An address space that no longer exists reads as an empty file; an unreadable page is an error.
        !matches!(self.file.read_at(&mut byte, address), Ok(0))
    }

    /// Reads ranges of addresses one after the other into `buffer`, and returns the number of bytes that
    /// could not be read, which become zeros. Other writers of the memory are not excluded.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn read(&self, ranges: &[(u64, u64)], buffer: &mut [u8]) -> Result<u64, Error> {
        let mut missing = 0;
        let mut index = 0;
        // Bytes of the first range that are already read.
        let mut skip = 0;
        let mut at = 0;
        while index < ranges.len() {
            let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; VECTORS];
            let mut count = 0;
            let mut wanted = 0;
            for (n, &(start, end)) in ranges[index..].iter().take(VECTORS).enumerate() {
                let start = start + if n == 0 { skip } else { 0 };
                vectors[n] = libc::iovec { iov_base: start as *mut _, iov_len: (end - start) as usize };
                wanted += (end - start) as usize;
                count += 1;
            }
            if self.held {
                (count, wanted) = (1, vectors[0].iov_len);
            }
            let target = &mut buffer[at..at + wanted];
            let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
            let result = if self.held {
                let from = vectors[0].iov_base as i64;
                // SAFETY: the kernel writes to the buffer, whose length is passed.
                unsafe { libc::pread(self.file.as_raw_fd(), local.iov_base, local.iov_len, from) }
            } else {
                // SAFETY: the kernel writes to the buffer, whose length is passed; addresses of the other
                // process are only numbers here.
                unsafe { libc::process_vm_readv(self.pid, &raw const local, 1, vectors.as_ptr(), count, 0) }
            };
            let got = match result {
                -1 => match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EFAULT | libc::ENOMEM | libc::EIO) => 0,
                    Some(libc::EPERM) => return Err(Error::NotPermitted(self.pid)),
                    _ => return Err(Error::Gone(self.pid)),
                },
                n => n as usize,
            };
            at += got;
            let mut left = got as u64;
            while index < ranges.len() {
                let length = ranges[index].1 - ranges[index].0 - skip;
                if left < length {
                    skip += left;
                    break;
                }
                left -= length;
                index += 1;
                skip = 0;
            }
            if got == wanted {
                continue;
            }
            // The page that stopped the call: unreadable by the process, or no longer there.
            let (start, end) = ranges[index];
            let page = ncpu_machine::page_size();
            let from = start + skip;
            let length = (page - from % page).min(end - from);
            let target = &mut buffer[at..at + length as usize];
            if self.file.read_exact_at(target, from).is_err() {
                target.fill(0);
                missing += length;
                if !self.is_alive(from) {
                    return Err(Error::Gone(self.pid));
                }
            }
            at += length as usize;
            skip += length;
            if start + skip == end {
                index += 1;
                skip = 0;
            }
        }
        Ok(missing)
    }

    /// Reads all of a range.
    ///
    /// # Errors
    /// A part of it is unreadable.
    pub(crate) fn read_exact(&self, start: u64, buffer: &mut [u8]) -> Result<(), Error> {
        match self.read(&[(start, start + buffer.len() as u64)], buffer)? {
            0 => Ok(()),
            _ => Err(Error::Unsupported(format!("memory at {start:#x} cannot be read"))),
        }
    }
}

/// Writes memory that the process itself may write.
pub(crate) fn write(pid: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
    // SAFETY: the kernel reads the local buffer; the other process's addresses are only numbers here.
    let result = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        n if n as usize == bytes.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}
