//! Loading and attaching what the kernel has, and saying what it lacks.

use std::path::Path;

use libbpf_rs::{Link, ProgramAttachType};

use super::layout::HALVES;
use super::layout::{FirstSlot, LengthSlot, RequestSlot, TenantSlot, TimeSlot};
use super::skel::{EngineProgs, EngineSkel, EngineSkelBuilder};
use super::{Config, LockSlot, served, thread_time};
use crate::bpf_support::load;
use crate::bpf_support::log::explain;
use crate::bpf_support::{Error, Feature, Result, perf};

/// Size of the lock tables of all CPUs together, for any number of CPUs.
const LOCK_TABLE_BYTES: usize = 16 << 20;
/// Size of the tables of first waiters' waits, unless that were fewer rows on each CPU.
const FIRST_TABLE_BYTES: usize = 1 << 20;
const LEAST_FIRST_ROWS: usize = 64;
/// The tenants of all CPUs take this much, unless that were fewer than these on each.
const TENANT_TABLE_BYTES: usize = 32 << 20;
const TENANTS: [usize; 2] = [64, 4096];
/// Counts of lengths by object take this much, unless that were fewer rows on each CPU.
const LENGTH_TABLE_BYTES: usize = 4 << 20;
/// The rows of time off CPU take this much.
const TIME_TABLE_BYTES: usize = 4 << 20;
/// Bytes of the rows of clients' requests, and requests that may be set aside at a time.
const REQUEST_TABLE_BYTES: usize = 8 << 20;
const REQUESTS_ASIDE: u32 = 8192;
/// Where data for a connection is read and written (Linux 6.3).
const CLIENTS: [&str; 3] = ["sock_recv_length", "sock_send_length", "sk_data_ready"];
/// `OTHER_ROWS` of engine.h.
const OTHER_ROWS: usize = 64;
/// `IO_ROWS` and `IO_OTHERS` of engine.h.
pub(super) const IO_ROWS: usize = 64;
pub(super) const IO_OTHERS: usize = 16;
/// `SCRATCHES` of cpu_states.h.
const SCRATCHES: usize = 3;
/// Stacks walked a second on the whole machine, of contentions and of waits off CPU each: a walk costs ten times the
/// rest. Where timer samples are rarer than `USUAL_HZ`, as in always-on use, walks are rarer in proportion.
const WALKS_PER_SECOND: usize = 400;
const USUAL_HZ: usize = 99;
/// Futexes judged a second on the whole machine, some 50 µs each; and the least for one CPU, which must cover the
/// threads on it that may begin to wait.
const ASKS_PER_SECOND: usize = 500;
const LEAST_ASKS: usize = 8;
/// Futexes judged again a second: memory is freed, and a futex that was a lock may become something else.
const AGAIN_PER_SECOND: u64 = 20;
/// Stacks of timer samples copied and unwound a second on the whole machine: some 30 µs and 16 KiB each at most.
const COPIES_PER_SECOND: u64 = 2000;

