//! Observes programs with known cross-calls, and checks the counts against the kernel's own. Needs root and
//! BPF; skips with a message otherwise.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ncpu_collectors::crosscalls::{Config, Crosscalls, package_of};
use ncpu_observe_core::program::Child;
use ncpu_observe_core::program::Target;
use ncpu_table::Table;
use ncpu_trials::{MOST, hold};

/// One observation at a time: each is a workload to the others.
static ONE: Mutex<()> = Mutex::new(());

fn allowed() -> Option<MutexGuard<'static, ()>> {
    let guard = ONE.lock().unwrap_or_else(|e| e.into_inner());
    if !(rustix::process::geteuid().is_root() && std::path::Path::new("/sys/kernel/btf/vmlinux").exists()) {
        eprintln!("skipped: observing needs root and BTF");
        return None;
    }
    if cpus().len() < 2 {
        eprintln!("skipped: one CPU calls no other");
        return None;
    }
    Some(guard)
}

/// The CPUs this process may run on.
fn cpus() -> Vec<usize> {
    // SAFETY: the set is a local of the size told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&c| libc::CPU_ISSET(c, &set)).collect()
    }
}

/// Puts the calling thread on one CPU, ahead of all others: the machine may be busy.
fn alone_on(cpu: usize) {
    // SAFETY: both structures are locals of the size told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
        let first = libc::sched_param { sched_priority: 10 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first);
    }
}

/// Rows of /proc/interrupts summed over CPUs: x86's reschedules, function calls and TLB shootdowns.
fn interrupts(row: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap();
    let line = text.lines().find_map(|l| l.trim_start().strip_prefix(row)?.strip_prefix(':'))?;
    Some(line.split_whitespace().map_while(|w| w.parse::<u64>().ok()).sum())
}

struct Seen {
    tables: Vec<Table>,
    notes: Vec<String>,
}

impl Seen {
    fn sum(&self, table: &str, column: &str, keep: &[(&str, &str)]) -> f64 {
        self.tables
            .iter()
            .filter(|t| t.name() == table)
            .flat_map(|t| (0..t.num_rows()).map(move |r| (t, r)))
            .filter(|(t, r)| keep.iter().all(|(c, v)| t.text(*r, c) == Some(v)))
            .filter_map(|(t, r)| t.number(r, column))
            .sum()
    }

    fn received(&self, cause: &str) -> f64 {
        self.sum("crosscalls_received", "received", &[("cause", cause)])
    }
}

/// Observes a part of `parts` below; `inside` runs just after counting began and just before it ends.
fn observe(part: Option<&str>, walk_all: bool, mut inside: impl FnMut()) -> Seen {
    let me: OsString = std::env::current_exe().unwrap().into();
    let argv = part.map(|name| -> Vec<OsString> {
        vec![me, "--ignored".into(), "--exact".into(), format!("parts::{name}").into(), "--nocapture".into()]
    });
    let mut child = argv.as_ref().map(|argv| Child::hold(argv).unwrap());
    let target = child.as_ref().map_or(Target::All, |c| Target::Tree(c.pid()));
    let config = Config { target, package_of: package_of(None).unwrap(), walk_all };
    let mut observation = Crosscalls::begin(&config).unwrap();
    inside();
    if let Some(child) = &mut child {
        child.release().unwrap();
    }
    let mut tables = Vec::new();
    let mut take = |t: &Table| -> Result<(), std::convert::Infallible> {
        tables.push(t.clone());
        Ok(())
    };
    let never = AtomicBool::new(false);
    let length = if child.is_some() { Duration::from_secs(60) } else { Duration::from_millis(700) };
    let pidfd = child.as_ref().map(Child::pidfd);
    let deadline = Some(Instant::now() + length);
    observation.watch(pidfd, deadline, Duration::from_millis(200), &never, &mut take).unwrap();
    if let Some(child) = &child {
        assert_eq!(child.wait(true).unwrap().status, 0);
    }
    inside();
    let notes = observation.finish(&mut take).unwrap();
    Seen { tables, notes }
}

#[test]
fn what_is_received_is_what_proc_interrupts_counts() {
    let Some(_one) = allowed() else { return };
    let rows = ["TLB", "RES", "CAL", "IWI"];
    if rows.iter().any(|r| interrupts(r).is_none()) {
        eprintln!("skipped: /proc/interrupts has no rows of x86's cross-calls");
        return;
    }
    let read = || rows.map(|r| interrupts(r).unwrap() as f64);
    let mut within = Vec::new();
    let outer = read();
    let seen = observe(None, false, || within.push(read()));
    let outer: Vec<f64> = read().iter().zip(outer).map(|(b, a)| b - a).collect();
    let inner: Vec<f64> = within[1].iter().zip(within[0]).map(|(b, a)| b - a).collect();
    // Between the counts read inside the observation and those read around it: no tolerance but for an
    // interrupt on each CPU that is in its handler when counting begins or ends.
    let slack = cpus().len() as f64;
    for (i, cause) in [(0, "TLB shootdown"), (1, "reschedule"), (3, "irq work")] {
        let ours = seen.received(cause);
        assert!(
            ours >= inner[i] - slack && ours <= outer[i] + slack,
            "{cause}: {ours}, {} to {} in /proc/interrupts",
            inner[i],
            outer[i]
        );
    }
    // One interrupt may run several functions, but none runs without being counted.
    let functions = seen.received("function call") + seen.received("TLB shootdown");
    assert!(functions >= inner[2] - slack, "{functions} functions, {} interrupts", inner[2]);
    assert!(seen.notes.iter().all(|n| !n.contains("not known")), "{:?}", seen.notes);
}

