//! The machine's description, read from /sys and /proc under a root directory.
//!
//! ```no_run
//! # fn main() -> Result<(), ncpu_machine::Error> {
//! let machine = ncpu_machine::Topology::read("/".as_ref())?;
//! println!("{} packages, {} cores, {} CPUs", machine.packages.len(), machine.cores.len(), machine.ncpu());
//! # Ok(()) }
//! ```

use std::path::{Path, PathBuf};

mod allowed;
mod caches;
mod cpuinfo;
mod cpus;
mod cpuset;
pub mod events;
mod finds;
mod knl;
pub mod limits;
pub mod memory;
mod midr;
mod nodes;
pub mod numa_maps;
pub mod power;
pub mod process;
mod read;
pub mod resctrl;
mod root;
pub mod tenant;
mod topology;
mod wanted;

pub use cpuinfo::{CpuInfo, parse as parse_cpuinfo};
pub use cpuset::{CpuSet, MAX_CPU, ParseError};
pub use topology::{Cache, CacheType, Core, Cpu, Group, Hugepages, Kind, Node, Package, SideCache, Topology};
pub use wanted::Wanted;

/// Why a machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The root directory cannot be opened.
    #[error("cannot open {}", root.display())]
    Root {
        /// The root.
        root: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The root directory does not describe a machine.
    #[error(
        "{} holds no {missing}: give the directory that contains a machine's sys/ and proc/", root.display()
    )]
    NoMachine {
        /// The root.
        root: PathBuf,
        /// The missing path.
        missing: &'static str,
    },
    /// A map of memory without memory.
    #[error("{} names no memory; it shows addresses to root only", path.display())]
    NoMemory {
        /// The file.
        path: PathBuf,
    },
    /// A file that should contain a set of CPUs contains other text.
    #[error("{} holds no set of CPUs", path.display())]
    Set {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ParseError,
    },
}

impl Error {
    /// The error and its cause in one line.
    fn whole(&self) -> String {
        std::error::Error::source(self).map_or_else(|| self.to_string(), |cause| format!("{self}: {cause}"))
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The online CPUs below a root directory (`/sys/devices/system/cpu/online`, else each `cpuN/online`).
///
/// # Errors
/// The directory cannot be opened, holds no `sys/devices/system/cpu`, or its list is malformed.
pub fn online_cpus(root: &Path) -> Result<CpuSet> {
    let dir = root::Dir::root(root)?;
    Ok(cpus::Lists::read(root, &dir)?.online)
}

/// Size in bytes of this machine's smallest page.
#[must_use]
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Text as one word of a shell's command line: names of groups and files may contain any character.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a shell parses them.
    #[test]
    fn any_text_is_one_word_of_a_shell() {
        assert_eq!(
            (shell_word("/sys/fs/cgroup/a.b_c-d+e@f:1,2"), shell_word("")),
            ("/sys/fs/cgroup/a.b_c-d+e@f:1,2".into(), "''".into())
        );
        for text in [
            "",
            "plain",
            "two words",
            "it's",
            "''",
            "$HOME `id` $(id)",
            "a;b|c&d>e",
            "\\",
            "~",
            "*",
            "#x",
            "λ\n",
        ] {
            let said = std::process::Command::new("sh")
                .arg("-c")
                .arg(format!("printf '%s.' {}", shell_word(text)))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), format!("{text}."), "{text:?}");
        }
    }

    #[test]
    fn an_error_is_told_with_its_cause() {
        let source = CpuSet::parse_list("x").unwrap_err();
        let (cause, path) = (source.to_string(), PathBuf::from("/sys/x"));
        assert_eq!(Error::Set { path, source }.whole(), format!("/sys/x holds no set of CPUs: {cause}"));
        assert_eq!(page_size().count_ones(), 1);
    }
}
