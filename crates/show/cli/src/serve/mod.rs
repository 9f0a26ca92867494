//! `ncpu serve`: a watch without an end that others may ask, by HTTP.
//!
//! This process observes and hands each interval's tables to `ncpu-serve`, which answers requests. That one has given up
//! its user and all capabilities before it reads the first byte from the network.

mod server;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_collectors::cpus::{Intervals, Metric};
use ncpu_daemon::heap::{Trimmer, keep_small};
use ncpu_daemon::pace::{self, Pace};
use ncpu_daemon::privileges::{OBSERVER, become_user};
use ncpu_engine::engine::Config;
use ncpu_engine::observation::{Observation, Until};
use ncpu_feed::{Head, Settings};
use ncpu_files::Dir;
use ncpu_observe_core::program::User;
use ncpu_record::{Machine, Manifest};
use ncpu_schema::Purpose;
use ncpu_table::Table;

use crate::observer::go_ahead;
use crate::probes::ProbesArgs;
use crate::series::{Log, SeriesArgs};
use crate::stop;
use crate::subject::{Subject, interval};
use crate::target::TargetArgs;
use server::Server;

/// Watch all the time, and answer requests: Prometheus, pprof, tables, a page
#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    causes: crate::causes::CausesArgs,

    /// Where to listen: ADDRESS:PORT or unix:PATH. Addresses that other machines reach need --token-file and --tls-cert
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9477")]
    listen: String,

    /// Answer only requests that give the token in FILE, as a bearer token or as the password of any user
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Speak TLS, with the chain of certificates in FILE (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Send the stacks to the collector of OpenTelemetry at URL, as in http://127.0.0.1:4318 or https://collector.example
    #[arg(long, value_name = "URL", value_parser = collector)]
    otlp: Option<String>,

    /// Certificate authorities of an https collector, in PEM [default: the system's]
    #[arg(long, value_name = "FILE", requires = "otlp")]
    otlp_ca: Option<PathBuf>,

    /// Send them every SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, requires = "otlp", value_parser = crate::duration::seconds)]
    otlp_every: f64,

    /// User to switch to after attaching [default: ncpu if that user exists, else nobody]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Memory for past intervals, which are held compressed
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = history)]
    history: u64,

    /// Permissions of a Unix socket, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = crate::table_args::permissions, hide_short_help = true)]
    mode: u32,

    /// Timer samples a second on each CPU (fewer on machines of more than 200 CPUs)
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 49, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hz: u32,

    #[command(flatten)]
    probes: ProbesArgs,

    /// Length of an interval in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = crate::duration::seconds)]
    interval: f64,

    /// With -a: trace the locks of libncpu too, in every program of the machine that has them. That puts breakpoints
    /// into their files, which debuggers and Valgrind may trip over
    #[arg(long)]
    user_locks: bool,

    /// Record too, in DIR, which the user must own (see --rotate)
    #[arg(long, value_name = "DIR", requires = "rotate")]
    record: Option<PathBuf>,

    #[command(flatten)]
    series: SeriesArgs,

    /// Count system calls of each CPU too, for the page and table `cpus`: each call of every program then takes the kernel's longer
    /// way in
    #[arg(long)]
    system_calls: bool,

    /// How long, in seconds or as in 10m [default: until Ctrl-C]
    #[arg(value_parser = crate::duration::seconds)]
    seconds: Option<f64>,
}

/// Counters of each CPU.
fn columns(args: &ServeArgs) -> Vec<Metric> {
    if args.system_calls { Metric::ALL.to_vec() } else { Intervals::METRICS.to_vec() }
}

/// The address of a collector.
fn collector(text: &str) -> Result<String, String> {
    ncpu_http::Url::parse(text).map(|_| text.to_owned()).map_err(|why| why.to_string())
}

fn history(text: &str) -> Result<u64, String> {
    let bytes = ncpu_measure::populate::number(&text.to_ascii_lowercase());
    bytes
        .filter(|n| (1 << 20..=1 << 40).contains(n))
        .ok_or_else(|| "give 1M or more, as in 64M (K, M, G: powers of 1024)".into())
}

/// The user to switch to: the named one, `ncpu`, or nobody.
fn user(name: Option<&str>) -> anyhow::Result<User> {
    match name {
        Some(name) => User::find(name).context("--user"),
        None => User::find("ncpu").or_else(|_| User::find("nobody")).context("whom to be instead of root"),
    }
}

