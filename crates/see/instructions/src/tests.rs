use proptest::prelude::*;

use super::*;
use crate::registers::x86_64::{R8, RAX, RCX, RDI, RDX};
use Machine::{Aarch64, X86_64};

/// A loop that follows pointers and computes beside.
const CHASE: &[u8] = b"\x48\x8b\x00\x48\x83\xc1\x01\x48\x0f\xaf\xd1\x48\x39\xf1\x75\xf0\xc3";
/// mov 0x40(%rdi),%eax; test %eax,%eax; je.
const SPIN: &[u8] = b"\x8b\x47\x40\x85\xc0\x74\xf9\xc3";
/// mov (%rdi),%rdi; test %rdi,%rdi; jne.
const LIST: &[u8] = b"\x48\x8b\x3f\x48\x85\xff\x75\xf8\xc3";
/// mov $1,%eax; xchg %eax,(%rdi); test %eax,%eax; jne.
const EXCHANGE: &[u8] = b"\xb8\x01\x00\x00\x00\x87\x07\x85\xc0\x75\xf5\xc3";
/// mov (%rdi,%rcx,8),%rax; add $1,%rax; mov %rax,(%rdi,%rcx,8); sub $1,%rdx; jne.
const COUNT: &[u8] = b"\x48\x8b\x04\xcf\x48\x83\xc0\x01\x48\x89\x04\xcf\x48\x83\xea\x01\x75\xee\xc3";
/// cmp %rdx,(%rdi); jne.
const COMPARE: &[u8] = b"\x48\x39\x17\x75\xfb\xc3";

fn registers(set: &[(usize, u64)]) -> Registers {
    let mut all = [0; registers::x86_64::COUNT];
    set.iter().for_each(|&(i, value)| all[i] = value);
    Registers::X86_64(all)
}

#[test]
fn the_instruction_before_a_sample_waited() {
    let code = Code::decode(X86_64, CHASE);
    assert_eq!(code.waited(3), Some(Waited::For(0)));
    assert_eq!(code.instructions()[0].kind, Kind::Load);
    assert_eq!(code.waited(4), None, "no instruction begins there");
    // The loop's head: it came from the branch, which is one instruction with the comparison before.
    assert_eq!(code.waited(0), Some(Waited::For(3)));
    assert_eq!(
        Code::decode(X86_64, COMPARE).waited(0),
        Some(Waited::For(0)),
        "a comparison that waits for its operand"
    );
    assert_eq!(Code::decode(X86_64, COUNT).waited(0), Some(Waited::For(3)));
    // call; mov: the callee ran last.
    assert_eq!(Code::decode(X86_64, b"\xe8\x00\x00\x00\x00\x48\x8b\x00").waited(5), Some(Waited::Entered));
    // je over the load: either came last.
    assert_eq!(Code::decode(X86_64, b"\x74\x03\x48\x8b\x00\x90\xc3").waited(5), Some(Waited::Perhaps(1)));
    // cqto; idiv %rsi; add %rax,%rcx: at the division it has not ended. mov (%rdi),%rdx; idiv %rsi: the load may have waited.
    let code = Code::decode(X86_64, b"\x48\x99\x48\xf7\xfe\x48\x01\xc1\xc3");
    assert_eq!((code.waited(2), code.waited(5)), (Some(Waited::For(1)), Some(Waited::For(1))));
    let code = Code::decode(X86_64, b"\x48\x8b\x17\x48\xf7\xfe\xc3");
    assert_eq!(code.waited(3), Some(Waited::For(0)));
    // jmp into the loop, at its test: the loop comes by more often.
    assert_eq!(
        Code::decode(X86_64, b"\xeb\x03\x48\x8b\x00\x48\x85\xc0\x75\xf8\xc3").waited(5),
        Some(Waited::For(1))
    );
}

