//! `ncpu fix`, `hugepages` and `place balance`, killed at random moments: what is left, and what undoing leaves of it.
//! `partition` has its own such test.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{err, pool_of_huge_pages};

/// As often as this each is killed.
const TIMES: u64 = 100;

struct Killed {
    state: tempfile::TempDir,
    /// Kills that came before anything was to be undone.
    early: u64,
}

impl Killed {
    fn new() -> Killed {
        Killed { state: tempfile::tempdir().unwrap(), early: 0 }
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("NCPU_STATE_DIR", self.state.path());
        command.env("NCPU_PRELOAD_DIR", std::env::current_exe().unwrap().parent().unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn journals(&self) -> usize {
        let entries = std::fs::read_dir(self.state.path().join("undo")).into_iter().flatten().flatten();
        entries.filter(|e| e.file_name() != "lock").count()
    }

    /// How long it takes until there is something to be undone, or until it ends: here, and now.
    fn until_done(&mut self, mut child: Child, round: u64) -> Duration {
        let begun = Instant::now();
        while self.journals() == 0 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        let until = begun.elapsed();
        self.end(child, round);
        until
    }

    /// Kills a command after a random time, at most `most`, and undoes its changes.
    fn kill(&mut self, child: Child, most: Duration, round: u64) {
        std::thread::sleep(most.mul_f64(fastrand::f64()));
        self.end(child, round);
    }

    /// The journal is empty after this.
    fn end(&mut self, mut child: Child, round: u64) {
        child.kill().unwrap();
        child.wait().unwrap();
        self.early += u64::from(self.journals() == 0);
        let mut undo = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        let o = undo.args(["fix", "--undo"]).env("NCPU_STATE_DIR", self.state.path()).output().unwrap();
        assert!(o.status.success(), "round {round}: {}", err(&o));
        assert_eq!(self.journals(), 0, "round {round}: {}", err(&o));
    }

    /// Most kills had something to undo, else the test shows nothing.
    fn enough(&self) {
        assert!(self.early < TIMES * 8 / 10, "{} of {TIMES} came before anything was done", self.early);
    }
}

const NCPU: &str = env!("CARGO_BIN_EXE_ncpu");

/// A control group with a CPU limit, where there can be one.
struct Limited(PathBuf);

impl Limited {
    fn new() -> Option<Limited> {
        let dir = Path::new("/sys/fs/cgroup/cpu").join(format!("ncpu-test-killed-{}", std::process::id()));
        std::fs::create_dir(&dir).ok()?;
        let limited = Limited(dir);
        std::fs::write(limited.file(), "90000").ok()?;
        Some(limited)
    }

    fn file(&self) -> PathBuf {
        self.0.join("cpu.cfs_quota_us")
    }

    /// Nobody is in it any more, after a while.
    fn empties(&self) -> bool {
        let empty = || std::fs::read_to_string(self.0.join("cgroup.procs")).is_ok_and(|t| t.is_empty());
        (0..400).any(|_| {
            empty() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).ok();
    }
}

#[test]
fn fix_gives_a_limit_back_and_leaves_no_process() {
    let Some(limited) = rustix::process::geteuid().is_root().then(Limited::new).flatten() else {
        return eprintln!("skipped: no control group with a CPU limit can be made");
    };
    let (mut killed, mut most) = (Killed::new(), Duration::ZERO);
    for round in 0..TIMES {
        let script = format!(
            "echo $$ >{}/cgroup.procs; exec {NCPU} fix --no-peel --allow-system --try quota --rounds 50 sleep 0.01",
            limited.0.display()
        );
        let start = |killed: &Killed| killed.command("sh", &["-c", &script]).spawn().unwrap();
        if round % 20 == 0 {
            most = 3 * killed.until_done(start(&killed), round);
        }
        killed.kill(start(&killed), most, round);
        assert_eq!(std::fs::read_to_string(limited.file()).unwrap().trim(), "90000", "round {round}");
        // The command was held, or ran; it was not left stopped.
        assert!(limited.empties(), "round {round}");
    }
    killed.enough();
}

#[test]
fn settings_and_pools_are_given_back() {
    let pool = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let _lock = pool_of_huge_pages();
    let before = read(pool);
    let more = (before.trim().parse::<u64>().unwrap_or(0) + 1).to_string();
    if !rustix::process::geteuid().is_root() || std::fs::write(pool, more).is_err() || read(pool) == before {
        return eprintln!("skipped: no pool of huge pages can be made");
    }
    std::fs::write(pool, before.trim()).unwrap();
    let (mut killed, mut most) = (Killed::new(), Duration::ZERO);
    for round in 0..TIMES {
        let args = ["hugepages", "--pool", "4m", "--no-text", "--", "sleep", "0.3"];
        let start = |killed: &Killed| killed.command(NCPU, &args).spawn().unwrap();
        if round % 20 == 0 {
            most = 3 * killed.until_done(start(&killed), round);
        }
        killed.kill(start(&killed), most, round);
        assert_eq!(read(pool), before, "round {round}");
    }
    killed.enough();
}

/// Memory with a known content, checked all the time; ends with 1 if it changes.
const CHECKED: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
static unsigned char *memory;
static const size_t length = 32 << 20;
static void *check(void *unused)
{
	for (;;)
		for (size_t at = 0; at < length; at += 4096)
			if (memory[at] != (unsigned char)(at >> 12))
				exit(1);
	return unused;
}
int main(void)
{
	pthread_t thread;
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t at = 0; at < length; at += 4096)
		memory[at] = at >> 12;
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, check, NULL);
	check(NULL);
}
"#;

/// The program above, running.
fn checked(dir: &Path) -> Child {
    use std::io::BufRead;
    let (source, program) = (dir.join("checked.c"), dir.join("checked"));
    std::fs::write(&source, CHECKED).unwrap();
    let gcc =
        Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).output().unwrap();
    assert!(gcc.status.success(), "{}", err(&gcc));
    let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// The threads' CPUs and states.
fn threads(pid: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name: &str| {
            status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim().to_string()
        };
        (field("Cpus_allowed_list:"), field("State:"))
    };
    tasks.map(of).collect()
}

