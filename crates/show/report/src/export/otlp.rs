//! Profiles as OpenTelemetry has them: `ExportProfilesServiceRequest` of opentelemetry-proto 1.10, package
//! `opentelemetry.proto.collector.profiles.v1development`. That signal is not stable yet: another version may number fields anew.

use std::collections::{BTreeMap, HashMap};

use ncpu_machine::tenant::Place;
use ncpu_record::Recording;
use ncpu_schema::{Error, StackKind, summary, tenant_names, threads};

use super::wire::Message;
use super::words::{Function, KERNEL_FILE, NO_FILE, Words, nanoseconds};
use super::{Kinds, OTHERS, Parts, sums};

/// Samples of a thread's name and of the reason to be off CPU.
const THREAD: &str = "thread.name";
const WAIT: &str = "ncpu.wait";

/// A value of a profile: its type and unit, and where a stack has it.
type Value = (&'static str, &'static str, fn(&Kinds) -> u64);

/// The profiles of a process, the one that a viewer shows first before all others.
const VALUES: [Value; 4] = [
    ("cpu", "nanoseconds", |kinds| nanoseconds(at(kinds, StackKind::OnCpu).0 + at(kinds, StackKind::Spin).0)),
    ("spin", "nanoseconds", |kinds| nanoseconds(at(kinds, StackKind::Spin).0)),
    ("off_cpu", "nanoseconds", |kinds| nanoseconds(at(kinds, StackKind::OffCpu).0)),
    ("samples", "count", |kinds| {
        let samples = at(kinds, StackKind::OnCpu).1.saturating_add(at(kinds, StackKind::Spin).1);
        samples.min(i64::MAX as u64)
    }),
];

fn at(kinds: &Kinds, kind: StackKind) -> (f64, u64) {
    kinds[kind as usize]
}

/// Tables that all profiles of a message share, but for words. The first entry of each is empty: 0 stands for none.
#[derive(Default)]
struct Dictionary<'a> {
    words: Words<'a>,
    stacks: HashMap<Vec<u64>, u64>,
    stack_order: Vec<Vec<u64>>,
    locations: HashMap<Function<'a>, u64>,
    functions: Vec<Function<'a>>,
    attributes: HashMap<(&'a str, &'a str), u64>,
    attribute_order: Vec<(&'a str, &'a str)>,
}

impl<'a> Dictionary<'a> {
    fn new() -> Dictionary<'a> {
        let mut dictionary = Dictionary::default();
        dictionary.words.number("");
        dictionary
    }

    /// The number of a stack.
    fn stack(&mut self, parts: &Parts<'a>) -> u64 {
        let mut locations: Vec<u64> = parts
            .with_files()
            .map(|frame| {
                let function = Function::of(frame);
                let functions = &mut self.functions;
                // A function has one place: there are no addresses.
                *self.locations.entry(function).or_insert_with(|| {
                    functions.push(function);
                    functions.len() as u64
                })
            })
            .collect();
        locations.reverse();
        if let Some(number) = self.stacks.get(&locations) {
            return *number;
        }
        self.stack_order.push(locations.clone());
        let number = self.stack_order.len() as u64;
        self.stacks.insert(locations, number);
        number
    }

    /// The number of an attribute.
    fn attribute(&mut self, key: &'a str, value: &'a str) -> u64 {
        let order = &mut self.attribute_order;
        *self.attributes.entry((key, value)).or_insert_with(|| {
            order.push((key, value));
            order.len() as u64
        })
    }

    /// The message `ValueType`.
    fn value_type(&mut self, ty: &'a str, unit: &'a str) -> Message {
        Message::default().int(1, self.words.number(ty)).int(2, self.words.number(unit))
    }

    /// The message `ProfilesDictionary`.
    fn message(mut self) -> Message {
        let empty = Message::default;
        let mut out = empty().message(1, empty()).message(2, empty()).message(3, empty());
        let mut mappings: HashMap<&str, u64> = HashMap::new();
        for function in &self.functions {
            let next = mappings.len() as u64 + 1;
            if function.binary != NO_FILE && *mappings.entry(function.binary).or_insert(next) == next {
                out = out.message(1, empty().int(4, self.words.number(function.binary)));
            }
        }
        // One name in several files of code is one function.
        let mut functions: HashMap<(&str, &str), u64> = HashMap::new();
        let kernel = self.functions.iter().any(|function| function.binary == KERNEL_FILE);
        let kernel = kernel.then(|| self.attribute("profile.frame.type", "kernel"));
        for Function { name, binary, source } in &self.functions {
            let (file, at) = source.unwrap_or_default();
            let next = functions.len() as u64 + 1;
            let id = *functions.entry((name, file)).or_insert(next);
            if id == next {
                out = out.message(3, empty().int(1, self.words.number(name)).int(3, self.words.number(file)));
            }
            let line = empty().int(1, id).int(2, at.min(i64::MAX as u64));
            let mapping = mappings.get(binary).copied().unwrap_or(0);
            let mut location = empty().int(1, mapping).message(3, line);
            if let Some(attribute) = kernel.filter(|_| *binary == KERNEL_FILE) {
                location = location.ints(4, [attribute]);
            }
            out = out.message(2, location);
        }
        out = out.message(4, empty()).message(6, empty());
        for (key, value) in &self.attribute_order {
            out = out.message(6, empty().int(1, self.words.number(key)).message(2, text(value)));
        }
        out = out.message(7, empty());
        for locations in self.stack_order {
            out = out.message(7, empty().ints(1, locations));
        }
        for word in self.words.all {
            out = out.text(5, word);
        }
        out
    }
}

