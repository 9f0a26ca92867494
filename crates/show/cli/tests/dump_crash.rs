//! `ncpu dump --install` on real crashes. It changes core_pattern, which is the whole machine's, and always sets back what
//! was there.

mod common;
#[path = "common/dumpee.rs"]
mod dumpee;

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::err;
use dumpee::{Core, Dumpee, consistent, root};

const PATTERN: &str = "/proc/sys/kernel/core_pattern";
const LIMIT: &str = "/proc/sys/kernel/core_pipe_limit";
const SETTINGS: &str = "/var/lib/ncpu/crash.json";

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap().trim_end().to_owned()
}

/// Sets the machine's settings back, however the test ends: a process that waits for its input to end does so.
struct Guardian(Child);

impl Guardian {
    fn new() -> Self {
        let script = "cat; printf %s \"$1\" >\"$2\"; printf %s \"$3\" >\"$4\"; rm -f \"$5\"";
        let child = Command::new("sh")
            .args(["-c", script, "sh", &text(PATTERN), PATTERN, &text(LIMIT), LIMIT, SETTINGS])
            .stdin(Stdio::piped())
            // Ctrl-C is not for it.
            .process_group(0)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

struct Installed {
    ncpu: PathBuf,
    crashes: PathBuf,
    pipe: bool,
}

/// Whether a process runs whose arguments have these words.
fn runs(words: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("cmdline")).ok())
        .any(|line| line.contains(words))
}

impl Installed {
    fn command(&self, arguments: &[&str]) -> Output {
        Command::new(&self.ncpu).arg("dump").args(arguments).output().unwrap()
    }

    fn install(&self, arguments: &[&str]) {
        let directory = ["--install", "--directory", self.crashes.to_str().unwrap()];
        let pipe = if self.pipe { &["--pipe"][..] } else { &[] };
        let o = self.command(&[&directory, arguments, pipe].concat());
        assert!(o.status.success(), "{}", err(&o));
        // Older kernels have no sockets, nor does one that we see from within a container.
        if self.pipe || err(&o).contains("by a pipe") {
            assert!(text(PATTERN).contains(" dump --crash "));
        } else {
            assert_eq!(text(PATTERN), "@@/run/ncpu/crash.socket");
            assert!(err(&o).contains("by a socket"), "{}", err(&o));
        }
    }

    fn dumps(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = std::fs::read_dir(&self.crashes)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("core."))
            .collect();
        all.sort();
        all
    }

    /// The handler of a crash has ended.
    fn handled(&self, pid: i32) {
        let began = Instant::now();
        let words = format!("--crash\0{pid}\0");
        // The process could go only after its handler had been started.
        while runs(&words) || runs("\0--crash-socket\0") {
            assert!(began.elapsed() < Duration::from_secs(60), "the handler of {pid} still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Has a process crash, and returns its dump, if any.
    fn crash(&self, dumpee: Dumpee) -> Option<PathBuf> {
        let pid = dumpee.pid();
        let id = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::ABORT).unwrap();
        let mut child = dumpee.child;
        child.wait().unwrap();
        self.handled(pid);
        let part = format!(".{pid}.");
        self.dumps().into_iter().find(|path| path.to_string_lossy().contains(&part))
    }
}

#[test]
fn crashes_are_dumped_within_limits_and_the_setting_is_undone() {
    if !root() {
        return;
    }
    if Path::new(SETTINGS).exists() || text(PATTERN).contains("ncpu") {
        return eprintln!("skipped: crashes are caught on this machine already");
    }
    let _guardian = Guardian::new();
    for pipe in [true, false] {
        crashes_are_dumped(pipe);
    }
}

fn crashes_are_dumped(pipe: bool) {
    let (before, limit_before) = (text(PATTERN), text(LIMIT));
    let directory = tempfile::tempdir().unwrap();
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everyone).unwrap();
    // The kernel takes short names only.
    let this =
        Installed { ncpu: directory.path().join("ncpu"), crashes: directory.path().join("crashes"), pipe };
    ncpu_trials::copy_program(env!("CARGO_BIN_EXE_ncpu"), &this.ncpu);
    let start = |options: &str| {
        Dumpee::start_by(directory.path(), &["16", "3", "100", options], |command| {
            command.uid(65534).gid(65534).current_dir("/");
        })
    };

    this.install(&["--keep", "2", "--rate", "4"]);
    assert_eq!(text(LIMIT), "16");
    // A crash while threads write: the dump is its owner's, and of one moment.
    let dumpee = start("-");
    let record = dumpee.record;
    let path = this.crash(dumpee).expect("no dump");
    let data = std::fs::metadata(&path).unwrap();
    assert_eq!((data.uid(), data.gid(), data.mode() & 0o777), (65534, 65534, 0o600));
    let core = Core::open(&path);
    assert!(consistent(core.counters(record)), "{:?}", core.counters(record));
    assert!(core.info.threads.len() >= 4 && core.info.threads[0].signal == 6, "{:?}", core.info.threads);
    assert!(core.info.trailer.as_ref().unwrap().complete && core.info.missing == 0);
    assert_eq!(core.info.program, b"dumpee");

    // The newest two are kept, and four a minute are written.
    assert!(this.crash(start("p")).is_some());
    assert!(this.crash(start("p")).is_some());
    assert_eq!(this.dumps().len(), 2);
    assert!(!path.exists(), "the oldest is kept");
    assert!(this.crash(start("p")).is_some());
    assert!(this.crash(start("p")).is_none(), "a fifth dump within a minute");

    // Installed anew it has other settings, and still knows what was before.
    this.install(&["--rate", "0", "--limit", "2m"]);
    let part = this.crash(start("p")).expect("no part of a dump");
    assert!(part.to_string_lossy().ends_with(".partial"), "{part:?}");
    let data = std::fs::metadata(&part).unwrap();
    assert!(data.len() <= 3 << 20 && (data.uid(), data.mode() & 0o777) == (65534, 0o600));
    assert!(!Core::open(&part).info.trailer.as_ref().unwrap().complete);
    // More of the disk is to stay free than there is.
    this.install(&["--rate", "0", "--leave", "1000000g"]);
    assert!(this.crash(start("p")).is_none());

    let o = this.command(&["--uninstall"]);
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!((text(PATTERN), text(LIMIT)), (before, limit_before));
    assert!(!Path::new(SETTINGS).exists());
    let began = Instant::now();
    while runs("\0--crash-server\0") {
        assert!(began.elapsed() < Duration::from_secs(60), "the server still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
    let o = this.command(&["--uninstall"]);
    assert!(o.status.code() == Some(1) && err(&o).contains("not installed"), "{}", err(&o));
}
