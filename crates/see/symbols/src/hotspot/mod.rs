//! Java's stacks in HotSpot. Its compiled code has no frame pointers, no unwind tables, and no names in any
//! file. The virtual machine describes its structures itself, for debuggers ([`layout`]), and the rest is
//! read from the process's memory.

mod code;
#[cfg(any(test, fuzzing))]
pub(crate) mod example;
mod layout;
mod memory;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::elf::Segments;
use crate::maps::ProcMaps;
use crate::recent::Recent;
use code::{Blob, Heap};
use layout::{Layout, Symbols};
use memory::{Blocks, Memory};

/// The name of the library.
const LIBRARY: &str = "libjvm.so";
/// Virtual machines that are kept, and processes without one that are remembered, per generation.
const MAX_MACHINES: usize = 64;
const MAX_WITHOUT: usize = 1 << 10;
/// Cached addresses and functions of one machine, per generation.
const MAX_PLACES: usize = 1 << 12;
const MAX_METHODS: usize = 1 << 12;
/// The most bytes of both in all machines, per generation: each address may have many functions with names of their own.
const MAX_BYTES: usize = 8 << 20;
/// The most addresses of one machine looked up in that time: a program may forge its return addresses.
const MAX_LOOKS: usize = 1 << 13;
/// For how long the code and the method at an address are assumed unchanged.
const SURE: Duration = Duration::from_secs(1);
const NAMED: Duration = Duration::from_secs(10);
/// The waiting time before a process is examined again whose machine is just starting: the first, and the
/// longest.
const FIRST_AGAIN: Duration = Duration::from_millis(5);
const LAST_AGAIN: Duration = Duration::from_secs(10);
/// The time for which the extent of the code cache is not read again.
const GROWS: Duration = Duration::from_millis(100);
/// Frames of the interpreter: words from the frame pointer to the caller's stack pointer and to the function
/// (`frame_x86.hpp`).
const SENDER: u64 = 8;
const METHOD: u64 = 24;
/// For frames without more information.
const INTERPRETER: &str = "[Interpreter]";

/// The virtual machines of the processes seen so far.
pub(crate) struct Machines {
    libraries: HashMap<u32, Option<(Symbols, Segments)>>,
    machines: HashMap<u32, Known>,
    /// Images of processes without one.
    without: Recent<u32, (usize, usize)>,
}

/// A process and the library, which its image maps at `start`.
struct Known {
    image: (usize, usize),
    start: u64,
    machine: Option<Machine>,
    next: Instant,
    wait: Duration,
}

impl Default for Machines {
    fn default() -> Machines {
        let (libraries, machines) = Default::default();
        Machines { libraries, machines, without: Recent::new(MAX_WITHOUT) }
    }
}

impl Machines {
    /// The virtual machine of a process, if it has one with a known layout.
    pub fn machine_of(&mut self, maps: &ProcMaps, tgid: u32) -> Option<&mut Machine> {
        let image = maps.image(tgid)?;
        if cfg!(not(target_arch = "x86_64")) || self.without.get(&tgid) == Some(&image) {
            return None;
        }
        if self.machines.get(&tgid).is_none_or(|known| known.image != image || known.machine.is_none()) {
            self.look(maps, tgid, image)?;
        }
        turn(self.machines.values_mut().filter_map(|known| known.machine.as_mut()));
        self.machines.get_mut(&tgid)?.machine.as_mut()
    }

    /// Searches the process's mappings for it.
    fn look(&mut self, maps: &ProcMaps, tgid: u32, image: (usize, usize)) -> Option<()> {
        let library = maps.mapped(tgid).into_iter().find(|(file, ..)| &*maps.file(*file).label == LIBRARY);
        let Some((file, start, offset)) = library else {
            self.without.insert(tgid, image);
            return None;
        };
        let library = match self.libraries.entry(file) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let source = maps.to_parse(file)?;
                new.insert(Symbols::read(&source).zip(Segments::read(&source)))
            }
        };
        let (symbols, segments) = library.as_ref()?;
        if self.machines.len() >= MAX_MACHINES && !self.machines.contains_key(&tgid) {
            self.machines.clear();
        }
        let now = Instant::now();
        let new = || Known { image, start, machine: None, next: now, wait: FIRST_AGAIN };
        let known = self.machines.entry(tgid).or_insert_with(new);
        if known.start != start {
            // The process runs another program.
            *known = new();
        }
        known.image = image;
        if known.machine.is_none() && now >= known.next {
            known.next = now + known.wait;
            known.wait = (2 * known.wait).min(LAST_AGAIN);
            let bias = segments.bias(start, offset)?;
            known.machine = Machine::read(Blocks::new(maps.memory(tgid)?), symbols, bias);
        }
        Some(())
    }
}

