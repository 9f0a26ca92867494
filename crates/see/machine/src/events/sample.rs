//! Samples of memory accesses in a perf event's ring buffer: `perf_event_header` and `union
//! perf_mem_data_src` of the kernel's `include/uapi/linux/perf_event.h`.

/// The `PERF_SAMPLE_*` flags for memory accesses. The kernel writes the fields in the order of the list in
/// `perf_event.h`, eight bytes each: IP, TID, ADDR, CPU, WEIGHT, DATA_SRC.
pub const SAMPLE_TYPE: u64 =
    SAMPLE_IP | SAMPLE_TID | SAMPLE_ADDR | SAMPLE_CPU | SAMPLE_WEIGHT | SAMPLE_DATA_SRC;
const SAMPLE_IP: u64 = 1 << 0;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_ADDR: u64 = 1 << 3;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_WEIGHT: u64 = 1 << 14;
const SAMPLE_DATA_SRC: u64 = 1 << 15;

const HEADER: usize = 8;
const RECORD_LOST: u32 = 2;
const RECORD_THROTTLE: u32 = 5;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;

/// A record of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<S = Sample> {
    /// A sample: an access, where nothing else is said.
    Sample(S),
    /// The number of records that found the ring full, or were lost by the hardware.
    Lost(u64),
    /// The kernel throttled the event: there were more samples than `perf_event_max_sample_rate`.
    Throttled,
}

/// One access to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Address of the instruction.
    pub ip: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Accessed address; 0 if the hardware did not report it.
    pub address: u64,
    /// CPU.
    pub cpu: u32,
    /// Cycles of a load, if the hardware reports them.
    pub weight: u64,
    /// Where the data came from.
    pub source: DataSource,
}

/// The data source of an access, as in `perf_mem_data_src`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSource(pub u64);

impl DataSource {
    fn field(self, shift: u32, bits: u32) -> u64 {
        self.0 >> shift & ((1 << bits) - 1)
    }

    /// Whether it reads (`PERF_MEM_OP_LOAD`). A read-modify-write is both, on some CPUs.
    pub fn load(self) -> bool {
        self.field(0, 5) & 0x02 != 0
    }

    /// Whether it writes (`PERF_MEM_OP_STORE`).
    pub fn store(self) -> bool {
        self.field(0, 5) & 0x04 != 0
    }

    /// Whether it is completely unknown: this kernel does not decode the hardware's report.
    pub fn unknown(self) -> bool {
        !self.load() && !self.store()
    }

    /// Whether a locked instruction made the access (`PERF_MEM_LOCK_LOCKED`).
    pub fn locked(self) -> bool {
        self.field(24, 2) & 0x02 != 0
    }

    /// Whether another cache held the line modified and had to supply it (`PERF_MEM_SNOOP_HITM`), which is
    /// the cost of sharing a written line; and the place of that cache.
    pub fn hitm(self) -> Option<Hitm> {
        let hit = self.load() && self.field(19, 5) & 0x10 != 0;
        hit.then(|| if self.remote() { Hitm::Remote } else { Hitm::Local })
    }

    /// Whether the data came from another node: by the older bits (`PERF_MEM_LVL_REM_CCE1`, `_CCE2`,
    /// `_REM_RAM1`, `_RAM2`), or by the newer ones, where a hop of `PERF_MEM_HOPS_0` stays in the node
    /// (another core complex of an AMD package).
    pub fn remote(self) -> bool {
        const OTHER_CORE_OF_NODE: u64 = 1;
        let older = self.field(5, 14) & (0x100 | 0x200 | 0x400 | 0x800) != 0;
        older || self.field(37, 1) != 0 && self.field(43, 3) != OTHER_CORE_OF_NODE
    }

    /// Whether memory supplied the data and not a cache (`PERF_MEM_LVL_LOC_RAM`, `_REM_RAM*`,
    /// `PERF_MEM_LVLNUM_RAM`).
    pub fn memory(self) -> bool {
        self.field(5, 14) & (0x80 | 0x100 | 0x200) != 0 || self.field(33, 4) == 0x0d
    }
}

/// The place of the cache that held a line modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hitm {
    /// On the same node.
    Local,
    /// On another node.
    Remote,
}

