//! What `ncpu preload` reads of a program before it runs it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_remedy::image::Image;

fuzz_target!(|bytes: &[u8]| {
    let _ = Image::parse(bytes);
});
