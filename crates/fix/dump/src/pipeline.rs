//! Memory to frames to the file, with several threads, in the order of the file and in bounded memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::Error;
use crate::buffer::Buffer;
use crate::layout::{CHUNK, Layout};
use crate::memory::Memory;
use crate::output::Output;
use crate::protect::Guard;
use crate::seekable::{Codec, Compressor, Entry};
use crate::sys::set_nice;

/// The source of memory.
#[derive(Clone, Copy)]
pub(crate) enum Read<'a> {
    /// From the process.
    Process(&'a Memory),
    /// From a copy of all memory: fills a chunk of zeros.
    Copied(&'a (dyn Fn(usize, &mut [u8]) + Sync)),
}

/// A dump to write.
pub(crate) struct Job<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) memory: Read<'a>,
    /// Set for memory of a running process: reports the pages written since the snapshot.
    pub(crate) guard: Option<&'a Guard>,
    /// Memory that was copied beforehand.
    pub(crate) early: &'a BTreeMap<u64, Vec<u8>>,
    pub(crate) codec: Codec,
    pub(crate) threads: usize,
    pub(crate) nice: i32,
    /// Chunks done.
    pub(crate) progress: &'a AtomicU64,
    pub(crate) stop: &'a AtomicBool,
}

/// Result of a pipeline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Bytes that could not be read.
    pub(crate) unreadable: u64,
}

/// Frames that may wait for their turn, in addition to one for each thread.
pub(crate) const WAITING: usize = 4;

struct Order {
    next_read: usize,
    next_write: usize,
    /// Frames that wait for their turn.
    ready: BTreeMap<usize, (Vec<u8>, Entry)>,
    /// Free buffers for frames.
    free: Vec<Vec<u8>>,
    failed: Option<Error>,
    running: usize,
}

/// A pipeline's shared part.
struct Pipeline<'a> {
    job: &'a Job<'a>,
    order: Mutex<Order>,
    changed: Condvar,
    /// The frame of a complete chunk of zeros.
    zeros: OnceLock<(Vec<u8>, Entry)>,
    unreadable: AtomicU64,
}

/// Runs the pipeline. The calling thread calls `tick` now and then; it returns how long the thread may sleep
/// until the next call.
///
/// # Errors
/// The output is full, the process has ended, or we were interrupted.
pub(crate) fn run(job: &Job, output: &mut Output, mut tick: impl FnMut() -> Duration) -> Result<Done, Error> {
    let threads = job.threads.clamp(1, job.layout.chunks().max(1));
    let order = Order {
        next_read: 0,
        next_write: 0,
        ready: BTreeMap::new(),
        free: Vec::new(),
        failed: None,
        // One more thread writes, so that no CPU waits for the disk.
        running: threads + 1,
    };
    let pipeline = Pipeline {
        job,
        order: Mutex::new(order),
        changed: Condvar::new(),
        zeros: OnceLock::new(),
        unreadable: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            pipeline.start(scope, || pipeline.work());
        }
        pipeline.start(scope, || pipeline.write(output));
        let mut order = pipeline.lock();
        while order.running > 0 {
            if job.stop.load(Ordering::Relaxed) {
                order.failed.get_or_insert(Error::Interrupted);
                pipeline.changed.notify_all();
            }
            drop(order);
            let sleep = tick();
            order = pipeline.lock();
            if order.running > 0 {
                order = pipeline.changed.wait_timeout(order, sleep).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    });
    let order = pipeline.order.into_inner().unwrap_or_else(PoisonError::into_inner);
    match order.failed {
        Some(e) => Err(e),
        None => Ok(Done { unreadable: pipeline.unreadable.into_inner() }),
    }
}

