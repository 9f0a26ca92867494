//! Compiles every `src/bpf/NAME.bpf.c` to a skeleton `$OUT_DIR/NAME.skel.rs`.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let headers = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    let dir = Path::new("src/bpf");
    println!("cargo:rerun-if-changed={}", dir.display());
    for entry in fs::read_dir(dir).expect("src/bpf is part of the source").flatten() {
        let path = entry.path();
        let file = entry.file_name().to_string_lossy().into_owned();
        println!("cargo:rerun-if-changed={}", path.display());
        let Some(name) = file.strip_suffix(".bpf.c") else { continue };
        let skel = out.join(format!("{name}.skel.rs"));
        if let Err(e) = libbpf_cargo::SkeletonBuilder::new()
            .source(&path)
            .clang_args([
                "-mcpu=v3",
                "-Wall",
                "-Werror",
                "-Wno-unused-function",
                "-I",
                "src/bpf",
                "-I",
                &headers,
            ])
            .build_and_generate(&skel)
        {
            panic!("compiling {} with clang (Debian: apt-get install clang): {e:#}", path.display());
        }
    }
}
