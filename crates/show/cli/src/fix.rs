//! `ncpu fix`: peels a command, tries the remedies that need no change of it, and keeps those that help.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ncpu_machine::Topology;
use ncpu_machine::limits::Limits;
use ncpu_remedy::fix::search::{Bench, Found, Layers, Once, Options, Part, Run, Tried, search};
use ncpu_remedy::fix::{self, Allowed, Remedy, found, wanted};
use ncpu_remedy::journal::{self, Undo};
use ncpu_remedy::preload::Places;
use ncpu_report::causes::Change;
use ncpu_report::onion::Onion;
use ncpu_table::{Format, safe};

use crate::command::{Held, Ran};
use crate::metric::{Measure, MetricArgs};
use crate::out::{progress, progress_over};
use crate::scale::peel;
use crate::scale::plan::Spot;
use crate::stop;
use crate::table_args::{TableArgs, known_table, text_width};
use crate::undo;
use crate::{fix_process, fix_tenant};

/// Find what makes a command faster without changing it: peel, try remedies, keep what helps; undo what was left behind
#[derive(Args, Debug)]
pub struct FixArgs {
    /// Undo what commands that were killed had changed, and end
    #[arg(long, conflicts_with_all = ["command", "list"])]
    undo: bool,

    /// Show the remedies that would be tried, and end
    #[arg(long)]
    list: bool,

    /// Try settings (weights, CPUs, bursts and limits of control groups, CPUs of interrupts) that protect the tenant NAME from others,
    /// while they run; each is undone
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "undo"])]
    tenant: Option<String>,

    /// Level of the name in --tenant: tenant, unit, pod, container, job, user, program or cgroup=DEPTH
    #[arg(long, value_name = "LEVEL", requires = "tenant", default_value = "tenant")]
    by: ncpu_machine::tenant::By,

    /// Try settings (CPUs, scheduling, its control group) on process PID while it runs; each is undone
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["command", "undo", "tenant"])]
    pid: Option<u32>,

    /// With -p: speed is a counter's growth: http://HOST:PORT/PATH#NAME or file:///PATH#NAME, NAME as Prometheus has it
    #[arg(long, value_name = "URL", conflicts_with_all = ["count", "command", "undo", "tenant"])]
    metric_url: Option<String>,

    /// With -p: speed is counted in these: a system call, or function:[FILE:]NAME [default: the most regular system call]
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["command", "undo", "tenant"])]
    count: Option<String>,

    /// With --tenant or -p: keep the setting that helps most, if one does
    #[arg(long, conflicts_with_all = ["command", "undo"])]
    keep: bool,

    /// Undo a setting at once with which the neighbour loses more than PERCENT of its CPU time
    #[arg(long, requires = "tenant", value_name = "PERCENT", default_value_t = 50.0)]
    most_loss: f64,

    #[command(flatten)]
    causes: crate::causes::CausesArgs,

    #[command(flatten)]
    metric: MetricArgs,

    /// Rounds of each comparison: the command with and without a remedy, in random order
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,

    /// Keep a remedy only if it gains at least PERCENT
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    least: f64,

    /// Begin no comparison after SECONDS; a first run that takes longer is ended
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 900.0, value_parser = crate::duration::seconds)]
    length: f64,

    /// Try settings of the whole machine and of control groups too; they are undone at the end
    #[arg(long)]
    allow_system: bool,

    /// Try real-time scheduling too, which can starve other programs
    #[arg(long)]
    allow_realtime: bool,

    /// Try only remedies or settings with one of these words in their name
    #[arg(long = "try", value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,

    /// Do not peel: remedies are tried in the order of --list
    #[arg(long)]
    no_peel: bool,

    /// Print a table instead of the path: path, onions, remedies
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    /// Write the command with what helped to FILE, as a drop-in of a systemd service
    #[arg(long, value_name = "FILE")]
    systemd: Option<PathBuf>,

    #[command(flatten)]
    rows: TableArgs,

    /// The command and its arguments; n in braces stands for the number of workers, 1 at first
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD",
          required_unless_present_any = ["undo", "tenant", "pid"])]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// The command fails as it is, or the journal cannot be kept.
