//! The event queue: a heap of four children a node, which touches fewer cache lines than a binary one. The place of an event
//! that was taken is filled by the next one that is made: it often belongs near the root, so little has to move.

/// An event: when, in which order among events of the same time, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Picoseconds since the start.
    pub at: u64,
    /// Events of the same time happen in the order they were made, so that a run repeats exactly.
    order: u64,
    /// The event, as its maker encoded it.
    pub what: u64,
}

impl Event {
    /// Time and order as one number, so that a comparison needs no branch.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.order)
    }
}

/// Events to come, earliest first.
#[derive(Debug, Default)]
pub struct Queue {
    heap: Vec<Event>,
    made: u64,
    /// The root was taken and its place is free: most events make another one soon after, which then goes there.
    hole: bool,
}

impl Queue {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, at: u64, what: u64) {
        let event = Event { at, order: self.made, what };
        self.made += 1;
        if self.hole {
            self.hole = false;
            return self.sift_down(event);
        }
        let mut hole = self.heap.len();
        self.heap.push(event);
        while hole > 0 {
            let parent = (hole - 1) / 4;
            if event.key() > self.heap[parent].key() {
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
        self.close();
        let first = self.heap.first().copied();
        self.hole = first.is_some();
        first
    }

    /// When the earliest event is.
    #[inline]
    pub fn next_at(&mut self) -> Option<u64> {
        self.close();
        self.heap.first().map(|e| e.at)
    }

    /// How many events are to come.
    pub fn len(&self) -> usize {
        self.heap.len() - usize::from(self.hole)
    }

    /// Whether nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills a free root with the last event.
    #[inline]
    fn close(&mut self) {
        if std::mem::take(&mut self.hole)
            && let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sift_down(last);
        }
    }

    /// Puts an event into the root's place, and moves earlier ones up above it.
    #[inline]
    fn sift_down(&mut self, event: Event) {
        let n = self.heap.len();
        let mut hole = 0;
        loop {
            let child = 4 * hole + 1;
            let least = if let Some([a, b, c, d]) = self.heap.get(child..child + 4) {
                let low = usize::from(b.key() < a.key());
                let high = 2 + usize::from(d.key() < c.key());
                let (l, h) = (&self.heap[child + low], &self.heap[child + high]);
                child + if h.key() < l.key() { high } else { low }
            } else {
                let Some(least) = (child..n).min_by_key(|i| self.heap[*i].key()) else { break };
                least
            };
            if event.key() < self.heap[least].key() {
                break;
            }
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.heap[hole] = event;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Each turn adds up to two events and takes up to two, as a simulation does, beside a set that is always in order.
    #[test]
    fn earliest_first_and_equal_times_in_order() {
        let mut queue = Queue::default();
        let mut all = BTreeSet::new();
        let mut x = 12345u64;
        let mut random = |below: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % below
        };
        let mut made = 0;
        for turn in 0..50_000 {
            // It grows first, and is empty at times in the end.
            let (adds, takes) = if turn < 200 { (2, 1) } else { (random(3), random(3)) };
            for _ in 0..adds {
                let at = random(700);
                queue.push(at, made);
                all.insert((at, made));
                made += 1;
            }
            for _ in 0..takes {
                if random(2) == 0 {
                    assert_eq!(queue.next_at(), all.first().map(|e| e.0));
                }
                assert_eq!(queue.pop().map(|e| (e.at, e.what)), all.pop_first());
                assert_eq!((queue.len(), queue.is_empty()), (all.len(), all.is_empty()));
            }
        }
    }
}
