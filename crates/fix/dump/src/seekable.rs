//! The seekable format: independent compressed frames, then a table of their sizes.
//!
//! It is that of zstd's reference implementation (contrib/seekable_format), so `zstd -d` decompresses a whole
//! file and other readers of the format read parts of it. Each frame has a checksum of its contents. Before
//! the table there is a skippable frame with a [`Trailer`] as JSON text; a file without table or trailer is
//! truncated.
//!
//! The crate `zeekstd` has the format too, but with one encoder that writes a stream from start to end. Here
//! all CPUs compress frames of one file, some of them with LZ4, and each frame is checked when it is read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use zstd_safe::{CCtx, CParameter, DCtx};

use crate::Error;

const SKIPPABLE_TABLE: u32 = 0x184d_2a5e;
const SKIPPABLE_TRAILER: u32 = 0x184d_2a5d;
const FOOTER_MAGIC: u32 = 0x8f92_eab1;
const FOOTER: u64 = 9;
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// The largest frame that is read. Written frames have 4 MB.
const LARGEST: u32 = 64 << 20;

/// The compression of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// zstd at a level.
    Zstd(i32),
    /// LZ4 frames: faster, larger.
    Lz4,
}

/// Data that is known only at the end of a dump, and written there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    /// Whether the dump is complete.
    pub complete: bool,
    /// The reason if it is not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Ranges of addresses that the process freed before they were copied; they are zeros in the dump.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(u64, u64)>,
    /// Bytes that could not be read; they are zeros in the dump.
    #[serde(default)]
    pub unreadable: u64,
    /// Bytes that were read after the moment of the snapshot, because there was no space to save them.
    #[serde(default)]
    pub late: u64,
}

/// A frame in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) compressed: u32,
    pub(crate) plain: u32,
    pub(crate) checksum: u32,
}

/// Compresses frames.
pub(crate) struct Compressor {
    codec: Codec,
    context: CCtx<'static>,
}

fn zstd_error(code: usize) -> Error {
    Error::Format(format!("zstd: {}", zstd_safe::get_error_name(code)))
}

impl Compressor {
    pub(crate) fn new(codec: Codec) -> Result<Self, Error> {
        let mut context = CCtx::create();
        if let Codec::Zstd(level) = codec {
            context.set_parameter(CParameter::CompressionLevel(level)).map_err(zstd_error)?;
            context.set_parameter(CParameter::ChecksumFlag(true)).map_err(zstd_error)?;
        }
        Ok(Self { codec, context })
    }

    /// Compresses a frame into an empty buffer.
    pub(crate) fn compress(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<Entry, Error> {
        out.clear();
        match self.codec {
            Codec::Zstd(_) => {
                out.reserve(zstd_safe::compress_bound(plain.len()));
                self.context.compress2(out, plain).map_err(zstd_error)?;
            }
            Codec::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_size(lz4_flex::frame::BlockSize::Max4MB)
                    .content_checksum(true)
                    .content_size(Some(plain.len() as u64));
                let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, &mut *out);
                encoder.write_all(plain).map_err(Error::Write)?;
                encoder.finish().map_err(|e| Error::Write(e.into()))?;
            }
        }
        // A frame's last four bytes are the checksum of its contents, which the table contains too.
        let checksum = out.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        Ok(Entry { compressed: out.len() as u32, plain: plain.len() as u32, checksum })
    }
}

