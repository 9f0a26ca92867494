//! Loading and attaching what the kernel has, and saying what it lacks.

use std::path::Path;

use libbpf_rs::{Link, ProgramAttachType};

use super::layout::HALVES;
use super::layout::{FirstSlot, LengthSlot, RequestSlot, TenantSlot, TimeSlot};
use super::skel::{EngineProgs, EngineSkel, EngineSkelBuilder, OpenEngineMaps, OpenEngineProgs, types};
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
/// Eventfds, pipes and sockets by which threads tell event loops that they are done.
const SIGNALS: u32 = 1024;
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

/// The programs, in two objects with the same tables: the kernel checks both at the same time. The programs at switches take half of the
/// time to check.
pub(super) struct Loaded {
    /// All but those of `switches`, and the tables.
    pub skel: EngineSkel<'static>,
    /// The programs at switches and wake-ups.
    pub switches: EngineSkel<'static>,
}

/// `which` of the programs at switches and wake-ups are loaded.
fn choose_switches(progs: &mut OpenEngineProgs<'_>, waking: bool, which: bool) {
    progs.sched_switch.set_autoload(which);
    progs.sched_wakeup.set_autoload(which);
    progs.sched_wakeup_new.set_autoload(which);
    progs.sched_waking.set_autoload(which && waking);
}

pub(super) fn load(config: &Config, notes: &mut Vec<String>) -> Result<(Loaded, Interrupts)> {
    let bpf = |doing| move |source| Error::Bpf { doing, source };
    let types = load::Types::read()?;
    types.require(&[Feature::TaskStorage, Feature::TaskRegisters])?;
    for needed in ["sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_process_fork"] {
        if !types.has(needed) {
            return Err(Error::NoTracepoint(needed));
        }
    }
    let mut open =
        types.open(EngineSkelBuilder::default(), load::storage()).map_err(bpf("opening the BPF object"))?;
    let cpus = load::cpu_parts()?;
    let parts = Parts::of(config, &types, notes);
    let rows = Rows::of(config, &parts, cpus);
    if let Some(ro) = &mut open.maps.rodata_data {
        configure(ro, config, &parts, &rows, cpus)?;
    }
    rows.size(&mut open.maps, &parts, cpus).map_err(bpf("sizing the tables"))?;
    let progs = &mut open.progs;
    choose_locks(progs, config, &parts, &types);
    choose_tenants(progs, &types, rows.tenants > 0);
    choose_calls(progs, config, &parts, &types);
    choose_requests(progs, &parts, &types);
    let interrupts = choose_interrupts(progs, config, &parts, &types);
    choose_switches(progs, false, false);
    progs.sample.set_autoload(config.sample_hz.is_some());
    progs.leader.set_autoload(config.explain);
    progs.cpu_comes.set_autoload(types.has("cpuhp_enter"));
    let waking = types.has("sched_waking");
    let refused = |source| load::refused(explain(source));
    let made = open.make_tables().map_err(refused)?;
    let switches = || {
        let mut switches = made.open(EngineSkelBuilder::default(), load::storage())?;
        choose_switches(&mut switches.progs, waking, true);
        switches.load()
    };
    let (switches, skel) = std::thread::scope(|scope| {
        let apart = std::thread::Builder::new().name("ncpu-load".into()).spawn_scoped(scope, switches);
        // Its tables live until the others have been loaded too.
        let skel = open.load();
        (apart.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))), skel)
    });
    let switches = switches.unwrap_or_else(|e| Err(e.into())).map_err(refused)?;
    let skel = skel.map_err(refused)?;
    Ok((Loaded { skel, switches }, interrupts))
}

/// What can be observed of what was asked for.
struct Parts {
    /// Requests of clients over sockets.
    clients: bool,
    /// Calls of functions.
    functions: bool,
    /// Requests to block devices.
    devices: bool,
    kernel_locks: bool,
    faults: bool,
    /// Faults, by the event that counts them.
    counted_faults: bool,
    /// AArch64 handles its timer and cross-calls as interrupts of devices.
    as_devices: bool,
    /// TLB shootdowns.
    tlb: bool,
}

