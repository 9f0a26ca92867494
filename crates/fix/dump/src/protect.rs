//! Write protection of another process's memory, and the handler of its faults (userfaultfd).
//!
//! Only the descriptor holds the protection. When it is closed, by us or by the kernel because we were
//! killed, the kernel removes the protection and wakes all waiting threads (`userfaultfd_release`). So the
//! process runs on whatever happens to us.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ncpu_machine::page_size;

use crate::Error;
use crate::layout::Part;
use crate::memory::Memory;
use crate::pagemap::{PageMap, Ranges, Which, within};
use crate::sys::{ioctl, set_nice};
use crate::target::Mapping;
use crate::userfaultfd::*;

/// Memory that is protected by one call.
const STEP: u64 = 256 << 20;

/// At most this many ranges are protected again, within some microseconds, while the process is stopped.
const FEW: usize = 16;

/// The largest page that is protected: a whole page is saved while the faulting thread waits.
const LARGEST: u64 = 2 << 20;

/// The descriptor.
pub(crate) struct Protection(OwnedFd);

impl Protection {
    /// Takes ownership of the descriptor.
    ///
    /// # Errors
    /// The kernel lacks a feature: write protection came with Linux 5.7, that of shared and huge pages with
    /// 5.19.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, Error> {
        let wanted = FEATURE_PAGEFAULT_FLAG_WP
            | FEATURE_EVENT_REMAP
            | FEATURE_EVENT_REMOVE
            | FEATURE_EVENT_UNMAP
            | FEATURE_WP_HUGETLBFS_SHMEM;
        let mut argument = [UFFD_API, wanted, 0];
        ioctl(fd.as_raw_fd(), UFFDIO_API, &mut argument).map_err(|e| Error::call("userfaultfd", e))?;
        Ok(Self(fd))
    }

    /// Requests reports of writes to a mapping, and of first touches if the kernel reports those without
    /// additional page tables. Nothing is protected yet.
    fn register(&self, mapping: &Mapping) -> io::Result<()> {
        if mapping.page > LARGEST || (mapping.is_file() && !mapping.shared && !mapping.has(b"ht")) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let anonymous = !mapping.is_file() && !mapping.shared;
        let mode = REGISTER_WP | if anonymous { REGISTER_MISSING } else { 0 };
        let mut argument = [mapping.start, mapping.len(), mode, 0];
        ioctl(self.0.as_raw_fd(), UFFDIO_REGISTER, &mut argument).map(drop)
    }

    fn write_protect(&self, start: u64, end: u64, on: bool) -> io::Result<()> {
        let mut argument = [start, end - start, u64::from(on)];
        loop {
            match ioctl(self.0.as_raw_fd(), UFFDIO_WRITEPROTECT, &mut argument) {
                // Mappings are being changed: the event must be read first, or is being handled.
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => return Err(e),
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                result => return result.map(drop),
            }
        }
    }

    fn wake(&self, start: u64, end: u64) {
        let mut argument = [start, end - start];
        // Fails only if the memory is not mapped any more, which has already woken its waiters.
        let _ = ioctl(self.0.as_raw_fd(), UFFDIO_WAKE, &mut argument);
    }

    /// Lets first touches pass that no thread waits for.
    fn zero(&self, start: u64, end: u64) -> io::Result<()> {
        let mut argument = [start, end - start, 0, 0];
        ioctl(self.0.as_raw_fd(), UFFDIO_ZEROPAGE, &mut argument).map(drop)
    }

    /// Removes a range from the protection.
    fn unregister(&self, start: u64, end: u64) -> io::Result<()> {
        let mut argument = [start, end - start];
        ioctl(self.0.as_raw_fd(), UFFDIO_UNREGISTER, &mut argument).map(drop)
    }

    /// Reads pending events; returns their number.
    fn events(&self, buffer: &mut [[u64; 4]; 64]) -> usize {
        // SAFETY: the buffer's length is passed.
        let got = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), size_of_val(buffer)) };
        if got <= 0 { 0 } else { got as usize / 32 }
    }
}

/// How the handler treats a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the moment of the snapshot: lets it pass and records the page.
    Before,
    /// After it: saves the page, then lets the write pass.
    After,
}

/// Memory that was saved before it was overwritten.
enum Saved {
    Memory(Vec<u8>),
    /// In the spill file, at an offset.
    File(u64, u64),
}

