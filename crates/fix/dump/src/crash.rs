//! Dumps of processes that crash: the handler that the kernel starts (core_pattern), and its installation.
//!
//! The kernel sends the core through a pipe. Only its headers and notes are read, which contain all threads'
//! registers. The memory is read from the process itself by several threads. It outlives the process (see
//! `hold`), which ends, and can be restarted, before any compression.

mod copy;
mod socket;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant, SystemTime};

use ncpu_machine::process;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::budget::{available, room_of};
use crate::choose::choose;
use crate::hold::Hold;
use crate::layout::{Layout, Segment};
use crate::live::filled;
use crate::memory::Memory;
use crate::notes;
use crate::output::Output;
use crate::pagemap::{PageMap, join, size};
use crate::pipeline::{self, Job, Read as Origin};
use crate::seekable::{Codec, Trailer};
use crate::target;

use copy::Copy;
pub use socket::serve;

/// The file with the settings, and with the kernel's settings before the installation.
pub const SETTINGS: &str = "/var/lib/ncpu/crash.json";
const PATTERN: &str = "/proc/sys/kernel/core_pattern";
const PIPE_LIMIT: &str = "/proc/sys/kernel/core_pipe_limit";
/// The number of crashes that the kernel lets handlers hold at a time.
const AT_A_TIME: usize = 16;
/// The socket that kernels since Linux 6.17 connect to.
const SOCKET: &str = "/run/ncpu/crash.socket";
/// The times of the last dumps, in the directory of the dumps; also the lock for counting them.
const RECENT: &str = ".recent";
/// The number of memory ranges tried for one that is readable.
const READABLE: usize = 64;

/// Settings of the handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The directory of the dumps.
    pub directory: PathBuf,
    /// Dumps that are kept; older ones are removed. 0 keeps all.
    pub keep: u64,
    /// Dumps per minute; further crashes leave none.
    pub per_minute: u64,
    /// The most bytes of a dump.
    pub limit: u64,
    /// Bytes of the disk that stay free.
    pub spare: u64,
    /// Level of zstd.
    pub level: i32,
    /// Mappings to leave out.
    pub exclude: Vec<String>,
    /// The previous core_pattern.
    pub pattern_before: String,
    /// The previous core_pipe_limit.
    pub pipe_limit_before: String,
}

fn read(path: &str) -> Result<String, Error> {
    fs::read_to_string(path).map(|text| text.trim_end().to_owned()).map_err(|e| Error::file(path, e))
}

fn write(path: &str, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|e| Error::file(path, e))
}

fn saved() -> Option<Settings> {
    serde_json::from_slice(&fs::read(SETTINGS).ok()?).ok()
}

/// The pattern that starts `program`: process, signal, user, group, time, and whether its owner may have the
/// dump.
fn pattern(program: &Path) -> Result<String, Error> {
    let pattern = format!("|{} dump --crash %P %s %u %g %t %d", program.display());
    // The kernel cuts at 127 bytes, and splits words at spaces.
    if pattern.len() > 127 || program.display().to_string().contains([' ', '%']) {
        return Err(Error::Unsupported(format!(
            "{}: the kernel accepts names of up to 90 bytes without spaces and percent signs",
            program.display()
        )));
    }
    Ok(pattern)
}

/// The way in which a crash reaches us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The kernel starts the program for each crash, with a pipe.
    Pipe,
    /// The kernel connects to a socket, and a server starts the program.
    Socket,
}

/// Whether a core_pattern is our own.
fn is_ours(now: &str) -> bool {
    now.contains(" dump --crash ") || now == socket::pattern()
}

/// # Errors
/// We may not change the kernel's settings.
fn needs_root(what: &str) -> Result<(), Error> {
    // SAFETY: no arguments, cannot fail.
    match unsafe { libc::geteuid() } {
        0 => Ok(()),
        _ => Err(Error::Unsupported(format!("{what} needs root: it sets {PATTERN}"))),
    }
}

