//! Recordings that follow one another in a directory, for a watch without an end.
//!
//! Each is a recording like any other, `NUMBER-TIME.ncpu`. What is observed goes on into the next while the one before is
//! finished by a thread: it is `NUMBER-TIME.part` meanwhile, and gets its name when the one before it is whole, so that of
//! all `.ncpu` only the last can be unfinished. Numbers count up whatever the clock does. The thread also deletes what is
//! older, or more, than is to be kept (see `past`).

mod clock;
mod moment;
mod past;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ncpu_files::Dir;
use ncpu_table::Table;

use crate::manifest::MANIFEST;
use crate::{Error, Manifest, Place, Result, Writer};
use clock::Now;
pub use moment::{Moment, Moments};
use past::{DONE, PART, Past, name};

/// What is locked, so that two series do not mix.
const LOCK: &str = "series.lock";

/// What a file system of its own has.
const LOST_AND_FOUND: &str = "lost+found";

/// Parts of [`Keep::bytes`] that one recording may grow to before the next begins.
const PARTS: u64 = 8;

/// Recordings to be finished at most; then the observer waits.
const BEHIND: usize = 4;

/// What of a series is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Keep {
    /// Recordings that ended longer ago are deleted.
    pub age: Option<Duration>,
    /// All together take no more than so many bytes: of those that are finished at most three quarters, the rest is for the
    /// one that is written.
    pub bytes: Option<u64>,
}

/// A series that is being written.
pub struct Series {
    dir: Arc<Dir>,
    mode: u32,
    keep: Keep,
    next: u64,
    writer: Option<Writer>,
    work: Option<SyncSender<Work>>,
    worker: Option<JoinHandle<()>>,
    told: Told,
    /// Held until the last recording is finished.
    _lock: File,
}

/// What the user is to be told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn say(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the thread does, in this order.
enum Work {
    /// Finishes a recording and deletes what is not to be kept.
    Finish(Box<Writer>),
    /// Gives a recording its name, by its number and start.
    Show(u64, f64),
}

