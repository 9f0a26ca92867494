//! The rule book: what may be wrong, by entries of data files. An entry names the evidence that it needs, its words, its
//! remedy, its grounds and sources, and an example with a look-alike (docs/causes.md).

mod names;
mod when;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ncpu_schema::Layer;
use ncpu_table::{place, safe};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use names::Names;
pub use when::When;

/// The entries that ncpu brings.
const OWN: [&str; 18] = [
    include_str!("locks.toml"),
    include_str!("user-code.toml"),
    include_str!("call-patterns.toml"),
    include_str!("runtimes.toml"),
    include_str!("libraries.toml"),
    include_str!("standard-libraries.toml"),
    include_str!("limits-and-waits.toml"),
    include_str!("late.toml"),
    include_str!("arithmetic.toml"),
    include_str!("scripts.toml"),
    include_str!("structures.toml"),
    include_str!("kernel-locks.toml"),
    include_str!("calls.toml"),
    include_str!("memory.toml"),
    include_str!("interrupts.toml"),
    include_str!("waiting.toml"),
    include_str!("programs.toml"),
    include_str!("databases.toml"),
];

/// The most bytes of a text of an entry.
const LONGEST: usize = 600;

/// The object of a remedy's change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The program, or the number of its threads and processes.
    #[default]
    Program,
    /// How the program runs: priorities, CPUs it may use.
    Settings,
    /// The machine, its limits and its kernel.
    Machine,
}

/// Rows by table, of an example. Columns that are not named are null, except times. `copies = N` repeats a row, and
/// `step = ["tid"]` counts those columns up.
pub type Tables = BTreeMap<String, Vec<toml::Table>>;

/// An entry of the rule book.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cause {
    /// By which programs know it.
    pub id: String,
    /// Layers that it explains.
    #[serde(deserialize_with = "layers")]
    pub layers: Vec<Layer>,
    /// The evidence that it needs.
    pub when: When,
    /// Whole words of the lock, call or function in that evidence, `ep_*` for a beginning; empty fits any.
    #[serde(default)]
    pub names: Vec<String>,
    /// The object of the change.
    #[serde(default)]
    pub change: Change,
    /// The problem and the remedy, with `{FIELD}` for a figure or name of the evidence and `{command}`.
    pub advice: String,
    /// A command that shows more, or that is the remedy.
    pub command: Option<String>,
    /// The name of the cause in the list above the layers; an entry without one gives advice to its layers alone.
    pub title: Option<String>,
    /// The problem in a sentence for readers who see a report for the first time.
    pub sentence: Option<String>,
    /// How particular it is, from 0 to 100: seconds that several causes claim go to the highest.
    #[serde(default = "rank")]
    pub rank: u8,
    /// The part of its time that its remedy spares at least, where that is another way to do the same: the lower end of the gain.
    #[serde(default = "all")]
    pub spares: f64,
    /// Whether its remedy has other threads do the work, which spares none of it.
    #[serde(default)]
    pub moves: bool,
    /// The grounds.
    pub why: String,
    /// Where the grounds are from.
    pub sources: Vec<String>,
    /// A recording that has the cause.
    pub example: Option<Tables>,
    /// A recording like it that has not.
    pub look_alike: Option<Tables>,
}

/// A remedy, as a report prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The entry of the rule book.
    pub id: String,
    /// The object of the change.
    pub change: Change,
    /// The problem and the remedy.
    pub words: String,
    /// A command that shows more, or that is the remedy.
    pub command: Option<String>,
}

/// An error in a file of entries, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {what}")]
pub struct BadCauses {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The error.
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cause: Vec<Spanned<Cause>>,
}

/// The part that is spared where an entry names none.
const fn all() -> f64 {
    1.0
}

/// The rank of an entry that names none.
const fn rank() -> u8 {
    50
}

/// Figures of a cause that its title and sentence may hold, whatever its evidence: its part of capacity, CPU-seconds, and
/// thread-seconds waited.
const FIGURES: [&str; 3] = ["share", "seconds", "waited"];

/// Names of layers.
fn layers<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Layer>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let layer = |name: &String| {
        let all = || Layer::ALL.iter().map(|layer| layer.name()).collect::<Vec<_>>().join(", ");
        let unknown = || format!("unknown layer `{}`; expected one of: {}", name.escape_debug(), all());
        Layer::of_name(name).map_err(|_| serde::de::Error::custom(unknown()))
    };
    if names.is_empty() {
        return Err(serde::de::Error::custom("an entry explains one layer or more"));
    }
    names.iter().map(layer).collect()
}

