//! Lines that moved between CPUs, from samples of accesses joined with the words of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ncpu_machine::CpuSet;
use ncpu_schema::{access_totals, accesses, findings, variables, words};
use ncpu_table::{Column, Kind, Table, Unit, width};

use super::{fitted, shown};

/// The lines and what was touched in them.
#[derive(Clone, Debug)]
pub struct Moving {
    /// `lines`: a row for each, the one that moved most first.
    pub lines: Table,
    /// `offsets`: a row for each word of a line and place in the code that touched it.
    pub offsets: Table,
}

impl Moving {
    /// The tables without rows, for their columns.
    ///
    /// # Errors
    /// Never: a table of findings has its columns.
    pub fn none() -> Result<Moving, ncpu_schema::Error> {
        let findings = findings::Rows::new().finish();
        Ok(tables(&[], &findings::Reader::of(&findings)?))
    }
}

/// A word of a program, of the table `variables`.
struct Word<'a> {
    start: u64,
    size: u64,
    name: &'a str,
    /// The finding on it.
    finding: Option<u64>,
    /// Of an array: bytes from element to element.
    stride: Option<u64>,
}

impl Word<'_> {
    /// The part of it at an address: an array's element, or any byte of what is larger than a line and of
    /// unknown parts. Start, size and name.
    fn part(&self, address: u64) -> (u64, u64, String) {
        match self.stride {
            Some(stride) => {
                let index = (address - self.start) / stride;
                (self.start + index * stride, stride, format!("{}[{index}]", self.name))
            }
            None if self.size > LINE => (address, 1, format!("{}+{:#x}", self.name, address - self.start)),
            None => (self.start, self.size, self.name.into()),
        }
    }
}

/// A word is no larger than a line.
const LINE: u64 = 64;

/// Counts of a group of accesses.
#[derive(Clone, Default)]
struct Sum {
    local: u64,
    remote: u64,
    loads: u64,
    stores: u64,
    locked: u64,
    cycles: u64,
    timed: u64,
    threads: BTreeSet<(u64, u64)>,
    cpus: CpuSet,
    nodes: CpuSet,
    /// Moves for a word that the other CPU had written, where debug registers watched.
    same: Option<u64>,
    /// Of the whole line: timer samples in it.
    timer: Option<u64>,
}

impl Sum {
    fn add(&mut self, t: &accesses::Reader<'_>, row: usize) {
        let n = |cell: Option<u64>| cell.unwrap_or(0);
        self.local += n(t.local.get(row));
        self.remote += n(t.remote.get(row));
        self.loads += n(t.loads.get(row));
        self.stores += n(t.stores.get(row));
        self.locked += n(t.locked.get(row));
        self.cycles += n(t.cycles.get(row));
        self.timed += n(t.timed.get(row));
        self.same = sum_of(self.same, t.same.get(row));
        self.timer = self.timer.max(t.timer.get(row));
        self.threads.insert((n(t.pid.get(row)), n(t.tid.get(row))));
        // A recording may hold any number there.
        let cpu = |cell: Option<u64>| {
            cell.and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= ncpu_machine::MAX_CPU)
        };
        cpu(t.cpu.get(row)).into_iter().for_each(|n| self.cpus.insert(n));
        cpu(t.node.get(row)).into_iter().for_each(|n| self.nodes.insert(n));
    }

    fn hitm(&self) -> u64 {
        self.local + self.remote
    }

    fn written(&self) -> bool {
        self.stores + self.locked > 0
    }

    fn mean(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.cycles as f64 / self.timed as f64)
    }
}

/// Accesses to one word of a line.
#[derive(Default)]
struct Place {
    name: String,
    size: Option<u64>,
    finding: Option<u64>,
    sum: Sum,
    code: BTreeMap<(String, String), Sum>,
}

