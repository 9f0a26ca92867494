//! The event queue: a heap of four children a node, which touches fewer cache lines than a binary one.

/// An event: when, in which order among events of the same time, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Picoseconds since the start.
    pub at: u64,
    /// Events of the same time happen in the order they were made, so that a run repeats exactly.
    order: u64,
    /// What happens, as its maker encoded it.
    pub what: u64,
}

impl Event {
    fn before(&self, other: &Event) -> bool {
        (self.at, self.order) < (other.at, other.order)
    }
}

/// Events to come, earliest first.
#[derive(Debug, Default)]
pub struct Queue {
    heap: Vec<Event>,
    made: u64,
}

impl Queue {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, at: u64, what: u64) {
        let event = Event { at, order: self.made, what };
        self.made += 1;
        let mut hole = self.heap.len();
        self.heap.push(event);
        while hole > 0 {
            let parent = (hole - 1) / 4;
            if !event.before(&self.heap[parent]) {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = event;
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        let last = self.heap.pop()?;
        let Some(&first) = self.heap.first() else { return Some(last) };
        let n = self.heap.len();
        let mut hole = 0;
        loop {
            let child = 4 * hole + 1;
            if child >= n {
                break;
            }
            let mut least = child;
            for other in child + 1..(child + 4).min(n) {
                if self.heap[other].before(&self.heap[least]) {
                    least = other;
                }
            }
            if !self.heap[least].before(&last) {
                break;
            }
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.heap[hole] = last;
        Some(first)
    }

    /// When the earliest event is.
    #[inline]
    pub fn next_at(&self) -> Option<u64> {
        self.heap.first().map(|e| e.at)
    }

    /// How many events are to come.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_first_and_equal_times_in_order() {
        let mut queue = Queue::default();
        let mut x = 12345u64;
        let mut all = Vec::new();
        for i in 0..5000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (x >> 33) % 700;
            queue.push(at, i);
            all.push((at, i));
        }
        all.sort_unstable();
        let got: Vec<(u64, u64)> = std::iter::from_fn(|| queue.pop()).map(|e| (e.at, e.what)).collect();
        assert_eq!(got, all);
    }
}
