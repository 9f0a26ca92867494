use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};

use super::*;

/// Tests that give up a reader have it for themselves.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_file_is_read_by_another_process() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x");
    let bytes: Vec<u8> = (0..300_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let source = Source::open(&path).unwrap();
    let about = std::fs::metadata(&path).unwrap();
    assert_eq!(source.identity(), (about.dev(), about.ino()));
    assert_eq!((source.size(), source.user(), source.is_remote()), (300_000, about.uid(), false));
    let mut read = vec![0; 299_990];
    source.read_exact_at(&mut read, 10).unwrap();
    assert_eq!(read, bytes[10..]);
    assert_eq!(source.read_at(&mut read, 299_000).unwrap(), 1000);
    assert!(source.read_exact_at(&mut read, 11).is_err(), "one byte is missing");
    assert_eq!(
        source.read_at(&mut read, u64::MAX - 5).map_err(|e| e.kind()),
        Err(io::ErrorKind::InvalidInput)
    );
    // Whatever becomes of its path, and of its length.
    std::fs::rename(&path, place.path().join("y")).unwrap();
    std::fs::write(&path, b"another").unwrap();
    source.read_exact_at(&mut read[..5], 0).unwrap();
    assert_eq!(read[..5], bytes[..5]);
    std::fs::File::options().write(true).open(place.path().join("y")).unwrap().set_len(3).unwrap();
    assert_eq!(source.read_at(&mut read, 0).unwrap(), 3);
    assert_ne!(pid(), Some(std::process::id()));
}

#[test]
fn where_no_reader_can_be_started_none_is_asked_for_at_once() {
    let _alone = alone();
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = || Source::open(file.path()).map(drop).map_err(|e| e.kind());
    assert_eq!(open(), Ok(()));
    // A starter that says each time that there can be none.
    let [own, other] = ends().unwrap();
    let asked = std::thread::spawn(move || {
        let (mut request, mut count) = ([0; 64], 0);
        while rustix::io::read(&other, &mut request).is_ok_and(|got| got > 0) {
            if request[..4] == START.to_ne_bytes() {
                count += 1;
                rustix::io::write(&other, &0i32.to_ne_bytes()).unwrap();
            }
        }
        count
    });
    let refusing = Starter { socket: own, pid: std::process::id() as i32, parent: std::process::id() };
    let (starter, child) = {
        let mut state = state();
        (state.starter.replace(refusing), state.child.take())
    };
    let began = Instant::now();
    let mut all = Vec::new();
    while all.len() < 1000 && began.elapsed() < NONE / 2 {
        all.push(open());
    }
    {
        let mut state = state();
        (state.none_until, state.child) = (None, child);
        // Its end must not kill this very process.
        let mut refusing = std::mem::replace(&mut state.starter, starter).unwrap();
        refusing.parent = 0;
    }
    assert!(all.iter().all(|opened| *opened == Err(io::ErrorKind::ResourceBusy)), "{all:?}");
    assert_eq!(asked.join().unwrap(), 1, "of {} requests", all.len());
    assert_eq!(open(), Ok(()));
}

#[test]
fn only_regular_files_are_opened() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    for path in [fifo.as_path(), place.path(), "/dev/zero".as_ref(), "/nonexistent".as_ref()] {
        assert!(Source::open(path).is_err(), "{path:?}");
        assert!(Source::of_proc(path, Whose::OWN).is_err(), "{path:?}");
    }
    assert!(Source::open("a\0b".as_ref()).is_err() && Source::open("x".repeat(9000).as_ref()).is_err());
    symlink("/etc/passwd", place.path().join("link")).unwrap();
    assert!(Source::below("".as_ref(), &place.path().join("link"), true, Whose::OWN).is_ok());
    assert!(Source::below("".as_ref(), &place.path().join("link"), false, Whose::OWN).is_err());
}

#[test]
fn no_link_leads_out_of_a_root() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    std::fs::create_dir_all(root.join("tmp")).unwrap();
    std::fs::write(place.path().join("secret"), "secret").unwrap();
    std::fs::write(root.join("tmp/own"), "own").unwrap();
    symlink(place.path(), root.join("out")).unwrap();
    symlink("../../secret", root.join("tmp/up")).unwrap();
    symlink("/tmp/own", root.join("absolute")).unwrap();
    let below = |path: &str| Source::below(&root, path.as_ref(), true, Whose::OWN);
    assert!(below("tmp/own").is_ok());
    assert!(below("absolute").is_ok(), "counted from the root");
    for path in ["out/secret", "tmp/up", "../secret", "/../secret"] {
        assert!(below(path).is_err(), "{path}");
    }
    assert!(below(place.path().join("secret").to_str().unwrap()).is_err());
}

