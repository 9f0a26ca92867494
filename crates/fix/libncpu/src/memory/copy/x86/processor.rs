//! Properties of the processor, by CPUID.

use crate::memory::copy::tuning::Rep;

/// Bits of CPUID leaf 7: enhanced and fast short `rep movsb`.
fn strings() -> (bool, bool) {
    // A safe function since Rust 1.94.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has CPUID, and the leaf is at most the highest.
    unsafe {
        if std::arch::x86_64::__cpuid(0).eax < 7 {
            return (false, false);
        }
        let leaf = std::arch::x86_64::__cpuid_count(7, 0);
        (leaf.ebx >> 9 & 1 == 1, leaf.edx >> 4 & 1 == 1)
    }
}

/// Whether the processor is from this vendor.
fn made_by(name: &[u8; 12]) -> bool {
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has CPUID leaf 0.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0) };
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() == name
}

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Whether vectors of 64 bytes are at least as fast as those of 32. Intel's first processors with AVX-512,
/// which lack fast short `rep movsb`, lower their clock for them.
pub(super) fn prefers_avx512() -> bool {
    has_avx512() && (!made_by(b"GenuineIntel") || strings().1)
}

/// The processor's family.
fn family() -> u32 {
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has CPUID leaf 1.
    let leaf = unsafe { std::arch::x86_64::__cpuid(1) };
    (leaf.eax >> 8 & 15) + (leaf.eax >> 20 & 255)
}

/// The blocks for which `rep movsb` pays, on processors where that was measured. Other processors are
/// measured at run time.
pub(in crate::memory::copy) fn rep() -> Rep {
    match strings().0 {
        false => Rep::Never,
        true if made_by(b"GenuineIntel") => Rep::Intel,
        // An EPYC of family 26, `benches/primitives --group copy,zero`: copies of 64 KB 1.3 times vectors' speed, at the
        // worst alignments 1.4, zero of 4 MB 1.27 times; copies within the first cache, and zero within the second, are
        // slower.
        true if made_by(b"AuthenticAMD") && family() == 26 => Rep::BeyondCaches { copy: true, zero: true },
        // An EPYC of family 25 with AVX-512, the same command: `rep movsb` to a target that lies just after
        // the source modulo 4096 takes 15 times the time. Other copies, and zero up to the size of the
        // last-level cache, take the time of vectors.
        true if made_by(b"AuthenticAMD") && family() == 25 && has_avx512() => {
            Rep::BeyondCaches { copy: false, zero: false }
        }
        true => Rep::Unknown,
    }
}

/// Sizes in bytes of the data caches by level, from CPUID; 0 if unknown.
pub(in crate::memory::copy) fn caches() -> [usize; 3] {
    let mut sizes = [0; 3];
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has CPUID, and leaves are at most the highest.
    unsafe {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        // AMD's leaf has the form of Intel's.
        let leaf = if __cpuid(0x8000_0000).eax >= 0x8000_001d && made_by(b"AuthenticAMD") {
            0x8000_001d
        } else if __cpuid(0).eax >= 4 {
            4
        } else {
            return sizes;
        };
        for index in 0..16 {
            let cache = __cpuid_count(leaf, index);
            let (kind, level) = (cache.eax & 31, (cache.eax >> 5 & 7) as usize);
            if kind == 0 {
                break;
            }
            // Data or unified caches. A fourth level belongs to the memory, not to the processor.
            if kind != 2 && (1..=3).contains(&level) {
                let [ways, parts, line] =
                    [cache.ebx >> 22, cache.ebx >> 12 & 0x3ff, cache.ebx & 0xfff].map(|n| n as usize + 1);
                sizes[level - 1] = ways * parts * line * (cache.ecx as usize + 1);
            }
        }
    }
    sizes
}
