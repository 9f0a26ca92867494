//! Code of AArch64, assembled by GNU as 2.40; the text of each is beside it.

use super::*;
use crate::registers::aarch64::{CALLED, COUNT, FIRST, PC, SP};
use Machine::{Aarch64, X86_64};

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn code(words: &[u32]) -> Code {
    Code::decode(Aarch64, &bytes(words))
}

fn registers(set: &[(usize, u64)]) -> Registers {
    let mut all = [0; COUNT];
    set.iter().for_each(|&(i, value)| all[i] = value);
    Registers::Aarch64(all)
}

/// 1: ldr x0,[x0]; add x1,x1,#1; mul x2,x2,x1; cmp x1,x6; b.ne 1b; ret
const CHASE: &[u32] = &[0xf9400000, 0x91000421, 0x9b017c42, 0xeb06003f, 0x54ffff81, 0xd65f03c0];
/// 1: ldr x3,[x0,x1,lsl #3]; add x3,x3,#1; str x3,[x0,x1,lsl #3]; subs x2,x2,#1; b.ne 1b; ret
const COUNT_UP: &[u32] = &[0xf8617803, 0x91000463, 0xf8217803, 0xf1000442, 0x54ffff81, 0xd65f03c0];

#[test]
fn the_instruction_before_a_sample_waited() {
    let chase = code(CHASE);
    assert_eq!(chase.waited(4), Some(Waited::For(0)));
    assert_eq!(chase.instructions()[0].kind, Kind::Load);
    assert_eq!(chase.waited(2), None, "no instruction begins there");
    assert_eq!(chase.waited(0), Some(Waited::For(3)), "the comparison is one with its branch");
    assert_eq!(chase.blocks(), 2);
    // bl f; ldr x0,[x0]
    assert_eq!(code(&[0x94000002, 0xf9400000]).waited(4), Some(Waited::Entered));
    // cbz x1,1f; ldr x0,[x2]; 1: nop; ret
    let either = code(&[0xb4000041, 0xf9400040, 0xd503201f, 0xd65f03c0]);
    assert_eq!(either.waited(8), Some(Waited::Perhaps(1)));
    assert_eq!(either.waited(4), Some(Waited::For(0)));
    // svc #0; cmn x0,#4095; ret: the kernel ran before.
    assert_eq!(code(&[0xd4000001, 0xb13ffc1f, 0xd65f03c0]).waited(4), Some(Waited::Entered));
    // b 2f; 1: ldr x0,[x0]; 2: cmp x0,#0; b.ne 1b; ret: the loop comes by more often than it begins.
    let begins_midway = code(&[0x14000002, 0xf9400000, 0xf100001f, 0x54ffffc1, 0xd65f03c0]);
    assert_eq!(begins_midway.waited(8), Some(Waited::For(1)));
    // ret; a constant that is not an instruction; nop; nop: nothing leads from there to what is behind.
    let with_data = code(&[0xd65f03c0, 0xffffffff, 0xd503201f, 0xd503201f]);
    assert_eq!(with_data.waited(8), Some(Waited::Entered));
    assert_eq!(with_data.waited(12), Some(Waited::For(2)));
    assert_eq!(code(&[0; 32]).instructions().len(), 0, "zeros are data");
}

