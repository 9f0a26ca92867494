//! The commands with what their arguments do not tell: examples and where to read on, for help and manual pages.

use clap::CommandFactory;
use clap::builder::{Resettable, StyledStr};

use crate::Cli;

/// Examples of a command, each with what it shows, and what else to see.
struct More {
    command: &'static str,
    examples: &'static [(&'static str, &'static str)],
    see: &'static [&'static str],
}

/// Of `ncpu` itself.
const WHOLE: More = More {
    command: "",
    examples: &[
        ("ncpu run -- make -j8", "where every CPU-second went while a command ran"),
        ("ncpu watch 10", "the same of the whole machine, for ten seconds"),
        ("ncpu locks --by lock 10", "the locks that its threads waited for"),
        ("ncpu fix -- ./server --requests 100000", "what makes a command faster without changing it"),
    ],
    see: &["run", "watch", "locks", "threads", "cpus", "fix"],
};

const MORE: &[More] = &[
    More {
        command: "run",
        examples: &[
            ("ncpu run -- make -j8", "where the CPUs' time went while a build ran"),
            ("ncpu run --html build.html -- make -j8", "the same as a page too"),
            ("ncpu run --timeline -- make -j8", "over time too, and the onion of each phase"),
            ("ncpu run --user postgres --record pg.ncpu -- pgbench -T 10", "as another user, recorded"),
            ("ncpu run --table locks -o csv --output locks.csv -- make", "the locks it waited for, as CSV"),
        ],
        see: &["watch", "report", "locks", "threads"],
    },
    More {
        command: "watch",
        examples: &[
            ("ncpu watch 10", "the whole machine for ten seconds"),
            ("ncpu watch -p 1234 10 6", "a process, six times ten seconds"),
            ("ncpu watch -c system.slice/nginx.service --record web.ncpu 60", "a cgroup, recorded"),
            (
                "ncpu watch --record /var/lib/ncpu --rotate 10m --keep 7d --max 20G",
                "the machine for ever, in recordings of ten minutes",
            ),
        ],
        see: &["run", "report", "cpus"],
    },
    More {
        command: "serve",
        examples: &[
            ("ncpu serve", "the machine, asked at http://127.0.0.1:9477"),
            ("ncpu serve --listen unix:/run/ncpu.sock", "by a socket that only root may use"),
            (
                "ncpu serve --listen 0.0.0.0:9477 --token-file token --tls-cert cert.pem --tls-key key.pem",
                "for other machines too",
            ),
        ],
        see: &["watch", "report"],
    },
    More {
        command: "top",
        examples: &[
            ("ncpu top", "the machine, live"),
            ("ncpu top -p 1234 5", "a process, a look each five seconds"),
        ],
        see: &["watch", "threads", "locks", "cpus"],
    },
    More {
        command: "report",
        examples: &[
            ("ncpu report build.ncpu", "a recording again"),
            ("ncpu report build.ncpu --table threads -k USR --top 10", "its ten busiest threads"),
            ("ncpu report build.ncpu --html build.html", "as a page"),
            ("ncpu report build.ncpu --pprof build.pb", "for `go tool pprof -http : build.pb`"),
            (
                "ncpu report /var/lib/ncpu --at 03:12",
                "of what `ncpu watch --rotate` recorded there, the last 03:12",
            ),
        ],
        see: &["run", "watch"],
    },
    More {
        command: "import",
        examples: &[(
            "ncpu import perf.data --record make.ncpu",
            "a file of `perf record -e cpu-clock -g --switch-events -- make`, for `ncpu report make.ncpu`",
        )],
        see: &["report", "run", "diff"],
    },
    More {
        command: "diff",
        examples: &[("ncpu diff before.ncpu after.ncpu", "what changed between two recordings")],
        see: &["report", "run"],
    },
    More {
        command: "mcp",
        examples: &[
            ("ncpu mcp /var/lib/ncpu", "the recordings there, for an assistant that starts this command"),
            ("ncpu mcp --timeout 20 /var/lib/ncpu", "with answers that may take 20 seconds"),
        ],
        see: &["report", "why", "diff", "foresee"],
    },
    More {
        command: "locks",
        examples: &[
            ("ncpu locks 10", "contended locks of the machine for ten seconds"),
            ("ncpu locks --by lock -- make -j8", "those a build waits for"),
            ("ncpu locks --user -s 5 -p 1234 10", "locks of a process, with five frames of their stacks"),
            ("ncpu locks --import lockstat.out --ncpu 512", "lockstat's output of another machine"),
        ],
        see: &["run", "threads", "crosscalls"],
    },
    More {
        command: "threads",
        examples: &[
            ("ncpu threads", "microstates of every thread that ran, each second"),
            ("ncpu threads -p 1234 5 12", "of a process, twelve times five seconds"),
            ("ncpu threads --by process -k SYS --top 10", "the ten processes with most system time"),
        ],
        see: &["cpus", "run", "locks"],
    },
    More {
        command: "cpus",
        examples: &[
            ("ncpu cpus 1 10", "what each CPU does, each second, ten times"),
            (
                "ncpu cpus -k intr -A 4 -m 10 5",
                "four bands of CPUs by interrupts, means, five times ten seconds",
            ),
            ("ncpu cpus -A node 1", "by NUMA node"),
            ("ncpu cpus --live", "all CPUs as a coloured grid"),
        ],
        see: &["counters", "threads", "topology"],
    },
    More {
        command: "numa",
        examples: &[
            ("ncpu numa", "memory of processes by node against where they run"),
            ("ncpu numa -p 1234 --table memory", "every object of a process"),
        ],
        see: &["topology", "memory", "counters"],
    },
    More {
        command: "timers",
        examples: &[
            ("ncpu timers --calls 'poll*'", "how late poll returns"),
            ("ncpu timers --who 10", "who arms timers"),
            ("ncpu timers --poll 1000", "what a thousand sleepers cost"),
        ],
        see: &["cpus", "run"],
    },
    More {
        command: "counters",
        examples: &[
            ("ncpu counters 1", "a few hardware and software events of each CPU"),
            ("ncpu counters -e cycles,instructions -- make", "of a command"),
            ("ncpu counters --core 1 5", "how well cores are used"),
            ("ncpu counters --list 'sched:*'", "which tracepoints there are"),
        ],
        see: &["cpus", "power"],
    },
    More {
        command: "crosscalls",
        examples: &[
            ("ncpu crosscalls 10", "who interrupts other CPUs, and what it costs"),
            ("ncpu crosscalls --by process -- make", "of a command"),
        ],
        see: &["cpus", "run", "memory"],
    },
    More {
        command: "topology",
        examples: &[
            ("ncpu topology", "packages, cores, caches, nodes"),
            ("ncpu topology --table cpus -o csv", "a row for each CPU"),
            ("ncpu topology --psrinfo", "as psrinfo prints it"),
        ],
        see: &["numa", "cpus"],
    },
    More {
        command: "limits",
        examples: &[
            ("ncpu limits", "limits that are hit, near, or too small"),
            ("ncpu limits --for 2048,32T", "for a machine that is planned"),
        ],
        see: &["memory", "topology"],
    },
    More {
        command: "lines",
        examples: &[
            ("ncpu lines ./server", "words of a program that share cache lines"),
            ("ncpu lines --kernel", "the kernel's"),
            ("ncpu lines -p 1234", "of a process, with how often they move where the machine can tell"),
            (
                "ncpu lines -p 1234 --sets",
                "words and stacks that compete for one set of the first-level cache",
            ),
        ],
        see: &["locks", "counters", "colour"],
    },
    More {
        command: "memory",
        examples: &[
            ("ncpu memory", "what every page is for"),
            ("ncpu memory --by process", "its owner"),
            ("ncpu memory 10 6", "six times, ten seconds apart"),
        ],
        see: &["numa", "limits", "populate"],
    },
    More {
        command: "bench",
        examples: &[
            ("ncpu bench", "list the benchmarks"),
            ("ncpu bench getpid -T 4", "one, with four threads"),
            ("ncpu bench 'mem*' -- -s 8k", "several, with an option of their own"),
        ],
        see: &["scale", "power"],
    },
    More {
        command: "scale",
        examples: &[
            ("ncpu scale -- make -j{n}", "elapsed time of a build over CPU counts"),
            ("ncpu scale --metric 'tps = ([0-9.]+)' -- pgbench -c {n}", "throughput that the command prints"),
            ("ncpu scale --from points.csv --to 512", "figures measured elsewhere, predicted up to 512"),
        ],
        see: &["bench", "run"],
    },
    More {
        command: "foresee",
        examples: &[
            ("ncpu foresee app.ncpu --on 8x64x2", "a recorded program on 8 packages of 64 cores"),
            ("ncpu foresee app.ncpu --on 8x64x2 --rank", "which fix would give most there"),
            ("ncpu foresee --machines", "machines that have names"),
        ],
        see: &["scale", "run"],
    },
    More {
        command: "populate",
        examples: &[(
            "ncpu populate 4G",
            "creating and destroying a segment of 4 GiB, plainly and by several CPUs",
        )],
        see: &["memory", "preload"],
    },
    More {
        command: "power",
        examples: &[
            ("ncpu power --seconds 10", "power at rest"),
            ("ncpu power -- make -j8", "energy of a command"),
        ],
        see: &["counters", "bench"],
    },
    More {
        command: "dump",
        examples: &[
            ("ncpu dump 1234", "a core of a running process, compressed"),
            ("ncpu dump --extract core.1234.zst -o core", "the plain core of it, for a debugger"),
        ],
        see: &["memory", "threads"],
    },
    More {
        command: "partition",
        examples: &[
            ("ncpu partition 4 --clone data -- ./server data", "4 servers on clones of one directory"),
            ("ncpu partition 2 --metric 'tps = ([0-9.]+)' -- ./bench", "two instances beside one"),
        ],
        see: &["place", "fix", "topology"],
    },
    More {
        command: "place",
        examples: &[
            ("ncpu place spread -- ./solver", "threads over nodes, then caches, then cores"),
            ("ncpu place balance -p 4711", "keep a running process level"),
        ],
        see: &["numa", "partition", "topology"],
    },
    More {
        command: "hugepages",
        examples: &[
            ("ncpu hugepages -p 4711", "what lies on huge pages, and why the rest does not"),
            ("ncpu hugepages -- ./server", "a command with its memory on huge pages"),
        ],
        see: &["memory", "numa", "fix"],
    },
    More {
        command: "colour",
        examples: &[("ncpu colour", "what lines cost that compete for one set of a cache")],
        see: &["lines", "preload"],
    },
    More {
        command: "fix",
        examples: &[
            ("ncpu fix -- ./server --requests 100000", "try remedies that need no change of it"),
            ("ncpu fix -p 4711", "try settings on what runs, each undone again"),
            ("ncpu fix --undo", "clean up after killed commands"),
        ],
        see: &["run", "dose", "scale", "preload", "place", "partition", "hugepages"],
    },
    More {
        command: "dose",
        examples: &[
            (
                "ncpu dose -- ./server --requests 1000000",
                "which causes the program's speed hangs on, measured",
            ),
            ("ncpu dose --metric 'ops/s: ([0-9.]+)' -- ./bench", "by whole runs, whose output has the speed"),
            (
                "ncpu dose -p 1234 --metric-url http://127.0.0.1:9100/metrics#requests_total",
                "a service that runs, slowed by at most 3 % on average",
            ),
            ("ncpu dose --place lock:inode.i_rwsem --place call:write -- ./app", "two places and no others"),
        ],
        see: &["run", "fix", "scale"],
    },
    More {
        command: "explain",
        examples: &[
            ("ncpu explain", "all words that can be explained"),
            ("ncpu explain kernel lock spin", "a layer, and the advice that it may have"),
            ("ncpu explain descriptor-table", "an advice: its grounds and sources"),
            ("ncpu explain --check my.toml", "whether the examples of a file of causes bear them out"),
        ],
        see: &["run", "report", "locks"],
    },
    More {
        command: "why",
        examples: &[
            ("ncpu why db.ncpu", "all causes of a recording in full"),
            ("ncpu why 1 db.ncpu", "the first: its parts, stacks, what was ruled out"),
            ("ncpu why system calls db.ncpu", "a layer, and the causes that it went to"),
        ],
        see: &["run", "report", "explain"],
    },
    More {
        command: "fleet",
        examples: &[
            (
                "ncpu fleet add /data/fleet /data/recordings --labels hosts.csv",
                "recordings rolled up into a fleet",
            ),
            (
                "ncpu fleet onion /data/fleet --by kernel,label:type --since 7d",
                "where the fleet's capacity goes",
            ),
            (
                "ncpu fleet locks s3://bucket/fleet --by kernel --top 10",
                "the locks that cost most, by kernel",
            ),
            (
                "ncpu fleet regress /data/fleet --before 2026-11-10..12 --after 2026-11-14..",
                "what changed beyond noise, and on which machines",
            ),
            (
                "ncpu fleet fix /data/fleet thp --remedy thp=always --before 2026-11-10..12",
                "which machines get it first; --after judges it",
            ),
            ("ncpu fleet outliers /data/fleet", "machines unlike their kin"),
        ],
        see: &["run", "watch", "report", "diff"],
    },
    More {
        command: "preload",
        examples: &[
            ("ncpu preload --list", "which functions can be replaced"),
            ("ncpu preload getenv -- ./server", "a command with libncpu's getenv"),
        ],
        see: &["populate", "run"],
    },
    More {
        command: "doctor",
        examples: &[
            ("ncpu doctor", "what can be seen here, and what would show more"),
            ("ncpu doctor -o json", "the same for programs"),
        ],
        see: &["run", "counters", "memory"],
    },
    More {
        command: "completions",
        examples: &[("ncpu completions bash", "the script for bash, to be put where it looks for them")],
        see: &["man"],
    },
    More {
        command: "man",
        examples: &[("ncpu man /tmp/man", "the manual pages, in a directory")],
        see: &["completions"],
    },
];

