//! What the tests of commands share; each uses a part of it.
#![allow(dead_code)]
// Each of them is a crate of its own, and none needs all.

use std::path::Path;
use std::process::{Child, Command, Output};

/// Runs `ncpu`, 100 columns wide.
pub fn ncpu(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ncpu")).args(args).env("COLUMNS", "100").output().unwrap()
}

pub fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// Text without the breaks of its lines.
pub fn unbroken(said: &str) -> String {
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the capacity is divided, be it of an observation too short for more.
pub fn reports(said: &str) -> bool {
    let said = unbroken(said);
    said.contains("Capacity:") || said.contains("CPU-s of capacity") || said.contains("CPU-milliseconds")
}

pub fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// Whether the kernel can be observed; says so where it cannot.
pub fn root() -> bool {
    let yes = rustix::process::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !yes {
        eprintln!("skipped: observing needs root and BTF");
    }
    yes
}

/// The machine's pool of huge pages, until this is dropped: programs of tests run side by side.
pub fn pool_of_huge_pages() -> std::fs::File {
    let lock = std::fs::File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("pool-of-huge-pages.lock"))
        .unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    lock
}

/// A user who may not observe gets one line that says so.
pub fn needs_root(commands: &[&[&str]]) {
    if !root() {
        return;
    }
    let nobody = Nobody::new();
    for args in commands {
        let o = nobody.ncpu(args).output().unwrap();
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert_eq!(err(&o).lines().count(), 1, "{args:?}: one clear line: {}", err(&o));
        assert!(err(&o).contains("needs root"), "{args:?}: {}", err(&o));
    }
}

/// A user without rights, with `ncpu` in a directory of his own.
pub struct Nobody(tempfile::TempDir);

impl Nobody {
    /// Where this is root he is nobody, else who runs the tests.
    pub fn new() -> Nobody {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        // The binary must be readable by nobody. Copied by another process: what this one has open for writing, a child
        // that another thread forks at that moment has open too, and such a file cannot be executed.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_ncpu")).arg(dir.path().join("ncpu")).status();
        assert!(copied.unwrap().success());
        Nobody(dir)
    }

    /// His directory, which all may write.
    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    /// `ncpu` as he runs it there, 100 columns wide.
    pub fn ncpu(&self, args: &[&str]) -> Command {
        self.program(&self.dir().join("ncpu"), args)
    }

    /// Another program as he runs it there.
    pub fn program(&self, program: &Path, args: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;

        let mut command = Command::new(program);
        command.args(args).env("COLUMNS", "100").current_dir(self.dir());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command
    }
}

/// A process that ends with the test, also with one that fails.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program with a function of its own, `counts_and_counts`, which is on CPU for as many seconds as its argument says.
pub fn busy(dir: &Path) -> std::path::PathBuf {
    let (source, busy) = (dir.join("busy.c"), dir.join("busy"));
    std::fs::write(
        &source,
        r"
#include <stdlib.h>
#include <time.h>
volatile unsigned long n;
__attribute__((noinline)) void counts_and_counts(void)
{
	for (int i = 0; i < 10000; i++)
		n++;
}
int main(int argc, char **argv)
{
	(void)argc;
	while (clock() < atof(argv[1]) * CLOCKS_PER_SEC)
		counts_and_counts();
}
",
    )
    .unwrap();
    let built =
        Command::new("cc").args(["-g", "-fno-omit-frame-pointer", "-o"]).arg(&busy).arg(&source).status();
    assert!(built.unwrap().success());
    busy
}
