//! `manifest.json`: the recorded command, the machine, and the checksum of each file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ncpu_files::Dir;
use ncpu_schema::{Purpose, View};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

pub(crate) const MANIFEST: &str = "manifest.json";

/// The most bytes of a manifest that are read.
const MOST: u64 = 16 << 20;

/// The most bytes of the names of host, kernel and processor.
const LONGEST_NAME: usize = 1024;

/// The most notes, and bytes of one.
const MOST_NOTES: usize = 200;
const LONGEST_NOTE: usize = 4096;

/// The description of a recording. Fields added by a newer writer are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout: [`FORMAT`].
    pub format: u32,
    /// Version of the tables' columns and words: [`ncpu_schema::VERSION`].
    #[serde(default = "first")]
    pub schema: u32,
    /// The kind of recording; `None` in recordings made before manifests contained it.
    #[serde(default, with = "purpose", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Purpose>,
    /// The observer's view, if it was limited.
    #[serde(default, with = "view", skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// The `ncpu` that wrote it.
    pub ncpu_version: String,
    /// Start, in seconds since 1970 UTC.
    pub created_unix: f64,
    /// Host name (`/proc/sys/kernel/hostname`).
    pub host: String,
    /// An identifier of the machine that is independent of its host name: a hash of `/etc/machine-id`, which
    /// itself should stay private. `None` if there is none, and in recordings made before manifests contained
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Kernel release (`/proc/sys/kernel/osrelease`).
    pub kernel: String,
    /// Model of the first CPU, as the machine names it; empty if unknown.
    pub cpu_model: String,
    /// Online CPUs at the start.
    pub cpus: u64,
    /// Their arrangement; `None` if packages or cores differ, and in recordings made before manifests
    /// contained it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// The command that was run or watched, argument by argument.
    pub command: Vec<String>,
    /// The throughput that the command printed, if it was requested (`run --metric`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// Labels given by the machine's owner, for grouping in `ncpu fleet`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its place among recordings that follow one another (`watch --rotate`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Place>,
    /// Length of an interval in seconds; 0 for a single one.
    pub interval_s: f64,
    /// Whether the writer finished. If not, the tables are recovered from their streams.
    pub complete: bool,
    /// Whether it was simulated (`ncpu foresee`) instead of observed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// The Parquet files by name; empty until the writer finishes.
    #[serde(default)]
    pub files: BTreeMap<String, FileEntry>,
    /// Notes for the user: drops, missing sources, hotplug.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The number `format` of an unreadable manifest. Nothing else of it is kept.
#[derive(Deserialize)]
struct Probe {
    format: Option<u64>,
}

/// The arrangement of the CPUs of a machine whose packages and cores are all alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Packages.
    pub packages: u32,
    /// Cores of a package.
    pub cores: u32,
    /// Strands of a core.
    pub strands: u32,
    /// For each package a list of the first strands of its cores, one of the second strands, and so on, in
    /// the kernel's list format, all in the order of the cores. Empty for one package whose cores have one
    /// strand each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<Vec<String>>,
}

/// The throughput that a command printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Its name: the pattern that found it.
    pub metric: String,
    /// Units of work per second, above 0.
    pub per_second: f64,
}

/// A recording's place among those that follow one another without a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Counts up, independently of the clock.
    pub number: u64,
    /// The boot of the machine in which it began (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// Seconds from that boot to the start, including suspended ones: a clock that is never set.
    pub booted_s: f64,
}

/// A file of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Rows in the table.
    pub rows: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in hexadecimal, as `sha256sum` prints it.
    pub sha256: String,
}

/// The machine identifier from an ID file, in the manifest's form.
fn machine(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let id = text.trim();
    // During installation the file is empty, or contains this word.
    let known = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    known.then(|| {
        crate::digest::hex(Sha256::new().chain_update("ncpu machine ").chain_update(id))[..32].into()
    })
}

/// The schema of recordings made before manifests contained it.
fn first() -> u32 {
    1
}