/// The commands by what they are for, those that one begins with first.
const GROUPS: &[(&str, &[&str])] = &[
    ("See where the capacity goes", &["run", "watch", "top", "serve", "report", "why", "explain"]),
    (
        "See one part closely",
        &[
            "locks",
            "threads",
            "cpus",
            "numa",
            "timers",
            "counters",
            "crosscalls",
            "topology",
            "limits",
            "lines",
            "memory",
        ],
    ),
    ("Measure", &["bench", "scale", "dose", "populate", "power", "colour"]),
    ("Fix", &["fix", "place", "partition", "hugepages", "preload", "dump"]),
    ("Predict", &["foresee"]),
    ("Keep and compare", &["diff", "import", "fleet", "mcp"]),
    ("This program", &["doctor", "completions", "man", "help"]),
];

/// Output of `ncpu` alone: what to type first.
pub const FIRST: &str = "\
ncpu shows where a machine's CPU capacity goes, and gives it back.

  sudo ncpu run -- COMMAND      what costs COMMAND time, and what to do
  sudo ncpu top                 the machine, live
  sudo ncpu watch -a 10         every program, for 10 seconds
  sudo ncpu fix -- COMMAND      try remedies, keep those that help
  ncpu foresee DIR --on CPUS    the same program on a larger machine
  ncpu doctor                   what can be seen on this machine

