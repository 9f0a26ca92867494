//! Threads' time: what the lives of the program's threads went to, beside the capacity of the CPUs.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_schema::{Activity, CpuState, Error, ON_QUEUE, queued, thread_time};
use ncpu_table::safe;

use crate::onion::evidence::collectors::is_java_machines;
use crate::seconds::figure;
use crate::wrap::middle;
use crate::wrap::wrap;

/// The part of the time of threads that had something to do below which a line is not shown.
const SHOWN: f64 = 0.02;
/// Lines at most, below the first.
const LINES: usize = 5;
/// Thread-seconds below which nothing is said.
const LEAST: f64 = 0.02;
/// The part of that time on CPU from which on no line says more than the first.
const BUSY: f64 = 0.95;
/// The part of a row that sampled sleeps must make up to be marked as sampled.
const SAMPLED: f64 = 0.1;

/// Seconds of one thing that threads did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Thread-seconds.
    pub seconds: f64,
    /// Of those, the ones divided by sampled sleeps.
    pub sampled: f64,
    /// Waits that ended.
    pub waits: f64,
    /// The thread that ended most of the waiting.
    pub holder: Option<String>,
    /// Seconds of waits that a thread ended, and of that the ones in which this thread slept.
    pub held: (f64, f64),
    /// The reason of its sleep then.
    pub holder_in: Option<String>,
    /// Seconds behind the holder above.
    most: f64,
}

/// The time of threads, all roles together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadTime {
    /// By what they did and what they waited for.
    pub parts: BTreeMap<(Activity, Option<String>), Part>,
    /// Processes that ran where threads stood on run queues, with the seconds behind each, most first; `None` of the program
    /// itself.
    pub behind: Vec<(Option<String>, f64)>,
    /// Threads that hardly run beside busy ones of their process, by role, with thread-seconds, most first. They are not in `parts`.
    pub resting: Vec<(String, f64)>,
}

/// The part of its life that a role runs at most, or stands on run queues, to be one that hardly runs; the part that waits have at
/// least; and the part of its life that another role of the process runs.
const HARDLY: f64 = 0.02;
const WAITING: f64 = 0.9;
const BUSY_ROLE: f64 = 0.1;

/// Waits that nothing delays but the threads of the process, and those that end by themselves.
fn may_rest(doing: Activity) -> bool {
    use Activity::{Events, Idle, Pipe, Rest, Semaphore, Thread, Timer};
    matches!(doing, Events | Idle | Pipe | Rest | Semaphore | Thread | Timer)
}

/// Time of a role.
#[derive(Default)]
struct Role<'a> {
    on: f64,
    life: f64,
    threads: u64,
    /// Waits of one kind: seconds, and how many have ended.
    waits: BTreeMap<(Activity, Option<&'a str>), (f64, u64)>,
    /// It is of Go's runtime.
    go: bool,
}

impl Role<'_> {
    /// Whether its threads only wait, for nothing that another program or a device delays.
    fn rests(&self) -> bool {
        let waits: f64 = self.waits.values().map(|(seconds, _)| seconds).sum();
        self.on <= HARDLY * self.life && waits >= WAITING * self.life
    }

    /// The length of a thread's life.
    fn span(&self) -> f64 {
        self.life / self.threads.max(1) as f64
    }

    /// Whether each wait of this kind lasts for nearly all of a thread's life.
    fn waits_once(&self, doing: Activity, what: Option<&str>, span: f64) -> bool {
        let Some((seconds, waits)) = self.waits.get(&(doing, what)) else { return false };
        doing != Activity::Idle && *seconds >= WAITING * span * (*waits).max(1) as f64
    }
}

/// The roles of all processes.
fn roles<'a>(t: &thread_time::Reader<'a>) -> BTreeMap<(&'a str, &'a str), Role<'a>> {
    let mut roles: BTreeMap<(&str, &str), Role<'_>> = BTreeMap::new();
    for row in t.rows() {
        let (Some(doing), Some(seconds)) = (t.doing.get(row), t.seconds.get(row)) else { continue };
        let role =
            roles.entry((t.process.get(row).unwrap_or(""), t.role.get(row).unwrap_or(""))).or_default();
        let runs = matches!(doing, Activity::User | Activity::System | Activity::RunQueue);
        role.on += if runs { seconds } else { 0.0 };
        role.life += seconds;
        role.threads = role.threads.max(t.threads.get(row).unwrap_or(0));
        if may_rest(doing) {
            let of = role.waits.entry((doing, t.what.get(row))).or_default();
            of.0 += seconds;
            of.1 += t.waits.get(row).unwrap_or(0);
        }
        role.go |= t.what.get(row).is_some_and(|what| what.starts_with("runtime."));
    }
    roles
}

