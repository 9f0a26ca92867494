//! A map that forgets what was not asked for lately.

use std::collections::HashMap;
use std::hash::Hash;

/// A map in two generations. When the younger is full it becomes the older, and what was in that and has not been asked
/// for since is forgotten. So it holds at most twice as much as a generation, and at least what was used last.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    /// An empty one whose generations hold so much.
    pub fn new(most: usize) -> Recent<K, V> {
        Recent { young: HashMap::new(), old: HashMap::new(), most: most.max(1) }
    }

    /// A value, which is then among the young.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key)
            && let Some((key, value)) = self.old.remove_entry(key)
        {
            self.young.insert(key, value);
        }
        self.young.get(key)
    }

    /// A value, which is not younger for it.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Puts a value in, in place of one that was there. What is forgotten for it is returned.
    pub fn insert(&mut self, key: K, value: V) -> Option<HashMap<K, V>> {
        self.old.remove(&key);
        let mut forgotten = None;
        if self.young.len() >= self.most && !self.young.contains_key(&key) {
            forgotten = Some(self.turn());
        }
        self.young.insert(key, value);
        forgotten
    }

    /// What is young becomes old, and what was old is returned.
    pub fn turn(&mut self) -> HashMap<K, V> {
        std::mem::replace(&mut self.old, std::mem::take(&mut self.young))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        (self.young, self.old) = Default::default();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether there are none.
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
            assert_eq!(recent.get(&0), Some(&0), "asked for all the time");
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
