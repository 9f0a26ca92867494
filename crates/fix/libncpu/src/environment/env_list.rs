//! The list behind `environ`: found in without locks, changed by one thread at a time.
//!
//! # Where it comes from
//!
//! Solaris 10's, as Phil Harman described it ("Caring For The Environment – Making getenv() Scale", 2005):
//!
//! - *Double it and drop the old one on the floor.* A list without room is copied into one of twice the size.
//!   The old list stays unchanged for threads that still read it, and stays linked to the new one, so that
//!   leak detectors find it. All lists together take less than three times the memory of the largest.
//! - *Overwrite with the first entry and increment.* The first entry is copied over the removed entry, then
//!   the list begins one slot later. So lists are filled from their end downwards, and an entry is added by
//!   writing it before the first and then moving the beginning.
//! - *`my_environ`.* Programs write `environ` themselves. So every update compares `environ` with the value
//!   that this code wrote last. A list of the program's own is used unchanged, changed in place, and copied
//!   when it needs room.
//! - Memory is allocated without the lock. Each update then begins anew, so no count of generations is
//!   needed.
//!
//! # Invariant
//!
//! Let a list be the slots from where `environ` points up to the first null. Then
//!
//! 1. an entry in the list only ever moves to higher slots, and is in the new slot before it leaves the old
//!    one: a removal copies upwards, then moves the beginning up; an addition moves no entry;
//! 2. the beginning moves down to a slot only after an entry was written there;
//! 3. a list that `environ` no longer points into does not change any more, unless the environment was empty meanwhile
//!    or the process had one thread.
//!
//! A reader loads `environ` once and goes upwards to the null. An entry that is in the list during that whole
//! time is at or above the reader's first slot, and by (1) never gets below the reader, so the reader finds
//! it. If the list is replaced meanwhile, by (3) the entry stays where it is in the old list. Every entry
//! that the reader finds was in the list at some moment since the reader loaded `environ`: by (2) no older
//! slot lies in its way. So a look-up behaves as if made at one moment, and the memory that it passes is
//! never freed. It may see an entry twice, which does no harm. After the environment was empty, the newest
//! list may be filled anew from its end. A reader that is still in that list from before may miss any
//! variable, as all of them were removed.
//!
//! Of several entries of one name, which only `execve` and programs that write `environ` create, the first
//! one counts. Where overwriting would carry the first entry past another entry of its name, all entries up
//! to the gap move up by one instead.
//!
//! # Memory ordering
//!
//! Slots and `environ` are stored with release and loaded with acquire. A reader that sees `environ` sees the
//! slots written before it, and a reader that sees an entry sees its bytes. For (1): if a reader finds
//! another entry in a slot than the one that moved on from it, that store came after the store to the higher
//! slot, so the reader sees the higher slot too. On x86, and with AArch64's `ldar`/`stlr`, that costs a
//! reader nothing. The lock orders updates.

use crate::locks::raw_mutex::RawMutex;
use crate::percpu::{OutOfMemory, boxed, one};
use crate::sys::{self, AtomicPtr, Ordering};
use Ordering::{Acquire, Release};
use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::ptr::null_mut;

/// A slot of a list: an entry, `NAME=VALUE`, or null after the last one.
pub type Slot = AtomicPtr<c_char>;
/// C's `environ`: the address of the first slot; null is an empty list.
pub type Environ = AtomicPtr<Slot>;

/// The fewest slots of a list that this code allocates.
const FEWEST: usize = 32;
const EQUALS: c_char = b'=' as c_char;

