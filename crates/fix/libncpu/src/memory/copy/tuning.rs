//! Which routine copies which sizes: by the processor and its caches, or as configured.

use super::native::{self, ROUTINES};
use crate::sys::kernel;
use crate::sys::{AtomicPtr, AtomicUsize, Instant, Ordering::Relaxed};
use libc::c_int;
use std::ffi::CStr;
use std::fmt;
use std::io::Write;

pub(super) type CopyFn = unsafe fn(*mut u8, *const u8, usize);
pub(super) type ZeroFn = unsafe fn(*mut u8, usize);
/// Returns 0, as the C interface does, so that the copy can be the C function's tail call.
pub(super) type CopyBySize = unsafe extern "C" fn(*mut u8, *const u8, usize) -> c_int;
pub(super) type ZeroBySize = unsafe extern "C" fn(*mut u8, usize) -> c_int;

/// A way to copy and to clear blocks that this processor has.
pub struct Routine {
    pub(super) name: &'static CStr,
    /// Whether it suits blocks of all sizes, so that a [`Tuning`] may name it.
    pub(super) vectors: bool,
    pub(super) has: fn() -> bool,
    pub(super) prefer: fn() -> bool,
    /// For more than `SMALL` bytes, by size as the thresholds say, with vectors of this width.
    pub(super) by_size: (CopyBySize, ZeroBySize),
    /// For more than `SMALL` bytes: this routine, whatever the thresholds say.
    pub(super) always: (CopyFn, ZeroFn),
    /// Its non-temporal form.
    pub(super) stream: (CopyFn, ZeroFn),
}

impl Routine {
    /// The routines that this processor supports, widest vectors first.
    pub fn all() -> impl Iterator<Item = &'static Routine> {
        ROUTINES.iter().filter(|routine| (routine.has)())
    }

    /// The routine of this name, if the processor supports it.
    pub fn find(name: &str) -> Option<&'static Routine> {
        Routine::all().find(|routine| routine.name() == name)
    }

    /// `avx512`, `avx2`, `sse2`, `neon`: vectors; the same with `-stream`: non-temporal; `rep`: `rep movsb`.
    pub fn name(&self) -> &'static str {
        self.name.to_str().unwrap_or_default()
    }

    /// The name for C.
    pub fn c_name(&self) -> &'static CStr {
        self.name
    }

    /// Copies by this routine at every size above 64 bytes; smaller blocks have one routine. For tests and
    /// measurements.
    ///
    /// # Safety
    /// As for [`copy`](super::copy).
    pub unsafe fn copy(&self, to: *mut u8, from: *const u8, length: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if length <= super::SMALL {
                super::small::copy(to, from, length);
            } else {
                (self.always.0)(to, from, length);
            }
        }
    }

    /// As [`Routine::copy`], for zero.
    ///
    /// # Safety
    /// As for [`fill_zero`](super::fill_zero).
    pub unsafe fn zero(&self, to: *mut u8, length: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if length <= super::SMALL {
                super::small::zero(to, length);
            } else {
                (self.always.1)(to, length);
            }
        }
    }
}

impl fmt::Debug for Routine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The function that [`copy`](super::copy) calls for blocks that are not small. `first_copy` until one is
/// chosen.
pub(super) static COPY: AtomicPtr<()> = AtomicPtr::new(first_copy as CopyBySize as *mut ());
/// The function that [`fill_zero`](super::fill_zero) calls.
pub(super) static ZERO: AtomicPtr<()> = AtomicPtr::new(first_zero as ZeroBySize as *mut ());
/// The size from which copies use more than plain vectors. A thread that still sees the initial value copies
/// by vectors, which is right for every size.
pub(super) static COPY_BULK: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The size from which copies bypass the caches.
pub(super) static COPY_STREAM: AtomicUsize = AtomicUsize::new(usize::MAX);
pub(super) static ZERO_BULK: AtomicUsize = AtomicUsize::new(usize::MAX);
pub(super) static ZERO_STREAM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Place in `ROUTINES`.
static VECTORS: AtomicUsize = AtomicUsize::new(usize::MAX);

