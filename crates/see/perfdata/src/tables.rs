//! Tables of an observation, from all records of a file.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_schema::{
    CpuState, Microstate, Per, SampleClass, StackKind, cpu_time, drops, samples, stacks, summary, threads,
};
use ncpu_table::Table;

use crate::file::{Event, has};
use crate::{Imported, MAX_CPUS, ON_CPU, State};

/// Puts it together.
pub(crate) fn imported(state: State<'_>, elapsed: f64) -> Imported {
    let t = Some(elapsed);
    let online = state.file.cpus.filter(|cpus| *cpus > 0 && *cpus <= MAX_CPUS);
    let ran: BTreeMap<Option<u32>, f64> = match state.threads.switches {
        true => state.threads.ran.iter().map(|(cpu, ns)| (*cpu, *ns as f64 / 1e9)).collect(),
        false => state.sampled.iter().map(|(cpu, seconds)| (*cpu, *seconds)).collect(),
    };
    let chosen = state.file.command.iter().any(|word| word.starts_with("-C") || word.starts_with("--cpu"));
    let seen = ran.keys().chain(state.sampled.keys()).flatten().filter(|cpu| **cpu < MAX_CPUS).copied();
    let mut cpus: BTreeSet<u32> = seen.collect();
    if !(chosen && state.machine) || cpus.is_empty() {
        cpus.extend(0..online.unwrap_or(1));
    }
    let total: f64 = ran.values().sum();
    let capacity = elapsed * cpus.len() as f64;

    let mut rows = cpu_time::Rows::new();
    for &cpu in &cpus {
        let busy = ran.get(&Some(cpu)).copied().unwrap_or(0.0);
        let spent = Per::new(|at| match at {
            CpuState::Program => Some(busy),
            // Of a program alone it is not known what its CPUs did otherwise.
            CpuState::Idle if state.machine => Some((elapsed - busy).max(0.0)),
            _ => None,
        });
        rows.push(cpu_time::Row { time: t, cpu: Some(cpu.into()), spent, kernel: None });
    }
    // Time on a CPU that the file does not name.
    let elsewhere: f64 =
        ran.iter().filter(|(cpu, _)| cpu.is_none_or(|c| !cpus.contains(&c))).map(|(_, s)| s).sum();
    if elsewhere > 0.0 {
        let spent = Per::new(|at| (at == CpuState::Program).then_some(elsewhere));
        rows.push(cpu_time::Row { time: t, cpu: None, spent, kernel: None });
    }
    let mut tables = vec![rows.finish()];
    tables.push(sample_rows(&state, elapsed));
    tables.push(stack_rows(&state, elapsed));
    tables.push(thread_rows(&state, elapsed));
    let mut rows = summary::Rows::new();
    let hz = state.event.hz().or_else(|| 1_000_000_000u64.checked_div(state.event.period));
    rows.push(summary::Row { elapsed: t, cpus: Some(cpus.len() as u64), hz, ..Default::default() });
    tables.push(rows.finish());
    let mut rows = drops::Rows::new();
    for (what, count) in [
        ("samples and records that perf lost", state.lost),
        ("records that could not be read", state.unread),
        ("mappings of code without room", state.names.dropped),
        ("samples and switches of threads without room", state.threads.unnamed),
    ] {
        if count > 0 {
            rows.push(drops::Row { what: what.into(), count: Some(count) });
        }
    }
    tables.push(rows.finish());
    let notes = notes(&state, capacity - total);
    let file = state.file;
    Imported {
        tables,
        notes,
        host: file.host.clone(),
        kernel: file.release.clone(),
        cpu_model: file.cpu_model.clone(),
        cpus: cpus.len() as u64,
        command: file.command.clone(),
        elapsed,
        machine: state.machine,
    }
}

fn sample_rows(state: &State<'_>, elapsed: f64) -> Table {
    let mut sums: BTreeMap<(SampleClass, &str, &str), u64> = BTreeMap::new();
    for (stack, sum) in &state.stacks {
        *sums.entry((stack.class, &stack.detail, &stack.thread)).or_default() += sum.samples;
    }
    let mut rows = samples::Rows::new();
    for ((class, detail, thread), count) in sums {
        rows.push(samples::Row {
            at: Some(CpuState::Program),
            class: Some(class),
            detail: detail.into(),
            process: thread.into(),
            samples: Some(count),
            time: Some(elapsed),
        });
    }
    rows.finish()
}

