//! Requests of clients: percentiles, bands of latency, and what the slow ones have that the usual ones have not.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_record::Recording;
use ncpu_schema::{Activity, Error, Length, request_bands, served, served_parts, slow_requests};
use ncpu_table::{Table, safe};

use crate::lengths::{self, Bins};
use crate::seconds::figure;
use crate::thread_time::words_for;
use crate::wrap::{middle, wrap};

/// Kinds of requests that have lines: those with most time.
const KINDS: usize = 3;
/// Parts that a line names.
const PARTS: usize = 4;
/// The part of a latency, or of what a band has more than another, below which nothing is named.
const SHOWN: f64 = 0.05;
/// Programs that a wait for a CPU names, each with this part of it.
const PROGRAMS: usize = 3;
const BEHIND: f64 = 0.1;
/// Requests that a band must have for anything to be said of what slows it.
const FEWEST: f64 = 5.0;
/// Slow requests are slower than the usual half by this factor, and by these ms, or nothing is said of them.
const SLOWER: (f64, f64) = (2.0, 1.0);

/// Bands of latency: their names, and the parts of all requests between which they lie.
pub(crate) const BANDS: [(&str, f64, f64); 5] = [
    ("p0-50", 0.0, 0.5),
    ("p50-90", 0.5, 0.9),
    ("p90-99", 0.9, 0.99),
    ("p99-99.9", 0.99, 0.999),
    ("p99.9-100", 0.999, 1.0),
];

/// Kind and object of a wait.
type What = (Activity, Option<String>);

/// Milliseconds with two or three digits.
pub(crate) fn ms(ms: f64) -> String {
    if ms < 0.1 { format!("{ms:.3}") } else { figure(ms) }
}

/// A part of a request's latency: what, how many ms, and its words.
pub(crate) type ListedPart = (What, f64, String);

/// Whether an object is known by its address alone.
fn is_unnamed((_, what): &What) -> bool {
    what.as_deref().is_some_and(|what| what.starts_with("0x"))
}

/// Parts with their ms, most first: waits for a CPU as one, with the programs behind which they were.
fn told(parts: Vec<(What, f64)>) -> Vec<ListedPart> {
    let queued: Vec<&(What, f64)> = parts.iter().filter(|(what, _)| what.0 == Activity::RunQueue).collect();
    let all: f64 = queued.iter().map(|(_, ms)| ms).sum();
    let mut behind: Vec<(&str, f64)> =
        queued.iter().filter_map(|(what, ms)| Some((what.1.as_deref()?, *ms))).collect();
    behind.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let mut line = words(&(Activity::RunQueue, None));
    // One that is nearly all of it needs no figure.
    let names: Vec<String> = behind
        .iter()
        .filter(|(_, ms)| *ms >= BEHIND * all)
        .take(PROGRAMS)
        .map(|(name, part)| {
            let name = middle(&safe::line(name), 30);
            if *part >= 0.95 * all { name } else { format!("{name} {}", ms(*part)) }
        })
        .collect();
    if !names.is_empty() {
        line += &format!(", behind {}", names.join(", "));
    }
    let mut out: Vec<ListedPart> = parts
        .iter()
        .filter(|(what, _)| what.0 != Activity::RunQueue)
        .map(|(what, part)| (what.clone(), *part, words(what)))
        .collect();
    if all > 0.0 {
        out.push(((Activity::RunQueue, None), all, line));
    }
    out.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    out
}

/// Time of requests in one thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Seconds, all requests together.
    pub seconds: f64,
    /// Requests that have it.
    pub count: f64,
    /// The thread that ended most of the waiting.
    pub holder: Option<String>,
    /// Seconds of the row that the name is from.
    most: f64,
}

impl Part {
    fn add(&mut self, other: &Part, share: f64) {
        self.seconds += other.seconds * share;
        self.count += other.count * share;
        if other.most * share > self.most {
            self.most = other.most * share;
            self.holder.clone_from(&other.holder);
        }
    }
}

/// Requests of a bin, or of a band.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    /// How many.
    pub count: f64,
    /// Their latencies, seconds.
    pub seconds: f64,
    /// Parts of their latencies.
    pub parts: BTreeMap<What, Part>,
}

impl Sum {
    fn add(&mut self, other: &Sum, share: f64) {
        self.count += other.count * share;
        self.seconds += other.seconds * share;
        for (what, part) in &other.parts {
            self.parts.entry(what.clone()).or_default().add(part, share);
        }
    }

