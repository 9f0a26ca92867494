//! Findings in files: synthetic ones, and those of compilers.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{FALSESHARE, compile, elf_of, tool};
use ncpu_lines::{Error, Finding, Kind, Options, Place, Report, Sharing, Storage};

fn look(path: &Path) -> Report {
    ncpu_lines::file(path, &Options::default()).unwrap()
}

fn names(finding: &Finding) -> Vec<&str> {
    finding.words.iter().map(|w| w.name.as_str()).collect()
}

/// The finding of variables with this word.
fn with<'a>(report: &'a Report, name: &str) -> Option<&'a Finding> {
    let mut of =
        report.findings.iter().filter(|f| matches!(f.place, Place::Variables(_)) && f.array.is_none());
    of.find(|f| names(f).contains(&name))
}

fn of_struct<'a>(report: &'a Report, name: &str) -> Option<&'a Finding> {
    report.findings.iter().find(|f| f.place == Place::Struct && f.name == name)
}

/// "Look at nm kernel | sort -nk 1 [...] All these locks false-share a cacheline. In particular
/// fpagqlock is obstructing uvm_pageqlock."
const NETBSD: [(&str, u64, u64); 5] = [
    ("uvm_swap_data_lock", 0xffffffff810b8fc0, 8),
    ("uvm_kentry_lock", 0xffffffff810b8fc8, 8),
    ("uvm_fpageqlock", 0xffffffff810b8fd0, 8),
    ("uvm_pageqlock", 0xffffffff810b8fd8, 8),
    ("uvm_kernel_object", 0xffffffff810b8fe0, 8),
];

#[test]
fn the_locks_of_netbsds_uvm_share_a_line() {
    let mut all = NETBSD.to_vec();
    all.extend([("uvmexp", 0xffffffff810b8b80, 0x400), ("uvm_first_lock", 0xffffffff810b9000, 8)]);
    for sizes in [true, false] {
        // The list gives no sizes, so each variable extends to the next.
        let given: Vec<_> = all.iter().map(|&(n, a, s)| (n, a, if sizes { s } else { 0 })).collect();
        let elf = elf_of(0xffffffff810b8000, 0x2000, &given);
        let report = ncpu_lines::bytes(&elf, &Options::default()).unwrap();
        let first = &report.findings[0];
        assert_eq!((first.sharing, first.line), (Sharing::Locks, 0xffffffff810b8fc0));
        assert_eq!(names(first), NETBSD.map(|v| v.0));
        let kinds: Vec<_> = first.words.iter().map(|w| w.kind).collect();
        assert_eq!(kinds, [Kind::Lock, Kind::Lock, Kind::Lock, Kind::Lock, Kind::Data]);
        // Four locks of 8 bytes, each padded to 64.
        assert_eq!(first.cost, 4 * 56);
        assert!(first.fix.contains("aligned(64)"), "{}", first.fix);
        assert!(report.notes.iter().any(|n| n.contains("no debug information")), "{:?}", report.notes);
        assert!(with(&report, "uvm_first_lock").is_none_or(|f| f.sharing == Sharing::Data));
    }
    // If CPUs fetch lines in pairs, the counters before it share the pair, and the first lock after it does
    // not.
    let elf = elf_of(0xffffffff810b8000, 0x2000, &all);
    let pairs = Options { line: 128, ..Options::default() };
    let report = ncpu_lines::bytes(&elf, &pairs).unwrap();
    assert_eq!(report.findings[0].line, 0xffffffff810b8f80);
    assert_eq!(report.findings[0].cost, 4 * 120);
}

