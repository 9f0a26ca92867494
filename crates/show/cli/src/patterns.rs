//! Patterns of waits that users add.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use ncpu_engine::engine::Patterns;

/// Patterns that distinguish waits, common to commands that use them.
#[derive(Args, Debug)]
pub struct PatternArgs {
    /// Name more locks by functions on a waiter's stack: FILE is consulted before ncpu's own table, in the same words
    /// (docs/locks.md)
    #[arg(id = "patterns", long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl PatternArgs {
    /// The table to observe with.
    pub fn read(&self) -> anyhow::Result<Patterns> {
        let Some(file) = &self.file else { return Ok(Patterns::default()) };
        let named = || format!("reading {}", file.display());
        let text = ncpu_files::text(file).with_context(named)?;
        Patterns::with(&text).with_context(|| file.display().to_string())
    }
}