    /// Milliseconds of each request, on average.
    pub(crate) fn mean(&self) -> f64 {
        if self.count > 0.0 { 1e3 * self.seconds / self.count } else { 0.0 }
    }

    /// Parts in ms a request with their words, most first.
    pub(crate) fn told(&self) -> Vec<ListedPart> {
        told(self.parts.keys().map(|what| (what.clone(), self.each(what))).collect())
    }

    /// Kinds of waits that are for many objects without a name, none of which has most of the time: locks made for each request, say.
    fn of_many(&self) -> BTreeSet<Activity> {
        let mut sums: BTreeMap<Activity, (f64, f64)> = BTreeMap::new();
        for ((doing, _), part) in self.parts.iter().filter(|(what, _)| is_unnamed(what)) {
            let (all, most) = sums.entry(*doing).or_default();
            *all += part.seconds;
            *most = f64::max(*most, part.seconds);
        }
        sums.into_iter().filter(|(_, (all, most))| *most < all / 2.0).map(|(doing, _)| doing).collect()
    }

    /// Counts objects without a name as one where there are many.
    fn join_unnamed(&mut self, of: &BTreeSet<Activity>) {
        for (what, part) in std::mem::take(&mut self.parts) {
            let joined = is_unnamed(&what) && of.contains(&what.0);
            let what = if joined { (what.0, None) } else { what };
            self.parts.entry(what).or_default().add(&part, 1.0);
        }
    }

    fn each(&self, what: &What) -> f64 {
        self.parts.get(what).map_or(0.0, |part| 1e3 * part.seconds / self.count.max(f64::MIN_POSITIVE))
    }
}

/// The requests of a kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kind {
    /// By bin of latency, ns.
    pub bins: BTreeMap<(u64, u64), Sum>,
    /// Latencies in finer bins.
    pub lengths: Bins,
    /// Longest, us.
    pub max: f64,
}

impl Kind {
    fn seconds(&self) -> f64 {
        self.bins.values().map(|bin| bin.seconds).sum()
    }

    fn count(&self) -> f64 {
        self.bins.values().map(|bin| bin.count).sum()
    }

    /// A latency in ms that a part of the requests does not exceed.
    fn quantile(&self, part: f64) -> f64 {
        // A bin's middle may lie beyond the longest.
        self.lengths.quantile(part).unwrap_or(0.0).min(self.max) / 1e3
    }

    /// The requests between two parts of all, in the order of their latency.
    pub fn between(&self, from: f64, to: f64) -> Sum {
        let all = self.count();
        let (from, to) = (from * all, to * all);
        let mut out = Sum::default();
        let mut before = 0.0;
        for bin in self.bins.values() {
            let after = before + bin.count;
            let share = after.min(to) - f64::max(before, from);
            if share > 0.0 {
                out.add(bin, share / bin.count);
            }
            before = after;
        }
        out
    }

    /// Parts of which the slow requests have more than the faster half, in ms a request, most first; with those requests, the quantile
    /// above which they lie, and how much slower they are, ms. `None` where they are few, or hardly slower.
    fn slow(&self) -> Option<(f64, Sum, f64, Vec<ListedPart>)> {
        let mut usual = self.between(0.0, 0.5);
        let slow = [0.99, 0.9].into_iter().map(|from| (from, self.between(from, 1.0)));
        let (from, mut slow) = slow.into_iter().find(|(_, slow)| slow.count >= FEWEST)?;
        let several = slow.of_many();
        usual.join_unnamed(&several);
        slow.join_unnamed(&several);
        let more = slow.mean() - usual.mean();
        if more < SLOWER.1 || slow.mean() < SLOWER.0 * usual.mean() {
            return None;
        }
        let excess = |what: &What| (what.clone(), slow.each(what) - usual.each(what));
        let parts = slow.parts.keys().map(excess).filter(|(_, ms)| *ms > 0.0).collect();
        let parts = told(parts).into_iter().filter(|(_, ms, _)| *ms >= SHOWN * more).collect();
        Some((from, slow, more, parts))
    }
}

/// One of the slowest requests, with its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slowest {
    /// Process and request.
    pub of: (String, String),
    /// When it arrived, seconds since the observation began.
    pub began: f64,
    /// ms.
    pub latency: f64,
    /// ms of its parts.
    pub parts: Vec<(What, f64)>,
}

