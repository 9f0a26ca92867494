//! Reads the small files of this module, and records which were refused.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Read;
use std::str::FromStr;

use rustix::io::Errno;

use crate::root::Dir;

/// No file read here comes near this size; /proc/PID/maps of a large process is counted, not kept.
const LONGEST: u64 = 16 << 20;

/// The files below a root.
pub(super) struct Files<'a> {
    /// The root.
    pub dir: &'a Dir,
    /// Whether it is the running machine.
    pub live: bool,
    refused: RefCell<BTreeMap<String, String>>,
    /// Processes whose files were refused.
    closed: Cell<usize>,
}

impl<'a> Files<'a> {
    pub fn new(dir: &'a Dir, live: bool) -> Files<'a> {
        Files { dir, live, refused: RefCell::default(), closed: Cell::new(0) }
    }

    /// The text of a file; `None` if it does not exist or is refused, which is recorded.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.fetch(name) {
            Ok(text) => Some(text),
            Err(e) => {
                if matches!(e, Errno::ACCESS | Errno::PERM) {
                    self.refuse(name, "permission denied");
                }
                None
            }
        }
    }

    /// The text of a file, or the error.
    pub fn fetch(&self, name: &str) -> Result<String, Errno> {
        let file = self.dir.open(name)?;
        let mut bytes = Vec::new();
        file.take(LONGEST)
            .read_to_end(&mut bytes)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first number of a file.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name).and_then(|t| first(&t))
    }

    /// Records a file that could not be read.
    pub fn refuse(&self, name: &str, why: &str) {
        self.refused.borrow_mut().insert(name.into(), why.into());
    }

    /// Records a process whose files are not readable.
    pub fn refuse_process(&self) {
        self.closed.set(self.closed.get() + 1);
    }

    /// The files that could not be read, a line for each reason.
    pub fn denied(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, why) in self.refused.borrow().iter() {
            by_reason.entry(why.clone()).or_default().push(format!("/{}", name.trim_start_matches('/')));
        }
        let mut out: Vec<String> = by_reason
            .into_iter()
            .map(|(why, names)| format!("not read, {why}: {}", names.join(", ")))
            .collect();
        match self.closed.get() {
            0 => {}
            n => out.push(format!(
                "not read, permission denied: open files and mappings of {n} process{} (run as root)",
                if n == 1 { "" } else { "es" }
            )),
        }
        out
    }
}

/// The first word of a text as a number.
pub(super) fn first<T: FromStr>(text: &str) -> Option<T> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The number after a word that starts a line: `MemTotal: 4096 kB`.
pub(super) fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|l| first(l.strip_prefix(key)?))
}

/// All numbers of a text.
pub(super) fn numbers(text: &str) -> Vec<u64> {
    text.split_ascii_whitespace().map_while(|w| w.parse().ok()).collect()
}