/// How often `parts::protect` takes the right to write a page away, and gives it back.
const CHANGES: u32 = 3000;

mod quiet {
    use super::*;

    #[test]
    fn each_mprotect_of_what_another_cpu_touches_is_a_shootdown() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "mprotect", || {
            let seen = observe(Some("protect"), false, || {});
            let of =
                |column| seen.sum("crosscalls", column, &[("cause", "TLB shootdown"), ("call", "mprotect")]);
            let (calls, targets, packages) = (of("calls"), of("targets"), of("packages"));
            let (waited, wait) = (of("waited"), of("wait"));
            let last = format!("{calls} calls, {targets} targets, {waited} waits of {wait} s");
            // Giving it back needs no flush, but kernels do one.
            let near = |n: f64| n > 0.9 * f64::from(CHANGES) && n < 2.1 * f64::from(CHANGES);
            assert!(near(calls) && near(targets), "{CHANGES} mprotects: {last}");
            assert!(targets >= packages && packages >= waited && waited > 0.0, "{last}");
            let answered = seen.received("TLB shootdown");
            assert!(answered >= targets - 2.0, "{answered} answered; {last}");
            assert!(wait > 0.0 && wait < 60.0, "{last}");
            let time = seen.sum("crosscalls_received", "seconds", &[("cause", "TLB shootdown")]);
            assert!(time > 0.0 && time < 60.0, "{time} s");
            let walked = seen.sum("crosscall_callers", "walked", &[("call", "mprotect")]);
            assert!(walked > 0.0 && walked <= calls, "{walked} walked");
            let by = |column, cause| seen.sum("crosscall_cpus", column, &[("cause", cause)]);
            assert!(by("targets", "TLB shootdown") >= targets);
            let buckets = seen.sum("crosscall_fanout", "calls", &[("cause", "TLB shootdown")]);
            assert_eq!(buckets, seen.sum("crosscalls", "calls", &[("cause", "TLB shootdown")]));
        });
    }

    #[test]
    fn a_function_call_has_its_function_and_caller() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "membarrier", || {
            let seen = observe(Some("fence"), true, || {});
            let sent =
                seen.sum("crosscalls", "targets", &[("cause", "function call"), ("call", "membarrier")]);
            assert!(sent >= 100.0, "{sent} membarriers reached the thread on another CPU");
            let functions: Vec<_> = seen
                .tables
                .iter()
                .filter(|t| t.name() == "crosscall_callers")
                .flat_map(|t| (0..t.num_rows()).map(move |r| (t, r)))
                .filter(|(t, r)| t.text(*r, "call") == Some("membarrier"))
                .map(|(t, r)| (t.text(r, "function"), t.text(r, "caller"), t.text(r, "stack").unwrap_or("")))
                .collect();
            assert!(functions.iter().any(|(f, ..)| *f == Some("ipi_mb")), "{functions:?}");
            assert!(
                functions.iter().any(|(_, c, s)| c.is_some_and(|c| c.starts_with("membarrier_"))
                    && s.contains("smp_call_function_many_cond_[k]")),
                "{functions:?}"
            );
        });
    }
}

mod parts {
    //! Programs run by the tests above.
    use super::*;

    /// A thread that keeps another CPU in this address space while `work` runs.
    fn beside(work: impl FnOnce(), touch: impl Fn() + Send + 'static) {
        static STATE: AtomicU32 = AtomicU32::new(0);
        let cpus = cpus();
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        let other = std::thread::spawn(move || {
            alone_on(last);
            STATE.store(1, Ordering::SeqCst);
            while STATE.load(Ordering::SeqCst) < 2 {
                touch();
            }
        });
        alone_on(first);
        while STATE.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        work();
        STATE.store(2, Ordering::SeqCst);
        other.join().unwrap();
    }

    #[test]
    #[ignore = "a program for the tests"]
    fn protect() {
        let page = rustix::param::page_size();
        // SAFETY: fresh anonymous memory; the other thread only reads it, which both protections allow.
        unsafe {
            let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
            let p =
                libc::mmap(std::ptr::null_mut(), page, write, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            let at = p as usize;
            let change = || {
                for _ in 0..CHANGES {
                    (at as *mut u8).write_volatile(1);
                    assert_eq!(libc::mprotect(at as *mut _, page, read), 0);
                    assert_eq!(libc::mprotect(at as *mut _, page, write), 0);
                }
            };
            beside(change, move || {
                (at as *const u8).read_volatile();
            });
        }
    }

    #[test]
    #[ignore = "a program for the tests"]
    fn fence() {
        const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
        const PRIVATE_EXPEDITED: i32 = 1 << 3;
        // SAFETY: membarrier takes numbers only.
        let call = |command: i32| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
        assert_eq!(call(REGISTER_PRIVATE_EXPEDITED), 0);
        beside(|| (0..500).for_each(|_| assert_eq!(call(PRIVATE_EXPEDITED), 0)), std::hint::spin_loop);
    }
}
