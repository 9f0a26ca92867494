//! Block copy: methods beside each other, by size and alignment.

use crate::case::{Batch, Bench, Case, Failure, Worker};
use crate::memory::{Area, PageSize, room};
use crate::options::{Flag, Options};
use crate::place::Memory;

const FLAGS: &[Flag] = &[
    Flag { letter: 's', value: "SIZE", default: "8k", about: "bytes" },
    Flag { letter: 'a', value: "N", default: "0", about: "bytes by which the source is off a 64-byte line" },
    Flag { letter: 'd', value: "N", default: "0", about: "bytes by which the destination is" },
];

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "copy_memcpy",
        about: "copy a block with libc's memcpy",
        flags: FLAGS,
        setup: |o| copies(o, Some(memcpy)),
    },
    Case {
        name: "copy_movsb",
        about: "copy a block with rep movsb (x86)",
        flags: FLAGS,
        setup: |o| copies(o, native::MOVSB),
    },
    Case {
        name: "copy_stream",
        about: "copy a block with AVX2 loads and stores that pass the caches by (x86)",
        flags: FLAGS,
        setup: |o| copies(o, native::streaming()),
    },
    Case {
        name: "copy_loop",
        about: "copy a block in a plain loop of 8-byte words",
        flags: FLAGS,
        setup: |o| copies(o, Some(words)),
    },
];

/// Copies this many bytes from the second to the first.
type Copy = unsafe fn(*mut u8, *const u8, usize);

unsafe fn memcpy(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::memcpy(to.cast(), from.cast(), n) };
}

unsafe fn words(to: *mut u8, from: *const u8, n: usize) {
    let mut i = 0;
    // SAFETY: within the n bytes of both. Volatile, since the compiler would call memcpy.
    unsafe {
        while i + 8 <= n {
            let word = from.add(i).cast::<u64>().read_unaligned();
            to.add(i).cast::<u64>().write_unaligned(std::hint::black_box(word));
            i += 8;
        }
        while i < n {
            to.add(i).write(std::hint::black_box(from.add(i).read()));
            i += 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod native {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    use super::Copy;

    pub const MOVSB: Option<Copy> = Some(movsb);

    unsafe fn movsb(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: copies n bytes, by the caller's promise; the direction flag is clear, as the ABI has it.
        unsafe {
            std::arch::asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags));
        }
    }

    pub fn streaming() -> Option<Copy> {
        is_x86_feature_detected!("avx2").then_some(stream as Copy)
    }

    #[target_feature(enable = "avx2")]
    unsafe fn stream_avx2(to: *mut u8, from: *const u8, n: usize) {
        // Stores that pass the caches by are to whole aligned 32 bytes: head and tail go the usual way.
        let head = to.align_offset(32).min(n);
        // SAFETY: all within n bytes of both, by the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            let mut i = head;
            while i + 128 <= n {
                for part in 0..4 {
                    let word = _mm256_loadu_si256(from.add(i + 32 * part).cast::<__m256i>());
                    _mm256_stream_si256(to.add(i + 32 * part).cast::<__m256i>(), word);
                }
                i += 128;
            }
            std::ptr::copy_nonoverlapping(from.add(i), to.add(i), n - i);
            _mm_sfence();
        }
    }

    unsafe fn stream(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: `streaming` has seen that the CPU has AVX2; the rest is the caller's promise.
        unsafe { stream_avx2(to, from, n) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod native {
    use super::Copy;
    pub const MOVSB: Option<Copy> = None;
    pub fn streaming() -> Option<Copy> {
        None
    }
}

struct Copies {
    copy: Copy,
    size: usize,
    from: usize,
    to: usize,
}

fn copies(o: &Options, copy: Option<Copy>) -> Result<Box<dyn Bench>, Failure> {
    let copy = copy.ok_or_else(|| Failure::Lacks("this CPU has no such instruction".into()))?;
    let size = o.number('s')?.max(1);
    room(size.saturating_mul(2), Memory::Default, &ncpu_machine::Topology::default(), "/".as_ref())?;
    let (from, to) = (o.number('a')? as usize % 4096, o.number('d')? as usize % 4096);
    Ok(Box::new(Copies { copy: std::hint::black_box(copy), size: size as usize, from, to }))
}

impl Bench for Copies {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        let area = || {
            let area = Area::map(self.size + 4096, PageSize::Default)?;
            area.fill(1);
            Ok::<_, Failure>(area)
        };
        let (source, target) = (area()?, area()?);
        Ok(crate::case::each(move || {
            // SAFETY: both areas are longer than size by what the offsets may be, and apart.
            unsafe {
                (self.copy)(target.as_ptr().add(self.to), source.as_ptr().add(self.from), self.size);
            }
            std::hint::black_box(target.as_ptr());
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_copies_every_byte_and_no_other() {
        let methods = [Some(memcpy as Copy), native::MOVSB, native::streaming(), Some(words)];
        let from: Vec<u8> = (0..2048u32).map(|i| (i % 251) as u8 + 1).collect();
        for copy in methods.into_iter().flatten() {
            for (a, d, n) in [(0, 0, 1024), (1, 0, 1023), (0, 7, 257), (3, 5, 1), (9, 9, 0), (63, 1, 129)] {
                let mut to = vec![0u8; 2048];
                // SAFETY: within both vectors.
                unsafe { copy(to.as_mut_ptr().add(d), from.as_ptr().add(a), n) };
                assert_eq!(to[d..d + n], from[a..a + n]);
                assert!(to[..d].iter().chain(&to[d + n..]).all(|&b| b == 0));
            }
        }
    }
}