/// The value of a variable: the rest of the first entry that begins with `name` and `=`; null if the variable
/// is not set.
///
/// As in C libraries, a `name` with a `=` in it is compared like any other, and an empty one is never found.
///
/// # Safety
/// `name` is a C string. `environ` is null or points to slots up to a null one, each of them a C string.
#[inline]
pub unsafe fn find(environ: &Environ, name: *const c_char) -> *mut c_char {
    let slot = environ.load(Acquire);
    if slot.is_null() {
        return null_mut();
    }
    // SAFETY: reads no further than a null slot, the end of the name and the end of each entry: a byte that
    // differs ends the comparison, and so does the last byte of either.
    unsafe {
        let first = *name;
        if first == 0 {
            return null_mut();
        }
        let second = match *name.add(1) {
            0 => EQUALS,
            second => second,
        };
        let begins = [first, second];
        let (mut slot, mut entry) = alike(slot, begins);
        if entry.is_null() {
            // Programs often ask for a variable that is not set; then the name's length is not needed.
            return entry;
        }
        let length = libc::strlen(name);
        if length == 1 {
            return entry.add(2);
        }
        let (rest, left) = (name.add(2), length - 2);
        loop {
            if same(entry.add(2), rest, left) && *entry.add(length) == EQUALS {
                return entry.add(length + 1);
            }
            // Variables with similar names often stand together.
            slot = slot.add(1);
            entry = (*slot).load(Acquire);
            if !entry.is_null() && *entry.cast::<[c_char; 2]>() != begins {
                (slot, entry) = alike(slot.add(1), begins);
            }
            if entry.is_null() {
                return entry;
            }
        }
    }
}

/// The first entry from `slot` on that begins with these bytes, and its slot; a null entry if no entry does.
///
/// Most entries differ, and this loop takes most of a look-up's time. It makes one comparison per entry,
/// because comparing one byte and then another doubles the mispredictions, and takes four entries per
/// round, which saves a quarter of the time. Each entry has two bytes, except an empty string that the
/// program put there; glibc also reads one byte too many then.
///
/// # Safety
/// `slot` is one of a list, up to its null.
#[inline(always)]
unsafe fn alike(mut slot: *mut Slot, begins: [c_char; 2]) -> (*mut Slot, *mut c_char) {
    // SAFETY: no further than the null.
    unsafe {
        loop {
            for ahead in 0..4 {
                let entry = (*slot.add(ahead)).load(Acquire);
                if entry.is_null() || *entry.cast::<[c_char; 2]>() == begins {
                    return (slot.add(ahead), entry);
                }
            }
            slot = slot.add(4);
        }
    }
}

/// Whether two strings have the first `length` bytes in common, none of which is a null in the second.
///
/// # Safety
/// Both are C strings, the second of at least `length` bytes.
#[inline(always)]
unsafe fn same(one: *const c_char, other: *const c_char, length: usize) -> bool {
    // SAFETY: up to the end of either.
    unsafe {
        // Miri does not support `strncmp`.
        if cfg!(miri) {
            return (0..length).all(|at| *one.add(at) == *other.add(at));
        }
        // The C library's function takes many bytes at a time, and its end is not a branch that is
        // mispredicted.
        libc::strncmp(one, other, length) == 0
    }
}

/// The text after `name` and `=` in an entry; null if the entry belongs to another variable.
///
/// # Safety
/// Both are C strings.
unsafe fn value_of(entry: *mut c_char, name: *const c_char) -> *mut c_char {
    let mut at = 0;
    // SAFETY: up to the first difference or the end of the name.
    unsafe {
        loop {
            match *name.add(at) {
                0 if *entry.add(at) == EQUALS => return entry.add(at + 1),
                byte if byte == 0 || byte != *entry.add(at) => return null_mut(),
                _ => at += 1,
            }
        }
    }
}

/// The list of one `environ`, and the lock for updates.
pub struct List {
    lock: RawMutex,
    state: UnsafeCell<State>,
}

// SAFETY: the state is touched with the lock held; what it points to is atomic.
unsafe impl Sync for List {}
// SAFETY: pointers to memory that only this list frees.
unsafe impl Send for List {}

/// State of the updates.
struct State {
    /// The value that we last wrote to `environ`, or found in it. Any other value was written by the program.
    mine: *mut Slot,
    /// The lowest slot of this list that `environ` has pointed to: the program may have kept it.
    reached: *mut Slot,
    /// The newest list that this code allocated.
    newest: Option<Box<Block>>,
}

/// Slots allocated by this code. The last is always null.
struct Block {
    slots: *mut Slot,
    length: usize,
    /// The previous block. Readers and the program may still use it, so it is never freed.
    dropped: Option<Box<Block>>,
}

impl Block {
    fn new(length: usize) -> Result<Box<Block>, OutOfMemory> {
        let mut block = one(Block { slots: null_mut(), length, dropped: None })?;
        block.slots = Box::into_raw(boxed(length, |_| Slot::new(null_mut()))?).cast();
        Ok(block)
    }

    fn end(&self) -> *mut Slot {
        self.slots.wrapping_add(self.length)
    }