/// Observes and serves until the subject ends, its time is up or Ctrl-C.
///
/// # Errors
/// It cannot listen there, nothing can be observed, or the server ends.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    args.causes.read()?;
    let causes = args.causes.texts()?.into_iter().map(|(_, text)| text).collect();
    let interval = interval(args.interval)?;
    let rotate = args.series.rotate(args.record.as_deref(), interval)?;
    let root = rustix::process::geteuid().is_root();
    let user = if root { Some(user(args.user.as_deref())?) } else { None };
    let user = user.map(|user| (user.uid, user.gid));
    require!(user != Some((0, 0)), "--user: root would give up nothing");
    keep_small();
    let stop = stop::on_signals()?;
    ncpu_files::reader::end_with(&stop);
    pace::allow();
    let starting = Pace::keep(&stop, Vec::new());
    let subject = Subject::running(&args.target, args.seconds)?;
    if let Some(((_, dir), user)) = rotate.zip(user) {
        make_for(dir, user).context("--record")?;
    }
    let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |c| c.len()) as u64;
    let mut manifest = Manifest::new(Purpose::Watch, cpus, subject.words.clone(), interval.as_secs_f64());
    Machine::here().put(&mut manifest);
    // Before anything is attached: a port that is taken is reported at once.
    let mut server = Server::start(&Settings {
        listen: args.listen.clone(),
        token: args.token_file.clone(),
        tls: args.tls_cert.clone().zip(args.tls_key.clone()),
        user,
        history: args.history,
        mode: args.mode,
        otlp: args.otlp.clone(),
        otlp_ca: args.otlp_ca.clone(),
        otlp_every: args.otlp_every,
        causes,
        manifest,
    })?;
    let config = Config {
        user_locks_of_all: args.user_locks,
        probes: args.probes.get(),
        ..Config::onion(subject.target.clone(), args.hz)
    };
    let mut observation = Observation::begin(&config)?;
    let mut cpus = Intervals::begin(&columns(args))?;
    // While it may.
    go_ahead();
    ncpu_files::reader::keep_pace();
    // No thread is to keep root.
    drop(starting);
    if let Some(user) = user {
        become_user(user, OBSERVER).context("giving up root")?;
    }
    // By the user, who is to write to it.
    let words = || subject.words.clone();
    let log = rotate.map(|(rotate, dir)| Log::open(&args.series, rotate, dir, words(), interval)).transpose();
    let mut log = log.with_context(|| match user {
        Some((uid, _)) => format!("as user {uid}, who must own the directory (--user)"),
        None => String::new(),
    })?;
    log.as_mut().map(|log| log.begin(observation.when(0.0))).transpose()?;
    let pace = Pace::keep(&stop, vec![server.pid()]);
    server.begin()?;
    say!("ncpu: watching {}, and serving {}, until Ctrl-C", subject.words.join(" "), server.address());
    let deadline = subject.deadline();
    let mut next = Instant::now() + interval;
    let mut since = 0.0;
    let mut heap = Trimmer::begin();
    loop {
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        let ended = || stop.load(Ordering::Relaxed) || server.has_ended();
        let mut tables: Vec<Table> = Vec::new();
        let mut take = |table: &Table| -> anyhow::Result<()> {
            tables.push(table.clone());
            Ok(())
        };
        // The rest of an interval comes with its turn: nothing is due before.
        let why = observation.watch(subject.end(), Some(until), 2 * interval, &ended, &mut take)?;
        if is_for_nobody(why, log.is_some(), server.has_ended()) {
            break;
        }
        // First: finding names for what the observation saw takes time.
        cpus.turn()?;
        let at = observation.turn(&mut take)?;
        tables.push(cpus.table(at));
        let late = pace.note();
        let notes = [&observation.notes(), cpus.notes(), late.as_slice()].concat();
        log.as_mut().map(|log| log.interval(&tables, since, observation.when(since), &notes)).transpose()?;
        server.send(head(since, at, notes), tables)?;
        since = at;
        heap.look();
        if why != Until::Time || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        while next <= Instant::now() {
            next += interval;
        }
    }
    server.end()?;
    log.map(|log| log.close(&observation.notes())).transpose()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether nobody can ask for the interval that has just ended: the server ends with this program, and what is not recorded is gone.
fn is_for_nobody(why: Until, recorded: bool, server_has_ended: bool) -> bool {
    // `Server::send` reports that the server has ended.
    why == Until::Stopped && !recorded && !server_has_ended
}

/// Makes a directory that is not there yet for the user who is to write to it.
fn make_for(dir: &Path, (user, group): (u32, u32)) -> std::io::Result<()> {
    match Dir::make(dir, crate::out::mode()) {
        Ok(made) => made.give(user, group),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// Report of an interval that has just ended.
fn head(since: f64, at: f64, notes: Vec<String>) -> Head {
    let end = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let end = end.unwrap_or(Duration::ZERO).as_secs_f64();
    let (cpu, resident) = ncpu_daemon::own_use();
    Head { start: end - (at - since), end, since, notes, cpu, resident, ..Head::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_last_moment_are_made_for_a_recording_alone() {
        assert!(is_for_nobody(Until::Stopped, false, false));
        assert!(!is_for_nobody(Until::Stopped, true, false) && !is_for_nobody(Until::Stopped, false, true));
        for why in [Until::Time, Until::Ended] {
            assert!(!is_for_nobody(why, false, false), "{why:?}");
        }
    }
}
