//! Reading a dump: as a plain core, as bytes, or as text.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::Error;
use crate::seekable::{Decompressor, Seekable, Source};

/// Opens a dump.
///
/// # Errors
/// It is not a dump, or cannot be read.
pub fn open(path: &Path) -> Result<Seekable<File>, Error> {
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    Seekable::open(file).map_err(|e| match e {
        Error::Format(what) => Error::Format(format!("{}: {what}", path.display())),
        e => e,
    })
}

/// Writes the plain core to a new file, with several threads. Zeros become holes of the file. Only its owner
/// may read it. Until it is complete its name is `NAME.partial`.
///
/// # Errors
/// A frame is damaged, or the file cannot be written.
pub fn extract<S: Source>(dump: &Seekable<S>, path: &Path, threads: usize) -> Result<(), Error> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = std::path::PathBuf::from(partial);
    let _ = std::fs::remove_file(&partial);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
    let file = file.map_err(|e| Error::file(&partial, e))?;
    let result =
        file.set_len(dump.size()).map_err(Error::Write).and_then(|()| extract_frames(dump, &file, threads));
    let result = result.and_then(|()| std::fs::rename(&partial, path).map_err(|e| Error::file(path, e)));
    if result.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    result
}

fn extract_frames<S: Source>(dump: &Seekable<S>, file: &File, threads: usize) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut with = Decompressor::default();
                let mut frame = || -> Result<bool, Error> {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(at) = dump.frames().get(index) else { return Ok(false) };
                    let plain = dump.read_frame(index, &mut with)?;
                    write_sparse(file, &plain, at.start).map_err(Error::Write)?;
                    Ok(true)
                };
                loop {
                    match frame() {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(e) => {
                            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                            next.store(usize::MAX / 2, Ordering::Relaxed);
                            return;
                        }
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Writes blocks that are not zero.
fn write_sparse(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    const BLOCK: usize = 64 << 10;
    let zero = |block: &[u8]| block.iter().all(|&b| b == 0);
    let mut at = 0;
    while at < bytes.len() {
        let block = &bytes[at..bytes.len().min(at + BLOCK)];
        if !zero(block) {
            file.write_all_at(block, offset + at as u64)?;
        }
        at += block.len();
    }
    Ok(())
}

/// Writes the plain core to a stream, in order, decompressed by several threads.
///
/// # Errors
/// A frame is damaged, or the stream is closed.
pub fn cat<S: Source>(dump: &Seekable<S>, out: &mut impl Write, threads: usize) -> Result<(), Error> {
    /// Frames by number, and the number of the first that was not written.
    type Waiting = (std::collections::BTreeMap<usize, Result<Vec<u8>, Error>>, usize);
    let threads = threads.max(1);
    let waiting: Mutex<Waiting> = Mutex::default();
    let changed = Condvar::new();
    let next = AtomicUsize::new(0);
    let count = dump.frames().len();
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut with = Decompressor::default();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let mut state = lock();
                    while index >= state.1.saturating_add(2 * threads) {
                        state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                    if state.1 > count {
                        return;
                    }
                    drop(state);
                    let frame = dump.read_frame(index, &mut with);
                    lock().0.insert(index, frame);
                    changed.notify_all();
                }
            });
        }
        let mut result = Ok(());
        for index in 0..count {
            let mut state = lock();
            let frame = loop {
                match state.0.remove(&index) {
                    Some(frame) => break frame,
                    None => state = changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            state.1 = index + 1;
            drop(state);
            changed.notify_all();
            result = frame.and_then(|frame| out.write_all(&frame).map_err(Error::Write));
            if result.is_err() {
                // Releases threads that wait for space.
                lock().1 = usize::MAX;
                changed.notify_all();
                break;
            }
        }
        result
    })
}

/// Frames that are kept decompressed.
const KEPT: usize = 16;

/// A dump as its plain core, with random access. Frames are kept for a while, since readers return to them.
pub struct Contents<S> {
    dump: Seekable<S>,
    /// The most recently used frames, newest last.
    kept: Mutex<VecDeque<(usize, Arc<Vec<u8>>)>>,
    idle: Mutex<Vec<Decompressor>>,
}

