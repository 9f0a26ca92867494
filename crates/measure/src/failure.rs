//! Why a benchmark gave no figure.

/// Why a case gave no figure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The machine lacks what the case needs; no fault of anybody's.
    #[error("skipped: {0}")]
    Lacks(String),
    /// An option of its own is mistaken, on whatever machine.
    #[error("{0}")]
    Usage(String),
    /// It went wrong.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    /// The error of the system call that just failed, after what was tried.
    pub fn os(tried: &str) -> Failure {
        Failure::Failed(format!("{tried}: {}", std::io::Error::last_os_error()))
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Failure {
        Failure::Failed(e.to_string())
    }
}
