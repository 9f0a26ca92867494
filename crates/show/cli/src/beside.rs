//! Programs that are installed with `ncpu` and that it starts.

use std::path::PathBuf;

/// The program of this name beside `ncpu`, or the name, for PATH to be searched.
pub fn program(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(name)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| name.into())
}

/// Message for a missing program.
pub fn missing(command: &str, name: &str) -> String {
    format!(
        "{command} needs the program {name}, which is neither beside ncpu nor in PATH: install it with ncpu"
    )
}