#[test]
fn planted_false_sharing_is_found_and_the_padding_parts_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = std::fs::read_to_string(FALSESHARE).unwrap();
    for flags in
        [&["-g", "-O2", "-pthread"][..], &["-gdwarf-4", "-pthread"], &["-g", "-gz", "-O1", "-pthread"]]
    {
        let Some(found) = compile(dir.path(), "gcc", "as-found.c", &source, flags) else { return };
        let report = look(&found);
        let queue = with(&report, "put_lock").unwrap_or_else(|| panic!("{flags:?}: {report:#?}"));
        assert_eq!(queue.sharing, Sharing::Locks);
        for name in ["put_lock", "put_count", "get_lock", "get_count"] {
            let word = queue.words.iter().find(|w| w.name == name).unwrap();
            let line = 1 + source.lines().position(|l| l.contains(&format!(" {name} OWN_LINE"))).unwrap();
            assert_eq!(word.decl.as_ref().map(|d| d.line), Some(line as u64), "{name}");
            assert!(word.decl.as_ref().unwrap().file.ends_with("as-found.c"));
            assert_eq!(word.kind, if name.contains("lock") { Kind::Lock } else { Kind::Atomic });
        }
        let array = report.findings.iter().find(|f| f.name == "workers").expect("the array");
        assert_eq!((array.sharing, array.array), (Sharing::HotArray, Some((16, 64))));
        assert_eq!(array.cost, 64 * 48);

        let padded = [flags, &["-DPADDED"]].concat();
        let report = look(&compile(dir.path(), "gcc", "padded.c", &source, &padded).unwrap());
        let left: Vec<_> = report.findings.iter().filter(|f| f.is_likely()).collect();
        assert!(left.is_empty(), "{left:#?}");
    }
}

#[test]
fn a_struct_without_a_name_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let source = "#include <stdatomic.h>\n#include <pthread.h>\n\
        _Alignas(64) static struct { atomic_long x, y; } anon;\n\
        _Alignas(64) static volatile struct { atomic_long x, y; char fill[48]; } many[4];\n\
        struct outer { long data[8]; struct { pthread_mutex_t put, get; } queue; struct { atomic_long one; } alone; };\n\
        struct outer it; pthread_mutex_t lock;\n\
        int main(void) { pthread_mutex_lock(&it.queue.put); pthread_mutex_lock(&lock); return anon.x++ + anon.y++ + many[1].x; }\n";
    for flags in [&["-g"][..], &["-gdwarf-4"]] {
        let Some(program) = compile(dir.path(), "gcc", "anon.c", source, flags) else { return };
        let report = look(&program);
        let anon = of_struct(&report, "anon").unwrap_or_else(|| panic!("{flags:?}: {report:#?}"));
        assert_eq!((anon.sharing, names(anon)), (Sharing::Locks, vec!["x", "y"]));
        assert!(anon.is_likely() && anon.decl.as_ref().unwrap().line == 3, "{anon:?}");
        assert_eq!(of_struct(&report, "many[]").map(|f| f.sharing), Some(Sharing::Locks));
        assert_eq!(of_struct(&report, "outer.queue").map(names), Some(vec!["put", "get"]));
        assert!(of_struct(&report, "outer.alone").is_none());
        // Programs cannot pad glibc's own variables.
        let glibc: Vec<_> = report.findings.iter().filter(|f| f.name.starts_with("__pthread")).collect();
        assert!(glibc.iter().all(|f| !f.is_likely()), "{glibc:#?}");
        assert!(of_struct(&report, "__pthread_mutex_s").is_none());
    }
}

#[test]
fn go_is_told_how_go_pads() {
    let dir = tempfile::tempdir().unwrap();
    let source = "package main\nimport (\"sync\"; \"sync/atomic\"; \"os\")\n\
        type Stats struct { hits atomic.Int64; misses atomic.Int64; name string }\n\
        type Queue struct { put sync.Mutex; get sync.Mutex }\n\
        var stats Stats\nvar queue Queue\n\
        func main() { queue.put.Lock(); queue.get.Lock(); stats.hits.Add(int64(len(os.Args))); println(stats.misses.Load(), stats.name) }\n";
    let file = dir.path().join("main.go");
    std::fs::write(&file, source).unwrap();
    let program = dir.path().join("main");
    let build = Command::new("go")
        .args(["build", "-gcflags=all=-N -l", "-o", program.to_str().unwrap(), file.to_str().unwrap()])
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off")
        .env("GOCACHE", dir.path().join("cache"))
        .output();
    match build {
        Ok(o) => assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr)),
        Err(e) => return eprintln!("skipped: go: {e}"),
    }
    let report = look(&program);
    for (name, sharing) in [("main.Stats", Sharing::Locks), ("main.Queue", Sharing::Locks)] {
        let found = of_struct(&report, name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(found.sharing, sharing, "{name}");
        assert!(found.fix.contains("cpu.CacheLinePad"), "{}", found.fix);
    }
    let c = report.findings.iter().find(|f| f.fix.contains("__attribute__"));
    assert!(c.is_none(), "{c:#?}");
}

