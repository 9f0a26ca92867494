//! Decoded code: instructions, basic blocks, and which instruction a sample's waited.

use crate::Machine;
use crate::decoded::{Decoded, Flow, Kind};
use crate::decoder;
use crate::operand::{Operand, Stale, WriteBack};
use crate::spin;

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

impl Code {
    /// Decodes code that begins with an instruction.
    pub fn decode(machine: Machine, bytes: &[u8]) -> Code {
        Code::of(&decoder::decode(machine, bytes, true))
    }

    /// Decodes code of which it is not known where an instruction begins.
    pub fn resynchronized(machine: Machine, bytes: &[u8]) -> Code {
        Code::of(&decoder::decode(machine, bytes, false))
    }

    /// Decodes code of a file for processor `number` (`e_machine`), or of this one where it was made at run time; `whole` code begins with
    /// an instruction. Code of other processors, which an emulator may map, has no instructions.
    pub fn of_file(number: Option<u16>, whole: bool, bytes: &[u8]) -> Code {
        match (Machine::of_code(number), whole) {
            (Some(machine), true) => Code::decode(machine, bytes),
            (Some(machine), false) => Code::resynchronized(machine, bytes),
            (None, _) => Code::default(),
        }
    }

    fn of(decoded: &[Decoded]) -> Code {
        let mut instructions: Vec<Instruction> = decoded
            .iter()
            .map(|decoded| Instruction {
                at: decoded.at,
                block: 0,
                kind: decoded.kind,
                spins: false,
                operand: decoded.operand,
                flow: decoded.flow,
                back: None,
                entry: false,
                target: false,
                compares: decoded.compares,
            })
            .collect();
        let mut loops: Vec<(usize, usize)> = Vec::new();
        let mut forward: Vec<(usize, usize)> = Vec::new();
        for (i, instruction) in decoded.iter().enumerate() {
            let Some(target) = instruction.branch() else { continue };
            let Ok(to) = decoded.binary_search_by_key(&target, |d| d.at.into()) else { continue };
            if to > i {
                forward.push((i, to));
                continue;
            }
            instructions[to].back = Some(i as u32);
            if loops.len() < MAX_LOOPS {
                loops.push((to, i));
            }
            if spin::is_spin(&decoded[to..=i]) {
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
        written_back(&mut instructions, decoded);
        fences(&mut instructions, decoded);
        chased_by_index(&mut instructions, decoded, &loops);
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

    /// Operands near a sample, but those on the stack: that of the instruction that it waited for, and of the one at it, which comes
    /// next and whose registers are whole.
    pub fn operands(&self, at: u32) -> impl Iterator<Item = Operand> {
        let before = match self.waited(at) {
            Some(Waited::For(i)) => self.instructions[i].operand,
            _ => None,
        };
        let here = self.position(at).and_then(|i| self.instructions[i].operand);
        before.into_iter().chain(here.map(Operand::ahead)).filter(|operand| !operand.on_stack)
    }

    /// The instruction whose access to a watched address stopped a thread at an offset of the code: x86 stops behind it, AArch64
    /// before. `None` where no instruction begins there.
    pub fn stopped(&self, machine: Machine, at: u32) -> Option<&Instruction> {
        let here = self.position(at)?;
        match machine {
            Machine::X86_64 => self.instructions.get(here.checked_sub(1)?),
            Machine::Aarch64 => self.instructions.get(here),
        }
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
        // Of several parts, it is interrupted before it has ended where others of its kind keep it waiting. A plain one has little to wait
        // for.
        if here.kind.is_long() && before.is_some_and(|before| self.instructions[before].kind == Kind::Plain) {
            return Some(Waited::For(i));
        }
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
fn written_back(instructions: &mut [Instruction], decoded: &[Decoded]) {
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
                loaded.written_back |= loaded.stale == Stale::No && loaded.write_back == WriteBack::No;
                break;
            }
            if operand.is_moved_by(decoded[load].written) {
                break;
            }
        }
    }
}

/// A fence waits for the stores before it: the last of its basic block that does not lie on the stack stands for its operand.
/// Compilers make fences of mfence, and of locked operations on the stack (`lock addl $0, (%rsp)`).
fn fences(instructions: &mut [Instruction], decoded: &[Decoded]) {
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
        let moved = (store + 1..=fence).any(|i| operand.is_moved_by(decoded[i].written));
        if let Some(operand) = operand.behind().filter(|_| !moved) {
            instructions[fence].operand = Some(operand);
        }
    }
}

/// Instructions of a loop that is looked through.
const LONG: usize = 512;

/// Loads of an index by itself, round and round: the register holds the next place.
fn chased_by_index(instructions: &mut [Instruction], decoded: &[Decoded], loops: &[(usize, usize)]) {
    for i in 0..instructions.len() {
        let Some(operand) = instructions[i].operand.filter(|o| o.stale == Stale::NextIndex) else { continue };
        let around =
            loops.iter().filter(|(first, last)| (*first..=*last).contains(&i) && last - first < LONG);
        let Some(&(first, last)) = around.min_by_key(|(first, last)| last - first) else { continue };
        let set = (first..=last)
            .any(|k| operand.index_is_set_by(instructions[k].operand.as_ref(), decoded[k].written));
        if !set {
            instructions[i].operand.iter_mut().for_each(|o| o.stale = Stale::Next);
        }
    }
}
