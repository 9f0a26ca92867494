//! `ncpu import`: a file of `perf record` as a recording.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use anyhow::Context;
use clap::Args;
use ncpu_record::{Manifest, Writer};
use ncpu_schema::Purpose;
use ncpu_table::safe;

/// Turn a file of perf record into a recording, for ncpu report
///
/// On-CPU samples become layers, stacks and threads. With `perf record --switch-events` time on CPU is exact, and time off CPU is
/// there too. Names come from this machine's files and kernel, so import the file where it was recorded.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// File of perf record
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write the recording to DIR (conventionally NAME.ncpu)
    #[arg(long, value_name = "DIR")]
    record: PathBuf,
}

/// Reads the file and writes the recording.
///
/// # Errors
/// The file cannot be read or is not one of perf's; the recording cannot be written.
pub fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let shown = safe::os(args.file.as_os_str());
    let reading = || format!("reading {shown}");
    let bytes = ncpu_files::read(&args.file, ncpu_perfdata::MOST).with_context(reading)?;
    let modified = std::fs::metadata(&args.file).and_then(|about| about.modified()).with_context(reading)?;
    let imported = ncpu_perfdata::import(&bytes).with_context(|| shown.to_string())?;
    let purpose = if imported.machine { Purpose::Watch } else { Purpose::Run };
    let here = Manifest::new(purpose, imported.cpus, imported.command, 0.0);
    // perf writes the file when it ends.
    let ended = modified.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let manifest = Manifest {
        machine: here.machine.clone().filter(|_| here.host == imported.host),
        host: imported.host,
        kernel: imported.kernel,
        cpu_model: imported.cpu_model,
        created_unix: (ended - imported.elapsed).max(0.0),
        notes: imported.notes,
        ..here
    };
    let mut writer = Writer::create_with(&args.record, manifest, crate::out::mode())?;
    for table in &imported.tables {
        writer.append(table)?;
    }
    writer.flush()?;
    writer.finish()?;
    let dir = safe::os(args.record.as_os_str());
    say!("ncpu: recorded in {dir}; `ncpu report {dir}` prints it");
    Ok(ExitCode::SUCCESS)
}
