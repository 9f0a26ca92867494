//! Sets the soname of the shared library, which programs linked against it load.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libncpu.so.0");
}
