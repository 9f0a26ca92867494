//! Threads' time: what the lives of the program's threads went to, beside the capacity of the CPUs.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_schema::{Activity, CpuState, Error, ON_QUEUE, queued, thread_time};
use ncpu_table::safe;

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
        for row in t.rows() {
            let Some(doing) = t.doing.get(row) else { continue };
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
        self.parts.values().map(|part| part.seconds).sum()
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
        let awake = lives - beside.iter().sum::<f64>();
        if awake < LEAST {
            return Vec::new();
        }
        let mut first = format!("threads: {} thread-s", figure(awake));
        let words = ["waiting for work", "waiting for children"];
        let beside: Vec<String> = beside
            .iter()
            .zip(words)
            .filter(|(s, _)| **s >= SHOWN * lives)
            .map(|(s, words)| format!("{} {words}", figure(*s)))
            .collect();
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
        ThreadTime { parts: parts.collect(), behind: vec![(Some("hog".into()), 1.0), (None, 0.02)] }
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

    #[test]
    fn names_are_safe_for_a_terminal() {
        let all = time(vec![(Activity::FileLock, Some("/tmp/\u{1b}[31mx"), part(1.0))]);
        assert!(!all.render(80).contains('\u{1b}'));
    }
}
