//! The threads that idle CPUs waited for, in programs with a known critical path. Needs root and BPF; skips with a
//! message otherwise.

mod common;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::{Seen, allowed, c, observe};
use ncpu_engine::engine::Config;
use ncpu_observe_core::program::Target;
use ncpu_trials::{MOST, Plan, hold};

/// `paths.c`, as any program is compiled: without frame pointers. Functions that are alike stay two.
fn compile() -> PathBuf {
    c("paths", &["-O2", "-fno-ipa-icf"])
}

/// Idle CPU-seconds that a part was charged with: in all, and by code; and those there were.
struct Charged {
    rows: Vec<(String, String, f64)>,
    idle: f64,
}

impl Charged {
    fn of(seen: &Seen) -> Charged {
        let text = |t: &ncpu_table::Table, r, c| t.text(r, c).unwrap_or("").to_string();
        let rows = seen.rows("critical_path");
        let rows =
            rows.map(|(t, r)| (text(t, r, "doing"), text(t, r, "code"), t.number(r, "idle").expect("s")));
        let reasons = ["klock", "ulock", "io", "serial", "asleep", "runq", "wake-up"];
        Charged {
            rows: rows.collect(),
            idle: reasons.iter().map(|reason| seen.sum("idle_time", reason)).sum(),
        }
    }

    fn all(&self) -> f64 {
        self.rows.iter().map(|(.., idle)| idle).sum()
    }

    /// Idle time charged to rows whose activity and code match.
    fn waits(&self, like: impl Fn(&str, &str) -> bool) -> f64 {
        self.rows.iter().filter(|(doing, code, _)| like(doing, code)).map(|(.., idle)| idle).sum()
    }

    /// The part charged to code of a function, of what was charged to running threads.
    fn running(&self, function: &str) -> f64 {
        let of = |keep: &dyn Fn(&str) -> bool| -> f64 {
            self.rows
                .iter()
                .filter(|(doing, code, _)| doing == "running" && keep(code))
                .map(|(.., idle)| idle)
                .sum()
        };
        of(&|code| code.split(" <- ").any(|f| f == function)) / of(&|_| true)
    }
}

/// Idle time charged in a run. On two CPUs or more, each of these programs leaves CPUs idle.
fn charged(args: &[&str], change: impl Fn(&mut Config)) -> Charged {
    let program = compile();
    let mut argv: Vec<std::ffi::OsString> = vec![program.into()];
    argv.extend(args.iter().map(Into::into));
    let seen = observe(&argv, &change);
    assert_eq!(seen.ended.status, 0, "{args:?}");
    let charged = Charged::of(&seen);
    assert!(charged.idle > 0.2, "{args:?}: CPUs idled for {} s", charged.idle);
    charged
}

/// How waits that last until the end of the observation are shown.
const END: &str = "till the end of the observation";

/// Largest distance of a share from the truth.
const WITHIN: f64 = 0.05;

/// Largest distance where idle time is charged by this many looks: four standard deviations of a share of three
/// quarters.
fn within(looks: f64) -> f64 {
    WITHIN.max(4.0 * (0.75 * 0.25 / looks).sqrt())
}

fn check(args: &[&str], truth: &[(&str, f64)]) {
    check_as(args, truth, |_| {});
}

fn check_as(args: &[&str], truth: &[(&str, f64)], change: impl Fn(&mut Config)) {
    let mut config = Config::onion(Target::All, 99);
    change(&mut config);
    hold(MOST, &format!("{args:?}"), || {
        let charged = charged(args, &change);
        let part = charged.all() / charged.idle;
        println!("{args:?}: {:.1} % of {:.2} CPU-s charged", 100.0 * part, charged.idle);
        // Between these the program is in calls, of which short work has a larger part.
        let whole: f64 = truth.iter().map(|(_, share)| share).sum();
        let named = truth.iter().map(|(function, _)| charged.running(function)).sum::<f64>() / whole;
        assert!(named > 0.85, "{args:?}: {named} of running code: {:#?}", charged.rows);
        for (function, share) in truth {
            let found = charged.running(function) / named;
            println!("  {function}: {:.1} %, in truth {:.1} %", 100.0 * found, 100.0 * share);
            let within = within(charged.idle * f64::from(config.looks));
            assert!((found - share).abs() < within, "{args:?}: {found} for {function}: {:#?}", charged.rows);
        }
        assert!((0.95..1.05).contains(&part), "{args:?}: {part} of {} s: {:#?}", charged.idle, charged.rows);
    });
}