#[test]
fn memory_and_mappings_of_a_process_are_read() {
    let _alone = alone();
    static MARK: u64 = 0x1234_5678_9abc_def0;
    let own = std::process::id();
    let proc = std::path::PathBuf::from(format!("/proc/{own}"));
    let whose = Whose::process(&proc, own);
    let text = proc_text(&proc.join("maps"), whose, 1 << 20).unwrap();
    let text = String::from_utf8(text).unwrap();
    let truth = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert_eq!(text.lines().next(), truth.lines().next());
    assert!(text.ends_with('\n') && text.contains("[vdso]"));
    assert_eq!(proc_text(&proc.join("maps"), whose, 100).unwrap().len(), 100);
    let memory = Source::of_proc(&proc.join("mem"), whose).unwrap();
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, &raw const MARK as u64).unwrap();
    assert_eq!(u64::from_ne_bytes(word), MARK);
    assert!(memory.read_exact_at(&mut word, 8).is_err());
    // By its mapping, which only root may follow.
    let line = text
        .lines()
        .find(|l| l.contains("r-xp") && l.ends_with(std::env::current_exe().unwrap().to_str().unwrap()));
    let range = line.and_then(|l| l.split(' ').next()).expect("its own code");
    match Source::mapped(&proc.join("map_files").join(range), whose) {
        Ok(source) => {
            let about = std::fs::metadata("/proc/self/exe").unwrap();
            assert_eq!(source.identity(), (about.dev(), about.ino()));
        }
        Err(e) => assert_eq!(e.kind(), io::ErrorKind::PermissionDenied),
    }
}

#[test]
fn a_reader_that_ends_is_replaced() {
    let _alone = alone();
    let source = Source::open("/etc/passwd".as_ref()).unwrap();
    let first = pid().unwrap();
    // SAFETY: a child of this process.
    unsafe { libc::kill(first as i32, libc::SIGKILL) };
    let mut byte = [0; 1];
    source.read_exact_at(&mut byte, 0).unwrap();
    assert_ne!(pid(), Some(first));
    // The same of the process that started it.
    let starter = state().starter.as_ref().unwrap().pid;
    // SAFETY: a child of this process.
    unsafe { libc::kill(starter, libc::SIGKILL) };
    for _ in 0..3 {
        source.read_exact_at(&mut byte, 0).unwrap();
        state().abandon();
    }
    assert_ne!(state().starter.as_ref().unwrap().pid, starter);
}

#[test]
fn readers_that_are_stuck_are_bounded() {
    let _alone = alone();
    start().unwrap();
    let mut stuck = Vec::new();
    for _ in 0..message::MAX_READERS {
        start().unwrap();
        let mut state = state();
        stuck.push(state.child.take().unwrap());
    }
    assert_eq!(start().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    // They end as soon as nobody can ask them any more.
    drop(stuck);
    let started = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        start().is_ok()
    });
    assert!(started);
}

#[test]
fn a_file_of_this_process_is_read() {
    let _alone = alone();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"some text").unwrap();
    let source = Source::opened(file, Whose(77)).unwrap();
    let mut bytes = [0; 4];
    assert_eq!((source.size(), source.whose(), source.is_remote()), (9, Whose(77), false));
    assert_eq!((source.read_at(&mut bytes, 5).unwrap(), &bytes), (4, b"text"));
}

