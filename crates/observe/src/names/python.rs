//! Functions of Python in stacks: each stands at an address that no code has.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_symbols::{ProcMaps, PythonAt, Pythons, Spliced};

use crate::bpf_support::Stack;

/// No code can lie here.
const BASE: u64 = 1 << 63;
/// Names kept, of 240 bytes at most as a rule; all others are told as what [`NO_ROOM`] stands for.
const MAX_NAMES: usize = 1 << 15;
const NO_ROOM: u64 = BASE + 2 * MAX_NAMES as u64 + 1;
/// After how long a process is looked at again that may have loaded Python since, at first, and how often: it is met in
/// its loader already.
const FIRST_AGAIN: Duration = Duration::from_millis(5);
const AGAIN: u32 = 10;
const MAX_MAYBE: usize = 256;

/// Processes of Python, and the names of their functions.
#[derive(Default)]
pub(super) struct Python {
    processes: Pythons,
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
    new: Vec<(u32, PythonAt)>,
    /// Processes that are to be looked at again: when, and how often they were.
    maybe: HashMap<u32, (Instant, u32)>,
}

impl Python {
    /// Whether an address stands for a function of Python.
    pub fn is_one(address: u64) -> bool {
        (BASE..=NO_ROOM).contains(&address)
    }

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
    ) {
        let frames: Vec<(u64, bool)> =
            stack.user.iter().zip(names).map(|(&a, name)| (a, Pythons::is_loop(name))).collect();
        let Some(spliced) = self.processes.splice(maps, stack.tgid, (&frames, whole), |f| f.1, codes) else {
            return;
        };
        let frames = spliced.into_iter().map(|frame| match frame {
            Spliced::Kept(&(address, _)) => address,
            Spliced::Python(name) => self.number(name),
        });
        stack.user = frames.collect();
    }

    fn number(&mut self, name: Arc<str>) -> u64 {
        if let Some(&n) = self.numbers.get(&name) {
            return n;
        }
        if self.names.len() >= MAX_NAMES {
            return NO_ROOM;
        }
        // Callers are looked up one byte before: two addresses each.
        let n = BASE + 2 * self.names.len() as u64 + 1;
        self.names.push(name.clone());
        self.numbers.insert(name, n);
        n
    }

    /// Names of frames: those of Python here, the others given in their order.
    pub fn among(&self, frames: &[u64], others: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let mut others = others.into_iter();
        let of = |&address: &u64| match Python::is_one(address) {
            true => self.names.get(((address - BASE) / 2) as usize).cloned(),
            false => others.next(),
        };
        frames.iter().map(of).map(|name| name.unwrap_or_else(|| "[more of Python]".into())).collect()
    }

    /// What keeps functions of Python from having names, a line each.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.processes.notes()
    }

    /// Forgets processes; names stay, for stacks have them.
    pub fn forget(&mut self) {
        self.processes.forget();
        self.maybe.clear();
    }
}
