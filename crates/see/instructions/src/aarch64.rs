//! Decodes AArch64: `disarm64` names an instruction and its operands, and here is known which registers and memory it uses.
//!
//! Source of what instructions do: "Arm Architecture Reference Manual for A-profile architecture" (DDI 0487).

use disarm64::decoder::{self, Opcode};
use disarm64::{InsnDisplay, InsnOpcode, InsnOperand};
use disarm64_defn::{InsnClass as Class, InsnFeatureSet as Feature, InsnOperandKind as Field};

use crate::Machine;
use crate::decoded::{Decoded, Flow, Kind, Look, Role, Text};
use crate::exits::Exits;
use crate::operand::{Extend, Operand, Stale, WriteBack};
use crate::registers::{Set, aarch64};

/// Bytes of an instruction.
const SIZE: usize = 4;
/// As a base register the stack pointer, elsewhere the register that is always zero.
const SP_OR_ZERO: u8 = aarch64::SP as u8;
/// The register with the address that a call returns to.
const LINK: u8 = 30;
/// Registers that a call may change by the calling convention, beside those of arguments (AAPCS64).
const LAST_SCRATCH: u8 = 18;
/// Instructions between an exclusive load and its store: an atomic operation on one word has a few.
const EXCLUSIVE: usize = 16;

/// An instruction.
struct Word {
    bits: u32,
    /// Bytes from the beginning of the code.
    at: u32,
    opcode: Opcode,
}

/// How it uses memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    None,
    Load,
    Store,
    /// Reads and writes at once.
    Atomic,
    /// Reads, so that a store to the same word fails if another has written it meanwhile; and that store.
    LoadExclusive,
    StoreExclusive,
    /// A fence.
    Fence,
    /// Copies or fills memory.
    Copy,
}

/// The instruction that `code` begins with, at `address`.
pub(crate) fn text(code: &[u8], address: u64) -> Option<Text> {
    let word = Word::decode(code.get(..SIZE)?, 0)?;
    let (_, to) = word.flow();
    let target = to.map(|to| address.wrapping_add(to));
    let text = word.opcode.display_at(address).to_string();
    Some(Text { text: text.split_whitespace().collect::<Vec<_>>().join(" "), target })
}

/// All instructions.
pub(crate) fn decode(bytes: &[u8]) -> Vec<Decoded> {
    let mut bad = 0;
    let one = |(i, word): (usize, &[u8])| {
        let at = (i * SIZE) as u32;
        let Some(word) = Word::decode(word, at) else {
            bad += 1;
            return data(at);
        };
        word.decoded()
    };
    let mut all: Vec<Decoded> = bytes.chunks_exact(SIZE).enumerate().map(one).collect();
    // Mostly data.
    if bad > all.len() / 8 + 1 {
        return Vec::new();
    }
    pair_exclusives(&mut all);
    all
}

/// A word that is not an instruction: a constant between functions.
fn data(at: u32) -> Decoded {
    Decoded {
        at,
        kind: Kind::Plain,
        flow: Flow::Away,
        target: None,
        operand: None,
        written: Set::NONE,
        compares: false,
        look: Look { role: Role::Work, address: Set::NONE },
    }
}

/// An exclusive load with its store is one atomic operation: the load's word is written, too.
fn pair_exclusives(all: &mut [Decoded]) {
    for store in 0..all.len() {
        let Decoded { kind: Kind::Atomic, operand: Some(stored), .. } = all[store] else { continue };
        if !stored.writes || stored.reads {
            continue;
        }
        for load in (store.saturating_sub(EXCLUSIVE)..store).rev() {
            let before = &mut all[load];
            if let (Kind::Atomic, Some(loaded)) = (before.kind, &mut before.operand)
                && loaded.same_place(&stored)
            {
                loaded.written_back = loaded.stale == Stale::No;
                break;
            }
            if stored.is_moved_by(before.written) {
                break;
            }
        }
    }
}

impl Word {
    /// `None` for what is not an instruction; `udf`, which never is executed, is none either: memory filled with zeros has it.
    fn decode(bytes: &[u8], at: u32) -> Option<Word> {
        let bits = u32::from_le_bytes(bytes.try_into().ok()?);
        let opcode = decoder::decode(bits)?;
        (opcode.definition().mnemonic != "udf").then_some(Word { bits, at, opcode })
    }

