//! What Prometheus reads: sums since the beginning, of few and bounded names.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::atomic::AtomicU64;

use ncpu_feed::Head;
use ncpu_record::Recording;
use ncpu_report::locks::{is_held_lock, user_lock_name};
use ncpu_report::tenants::{Naming, Tenancy};
use ncpu_schema::{
    Counter as Event, Error, Layer, Microstate, cgroup_cpu, drops, events, locks, memory_change, pressure,
    summary, threads, throttling, user_locks,
};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::bands;
use crate::histogram::Histogram;

/// A time that counts up.
type Seconds = Counter<f64, AtomicU64>;
/// A value.
type Value = Gauge<f64, AtomicU64>;
type Labels = Vec<(&'static str, String)>;

/// Names that have series of their own at a time: locks of the kernel, locks of programs, processes, control groups.
const LOCKS: usize = 50;
const USER_LOCKS: usize = 30;
const PROCESSES: usize = 50;
const CGROUPS: usize = 30;
/// Tenants, and losses of one to another by a cause.
const TENANTS: usize = 20;
const LOSSES: usize = 50;
/// An interval's largest may get a name, at most this many, if each is this share of capacity.
const NEW_NAMES: usize = 5;
const WORTH_A_NAME: f64 = 1e-4;
/// Seconds after which a name that was not worth one gives its place to another.
const IDLE: f64 = 3600.0;
/// Classes of memory, events that are dropped, resources: far above their number.
const NAMES: usize = 100;
/// Characters of a name.
const LONGEST: usize = 80;

/// The label of all without a name, and of tenants.
const OTHERS: &str = "others";
const OTHER: &str = "other";

/// Names that have series of their own. Their number is bounded, and a name keeps its place while it is among the large
/// ones now and then, so that few series begin and end.
struct Named<K> {
    places: usize,
    /// When each was last worth a name, in seconds since 1970.
    last: HashMap<K, f64>,
}

impl<K: Clone + Eq + Hash + Ord> Named<K> {
    fn new(places: usize) -> Named<K> {
        Named { places, last: HashMap::new() }
    }

    /// Takes an interval's sizes and gives places to the largest. `gone` is called for each name that lost its place.
    fn take(&mut self, sizes: &HashMap<K, f64>, least: f64, now: f64, mut gone: impl FnMut(&K)) {
        let mut order: Vec<(&K, f64)> = sizes
            .iter()
            .filter(|(_, size)| **size > 0.0 && **size >= least)
            .map(|(key, size)| (key, *size))
            .collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        for (key, _) in &order {
            if let Some(last) = self.last.get_mut(*key) {
                *last = now;
            }
        }
        for (key, _) in order.into_iter().take(NEW_NAMES) {
            if self.last.contains_key(key) {
                continue;
            }
            if self.last.len() >= self.places {
                let idle = self.last.iter().filter(|(_, last)| now - **last > IDLE);
                let Some(idle) = idle.min_by(|a, b| a.1.total_cmp(b.1)).map(|(key, _)| key.clone()) else {
                    break;
                };
                self.last.remove(&idle);
                gone(&idle);
            }
            self.last.insert(key.clone(), now);
        }
    }

    fn has(&self, key: &K) -> bool {
        self.last.contains_key(key)
    }
}

/// Outcome of a message to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The collector has taken it.
    Sent,
    /// It has refused some profiles of it.
    Partial,
    /// It has not taken it.
    Failed,
}

impl Outcome {
    /// The word in metrics.
    fn name(self) -> &'static str {
        match self {
            Outcome::Sent => "sent",
            Outcome::Partial => "partial",
            Outcome::Failed => "failed",
        }
    }
}

