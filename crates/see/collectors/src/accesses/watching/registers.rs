//! Debug registers: a turn in which they watch words of threads, and what a hit costs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ncpu_instructions::Registers;
use ncpu_machine::events::sample::Record;
use ncpu_machine::events::user_sample::{self, Sample};
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_TYPE_BREAKPOINT, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use perf_event_open_sys::ioctls::{DISABLE, ENABLE, REFRESH, SET_OUTPUT};

use crate::bpf_support::{Ring, perf_event};

/// Bytes that one register watches.
pub(super) const WORD: u64 = 8;
/// Registers of a thread: x86 has four, AArch64 no fewer.
pub(super) const WORDS: usize = 4;
/// Hits of a word by a thread after which it is not watched any more in a turn: few, so that threads take turns also where a
/// hypervisor lets one of them alone have its hits. The kernel sees to that: no delay of this process makes it more. It cannot be
/// given more: Linux 6.18 leaves a breakpoint stopped that has had its hits.
const HITS: i32 = 4;
/// A turn is over when two threads have had hits and nobody has had one since the last look, or after this time.
const LONGEST: Duration = Duration::from_millis(4);
const LOOK: Duration = Duration::from_micros(300);
/// Pages of a thread's ring: all its hits, of up to 360 bytes each.
const PAGES: usize = 4;
/// `HW_BREAKPOINT_RW`: x86 cannot watch for reads alone.
const READ_OR_WRITTEN: u32 = 3;
/// Hits of a calibration.
const OWN_HITS: u32 = 64;

/// Words and threads to watch in a turn.
#[derive(Debug)]
pub(super) struct Turn {
    /// Addresses, multiples of [`WORD`].
    pub words: Vec<u64>,
    pub threads: Vec<u32>,
}

/// The hits of a turn.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// In the order of time.
    pub hits: Vec<Sample>,
    /// Threads with at least one word watched.
    pub threads: usize,
    /// Words of threads for which no register was free.
    pub crowded: usize,
    pub time: Duration,
}