#[test]
fn operands_lie_where_registers_say() {
    // By the registers behind the instruction, with the code at 0x40_0000: where it lay, and where it would lie if it were to run next.
    let places = |word: u32, set: &[(usize, u64)]| {
        let operand = code(&[word]).instructions()[0].operand?;
        let at = |o: Operand| o.address(&registers(set), 0x40_0000).map(|a| a.at);
        let size = operand.ahead().address(&registers(set), 0x40_0000)?.size;
        Some((at(operand), at(operand.ahead())?, size))
    };
    let (x0, x2, x3) = ((0, 0x1000), (2, 0x2000), (3, 0xffff_ffff_0000_0010));
    for (word, set, expected, text) in [
        (0xf9400000, vec![x0], (Some(0x1000), 0x1000, 8), "ldr x0,[x0]: the next of a list"),
        (0xb9404020, vec![(1, 0x1000)], (Some(0x1040), 0x1040, 4), "ldr w0,[x1,#64]"),
        (0xf85f7001, vec![x0], (Some(0xff7), 0xff7, 8), "ldur x1,[x0,#-9]"),
        // The base has moved by then.
        (0xf8408401, vec![x0], (Some(0xff8), 0x1000, 8), "ldr x1,[x0],#8"),
        (0xf8408c01, vec![x0], (Some(0x1000), 0x1008, 8), "ldr x1,[x0,#8]!"),
        (0xa8fe0c02, vec![x0], (Some(0x1020), 0x1000, 16), "ldp x2,x3,[x0],#-32"),
        (0xadbe0c02, vec![x0], (Some(0x1000), 0xfc0, 32), "stp q2,q3,[x0,#-64]!"),
        (0x4cdfa000, vec![x0], (Some(0xfe0), 0x1000, 32), "ld1 {v0.16b,v1.16b},[x0],#32"),
        (0x4cc54800, vec![x0, (5, 0x40)], (Some(0xfc0), 0x1000, 48), "ld3 {v0.4s-v2.4s},[x0],x5"),
        (0x0d009000, vec![x0], (Some(0x1000), 0x1000, 4), "st1 {v0.s}[1],[x0]"),
        // An index, extended and scaled.
        (0xb8a3d841, vec![x2, (3, 0x1_ffff_ffff)], (Some(0x1ffc), 0x1ffc, 4), "ldrsw x1,[x2,w3,sxtw #2]"),
        (0x38634841, vec![x2, x3], (Some(0x2010), 0x2010, 1), "ldrb w1,[x2,w3,uxtw]"),
        (0x3ca37841, vec![x2, (3, 2)], (Some(0x2020), 0x2020, 16), "str q1,[x2,x3,lsl #4]"),
        (0x58000081, vec![], (Some(0x40_0010), 0x40_0010, 8), "ldr x1,.+16"),
        (0xb9400fe1, vec![(SP, 0x7000)], (Some(0x700c), 0x700c, 4), "ldr w1,[sp,#12]"),
        (0xf8200001, vec![x0], (Some(0x1000), 0x1000, 8), "ldadd x0,x1,[x0]"),
        (0xd9601041, vec![x2], (Some(0x2010), 0x2010, 16), "ldg x1,[x2,#16]"),
        (0xd50b7423, vec![x2, (3, 0x3000)], (Some(0x3000), 0x3000, 64), "dc zva,x3"),
        // Of a pair, one is the base.
        (0xa9410002, vec![x0], (Some(0x1010), 0x1010, 16), "ldp x2,x0,[x0,#16]"),
        // The base is lost: 32 bits are no address; its signature is in it.
        (0xb9400000, vec![x0], (None, 0x1000, 4), "ldr w0,[x0]"),
        (0xf8202401, vec![x0], (None, 0x1010, 8), "ldraa x1,[x0,#16]"),
        // Tags are not part of an address.
        (0xb9404020, vec![(1, 0x3c00_0000_0000_1000)], (Some(0x1040), 0x1040, 4), "ldr w0,[x1,#64]"),
    ] {
        assert_eq!(places(word, &set), Some(expected), "{text}");
    }
    // ld1b {z0.b},p0/z,[x1]; dmb ish; add x0,x1,x2
    assert!([0xa400a020, 0xd5033bbf, 0x8b020020].iter().all(|word| places(*word, &[]).is_none()));
    let on_stack = code(&[0xb9400fe1, 0xb9404020]);
    assert!(on_stack.instructions()[0].operand.unwrap().on_stack);
    assert!(!on_stack.instructions()[1].operand.unwrap().on_stack);
}

