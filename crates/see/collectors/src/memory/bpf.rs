//! The pages by BPF: the kernel's array of `struct page`, walked by `pages.bpf.c`.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, MapCore, MapFlags};

use super::exec::{ExecFrames, frame_of};
use super::named::{Named, Owned};
use super::{Class, Counts, Kpageflags};
use crate::bpf_support::load::Types;
use crate::bpf_support::{Error, Feature};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
pub(super) mod skel {
    include!(concat!(env!("OUT_DIR"), "/pages.skel.rs"));
}

/// Free blocks and page tables' folios begin at most this many pages before any of theirs
/// (`MAX_PAGE_ORDER`; 13 on arm64 with pages of 64 KiB).
const LARGEST_BLOCK: u64 = 1 << 13;

/// The page by which the array of `struct page` is found.
use skel::types::anchor as Anchor;
/// A walk under way.
pub(super) use skel::types::walk as Walk;

/// The programs, loaded, and where the array of `struct page` is.
pub struct Pages {
    pub(super) skel: skel::PagesSkel<'static>,
    fds: Fds,
    base: u64,
    slots: usize,
}

/// Descriptors that the walking threads share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fds {
    walks: RawFd,
    tally: RawFd,
    own: RawFd,
    list: RawFd,
}

/// Which of the programs to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Tally,
    /// By cgroup, or by file.
    Own {
        by_file: bool,
    },
    List,
}

/// Walks page frames; each thread has its own slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walker {
    fds: Fds,
    base: u64,
    slot: u32,
}

impl Pages {
    /// Loads the programs for up to `threads` walkers; `rows` is how many
    /// [`Program::List`] may give at once, `owners` whether [`Program::Own`] will run.
    ///
    /// # Errors
    /// The kernel has no BTF, lacks what the programs need (Linux 5.17's bpf_loop), refuses this
    /// user, or its `struct page`s cannot be found.
    pub fn open(threads: usize, rows: usize, owners: bool) -> io::Result<Pages> {
        libbpf_rs::set_print(None);
        let bpf = |doing: &'static str| move |e: libbpf_rs::Error| io::Error::other(format!("{doing}: {e}"));
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open =
            skel::PagesSkelBuilder::default().open(storage).map_err(bpf("opening the BPF object"))?;
        let slots = threads.max(1);
        open.maps.walks.set_max_entries(slots as u32).map_err(bpf("sizing the walks"))?;
        open.maps.rows.set_max_entries(rows.max(1) as u32).map_err(bpf("sizing the rows"))?;
        // Programs that are not loaded need no time in the verifier.
        open.progs.list.set_autoload(rows > 0);
        open.progs.own.set_autoload(owners);
        open.progs.name_file.set_autoload(owners);
        let skel =
            open.load().map_err(|e| match Types::read().and_then(|t| t.require(&[Feature::Loop])) {
                Err(Error::OldKernel(old)) => io::Error::other(old),
                _ => bpf("loading the BPF programs")(e),
            })?;
        let fds = Fds {
            walks: skel.maps.walks.as_fd().as_raw_fd(),
            tally: skel.progs.tally.as_fd().as_raw_fd(),
            own: if owners { skel.progs.own.as_fd().as_raw_fd() } else { -1 },
            list: if rows > 0 { skel.progs.list.as_fd().as_raw_fd() } else { -1 },
        };
        let base = find_base(skel.progs.find_page.as_fd().as_raw_fd())?;
        Ok(Pages { skel, fds, base, slots })
    }

    /// Where [`Program::List`] leaves its rows.
    pub(super) fn rows(&self) -> &impl AsFd {
        &self.skel.maps.rows
    }

    /// The walker of a slot.
    pub(super) fn walker(&self, slot: usize) -> Walker {
        Walker { fds: self.fds, base: self.base, slot: (slot % self.slots) as u32 }
    }

