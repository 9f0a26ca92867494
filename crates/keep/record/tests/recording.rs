//! A recording through all its possible faults.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ncpu_record::{Error, Manifest, Opened, Recording, Writer, recover_stream};
use ncpu_table::{Column, Kind, Table, Unit};
use proptest::prelude::*;

fn cpus(interval: u64) -> Table {
    let mut b = Table::builder(
        "cpus",
        &[
            Column::float("time", Unit::Seconds, Kind::Key, "end of the interval"),
            Column::id("cpu", "CPU"),
            Column::int("xcal", Unit::PerSecond, Kind::Count, "cross-calls sent"),
            Column::text("state", "online or offline"),
        ],
    );
    for cpu in 0..4 {
        let row = b.row().float(interval as f64).int(cpu);
        match cpu {
            3 => row.null().null(),
            _ => row.int(interval * 10 + cpu).text("online"),
        };
    }
    b.finish()
}

fn locks() -> Table {
    let mut b = Table::builder(
        "locks",
        &[
            Column::text("lock", "name"),
            Column::float("CPU-util", Unit::Share, Kind::Share, "share of capacity"),
        ],
    );
    b.row().text("pcf").float(0.866);
    b.finish()
}

fn manifest() -> Manifest {
    Manifest::new(ncpu_schema::Purpose::Run, 4, vec!["make".into(), "-j4".into()], 1.0)
}

fn unfinished(dir: &Path, intervals: u64) {
    let mut writer = Writer::create(dir, manifest()).unwrap();
    writer.append(&locks()).unwrap();
    for interval in 0..intervals {
        writer.append(&cpus(interval)).unwrap();
        writer.flush().unwrap();
    }
}

fn finished(dir: &Path) {
    let mut writer = Writer::create(dir, manifest()).unwrap();
    for interval in 0..3 {
        writer.append(&cpus(interval)).unwrap();
        writer.flush().unwrap();
    }
    writer.append(&locks()).unwrap();
    writer.manifest_mut().notes.push("no PMU".into());
    writer.finish().unwrap();
}

/// A separate directory for the test, and the recording's name in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("x.ncpu");
    (home, dir)
}

fn fails(result: Result<impl Sized, Error>, expect: &[&str]) {
    let Err(error) = result else { panic!("no error; expected one of {expect:?}") };
    let message = error.to_string();
    for part in expect {
        assert!(message.contains(part), "`{message}` does not say `{part}`");
    }
}

#[test]
fn whole() {
    let (_home, dir) = place();
    finished(&dir);
    let mut names: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["cpus.parquet", "locks.parquet", "manifest.json"]);

    let recording = Recording::open(&dir).unwrap();
    assert!(recording.manifest.complete && recording.recovered.is_empty() && recording.notes.is_empty());
    assert_eq!(recording.manifest.command, ["make", "-j4"]);
    assert_eq!(recording.manifest.notes, ["no PMU"]);
    let table = &recording.tables["cpus"];
    assert_eq!(table.num_rows(), 12);
    assert_eq!(table.columns(), cpus(0).columns());
    assert_eq!(table.int(9, "xcal"), Some(21));
    assert_eq!(table.int(11, "xcal"), None);
    assert_eq!(recording.tables["locks"].columns(), locks().columns());
    assert_eq!(Recording::verify(&dir).unwrap(), recording.manifest);

    // A recording in memory is saved and read back unchanged.
    let copy = dir.with_file_name("copy.ncpu");
    recording.save(&copy).unwrap();
    assert_eq!(Recording::open(&copy).unwrap().tables, recording.tables);
}

#[test]
fn tables_of_older_recordings_have_their_names_of_today() {
    let named = |name: &str, columns: &[Column]| {
        let mut table = Table::builder(name, columns);
        columns.iter().fold(table.row(), |row, _| row.int(7));
        table.finish()
    };
    let (count, cpu) = (Column::count("count", "how often"), Column::id("CPU", "CPU"));
    let (_keep, dir) = place();
    let mut old = Writer::create(&dir, Manifest { schema: 2, ..manifest() }).unwrap();
    old.append(&named("counters", std::slice::from_ref(&count))).unwrap();
    old.append(&named("hardware", &[cpu, count])).unwrap();
    old.finish().unwrap();
    let columns = |r: &Recording, table: &str| r.tables[table].columns().len();
    let read = Recording::open(&dir).unwrap();
    assert_eq!((columns(&read, "events"), columns(&read, "counters"), read.tables.len()), (1, 2, 2));
    // Once is enough: a recording that was read and written again is current, whatever its version.
    let again = dir.with_extension("again");
    read.save(&again).unwrap();
    let read = Recording::open(&again).unwrap();
    assert_eq!((columns(&read, "events"), columns(&read, "counters"), read.tables.len()), (1, 2, 2));
}