#[test]
fn a_process_that_is_worked_on_goes_on_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = checked(dir.path());
    let pid = program.id().to_string();
    let cpus = threads(program.id())[0].0.clone();
    let mut killed = Killed::new();
    for round in 0..2 * TIMES {
        let args = match round % 2 {
            0 => &["hugepages", "--apply", "--share", "100", "-p", &pid][..],
            _ => &["place", "balance", "--interval", "0.01", "-p", &pid],
        };
        let child = killed.command(NCPU, args).spawn().unwrap();
        killed.kill(child, Duration::from_micros((round + 1) * 500), round);
        for (now, state) in threads(program.id()) {
            assert_eq!(now, cpus, "round {round}");
            assert!(!state.starts_with(['T', 't']), "round {round}: {state}");
        }
    }
    assert!(program.try_wait().unwrap().is_none(), "it ended: its memory changed");
    program.kill().unwrap();
    program.wait().unwrap();
}

/// Processes, without zombies, that have this among their arguments.
fn living(mark: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&b| b == 0).any(|word| word == mark.as_bytes())
    })
    .collect()
}

#[test]
fn a_command_that_is_balanced_goes_on_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = checked(dir.path());
    let cpus = threads(program.id())[0].0.clone();
    program.kill().unwrap();
    program.wait().unwrap();
    let path = dir.path().join("checked");
    let mark = format!("balanced-{}", std::process::id());
    let mut killed = Killed::new();
    let mut ran = 0;
    for round in 0..TIMES {
        let args = ["place", "balance", "--interval", "0.01", "--", path.to_str().unwrap(), &mark];
        let child = killed.command(NCPU, &args).spawn().unwrap();
        let own = child.id();
        // Every other one while it begins, the rest once the command runs.
        let runs = |pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == path);
        while round % 2 == 1 && !living(&mark).into_iter().any(runs) {
            std::thread::sleep(Duration::from_millis(2));
        }
        killed.kill(child, Duration::from_millis(20), round);
        for pid in living(&mark) {
            assert_ne!(pid, own, "round {round}: it was waited for");
            ran += 1;
            for (now, state) in threads(pid) {
                assert_eq!(now, cpus, "round {round}");
                assert!(!state.starts_with(['T', 't']), "round {round}: {state}");
            }
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
    assert!(ran >= TIMES / 2, "of {TIMES} times the command was begun {ran} times only");
}