    fn contains(&self, slot: *mut Slot) -> bool {
        (self.slots..self.end()).contains(&slot)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.slots.is_null() {
            // SAFETY: from a box of this length; the list was dropped (only in tests) or was never used.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.slots, self.length)) });
        }
    }
}

/// The lock, held.
struct Held<'a>(&'a List);

impl std::ops::Deref for Held<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        // SAFETY: the lock is held.
        unsafe { &*self.0.state.get() }
    }
}

impl std::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: the lock is held, and this is its only holder.
        unsafe { &mut *self.0.state.get() }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: taken by `hold`.
        unsafe { self.0.lock.unlock() }
    }
}

impl List {
    /// An empty state. The list must always be used with the same `environ`.
    pub const fn new() -> List {
        let state = State { mine: null_mut(), reached: null_mut(), newest: None };
        List { lock: RawMutex::new(), state: UnsafeCell::new(state) }
    }

    /// The lock that serialises updates, for `fork`.
    pub fn lock(&self) -> &RawMutex {
        &self.lock
    }

    fn hold(&self) -> Held<'_> {
        self.lock.lock();
        Held(self)
    }

    /// Adds `entry`, `NAME=VALUE`. With `replace` it takes the place of the first entry of its name; without
    /// it an existing entry of the name stays.
    ///
    /// # Errors
    /// No memory for a longer list; nothing is changed.
    ///
    /// # Safety
    /// As for [`find`]; `entry` is a C string with a `=` that does not change while it is in the list or a
    /// reader may be looking at it.
    pub unsafe fn put(
        &self,
        environ: &Environ,
        entry: *mut c_char,
        replace: bool,
    ) -> Result<(), OutOfMemory> {
        let (mut room, mut alone) = (None, false);
        loop {
            // SAFETY: the caller's promise.
            let done = unsafe { self.hold().put(environ, entry, replace, &mut room, alone) };
            let Err(wanted) = done else { return Ok(()) };
            // Without the lock, since both may call malloc.
            if !alone && sys::alone() {
                alone = true;
            } else {
                room = Some(Block::new(wanted)?);
            }
        }
    }

    /// Removes all entries of `name`.
    ///
    /// # Safety
    /// As for [`find`].
    pub unsafe fn remove(&self, environ: &Environ, name: *const c_char) {
        let mut state = self.hold();
        state.look(environ);
        // SAFETY: the caller's promise.
        unsafe {
            while let Some(at) = position(state.mine, |entry| !value_of(entry, name).is_null()) {
                state.take_out(environ, at);
            }
        }
    }

    /// Removes all entries: `environ` is null afterwards.
    pub fn clear(&self, environ: &Environ) {
        let mut state = self.hold();
        (state.mine, state.reached) = (null_mut(), null_mut());
        environ.store(null_mut(), Release);
    }
}

impl Default for List {
    fn default() -> List {
        List::new()
    }
}

impl State {
    /// Checks whether the program wrote `environ`.
    fn look(&mut self, environ: &Environ) {
        let now = environ.load(Acquire);
        if now != self.mine {
            (self.mine, self.reached) = (now, now);
        }
    }

    /// Adds or replaces an entry. Returns the number of slots that a new list needs, if `room` has none.
    unsafe fn put(
        &mut self,
        environ: &Environ,
        entry: *mut c_char,
        replace: bool,
        room: &mut Option<Box<Block>>,
        alone: bool,
    ) -> Result<(), usize> {
        self.look(environ);
        // SAFETY: the list is one, and what is below its beginning in a block of ours is ours.
        unsafe {
            if let Some(at) = position(self.mine, |other| same_name(other, entry)) {
                if replace {
                    self.replace(at, entry);
                }
                return Ok(());
            }
            if !self.newest.as_ref().is_some_and(|own| own.contains(self.mine) && own.slots != self.mine) {
                self.move_list(environ, room, alone)?;
            }
            let first = self.mine.sub(1);
            (*first).store(entry, Release);
            self.publish(environ, first);
        }
        Ok(())
    }

