//! Reads that depend on each other: what memory costs where nothing can be fetched ahead.

/// Follows addresses from one to the next, `reads` times, a multiple of 8; the address it ends at. Written in assembler
/// so that nothing but the reads is between them: in a build for debugging, `read_volatile` puts the address into
/// the stack and takes it from there, which costs more than what is to be measured.
///
/// # Safety
/// Each address that is read holds another that can be read.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub unsafe fn follow(first: u64, reads: u64) -> u64 {
    let mut at = first;
    // SAFETY: the caller's; it only reads.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "2:",
            "mov {at}, [{at}]", "mov {at}, [{at}]", "mov {at}, [{at}]", "mov {at}, [{at}]",
            "mov {at}, [{at}]", "mov {at}, [{at}]", "mov {at}, [{at}]", "mov {at}, [{at}]",
            "sub {left}, 8",
            "jnz 2b",
            at = inout(reg) at,
            left = inout(reg) reads => _,
            options(nostack, readonly),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "2:",
            "ldr {at}, [{at}]", "ldr {at}, [{at}]", "ldr {at}, [{at}]", "ldr {at}, [{at}]",
            "ldr {at}, [{at}]", "ldr {at}, [{at}]", "ldr {at}, [{at}]", "ldr {at}, [{at}]",
            "subs {left}, {left}, #8",
            "b.ne 2b",
            at = inout(reg) at,
            left = inout(reg) reads => _,
            options(nostack, readonly),
        );
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_round() {
        let mut round = [0u64; 3];
        let at = |i: usize, all: &[u64; 3]| std::ptr::from_ref(&all[i]) as u64;
        for i in 0..3 {
            round[i] = at((i + 1) % 3, &round);
        }
        // SAFETY: each word holds the address of another.
        assert_eq!(unsafe { follow(at(0, &round), 8) }, at(2, &round));
    }
}
