//! How an ELF file is loaded.

use std::fs::File;
use std::path::Path;

use object::elf::{
    DT_NEEDED, DT_NULL, DT_SONAME, DT_STRSZ, DT_STRTAB, FileHeader32, FileHeader64, PT_DYNAMIC, PT_LOAD,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, StringTable};
use object::{Endianness, FileKind, ReadRef};

/// A program or a shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The processors it is for.
    pub machine: Machine,
    /// The dynamic linker that it asks for; a program without one is statically linked.
    pub interpreter: Option<String>,
    /// The libraries that it asks for.
    pub needed: Vec<String>,
    /// The name that a library goes by.
    pub soname: Option<String>,
    /// Whether Go made it.
    pub go: bool,
}

/// A kind of processors and how they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// ELF's number.
    pub number: u16,
    /// 64-bit words.
    pub wide: bool,
    /// The least significant byte first.
    pub little: bool,
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bits = if self.wide { 64 } else { 32 };
        match (self.number, self.wide) {
            (3, _) => f.write_str("i386"),
            (62, true) => f.write_str("x86-64"),
            (62, false) => f.write_str("x32"),
            (183, _) => f.write_str("AArch64"),
            (40, _) => f.write_str("ARM"),
            (243, _) => write!(f, "RISC-V of {bits} bits"),
            (21, _) => f.write_str("POWER"),
            (22, _) => f.write_str("s390"),
            (258, _) => f.write_str("LoongArch"),
            (other, _) => write!(f, "ELF machine {other} of {bits} bits"),
        }
    }
}

/// The file is not an ELF file that could be loaded.
#[derive(Debug, thiserror::Error)]
#[error("damaged ELF file: {0}")]
pub struct Damaged(#[from] object::read::Error);

impl Image {
    /// Reads the file; `None` if it is not ELF.
    ///
    /// # Errors
    /// Its headers make no sense.
    pub fn read(path: &Path) -> std::io::Result<Result<Option<Image>, Damaged>> {
        Ok(Image::parse(&ReadCache::new(File::open(path)?)))
    }

    /// As `read`, of what was read: bytes, or a cache of them.
    ///
    /// # Errors
    /// Its headers make no sense.
    pub fn parse<'data, R: ReadRef<'data>>(data: R) -> Result<Option<Image>, Damaged> {
        // Not for FileKind to judge, which takes a few bytes for an error.
        if data.read_bytes_at(0, 4).ok() != Some(&b"\x7fELF"[..]) {
            return Ok(None);
        }
        match FileKind::parse(data)? {
            FileKind::Elf32 => Ok(Some(image::<FileHeader32<Endianness>, R>(data)?)),
            FileKind::Elf64 => Ok(Some(image::<FileHeader64<Endianness>, R>(data)?)),
            _ => Ok(None),
        }
    }

    /// Whether a library with a name that begins so is asked for.
    pub fn needs(&self, prefix: &str) -> Option<&str> {
        self.needed.iter().map(String::as_str).find(|name| name.starts_with(prefix))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn image<'data, H, R>(data: R) -> object::read::Result<Image>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let mut image = Image {
        machine: Machine {
            number: header.e_machine(endian).0,
            wide: header.is_class_64(),
            little: header.is_little_endian(),
        },
        interpreter: None,
        needed: Vec::new(),
        soname: None,
        go: false,
    };
    // Stripped of its sections it is like any other.
    let sections = header.sections(endian, data);
    image.go = sections.is_ok_and(|s| s.section_by_name(endian, b".go.buildinfo").is_some());
    let segments = header.program_headers(endian, data)?;
    for segment in segments {
        if let Some(path) = segment.interpreter(endian, data)? {
            image.interpreter = Some(text(path));
        }
    }
    let Some(dynamic) = segments.iter().find(|segment| segment.p_type(endian) == PT_DYNAMIC) else {
        return Ok(image);
    };
    let dynamic = dynamic.dynamic(endian, data)?.unwrap_or_default();
    let dynamic = || dynamic.iter().map(|d| (d.tag(endian), d.val(endian))).take_while(|d| d.0 != DT_NULL);
    let value = |tag| dynamic().find(|d| d.0 == tag).map(|d| d.1);
    let (Some(address), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else { return Ok(image) };
    // Where in the file that is which will be at the address.
    let place = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD).find_map(|segment| {
        let (offset, length) = segment.file_range(endian);
        let into = address.checked_sub(segment.p_vaddr(endian).into()).filter(|&into| into < length)?;
        offset.checked_add(into)
    });
    let Some(begin) = place else { return Ok(image) };
    let strings = StringTable::new(data, begin, begin.saturating_add(size));
    let string = |at: u64| {
        let bytes = u32::try_from(at).ok().and_then(|at| strings.get(at).ok());
        bytes.map(text)
    };
    image.needed = dynamic().filter(|d| d.0 == DT_NEEDED).filter_map(|d| string(d.1)).collect();
    image.soname = value(DT_SONAME).and_then(string);
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test itself, up to where its debug information begins: enough for every header.
    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn a_program_is_read() {
        let image = Image::read(&std::env::current_exe().unwrap()).unwrap().unwrap().unwrap();
        assert!(image.interpreter.as_deref().unwrap().contains("/ld-"), "{image:?}");
        assert!(image.needs("libc.so").is_some(), "{image:?}");
        assert_eq!(image, Image::parse(&own()[..]).unwrap().unwrap());
    }

    #[test]
    fn a_library_is_read() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).expect("glibc");
        let image = Image::read(libc.as_ref()).unwrap().unwrap().unwrap();
        assert_eq!(image.soname.as_deref(), Some("libc.so.6"));
    }

    #[test]
    fn what_is_not_elf_is_none() {
        for bytes in [&b""[..], b"\x7f", b"\x7fEL", b"#!/bin/sh\n", b"MZ\0\0", &[0; 64]] {
            assert_eq!(Image::parse(bytes).unwrap(), None, "{bytes:?}");
        }
    }

    #[test]
    fn damaged_files_are_errors_and_not_panics() {
        let whole = own();
        for length in (4..2048).chain([4096, whole.len() / 2]) {
            // Either way, but no panic.
            let _ = Image::parse(&whole[..length]);
        }
        assert!(Image::parse(&whole[..40]).is_err());
        // Every byte of the headers wrong in its turn, and those of the dynamic section's place.
        let mut bytes = whole;
        for at in 4..1024 {
            for wrong in [0, 0xff, 0x80] {
                let right = std::mem::replace(&mut bytes[at], wrong);
                let _ = Image::parse(&bytes[..]);
                bytes[at] = right;
            }
        }
    }
}
