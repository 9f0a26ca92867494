//! Copies of files with debug information, which `blazesym` can read without harm.

use std::io::Write;
use std::os::unix::fs::FileExt;

use ncpu_files::reader::Source as File;

/// The most bytes of all files with debug information that lines are read from, and of a file's compressed
/// contents.
pub(super) const MAX_LINES: u64 = 512 << 20;
/// The most bytes of the lines of one unit, each of which may become a row of 32 bytes, and of all its
/// compressed lines.
const MAX_LINES_OF_UNIT: u64 = 4 << 20;
const MAX_COMPRESSED_LINES: u64 = 16 << 20;
/// The most units of a file.
const MAX_UNITS: usize = 1 << 16;
/// The most sections of such a file, and bytes of their names.
const MAX_SECTIONS: usize = 1 << 12;
const MAX_SECTION_NAME: usize = 200;

/// A copy of a file in memory, which no other process can truncate while it is mapped; `None` if it is larger
/// than `most`, or would take much more when it is parsed.
pub(super) fn private_copy(file: &File, most: u64) -> Option<std::fs::File> {
    if file.size() > most || file.size() > file.on_disk().saturating_mul(8) {
        return None;
    }
    // SAFETY: a new descriptor, which nothing else owns.
    let mut copy = unsafe {
        let fd = libc::memfd_create(c"ncpu-lines".as_ptr(), libc::MFD_CLOEXEC);
        (fd >= 0).then(|| <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd))?
    };
    let (mut at, mut bytes) = (0, vec![0; 1 << 20]);
    while at < file.size() {
        let got = file.read_at(&mut bytes, at).ok().filter(|got| *got > 0)?;
        copy.write_all(&bytes[..got]).ok()?;
        at += got as u64;
    }
    without_links(&copy).ok()?;
    // Of the copy: its user may have changed the file meanwhile.
    let checked = File::opened(copy.try_clone().ok()?, file.whose()).ok()?;
    (unpacked(&checked)? <= MAX_LINES).then_some(copy)
}

/// Sections that name another file to read: any path of a hostile user's choice, which would be opened and mapped as root. That may
/// be a pipe, a device, or a file that is cut while it is read.
const LINKS: [&[u8]; 3] = [b".gnu_debuglink\0", b".gnu_debugaltlink\0", b".debug_sup\0"];

/// Makes all names of such sections others, wherever in the file section names may lie.
fn without_links(copy: &std::fs::File) -> std::io::Result<()> {
    let (mut at, mut bytes) = (0, vec![0; 1 << 20]);
    loop {
        let got = copy.read_at(&mut bytes, at)?;
        for link in LINKS {
            for found in memchr::memmem::find_iter(&bytes[..got], link) {
                copy.write_all_at(b"_", at + found as u64)?;
            }
        }
        if got < bytes.len() {
            return Ok(());
        }
        // A name may lie across the end.
        at += (bytes.len() - 32) as u64;
    }
}

/// Bytes of all compressed sections of a file, unpacked; `None` for a file with sections that no compiler
/// makes, for which the reader of debug information would take minutes or gigabytes.
fn unpacked(file: &File) -> Option<u64> {
    use object::read::elf::{CompressionHeader, FileHeader, SectionHeader};
    let bounded = crate::bounded::Bounded::new(file);
    let header = object::elf::FileHeader64::<object::Endianness>::parse(&bounded).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &bounded).ok()?;
    let named = |s| sections.section_name(endian, s).is_ok_and(|name| name.len() <= MAX_SECTION_NAME);
    if sections.len() > MAX_SECTIONS || !sections.iter().all(named) {
        return None;
    }
    for section in sections.iter() {
        if !sections.section_name(endian, section).is_ok_and(|name| name == b".debug_line") {
            continue;
        }
        let (begin, size) = (section.sh_offset(endian), section.sh_size(endian));
        let fits = match section.sh_flags(endian).contains(object::elf::SHF_COMPRESSED) {
            true => {
                use object::ReadRef;
                let header: &object::elf::CompressionHeader64<object::Endianness> =
                    (&bounded).read_at(begin).ok()?;
                header.ch_size(endian) <= MAX_COMPRESSED_LINES
            }
            false => have_small_units(file, begin, begin.checked_add(size)?),
        };
        if !fits {
            return None;
        }
    }
    let compressed = sections.iter().filter(|s| s.sh_flags(endian).contains(object::elf::SHF_COMPRESSED));
    let mut sizes = compressed.map(|s| {
        use object::ReadRef;
        let header: &object::elf::CompressionHeader64<object::Endianness> =
            (&bounded).read_at(s.sh_offset(endian)).ok()?;
        Some(header.ch_size(endian))
    });
    sizes.try_fold(0u64, |sum, size| sum.checked_add(size?))
}

/// Whether the units of a section of lines, each of which begins with its length, are as small as compilers
/// make them.
fn have_small_units(file: &File, mut at: u64, end: u64) -> bool {
    for _ in 0..MAX_UNITS {
        let mut length = [0; 4];
        // The reader of debug information stops here, too.
        if at >= end || file.read_exact_at(&mut length, at).is_err() {
            return true;
        }
        let length = u64::from(u32::from_ne_bytes(length));
        if length > MAX_LINES_OF_UNIT {
            return false;
        }
        at = at.saturating_add(4 + length);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_are_gone_wherever_they_lie() {
        let mut copy = tempfile::tempfile().unwrap();
        let mut text = vec![0; (1 << 20) - 40];
        for _ in 0..20 {
            text.extend(LINKS.concat());
        }
        copy.write_all(&text).unwrap();
        without_links(&copy).unwrap();
        let mut found = vec![0; text.len()];
        copy.read_exact_at(&mut found, 0).unwrap();
        let left = |text: &[u8]| {
            LINKS.iter().map(|link| memchr::memmem::find_iter(text, link).count()).sum::<usize>()
        };
        assert_eq!((left(&text), left(&found)), (60, 0));
    }
}