/// Makes the kernel start `program` for each process that crashes: by a socket if the kernel supports it and
/// `pipe` is false.
///
/// # Errors
/// Not root, or a file cannot be written.
pub fn install(program: &Path, settings: Settings, pipe: bool) -> Result<Way, Error> {
    needs_root("--install")?;
    let pattern = pattern(program)?;
    let mut settings = settings;
    // A repeated installation keeps the settings from before the first one.
    let (now, limit) = (read(PATTERN)?, read(PIPE_LIMIT)?);
    (settings.pattern_before, settings.pipe_limit_before) = match saved() {
        Some(before) if is_ours(&now) => (before.pattern_before, before.pipe_limit_before),
        _ => (now, limit),
    };
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    if let Some(parent) = Path::new(SETTINGS).parent() {
        builder.create(parent).map_err(|e| Error::file(parent, e))?;
    }
    // Owners read their own dumps, and cannot list those of others.
    builder.mode(0o711).create(&settings.directory).map_err(|e| Error::file(&settings.directory, e))?;
    let text = serde_json::to_string_pretty(&settings).map_err(|e| Error::Format(e.to_string()))?;
    let partial = format!("{SETTINGS}.partial");
    write(&partial, &text)?;
    fs::rename(&partial, SETTINGS).map_err(|e| Error::file(SETTINGS, e))?;
    // Not zero: the kernel keeps the process until the handler closes the pipe.
    write(PIPE_LIMIT, &AT_A_TIME.to_string())?;
    if !pipe && socket::supported(&read("/proc/sys/kernel/osrelease")?) {
        socket::start(program)?;
        // Refused outside the first mount namespace.
        if write(PATTERN, &socket::pattern()).is_ok() {
            return Ok(Way::Socket);
        }
        let _ = fs::remove_file(SOCKET);
    }
    write(PATTERN, &pattern)?;
    Ok(Way::Pipe)
}

/// Restores the kernel's settings from before the installation.
///
/// # Errors
/// The handler is not installed, or another program changed the settings.
pub fn uninstall() -> Result<Settings, Error> {
    needs_root("--uninstall")?;
    let settings = saved().ok_or_else(|| Error::Unsupported(format!("not installed: no {SETTINGS}")))?;
    let now = read(PATTERN)?;
    if !is_ours(&now) {
        return Err(Error::Unsupported(format!(
            "core_pattern was changed by another program and is kept: {now}"
        )));
    }
    write(PATTERN, &settings.pattern_before)?;
    write(PIPE_LIMIT, &settings.pipe_limit_before)?;
    // Its server notices this and ends.
    let _ = fs::remove_file(SOCKET);
    fs::remove_file(SETTINGS).map_err(|e| Error::file(SETTINGS, e))?;
    Ok(settings)
}

/// The arguments that the kernel passes to the handler.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// The process, in the outermost PID namespace.
    pub pid: i32,
    /// The signal; 0 if only the notes of the core contain it.
    pub signal: i32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Seconds since 1970.
    pub time: u64,
    /// 1 if its owner may have the dump; programs with elevated privileges have 2.
    pub mode: u32,
}

/// Result of the handler.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The dump.
    pub path: PathBuf,
    /// Name of the program.
    pub program: String,
    /// The signal.
    pub signal: i32,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes written.
    pub written: u64,
    /// Time from the start of the handler until the process could end.
    pub gone: Duration,
    /// The total time.
    pub elapsed: Duration,
}

