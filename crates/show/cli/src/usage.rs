//! Mistakes on the command line that only the commands themselves see: options that do not go together, values out of range. They
//! end with the status that clap's own errors have.

/// The exit status of a mistake on the command line.
pub const STATUS: u8 = 2;

/// A mistake on the command line. A value that is wrong only on this machine, or for this recording, is an error like others.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// A [`Usage`] in these words.
macro_rules! mistake {
    ($($words:tt)*) => { anyhow::Error::new($crate::usage::Usage(format!($($words)*))) };
}

/// Ends the function with a [`Usage`] in these words.
macro_rules! usage {
    ($($words:tt)*) => { return Err(mistake!($($words)*)) };
}

/// Ends the function with a [`Usage`] in these words unless a condition holds.
macro_rules! require {
    ($holds:expr, $($words:tt)*) => {
        if !$holds {
            usage!($($words)*);
        }
    };
}

/// Whether an error is a mistake on the command line.
pub fn is_usage(error: &anyhow::Error) -> bool {
    use ncpu_table::Error::{BandsWithoutSort, MeanWithoutBands, NoColumn, Zero};
    let of_table = |error: &ncpu_table::Error| {
        matches!(error, NoColumn { .. } | BandsWithoutSort(_) | MeanWithoutBands | Zero(_))
    };
    // A column that a file lacks has the file's name around it.
    let bare = error.chain().nth(1).is_none();
    error.is::<Usage>()
        || bare && error.downcast_ref().is_some_and(of_table)
        || matches!(error.downcast_ref(), Some(ncpu_measure::Failure::Usage(_)))
}

/// Reads a number of at least 1.
///
/// # Errors
/// It is not a whole number, or is 0.
pub fn one_or_more(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("expected 1 or more".into()),
        number => number.map_err(|e| e.to_string()),
    }
}