/// Requests that a program answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// By process and request.
    pub kinds: BTreeMap<(String, String), Kind>,
    /// The slowest of all, slowest first.
    pub slowest: Vec<Slowest>,
}

impl Requests {
    /// Those of a recording; empty where it has none.
    ///
    /// # Errors
    /// A table is not what the schema says.
    pub fn of(recording: &Recording) -> Result<Requests, Error> {
        let mut out = Requests::default();
        let ns = |us: f64| (us * 1e3).round() as u64;
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        if let Some(t) = served::Reader::open(recording)? {
            for row in t.rows() {
                let (Some(from), Some(to)) = (t.from.get(row), t.to.get(row)) else { continue };
                let kind = out.kinds.entry((text(t.process.get(row)), text(t.request.get(row)))).or_default();
                kind.max = kind.max.max(t.max.get(row).unwrap_or(0.0));
                let bin = kind.bins.entry((ns(from), ns(to))).or_default();
                bin.count += t.count.get(row).unwrap_or(0) as f64;
                bin.seconds += t.seconds.get(row).unwrap_or(0.0);
            }
        }
        if let Some(t) = served_parts::Reader::open(recording)? {
            for row in t.rows() {
                let (Some(from), Some(to), Some(doing)) = (t.from.get(row), t.to.get(row), t.doing.get(row))
                else {
                    continue;
                };
                let key = (text(t.process.get(row)), text(t.request.get(row)));
                let Some(bin) = out.kinds.get_mut(&key).and_then(|k| k.bins.get_mut(&(ns(from), ns(to))))
                else {
                    continue;
                };
                let seconds = t.seconds.get(row).unwrap_or(0.0);
                let part = Part {
                    seconds,
                    count: t.count.get(row).unwrap_or(0) as f64,
                    holder: t.holder.get(row).map(String::from),
                    most: seconds,
                };
                bin.parts.entry((doing, t.what.get(row).map(String::from))).or_default().add(&part, 1.0);
            }
        }
        if let Some(table) = recording.tables.get(ncpu_schema::lengths::NAME) {
            for ((of, name, process), bins) in lengths::of(table)? {
                let key = (process.unwrap_or_default(), name.unwrap_or_default());
                if let Some(kind) = out.kinds.get_mut(&key).filter(|_| of == Length::Request) {
                    kind.lengths.merge(&bins);
                }
            }
        }
        // A kind for which there was no room among the lengths has those of its coarser bins.
        for kind in out.kinds.values_mut() {
            if kind.lengths.count() == 0 {
                kind.bins.iter().for_each(|((from, to), bin)| kind.lengths.add(*from, *to, bin.count as u64));
            }
        }
        out.slowest = slowest(recording)?;
        Ok(out)
    }

    /// Kinds of requests, those with most time first.
    pub(crate) fn largest(&self) -> Vec<(&(String, String), &Kind)> {
        let mut all: Vec<_> = self.kinds.iter().collect();
        all.sort_by(|a, b| b.1.seconds().total_cmp(&a.1.seconds()).then_with(|| a.0.cmp(b.0)));
        all
    }

    /// Table `request_bands`.
    pub fn bands(&self) -> Table {
        let mut rows = request_bands::Rows::new();
        for ((process, request), kind) in self.largest() {
            for (band, from, to) in BANDS {
                let sum = kind.between(from, to);
                for (what, part) in &sum.parts {
                    rows.push(request_bands::Row {
                        process: process.as_str().into(),
                        request: request.as_str().into(),
                        band: band.into(),
                        count: Some(sum.count),
                        latency: Some(sum.mean()),
                        doing: Some(what.0),
                        what: what.1.clone().into(),
                        each: Some(sum.each(what)),
                        having: Some(part.count),
                        holder: part.holder.clone().into(),
                    });
                }
            }
        }
        rows.finish()
    }

