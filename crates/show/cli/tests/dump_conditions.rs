//! `ncpu dump` in bad conditions: processes that end, that others trace, that are unusually large, or that may not do
//! what an injected call asks; little memory for `ncpu` itself. Each has a dump that is right, or a line that says why not.

mod common;
#[path = "common/dumpee.rs"]
mod dumpee;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{err, ncpu, out, pool_of_huge_pages};
use dumpee::{Core, Dumpee, consistent, dump, killed_at_random, root};
use ncpu_dump::target::{Status, mappings};

/// Compiles a program of a few lines; none if there is no such compiler.
fn compile(directory: &Path, source: &str, flags: &[&str]) -> Option<std::path::PathBuf> {
    let program = directory.join("program");
    let mut cc = Command::new("cc")
        .args(flags)
        .args(["-w", "-x", "c", "-", "-o"])
        .arg(&program)
        .stdin(Stdio::piped())
        .spawn()
        .ok()?;
    cc.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    cc.wait().unwrap().success().then_some(program)
}

/// Starts a program, and waits for its first line.
fn started(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    child
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// It failed with one line that has these words, and left no file.
fn one_line(o: &Output, words: &str, directory: &Path) {
    assert_eq!(o.status.code(), Some(1), "{words}: {}", err(o));
    assert!(err(o).contains(words) && err(o).lines().count() == 1, "{words}: {}", err(o));
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let cores: Vec<_> = files.filter(|name| name.to_string_lossy().starts_with("core")).collect();
    assert!(cores.is_empty(), "{words}: {cores:?} were left");
}

/// A directory and a copy of the command that anybody may use.
fn for_everyone() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    // Set afterwards, as the mask takes rights away.
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everyone).unwrap();
    let copy = directory.path().join("ncpu");
    ncpu_trials::copy_program(env!("CARGO_BIN_EXE_ncpu"), &copy);
    (directory, copy)
}