#[test]
fn an_object_file_is_looked_at_before_it_is_linked() {
    let dir = tempfile::tempdir().unwrap();
    let source = "struct pair { _Atomic long a, b; };\n#include <pthread.h>\n\
                  static pthread_mutex_t one; static _Atomic int two;\n\
                  struct pair *f(struct pair *p) { pthread_mutex_lock(&one); p->a += two++; return p; }\n";
    let Some(object) = compile(dir.path(), "gcc", "o.c", source, &["-c", "-g"]) else { return };
    let report = look(&object);
    let shared = with(&report, "one").expect("relocated");
    assert_eq!(shared.sharing, Sharing::Locks);
    assert!(names(shared).contains(&"two"));
    assert_eq!(shared.words[0].decl.as_ref().unwrap().file.rsplit('/').next(), Some("o.c"));
    assert!(report.notes.iter().any(|n| n.contains("not linked")), "{:?}", report.notes);
    let pair = of_struct(&report, "pair").expect("the struct");
    assert_eq!((pair.sharing, pair.cost), (Sharing::Locks, 128 - 16));
    let common = compile(dir.path(), "gcc", "c.c", "int lock_a, lock_b;", &["-c", "-g", "-fcommon"]).unwrap();
    let report = look(&common);
    assert!(report.notes.iter().any(|n| n.contains("2 COMMON")), "{:?}", report.notes);
}

#[test]
fn storage_of_each_thread_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let source = "__thread _Atomic long mine_a, mine_b = 1; _Atomic long ours_a = 1, ours_b = 2;\n\
                  const _Atomic long never = 1; int main(void) { return mine_a + mine_b + ours_a + ours_b; }\n";
    let Some(program) = compile(dir.path(), "gcc", "t.c", source, &["-g"]) else { return };
    let report = look(&program);
    let ours = report.findings.iter().position(|f| names(f).contains(&"ours_a")).expect("shared");
    let mine = report.findings.iter().position(|f| names(f).contains(&"mine_a")).expect("thread-local");
    assert_eq!(report.findings[ours].place, Place::Variables(Storage::Shared));
    assert_eq!(report.findings[mine].place, Place::Variables(Storage::ThreadLocal));
    assert!(names(&report.findings[mine]).contains(&"mine_b"), "initialised and not");
    assert!(ours < mine, "a copy for each thread comes last");
    assert!(with(&report, "never").is_none(), "a constant is never written");
}

#[test]
fn cpp_names_and_types_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let source = "#include <atomic>\n#include <mutex>\n\
        namespace shop { std::mutex door; std::atomic<long> hits; struct counter { static std::atomic<int> all; };\n\
        std::atomic<int> counter::all; struct alignas(64) apart { std::atomic<long> n; }; apart each[4];\n\
        struct queue { std::mutex put; std::mutex get; const char *name; }; queue q; }\n\
        int main() { shop::door.lock(); shop::each[1].n++; return shop::hits++ + shop::counter::all; }\n";
    let Some(program) = compile(dir.path(), "g++", "c.cc", source, &["-g"]) else { return };
    let report = look(&program);
    let door = with(&report, "shop::door").unwrap_or_else(|| panic!("{report:#?}"));
    assert_eq!(door.sharing, Sharing::Locks);
    assert!(names(door).contains(&"shop::hits"), "{:?}", names(door));
    assert!(door.fix.contains("alignas(64)"), "{}", door.fix);
    assert!(with(&report, "shop::counter::all").is_some(), "a static member");
    assert!(!report.findings.iter().any(|f| f.name == "shop::each"), "each element has its line");
    let queue = of_struct(&report, "shop::queue").expect("two locks of 40 bytes");
    assert_eq!(queue.sharing, Sharing::Locks);
}