/// All of them.
pub struct Metrics {
    registry: Registry,
    layers: Family<Labels, Seconds>,
    capacity: Seconds,
    cpus: Value,
    locks: Family<Labels, Seconds>,
    named_locks: Named<String>,
    waits: Family<Labels, Counter>,
    user_locks: Family<Labels, Seconds>,
    user_waits: Family<Labels, Counter>,
    named_user_locks: Named<[String; 2]>,
    processes: Family<Labels, Seconds>,
    queued: Family<Labels, Seconds>,
    named_processes: Named<String>,
    throttled: Family<Labels, Seconds>,
    named_throttled: Named<String>,
    cgroups: Family<Labels, Seconds>,
    named_cgroups: Named<String>,
    tenant_layers: Family<Labels, Seconds>,
    named_tenants: Named<String>,
    tenant_delays: Family<Labels, Seconds>,
    named_losses: Named<[String; 3]>,
    events: Family<Labels, Counter>,
    run_queue: Seconds,
    lengths: Family<Labels, Histogram>,
    memory: Family<Labels, Value>,
    pressure: Family<Labels, Seconds>,
    drops: Family<Labels, Counter>,
    own_cpu: Family<Labels, Seconds>,
    own_memory: Family<Labels, Value>,
    intervals: Counter,
    lost: Counter,
    newest: Value,
    held: Value,
    requests: Family<Labels, Counter>,
    otlp: Family<Labels, Counter>,
    connections: Value,
}

impl Metrics {
    /// None counted yet.
    pub fn new(version: &str) -> Metrics {
        let mut registry = Registry::with_prefix("ncpu");
        macro_rules! metric {
            ($name:literal, $help:literal $(, $unit:ident)?) => {{
                let metric = Default::default();
                metric!(@register metric, $name, $help $(, $unit)?);
                metric
            }};
            (@register $metric:ident, $name:literal, $help:literal) => {
                registry.register($name, $help, Clone::clone(&$metric))
            };
            (@register $metric:ident, $name:literal, $help:literal, $unit:ident) => {
                registry.register_with_unit($name, $help, Unit::$unit, Clone::clone(&$metric))
            };
        }
        let build: Family<Labels, Value> = metric!("build", "The version that serves; always 1");
        build.get_or_create(&vec![("version", version.into())]).set(1.0);
        let layers: Family<Labels, Seconds> =
            metric!("layer_cpu", "CPU time by layer of the onion; the layers sum to the capacity", Seconds);
        for layer in Layer::ALL {
            drop(layers.get_or_create(&of_layer(layer)));
        }
        Metrics {
            layers,
            capacity: metric!("capacity_cpu", "CPUs x elapsed", Seconds),
            cpus: metric!("cpus", "CPUs that are online"),
            locks: metric!(
                "lock_wait",
                "Time waited for kernel locks, on CPU (spin) and off (block)",
                Seconds
            ),
            named_locks: Named::new(LOCKS),
            waits: metric!("lock_waits", "Contended acquisitions of kernel locks"),
            user_locks: metric!(
                "user_lock_wait",
                "Time waited for locks of programs, off CPU (block), and on CPU (spin) where the lock tells",
                Seconds
            ),
            user_waits: metric!("user_lock_waits", "Waits for locks of programs"),
            named_user_locks: Named::new(USER_LOCKS),
            processes: metric!("process_cpu", "CPU time by name of the process", Seconds),
            queued: metric!(
                "process_run_queue_wait",
                "Time that threads stood on run queues, by name of the process",
                Seconds
            ),
            named_processes: Named::new(PROCESSES),
            throttled: metric!(
                "cgroup_throttled",
                "CPU time for which a CPU limit held back run queues of the control group",
                Seconds
            ),
            named_throttled: Named::new(CGROUPS),
            cgroups: metric!(
                "cgroup_cpu",
                "CPU time of the control group's processes, without those of the groups below it",
                Seconds
            ),
            named_cgroups: Named::new(CGROUPS),
            tenant_layers: metric!(
                "tenant_layer",
                "CPU time by tenant and layer of the onion; tenants and nobody sum to the capacity",
                Seconds
            ),
            named_tenants: Named::new(TENANTS),
            tenant_delays: metric!(
                "tenant_delay",
                "Time that threads of a tenant lost to another, by cause",
                Seconds
            ),
            named_losses: Named::new(LOSSES),
            events: metric!("events", "Shootdowns, interrupts, switches"),
            run_queue: metric!("run_queue_wait", "Time that threads stood on run queues", Seconds),
            lengths: metric!(
                "length",
                "How long threads wait for CPUs, run, and wait for locks and devices, by kind",
                Seconds
            ),
            memory: metric!("memory", "Memory by class, as in /proc/meminfo", Bytes),
            pressure: metric!(
                "pressure_stall",
                "Time in which some or all tasks stood still for a resource",
                Seconds
            ),
            drops: metric!("dropped_events", "Events that were not counted, for lack of room"),
            own_cpu: metric!("own_cpu", "CPU time of ncpu itself, by process", Seconds),
            own_memory: metric!("own_resident_memory", "Resident memory of ncpu itself, by process", Bytes),
            intervals: metric!("intervals", "Intervals that were observed"),
            lost: metric!("lost_intervals", "Intervals that were not taken in time"),
            newest: metric!("newest_interval_timestamp", "End of the newest interval, since 1970", Seconds),
            held: metric!("held_intervals", "Intervals whose tables are held"),
            requests: metric!("http_requests", "Requests, by the kind of answer"),
            otlp: metric!("otlp_messages", "Messages to the collector of --otlp, by what became of them"),
            connections: metric!("http_connections", "Connections"),
            registry,
        }
    }

