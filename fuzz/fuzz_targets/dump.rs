//! Any bytes as a dump, and any bytes as the core in one: an answer or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ncpu_dump::core_file::info;
use ncpu_dump::read::{Contents, cat};
use ncpu_dump::seekable::{Codec, Seekable, pack};
use ncpu_dump::target::parse_mappings;

fuzz_target!(|data: &[u8]| {
    if let Ok(dump) = Seekable::open(data.to_vec()) {
        // What a file says of itself is not believed: a few bytes may claim gigabytes.
        if dump.size() < 1 << 20 {
            let _ = cat(&dump, &mut std::io::sink(), 1);
        }
        let _ = info(&Contents::new(dump));
    }
    // Packing takes most of the time, and whatever begins otherwise is refused at once.
    if data.starts_with(b"\x7fELF")
        && let Ok(dump) = pack(data, Codec::Zstd(1)).and_then(Seekable::open)
    {
        let _ = info(&Contents::new(dump));
    }
    let _ = parse_mappings(data);
});