#[test]
fn registers_of_another_machine_lead_nowhere() {
    let arm = code(CHASE).instructions()[0].operand.unwrap();
    let x86 = Code::decode(X86_64, b"\x48\x8b\x00").instructions()[0].operand.unwrap();
    let of_x86 = Registers::X86_64([0x1000; registers::x86_64::COUNT]);
    assert_eq!(arm.address(&of_x86, 0), None);
    assert_eq!(x86.address(&registers(&[(10, 0x1000)]), 0), None);
    assert!(x86.address(&of_x86, 0).is_some());
    assert_eq!((Machine::of_elf(62), Machine::of_elf(183)), (Some(X86_64), Some(Aarch64)));
    assert_eq!((Machine::of_elf(3), Machine::of_elf(40)), (None, None), "processors of 32 bits");
}

#[test]
fn a_call_that_has_ended_left_its_result() {
    let set = [(0, -11i64 as u64), (FIRST, 5), (PC, 0x40_1004)];
    assert_eq!(registers(&set).called(), None);
    let called = registers(&[set.as_slice(), &[(CALLED, 1)]].concat());
    assert_eq!(called.called(), Some(Called { result: -11, first: 5 }));
    assert_eq!(called.ip(), 0x40_1004);
}

#[test]
fn an_index_that_a_loop_leaves_alone_is_that_of_the_next_load() {
    let stale = |words: &[u32]| code(words).instructions()[0].operand.unwrap().stale;
    // 1: ldr x2,[x8,x2,lsl #3]; add w1,w1,#1; cmp w1,w6; b.ne 1b
    assert_eq!(stale(&[0xf8627902, 0x11000421, 0x6b06003f, 0x54ffffa1]), Stale::Next);
    // 1: ldr w2,[x8,w2,uxtw #2]; …
    assert_eq!(stale(&[0xb8625902, 0x11000421, 0x6b06003f, 0x54ffffa1]), Stale::Next);
    // 1: ldr x2,[x8,x2,lsl #3]; eor x2,x2,x1; cbnz x2,1b
    assert_eq!(stale(&[0xf8627902, 0xca010042, 0xb5ffffc2]), Stale::NextIndex);
    assert_eq!(stale(&[0xf8627902]), Stale::NextIndex, "without a loop");
}

#[test]
fn a_word_that_is_written_back_is_written() {
    let written_back = |words: &[u32]| code(words).instructions()[0].operand.unwrap().written_back;
    assert!(written_back(COUNT_UP));
    // 1: ldxr w3,[x0]; add w3,w3,#1; stxr w4,w3,[x0]; cbnz w4,1b
    assert!(written_back(&[0x885f7c03, 0x11000463, 0x88047c03, 0x35ffffa4]));
    // 1: ldaxr w3,[x0]; cmp w3,w2; b.ge 2f; stlxr w4,w2,[x0]; cbnz w4,1b; 2: ret
    assert!(written_back(&[0x885ffc03, 0x6b02007f, 0x5400006a, 0x8804fc02, 0x35ffff84, 0xd65f03c0]));
    // ldr x1,[x0],#8; str x1,[x0]
    assert!(!written_back(&[0xf8408401, 0xf9000001]), "another word");
}