/// Joins the table `accesses` with the words of all `variables` of process `pid`, in whose memory they lie, and
/// with `findings` and their words.
pub fn moving(
    accesses: &accesses::Reader<'_>,
    variables: &variables::Reader<'_>,
    findings: &findings::Reader<'_>,
    words: &words::Reader<'_>,
    pid: Option<u32>,
) -> Moving {
    let known = known_words(variables, words);
    let mut lines: BTreeMap<(u64, u64), BTreeMap<u64, Place>> = BTreeMap::new();
    for row in accesses.rows() {
        let (Some(space), Some(line), Some(offset)) =
            (accesses.space.get(row), accesses.line.get(row).and_then(hex), accesses.offset.get(row))
        else {
            continue;
        };
        let address = line.wrapping_add(offset);
        let word = (Some(space) == pid.map(u64::from)).then(|| word_at(&known, address)).flatten();
        let part = word.map(|w| w.part(address));
        let key = part.as_ref().map_or(offset, |part| part.0.max(line) - line);
        let place = lines.entry((space, line)).or_default().entry(key).or_default();
        if place.name.is_empty() {
            place.finding = word.and_then(|w| w.finding);
            place.size = part.as_ref().map(|part| part.1);
            place.name = part.map_or_else(|| accesses.name.get(row).unwrap_or("").into(), |(.., name)| name);
        }
        let text = |cell: Option<&str>| cell.unwrap_or("").to_owned();
        place.sum.add(accesses, row);
        place
            .code
            .entry((text(accesses.code.get(row)), text(accesses.source.get(row))))
            .or_default()
            .add(accesses, row);
    }
    let mut ranked: Vec<Ranked> = lines
        .into_iter()
        .map(|(key, places)| {
            let mut sum = Sum::default();
            for place in places.values() {
                sum.merge(&place.sum);
            }
            (key, places, sum)
        })
        .filter(|(.., sum)| sum.hitm() > 0)
        .collect();
    // A line that comes from another node costs several that do not.
    // Where debug registers watched, all lines have equally many accesses; the timer's samples say which line matters most.
    ranked.sort_by_key(|(key, _, sum)| (std::cmp::Reverse((sum.timer, sum.local + 3 * sum.remote)), *key));
    tables(&ranked, findings)
}

impl Sum {
    fn merge(&mut self, other: &Sum) {
        self.local += other.local;
        self.remote += other.remote;
        self.loads += other.loads;
        self.stores += other.stores;
        self.locked += other.locked;
        self.cycles += other.cycles;
        self.timed += other.timed;
        self.same = sum_of(self.same, other.same);
        self.timer = self.timer.max(other.timer);
        self.threads.extend(&other.threads);
        self.cpus = self.cpus.or(&other.cpus);
        self.nodes = self.nodes.or(&other.nodes);
    }
}

/// The sum of what is known.
fn sum_of(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        _ => a.or(b),
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The words by address.
fn known_words<'w>(variables: &variables::Reader<'w>, words: &words::Reader<'_>) -> Vec<Word<'w>> {
    // Words of structs have no section: their addresses are offsets. The first finding that has a word is the worst.
    let mut findings: BTreeMap<u64, u64> = BTreeMap::new();
    for row in words.rows().filter(|&row| words.section.get(row).is_some()) {
        if let Some((address, finding)) = words.address.get(row).and_then(hex).zip(words.finding.get(row)) {
            findings.entry(address).or_insert(finding);
        }
    }
    let mut known: Vec<Word> = variables
        .rows()
        .filter_map(|row| {
            let start = variables.address.get(row).and_then(hex)?;
            Some(Word {
                start,
                size: variables.size.get(row)?,
                name: variables.name.get(row)?,
                finding: findings.get(&start).copied(),
                stride: variables.stride.get(row).filter(|stride| *stride > 0),
            })
        })
        .collect();
    known.sort_by_key(|w| w.start);
    known
}

/// The word that holds an address: of words that lie in one another the one that begins last.
fn word_at<'a, 'w>(known: &'a [Word<'w>], address: u64) -> Option<&'a Word<'w>> {
    let end = known.partition_point(|w| w.start <= address);
    // No more than a few words reach over one another.
    known[..end].iter().rev().take(64).find(|w| address - w.start < w.size)
}

/// A part of a line's moves that is too small to be said.
const FEW: f64 = 0.05;

