//! A kernel with counters, of which the machines that run the tests have none; then the real one.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::rc::Rc;

use ncpu_machine::events::Sources;
use ncpu_machine_trees::put;
use tempfile::TempDir;

use super::kernel::Request;
use super::*;
use crate::program::Child;

/// A kernel whose core PMU holds `capacity` events a group.
#[derive(Default)]
struct State {
    capacity: usize,
    /// Errors by `config`.
    errors: HashMap<u64, i32>,
    /// CPUs that are offline.
    offline: Vec<u32>,
    forbid_kernel: bool,
    /// Every event ever opened: what for, and its leader.
    opened: Vec<(Request, Option<usize>)>,
    /// Leaders that were let count.
    enabled: Vec<usize>,
    /// Counts to return by `config`: value, enabled, running.
    values: HashMap<u64, (u64, u64, u64)>,
    reads: usize,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<State>>);

impl Kernel for Fake {
    type Event = usize;

    fn open(&self, request: &Request, leader: Option<&usize>) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        let fail = |errno| Err(io::Error::from_raw_os_error(errno));
        if let Some(&errno) = state.errors.get(&request.config[0]).filter(|_| request.kind != 1) {
            return fail(errno);
        }
        if request.cpu.is_some_and(|cpu| state.offline.contains(&cpu)) {
            return fail(libc::ENODEV);
        }
        if state.forbid_kernel && !request.exclude.kernel {
            return fail(libc::EACCES);
        }
        if let Some(&leader) = leader {
            let members = 1 + state.opened.iter().filter(|(_, of)| *of == Some(leader)).count();
            if request.kind != 1 && members >= state.capacity {
                return fail(libc::EINVAL);
            }
        }
        state.opened.push((*request, leader.copied()));
        Ok(state.opened.len() - 1)
    }

    fn enable(&self, leader: &usize) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        assert_eq!(state.opened[*leader].1, None, "a group is enabled through its leader");
        state.enabled.push(*leader);
        Ok(())
    }

    fn read(&self, event: &usize, words: &mut [u64]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        state.reads += 1;
        let of = |at: usize| state.values.get(&state.opened[at].0.config[0]).copied().unwrap_or((0, 10, 10));
        let (value, enabled, running) = of(*event);
        let out = if state.opened[*event].0.together {
            let others = (0..state.opened.len()).filter(|&at| state.opened[at].1 == Some(*event));
            let values: Vec<u64> = [value].into_iter().chain(others.map(|at| of(at).0)).collect();
            [vec![values.len() as u64, enabled, running], values].concat()
        } else {
            vec![value, enabled, running]
        };
        words[..out.len()].copy_from_slice(&out);
        Ok(out.len())
    }
}

/// A machine of `cpus` CPUs with the PMU directories given as `NAME/FILE` and text.
fn machine(cpus: &str, files: &[(&str, &str)]) -> (TempDir, Sources) {
    let root = TempDir::new().unwrap();
    put(root.path(), "sys/devices/system/cpu/online", cpus);
    for pid in [100, 200] {
        put(root.path(), format!("proc/{pid}/stat"), &format!("{pid} (p) S 1"));
        put(root.path(), format!("proc/{pid}/comm"), &format!("p{pid}\n"));
        put(root.path(), format!("proc/{pid}/task/{pid}/comm"), "p");
        put(root.path(), format!("proc/{pid}/task/{}/comm", pid + 1), "p");
    }
    put(root.path(), "proc/sys/kernel/perf_event_paranoid", "2\n");
    for (file, text) in files {
        put(&root.path().join("sys/bus/event_source/devices"), file, text);
    }
    let sources = Sources::read(root.path()).unwrap();
    (root, sources)
}

const CPU: [(&str, &str); 2] = [("cpu/type", "4"), ("cpu/format/event", "config:0-7")];

fn begin(
    kernel: &Fake,
    (root, sources): &(TempDir, Sources),
    events: &str,
    target: Counted,
    by_cpu: bool,
) -> Result<Collector<Fake>> {
    let events = sources.parse(events).unwrap();
    Collector::begin_with(kernel.clone(), root.path(), Options { target, events, by_cpu })
}

/// CPU or process, event, count.
fn rows(table: &Table) -> Vec<(u64, String, Option<f64>)> {
    (0..table.num_rows())
        .map(|r| {
            let key = table.int(r, "CPU").or(table.int(r, "pid")).unwrap_or(0);
            (key, table.text(r, "event").unwrap().to_string(), table.number(r, "count"))
        })
        .collect()
}