#[cold]
unsafe extern "C" fn first_copy(to: *mut u8, from: *const u8, n: usize) -> c_int {
    let tuning = choose();
    // SAFETY: the caller's promise.
    unsafe { (tuning.vectors.by_size.0)(to, from, n) }
}

#[cold]
unsafe extern "C" fn first_zero(to: *mut u8, n: usize) -> c_int {
    let tuning = choose();
    // SAFETY: the caller's promise.
    unsafe { (tuning.vectors.by_size.1)(to, n) }
}

/// The routine for each size, in bytes; `usize::MAX` is never.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Vectors of blocks that are neither small nor large.
    pub vectors: &'static Routine,
    /// The size from which copies use `rep movsb`, if the processor has it.
    pub rep: usize,
    /// The size from which copies bypass the caches.
    pub stream: usize,
    /// As `rep`, for zero.
    pub zero_rep: usize,
    /// As `stream`, for zero.
    pub zero_stream: usize,
}

/// The blocks for which `rep movsb` and `rep stosb` beat vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(super) enum Rep {
    /// No block.
    Never,
    /// Blocks from the size of the first-level cache on.
    Intel,
    /// Copies that do not fit into the first-level cache, and zero that does not fit into the second-level
    /// one.
    BeyondCaches { copy: bool, zero: bool },
    /// Not known for this processor.
    Unknown,
}

/// The time limit of `measure`.
const MEASURE_NS: u64 = 600_000;

/// Measures whether `rep movsb` beats vectors. Takes less than a millisecond, most of it for making pages.
/// Without memory the answer is that it does not. Neither allocates from the heap nor locks, like [`choose`].
fn measure(vectors: &Routine, l1: usize, l2: usize) -> Rep {
    let none = Rep::BeyondCaches { copy: false, zero: false };
    let Some(rep) = Routine::find("rep") else { return none };
    let start = Instant::now();
    let (copied, cleared) = (2 * l1, l2.clamp(2 * l1, 1 << 20));
    let length = (2 * copied + 4096).max(cleared) + 64;
    let Ok(at) = kernel::map(length) else { return none };
    let at: *mut u8 = std::ptr::with_exposed_provenance_mut(at);
    let mut best = [[u64::MAX; 2]; 2];
    let mut sample = |what: usize, which: usize, run: &dyn Fn()| {
        let begin = Instant::now();
        run();
        best[what][which] = best[what][which].min(Instant::now().since(begin));
    };
    // SAFETY: all of it lies in the memory just mapped, source and target apart.
    unsafe {
        vectors.zero(at, length);
        for round in 0..8 {
            for (which, routine) in [vectors, rep].into_iter().enumerate() {
                // Both at the start of a line, or one of them not: the common kinds of copies.
                sample(0, which, &|| {
                    routine.copy(at.add(copied + 4096), at, copied);
                    routine.copy(at.add(copied + 4096), at.add(1), copied);
                    routine.copy(at.add(copied + 4097), at, copied);
                });
                sample(1, which, &|| routine.zero(at, cleared));
            }
            if round > 1 && Instant::now().since(start) > MEASURE_NS {
                break;
            }
        }
        // No reference to the memory is left; if unmapping fails it stays mapped.
        let _ = kernel::unmap(at.expose_provenance(), length);
    }
    // A small gain does not justify another routine.
    let [copy, zero] = best.map(|[vectors, rep]| rep + rep / 20 < vectors);
    Rep::BeyondCaches { copy, zero }
}

/// An invalid part of `NCPU_COPY`.
#[derive(Debug, PartialEq, Eq)]
struct Wrong<'a>(&'a str, &'static str);

