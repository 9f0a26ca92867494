//! How much memory the rows of a file may take. A few bytes of Parquet can stand for any number of rows.

use crate::{Error, Result};

/// The memory of a file of any length.
const LEAST: u64 = 256 << 20;

/// Decoded bytes per byte on disk. A table of 2,048 idle CPUs, mostly zeros, decodes to 36.
const RATIO: u64 = 64;

/// The memory of a file, however long.
const MOST: u64 = 4 << 30;

/// The memory that decoding may take: of one file, or of several that are kept together.
#[derive(Debug)]
pub struct Budget {
    all: u64,
    left: u64,
    most: u64,
}

impl Budget {
    /// A budget for a file that takes this many bytes on disk: 256 MiB, and 64 bytes for each of its bytes, up to 4 GiB.
    pub fn for_bytes(bytes: u64) -> Budget {
        let mut budget = Budget::new(LEAST, MOST);
        budget.add_file(bytes);
        budget
    }

    /// A budget for files that are added as they are read.
    pub fn new(least: u64, most: u64) -> Budget {
        Budget { all: least, left: least, most: most.max(least) }
    }

    /// Adds 64 bytes for each byte that a file takes on disk, up to the most that is allowed.
    pub fn add_file(&mut self, bytes: u64) {
        let more = bytes.saturating_mul(RATIO).min(self.most - self.all);
        self.all += more;
        self.left += more;
    }

    /// Takes bytes out of the budget.
    ///
    /// # Errors
    /// It is used up.
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| {
            let all = self.all >> 20;
            Error::Foreign(format!(
                "its rows take more than {all} MiB of memory, the limit for its size on disk"
            ))
        })?;
        Ok(())
    }
}