    /// Counts an interval.
    ///
    /// # Errors
    /// Its tables are not as the schema has them.
    pub fn add(&mut self, head: &Head, interval: &Recording, held: usize) -> Result<(), Error> {
        self.intervals.inc();
        self.lost.inc_by(head.lost.saturating_sub(self.lost.get()));
        self.newest.set(head.end);
        self.held.set(held as f64);
        let process = |name: &str| vec![("process", name.to_owned())];
        upto(&self.own_cpu.get_or_create(&process("observer")), head.cpu);
        self.own_memory.get_or_create(&process("observer")).set(head.resident as f64);
        let (layers, capacity) = bands::layers(interval)?;
        for layer in Layer::ALL {
            self.layers.get_or_create(&of_layer(layer)).inc_by(layers[layer as usize].max(0.0));
        }
        self.capacity.inc_by(capacity.max(0.0));
        if let Some(summary) = summary::Reader::open(interval)? {
            self.cpus.set(summary.cpus.get(0).unwrap_or(0) as f64);
        }
        let least = WORTH_A_NAME * capacity.max(0.0);
        self.add_locks(interval, least, head.end)?;
        self.add_user_locks(interval, least, head.end)?;
        self.add_processes(interval, least, head.end)?;
        self.add_throttled(interval, head.end)?;
        self.add_cgroups(interval, least, head.end)?;
        self.add_tenants(interval, least, head.end)?;
        if let Some(table) = events::Reader::open(interval)? {
            for row in table.rows() {
                let (Some(event), Some(count)) = (table.event.get(row), table.count.get(row)) else {
                    continue;
                };
                if event == Event::RunQueueMicroseconds {
                    self.run_queue.inc_by(count as f64 / 1e6);
                } else {
                    self.events.get_or_create(&vec![("event", name(event.name()))]).inc_by(count);
                }
            }
        }
        if let Some(table) = interval.tables.get(ncpu_schema::lengths::NAME) {
            for ((of, ..), bins) in ncpu_report::lengths::of(table)? {
                self.lengths.get_or_create(&vec![("of", of.name().to_owned())]).add(&bins);
            }
        }
        if let Some(table) = memory_change::Reader::open(interval)? {
            for row in table.rows().take(NAMES) {
                if let (Some(class), Some(bytes)) = (table.class.get(row), table.after.get(row)) {
                    self.memory.get_or_create(&vec![("class", name(class))]).set(bytes as f64);
                }
            }
        }
        if let Some(table) = pressure::Reader::open(interval)? {
            for row in table.rows().take(NAMES) {
                let (resource, kind) = (table.resource.get(row), table.kind.get(row));
                let labels = [("resource", resource), ("kind", kind)];
                let labels = labels.map(|(label, word)| (label, name(word.unwrap_or(""))));
                let seconds = table.seconds.get(row).unwrap_or(0.0).max(0.0);
                self.pressure.get_or_create(&labels.to_vec()).inc_by(seconds);
            }
        }
        if let Some(table) = drops::Reader::open(interval)? {
            for row in table.rows().take(NAMES) {
                let what = name(table.what.get(row).unwrap_or(""));
                self.drops.get_or_create(&vec![("what", what)]).inc_by(table.count.get(row).unwrap_or(0));
            }
        }
        Ok(())
    }

