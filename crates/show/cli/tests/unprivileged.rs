//! The onion of a user without rights, against what the kernel and the programs themselves say.

mod common;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use common::{Nobody, err, ncpu, out, unbroken};
use ncpu_record::Recording;
use ncpu_report::onion::{Layer, Onion};
use ncpu_schema::{
    Counter, CpuState, IdleReason, SampleClass, UserCause, View, cpu_time, data, events, idle_time, samples,
    summary, user_causes,
};

/// What nobody recorded of a shell's script, and what he was told.
struct Run {
    recording: Recording,
    onion: Onion,
    said: String,
}

impl Run {
    fn of(nobody: &Nobody, command: &[&str]) -> Run {
        Run::with(nobody, command, |_| ())
    }

    fn with(nobody: &Nobody, command: &[&str], set: impl FnOnce(&mut Command)) -> Run {
        let mut run = nobody.ncpu(&["run", "--record", "x.ncpu", "--"]);
        set(run.args(command));
        let o = run.output().unwrap();
        assert!(o.status.success(), "{command:?}: {}{}", out(&o), err(&o));
        let recording = Recording::open(&nobody.dir().join("x.ncpu")).unwrap();
        std::fs::rename(nobody.dir().join("x.ncpu"), nobody.dir().join("before.ncpu")).unwrap();
        std::fs::remove_dir_all(nobody.dir().join("before.ncpu")).unwrap();
        Run { onion: Onion::peel(&recording).unwrap(), recording, said: unbroken(&err(&o)) }
    }