/// Trailer and table of frames.
pub(crate) fn end(entries: &[Entry], trailer: &Trailer, codec: Codec) -> Vec<u8> {
    let mut out = Vec::new();
    let text = serde_json::to_vec(trailer).unwrap_or_default();
    out.extend_from_slice(&SKIPPABLE_TRAILER.to_le_bytes());
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&text);
    // The trailer is a frame without contents.
    let last = Entry { compressed: out.len() as u32, plain: 0, checksum: 0 };
    // The table's checksums are XXH64; those of LZ4 frames are another kind.
    let checksums = matches!(codec, Codec::Zstd(_));
    let each = if checksums { 12 } else { 8 };
    out.extend_from_slice(&SKIPPABLE_TABLE.to_le_bytes());
    out.extend_from_slice(&(((entries.len() + 1) * each + FOOTER as usize) as u32).to_le_bytes());
    for entry in entries.iter().chain([&last]) {
        out.extend_from_slice(&entry.compressed.to_le_bytes());
        out.extend_from_slice(&entry.plain.to_le_bytes());
        if checksums {
            // The low half of the XXH64 of an empty text.
            let checksum = if entry.plain == 0 { 0x51d8_e999 } else { entry.checksum };
            out.extend_from_slice(&checksum.to_le_bytes());
        }
    }
    out.extend_from_slice(&(entries.len() as u32 + 1).to_le_bytes());
    out.push(u8::from(checksums) << 7);
    out.extend_from_slice(&FOOTER_MAGIC.to_le_bytes());
    out
}

/// A core as a whole file in the format.
///
/// # Errors
/// The level is not one of zstd's.
pub fn pack(core: &[u8], codec: Codec) -> Result<Vec<u8>, Error> {
    let mut compressor = Compressor::new(codec)?;
    let (mut out, mut frame, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for chunk in core.chunks(4 << 20) {
        entries.push(compressor.compress(chunk, &mut frame)?);
        out.extend_from_slice(&frame);
    }
    out.extend(end(&entries, &Trailer { complete: true, ..Trailer::default() }, codec));
    Ok(out)
}

/// A frame of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its offset in the file.
    pub offset: u64,
    /// Its compressed size in bytes.
    pub compressed: u32,
    /// The offset of its contents in the expanded file.
    pub start: u64,
    /// Size of its contents in bytes.
    pub plain: u32,
}

/// A source of bytes: a file, or a part of memory.
pub trait Source: Send + Sync {
    /// Fills the buffer from an offset on.
    ///
    /// # Errors
    /// The source is too short, or cannot be read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Its size in bytes.
    ///
    /// # Errors
    /// The size cannot be determined.
    fn size(&self) -> io::Result<u64>;
}

impl Source for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Source for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// A file in the format, opened for reading.
pub struct Seekable<S> {
    source: S,
    frames: Vec<Frame>,
    /// `None` if it has none: not written by us.
    trailer: Option<Trailer>,
}