#[test]
fn rust_names_and_types_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let source = "use std::sync::{Mutex, atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed}};\n\
        static DOOR: Mutex<u64> = Mutex::new(0);\nstatic HITS: AtomicU64 = AtomicU64::new(0);\n\
        pub struct Stats { pub hits: AtomicUsize, pub misses: AtomicUsize, pub name: u64 }\n\
        static STATS: [Stats; 3] = [const { Stats { hits: AtomicUsize::new(0), misses: AtomicUsize::new(0), name: 0 } }; 3];\n\
        fn main() { *DOOR.lock().unwrap() += HITS.fetch_add(1, Relaxed); \n\
        STATS[std::env::args().count() % 3].hits.fetch_add(1, Relaxed); \n\
        println!(\"{} {}\", STATS[1].misses.load(Relaxed), STATS[2].name); }\n";
    let Some(program) =
        compile(dir.path(), "rustc", "program.rs", source, &["-g", "--crate-name", "program"])
    else {
        return;
    };
    let report = look(&program);
    let door = with(&report, "program::DOOR.inner").or_else(|| with(&report, "program::HITS"));
    let door = door.unwrap_or_else(|| panic!("{:#?}", report.findings.iter().take(9).collect::<Vec<_>>()));
    let known = door.words.iter().find(|w| w.name.starts_with("program::")).unwrap();
    assert!(known.kind.is_hot(), "{known:?}");
    assert!(known.decl.as_ref().unwrap().file.ends_with("program.rs"));
    let array =
        report.findings.iter().find(|f| f.name == "program::STATS").expect("an array of 24-byte stats");
    assert_eq!((array.sharing, array.array), (Sharing::HotArray, Some((24, 3))));
    assert!(array.fix.contains("repr(align(64))"), "{}", array.fix);
    let stats = of_struct(&report, "program::Stats").expect("two atomics");
    assert!(stats.fix.contains("CachePadded"), "{}", stats.fix);
}

#[test]
fn debug_information_that_was_split_off_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let source = std::fs::read_to_string(FALSESHARE).unwrap();
    for id in ["sha1", "none"] {
        let flags = ["-g", "-pthread", &format!("-Wl,--build-id={id}")];
        let Some(program) = compile(dir.path(), "gcc", "split.c", &source, &flags) else { return };
        let program = program.to_str().unwrap();
        let debug = dir.path().join("split.debug");
        let debug = debug.to_str().unwrap();
        let Some(()) = tool("objcopy", &["--only-keep-debug", program, debug]) else { return };
        tool("strip", &[program]);
        let typed = |options: &Options| {
            let report = ncpu_lines::file(Path::new(program), options).unwrap();
            with(&report, "put_lock").is_some_and(|f| f.decl.is_some())
        };
        let mut options = Options { debug_dir: dir.path().join("debug"), ..Options::default() };
        assert!(!typed(&options), "nothing gives its location");
        let report = ncpu_lines::file(Path::new(program), &options).unwrap();
        assert!(report.notes.iter().any(|n| n.contains("stripped")), "{:?}", report.notes);

        if id == "sha1" {
            // By build ID, in the debug directory.
            let notes = Command::new("readelf").args(["-n", program]).output().unwrap();
            let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
            let id = notes.split("Build ID: ").nth(1).unwrap().split_whitespace().next().unwrap();
            let place = dir.path().join("debug/.build-id").join(&id[..2]);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::copy(debug, place.join(format!("{}.debug", &id[2..]))).unwrap();
            assert!(typed(&options));
            options.debug_dir = dir.path().join("elsewhere");
            assert!(!typed(&options));
        }
        // By name and checksum, beside the program.
        tool("objcopy", &[&format!("--add-gnu-debuglink={debug}"), program]);
        assert!(typed(&options), "{id}");
        if id == "none" {
            let mut other = std::fs::read(debug).unwrap();
            other.push(0);
            std::fs::write(debug, other).unwrap();
            assert!(!typed(&options), "another file of that name is not used");
        }
    }
}

