//! What the two processes say to each other.

use std::mem::size_of;

/// Bytes read at once.
pub(super) const CHUNK: usize = 64 << 10;
/// Bytes of a path.
pub(super) const MAX_PATH: usize = 4096;

/// Readers at once, of which all but one were killed and wait for a file system that does not answer. With as many, nothing is
/// read.
pub(super) const MAX_READERS: usize = 8;
/// Orders a reader to be started, whose end of the socket comes with it; any other number is of one that is to be killed.
pub(super) const START: i32 = 0;

/// Reads a part of the file whose descriptor comes with the request.
pub(super) const READ: u32 = 1;
/// Finds a regular file by its path.
pub(super) const OPEN: u32 = 2;
/// Opens a file of /proc to be read.
pub(super) const OPEN_PROC: u32 = 3;

/// A request; behind it a root and a path, each with a zero.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Request {
    pub kind: u32,
    pub length: u32,
    pub offset: u64,
    pub root: u16,
    pub path: u16,
    /// Whether a link in the last place is followed.
    pub follow: u32,
}

/// An answer; behind it the bytes read.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Answer {
    /// An error number of the system; 0: none.
    pub error: i32,
    pub length: u32,
    /// How long it took.
    pub ns: u64,
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    /// On disk, of 512 bytes.
    pub blocks: u64,
    /// `f_type` of the file system.
    pub system: u64,
    pub user: u32,
    /// Why its system calls are not filtered, an error number; 0: they are.
    pub unfiltered: i32,
}

pub(super) const REQUEST: usize = size_of::<Request>();
pub(super) const ANSWER: usize = size_of::<Answer>();
