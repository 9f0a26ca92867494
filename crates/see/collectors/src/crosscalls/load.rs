//! Loading and attaching what the kernel has, and saying what it lacks.

use libbpf_rs::{Link, MapCore, MapFlags};

use super::skel::{CrosscallsSkel, CrosscallsSkelBuilder};
use super::{Config, layout};
use crate::bpf_support::load;
use crate::bpf_support::{Error, Feature, Result};
use crate::program::Target;
use ncpu_symbols::Kernel;

/// Size of the tables of all CPUs together, for any number of CPUs.
const TABLE_BYTES: usize = 16 << 20;

/// Functions that other CPUs run to flush their TLBs (arch/x86/mm/tlb.c).
const FLUSHES: [&str; 3] = ["flush_tlb_func", "do_flush_tlb_all", "do_kernel_range_flush"];
/// Where a sender waits for its targets (kernel/smp.c).
const WAITS: [&str; 4] =
    ["smp_call_function_many_cond", "smp_call_function_single", "__csd_lock_wait", "csd_lock_wait"];

/// Which tracepoints the kernel has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Has {
    pub tlb: bool,
    pub ipi: bool,
    pub csd: bool,
    pub vectors: bool,
    /// arm64's ipi_entry and ipi_exit.
    pub entries: bool,
}

impl Has {
    /// A line for each column that is missing.
    fn missing(self) -> impl Iterator<Item = &'static str> {
        [
            (
                !self.ipi && !self.csd,
                "targets of each call, and senders of anything but shootdowns, are not known: the kernel has no ipi and csd tracepoints (they came with Linux 6.4 and 6.5)",
            ),
            (
                self.ipi && !self.csd,
                "which function a call runs, its packages, and how long its sender waits (but for samples) are not known: the kernel has no csd tracepoints (they came with Linux 6.5)",
            ),
            (
                !self.ipi && self.csd,
                "reschedules sent, and interrupts as apart from targets, are not known: the kernel has no ipi_send tracepoints",
            ),
            (
                !self.tlb && cfg!(target_arch = "x86_64"),
                "shootdowns without a target, and reasons of flushes, are not known: the kernel has no tlb:tlb_flush tracepoint",
            ),
            (
                !self.vectors && !self.entries,
                "time at receivers is not known, but for functions: the kernel has no irq_vectors tracepoints",
            ),
        ]
        .into_iter()
        .filter_map(|(missing, note)| missing.then_some(note))
    }
}

