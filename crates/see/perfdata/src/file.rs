//! The format of `perf.data`: header, descriptions of events, records. Every size in the file is compared with the file's length
//! before it is used; nothing is reserved by a size that the file states.

use std::collections::HashMap;

use crate::Error;

/// Records of a file, at most. An index of 16 bytes each is kept.
const MAX_RECORDS: usize = 16 << 20;
/// Events, and their numbers, at most.
const MAX_EVENTS: usize = 1024;
const MAX_IDS: usize = 1 << 20;
/// Words of the command line.
const MAX_WORDS: usize = 4096;

const HEADER: u64 = 104;
const PIPE_HEADER: u64 = 16;

/// Features, by their bits in the header.
const HOSTNAME: usize = 3;
const OS_RELEASE: usize = 4;
const VERSION: usize = 5;
const NR_CPUS: usize = 7;
const CPU_DESC: usize = 8;
const COMMAND_LINE: usize = 11;
const EVENT_DESC: usize = 12;

/// Bits of `sample_type`.
pub(crate) mod has {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const STACK_USER: u64 = 1 << 13;
    pub const IDENTIFIER: u64 = 1 << 16;
}

/// Types of records.
pub(crate) mod kind {
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const LOST_SAMPLES: u32 = 13;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_CPU_WIDE: u32 = 15;
    /// Those from here on are perf's own, and not the kernel's.
    pub const USER: u32 = 64;
    pub const AUXTRACE: u32 = 71;
    pub const THREAD_MAP: u32 = 73;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Numbers in bytes, read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A text with its length before it, up to the first zero.
    fn string(&mut self) -> Option<String> {
        let length = self.u32()?;
        Some(text(self.take(length.into())?))
    }
}

/// Text up to the first zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// An event that was sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub name: String,
    /// As `perf_event_attr` has them.
    pub ty: u32,
    pub config: u64,
    pub period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    flags: u64,
}

impl Event {
    fn parse(attr: &[u8]) -> Option<Event> {
        let mut at = Bytes(attr);
        let (ty, _, config, period) = (at.u32()?, at.u32()?, at.u64()?, at.u64()?);
        let (sample_type, read_format, flags) = (at.u64()?, at.u64()?, at.u64()?);
        Some(Event { ty, config, period, sample_type, read_format, flags, ..Event::default() })
    }

    /// Samples a second of time on CPU, where the event is sampled so.
    pub fn hz(&self) -> Option<u64> {
        (self.flags & 1 << 10 != 0 && self.period > 0).then_some(self.period)
    }

    pub fn excludes_kernel(&self) -> bool {
        self.flags & 1 << 5 != 0
    }

    fn sample_id_all(&self) -> bool {
        self.flags & 1 << 18 != 0
    }

    /// Whether a sample has the nanoseconds that it stands for: `cpu-clock`, `task-clock`.
    pub fn is_clock(&self) -> bool {
        self.ty == 1 && self.config <= 1
    }

    /// Whether it counts cycles, of any kind of core.
    pub fn is_cycles(&self) -> bool {
        self.ty == 0 && self.config & 0xffff_ffff == 0
    }
}

/// Thread, time, CPU and event of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Origin {
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub cpu: Option<u32>,
    pub id: Option<u64>,
}

/// A sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample<'a> {
    pub ip: u64,
    pub period: Option<u64>,
    /// Addresses, eight bytes each, the innermost first; with marks of what comes behind them.
    pub chain: &'a [u8],
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub kind: u32,
    pub misc: u16,
    pub body: &'a [u8],
}

/// A file.
#[derive(Debug)]
pub(crate) struct PerfFile<'a> {
    bytes: &'a [u8],
    pub events: Vec<Event>,
    /// Events by the numbers that records have.
    numbers: HashMap<u64, usize>,
    /// Time and place of each record, by time.
    index: Vec<(u64, u64)>,
    pub host: String,
    pub release: String,
    pub version: String,
    pub cpu_model: String,
    /// Online CPUs.
    pub cpus: Option<u32>,
    pub command: Vec<String>,
}

