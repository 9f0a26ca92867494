//! Owners that a walk of the pages finds, and the kernel's data on a file.

use std::collections::HashMap;

use super::Counts;

/// Owners by page count, of each class they own.
pub(super) type Owned = HashMap<u64, Counts>;

/// A file, as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Inode number.
    pub inode: u64,
    /// Device of the file system: major and minor number.
    pub device: (u32, u32),
    /// The device it is itself, where it is a block device.
    pub rdev: Option<(u32, u32)>,
    /// Type of the file system.
    pub fs: String,
    /// Path within the file system, without a slash before it.
    pub path: String,
}

impl Named {
    /// Reads `struct named` of the BPF program; `None` where the file had gone.
    pub fn parse(raw: &[u8]) -> Option<Named> {
        const FS: usize = 32;
        const NAMES: usize = FS + 16;
        const NAME: usize = 64;
        const S_IFMT: u32 = 0o170_000;
        const S_IFBLK: u32 = 0o060_000;
        let word = |at: usize| Some(u32::from_ne_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        let inode = u64::from_ne_bytes(raw.get(8..16)?.try_into().ok()?);
        // A number of a device as the kernel keeps it.
        let device = |raw: u32| (raw >> 20, raw & 0xf_ffff);
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let (dev, rdev, mode, depth) = (word(16)?, word(20)?, word(24)?, word(28)? as usize);
        let names = raw.get(NAMES..)?.chunks_exact(NAME).take(depth).map(text);
        // From the file upwards.
        let mut parts: Vec<String> = names.collect();
        parts.reverse();
        (inode != 0).then(|| Named {
            inode,
            device: device(dev),
            rdev: (mode & S_IFMT == S_IFBLK).then(|| device(rdev)),
            fs: text(&raw[FS..NAMES]),
            path: parts.join("/"),
        })
    }
}