pub fn run(args: &FixArgs) -> anyhow::Result<ExitCode> {
    if args.undo {
        return undo_all();
    }
    if let Some(tenant) = &args.tenant {
        return fix_tenant::run(&fix_tenant::Order {
            tenant,
            by: args.by,
            rounds: args.rounds,
            least: args.least,
            most_loss: args.most_loss,
            only: &args.only,
            keep: args.keep,
            list: args.list,
            rows: &args.rows,
        });
    }
    require!(args.least >= 0.0 && args.least.is_finite(), "--least {}: give 0 or more", args.least);
    let length = Duration::try_from_secs_f64(args.length).map_err(|_| mistake!("--for: give seconds"))?;
    let allowed = Allowed { system: args.allow_system, realtime: args.allow_realtime };
    if let Some(pid) = args.pid {
        require!(
            args.metric.metric.is_none(),
            "--metric is of a command's output: with -p give --metric-url or --count"
        );
        return fix_process::run(&fix_process::Order {
            pid,
            metric_url: args.metric_url.as_deref(),
            count: args.count.as_deref(),
            rounds: args.rounds,
            least: args.least,
            length,
            only: &args.only,
            allowed,
            keep: args.keep,
            list: args.list,
            rows: &args.rows,
        });
    }
    args.causes.install()?;
    if let Some(name) = &args.table {
        known_table(name, ["path", "onions", "remedies"])?;
    }
    // A column that the table lacks is an error before a program runs.
    let shown = table_of(args.table.as_deref(), &Found::default());
    args.rows.select().check(shown.columns(), shown.name())?;
    let ncpu = std::env::current_exe().context("finding ncpu itself")?;
    let root = std::path::Path::new("/");
    let machine = Topology::read(root)?;
    let places = Places::of(&ncpu, std::env::var_os("NCPU_PRELOAD_DIR").as_deref());
    let preloads: Vec<String> = places.list().into_iter().map(|l| l.name).collect();
    let mut remedies = fix::catalogue(root, &machine, &args.command, &preloads, allowed)?;
    let names: Vec<String> = remedies.iter().map(|r| r.name.to_string()).collect();
    remedies.retain(|r| wanted(&args.only, &r.name));
    anyhow::ensure!(
        !remedies.is_empty() || names.is_empty(),
        "--try {}: unknown remedy; expected words of one of: {}",
        args.only.join(","),
        names.join(", ")
    );
    if args.list {
        return list(args, &remedies);
    }
    let stop = stop::on_signals()?;
    let measure = args.metric.measure()?;
    let mut journal = undo::begin()?;
    let token = format!("fix-{}-{:x}", std::process::id(), fastrand::u64(..));
    // Only if this command is killed: what a run leaves behind by itself is the user's own.
    let runs = journal.will(Undo::Marked { token: token.clone() })?;
    let options = Options {
        command: args.command.clone(),
        ncpu: ncpu.into_os_string(),
        rounds: args.rounds,
        least: args.least,
        length,
        has_metric: args.metric.metric.is_some(),
        peel: !args.no_peel,
    };
    let mut here = Here { args, measure, stop: &stop, token };
    let mut found = Found::default();
    let result = search(&mut here, &mut journal, &options, remedies, &mut found);
    let forgotten = journal.done(runs);
    undo::tell(&journal.finish(), false);
    result?;
    forgotten?;
    report(args, &found, &options.ncpu)?;
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(stop::status()) } else { ExitCode::SUCCESS })
}

fn undo_all() -> anyhow::Result<ExitCode> {
    let mut whole = true;
    let all = journal::replay(&journal::directory())?;
    for replayed in &all {
        whole &= undo::tell(replayed, true);
    }
    if all.is_empty() {
        say!("ncpu: nothing to undo");
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(args: &FixArgs, remedies: &[Remedy]) -> anyhow::Result<ExitCode> {
    args.rows.print(found::remedies_table(remedies))?;
    Ok(ExitCode::SUCCESS)
}

/// The runs of a search on this machine.
struct Here<'a> {
    args: &'a FixArgs,
    measure: Measure,
    stop: &'a AtomicBool,
    /// Marks the processes of runs.
    token: String,
}

/// A first run that takes longer is worth a line.
const LONG: Duration = Duration::from_secs(30);

impl Here<'_> {
    fn held(&self, argv: &[OsString], most: Duration, first: bool) -> anyhow::Result<Ran> {
        let mark = [("NCPU_RUN".into(), self.token.clone().into())];
        let mut said = false;
        Held::with(argv, None, &mark)?.run_for(self.stop, most, &mut |time| {
            if first && !said && time >= LONG {
                said = true;
                say!(
                    "ncpu fix: the command has run for {} s; it is ended after {:.0} s if it does not end by itself",
                    LONG.as_secs(),
                    most.as_secs_f64()
                );
            }
        })
    }
}

