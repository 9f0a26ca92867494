//! Waits for a device: data that has to be on it, reads, and page faults.

use ncpu_schema::{Layer, requests};

use super::claim::{Claim, Kind, Source};
use super::places::{Most, Place};
use super::system_calls::{SYNC, call_in, call_of};
use super::user_locks::grouped;
use super::view::{Slept, View};
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of an observation that something is waited for from which it is a cause.
pub(super) const LEAST: f64 = 0.2;

/// Waits a second that are a pattern and not a few.
pub(super) const OFTEN: f64 = 5.0;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let slept = &view.slept;
    let mut claims: Vec<Claim> = syncs(view, slept).into_iter().collect();
    claims.extend(reads(view, slept));
    claims.extend(faults(view, slept));
    claims
}

/// Calls that write.
const WRITES: [&str; 5] = ["write", "pwrite64", "writev", "pwritev", "pwritev2"];

/// Calls that read.
const READS: [&str; 5] = ["read", "pread64", "readv", "preadv", "preadv2"];

/// The call of Linux's AIO that starts requests. Of a file that goes through the page cache it waits for the data instead.
const SUBMITS: &str = "io_submit";
const CACHED: [&str; 3] = ["filemap_get_pages", "filemap_read", "generic_file_buffered_read"];

/// Whether a call waits for data to be read.
fn is_read(call: &str) -> bool {
    READS.contains(&call) || call == SUBMITS
}

/// Functions of the kernel by which a write waits for the device.
const UNTIL_WRITTEN: [&str; 7] = [
    "vfs_fsync_range",
    "ext4_sync_file",
    "xfs_file_fsync",
    "btrfs_sync_file",
    "file_write_and_wait_range",
    "iomap_dio_rw",
    "__iomap_dio_rw",
];

/// The call that waits until data is on a device, or has come from it.
fn of_device<'a>(s: &Slept<'a>) -> Option<&'a str> {
    let call = call_in(&s.kernel)?;
    let waits = SYNC.contains(&call)
        || WRITES.contains(&call) && UNTIL_WRITTEN.iter().any(|f| s.in_kernel(f))
        || READS.contains(&call)
        || call == SUBMITS && CACHED.iter().any(|f| s.in_kernel(f));
    waits.then_some(call)
}

/// Waits for a device in calls of a kind.
struct ForDevice {
    call: String,
    process: String,
    place: String,
    function: String,
    seconds: f64,
    count: f64,
    /// Their part of all waits for devices.
    part: f64,
}

