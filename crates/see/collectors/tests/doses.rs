//! Gives doses to a program that makes one system call for ever, and looks at the traces left after kill -9. Needs root
//! and BPF; skips with a message otherwise.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use ncpu_collectors::doses::{Doses, Function, MOST, Place};
use ncpu_observe_core::program::{Child, Target};

/// CPUs that one process with one thread can be on at a time, and a few more.
const CPUS: u64 = 4;

/// Set in the process that is killed.
const VICTIM: &str = "NCPU_TEST_DOSES_OF";

fn allowed() -> bool {
    let allowed =
        rustix::process::geteuid().is_root() && std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    if !allowed {
        eprintln!("skipped: doses need root and BTF");
    }
    allowed
}

/// Reads and writes a byte, for ever; killed when dropped.
struct Copier(Child);

impl Copier {
    fn begin() -> Copier {
        Copier::of(&["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "status=none"])
    }

    /// Any other program that runs for ever.
    fn of(argv: &[&str]) -> Copier {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let mut child = Child::hold(&argv).unwrap();
        child.release().unwrap();
        Copier(child)
    }

    fn target(&self) -> Target {
        Target::Tree(self.0.pid())
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.0.pid() as i32).unwrap();
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        self.0.wait(true);
    }
}

/// Waits until it is so, however busy the machine is.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within a minute");
}

fn write() -> Place {
    Place::Call(libc::SYS_write as u32)
}

#[test]
fn a_process_is_hit_three_times() {
    if !allowed() {
        return;
    }
    let shell = Copier::of(&["sh", "-c", "while :; do /bin/true; done"]);
    let mut doses = Doses::load(&shell.target()).unwrap();
    doses.count_calls(true).unwrap();
    doses.attach(&Place::Processes).unwrap();
    let before = (doses.counts().hits, doses.calls(libc::SYS_execve as u32));
    let since = |doses: &Doses| {
        let (hits, programs) = (doses.counts().hits, doses.calls(libc::SYS_execve as u32));
        (hits - before.0, programs - before.1)
    };
    until("programs are started", || since(&doses).1 >= 100);
    let (hits, programs) = since(&doses);
    // A process may be in the middle of its life at both ends.
    assert!(hits.abs_diff(3 * programs) <= 2 * 3, "{hits} {programs}");
    assert_eq!(doses.counts().doses, 0);
}

#[test]
fn hits_are_made_slower_while_a_window_is_open() {
    if !allowed() {
        return;
    }
    let copier = Copier::begin();
    let mut doses = Doses::load(&copier.target()).unwrap();
    doses.attach(&write()).unwrap();
    until("hits are counted", || doses.counts().hits >= 100);
    assert_eq!(doses.counts().doses, 0, "a place without a window is not made slower");
    let before = doses.counts();
    doses.arm(Duration::from_micros(20), Duration::from_secs(600));
    until("doses are given", || doses.counts().doses >= 100);
    let after = doses.counts();
    let (given, spun) = (after.doses - before.doses, after.spun - before.spun);
    // A CPU may be in the middle of one: its time is added before or after its number.
    assert!(spun >= (given - 64) * 20_000, "{given} doses, {spun} ns");
    assert!(after.hits - before.hits + 64 >= given);
    doses.disarm();
    std::thread::sleep(Duration::from_millis(50));
    let ended = doses.counts();
    until("hits are counted on", || doses.counts().hits >= ended.hits + 100);
    assert!(doses.counts().doses <= ended.doses + CPUS, "no dose without a window");
}

#[test]
fn a_window_ends_by_itself_and_doses_have_a_most() {
    if !allowed() {
        return;
    }
    let copier = Copier::begin();
    let mut doses = Doses::load(&copier.target()).unwrap();
    doses.attach(&write()).unwrap();
    doses.arm(Duration::from_secs(5), Duration::from_millis(200));
    std::thread::sleep(Duration::from_millis(400));
    let ended = doses.counts();
    until("hits are counted on", || doses.counts().hits >= ended.hits + 100);
    let later = doses.counts();
    // A thread may have lost its CPU in the middle of a dose.
    assert!(later.doses <= ended.doses + CPUS, "nobody closed the window, and it is closed");
    // A CPU spins for half of each 100 ms: in 200 ms two such times lie whole, and two in part.
    let most = 4 * (50_000_000 / MOST.as_nanos() as u64 + 1);
    assert!(later.doses <= CPUS * most, "{} doses", later.doses);
}

#[test]
fn a_survey_finds_calls() {
    if !allowed() {
        return;
    }
    let copier = Copier::begin();
    let mut doses = Doses::load(&copier.target()).unwrap();
    let mut seen = Vec::new();
    until("calls are seen", || {
        let (survey, ()) = doses.survey(|| std::thread::sleep(Duration::from_millis(100))).unwrap();
        seen = survey.calls;
        seen.iter().any(|call| call.number == libc::SYS_write as u32 && call.awake > 10)
    });
    let write = seen.iter().find(|call| call.number == libc::SYS_write as u32).unwrap();
    assert!(write.count >= write.awake && write.seconds > 0.0, "{write:?}");
    // Another process's calls are not the program's.
    assert!(
        seen.iter().all(|call| [libc::SYS_read, libc::SYS_write].contains(&i64::from(call.number))),
        "{seen:?}"
    );
}

