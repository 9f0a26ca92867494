//! Keeps libncpu's C interface, `ncpu_*`, out of what the library exports: a program may have a libncpu of its own.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
