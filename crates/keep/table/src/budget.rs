//! Limits the memory that the rows of a file may take. A few bytes of Parquet can stand for any number of
//! rows.

use crate::{Error, Result};

/// Memory for a file of any length.
const LEAST: u64 = 256 << 20;

/// Decoded bytes per byte on disk. A table of 2,048 idle CPUs, mostly zeros, has a ratio of 36.
const RATIO: u64 = 64;

/// Maximum memory for a file of any length.
const MOST: u64 = 4 << 30;

/// The memory that decoding may take, for one file or for several that are kept together.
#[derive(Debug)]
pub struct Budget {
    all: u64,
    left: u64,
    most: u64,
}

impl Budget {
    /// A budget for a file of `bytes` bytes on disk: 256 MiB plus 64 bytes per byte, up to 4 GiB.
    pub fn for_bytes(bytes: u64) -> Budget {
        let mut budget = Budget::new(LEAST, MOST);
        budget.add_file(bytes);
        budget
    }

    /// A budget for files that are added as they are read.
    pub fn new(least: u64, most: u64) -> Budget {
        Budget { all: least, left: least, most: most.max(least) }
    }

    /// Adds 64 bytes per byte that a file takes on disk, up to the maximum.
    pub fn add_file(&mut self, bytes: u64) {
        let more = bytes.saturating_mul(RATIO).min(self.most - self.all);
        self.all += more;
        self.left += more;
    }

    /// Takes bytes out of the budget.
    ///
    /// # Errors
    /// The budget is used up.
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