mod quiet {
    use super::*;

    #[test]
    fn the_slow_stage_of_a_pipeline_is_named() {
        let Some(_one) = allowed() else { return };
        for stages in ["3", "5", "8"] {
            check(&["pipeline", stages], &[("slow_stage", 1.0)]);
        }
    }

    #[test]
    fn serial_parts_and_the_longer_half_are_named() {
        let Some(_one) = allowed() else { return };
        check(&["fork_join"], &[("serial_part", 0.75), ("long_half", 0.25)]);
        check(&["barriers"], &[("slow_thread", 1.0)]);
    }

    /// Threads that wait for nothing of it are no part of the path, however many.
    #[test]
    fn ten_thousand_threads_that_wait_change_nothing() {
        let Some(_one) = allowed() else { return };
        // A run in three has little idle time, or a part further off.
        hold(Plan::new(2, 8), "crowd", || {
            let charged = charged(&["crowd"], |_| {});
            let part = charged.all() / charged.idle;
            let [serial, long] = ["serial_part", "long_half"].map(|function| charged.running(function));
            println!("crowd: {:.1} % charged, serial part {serial:.3}, longer half {long:.3}", 100.0 * part);
            // Beside the two there is what creates the threads.
            let found = serial / (serial + long);
            assert!((found - 0.75).abs() < 0.2, "{found}: {:#?}", charged.rows);
            assert!(serial + long > 0.4, "{serial} and {long}: {:#?}", charged.rows);
            assert!((0.95..1.05).contains(&part), "{part} of {} s: {:#?}", charged.idle, charged.rows);
        });
    }

    #[test]
    fn other_processes_of_the_program_are_named() {
        let Some(_one) = allowed() else { return };
        check(&["map_reduce"], &[("long_map", 0.5), ("reduce", 0.5)]);
        check(&["loopback"], &[("serve", 0.75), ("think", 0.25)]);
    }

    #[test]
    fn peers_are_found_by_any_call_and_by_local_sockets() {
        let Some(_one) = allowed() else { return };
        check(&["polled"], &[("serve", 0.75), ("think", 0.25)]);
        check(&["local"], &[("serve", 0.75), ("think", 0.25)]);
    }

    #[test]
    fn what_is_shorter_than_looks_are_apart_has_its_share() {
        let Some(_one) = allowed() else { return };
        check(&["hurried"], &[("serve_soon", 0.75), ("think_fast", 0.25)]);
    }

    /// As on large machines: CPUs lead in turn, looks are ten milliseconds apart, and one sample in four takes one.
    #[test]
    fn a_leader_that_goes_from_cpu_to_cpu_and_looks_seldom_charges_the_same() {
        let Some(_one) = allowed() else { return };
        let large = |config: &mut Config| (config.as_on, config.looks) = (2048, 125);
        check_as(&["loopback"], &[("serve", 0.75), ("think", 0.25)], |config| config.as_on = 2048);
        check_as(&["fork_join"], &[("serial_part", 0.75), ("long_half", 0.25)], |config| config.as_on = 2048);
        check_as(&["hurried"], &[("serve_soon", 0.75), ("think_fast", 0.25)], large);
    }

