//! Records of a perf event's ring, as perf_event_open(2) describes them: samples with their stacks, and what became of
//! the processes they were taken in.

use ncpu_machine::events::TYPE_SOFTWARE;
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK, PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK,
    PERF_RECORD_LOST, PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_TID, perf_event_attr,
};

/// What a record tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A thread on CPU. Frames are addresses, innermost first.
    Sample { pid: u32, tid: u32, kernel: Vec<u64>, user: Vec<u64> },
    /// A thread has a name now.
    Name { pid: u32, tid: u32, name: String },
    /// A thread began.
    Began { pid: u32, parent: u32, tid: u32, by: u32 },
    /// A thread ended.
    Ended { tid: u32 },
    /// So many records found the ring full.
    Lost(u64),
}

/// The smallest of the words that part a stack: addresses lie below.
const CONTEXT: u64 = -4095i64 as u64;
/// From here on frames are the program's (`PERF_CONTEXT_USER`).
const USER: u64 = -512i64 as u64;
/// From here on frames are the kernel's (`PERF_CONTEXT_KERNEL`).
const KERNEL: u64 = -128i64 as u64;

const SAMPLE_TYPE: u64 = (PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN) as u64;

/// A timer whose samples [`parse`] reads: of a CPU, or of a task while it runs, which is its time on CPU too.
pub(super) fn timer(of_task: bool, hz: u32) -> perf_event_attr {
    let config = if of_task { PERF_COUNT_SW_TASK_CLOCK } else { PERF_COUNT_SW_CPU_CLOCK };
    let mut attr = perf_event_attr { type_: TYPE_SOFTWARE, config: config.into(), ..Default::default() };
    attr.sample_period = 1_000_000_000 / u64::from(hz.max(1));
    attr.sample_type = SAMPLE_TYPE;
    attr.set_comm(1);
    attr.set_task(1);
    attr
}

/// Hands over the records in what a ring gave, and says how many bytes at its end are no record.
pub(super) fn parse(bytes: &[u8], mut each: impl FnMut(Record)) -> usize {
    let mut rest = bytes;
    // struct perf_event_header: u32 type, u16 misc, u16 size
    while let Some((kind, size)) = u32_at(rest, 0).zip(u16_at(rest, 6)) {
        let Some(body) = rest.get(8..size.into()) else { break };
        if let Some(record) = record(kind, body) {
            each(record);
        }
        rest = &rest[usize::from(size)..];
    }
    rest.len()
}

#[allow(non_upper_case_globals)] // the kernel's names
fn record(kind: u32, body: &[u8]) -> Option<Record> {
    let (pid, second) = (u32_at(body, 0)?, u32_at(body, 4)?);
    Some(match kind {
        PERF_RECORD_SAMPLE => {
            let n = usize::try_from(u64_at(body, 8)?).ok()?;
            let (mut kernel, mut user, mut at) = (Vec::new(), Vec::new(), 0);
            for word in body.get(16..n.checked_mul(8)?.checked_add(16)?)?.chunks_exact(8) {
                let word = u64_at(word, 0)?;
                match word {
                    CONTEXT.. => at = word,
                    _ if at == USER => user.push(word),
                    _ if at == KERNEL => kernel.push(word),
                    _ => {}
                }
            }
            Record::Sample { pid, tid: second, kernel, user }
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
        let chain: Vec<u8> = [6, KERNEL, 0xffff_8000, USER, 0x1000, 0x2000, 0x3000]
            .iter()
            .flat_map(|w: &u64| w.to_ne_bytes())
            .collect();
        let bytes = [
            put(PERF_RECORD_COMM, &[7, 8], b"a;b\n\0\0\0\0"),
            put(PERF_RECORD_FORK, &[9, 7, 9, 8, 0, 0], &[]),
            put(99, &[1, 2, 3], &[]),
            put(PERF_RECORD_SAMPLE, &[7, 8], &chain),
            put(PERF_RECORD_LOST, &[0, 0, 5, 0], &[]),
            put(PERF_RECORD_EXIT, &[9, 7, 9, 8, 0, 0], &[]),
            put(PERF_RECORD_EXIT, &[9, 7, 9, 8], &[])[..12].to_vec(),
        ]
        .concat();
        let mut got = Vec::new();
        assert_eq!(parse(&bytes, |r| got.push(r)), 12, "the last one is cut off");
        assert_eq!(
            got,
            [
                Record::Name { pid: 7, tid: 8, name: "a;b\n".into() },
                Record::Began { pid: 9, parent: 7, tid: 9, by: 8 },
                Record::Sample {
                    pid: 7,
                    tid: 8,
                    kernel: vec![0xffff_8000],
                    user: vec![0x1000, 0x2000, 0x3000]
                },
                Record::Lost(5),
                Record::Ended { tid: 9 },
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(parse(&bytes, |_| ()) <= bytes.len());
        }

        #[test]
        fn any_record_is_survived(kind in 0u32..12, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = put(kind, &[], &body);
            prop_assert_eq!(parse(&bytes, |_| ()), 0);
        }
    }
}