/// Handles a crash whose core comes through `pipe`. The process ends once the pipe is closed.
///
/// # Errors
/// No dump was written, with the reason.
pub fn handle(crash: &Crash, pipe: File, settings: &Settings) -> Result<Caught, Error> {
    let began = Instant::now();
    let program = process::name(format!("/proc/{}", crash.pid).as_ref()).unwrap_or_default();
    let program: String = program
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+') { c } else { '_' })
        .collect();
    // Held until the end, so that dumps are counted one after the other.
    let lock = settings.directory.join(RECENT);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut lock = options.open(&lock).map_err(|e| Error::file(&settings.directory, e))?;
    // SAFETY: a descriptor of ours.
    unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
    if settings.per_minute > 0 {
        let recent = count(&mut lock, crash.uid, settings.per_minute)
            .map_err(|e| Error::file(&settings.directory, e))?;
        if recent >= settings.per_minute {
            return Err(Error::Unsupported(format!(
                "{recent} dumps of user {} were written within a minute: this one is left out (--rate)",
                crash.uid
            )));
        }
    }
    let mut old = dumps(&settings.directory)?;
    // Space for the new dump is freed first, as it may be needed.
    if settings.keep > 0 {
        for _ in settings.keep..=old.len() as u64 {
            if let Some(victim) = victim(&old) {
                let _ = fs::remove_file(old.remove(victim).path);
            }
        }
    }
    let path = settings.directory.join(format!("core.{program}.{}.{}.zst", crash.pid, crash.time));
    let codec = Codec::Zstd(settings.level);
    let mut output = Output::create(&path, codec, settings.limit, settings.spare)?;
    // From here on its name counts for other handlers.
    drop(lock);
    if crash.mode == 1 {
        output.give_to(crash.uid, crash.gid)?;
    }
    let mut pipe = pipe;
    let notes = notes_from(&mut pipe)?;
    let signal = if crash.signal == 0 { signal_of(&notes) } else { crash.signal };
    let crash = &Crash { signal, ..*crash };
    let (memory, gone) = write_core(crash, pipe, notes, settings, &mut output, began)?;
    Ok(Caught { path, program, signal, memory, written: output.written(), gone, elapsed: began.elapsed() })
}

/// Counts a user's dumps of the last minute, including this one if it may be written. The file has their
/// times, in seconds since 1970, and users, one per line. Only this program writes it, and a damaged line is
/// ignored.
fn count(file: &mut File, user: u32, most: u64) -> io::Result<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut text = String::new();
    Read::take(&mut *file, 1 << 20).read_to_string(&mut text)?;
    let lines = text.lines().filter_map(|line| {
        let (time, user) = line.split_once(' ')?;
        Some((time.parse::<u64>().ok()?, user.parse::<u32>().ok()?))
    });
    let mut recent: Vec<(u64, u32)> =
        lines.filter(|(time, _)| (now.saturating_sub(60)..=now).contains(time)).collect();
    let count = recent.iter().filter(|(_, other)| *other == user).count() as u64;
    if count < most {
        recent.push((now, user));
        let text: String = recent.iter().map(|(time, user)| format!("{time} {user}\n")).collect();
        file.set_len(0)?;
        file.seek(io::SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())?;
    }
    Ok(count)
}

/// An earlier dump.
struct Old {
    time: SystemTime,
    path: PathBuf,
    owner: u32,
}

/// The dump to remove for a new one: the oldest of the user with most dumps, so that one user's crashes do
/// not remove the dumps of others.
fn victim(old: &[Old]) -> Option<usize> {
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    old.iter().for_each(|dump| *count.entry(dump.owner).or_default() += 1);
    let most = count.values().copied().max()?;
    old.iter().position(|dump| count.get(&dump.owner) == Some(&most))
}

/// The dumps of a directory, oldest first.
fn dumps(directory: &Path) -> Result<Vec<Old>, Error> {
    let entries = fs::read_dir(directory).map_err(|e| Error::file(directory, e))?;
    let mut out: Vec<Old> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let ours =
                name.starts_with("core.") && (name.ends_with(".zst") || name.ends_with(".zst.partial"));
            let data = entry.metadata().ok().filter(|data| ours && data.is_file())?;
            Some(Old { time: data.modified().ok()?, path: entry.path(), owner: data.uid() })
        })
        .collect();
    out.sort_by(|a, b| (a.time, &a.path).cmp(&(b.time, &b.path)));
    Ok(out)
}

