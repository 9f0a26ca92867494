//! Decodes x86-64.

use iced_x86::{
    Code as Iced, Decoder, DecoderOptions, EncodingKind, FlowControl, Formatter, GasFormatter, Instruction,
    InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use crate::Machine;
use crate::decoded::{Decoded, Flow, Kind, Look, Role, Text};
use crate::exits::Exits;
use crate::operand::{Extend, Operand, Stale, WriteBack};
use crate::registers::{Set, x86_64};

/// Offsets that decoding begins at where it is not known where an instruction begins.
const BEGINNINGS: usize = 8;

/// Code that begins with an instruction.
pub(crate) fn decode(bytes: &[u8]) -> Vec<Decoded> {
    described(&decoded(bytes, 0))
}

/// Code of which it is not known where an instruction begins: decoded from several bytes on, of which what all agree on is taken.
pub(crate) fn resynchronized(bytes: &[u8]) -> Vec<Decoded> {
    let all: Vec<Vec<Instruction>> = (0..BEGINNINGS).map(|from| decoded(bytes, from)).collect();
    let Some((first, others)) = all.split_first() else { return Vec::new() };
    let agree = |ip: u64| others.iter().all(|o| o.binary_search_by_key(&ip, Instruction::ip).is_ok());
    let begin = first.iter().position(|i| agree(i.ip())).unwrap_or(first.len());
    described(&first[begin..])
}

/// The instruction that `code` begins with, at `address`.
pub(crate) fn text(code: &[u8], address: u64) -> Option<Text> {
    let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return None;
    }
    let near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
    let target = if near {
        Some(instruction.near_branch64())
    } else {
        instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address())
    };
    let (mut formatter, mut text) = (GasFormatter::new(), String::new());
    let options = formatter.options_mut();
    options.set_rip_relative_addresses(true);
    options.set_branch_leading_zeros(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_uppercase_hex(false);
    formatter.format(&instruction, &mut text);
    Some(Text { text, target })
}

/// Decodes up to the end, as if code began at address 0.
fn decoded(bytes: &[u8], from: usize) -> Vec<Instruction> {
    let Some(rest) = bytes.get(from..) else { return Vec::new() };
    let mut decoder = Decoder::with_ip(64, rest, from as u64, DecoderOptions::NONE);
    let mut all = Vec::with_capacity(rest.len() / 4);
    let mut bad = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            // Data between functions, or the end of what was read.
            bad += 1;
            continue;
        }
        all.push(instruction);
    }
    // Mostly data.
    if bad > all.len() / 8 + 1 { Vec::new() } else { all }
}

fn described(instructions: &[Instruction]) -> Vec<Decoded> {
    let mut infos = InstructionInfoFactory::new();
    let describe = |instruction: &Instruction| {
        let info = infos.info(instruction);
        let operand = operand(instruction, info);
        let near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
        Decoded {
            at: instruction.ip() as u32,
            kind: kind(instruction, operand.as_ref(), info),
            flow: flow(instruction),
            target: near.then(|| instruction.near_branch64()),
            operand,
            written: written(info),
            compares: compares(instruction),
            look: look(instruction),
        }
    };
    instructions.iter().map(describe).collect()
}

/// The place of a register of 64 bits; `None` where its value is not among those of a sample.
fn place(register: Register) -> Option<u8> {
    let place = match register {
        Register::R15 => x86_64::R15,
        Register::R14 => x86_64::R14,
        Register::R13 => x86_64::R13,
        Register::R12 => x86_64::R12,
        Register::RBP => x86_64::RBP,
        Register::RBX => x86_64::RBX,
        Register::R11 => x86_64::R11,
        Register::R10 => x86_64::R10,
        Register::R9 => x86_64::R9,
        Register::R8 => x86_64::R8,
        Register::RAX => x86_64::RAX,
        Register::RCX => x86_64::RCX,
        Register::RDX => x86_64::RDX,
        Register::RSI => x86_64::RSI,
        Register::RDI => x86_64::RDI,
        Register::RIP => x86_64::RIP,
        Register::RSP => x86_64::RSP,
        _ => return None,
    };
    u8::try_from(place).ok()
}