impl<'a> PerfFile<'a> {
    /// Reads all but the bodies of records.
    pub fn parse(bytes: &'a [u8]) -> Result<PerfFile<'a>, Error> {
        let mut head = Bytes(bytes);
        match head.take(8) {
            Some(b"PERFILE2") => {}
            Some(b"2ELIFREP") => {
                return Err(Error::Unsupported("it is from a machine with the other byte order"));
            }
            _ => return Err(Error::NotPerf),
        }
        let cut = || Error::Damaged("the header is cut off");
        let size = head.u64().ok_or_else(cut)?;
        if size == PIPE_HEADER {
            return Err(Error::Unsupported("it was written to a pipe; `perf record -o FILE` writes a file"));
        }
        if size != HEADER {
            return Err(Error::Damaged("the header has an unknown size"));
        }
        head.u64().ok_or_else(cut)?;
        let mut section = || Some((head.u64()?, head.u64()?));
        let (Some(_), Some(data), Some(_)) = (section(), section(), section()) else { return Err(cut()) };
        let features: Vec<u64> = (0..4).map_while(|_| head.u64()).collect();
        if features.len() < 4 {
            return Err(cut());
        }
        let part = |(offset, size): (u64, u64)| {
            let range = usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(size)?).ok()?;
            bytes.get(range)
        };
        if data.1 == 0 {
            return Err(Error::Damaged("it has no records: perf was killed before it wrote their number"));
        }
        let records = part(data).ok_or(Error::Damaged("the records go beyond the end of the file"))?;
        let mut table = Bytes(&bytes[(data.0 + data.1) as usize..]);
        let mut file = PerfFile {
            bytes: records,
            events: Vec::new(),
            numbers: HashMap::new(),
            index: Vec::new(),
            host: String::new(),
            release: String::new(),
            version: String::new(),
            cpu_model: String::new(),
            cpus: None,
            command: Vec::new(),
        };
        for bit in (0..256).filter(|bit| features[bit / 64] & 1 << (bit % 64) != 0) {
            let place =
                table.u64().zip(table.u64()).ok_or(Error::Damaged("a list of sections is cut off"))?;
            let section = part(place).ok_or(Error::Damaged("a section goes beyond the end of the file"))?;
            file.feature(bit, Bytes(section))?;
        }
        if file.events.is_empty() {
            return Err(Error::Unsupported("it does not describe its events"));
        }
        // The identity of a record must be found before its event is known.
        let first = &file.events[0];
        let alike = file.events.iter().all(|event| event.sample_type == first.sample_type);
        let named = file.events.iter().all(|event| event.sample_type & has::IDENTIFIER != 0);
        if !alike && !named || file.events.iter().any(|event| event.sample_id_all() != first.sample_id_all())
        {
            return Err(Error::Unsupported(
                "its events have different forms, and records do not say whose they are",
            ));
        }
        if file.events.iter().any(|event| event.sample_type & has::TIME == 0) {
            return Err(Error::Unsupported("its samples have no times"));
        }
        file.index()?;
        Ok(file)
    }

