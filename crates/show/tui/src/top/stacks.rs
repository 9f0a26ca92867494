//! Stacks put together as a tree: what was called from where, and for how long.

use std::collections::HashMap;

use ncpu_table::safe;

/// Branches of less than this share of all are shown together.
const SMALL: f64 = 0.01;

/// Frames below one another that are drawn; deeper ones are left out.
const DEEPEST: usize = 200;

/// A function, the time in it and in what it called.
#[derive(Default)]
pub(super) struct Tree<'a> {
    seconds: f64,
    below: HashMap<&'a str, Tree<'a>>,
}

impl<'a> Tree<'a> {
    /// Adds a stack, outermost frame first.
    pub fn add(&mut self, frames: impl Iterator<Item = &'a str>, seconds: f64) {
        self.seconds += seconds;
        let mut at = self;
        for frame in frames.take(DEEPEST) {
            at = at.below.entry(frame).or_default();
            at.seconds += seconds;
        }
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// A line for each function: its share and its name, farther to the right where there was more than one way to go on.
    pub fn lines(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.push(self.seconds, 0, &mut out);
        out
    }

    /// Whether it does nothing but call one other.
    fn is_straight(&self, all: f64) -> bool {
        let mut most = self.below.values().map(|tree| tree.seconds).fold(0.0, f64::max);
        most += SMALL * all;
        self.seconds > 0.0 && most > self.seconds
    }

    fn push(&self, all: f64, indent: usize, out: &mut Vec<String>) {
        let mut below: Vec<_> = self.below.iter().collect();
        below.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds).then(a.0.cmp(b.0)));
        let small = |tree: &Tree<'_>| tree.seconds < SMALL * all;
        let rest: f64 = below.iter().filter(|(_, t)| small(t)).map(|(_, t)| t.seconds).sum();
        for (name, tree) in below.into_iter().filter(|(_, tree)| !small(tree)) {
            let share = 100.0 * tree.seconds / all.max(f64::MIN_POSITIVE);
            out.push(format!("{share:>6.1} %  {}{}", " ".repeat(indent), safe::line(name)));
            // The only function that a function calls stands below it.
            tree.push(all, if tree.is_straight(all) { indent } else { indent + 2 }, out);
        }
        if rest >= SMALL * all {
            let share = 100.0 * rest / all;
            out.push(format!("{share:>6.1} %  {}others, less than 1 % each", " ".repeat(indent)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_that_part_are_indented() {
        let mut tree = Tree::default();
        for (stack, seconds) in
            [("main;run;read", 3.0), ("main;run;write", 1.0), ("start", 4.0), ("main;run", 2.0)]
        {
            tree.add(stack.split(';'), seconds);
        }
        let lines: Vec<String> = tree.lines();
        assert_eq!(
            lines,
            ["  60.0 %  main", "  60.0 %  run", "  30.0 %    read", "  10.0 %    write", "  40.0 %  start"]
        );
        assert_eq!(tree.seconds(), 10.0);
    }

    #[test]
    fn deep_and_hostile_stacks() {
        let mut tree = Tree::default();
        let deep = "f;".repeat(100_000);
        tree.add(deep.split(';'), 1.0);
        assert_eq!(tree.lines().len(), DEEPEST);
        let mut tree = Tree::default();
        tree.add(["\x1b[31mred"].into_iter(), 1.0);
        assert_eq!(tree.lines(), [" 100.0 %  \\x1b[31mred"]);
    }
}