#[test]
fn instructions_that_others_answer_have_kinds_of_their_own() {
    // cpuid; rdrand %rax; rdseed %rax; rdtsc; mov (%rdi),%eax.
    let code = Code::decode(X86_64, b"\x0f\xa2\x48\x0f\xc7\xf0\x48\x0f\xc7\xf8\x0f\x31\x8b\x07");
    let kinds: Vec<Kind> = code.instructions().iter().map(|i| i.kind).collect();
    assert_eq!(kinds, [Kind::Identify, Kind::Random, Kind::Random, Kind::Long, Kind::Load]);
    assert!(kinds[..4].iter().all(|kind| kind.is_long()) && !Kind::Load.is_long());
    assert_eq!(code.waited(2), Some(Waited::For(0)), "a sample is met behind it");
}

#[test]
fn pauses_are_met_at_them_and_behind_them() {
    use crate::pauses;
    assert!(
        pauses(X86_64, *b"\x8b\x07\xf3\x90\x85\xc0\x75\xf8")
            && pauses(X86_64, *b"\0\0\x8b\x07\xf3\x90\x85\xc0")
    );
    assert!(!pauses(X86_64, *b"\xf3\x90\x8b\x07\x85\xc0\x75\xf8"), "it is two instructions before");
    assert!(!pauses(X86_64, *b"\x8b\x07\x85\xc0\x75\xf8\xf3\x90"), "it is not met yet");
    let words = |before: u32, here: u32| {
        let mut code = [0; 8];
        code[..4].copy_from_slice(&before.to_le_bytes());
        code[4..].copy_from_slice(&here.to_le_bytes());
        pauses(Machine::Aarch64, code)
    };
    const LOAD: u32 = 0xb940_0001;
    // yield, wfe, wfet x3, isb
    for pause in [0xd503_203f, 0xd503_205f, 0xd503_1003, 0xd503_3fdf] {
        assert!(words(pause, LOAD) && words(LOAD, pause), "{pause:#x}");
    }
    // nop, dsb sy
    for other in [0xd503_201f, 0xd503_3f9f, LOAD] {
        assert!(!words(other, LOAD), "{other:#x}");
    }
}

#[test]
fn operands_lie_where_registers_say() {
    let address = |code: &[u8], set: &[(usize, u64)]| {
        let operand = Code::decode(X86_64, code).instructions()[0].operand?;
        operand.address(&registers(set), 0x40_0000).map(|a| (a.at, a.size))
    };
    assert_eq!(address(COUNT, &[(RDI, 0x1000), (RCX, 3)]), Some((0x1018, 8)));
    assert_eq!(address(SPIN, &[(RDI, 0x1000)]), Some((0x1040, 4)));
    // mov 0x10(%rip),%eax, six bytes long.
    assert_eq!(address(b"\x8b\x05\x10\x00\x00\x00", &[]), Some((0x40_0016, 4)));
    // mov %fs:0,%rax; vpgatherdd: nothing that registers lead to.
    assert_eq!(address(b"\x64\x48\x8b\x04\x25\x00\x00\x00\x00", &[]), None);
    assert_eq!(address(b"\xc4\xe2\x6d\x90\x04\x08", &[]), None);
    // push %rax: the stack.
    assert_eq!(address(b"\x50", &[]), None);
    let chase = Code::decode(X86_64, CHASE).instructions()[0].operand.unwrap();
    assert_eq!(chase.stale, Stale::Next);
    assert_eq!(chase.address(&registers(&[(RAX, 0x2000)]), 0).map(|a| a.at), Some(0x2000));
    // mov (%rax),%eax: what was loaded is no address.
    assert_eq!(address(b"\x8b\x00", &[(RAX, 0x2000)]), None);
    // mov (%rax,%rcx),%rcx.
    assert_eq!(address(b"\x48\x8b\x0c\x08", &[(RAX, 0x2000)]), None);
}