    /// `count` bits from `low` on.
    fn field(&self, low: u32, count: u32) -> u32 {
        self.bits >> low & ((1 << count) - 1)
    }

    /// The same as a number with a sign.
    fn signed(&self, low: u32, count: u32) -> u64 {
        let shifted = (self.bits >> low) << (32 - count);
        i64::from(shifted as i32 >> (32 - count)) as u64
    }

    fn register(&self, low: u32) -> u8 {
        self.field(low, 5) as u8
    }

    /// A register that may be the one that is always zero.
    fn value(&self, low: u32) -> Set {
        Set::of([self.register(low)]).without(Set::of([SP_OR_ZERO]))
    }

    /// The register in the field Rd or Rt.
    fn d(&self) -> Set {
        self.value(0)
    }

    /// The register in the field Rn.
    fn n(&self) -> Set {
        self.value(5)
    }

    /// The register in the field Rm or Rs.
    fn m(&self) -> Set {
        self.value(16)
    }

    /// The register in the field Rt2.
    fn t2(&self) -> Set {
        self.value(10)
    }

    fn name(&self) -> &'static str {
        self.opcode.definition().mnemonic
    }

    fn class(&self) -> Class {
        self.opcode.definition().class
    }

    fn operands(&self) -> &'static [InsnOperand] {
        self.opcode.definition().operands
    }

    fn first(&self) -> Option<Field> {
        self.operands().first().map(|operand| operand.kind)
    }

    fn has(&self, field: Field) -> bool {
        self.operands().iter().any(|operand| operand.kind == field)
    }

    /// Scalable vectors and matrices.
    fn is_scalable(&self) -> bool {
        let class: &'static str = self.class().into();
        class.starts_with("SVE") || class.starts_with("SME")
    }

    /// An operation of the system by number (`sys`): its op1, CRn, CRm and op2.
    fn system(&self) -> Option<(u32, u32, u32, u32)> {
        let numbers = (self.field(16, 3), self.field(12, 4), self.field(8, 4), self.field(5, 3));
        (self.name() == "sys").then_some(numbers)
    }

    /// `dc zva` and its kin fill a block with zeros.
    fn fills_block(&self) -> bool {
        matches!(self.system(), Some((3, 7, 4, 1 | 4)))
    }

    fn access(&self) -> Access {
        let name = self.name();
        let (loads, stores) = (name.starts_with("ld"), name.starts_with("st"));
        match self.class() {
            Class::LDSTEXCL => match name {
                // Of the system alone.
                "ldgm" | "stgm" | "stzgm" => Access::None,
                _ if !name.contains("xr") && !name.contains("xp") => Access::of(loads, stores),
                _ if loads => Access::LoadExclusive,
                _ => Access::StoreExclusive,
            },
            Class::LSE_ATOMIC | Class::LSE128_ATOMIC | Class::THE => match name {
                "ld64b" => Access::Load,
                "st64b" | "st64bv" | "st64bv0" => Access::Store,
                _ => Access::Atomic,
            },
            Class::LDST_IMM10
            | Class::LDST_IMM9
            | Class::LDST_POS
            | Class::LDST_REGOFF
            | Class::LDST_UNPRIV
            | Class::LDST_UNSCALED
            | Class::LDSTNAPAIR_OFFS
            | Class::LDSTPAIR_INDEXED
            | Class::LDSTPAIR_OFF
            | Class::LOADLIT
            | Class::RCPC3
            | Class::ASISDLSE
            | Class::ASISDLSEP
            | Class::ASISDLSO
            | Class::ASISDLSOP => Access::of(loads, stores),
            Class::GCS => Access::of(false, name.starts_with("gcsst")),
            Class::IC_SYSTEM if matches!(name, "dmb" | "dsb") => Access::Fence,
            Class::IC_SYSTEM => Access::of(false, self.fills_block()),
            Class::AARCH64_MISC if self.first() == Some(Field::MOPS_ADDR_Rd) => Access::Copy,
            _ if self.is_scalable() => Access::of(loads, stores),
            _ => Access::None,
        }
    }

    fn kind(&self) -> Kind {
        match self.access() {
            Access::Load => Kind::Load,
            Access::Store => Kind::Store,
            Access::Atomic | Access::LoadExclusive | Access::StoreExclusive | Access::Fence => Kind::Atomic,
            Access::Copy => Kind::Copy,
            Access::None if self.is_random() => Kind::Random,
            Access::None if self.is_long() => Kind::Long,
            Access::None => Kind::Plain,
        }
    }

    /// The register that `mrs` reads: op0 (its lower bit), op1, CRn, CRm, op2.
    fn system_register(&self) -> (u32, u32, u32, u32, u32) {
        (self.field(19, 1), self.field(16, 3), self.field(12, 4), self.field(8, 4), self.field(5, 3))
    }

    /// `rndr` and `rndrrs`.
    fn is_random(&self) -> bool {
        self.name() == "mrs" && matches!(self.system_register(), (1, 3, 2, 4, 0 | 1))
    }

    /// Operations of ten cycles and more (Arm's "Software Optimization Guides" of Neoverse N1, N2 and V2).
    fn is_long(&self) -> bool {
        // Counters of time and of the processor: op0 (its lower bit), op1, CRn, CRm, op2.
        const SLOW: [(u32, u32, u32, u32, u32); 6] = [
            (1, 3, 14, 0, 1),
            (1, 3, 14, 0, 2),
            (1, 3, 14, 0, 5),
            (1, 3, 14, 0, 6),
            (1, 3, 9, 13, 0),
            (1, 3, 9, 13, 2),
        ];
        match self.name() {
            "sdiv" | "udiv" | "sdivr" | "udivr" | "fdiv" | "fdivr" | "fsqrt" => true,
            "isb" | "sb" => true,
            "mrs" => SLOW.contains(&self.system_register()),
            // Caches cleaned and invalidated by address.
            "sys" => matches!(self.system(), Some((3, 7, 5 | 10..=14, 1))),
            _ => false,
        }
    }

    fn flow(&self) -> (Flow, Option<u64>) {
        let to = |low, count| Some(u64::from(self.at).wrapping_add(self.signed(low, count).wrapping_mul(4)));
        match self.class() {
            Class::BRANCH_IMM if self.name() == "bl" => (Flow::Call, to(0, 26)),
            Class::BRANCH_IMM => (Flow::Away, to(0, 26)),
            Class::BRANCH_REG if self.name().starts_with("bl") => (Flow::Call, None),
            Class::BRANCH_REG => (Flow::Away, None),
            Class::CONDBRANCH => (Flow::Branch, to(5, 19)),
            Class::COMPBRANCH if self.has(Field::ADDR_PCREL9) => (Flow::Branch, to(5, 9)),
            Class::COMPBRANCH => (Flow::Branch, to(5, 19)),
            Class::TESTBRANCH => (Flow::Branch, to(5, 14)),
            // The kernel runs meanwhile.
            Class::EXCEPTION if self.name() == "svc" => (Flow::Call, None),
            Class::EXCEPTION => (Flow::Away, None),
            _ => (Flow::Next, None),
        }
    }

    /// Registers that it writes, beside the base register of its operand.
    fn written(&self) -> Set {
        let name = self.name();
        match (self.class(), self.access()) {
            (Class::BRANCH_IMM | Class::BRANCH_REG, _) if self.flow().0 == Flow::Call => {
                Set::of((0..=LAST_SCRATCH).chain([LINK]))
            }
            (Class::EXCEPTION, _) => Set::of([0]),
            (Class::BRANCH_IMM | Class::BRANCH_REG | Class::COMPBRANCH | Class::TESTBRANCH, _) => Set::NONE,
            (_, Access::Copy) => self.d().and(self.n()).and(self.m()),
            (_, Access::StoreExclusive) => self.m(),
            (Class::LSE_ATOMIC, _) if name == "ld64b" => {
                Set::of(self.register(0)..=self.register(0).saturating_add(7).min(LINK))
            }
            // `st64bv` and `cas` give back in the register that comes first.
            (Class::LSE_ATOMIC, _) if name.starts_with("cas") || name.starts_with("st64bv") => {
                let pair = [self.register(16), self.register(16).saturating_add(1)];
                let pair = &pair[..if self.has(Field::PAIRREG) { 2 } else { 1 }];
                Set::of(pair.iter().copied()).without(Set::of([SP_OR_ZERO]))
            }
            (Class::LSE_ATOMIC, Access::Atomic) if self.has(Field::Rt) => self.d(),
            (Class::LSE_ATOMIC, _) => Set::NONE,
            (Class::LSE128_ATOMIC, _) => self.d().and(self.m()),
            // Some write two registers, some four.
            (Class::THE, _) => {
                let pairs =
                    [self.register(0), self.register(0) | 1, self.register(16), self.register(16) | 1];
                Set::of(pairs).without(Set::of([SP_OR_ZERO]))
            }
            (Class::GCS, Access::None) if self.has(Field::Rt) => self.d(),
            (Class::GCS, _) => Set::NONE,
            (Class::RCPC3 | Class::LDSTPAIR_OFF, Access::Load) if self.has(Field::Rs) => {
                self.d().and(self.m())
            }
            (_, Access::Load | Access::LoadExclusive) if !self.is_scalable() => {
                let one = if self.has(Field::Rt) { self.d() } else { Set::NONE };
                if self.has(Field::Rt2) { one.and(self.t2()) } else { one }
            }
            (_, Access::Load | Access::Store | Access::Fence) => Set::NONE,
            (Class::IC_SYSTEM, _) => match name {
                "mrs" | "sysl" => self.d(),
                "mrrs" => self.d().and(Set::of([self.register(0) | 1]).without(Set::of([SP_OR_ZERO]))),
                // Pointer authentication of fixed registers, and `chkfeat`.
                "hint" => match self.field(5, 7) {
                    8 | 10 | 12 | 14 => Set::of([17]),
                    7 | 24..=31 => Set::of([LINK]),
                    40 => Set::of([16]),
                    _ => Set::NONE,
                },
                "chkfeat" => Set::of([16]),
                _ => Set::NONE,
            },
            _ => match self.first() {
                Some(Field::Rd_SP) => Set::of([self.register(0)]),
                Some(Field::Rd) => self.d(),
                // Scalable vectors count in a register that may be their first operand.
                Some(Field::Rn | Field::Rm | Field::Rt | Field::Rn_SP) if self.is_scalable() => {
                    self.d().and(self.n()).and(self.m())
                }
                _ => Set::NONE,
            },
        }
    }

    /// Bytes that one register of a load or store has in memory, and all have.
    fn sizes(&self) -> Option<(u32, u32)> {
        let size = self.field(30, 2);
        let vector = self.has(Field::Ft) || self.has(Field::Fd);
        let one = |bytes: u32| Some((bytes, bytes));
        let two = |bytes: u32| Some((bytes, 2 * bytes));
        match self.class() {
            _ if self.has(Field::ADDR_SIMM13) => one(if self.name().contains("2g") { 32 } else { 16 }),
            _ if self.has(Field::ADDR_SIMM11) => Some((16, 16)),
            Class::LDST_IMM10 => one(8),
            Class::LDST_POS
            | Class::LDST_IMM9
            | Class::LDST_UNSCALED
            | Class::LDST_REGOFF
            | Class::LDST_UNPRIV
            | Class::RCPC3
                if vector =>
            {
                one(1 << (size | self.field(23, 1) << 2))
            }
            Class::RCPC3 if self.has(Field::LEt) => one(8),
            Class::RCPC3 if self.has(Field::Rs) => two(1 << size),
            Class::LDST_POS
            | Class::LDST_IMM9
            | Class::LDST_UNSCALED
            | Class::LDST_REGOFF
            | Class::LDST_UNPRIV
            | Class::RCPC3 => one(1 << size),
            Class::LDSTPAIR_OFF if self.has(Field::ADDR_SIMPLE) => two(8),
            Class::LDSTPAIR_OFF | Class::LDSTPAIR_INDEXED | Class::LDSTNAPAIR_OFFS => {
                two(match (self.has(Field::Rt), size) {
                    // `ldpsw`.
                    (true, 0 | 1) => 4,
                    (true, _) => 8,
                    // Of 16 bytes without privileges.
                    (false, size) => 4 << size.min(2),
                })
            }
            Class::LOADLIT => one(match (self.has(Field::Ft), size) {
                (true, size) => 4 << size.min(2),
                (false, 1) => 8,
                (false, _) => 4,
            }),
            Class::LDSTEXCL if self.has(Field::Rt2) => two(4 << self.field(30, 1)),
            Class::LSE_ATOMIC if self.has(Field::PAIRREG) => two(4 << self.field(30, 1)),
            Class::LSE_ATOMIC if self.has(Field::Rt_LS64) => one(64),
            Class::LSE_ATOMIC if self.opcode.definition().feature_set == Feature::LSUI => {
                one(4 << self.field(30, 1))
            }
            Class::LDSTEXCL | Class::LSE_ATOMIC => one(1 << size),
            Class::LSE128_ATOMIC => one(16),
            Class::THE => {
                one(if self.first() == Some(Field::Rs) && !self.has(Field::PAIRREG) { 8 } else { 16 })
            }
            Class::ASISDLSE | Class::ASISDLSEP => {
                let registers = match self.field(12, 4) {
                    0b0000 | 0b0010 => 4,
                    0b0100 | 0b0110 => 3,
                    0b1000 | 0b1010 => 2,
                    _ => 1,
                };
                let bytes = 8 << self.field(30, 1);
                Some((bytes, registers * bytes))
            }
            Class::ASISDLSO | Class::ASISDLSOP => {
                let registers = (self.field(13, 1) << 1 | self.field(21, 1)) + 1;
                let bytes = match self.field(14, 2) {
                    // One for all lanes.
                    3 => 1 << self.field(10, 2),
                    2 if self.field(10, 1) == 1 => 8,
                    log => 1 << log,
                };
                Some((bytes, registers * bytes))
            }
            Class::IC_SYSTEM if self.fills_block() => one(BLOCK),
            _ => None,
        }
    }

    /// The operand in memory; `None` where registers do not lead to it: those of scalable vectors have a length that is not known here.
    fn operand(&self) -> Option<Operand> {
        let access = self.access();
        let (reads, writes) = match access {
            Access::Load | Access::LoadExclusive => (true, false),
            Access::Store | Access::StoreExclusive => (false, true),
            Access::Atomic => (true, true),
            Access::None | Access::Fence | Access::Copy => return None,
        };
        let (one, all) = self.sizes()?;
        let block = self.fills_block();
        let base = if block { self.register(0) } else { self.register(5) };
        if block && base == SP_OR_ZERO {
            return None;
        }
        let mut operand = Operand {
            machine: Machine::Aarch64,
            base: Some(base),
            index: None,
            extend: Extend::No,
            scale: 1,
            displacement: 0,
            relative: false,
            write_back: WriteBack::No,
            size: all as u16,
            writes,
            reads,
            written_back: false,
            on_stack: base == SP_OR_ZERO,
            stale: Stale::No,
        };
        let address = self.operands().iter().map(|operand| operand.kind);
        let mut authenticated = false;
        for field in address {
            match field {
                Field::ADDR_UIMM12 => operand.displacement = u64::from(self.field(10, 12) * one),
                Field::ADDR_SIMM9 | Field::ADDR_OFFSET | Field::RCPC3_ADDR_OFFSET => {
                    operand.indexed(
                        self.signed(12, 9),
                        self.class() == Class::LDST_IMM9,
                        self.field(11, 1) == 1,
                    );
                }
                Field::ADDR_SIMM13 => {
                    let moves = self.class() == Class::LDST_IMM9;
                    operand.indexed(self.signed(12, 9).wrapping_mul(16), moves, self.field(11, 1) == 1);
                }
                Field::ADDR_SIMM7 | Field::ADDR_SIMM11 => {
                    let by = self.signed(15, 7).wrapping_mul(one.into());
                    operand.indexed(by, self.class() == Class::LDSTPAIR_INDEXED, self.field(24, 1) == 1);
                }
                Field::ADDR_SIMM10 => {
                    let sign = if self.field(22, 1) == 1 { u64::MAX << 9 } else { 0 };
                    let by = (sign | u64::from(self.field(12, 9))).wrapping_mul(8);
                    operand.indexed(by, self.field(11, 1) == 1, true);
                    // The base register has a signature, but where the address is written back.
                    authenticated = operand.write_back == WriteBack::No;
                }
                Field::ADDR_REGOFF => {
                    let index = self.register(16);
                    operand.index = (index != SP_OR_ZERO).then_some(index);
                    operand.extend = match self.field(13, 3) {
                        0b010 => Extend::Unsigned,
                        0b110 => Extend::Signed,
                        _ => Extend::No,
                    };
                    operand.scale = if self.field(12, 1) == 1 { one as u8 } else { 1 };
                }
                Field::ADDR_PCREL19 => {
                    operand.base = None;
                    operand.on_stack = false;
                    operand.relative = true;
                    operand.displacement =
                        u64::from(self.at).wrapping_add(self.signed(5, 19).wrapping_mul(4));
                }
                Field::SIMD_ADDR_POST => {
                    let by = self.register(16);
                    operand.write_back = match by == SP_OR_ZERO {
                        true => WriteBack::Adds(all.into()),
                        false => WriteBack::AddsRegister(by),
                    };
                }
                Field::RCPC3_ADDR_POSTIND => operand.indexed(one.into(), true, false),
                Field::RCPC3_ADDR_PREIND_WB => operand.indexed(u64::from(one).wrapping_neg(), true, true),
                // Whether it writes back is a bit of its own.
                Field::RCPC3_ADDR_OPT_POSTIND | Field::RCPC3_ADDR_OPT_PREIND_WB => return None,
                _ => {}
            }
        }
        operand.stale = match authenticated {
            true => Stale::Lost,
            false => self.stale(&operand, access),
        };
        Some(operand)
    }

    /// Whether the registers of its own operand's address are whole behind it.
    fn stale(&self, operand: &Operand, access: Access) -> Stale {
        let written = self.written();
        let meets = |place: Option<u8>| place.is_some_and(|place| written.has(place));
        let adds = match operand.write_back {
            WriteBack::AddsRegister(place) => Some(place),
            _ => None,
        };
        let plain = access == Access::Load || access == Access::LoadExclusive;
        match (meets(operand.base), meets(operand.index)) {
            (false, false) if !meets(adds) => Stale::No,
            // It loads and writes back to one register: what is left there is not defined.
            (true, _) if operand.write_back != WriteBack::No => Stale::Lost,
            (true, false) if plain && operand.index.is_none() && self.loads_addresses() => Stale::Next,
            (false, true) if plain && matches!(operand.size, 1 | 2 | 4 | 8) => Stale::NextIndex,
            _ => Stale::Lost,
        }
    }

    /// Whether it loads whole registers.
    fn loads_addresses(&self) -> bool {
        let whole = self.sizes().is_some_and(|(one, _)| one == 8);
        whole && !self.has(Field::Ft)
    }

    /// Flags by which a branch behind decides.
    fn compares(&self) -> bool {
        matches!(self.name(), "adds" | "subs" | "ands") && self.register(0) == SP_OR_ZERO
    }

    /// Its part in a loop that may wait.
    fn look(&self, operand: Option<&Operand>) -> Look {
        let address = operand.map_or(Set::NONE, Operand::registers);
        let role = match operand {
            Some(operand) if operand.on_stack => Role::Work,
            _ => self.role(),
        };
        Look { role, address }
    }

    fn role(&self) -> Role {
        let name = self.name();
        match self.access() {
            Access::Load | Access::LoadExclusive if self.has(Field::Rt) && !self.is_scalable() => {
                return Role::Load { to: self.written() };
            }
            Access::StoreExclusive => {
                let second = if self.has(Field::Rt2) { self.t2() } else { Set::NONE };
                return Role::StoreIfUnchanged { from: self.d().and(second) };
            }
            Access::Atomic if name.starts_with("swp") && self.class() == Class::LSE_ATOMIC => {
                return Role::Exchange { to: self.d() };
            }
            Access::Fence => return Role::Nothing,
            Access::None => {}
            _ => return Role::Work,
        }
        let zero = self.register(0) == SP_OR_ZERO;
        match self.class() {
            Class::BRANCH_IMM if name == "b" => Role::Nothing,
            Class::CONDBRANCH => Role::Nothing,
            Class::COMPBRANCH if self.has(Field::Rm) => {
                Role::Compare { of: self.d().and(self.m()), reads: false }
            }
            Class::COMPBRANCH | Class::TESTBRANCH => Role::Compare { of: self.d(), reads: false },
            // Prefetches, and hints: `nop`, `yield`, `wfe`, `bti`.
            Class::LDST_POS | Class::LDST_REGOFF | Class::LDST_UNSCALED | Class::LOADLIT => Role::Nothing,
            Class::IC_SYSTEM => match name {
                "hint" | "isb" | "sb" | "wfet" | "wfit" | "clrex" => Role::Nothing,
                _ => Role::Work,
            },
            Class::PCRELADDR | Class::MOVEWIDE if name != "movk" => Role::Make { of: Set::NONE },
            Class::MOVEWIDE => Role::Make { of: self.d() },
            // A comparison, else a counter of turns, or the rest of an address.
            Class::ADDSUB_IMM if zero && self.compares() => Role::Compare { of: self.n(), reads: false },
            Class::ADDSUB_IMM => Role::Make { of: self.n() },
            Class::ADDSUB_SHIFT | Class::ADDSUB_EXT | Class::LOG_SHIFT if zero && self.compares() => {
                Role::Compare { of: self.n().and(self.m()), reads: false }
            }
            Class::CONDCMP_IMM => Role::Compare { of: self.n(), reads: false },
            Class::CONDCMP_REG => Role::Compare { of: self.n().and(self.m()), reads: false },
            Class::LOG_IMM if zero && self.compares() => Role::Compare { of: self.n(), reads: false },
            // A constant.
            Class::LOG_IMM if name == "orr" && self.n() == Set::NONE => Role::Make { of: Set::NONE },
            // A part of what was read.
            Class::LOG_IMM if matches!(name, "and" | "ands") => Role::Move { from: self.n() },
            Class::BITFIELD if name != "bfm" => Role::Move { from: self.n() },
            // mov
            Class::LOG_SHIFT if name == "orr" && self.register(5) == SP_OR_ZERO && self.field(10, 6) == 0 => {
                Role::Move { from: self.m() }
            }
            _ => Role::Work,
        }
    }

    fn decoded(&self) -> Decoded {
        let operand = self.operand();
        let (flow, target) = self.flow();
        let moved = operand.filter(|o| o.write_back != WriteBack::No).and_then(|o| o.base);
        Decoded {
            at: self.at,
            kind: self.kind(),
            flow,
            target,
            operand,
            written: self.written().and(Set::of(moved)),
            compares: self.compares(),
            look: self.look(operand.as_ref()),
        }
    }
}

