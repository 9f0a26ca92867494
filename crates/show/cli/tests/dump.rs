//! `ncpu dump` on processes whose truth is their own, and killed at random moments.

mod common;
#[path = "common/dumpee.rs"]
mod dumpee;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{err, ncpu, out};
use dumpee::{Core, Dumpee, consistent, dump, killed_at_random, root};
use ncpu_dump::core_file;
use ncpu_dump::read;
use ncpu_dump::target::Status;

#[test]
fn counters_that_are_equal_under_a_lock_are_equal_in_the_dump() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Private, shared, in huge pages, while it maps and unmaps, while it forks.
    for options in ["-", "s", "h", "m", "f", "r"] {
        let dumpee = Dumpee::start(directory.path(), &["48", "3", "1000", options]);
        for arguments in
            [&["--method", "protect"][..], &["--method", "protect", "--lz4"], &["--method", "stop"]]
        {
            if options != "-" && arguments.len() == 3 {
                continue;
            }
            let path = directory.path().join("core.zst");
            let told = dump(&dumpee, &path, arguments);
            let core = Core::open(&path);
            let counters = core.counters(dumpee.record);
            assert!(consistent(counters), "{options} {arguments:?}: {counters:?}\n{told}");
            assert!(core.info.threads.len() >= 4, "{:?}", core.info.threads);
            assert_eq!(core.info.missing, 0);
            dumpee.is_left_alone(options);
        }
        let verdict = dumpee.verdict();
        assert!(verdict.starts_with("right"), "{options}: {verdict}");
    }
}

#[test]
fn without_consistency_the_same_counters_differ() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dumpee = Dumpee::start(directory.path(), &["256", "3", "60"]);
    let path = directory.path().join("core.zst");
    let told = dump(&dumpee, &path, &["--consistent", "no"]);
    assert!(told.contains("not consistent"), "{told}");
    // The first is read long before the last. This is what the other test must be able to see.
    let counters = Core::open(&path).counters(dumpee.record);
    assert!(!consistent(counters), "{counters:?}");
    dumpee.is_left_alone("not consistent");
    dumpee.kill();
}

#[test]
fn killed_at_any_moment_it_leaves_the_process_running() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dumpee = Dumpee::start(directory.path(), &["48", "3", "1000", "p"]);
    let path = directory.path().join("core.zst");
    let partial = directory.path().join("core.zst.partial");
    let began = Instant::now();
    dump(&dumpee, &path, &[]);
    let whole = began.elapsed();
    std::fs::remove_file(&path).unwrap();
    let mut parts = 0;
    killed_at_random(&dumpee, &path, &[], (120, 14), whole, |_| {
        // It may have been killed after it had given the file its name: then the file is whole.
        if path.exists() {
            read::open(&path).expect("a file that was not finished has its name");
            std::fs::remove_file(&path).unwrap();
        }
        if partial.exists() {
            parts += 1;
            // Killed before it was given its name, it may be whole already; a part that passes for a whole is caught by
            // what is in it.
            if read::open(&partial).is_ok() {
                assert!(
                    consistent(Core::open(&partial).counters(dumpee.record)),
                    "a part passes for a whole"
                );
            }
        }
    });
    assert!(parts > 0, "never killed while it was writing");
    // What it did meanwhile was not disturbed, and it can still be dumped.
    dump(&dumpee, &path, &["--method", "protect"]);
    assert!(consistent(Core::open(&path).counters(dumpee.record)));
    dumpee.kill();
}

#[test]
fn a_process_without_privileges_is_dumped_running() {
    use std::os::unix::process::CommandExt;
    if !root() || !Path::new("/dev/userfaultfd").exists() {
        return;
    }
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let directory = tempfile::Builder::new().permissions(everyone).tempdir().unwrap();
    let dumpee = Dumpee::start_by(directory.path(), &["16", "2", "100"], |command| {
        command.uid(65534).gid(65534);
    });
    let before = std::fs::read_dir(format!("/proc/{}/fd", dumpee.pid())).unwrap().count();
    let path = directory.path().join("core.zst");
    dump(&dumpee, &path, &["--method", "protect"]);
    assert!(consistent(Core::open(&path).counters(dumpee.record)));
    let after = std::fs::read_dir(format!("/proc/{}/fd", dumpee.pid())).unwrap().count();
    assert_eq!(before, after, "descriptors are left");
    dumpee.kill();
}