/// A dump that is slow and has written a part.
fn in_the_middle(dumpee: &Dumpee, path: &Path, partial: &Path, method: &str) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_ncpu"))
        .args(["dump", &dumpee.pid().to_string(), "-o", path.to_str().unwrap(), "--method", method])
        .args(["--threads", "1", "--level", "15"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while std::fs::metadata(partial).map_or(0, |data| data.len()) < 1 << 20 {
        assert!(began.elapsed() < Duration::from_secs(60), "{method}: nothing is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_process_that_ends_meanwhile_leaves_a_part() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("core.zst");
    let partial = directory.path().join("core.zst.partial");
    // From a copy of the process the dump is whole all the same.
    for method in ["protect", "stop", "fork"] {
        let dumpee = Dumpee::start(directory.path(), &["160", "1", "100", "i"]);
        let child = in_the_middle(&dumpee, &path, &partial, method);
        let record = dumpee.record;
        dumpee.kill();
        let o = child.wait_with_output().unwrap();
        if method == "fork" {
            assert!(o.status.success(), "{}", err(&o));
            let core = Core::open(&path);
            assert!(consistent(core.counters(record)) && core.info.missing == 0);
            continue;
        }
        assert_eq!(o.status.code(), Some(1), "{method}: {}", err(&o));
        assert!(err(&o).contains("ended meanwhile"), "{method}: {}", err(&o));
        assert!(!path.exists(), "{method}: a part has the name of a whole");
        let core = Core::open(&partial);
        let trailer = core.info.trailer.as_ref().unwrap();
        assert!(
            !trailer.complete && trailer.reason.contains("ended") && core.info.missing > 0,
            "{trailer:?}"
        );
        std::fs::remove_file(&partial).unwrap();
    }
}

#[test]
fn a_process_that_executes_another_program_meanwhile_leaves_a_part() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("core.zst");
    let partial = directory.path().join("core.zst.partial");
    for method in ["protect", "fork"] {
        let dumpee = Dumpee::start(directory.path(), &["160", "1", "1000", "ie"]);
        let child = in_the_middle(&dumpee, &path, &partial, method);
        let pid = rustix::process::Pid::from_raw(dumpee.pid()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
        let o = child.wait_with_output().unwrap();
        // A copy knows nothing of it. Otherwise nothing of the other program is taken for the first one's memory.
        if method == "fork" {
            assert!(o.status.success(), "{}", err(&o));
            assert!(consistent(Core::open(&path).counters(dumpee.record)));
        } else {
            assert_eq!(o.status.code(), Some(1), "{}", err(&o));
            assert!(err(&o).contains("ended meanwhile") && !path.exists(), "{}", err(&o));
            let core = Core::open(&partial);
            let trailer = core.info.trailer.as_ref().unwrap();
            assert!(!trailer.complete && core.info.missing > 0, "{trailer:?}");
            // The next dump is waited for by its part.
            std::fs::remove_file(&partial).unwrap();
        }
        let name = std::fs::read_to_string(format!("/proc/{}/comm", dumpee.pid())).unwrap();
        assert_eq!(name.trim_end(), "sleep");
        dumpee.is_left_alone("another program runs");
        dumpee.kill();
    }
}

#[test]
fn processes_of_others_and_those_that_are_traced_are_told_in_a_line() {
    if !root() {
        return;
    }
    let (directory, copy) = for_everyone();
    let dumpee = Dumpee::start(directory.path(), &["8", "1", "100", "p"]);
    let path = directory.path().join("core.zst");
    let pid = dumpee.pid().to_string();
    let arguments = ["dump", &pid, "-o", path.to_str().unwrap()];
    let o = Command::new(&copy).args(arguments).uid(65534).gid(65534).output().unwrap();
    one_line(&o, "not permitted", directory.path());
    // A tracer of its own.
    let source = "#include <stdio.h>\n#include <sys/ptrace.h>\n#include <unistd.h>\nint main(int c, char **v) {
        if (ptrace(PTRACE_SEIZE, atoi(v[1]), 0, 0)) return 1; puts(\"ready\"); fflush(stdout); for (;;) pause(); }";
    let tracer = compile(directory.path(), source, &[]).expect("a C compiler");
    let mut command = Command::new(tracer);
    command.arg(&pid);
    let tracer = started(command);
    let words = format!("already traced by {}", tracer.id());
    one_line(&ncpu(&arguments), &words, directory.path());
    // Looked at by us it is still its tracer's.
    assert_eq!(Status::read(dumpee.pid()).unwrap().tracer, tracer.id() as i32);
    end(tracer);
    dump(&dumpee, &path, &[]);
    dumpee.kill();
}

#[test]
fn a_program_of_32_bits_is_told_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let source = "static int call(int n, int a, const void *b, int c) { int r;
            __asm__ volatile(\"int $0x80\" : \"=a\"(r) : \"a\"(n), \"b\"(a), \"c\"(b), \"d\"(c) : \"memory\"); return r; }
        void _start(void) { call(4, 1, \"ready\\n\", 6); for (;;) call(29, 0, 0, 0); }";
    let flags = ["-m32", "-nostdlib", "-static", "-ffreestanding"];
    let Some(program) = compile(directory.path(), source, &flags) else {
        return eprintln!("skipped: no compiler for 32 bits");
    };
    let narrow = started(Command::new(program));
    let path = directory.path().join("core.zst");
    let o = ncpu(&["dump", &narrow.id().to_string(), "-o", path.to_str().unwrap()]);
    one_line(&o, "32-bit program", directory.path());
    end(narrow);
}

#[test]
fn its_owner_dumps_a_process_without_privileges() {
    if !root() {
        return;
    }
    let (directory, copy) = for_everyone();
    let dumpee = Dumpee::start_by(directory.path(), &["16", "2", "100"], |command| {
        command.uid(65534).gid(65534);
    });
    let path = directory.path().join("core.zst");
    let o = Command::new(&copy)
        .args(["dump", &dumpee.pid().to_string(), "-o", path.to_str().unwrap()])
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", err(&o));
    // Where users may not have userfaultfd, the next way is taken and told.
    assert!(!err(&o).contains("not by") || err(&o).contains("userfaultfd"), "{}", err(&o));
    assert!(consistent(Core::open(&path).counters(dumpee.record)));
    dumpee.is_left_alone("dumped by its owner");
    let verdict = dumpee.verdict();
    assert!(verdict.starts_with("right"), "{verdict}");
}

#[test]
fn a_process_in_other_namespaces_is_dumped_from_outside() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // As in a container: its own numbers, users, mounts, network.
    let flags = [
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--net",
        "--ipc",
        "--uts",
        "--user",
        "--map-root-user",
    ];
    let by: Vec<&str> = std::iter::once("unshare").chain(flags).collect();
    let Some(dumpee) = Dumpee::start_under(directory.path(), &by, &["16", "2", "100"]) else { return };
    let path = directory.path().join("core.zst");
    for method in ["protect", "fork", "stop"] {
        dump(&dumpee, &path, &["--method", method]);
        let core = Core::open(&path);
        assert!(consistent(core.counters(dumpee.record)), "{method}");
        // Threads have the numbers they have for us.
        assert_eq!((core.info.pid, core.info.threads[0].tid), (dumpee.pid(), dumpee.pid()), "{method}");
        dumpee.is_left_alone(method);
    }
    let children = format!("/proc/{0}/task/{0}/children", dumpee.pid());
    assert_eq!(std::fs::read_to_string(children).unwrap(), "", "a copy is left");
    dumpee.kill();
}

#[test]
fn many_threads_and_many_mappings_are_dumped() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("core.zst");
    for (options, threads, segments) in [("wp", 5000, 5000), ("vp", 2, 50_000)] {
        let Some(dumpee) = Dumpee::start_if(directory.path(), &["16", "1", "100", options]) else { return };
        let told = dump(&dumpee, &path, &["--method", "protect"]);
        let core = Core::open(&path);
        assert!(consistent(core.counters(dumpee.record)), "{options}: {told}");
        assert!(core.info.threads.len() >= threads, "{options}: {} threads", core.info.threads.len());
        assert!(core.info.loads.len() >= segments, "{options}: {} segments", core.info.loads.len());
        assert!(core.info.threads.iter().all(|thread| thread.pc != 0), "{options}: registers are missing");
        dumpee.is_left_alone(options);
        dumpee.kill();
    }
}

#[test]
fn locked_and_hugetlb_memory_is_dumped_and_that_of_devices_told() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("core.zst");
    for options in ["l", "H", "Hs", "x"] {
        // 16 MB, a page for the ends, and as many for a copy of the process.
        let _pool = options.starts_with('H').then(|| Pool::with(20));
        if let Some(dumpee) = Dumpee::start_if(directory.path(), &["16", "2", "100", options]) {
            // Shared huge pages are left out, and told, unless the process wants them.
            if options == "Hs" {
                let told = dump(&dumpee, &path, &[]);
                assert!(told.contains("shared huge pages, by coredump_filter"), "{told}");
                std::fs::write(format!("/proc/{}/coredump_filter", dumpee.pid()), "0x7f").unwrap();
            }
            for method in ["protect", "fork", "stop"] {
                // A copy shares what is shared.
                if options == "Hs" && method == "fork" {
                    continue;
                }
                let told = dump(&dumpee, &path, &["--method", method]);
                let counters = Core::open(&path).counters(dumpee.record);
                assert!(consistent(counters), "{options} {method}: {counters:?}\n{told}");
                // A copy does not even have them.
                let words = ["memory of devices", "DONTDUMP", "DONTFORK"];
                assert!(options != "x" || words.iter().any(|words| told.contains(words)), "{told}");
                dumpee.is_left_alone(options);
            }
            let verdict = dumpee.verdict();
            assert!(verdict.starts_with("right"), "{options}: {verdict}");
        }
    }
}

/// More pages in the pool of hugetlbfs, for a while.
struct Pool {
    more: u64,
    _lock: std::fs::File,
}

impl Pool {
    const FILE: &str = "/proc/sys/vm/nr_hugepages";

    fn size() -> u64 {
        std::fs::read_to_string(Self::FILE).unwrap().trim().parse().unwrap()
    }

    fn with(pages: u64) -> Self {
        let _lock = pool_of_huge_pages();
        let before = Self::size();
        std::fs::write(Self::FILE, (before + pages).to_string()).unwrap();
        Self { more: Self::size() - before, _lock }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        std::fs::write(Self::FILE, (Self::size() - self.more).to_string()).unwrap();
    }
}

#[test]
fn filters_and_own_userfaultfds_get_the_next_way_and_a_word() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("core.zst");
    let cases = [
        // An error for userfaultfd: it is lent a descriptor.
        ("q", "16", &[][..]),
        // Killed for every needed call: nothing is injected, and the process is stopped.
        ("k", "16", &["not by write protection: ", "seccomp", "not by a copy", "was stopped"][..]),
        // Faults of its own: little memory is copied while it stands, much is left to a copy of it.
        ("u", "16", &[][..]),
        ("u", "48", &["not by write protection: 50 MB", "uses userfaultfd itself"][..]),
    ];
    for (options, size, words) in cases {
        if options == "q" && !Path::new("/dev/userfaultfd").exists() {
            continue;
        }
        let Some(dumpee) = Dumpee::start_if(directory.path(), &[size, "2", "100", options]) else { return };
        let own = mappings(dumpee.pid()).unwrap().iter().filter(|m| m.has(b"um")).count();
        let told = dump(&dumpee, &path, &[]);
        for words in words {
            assert!(told.contains(words), "{options} {size}: {told}");
        }
        assert_eq!(words.is_empty(), !told.contains("not by"), "{options} {size}: {told}");
        let counters = Core::open(&path).counters(dumpee.record);
        assert!(consistent(counters), "{options} {size}: {counters:?}\n{told}");
        let status = Status::read(dumpee.pid()).unwrap();
        assert!(status.tracer == 0 && matches!(status.state, 'R' | 'S' | 'D'), "{options}: {status:?}");
        assert_eq!(mappings(dumpee.pid()).unwrap().iter().filter(|m| m.has(b"um")).count(), own);
        let verdict = dumpee.verdict();
        assert!(verdict.starts_with("right"), "{options} {size}: {verdict}");
    }
}

#[test]
fn a_copy_never_runs_however_ncpu_ends() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("core.zst");
    let arguments = ["48", "3", "1000", "p"];
    let dumpee = Dumpee::start(directory.path(), &arguments);
    let began = Instant::now();
    dump(&dumpee, &path, &["--method", "fork"]);
    assert!(consistent(Core::open(&path).counters(dumpee.record)));
    let whole = began.elapsed();
    std::fs::remove_file(&path).unwrap();
    let mut left = 0;
    killed_at_random(&dumpee, &path, &["--method", "fork"], (60, 15), whole, |killed| {
        // Its copies are dead, and forgotten.
        let children =
            || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", dumpee.pid())).unwrap();
        let since = Instant::now();
        let copies = || {
            let children = children();
            let alive = children.split_whitespace().filter_map(|copy| copy.parse().ok());
            alive.filter(|copy| Status::read(*copy).is_ok_and(|status| status.state != 'Z')).count()
        };
        while copies() > 0 {
            assert!(since.elapsed() < Duration::from_secs(10), "a copy lives, killed {killed} times");
            std::thread::yield_now();
        }
        while children().split_whitespace().count() > left && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        left = children().split_whitespace().count();
    });
    // Without a reaper nearly all of the 60 do.
    assert_eq!(left, 0, "copies have left their numbers");
    let verdict = dumpee.verdict();
    assert!(verdict.starts_with("right"), "{verdict}");
}

/// A cgroup with so many bytes of memory for whoever is put there.
struct Little(std::path::PathBuf);

impl Little {
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("ncpu-test-{}", std::process::id());
        for (root, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let group = Path::new(root).join(&name);
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            let this = Self(group);
            if std::fs::write(this.0.join(limit), bytes.to_string()).is_ok() {
                return Some(this);
            }
        }
        None
    }
}