/// Forgets addresses and functions of all machines that were not used lately, if there are too many bytes of them.
fn turn<'a, M: 'a>(machines: impl Iterator<Item = &'a mut Machine<M>>) {
    let machines: Vec<_> = machines.collect();
    if machines.iter().map(|machine| machine.bytes).sum::<usize>() > MAX_BYTES {
        for machine in machines {
            machine.bytes = 0;
            machine.places.turn();
            machine.methods.turn();
        }
    }
}

/// A virtual machine.
pub(crate) struct Machine<M = Blocks> {
    memory: M,
    layout: Layout,
    bias: u64,
    heaps: Vec<Heap>,
    interpreter: (u64, u64),
    /// The time when the extent is read again.
    next: Instant,
    /// The start of the period, and the number of addresses looked up in it.
    looks: (Instant, usize),
    places: Recent<u64, (Instant, Option<Arc<Place>>)>,
    methods: Recent<u64, (Instant, Option<Arc<str>>)>,
    /// Bytes of new ones since they were last turned over.
    bytes: usize,
}

/// The code at an address of the code cache.
struct Place {
    blob: Blob,
    functions: Arc<[Arc<str>]>,
}

/// Registers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
}

/// A frame's caller: the address that its return address was read from, its registers, and the address of the
/// function for a frame of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub word: u64,
    pub frame: Frame,
    pub method: Option<u64>,
}

impl<M: Memory> Machine<M> {
    fn read(memory: M, symbols: &Symbols, bias: u64) -> Option<Machine<M>> {
        let layout = Layout::read(&memory, symbols, bias)?;
        let interpreter = code::interpreter(&memory, &layout, bias)?;
        let heaps = code::heaps(&memory, &layout, bias)?;
        let next = Instant::now() + GROWS;
        let (places, methods) = (Recent::new(MAX_PLACES), Recent::new(MAX_METHODS));
        let looks = (next, 0);
        Some(Machine { memory, layout, bias, heaps, interpreter, next, looks, places, methods, bytes: 0 })
    }

    /// Whether an address lies in generated code.
    pub fn holds(&mut self, address: u64) -> bool {
        let held = |heaps: &[Heap]| heaps.iter().any(|h| h.holds(address));
        if !held(&self.heaps) && Instant::now() >= self.next {
            self.next = Instant::now() + GROWS;
            if let Some(heaps) = code::heaps(&self.memory, &self.layout, self.bias) {
                self.heaps = heaps;
            }
        }
        held(&self.heaps)
    }

    /// The functions at an address that it [`holds`](Machine::holds), innermost first. For the innermost
    /// frame `ip` is the current address, for others the return address. `method` is the interpreter's
    /// function, if known; of the innermost frame the interpreter follows it, as what runs it.
    pub fn functions(&mut self, ip: u64, innermost: bool, method: Option<u64>) -> Arc<[Arc<str>]> {
        if self.interprets(ip) {
            return match method.and_then(|method| self.name(method)) {
                Some(name) if innermost => Arc::new([name, INTERPRETER.into()]),
                Some(name) => Arc::new([name]),
                None => Arc::new([INTERPRETER.into()]),
            };
        }
        match self.place(ip, innermost) {
            Some(place) => place.functions.clone(),
            None => Arc::new([]),
        }
    }

    /// The functions of those frames of a stack, innermost first, that it [`holds`](Machine::holds), with the
    /// frames' numbers. Frames that are not reached in time have none: each may read a megabyte of tables.
    pub fn functions_of(&mut self, frames: &[u64], until: Instant) -> Vec<(usize, Arc<[Arc<str>]>)> {
        let within = frames.iter().enumerate().take_while(|_| Instant::now() < until);
        let found = within.filter_map(|(i, &ip)| {
            let held = self.holds(ip.checked_sub(u64::from(i > 0))?);
            let functions = held.then(|| self.functions(ip, i == 0, None))?;
            (!functions.is_empty()).then_some((i, functions))
        });
        found.collect()
    }