#[test]
fn loops_that_look_at_one_word_spin() {
    for (spins, words, text) in [
        (true, &[0xb9404020, 0x34ffffe0, 0xd65f03c0][..], "1: ldr w0,[x1,#64]; cbz w0,1b"),
        (
            true,
            &[0x39400020, 0x12001c00, 0x7100001f, 0x54ffffa0],
            "1: ldrb w0,[x1]; and w0,w0,#0xff; cmp w0,#0; b.eq 1b",
        ),
        (true, &[0xd503203f, 0x88dffc20, 0x34ffffc0], "1: yield; ldar w0,[x1]; cbz w0,1b"),
        (true, &[0xb8a28003, 0x35ffffe3], "1: swpa w2,w3,[x0]; cbnz w3,1b"),
        (
            true,
            &[0x90000000, 0xb9400800, 0x7100001f, 0x54ffffa0],
            "1: adrp x0,flag; ldr w0,[x0,#8]; cmp w0,#0; b.eq 1b: the address is made anew each time",
        ),
        (false, &[0xf9400021, 0xb5ffffe1], "1: ldr x1,[x1]; cbnz x1,1b: another word each time"),
        (false, &[0xf8408c40, 0xb5ffffe0], "1: ldr x0,[x2,#8]!; cbnz x0,1b: the same"),
        (
            false,
            &[0xb9400020, 0x0b000042, 0x71000463, 0x54ffffa1],
            "1: ldr w0,[x1]; add w2,w2,w0; subs w3,w3,#1; b.ne 1b: it sums",
        ),
        (
            false,
            &[0xb9400020, 0x71000463, 0x54ffffc1],
            "1: ldr w0,[x1]; subs w3,w3,#1; b.ne 1b: nothing looks at what it reads",
        ),
        (false, &[0xb9400020, 0xb9000040, 0x34ffffc0], "1: ldr w0,[x1]; str w0,[x2]; cbz w0,1b: it writes"),
        (false, &[0xb9400020, 0x94000003, 0x34ffffc0], "1: ldr w0,[x1]; bl f; cbz w0,1b: it calls"),
        (false, CHASE, "it computes"),
        (false, COUNT_UP, "it counts"),
        // Loops that come back since another has written meanwhile.
        (
            false,
            &[0x885f7c03, 0x11000463, 0x88047c03, 0x35ffffa4],
            "1: ldxr w3,[x0]; add w3,w3,#1; stxr w4,w3,[x0]; cbnz w4,1b",
        ),
        (
            false,
            &[0x885ffc03, 0x6b02007f, 0x5400006a, 0x8804fc02, 0x35ffff84, 0xd65f03c0],
            "1: ldaxr w3,[x0]; cmp w3,w2; b.ge 2f; stlxr w4,w2,[x0]; cbnz w4,1b; 2: ret: the greatest of both",
        ),
    ] {
        assert_eq!(code(words).instructions().iter().any(|i| i.spins), spins, "{text}");
    }
    let spinning =
        |words: &[u32]| -> Vec<bool> { code(words).instructions().iter().map(|i| i.spins).collect() };
    // 1: ldaxr w3,[x0]; stxr w4,w2,[x0]; cbnz w4,1b; cbnz w3,1b; ret: an exchange, tried until the word was 0.
    assert_eq!(
        spinning(&[0x885ffc03, 0x88047c02, 0x35ffffc4, 0x35ffffa3, 0xd65f03c0]),
        [true, true, true, true, false]
    );
    // 1: wfe; ldaxr w3,[x0]; cbnz w3,1b; stxr w4,w2,[x0]; cbnz w4,1b; ret: it waits for 0, and its store may fail.
    assert_eq!(
        spinning(&[0xd503205f, 0x885ffc03, 0x35ffffc3, 0x88047c02, 0x35ffff84, 0xd65f03c0]),
        [true, true, true, false, false, false]
    );
}

