//! The memory areas that the process has mapped. The kernel is queried area by area, or `/proc/self/maps` is
//! read where it does not support that. Allocates nothing.

use crate::sys::kernel::{self, call};

/// A mapped area, as far as the query covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Area {
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
    /// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    pub protection: i32,
    /// Whether other processes see writes: `MAP_SHARED`.
    pub shared: bool,
    /// Page size in bytes; 0 if unknown.
    pub page: usize,
    /// The inode of the file behind it; 0 for anonymous memory.
    pub inode: u64,
}

/// At most this much of `/proc/self/maps` is read to find an area: with more text before it, the search costs
/// more than it gains.
const TEXT: usize = 256 << 10;

/// Receives an area, and returns whether to continue.
pub type Take<'a> = &'a mut dyn FnMut(&Area) -> bool;

/// Calls `each` with the areas that overlap `from..to`, in order, until it returns false.
///
/// # Errors
/// The kernel does not report areas: `/proc` is not mounted, no descriptor is free, or too many areas lie before
/// these.
pub fn each(from: usize, to: usize, each: Take<'_>) -> Result<(), i32> {
    let path = c"/proc/self/maps".as_ptr() as usize;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: a C string.
    let file = unsafe { call(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, 0, 0, 0]) }?;
    let done = match query(file, from, to, each) {
        // The request does not exist before Linux 6.11.
        Err(libc::ENOTTY | libc::EINVAL | libc::ENOSYS) => read(file, from, to, each),
        done => done,
    };
    // SAFETY: our own descriptor.
    let _ = unsafe { call(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    done
}

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    area: u64,
    page: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`.
const QUERY: usize = 3 << 30 | size_of::<Query>() << 16 | (b'f' as usize) << 8 | 17;

fn query(file: usize, from: usize, to: usize, each: Take<'_>) -> Result<(), i32> {
    const COVERING_OR_NEXT: u64 = 0x10;
    let mut at = from;
    while at < to {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            flags: COVERING_OR_NEXT,
            address: at as u64,
            ..Query::default()
        };
        // SAFETY: the kernel writes this structure; the request contains its size.
        match unsafe { call(libc::SYS_ioctl, [file, QUERY, (&raw mut query) as usize, 0, 0, 0]) } {
            Ok(_) => {}
            Err(libc::ENOENT) => break,
            Err(error) => return Err(error),
        }
        let bit = |bit: u64, protection: i32| if query.area & bit != 0 { protection } else { 0 };
        let area = Area {
            start: query.start as usize,
            end: query.end as usize,
            protection: bit(1, libc::PROT_READ) | bit(2, libc::PROT_WRITE) | bit(4, libc::PROT_EXEC),
            shared: query.area & 8 != 0,
            page: query.page as usize,
            inode: query.inode,
        };
        if area.start >= to || area.end <= at || !each(&area) {
            break;
        }
        at = area.end;
    }
    Ok(())
}

/// Finds areas in text like `/proc/self/maps`, given in pieces.
struct Lines {
    area: Area,
    field: u8,
    /// Whether the rest of the line is the name.
    rest: bool,
}

impl Lines {
    const START: Lines = Lines {
        area: Area { start: 0, end: 0, protection: 0, shared: false, page: 0, inode: 0 },
        field: 0,
        rest: false,
    };

    /// Takes a byte. Returns the area at the end of its line.
    fn take(&mut self, byte: u8) -> Option<Area> {
        if byte == b'\n' {
            let area = std::mem::replace(self, Lines::START).area;
            return Some(area);
        }
        if self.rest {
            return None;
        }
        let digit = |radix: u32| (byte as char).to_digit(radix).map(u64::from);
        // `start-end perms offset device inode name`
        match (self.field, byte) {
            (0, b'-') => self.field = 1,
            (_, b' ') => {
                self.field += 1;
                self.rest = self.field > 5;
            }
            (0, _) => self.area.start = self.area.start << 4 | digit(16)? as usize,
            (1, _) => self.area.end = self.area.end << 4 | digit(16)? as usize,
            (2, b'r') => self.area.protection |= libc::PROT_READ,
            (2, b'w') => self.area.protection |= libc::PROT_WRITE,
            (2, b'x') => self.area.protection |= libc::PROT_EXEC,
            (2, b's') => self.area.shared = true,
            (5, _) => self.area.inode = self.area.inode.wrapping_mul(10).wrapping_add(digit(10)?),
            _ => {}
        }
        None
    }
}

fn read(file: usize, from: usize, to: usize, each: Take<'_>) -> Result<(), i32> {
    let mut buffer = [0u8; 1024];
    let (mut lines, mut before) = (Lines::START, 0);
    loop {
        // SAFETY: writes at most that many bytes.
        let got =
            unsafe { call(libc::SYS_read, [file, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
        let got = match got {
            Ok(0) => return Ok(()),
            Ok(got) => got.min(buffer.len()),
            Err(libc::EINTR) => continue,
            Err(error) => return Err(error),
        };
        for &byte in &buffer[..got] {
            let Some(area) = lines.take(byte) else { continue };
            if area.end <= from {
                continue;
            }
            if area.start >= to || !each(&area) {
                return Ok(());
            }
            // Only text before the range is wasted work.
            before = 0;
        }
        before += got;
        if before > TEXT {
            return Err(libc::E2BIG);
        }
    }
}

/// The number of places, of 64 spread over a range, with their page in memory: 0 to 64. 64 if the kernel does
/// not report it.
pub fn resident(at: usize, length: usize) -> usize {
    const PLACES: usize = 64;
    let page = kernel::page();
    let pages = length / page;
    let here = |place: usize| {
        let mut present = 1u8;
        let at = at + pages / PLACES * place * page;
        // SAFETY: writes a byte for a page.
        match unsafe { call(libc::SYS_mincore, [at, page, (&raw mut present) as usize, 0, 0, 0]) } {
            // A hole in the mapping.
            Err(libc::ENOMEM) => 0,
            Err(_) => 1,
            Ok(_) => present as usize & 1,
        }
    };
    (0..PLACES).map(here).sum()
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Area> {
        let mut lines = Lines::START;
        text.bytes().filter_map(|byte| lines.take(byte)).collect()
    }

    #[test]
    fn lines_of_maps() {
        let text = "\
            55e8d5a00000-55e8d5a02000 r-xp 00002000 fe:01 1312 /bin/a file - with r w x\n\
            7f0000000000-7f0040000000 rw-s 00000000 00:01 98309 /SYSV00000000 (deleted)\n\
            7f0040000000-7f0080000000 ---p 00000000 00:00 0 \n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        let areas = all(text);
        assert_eq!(areas.len(), 4);
        assert_eq!(
            areas[1],
            Area {
                start: 0x7f00_0000_0000,
                end: 0x7f00_4000_0000,
                protection: libc::PROT_READ | libc::PROT_WRITE,
                shared: true,
                page: 0,
                inode: 98309
            }
        );
        assert_eq!((areas[0].protection, areas[0].inode), (libc::PROT_READ | libc::PROT_EXEC, 1312));
        assert_eq!((areas[2].protection, areas[2].shared, areas[2].inode), (0, false, 0));
        assert_eq!(areas[3].start, 0xffff_ffff_ff60_0000);
        // Malformed text must not panic.
        all("\n\n----\nzz-zz qq\n999999999999999999999999999-1 rwxs 0 0 99999999999999999999999999 \n");
    }

    fn collect(by: impl FnOnce(Take<'_>) -> Result<(), i32>) -> Result<Vec<Area>, i32> {
        let mut areas = Vec::new();
        by(&mut |area| {
            areas.push(Area { page: 0, ..*area });
            true
        })?;
        Ok(areas)
    }

    #[test]
    fn both_ways_tell_the_same() {
        let page = kernel::page();
        let at = kernel::map(8 * page).expect("memory");
        // A page within, and those at both ends: other threads map memory beside it, which would merge with
        // it into one area.
        for unreadable in [0, 2, 7] {
            // SAFETY: our own memory.
            let split = unsafe { call(libc::SYS_mprotect, [at + unreadable * page, page, 0, 0, 0, 0]) };
            split.expect("mprotect");
        }
        let path = c"/proc/self/maps".as_ptr() as usize;
        // SAFETY: a C string.
        let file = unsafe { call(libc::SYS_openat, [libc::AT_FDCWD as usize, path, 0, 0, 0, 0]) };
        let file = file.expect("/proc/self/maps");
        let (from, to) = (at + page, at + 4 * page);
        let text = collect(|each| read(file, from, to, each)).expect("text");
        assert_eq!(text.len(), 3, "{text:?}");
        assert_eq!((text[1].start, text[1].end, text[1].protection), (at + 2 * page, at + 3 * page, 0));
        match collect(|each| query(file, from, to, each)) {
            Ok(asked) => assert_eq!(asked, text),
            Err(error) => assert!([libc::ENOTTY, libc::EINVAL].contains(&error), "{error}"),
        }
        let mut count = 0;
        each(0, usize::MAX, &mut |_| {
            count += 1;
            count < 3
        })
        .expect("areas");
        assert_eq!(count, 3);
        // SAFETY: our own memory and descriptor.
        unsafe {
            let _ = call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
            kernel::unmap(at, 8 * page).expect("unmap");
        }
    }

    #[test]
    fn pages_that_are_there() {
        let length = 64 * kernel::page();
        let at = kernel::map(length).expect("memory");
        assert_eq!(resident(at, length), 0);
        for place in 0..16 {
            // SAFETY: our own memory.
            unsafe { ((at + place * 4 * kernel::page()) as *mut u8).write(1) };
        }
        // More than that only where pages are huge.
        assert!(resident(at, length) >= 16);
        // SAFETY: our own memory.
        unsafe { kernel::unmap(at, length).expect("unmap") };
    }
}
