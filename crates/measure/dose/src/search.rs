//! The experiment: windows in blocks, place by place, until each answer is known or the time is over.

use std::time::Duration;

use ncpu_schema::{DosePlace, DoseVerdict};
use ncpu_statistics::{mean, middle};

use crate::fit::{self, LEAST_BLOCKS, Slope, Window};
use crate::gain::{Figure, Program, Repair, binding, gain, serial, shorter};
use crate::place::{Candidate, is_exclusive};

/// Doses of a block, in units of the smallest.
const LEVELS: [u32; 4] = [0, 1, 2, 4];

/// The largest dose, ns.
pub const MOST_NS: u32 = 100_000;

/// The smallest unit of doses, ns: reading the clock takes about this long.
const LEAST_NS: u32 = 40;

/// The slowdown to aim at with the largest dose, and the one for a lock of a command, whose effect is a line; the unit
/// is changed outside these parts of it.
const WANTED: f64 = 0.25;
const WANTED_OF_A_LOCK: f64 = 0.5;
const TOO_LITTLE: f64 = 0.5;
const TOO_MUCH: f64 = 1.5;

/// The chance at which a place that does nothing is taken for one that binds.
const CERTAIN: f64 = 0.01;

/// Blocks that each place has before those that take little wait for the others.
const FIRST_BLOCKS: usize = 4;

/// The part of the largest time of a place below which another's is little.
const MUCH_LESS: f64 = 0.25;

/// Blocks in a row that may be lost.
const MOST_LOST: usize = 12;

/// The part of the allowed slowdown that is used: what a dose does is known after it.
const AIMED: f64 = 0.8;

/// The chance that an interval does not hold the figure.
const LEVEL: f64 = 0.05;

/// A probe without a dose that multiplies the time of operations by more than this measures another program.
const MOST_PROBE: f64 = 2.0;
/// Of a lock for which threads wait for this part of the CPUs without the probe: it holds them up all the more with it.
const MOST_PROBE_OF_A_LOCK: f64 = 4.0;
const WAITED_FOR: f64 = 0.2;

/// A dose that slows the program by more than this of itself, beyond chance, does something else too: what it leaves behind is not
/// what the place costs. Of a lock, several threads may come late for one dose.
const MOST_BINDS: f64 = 1.2;

/// A gain below this is none.
pub const LEAST_GAIN: f64 = 1.02;

/// The kind of the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The program as it is, without doses.
    Free,
    /// The same on one CPU.
    OneCpu,
    /// Hits of a place are made slower; with a dose of 0 they are only counted.
    Dose {
        /// Its number among the candidates.
        place: usize,
        /// The dose.
        ns: u32,
    },
}

/// The measurements of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Its length.
    pub seconds: f64,
    /// Operations a second.
    pub speed: f64,
    /// Hits of the place.
    pub hits: u64,
    /// ns spun, all CPUs together.
    pub spun: u64,
    /// Doses left out since their CPU had spun for too long.
    pub refused: u64,
    /// CPUs that other programs used meanwhile.
    pub others: f64,
    /// CPUs that the program used; 0 where that is not known.
    pub own: f64,
    /// The part of the time for which the one CPU idled, 0–1, in a window on one; 0 where that is not known.
    pub idled: f64,
    /// In which run of the program it was: another run is another block.
    pub run: u64,
}

/// How a window went.
#[derive(Clone, Debug, PartialEq)]
pub enum Went {
    /// As ordered.
    Well(Seen),
    /// The program ended, or told nothing; it may be tried again.
    Lost,
    /// The kernel gives no doses there, and why.
    Refused(String),
    /// The user has ended it, or a running program is gone.
    Over,
}

/// Measures windows.
pub trait Bench {
    /// Its errors.
    type Error;

    /// Makes one.
    ///
    /// # Errors
    /// The program cannot be run.
    fn window(&mut self, order: Order) -> Result<Went, Self::Error>;

    /// Seconds since the experiment began.
    fn seconds(&self) -> f64;

    /// A line about what is done now.
    fn progress(&mut self, words: &str);
}

/// Settings of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Begin no block after this.
    pub length: Duration,
    /// Blocks of each place, at most.
    pub blocks: usize,
    /// The most that doses may slow the program on average over the experiment, as a part of its speed.
    pub most_slowdown: Option<f64>,
    /// CPUs that the program may use.
    pub cpus: f64,
    /// Threads that compute; 0 where that is not known.
    pub threads: usize,
    /// Whether the program may be confined to one CPU for short times.
    pub anchor: bool,
    /// Seconds of a window.
    pub window: f64,
}

