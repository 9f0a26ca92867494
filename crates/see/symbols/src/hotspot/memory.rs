//! Memory of a running process: every word of it may have changed since the last read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use ncpu_files::reader::Source;

/// Memory that is readable by address.
pub(crate) trait Memory {
    /// Fills `into` from an address on; `None` if part of it is unreadable.
    fn read(&self, at: u64, into: &mut [u8]) -> Option<()>;

    /// A number of 1, 2, 4 or 8 bytes.
    fn number(&self, at: u64, bytes: u8) -> Option<u64> {
        let mut word = [0; 8];
        self.read(at, word.get_mut(..bytes.into())?)?;
        Some(u64::from_le_bytes(word))
    }

    /// A pointer; `None` if it is null.
    fn pointer(&self, at: u64) -> Option<u64> {
        self.number(at, 8).filter(|p| *p != 0)
    }
}

/// Bytes read at once, the number of blocks kept, and the time for which they are reused.
const BLOCK: u64 = 512;
const MAX_BLOCKS: usize = 64;
const SAME: Duration = Duration::from_millis(5);

type Block = Box<[u8; BLOCK as usize]>;

/// A process's memory, read in blocks, because neighbouring words are read together.
pub(crate) struct Blocks {
    source: Source,
    kept: RefCell<(Instant, HashMap<u64, Block>)>,
}

impl Blocks {
    pub fn new(source: Source) -> Blocks {
        Blocks { source, kept: RefCell::new((Instant::now(), HashMap::new())) }
    }
}

impl Memory for Blocks {
    fn read(&self, at: u64, into: &mut [u8]) -> Option<()> {
        let (first, within) = (at / BLOCK * BLOCK, (at % BLOCK) as usize);
        if within + into.len() > BLOCK as usize {
            return self.source.read_exact_at(into, at).ok();
        }
        let mut kept = self.kept.borrow_mut();
        if kept.0.elapsed() > SAME || kept.1.len() >= MAX_BLOCKS {
            *kept = (Instant::now(), HashMap::new());
        }
        let block = match kept.1.entry(first) {
            Entry::Occupied(block) => block.into_mut(),
            Entry::Vacant(new) => {
                let mut block = Box::new([0; BLOCK as usize]);
                // Pages are mapped as a whole, and blocks lie within one.
                self.source.read_exact_at(&mut block[..], first).ok()?;
                new.insert(block)
            }
        };
        into.copy_from_slice(&block[within..within + into.len()]);
        Some(())
    }
}

const PAGE: usize = 4096;
/// The most pages read: a virtual machine's tables take about a hundred.
const MAX_PAGES: usize = 1 << 9;

/// Memory read in pages, for data that lies close together and does not change.
pub(super) struct Pages<'a, M> {
    memory: &'a M,
    pages: RefCell<HashMap<u64, Option<Box<[u8; PAGE]>>>>,
}

impl<'a, M: Memory> Pages<'a, M> {
    pub fn new(memory: &'a M) -> Pages<'a, M> {
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

    /// The zero-terminated string at an address, at most `most` bytes long.
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
