//! Functions of Python in stacks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_symbols::{ProcMaps, PythonAt, Pythons, Spliced};

use super::called;
use super::functions::Functions;
use crate::bpf_support::Stack;

/// First delay before a process that may have loaded Python is examined again, and the number of
/// examinations. A process is first seen while still in its loader.
const FIRST_AGAIN: Duration = Duration::from_millis(5);
const AGAIN: u32 = 10;
const MAX_MAYBE: usize = 256;

/// Processes that run Python.
#[derive(Default)]
pub(super) struct Python {
    processes: Pythons,
    new: Vec<(u32, PythonAt)>,
    /// Processes to examine again: the time, and the number of examinations so far.
    maybe: HashMap<u32, (Instant, u32)>,
}

impl Python {
    /// Examines a process whose mappings have just been noted.
    pub fn examine(&mut self, maps: &ProcMaps, tgid: u32) {
        self.maybe.remove(&tgid);
        if let Some(at) = self.processes.examine(maps, tgid) {
            self.new.push((tgid, at));
        } else if Pythons::may_be(maps, tgid) && self.maybe.len() < MAX_MAYBE {
            self.maybe.insert(tgid, (Instant::now() + FIRST_AGAIN, 0));
        }
    }

    /// Examines due processes again, which may have loaded Python since.
    pub fn look(&mut self, maps: &mut ProcMaps, now: Instant) {
        let due: Vec<(u32, u32)> = self
            .maybe
            .iter()
            .filter(|(_, (at, _))| now >= *at)
            .map(|(pid, (_, times))| (*pid, *times))
            .collect();
        for (tgid, times) in due {
            let lives = maps.note_process(tgid);
            self.examine(maps, tgid);
            if let Some(maybe) = self.maybe.get_mut(&tgid) {
                *maybe = (now + FIRST_AGAIN * (2 << times), times + 1);
                if times + 1 >= AGAIN || !lives {
                    self.maybe.remove(&tgid);
                }
            }
        }
    }

    /// Time of the next examination.
    pub fn next(&self) -> Option<Instant> {
        self.maybe.values().map(|(at, _)| *at).min()
    }

    /// Processes found since the last call.
    pub fn take_new(&mut self) -> Vec<(u32, PythonAt)> {
        std::mem::take(&mut self.new)
    }

    /// Replaces the interpreter's frames, recognised by their names, with functions of Python. They are
    /// appended to an incomplete stack too.
    pub fn splice(
        &mut self,
        maps: &ProcMaps,
        stack: &mut Stack,
        (names, whole): (&[Arc<str>], bool),
        codes: (&[u64], usize),
        functions: &mut Functions,
    ) {
        let is_loop = |(i, (&address, name)): (usize, (&u64, &Arc<str>))| {
            (address, self.processes.is_loop(stack.tgid, called((i, &address)), name))
        };
        let frames: Vec<(u64, bool)> = stack.user.iter().zip(names).enumerate().map(is_loop).collect();
        let Some(spliced) = self.processes.splice(maps, stack.tgid, (&frames, whole), |f| f.1, codes) else {
            return;
        };
        let frames = spliced.into_iter().map(|frame| match frame {
            Spliced::Kept(&(address, _)) => address,
            Spliced::Python(name) => functions.number(name),
        });
        stack.user = frames.collect();
    }

    /// Reasons why functions of Python have no names, one per line.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.processes.notes()
    }

    /// Forgets processes.
    pub fn forget(&mut self) {
        self.processes.forget();
        self.maybe.clear();
    }
}
