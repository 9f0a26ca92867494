//! A magazine, and stacks of them.

use crate::ranges::objects::Object;
use std::alloc::Layout;

/// Its objects follow it in memory.
#[repr(C)]
pub(super) struct Magazine {
    pub(super) next: *mut Magazine,
    pub(super) capacity: u32,
    pub(super) rounds: u32,
}

/// Callers own the magazine exclusively. Pointers are not null, except where null is mentioned, and not
/// freed.
#[allow(clippy::undocumented_unsafe_blocks)] // The comment above is each block's reason.
impl Magazine {
    fn layout(capacity: u32) -> Layout {
        let bytes = size_of::<Magazine>() + capacity as usize * size_of::<*const Object>();
        // At most a few thousand bytes.
        unsafe { Layout::from_size_align_unchecked(bytes, align_of::<Magazine>()) }
    }

    /// An empty magazine, or null.
    pub(super) fn new(capacity: u32) -> *mut Magazine {
        unsafe {
            let new = std::alloc::alloc(Magazine::layout(capacity)).cast::<Magazine>();
            if !new.is_null() {
                new.write(Magazine { next: std::ptr::null_mut(), capacity, rounds: 0 });
            }
            new
        }
    }

    /// Frees an empty magazine.
    pub(super) unsafe fn discard(magazine: *mut Magazine) {
        unsafe { std::alloc::dealloc(magazine.cast(), Magazine::layout((*magazine).capacity)) }
    }

    #[inline(always)]
    unsafe fn place(magazine: *mut Magazine, round: u32) -> *mut *const Object {
        unsafe { magazine.add(1).cast::<*const Object>().add(round as usize) }
    }

    /// Whether it is not null and holds an object.
    #[inline(always)]
    pub(super) unsafe fn has_rounds(magazine: *mut Magazine) -> bool {
        !magazine.is_null() && unsafe { (*magazine).rounds > 0 }
    }

    /// Whether it is not null and has room.
    #[inline(always)]
    pub(super) unsafe fn has_room(magazine: *mut Magazine) -> bool {
        !magazine.is_null() && unsafe { (*magazine).rounds < (*magazine).capacity }
    }

    #[inline(always)]
    pub(super) unsafe fn push(magazine: *mut Magazine, object: &Object) {
        unsafe {
            Magazine::place(magazine, (*magazine).rounds).write(object);
            (*magazine).rounds += 1;
        }
    }

    #[inline(always)]
    pub(super) unsafe fn pop<'a>(magazine: *mut Magazine) -> &'a Object {
        unsafe {
            (*magazine).rounds -= 1;
            &**Magazine::place(magazine, (*magazine).rounds)
        }
    }

    /// Empties a list of magazines and frees them.
    pub(super) unsafe fn unload(mut list: *mut Magazine, visit: &mut impl FnMut(&'static Object)) {
        while !list.is_null() {
            unsafe {
                while Magazine::has_rounds(list) {
                    visit(Magazine::pop(list));
                }
                let next = (*list).next;
                Magazine::discard(list);
                list = next;
            }
        }
    }
}

/// A stack of magazines.
pub(super) struct List {
    pub(super) head: *mut Magazine,
    pub(super) length: usize,
    /// The lowest length since the interval began.
    pub(super) least: usize,
}

impl List {
    pub(super) const EMPTY: List = List { head: std::ptr::null_mut(), length: 0, least: 0 };

    /// The magazine belongs to the caller, and is not null.
    pub(super) unsafe fn push(&mut self, magazine: *mut Magazine) {
        // SAFETY: as above.
        unsafe { (*magazine).next = self.head };
        self.head = magazine;
        self.length += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> *mut Magazine {
        let magazine = self.head;
        if !magazine.is_null() {
            // SAFETY: a list of magazines.
            self.head = unsafe { (*magazine).next };
            self.length -= 1;
            self.least = self.least.min(self.length);
        }
        magazine
    }
}
