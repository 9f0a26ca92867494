//! An append-only file that bypasses the page cache (O_DIRECT): gigabytes that no program reads soon would
//! displace useful pages, and copying them there can take longer than writing them to the disk.
//!
//! If the disk cannot keep up, the page cache is tried as well, and the way that was faster last is used: it
//! absorbs a part of memory's size at once.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::buffer::Buffer;

/// Bytes of one write.
pub(crate) const PIECE: usize = 4 << 20;
/// Bytes after which the two ways are compared.
const SPAN: u64 = 64 << 20;

/// The way in which frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Cached,
}

/// A file that only grows, in pieces.
pub(crate) struct Appender {
    file: File,
    buffer: Buffer,
    /// Bytes in the buffer.
    used: usize,
    /// The file offset of the buffer.
    at: u64,
    way: Way,
    /// Whether the file system supports writes that bypass the page cache.
    both: bool,
    span: Span,
    /// Bytes per second of each way when it was last used.
    rates: [f64; 2],
}

/// Counts since the last comparison.
struct Span {
    began: Instant,
    bytes: u64,
    /// Time spent in writes.
    writing: Duration,
}

impl Span {
    fn new() -> Self {
        Self { began: Instant::now(), bytes: 0, writing: Duration::ZERO }
    }
}

impl Appender {
    /// Makes a new file, readable only by its owner.
    ///
    /// # Errors
    /// It exists already, or cannot be made.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(path)?;
        let mut this = Self {
            file,
            buffer: Buffer::new(PIECE),
            used: 0,
            at: 0,
            way: Way::Cached,
            both: false,
            span: Span::new(),
            rates: [f64::INFINITY; 2],
        };
        this.both = this.set(Way::Direct);
        Ok(this)
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Sets how the next pieces are written; false if the file system does not support it.
    fn set(&mut self, way: Way) -> bool {
        let flags = if way == Way::Direct { libc::O_DIRECT } else { 0 };
        // SAFETY: plain numbers.
        let set = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETFL, flags) } == 0;
        if set {
            self.way = way;
        }
        set
    }

    /// Appends bytes, the last of which may be written only by [`Appender::flush`].
    ///
    /// # Errors
    /// The disk is full. After that only [`Appender::cut`] is useful.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let now = bytes.len().min(PIECE - self.used);
            self.buffer[self.used..self.used + now].copy_from_slice(&bytes[..now]);
            self.used += now;
            bytes = &bytes[now..];
            if self.used == PIECE {
                self.write_piece()?;
            }
        }
        Ok(())
    }

    fn write_piece(&mut self) -> io::Result<()> {
        let began = Instant::now();
        let mut result = self.file.write_all_at(&self.buffer[..self.used], self.at);
        if let Err(e) = &result
            && e.raw_os_error() == Some(libc::EINVAL)
            && self.way == Way::Direct
        {
            // Accepted, but not supported by this file system.
            self.both = false;
            self.set(Way::Cached);
            result = self.file.write_all_at(&self.buffer[..self.used], self.at);
        }
        result?;
        self.at += self.used as u64;
        self.span.bytes += self.used as u64;
        self.span.writing += began.elapsed();
        self.used = 0;
        if self.both && self.span.bytes >= SPAN {
            self.compare();
        }
        Ok(())
    }

    /// Switches the way if writes had to wait and the other way was faster when it was last used, or was
    /// never used.
    fn compare(&mut self) {
        let span = std::mem::replace(&mut self.span, Span::new());
        self.rates[self.way as usize] = span.bytes as f64 / span.writing.as_secs_f64();
        let waited_for = span.writing.as_secs_f64() > 0.8 * span.began.elapsed().as_secs_f64();
        let other = if self.way == Way::Direct { Way::Cached } else { Way::Direct };
        if waited_for && self.rates[other as usize] > self.rates[self.way as usize] {
            self.set(other);
        }
    }

    /// Writes the rest of the buffer.
    ///
    /// # Errors
    /// The disk is full, as for [`Appender::append`].
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        // The rest is not a multiple of the disk's block size.
        self.both = false;
        if !self.set(Way::Cached) {
            return Err(io::Error::last_os_error());
        }
        self.write_piece()
    }

    /// Cuts the file to its first `length` bytes, also after an error. Later appends go through the page
    /// cache.
    ///
    /// # Errors
    /// The file system refuses.
    pub(crate) fn cut(&mut self, length: u64) -> io::Result<()> {
        self.used = length.saturating_sub(self.at) as usize;
        self.at = self.at.min(length);
        self.both = false;
        self.set(Way::Cached);
        self.file.set_len(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_in_the_file_whichever_way_it_went() {
        let directory = tempfile::tempdir().unwrap();
        let mut random = fastrand::Rng::with_seed(3);
        let path = directory.path().join("file");
        let mut file = Appender::create(&path).unwrap();
        let mut all: Vec<u8> = Vec::new();
        for n in 0..12 {
            let bytes: Vec<u8> = (0..random.usize(1..2_000_000)).map(|_| random.u8(..)).collect();
            file.append(&bytes).unwrap();
            all.extend(bytes);
            if file.both && n % 4 == 3 {
                let other = if file.way == Way::Direct { Way::Cached } else { Way::Direct };
                assert!(file.set(other));
            }
        }
        file.flush().unwrap();
        assert!(std::fs::read(&path).unwrap() == all);
    }

    #[test]
    fn it_is_cut_in_the_file_and_in_the_buffer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for length in [PIECE + 100, PIECE, 5000] {
            let _ = std::fs::remove_file(&path);
            let mut file = Appender::create(&path).unwrap();
            let all: Vec<u8> = (0..PIECE + 1000).map(|n| (n % 251) as u8).collect();
            file.append(&all).unwrap();
            file.cut(length as u64).unwrap();
            file.append(b"end").unwrap();
            file.flush().unwrap();
            assert!(std::fs::read(&path).unwrap() == [&all[..length], b"end"].concat(), "{length}");
        }
    }
}