    /// Moves the list to a place with room before it.
    unsafe fn move_list(
        &mut self,
        environ: &Environ,
        room: &mut Option<Box<Block>>,
        alone: bool,
    ) -> Result<(), usize> {
        // SAFETY: the list is one.
        let count = unsafe { length(self.mine) };
        // Into the newest block, if no reader can miss an entry by it. Readers that are still in it may miss
        // every entry if all were removed, a list slides up past no reader, and without other threads there
        // are no readers.
        let again = self
            .newest
            .as_ref()
            .is_some_and(|own| own.length >= count + 2 && (count == 0 || alone || own.contains(self.mine)));
        if !again {
            let wanted = (2 * (count + 2)).max(FEWEST);
            if room.as_ref().is_none_or(|room| room.length < wanted) {
                return Err(wanted);
            }
            if let Some(mut new) = room.take() {
                new.dropped = self.newest.take();
                self.newest = Some(new);
            }
        }
        let Some(own) = &self.newest else { return Err(FEWEST) };
        // SAFETY: the block has that many slots and one more; the last entry is copied first, so that where source and
        // target overlap no entry is missing at any moment.
        unsafe {
            let last = own.end().sub(1);
            (*last).store(null_mut(), Release);
            for back in 1..=count {
                (*last.sub(back)).store((*self.mine.add(count - back)).load(Acquire), Release);
            }
            let first = last.sub(count);
            self.reached = first;
            self.publish(environ, first);
        }
        Ok(())
    }

    unsafe fn take_out(&mut self, environ: &Environ, at: usize) {
        let list = self.mine;
        // SAFETY: slots up to `at` hold entries.
        unsafe {
            let first = (*list).load(Acquire);
            let namesake = position(list.add(1), |entry| same_name(entry, first));
            if namesake.is_some_and(|after| after + 1 < at) {
                for slot in (1..=at).rev() {
                    (*list.add(slot)).store((*list.add(slot - 1)).load(Acquire), Release);
                }
            } else {
                (*list.add(at)).store(first, Release);
            }
            self.publish(environ, list.add(1));
            self.fill();
        }
    }

    unsafe fn replace(&self, at: usize, entry: *mut c_char) {
        // SAFETY: slots of the list.
        unsafe {
            let slot = self.mine.add(at);
            let old = (*slot).load(Acquire);
            if old == entry {
                return;
            }
            (*slot).store(entry, Release);
            // The copies that `fill` made, if the program went back to the old beginning of its list.
            let mut next = at;
            while let Some(after) = position(self.mine.add(next), |other| other == old) {
                next += after;
                (*self.mine.add(next)).store(entry, Release);
            }
            if at == 0 {
                self.fill();
            }
        }
    }

    fn publish(&mut self, environ: &Environ, list: *mut Slot) {
        self.mine = list;
        self.reached = self.reached.min(list);
        environ.store(list, Release);
    }

    /// Hides removed entries from code that kept an older `environ` (main's `envp`): the slots below the list
    /// become copies of its first entry.
    unsafe fn fill(&self) {
        let mut slot = self.reached;
        while slot < self.mine {
            // SAFETY: slots of the list's array.
            unsafe {
                (*slot).store((*self.mine).load(Acquire), Release);
                slot = slot.add(1);
            }
        }
    }
}

/// Whether two entries name the same variable.
///
/// # Safety
/// Both are C strings.
unsafe fn same_name(one: *const c_char, other: *const c_char) -> bool {
    let mut at = 0;
    // SAFETY: up to the first difference or the end of both.
    unsafe {
        loop {
            match *one.add(at) {
                byte if byte == 0 || byte != *other.add(at) => return false,
                EQUALS => return true,
                _ => at += 1,
            }
        }
    }
}

/// The number of entries of a list.
///
/// # Safety
/// As for [`position`].
unsafe fn length(list: *mut Slot) -> usize {
    let mut count = 0;
    // SAFETY: counts them all.
    unsafe {
        position(list, |_| {
            count += 1;
            false
        })
    };
    count
}

/// The first entry of a list for which `is` holds.
///
/// # Safety
/// The list is null or slots up to a null one.
unsafe fn position(list: *mut Slot, mut is: impl FnMut(*mut c_char) -> bool) -> Option<usize> {
    if list.is_null() {
        return None;
    }
    let mut at = 0;
    loop {
        // SAFETY: goes no further than a null slot.
        let entry = unsafe { (*list.add(at)).load(Acquire) };
        if entry.is_null() {
            return None;
        }
        if is(entry) {
            return Some(at);
        }
        at += 1;
    }
}
