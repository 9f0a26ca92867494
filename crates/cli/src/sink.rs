//! Where an observation's tables go: into memory for the report, and to disk with `--record`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use ncpu_record::{Gather, Manifest, Recording, Throughput, Writer};
use ncpu_schema::{Purpose, View};
use ncpu_table::Table;

/// Both ends of an observation's tables.
pub struct Sink {
    gather: Gather,
    writer: Option<Writer>,
    /// The recording on disk failed; the report still comes.
    failed: Option<String>,
    dir: Option<PathBuf>,
}

impl Sink {
    /// Opens the recording, where there is to be one.
    pub fn open(
        kind: Purpose,
        command: Vec<String>,
        interval_s: f64,
        record: Option<&Path>,
    ) -> anyhow::Result<Sink> {
        let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |c| c.len()) as u64;
        let manifest = Manifest::new(kind, cpus, command, interval_s);
        let writer = match record {
            Some(dir) => {
                Some(Writer::create_with(dir, manifest.clone(), crate::out::mode()).context("--record")?)
            }
            None => None,
        };
        Ok(Sink { gather: Gather::new(manifest), writer, failed: None, dir: record.map(Path::to_path_buf) })
    }

    /// Takes a table's new rows. A disk that fills up ends the recording, not the observation.
    pub fn table(&mut self, table: &Table) -> anyhow::Result<()> {
        self.gather.append(table)?;
        if let Some(writer) = &mut self.writer
            && let Err(e) = writer.append(table).and_then(|()| writer.flush())
        {
            say!("ncpu: recording stopped: {e}");
            self.failed = Some(e.to_string());
            self.writer = None;
        }
        Ok(())
    }

    /// Takes what the observer can see, where that is not everything.
    pub fn view(&mut self, view: View) {
        if let Some(writer) = &mut self.writer {
            writer.manifest_mut().view = Some(view);
            // A recording that is cut short has it too.
            if let Err(e) = writer.write_manifest() {
                self.failed = Some(e.to_string());
                self.writer = None;
            }
        }
        self.gather.manifest_mut().view = Some(view);
    }

    /// Takes the throughput that the command told.
    pub fn throughput(&mut self, throughput: Throughput) {
        if let Some(writer) = &mut self.writer {
            writer.manifest_mut().throughput = Some(throughput.clone());
        }
        self.gather.manifest_mut().throughput = Some(throughput);
    }

    /// Closes the recording; the error of one that failed comes with the report's data.
    pub fn finish(mut self, notes: Vec<String>) -> anyhow::Result<(Recording, Option<anyhow::Error>)> {
        let model = cpu_model();
        self.gather.manifest_mut().cpu_model = model.clone();
        self.gather.manifest_mut().notes = notes.clone();
        let recording = self.gather.finish()?;
        let mut error = self.failed.map(|e| anyhow::anyhow!("the recording is not complete: {e}"));
        if let Some(mut writer) = self.writer {
            writer.manifest_mut().cpu_model = model;
            writer.manifest_mut().notes = notes;
            if let Err(e) = writer.finish() {
                error = Some(anyhow::Error::new(e).context("the recording is not complete"));
            } else if let Some(dir) = self.dir {
                say!("ncpu: recorded in {}; `ncpu report {0}` prints it again", dir.display());
            }
        }
        Ok((recording, error))
    }
}

/// Records the tables of a command that looks once, where `--record` asks for it.
///
/// # Errors
/// The recording cannot be written.
pub fn record_once(
    record: Option<&Path>,
    kind: Purpose,
    words: Vec<String>,
    tables: &[Table],
    notes: Vec<String>,
) -> anyhow::Result<()> {
    if record.is_none() {
        return Ok(());
    }
    let mut sink = Sink::open(kind, words, 0.0, record)?;
    for table in tables {
        sink.table(table)?;
    }
    sink.finish(notes)?.1.map_or(Ok(()), Err)
}

/// Read when the observation is over, so as to cost it nothing.
pub fn cpu_model() -> String {
    let topology = ncpu_machine::Topology::read(Path::new("/")).ok();
    topology.and_then(|t| t.packages.into_iter().find_map(|p| p.model)).unwrap_or_default()
}