/// A place with what was measured of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dosed {
    /// The place.
    pub candidate: Candidate,
    /// Blocks that were whole.
    pub blocks: usize,
    /// The largest dose that was given, ns a hit.
    pub dose: f64,
    /// Hits a second without a dose.
    pub hits: f64,
    /// The slope, where there are blocks enough.
    pub slope: Option<Slope>,
    /// Operations' time with the probe attached and no dose, over that without it.
    pub probe: Option<f64>,
    /// The share of doses that the program feels.
    pub binds: Option<Figure>,
    /// Speed without the place over speed with it.
    pub removed: Option<Figure>,
    /// Speed if it took half the time.
    pub halved: Option<Figure>,
    /// The answer.
    pub verdict: DoseVerdict,
    /// Why there is none, in words.
    pub why: Option<String>,
}

/// The results of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The places, largest gain first.
    pub places: Vec<Dosed>,
    /// Operations a second, as the program is.
    pub speed: f64,
    /// Speed without any contention over its speed.
    pub anchor: Option<Figure>,
    /// The part of the time for which the one CPU of the anchor idled, 0–1: where it is above [`MOST_IDLE`] there is no anchor, since the
    /// program then waits for something else than CPUs.
    pub idled: f64,
    /// CPUs that other programs used.
    pub others: f64,
    /// Its average loss of speed to doses, 0–1.
    pub slowdown: f64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Seconds of windows in which a dose was given.
    pub dosed: f64,
    /// CPU-seconds spun.
    pub spun: f64,
    /// Doses left out since their CPU had spun for too long.
    pub refused: u64,
    /// Windows that were lost.
    pub lost: usize,
    /// Whether the user ended it.
    pub over: bool,
    /// The windows of whole blocks.
    pub windows: Vec<Made>,
}

/// A window of a whole block.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// The place's kind and name.
    pub kind: DosePlace,
    /// Its name.
    pub name: String,
    /// Its block.
    pub block: usize,
    /// The dose that was ordered, ns; `None` without the probe.
    pub level: Option<u32>,
    /// ns that a hit was made longer, on average.
    pub dose: f64,
    /// The measurements of the window.
    pub seen: Seen,
}

/// A place while it is measured.
struct State {
    candidate: Candidate,
    unit: u32,
    windows: Vec<Window>,
    /// Speed with the probe and no dose, over that without.
    probes: Vec<f64>,
    hits: f64,
    seconds: f64,
    /// CPU-seconds of the program in these seconds.
    own: f64,
    blocks: usize,
    /// Blocks that were lost since the last whole one.
    lost: usize,
    done: bool,
    refused: Option<String>,
}

/// Sums over all windows.
#[derive(Default)]
struct Sums {
    /// Seconds, and seconds lost to doses, of all windows and rests.
    seconds: f64,
    harm: f64,
    free: Vec<f64>,
    /// CPU-seconds that other programs used, and seconds of the windows in which that was seen.
    others: (f64, f64),
    /// Logarithms of speeds on one CPU over speeds on all, of windows side by side.
    anchors: Vec<f64>,
    /// Seconds for which the CPU of these windows idled, and their seconds.
    idled: (f64, f64),
    found: Found,
}

/// Measures the candidates.
///
/// # Errors
/// The program cannot be run.
pub fn search<B: Bench>(
    bench: &mut B,
    options: &Options,
    candidates: Vec<Candidate>,
) -> Result<Found, B::Error> {
    let mut states: Vec<State> = candidates
        .into_iter()
        .map(|candidate| State {
            unit: first_unit(&candidate, options),
            candidate,
            windows: Vec::new(),
            probes: Vec::new(),
            hits: 0.0,
            seconds: 0.0,
            own: 0.0,
            blocks: 0,
            lost: 0,
            done: false,
            refused: None,
        })
        .collect();
    let mut sums = Sums::default();
    let mut order: Vec<usize> = (0..states.len()).collect();
    let mut round = 0;
    'all: while states.iter().any(|state| !state.done) || (states.is_empty() && round < LEAST_BLOCKS) {
        round += 1;
        if options.anchor && (round <= 8 || round % 4 == 0) && anchor(bench, &mut sums)? {
            break;
        }
        fastrand::shuffle(&mut order);
        for &at in &order {
            if states[at].done || !has_its_turn(&states, at, round) {
                continue;
            }
            if bench.seconds() >= options.length.as_secs_f64() {
                break 'all;
            }
            let left = states.iter().filter(|state| !state.done).count();
            let words = states[at].candidate.words();
            bench.progress(&format!("block {round}, {left} places: {words}"));
            if block(bench, options, &mut states[at], at, round, &mut sums)? {
                break 'all;
            }
            let program = program(&sums, options);
            states[at].done |= is_known(&states[at], program, options);
        }
        if bench.seconds() >= options.length.as_secs_f64() {
            break;
        }
    }
    let program = program(&sums, options);
    let mut found = std::mem::take(&mut sums.found);
    found.places = states.into_iter().map(|state| answer(state, program)).collect();
    found.places.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    found.speed = mean(&sums.free).map_or(sums.free.first().copied().unwrap_or(0.0), |m| m.mean);
    found.anchor = program.anchor;
    found.idled = idled(&sums);
    found.others = others(&sums);
    found.slowdown = if sums.seconds > 0.0 { sums.harm / sums.seconds } else { 0.0 };
    found.seconds = bench.seconds();
    Ok(found)
}