    #[test]
    fn a_server_that_sleeps_is_charged_and_not_its_client() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "chain", || {
            let charged = charged(&["chain"], |_| {});
            let asleep = charged
                .waits(|doing, code| doing.starts_with("asleep for a time") && code.starts_with("look_up"));
            let all = charged.idle - charged.waits(|doing, _| doing.ends_with(END));
            println!("{:.1} % of {all:.2} CPU-s while the server slept", 100.0 * asleep / all);
            // Of 70 ms of idle time a round 60 are the server's, on two CPUs.
            assert!(asleep > 0.8 * all, "{asleep} of {all}: {:#?}", charged.rows);
        });
    }

    #[test]
    fn both_ends_may_be_in_pid_namespaces_of_their_own() {
        let Some(_one) = allowed() else { return };
        check(&["contained"], &[("serve", 0.75), ("think", 0.25)]);
    }

    #[test]
    fn rings_of_waits_end_at_who_works() {
        let Some(_one) = allowed() else { return };
        check(&["ring"], &[("last_of_ring", 0.625), ("second_of_ring", 0.25)]);
    }

    #[test]
    fn a_cycle_that_a_timeout_ends_is_told_as_a_timer() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "cycle", || {
            let charged = charged(&["cycle"], |_| {});
            let timer = charged.waits(|doing, code| {
                doing == "waiting for a timer in futex" && code.starts_with("give_up_later")
            });
            println!("{:.1} % of {:.2} CPU-s", 100.0 * timer / charged.idle, charged.idle);
            // Of each 43 ms both CPUs idle for 40.
            assert!(timer > 0.7 * charged.idle, "{timer} of {}: {:#?}", charged.idle, charged.rows);
        });
    }

    #[test]
    fn a_deadlock_does_not_hide_what_others_wait_for() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "deadlock", || {
            let charged = charged(&["deadlock"], |_| {});
            let napped = charged
                .waits(|doing, code| doing.starts_with("asleep for a time") && code.starts_with("nap"));
            assert!(napped > 0.7 * charged.idle, "{napped} of {}: {:#?}", charged.idle, charged.rows);
        });
    }

    /// A process that ends with the test, whatever its outcome: one left over would hold the test's output open.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().expect("it runs for ever");
            self.0.wait().expect("it has been killed");
        }
    }

    /// A part of `paths.c` that is not observed, as it tells its port: what clients of it wait for.
    fn not_observed(command: &mut Command, calls: &[(&str, &str)], named: &[&str]) {
        let mut server = Killed(command.stdout(Stdio::piped()).spawn().expect("a server"));
        let mut port = String::new();
        BufReader::new(server.0.stdout.take().expect("its output")).read_line(&mut port).expect("its port");
        for (client, call) in calls {
            hold(MOST, client, || {
                let charged = charged(&[client, port.trim()], |_| {});
                let all = charged.waits(|doing, _| doing.starts_with("waiting") && !doing.ends_with(END));
                let peer = charged.waits(|doing, _| {
                    named.iter().any(|name| doing == format!("waiting for {name} in {call}"))
                });
                println!("{client}: {:.1} % of {all:.2} CPU-s wait for the server", 100.0 * peer / all);
                assert!(peer > 0.85 * all, "{peer} of {all}: {:#?}", charged.rows);
            });
        }
        drop(server);
    }

    /// The server is another program, and not observed.
    #[test]
    fn a_peer_that_is_not_observed_is_named() {
        let Some(_one) = allowed() else { return };
        let both = [("client_in_recv", "recvfrom"), ("client_in_poll", "poll")];
        not_observed(Command::new(compile()).arg("server"), &both, &["server"]);
    }

    #[test]
    fn a_peer_in_a_container_is_named() {
        let Some(_one) = allowed() else { return };
        let mut contained = Command::new("unshare");
        contained.args(["--pid", "--mount", "--fork", "--kill-child"]).arg(compile()).arg("server");
        not_observed(&mut contained, &[("client_in_recv", "recvfrom")], &["server"]);
    }

    /// Each answer comes from a process of its own, which ends with it: its name is known, or told not to be, and never another.
    #[test]
    fn a_waker_that_has_gone_gives_no_other_its_name() {
        let Some(_one) = allowed() else { return };
        let calls = [("client_in_recv", "recvfrom")];
        let named = ["server", "another program"];
        not_observed(Command::new(compile()).arg("errands"), &calls, &named);
    }

    #[test]
    fn what_nobody_works_on_is_charged_to_the_wait_that_ends_it() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "naps", || {
            let charged = charged(&["naps"], |_| {});
            let napped = charged
                .waits(|doing, code| doing.starts_with("asleep for a time") && code.starts_with("nap"));
            // Of each 45 ms all CPUs idle for 40, and all but one for 5.
            assert!(napped > 0.7 * charged.idle, "{napped} of {}: {:#?}", charged.idle, charged.rows);
        });
    }

    #[test]
    fn a_timeout_is_told_as_a_timer() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "timeouts", || {
            let charged = charged(&["timeouts"], |_| {});
            let timer = charged.waits(|doing, code| {
                doing == "waiting for a timer in poll" && code.starts_with("poll_nothing")
            });
            assert!(timer > 0.7 * charged.idle, "{timer} of {}: {:#?}", charged.idle, charged.rows);
        });
    }
}
