//! Memory of a process that runs on: every word of it may be something else by now.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// What can be read by address.
pub(crate) trait Memory {
    /// Fills `into` from an address on; `None` where not all of it can be read.
    fn read(&self, at: u64, into: &mut [u8]) -> Option<()>;

    /// A number of 1, 2, 4 or 8 bytes.
    fn number(&self, at: u64, bytes: u8) -> Option<u64> {
        let mut word = [0; 8];
        self.read(at, word.get_mut(..bytes.into())?)?;
        Some(u64::from_le_bytes(word))
    }

    /// A pointer; `None` where it is null.
    fn pointer(&self, at: u64) -> Option<u64> {
        self.number(at, 8).filter(|p| *p != 0)
    }
}

impl Memory for File {
    fn read(&self, at: u64, into: &mut [u8]) -> Option<()> {
        self.read_exact_at(into, at).ok()
    }
}

const PAGE: usize = 4096;
/// Pages read: a virtual machine's tables take some hundred.
const MAX_PAGES: usize = 1 << 9;

/// Memory read page by page, for what lies close together and does not change.
pub(super) struct Pages<'a, M> {
    memory: &'a M,
    pages: RefCell<HashMap<u64, Option<Box<[u8; PAGE]>>>>,
}

impl<'a, M: Memory> Pages<'a, M> {
    pub fn of(memory: &'a M) -> Pages<'a, M> {
        Pages { memory, pages: RefCell::default() }
    }

    fn byte(&self, at: u64) -> Option<u8> {
        let mut pages = self.pages.borrow_mut();
        let page = at - at % PAGE as u64;
        if pages.len() >= MAX_PAGES && !pages.contains_key(&page) {
            return None;
        }
        let bytes = pages.entry(page).or_insert_with(|| {
            let mut bytes = Box::new([0; PAGE]);
            self.memory.read(page, &mut bytes[..]).map(|()| bytes)
        });
        Some(bytes.as_deref()?[(at - page) as usize])
    }

    /// The string that ends with a zero, of at most so many bytes.
    pub fn string(&self, at: u64, most: usize) -> Option<String> {
        let mut bytes = Vec::new();
        while let Some(byte) = self.byte(at.checked_add(bytes.len() as u64)?).filter(|b| *b != 0) {
            bytes.push(byte);
            if bytes.len() > most {
                return None;
            }
        }
        String::from_utf8(bytes).ok()
    }
}

impl<M: Memory> Memory for Pages<'_, M> {
    fn read(&self, at: u64, into: &mut [u8]) -> Option<()> {
        for (i, byte) in into.iter_mut().enumerate() {
            *byte = self.byte(at.checked_add(i as u64)?)?;
        }
        Some(())
    }
}