pub(super) fn load(config: &Config, notes: &mut Vec<String>) -> Result<(EngineSkel<'static>, Interrupts)> {
    let bpf = |doing| move |source| Error::Bpf { doing, source };
    let types = load::Types::read()?;
    types.require(&[Feature::TaskStorage, Feature::TaskRegisters])?;
    let mut open =
        types.open(EngineSkelBuilder::default(), load::storage()).map_err(bpf("opening the BPF object"))?;
    let cpus = load::cpu_parts()?;
    let slots = (LOCK_TABLE_BYTES / size_of::<LockSlot>() / HALVES / cpus).clamp(256, 16_384);
    let slots = 1 << slots.ilog2();
    let first = (FIRST_TABLE_BYTES / size_of::<FirstSlot>() / HALVES / cpus).clamp(LEAST_FIRST_ROWS, 4096);
    let first = 1 << first.ilog2();

    let tenants = (TENANT_TABLE_BYTES / size_of::<TenantSlot>() / (cpus + 1)).clamp(TENANTS[0], TENANTS[1]);
    let tenants = if config.tells_tenants() { 1 << tenants.ilog2() } else { 0 };
    let times = (TIME_TABLE_BYTES / size_of::<TimeSlot>() / HALVES / cpus).clamp(64, 4096);
    let times = 1 << times.ilog2();

    let lengths = (LENGTH_TABLE_BYTES / size_of::<LengthSlot>() / HALVES / cpus).clamp(64, 4096);
    let lengths = 1 << lengths.ilog2();

    let clients = config.requests && CLIENTS.into_iter().all(|tracepoint| types.has(tracepoint));
    if config.requests && !clients {
        notes.push("no requests: the kernel has no sock:sock_recv_length (it came with Linux 6.3)".into());
    }
    let functions = config.traces_functions();
    let follows = clients || functions;
    let requests = match follows {
        true => (REQUEST_TABLE_BYTES / size_of::<RequestSlot>() / HALVES / cpus).clamp(256, 16_384),
        false => 1,
    };
    let requests = 1 << requests.ilog2();

    if let Some(ro) = &mut open.maps.rodata_data {
        ro.cfg_requests = follows.into();
        ro.cfg_request_slots = requests as u32;
        ro.call_reads = served::call_reads();
        (ro.cfg_all, ro.cfg_tgid, ro.cfg_cgroup, ro.cfg_cgroup_level) = config.target.settings()?;
        ro.cfg_self = std::process::id();
        ro.cfg_readers = ncpu_files::reader::starter().unwrap_or(0);
        ro.cfg_cpus = cpus as u32;
        ro.cfg_lock_slots = slots as u32;
        ro.cfg_first_slots = first as u32;
        ro.cfg_lock_all = config.lock_all.into();
        // Needed only to explain why nothing ran.
        ro.cfg_sleeps = config.explain.into();
        ro.cfg_queues = config.explain.into();
        ro.cfg_tenants = tenants as u32;
        ro.cfg_time_slots = times as u32;
        ro.cfg_length_slots = lengths as u32;
        for nr in config.latency_of.iter().map(|nr| *nr as usize) {
            if let Some(word) = ro.cfg_timed_calls.get_mut(nr / 64) {
                *word |= 1 << (nr % 64);
            }
        }
        ro.call_life = thread_time::call_lives();
        ro.cfg_micro = config.traces_calls().into();
        ro.cfg_rq_clock = (!config.traces_calls() && scheduler_keeps_time(Path::new("/"))).into();
        ro.cfg_looks = config.looks.max(1);
        ro.cfg_stacks = config.stacks.into();
        let online = perf::online_cpus().len().max(1);
        let hz = config.sample_hz.map_or(USUAL_HZ, |hz| USUAL_HZ.min(hz as usize));
        ro.cfg_walks = (WALKS_PER_SECOND * hz / USUAL_HZ / online).max(1) as u32;
        ro.cfg_registers = (config.registers && config.sample_hz.is_some()).into();
        ro.cfg_ask_again = 1_000_000_000 / AGAIN_PER_SECOND * online as u64;
        ro.cfg_asks = (ASKS_PER_SECOND / online).max(LEAST_ASKS) as u32;
        // A little more often than timers fire, where all are copied.
        ro.cfg_copy_every = match config.stacks {
            true => (9 * 1_000_000_000 / 10 / COPIES_PER_SECOND) * online as u64,
            false => 0,
        };
    }
    let sized = bpf("sizing the tables");
    open.maps.cpu_slots.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.lock_slots.set_max_entries((slots * cpus * HALVES) as u32).map_err(&sized)?;
    open.maps.first_slots.set_max_entries((first * cpus * HALVES) as u32).map_err(&sized)?;
    open.maps.time_slots.set_max_entries((times * cpus * HALVES) as u32).map_err(&sized)?;
    open.maps.request_slots.set_max_entries((requests * cpus * HALVES) as u32).map_err(&sized)?;
    open.maps.requests_aside.set_max_entries(if clients { REQUESTS_ASIDE } else { 1 }).map_err(&sized)?;
    open.maps.lengths.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.length_slots.set_max_entries((lengths * cpus * HALVES) as u32).map_err(&sized)?;
    open.maps.other_slots.set_max_entries((OTHER_ROWS * cpus * HALVES) as u32).map_err(&sized)?;
    open.maps.io_counts.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.io_rows.set_max_entries(((IO_ROWS + IO_OTHERS) * cpus * HALVES) as u32).map_err(&sized)?;
    open.maps.scratch.set_max_entries((cpus * SCRATCHES) as u32).map_err(&sized)?;
    open.maps.copies.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.sent.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.probe_hits.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.sleep_calls.set_max_entries(cpus as u32).map_err(&sized)?;
    open.maps.tenant_slots.set_max_entries((tenants * (cpus + 1)).max(1) as u32).map_err(&sized)?;
    open.maps.tenant_looks.set_max_entries(tenants.max(1) as u32).map_err(&sized)?;
    open.maps.tenant_free.set_max_entries(tenants.max(1) as u32).map_err(&sized)?;
    open.maps.tenant_keys.set_max_entries((2 * tenants).max(1) as u32).map_err(&sized)?;

    let has = |tracepoint: &str| types.has(tracepoint);
    let io = config.traces_requests() && REQUESTS.into_iter().all(has);
    if config.traces_requests() && !io {
        notes.push(
            "no requests to devices: the kernel has no block tracepoints; threads that wait for io_uring or libaio count as asleep"
                .into(),
        );
    }
    if let Some(ro) = &mut open.maps.rodata_data {
        ro.cfg_io = io.into();
    }
    for needed in ["sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_process_fork"] {
        if !has(needed) {
            return Err(Error::NoTracepoint(needed));
        }
    }

    if config.registers && config.sample_hz.is_some() && !cfg!(target_arch = "x86_64") {
        notes.push("what user code waits for is not known: instructions are decoded on x86-64 only".into());
    }
    let progs = &mut open.progs;
    let locks = config.traces_kernel_locks() && has("contention_begin") && has("contention_end");
    if config.traces_kernel_locks() && !locks {
        notes.push(
            "no kernel locks: the kernel has no lock:contention_begin (it came with Linux 5.19)".into(),
        );
    }
    progs.contention_begin.set_autoload(locks);
    progs.contention_end.set_autoload(locks);

    let packets = tenants > 0 && PACKETS.into_iter().all(has);
    progs.packet_sent.set_autoload(packets);
    progs.packet_received.set_autoload(packets);
    let reclaim = tenants > 0 && RECLAIM.into_iter().all(has);
    let limits = tenants > 0 && LIMITS.into_iter().all(has);
    progs.reclaim_begins.set_autoload(reclaim);
    progs.reclaim_ends.set_autoload(reclaim);
    progs.limit_reclaim_begins.set_autoload(limits);
    progs.limit_reclaim_ends.set_autoload(limits);
    progs.sched_waking.set_autoload(has("sched_waking"));
    let programs = config.traces_programs();
    progs.user_lock.set_autoload(programs);
    progs.go_lock.set_autoload(programs);
    progs.function_call.set_autoload(functions);
    progs.let_goroutines_go.set_autoload(programs && many_uprobes());
    progs.forget_calls.set_autoload(functions && many_uprobes());
    if many_uprobes() {
        progs.user_lock.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        progs.go_lock.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        progs.function_call.set_attach_type(ProgramAttachType::TraceUprobeMulti);
    }
    progs.sched_process_exec.set_autoload(programs && has("sched_process_exec"));

    let tlb = config.tlb && has("tlb_flush");
    if config.tlb && !tlb {
        notes.push("no TLB shootdowns received: the kernel has no tlb:tlb_flush tracepoint".into());
    }
    progs.tlb_flush.set_autoload(tlb);
    let calls = tlb && CALLS.into_iter().all(has);
    progs.call_is_asked.set_autoload(calls);
    progs.call_begins.set_autoload(calls);

    // An interrupt is timed only if the kernel has tracepoints for both its beginning and its end.
    let traced = |(enter, exit): &Pair| config.irqs && has(enter) && has(exit);
    let hard: Vec<Pair> = VECTORS.into_iter().chain([HANDLERS]).filter(traced).collect();
    let soft = Some(SOFTIRQS).filter(traced);
    // x86's vectors; elsewhere timer and cross-call interrupts stay in the interrupted thread's time.
    if config.irqs && !types.has(VECTORS[0].0) {
        notes.push(
            "no separate times for timer and cross-call interrupts: the kernel has no irq_vectors tracepoints"
                .into(),
        );
    }
    progs.hardirq_in.set_autoload(hard.iter().any(|pair| ![LOCAL_TIMER, HANDLERS].contains(pair)));
    progs.handler_in.set_autoload(hard.contains(&HANDLERS));
    progs.timer_in.set_autoload(hard.contains(&LOCAL_TIMER));
    progs.softirq_in.set_autoload(soft.is_some());
    progs.hardirq_out.set_autoload(!hard.is_empty());
    progs.softirq_out.set_autoload(soft.is_some());

    let faults = config.traces_calls() && has("page_fault_user");
    if config.traces_calls() && !faults {
        notes.push("no TRP, TFL and DFL: the kernel has no exceptions:page_fault_user (it is x86's); faults count as USR".into());
    }
    progs.page_fault_user.set_autoload(faults);
    progs.fault_minor.set_autoload(config.traces_calls());
    progs.fault_major.set_autoload(config.traces_calls());
    progs.sys_enter.set_autoload(config.traces_calls());
    progs.sys_exit.set_autoload(config.traces_calls());
    progs.user_registers.set_autoload(config.traces_calls() && has("x86_fpu_regs_activated"));
    progs.timed_call_begins.set_autoload(!config.latency_of.is_empty());
    progs.timed_call_ends.set_autoload(!config.latency_of.is_empty());
    progs.request_read.set_autoload(clients);
    progs.request_answered.set_autoload(clients);
    progs.request_arrives.set_autoload(clients);
    progs.request_calls.set_autoload(follows);
    progs.request_call_over.set_autoload(follows);
    // Signals are few where they do not cost.
    progs.signal_deliver.set_autoload(config.traces_calls() || config.counts_signals());
    progs.settle.set_autoload(config.traces_calls() && has("local_timer_entry"));
    progs.tell_mode.set_autoload(config.traces_calls());
    progs.strike.set_autoload(config.traces_calls());
    progs.sample.set_autoload(config.sample_hz.is_some());
    progs.leader.set_autoload(config.explain);
    progs.cpu_comes.set_autoload(has("cpuhp_enter"));
    progs.block_rq_insert.set_autoload(io);
    progs.block_rq_issue.set_autoload(io);
    progs.block_rq_complete.set_autoload(io);
    progs.block_rq_merge.set_autoload(io && has("block_rq_merge"));
    progs.block_rq_requeue.set_autoload(io && has("block_rq_requeue"));

    let skel = open.load().map_err(|source| load::refused(explain(source)))?;
    Ok((skel, Interrupts(hard)))
}