impl Saved {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, length) => *length,
        }
    }
}

/// State of the snapshot's memory, shared by the handler and the copiers.
struct State {
    phase: Phase,
    /// Pages written or first touched before the moment of the snapshot, since they were protected.
    dirty: Ranges,
    /// Those pages of them that were protected again.
    again: Ranges,
    /// Pages with data at the moment of the snapshot; complete only after it.
    filled: Arc<Ranges>,
    /// Saved memory, by address.
    saved: BTreeMap<u64, Saved>,
    /// Bytes of `saved` in memory.
    held: u64,
    /// The file for saved memory beyond the limit.
    spill: Option<File>,
    spilled: u64,
    /// First addresses of the parts that are copied as a whole, and whether each was copied. Empty until
    /// known.
    parts: Arc<Vec<u64>>,
    done: Vec<bool>,
    /// Memory that the process freed before it was copied.
    lost: Ranges,
    /// Memory that the process unmapped before the moment of the snapshot, since it was protected.
    unmapped: Ranges,
    counts: Counts,
}

/// Figures of a snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Write faults before the moment of the snapshot.
    pub(crate) before: u64,
    /// Write faults after it.
    pub(crate) after: u64,
    /// First touches.
    pub(crate) touched: u64,
    /// Bytes saved aside, altogether.
    pub(crate) saved: u64,
    /// Bytes that could be saved neither in memory nor in the file.
    pub(crate) unsaved: u64,
}

/// The most saved memory kept in memory; more goes to a file.
pub(crate) const HELD: u64 = 8 << 20;

/// A snapshot in progress: the protection, its handler, and saved memory.
pub(crate) struct Guard {
    protection: Protection,
    memory: Arc<Memory>,
    pages: PageMap,
    state: Mutex<State>,
    quit: AtomicBool,
    /// Registered mappings: end and page size, by start.
    registered: Mutex<BTreeMap<u64, (u64, u64)>>,
}

