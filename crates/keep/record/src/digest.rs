//! Checksums as text.

use sha2::{Digest, Sha256};

/// A checksum as hexadecimal digits.
pub(crate) fn hex(hash: Sha256) -> String {
    let digit = |four: u8| char::from_digit(four.into(), 16);
    hash.finalize().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten().collect()
}
