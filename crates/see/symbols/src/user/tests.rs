use std::path::Path;

use super::*;

#[inline(never)]
fn a_function_of_the_test() -> u64 {
    std::hint::black_box(a_function_of_the_test as fn() -> u64 as usize as u64)
}

#[test]
fn names_its_own_functions_and_the_c_library() {
    let mut maps = ProcMaps::new(Path::new("/"));
    let mut user = User::new();
    let here = a_function_of_the_test();
    let libc = libc::getpid as unsafe extern "C" fn() -> libc::pid_t as usize as u64;
    let names = user.symbolize(&mut maps, std::process::id(), &[here, libc + 1, 8, here]);
    assert!(names[0].ends_with("tests::a_function_of_the_test"), "{}", names[0]);
    assert!(names[1].contains("getpid"), "{}", names[1]);
    assert_eq!(&*names[2], "[unknown]");
    assert_eq!(names[3], names[0]);
}

#[test]
fn what_nobody_asks_for_is_forgotten_and_read_again() {
    let (mut maps, mut user) = (ProcMaps::new(Path::new("/")), User::new());
    let here = [a_function_of_the_test()];
    let mut name = |user: &mut User| user.symbolize(&mut maps, std::process::id(), &here)[0].clone();
    let first = name(&mut user);
    // Used since.
    user.forget_unused();
    assert!(user.bytes > 0 && !user.names.is_empty() && user.starts.len() == 1);
    user.forget_unused();
    assert_eq!((user.kept, user.bytes, user.names.len(), user.starts.len()), (0, 0, 0, 0));
    assert_eq!(name(&mut user), first);
    // Names in use stay without the symbols that they came from.
    for _ in 0..3 {
        user.forget_unused();
        assert_eq!(name(&mut user), first);
    }
    assert_eq!((user.kept, user.names.len()), (0, 1));
}

#[test]
fn a_process_that_is_gone_keeps_its_names() {
    let mut maps = ProcMaps::new(Path::new("/"));
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let libc = libc_mapping(child.id());
    assert!(maps.note_process(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    let Some((start, end)) = libc else { return eprintln!("skipped: sleep uses no libc.so.6") };
    let addrs: Vec<u64> = (start..end).step_by(4096).collect();
    let names = User::new().symbolize(&mut maps, child.id(), &addrs);
    // Without debug symbols only exported functions have names.
    let named = names.iter().filter(|n| !n.starts_with('[')).count();
    assert!(named > addrs.len() / 10, "{named} of {}: {names:?}", addrs.len());
}

/// The executable mapping of the C library, once the program is past its start.
fn libc_mapping(pid: u32) -> Option<(u64, u64)> {
    for _ in 0..200 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let line = maps.lines().find(|l| l.contains(" r-xp ") && l.contains("libc.so.6"));
        let range = line.and_then(|l| l.split_once(' ')?.0.split_once('-'));
        if let Some((a, b)) = range {
            return Some((u64::from_str_radix(a, 16).ok()?, u64::from_str_radix(b, 16).ok()?));
        }
    }
    None
}

#[test]
fn deleted_programs_are_still_read_and_lost_ones_told() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("gone");
    ncpu_trials::copy_program("/bin/sleep", &copy);
    let mut child = std::process::Command::new(&copy).arg("60").spawn().unwrap();
    let _ = libc_mapping(child.id());
    std::fs::remove_file(&copy).unwrap();
    let mut maps = ProcMaps::new(Path::new("/"));
    assert!(maps.note_process(child.id()));
    let text = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let line = text.lines().find(|l| l.contains("gone") && l.contains("r-xp")).unwrap();
    let start = u64::from_str_radix(line.split_once('-').unwrap().0, 16).unwrap();
    let names = User::new().symbolize(&mut maps, child.id(), &[start + 64]);
    // sleep is stripped: only its file is known.
    assert_eq!(&*names[0], "[unknown gone]");
}

#[test]
fn lines_come_from_no_file_that_the_program_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let run = |tool: &str, args: &[&str]| {
        let done = std::process::Command::new(tool).args(args).current_dir(dir.path()).output().unwrap();
        assert!(done.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    for name in ["own", "planted"] {
        let source = format!("{name}.c");
        std::fs::write(at(&source), "int main(int n) { return n + 1; }\n").unwrap();
        run("gcc", &["-g", "-O1", "-no-pie", "-o", name, &source]);
    }
    let line = || {
        let mut maps = ProcMaps::new("/nonexistent".as_ref());
        let text = format!("400000-500000 r-xp 00000000 fe:00 11 {}\n", at("own"));
        assert!(maps.note_maps(1, text.as_bytes()));
        let mut user = User::new();
        (0x40_1000..0x40_2000).find_map(|place| user.source_line(&maps, 1, place, true))
    };
    assert_eq!(line().map(|line| line.to_string()).as_deref(), Some("own.c:1"));
    let mut link = at("planted").into_bytes();
    link.resize(link.len() / 4 * 4 + 4, 0);
    link.extend(crate::debug_file::crc32(0, &std::fs::read(at("planted")).unwrap()).to_le_bytes());
    std::fs::write(at("link"), link).unwrap();
    run("objcopy", &["--add-section", ".gnu_debuglink=link", "own"]);
    assert_eq!(line().map(|line| line.to_string()).as_deref(), Some("own.c:1"));
}

#[test]
fn perf_maps_name_generated_code() {
    let dir = tempfile::tempdir().unwrap();
    let proc = dir.path().join("proc/5");
    std::fs::create_dir_all(proc.join("root/tmp")).unwrap();
    std::fs::write(proc.join("maps"), "7f00-8f00 rwxp 0 00:00 0 \n").unwrap();
    std::fs::write(proc.join("status"), "Name:\tjava\nNStgid:\t5\t1\n").unwrap();
    std::fs::write(proc.join("root/tmp/perf-1.map"), "7f00 20 Interpreter\n").unwrap();
    let names = User::new().symbolize(&mut ProcMaps::new(dir.path()), 5, &[0x7f04, 0x7f44]);
    assert_eq!(names.iter().map(|n| &**n).collect::<Vec<_>>(), ["Interpreter", "[anon]"]);
}