    fn summary(&self, of: fn(&summary::Reader<'_>) -> Option<f64>) -> f64 {
        of(&summary::Reader::open(&self.recording).unwrap().unwrap()).unwrap()
    }

    /// Seconds of user and system time, as wait4 tells.
    fn used(&self) -> f64 {
        self.summary(|s| Some(s.user.get(0)? + s.system.get(0)?))
    }

    fn elapsed(&self) -> f64 {
        self.summary(|s| s.elapsed.get(0))
    }

    fn spent(&self, state: CpuState) -> f64 {
        cpu_time::Reader::need(&self.recording).unwrap().spent.sum(state)
    }

    fn count(&self, event: Counter) -> u64 {
        let events = events::Reader::open(&self.recording).unwrap().unwrap();
        let of = events.rows().filter(|&r| events.event.get(r) == Some(event));
        of.filter_map(|r| events.count.get(r)).sum()
    }

    /// Whether this user sees the kernel as root does: there is nothing to test here.
    fn is_whole(&self) -> bool {
        self.recording.manifest.view.is_none()
    }

    /// What must hold of every onion.
    fn check(&self) {
        let sum: f64 = self.onion.rows.iter().map(|r| r.seconds).sum();
        assert!((sum - self.onion.capacity).abs() < 0.01 * self.onion.capacity, "{sum} {:?}", self.onion);
        // The program's time is what the kernel says that its processes used. Interrupts are the machine's, and ticks
        // are coarse.
        let (program, used) = (self.spent(CpuState::Program), self.used());
        let interrupts = self.spent(CpuState::Hardirq) + self.spent(CpuState::Softirq);
        // The clock runs on while the hypervisor runs others, and a process's account does not.
        let stolen = self.summary(|s| s.steal.get(0));
        assert!(program <= used * 1.01 + 0.02 + stolen, "{program} s on CPU, of {used}: {}", self.said);
        assert!(program + interrupts >= used * 0.99 - 0.02, "{program} s on CPU, of {used}: {}", self.said);
        let parts: f64 = self.recording.tables["cpu_time"].num_rows() as f64;
        assert!(parts > 0.0);
    }
}

/// Runs a test where this user has fewer rights than root.
fn thin(command: &[&str]) -> Option<(Nobody, Run)> {
    let nobody = Nobody::new();
    let run = Run::of(&nobody, command);
    if run.is_whole() {
        eprintln!("skipped: every user of this machine may load programs into the kernel");
        return None;
    }
    run.check();
    Some((nobody, run))
}

/// A shell's loop of so many rounds.
fn rounds(n: u32) -> String {
    format!("i=0; while [ $i -lt {n} ]; do i=$((i+1)); done")
}

#[test]
fn what_nobody_sees_adds_up_to_what_the_kernel_says() {
    let Some((nobody, run)) = thin(&["sh", "-c", &rounds(400_000)]) else { return };
    assert!(run.said.contains("without root, ") && run.said.contains("setcap cap_bpf"), "{}", run.said);
    assert!(run.onion.seconds(Layer::User) > 0.8 * run.used(), "{:?}", run.onion);
    if run.recording.manifest.view == Some(View::UserCode) {
        let samples = &run.recording.tables["samples"];
        assert!((0..samples.num_rows()).all(|r| samples.text(r, "process") == Some("sh")), "{samples:?}");
        assert!(run.recording.tables.contains_key("stacks"));
    }
    // Its page and its other tables are made by the same code.
    let o = nobody.ncpu(&["run", "--html", "page.html", "--", "true"]).output().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    assert!(std::fs::read_to_string(nobody.dir().join("page.html")).unwrap().contains("Where capacity went"));
    let o = nobody.ncpu(&["run", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(o.status.code(), Some(7));
    let o = nobody.ncpu(&["run", "--", "/no/such/program"]).output().unwrap();
    assert_eq!(o.status.code(), Some(127));
}

#[test]
fn short_processes_and_those_left_behind_lose_nothing() {
    let script = "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done";
    let Some((nobody, run)) = thin(&["sh", "-c", script]) else { return };
    assert!(run.used() > 0.05, "{}", run.said);
    assert!(run.count(Counter::MinorFaults) > 300 * 20, "each process faults its pages in");
    // A grandchild whose parent has ended, and who ends before the command does.
    let script = format!(
        "(setsid sh -c '{}; : >done' &); while [ ! -e done ]; do sleep 0.05; done; sleep 0.2",
        rounds(400_000)
    );
    let run = Run::of(&nobody, &["sh", "-c", &script]);
    let (program, used) = (run.spent(CpuState::Program), run.used());
    assert!(program > used, "what it left behind is the program's too: {program} {used}");
    assert!(program > 0.05, "{}", run.said);
}

#[test]
fn two_loops_on_one_cpu_wait_for_it_in_turns() {
    let one = "pin=$(sed -n 's/Cpus_allowed_list:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/self/status)";
    let script = format!("{one}; for n in 1 2; do taskset -c $pin sh -c '{}' & done; wait", rounds(600_000));
    let Some((_nobody, run)) = thin(&["sh", "-c", &script]) else { return };
    // Each of the two is on that CPU or waits for it from its beginning to its end, and the first to end leaves the
    // other little.
    let waited = run.count(Counter::RunQueueMicroseconds) as f64 / 1e6;
    let together = run.used() + waited;
    let elapsed = run.elapsed();
    assert!(
        together > 1.5 * elapsed && together < 2.05 * elapsed,
        "{waited} s waited of {elapsed}: {}",
        run.said
    );
    assert!(waited > 0.3 * elapsed, "{waited} s waited of {elapsed}: {}", run.said);
}

#[test]
fn a_pool_that_waits_is_told_under_a_name_for_both() {
    let script = "import threading
stop = threading.Event()
pool = [threading.Thread(target=stop.wait) for _ in range(4)]
for t in pool: t.start()
n = 0
for i in range(6000000): n += i
stop.set()
for t in pool: t.join()";
    if Command::new("python3").arg("-V").output().is_err() {
        return eprintln!("skipped: python3 is not installed");
    }
    let Some((_nobody, run)) = thin(&["python3", "-c", script]) else { return };
    let why = idle_time::Reader::open(&run.recording).unwrap().unwrap();
    let of = |r| why.spent.sum(r);
    assert_eq!(of(IdleReason::UserLock), 0.0, "a lock is not told from work");
    // Where others leave CPUs idle at all, and /proc tells what threads sleep in.
    let told = std::fs::read_to_string("/proc/self/wchan").is_ok_and(|w| w == "0" || !w.is_empty());
    let idle: f64 = IdleReason::ALL.into_iter().map(of).sum();
    if told && idle > 0.2 * run.elapsed() {
        let either = of(IdleReason::LockOrSerial);
        assert!(either > of(IdleReason::Serial), "{either} of {idle} s: {}", run.said);
        assert!(run.onion.seconds(Layer::LockOrSerial) > 0.0, "{}", run.said);
    }
}

#[test]
fn hostile_names_are_shown_and_do_no_harm() {
    let nobody = Nobody::new();
    let name = nobody.dir().join("a) R\u{1b}[31m;\n(b");
    ncpu_trials::copy_program("/bin/sh", &name);
    let run = Run::of(&nobody, &[name.to_str().unwrap(), "-c", &rounds(200_000)]);
    run.check();
    assert!(!run.said.contains('\u{1b}'), "{}", run.said);
    if let Some(stacks) = run.recording.tables.get("stacks") {
        assert!((0..stacks.num_rows()).all(|r| stacks.text(r, "stack").is_some_and(|s| !s.contains('\n'))));
    }
}

/// From here on the process and all it starts get `errno` of perf_event_open.
fn refuse_events(errno: i32) -> io::Result<()> {
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let back = |k| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k };
    let mut filter = [
        // The number of the call is the first word of struct seccomp_data.
        load(0),
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_perf_event_open as u32 },
        back(libc::SECCOMP_RET_ERRNO | errno as u32),
        back(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: attributes of this process, which is about to exec; the filter is a live local.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn without_perf_events_accounts_remain() {
    let nobody = Nobody::new();
    for errno in [libc::EPERM, libc::ENOSYS] {
        let run = Run::with(&nobody, &["sh", "-c", &rounds(300_000)], |command| {
            // SAFETY: system calls only.
            unsafe { command.pre_exec(move || refuse_events(errno)) };
        });
        if run.is_whole() {
            return eprintln!("skipped: every user of this machine may load programs into the kernel");
        }
        run.check();
        assert_eq!(run.recording.manifest.view, Some(View::Accounts));
        assert!(run.said.contains("refused by seccomp"), "{}", run.said);
        assert!(!run.recording.tables.contains_key("samples"));
        assert!(run.onion.seconds(Layer::User) > 0.8 * run.used(), "{:?}", run.onion);
    }
}

#[test]
fn a_process_that_runs_is_watched_by_its_owner() {
    let nobody = Nobody::new();
    let mut child = nobody.program("/bin/sh".as_ref(), &["-c", "while :; do :; done"]).spawn().unwrap();
    let watch = |args: &[&str]| -> Output {
        let pid = child.id().to_string();
        nobody.ncpu(&[&["watch", "-p", &pid, "--record", "w.ncpu"], args].concat()).output().unwrap()
    };
    let o = watch(&["1"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    let recording = Recording::open(&nobody.dir().join("w.ncpu")).unwrap();
    if recording.manifest.view.is_none() {
        return eprintln!("skipped: every user of this machine may load programs into the kernel");
    }
    let program = cpu_time::Reader::need(&recording).unwrap().spent.sum(CpuState::Program);
    let ran: f64 = (0..recording.tables["threads"].num_rows())
        .filter_map(|r| recording.tables["threads"].number(r, "CPU"))
        .sum();
    assert!(
        ran > 0.0 && (program - ran).abs() < 0.1 * ran + 0.05,
        "{program} s by clocks, {ran} s by schedstat"
    );
    let o = ncpu(&["report", nobody.dir().join("w.ncpu").to_str().unwrap()]);
    assert!(out(&o).contains("user code"), "{}{}", out(&o), err(&o));
}

/// `ncpu` for nobody with the library for locks beside it.
fn with_library(nobody: &Nobody) {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libncpu_locks.so");
    std::fs::copy(library, nobody.dir().join("libncpu_locks.so")).unwrap();
}

fn compiled(nobody: &Nobody, source: &str) -> String {
    let program = nobody.dir().join("program");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-pthread", "-falign-loops=64", "-falign-functions=64", "-o"]);
    let o = gcc.args([&program, &source]).arg("-lm").output().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    program.to_str().unwrap().into()
}

#[test]
fn waits_for_locks_are_timed_and_their_holders_named() {
    if !cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
        return eprintln!("skipped: the library for locks is for x86-64 and glibc");
    }
    let nobody = Nobody::new();
    with_library(&nobody);
    let program = compiled(&nobody, "../../fix/preload/locks/tests/c/truth.c");
    let o =
        nobody.ncpu(&["run", "--preload", "locks", "--record", "l.ncpu", "--", &program]).output().unwrap();
    assert!(o.status.success(), "{}{}", out(&o), err(&o));
    let recording = Recording::open(&nobody.dir().join("l.ncpu")).unwrap();
    if recording.manifest.view.is_none() {
        assert!(err(&o).contains("was loaded and not read"), "{}", err(&o));
        return eprintln!("skipped: every user of this machine may load programs into the kernel");
    }
    let said = out(&o);
    let measured = |kind: &str| -> f64 {
        let line =
            said.lines().find_map(|l| l.strip_prefix(kind)).unwrap_or_else(|| panic!("{kind}: {said}"));
        line.split_whitespace().last().unwrap().parse::<f64>().unwrap() / 1e9
    };
    let table = &recording.tables["user_locks"];
    let waited = |lock: &str, kind: &str, caller: &str| -> f64 {
        let is = |r: &usize| {
            table.text(*r, "lock") == Some(lock)
                && table.text(*r, "type") == Some(kind)
                && table.text(*r, "caller") == Some(caller)
        };
        (0..table.num_rows()).filter(is).filter_map(|r| table.number(r, "block")).sum()
    };
    // Its children wait for locks of these names too, 60 ms.
    for (lock, ty, caller, kind, more) in [
        ("mutex", "mutex", "take_mutex", "mutex ", 0.06),
        ("rwlock", "rwlock", "take_read", "rwlock read ", 0.0),
        ("rwlock", "rwlock", "take_write", "rwlock write ", 0.0),
        ("turnstile", "semaphore", "take_turnstile", "turnstile ", 0.0),
        ("work", "unknown", "take_work", "semaphore ", 0.0),
        ("condition", "condition", "take_condition", "condition ", 0.0),
        ("barrier", "barrier", "take_barrier", "barrier ", 0.0),
    ] {
        let (noted, known) = (waited(lock, ty, caller), measured(kind) + more);
        assert!((noted - known).abs() < 0.04 + 0.05 * known, "{lock}: {known} s, noted {noted}: {table:?}");
    }
    let holder = format!("program/{}", said.lines().next().unwrap().strip_prefix("holder ").unwrap());
    let held = (0..table.num_rows()).filter(|&r| table.text(r, "holder") == Some(&holder)).count();
    assert!(held >= 3, "{holder}: {table:?}");
    // While one waited the other slept: where others leave CPUs idle, they idle for the lock and not for want of work.
    let idle = idle_time::Reader::open(&recording).unwrap().unwrap();
    let all: f64 = IdleReason::ALL.into_iter().map(|r| idle.spent.sum(r)).sum();
    if all > 0.8 {
        assert!(idle.spent.sum(IdleReason::UserLock) > 0.1, "{}", err(&o));
    }
    let words = unbroken(&err(&o));
    assert!(words.contains("timed by libncpu_locks.so, of 3 processes"), "{words}");

    let o = nobody.ncpu(&["locks", "--preload", "--", &program, "again"]).output().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    // The command's stdout is its own.
    let mutex = err(&o).lines().find(|l| l.contains("take_mutex")).map(str::to_string);
    assert!(mutex.is_some_and(|l| l.contains("mutex") && l.contains("program")), "{}", err(&o));
    let o = nobody.ncpu(&["locks", "--preload", "1"]).output().unwrap();
    assert!(!o.status.success() && err(&o).contains("--preload takes a command"), "{}", err(&o));
}

#[test]
fn files_of_locks_of_a_killed_ncpu_go_with_the_next() {
    let nobody = Nobody::new();
    with_library(&nobody);
    // Its program tells where its files would be, and by which number it is known.
    let start = |told: &str| {
        let script = format!("echo $$ \"$NCPU_LOCKS\" > {told}.new; mv {told}.new {told}; exec sleep 600");
        let mut run = nobody.ncpu(&["run", "--preload", "locks", "--", "sh", "-c", &script]);
        let ncpu = run.stderr(std::process::Stdio::null()).spawn().unwrap();
        let told = nobody.dir().join(told);
        while !told.exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let told = std::fs::read_to_string(told).unwrap();
        let (pid, dir) = told.trim().split_once(' ').unwrap();
        (ncpu, pid.parse::<i32>().unwrap(), std::path::PathBuf::from(dir))
    };
    let end = |program: i32| {
        let program = rustix::process::Pid::from_raw(program).unwrap();
        // It may have ended with ncpu.
        let _ = rustix::process::kill_process(program, rustix::process::Signal::KILL);
    };
    let (mut killed, program, abandoned) = start("killed");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(abandoned.is_dir(), "{abandoned:?}");
    let (mut alive, other, in_use) = start("alive");
    assert!(!abandoned.exists(), "{abandoned:?}");
    let o = nobody.ncpu(&["run", "--preload", "locks", "--", "true"]).output().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    assert!(in_use.is_dir(), "another's that runs stays");
    end(program);
    end(other);
    alive.wait().unwrap();
    assert!(!in_use.exists(), "{in_use:?}");
}

#[test]
fn a_program_that_no_library_takes_hold_of_is_named() {
    let nobody = Nobody::new();
    with_library(&nobody);
    let (source, program) = (nobody.dir().join("s.c"), nobody.dir().join("static"));
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    let o = Command::new("gcc").arg("-static").arg("-o").args([&program, &source]).output().unwrap();
    if !o.status.success() {
        return eprintln!("skipped: no static libc");
    }
    let o = nobody.ncpu(&["run", "--preload", "locks", "--", program.to_str().unwrap()]).output().unwrap();
    let said = unbroken(&err(&o));
    let whole = said.contains("was loaded and not read");
    assert!(o.status.success() && (whole || said.contains("statically linked")), "{said}");
}

#[test]
fn threads_are_divided_as_far_as_proc_tells() {
    let nobody = Nobody::new();
    let mut child = nobody.program("/bin/sh".as_ref(), &["-c", "while :; do :; done"]).spawn().unwrap();
    let pid = child.id().to_string();
    let o = nobody.ncpu(&["threads", "-p", &pid, "-o", "json", "1", "1"]).output().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    if !err(&o).contains("without root") {
        return eprintln!("skipped: every user of this machine may load programs into the kernel");
    }
    let row: serde_json::Value = serde_json::from_str(out(&o).lines().next().unwrap()).unwrap();
    let number = |name: &str| row[name].as_f64();
    let sum: f64 = ["usr", "sys", "lat", "off"].iter().filter_map(|n| number(n)).sum();
    assert!((sum - 1.0).abs() < 0.02, "{row}");
    assert!(number("usr") > number("sys"), "{row}");
    for unknown in ["trp", "tfl", "dfl", "lck", "slp", "scl"] {
        assert!(row[unknown].is_null(), "{unknown}: {row}");
    }
    // The whole machine takes root.
    let o = nobody.ncpu(&["threads", "1", "1"]).output().unwrap();
    assert!(!o.status.success() && err(&o).contains("needs root"), "{}", err(&o));
}

/// The one capability that a process keeps through its exec as another user.
fn keep(capability: u32) -> io::Result<()> {
    #[repr(C)]
    struct Sets([u32; 3]);
    let header: [u32; 2] = [0x2008_0522, 0];
    let bit = |low: bool| if (capability < 32) == low { 1 << (capability % 32) } else { 0 };
    let (low, high) = (bit(true), bit(false));
    let sets = [Sets([low; 3]), Sets([high; 3])];
    // SAFETY: attributes of this process, which is about to exec; both structs live until the call is over.
    unsafe {
        let done = libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0
            && libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(65534, 65534, 65534) == 0
            && libc::setresuid(65534, 65534, 65534) == 0
            && libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) == 0
            && libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0) == 0;
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[test]
fn with_cap_perfmon_the_kernel_is_sampled() {
    if !common::root() {
        return;
    }
    let nobody = Nobody::new();
    // Not as `Nobody` runs programs: giving up root gives up its capabilities.
    let mut run = Command::new(nobody.dir().join("ncpu"));
    run.args(["run", "--record", "p.ncpu", "--", "sh", "-c", &rounds(300_000)]).current_dir(nobody.dir());
    run.env("COLUMNS", "100");
    const CAP_PERFMON: u32 = 38;
    // SAFETY: system calls only.
    unsafe { run.pre_exec(|| keep(CAP_PERFMON)) };
    let o = match run.output() {
        Ok(o) => o,
        Err(e) => return eprintln!("skipped: capabilities cannot be given to others here: {e}"),
    };
    assert!(o.status.success(), "{}{}", out(&o), err(&o));
    let recording = Recording::open(&nobody.dir().join("p.ncpu")).unwrap();
    if recording.manifest.view.is_none() {
        return eprintln!("skipped: every user of this machine may load programs into the kernel");
    }
    assert_eq!(recording.manifest.view, Some(View::Machine), "{}", err(&o));
    let samples = &recording.tables["samples"];
    assert!(samples.num_rows() > 0, "{samples:?}");
    let said = unbroken(&err(&o));
    assert!(said.contains("cap_bpf,cap_perfmon"), "{said}");
    Run { onion: Onion::peel(&recording).unwrap(), recording, said: err(&o) }.check();
}

#[test]
fn a_recording_that_was_cut_short_tells_its_view() {
    let nobody = Nobody::new();
    let whole = Run::of(&nobody, &["true"]).is_whole();
    let mut run = nobody.ncpu(&["run", "--record", "cut.ncpu", "--interval", "0.1", "--", "sleep", "9"]);
    let mut ncpu = run.stderr(std::process::Stdio::null()).spawn().unwrap();
    let cut = nobody.dir().join("cut.ncpu");
    // Rows are there before the manifest would be written at the end.
    for _ in 0..400 {
        if cut.join("cpu_time.arrows").metadata().is_ok_and(|m| m.len() > 0) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    ncpu.kill().unwrap();
    ncpu.wait().unwrap();
    let recording = Recording::open(&cut).unwrap();
    assert!(!recording.recovered.is_empty(), "{:?}", recording.manifest);
    assert_eq!(recording.manifest.view.is_none(), whole);
}

/// In a PID namespace, as of a container, root sees what a user does: the kernel tells the machine's numbers of processes.
#[test]
fn a_pid_namespace_is_observed_as_without_root() {
    if !common::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("x.ncpu");
    let inside = |args: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", env!("CARGO_BIN_EXE_ncpu")])
            .args(args);
        unshare.output().unwrap()
    };
    let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let o = inside(&["run", "--record", recording.to_str().unwrap(), "--", "sh", "-c", burn]);
    if err(&o).contains("unshare failed") {
        return eprintln!("skipped: no PID namespaces can be made here");
    }
    assert!(o.status.success(), "{}{}", out(&o), err(&o));
    let recording = Recording::open(&recording).unwrap();
    let run = Run { onion: Onion::peel(&recording).unwrap(), recording, said: unbroken(&err(&o)) };
    assert!(!run.is_whole(), "{}", run.said);
    run.check();
    assert!(run.used() > 0.05, "{} s", run.used());
    let said = &run.said;
    assert!(said.contains("since this is a PID namespace"), "{said}");
    // What needs a process and the engine says why there is none.
    let o = inside(&["locks", "1", "-p", "1"]);
    assert!(!o.status.success() && err(&o).contains("PID namespace"), "{}{}", out(&o), err(&o));
    // The machine can be observed.
    let o = inside(&["watch", "0.5", "-a"]);
    let said = unbroken(&[out(&o), err(&o)].concat());
    assert!(o.status.success() && said.contains("have no names"), "{said}");
}

/// A recording by nobody of one of the programs of the engine's tests, and the numbers that the program measured itself.
fn measured(source: &str, how: &str) -> Option<(Vec<f64>, Run)> {
    let nobody = Nobody::new();
    let program = compiled(&nobody, &format!("../../see/engine/tests/c/{source}.c"));
    let file = nobody.dir().join("truth");
    let run = Run::of(&nobody, &[&program, how, "1.2", file.to_str().unwrap()]);
    let seen = [View::UserCode, View::Program, View::Machine];
    if !run.recording.manifest.view.is_some_and(|view| seen.contains(&view)) {
        eprintln!("skipped: a user of this machine may sample nothing, or load programs into the kernel");
        return None;
    }
    let truth = std::fs::read_to_string(file).unwrap();
    Some((truth.split_whitespace().map(|n| n.parse().unwrap()).collect(), run))
}

/// The part of these functions' samples that has a cause.
fn part_of(run: &Run, functions: &[&str], cause: UserCause) -> f64 {
    let causes = user_causes::Reader::need(&run.recording).unwrap();
    let sum = |of: Option<UserCause>| -> f64 {
        let is = |r: &usize| {
            functions
                .iter()
                .any(|f| causes.function.get(*r).is_some_and(|name| name.split('.').next() == Some(f)))
                && of.is_none_or(|cause| causes.cause.get(*r) == Some(cause))
        };
        causes.rows().filter(is).filter_map(|r| causes.samples.get(r)).sum()
    };
    let all = sum(None);
    assert!(all >= 60.0, "{all} samples of {functions:?}: {}", run.said);
    sum(Some(cause)) / all
}

mod quiet {
    use ncpu_trials::{MOST, hold};

    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn time_of_user_code_has_its_causes() {
        for (how, function, cause) in [
            ("chase40", "chase_and_40", UserCause::Memory),
            ("divide60", "divide_and_60", UserCause::Long),
            ("arithmetic", "only_60", UserCause::Memory),
        ] {
            hold(MOST, how, || {
                let Some((truth, run)) = measured("parts", how) else { return };
                let part = part_of(&run, &[function], cause);
                println!("{how}: {cause:?} {part:.3}, truth {:.3}", truth[0]);
                assert!((part - truth[0]).abs() < 0.15, "{how}: {part} of {}", truth[0]);
            });
        }
    }

    #[test]
    fn lines_that_threads_share_are_named() {
        if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
            return eprintln!("skipped: one CPU");
        }
        for (how, variable) in [("false", Some("counters")), ("own", None)] {
            hold(MOST, how, || {
                let Some((truth, run)) = measured("sharing", how) else { return };
                let part = part_of(&run, &["shared", "work"], UserCause::SharedLine);
                let objects: std::collections::BTreeSet<String> = data::Reader::open(&run.recording)
                    .unwrap()
                    .iter()
                    .flat_map(|data| {
                        let shared =
                            data.rows().filter(|&r| data.cause.get(r) == Some(UserCause::SharedLine));
                        shared.filter_map(|r| data.object.get(r).map(String::from)).collect::<Vec<_>>()
                    })
                    .collect();
                println!("{how}: {part:.3}, truth {:.3}: {objects:?}", truth[0]);
                assert_eq!(objects, variable.into_iter().map(String::from).collect(), "{how}");
                let truth = if variable.is_some() { truth[0] } else { 0.0 };
                assert!((part - truth).abs() < 0.2, "{how}: {part} of {truth}");
            });
        }
    }

    #[test]
    fn code_that_pauses_in_a_loop_spins() {
        hold(MOST, "pause", || {
            let Some((truth, run)) = measured("spins", "pause") else { return };
            let samples = samples::Reader::need(&run.recording).unwrap();
            let of = |class: SampleClass| -> f64 {
                let is = |r: &usize| {
                    samples.at.get(*r) == Some(CpuState::Program) && samples.class.get(*r) == Some(class)
                };
                samples.rows().filter(is).filter_map(|r| samples.samples.get(r)).sum::<u64>() as f64
            };
            let (spins, work) = (of(SampleClass::Spin), of(SampleClass::User));
            let (part, of) = (spins / (spins + work), truth[1] / (truth[0] + truth[1]));
            println!("spinning {part:.3} of the time, truth {of:.3}");
            assert!((part - of).abs() < 0.15, "{part} {of}");
        });
    }
}
