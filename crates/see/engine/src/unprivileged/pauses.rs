//! Whether a sample met an instruction by which a CPU waits for another.

use std::collections::HashMap;

use ncpu_instructions::{Registers, pauses};
use ncpu_symbols::{CodeKey, CodePlace};

use crate::names::Symbols;

/// Whether there is such an instruction, by process and instruction pointer.
#[derive(Default)]
pub(super) struct Pauses(HashMap<(u32, u64), bool>);

impl Pauses {
    /// Whether a sample met one; not where the code cannot be read, as of a process that has ended.
    pub fn at(&mut self, symbols: &Symbols, pid: u32, registers: &Registers) -> bool {
        let ip = registers.ip();
        *self.0.entry((pid, ip)).or_insert_with(|| {
            // An instruction of four bytes before, and one there.
            let code = symbols.code_bytes(&in_memory(pid, ip.wrapping_sub(4), 8));
            let code = code.and_then(|code| code.try_into().ok());
            code.is_some_and(|code| pauses(registers.machine(), code))
        })
    }

    /// Processes may end, and their numbers be given to others.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

/// Code as a process has it now, of a file or not: a debugger's changes are in it too.
fn in_memory(pid: u32, address: u64, length: u64) -> CodePlace {
    let key = CodeKey::Memory(pid, address);
    CodePlace { key, whole: false, address, in_file: address, length, machine: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_read_where_there_is_some() {
        let code = *b"12345678";
        let (own, symbols) = (std::process::id(), Symbols::new());
        let read = |address| symbols.code_bytes(&in_memory(own, address, 8)).filter(|code| code.len() == 8);
        assert_eq!(read(code.as_ptr() as u64).as_deref(), Some(&code[..]));
        assert_eq!(read(0), None);
        assert_eq!(read(u64::MAX - 3), None);
    }
}
