//! Looks at real processes. Without root or BPF, CPU time comes from /proc: the tests hold for both.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ncpu_collectors::numa::{Config, Numa, Scope, Wants};
use ncpu_table::Table;

/// A process that spins until dropped.
struct Spin(Child);

impl Spin {
    fn start() -> Spin {
        Spin(Command::new("sh").args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn named<'a>(tables: &'a [Table], name: &str) -> &'a Table {
    tables.iter().find(|t| t.name() == name).unwrap()
}

fn sum(table: &Table, pid: u32, column: &str) -> f64 {
    (0..table.num_rows())
        .filter(|&r| table.int(r, "pid") == Some(pid.into()))
        .filter_map(|r| table.number(r, column))
        .sum()
}

#[test]
fn a_spinning_process_has_pages_and_cpu_time_on_known_nodes() {
    let spin = Spin::start();
    let pid = spin.0.id();
    let mut numa = Numa::begin(Config::of(Scope::Tree(pid))).unwrap();
    let nodes: Vec<u64> = numa.topology().nodes.iter().map(|n| n.id.into()).collect();
    let mut ran = 0.0;
    // However little of a busy machine it gets.
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        numa.poll();
        let tables = numa.tick();
        let memory = named(&tables, "numa_memory");
        assert!(sum(memory, pid, "bytes") > 0.0);
        for r in 0..memory.num_rows() {
            assert!(nodes.contains(&memory.int(r, "node").unwrap()));
        }
        ran += sum(named(&tables, "numa_cpu"), pid, "cpu");
        if ran > 0.02 {
            return;
        }
    }
    panic!("a spinning process ran {ran} s in 10 s; {:?}", numa.notes());
}

