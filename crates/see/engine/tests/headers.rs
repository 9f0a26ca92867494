//! Each header of the BPF programs includes what it needs: it compiles alone.

use std::path::{Path, PathBuf};
use std::process::Command;

fn headers(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("part of the source").map(|e| e.expect("an entry").path()) {
        if entry.is_dir() {
            headers(&entry, into);
        } else if entry.extension().is_some_and(|e| e == "h") {
            into.push(entry);
        }
    }
}

#[test]
fn each_header_compiles_alone() {
    let see = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    ["observe-core/src", "collectors/src", "engine/src"]
        .iter()
        .for_each(|dir| headers(&see.join(dir), &mut all));
    assert!(all.len() > 20, "{all:?}");
    let compile = |header: &PathBuf| {
        let mut clang = Command::new("clang");
        clang.args(["-target", "bpf", "-D__TARGET_ARCH_x86", "-mcpu=v3", "-O2", "-g", "-fsyntax-only"]);
        clang.args(["-Wall", "-Werror", "-Wno-unused-function", "-x", "c", "-I"]);
        clang.arg(see.join("observe-core/src/bpf_support")).args(["-I", env!("BPF_HEADERS")]).arg(header);
        let out = clang.output().expect("clang, which the build needs too");
        (!out.status.success()).then(|| String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let errors: Vec<String> = all.iter().filter_map(compile).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
