//! Requests of clients, beside the log of a server that times them itself. Needs root and BPF; says so and passes where there are
//! none.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsString;

use common::{Seen, allowed, c, observe};

/// The server's own log.
#[derive(Debug)]
struct Log {
    requests: f64,
    p50: f64,
    p99: f64,
    slow: f64,
    /// ms that the cause took in each on average: of spinning those on a CPU.
    slow_ms: f64,
}

/// Requests of a server with a cause of `unit` ms, as its log has them and as they are seen.
fn serve(server: &str, cause: &str, requests: u32, unit: f64) -> (Log, Seen) {
    let program = c("server", &["-O2"]);
    let told = tempfile::NamedTempFile::new().expect("a file");
    let argv: [OsString; 6] = [
        program.into(),
        server.into(),
        cause.into(),
        requests.to_string().into(),
        unit.to_string().into(),
        told.path().into(),
    ];
    let seen = observe(&argv, |config| config.requests = true);
    assert_eq!(seen.ended.status, 0);
    let text = std::fs::read_to_string(told.path()).expect("it was written");
    let figures: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [requests, p50, p99, slow, slow_ms] = figures[..] else { panic!("{figures:?}") };
    (Log { requests, p50, p99, slow, slow_ms }, seen)
}

/// Seconds of requests by what they went to.
fn parts(seen: &Seen) -> BTreeMap<String, f64> {
    let mut out = BTreeMap::new();
    for (t, r) in seen.rows("served_parts") {
        let doing = t.text(r, "doing").expect("an activity").to_owned();
        *out.entry(doing).or_default() += t.number(r, "seconds").expect("seconds");
    }
    out
}

#[test]
fn each_request_is_counted_with_what_it_waited_for() {
    let Some(_one) = allowed() else { return };
    const UNIT: f64 = 3.0;
    for server in ["threads", "epoll", "pool", "local"] {
        let (log, seen) = serve(server, "timer", 400, UNIT);
        assert_eq!(seen.sum("served", "count"), log.requests, "{server}");
        let all = seen.sum("served", "seconds");
        let parts = parts(&seen);
        let sum: f64 = parts.values().sum();
        assert!((sum - all).abs() < 1e-6 * all, "{server}: {sum} of {all}: {parts:?}");
        // On a busy machine a part of the time is spent on run queues, before the sleep and after it.
        let at_least = |(t, r): &(&ncpu_table::Table, usize)| t.number(*r, "to") > Some(UNIT * 1e3);
        let slow: f64 = seen.rows("served").filter(at_least).filter_map(|(t, r)| t.number(r, "count")).sum();
        assert!(slow >= log.slow, "{server}: {slow} of {log:?}");
        assert!(parts.get("timer").is_some_and(|slept| *slept > 0.0), "{server}: {parts:?}");
        let names: Vec<&str> = seen.rows("served").filter_map(|(t, r)| t.text(r, "request")).collect();
        assert!(names.iter().all(|name| name.starts_with("HTTP GET on ")), "{names:?}");
        // The slowest are kept with all of their parts.
        let longest =
            seen.rows("slow_requests").filter_map(|(t, r)| t.number(r, "latency")).fold(0.0, f64::max);
        let max = seen.rows("served").filter_map(|(t, r)| t.number(r, "max")).fold(0.0, f64::max);
        assert!((longest - max).abs() < 1e-6, "{server}: {longest} of {max}");
    }
}

/// The log of a server of `loops.c`, and what is seen of it.
fn elsewhere(server: &str, requests: u32, unit: f64) -> (Log, Seen) {
    let program = c("loops", &["-O2"]);
    let told = tempfile::NamedTempFile::new().expect("a file");
    let argv: [OsString; 5] = [
        program.into(),
        server.into(),
        requests.to_string().into(),
        unit.to_string().into(),
        told.path().into(),
    ];
    let seen = observe(&argv, |config| config.requests = true);
    assert_eq!(seen.ended.status, 0);
    let text = std::fs::read_to_string(told.path()).expect("it was written");
    let figures: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [requests, p99, slow, slow_ms] = figures[..] else { panic!("{figures:?}") };
    (Log { requests, p50: 0.0, p99, slow, slow_ms }, seen)
}

