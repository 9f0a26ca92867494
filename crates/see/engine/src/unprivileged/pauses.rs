//! Whether a sample met an instruction by which a CPU waits for another.

use std::collections::HashMap;

use ncpu_instructions::{Registers, pauses};

/// What samples met, by process and instruction pointer.
#[derive(Default)]
pub(super) struct Pauses(HashMap<(u32, u64), bool>);

impl Pauses {
    /// Whether it did; not where the code cannot be read, as of a process that has ended.
    pub fn at(&mut self, pid: u32, registers: &Registers) -> bool {
        let ip = registers.ip();
        *self.0.entry((pid, ip)).or_insert_with(|| {
            // An instruction of four bytes before, and one there.
            let from = ip.wrapping_sub(4);
            read(pid, from).is_some_and(|code| pauses(registers.machine(), code))
        })
    }

    /// Processes may end, and their numbers be given to others.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

/// Bytes of a process's memory.
fn read(pid: u32, from: u64) -> Option<[u8; 8]> {
    let mut bytes = [0; 8];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: `local` is a live buffer of its length; the other address is only looked at in the other process.
    let got = unsafe { libc::process_vm_readv(pid as i32, &raw const local, 1, &raw const remote, 1, 0) };
    (got == bytes.len() as isize).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_read_where_there_is_some() {
        let code = *b"12345678";
        let own = std::process::id();
        assert_eq!(read(own, code.as_ptr() as u64), Some(code));
        assert_eq!(read(own, 0), None);
        assert_eq!(read(own, u64::MAX - 3), None);
    }
}
