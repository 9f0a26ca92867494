//! Every page as a row: Solaris' `::walk allpages`, in batches, so that it takes the same memory on any
//! machine.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use ncpu_schema::pages;
use ncpu_table::Table;

use super::bpf::Program;
use super::kpageflags::Words;
use super::{Chunk, Class, Error, ExecFrames, Kpageflags, Memory, Pages, Result, Walks, kpf};
use crate::bpf_support::{Mapped, Plain};

/// Pages in a batch.
pub(super) const BATCH: usize = 1 << 15;

/// Everything known about a page.
pub(super) use super::bpf::skel::types::row as Row;

// SAFETY: integers only.
unsafe impl Plain for Row {}

/// The source of the rows.
enum Listing<'m> {
    Bpf { pages: &'m Pages, rows: Mapped<Row> },
    Kpageflags { flags: &'m Kpageflags, count: Option<File>, cgroup: Option<File>, exec: &'m ExecFrames },
}

impl Memory {
    /// Gives every page to `take`, in order, as tables of some ten thousand rows.
    ///
    /// # Errors
    /// The source fails or is an estimate, `stop` was set, or `take` fails.
    pub fn rows<E: From<Error>>(
        &mut self,
        stop: &AtomicBool,
        mut take: impl FnMut(&Table) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let exec = self.find_exec()?;
        let listing = self.listing(&exec)?;
        for chunk in &self.chunks {
            let mut at = chunk.start;
            while at < chunk.end {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted.into());
                }
                let end = chunk.end.min(at + BATCH as u64);
                let batch = Chunk { start: at, end, ..*chunk };
                let mut table = pages::Rows::new();
                let refcounts = matches!(listing, Listing::Bpf { .. });
                let add = |pfn: u64, row: Row| {
                    table.push(pages::Row {
                        pfn: Some(pfn),
                        node: Some(u64::from(chunk.node)),
                        class: Class::from_raw(row.class).name().into(),
                        mapcount: Some(row.mapcount.max(0) as u64),
                        refcount: refcounts.then_some(row.refcount.max(0) as u64),
                        cgroup: Some(row.cgroup).filter(|cgroup| *cgroup != 0),
                        flags: kpf::words(row.kpf).into(),
                    });
                };
                listing.each(&batch, add).map_err(|e| Error::Walk { which: self.source(), source: e })?;
                take(&table.finish())?;
                at = end;
            }
        }
        Ok(())
    }

    fn listing<'m>(&'m self, exec: &'m ExecFrames) -> Result<Listing<'m>> {
        match &self.walks {
            Walks::Bpf(pages) => {
                let rows = Mapped::new(pages.rows(), BATCH)
                    .map_err(|e| Error::Walk { which: self.source(), source: e })?;
                Ok(Listing::Bpf { pages, rows })
            }
            Walks::Kpageflags(flags) => {
                let open = |name: &str| File::open(format!("/proc/{name}")).ok();
                Ok(Listing::Kpageflags {
                    flags,
                    count: open("kpagecount"),
                    cgroup: open("kpagecgroup"),
                    exec,
                })
            }
            Walks::Meminfo => Err(Error::Estimate),
        }
    }

    /// The rows of the pages of `start..end`, for tests.
    #[cfg(test)]
    pub(super) fn page_rows(&self, exec: &ExecFrames, chunk: &Chunk) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let each = self.listing(exec)?.each(chunk, |_, row| rows.push(row));
        each.map_err(|e| Error::Walk { which: self.source(), source: e })?;
        Ok(rows)
    }
}

impl Listing<'_> {
    /// Gives the rows of a chunk of at most [`BATCH`] pages to `add`.
    fn each(&self, chunk: &Chunk, mut add: impl FnMut(u64, Row)) -> io::Result<()> {
        if !chunk.online {
            let offline = Row { class: Class::Offline as u32, ..Row::default() };
            (chunk.start..chunk.end).for_each(|pfn| add(pfn, offline));
            return Ok(());
        }
        match self {
            Listing::Bpf { pages, rows } => {
                pages.walker(0).run(Program::List, chunk.first, chunk.start, chunk.end)?;
                for pfn in chunk.start..chunk.end {
                    add(pfn, rows.get((pfn - chunk.start) as usize));
                }
                Ok(())
            }
            Listing::Kpageflags { flags, count, cgroup, exec } => {
                let words = |file: &Option<File>| -> io::Result<Vec<u64>> {
                    match file {
                        Some(file) => Ok(Words::new(file).read(chunk.start, chunk.end)?.collect()),
                        None => Ok(Vec::new()),
                    }
                };
                let (counts, cgroups) = (words(count)?, words(cgroup)?);
                flags.each(chunk.first, chunk.start, chunk.end, exec, |pfn, kpf, class| {
                    let at = (pfn - chunk.start) as usize;
                    add(
                        pfn,
                        Row {
                            kpf,
                            cgroup: cgroups.get(at).copied().unwrap_or(0),
                            class: class as u32,
                            mapcount: counts.get(at).map_or(0, |&n| i32::try_from(n).unwrap_or(i32::MAX)),
                            ..Row::default()
                        },
                    );
                    Ok(())
                })
            }
        }
    }
}
