//! Compiles what is in C: `src/c`.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=src/c");
    cc::Build::new().file("src/c/jumps.c").opt_level(0).warnings(true).compile("ncpu_jumps");
    // A whole program, which cases of processes run.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("small");
    let compiler = cc::Build::new().opt_level(2).get_compiler();
    let status = compiler
        .to_command()
        .arg("src/c/small.c")
        // The library of mathematics, too: as large as libMicro's programs are.
        .args(["-Wl,--no-as-needed", "-lm", "-o"])
        .arg(&out)
        .status()
        .unwrap_or_else(|e| panic!("running {}: {e}", compiler.path().display()));
    assert!(status.success(), "compiling src/c/small.c: {status}");
}
