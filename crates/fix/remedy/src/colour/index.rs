//! Which set of a cache an address falls into: pure functions.

/// How a cache chooses the set of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// The bits above the line, as first-level caches do. `sets` is a power of two.
    Plain {
        /// Sets of the cache.
        sets: u64,
        /// Bytes of a line.
        line: u64,
    },
    /// The second level of the UltraSPARC T2: 4 MB in 16 ways of 64-byte lines, 4096 sets, hashed:
    /// `PA[32:28]^PA[17:13] . PA[19:18]^PA[12:11] . PA[10:6]` (J. Chamberlin's blog, "Cache Associativity", 2007).
    UltraSparcT2,
}

/// Bits `high` down to `low` of a word.
const fn bits(word: u64, high: u32, low: u32) -> u64 {
    word >> low & ((1 << (high - low + 1)) - 1)
}

impl Index {
    /// The set of an address.
    pub fn of(self, address: u64) -> u64 {
        match self {
            Index::Plain { sets, line } => address / line % sets,
            Index::UltraSparcT2 => {
                let high = bits(address, 32, 28) ^ bits(address, 17, 13);
                let middle = bits(address, 19, 18) ^ bits(address, 12, 11);
                high << 7 | middle << 5 | bits(address, 10, 6)
            }
        }
    }

    /// Sets of the cache.
    pub fn sets(self) -> u64 {
        match self {
            Index::Plain { sets, .. } => sets,
            Index::UltraSparcT2 => 4096,
        }
    }

    /// The colour of a page frame: which of its places in the cache it fills. Pages of one colour compete.
    pub fn colour(self, frame: u64, page: u64) -> u64 {
        let lines = match self {
            Index::Plain { line, .. } => page / line,
            Index::UltraSparcT2 => page / 64,
        };
        // Lines of a page fill a run of sets, whose first names it.
        self.of(frame * page) / lines.min(self.sets())
    }

    /// How many colours pages have.
    pub fn colours(self, page: u64) -> u64 {
        let lines = match self {
            Index::Plain { line, .. } => page / line,
            Index::UltraSparcT2 => page / 64,
        };
        (self.sets() / lines).max(1)
    }
}

/// Something at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Its name; for a stack the thread's.
    pub name: String,
    /// Where.
    pub address: u64,
    /// It is where a thread's stack is now, and not a variable.
    pub stack: bool,
}

/// Things that share a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The set.
    pub set: u64,
    /// The objects in it, each in a line of its own.
    pub members: Vec<Hot>,
}

