//! Pools of threads that have work all the time, and settings by which a program uses fewer CPUs than there are.

use std::collections::HashSet;

use ncpu_schema::{IdleReason, Layer, settings, threads};

use super::asleep::keeps_house;
use super::claim::{Claim, Kind, Source};
use super::libraries::{is_java_sleep, waits};
use super::names::short;
use super::places::{Most, begins, is_library, is_line};
use super::view::{Sampled, Slept, View};
use crate::causes::When;
use crate::onion::evidence::charged;

/// The part of the capacity that CPUs idle from which more threads could have used them.
const IDLE: f64 = 0.05;

/// The part of their time that a pool's threads wait for work below which they never have to.
const NEVER: f64 = 0.2;

/// The part of their time in which they must be seen at work; they may stand on run queues besides.
const WORKS: f64 = 0.25;

/// The part of such work that has to be on stacks which do not break off.
const SEEN: f64 = 0.1;

/// The work of a pool that a thread which is none of it does, of that of the pool's threads, to count as one of them.
const HELPS: f64 = 0.2;

/// The part of their work that threads wait in, where it is waiting.
const MOSTLY: f64 = 0.6;

/// A library's pool of threads.
struct Pool {
    name: &'static str,
    /// What stands on the stacks of its threads, and on those of such as have no work.
    worker: fn(&str, &[&str]) -> bool,
    idle: &'static str,
    /// The variable that says how many they are, if there is one.
    setting: Option<&'static str>,
    /// How many they are otherwise.
    size: Size,
}

/// How many threads a pool has.
enum Size {
    Known(u64),
    /// They have a name of their own.
    ByName,
    /// Those that wait for work and those at work, together. Where such as compute take turns for a lock of their runtime, what they
    /// work on has to be waiting; else there have to be fewer of them than CPUs.
    ByTime {
        turns: bool,
    },
}

const POOLS: [Pool; 4] = [
    Pool {
        name: "libuv's pool",
        worker: |_, user| {
            user.iter().any(|f| f.starts_with("node::ThreadPoolWork") || f.starts_with("uv__fs_work"))
                || user.windows(2).any(|f| f == ["uv_cond_wait", "worker"])
        },
        idle: "uv_cond_wait",
        setting: Some("UV_THREADPOOL_SIZE"),
        size: Size::Known(4),
    },
    Pool {
        name: "Java's common pool",
        worker: |thread, _| thread.starts_with("ForkJoinPool.co"),
        idle: "java.util.concurrent.ForkJoinPool.awaitWork",
        setting: None,
        size: Size::ByName,
    },
    Pool {
        name: "Python's ThreadPoolExecutor",
        worker: |_, user| user.iter().any(|f| f.starts_with("_worker (thread.py:")),
        idle: "_queue_SimpleQueue_get",
        setting: None,
        size: Size::ByTime { turns: true },
    },
    Pool {
        name: "Java's ThreadPoolExecutor",
        worker: |_, user| runs_tasks_of_java(user),
        idle: "java.util.concurrent.ThreadPoolExecutor.getTask",
        setting: None,
        size: Size::ByTime { turns: false },
    },
];

/// Whether a stack is of a thread of a program's ThreadPoolExecutor. Java's own has a thread for each process that was started, which
/// waits for its end.
fn runs_tasks_of_java(user: &[&str]) -> bool {
    user.contains(&"java.util.concurrent.ThreadPoolExecutor.runWorker")
        && !user.iter().any(|f| f.starts_with("java.lang.ProcessHandleImpl"))
}

/// A setting, and the beginnings of names of functions and threads that show that a process heeds it.
const HEEDED: [(&str, &[&str]); 7] = [
    ("GOMAXPROCS", &["runtime.goexit"]),
    ("OMP_NUM_THREADS", &["GOMP_", "gomp_", "libgomp", "kmp_", "kmpc_"]),
    ("OPENBLAS_NUM_THREADS", &["openblas_", "blas_thread_", "exec_blas"]),
    ("MKL_NUM_THREADS", &["mkl_"]),
    ("RAYON_NUM_THREADS", &["rayon::", "rayon_core::"]),
    ("TOKIO_WORKER_THREADS", &["tokio::", "tokio-runtime-w", "tokio-rt-worker"]),
    ("DOTNET_PROCESSOR_COUNT", &["coreclr_", "System.Threading.", ".NET "]),
];

