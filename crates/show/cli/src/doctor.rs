//! `ncpu doctor`: what can be seen on this machine, what not, and what would change that.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ncpu_engine::engine::Config;
use ncpu_engine::observation::Observation;
use ncpu_machine::events::{Sources, mount_tracefs};
use ncpu_machine::{Topology, power};
use ncpu_observe_core::bpf_support::Error;
use ncpu_observe_core::program::Target;
use ncpu_report::wrap;
use ncpu_table::{Column, Format, Table, safe};

use crate::out::put;
use crate::table_args::{TableArgs, text_width};
use crate::{beside, fleet, version};

/// Show what can be seen on this machine, and what would show more
#[derive(Args, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    rows: TableArgs,
}

/// Whether something can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Yes,
    /// Not all of it.
    Partly,
    No,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Yes => "yes",
            Verdict::Partly => "part",
            Verdict::No => "no",
        }
    }
}

/// The capability that was tried.
#[derive(Debug, PartialEq, Eq)]
struct Check {
    verdict: Verdict,
    what: &'static str,
    /// The missing part and the command that adds it; empty if nothing is missing.
    why: String,
}

impl Check {
    fn new(verdict: Verdict, what: &'static str, why: impl Into<String>) -> Check {
        Check { verdict, what, why: why.into() }
    }

    fn yes(what: &'static str) -> Check {
        Check::new(Verdict::Yes, what, "")
    }

    fn no(what: &'static str, why: impl Into<String>) -> Check {
        Check::new(Verdict::No, what, why)
    }
}

/// Runs the command. Its exit status is 0, whatever is missing.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let root = rustix::process::geteuid().is_root();
    let mut checks = observing(root);
    checks.push(hardware());
    checks.push(bandwidth(Path::new("/")));
    checks.push(tracefs(root));
    checks.push(pages(root));
    checks.push(match power::find(Path::new("/")) {
        Ok(_) => Check::yes("energy (ncpu power)"),
        Err(e) => Check::no("energy (ncpu power)", e.to_string()),
    });
    checks.push(program("pages, metrics and profiles over HTTP (ncpu serve)", ncpu_feed::PROGRAM));
    checks.push(program("many machines as one table (ncpu fleet)", fleet::PROGRAM));
    if args.rows.format() != Format::Text {
        args.rows.print_all(&table(&checks))?;
        return Ok(ExitCode::SUCCESS);
    }
    put(&text(&headline(root), &checks, text_width().clamp(60, 100)))?;
    Ok(ExitCode::SUCCESS)
}

/// Kernel, architecture, CPUs and user.
fn headline(root: bool) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = vec![
        format!("kernel {}", safe::line(kernel.trim())),
        std::env::consts::ARCH.replace("x86_64", "x86-64"),
    ];
    if let Ok(machine) = Topology::read(Path::new("/")) {
        parts.push(format!("{} CPUs", machine.online.len()));
        let nodes = machine.nodes.len();
        if nodes > 1 {
            parts.push(format!("{nodes} NUMA nodes"));
        }
    }
    parts.push(if root { "root".into() } else { "not root".into() });
    parts.join(", ")
}

const KERNEL: &str = "CPU time, waits, locks, interrupts, wake-ups: exact (BPF)";
const SAMPLES: &str = "user code by function: C, C++, Rust, Go, Java, JavaScript, Python (samples)";

/// Begins to observe this process, as `ncpu run` would, and takes what that says.
fn observing(root: bool) -> Vec<Check> {
    let config = Config::onion(Target::Tree(std::process::id()), 499);
    match Observation::begin(&config) {
        Ok(mut observation) => {
            let deadline = Instant::now() + Duration::from_millis(50);
            let mut none = |_: &Table| Ok::<(), std::convert::Infallible>(());
            let Ok(_) = observation.watch(None, Some(deadline), Duration::from_secs(1), &|| false, &mut none);
            let notes = observation.notes();
            let verdict = if notes.is_empty() { Verdict::Yes } else { Verdict::Partly };
            vec![Check::new(verdict, KERNEL, notes.join("; ")), Check::yes(SAMPLES)]
        }
        Err(Error::NotPermitted) => vec![
            Check::no(
                KERNEL,
                "needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE: run `sudo ncpu doctor`",
            ),
            samples_of_own(),
        ],
        Err(Error::PidNamespace) => vec![
            Check::no(
                KERNEL,
                "this is a PID namespace, as of a container: run it in the machine's own (docker run --pid=host, nsenter -t 1 -p)",
            ),
            samples_of_own(),
        ],
        Err(e) => {
            let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
            let why = match btf {
                false => "the kernel has no BTF (/sys/kernel/btf/vmlinux): it was built without CONFIG_DEBUG_INFO_BTF".into(),
                true => format!("{:#}", anyhow::Error::from(e)),
            };
            let own = if root { Check::no(SAMPLES, "as above") } else { samples_of_own() };
            vec![Check::no(KERNEL, why), own]
        }
    }
}