#[test]
fn a_cpu_is_opened_in_groups_and_read_once_for_each() {
    let fake = Fake::default();
    fake.0.borrow_mut().capacity = 3;
    let machine = machine("0-1", &CPU);
    let events = "cycles,cs,instructions,LLC-loads,LLC-load-misses,page-faults,r10,r11";
    let mut counters = begin(&fake, &machine, events, Counted::Cpus, true).unwrap();
    {
        let state = fake.0.borrow();
        assert_eq!(state.opened.len(), 16, "no event is opened twice");
        let groups = state.opened.iter().filter(|(_, leader)| leader.is_none()).count();
        // Hardware 3 + 3 a CPU, software 2.
        assert_eq!(groups, 2 * 3);
        assert_eq!(state.enabled.len(), groups);
        let of = |config, kind| {
            state.opened.iter().find(|(r, _)| r.config[0] == config && r.kind == kind).unwrap()
        };
        assert_eq!(of(1, 0).1, Some(0), "instructions are counted with cycles");
        assert_eq!(of(2, 1).1, Some(1), "page faults with switches");
        assert!(state.opened.iter().all(|(r, _)| r.inherit == Inherit::None && r.who == Who::All));
    }
    fake.0.borrow_mut().reads = 0;
    fake.0.borrow_mut().values = HashMap::from([(0, (1000, 110, 60)), (0x10, (7, 10, 10))]);
    let table = counters.sample().unwrap();
    assert_eq!(fake.0.borrow().reads, 6);
    let rows = rows(&table);
    assert_eq!(rows.len(), 16);
    // 1000 in 50 of 100 ns.
    assert_eq!(rows[0], (0, "cycles".into(), Some(2000.0)));
    assert_eq!(rows.iter().filter(|r| r.0 == 1).count(), 8);
    assert_eq!(counters.notes(), [""; 0]);
}

#[test]
fn what_the_pmu_lacks_is_told_once_and_the_rest_is_counted() {
    let fake = Fake::default();
    fake.0.borrow_mut().capacity = 4;
    fake.0.borrow_mut().errors = HashMap::from([(9, libc::ENOENT), (8, libc::EOPNOTSUPP)]);
    let machine = machine("0-3", &CPU);
    let mut counters =
        begin(&fake, &machine, "cycles,ref-cycles,stalled-cycles-backend", Counted::Cpus, true).unwrap();
    let notes = counters.notes();
    assert_eq!(notes, ["ref-cycles, stalled-cycles-backend: this machine's PMU does not count it"]);
    assert_eq!(counters.events().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["cycles"]);
    assert_eq!(counters.sample().unwrap().num_rows(), 4);
    let none = begin(&fake, &machine, "ref-cycles", Counted::Cpus, true).err().unwrap();
    assert!(none.to_string().starts_with("nothing to count: ref-cycles"), "{none}");
}

#[test]
fn cpus_that_come_and_go() {
    let fake = Fake::default();
    let machine = machine("0-2", &[]);
    // CPU 2 went offline between the list and the opening.
    fake.0.borrow_mut().offline = vec![2];
    let mut counters = begin(&fake, &machine, "cs", Counted::Cpus, true).unwrap();
    let online = machine.0.path().join("sys/devices/system/cpu/online");
    let cpus = |table: Table| rows(&table).into_iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(cpus(counters.sample().unwrap()), [0, 1]);
    fs::write(&online, "0\n").unwrap();
    assert_eq!(cpus(counters.sample().unwrap()), [0]);
    fake.0.borrow_mut().offline = vec![];
    fs::write(&online, "0-2\n").unwrap();
    assert_eq!(cpus(counters.sample().unwrap()), [0, 1, 2]);
    assert_eq!(counters.notes(), ["CPU 1 went offline", "CPU 1-2 came online"]);
}

#[test]
fn shared_units_are_opened_where_they_say() {
    let fake = Fake::default();
    fake.0.borrow_mut().capacity = 9;
    let files = [
        ("imc_0/type", "20"),
        ("imc_0/cpumask", "1"),
        ("imc_0/format/event", "config:0-7"),
        ("imc_1/type", "21"),
        ("imc_1/cpumask", "1"),
        ("imc_1/format/event", "config:0-7"),
    ];
    let machine = machine("0-3", &files);
    let mut counters = begin(&fake, &machine, "imc/event=5/", Counted::Cpus, true).unwrap();
    fake.0.borrow_mut().values = HashMap::from([(5, (100, 20, 15))]);
    // Two units, each 100 in 5 of 10 ns.
    assert_eq!(rows(&counters.sample().unwrap()), [(1, "imc/event=5/".into(), Some(400.0))]);
}