    fn add_tenants(&mut self, interval: &Recording, least: f64, now: f64) -> Result<(), Error> {
        let Some(tenancy) = Tenancy::of(interval, &Naming::default())? else { return Ok(()) };
        let of =
            |tenant: &str, layer: Layer| vec![("tenant", tenant.to_owned()), ("layer", name(layer.name()))];
        let sizes =
            tenancy.parts.iter().filter_map(|part| Some((name(part.name.as_deref()?), part.seconds())));
        let sizes = sizes.collect();
        self.named_tenants.take(&sizes, least, now, |tenant| {
            for layer in Layer::ALL {
                self.tenant_layers.remove(&of(tenant, layer));
            }
        });
        for part in &tenancy.parts {
            let tenant = part.name.as_deref().map_or_else(|| "nobody".into(), name);
            let known = part.name.is_none() || self.named_tenants.has(&tenant);
            let tenant = if known { &tenant } else { OTHER };
            for (layer, seconds) in &part.layers {
                self.tenant_layers.get_or_create(&of(tenant, *layer)).inc_by(seconds.max(0.0));
            }
        }
        let delay = |[victim, culprit, cause]: &[String; 3]| {
            let labels = [("victim", victim), ("culprit", culprit), ("cause", cause)];
            labels.map(|(label, word)| (label, word.clone())).to_vec()
        };
        let mut sums: HashMap<[String; 3], f64> = HashMap::new();
        for lost in &tenancy.losses {
            let culprit = lost.culprit.as_deref().unwrap_or("unknown");
            *sums.entry([lost.victim.as_str(), culprit, lost.cause.name()].map(name)).or_default() +=
                lost.threads.max(0.0);
        }
        self.named_losses.take(&sums, least, now, |key| {
            self.tenant_delays.remove(&delay(key));
        });
        for (key, seconds) in sums {
            let key = match self.named_losses.has(&key) {
                true => key,
                false => [OTHER.into(), OTHER.into(), key[2].clone()],
            };
            self.tenant_delays.get_or_create(&delay(&key)).inc_by(seconds);
        }
        Ok(())
    }

    fn add_locks(&mut self, interval: &Recording, least: f64, now: f64) -> Result<(), Error> {
        let Some(table) = locks::Reader::open(interval)? else { return Ok(()) };
        let mut sums: HashMap<String, (f64, f64, u64)> = HashMap::new();
        for row in table.rows() {
            let sum = sums.entry(name(table.lock.get(row).unwrap_or(""))).or_default();
            sum.0 += table.spin.get(row).unwrap_or(0.0).max(0.0);
            sum.1 += table.block.get(row).unwrap_or(0.0).max(0.0);
            sum.2 += table.count.get(row).unwrap_or(0);
        }
        let of = |lock: &str, how: &str| vec![("lock", lock.to_owned()), ("how", how.to_owned())];
        let waits = |lock: &str| vec![("lock", lock.to_owned())];
        let named = sums.iter().filter(|(lock, _)| may_be_named(lock));
        let sizes = named.map(|(lock, (spin, block, _))| (lock.clone(), spin + block)).collect();
        self.named_locks.take(&sizes, least, now, |lock| {
            for how in ["spin", "block"] {
                self.locks.remove(&of(lock, how));
            }
            self.waits.remove(&waits(lock));
        });
        for (lock, (spin, block, count)) in sums {
            let lock = if self.named_locks.has(&lock) { &lock } else { OTHERS };
            self.locks.get_or_create(&of(lock, "spin")).inc_by(spin);
            self.locks.get_or_create(&of(lock, "block")).inc_by(block);
            self.waits.get_or_create(&waits(lock)).inc_by(count);
        }
        Ok(())
    }

