use std::path::Path;
use std::time::Duration;

use super::*;

/// A generated /proc whose times, interrupts and softirqs are multiples of `step`.
fn write_tree(root: &Path, cpus: impl Iterator<Item = u32> + Clone, step: u64) {
    let dir = root.join("proc");
    std::fs::create_dir_all(&dir).unwrap();
    let mut stat = String::from("cpu  1 1 1 1 1 1 1 1 0 0\n");
    let mut header = String::from("      ");
    let mut row = String::new();
    for cpu in cpus {
        // user nice system idle iowait irq softirq steal, of 100 ticks; guest is part of user.
        let times = [20, 10, 15, 30, 10, 3, 2, 10, 20, 0].map(|t: u64| (t * step).to_string());
        stat += &format!("cpu{cpu} {}\n", times.join(" "));
        header += &format!(" CPU{cpu}");
        row += &format!(" {}", step * 100 * u64::from(cpu + 1));
    }
    stat += "intr 5 1 2 3\nctxt 9\n";
    std::fs::write(dir.join("stat"), stat).unwrap();
    std::fs::write(
        dir.join("interrupts"),
        format!("{header}\n 24:{row} ttyS0\n RES:{row} Rescheduling interrupts\n"),
    )
    .unwrap();
    std::fs::write(dir.join("softirqs"), format!("{header}\n TIMER:{row}\n")).unwrap();
}

fn sampler(root: &Path) -> Sampler {
    Sampler::new(Options { root: root.into(), ..Options::default() }).unwrap()
}

fn ids(table: &Table) -> Vec<u64> {
    (0..table.num_rows()).filter_map(|r| table.int(r, "CPU")).collect()
}

#[test]
fn shares_sum_to_100_and_hold_everything_once() {
    let root = tempfile::tempdir().unwrap();
    write_tree(root.path(), 0..4, 1);
    let mut s = sampler(root.path());
    write_tree(root.path(), 0..4, 2);
    let t = s.sample().unwrap();
    assert_eq!(ids(&t), [0, 1, 2, 3]);
    for r in 0..4 {
        let share = |c| t.number(r, c).unwrap();
        assert_eq!((share("usr"), share("sys"), share("wt"), share("st")), (30.0, 20.0, 10.0, 10.0));
        assert_eq!(share("idl"), 30.0);
        assert_eq!(t.number(r, "intr").map(|n| n / t.number(r, "ithr").unwrap()), Some(2.0));
        assert_eq!(t.number(r, "xcal"), t.number(r, "ithr"), "cross-calls received");
        assert_eq!(t.number(r, "csw"), None, "a tree of another machine has no kernel counters");
    }
    assert!(s.notes()[0].starts_with("xcal: cross-calls received"));
}

#[test]
fn hotplug_is_told_and_yields_no_garbage() {
    let root = tempfile::tempdir().unwrap();
    write_tree(root.path(), 0..8, 10);
    let mut s = sampler(root.path());
    s.notes();
    write_tree(root.path(), [0, 1, 4, 6, 7].into_iter(), 11);
    assert_eq!(ids(&s.sample().unwrap()), [0, 1, 4, 6, 7]);
    assert_eq!(s.notes(), ["CPUs 2-3,5 went offline"]);
    // CPU 5 comes back with its counters at an early value, 8 is new; both lack a first reading.
    write_tree(root.path(), [0, 1, 4, 5, 6, 7, 8].into_iter(), 12);
    assert_eq!(ids(&s.sample().unwrap()), [0, 1, 4, 6, 7]);
    assert_eq!(s.notes(), ["CPUs 5,8 came online"]);
    write_tree(root.path(), [0, 1, 4, 5, 6, 7, 8].into_iter(), 13);
    assert_eq!(ids(&s.sample().unwrap()), [0, 1, 4, 5, 6, 7, 8]);
    assert!(s.notes().is_empty());
    // Counters that start afresh unseen: unknown, not huge.
    write_tree(root.path(), [0, 1, 4, 5, 6, 7, 8].into_iter(), 3);
    let t = s.sample().unwrap();
    assert_eq!((t.number(0, "intr"), t.number(0, "usr")), (None, None));
}

#[test]
fn what_is_missing_costs_its_column_and_what_is_broken_is_located() {
    let root = tempfile::tempdir().unwrap();
    write_tree(root.path(), 0..2, 1);
    std::fs::remove_file(root.path().join("proc/interrupts")).unwrap();
    let mut s = sampler(root.path());
    write_tree(root.path(), 0..2, 2);
    let t = s.sample().unwrap();
    assert_eq!(t.number(0, "intr"), None);
    assert!(t.number(0, "ithr").is_some());
    assert!(s.notes()[0].starts_with("intr, xcal: reading "));

    std::fs::write(root.path().join("proc/softirqs"), "no table").unwrap();
    let t = s.sample().unwrap();
    assert_eq!(t.number(0, "ithr"), None);
    assert!(s.notes()[0].contains("proc/softirqs, line 1: expected CPU0"));

    std::fs::write(root.path().join("proc/stat"), "cpu  1 2 3 4\ncpu0 1 2\n").unwrap();
    let e = s.sample().unwrap_err().to_string();
    assert!(e.ends_with("proc/stat, line 2: expected cpuN and at least four numbers"), "{e}");
    std::fs::remove_dir_all(root.path().join("proc")).unwrap();
    assert!(Sampler::new(Options { root: root.path().into(), ..Options::default() }).is_err());
}