pub(super) fn load(
    config: &Config,
    kernel: Option<&Kernel>,
    notes: &mut Vec<String>,
) -> Result<(CrosscallsSkel<'static>, Has)> {
    let bpf = |doing| move |source| Error::Bpf { doing, source };
    let types = load::Types::read()?;
    types.require(&[Feature::TaskStorage, Feature::TaskRegisters])?;
    let mut open = types
        .open(CrosscallsSkelBuilder::default(), load::storage())
        .map_err(bpf("opening the BPF object"))?;
    let cpus = load::cpu_parts()?;
    let rows = 1usize << (TABLE_BYTES / size_of::<layout::Row>() / cpus).clamp(128, 4096).ilog2();
    let tracepoint = |name: &str| types.has(name);
    let sends = tracepoint("ipi_send_cpu") && tracepoint("ipi_send_cpumask");
    let raises = !sends && cfg!(target_arch = "aarch64") && tracepoint("ipi_raise");
    let has = Has {
        // The tracepoint is there on other architectures, too, and never fires.
        tlb: cfg!(target_arch = "x86_64") && tracepoint("tlb_flush"),
        ipi: sends || raises,
        csd: tracepoint("csd_queue_cpu") && tracepoint("csd_function_exit"),
        vectors: tracepoint("call_function_single_entry"),
        entries: tracepoint("ipi_entry") && tracepoint("ipi_exit"),
    };
    if !(has.tlb || has.ipi || has.csd) {
        return Err(Error::NoTracepoint("ipi_send_cpu or tlb_flush"));
    }
    notes.extend(has.missing().map(String::from));
    notes.extend(super::broadcast());

    if let Some(ro) = &mut open.maps.rodata_data {
        (ro.cfg_all, ro.cfg_tgid, ro.cfg_cgroup, ro.cfg_cgroup_level) = config.target.settings()?;
        ro.cfg_self = std::process::id();
        ro.cfg_readers = ncpu_files::reader::starter().unwrap_or(0);
        ro.cfg_cpus = cpus as u32;
        ro.cfg_rows = rows as u32;
        ro.cfg_csd = has.csd.into();
        let address = |name: &str| kernel.and_then(|k| k.address_of(name)).unwrap_or(0);
        ro.cfg_generic = address("generic_smp_call_function_single_interrupt");
        for (slot, name) in ro.cfg_flush.iter_mut().zip(FLUSHES) {
            *slot = address(name);
        }
        for (slot, name) in ro.cfg_waits.iter_mut().zip(WAITS) {
            if let Some(range) = kernel.and_then(|k| k.range_of(name)) {
                *slot = [range.start, range.end];
            }
        }
    }
    let sized = |r: libbpf_rs::Result<()>| r.map_err(bpf("sizing the tables"));
    sized(open.maps.cpus.set_max_entries(cpus as u32))?;
    sized(open.maps.exits.set_max_entries(cpus as u32))?;
    sized(open.maps.sent.set_max_entries(cpus as u32))?;
    sized(open.maps.package_of.set_max_entries(cpus as u32))?;
    sized(open.maps.rows.set_max_entries((rows * cpus) as u32))?;

    let progs = &mut open.progs;
    progs.sched_process_fork.set_autoload(config.target != Target::All);
    progs.tlb_flush.set_autoload(has.tlb);
    progs.ipi_send_cpu.set_autoload(sends);
    progs.ipi_send_cpumask.set_autoload(sends);
    progs.ipi_raise.set_autoload(raises);
    progs.csd_queue_cpu.set_autoload(has.csd);
    progs.csd_function_entry.set_autoload(has.csd);
    progs.csd_function_exit.set_autoload(has.csd);
    for (enter, exit) in [
        (&mut progs.reschedule_in, &mut progs.reschedule_out),
        (&mut progs.call_function_in, &mut progs.call_function_out),
        (&mut progs.call_function_single_in, &mut progs.call_function_single_out),
        (&mut progs.irq_work_in, &mut progs.irq_work_out),
    ] {
        enter.set_autoload(has.vectors);
        exit.set_autoload(has.vectors);
    }
    for (enter, exit, name) in [
        (&mut progs.timer_in, &mut progs.timer_out, "local_timer_entry"),
        (&mut progs.device_in, &mut progs.device_out, "irq_handler_entry"),
        (&mut progs.softirq_in, &mut progs.softirq_out, "softirq_entry"),
    ] {
        let has = tracepoint(name);
        enter.set_autoload(has);
        exit.set_autoload(has);
    }
    progs.ipi_in.set_autoload(has.entries);
    progs.ipi_out.set_autoload(has.entries);

    let skel = open.load().map_err(load::refused)?;
    for (cpu, package) in config.package_of.iter().enumerate().take(cpus) {
        skel.maps
            .package_of
            .update(&(cpu as u32).to_ne_bytes(), &package.to_ne_bytes(), MapFlags::ANY)
            .map_err(bpf("telling the packages"))?;
    }
    Ok((skel, has))
}

/// Attaches every loaded tracepoint program: receivers first, so that no call is seen without its end.
pub(super) fn attach(skel: &mut CrosscallsSkel<'static>) -> Result<Vec<Link>> {
    let p = &skel.progs;
    load::attach([
        &p.sched_process_fork,
        &p.timer_in,
        &p.timer_out,
        &p.device_in,
        &p.device_out,
        &p.softirq_in,
        &p.softirq_out,
        &p.reschedule_in,
        &p.reschedule_out,
        &p.call_function_in,
        &p.call_function_out,
        &p.call_function_single_in,
        &p.call_function_single_out,
        &p.irq_work_in,
        &p.irq_work_out,
        &p.ipi_in,
        &p.ipi_out,
        &p.csd_function_entry,
        &p.csd_function_exit,
        &p.csd_queue_cpu,
        &p.tlb_flush,
        &p.ipi_send_cpu,
        &p.ipi_send_cpumask,
        &p.ipi_raise,
    ])
}
