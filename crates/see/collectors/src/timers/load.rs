//! Loading the programs of `timers.bpf.c`, each only where it is needed and the kernel has what it needs.

use libbpf_rs::Link;

use super::layout::TimerRow;
use super::skel::{TimersSkel, TimersSkelBuilder};
use crate::bpf_support::load;
use crate::bpf_support::{Error, Feature, Result};
use crate::program::Target;

/// The row tables of all CPUs take this much together.
const ROWS_BYTES: usize = 16 << 20;

/// The parts of the programs to load.
pub(super) struct Wanted<'a> {
    /// Trace the timers that these threads arm; `None`: no timers are traced.
    pub who: Option<&'a Target>,
    /// Trace the activity of each CPU; the addresses are of the tick's handler.
    pub doings: Option<[u64; 2]>,
}

/// Loads and attaches; what is missing is said in `notes`.
pub(super) fn attach(
    wanted: &Wanted<'_>,
    notes: &mut Vec<String>,
) -> Result<(Box<TimersSkel<'static>>, Vec<Link>)> {
    let bpf = |doing| move |source| Error::Bpf { doing, source };
    libbpf_rs::set_print(None);
    let types = load::Types::read()?;
    types.require(&[Feature::TaskStorage, Feature::TaskRegisters])?;
    let mut open =
        types.open(TimersSkelBuilder::default(), load::storage()).map_err(bpf("opening the BPF object"))?;
    let cpus = load::cpu_parts()?;
    let rows = (ROWS_BYTES / size_of::<TimerRow>() / cpus).clamp(256, 16_384);
    let rows = 1 << rows.ilog2();
    if let Some(ro) = &mut open.maps.rodata_data {
        ro.cfg_self = std::process::id();
        ro.cfg_readers = ncpu_files::reader::starter().unwrap_or(0);
        ro.cfg_rows = rows as u32;
        ro.cfg_tick_ns = super::tick_ns();
        (ro.cfg_all, ro.cfg_tgid, ro.cfg_cgroup, ro.cfg_cgroup_level) =
            wanted.who.unwrap_or(&Target::All).settings()?;
        ro.cfg_tick = wanted.doings.unwrap_or_default();
    }
    let sized = bpf("sizing the tables");
    let table = |n: usize| if wanted.who.is_some() { n as u32 } else { 1 };
    open.maps.rows.set_max_entries(table(rows * cpus)).map_err(&sized)?;
    open.maps.counters.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.doings.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.sent.set_max_entries(cpus as u32).map_err(&sized)?;

    let mut have = |names: &[&str], wanted: bool, missing: &str| {
        let lacks = names.iter().find(|n| !types.has(n));
        if let (true, Some(lacks)) = (wanted, lacks) {
            notes.push(format!("{missing}: the kernel has no tracepoint {lacks}"));
        }
        wanted && lacks.is_none()
    };
    let who = wanted.who.is_some();
    let expiry = ["hrtimer_expire_entry", "hrtimer_expire_exit"];
    let hrtimers = have(
        &[&["hrtimer_start", "hrtimer_cancel"], &expiry[..]].concat(),
        who,
        "no timers of high resolution",
    );
    let wheel = ["timer_start", "timer_cancel", "timer_expire_entry", "timer_expire_exit"];
    let wheel = have(&wheel, who, "no timers of the timer wheel");
    if who && !hrtimers && !wheel {
        return Err(Error::NoTracepoint("hrtimer_start nor timer_start"));
    }
    let doings = wanted.doings.is_some();
    if doings && !types.has("sched_switch") {
        return Err(Error::NoTracepoint("sched_switch"));
    }
    let softirqs = have(&["softirq_entry", "softirq_exit"], doings, "no softirqs");
    let handlers = have(&expiry, doings, "no ticks and no handlers of timers");
    let irqs = have(
        &["local_timer_entry", "local_timer_exit"],
        doings,
        "of timer interrupts only the handlers (irq_vectors is x86's)",
    );
    let p = &mut open.progs;
    for program in
        [&mut p.on_hrtimer_start, &mut p.on_hrtimer_cancel, &mut p.on_hrtimer_entry, &mut p.on_hrtimer_exit]
    {
        program.set_autoload(hrtimers);
    }
    for program in
        [&mut p.on_timer_start, &mut p.on_timer_cancel, &mut p.on_timer_entry, &mut p.on_timer_exit]
    {
        program.set_autoload(wheel);
    }
    p.on_fork.set_autoload(matches!(wanted.who, Some(Target::Tree(_))));
    p.mark.set_autoload(doings);
    p.on_switch.set_autoload(doings);
    for (program, wanted) in [
        (&mut p.on_softirq_entry, softirqs),
        (&mut p.on_softirq_exit, softirqs),
        (&mut p.on_expiry_entry, handlers),
        (&mut p.on_expiry_exit, handlers),
        (&mut p.on_local_timer_entry, irqs),
        (&mut p.on_local_timer_exit, irqs),
    ] {
        program.set_autoload(wanted);
    }
    let skel = open.load().map_err(load::refused)?;
    let p = &skel.progs;
    // An end is attached before its beginning, so that none is missed.
    let links = load::attach([
        &p.on_fork,
        &p.on_hrtimer_exit,
        &p.on_hrtimer_entry,
        &p.on_hrtimer_cancel,
        &p.on_hrtimer_start,
        &p.on_timer_exit,
        &p.on_timer_entry,
        &p.on_timer_cancel,
        &p.on_timer_start,
        &p.on_switch,
        &p.on_softirq_exit,
        &p.on_softirq_entry,
        &p.on_local_timer_exit,
        &p.on_local_timer_entry,
        &p.on_expiry_exit,
        &p.on_expiry_entry,
    ])?;
    Ok((Box::new(skel), links))
}