    /// Finds the files that are mapped executable, for the walks that follow; gives how many there were
    /// no room for.
    ///
    /// # Errors
    /// The iterator over the mappings of all processes cannot run.
    pub fn find_exec(&mut self) -> io::Result<u64> {
        let map = &self.skel.maps.exec_files;
        for key in map.keys().collect::<Vec<_>>() {
            // Gone already is as good.
            let _ = map.delete(&key);
        }
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.exec_dropped = 0;
            data.exec_filter = [0; 1024];
        }
        let link = self.skel.progs.find_exec.attach().map_err(io::Error::other)?;
        // The program prints nothing: reading to the end is what runs it.
        Iter::new(&link).map_err(io::Error::other)?.read_to_end(&mut Vec::new())?;
        Ok(self.skel.maps.bss_data.as_deref().map_or(0, |d| d.exec_dropped))
    }

    /// Empties the table of owners.
    pub(super) fn forget_owners(&mut self) {
        let map = &self.skel.maps.owners;
        for key in map.keys().collect::<Vec<_>>() {
            // Gone already is as good.
            let _ = map.delete(&key);
        }
    }

    /// The owners that [`Program::Own`] found.
    pub(super) fn owned(&self) -> io::Result<Owned> {
        let map = &self.skel.maps.owners;
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at * 8..at * 8 + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        let mut owned = Owned::new();
        for key in map.keys() {
            let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(io::Error::other)? else { continue };
            let class = Class::from_raw(word(&key, 1) as u32);
            owned.entry(word(&key, 0)).or_default()[class] += word(&value, 0);
        }
        Ok(owned)
    }

    /// The file that the `struct address_space` at this address belongs to; `None` if it has gone.
    pub(super) fn name(&mut self, address: u64) -> Option<Named> {
        let map = &self.skel.maps.names;
        let mut value = vec![0; map.value_size() as usize];
        value.get_mut(..8)?.copy_from_slice(&address.to_ne_bytes());
        map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY).ok()?;
        run(self.skel.progs.name_file.as_fd().as_raw_fd(), &mut []).ok()?;
        Named::parse(&map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??)
    }

    /// Whether the classes are those of `/proc/kpageflags`, on samples spread over the ranges of page
    /// frames `ranges`: a kernel to come may lay out its pages in a way this program does not know.
    ///
    /// # Errors
    /// Either source fails.
    pub fn agrees(&self, flags: &Kpageflags, ranges: &[(u64, u64)]) -> io::Result<bool> {
        const WINDOWS: u64 = 24;
        const WINDOW: u64 = 512;
        let walker = self.walker(0);
        let all: u64 = ranges.iter().map(|r| r.1 - r.0).sum();
        let (mut samples, mut differ) = (0, 0);
        for i in 0..WINDOWS {
            // The i-th of `WINDOWS` equal parts of all pages.
            let mut at = all * i / WINDOWS;
            let Some(&(first, end)) = ranges.iter().find(|r| {
                let inside = at < r.1 - r.0;
                at -= if inside { 0 } else { r.1 - r.0 };
                inside
            }) else {
                continue;
            };
            let start = ((first + at) / WINDOW * WINDOW).max(first);
            let end = end.min(start + WINDOW);
            // Pages change between the two looks: only what differs again and again does differ.
            let mut least = u64::MAX;
            for _ in 0..3 {
                let theirs = flags.tally(first, start, end, &ExecFrames::default())?;
                let ours = walker.run(Program::Tally, first, start, end)?.0;
                least = least.min(distance(&theirs, &ours));
                if least == 0 {
                    break;
                }
            }
            samples += end - start;
            differ += least;
        }
        Ok(differ * 50 <= samples)
    }
}

/// How many pages are in another class; the classes of files count as one.
fn distance(a: &Counts, b: &Counts) -> u64 {
    let file = |c: &Counts| c.iter().filter(|(class, _)| class.is_file()).map(|(_, n)| n).sum::<u64>();
    let rest = Class::ALL.into_iter().filter(|c| !c.is_file()).map(|c| a[c].abs_diff(b[c])).sum::<u64>();
    (rest + file(a).abs_diff(file(b))) / 2
}

impl Walker {
    /// Runs a program over page frames `start..end`; `first` is where the memory they lie in begins.
    /// Gives the pages by class, and the walk as it ended.
    ///
    /// # Errors
    /// The kernel refuses to run the program.
    pub fn run(self, program: Program, first: u64, start: u64, end: u64) -> io::Result<(Counts, Walk)> {
        let mut walk = Walk {
            base: self.base,
            // From the head of the largest block there may be, so that none is entered midway.
            pfn: (start - start % LARGEST_BLOCK).max(first),
            from: start,
            end,
            by_file: u64::from(program == Program::Own { by_file: true }),
            ..Walk::default()
        };
        let fd = match program {
            Program::Tally => self.fds.tally,
            Program::Own { .. } => self.fds.own,
            Program::List => self.fds.list,
        };
        while walk.pfn < end {
            let from = walk.pfn;
            self.update(&walk)?;
            run(fd, &mut self.slot.to_ne_bytes())?;
            self.look_up(&mut walk)?;
            if walk.pfn <= from {
                return Err(io::Error::other(format!("the BPF walk stands still at page frame {from}")));
            }
        }
        let mut counts = Counts::default();
        for (raw, n) in walk.counts.iter().enumerate() {
            counts[Class::from_raw(raw as u32)] += n;
        }
        Ok((counts, walk))
    }

