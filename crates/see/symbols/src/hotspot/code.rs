//! Code made by a Java virtual machine: the piece at an address, and the functions inlined into it.

use super::layout::{Layout, Metadata, Scopes};
use super::memory::Memory;

/// The most parts of the code cache: it has one to three.
const MAX_HEAPS: u64 = 8;
/// The most steps back to the beginning of a piece of code, of up to 254 segments each.
const MAX_STEPS: usize = 1 << 7;
/// The most bytes of a piece of code, and words of its frame.
const MAX_CODE: u64 = 64 << 20;
const MAX_FRAME: u64 = 1 << 20;
/// Bytes of a name.
const MAX_NAME: usize = 100;
/// The most bytes read of a table of program counters, of 16 each.
const MAX_COUNTERS: u64 = 1 << 20;
const COUNTER: usize = 16;
/// The depth of inlined functions.
const MAX_INLINED: usize = 64;
/// The names of compiled code, and of compiled code that calls C.
const COMPILED: [&str; 2] = ["nmethod", "native nmethod"];

/// A part of the code cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    start: u64,
    end: u64,
    segments: u64,
    shift: u32,
}

impl Heap {
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A piece of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub at: u64,
    pub begin: u64,
    /// Its name in the virtual machine.
    pub name: String,
    /// The offset from which its frame is complete.
    pub complete: u64,
    /// Size of its frame in bytes, including the return address; 0 if it has none.
    pub frame: u64,
    /// The compiled function, and the number of its compilation.
    pub method: Option<(u64, u64)>,
}

/// The current parts of the code cache.
pub(super) fn heaps(memory: &impl Memory, layout: &Layout, bias: u64) -> Option<Vec<Heap>> {
    let array = memory.pointer(layout.heaps.wrapping_add(bias))?;
    let count = layout.array_length.value(memory, array)?.min(MAX_HEAPS);
    let data = layout.array_data.value(memory, array)?;
    let heap = |i: u64| {
        let at = memory.pointer(data.checked_add(8 * i)?)?;
        let space = at.checked_add(layout.heap_memory)?;
        let segments = layout.space_low.value(memory, at.checked_add(layout.heap_segments)?)?;
        let shift = layout.heap_shift.value(memory, at)?;
        Some(Heap {
            start: layout.space_low.value(memory, space)?,
            end: layout.space_high.value(memory, space)?,
            segments,
            shift: u32::try_from(shift).ok().filter(|s| *s < 32)?,
        })
    };
    Some((0..count).filter_map(heap).collect())
}

/// The range of the interpreter's code.
pub(super) fn interpreter(memory: &impl Memory, layout: &Layout, bias: u64) -> Option<(u64, u64)> {
    let queue = memory.pointer(layout.interpreter.wrapping_add(bias))?;
    let begin = layout.queue_buffer.value(memory, queue)?;
    Some((begin, begin.checked_add(layout.queue_limit.value(memory, queue)?)?))
}

/// The piece of code at an address.
pub(super) fn blob(memory: &impl Memory, layout: &Layout, heaps: &[Heap], address: u64) -> Option<Blob> {
    let heap = heaps.iter().find(|h| h.holds(address))?;
    let mut segment = (address - heap.start) >> heap.shift;
    let mut steps = 0;
    loop {
        // The least number of segments back; 255: there is no code here.
        let back = memory.number(heap.segments.checked_add(segment)?, 1)?;
        match back {
            0 => break,
            255 => return None,
            _ if steps == MAX_STEPS => return None,
            _ => segment = segment.checked_sub(back)?,
        }
        steps += 1;
    }
    let block = heap.start + (segment << heap.shift);
    if layout.block_used.value(memory, block)? == 0 {
        return None;
    }
    let at = block.checked_add(layout.block_size)?;
    let size = layout.blob_size.value(memory, at)?;
    let begin = layout.blob_code.address(memory, at, at)?;
    let end = at.checked_add(size).filter(|_| size < MAX_CODE)?;
    if !(at..=end).contains(&begin) || !(at..end).contains(&address) {
        return None;
    }
    let name = string(memory, layout.blob_name.value(memory, at)?, MAX_NAME)?;
    let complete = begin.saturating_add_signed(layout.blob_complete.signed(memory, at)?.max(0));
    let frame = u64::try_from(layout.blob_frame.signed(memory, at)?).ok()?;
    let method = match COMPILED.contains(&name.as_str()) {
        true => Some((layout.nmethod_method.value(memory, at)?, layout.nmethod_number.value(memory, at)?)),
        false => None,
    };
    Some(Blob { at, begin, name, complete, frame: 8 * frame.min(MAX_FRAME), method })
}

