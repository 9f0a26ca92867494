//! A map that drops entries which were not used recently.

use std::collections::HashMap;
use std::hash::Hash;

/// A map in two generations. When the younger is full it becomes the older, and entries of the older that
/// were not used since are dropped. So it holds at most two generations, and at least one generation of the
/// most recently used entries.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    /// An empty map with generations of `most` entries.
    pub fn new(most: usize) -> Recent<K, V> {
        Recent { young: HashMap::new(), old: HashMap::new(), most: most.max(1) }
    }

    /// A value, which moves to the younger generation.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key)
            && let Some((key, value)) = self.old.remove_entry(key)
        {
            self.young.insert(key, value);
        }
        self.young.get(key)
    }

    /// A value, without moving it.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Inserts a value, replacing an old one. Returns the dropped entries.
    pub fn insert(&mut self, key: K, value: V) -> Option<HashMap<K, V>> {
        self.old.remove(&key);
        let mut forgotten = None;
        if self.young.len() >= self.most && !self.young.contains_key(&key) {
            forgotten = Some(self.turn());
        }
        self.young.insert(key, value);
        forgotten
    }

    /// Makes the younger generation the older, and returns the previous older one.
    pub fn turn(&mut self) -> HashMap<K, V> {
        std::mem::replace(&mut self.old, std::mem::take(&mut self.young))
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        (self.young, self.old) = Default::default();
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut recent = Recent::new(10);
        let mut gone = 0;
        for i in 0..1000 {
            gone += recent.insert(i, i * 2).map_or(0, |gone| gone.len());
            assert_eq!(recent.get(&0), Some(&0), "used all the time");
            assert!(recent.len() <= 20);
        }
        assert_eq!(gone + recent.len(), 1000);
        assert_eq!(recent.get(&999), Some(&1998));
        assert_eq!(recent.get(&500), None);
        assert_eq!(recent.peek(&998), Some(&1996));
        recent.insert(999, 7);
        assert_eq!(recent.get(&999), Some(&7));
        recent.clear();
        assert!(recent.is_empty());
    }
}