/// The notes of the core that comes through the pipe: registers of all threads, as recorded by the kernel.
fn notes_from(pipe: &mut impl Read) -> Result<Vec<u8>, Error> {
    let error = |e| Error::call("reading the core from the kernel", e);
    let mut at = 0u64;
    let mut take = |length: u64| -> Result<Vec<u8>, Error> {
        if length > 1 << 30 {
            return Err(Error::Format("the kernel's core has headers of more than 1 GB".into()));
        }
        let mut bytes = vec![0; length as usize];
        pipe.read_exact(&mut bytes).map_err(error)?;
        at += length;
        Ok(bytes)
    };
    let header = take(64)?;
    if header[..5] != *b"\x7fELF\x02" {
        return Err(Error::Unsupported("the kernel's core is not a 64-bit ELF file".into()));
    }
    let half = |at: usize| u64::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let count = half(56);
    if half(54) != 56 || count == 0 {
        return Err(Error::Format("the kernel's core has no program headers".into()));
    }
    // The notes are the first segment, after all headers.
    let table = take(56)?;
    let word = |at: usize| table[at..at + 8].iter().rev().fold(0u64, |sum, &b| sum << 8 | u64::from(b));
    let (offset, size) = (word(8), word(32));
    if table[..4] != 4u32.to_ne_bytes() || offset < 120 {
        return Err(Error::Format("the kernel's core does not begin with its notes".into()));
    }
    take(offset - 120)?;
    take(size)
}

/// The signal in the kernel's first note (NT_PRSTATUS, with the name `CORE`); 0 if the first note is another.
fn signal_of(notes: &[u8]) -> i32 {
    match notes.as_chunks::<4>().0 {
        [_, _, kind, _, _, signal, ..] if u32::from_ne_bytes(*kind) == notes::NT_PRSTATUS => {
            i32::from_ne_bytes(*signal)
        }
        _ => 0,
    }
}

fn write_core(
    crash: &Crash,
    pipe: File,
    mut notes: Vec<u8>,
    settings: &Settings,
    output: &mut Output,
    began: Instant,
) -> Result<(u64, Duration), Error> {
    let pid = crash.pid;
    // The process is in the kernel, in its own exit, and waits for the reader of the pipe. If we end here it
    // ends too.
    let mut memory = Memory::open(pid)?;
    let mappings = target::mappings(pid)?;
    let chosen = choose(pid, &mappings, &settings.exclude, &memory)?;
    let mut ranges = filled(&chosen, &PageMap::open(pid)?)?;
    join(&mut ranges);
    let own = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": pid,
        "method": "crash",
        "signal": crash.signal,
        "notes": crate::choose::left_out(&chosen),
    });
    notes::put(&mut notes, notes::OWN, notes::NT_OWN, own.to_string().as_bytes());
    let segments: Vec<Segment> = chosen.iter().map(|c| Segment::new(&c.mapping, c.stored)).collect();
    let total = size(&ranges);
    let layout = Layout::new(&segments, Arc::new(ranges), &notes);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut pipe = Some(pipe);
    let mut gone = Duration::ZERO;
    // The process may be restarted while its memory is held, and then needs the same amount again, in its
    // cgroups too. A copy counts towards our own cgroup.
    let hold = if total <= available().min(room_of(pid)) { hold(&mut memory, &layout) } else { None };
    let copy = match &hold {
        None if total < available() / 2 => Copy::take(&layout, &memory, threads)?,
        _ => None,
    };
    let early = hold.is_some() || copy.is_some();
    if early {
        drop(pipe.take());
        gone = began.elapsed();
    }
    let job = Job {
        layout: &layout,
        memory: match &copy {
            Some(copy) => Origin::Copied(&|chunk, buffer| copy.chunk(chunk, buffer)),
            None => Origin::Process(&memory),
        },
        guard: None,
        early: &BTreeMap::new(),
        codec: Codec::Zstd(settings.level),
        threads,
        nice: if early { 10 } else { 0 },
        progress: &AtomicU64::new(0),
        stop: &AtomicBool::new(false),
    };
    let done = pipeline::run(&job, output, || Duration::from_millis(100));
    drop(hold);
    if pipe.take().is_some() {
        gone = began.elapsed();
    }
    match done {
        Ok(done) => {
            output.finish(&Trailer { complete: true, unreadable: done.unreadable, ..Trailer::default() })?;
            Ok((total, gone))
        }
        Err(e) => {
            let trailer = Trailer { complete: false, reason: e.to_string(), ..Trailer::default() };
            Err(match output.abandon(&trailer) {
                Some(partial) => Error::Part { source: Box::new(e), partial },
                None => e,
            })
        }
    }
}