/// Entries in the order in which they are looked up.
#[derive(Clone, Debug)]
pub struct Causes {
    list: Vec<Cause>,
    /// How many of them are the user's.
    users: usize,
    names: Names,
}

impl Default for Causes {
    fn default() -> Causes {
        // A test reads them.
        let own = OWN.iter().filter_map(|text| read(text).ok());
        Causes::new(own.flatten().collect(), 0)
    }
}

static CURRENT: OnceLock<Causes> = OnceLock::new();

/// The rule book of this process: that of [`install`], else the one that ncpu brings.
pub fn current() -> &'static Causes {
    CURRENT.get_or_init(Causes::default)
}

/// Has reports of this process use a rule book. It is chosen before the first report; a later choice has no effect.
pub fn install(causes: Causes) {
    let _ = CURRENT.set(causes);
}

impl Causes {
    /// The rule book that ncpu brings with the entries of users' files before it. An entry with the id of an earlier one
    /// replaces it.
    ///
    /// # Errors
    /// An entry that cannot be understood, with the place of its file among `texts`.
    pub fn with<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Causes, (usize, BadCauses)> {
        let mut users: Vec<Cause> = Vec::new();
        for (at, text) in texts.into_iter().enumerate() {
            let new = read(text).map_err(|bad| (at, bad))?;
            users.retain(|cause| new.iter().all(|n| n.id != cause.id));
            users.extend(new);
        }
        let count = users.len();
        let own = Causes::default().list;
        users.extend(
            own.into_iter()
                .filter(|cause| users[..count].iter().all(|u| u.id != cause.id))
                .collect::<Vec<_>>(),
        );
        Ok(Causes::new(users, count))
    }

    fn new(list: Vec<Cause>, users: usize) -> Causes {
        Causes { names: Names::of(&list), list, users }
    }

    /// The entries that name a subject.
    fn fitting(&self, subject: &str) -> impl Iterator<Item = &Cause> {
        self.names.fitting(subject).into_iter().map(|at| &self.list[at])
    }

    /// The entries, the user's first.
    pub fn list(&self) -> &[Cause] {
        &self.list
    }

    /// Whether an entry is the user's.
    pub fn is_users(&self, cause: &Cause) -> bool {
        self.list[..self.users].iter().any(|users| users.id == cause.id)
    }

    /// The entry that names what the evidence is of.
    pub(crate) fn named(&self, layer: Layer, when: When, subject: &str) -> Option<&Cause> {
        self.fitting(subject).find(|c| c.explains(layer, when))
    }

    /// The rank of an entry; 0 of one that is not there.
    pub(crate) fn rank(&self, id: &str) -> u8 {
        self.list.iter().find(|cause| cause.id == id).map_or(0, |cause| cause.rank)
    }

    /// The entry for a cause in the list above the layers: for the first of this evidence one that names what it is of, else
    /// one that asks for no name.
    pub(crate) fn finding(&self, when: &[When], subject: &str) -> Option<&Cause> {
        let listed = |when: When| move |c: &&Cause| c.when == when && c.title.is_some();
        let fitting: Vec<&Cause> = self.fitting(subject).collect();
        let any = || self.list.iter().filter(|c| c.names.is_empty());
        when.iter()
            .find_map(|&when| fitting.iter().copied().find(listed(when)))
            .or_else(|| when.iter().rev().find_map(|&when| any().find(listed(when))))
    }

    /// The entry for evidence: one that names what it is of, else one that asks for no name.
    pub(crate) fn of(&self, layer: Layer, when: When, subject: &str) -> Option<&Cause> {
        let any = || self.list.iter().find(|c| c.explains(layer, when) && c.names.is_empty());
        self.named(layer, when, subject).or_else(any)
    }
}

impl Cause {
    fn explains(&self, layer: Layer, when: When) -> bool {
        self.when == when && self.layers.contains(&layer)
    }