#[test]
fn what_may_not_be_dumped_is_left_out() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dumpee = Dumpee::start(directory.path(), &["8", "1", "100", "d"]);
    let path = directory.path().join("core.zst");
    let find = |path: &Path| {
        let mut plain = Vec::new();
        read::cat(&read::open(path).unwrap(), &mut plain, 2).unwrap();
        // The text is put together by the program with the lowest bits flipped.
        let secret: Vec<u8> = b"SECRETDONTDUMP!!".iter().map(|b| b ^ 1).collect();
        plain.windows(secret.len()).any(|window| window == secret)
    };
    let told = dump(&dumpee, &path, &[]);
    assert!(told.contains("MADV_DONTDUMP"), "{told}");
    assert!(!find(&path));
    // Excluded by its address, the record is gone.
    let address = format!("{:x}-{:x}", dumpee.record, dumpee.record + 1);
    let told = dump(&dumpee, &path, &["--exclude", &address]);
    assert!(told.contains("excluded"), "{told}");
    let core = Core::open(&path);
    assert!(core_file::memory(&core.contents, &core.info.loads, dumpee.record, 8).is_empty());
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    dumpee.kill();
}

#[test]
fn a_limit_and_a_full_disk_leave_a_part_that_says_so() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dumpee = Dumpee::start(directory.path(), &["64", "1", "100", "p"]);
    let pid = dumpee.pid().to_string();
    // A disk of 16 MB.
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "none"]).arg(&disk).status().unwrap();
    assert!(mount.success());
    let file = |name: &str| -> PathBuf { disk.join(name) };
    for arguments in [&["--limit", "10m"][..], &[]] {
        let path = file("core.zst");
        let o = ncpu(&[&["dump", &pid, "-o", path.to_str().unwrap()], arguments].concat());
        assert!(!o.status.success() && !path.exists(), "{arguments:?}");
        let partial = file("core.zst.partial");
        assert!(err(&o).contains("core.zst.partial"), "{}", err(&o));
        let core = Core::open(&partial);
        assert!(core.info.missing > 0 && !core.info.trailer.as_ref().unwrap().complete);
        // What was written is there: the headers, the notes, the first memory.
        assert!(core.info.threads.len() >= 2);
        let o = ncpu(&["dump", "--info", partial.to_str().unwrap()]);
        assert!(out(&o).contains("a part"), "{}", out(&o));
        dumpee.is_left_alone("full");
        std::fs::remove_file(partial).unwrap();
    }
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    dumpee.kill();
}

#[test]
fn those_that_cannot_be_dumped_are_told_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("core.zst");
    let mut zombie = Command::new("true").spawn().unwrap();
    while Status::read(zombie.id() as i32).unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    let zombie_pid = zombie.id().to_string();
    for (pid, words) in [("2", "kernel thread"), ("2147483647", "no process"), (&zombie_pid, "zombie")] {
        let o = ncpu(&["dump", pid, "-o", path.to_str().unwrap()]);
        assert_eq!(o.status.code(), Some(1), "{pid}");
        assert!(err(&o).contains(words) && err(&o).lines().count() == 1, "{pid}: {}", err(&o));
    }
    zombie.wait().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a file was left");
}

/// Its first thread is a zombie as one of a process that has ended is, and shows no memory.
#[test]
fn a_process_whose_first_thread_has_ended_is_no_process_that_has() {
    let script = "import ctypes, threading, time\n\
                  threading.Thread(target=time.sleep, args=(60,)).start()\n\
                  ctypes.CDLL(None).pthread_exit(None)";
    let Ok(mut program) = Command::new("python3").args(["-c", script]).spawn() else {
        return eprintln!("skipped: python3 is not installed");
    };
    while Status::read(program.id() as i32).unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    let path = tempfile::tempdir().unwrap().path().join("core.zst");
    let o = ncpu(&["dump", &program.id().to_string(), "-o", path.to_str().unwrap()]);
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(o.status.code(), Some(1), "{o:?}");
    assert!(err(&o).contains("first thread") && err(&o).contains("others run on"), "{}", err(&o));
}

