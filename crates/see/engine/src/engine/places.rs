//! Places where threads go to sleep, as `places.h` of the kernel side tells them apart.

use ncpu_symbols::{Copied, Recent};

/// As table.h and places.h have them.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const WORDS: usize = super::layout::PLACE_WORDS;
const ALIKE: usize = 4;
const NO_WORD: u16 = 0xffff;
/// Chains remembered, a generation.
const MAX_CHAINS: usize = 1 << 12;

/// A place that the kernel side is to recognize: its index among places of the same chain, and the
/// words that identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub chain: u64,
    pub which: u64,
    pub id: u64,
    pub fold: u64,
    pub words: [u16; WORDS],
}

/// The chain of a place that the kernel side did not know at a time (`new_place`).
pub(super) fn chain(id: u64, time: u64) -> u64 {
    (id ^ time.wrapping_mul(SPREAD)) | 2
}

/// The places that were sent to the kernel side.
pub(crate) struct Places(Recent<u64, Vec<Place>>);

impl Default for Places {
    fn default() -> Places {
        Places(Recent::new(MAX_CHAINS))
    }
}

impl Places {
    /// The place to send to the kernel side, identified by the words of the stack's copy that hold return addresses;
    /// `None` if it was sent already.
    pub fn meet(&mut self, chain: u64, id: u64, copy: Option<&Copied>, marks: &[usize]) -> Option<Place> {
        let stack = copy.map_or(&[][..], |c| &c.words[..]);
        let mut words = [NO_WORD; WORDS];
        // Callers may differ anywhere.
        let some = marks.len().min(WORDS);
        let chosen = (0..some).map(|i| marks[i * marks.len() / some]);
        for (word, at) in words.iter_mut().zip(chosen.filter(|at| *at < stack.len())) {
            *word = u16::try_from(at).unwrap_or(NO_WORD);
        }
        let place = Place { chain, which: 0, id, fold: fold(stack, &words), words };
        if self.0.get(&chain).is_none() {
            self.0.insert(chain, vec![place]);
            return Some(place);
        }
        let mut alike = self.0.get(&chain).cloned()?;
        // Several threads may have come there before it was known.
        if alike.iter().any(|known| fold(stack, &known.words) == known.fold) {
            return None;
        }
        // Where more are alike than there is room for, one is forgotten.
        let which = if alike.len() < ALIKE { alike.len() } else { id as usize / 4 % ALIKE };
        let place = Place { which: which as u64, ..place };
        match alike.get_mut(which) {
            Some(old) => *old = place,
            None => alike.push(place),
        }
        self.0.insert(chain, alike);
        Some(place)
    }
}

/// As `place_of` has it.
fn fold(stack: &[u64], words: &[u16; WORDS]) -> u64 {
    words.iter().take_while(|at| **at != NO_WORD).fold(0, |fold, &at| {
        let word = stack.get(usize::from(at)).copied().unwrap_or(0);
        let fold = (fold ^ word).wrapping_mul(SPREAD);
        fold ^ fold >> 32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(words: &[u64]) -> Copied {
        Copied { words: words.to_vec(), ..Copied::default() }
    }

    #[test]
    fn places_alike_by_their_chain_are_told_apart() {
        let mut places = Places::default();
        let mut meet = |id: u64, words: &[u64]| places.meet(7, id, Some(&copy(words)), &[1, 3]);
        let first = meet(10, &[0, 100, 0, 200]).expect("it is new");
        assert_eq!((first.which, first.id, &first.words[..3]), (0, 10, &[1, 3, NO_WORD][..]));
        // Words between the chosen ones may differ.
        assert_eq!(meet(11, &[5, 100, 9, 200]), None);
        for which in 1..4 {
            let other = meet(20 + which, &[0, 100, 0, 200 + which]).expect("it is another");
            assert_eq!((other.which, other.id), (which, 20 + which));
        }
        // There is room for no fifth.
        assert!(meet(30, &[0, 100, 0, 300]).is_some_and(|p| p.which < 4));
        assert_eq!(places.meet(7, 31, Some(&copy(&[0, 100, 0, 300])), &[1, 3]), None);
        // Of a stack without a copy nothing more is known.
        assert_eq!(places.meet(8, 40, None, &[1, 3]).map(|p| (p.fold, p.words)), Some((0, [NO_WORD; WORDS])));
        assert_eq!(places.meet(8, 41, None, &[]), None);
    }

    #[test]
    fn marks_beyond_the_room_are_chosen_from_all() {
        let words: Vec<u64> = (0..100).collect();
        let marks: Vec<usize> = (0..64).collect();
        let place = Places::default().meet(1, 2, Some(&copy(&words)), &marks).expect("it is new");
        assert_eq!(place.words, std::array::from_fn(|i| 4 * i as u16));
    }

    #[test]
    fn the_chain_is_found_again() {
        let (chain_of, now) = (0x1234_5678_9abc_def2u64 | 2, 0x0011_2233_4455u64);
        let id = (chain_of ^ now.wrapping_mul(SPREAD)) | 2;
        assert_eq!(chain(id, now), chain_of);
    }
}