#[test]
fn kinds_are_by_what_may_wait() {
    for (kind, word, text) in [
        (Kind::Atomic, 0xb8210002, "ldadd w1,w2,[x0]"),
        (Kind::Atomic, 0xb821001f, "stadd w1,[x0]"),
        (Kind::Atomic, 0xf8e10002, "ldaddal x1,x2,[x0]"),
        (Kind::Atomic, 0x88e1fc02, "casal w1,w2,[x0]"),
        (Kind::Atomic, 0x48607c82, "caspa x0,x1,x2,x3,[x4]"),
        (Kind::Atomic, 0xf8618002, "swpl x1,x2,[x0]"),
        (Kind::Atomic, 0x885f7c01, "ldxr w1,[x0]"),
        (Kind::Atomic, 0xc8258801, "stlxp w5,x1,x2,[x0]"),
        (Kind::Atomic, 0xd5033bbf, "dmb ish"),
        (Kind::Atomic, 0xd5033f9f, "dsb sy"),
        (Kind::Load, 0x88dffc01, "ldar w1,[x0]"),
        (Kind::Store, 0x889ffc01, "stlr w1,[x0]"),
        (Kind::Load, 0xf8bfc001, "ldapr x1,[x0]"),
        (Kind::Long, 0x9ac20c20, "sdiv x0,x1,x2"),
        (Kind::Long, 0x1ac20820, "udiv w0,w1,w2"),
        (Kind::Long, 0x1e621820, "fdiv d0,d1,d2"),
        (Kind::Long, 0x6e22fc20, "fdiv v0.4s,v1.4s,v2.4s"),
        (Kind::Long, 0x1e21c020, "fsqrt s0,s1"),
        (Kind::Long, 0x04940020, "sdiv z0.s,p0/m,z0.s,z1.s"),
        (Kind::Long, 0xd5033fdf, "isb"),
        (Kind::Long, 0xd53be040, "mrs x0,cntvct_el0"),
        (Kind::Plain, 0xd53bd040, "mrs x0,tpidr_el0"),
        (Kind::Plain, 0xf9800000, "prfm pldl1keep,[x0]"),
        (Kind::Plain, 0xd503233f, "paciasp"),
        (Kind::Plain, 0xd503245f, "bti c"),
        (Kind::Plain, 0xd503203f, "yield"),
        (Kind::Plain, 0x8b020020, "add x0,x1,x2"),
        (Kind::Plain, 0xd65f0bff, "retaa"),
        (Kind::Store, 0x3d800000, "str q0,[x0]"),
        (Kind::Load, 0x4c407000, "ld1 {v0.16b},[x0]"),
        (Kind::Load, 0xa400a020, "ld1b {z0.b},p0/z,[x1]"),
        (Kind::Store, 0xe5e24020, "st1d {z0.d},p0,[x1,x2,lsl #3]"),
        (Kind::Store, 0xd50b7423, "dc zva,x3"),
        (Kind::Copy, 0x1d410440, "cpym [x0]!,[x1]!,x2!"),
    ] {
        assert_eq!(code(&[word]).instructions()[0].kind, kind, "{text}");
    }
    // It is interrupted midway.
    assert_eq!(code(&[0x1d410440, 0xd65f03c0]).waited(0), Some(Waited::For(0)));
}

/// __aarch64_ldadd4_acq_rel of libgcc: with one instruction where the processor has it, else by a loop.
const OUTLINED: &[u32] = &[
    0xd0000490, // adrp x16,…
    0x39417210, // ldrb w16,[x16,#92]
    0x34000070, // cbz w16,1f
    0xb8e00020, // ldaddal w0,w0,[x1]
    0xd65f03c0, // ret
    0x2a0003f0, // 1: mov w16,w0
    0x885ffc20, // 2: ldaxr w0,[x1]
    0x0b100011, // add w17,w0,w16
    0x880ffc31, // stlxr w15,w17,[x1]
    0x35ffffaf, // cbnz w15,2b
    0xd65f03c0, // ret
];

#[test]
fn the_helpers_of_a_compiler_are_atomic_operations() {
    let code = code(OUTLINED);
    let kinds: Vec<Kind> = code.instructions().iter().map(|i| i.kind).collect();
    let atomic: Vec<usize> = (0..kinds.len()).filter(|i| kinds[*i] == Kind::Atomic).collect();
    assert_eq!(atomic, [3, 6, 8]);
    assert!(code.instructions().iter().all(|i| !i.spins));
    for (sample, waited) in [(16, 3), (28, 6), (36, 8)] {
        assert_eq!(code.waited(sample), Some(Waited::For(waited)));
        let operand = code.instructions()[waited].operand.unwrap();
        assert!(operand.writes || operand.written_back);
        let address = operand.address(&registers(&[(1, 0x2000)]), 0);
        assert_eq!(address, Some(Address { at: 0x2000, size: 4 }));
    }
    // Samples of the one instruction are its stall; none are of the loop.
    let mut counts = vec![0; kinds.len()];
    counts[3] = 40;
    assert_eq!(stalls(&code, &counts)[3], 1.0);
}