/// Whether the piece of code is still the same compilation.
pub(super) fn is_still(memory: &impl Memory, layout: &Layout, blob: &Blob) -> bool {
    let Some((method, number)) = blob.method else { return true };
    layout.nmethod_method.value(memory, blob.at) == Some(method)
        && layout.nmethod_number.value(memory, blob.at) == Some(number)
}

/// The functions at an address of compiled code, innermost first, by their methods: the inlined ones, then
/// the compiled one. Exact for return addresses. For other addresses it is the next debug state recorded
/// behind them, as in the virtual machine's own profiler.
pub(super) fn functions(memory: &impl Memory, layout: &Layout, blob: &Blob, address: u64) -> Vec<u64> {
    let Some((method, _)) = blob.method else { return Vec::new() };
    let all = layout.scopes.as_ref().and_then(|scopes| inlined(memory, scopes, blob, address));
    // The outermost must be the compiled function, which shows that the rest was decoded correctly.
    all.filter(|all| all.last() == Some(&method)).unwrap_or_else(|| vec![method])
}

fn inlined(memory: &impl Memory, scopes: &Scopes, blob: &Blob, address: u64) -> Option<Vec<u64>> {
    let base = match scopes.base {
        Some(pointer) => pointer.value(memory, blob.at)?,
        None => blob.at,
    };
    let begin = scopes.counters.address(memory, blob.at, base)?;
    let end = scopes.counters_end.address(memory, blob.at, base)?;
    let bytes = end.checked_sub(begin).filter(|n| *n <= MAX_COUNTERS)?;
    let mut table = vec![0; bytes as usize / COUNTER * COUNTER];
    memory.read(begin, &mut table)?;
    let number = |at: &[u8], i: usize| i32::from_le_bytes(std::array::from_fn(|b| at[4 * i + b]));
    let offset = i32::try_from(address.checked_sub(blob.begin)?).ok()?;
    let (counters, _) = table.as_chunks::<COUNTER>();
    // They ascend; the first and the last are limits.
    let at = counters.partition_point(|c| number(c, 0) < offset);
    let counter = counters.get(at).filter(|_| at + 1 < counters.len())?;
    let mut scope = u64::try_from(number(counter, 1)).ok()?;
    let data = scopes.data.address(memory, blob.at, base)?;
    let names = match scopes.metadata {
        Metadata::Offset(member) => blob.at.checked_add(member.value(memory, blob.at)?)?,
        Metadata::Behind(pointer, bytes) => {
            pointer.value(memory, blob.at)?.checked_add(bytes.value(memory, blob.at)?)?
        }
    };
    let mut functions = Vec::new();
    // Each scope refers to its caller's, which was written before it.
    while scope != 0 && functions.len() < MAX_INLINED {
        let mut bytes = [0; 10];
        memory.read(data.checked_add(scope)?, &mut bytes)?;
        let (outer, used) = compressed(&bytes, scopes.without_zeros)?;
        let (name, _) = compressed(&bytes[used..], scopes.without_zeros)?;
        functions.push(memory.pointer(names.checked_add(8 * u64::from(name.checked_sub(1)?))?)?);
        if u64::from(outer) >= scope {
            return None;
        }
        scope = outer.into();
    }
    Some(functions)
}

/// Decodes a compressed number (`unsigned5.hpp`). Returns it and the number of its bytes: digits of 64, of
/// which all but the last are 192 or more.
fn compressed(bytes: &[u8], without_zeros: bool) -> Option<(u32, usize)> {
    let least = u32::from(without_zeros);
    let mut sum = 0u32;
    for (i, &byte) in bytes.iter().take(5).enumerate() {
        sum = sum.wrapping_add(u32::from(byte).checked_sub(least)?.wrapping_shl(6 * i as u32));
        if byte < 192 || i == 4 {
            return Some((sum, i + 1));
        }
    }
    None
}