/// Whether threads want the same word of a line, or only each other's line.
fn sharing(places: &BTreeMap<u64, Place>, sum: &Sum) -> &'static str {
    // Each move is known to be of the one or the other kind.
    if let (Some(same), 2..) = (sum.same, sum.threads.len()) {
        let part = same as f64 / sum.hitm().max(1) as f64;
        return match part {
            ..FEW => "false",
            p if p > 1.0 - FEW => "true",
            _ => "both",
        };
    }
    // Where no store was sampled, any word may be written.
    let writes_known = sum.written();
    let wanted = |p: &&Place| p.sum.threads.len() > 1 && (p.sum.written() || !writes_known);
    match (sum.threads.len(), places.len(), places.values().filter(wanted).count()) {
        (..=1, ..) => "one thread",
        (_, 1, _) => "true",
        (_, _, 0) => "false",
        _ => "both",
    }
}

/// A line: its process and address, its words by offset, and everything together.
type Ranked = ((u64, u64), BTreeMap<u64, Place>, Sum);

fn tables(ranked: &[Ranked], findings: &findings::Reader<'_>) -> Moving {
    let all: u64 = ranked.iter().map(|(.., sum)| sum.hitm()).sum();
    let mut lines = Table::builder("lines", &line_columns());
    let mut offsets = Table::builder("offsets", &offset_columns());
    for (number, ((space, line), places, sum)) in (1..).zip(ranked) {
        let finding = places.values().filter_map(|p| p.finding).min();
        let row = finding.and_then(|f| findings.rows().find(|&r| findings.finding.get(r) == Some(f)));
        let sharing = sharing(places, sum);
        // Padding parts words; it does not help threads that want the same word.
        let fix = row.filter(|_| matches!(sharing, "false" | "both")).and_then(|r| findings.fix.get(r));
        let mut names: Vec<&str> = Vec::new();
        let mut by_heat: Vec<&Place> = places.values().collect();
        by_heat.sort_by_key(|p| std::cmp::Reverse(p.sum.hitm()));
        for place in by_heat {
            if !place.name.is_empty() && !names.contains(&&*place.name) {
                names.push(&place.name);
            }
        }
        let row = lines
            .row()
            .int(number)
            .int(*space)
            .text(format!("{line:#x}"))
            .text(names.join(", "))
            .text(sharing)
            .int(sum.hitm())
            .float(100.0 * sum.hitm() as f64 / all.max(1) as f64);
        let row =
            counted(row, sum).int(places.len() as u64).int_opt(finding).text_opt(fix).int_opt(sum.timer);
        let _ = row;
        for (offset, place) in places {
            let mut code: Vec<_> = place.code.iter().collect();
            code.sort_by_key(|(_, s)| std::cmp::Reverse((s.hitm(), s.loads + s.stores)));
            for ((function, source), sum) in code {
                let row = offsets
                    .row()
                    .int(number)
                    .int(*offset)
                    .int_opt(place.size)
                    .text(&place.name)
                    .text(function)
                    .text_opt(Some(source).filter(|s| !s.is_empty()))
                    .int(sum.hitm());
                let _ = counted(row, sum);
            }
        }
    }
    Moving { lines: lines.finish(), offsets: offsets.finish() }
}

fn counted<'a>(row: ncpu_table::Row<'a>, sum: &Sum) -> ncpu_table::Row<'a> {
    row.int(sum.local)
        .int(sum.remote)
        .int(sum.loads)
        .int(sum.stores)
        .float_opt(sum.mean())
        .int(sum.threads.len() as u64)
        .text(sum.cpus.to_list())
        .text(sum.nodes.to_list())
}

fn counts() -> [Column; 8] {
    [
        Column::count("local", "loads that a cache of the same node had modified"),
        Column::count("remote", "loads that a cache of another node had modified"),
        Column::count("loads", "loads sampled"),
        Column::count("stores", "stores sampled"),
        Column::float("cycles", Unit::None, Kind::Mean, "mean length of a load in cycles, where known"),
        Column::int("threads", Unit::None, Kind::Gauge, "threads that touched it"),
        Column::text("CPUs", "where they ran"),
        Column::text("nodes", "NUMA nodes of those CPUs"),
    ]
}