impl Guard {
    pub(crate) fn new(
        protection: Protection,
        memory: Arc<Memory>,
        pages: PageMap,
        spill: Option<File>,
    ) -> Self {
        let state = State {
            phase: Phase::Before,
            dirty: Ranges::new(),
            again: Ranges::new(),
            filled: Arc::default(),
            saved: BTreeMap::new(),
            held: 0,
            spill,
            spilled: 0,
            parts: Arc::default(),
            done: Vec::new(),
            lost: Ranges::new(),
            unmapped: Ranges::new(),
            counts: Counts::default(),
        };
        Self {
            protection,
            memory,
            pages,
            state: Mutex::new(state),
            quit: AtomicBool::new(false),
            registered: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registered(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, u64)>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The protected mapping that contains an address: start, end, page size.
    fn mapping(&self, address: u64) -> Option<(u64, u64, u64)> {
        let registered = self.registered();
        let (&start, &(end, page)) = registered.range(..=address).next_back()?;
        (address < end).then_some((start, end, page))
    }

    /// Protects a mapping of a running or stopped process: all of it, or only some ranges.
    ///
    /// # Errors
    /// It is refused: EBUSY if the process uses userfaultfd itself, EINVAL for memory without write
    /// protection.
    pub(crate) fn protect(&self, mapping: &Mapping, ranges: Option<&[(u64, u64)]>) -> io::Result<()> {
        self.protection.register(mapping)?;
        self.registered().insert(mapping.start, (mapping.end, mapping.page));
        let whole = [(mapping.start, mapping.end)];
        for &(start, end) in ranges.unwrap_or(&whole) {
            // In steps, so that faults elsewhere do not wait long for the lock of the page tables.
            let mut start = start;
            while start < end {
                let next = end.min(start + STEP);
                // If mappings are being changed, the handler must read the event.
                self.protect_range(start, next, mapping.page, &mut std::thread::yield_now);
                start = next;
            }
        }
        Ok(())
    }

    /// Protects a range of one mapping. Some of its pages may have been unmapped or replaced meanwhile.
    fn protect_range(&self, start: u64, end: u64, page: u64, busy: &mut dyn FnMut()) {
        loop {
            match self.protection.write_protect(start, end, true) {
                Ok(()) => return,
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => busy(),
                // No part of it is left to protect.
                Err(_) if end - start <= page => return,
                Err(_) => break,
            }
        }
        let middle = start + ((end - start) / page).div_ceil(2) * page;
        self.protect_range(start, middle, page, busy);
        self.protect_range(middle, end, page, busy);
    }

    /// The parts of a range in registered mappings, each with its page size.
    fn registered_parts(&self, start: u64, end: u64) -> Vec<(u64, u64, u64)> {
        let registered = self.registered();
        let from = registered.range(..=start).next_back().map_or(start, |(&from, _)| from);
        let parts =
            registered.range(from..end).map(|(&from, &(to, page))| (from.max(start), to.min(end), page));
        parts.filter(|(from, to, _)| from < to).collect()
    }

    /// Handles faults until [`Guard::finish`].
    pub(crate) fn serve(&self) {
        // The process waits for this thread, which has little work.
        set_nice(-20);
        let mut poll = libc::pollfd { fd: self.protection.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        while !self.quit.load(Ordering::Acquire) {
            // SAFETY: one descriptor.
            let ready = unsafe { libc::poll(&raw mut poll, 1, 20) };
            if ready > 0 {
                let mut state = self.lock();
                self.drain(&mut state);
            }
        }
    }

    /// Ends the handler.
    pub(crate) fn finish(&self) {
        self.quit.store(true, Ordering::Release);
    }

    /// Handles all pending events.
    fn drain(&self, state: &mut State) {
        let mut buffer = [[0u64; 4]; 64];
        loop {
            let count = self.protection.events(&mut buffer);
            for event in &buffer[..count] {
                let words = [event[1], event[2], event[3]];
                match event[0].to_ne_bytes()[0] {
                    EVENT_PAGEFAULT if words[0] & PAGEFAULT_WP != 0 => self.write_fault(state, words[1]),
                    EVENT_PAGEFAULT => self.missing(state, words[1]),
                    EVENT_REMAP => self.unmapped(state, words[0], words[0].saturating_add(words[2])),
                    EVENT_REMOVE => {
                        self.gone(state, words[0], words[1]);
                        // Memory freed after the moment of the snapshot needs no protection, and new memory
                        // in its place needs no handling. Before that moment, new memory there is reported as
                        // missing pages.
                        if state.phase == Phase::After {
                            let _ = self.protection.unregister(words[0], words[1]);
                        }
                    }
                    EVENT_UNMAP => self.unmapped(state, words[0], words[1]),
                    _ => {}
                }
            }
            if count < buffer.len() {
                return;
            }
        }
    }

    /// The unit around an address that is protected and released as a whole: a page, huge or not.
    fn unit(&self, address: u64) -> (u64, u64) {
        let around = |size: u64| (address & !(size - 1), (address & !(size - 1)).wrapping_add(size));
        let Some((from, to, page)) = self.mapping(address) else { return around(page_size()) };
        if page > page_size() {
            return around(page);
        }
        // A transparent huge page is released as a whole, since protecting a part of it would split it.
        let (start, end) = around(LARGEST);
        let mut huge = Ranges::new();
        if start >= from
            && end <= to
            && self.pages.find(start, end, Which::Huge, &mut huge).is_ok()
            && huge == [(start, end)]
        {
            return (start, end);
        }
        around(page_size())
    }

    /// The writing thread waits until the protection of the page is removed. If we end here, the kernel
    /// removes it.
    fn write_fault(&self, state: &mut State, address: u64) {
        let (start, end) = self.unit(address);
        match state.phase {
            Phase::Before => {
                state.counts.before += 1;
                state.dirty.push((start, end));
            }
            Phase::After => {
                state.counts.after += 1;
                self.save(state, start, end);
            }
        }
        self.let_write(start, end);
    }

    fn let_write(&self, start: u64, end: u64) {
        if self.protection.write_protect(start, end, false).is_err() {
            // Mappings are changing, or the mapping no longer exists: the waiting thread retries, and faults
            // again if necessary.
            self.protection.wake(start, end);
        }
    }

    /// The first touch of a page of anonymous memory.
    fn missing(&self, state: &mut State, address: u64) {
        state.counts.touched += 1;
        let page = page_size();
        let start = address & !(page - 1);
        if state.phase == Phase::Before {
            state.dirty.push((start, start + page));
        } else {
            // There was no memory at the moment of the snapshot: the hole around it needs no protection any
            // more.
            if let Some((from, to, _)) = self.mapping(start) {
                let next = state.filled.partition_point(|range| range.1 <= start);
                let low = if next == 0 { from } else { state.filled[next - 1].1.max(from) };
                let high = state.filled.get(next).map_or(to, |range| range.0.min(to));
                if !state.parts.is_empty() && high > start && self.protection.unregister(low, high).is_ok() {
                    return;
                }
            }
        }
        match self.protection.zero(start, start + page) {
            Ok(()) => {}
            // Another thread was first, or the memory no longer exists.
            Err(_) => self.protection.wake(start, start + page),
        }
    }

    /// The process unmapped memory. Other memory may be mapped there, which is not protected.
    fn unmapped(&self, state: &mut State, start: u64, end: u64) {
        if state.phase == Phase::Before {
            state.unmapped.push((start, end));
        }
        self.gone(state, start, end);
    }

    /// The process freed memory. Data that was not copied is lost.
    fn gone(&self, state: &mut State, start: u64, end: u64) {
        if state.phase == Phase::Before {
            return;
        }
        let filled = state.filled.clone();
        for (start, end) in within(&filled, start, end) {
            // Part by part, since parts that are already copied are not lost.
            let mut at = start;
            while at < end {
                let part = state.parts.partition_point(|&first| first <= at);
                let next = state.parts.get(part).copied().unwrap_or(u64::MAX).min(end);
                if part == 0 || !state.done[part - 1] {
                    state.lost.push((at, next));
                }
                at = next;
            }
        }
    }

    /// Saves a page unless it was already copied or saved.
    fn save(&self, state: &mut State, start: u64, end: u64) {
        let part = state.parts.partition_point(|&first| first <= start);
        // A huge page may extend beyond the end of a part into one that was not copied.
        let last = state.parts.partition_point(|&first| first < end);
        if part > 0 && (part..=last).all(|part| state.done[part - 1]) {
            return;
        }
        let before = state.saved.range(..=start).next_back();
        if before.is_some_and(|(at, saved)| at + saved.len() >= end) {
            return;
        }
        let mut bytes = vec![0; (end - start) as usize];
        if self.memory.read(&[(start, end)], &mut bytes).is_ok() {
            state.keep(start, bytes);
        }
    }

    /// Protects pages that were written since they were protected, while the process runs on, until few are
    /// left: the larger the memory, the longer protecting it took, and the more was written meanwhile. For a
    /// process that writes faster than that the number stays constant.
    pub(crate) fn settle(&self) {
        let mut before = usize::MAX;
        loop {
            let mut dirty = std::mem::take(&mut self.lock().dirty);
            self.protect_again(&mut dirty, &mut std::thread::yield_now);
            let count = dirty.len();
            self.lock().again.append(&mut dirty);
            if count <= FEW || count > before / 2 {
                return;
            }
            before = count;
        }
    }

    /// Protects pages again; sorts them.
    fn protect_again(&self, dirty: &mut Ranges, busy: &mut dyn FnMut()) {
        crate::pagemap::join(dirty);
        for &(start, end) in dirty.iter() {
            // One call cannot protect pages of different sizes.
            for (start, end, page) in self.registered_parts(start, end) {
                self.protect_range(start, end, page, busy);
            }
        }
    }

    /// The moment of the snapshot: all threads of the process are stopped. Protects the pages written since
    /// they were protected; from here on, written pages are saved. If we end here, the kernel removes all
    /// protection.
    pub(crate) fn freeze(&self) {
        let mut state = self.lock();
        let mut all = std::mem::take(&mut state.again);
        self.drain(&mut state);
        while !state.dirty.is_empty() {
            let mut dirty = std::mem::take(&mut state.dirty);
            // A mapping was being changed when its thread was stopped: reading its event completes the
            // change.
            self.protect_again(&mut dirty, &mut || self.drain(&mut state));
            all.append(&mut dirty);
        }
        crate::pagemap::join(&mut all);
        state.dirty = all;
        state.phase = Phase::After;
    }

    /// Memory unmapped before the moment of the snapshot, since it was protected.
    pub(crate) fn vanished(&self) -> Ranges {
        let mut unmapped = self.lock().unmapped.clone();
        crate::pagemap::join(&mut unmapped);
        unmapped
    }

    /// Pages written before the moment of the snapshot, which count as filled at that moment.
    pub(crate) fn dirty(&self) -> Ranges {
        self.lock().dirty.clone()
    }

    /// Sets the memory to save, and the parts in which it is copied.
    pub(crate) fn plan(&self, filled: Arc<Ranges>, parts: Vec<u64>) {
        let mut state = self.lock();
        state.done = vec![false; parts.len()];
        state.parts = Arc::new(parts);
        state.filled = filled;
    }

    /// After the parts of a chunk were copied to `chunk`: replaces data written meanwhile by saved data. A
    /// page is saved before it is written, so all saved data for this copy is available by now.
    pub(crate) fn overlay(&self, parts: &[Part], chunk: &mut [u8]) -> io::Result<()> {
        let mut state = self.lock();
        // The process may have freed memory just now and filled it again: the freeing thread waits until we
        // have read the event.
        self.drain(&mut state);
        for part in parts {
            let length = (part.end - part.start) as usize;
            state.overlay(part.start, part.end, &mut chunk[part.at..part.at + length])?;
        }
        Ok(())
    }

    /// A part was copied: writes to it need not be saved any more, so its protection is removed.
    pub(crate) fn copied(&self, part: usize, ranges: &[(u64, u64)]) {
        {
            let mut state = self.lock();
            let (Some(&start), end) = (state.parts.get(part), state.parts.get(part + 1).copied()) else {
                return;
            };
            state.done[part] = true;
            let over: Vec<u64> = state
                .saved
                .range(start..end.unwrap_or(u64::MAX))
                .filter(|(at, saved)| end.is_none_or(|end| *at + saved.len() <= end))
                .map(|(&at, _)| at)
                .collect();
            for at in over {
                if let Some(Saved::Memory(bytes)) = state.saved.remove(&at) {
                    state.held -= bytes.len() as u64;
                }
            }
        }
        let parts = ranges.iter().flat_map(|&(start, end)| self.registered_parts(start, end));
        for (start, end, _) in parts {
            // If mappings are changing at the moment it stays protected: the next write to it removes the
            // protection.
            let _ = self.protection.write_protect(start, end, false);
        }
    }

    /// Figures, and memory that the process freed before it was copied.
    pub(crate) fn outcome(&self) -> (Counts, Ranges) {
        let state = self.lock();
        let mut lost = state.lost.clone();
        crate::pagemap::join(&mut lost);
        (state.counts, lost)
    }
}

impl State {
    /// Replaces lost or saved data in a copy of the memory between two addresses.
    fn overlay(&self, start: u64, end: u64, buffer: &mut [u8]) -> io::Result<()> {
        for &(low, high) in &self.lost {
            let (low, high) = (low.max(start), high.min(end));
            if low < high {
                buffer[(low - start) as usize..(high - start) as usize].fill(0);
            }
        }
        let from = self.saved.range(..=start).next_back().map_or(start, |(&at, _)| at);
        for (&at, saved) in self.saved.range(from..end) {
            let (low, high) = (at.max(start), (at + saved.len()).min(end));
            if low >= high {
                continue;
            }
            let target = &mut buffer[(low - start) as usize..(high - start) as usize];
            match saved {
                Saved::Memory(bytes) => {
                    target.copy_from_slice(&bytes[(low - at) as usize..(high - at) as usize])
                }
                Saved::File(offset, _) => {
                    let spill = self.spill.as_ref().ok_or(io::ErrorKind::NotFound)?;
                    spill.read_exact_at(target, offset + (low - at))?;
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, start: u64, bytes: Vec<u8>) {
        let length = bytes.len() as u64;
        self.counts.saved += length;
        if self.held + length > HELD {
            let written = self.spill.as_ref().map(|spill| spill.write_all_at(&bytes, self.spilled));
            if let Some(Ok(())) = written {
                self.saved.insert(start, Saved::File(self.spilled, length));
                self.spilled += length;
                return;
            }
            // No file, or no space in it: exceeds the promised limit, because otherwise the dump would be
            // wrong here. Even that is bounded.
            if self.held + length > 8 * HELD {
                self.counts.unsaved += length;
                return;
            }
        }
        self.held += length;
        self.saved.insert(start, Saved::Memory(bytes));
    }
}
