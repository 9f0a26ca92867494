//! Goroutines that wait for a place: of a channel that bounds how many work at once, or of a library's pool.

use std::collections::{BTreeMap, HashSet};

use ncpu_schema::{Layer, goroutines};

use super::claim::{Claim, Kind, Source};
use super::names::short;
use super::places::begins;
use super::view::View;
use crate::causes::When;

/// The part of the capacity that the CPUs leave from which more goroutines could have used them.
const LEFT: f64 = 0.05;

/// Goroutines that wait at least, on average, and the part of their kind that they are.
const WAIT: f64 = 2.0;
const MOST: f64 = 0.4;

/// The difference allowed between the holders and the places of a channel.
const OFF: f64 = 0.25;

/// The state in rows that say how often was looked, and for what time that stands.
const LOOKED: &str = "looked at";

/// Goroutines that could run and wait for their turn, on average, from which it is not for want of places that too few work.
const READY: f64 = 1.0;

/// Sightings of waiting goroutines from which their number is known.
const SEEN: u64 = 30;

/// The part of the capacity that idles where a program could do more; goroutines that wait for time then, and sightings of them.
const IDLE: f64 = 0.3;
const ONE: f64 = 0.6;
const FEW: u64 = 10;

/// States in which goroutines wait for time to pass below a function that limits them. Programs that are built as for Go 1.22 have timers'
/// channels like any other.
const TIMED: [&str; 4] = ["timer", "sleep", "chan receive", "select"];

/// Functions of libraries that wait for a place in a pool, or for a weight.
const POOLS: [&str; 7] = [
    "database/sql.(*DB).conn",
    "golang.org/x/sync/semaphore.(*Weighted).Acquire",
    "golang.org/x/sync/errgroup.(*Group).Go",
    "github.com/jackc/puddle/v2.(*Pool",
    "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).waitTurn",
    "github.com/gomodule/redigo/redis.(*Pool).waitVacantConn",
    "go.mongodb.org/mongo-driver/x/mongo/driver/topology.(*pool).checkOut",
];

/// Functions in which threads turn from one goroutine to another.
const TURNS: [&str; 7] = [
    "runtime.schedule",
    "runtime.park_m",
    "runtime.chansend",
    "runtime.chanrecv",
    "runtime.selectgo",
    "runtime.goready",
    "runtime.ready",
];

/// Goroutines that were seen in one state.
struct Seen<'a> {
    process: &'a str,
    state: &'a str,
    /// Functions of the program, innermost first.
    chain: Vec<&'a str>,
    places: Option<u64>,
    count: u64,
    seconds: f64,
}

impl<'a> Seen<'a> {
    /// The function that it began with.
    fn root(&self) -> Option<&'a str> {
        self.chain.last().copied()
    }
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let left = view.idle() + view.seconds(Layer::Others);
    match goroutines::Reader::open(view.context.recording) {
        Ok(Some(t)) if left >= LEFT * view.capacity() => {
            let seen = seen(&t);
            claim(view, &seen).into_iter().chain(timed(view, &seen)).collect()
        }
        _ => Vec::new(),
    }
}

fn seen<'a>(t: &goroutines::Reader<'a>) -> Vec<Seen<'a>> {
    let of_runtime = |f: &&str| ["runtime.", "sync.", "internal/sync."].iter().any(|of| f.starts_with(of));
    t.rows()
        .map(|row| Seen {
            process: t.process.get(row).unwrap_or(""),
            state: t.state.get(row).unwrap_or(""),
            chain: t
                .stack
                .get(row)
                .unwrap_or("")
                .split(';')
                .rev()
                .filter(|f| !f.is_empty() && !of_runtime(f) && !begins(f))
                .collect(),
            places: t.places.get(row),
            count: t.count.get(row).unwrap_or(0),
            seconds: t.seconds.get(row).unwrap_or(0.0),
        })
        .collect()
}

