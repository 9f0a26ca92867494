//! `ncpu --version`: what this build has, beyond its number.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use ncpu_machine::process::{self, Mapping};
use ncpu_table::safe;

use crate::{beside, fleet};

/// Facts known when it is built, for bug reports.
pub const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("NCPU_COMMIT"),
    "\ntarget: ",
    env!("NCPU_TARGET"),
    "\nfeatures: ",
    env!("NCPU_FEATURES")
);

/// Facts known only where it runs: the shared libraries that were loaded, and the programs that it starts.
pub fn features() -> String {
    let maps = process::read("/proc/self/maps".as_ref()).unwrap_or_default();
    let fleet = found(fleet::PROGRAM).map_or_else(|| absent(fleet::PROGRAM), |path| format!("{path}\n"));
    format!("libraries: {}\nserve: {}fleet: {fleet}", libraries(&maps), served())
}

/// Shared libraries in a map of memory; libbpf is named whether it is one or a part of the program.
fn libraries(maps: &[u8]) -> String {
    let names: BTreeSet<&str> = process::mappings(maps)
        .filter(Mapping::is_file)
        .filter_map(|mapping| mapping.path().file_name()?.to_str())
        .filter(|name| name.contains(".so"))
        .collect();
    let own = (!names.iter().any(|name| name.starts_with("libbpf."))).then_some("libbpf is a part of ncpu");
    let shared: Vec<&str> = names.into_iter().collect();
    let shared =
        if shared.is_empty() { "none is shared".into() } else { format!("shared {}", shared.join(", ")) };
    own.into_iter()
        .map(str::to_owned)
        .chain([safe::line(&shared).into_owned()])
        .collect::<Vec<_>>()
        .join("; ")
}

/// Where a program is that `ncpu` would start.
pub fn found(name: &str) -> Option<String> {
    let program = beside::program(name);
    let path = if program.is_absolute() {
        Some(program)
    } else {
        let dirs = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&dirs).map(|dir| dir.join(name)).find(|path| path.is_file())
    };
    path.map(|path| safe::os(&path))
}

fn absent(name: &str) -> String {
    format!("no {name}, which is looked for beside ncpu and in PATH\n")
}

/// The program that answers for `ncpu serve`, and whether it has the page, as it says itself.
fn served() -> String {
    let name = ncpu_feed::PROGRAM;
    let Some(path) = found(name) else { return absent(name) };
    let asked = Command::new(beside::program(name)).arg("--version").stdin(Stdio::null()).output();
    match asked {
        Ok(answer) if answer.status.success() => {
            let text = String::from_utf8_lossy(&answer.stdout);
            let lines: Vec<&str> = text.lines().take(2).collect();
            format!("{path}, {}\n", safe::line(&lines.join(", ")))
        }
        _ => format!("{path}, of another version\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_from_other_files() {
        let maps = "5581 r--p 0 fe:00 1 /usr/bin/ncpu\n7f00-7f01 r-xp 0 fe:00 2 /usr/lib/libelf-0.188.so\n\
                    7f01-7f02 r-xp 0 fe:00 3 /usr/lib/libc.so.6\n7f02-7f03 rw-p 0 fe:00 3 /usr/lib/libc.so.6\n7f rw-p 0 0 0 [heap]\n";
        assert_eq!(libraries(maps.as_bytes()), "libbpf is a part of ncpu; shared libc.so.6, libelf-0.188.so");
        assert_eq!(
            libraries(b"1-2 r-xp 0 fe:00 1 /usr/bin/ncpu\n"),
            "libbpf is a part of ncpu; none is shared"
        );
        assert_eq!(libraries(b"1-2 r-xp 0 fe:00 1 /usr/lib/libbpf.so.1.1.0\n"), "shared libbpf.so.1.1.0");
    }
}