#[test]
fn the_largest_machines_are_read() {
    let root = tempfile::tempdir().unwrap();
    write_tree(root.path(), 0..4096, 1);
    let mut s = sampler(root.path());
    write_tree(root.path(), 0..4096, 3);
    let t = s.sample().unwrap();
    assert_eq!(t.num_rows(), 4096);
    assert_eq!(t.number(4095, "usr"), Some(30.0));
}

#[test]
fn only_what_is_asked_for_is_read() {
    let root = tempfile::tempdir().unwrap();
    write_tree(root.path(), 0..2, 1);
    let options = Options { root: root.path().into(), metrics: vec![Metric::Idl, Metric::Usr], time: true };
    let mut s = Sampler::new(options).unwrap();
    assert!(s.interrupts.is_none() && s.softirqs.is_none() && s.notes().is_empty());
    let names: Vec<_> = s.columns().iter().map(|c| c.name.clone()).collect();
    assert_eq!(names, ["time", "CPU", "idl", "usr"]);
    assert!(s.sample().unwrap().number(0, "time").unwrap() > 1.7e9);
}

/// Keeps this thread on one CPU.
fn pin(cpu: usize) {
    // SAFETY: a zeroed cpu_set_t is an empty one; the call is given its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// The first CPU this process may use.
fn some_cpu() -> usize {
    // SAFETY: as in `pin`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..libc::CPU_SETSIZE as usize).find(|&c| libc::CPU_ISSET(c, &set)).unwrap()
    }
}

#[test]
fn known_work_shows_up_on_its_cpu() {
    // SAFETY: no arguments, no failure.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: counting kernel events takes root");
        return;
    }
    const CALLS: u64 = 20_000;
    const SWITCHES: u64 = 2_000;
    const PAGES: usize = 3_000;
    let cpu = some_cpu();
    let mut s = Sampler::new(Options::default()).unwrap();
    let notes = s.notes();
    if notes.iter().any(|n| n.contains("syscl")) {
        eprintln!("skipped: {notes:?}");
        return;
    }
    let before = s.last[cpu];
    let work = move || {
        pin(cpu);
        for _ in 0..CALLS {
            // SAFETY: no arguments, no failure.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        // SAFETY: a new private mapping, touched within its bounds, then given back.
        unsafe {
            let len = PAGES * 4096;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
            for page in 0..PAGES {
                at.cast::<u8>().add(page * 4096).write_volatile(1);
            }
            // Pages that no trap faults in: the kernel does so for the call.
            libc::madvise(at, len, libc::MADV_DONTNEED);
            assert_eq!(libc::madvise(at, len, libc::MADV_POPULATE_WRITE), 0);
            libc::munmap(at, len);
        }
        // Each message makes both of the pinned threads give up the CPU once.
        let (to, from) = (std::sync::mpsc::sync_channel(0), std::sync::mpsc::sync_channel(0));
        let echo = std::thread::spawn(move || {
            pin(cpu);
            for word in to.1 {
                from.0.send(word).unwrap();
            }
        });
        for word in 0..SWITCHES / 2 {
            to.0.send(word).unwrap();
            from.1.recv().unwrap();
        }
        drop(to.0);
        echo.join().unwrap();
    };
    std::thread::spawn(work).join().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    s.read().unwrap();
    let grown = |m: Metric| s.last[cpu].counts[m as usize].wrapping_sub(before.counts[m as usize]);
    assert!(grown(Metric::Syscl) >= CALLS, "{} syscalls", grown(Metric::Syscl));
    assert!(grown(Metric::Csw) >= SWITCHES, "{} switches", grown(Metric::Csw));
    assert!(grown(Metric::Icsw) <= grown(Metric::Csw));
    assert!(grown(Metric::Minf) >= 2 * PAGES as u64, "{} faults", grown(Metric::Minf));
    assert!(grown(Metric::Intr) >= 1, "the timer");
}

/// Two threads that fight for one kernel mutex: a wait counts once however often it changes between
/// spinning and sleeping, so there are no more waits than acquisitions.
#[test]
fn a_wait_for_a_mutex_counts_once() {
    // SAFETY: no arguments, no failure.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: counting kernel events takes root");
        return;
    }
    let mut s = Sampler::new(Options { metrics: vec![Metric::Smtx], ..Options::default() }).unwrap();
    if !s.notes().is_empty() {
        eprintln!("skipped: no contention tracepoints");
        return;
    }
    let total = |s: &Sampler| -> u64 {
        s.last.iter().filter(|r| r.online).map(|r| r.counts[Metric::Smtx as usize]).sum()
    };
    let before = total(&s);
    const ROUNDS: u64 = 20_000;
    let (reader, writer) = std::io::pipe().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (mut reader, mut writer) = (reader.try_clone().unwrap(), writer.try_clone().unwrap());
            std::thread::spawn(move || {
                use std::io::{Read, Write};
                for _ in 0..ROUNDS {
                    // Each takes the pipe's mutex.
                    writer.write_all(b"x").unwrap();
                    reader.read_exact(&mut [0]).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    s.read().unwrap();
    let waits = total(&s) - before;
    eprintln!("{waits} waits of {} acquisitions", 8 * ROUNDS);
    assert!(waits < 3 * 8 * ROUNDS);
}