/// Sets that more things compete for than the cache has ways, the fullest first. Things in one line count once.
pub fn conflicts(hot: &[Hot], index: Index, line: u64, ways: usize) -> Vec<Conflict> {
    let mut sets: std::collections::BTreeMap<u64, Vec<Hot>> = Default::default();
    for each in hot {
        let members = sets.entry(index.of(each.address)).or_default();
        if members.iter().all(|m| m.address / line != each.address / line) {
            members.push(each.clone());
        }
    }
    let mut out: Vec<Conflict> = sets
        .into_iter()
        .filter(|(_, members)| members.len() > ways)
        .map(|(set, members)| Conflict { set, members })
        .collect();
    out.sort_by_key(|c| (std::cmp::Reverse(c.members.len()), c.set));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const L1: Index = Index::Plain { sets: 64, line: 64 };

    #[test]
    fn sets_of_a_plain_cache_repeat_each_page() {
        assert_eq!(L1.of(0), 0);
        assert_eq!(L1.of(64), 1);
        assert_eq!(L1.of(4096 + 130), 2);
        assert_eq!((L1.colours(4096), L1.colour(7, 4096)), (1, 0));
        let l2 = Index::Plain { sets: 2048, line: 64 };
        assert_eq!(l2.colours(4096), 32);
        assert_eq!((l2.colour(31, 4096), l2.colour(32, 4096)), (31, 0));
    }

    #[test]
    fn the_hashed_index_is_the_documents() {
        let t2 = Index::UltraSparcT2;
        assert_eq!(t2.of(0), 0);
        assert_eq!(t2.of(1 << 6), 1);
        // Bits 11 and 18 meet, and so do 13 and 28.
        assert_eq!(t2.of(1 << 11), 1 << 5);
        assert_eq!(t2.of(1 << 18), 1 << 5);
        assert_eq!(t2.of(1 << 11 | 1 << 18), 0);
        assert_eq!(t2.of(1 << 13), 1 << 7);
        assert_eq!(t2.of(1 << 28 | 1 << 13), 0);
        assert_eq!(t2.of(1 << 32), 1 << 11);
        // A way of 256 KB holds each line once: within it no two lines share a set.
        let mut seen = std::collections::BTreeSet::new();
        assert!((0..4096).all(|i| seen.insert(t2.of(i * 64))));
        // 256 KB pages apart they would collide in a plain cache; hashed they do not.
        let hashed: std::collections::BTreeSet<u64> = (0..4).map(|i| t2.of(i << 18)).collect();
        assert_eq!(hashed.len(), 4);
        let plain = Index::Plain { sets: 4096, line: 64 };
        assert_eq!((0..4).map(|i| plain.of(i << 18)).collect::<std::collections::BTreeSet<u64>>().len(), 1);
    }

    #[test]
    fn planted_conflicts_are_named() {
        let hot = |name: &str, address| Hot { name: name.into(), address, stack: false };
        let mut all: Vec<Hot> = (0..200).map(|i| hot("spread", 0x10_0000 + i * 64)).collect();
        // 20 words at one offset of 20 pages, and two of one line.
        all.extend((0..20).map(|i| hot(&format!("planted {i}"), 0x90_0000 + i * 4096 + 0x240)));
        all.push(hot("the same line", 0x90_0000 + 0x248));
        let found = conflicts(&all, L1, 64, 12);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].set, 9);
        assert_eq!(found[0].members.iter().filter(|m| m.name.starts_with("planted")).count(), 20);
        assert!(found[0].members.iter().all(|m| m.name != "the same line"));
        assert_eq!(conflicts(&all, L1, 64, 30), []);
    }
    #[test]
    fn pages_of_all_colours_in_turn_overflow_no_set() {
        const PAGE: u64 = 4096;
        let plain = Index::Plain { sets: 1024, line: 64 };
        for (index, ways) in [(plain, 16), (Index::UltraSparcT2, 16)] {
            let colours = index.colours(PAGE);
            let wanted = (colours * ways) as usize;
            // The frames that a kernel may give: any, and then many more of one colour.
            let mut frames: Vec<u64> = (0..8 * wanted as u64).map(|i| i * 7919 % (1 << 20)).collect();
            frames.extend((0..wanted as u64).map(|i| (1 << 21) + i * colours));
            let fullest = |frames: &[u64]| {
                let mut sets = vec![0u64; index.sets() as usize];
                let lines = frames.iter().flat_map(|f| (0..PAGE / 64).map(move |l| f * PAGE + l * 64));
                lines.for_each(|line| sets[index.of(line) as usize] += 1);
                sets.into_iter().max().unwrap()
            };
            let mut pages = libncpu::colours::Pages::new(colours as usize);
            for &frame in &frames {
                pages.give((frame * PAGE) as usize, index.colour(frame, PAGE) as usize);
            }
            let taken: Vec<u64> =
                (0..wanted).filter_map(|_| pages.take()).map(|(page, _)| page as u64 / PAGE).collect();
            // A cache full of pages, and no set has more than its ways.
            assert_eq!((taken.len(), fullest(&taken)), (wanted, ways), "{index:?}");
            // Frames as they come overflow some.
            assert!(fullest(&frames[frames.len() - wanted..]) > ways, "{index:?}");
        }
    }
}
