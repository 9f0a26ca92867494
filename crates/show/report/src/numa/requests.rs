//! Requests to the kernel for a placement, and their effects.

use std::collections::BTreeMap;

use ncpu_machine::CpuSet;
use ncpu_machine::numa_maps::{Mode, Policy};

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The memory is where it was asked to be.
    Yes,
    /// Too little memory to say.
    Unknown,
    /// A part of it is not.
    Partly,
    /// It is not.
    No,
}

impl Effect {
    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Effect::Yes => "yes",
            Effect::Unknown => "too little to say",
            Effect::Partly => "partly",
            Effect::No => "no",
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The process that asked; `None` for a mount.
    pub pid: Option<u32>,
    /// The object: heap, a segment …
    pub object: String,
    /// The kernel's words, with where they were found: `interleave:0-7`, `mpol=bind:0`, `cpuset 0-3`.
    pub asked: String,
    /// Bytes it is about.
    pub bytes: u64,
    /// Its effect.
    pub effect: Effect,
    /// Where the memory is, and why that may be.
    pub why: String,
}

/// Judges a policy by where the memory is. `None` where it asks for nothing that could be missed.
pub fn judge(
    policy: &Policy,
    memory: &BTreeMap<u32, u64>,
    page: u64,
    huge: bool,
) -> Option<(Effect, String)> {
    let bytes: u64 = memory.values().sum();
    let share = |b: u64| b as f64 / bytes.max(1) as f64;
    let inside: u64 = memory.iter().filter(|(n, _)| policy.nodes.contains(**n)).map(|(_, b)| *b).sum();
    let outside = 1.0 - share(inside);
    let (top, most) = memory.iter().max_by_key(|(_, b)| **b).map(|(n, b)| (*n, *b))?;
    let there = format!("{:.0} % is on node {top}", 100.0 * share(most));
    match policy.mode {
        Mode::Interleave => {
            let over = policy.nodes.len();
            if over < 2 {
                return None;
            }
            // Pages are dealt out, huge ones if there are any.
            let unit = if huge { page.max(2 << 20) } else { page };
            if bytes < 2 * unit * over as u64 {
                return Some((Effect::Unknown, there));
            }
            let weighted = policy.text.starts_with("weighted");
            let fair = 1.0 / over as f64;
            Some(if share(most) > 0.9 {
                (Effect::No, format!("{there}: touched before the policy was set, or set for another thread"))
            } else if outside > 0.1 || (!weighted && share(most) > 1.5 * fair + 0.02) {
                (Effect::Partly, format!("{there}, where {:.0} % is even", 100.0 * fair))
            } else {
                (Effect::Yes, String::new())
            })
        }
        Mode::Bind | Mode::Prefer => {
            if policy.nodes.is_empty() {
                return None;
            }
            let why = if policy.mode == Mode::Bind {
                "touched before the policy was set"
            } else {
                "touched before the policy was set, or the node was full"
            };
            Some(if outside > 0.9 {
                (Effect::No, format!("{there}: {why}"))
            } else if outside > 0.02 {
                (Effect::Partly, format!("{:.0} % is elsewhere, {there}: {why}", 100.0 * outside))
            } else {
                (Effect::Yes, String::new())
            })
        }
        Mode::Default | Mode::Local | Mode::Other => None,
    }
}

/// Memory on nodes that the cpuset does not allow.
pub fn outside_cpuset(mems: &CpuSet, memory: &BTreeMap<u32, u64>) -> Option<(Effect, String, u64)> {
    let bytes: u64 = memory.values().sum();
    let outside: u64 = memory.iter().filter(|(n, _)| !mems.contains(**n)).map(|(_, b)| *b).sum();
    let share = outside as f64 / bytes.max(1) as f64;
    let effect = match share {
        s if s <= 0.02 => return None,
        s if s > 0.9 => Effect::No,
        _ => Effect::Partly,
    };
    let why = format!(
        "{:.0} % lies on other nodes: taken before the cpuset was changed or entered, and not moved (cpuset.memory_migrate)",
        100.0 * share
    );
    Some((effect, why, outside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(policy: &str, memory: &[u64]) -> Option<Effect> {
        let memory = memory.iter().enumerate().filter(|(_, b)| **b > 0).map(|(n, b)| (n as u32, *b << 20));
        judge(&Policy::parse(policy), &memory.collect(), 4096, true).map(|e| e.0)
    }

    #[test]
    fn what_came_of_it() {
        for (policy, memory, want) in [
            ("interleave:0-3", &[16, 16, 16, 16][..], Some(Effect::Yes)),
            ("interleave:0-3", &[64, 0, 0, 0], Some(Effect::No)),
            ("interleave:0-3", &[40, 8, 8, 8], Some(Effect::Partly)),
            ("interleave:0-3", &[1, 0, 0, 0], Some(Effect::Unknown)),
            ("interleave:0-1", &[20, 20, 20, 20], Some(Effect::Partly)),
            ("weighted interleave:0-1", &[75, 25], Some(Effect::Yes)),
            ("interleave:1", &[0, 9], None),
            ("bind:1", &[0, 9], Some(Effect::Yes)),
            ("bind=static:1", &[9, 0], Some(Effect::No)),
            ("bind:1", &[1, 9], Some(Effect::Partly)),
            ("prefer:1", &[9, 0], Some(Effect::No)),
            ("prefer (many):0-1", &[4, 5], Some(Effect::Yes)),
            ("default", &[9, 0], None),
            ("local", &[9, 0], None),
            ("what:1", &[9], None),
        ] {
            assert_eq!(effect(policy, memory), want, "{policy} {memory:?}");
        }
        assert_eq!(judge(&Policy::parse("bind:1"), &BTreeMap::new(), 4096, false), None);
    }

    #[test]
    fn a_cpuset_that_came_too_late() {
        let mems = CpuSet::parse_list("1").unwrap();
        let (effect, why, bytes) = outside_cpuset(&mems, &BTreeMap::from([(0, 50), (1, 50)])).unwrap();
        assert_eq!((effect, bytes), (Effect::Partly, 50));
        assert!(why.starts_with("50 %"), "{why}");
        assert!(outside_cpuset(&mems, &BTreeMap::from([(1, 50)])).is_none());
    }
}
