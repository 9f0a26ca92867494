//! Text on huge pages without relinking: the program file is copied to a tmpfs that makes its files of huge pages, and
//! the copy is mounted over the file, for this program alone. The path stays, every byte stays at its offset, and so do
//! symbols in perf, gdb and our own flame graphs.
//!
//! Only the alignment in the program's header is changed, for the kernel and the dynamic linker to choose an
//! address at which huge pages fit. That is possible where the text's place in the file and its address are equal
//! modulo a huge page, as GNU ld lays them out.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};

/// A file whose text can be made huge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The file.
    pub path: PathBuf,
    /// Bytes of text in whole aligned huge pages.
    pub fits: u64,
    /// Places in the file of `p_align` words that are to be raised.
    aligns: Vec<u64>,
}

/// Why a file's text cannot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its layout.
    #[error("{}: {why}", path.display())]
    Layout {
        /// Which.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// Mounts.
    #[error("{what}: {source}")]
    Mount {
        /// The operation.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Properties of an ELF file of 64 bits: bytes of text that fit into huge pages, and the places of
/// alignments.
fn layout(data: &[u8], huge: u64) -> Result<(u64, Vec<u64>), &'static str> {
    let header = FileHeader64::<Endianness>::parse(data).map_err(|_| "not an ELF file of 64 bits")?;
    let endian = header.endian().map_err(|_| "not of this processor's byte order")?;
    let segments = header.program_headers(endian, data).map_err(|_| "damaged ELF file")?;
    let table = header.e_phoff(endian);
    let (mut fits, mut aligns) = (0, Vec::new());
    let (mut text, mut fit) = (false, false);
    for (i, segment) in segments.iter().enumerate() {
        if segment.p_type(endian) != PT_LOAD || segment.p_flags(endian).0 & PF_X.0 == 0 {
            continue;
        }
        text = true;
        let (at, offset) = (segment.p_vaddr(endian), segment.p_offset(endian));
        // As the kernel maps it: the mapping begins where the file's place does, modulo a huge page.
        if at % huge != offset % huge {
            continue;
        }
        fit = true;
        let end = offset.saturating_add(segment.p_filesz(endian));
        fits += (end / huge * huge).saturating_sub(offset.next_multiple_of(huge));
        let size = u64::try_from(size_of::<object::elf::ProgramHeader64<Endianness>>()).unwrap_or(56);
        // p_align is the last word of the header.
        aligns.push(table + (i as u64 + 1) * size - 8);
    }
    match (text, fit, fits) {
        (false, ..) => Err("has no text"),
        (_, false, _) => Err("its text lies at another place modulo 2 MiB in the file than in memory"),
        (_, _, 0) => Err("its text holds no whole aligned huge page"),
        _ => Ok((fits, aligns)),
    }
}

/// Looks at a file.
///
/// # Errors
/// It cannot be read, or its text cannot be made huge.
pub fn candidate(path: &Path, huge: u64) -> Result<Candidate, Error> {
    let path = std::fs::canonicalize(path).map_err(|source| Error::File { path: path.into(), source })?;
    let data = std::fs::read(&path).map_err(|source| Error::File { path: path.clone(), source })?;
    let (fits, aligns) = layout(&data, huge).map_err(|why| Error::Layout { path: path.clone(), why })?;
    Ok(Candidate { path, fits, aligns })
}

/// Gives this process mounts of its own, in which the files are copies on huge pages. Whatever it becomes or starts
/// sees these; they go with the last such process.
///
/// # Errors
/// A mount is refused, or memory is short.
pub fn mount(candidates: &[Candidate], huge: u64) -> Result<(), Error> {
    let mount = |what, e: rustix::io::Errno| Error::Mount { what, source: e.into() };
    // SAFETY: this process has one thread that looks at files now.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(|e| mount("making a mount namespace", e))?;
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|e| mount("making mounts private", e))?;
    let making = "making a tmpfs of huge pages";
    let context =
        rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|e| mount(making, e))?;
    for (key, value) in [("huge", "always"), ("mode", "0755")] {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value).map_err(|e| mount(making, e))?;
    }
    rustix::mount::fsconfig_create(context.as_fd()).map_err(|e| mount(making, e))?;
    let files =
        rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
            .map_err(|e| mount(making, e))?;
    for (i, candidate) in candidates.iter().enumerate() {
        let name = format!("{i}");
        copy(candidate, &files, &name, huge)
            .map_err(|source| Error::File { path: candidate.path.clone(), source })?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(files.as_fd(), name.as_str(), flags)
            .map_err(|e| mount("finding the copy", e))?;
        let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(tree.as_fd(), "", CWD, &candidate.path, empty)
            .map_err(|e| mount("mounting the copy over the program", e))?;
    }
    Ok(())
}

fn copy(candidate: &Candidate, files: &OwnedFd, name: &str, huge: u64) -> io::Result<()> {
    let meta = std::fs::metadata(&candidate.path)?;
    let mut data = std::fs::read(&candidate.path)?;
    for &at in &candidate.aligns {
        let word = usize::try_from(at).ok().and_then(|at| data.get_mut(at..at + 8));
        word.ok_or_else(|| io::Error::other("it has changed meanwhile"))?
            .copy_from_slice(&huge.to_ne_bytes());
    }
    let path = format!("/proc/self/fd/{}/{name}", files.as_raw_fd());
    let mut file = File::create(&path)?;
    // By whole huge pages, so that each is made as one.
    for piece in data.chunks(huge as usize) {
        file.write_all(piece)?;
    }
    file.set_permissions(PermissionsExt::from_mode(meta.mode() & 0o7777))?;
    std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
    // A file open for writing cannot be executed.
    drop(file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        for text in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0x7f; 100]] {
            std::fs::write(&file, text).unwrap();
            assert!(matches!(candidate(&file, 2 << 20), Err(Error::Layout { .. })), "{text:?}");
        }
        assert!(matches!(candidate(&dir.path().join("none"), 2 << 20), Err(Error::File { .. })));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in (0..4096).step_by(7) {
            // Either way, but no panic.
            let _ = layout(&own[..length], 2 << 20);
        }
    }

    #[test]
    fn the_alignment_is_found_and_nothing_else_is_changed() {
        // Huge pages of 64 KiB, so that this test's own text holds some.
        let own = std::env::current_exe().unwrap();
        let data = std::fs::read(&own).unwrap();
        let huge = 64 << 10;
        match layout(&data, huge) {
            Ok((fits, aligns)) => {
                assert!(fits >= huge && fits < data.len() as u64, "{fits}");
                for at in aligns {
                    let word = u64::from_ne_bytes(data[at as usize..at as usize + 8].try_into().unwrap());
                    assert!(word.is_power_of_two() && (4096..=2 << 20).contains(&word), "{word}");
                }
            }
            Err(why) => assert!(why.contains("modulo"), "{why}"),
        }
    }
}