    /// The caller of a frame in code that it [`holds`](Machine::holds), and its functions. `read` reads the
    /// stack, `is_code` decides whether an address is code.
    pub fn caller(
        &mut self,
        frame: Frame,
        innermost: bool,
        read: &mut impl FnMut(u64) -> Option<u64>,
        is_code: impl Fn(u64) -> bool,
    ) -> (Arc<[Arc<str>]>, Option<Caller>) {
        let Frame { ip, sp, bp } = frame;
        if self.interprets(ip) {
            let method = bp.checked_sub(METHOD).and_then(&mut *read);
            let caller = by_frame_pointer(frame, read).map(|mut caller| {
                // If the caller was compiled its frame begins there: arguments may lie between.
                let sender = bp.checked_sub(SENDER).and_then(&mut *read);
                caller.frame.sp = sender.filter(|s| *s > bp && s % 8 == 0).unwrap_or(caller.frame.sp);
                Caller { method: bp.checked_sub(METHOD), ..caller }
            });
            return (self.functions(ip, innermost, method), caller.filter(|c| is_code(c.frame.ip)));
        }
        let Some(place) = self.place(ip, innermost) else { return (Arc::new([]), None) };
        let mut at = |word: u64, saved: Option<u64>| {
            let ip = read(word).filter(|ip| is_code(*ip))?;
            let bp = saved.map_or(Some(bp), &mut *read)?;
            Some(Caller { word, frame: Frame { ip, sp: word.checked_add(8)?, bp }, method: None })
        };
        let size = place.blob.frame;
        // Offsets in words of the return address and of the frame pointer: before the frame is made and after
        // it was removed, between, and of a complete frame, in which the frame pointer lies below the return
        // address whether it is used as one or not.
        let gone = Some((sp, None));
        let pushed = sp.checked_add(8).map(|word| (word, Some(sp)));
        let whole = sp.checked_add(size).and_then(|end| end.checked_sub(8)).filter(|_| size >= 16);
        let whole = whole.map(|word| (word, word.checked_sub(8)));
        let may_be = match innermost {
            false => [whole, None, None],
            true if ip < place.blob.complete && place.blob.method.is_some() => [gone, pushed, whole],
            true => match ends(&self.memory, ip) {
                Some(Ends::Popped) => [gone, None, None],
                Some(Ends::Pops) => [pushed, None, None],
                None if size == 0 => [gone, None, None],
                None => [whole, None, None],
            },
        };
        let caller = may_be.into_iter().flatten().find_map(|(word, saved)| at(word, saved));
        let caller = caller.or_else(|| match size {
            // Stubs that call Java, or that Java calls, have frames like C.
            0 => by_frame_pointer(frame, read).filter(|c| is_code(c.frame.ip)),
            _ => None,
        });
        (place.functions.clone(), caller)
    }

    fn interprets(&self, ip: u64) -> bool {
        (self.interpreter.0..self.interpreter.1).contains(&ip)
    }

    fn place(&mut self, ip: u64, innermost: bool) -> Option<Arc<Place>> {
        let now = Instant::now();
        // One address may be looked up in both ways.
        let key = ip << 1 | u64::from(innermost);
        let known = self.places.get(&key).cloned();
        if let Some((until, place)) = known {
            if now < until {
                return place;
            }
            if let Some(place) = place.filter(|p| code::is_still(&self.memory, &self.layout, &p.blob)) {
                self.places.insert(key, (now + SURE, Some(place.clone())));
                return Some(place);
            }
        }
        if now.duration_since(self.looks.0) >= SURE {
            self.looks = (now, 0);
        }
        self.looks.1 += 1;
        if self.looks.1 > MAX_LOOKS {
            return None;
        }
        let place = self.look(ip, innermost).map(Arc::new);
        let functions =
            place.as_ref().map_or(0, |place| size_of_val(&*place.functions) + place.blob.name.len());
        self.bytes += size_of::<(u64, Place)>() + functions;
        self.places.insert(key, (now + SURE, place.clone()));
        place
    }

    fn look(&mut self, ip: u64, innermost: bool) -> Option<Place> {
        // A call at the very end of a function returns behind its code.
        let within = ip.checked_sub(u64::from(!innermost))?;
        let blob = code::blob(&self.memory, &self.layout, &self.heaps, within)?;
        let functions = match blob.method {
            Some(_) => {
                let methods = code::functions(&self.memory, &self.layout, &blob, ip);
                let names: Option<Vec<_>> = methods.into_iter().map(|m| self.name(m)).collect();
                names.unwrap_or_else(|| vec!["[unknown Java]".into()])
            }
            None => vec![format!("[{}]", blob.name).into()],
        };
        Some(Place { blob, functions: functions.into() })
    }

