//! The owners of pages: processes, cgroups, files.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ncpu_table::Table;

use super::bpf::Program;
use super::named::Owned;
use super::{Class, Counts, Error, Memory, Result, Walks};

mod cgroups;
mod files;
mod processes;

/// The kind of owner that rows are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A process, by its page tables.
    Process,
    /// The cgroup that pages are charged to.
    Cgroup,
    /// A file in the page cache, or shared memory.
    File,
}

impl Memory {
    /// A row for each owner, the largest first; table `processes`, `cgroups` or `files`.
    ///
    /// # Errors
    /// The source fails, or is an estimate; `stop` was set. Processes need no source, but root to see
    /// those of others.
    pub fn owners(&mut self, by: By, stop: &AtomicBool) -> Result<Table> {
        match by {
            By::Process => {
                let (table, hidden) = processes::table(Path::new("/proc"), self.threads, stop)
                    .map_err(|source| Error::Owners { source })?;
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                if hidden > 0 {
                    self.notes.push(format!(
                        "processes that may not be looked at: {hidden} (root may look at most)"
                    ));
                }
                Ok(table)
            }
            By::Cgroup => {
                let owned = match &self.walks {
                    Walks::Bpf(_) => self.owned_by_bpf(false, stop)?,
                    Walks::Kpageflags(_) => self.owned_by_kpagecgroup(stop)?,
                    Walks::Meminfo => return Err(Error::Estimate),
                };
                Ok(cgroups::table(Path::new("/"), &owned, self.page_size, self.pages()))
            }
            By::File => match &self.walks {
                Walks::Bpf(_) => {
                    self.find_exec()?;
                    let owned = self.owned_by_bpf(true, stop)?;
                    let Walks::Bpf(pages) = &mut self.walks else { return Err(Error::Estimate) };
                    let named = files::named_by_bpf(pages, owned);
                    Ok(files::table(named, self.page_size, self.pages()))
                }
                Walks::Kpageflags(_) => {
                    let all = self.look(stop)?.total();
                    let found = files::of_processes(Path::new("/proc"), all, stop)
                        .map_err(|source| Error::Owners { source })?;
                    self.notes
                        .push("by kpageflags only files that a process has open or mapped have names".into());
                    Ok(files::table(found, self.page_size, self.pages()))
                }
                Walks::Meminfo => Err(Error::Estimate),
            },
        }
    }

    /// All pages of the walk.
    fn pages(&self) -> u64 {
        self.chunks.iter().map(|c| c.end - c.start).sum()
    }

    fn owned_by_bpf(&mut self, by_file: bool, stop: &AtomicBool) -> Result<Owned> {
        let Walks::Bpf(pages) = &mut self.walks else { return Err(Error::Estimate) };
        let failed = |source| Error::Walk { which: super::Source::Bpf, source };
        pages.forget_owners();
        let Walks::Bpf(pages) = &self.walks else { return Err(Error::Estimate) };
        let dropped = std::sync::atomic::AtomicU64::new(0);
        self.walk(stop, |thread, c| {
            let program = Program::Own { by_file };
            let (counts, walk) = pages.walker(thread).run(program, c.first, c.start, c.end)?;
            dropped.fetch_add(walk.dropped, Ordering::Relaxed);
            Ok(counts)
        })?;
        let owned = pages.owned().map_err(failed)?;
        let dropped = dropped.into_inner();
        if dropped > 0 {
            self.notes.push(format!("dropped: {dropped} pages of owners that the table had no room for"));
        }
        Ok(owned)
    }

    fn owned_by_kpagecgroup(&self, stop: &AtomicBool) -> Result<Owned> {
        let Walks::Kpageflags(flags) = &self.walks else { return Err(Error::Estimate) };
        let cgroups = std::fs::File::open("/proc/kpagecgroup").map_err(|e| Error::Owners {
            source: io::Error::new(e.kind(), format!("/proc/kpagecgroup (needs CONFIG_MEMCG): {e}")),
        })?;
        let all = Mutex::new(Owned::new());
        self.walk(stop, |_, c| {
            let mut owned = Owned::new();
            let none = super::ExecFrames::default();
            let mut words = super::kpageflags::Words::new(&cgroups);
            let mut at = c.start;
            // As many pages at once as one read gives.
            while at < c.end {
                let ids: Vec<u64> = words.read(at, c.end)?.collect();
                if ids.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "/proc/kpagecgroup ends early"));
                }
                let end = at + ids.len() as u64;
                flags.each(c.first, at, end, &none, |pfn, _, class| {
                    let id = ids[(pfn - at) as usize];
                    if id != 0 && !matches!(class, Class::Free | Class::Reserved | Class::Slab) {
                        owned.entry(id).or_default()[class] += 1;
                    }
                    Ok(())
                })?;
                at = end;
            }
            let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
            for (id, counts) in owned {
                all.entry(id).or_default().add(&counts);
            }
            Ok(Counts::default())
        })?;
        Ok(all.into_inner().unwrap_or_else(|e| e.into_inner()))
    }
}

fn percent(pages: u64, all: u64) -> f64 {
    100.0 * pages as f64 / all.max(1) as f64
}

/// The pages of these classes, in bytes.
fn bytes(counts: &Counts, classes: &[Class], page_size: u64) -> u64 {
    classes.iter().map(|&c| counts[c]).sum::<u64>() * page_size
}
