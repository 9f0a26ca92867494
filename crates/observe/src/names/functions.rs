//! Functions that stand in no file, Python's and Java's: in stacks each stands at an address that no code has.

use std::collections::HashMap;
use std::sync::Arc;

/// No code can lie here.
const BASE: u64 = 1 << 63;
/// Names kept, of 240 bytes at most as a rule; all others are told as what [`NO_ROOM`] stands for.
const MAX_NAMES: usize = 1 << 15;
const NO_ROOM: u64 = BASE + 2 * MAX_NAMES as u64 + 1;

/// The functions that there are addresses for.
#[derive(Default)]
pub(super) struct Functions {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
}

impl Functions {
    /// Whether an address stands for a function.
    pub fn is_one(address: u64) -> bool {
        (BASE..=NO_ROOM).contains(&address)
    }

    /// The address that stands for a function.
    pub fn number(&mut self, name: Arc<str>) -> u64 {
        if let Some(&n) = self.numbers.get(&name) {
            return n;
        }
        if self.names.len() >= MAX_NAMES {
            return NO_ROOM;
        }
        // Callers are looked up one byte before: two addresses each.
        let n = BASE + 2 * self.names.len() as u64 + 1;
        self.names.push(name.clone());
        self.numbers.insert(name, n);
        n
    }

    fn name(&self, address: u64) -> Option<&Arc<str>> {
        self.names.get(((address - BASE) / 2) as usize)
    }

    /// Names of frames: those of functions here, the others given in their order.
    pub fn among(&self, frames: &[u64], others: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let mut others = others.into_iter();
        let of = |&address: &u64| match Functions::is_one(address) {
            true => self.name(address).cloned(),
            false => others.next(),
        };
        frames.iter().map(of).map(|name| name.unwrap_or_else(|| "[more functions]".into())).collect()
    }
}
