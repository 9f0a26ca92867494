//! Waiting for requests to a disk that nobody waits for in the call: is it I/O wait, whose are they, and how long do they
//! take? A C program counts and times its requests itself. Needs root, BPF and a disk; says so and passes where there is none.

mod common;

use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Seen, allowed, observe};
use ncpu_schema::IdleReason;

/// How long the program reads.
const SECONDS: f64 = 0.8;
const BYTES: u64 = 64 << 20;

/// The program, a file for it to read, and the disk under that.
struct Reads {
    program: PathBuf,
    file: PathBuf,
    disk: String,
}

impl Drop for Reads {
    fn drop(&mut self) {
        for made in [&self.program, &self.file] {
            let _ = std::fs::remove_file(made);
        }
    }
}

/// The whole disk that a file lies on, where it is one that requests go to.
fn disk_of(file: &Path) -> Option<String> {
    let dev = std::fs::metadata(file).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let path = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition's requests are its disk's. Devices without a driver below them hand requests on.
    let whole = if path.join("partition").exists() { path.parent()?.to_path_buf() } else { path };
    whole.join("device").exists().then(|| whole.file_name().map(|n| n.to_string_lossy().into_owned()))?
}

impl Reads {
    fn prepare() -> Option<Reads> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let to = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = |what: &str| to.join(format!("requests-{what}-{}", std::process::id()));
        let (program, file) = (name("program"), name("file"));
        let done = Command::new("gcc")
            .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
            .arg(&program)
            .arg(here.join("tests/c/requests.c"))
            .output()
            .expect("gcc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::write(&file, vec![7; BYTES as usize]).expect("a file");
        std::fs::File::open(&file).and_then(|f| f.sync_all()).expect("a disk");
        let disk = disk_of(&file);
        if disk.is_none() {
            eprintln!("skipped: no disk below {}", to.display());
        }
        Some(Reads { disk: disk.unwrap_or_default(), program, file }).filter(|r| !r.disk.is_empty())
    }

    /// What was seen, and what the program says: its requests, and the seconds from asking to the answer of all of them.
    fn run(&self, how: &str, depth: u64) -> (Seen, u64, f64) {
        let out = self.program.with_extension("out");
        let script = format!(
            "exec {} {how} {} {BYTES} {depth} {SECONDS} > {}",
            self.program.display(),
            self.file.display(),
            out.display()
        );
        let seen = observe(&["sh".into(), "-c".into(), script.into()], |_| {});
        assert_eq!(seen.ended.status, 0, "{how}");
        let said = std::fs::read_to_string(&out).expect("what the program says");
        let _ = std::fs::remove_file(&out);
        let mut words = said.split_whitespace().map(|w| w.parse::<f64>().expect("a number"));
        let (done, together) = (words.next().expect("requests"), words.next().expect("seconds"));
        (seen, done as u64, together)
    }
}

/// Idle time of I/O, and of all other reasons but run queues.
fn idle(seen: &Seen) -> (f64, f64) {
    let of = |reason: IdleReason| seen.sum("idle_time", reason.name());
    (of(IdleReason::Io), of(IdleReason::Serial) + of(IdleReason::Asleep))
}

/// Requests of the program, by who waits for them: how many, bytes, seconds.
fn requests(seen: &Seen, disk: &str, by: &str) -> (u64, u64, f64) {
    let mut sums = (0, 0, 0.0);
    for (t, r) in seen.rows("requests") {
        // A process that has just begun another program may still have the name of the one before.
        let whose = t.int(r, "pid").is_some() || t.text(r, "process") == Some(ncpu_table::OTHERS);
        if whose && t.text(r, "device") == Some(disk) && t.text(r, "by") == Some(by) {
            assert_eq!(t.text(r, "operation"), Some("read"));
            sums.0 += t.int(r, "count").unwrap();
            sums.1 += t.int(r, "bytes").unwrap();
            sums.2 += t.number(r, "seconds").unwrap() + t.number(r, "queued").unwrap();
        }
    }
    sums
}

/// At most one request in this many is lost. Some virtual machines map the kernel's memory by shadow page tables. There an interrupt
/// of a process that began long ago ran none of the programs: up to 13 ends of 600 were missing while such a process was busy.
const MAY_LOSE: u64 = 10;

/// Requests whose end was not seen, as the table of drops says.
fn lost(seen: &Seen) -> u64 {
    let lost =
        seen.rows("drops").filter(|(t, r)| t.text(*r, "what").is_some_and(|w| w.starts_with("requests")));
    lost.filter_map(|(t, r)| t.int(r, "count")).sum()
}

/// All rows, for who must find out.
fn told(seen: &Seen) -> String {
    let row = |(t, r): (&ncpu_table::Table, usize)| {
        let text = |column| t.text(r, column).unwrap_or("-").to_string();
        let words = ["device", "process", "operation", "by"].map(text).join(" ");
        format!("{:?} s: {words} {:?}\n", t.number(r, "t"), t.int(r, "count"))
    };
    let dropped =
        seen.rows("drops").map(|(t, r)| format!("{:?}: {:?}\n", t.text(r, "what"), t.int(r, "count")));
    seen.rows("requests").map(row).chain(dropped).collect()
}