    /// Locks of programs by process and by the name that their users know.
    fn add_user_locks(&mut self, interval: &Recording, least: f64, now: f64) -> Result<(), Error> {
        let Some(table) = user_locks::Reader::open(interval)? else { return Ok(()) };
        let mut sums: HashMap<[String; 2], (f64, Option<f64>, u64)> = HashMap::new();
        for row in table.rows().filter(|&row| table.ty.get(row).is_some_and(is_held_lock)) {
            let (lock, kind) = (table.lock.get(row).unwrap_or(""), table.ty.get(row).unwrap_or(""));
            let lock = match user_lock_name(lock, kind, table.caller.get(row), table.pattern.get(row)) {
                // An address is of one process's life.
                address if address.starts_with("0x") => kind.into(),
                name => name,
            };
            let key = [table.process.get(row).unwrap_or(""), &lock].map(name);
            let sum = sums.entry(key).or_default();
            sum.0 += table.block.get(row).unwrap_or(0.0).max(0.0);
            if let Some(spin) = table.spin.get(row) {
                sum.1 = Some(sum.1.unwrap_or(0.0) + spin.max(0.0));
            }
            sum.2 += table.count.get(row).unwrap_or(0);
        }
        let waits =
            |[process, lock]: &[String; 2]| vec![("process", process.clone()), ("lock", lock.clone())];
        let of = |key: &[String; 2], how: &str| {
            let mut labels = waits(key);
            labels.push(("how", how.to_owned()));
            labels
        };
        let sizes =
            sums.iter().map(|(key, (block, spin, _))| (key.clone(), block + spin.unwrap_or(0.0))).collect();
        self.named_user_locks.take(&sizes, least, now, |key| {
            for how in ["spin", "block"] {
                self.user_locks.remove(&of(key, how));
            }
            self.user_waits.remove(&waits(key));
        });
        for (key, (block, spin, count)) in sums {
            let key = if self.named_user_locks.has(&key) { key } else { [OTHERS, OTHERS].map(String::from) };
            self.user_locks.get_or_create(&of(&key, "block")).inc_by(block);
            if let Some(spin) = spin {
                self.user_locks.get_or_create(&of(&key, "spin")).inc_by(spin);
            }
            self.user_waits.get_or_create(&waits(&key)).inc_by(count);
        }
        Ok(())
    }

    fn add_processes(&mut self, interval: &Recording, least: f64, now: f64) -> Result<(), Error> {
        let Some(table) = threads::Reader::open(interval)? else { return Ok(()) };
        let mut sums: HashMap<String, (f64, f64)> = HashMap::new();
        for row in table.rows() {
            let sum = sums.entry(name(table.process.get(row).unwrap_or(""))).or_default();
            sum.0 += table.cpu.get(row).unwrap_or(0.0).max(0.0);
            sum.1 += table.micro.get(row, Microstate::Lat).unwrap_or(0.0).max(0.0);
        }
        let of = |process: &str| vec![("process", process.to_owned())];
        let named = sums.iter().filter(|(process, _)| may_be_named(process));
        let sizes = named.map(|(process, (cpu, queued))| (process.clone(), cpu + queued)).collect();
        self.named_processes.take(&sizes, least, now, |process| {
            self.processes.remove(&of(process));
            self.queued.remove(&of(process));
        });
        for (process, (cpu, queued)) in sums {
            let labels = of(if self.named_processes.has(&process) { &process } else { OTHERS });
            self.processes.get_or_create(&labels).inc_by(cpu);
            self.queued.get_or_create(&labels).inc_by(queued);
        }
        Ok(())
    }

    fn add_throttled(&mut self, interval: &Recording, now: f64) -> Result<(), Error> {
        let Some(table) = throttling::Reader::open(interval)? else { return Ok(()) };
        let rows = table.rows().map(|row| (table.cgroup.get(row), table.held.get(row)));
        add_by_group(&self.throttled, &mut self.named_throttled, rows, 0.0, now);
        Ok(())
    }

