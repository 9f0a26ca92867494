//! A C program with and without the library: the same answers, and the waits that it measured itself.

#[path = "../../support/tests/programs/mod.rs"]
mod programs;

use std::collections::HashMap;
use std::mem::offset_of;
use std::path::Path;

use ncpu_preload::waits::{
    AT_ENTRIES, AT_THREADS, ENTRIES, Entry, Header, Kind, MAGIC, SIZE, TABLE, Thread, VARIABLE, nanoseconds,
    processor_ticks,
};
use programs::{out, text};

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Waits by kind: number, ns, and the holder of the entry with most.
type Waits = HashMap<u32, (u64, u64, u32)>;

/// A thread's last wait, which is not in its sums: the entry's number and ns.
fn last(sums: &[u8], by_processor: bool) -> Option<(u32, u64)> {
    let at = |field| word(sums, field);
    let [since, began] = [offset_of!(Thread, since), offset_of!(Thread, began)].map(at);
    let ended = at(offset_of!(Thread, ended));
    if half(sums, offset_of!(Thread, waits)) == 0 || ended == 0 {
        return None;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let ticks = if by_processor { processor_ticks() } else { now };
    Some((half(sums, offset_of!(Thread, entry)), nanoseconds((since, began), ended, (now, ticks))))
}

/// The contents of a process's file: its number, its waits, and ns waited for locks.
fn read(path: &Path) -> (u32, Waits, u64) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len(), SIZE);
    assert_eq!(word(&bytes, offset_of!(Header, magic)), MAGIC);
    assert_eq!(half(&bytes, offset_of!(Header, turned_away)), 0);
    let (mut waits, mut for_locks, mut most) = (Waits::new(), 0, HashMap::new());
    for thread in 0..half(&bytes, offset_of!(Header, used)) as usize {
        let sums = &bytes[AT_THREADS + thread * size_of::<Thread>()..];
        for_locks += word(sums, offset_of!(Thread, for_locks));
        let last = last(sums, half(&bytes, offset_of!(Header, ticks)) == 1);
        for_locks += last.filter(|_| half(sums, offset_of!(Thread, waits)) == 1).map_or(0, |(_, ns)| ns);
        assert_eq!(word(sums, offset_of!(Thread, dropped)), 0);
        for at in 0..ENTRIES {
            let entry = &bytes[AT_ENTRIES + thread * TABLE + at * size_of::<Entry>()..];
            let kind = half(entry, offset_of!(Entry, kind));
            if kind != 0 {
                let of = waits.entry(kind).or_default();
                let mut ns = word(entry, offset_of!(Entry, ns));
                let mut holder = half(entry, offset_of!(Entry, holder));
                of.0 += word(entry, offset_of!(Entry, count));
                if let Some((_, more)) = last.filter(|(of, _)| *of as usize == at + 1) {
                    (of.0, ns) = (of.0 + 1, ns + more);
                    holder = if holder == 0 { half(sums, offset_of!(Thread, blame)) } else { holder };
                }
                of.1 += ns;
                if ns > *most.entry(kind).or_default() {
                    most.insert(kind, ns);
                    of.2 = holder;
                }
            }
        }
    }
    (half(&bytes, offset_of!(Header, pid)), waits, for_locks)
}

