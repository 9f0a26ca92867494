//! Instructions as a disassembler prints them.

use crate::decoded::Text;
use crate::{Machine, aarch64, x86_64};

/// The instruction that `code` begins with, at `address`; `None` where it is none.
pub fn text(machine: Machine, code: &[u8], address: u64) -> Option<Text> {
    match machine {
        Machine::X86_64 => x86_64::text(code, address),
        Machine::Aarch64 => aarch64::text(code, address),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Machine::{Aarch64, X86_64};

    fn told(machine: Machine, code: &[u8], address: u64) -> (String, Option<u64>) {
        let told = text(machine, code, address).expect("an instruction");
        (told.text, told.target)
    }

    /// As `objdump -d` of binutils 2.40 prints the same bytes.
    #[test]
    fn instructions_of_x86_are_as_objdump_prints_them() {
        let text = |code: &[u8]| told(X86_64, code, 0x40_1000);
        assert_eq!(text(&[0x48, 0x8b, 0x00]), ("mov (%rax),%rax".into(), None));
        assert_eq!(text(&[0xf0, 0x48, 0x83, 0x07, 0x01]), ("lock addq $0x1,(%rdi)".into(), None));
        assert_eq!(text(&[0x75, 0xfe]), ("jne 0x401000".into(), Some(0x40_1000)));
        assert_eq!(text(&[0xe8, 0xfb, 0x0f, 0, 0]), ("call 0x402000".into(), Some(0x40_2000)));
        let data = (0x40_2000_u32 - 0x40_1007).to_le_bytes();
        let load = [&[0x48, 0x8b, 0x05][..], &data].concat();
        assert_eq!(text(&load), ("mov 0xff9(%rip),%rax".into(), Some(0x40_2000)));
        assert_eq!(super::text(X86_64, &[0x06], 0), None, "no instruction of 64 bits");
        assert_eq!(super::text(X86_64, &[0x48, 0x8b], 0), None, "cut");
    }

    #[test]
    fn instructions_of_aarch64_are_as_objdump_prints_them() {
        let text = |word: u32| told(Aarch64, &word.to_le_bytes(), 0x40_1000);
        assert_eq!(text(0xf940_0000), ("ldr x0, [x0]".into(), None));
        assert_eq!(text(0xb8e0_0041), ("ldaddal w0, w1, [x2]".into(), None));
        assert_eq!(text(0x54ff_ffe1), ("b.ne 0x400ffc".into(), Some(0x40_0ffc)));
        assert_eq!(text(0x9400_0400), ("bl 0x402000".into(), Some(0x40_2000)));
        assert_eq!(super::text(Aarch64, &[0, 0, 0, 0], 0), None, "udf");
        assert_eq!(super::text(Aarch64, &[0x40, 0x00], 0), None, "cut");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_text_or_none(bytes: [u8; 16], at: u64) {
            for machine in [X86_64, Aarch64] {
                if let Some(Text { text, .. }) = text(machine, &bytes, at) {
                    prop_assert!(!text.is_empty() && text.len() < 200);
                }
            }
        }
    }
}
