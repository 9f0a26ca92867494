//! A virtual machine of a few kilobytes, for tests and for fuzzing.

use std::time::Instant;

use super::layout::Layout;
use super::memory::Memory;
use super::{Machine, Recent, code};

pub const BASE: u64 = 0x1000;

/// Memory from [`BASE`] on.
pub struct Bytes(pub Vec<u8>);

impl Memory for Bytes {
    fn read(&self, at: u64, into: &mut [u8]) -> Option<()> {
        let at = usize::try_from(at.checked_sub(BASE)?).ok()?;
        into.copy_from_slice(self.0.get(at..at.checked_add(into.len())?)?);
        Some(())
    }
}

impl Bytes {
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = (at - BASE) as usize;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn word(&mut self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }
}

pub fn machine<M: Memory>(memory: M) -> Option<Machine<M>> {
    let layout = Layout::example();
    let interpreter = code::interpreter(&memory, &layout, BASE)?;
    let heaps = code::heaps(&memory, &layout, BASE)?;
    let (next, places, methods) = (Instant::now(), Recent::new(8), Recent::new(8));
    let looks = (next, 0);
    Some(Machine { memory, layout, bias: BASE, heaps, interpreter, next, looks, places, methods, bytes: 0 })
}

/// The code, its segments of 128 bytes, and a compiled function in it.
pub const CODE: u64 = 0x4000;
const SEGMENTS: u64 = 0x3000;
pub const BLOB: u64 = CODE + 128 + 16;
pub const BEGIN: u64 = BLOB + 352;

/// A machine with one function, `a.B.run`, which has a frame of 4 words.
pub fn one_function() -> Bytes {
    let mut m = Bytes(vec![0; 0x6000]);
    let (array, list, heap, queue, name) = (0x1100, 0x1140, 0x1200, 0x1180, 0x1800);
    let (method, of, pool, class, words) = (0x1900, 0x1a00, 0x1b00, 0x1c00, 0x1d00);
    m.word(BASE, array);
    m.word(BASE + 8, queue);
    m.word(array, 1);
    m.word(array + 8, list);
    m.word(list, heap);
    m.word(heap + 8 + 16, CODE);
    m.word(heap + 8 + 24, CODE + 0x1000);
    m.word(heap + 120 + 16, SEGMENTS);
    m.put(heap + 256, &[7]);
    m.word(queue + 8, CODE + 0x800);
    m.put(queue + 20, &0x100u32.to_le_bytes());
    // One piece in the segments from the second on, and no code after it.
    m.put(SEGMENTS, &[255; 32]);
    m.put(SEGMENTS + 1, &[0, 1, 2, 3, 4, 5, 6]);
    m.put(CODE + 128 + 8, &[1]);
    m.put(BLOB + 12, &800u32.to_le_bytes());
    m.put(BLOB + 20, &16u32.to_le_bytes());
    m.put(BLOB + 28, &4u32.to_le_bytes());
    m.word(BLOB + 32, BEGIN);
    m.word(BLOB + 96, name);
    m.put(name, b"nmethod\0");
    m.word(BLOB + 112, method);
    m.word(method + 8, of);
    m.word(of + 8, pool);
    m.put(of + 34, &[3]);
    m.word(pool + 24, class);
    m.put(pool + 60, &[9]);
    m.word(pool + 72 + 24, words);
    m.word(class + 24, words + 32);
    m.put(words + 4, b"\x03\0run");
    m.put(words + 32 + 4, b"\x10\0a/B+0x0000800c01");
    m
}

/// Looks frames up in a machine with arbitrary memory: 10 bytes for each changed word, its index and the
/// word; then, after a word index of 0xffff, registers of a frame and whether it is the innermost, 25 bytes
/// each.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let mut memory = one_function();
    let mut rest = bytes;
    while let Some((change, after)) = rest.split_at_checked(10) {
        rest = after;
        let number = u64::from(u16::from_le_bytes([change[0], change[1]]));
        if number == 0xffff {
            break;
        }
        memory.word(BASE + 8 * (number % 0xc00), word(&change[2..]));
    }
    let stack = Bytes(memory.0.clone());
    let Some(mut machine) = machine(memory) else { return };
    for registers in rest.chunks_exact(25) {
        let frame = super::Frame {
            ip: word(&registers[..8]),
            sp: word(&registers[8..16]),
            bp: word(&registers[16..24]),
        };
        machine.holds(frame.ip);
        let mut read = |at: u64| stack.number(at, 8);
        let (functions, caller) = machine.caller(frame, registers[24] % 2 == 0, &mut read, |ip| ip % 2 == 0);
        // They are printed in lines of a terminal.
        assert!(functions.iter().all(|f| f.len() < 300 && !f.contains(char::is_control)));
        assert!(caller.is_none_or(|c| c.frame.ip % 2 == 0));
    }
}
