//! Functions of Python in stacks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_symbols::{ProcMaps, PythonAt, Pythons, Spliced};

use super::called;
use super::functions::Functions;
use crate::bpf_support::Stack;

/// After how long a process is looked at again that may have loaded Python since, at first, and how often: it is met in
/// its loader already.
const FIRST_AGAIN: Duration = Duration::from_millis(5);
const AGAIN: u32 = 10;
const MAX_MAYBE: usize = 256;

/// Processes of Python.
#[derive(Default)]
pub(super) struct Python {
    processes: Pythons,
    new: Vec<(u32, PythonAt)>,
    /// Processes that are to be looked at again: when, and how often they were.
    maybe: HashMap<u32, (Instant, u32)>,
}

impl Python {
    /// A process whose mappings have just been noted.
    pub fn meet(&mut self, maps: &ProcMaps, tgid: u32) {
        self.maybe.remove(&tgid);
        if let Some(at) = self.processes.meet(maps, tgid) {
            self.new.push((tgid, at));
        } else if Pythons::may_be(maps, tgid) && self.maybe.len() < MAX_MAYBE {
            self.maybe.insert(tgid, (Instant::now() + FIRST_AGAIN, 0));
        }
    }

    /// Looks again at processes that may have loaded Python since.
    pub fn look(&mut self, maps: &mut ProcMaps, now: Instant) {
        let due: Vec<(u32, u32)> = self
            .maybe
            .iter()
            .filter(|(_, (at, _))| now >= *at)
            .map(|(pid, (_, times))| (*pid, *times))
            .collect();
        for (tgid, times) in due {
            let lives = maps.note_process(tgid);
            self.meet(maps, tgid);
            if let Some(maybe) = self.maybe.get_mut(&tgid) {
                *maybe = (now + FIRST_AGAIN * (2 << times), times + 1);
                if times + 1 >= AGAIN || !lives {
                    self.maybe.remove(&tgid);
                }
            }
        }
    }

    /// When the next of them is to be looked at.
    pub fn next(&self) -> Option<Instant> {
        self.maybe.values().map(|(at, _)| *at).min()
    }

    /// Processes met since the last call.
    pub fn take_new(&mut self) -> Vec<(u32, PythonAt)> {
        std::mem::take(&mut self.new)
    }

    /// Puts functions of Python in the places of the interpreter's, whose names the frames have; behind a stack that is not
    /// whole, too.
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

    /// What keeps functions of Python from having names, a line each.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.processes.notes()
    }

    /// Forgets processes.
    pub fn forget(&mut self) {
        self.processes.forget();
        self.maybe.clear();
    }
}
