//! What the environment says, read once when the library is loaded.

use libncpu::populate::Helpers;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Bytes from which on helpers help, unless told otherwise.
const LEAST: usize = 64 << 20;

/// Until it is read nothing is large enough.
pub static SETTINGS: Settings = Settings {
    least: AtomicUsize::new(usize::MAX),
    helpers: AtomicUsize::new(0),
    segments: AtomicBool::new(false),
};

/// What was read.
pub struct Settings {
    least: AtomicUsize,
    helpers: AtomicUsize,
    segments: AtomicBool,
}

impl Settings {
    /// The helpers for memory of so many bytes, if it is to have any.
    #[inline]
    pub fn helpers(&self, bytes: usize) -> Option<Helpers> {
        if bytes < self.least.load(Relaxed) {
            return None;
        }
        match self.helpers.load(Relaxed) {
            0 => None,
            most => Some(Helpers(most)),
        }
    }

    /// Bytes from which on helpers help.
    pub fn least(&self) -> usize {
        self.least.load(Relaxed)
    }

    /// Whether `shmat` is to make pages.
    pub fn makes_segments(&self) -> bool {
        self.segments.load(Relaxed)
    }

    /// No helpers from now on.
    pub fn end(&self) {
        self.helpers.store(0, Relaxed);
        self.least.store(usize::MAX, Relaxed);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = load;

extern "C" fn load() {
    let helpers = number(c"NCPU_POPULATE_HELPERS").unwrap_or(Helpers::default().0);
    if helpers == 0 {
        return;
    }
    // Read now, while memory may be allocated.
    libncpu::populate::prepare();
    SETTINGS.segments.store(number(c"NCPU_POPULATE_SHMAT") == Some(1), Relaxed);
    SETTINGS.helpers.store(helpers, Relaxed);
    SETTINGS.least.store(number(c"NCPU_POPULATE_MIN").unwrap_or(LEAST).max(1), Relaxed);
}

/// A variable's number, with k, m, g or t for powers of 1024. One that is none is told, and not used.
fn number(name: &CStr) -> Option<usize> {
    // SAFETY: a C string; at load no thread changes the environment.
    let value = unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        if value.is_null() { None } else { Some(CStr::from_ptr(value)) }
    }?;
    let parsed = parse(value.to_bytes());
    if parsed.is_none() {
        for words in [name.to_bytes(), b"=", value.to_bytes(), b": give a number, as in 4 or 64m; not used\n"]
        {
            // SAFETY: writes those bytes. Who has no standard error isn't told.
            unsafe { libc::write(2, words.as_ptr().cast(), words.len()) };
        }
    }
    parsed
}

fn parse(text: &[u8]) -> Option<usize> {
    let (last, rest) = text.split_last()?;
    let (digits, shift) = match last.to_ascii_lowercase() {
        b'k' => (rest, 10),
        b'm' => (rest, 20),
        b'g' => (rest, 30),
        b't' => (rest, 40),
        _ => (text, 0),
    };
    std::str::from_utf8(digits).ok()?.parse::<usize>().ok()?.checked_mul(1 << shift)
}
