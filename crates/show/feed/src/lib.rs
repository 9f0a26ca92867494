//! Data that `ncpu serve` hands to the program `ncpu-serve` through a pipe: settings once, then the tables of each interval.
//!
//! They are two processes for the sake of safety. The one that observes may do much and reads nothing from the network;
//! the one that answers requests may do nothing but that. Bytes flow one way only.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use arrow_ipc::writer::StreamWriter;
use ncpu_record::{Manifest, recover_stream};
use ncpu_table::Table;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The program that answers requests.
pub const PROGRAM: &str = "ncpu-serve";

/// Beginning of the pipe: both programs are of one version.
const MAGIC: &str = concat!("ncpu feed ", env!("CARGO_PKG_VERSION"), "\n");

/// Bytes of a header and of the tables of an interval that are taken at most.
const MOST_HEAD: u32 = 16 << 20;
const MOST_BODY: u64 = 1 << 30;

/// How to serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// `ADDRESS:PORT`, or `unix:PATH`.
    pub listen: String,
    /// A file that holds the token which requests must give.
    pub token: Option<PathBuf>,
    /// Files with the certificate chain and its key, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// User and group to become.
    pub user: Option<(u32, u32)>,
    /// Bytes of intervals that are held at most.
    pub history: u64,
    /// Permissions of a Unix socket.
    pub mode: u32,
    /// Address of a collector that is sent the profiles of OpenTelemetry.
    pub otlp: Option<String>,
    /// A file with the authorities of its certificate [default: the system's].
    pub otlp_ca: Option<PathBuf>,
    /// Seconds of the profiles that it is sent at a time.
    pub otlp_every: f64,
    /// Files of causes that reports look up first.
    pub causes: Vec<String>,
    /// The target of the observation, and its machine.
    pub manifest: Manifest,
}

/// Answer of `ncpu-serve`, once, when it listens or cannot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ready {
    /// It listens there.
    At(String),
    /// Why it does not.
    Failed(String),
}

impl Ready {
    /// Tells it.
    ///
    /// # Errors
    /// Nobody reads.
    pub fn tell(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)?;
        to.flush()
    }

    /// Waits for it.
    ///
    /// # Errors
    /// The other ended, or said something else.
    pub fn hear(from: impl Read) -> io::Result<Ready> {
        let mut line = String::new();
        BufReader::new(from.take(1 << 16)).read_line(&mut line)?;
        match line.is_empty() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(serde_json::from_str(&line)?),
        }
    }
}

/// An interval, without its tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Beginning and end, in seconds since 1970 UTC.
    pub start: f64,
    /// End.
    pub end: f64,
    /// When it began in the time of the tables: seconds since the observation began.
    pub since: f64,
    /// Parts that could not be observed.
    pub notes: Vec<String>,
    /// Intervals that were lost because they were not taken in time, all together.
    pub lost: u64,
    /// CPU time of the observer so far, in seconds.
    pub cpu: f64,
    /// The observer's resident memory in bytes.
    pub resident: u64,
    /// The tables' names and the length of each in the body.
    pub tables: Vec<(String, u64)>,
}

/// An interval as it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// Its kind.
    pub head: Head,
    /// Its tables, an Arrow stream each.
    pub body: Vec<u8>,
}

/// Begins a feed.
///
/// # Errors
/// The settings cannot be written.
pub fn begin(to: &mut impl Write, settings: &Settings) -> io::Result<()> {
    to.write_all(MAGIC.as_bytes())?;
    write(to, settings)?;
    to.flush()
}

/// Reads what [`begin`] wrote.
///
/// # Errors
/// It is no feed, or of another version.
pub fn settings(from: &mut impl Read) -> io::Result<Settings> {
    let mut magic = vec![0; MAGIC.len()];
    from.read_exact(&mut magic)?;
    if magic != MAGIC.as_bytes() {
        return Err(wrong("`ncpu serve` and ncpu-serve are of different versions: install both together"));
    }
    read(from)
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn write(to: &mut impl Write, head: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(head)?;
    let length = u32::try_from(text.len()).map_err(|_| wrong("a header is too long"))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&text)
}

fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MOST_HEAD {
        return Err(wrong("a header is too long"));
    }
    Ok(serde_json::from_slice(&exactly(from, length.into())?)?)
}

