//! What-ifs: changes of a program or machine, as people write them.

use crate::hardware::{Hardware, Order};
use crate::model::{MOST_HELPERS, MOST_LINES, Model};

/// A change that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not one that there is.
    #[error("--fix '{0}' is no fix; there are: {FORMS}")]
    Form(String),
    /// No such lock or line.
    #[error("--fix '{fix}': the model has no {what} `{name}`; it has {there}")]
    Name {
        /// As given.
        fix: String,
        /// `lock` or `line`.
        what: &'static str,
        /// As given.
        name: String,
        /// Those that there are.
        there: String,
    },
    /// A number that makes no sense.
    #[error("--fix '{0}': {1}")]
    Number(String, String),
}

/// The forms a fix may have.
pub const FORMS: &str = "lock NAME removed, lock NAME split K, lock NAME ticket|qspin|tas|numa|mutex|rwsem|adaptive|block, \
     lock NAME shorter K, line NAME per-cpu|bounded, line NAME split K, shootdowns per-package, shootdowns batched K, serial less K, \
     work less K, sleep less K, polls batched K, accept balanced, populate K, huge-pages, memory local|interleaved|node0, \
     ticks off|on-one|per-cpu, smt off, place spread|pack|fill";

/// Makes a change.
///
/// # Errors
/// There is no such change, or nothing that it could be made to.
pub fn apply(fix: &str, model: &mut Model, hardware: &mut Hardware, order: &mut Order) -> Result<(), Error> {
    let words: Vec<&str> = fix.split_whitespace().collect();
    let form = || Error::Form(fix.into());
    let number = |word: &str| -> Result<f64, Error> {
        match word.parse::<f64>() {
            Ok(k) if (1.0..=1e9).contains(&k) => Ok(k),
            _ => Err(Error::Number(fix.into(), format!("`{word}`: give a number of 1 or more"))),
        }
    };
    match words.as_slice() {
        ["lock", name @ .., last]
            if !name.is_empty() && !matches!(name.last(), Some(&("split" | "shorter"))) =>
        {
            let at = lock(fix, model, &name.join(" "))?;
            if *last == "removed" {
                let gone = model.lock.remove(at);
                // Its work is still done, by all at once.
                model.work_ns += gone.takes * gone.hold_ns;
            } else if ["ticket", "qspin", "tas", "numa", "mutex", "rwsem", "adaptive", "block"].contains(last)
            {
                model.lock[at].kind = (*last).into();
            } else {
                return Err(form());
            }
        }
        ["lock", name @ .., what @ ("split" | "shorter"), k] if !name.is_empty() => {
            let at = lock(fix, model, &name.join(" "))?;
            let k = number(k)?;
            if *what == "split" {
                if k > 65_536.0 {
                    return Err(Error::Number(fix.into(), "at most 65536 ways".into()));
                }
                model.lock[at].copies *= k as u32;
            } else {
                let held = model.lock[at].hold_ns;
                model.lock[at].hold_ns = held / k;
                model.work_ns += model.lock[at].takes * held * (1.0 - 1.0 / k);
            }
        }
        ["line", name @ .., "per-cpu"] => {
            let at = line(fix, model, &name.join(" "))?;
            model.line[at].copies = 0;
        }
        ["line", name @ .., "bounded"] => {
            let at = line(fix, model, &name.join(" "))?;
            model.line[at].bounded = true;
        }
        ["line", name @ .., "split", k] => {
            let at = line(fix, model, &name.join(" "))?;
            let copies = f64::from(model.line[at].copies.max(1)) * number(k)?;
            if copies > f64::from(MOST_LINES) {
                return Err(Error::Number(fix.into(), format!("at most {MOST_LINES} lines")));
            }
            model.line[at].copies = copies as u32;
        }
        ["shootdowns", "per-package"] => model.shootdowns_per_package = true,
        ["shootdowns", "batched", k] => model.shootdowns /= number(k)?,
        ["serial", "less", k] => model.serial_ns /= number(k)?,
        ["work", "less", k] => model.work_ns /= number(k)?,
        ["sleep", "less", k] => model.sleep_ns /= number(k)?,
        ["polls", "batched", k] => model.batch *= number(k)?,
        ["accept", "balanced"] => {
            if model.uneven <= 1.0 {
                return Err(Error::Number(
                    fix.into(),
                    "the model's threads have equal shares (`uneven`)".into(),
                ));
            }
            if model.recorded.is_some() {
                model.threads = (f64::from(model.threads) * model.uneven).round() as u32;
            }
            model.uneven = 1.0;
        }
        ["populate", k] => {
            let k = number(k)?;
            if k > f64::from(MOST_HELPERS) {
                return Err(Error::Number(fix.into(), format!("at most {MOST_HELPERS} helpers")));
            }
            if model.populating() == 0.0 {
                return Err(no_faults(fix));
            }
            model.populate = k as u32;
        }
        ["huge-pages"] => {
            // One fault for 512 pages; zeroing them takes as long as it did.
            let gone = model.faults() * (1.0 - 1.0 / 512.0);
            if gone == 0.0 {
                return Err(no_faults(fix));
            }
            model.work_ns *= 1.0 - gone;
            for share in model.mix.iter_mut().filter(|s| s.class == "fault") {
                share.weight /= 512.0;
            }
        }
        ["memory", place @ ("local" | "interleaved" | "node0")] => model.memory = (*place).into(),
        ["ticks", "off"] => model.tick_hz = 0.0,
        ["ticks", "on-one"] => model.ticks_on_one = true,
        ["ticks", "per-cpu"] => model.ticks_on_one = false,
        ["smt", "off"] => hardware.shape.strands = 1,
        ["place", "spread"] => *order = Order::Spread,
        ["place", "pack"] => *order = Order::Pack,
        ["place", "fill"] => *order = Order::Fill,
        _ => return Err(form()),
    }
    Ok(())
}