/// A module that stores a word of the schema by its name.
macro_rules! word {
    ($(#[doc = $doc:literal])+ $module:ident: $word:ident) => {
        $(#[doc = $doc])+
        mod $module {
            use ncpu_schema::$word;
            use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

            pub fn serialize<S: Serializer>(word: &Option<$word>, to: S) -> Result<S::Ok, S::Error> {
                word.map($word::name).serialize(to)
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<$word>, D::Error> {
                let name: Option<String> = Option::deserialize(from)?;
                name.map(|name| $word::of_name(&name)).transpose().map_err(D::Error::custom)
            }
        }
    };
}

word! {
    /// A purpose in JSON: its name.
    purpose: Purpose
}

word! {
    /// A view in JSON: its name.
    view: View
}

impl Manifest {
    /// A manifest that begins now on this machine: host and kernel are read from `/proc`. The CPU model is
    /// left empty for the caller.
    pub fn new(kind: Purpose, cpus: u64, command: Vec<String>, interval_s: f64) -> Manifest {
        let proc = |name: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name));
            text.map_or_else(|_| String::new(), |s| s.trim().to_string())
        };
        Manifest {
            format: FORMAT,
            schema: ncpu_schema::VERSION,
            kind: Some(kind),
            view: None,
            ncpu_version: env!("CARGO_PKG_VERSION").into(),
            created_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()),
            host: proc("hostname"),
            machine: machine(Path::new("/etc/machine-id")),
            kernel: proc("osrelease"),
            cpu_model: String::new(),
            cpus,
            shape: None,
            command,
            throughput: None,
            labels: BTreeMap::new(),
            series: None,
            interval_s,
            complete: false,
            simulated: false,
            files: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Parses the text of a manifest; `path` is for the message.
    ///
    /// # Errors
    /// [`Error::NewerFormat`], or [`Error::Manifest`] with the place of the fault.
    pub fn parse(text: &str, path: &Path) -> Result<Manifest> {
        let wrong = |reason: String| Error::Manifest { path: path.into(), reason };
        let mut manifest = match serde_json::from_str::<Manifest>(text) {
            Ok(manifest) if (1..=FORMAT).contains(&manifest.format) => manifest,
            parsed => {
                // The format is checked first: a newer one may differ in every other field.
                let object = text.trim_start().starts_with('{');
                let format = match serde_json::from_str::<Probe>(text) {
                    Ok(probe) => probe.format.filter(|_| object),
                    Err(e) if e.is_data() => None,
                    Err(e) => return Err(wrong(format!("not JSON: {e}"))),
                };
                return Err(match format {
                    None => wrong("it has no number `format`".into()),
                    Some(0) => wrong("`format` is 0, and formats start at 1".into()),
                    Some(found) if found > u64::from(FORMAT) => {
                        Error::NewerFormat { path: path.into(), found }
                    }
                    Some(_) => wrong(parsed.err().map_or_else(String::new, |e| e.to_string())),
                });
            }
        };
        // Each of them is printed on a line.
        let names = [&manifest.ncpu_version, &manifest.host, &manifest.kernel, &manifest.cpu_model];
        if let Some(long) = names.into_iter().find(|name| name.len() > LONGEST_NAME) {
            return Err(wrong(format!("a name of {} bytes", long.len())));
        }
        // Each note is printed, too.
        let more = manifest.notes.len().saturating_sub(MOST_NOTES);
        manifest.notes.truncate(MOST_NOTES);
        for note in manifest.notes.iter_mut().filter(|note| note.len() > LONGEST_NOTE) {
            let end = (0..=LONGEST_NOTE).rev().find(|&end| note.is_char_boundary(end));
            note.truncate(end.unwrap_or(0));
        }
        if more > 0 {
            manifest.notes.push(format!("{more} more notes are left out"));
        }
        // Names become paths, so one that could leave the directory is refused.
        if let Some(bad) = manifest.files.keys().find(|f| table_of(f, ".parquet").is_none()) {
            return Err(wrong(format!("`{bad}` is not the name of a table's file")));
        }
        Ok(manifest)
    }

    /// Reads the manifest of a recording without its tables.
    ///
    /// # Errors
    /// It is missing, cannot be read or parsed, or has a newer format.
    pub fn read(dir: &Path) -> Result<Manifest> {
        match Dir::open(dir) {
            Ok(held) => Ok(Manifest::read_in(&held)?.0),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => Err(Error::NotARecording(dir.into())),
            Err(e) => Err(Error::io(dir, "open", e)),
        }
    }

    /// The manifest of a directory, and its text.
    pub(crate) fn read_in(dir: &Dir) -> Result<(Manifest, String)> {
        let path = dir.path().join(MANIFEST);
        match dir.read(MANIFEST, MOST) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes)
                    .map_err(|_| Error::Manifest { path: path.clone(), reason: "not UTF-8 text".into() })?;
                Ok((Manifest::parse(&text, &path)?, text))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::NotARecording(dir.path().into())),
            Err(e) => Err(Error::io(&path, "read", e)),
        }
    }

    /// Writes the manifest whole or not at all.
    pub(crate) fn write(&self, dir: &Dir, mode: u32) -> Result<()> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::Manifest { path: dir.path().join(MANIFEST), reason: e.to_string() })?;
        let write = || {
            let mut file = begin(dir, MANIFEST, mode)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            dir.rename(temporary(MANIFEST), MANIFEST)?;
            dir.sync()
        };
        write().map_err(|e| {
            // On a full disk every freed byte helps the next reader.
            let _ = dir.remove(temporary(MANIFEST));
            Error::io(&dir.path().join(MANIFEST), "write", e)
        })
    }
}

