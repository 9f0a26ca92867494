//! `perf`'s syntax for events: `cycles`, `LLC-loads:u`, `r01c2`, `cpu/event=0x3c,umask=1/k`,
//! `power/energy-pkg/`, `uncore_imc/cas_count_read/`, `sched:sched_switch`, `sched:*`.

use glob::Pattern;

use super::format::{config_word, terms};
use super::names::{self, caches, find};
use super::{Class, Encoding, Event, Exclude, Pmu, Sources, Term, Value};
use super::{TYPE_CACHE, TYPE_HARDWARE, TYPE_SOFTWARE, TYPE_TRACEPOINT};
use crate::CpuSet;

/// An event that is unknown or cannot be counted here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event `{event}`: {problem}")]
pub struct EventError {
    /// The requested event.
    pub event: String,
    /// The reason.
    pub problem: Problem,
}

/// Why an event cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It needs a core's PMU, and this machine has none.
    #[error("this machine shows no hardware PMU")]
    NoPmu,
    /// Unknown name.
    #[error("unknown event; `ncpu counters --list` lists all events")]
    Unknown,
    /// Unknown PMU.
    #[error("unknown PMU `{0}`; expected one of {1}")]
    UnknownPmu(String, String),
    /// The PMU lacks this field or event.
    #[error("PMU `{pmu}` has no field or event `{term}`; it has {has}")]
    UnknownTerm {
        /// The PMU.
        pmu: String,
        /// The requested field or event.
        term: String,
        /// The PMU's fields and events.
        has: String,
    },
    /// The value is too large, or not a number.
    #[error("`{0}` must be a number of at most {1:#x}")]
    Value(String, u64),
    /// The field must be given.
    #[error("give a value for `{0}`")]
    Asked(String),
    /// Invalid syntax.
    #[error("expected {0}")]
    Syntax(&'static str),
    /// An unknown modifier.
    #[error(
        "modifier `{0}`: u, k, h, G and H choose what is counted; others are for sampling, which `ncpu run` does"
    )]
    Modifier(char),
    /// Tracepoints are not readable.
    #[error("/sys/kernel/tracing cannot be read: {0}")]
    NoTracepoints(String),
}

impl Sources {
    /// The events of a list separated by commas, in its order. A name with `*` or `?` stands for every
    /// tracepoint that it matches.
    ///
    /// # Errors
    /// The first event that is invalid or cannot be counted on this machine.
    pub fn parse(&self, list: &str) -> Result<Vec<Event>, EventError> {
        let mut events = Vec::new();
        for word in split(list) {
            events.extend(self.event(word).map_err(|problem| EventError { event: word.into(), problem })?);
        }
        Ok(events)
    }

    /// As [`parse`](Sources::parse), but events that only a missing core PMU could count are returned by name
    /// instead.
    ///
    /// # Errors
    /// The first invalid event.
    pub fn parse_present(&self, list: &str) -> Result<(Vec<Event>, Vec<String>), EventError> {
        let (mut events, mut absent) = (Vec::new(), Vec::new());
        for word in split(list) {
            match self.event(word) {
                Ok(found) => events.extend(found),
                Err(Problem::NoPmu) => absent.push(word.to_string()),
                Err(problem) => return Err(EventError { event: word.into(), problem }),
            }
        }
        Ok((events, absent))
    }

    fn event(&self, word: &str) -> Result<Vec<Event>, Problem> {
        if word.is_empty() {
            return Err(Problem::Syntax("a name between commas"));
        }
        if word.contains(['{', '}']) {
            return Err(Problem::Syntax(
                "names without braces: ncpu itself counts in groups what belongs together",
            ));
        }
        if let Some((pmu, rest)) = word.split_once('/') {
            let (fields, modifiers) = rest.rsplit_once('/').ok_or(Problem::Syntax("a second `/`"))?;
            let modifiers = modifiers.strip_prefix(':').unwrap_or(modifiers);
            return Ok(vec![self.of_pmu(word, pmu, fields, exclude(modifiers)?)?]);
        }
        let (name, modifiers) = word.split_once(':').unwrap_or((word, ""));
        match self.named(word, name) {
            Err(Problem::Unknown) if !modifiers.is_empty() => self.tracepoint(word),
            Err(problem) => Err(problem),
            Ok(mut event) => {
                event.exclude = exclude(modifiers)?;
                Ok(vec![event])
            }
        }
    }