    fn name(&mut self, method: u64) -> Option<Arc<str>> {
        let now = Instant::now();
        if let Some((until, name)) = self.methods.get(&method)
            && now < *until
        {
            return name.clone();
        }
        let name: Option<Arc<str>> = code::name(&self.memory, &self.layout, method).map(Into::into);
        self.bytes += size_of::<(u64, Instant, Arc<str>)>() + name.as_ref().map_or(0, |name| name.len());
        self.methods.insert(method, (now + NAMED, name.clone()));
        name
    }
}

/// The caller of a frame that begins with the caller's frame pointer.
fn by_frame_pointer(frame: Frame, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Caller> {
    let word = frame.bp.checked_add(8).filter(|_| frame.bp >= frame.sp)?;
    let (ip, bp) = (read(word)?, read(frame.bp)?);
    Some(Caller { word, frame: Frame { ip, sp: word.checked_add(8)?, bp }, method: None })
}

/// The rest of a frame at the end of a function.
enum Ends {
    /// The frame pointer is not popped yet.
    Pops,
    /// Only the return address is left.
    Popped,
}

/// Whether the instruction at an address belongs to the end of a compiled function: `pop %rbp`; `cmp` of the
/// stack pointer with the safepoint's poll address, and `ja` to it; `ret`.
fn ends(memory: &impl Memory, ip: u64) -> Option<Ends> {
    let mut code = [0; 7];
    memory.read(ip, &mut code)?;
    match code {
        [0x5d, ..] => Some(Ends::Pops),
        [0xc3, ..] | [0x49, 0x3b, 0x67 | 0xa7, ..] | [0x0f, 0x87, _, _, _, _, 0xc3] => Some(Ends::Popped),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::example::*;
    use super::*;

    /// Memory that takes its time.
    struct Slow(Bytes);

    impl Memory for Slow {
        fn read(&self, at: u64, into: &mut [u8]) -> Option<()> {
            std::thread::sleep(Duration::from_millis(2));
            self.0.read(at, into)
        }
    }

    #[test]
    fn a_stack_in_slow_memory_has_names_as_far_as_time_allows() {
        let frames: Vec<u64> = (0..100).map(|i| BEGIN + i).collect();
        let until = |time: u64| Instant::now() + Duration::from_millis(time);
        let named = machine(one_function()).unwrap().functions_of(&frames, until(60_000));
        assert!(named.len() == frames.len() && *named[99].1[0] == *"a.B.run");
        let mut slow = machine(Slow(one_function())).unwrap();
        // A frame takes ten reads at least.
        let named = slow.functions_of(&frames, until(200));
        assert!(named.len() <= 10, "{} frames", named.len());
        assert!(slow.functions_of(&frames, until(0)).is_empty());
    }

    #[test]
    fn a_compiled_functions_caller_is_found_from_all_its_instructions() {
        let mut memory = one_function();
        // `pop %rbp; ret` at its end, with a safepoint poll between.
        memory.put(BEGIN + 0x40, &[0x5d, 0x49, 0x3b, 0x67, 0x28, 0x0f, 0x87, 0, 0, 0, 0, 0xc3]);
        let mut machine = machine(memory).expect("it is one");
        let (sp, returns, bp) = (0x9000, 0x5555, 0x7777);
        let is_code = |ip: u64| ip == returns;
        // The words from the stack pointer to the frame pointer and to the return address.
        for (at, innermost, saved) in [
            (0, true, None),
            (4, true, Some(0)),
            (0x20, true, Some(2)),
            (0x20, false, Some(2)),
            (0x40, true, Some(0)),
            (0x41, true, None),
            (0x45, true, None),
            (0x4b, true, None),
        ] {
            let word = saved.map_or(0, |s| s + 1);
            let mut stack = [0x1234; 8];
            stack[word] = returns;
            if let Some(saved) = saved {
                stack[saved] = bp;
            }
            let mut read = |a: u64| stack.get((a - sp) as usize / 8).copied();
            let frame = Frame { ip: BEGIN + at, sp, bp: 0x42 };
            assert!(machine.holds(frame.ip));
            let (functions, caller) = machine.caller(frame, innermost, &mut read, is_code);
            let names: Vec<&str> = functions.iter().map(|f| &**f).collect();
            assert_eq!(names, ["a.B.run"], "{at:#x}");
            let word = sp + 8 * word as u64;
            let bp = if saved.is_some() { bp } else { 0x42 };
            let frame = Frame { ip: returns, sp: word + 8, bp };
            let truth = Caller { word, frame, method: None };
            assert_eq!(caller, Some(truth), "{at:#x}");
        }
        // There is no code at the address, or none at the return address.
        let nowhere = Frame { ip: CODE + 0x500, sp, bp };
        assert_eq!(machine.caller(nowhere, true, &mut |_| Some(returns), is_code).1, None);
        let frame = Frame { ip: BEGIN + 0x20, sp, bp };
        assert_eq!(machine.caller(frame, false, &mut |_| Some(1), is_code).1, None);
        assert_eq!(machine.caller(frame, false, &mut |_| None, is_code).1, None);
        // A frame of the interpreter.
        let frame = Frame { ip: CODE + 0x810, sp, bp: sp + 24 };
        let stack = [0x1900, 0, sp + 80, bp, returns];
        let (functions, caller) =
            machine.caller(frame, true, &mut |a| stack.get((a - sp) as usize / 8).copied(), is_code);
        let names: Vec<&str> = functions.iter().map(|f| &**f).collect();
        assert_eq!(names, ["a.B.run", INTERPRETER], "what is interpreted says so");
        assert_eq!(&*machine.functions(frame.ip, false, Some(0x1900)), &["a.B.run".into()]);
        let caller = caller.expect("a caller");
        assert_eq!((caller.word, caller.frame.sp, caller.frame.bp), (sp + 32, sp + 80, bp));
        assert_eq!(caller.method, Some(sp));
    }

    /// The function with itself inlined into it again and again, as its tables say.
    fn inlined(times: u8) -> Bytes {
        let (counters, names, scopes) = (0x5000, 0x5100, 0x5200);
        let mut memory = one_function();
        let from_blob = |at: u64| ((at - BLOB) as u32).to_le_bytes();
        memory.put(BLOB + 268, &from_blob(counters));
        memory.put(BLOB + 272, &from_blob(counters + 3 * 16));
        memory.put(BLOB + 260, &from_blob(names));
        memory.word(BLOB + 120, scopes);
        memory.word(names, 0x1900);
        // Code up to an address is of the last scope; the limits come before and after.
        for (i, (to, scope)) in
            [(-1i32, 0), (0x1000, 3 * i32::from(times)), (0x2000, 0)].into_iter().enumerate()
        {
            memory.put(counters + 16 * i as u64, &[to.to_le_bytes(), scope.to_le_bytes()].concat());
        }
        // Each is followed by the number of its function.
        for i in 1..=times {
            memory.put(scopes + 3 * u64::from(i), &[3 * (i - 1), 1]);
        }
        memory
    }

    #[test]
    fn addresses_of_many_machines_take_little_memory() {
        let one = || {
            let mut machine = machine(inlined(60)).expect("it is one");
            (machine.places, machine.methods) = (Recent::new(MAX_PLACES), Recent::new(MAX_METHODS));
            machine
        };
        let mut machines: Vec<_> = (0..64).map(|_| one()).collect();
        for ip in BEGIN..BEGIN + 0x180 {
            for machine in &mut machines {
                let functions = machine.functions(ip, false, None);
                assert!(
                    functions.len() == 60 && functions.iter().all(|name| &**name == "a.B.run"),
                    "{functions:?}"
                );
            }
            turn(machines.iter_mut());
            let bytes: usize =
                machines.iter().map(|machine| machine.places.len() * 60 * size_of::<Arc<str>>()).sum();
            assert!(bytes < 2 * MAX_BYTES + (1 << 20), "{bytes}");
        }
    }

    fn words() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), BASE..BASE + 0x6000, 0..600u64, Just(BLOB), Just(CODE), any::<u64>()]
    }

    proptest! {
        #[test]
        fn nonsense_in_memory_is_read_within_bounds(
            changed in proptest::collection::vec((0..0xc00usize, words()), 0..200),
            registers in proptest::collection::vec((words(), words(), words(), any::<bool>()), 1..8),
        ) {
            let mut memory = one_function();
            for (at, word) in changed {
                memory.word(BASE + 8 * at as u64, word);
            }
            let copy = memory.0.clone();
            let Some(mut machine) = machine(memory) else { return Ok(()) };
            for (ip, sp, bp, innermost) in registers {
                machine.holds(ip);
                let mut read = |at: u64| Bytes(copy.clone()).number(at, 8);
                let (functions, caller) =
                    machine.caller(Frame { ip, sp, bp }, innermost, &mut read, |ip| ip % 2 == 0);
                prop_assert!(functions.iter().all(|f| f.len() < 300 && !f.contains(char::is_control)));
                prop_assert!(caller.is_none_or(|c| c.frame.ip % 2 == 0));
            }
        }
    }
}