Help: ncpu help, ncpu COMMAND --help, man ncpu
";

/// The commands in their groups, as the help of `ncpu` lists them.
fn grouped(whole: &clap::Command) -> String {
    let mut out = String::new();
    for (group, names) in GROUPS {
        out += &format!("{group}:\n");
        for name in *names {
            let Some(command) = whole.find_subcommand(name) else { continue };
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let alias = command.get_visible_aliases().map(|a| format!(" [alias: {a}]")).collect::<String>();
            let first = format!("  {name:<12} ");
            out += &ncpu_report::wrap(&(about + &alias), HELP_WIDTH, &first, &" ".repeat(first.len()));
        }
        out.push('\n');
    }
    out
}

const HELP_WIDTH: usize = 80;

/// The command line, with examples in the help of each command.
pub fn command() -> clap::Command {
    let mut built = Cli::command();
    built.build();
    // clap makes an end of line of `{n}`, and knows nothing else here.
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        grouped(&built)
    );
    let mut whole = Cli::command().help_template(template).after_help(text(&WHOLE));
    // `--config` is taken anywhere, and shown where it does something.
    for name in ["watch", "serve", "top"] {
        whole = whole.mut_subcommand(name, |command| {
            command.after_help("--config FILE takes options from FILE instead of /etc/ncpu.toml.")
        });
    }
    // Options of `run` that say more for `watch`.
    whole = whole.mut_subcommand("run", |command| {
        let hz = "Timer samples a second on each CPU (fewer on machines of more than 200 CPUs) [default: 99]";
        let interval = "Seconds between rows of the tables over time [default: 1; with --timeline 0.1]";
        command.mut_arg("hz", |arg| arg.help(hz)).mut_arg("interval", |arg| arg.help(interval))
    });
    MORE.iter().fold(whole, |whole, more| match whole.find_subcommand(more.command) {
        None => whole,
        Some(_) => whole.mut_subcommand(more.command, |command| {
            let before = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
            command.after_help(before + &text(more))
        }),
    })
}