    fn add_cgroups(&mut self, interval: &Recording, least: f64, now: f64) -> Result<(), Error> {
        let Some(table) = cgroup_cpu::Reader::open(interval)? else { return Ok(()) };
        let rows = table.rows().map(|row| (table.cgroup.get(row), table.cpu.get(row)));
        add_by_group(&self.cgroups, &mut self.named_cgroups, rows, least, now);
        Ok(())
    }

    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        let class = ["1xx", "2xx", "3xx", "4xx", "5xx"][usize::from(status / 100).clamp(1, 5) - 1];
        self.requests.get_or_create(&vec![("answer", class.to_owned())]).inc();
    }

    /// Counts a message to a collector.
    pub fn sent(&self, outcome: Outcome) {
        self.otlp.get_or_create(&vec![("outcome", outcome.name().to_owned())]).inc();
    }

    /// What Prometheus is given: OpenMetrics, or the older format where that is not asked for.
    ///
    /// # Errors
    /// A name cannot be written.
    pub fn text(&self, connections: usize, open: bool) -> Result<String, std::fmt::Error> {
        self.connections.set(connections as f64);
        let (cpu, resident) = ncpu_daemon::own_use();
        let server = vec![("process", "server".to_owned())];
        upto(&self.own_cpu.get_or_create(&server), cpu);
        self.own_memory.get_or_create(&server).set(resident as f64);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(if open { text } else { classic(&text) })
    }
}

/// Adds seconds by control group.
fn add_by_group<'a>(
    series: &Family<Labels, Seconds>,
    named: &mut Named<String>,
    rows: impl Iterator<Item = (Option<&'a str>, Option<f64>)>,
    least: f64,
    now: f64,
) {
    let mut sums: HashMap<String, f64> = HashMap::new();
    for (cgroup, seconds) in rows {
        *sums.entry(name(cgroup.unwrap_or(""))).or_default() += seconds.unwrap_or(0.0).max(0.0);
    }
    let of = |cgroup: &str| vec![("cgroup", cgroup.to_owned())];
    let sizes = sums.iter().filter(|(cgroup, _)| may_be_named(cgroup));
    let sizes = sizes.map(|(cgroup, seconds)| (cgroup.clone(), *seconds)).collect();
    named.take(&sizes, least, now, |cgroup| {
        series.remove(&of(cgroup));
    });
    for (cgroup, seconds) in sums {
        let cgroup = if named.has(&cgroup) { &cgroup } else { OTHERS };
        series.get_or_create(&of(cgroup)).inc_by(seconds);
    }
}

/// Counts up to what another counter tells.
fn upto(counter: &Seconds, told: f64) {
    counter.inc_by((told - counter.get()).max(0.0));
}

fn of_layer(layer: Layer) -> Labels {
    let recoverable = if layer.recoverable() { "yes" } else { "no" };
    vec![("layer", layer.name().into()), ("recoverable", recoverable.into())]
}

/// Whether a name can have a series of its own.
fn may_be_named(name: &str) -> bool {
    !name.is_empty() && name != OTHERS
}

/// A label: short, and without what has a meaning in the format.
fn name(text: &str) -> String {
    let plain = |c: char| if ncpu_table::safe::is_unsafe(c) || matches!(c, '"' | '\\') { '_' } else { c };
    text.chars().map(plain).take(LONGEST).collect()
}

