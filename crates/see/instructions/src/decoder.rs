//! The decoder of each machine.

use crate::decoded::Decoded;
use crate::exits::Exits;
use crate::{Machine, aarch64, x86_64};

/// The instructions of code; `whole`: it begins with one.
pub(crate) fn decode(machine: Machine, bytes: &[u8], whole: bool) -> Vec<Decoded> {
    match machine {
        Machine::X86_64 if whole => x86_64::decode(bytes),
        Machine::X86_64 => x86_64::resynchronized(bytes),
        // All instructions have four bytes, and lie at multiples of four, as pages of code do.
        Machine::Aarch64 => aarch64::decode(bytes),
    }
}

/// The exits of the function with this code at `address`; `None` if a part of the code is not an instruction.
pub fn exits(machine: Machine, code: &[u8], address: u64) -> Option<Exits> {
    let mut exits = Exits::default();
    match machine {
        Machine::X86_64 => x86_64::exits(code, &mut exits, address),
        Machine::Aarch64 => aarch64::exits(code, &mut exits, address),
    }?;
    Some(exits)
}

/// Bytes from the beginning of a function to the instruction at which a probe sees it begin: behind a landing pad (`endbr64`) where the
/// kernel emulates what follows it, which saves a single step. Nothing has changed on the stack by then.
pub fn entry(machine: Machine, code: &[u8]) -> u32 {
    match machine {
        Machine::X86_64 => x86_64::entry(code),
        // The kernel executes a landing pad (`bti`) as a step, like most instructions behind it.
        Machine::Aarch64 => 0,
    }
}

/// Whether the kernel's breakpoint at the instruction that this code begins with leaves it doing what it does.
///
/// The kernel executes or emulates the instruction elsewhere, and tells by its opcode's byte which of the two: of an instruction with
/// a VEX, EVEX or XOP prefix too, whose bytes mean another one. It takes `vpbroadcastb %esi,%zmm16`, with which glibc's `memset` begins on
/// processors with AVX-512, for a conditional jump that is not taken, and every process on the machine that has the library has
/// its memory set to something else (Linux 6.18, arch/x86/kernel/uprobes.c, `branch_setup_xol_ops` and `push_setup_xol_ops`).
pub fn may_have_a_probe(machine: Machine, code: &[u8]) -> bool {
    match machine {
        Machine::X86_64 => x86_64::may_have_a_probe(code),
        Machine::Aarch64 => true,
    }
}

/// Offset of the first instruction that returns, in code that begins with an instruction.
pub fn first_return(machine: Machine, code: &[u8]) -> Option<u32> {
    match machine {
        Machine::X86_64 => x86_64::first_return(code),
        Machine::Aarch64 => aarch64::first_return(code),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Machine::{Aarch64, X86_64};

    #[test]
    fn returns_and_jumps_to_other_functions_are_found() {
        // test %edi,%edi; je +1 (to the second ret); ret; repz ret; jmp to 0x2000; jmp *%rax
        let mut code = vec![0x85, 0xff, 0x74, 0x01, 0xc3, 0xf3, 0xc3, 0xe9];
        code.extend((0x2000i32 - 0x1000 - 12).to_le_bytes());
        code.extend([0xff, 0xe0]);
        let found = exits(X86_64, &code, 0x1000).expect("instructions");
        let expected =
            Exits { returns: vec![4, 5], jumps: vec![0x2000], ends: vec![(7, Some(0x2000))], indirect: true };
        assert_eq!(found, expected);
        // je to 0x2000, which it may not take; jmp *0x10(%rip)
        let mut code = vec![0x0f, 0x84];
        code.extend((0x2000i32 - 0x1000 - 6).to_le_bytes());
        code.extend([0xff, 0x25, 0x10, 0, 0, 0]);
        let found = exits(X86_64, &code, 0x1000).expect("instructions");
        assert_eq!(found, Exits { jumps: vec![0x2000], ends: vec![(6, None)], ..Exits::default() });
        // Bytes of a constant look like returns: mov $0xc3c3c3c3,%eax; ret
        let found = exits(X86_64, &[0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3], 0).expect("instructions");
        assert_eq!(found.returns, [5]);
        assert_eq!(exits(X86_64, &[0x06, 0xc3], 0), None, "no instruction of 64 bits");
        assert_eq!(exits(X86_64, &[0xe9, 0, 0], 0x1000), None, "cut");
    }

    #[test]
    fn a_function_begins_behind_its_landing_pad() {
        assert_eq!(entry(X86_64, &[0xf3, 0x0f, 0x1e, 0xfa, 0x55]), 4);
        assert_eq!(entry(X86_64, &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x57]), 4);
        assert_eq!(
            entry(X86_64, &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83]),
            0,
            "the next takes a single step, too"
        );
        assert_eq!(entry(X86_64, &[0x55]), 0);
        assert_eq!(first_return(X86_64, &[0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3]), Some(5));
        assert_eq!(first_return(X86_64, &[0x90, 0x06, 0xc3]), None);
    }

    #[test]
    fn no_probe_is_put_where_the_kernel_takes_an_instruction_for_another() {
        // push %rbp; endbr64; nopl; sub $8,%rsp; movups %xmm0,(%rdi); ret; jmp *(%rip)
        for code in [
            &[0x55][..],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x48, 0x83, 0xec, 0x08],
            &[0x0f, 0x11, 0x07],
            &[0xc3],
            &[0xff, 0x25, 0, 0, 0, 0],
        ] {
            assert!(may_have_a_probe(X86_64, code), "{code:x?}");
        }
        // vpbroadcastb %esi,%zmm16; vxorps %xmm0,%xmm0,%xmm0; vmovd %esi,%xmm0; vpbroadcastb %xmm0,%ymm0; and what is none
        for code in [
            &[0x62, 0xe2, 0x7d, 0x48, 0x7a, 0xc6][..],
            &[0xc5, 0xf8, 0x57, 0xc0],
            &[0xc5, 0xf9, 0x6e, 0xc6],
            &[0xc4, 0xe2, 0x7d, 0x78, 0xc0],
            &[0x06],
            &[0x48],
            &[],
        ] {
            assert!(!may_have_a_probe(X86_64, code), "{code:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_code_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200), at: u64) {
            for machine in [X86_64, Aarch64] {
                if let Some(found) = exits(machine, &bytes, at) {
                    prop_assert!(found.returns.iter().all(|r| (*r as usize) < bytes.len()));
                }
                prop_assert!(first_return(machine, &bytes).is_none_or(|r| (r as usize) < bytes.len()));
                prop_assert!(entry(machine, &bytes) as usize <= bytes.len());
            }
        }
    }
}