/// A mistaken command with the one that is meant: the fewest letters changed, left out, added or exchanged with their
/// neighbours.
pub fn nearer(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) {
        let whole = Cli::command();
        let names =
            whole.get_subcommands().flat_map(|c| std::iter::once(c.get_name()).chain(c.get_all_aliases()));
        let near = names.map(|name| (strsim::osa_distance(given, name), name)).min();
        let near = near.filter(|(distance, _)| *distance <= given.len() / 3 + usize::from(given.len() < 3));
        let near = near.map(|(_, name)| name.to_string());
        error.remove(ContextKind::SuggestedSubcommand);
        if let Some(name) = near {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![name]));
        }
    }
    error
}

fn text(more: &More) -> String {
    let mut out = String::from("Examples:");
    for (example, what) in more.examples {
        // clap would make an end of line of `{n}`.
        out += &format!("\n  {}\n      {what}", example.replace("{n}", "{N}"));
    }
    out + &format!("\n\nSee also: {}", see(more, " "))
}

fn see(more: &More, between: &str) -> String {
    more.see.iter().map(|name| format!("ncpu{between}{name}")).collect::<Vec<_>>().join(", ")
}

/// A manual page; `name` is a command's, or none for that of `ncpu` itself.
///
/// # Errors
/// Memory is short.
pub fn page(whole: &clap::Command, name: Option<&str>) -> std::io::Result<Vec<u8>> {
    let title = name.map_or("ncpu".to_string(), |name| format!("ncpu-{name}"));
    let command = name.and_then(|name| whole.find_subcommand(name)).unwrap_or(whole).clone();
    // Examples have a section of their own here.
    let own = name.map_or(Some(&WHOLE), |name| MORE.iter().find(|more| more.command == name));
    let command = match own {
        Some(more) => {
            let rest = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let rest = rest.replace(&text(more), "").trim().to_string();
            match rest.as_str() {
                "" => command.after_help(Resettable::<StyledStr>::Reset),
                _ => command.after_help(rest),
            }
        }
        None => command,
    };
    let mut out = body(&command, title)?;
    let mut roff = clap_mangen::roff::Roff::new();
    if let Some(more) = own {
        roff.control("SH", ["EXAMPLES"]);
        for (example, what) in more.examples {
            roff.control("TP", []);
            roff.text([clap_mangen::roff::bold(*example)]);
            roff.text([clap_mangen::roff::roman(*what)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let see = match own {
        Some(more) if name.is_some() => {
            more.see.iter().map(|name| format!("ncpu-{name}(1)")).collect::<Vec<_>>().join(", ")
        }
        _ => whole
            .get_subcommands()
            .filter(|c| c.get_name() != "help")
            .map(|c| format!("ncpu-{}(1)", c.get_name()))
            .collect::<Vec<_>>()
            .join(", "),
    };
    roff.text([clap_mangen::roff::roman(see)]);
    roff.to_writer(&mut out)?;
    Ok(out)
}

/// The manual page of a command of a command.
///
/// # Errors
/// Memory is short.
pub fn page_below(above: &clap::Command, command: &clap::Command) -> std::io::Result<Vec<u8>> {
    let (above, name) = (above.get_name(), command.get_name());
    let mut out = body(command, format!("ncpu-{above}-{name}"))?;
    let mut roff = clap_mangen::roff::Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([clap_mangen::roff::roman(format!("ncpu-{above}(1)"))]);
    roff.to_writer(&mut out)?;
    Ok(out)
}

/// Clap's description of a command.
fn body(command: &clap::Command, title: String) -> std::io::Result<Vec<u8>> {
    let page = clap_mangen::Man::new(command.clone()).title(title);
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    if command.get_arguments().any(|a| !a.is_hide_set()) {
        page.render_options_section(&mut out)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(&mut out)?;
    }
    if command.get_after_help().is_some() {
        page.render_extra_section(&mut out)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_that_parse() {
        let whole = command();
        for sub in whole.get_subcommands().filter(|c| c.get_name() != "help") {
            let name = sub.get_name();
            let more = MORE.iter().find(|more| more.command == name);
            let more = more.unwrap_or_else(|| panic!("{name} has no examples: add them to help.rs"));
            assert!(!more.examples.is_empty() && !more.see.is_empty(), "{name}");
            for (example, _) in more.examples {
                assert!(example.starts_with(&format!("ncpu {name}")), "{example}");
                // As a shell parts it; no example has more than quotes.
                let words = example.replace('\'', "");
                let parsed = whole
                    .clone()
                    .try_get_matches_from(words.split(' ').filter(|w| *w != "=").collect::<Vec<_>>());
                // A regular expression with blanks is parted too far here.
                assert!(parsed.is_ok() || example.contains("tps"), "{example}: {}", parsed.unwrap_err());
            }
            for other in more.see {
                assert!(whole.find_subcommand(other).is_some(), "{name}: see also {other}");
            }
            let help = sub.clone().render_help().to_string();
            assert!(help.contains("Examples:") && help.contains("See also: ncpu "), "{help}");
        }
    }

    #[test]
    fn each_command_stands_in_one_group() {
        let mut whole = Cli::command();
        whole.build();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in whole.get_subcommands().filter(|command| !command.is_hide_set()) {
            let times = listed.iter().filter(|name| **name == command.get_name()).count();
            assert_eq!(times, 1, "{}: name it in one of help.rs' GROUPS", command.get_name());
        }
        let help = command().render_help().to_string();
        assert!(help.contains("Fix:\n  fix          Find what makes a command faster"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= HELP_WIDTH), "{help}");
    }

    #[test]
    fn the_first_words_are_commands() {
        let words = FIRST.lines().filter_map(|line| line.strip_prefix("  ")?.split("  ").next());
        let mut lines = 0;
        for line in words {
            let line = line.trim_start_matches("sudo ").replace("COMMAND", "true").replace("CPUS", "64");
            let parsed = command().try_get_matches_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            lines += 1;
        }
        assert_eq!(lines, 6);
    }

    #[test]
    fn commands_that_reports_print_parse() {
        for printed in ncpu_report::commands::COMMANDS {
            let words = printed.replace("CMD", "./my program");
            let parsed = command().try_get_matches_from(words.split(' '));
            assert!(parsed.is_ok(), "{printed}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn pages_have_examples_and_see_also() {
        let whole = command();
        let page = |name| String::from_utf8(page(&whole, name).unwrap()).unwrap();
        let run = page(Some("run"));
        for section in ["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "\"SEE ALSO\""] {
            assert!(run.contains(&format!(".SH {section}")), "{section}: {run}");
        }
        assert_eq!(run.matches("make \\-j8").count(), 3, "{run}");
        let own = page(None);
        assert!(own.contains(".SH EXAMPLES") && own.contains("ncpu\\-locks(1)"), "{own}");
        assert!(page(Some("scale")).contains("{n}"), "a placeholder is not an end of line");
    }
}