impl Tuning {
    /// The best tuning for this processor.
    pub fn of_machine() -> Tuning {
        let [l1, l2, last] = sizes(native::caches());
        let vectors = ROUTINES.iter().find(|routine| routine.vectors && (routine.prefer)());
        let vectors = vectors.unwrap_or(&ROUTINES[0]);
        let rep = match native::rep() {
            Rep::Unknown => measure(vectors, l1, l2),
            known => known,
        };
        if let Rep::BeyondCaches { copy, zero } = rep {
            let (stream, never) = (last / 4, usize::MAX);
            return Tuning {
                vectors,
                // Source and target together must fit into the first-level cache.
                rep: if copy { l1 * 2 / 3 } else { never },
                stream,
                zero_rep: if zero { l2 } else { never },
                zero_stream: if zero { last } else { stream },
            };
        }
        let rep = rep == Rep::Intel;
        // A block that fills a quarter of the last-level cache will hardly be read from there as a whole.
        // Intel's large last-level caches are no faster than memory for one core, and a virtual machine
        // shares them with others. So there the threshold is at most twice the core's own cache.
        let stream = if rep { (last / 4).min(2 * l2) } else { last / 4 };
        // `rep stosb` does not read the lines that it overwrites either, and leaves them in the cache.
        let zero_stream = if rep { (last / 4).min(16 * l2) } else { last / 4 };
        Tuning {
            vectors,
            rep: if rep { l1 } else { usize::MAX },
            stream,
            zero_rep: if rep { l1 } else { usize::MAX },
            zero_stream,
        }
    }

    /// As `of_machine` for a processor that was never measured, and the nanoseconds that the measurement
    /// took. For tests and measurements.
    #[doc(hidden)]
    pub fn measured() -> (String, u64) {
        let [l1, l2, _] = sizes(native::caches());
        let vectors = Tuning::of_machine().vectors;
        let start = Instant::now();
        let rep = measure(vectors, l1, l2);
        (format!("{rep:?}"), Instant::now().since(start))
    }

    /// The tuning in force: the machine's, changed by the environment variable `NCPU_COPY`, or the one last
    /// [`set`](Tuning::set).
    pub fn current() -> Tuning {
        match ROUTINES.get(VECTORS.load(Relaxed)) {
            None => choose(),
            Some(vectors) => Tuning {
                vectors,
                rep: if COPY_BULK.load(Relaxed) < COPY_STREAM.load(Relaxed) {
                    COPY_BULK.load(Relaxed)
                } else {
                    usize::MAX
                },
                stream: COPY_STREAM.load(Relaxed),
                zero_rep: if ZERO_BULK.load(Relaxed) < ZERO_STREAM.load(Relaxed) {
                    ZERO_BULK.load(Relaxed)
                } else {
                    usize::MAX
                },
                zero_stream: ZERO_STREAM.load(Relaxed),
            },
        }
    }

    /// Applies this tuning to the whole process. Copies that run meanwhile use the old one, the new one or a
    /// mixture, and are correct. A `rep` threshold makes copies slow on a processor with a slow
    /// slow.
    pub fn set(self) {
        COPY_BULK.store(self.rep.min(self.stream), Relaxed);
        COPY_STREAM.store(self.stream, Relaxed);
        ZERO_BULK.store(self.zero_rep.min(self.zero_stream), Relaxed);
        ZERO_STREAM.store(self.zero_stream, Relaxed);
        let place = ROUTINES.iter().position(|routine| std::ptr::eq(routine, self.vectors));
        VECTORS.store(place.unwrap_or(0), Relaxed);
        COPY.store(self.vectors.by_size.0 as *mut (), Relaxed);
        ZERO.store(self.vectors.by_size.1 as *mut (), Relaxed);
    }

    /// Changes the tuning by text like `vectors=avx2,rep=16k,stream=never`. Applies all valid parts, and
    /// returns the first invalid one.
    fn change<'a>(&mut self, text: &'a str) -> Result<(), Wrong<'a>> {
        let mut all = Ok(());
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let done = match part.split_once('=') {
                Some(("vectors", name)) => match Routine::find(name) {
                    Some(routine) if routine.vectors => {
                        self.vectors = routine;
                        Ok(())
                    }
                    _ => Err(Wrong(part, "unknown vectors, or not supported by this processor")),
                },
                Some((name, value)) => match (self.threshold(name), bytes(value)) {
                    (None, _) => Err(Wrong(
                        part,
                        "unknown name; expected vectors, rep, stream, zero-rep or zero-stream",
                    )),
                    (_, None) => {
                        Err(Wrong(part, "invalid size; expected bytes like 4096, 16k, 8m, or never"))
                    }
                    (Some(threshold), Some(bytes)) => {
                        *threshold = bytes;
                        Ok(())
                    }
                },
                None => Err(Wrong(part, "expected NAME=VALUE")),
            };
            all = all.and(done);
        }
        all
    }

    fn threshold(&mut self, name: &str) -> Option<&mut usize> {
        match name {
            "rep" => Some(&mut self.rep),
            "stream" => Some(&mut self.stream),
            "zero-rep" => Some(&mut self.zero_rep),
            "zero-stream" => Some(&mut self.zero_stream),
            _ => None,
        }
    }
}

