//! A set of CPU (or node) numbers, in the kernel's two notations.

use std::fmt;
use std::str::FromStr;

/// The highest number in a set. The kernel's own limit (`NR_CPUS`) is 8192; the bound keeps a corrupt
/// "0-4294967295" from allocating half a gigabyte.
pub const MAX_CPU: u32 = 65_535;

/// Why a text is not a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A list item is neither a number nor a range.
    #[error("invalid CPU list item `{0}`; expected a number or a range, as in 0-3,8")]
    Item(String),
    /// A range whose end lies before its start.
    #[error("range `{0}` ends before it starts")]
    Backwards(String),
    /// A number above [`MAX_CPU`].
    #[error("`{0}` is above the highest CPU number, {MAX_CPU}")]
    TooBig(String),
    /// A mask group is not one to eight hexadecimal digits.
    #[error("invalid mask `{0}`; expected groups as in ff,ffffffff")]
    Group(String),
}

/// A set of CPU numbers; one bit each, so that 4096 CPUs take 512 bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// Never ends in a zero word, so that equal sets are equal vectors.
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    pub fn new() -> CpuSet {
        CpuSet::default()
    }

    /// Parses the kernel's list notation, `0-3,8`; blank is the empty set.
    ///
    /// # Errors
    /// [`ParseError`] names the invalid item.
    pub fn parse_list(text: &str) -> Result<CpuSet, ParseError> {
        let mut set = CpuSet::new();
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
        if text.is_empty() {
            return Ok(set);
        }
        for item in text.split(',') {
            let (first, last) = match item.split_once('-') {
                Some((first, last)) => (number(first, item)?, number(last, item)?),
                None => (number(item, item)?, number(item, item)?),
            };
            if last < first {
                return Err(ParseError::Backwards(clip(item)));
            }
            set.insert_range(first, last);
        }
        Ok(set)
    }

    /// Parses the kernel's mask notation, `ff,ffffffff`: groups of 32 bits, highest first; blank is
    /// the empty set.
    ///
    /// # Errors
    /// [`ParseError`] names the invalid group.
    pub fn parse_mask(text: &str) -> Result<CpuSet, ParseError> {
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
        let mut set = CpuSet::new();
        if text.is_empty() {
            return Ok(set);
        }
        let mut rest = text;
        let mut at = 0;
        loop {
            // On a large machine most groups of a mask are zero.
            if let Some(higher) = rest.strip_suffix(",00000000") {
                (rest, at) = (higher, at + 1);
                continue;
            }
            let (higher, group) = rest.rsplit_once(',').map_or((None, rest), |(h, g)| (Some(h), g));
            let digits = group.len() <= 8 && group.bytes().all(|b| b.is_ascii_hexdigit());
            let bits = match u32::from_str_radix(group, 16) {
                Ok(bits) if digits => bits,
                _ => return Err(ParseError::Group(clip(group))),
            };
            if bits != 0 {
                if at * 32 + 31 > MAX_CPU as usize {
                    return Err(ParseError::TooBig((at * 32 + bits.trailing_zeros() as usize).to_string()));
                }
                set.words.resize(set.words.len().max(at / 2 + 1), 0);
                set.words[at / 2] |= u64::from(bits) << (at % 2 * 32);
            }
            match higher {
                Some(higher) => (rest, at) = (higher, at + 1),
                None => return Ok(set),
            }
        }
    }

    /// The kernel's list notation, `0-3,8`.
    pub fn to_list(&self) -> String {
        self.ranges()
            .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
            .collect::<Vec<_>>()
            .join(",")
    }

    /// The kernel's mask notation, `ff,ffffffff`, without leading zero groups.
    pub fn to_mask(&self) -> String {
        let mut groups: Vec<u32> = self.words.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]).collect();
        while groups.len() > 1 && groups.last() == Some(&0) {
            groups.pop();
        }
        let mut out = format!("{:x}", groups.pop().unwrap_or(0));
        for group in groups.iter().rev() {
            out.push_str(&format!(",{group:08x}"));
        }
        out
    }

    /// The runs of consecutive numbers, each with its first and last.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut iter = self.iter().peekable();
        std::iter::from_fn(move || {
            let first = iter.next()?;
            let mut last = first;
            while iter.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            Some((first, last))
        })
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at as u32 * 64 + bit)
            })
        })
    }

    /// The count of numbers.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether the set contains this number.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|w| w >> (cpu % 64) & 1 == 1)
    }

    /// The lowest number.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The highest number.
    pub fn last(&self) -> Option<u32> {
        let word = self.words.last()?;
        Some(self.words.len() as u32 * 64 - 1 - word.leading_zeros())
    }

    /// Adds a number; numbers above [`MAX_CPU`] are ignored.
    pub fn insert(&mut self, cpu: u32) {
        self.insert_range(cpu, cpu);
    }

    fn insert_range(&mut self, first: u32, last: u32) {
        let last = last.min(MAX_CPU);
        if first > last {
            return;
        }
        let words = last as usize / 64 + 1;
        self.words.resize(self.words.len().max(words), 0);
        for at in first as usize / 64..words {
            let low = if at == first as usize / 64 { first % 64 } else { 0 };
            let high = if at + 1 == words { last % 64 } else { 63 };
            self.words[at] |= (u64::MAX << low) & (u64::MAX >> (63 - high));
        }
    }

    /// Removes a number.
    pub fn remove(&mut self, cpu: u32) {
        if let Some(word) = self.words.get_mut(cpu as usize / 64) {
            *word &= !(1 << (cpu % 64));
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// The intersection.
    #[must_use]
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect();
        let mut set = CpuSet { words };
        set.trim();
        set
    }

    /// The union.
    #[must_use]
    pub fn or(&self, other: &CpuSet) -> CpuSet {
        let (long, short) = if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        words.iter_mut().zip(&short.words).for_each(|(a, b)| *a |= b);
        CpuSet { words }
    }

    /// The numbers of this set that are not in the other.
    #[must_use]
    pub fn minus(&self, other: &CpuSet) -> CpuSet {
        let mut set = self.clone();
        set.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
        set.trim();
        set
    }

    /// Whether this is a subset of the other.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.words.len() <= other.words.len() && self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// Whether the sets have a number in common.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }
}

