//! Embeds the page, where `make web` has built it.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let here = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let source = Path::new(&here).join("../../../web/serve");
    let built = source.join("dist");
    let mut files = Vec::new();
    if built.is_dir() {
        println!("cargo::rerun-if-changed={}", built.display());
        for entry in fs::read_dir(&built)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                files.push((entry.file_name(), entry.path().canonicalize()?));
            }
        }
        files.sort();
    } else {
        println!("cargo::rerun-if-changed={}", source.display());
        println!("cargo::warning=the page of ncpu serve is left out: `make web` builds it, with Node");
    }
    let mut text = String::from("/// Files of the page by name.\nconst FILES: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        let _ = writeln!(
            text,
            "    ({:?}, include_bytes!({:?})),",
            name.to_string_lossy(),
            path.to_string_lossy()
        );
    }
    text.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR").map_err(io::Error::other)?).join("files.rs"), text)
}