#[test]
fn a_thread_on_a_hybrid_machine_counts_on_both_kinds_of_core() {
    let fake = Fake::default();
    fake.0.borrow_mut().capacity = 4;
    let files =
        [("cpu_core/type", "4"), ("cpu_core/cpus", "0-1"), ("cpu_atom/type", "10"), ("cpu_atom/cpus", "2-3")];
    let machine = machine("0-3", &files);
    let mut counters = begin(&fake, &machine, "cycles", Counted::Program(100), false).unwrap();
    let values = HashMap::from([(4 << 32, (600, 10, 6)), (10 << 32, (100, 10, 4))]);
    fake.0.borrow_mut().values = values;
    let table = counters.sample().unwrap();
    // Two threads.
    assert_eq!(rows(&table), [(100, "cycles".into(), Some(1400.0))]);
    let state = fake.0.borrow();
    assert!(state.opened.iter().all(|(r, _)| r.inherit == Inherit::All && r.from_exec && !r.together));
    assert_eq!(state.enabled, [0usize; 0], "the exec does that");
    drop(state);
    // A CPU is of one kind.
    let fake = Fake::default();
    let counters = begin(&fake, &machine, "cycles", Counted::Cpus, true).unwrap();
    let opened: Vec<_> =
        fake.0.borrow().opened.iter().map(|(r, _)| (r.cpu.unwrap(), r.config[0] >> 32)).collect();
    assert_eq!(opened, [(0, 4), (1, 4), (2, 10), (3, 10)]);
    drop(counters);
}

#[test]
fn without_root_the_kernel_is_left_out_and_that_is_told() {
    let fake = Fake::default();
    fake.0.borrow_mut().forbid_kernel = true;
    let machine = machine("0", &CPU);
    let mut counters = begin(&fake, &machine, "cycles,cs,faults", Counted::Tree(100), false).unwrap();
    let notes = counters.notes();
    assert!(notes[0].starts_with("user mode only"), "{notes:?}");
    assert!(notes[1].starts_with("cs: happens in the kernel"), "{notes:?}");
    assert!(fake.0.borrow().opened.iter().all(|(r, _)| r.exclude.kernel && r.exclude.hv));
    let denied = begin(&fake, &machine, "cs", Counted::Cpus, true).err().unwrap().to_string();
    assert!(denied.contains("perf_event_paranoid is 2") && denied.contains("=0"), "{denied}");
}

#[test]
fn processes_are_found_as_they_come_and_have_rows_of_their_own() {
    let fake = Fake::default();
    let machine = machine("0", &[]);
    let mut counters = begin(&fake, &machine, "cs", Counted::Processes, false).unwrap();
    let pids = |table: Table| rows(&table).into_iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(pids(counters.sample().unwrap()), [100, 200]);
    assert!(fake.0.borrow().opened.iter().all(|(r, _)| r.inherit == Inherit::Threads));
    let proc = machine.0.path().join("proc");
    fs::rename(proc.join("100"), proc.join("150")).unwrap();
    assert_eq!(pids(counters.sample().unwrap()), [150, 200]);
    let gone = begin(&fake, &machine, "cs", Counted::Tree(99), false).err().unwrap();
    assert!(matches!(gone, Error::Gone(99)), "{gone}");
}

#[test]
fn an_event_that_never_gets_a_counter_is_told_once() {
    let fake = Fake::default();
    fake.0.borrow_mut().capacity = 4;
    let machine = machine("0", &CPU);
    let mut counters = begin(&fake, &machine, "cycles", Counted::Cpus, true).unwrap();
    for round in 2..4 {
        fake.0.borrow_mut().values = HashMap::from([(0, (0, 10 * round, 10))]);
        let rows = rows(&counters.sample().unwrap());
        assert_eq!(rows[0].2, None, "not known is not zero");
    }
    let notes = counters.notes();
    assert!(notes.len() == 1 && notes[0].contains("NMI watchdog"), "{notes:?}");
}

/// Counts of a program under the real kernel, by event; `None` where perf events are not available.
fn count(events: &str, argv: &[&str]) -> Option<(BTreeMap<String, f64>, crate::program::Ended)> {
    let mut sources = Sources::read("/".as_ref()).unwrap();
    sources.read_tracepoints("/".as_ref(), events);
    let events = match sources.parse(events) {
        Ok(events) => events,
        Err(e) => {
            println!("skipped: {e}");
            return None;
        }
    };
    let argv: Vec<std::ffi::OsString> = argv.iter().map(Into::into).collect();
    let mut child = Child::hold(&argv).unwrap();
    let options = Options { target: Counted::Program(child.pid()), events, by_cpu: false };
    let mut counters = match Collector::begin(options) {
        Ok(counters) => counters,
        Err(e) => {
            println!("skipped: {e}");
            return None;
        }
    };
    child.release().unwrap();
    let ended = child.wait(true).unwrap();
    assert_eq!(ended.status, 0);
    let table = counters.sample().unwrap();
    let counts = rows(&table).into_iter().map(|(_, event, count)| (event, count.unwrap())).collect();
    Some((counts, ended))
}

