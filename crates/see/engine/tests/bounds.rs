//! An observation with more objects than it has room for. Needs root and BPF; skips with a message otherwise.

mod common;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use common::{allowed, part};
use ncpu_engine::engine::{Config, Probes};
use ncpu_engine::observation::Observation;
use ncpu_files::reader::Source;
use ncpu_observe_core::program::{Child, Target};
use ncpu_table::Table;

/// More than a CPU has rows for: 16,384.
const FUTEXES: usize = 24_000;

#[test]
fn futexes_without_number_are_all_counted_in_few_rows() {
    let Some(_one) = allowed() else { return };
    let mut child = Child::hold(&part("wait_for_many_futexes")).unwrap();
    let config = Config { probes: Probes::All, ..Config::onion(Target::Tree(child.pid()), 99) };
    let mut observation = Observation::begin(&config).unwrap();
    child.release().unwrap();
    let mut tables: Vec<Table> = Vec::new();
    let mut take = |t: &Table| -> Result<(), Infallible> {
        tables.push(t.clone());
        Ok(())
    };
    // All in one interval.
    let long = Duration::from_secs(600);
    observation.watch(Some(child.pidfd()), None, long, &|| false, &mut take).unwrap();
    let ended = child.wait(true).unwrap();
    assert_eq!(ended.status, 0);
    observation.finish(Some(ended), &mut take).unwrap();

    let of = |name: &str| tables.iter().filter(|t| t.name() == name).cloned().collect::<Vec<_>>();
    let futexes = of("user_locks");
    let rows: usize = futexes.iter().map(Table::num_rows).sum();
    // Those of which a stack has come are one row, as a place where a thread waits.
    assert!((1..2000).contains(&rows), "{rows} rows");
    let each = || futexes.iter().flat_map(|t| (0..t.num_rows()).map(move |r| (t, r)));
    let count: u64 = each().filter_map(|(t, r)| t.int(r, "count")).sum();
    // The end of a wait that no BPF program sees, as that of a timer in an interrupt of process 1 here, is one less.
    assert!((FUTEXES as u64 * 98 / 100..=FUTEXES as u64 + 10).contains(&count), "{count} waits");
    let others: Vec<_> = each().filter(|&(t, r)| t.text(r, "lock") == Some("[others]")).collect();
    assert!((1..10).contains(&others.len()), "{others:?}");
    assert!(others.iter().all(|&(t, r)| t.int(r, "pid").is_none()));
    let dropped = of("drops");
    let full = |t: &Table| {
        (0..t.num_rows()).any(|r| t.text(r, "what").is_some_and(|w| w.contains("lock table full")))
    };
    assert!(!dropped.iter().any(full), "{dropped:?}");
}

/// The kernel looks at each way through a program before it may run: 100,000 instructions take a third of a second, and it refuses a
/// million. A flag that is known there and looked at again later doubles what lies between.
#[test]
fn the_kernel_need_not_look_at_programs_for_long() {
    let Some(_one) = allowed() else { return };
    let _observation = Observation::begin(&Config::onion(Target::All, 99)).unwrap();
    let named = |name: &str| {
        let of = |info: &libbpf_rs::query::ProgramInfo| info.name.as_encoded_bytes() == name.as_bytes();
        libbpf_rs::query::ProgInfoIter::default().filter(of).map(|info| info.verified_insns).max()
    };
    for name in ["sched_switch", "sample", "sched_wakeup", "sched_waking", "leader"] {
        let instructions = named(name).unwrap_or_else(|| panic!("no program {name}"));
        assert!((100..60_000).contains(&instructions), "{name}: {instructions} instructions");
    }
}

/// Files of others are read by processes of ncpu's own, and what those take is not the program's, nor another program's.
#[test]
fn the_processes_that_read_files_are_ncpu_itself() {
    let Some(_one) = allowed() else { return };
    let mut observation = Observation::begin(&Config::onion(Target::All, 99)).unwrap();
    let (mut reader, mut tables) = (None, Vec::<Table>::new());
    let mut take = |t: &Table| -> Result<(), Infallible> {
        tables.push(t.clone());
        Ok(())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + Duration::from_millis(700);
            while Instant::now() < until {
                Source::open("/etc/passwd".as_ref()).unwrap();
            }
            reader = ncpu_files::reader::pid();
        });
        observation
            .watch(
                None,
                Some(Instant::now() + Duration::from_millis(1000)),
                Duration::from_secs(600),
                &|| false,
                &mut take,
            )
            .unwrap();
    });
    observation.finish(None, &mut take).unwrap();
    let reader = u64::from(reader.unwrap());
    let threads: Vec<_> = tables.iter().filter(|t| t.name() == "threads").collect();
    let pids = || threads.iter().flat_map(|t| (0..t.num_rows()).filter_map(|r| t.int(r, "pid")));
    assert!(pids().count() > 1, "no threads were seen");
    assert!(pids().all(|pid| pid != reader), "{reader} is a thread of the machine's programs: {threads:?}");
}

mod parts {
    #[test]
    #[ignore = "a part played under observation"]
    fn wait_for_many_futexes() {
        let words = vec![0u32; super::FUTEXES];
        let little = libc::timespec { tv_sec: 0, tv_nsec: 30_000 };
        // SAFETY: a set of CPUs on the stack; each word and the time are live for the call.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1);
            for word in &words {
                let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, word, op, 0, &raw const little);
            }
        }
    }
}