#[test]
fn a_process_that_is_stopped_stays_stopped() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dumpee = Dumpee::start(directory.path(), &["8", "2", "100"]);
    let pid = rustix::process::Pid::from_raw(dumpee.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    while Status::read(dumpee.pid()).unwrap().state != 'T' {
        std::thread::yield_now();
    }
    let path = directory.path().join("core.zst");
    let told = dump(&dumpee, &path, &[]);
    assert!(told.contains("stopped already"), "{told}");
    assert!(consistent(Core::open(&path).counters(dumpee.record)));
    assert_eq!(Status::read(dumpee.pid()).unwrap().state, 'T');
    dumpee.kill();
}

#[test]
fn extract_cat_and_a_pipe_agree() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dumpee = Dumpee::start(directory.path(), &["16", "1", "100", "i"]);
    let path = directory.path().join("core.zst");
    dump(&dumpee, &path, &[]);
    let plain = directory.path().join("core");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    assert!(ncpu(&["dump", "--extract", &text(&path), "-o", &text(&plain)]).status.success());
    let o = ncpu(&["dump", "--cat", &text(&path)]);
    assert!(o.stdout == std::fs::read(&plain).unwrap());
    // Its output as a pipe is the same format.
    let o = ncpu(&["dump", &dumpee.pid().to_string(), "-o", "-"]);
    assert!(o.status.success(), "{}", err(&o));
    std::fs::write(&path, o.stdout).unwrap();
    assert_eq!(Core::open(&path).word(dumpee.record), 0x6e63_7075_2064_756d);
    dumpee.kill();
}

#[test]
fn gdb_shows_every_thread_in_its_function() {
    if !root() || Command::new("gdb").arg("--version").output().is_err() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dumpee = Dumpee::start(directory.path(), &["16", "3", "100"]);
    let path = directory.path().join("core.zst");
    dump(&dumpee, &path, &[]);
    dumpee.kill();
    let mounted = directory.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    let mut mount = Command::new(env!("CARGO_BIN_EXE_ncpu"))
        .args(["dump", "--mount", path.to_str().unwrap(), mounted.to_str().unwrap()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let core = mounted.join("core");
    let began = Instant::now();
    while !core.exists() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let plain = read::open(&path).unwrap().size();
    assert_eq!(std::fs::metadata(&core).unwrap().len(), plain);
    let o = Command::new("gdb")
        .args(["-nx", "-batch", "-ex", "thread apply all bt"])
        .arg(directory.path().join("dumpee"))
        .arg(&core)
        .output()
        .unwrap();
    assert!(Command::new("umount").arg(&mounted).status().unwrap().success());
    assert!(mount.wait().unwrap().success());
    let text = String::from_utf8_lossy(&o.stdout);
    assert_eq!(
        text.matches("in work ()").count() + text.matches(" work ()").count()
            - text.matches("in work ()").count(),
        3,
        "{text}"
    );
    assert!(text.contains("main ()"), "{text}");
}

#[test]
fn a_mount_that_was_killed_is_not_in_the_way_of_the_next() {
    if !root() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dumpee = Dumpee::start(directory.path(), &["1", "1", "100"]);
    let path = directory.path().join("core.zst");
    dump(&dumpee, &path, &[]);
    dumpee.kill();
    let mounted = directory.path().join("a place with blanks");
    std::fs::create_dir(&mounted).unwrap();
    let core = mounted.join("core");
    let mount = || {
        let mut mount = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        mount.args(["dump", "--mount", path.to_str().unwrap(), mounted.to_str().unwrap()]);
        mount.stderr(Stdio::null()).spawn().unwrap()
    };
    let there = || {
        let since = Instant::now();
        // Whether the name is there may be cached; an open is answered by the program.
        while std::fs::File::open(&core).is_err() {
            assert!(since.elapsed() < Duration::from_secs(30), "no {}", core.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let mut killed = mount();
    there();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let since = Instant::now();
    while !std::fs::read_dir(&mounted).is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN)) {
        assert!(since.elapsed() < Duration::from_secs(30), "the mount outlives its program");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut again = mount();
    there();
    assert!(Command::new("umount").arg(&mounted).status().unwrap().success());
    assert!(again.wait().unwrap().success());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(mounted.to_str().unwrap()), "{mounts}");
}