fn number(text: &str, item: &str) -> Result<u32, ParseError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseError::Item(clip(item)));
    }
    match text.parse::<u32>() {
        Ok(n) if n <= MAX_CPU => Ok(n),
        _ => Err(ParseError::TooBig(clip(text))),
    }
}

/// The start of a text, safe for a message: a corrupt file may be megabytes of control characters.
fn clip(text: &str) -> String {
    text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl FromStr for CpuSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<CpuSet, ParseError> {
        CpuSet::parse_list(text)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_list())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.to_list())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kernel_notations() {
        let set = CpuSet::parse_list("0-3,8\n").unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(set.to_mask(), "10f");
        assert_eq!(
            CpuSet::parse_mask("0000,00000088,88888888").unwrap().to_list(),
            "3,7,11,15,19,23,27,31,35,39"
        );
        assert_eq!(CpuSet::parse_mask("ff,ffffffff").unwrap().to_list(), "0-39");
        assert!(CpuSet::parse_list("\n").unwrap().is_empty());
        assert!(CpuSet::parse_mask("0").unwrap().is_empty());
        assert_eq!(CpuSet::new().to_mask(), "0");
        assert_eq!(CpuSet::parse_list("63-64,4095").unwrap().last(), Some(4095));
    }

    #[test]
    fn bad_text_is_named() {
        for (list, part) in [
            ("0-3,x", "`x`"),
            ("3-1", "ends before"),
            ("0-", "`0-`"),
            ("-1", "`-1`"),
            ("0,,2", "``"),
            ("0-4294967295", "above the highest"),
            ("99999999999999999999", "above the highest"),
            ("+1", "`+1`"),
        ] {
            let error = CpuSet::parse_list(list).unwrap_err().to_string();
            assert!(error.contains(part), "{list}: {error}");
        }
        for (mask, part) in [
            ("g", "`g`"),
            ("ff,", "``"),
            (",ff", "``"),
            (",", "``"),
            ("1ffffffff", "`1ffffffff`"),
            ("1,+f,0", "`+f`"),
            ("0x1", "`0x1`"),
            ("1,,1", "``"),
            ("é,1", "`é`"),
        ] {
            let error = CpuSet::parse_mask(mask).unwrap_err().to_string();
            assert!(error.contains(part), "{mask}: {error}");
        }
        assert!(CpuSet::parse_mask(&format!("1{}", ",00000000".repeat(3000))).is_err());
    }

    proptest! {
        #[test]
        fn both_notations_round_trip(cpus in proptest::collection::btree_set(0u32..5000, 0..200)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.len(), cpus.len());
            prop_assert_eq!(set.first(), cpus.first().copied());
            prop_assert_eq!(set.last(), cpus.last().copied());
            prop_assert_eq!(&CpuSet::parse_list(&set.to_list()).unwrap(), &set);
            prop_assert_eq!(&CpuSet::parse_mask(&set.to_mask()).unwrap(), &set);
        }

        #[test]
        fn sets_behave_as_sets(
            a in proptest::collection::btree_set(0u32..300, 0..60),
            b in proptest::collection::btree_set(0u32..300, 0..60),
        ) {
            let (x, y): (CpuSet, CpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            let of = |i: &mut dyn Iterator<Item = &u32>| i.copied().collect::<CpuSet>();
            prop_assert_eq!(x.and(&y), of(&mut a.intersection(&b)));
            prop_assert_eq!(x.or(&y), of(&mut a.union(&b)));
            prop_assert_eq!(x.minus(&y), of(&mut a.difference(&b)));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
            let mut z = x.clone();
            for cpu in &b { z.remove(*cpu); }
            prop_assert_eq!(z, x.minus(&y));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}", list in "[0-9,\\- ]{0,30}", mask in "[0-9a-f,]{0,60}") {
            for text in [&text, &list, &mask] {
                let _ = (CpuSet::parse_list(text), CpuSet::parse_mask(text));
            }
        }
    }
}
