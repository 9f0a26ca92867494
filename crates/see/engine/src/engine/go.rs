//! Where Go parks goroutines that wait for a lock: the functions that `sync.Mutex` and `sync.RWMutex` call when they must.

use ncpu_files::reader::Source;
use ncpu_symbols::{Sections, Segments, named_symbols};

use super::usdt::Probe;

/// Functions that wait (with the lock's kind, `enum user_lock` of engine.h): of Go before 1.24 and since.
const WAITS: [(&str, u64); 4] = [
    ("sync.runtime_SemacquireMutex", 5),
    ("internal/sync.runtime_SemacquireMutex", 5),
    ("sync.runtime_SemacquireRWMutexR", 6),
    ("sync.runtime_SemacquireRWMutex", 7),
];
/// The function that each of them calls to wait.
const PARKS: &str = "runtime.semacquire1";
/// No such function is longer.
const LONGEST: u64 = 4096;

/// Where waits begin and end in a Go program; nothing in what is none, or is stripped and of Go before 1.18.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub(super) fn probes(file: &Source) -> Result<Vec<Probe>, String> {
    let Some(sections) = Sections::read(file) else { return Ok(Vec::new()) };
    if !sections.is_go() {
        return Ok(Vec::new());
    }
    let (mut waits, mut parks) = symbols(file);
    if parks.is_none() {
        (waits, parks) = table(file);
    }
    let Some(parks) = parks else { return Ok(Vec::new()) };
    let segments = Segments::read(file).unwrap_or_default();
    let mut found = Vec::new();
    for (name, kind, address, size) in waits {
        let outside = || format!("{name} lies outside of the file");
        let begin = segments.offset(address).ok_or_else(outside)?;
        let mut code = vec![0; size.min(LONGEST) as usize];
        file.read_exact_at(&mut code, begin).map_err(|_| outside())?;
        let Some(after) = after_call(&code, address, parks) else { continue };
        let end = segments.offset(address + after).ok_or_else(outside)?;
        let probe = |offset, event| Probe { name, offset, semaphore: 0, cookie: kind << 8 | event };
        // The end first, so that none is missed.
        found.extend([probe(end, 1), probe(begin, 0)]);
    }
    Ok(found)
}

/// A function that waits: its name, the lock's kind, address and size.
type Wait = (&'static str, u64, u64, u64);

/// The names of functions that wait, and last of the one that they call.
fn names() -> Vec<&'static str> {
    WAITS.iter().map(|(name, _)| *name).chain([PARKS]).collect()
}

/// Functions that wait, by their places in [`WAITS`], and where they go to do so.
fn found(mut places: Vec<Option<(u64, u64)>>) -> (Vec<Wait>, Option<u64>) {
    let parks = places.pop().flatten().map(|(address, _)| address);
    let of = |((name, kind), place): (&(&'static str, u64), Option<(u64, u64)>)| {
        place.map(|(address, size)| (*name, *kind, address, size))
    };
    (WAITS.iter().zip(places).filter_map(of).collect(), parks)
}

/// Functions that wait, and where they go to do so, by the symbols.
fn symbols(file: &Source) -> (Vec<Wait>, Option<u64>) {
    found(named_symbols(file, false, &names()))
}

/// The same by the table that Go has for its own tracebacks, which stripped programs keep.
fn table(file: &Source) -> (Vec<Wait>, Option<u64>) {
    let ranges = ncpu_symbols::go_functions(file, &names()).into_iter();
    found(ranges.map(|range| range.map(|r| (r.start, r.end.saturating_sub(r.start)))).collect())
}

/// How far behind the beginning of a function at `address` the instruction lies that follows its call of `callee`.
fn after_call(code: &[u8], address: u64, callee: u64) -> Option<u64> {
    let calls = |at: usize, target: u64| address.wrapping_add(at as u64).wrapping_add(target) == callee;
    if cfg!(target_arch = "aarch64") {
        let mut words = code.chunks_exact(4).enumerate();
        return words.find_map(|(i, word)| {
            let word = u32::from_le_bytes(word.try_into().ok()?);
            // bl: 26 bits of a signed distance in words.
            let distance = ((word << 6) as i32 >> 4) as i64 as u64;
            (word >> 26 == 0b100101 && calls(4 * i, distance)).then_some(4 * i as u64 + 4)
        });
    }
    // call rel32, from the end of the instruction
    let call = |w: &[u8]| i32::from_le_bytes([w[1], w[2], w[3], w[4]]) as i64 as u64;
    let at = code.windows(5).enumerate().position(|(i, w)| w[0] == 0xe8 && calls(i + 5, call(w)))?;
    Some(at as u64 + 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_call_is_found_by_where_it_leads() {
        // push rbp; call another; call the one; ret
        let mut code = vec![0x55, 0xe8, 0, 1, 0, 0, 0xe8];
        code.extend((-0x100i32).to_le_bytes());
        code.push(0xc3);
        assert_eq!(after_call(&code, 0x1000, 0x1000 + 11 - 0x100), Some(11));
        assert_eq!(after_call(&code, 0x1000, 0x1106), Some(6));
        assert_eq!(after_call(&code, 0x1000, 0x2000), None);
        assert_eq!(after_call(&code[..9], 0x1000, 0x1000 + 11 - 0x100), None, "cut");
    }

    #[test]
    fn other_programs_have_none() {
        assert_eq!(
            probes(&Source::open(&std::env::current_exe().expect("own path")).expect("own file")),
            Ok(Vec::new())
        );
        assert_eq!(probes(&Source::open("/etc/passwd".as_ref()).expect("a file")), Ok(Vec::new()));
    }
}