impl<S: Source> Contents<S> {
    /// Takes ownership of a dump.
    pub fn new(dump: Seekable<S>) -> Self {
        Self { dump, kept: Mutex::default(), idle: Mutex::default() }
    }

    /// The dump.
    pub fn dump(&self) -> &Seekable<S> {
        &self.dump
    }

    /// Bytes of the core.
    pub fn size(&self) -> u64 {
        self.dump.size()
    }

    /// Reads bytes of the core; fewer at its end.
    ///
    /// # Errors
    /// A frame is damaged.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let end = offset.saturating_add(length as u64).min(self.size());
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let Some(index) = self.dump.frame_at(at) else { break };
            let first = self.dump.frames()[index].start;
            let frame = self.frame(index)?;
            let part = &frame[(at - first) as usize..];
            let part = &part[..part.len().min((end - at) as usize)];
            out.extend_from_slice(part);
            at += part.len() as u64;
        }
        Ok(out)
    }

    fn frame(&self, index: usize) -> Result<Arc<Vec<u8>>, Error> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut kept = lock();
            if let Some(at) = kept.iter().position(|(kept, _)| *kept == index)
                && let Some(found) = kept.remove(at)
            {
                kept.push_back(found.clone());
                return Ok(found.1);
            }
        }
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut with = idle().pop().unwrap_or_default();
        let frame = self.dump.read_frame(index, &mut with).map(Arc::new);
        idle().push(with);
        let frame = frame?;
        let mut kept = lock();
        kept.push_back((index, frame.clone()));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seekable::{Codec, pack};

    /// Several frames; the second is zeros.
    fn core() -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(3);
        let mut core: Vec<u8> = (0..9 << 20).map(|_| random.u8(..)).collect();
        core[4 << 20..8 << 20].fill(0);
        core
    }

    fn dump(core: &[u8]) -> Seekable<Vec<u8>> {
        Seekable::open(pack(core, Codec::Lz4).unwrap()).unwrap()
    }

    #[test]
    fn all_ways_back_give_the_same_core() {
        let core = core();
        let directory = tempfile::tempdir().unwrap();
        for threads in [0, 1, 3, 8] {
            let mut stream = Vec::new();
            cat(&dump(&core), &mut stream, threads).unwrap();
            assert!(stream == core, "{threads} threads");
            let path = directory.path().join(format!("core-{threads}"));
            extract(&dump(&core), &path, threads).unwrap();
            assert!(std::fs::read(&path).unwrap() == core, "{threads} threads");
        }
        let contents = Contents::new(dump(&core));
        let last = core.len() as u64 - 1;
        let cases =
            [(0, 1), ((4 << 20) - 1, 2), (0, 9 << 20), (last, 1), (last, 100), (last + 1, 1), (u64::MAX, 9)];
        for (offset, length) in cases {
            let from = core.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
            let until = core.len().min(from.saturating_add(length));
            assert!(contents.read(offset, length).unwrap() == core[from..until], "{length} from {offset}");
        }
    }

    #[test]
    fn a_damaged_frame_fails_all_ways_back_and_leaves_no_file() {
        let core = core();
        let good = pack(&core, Codec::Lz4).unwrap();
        let frames = dump(&core).frames().len();
        assert!(frames >= 3, "{frames}");
        let mut bad = good;
        // Within the first frame, behind its header.
        bad[100_000] ^= 0xff;
        let open = || Seekable::open(bad.clone()).unwrap();
        for threads in [1, 4] {
            let mut stream = Vec::new();
            assert!(matches!(cat(&open(), &mut stream, threads), Err(Error::Format(_))));
            assert!(stream.is_empty(), "{} bytes before it", stream.len());
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("core");
            assert!(matches!(extract(&open(), &path, threads), Err(Error::Format(_))));
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        let contents = Contents::new(open());
        assert!(contents.read(0, 1).is_err());
        // The other frames can be read.
        assert!(contents.read(8 << 20, 100).unwrap() == core[8 << 20..(8 << 20) + 100]);
    }

    #[test]
    fn a_stream_that_takes_no_more_ends_it() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let core = core();
        assert!(matches!(cat(&dump(&core), &mut Full(5 << 20), 4), Err(Error::Write(_))));
    }
}