/// The name of a file while it is being written.
pub(crate) fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}

/// Starts a file under its temporary name, after removing the leftover of an interrupted writer.
pub(crate) fn begin(dir: &Dir, name: &str, mode: u32) -> io::Result<File> {
    match dir.create(temporary(name), mode) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            dir.remove(temporary(name))?;
            dir.create(temporary(name), mode)
        }
        result => result,
    }
}

/// The table stored in this file: `locks` for `locks.parquet`; `None` for any other name.
pub(crate) fn table_of<'a>(file: &'a str, suffix: &str) -> Option<&'a str> {
    file.strip_suffix(suffix).filter(|t| is_table_name(t))
}

pub(crate) fn is_table_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Manifest> {
        Manifest::parse(text, Path::new("x.ncpu/manifest.json"))
    }

    #[test]
    fn round_trip_and_fields_to_come() {
        let mut manifest = Manifest::new(Purpose::Run, 1536, vec!["make".into(), "-j".into()], 1.0);
        manifest.files.insert("locks.parquet".into(), FileEntry { rows: 1, bytes: 2, sha256: "00".into() });
        let text = serde_json::to_string(&manifest).unwrap();
        assert_eq!(parse(&text).unwrap(), manifest);
        let schema = format!(r#""schema":{},"kind":"run","#, ncpu_schema::VERSION);
        let old = text.replacen(&schema, "", 1);
        assert_ne!(old, text);
        assert_eq!(parse(&old).unwrap(), Manifest { schema: 1, kind: None, ..manifest.clone() });
        let more = text.replacen('{', r#"{"colour":"red","#, 1);
        assert_eq!(parse(&more).unwrap(), manifest);
        // Earlier manifests lack the arrangement of CPUs.
        assert!(!text.contains("shape"), "{text}");
        let cpus = vec![vec!["0-7".into(), "8-15".into()]];
        manifest.shape = Some(Shape { packages: 1, cores: 8, strands: 2, cpus });
        assert_eq!(parse(&serde_json::to_string(&manifest).unwrap()).unwrap(), manifest);
    }

    /// `printf 'ncpu machine 0123456789abcdef0123456789abcdef' | sha256sum | cut -c 1-32`
    #[test]
    fn the_machine_is_a_digest_of_a_complete_id() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("machine-id");
        let of = |text: &str| {
            fs::write(&path, text).unwrap();
            machine(&path)
        };
        let digest = Some("9d4adfd2986e24244ed939f00afca04c".to_string());
        assert_eq!(of("0123456789abcdef0123456789abcdef\n"), digest);
        for incomplete in
            ["", "uninitialized\n", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdeg"]
        {
            assert_eq!(of(incomplete), None, "{incomplete}");
        }
        assert_eq!(machine(&dir.path().join("none")), None);
    }

    #[test]
    fn notes_are_bounded() {
        let mut manifest = Manifest::new(Purpose::Run, 2, vec![], 1.0);
        manifest.notes = vec!["\u{e9}".repeat(5000); 1000];
        let read = parse(&serde_json::to_string(&manifest).unwrap()).unwrap();
        assert_eq!(read.notes.len(), MOST_NOTES + 1);
        assert!(read.notes.iter().all(|note| note.len() <= LONGEST_NOTE));
        assert_eq!(read.notes[MOST_NOTES], "800 more notes are left out");
    }

    #[test]
    fn wrong_manifests_are_named() {
        let good = serde_json::to_string(&Manifest::new(Purpose::Run, 2, vec![], 1.0)).unwrap();
        for (text, expect) in [
            ("", "not JSON"),
            ("[1]", "no number `format`"),
            (r#"{"format":0}"#, "formats start at 1"),
            (r#"{"format":1}"#, "missing field"),
            (&good.replace(r#""kind":"run""#, r#""kind":"dance""#), "unknown kind of recording `dance`"),
            (r#"{"format":9,"anything":[]}"#, "format 9 is newer than 1"),
            (
                &good
                    .replace(r#""files":{}"#, r#""files":{"../x.parquet":{"rows":0,"bytes":0,"sha256":""}}"#),
                "is not the name of a table's file",
            ),
            (
                &good.replace(r#""kernel":""#, &format!(r#""kernel":"{}"#, "x".repeat(1000 * 1000))),
                "a name of 1000",
            ),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(expect) && message.contains("manifest.json"), "{message}");
        }
    }
}
