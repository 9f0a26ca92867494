//! Machines on offer: the cheapest that does what is wanted.

use std::path::Path;

use serde::Deserialize;

use crate::fix::{self, Fix};
use crate::foretell::{self, Effort, Point};
use crate::hardware::{Hardware, Order};
use crate::machines;
use crate::model::Model;
use crate::rank;

/// A machine that meets a target does so at least this likely.
pub const SURE: f64 = 0.9;
/// Cheaper machines on which fixes are tried, at most: those next to the one that meets the target.
const TRIED: usize = 2;

/// Errors in a list of offers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read, or is not a list.
    #[error("{0}")]
    File(String),
    /// A fix could not be tried.
    #[error(transparent)]
    Fix(#[from] fix::Error),
    /// The model cannot be simulated.
    #[error(transparent)]
    Model(#[from] crate::model::Error),
}

/// The required throughput and latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Units a second, at least.
    pub throughput: Option<f64>,
    /// Mean time of a unit, milliseconds, at most.
    pub latency_ms: Option<f64>,
}

impl Target {
    /// The throughput that this target needs with `threads` threads.
    pub fn needed(&self, threads: u32) -> f64 {
        // Little's law: each thread has one unit under way.
        let by_latency = self.latency_ms.map_or(0.0, |ms| f64::from(threads) / (ms * 1e-3));
        self.throughput.unwrap_or(0.0).max(by_latency)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    currency: String,
    #[serde(default)]
    target: Target,
    instance: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    machine: String,
    price: f64,
    memory_gb: Option<f64>,
}

/// A machine on offer.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its name.
    pub name: String,
    /// The machine.
    pub hardware: Hardware,
    /// Its price.
    pub price: f64,
    /// Its memory, bytes, where that is known.
    pub memory: Option<f64>,
}

/// Offers, cheapest first, and what is wanted.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The currency of the prices.
    pub currency: String,
    /// The target.
    pub target: Target,
    /// The offers.
    pub offers: Vec<Offer>,
}

impl Catalogue {
    /// Reads a file; latencies of machines that are given by their shape are those of the processor `like` and its kin.
    ///
    /// # Errors
    /// It cannot be read or is not a list of offers; the message has line and column.
    pub fn read(path: &Path, like: Option<&str>) -> Result<Catalogue, Error> {
        let wrong = |why: String| Error::File(format!("{}: {why}", path.display()));
        let text = ncpu_files::text(path).map_err(|e| wrong(e.to_string()))?;
        let file: File = toml::from_str(&text).map_err(|e| wrong(crate::place::wrong(&text, &e)))?;
        if file.instance.is_empty() {
            return Err(wrong("no [[instance]]".into()));
        }
        let mut offers = Vec::new();
        for entry in file.instance {
            let of = |why: String| wrong(format!("instance {}: {why}", entry.name));
            for (key, x) in [("price", Some(entry.price)), ("memory_gb", entry.memory_gb)] {
                if x.is_some_and(|x| !(x > 0.0 && x.is_finite())) {
                    return Err(of(format!("{key} = {}: give a number above 0", x.unwrap_or(0.0))));
                }
            }
            let hardware = machines::find(&entry.machine, like).map_err(|e| of(e.to_string()))?;
            let memory = entry.memory_gb.map(|gb| gb * 1e9);
            offers.push(Offer { name: entry.name, hardware, price: entry.price, memory });
        }
        offers.sort_by(|a, b| a.price.total_cmp(&b.price));
        let currency = if file.currency.is_empty() { "price".into() } else { file.currency };
        Ok(Catalogue { currency, target: file.target, offers })
    }
}

/// The forecast for an offer.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The offer.
    pub offer: Offer,
    /// The point at all of its CPUs.
    pub point: Point,
    /// How likely it meets the target; 0 where its memory is too small.
    pub chance: f64,
    /// It has less memory than the program used.
    pub too_small: bool,
}

/// A fix with which a cheaper machine meets the target.
#[derive(Clone, Debug)]
pub struct Instead {
    /// The machine.
    pub name: String,
    /// Its price.
    pub price: f64,
    /// The fix.
    pub fix: Fix,
    /// The factor by which it multiplies the throughput.
    pub gain: f64,
    /// How likely the machine meets the target then.
    pub chance: f64,
}

/// The offers, cheapest first, the cheapest one that meets the target, and a fix with which a cheaper one meets it.
#[derive(Clone, Debug, Default)]
pub struct Bought {
    /// The offers.
    pub all: Vec<Judged>,
    /// The cheapest that meets the target, as an index.
    pub chosen: Option<usize>,
    /// A fix that is worth more than the more expensive machine.
    pub instead: Option<Instead>,
}

/// Judges all offers.
///
/// # Errors
/// The model cannot be simulated.
pub fn buy(
    model: &Model,
    catalogue: &Catalogue,
    order: Order,
    effort: &Effort,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Bought, Error> {
    let used = model.recorded.as_ref().map_or(0, |r| r.resident_bytes) as f64;
    let mut all = Vec::new();
    for offer in &catalogue.offers {
        let cpus = offer.hardware.shape.cpus();
        let points = foretell::points(model, &offer.hardware, &[cpus], order, effort, stop)?;
        let Some(point) = points.into_iter().next() else { break };
        let too_small = offer.memory.is_some_and(|memory| memory < used);
        let chance = if too_small { 0.0 } else { meets(&point, catalogue.target.needed(point.threads), 1.0) };
        all.push(Judged { offer: offer.clone(), point, chance, too_small });
    }
    let chosen = all.iter().position(|judged| judged.chance >= SURE);
    let cheaper: Vec<&Judged> =
        all[..chosen.unwrap_or(all.len())].iter().filter(|judged| !judged.too_small).collect();
    let mut instead: Option<Instead> = None;
    for judged in cheaper.iter().rev().take(TRIED) {
        let point = &judged.point;
        let needed = catalogue.target.needed(point.threads);
        let ranked = rank::rank(model, &judged.offer.hardware, point, order, effort, stop, |_, _| ())?;
        let best = ranked.tried.iter().filter(|tried| tried.gain > 1.0 + ranked.scatter).find_map(|tried| {
            let chance = meets(point, needed, tried.gain);
            (chance >= SURE).then(|| Instead {
                name: judged.offer.name.clone(),
                price: judged.offer.price,
                fix: tried.fix.clone(),
                gain: tried.gain,
                chance,
            })
        });
        instead = best.or(instead);
    }
    Ok(Bought { all, chosen, instead })
}

/// How likely a point does what is needed, were its throughput multiplied so.
fn meets(point: &Point, needed: f64, gain: f64) -> f64 {
    point.chances.as_ref().map_or(0.0, |chances| 1.0 - chances.at_most(needed / gain))
}
