//! Tenants of a machine: control groups that the test makes, held to the kernel's own accounts. Needs root and BPF; says so and
//! passes where there are none.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::allowed;
use ncpu_engine::engine::Config;
use ncpu_engine::observation::Observation;
use ncpu_observe_core::program::Target;
use ncpu_schema::{
    CpuState, IdleReason, Loss, cpu_time, idle_time, tenant_idle, tenant_losses, tenant_names, tenant_time,
};
use ncpu_table::Table;
use ncpu_trials::{MOST, hold};

/// A control group of CPU time, removed again.
struct Group(PathBuf);

impl Group {
    /// `None` where none can be made.
    fn make(name: &str) -> Option<Group> {
        for mount in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"] {
            let group = Path::new(mount).join(format!("ncpu-test-{name}-{}", std::process::id()));
            let of_cpu = |file: &str| group.join(file).exists();
            if std::fs::create_dir(&group).is_ok() {
                let made = Group(group.clone());
                if of_cpu("cpu.shares") || of_cpu("cpu.weight") {
                    return Some(made);
                }
            }
        }
        eprintln!("skipped: no cgroup with a limit of cpu can be made");
        None
    }

    fn set(&self, file: &str, value: &str) -> bool {
        std::fs::write(self.0.join(file), value).is_ok()
    }

    /// Its path in its hierarchy.
    fn path(&self) -> String {
        format!("/{}", self.0.file_name().and_then(|name| name.to_str()).expect("a name"))
    }

    /// Starts a part of this test in it, on some CPUs.
    fn start(&self, part: &str, cpus: &[usize]) -> Running {
        let procs = self.0.join("cgroup.procs");
        let words = common::part(part);
        let mut set = rustix::thread::CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(std::process::Stdio::null());
        // SAFETY: between fork and exec it writes a file and sets an affinity, by system calls alone but for one path that
        // was made before.
        unsafe {
            command.pre_exec(move || {
                std::fs::write(&procs, "0")?;
                Ok(rustix::thread::sched_setaffinity(None, &set)?)
            });
        }
        Running(command.spawn().expect("this test again"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..500 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A process that runs until it is dropped.
struct Running(Child);

impl Running {
    /// Seconds that its main thread has stood on run queues, by the kernel's account. The harness runs a part in a thread of its own.
    fn stood(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).into_iter().flatten().flatten();
        tasks
            .filter_map(|task| {
                let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
                text.split_whitespace().nth(1)?.parse::<f64>().ok()
            })
            .sum::<f64>()
            / 1e9
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tables of an observation of the whole machine, an interval each 100 ms. `begun` and `ending` are called when it is observed.
fn observe(length: Duration, begun: impl FnOnce(), ending: impl FnOnce()) -> Vec<Table> {
    let mut observation = Observation::begin(&Config::onion(Target::All, 199)).expect("BPF");
    let mut tables = Vec::new();
    let mut take = |table: &Table| -> Result<(), std::convert::Infallible> {
        tables.push(table.clone());
        Ok(())
    };
    begun();
    let until = Instant::now() + length;
    observation
        .watch(None, Some(until), Duration::from_millis(100), &|| false, &mut take)
        .expect("it takes all");
    ending();
    let notes = observation.finish(None, &mut take).expect("it takes all");
    notes.iter().for_each(|note| eprintln!("note: {note}"));
    tables
}

fn of<'a>(tables: &'a [Table], name: &'a str) -> impl Iterator<Item = &'a Table> {
    tables.iter().filter(move |table| table.name() == name)
}

/// Numbers of the tenants in the group of a path.
fn numbers(tables: &[Table], path: &str) -> BTreeSet<u64> {
    let mut out = BTreeSet::new();
    for table in of(tables, tenant_names::NAME) {
        let names = tenant_names::Reader::of(table).expect("the schema's");
        let ours = names.rows().filter(|row| names.cgroup.get(*row) == Some(path));
        out.extend(ours.filter_map(|row| names.tenant.get(row)));
    }
    out
}

/// Thread-seconds that tenants lost to others, by a cause; `None`: to nobody that is known.
fn lost(tables: &[Table], victims: &BTreeSet<u64>, cause: Loss) -> BTreeMap<Option<u64>, f64> {
    let mut out = BTreeMap::new();
    for table in of(tables, tenant_losses::NAME) {
        let losses = tenant_losses::Reader::of(table).expect("the schema's");
        for row in losses.rows().filter(|row| losses.cause.get(*row) == Some(cause)) {
            if losses.victim.get(row).is_some_and(|victim| victims.contains(&victim)) {
                *out.entry(losses.culprit.get(row)).or_default() += losses.threads.get(row).unwrap_or(0.0);
            }
        }
    }
    out
}

fn to(lost: &BTreeMap<Option<u64>, f64>, culprits: &BTreeSet<u64>) -> f64 {
    lost.iter().filter(|(who, _)| who.is_some_and(|who| culprits.contains(&who))).map(|(_, s)| s).sum()
}

/// The tables of tenants have what the machine's tables have, to the microsecond; and a group has its name.
#[test]
fn tenants_sum_to_the_machine_in_each_interval() {
    let Some(_one) = allowed() else { return };
    let Some(group) = Group::make("sums") else { return };
    let busy = group.start("spin", &[0]);
    let tables = observe(Duration::from_millis(600), || {}, || {});
    drop(busy);
    let mut machine: BTreeMap<u64, [f64; CpuState::ALL.len()]> = BTreeMap::new();
    let micros = |t: f64| (t * 1e6).round() as u64;
    for table in of(&tables, cpu_time::NAME) {
        let time = cpu_time::Reader::of(table).expect("the schema's");
        for row in time.rows() {
            let sums = machine.entry(micros(time.time.get(row).expect("t"))).or_default();
            CpuState::ALL.iter().for_each(|s| sums[*s as usize] += time.spent.get(row, *s).unwrap_or(0.0));
        }
    }
    let mut tenants: BTreeMap<u64, [f64; CpuState::ALL.len()]> = BTreeMap::new();
    for table in of(&tables, tenant_time::NAME) {
        let time = tenant_time::Reader::of(table).expect("the schema's");
        for row in time.rows() {
            let sums = tenants.entry(micros(time.time.get(row).expect("t"))).or_default();
            for state in CpuState::ALL {
                let seconds = time.spent.get(row, state).unwrap_or(0.0);
                assert!(seconds >= 0.0, "{seconds} s");
                sums[state as usize] += seconds;
            }
        }
    }
    assert!(!machine.is_empty());
    for (t, states) in &machine {
        let ours = tenants.get(t).expect("a row for each interval");
        for (of_machine, of_tenants) in states.iter().zip(ours) {
            assert!((of_machine - of_tenants).abs() < 1e-6, "at {t}: {states:?} and {ours:?}");
        }
    }
    let (mut idle, mut given) = ([0.0; IdleReason::ALL.len()], [0.0; IdleReason::ALL.len()]);
    for table in of(&tables, idle_time::NAME) {
        let why = idle_time::Reader::of(table).expect("the schema's");
        IdleReason::ALL.iter().for_each(|r| idle[*r as usize] += why.spent.sum(*r));
    }
    for table in of(&tables, tenant_idle::NAME) {
        let whose = tenant_idle::Reader::of(table).expect("the schema's");
        IdleReason::ALL.iter().for_each(|r| given[*r as usize] += whose.spent.sum(*r));
    }
    for (idle, given) in idle.iter().zip(given) {
        assert!((idle - given).abs() < 1e-6, "{idle} and {given}");
    }
    assert_eq!(numbers(&tables, &group.path()).len(), 1, "one program of one user");
}

/// Groups that come and go have names, and their numbers come back: there are more of them than numbers.
#[test]
fn short_groups_have_names_and_numbers_come_back() {
    let Some(_one) = allowed() else { return };
    let Some(group) = Group::make("short") else { return };
    let inner = |i: usize| group.0.join(format!("g{i}"));
    let most = 60;
    let tables = observe(
        Duration::from_millis(300),
        || {
            for i in 0..most {
                std::fs::create_dir(inner(i)).expect("a group");
                let procs = inner(i).join("cgroup.procs");
                // It comes on CPU once more in the group: what never does is its parent's.
                let mut command = Command::new("sleep");
                command.arg("0.005");
                // SAFETY: as above.
                unsafe { command.pre_exec(move || std::fs::write(&procs, "0")) };
                assert!(command.status().expect("sleep").success());
                std::fs::remove_dir(inner(i)).expect("nobody is in it");
            }
        },
        || {},
    );
    let found = (0..most).filter(|i| !numbers(&tables, &format!("{}/g{i}", group.path())).is_empty()).count();
    assert_eq!(found, most);
}

mod quiet {
    use super::*;

    /// What a program loses to one of more weight on its CPU is what the kernel says that it stood on run queues, and it is lost
    /// to that one; another on another CPU has no part in it.
    #[test]
    fn a_hog_of_more_weight_is_the_culprit() {
        let Some(_one) = allowed() else { return };
        if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
            return eprintln!("skipped: one CPU is all there are");
        }
        let groups = (Group::make("victim"), Group::make("hog"), Group::make("innocent"));
        let (Some(victim), Some(hog), Some(innocent)) = groups else { return };
        assert!(hog.set("cpu.shares", "4096") || hog.set("cpu.weight", "400"), "a weight");
        hold(MOST, "a hog", || {
            let other = innocent.start("now_and_then", &[1]);
            let (ours, theirs) = (victim.start("spin", &[0]), hog.start("spin", &[0]));
            let stood = std::cell::Cell::new(0.0);
            let tables = observe(
                Duration::from_millis(1500),
                || stood.set(-ours.stood()),
                || stood.set(stood.get() + ours.stood()),
            );
            drop((ours, theirs, other));
            let victims = numbers(&tables, &victim.path());
            let lost = lost(&tables, &victims, Loss::RunQueue);
            let (all, stood) = (lost.values().sum::<f64>(), stood.get());
            assert!(stood > 0.3 && (all - stood).abs() <= 0.1 * stood, "{all} s, {stood} by schedstat");
            let of_hog = to(&lost, &numbers(&tables, &hog.path()));
            let of_innocent = to(&lost, &numbers(&tables, &innocent.path()));
            assert!(of_hog >= 0.9 * all && of_innocent <= 0.02 * all, "{of_hog}, {of_innocent} of {all} s");
        });
    }

    /// A group that has used up its limit loses to itself, and not to those who run meanwhile.
    #[test]
    fn a_throttled_group_loses_to_its_own_limit() {
        let Some(_one) = allowed() else { return };
        let (Some(victim), Some(other)) = (Group::make("limit"), Group::make("beside")) else { return };
        let set = victim.set("cpu.cfs_quota_us", "20000") || victim.set("cpu.max", "20000 100000");
        if !set {
            return eprintln!("skipped: no limit of CPU time can be set");
        }
        hold(MOST, "a limit", || {
            let running = (victim.start("spin", &[0]), other.start("now_and_then", &[0]));
            let tables = observe(Duration::from_millis(1500), || {}, || {});
            drop(running);
            let victims = numbers(&tables, &victim.path());
            let held: f64 = lost(&tables, &victims, Loss::Quota).values().sum();
            // A fifth of a CPU is what it may have.
            assert!((0.6..=0.9).contains(&(held / 1.5)), "{held} of 1.5 s");
            let queue = lost(&tables, &victims, Loss::RunQueue);
            let of_other = to(&queue, &numbers(&tables, &other.path()));
            assert!(of_other <= 0.1 * held, "{of_other} beside {held} s");
        });
    }
}

/// Parts that this test plays; each is killed.
mod parts {
    use std::time::{Duration, Instant};

    #[test]
    #[ignore = "a part played under observation"]
    fn spin() {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            std::hint::black_box((0..10_000).sum::<u64>());
        }
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn now_and_then() {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            std::hint::black_box((0..20_000).sum::<u64>());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
