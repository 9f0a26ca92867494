//! Where control leaves a function.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

/// Where a function ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// Offsets of its instructions that return.
    pub returns: Vec<u32>,
    /// Addresses outside of it that it jumps to, each once: the code there returns to the function's caller.
    pub jumps: Vec<u64>,
    /// Offsets of its unconditional jumps to such an address, with the address; nothing for one that the linker has yet to fill in
    /// (`jmp *function@GOT(%rip)`).
    pub ends: Vec<(u32, Option<u64>)>,
    /// It jumps where a register or memory says: to a part of itself (`switch`), or to another function.
    pub indirect: bool,
}

/// The exits of the function with this code at `address`; `None` if a part of the code is not an instruction.
pub fn exits(code: &[u8], address: u64) -> Option<Exits> {
    let mut exits = Exits::default();
    let inside = address..address.checked_add(code.len() as u64)?;
    // A jump at an offset, which ends the function if it leads outside of it and is always taken.
    let jump = |exits: &mut Exits, at: u32, target: u64, always: bool| {
        if inside.contains(&target) {
            return;
        }
        if !exits.jumps.contains(&target) {
            exits.jumps.push(target);
        }
        if always {
            exits.ends.push((at, Some(target)));
        }
    };
    if cfg!(target_arch = "aarch64") {
        for (i, word) in code.chunks_exact(4).enumerate() {
            let word = u32::from_le_bytes(word.try_into().ok()?);
            // Signed distances in words: b has 26 bits, b.cond, cbz and cbnz have 19, tbz and tbnz 14.
            let distance = |bits: u32, low: u32| {
                let shifted = (word >> low) << (32 - bits);
                i64::from(shifted as i32 >> (32 - bits)) * 4
            };
            let at = 4 * i as u32;
            let from = address + u64::from(at);
            if word & 0xffff_fc1f == 0xd65f_0000 || word & 0xffff_fbff == 0xd65f_0bff {
                exits.returns.push(at);
            } else if word >> 26 == 0b000101 {
                jump(&mut exits, at, from.wrapping_add_signed(distance(26, 0)), true);
            } else if word >> 24 == 0x54 || (word >> 25) & 0x3f == 0b011010 {
                jump(&mut exits, at, from.wrapping_add_signed(distance(19, 5)), false);
            } else if (word >> 25) & 0x3f == 0b011011 {
                jump(&mut exits, at, from.wrapping_add_signed(distance(14, 5)), false);
            } else if word & 0xfedf_fc1f == 0xd61f_0000 {
                exits.indirect = true;
            }
        }
        return code.len().is_multiple_of(4).then_some(exits);
    }
    for instruction in &mut Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            return None;
        }
        let at = (instruction.ip() - address) as u32;
        let flow = instruction.flow_control();
        match flow {
            FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => {
                exits.returns.push(at);
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let always = flow == FlowControl::UnconditionalBranch;
                jump(&mut exits, at, instruction.near_branch_target(), always);
            }
            FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => {
                exits.ends.push((at, None));
            }
            FlowControl::IndirectBranch => exits.indirect = true,
            _ => {}
        }
    }
    Some(exits)
}

/// Bytes from the beginning of a function to the instruction at which a probe sees it begin: behind a landing pad (`endbr64`) where the
/// kernel emulates what follows it, which saves a single step. Nothing has changed on the stack by then.
pub fn entry(code: &[u8]) -> u32 {
    const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    // Pushes of registers.
    match code.strip_prefix(&LANDING_PAD) {
        Some([0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..]) if cfg!(target_arch = "x86_64") => 4,
        _ => 0,
    }
}

/// Offset of the first instruction that returns, in code that begins with an instruction.
pub fn first_return(code: &[u8]) -> Option<u32> {
    if cfg!(target_arch = "aarch64") {
        let is = |word: &[u8]| word == 0xd65f_03c0u32.to_le_bytes();
        return code.chunks_exact(4).position(is).map(|i| 4 * i as u32);
    }
    let mut all = Decoder::new(64, code, DecoderOptions::NONE).into_iter();
    let found = all.find(|i| i.is_invalid() || i.mnemonic() == Mnemonic::Ret)?;
    (!found.is_invalid()).then_some(found.ip() as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn returns_and_jumps_to_other_functions_are_found() {
        // test %edi,%edi; je +1 (to the second ret); ret; repz ret; jmp to 0x2000; jmp *%rax
        let mut code = vec![0x85, 0xff, 0x74, 0x01, 0xc3, 0xf3, 0xc3, 0xe9];
        code.extend((0x2000i32 - 0x1000 - 12).to_le_bytes());
        code.extend([0xff, 0xe0]);
        let found = exits(&code, 0x1000).expect("instructions");
        let expected =
            Exits { returns: vec![4, 5], jumps: vec![0x2000], ends: vec![(7, Some(0x2000))], indirect: true };
        assert_eq!(found, expected);
        // je to 0x2000, which it may not take; jmp *0x10(%rip)
        let mut code = vec![0x0f, 0x84];
        code.extend((0x2000i32 - 0x1000 - 6).to_le_bytes());
        code.extend([0xff, 0x25, 0x10, 0, 0, 0]);
        let found = exits(&code, 0x1000).expect("instructions");
        assert_eq!(found, Exits { jumps: vec![0x2000], ends: vec![(6, None)], ..Exits::default() });
        // The immediate of a move is no return: mov $0xc3c3c3c3,%eax; ret
        let found = exits(&[0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3], 0).expect("instructions");
        assert_eq!(found.returns, [5]);
        assert_eq!(exits(&[0x06, 0xc3], 0), None, "no instruction of 64 bits");
        assert_eq!(exits(&[0xe9, 0, 0], 0x1000), None, "cut");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_function_begins_behind_its_landing_pad() {
        assert_eq!(entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55]), 4);
        assert_eq!(entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x57]), 4);
        assert_eq!(entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83]), 0, "the next takes a single step, too");
        assert_eq!(entry(&[0x55]), 0);
        assert_eq!(first_return(&[0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3]), Some(5));
        assert_eq!(first_return(&[0x90, 0x06, 0xc3]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_code_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200), at: u64) {
            if let Some(found) = exits(&bytes, at) {
                prop_assert!(found.returns.iter().all(|r| (*r as usize) < bytes.len()));
            }
        }
    }
}