#[test]
fn any_parquet_reader_finds_the_metadata() {
    let (_home, dir) = place();
    finished(&dir);
    let file = fs::File::open(dir.join("cpus.parquet")).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let xcal = reader.schema().field_with_name("xcal").unwrap();
    assert_eq!(xcal.metadata()["unit"], "/s");
    assert_eq!(xcal.metadata()["kind"], "count");
    assert_eq!(xcal.metadata()["meaning"], "cross-calls sent");
    assert_eq!(reader.build().unwrap().map(|b| b.unwrap().num_rows()).sum::<usize>(), 12);
}

#[test]
fn nothing_is_written_over() {
    let (home, dir) = place();
    fs::create_dir(&dir).unwrap();
    finished(&dir);
    fails(Writer::create(&dir, manifest()), &["x.ncpu", "already holds a recording", "another name"]);
    fs::write(home.path().join("file"), "").unwrap();
    fails(Writer::create(home.path(), manifest()), &["neither empty nor a recording"]);
    fails(Writer::create(&home.path().join("file"), manifest()), &["file"]);
    fails(Writer::create(&home.path().join("no/such.ncpu"), manifest()), &["no/such.ncpu", "No such file"]);
}

#[test]
fn damage_names_the_file() {
    let (home, dir) = place();
    finished(&dir);
    let file = dir.join("cpus.parquet");
    let good = fs::read(&file).unwrap();
    let both = |expect: &[&str]| {
        fails(Recording::open(&dir), expect);
        fails(Recording::verify(&dir), expect);
    };

    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&file, bad).unwrap();
        both(&["cpus.parquet is damaged", "SHA-256"]);
    }
    fs::write(&file, &good[..good.len() - 1]).unwrap();
    both(&["cpus.parquet is damaged", "truncated"]);
    fs::write(&file, "").unwrap();
    both(&["cpus.parquet is damaged", "truncated to 0"]);
    fs::write(&file, [&good[..], b"x"].concat()).unwrap();
    both(&["cpus.parquet is damaged", "instead of"]);
    fs::remove_file(&file).unwrap();
    both(&["cpus.parquet is missing"]);
    fs::write(&file, &good).unwrap();
    Recording::open(&dir).unwrap();

    let json = dir.join("manifest.json");
    let text = fs::read_to_string(&json).unwrap();
    fs::write(&json, text.replace(r#""format": 1"#, r#""format": 2"#)).unwrap();
    both(&["manifest.json", "format 2 is newer than 1", "newer ncpu"]);
    fs::write(&json, &text[..text.len() / 2]).unwrap();
    both(&["manifest.json", "not JSON"]);
    fs::write(&json, [0xff, 0xfe]).unwrap();
    both(&["manifest.json", "not UTF-8"]);
    fs::write(&json, "").unwrap();
    both(&["manifest.json", "not JSON"]);
    fs::remove_file(&json).unwrap();
    both(&["x.ncpu is not a recording"]);
    fails(Recording::open(&home.path().join("none.ncpu")), &["none.ncpu", "No such file"]);
    fails(Recording::open(&file), &["cpus.parquet is not a recording"]);
}

/// A file with the right checksum may still not be Parquet.
#[test]
fn what_only_looks_right_is_damaged_too() {
    let (_home, dir) = place();
    finished(&dir);
    let json = dir.join("manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    fs::write(dir.join("locks.parquet"), "garbage").unwrap();
    let entry = &mut manifest["files"]["locks.parquet"];
    entry["bytes"] = 7.into();
    entry["sha256"] = "fb7be6b6b5bd2da7c27fca5ec8b5b5c0e64b9a1d0ed5ab8bd5c6d2e0a1a0f0f0".into();
    fs::write(&json, manifest.to_string()).unwrap();
    let Err(Error::Damaged { reason, .. }) = Recording::open(&dir) else { panic!() };
    let real = reason.split_whitespace().nth(3).unwrap();
    manifest["files"]["locks.parquet"]["sha256"] = real.into();
    fs::write(&json, manifest.to_string()).unwrap();
    fails(Recording::open(&dir), &["locks.parquet is damaged", "Parquet"]);
}

#[test]
fn other_files_are_ignored_with_a_note() {
    let (_home, dir) = place();
    finished(&dir);
    fs::write(dir.join("README"), "mine").unwrap();
    fs::write(dir.join("old.parquet"), "mine").unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.notes.len(), 2, "{:?}", recording.notes);
    assert!(recording.notes[0].contains("README does not belong to the recording"));
    assert_eq!(recording.tables.len(), 2);
}

#[test]
fn an_unfinished_one_is_recovered() {
    let (_home, dir) = place();
    unfinished(&dir, 3);
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.recovered, ["cpus", "locks"]);
    assert!(recording.notes.is_empty(), "{:?}", recording.notes);
    assert_eq!(recording.tables["cpus"].num_rows(), 12);
    fails(Recording::verify(&dir), &["x.ncpu is unfinished"]);

    fs::write(dir.join("locks.arrows"), "").unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.recovered, ["cpus"]);
    assert!(recording.notes[0].contains("locks.arrows was cut off before its first interval"));
    for garbage in [&b"garbage, not a stream"[..], &[0xff; 64], b"\xff\xff\xff\xff\x10\0\0\0AAAAAAAAAAAAAAAA"]
    {
        fs::write(dir.join("locks.arrows"), garbage).unwrap();
        match Recording::open(&dir) {
            Err(e) => assert!(e.to_string().contains("locks.arrows is damaged"), "{e}"),
            // A length of 4 GiB looks like a truncated file.
            Ok(r) => assert!(r.notes[0].contains("locks.arrows was cut off"), "{:?}", r.notes),
        }
    }
}