/// A role as its threads are named: `#` stands for digits, and in these names they are no number of a thread.
fn role_name(role: &str) -> String {
    match role.strip_prefix("G# ") {
        Some(rest) => format!("G1 {rest}"),
        None => role.replace("C# Compiler", "C1/C2 Compiler"),
    }
}

/// Whether a thread of a language's runtime waits here for what it is there for: Go's monitor sleeps between its looks, and a Java
/// virtual machine's collectors and compilers wait for work.
fn is_runtimes_rest(role: &Role<'_>, name: &str, doing: Activity, what: Option<&str>) -> bool {
    // Names of at most 15 characters, in which `#` stands for digits.
    const JAVA: [&str; 10] = [
        "C# CompilerThre",
        "G# ",
        "Common-Cleaner",
        "Finalizer",
        "Monitor Deflati",
        "Notification Th",
        "Reference Handl",
        "Service Thread",
        "Signal Dispatch",
        "Sweeper thread",
    ];
    let of_java = is_java_machines(name) || JAVA.iter().any(|start| name.starts_with(start));
    match doing {
        Activity::Timer => role.go && what.is_some_and(|call| call.ends_with("nanosleep")),
        Activity::Semaphore | Activity::Thread => of_java,
        _ => false,
    }
}

/// Threads in these have nothing to do.
fn idles(doing: Activity) -> bool {
    matches!(doing, Activity::Idle | Activity::Child)
}

impl ThreadTime {
    /// That of a recording; empty where it has no such table.
    ///
    /// # Errors
    /// The table is not what the schema says.
    pub fn of(recording: &Recording) -> Result<ThreadTime, Error> {
        let mut out = ThreadTime::default();
        let Some(t) = thread_time::Reader::open(recording)? else { return Ok(out) };
        let roles = roles(&t);
        // Whether one of a process's roles is busy, and how long its threads live.
        let mut of_process: BTreeMap<&str, (bool, f64)> = BTreeMap::new();
        for ((process, _), role) in &roles {
            let (busy, span) = of_process.entry(process).or_default();
            *busy |= role.life > 0.0 && role.on >= BUSY_ROLE * role.life;
            *span = role.span().max(*span);
        }
        let mut resting: BTreeMap<&str, f64> = BTreeMap::new();
        for row in t.rows() {
            let Some(doing) = t.doing.get(row) else { continue };
            let name = (t.process.get(row).unwrap_or(""), t.role.get(row).unwrap_or(""));
            let (busy, span) = of_process.get(name.0).copied().unwrap_or_default();
            let rests = |role: &Role<'_>| role.rests() || role.waits_once(doing, t.what.get(row), span);
            let role = roles.get(&name);
            if busy && role.is_some_and(rests) {
                *resting.entry(name.1).or_default() += t.seconds.get(row).unwrap_or(0.0);
                continue;
            }
            let of_runtime = role.is_some_and(|role| is_runtimes_rest(role, name.1, doing, t.what.get(row)));
            let doing = if of_runtime { Activity::Idle } else { doing };
            let part = out.parts.entry((doing, t.what.get(row).map(String::from))).or_default();
            let seconds = t.seconds.get(row).unwrap_or(0.0);
            part.seconds += seconds;
            part.sampled += t.sampled.get(row).unwrap_or(0.0);
            part.waits += t.waits.get(row).unwrap_or(0) as f64;
            let held = t.held.get(row).unwrap_or(0.0);
            part.held.0 += held;
            part.held.1 += t.held_asleep.get(row).unwrap_or(0.0);
            if held > part.most {
                part.most = held;
                part.holder = t.holder.get(row).map(String::from);
                part.holder_in = t.holder_in.get(row).map(String::from);
            }
        }
        out.resting = resting.into_iter().map(|(role, life)| (role_name(role), life)).collect();
        out.resting.sort_by(|a, b| b.1.total_cmp(&a.1));
        if let Some(t) = queued::Reader::open(recording)? {
            let mut behind: BTreeMap<Option<String>, f64> = BTreeMap::new();
            for row in t.rows() {
                let who = match t.at.get(row) {
                    Some(CpuState::Others) => t.process.get(row).map(String::from),
                    Some(CpuState::Program) => None,
                    _ => continue,
                };
                if who.is_some() || t.at.get(row) == Some(CpuState::Program) {
                    *behind.entry(who).or_default() += t.seconds.get(row).unwrap_or(0.0);
                }
            }
            out.behind = behind.into_iter().collect();
            out.behind.sort_by(|a, b| b.1.total_cmp(&a.1));
        }
        Ok(out)
    }