    fn feature(&mut self, bit: usize, mut section: Bytes<'_>) -> Result<(), Error> {
        let string = |mut section: Bytes<'_>| section.string().unwrap_or_default();
        match bit {
            HOSTNAME => self.host = string(section),
            OS_RELEASE => self.release = string(section),
            VERSION => self.version = string(section),
            CPU_DESC => self.cpu_model = string(section),
            NR_CPUS => {
                section.u32();
                self.cpus = section.u32();
            }
            COMMAND_LINE => {
                let count = section.u32().unwrap_or(0) as usize;
                self.command = (0..count.min(MAX_WORDS)).map_while(|_| section.string()).collect();
            }
            EVENT_DESC => {
                let wrong = Error::Damaged("the description of its events is cut off or has no end");
                (self.events, self.numbers) = describe(section).ok_or(wrong)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Walks the records once.
    fn index(&mut self) -> Result<(), Error> {
        let mut at = 0;
        while at < self.bytes.len() {
            let record =
                self.record(at).ok_or(Error::Damaged("a record goes beyond the end of the records"))?;
            match record.kind {
                kind::COMPRESSED | kind::COMPRESSED2 => {
                    return Err(Error::Unsupported("its records are compressed; record without -z"));
                }
                kind::AUXTRACE => {
                    return Err(Error::Unsupported(
                        "it holds a trace of the processor; record samples, with -e cpu-clock",
                    ));
                }
                _ => {}
            }
            if self.index.len() >= MAX_RECORDS {
                return Err(Error::TooLarge(
                    "it has more than 16 million records; record with a lower -F, or for a shorter time",
                ));
            }
            let time = match record.kind {
                kind::USER.. => 0,
                _ => self.origin(&record).map_or(0, |origin| origin.time),
            };
            self.index.push((time, at as u64));
            at += record.body.len() + 8;
        }
        // Each CPU wrote its own, and they come one after the other.
        self.index.sort();
        Ok(())
    }

    fn record(&self, at: usize) -> Option<Record<'a>> {
        let mut head = Bytes(self.bytes.get(at..)?);
        let (kind, misc, size) = (head.u32()?, head.u16()?, head.u16()?);
        let body = head.take(u64::from(size.checked_sub(8)?))?;
        Some(Record { kind, misc, body })
    }

    /// The records by time; those without one first.
    pub fn records(&self) -> impl Iterator<Item = (u64, Record<'a>)> + '_ {
        self.index.iter().filter_map(|&(time, at)| Some((time, self.record(at as usize)?)))
    }

    /// The time from the first record that has one to the last.
    pub fn span(&self) -> Option<(u64, u64)> {
        let first = self.index.iter().find(|(time, _)| *time > 0)?.0;
        Some((first, self.index.last()?.0))
    }

    /// The event that a record belongs to.
    pub fn event(&self, id: Option<u64>) -> &Event {
        &self.events[id.and_then(|id| self.numbers.get(&id)).copied().unwrap_or(0)]
    }

    /// Thread, time, CPU and event of a record; `None` where it is too short, or has none of them.
    pub fn origin(&self, record: &Record<'_>) -> Option<Origin> {
        let first = &self.events[0];
        let sample_type = first.sample_type;
        let is = |bit| sample_type & bit != 0;
        let mut origin = Origin::default();
        if record.kind == kind::SAMPLE {
            let mut at = Bytes(record.body);
            // Events may have different forms behind the identifier.
            let mut sample_type = sample_type;
            if is(has::IDENTIFIER) {
                origin.id = Some(at.u64()?);
                sample_type = self.event(origin.id).sample_type;
            }
            let is = |bit| sample_type & bit != 0;
            if is(has::IP) {
                at.u64()?;
            }
            if is(has::TID) {
                (origin.pid, origin.tid) = (at.u32()?, at.u32()?);
            }
            origin.time = at.u64()?;
            if is(has::ADDR) {
                at.u64()?;
            }
            if is(has::ID) {
                let id = at.u64()?;
                origin.id = origin.id.or(Some(id));
            }
            if is(has::STREAM_ID) {
                at.u64()?;
            }
            if is(has::CPU) {
                origin.cpu = Some(at.u32()?);
            }
            return Some(origin);
        }
        if !first.sample_id_all() {
            return None;
        }
        let parts = [has::TID, has::TIME, has::ID, has::STREAM_ID, has::CPU, has::IDENTIFIER];
        let sample_type = match is(has::IDENTIFIER) {
            true => {
                let (_, id) = record.body.split_last_chunk::<8>()?;
                self.event(Some(u64::from_le_bytes(*id))).sample_type
            }
            false => sample_type,
        };
        let is = |bit| sample_type & bit != 0;
        let length = 8 * parts.iter().filter(|&&part| is(part)).count();
        let mut at = Bytes(record.body.get(record.body.len().checked_sub(length)?..)?);
        if is(has::TID) {
            (origin.pid, origin.tid) = (at.u32()?, at.u32()?);
        }
        if is(has::TIME) {
            origin.time = at.u64()?;
        }
        if is(has::ID) {
            origin.id = Some(at.u64()?);
        }
        if is(has::STREAM_ID) {
            at.u64()?;
        }
        if is(has::CPU) {
            origin.cpu = Some(at.u32()?);
        }
        Some(origin)
    }

    /// A sample of an event.
    pub fn sample(event: &Event, record: &Record<'a>) -> Option<Sample<'a>> {
        let is = |bit| event.sample_type & bit != 0;
        let mut at = Bytes(record.body);
        let mut sample = Sample::default();
        if is(has::IDENTIFIER) {
            at.u64()?;
        }
        if is(has::IP) {
            sample.ip = at.u64()?;
        }
        for bit in [has::TID, has::TIME, has::ADDR, has::ID, has::STREAM_ID, has::CPU] {
            if is(bit) {
                at.u64()?;
            }
        }
        if is(has::PERIOD) {
            sample.period = Some(at.u64()?);
        }
        if is(has::READ) {
            let reads = |bit: u32| event.read_format >> bit & 1;
            let words = match reads(3) {
                // Of a group: values with what belongs to each.
                1 => {
                    let members = at.u64()?;
                    members.checked_mul(1 + reads(2) + reads(4))?.checked_add(reads(0) + reads(1))?
                }
                _ => 1 + reads(0) + reads(1) + reads(2) + reads(4),
            };
            at.take(words.checked_mul(8)?)?;
        }
        if is(has::CALLCHAIN) {
            let length = at.u64()?;
            sample.chain = at.take(length.checked_mul(8)?)?;
        }
        Some(sample)
    }
}

/// The events that a file describes, and which of them each number stands for.
fn describe(mut section: Bytes<'_>) -> Option<(Vec<Event>, HashMap<u64, usize>)> {
    let (count, size) = (section.u32()?, section.u32()?);
    if count as usize > MAX_EVENTS {
        return None;
    }
    let (mut events, mut all) = (Vec::new(), HashMap::new());
    for _ in 0..count {
        let mut event = Event::parse(section.take(size.into())?)?;
        let ids = section.u32()?;
        event.name = section.string()?;
        if all.len() + ids as usize > MAX_IDS {
            return None;
        }
        let mut numbers = Bytes(section.take(u64::from(ids) * 8)?);
        all.extend(std::iter::from_fn(|| numbers.u64()).map(|id| (id, events.len())));
        events.push(event);
    }
    Some((events, all))
}