#[test]
fn a_finish_cut_off_leaves_the_streams_in_charge() {
    let (_home, dir) = place();
    unfinished(&dir, 2);
    for left in ["cpus.parquet", "locks.parquet.tmp", "manifest.json.tmp"] {
        fs::write(dir.join(left), "half").unwrap();
    }
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.recovered, ["cpus", "locks"]);
    assert!(recording.notes.is_empty(), "{:?}", recording.notes);
    // The reverse: finished, with a stream that was not yet removed.
    let whole = dir.with_file_name("whole.ncpu");
    finished(&whole);
    fs::copy(dir.join("cpus.arrows"), whole.join("cpus.arrows")).unwrap();
    let recording = Recording::open(&whole).unwrap();
    assert_eq!(recording.tables["cpus"].num_rows(), 12);
    assert!(recording.notes[0].contains("cpus.arrows does not belong to the recording"));
}

#[test]
fn a_stream_cut_at_any_byte_gives_its_whole_intervals() {
    let (_home, dir) = place();
    unfinished(&dir, 3);
    let whole = fs::read(dir.join("cpus.arrows")).unwrap();
    let mut seen = [false; 4];
    for len in 0..=whole.len() {
        let (rows, dropped) = match recover_stream(&whole[..len]).unwrap() {
            Some(found) => {
                assert_eq!(found.why.is_some(), found.dropped > 0);
                (found.batches.iter().map(|b| b.num_rows()).sum::<usize>(), found.dropped)
            }
            None => (0, len),
        };
        assert_eq!(rows % 4, 0);
        assert!(dropped <= len);
        seen[rows / 4] = true;

        // Power loss: the file has its length but the end reads as zeros.
        let mut zeros = whole[..len].to_vec();
        zeros.resize(whole.len() + 4096, 0);
        if let Some(found) = recover_stream(&zeros).unwrap() {
            assert!(found.why.is_some());
        }
    }
    assert_eq!(seen, [true; 4]);
}