/// Bytes that `dc zva` fills, of all processors of Arm so far (DCZID_EL0).
const BLOCK: u32 = 64;

impl Access {
    fn of(loads: bool, stores: bool) -> Access {
        match (loads, stores) {
            (true, _) => Access::Load,
            (_, true) => Access::Store,
            _ => Access::None,
        }
    }
}

impl Operand {
    /// An address with an offset; `moves`: the sum is left in the base register, `first`: before the access.
    fn indexed(&mut self, by: u64, moves: bool, first: bool) {
        if first || !moves {
            self.displacement = by;
        }
        if moves {
            self.write_back = WriteBack::Adds(by);
        }
    }
}

/// See [`crate::exits`].
pub(crate) fn exits(code: &[u8], exits: &mut Exits, address: u64) -> Option<()> {
    let inside = address..address.checked_add(code.len() as u64)?;
    for (i, word) in code.chunks_exact(SIZE).enumerate() {
        let at = (i * SIZE) as u32;
        // There may be constants between the instructions.
        let Some(word) = Word::decode(word, at) else { continue };
        match (word.class(), word.flow()) {
            (Class::BRANCH_REG, (Flow::Away, _)) if word.name().starts_with("ret") => exits.returns.push(at),
            (Class::BRANCH_REG, (Flow::Away, _)) if word.name().starts_with("br") => exits.indirect = true,
            (_, (flow @ (Flow::Away | Flow::Branch), Some(target))) => {
                exits.jump(&inside, at, address.wrapping_add(target), flow == Flow::Away);
            }
            _ => {}
        }
    }
    code.len().is_multiple_of(SIZE).then_some(())
}

/// See [`crate::first_return`].
pub(crate) fn first_return(code: &[u8]) -> Option<u32> {
    let mut words = code.chunks_exact(SIZE).enumerate();
    words.find_map(|(i, word)| {
        let word = Word::decode(word, (i * SIZE) as u32)?;
        word.name().starts_with("ret").then_some(word.at)
    })
}
