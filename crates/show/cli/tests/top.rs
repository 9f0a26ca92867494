//! `ncpu top` in a real terminal, tmux's, at two sizes.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

mod common;
use common::{err, ncpu, root};

/// A terminal with a program in it, of a server of its own.
struct Terminal {
    socket: String,
    _dir: tempfile::TempDir,
}

impl Terminal {
    /// `None` where there is no tmux.
    fn new(size: (u32, u32), command: &str) -> Option<Terminal> {
        if Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: no tmux");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("tmux").to_str().unwrap().to_string();
        let terminal = Terminal { socket, _dir: dir };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        // What the program says last stays to be looked at.
        let command = format!("{command}; echo left with $?; sleep 1000");
        let o = terminal.tmux(&["new-session", "-d", "-x", &width, "-y", &height, &command]);
        assert!(o.status.success(), "{}", err(&o));
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-f", "/dev/null", "-u", "-S", &self.socket]).args(args);
        command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").output().unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        let o = self.tmux(&[&["send-keys"], keys].concat());
        assert!(o.status.success(), "{}", err(&o));
    }

    fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// The screen once it shows all of this.
    fn wait(&self, for_all: &[&str]) -> String {
        let until = Instant::now() + Duration::from_secs(90);
        loop {
            let screen = self.screen();
            if for_all.iter().all(|text| screen.contains(text)) {
                return screen;
            }
            assert!(Instant::now() < until, "not all of {for_all:?} came:\n{screen}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// A busy process of a name that would clear a terminal that took it as it is.
struct Busy(std::process::Child, #[allow(dead_code)] tempfile::TempDir);

impl Busy {
    fn new() -> Busy {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("ev\x1b[2Jil");
        // Copied by another process: see `Nobody`.
        assert!(Command::new("cp").arg("/usr/bin/yes").arg(&program).status().unwrap().success());
        Busy(Command::new(&program).stdout(Stdio::null()).spawn().unwrap(), dir)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn views(size: (u32, u32)) {
    // Two observers at once walk each other's stacks, and hardly come to an end without optimization.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    if !root() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let busy = Busy::new();
    let Some(terminal) = Terminal::new(size, &format!("{} top 1", env!("CARGO_BIN_EXE_ncpu"))) else {
        return;
    };
    terminal.wait(&[" 1 tenants ", " 2 onion ", "the machine", "lost tenant", "q quit"]);
    terminal.keys(&["2"]);
    terminal.wait(&["user code", "share"]);
    terminal.keys(&["3"]);
    let threads = terminal.wait(&["PID", "CPU%", r"ev\x1b[2Jil"]);
    assert!(threads.lines().all(|line| line.chars().count() <= size.0 as usize), "{threads}");
    // Only it is left, and its stacks are behind it.
    let tid = busy.0.id().to_string();
    terminal.keys(&["/", &tid, "Enter"]);
    terminal.wait(&["1 of ", &tid]);
    terminal.keys(&["Enter"]);
    let stacks = terminal.wait(&[&format!("thread {tid}"), "on CPU: ", "_[k]"]);
    assert!(stacks.contains(r"ev\x1b[2Jil") && stacks.contains(" %  "), "{stacks}");
    terminal.keys(&["p"]);
    terminal.wait(&["PAUSED"]);
    terminal.keys(&["Escape", "p"]);
    terminal.keys(&["4"]);
    terminal.wait(&["waits/s", "block us"]);
    terminal.keys(&["5"]);
    terminal.wait(&["colour: busy"]);
    terminal.keys(&["?"]);
    terminal.wait(&["Views", "Rows", "Columns"]);
    terminal.keys(&["q"]);
    terminal.wait(&["left with 0"]);
}

#[test]
fn on_80_by_24() {
    views((80, 24));
}

#[test]
fn on_200_by_60() {
    views((200, 60));
}

#[test]
fn a_process_that_ends_leaves_its_last_interval() {
    if !root() {
        return;
    }
    let mut busy = Busy::new();
    let command = format!("{} top -p {} 0.5", env!("CARGO_BIN_EXE_ncpu"), busy.0.id());
    let Some(terminal) = Terminal::new((100, 30), &command) else { return };
    terminal.wait(&[&format!("process {}", busy.0.id()), "user code"]);
    busy.0.kill().unwrap();
    busy.0.wait().unwrap();
    terminal.wait(&["ENDED", "share"]);
    terminal.keys(&["C-c"]);
    terminal.wait(&["left with 0"]);
}

/// It is asked for where many threads want the CPUs, and has a share that is enough for it.
#[test]
fn it_runs_before_what_it_shows() {
    if !root() {
        return;
    }
    let command = format!("exec {} top", env!("CARGO_BIN_EXE_ncpu"));
    let Some(terminal) = Terminal::new((100, 30), &command) else { return };
    terminal.wait(&["q quit"]);
    let pid = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let pid = String::from_utf8(pid.stdout).unwrap().trim().to_string();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let process = std::iter::once(pid.as_str())
        .chain(children.split_whitespace())
        .find(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "ncpu\n"))
        .expect("a process ncpu in the terminal")
        .to_string();
    let mut nice = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        nice.push(rest.split(' ').nth(16).unwrap().parse::<i32>().unwrap());
    }
    assert!(nice.len() > 1 && nice.iter().all(|nice| *nice <= -10), "{nice:?}");
}

#[test]
fn it_ends_with_its_terminal() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    for command in ["top", "cpus --live"] {
        let command = format!("echo $$ >{}; exec {} {command}", pid.display(), env!("CARGO_BIN_EXE_ncpu"));
        let Some(terminal) = Terminal::new((80, 24), &format!("sh -c '{command}'")) else { return };
        terminal.wait(&["q quit"]);
        terminal.tmux(&["kill-server"]);
        let pid = std::fs::read_to_string(&pid).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while std::path::Path::new("/proc").join(pid.trim()).exists() {
            assert!(Instant::now() < until, "{command}: process {pid} goes on without a terminal");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn without_a_terminal_it_says_so() {
    let o = ncpu(&["top"]);
    assert_eq!(o.status.code(), Some(1));
    assert_eq!(
        err(&o),
        "ncpu: `ncpu top` needs a terminal; `ncpu watch` writes the same to a pipe or file\n"
    );
}

#[test]
fn who_may_not_observe_gets_his_terminal_back() {
    let nobody = common::Nobody::new();
    let program = nobody.dir().join("ncpu").to_str().unwrap().to_string();
    let command = match rustix::process::geteuid().is_root() {
        true => format!(
            "cd {}; setpriv --reuid 65534 --regid 65534 --clear-groups {program} top",
            nobody.dir().display()
        ),
        false => format!("{program} top"),
    };
    let Some(terminal) = Terminal::new((100, 30), &command) else { return };
    terminal.wait(&["needs root", "left with 1"]);
}