/// Whether a place has its turn in a round: all have their first blocks; later work that takes much less time than other work has one
/// in three. The time that threads wait for a lock does not show what it may cost.
fn has_its_turn(states: &[State], at: usize, round: usize) -> bool {
    let takes = |state: &State| state.candidate.busy.filter(|_| !is_exclusive(state.candidate.kind));
    let most = states.iter().filter(|state| !state.done).filter_map(takes).fold(0.0, f64::max);
    let little = takes(&states[at]).is_some_and(|busy| busy < MUCH_LESS * most);
    states[at].blocks < FIRST_BLOCKS || round.is_multiple_of(3) || !little
}

/// The order of places: by their gain, those without one last.
fn worth(place: &Dosed) -> f64 {
    match (place.verdict, place.removed) {
        (DoseVerdict::Binds | DoseVerdict::Parallel, Some(gain)) => gain.value,
        (DoseVerdict::Binds, None) => LEAST_GAIN,
        (DoseVerdict::Unknown, _) => 1.0,
        _ => 0.0,
    }
}

/// A unit at which the largest dose should slow the program by what is wanted: where each hit delays all of it, of what one
/// thread holds at a time; of other places, where each delays one CPU.
fn first_unit(candidate: &Candidate, options: &Options) -> u32 {
    let beside = if is_exclusive(candidate.kind) { options.cpus.max(1.0) } else { 1.0 };
    let largest = largest_unit(candidate, options, candidate.rate);
    ((f64::from(largest) / beside) as u32).max(LEAST_NS)
}

fn wanted(candidate: &Candidate, options: &Options) -> f64 {
    match options.most_slowdown.is_none() && is_exclusive(candidate.kind) {
        true => WANTED_OF_A_LOCK,
        false => WANTED,
    }
}

/// The largest unit for a place with `rate` hits a second: larger units would slow work side by side by more than
/// wanted. A place that slows the program by less does not bind, and larger doses would only make it the next one that
/// binds.
fn largest_unit(candidate: &Candidate, options: &Options, rate: f64) -> u32 {
    let wanted = wanted(candidate, options);
    let unit = 1e9 * wanted / (1.0 - wanted) * options.cpus.max(1.0) / (rate.max(1.0) * f64::from(LEVELS[3]));
    (unit as u32).clamp(LEAST_NS, MOST_NS / LEVELS[3])
}

fn program(sums: &Sums, options: &Options) -> Program {
    let cpus = (options.cpus - others(sums)).max(options.cpus / 2.0).max(1.0);
    let anchor = mean(&sums.anchors).filter(|_| idled(sums) <= MOST_IDLE).map(|m| {
        let speed = |log: f64| cpus * log.exp();
        Figure { value: speed(m.mean), low: speed(m.mean - m.half), high: speed(m.mean + m.half) }
    });
    Program { cpus, threads: options.threads, anchor }
}

/// CPUs that other programs used on average.
fn others(sums: &Sums) -> f64 {
    if sums.others.1 > 0.0 { sums.others.0 / sums.others.1 } else { 0.0 }
}

/// The part of the time for which the one CPU of the anchor may idle: a program that leaves it idle waits for devices, timers or others, and
/// would not do as much again on each further CPU.
pub const MOST_IDLE: f64 = 0.1;

/// The part of the time for which the one CPU of the anchor idled.
fn idled(sums: &Sums) -> f64 {
    if sums.idled.1 > 0.0 { sums.idled.0 / sums.idled.1 } else { 0.0 }
}

/// A window beside another on one CPU. Whether all is over.
fn anchor<B: Bench>(bench: &mut B, sums: &mut Sums) -> Result<bool, B::Error> {
    bench.progress("on one CPU, without contention");
    let mut pair = [None; 2];
    let mut orders = [(0, Order::Free), (1, Order::OneCpu)];
    fastrand::shuffle(&mut orders);
    for (at, order) in orders {
        match bench.window(order)? {
            Went::Well(seen) if seen.speed > 0.0 => {
                sums.seconds += seen.seconds;
                pair[at] = Some(seen);
            }
            Went::Well(_) | Went::Lost | Went::Refused(_) => sums.found.lost += 1,
            Went::Over => {
                sums.found.over = true;
                return Ok(true);
            }
        }
    }
    if let [Some(free), Some(one)] = pair {
        sums.free.push(free.speed);
        sums.anchors.push((one.speed / free.speed).ln());
        sums.idled.0 += one.idled * one.seconds;
        sums.idled.1 += one.seconds;
    }
    Ok(false)
}