/// The place where most goroutines wait, if what they wait for is what others of their kind hold, or have to take.
fn claim(view: &View<'_>, seen: &[Seen<'_>]) -> Option<Claim> {
    let covered = covered(seen);
    let mut sites: BTreeMap<(&str, &str, &str), Vec<&Seen<'_>>> = BTreeMap::new();
    for g in seen {
        let pool = g.chain.iter().copied().find(|f| is_pool(f));
        let site = match (pool, g.state) {
            (Some(pool), "select" | "chan receive" | "chan send" | "timer") => pool,
            (None, "chan receive" | "chan send") => match g.chain.first() {
                Some(site) => site,
                None => continue,
            },
            _ => continue,
        };
        sites.entry((g.process, g.state, site)).or_default().push(g);
    }
    let most = sites.into_iter().filter_map(|((process, state, site), waits)| {
        let elapsed = covered.get(process).copied().filter(|time| *time > 0.0)?;
        let waiting = seconds(&waits) / elapsed;
        if waiting < WAIT || waits.iter().map(|g| g.count).sum::<u64>() < SEEN {
            return None;
        }
        // The receiver is slower than the senders, and computes: more places fill up as well.
        let ready: Vec<_> = seen.iter().filter(|g| g.process == process && g.state == "runnable").collect();
        if !is_pool(site) && seconds(&ready) >= READY * elapsed {
            return None;
        }
        let kind = of_kind(seen, process, &waits);
        let all = seconds(&kind) / elapsed;
        let caller = caller(&waits, site);
        let holds = |g: &&Seen<'_>| !g.chain.contains(&site) && caller.is_some_and(|c| g.chain.contains(&c));
        let holding = kind.iter().copied().filter(holds).map(|g| g.seconds).sum::<f64>() / elapsed;
        let places = longest(&waits)?.places;
        // Idle workers wait for work in a channel as well; of what these wait for, each place of the channel has a holder.
        let held = |places: u64| (holding - places as f64).abs() <= OFF.max(OFF * places as f64);
        let counts = is_pool(site) || state == "chan send" || places.is_some_and(|n| n > 0 && held(n));
        (counts && waiting >= MOST * all)
            .then_some((waiting, elapsed, all, places, process, state, site, caller, waits))
    });
    let (waiting, elapsed, all, places, process, state, site, caller, waits) =
        most.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let what = match (places, state) {
        _ if is_pool(site) => "a place in a pool".into(),
        (Some(1..), "chan send") => format!("room in a channel of {}", places_of(places)),
        (_, "chan send") => "a goroutine that receives from a channel".into(),
        _ => format!("what a channel of {} holds", places_of(places)),
    };
    let from = caller.map_or_else(String::new, |c| format!(", called by {}", short(c)));
    let mut claim = Claim::new(Kind::Pool, [When::Goroutines], site)
        .with("site", short(site))
        .with("from", from)
        .with("waiting", format!("{waiting:.0}"))
        .with("goroutines", format!("{:.0}", all.max(waiting)))
        .with("what", what);
    claim.key = format!("goroutines {site}");
    claim.waited = Some(seconds(&waits));
    claim.lives = all.max(waiting) * elapsed;
    let part = (waiting / all.max(waiting)).min(1.0);
    for layer in [Layer::Serial, Layer::Idle, Layer::LockOrSerial] {
        claim.ask(Source::Layer(layer), part * view.beside_stacks(layer), "CPUs idle for it");
    }
    for (at, sample) in view.samples.iter().enumerate() {
        if sample.process == process && sample.user.iter().any(|f| TURNS.contains(f)) {
            claim.ask(Source::Sample(at), sample.seconds, "parking goroutines and looking for others");
        }
    }
    let chain: Vec<String> = longest(&waits)?.chain.iter().take(3).map(|f| short(f)).collect();
    claim.line("waits in", chain.join(" ← "));
    Some(claim)
}