/// The whole registers that these are parts of.
fn set(registers: impl IntoIterator<Item = Register>) -> Set {
    Set::of(registers.into_iter().filter_map(|register| place(register.full_register())))
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn written(info: &InstructionInfo) -> Set {
    let used = info.used_registers().iter();
    set(used.filter(|used| writes(used.access())).map(|used| used.register()).filter(|r| *r != Register::RIP))
}

fn compares(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Add | Mnemonic::Sub | Mnemonic::And
    ) && instruction.op_count() == 2
        && (instruction.op0_kind() != OpKind::Memory || instruction.op1_kind() == OpKind::Register)
}

fn in_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory)
}

/// Its part in a loop that may wait.
fn look(instruction: &Instruction) -> Look {
    let memory = in_memory(instruction);
    let parts = [instruction.memory_base(), instruction.memory_index()];
    let address = if memory { set(parts) } else { Set::NONE };
    let register = |i: u32| match instruction.op_kind(i) {
        OpKind::Register => set([instruction.op_register(i)]),
        _ => Set::NONE,
    };
    let role = match instruction.mnemonic() {
        _ if memory && instruction.memory_base() == Register::RSP => Role::Work,
        Mnemonic::Pause | Mnemonic::Nop | Mnemonic::Jmp => Role::Nothing,
        _ if instruction.is_jcc_short_or_near() => Role::Nothing,
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
            match instruction.op0_kind() == OpKind::Register {
                false => Role::Work,
                true if memory => Role::Load { to: register(0) },
                true => Role::Move { from: register(1) },
            }
        }
        Mnemonic::Cmp | Mnemonic::Test => Role::Compare { of: register(0).and(register(1)), reads: memory },
        Mnemonic::Xchg if memory => Role::Exchange { to: register(0).and(register(1)) },
        // A value for an exchange, or a counter of turns.
        Mnemonic::Xor if !memory && instruction.op0_register() == instruction.op1_register() => Role::Nothing,
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec
            if !memory && (instruction.op_count() == 1 || instruction.op1_kind() != OpKind::Register) =>
        {
            Role::Nothing
        }
        _ => Role::Work,
    };
    Look { role, address }
}

/// The operand that an instruction names; `None` where it has none, or one that registers do not lead to: gathers, segments,
/// the stack of `push` and `call`.
fn operand(instruction: &Instruction, info: &InstructionInfo) -> Option<Operand> {
    let is_access = |m: &&UsedMemory| m.access() != OpAccess::NoMemAccess && m.access() != OpAccess::None;
    let pushes = instruction.is_stack_instruction();
    let implicit = |m: &UsedMemory| pushes && m.base() == Register::RSP && m.index() == Register::None;
    let memory = info.used_memory().iter().filter(is_access).find(|m| !implicit(m))?;
    let segment = matches!(memory.segment(), Register::FS | Register::GS);
    let place = |register: Register| match register {
        Register::None => Some(None),
        other => place(other).map(Some),
    };
    // iced gives the displacement of an operand relative to the instruction pointer as an address.
    let (base, index) = (place(memory.base())?, place(memory.index())?);
    let size = memory.memory_size().size();
    if segment || size == 0 {
        return None;
    }
    let written = |register: Register| {
        let used = info.used_registers().iter();
        used.filter(|u| u.register().full_register() == register).any(|u| writes(u.access()))
    };
    let lost = |register: Register| register != Register::None && written(register);
    let to = instruction.op0_register();
    let loads_base = instruction.op_count() == 2
        && to == memory.base()
        && memory.index() == Register::None
        && instruction.mnemonic() == Mnemonic::Mov;
    // An index may have 32 bits, the upper ones of its register being cleared or its sign's.
    let loads_index = instruction.op_count() == 2
        && to.full_register() == memory.index()
        && to.size() >= 4
        && matches!(
            instruction.mnemonic(),
            Mnemonic::Mov | Mnemonic::Movsx | Mnemonic::Movsxd | Mnemonic::Movzx
        );
    let stale = match (lost(memory.base()), lost(memory.index())) {
        (false, false) => Stale::No,
        (true, false) if loads_base => Stale::Next,
        (false, true) if loads_index => Stale::NextIndex,
        _ => Stale::Lost,
    };
    let access = memory.access();
    Some(Operand {
        machine: Machine::X86_64,
        base,
        index,
        extend: Extend::No,
        scale: memory.scale().clamp(1, 8) as u8,
        displacement: memory.displacement(),
        relative: instruction.is_ip_rel_memory_operand(),
        write_back: WriteBack::No,
        size: size.min(u16::MAX.into()) as u16,
        writes: writes(access),
        reads: matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        ),
        written_back: false,
        on_stack: memory.base() == Register::RSP,
        stale,
    })
}

