//! A fleet in S3: slow, failing, refusing, careless servers; no row is lost or doubled.

mod common;

use std::process::Command;
use std::sync::atomic::Ordering;

use common::generate::Plan;
use common::s3::Server;
use common::{plan, said};

const ROOT: &str = "s3://fleet/some/prefix";

struct S3 {
    server: std::sync::Arc<Server>,
    address: String,
    place: tempfile::TempDir,
}

impl S3 {
    fn new() -> S3 {
        let (server, address) = Server::start();
        let place = tempfile::tempdir().unwrap();
        plan(4, 3, false).write(&place.path().join("recordings"), 2).unwrap();
        S3 { server, address, place }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = common::command(arguments);
        command
            .env("AWS_ENDPOINT_URL", &self.address)
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "y")
            .env("XDG_CACHE_HOME", self.place.path().join("cache"));
        command
    }

    fn add(&self) -> Command {
        self.command(&["add", ROOT, self.place.path().join("recordings").to_str().unwrap()])
    }

    /// Recordings by the number of parts of a table that have them.
    fn parts(&self, table: &str) -> Vec<usize> {
        let objects = self.server.objects.lock().unwrap();
        let mut seen = std::collections::HashMap::new();
        for (_, bytes) in objects.iter().filter(|(k, _)| k.starts_with(&format!("some/prefix/{table}/date=")))
        {
            for id in ncpu_fleet::tables::ids(table, bytes.clone()).unwrap() {
                *seen.entry(id).or_insert(0) += 1;
            }
        }
        seen.into_values().collect()
    }

    fn once(&self) {
        for table in ["recordings", "layers", "events"] {
            assert_eq!(self.parts(table), [1; 12], "{table}");
        }
    }
}

fn good(mut command: Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", said(&out));
    said(&out)
}

fn bad(mut command: Command) -> String {
    let out = command.output().unwrap();
    let said = said(&out);
    assert!(!out.status.success() && said.trim_end().lines().count() == 1, "{command:?}: {said}");
    said
}

#[test]
fn added_once_by_two_at_once() {
    let s3 = S3::new();
    let both = [s3.add(), s3.add()].map(|mut c| c.stderr(std::process::Stdio::piped()).spawn().unwrap());
    for one in both {
        let out = one.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", said(&out));
    }
    s3.once();
    assert!(good(s3.add()).contains("0 added, 12 there already"));
    assert!(good(s3.command(&["compact", ROOT])).contains("parts instead of"));
    s3.once();
    // To the store, an interrupted addition looks like one in progress.
    let note = "some/prefix/adding/x".to_string();
    s3.server.objects.lock().unwrap().insert(note, b"process 7 on far since 2026-11-10 07:30".to_vec());
    // There is nothing to do, so notes are not read.
    assert!(good(s3.command(&["compact", ROOT])).contains("parts instead of"));
    let more = s3.place.path().join("more");
    Plan { seed: 8, ..plan(2, 1, false) }.write(&more, 2).unwrap();
    let more = ["add", ROOT, more.to_str().unwrap()];
    assert!(good(s3.command(&more)).contains("2 added"));
    let said = bad(s3.command(&["compact", ROOT]));
    assert!(said.contains("is being added to by process 7 on far since 2026-11-10 07:30"), "{said}");
    good(s3.command(&["compact", ROOT, "--take-over"]));
    assert!(good(s3.command(&more)).contains("0 added, 2 there already"));
    assert!(s3.server.objects.lock().unwrap().keys().all(|k| !k.contains("adding/")));
    assert!(good(s3.command(&["delta", ROOT])).contains("entries written"));
    assert!(good(s3.command(&["delta", ROOT])).contains("0 entries"));
}

#[test]
fn servers_that_are_slow_or_lose_answers() {
    let s3 = S3::new();
    s3.server.flaky.store(7, Ordering::Relaxed);
    s3.server.mute.store(5, Ordering::Relaxed);
    s3.server.slow.store(2, Ordering::Relaxed);
    good(s3.add());
    s3.once();
}

#[test]
fn a_server_that_fails_midway() {
    let s3 = S3::new();
    s3.server.full_from.store(8, Ordering::Relaxed);
    let said = bad(s3.add());
    assert!(said.contains("cannot write: the server answered 503 SlowDown try later (5 tries)"), "{said}");
    assert!(said.contains("run it again"), "{said}");
    s3.server.full_from.store(usize::MAX, Ordering::Relaxed);
    good(s3.add());
    s3.once();
}

#[test]
fn servers_and_credentials_that_are_not_there() {
    let s3 = S3::new();
    let without = |name: &str| {
        let mut command = s3.command(&["onion", ROOT]);
        command.env_remove(name);
        bad(command)
    };
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        assert!(without(name).contains("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
    }
    assert!(bad(s3.command(&["onion", ROOT])).contains("is not a fleet: it has no ncpu-fleet.json"));
    assert!(bad(s3.command(&["onion", "s3://other/x"])).contains("the bucket does not exist"));
    let mut gone = s3.command(&["onion", ROOT]);
    gone.env("AWS_ENDPOINT_URL", "http://127.0.0.1:9");
    assert!(bad(gone).contains("Connection refused"));
    let mut slow = s3.command(&["onion", ROOT]);
    s3.server.slow.store(1500, Ordering::Relaxed);
    slow.env("NCPU_S3_TIMEOUT", "1");
    assert!(bad(slow).contains("timeout"), "a server that does not answer is given up");
    s3.server.slow.store(0, Ordering::Relaxed);
    // A server that ignores conditions would lose the parts of concurrent writers.
    s3.server.careless.store(true, Ordering::Relaxed);
    assert!(bad(s3.add()).contains("If-None-Match"));
}

#[test]
fn duckdb_reads_copies_of_its_parts() {
    if !common::engine() {
        return;
    }
    let s3 = S3::new();
    good(s3.add());
    let ask = || {
        let mut command = s3.command(&["onion", ROOT, "--by", "kernel", "-o", "csv"]);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", said(&out));
        String::from_utf8(out.stdout).unwrap()
    };
    let first = ask();
    assert!(first.lines().count() > 10, "{first}");
    let before = s3.server.requests.load(Ordering::Relaxed);
    assert_eq!(ask(), first);
    let fetched = s3.server.requests.load(Ordering::Relaxed) - before;
    // Only listings and the marker; three objects per page.
    let pages = s3.server.objects.lock().unwrap().len() / 3 + 20;
    assert!(fetched < pages, "{fetched} requests");
    // After a compaction the answer is the same, and old copies are not read.
    good(s3.command(&["compact", ROOT]));
    assert_eq!(ask(), first);
}