/// Makes memory outlive its process; `None` if the kernel does not allow it.
fn hold(memory: &mut Memory, layout: &Layout) -> Option<Hold> {
    let parts = (0..layout.chunks()).flat_map(|chunk| layout.filled_parts(chunk));
    let hold = parts.take(READABLE).find_map(|part| memory.hold(part.start).ok())?;
    // The OOM killer does not find memory that belongs to no process. Ending this process frees it, so this
    // process should be killed first. If this is refused, others are killed first.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    Some(hold)
}

/// The command's work for a crash: reads the settings, handles the crash, and reports to the kernel's log.
/// Standard input is the pipe from the kernel or, without `crash`, the connection of a socket.
///
/// # Errors
/// As [`handle`], or it is not installed.
pub fn run(crash: Option<Crash>) -> Result<(), Error> {
    // SAFETY: plain numbers.
    unsafe { libc::umask(0o077) };
    let settings = saved().ok_or_else(|| Error::Unsupported(format!("no settings in {SETTINGS}")));
    let input = io::stdin().as_raw_fd();
    // SAFETY: nothing else here uses standard input.
    let mut core = unsafe { File::from_raw_fd(input) };
    let crash = match crash {
        Some(crash) => crash,
        None => {
            // Unlike the server, this process may be killed for its memory.
            let _ = fs::write("/proc/self/oom_score_adj", "0");
            let mut connection = UnixStream::from(OwnedFd::from(core));
            let crash = socket::take(&mut connection);
            core = File::from(OwnedFd::from(connection));
            crash.inspect_err(|e| report(&format!("ncpu: a crash left no core: {e}"), None))?
        }
    };
    let directory = settings.as_ref().ok().map(|settings| settings.directory.clone());
    let result = settings.and_then(|settings| handle(&crash, core, &settings));
    let words = match &result {
        Ok(caught) => format!(
            "ncpu: {}[{}] got signal {}: {} MB of memory in {} ({} MB), gone after {:.2} s, written after {:.2} s",
            caught.program,
            crash.pid,
            caught.signal,
            caught.memory / 1_000_000,
            caught.path.display(),
            caught.written / 1_000_000,
            caught.gone.as_secs_f64(),
            caught.elapsed.as_secs_f64()
        ),
        Err(e) => format!("ncpu: process {} crashed: no core: {e}", crash.pid),
    };
    report(&words, directory.as_deref());
    result.map(drop)
}