/// Whether the kernel attaches several uprobes as one (Linux 6.6).
pub(super) fn many_uprobes() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6u32, 6u32)
}

/// Whether the scheduler's clock comes from the counter that CLOCK_MONOTONIC comes from, and is the same on all CPUs. It is
/// where the kernel trusts the counter enough to keep the time by it.
fn scheduler_keeps_time(root: &Path) -> bool {
    let source = root.join("sys/devices/system/clocksource/clocksource0/current_clocksource");
    let source = std::fs::read_to_string(source).unwrap_or_default();
    matches!(source.trim(), "tsc" | "arch_sys_counter")
}

/// Calls of one CPU to another, asked for and begun (Linux 6.5).
const CALLS: [&str; 2] = ["csd_queue_cpu", "csd_function_entry"];

/// TLB shootdowns as the kernel traces them: at each switch to another process, too.
pub(super) fn attach_flushes(skel: &EngineSkel<'static>) -> Result<Vec<Link>> {
    load::attach([&skel.progs.tlb_flush])
}

/// TLB shootdowns among the calls of CPUs to one another; nothing where the kernel does not trace those.
pub(super) fn attach_flush_calls(skel: &EngineSkel<'static>) -> Result<Vec<Link>> {
    let mut links = load::attach_to(&skel.progs.call_begins, &CALLS[1..])?;
    links.extend(load::attach_to(&skel.progs.call_is_asked, &CALLS[..1])?);
    Ok(links)
}

