//! Which page frames hold files that some process maps executable, without BPF.
//!
//! No bit of a page tells. So each such file is found in `/proc/*/maps`, mapped here where its pages are
//! cached, and `/proc/self/pagemap` tells their frames: a few reads a file, none a page.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

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
        let mut files: HashMap<FileId, Vec<PathBuf>> = HashMap::new();
        let mut text = String::new();
        for pid in processes(Path::new("/proc"))? {
            let dir = Path::new("/proc").join(pid.to_string());
            text.clear();
            // A process that ends meanwhile has nothing mapped.
            if File::open(dir.join("maps")).and_then(|mut f| f.read_to_string(&mut text)).is_err() {
                continue;
            }
            for mapping in executable(&text) {
                let places = files.entry(mapping.file).or_default();
                if places.len() < 4 {
                    places.push(dir.join("map_files").join(mapping.range));
                }
            }
        }
        let pagemap = File::open("/proc/self/pagemap")?;
        let mut frames = Vec::new();
        let mut missed = 0;
        for (_, places) in files {
            // By the mapping, not by the path: that works for files of containers and deleted ones.
            if !places.iter().any(|place| cached_frames(place, &pagemap, &mut frames).is_ok()) {
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

/// The processes there are.
pub(super) fn processes(proc: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(proc)?.flatten().map(|e| e.file_name());
    Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
}

/// A file, as `/proc/PID/maps` names it: device and inode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId(String);

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping<'t> {
    pub file: FileId,
    /// The addresses, as the entries of `map_files` are called.
    pub range: String,
    pub executable: bool,
    pub path: &'t str,
}

/// The mappings of files in the text of `/proc/PID/maps`.
pub(super) fn mappings(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    text.lines().filter_map(|line| {
        let mut words = line.splitn(6, ' ');
        let (range, permissions) = (words.next()?, words.next()?);
        let (_offset, device, inode) = (words.next()?, words.next()?, words.next()?);
        if inode == "0" {
            return None;
        }
        // maps pads addresses to eight digits, map_files does not.
        let (start, end) = range.split_once('-')?;
        let number = |s| u64::from_str_radix(s, 16).ok();
        Some(Mapping {
            file: FileId(format!("{device} {inode}")),
            range: format!("{:x}-{:x}", number(start)?, number(end)?),
            executable: permissions.contains('x'),
            path: words.next().unwrap_or_default().trim_start(),
        })
    })
}

fn executable(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    mappings(text).filter(|m| m.executable)
}

/// Pages mapped at once: a window of 16 MiB, so that a file of any size costs as much memory.
const WINDOW: u64 = 1 << 12;

/// Adds the frames of a file's cached pages.
fn cached_frames(path: &Path, pagemap: &File, frames: &mut Vec<u64>) -> io::Result<()> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Ok(());
    }
    let page = rustix::param::page_size() as u64;
    let pages = meta.size().div_ceil(page);
    let mut first = 0;
    while first < pages {
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
    fn new(file: &File, offset: u64, len: usize) -> io::Result<Mapped> {
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
    fn maps_name_files_by_device_and_inode() {
        let text = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus daemon
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7fff8b1fe000-7fff8b200000 r-xp 00000000 00:00 0                          [vdso]
35b1a21000-35b1a22000 r--p 0021000 00:1f 135870 /lib/x (deleted)
";
        let all: Vec<_> = mappings(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].range.as_str(), all[0].path), ("400000-452000", "/usr/bin/dbus daemon"));
        assert!(all[0].executable && !all[1].executable);
        assert_eq!(executable(text).count(), 1);
    }

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
        File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut word, here * 8).unwrap();
        let frame = frame_of(&word).unwrap();
        assert!(set.from(frame).contains(frame));
    }

    proptest! {
        #[test]
        fn any_maps_are_borne(text in "([0-9a-f]{1,18}-[0-9a-f]{0,18} [rwxps-]{0,4} [0-9]{0,9} [0-9a-f:]{0,5} [0-9]{0,22} .{0,9}\n|.{0,30}\n){0,20}") {
            for m in mappings(&text) {
                prop_assert!(m.range.contains('-'));
            }
        }

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
