//! I/O addresses for devices, as an IOMMU driver hands them out: 2 GiB of them, pages of 8 KiB, transfers of common
//! sizes from several threads while they get scarce. Prints the requests, the refusals, and how scattered the
//! rest is.
//!
//! `cargo run --release -p libncpu --example dvma [THREADS]`

use libncpu::arena::Totals;
use libncpu::vmem::{Options, Statistics};
use libncpu::{Error, Vmem};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const KIB: u64 = 1 << 10;
const TOTAL: u64 = 2 << 30;
/// KiB of a transfer: disks' blocks, network packets, streams.
const SIZES: [u64; 10] = [8, 8, 8, 16, 16, 32, 64, 64, 128, 1024];
const TRANSFERS: u64 = 200_000;

/// Transfers with `share` percent of all addresses in flight. Returns the numbers of requests and refusals,
/// and the arena's statistics while the transfers are in flight.
fn transfer(arena: &Vmem, threads: u64, share: u64) -> (u64, u64, Statistics) {
    let each = TOTAL / 100 * share / threads;
    let (asked, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let quiet = Barrier::new(threads as usize + 1);
    let work = |thread: u64| {
        let (mut random, mut flight, mut held) = (thread + 1, 0, Vec::new());
        let mut next = |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % n as u64) as usize
        };
        for _ in 0..TRANSFERS / threads {
            let size = SIZES[next(SIZES.len())] * KIB;
            while flight + size > each && !held.is_empty() {
                let (start, size) = held.swap_remove(next(held.len()));
                arena.free(start, size).expect("just taken");
                flight -= size;
            }
            asked.fetch_add(1, Relaxed);
            match arena.alloc(size) {
                Ok(start) => {
                    held.push((start, size));
                    flight += size;
                }
                Err(Error::Exhausted { .. }) => {
                    refused.fetch_add(1, Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
        quiet.wait();
        quiet.wait();
        for (start, size) in held {
            arena.free(start, size).expect("just taken");
        }
    };
    let told = std::thread::scope(|s| {
        for thread in 0..threads {
            let work = &work;
            s.spawn(move || work(thread));
        }
        quiet.wait();
        let told = arena.statistics();
        quiet.wait();
        told
    });
    (asked.into_inner(), refused.into_inner(), told)
}

fn main() -> Result<(), Error> {
    let threads = match std::env::args().nth(1).map(|n| n.parse()) {
        None => 2,
        Some(Ok(n @ 1..=1024)) => n,
        Some(_) => {
            eprintln!("dvma: the number of threads must be from 1 to 1024");
            std::process::exit(2);
        }
    };
    println!(
        "{:>8} {:>8} {:>8} {:>11} {:>6} {:>10} {:>11} {:>10}",
        "flight %", "asked", "refused", "magazines %", "drains", "cached KiB", "longest KiB", "scatter %"
    );
    for share in [10, 50, 80, 90, 95, 98] {
        let arena = Vmem::new(Options { quantum: 8 * KIB, cache_to: 128 * KIB, ..Options::default() })?;
        arena.add(TOTAL, TOTAL)?;
        let (asked, refused, told) = transfer(&arena, threads, share);
        let Totals { free, largest, .. } = told.totals;
        // The share of free integers outside the longest range.
        let scatter = 100.0 * (1.0 - largest as f64 / free as f64);
        let hits = 100.0 * told.hits as f64 / asked as f64;
        let (cached, largest) = (told.cached / KIB, largest / KIB);
        println!(
            "{share:>8} {asked:>8} {refused:>8} {hits:>11.1} {:>6} {cached:>10} {largest:>11} {scatter:>10.1}",
            told.drains
        );
        arena.reap()?;
        assert_eq!(arena.statistics().totals.largest, TOTAL, "all ranges merge again");
    }
    Ok(())
}