#[test]
fn functions_are_places() {
    if !allowed() {
        return;
    }
    let copier = Copier::begin();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", copier.0.pid())).unwrap();
    let Some(libc) =
        maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"))
    else {
        return eprintln!("skipped: dd has no shared C library");
    };
    let mut doses = Doses::load(&copier.target()).unwrap();
    let entry = Function::find(libc.as_ref(), "write", false).unwrap().unwrap();
    doses.count_function(Some(&entry)).unwrap();
    doses.attach(&Place::Function(Function { at_return: true, ..entry })).unwrap();
    doses.arm(Duration::from_micros(1), Duration::from_secs(600));
    until("both ends are hit", || doses.progress() >= 10 && doses.counts().doses >= 10);
    assert_eq!(Function::find(libc.as_ref(), "no_such_function_here", false).unwrap(), None);
}

/// What a process has where a function of a file begins.
fn byte_at(pid: u32, function: &Function) -> u8 {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let file = function.file.to_str().unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let address = maps.lines().filter(|line| line.ends_with(file)).find_map(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let from = number(rest.split(' ').nth(1).unwrap());
        let address = (number(start) + function.offset).checked_sub(from)?;
        (number(start)..number(end)).contains(&address).then_some(address)
    });
    let mut byte = [0];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut byte, address.unwrap()).unwrap();
    byte[0]
}

#[test]
fn a_probe_of_one_process_is_in_no_other() {
    if !allowed() {
        return;
    }
    let (copier, other) = (Copier::begin(), Copier::begin());
    let mut doses = Doses::load(&copier.target()).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", copier.0.pid())).unwrap();
    let libc =
        maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
    let Some(libc) = libc else { return eprintln!("skipped: dd has no shared C library") };
    let write = Function::find(libc.as_ref(), "write", false).unwrap().unwrap();
    let plain = byte_at(other.0.pid(), &write);
    doses.only(Some(copier.0.pid()));
    doses.attach(&Place::Function(write.clone())).unwrap();
    until("hits are counted", || doses.counts().hits >= 100);
    assert_eq!(byte_at(other.0.pid(), &write), plain);
    assert_ne!(byte_at(copier.0.pid(), &write), plain);
}

/// `vxorps` is a push to the kernel's breakpoints, by the byte of its opcode.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_function_whose_first_instruction_would_be_taken_for_another_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("two.c"), dir.path().join("two"));
    let text = r#"
        asm(".globl wide\n.type wide,@function\nwide: vxorps %xmm0,%xmm0,%xmm0\nret\n.size wide,.-wide");
        asm(".globl plain\n.type plain,@function\nplain: endbr64\npush %rbp\npop %rbp\nret\n.size plain,.-plain");
        int main(void) { return 0; }"#;
    std::fs::write(&source, text).unwrap();
    let built = Command::new("gcc").arg("-o").arg(&program).arg(&source).status();
    assert!(built.unwrap().success());
    let refused = Function::find(&program, "wide", false).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
    // Behind the landing pad, which would take a step of its own.
    let plain = Function::find(&program, "plain", false).unwrap().unwrap();
    let code = std::fs::read(&program).unwrap();
    assert_eq!(code[plain.offset as usize], 0x55);
}

/// The process that is killed: gives doses to the program whose number it was given, until then.
#[test]
fn victim() {
    let Ok(pid) = std::env::var(VICTIM) else { return };
    let mut doses = Doses::load(&Target::Tree(pid.parse().unwrap())).unwrap();
    doses.count_calls(true).unwrap();
    println!("loaded");
    for place in
        [write(), Place::WakeUps, Place::Softirq(1), Place::Locks(vec![1, 2]), Place::Faults].iter().cycle()
    {
        if doses.attach(place).is_ok() {
            doses.arm(Duration::from_micros(5), Duration::from_secs(600));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The numbers of the BPF programs that a process has open.
fn programs_of(pid: u32) -> Vec<u32> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let text = dir.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let number = |text: String| text.lines().find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok());
    let mut numbers: Vec<u32> = text.filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Whether the kernel still has a program.
fn is_there(program: u32) -> bool {
    // SAFETY: no pointer is given; the descriptor is closed at once.
    unsafe {
        let fd = libbpf_sys::bpf_prog_get_fd_by_id(program);
        fd >= 0 && {
            libc::close(fd);
            true
        }
    }
}

#[test]
fn nothing_is_left_after_kill_9_at_random_moments() {
    if !allowed() {
        return;
    }
    let copier = Copier::begin();
    for round in 0..100 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--nocapture"])
            .env(VICTIM, copier.0.pid().to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("loaded")), "round {round}");
        let programs = programs_of(victim.id());
        assert!(programs.len() >= 5 && programs.iter().all(|&p| is_there(p)), "round {round}: {programs:?}");
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..20_000)));
        victim.kill().unwrap();
        victim.wait().unwrap();
        until("programs leave the kernel", || programs.iter().all(|&p| !is_there(p)));
    }
}