/// Prometheus's own format of what is written as OpenMetrics: a counter's name there has `_total` everywhere, and there are
/// no units and no end.
fn classic(open: &str) -> String {
    let counters: HashSet<&str> =
        open.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut out = String::with_capacity(open.len());
    for line in open.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        let about = ["# HELP ", "# TYPE "].iter().find_map(|kind| Some((kind, line.strip_prefix(kind)?)));
        match about.and_then(|(kind, rest)| Some((kind, rest.split_once(' ')?))) {
            Some((kind, (name, rest))) if counters.contains(name) => {
                out.push_str(&format!("{kind}{name}_total {rest}\n"));
            }
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::history::Held;
    use crate::made_up::{about, interval};
    use crate::merge::recording;
    use ncpu_table::Table;

    fn one(number: u64) -> (Head, Recording) {
        let packed = interval(number);
        let held = Arc::new(Held::new(&packed).unwrap());
        (packed.head, recording(&about(), &[held]).unwrap())
    }

    #[test]
    fn sums_are_those_of_the_intervals() {
        let mut metrics = Metrics::new("1.2.3");
        for number in 0..4 {
            let (head, interval) = one(number);
            metrics.add(&head, &interval, 4).unwrap();
        }
        let text = metrics.text(3, true).unwrap();
        for line in [
            r#"ncpu_layer_cpu_seconds_total{layer="user code",recoverable="no"} 4.0"#,
            "ncpu_capacity_cpu_seconds_total 8.0",
            r#"ncpu_lock_wait_seconds_total{lock="pcf",how="spin"} 1.0"#,
            r#"ncpu_lock_wait_seconds_total{lock="pcf",how="block"} 2.0"#,
            r#"ncpu_lock_waits_total{lock="pcf"} 40"#,
            r#"ncpu_memory_bytes{class="AnonPages"} 4.0"#,
            r#"ncpu_dropped_events_total{what="samples"} 12"#,
            "ncpu_newest_interval_timestamp_seconds 1004.0",
            "ncpu_http_connections 3.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        let text = metrics.text(3, false).unwrap();
        assert!(text.contains("# TYPE ncpu_capacity_cpu_seconds_total counter\n"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("EOF"));
    }

    #[test]
    fn lengths_are_cumulative_and_merged_exactly() {
        let mut metrics = Metrics::new("1.2.3");
        let (head, base) = one(0);
        let mut rows = ncpu_schema::lengths::Rows::new();
        for (name, from, to, count) in
            [(None, 1.0, 1.024, 5), (None, 1.024, 1.056, 7), (Some("x"), 64.0, 66.0, 2)]
        {
            rows.push(ncpu_schema::lengths::Row {
                of: Some(ncpu_schema::Length::RunQueue),
                name: name.into(),
                from: Some(from),
                to: Some(to),
                count: Some(count),
                ..Default::default()
            });
        }
        let interval = base.with(rows.finish());
        metrics.add(&head, &interval, 1).unwrap();
        metrics.add(&head, &interval, 1).unwrap();
        let text = metrics.text(0, true).unwrap();
        let of = |bound: &str| {
            value(&text, &format!("ncpu_length_seconds_bucket{{le=\"{bound}\",of=\"run queue\"}}"))
        };
        assert_eq!(of("0.000001024"), Some(10.0), "{text}");
        assert_eq!(of("0.000002048"), Some(24.0), "{text}");
        assert_eq!(of("0.000065536"), Some(24.0), "{text}");
        assert_eq!((of("0.000131072"), of("+Inf")), (Some(28.0), Some(28.0)), "{text}");
        assert_eq!(value(&text, "ncpu_length_seconds_count{of=\"run queue\"}"), Some(28.0), "{text}");
    }

    /// The value of a series; `None` where the text lacks it.
    fn value(text: &str, series: &str) -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    #[test]
    fn processes_user_locks_and_control_groups_have_series() {
        let mut metrics = Metrics::new("1.2.3");
        let (head, base) = one(0);
        let mut rows = threads::Rows::new();
        for (process, thread, cpu) in
            [("rustc", "opt cgu.0", 0.5), ("rustc", "rustc", 0.25), ("tiny", "tiny", 1e-6)]
        {
            rows.push(threads::Row {
                process: process.into(),
                thread: thread.into(),
                cpu: Some(cpu),
                micro: ncpu_schema::Per::new(|state| (state == Microstate::Lat).then_some(0.125)),
                ..Default::default()
            });
        }
        let mut waits = user_locks::Rows::new();
        for (lock, ty, caller, pattern, block) in [
            ("0x7f00", "lock", Some("take_gil"), Some("GIL"), 0.5),
            ("0x7f80", "lock", Some("take_gil"), Some("GIL"), 0.25),
            ("0x7f90", "lock", None, None, 0.125),
            ("0x7fa0", "condition", None, None, 9.0),
            ("0x7fb0", "semaphore", None, None, 9.0),
        ] {
            waits.push(user_locks::Row {
                lock: lock.into(),
                ty: ty.into(),
                process: "py\"thon".into(),
                caller: caller.into(),
                pattern: pattern.into(),
                count: Some(3),
                block: Some(block),
                ..Default::default()
            });
        }
        let mut held = throttling::Rows::new();
        held.push(throttling::Row { cgroup: "/job".into(), held: Some(0.5), ..Default::default() });
        let mut groups = cgroup_cpu::Rows::new();
        groups.push(cgroup_cpu::Row { cgroup: "/job".into(), cpu: Some(0.25), ..Default::default() });
        groups.push(cgroup_cpu::Row { cgroup: "/small".into(), cpu: Some(1e-6), ..Default::default() });
        let interval = [rows.finish(), waits.finish(), held.finish(), groups.finish()]
            .into_iter()
            .fold(base, Recording::with);
        metrics.add(&head, &interval, 1).unwrap();
        metrics.add(&head, &interval, 1).unwrap();
        let text = metrics.text(0, true).unwrap();
        for (series, wanted) in [
            (r#"ncpu_process_cpu_seconds_total{process="rustc"}"#, 1.5),
            (r#"ncpu_process_run_queue_wait_seconds_total{process="rustc"}"#, 0.5),
            (r#"ncpu_user_lock_wait_seconds_total{process="py_thon",lock="GIL",how="block"}"#, 1.5),
            (r#"ncpu_user_lock_waits_total{process="py_thon",lock="GIL"}"#, 12.0),
            (r#"ncpu_user_lock_wait_seconds_total{process="py_thon",lock="lock",how="block"}"#, 0.25),
            (r#"ncpu_cgroup_throttled_seconds_total{cgroup="/job"}"#, 1.0),
            (r#"ncpu_cgroup_cpu_seconds_total{cgroup="/job"}"#, 0.5),
            (r#"ncpu_cgroup_cpu_seconds_total{cgroup="others"}"#, 2e-6),
        ] {
            assert_eq!(value(&text, series), Some(wanted), "{series}: {text}");
        }
        assert!(!text.contains("0x7f"), "addresses are of one process's life: {text}");
    }

    #[test]
    fn a_name_that_is_idle_gives_its_place_to_another() {
        let mut metrics = Metrics::new("1.2.3");
        let (head, base) = one(0);
        let mut add = |process: &str, end: f64| {
            let mut rows = threads::Rows::new();
            rows.push(threads::Row { process: process.into(), cpu: Some(0.5), ..Default::default() });
            let head = Head { end, ..head.clone() };
            metrics.add(&head, &base.clone().with(rows.finish()), 1).unwrap();
            metrics.text(0, true).unwrap()
        };
        let mut text = String::new();
        for n in 0..PROCESSES + 10 {
            text = add(&format!("p{n}"), 1000.0 + n as f64);
        }
        let names = |text: &str| text.matches("ncpu_process_cpu_seconds_total{").count();
        assert_eq!(names(&text), PROCESSES + 1);
        let others = r#"ncpu_process_cpu_seconds_total{process="others"}"#;
        assert_eq!(value(&text, others), Some(5.0));
        // Within an hour nobody gives way; p7 is used again.
        let text = add("p7", 1000.0 + 0.9 * IDLE);
        assert_eq!(names(&text), PROCESSES + 1);
        let text = add("new", 1010.0 + IDLE);
        assert_eq!(names(&text), PROCESSES + 1);
        let of = |name: &str| value(&text, &format!("ncpu_process_cpu_seconds_total{{process=\"{name}\"}}"));
        assert_eq!(
            (of("p0"), of("p7"), of("new")),
            (None, Some(1.0), Some(0.5)),
            "the one that is idle longest"
        );
        assert!(!text.contains(r#"run_queue_wait_seconds_total{process="p0"}"#));
    }

    #[test]
    fn names_are_bounded_and_harmless() {
        let mut metrics = Metrics::new("1.2.3");
        let (head, base) = one(0);
        for round in 0..40 {
            let mut rows = locks::Rows::new();
            for lock in 0..100 {
                rows.push(locks::Row {
                    lock: format!("a \"lock\\\n{round} {lock}").as_str().into(),
                    ty: "mutex".into(),
                    process: "x".into(),
                    count: Some(1),
                    spin: Some(0.0),
                    block: Some(1.0 + lock as f64),
                    max: None,
                    time: None,
                    ..Default::default()
                });
            }
            let table: Table = rows.finish();
            metrics.add(&head, &base.clone().with(table), 1).unwrap();
        }
        let text = metrics.text(0, true).unwrap();
        let names = text.lines().filter(|l| l.starts_with("ncpu_lock_waits_total{")).count();
        assert_eq!(names, LOCKS + 1);
        assert!(text.contains(r#"lock="a _lock__0 99""#), "{text}");
        let all: u64 = text
            .lines()
            .filter(|l| l.starts_with("ncpu_lock_waits_total{"))
            .map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(all, 4000, "nothing is left out");
    }
}
