//! The destination of an observation's tables: memory for the report, and the disk for a recording.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ncpu_schema::{Purpose, View};
use ncpu_table::Table;

use crate::{Gather, Machine, Manifest, Recording, Result, Throughput, Writer};

/// A directory to record in.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The directory.
    pub dir: &'a Path,
    /// Permissions of the files in it.
    pub mode: u32,
}

/// Both destinations of an observation's tables.
pub struct Sink {
    gather: Gather,
    writer: Option<Writer>,
    /// Why the recording on disk failed; the report is still made.
    failed: Option<String>,
    dir: Option<PathBuf>,
    say: fn(&str),
}

/// The error of a recording on disk that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recording is not complete: {0}")]
pub struct Incomplete(pub String);

impl Sink {
    /// Opens the recording, if there is to be one. `say` receives messages about its place, or that it
    /// stopped.
    ///
    /// # Errors
    /// As [`Writer::create_with`].
    pub fn open(
        kind: Purpose,
        command: Vec<String>,
        interval_s: f64,
        record: Option<Target<'_>>,
        say: fn(&str),
    ) -> Result<Sink> {
        let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |c| c.len()) as u64;
        let manifest = Manifest::new(kind, cpus, command, interval_s);
        let writer = record.map(|to| Writer::create_with(to.dir, manifest.clone(), to.mode)).transpose()?;
        let dir = record.map(|to| to.dir.to_path_buf());
        Ok(Sink { gather: Gather::new(manifest), writer, failed: None, dir, say })
    }

    /// Adds a table's new rows. A full disk ends the recording, not the observation.
    ///
    /// # Errors
    /// The table changed its columns.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        self.gather.append(table)?;
        if let Some(writer) = &mut self.writer
            && let Err(e) = writer.append(table).and_then(|()| writer.flush())
        {
            (self.say)(&format!("ncpu: recording stopped: {e}"));
            self.failed = Some(e.to_string());
            self.writer = None;
        }
        Ok(())
    }

    /// Sets when the observation began: programs are loaded for a while before, and times in tables count from then.
    pub fn began(&mut self, ago: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = now.saturating_sub(ago).as_secs_f64();
        self.gather.manifest_mut().created_unix = began;
        self.change_manifest(|manifest| manifest.created_unix = began);
    }

    /// Sets the observer's view, if it is limited.
    pub fn view(&mut self, view: View) {
        self.change_manifest(|manifest| manifest.view = Some(view));
        self.gather.manifest_mut().view = Some(view);
    }

    /// Changes the manifest on disk, so that an interrupted recording has it too.
    fn change_manifest(&mut self, change: impl FnOnce(&mut Manifest)) {
        let Some(writer) = &mut self.writer else { return };
        change(writer.manifest_mut());
        if let Err(e) = writer.write_manifest() {
            self.failed = Some(e.to_string());
            self.writer = None;
        }
    }

    /// Sets the throughput that the command printed.
    pub fn throughput(&mut self, throughput: Throughput) {
        if let Some(writer) = &mut self.writer {
            writer.manifest_mut().throughput = Some(throughput.clone());
        }
        self.gather.manifest_mut().throughput = Some(throughput);
    }

    /// Closes the recording; the error of a failed one is returned with the report's data.
    ///
    /// # Errors
    /// Tables of several intervals cannot be combined.
    pub fn finish(mut self, notes: Vec<String>) -> Result<(Recording, Option<Incomplete>)> {
        let machine = Machine::here();
        machine.put(self.gather.manifest_mut());
        self.gather.manifest_mut().notes = notes.clone();
        let recording = self.gather.finish()?;
        let mut error = self.failed.map(Incomplete);
        if let Some(mut writer) = self.writer {
            machine.put(writer.manifest_mut());
            writer.manifest_mut().notes = notes;
            if let Err(e) = writer.finish() {
                error = Some(Incomplete(e.to_string()));
            } else if let Some(dir) = self.dir {
                (self.say)(&format!(
                    "ncpu: recorded in {}; `ncpu report {0}` prints it again",
                    dir.display()
                ));
            }
        }
        Ok((recording, error))
    }
}

#[cfg(test)]
mod tests {
    use ncpu_table::Column;

    use super::*;

    fn rows(name: &str) -> Table {
        let mut rows = Table::builder(name, &[Column::text("lock", "name of the lock")]);
        rows.row().text("pcf");
        rows.finish()
    }

    #[test]
    fn both_ends_have_the_same() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("r.ncpu");
        let to = Some(Target { dir: &dir, mode: 0o600 });
        let mut sink = Sink::open(Purpose::Run, vec!["make".into()], 1.0, to, |_| ()).unwrap();
        let opened = sink.gather.manifest_mut().created_unix;
        sink.began(Duration::from_secs(5));
        sink.table(&rows("locks")).unwrap();
        sink.throughput(Throughput { metric: "tps".into(), per_second: 5.0 });
        let (recording, failed) = sink.finish(vec!["a note".into()]).unwrap();
        assert_eq!(failed, None);
        let read = Recording::open(&dir).unwrap();
        let latest = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() - 5.0;
        for recording in [&recording, &read] {
            let began = recording.manifest.created_unix;
            assert!((opened - 5.0..=latest).contains(&began), "{began}, opened {opened}");
            assert_eq!(recording.tables["locks"].text(0, "lock"), Some("pcf"));
            assert_eq!(recording.manifest.notes, ["a note"]);
            assert_eq!(recording.manifest.throughput.as_ref().map(|t| t.per_second), Some(5.0));
        }
    }

    #[test]
    fn a_recording_that_fails_leaves_the_report() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("r.ncpu");
        let to = Some(Target { dir: &dir, mode: 0o600 });
        let mut sink = Sink::open(Purpose::Run, Vec::new(), 1.0, to, |_| ()).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        sink.table(&rows("locks")).unwrap();
        let (recording, failed) = sink.finish(Vec::new()).unwrap();
        assert_eq!(recording.tables["locks"].num_rows(), 1);
        assert!(failed.unwrap().to_string().starts_with("the recording is not complete: "));
        assert!(
            Sink::open(
                Purpose::Run,
                Vec::new(),
                1.0,
                Some(Target { dir: "/proc/x".as_ref(), mode: 0o600 }),
                |_| ()
            )
            .is_err()
        );
    }
}
