//! `/proc/PID/maps` and `smaps`.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Fields;

/// A mapping of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub execute: bool,
    /// Shared with other processes that map the same file, as opposed to private.
    pub shared: bool,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0 for memory without a file.
    pub inode: u64,
    /// The name as the kernel writes it: a path, or as in `[heap]`; empty for memory without a name. A newline is written as
    /// `\012`, and all other bytes as they are (`seq_file_path`). So a name with these four characters is ambiguous.
    pub name: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// Parses a line `start-end perms offset major:minor inode   name`.
    pub fn parse(line: &'a [u8]) -> Option<Mapping<'a>> {
        let mut rest = line;
        let mut word = || {
            let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
            let (word, tail) = rest.split_at(end);
            rest = tail.strip_prefix(b" ").unwrap_or(tail);
            std::str::from_utf8(word).ok()
        };
        let hex = |s: &str| u64::from_str_radix(s, 16).ok();
        let (start, end) = word()?.split_once('-')?;
        let [r, w, x, s] = *<&[u8; 4]>::try_from(word()?.as_bytes()).ok()?;
        let offset = hex(word()?)?;
        let (major, minor) = word()?.split_once(':')?;
        let number = |s: &str| u32::from_str_radix(s, 16).ok();
        let mapping = Mapping {
            start: hex(start)?,
            end: hex(end)?,
            read: r == b'r',
            write: w == b'w',
            execute: x == b'x',
            shared: s == b's',
            offset,
            device: (number(major)?, number(minor)?),
            inode: word()?.parse().ok()?,
            name: rest.trim_ascii_start(),
        };
        (mapping.start < mapping.end).then_some(mapping)
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether it maps a file; shared anonymous memory maps a deleted file.
    pub fn is_file(&self) -> bool {
        self.inode != 0
    }

    /// Whether its file has been deleted, as those of memfd, System V and shared anonymous memory are.
    pub fn is_deleted(&self) -> bool {
        self.name.ends_with(b" (deleted)")
    }

    /// The name without ` (deleted)`, as the kernel writes it.
    pub fn file_name(&self) -> &'a [u8] {
        self.name.strip_suffix(b" (deleted)").unwrap_or(self.name)
    }

    /// [`file_name`](Mapping::file_name) as a path.
    pub fn path(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.file_name()))
    }

    /// The name as text, with U+FFFD for bytes that are not UTF-8.
    pub fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.name)
    }

    /// The name of its link in `map_files`, which has no leading zeros.
    pub fn link(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }

    /// A name with its newlines instead of `\012`.
    pub fn plain(name: &[u8]) -> Cow<'_, [u8]> {
        const NEWLINE: &[u8] = b"\\012";
        if !name.windows(NEWLINE.len()).any(|w| w == NEWLINE) {
            return name.into();
        }
        let mut plain = Vec::with_capacity(name.len());
        let mut rest = name;
        while let Some((&first, tail)) = rest.split_first() {
            if let Some(behind) = rest.strip_prefix(NEWLINE) {
                plain.push(b'\n');
                rest = behind;
            } else {
                plain.push(first);
                rest = tail;
            }
        }
        plain.into()
    }
}

/// The mappings in the text of `maps` or `smaps`; other lines are left out.
pub fn mappings(text: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    text.split(|&b| b == b'\n').filter_map(Mapping::parse)
}

/// The mappings in the text of `smaps`, each with its fields. A mapping that the end of the process cut short
/// has fewer fields.
pub fn smaps(text: &[u8]) -> impl Iterator<Item = (Mapping<'_>, Fields<'_>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (line, below) = split_line(rest)?;
            rest = below;
            let Some(mapping) = Mapping::parse(line) else { continue };
            while let Some((line, below)) = split_line(rest)
                && Mapping::parse(line).is_none()
            {
                rest = below;
            }
            return Some((mapping, Fields(&below[..below.len() - rest.len()])));
        }
    })
}

