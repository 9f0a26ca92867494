//! Which page frames hold files that some process maps executable, without BPF.
//!
//! No bit of a page tells. So each such file is found in `/proc/*/maps`, mapped here where its pages are
//! cached, and `/proc/self/pagemap` tells their frames: a few reads a file, none a page.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use ncpu_files::reader::{Source, Whose, process_text};
use ncpu_machine::process;

/// A file: its device and inode.
type File = ((u32, u32), u64);

/// Page frames, sorted.
#[derive(Debug, Default)]
pub struct ExecFrames {
    frames: Vec<u64>,
    /// Files that could not be looked at.
    pub missed: u64,
}

impl ExecFrames {
    /// The set of these page frames.
    pub fn new(mut frames: Vec<u64>) -> ExecFrames {
        frames.sort_unstable();
        frames.dedup();
        ExecFrames { frames, missed: 0 }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// For look-ups in rising order, the first at `start` or above.
    pub(super) fn from(&self, start: u64) -> Cursor<'_> {
        Cursor { rest: &self.frames[self.frames.partition_point(|&f| f < start)..] }
    }

    /// Finds the files that are mapped executable, and their pages.
    ///
    /// # Errors
    /// `/proc` cannot be listed, or `/proc/self/pagemap` shows no frames.
    pub fn find() -> io::Result<ExecFrames> {
        let mut files: HashMap<File, Vec<(PathBuf, Whose)>> = HashMap::new();
        for pid in process::pids(Path::new("/proc"))? {
            let dir = Path::new("/proc").join(pid.to_string());
            // A process that ends meanwhile has nothing mapped.
            let whose = Whose::process(&dir, pid);
            let Ok(text) = process_text(&dir, pid, "maps") else { continue };
            for mapping in process::mappings(&text).filter(|m| m.execute && m.is_file()) {
                let places = files.entry((mapping.device, mapping.inode)).or_default();
                if places.len() < 4 {
                    places.push((dir.join("map_files").join(mapping.link()), whose));
                }
            }
        }
        let pagemap = fs::File::open("/proc/self/pagemap")?;
        let mut frames = Vec::new();
        let mut missed = 0;
        for (_, places) in files {
            // By the mapping, not by the path: that works for files of containers and deleted ones.
            let look =
                |(place, whose): &(PathBuf, Whose)| cached_frames(place, *whose, &pagemap, &mut frames);
            if places.iter().map(look).all(|looked| looked.is_err()) {
                missed += 1;
            }
        }
        Ok(ExecFrames { missed, ..ExecFrames::new(frames) })
    }
}

/// Look-ups in rising order.
pub(super) struct Cursor<'f> {
    rest: &'f [u64],
}

impl Cursor<'_> {
    #[inline]
    pub fn contains(&mut self, frame: u64) -> bool {
        while let Some((&first, rest)) = self.rest.split_first() {
            if first >= frame {
                return first == frame;
            }
            self.rest = rest;
        }
        false
    }
}

/// Pages mapped at once: a window of 16 MiB, so that the memory used does not depend on the file's size.
const WINDOW: u64 = 1 << 12;

/// Opens the regular file behind a link of `/proc`, if no other process or machine has to answer for that. Other kinds of
/// files give EINVAL.
pub(super) fn local_file(link: &Path, whose: Whose) -> io::Result<fs::File> {
    Source::mapped(link, whose)?.local()
}