/// Packets of tenants: both, or nothing is known of who causes softirqs of the network.
const PACKETS: [&str; 2] = ["netif_rx", "skb_copy_datagram_iovec"];

/// Threads that free memory before they get some: for the machine's sake, and for their group's limit.
const RECLAIM: [&str; 2] = ["mm_vmscan_direct_reclaim_begin", "mm_vmscan_direct_reclaim_end"];
const LIMITS: [&str; 2] = ["mm_vmscan_memcg_reclaim_begin", "mm_vmscan_memcg_reclaim_end"];

/// Without these a request's life is not known.
const REQUESTS: [&str; 3] = ["block_rq_insert", "block_rq_issue", "block_rq_complete"];

/// Where an interrupt begins, and where it ends.
type Pair = (&'static str, &'static str);

const LOCAL_TIMER: Pair = ("local_timer_entry", "local_timer_exit");
const VECTORS: [Pair; 5] = [
    LOCAL_TIMER,
    ("reschedule_entry", "reschedule_exit"),
    ("call_function_entry", "call_function_exit"),
    ("call_function_single_entry", "call_function_single_exit"),
    ("irq_work_entry", "irq_work_exit"),
];
const HANDLERS: Pair = ("irq_handler_entry", "irq_handler_exit");
const SOFTIRQS: Pair = ("softirq_entry", "softirq_exit");