impl Parts {
    /// Notes what this kernel lacks.
    fn of(config: &Config, types: &load::Types, notes: &mut Vec<String>) -> Parts {
        let arm = cfg!(target_arch = "aarch64");
        let counted_faults = arm && config.traces_calls() && !types.has("page_fault_user");
        let as_devices = arm && config.irqs && types.has(HANDLERS.0) && types.has(HANDLERS.1);
        let mut part = |asked: bool, tracepoints: &[&str], missing: &str| {
            let there = tracepoints.iter().all(|tracepoint| types.has(tracepoint));
            if asked && !there {
                notes.push(missing.into());
            }
            asked && there
        };
        let parts = Parts {
            clients: part(
                config.requests,
                &CLIENTS,
                "no requests: the kernel has no sock:sock_recv_length (it came with Linux 6.3)",
            ),
            devices: part(
                config.traces_requests(),
                &REQUESTS,
                "no requests to devices: the kernel has no block tracepoints; threads that wait for io_uring or libaio count as asleep",
            ),
            kernel_locks: part(
                config.traces_kernel_locks(),
                &["contention_begin", "contention_end"],
                "no kernel locks: the kernel has no lock:contention_begin (it came with Linux 5.19)",
            ),
            tlb: part(
                config.tlb,
                &["tlb_flush"],
                "no TLB shootdowns received: the kernel has no tlb:tlb_flush tracepoint",
            ),
            faults: part(
                config.traces_calls() && !counted_faults,
                &["page_fault_user"],
                "no TRP, TFL and DFL: the kernel has no exceptions:page_fault_user (it is x86's); faults count as USR",
            ),
            functions: config.traces_functions(),
            counted_faults,
            as_devices,
        };
        // x86's vectors; elsewhere timer and cross-call interrupts stay in the interrupted thread's time.
        part(
            config.irqs && !as_devices,
            &[VECTORS[0].0],
            "no separate times for timer and cross-call interrupts: the kernel has no irq_vectors tracepoints",
        );
        parts
    }

    /// Whether anything is followed as a request.
    fn follows(&self) -> bool {
        self.clients || self.functions
    }
}

/// Rows of the tables of each CPU, powers of two.
struct Rows {
    locks: usize,
    first: usize,
    /// None without accounts by tenant.
    tenants: usize,
    times: usize,
    lengths: usize,
    requests: usize,
}

impl Rows {
    fn of(config: &Config, parts: &Parts, cpus: usize) -> Rows {
        let power = |rows: usize| 1 << rows.ilog2();
        let halves = |bytes: usize, row: usize| bytes / row / HALVES / cpus;
        let tenants = TENANT_TABLE_BYTES / size_of::<TenantSlot>() / (cpus + 1);
        let requests = halves(REQUEST_TABLE_BYTES, size_of::<RequestSlot>());
        Rows {
            locks: power(halves(LOCK_TABLE_BYTES, size_of::<LockSlot>()).clamp(256, 16_384)),
            first: power(halves(FIRST_TABLE_BYTES, size_of::<FirstSlot>()).clamp(LEAST_FIRST_ROWS, 4096)),
            tenants: match config.tells_tenants() {
                true => power(tenants.clamp(TENANTS[0], TENANTS[1])),
                false => 0,
            },
            times: power(halves(TIME_TABLE_BYTES, size_of::<TimeSlot>()).clamp(64, 4096)),
            lengths: power(halves(LENGTH_TABLE_BYTES, size_of::<LengthSlot>()).clamp(64, 4096)),
            requests: if parts.follows() { power(requests.clamp(256, 16_384)) } else { 1 },
        }
    }

