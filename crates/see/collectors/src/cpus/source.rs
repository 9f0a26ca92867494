//! Files of /proc kept open and read again for each sample.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::parse::{self, Bad};
use super::{Error, Result};

/// One file, with the buffer its text goes to.
pub(super) struct Source {
    file: File,
    path: PathBuf,
    buf: Vec<u8>,
}

impl Source {
    pub fn open(root: &Path, name: &str) -> Result<Source> {
        let path = root.join(name);
        match File::open(&path) {
            Ok(file) => Ok(Source { file, path, buf: vec![0; 64 << 10] }),
            Err(source) => Err(Error::Read { path, source }),
        }
    }

    /// Reads until `enough` says so of what there is, or to the end.
    fn read(&mut self, enough: impl Fn(&[u8]) -> bool) -> Result<&[u8]> {
        let mut len = 0;
        loop {
            if len == self.buf.len() {
                self.buf.resize(2 * len, 0);
            }
            match self.file.read_at(&mut self.buf[len..], len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::Read { path: self.path.clone(), source }),
            }
            if enough(&self.buf[..len]) {
                break;
            }
        }
        Ok(&self.buf[..len])
    }

    /// The times of every CPU that is online.
    pub fn times(&mut self, each: impl FnMut(u32, [u64; parse::TIMES])) -> Result<()> {
        // The line of interrupts behind the CPUs is longer than all of them on a large machine.
        let text = self.read(|text| {
            let text = text.strip_suffix(b"\n").unwrap_or(text);
            let last = text.iter().rposition(|&b| b == b'\n').map_or(text, |end| &text[end + 1..]);
            !b"cpu".starts_with(&last[..last.len().min(3)])
        })?;
        parse::stat(text, each).map_err(|bad| self.bad(bad))
    }

    /// The sums of a table of counts by CPU.
    pub fn sums(&mut self, sums: &mut parse::Sums) -> Result<()> {
        let text = self.read(|_| false)?;
        sums.read(text).map_err(|bad| self.bad(bad))
    }

    fn bad(&self, bad: Bad) -> Error {
        Error::Parse { path: self.path.clone(), line: bad.line, expected: bad.expected }
    }
}
