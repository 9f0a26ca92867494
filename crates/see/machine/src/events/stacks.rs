//! Records of a perf event's ring, as perf_event_open(2) describes them: samples with their stacks, and the
//! life of their processes.

/// A record of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A thread on CPU. Frames are addresses, innermost first.
    Sample {
        /// Its process.
        pid: u32,
        /// Its number.
        tid: u32,
        /// Frames in the kernel.
        kernel: Vec<u64>,
        /// Frames in user code.
        user: Vec<u64>,
        /// Registers of user code, in the order of the mask that the event asked for; none of code of 32 bits.
        registers: Vec<u64>,
    },
    /// A thread got a name.
    Name {
        /// Its process.
        pid: u32,
        /// Its number.
        tid: u32,
        /// The name.
        name: String,
    },
    /// A thread began.
    Began {
        /// Its process.
        pid: u32,
        /// The process that began it.
        parent: u32,
        /// Its number.
        tid: u32,
        /// The thread that began it.
        by: u32,
    },
    /// A thread ended.
    Ended {
        /// Its number.
        tid: u32,
    },
    /// The number of records that found the ring full.
    Lost(u64),
}

// enum perf_event_type, linux/perf_event.h
const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_EXIT: u32 = 4;
const PERF_RECORD_FORK: u32 = 7;
const PERF_RECORD_SAMPLE: u32 = 9;

/// The smallest marker word in a stack: addresses lie below.
const CONTEXT: u64 = -4095i64 as u64;
/// The following frames are the program's (`PERF_CONTEXT_USER`).
const USER: u64 = -512i64 as u64;
/// The following frames are the kernel's (`PERF_CONTEXT_KERNEL`).
const KERNEL: u64 = -128i64 as u64;

/// The fields that samples must have: `PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN |
/// PERF_SAMPLE_REGS_USER`. Events need `sample_id_all` too, so that the other records end with the first two of these
/// fields.
pub const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 5 | 1 << 12;

/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

/// Calls `each` with the records of a ring and their times, in nanoseconds of the event's clock. Returns the
/// number of bytes at the end that do not form a record.
pub fn parse(bytes: &[u8], mut each: impl FnMut(u64, Record)) -> usize {
    let mut rest = bytes;
    // struct perf_event_header: u32 type, u16 misc, u16 size
    while let Some((kind, size)) = u32_at(rest, 0).zip(u16_at(rest, 6)) {
        let Some(body) = rest.get(8..size.into()) else { break };
        if let Some((time, record)) = time(kind, body).zip(record(kind, body)) {
            each(time, record);
        }
        rest = &rest[usize::from(size)..];
    }
    rest.len()
}

/// A sample has its time after its thread; other records end with it (`struct sample_id`).
fn time(kind: u32, body: &[u8]) -> Option<u64> {
    match kind {
        PERF_RECORD_SAMPLE => u64_at(body, 8),
        _ => u64_at(body, body.len().checked_sub(8)?),
    }
}

#[allow(non_upper_case_globals)] // The kernel's names.
fn record(kind: u32, body: &[u8]) -> Option<Record> {
    let (pid, second) = (u32_at(body, 0)?, u32_at(body, 4)?);
    Some(match kind {
        PERF_RECORD_SAMPLE => {
            let n = usize::try_from(u64_at(body, 16)?).ok()?;
            let (mut kernel, mut user, mut at) = (Vec::new(), Vec::new(), 0);
            let end = n.checked_mul(8)?.checked_add(24)?;
            for word in body.get(24..end)?.chunks_exact(8) {
                let word = u64_at(word, 0)?;
                match word {
                    CONTEXT.. => at = word,
                    _ if at == USER => user.push(word),
                    _ if at == KERNEL => kernel.push(word),
                    _ => {}
                }
            }
            // Their form, then the registers: no word more.
            let rest = body.get(end + 8..).filter(|_| u64_at(body, end) == Some(ABI_64)).unwrap_or_default();
            let registers = rest.chunks_exact(8).filter_map(|word| u64_at(word, 0)).collect();
            Record::Sample { pid, tid: second, kernel, user, registers }
        }
        PERF_RECORD_COMM => {
            let name = body.get(8..)?.split(|&b| b == 0).next()?;
            Record::Name { pid, tid: second, name: String::from_utf8_lossy(name).into_owned() }
        }
        PERF_RECORD_FORK => {
            Record::Began { pid, parent: second, tid: u32_at(body, 8)?, by: u32_at(body, 12)? }
        }
        PERF_RECORD_EXIT => Record::Ended { tid: u32_at(body, 8)? },
        PERF_RECORD_LOST => Record::Lost(u64_at(body, 8)?),
        _ => return None,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?)).filter(|&size| size >= 8)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(kind: u32, words: &[u32], tail: &[u8]) -> Vec<u8> {
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend(0u16.to_ne_bytes());
        out.extend(((8 + words.len() * 4 + tail.len()) as u16).to_ne_bytes());
        words.iter().for_each(|w| out.extend(w.to_ne_bytes()));
        out.extend(tail);
        out
    }

    #[test]
    fn records_are_told_apart() {
        let id = |time: u64| [[7u32, 8].map(u32::to_ne_bytes).concat(), time.to_ne_bytes().to_vec()].concat();
        let chain: Vec<u8> = [103, 6, KERNEL, 0xffff_8000, USER, 0x1000, 0x2000, 0x3000, ABI_64, 21, 22]
            .iter()
            .flat_map(|w: &u64| w.to_ne_bytes())
            .collect();
        let bytes = [
            put(PERF_RECORD_COMM, &[7, 8], &[b"a;b\n\0\0\0\0".to_vec(), id(101)].concat()),
            put(PERF_RECORD_FORK, &[9, 7, 9, 8, 0, 0], &id(102)),
            put(99, &[1, 2, 3], &[]),
            put(PERF_RECORD_SAMPLE, &[7, 8], &chain),
            put(PERF_RECORD_LOST, &[0, 0, 5, 0], &id(104)),
            put(PERF_RECORD_EXIT, &[9, 7, 9, 8, 0, 0], &id(105)),
            put(PERF_RECORD_EXIT, &[9, 7, 9, 8], &[])[..12].to_vec(),
        ]
        .concat();
        let mut got = Vec::new();
        assert_eq!(parse(&bytes, |time, record| got.push((time, record))), 12, "the last one is cut off");
        assert_eq!(
            got,
            [
                (101, Record::Name { pid: 7, tid: 8, name: "a;b\n".into() }),
                (102, Record::Began { pid: 9, parent: 7, tid: 9, by: 8 }),
                (
                    103,
                    Record::Sample {
                        pid: 7,
                        tid: 8,
                        kernel: vec![0xffff_8000],
                        user: vec![0x1000, 0x2000, 0x3000],
                        registers: vec![21, 22],
                    }
                ),
                (104, Record::Lost(5)),
                (105, Record::Ended { tid: 9 }),
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(parse(&bytes, |_, _| ()) <= bytes.len());
        }

        #[test]
        fn any_record_is_survived(kind in 0u32..12, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = put(kind, &[], &body);
            prop_assert_eq!(parse(&bytes, |_, _| ()), 0);
        }
    }
}
