//! What-ifs: changes of a program or machine, as people write them.

use crate::foretell;
use crate::hardware::{Hardware, Order};
use crate::model::{KINDS, MOST_COPIES, MOST_HELPERS, MOST_LINES, MOST_THREADS, Model};

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
    /// It would change nothing; what the model or the machine lacks, and how to put it in.
    #[error("--fix '{0}': {1}")]
    Nothing(String, String),
    /// What it makes of the model cannot be simulated.
    #[error("{0}")]
    Model(#[from] crate::model::Error),
}

/// The forms a fix may have.
pub const FORMS: &str = "lock NAME removed, lock NAME split K, lock NAME ticket|qspin|tas|numa|mutex|rwsem|adaptive|block, \
     lock NAME shorter K, line NAME per-cpu|bounded, line NAME split K, shootdowns per-package, shootdowns batched K, serial less K, \
     work less K, sleep less K, polls batched K, accept balanced, populate K, huge-pages, memory local|interleaved|node0, \
     ticks off|on-one|per-cpu, smt off, place spread|pack|fill";

/// Makes a change.
///
/// # Errors
/// There is no such change, nothing that it could be made to, or nothing that it would change.
pub fn apply(fix: &str, model: &mut Model, hardware: &mut Hardware, order: &mut Order) -> Result<(), Error> {
    let words: Vec<&str> = fix.split_whitespace().collect();
    let form = || Error::Form(fix.into());
    match words.as_slice() {
        ["lock", name @ .., last]
            if !name.is_empty() && !matches!(name.last(), Some(&("split" | "shorter"))) =>
        {
            let at = lock(fix, model, &name.join(" "))?;
            if *last == "removed" {
                let gone = model.lock.remove(at);
                // Its work is still done, by all at once.
                model.work_ns += gone.takes * gone.hold_ns;
            } else if KINDS.contains(last) {
                changes(fix, !model.lock[at].is(last), "that is what it is already")?;
                model.lock[at].kind = (*last).into();
            } else {
                return Err(form());
            }
        }
        ["lock", name @ .., "split", k] if !name.is_empty() => {
            let at = lock(fix, model, &name.join(" "))?;
            let copies = u64::from(model.lock[at].copies) * u64::from(whole(fix, k)?);
            if copies > u64::from(MOST_COPIES) {
                return Err(Error::Number(fix.into(), format!("at most {MOST_COPIES} ways")));
            }
            model.lock[at].copies = copies as u32;
        }
        ["lock", name @ .., "shorter", k] if !name.is_empty() => {
            let at = lock(fix, model, &name.join(" "))?;
            let k = number(fix, k)?;
            let held = model.lock[at].hold_ns;
            model.lock[at].hold_ns = held / k;
            model.work_ns += model.lock[at].takes * held * (1.0 - 1.0 / k);
        }
        ["line", name @ .., "per-cpu"] => {
            let at = line(fix, model, &name.join(" "))?;
            let shared = model.line[at].copies != 0 || model.line[at].bounded;
            changes(fix, shared, "each CPU has its own already")?;
            (model.line[at].copies, model.line[at].bounded) = (0, false);
        }
        ["line", name @ .., "bounded"] => {
            let at = line(fix, model, &name.join(" "))?;
            changes(fix, !model.line[at].bounded, "that is what it is already")?;
            model.line[at].bounded = true;
        }
        ["line", name @ .., "split", k] => {
            let at = line(fix, model, &name.join(" "))?;
            let own = model.line[at].copies == 0 || model.line[at].bounded;
            changes(fix, !own, "each CPU has its own already")?;
            let copies = u64::from(model.line[at].copies) * u64::from(whole(fix, k)?);
            if copies > u64::from(MOST_LINES) {
                return Err(Error::Number(fix.into(), format!("at most {MOST_LINES} lines")));
            }
            model.line[at].copies = copies as u32;
        }
        ["shootdowns", how @ ..] => shootdowns(fix, how, model)?,
        ["serial", "less", k] => {
            let k = number(fix, k)?;
            changes(
                fix,
                model.serial_ns > 0.0,
                "the model has no serial part: put `serial_ns` into it (--to-model)",
            )?;
            model.serial_ns /= k;
        }
        ["work", "less", k] => {
            let k = number(fix, k)?;
            changes(
                fix,
                model.work_ns > 0.0,
                "the model has no work outside of its locks: put `work_ns` into it (--to-model)",
            )?;
            model.work_ns /= k;
        }
        ["sleep", "less", k] => {
            let k = number(fix, k)?;
            changes(
                fix,
                model.sleep_ns > 0.0,
                "no thread of the model pauses: put `sleep_ns` into it (--to-model)",
            )?;
            model.sleep_ns /= k;
        }
        ["polls", "batched", k] => {
            let k = number(fix, k)?;
            changes(
                fix,
                model.sleep_ns + model.wait_ns + model.io_ns > 0.0,
                "a thread of the model neither pauses nor waits: put `sleep_ns`, `wait_ns` or `io_ns` into it (--to-model)",
            )?;
            model.batch *= k;
        }
        ["accept", "balanced"] => {
            changes(
                fix,
                model.uneven > 1.0,
                "the model's threads have equal shares: put `uneven` into it (--to-model)",
            )?;
            if model.recorded.is_some() {
                model.threads = (f64::from(model.threads) * model.uneven).round() as u32;
            }
            model.uneven = 1.0;
        }
        ["populate", k] => {
            let k = whole(fix, k)?;
            if k > MOST_HELPERS {
                return Err(Error::Number(fix.into(), format!("at most {MOST_HELPERS} helpers")));
            }
            changes(
                fix,
                model.populating() > 0.0,
                "the model's `mix` has no class `fault`, and no call that makes pages (mmap, munmap, mlock, madvise): put one into it \
                 (--to-model)",
            )?;
            model.populate = k;
        }
        ["huge-pages"] => {
            // One fault for 512 pages; zeroing them takes as long as it did.
            let gone = model.faults() * (1.0 - 1.0 / 512.0);
            changes(fix, gone > 0.0, "the model's `mix` has no class `fault`: put one into it (--to-model)")?;
            model.work_ns *= 1.0 - gone;
            for share in model.mix.iter_mut().filter(|s| s.class == "fault") {
                share.weight /= 512.0;
            }
        }
        ["memory", place @ ("local" | "interleaved" | "node0")] => {
            changes(
                fix,
                model.memory_bytes > 0.0,
                "the model moves no memory, of which recordings do not tell: put `memory_bytes`, bytes a unit, into it (--to-model)",
            )?;
            changes(
                fix,
                hardware.shape.packages > 1,
                "the machine has one package, and all memory is its own",
            )?;
            changes(fix, model.memory != *place, "that is where it is already (`memory`)")?;
            model.memory = (*place).into();
        }
        ["ticks", how @ ("off" | "on-one" | "per-cpu")] => {
            changes(
                fix,
                model.tick_ns > 0.0 && model.tick_hz > 0.0,
                "the model has no interrupts: put `tick_ns` and `tick_hz` into it (--to-model)",
            )?;
            if *how == "off" {
                model.tick_hz = 0.0;
            } else {
                changes(fix, model.ticks_on_one != (*how == "on-one"), "that is how they are already")?;
                model.ticks_on_one = *how == "on-one";
            }
        }
        ["smt", "off"] => {
            changes(fix, hardware.shape.strands > 1, "the machine's cores have one strand each")?;
            hardware.shape.strands = 1;
        }
        ["place", how @ ("spread" | "pack" | "fill")] => {
            let new = match *how {
                "spread" => Order::Spread,
                "pack" => Order::Pack,
                _ => Order::Fill,
            };
            changes(fix, *order != new, "CPUs are taken in that order already (--place)")?;
            *order = new;
        }
        _ => return Err(form()),
    }
    Ok(())
}