    /// Software, generic hardware and cache events, `rNNNN`, and names of a PMU or the model.
    fn named(&self, word: &str, name: &str) -> Result<Event, Problem> {
        if let Some(config) = find(&names::SOFTWARE, name) {
            let clock = names::is_clock(config);
            return Ok(Event {
                unit: clock.then(|| "ms".into()),
                scale: if clock { 1e-6 } else { 1.0 },
                only_in_kernel: names::only_in_kernel(config),
                ..event(word, Class::Software, vec![encoding("software", TYPE_SOFTWARE, config)])
            });
        }
        let generic = find(&names::HARDWARE, name)
            .map(|config| (TYPE_HARDWARE, config))
            .or_else(|| caches().find(|(n, _)| n == name).map(|(_, config)| (TYPE_CACHE, config)));
        if let Some((kind, config)) = generic {
            return Ok(event(word, Class::Core, self.generic(kind, config)?));
        }
        if let Some(code) = name.strip_prefix('r').and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            let of = |pmu: &Pmu| Encoding { cpus: pmu.cpus.clone(), ..encoding(&pmu.name, pmu.kind, code) };
            return match self.cores().map(of).collect::<Vec<_>>() {
                none if none.is_empty() => Err(Problem::NoPmu),
                encodings => Ok(event(word, Class::Core, encodings)),
            };
        }
        // First the names of the cores' own PMUs, then those of the model, then those of all other PMUs.
        let has = |pmu: &&Pmu| pmu.aliases.iter().any(|a| a.name == name);
        if let Some(pmu) = self.cores().find(has) {
            return self.of_pmu(word, &pmu.name, name, Exclude::default());
        }
        if let Some(fields) = self.model.event(name) {
            let pmu = self.known_by().ok_or(Problem::NoPmu)?;
            return self.of_pmu(word, &pmu.name, fields, Exclude::default());
        }
        match self.pmus.iter().find(has) {
            Some(pmu) => self.of_pmu(word, &pmu.name, name, Exclude::default()),
            None => Err(Problem::Unknown),
        }
    }

    /// The PMU that the model's known events belong to: on a hybrid machine the fast cores'.
    pub(super) fn known_by(&self) -> Option<&Pmu> {
        self.pmu("cpu").or_else(|| self.pmu("cpu_core"))
    }

    /// A generic event on every kind of core. With several kinds, the PMU's type goes into the upper half of
    /// `config` (`PERF_PMU_TYPE_SHIFT`).
    pub(super) fn generic(&self, kind: u32, config: u64) -> Result<Vec<Encoding>, Problem> {
        let cores: Vec<_> = self.cores().collect();
        match cores.as_slice() {
            [] => Err(Problem::NoPmu),
            [one] => Ok(vec![Encoding { cpus: one.cpus.clone(), ..encoding(&one.name, kind, config) }]),
            several => Ok(several
                .iter()
                .map(|pmu| Encoding {
                    cpus: pmu.cpus.clone(),
                    ..encoding(&pmu.name, kind, config | u64::from(pmu.kind) << 32)
                })
                .collect()),
        }
    }

    /// `PMU/FIELDS/`, for every instance of the PMU: `uncore_imc` stands for `uncore_imc_0`, `uncore_imc_1`
    /// and so on.
    fn of_pmu(&self, word: &str, name: &str, fields: &str, exclude: Exclude) -> Result<Event, Problem> {
        let pmus: Vec<&Pmu> = self.pmus.iter().filter(|p| is_instance(&p.name, name)).collect();
        let Some(&first) = pmus.first() else {
            if name == "cpu" && self.cores().next().is_none() {
                return Err(Problem::NoPmu);
            }
            let names: Vec<_> = self.pmus.iter().map(|p| p.name.as_str()).collect();
            return Err(Problem::UnknownPmu(name.into(), names.join(", ")));
        };
        let parsed = terms(fields).map_err(|_| Problem::Syntax("fields such as event=0x3c,umask=1"))?;
        if parsed.is_empty() {
            return Err(Problem::Syntax("an event or fields between the `/`"));
        }
        let class = match first.name.as_str() {
            "software" => Class::Software,
            "tracepoint" => Class::Tracepoint,
            _ if first.is_core() => Class::Core,
            _ => Class::Shared,
        };
        let mut out = Event { exclude, ..event(word, class, Vec::new()) };
        for pmu in pmus {
            let mut config = [0; 4];
            fill(pmu, &parsed, &mut config, &mut out)?;
            let cpus: Option<CpuSet> = pmu.cpus.clone().or_else(|| pmu.cpumask.clone());
            out.encodings.push(Encoding { pmu: pmu.name.clone(), kind: pmu.kind, config, cpus });
        }
        Ok(out)
    }

    fn tracepoint(&self, word: &str) -> Result<Vec<Event>, Problem> {
        let tracepoints = self.tracepoints.as_ref().ok_or_else(|| {
            Problem::NoTracepoints(self.no_tracefs.clone().unwrap_or_else(|| "it is not there".into()))
        })?;
        let of = |name: &str, point: &str, id| {
            let encoding = encoding(point, TYPE_TRACEPOINT, id);
            Event { ..event(name, Class::Tracepoint, vec![encoding]) }
        };
        if let Some(&id) = tracepoints.get(word) {
            return Ok(vec![of(word, word, id)]);
        }
        if let Some((point, modifiers)) = word.rsplit_once(':')
            && let Some(&id) = tracepoints.get(point)
        {
            return Ok(vec![Event { exclude: exclude(modifiers)?, ..of(word, point, id) }]);
        }
        let pattern =
            Pattern::new(word).map_err(|_| Problem::Syntax("a pattern of tracepoints such as sched:*"))?;
        let found: Vec<_> = tracepoints
            .iter()
            .filter(|(name, _)| pattern.matches(name))
            .map(|(name, &id)| of(name, name, id))
            .collect();
        if found.is_empty() { Err(Problem::Unknown) } else { Ok(found) }
    }
}

