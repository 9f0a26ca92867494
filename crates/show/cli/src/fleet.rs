//! `ncpu fleet`: many machines' recordings as one table. Its work is a program of its own, `ncpu-fleet`, for drivers of
//! engines and clients of object stores would make `ncpu` half as large again.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::bail;
pub use ncpu_fleet_args::FleetArgs;

use crate::beside;

/// The program.
pub const PROGRAM: &str = "ncpu-fleet";

/// Hands the arguments to the program, which reads them again; they are known to be right.
pub fn run(_: &FleetArgs) -> anyhow::Result<ExitCode> {
    let program = beside::program(PROGRAM);
    // Nothing of `ncpu` itself takes options before its command.
    let arguments = std::env::args_os().skip(2);
    // Only where it fails does it come back.
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        bail!("{}", beside::missing("ncpu fleet", PROGRAM));
    }
    bail!("{} cannot be run: {error}", program.display())
}