/// The message `AnyValue` of a text.
fn text(value: &str) -> Message {
    Message::default().text(1, value)
}

/// Facts about the processes of a name that a recording holds.
#[derive(Default)]
struct Known<'a> {
    /// Numbers of processes. Two are enough to know that it is not one.
    pids: Vec<u64>,
    /// Control groups.
    places: Vec<Place>,
    /// Pods: namespace and name.
    pods: Vec<(&'a str, &'a str)>,
}

impl<'a> Known<'a> {
    /// By the name of the process.
    fn read(recording: &'a Recording) -> Result<HashMap<&'a str, Known<'a>>, Error> {
        let mut all: HashMap<&str, Known<'_>> = HashMap::new();
        if let Some(table) = threads::Reader::open(recording)? {
            for row in table.rows() {
                let (Some(process), Some(pid)) = (table.process.get(row), table.pid.get(row)) else {
                    continue;
                };
                let known = all.entry(process).or_default();
                if known.pids.len() < 2 && !known.pids.contains(&pid) {
                    known.pids.push(pid);
                }
            }
        }
        if let Some(table) = tenant_names::Reader::open(recording)? {
            for row in table.rows().filter(|&row| table.tenant.get(row) >= Some(ncpu_record::tenants::FIRST))
            {
                let Some(program) = table.program.get(row) else { continue };
                let known = all.entry(program).or_default();
                known.places.push(Place::parse(table.cgroup.get(row).unwrap_or_default()));
                known.pods.push(table.pod.get(row).and_then(|pod| pod.split_once('/')).unwrap_or_default());
            }
        }
        Ok(all)
    }

    /// The attribute that is the same for all control groups.
    fn common<'p, T: PartialEq>(places: &'p [T], part: impl Fn(&'p T) -> Option<&'p str>) -> Option<&'p str> {
        let first = part(places.first()?).filter(|word| !word.is_empty())?;
        places.iter().all(|place| part(place) == Some(first)).then_some(first)
    }
}

/// The message `Resource`: the machine, the process, its container and pod. A process without a name is one of many. An attribute
/// that is not the same for all processes of the name is left out.
fn resource(recording: &Recording, process: Option<&str>, known: &Known<'_>) -> Message {
    let mut attributes = Vec::new();
    let mut put = |key: &str, value: Message| {
        attributes.push(Message::default().text(1, key).message(2, value));
    };
    let manifest = &recording.manifest;
    if !manifest.host.is_empty() {
        put("host.name", text(&manifest.host));
    }
    put("os.type", text("linux"));
    if let Some(process) = process {
        put("process.executable.name", text(process));
        if let [pid] = known.pids[..] {
            put("process.pid", Message::default().int(3, pid));
            // The kernel keeps 15 bytes of a name.
            let name = manifest.command.first().map(|path| path.rsplit('/').next().unwrap_or(path));
            if name.is_some_and(|name| name.as_bytes().iter().take(15).eq(process.as_bytes())) {
                let arguments = manifest.command.iter();
                let values = arguments.fold(Message::default(), |all, word| all.message(1, text(word)));
                put("process.command_args", Message::default().message(5, values));
            }
        }
    }
    let container = Known::common(&known.places, |place| place.container.as_ref().map(|c| c.id.as_str()));
    if let Some(id) = container {
        put("container.id", text(id));
    }
    if let Some(uid) = Known::common(&known.places, |place| place.pod.as_deref()) {
        put("k8s.pod.uid", text(uid));
    }
    let pod = known.pods.first().filter(|first| known.pods.iter().all(|pod| pod == *first));
    if let Some((namespace, name)) = pod.filter(|(namespace, _)| !namespace.is_empty()) {
        put("k8s.namespace.name", text(namespace));
        put("k8s.pod.name", text(name));
    }
    attributes.into_iter().fold(Message::default(), |all, one| all.message(1, one))
}