impl Bench for Here<'_> {
    type Error = anyhow::Error;

    fn run(&mut self, argv: &[OsString], most: Duration, first: bool) -> anyhow::Result<Once> {
        Ok(match self.held(argv, most, first)? {
            Ran::Stopped => Once::Stopped,
            Ran::Late => Once::Late,
            Ran::Done(done) => match self.measure.of(&done) {
                Ok(throughput) => Once::Ran(Run {
                    throughput,
                    elapsed: done.elapsed,
                    cpu: done.ended.user + done.ended.system,
                    rss: done.ended.max_rss,
                }),
                Err(why) => Once::Failed(why),
            },
        })
    }

    fn time(&mut self, argv: &[OsString], most: Duration) -> anyhow::Result<Option<(f64, u64)>> {
        match self.held(argv, most, false)? {
            Ran::Done(done) if done.ended.status == 0 => Ok(Some((done.elapsed, done.ended.max_rss))),
            _ => Ok(None),
        }
    }

    fn peel(&mut self, argv: &[OsString]) -> Result<Option<Layers>, String> {
        let spot = Spot { n: 1, cpus: None, oversubscribed: false, argv: argv.to_vec() };
        let observed = peel::observe(&spot, self.stop).map_err(|e| format!("{e:#}"))?;
        let Some((_, recording)) = observed else { return Ok(None) };
        let onion = Onion::peel(&recording).map_err(|e| e.to_string())?;
        let part = |row: &ncpu_report::onion::Row| Part {
            layer: row.layer,
            share: row.share,
            advice: row.remedy(),
            of_the_program: row.remedy_by(Change::Program),
        };
        Ok(Some(onion.rows.iter().map(part).collect()))
    }

    fn limits(&mut self) -> Vec<Remedy> {
        if !self.args.allow_system {
            return Vec::new();
        }
        let limits = match Limits::read("/".as_ref()) {
            Ok(limits) => limits,
            Err(e) => {
                say!("ncpu fix: limits are not looked at: {}", safe::cut(&e.to_string(), 200));
                return Vec::new();
            }
        };
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups: Vec<String> =
            own.lines().filter_map(|l| Some(l.splitn(3, ':').nth(2)?.to_string())).collect();
        let lifts = ncpu_report::limits::lifts(&limits, &groups);
        let lifts = lifts.into_iter().map(|l| fix::lifted(&l.limit, &l.why, l.file, l.value));
        lifts.filter(|r| wanted(&self.args.only, &r.name)).collect()
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn progress(&mut self, words: &str) {
        progress(words);
    }

    fn tried(&mut self, tried: &Tried) {
        if self.args.rows.format() == Format::Text && std::io::stderr().is_terminal() {
            progress_over();
            say!("{}: {}", tried.remedy.name, tried.verdict);
        }
    }

    fn say(&mut self, words: &str) {
        say!("{words}");
    }
}

/// The drop-in of a service.
fn drop_in(args: &FixArgs, kept: &[&Remedy], ncpu: &OsStr) -> anyhow::Result<String> {
    let argv = fix::absolute(&args.command, kept, ncpu).context("--systemd")?;
    let mut out = String::new();
    for (path, value) in kept.iter().flat_map(|r| &r.settings) {
        let file = safe::cut(&path.display().to_string(), 400);
        out.push_str(&format!("# with {} in {file}, which is not set by this file\n", safe::cut(value, 100)));
    }
    out.push_str(&format!("[Service]\nExecStart=\nExecStart={}\n", fix::exec_start(&argv)));
    Ok(out)
}

/// The table of this name, or the one that is shown without a name.
fn table_of(name: Option<&str>, found: &Found) -> ncpu_table::Table {
    match name {
        Some("onions") => found.onions_table(),
        Some("remedies") => found::remedies_table(&found.kept),
        _ => found.path_table(),
    }
}

fn report(args: &FixArgs, found: &Found, ncpu: &OsStr) -> anyhow::Result<()> {
    if let Some(file) = &args.systemd {
        let chosen: Vec<&Remedy> = found.kept.iter().collect();
        let text = drop_in(args, &chosen, ncpu)?;
        ncpu_files::NewFile::write(file, crate::out::mode(), text.as_ref())
            .with_context(|| format!("writing {}", file.display()))?;
        say!("ncpu: wrote {}", file.display());
    }
    if args.table.is_some() || args.rows.format() != Format::Text {
        let table = table_of(args.table.as_deref(), found);
        return args.rows.print(table);
    }
    let path = args.rows.select().apply(found.path_table())?;
    crate::out::put(&found.text(&args.command, &ncpu_table::render_text(&path, text_width())))
}