/// Goroutines that wait for time to pass in a function that limits how much is done, by its name: most of their kind, while CPUs idle.
fn timed(view: &View<'_>, seen: &[Seen<'_>]) -> Option<Claim> {
    // Other programs may use the CPUs that would idle.
    if view.idle() + view.seconds(Layer::Others) < IDLE * view.capacity() {
        return None;
    }
    let covered = covered(seen);
    let limits = |f: &&str| view.entry(When::GoroutinesTimed, f).is_some();
    let mut sites: BTreeMap<(&str, &str), Vec<&Seen<'_>>> = BTreeMap::new();
    for g in seen.iter().filter(|g| TIMED.contains(&g.state)) {
        if let Some(site) = g.chain.iter().copied().find(limits) {
            sites.entry((g.process, site)).or_default().push(g);
        }
    }
    let ((process, site), waits) =
        sites.into_iter().max_by(|a, b| seconds(&a.1).total_cmp(&seconds(&b.1)))?;
    let elapsed = covered.get(process).copied().filter(|time| *time > 0.0)?;
    let all = seconds(&of_kind(seen, process, &waits)) / elapsed;
    let waiting = seconds(&waits) / elapsed;
    if waiting < ONE || waiting < MOST * all || waits.iter().map(|g| g.count).sum::<u64>() < FEW {
        return None;
    }
    let from = caller(&waits, site).map_or_else(String::new, |c| format!(", called by {}", short(c)));
    let mut claim = Claim::new(Kind::Limit, [When::GoroutinesTimed], site)
        .with("site", short(site))
        .with("from", from)
        .with("process", process)
        .with("waiting", format!("{waiting:.0}"))
        .with("goroutines", format!("{:.0}", all.max(waiting)));
    claim.key = format!("goroutines timed {site}");
    claim.waited = Some(seconds(&waits));
    claim.lives = all.max(waiting) * elapsed;
    let part = (waiting / all.max(waiting)).min(1.0);
    for layer in [Layer::Serial, Layer::Idle] {
        claim.ask(Source::Layer(layer), part * view.beside_stacks(layer), "CPUs idle until time is up");
    }
    let chain: Vec<String> = longest(&waits)?.chain.iter().take(4).map(|f| short(f)).collect();
    claim.line("waits in", chain.join(" ← "));
    Some(claim)
}

/// The time that the sightings stand for, by process.
fn covered<'a>(seen: &[Seen<'a>]) -> BTreeMap<&'a str, f64> {
    let mut covered: BTreeMap<&str, f64> = BTreeMap::new();
    for g in seen.iter().filter(|g| g.state == LOOKED) {
        *covered.entry(g.process).or_default() += g.seconds;
    }
    covered
}

fn seconds(of: &[&Seen<'_>]) -> f64 {
    of.iter().map(|g| g.seconds).sum()
}

/// All goroutines of a process that begin with the functions that these begin with.
fn of_kind<'a, 'b>(seen: &'b [Seen<'a>], process: &str, these: &[&Seen<'a>]) -> Vec<&'b Seen<'a>> {
    let roots: HashSet<_> = these.iter().filter_map(|g| g.root()).collect();
    seen.iter().filter(|g| g.process == process && g.root().is_some_and(|r| roots.contains(r))).collect()
}

/// Whether a function waits for a place in a library's pool.
fn is_pool(function: &str) -> bool {
    POOLS.iter().any(|pool| function.starts_with(pool))
}

/// Those with most of the time.
fn longest<'a, 'b>(waits: &[&'b Seen<'a>]) -> Option<&'b Seen<'a>> {
    waits.iter().copied().max_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

fn places_of(places: Option<u64>) -> String {
    match places {
        Some(1) => "one place".into(),
        places => format!("{} places", places.unwrap_or(0)),
    }
}

/// The function that most of the waiting goroutines come from.
fn caller<'a>(waits: &[&Seen<'a>], site: &str) -> Option<&'a str> {
    let longest = longest(waits)?;
    let at = longest.chain.iter().position(|f| *f == site)?;
    longest.chain.get(at + 1).copied()
}
