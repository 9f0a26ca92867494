//! Microstates of threads that do little but calls, faults or waits for locks, compared with the kernel's
//! own counts for the same run. Needs root and BPF; skips with a message otherwise.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Seen, allowed, observe, part, threads_alone};
use ncpu_trials::{MOST, hold};

/// A program of `workloads`.
fn workload(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let source = here.join("../../../workloads").join(name).with_extension("c");
    let done =
        Command::new("gcc").args(["-O2", "-pthread", "-o"]).arg(&to).arg(source).output().expect("gcc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    to
}

/// One run's USR and its time in the kernel are near what the kernel counts.
fn near_rusage(what: &str, argv: &[std::ffi::OsString]) {
    let seen: Seen = observe(argv, threads_alone);
    assert_eq!(seen.ended.status, 0, "{what}");
    let sum = |column: &str| seen.sum("threads", column);
    let (user, own) = (sum("USR"), sum("NCPU"));
    let kernel = sum("SYS") + sum("TRP") + own;
    let (told_user, told_kernel) = (seen.ended.user, seen.ended.system);
    let told = told_user + told_kernel;
    // Interrupts that strike the program are in its states, and not in what the kernel counts.
    let all = user + kernel;
    let (user, kernel) = (user * told / all, kernel * told / all);
    // The kernel's own split is by its ticks: its error is that of a sample of this many ticks.
    let part = told_user / told;
    let ticks = told * 250.0;
    let chance = 3.0 * (part * (1.0 - part) / ticks).sqrt() * told;
    let near = 0.015 * told + chance;
    let line = format!(
        "{what}: {all:.3} of {told:.3}, user {user:.3} of {told_user:.3}, kernel {kernel:.3} (of it ncpu {own:.3}) of \
         {told_kernel:.3}, near is {near:.3} s"
    );
    eprintln!("{line}");
    let total = all > 0.97 * told - 0.02 && all < 1.15 * told;
    let parts = (user - told_user).abs() < near && (kernel - told_kernel).abs() < near;
    assert!(total && parts && own > 0.0, "{line}");
}

mod quiet {
    use super::*;

    #[test]
    fn threads_hold_to_what_the_kernel_counts() {
        let Some(_one) = allowed() else { return };
        let program = workload("fdtorture");
        let fdtorture = [program.clone().into(), "4".into(), "3".into()];
        for (what, argv) in
            [("calls", &part("call")[..]), ("faults", &part("fault")), ("fdtorture", &fdtorture)]
        {
            hold(MOST, what, || near_rusage(what, argv));
        }
        std::fs::remove_file(program).expect("it was compiled");
    }
}

/// Parts that this test plays when it observes itself.
mod parts {
    use std::time::{Duration, Instant};

    #[test]
    #[ignore = "a part played under observation"]
    fn call() {
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            for _ in 0..10_000 {
                // SAFETY: a call without arguments.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
        }
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn fault() {
        let bytes = 4 << 20;
        // Long enough for the kernel's ticks to say more than a few per cent.
        let end = Instant::now() + Duration::from_secs(8);
        // SAFETY: a fresh private mapping; all touches are within it.
        unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE);
            while Instant::now() < end {
                (0..bytes).step_by(4096).for_each(|at| memory.cast::<u8>().add(at).write_volatile(1));
                libc::madvise(memory, bytes, libc::MADV_DONTNEED);
            }
        }
    }
}
