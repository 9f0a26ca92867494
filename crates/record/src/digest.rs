//! Checksums as text.

use sha2::{Digest, Sha256};

/// A checksum as hexadecimal digits.
pub(crate) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