fn line_columns() -> Vec<Column> {
    let mut columns = vec![
        Column::id("number", "rank: 1 moved most"),
        Column::id("space", "process whose memory it is; 0 is the kernel's"),
        Column::text("line", "address of the line"),
        Column::text("names", "what lies in it, the hottest first"),
        Column::text(
            "sharing",
            "false: threads want different words; true: the same; both; one thread, that moved",
        ),
        Column::count("HITM", "loads sampled that found the line modified in another cache"),
        Column::float("share", Unit::Percent, Kind::Share, "its part of all those loads"),
    ];
    columns.extend(counts());
    columns.push(Column::int("words", Unit::None, Kind::Gauge, "words touched"));
    columns.push(Column::int("finding", Unit::None, Kind::Gauge, "the finding with its words"));
    columns.push(Column::text("fix", "padding that parts them"));
    columns.push(Column::int(
        "timer",
        Unit::None,
        Kind::Gauge,
        "timer samples with an operand in it, where debug registers watched",
    ));
    columns
}

fn offset_columns() -> Vec<Column> {
    let mut columns = vec![
        Column::id("number", "rank of the line"),
        Column::id("offset", "byte of the line"),
        Column::int("size", Unit::Bytes, Kind::Gauge, "size of the word, where known"),
        Column::text("name", "word or region of memory"),
        Column::text("code", "function that touched it"),
        Column::text("source", "line of its source"),
        Column::count("HITM", "loads sampled that found the line modified in another cache"),
    ];
    columns.extend(counts());
    columns
}

/// The text for people: a block for each of the first `most` lines, no row longer than `width`.
pub fn moving_text(moving: &Moving, totals: &access_totals::Reader<'_>, most: usize, width: usize) -> String {
    let width = width.clamp(40, 160);
    let (loads, remote) = (totals.loads.sum(), totals.remote.sum());
    let hitm = totals.local.sum() + remote;
    let part = |of: u64| 100.0 * hitm as f64 / of.max(1) as f64;
    let watched = watched(totals, moving.lines.num_rows() as u64);
    let head = match &watched {
        None => format!(
            "{loads} loads and {} stores sampled: {hitm} loads found their line modified in another cache ({:.1} %), {remote} of them on another node",
            totals.stores.sum(),
            part(loads),
        ),
        Some(head) => format!(
            "{head}: {} accesses seen, {hitm} of them to a line that another CPU had written ({:.1} %), {remote} of them on another node",
            totals.samples.sum(),
            part(totals.samples.sum()),
        ),
    };
    let timer = totals.timer.sum().max(1);
    let what = if watched.is_some() { "moves" } else { "HITM" };
    let mut out = fitted(&head, width, 2);
    let t = &moving.lines;
    for row in 0..t.num_rows().min(most) {
        let cell = |column| t.text(row, column).unwrap_or("");
        let int = |column| t.int(row, column).unwrap_or(0);
        let number = int("number");
        out.push('\n');
        let mut head = format!(
            "{number:>3}. {} sharing: {} {},{} {:.1} % of {what} ({} local, {} remote), {} threads on CPUs {}",
            cell("sharing"),
            width::start(cell("names"), 60),
            cell("line"),
            match t.int(row, "timer") {
                Some(n) => format!(" in {:.0} % of the samples,", 100.0 * n as f64 / timer as f64),
                None => String::new(),
            },
            t.number(row, "share").unwrap_or(0.0),
            int("local"),
            int("remote"),
            int("threads"),
            cell("CPUs"),
        );
        if cell("sharing") == "one thread" {
            head = head.replacen("one thread sharing", "one thread that moved", 1).replacen(
                "1 threads",
                "1 thread",
                1,
            );
        }
        if !cell("nodes").is_empty() {
            let _ = write!(head, ", nodes {}", cell("nodes"));
        }
        if let Some(cycles) = t.number(row, "cycles") {
            let _ = write!(head, ", {cycles:.0} cycles a load");
        }
        out += &fitted(&head, width, 5);
        out += &places(&moving.offsets, number, width, what);
        let told = t.int(row, "finding").map(|f| format!(" (finding {f})")).unwrap_or_default();
        match (cell("sharing"), cell("fix")) {
            ("true", _) => {
                out += &fitted(
                    "     -> all want the same word: padding will not help; a part for each thread or CPU would",
                    width,
                    8,
                );
            }
            (_, "") => {}
            (_, fix) => out += &fitted(&format!("     -> {}{told}", shown(fix)), width, 8),
        }
    }
    if t.num_rows() > most {
        let _ = writeln!(out, "\n{} more: --top N shows more", t.num_rows() - most);
    }
    out
}

