//! Programs on a file system that never answers (FUSE, a dead NFS server): what looks at them ends all the same.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than any of the commands takes. Without a bound they wait for ever.
const FOR_EVER: Duration = Duration::from_secs(60);

/// Needs no page of its file after its line. Its arguments then lie in memory that its file system would have to bring.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    extern char __executable_start, etext, edata;
    if (mlockall(MCL_CURRENT))
        return 1;
    unsigned long start = (unsigned long)mmap(0, 4096, PROT_READ, MAP_SHARED, open(argv[0], O_RDONLY), 1 << 24);
    unsigned long brk = (unsigned long)sbrk(0);
    struct prctl_mm_map map = {
        .start_code = (unsigned long)&__executable_start, .end_code = (unsigned long)&etext,
        .start_data = (unsigned long)&etext, .end_data = (unsigned long)&edata, .start_brk = brk, .brk = brk,
        .start_stack = (unsigned long)&argc, .arg_start = start, .arg_end = start + 4096, .env_start = start,
        .env_end = start + 4096, .exe_fd = -1,
    };
    if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0)) {
        perror("PR_SET_MM_MAP");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        ;
}
"#;

/// A program on a silent file system.
struct Silent {
    directory: tempfile::TempDir,
    system: Child,
    program: Child,
}

impl Silent {
    /// `None` where nobody can mount one.
    fn start() -> Option<Silent> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: no /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/hostile/silent-fs.c");
        std::fs::write(at("program.c"), PROGRAM).unwrap();
        cc(&["-O1", "-w", "-o"], &at("silent-fs"), &source);
        cc(&["-O1", "-w", "-static", "-o"], &at("program"), &at("program.c"));
        std::fs::File::options().write(true).open(at("program")).unwrap().set_len(32 << 20).unwrap();
        std::fs::create_dir(at("mount")).unwrap();
        let system =
            Command::new(at("silent-fs")).args([at("mount"), at("program"), "-".into()]).spawn().unwrap();
        let path = at("mount/program");
        let until = Instant::now() + FOR_EVER;
        while !path.exists() {
            assert!(Instant::now() < until, "nothing was mounted");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut program = Command::new(path).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let silent = Silent { directory, system, program };
        kill_process(Pid::from_child(&silent.system), Signal::USR1).unwrap();
        Some(silent)
    }

    /// Runs ncpu, which has to end by itself and succeed.
    fn ncpu(&mut self, args: &[&str]) {
        let log = self.directory.path().join("log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_ncpu"))
            .args(args)
            .current_dir(self.directory.path())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let until = Instant::now() + FOR_EVER;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{args:?}: {}", std::fs::read_to_string(log).unwrap());
                return;
            }
            if Instant::now() >= until {
                // No signal ends it before its file system does.
                self.system.kill().unwrap();
                child.kill().unwrap();
                panic!("{args:?} waits for the file system");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        for child in [&mut self.system, &mut self.program] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let mount = self.directory.path().join("mount");
        let _ = Command::new("umount").arg("-l").arg(mount).status();
    }
}

fn cc(args: &[&str], program: &Path, source: &Path) {
    assert!(Command::new("cc").args(args).args([program, source]).status().unwrap().success(), "{source:?}");
}

#[test]
fn a_process_is_watched() {
    let Some(mut silent) = Silent::start() else { return };
    let pid = silent.program.id().to_string();
    silent.ncpu(&["watch", "-p", &pid, "1"]);
    silent.ncpu(&["lines", "-p", &pid]);
}

#[test]
fn the_machine_around_it_is_looked_at() {
    let Some(mut silent) = Silent::start() else { return };
    silent.ncpu(&["watch", "-a", "1"]);
    for by in ["process", "file"] {
        silent.ncpu(&["memory", "--by", by]);
    }
    silent.ncpu(&["numa", "-a", "1", "1"]);
    silent.ncpu(&["fix", "--undo"]);
}

#[test]
fn its_memory_is_looked_at() {
    let Some(mut silent) = Silent::start() else { return };
    let pid = silent.program.id().to_string();
    silent.ncpu(&["numa", "-p", &pid, "1", "1"]);
    silent.ncpu(&["hugepages", "-p", &pid]);
}

#[test]
fn a_process_is_dumped() {
    let Some(mut silent) = Silent::start() else { return };
    let pid = silent.program.id().to_string();
    silent.ncpu(&["dump", &pid, "-o", "core"]);
    silent.ncpu(&["dump", "--method", "stop", &pid, "-o", "core-of-stopped"]);
}
