//! `ncpu report --pprof`, `--otlp`, `--folded`, `--speedscope`, `--perfetto`: a recording for other tools.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use flate2::{Compression, write::GzEncoder};
use ncpu_files::NewFile;
use ncpu_http::{Authorities, Collector};
use ncpu_record::Recording;
use ncpu_report::export;
use ncpu_schema::StackKind;
use ncpu_table::safe;

/// Files for other tools.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Write the stacks to FILE for go tool pprof: samples, cpu, spin and off-cpu, of which -sample_index chooses
    #[arg(long, value_name = "FILE")]
    pprof: Option<PathBuf>,

    /// Write the stacks to FILE in OpenTelemetry's format (profiles of opentelemetry-proto 1.10), or send them to the collector at an
    /// address, as in http://127.0.0.1:4318 or https://collector.example
    #[arg(long, value_name = "FILE|URL")]
    otlp: Option<PathBuf>,

    /// Certificate authorities of an https collector, in PEM [default: the system's]
    #[arg(long, value_name = "FILE", requires = "otlp")]
    otlp_ca: Option<PathBuf>,

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
        if let Some(to) = &self.otlp {
            match to.to_str().filter(|text| Collector::is_address(text)) {
                Some(url) => send(url, self.otlp_ca.as_deref(), recording)?,
                None => put(to, &export::otlp(recording)?)?,
            }
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

/// Time that a collector may take, with all tries.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends the stacks to a collector.
fn send(url: &str, ca: Option<&Path>, recording: &Recording) -> anyhow::Result<()> {
    let authorities = ca.map(Authorities::of_file).transpose();
    let authorities = authorities.map_err(|why| anyhow::anyhow!("--otlp-ca {}", safe::cut(&why, 400)))?;
    let collector =
        Collector::at(url, PATIENCE).with_context(|| format!("--otlp {}", safe::cut(url, 200)))?;
    let collector = collector.certified_by(authorities);
    let message = export::otlp(recording)?;
    let to = safe::cut(&collector.url().to_string(), 200);
    let sent = collector.send(&message, &|| false);
    let sent = sent.map_err(|why| anyhow::anyhow!("--otlp {to}: {}", safe::cut(&why, 400)))?;
    let message = safe::cut(&sent.message, 400);
    anyhow::ensure!(sent.rejected == 0, "{to} refused {} profiles: {message}", sent.rejected);
    match message.is_empty() {
        true => say!("ncpu: sent to {to}"),
        false => say!("ncpu: sent to {to}, which says: {message}"),
    }
    Ok(())
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