/// Decompresses frames; one for each thread.
pub struct Decompressor(DCtx<'static>);

impl Default for Decompressor {
    fn default() -> Self {
        Self(DCtx::create())
    }
}

fn bad(what: &str) -> Error {
    Error::Format(what.into())
}

impl<S: Source> Seekable<S> {
    /// Reads the table.
    ///
    /// # Errors
    /// The file has no table, or the table does not match the file.
    pub fn open(source: S) -> Result<Self, Error> {
        let read = |e| Error::call("reading a dump", e);
        let size = source.size().map_err(read)?;
        let cut = || bad("not a dump, or a truncated one: it has no table of frames");
        let mut footer = [0; FOOTER as usize];
        source.read_at(&mut footer, size.checked_sub(FOOTER).ok_or_else(cut)?).map_err(read)?;
        let [n0, n1, n2, n3, descriptor, magic @ ..] = footer;
        if u32::from_le_bytes(magic) != FOOTER_MAGIC || descriptor & 0x7c != 0 {
            return Err(cut());
        }
        let count = u32::from_le_bytes([n0, n1, n2, n3]);
        let each = if descriptor & 0x80 != 0 { 12 } else { 8 };
        let length = u64::from(count) * each;
        let begin =
            size.checked_sub(FOOTER + length + 8).ok_or_else(|| bad("its table of frames is damaged"))?;
        let mut table = vec![0; length as usize + 8];
        source.read_at(&mut table, begin).map_err(read)?;
        let word =
            |at: usize| table.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        if word(0) != SKIPPABLE_TABLE || u64::from(word(4)) != length + FOOTER {
            return Err(bad("its table of frames is damaged"));
        }
        let mut frames = Vec::with_capacity(count as usize);
        let (mut offset, mut start) = (0u64, 0u64);
        for n in 0..count as usize {
            let frame = Frame {
                offset,
                compressed: word(8 + n * each as usize),
                start,
                plain: word(12 + n * each as usize),
            };
            if frame.plain > LARGEST || frame.compressed > 2 * LARGEST {
                return Err(bad("its table of frames is damaged: a frame is too large"));
            }
            offset += u64::from(frame.compressed);
            start += u64::from(frame.plain);
            frames.push(frame);
        }
        if offset > begin {
            return Err(bad("its table of frames does not fit the file"));
        }
        let mut trailer = None;
        if let Some(last) = frames.pop_if(|last| last.plain == 0) {
            let mut bytes = vec![0; last.compressed as usize];
            source.read_at(&mut bytes, last.offset).map_err(read)?;
            if let Some(text) =
                bytes.strip_prefix(&SKIPPABLE_TRAILER.to_le_bytes()).and_then(|rest| rest.get(4..))
            {
                let parsed = serde_json::from_slice(text);
                trailer = Some(parsed.map_err(|_| bad("its trailer is damaged"))?);
            }
        }
        Ok(Self { source, frames, trailer })
    }

    /// Its frames, in order, without the trailer.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The trailer at its end.
    pub fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// Bytes of the expanded file.
    pub fn size(&self) -> u64 {
        self.frames.last().map_or(0, |last| last.start + u64::from(last.plain))
    }

    /// The frame that contains a byte of the contents.
    pub fn frame_at(&self, offset: u64) -> Option<usize> {
        (offset < self.size()).then(|| self.frames.partition_point(|frame| frame.start <= offset) - 1)
    }

    /// Decompresses and checks a frame.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn read_frame(&self, index: usize, with: &mut Decompressor) -> Result<Vec<u8>, Error> {
        let frame = self.frames.get(index).ok_or_else(|| bad("no such frame"))?;
        let mut compressed = vec![0; frame.compressed as usize];
        self.source.read_at(&mut compressed, frame.offset).map_err(|e| Error::call("reading a dump", e))?;
        let damaged = |why: &str| Error::Format(format!("frame {index} is damaged: {why}"));
        let mut plain = Vec::with_capacity(frame.plain as usize);
        if compressed.starts_with(&LZ4_MAGIC) {
            let mut decoder =
                lz4_flex::frame::FrameDecoder::new(&compressed[..]).take(u64::from(frame.plain) + 1);
            decoder.read_to_end(&mut plain).map_err(|e| damaged(&e.to_string()))?;
        } else {
            let done = with.0.decompress(&mut plain, &compressed);
            done.map_err(|code| damaged(zstd_safe::get_error_name(code)))?;
        }
        if plain.len() != frame.plain as usize {
            return Err(damaged("it has another size than the table says"));
        }
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(codec: Codec, chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut compressor = Compressor::new(codec).unwrap();
        let (mut out, mut frame, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in chunks {
            entries.push(compressor.compress(chunk, &mut frame).unwrap());
            out.extend_from_slice(&frame);
        }
        out.extend(end(&entries, &Trailer { complete: true, ..Trailer::default() }, codec));
        out
    }

    fn chunks() -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(7);
        vec![(0..100_000).map(|_| random.u8(..)).collect(), vec![7; 1 << 20], b"end".to_vec()]
    }

    #[test]
    fn what_is_written_is_read() {
        for codec in [Codec::Zstd(1), Codec::Zstd(9), Codec::Lz4] {
            let chunks = chunks();
            let read = Seekable::open(file(codec, &chunks)).unwrap();
            assert_eq!(read.size(), chunks.iter().map(|c| c.len() as u64).sum::<u64>());
            assert!(read.trailer().unwrap().complete);
            let mut with = Decompressor::default();
            for (n, chunk) in chunks.iter().enumerate() {
                assert!(read.read_frame(n, &mut with).unwrap() == *chunk, "{codec:?} {n}");
            }
            assert_eq!(read.frame_at(99_999), Some(0));
            assert_eq!(read.frame_at(100_000), Some(1));
            assert_eq!(read.frame_at(read.size()), None);
        }
    }

    #[test]
    fn any_changed_byte_of_a_frame_is_noticed() {
        for codec in [Codec::Zstd(1), Codec::Lz4] {
            let chunks = vec![b"some text that some text repeats ".repeat(20)];
            let good = file(codec, &chunks);
            let length = Seekable::open(good.clone()).unwrap().frames()[0].compressed as usize;
            for at in 0..length {
                let mut changed = good.clone();
                changed[at] ^= 1;
                let read = Seekable::open(changed).unwrap();
                // A bit without meaning may change; contents may not.
                if let Ok(plain) = read.read_frame(0, &mut Decompressor::default()) {
                    assert!(plain == chunks[0], "{codec:?} byte {at}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_was_cut_off_does_not_open() {
        let whole = file(Codec::Zstd(1), &chunks());
        for length in (0..whole.len()).step_by(97) {
            assert!(Seekable::open(whole[..length].to_vec()).is_err(), "{length}");
        }
    }

    /// A file as <https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md>
    /// has it: frames with their plain sizes, then a table of `count` entries.
    fn foreign(frames: &[(&[u8], u32)], checksums: bool, count: u32) -> Vec<u8> {
        let mut out: Vec<u8> = frames.iter().flat_map(|(frame, _)| frame.iter().copied()).collect();
        let words = |out: &mut Vec<u8>, words: &[u32]| out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        let each = if checksums { 12 } else { 8 };
        words(&mut out, &[0x184D_2A5E, frames.len() as u32 * each + 9]);
        for (frame, plain) in frames {
            words(&mut out, &[frame.len() as u32, *plain]);
            if checksums {
                words(&mut out, &[0]);
            }
        }
        words(&mut out, &[count]);
        out.push(if checksums { 0x80 } else { 0 });
        words(&mut out, &[0x8F92_EAB1]);
        out
    }

    /// A frame of another writer: a raw block, as RFC 8878 has it.
    fn raw(text: &[u8]) -> Vec<u8> {
        let block = (text.len() as u32) << 3 | 1;
        let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, text.len() as u8];
        out.extend_from_slice(&block.to_le_bytes()[..3]);
        out.extend_from_slice(text);
        out
    }

    #[test]
    fn files_of_other_writers_are_read() {
        let (first, second) = (raw(b"first"), raw(b"and second"));
        for checksums in [false, true] {
            let file = foreign(&[(&first, 5), (&second, 10)], checksums, 2);
            let read = Seekable::open(file).unwrap();
            let frames: Vec<_> = read.frames().iter().map(|f| (f.offset, f.start, f.plain)).collect();
            assert_eq!(frames, [(0, 0, 5), (first.len() as u64, 5, 10)]);
            assert_eq!((read.trailer(), read.size()), (None, 15));
            assert_eq!(
                [0, 4, 5, 14, 15].map(|at| read.frame_at(at)),
                [Some(0), Some(0), Some(1), Some(1), None]
            );
            let mut with = Decompressor::default();
            assert_eq!(read.read_frame(0, &mut with).unwrap(), b"first");
            assert_eq!(read.read_frame(1, &mut with).unwrap(), b"and second");
            assert!(read.read_frame(2, &mut with).is_err());
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file.zst");
            std::fs::write(&path, foreign(&[(&first, 5), (&second, 10)], checksums, 2)).unwrap();
            let read = Seekable::open(File::open(&path).unwrap()).unwrap();
            assert_eq!(read.read_frame(1, &mut with).unwrap(), b"and second");
        }
        let none = Seekable::open(foreign(&[], false, 0)).unwrap();
        assert_eq!((none.size(), none.frames().len(), none.frame_at(0)), (0, 0, None));
    }

    #[test]
    fn tables_that_cannot_be_true_are_refused() {
        let text = raw(b"text");
        let one = |plain| foreign(&[(&text, plain)], false, 1);
        let wrong = |file: Vec<u8>| match Seekable::open(file) {
            Err(e) => e.to_string(),
            Ok(read) => read.read_frame(0, &mut Decompressor::default()).unwrap_err().to_string(),
        };
        let changed = |at: usize, byte: u8| {
            let mut file = one(4);
            file[at] = byte;
            file
        };
        let (table, end) = (text.len(), one(4).len());
        let most = 64 << 20;
        for (file, why) in [
            (Vec::new(), "no table of frames"),
            (vec![0; 9], "no table of frames"),
            // Reserved bits, the magic number, the skippable frame's magic number and length.
            (changed(end - 5, 0x04), "no table of frames"),
            (changed(end - 5, 0x40), "no table of frames"),
            (changed(end - 1, 0), "no table of frames"),
            (changed(table, 0), "table of frames is damaged"),
            (changed(table + 4, 16), "table of frames is damaged"),
            (foreign(&[(&text, 4)], false, 0), "table of frames is damaged"),
            (foreign(&[(&text, 4)], false, 2), "table of frames is damaged"),
            (foreign(&[(&text, 4)], false, u32::MAX), "table of frames is damaged"),
            (one(most + 1), "a frame is too large"),
            // 2^27 compressed bytes, and one more.
            (changed(table + 11, 0x08), "a frame is too large"),
            (changed(table + 8, text.len() as u8 + 1), "does not fit the file"),
            (one(3), "frame 0 is damaged"),
            (one(5), "another size than the table says"),
            (one(most), "another size than the table says"),
        ] {
            let said = wrong(file);
            assert!(said.contains(why), "`{said}` instead of `{why}`");
        }
        // Bits 0 and 1 of the descriptor mean nothing.
        assert!(Seekable::open(changed(end - 5, 3)).is_ok());
        let mut damaged = file(Codec::Lz4, &chunks());
        let at = damaged.windows(8).rposition(|bytes| bytes == b"complete").unwrap();
        damaged[at] = b'X';
        assert!(wrong(damaged).contains("its trailer is damaged"));
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut with = Decompressor::default();
        for codec in [Codec::Zstd(1), Codec::Lz4] {
            let good = file(codec, &[b"some text".repeat(9), b"more".to_vec()]);
            for n in 0..1000 {
                let mut changed = good.clone();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..changed.len());
                    let any = random.u8(..);
                    changed[at] = random.choice([0, 1, 0x7f, 0x80, 0xff, any]).unwrap_or(any);
                }
                let Ok(read) = Seekable::open(changed) else { continue };
                assert!(read.frames().len() <= good.len() / 8, "each takes 8 bytes of the table");
                // A reader of LZ4 takes megabytes for each frame.
                if n % 10 == 0
                    && let Ok(plain) = read.read_frame(0, &mut with)
                {
                    assert_eq!(plain.len(), read.frames()[0].plain as usize);
                }
            }
        }
    }

    #[test]
    fn the_reference_decompresses_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.zst");
        std::fs::write(&path, file(Codec::Zstd(1), &chunks())).unwrap();
        match std::process::Command::new("zstd").arg("-dc").arg(&path).output() {
            Ok(output) => assert!(output.status.success() && output.stdout == chunks().concat()),
            Err(e) => eprintln!("skipped: zstd: {e}"),
        }
    }
}