#[test]
fn an_index_that_a_loop_leaves_alone_is_that_of_the_next_load() {
    let stale = |code: &[u8]| Code::decode(X86_64, code).instructions()[0].operand.unwrap().stale;
    // mov (%r8,%rdx,8),%rdx; add $1,%ecx; cmp %ecx,%esi; jne back.
    let chase = b"\x49\x8b\x14\xd0\x83\xc1\x01\x39\xce\x75\xf5";
    assert_eq!(stale(chase), Stale::Next);
    // The same with %edx as its destination.
    assert_eq!(stale(b"\x41\x8b\x14\xd0\x83\xc1\x01\x39\xce\x75\xf5"), Stale::Next);
    // mov (%r8,%rdx,8),%rdx; xor %rcx,%rdx; jne back: a table's entry, and another index the next time.
    assert_eq!(stale(b"\x49\x8b\x14\xd0\x48\x31\xca\x75\xf7"), Stale::NextIndex);
    // mov (%r8,%rdx),%dl; jne back: of one byte.
    assert_eq!(stale(b"\x41\x8a\x14\x10\x75\xfa"), Stale::Lost);
    // Without a loop.
    assert_eq!(stale(&chase[..4]), Stale::NextIndex);
    let operand = Code::decode(X86_64, chase).instructions()[0].operand.unwrap();
    let address = operand.address(&registers(&[(R8, 0x1000), (RDX, 4)]), 0);
    assert_eq!(address.map(|a| a.at), Some(0x1020));
}

#[test]
fn a_word_that_is_written_back_is_written() {
    let code = Code::decode(X86_64, COUNT);
    assert!(code.instructions()[0].operand.unwrap().written_back);
    // mov (%rdi),%rax; add $8,%rdi; mov %rax,(%rdi): another word.
    let moved = Code::decode(X86_64, b"\x48\x8b\x07\x48\x83\xc7\x08\x48\x89\x07");
    assert!(!moved.instructions()[0].operand.unwrap().written_back);
}

#[test]
fn loops_that_look_at_one_word_spin() {
    let spins = |code: &[u8]| Code::decode(X86_64, code).instructions().iter().any(|i| i.spins);
    assert!(spins(SPIN) && spins(EXCHANGE) && spins(COMPARE));
    assert!(!spins(LIST), "it looks at another word each time");
    assert!(!spins(CHASE) && !spins(COUNT));
    // mov (%rdi),%eax; add %eax,%edx; dec %ecx; jne: it sums.
    assert!(!spins(b"\x8b\x07\x01\xc2\xff\xc9\x75\xf8\xc3"));
    // mov (%rdi),%eax; dec %ecx; jne: nothing looks at what it reads.
    assert!(!spins(b"\x8b\x07\xff\xc9\x75\xfa\xc3"));
}

#[test]
fn kinds_are_by_what_may_wait() {
    let kind = |code: &[u8]| Code::decode(X86_64, code).instructions()[0].kind;
    assert_eq!(kind(b"\xf0\x48\x0f\xc1\x07"), Kind::Atomic, "lock xadd");
    assert_eq!(kind(b"\x48\x87\x07"), Kind::Atomic, "xchg with memory");
    assert_eq!(kind(b"\x48\x87\xc8"), Kind::Plain, "xchg of registers");
    assert_eq!(kind(b"\x0f\xae\xf0"), Kind::Atomic, "mfence");
    assert_eq!(kind(b"\x48\xf7\xf1"), Kind::Long, "div");
    assert_eq!(kind(b"\x48\x8d\x04\x0f"), Kind::Plain, "lea");
    assert_eq!(kind(b"\x0f\x1f\x40\x00"), Kind::Plain, "nop with an operand");
    assert_eq!(kind(b"\xf3\xa4"), Kind::Copy, "rep movsb");
    assert_eq!(kind(b"\x48\x01\x07"), Kind::Store, "add to memory");
    assert_eq!(
        Code::decode(X86_64, b"\xf3\xa4\xc3").waited(0),
        Some(Waited::For(0)),
        "it is interrupted midway"
    );
}