/// In the form that `NCPU_COPY` takes.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vectors={}", self.vectors.name())?;
        let thresholds = [
            ("rep", self.rep),
            ("stream", self.stream),
            ("zero-rep", self.zero_rep),
            ("zero-stream", self.zero_stream),
        ];
        for (name, value) in thresholds {
            match value {
                usize::MAX => write!(f, ",{name}=never")?,
                bytes => write!(f, ",{name}={bytes}")?,
            }
        }
        Ok(())
    }
}

/// Chooses for this machine. Several threads may do so at once, with the same result. Neither allocates nor
/// locks: the first copy of a process may be in a signal handler or an allocator.
#[cold]
fn choose() -> Tuning {
    let mut tuning = Tuning::of_machine();
    // SAFETY: a C string of the process, which stays valid until some thread calls setenv for this name.
    let setting = unsafe {
        let value = libc::getenv(c"NCPU_COPY".as_ptr());
        // Ignored in set-uid programs, whose caller must not control how they work.
        (!value.is_null() && libc::getauxval(libc::AT_SECURE) == 0).then(|| CStr::from_ptr(value))
    };
    if let Some(setting) = setting {
        let wrong = match setting.to_str() {
            Ok(text) => tuning.change(text).err(),
            Err(_) => Some(Wrong("it", "not UTF-8")),
        };
        if let Some(wrong) = wrong {
            complain(wrong);
        }
    }
    tuning.set();
    tuning
}

/// Writes one line to standard error, from a buffer on the stack.
fn complain(Wrong(part, why): Wrong<'_>) {
    let mut line = [0u8; 240];
    let room = line.len();
    let mut left = &mut line[..room - 1];
    // Text that does not fit is cut off.
    let _ = write!(left, "libncpu: NCPU_COPY: {part:?} is ignored: {why}");
    let used = room - 1 - left.len();
    line[used] = b'\n';
    // SAFETY: this many bytes are initialised. A failed write to standard error is ignored, because there is
    // nowhere to report it.
    unsafe { libc::write(2, line.as_ptr().cast(), used + 1) };
}

/// Parses bytes like `4096`, `16k`, `8M`, `1g`, `never`.
fn bytes(text: &str) -> Option<usize> {
    if text == "never" {
        return Some(usize::MAX);
    }
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        b'g' | b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// Caches of levels 1 to 3 in bytes. An unknown size counts as small, so that no block is kept for a cache
/// that may not exist. Without a third level the second is the last.
fn sizes([l1, l2, l3]: [usize; 3]) -> [usize; 3] {
    let l1 = if l1 == 0 { 32 << 10 } else { l1 };
    let l2 = if l2 == 0 { 512 << 10 } else { l2.max(l1) };
    [l1, l2, if l3 == 0 { 4 * l2 } else { l3.max(l2) }]
}

/// Sizes in bytes of the data caches by level, from a directory like `/sys/devices/system/cpu/cpu0/cache`; 0
/// if unknown. Allocates nothing.
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))] // x86-64 uses CPUID.
pub(super) fn caches_of(directory: &str) -> [usize; 3] {
    let mut sizes = [0; 3];
    for index in 0..16 {
        let (mut level, mut kind, mut size) = ([0; 32], [0; 32], [0; 32]);
        let Some(level) = read(directory, index, "level", &mut level) else { break };
        let level = level.parse().unwrap_or(0);
        let data = read(directory, index, "type", &mut kind).is_some_and(|kind| kind != "Instruction");
        let size = read(directory, index, "size", &mut size).and_then(bytes);
        if let (true, 1..=3, Some(size)) = (data, level, size) {
            sizes[level - 1] = size;
        }
    }
    sizes
}

