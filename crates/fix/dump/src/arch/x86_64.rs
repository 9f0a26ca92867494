//! x86-64.

use super::{Frame, Gadgets, General, Sets};

/// `e_machine`.
pub(crate) const MACHINE: u16 = 62;
/// AUDIT_ARCH_X86_64: the machine, 64 bits, little endian.
pub(crate) const AUDIT: u32 = 0xc000_003e;
/// Bytes of the instruction that makes a system call.
pub(crate) const CALL_LENGTH: u64 = 2;
/// Bytes of the general registers, `struct user_regs_struct`.
pub(crate) const GENERAL: usize = 27 * 8;
/// Extended state: x87, SSE, AVX and what follows.
const NT_X86_XSTATE: u32 = 0x202;
/// Register sets in addition to the general ones.
pub(crate) const SETS: &[u32] = &[NT_X86_XSTATE];

/// Indices into `struct user_regs_struct`.
const R15: usize = 0;
const R14: usize = 1;
const R13: usize = 2;
const R12: usize = 3;
const RBP: usize = 4;
const RBX: usize = 5;
const R11: usize = 6;
const R10: usize = 7;
const R9: usize = 8;
const R8: usize = 9;
const RAX: usize = 10;
const RCX: usize = 11;
const RDX: usize = 12;
const RSI: usize = 13;
const RDI: usize = 14;
const ORIG_RAX: usize = 15;
const RIP: usize = 16;
const CS: usize = 17;
const EFLAGS: usize = 18;
const RSP: usize = 19;
const SS: usize = 20;
const FS_BASE: usize = 21;

/// The kernel's internal errors that request a restart of the interrupted call; programs never see them.
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;

pub(super) const PC: usize = RIP;
pub(super) const SP: usize = RSP;

impl General {
    /// The thread's control block, whose first word points to itself by the ABI.
    pub(crate) fn thread_block(&self) -> u64 {
        self.0[FS_BASE]
    }

    /// These registers, set up to execute a system call at `gadgets` on the stack `sp`.
    pub(crate) fn calling(&self, gadgets: Gadgets, sp: u64, number: i64, arguments: [u64; 6]) -> Self {
        let mut words = self.0;
        words[RAX] = number as u64;
        for (register, argument) in [RDI, RSI, RDX, R10, R8, R9].into_iter().zip(arguments) {
            words[register] = argument;
        }
        // Clears the interrupted call, so that the kernel does not restart it.
        words[ORIG_RAX] = u64::MAX;
        words[RIP] = gadgets.call;
        words[RSP] = sp;
        Self(words)
    }

    /// The result of the call, at its exit.
    pub(crate) fn result(&self) -> i64 {
        self.0[RAX] as i64
    }

    /// The registers that a thread restores by itself. The kernel restarts an interrupted call from its own
    /// state, which `rt_sigreturn` replaces, so the restart is written into the registers.
    ///
    /// A call that restarts with the rest of its timeout returns EINTR instead, as after any signal.
    fn by_itself(&self) -> Self {
        let mut words = self.0;
        if (words[ORIG_RAX] as i64) >= 0 {
            match words[RAX] as i64 {
                ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => {
                    words[RAX] = words[ORIG_RAX];
                    words[RIP] -= 2;
                }
                ERESTART_RESTARTBLOCK => {
                    words[RAX] = libc::SYS_restart_syscall as u64;
                    words[RIP] -= 2;
                }
                _ => {}
            }
        }
        Self(words)
    }
}

/// The instructions `syscall; ret`.
const CALL: &[u8] = &[0x0f, 0x05, 0xc3];
/// `mov $15, %rax; syscall` in the two encodings that C libraries use.
const SIGRETURN: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];

/// Looks for the gadgets in code; returns the position of the first of each.
pub(crate) fn find_gadgets(code: &[u8]) -> (Option<usize>, Option<usize>) {
    let find = |needle: &[u8]| code.windows(needle.len()).position(|window| window == needle);
    (find(CALL), SIGRETURN.iter().find_map(|needle| find(needle)))
}

/// Bytes below the stack pointer that code may use without moving it.
const RED_ZONE: u64 = 128;
/// `FP_XSTATE_MAGIC1` and 2 of asm/sigcontext.h.
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;

/// Builds the frame that the kernel would put on the stack for a signal, `struct rt_sigframe` and the extended state
/// above it.
///
/// A thread that executes `syscall; ret` on this stack returns to `gadgets.sigreturn`, and the kernel restores all
/// registers and its signal mask. `None` if the extended state has an unknown form.
pub(crate) fn frame(registers: &General, sets: &Sets, mask: u64, gadgets: Gadgets) -> Option<Frame> {
    let state = &sets.iter().find(|(kind, _)| *kind == NT_X86_XSTATE)?.1;
    // Its first 512 bytes are those of FXSAVE, with the enabled features in the part that programs may use
    // for data.
    let features = u64::from_ne_bytes(state.get(464..472)?.try_into().ok()?);
    let size = u32::try_from(state.len()).ok()?;
    if size < 576 || features & 3 != 3 {
        return None;
    }
    let state_at = (registers.sp() - RED_ZONE - u64::from(size) - 4) & !63;
    // The return address, struct ucontext, and space for struct siginfo, which is not read.
    let context = 304;
    let sp = (state_at - 8 - context - 128) & !15;
    let mut bytes = vec![0; (state_at - sp) as usize];
    let own = registers.by_itself();
    let word = |index: usize| own.0[index];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    put(0, gadgets.sigreturn);
    // UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
    put(8, 7);
    // Flags of an alternate stack that are invalid: the kernel refuses them and leaves the thread's stack
    // unchanged.
    put(8 + 24, 0xffff);
    let registers =
        [R8, R9, R10, R11, R12, R13, R14, R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP, RIP, EFLAGS];
    for (n, register) in registers.into_iter().enumerate() {
        put(8 + 40 + 8 * n, word(register));
    }
    // cs, gs, fs, ss: 16 bits each.
    put(8 + 40 + 144, word(CS) & 0xffff | (word(SS) & 0xffff) << 48);
    put(8 + 40 + 184, state_at);
    put(8 + 40 + 256, mask);
    bytes.extend_from_slice(state);
    // struct _fpx_sw_bytes: the part that the kernel restores.
    let software = (state_at - sp) as usize + 464;
    bytes[software..software + 48].fill(0);
    bytes[software..software + 4].copy_from_slice(&MAGIC1.to_ne_bytes());
    bytes[software + 4..software + 8].copy_from_slice(&(size + 4).to_ne_bytes());
    bytes[software + 8..software + 16].copy_from_slice(&features.to_ne_bytes());
    bytes[software + 16..software + 20].copy_from_slice(&size.to_ne_bytes());
    bytes.extend_from_slice(&MAGIC2.to_ne_bytes());
    Some(Frame { sp, scratch: sp + 8 + context, bytes })
}

/// The floating-point registers, as in NT_PRFPREG: the beginning of the extended state.
pub(crate) fn floating(sets: &Sets) -> Option<&[u8]> {
    sets.iter().find(|(kind, _)| *kind == NT_X86_XSTATE)?.1.get(..512)
}
