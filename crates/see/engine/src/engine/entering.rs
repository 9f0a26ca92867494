//! The time from the moment at which an interrupt stops what a CPU runs to the interrupt's handler, measured when an observation
//! begins.
//!
//! It lies before the first tracepoint, so a program that is interrupted seems to have run meanwhile. On metal it is a fraction
//! of a microsecond. A virtual CPU leaves its guest when an interrupt comes, often twice, which takes ten microseconds and more on
//! some hosts: more than the handlers. A thread that reads the clock all the time sees each interrupt as a gap; what a gap is
//! longer than the traced handler is that time. Timers and calls of other CPUs come by different ways, so both are measured.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use libbpf_rs::Link;

use super::load::{Gauged, Interrupts};
use super::skel::{EngineSkel, types};
use crate::bpf_support::{Result, monotonic_ns, perf};

/// Interrupts of a measurement: 3 ms of them.
const WANTED: usize = 64;
const APART: Duration = Duration::from_micros(50);
/// Fewer tell nothing.
const LEAST: usize = 8;
/// A measurement ends after this time. Other programs may have the CPUs.
const MOST: Duration = Duration::from_millis(50);

/// Measures both times for the programs, which take them out of what was interrupted. Where one cannot be measured the other stands
/// for both: other programs may have the CPU of the thread that calls. Where none can be, both are 0, and what was interrupted has
/// them, as where nobody measures. The programs stay attached until the links are dropped, which takes 20 ms.
///
/// # Errors
/// The programs that time handlers cannot be attached.
pub(super) fn measure(skel: &mut EngineSkel<'static>, interrupts: &Interrupts) -> Result<Vec<Link>> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let (mut timer_ns, mut call_ns) = (None, None);
    let mut all = Vec::new();
    for gauged in [Gauged::Timer, Gauged::Calls] {
        let links = interrupts.attach_gauge(&skel.progs, gauged)?;
        let Some(bss) = skel.maps.bss_data.as_deref_mut().filter(|_| !links.is_empty()) else { continue };
        bss.gauge_tid = tid;
        match gauged {
            Gauged::Timer => {
                let timer = perf::cpu_clock_of(tid, (1.0 / APART.as_secs_f64()) as u32);
                timer_ns = timer.ok().and_then(|_timer| gaps(bss));
            }
            Gauged::Calls => call_ns = called(|| gaps(bss)),
        }
        bss.gauge_tid = 0;
        all.extend(links);
    }
    if let Some(bss) = skel.maps.bss_data.as_deref_mut() {
        bss.timer_entry_ns = timer_ns.or(call_ns).unwrap_or(0);
        bss.call_entry_ns = call_ns.or(timer_ns).unwrap_or(0);
    }
    Ok(all)
}

/// The first decile of what gaps were longer than the handlers: other programs and softirqs make many of them longer still where the
/// CPUs are busy, and without load it is within a tenth of the median. `None` after too few.
fn gaps(bss: &types::bss) -> Option<u64> {
    // The programs write these meanwhile.
    let seen = |from: &u32| {
        // SAFETY: a reference is valid for reads.
        unsafe { std::ptr::from_ref(from).read_volatile() }
    };
    let begin = monotonic_ns();
    let (mut before, mut hits) = (begin, seen(&bss.gauge_hits));
    let mut longer = Vec::with_capacity(WANTED);
    while longer.len() < WANTED && before - begin < MOST.as_nanos() as u64 {
        let now = monotonic_ns();
        let met = seen(&bss.gauge_hits);
        if met == hits {
            before = now;
            continue;
        }
        // It may have come after the clock was read.
        let after = monotonic_ns();
        // Only the handler of the last is known: a gap with two interrupts is left out.
        if met == hits.wrapping_add(1) {
            // SAFETY: as above.
            let handler = unsafe { (&raw const bss.gauge_ns).read_volatile() };
            longer.push((now - before).max(after - now).saturating_sub(handler));
        }
        (before, hits) = (after, met);
    }
    longer.sort_unstable();
    longer.get(longer.len() / 10).copied().filter(|_| longer.len() >= LEAST)
}

/// Runs `gaps` while another thread has all CPUs that run threads of this process call a function, time and again.
fn called(gaps: impl FnOnce() -> Option<u64>) -> Option<u64> {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2
        || !membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    {
        return None;
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let caller = std::thread::Builder::new().spawn_scoped(scope, || {
            while !done.load(Relaxed) && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
                let next = monotonic_ns() + APART.as_nanos() as u64;
                while monotonic_ns() < next && !done.load(Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        let ns = caller.ok().and_then(|_caller| gaps());
        done.store(true, Relaxed);
        ns
    })
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: it takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
