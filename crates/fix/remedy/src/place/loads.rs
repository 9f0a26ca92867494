//! CPU demand per thread.

use std::collections::{HashMap, HashSet};

use ncpu_machine::Wanted;

/// Reads every thread of the machine.
pub type Loads = Box<dyn FnMut() -> std::io::Result<Vec<Wanted>>>;

/// A process and all that it started, by number.
pub(super) fn tree(root: u32, all: &[Wanted]) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    // A process once, not for each of its threads.
    for wanted in all.iter().filter(|w| w.pid == w.tid) {
        children.entry(wanted.parent).or_default().push(wanted.pid);
    }
    let (mut out, mut known) = (vec![root], HashSet::from([root]));
    let mut at = 0;
    while at < out.len() {
        for &child in children.get(&out[at]).into_iter().flatten() {
            if known.insert(child) {
                out.push(child);
            }
        }
        at += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_all_below_a_process() {
        let one = |pid, tid, parent| Wanted { pid, tid, parent, cpu: 0, spent: 0 };
        let all = [
            one(5, 5, 1),
            one(5, 6, 1),
            one(7, 7, 5),
            one(3, 3, 7),
            one(9, 9, 1),
            // Numbers come again: this one's parent has a larger number.
            one(2, 2, 7),
            one(8, 8, 8),
        ];
        assert_eq!(tree(5, &all), [5, 7, 3, 2]);
        assert_eq!(tree(8, &all), [8]);
        assert_eq!(tree(77, &all), [77]);
    }
}
