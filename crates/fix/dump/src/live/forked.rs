//! Dumps from a copy that a process makes of itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{Attempt, Early, Method, Moment, Progress, Subject, Summary, filled};
use crate::Error;
use crate::choose::choose;
use crate::fork::{Reaper, Twin};
use crate::inject::Injector;
use crate::memory::Memory;
use crate::mend::Huge;
use crate::output::Output;
use crate::pagemap::{PageMap, Ranges, Which};
use crate::target::{self, Mapping};
use crate::trace::{Stop, Thread};

impl Subject<'_> {
    /// A snapshot by a copy of the process, which is stopped until it is written.
    pub(super) fn forked(
        &mut self,
        output: &mut Output,
        progress: &Progress,
        stop: &AtomicBool,
    ) -> Result<Summary, Attempt> {
        let before = target::mappings(self.pid)?;
        let pages = PageMap::open(self.pid)?;
        let huge = Huge::find(&pages)?;
        let injector = Injector::find(&self.status, &self.memory, &before)?;
        // A dump works without the reaper; the copy may then stay a zombie if ncpu is killed.
        let mut reaper =
            self.options.reaper.as_deref().and_then(|program| Reaper::start(program, self.pid).ok());
        let began = Instant::now();
        let mut standing = Stop::all(self.pid).map_err(|e| match e {
            Error::Unsupported(why) => Attempt::Refused(why),
            e => Attempt::Failed(e),
        })?;
        let threads = standing.registers();
        let tids = threads.iter().filter(|thread| thread.stopped).map(|thread| thread.tid);
        let twin = Twin::make(&injector, &standing, tids, self.pid, &before, &self.memory, reaper.as_mut())?;
        let mut released = standing.release();
        let stopped = began.elapsed();

        // The process runs again; the rest reads the copy.
        let process = std::mem::replace(&mut self.memory, Arc::new(Memory::open(twin.pid)?));
        let result = self.write_copy(&twin, &before, threads, stopped, output, progress, stop, &mut || {
            if !released {
                released = standing.release();
            }
            if released { Duration::from_millis(20) } else { Duration::from_millis(1) }
        });
        let ended = twin.end(&injector, &process);
        drop(reaper);
        self.memory = process;
        let mut summary = result?;
        if let Err(e) = ended {
            summary.notes.push(format!("the copy stays a zombie until the process ends: {e}"));
        }
        summary.notes.extend(huge.mend(self.pid, &pages, stop));
        Ok(summary)
    }

    /// Writes the core from the copy of a process.
    #[expect(clippy::too_many_arguments, reason = "the snapshot, and where it goes")]
    fn write_copy(
        &mut self,
        twin: &Twin,
        before: &[Mapping],
        threads: Vec<Thread>,
        stopped: Duration,
        output: &mut Output,
        progress: &Progress,
        stop: &AtomicBool,
        tick: &mut dyn FnMut() -> Duration,
    ) -> Result<Summary, Error> {
        let mappings = target::mappings(twin.pid)?;
        let mut chosen = choose(twin.pid, &mappings, &self.options.exclude, &self.memory)?;
        // The copy's page tables lack shared memory; those of the process have it.
        let pages = PageMap::open(self.pid)?;
        for chosen in chosen.iter_mut().filter(|c| c.stored > 0 && c.mapping.shared && c.ranges.is_none()) {
            let mut ranges = Ranges::new();
            pages.find(chosen.mapping.start, chosen.mapping.end, Which::Filled, &mut ranges)?;
            chosen.ranges = Some(ranges);
        }
        let shared: u64 = chosen.iter().filter(|c| c.mapping.shared && c.stored > 0).map(|c| c.stored).sum();
        if shared > 0 {
            self.notes.push(format!("{} kB of shared memory were read as they changed", shared >> 10));
        }
        for (flag, why) in [(b"dc", "MADV_DONTFORK: not in the copy"), (b"wf", "MADV_WIPEONFORK: zeros")] {
            let bytes: u64 = before.iter().filter(|m| m.has(flag)).map(Mapping::len).sum();
            if bytes > 0 {
                self.notes.push(format!("left out: {} kB: {why}", bytes >> 10));
            }
        }
        let filled = filled(&chosen, &PageMap::open(twin.pid)?)?;
        let moment = Moment { threads, mappings, stopped };
        let early = Early { guard: None, copied: &BTreeMap::new() };
        self.write(Method::Fork, &moment, &chosen, filled, early, output, progress, stop, tick)
    }
}