/// Sets the fields of an event; a leading event name of the PMU stands for its fields.
fn fill(pmu: &Pmu, fields: &[Term], config: &mut [u64; 4], out: &mut Event) -> Result<(), Problem> {
    let mut asked: Vec<String> = Vec::new();
    let alias = |term: &Term| pmu.aliases.iter().find(|a| term.value == Value::None && a.name == term.name);
    for alias in fields.iter().filter_map(alias) {
        // A malformed file of the kernel counts as a missing name.
        for term in terms(&alias.terms).map_err(|_| unknown(pmu, &alias.name))? {
            if term.value == Value::Asked {
                asked.push(term.name);
            } else {
                set(pmu, &term, config)?;
            }
        }
        out.unit = alias.unit.clone();
        out.scale = alias.scale.unwrap_or(1.0);
    }
    for term in fields.iter().filter(|t| alias(t).is_none()) {
        match (&term.value, term.name.as_str()) {
            (Value::Word(name), "name") => out.name = name.clone(),
            (Value::Number(name), "name") => out.name = name.to_string(),
            _ => set(pmu, term, config)?,
        }
        asked.retain(|a| *a != term.name);
    }
    asked.into_iter().next().map_or(Ok(()), |term| Err(Problem::Asked(term)))
}

fn set(pmu: &Pmu, term: &Term, config: &mut [u64; 4]) -> Result<(), Problem> {
    let value = |max: u64| match term.value {
        Value::None => Ok(1),
        Value::Number(n) if n <= max => Ok(n),
        _ => Err(Problem::Value(term.name.clone(), max)),
    };
    if let Some(format) = pmu.formats.get(&term.name) {
        format.put(value(format.max())?, config);
    } else if let Some(word) = config_word(&term.name) {
        config[word] = value(u64::MAX)?;
    } else if term.name != "period" {
        // A period is for sampling; the kernel's own names may contain one.
        return Err(unknown(pmu, &term.name));
    }
    Ok(())
}

fn unknown(pmu: &Pmu, term: &str) -> Problem {
    let has: Vec<&str> =
        pmu.formats.keys().map(String::as_str).chain(pmu.aliases.iter().map(|a| a.name.as_str())).collect();
    Problem::UnknownTerm { pmu: pmu.name.clone(), term: term.into(), has: has.join(", ") }
}

fn event(name: &str, class: Class, encodings: Vec<Encoding>) -> Event {
    Event {
        name: name.into(),
        unit: None,
        scale: 1.0,
        exclude: Exclude::default(),
        class,
        only_in_kernel: false,
        encodings,
    }
}

fn encoding(pmu: &str, kind: u32, config: u64) -> Encoding {
    Encoding { pmu: pmu.into(), kind, config: [config, 0, 0, 0], cpus: None }
}

/// Whether a name denotes a PMU: its full name, with or without `uncore_`, and without its number.
fn is_instance(pmu: &str, name: &str) -> bool {
    [pmu, pmu.strip_prefix("uncore_").unwrap_or(pmu)].into_iter().any(|pmu| {
        pmu.strip_prefix(name).is_some_and(|rest| {
            let number = rest.strip_prefix('_').unwrap_or("");
            rest.is_empty() || !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        })
    })
}

/// Splits at commas outside `/…/`.
pub(super) fn split(list: &str) -> Vec<&str> {
    let (mut words, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            '/' => inside = !inside,
            ',' if !inside => {
                words.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(list[start..].trim());
    words
}

fn exclude(modifiers: &str) -> Result<Exclude, Problem> {
    for c in modifiers.chars() {
        if !"ukhGH".contains(c) {
            return Err(Problem::Modifier(c));
        }
    }
    let has = |c: char| modifiers.contains(c);
    let mode = has('u') || has('k') || has('h');
    let guest = has('G') || has('H');
    Ok(Exclude {
        user: mode && !has('u'),
        kernel: mode && !has('k'),
        hv: mode && !has('h'),
        host: guest && !has('H'),
        guest: guest && !has('G'),
    })
}
