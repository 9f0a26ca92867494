//! One self-contained page of a fleet.

use crate::Result;
use crate::ask::{Asked, Question};

/// The page.
///
/// # Errors
/// As [`Asked::ask`].
pub fn page(_: &mut Asked, _: &Question) -> Result<String> {
    Ok(String::new())
}
