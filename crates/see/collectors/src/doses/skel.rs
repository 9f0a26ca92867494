//! The skeleton of the BPF programs, which `build.rs` makes.

include!(concat!(env!("OUT_DIR"), "/doses.skel.rs"));