impl Series {
    /// Opens the directory, makes it where it is missing, and takes up the series in it.
    ///
    /// # Errors
    /// Another process writes to it, it is a recording itself, holds other things, or cannot be made or read.
    pub fn open(path: &Path, keep: Keep, mode: u32) -> Result<Series> {
        let dir = match Dir::make(path, mode) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Dir::open(path).map_err(|e| Error::io(path, "record in", e))?
            }
            Err(e) => return Err(Error::io(path, "make the directory", e)),
        };
        if dir.kind(MANIFEST).map_err(|e| Error::io(path, "record in", e))?.is_some() {
            return Err(Error::Exists(path.into()));
        }
        // What a user adds later stays as it is.
        if dir.kind(LOCK).map_err(|e| Error::io(path, "record in", e))?.is_none() {
            let names = dir.names().map_err(|e| Error::io(path, "list", e))?;
            if let Some(other) =
                names.into_iter().find(|name| !past::is_of_series(name) && name != LOST_AND_FOUND)
            {
                return Err(Error::Foreign { path: path.into(), other });
            }
        }
        let lock = dir.lock(LOCK, mode).map_err(|e| Error::io(&path.join(LOCK), "lock", e))?;
        let lock = lock.ok_or_else(|| Error::Taken(path.into()))?;
        let dir = Arc::new(dir);
        let told = Told::default();
        let past = Past::take_up(Arc::clone(&dir), &mut |line| told.say(line))?;
        let next = past.last() + 1;
        let (work, jobs) = sync_channel(BEHIND);
        let worker = Worker { past, keep, told: told.clone() };
        let thread = std::thread::Builder::new().name("ncpu-series".into()).spawn(move || worker.run(jobs));
        let thread = thread.map_err(|e| Error::io(path, "start a thread for", e))?;
        Ok(Series {
            dir,
            mode,
            keep,
            next,
            writer: None,
            work: Some(work),
            worker: Some(thread),
            told,
            _lock: lock,
        })
    }

    /// Begins the next recording, of what is observed since so long `ago`. One that was not ended is left as it is, to be
    /// recovered by its readers.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&mut self, mut manifest: Manifest, ago: Duration) -> Result<()> {
        self.writer = None;
        let number = self.next;
        manifest.created_unix -= ago.as_secs_f64();
        let start = manifest.created_unix;
        let now = Now::read();
        manifest.series = Some(Place { number, boot: now.boot, booted_s: now.booted - ago.as_secs_f64() });
        let part = name(number, start, PART);
        match Writer::create_in(&self.dir, &part, manifest, self.mode) {
            Ok(writer) => self.writer = Some(writer),
            Err(e) => {
                // Nothing is in it yet, and on a full disk there will be many tries.
                let _ = self.dir.remove_dir(&part);
                return Err(e);
            }
        }
        self.next += 1;
        self.give(Work::Show(number, start));
        Ok(())
    }

    /// Adds the rows of tables that belong to one interval and hands them to the system.
    ///
    /// # Errors
    /// They cannot be written. The recording is then left as it is: what came before is whole, and
    /// [`Series::begin`] begins another.
    pub fn append(&mut self, tables: &[Table]) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let written = tables.iter().try_for_each(|t| writer.append(t)).and_then(|()| writer.flush());
        if written.is_err() {
            self.writer = None;
        }
        written
    }

    /// Whether a recording is being written.
    pub fn is_writing(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether the recording has grown to its part of what is to be kept, so that the next should begin.
    pub fn is_full(&self) -> bool {
        let written = self.writer.as_ref().map_or(0, Writer::bytes);
        self.keep.bytes.is_some_and(|most| written >= most / PARTS)
    }

    /// Ends the recording: the thread makes it whole. `last` completes its manifest.
    pub fn end(&mut self, last: impl FnOnce(&mut Manifest)) {
        if let Some(mut writer) = self.writer.take() {
            last(writer.manifest_mut());
            self.give(Work::Finish(Box::new(writer)));
        }
    }

    /// What went wrong since the last call, and what else a user should know.
    pub fn told(&self) -> Vec<String> {
        self.told.take()
    }

    /// Waits until all is finished.
    pub fn close(mut self) -> Vec<String> {
        self.join();
        self.told()
    }

    fn give(&self, work: Work) {
        if let Some(to) = &self.work
            && to.send(work).is_err()
        {
            self.told.say("the thread that finishes recordings has ended: they are left unfinished".into());
        }
    }

    fn join(&mut self) {
        self.work = None;
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            self.told.say("the thread that finishes recordings failed: some are left unfinished".into());
        }
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        self.join();
    }
}

/// The thread's side.
struct Worker {
    past: Past,
    keep: Keep,
    told: Told,
}

impl Worker {
    fn run(mut self, jobs: Receiver<Work>) {
        let told = self.told.clone();
        let say = &mut |line| told.say(line);
        // Whoever observes may go ahead of other programs; writing Parquet need not.
        if rustix::process::getpriority_process(None).is_ok_and(|nice| nice < 0) {
            let _ = rustix::process::setpriority_process(None, 0);
        }
        self.past.prune(&self.keep, &Now::read(), say);
        for job in jobs {
            match job {
                Work::Finish(writer) => {
                    let path = writer.dir().with_extension(&DONE[1..]);
                    if let Err(e) = writer.finish() {
                        say(format!("{} is left unfinished, to be read as it is: {e}", path.display()));
                    }
                    self.past.measure();
                    self.past.prune(&self.keep, &Now::read(), say);
                    give_back();
                }
                Work::Show(number, start) => {
                    if let Err(e) = self.past.show(number, start) {
                        say(format!("{} keeps this name: {e}", name(number, start, PART)));
                    }
                }
            }
        }
    }
}

/// Returns to the system what the allocator holds of memory that is free. To finish a recording takes tens of megabytes
/// for a moment, in between what is kept, and glibc would hold on to them for ever.
fn give_back() {
    // SAFETY: it may be called at any time, by any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests;
