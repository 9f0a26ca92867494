//! Real servers with and without the library.

#[path = "../../support/tests/programs/mod.rs"]
mod programs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use ncpu_trials::{MOST, hold};
use programs::{found, out, text};

/// One server at a time: the tests measure which taker comes first.
static ONE: Mutex<()> = Mutex::new(());

fn library() -> PathBuf {
    programs::library("libncpu_accept.so")
}

fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    programs::compiled(name, &format!("tests/c/{source}"), flags)
}

fn run(program: &Path, arguments: &[&str], preload: &[&Path], settings: &[(&str, &str)]) -> Output {
    let mut command = programs::with(preload, settings, 120);
    command.env_remove("NCPU_ACCEPT").env_remove("NCPU_ACCEPT_DELAY");
    command.arg(program).args(arguments).output().expect("timeout")
}

#[test]
fn results_are_the_same_with_it_and_without() {
    let plugin = compile("plugin.c", "plugin.so", &["-shared", "-fPIC"]);
    let plugin = plugin.to_str().expect("a name");
    let program = compile("semantics.c", "semantics", &["-ldl"]);
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let without = out(&run(&program, &[plugin], &[], &[]));
    assert!(without.lines().count() > 55, "{without}");
    assert!(without.contains("cancelled where it blocks: cancelled, 1 cleaned up"), "{without}");
    let settings: [&[(&str, &str)]; 4] = [
        &[],
        &[("NCPU_ACCEPT", "random")],
        &[("NCPU_ACCEPT", "off")],
        // A delay long enough that signals and cancellation hit the thread while it is held back.
        &[("NCPU_ACCEPT_DELAY", "20000")],
    ];
    for settings in settings {
        assert_eq!(out(&run(&program, &[plugin], &[&library()], settings)), without, "{settings:?}");
    }
}

