//! `ncpu place`: where a program runs and where its memory lies.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use ncpu_collectors::numa::Wants;
use ncpu_machine::Topology;
use ncpu_observe_core::program::Child;
use ncpu_remedy::launch::{Launch, Step};
use ncpu_remedy::place::balance::{Balancer, Options, State, Whose, check};
use ncpu_remedy::place::loads::Loads;
use ncpu_remedy::place::policy::Policy;
use ncpu_remedy::place::{choice_table, moves_table};
use ncpu_remedy::schedule::Class;
use ncpu_table::Format;

use crate::stop;
use crate::table_args::TableArgs;
use crate::undo;

/// Choose where a command runs and where its memory lies, or keep a running program level
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// spread[:N], pack:N, local[:NODE], interleave[:NODES], bind:CPUS[@NODES], any, or balance
    #[arg(value_name = "POLICY")]
    policy: String,

    /// Balance process PID and all it starts
    #[arg(short, long, value_name = "PID", conflicts_with = "cgroup")]
    pid: Option<u32>,

    /// Balance the processes of a control group, given by its directory
    #[arg(short, long, value_name = "DIR")]
    cgroup: Option<std::path::PathBuf>,

    /// Schedule the command as batch, idle, fifo:1-99, rr:1-99, or with a slice of its own, slice:MILLISECONDS
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,

    /// Change nothing: print what would be done
    #[arg(long)]
    dry_run: bool,

    /// Leave memory where it is
    #[arg(long)]
    no_memory: bool,

    /// Seconds between two looks at the threads
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2, value_parser = crate::duration::seconds)]
    interval: f64,

    /// End after SECONDS, and give threads their CPUs back [default: when the program ends]
    #[arg(long = "for", value_name = "SECONDS", value_parser = crate::duration::seconds)]
    length: Option<f64>,

    #[command(flatten)]
    rows: TableArgs,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// The policy cannot be had here, or there is nothing to balance.
pub fn run(args: &PlaceArgs) -> anyhow::Result<ExitCode> {
    let machine = Topology::read("/".as_ref())?;
    if args.policy == "balance" {
        require!(args.class.is_none(), "--class: balance leaves the scheduling class as it is");
        return balance(args, &machine);
    }
    let choice = args.policy.parse::<Policy>().map_err(|why| mistake!("{why}"))?.choose(&machine)?;
    args.rows.select().check(choice_table(&choice).columns(), "choice")?;
    require!(
        args.pid.is_none() && args.cgroup.is_none(),
        "{}: only balance works on processes that run already; a policy needs a command",
        args.policy
    );
    if args.dry_run {
        args.rows.print(choice_table(&choice))?;
        return Ok(ExitCode::SUCCESS);
    }
    require!(!args.command.is_empty(), "no command is given; --dry-run only prints what would be chosen");
    let environment = std::env::vars_os().collect();
    let mut steps = choice.steps();
    steps.extend(args.class.map(Step::Schedule));
    let error = Launch::new(&args.command, environment).steps(steps).become_it();
    say!("ncpu place: {error}");
    Ok(error.exit_status().into())
}

fn balance(args: &PlaceArgs, machine: &Topology) -> anyhow::Result<ExitCode> {
    let interval =
        Duration::try_from_secs_f64(args.interval).ok().filter(|d| *d >= Duration::from_millis(10));
    let interval = interval.ok_or_else(|| mistake!("--interval {}: give 0.01 or more", args.interval))?;
    let length = args
        .length
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|_| mistake!("--for: give seconds"))?;
    // A column that the table lacks is an error before a program runs.
    args.rows.select().check(moves_table(&[]).columns(), "moves")?;
    let stop = stop::on_signals()?;
    let mut child = None;
    let whose = match (args.pid, &args.cgroup, args.command.is_empty()) {
        (Some(pid), None, true) => {
            check(pid)?;
            Whose::Tree(pid)
        }
        (None, Some(dir), true) => {
            anyhow::ensure!(
                dir.join("cgroup.procs").exists(),
                "{}: not the directory of a control group",
                dir.display()
            );
            Whose::Cgroup(dir.clone())
        }
        (None, None, false) => {
            crate::out::leave_stdout_to_command();
            let held = Child::hold(&args.command)?;
            let pid = held.pid();
            child = Some(held);
            Whose::Tree(pid)
        }
        _ => usage!("give one of a command, -p PID and -c DIR to balance"),
    };
    let fights = numa_balancing();
    let migrated = migrated();
    let options = Options { dry_run: args.dry_run, memory: !args.no_memory };
    // By an iterator in the kernel; without the rights for it /proc is read, thread by thread.
    let loads = Wants::load().ok();
    let loads = loads.map(|wants| Box::new(move || wants.read().map_err(std::io::Error::other)) as Loads);
    let mut balancer = Balancer::new(machine, whose, options, undo::begin()?, loads);
    if let Some(child) = &mut child {
        child.release()?;
    }
    let (begin, (started, _)) = (Instant::now(), ncpu_daemon::own_use());
    let mut ended = None;
    while !stop.load(Ordering::Relaxed) && length.is_none_or(|l| begin.elapsed() < l) {
        let there = balancer.look()?;
        ended = child.as_ref().and_then(|c| c.wait(false));
        if ended.is_some() || (!there && child.is_none()) {
            break;
        }
        stop::wait(Instant::now() + interval, &stop);
    }
    let (first, last) = (balancer.first, balancer.last);
    let (done, replayed) = balancer.finish();
    // A program that was started here runs to its end, unbalanced from here on.
    if let Some(child) = child.as_ref().filter(|_| ended.is_none()) {
        ended = child.wait(true);
    }
    undo::tell(&replayed, false);
    args.rows.print(moves_table(&done))?;
    if args.rows.format() == Format::Text {
        tell("at first", first.as_ref());
        tell("at last", Some(&last));
        let own = ncpu_daemon::own_use().0 - started;
        let capacity = begin.elapsed().as_secs_f64() * machine.ncpu() as f64;
        let share = 100.0 * own / capacity;
        say!(
            "ncpu: {own:.3} CPU-seconds for it, {share:.3} % of the machine's; {started:.3} before, to begin"
        );
    }
    if fights {
        let pages = self::migrated().zip(migrated).map_or(0, |(now, before)| now.saturating_sub(before));
        say!(
            "ncpu: the kernel's own NUMA balancing is on and has moved {pages} pages meanwhile, on the whole machine; \
             `sysctl kernel.numa_balancing=0` leaves it to ncpu"
        );
    }
    Ok(ended.map_or(ExitCode::SUCCESS, |e| ExitCode::from(e.status as u8)))
}

fn tell(when: &str, state: Option<&State>) {
    let Some(state) = state else { return say!("ncpu: {when} no thread ran") };
    let local = state.local.map_or(String::new(), |l| format!("; {:.0} % of memory local", 100.0 * l));
    say!(
        "ncpu: {when} {} threads ran, {} on CPUs of their own choice; imbalance {:.1} between nodes, {:.1} between \
         caches{local}",
        state.running,
        state.own,
        state.nodes,
        state.caches
    );
}

fn numa_balancing() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/numa_balancing").is_ok_and(|t| t.trim() != "0")
}

/// Pages that the kernel's NUMA balancing has moved since boot.
fn migrated() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|l| l.strip_prefix("numa_pages_migrated "))?.trim().parse().ok()
}
