//! The verdict of a thread's seccomp filters on a call, determined before the call is made.
//!
//! A filter may kill the process for an unexpected call, and most containers and services have one. So the
//! filters are read (`PTRACE_SECCOMP_GET_FILTER`, for which we need CAP_SYS_ADMIN) and executed here, on
//! exactly the call that will be injected. The language is the classic BPF that the kernel accepts for
//! seccomp.

use std::io;

use crate::trace::ptrace_read;

const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
/// The kernel's limit on instructions of a filter.
const LONGEST: usize = 4096;
/// The most filters of one thread; the kernel's limit on their instructions together is 32,768.
const MOST: u64 = 32768;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

/// The combined verdict of all filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The call is made.
    Allow,
    /// The call is not made and returns this error.
    Errno(i32),
    /// The process is killed, gets a signal, or another process decides.
    Trouble,
}

/// The filters of a thread.
#[derive(Debug, Default)]
pub(crate) struct Filters(Vec<Vec<Instruction>>);

/// A call as filters see it, `struct seccomp_data`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: i64,
    /// AUDIT_ARCH of the machine.
    pub(crate) arch: u32,
    /// The address after the instruction that makes the call.
    pub(crate) pc: u64,
    pub(crate) arguments: [u64; 6],
}

impl Call {
    /// The 32-bit word at an offset that is a multiple of 4.
    fn word(&self, at: u32) -> Option<u32> {
        let half = |word: u64| if at.is_multiple_of(8) { word as u32 } else { (word >> 32) as u32 };
        match at {
            0 => Some(self.number as u32),
            4 => Some(self.arch),
            8 | 12 => Some(half(self.pc)),
            16..64 if at.is_multiple_of(4) => Some(half(self.arguments[(at as usize - 16) / 8])),
            _ => None,
        }
    }
}

impl Filters {
    /// Reads the filters of a stopped thread.
    ///
    /// # Errors
    /// We may not (CAP_SYS_ADMIN), or the kernel does not support it (CONFIG_CHECKPOINT_RESTORE).
    pub(crate) fn read(tid: i32) -> io::Result<Self> {
        let mut all = Vec::new();
        for index in 0..MOST {
            let mut raw = vec![[0u8; 8]; LONGEST];
            // The kernel copies at most LONGEST instructions of 8 bytes.
            let count = match ptrace_read(PTRACE_SECCOMP_GET_FILTER, tid, index, raw.as_mut_ptr().cast()) {
                Ok(count) => count as usize,
                // There are no further filters.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(Self(all)),
                Err(e) => return Err(e),
            };
            let words = raw.iter().take(count);
            all.push(words.map(|bytes| Instruction::from_bytes(*bytes)).collect());
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Their verdict on a call: the strictest counts.
    pub(crate) fn verdict(&self, call: &Call) -> Verdict {
        // The kernel compares actions as signed numbers, the smallest is the strictest.
        let answers = self.0.iter().map(|filter| run(filter, call).unwrap_or(KILL_PROCESS));
        // Of equal actions the newest filter's counts, which comes first.
        let Some(strictest) = answers.min_by_key(|answer| (answer & ACTION) as i32) else {
            return Verdict::Allow;
        };
        match strictest & ACTION {
            ALLOW | LOG => Verdict::Allow,
            ERRNO => Verdict::Errno((strictest & 0xffff).min(4095) as i32),
            _ => Verdict::Trouble,
        }
    }
}

impl Instruction {
    fn from_bytes([a, b, if_true, if_false, k @ ..]: [u8; 8]) -> Self {
        Self { code: u16::from_ne_bytes([a, b]), if_true, if_false, k: u32::from_ne_bytes(k) }
    }
}

// SECCOMP_RET of linux/seccomp.h.
const ACTION: u32 = 0xffff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;

/// Runs a filter. `None` if the kernel would not have accepted it.
fn run(filter: &[Instruction], call: &Call) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0usize;
    loop {
        let &Instruction { code, if_true, if_false, k } = filter.get(at)?;
        at += 1;
        // linux/bpf_common.h: class in three bits; the source of an operand is bit 3, 0 is k and 1 is X.
        let operand = if code & 8 == 0 { k } else { x };
        match (code & 7, code) {
            // LD and LDX: a word of the call, a constant, a word of scratch memory, or the length of the data.
            (0, 0x20) => a = call.word(k)?,
            (0, 0x00) => a = k,
            (0, 0x60) => a = *memory.get(k as usize)?,
            (0, 0x80) => a = 64,
            (1, 0x01) => x = k,
            (1, 0x61) => x = *memory.get(k as usize)?,
            (1, 0x81) => x = 64,
            // ST and STX.
            (2, 0x02) => *memory.get_mut(k as usize)? = a,
            (3, 0x03) => *memory.get_mut(k as usize)? = x,
            // ALU.
            (4, _) => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    // The kernel's filter returns 0 for a division by zero, which kills.
                    0x30 => match a.checked_div(operand) {
                        Some(quotient) => quotient,
                        None => return Some(0),
                    },
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.wrapping_shl(operand),
                    0x70 => a.wrapping_shr(operand),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                }
            }
            // JMP.
            (5, _) => {
                let yes = match code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if yes { if_true } else { if_false });
            }
            // RET a constant, or A.
            (6, 0x06) => return Some(k),
            (6, 0x16) => return Some(a),
            // MISC.
            (7, 0x07) => x = a,
            (7, 0x87) => a = x,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn i(code: u16, if_true: u8, if_false: u8, k: u32) -> Instruction {
        Instruction { code, if_true, if_false, k }
    }