/// A block of a place: a window without the probe and one of each dose, in random order. Whether all is over.
fn block<B: Bench>(
    bench: &mut B,
    options: &Options,
    state: &mut State,
    place: usize,
    number: usize,
    sums: &mut Sums,
) -> Result<bool, B::Error> {
    let mut orders = vec![Order::Free];
    orders.extend(LEVELS.map(|level| Order::Dose { place, ns: level * state.unit }));
    fastrand::shuffle(&mut orders);
    let mut seen: Vec<(Order, Seen)> = Vec::new();
    // Seconds of this block so far, and those that its doses are expected to have cost.
    let (mut seconds, mut pending) = (0.0, 0.0);
    for order in orders {
        if let (Order::Dose { ns, .. }, Some(most)) = (order, options.most_slowdown)
            && ns > 0
        {
            // As much time without a dose as keeps the average, if this window stood still.
            let harm = expected(state, ns) * options.window;
            while sums.harm + pending + harm > AIMED * most * (sums.seconds + seconds + options.window) {
                match bench.window(Order::Free)? {
                    Went::Well(rest) => {
                        sums.seconds += rest.seconds;
                        sums.free.push(rest.speed);
                    }
                    Went::Lost | Went::Refused(_) => sums.found.lost += 1,
                    Went::Over => {
                        sums.found.over = true;
                        return Ok(true);
                    }
                }
                if bench.seconds() >= options.length.as_secs_f64() {
                    return Ok(false);
                }
            }
        }
        match bench.window(order)? {
            Went::Well(window) => {
                seconds += window.seconds;
                sums.others.0 += window.others * window.seconds;
                sums.others.1 += window.seconds;
                if let Order::Dose { ns, .. } = order {
                    pending += expected(state, ns) * window.seconds;
                }
                seen.push((order, window));
            }
            Went::Lost => {
                sums.found.lost += 1;
                sums.seconds += seconds;
                sums.harm += pending;
                state.lost += 1;
                state.done |= state.lost >= MOST_LOST;
                return Ok(false);
            }
            Went::Refused(why) => {
                state.refused = Some(why);
                state.done = true;
                return Ok(false);
            }
            Went::Over => {
                sums.found.over = true;
                return Ok(true);
            }
        }
    }
    take(state, options, number, &seen, sums);
    Ok(false)
}

/// The loss of speed that a dose is expected to cause: by the slope, or the most that it can.
fn expected(state: &State, ns: u32) -> f64 {
    let dose = f64::from(ns);
    let slope = fit::slope(&state.windows).map(|slope| slope.interval(LEVEL).1);
    let most = slope.unwrap_or(state.candidate.rate / 1e9);
    1.0 - 1.0 / (1.0 + (most * dose).max(0.0))
}

/// Takes a whole block in, and changes the unit where doses do too much or too little.
fn take(state: &mut State, options: &Options, number: usize, seen: &[(Order, Seen)], sums: &mut Sums) {
    let zero =
        seen.iter().find(|(order, _)| matches!(order, Order::Dose { ns: 0, .. })).map(|(_, seen)| *seen);
    let Some(zero) = zero.filter(|zero| zero.speed > 0.0) else {
        sums.found.lost += 1;
        return;
    };
    let same_run = seen.iter().all(|(_, seen)| seen.run == zero.run || seen.run == 0);
    for (order, seen) in seen {
        sums.seconds += seen.seconds;
        sums.found.refused += seen.refused;
        match *order {
            Order::Free => sums.free.push(seen.speed),
            Order::Dose { ns, .. } if ns > 0 => {
                sums.found.dosed += seen.seconds;
                sums.found.spun += seen.spun as f64 / 1e9;
                sums.harm += (1.0 - seen.speed / zero.speed).clamp(0.0, 1.0) * seen.seconds;
            }
            Order::Dose { .. } | Order::OneCpu => {}
        }
    }
    if !same_run {
        sums.found.lost += 1;
        return;
    }
    let free = seen.iter().find(|(order, _)| *order == Order::Free).map(|(_, seen)| seen.speed);
    state.probes.extend(free.filter(|speed| *speed > 0.0).map(|speed| speed / zero.speed));
    state.blocks += 1;
    state.lost = 0;
    state.hits += zero.hits as f64;
    state.seconds += zero.seconds;
    state.own += zero.own * zero.seconds;
    let block = number;
    let mut most: f64 = 0.0;
    for (order, seen) in seen {
        let made = |level, dose| Made {
            kind: state.candidate.kind,
            name: state.candidate.name.clone(),
            block,
            level,
            dose,
            seen: *seen,
        };
        let Order::Dose { ns, .. } = *order else {
            sums.found.windows.push(made(None, 0.0));
            continue;
        };
        // A hit's dose, with those that were left out.
        let each = |seen: &Seen| seen.spun as f64 / seen.hits as f64;
        let dose = match (seen.hits, zero.hits) {
            _ if ns == 0 => 0.0,
            (0, _) | (_, 0) => continue,
            _ => (each(seen) - each(&zero)).max(0.0),
        };
        most = most.max(1.0 - seen.speed / zero.speed);
        sums.found.windows.push(made(Some(ns), dose));
        state.windows.push(Window { block, dose, speed: seen.speed });
    }
    if state.blocks <= 6 || state.blocks.is_multiple_of(4) {
        // One window may be wrong by chance: all blocks together say how much the largest dose does.
        let slope = fit::slope(&state.windows).map_or(0.0, |slope| slope.value());
        let largest = f64::from(state.unit * LEVELS[3]);
        let does =
            if state.blocks < LEAST_BLOCKS { most } else { 1.0 - 1.0 / (1.0 + (slope * largest).max(0.0)) };
        let wanted = wanted(&state.candidate, options);
        state.unit = match does {
            d if d > TOO_MUCH * wanted => state.unit / 2,
            d if d < TOO_LITTLE * wanted => state.unit.saturating_mul(2),
            _ => state.unit,
        }
        .clamp(LEAST_NS, largest_unit(&state.candidate, options, state.hits / state.seconds));
    }
}