/// Adds the frames of a file's cached pages.
fn cached_frames(path: &Path, whose: Whose, pagemap: &fs::File, frames: &mut Vec<u64>) -> io::Result<()> {
    let file = match local_file(path, whose) {
        Ok(file) => file,
        // A device, which has no pages in the cache.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
        Err(e) => return Err(e),
    };
    let page = rustix::param::page_size() as u64;
    let pages = file.metadata()?.size().div_ceil(page);
    let mut first = 0;
    while first < pages {
        // Without its holes: a file without any data may claim exabytes.
        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(first * page)) {
            Ok(data) if data / page < pages => first = first.max(data / page),
            Ok(_) | Err(rustix::io::Errno::NXIO) => break,
            // Not supported.
            Err(_) => {}
        }
        let n = (pages - first).min(WINDOW);
        let map = Mapped::new(&file, first * page, (n * page) as usize)?;
        let resident = map.resident(n as usize)?;
        let mut words = vec![0; n as usize * 8];
        let mut at = 0;
        while at < resident.len() {
            let run = resident[at..].iter().take_while(|&&r| r & 1 == resident[at] & 1).count();
            if resident[at] & 1 == 1 {
                map.populate(at * page as usize, run * page as usize)?;
                let bytes = &mut words[..run * 8];
                pagemap.read_exact_at(bytes, (map.address() / page + at as u64) * 8)?;
                frames.extend(bytes.chunks_exact(8).filter_map(frame_of));
            }
            at += run;
        }
        first += n;
    }
    Ok(())
}

/// The page frame in a word of a pagemap; `None` where there is none or it is hidden.
pub(super) fn frame_of(word: &[u8]) -> Option<u64> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let word = u64::from_ne_bytes(word.try_into().ok()?);
    (word & PRESENT != 0 && word & FRAME != 0).then_some(word & FRAME)
}

/// A read-only shared mapping of a part of a file. It is never read, so a file that shrinks does no harm.
struct Mapped {
    at: *mut libc::c_void,
    len: usize,
}

impl Mapped {
    fn new(file: &fs::File, offset: u64, len: usize) -> io::Result<Mapped> {
        // SAFETY: a fresh mapping, not dereferenced by this process.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Mapped { at, len }) }
    }

    fn address(&self) -> u64 {
        self.at as u64
    }

    fn resident(&self, pages: usize) -> io::Result<Vec<u8>> {
        let mut resident = vec![0u8; pages];
        // SAFETY: `resident` has a byte for each page of the mapping.
        let rc = unsafe { libc::mincore(self.at, self.len, resident.as_mut_ptr()) };
        if rc == 0 { Ok(resident) } else { Err(io::Error::last_os_error()) }
    }

    /// Enters cached pages into this process's page table.
    fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        // SAFETY: a part of this mapping.
        let rc = unsafe { libc::madvise(self.at.byte_add(offset), len, libc::MADV_POPULATE_READ) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, never handed out.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn look_ups_rise() {
        let set = ExecFrames::new(vec![9, 5, 5, 7]);
        let mut cursor = set.from(6);
        let found: Vec<u64> = (6..12).filter(|&f| cursor.contains(f)).collect();
        assert_eq!((found, set.len(), set.is_empty()), (vec![7, 9], 3, false));
    }

    #[test]
    fn frames_of_this_test_are_found() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: /proc/self/pagemap shows frames to root only");
            return;
        }
        let set = ExecFrames::find().unwrap();
        // This very function runs from a frame that is in the set.
        let here = (frames_of_this_test_are_found as *const () as u64) / rustix::param::page_size() as u64;
        let mut word = [0; 8];
        fs::File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut word, here * 8).unwrap();
        let frame = frame_of(&word).unwrap();
        assert!(set.from(frame).contains(frame));
    }

    #[test]
    fn holes_take_no_time() {
        let file = rustix::fs::memfd_create("holes", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = fs::File::from(file);
        file.set_len(1 << 62).unwrap();
        for at in [0, 1 << 40, 1 << 61] {
            file.write_all_at(b"x", at).unwrap();
        }
        let pagemap = fs::File::open("/proc/self/pagemap").unwrap();
        let link = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let mut frames = Vec::new();
        cached_frames(Path::new(&link), Whose::OWN, &pagemap, &mut frames).unwrap();
        if rustix::process::geteuid().is_root() {
            assert_eq!(frames.len(), 3);
        }
    }

    proptest! {
        #[test]
        fn pagemap_words_give_frames_that_are_there(word in any::<u64>()) {
            match frame_of(&word.to_ne_bytes()) {
                Some(frame) => prop_assert!(word >> 63 == 1 && frame == word & ((1 << 55) - 1)),
                None => prop_assert!(word >> 63 == 0 || word << 9 == 0),
            }
            prop_assert_eq!(frame_of(&[1, 2, 3]), None);
        }
    }
}
