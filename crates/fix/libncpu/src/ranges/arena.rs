//! Ranges of integers handed out and taken back: one thread's part of [`Vmem`](crate::Vmem).
//!
//! # Where it comes from
//!
//! Jeff Bonwick and Jonathan Adams, "Magazines and Vmem" (USENIX 2001): boundary tags kept apart from what they
//! describe, free lists segregated by powers of two, a hash table of allocated ranges. Written from the paper.
//!
//! # Invariants
//!
//! 1. The segments of a span lie side by side and cover it; two neighbours are never both free.
//! 2. Segment `s` is free and on list `floor(log2(size))`, or allocated and in the hash table; never both.
//! 3. A call that returns an error changes nothing: tags are reserved before the first change, and freeing
//!    needs none.
//!
//! # Cost
//!
//! [`Policy::Instant`] and freeing are O(1), except for requests that only the list of their own size can
//! serve. [`Policy::Best`] and constraints search free lists, [`Policy::Next`] searches segments from the end
//! of the last range. A tag is 40 bytes, a bucket 4.

use crate::percpu::OutOfMemory;
use crate::ranges::request::{Constraints, Error, Policy};
pub use crate::ranges::request::{Segment, Totals};

/// No tag.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// On the list of spare tags.
    Unused,
    Free,
    Allocated,
}

/// A segment's description.
struct Tag {
    start: u64,
    size: u64,
    /// The neighbours in the span.
    before: u32,
    after: u32,
    /// In the free list, hash chain or list of spare tags.
    prev: u32,
    next: u32,
    kind: Kind,
}

/// Integers that were added to the arena.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    size: u64,
    /// The tag of its first segment, which stays the first: splits and merges keep the left tag.
    first: u32,
    imported: bool,
}

/// A set of integers of which ranges are handed out. For one thread; [`Vmem`](crate::Vmem) is for many.
pub struct Arena {
    quantum: u64,
    tags: Vec<Tag>,
    spare: u32,
    spares: usize,
    /// Sorted by start.
    spans: Vec<Span>,
    /// By floor(log2(size)).
    lists: [u32; 64],
    /// A bit for each list that is not empty.
    filled: u64,
    /// Chains of allocated tags; their number is a power of two, or 0 at first.
    buckets: Vec<u32>,
    allocated: usize,
    total: u64,
    free: u64,
    /// Where next fit continues, and a tag that begins there or before, or none.
    rotor: u64,
    rotor_tag: u32,
}