#[test]
fn waits_are_as_long_as_the_program_measured_them() {
    if !cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
        return eprintln!("skipped: the library is for x86-64 and glibc");
    }
    let program = programs::compiled("truth", "tests/c/truth.c", &[]);
    let library = programs::library("libncpu_locks.so");
    // In memory, as in `ncpu`: the first wait makes the file, which takes longer on a disk than some waits.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let plain = out(&programs::with(&[], &[], 60).arg(&program).output().unwrap());
    let with = programs::with(&[&library], &[(VARIABLE, dir.path().to_str().unwrap())], 60)
        .arg(&program)
        .output()
        .unwrap();
    let printed = out(&with);
    assert_eq!(text(&with.stderr), "");
    // Locks must answer as they do without the library.
    let answers = |text: &str| -> Vec<String> {
        text.lines().filter(|l| l.starts_with("answers") || *l == "cancelled").map(str::to_string).collect()
    };
    assert_eq!((answers(&printed).len(), answers(&printed)), (2, answers(&plain)));

    let mut files: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|f| read(&f.unwrap().path())).collect();
    files.sort_by_key(|(_, waits, _)| std::cmp::Reverse(waits.len()));
    assert_eq!(files.len(), 3, "the program, its child, and a child that became it anew: {files:?}");
    let (_, waits, for_locks) = &files[0];
    let line = |kind: &str| -> Vec<u64> {
        let line =
            printed.lines().find_map(|l| l.strip_prefix(kind)).unwrap_or_else(|| panic!("{kind}: {printed}"));
        line.split_whitespace().map(|n| n.parse().unwrap()).collect()
    };
    // The program reads the clock outside of the library, and may lose its CPU between the two reads. It does
    // not measure waits that are refused at once.
    let close = |kind: Kind, known: u64, ns: u64| {
        assert!(
            ns <= known + 1_000_000 && ns + 20_000_000 > known,
            "{kind:?}: {known} ns, noted {ns}: {printed}"
        );
    };
    let holder = line("holder ")[0] as u32;
    let mut locks = 0;
    for (kind, name, held) in [
        (Kind::Mutex, "mutex ", true),
        (Kind::Read, "rwlock read ", true),
        (Kind::Write, "rwlock write ", true),
    ] {
        let (count, ns, by) = waits[&(kind as u32)];
        let known = line(name);
        // A timed wait that was refused at once counts as a wait.
        assert!(count >= known[0], "{kind:?} {count}");
        close(kind, known[1], ns);
        assert_eq!(by == holder, held, "{kind:?} was held by {holder}, noted {by}");
        locks += known[1];
    }
    // Two of the waits were cut short by the end of the thread.
    let barrier = waits[&(Kind::Barrier as u32)];
    assert!(barrier.1 >= line("barrier ")[1] - 20_000_000, "{barrier:?}");
    let condition = waits[&(Kind::Condition as u32)];
    assert!(condition.1 >= line("condition ")[1] - 20_000_000, "{condition:?}");
    let semaphore = waits[&(Kind::Semaphore as u32)];
    let known = line("semaphore ")[1] + line("turnstile ")[1];
    assert!(semaphore.1 + 40_000_000 > known, "{known} {semaphore:?}");
    // A semaphore that its own waiters post counts as a lock once they have posted it.
    assert!(
        *for_locks + 40_000_000 > locks && *for_locks < locks + line("turnstile ")[1],
        "{for_locks} {locks}"
    );
    for (_, waits, _) in &files[1..] {
        let (count, ns, _) = waits[&(Kind::Mutex as u32)];
        assert!(count == 1 && ns > 20_000_000, "{waits:?}");
    }
}

#[test]
fn nothing_is_made_where_nobody_waits_or_nothing_may_be_made() {
    let library = programs::library("libncpu_locks.so");
    let dir = tempfile::tempdir().unwrap();
    let run = |directory: &str, script: &str| {
        programs::with(&[&library], &[(VARIABLE, directory)], 60).args(["sh", "-c", script]).output().unwrap()
    };
    assert_eq!(out(&run(dir.path().to_str().unwrap(), "echo; for i in 1 2 3; do /bin/true; done")), "\n");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let program = programs::compiled("truth", "tests/c/truth.c", &[]);
    let again = format!("{} again", program.display());
    // A missing directory; a file size limit; an invalid name.
    for (directory, script) in [
        ("/nonexistent/directory", again.clone()),
        (dir.path().to_str().unwrap(), format!("ulimit -f 100; {again}")),
        ("relative", again),
    ] {
        assert!(out(&run(directory, &script)).starts_with("mutex 1 "), "{directory}: {script}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
