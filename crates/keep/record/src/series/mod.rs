//! Recordings that follow one another in a directory, for a watch without an end.
//!
//! Each is a recording like any other, `NUMBER-TIME.ncpu`. The observer continues with the next one while a
//! thread finishes the one before. The next one's name is `NUMBER-TIME.part` until the one before it is
//! complete, so only the last of all `.ncpu` can be unfinished. Numbers count up independently of the clock.
//! The thread also deletes recordings beyond the limits of age and size (see `past`).

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

/// The lock file, so that two series do not mix.
const LOCK: &str = "series.lock";

/// The directory in the root of a separate file system.
const LOST_AND_FOUND: &str = "lost+found";

/// The fraction of [`Keep::bytes`] that one recording may reach before the next begins.
const PARTS: u64 = 8;

/// The most recordings waiting to be finished; beyond that the observer waits.
const BEHIND: usize = 4;

/// The limits of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Keep {
    /// Recordings that ended longer ago are deleted.
    pub age: Option<Duration>,
    /// The most bytes of all together: at most three quarters for finished recordings, the rest for the one
    /// that is written.
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
    messages: Messages,
    /// Held until the last recording is finished.
    _lock: File,
}

/// Messages for the user.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    fn say(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The tasks of the thread, in this order.
enum Work {
    /// Finishes a recording and applies the limits.
    Finish(Box<Writer>),
    /// Gives a recording its final name, by its number and start.
    Show(u64, f64),
}

impl Series {
    /// Opens the directory, makes it if it is missing, and continues the series in it.
    ///
    /// # Errors
    /// Another process writes to it, it is a recording itself, contains other files, or cannot be made or
    /// read.
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
        // Files that a user adds later are kept.
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
        let messages = Messages::default();
        let past = Past::take_up(Arc::clone(&dir), &mut |line| messages.say(line))?;
        let next = past.last() + 1;
        let (work, jobs) = sync_channel(BEHIND);
        let worker = Worker { past, keep, messages: messages.clone() };
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
            messages,
            _lock: lock,
        })
    }

    /// Begins the next recording, for data observed since `ago`. One that was not ended is left for its
    /// readers to recover.
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
                // It is still empty, and on a full disk there will be many attempts.
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
    /// They cannot be written. The recording is then left unchanged: earlier intervals are complete, and
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

    /// Whether the recording has reached its fraction of the limit, so that the next should begin.
    pub fn is_full(&self) -> bool {
        let written = self.writer.as_ref().map_or(0, Writer::bytes);
        self.keep.bytes.is_some_and(|most| written >= most / PARTS)
    }

    /// Ends the recording; the thread finishes it. `last` completes its manifest.
    pub fn end(&mut self, last: impl FnOnce(&mut Manifest)) {
        if let Some(mut writer) = self.writer.take() {
            last(writer.manifest_mut());
            self.give(Work::Finish(Box::new(writer)));
        }
    }

    /// Errors since the last call, and other messages for the user.
    pub fn take_messages(&self) -> Vec<String> {
        self.messages.take()
    }

    /// Waits until all recordings are finished.
    pub fn close(mut self) -> Vec<String> {
        self.join();
        self.take_messages()
    }

    fn give(&self, work: Work) {
        if let Some(to) = &self.work
            && to.send(work).is_err()
        {
            self.messages
                .say("the thread that finishes recordings has ended; they are left unfinished".into());
        }
    }

    fn join(&mut self) {
        self.work = None;
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            self.messages.say("the thread that finishes recordings failed; some are left unfinished".into());
        }
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        self.join();
    }
}

/// The state of the thread.
struct Worker {
    past: Past,
    keep: Keep,
    messages: Messages,
}

impl Worker {
    fn run(mut self, jobs: Receiver<Work>) {
        let messages = self.messages.clone();
        let say = &mut |line| messages.say(line);
        // The observer may have priority over other programs; writing Parquet need not.
        if rustix::process::getpriority_process(None).is_ok_and(|nice| nice < 0) {
            let _ = rustix::process::setpriority_process(None, 0);
        }
        self.past.prune(&self.keep, &Now::read(), say);
        for job in jobs {
            match job {
                Work::Finish(writer) => {
                    let path = writer.dir().with_extension(&DONE[1..]);
                    if let Err(e) = writer.finish() {
                        say(format!("{} is left unfinished but readable: {e}", path.display()));
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

/// Returns freed memory of the allocator to the system. Finishing a recording takes tens of megabytes for a
/// moment, between kept memory, and glibc would never return them.
fn give_back() {
    // SAFETY: it may be called at any time, by any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests;
