//! A process that is to be dumped, whose truth is its own, and what its dump has.
#![allow(dead_code)]
// Each test uses a part of it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ncpu_dump::core_file::{self, Info};
use ncpu_dump::read::{self, Contents};
use ncpu_dump::target::{Status, mappings};

use crate::common::{err, ncpu};

/// Other processes are dumped, which takes root in most places.
pub fn root() -> bool {
    let yes = rustix::process::geteuid().is_root();
    if !yes {
        eprintln!("skipped: needs root");
    }
    yes
}

/// The workload, running.
pub struct Dumpee {
    pub child: Child,
    pub output: BufReader<std::process::ChildStdout>,
    /// The address of its own record.
    pub record: u64,
    /// Its number, which is not that of `child` where another program started it.
    pid: i32,
}

impl Dumpee {
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::start_by(directory, arguments, |_| {})
    }

    pub fn start_by(directory: &Path, arguments: &[&str], change: impl Fn(&mut Command)) -> Self {
        let mut command = Command::new(Self::program(directory));
        change(command.args(arguments));
        Self::spawn(command).expect("the workload does not start")
    }

    /// As [`Dumpee::start`]; none where the machine lacks what the options need, which it says.
    pub fn start_if(directory: &Path, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new(Self::program(directory));
        command.args(arguments);
        Self::spawn(command)
    }

    /// Started by another program, `by`, which has it for its child.
    pub fn start_under(directory: &Path, by: &[&str], arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new(by[0]);
        command.args(&by[1..]).arg(Self::program(directory)).args(arguments);
        let mut this = Self::spawn(command)?;
        let children = format!("/proc/{0}/task/{0}/children", this.pid);
        this.pid = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        Some(this)
    }

    pub fn program(directory: &Path) -> PathBuf {
        let program = directory.join("dumpee");
        if !program.exists() {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../workloads/dumpee.c");
            let cc =
                Command::new("cc").args(["-O2", "-pthread", source, "-o"]).arg(&program).status().unwrap();
            assert!(cc.success());
        }
        program
    }

    fn spawn(mut command: Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        if line.is_empty() {
            eprintln!("skipped: the workload ended with {} at once, see above", child.wait().unwrap());
            return None;
        }
        let record = line.split_whitespace().nth(1).unwrap_or_else(|| panic!("{line:?}"));
        let record = u64::from_str_radix(record, 16).unwrap();
        Some(Self { pid: child.id() as i32, child, record, output })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// It runs as if nothing had been.
    pub fn is_left_alone(&self, when: &str) {
        // After `--method fork` a second ncpu traces it for a moment, to have it wait for its copy.
        let since = std::time::Instant::now();
        let mut status = Status::read(self.pid()).unwrap();
        while (status.tracer != 0 || status.state == 't') && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
            status = Status::read(self.pid()).unwrap();
        }
        assert_eq!(status.tracer, 0, "{when}");
        assert!(matches!(status.state, 'R' | 'S' | 'D'), "{when}: {}", status.state);
        let protected: Vec<_> = mappings(self.pid()).unwrap();
        assert!(!protected.iter().any(|m| m.has(b"uw") || m.has(b"um")), "{when}: still protected");
    }

    /// Its own verdict, once it is asked to end.
    pub fn verdict(mut self) -> String {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        text.lines().last().unwrap_or_default().to_owned()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Kills dumps of it with these options at so many random moments of one that takes `whole`; after each the process must
/// be left alone, and `after` looks at what else is left. A dump that was done before does not count.
pub fn killed_at_random(
    dumpee: &Dumpee,
    path: &Path,
    options: &[&str],
    (times, seed): (u32, u64),
    mut whole: Duration,
    mut after: impl FnMut(u32),
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut killed = 0;
    while killed < times {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ncpu"))
            .args(["dump", &dumpee.pid().to_string(), "-o", path.to_str().unwrap()])
            .args(options)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Half of the moments lie in the first part, in which the process is taken hold of.
        let most = if random.bool() { whole } else { whole / 5 };
        let moment = Duration::from_micros(random.u64(0..=most.as_micros() as u64));
        std::thread::sleep(moment);
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            // It takes less than that, though the one whose time was taken may have been slowed down by others.
            whole = whole.min(moment);
            std::fs::remove_file(path).unwrap();
            continue;
        }
        killed += 1;
        dumpee.is_left_alone(&format!("killed {killed} times"));
        after(killed);
    }
}

pub struct Core {
    pub contents: Contents<File>,
    pub info: Info,
}

impl Core {
    pub fn open(path: &Path) -> Self {
        let contents = Contents::new(read::open(path).unwrap());
        let info = core_file::info(&contents).unwrap();
        Self { contents, info }
    }

    pub fn word(&self, address: u64) -> u64 {
        let bytes = core_file::memory(&self.contents, &self.info.loads, address, 8);
        u64::from_ne_bytes(bytes.try_into().unwrap_or_else(|_| panic!("{address:#x} is not in the core")))
    }

    /// The counters of the workload: first, sum of all pages, last.
    pub fn counters(&self, record: u64) -> [u64; 3] {
        assert_eq!(self.word(record), 0x6e63_7075_2064_756d, "the magic number");
        let (base, pages) = (self.word(record + 16), self.word(record + 24));
        let sum = (0..pages).map(|page| self.word(base + page * 4096)).sum();
        [self.word(record + 32), sum, self.word(self.word(record + 40))]
    }
}

/// Whether counters could have been so at one moment: a thread counts them up in their order.
pub fn consistent([first, sum, last]: [u64; 3]) -> bool {
    first >= sum && sum >= last && first - last <= 1
}

pub fn dump(dumpee: &Dumpee, path: &Path, arguments: &[&str]) -> String {
    let (pid, path) = (dumpee.pid().to_string(), path.to_str().unwrap());
    let o = ncpu(&[&["dump", &pid, "-o", path], arguments].concat());
    assert!(o.status.success(), "{}", err(&o));
    err(&o)
}
