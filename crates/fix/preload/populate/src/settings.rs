//! Settings from the environment, read once when the library is loaded.

use libncpu::populate::Helpers;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The default least number of bytes for which helpers are used.
const LEAST: usize = 64 << 20;

/// Until it is read no memory is large enough.
pub static SETTINGS: Settings = Settings {
    least: AtomicUsize::new(usize::MAX),
    helpers: AtomicUsize::new(0),
    segments: AtomicBool::new(false),
};

/// The settings.
pub struct Settings {
    least: AtomicUsize,
    helpers: AtomicUsize,
    segments: AtomicBool,
}

impl Settings {
    /// The helpers for memory of `bytes` bytes, if any are to be used.
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

    /// The least number of bytes for which helpers are used.
    pub fn least(&self) -> usize {
        self.least.load(Relaxed)
    }

    /// Whether `shmat` makes pages.
    pub fn makes_segments(&self) -> bool {
        self.segments.load(Relaxed)
    }

    /// Stops the use of helpers.
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
    // Read here, where memory may be allocated.
    libncpu::populate::prepare();
    SETTINGS.segments.store(number(c"NCPU_POPULATE_SHMAT") == Some(1), Relaxed);
    SETTINGS.helpers.store(helpers, Relaxed);
    SETTINGS.least.store(number(c"NCPU_POPULATE_MIN").unwrap_or(LEAST).max(1), Relaxed);
}

/// A variable's number, with k, m, g or t for powers of 1024. An invalid value is reported, and ignored.
fn number(name: &CStr) -> Option<usize> {
    // SAFETY: a C string; at load no thread changes the environment.
    let value = unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        if value.is_null() { None } else { Some(CStr::from_ptr(value)) }
    }?;
    let parsed = parse(value.to_bytes());
    if parsed.is_none() {
        for words in [name.to_bytes(), b"=", value.to_bytes(), b": not a number like 4 or 64m; ignored\n"] {
            // SAFETY: writes these bytes. A process without standard error gets no report.
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