/// Whether more blocks would say nothing new.
fn is_known(state: &State, program: Program, options: &Options) -> bool {
    if state.blocks >= options.blocks {
        return true;
    }
    if state.blocks < 6 {
        return false;
    }
    let place = answer_of(state, program);
    match (place.verdict, place.removed) {
        (DoseVerdict::Nothing, _) => true,
        (DoseVerdict::Binds | DoseVerdict::Parallel, Some(gain)) => gain.high / gain.low < 1.12,
        _ => false,
    }
}

fn answer(state: State, program: Program) -> Dosed {
    answer_of(&state, program)
}

fn answer_of(state: &State, program: Program) -> Dosed {
    let slope = fit::slope(&state.windows);
    let hits = if state.seconds > 0.0 { state.hits / state.seconds } else { 0.0 };
    let mut candidate = state.candidate.clone();
    let taken = if candidate.sleeps { of_cpus(state, program) } else { 0.0 };
    let within = |level| {
        let binds = slope.as_ref().and_then(|slope| binding(slope, hits, level))?;
        Some(Figure { low: binds.low - taken, ..binds })
    };
    let (binds, certain) = (within(LEVEL), within(CERTAIN));
    let of_share = candidate.share.filter(|_| state.own > 0.0).map(|share| share * state.own / state.seconds);
    let of_hits = candidate.each.filter(|_| hits > 0.0).map(|each| each * hits);
    if let Some(busy) = of_share.or(of_hits) {
        candidate.busy = Some(busy);
        candidate.bound = candidate.bound.map(|_| shorter(busy / program.cpus));
    }
    let removed = binds.and_then(|binds| gain(&candidate, binds, program, Repair::Removed));
    let halved = binds.and_then(|binds| gain(&candidate, binds, program, Repair::Halved));
    let (verdict, why) = verdict(state, &candidate, program, certain, removed);
    Dosed {
        blocks: state.blocks,
        dose: state.windows.iter().map(|w| w.dose).fold(0.0, f64::max),
        hits,
        slope,
        probe: middle(&state.probes).map(|m| m.0),
        binds,
        removed,
        halved,
        verdict,
        why,
        candidate,
    }
}

/// How much of a dose binds by the CPU that it takes from other threads, at most: a thread that sleeps takes none. All of it where
/// CPUs are never idle, none where each thread has a CPU.
fn of_cpus(state: &State, program: Program) -> f64 {
    if program.threads > 0 && program.threads as f64 <= program.cpus.ceil() {
        return 0.0;
    }
    let own = if state.own > 0.0 { state.own / state.seconds } else { program.cpus };
    (own / program.cpus).min(1.0) / program.cpus
}

