//! Loading and attaching what the kernel has, and saying what it lacks.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::skel::{EngineSkel, EngineSkelBuilder};
use super::{Config, Error, Result, perf};
use crate::libbpf_log::explain;
use crate::load::{self, Tracepoints};

/// The lock tables of all CPUs take this much together, however many CPUs there are.
const LOCK_TABLE_BYTES: usize = 16 << 20;

pub(super) fn load(
    config: &Config,
    storage: &'static mut MaybeUninit<OpenObject>,
    notes: &mut Vec<String>,
) -> Result<EngineSkel<'static>> {
    let bpf = |doing| move |source| Error::Bpf { doing, source };
    load::check_btf()?;
    let mut open = EngineSkelBuilder::default().open(storage).map_err(bpf("opening the BPF object"))?;
    let cpus = load::possible_cpus()?;
    let slots = (LOCK_TABLE_BYTES / size_of::<super::LockSlot>() / cpus).clamp(256, 16_384);
    let slots = 1 << slots.ilog2();

    if let Some(ro) = &mut open.maps.rodata_data {
        (ro.cfg_all, ro.cfg_tgid, ro.cfg_cgroup, ro.cfg_cgroup_level) = config.target.settings();
        ro.cfg_self = std::process::id();
        ro.cfg_cpus = cpus as u32;
        ro.cfg_lock_slots = slots as u32;
        ro.cfg_lock_all = config.lock_all.into();
        // Of use to who explains why nothing ran.
        ro.cfg_sleeps = config.leader.into();
        ro.cfg_stacks = config.stacks.into();
    }
    open.maps.cpu_slots.set_max_entries(cpus as u32).map_err(bpf("sizing the CPU slots"))?;
    open.maps.lock_slots.set_max_entries((slots * cpus) as u32).map_err(bpf("sizing the lock table"))?;

    let tracepoints = Tracepoints::read()?;
    let has = |tracepoint: &str| tracepoints.has(tracepoint);
    for needed in ["sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_process_fork"] {
        if !has(needed) {
            return Err(Error::NoTracepoint(needed));
        }
    }

    let progs = &mut open.progs;
    let locks = config.locks && has("contention_begin") && has("contention_end");
    if config.locks && !locks {
        notes.push(
            "no kernel locks: the kernel has no lock:contention_begin (it came with Linux 5.19)".into(),
        );
    }
    progs.contention_begin.set_autoload(locks);
    progs.contention_end.set_autoload(locks);

    progs.user_lock.set_autoload(config.user_locks);
    progs.sched_process_exec.set_autoload(config.user_locks && has("sched_process_exec"));

    let tlb = config.tlb && has("tlb_flush");
    if config.tlb && !tlb {
        notes.push("no TLB shootdowns received: the kernel has no tlb:tlb_flush tracepoint".into());
    }
    progs.tlb_flush.set_autoload(tlb);

    let soft = config.irqs && has("softirq_entry") && has("softirq_exit");
    progs.softirq_in.set_autoload(soft);
    progs.softirq_out.set_autoload(soft);
    let irq = config.irqs && has("irq_handler_entry") && has("irq_handler_exit");
    progs.irq_handler_in.set_autoload(irq);
    progs.irq_handler_out.set_autoload(irq);
    // x86's vectors; elsewhere timer and cross-call interrupts stay in the interrupted thread's time.
    let vectors = config.irqs && has("local_timer_entry");
    if config.irqs && !vectors {
        notes.push(
            "timer and cross-call interrupts are not told apart: the kernel has no irq_vectors tracepoints"
                .into(),
        );
    }
    for (enter, exit) in [
        (&mut progs.local_timer_in, &mut progs.local_timer_out),
        (&mut progs.reschedule_in, &mut progs.reschedule_out),
        (&mut progs.call_function_in, &mut progs.call_function_out),
        (&mut progs.call_function_single_in, &mut progs.call_function_single_out),
        (&mut progs.irq_work_in, &mut progs.irq_work_out),
    ] {
        enter.set_autoload(vectors);
        exit.set_autoload(vectors);
    }

    let faults = config.micro && has("page_fault_user");
    if config.micro && !faults {
        notes.push("no TRP, TFL and DFL: the kernel has no exceptions:page_fault_user (it is x86's); faults count as USR".into());
    }
    progs.page_fault_user.set_autoload(faults);
    progs.fault_minor.set_autoload(config.micro);
    progs.fault_major.set_autoload(config.micro);
    progs.sys_enter.set_autoload(config.micro);
    progs.sys_exit.set_autoload(config.micro);
    progs.signal_deliver.set_autoload(config.micro);
    progs.settle.set_autoload(config.micro && has("local_timer_entry"));
    progs.sample.set_autoload(config.sample_hz.is_some());
    progs.leader.set_autoload(config.leader);
    progs.cpu_comes.set_autoload(has("cpuhp_enter"));

    open.load().map_err(|source| load::refused(explain(source)))
}

/// Attaches every loaded tracepoint program. Timers come later, in `Engine::begin`.
pub(super) fn attach(
    skel: &mut EngineSkel<'static>,
    config: &Config,
    notes: &mut Vec<String>,
) -> Result<Vec<Link>> {
    let p = &skel.progs;
    let mut links = load::attach([
        &p.sched_process_fork,
        &p.sched_process_exec,
        &p.sched_wakeup,
        &p.sched_wakeup_new,
        &p.sched_switch,
        &p.cpu_comes,
        &p.irq_handler_in,
        &p.irq_handler_out,
        &p.softirq_in,
        &p.softirq_out,
        &p.local_timer_in,
        &p.local_timer_out,
        &p.reschedule_in,
        &p.reschedule_out,
        &p.call_function_in,
        &p.call_function_out,
        &p.call_function_single_in,
        &p.call_function_single_out,
        &p.irq_work_in,
        &p.irq_work_out,
        &p.tlb_flush,
        &p.contention_end,
        &p.contention_begin,
        &p.sys_exit,
        &p.sys_enter,
        &p.page_fault_user,
        &p.signal_deliver,
        &p.settle,
    ])?;
    if config.micro {
        for cpu in perf::online_cpus() {
            match attach_faults(skel, cpu) {
                Ok(pair) => links.extend(pair),
                Err(e) => {
                    notes.push(format!("no end of faults: {e}; TRP runs on to the next system call"));
                    return Ok(links);
                }
            }
        }
    }
    Ok(links)
}

/// Attaches the programs that see faults end, to one CPU.
pub(super) fn attach_faults(skel: &EngineSkel<'static>, cpu: usize) -> std::io::Result<[Link; 2]> {
    let one = |program, event| perf::software(cpu, event).and_then(|fd| perf::attach(program, fd));
    Ok([
        one(&skel.progs.fault_minor, perf::SW_FAULTS_MIN)?,
        one(&skel.progs.fault_major, perf::SW_FAULTS_MAJ)?,
    ])
}
