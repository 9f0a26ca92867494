//! Backends of PostgreSQL: each says in its own memory which lock it waits for, as in `pg_stat_activity`. The kernel side
//! reads that as the backend goes to sleep; here it is found out where, and what the numbers mean.

use std::sync::Arc;

use ncpu_machine::process::{self, Stat};
use ncpu_symbols::{Postgres, ProcMaps, Recent, WaitEvents};

use crate::bpf_support::namespace::{process_dir, root};
use crate::engine::{Engine, FutexWaits, wait_event};

/// Backends of a generation; the kernel side has room for two of them and their parents.
const MAX_BACKENDS: usize = 1 << 10;

/// The known backends of PostgreSQL.
pub(super) struct Backends {
    maps: ProcMaps,
    servers: Postgres,
    /// `None` where the server does not tell.
    known: Recent<u32, Option<Arc<WaitEvents>>>,
    /// Of the backend met last: a machine has one server, as a rule.
    last: Option<Arc<WaitEvents>>,
}

impl Default for Backends {
    fn default() -> Backends {
        Backends {
            maps: ProcMaps::new(root()),
            servers: Postgres::default(),
            known: Recent::new(MAX_BACKENDS),
            last: None,
        }
    }
}

impl Backends {
    /// A backend waits; the kernel side is sent the address of its wait event, if the server has one.
    pub fn met(&mut self, tgid: u32, engine: &Engine) {
        if self.known.get(&tgid).is_some() {
            return;
        }
        if self.maps.is_full() {
            self.maps.forget();
            self.servers.forget();
        }
        let Some(at) = self.servers.wait_event_at(&mut self.maps, tgid) else {
            return self.keep(tgid, None, engine);
        };
        engine.tell_wait_events(tgid, at);
        // Others are forked from the same server, and wait before they are met.
        let parent = parent(tgid).filter(|parent| same_program(*parent, tgid));
        if let Some(parent) = parent {
            engine.tell_wait_events(parent, at);
        }
        // Names take longer, and are needed later.
        let events = self.servers.wait_events(&mut self.maps, tgid);
        self.last = events.clone().or(self.last.take());
        for pid in parent.into_iter().chain([tgid]) {
            self.keep(pid, events.clone(), engine);
        }
    }

    fn keep(&mut self, tgid: u32, events: Option<Arc<WaitEvents>>, engine: &Engine) {
        for (gone, _) in self.known.insert(tgid, events).into_iter().flatten() {
            engine.forget_wait_events(gone);
        }
    }

    /// The lock that waits of a row were for, as their backend named it: `LWLock` and `WALWrite`.
    pub fn lock(&self, row: &FutexWaits) -> Option<(&'static str, String)> {
        let of = self.known.peek(&row.tgid).and_then(Option::as_ref).or(self.last.as_ref())?;
        of.lock(wait_event(row.event))
    }
}

fn parent(pid: u32) -> Option<u32> {
    Stat::parse(&process::read(&process_dir(pid).join("stat")).ok()?)?.parent()
}

fn same_program(one: u32, other: u32) -> bool {
    let program = |pid: u32| std::fs::read_link(process_dir(pid).join("exe")).ok();
    program(one).is_some_and(|file| Some(file) == program(other))
}
