//! Decoded code: instructions, basic blocks, and which instruction a sample's waited.

use iced_x86::{
    Code as Iced, Decoder, DecoderOptions, FlowControl, Instruction as Decoded, InstructionInfoFactory,
    Mnemonic, OpKind,
};

use crate::operand::{Operand, Stale};
use crate::spin;

/// What kind of work an instruction is, by what may make it wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Arithmetic, moves between registers, branches.
    Plain,
    /// Reads memory.
    Load,
    /// Writes memory, and may read it before.
    Store,
    /// An atomic operation on memory, or a fence.
    Atomic,
    /// Division, roots and others of 10 cycles or more.
    Long,
    /// Copies or fills memory, in one instruction.
    Copy,
}

impl Kind {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Load => "load",
            Kind::Store => "store",
            Kind::Atomic => "atomic",
            Kind::Long => "long",
            Kind::Copy => "copy",
        }
    }
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Bytes from the beginning of the code.
    pub at: u32,
    /// The basic block that it is in.
    pub block: u32,
    /// See [`Kind`].
    pub kind: Kind,
    /// It is part of a loop that does nothing but look at memory until it changes.
    pub spins: bool,
    /// Its operand in memory, where registers lead to it.
    pub operand: Option<Operand>,
    /// How control leaves it.
    flow: Flow,
    /// A loop begins here: the last branch that comes back.
    back: Option<u32>,
    /// A branch leads here from before.
    entry: bool,
    /// And does so as often as the code before comes here.
    target: bool,
    /// It compares, so that a branch behind it is one instruction with it for the processor.
    compares: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Branch,
    /// To the next, after others have run: a call.
    Call,
    /// Never to the next: a jump, a return.
    Away,
}

/// What was executed last before a sample, so that it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The instruction of this number.
    For(usize),
    /// This one or a branch, since a branch leads to the sample.
    Perhaps(usize),
    /// A call, a return or a jump from elsewhere.
    Entered,
}

/// Decoded code of a function or of a part of a file.
#[derive(Clone, Debug, Default)]
pub struct Code {
    instructions: Vec<Instruction>,
    blocks: u32,
}

/// Loops of a function that are looked at for branches into them.
const MAX_LOOPS: usize = 256;

/// Offsets that decoding begins at where it is not known where an instruction begins.
const BEGINNINGS: usize = 8;

impl Code {
    /// Decodes code that begins with an instruction.
    pub fn decode(bytes: &[u8]) -> Code {
        Code::of(&decoded(bytes, 0))
    }

    /// Decodes code of which it is not known where an instruction begins: from several bytes on, and takes what all agree on.
    pub fn resynchronized(bytes: &[u8]) -> Code {
        let all: Vec<Vec<Decoded>> = (0..BEGINNINGS).map(|from| decoded(bytes, from)).collect();
        let Some((first, others)) = all.split_first() else { return Code::default() };
        let agree = |ip: u64| others.iter().all(|o| o.binary_search_by_key(&ip, Decoded::ip).is_ok());
        let begin = first.iter().position(|i| agree(i.ip())).unwrap_or(first.len());
        Code::of(&first[begin..])
    }