/// Whether a function or thread shows that its process heeds a setting; `[unknown libgomp.so.1]` is code of a library without names.
fn heeds_by(setting: &str, name: &str) -> bool {
    let bare = name.strip_prefix("[unknown ").unwrap_or(name);
    let bare = super::libraries::c_name(bare);
    HEEDED
        .iter()
        .filter(|(of, _)| *of == setting)
        .any(|(_, marks)| super::libraries::begins_with(bare, marks))
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    // Other programs may use the CPUs that would idle.
    let left = view.idle() + view.seconds(Layer::Others);
    let mut claims = Vec::new();
    if left >= IDLE * view.capacity() {
        claims.extend(POOLS.iter().filter_map(|pool| full(view, &view.slept, pool)));
    }
    if view.idle() >= IDLE * view.capacity() {
        claims.extend(bounded(view));
    }
    claims
}

/// The number that a process's environment gives a variable.
pub(super) fn setting(view: &View<'_>, process: &str, name: &str) -> Option<u64> {
    let t = settings::Reader::open(view.context.recording).ok()??;
    let mut rows = t.rows().filter(|&r| t.process.get(r) == Some(process) && t.name.get(r) == Some(name));
    rows.find_map(|row| t.value.get(row))
}

/// CPUs that idle while some of a program's threads work; `own` is the part of the serial phases that counts.
fn idle(view: &View<'_>, claim: &mut Claim, own: f64, what: &'static str) {
    for (layer, part) in [(Layer::Serial, own), (Layer::Idle, 1.0), (Layer::LockOrSerial, own)] {
        claim.ask(Source::Layer(layer), part * view.beside_stacks(layer), what);
    }
}

/// The part of the serial phases in which a thread runs that is none of a pool: the pool has nothing to do then.
fn beside(view: &View<'_>, pool: &Pool) -> f64 {
    if !matches!(pool.size, Size::ByName) {
        return 0.0;
    }
    let rows = charged(&view.context, IdleReason::Serial);
    let others = rows.iter().filter(|row| row.runs() && !(pool.worker)(&row.thread, &[]));
    others.map(|row| row.share).sum::<f64>().min(1.0)
}