/// The hardware interrupts that have tracepoints.
pub(super) struct Interrupts(Vec<Pair>);

/// Attaches a program that does nothing to switches.
pub(super) fn attach_nothing(progs: &EngineProgs<'_>) -> Result<Vec<Link>> {
    load::attach_to(&progs.nothing, &["sched_switch"])
}

/// Attaches the programs at wake-ups.
pub(super) fn attach_wakes(progs: &EngineProgs<'_>) -> Result<Vec<Link>> {
    load::attach([&progs.sched_waking, &progs.sched_wakeup])
}

/// Whether the scheduler keeps the time since which a thread stands on a queue, by a clock that the programs use too.
pub(super) fn scheduler_times_waits(config: &Config) -> bool {
    !config.traces_calls()
        && scheduler_keeps_time(Path::new("/"))
        && Path::new("/proc/self/schedstat").exists()
}

/// Attaches every loaded tracepoint program. Timers come later, in `Engine::begin`.
pub(super) fn attach(skel: &mut EngineSkel<'static>, interrupts: &Interrupts) -> Result<Vec<Link>> {
    let p = &skel.progs;
    let mut links = load::attach([
        &p.sched_process_fork,
        &p.sched_process_exec,
        &p.sched_wakeup_new,
        &p.sched_switch,
        &p.cpu_comes,
        &p.packet_sent,
        &p.packet_received,
        &p.reclaim_ends,
        &p.reclaim_begins,
        &p.limit_reclaim_ends,
        &p.limit_reclaim_begins,
        // An end before its beginning.
        &p.block_rq_complete,
        &p.block_rq_merge,
        &p.block_rq_requeue,
        &p.block_rq_issue,
        &p.block_rq_insert,
        &p.signal_deliver,
        &p.timed_call_ends,
        &p.timed_call_begins,
        &p.request_answered,
        &p.request_call_over,
        &p.request_calls,
        &p.request_arrives,
        &p.request_read,
        &p.settle,
    ])?;
    let Interrupts(hard) = interrupts;
    // An end before its beginning, so that none is missed.
    let ends: Vec<&str> = hard.iter().map(|pair| pair.1).collect();
    let begins = |of: fn(&Pair) -> bool| -> Vec<&str> {
        hard.iter().filter(|pair| of(pair)).map(|pair| pair.0).collect()
    };
    links.extend(load::attach_to(&p.hardirq_out, &ends)?);
    links.extend(load::attach_to(&p.softirq_out, &[SOFTIRQS.1])?);
    links.extend(load::attach_to(&p.hardirq_in, &begins(|pair| ![LOCAL_TIMER, HANDLERS].contains(pair)))?);
    links.extend(load::attach_to(&p.handler_in, &begins(|pair| *pair == HANDLERS))?);
    links.extend(load::attach_to(&p.timer_in, &begins(|pair| *pair == LOCAL_TIMER))?);
    links.extend(load::attach_to(&p.softirq_in, &[SOFTIRQS.0])?);
    Ok(links)
}

/// Attaches the programs that see calls and faults begin and end, if they are loaded.
pub(super) fn attach_calls(
    skel: &EngineSkel<'static>,
    config: &Config,
    notes: &mut Vec<String>,
) -> Result<Vec<Link>> {
    let p = &skel.progs;
    let mut links = load::attach([&p.sys_exit, &p.sys_enter, &p.user_registers, &p.page_fault_user])?;
    if config.traces_calls() {
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
