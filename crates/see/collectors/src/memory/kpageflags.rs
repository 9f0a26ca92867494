//! The pages by `/proc/kpageflags`: one 64-bit word a page, read in large pieces.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::exec::ExecFrames;
use super::{Class, Classifier, Counts, kpf};

/// Pages in one read: 512 KiB, which stays in a core's second-level cache until it is classified.
const BATCH: usize = 1 << 16;

/// A folio that a range begins in the midst of has its head at most this many pages before (2 MiB of
/// transparent huge pages; hugetlb pages carry their bit each).
const LARGEST_THP: u64 = 512;

/// `/proc/kpageflags`, open.
#[derive(Debug)]
pub struct Kpageflags {
    flags: File,
}

/// A file of one word a page that is read forward.
pub(super) struct Words<'f> {
    file: &'f File,
    bytes: Vec<u8>,
}

impl<'f> Words<'f> {
    pub fn new(file: &'f File) -> Words<'f> {
        Words { file, bytes: Vec::new() }
    }

    /// Reads the words of page frames `start..end`, at most [`BATCH`]; fewer where the file ends.
    pub fn read(&mut self, start: u64, end: u64) -> io::Result<impl Iterator<Item = u64> + '_> {
        let want = (end - start).min(BATCH as u64) as usize * 8;
        self.bytes.resize(want.max(self.bytes.len()), 0);
        let mut have = 0;
        while have < want {
            match self.file.read_at(&mut self.bytes[have..want], start * 8 + have as u64) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(self.bytes[..have - have % 8]
            .chunks_exact(8)
            .map(|w| u64::from_ne_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]])))
    }
}

impl Kpageflags {
    /// Opens `proc/kpageflags` below `root`.
    ///
    /// # Errors
    /// It is not there (`CONFIG_PROC_PAGE_MONITOR`) or may not be read (only root may).
    pub fn open(root: &Path) -> io::Result<Kpageflags> {
        Ok(Kpageflags { flags: File::open(root.join("proc/kpageflags"))? })
    }

    /// Adds up the classes of page frames `start..end`. `first` is where the memory they lie in begins:
    /// a folio's head is not looked for before it.
    ///
    /// # Errors
    /// The file cannot be read, or ends before `end`.
    pub fn tally(&self, first: u64, start: u64, end: u64, exec: &ExecFrames) -> io::Result<Counts> {
        let mut counts = Counts::default();
        self.each(first, start, end, exec, |_, _, class| {
            counts[class] += 1;
            Ok(())
        })?;
        Ok(counts)
    }

    /// Gives each page frame of `start..end`, its bits and its class to `page`.
    ///
    /// # Errors
    /// As [`tally`](Self::tally), and those of `page`.
    pub fn each(
        &self,
        first: u64,
        start: u64,
        end: u64,
        exec: &ExecFrames,
        mut page: impl FnMut(u64, u64, Class) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut words = Words::new(&self.flags);
        let mut classifier = Classifier::default();
        let mut exec = exec.from(start);
        let mut at = (start - start % LARGEST_THP).max(first);
        while at < end {
            let from = at;
            for flags in words.read(at, end)? {
                let mut class = classifier.next(flags);
                if at >= start {
                    if class.is_file() && exec.contains(at) {
                        class = Class::Exec;
                    }
                    page(at, flags, class)?;
                }
                at += 1;
            }
            if at == from {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("/proc/kpageflags ends at page frame {at}, before {end}"),
                ));
            }
        }
        Ok(())
    }

    /// The words of the bits in `flags`.
    pub fn words(flags: u64) -> String {
        kpf::words(flags)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(words: &[u64]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        std::fs::write(dir.path().join("proc/kpageflags"), bytes).unwrap();
        dir
    }

    #[test]
    fn a_range_that_starts_inside_a_folio_knows_its_head() {
        use kpf::*;
        let mut words = vec![0; 2000];
        words[600] = LRU | UPTODATE | SWAPBACKED | COMPOUND_HEAD | THP;
        words[601..616].fill(COMPOUND_TAIL);
        words[616] = LRU | UPTODATE | MMAP;
        let dir = file(&words);
        let k = Kpageflags::open(dir.path()).unwrap();
        let exec = ExecFrames::default();
        let counts = k.tally(0, 610, 700, &exec).unwrap();
        assert_eq!((counts[Class::SharedThp], counts[Class::Mapped], counts[Class::Kernel]), (6, 1, 83));
        // Before `first` nothing is looked at.
        assert_eq!(k.tally(610, 610, 700, &exec).unwrap()[Class::SharedThp], 0);
        let exec = ExecFrames::new(vec![616]);
        assert_eq!(k.tally(0, 610, 700, &exec).unwrap()[Class::Exec], 1);
        let error = k.tally(0, 1000, 3000, &exec).unwrap_err();
        assert!(error.to_string().contains("ends at page frame 2000, before 3000"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn ranges_add_up_wherever_they_are_cut(
            words in prop::collection::vec(any::<u64>(), 1..1500),
            cut in any::<prop::sample::Index>(),
            odd in 0usize..8,
        ) {
            let dir = file(&words);
            let path = dir.path().join("proc/kpageflags");
            // A file that ends within a word ends before it.
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() - odd]).unwrap();
            let len = (words.len() - usize::from(odd > 0)) as u64;
            let k = Kpageflags::open(dir.path()).unwrap();
            let none = ExecFrames::default();
            let mut pages = 0;
            k.each(0, 0, len, &none, |pfn, flags, _| { assert_eq!(flags, words[pfn as usize]); pages += 1; Ok(()) }).unwrap();
            prop_assert_eq!(pages, len);
            let cut = cut.index(words.len()) as u64;
            let cut = cut.min(len);
            let mut sum = k.tally(0, 0, cut, &none).unwrap();
            sum.add(&k.tally(0, cut, len, &none).unwrap());
            prop_assert_eq!(sum.total(), len);
            prop_assert!(k.tally(0, 0, len + 1, &none).is_err());
        }
    }
}