    /// Thread-seconds of all lives.
    pub fn lives(&self) -> f64 {
        self.parts.values().map(|part| part.seconds).sum::<f64>() + self.rest()
    }

    /// Those of threads that hardly run.
    fn rest(&self) -> f64 {
        self.resting.iter().map(|(_, seconds)| seconds).sum()
    }

    /// The same in words, with the roles of most of it.
    fn resting(&self) -> String {
        const NAMED: usize = 3;
        let named: Vec<_> = self.resting.iter().take(NAMED).map(|(role, _)| safe::line(role)).collect();
        let more = self.resting.len().saturating_sub(NAMED);
        let others = if more > 0 { format!(", {more} more") } else { String::new() };
        format!("{} of threads that hardly ran ({}{others})", figure(self.rest()), named.join(", "))
    }

    /// Those of threads that waited for work, and for children.
    fn without_work(&self) -> [f64; 2] {
        [Activity::Idle, Activity::Child]
            .map(|doing| self.parts.iter().filter(|((d, _), _)| *d == doing).map(|(_, p)| p.seconds).sum())
    }

    /// Behind whom threads stood on run queues.
    fn behind(&self) -> Option<String> {
        let all: f64 = self.behind.iter().map(|(_, s)| s).sum();
        let most = self.behind.iter().filter(|(_, s)| *s >= 0.1 * all && *s > 0.0).take(2);
        let words: Vec<String> = most
            .map(|(who, s)| {
                let who = who.as_ref().map_or_else(|| "each other".into(), |who| safe::line(who));
                format!("{who} {}", figure(*s))
            })
            .collect();
        (!words.is_empty()).then(|| format!("behind {}", words.join(", ")))
    }

    /// Details of a part beyond its size.
    fn more(&self, doing: Activity, part: &Part) -> Option<String> {
        if doing == Activity::RunQueue {
            return self.behind();
        }
        let named = matches!(
            doing,
            Activity::Lock | Activity::FileLock | Activity::Semaphore | Activity::MessageQueue
        );
        let holder = part.holder.as_ref().filter(|_| named && part.held.0 >= 0.5 * part.seconds)?;
        let mut words = format!("ended by {}", safe::line(holder));
        let (held, asleep) = part.held;
        if let Some(what) = part.holder_in.as_ref().filter(|_| asleep >= 0.1 * held) {
            let doing = match what == ON_QUEUE {
                true => "waiting for a CPU".to_string(),
                false => format!("asleep in {}", safe::line(what)),
            };
            words += &format!(", itself {doing} for {:.0} % of it", 100.0 * asleep / held);
        }
        Some(words)
    }

    /// The lines of a report, each with its figures before it: none where there is nothing to say.
    pub fn lines(&self) -> Vec<(String, String)> {
        let lives = self.lives();
        let beside = self.without_work();
        let awake = lives - beside.iter().sum::<f64>() - self.rest();
        if awake < LEAST {
            return Vec::new();
        }
        let mut first = format!("threads: {} thread-s", figure(awake));
        let words = ["waiting for work", "waiting for children"];
        let mut beside: Vec<String> = beside
            .iter()
            .zip(words)
            .filter(|(s, _)| **s >= SHOWN * lives)
            .map(|(s, words)| format!("{} {words}", figure(*s)))
            .collect();
        if self.rest() >= SHOWN * lives {
            beside.push(self.resting());
        }
        if !beside.is_empty() {
            first += &format!("; beside them {}", beside.join(", "));
        }
        let mut parts: Vec<_> =
            self.parts.iter().filter(|((doing, _), part)| !idles(*doing) && part.seconds > 0.0).collect();
        parts.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        let on_cpu: f64 = parts
            .iter()
            .filter(|((doing, _), _)| matches!(doing, Activity::User | Activity::System))
            .map(|(_, part)| part.seconds)
            .sum();
        if on_cpu >= BUSY * awake {
            first += &format!(", {:.0} % of it on CPU", 100.0 * on_cpu / awake);
            return vec![(String::new(), first)];
        }
        let shown: Vec<_> =
            parts.iter().filter(|(_, part)| part.seconds >= SHOWN * awake).take(LINES).collect();
        let mut out = vec![(String::new(), first)];
        for ((doing, what), part) in &shown {
            let share = 100.0 * part.seconds / awake;
            let mut line = words_for(*doing, what.as_deref());
            if part.sampled >= SAMPLED * part.seconds {
                line += " (sampled)";
            }
            if let Some(more) = self.more(*doing, part) {
                line += &format!(", {more}");
            }
            out.push((format!("{share:>4.0} % {:>7}  ", figure(part.seconds)), line));
        }
        let rest = awake - shown.iter().map(|(_, part)| part.seconds).sum::<f64>();
        if rest >= SHOWN * awake {
            let figures = format!("{:>4.0} % {:>7}  ", 100.0 * rest / awake, figure(rest));
            out.push((figures, "others".into()));
        }
        out
    }

