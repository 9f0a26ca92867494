//! `ncpu place`, `hugepages` and `fix` as a user meets them, on processes of every kind.

mod common;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{err, out};

fn ncpu(state: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    command.args(args).env("COLUMNS", "160").env("NCPU_STATE_DIR", state).output().unwrap()
}

/// A process that ends with the test.
struct Living(Child);

impl Living {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn sh(script: &str) -> Living {
    Living(Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap())
}

/// A C program compiled for this test; `None` where the compiler cannot.
fn compiled(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<std::path::PathBuf> {
    let (from, to) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&from, source).unwrap();
    let done =
        Command::new("gcc").args(flags).args(["-O1", "-pthread", "-o"]).arg(&to).arg(&from).output().unwrap();
    done.status.success().then_some(to)
}

#[test]
fn a_policy_is_what_the_kernel_says_then() {
    let dir = tempfile::tempdir().unwrap();
    let status = ["sed", "-n", "s/^Cpus_allowed_list:\\t//p", "/proc/self/status"];
    let o = ncpu(dir.path(), &[&["place", "pack:1"], &status[..]].concat());
    assert!(o.status.success(), "{}", err(&o));
    assert!(out(&o).trim().parse::<u32>().is_ok(), "{}", out(&o));
    let o = ncpu(dir.path(), &["place", "any", "--class", "batch", "--", "chrt", "-p", "0"]);
    assert!(out(&o).contains("SCHED_BATCH"), "{}{}", out(&o), err(&o));
    let o = ncpu(dir.path(), &["place", "local", "--dry-run", "-o", "json"]);
    assert!(out(&o).contains(r#""memory":"preferred","nodes":"0""#), "{}{}", out(&o), err(&o));
    let o = ncpu(dir.path(), &["place", "bind:0", "sh", "-c", "exit 7"]);
    assert_eq!(o.status.code(), Some(7));
    for (args, code, says) in [
        (&["place", "near", "true"][..], 2, "give spread[:N]"),
        (&["place", "pack:60000", "true"], 1, "60000 CPUs are asked for"),
        (&["place", "any"], 2, "no command is given"),
        (&["place", "any", "no-such-command-x"], 127, "command not found"),
        (&["fix", "--no-peel", "no-such-command-x"], 127, "command not found"),
        (&["place", "any", "--class", "fifo:0", "true"], 2, "give batch, idle"),
        (&["place", "local", "-p", "1", "true"], 2, "only balance works on processes"),
        (&["place", "balance"], 2, "give one of a command"),
        (&["place", "balance", "--interval", "0", "true"], 2, "give 0.01 or more"),
    ] {
        let o = ncpu(dir.path(), args);
        assert_eq!(o.status.code(), Some(code), "{args:?}: {}", err(&o));
        assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
    }
}

#[test]
fn processes_that_cannot_be_helped_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    // The shell becomes `sleep`, which never waits for the child it had.
    let parent = Living(
        Command::new("sh")
            .args(["-c", "sleep 0.3 & echo $!; exec sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut parent = parent;
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(parent.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    let zombie = line.trim().to_string();
    let state = || std::fs::read_to_string(format!("/proc/{zombie}/stat")).unwrap_or_default();
    while !state().contains(") Z") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = {
        let mut gone = sh("exit 0");
        gone.0.wait().unwrap();
        gone.pid()
    };
    // The kernel's second process starts all its threads; a container has its own second.
    let kernel = std::fs::read_to_string("/proc/2/status").unwrap_or_default();
    let kernel = (kernel.contains("kthreadd") && !kernel.contains("VmSize")).then_some("2");
    let mut cases =
        vec![(ended.as_str(), "there is no process"), (zombie.as_str(), "zombie"), ("4194304999", "")];
    cases.extend(kernel.map(|pid| (pid, "thread of the kernel")));
    for (pid, says) in cases {
        for args in [
            &["place", "balance", "-p", pid][..],
            &["hugepages", "-p", pid],
            &["hugepages", "--apply", "-p", pid],
        ] {
            let o = ncpu(dir.path(), args);
            assert!(!o.status.success(), "{args:?}");
            assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
        }
    }
}

#[test]
fn a_balanced_process_has_its_cpus_back_and_one_that_ends_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let busy = sh("while :; do :; done");
    let o = ncpu(dir.path(), &["place", "balance", "-p", &busy.pid(), "--for", "0.5", "--interval", "0.1"]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(err(&o).contains("at last 1 threads ran"), "{}", err(&o));
    let status = std::fs::read_to_string(format!("/proc/{}/status", busy.pid())).unwrap();
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let cpus = |s: &str| s.lines().find(|l| l.starts_with("Cpus_allowed_list")).map(str::to_owned);
    assert_eq!(cpus(&status), cpus(&own));
    // A process that ends meanwhile ends the balancing.
    let short = sh("sleep 0.3");
    let o = ncpu(dir.path(), &["place", "balance", "-p", &short.pid(), "--for", "30", "--interval", "0.05"]);
    drop(short);
    assert!(o.status.success(), "{}", err(&o));
    let o = ncpu(dir.path(), &["place", "balance", "--", "sh", "-c", "exit 5"]);
    assert_eq!(o.status.code(), Some(5), "{}", err(&o));
}

const MANY: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
	/* Every other page of another protection, so that each is a mapping. */
	for (int i = 0; i < 25000; i++) {
		char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			break;
		p[0] = 1;
		mprotect(p + 4096, 4096, PROT_READ);
	}
	char *big = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(big, 1, 64 << 20);
	puts("ready");
	fflush(stdout);
	pause();
}
"#;

/// A program of 32 bits with 4 MiB of its own memory; it needs no C library of 32 bits, which few machines have.
const NARROW: &str = r#"
static char memory[4 << 20];
static int call(int number, int a, const void *b, int c)
{
	int result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
	return result;
}
void _start(void)
{
	for (unsigned i = 0; i < sizeof(memory); i += 4096)
		((volatile char *)memory)[i] = 1;
	call(4 /* write */, 1, "ready\n", 6);
	for (;;)
		call(29 /* pause */, 0, 0, 0);
}
"#;

/// Starts a program and waits until it says that it is ready.
fn ready(program: &Path) -> Living {
    let mut child = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    Living(child)
}

fn number(text: &str, key: &str) -> f64 {
    let rest =
        text.split_once(&format!("\"{key}\":")).map(|(_, r)| r).unwrap_or_else(|| panic!("{key}: {text}"));
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn fifty_thousand_mappings_and_32_bit_programs_are_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "many", MANY, &[]).unwrap();
    let many = ready(&program);
    let o = ncpu(dir.path(), &["hugepages", "-p", &many.pid(), "-o", "json"]);
    assert!(o.status.success(), "{}", err(&o));
    let anonymous: Vec<String> =
        out(&o).lines().filter(|l| l.contains(r#""object":"anonymous""#)).map(Into::into).collect();
    // The truth is in the program: 64 MiB, and a page of each of the others.
    assert_eq!(anonymous.len(), 1, "{}", out(&o));
    assert!(number(&anonymous[0], "resident") >= (64 << 20) as f64, "{}", anonymous[0]);
    let o = ncpu(dir.path(), &["place", "balance", "-p", &many.pid(), "--for", "0.3"]);
    assert!(o.status.success(), "{}", err(&o));
    let o = ncpu(dir.path(), &["hugepages", "-p", &many.pid(), "--apply", "--share", "100", "-o", "json"]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: huge pages for another process need root");
    } else if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        eprintln!("skipped: this machine has no transparent huge pages");
    } else {
        let text = out(&o);
        let after = text.lines().find(|l| l.contains(r#""object":"anonymous""#));
        let after = after.unwrap_or_else(|| panic!("{text}{}", err(&o)));
        assert!(number(after, "thp") >= (56 << 20) as f64, "{after}{}", err(&o));
    }
    match compiled(dir.path(), "narrow", NARROW, &["-m32", "-nostdlib", "-static", "-ffreestanding"]) {
        Some(program) => {
            let narrow = ready(&program);
            let o = ncpu(dir.path(), &["hugepages", "-p", &narrow.pid(), "-o", "json"]);
            assert!(out(&o).contains(r#""object":"anonymous""#), "{}{}", out(&o), err(&o));
        }
        None => eprintln!("skipped: no compiler for 32 bits"),
    }
}

#[test]
fn a_process_in_other_namespaces_is_looked_at_from_outside() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let inside = Living(
        Command::new("unshare")
            .args(["-m", "-p", "-n", "-i", "--fork", "--kill-child", "sleep", "60"])
            .spawn()
            .unwrap(),
    );
    // The namespace's first process is its child.
    let children = format!("/proc/{0}/task/{0}/children", inside.pid());
    let pid = loop {
        let text = std::fs::read_to_string(&children).unwrap_or_default();
        if let Some(pid) = text.split_whitespace().next() {
            break pid.to_string();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    while std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() != "sleep" {
        std::thread::sleep(Duration::from_millis(5));
    }
    let o = ncpu(dir.path(), &["hugepages", "-p", &pid, "-o", "json"]);
    assert!(out(&o).contains(r#""process":"sleep""#), "{}{}", out(&o), err(&o));
    let o = ncpu(dir.path(), &["place", "balance", "-p", &pid, "--for", "0.3", "--interval", "0.1"]);
    assert!(o.status.success(), "{}", err(&o));
}

#[test]
fn others_processes_are_refused_in_a_line() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let dir = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let copy = dir.path().join("ncpu");
    ncpu_trials::copy_program(env!("CARGO_BIN_EXE_ncpu"), &copy);
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(65534), Some(65534)).unwrap();
    let other = sh("sleep 60");
    let run = |args: &[&str]| {
        Command::new(&copy).args(args).env("NCPU_STATE_DIR", &state).uid(65534).gid(65534).output().unwrap()
    };
    let o = run(&["hugepages", "-p", &other.pid()]);
    assert!(!o.status.success() && err(&o).lines().count() == 1, "{}", err(&o));
    assert!(err(&o).contains("Permission denied"), "{}", err(&o));
    let o = run(&["hugepages"]);
    assert!(o.status.success() && err(&o).contains("that needs root"), "{}", err(&o));
    let o = run(&["fix", "--no-peel", "--rounds", "2", "--try", "batch", "true"]);
    assert!(o.status.success(), "{}", err(&o));
    // Its own it balances, with loads from /proc.
    let o = run(&[
        "place",
        "balance",
        "--interval",
        "0.05",
        "--",
        "timeout",
        "0.5",
        "sh",
        "-c",
        "while :; do :; done",
    ]);
    assert_eq!(o.status.code(), Some(124), "{}", err(&o));
    // How many threads ran just then depends on what else runs.
    assert!(err(&o).contains("at first ") && err(&o).contains(" threads ran"), "{}", err(&o));
}

#[test]
fn a_remedy_that_helps_is_kept_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    // The command tells its own throughput, which needs no clock.
    let metric = ["--metric", "rate ([0-9]+)", "--no-peel"];
    let fix = |more: &[&str]| ncpu(&state, &[&["fix"], &metric[..], more].concat());
    let o = fix(&["--rounds", "6", "--try", "workers,batch", "--", "sh", "-c", "echo rate {n}0"]);
    assert!(o.status.success(), "{}", err(&o));
    let text = format!("{}{}", out(&o), err(&o));
    assert!(text.contains("by:\n  sh -c 'echo rate"), "{text}");
    let verdict = |name: &str| text.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(verdict("workers").contains("kept") && verdict("batch").contains("no gain"), "{text}");
    // Nothing helps a command that does the same whatever is tried.
    let o = fix(&["--rounds", "4", "--try", "batch,arena", "--", "echo", "rate 7"]);
    assert!(out(&o).contains("Nothing helps"), "{}{}", out(&o), err(&o));
    let o = ncpu(&state, &["fix", "--no-peel", "--try", "batch", "--", "sh", "-c", "exit 3"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("the command fails as it is: exit status 3"), "{}", err(&o));
    // A command that works only with a remedy is told so.
    let script = "test \"$MALLOC_ARENA_MAX\" = 1";
    let o = ncpu(&state, &["fix", "--no-peel", "--rounds", "2", "--try", "arena", "--", "sh", "-c", script]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(out(&o).contains("kept: without it the command fails"), "{}{}", out(&o), err(&o));
    // So is one that has run into a limit of its own.
    let script = r#"test "$(ulimit -n)" -ge 4000"#;
    let mut limited = Command::new("prlimit");
    limited.args(["--nofile=500:4000", env!("CARGO_BIN_EXE_ncpu"), "fix", "--no-peel", "--rounds", "2"]);
    limited.args(["--try", "limits", "--", "sh", "-c", script]).env("NCPU_STATE_DIR", &state);
    let o = limited.output().unwrap();
    assert!(out(&o).contains("  prlimit --nofile=4000:4000 "), "{}{}", out(&o), err(&o));
    let o = ncpu(&state, &["fix", "--list", "--", "make", "-j{n}"]);
    assert!(out(&o).contains("workers") && out(&o).contains("one arena"), "{}", out(&o));
    let o = ncpu(&state, &["fix", "--undo"]);
    assert!(err(&o).contains("nothing to undo"), "{}", err(&o));
}

#[test]
fn what_was_not_tried_is_not_said_to_be_of_no_help() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let fix = |args: &[&str]| ncpu(&state, &[&["fix", "--no-peel", "--rounds", "2"], args].concat());
    // The first runs take the time there is.
    let o = fix(&["--for", "1", "--try", "batch,arena", "--", "sleep", "0.6"]);
    let text = out(&o);
    assert!(
        o.status.success() && text.contains("Nothing was compared: 2 of 2 not tried: time is up"),
        "{text}"
    );
    assert!(!text.contains("Nothing helps"), "{text}");
    // So does one that never ends, and it is not left behind.
    let begin = std::time::Instant::now();
    let o = fix(&["--for", "1", "--try", "batch", "--", "sh", "-c", "sleep 77.5; :"]);
    assert!(
        !o.status.success() && err(&o).contains("the command did not end within 1 s (--for)"),
        "{}",
        err(&o)
    );
    assert!(begin.elapsed() < Duration::from_secs(30));
    // The work is done by the first run, as that of make.
    let done = dir.path().join("done");
    let script = format!(
        "test -e {0} || {{ i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; : >{0}; }}",
        done.display()
    );
    let o = fix(&["--try", "batch", "--", "sh", "-c", &script]);
    assert!(!o.status.success() && err(&o).contains("does not repeat its work"), "{}{}", out(&o), err(&o));
    // Interrupted before the first run has ended.
    let mut child = Command::new("env")
        .args([
            "--default-signal=INT",
            env!("CARGO_BIN_EXE_ncpu"),
            "fix",
            "--no-peel",
            "--try",
            "batch",
            "--",
        ])
        .args(["sleep", "60"])
        .env("NCPU_STATE_DIR", &state)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let started = || {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().any(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sleep")
        })
    };
    while !started() {
        std::thread::sleep(Duration::from_millis(10));
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(text.contains("Nothing was compared: 1 of 1 not tried: stopped"), "{text}");
}

#[test]
fn memory_is_shown_and_a_drop_in_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let program = "x = bytearray(150 << 20)";
    let args = ["fix", "--no-peel", "--rounds", "2", "--try", "arena", "-o", "json", "--"];
    let o = ncpu(&state, &[&args[..], &["python3", "-c", program]].concat());
    match err(&o).contains("command not found") {
        true => eprintln!("skipped: python3 is not installed"),
        false => {
            let text = out(&o) + &err(&o);
            assert!(number(&text, "rss") > 1.5e8 && number(&text, "rss_before") > 1.5e8, "{text}");
        }
    }
    let drop_in = dir.path().join("drop-in.conf");
    let file = drop_in.to_str().unwrap();
    let o = ncpu(
        &state,
        &[
            "fix",
            "--no-peel",
            "--rounds",
            "2",
            "--try",
            "batch",
            "--systemd",
            file,
            "--",
            "sh",
            "-c",
            "echo 100% $$",
        ],
    );
    assert!(o.status.success(), "{}", err(&o));
    let text = std::fs::read_to_string(drop_in).unwrap();
    let line = text.lines().find(|l| l.starts_with("ExecStart=/")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.ends_with(r#"sh -c "echo 100%% $$$$""#), "{text}");
}

/// A control group of version 1 or 2 with one process in it, gone with the test.
struct Group(std::path::PathBuf);

impl Group {
    fn with(pid: &str) -> Option<Group> {
        let name = format!("ncpu-test-remedies-{}", std::process::id());
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu"].iter().find_map(|top| {
            let group = Group(Path::new(top).join(&name));
            std::fs::create_dir(&group.0).ok()?;
            // Where it is not a control group's, there is no such file, and none is made.
            let mut procs =
                std::fs::OpenOptions::new().write(true).open(group.0.join("cgroup.procs")).ok()?;
            procs.write_all(pid.as_bytes()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).ok();
    }
}

#[test]
fn the_processes_of_a_control_group_are_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let busy = sh("while :; do :; done");
    let Some(group) = Group::with(&busy.pid()) else {
        return eprintln!("skipped: no control group can be made");
    };
    let path = group.0.to_str().unwrap();
    let o = ncpu(dir.path(), &["place", "balance", "-c", path, "--for", "0.5", "--interval", "0.1"]);
    assert!(o.status.success() && err(&o).contains("at last 1 threads ran"), "{}", err(&o));
    let o = ncpu(dir.path(), &["hugepages", "-c", path, "-o", "csv"]);
    let pids: std::collections::BTreeSet<String> =
        out(&o).lines().skip(1).filter_map(|l| Some(l.split(',').next()?.to_string())).collect();
    assert_eq!(pids, [busy.pid()].into(), "{}{}", out(&o), err(&o));
    drop(busy);
    // An empty one is no error, and one that is not there is.
    let o = ncpu(dir.path(), &["hugepages", "-c", path, "--apply"]);
    assert!(o.status.success(), "{}", err(&o));
    drop(group);
    for args in [&["place", "balance", "-c", "/no/such/group"][..], &["hugepages", "-c", "/no/such/group"]] {
        let o = ncpu(dir.path(), args);
        assert!(o.status.code() == Some(1) && err(&o).contains("/no/such/group"), "{}", err(&o));
    }
}

#[test]
fn a_process_that_ends_while_its_pages_are_put_together_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "many", MANY, &[]).unwrap();
    let mut many = ready(&program);
    // So little of a CPU that it would take minutes.
    let mut apply = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    apply.args(["hugepages", "-p", &many.pid(), "--apply", "--share", "1"]);
    let apply = apply.env("NCPU_STATE_DIR", dir.path()).stderr(Stdio::piped()).stdout(Stdio::null());
    let apply = apply.spawn().unwrap();
    let rollup = format!("/proc/{}/smaps_rollup", many.pid());
    let begun = || {
        let text = std::fs::read_to_string(&rollup).unwrap();
        text.lines().any(|l| l.starts_with("AnonHugePages:") && !l.ends_with(" 0 kB"))
    };
    // Where huge pages cannot be made it is over before.
    for _ in 0..1000 {
        if begun() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    many.0.kill().unwrap();
    many.0.wait().unwrap();
    let o = apply.wait_with_output().unwrap();
    let said = err(&o);
    assert!(said.contains("cut short") || !o.status.success(), "{said}");
}

/// A program whose text fills several huge pages, which it goes through once, and that spends its time in a function then.
fn large_text() -> String {
    let mut out = String::from("#include <stdio.h>\nvolatile int at;\n");
    for i in 0..200 {
        out.push_str(&format!(
            "int part_{i}(int x) {{ if (x < 0) __asm__ volatile(\".fill 65536, 1, 0x90\"); return x * {i}; }}\n"
        ));
    }
    out.push_str("__attribute__((noinline)) void known_place(void) { for (;;) at++; }\nint main(void) {\n");
    (0..200).for_each(|i| out.push_str(&format!("at += part_{i}(at);\n")));
    out.push_str("puts(\"ready\"); fflush(stdout); known_place(); }\n");
    out
}

#[test]
fn text_on_huge_pages_keeps_its_symbols() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "large", &large_text(), &["-g", "-fno-inline"]).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    command.args(["hugepages", "--"]).arg(&program).env("NCPU_STATE_DIR", dir.path());
    command.env("NCPU_PRELOAD_DIR", std::env::current_exe().unwrap().parent().unwrap());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    let mut child = Living(child);
    if line.is_empty() {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.0.stderr.take().unwrap(), &mut said).unwrap();
        panic!("it did not begin: {said}");
    }
    let pid = child.pid();
    // Its name is its file's.
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/exe")).unwrap(), program);
    let o = ncpu(dir.path(), &["hugepages", "-p", &pid, "--mappings", "-o", "json"]);
    let text = out(&o);
    let text = text.lines().find(|l| l.contains(r#""object":"text""#) && l.contains("/large\""));
    let text = text.unwrap_or_else(|| panic!("{}", out(&o)));
    if number(text, "thp") == 0.0 {
        return eprintln!("skipped: this kernel gives a tmpfs no huge pages: {text}");
    }
    assert!(number(text, "thp") >= 0.7 * number(text, "resident"), "{text}");
    // What this program's own flame graphs are made of.
    let page = dir.path().join("page.html");
    let o = ncpu(dir.path(), &["watch", "-p", &pid, "1", "--html", page.to_str().unwrap()]);
    match Path::new("/sys/kernel/btf/vmlinux").exists() {
        true => assert!(std::fs::read_to_string(&page).unwrap().contains("known_place"), "{}", err(&o)),
        false => eprintln!("skipped: observing needs root and BTF"),
    }
    let tool = |words: &[&str]| Command::new(words[0]).args(&words[1..]).current_dir(dir.path()).output();
    match tool(&["gdb", "-q", "-batch", "-p", &pid, "-ex", "bt"]) {
        Ok(o) => assert!(out(&o).contains("known_place"), "{}{}", out(&o), err(&o)),
        Err(e) => eprintln!("skipped: gdb: {e}"),
    }
    match tool(&["perf", "record", "-q", "-e", "cpu-clock", "-o", "perf.data", "-p", &pid, "sleep", "0.3"]) {
        Ok(o) if o.status.success() => {
            let o = tool(&["perf", "report", "-i", "perf.data", "--stdio", "-F", "sym"]).unwrap();
            assert!(out(&o).contains("known_place"), "{}{}", out(&o), err(&o));
        }
        other => eprintln!("skipped: perf: {other:?}"),
    }
}

/// Times of a tenth of a second: with nothing beside.
mod quiet {
    use ncpu_trials::{MOST, hold};

    use super::*;

    #[test]
    fn the_start_of_ncpu_itself_is_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        let args =
            ["fix", "--no-peel", "--rounds", "5", "--try", "batch", "-o", "json", "--", "sleep", "0.1"];
        hold(MOST, "the start of ncpu itself", || {
            let o = ncpu(dir.path(), &args);
            assert!(o.status.success(), "{}", err(&o));
            let text = out(&o);
            // A debug build takes half as long to start as the command to run: counted, it would be 0.67.
            assert!(number(&text, "x") > 0.75, "{text}");
            // It is no larger than ncpu's own start.
            assert!(text.contains(r#""rss":null"#), "{text}");
        });
    }
}
