//! `ncpu report --pprof`, `--otlp`, `--folded`, `--speedscope`, `--perfetto`: a recording for other tools.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use flate2::{Compression, write::GzEncoder};
use ncpu_files::NewFile;
use ncpu_record::Recording;
use ncpu_report::export;
use ncpu_schema::StackKind;

/// Files for other tools.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Write the stacks to FILE for go tool pprof: samples, cpu, spin and off-cpu, of which -sample_index chooses
    #[arg(long, value_name = "FILE")]
    pprof: Option<PathBuf>,

    /// Write the stacks to FILE in OpenTelemetry's format (profiles of opentelemetry-proto 1.10)
    #[arg(long, value_name = "FILE")]
    otlp: Option<PathBuf>,

    /// Write the stacks to FILE as lines for flame graphs, in microseconds; - is standard output
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,

    /// Which stacks --folded writes
    #[arg(long, value_name = "KIND", default_value = "cpu", requires = "folded")]
    stacks: Stacks,

    /// Write the stacks to FILE for www.speedscope.app, with a profile for each kind
    #[arg(long, value_name = "FILE")]
    speedscope: Option<PathBuf>,

    /// Write what CPUs and threads did over time to FILE for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

/// Kinds of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stacks {
    /// On CPU, spinning too
    Cpu,
    /// Spinning for kernel locks
    Spin,
    /// Off CPU
    OffCpu,
}

impl ExportArgs {
    /// Writes what was asked for; whether anything was.
    ///
    /// # Errors
    /// A file cannot be written, a table is not as the schema has it, or there are no stacks to write.
    pub fn write(&self, recording: &Recording) -> anyhow::Result<bool> {
        let stacks =
            [&self.pprof, &self.otlp, &self.folded, &self.speedscope].into_iter().any(Option::is_some);
        anyhow::ensure!(
            !stacks || recording.tables.contains_key("stacks"),
            "there are no stacks in this recording: `ncpu run` and `ncpu watch` record them"
        );
        let trace = self.perfetto.is_none() || recording.tables.contains_key("cpu_time");
        anyhow::ensure!(
            trace,
            "nothing over time is in this recording: `ncpu run` and `ncpu watch` record that"
        );
        if let Some(file) = &self.pprof {
            put(file, &export::pprof(recording, StackKind::OnCpu)?)?;
        }
        if let Some(file) = &self.otlp {
            put(file, &export::otlp(recording)?)?;
        }
        if let Some(file) = &self.folded {
            let kind = match self.stacks {
                Stacks::Cpu => StackKind::OnCpu,
                Stacks::Spin => StackKind::Spin,
                Stacks::OffCpu => StackKind::OffCpu,
            };
            put(file, &export::folded(recording, kind)?)?;
        }
        if let Some(file) = &self.speedscope {
            let name = recording.manifest.command.join(" ");
            put(file, &export::speedscope(recording, &name)?)?;
        }
        if let Some(file) = &self.perfetto {
            put(file, &export::perfetto(recording)?)?;
        }
        Ok(stacks || self.perfetto.is_some())
    }
}

/// Writes a file, packed with gzip if its name ends with `.gz`; `-` is standard output.
fn put(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if file == Path::new("-") {
        return crate::out::raw(bytes);
    }
    let packed = match file.extension().is_some_and(|end| end == "gz") {
        true => {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
            gzip.write_all(bytes)?;
            Some(gzip.finish()?)
        }
        false => None,
    };
    let bytes = packed.as_deref().unwrap_or(bytes);
    NewFile::write(file, crate::out::mode(), bytes).with_context(|| format!("writing {}", file.display()))?;
    say!("ncpu: wrote {}", file.display());
    Ok(())
}