/// A hash of an address with low bits that may all be 0: only the top `bits` are well mixed.
pub(crate) fn spread(address: u64, quantum: u64) -> u64 {
    (address >> quantum.trailing_zeros()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Arena {
    /// An empty arena. All sizes are rounded up to multiples of `quantum`, a power of two.
    pub fn new(quantum: u64) -> Result<Arena, Error> {
        if !quantum.is_power_of_two() {
            return Err(Error::Invalid("the quantum must be a power of two"));
        }
        Ok(Arena {
            quantum,
            tags: Vec::new(),
            spare: NONE,
            spares: 0,
            spans: Vec::new(),
            lists: [NONE; 64],
            filled: 0,
            buckets: Vec::new(),
            allocated: 0,
            total: 0,
            free: 0,
            rotor: 0,
            rotor_tag: NONE,
        })
    }

    /// The size that a request for `size` is rounded up to.
    pub fn round(&self, size: u64) -> Result<u64, Error> {
        match size.checked_next_multiple_of(self.quantum) {
            Some(0) => Err(Error::Invalid("the size must not be 0")),
            Some(size) => Ok(size),
            None => Err(Error::Exhausted { size }),
        }
    }

    /// Adds the integers from `start` on. Both numbers are multiples of the quantum; the last integer is at most
    /// 2^64-1, and an arena has at most that many.
    pub fn add(&mut self, start: u64, size: u64, imported: bool) -> Result<(), Error> {
        if size == 0 || !start.is_multiple_of(self.quantum) || !size.is_multiple_of(self.quantum) {
            return Err(Error::Invalid(
                "a span's start and size must be multiples of the quantum, its size not 0",
            ));
        }
        let Some(last) = start.checked_add(size - 1) else {
            return Err(Error::Invalid("a span must not go beyond 2^64-1"));
        };
        let at = self.spans.partition_point(|span| span.start <= last);
        if at > 0 && self.spans[at - 1].start + (self.spans[at - 1].size - 1) >= start {
            return Err(Error::Overlap { address: start, size });
        }
        let Some(total) = self.total.checked_add(size) else {
            return Err(Error::Invalid("an arena must not hold more than 2^64-1 integers"));
        };
        self.reserve(1)?;
        self.spans.try_reserve(1).map_err(|_| OutOfMemory((self.spans.len() + 1) * size_of::<Span>()))?;
        let first = self.tag(start, size);
        self.spans.insert(at, Span { start, size, first, imported });
        self.total = total;
        self.list(first);
        Ok(())
    }

    /// Hands out a range of `size` integers, a size that [`Arena::round`] returned.
    pub fn alloc(&mut self, size: u64, constraints: &Constraints, policy: Policy) -> Result<u64, Error> {
        let constraints = self.checked(size, constraints)?;
        let Some((tag, start)) = self.find(size, &constraints, policy) else {
            return Err(Error::Exhausted { size });
        };
        let (from, length) = (self.tags[tag as usize].start, self.tags[tag as usize].size);
        let (left, right) = (start - from, length - (start - from) - size);
        self.reserve(usize::from(left > 0) + usize::from(right > 0))?;
        if self.allocated >= 2 * self.buckets.len() {
            self.rehash();
            if self.buckets.is_empty() {
                return Err(OutOfMemory(size_of::<u32>()).into());
            }
        }
        self.unlist(tag);
        let mut own = tag;
        if left > 0 {
            self.tags[tag as usize].size = left;
            own = self.tag(start, size);
            self.link_after(tag, own);
            self.list(tag);
        }
        self.tags[own as usize].size = size;
        if right > 0 {
            let rest = self.tag(start + size, right);
            self.link_after(own, rest);
            self.list(rest);
        }
        self.hash(own);
        if policy == Policy::Next {
            self.rotor = start.wrapping_add(size);
            self.rotor_tag = if self.rotor == 0 { NONE } else { own };
        }
        Ok(start)
    }

    /// The size of the range that was handed out at `address`.
    pub fn size_of(&self, address: u64) -> Option<u64> {
        self.lookup(address).map(|tag| self.tags[tag as usize].size)
    }

    /// Frees the range of `size` integers at `address`. Returns true if it lay in an imported span that is
    /// completely free after this: see [`Arena::remove`].
    pub fn free(&mut self, address: u64, size: u64) -> Result<bool, Error> {
        let mut tag = self.lookup(address).ok_or(Error::NotAllocated { address })?;
        let allocated = self.tags[tag as usize].size;
        if size == 0 || size.checked_next_multiple_of(self.quantum) != Some(allocated) {
            return Err(Error::WrongSize { address, allocated, given: size });
        }
        self.unhash(tag);
        let Tag { before, after, .. } = self.tags[tag as usize];
        if after != NONE && self.tags[after as usize].kind == Kind::Free {
            self.unlist(after);
            self.absorb(tag, after);
        }
        if before != NONE && self.tags[before as usize].kind == Kind::Free {
            self.unlist(before);
            self.absorb(before, tag);
            tag = before;
        }
        self.list(tag);
        let whole = self.tags[tag as usize].before == NONE && self.tags[tag as usize].after == NONE;
        Ok(whole && self.spans[self.span_of(address)].imported)
    }

    /// Removes an imported span that is completely free, the one that contains `within` or any, and returns
    /// it.
    pub fn remove(&mut self, within: Option<u64>) -> Option<(u64, u64)> {
        let idle = |span: &Span| {
            let first = &self.tags[span.first as usize];
            span.imported && first.kind == Kind::Free && first.after == NONE
        };
        let at = match within {
            Some(address) => Some(self.span_of(address)).filter(|&at| idle(&self.spans[at])),
            None => self.spans.iter().position(idle),
        }?;
        let span = self.spans.remove(at);
        self.unlist(span.first);
        if self.rotor_tag == span.first {
            self.rotor_tag = NONE;
        }
        self.discard(span.first);
        self.total -= span.size;
        Some((span.start, span.size))
    }

    /// Calls `visit` for every segment, by address.
    pub fn walk(&self, mut visit: impl FnMut(Segment)) {
        for span in &self.spans {
            let mut tag = span.first;
            while tag != NONE {
                let Tag { start, size, kind, after, .. } = self.tags[tag as usize];
                visit(Segment { start, size, allocated: kind == Kind::Allocated, first: tag == span.first });
                tag = after;
            }
        }
    }

    /// Sums. Looks at each free segment of the largest sizes.
    pub fn totals(&self) -> Totals {
        let mut tag = self.filled.checked_ilog2().map_or(NONE, |top| self.lists[top as usize]);
        let mut largest = 0;
        while tag != NONE {
            largest = largest.max(self.tags[tag as usize].size);
            tag = self.tags[tag as usize].next;
        }
        Totals {
            total: self.total,
            free: self.free,
            largest,
            free_segments: self.tags.len() - self.spares - self.allocated,
            allocated_segments: self.allocated,
            spans: self.spans.len(),
        }
    }

    /// Integers in all spans and those of them that are free. O(1).
    pub fn room(&self) -> (u64, u64) {
        (self.total, self.free)
    }

    /// The constraints, checked and normalised for the search.
    fn checked(&self, size: u64, given: &Constraints) -> Result<Constraints, Error> {
        let invalid = |what| Err(Error::Invalid(what));
        if size == 0 || !size.is_multiple_of(self.quantum) {
            return invalid("the size must be a multiple of the quantum, not 0");
        }
        let align = if given.align == 0 { self.quantum } else { given.align };
        if !align.is_power_of_two() {
            return invalid("align must be a power of two or 0");
        }
        if given.phase >= align || !given.phase.is_multiple_of(self.quantum) {
            return invalid("phase must be below align and a multiple of the quantum");
        }
        if given.nocross != 0 {
            if !given.nocross.is_power_of_two() {
                return invalid("nocross must be a power of two or 0");
            }
            // If a range may begin anywhere between two multiples of nocross, the first place is the only one
            // to check.
            if (given.phase & (given.nocross - 1)).checked_add(size).is_none_or(|end| end > given.nocross) {
                return invalid("size and phase leave no place that does not cross a multiple of nocross");
            }
        }
        if given.min > given.max {
            return invalid("min must not be above max");
        }
        Ok(Constraints { align: align.max(self.quantum), ..*given })
    }

    /// The first place in a free segment that has room for `size` integers.
    fn fit(&self, tag: u32, size: u64, c: &Constraints) -> Option<u64> {
        let Tag { start, size: length, .. } = self.tags[tag as usize];
        if length < size {
            return None;
        }
        // In 128 bits nothing overflows.
        let [align, phase, nocross, size] = [c.align, c.phase, c.nocross, size].map(u128::from);
        let high = u128::from((start + (length - 1)).min(c.max));
        let up = |low: u128| low + (phase + align - low % align) % align;
        let mut at = up(u128::from(start.max(c.min)));
        if nocross != 0 && at / nocross != (at + size - 1) / nocross {
            at = up(at.next_multiple_of(nocross));
        }
        // No more than `high`, so it fits 64 bits.
        (at + size - 1 <= high).then_some(at as u64)
    }

    /// A free segment, and the place in it.
    fn find(&self, size: u64, c: &Constraints, policy: Policy) -> Option<(u32, u64)> {
        match policy {
            Policy::Next => return self.find_next(size, c),
            Policy::Instant if (c.min, c.max, c.nocross) == (0, u64::MAX, 0) => {
                // Every segment of this list or above holds an aligned range.
                let ample = size.checked_add(c.align - self.quantum).and_then(u64::checked_next_power_of_two);
                let lists = ample.map_or(0, |ample| self.filled & (u64::MAX << ample.trailing_zeros()));
                if lists != 0 {
                    let tag = self.lists[lists.trailing_zeros() as usize];
                    return self.fit(tag, size, c).map(|start| (tag, start));
                }
            }
            _ => {}
        }
        let mut lists = self.filled & (u64::MAX << size.ilog2());
        while lists != 0 {
            let mut tag = self.lists[lists.trailing_zeros() as usize];
            lists &= lists - 1;
            let mut best: Option<(u32, u64)> = None;
            while tag != NONE {
                let length = self.tags[tag as usize].size;
                if best.is_none_or(|(best, _)| length < self.tags[best as usize].size)
                    && let Some(start) = self.fit(tag, size, c)
                {
                    if policy == Policy::Instant || length == size {
                        return Some((tag, start));
                    }
                    best = Some((tag, start));
                }
                tag = self.tags[tag as usize].next;
            }
            // Segments of the lists above are larger.
            if best.is_some() {
                return best;
            }
        }
        None
    }

    /// The first place from the rotor on, or otherwise from the beginning.
    fn find_next(&self, size: u64, c: &Constraints) -> Option<(u32, u64)> {
        let after = Constraints { min: c.min.max(self.rotor), ..*c };
        let (mut span, mut tag) = (0, NONE);
        if self.rotor_tag != NONE {
            span = self.span_of(self.tags[self.rotor_tag as usize].start);
            tag = self.rotor_tag;
        }
        self.find_from(span, tag, size, &after).or_else(|| self.find_from(0, NONE, size, c))
    }

    /// The first place by address, from `tag` of span `span` on, or that span's first.
    fn find_from(&self, span: usize, mut tag: u32, size: u64, c: &Constraints) -> Option<(u32, u64)> {
        for span in self.spans.get(span..)? {
            if tag == NONE {
                tag = span.first;
            }
            while tag != NONE {
                let Tag { kind, after, .. } = self.tags[tag as usize];
                if kind == Kind::Free
                    && let Some(start) = self.fit(tag, size, c)
                {
                    return Some((tag, start));
                }
                tag = after;
            }
        }
        None
    }

    /// The span that contains an integer of the arena.
    fn span_of(&self, address: u64) -> usize {
        self.spans.partition_point(|span| span.start <= address).saturating_sub(1)
    }

    /// Reserves tags until `n` are spare.
    fn reserve(&mut self, n: usize) -> Result<(), OutOfMemory> {
        let more = n.saturating_sub(self.spares);
        let all = self.tags.len() + more;
        if more > 0 && (all >= NONE as usize || self.tags.try_reserve(more).is_err()) {
            return Err(OutOfMemory(all * size_of::<Tag>()));
        }
        Ok(())
    }

    /// Takes a spare tag, for a segment that is on no list yet. There is one: see [`Arena::reserve`].
    fn tag(&mut self, start: u64, size: u64) -> u32 {
        let new = Tag { start, size, before: NONE, after: NONE, prev: NONE, next: NONE, kind: Kind::Unused };
        if self.spare == NONE {
            self.tags.push(new);
            return (self.tags.len() - 1) as u32;
        }
        let tag = self.spare;
        self.spare = self.tags[tag as usize].next;
        self.spares -= 1;
        self.tags[tag as usize] = new;
        tag
    }

    fn discard(&mut self, tag: u32) {
        let spare = &mut self.tags[tag as usize];
        spare.kind = Kind::Unused;
        spare.next = self.spare;
        self.spare = tag;
        self.spares += 1;
    }

    /// Inserts a segment after another.
    fn link_after(&mut self, left: u32, new: u32) {
        let after = self.tags[left as usize].after;
        self.tags[new as usize].before = left;
        self.tags[new as usize].after = after;
        self.tags[left as usize].after = new;
        if after != NONE {
            self.tags[after as usize].before = new;
        }
    }

    /// Merges a segment into its left neighbour.
    fn absorb(&mut self, left: u32, right: u32) {
        let Tag { size, after, .. } = self.tags[right as usize];
        self.tags[left as usize].size += size;
        self.tags[left as usize].after = after;
        if after != NONE {
            self.tags[after as usize].before = left;
        }
        if self.rotor_tag == right {
            self.rotor_tag = left;
        }
        self.discard(right);
    }

    /// Makes a segment free: first on its list.
    fn list(&mut self, tag: u32) {
        let size = self.tags[tag as usize].size;
        let list = size.ilog2() as usize;
        let next = std::mem::replace(&mut self.lists[list], tag);
        self.filled |= 1 << list;
        if next != NONE {
            self.tags[next as usize].prev = tag;
        }
        let free = &mut self.tags[tag as usize];
        (free.prev, free.next, free.kind) = (NONE, next, Kind::Free);
        self.free += size;
    }

    fn unlist(&mut self, tag: u32) {
        let Tag { size, prev, next, .. } = self.tags[tag as usize];
        let list = size.ilog2() as usize;
        if prev == NONE {
            self.lists[list] = next;
        } else {
            self.tags[prev as usize].next = next;
        }
        if next != NONE {
            self.tags[next as usize].prev = prev;
        }
        if self.lists[list] == NONE {
            self.filled &= !(1 << list);
        }
        self.free -= size;
    }

    fn bucket(&self, address: u64) -> usize {
        // With one bucket, all 64 bits would be shifted out.
        let bits = self.buckets.len().trailing_zeros();
        (spread(address, self.quantum) >> 1 >> (63 - bits)) as usize
    }

    fn lookup(&self, address: u64) -> Option<u32> {
        let mut tag = if self.buckets.is_empty() { NONE } else { self.buckets[self.bucket(address)] };
        while tag != NONE && self.tags[tag as usize].start != address {
            tag = self.tags[tag as usize].next;
        }
        (tag != NONE).then_some(tag)
    }

    /// Makes a segment allocated: first of its chain.
    fn hash(&mut self, tag: u32) {
        self.allocated += 1;
        self.tags[tag as usize].kind = Kind::Allocated;
        self.chain(tag);
    }

    fn chain(&mut self, tag: u32) {
        let bucket = self.bucket(self.tags[tag as usize].start);
        self.tags[tag as usize].next = std::mem::replace(&mut self.buckets[bucket], tag);
    }

    fn unhash(&mut self, tag: u32) {
        let bucket = self.bucket(self.tags[tag as usize].start);
        let next = self.tags[tag as usize].next;
        if self.buckets[bucket] == tag {
            self.buckets[bucket] = next;
        } else {
            let mut at = self.buckets[bucket];
            while self.tags[at as usize].next != tag {
                at = self.tags[at as usize].next;
            }
            self.tags[at as usize].next = next;
        }
        self.allocated -= 1;
    }

    /// Doubles the hash table. Without memory the chains get longer.
    fn rehash(&mut self) {
        let more = self.buckets.len().max(1);
        if self.buckets.try_reserve_exact(more).is_err() {
            return;
        }
        let length = self.buckets.len() + more;
        self.buckets.clear();
        self.buckets.resize(length, NONE);
        for tag in 0..self.tags.len() {
            if self.tags[tag].kind == Kind::Allocated {
                self.chain(tag as u32);
            }
        }
    }

    /// The first inconsistency of the arena's own data, for tests.
    #[doc(hidden)]
    pub fn audit(&self) -> Result<(), String> {
        let (mut total, mut free, mut allocated, mut listed) = (0, 0, 0, 0);
        for span in &self.spans {
            let (mut at, mut tag, mut before, mut was_free) = (span.start, span.first, NONE, false);
            while tag != NONE {
                let Tag { start, size, kind, before: left, after, .. } = self.tags[tag as usize];
                if (start, left) != (at, before) || size == 0 {
                    return Err(format!("segment {start:#x} of {size} does not follow {at:#x}"));
                }
                match kind {
                    Kind::Free if was_free => return Err(format!("two free segments meet at {start:#x}")),
                    Kind::Free => (free, listed) = (free + size, listed + 1),
                    Kind::Allocated if self.lookup(start) != Some(tag) => {
                        return Err(format!("{start:#x} is not in the hash table"));
                    }
                    Kind::Allocated => allocated += 1,
                    Kind::Unused => return Err(format!("{start:#x} has a spare tag")),
                }
                (was_free, before, tag, at) = (kind == Kind::Free, tag, after, start.wrapping_add(size));
            }
            if at != span.start.wrapping_add(span.size) {
                return Err(format!("the span at {:#x} ends at {at:#x}", span.start));
            }
            total += span.size;
        }
        for (list, &head) in self.lists.iter().enumerate() {
            if (head == NONE) == (self.filled >> list & 1 == 1) {
                return Err(format!("the bit of list {list} is wrong"));
            }
            let (mut tag, mut prev) = (head, NONE);
            while tag != NONE {
                let found = &self.tags[tag as usize];
                if found.kind != Kind::Free || found.size.ilog2() as usize != list || found.prev != prev {
                    return Err(format!("{:#x} should not be on list {list}", found.start));
                }
                listed -= 1;
                (prev, tag) = (tag, found.next);
            }
        }
        let spare = self.tags.iter().filter(|tag| tag.kind == Kind::Unused).count();
        if (total, free, allocated, listed, spare) != (self.total, self.free, self.allocated, 0, self.spares)
        {
            return Err(format!("sums differ: {total} {free} {allocated} {listed} {spare}"));
        }
        Ok(())
    }
}