    /// Sets the sizes of the maps.
    fn size(&self, maps: &mut OpenEngineMaps<'_>, parts: &Parts, cpus: usize) -> libbpf_rs::Result<()> {
        let halves = |rows: usize| (rows * cpus * HALVES) as u32;
        maps.cpu_slots.set_max_entries(cpus as u32)?;
        maps.lock_slots.set_max_entries(halves(self.locks))?;
        maps.first_slots.set_max_entries(halves(self.first))?;
        maps.time_slots.set_max_entries(halves(self.times))?;
        maps.request_slots.set_max_entries(halves(self.requests))?;
        maps.requests_aside.set_max_entries(if parts.clients { REQUESTS_ASIDE } else { 1 })?;
        maps.signals.set_max_entries(if parts.clients { SIGNALS } else { 1 })?;
        maps.lengths.set_max_entries(cpus as u32)?;
        maps.length_slots.set_max_entries(halves(self.lengths))?;
        maps.other_slots.set_max_entries(halves(OTHER_ROWS))?;
        maps.io_counts.set_max_entries(cpus as u32)?;
        maps.io_rows.set_max_entries(halves(IO_ROWS + IO_OTHERS))?;
        maps.scratch.set_max_entries((cpus * SCRATCHES) as u32)?;
        maps.copies.set_max_entries(cpus as u32)?;
        maps.sent.set_max_entries(cpus as u32)?;
        maps.probe_hits.set_max_entries(cpus as u32)?;
        maps.sleep_calls.set_max_entries(cpus as u32)?;
        let tenants = self.tenants;
        maps.tenant_slots.set_max_entries((tenants * (cpus + 1)).max(1) as u32)?;
        maps.tenant_looks.set_max_entries(tenants.max(1) as u32)?;
        maps.tenant_free.set_max_entries(tenants.max(1) as u32)?;
        maps.tenant_keys.set_max_entries((2 * tenants).max(1) as u32)
    }
}

/// Sets what the programs read once.
fn configure(ro: &mut types::rodata, config: &Config, parts: &Parts, rows: &Rows, cpus: usize) -> Result<()> {
    ro.cfg_requests = parts.follows().into();
    ro.cfg_request_slots = rows.requests as u32;
    ro.call_reads = served::call_reads();
    (ro.cfg_all, ro.cfg_tgid, ro.cfg_cgroup, ro.cfg_cgroup_level) = config.target.settings()?;
    ro.cfg_self = std::process::id();
    ro.cfg_readers = ncpu_files::reader::starter().unwrap_or(0);
    ro.cfg_cpus = cpus as u32;
    ro.cfg_lock_slots = rows.locks as u32;
    ro.cfg_first_slots = rows.first as u32;
    ro.cfg_lock_all = config.lock_all.into();
    // Needed only to explain why nothing ran.
    ro.cfg_sleeps = config.explain.into();
    ro.cfg_queues = config.explain.into();
    ro.cfg_tenants = rows.tenants as u32;
    ro.cfg_time_slots = rows.times as u32;
    ro.cfg_length_slots = rows.lengths as u32;
    for nr in config.latency_of.iter().map(|nr| *nr as usize) {
        if let Some(word) = ro.cfg_timed_calls.get_mut(nr / 64) {
            *word |= 1 << (nr % 64);
        }
    }
    ro.call_life = thread_time::call_lives();
    ro.cfg_micro = config.traces_calls().into();
    if parts.as_devices {
        ro.cfg_timer_irq = timer_interrupt(Path::new("/")).unwrap_or(0);
    }
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
    ro.cfg_io = parts.devices.into();
    Ok(())
}

/// Programs for locks of the kernel and of programs, and for calls of functions.
fn choose_locks(progs: &mut OpenEngineProgs<'_>, config: &Config, parts: &Parts, types: &load::Types) {
    progs.contention_begin.set_autoload(parts.kernel_locks);
    progs.contention_end.set_autoload(parts.kernel_locks);
    let programs = config.traces_programs();
    progs.user_lock.set_autoload(programs);
    progs.go_lock.set_autoload(programs);
    progs.function_call.set_autoload(parts.functions);
    progs.let_goroutines_go.set_autoload(programs && many_uprobes());
    progs.forget_calls.set_autoload(parts.functions && many_uprobes());
    if many_uprobes() {
        progs.user_lock.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        progs.go_lock.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        progs.function_call.set_attach_type(ProgramAttachType::TraceUprobeMulti);
    }
    progs.sched_process_exec.set_autoload(programs && types.has("sched_process_exec"));
}

