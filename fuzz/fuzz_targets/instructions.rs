//! Code of programs of any processor that is decoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_instructions::{Code, Machine, Registers, Waited, entry, exits, first_return, registers, stalls};

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    let machine = if kind & 1 == 0 { Machine::X86_64 } else { Machine::Aarch64 };
    let registers = [
        Registers::X86_64([0x1234_5678_9abc_def0; registers::x86_64::COUNT]),
        Registers::Aarch64([u64::MAX; registers::aarch64::COUNT]),
    ];
    for code in [Code::decode(machine, bytes), Code::resynchronized(machine, bytes)] {
        let n = code.instructions().len();
        assert!(n <= bytes.len());
        for (i, instruction) in code.instructions().iter().enumerate() {
            assert!((instruction.block as usize) < code.blocks());
            assert_eq!(code.position(instruction.at), Some(i));
            if let Some(Waited::For(i) | Waited::Perhaps(i)) = code.waited(instruction.at) {
                assert!(i < n);
            }
            for registers in &registers {
                let _ = instruction.operand.and_then(|o| o.address(registers, u64::MAX));
                let _ = instruction.operand.and_then(|o| o.ahead().address(registers, u64::MAX));
            }
        }
        assert!(stalls(&code, &vec![3; n]).iter().all(|s| (0.0..=1.0).contains(s)));
    }
    if let Some(found) = exits(machine, bytes, 0x40_0000) {
        assert!(found.returns.iter().all(|r| (*r as usize) < bytes.len()));
    }
    assert!(first_return(machine, bytes).is_none_or(|r| (r as usize) < bytes.len()));
    assert!(entry(machine, bytes) as usize <= bytes.len());
});
