//! Loops that do nothing but look at memory until it changes.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use crate::operand::writes;

/// No loop that waits has more instructions.
const MOST: usize = 16;

/// Whether a loop, from its first instruction to the branch that comes back, waits for memory to change: it reads the same words each
/// time and compares them, changes nothing but a counter, and calls nobody. An exchange of one value with the same word counts as such a
/// read: it is how spinning locks are tried.
pub(crate) fn is_spin(body: &[Instruction], info: &mut InstructionInfoFactory) -> bool {
    if body.len() > MOST {
        return false;
    }
    let mut addresses: Vec<Register> = Vec::new();
    let mut written: Vec<Register> = Vec::new();
    let mut loaded: Vec<Register> = Vec::new();
    let (mut compared, mut reads) = (false, false);
    for instruction in body {
        let memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
        let info = info.info(instruction);
        for used in info.used_registers() {
            let register = used.register().full_register();
            if writes(used.access()) && register != Register::RIP {
                written.push(register);
            }
        }
        if memory {
            if instruction.memory_base() == Register::RSP {
                return false;
            }
            let parts = [instruction.memory_base(), instruction.memory_index()];
            addresses.extend(parts.iter().map(|r| r.full_register()).filter(|r| *r != Register::None));
        }
        let destination = instruction.op0_register().full_register();
        match instruction.mnemonic() {
            Mnemonic::Pause | Mnemonic::Nop | Mnemonic::Jmp => {}
            _ if instruction.is_jcc_short_or_near() => {}
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
                if instruction.op0_kind() != OpKind::Register {
                    return false;
                }
                if memory {
                    reads = true;
                    loaded.push(destination);
                } else if instruction.op1_kind() == OpKind::Register
                    && loaded.contains(&instruction.op1_register().full_register())
                {
                    loaded.push(destination);
                }
            }
            Mnemonic::Cmp | Mnemonic::Test => {
                let of = |i| {
                    let register = instruction.op_register(i).full_register();
                    instruction.op_kind(i) == OpKind::Register && loaded.contains(&register)
                };
                reads |= memory;
                compared |= memory || of(0) || of(1);
            }
            Mnemonic::Xchg if memory => {
                reads = true;
                loaded.extend([0, 1].map(|i| instruction.op_register(i).full_register()));
            }
            // A value for an exchange, or a counter of turns.
            Mnemonic::Xor if !memory && instruction.op0_register() == instruction.op1_register() => {}
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec
                if !memory && (instruction.op_count() == 1 || instruction.op1_kind() != OpKind::Register) => {
            }
            _ => return false,
        }
    }
    reads && compared && !addresses.iter().any(|register| written.contains(register))
}