    /// The lines of a report; none where no request was answered.
    pub fn render(&self, width: usize, verbose: bool) -> String {
        let mut out = String::new();
        let all = self.largest();
        for ((process, request), kind) in all.iter().take(KINDS) {
            let percentiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)]
                .map(|(name, part)| format!("{name} {}", ms(kind.quantile(part))));
            let line = format!(
                "requests: {:.0} {} of {}, ms: {}, longest {}",
                kind.count(),
                safe::line(request),
                safe::line(process),
                percentiles.join(", "),
                ms(kind.max / 1e3)
            );
            out += &wrap(&line, width, "", "  ");
            if let Some((from, slow, slower, parts)) = kind.slow() {
                let first = format!(
                    "the slowest {:.0} % take {} ms on average, {} more than the faster half:",
                    100.0 * (1.0 - from),
                    ms(slow.mean()),
                    ms(slower)
                );
                out += &wrap(&first, width, "  ", "    ");
                for (what, more, mut line) in parts.into_iter().take(PARTS) {
                    // Waits for a CPU are several parts.
                    let part = slow.parts.get(&what).filter(|_| what.0 != Activity::RunQueue).cloned();
                    let part = part.unwrap_or_else(|| Part { count: slow.count, ..Part::default() });
                    if let Some(holder) = part.holder.filter(|_| has_holder(what.0)) {
                        line += &format!(", ended by {}", safe::line(&holder));
                    }
                    if part.count < 0.95 * slow.count {
                        line += &format!(", in {:.0} of {:.0}", part.count.max(1.0), slow.count);
                    }
                    out += &wrap(&line, width, &format!("  {:>7}  ", ms(more)), "           ");
                }
            }
            if verbose {
                out += &kind.bands(width);
            }
        }
        if let Some(rest) = all.len().checked_sub(KINDS).filter(|rest| *rest > 0) {
            out += &format!("  {rest} other kinds of requests: --table served\n");
        }
        out
    }
}

impl Kind {
    /// A line for each band.
    fn bands(&self, width: usize) -> String {
        let mut out = String::from("  band       requests  mean ms  of which, in ms\n");
        for (band, from, to) in BANDS {
            let sum = self.between(from, to);
            // A band that has a part of one request says nothing of its own.
            if sum.count < 0.5 {
                continue;
            }
            let parts = sum.told();
            let shown = parts.iter().filter(|(_, ms, _)| *ms >= SHOWN * sum.mean()).take(PARTS);
            let shown: Vec<String> = shown.map(|(_, part, line)| format!("{} {line}", ms(*part))).collect();
            let first = format!("  {band:<9} {:>9.0}  {:>7}  ", sum.count, ms(sum.mean()));
            out += &wrap(&shown.join("; "), width, &first, &" ".repeat(first.len()));
        }
        out
    }
}

fn has_holder(doing: Activity) -> bool {
    matches!(
        doing,
        Activity::Lock
            | Activity::FileLock
            | Activity::Semaphore
            | Activity::MessageQueue
            | Activity::Thread
            | Activity::Pipe
            | Activity::Events
    )
}

/// A part of a request in words.
pub(crate) fn words((doing, what): &What) -> String {
    match (doing, what) {
        (Activity::Unread, Some(what)) => {
            format!("unread in the socket, behind another request of its thread ({})", safe::line(what))
        }
        (Activity::Aside, Some(what)) => {
            format!("set aside, behind another request of its thread ({})", safe::line(what))
        }
        (doing, what) => words_for(*doing, what.as_deref()),
    }
}