/// An event of user code, which does not begin yet.
fn event(type_: u32) -> perf_event_attr {
    let mut attr = perf_event_attr { type_, ..perf_event_attr::default() };
    attr.set_disabled(1);
    // The scheduler's clock may differ from CPU to CPU. Events of one ring have one clock.
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    // The kernel's own accesses, for a system call, are not the program's code.
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

fn word(address: u64) -> perf_event_attr {
    let mut attr = event(PERF_TYPE_BREAKPOINT);
    attr.bp_type = READ_OR_WRITTEN;
    attr.__bindgen_anon_3.bp_addr = address;
    attr.__bindgen_anon_4.bp_len = WORD;
    attr.sample_period = 1;
    attr.sample_type = user_sample::SAMPLE_TYPE;
    attr.sample_regs_user = Registers::PERF_MASK;
    attr
}

fn leader() -> perf_event_attr {
    perf_event_attr { config: PERF_COUNT_SW_DUMMY.into(), ..event(PERF_TYPE_SOFTWARE) }
}

/// The words of one thread. Their events are a group, so that all begin at once; its leader counts nothing and has the ring.
struct Thread {
    ring: Ring,
    words: Vec<OwnedFd>,
}

impl Thread {
    /// `None` where it has ended; with it how many words found no register.
    fn watch(tid: i32, words: &[u64]) -> io::Result<Option<(Thread, usize)>> {
        let ring = match perf_event::open(&leader(), tid, -1, None, 0) {
            Ok(event) => Ring::new(event, PAGES)?,
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut thread = Thread { ring, words: Vec::new() };
        for (at, address) in words.iter().enumerate() {
            let event = match perf_event::open(&word(*address), tid, -1, Some(thread.ring.as_fd()), 0) {
                Ok(event) => event,
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) && at > 0 => {
                    return Ok(Some((thread, words.len() - at)));
                }
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                Err(e) => return Err(e),
            };
            // SAFETY: both descriptors are those of open events of one thread.
            if unsafe { SET_OUTPUT(event.as_raw_fd(), thread.ring.as_fd().as_raw_fd()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            thread.words.push(event);
        }
        Ok(Some((thread, 0)))
    }

    /// Begins to watch, for some hits of each word.
    fn begin(&self, hits: i32) -> io::Result<()> {
        let failed = |done: i32| if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        for event in &self.words {
            // SAFETY: an open event; the argument is a number.
            failed(unsafe { REFRESH(event.as_raw_fd(), hits) })?;
        }
        // SAFETY: as above.
        failed(unsafe { ENABLE(self.ring.as_fd().as_raw_fd(), 0) })
    }

    fn end(&self) {
        // SAFETY: an open event. One that cannot be stopped ends when it is closed.
        unsafe { DISABLE(self.ring.as_fd().as_raw_fd(), 0) };
    }

    fn drain(&mut self, bytes: &mut Vec<u8>, hits: &mut Vec<Sample>) {
        bytes.clear();
        self.ring.drain(bytes);
        // A damaged ring gives what was before.
        let _ = user_sample::records(bytes, |record| {
            if let Record::Sample(hit) = record {
                hits.push(hit);
            }
        });
    }
}

/// Watches words of threads for some milliseconds at most. Nothing is watched any more when it returns, nor when this process ends.
///
/// # Errors
/// The kernel refuses; `ENOSPC` where no thread had a register free.
pub(super) fn watch(turn: &Turn) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut threads = Vec::new();
    let mut refused = None;
    for &tid in &turn.threads {
        match Thread::watch(tid as i32, &turn.words) {
            Ok(Some((thread, crowded))) => {
                seen.crowded += crowded;
                threads.push(thread);
            }
            Ok(None) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
                seen.crowded += turn.words.len();
                refused = Some(e);
            }
            Err(e) => return Err(e),
        }
    }
    if let (true, Some(e)) = (threads.is_empty(), refused) {
        return Err(e);
    }
    seen.threads = threads.len();
    let began = Instant::now();
    threads.iter().try_for_each(|thread| thread.begin(HITS))?;
    let mut bytes = Vec::new();
    let mut known = 0;
    loop {
        std::thread::sleep(LOOK);
        threads.iter_mut().for_each(|thread| thread.drain(&mut bytes, &mut seen.hits));
        let two = seen.hits.iter().any(|hit| hit.tid != seen.hits[0].tid);
        if two && seen.hits.len() == known || began.elapsed() >= LONGEST {
            break;
        }
        known = seen.hits.len();
    }
    threads.iter().for_each(Thread::end);
    seen.time = began.elapsed();
    threads.iter_mut().for_each(|thread| thread.drain(&mut bytes, &mut seen.hits));
    seen.hits.sort_by_key(|hit| hit.time);
    Ok(seen)
}

/// The time that one hit costs its thread, measured by writes of this thread.
///
/// # Errors
/// The kernel refuses, or this processor has no such registers.
pub(super) fn cost() -> io::Result<Duration> {
    #[repr(align(64))]
    struct Word(AtomicU64);
    let word = Word(AtomicU64::new(0));
    let thread = match Thread::watch(0, &[word.0.as_ptr() as u64])? {
        Some((thread, _)) => thread,
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    // The last hit is not to be the one that stops it.
    thread.begin(OWN_HITS as i32 + 1)?;
    let began = Instant::now();
    for n in 0..OWN_HITS {
        word.0.store(n.into(), Ordering::Relaxed);
    }
    let took = began.elapsed() / OWN_HITS;
    thread.end();
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this machine lets this user have debug registers.
    fn have() -> bool {
        match cost() {
            Ok(_) => true,
            Err(e) => {
                eprintln!("skipped: no debug registers here: {e}");
                false
            }
        }
    }

    #[test]
    fn hits_are_the_accesses_of_each_thread_and_bounded() {
        if !have() {
            return;
        }
        #[repr(align(64))]
        struct Line([AtomicU64; 8]);
        let line = Line(Default::default());
        let base = line.0.as_ptr() as u64;
        let stop = AtomicU64::new(0);
        let tids = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let worker = |word: usize| {
                let (line, stop, tids) = (&line, &stop, &tids);
                move || {
                    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u64;
                    tids.fetch_add(tid << (32 * word), Ordering::Relaxed);
                    while stop.load(Ordering::Relaxed) == 0 {
                        line.0[word].fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                    }
                }
            };
            scope.spawn(worker(0));
            scope.spawn(worker(1));
            let of = loop {
                let all = tids.load(Ordering::Relaxed);
                if all as u32 != 0 && all >> 32 != 0 {
                    break [all as u32, (all >> 32) as u32];
                }
                std::thread::yield_now();
            };
            let mut hits = Vec::new();
            for _ in 0..50 {
                let turn = Turn { words: vec![base, base + 8, base + 16], threads: of.to_vec() };
                let seen = watch(&turn).unwrap();
                assert!(seen.hits.len() <= 2 * HITS as usize, "{}", seen.hits.len());
                assert!(seen.hits.is_sorted_by_key(|hit| hit.time));
                hits.extend(seen.hits);
            }
            stop.store(1, Ordering::Relaxed);
            for (word, tid) in of.into_iter().enumerate() {
                let own: Vec<_> = hits.iter().filter(|hit| hit.tid == tid).collect();
                assert!(own.len() >= 5, "thread {tid} has {} hits", own.len());
                assert!(own.iter().all(|hit| hit.address == base + 8 * word as u64), "{own:?}");
                assert!(own.iter().all(|hit| hit.pid == std::process::id()));
                assert!(own.iter().all(|hit| Registers::of_perf(&hit.registers).is_some()));
            }
        });
    }

    #[test]
    fn a_thread_that_has_ended_is_left_out() {
        if !have() {
            return;
        }
        let gone = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get()).join().unwrap();
        let word = AtomicU64::new(0);
        let turn = Turn { words: vec![word.as_ptr() as u64 & !7], threads: vec![gone as u32] };
        let seen = watch(&turn).unwrap();
        assert_eq!((seen.threads, seen.hits.len()), (0, 0));
    }
}