impl Pipeline<'_> {
    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread. Short of memory there are no more, and all end.
    fn start<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        work: impl FnOnce() -> Result<(), Error> + Send + 'scope,
    ) {
        let run = || {
            set_nice(self.job.nice);
            self.end(work());
        };
        if let Err(e) = std::thread::Builder::new().spawn_scoped(scope, run) {
            self.end(Err(Error::call("starting a thread", e)));
        }
    }

    /// Records the end of a thread; if one fails, all end.
    fn end(&self, result: Result<(), Error>) {
        let mut order = self.lock();
        order.running -= 1;
        if let Err(e) = result {
            order.failed.get_or_insert(e);
        }
        self.changed.notify_all();
    }

    fn work(&self) -> Result<(), Error> {
        let mut compressor = Compressor::new(self.job.codec)?;
        let mut plain = Buffer::new(CHUNK as usize);
        while let Some((chunk, mut frame)) = self.take() {
            let entry = self.compress(chunk, &mut plain, &mut frame, &mut compressor)?;
            self.hand_over(chunk, frame, entry);
        }
        Ok(())
    }

    /// The next chunk, once there is space for its frame.
    fn take(&self) -> Option<(usize, Vec<u8>)> {
        let mut order = self.lock();
        loop {
            if order.failed.is_some() || order.next_read == self.job.layout.chunks() {
                return None;
            }
            if order.next_read < order.next_write + self.job.threads + WAITING {
                let chunk = order.next_read;
                order.next_read += 1;
                return Some((chunk, order.free.pop().unwrap_or_default()));
            }
            order = self.changed.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn compress(
        &self,
        chunk: usize,
        plain: &mut [u8],
        frame: &mut Vec<u8>,
        compressor: &mut Compressor,
    ) -> Result<Entry, Error> {
        let job = self.job;
        let plain = &mut plain[..job.layout.length(chunk)];
        if job.layout.is_zero(chunk) {
            plain.fill(0);
            if let Some(guard) = job.guard {
                guard.copied(chunk, &[]);
            }
            if plain.len() < CHUNK as usize {
                return compressor.compress(plain, frame);
            }
            if let Some((zeros, entry)) = self.zeros.get() {
                frame.clone_from(zeros);
                return Ok(*entry);
            }
            let entry = compressor.compress(plain, frame)?;
            // Another thread may have been first, with the same frame.
            let _ = self.zeros.set((frame.clone(), entry));
            return Ok(entry);
        }
        self.read(chunk, plain)?;
        compressor.compress(plain, frame)
    }

    /// Fills a chunk with memory as it was at the moment of the snapshot.
    fn read(&self, chunk: usize, plain: &mut [u8]) -> Result<(), Error> {
        let job = self.job;
        let filled = job.layout.filled_parts(chunk);
        if filled.iter().map(|part| part.end - part.start).sum::<u64>() < plain.len() as u64 {
            plain.fill(0);
        }
        job.layout.copy_head(chunk, plain);
        let memory = match job.memory {
            Read::Process(memory) => memory,
            Read::Copied(copy) => {
                copy(chunk, plain);
                return Ok(());
            }
        };
        // Neighbours in the chunk are read by one call.
        let mut first = 0;
        while first < filled.len() {
            let mut last = first;
            let length = |n: usize| (filled[n].end - filled[n].start) as usize;
            while last + 1 < filled.len() && filled[last].at + length(last) == filled[last + 1].at {
                last += 1;
            }
            let ranges: Vec<(u64, u64)> = filled[first..=last].iter().map(|p| (p.start, p.end)).collect();
            let target = &mut plain[filled[first].at..filled[last].at + length(last)];
            let missing = memory.read(&ranges, target)?;
            self.unreadable.fetch_add(missing, Ordering::Relaxed);
            first = last + 1;
        }
        // All of it was read from one address space, which still exists: neither exit nor exec came between.
        if let Some(part) = filled.first()
            && !memory.is_alive(part.start)
        {
            return Err(Error::Gone(memory.pid()));
        }
        let parts = job.layout.parts(chunk);
        for part in &parts {
            if job.early.is_empty() {
                break;
            }
            let target = &mut plain[part.at..part.at + (part.end - part.start) as usize];
            for (&at, bytes) in job.early.range(..part.end).rev() {
                let end = at + bytes.len() as u64;
                if end <= part.start {
                    break;
                }
                let (low, high) = (at.max(part.start), end.min(part.end));
                target[(low - part.start) as usize..(high - part.start) as usize]
                    .copy_from_slice(&bytes[(low - at) as usize..(high - at) as usize]);
            }
        }
        if let Some(guard) = job.guard {
            guard.overlay(&parts, plain).map_err(|e| Error::call("reading what was saved aside", e))?;
            let ranges: Vec<(u64, u64)> = filled.iter().map(|part| (part.start, part.end)).collect();
            guard.copied(chunk, &ranges);
        }
        Ok(())
    }

    /// Passes a frame to the writing thread.
    fn hand_over(&self, chunk: usize, frame: Vec<u8>, entry: Entry) {
        let mut order = self.lock();
        order.ready.insert(chunk, (frame, entry));
        if chunk == order.next_write {
            self.changed.notify_all();
        }
    }

    /// Writes frames as their turn comes.
    fn write(&self, output: &mut Output) -> Result<(), Error> {
        let mut order = self.lock();
        while order.failed.is_none() && order.next_write < self.job.layout.chunks() {
            let next = order.next_write;
            let Some((frame, entry)) = order.ready.remove(&next) else {
                order = self.changed.wait(order).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            // Other threads take chunks and deliver frames meanwhile.
            drop(order);
            output.write(&frame, entry)?;
            order = self.lock();
            order.free.push(frame);
            order.next_write += 1;
            self.job.progress.store(order.next_write as u64, Ordering::Relaxed);
            self.changed.notify_all();
        }
        Ok(())
    }
}