/// The stacks of a recording: for each process profiles of the time on CPU, the part of it spinning in kernel locks, the time
/// off CPU, and timer samples. The samples sum to what [`pprof`](super::pprof) writes. Off CPU the leaf is the function that waits.
///
/// # Errors
/// A table is not as the schema has it.
pub fn otlp(recording: &Recording) -> Result<Vec<u8>, Error> {
    let stacks = sums(recording)?;
    let summary = summary::Reader::open(recording)?;
    let elapsed = summary.as_ref().and_then(|s| s.elapsed.get(0)).unwrap_or(0.0);
    let hz = summary.as_ref().and_then(|s| s.hz.get(0)).unwrap_or(0);
    let known = Known::read(recording)?;

    let mut processes: BTreeMap<&str, Vec<(&Parts<'_>, &Kinds)>> = BTreeMap::new();
    for (parts, kinds) in &stacks {
        processes.entry(parts.process).or_default().push((parts, kinds));
    }
    // The busiest first: of the first profile viewers show.
    let mut order: Vec<_> = processes.into_iter().collect();
    let total = |stacks: &[(&Parts<'_>, &Kinds)], value: usize| -> u128 {
        stacks.iter().map(|(_, kinds)| u128::from(VALUES[value].2(kinds))).sum()
    };
    order.sort_by_cached_key(|(_, stacks)| std::cmp::Reverse((total(stacks, 0), total(stacks, 2))));

    let mut dictionary = Dictionary::new();
    let mut out = Message::default();
    for (process, stacks) in order {
        let scope = Message::default().text(1, "ncpu").text(2, env!("CARGO_PKG_VERSION"));
        let mut profiles = Message::default().message(1, scope);
        for (ty, unit, value) in VALUES {
            let mut profile = Message::default().message(1, dictionary.value_type(ty, unit));
            let mut any = false;
            for (parts, kinds) in &stacks {
                let value = value(kinds);
                if value == 0 {
                    continue;
                }
                any = true;
                let thread = Some((THREAD, parts.thread)).filter(|_| parts.thread != OTHERS);
                let wait = parts.wait.filter(|_| ty == "off_cpu").map(|wait| (WAIT, wait));
                let attributes = [thread, wait].into_iter().flatten();
                let attributes: Vec<u64> =
                    attributes.map(|(key, value)| dictionary.attribute(key, value)).collect();
                let sample = Message::default().int(1, dictionary.stack(parts)).ints(2, attributes);
                profile = profile.message(2, sample.ints(4, [value]));
            }
            if !any {
                continue;
            }
            profile =
                profile.fixed64(3, nanoseconds(recording.manifest.created_unix)).int(4, nanoseconds(elapsed));
            if matches!(ty, "cpu" | "samples") {
                let period = 1_000_000_000u64.checked_div(hz).unwrap_or(0);
                profile = profile.message(5, dictionary.value_type("cpu", "nanoseconds")).int(6, period);
            }
            profiles = profiles.message(2, profile);
        }
        let name = Some(process).filter(|process| *process != OTHERS && !process.is_empty());
        let none = Known::default();
        let known = name.and_then(|name| known.get(name)).unwrap_or(&none);
        let resource = resource(recording, name, known);
        out = out.message(1, Message::default().message(1, resource).message(2, profiles));
    }
    Ok(out.message(2, dictionary.message()).finish())
}