    fn call(number: i64, first: u64) -> Call {
        Call { number, arch: 7, pc: 0x1_0000_0002, arguments: [first, 0, 0, 0, 0, 0] }
    }

    /// "Of another architecture: kill. Call 323 is an error. Call 9 kills if the high half of its argument is 1."
    fn filter() -> Vec<Instruction> {
        vec![
            i(0x20, 0, 0, 4),
            i(0x15, 1, 0, 7),
            i(0x06, 0, 0, KILL_PROCESS),
            i(0x20, 0, 0, 0),
            i(0x15, 0, 1, 323),
            i(0x06, 0, 0, ERRNO | 1),
            i(0x15, 0, 3, 9),
            i(0x20, 0, 0, 20),
            i(0x15, 0, 1, 1),
            i(0x06, 0, 0, KILL_PROCESS),
            i(0x06, 0, 0, ALLOW),
        ]
    }

    #[test]
    fn filters_answer_as_the_kernel_would() {
        let filters = Filters(vec![filter()]);
        assert_eq!(filters.verdict(&call(323, 0)), Verdict::Errno(1));
        assert_eq!(filters.verdict(&call(9, 1 << 32)), Verdict::Trouble);
        assert_eq!(filters.verdict(&call(9, 1)), Verdict::Allow);
        assert_eq!(filters.verdict(&call(1, 0)), Verdict::Allow);
        assert_eq!(filters.verdict(&Call { arch: 8, ..call(1, 0) }), Verdict::Trouble);
        assert_eq!(Filters::default().verdict(&call(323, 0)), Verdict::Allow);
    }

    #[test]
    fn the_strictest_of_several_filters_counts() {
        let one = |answer| vec![i(0x06, 0, 0, answer)];
        let all = |answers: &[u32]| Filters(answers.iter().map(|&a| one(a)).collect()).verdict(&call(1, 0));
        assert_eq!(all(&[ALLOW, LOG]), Verdict::Allow);
        assert_eq!(all(&[ALLOW, ERRNO | 38, LOG]), Verdict::Errno(38));
        // SECCOMP_RET_USER_NOTIF, SECCOMP_RET_TRACE, SECCOMP_RET_KILL_THREAD.
        for trouble in [0x7fc0_0000, 0x7ff0_0000, 0] {
            assert_eq!(all(&[ALLOW, trouble]), Verdict::Trouble, "{trouble:#x}");
        }
        assert_eq!(all(&[ERRNO | 1, KILL_PROCESS]), Verdict::Trouble);
    }

    #[test]
    fn arithmetic_is_the_kernels() {
        // A = (nr * 8 | 5) - 1, X = A, A = A << 1 ^ X; return A
        let program = vec![
            i(0x20, 0, 0, 0),
            i(0x24, 0, 0, 8),
            i(0x44, 0, 0, 5),
            i(0x14, 0, 0, 1),
            i(0x07, 0, 0, 0),
            i(0x64, 0, 0, 1),
            i(0xac, 0, 0, 0),
            i(0x16, 0, 0, 0),
        ];
        assert_eq!(run(&program, &call(3, 0)), Some(28 << 1 ^ 28));
        // The kernel, and this code, accept neither an endless program nor one that reads past the data.
        assert_eq!(run(&[i(0x20, 0, 0, 64)], &call(3, 0)), None);
        assert_eq!(run(&[i(0x00, 0, 0, 1)], &call(3, 0)), None);
        assert_eq!(run(&[i(0x05, 0, 0, u32::MAX)], &call(3, 0)), None);
    }
}