/// Reports to the kernel's log or, if that is unavailable, to a file beside the dumps. There is no place for
/// a further error.
fn report(words: &str, directory: Option<&Path>) {
    let kernel = OpenOptions::new().write(true).open("/dev/kmsg");
    let log = kernel.or_else(|e| {
        let directory = directory.ok_or(e)?;
        OpenOptions::new().append(true).create(true).mode(0o600).open(directory.join("log"))
    });
    if let Ok(mut log) = log {
        let _ = log.write_all(format!("{words}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_crashes_often_takes_nothing_from_others() {
        let mut file = tempfile::tempfile().unwrap();
        let mut crash = |user| {
            file.rewind().unwrap();
            count(&mut file, user, 2).unwrap()
        };
        assert_eq!([crash(1000), crash(1000), crash(1000), crash(1000)], [0, 1, 2, 2]);
        assert_eq!([crash(0), crash(0), crash(1000)], [0, 1, 2]);

        let old = |owner, name: &str| Old { time: SystemTime::UNIX_EPOCH, path: name.into(), owner };
        let mut dumps = vec![old(0, "a"), old(7, "b"), old(7, "c"), old(7, "d"), old(1, "e")];
        let mut removed = Vec::new();
        while let Some(at) = victim(&dumps) {
            removed.push(dumps.remove(at).path.display().to_string());
        }
        // User 7 is reduced to one dump like the others, then the oldest are removed.
        assert_eq!(removed.concat(), "bcade");
    }

    #[test]
    fn damaged_lines_and_old_ones_count_for_nothing() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let mut file = tempfile::tempfile().unwrap();
        let text = format!(
            "{now} 5\n\nx 5\n{now}\n{now} -5\n{} 5\n{} 5\n{now} 5 5\n{} 5",
            now - 120,
            now + 600,
            now - 1
        );
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        assert_eq!(count(&mut file, 5, 9).unwrap(), 2);
        file.rewind().unwrap();
        let mut kept = String::new();
        file.read_to_string(&mut kept).unwrap();
        assert_eq!(kept.lines().count(), 3, "{kept}");
        assert!(kept.lines().all(|line| line.ends_with(" 5") && line.split(' ').count() == 2), "{kept}");
    }

    /// The kernel's core: its header, the program header of the notes at `offset`, a gap, and the notes.
    fn kernels(count: u16, kind: u32, offset: u64, notes: &[u8]) -> Vec<u8> {
        let mut core = b"\x7fELF\x02\x01\x01".to_vec();
        core.resize(120, 0);
        core[54..56].copy_from_slice(&56u16.to_ne_bytes());
        core[56..58].copy_from_slice(&count.to_ne_bytes());
        core[64..68].copy_from_slice(&kind.to_ne_bytes());
        core[72..80].copy_from_slice(&offset.to_ne_bytes());
        core[96..104].copy_from_slice(&(notes.len() as u64).to_ne_bytes());
        core.resize(core.len().max(offset.min(1 << 20) as usize), 0xaa);
        core.extend_from_slice(notes);
        core
    }

    #[test]
    fn the_kernels_notes_are_found_behind_its_headers() {
        let mut notes = Vec::new();
        let mut status = vec![0; 40];
        status[12] = 99;
        status[..4].copy_from_slice(&11i32.to_ne_bytes());
        notes::put(&mut notes, b"CORE", notes::NT_PRSTATUS, &status);
        for offset in [120, 121, 4096] {
            let core = kernels(3, 4, offset, &notes);
            let mut pipe = &core[..];
            let found = notes_from(&mut pipe).unwrap();
            assert_eq!((&found, signal_of(&found)), (&notes, 11), "{offset}");
            assert!(pipe.is_empty());
            for length in [0, 5, 63, 64, 119, core.len() - 1] {
                assert!(notes_from(&mut &core[..length]).is_err(), "{length}");
            }
        }
        assert_eq!(signal_of(&notes[..20]), 0);
        let mut other = notes.clone();
        other[8] = 3;
        assert_eq!(signal_of(&other), 0);
        for bad in [kernels(0, 4, 120, &notes), kernels(3, 1, 120, &notes), kernels(3, 4, 119, &notes)] {
            assert!(matches!(notes_from(&mut &bad[..]), Err(Error::Format(_))));
        }
        let far = kernels(3, 4, u64::MAX, &notes);
        assert!(matches!(notes_from(&mut &far[..]), Err(Error::Format(_))));
        assert!(matches!(notes_from(&mut &[0; 200][..]), Err(Error::Unsupported(_))));
    }
}