#[test]
fn who_sleeps_until_requests_are_done_waits_for_a_disk() {
    let Some(_one) = allowed() else { return };
    let Some(reads) = Reads::prepare() else { return };
    for how in ["aio", "epoll", "uring"] {
        let (seen, done, together) = reads.run(how, 16);
        let (count, bytes, seconds) = requests(&seen, &reads.disk, "ahead");
        // None is counted twice, and those that are lost are told, but for one queue of them: those under way at an end.
        let lost = lost(&seen);
        assert!(
            count <= done && count + lost + 16 + done / 1000 >= done && lost <= done / MAY_LOSE,
            "{how}: {count} of {done}, {lost} lost\n{}",
            told(&seen)
        );
        assert_eq!(bytes, count * 4096, "{how}");
        // The program sees an answer only when it runs, which other programs delay, and asks a little before.
        assert!(seconds <= together && seconds > 0.05 * together, "{how}: {seconds} of {together}");
        let (io, others) = idle(&seen);
        // Its one thread sleeps when it does not run, and waits for the disk then; other CPUs idle for want of work. Of
        // idle time that others leave, its part is its sleep beside all the time of the other CPUs.
        let cpus = seen.rows("summary").find_map(|(t, r)| t.int(r, "cpus")).expect("CPUs") as f64;
        let slept = (SECONDS - seen.ended.user - seen.ended.system).max(0.0);
        let part = slept / (slept + (cpus - 1.0) * SECONDS);
        assert!(io >= 0.6 * part * (io + others) - 0.02, "{how}: {io} beside {others}, {slept} s asleep");
        assert!(io <= slept + 0.1, "{how}: {io} beside {others}, {slept} s asleep");
        // No thread is in iowait, and yet that is what CPUs idled for, to the end of all of these waits but the last.
        let path = || seen.rows("critical_path").filter(|(t, r)| t.text(*r, "reason") == Some("io"));
        let of = |like: &dyn Fn(&str) -> bool| -> f64 {
            let rows = path().filter(|(t, r)| t.text(*r, "doing").is_some_and(like));
            rows.filter_map(|(t, r)| t.number(r, "idle")).sum()
        };
        let (waits, all) = (of(&|doing| doing.starts_with("waiting for I/O in ")), of(&|_| true));
        assert!(waits >= 0.8 * all - 0.02, "{how}: {waits} of {all} charged to waits for I/O");
        // The pages of its own file.
        assert!(requests(&seen, &reads.disk, "call").0 < 50, "{how}\n{}", told(&seen));
    }
}

#[test]
fn who_sleeps_for_other_things_does_not() {
    let Some(_one) = allowed() else { return };
    let Some(reads) = Reads::prepare() else { return };
    // The kernel has it in I/O wait, but what it waits for is a pipe.
    let (seen, ..) = reads.run("pipe", 1);
    let (io, others) = idle(&seen);
    assert!(io <= 0.1 * others + 0.02, "{io} beside {others}");
    assert_eq!(requests(&seen, &reads.disk, "ahead").0, 0);
    // One thread waits in its calls, and that is all that waits: no CPU more idles for it than one.
    let (seen, done, together) = reads.run("beside", 1);
    let (count, bytes, seconds) = requests(&seen, &reads.disk, "call");
    // Beside those that it knows of, its own pages may be read; the first and the last may lie half outside of the observation.
    let lost = lost(&seen);
    assert!(
        count + lost + 2 >= done && count <= done + 50 && lost <= done / MAY_LOSE && bytes >= count * 4096,
        "{count} of {done}, {lost} lost, {bytes} bytes"
    );
    assert!(seconds <= together, "{seconds} of {together}");
    let (io, _) = idle(&seen);
    assert!(io <= 1.05 * seconds + 0.05, "{io} s of I/O wait in {seconds} s of requests");
}

#[test]
fn more_processes_than_there_is_room_for_are_counted_together() {
    let Some(_one) = allowed() else { return };
    let Some(reads) = Reads::prepare() else { return };
    let program = reads.program.with_extension("readers");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/readers.c");
    let done = Command::new("gcc").args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).status();
    assert!(done.expect("gcc").success());
    const PROCESSES: u64 = 600;
    let argv = [program.clone().into(), reads.file.clone().into(), PROCESSES.to_string().into()];
    let seen = observe(&argv, |_| {});
    std::fs::remove_file(program).expect("it was compiled");
    assert_eq!(seen.ended.status, 0);
    let (count, ..) = requests(&seen, &reads.disk, "call");
    let lost = lost(&seen);
    // Each has a page of its own; pages of programs and libraries may be read besides. The last may be under way at the end.
    assert!(
        count + lost + 16 >= PROCESSES && lost <= PROCESSES / MAY_LOSE,
        "{count} and {lost} lost of {PROCESSES}\n{}",
        told(&seen)
    );
}