fn shootdowns(fix: &str, how: &[&str], model: &mut Model) -> Result<(), Error> {
    let any = "the model has no TLB shootdowns: give a recording of `ncpu crosscalls` beside the program's, or put `shootdowns` into it \
               (--to-model)";
    match how {
        ["per-package"] => {
            changes(fix, model.shootdowns > 0.0, any)?;
            changes(fix, !model.shootdowns_per_package, "that is how they are already")?;
            model.shootdowns_per_package = true;
        }
        ["batched", k] => {
            let k = number(fix, k)?;
            changes(fix, model.shootdowns > 0.0, any)?;
            model.shootdowns /= k;
        }
        _ => return Err(Error::Form(fix.into())),
    }
    Ok(())
}

/// A factor: 1 would change nothing.
fn number(fix: &str, word: &str) -> Result<f64, Error> {
    match word.parse::<f64>() {
        Ok(k) if k > 1.0 && k <= 1e9 => Ok(k),
        _ => Err(Error::Number(fix.into(), format!("`{word}`: give a number above 1"))),
    }
}

/// A number of parts.
fn whole(fix: &str, word: &str) -> Result<u32, Error> {
    match word.parse::<u32>() {
        Ok(k) if k > 1 => Ok(k),
        _ => Err(Error::Number(fix.into(), format!("`{word}`: give a number of 2 or more"))),
    }
}

/// A fix that changes nothing is an error: its answer would look as if the fix gave nothing.
fn changes(fix: &str, it_does: bool, why_not: &str) -> Result<(), Error> {
    if it_does { Ok(()) } else { Err(Error::Nothing(fix.into(), why_not.into())) }
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

/// Every change that makes sense for a model on so many CPUs of a machine: those that the model or the machine has something
/// for. Less work and shorter pauses are another program and another load.
pub fn all(model: &Model, hardware: &Hardware, order: Order, cpus: usize) -> Vec<String> {
    let mut out = Vec::new();
    for lock in &model.lock {
        for how in ["removed", "split 64", "shorter 2"].iter().chain(KINDS) {
            let many = *how == "split 64" && lock.copies > MOST_COPIES / 64;
            if !lock.is(how) && !many {
                out.push(format!("lock {} {how}", lock.name));
            }
        }
    }
    for line in model.line.iter().filter(|l| l.copies > 0 || l.bounded) {
        out.push(format!("line {} per-cpu", line.name));
        if line.bounded {
            continue;
        }
        out.push(format!("line {} bounded", line.name));
        if line.copies <= MOST_LINES / 64 {
            out.push(format!("line {} split 64", line.name));
        }
    }
    if model.shootdowns > 0.0 {
        if !model.shootdowns_per_package {
            out.push("shootdowns per-package".into());
        }
        out.push("shootdowns batched 16".into());
    }
    if model.serial_ns > 0.0 {
        out.push("serial less 2".into());
    }
    if model.faults() > 0.0 {
        out.push("huge-pages".into());
    }
    let workers = foretell::workers(model, cpus);
    if model.populating() > 0.0 && model.populate < 2 && u64::from(workers) * 16 <= u64::from(MOST_THREADS) {
        out.push("populate 16".into());
    }
    if model.memory_bytes > 0.0 && hardware.shape.packages > 1 {
        let places = ["local", "interleaved", "node0"];
        out.extend(places.iter().filter(|m| **m != model.memory).map(|m| format!("memory {m}")));
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
    for (name, other) in [("spread", Order::Spread), ("pack", Order::Pack), ("fill", Order::Fill)] {
        if other != order && !hardware.same_places(cpus.min(workers as usize), order, other) {
            out.push(format!("place {name}"));
        }
    }
    out
}
