//! `ncpu watch --rotate`: nothing lost and nothing told twice between recordings, when it is killed, when the disk is full.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use common::{err, ncpu, out, root};
use ncpu_record::{Keep, Manifest, Recording, Series};
use ncpu_schema::{CpuState, Purpose, cpu_time, sleepers, summary, threads};
use ncpu_table::{Column, Kind, Table, Unit};

/// Sleeps as often as it is told, from when it is told to begin.
const SLEEPS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
/* Tells how often it went to sleep: whose CPU is taken away on its way into a nap may wake after the nap's end. */
int main(int argc, char **argv)
{
	struct timespec little = { 0, 2000000 };
	struct rusage before, after;
	getchar();
	getrusage(RUSAGE_SELF, &before);
	for (int n = atoi(argv[1]); n > 0; n--)
		nanosleep(&little, NULL);
	getrusage(RUSAGE_SELF, &after);
	printf("%ld\n", after.ru_nvcsw - before.ru_nvcsw);
}
"#;

fn recordings(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut all: Vec<PathBuf> = all.filter(|p| p.extension().is_some_and(|e| e == "ncpu")).collect();
    all.sort();
    all
}

/// Waits, as long as it takes on a loaded machine.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Watch {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Watch {
    /// Begins, and waits until it observes.
    fn begin(args: &[&str]) -> Watch {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        command.arg("watch").args(args).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut watch = Watch { said: BufReader::new(child.stderr.take().unwrap()), child };
        watch.line("until Ctrl-C");
        watch
    }

    /// Reads up to a line with these words.
    fn line(&mut self, words: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "no {words:?} in {all:?}");
            if line.contains(words) {
                return line;
            }
            all.push_str(&line);
        }
    }

    fn stop(mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.child.wait().unwrap().success()
    }
}