/// Programs that are needed only where tenants have accounts.
fn choose_tenants(progs: &mut OpenEngineProgs<'_>, types: &load::Types, tenants: bool) {
    let has = |tracepoint: &str| types.has(tracepoint);
    let packets = tenants && PACKETS.into_iter().all(has);
    progs.packet_sent.set_autoload(packets);
    progs.packet_received.set_autoload(packets);
    let reclaim = tenants && RECLAIM.into_iter().all(has);
    progs.reclaim_begins.set_autoload(reclaim);
    progs.reclaim_ends.set_autoload(reclaim);
    let limits = tenants && LIMITS.into_iter().all(has);
    progs.limit_reclaim_begins.set_autoload(limits);
    progs.limit_reclaim_ends.set_autoload(limits);
}

/// Programs for system calls, faults and signals.
fn choose_calls(progs: &mut OpenEngineProgs<'_>, config: &Config, parts: &Parts, types: &load::Types) {
    let calls = config.traces_calls();
    progs.page_fault_user.set_autoload(parts.faults);
    progs.fault_counted.set_autoload(parts.counted_faults);
    progs.fault_minor.set_autoload(calls);
    progs.fault_major.set_autoload(calls);
    progs.sys_enter.set_autoload(calls);
    progs.sys_exit.set_autoload(calls);
    progs.user_registers.set_autoload(calls && types.has("x86_fpu_regs_activated"));
    progs.settle.set_autoload(calls && types.has("local_timer_entry"));
    progs.tell_mode.set_autoload(calls);
    progs.strike.set_autoload(calls);
    progs.timed_call_begins.set_autoload(!config.latency_of.is_empty());
    progs.timed_call_ends.set_autoload(!config.latency_of.is_empty());
    // Signals are few where they do not cost.
    progs.signal_deliver.set_autoload(calls || config.counts_signals());
}

/// Programs for requests of clients and requests to devices.
fn choose_requests(progs: &mut OpenEngineProgs<'_>, parts: &Parts, types: &load::Types) {
    progs.request_read.set_autoload(parts.clients);
    progs.request_answered.set_autoload(parts.clients);
    progs.request_arrives.set_autoload(parts.clients);
    progs.request_calls.set_autoload(parts.follows());
    progs.request_call_over.set_autoload(parts.follows());
    progs.block_rq_insert.set_autoload(parts.devices);
    progs.block_rq_issue.set_autoload(parts.devices);
    progs.block_rq_complete.set_autoload(parts.devices);
    progs.block_rq_merge.set_autoload(parts.devices && types.has("block_rq_merge"));
    progs.block_rq_requeue.set_autoload(parts.devices && types.has("block_rq_requeue"));
}

/// Programs for interrupts, softirqs and TLB shootdowns.
fn choose_interrupts(
    progs: &mut OpenEngineProgs<'_>,
    config: &Config,
    parts: &Parts,
    types: &load::Types,
) -> Interrupts {
    progs.tlb_flush.set_autoload(parts.tlb);
    let calls = parts.tlb && CALLS.into_iter().all(|tracepoint| types.has(tracepoint));
    progs.call_is_asked.set_autoload(calls);
    progs.call_begins.set_autoload(calls);
    // An interrupt is timed only if the kernel has tracepoints for both its beginning and its end.
    let traced = |(enter, exit): &Pair| config.irqs && types.has(enter) && types.has(exit);
    let hard: Vec<Pair> = VECTORS.into_iter().chain([HANDLERS]).filter(traced).collect();
    progs.hardirq_in.set_autoload(hard.iter().any(|pair| ![LOCAL_TIMER, HANDLERS].contains(pair)));
    progs.handler_in.set_autoload(hard.contains(&HANDLERS));
    progs.ipi_begins.set_autoload(parts.as_devices && types.has(IPIS));
    progs.timer_in.set_autoload(hard.contains(&LOCAL_TIMER));
    progs.hardirq_out.set_autoload(!hard.is_empty());
    let soft = Some(SOFTIRQS).filter(traced);
    progs.softirq_in.set_autoload(soft.is_some());
    progs.softirq_out.set_autoload(soft.is_some());
    // Only x86 has a tracepoint for each of the two kinds.
    let gauged = hard.contains(&LOCAL_TIMER);
    progs.gauge_in.set_autoload(gauged);
    progs.gauge_out.set_autoload(gauged);
    Interrupts(hard)
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

/// The number of the interrupt of AArch64's timer, which each CPU has one of.
fn timer_interrupt(root: &Path) -> Option<u32> {
    let table = std::fs::read_to_string(root.join("proc/interrupts")).ok()?;
    let line = table.lines().find(|line| line.ends_with(" arch_timer"))?;
    line.split_once(':')?.0.trim().parse().ok()
}

/// AArch64's cross-calls begin, within their handler.
const IPIS: &str = "ipi_entry";

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
    CROSS_CALLS[0],
    CROSS_CALLS[1],
    ("irq_work_entry", "irq_work_exit"),
];
/// Calls of other CPUs: of several at once, and of one.
const CROSS_CALLS: [Pair; 2] = [
    ("call_function_entry", "call_function_exit"),
    ("call_function_single_entry", "call_function_single_exit"),
];
const HANDLERS: Pair = ("irq_handler_entry", "irq_handler_exit");
const SOFTIRQS: Pair = ("softirq_entry", "softirq_exit");