/// The first line and the text after it; `None` at the end.
fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
    (!text.is_empty()).then(|| (&text[..end], text.get(end + 1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn foreign_lines_are_left_out() {
        for bad in [
            "",
            "x",
            "1-2",
            "1-2 r",
            "z-2 rw-p 0 0:0 0 /x",
            "1-2 rw-p q 0:0 0 /x",
            "2-1 rw-p 0 0:0 0",
            "1-1 rw-p 0 0:0 0",
            "1-2 rw-p 0 0 0",
            "1-2 rw-p 0 0:0 x",
            "Size:  4 kB",
        ] {
            assert_eq!(Mapping::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Mapping::parse(b"7f00-7f10 ---p 00000000 00:00 0 ").unwrap().name, b"");
    }

    #[test]
    fn fields_stand_below_their_mapping() {
        let text = b"Rss: 9 kB\n10-20 r--p 0 0:0 0 [anon:a: b]\nRss:   4 kB\nVmFlags: rd dd\n30-40 r--p 0 0:0 0\n40-50 r--p 0 0:0 0\nRss: 8 kB";
        let all: Vec<(u64, Option<u64>)> = smaps(text).map(|(m, f)| (m.start, f.bytes("Rss"))).collect();
        assert_eq!(all, [(0x10, Some(4096)), (0x30, None), (0x40, Some(8192))]);
        assert_eq!(smaps(text).next().unwrap().1.get("VmFlags"), Some("rd dd"));
        assert_eq!(smaps(b"").count(), 0);
    }

    proptest! {
        /// The kernel's own format (fs/proc/task_mmu.c, show_map_vma), with arbitrary file names.
        #[test]
        fn what_the_kernel_writes_is_read_back(
            start in 0u64..1 << 47,
            pages in 1u64..1 << 20,
            bits in 0u8..16,
            offset in any::<u32>(),
            device in (0u32..4096, 0u32..1 << 20),
            inode in any::<u64>(),
            name in proptest::collection::vec(1u8.., 0..64),
            deleted in any::<bool>(),
        ) {
            let end = start + pages * 4096;
            let letter = |bit: u8, yes, no| if bits >> bit & 1 == 1 { yes } else { no };
            let (r, w, x, s) =
                (letter(0, 'r', '-'), letter(1, 'w', '-'), letter(2, 'x', '-'), letter(3, 's', 'p'));
            let name = [b"/", &name[..]].concat();
            let escaped: Vec<u8> = name
                .iter()
                .flat_map(|&b| if b == b'\n' { b"\\012".to_vec() } else { vec![b] })
                .collect();
            let (major, minor) = device;
            let head = format!("{start:08x}-{end:08x} {r}{w}{x}{s} {offset:08x} {major:02x}:{minor:02x} {inode} ");
            let mut line = format!("{head:<73}").into_bytes();
            line.extend(&escaped);
            line.extend(if deleted { &b" (deleted)"[..] } else { b"" });
            let text = [&line[..], b"\nSize: 4 kB\n", &line[..]].concat();
            let m = Mapping::parse(&line).unwrap();
            prop_assert_eq!((m.start, m.end, m.size(), m.link()), (start, end, pages * 4096, format!("{start:x}-{end:x}")));
            prop_assert_eq!((m.read, m.write, m.execute, m.shared), (r == 'r', w == 'w', x == 'x', s == 's'));
            prop_assert_eq!((m.offset, m.device, m.inode), (u64::from(offset), device, inode));
            let odd = |part: &[u8]| escaped.windows(part.len()).any(|w| w == part);
            if !odd(b" (deleted)") {
                prop_assert_eq!((m.is_deleted(), m.file_name()), (deleted, &escaped[..]));
                if !name.windows(4).any(|w| w == b"\\012") {
                    let plain = Mapping::plain(m.file_name());
                    prop_assert_eq!(&plain[..], &name[..]);
                }
            }
            prop_assert_eq!(mappings(&text).collect::<Vec<_>>(), [m, m]);
            prop_assert_eq!(smaps(&text).map(|(_, f)| f.bytes("Size")).collect::<Vec<_>>(), [Some(4096), None]);
        }

        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..200), line in "[0-9a-f:,\\-( )rwxsp]{0,120}") {
            for text in [&text, line.as_bytes()] {
                let _ = (mappings(text).count(), smaps(text).count());
            }
        }
    }
}