#[test]
fn nothing_is_lost_or_told_twice_where_one_ends_and_the_next_begins() {
    if !root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (source, program) = (place.path().join("sleeps.c"), place.path().join("sleeps"));
    std::fs::write(&source, SLEEPS).unwrap();
    assert!(Command::new("cc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    let mut sleeps = Command::new(&program);
    let mut sleeps = sleeps.arg("1500").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let dir = place.path().join("always");
    let pid = sleeps.id().to_string();
    let args =
        ["--record", dir.to_str().unwrap(), "--rotate", "1s", "--interval", "0.2", "--label", "type=test"];
    // Other tests' switches count for the budget.
    let mut watch = Watch::begin(&[&args[..], &["--probes", "all", "-p", &pid]].concat());
    sleeps.stdin.take().unwrap().write_all(b"\n").unwrap();
    let slept = String::from_utf8(sleeps.wait_with_output().unwrap().stdout).unwrap();
    watch.line("recordings in");
    assert!(watch.child.wait().unwrap().success());

    let all: Vec<Recording> = recordings(&dir).iter().map(|p| Recording::open(p).unwrap()).collect();
    // 1500 times 2 ms.
    assert!(all.len() >= 3, "{} recordings", all.len());
    let mut count = 0;
    for (recording, number) in all.iter().zip(1..) {
        assert!(recording.manifest.complete, "{}", recording.name);
        assert_eq!(recording.manifest.series.as_ref().unwrap().number, number);
        assert_eq!(recording.manifest.labels["type"], "test");
        let elapsed = summary::Reader::need(recording).unwrap().elapsed.get(0).unwrap();
        let cpu_time = cpu_time::Reader::need(recording).unwrap();
        // Each recording's own capacity is where its CPUs were.
        let capacity = recording.manifest.cpus as f64 * elapsed;
        let sum: f64 = CpuState::ALL.into_iter().map(|state| cpu_time.spent.sum(state)).sum();
        assert!((sum - capacity).abs() < 0.01 * capacity, "{sum} of {capacity}");
        // Times count from its own beginning.
        let last = cpu_time.time.max().unwrap();
        assert!((last - elapsed).abs() < 1e-6, "{last} of {elapsed}");
        if let Some(sleepers) = sleepers::Reader::open(recording).unwrap() {
            count += sleepers.rows().map(|r| sleepers.count.get(r).unwrap()).sum::<u64>();
        }
    }
    assert_eq!(count, slept.trim().parse::<u64>().unwrap());
    assert!((1400..=1500).contains(&count), "{count}");
}

#[test]
fn one_that_is_killed_has_lost_one_interval_at_most_and_goes_on() {
    if !root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("always");
    let args = ["--record", dir.to_str().unwrap(), "--rotate", "1s", "--interval", "0.1"];
    let mut watch = Watch::begin(&args);
    let second = ncpu(&[&["watch"], &args[..]].concat());
    assert_eq!(second.status.code(), Some(1));
    assert!(err(&second).contains("another ncpu watch"), "{}", err(&second));
    // Well into one that is not the first.
    let intervals = |path: &Path| {
        let recording = Recording::open(path).ok()?;
        let time = cpu_time::Reader::open(&recording).ok()??;
        time.time.max()
    };
    until("a third recording", || {
        recordings(&dir).get(2).and_then(|p| intervals(p)).is_some_and(|t| t > 0.3)
    });
    watch.child.kill().unwrap();
    watch.child.wait().unwrap();
    let (last, before) = recordings(&dir).split_last().map(|(l, b)| (l.clone(), b.to_vec())).unwrap();
    assert!(before.iter().all(|p| Recording::verify(p).is_ok()));
    assert!(intervals(&last).is_some(), "what was written of the last is there");
    let had = recordings(&dir).len();
    let watch = Watch::begin(&args);
    until("another recording", || recordings(&dir).len() > had);
    assert!(watch.stop());
    let number = |p: &PathBuf| Recording::open(p).unwrap().manifest.series.unwrap().number;
    let numbers: Vec<u64> = recordings(&dir).iter().map(number).collect();
    // All but one, perhaps: it was killed when that had no manifest yet.
    assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[0] == 1, "{numbers:?}");
    assert!(numbers.last().unwrap() - numbers.len() as u64 <= 1, "{numbers:?}");
}

#[test]
fn a_full_disk_ends_a_recording_and_the_watch_goes_on_when_there_is_room() {
    if !root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    // A file system of its own, in a mount namespace of its own.
    let script = format!(
        "mount -t tmpfs -o size=16m small {0} || exit 77
         {1} watch --record {0}/always --rotate 1s --interval 0.1 2>{0}.said &
         watch=$!
         wait_for() {{ n=0; until \"$@\"; do sleep 0.1; n=$((n + 1)); [ $n -lt 1200 ] || exit 3; done; }}
         first() {{ ls {0}/always/00000002* >/dev/null 2>&1; }}
         wait_for first
         cat /dev/zero >{0}/full 2>/dev/null
         wait_for grep -q 'recording stopped' {0}.said
         rm {0}/full
         wait_for grep -q 'recording again' {0}.said
         sleep 1.5
         kill -INT $watch; wait $watch || exit 4
         cp -r {0}/always {0}.copy",
        place.path().join("disk").display(),
        env!("CARGO_BIN_EXE_ncpu"),
    );
    std::fs::create_dir(place.path().join("disk")).unwrap();
    let o = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    if o.status.code() == Some(77) {
        return eprintln!("skipped: nothing can be mounted here");
    }
    let said = std::fs::read_to_string(place.path().join("disk.said")).unwrap();
    assert!(o.status.success(), "{o:?} {said}");
    assert!(said.contains("No space left"), "{said}");
    let all = recordings(&place.path().join("disk.copy"));
    let all: Vec<Recording> = all.iter().map(|p| Recording::open(p).unwrap()).collect();
    // The one that met the end of the disk is read as far as it goes; one after it tells what was lost.
    assert!(all.last().unwrap().manifest.complete);
    let told = |r: &Recording| r.manifest.notes.iter().any(|n| n.contains("intervals were lost"));
    assert!(all.iter().any(told), "{said}");
}

#[test]
fn namespaces_that_go_take_nothing_with_them() {
    if !root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("always");
    let args = ["--record", dir.to_str().unwrap(), "--rotate", "1s", "--interval", "0.1"];
    let watch = Watch::begin(&args);
    let script = "for i in 1 2 3; do (while :; do :; done) & done; sleep 0.3";
    let mut seen = 0;
    while recordings(&dir).len() < 4 {
        // Its first process ends, and with it the kernel ends all that are in it, while they run.
        let namespace =
            Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]).status();
        let Ok(status) = namespace else { return eprintln!("skipped: no unshare") };
        seen += u32::from(status.success());
    }
    assert!(watch.stop());
    if seen == 0 {
        return eprintln!("skipped: no PID namespaces can be made here");
    }
    let mut busy = 0.0;
    for path in recordings(&dir) {
        let recording = Recording::open(&path).unwrap();
        assert!(recording.manifest.complete, "{}", recording.name);
        let elapsed = summary::Reader::need(&recording).unwrap().elapsed.get(0).unwrap();
        let cpu_time = cpu_time::Reader::need(&recording).unwrap();
        let capacity = recording.manifest.cpus as f64 * elapsed;
        let sum: f64 = CpuState::ALL.into_iter().map(|state| cpu_time.spent.sum(state)).sum();
        assert!((sum - capacity).abs() < 0.01 * capacity, "{sum} of {capacity}");
        let Some(threads) = threads::Reader::open(&recording).unwrap() else { continue };
        let of_them = |row: &usize| threads.process.get(*row) == Some("sh");
        busy += threads.rows().filter(of_them).filter_map(|row| threads.cpu.get(row)).sum::<f64>();
    }
    assert!(busy > 0.1, "{busy} s of loops in the namespaces");
}

/// Three recordings of a minute each, from 2024-02-29 12:00:00 UTC on, of which each tells its number.
fn three(dir: &Path) {
    let mut series = Series::open(dir, Keep::default(), 0o600).unwrap();
    for number in 0..3 {
        let start = 1_709_208_000.0 + 60.0 * f64::from(number);
        let manifest = Manifest::new(Purpose::Other, 2, vec!["the machine".into()], 1.0);
        series.begin(Manifest { created_unix: start, ..manifest }, Duration::ZERO).unwrap();
        let mut table = Table::builder(
            "cpu_time",
            &[Column::float("t", Unit::Seconds, Kind::Key, ""), Column::count("number", "of this recording")],
        );
        table.row().float(60.0).int(number as u64);
        series.append(&[table.finish()]).unwrap();
        series.end(|_| {});
    }
    assert_eq!(series.close(), Vec::<String>::new());
    // As they would be had they taken a minute each.
    for (path, number) in recordings(dir).iter().zip(0..) {
        let mut manifest = Manifest::read(path).unwrap();
        manifest.series.as_mut().unwrap().booted_s = 100.0 + 60.0 * f64::from(number);
        std::fs::write(path.join("manifest.json"), serde_json::to_string(&manifest).unwrap()).unwrap();
    }
}

#[test]
fn a_moment_is_looked_back_at() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("always");
    three(&dir);
    std::os::unix::fs::symlink("/", dir.join("00000009-20240229T120000Z.ncpu")).unwrap();
    std::fs::create_dir(dir.join("\x1b[31m.ncpu")).unwrap();
    let report = |at: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        // Three hours east of Greenwich.
        command.env("TZ", "XXX-3").args(["report", dir.to_str().unwrap()]).args(["--at", at]).args(more);
        command.output().unwrap()
    };
    let rows = ["--table", "cpu_time", "-o", "csv"];
    for (at, number) in [
        ("2024-02-29T12:00:00Z", 0),
        ("2024-02-29T12:01:30Z", 1),
        ("2024-02-29T15:01", 1),
        ("2024-02-29 15:02:59", 2),
    ] {
        let o = report(at, &rows);
        assert!(o.status.success(), "{at}: {}", err(&o));
        assert!(
            out(&o).lines().nth(1).is_some_and(|row| row.ends_with(&format!(",{number}"))),
            "{at}: {}",
            out(&o)
        );
        assert!(err(&o).contains(&format!("from 2024-02-29 15:0{number}:00 on")), "{at}: {}", err(&o));
        assert!(
            !err(&o).contains('\x1b')
                && err(&o).contains("00000009-20240229T120000Z.ncpu is not a recording")
        );
    }
    let file = place.path().join("waits.json");
    let o = report(
        "2024-02-29T15:01",
        &["--table", "cpu_time", "-o", "json", "--output", file.to_str().unwrap()],
    );
    assert!(
        o.status.success() && std::fs::read_to_string(file).unwrap().contains("\"number\":1"),
        "{}",
        err(&o)
    );

    let o = report("2024-02-29T12:03:01Z", &rows);
    assert_eq!((o.status.code(), out(&o)), (Some(1), String::new()));
    let told = err(&o);
    for words in [
        "holds 2024-02-29 15:03:01",
        "before ended 2024-02-29 15:03:00",
        "from 2024-02-29 15:00:00 to 2024-02-29 15:03:00",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert!(err(&report("12:00", &rows)).contains("no recording in"), "today");
    assert!(err(&report("-2h", &rows)).contains("no recording in"), "two hours ago");
    assert_eq!(report("noon", &rows).status.code(), Some(2));
    // Without a moment, of one recording, and of nothing.
    let o = ncpu(&["report", dir.to_str().unwrap()]);
    assert!(err(&o).contains("--at 03:12"), "{}", err(&o));
    let one = recordings(&dir).remove(1);
    assert!(err(&ncpu(&["report", one.to_str().unwrap(), "--at", "-2h"])).contains("is one recording"));
    let o = ncpu(&["report", place.path().to_str().unwrap(), "--at", "-2h"]);
    assert!(err(&o).contains("holds no recordings"), "{}", err(&o));
}
