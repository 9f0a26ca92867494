//! Locks of the kernel that threads of the program wait for, by the system call that takes them.

use std::collections::HashMap;

use ncpu_schema::{Layer, lock_callers, locks};

use super::claim::{Claim, Kind, Source};
use super::numbers::grouped;
use super::places::{Most, Place};
use super::system_calls::call_in;
use super::view::{Sampled, View};
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of capacity that a lock is waited for from which it is claimed.
const LEAST: f64 = 0.01;

/// The remedy where no entry has the lock.
const OTHERWISE: &str = "threads take it together: a file, directory, descriptor table or address space for each, or fewer calls that take it";

/// Waits for a lock.
#[derive(Default)]
struct Waits {
    spin: f64,
    block: f64,
    count: f64,
}

/// Whether a lock is a part of how threads sleep and wake: what they wait for is the cause.
fn is_of_scheduler(lock: &str) -> bool {
    const WORDS: [&str; 7] =
        ["rq(", "runqueues", "task_struct.pi_lock", "futex", "wait_queue", "hrtimer", "wait_lock"];
    WORDS.iter().any(|word| lock.contains(word))
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let Ok(Some(t)) = locks::Reader::open(view.context.recording) else { return Vec::new() };
    let mut of: HashMap<(&str, &str), Waits> = HashMap::new();
    let mut all = Waits::default();
    for row in t.rows() {
        let (Some(lock), Some(process)) = (t.lock.get(row), t.process.get(row)) else { continue };
        let (spin, block) = (t.spin.get(row).unwrap_or(0.0), t.block.get(row).unwrap_or(0.0));
        all.spin += spin;
        all.block += block;
        let waits = of.entry((lock, process)).or_default();
        waits.spin += spin;
        waits.block += block;
        waits.count += t.count.get(row).unwrap_or(0) as f64;
    }
    let callers = callers(view);
    let large = |waits: &Waits| waits.spin + waits.block >= LEAST * view.capacity();
    let mut claims: Vec<Claim> = of
        .iter()
        .filter(|((lock, _), waits)| !is_of_scheduler(lock) && large(waits))
        // A bucket of futexes is named by the allocator's cache that it lies in; its callers say that it is one.
        .filter(|((lock, _), _)| {
            !callers.get(lock).is_some_and(|of| of.iter().any(|f| f.starts_with("futex_")))
        })
        .map(|(&(lock, process), waits)| {
            claim(view, lock, process, waits, &all, callers.get(lock).map_or(&[], Vec::as_slice))
        })
        .collect();
    claims.sort_by(|a, b| a.key.cmp(&b.key));
    claims
}

/// The functions that ask for each lock.
fn callers<'a>(view: &View<'a>) -> HashMap<&'a str, Vec<&'a str>> {
    let mut of: HashMap<&str, Vec<&str>> = HashMap::new();
    let Ok(Some(t)) = lock_callers::Reader::open(view.context.recording) else { return of };
    for row in t.rows() {
        if let (Some(lock), Some(caller)) = (t.lock.get(row), t.caller.get(row)) {
            let known = of.entry(lock).or_default();
            if !known.contains(&caller) {
                known.push(caller);
            }
        }
    }
    of
}

fn claim(view: &View<'_>, lock: &str, process: &str, waits: &Waits, all: &Waits, callers: &[&str]) -> Claim {
    let asks_for = |kernel: &[&str]| kernel.iter().any(|f| callers.contains(f));
    let (mut places, mut calls) = (Most::default(), Most::default());
    let mut add = |user: &[&str], kernel: &[&str], seconds: f64| {
        let call = call_in(kernel).unwrap_or("");
        calls.add(call, seconds);
        places.add(&Place::of_frames(user, call).words(), seconds);
    };
    let mut claim =
        Claim::new(Kind::KernelLock, [When::KernelLockWaits], [lock, &callers.join(" ")].join(" "));
    let of_spin = waits.spin / all.spin.max(f64::MIN_POSITIVE);
    let spins = |s: &&Sampled<'_>| s.process == process && s.layer() == Layer::KernelSpin;
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| spins(s)) {
        if asks_for(&sample.kernel) {
            add(&sample.user, &sample.kernel, sample.seconds);
            claim.ask(Source::Sample(at), sample.seconds, "spinning for it");
        }
    }
    for s in view.slept.iter().filter(|s| s.process == process && s.wait == "kernel lock") {
        if asks_for(&s.kernel) {
            add(&s.user, &s.kernel, s.seconds);
        }
    }
    claim.ask(
        Source::Layer(Layer::KernelSpin),
        view.beside_stacks(Layer::KernelSpin) * of_spin,
        "spinning for it",
    );
    let of_block = waits.block / all.block.max(f64::MIN_POSITIVE);
    for layer in [Layer::KernelBlock, Layer::KernelLockOrIo] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * of_block, "CPUs idle for it");
    }
    let call = calls.top().map_or_else(String::new, |(call, _)| call);
    let (words, place) = places.place(process);
    let known = [lock].into_iter().chain(callers.iter().copied());
    let mut known =
        known.filter_map(|name| view.context.causes.named(Layer::KernelSpin, When::KernelLock, name));
    let remedy =
        known.next().map_or_else(|| OTHERWISE.to_string(), |entry| entry.advice(&[("lock", lock)]).words);
    claim = claim
        .with("lock", lock)
        .with("process", process)
        .with("call", if call.is_empty() { "the kernel".to_string() } else { call })
        .with("place", place)
        .with("remedy", remedy);
    claim.key = format!("kernel lock {lock} {process}");
    claim.waited = Some(waits.spin + waits.block);
    claim.line("taken in", words);
    claim.line("asked by", callers.iter().take(3).copied().collect::<Vec<_>>().join(", "));
    let each = length((waits.spin + waits.block) / waits.count.max(1.0));
    claim.line("waits", format!("{} of {each} each", grouped(waits.count)));
    claim
}
