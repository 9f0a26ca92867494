//! Build script of the crates with BPF programs: compiles every `NAME.bpf.c` below `src` to
//! `$OUT_DIR/NAME.skel.rs`.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Headers that all programs share.
const SHARED: &str = "../observe-core/src/bpf_support";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let headers = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys sets the path of its headers");
    // For the test that compiles each header alone.
    println!("cargo:rustc-env=BPF_HEADERS={headers}");
    let mut programs = Vec::new();
    find(Path::new("src"), &mut programs);
    find(Path::new(SHARED), &mut programs);
    for (path, name) in programs {
        let skel = out.join(format!("{name}.skel.rs"));
        if let Err(e) = libbpf_cargo::SkeletonBuilder::new()
            .source(&path)
            .clang_args([
                "-mcpu=v3",
                "-Wall",
                "-Werror",
                "-Wno-unused-function",
                "-I",
                SHARED,
                "-I",
                &headers,
            ])
            .build_and_generate(&skel)
        {
            panic!("compiling {} with clang (Debian: apt-get install clang): {e:#}", path.display());
        }
    }
}

/// The programs below `dir`. Each lies beside its collector and has its own headers. Cargo watches all of
/// them.
fn find(dir: &Path, programs: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).expect("part of the source").flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, programs);
            continue;
        }
        let file = entry.file_name().to_string_lossy().into_owned();
        if file.ends_with(".c") || file.ends_with(".h") {
            println!("cargo:rerun-if-changed={}", path.display());
            // Watching the directory detects new files.
            println!("cargo:rerun-if-changed={}", dir.display());
        }
        if let Some(name) = file.strip_suffix(".bpf.c") {
            programs.push((path, name.to_owned()));
        }
    }
}
