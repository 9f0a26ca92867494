//! zstd's own rate, for `benches/dump.sh`: compresses a file's first megabytes with the library that `ncpu`
//! is linked with, from memory to memory, in the chunks of a dump, by threads that share only the number of
//! the next chunk.
//!
//! Usage: `zstd_rate FILE MB THREADS LEVEL`; prints MB (10^6 bytes) per second.

use std::fs::File;
use std::io::Read;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use zstd_safe::{CCtx, CParameter, compress_bound};

const CHUNK: usize = 4 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: zstd_rate FILE MB THREADS LEVEL";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, mb, threads, level] = arguments.as_slice() else { return Err(usage.into()) };
    let (mb, threads, level): (u64, usize, i32) =
        (mb.parse()?, threads.parse::<usize>()?.max(1), level.parse()?);
    let mut data = Vec::new();
    File::open(file)?.take(mb << 20).read_to_end(&mut data)?;
    let (next, ready) = (AtomicUsize::new(0), Barrier::new(threads + 1));
    let mut began = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<(), &'static str> {
                    let mut context = CCtx::create();
                    let mut out = Vec::with_capacity(compress_bound(CHUNK));
                    // Tables and buffers are touched once before the clock runs.
                    let made = context
                        .set_parameter(CParameter::CompressionLevel(level))
                        .and_then(|_| context.set_parameter(CParameter::ChecksumFlag(true)))
                        .and_then(|_| context.compress2(&mut out, &data[..CHUNK.min(data.len())]));
                    ready.wait();
                    made.map_err(zstd_safe::get_error_name)?;
                    while let Some(chunk) = data.chunks(CHUNK).nth(next.fetch_add(1, Ordering::Relaxed)) {
                        out.clear();
                        context.compress2(&mut out, chunk).map_err(zstd_safe::get_error_name)?;
                    }
                    Ok(())
                })
            })
            .collect();
        ready.wait();
        began = Instant::now();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err("a thread panicked")))
    })?;
    println!("{:.0}", data.len() as f64 / began.elapsed().as_secs_f64() / 1e6);
    Ok(())
}