    fn of(decoded: &[Decoded]) -> Code {
        let mut info = InstructionInfoFactory::new();
        let mut instructions: Vec<Instruction> = decoded
            .iter()
            .map(|instruction| {
                let operand = Operand::of(instruction, info.info(instruction));
                Instruction {
                    at: instruction.ip() as u32,
                    block: 0,
                    kind: kind(instruction, operand.as_ref(), info.info(instruction)),
                    spins: false,
                    operand,
                    flow: flow(instruction),
                    back: None,
                    entry: false,
                    target: false,
                    compares: matches!(
                        instruction.mnemonic(),
                        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Add | Mnemonic::Sub | Mnemonic::And
                    ) && instruction.op_count() == 2
                        && (instruction.op0_kind() != OpKind::Memory
                            || instruction.op1_kind() == OpKind::Register),
                }
            })
            .collect();
        let mut loops: Vec<(usize, usize)> = Vec::new();
        let mut forward: Vec<(usize, usize)> = Vec::new();
        for (i, instruction) in decoded.iter().enumerate() {
            let Some(target) = branch(instruction) else { continue };
            let Ok(to) = decoded.binary_search_by_key(&target, Decoded::ip) else { continue };
            if to > i {
                forward.push((i, to));
                continue;
            }
            instructions[to].back = Some(i as u32);
            if loops.len() < MAX_LOOPS {
                loops.push((to, i));
            }
            if spin::is_spin(&decoded[to..=i], &mut info) {
                instructions[to..=i].iter_mut().for_each(|i| i.spins = true);
            }
        }
        for (from, to) in forward {
            // Into the middle of a loop, where it begins: the loop comes by there more often.
            let begins = |&(first, last): &(usize, usize)| {
                (first + 1..=last).contains(&to) && !(first..=last).contains(&from)
            };
            instructions[to].entry = true;
            instructions[to].target |= !loops.iter().any(begins);
        }
        let (mut block, mut ended) = (0, false);
        for (i, instruction) in instructions.iter_mut().enumerate() {
            if i > 0 && (ended || instruction.entry || instruction.back.is_some()) {
                block += 1;
            }
            instruction.block = block;
            ended = !matches!(instruction.flow, Flow::Next | Flow::Call);
        }
        written_back(&mut instructions, decoded, &mut info);
        fences(&mut instructions, decoded, &mut info);
        chased_by_index(&mut instructions, decoded, &loops, &mut info);
        Code { instructions, blocks: block + 1 }
    }

    /// The instructions, in the order of the code.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// How many basic blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks as usize
    }

    /// The number of the instruction that begins at an offset.
    pub fn position(&self, at: u32) -> Option<usize> {
        self.instructions.binary_search_by_key(&at, |i| i.at).ok()
    }

    /// What a sample at an offset of the code waited for; `None` where no instruction begins there.
    pub fn waited(&self, at: u32) -> Option<Waited> {
        let i = self.position(at)?;
        let here = &self.instructions[i];
        // It is interrupted while it goes on.
        if here.kind == Kind::Copy {
            return Some(Waited::For(i));
        }
        // A loop comes back more often than it begins.
        if let Some(back) = here.back {
            return Some(Waited::For(self.fused(back as usize)));
        }
        let before = i.checked_sub(1).filter(|&before| self.instructions[before].flow == Flow::Next);
        let branched = i.checked_sub(1).filter(|&before| self.instructions[before].flow == Flow::Branch);
        Some(match (before, branched) {
            (Some(before), _) if here.target => Waited::Perhaps(self.fused(before)),
            (Some(before), _) => Waited::For(before),
            (None, Some(branch)) if here.target => Waited::Perhaps(self.fused(branch)),
            (None, Some(branch)) => Waited::For(self.fused(branch)),
            (None, None) => Waited::Entered,
        })
    }

    /// The comparison that a branch is one instruction with, or the instruction itself.
    fn fused(&self, i: usize) -> usize {
        let Some(before) = i.checked_sub(1) else { return i };
        let (this, compare) = (&self.instructions[i], &self.instructions[before]);
        if this.flow == Flow::Branch && compare.compares && !this.target { before } else { i }
    }
}

/// Instructions that a load is looked for before a store.
const BACK: usize = 12;

/// Loads whose word is written back in the same basic block count as writes of it.
fn written_back(instructions: &mut [Instruction], decoded: &[Decoded], info: &mut InstructionInfoFactory) {
    for store in 0..instructions.len() {
        let Some(operand) = instructions[store].operand.filter(|o| o.writes && !o.reads) else { continue };
        let block = instructions[store].block;
        for load in (store.saturating_sub(BACK)..store).rev() {
            let before = &mut instructions[load];
            let same = |o: &&mut Operand| o.reads && o.same_place(&operand);
            if before.block != block {
                break;
            }
            if let Some(loaded) = before.operand.as_mut().filter(same) {
                // The load must leave the registers of the address alone, too.
                loaded.written_back = loaded.stale == Stale::No;
                break;
            }
            if operand.is_moved_by(info.info(&decoded[load])) {
                break;
            }
        }
    }
}