/// So many bytes, of which memory is asked for as they come.
fn exactly(from: &mut impl Read, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(count).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != count {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

impl Packed {
    /// Packs tables.
    ///
    /// # Errors
    /// Arrow refuses one.
    pub fn new(mut head: Head, tables: &[Table]) -> io::Result<Packed> {
        let mut body = Vec::new();
        head.tables.clear();
        for table in tables.iter().filter(|t| !t.columns().is_empty()) {
            let before = body.len();
            let failed = |e: arrow_schema::ArrowError| io::Error::other(e.to_string());
            let mut stream = StreamWriter::try_new(&mut body, &table.batch().schema()).map_err(failed)?;
            stream.write(table.batch()).and_then(|()| stream.finish()).map_err(failed)?;
            head.tables.push((table.name().into(), (body.len() - before) as u64));
        }
        Ok(Packed { head, body })
    }

    /// Sends it.
    ///
    /// # Errors
    /// Nobody reads.
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        write(to, &self.head)?;
        to.write_all(&(self.body.len() as u64).to_le_bytes())?;
        to.write_all(&self.body)?;
        to.flush()
    }

    /// Receives the next; `None` where the feed has ended.
    ///
    /// # Errors
    /// The feed breaks off or is none.
    pub fn receive(from: &mut impl Read) -> io::Result<Option<Packed>> {
        let head = match read(from) {
            Ok(head) => head,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        if length > MOST_BODY {
            return Err(wrong("an interval is too long"));
        }
        Ok(Some(Packed { head, body: exactly(from, length)? }))
    }

    /// Its tables' names, and the part of the body of each, for [`table`].
    ///
    /// # Errors
    /// The body is shorter than the header says.
    pub fn parts(&self) -> io::Result<Vec<(&str, &[u8])>> {
        let mut rest = self.body.as_slice();
        let mut parts = Vec::with_capacity(self.head.tables.len());
        for (name, length) in &self.head.tables {
            let length = usize::try_from(*length).ok().filter(|&n| n <= rest.len());
            let (part, after) = rest.split_at(length.ok_or_else(|| wrong("an interval is cut off"))?);
            parts.push((name.as_str(), part));
            rest = after;
        }
        Ok(parts)
    }
}

/// A table of an interval, from its part of the body.
///
/// # Errors
/// It is damaged or cut off.
pub fn table(name: &str, stream: &[u8]) -> io::Result<Table> {
    let stream = recover_stream(stream).map_err(|why| wrong(&format!("table `{name}`: {why}")))?;
    let stream = stream.filter(|s| s.why.is_none());
    let stream = stream.ok_or_else(|| wrong(&format!("table `{name}` is cut off")))?;
    let table = Table::of_batches(name, &stream.schema, &stream.batches);
    table.map_err(|e| wrong(&format!("table `{name}`: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_table::Column;

    fn interval() -> Packed {
        let mut rows =
            Table::builder("locks", &[Column::text("lock", "name"), Column::count("count", "waits")]);
        rows.row().text("pcf").int(7);
        rows.row().null().null();
        let empty = Table::builder("drops", &[Column::text("what", "what")]).finish();
        let head = Head { start: 1.0, end: 2.0, notes: vec!["a note".into()], ..Head::default() };
        Packed::new(head, &[rows.finish(), empty]).unwrap()
    }

    fn tables(interval: &Packed) -> io::Result<Vec<Table>> {
        interval.parts()?.into_iter().map(|(name, part)| table(name, part)).collect()
    }

    #[test]
    fn what_is_sent_arrives() {
        let sent = interval();
        let mut pipe = Vec::new();
        sent.send(&mut pipe).unwrap();
        sent.send(&mut pipe).unwrap();
        let mut from = pipe.as_slice();
        for _ in 0..2 {
            let got = Packed::receive(&mut from).unwrap().unwrap();
            assert_eq!(got, sent);
            let tables = tables(&got).unwrap();
            assert_eq!(tables.iter().map(Table::name).collect::<Vec<_>>(), ["locks", "drops"]);
            assert_eq!(tables[0].int(0, "count"), Some(7));
            assert_eq!((tables[0].num_rows(), tables[1].num_rows()), (2, 0));
            assert_eq!(tables[0].columns()[0].meaning, "name");
        }
        assert_eq!(Packed::receive(&mut from).unwrap(), None);
    }

    #[test]
    fn what_is_cut_off_or_lies_is_an_error() {
        let mut pipe = Vec::new();
        interval().send(&mut pipe).unwrap();
        // Within the tables; an end within a header is the end of the feed.
        assert!(Packed::receive(&mut &pipe[..pipe.len() - 1]).is_err());
        assert!(Packed::receive(&mut [0xff_u8; 64].as_slice()).is_err());
        let mut lies = interval();
        lies.head.tables[0].1 += 1;
        assert!(tables(&lies).is_err());
        lies.head.tables[0].1 = u64::MAX;
        assert!(tables(&lies).is_err());
        assert!(settings(&mut b"ncpu feed 0.0.0\n".as_slice()).is_err());
    }
}