fn flow(instruction: &Instruction) -> Flow {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => Flow::Branch,
        FlowControl::Call | FlowControl::IndirectCall => Flow::Call,
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Exception => Flow::Away,
        _ => Flow::Next,
    }
}

fn kind(instruction: &Instruction, operand: Option<&Operand>, info: &InstructionInfo) -> Kind {
    let memory = in_memory(instruction);
    if instruction.is_string_instruction() && instruction.has_rep_prefix() | instruction.has_repne_prefix() {
        return Kind::Copy;
    }
    if memory && (instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg)
        || matches!(instruction.mnemonic(), Mnemonic::Mfence | Mnemonic::Sfence)
    {
        return Kind::Atomic;
    }
    match instruction.mnemonic() {
        Mnemonic::Cpuid => return Kind::Identify,
        Mnemonic::Rdrand | Mnemonic::Rdseed => return Kind::Random,
        _ if is_long(instruction) => return Kind::Long,
        _ => {}
    }
    // Of the thread alone, and in few lines.
    if memory && matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
        return Kind::Plain;
    }
    // Without an address there may be accesses, too: gathers, segments.
    use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
    let access =
        |kinds: &[OpAccess]| memory && info.used_memory().iter().any(|m| kinds.contains(&m.access()));
    match operand {
        Some(operand) if operand.writes => Kind::Store,
        Some(operand) if operand.reads => Kind::Load,
        _ if access(&[Write, CondWrite, ReadWrite, ReadCondWrite]) => Kind::Store,
        _ if access(&[Read, CondRead]) => Kind::Load,
        _ => Kind::Plain,
    }
}

/// Operations of ten cycles and more on processors of the last ten years (Fog, "Instruction tables").
fn is_long(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let code = instruction.code();
    matches!(
        instruction.mnemonic(),
        Div | Idiv
            | Divss
            | Divsd
            | Divps
            | Divpd
            | Vdivss
            | Vdivsd
            | Vdivps
            | Vdivpd
            | Sqrtss
            | Sqrtsd
            | Sqrtps
            | Sqrtpd
            | Vsqrtss
            | Vsqrtsd
            | Vsqrtps
            | Vsqrtpd
            | Fdiv
            | Fdivp
            | Fdivr
            | Fdivrp
            | Fidiv
            | Fidivr
            | Fsqrt
            | Fsin
            | Fcos
            | Fsincos
            | Fptan
            | Fpatan
            | Fyl2x
            | Fyl2xp1
            | F2xm1
            | Fprem
            | Fprem1
            | Rdtsc
            | Rdtscp
            | Rdpmc
            | Xgetbv
            | Lfence
            | Clflush
            | Clflushopt
    ) && code != Iced::INVALID
}

/// See [`crate::exits`].
pub(crate) fn exits(code: &[u8], exits: &mut Exits, address: u64) -> Option<()> {
    let inside = address..address.checked_add(code.len() as u64)?;
    for instruction in &mut Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            return None;
        }
        let at = (instruction.ip() - address) as u32;
        let flow = instruction.flow_control();
        match flow {
            FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => exits.returns.push(at),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let always = flow == FlowControl::UnconditionalBranch;
                exits.jump(&inside, at, instruction.near_branch_target(), always);
            }
            FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => {
                exits.ends.push((at, None));
            }
            FlowControl::IndirectBranch => exits.indirect = true,
            _ => {}
        }
    }
    Some(())
}

/// See [`crate::entry`].
pub(crate) fn entry(code: &[u8]) -> u32 {
    const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    // Pushes of registers.
    match code.strip_prefix(&LANDING_PAD) {
        Some([0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..]) => 4,
        _ => 0,
    }
}

/// See [`crate::may_have_a_probe`].
pub(crate) fn may_have_a_probe(code: &[u8]) -> bool {
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    !instruction.is_invalid() && instruction.code().encoding() == EncodingKind::Legacy
}

/// See [`crate::first_return`].
pub(crate) fn first_return(code: &[u8]) -> Option<u32> {
    let mut all = Decoder::new(64, code, DecoderOptions::NONE).into_iter();
    let found = all.find(|i| i.is_invalid() || i.mnemonic() == Mnemonic::Ret)?;
    (!found.is_invalid()).then_some(found.ip() as u32)
}
