//! Names of what accesses touch.

use std::collections::HashMap;
use std::path::Path;

use ncpu_machine::process;
use ncpu_symbols::{CodePlace, ProcMaps, User};

use super::Mappings;

/// Names of processes, threads, data and code.
pub(super) struct Names {
    pub mappings: Mappings,
    pub maps: ProcMaps,
    pub user: User,
    pub processes: HashMap<u32, String>,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            mappings: Mappings::default(),
            maps: ProcMaps::new(Path::new("/")),
            user: User::new(),
            processes: HashMap::new(),
        }
    }
}

impl Names {
    /// A process has samples: what it maps must be known before it ends.
    pub fn met(&mut self, pid: u32) {
        let known = self.mappings.text(pid).map(<[u8]>::len);
        self.mappings.look(pid);
        // More libraries than before.
        if self.mappings.text(pid).map(<[u8]>::len) != known {
            self.maps.note_process(pid);
        }
        if let Some(name) = process::name(format!("/proc/{pid}").as_ref()) {
            self.processes.insert(pid, name);
        }
    }
}

impl Names {
    /// The place of a process's code.
    pub fn code_place(&mut self, pid: u32, ip: u64) -> Option<CodePlace> {
        self.user.code_place(&self.maps, pid, ip)
    }

    /// The bytes of it.
    pub fn code_bytes(&self, place: &CodePlace) -> Option<Vec<u8>> {
        self.user.code_bytes(&self.maps, place)
    }
}
