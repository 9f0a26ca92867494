//! `ncpu fleet`: many machines' recordings as one table. Its work is a program of its own, `ncpu-fleet`, for drivers of
//! engines and clients of object stores would make `ncpu` half as large again.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::bail;
pub use ncpu_fleet_args::FleetArgs;

/// The program.
const PROGRAM: &str = "ncpu-fleet";

/// Hands the arguments to the program, which reads them again; they are known to be right.
pub fn run(_: &FleetArgs) -> anyhow::Result<ExitCode> {
    let beside: Option<PathBuf> =
        std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(PROGRAM)));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into());
    // Nothing of `ncpu` itself takes options before its command.
    let arguments = std::env::args_os().skip(2);
    // Only where it fails does it come back.
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        bail!(
            "ncpu fleet needs the program {PROGRAM}, which is neither beside ncpu nor in PATH: install it with ncpu"
        );
    }
    bail!("{} cannot be run: {error}", program.display())
}
