//! Strings and blocks of memory. Short ones cost mostly the call, so they are called as dynamically linked programs do
//! it, and results that count are added to a sum in memory.

use std::ffi::c_char;
use std::hint::black_box;

use super::common::linked;
use crate::case::{Alone, Batch, Bench, Case, Failure, Worker, each};
use crate::options::{Flag, Options};

const SIZE: Flag = Flag { letter: 's', value: "SIZE", default: "8k", about: "bytes" };
const STRING: Flag = Flag { letter: 's', value: "SIZE", default: "100", about: "bytes of the string" };
const UNALIGNED: Flag = Flag { letter: 'n', value: "", default: "", about: "strings not aligned" };
const ROTATE_FROM: Flag = Flag {
    letter: 'f',
    value: "",
    default: "",
    about: "walk through 64 MB of source, to have it out of cache",
};
const ROTATE_TO: Flag =
    Flag { letter: 't', value: "", default: "", about: "walk through 64 MB of destination" };
const ALIGN: Flag = Flag { letter: 'a', value: "BYTES", default: "0", about: "offset from a page's begin" };
const UNCACHED: Flag = Flag { letter: 'u', value: "", default: "", about: "walk through 64 MB of memory" };

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "memset",
        about: "zero a block of memory",
        flags: &[Flag { default: "8k", ..SIZE }, ALIGN, UNCACHED],
        setup: memset,
    },
    Case {
        name: "memcpy",
        about: "copy a block of memory",
        flags: &[SIZE, ALIGN, ROTATE_FROM, ROTATE_TO],
        setup: |o| {
            copy(
                o,
                linked!(libc::memcpy: fn(to: *mut libc::c_void, from: *const libc::c_void, n: usize) -> *mut libc::c_void),
            )
        },
    },
    Case {
        name: "memmove",
        about: "copy a block of memory that might overlap",
        flags: &[SIZE, ALIGN, ROTATE_FROM, ROTATE_TO],
        setup: |o| {
            copy(
                o,
                linked!(libc::memmove: fn(to: *mut libc::c_void, from: *const libc::c_void, n: usize) -> *mut libc::c_void),
            )
        },
    },
    Case {
        name: "memrand",
        about: "follow a chain of pointers backwards through memory, 1 KB a step",
        flags: &[Flag { default: "1m", ..SIZE }],
        setup: memrand,
    },
    Case { name: "strcpy", about: "copy a string", flags: &[STRING, UNALIGNED], setup: strcpy },
    Case {
        name: "strlen",
        about: "find the length of a string",
        flags: &[STRING, UNALIGNED],
        setup: |o| {
            string(o, |s| {
                let f = linked!(libc::strlen: fn(s: *const c_char) -> usize);
                let mut sum = 0;
                // SAFETY: a string that ends in a zero.
                each(move || sum = black_box(sum) + unsafe { f(s.start()) })
            })
        },
    },
    Case {
        name: "strchr",
        about: "look for a character that is not there",
        flags: &[STRING, UNALIGNED],
        setup: |o| {
            string(o, |s| {
                let f = linked!(libc::strchr: fn(s: *const c_char, c: i32) -> *mut c_char);
                // SAFETY: a string that ends in a zero.
                each(move || unsafe {
                    f(s.start(), i32::from(b'X'));
                })
            })
        },
    },
    Case {
        name: "strcmp",
        about: "compare two equal strings",
        flags: &[STRING, UNALIGNED],
        setup: |o| compare(o, linked!(libc::strcmp: fn(a: *const c_char, b: *const c_char) -> i32)),
    },
    Case {
        name: "strcasecmp",
        about: "compare two equal strings whatever their case",
        flags: &[STRING, UNALIGNED],
        setup: |o| compare(o, linked!(libc::strcasecmp: fn(a: *const c_char, b: *const c_char) -> i32)),
    },
    Case {
        name: "strtol",
        about: "read a number of 1 to 10 digits",
        flags: &[],
        setup: |_| {
            Ok(Box::new(Alone(|_: Worker| {
                const DIGITS: &std::ffi::CStr = c"1234567890";
                let f = linked!(libc::strtol: fn(s: *const c_char, end: *mut *mut c_char, base: i32) -> libc::c_long);
                let mut skip = 0;
                Ok(each(move || {
                    skip = if skip == 0 { 9 } else { skip - 1 };
                    // SAFETY: within a string that ends in a zero; no end pointer is wanted.
                    unsafe { f(DIGITS.as_ptr().add(skip), std::ptr::null_mut(), 10) };
                }))
            })))
        },
    },
];

const BIG: usize = 64 << 20;

/// Memory from a page's begin on.
struct Pages {
    bytes: Vec<u8>,
    skip: usize,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Result<Pages, Failure> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len + 4096).map_err(|e| Failure::Failed(format!("{len} bytes: {e}")))?;
        bytes.resize(len + 4096, 0);
        let skip = bytes.as_ptr().align_offset(4096);
        Ok(Pages { bytes, skip, len })
    }

    fn at(&mut self, offset: usize) -> *mut u8 {
        self.bytes[self.skip..self.skip + self.len][offset..].as_mut_ptr()
    }
}