/// Perf events that an ordinary user may use.
fn samples_of_own() -> Check {
    let file = "/proc/sys/kernel/perf_event_paranoid";
    let level = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<i32>().ok());
    match level {
        Some(level) if level <= 2 => Check::new(
            Verdict::Partly,
            SAMPLES,
            "of your own processes, without the kernel's locks and waits (docs/without-root.md)",
        ),
        Some(level) => Check::no(
            SAMPLES,
            format!(
                "perf events are for root only (kernel.perf_event_paranoid is {level}): `sudo sysctl kernel.perf_event_paranoid=2` allows those of your own processes"
            ),
        ),
        None => Check::no(SAMPLES, format!("the kernel has no perf events ({file} is missing)")),
    }
}

fn hardware() -> Check {
    let what = "cache misses and cycles by hardware counters";
    match Sources::read(Path::new("/")) {
        Ok(sources) if sources.cores().next().is_some() => Check::yes(what),
        Ok(_) => Check::no(
            what,
            "this machine shows no PMU, as most virtual ones: waits for memory are estimated from samples instead",
        ),
        Err(e) => Check::no(what, e.to_string()),
    }
}

fn bandwidth(root: &Path) -> Check {
    let counted = root.join("sys/fs/resctrl/info/L3_MON").is_dir();
    Check::no(
        "memory bandwidth and cache by tenant",
        match counted {
            true => "ncpu does not read resctrl: losses through them are in user code",
            false => {
                "no counters by control group (resctrl is not mounted, or this CPU has none): losses through them are in user code"
            }
        },
    )
}

fn tracefs(root: bool) -> Check {
    let what = "tracepoints by name (ncpu counters)";
    if ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"]
        .iter()
        .any(|dir| Path::new(dir).is_dir())
    {
        return Check::yes(what);
    }
    match mount_tracefs() {
        Ok(_) => Check::new(
            Verdict::Yes,
            what,
            "tracefs is not mounted; ncpu mounts a copy of its own while it runs",
        ),
        Err(_) if !root => Check::no(
            what,
            "tracefs is not mounted here, or not for you: `sudo mount -t tracefs nodev /sys/kernel/tracing`",
        ),
        Err(e) => Check::no(what, format!("tracefs cannot be mounted: {e}")),
    }
}

fn pages(root: bool) -> Check {
    let what = "every page of memory by its use (ncpu memory)";
    match std::fs::File::open("/proc/kpageflags") {
        Ok(_) => Check::yes(what),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Check::no(
            what,
            "the kernel has no /proc/kpageflags: it was built without CONFIG_PROC_PAGE_MONITOR",
        ),
        Err(_) if !root => {
            Check::new(Verdict::Partly, what, "the kernel's own totals; pages one by one need root")
        }
        Err(e) => Check::no(what, format!("/proc/kpageflags: {e}")),
    }
}

/// A program that a command starts.
fn program(what: &'static str, name: &'static str) -> Check {
    match version::found(name) {
        Some(_) => Check::yes(what),
        None => Check::no(what, beside::missing("ncpu", name)),
    }
}

fn text(headline: &str, checks: &[Check], width: usize) -> String {
    let all = checks.iter().all(|check| check.verdict == Verdict::Yes);
    let rest = if all { "everything works" } else { "what is missing, and how to get it" };
    let mut out = format!("{headline}: {rest}\n");
    for check in checks {
        let line = match check.why.is_empty() {
            true => check.what.to_string(),
            false => format!("{}: {}", check.what, check.why),
        };
        out += &wrap(&line, width, &format!("  {:<5}", check.verdict.word()), "       ");
    }
    out
}

fn table(checks: &[Check]) -> Table {
    let mut out = Table::builder(
        "doctor",
        &[
            Column::text("can", "yes, part or no"),
            Column::text("what", "what is to be seen"),
            Column::text("why", "what is missing, and how to get it"),
        ],
    );
    for check in checks {
        out.row().text(check.verdict.word()).text(check.what).text(&check.why);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_stands_with_what_gives_it() {
        let checks = [Check::yes("a"), Check::no("b", "c is missing: `get c`")];
        assert_eq!(
            text("kernel 1", &checks, 60),
            "kernel 1: what is missing, and how to get it\n  yes  a\n  no   b: c is missing: `get c`\n"
        );
        assert_eq!(text("kernel 1", &checks[..1], 60), "kernel 1: everything works\n  yes  a\n");
        assert_eq!(table(&checks).num_rows(), 2);
    }

    /// Each of them can be had or has a reason.
    #[test]
    fn nothing_is_refused_without_a_reason() {
        let root = rustix::process::geteuid().is_root();
        let machine = tempfile::tempdir().expect("a directory");
        let without = bandwidth(machine.path());
        std::fs::create_dir_all(machine.path().join("sys/fs/resctrl/info/L3_MON")).expect("a directory");
        assert_ne!(without, bandwidth(machine.path()));
        for check in
            [without, hardware(), tracefs(root), pages(root), program("x", "no-such-program-of-ncpu")]
        {
            assert!(check.verdict == Verdict::Yes || !check.why.is_empty(), "{check:?}");
        }
    }
}