#[test]
fn a_fence_waits_for_the_store_before_it() {
    let place = |code: &[u8], fence: usize| {
        let code = Code::decode(X86_64, code);
        let instruction = &code.instructions()[fence];
        assert_eq!(instruction.kind, Kind::Atomic);
        let operand = instruction.operand.filter(|o| !o.on_stack)?;
        operand.address(&registers(&[(RDI, 0x1000), (RCX, 3)]), 0).map(|a| a.at)
    };
    // mov %rax,0x10(%rdi); lock addl $0,(%rsp).
    assert_eq!(place(b"\x48\x89\x47\x10\xf0\x83\x04\x24\x00\xc3", 1), Some(0x1010));
    // mov %rax,0x10(%rdi); mfence.
    assert_eq!(place(b"\x48\x89\x47\x10\x0f\xae\xf0\xc3", 1), Some(0x1010));
    // mov %rax,0x10(%rdi); mov %rcx,%rdi; mfence: where the store went is lost.
    assert_eq!(place(b"\x48\x89\x47\x10\x48\x89\xcf\x0f\xae\xf0\xc3", 2), None);
    // mov %rax,0x10(%rdi); jmp to what follows; mfence: another block.
    assert_eq!(place(b"\x48\x89\x47\x10\xeb\x00\x0f\xae\xf0\xc3", 2), None);
    // lock addl $1,0x10(%rdi) has an operand of its own.
    assert_eq!(place(b"\x48\x89\x01\xf0\x83\x47\x10\x01\xc3", 1), Some(0x1010));
}

#[test]
fn samples_beyond_those_of_the_block_are_stall() {
    let code = Code::decode(X86_64, CHASE);
    // The load, three plain ones, the branch, ret.
    let stall = stalls(&code, &[900, 30, 30, 20, 20, 0]);
    assert!((stall[0] - 875.0 / 900.0).abs() < 1e-9, "{stall:?}");
    assert_eq!(stall[1..], [0.0; 5]);
    assert_eq!(stalls(&code, &[30, 28, 31, 29, 30, 0])[0], 0.0, "it runs as often as the others");
    assert_eq!(stalls(&code, &[3, 1, 2, 1, 1, 0])[0], 0.0, "that could be chance");
}

#[test]
fn code_is_found_from_the_middle_of_an_instruction() {
    let whole: Vec<u8> = CHASE[..16].iter().copied().cycle().take(160).collect();
    let code = Code::resynchronized(X86_64, &whole[1..]);
    // The load of the third round, one byte less.
    let at = code.position(2 * 16 - 1).expect("decoded");
    assert_eq!(code.instructions()[at].kind, Kind::Load);
}

proptest! {
    #[test]
    fn any_bytes_decode_in_bounds(bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0u32..700, x86 in any::<[u64; 17]>(), arm in prop::collection::vec(any::<u64>(), 35)) {
        let arm = Registers::Aarch64(arm.try_into().unwrap());
        let codes = [X86_64, Aarch64].map(|m| [Code::decode(m, &bytes), Code::resynchronized(m, &bytes)]);
        for code in codes.into_iter().flatten() {
            let n = code.instructions().len();
            prop_assert!(n <= bytes.len());
            let waited = code.waited(at);
            if let Some(Waited::For(i) | Waited::Perhaps(i)) = waited {
                prop_assert!(i < n);
            }
            for instruction in code.instructions() {
                prop_assert!((instruction.block as usize) < code.blocks());
                for registers in [Registers::X86_64(x86), arm] {
                    let _ = instruction.operand.and_then(|o| o.address(&registers, u64::MAX));
                    let _ = instruction.operand.and_then(|o| o.ahead().address(&registers, u64::MAX));
                }
            }
            let counts = vec![3; n];
            prop_assert!(stalls(&code, &counts).iter().all(|s| (0.0..=1.0).contains(s)));
        }
    }
}