impl Drop for Little {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn with_64_mb_of_memory_a_larger_process_is_dumped() {
    if !root() {
        return;
    }
    let Some(group) = Little::new(64 << 20) else {
        return eprintln!("skipped: no cgroup with a limit of memory");
    };
    let directory = tempfile::tempdir().unwrap();
    // It writes all the time, so that much is saved aside.
    let dumpee = Dumpee::start(directory.path(), &["256", "2", "1000"]);
    let path = directory.path().join("core.zst");
    let o = Command::new("sh")
        .args(["-c", "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"", "sh", group.0.to_str().unwrap()])
        .args([env!("CARGO_BIN_EXE_ncpu"), "dump", &dumpee.pid().to_string(), "-o", path.to_str().unwrap()])
        .args(["--method", "protect", "--threads", "2"])
        .output()
        .unwrap();
    assert!(o.status.success(), "{:?} {}{}", o.status, err(&o), out(&o));
    let core = Core::open(&path);
    assert!(consistent(core.counters(dumpee.record)), "{}", err(&o));
    assert_eq!(core.info.trailer.as_ref().unwrap().late, 0, "{}", err(&o));
    dumpee.is_left_alone("little memory");
    let verdict = dumpee.verdict();
    assert!(verdict.starts_with("right"), "{verdict}");
}

/// A process in `vfork` sleeps uninterruptibly until its child executes a program or ends: no thread of it stops.
#[test]
fn a_process_in_vfork_is_dumped_or_told_why_not() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts(\"ready\"); fflush(stdout); \
                  if (vfork() == 0) { sleep(100); _exit(0); } return 0; }";
    let Some(program) = compile(directory.path(), source, &[]) else {
        println!("skipped: no C compiler");
        return;
    };
    let mut child = started(Command::new(program));
    while !std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap().contains("State:\tD") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let (pid, path) = (child.id().to_string(), directory.path().join("core.zst"));
    let path = path.to_str().unwrap();
    for way in [&[][..], &["--method", "stop"], &["--consistent", "no"]] {
        let o = ncpu(&[&["dump", &pid, "-o", path][..], way].concat());
        assert!(o.status.success(), "{way:?}: {}", err(&o));
        let info = out(&ncpu(&["dump", "--info", path]));
        assert!(info.contains("core       whole") && info.contains(&format!("thread     {pid}")), "{info}");
        std::fs::remove_file(path).unwrap();
    }
    for method in ["protect", "fork"] {
        let o = ncpu(&["dump", &pid, "-o", path, "--method", method]);
        one_line(&o, "sleeps uninterruptibly, as in vfork", directory.path());
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("TracerPid:\t0"), "{status}");
    for one in children.split_whitespace() {
        // SAFETY: plain numbers; it is the child of our child.
        unsafe { libc::kill(one.parse().unwrap(), libc::SIGKILL) };
    }
    assert!(child.wait().unwrap().success());
}

const MANY_MAPPINGS: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
    for (int i = 0; i < 8000; i++) {
        char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            break;
        mprotect(at + 4096, 4096, PROT_NONE);
        *at = 1;
    }
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn many_mappings_and_little_memory_are_a_dump_or_a_line() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), MANY_MAPPINGS, &[]) else {
        return eprintln!("skipped: no cc");
    };
    let child = started(Command::new(program));
    let mut lines = 0;
    for megabytes in (80..).step_by(4) {
        let within = |arguments: &[&str]| {
            Command::new("sh")
                .args(["-c", "ulimit -v $0 && exec \"$@\"", &(megabytes * 1000).to_string()])
                .arg(env!("CARGO_BIN_EXE_ncpu"))
                .args(arguments)
                .current_dir(directory.path())
                .output()
                .unwrap()
        };
        if !within(&["--version"]).status.success() {
            continue;
        }
        let o = within(&["dump", "--threads", "1", "-o", "core", &child.id().to_string()]);
        if o.status.success() {
            break;
        }
        let why = err(&o);
        assert_eq!(o.status.code(), Some(1), "{megabytes} MB: {:?} {why}", o.status);
        assert!(why.contains("memory") || why.contains("starting a thread"), "{megabytes} MB: {why}");
        lines += 1;
    }
    assert!(lines > 0, "it never had too little");
    end(child);
}