#[test]
fn faults_of_a_program_that_touches_pages() {
    // 64 MiB, each page of which is written: 16,384 faults, fewer where huge pages serve them.
    let script = "import mmap\nm = mmap.mmap(-1, 64 << 20)\nm.madvise(mmap.MADV_NOHUGEPAGE)\n\
                  for at in range(0, 64 << 20, 4096): m[at] = 1\n";
    let Some((counts, _)) = count("page-faults,minor-faults,major-faults", &["python3", "-c", script]) else {
        return;
    };
    let faults = counts["page-faults"];
    assert!(faults >= 16384.0, "{faults}");
    assert_eq!(counts["minor-faults"] + counts["major-faults"], faults);
}

#[test]
fn times_of_a_program_are_those_of_its_rusage() {
    // Children and a pipe, so that what is inherited is part of it.
    let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; (i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done) | cat";
    let Some((counts, ended)) = count("task-clock,context-switches", &["sh", "-c", script]) else { return };
    let (clock, used) = (counts["task-clock"] / 1e3, ended.user + ended.system);
    // rusage also has what was used before the exec and after the events had gone with the thread, a few
    // milliseconds at most, and the kernel accounts it by ticks where it is not told to be precise: of
    // 4 ms at the end of each of three processes.
    assert!((clock - used).abs() < 0.03 + 0.1 * used, "task-clock {clock} s, rusage {used} s");
    // A pipe between two processes and the wait for both.
    assert!(counts["context-switches"] >= 2.0, "{counts:?}");
}

#[test]
fn every_event_of_a_group_counts() {
    // Clocks, switches and tracepoints are of different PMUs in one group.
    let mut sources = Sources::read("/".as_ref()).unwrap();
    sources.read_tracepoints("/".as_ref(), "raw_syscalls:sys_enter");
    for names in ["cs,task-clock,cpu-clock,raw_syscalls:sys_enter", "task-clock,raw_syscalls:sys_enter,cs"] {
        let Ok(events) = sources.parse(names) else { return println!("skipped: no tracepoints") };
        let mut counters = match Collector::begin(Options { target: Counted::Cpus, events, by_cpu: true }) {
            Ok(counters) => counters,
            Err(e) => return println!("skipped: {e}"),
        };
        // Two processes that answer each other make calls and switches on some CPU.
        let script = "for i in 1 2 3 4 5 6 7 8; do echo; done | while read x; do ls / >/dev/null; done";
        assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (cpu, event, count) in rows(&counters.sample().unwrap()) {
            let count = count.unwrap_or_else(|| panic!("{event} on CPU {cpu} had no counter"));
            assert!(count > 0.0 || !event.ends_with("-clock"), "{event} on CPU {cpu}");
            *sums.entry(event).or_default() += count;
        }
        assert!(sums.values().all(|n| *n > 0.0), "{sums:?}");
    }
}

#[test]
fn a_tracepoint_is_a_counter() {
    let script = "import os\nfor _ in range(5000): os.getppid()\n";
    let Some((with, _)) = count("raw_syscalls:sys_enter", &["python3", "-c", script]) else { return };
    let Some((without, _)) = count("raw_syscalls:sys_enter", &["python3", "-c", "import os\n"]) else {
        return;
    };
    let more = with["raw_syscalls:sys_enter"] - without["raw_syscalls:sys_enter"];
    // The interpreter's own calls differ by a few from run to run.
    assert!((more - 5000.0).abs() <= 50.0, "{more}");
}

#[test]
fn hardware_events_are_counted_or_told_absent() {
    let sources = Sources::read("/".as_ref()).unwrap();
    let (events, absent) = sources.parse_present("cycles,cs").unwrap();
    assert_eq!(absent.is_empty(), sources.cores().next().is_some());
    let options = Options { target: Counted::Tree(std::process::id()), events, by_cpu: false };
    match Collector::begin(options) {
        Ok(mut counters) => {
            counters.sample().unwrap();
        }
        Err(e) => println!("skipped: {e}"),
    }
}