fn verdict(
    state: &State,
    candidate: &Candidate,
    program: Program,
    certain: Option<Figure>,
    removed: Option<Figure>,
) -> (DoseVerdict, Option<String>) {
    let unknown = |why: &str| (DoseVerdict::Unknown, Some(why.to_owned()));
    if let Some(why) = &state.refused {
        return (DoseVerdict::Unknown, Some(why.clone()));
    }
    if state.blocks < LEAST_BLOCKS {
        return match state.done {
            true => unknown("the program ended, gave no speed or did not come to it in most windows"),
            false => unknown("too few whole blocks"),
        };
    }
    let Some(certain) = certain else {
        return match state.hits > 0.0 {
            true => unknown("too few blocks"),
            false => unknown("no thread came to it while it was measured"),
        };
    };
    let waited_for = candidate.bound.is_some_and(|bound| 1.0 - 1.0 / bound >= WAITED_FOR);
    let most_probe = match is_exclusive(candidate.kind) && waited_for {
        true => MOST_PROBE_OF_A_LOCK,
        false => MOST_PROBE,
    };
    if let Some(probe) = middle(&state.probes).map(|m| m.0).filter(|probe| *probe > most_probe) {
        let share = 100.0 * (1.0 - 1.0 / probe);
        return (DoseVerdict::Unknown, Some(format!("the probe alone takes {share:.0} % of the speed")));
    }
    let most = gain(candidate, certain, program, Repair::Removed);
    if most.is_some_and(|gain| gain.high < LEAST_GAIN) {
        return (DoseVerdict::Nothing, None);
    }
    let exclusive = is_exclusive(candidate.kind);
    if !exclusive && certain.low > MOST_BINDS {
        let times = certain.value;
        return unknown(&format!("a dose slows the program by {times:.1} times what the dose takes"));
    }
    // The effect beyond chance; for a lock also beyond that of work side by side.
    let felt = if exclusive { serial(certain.low, program.cpus) > 0.0 } else { certain.low > 0.0 };
    match (felt, removed) {
        (true, Some(gain)) if gain.low >= LEAST_GAIN || gain.value >= 1.5 * LEAST_GAIN => {
            let alone = serial(certain.low, program.cpus) > 0.0;
            (if alone { DoseVerdict::Binds } else { DoseVerdict::Parallel }, None)
        }
        (true, None) => {
            (DoseVerdict::Binds, Some("its time, and so what its removal gives, is not known".into()))
        }
        (true, Some(_)) => unknown("its gain is within 2 % of none"),
        (false, _) if candidate.sleeps => {
            unknown("its doses may take CPUs from other threads, as its sleep does not")
        }
        (false, _) => unknown("its effect is within the noise"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A program with a lock, a call, and a lock that nobody waits for; each operation passes all of them once.
    struct Passing {
        random: fastrand::Rng,
        seconds: f64,
        phase: f64,
        /// ns that the lock is held, and that the call and the rest of an operation take.
        lock: f64,
        call: f64,
        rest: f64,
        cpus: f64,
        /// The part of the CPUs that it uses.
        used: f64,
        noise: f64,
        /// The part of the time for which it leaves one CPU idle.
        idles: f64,
        /// Delay of the program by a dose of the call, over the dose.
        times: f64,
        /// Windows until the user stops it.
        most: usize,
        /// Loss of speed to doses, and the time.
        harm: (f64, f64),
    }

    impl Passing {
        fn new(seed: u64) -> Passing {
            Passing {
                random: fastrand::Rng::with_seed(seed),
                seconds: 0.0,
                phase: 0.0,
                lock: 400.0,
                call: 200.0,
                rest: 300.0,
                cpus: 4.0,
                used: 0.8,
                noise: 0.03,
                idles: 0.0,
                times: 1.0,
                most: usize::MAX,
                harm: (0.0, 0.0),
            }
        }

        /// ns an operation: the lock's where it is the longest, or all work side by side.
        fn time(&self, lock: f64, call: f64, cpus: f64) -> f64 {
            let own = self.rest + self.lock + lock + self.call + call;
            (self.lock + lock).max(own / cpus)
        }
    }

    impl Bench for Passing {
        type Error = Infallible;

        fn window(&mut self, order: Order) -> Result<Went, Infallible> {
            if self.most == 0 {
                return Ok(Went::Over);
            }
            self.most -= 1;
            self.seconds += 0.1;
            self.phase += 0.03 * (self.random.f64() - 0.5);
            let noise = 1.0 + self.noise * (self.random.f64() - 0.5) * 12f64.sqrt() + self.phase;
            if self.random.f64() < 0.02 {
                return Ok(Went::Lost);
            }
            let time = match order {
                Order::Free | Order::Dose { ns: 0, .. } => self.time(0.0, 0.0, self.cpus),
                Order::OneCpu => self.time(0.0, 0.0, 1.0),
                Order::Dose { place: 0, ns } => self.time(ns.into(), 0.0, self.cpus),
                Order::Dose { place: 1, ns } => self.time(0.0, self.times * f64::from(ns), self.cpus),
                Order::Dose { place: 2, .. } => self.time(0.0, 0.0, self.cpus),
                Order::Dose { .. } => return Ok(Went::Refused("no such place".into())),
            };
            let speed = 1e9 / (time * noise);
            let each = if let Order::Dose { place: 2, .. } = order { 0.05 } else { 1.0 };
            let hits = (0.1 * speed * each) as u64;
            let ns = if let Order::Dose { ns, .. } = order { ns } else { 0 };
            let bare = self.time(0.0, 0.0, self.cpus);
            if order != Order::OneCpu {
                self.harm = (self.harm.0 + 0.1 * (1.0 - bare / time), self.harm.1 + 0.1);
            }
            Ok(Went::Well(Seen {
                seconds: 0.1,
                speed,
                hits,
                spun: hits * u64::from(ns),
                refused: 0,
                others: 0.0,
                own: self.used * self.cpus,
                idled: if order == Order::OneCpu { self.idles } else { 0.0 },
                run: 1,
            }))
        }

        fn seconds(&self) -> f64 {
            self.seconds
        }

        fn progress(&mut self, _: &str) {}
    }

    fn candidates() -> Vec<Candidate> {
        let candidate =
            |kind, name, busy, rate| Candidate { busy: Some(busy), ..Candidate::new(kind, name, rate) };
        vec![
            candidate(DosePlace::KernelLock, "hot", 1.0, 2.5e6),
            candidate(DosePlace::Call, "work", 0.5, 2.5e6),
            candidate(DosePlace::KernelLock, "idle", 0.01, 1.2e5),
            candidate(DosePlace::Call, "missing", 0.1, 1e3),
        ]
    }

    fn options(cpus: f64) -> Options {
        Options {
            length: Duration::from_secs(120),
            blocks: 24,
            most_slowdown: None,
            cpus,
            threads: 16,
            anchor: true,
            window: 0.1,
        }
    }

    fn of<'a>(found: &'a Found, name: &str) -> &'a Dosed {
        found.places.iter().find(|p| p.candidate.name == name).unwrap()
    }

    #[test]
    fn the_lock_that_binds_is_found_and_the_others_are_not() {
        fastrand::seed(11);
        let mut made = Passing::new(11);
        let found = search(&mut made, &options(4.0), candidates()).unwrap();
        // Held for 400 of the 900 ns an operation takes alone: four CPUs do 4 / 900, and the lock lets 1 / 400 pass.
        let truth = 400.0 / 225.0;
        let hot = of(&found, "hot");
        assert_eq!(hot.verdict, DoseVerdict::Binds, "{hot:?}");
        let gain = hot.removed.unwrap();
        assert!((gain.value / truth - 1.0).abs() < 0.15, "{gain:?}");
        // A lock cannot bind more than wholly, so noise takes from it and does not add.
        assert!(gain.low < truth && truth < 1.05 * gain.high, "{gain:?}");
        assert_eq!(found.places[0].candidate.name, "hot");
        // While the lock is the longest, a longer call costs nothing.
        for name in ["work", "idle"] {
            let place = of(&found, name);
            assert!(matches!(place.verdict, DoseVerdict::Nothing | DoseVerdict::Unknown), "{place:?}");
        }
        let missing = of(&found, "missing");
        assert_eq!((missing.verdict, missing.why.as_deref()), (DoseVerdict::Unknown, Some("no such place")));
        assert!(!found.over && found.lost > 0);
    }

    #[test]
    fn a_program_that_leaves_one_cpu_idle_has_no_anchor() {
        let of = |idles: f64| {
            fastrand::seed(12);
            let found =
                search(&mut Passing { idles, ..Passing::new(12) }, &options(4.0), candidates()).unwrap();
            assert!((found.idled - idles).abs() < 1e-9, "{}", found.idled);
            (found.anchor.is_some(), found.places[0].removed.is_some())
        };
        assert_eq!(of(0.02), (true, true));
        assert!(!of(0.4).0);
    }

    #[test]
    fn a_dose_that_does_more_than_it_takes_says_nothing() {
        fastrand::seed(13);
        let mut made = Passing { lock: 100.0, times: 12.0, ..Passing::new(13) };
        let mut all = candidates();
        all[1].busy = Some(4.0 * 200.0 / 600.0);
        let found = search(&mut made, &options(4.0), all).unwrap();
        let work = of(&found, "work");
        assert_eq!(work.verdict, DoseVerdict::Unknown, "{work:?}");
        assert!(work.why.as_ref().is_some_and(|why| why.contains("times what the dose takes")), "{work:?}");
    }

    #[test]
    fn what_sleep_costs_is_unknown_where_no_cpu_is_idle_for_the_doses() {
        // The call binds as work side by side does on CPUs that are never idle; so does a call that sleeps where each CPU has a thread.
        let told = |sleeps: bool, used: f64, threads: usize| {
            fastrand::seed(14);
            let mut made = Passing { lock: 100.0, used, ..Passing::new(14) };
            let mut all = candidates();
            all[1] = Candidate { busy: Some(4.0 * 200.0 / 600.0), sleeps, ..all[1].clone() };
            let found = search(&mut made, &Options { threads, ..options(4.0) }, all).unwrap();
            let work = of(&found, "work");
            (work.verdict, work.removed.unwrap(), work.why.clone())
        };
        let (verdict, _, why) = told(true, 1.0, 16);
        assert_eq!(verdict, DoseVerdict::Unknown);
        assert!(why.is_some_and(|why| why.contains("as its sleep does not")));
        let (verdict, sleeping, _) = told(true, 0.1, 16);
        assert_eq!(verdict, DoseVerdict::Parallel);
        let (_, awake, _) = told(false, 0.1, 16);
        assert!(sleeping.low < awake.low, "{sleeping:?} {awake:?}");
        // A thread for each CPU takes none from another.
        assert_eq!(told(true, 1.0, 4).0, DoseVerdict::Parallel);
    }

    #[test]
    fn work_side_by_side_gives_its_share() {
        fastrand::seed(12);
        // A short lock: the call takes 200 of 600 ns.
        let mut made = Passing { lock: 100.0, ..Passing::new(12) };
        let mut all = candidates();
        all[1].busy = Some(4.0 * 200.0 / 600.0);
        let found = search(&mut made, &options(4.0), all).unwrap();
        let work = of(&found, "work");
        assert_eq!(work.verdict, DoseVerdict::Parallel, "{work:?}");
        let gain = work.removed.unwrap();
        assert!((gain.value / 1.5 - 1.0).abs() < 0.2, "{gain:?}");
        let hot = of(&found, "hot");
        assert!(matches!(hot.verdict, DoseVerdict::Nothing | DoseVerdict::Unknown), "{hot:?}");
    }

    #[test]
    fn a_function_s_time_follows_what_the_program_gets_of_the_cpus() {
        fastrand::seed(14);
        let mut made = Passing { lock: 100.0, ..Passing::new(14) };
        // A third of the program's time, at a first look in which others had most of the CPUs.
        let mut all = candidates();
        all[1] = Candidate {
            kind: DosePlace::Function,
            busy: Some(0.1),
            share: Some(1.0 / 3.0),
            ..all[1].clone()
        };
        let found = search(&mut made, &options(4.0), all).unwrap();
        let work = of(&found, "work");
        let busy = work.candidate.busy.unwrap();
        assert!((busy - 0.8 * 4.0 / 3.0).abs() < 1e-6, "{busy}");
        assert!(work.removed.unwrap().value > 1.2, "{work:?}");
    }

    #[test]
    fn the_most_slowdown_is_held() {
        for seed in 0..10 {
            fastrand::seed(seed);
            let mut made = Passing::new(seed);
            let limit = Options { most_slowdown: Some(0.03), anchor: false, ..options(4.0) };
            let found = search(&mut made, &limit, candidates()).unwrap();
            let (lost, seconds) = made.harm;
            assert!(lost / seconds < 0.035, "{seed}: {} of {seconds} s", lost / seconds);
            assert!(found.slowdown < 0.04 && found.dosed > 0.0, "{seed}: {}", found.slowdown);
        }
    }

    #[test]
    fn places_that_do_nothing_are_not_taken_for_causes() {
        // Forty experiments with a place that costs nothing: at 1 in 100 each, four would be a wonder.
        let mut taken = 0;
        for seed in 0..40 {
            fastrand::seed(seed);
            let mut made = Passing { lock: 50.0, ..Passing::new(seed) };
            let idle = vec![candidates().remove(2)];
            let short = Options { length: Duration::from_secs(20), ..options(4.0) };
            // The idle lock's place is number 2 of the made program.
            let mut all = candidates();
            all.truncate(2);
            all.extend(idle);
            let found = search(&mut made, &short, all).unwrap();
            let idle = of(&found, "idle");
            taken += usize::from(matches!(idle.verdict, DoseVerdict::Binds | DoseVerdict::Parallel));
        }
        assert!(taken <= 4, "{taken}");
    }

    #[test]
    fn a_place_that_takes_much_has_more_blocks() {
        fastrand::seed(15);
        let short = Options { length: Duration::from_secs(20), ..options(4.0) };
        // Nothing is known of such windows for long.
        let mut made = Passing { noise: 0.4, lock: 100.0, ..Passing::new(15) };
        let mut all = candidates();
        all.truncate(3);
        all[1].busy = Some(2.0);
        all[2].kind = DosePlace::Call;
        let found = search(&mut made, &short, all).unwrap();
        let blocks: Vec<usize> = ["hot", "work", "idle"].map(|name| of(&found, name).blocks).into();
        let [lock, much, little] = blocks[..] else { panic!("three places") };
        assert!(much > little + little / 2 && lock > little && little >= LEAST_BLOCKS, "{blocks:?}");
    }

    #[test]
    fn what_the_user_stops_says_what_it_knows() {
        let mut made = Passing { most: 7, ..Passing::new(1) };
        let found = search(&mut made, &options(4.0), candidates()).unwrap();
        assert!(found.over);
        assert!(found.places.iter().all(|p| p.verdict == DoseVerdict::Unknown), "{:?}", found.places);
    }
}