/// The content of a file of a cache's directory.
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
fn read<'a>(directory: &str, index: usize, name: &str, text: &'a mut [u8; 32]) -> Option<&'a str> {
    let mut path = [0u8; 128];
    let room = path.len();
    // The last byte stays 0.
    let mut left = &mut path[..room - 1];
    write!(left, "{directory}/index{index}/{name}").ok()?;
    // SAFETY: a C string, and this many writable bytes.
    let length = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    std::str::from_utf8(text.get(..usize::try_from(length).ok()?)?).ok().map(str::trim)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes() {
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("16k"), Some(16 << 10));
        assert_eq!(bytes("8M"), Some(8 << 20));
        assert_eq!(bytes("never"), Some(usize::MAX));
        for wrong in ["", "k", "-1", "1.5m", "8mb", "99999999999g"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn text_changes_it_and_tells_what_is_wrong() {
        let mut tuning = Tuning::of_machine();
        let name = Routine::all().filter(|routine| routine.vectors).last().expect("vectors").name();
        let text = format!("vectors={name},rep=never,stream=1m,zero-rep=8k,zero-stream=2m");
        assert_eq!(tuning.change(&text), Ok(()));
        assert_eq!(
            tuning.to_string(),
            format!("vectors={name},rep=never,stream=1048576,zero-rep=8192,zero-stream=2097152")
        );
        assert_eq!(tuning.change(" , "), Ok(()));
        // Valid parts apply beside invalid ones.
        assert_eq!(tuning.change("rap=1,rep=2").map_err(|wrong| wrong.0), Err("rap=1"));
        assert_eq!(tuning.rep, 2);
        for wrong in ["vectors=mmx", "vectors=rep", "rep", "rep=x", "stream=", "=3"] {
            assert_eq!(tuning.change(wrong).map_err(|wrong| wrong.0), Err(wrong));
        }
    }

    #[test]
    fn thresholds_are_sensible_whatever_the_caches() {
        for caches in [[0; 3], [48 << 10, 2 << 20, 300 << 20], [32 << 10, 1 << 20, 0], [1, 1, 1]] {
            let [l1, l2, last] = sizes(caches);
            assert!(l1 <= l2 && l2 <= last && l1 > 0, "{caches:?}");
        }
        let tuning = Tuning::of_machine();
        assert!(tuning.stream >= 64 << 10, "{tuning}");
        assert!(tuning.vectors.vectors && (tuning.vectors.has)());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn measuring_ends_and_gives_its_memory_back() {
        let mapped = || std::fs::read_to_string("/proc/self/maps").expect("maps").lines().count();
        let vectors = Tuning::of_machine().vectors;
        let before = mapped();
        for _ in 0..200 {
            assert!(matches!(measure(vectors, 48 << 10, 1 << 20), Rep::BeyondCaches { .. }));
        }
        assert!(mapped() < before + 100, "200 times memory that stays mapped");
    }

    #[test]
    fn caches_are_read_from_a_tree() {
        let root = std::env::temp_dir().join(format!("libncpu-caches-{}", std::process::id()));
        let caches = [
            ("1", "Data", "64K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "1024K"),
            ("3", "Unified", "32768K"),
            ("x", "Unified", "1K"),
        ];
        for (index, (level, kind, size)) in caches.into_iter().enumerate() {
            let cache = root.join(format!("index{index}"));
            std::fs::create_dir_all(&cache).expect("directory");
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                std::fs::write(cache.join(name), format!("{text}\n")).expect("file");
            }
        }
        let found = caches_of(root.to_str().expect("a plain path"));
        std::fs::remove_dir_all(&root).expect("clean up");
        assert_eq!(found, [64 << 10, 1 << 20, 32 << 20]);
        assert_eq!(caches_of("/nowhere"), [0; 3]);
        assert_eq!(caches_of(&"long".repeat(50)), [0; 3]);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_processor_tells_what_the_kernel_does() {
        let told = caches_of("/sys/devices/system/cpu/cpu0/cache");
        for (own, kernel) in native::caches().into_iter().zip(told) {
            // A container may hide the tree, a hypervisor the leaf.
            assert!(own == kernel || own == 0 || kernel == 0, "{own} {kernel}");
        }
    }
}