#[test]
fn a_segment_two_processes_map_is_counted_once() {
    let file = tempfile::Builder::new().prefix("ncpu-numa").tempfile_in("/dev/shm");
    let Ok(file) = file else { return eprintln!("skipped: no /dev/shm") };
    const BYTES: u64 = 3 << 20;
    std::fs::write(file.path(), vec![1; BYTES as usize]).unwrap();
    // This process and, by inheritance, a child map it; each touches all of it.
    // SAFETY: a new mapping of a file of that length, kept to the end of the test.
    let at = unsafe {
        use std::os::fd::AsRawFd;
        libc::mmap(
            std::ptr::null_mut(),
            BYTES as usize,
            libc::PROT_READ,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            file.as_file().as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    let mut numa = Numa::begin(Config::of(Scope::All)).unwrap();
    let tables = numa.tick();
    let (segments, memory) = (named(&tables, "numa_segments"), named(&tables, "numa_segment_memory"));
    let name = file.path().to_str().unwrap();
    let rows: Vec<usize> =
        (0..segments.num_rows()).filter(|&r| segments.text(r, "segment") == Some(name)).collect();
    if rows.is_empty() && numa.notes().iter().any(|n| n.contains("numa_maps")) {
        return eprintln!("skipped: {:?}", numa.notes());
    }
    let bytes: u64 = (0..memory.num_rows())
        .filter(|&r| memory.text(r, "segment") == Some(name))
        .filter_map(|r| memory.int(r, "bytes"))
        .sum();
    // This process does not look at itself, so the file is one that nobody maps: that needs root or
    // to be its owner, which this test is.
    assert_eq!((rows.len(), bytes), (1, BYTES), "{:?}", numa.notes());
    assert_eq!(segments.text(rows[0], "kind"), Some("tmpfs"));
    assert_eq!(segments.text(rows[0], "how"), Some("all pages"));
}

#[test]
fn a_recorded_machine_and_a_vanished_process() {
    let dir = tempfile::tempdir().unwrap();
    let shape = ncpu_machine_trees::generate::Shape { nodes: 4, cores: 2, threads: 1 };
    ncpu_machine_trees::generate::write(dir.path(), &shape).unwrap();
    let put = |name: &str, text: &str| {
        ncpu_machine_trees::put(&dir.path().join("proc"), name, text);
    };
    let stat = |pid: u32, parent: u32| {
        let zeros = |n| "0 ".repeat(n);
        format!("{pid} (db) S {parent} {}1 0 0 4096 999 {}", zeros(15), zeros(30))
    };
    put("10/stat", &stat(10, 1));
    put("11/stat", &stat(11, 10));
    put("12/stat", "12 (half");
    put("10/maps", "7f0000000000-7f0000400000 rw-s 00000000 00:01 5 /SYSV00000000 (deleted)\n");
    put("11/maps", "7f0000000000-7f0000400000 rw-s 00000000 00:01 5 /SYSV00000000 (deleted)\n");
    let line = "7f0000000000 interleave:0-3 file=/SYSV00000000\\040(deleted) dirty=1024";
    put(
        "10/numa_maps",
        &format!(
            "{line} N3=1024 kernelpagesize_kB=4\n600000000000 default anon=8 N1=8 kernelpagesize_kB=4\n"
        ),
    );
    put("11/numa_maps", &format!("{line} N3=512 kernelpagesize_kB=4\ngarbage\n"));
    let config = Config { root: dir.path().into(), ..Config::of(Scope::Tree(10)) };
    let tables = Numa::begin(config).unwrap().tick();
    let memory = named(&tables, "numa_memory");
    assert_eq!(sum(memory, 10, "bytes"), (1032 * 4096) as f64);
    assert_eq!(sum(memory, 11, "bytes"), (512 * 4096) as f64);
    // The segment is there once, with what the fuller page table shows.
    let segments = named(&tables, "numa_segments");
    assert_eq!((segments.num_rows(), segments.text(0, "pids")), (1, Some("10 11")));
    let placed = named(&tables, "numa_segment_memory");
    assert_eq!((placed.int(0, "node"), placed.int(0, "bytes")), (Some(3), Some(1024 * 4096)));
}

#[test]
fn a_large_process_is_sampled() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "parts::holds_memory", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "holding" {}
    let config = Config { sample_above: 0, ..Config::of(Scope::Processes(vec![child.id()])) };
    let mut numa = Numa::begin(config).unwrap();
    let tables = numa.tick();
    let (processes, memory) = (named(&tables, "numa_processes"), named(&tables, "numa_memory"));
    let sampled = processes.int(0, "sampled");
    let anonymous: f64 = (0..memory.num_rows())
        .filter(|&r| memory.text(r, "object") == Some("anonymous"))
        .filter_map(|r| memory.number(r, "bytes"))
        .sum();
    drop(child.stdin.take());
    child.wait().unwrap();
    let Some(pages) = sampled else {
        return eprintln!("skipped: pages of another process cannot be asked for: {:?}", numa.notes());
    };
    assert!(pages >= 2048, "{pages}");
    // 64 MiB are its own; the rest of it is small.
    assert!((56e6..96e6).contains(&anonymous), "{anonymous}");
}

mod parts {
    #[test]
    #[ignore = "a part of another test"]
    fn holds_memory() {
        let memory = vec![1u8; 64 << 20];
        println!("\nholding");
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        assert_eq!(memory[1 << 20], 1);
    }
}

#[test]
fn what_threads_want_is_what_proc_tells() {
    let wants = match Wants::load() {
        Ok(wants) => wants,
        Err(e) => return eprintln!("skipped: {e}"),
    };
    let spin = Spin::start();
    let pid = spin.0.id();
    let told = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        text.split_whitespace().take(2).map(|w| w.parse::<u64>().unwrap()).sum::<u64>()
    };
    // Between two readings of the kernel's file, whatever else runs.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let before = told();
    let all = wants.read().unwrap();
    let after = told();
    let spinning = all.iter().find(|w| w.tid == pid).unwrap();
    assert_eq!((spinning.pid, spinning.parent), (pid, std::process::id()));
    assert!((before..=after).contains(&spinning.spent), "{before} {} {after}", spinning.spent);
    let own = all.iter().filter(|w| w.pid == std::process::id()).count();
    assert_eq!(own, std::fs::read_dir("/proc/self/task").unwrap().count());
    // No thread of the kernel, and none that has ended.
    drop(spin);
    assert!(wants.read().unwrap().iter().all(|w| w.tid != pid && w.pid != 2));
    // Where it runs: on the one CPU that it may.
    let cpus = ncpu_machine::Topology::read("/".as_ref()).unwrap().allowed;
    let last = cpus.iter().last().unwrap();
    let bound = Command::new("taskset").args(["-c", &last.to_string(), "sleep", "5"]).spawn();
    let Ok(bound) = bound.map(Spin) else { return eprintln!("skipped: no taskset") };
    let (pid, mut seen) = (bound.0.id(), None);
    for _ in 0..200 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        seen = wants.read().unwrap().iter().find(|w| w.tid == pid).map(|w| w.cpu);
        if seen == Some(last) {
            return;
        }
    }
    panic!("{seen:?} is not {last}");
}
