//! Any bytes in the memory of a Java virtual machine, and in the registers of frames in its code.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ncpu_symbols::fuzz_java(bytes));