/// Jain's index of a race of four in which the first has a head start of 2 ms.
fn evenness(program: &Path, how: &str, preload: &[&Path], mode: &str) -> f64 {
    // Uneven from the first connection on, but even only after several connections of each.
    let connections = if mode == "off" || preload.is_empty() { "300" } else { "800" };
    // Delays long enough that other programs on the machine do not reverse the order.
    let settings = [("NCPU_ACCEPT", mode), ("NCPU_ACCEPT_DELAY", "16000")];
    let text = out(&run(program, &[how, "4", connections, "2000"], preload, &settings));
    text.lines().nth(1).and_then(|l| l.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn a_listener_with_epollexclusive_wakes_them_in_turn() {
    let program = compile("herd.c", "herd-exclusive", &[]);
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let even = |preload: &[&Path], mode| {
        let done = out(&run(&program, &["exclusive", "4", "2000", "100"], preload, &[("NCPU_ACCEPT", mode)]));
        done.lines().nth(1).and_then(|l| l.parse::<f64>().ok()).unwrap_or_else(|| panic!("{done}"))
    };
    let (without, off) = (even(&[], ""), even(&[&library()], "off"));
    assert!(without < 0.5 && off < 0.5, "the first has most: {without}, switched off {off}");
    let with = even(&[&library()], "round-robin");
    assert!(with > 0.8, "{without} without, {with} with it");
}

#[test]
fn entries_of_an_epoll_are_what_the_program_made_them() {
    let program = compile("entries.c", "entries", &[]);
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let library = library();
    for how in ["epoll", "exclusive"] {
        for preload in [&[][..], &[library.as_path()]] {
            let done = run(&program, &[how, "4", "3000"], preload, &[]);
            assert_eq!(out(&done), "3000 answered, 0 ended\n", "{how}: {}", text(&done.stderr));
        }
    }
}

#[test]
fn a_server_without_a_herd_makes_no_call_more() {
    let program = compile("quiet.c", "quiet", &[]);
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let library = library();
    // With several takers, shares are examined after 65 connections of each; that is tested below.
    for (how, connections) in
        [("alone", "300"), ("until-empty", "300"), ("ticks", "300"), ("blocking", "200"), ("threads", "200")]
    {
        let done = run(&program, &[how, connections], &[&library], &[]);
        assert_eq!(out(&done), format!("{connections} of {connections} taken; ended by 0\n"), "{how}");
    }
}

/// The number of the wrapper's own calls, by strace; `None` if strace cannot trace.
fn own_calls(program: &Path, arguments: &[&str], preload: &[&Path]) -> Option<usize> {
    let calls = program.with_extension("calls");
    let preload: Vec<&str> = preload.iter().filter_map(|p| p.to_str()).collect();
    let done = Command::new("timeout")
        .args(["120", "strace", "-f", "-e", "trace=getsockopt,futex,fcntl,ppoll", "-o"])
        .arg(&calls)
        .arg("-E")
        .arg(format!("LD_PRELOAD={}", preload.join(":")))
        .arg(program)
        .args(arguments)
        .output();
    if !done.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: strace cannot trace here");
        return None;
    }
    let text = std::fs::read_to_string(calls).expect("strace wrote it");
    // Private futexes belong to the C library.
    Some(text.lines().filter(|l| l.contains('(') && !l.contains("PRIVATE")).count())
}

#[test]
fn looks_are_seldom_without_a_herd_and_made_with_one() {
    let (quiet, herd) = (compile("quiet.c", "quiet-traced", &[]), compile("herd.c", "herd-traced", &[]));
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let library = library();
    let blocking = ["blocking", "1000", "unfiltered"];
    let Some(without) = own_calls(&quiet, &blocking, &[]) else { return };
    let with = own_calls(&quiet, &blocking, &[&library]).expect("as before");
    // Four processes look twice: after 65 connections, and after 129 more.
    assert!(with > without && with - without <= 4 * 3, "{without} without, {with} with it");
    let race = ["poll", "4", "60", "1000"];
    let without = own_calls(&herd, &race, &[]).expect("as before");
    let with = own_calls(&herd, &race, &[&library]).expect("as before");
    assert!(with > without + 20, "{without} without, {with} with it");
}

#[test]
fn wrong_settings_are_reported_and_change_nothing() {
    let program = compile("herd.c", "herd-settings", &[]);
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for (name, value) in [("NCPU_ACCEPT", "roundrobin"), ("NCPU_ACCEPT_DELAY", "0")] {
        let done = run(&program, &["poll", "2", "10", "100"], &[&library()], &[(name, value)]);
        assert!(done.status.success());
        let message = text(&done.stderr);
        assert!(message.lines().count() == 1 && message.contains(&format!("{name}: ")), "{message}");
    }
}

mod quiet {
    use super::*;

    #[test]
    fn a_herd_gets_equal_shares() {
        let program = compile("herd.c", "herd", &[]);
        let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
        let library = library();
        for how in ["poll", "epoll", "threads"] {
            let without = evenness(&program, how, &[], "round-robin");
            let off = evenness(&program, how, &[&library], "off");
            assert!(without < 0.5 && off < 0.5, "{how}: the first has most: {without}, switched off {off}");
            // If the host takes a CPU away for longer than the delays, the order of a whole race may change.
            hold(MOST, how, || {
                let with = evenness(&program, how, &[&library], "round-robin");
                assert!(with > 0.7, "{how}: {without} without, {with} with it");
            });
        }
        hold(MOST, "random", || {
            let random = evenness(&program, "select", &[&library], "random");
            assert!(random > 0.6, "random: {random}");
        });
    }

    #[test]
    fn beside_jemalloc() {
        let Some(jemalloc) = found("libjemalloc.so.2") else { return };
        let program = compile("herd.c", "herd-jemalloc", &[]);
        let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
        for order in [[jemalloc.as_path(), &library()], [&library(), &jemalloc]] {
            hold(MOST, "threads", || {
                let even = evenness(&program, "threads", &order, "round-robin");
                assert!(even > 0.7, "{even}");
            });
        }
    }

    #[test]
    fn beside_address_sanitizer() {
        let Some(asan) = found("libasan.so") else { return };
        let shared = compile("herd.c", "herd-asan", &["-fsanitize=address"]);
        let within = compile("herd.c", "herd-static-asan", &["-fsanitize=address", "-static-libasan"]);
        let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
        for (program, preload) in
            [(&shared, vec![asan.as_path(), &library()]), (&within, vec![library().as_path()])]
        {
            hold(MOST, "epoll", || {
                let even = evenness(program, "epoll", &preload, "round-robin");
                assert!(even > 0.7, "{even}");
            });
        }
    }
}