/// The slowest requests of a recording.
fn slowest(recording: &Recording) -> Result<Vec<Slowest>, Error> {
    let Some(t) = slow_requests::Reader::open(recording)? else { return Ok(Vec::new()) };
    let mut all: BTreeMap<(u64, u64), Slowest> = BTreeMap::new();
    for row in t.rows() {
        let (Some(began), Some(latency), Some(doing)) =
            (t.began.get(row), t.latency.get(row), t.doing.get(row))
        else {
            continue;
        };
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let key = ((began * 1e9) as u64, t.thread.get(row).unwrap_or(0));
        let slow = all.entry(key).or_default();
        (slow.began, slow.latency) = (began, latency / 1e3);
        slow.of = (text(t.process.get(row)), text(t.request.get(row)));
        let what = (doing, t.what.get(row).map(String::from));
        slow.parts.push((what, 1e3 * t.seconds.get(row).unwrap_or(0.0)));
    }
    let mut out: Vec<Slowest> = all.into_values().collect();
    out.sort_by(|a, b| b.latency.total_cmp(&a.latency));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of one latency in ms, with what they waited for.
    fn bin(kind: &mut Kind, ms: u64, count: f64, parts: &[(Activity, Option<&str>, f64)]) {
        let ns = ms * 1_000_000;
        let mut sum = Sum { count, seconds: count * ms as f64 / 1e3, ..Sum::default() };
        for (doing, what, each) in parts {
            let part = Part { seconds: count * each / 1e3, count, ..Part::default() };
            sum.parts.insert((*doing, what.map(String::from)), part);
        }
        kind.bins.insert((ns, ns + ns / 4), sum);
        kind.lengths.add(ns, ns + 1, count as u64);
        kind.max = kind.max.max(ms as f64 * 1e3);
    }

    fn requests() -> Requests {
        let mut kind = Kind::default();
        bin(&mut kind, 2, 980.0, &[(Activity::User, None, 2.0)]);
        let slow = [(Activity::User, None, 2.0), (Activity::RunQueue, Some("backup"), 38.0)];
        bin(&mut kind, 40, 20.0, &slow);
        let of = ("server".into(), "HTTP GET on port 80".into());
        Requests { kinds: [(of, kind)].into(), slowest: Vec::new() }
    }

    #[test]
    fn many_objects_without_a_name_are_one() {
        let lines = |addresses: &[(&'static str, f64)]| {
            let mut kind = Kind::default();
            bin(&mut kind, 2, 980.0, &[(Activity::User, None, 2.0)]);
            let waits = addresses.iter().map(|(at, ms)| (Activity::Semaphore, Some(*at), *ms));
            bin(&mut kind, 40, 20.0, &waits.collect::<Vec<_>>());
            let (.., parts) = kind.slow().expect("slow ones");
            parts.into_iter().map(|(_, ms, line)| (ms.round() as u32, line)).collect::<Vec<_>>()
        };
        let joined = lines(&[("0x10", 15.0), ("0x20", 15.0), ("0x30", 10.0)]);
        assert_eq!(joined, [(40, "waiting for semaphore".to_owned())]);
        let named = lines(&[("0x10", 35.0), ("0x20", 5.0)]);
        assert_eq!(named[0], (35, "waiting for semaphore 0x10".to_owned()));
    }

    #[test]
    fn bands_sum_to_all_requests() {
        let all = requests();
        let kind = all.kinds.values().next().expect("one");
        let bands: Vec<Sum> = BANDS.map(|(_, from, to)| kind.between(from, to)).to_vec();
        let count: f64 = bands.iter().map(|band| band.count).sum();
        let seconds: f64 = bands.iter().map(|band| band.seconds).sum();
        assert!((count - 1000.0).abs() < 1e-6 && (seconds - kind.seconds()).abs() < 1e-9);
        // The slow ones are 2 in 100.
        assert!((bands[2].mean() - (8.0 * 2.0 + 40.0) / 9.0).abs() < 1e-6, "{}", bands[2].mean());
        assert!((bands[3].mean() - 40.0).abs() < 1e-6);
        let parts: f64 = bands[2].parts.values().map(|part| part.seconds).sum();
        assert!((parts - bands[2].seconds).abs() < 1e-9);
    }

    #[test]
    fn the_slow_are_told_by_what_the_usual_have_not() {
        let text = requests().render(100, false);
        let wanted = [
            "requests: 1000 HTTP GET on port 80 of server, ms: p50 2.00, p90 2.00, p99 40.0, p99.9 40.0, longest",
            "  40.0",
            "  the slowest 1 % take 40.0 ms on average, 38.0 more than the faster half:",
            "     38.0  waiting for a CPU, behind backup",
            "",
        ];
        assert_eq!(text, wanted.join("\n"));
    }

    #[test]
    fn where_all_are_alike_nothing_is_blamed() {
        let mut kind = Kind::default();
        bin(&mut kind, 2, 980.0, &[(Activity::User, None, 2.0)]);
        bin(&mut kind, 3, 20.0, &[(Activity::User, None, 3.0)]);
        assert!(kind.slow().is_none());
        // Nor where one in a few thousand is slow for a reason of its own.
        bin(&mut kind, 100, 1.0, &[(Activity::Timer, None, 100.0)]);
        let slow = kind.between(0.999, 1.0);
        assert!(slow.count < FEWEST);
    }

    #[test]
    fn names_are_safe_for_a_terminal() {
        let mut all = requests();
        let kind = all.kinds.pop_first().expect("one").1;
        all.kinds.insert(("s\u{1b}[31m".into(), "HTTP \u{7}".into()), kind);
        let text = all.render(80, true);
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'));
    }
}
