//! Functions of Python and of JavaScript in stacks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_symbols::{Copied, ProcMaps, PythonAt, Pythons, Spliced, V8At, V8s};

use super::called;
use super::functions::Functions;
use crate::bpf_support::Stack;

/// First delay before a process that may have loaded an interpreter is examined again, and the number of
/// examinations. A process is first seen while still in its loader.
const FIRST_AGAIN: Duration = Duration::from_millis(5);
const AGAIN: u32 = 10;
const MAX_MAYBE: usize = 256;

/// Addresses and offsets by which the kernel side follows the frames of a process's scripts.
#[derive(Clone, Copy, Debug)]
pub enum Frames {
    /// Of Python.
    Python(PythonAt),
    /// Of V8.
    V8(V8At),
}

/// Processes that run scripts.
#[derive(Default)]
pub(super) struct Scripts {
    pythons: Pythons,
    v8s: V8s,
    new: Vec<(u32, Frames)>,
    /// Processes to examine again: the time, and the number of examinations so far.
    maybe: HashMap<u32, (Instant, u32)>,
}

impl Scripts {
    /// Examines a process whose mappings have just been noted.
    pub fn examine(&mut self, maps: &ProcMaps, tgid: u32) {
        self.maybe.remove(&tgid);
        let python = self.pythons.examine(maps, tgid).map(Frames::Python);
        if let Some(at) = python.or_else(|| self.v8s.examine(maps, tgid).map(Frames::V8)) {
            self.new.push((tgid, at));
        } else if (Pythons::may_be(maps, tgid) || V8s::may_be(maps, tgid)) && self.maybe.len() < MAX_MAYBE {
            self.maybe.insert(tgid, (Instant::now() + FIRST_AGAIN, 0));
        }
    }

    /// Examines due processes again, which may have loaded an interpreter since.
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
    pub fn take_new(&mut self) -> Vec<(u32, Frames)> {
        std::mem::take(&mut self.new)
    }

    /// Whether a process runs V8.
    pub fn runs_v8(&self, tgid: u32) -> bool {
        self.v8s.runs(tgid)
    }

    /// See [`V8s::in_copy`].
    pub fn in_copy(
        &mut self,
        maps: &ProcMaps,
        stack: &Stack,
        (names, words): (&[Arc<str>], &[Option<usize>]),
        copy: &Copied,
    ) -> Option<(Vec<u64>, Vec<usize>)> {
        let frames = stack.user.iter().zip(names).enumerate();
        let frames: Vec<(u64, bool)> = frames
            .map(|(i, (&address, name))| {
                (address, V8s::is_own(maps, stack.tgid, called((i, &address)), name))
            })
            .collect();
        self.v8s.in_copy(maps, stack.tgid, (&frames, words), &copy.words)
    }

    /// Puts functions of scripts in the places of the frames of what runs them, which have these names. They are appended to an
    /// incomplete stack too. `codes`, of which there are at most `most`, come from the kernel side.
    pub fn splice(
        &mut self,
        maps: &ProcMaps,
        stack: &mut Stack,
        (names, whole): (&[Arc<str>], bool),
        (codes, most): (&[u64], usize),
        functions: &mut Functions,
    ) {
        let tgid = stack.tgid;
        let named = |stands: &dyn Fn(u64, &str) -> bool| -> Vec<(u64, bool)> {
            let frames = stack.user.iter().zip(names).enumerate();
            frames.map(|(i, (&address, name))| (address, stands(called((i, &address)), name))).collect()
        };
        let frames = named(&|address, name| self.pythons.is_loop(tgid, address, name));
        let code;
        let spliced = match self.pythons.splice(maps, tgid, (&frames, whole), |f| f.1, (codes, most)) {
            Some(spliced) => spliced,
            None => {
                code = named(&|address, name| V8s::stands_for(maps, tgid, address, name));
                match self.v8s.splice(maps, tgid, (&code, whole), codes) {
                    Some(spliced) => spliced,
                    None => return,
                }
            }
        };
        let frames = spliced.into_iter().map(|frame| match frame {
            Spliced::Kept(&(address, _)) => address,
            Spliced::Named(name) => functions.number(name),
        });
        stack.user = frames.collect();
    }

    /// Reasons why functions of Python have no names, one per line.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.pythons.notes()
    }

    /// Forgets processes.
    pub fn forget(&mut self) {
        self.pythons.forget();
        self.v8s.forget();
        self.maybe.clear();
    }
}
