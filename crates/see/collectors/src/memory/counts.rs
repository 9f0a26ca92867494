//! Pages by class.

use std::ops::{Index, IndexMut};

use super::{CLASSES, Class};

/// How many pages of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; CLASSES]);

impl Counts {
    /// All pages.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The sum of the two.
    pub fn add(&mut self, other: &Counts) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a += b;
        }
    }

    /// Each class and its pages, in the order they are printed.
    pub fn iter(&self) -> impl Iterator<Item = (Class, u64)> + '_ {
        Class::ALL.into_iter().map(|c| (c, self[c]))
    }
}

impl Index<Class> for Counts {
    type Output = u64;

    fn index(&self, class: Class) -> &u64 {
        &self.0[class as usize]
    }
}

impl IndexMut<Class> for Counts {
    fn index_mut(&mut self, class: Class) -> &mut u64 {
        &mut self.0[class as usize]
    }
}