/// A stream of Arrow's own writer ends with a marker, which this crate's streams lack until they are closed.
#[test]
fn a_stream_that_was_closed_is_whole_and_nothing_follows_it() {
    let table = cpus(7);
    let mut stream = Vec::new();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(&mut stream, &table.batch().schema()).unwrap();
    writer.write(table.batch()).unwrap();
    writer.write(table.batch()).unwrap();
    let before = writer.get_ref().len();
    writer.finish().unwrap();
    drop(writer);
    let marker = stream.len() - before;
    let found = recover_stream(&stream).unwrap().unwrap();
    assert_eq!((found.batches.len(), found.dropped, found.why), (2, 0, None));

    let behind = [&stream[..], b"more"].concat();
    let found = recover_stream(&behind).unwrap().unwrap();
    assert_eq!((found.batches.len(), found.dropped), (2, marker + 4));
    assert!(found.why.unwrap().contains("behind the end"));
    // Zeros are blocks that were lost only if nothing follows them.
    for (last, why) in [(0, "never reached the disk"), (1, "does not begin with ffffffff")] {
        let lost = [&stream[..before], &[0; 4000], &[last]].concat();
        let found = recover_stream(&lost).unwrap().unwrap();
        assert_eq!((found.batches.len(), found.dropped), (2, 4001));
        assert!(found.why.unwrap().contains(why));
    }
}

/// Of many recordings only the tables that are asked for are read.
#[test]
fn tables_that_are_not_selected_are_not_read() {
    let (_home, dir) = place();
    finished(&dir);
    fs::write(dir.join("cpus.parquet"), "damaged").unwrap();
    fs::write(dir.join("of-others"), "").unwrap();
    fails(Recording::open(&dir), &["cpus.parquet is damaged"]);
    let some = Opened::open(&dir).unwrap().tables(Some(&[("locks", &["lock"])])).unwrap();
    assert_eq!(some.tables.keys().collect::<Vec<_>>(), ["locks"]);
    assert_eq!(
        (some.tables["locks"].text(0, "lock"), some.tables["locks"].columns().len()),
        (Some("pcf"), 1)
    );
    assert!(some.notes.is_empty(), "{:?}", some.notes);
    fails(Opened::open(&dir).unwrap().tables(Some(&[("cpus", &["cpu"])])), &["cpus.parquet is damaged"]);
}

#[test]
fn a_manifest_is_read_alone_and_its_absence_is_named() {
    let (_home, dir) = place();
    fails(Manifest::read(&dir), &["x.ncpu", "No such file"]);
    fs::write(&dir, "").unwrap();
    assert!(matches!(Manifest::read(&dir), Err(Error::NotARecording(path)) if path == dir));
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    assert!(matches!(Manifest::read(&dir), Err(Error::NotARecording(path)) if path == dir));
    fs::remove_dir(&dir).unwrap();
    finished(&dir);
    assert_eq!(Manifest::read(&dir).unwrap(), Recording::open(&dir).unwrap().manifest);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_stream_with_wrong_bytes_never_panics(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<proptest::sample::Index>(),
    ) {
        use std::sync::OnceLock;
        static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
        let stream = STREAM.get_or_init(|| {
            let (_home, dir) = place();
            unfinished(&dir, 2);
            fs::read(dir.join("cpus.arrows")).unwrap()
        });
        let mut bytes = stream.clone();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        let _ = recover_stream(&bytes);
        bytes.truncate(cut.index(stream.len()));
        let _ = recover_stream(&bytes);
    }
}

/// Not a separate test: the process that `kill_loses_nothing_flushed` kills.
#[test]
fn child_that_records_until_killed() {
    let Some(dir) = std::env::var_os("NCPU_RECORD_TEST_DIR") else { return };
    let mut writer = Writer::create(Path::new(&dir), manifest()).unwrap();
    for interval in 0.. {
        writer.append(&cpus(interval)).unwrap();
        writer.flush().unwrap();
        println!("flushed");
    }
}

#[test]
fn kill_loses_nothing_flushed() {
    let (_home, dir) = place();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_records_until_killed", "--nocapture"])
        .env("NCPU_RECORD_TEST_DIR", &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let flushed = lines.by_ref().filter(|l| l.as_ref().unwrap().contains("flushed")).take(20).count();
    child.kill().unwrap();
    child.wait().unwrap();
    let flushed = flushed + lines.filter(|l| l.as_ref().unwrap().contains("flushed")).count();
    assert!(flushed >= 20);

    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.recovered, ["cpus"]);
    let rows = recording.tables["cpus"].num_rows();
    assert!(rows >= flushed * 4, "{rows} rows of {flushed} intervals");
    assert_eq!(recording.tables["cpus"].int(flushed * 4 - 2, "xcal"), Some((flushed as u64 - 1) * 10 + 2));
}