/// The hardware interrupts that have tracepoints.
pub(super) struct Interrupts(Vec<Pair>);

/// Interrupts by which it is measured what entering one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gauged {
    /// Of a timer.
    Timer,
    /// Calls of another CPU.
    Calls,
}

impl Interrupts {
    /// Attaches the programs that time one thread's interrupts of a kind; nothing where the kernel does not trace these.
    pub fn attach_gauge(&self, progs: &EngineProgs<'_>, gauged: Gauged) -> Result<Vec<Link>> {
        let pairs: Vec<Pair> = match gauged {
            Gauged::Timer => vec![LOCAL_TIMER],
            Gauged::Calls => CROSS_CALLS.to_vec(),
        };
        if !pairs.iter().all(|pair| self.0.contains(pair)) {
            return Ok(Vec::new());
        }
        let (begins, ends): (Vec<&str>, Vec<&str>) = pairs.into_iter().unzip();
        let mut links = load::attach_to(&progs.gauge_out, &ends)?;
        links.extend(load::attach_to(&progs.gauge_in, &begins)?);
        Ok(links)
    }
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
pub(super) fn attach(loaded: &Loaded, interrupts: &Interrupts) -> Result<Vec<Link>> {
    let (p, at_switches) = (&loaded.skel.progs, &loaded.switches.progs);
    let mut links = load::attach([
        &p.sched_process_fork,
        &p.sched_process_exec,
        &at_switches.sched_wakeup_new,
        &at_switches.sched_switch,
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
    links.extend(load::attach_to(&p.ipi_begins, &[IPIS])?);
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

/// Attaches the programs that see faults end, and begin where they have no tracepoint, to one CPU.
pub(super) fn attach_faults(skel: &EngineSkel<'static>, cpu: usize) -> std::io::Result<Vec<Link>> {
    let one = |program, event| perf::software(cpu, event).and_then(|fd| perf::attach(program, fd));
    let mut links = vec![
        one(&skel.progs.fault_minor, perf::SW_FAULTS_MIN)?,
        one(&skel.progs.fault_major, perf::SW_FAULTS_MAJ)?,
    ];
    if skel.progs.fault_counted.autoload() {
        links.push(one(&skel.progs.fault_counted, perf::SW_FAULTS)?);
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_of_aarch64_is_found_among_its_interrupts() {
        let dir = tempfile::tempdir().unwrap();
        // Debian's 6.1 on QEMU's virt machine.
        let table = "           CPU0       CPU1       \n 11:      41247      10454     GICv3  27 Level     arch_timer\n \
                     13:          0          0     GICv3  33 Level     uart-pl011\nIPI0:        62         51       Rescheduling interrupts\n";
        ncpu_machine_trees::put(dir.path(), "proc/interrupts", table);
        assert_eq!(timer_interrupt(dir.path()), Some(11));
        ncpu_machine_trees::put(dir.path(), "proc/interrupts", "  CPU0\n LOC:  5  Local timer interrupts\n");
        assert_eq!(timer_interrupt(dir.path()), None);
    }
}