/// The name of a function: `java.util.HashMap.put`.
pub(super) fn name(memory: &impl Memory, layout: &Layout, method: u64) -> Option<String> {
    let of = layout.method_const.value(memory, method).filter(|p| *p != 0)?;
    let pool = layout.const_pool.value(memory, of).filter(|p| *p != 0)?;
    let at = layout.const_name.value(memory, of)?;
    if at == 0 || at >= layout.pool_length.value(memory, pool)? {
        return None;
    }
    // The lower bits may be set where names of classes are stored.
    let function = pool.checked_add(layout.pool_size)?.checked_add(at.checked_mul(8)?)?;
    let function = memory.pointer(function)? & !7;
    let class = layout.klass_name.value(memory, layout.pool_holder.value(memory, pool)?)?;
    let (class, function) = (symbol(memory, layout, class)?, symbol(memory, layout, function)?);
    // Classes made at run time have an address after their name.
    let class = match class.rsplit_once("0x") {
        Some((before, number)) if number.bytes().all(|b| b.is_ascii_hexdigit()) => {
            before.trim_end_matches(['/', '+', '.'])
        }
        _ => &class,
    };
    Some(format!("{}.{function}", class.replace('/', ".")))
}

/// Text of the virtual machine.
fn symbol(memory: &impl Memory, layout: &Layout, at: u64) -> Option<String> {
    let length = usize::try_from(layout.symbol_length.value(memory, at)?).ok().filter(|n| *n > 0)?;
    let mut bytes = vec![0; length.min(MAX_NAME)];
    memory.read(at.checked_add(layout.symbol_body)?, &mut bytes)?;
    let end = match std::str::from_utf8(&bytes) {
        Ok(text) => text.len(),
        // Cut within a character, or in the virtual machine's own encoding.
        Err(e) => e.valid_up_to(),
    };
    bytes.truncate(end);
    let text = String::from_utf8(bytes).ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

/// A C string of printable characters.
fn string(memory: &impl Memory, at: u64, most: usize) -> Option<String> {
    let mut text = String::new();
    while text.len() < most {
        let byte = memory.number(at.checked_add(text.len() as u64)?, 1)? as u8;
        if byte == 0 {
            break;
        }
        text.push(char::from(Some(byte).filter(|b| matches!(b, b' '..=b'~'))?));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes numbers as the virtual machine does (`UNSIGNED5::encode`).
    fn written(mut value: u32, without_zeros: bool) -> Vec<u8> {
        let least = u32::from(without_zeros);
        let mut bytes = Vec::new();
        for _ in 0..4 {
            if value < 192 - least {
                break;
            }
            value -= 192 - least;
            bytes.push((192 + value % 64) as u8);
            value >>= 6;
        }
        bytes.push((value + least) as u8);
        bytes
    }

    /// The tables of the library say how long a number is, and may lie.
    #[test]
    fn an_index_of_any_size_is_no_panic() {
        use crate::hotspot::example::one_function;
        use crate::hotspot::layout::Member;
        let (method, of, pool) = (0x1900, 0x1a00, 0x1b00);
        let mut layout = Layout::example();
        let mut memory = one_function();
        assert_eq!(name(&memory, &layout, method).as_deref(), Some("a.B.run"));
        layout.const_name = Member { at: 40, bytes: 8 };
        layout.pool_length = Member { at: 48, bytes: 8 };
        memory.word(pool + 48, u64::MAX);
        for index in [1 << 61, u64::MAX - 1] {
            memory.word(of + 40, index);
            assert_eq!(name(&memory, &layout, method), None);
        }
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for value in (0..20_000).chain((0..32).map(|i| u32::MAX >> i)).filter(|v| *v < 1 << 30) {
            for without_zeros in [false, true] {
                let mut bytes = written(value, without_zeros);
                assert!(!without_zeros || !bytes.contains(&0));
                let used = bytes.len();
                bytes.extend([0; 5]);
                assert_eq!(compressed(&bytes, without_zeros), Some((value, used)), "{bytes:?}");
            }
        }
        assert_eq!((compressed(&[], false), compressed(&[200], false)), (None, None));
        // In an encoding without zeros no number begins with one.
        assert_eq!(compressed(&[0, 1], true), None);
        assert_eq!(compressed(&[255; 8], true).map(|(_, used)| used), Some(5));
    }
}
