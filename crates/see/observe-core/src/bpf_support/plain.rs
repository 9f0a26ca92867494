//! Plain values in the bytes that a BPF program wrote.

/// Types that may be read from any bytes of their size.
///
/// # Safety
/// Every bit pattern must be a valid value without references.
pub unsafe trait Plain: Copy + Default {}

// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: an array of plain values.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] where [T; N]: Default {}

/// The value at the start of `bytes`; `None` if they are too short.
pub fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: the length is checked, `T` is `Plain`, and the read is unaligned.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// A task's name up to its NUL. C's `char` is signed in skeletons, but unsigned in Rust on some processors.
pub fn comm<C: Copy + Into<i16>>(raw: &[C; 16]) -> String {
    let bytes: Vec<u8> = raw.iter().map(|&c| c.into() as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Fails to compile if a Rust type differs in layout from the BPF program's type in the skeleton. The members
/// are given as `ours = theirs`. Ours may omit what follows the named members, such as frames.
#[macro_export]
macro_rules! same_layout {
    ($ours:ty, $theirs:ty: $($our:ident = $their:ident),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<$ours>() <= size_of::<$theirs>());
            $(assert!(std::mem::offset_of!($ours, $our) == std::mem::offset_of!($theirs, $their));)+
        };
    };
}
pub use crate::same_layout;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_are_refused() {
        assert!(read::<u64>(&[0; 7]).is_none());
        assert_eq!(read::<u64>(&[0; 8]), Some(0));
    }

    #[test]
    fn names_may_hold_anything() {
        assert_eq!(
            (comm(b"make\0garbage_abc"), comm(&b"make\0garbage_abc".map(|b| b as i8))),
            ("make".into(), "make".into())
        );
        assert_eq!((comm(&[-1i8; 16]).chars().count(), comm(&[0xff_u8; 16]).chars().count()), (16, 16));
    }
}
