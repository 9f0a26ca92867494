//! Starts `ncpu-serve` with made-up intervals of a machine that one does not have, to look at its page:
//! `cargo run -p ncpu-serve --example made-up -- 2048 10000 [LISTEN]`. A minute is there at once, then one a second.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ncpu_feed::{Head, PROGRAM, Packed, Ready, Settings};
use ncpu_record::Manifest;
use ncpu_schema::{
    CpuState, IdleReason, Microstate, Per, Purpose, SampleClass, StackKind, cpu_time, cpus as each_cpu,
    idle_time, locks, samples, stacks, summary, threads,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |what| args.next().and_then(|n| n.parse::<u64>().ok()).ok_or(what);
    let (cpus, count) = (number("how many CPUs?")?, number("how many threads?")?);
    let listen = args.next().unwrap_or_else(|| "127.0.0.1:9477".into());
    let example = std::env::current_exe()?;
    let program = example.parent().and_then(Path::parent).ok_or("no directory")?.join(PROGRAM);
    let mut server = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut feed, answers) = (server.stdin.take().ok_or("no pipe")?, server.stdout.take().ok_or("no pipe")?);
    let mut manifest = Manifest::new(Purpose::Watch, cpus, vec!["the machine".into()], 1.0);
    (manifest.host, manifest.cpu_model) = ("made-up".into(), "no processor".into());
    let (token, tls, user) = (None, None, None);
    let settings = Settings {
        listen,
        token,
        tls,
        user,
        history: 256 << 20,
        mode: 0o600,
        otlp: None,
        otlp_ca: None,
        otlp_every: 10.0,
        causes: Vec::new(),
        manifest,
    };
    ncpu_feed::begin(&mut feed, &settings)?;
    println!("{:?}", Ready::hear(answers)?);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
    let began = now() - 60.0;
    for n in 0.. {
        let end = began + (n + 1) as f64;
        std::thread::sleep(Duration::try_from_secs_f64(end - now()).unwrap_or(Duration::ZERO));
        let head = Head { start: end - 1.0, end, since: n as f64, ..Head::default() };
        Packed::new(head, &tables(n, cpus, count))?.send(&mut feed)?;
    }
    Ok(())
}