    /// The lines, at most `width` columns wide.
    pub fn render(&self, width: usize) -> String {
        let lines = self.lines();
        let wrapped = lines.iter().map(|(figures, line)| {
            let next = " ".repeat(figures.chars().count().max(2));
            wrap(line, width, figures, &next)
        });
        wrapped.collect()
    }
}

/// An activity in a line, with what it is for.
pub(crate) fn words_for(doing: Activity, what: Option<&str>) -> String {
    let words = match doing {
        Activity::User => "on CPU in user code",
        Activity::System => "on CPU in the kernel",
        Activity::RunQueue => "waiting for a CPU",
        Activity::Lock => "waiting for user lock",
        Activity::KernelLock => "waiting for kernel lock",
        Activity::FileLock => "waiting for file lock",
        Activity::Semaphore => "waiting for semaphore",
        Activity::MessageQueue => "waiting for message queue",
        Activity::Device => "waiting for devices",
        Activity::Fault => "waiting in page faults or for memory to be reclaimed",
        Activity::Socket => "waiting for socket",
        Activity::Pipe => "waiting for a pipe",
        Activity::Events => "waiting for events",
        Activity::Timer => "sleeping",
        Activity::Child => "waiting for children",
        Activity::Thread => "waiting for another thread",
        Activity::Idle => "waiting for work",
        Activity::Stopped => "stopped",
        Activity::Quota => "held back by the quota of the control group",
        Activity::Unread => "unread in the socket, while the thread was busy",
        Activity::Aside => "set aside, while the thread was busy",
        Activity::Parked if what.is_some() => "its goroutine was parked",
        Activity::Parked => {
            "its goroutine was parked (lock, channel, timer, network), or with another thread"
        }
        Activity::Handed => "waiting for a worker thread to take it",
        Activity::Rest => "asleep",
    };
    let Some(what) = what else { return words.into() };
    let named = matches!(
        doing,
        Activity::Lock
            | Activity::KernelLock
            | Activity::FileLock
            | Activity::Semaphore
            | Activity::MessageQueue
            | Activity::Socket
    );
    let what = safe::line(what);
    // A semaphore's name says that it is one.
    let (words, what) = match what.strip_prefix("semaphore ").or_else(|| what.strip_prefix("message queue "))
    {
        Some(rest) if named => (words, rest),
        _ => (words, &*what),
    };
    let joined = match doing {
        // The runtime's own word for it.
        Activity::Parked => ":",
        _ if named => "",
        _ => " in",
    };
    format!("{words}{joined} {}", middle(what, 40))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(seconds: f64) -> Part {
        Part { seconds, ..Part::default() }
    }

    fn time(parts: Vec<(Activity, Option<&str>, Part)>) -> ThreadTime {
        let parts = parts.into_iter().map(|(doing, what, part)| ((doing, what.map(String::from)), part));
        ThreadTime {
            parts: parts.collect(),
            behind: vec![(Some("hog".into()), 1.0), (None, 0.02)],
            resting: Vec::new(),
        }
    }

    #[test]
    fn idle_workers_do_not_drown_the_rest() {
        let lock = Part {
            holder: Some("w3".into()),
            held: (5.0, 3.5),
            holder_in: Some("fsync".into()),
            ..part(5.0)
        };
        let all = time(vec![
            (Activity::Idle, Some("worker"), part(40.0)),
            (Activity::FileLock, Some("/tmp/x"), lock),
            (Activity::RunQueue, None, part(1.0)),
            (Activity::User, None, part(4.0)),
        ]);
        let text = all.render(80);
        let wanted = [
            "threads: 10.0 thread-s; beside them 40.0 waiting for work",
            "  50 %    5.00  waiting for file lock /tmp/x, ended by w3, itself asleep in",
            "                fsync for 70 % of it",
            "  40 %    4.00  on CPU in user code",
            "  10 %    1.00  waiting for a CPU, behind hog 1.00",
            "",
        ];
        assert_eq!(text, wanted.join("\n"));
    }

    #[test]
    fn threads_that_only_compute_are_one_line() {
        let all = time(vec![(Activity::User, None, part(7.9)), (Activity::RunQueue, None, part(0.1))]);
        assert_eq!(all.render(80), "threads: 8.00 thread-s, 99 % of it on CPU\n");
        assert_eq!(time(vec![(Activity::Idle, None, part(7.0))]).render(80), "");
    }

    /// Rows of a process: role, activity, what for, seconds.
    fn recorded(rows: &[(&str, &str, &str, f64)]) -> ThreadTime {
        let words: Vec<[&str; 4]> =
            rows.iter().map(|(role, doing, what, _)| ["app", role, doing, what]).collect();
        let seconds: Vec<[f64; 1]> = rows.iter().map(|row| [row.3]).collect();
        let rows: Vec<(&[&str], &[f64])> =
            words.iter().zip(&seconds).map(|(w, s)| (&w[..], &s[..])).collect();
        let manifest = ncpu_record::Manifest::new(ncpu_schema::Purpose::Run, 2, vec!["./app".into()], 1.0);
        let table =
            crate::fixtures::table("thread_time", &["process", "role", "doing", "what"], &["seconds"], &rows);
        ThreadTime::of(&Recording::new(manifest).with(table)).expect("thread time")
    }

    #[test]
    fn threads_that_hardly_run_beside_busy_ones_stand_apart() {
        let of = |busy: f64| {
            recorded(&[
                ("worker-#", "user code", "", busy),
                ("worker-#", "socket", "127.0.0.1:5432", 8.0 - busy),
                ("Signal Dispatch", "user code", "", 0.01),
                ("Signal Dispatch", "semaphore", "0x7f00", 9.99),
                ("reader", "socket", "127.0.0.1:5432", 10.0),
            ])
        };
        let text = of(4.0).render(80);
        let first =
            "threads: 18.0 thread-s; beside them 10.0 of threads that hardly ran (Signal\n  Dispatch)";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("78 %    14.0  waiting for socket"), "a peer may be what is slow: {text}");
        assert!((of(4.0).lives() - 28.0).abs() < 1e-9, "none is lost");
        assert!(of(0.1).resting.is_empty(), "nobody runs: the waits are the question");
    }

    #[test]
    fn a_wait_that_lasts_as_long_as_the_program_is_of_a_thread_that_hardly_runs() {
        let of = |semaphore: f64| {
            recorded(&[
                ("main", "user code", "", 9.0),
                ("main", "events", "epoll_wait", 1.0),
                ("node", "user code", "", 0.3),
                ("node", "semaphore", "io_thread_semaphore", semaphore),
            ])
        };
        let text = of(9.5).render(80);
        assert!(text.contains("; beside them 9.50 of threads that hardly ran (node)"), "{text}");
        assert!(of(5.0).render(80).contains("waiting for semaphore"), "{}", of(5.0).render(80));
    }

    #[test]
    fn a_runtimes_own_threads_wait_for_work() {
        let go = |what: &str| {
            recorded(&[
                ("app", "user code", "", 4.0),
                ("app", "waiting for work", what, 4.0),
                ("app", "timer", "nanosleep", 3.0),
            ])
        };
        assert!(go("runtime.stopm").render(80).contains("; beside them 7.00 waiting for work"));
        assert!(!go("next_job").render(80).contains("beside them 7.00"), "a program's own sleep");
        let java = recorded(&[
            ("pool-#-thread-#", "user code", "", 4.0),
            ("GC Thread#", "user code", "", 1.0),
            ("GC Thread#", "semaphore", "0x7f00", 5.0),
        ]);
        assert!(java.render(80).contains("; beside them 5.00 waiting for work"), "{}", java.render(80));
    }

    #[test]
    fn names_are_safe_for_a_terminal() {
        let all = time(vec![(Activity::FileLock, Some("/tmp/\u{1b}[31mx"), part(1.0))]);
        assert!(!all.render(80).contains('\u{1b}'));
    }
}