/// A pool none of whose threads waits for work while CPUs idle: what it has to do queues.
fn full(view: &View<'_>, slept: &[Slept<'_>], pool: &Pool) -> Option<Claim> {
    let works = |thread: &str, user: &[&str]| (pool.worker)(thread, user) && !user.contains(&pool.idle);
    let (mut processes, mut functions) = (Most::default(), Most::default());
    let innermost = |user: &[&str]| {
        let line = user.iter().find(|f| is_line(f) && !is_library(f));
        // The program's own function says more than that of the library in which it waits.
        let is_of_library = |f: &str| is_library(f) || waits(f) || is_java_sleep(f) || f.starts_with("JVM_");
        let own = user.iter().find(|f| !f.starts_with('[') && !is_of_library(f) && !begins(f));
        let named =
            line.or(own).or_else(|| user.iter().find(|f| !f.starts_with('[') && !f.starts_with("__")));
        named.map_or_else(String::new, |f| short(f))
    };
    let (mut busy, mut waiting) = (0.0, 0.0);
    for sample in view.samples.iter().filter(|s| works(s.thread, &s.user)) {
        busy += sample.seconds;
        processes.add(sample.process, sample.seconds);
        functions.add(&innermost(&sample.user), sample.seconds);
    }
    for s in slept.iter().filter(|s| works(s.thread, &s.user)) {
        busy += s.seconds;
        waiting += if s.wait == "user lock" || s.wait == "run queue" { 0.0 } else { s.seconds };
        processes.add(s.process, s.seconds);
        functions.add(&innermost(&s.user), s.seconds);
    }
    let process = processes.top()?.0;
    // A stack that breaks off has no known thread: the pool may have it, if the pool's threads never wait for work.
    let broken = view.samples.iter().filter(|s| s.process == process && is_broken(&s.user));
    let unknown: f64 = broken.map(|s| s.seconds).sum();
    let without: f64 = slept
        .iter()
        .filter(|s| s.process == process && (pool.worker)(s.thread, &s.user) && s.user.contains(&pool.idle))
        .fold(0.0, |sum, s| sum + s.seconds);
    let size = match (pool.setting.and_then(|name| setting(view, &process, name)), &pool.size) {
        (Some(size), _) => size as f64,
        (None, Size::Known(size)) => *size as f64,
        (None, Size::ByName) => named(view, &process, pool) as f64,
        (None, Size::ByTime { turns: true }) if waiting < MOSTLY * busy => return None,
        (None, Size::ByTime { .. }) => ((busy + without) / view.elapsed()).round(),
    };
    let computes = matches!(pool.size, Size::ByTime { turns: false }) && waiting < MOSTLY * busy;
    // A thread that joins a task of the common pool runs its tasks meanwhile.
    let helps = |s: &&Sampled<'_>| {
        s.process == process
            && !(pool.worker)(s.thread, &s.user)
            && s.user.contains(&"java.util.concurrent.ForkJoinTask.doExec")
    };
    let helped: f64 = match pool.size {
        Size::ByName => view.samples.iter().filter(helps).map(|s| s.seconds).sum(),
        _ => 0.0,
    };
    let helpers = if helped >= HELPS * busy { 1.0 } else { 0.0 };
    if (computes || helpers > 0.0) && size + helpers >= view.context.cpus as f64 {
        return None;
    }
    if size < 1.0 || without >= NEVER * size * view.elapsed() {
        return None;
    }
    if matches!(pool.size, Size::ByTime { .. }) && asks_often(slept, &process, pool) {
        return None;
    }
    // A wait for work that has not ended yet may be in no stack: they must be seen at work.
    if busy + unknown < WORKS * size * view.elapsed() || busy < SEEN * (busy + unknown) {
        return None;
    }
    let place = functions.top().map_or_else(|| process.clone(), |(f, _)| f);
    let mut claim = Claim::new(Kind::Pool, [When::FullPool], pool.name)
        .with("pool", pool.name)
        .with("process", process.clone())
        .with("place", place.clone())
        .with("size", format!("{size} thread{}", if size == 1.0 { "" } else { "s" }));
    claim.key = format!("full {}", pool.name);
    claim.waited = Some(waiting).filter(|waiting| *waiting >= MOSTLY * busy);
    let own = 1.0 - beside(view, pool);
    idle(view, &mut claim, own, "CPUs idle while it is full");
    if claim.waited.is_none() && size < view.context.cpus as f64 {
        // Other programs may have the CPUs that would idle: more threads get more of them, up to one for each CPU.
        claim.waited = awaited(view, &process, pool);
    }
    if claim.waited.is_none() && claim.asked() < IDLE * view.capacity() {
        return None;
    }
    // Threads that gave it work may wait for the results by semaphores.
    claim.ask(
        Source::Layer(Layer::UserLock),
        view.beside_stacks(Layer::UserLock),
        "CPUs idle while it is full",
    );
    claim.line("works in", place);
    claim.line("waits", format!("{without:.2} thread-s of {:.2} for work", size * view.elapsed()));
    Some(claim)
}

/// Whether a stack breaks off before the function its thread began with.
fn is_broken(user: &[&str]) -> bool {
    user.last().is_some_and(|outermost| outermost.starts_with("[forgotten") || *outermost == "[unknown]")
}

/// How long the process waits for a pool that always has work; `None` where threads of the process that are not the pool's run much
/// meanwhile.
fn awaited(view: &View<'_>, process: &str, pool: &Pool) -> Option<f64> {
    let beside = |s: &&Slept<'_>| {
        s.process == process && !(pool.worker)(s.thread, &s.user) && s.wait != "run queue" && !keeps_house(s)
    };
    let waited = view.slept.iter().filter(beside).map(|s| s.seconds).sum::<f64>().min(view.elapsed());
    let own = view
        .samples
        .iter()
        .filter(|s| s.process == process && !(pool.worker)(s.thread, &s.user) && !is_broken(&s.user));
    (own.map(|s| s.seconds).sum::<f64>() < (1.0 - MOSTLY) * waited).then_some(waited)
}

/// Waits for work, for each wait within it, from which the queue of a pool is mostly empty.
const ASKS: f64 = 0.3;