/// Malformed bytes: the bytes after them cannot be read either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of the ring buffer: a record of {size} bytes where {left} are left")]
pub struct Damaged {
    /// The offset.
    pub at: usize,
    /// The size in its header.
    pub size: usize,
    /// The number of bytes left.
    pub left: usize,
}

/// Reads the records of a ring buffer, oldest first. Samples must have the fields of [`SAMPLE_TYPE`]. Records
/// of other kinds are skipped.
///
/// # Errors
/// [`Damaged`], after all earlier records were taken.
pub fn records(bytes: &[u8], take: impl FnMut(Record)) -> Result<(), Damaged> {
    records_of(bytes, sample, take)
}

/// The same of samples with other fields, which `sample` reads from a record's words.
pub(super) fn records_of<S>(
    bytes: &[u8],
    sample: impl Fn(&[[u8; 8]]) -> Option<S>,
    mut take: impl FnMut(Record<S>),
) -> Result<(), Damaged> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let header = rest.first_chunk::<HEADER>().ok_or(Damaged { at, size: HEADER, left: rest.len() })?;
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let body = rest.get(HEADER..size).ok_or(Damaged { at, size, left: rest.len() })?;
        let (words, _) = body.as_chunks::<8>();
        let word = |n: usize| words.get(n).map(|w| u64::from_ne_bytes(*w));
        match kind {
            RECORD_SAMPLE => {
                let sample = sample(words).ok_or(Damaged { at, size, left: rest.len() })?;
                take(Record::Sample(sample));
            }
            // id, lost
            RECORD_LOST => word(1).into_iter().for_each(|n| take(Record::Lost(n))),
            RECORD_LOST_SAMPLES => word(0).into_iter().for_each(|n| take(Record::Lost(n))),
            RECORD_THROTTLE => take(Record::Throttled),
            _ => {}
        }
        at += size;
    }
    Ok(())
}

/// The first or second number of four bytes in a word.
pub(super) fn half(word: [u8; 8], second: usize) -> u32 {
    let (halves, _) = word.as_chunks::<4>();
    u32::from_ne_bytes(halves[second])
}