fn memset(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let (size, align) = (o.size('s')?, o.size('a')? % 4097);
    let walk = o.has('u');
    Ok(Box::new(Alone(move |_: Worker| {
        let mut pages = Pages::new(if walk { BIG.max(size + align) } else { size + align })?;
        let f = linked!(libc::memset: fn(at: *mut libc::c_void, byte: i32, n: usize) -> *mut libc::c_void);
        let last = pages.len - size;
        let mut at = align;
        Ok(each(move || {
            // SAFETY: `at` leaves room for `size` bytes.
            unsafe { f(pages.at(at).cast(), 0, size) };
            if walk {
                at = (at + size).next_multiple_of(4096) + align;
                if at > last {
                    at = align;
                }
            }
        }))
    })))
}

type Copy = unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;

fn copy(o: &Options, f: Copy) -> Result<Box<dyn Bench>, Failure> {
    let (size, align) = (o.size('s')?, o.size('a')?);
    let (from, to) = (o.has('f'), o.has('t'));
    Ok(Box::new(Alone(move |_: Worker| {
        let mut source = Pages::new(align + if from { BIG.max(size) } else { size })?;
        let mut target = Pages::new(if to { BIG.max(size) } else { size })?;
        // Short blocks are not prefetched by their neighbour's copy.
        let step = size.max(1024);
        let (mut a, mut b) = (align, 0);
        Ok(each(move || {
            // SAFETY: both offsets leave room for `size` bytes.
            unsafe { f(target.at(b).cast(), source.at(a).cast(), size) };
            if from {
                a = if a + step + size > source.len { align } else { a + step };
            }
            if to {
                b = if b + step + size > target.len { 0 } else { b + step };
            }
        }))
    })))
}

struct Chain(Vec<usize>);

impl Batch for Chain {
    fn run(&mut self, n: u64) -> u64 {
        let mut at = 0;
        for _ in 0..n {
            at = self.0[at];
        }
        black_box(at);
        0
    }
}

fn memrand(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let words = o.size('s')? / size_of::<usize>();
    if words < 129 {
        return Err(Failure::Usage("-s: give more than 1 KB, the length of a step".into()));
    }
    Ok(Box::new(Alone(move |_: Worker| {
        Ok(Box::new(Chain((0..words).map(|i| (i + words - 128) % words).collect())) as Box<dyn Batch>)
    })))
}

/// A string of libMicro's kind, aligned or not.
struct Text {
    bytes: Vec<u8>,
    skip: usize,
}

impl Text {
    fn new(len: usize, unaligned: bool) -> Text {
        let skip = usize::from(unaligned);
        let words = b"The quick brown fox jumps over the lazy dog.".iter().copied().cycle();
        let bytes = std::iter::repeat_n(0, skip).chain(words.take(len)).chain([0]).collect();
        Text { bytes, skip }
    }

    fn start(&self) -> *const c_char {
        self.bytes[self.skip..].as_ptr().cast()
    }
}

fn string(o: &Options, run: fn(Text) -> Box<dyn Batch>) -> Result<Box<dyn Bench>, Failure> {
    let (len, unaligned) = (o.size('s')?, o.has('n'));
    Ok(Box::new(Alone(move |_: Worker| Ok(run(Text::new(len, unaligned))))))
}

fn strcpy(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let (len, unaligned) = (o.size('s')?, o.has('n'));
    Ok(Box::new(Alone(move |_: Worker| {
        let (from, mut to) = (Text::new(len, unaligned), vec![0u8; len + 1]);
        let f = linked!(libc::strcpy: fn(to: *mut c_char, from: *const c_char) -> *mut c_char);
        // SAFETY: `to` has room for the string and its zero.
        Ok(each(move || unsafe {
            f(to.as_mut_ptr().cast(), from.start());
        }))
    })))
}

fn compare(
    o: &Options,
    f: unsafe extern "C" fn(*const c_char, *const c_char) -> i32,
) -> Result<Box<dyn Bench>, Failure> {
    let (len, unaligned) = (o.size('s')?, o.has('n'));
    Ok(Box::new(Alone(move |_: Worker| {
        let (a, b) = (Text::new(len, false), Text::new(len, unaligned));
        let mut sum = 0;
        // SAFETY: two strings that end in zeroes.
        Ok(each(move || sum = black_box(sum) + unsafe { f(a.start(), b.start()) }))
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_as_long_as_asked() {
        for (len, unaligned) in [(0, false), (1, true), (100, true), (1000, false)] {
            let text = Text::new(len, unaligned);
            // SAFETY: ends in a zero.
            assert_eq!(unsafe { libc::strlen(text.start()) }, len);
            assert_eq!(text.start() as usize % 2, usize::from(unaligned));
        }
    }

    #[test]
    fn a_chain_comes_back() {
        let words = 128 * 5;
        let chain: Vec<usize> = (0..words).map(|i| (i + words - 128) % words).collect();
        let mut at = 0;
        for _ in 0..5 {
            at = chain[at];
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn pages_begin_at_a_page() {
        let mut pages = Pages::new(10).unwrap();
        assert_eq!(pages.at(0) as usize % 4096, 0);
        assert!(Pages::new(usize::MAX / 2).is_err());
    }
}
