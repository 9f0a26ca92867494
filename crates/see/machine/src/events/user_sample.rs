//! Samples of user code with its registers in a perf event's ring buffer: of a timer, or of an access to an address that a
//! debug register watches.

use super::sample::{Damaged, Record, half, records_of};

/// The `PERF_SAMPLE_*` flags, whose fields come in the order IP, TID, TIME, ADDR, CPU, REGS_USER.
pub const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7 | 1 << 12;
/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

/// A thread was met in user code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Address of the instruction that comes next.
    pub ip: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// When, ns by the clock of perf events.
    pub time: u64,
    /// The address that is watched; 0 of a timer's sample.
    pub address: u64,
    /// CPU.
    pub cpu: u32,
    /// The registers asked for, in the order of their bits; nothing of 32-bit code.
    pub registers: Vec<u64>,
}

/// Reads the records of a ring buffer, oldest first. Samples must have the fields of [`SAMPLE_TYPE`]. Records of other kinds are
/// skipped.
///
/// # Errors
/// [`Damaged`], after all earlier records were taken.
pub fn records(bytes: &[u8], take: impl FnMut(Record<Sample>)) -> Result<(), Damaged> {
    records_of(bytes, sample, take)
}

fn sample(words: &[[u8; 8]]) -> Option<Sample> {
    let (&[ip, ids, time, address, cpu, abi], registers) = words.split_first_chunk::<6>()?;
    let registers = if u64::from_ne_bytes(abi) == ABI_64 { registers } else { &[] };
    Some(Sample {
        ip: u64::from_ne_bytes(ip),
        pid: half(ids, 0),
        tid: half(ids, 1),
        time: u64::from_ne_bytes(time),
        address: u64::from_ne_bytes(address),
        cpu: half(cpu, 0),
        registers: registers.iter().map(|word| u64::from_ne_bytes(*word)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(s: &Sample, abi: u64) -> Vec<u8> {
        let words = [s.ip, u64::from(s.tid) << 32 | u64::from(s.pid), s.time, s.address, s.cpu.into(), abi];
        let words: Vec<u64> = words.into_iter().chain(s.registers.iter().copied()).collect();
        let mut out = 9_u32.to_ne_bytes().to_vec();
        out.extend([0, 0]);
        out.extend((8 + 8 * words.len() as u16).to_ne_bytes());
        out.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        out
    }

    fn all(bytes: &[u8]) -> (Vec<Record<Sample>>, Result<(), Damaged>) {
        let mut out = Vec::new();
        let end = records(bytes, |r| out.push(r));
        (out, end)
    }

    #[test]
    fn registers_of_32_bit_code_are_left_out() {
        let s = Sample { ip: 1, pid: 2, tid: 3, time: 4, address: 5, cpu: 6, registers: vec![7; 17] };
        assert_eq!(all(&encode(&s, ABI_64)), (vec![Record::Sample(s.clone())], Ok(())));
        for abi in [0, 1] {
            let bare = Sample { registers: Vec::new(), ..s.clone() };
            assert_eq!(all(&encode(&s, abi)).0, [Record::Sample(bare)]);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = all(&bytes);
        }

        #[test]
        fn what_is_written_is_read(
            fields in proptest::collection::vec(
                (any::<u64>(), any::<u32>(), any::<u32>(), proptest::collection::vec(any::<u64>(), 0..35)),
                0..10,
            ),
        ) {
            let samples: Vec<Sample> = fields
                .into_iter()
                .map(|(ip, pid, cpu, registers)| Sample {
                    ip, pid, tid: pid ^ 5, time: !ip, address: ip ^ 9, cpu, registers,
                })
                .collect();
            let bytes: Vec<u8> = samples.iter().flat_map(|s| encode(s, ABI_64)).collect();
            let (found, end) = all(&bytes);
            prop_assert_eq!(end, Ok(()));
            prop_assert_eq!(found, samples.into_iter().map(Record::Sample).collect::<Vec<_>>());
        }
    }
}