#[test]
fn columns_do_not_change() {
    let (_home, dir) = place();
    let mut writer = Writer::create(&dir, manifest()).unwrap();
    writer.append(&cpus(0)).unwrap();
    fails(writer.append(&locks().renamed("cpus")), &["table `cpus`", "time (Float)", "lock (Text)"]);
    fails(writer.append(&locks().renamed("a/b")), &["`a/b` cannot name a table"]);
    writer.append(&cpus(1)).unwrap();
    writer.finish().unwrap();
    assert_eq!(Recording::open(&dir).unwrap().tables["cpus"].num_rows(), 8);
}

/// A mount that ends with the test; `None`, with a message, if mounting is not permitted.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path, flags: rustix::mount::MountFlags) -> Option<Mount> {
        fs::create_dir(at).unwrap();
        match rustix::mount::mount("tmpfs", at, "tmpfs", flags, c"size=256k") {
            Ok(()) => Some(Mount(at.into())),
            Err(e) => {
                eprintln!("skipped: no tmpfs can be mounted here ({e}); run as root");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_told_and_what_was_written_is_recovered() {
    let home = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(&home.path().join("small"), rustix::mount::MountFlags::empty()) else {
        return;
    };
    let dir = mount.0.join("x.ncpu");
    let mut writer = Writer::create(&dir, manifest()).unwrap();
    let mut flushed = 0;
    let failed = loop {
        let result = writer.append(&cpus(flushed)).and_then(|()| writer.flush());
        match result {
            Ok(()) => flushed += 1,
            Err(e) => break e,
        }
        assert!(flushed < 10_000, "256 KiB never filled up");
    };
    let message = failed.to_string();
    assert!(message.contains("cpus.arrows") && message.contains("No space left"), "{message}");
    // Finishing cannot work either, and returns an error.
    let Err(e) = writer.finish() else { panic!("finished on a full disk") };
    assert!(e.to_string().contains("No space left"), "{e}");

    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.recovered, ["cpus"]);
    assert_eq!(recording.tables["cpus"].num_rows() as u64, flushed * 4);
    assert!(recording.notes.iter().any(|n| n.contains("cpus.arrows: the last")), "{:?}", recording.notes);
}

#[test]
fn a_directory_that_cannot_be_written_is_told() {
    let home = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(&home.path().join("ro"), rustix::mount::MountFlags::RDONLY) else {
        return;
    };
    fails(Writer::create(&mount.0.join("x.ncpu"), manifest()), &["x.ncpu", "Read-only file system"]);
}

#[test]
fn numbers_that_nothing_can_have_are_left_out_and_counted() {
    let (_home, dir) = place();
    let columns = [
        Column::float("s", Unit::Seconds, Kind::Time, "time"),
        Column::float("share", Unit::Share, Kind::Share, "share"),
        Column::int("count", Unit::None, Kind::Count, "events"),
        Column::int("address", Unit::None, Kind::Key, "where"),
    ];
    let mut rows = Table::builder("events", &columns);
    for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300] {
        rows.row().float(float).float(float).int(u64::MAX).int(u64::MAX);
    }
    rows.row().float(-1.5).float(0.5).int(1 << 40).int(7);
    let mut writer = Writer::create(&dir, manifest()).unwrap();
    writer.append(&rows.finish()).unwrap();
    writer.finish().unwrap();

    let recording = Recording::open(&dir).unwrap();
    let events = &recording.tables["events"];
    for row in 0..5 {
        let cells = ["s", "share", "count"].map(|column| events.number(row, column));
        assert_eq!(cells, [None; 3], "row {row}");
        assert_eq!(events.int(row, "address"), Some(u64::MAX), "a key is not a sum");
    }
    assert_eq!((events.number(5, "s"), events.number(5, "share")), (Some(-1.5), Some(0.5)));
    assert_eq!(events.int(5, "count"), Some(1 << 40));
    assert_eq!(recording.notes, ["table events: 15 impossible numbers were left out"]);
    // Possible numbers are read unchanged.
    let (_home, dir) = place();
    finished(&dir);
    assert!(Recording::open(&dir).unwrap().notes.is_empty());
}