    fn update(&self, walk: &Walk) -> io::Result<()> {
        // SAFETY: the map's values are `struct walk`, its keys four bytes.
        let rc = unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.fds.walks,
                (&raw const self.slot).cast(),
                std::ptr::from_ref(walk).cast(),
                0,
            )
        };
        if rc == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-rc)) }
    }

    fn look_up(&self, walk: &mut Walk) -> io::Result<()> {
        // SAFETY: as in `update`; any bits are a `Walk`.
        let rc = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                self.fds.walks,
                (&raw const self.slot).cast(),
                std::ptr::from_mut(walk).cast(),
            )
        };
        if rc == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-rc)) }
    }
}

/// Runs a program of type syscall once, with `context` in and out.
pub(super) fn run(program: RawFd, context: &mut [u8]) -> io::Result<()> {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut opts = unsafe { std::mem::zeroed::<libbpf_sys::bpf_test_run_opts>() };
    opts.sz = size_of_val(&opts) as _;
    // Programs of this type give their context back where it came from.
    if !context.is_empty() {
        opts.ctx_in = context.as_mut_ptr().cast();
        opts.ctx_size_in = context.len() as u32;
    }
    // SAFETY: the context outlives the call.
    let rc = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &mut opts) };
    match (rc, opts.retval) {
        (0, 0) => Ok(()),
        (0, n) => Err(io::Error::other(format!("the BPF program returned {n}"))),
        (e, _) => Err(io::Error::from_raw_os_error(-e)),
    }
}

/// The address of the `struct page` of page frame 0. The array has no symbol everywhere and its place is
/// random, but it follows from one page of which both the frame and the `struct page` are known: a page of
/// a memfd, whose frame is in our pagemap. Two must agree.
fn find_base(program: RawFd) -> io::Result<u64> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut last = None;
    // A page may be migrated between the looks.
    for _ in 0..8 {
        let anchor = AnchorPage::new()?;
        let before = anchor.frame(&pagemap)?;
        let mut context = [0; size_of::<Anchor>()];
        context[..4].copy_from_slice(&(anchor.file.as_raw_fd() as u32).to_ne_bytes());
        run(program, &mut context)?;
        // SAFETY: any bits are an `Anchor`, and the array is as large.
        let found: Anchor = unsafe { std::ptr::read_unaligned(context.as_ptr().cast()) };
        let frame = anchor.frame(&pagemap)?;
        // Low bits that are set would mean a node of a tree instead of a page.
        if before != frame || found.page == 0 || found.page & 3 != 0 || found.page_size == 0 {
            continue;
        }
        let base = found.page.wrapping_sub(frame * u64::from(found.page_size));
        if last == Some(base) {
            return Ok(base);
        }
        last = Some(base);
    }
    Err(io::Error::other("the kernel's array of struct page was not found"))
}

/// A file in memory of one page, mapped.
struct AnchorPage {
    file: File,
    at: *mut u8,
    page: usize,
}

impl AnchorPage {
    fn new() -> io::Result<AnchorPage> {
        let page = rustix::param::page_size();
        // SAFETY: a name that ends with 0.
        let fd = unsafe { libc::memfd_create(c"ncpu".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(page as u64)?;
        // SAFETY: a fresh mapping of a file that only this process has.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = at.cast::<u8>();
        // SAFETY: the first byte of the page just mapped; the write is what gives it a frame.
        unsafe { at.write_volatile(1) };
        Ok(AnchorPage { file, at, page })
    }

    fn frame(&self, pagemap: &File) -> io::Result<u64> {
        let mut word = [0; 8];
        pagemap.read_exact_at(&mut word, self.at as u64 / self.page as u64 * 8)?;
        frame_of(&word).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                "/proc/self/pagemap shows no frames (CAP_SYS_ADMIN)",
            )
        })
    }
}

impl Drop for AnchorPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, never handed out.
        unsafe { libc::munmap(self.at.cast(), self.page) };
    }
}

/// Whether the kernel has BTF at all.
pub(super) fn has_btf() -> bool {
    Path::new("/sys/kernel/btf/vmlinux").exists()
}