/// The interval of this number: waves of work over the CPUs, and threads that lock each other out at its height.
fn tables(n: u64, cpus: u64, count: u64) -> Vec<ncpu_table::Table> {
    let t = Some(n as f64 + 1.0);
    let wave = |x: f64| 0.5 + 0.5 * x.sin();
    let mut rows = cpu_time::Rows::new();
    let mut places = each_cpu::Rows::new();
    let (mut busy, mut idle) = (0.0, 0.0);
    for cpu in 0..cpus {
        let load = wave(n as f64 / 9.0 + cpu as f64 / 60.0) * 0.9;
        let spin = 0.3 * load * wave(n as f64 / 17.0);
        let irq = if cpu % 64 == 0 { 0.08 } else { 0.005 };
        let spent = Per::new(|state| {
            Some(match state {
                CpuState::Program => load - spin,
                CpuState::Spin => spin,
                CpuState::Hardirq => irq,
                CpuState::Softirq => irq / 2.0,
                CpuState::Idle => 1.0 - load - 1.5 * irq,
                _ => 0.0,
            })
        });
        busy += load - spin;
        idle += 1.0 - load - 1.5 * irq;
        rows.push(cpu_time::Row { time: t, cpu: Some(cpu), spent, kernel: None });
        // Packages of 64 cores in two nodes each; the second CPUs of all cores come last, as they often do.
        let core = cpu % cpus.div_ceil(2);
        let per_second = |most: f64| Some((most * wave(n as f64 / 7.0 + core as f64 / 40.0)) as u64);
        places.push(each_cpu::Row {
            time: t,
            cpu: Some(cpu),
            node: Some(core / 32),
            package: Some(core / 64),
            core: Some(core),
            intr: per_second(2000.0).map(|n| if cpu % 64 == 0 { 20 * n } else { n }),
            csw: per_second(9000.0),
            icsw: per_second(800.0),
            migr: per_second(300.0),
            smtx: per_second(5000.0 * spin),
            usr: Some(0.8 * (load - spin)),
            sys: Some(0.2 * (load - spin) + spin + 1.5 * irq),
            wt: Some(0.0),
            st: Some(0.0),
            idl: Some(1.0 - load - 1.5 * irq),
            ..each_cpu::Row::default()
        });
    }
    let mut reasons = idle_time::Rows::new();
    let spent = Per::new(|reason| {
        Some(match reason {
            IdleReason::Serial => 0.5 * idle,
            IdleReason::Io => 0.2 * idle,
            IdleReason::KernelLock => 0.1 * idle,
            IdleReason::Asleep => 0.2 * idle,
            _ => 0.0,
        })
    });
    reasons.push(idle_time::Row { time: t, spent });
    let mut seen = samples::Rows::new();
    for (class, detail, part) in
        [(SampleClass::User, "", 60), (SampleClass::Syscall, "read", 25), (SampleClass::Fault, "", 15)]
    {
        seen.push(samples::Row {
            at: Some(CpuState::Program),
            class: Some(class),
            detail: detail.into(),
            process: "postgres".into(),
            samples: Some(part * cpus / 4),
            time: t,
        });
    }
    let mut code = stacks::Rows::new();
    for which in 0..400_u64 {
        // A tree of functions, of which those of the kernel come last; what is most changes with time.
        let digits = [which % 3, which / 3 % 4, which / 12 % 5, which / 60];
        let [work, plan, node, call] = digits;
        let mut stack = format!("postgres;main;ServerLoop;work_{work};plan_{plan};node_{node};call_{call}");
        if which % 2 == 0 {
            stack.push_str(";read_[k];vfs_read_[k];filemap_read_[k]");
        }
        let part = wave(n as f64 / 11.0 + which as f64) / (1 + work + plan + node) as f64 / 60.0;
        code.push(stacks::Row {
            kind: Some(StackKind::OnCpu),
            stack: stack.as_str().into(),
            seconds: Some(part * busy),
            samples: Some(99),
            time: t,
            ..stacks::Row::default()
        });
    }
    let mut waits = locks::Rows::new();
    for lock in 0..40 {
        waits.push(locks::Row {
            lock: format!("lock_{lock}").as_str().into(),
            ty: "spinlock".into(),
            process: "postgres".into(),
            count: Some(1000 / (lock + 1)),
            spin: Some(busy / 20.0 / (lock + 1) as f64),
            block: Some(0.1),
            max: Some(90.0),
            time: t,
            ..Default::default()
        });
    }
    let mut all = threads::Rows::new();
    for thread in 0..count {
        let on = (busy / count as f64).min(1.0) * 2.0 * wave(thread as f64 + n as f64 / 5.0);
        let micro = Per::new(|state| match state {
            Microstate::Slp => Some((1.0 - on).max(0.0)),
            _ => None,
        });
        all.push(threads::Row {
            time: t,
            pid: Some(1000 + thread / 50),
            tid: Some(1000 + thread),
            process: "postgres".into(),
            thread: format!("worker {}", thread % 50).as_str().into(),
            micro,
            own: None,
            spin: Some(on / 10.0),
            vcx: Some(thread % 97),
            icx: Some(thread % 13),
            scl: None,
            sig: None,
            minf: Some(thread % 7),
            majf: Some(0),
            cpu: Some(on),
            error: None,
            off: None,
            ended: None,
        });
    }
    let mut whole = summary::Rows::new();
    whole.push(summary::Row {
        elapsed: Some(1.0),
        user: None,
        system: None,
        cpus: Some(cpus),
        steal: Some(0.0),
        iowait: Some(0.0),
        hz: Some(10),
        status: None,
        max_rss: None,
    });
    vec![
        rows.finish(),
        places.finish(),
        reasons.finish(),
        seen.finish(),
        code.finish(),
        waits.finish(),
        all.finish(),
        whole.finish(),
    ]
}