fn stack_rows(state: &State<'_>, elapsed: f64) -> Table {
    let mut rows = stacks::Rows::new();
    let mut on: Vec<_> = state.stacks.iter().collect();
    on.sort_by(|(a, _), (b, _)| (&a.process, &a.thread, &a.frames).cmp(&(&b.process, &b.thread, &b.frames)));
    for (stack, sum) in on {
        let whole = match stack.frames.is_empty() {
            true => stack.thread.to_string(),
            false => format!("{};{}", stack.thread, stack.frames),
        };
        rows.push(stacks::Row {
            kind: Some(ON_CPU),
            stack: whole.as_str().into(),
            seconds: Some(sum.seconds),
            samples: Some(sum.samples),
            time: Some(elapsed),
            process: (&*stack.process).into(),
            thread: (&*stack.thread).into(),
            wait: None::<&str>.into(),
            binaries: Some(stack.binaries.as_str()).filter(|files| !files.is_empty()).into(),
            at: Some(CpuState::Program),
            class: Some(stack.class),
            lock: None::<&str>.into(),
            waits: None,
        });
    }
    // Of a switch only the thread is known.
    let mut off: BTreeMap<(&str, &str, bool), (u64, u64)> = BTreeMap::new();
    for thread in &state.threads.done {
        for (waits, ns, queued) in
            [(thread.voluntary, thread.slept, false), (thread.involuntary, thread.waited, true)]
        {
            let sum = off.entry((&thread.process, &thread.name, queued)).or_default();
            *sum = (sum.0.saturating_add(waits), sum.1.saturating_add(ns));
        }
    }
    for ((process, thread, queued), (waits, ns)) in off.into_iter().filter(|(_, (_, ns))| *ns > 0) {
        let wait = if queued { "run queue" } else { "" };
        rows.push(stacks::Row {
            kind: Some(StackKind::OffCpu),
            stack: format!("{wait};{thread}").as_str().into(),
            seconds: Some(ns as f64 / 1e9),
            samples: Some(0),
            time: Some(elapsed),
            process: process.into(),
            thread: thread.into(),
            wait: queued.then_some(wait).into(),
            binaries: None::<&str>.into(),
            at: None,
            class: None,
            lock: None::<&str>.into(),
            waits: Some(waits),
        });
    }
    rows.finish()
}

fn thread_rows(state: &State<'_>, elapsed: f64) -> Table {
    let mut rows = threads::Rows::new();
    let switches = state.threads.switches;
    let seconds = |ns: u64| Some(ns as f64 / 1e9).filter(|_| switches);
    for thread in &state.threads.done {
        rows.push(threads::Row {
            time: Some(elapsed),
            pid: Some(thread.pid.into()),
            tid: Some(thread.tid.into()),
            process: (&*thread.process).into(),
            thread: (&*thread.name).into(),
            micro: Per::new(|at| (at == Microstate::Lat).then(|| seconds(thread.waited)).flatten()),
            vcx: Some(thread.voluntary).filter(|_| switches),
            icx: Some(thread.involuntary).filter(|_| switches),
            cpu: seconds(thread.ran).or(Some(thread.sampled)),
            off: seconds(thread.slept),
            ..Default::default()
        });
    }
    rows.finish()
}

/// Why no sample has a caller.
fn no_callers(event: &Event) -> &'static str {
    match event.sample_type {
        of if of & has::CALLCHAIN == 0 => "there are no callers: `perf record -g` records them",
        of if of & has::STACK_USER != 0 => {
            "there are no callers: perf copied the stacks (--call-graph dwarf), and copies are not read here; record with `perf record -g`"
        }
        _ => {
            "there are no callers, although perf looked for them (-g): code that was built without frame pointers shows none; build with -fno-omit-frame-pointer"
        }
    }
}

/// Notes for the reader: missing layers, and how to record them.
fn notes(state: &State<'_>, rest: f64) -> Vec<String> {
    let (file, event) = (state.file, state.event);
    let version = if file.version.is_empty() { String::new() } else { format!(" {}", file.version) };
    let name = if event.name.is_empty() { "its first event" } else { &event.name };
    let mut notes = vec![format!(
        "imported from perf{version}, event {name}: perf does not record locks, interrupts, steal, or why CPUs idled, so these layers \
         are missing or part of others"
    )];
    if !state.machine {
        notes.push(format!(
            "perf observed the program alone: {rest:.2} CPU-s in which CPUs idled or ran other programs are not accounted for; `perf \
             record -a` observes the machine"
        ));
    }
    if !state.threads.switches {
        notes.push(
            "time on CPU is that of the samples, and time off CPU is unknown; `perf record --switch-events` makes the first exact and \
             shows the second"
                .into(),
        );
    }
    if !state.chains {
        notes.push(no_callers(event).into());
    }
    if event.excludes_kernel() {
        notes.push("perf did not sample the kernel: its time is part of user code, or missing".into());
    }
    if state.names.nameless_kernel {
        notes.push(
            "functions of the kernel have no names: import the file on the machine that recorded it, as root, before it boots again"
                .into(),
        );
    }
    notes
}