#[test]
fn an_answer_that_does_not_come_costs_its_time_and_no_more() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x");
    std::fs::File::create(&path).unwrap().write_all(b"x").unwrap();
    let source = Source::below("".as_ref(), &path, true, Whose(77)).unwrap();
    if rustix::process::geteuid().is_root() {
        assert_eq!(source.whose(), Whose::OWN, "root's files count for nobody");
    }
    let before = counts();
    let stopped = pid().unwrap();
    // As one that waits for a file system that does not answer.
    // SAFETY: a child of this process.
    unsafe { libc::kill(stopped as i32, libc::SIGSTOP) };
    let began = Instant::now();
    let mut byte = [0; 1];
    assert_eq!(source.read_at(&mut byte, 0).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(counts().late, before.late + 1);
    // It is not asked for again, and another reader has taken the place.
    let began = Instant::now();
    assert_eq!(source.read_at(&mut byte, 0).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(began.elapsed() < Duration::from_millis(100));
    assert!(Source::open(&path).unwrap().read_at(&mut byte, 0).is_ok());
    assert_ne!(pid(), Some(stopped));
    let path = format!("/proc/{stopped}/exe");
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !std::path::Path::new(&path).exists()
    });
    assert!(gone, "it was killed");
}

#[test]
fn the_reader_has_few_capabilities_and_holds_no_output_open() {
    let _alone = alone();
    start().unwrap();
    let dir = format!("/proc/{}", pid().unwrap());
    // Its first answer comes after it has given up what it does not need.
    Source::open("/etc/passwd".as_ref()).unwrap();
    let status = std::fs::read_to_string(format!("{dir}/status")).unwrap();
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned();
    let kept = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
    assert_eq!(kept & !(1 << 2 | 1 << 19 | 1 << 40), 0, "{status}");
    assert_eq!((field("NoNewPrivs:").as_str(), field("Name:").as_str()), ("1", "ncpu-reader"));
    if unfiltered().is_none() {
        assert_eq!(field("Seccomp:"), "2", "{status}");
    }
    if let Ok(output) = std::fs::read_link(format!("{dir}/fd/1")) {
        assert_eq!(output, std::path::Path::new("/dev/null"));
    }
}

/// As one from before the program gave up root.
#[test]
fn a_starter_of_another_user_is_given_up_without_waiting() {
    // SAFETY: no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: not root");
    }
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let starter = Starter::start().unwrap();
        let pid = starter.pid;
        // SAFETY: no pointers. The system call changes the user of this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        // SAFETY: a plain number.
        assert_eq!(unsafe { libc::kill(pid, 0) }, -1, "it may be killed");
        drop(starter);
        done.send(pid).unwrap();
    });
    let pid = ended.recv_timeout(Duration::from_secs(5)).expect("it waits for what it cannot kill");
    let began = Instant::now();
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok()
        && !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    {
        assert!(began.elapsed() < Duration::from_secs(5), "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_waits_for_a_cpu_is_not_charged() {
    let work = Work::begin();
    std::thread::sleep(Duration::from_millis(50));
    assert!(work.elapsed() < Duration::from_millis(40), "{:?}", work.elapsed());
    let mut n = 0u64;
    while work.elapsed() < Duration::from_millis(41) {
        n = std::hint::black_box(n + 1);
    }
    assert!(n > 0);
}

/// A process of another mount namespace whose program lies in an overlay, in a user namespace of its own or not.
fn in_an_overlay(place: &Path, own_users: bool) -> Option<std::process::Child> {
    let [below, empty, over] = ["below", "empty", "over"].map(|name| place.join(name));
    for dir in [&below, &empty, &over] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::copy("/bin/sleep", below.join("program")).unwrap();
    let (below, empty, over) = (below.display(), empty.display(), over.display());
    let script = format!("mount -t overlay o -o lowerdir={below}:{empty} {over} && exec {over}/program 600");
    let mut command = std::process::Command::new("unshare");
    command
        .arg(if own_users { "-Urm" } else { "-m" })
        .args(["sh", "-c", &script])
        .stdout(std::process::Stdio::null());
    let mut child = command.spawn().ok()?;
    let exe = format!("/proc/{}/exe", child.id());
    loop {
        if std::fs::read_link(&exe).is_ok_and(|path| path.ends_with("over/program")) {
            return Some(child);
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_overlay_in_a_user_s_own_namespace_may_not_answer() {
    for own_users in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let Some(mut child) = in_an_overlay(place.path(), own_users) else {
            eprintln!("skipped: no overlay can be mounted here");
            continue;
        };
        let process = Path::new("/proc").join(child.id().to_string());
        let found = Source::mapped(&process.join("exe"), Whose(77));
        let other = Source::open(Path::new("/bin/sleep"));
        let answers =
            [found, other].map(|source| source.map(|source| source.may_not_answer(&process)).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(answers, [own_users, false]);
    }
}