#[test]
fn a_fence_waits_for_the_store_before_it() {
    // By the registers behind the fence, and so where it would lie if it were to run next.
    let place = |words: &[u32], fence: usize| {
        let code = code(words);
        let instruction = &code.instructions()[fence];
        assert_eq!(instruction.kind, Kind::Atomic);
        let at = |o: Operand| o.address(&registers(&[(1, 0x1010), (3, 0x3000)]), 0).map(|a| a.at);
        let operand = instruction.operand?;
        assert_eq!(at(operand), at(operand.ahead()));
        at(operand)
    };
    // str x0,[x1,#16]; dmb ish
    assert_eq!(place(&[0xf9000820, 0xd5033bbf], 1), Some(0x1020));
    // str x0,[x1],#16; dmb ish
    assert_eq!(place(&[0xf8010420, 0xd5033bbf], 1), Some(0x1000), "its base has moved");
    // str x0,[x1,#16]; mov x1,x3; dmb ish
    assert_eq!(place(&[0xf9000820, 0xaa0303e1, 0xd5033bbf], 2), None, "where the store went is lost");
}

#[test]
fn calls_change_the_registers_that_they_may() {
    // ldr x2,[x1]; blr x3; str x2,[x1]: x1 may be another by then.
    let lost = code(&[0xf9400022, 0xd63f0060, 0xf9000022]);
    assert!(!lost.instructions()[0].operand.unwrap().written_back);
    // ldr x2,[x19]; blr x3; str x2,[x19]
    let kept = code(&[0xf9400262, 0xd63f0060, 0xf9000262]);
    assert!(kept.instructions()[0].operand.unwrap().written_back);
}

#[test]
fn control_leaves_a_function_where_it_returns_or_jumps_out() {
    // paciasp; cbz x0,1f; ret; 1: tbnz x1,#3,0x2000; b.ne 0x3000; blr x1; retaa; b 0x4000; br x1
    let words = [
        0xd503233f,
        0xb4000040,
        0xd65f03c0,
        0x371fffa1 & !(0x3fff << 5) | (((0x2000 - 0x100c) / 4) << 5),
        0x54000001 | (((0x3000 - 0x1010) / 4) << 5),
        0xd63f0020,
        0xd65f0bff,
        0x14000000 | ((0x4000 - 0x101c) / 4),
        0xd61f0020,
    ];
    let found = exits(Aarch64, &bytes(&words), 0x1000).expect("instructions");
    let expected = Exits {
        returns: vec![8, 24],
        jumps: vec![0x2000, 0x3000, 0x4000],
        ends: vec![(28, Some(0x4000))],
        indirect: true,
    };
    assert_eq!(found, expected);
    assert_eq!(first_return(Aarch64, &bytes(&words)), Some(8));
    // A call by a register stays; a constant is not an instruction; backwards out of the function.
    let found =
        exits(Aarch64, &bytes(&[0xd63f0020, 0xffff_ffff, 0x17ff_fffd]), 0x1000).expect("instructions");
    assert_eq!(found, Exits { jumps: vec![0xffc], ends: vec![(8, Some(0xffc))], ..Exits::default() });
    assert_eq!(exits(Aarch64, &[0xc0, 0x03, 0x5f], 0), None, "cut");
    assert_eq!(entry(Aarch64, &bytes(&words)), 0);
}

#[test]
fn samples_beyond_those_of_the_block_are_stall() {
    let chase = code(CHASE);
    let stall = stalls(&chase, &[900, 30, 30, 20, 20, 0]);
    assert!((stall[0] - 875.0 / 900.0).abs() < 1e-9, "{stall:?}");
    assert_eq!(stall[1..], [0.0; 5]);
}
