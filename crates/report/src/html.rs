//! One self-contained page of an observation.

use ncpu_record::Recording;

use crate::onion::Missing;

/// The page.
///
/// # Errors
/// [`Missing`], as [`crate::onion::Onion::peel`].
pub fn page(recording: &Recording) -> Result<String, Missing> {
    let onion = crate::onion::Onion::peel(recording)?;
    Ok(format!("<!doctype html><title>{}</title>", onion.command))
}
