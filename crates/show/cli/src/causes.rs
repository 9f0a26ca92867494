//! Files of causes that users add to the rule book.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use ncpu_report::causes::{self, Causes};
use ncpu_table::safe;

/// Where files of causes are that every command reads.
pub const DIR: &str = "/etc/ncpu/causes.d";

/// Causes that are looked up, common to commands that give advice.
#[derive(Args, Debug, Default)]
pub struct CausesArgs {
    /// Look up advice in FILE first, a TOML file of causes; may be given more than once. Files *.toml in /etc/ncpu/causes.d
    /// come next (docs/causes.md)
    #[arg(id = "causes", long, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl CausesArgs {
    /// The users' files that are looked up, with their text, the first one first.
    pub fn texts(&self) -> anyhow::Result<Vec<(PathBuf, String)>> {
        let text = |file: PathBuf| {
            let text = ncpu_files::text(&file).with_context(|| format!("reading {}", safe::os(&file)))?;
            Ok((file, text))
        };
        self.files.iter().cloned().chain(in_dir(Path::new(DIR))?).map(text).collect()
    }

    /// The rule book with the users' files.
    pub fn read(&self) -> anyhow::Result<Causes> {
        with_texts(&self.texts()?)
    }

    /// Has the reports of this process use the users' files. Without any, a thread reads the rule book meanwhile: a program that is to
    /// be observed need not wait for it.
    pub fn install(&self) -> anyhow::Result<()> {
        let texts = self.texts()?;
        match texts.is_empty() {
            true => drop(std::thread::Builder::new().name("ncpu-causes".into()).spawn(causes::current)),
            false => causes::install(with_texts(&texts)?),
        }
        Ok(())
    }
}

/// The rule book with users' files.
fn with_texts(texts: &[(PathBuf, String)]) -> anyhow::Result<Causes> {
    Causes::with(texts.iter().map(|(_, text)| &**text))
        .map_err(|(at, bad)| anyhow::anyhow!("{}:{bad}", safe::os(&texts[at].0)))
}

/// The files of a directory, by name; none where it is missing.
fn in_dir(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let named = || format!("reading {}", dir.display());
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(named),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(named)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_s_files_are_read_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["b.toml", "a.toml", "c.toml.old", "README"] {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        let names: Vec<_> = in_dir(dir.path()).expect("a list");
        let names: Vec<_> = names.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["a.toml", "b.toml"]);
        assert_eq!(in_dir(&dir.path().join("missing")).expect("none").len(), 0);
        assert!(in_dir(&dir.path().join("README")).is_err());
    }
}