/// Requests that the clients of `loops.c` made: those that the program passed on are others.
fn of_clients<'a>(
    seen: &'a Seen,
    table: &'a str,
) -> impl Iterator<Item = (&'a ncpu_table::Table, usize)> + 'a {
    let of = |(t, r): &(&ncpu_table::Table, usize)| {
        t.text(*r, "request").is_some_and(|name| name.starts_with("HTTP GET on "))
    };
    seen.rows(table).filter(of)
}

#[test]
fn requests_of_threads_that_end_with_them_are_counted() {
    let Some(_one) = allowed() else { return };
    let (log, seen) = elsewhere("fresh", 400, 3.0);
    let count: f64 = of_clients(&seen, "served").filter_map(|(t, r)| t.number(r, "count")).sum();
    assert_eq!(count, log.requests);
}

#[test]
fn nothing_is_followed_where_nobody_asks() {
    let Some(_one) = allowed() else { return };
    let program = c("server", &["-O2"]);
    let argv: [OsString; 4] = [program.into(), "threads".into(), "quiet".into(), "40".into()];
    let seen = observe(&argv, |_| {});
    assert_eq!(seen.rows("served").count() + seen.rows("slow_requests").count(), 0);
}

mod quiet {
    use common::{go, part_within};
    use ncpu_trials::{MOST, hold};

    use super::*;

    /// Whether what makes requests slow has its time, and the 99th percentile is the log's within 3 %.
    fn planted(server: &str, cause: &str, doing: &[&str]) {
        let (log, seen) = serve(server, cause, 1000, 20.0);
        let parts = parts(&seen);
        let took = log.slow * log.slow_ms / 1e3;
        let found: f64 = doing.iter().filter_map(|doing| parts.get(*doing)).sum();
        let [less, more] = [0.97, 1.03].map(|factor| part_within(&seen, factor * log.p99));
        let line = format!(
            "{server} {cause}: {found:.3} of {took:.3} s, {less} and {more} within 0.97 and 1.03 of {:.0} us, {parts:?}",
            log.p99
        );
        eprintln!("{line}, median {:.1} us", log.p50);
        // A disk that answers within a millisecond takes no longer than the waits for a CPU before and after.
        if cause == "disk" && log.slow_ms < 5.0 {
            return assert!(found >= 0.5 * took, "{line}");
        }
        assert!(found >= 0.9 * took && found <= 1.1 * took, "{line}");
        // Two requests of a thousand, since the server's log and the table may draw the line at another of those near it.
        assert!(less <= 0.992 && more >= 0.988, "{line}");
    }

    #[test]
    fn causes_have_their_time() {
        let Some(_one) = allowed() else { return };
        for server in ["threads", "epoll", "pool", "local"] {
            // In a loop others wait behind the slow one: held to the log by the cause alone, below.
            for (cause, doing) in [
                ("timer", &["timer"][..]),
                ("lock", &["user lock", "pipe", "another thread"]),
                ("file", &["file lock", "semaphore", "pipe", "another thread"]),
                ("disk", &["device", "kernel code"]),
                ("spin", &["user code"]),
                ("pipe", &["pipe"]),
            ] {
                if server != "epoll" {
                    hold(MOST, &format!("{server} {cause}"), || planted(server, cause, doing));
                }
            }
        }
    }

    /// Requests that stay unread are behind the request that their thread serves, though each part of that one is shorter than their wait.
    #[test]
    fn requests_wait_behind_one_that_does_several_things() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "epoll mixed", || {
            let (log, seen) = serve("epoll", "mixed", 1000, 5.0);
            let unread = |of: fn(&str) -> bool| -> f64 {
                let rows = seen.rows("served_parts").filter(|(t, r)| t.text(*r, "doing") == Some("unread"));
                let rows = rows.filter(|(t, r)| of(t.text(*r, "what").unwrap_or_default()));
                rows.filter_map(|(t, r)| t.number(r, "seconds")).sum()
            };
            let (all, named) = (unread(|_| true), unread(|what| !what.is_empty()));
            let line = format!("{named:.3} of {all:.3} s unread with a name: {log:?}");
            eprintln!("{line}");
            assert!(all >= 0.5 * log.slow * log.slow_ms / 1e3 && named >= 0.8 * all, "{line}");
        });
    }

    /// Ordinary requests wait for the helper or the server as well: at most this long on average, in seconds.
    const ORDINARY: f64 = 0.5e-3;

    /// Requests that wait for a helper of a loop, or for a server behind theirs, have that: the time of the parts that `of` picks by
    /// what they do and for what, and the part of it in `least` that is named as `named` picks.
    fn waits_elsewhere(
        server: &str,
        of: impl Fn(&str, &str) -> bool,
        named: impl Fn(&str, &str) -> bool,
        least: f64,
    ) {
        let (log, seen) = elsewhere(server, 1000, 20.0);
        let seconds = |picks: &dyn Fn(&str, &str) -> bool| -> f64 {
            let text = |t: &ncpu_table::Table, r, column| t.text(r, column).unwrap_or_default().to_string();
            of_clients(&seen, "served_parts")
                .filter(|(t, r)| picks(&text(t, *r, "doing"), &text(t, *r, "what")))
                .filter_map(|(t, r)| t.number(r, "seconds"))
                .sum()
        };
        let (all, named) = (seconds(&of), seconds(&named));
        let count: f64 = of_clients(&seen, "served").filter_map(|(t, r)| t.number(r, "count")).sum();
        let took = log.slow * log.slow_ms / 1e3;
        let line = format!("{server}: {all:.3} s, {named:.3} with a name, of {took:.3}: {log:?}");
        eprintln!("{line}");
        assert_eq!(count, log.requests, "{line}");
        assert!(all >= 0.9 * took && all <= 1.1 * took + ORDINARY * log.requests, "{line}");
        assert!(named >= least * took && named <= 1.1 * took, "{line}");
    }

    #[test]
    fn waits_for_helpers_and_other_servers_are_theirs() {
        let Some(_one) = allowed() else { return };
        // Not all sleeps of helpers are followed: of the others the thread is known, and not its lock.
        let lock = |doing: &str, what: &str| doing == "user lock" && what == "held";
        let helper = |doing: &str, what: &str| lock(doing, what) || doing == "another thread";
        for server in ["eventfd", "pair"] {
            hold(MOST, server, || waits_elsewhere(server, helper, lock, 0.2));
        }
        let peer = |doing: &str, what: &str| doing == "socket" && what.starts_with("127.0.0.1:");
        hold(MOST, "upstream", || waits_elsewhere("upstream", peer, |_, _| false, 0.0));
    }

    /// The time in which a goroutine waits is its own, not that of a request which waits for a worker thread; and its runtime knows what for.
    #[test]
    fn goroutines_that_wait_are_parked() {
        let Some(_one) = allowed() else { return };
        for flags in ["-ldflags=", "-ldflags=-s -w"] {
            let Some(built) = go("parks.go", flags) else { return };
            let told = tempfile::NamedTempFile::new().expect("a file");
            let seen = observe(&[built.clone().into(), told.path().into()], |config| config.requests = true);
            std::fs::remove_file(built).expect("it was built");
            assert_eq!(seen.ended.status, 0);
            let text = std::fs::read_to_string(told.path()).expect("it was written");
            let figures: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
            let [requests, received, locked] = figures[..] else { panic!("{figures:?}") };
            let parts = parts(&seen);
            let parked = |reason: &str| -> f64 {
                let of = |(t, r): &(&ncpu_table::Table, usize)| {
                    t.text(*r, "doing") == Some("parked") && t.text(*r, "what") == Some(reason)
                };
                seen.rows("served_parts").filter(of).filter_map(|(t, r)| t.number(r, "seconds")).sum()
            };
            let [channel, mutex] = ["chan receive", "sync.Mutex.Lock"].map(parked);
            let line = format!(
                "{channel} of {received} s for a channel, {mutex} of {locked} s for a mutex of {requests}: {parts:?}"
            );
            eprintln!("{line}");
            assert!(seen.sum("served", "count") >= 0.99 * requests, "{line}");
            // A byte of some of them is read before the rest.
            let names: Vec<_> = seen.rows("served").filter_map(|(t, r)| t.text(r, "request")).collect();
            assert!(names.iter().all(|name| name.starts_with("HTTP GET on ")), "{names:?}: {line}");
            assert!(!parts.contains_key("handed over") && !parts.contains_key("set aside"), "{line}");
            assert!(channel >= 0.85 * received && mutex >= 0.85 * locked, "{line}");
            assert!(channel <= 1.1 * received && mutex <= 1.1 * locked, "{line}");
        }
    }
}