/// A sentence on what debug registers watched, if they did; `shown` lines moved and matter.
fn watched(totals: &access_totals::Reader<'_>, shown: u64) -> Option<String> {
    let turns = totals.turns.get(0)?;
    let n = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (lines, still) = (totals.lines.get(0).unwrap_or(0), totals.still.get(0).unwrap_or(0));
    let seldom = lines.saturating_sub(still + shown);
    let mut others = Vec::new();
    if still > 0 {
        others.push(format!("{still} not shared while watched"));
    }
    if seldom > 0 {
        others.push(format!("{seldom} in less than 1 % of the samples"));
    }
    Some(format!(
        "{} chose {}{}{}, which debug registers watched in {} of {:.0} ms in all, at a cost of {:.0} ms",
        n(totals.timer.sum(), "timer sample"),
        n(lines, "line"),
        if others.is_empty() { "" } else { ", " },
        others.join(", "),
        n(turns, "turn"),
        1e3 * totals.watched.get(0).unwrap_or(0.0),
        1e3 * totals.own.get(0).unwrap_or(0.0),
    ))
}

/// Places in the code shown for a line.
const PLACES: usize = 8;

fn places(offsets: &Table, number: u64, width: usize, what: &str) -> String {
    let mut rows: Vec<usize> =
        (0..offsets.num_rows()).filter(|&r| offsets.int(r, "number") == Some(number)).collect();
    let all = rows.len();
    // The hottest, in the order they lie in.
    rows.sort_by_key(|&r| std::cmp::Reverse((offsets.int(r, "HITM"), offsets.int(r, "stores"))));
    rows.truncate(PLACES);
    rows.sort_unstable();
    let cells: Vec<[String; 8]> = rows
        .iter()
        .map(|&r| {
            let int = |column| offsets.int(r, column).unwrap_or(0);
            let text = |column| shown(offsets.text(r, column).unwrap_or(""));
            [
                format!("+{}", int("offset")),
                int("HITM").to_string(),
                int("loads").to_string(),
                int("stores").to_string(),
                int("threads").to_string(),
                text("name"),
                text("code"),
                text("source"),
            ]
        })
        .collect();
    let heads = ["", what, "loads", "stores", "threads", "word", "code", "source"];
    let wide =
        |c: usize| cells.iter().map(|row| width::columns(&row[c])).chain([heads[c].len()]).max().unwrap_or(0);
    let mut widths: [usize; 8] = std::array::from_fn(wide);
    for (c, least) in [(6, 12), (7, 12), (5, 12), (6, 4), (7, 6), (5, 6)] {
        let line: usize = 5 + widths.iter().sum::<usize>() + 2 * 7;
        widths[c] = widths[c].saturating_sub(line.saturating_sub(width)).max(widths[c].min(least));
    }
    let mut out = String::new();
    let mut put = |row: [&str; 8]| {
        let mut line = format!("     {:>1$}", row[0], widths[0]);
        for c in 1..8 {
            let _ = match c {
                1..5 => write!(line, "  {:>1$}", row[c], widths[c]),
                7 => write!(line, "  {}", width::end(row[c], widths[c])),
                // Of a qualified name the end tells more.
                _ if row[c].contains("::") => {
                    write!(line, "  {}", width::filled(&width::end(row[c], widths[c]), widths[c]))
                }
                _ => write!(line, "  {}", width::filled(row[c], widths[c])),
            };
        }
        out += line.trim_end();
        out.push('\n');
    };
    put(heads);
    for row in &cells {
        put(std::array::from_fn(|c| &*row[c]));
    }
    if all > rows.len() {
        let _ = writeln!(out, "     and {} places more", all - rows.len());
    }
    out
}

#[cfg(test)]
mod tests;