fn sample(words: &[[u8; 8]]) -> Option<Sample> {
    let &[ip, ids, address, cpu, weight, source] = words.first_chunk::<6>()?;
    Some(Sample {
        ip: u64::from_ne_bytes(ip),
        pid: half(ids, 0),
        tid: half(ids, 1),
        address: u64::from_ne_bytes(address),
        cpu: half(cpu, 0),
        weight: u64::from_ne_bytes(weight),
        source: DataSource(u64::from_ne_bytes(source)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = (HEADER + 8 * words.len()) as u16;
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend([0, 0]);
        out.extend(size.to_ne_bytes());
        out.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        out
    }

    fn encode(s: &Sample) -> Vec<u8> {
        let pair = |a: u32, b: u32| {
            let (a, b) = (a.to_ne_bytes(), b.to_ne_bytes());
            u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
        };
        record(9, &[s.ip, pair(s.pid, s.tid), s.address, pair(s.cpu, 0), s.weight, s.source.0])
    }

    fn all(bytes: &[u8]) -> (Vec<Record>, Result<(), Damaged>) {
        let mut out = Vec::new();
        let end = records(bytes, |r| out.push(r));
        (out, end)
    }

    /// `PERF_MEM_S` of the kernel's header.
    fn source(op: u64, level: u64, snoop: u64, remote: u64, hops: u64) -> DataSource {
        DataSource(op | level << 5 | snoop << 19 | remote << 37 | hops << 43)
    }

    #[test]
    fn records_of_every_kind() {
        let s = Sample {
            ip: 0x401234,
            pid: 7,
            tid: 9,
            address: 0x7f00_0000_1040,
            cpu: 3,
            weight: 211,
            source: DataSource(0x68100142),
        };
        let mut bytes = record(1, &[0; 12]);
        bytes.extend(encode(&s));
        bytes.extend(record(2, &[5, 17]));
        bytes.extend(record(13, &[4]));
        bytes.extend(record(5, &[0, 1, 2]));
        bytes.extend(encode(&Sample { address: 0, ..s }));
        let (found, end) = all(&bytes);
        let expected = [
            Record::Sample(s),
            Record::Lost(17),
            Record::Lost(4),
            Record::Throttled,
            Record::Sample(Sample { address: 0, ..s }),
        ];
        assert_eq!((&found[..], end), (&expected[..], Ok(())));
    }

    #[test]
    fn damage_ends_the_reading_and_is_told() {
        let good = encode(&Sample { ip: 1, ..Sample::default() });
        for (bad, size) in [
            (record(9, &[1, 2, 3]), 32),
            (vec![9, 0, 0, 0, 0, 0, 0, 0], 0),
            (vec![9, 0, 0, 0, 0, 0, 7, 0], 7),
            (vec![9, 0, 0, 0, 0, 0, 200, 0], 200),
            (vec![1, 2, 3], 8),
        ] {
            let bytes = [good.clone(), bad.clone(), good.clone()].concat();
            // A short tail must be at the end of the bytes.
            let bytes = if bad.len() < HEADER { [good.clone(), bad.clone()].concat() } else { bytes };
            let (found, end) = all(&bytes);
            assert_eq!(found.len(), 1, "{bad:?}");
            let at = good.len();
            assert!(matches!(end, Err(d) if d.at == at && d.size == size), "{bad:?}: {end:?}");
        }
    }

    #[test]
    fn sources_are_decoded_as_the_kernel_encodes_them() {
        const L3_HIT: u64 = 0x40 | 0x02;
        const REM_CCE1_HIT: u64 = 0x400 | 0x02;
        let (load, store, hitm, hit) = (0x02, 0x04, 0x10, 0x04);
        assert_eq!(source(load, L3_HIT, hitm, 0, 0).hitm(), Some(Hitm::Local));
        assert_eq!(source(load, REM_CCE1_HIT, hitm, 0, 0).hitm(), Some(Hitm::Remote));
        // Intel since Skylake reports both; AMD's near core complex belongs to the node, a far one does not.
        assert_eq!(source(load, L3_HIT, hitm, 1, 0).hitm(), Some(Hitm::Remote));
        assert_eq!(source(load, 0x02, hitm, 1, 1).hitm(), Some(Hitm::Local));
        assert_eq!(source(load, 0x02, hitm, 1, 2).hitm(), Some(Hitm::Remote));
        assert_eq!(source(load, L3_HIT, hit, 0, 0).hitm(), None);
        assert_eq!(
            source(store, L3_HIT, hitm, 0, 0).hitm(),
            None,
            "the load of a line waits, a store does not"
        );
        assert!(source(store, 0, 0, 0, 0).store() && !source(load, 0, 0, 0, 0).store());
        // PERF_MEM_NA: every field not available.
        let na = DataSource(0x01 | 0x01 << 5 | 0x01 << 19 | 0x01 << 24 | 0x01 << 26);
        assert!(na.unknown() && na.hitm().is_none() && !na.locked());
        // The sample that perf script prints as "|OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK Yes".
        let locked = DataSource(0x02 | (0x08 | 0x02) << 5 | 0x02 << 19 | 0x02 << 24 | 0x1a << 26);
        assert!(locked.load() && locked.locked() && !locked.memory() && !locked.remote());
        assert!(source(load, 0x80 | 0x02, hit, 0, 0).memory());
        assert!(DataSource(load | 0x0d << 33).memory());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = all(&bytes);
        }

        #[test]
        fn what_is_written_is_read(
            fields in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>()), 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let samples: Vec<Sample> = fields
                .into_iter()
                .map(|(ip, pid, cpu, address, source)| Sample {
                    ip, pid, tid: pid ^ 5, address, cpu, weight: ip ^ source, source: DataSource(source),
                })
                .collect();
            let bytes: Vec<u8> = samples.iter().flat_map(encode).collect();
            let (found, end) = all(&bytes);
            prop_assert_eq!(end, Ok(()));
            prop_assert_eq!(&found, &samples.iter().copied().map(Record::Sample).collect::<Vec<_>>());
            // Cut anywhere, complete records are still read.
            let keep = cut.index(bytes.len() + 1);
            let (part, _) = all(&bytes[..keep]);
            prop_assert_eq!(&part[..], &found[..keep / 56]);
        }
    }
}
