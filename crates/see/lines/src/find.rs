//! Finds words that share a line, and ranks the severity.

use std::collections::BTreeMap;

use crate::dwarf::Language;
use crate::elf::Storage;
use crate::kind::Kind;
use crate::types::{Decl, Flat, Word, element_size};

/// Maximum number of words that are examined in a line.
const MAX_WORDS: usize = 64;
/// Maximum number of variables before a line that are checked for reaching into it, in case variables
/// overlap.
const MAX_BACK: usize = 256;

/// How words share a line, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sharing {
    /// Two or more locks or atomics.
    Locks,
    /// Elements of an array with locks or atomics: users of neighbouring elements disturb each other.
    HotArray,
    /// A lock or atomic beside counters.
    LockCounters,
    /// Two or more counters.
    Counters,
    /// Elements of an array of counters.
    CounterArray,
    /// A lock or atomic beside mostly read data.
    LockReads,
    /// A lock or atomic beside other data, which it may guard.
    LockData,
    /// A counter beside other data, or only data.
    Data,
}

impl Sharing {
    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Sharing::Locks => "locks",
            Sharing::HotArray => "lock-array",
            Sharing::LockCounters => "lock+counters",
            Sharing::Counters => "counters",
            Sharing::CounterArray => "counter-array",
            Sharing::LockReads => "lock+reads",
            Sharing::LockData => "lock+data",
            Sharing::Data => "data",
        }
    }

    /// Whether it is reported by default: a lock beside the data that it guards is good practice without
    /// contention.
    pub fn is_likely(self) -> bool {
        self < Sharing::LockData
    }
}

/// The container of a finding's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Variables, at known addresses.
    Variables(Storage),
    /// A struct; applies to every object that starts on a line.
    Struct,
}

/// A word of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Name of the variable and members.
    pub name: String,
    /// Address, or offset in the struct.
    pub address: u64,
    /// Size in bytes; for an array, of the whole array.
    pub size: u64,
    /// Purpose of the word.
    pub kind: Kind,
    /// Type, if known.
    pub ty: Option<String>,
    /// Section, for variables.
    pub section: Option<String>,
    /// Declaration in the source.
    pub decl: Option<Decl>,
}

/// Words that share a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How the words share the line.
    pub sharing: Sharing,
    /// The container of the words.
    pub place: Place,
    /// Name of the struct or array; empty for separate variables.
    pub name: String,
    /// Address of the line, or its offset in the struct.
    pub line: u64,
    /// The words, by address.
    pub words: Vec<Shared>,
    /// Number of locks, atomics and counters among them.
    pub hot: u64,
    /// For arrays: bytes from element to element, and the number of elements.
    pub array: Option<(u64, u64)>,
    /// Bytes of padding that separate the words; for a struct, per object.
    pub cost: u64,
    /// The source change that separates the words.
    pub fix: String,
    /// Declaration of the struct, the array or the first hot word.
    pub decl: Option<Decl>,
}

/// Memory of findings, in bytes.
pub fn bytes(found: &[Finding]) -> u64 {
    let bytes = |finding: &Finding| {
        let words = finding.words.iter().map(|word| size_of::<Shared>() + word.name.len() + 32);
        size_of::<Finding>() + finding.name.len() + finding.fix.len() + words.sum::<usize>()
    };
    found.iter().map(bytes).sum::<usize>() as u64
}

/// A variable with its words.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub name: String,
    pub address: u64,
    pub size: u64,
    pub section: String,
    pub storage: Storage,
    pub decl: Option<Decl>,
    pub language: Language,
    pub kernel: bool,
    /// Relative to `address`; each `path` is relative to the variable's name.
    pub words: Vec<Word>,
}

impl Variable {
    pub fn shared(&self, word: &Word) -> Shared {
        let dot = if word.path.is_empty() || word.path.starts_with('[') { "" } else { "." };
        Shared {
            name: format!("{}{dot}{}", self.name, word.path),
            address: self.address.saturating_add(word.offset),
            size: word.size,
            kind: word.kind,
            ty: (!word.ty.is_empty()).then(|| word.ty.to_string()),
            section: Some(self.section.clone()),
            decl: if word.path.is_empty() {
                self.decl.clone()
            } else {
                word.decl.clone().or(self.decl.clone())
            },
        }
    }
}

