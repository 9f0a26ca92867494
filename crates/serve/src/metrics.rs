//! What Prometheus reads: sums since the beginning, of few and bounded names.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;

use ncpu_feed::Head;
use ncpu_record::Recording;
use ncpu_schema::{Counter as Event, Error, Layer, drops, events, locks, memory_change, pressure, summary};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::bands;

/// A time that counts up.
type Seconds = Counter<f64, AtomicU64>;
/// A value.
type Value = Gauge<f64, AtomicU64>;
type Labels = Vec<(&'static str, String)>;

/// Locks that have a name of their own, over all time: those of most waiting in an interval, as they come. The waiting for
/// all others is told together.
const LOCKS: usize = 50;
/// Of an interval so many may get a name, if their waiting is so much of capacity.
const NEW_LOCKS: usize = 5;
const WORTH_A_NAME: f64 = 1e-4;
/// Classes of memory, events that are dropped, resources: far more than there are.
const NAMES: usize = 100;
/// Characters of a name.
const LONGEST: usize = 80;

/// The waiting for locks without a name.
const OTHERS: &str = "others";

/// All of them.
pub struct Metrics {
    registry: Registry,
    layers: Family<Labels, Seconds>,
    capacity: Seconds,
    cpus: Value,
    locks: Family<Labels, Seconds>,
    named: HashSet<String>,
    waits: Family<Labels, Counter>,
    events: Family<Labels, Counter>,
    run_queue: Seconds,
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
            named: HashSet::new(),
            waits: metric!("lock_waits", "Contended acquisitions of kernel locks"),
            events: metric!("events", "Shootdowns, interrupts, switches"),
            run_queue: metric!("run_queue_wait", "Time that threads stood on run queues", Seconds),
            memory: metric!("memory", "Memory by class, as in /proc/meminfo", Bytes),
            pressure: metric!(
                "pressure_stall",
                "Time in which some or all tasks stood still for a resource",
                Seconds
            ),
            drops: metric!("dropped_events", "What was not counted, for want of room"),
            own_cpu: metric!("own_cpu", "CPU time of ncpu itself, by process", Seconds),
            own_memory: metric!("own_resident_memory", "Resident memory of ncpu itself, by process", Bytes),
            intervals: metric!("intervals", "Intervals that were observed"),
            lost: metric!("lost_intervals", "Intervals that were not taken in time"),
            newest: metric!("newest_interval_timestamp", "End of the newest interval, since 1970", Seconds),
            held: metric!("held_intervals", "Intervals whose tables are held"),
            requests: metric!("http_requests", "Requests, by the kind of answer"),
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
        self.add_locks(interval, capacity)?;
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

    fn add_locks(&mut self, interval: &Recording, capacity: f64) -> Result<(), Error> {
        let Some(table) = locks::Reader::open(interval)? else { return Ok(()) };
        let mut sums: std::collections::HashMap<&str, (f64, f64, u64)> = std::collections::HashMap::new();
        for row in table.rows() {
            let sum = sums.entry(table.lock.get(row).unwrap_or("")).or_default();
            sum.0 += table.spin.get(row).unwrap_or(0.0).max(0.0);
            sum.1 += table.block.get(row).unwrap_or(0.0).max(0.0);
            sum.2 += table.count.get(row).unwrap_or(0);
        }
        let mut order: Vec<_> = sums.into_iter().collect();
        order.sort_by(|(_, a), (_, b)| (b.0 + b.1).total_cmp(&(a.0 + a.1)));
        for (i, (lock, (spin, block, waits))) in order.into_iter().enumerate() {
            let lock = name(lock);
            let worth = i < NEW_LOCKS && self.named.len() < LOCKS && spin + block >= WORTH_A_NAME * capacity;
            if worth && !lock.is_empty() {
                self.named.insert(lock.clone());
            }
            let lock = if self.named.contains(&lock) { lock } else { OTHERS.into() };
            let of = |how: &str| vec![("lock", lock.clone()), ("how", how.to_owned())];
            self.locks.get_or_create(&of("spin")).inc_by(spin);
            self.locks.get_or_create(&of("block")).inc_by(block);
            self.waits.get_or_create(&vec![("lock", lock)]).inc_by(waits);
        }
        Ok(())
    }

    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        let class = ["1xx", "2xx", "3xx", "4xx", "5xx"][usize::from(status / 100).clamp(1, 5) - 1];
        self.requests.get_or_create(&vec![("answer", class.to_owned())]).inc();
    }

    /// What Prometheus is given: OpenMetrics, or the older format where that is not asked for.
    ///
    /// # Errors
    /// A name cannot be written.
    pub fn text(&self, connections: usize, open: bool) -> Result<String, std::fmt::Error> {
        self.connections.set(connections as f64);
        let (cpu, resident) = ncpu_feed::own();
        let server = vec![("process", "server".to_owned())];
        upto(&self.own_cpu.get_or_create(&server), cpu);
        self.own_memory.get_or_create(&server).set(resident as f64);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(if open { text } else { classic(&text) })
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

/// A label: short, and without what has a meaning in the format.
fn name(text: &str) -> String {
    let plain = |c: char| if c.is_control() || matches!(c, '"' | '\\') { '_' } else { c };
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
