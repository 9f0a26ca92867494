//! Pages that are copied at the first write, as those that processes share since a fork, by who writes.

use std::collections::HashMap;
use std::fmt;

use ncpu_schema::{StackKind, chance, stacks};

use super::Context;
use super::collectors::collector_of;
use super::kinds::{Copying as Evidence, Share};
use crate::causes::When;
use crate::onion::case::Case;

/// Below this part of the time in page faults nothing is said, and from this one on it is what to mend.
const LEAST: f64 = 0.1;
const MOST_OF_IT: f64 = 0.5;

/// Kernel functions that every page fault is in, and those that copy.
const FAULT: [&str; 2] = ["handle_mm_fault_[k]", "__handle_mm_fault_[k]"];
const COPY: [&str; 2] = ["do_wp_page_[k]", "wp_page_copy_[k]"];

/// The writer: a garbage collector, or the function of the program that the fault is in.
fn writer(stack: &str) -> Option<&str> {
    let of_runtime = collector_of(stack).map(super::collectors::Collector::name);
    of_runtime.or_else(|| {
        let (_, frames) = stack.split_once(';')?;
        frames.rsplit(';').find(|frame| !frame.ends_with("_[k]") && !frame.starts_with('['))
    })
}

struct Copies {
    /// Part of the samples in page faults, and the lower end of its 95 % interval.
    share: f64,
    at_least: f64,
    /// The most frequent writer, and its part of them.
    writer: Option<(String, f64)>,
}

fn copies(context: &Context<'_>) -> Option<Copies> {
    let table = stacks::Reader::open(context.recording).ok().flatten()?;
    let mut by: HashMap<&str, u64> = HashMap::new();
    let (mut all, mut copied) = (0u64, 0u64);
    for row in table.rows().filter(|&r| table.kind.get(r) == Some(StackKind::OnCpu)) {
        let (Some(stack), Some(n)) = (table.stack.get(row), table.samples.get(row)) else { continue };
        let inside = |of: [&str; 2]| stack.split(';').any(|frame| of.contains(&frame));
        if !inside(FAULT) {
            continue;
        }
        all = all.saturating_add(n);
        if inside(COPY) {
            copied = copied.saturating_add(n);
            let sum = by.entry(writer(stack).unwrap_or("")).or_default();
            *sum = sum.saturating_add(n);
        }
    }
    let at_least = chance::share(copied, all).0;
    if copied == 0 || at_least < LEAST {
        return None;
    }
    let top = by.into_iter().max_by_key(|&(function, n)| (n, std::cmp::Reverse(function)));
    let top = top.filter(|(function, n)| !function.is_empty() && *n > copied / 2);
    Some(Copies {
        share: copied as f64 / all as f64,
        at_least,
        writer: top.map(|(function, n)| (function.to_string(), n as f64 / copied as f64)),
    })
}

/// The part of the time in page faults that copies take.
pub(super) fn copying(context: &Context<'_>) -> Option<Evidence> {
    let Copies { share, writer, .. } = copies(context)?;
    let (function, function_share) = writer.map(|(function, part)| (function, Share(part))).unzip();
    Some(Evidence { share: Share(share), function, function_share })
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} % of it copying pages at the first write", self.share.percent())?;
        match (&self.function, &self.function_share) {
            (Some(function), Some(part)) => write!(f, ", {:.0} % of that by {function}", part.percent()),
            _ => Ok(()),
        }
    }
}

/// Copies, for the rule book: where they are most of what faults do.
pub(in crate::onion) fn copies_case(context: &Context<'_>) -> Option<Case> {
    let Copies { writer, .. } = copies(context).filter(|copies| copies.at_least >= MOST_OF_IT)?;
    let (function, _) = writer?;
    Some(Case::new(When::Copies).of(function.clone()).with("function", function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_is_the_collector_or_the_innermost_function() {
        for (stack, who) in [
            (
                "python3;<module> (app.py:1);gc_collect_main;asm_exc_page_fault_[k];do_wp_page_[k]",
                "Python's garbage collector",
            ),
            ("db;main;update;asm_exc_page_fault_[k];handle_mm_fault_[k];do_wp_page_[k]", "update"),
            ("db;main;[unknown libx.so];asm_exc_page_fault_[k];do_wp_page_[k]", "main"),
        ] {
            assert_eq!(writer(stack), Some(who), "{stack}");
        }
        assert_eq!(writer("db;asm_exc_page_fault_[k];do_wp_page_[k]"), None);
    }
}