#[test]
fn without_room_for_the_journal_nothing_is_changed() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let touch = format!("touch {}", ran.display());
    for command in ["hugepages --pool 2m --no-text --", "place balance --", "fix --no-peel --try batch --"] {
        // A file system of one page, so that not even the journal's header fits once it is full.
        let script = format!(
            "mount -t tmpfs -o size=4k,mode=700 small {0} && head -c 4096 /dev/zero >{0}/x && exec {NCPU} {command} {touch}",
            state.display()
        );
        let mut full = Command::new("unshare");
        let o = full.args(["-m", "sh", "-c", &script]).env("NCPU_STATE_DIR", &state).output().unwrap();
        assert_eq!(o.status.code(), Some(1), "{command}: {}", err(&o));
        let said = err(&o);
        assert!(said.contains("nothing was changed") && said.contains("No space left"), "{command}: {said}");
        assert!(!ran.exists(), "{command} ran the program");
    }
}

/// Its group at once; what has left the group by what the journal says.
#[test]
fn a_run_of_fix_ends_with_fix() {
    let killed = Killed::new();
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!(
        "sleep 71.25 & echo $! >{0}; setsid sleep 71.25 & echo $! >>{0}; echo end >>{0}; wait",
        pids.display()
    );
    let mut child = killed
        .command(NCPU, &["fix", "--no-peel", "--try", "batch", "--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    let list = || std::fs::read_to_string(&pids).unwrap_or_default();
    while !list().ends_with("end\n") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pids: Vec<u32> = list().lines().filter_map(|l| l.parse().ok()).collect();
    let runs = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains("(sleep)") && !stat.contains(") Z")
    };
    // Its own session has begun.
    while !runs(pids[1]) {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for _ in 0..400 {
        if !runs(pids[0]) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!runs(pids[0]), "its group is left");
    let mut undo = Command::new(NCPU);
    let o = undo.args(["fix", "--undo"]).env("NCPU_STATE_DIR", killed.state.path()).output().unwrap();
    assert!(o.status.success() && err(&o).contains("killed what was left of run fix-"), "{}", err(&o));
    assert!(!runs(pids[1]), "what has left the group is left");
}

/// Processes of which the arguments have this one, with whether they are `ncpu`'s own.
fn with_argument(argument: &str) -> Vec<(u32, bool)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |pid: u32| {
        let text = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let mut arguments = text.split(|byte| *byte == 0);
        let own = arguments.next() == Some(NCPU.as_bytes());
        arguments.any(|a| a == argument.as_bytes()).then_some((pid, own))
    };
    pids.filter_map(of).collect()
}

#[test]
fn run_leaves_no_process_of_its_own_whenever_it_is_killed() {
    let argument = format!("7777.{}", std::process::id());
    for round in 0..TIMES {
        let mut run = Command::new(NCPU);
        run.args(["run", "--", "sleep", &argument]);
        run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = run.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(250).mul_f64(fastrand::f64()));
        run.kill().unwrap();
        run.wait().unwrap();
        // Its helpers end as they see that it has: the program that it had started goes on.
        let ended = (0..500).any(|_| {
            let left = with_argument(&argument);
            left.iter().all(|(_, own)| !own) || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        });
        let left = with_argument(&argument);
        for (pid, _) in &left {
            let pid = rustix::process::Pid::from_raw(*pid as i32).unwrap();
            // It may have ended meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        assert!(ended, "round {round}: {left:?}");
    }
}