impl ForDevice {
    /// Those that `call` has a name for; `None` where they are seldom, or take less than `least` of the elapsed time.
    fn find<'a>(
        view: &View<'_>,
        slept: &[Slept<'a>],
        call: impl Fn(&Slept<'a>) -> Option<&'a str>,
        least: f64,
    ) -> Option<Self> {
        let io = || slept.iter().filter(|s| s.wait == "I/O");
        let of: Vec<(&str, &Slept<'_>)> = io().filter_map(|s| Some((call(s)?, s))).collect();
        let seconds: f64 = of.iter().map(|(_, s)| s.seconds).sum();
        let count: f64 = of.iter().map(|(_, s)| s.count).sum();
        if seconds < least * view.elapsed() || count < OFTEN * view.elapsed() {
            return None;
        }
        let (mut calls, mut places, mut processes) = (Most::default(), Most::default(), Most::default());
        for (call, s) in &of {
            calls.add(call, s.seconds);
            places.add(&Place::of_frames(&s.user, call).words(), s.seconds);
            processes.add(s.process, s.seconds);
        }
        let (call, process) = (calls.top()?.0, processes.top()?.0);
        let (place, function) = places.place(&process);
        let part = seconds / io().map(|s| s.seconds).sum::<f64>().max(f64::MIN_POSITIVE);
        Some(ForDevice { call, process, place, function, seconds, count, part })
    }

    /// The claim of calls and of page faults, without the CPUs that idle for them.
    fn claim(&self, view: &View<'_>, when: When, key: &str) -> Claim {
        let mut claim = Claim::new(Kind::Device, [when], self.call.clone())
            .with("call", self.call.clone())
            .with("process", self.process.clone())
            .with("place", self.function.clone())
            .with("rate", grouped(self.count / view.elapsed()));
        claim.key = format!("{key} {}", self.process);
        claim.waited = Some(self.seconds);
        claim
    }

    fn idle(self, view: &View<'_>, mut claim: Claim) -> Claim {
        for layer in [Layer::Io, Layer::KernelLockOrIo] {
            claim.ask(
                Source::Layer(layer),
                view.beside_stacks(layer) * self.part,
                "CPUs idle for the device",
            );
        }
        claim.line("called in", self.place);
        claim
    }
}

/// Reads that wait for a device one after another.
fn reads(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    let of = ForDevice::find(view, slept, |s| of_device(s).filter(|call| is_read(call)), LEAST)?;
    let each = length(of.seconds / of.count.max(1.0));
    const FROM_DEVICE: [&str; 6] = [
        "iomap_dio_rw",
        "__iomap_dio_rw",
        "submit_bio",
        "blk_mq_submit_bio",
        "page_cache_ra_unbounded",
        "filemap_get_pages",
    ];
    let mut claim = of.claim(view, When::Reads, "reads").with("each", each);
    if let Some(device) = device_takes(view, &of.process).filter(|device| held_back(&of, *device)) {
        claim.when = vec![When::HeldBeforeDevice];
        claim = claim.with("device", length(device));
        claim.line("the device", format!("takes {} for a request", length(device)));
    } else if let Some(function) = drops(view).filter(|_| of.call != SUBMITS) {
        claim.when = vec![When::DroppedReads];
        claim = claim.with("function", function);
    }
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.process == of.process) {
        if call_of(sample) == Some(&*of.call) && FROM_DEVICE.iter().any(|f| sample.in_kernel(f)) {
            claim.ask(Source::Sample(at), sample.seconds, "in the call");
        }
    }
    Some(of.idle(view, claim))
}

/// The function by which the program drops files' pages from the page cache, if it does.
fn drops(view: &View<'_>) -> Option<&'static str> {
    const DROPS: [(&str, &str); 5] = [
        ("drop_pagecache_sb", "drop_caches"),
        ("drop_caches_sysctl_handler", "drop_caches"),
        ("mapping_try_invalidate", "POSIX_FADV_DONTNEED"),
        ("invalidate_mapping_pages", "POSIX_FADV_DONTNEED"),
        ("invalidate_mapping_pagevec", "POSIX_FADV_DONTNEED"),
    ];
    let dropped = |(kernel, name): &(&str, &'static str)| {
        let samples: u64 = view.samples.iter().filter(|s| s.in_kernel(kernel)).map(|s| s.samples).sum();
        (samples >= SOME_DROPS).then_some(*name)
    };
    DROPS.iter().find_map(dropped)
}

/// Samples in such functions from which the program drops pages often and not once.
const SOME_DROPS: u64 = 3;

/// A read waits for something before the device where it takes this many times the device's time, and this long.
const TIMES: f64 = 5.0;
const HELD: f64 = 2e-3;

/// Whether reads wait much longer than the device takes.
fn held_back(of: &ForDevice, device: f64) -> bool {
    let each = of.seconds / of.count.max(1.0);
    each >= HELD && each >= TIMES * device
}

/// How long a device takes for a read of a process, with the queues before it that are the device's; `None` where it had none.
fn device_takes(view: &View<'_>, process: &str) -> Option<f64> {
    let t = requests::Reader::open(view.context.recording).ok()??;
    let of =
        t.rows().filter(|&row| t.process.get(row) == Some(process) && t.operation.get(row) == Some("read"));
    let (mut seconds, mut count) = (0.0, 0.0);
    for row in of {
        seconds += t.seconds.get(row).unwrap_or(0.0) + t.queued.get(row).unwrap_or(0.0);
        count += t.count.get(row).unwrap_or(0) as f64;
    }
    (count > 0.0).then(|| seconds / count)
}

/// Page faults that wait for a device one after another.
fn faults(view: &View<'_>, slept: &[Slept<'_>]) -> Vec<Claim> {
    let kinds =
        [(When::FileFaults, "a mapped file", "filemap_fault"), (When::SwapFaults, "swap", "do_swap_page")];
    let claim = |(when, name, function)| {
        let of = ForDevice::find(view, slept, |s| s.in_kernel(function).then_some(name), LEAST)?;
        let each = length(of.seconds / of.count.max(1.0));
        let mut claim = of.claim(view, when, name).with("each", each);
        for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.process == of.process) {
            if sample.in_kernel(function) {
                claim.ask(Source::Sample(at), sample.seconds, "in page faults");
            }
        }
        Some(of.idle(view, claim))
    };
    kinds.into_iter().filter_map(claim).collect()
}

/// Waits until data is on a device.
fn syncs(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    let of = ForDevice::find(view, slept, |s| of_device(s).filter(|call| !is_read(call)), 0.05)?;
    let mut claim = of.claim(view, When::Sync, "sync");
    for (at, sample) in view.samples.iter().enumerate() {
        if call_of(sample).is_some_and(|call| SYNC.contains(&call)) {
            claim.ask(Source::Sample(at), sample.seconds, "in the call");
        }
    }
    Some(of.idle(view, claim))
}
