//! A herd of threads that do nothing but `poll(0, 0, ms)`: the calls and switches its timeouts cost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use ncpu_table::Table;

/// Measurements of a herd.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Herd {
    /// Threads.
    pub threads: u64,
    /// Time each call asks for, ms.
    pub ms: u64,
    /// Seconds that each thread ran, its last call to the end; the mean of them.
    pub elapsed: f64,
    /// Calls of `poll` that returned.
    pub calls: u64,
    /// Calls that returned before their time.
    pub early: u64,
    /// Voluntary switches of the herd's threads.
    pub voluntary: u64,
    /// Involuntary switches of the herd's threads.
    pub involuntary: u64,
    /// Context switches of the whole machine a second meanwhile, as vmstat counts them; idle ones too.
    pub machine: Option<f64>,
}

/// Lets `threads` threads poll nothing with a timeout of `ms` over and over for `length`.
///
/// # Errors
/// The system refuses to start this number of threads.
pub fn herd(threads: u64, ms: u64, length: Duration, stop: &AtomicBool) -> std::io::Result<Herd> {
    let over = Arc::new(AtomicBool::new(false));
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write();
    let mut members = Vec::with_capacity(threads as usize);
    for n in 0..threads {
        let (ended, opened) = (over.clone(), gate.clone());
        let builder = std::thread::Builder::new().name(format!("poll {n}")).stack_size(64 << 10);
        match builder.spawn(move || member(ms, &ended, &opened)) {
            Ok(member) => members.push(member),
            Err(e) => {
                over.store(true, Ordering::Relaxed);
                drop(closed);
                members.into_iter().for_each(|m| _ = m.join());
                let e = std::io::Error::new(e.kind(), format!("only {n} of {threads} threads: {e}"));
                return Err(e);
            }
        }
    }
    drop(closed);
    let (began, switches) = (Instant::now(), machine_switches());
    while began.elapsed() < length && !stop.load(Ordering::Relaxed) {
        let left = length.saturating_sub(began.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    let (ran, switched) = (began.elapsed().as_secs_f64(), machine_switches());
    over.store(true, Ordering::Relaxed);
    let mut herd = Herd { threads, ms, ..Herd::default() };
    herd.machine = switched.zip(switches).map(|(now, then)| now.saturating_sub(then) as f64 / ran);
    for member in members {
        let Ok(m) = member.join() else { continue };
        herd.elapsed += m.elapsed / threads as f64;
        herd.calls += m.calls;
        herd.early += m.early;
        herd.voluntary += m.voluntary;
        herd.involuntary += m.involuntary;
    }
    Ok(herd)
}

/// Table `herd`: a row for each herd.
pub fn herd_table(herds: &[Herd]) -> Table {
    let mut out = ncpu_schema::herd::Rows::new();
    for h in herds {
        out.push(ncpu_schema::herd::Row {
            ms: Some(h.ms),
            threads: Some(h.threads),
            elapsed: Some(h.elapsed),
            calls: Some(h.calls),
            early: Some(h.early),
            voluntary: Some(h.voluntary),
            involuntary: Some(h.involuntary),
            machine: h.machine,
        });
    }
    out.finish()
}

fn member(ms: u64, over: &AtomicBool, gate: &RwLock<()>) -> Herd {
    let mut me = Herd::default();
    let timeout = i32::try_from(ms).unwrap_or(i32::MAX);
    drop(gate.read());
    let (start, before) = (Instant::now(), switches());
    loop {
        let began = Instant::now();
        // SAFETY: no descriptors.
        unsafe { libc::poll(std::ptr::null_mut(), 0, timeout) };
        me.calls += 1;
        me.early += u64::from(began.elapsed() < Duration::from_millis(ms));
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    let after = switches();
    me.elapsed = start.elapsed().as_secs_f64();
    me.voluntary = after.0 - before.0;
    me.involuntary = after.1 - before.1;
    me
}

/// Voluntary and involuntary switches of this thread.
fn switches() -> (u64, u64) {
    // SAFETY: zeroed memory is a valid rusage, which is filled.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64)
}

fn machine_switches() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|l| l.strip_prefix("ctxt ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_timeout_is_a_voluntary_switch_and_none_is_early() {
        let herd = herd(8, 2, Duration::from_millis(200), &AtomicBool::new(false)).unwrap();
        assert_eq!(herd.early, 0);
        // A timeout that expires before its thread has left the CPU costs no switch; that is rare. Starting and
        // stopping together costs some more.
        assert!(herd.voluntary * 2 >= herd.calls, "{herd:?}");
        // Each call takes 2 ms.
        let most = herd.elapsed * 8.0 * 1e3 / 2.0;
        assert!((herd.calls as f64) <= most, "{herd:?}");
    }
}