    /// The advice with the names and figures of the evidence.
    pub(crate) fn advice(&self, fields: &[(&str, &str)]) -> Advice {
        let command = self.command.as_ref().map(|command| fill(command, fields));
        let quoted = command.as_ref().map(|command| format!("`{command}`"));
        let fields: Vec<_> =
            fields.iter().copied().chain(quoted.as_deref().map(|c| ("command", c))).collect();
        Advice { id: self.id.clone(), change: self.change, words: fill(&self.advice, &fields), command }
    }

    /// A text of the entry with the names and figures of the evidence.
    pub(crate) fn words(&self, text: &str, fields: &[(&str, &str)]) -> String {
        fill(text, fields)
    }

    fn check(&self) -> Result<(), String> {
        let id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !(2..=40).contains(&self.id.len()) || !self.id.chars().all(id) {
            return Err(format!(
                "invalid id \"{}\"; expected 2 to 40 of a-z, 0-9 and -",
                self.id.escape_debug()
            ));
        }
        let texts = [&self.advice, &self.why]
            .into_iter()
            .chain(&self.command)
            .chain(&self.title)
            .chain(&self.sentence)
            .chain(&self.sources)
            .chain(&self.names);
        for text in texts {
            if text.trim().is_empty() || text.len() > LONGEST {
                return Err(format!(
                    "a text of {} bytes in \"{}\"; expected 1 to {LONGEST}",
                    text.len(),
                    self.id
                ));
            }
            if text.chars().any(safe::is_unsafe) {
                return Err(format!("a control character in \"{}\"", self.id));
            }
        }
        if let Some(name) = self.names.iter().find(|name| name.trim_end_matches('*').len() < 2) {
            return Err(format!("the name \"{name}\" is too short to be found by: 2 characters"));
        }
        if !self.names.is_empty() && !self.when.is_named() {
            return Err(format!("evidence `{}` has no name to compare `names` with", self.when.word()));
        }
        let known = self.when.fields();
        let command = self.command.iter().map(|_| "command");
        if self.title.is_some() != self.sentence.is_some() {
            return Err(format!("\"{}\" has one of title and sentence; expected both or none", self.id));
        }
        if !(0.0..=1.0).contains(&self.spares) {
            return Err(format!("spares = {} in \"{}\"; expected 0 to 1", self.spares, self.id));
        }
        if self.rank > 100 {
            return Err(format!("rank = {} in \"{}\"; expected 0 to 100", self.rank, self.id));
        }
        let figures = || self.title.iter().flat_map(|_| FIGURES);
        let of_advice: Vec<&str> = known.iter().copied().chain(command).chain(figures()).collect();
        let of_title: Vec<&str> = known.iter().copied().chain(figures()).collect();
        let texts = [(&self.advice, of_advice)]
            .into_iter()
            .chain(self.title.iter().chain(&self.sentence).map(|text| (text, of_title.clone())));
        let commands = self.command.iter().map(|text| (text, known.to_vec()));
        for (text, known) in texts.into_iter().chain(commands) {
            if let Some(field) = fields(text).find(|field| !known.contains(field)) {
                let known: Vec<String> = known.iter().map(|field| format!("{{{field}}}")).collect();
                let there = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(format!("unknown field {{{}}}; expected one of: {there}", field.escape_debug()));
            }
        }
        Ok(())
    }
}

/// Reads entries.
fn read(text: &str) -> Result<Vec<Cause>, BadCauses> {
    let bad = |at: Option<usize>, what: String| {
        let (line, column) = place(text, at.unwrap_or(0));
        BadCauses { line, column, what }
    };
    let file: File = toml::from_str(text)
        .map_err(|e| bad(e.span().map(|at| at.start), safe::line(e.message().trim()).into_owned()))?;
    let mut out: Vec<Cause> = Vec::new();
    for cause in file.cause {
        let at = Some(cause.span().start);
        let cause = cause.into_inner();
        cause.check().map_err(|what| bad(at, what))?;
        if out.iter().any(|other| other.id == cause.id) {
            return Err(bad(at, format!("the id \"{}\" is that of an earlier entry", cause.id)));
        }
        out.push(cause);
    }
    Ok(out)
}

/// Fields that a text names.
fn fields(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(field, _)| field))
}

/// A text with its fields replaced. Values may hold braces of their own.
fn fill(text: &str, fields: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        match after.split_once('}') {
            Some((field, after)) => {
                let value = fields.iter().find(|(name, _)| *name == field).map_or("", |(_, value)| value);
                out.push_str(value);
                rest = after;
            }
            None => {
                out.push('{');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests;
