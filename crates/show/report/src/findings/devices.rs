//! Waits for a device: data that has to be on it, reads, and page faults.

use std::collections::HashMap;

use ncpu_schema::{Layer, requests};

use super::claim::{Claim, Kind, Source};
use super::numbers::rate_words;
use super::places::{Most, Place};
use super::system_calls::{SYNC, call_in, call_of};
use super::view::{Slept, View};
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of an observation that something is waited for from which it is a cause.
pub(super) const LEAST: f64 = 0.2;

/// Bytes that a small step writes at most.
const SMALL_STEP: f64 = 256.0 * 1024.0;

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

/// Whether a word is the name of such a call.
fn is_call(word: &str) -> bool {
    WRITES.contains(&word) || is_read(word)
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
    /// Calls: one waits in turn for its data, for metadata and for the device's cache.
    calls: f64,
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
        // Of the waits of one place in the program those that are met most often are one to a call.
        let mut steps: HashMap<(&str, &[&str]), f64> = HashMap::new();
        for (_, s) in &of {
            let most = steps.entry((s.process, &s.user)).or_default();
            *most = most.max(s.count);
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
        let steps = steps.values().sum();
        Some(ForDevice { call, process, place, function, seconds, count, calls: steps, part })
    }

    /// The claim of calls and of page faults, without the CPUs that idle for them.
    fn claim(&self, view: &View<'_>, when: When, key: &str) -> Claim {
        let times = if when == When::Sync { self.calls } else { self.count };
        // A function of the program may have the name of a call.
        let mut words = self.function.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let subject = match words.any(is_call) {
            true => self.call.clone(),
            false => format!("{} {}", self.call, self.function),
        };
        let mut claim = Claim::new(Kind::Device, [when], subject)
            .with("call", self.call.clone())
            .with("process", self.process.clone())
            .with("place", self.function.clone())
            .with("rate", rate_words(times / view.elapsed()));
        claim.key = format!("{key} {}", self.process);
        claim.stands_still(self.seconds, view.elapsed());
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
    let of = requested(view, process, "read")?;
    Some(of.seconds / of.count)
}

/// The requests of a process to devices.
struct Requested {
    count: f64,
    bytes: f64,
    /// In the device and before it.
    seconds: f64,
}

/// Requests of an operation; `None` without any.
fn requested(view: &View<'_>, process: &str, operation: &str) -> Option<Requested> {
    let t = requests::Reader::open(view.context.recording).ok()??;
    let of = t
        .rows()
        .filter(|&row| t.process.get(row) == Some(process) && t.operation.get(row) == Some(operation));
    let mut sum = Requested { count: 0.0, bytes: 0.0, seconds: 0.0 };
    for row in of {
        sum.seconds += t.seconds.get(row).unwrap_or(0.0) + t.queued.get(row).unwrap_or(0.0);
        sum.count += t.count.get(row).unwrap_or(0) as f64;
        sum.bytes += t.bytes.get(row).unwrap_or(0) as f64;
    }
    (sum.count > 0.0).then_some(sum)
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
    // A call that puts much on the device waits many times.
    if requested(view, &of.process, "write").is_some_and(|written| written.bytes > SMALL_STEP * of.count) {
        return None;
    }
    let mut claim = of.claim(view, When::Sync, "sync");
    for (at, sample) in view.samples.iter().enumerate() {
        if call_of(sample).is_some_and(|call| SYNC.contains(&call)) {
            claim.ask(Source::Sample(at), sample.seconds, "in the call");
        }
    }
    Some(of.idle(view, claim))
}

#[cfg(test)]
mod tests {
    use ncpu_record::{Manifest, Recording};
    use ncpu_schema::Purpose;

    use crate::findings::Findings;
    use crate::fixtures::table;

    #[test]
    fn a_call_that_waits_for_data_metadata_and_cache_is_one() {
        let stack = |step: &str| {
            format!("I/O;app;main;append;__write;__x64_sys_write_[k];ext4_sync_file_[k];{step}_[k]")
        };
        let stacks = ["__filemap_fdatawait_range", "sync_inode_metadata", "blkdev_issue_flush"].map(stack);
        let words = stacks.each_ref().map(|stack| ["off-cpu", "app", "app", "I/O", stack]);
        let numbers = [[3.0, 1000.0], [2.0, 980.0], [4.0, 1000.0]];
        let rows: Vec<(&[&str], &[f64])> =
            words.iter().zip(&numbers).map(|(words, numbers)| (&words[..], &numbers[..])).collect();
        let cpus = table(
            "cpu_time",
            &[],
            &["t", "CPU", "target", "other", "idle"],
            &[(&[], &[10.0, 0.0, 0.5, 0.0, 9.5]), (&[], &[10.0, 1.0, 0.5, 0.0, 9.5])],
        );
        let idle = table("idle_time", &[], &["t", "io"], &[(&[], &[10.0, 19.0])]);
        let mut manifest = Manifest::new(Purpose::Run, 2, vec!["./app".into()], 1.0);
        manifest.complete = true;
        let stacks =
            table("stacks", &["kind", "process", "thread", "wait", "stack"], &["seconds", "samples"], &rows);
        let recording = [cpus, idle, stacks].into_iter().fold(Recording::new(manifest), Recording::with);
        let found = Findings::of(&recording).expect("findings").list;
        let titles: Vec<&str> = found.iter().map(|found| &*found.title).collect();
        assert_eq!(titles, ["write that waits for the disk, 100 times a second in append"]);
    }
}