#[test]
fn a_processes_addresses_are_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let source = "#include <stdio.h>\n#include <unistd.h>\n\
        _Atomic long here = 1; _Atomic long there = 2;\n\
        int main(void) { printf(\"%p %p\\n\", (void *)&here, (void *)&there); fflush(stdout); pause(); }\n";
    for flags in [&["-g", "-pie", "-fPIE"][..], &["-g", "-no-pie", "-fno-pie"]] {
        let Some(program) = compile(dir.path(), "gcc", "p.c", source, flags) else { return };
        let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let reports = ncpu_lines::process(Path::new("/"), child.id(), &Options::default());
        let maps = std::fs::read(format!("/proc/{}/maps", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let reports = reports.unwrap();
        let after = ncpu_lines::mapped(Path::new("/"), child.id(), &maps, &Options::default());
        let findings =
            |all: &[ncpu_lines::Report]| all.iter().map(|r| r.findings.clone()).collect::<Vec<_>>();
        assert_eq!(findings(&after), findings(&reports), "the same once it has ended");
        let told: Vec<u64> =
            line.split_whitespace().map(|a| u64::from_str_radix(&a[2..], 16).unwrap()).collect();
        let own = reports.iter().find(|r| r.object.ends_with("p.c.out")).unwrap();
        let found = with(own, "here").expect("two atomics in a line");
        for (name, address) in ["here", "there"].iter().zip(told) {
            let word = found.words.iter().find(|w| w.name == *name).unwrap();
            assert_eq!(word.address, address, "{flags:?}");
        }
        assert!(reports.iter().any(|r| r.object.contains("libc")), "its libraries, too");
    }
    let gone = ncpu_lines::process(Path::new("/"), u32::MAX, &Options::default());
    assert!(matches!(gone, Err(Error::Process { .. })));
}

#[test]
fn what_is_no_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |bytes: &[u8]| {
        let path: PathBuf = dir.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        ncpu_lines::file(&path, &Options::default()).unwrap_err()
    };
    assert!(matches!(refused(b""), Error::NotElf(_)));
    assert!(matches!(refused(b"#!/bin/sh\n"), Error::NotElf(_)));
    assert!(matches!(refused(b"\x7fELF"), Error::Damaged { .. }));
    let whole = elf_of(0x1000, 64, &[("a_lock", 0x1000, 8)]);
    assert!(matches!(refused(&whole[..60]), Error::Damaged { .. }));
    assert!(refused(&whole[..60]).to_string().contains(dir.path().to_str().unwrap()));
    for (path, error) in
        [(dir.path(), "regular"), (Path::new("/dev/zero"), "regular"), (&dir.path().join("none"), "reading")]
    {
        let e = ncpu_lines::file(path, &Options::default()).unwrap_err();
        assert!(e.to_string().contains(error), "{e}");
    }
}

#[test]
fn this_kernels_structs() {
    let report = match ncpu_lines::kernel(Path::new("/"), &Options::default()) {
        Ok(report) => report,
        Err(e) => return eprintln!("skipped: {e}"),
    };
    assert!(report.structs > 1000, "{}", report.structs);
    let mm: Vec<_> = report.findings.iter().filter(|f| f.name == "mm_struct").collect();
    let lock = mm.iter().find(|f| names(f).contains(&"mmap_lock")).expect("it shares a line with others");
    let word = lock.words.iter().find(|w| w.name == "mmap_lock").unwrap();
    assert_eq!((word.kind, word.ty.as_deref()), (Kind::Lock, Some("rw_semaphore")));
    assert!(lock.fix.contains("cacheline_aligned"), "{}", lock.fix);
    assert!(
        report.findings.iter().any(|f| f.place == Place::Variables(Storage::PerCpu)),
        "per-CPU variables"
    );
}
