//! Functions that are in no file, as those of Python and Java. In stacks, each has an address where no code
//! can lie.

use std::sync::Arc;

use ncpu_symbols::Recent;

/// No code can lie here.
const BASE: u64 = 1 << 63;
/// Names of a generation, normally of at most 240 bytes. A name that no stack has used recently is forgotten.
const MAX_NAMES: usize = 1 << 14;

/// The functions that have addresses.
pub(super) struct Functions {
    names: Recent<u64, Arc<str>>,
    numbers: Recent<Arc<str>, u64>,
    next: u64,
}

impl Default for Functions {
    fn default() -> Functions {
        Functions { names: Recent::new(MAX_NAMES), numbers: Recent::new(MAX_NAMES), next: 0 }
    }
}

impl Functions {
    /// Whether an address stands for a function.
    pub fn is_one(address: u64) -> bool {
        address > BASE
    }

    /// The address that stands for a function.
    pub fn number(&mut self, name: Arc<str>) -> u64 {
        let known = self.numbers.get(&name).copied().filter(|n| self.names.get(n).is_some());
        let n = known.unwrap_or_else(|| {
            self.next += 1;
            self.names.insert(self.next, name.clone());
            self.numbers.insert(name, self.next);
            self.next
        });
        // Callers are looked up one byte before, so each function has two addresses.
        BASE + 2 * n + 1
    }

    /// Names of frames: those of functions from here, the others from `others` in order.
    pub fn among(&mut self, frames: &[u64], others: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let mut others = others.into_iter();
        let mut of = |&address: &u64| match Functions::is_one(address) {
            true => self.names.get(&((address - BASE) / 2)).cloned(),
            false => others.next(),
        };
        frames.iter().map(|a| of(a).unwrap_or_else(|| "[forgotten]".into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_as_long_as_they_are_asked_for() {
        let mut functions = Functions::default();
        let first = functions.number("a.B.first".into());
        let told = |functions: &mut Functions, n: u64| functions.among(&[n, 7], vec!["other".into()]);
        for i in 0..3 * MAX_NAMES {
            let n = functions.number(format!("a.B.f{i}").into());
            assert!(Functions::is_one(n) && Functions::is_one(n - 1) && n != first);
            assert_eq!(&*told(&mut functions, n)[0], format!("a.B.f{i}"));
            // The byte before an address has the same name.
            assert_eq!(told(&mut functions, first - 1), ["a.B.first".into(), "other".into()]);
        }
        // The function may have another number too.
        let again = functions.number("a.B.first".into());
        assert_eq!(told(&mut functions, again), told(&mut functions, first));
        assert_eq!(&*told(&mut functions, first + 2)[0], "[forgotten]");
        assert!(functions.names.len() <= 2 * MAX_NAMES && !Functions::is_one(7));
    }
}
