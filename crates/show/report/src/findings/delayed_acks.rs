//! Waits for delayed ACKs of TCP.

use std::collections::{HashMap, HashSet};

use ncpu_schema::Counter;

use super::asleep::{idle, is_named, keeps_house, sleeps};
use super::claim::{Claim, Kind};
use super::devices::{LEAST, OFTEN};
use super::numbers::grouped;
use super::places::Place;
use super::view::{Slept, View};
use crate::causes::When;
use crate::onion::evidence::length;

/// A delayed ACK comes after 40 ms on Linux. The mean of waits is less where some are for other bytes, and more where CPUs
/// are busy.
pub(super) const DELAYED_ACK: std::ops::Range<f64> = 0.025..0.060;

/// The mean of waits that are for anything, of which it is not known that they are for TCP: with the kernel's tick, and no more.
const TIMER: std::ops::Range<f64> = 0.039..0.048;

/// The delayed ACKs for each of them.
const EACH: std::ops::Range<f64> = 0.7..1.4;

/// Waits for TCP of 40 ms on average, where the kernel sent 0.3 delayed ACKs or more for each.
pub(super) fn claims(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    let acks = view.counted(Counter::DelayedAcks);
    let waits = slept.iter().filter(|s| {
        let tcp =
            s.in_kernel("tcp_recvmsg") || s.in_kernel("tcp_recvmsg_locked") || s.in_kernel("tcp_sendmsg");
        // A server that sends an answer in two writes waits for its client's next request.
        let any = s.awaits_descriptors() && TIMER.contains(&s.each()) && EACH.contains(&(acks / s.count));
        tcp && DELAYED_ACK.contains(&s.each()) || any
    });
    // Both ends wait for one ACK, and may do so in the same place. The one with the outer wait names the request.
    let top = waits.max_by(|a, b| {
        (a.each(), a.seconds).partial_cmp(&(b.each(), b.seconds)).unwrap_or(std::cmp::Ordering::Equal)
    })?;
    // A few ACKs are delayed whenever answers are late for once.
    let seldom = top.seconds < LEAST * view.elapsed() || acks < OFTEN * view.elapsed();
    if seldom || acks < 0.3 * top.count || has_turns(view, slept, top) {
        return None;
    }
    let place = Place::of_frames(&top.user, "recvfrom");
    let mut claim = Claim::new(Kind::Peer, [When::DelayedAck], top.process)
        .with("process", top.process)
        .with("place", if place.function().is_empty() { top.process } else { place.function() })
        .with("each", length(top.each()));
    claim.key = format!("delayed ACK {}", top.process);
    claim.stands_still(top.seconds, view.elapsed());
    idle(view, &mut claim, top.seconds / view.elapsed(), "CPUs idle for it");
    claim.line("waits in", place.words());
    claim.line(
        "waits",
        format!(
            "{} of {} each; the kernel delayed {} ACKs",
            grouped(top.count),
            length(top.each()),
            grouped(acks)
        ),
    );
    Some(claim)
}

/// The part of an observation that one thread is busy for which all others may wait; and the parts that a thread is busy or sleeps which
/// does little else, and is one thread.
const ALWAYS: f64 = 0.7;
const MOSTLY: f64 = 0.5;
const ONE: f64 = 1.1;

/// The part of a wait that the answers to all others have to take.
const EXPLAINS: f64 = 0.3;

/// Whether several threads wait at once for one thread that answers them one after another, and the time it takes for all of them explains
/// the waits: the kernel also delays ACKs of requests whose answers are late for another reason.
fn has_turns(view: &View<'_>, slept: &[Slept<'_>], top: &Slept<'_>) -> bool {
    let tcp = |s: &&Slept<'_>| s.in_kernel("tcp_recvmsg") || s.in_kernel("tcp_recvmsg_locked");
    let waits = slept.iter().filter(tcp).filter(|s| s.process == top.process);
    let turns = waits.map(|s| s.seconds).sum::<f64>() / view.elapsed();
    if turns < 2.0 {
        return false;
    }
    let processes: HashSet<&str> = slept.iter().map(|s| s.process).collect();
    if processes.iter().any(|process| view.busiest_thread(process) >= ALWAYS) {
        return true;
    }
    let mut of: HashMap<(&str, &str), (f64, f64)> = HashMap::new();
    for s in slept.iter().filter(|s| sleeps(s) && is_named(s) && !keeps_house(s)) {
        let sum = of.entry((s.process, s.thread)).or_default();
        *sum = (sum.0 + s.seconds, sum.1 + s.count);
    }
    of.into_iter().any(|((process, thread), (asleep, count))| {
        // Each answer takes its time on CPU and its sleep.
        let held = asleep + view.busy(process, thread);
        (MOSTLY..ONE).contains(&(held / view.elapsed()))
            && asleep < DELAYED_ACK.start * count
            && turns * held / count.max(1.0) >= EXPLAINS * top.each()
    })
}