/// Finds lines shared by several variables, and arrays whose elements share lines.
///
/// `keep` returns whether findings may be kept; if not, the search stops.
pub(crate) fn in_variables(
    variables: &mut [Variable],
    line: u64,
    keep: &mut dyn FnMut(&[Finding]) -> bool,
) -> Vec<Finding> {
    variables.sort_by(|a, b| (a.storage, a.address, &a.name).cmp(&(b.storage, b.address, &b.name)));
    let mut findings = Vec::new();
    for group in variables.chunk_by(|a, b| a.storage == b.storage) {
        // The furthest end of any variable up to here, so that the backward search can stop.
        let mut reach = Vec::with_capacity(group.len());
        let mut furthest = 0;
        for v in group {
            furthest = v.address.saturating_add(v.size).max(furthest);
            reach.push(furthest);
        }
        let mut lines = BTreeMap::new();
        for (i, v) in group.iter().enumerate() {
            // Keeping all words of all lines would take too much memory. So only lines with locks, atomics or
            // counters are kept, and the first line of each variable, which it may share with another
            // variable.
            for word in v.words.iter().filter(|w| w.kind <= Kind::Counter && w.array.is_none()) {
                let start = v.address.saturating_add(word.offset);
                let last = start.saturating_add(word.size.max(1) - 1);
                lines.entry(start / line * line).or_insert(i);
                lines.entry(last / line * line).or_insert(i);
            }
            lines.entry(v.address / line * line).or_insert(i);
            let arrays: Vec<_> = v.words.iter().filter_map(|word| array(v, word, line)).collect();
            if !keep(&arrays) {
                return findings;
            }
            findings.extend(arrays);
        }
        for (&at, &first) in &lines {
            let found = shared_line(group, &reach, at, first, line);
            if !keep(found.as_slice()) {
                return findings;
            }
            findings.extend(found);
        }
    }
    findings
}

