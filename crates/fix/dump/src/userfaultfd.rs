//! The calls and events of `linux/userfaultfd.h`.

use crate::sys::{ior, iowr};

const TYPE: u8 = 0xaa;
pub(crate) const UFFD_API: u64 = 0xaa;
pub(crate) const UFFDIO_API: u64 = iowr(TYPE, 0x3f, 24);
pub(crate) const UFFDIO_REGISTER: u64 = iowr(TYPE, 0, 32);
pub(crate) const UFFDIO_UNREGISTER: u64 = ior(TYPE, 1, 16);
pub(crate) const UFFDIO_WAKE: u64 = ior(TYPE, 2, 16);
pub(crate) const UFFDIO_ZEROPAGE: u64 = iowr(TYPE, 4, 32);
pub(crate) const UFFDIO_WRITEPROTECT: u64 = iowr(TYPE, 6, 24);
pub(crate) const REGISTER_MISSING: u64 = 1;
pub(crate) const REGISTER_WP: u64 = 2;
pub(crate) const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
pub(crate) const FEATURE_EVENT_REMAP: u64 = 1 << 2;
pub(crate) const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
pub(crate) const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
pub(crate) const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
pub(crate) const EVENT_PAGEFAULT: u8 = 0x12;
pub(crate) const EVENT_REMAP: u8 = 0x14;
pub(crate) const EVENT_REMOVE: u8 = 0x15;
pub(crate) const EVENT_UNMAP: u8 = 0x16;
pub(crate) const PAGEFAULT_WP: u64 = 2;

/// Flags of the call that is injected: O_CLOEXEC | O_NONBLOCK.
pub(crate) const FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