/// Whether threads of a pool have 0.3 or more waits for work, however short, for each wait within their work: tasks come one by
/// one, and the queue is empty.
fn asks_often(slept: &[Slept<'_>], process: &str, pool: &Pool) -> bool {
    let of = slept.iter().filter(|s| {
        s.process == process
            && (pool.worker)(s.thread, &s.user)
            && !matches!(s.wait, "user lock" | "run queue")
    });
    let (asks, works): (Vec<&Slept<'_>>, Vec<&Slept<'_>>) = of.partition(|s| s.user.contains(&pool.idle));
    let count = |of: &[&Slept<'_>]| of.iter().map(|s| s.count).sum::<f64>();
    count(&asks) >= ASKS * count(&works)
}

/// Threads of a pool by their name.
fn named(view: &View<'_>, process: &str, pool: &Pool) -> usize {
    let Ok(Some(t)) = threads::Reader::open(view.context.recording) else { return 0 };
    let of = t.rows().filter(|&row| {
        t.process.get(row) == Some(process)
            && t.thread.get(row).is_some_and(|thread| (pool.worker)(thread, &[]))
    });
    of.filter_map(|row| t.tid.get(row)).collect::<HashSet<_>>().len()
}

/// A process that uses as many CPUs as a setting lets it, while others idle.
fn bounded(view: &View<'_>) -> Option<Claim> {
    let t = settings::Reader::open(view.context.recording).ok()??;
    let cpus = view.context.cpus as f64;
    let heeds = |process: &str, name: &str| {
        let mut of = view.samples.iter().filter(|s| s.process == process);
        of.any(|s| heeds_by(name, s.thread) || s.user.iter().any(|f| heeds_by(name, f)))
    };
    for row in t.rows() {
        let (Some(process), Some(name), Some(value)) =
            (t.process.get(row), t.name.get(row), t.value.get(row))
        else {
            continue;
        };
        let allowed = value as f64 * view.elapsed();
        let ran = view.on_cpu(process);
        if value as f64 >= cpus || !(0.85 * allowed..1.15 * allowed).contains(&ran) || !heeds(process, name) {
            continue;
        }
        let (mut claim, which) = (
            Claim::new(Kind::Limit, [When::ThreadSetting], name),
            if value == 1 { "1 CPU".to_string() } else { format!("{value} CPUs") },
        );
        claim = claim
            .with("name", name)
            .with("value", value.to_string())
            .with("process", process)
            .with("cpus", which);
        claim.key = format!("{name} {process}");
        idle(view, &mut claim, 1.0, "CPUs idle that it may not use");
        claim.line("ran", format!("{ran:.2} CPU-s of {allowed:.2} that it may"));
        return Some(claim);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{heeds_by, runs_tasks_of_java};

    #[test]
    fn threads_that_wait_for_processes_are_no_pool() {
        const RUNS: &str = "java.util.concurrent.ThreadPoolExecutor.runWorker";
        let reaper = [
            "wait4",
            "java.lang.ProcessHandleImpl.waitForProcessExit0",
            "java.lang.ProcessHandleImpl$1.run",
            RUNS,
        ];
        assert!(!runs_tasks_of_java(&reaper));
        assert!(
            runs_tasks_of_java(&["recv", "App.fetch", RUNS]) && !runs_tasks_of_java(&["recv", "App.fetch"])
        );
    }

    #[test]
    fn a_setting_is_heeded_where_a_library_has_the_name_and_not_a_part_of_a_name() {
        for (setting, name) in [
            ("GOMAXPROCS", "runtime.goexit"),
            ("OMP_NUM_THREADS", "GOMP_parallel"),
            ("OMP_NUM_THREADS", "[unknown libgomp.so.1.0.0]"),
            ("OMP_NUM_THREADS", "__kmp_fork_call"),
            ("OMP_NUM_THREADS", "__kmpc_fork_call"),
            ("RAYON_NUM_THREADS", "<rayon_core::job::StackJob<L, F, R> as rayon_core::job::Job>::execute"),
            ("TOKIO_WORKER_THREADS", "tokio::runtime::task::raw::poll"),
        ] {
            assert!(heeds_by(setting, name), "{setting} {name}");
        }
        for (setting, name) in [
            ("RAYON_NUM_THREADS", "app::crayon::draw"),
            ("RAYON_NUM_THREADS", "crayons"),
            ("TOKIO_WORKER_THREADS", "not_tokio_at_all"),
            ("OMP_NUM_THREADS", "run_without_libgomp"),
            ("MKL_NUM_THREADS", "app_mkl_free"),
            ("GOMAXPROCS", "GOMP_parallel"),
        ] {
            assert!(!heeds_by(setting, name), "{setting} {name}");
        }
    }
}