/// A fence waits for the stores before it: the last of its basic block that does not lie on the stack stands for its operand.
/// Compilers make fences of mfence, and of locked operations on the stack (`lock addl $0, (%rsp)`).
fn fences(instructions: &mut [Instruction], decoded: &[Decoded], info: &mut InstructionInfoFactory) {
    for fence in 0..instructions.len() {
        let this = &instructions[fence];
        if this.kind != Kind::Atomic || this.operand.is_some_and(|o| !o.on_stack) {
            continue;
        }
        let earlier = (fence.saturating_sub(BACK)..fence).rev();
        let mut of_block = earlier.take_while(|&i| instructions[i].block == this.block);
        let store = of_block.find_map(|i| {
            let operand = instructions[i].operand.filter(|o| o.writes && !o.on_stack)?;
            Some((i, operand))
        });
        let Some((store, operand)) = store else { continue };
        let moved = (store + 1..=fence).any(|i| operand.is_moved_by(info.info(&decoded[i])));
        if operand.stale == Stale::No && !moved {
            instructions[fence].operand = Some(operand);
        }
    }
}

/// Instructions of a loop that is looked through.
const LONG: usize = 512;

/// Loads of an index by itself, round and round: the register holds the next place.
fn chased_by_index(
    instructions: &mut [Instruction],
    decoded: &[Decoded],
    loops: &[(usize, usize)],
    info: &mut InstructionInfoFactory,
) {
    for i in 0..instructions.len() {
        let Some(operand) = instructions[i].operand.filter(|o| o.stale == Stale::NextIndex) else { continue };
        let around =
            loops.iter().filter(|(first, last)| (*first..=*last).contains(&i) && last - first < LONG);
        let Some(&(first, last)) = around.min_by_key(|(first, last)| last - first) else { continue };
        let set = (first..=last)
            .any(|k| operand.index_is_set_by(instructions[k].operand.as_ref(), info.info(&decoded[k])));
        if !set {
            instructions[i].operand.iter_mut().for_each(|o| o.stale = Stale::Next);
        }
    }
}

/// Decodes up to the end, as if code began at address 0.
fn decoded(bytes: &[u8], from: usize) -> Vec<Decoded> {
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

fn branch(instruction: &Decoded) -> Option<u64> {
    let near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
    let jumps = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    (near && jumps).then(|| instruction.near_branch64())
}

fn flow(instruction: &Decoded) -> Flow {
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

fn kind(instruction: &Decoded, operand: Option<&Operand>, info: &iced_x86::InstructionInfo) -> Kind {
    let memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    if instruction.is_string_instruction() && instruction.has_rep_prefix() | instruction.has_repne_prefix() {
        return Kind::Copy;
    }
    if memory && (instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg)
        || matches!(instruction.mnemonic(), Mnemonic::Mfence | Mnemonic::Sfence)
    {
        return Kind::Atomic;
    }
    if is_long(instruction) {
        return Kind::Long;
    }
    // Of the thread alone, and in few lines.
    if memory && matches!(instruction.segment_prefix(), iced_x86::Register::FS | iced_x86::Register::GS) {
        return Kind::Plain;
    }
    // Without an address there may be accesses, too: gathers, segments.
    use iced_x86::OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
    let access = |kinds: &[iced_x86::OpAccess]| {
        memory && info.used_memory().iter().any(|m| kinds.contains(&m.access()))
    };
    match operand {
        Some(operand) if operand.writes => Kind::Store,
        Some(operand) if operand.reads => Kind::Load,
        _ if access(&[Write, CondWrite, ReadWrite, ReadCondWrite]) => Kind::Store,
        _ if access(&[Read, CondRead]) => Kind::Load,
        _ => Kind::Plain,
    }
}

/// Operations of ten cycles and more on processors of the last ten years (Fog, "Instruction tables").
fn is_long(instruction: &Decoded) -> bool {
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
            | Cpuid
            | Rdrand
            | Rdseed
            | Xgetbv
            | Lfence
            | Clflush
            | Clflushopt
    ) && code != Iced::INVALID
}