fn no_faults(fix: &str) -> Error {
    Error::Number(fix.into(), "the model's `mix` has no class `fault`".into())
}

fn lock(fix: &str, model: &Model, name: &str) -> Result<usize, Error> {
    let found = model.lock.iter().position(|l| l.name == name);
    found.ok_or_else(|| missing(fix, "lock", name, model.lock.iter().map(|l| l.name.as_str())))
}

fn line(fix: &str, model: &Model, name: &str) -> Result<usize, Error> {
    let found = model.line.iter().position(|l| l.name == name);
    found.ok_or_else(|| missing(fix, "line", name, model.line.iter().map(|l| l.name.as_str())))
}

fn missing<'a>(fix: &str, what: &'static str, name: &str, all: impl Iterator<Item = &'a str>) -> Error {
    let there: Vec<&str> = all.collect();
    Error::Name {
        fix: fix.into(),
        what,
        name: name.into(),
        there: if there.is_empty() { "none".into() } else { there.join(", ") },
    }
}

/// Every change that makes sense for a model.
pub fn all(model: &Model, hardware: &Hardware) -> Vec<String> {
    let mut out = Vec::new();
    for lock in &model.lock {
        for how in ["removed", "split 64", "shorter 2", "numa", "qspin", "mutex"] {
            if how != lock.kind {
                out.push(format!("lock {} {how}", lock.name));
            }
        }
    }
    for line in model.line.iter().filter(|l| l.copies > 0) {
        out.push(format!("line {} per-cpu", line.name));
        if !line.bounded {
            out.push(format!("line {} bounded", line.name));
        }
    }
    if model.shootdowns > 0.0 {
        out.push("shootdowns per-package".into());
        out.push("shootdowns batched 16".into());
    }
    if model.serial_ns > 0.0 {
        out.push("serial less 2".into());
    }
    if model.mix.iter().any(|s| s.class == "fault") {
        out.push("huge-pages".into());
        if model.populate < 2 {
            out.push("populate 16".into());
        }
    }
    if model.memory_bytes > 0.0 {
        out.extend(
            ["local", "interleaved"].iter().filter(|m| **m != model.memory).map(|m| format!("memory {m}")),
        );
    }
    if model.tick_ns > 0.0 && model.tick_hz > 0.0 {
        out.push("ticks off".into());
        out.push(if model.ticks_on_one { "ticks per-cpu" } else { "ticks on-one" }.into());
    }
    if model.sleep_ns + model.wait_ns + model.io_ns > 0.0 {
        out.push("polls batched 16".into());
    }
    if model.uneven > 1.0 {
        out.push("accept balanced".into());
    }
    if hardware.shape.strands > 1 {
        out.push("smt off".into());
    }
    out
}
