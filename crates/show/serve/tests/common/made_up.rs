//! Made-up intervals, for tests.

use ncpu_feed::{Head, Packed};
use ncpu_record::Manifest;
use ncpu_schema::{
    CpuState, Per, Purpose, StackKind, cpu_time, cpus as each_cpu, drops, locks, memory_change, pressure,
    stacks, summary,
};

/// When the first interval begins, in seconds since 1970.
pub const BEGAN: f64 = 1000.0;

/// What is observed.
pub fn about() -> Manifest {
    let mut about = Manifest::new(Purpose::Watch, 2, vec!["the machine".into()], 1.0);
    (about.host, about.kernel) = ("guest".into(), "6.1".into());
    about
}

/// An interval of nothing but waits for so many locks.
#[allow(dead_code, reason = "this file is a part of the program's own tests too")]
pub fn of_locks(number: u64, count: u64) -> Packed {
    let mut waits = locks::Rows::new();
    for lock in 0..count {
        waits.push(locks::Row {
            lock: format!("a lock of some long name, one of many: {lock}").into(),
            ty: "mutex".into(),
            process: "make".into(),
            count: Some(lock),
            spin: Some(0.25),
            block: Some(0.5),
            max: None,
            time: None,
            ..Default::default()
        });
    }
    let start = BEGAN + number as f64;
    let head = Head { start, end: start + 1.0, since: number as f64, ..Head::default() };
    Packed::new(head, &[waits.finish()]).unwrap()
}

/// The interval of this number: two CPUs, of which the first is busy.
pub fn interval(number: u64) -> Packed {
    let t = number as f64 + 1.0;
    let mut cpus = cpu_time::Rows::new();
    let mut places = each_cpu::Rows::new();
    for cpu in 0..2 {
        let spent = Per::new(|state| match (state, cpu) {
            (CpuState::Program, 0) | (CpuState::Idle, 1) => Some(1.0),
            _ => Some(0.0),
        });
        cpus.push(cpu_time::Row { time: Some(t), cpu: Some(cpu), spent, kernel: None });
        // The second lies before the first.
        let (node, package, core) = (Some(1 - cpu), Some(0), Some(cpu));
        let (intr, usr, idl) = (Some(100 * cpu), Some(1.0 - cpu as f64), Some(cpu as f64));
        let row =
            each_cpu::Row { cpu: Some(cpu), node, package, core, intr, usr, idl, ..each_cpu::Row::default() };
        places.push(each_cpu::Row { time: Some(t), ..row });
    }
    let mut waits = locks::Rows::new();
    waits.push(locks::Row {
        lock: "pcf".into(),
        ty: "mutex".into(),
        process: "make".into(),
        count: Some(10),
        spin: Some(0.25),
        block: Some(0.5),
        max: Some(number as f64),
        time: None,
        counted: Some(10),
        error: Some(0.0),
    });
    let mut code = stacks::Rows::new();
    code.push(stacks::Row {
        kind: Some(StackKind::OnCpu),
        stack: "make;main;work".into(),
        seconds: Some(1.0),
        samples: Some(99),
        time: None,
        ..stacks::Row::default()
    });
    let mut whole = summary::Rows::new();
    whole.push(summary::Row {
        elapsed: Some(1.0),
        user: None,
        system: None,
        cpus: Some(2),
        steal: Some(0.0),
        iowait: Some(0.0),
        hz: Some(99),
        status: None,
        max_rss: None,
    });
    let mut memory = memory_change::Rows::new();
    memory.push(memory_change::Row {
        class: "AnonPages".into(),
        before: Some(number),
        most: Some(100 - number),
        after: Some(number + 1),
    });
    let mut stalls = pressure::Rows::new();
    stalls.push(pressure::Row { resource: "io".into(), kind: "some".into(), seconds: Some(0.125) });
    let mut lost = drops::Rows::new();
    lost.push(drops::Row { what: "samples".into(), count: Some(3) });
    let head = Head {
        start: BEGAN + number as f64,
        end: BEGAN + 1.0 + number as f64,
        since: number as f64,
        ..Head::default()
    };
    let tables = [
        cpus.finish(),
        places.finish(),
        waits.finish(),
        code.finish(),
        whole.finish(),
        memory.finish(),
        stalls.finish(),
        lost.finish(),
    ];
    Packed::new(head, &tables).unwrap()
}