/// The finding of one line, if several variables share it; `near` is the index of one of them.
fn shared_line(group: &[Variable], reach: &[u64], at: u64, near: usize, line: u64) -> Option<Finding> {
    let end = at.checked_add(line)?;
    let mut first = near;
    while first > 0 && near - first < MAX_BACK && reach[first - 1] > at {
        first -= 1;
    }
    let mut words: Vec<(usize, &Variable, &Word)> = Vec::new();
    for (i, v) in group.iter().enumerate().skip(first).take_while(|(_, v)| v.address < end) {
        if v.address.saturating_add(v.size) <= at {
            continue;
        }
        let inside = v.words.iter().filter(|w| {
            let start = v.address.saturating_add(w.offset);
            start < end && start.saturating_add(w.size) > at
        });
        words.extend(inside.take(MAX_WORDS - words.len()).map(|w| (i, v, w)));
        if words.len() == MAX_WORDS {
            break;
        }
    }
    let owners = |wanted: &dyn Fn(Kind) -> bool| {
        let mut owners: Vec<usize> = words.iter().filter(|w| wanted(w.2.kind)).map(|w| w.0).collect();
        owners.dedup();
        owners.len()
    };
    if owners(&|_| true) < 2 {
        return None;
    }
    let counters = owners(&|k| k == Kind::Counter);
    let rest = Rest { data: owners(&|k| k == Kind::Data) > 0, reads: owners(&|k| k == Kind::ReadMostly) > 0 };
    let sharing = judge(owners(&Kind::is_hot), counters, rest);
    let hot: Vec<_> = words.iter().filter(|w| w.2.kind <= Kind::Counter).collect();
    let mut parted: Vec<&Variable> = Vec::new();
    for (_, v, _) in &hot {
        if !parted.iter().any(|p| std::ptr::eq(*p, *v)) {
            parted.push(v);
        }
    }
    let cost = parted.iter().map(|v| padding(v.size, line)).fold(0, u64::saturating_add);
    let names: Vec<String> = parted.iter().map(|v| distinct_name(v, &parted)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fix = parted.first().map_or(String::new(), |v| apart(&names, &align_variable(v, line)));
    Some(Finding {
        sharing,
        place: Place::Variables(group[near].storage),
        name: String::new(),
        line: at,
        hot: hot.len() as u64,
        array: None,
        cost,
        fix,
        decl: hot.iter().find_map(|w| w.1.decl.clone()),
        words: words.iter().map(|(_, v, w)| v.shared(w)).collect(),
    })
}

/// The other contents of a line.
struct Rest {
    data: bool,
    reads: bool,
}

fn judge(hot: usize, counters: usize, rest: Rest) -> Sharing {
    match (hot, counters) {
        (2.., _) => Sharing::Locks,
        (1, 1..) => Sharing::LockCounters,
        (0, 2..) => Sharing::Counters,
        (1, 0) if rest.reads => Sharing::LockReads,
        (1, 0) if rest.data => Sharing::LockData,
        _ => Sharing::Data,
    }
}

/// The finding of an array whose elements share lines, if CPUs write them.
fn array(v: &Variable, word: &Word, line: u64) -> Option<Finding> {
    let (stride, count, sharing) = array_of(word, line)?;
    let shared = v.shared(word);
    Some(Finding {
        sharing,
        place: Place::Variables(v.storage),
        name: shared.name.clone(),
        line: shared.address / line * line,
        hot: count.min(line.div_ceil(stride)),
        array: Some((stride, count)),
        cost: padding(stride, line).saturating_mul(count),
        fix: format!("a line for each element: {}", align_type(v.language, v.kernel, line)),
        decl: shared.decl.clone(),
        words: vec![shared],
    })
}

fn array_of(word: &Word, line: u64) -> Option<(u64, u64, Sharing)> {
    let (stride, count) = word.array?;
    let sharing = match word.kind {
        Kind::Lock | Kind::Atomic => Sharing::HotArray,
        Kind::Counter => Sharing::CounterArray,
        Kind::Data | Kind::ReadMostly => return None,
    };
    (!element_size(word).is_multiple_of(line)).then_some((stride, count, sharing))
}

/// Lines within a struct whose hot words belong to different members.
pub(crate) fn in_struct(
    flat: &Flat,
    name: &str,
    decl: Option<&Decl>,
    language: Language,
    kernel: bool,
    line: u64,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let finding = |sharing, at: u64, words: Vec<Shared>| Finding {
        sharing,
        place: Place::Struct,
        name: name.to_owned(),
        line: at,
        hot: words.iter().filter(|w| w.kind <= Kind::Counter).count() as u64,
        array: None,
        cost: 0,
        fix: String::new(),
        decl: decl.cloned(),
        words,
    };
    for word in &flat.words {
        // A finding in an inner struct is reported for that struct.
        let Some((stride, count, sharing)) = array_of(word, line).filter(|_| word.top() == word.path) else {
            continue;
        };
        findings.push(Finding {
            array: Some((stride, count)),
            hot: count.min(line.div_ceil(stride)),
            cost: padding(stride, line).saturating_mul(count),
            fix: format!("a line for each element: {}", align_type(language, kernel, line)),
            ..finding(sharing, word.offset / line * line, vec![member(word)])
        });
    }
    let mut lines: BTreeMap<u64, Vec<&Word>> = BTreeMap::new();
    for word in flat.words.iter().filter(|w| w.array.is_none() || w.size <= line) {
        let last = word.offset.saturating_add(word.size.max(1) - 1) / line;
        for at in word.offset / line..=last.min(word.offset / line + 1) {
            lines.entry(at * line).or_default().push(word);
        }
    }
    for (at, words) in lines {
        let tops = |wanted: &dyn Fn(Kind) -> bool| {
            let mut tops: Vec<&str> = words.iter().filter(|w| wanted(w.kind)).map(|w| w.top()).collect();
            tops.sort_unstable();
            tops.dedup();
            tops.len()
        };
        let (hot, counters) = (tops(&Kind::is_hot), tops(&|k| k == Kind::Counter));
        if hot + counters == 0 || tops(&|_| true) < 2 {
            continue;
        }
        let rest = Rest { data: tops(&|k| k == Kind::Data) > 0, reads: tops(&|k| k == Kind::ReadMostly) > 0 };
        let sharing = judge(hot, counters, rest);
        let mut parted: Vec<&str> =
            words.iter().filter(|w| w.kind <= Kind::Counter).map(|w| w.top()).collect();
        parted.dedup();
        let fix = apart(&parted, &align_member(language, kernel, line));
        let cost = parted_size(flat, &parted, line).saturating_sub(flat.size);
        let shared = words.iter().take(MAX_WORDS).map(|w| member(w)).collect();
        findings.push(Finding { cost, fix, ..finding(sharing, at, shared) });
    }
    findings
}

/// The variable's name. If another variable has the same name, as static variables may, the source line
/// follows.
fn distinct_name(v: &Variable, all: &[&Variable]) -> String {
    match &v.decl {
        Some(decl) if all.iter().filter(|o| o.name == v.name).count() > 1 => {
            format!("{} ({}:{})", v.name, decl.file.rsplit('/').next().unwrap_or(""), decl.line)
        }
        _ => v.name.clone(),
    }
}

/// `a line each for a, b and 3 more`.
fn apart(names: &[&str], how: &str) -> String {
    let list = match names {
        [] => return String::new(),
        [one] => return format!("a line of its own for {one}: {how}"),
        [most @ .., last] if names.len() <= 4 => format!("{} and {last}", most.join(", ")),
        _ => format!("{} and {} more", names[..3].join(", "), names.len() - 3),
    };
    format!("a line each for {list}: {how}")
}

fn member(word: &Word) -> Shared {
    Shared {
        name: word.path.clone(),
        address: word.offset,
        size: word.size,
        kind: word.kind,
        ty: (!word.ty.is_empty()).then(|| word.ty.to_string()),
        section: None,
        decl: word.decl.clone(),
    }
}

/// The size of a struct if each of these members starts a line, and the member after it another line.
fn parted_size(flat: &Flat, parted: &[&str], line: u64) -> u64 {
    let up = |n: u64| n.checked_next_multiple_of(line).unwrap_or(u64::MAX);
    let (mut added, mut after, mut before) = (0u64, false, "");
    for word in &flat.words {
        let top = word.top();
        if top == before {
            continue;
        }
        let hot = parted.contains(&top);
        if hot || after {
            let place = word.offset.saturating_add(added);
            added = added.saturating_add(up(place) - place);
        }
        (after, before) = (hot, top);
    }
    up(flat.size.saturating_add(added))
}

/// Bytes that fill up the last line.
fn padding(size: u64, line: u64) -> u64 {
    size.max(1).checked_next_multiple_of(line).map_or(0, |up| up - size)
}

fn align_variable(v: &Variable, line: u64) -> String {
    match (v.kernel, v.storage) {
        (true, Storage::PerCpu) => "DEFINE_PER_CPU_SHARED_ALIGNED".into(),
        (true, _) => "__cacheline_aligned_in_smp".into(),
        _ => align_member(v.language, false, line),
    }
}

fn align_member(language: Language, kernel: bool, line: u64) -> String {
    match language {
        _ if kernel => "____cacheline_aligned_in_smp".into(),
        Language::C => format!("__attribute__((aligned({line})))"),
        Language::Cpp => format!("alignas({line})"),
        Language::Rust => "CachePadded<T>".into(),
        Language::Go => {
            format!(
                "a struct with `_ [{line}]byte` (or cpu.CacheLinePad of golang.org/x/sys) before and after it"
            )
        }
        Language::Other => format!("an alignment of {line} bytes"),
    }
}

fn align_type(language: Language, kernel: bool, line: u64) -> String {
    match language {
        Language::Rust => format!("#[repr(align({line}))] on its type"),
        Language::Go if !kernel => format!("`_ [{line}]byte` as the last member of its type"),
        _ => align_member(language, kernel, line) + " on its type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(path: &str, offset: u64, size: u64, kind: Kind) -> Word {
        Word { path: path.into(), offset, size, kind, ty: "".into(), integer: false, decl: None, array: None }
    }

    fn variable(name: &str, address: u64, size: u64, kind: Kind) -> Variable {
        Variable {
            name: name.into(),
            address,
            size,
            section: ".bss".into(),
            storage: Storage::Shared,
            decl: None,
            language: Language::C,
            kernel: false,
            words: vec![word("", 0, size, kind)],
        }
    }

    #[test]
    fn a_lock_shares_with_what_reaches_into_its_line() {
        let mut all = vec![
            variable("table", 0x1000, 0x44, Kind::Data),
            variable("lock", 0x1048, 8, Kind::Lock),
            variable("hits", 0x1050, 8, Kind::Counter),
            variable("alone", 0x1080, 8, Kind::Lock),
        ];
        let found: Vec<_> =
            in_variables(&mut all, 64, &mut |_| true).into_iter().filter(|f| f.sharing.is_likely()).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].sharing, found[0].cost), (0x1040, Sharing::LockCounters, 112));
        let names: Vec<_> = found[0].words.iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, ["table", "lock", "hits"]);
        // With lines twice as long, the other lock shares the line too.
        let found = in_variables(&mut all, 256, &mut |_| true);
        assert_eq!((found[0].sharing, found[0].words.len()), (Sharing::Locks, 4));
    }

    #[test]
    fn what_overlaps_everything_ends() {
        let mut all: Vec<_> = (0..5000).map(|i| variable("x", i * 8, u64::MAX, Kind::Lock)).collect();
        assert!(!in_variables(&mut all, 64, &mut |_| true).is_empty());
    }

    #[test]
    fn a_struct_is_laid_out_anew() {
        let flat = Flat {
            name: "s".into(),
            size: 32,
            words: vec![
                word("a", 0, 8, Kind::Lock),
                word("b.x", 8, 8, Kind::Atomic),
                word("b.y", 16, 8, Kind::Data),
                word("c", 24, 8, Kind::Data),
            ],
        };
        let found = in_struct(&flat, "s", None, Language::Cpp, false, 64);
        assert_eq!(found.len(), 1);
        // a, b and c in a line each.
        assert_eq!((found[0].sharing, found[0].cost), (Sharing::Locks, 192 - 32));
        assert_eq!(found[0].fix, "a line each for a and b: alignas(64)");
    }
}
