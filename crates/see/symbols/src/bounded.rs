//! A file that is parsed within bounds of bytes, pieces and time. A request beyond them fails like a damaged
//! file, before any memory is allocated for it.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use ncpu_files::reader::Source;
use object::read::{ReadCache, ReadCacheOps, ReadRef};

/// Bytes of headers and small sections of one file. Section headers alone may be 4 MiB.
const MOST: u64 = 8 << 20;
/// Cost of a piece in addition to its bytes, in bytes.
const PIECE: u64 = 64;
/// The time limit for parsing one file.
const LONGEST: Duration = Duration::from_millis(1000);

/// A file within its bounds.
pub(crate) struct Bounded<'s> {
    cache: ReadCache<Reader<'s>>,
    length: u64,
    left: Cell<u64>,
    until: Instant,
}

impl<'s> Bounded<'s> {
    pub fn new(source: &'s Source) -> Bounded<'s> {
        Bounded {
            length: source.size(),
            cache: ReadCache::new(Reader { source, at: 0 }),
            left: Cell::new(MOST),
            until: Instant::now() + LONGEST,
        }
    }

    /// Takes bytes from the budget.
    fn take(&self, bytes: u64) -> Result<(), ()> {
        let left = self.left.get().checked_sub(bytes.saturating_add(PIECE)).ok_or(())?;
        self.left.set(left);
        (Instant::now() < self.until).then_some(()).ok_or(())
    }
}

impl<'a> ReadRef<'a> for &'a Bounded<'_> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if offset.checked_add(size).is_none_or(|end| end > self.length) {
            return Err(());
        }
        self.take(size)?;
        (&self.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        if range.start > range.end || range.end > self.length {
            return Err(());
        }
        // The cache looks for the end within 4 KiB at most.
        self.take(0)?;
        let bytes = (&self.cache).read_bytes_at_until(range, delimiter)?;
        self.take(bytes.len() as u64)?;
        Ok(bytes)
    }
}

/// A file that is read sequentially.
struct Reader<'s> {
    source: &'s Source,
    at: u64,
}

impl ReadCacheOps for Reader<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.source.size())
    }

    fn seek(&mut self, at: u64) -> Result<u64, ()> {
        self.at = at;
        Ok(at)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, ()> {
        let got = self.source.read_at(into, self.at).map_err(drop)?;
        self.at += got as u64;
        Ok(got)
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), ()> {
        self.source.read_exact_at(into, self.at).map_err(drop)?;
        self.at += into.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_and_pieces_are_counted_before_they_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let source = Source::open(file.path()).unwrap();
        let bounded = Bounded::new(&source);
        assert!((&bounded).read_bytes_at(0, 1 << 39).is_err());
        assert!((&bounded).read_bytes_at(u64::MAX, 2).is_err());
        assert_eq!((&bounded).read_bytes_at(5, 1 << 20).unwrap().len(), 1 << 20);
        let mut read = 0;
        while (&bounded).read_bytes_at(read, 1 << 20).is_ok() {
            read += 1;
        }
        assert!(read < 8, "overlapping parts count at each read: {read}");
        let pieces = Bounded::new(&source);
        let count = (0..1 << 20).take_while(|at| (&pieces).read_bytes_at(*at, 1).is_ok()).count() as u64;
        assert!(count <= MOST / PIECE, "{count}");
        // Strings without an end.
        assert!((&Bounded::new(&source)).read_bytes_at_until(0..1 << 39, b'x').is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn no_parts_take_more_than_the_budget(parts in proptest::collection::vec((0u64..1 << 22, 0u64..1 << 22), 0..64)) {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(1 << 22).unwrap();
            let source = Source::open(file.path()).unwrap();
            let bounded = Bounded::new(&source);
            let sizes = parts.iter().filter_map(|&(at, size)| (&bounded).read_bytes_at(at, size).ok()).map(|b| b.len() as u64);
            prop_assert!(sizes.sum::<u64>() <= MOST);
        }
    }
}
