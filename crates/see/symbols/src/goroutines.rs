//! Goroutines of a Go program, and where and for what they wait, as its memory says.

use std::collections::HashMap;

use ncpu_files::reader::Source;

use crate::elf::named_symbols;

/// No program has more goroutines.
const MAX_ALL: u64 = 1 << 26;
/// Bytes read of `runtime.g`, and of a waiting goroutine's stack: its last calls.
const OF_G: usize = 432;
const OF_STACK: u64 = 2048;
/// Memory that is read at once for several.
const NEAR: usize = 1 << 17;
/// Callers of a goroutine that waits.
const CALLERS: usize = 24;
/// `runtime.g`, in words: the end of its stack; `sched`, with stack pointer, place in the code and the goroutine itself.
const STACK_END: usize = 1;
const SCHED: usize = 7;
/// The frame pointer in it, before Go 1.25 and since.
const FRAME: [usize; 2] = [SCHED + 6, SCHED + 5];
/// `atomicstatus` in bytes: one word more lies before it from Go 1.23, and one less from 1.25. Behind it are the goroutine's number
/// and, as the 32nd byte, the reason for which it waits.
const STATUS: [usize; 2] = [144, 152];
/// Beside another status: the collector reads its stack.
const SCANNED: u32 = 0x1000;
/// `runtime.sudog`, in words: what is read, and where the channel may be (10 before Go 1.26).
const OF_SUDOG: usize = 13;
const CHANNEL: std::ops::Range<usize> = 8..OF_SUDOG;
/// No channel has more places.
const MAX_PLACES: u64 = 1 << 32;
/// `runtime.hchan` in words, from Go 1.23: its timer and the type of its elements.
const OF_CHANNEL: usize = 6;
const TIMER: usize = 4;
const TYPE: usize = 5;
/// `runtime.timer` in words: when it strikes, and its period behind. From Go 1.25 one word more lies before these, which is zero but in
/// tests with a clock of their own.
const OF_TIMER: usize = 5;
const WHEN: usize = 2;
/// The places in queues of a goroutine that selects, which are followed.
const SELECTED: usize = 8;

/// State of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoState {
    /// It could run.
    Runnable,
    /// It runs.
    Running,
    /// It is in a system call.
    Call,
    /// It waits, for the reason of this number (`runtime.waitReason`).
    Waits(u8),
}

/// A goroutine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Goroutine {
    /// Its state.
    pub state: GoState,
    /// Where it waits, innermost first; empty if it does not.
    pub frames: Vec<u64>,
    /// How many places the channel has that it waits for, where it waits for one.
    pub places: Option<u64>,
    /// Whether one of the channels that it waits for is that of a timer which strikes once.
    pub timer: bool,
}

/// Where a Go program has the list of its goroutines. Nothing if it has no symbols, or is none.
pub fn goroutine_list(file: &Source) -> Option<u64> {
    named_symbols(file, false, &["runtime.allgs"])[0].map(|(address, _)| address)
}

/// Some of the goroutines of a process, `most` at most from number `from` on, round and round, and how many there are (with the places
/// of ended ones, which are kept). Nothing where its memory cannot be read.
pub fn goroutines(memory: &Source, list: u64, from: u64, most: u64) -> Option<(u64, Vec<Goroutine>)> {
    let [first, all] = words(memory, list)?;
    if all == 0 || all > MAX_ALL {
        return None;
    }
    let (from, most) = (from % all, most.min(all));
    let (mut found, mut known) = (Vec::new(), HashMap::new());
    for part in [from..(from + most).min(all), 0..(from + most).saturating_sub(all)] {
        let mut bytes = vec![0; 8 * (part.end - part.start) as usize];
        memory.read_exact_at(&mut bytes, first.checked_add(8 * part.start)?).ok()?;
        let each: Vec<u64> = bytes.as_chunks().0.iter().map(|g| u64::from_le_bytes(*g)).collect();
        let near = together(memory, &each);
        for g in each {
            // One that ends or goes on meanwhile is not seen.
            found.extend(goroutine(memory, g, near.as_ref(), &mut known));
        }
    }
    Some((all, found))
}

fn words<const N: usize>(memory: &Source, at: u64) -> Option<[u64; N]> {
    let mut bytes = vec![0; 8 * N];
    memory.read_exact_at(&mut bytes, at).ok()?;
    let mut out = [0; N];
    out.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    Some(out)
}

/// Those that were made together lie together: they are read at once, from the first of these addresses on.
fn together(memory: &Source, each: &[u64]) -> Option<(u64, Vec<u8>)> {
    let (first, last) = (*each.iter().min()?, *each.iter().max()?);
    let mut bytes = vec![0; usize::try_from(last - first).ok().filter(|n| *n <= NEAR)? + OF_G];
    memory.read_exact_at(&mut bytes, first).ok()?;
    Some((first, bytes))
}

/// The places of channels that goroutines wait for, and whether a timer's is among them, by their stacks.
type Known = HashMap<Vec<u64>, (Option<u64>, bool)>;

fn goroutine(
    memory: &Source,
    at: u64,
    near: Option<&(u64, Vec<u8>)>,
    known: &mut Known,
) -> Option<Goroutine> {
    let mut g = [0; OF_G];
    match near {
        Some((first, bytes)) => g.copy_from_slice(bytes.get((at - first) as usize..)?.get(..OF_G)?),
        None => memory.read_exact_at(&mut g, at).ok()?,
    }
    let word = |i: usize| u64::from_le_bytes(g.as_chunks().0[i]);
    let status = |&at: &usize| {
        let status = u32::from_le_bytes(*g[at..].first_chunk()?) & !SCANNED;
        let id = u64::from_le_bytes(*g[at + 8..].first_chunk()?);
        // Numbers of goroutines and statuses are small; a pointer in the place of one is large.
        ((1..=4).contains(&status) && id != 0 && id >> 40 == 0).then_some((status, g[at + 32]))
    };
    let state = match STATUS.iter().find_map(status)? {
        (1, _) => GoState::Runnable,
        (2, _) => GoState::Running,
        (3, _) => GoState::Call,
        (_, reason) => GoState::Waits(reason),
    };
    let mut found = Goroutine { state, frames: Vec::new(), places: None, timer: false };
    if matches!(state, GoState::Waits(_)) {
        let (end, [sp, pc, own]) = (word(STACK_END), [0, 1, 2].map(|i| word(SCHED + i)));
        let frame = FRAME.iter().map(|&i| word(i)).find(|frame| (sp..end).contains(frame))?;
        if own != at || !sp.is_multiple_of(8) {
            return None;
        }
        found.frames = frames(memory, sp, end, pc, frame)?;
        // The address of its place in a queue is behind its number and reason.
        let behind = STATUS[1] / 8 + 5;
        let looks = || {
            let mut all = g.as_chunks().0[behind..]
                .iter()
                .map(|w| queued(memory, u64::from_le_bytes(*w), at, SELECTED));
            all.find(|queued| queued.0.is_some() || queued.1).unwrap_or_default()
        };
        (found.places, found.timer) = *known.entry(found.frames.clone()).or_insert_with(looks);
    }
    Some(found)
}

/// The callers, by the frame pointers on the stack.
fn frames(memory: &Source, sp: u64, end: u64, pc: u64, mut frame: u64) -> Option<Vec<u64>> {
    let mut bytes = vec![0; (end - sp).min(OF_STACK) as usize];
    memory.read_exact_at(&mut bytes, sp).ok()?;
    let mut out = vec![pc];
    while out.len() < CALLERS && frame.is_multiple_of(8) {
        let Some(saved) = frame.checked_sub(sp).and_then(|at| bytes.get(at as usize..)?.first_chunk::<16>())
        else {
            break;
        };
        let [above, back] = [0, 1].map(|i| u64::from_le_bytes(saved.as_chunks().0[i]));
        if back == 0 {
            break;
        }
        out.push(back);
        if above <= frame {
            break;
        }
        frame = above;
    }
    Some(out)
}

/// The places of the channel that a goroutine waits for, if this word of it is the address of its `runtime.sudog`, and whether a timer
/// sends to that channel. A goroutine that selects has one for each of its channels, in a list: there the timer alone counts.
fn queued(memory: &Source, sudog: u64, g: u64, most: usize) -> (Option<u64>, bool) {
    let near = |word: u64| word >> 32 == g >> 32;
    // They lie in the same heap.
    if sudog == g || !sudog.is_multiple_of(8) || !near(sudog) {
        return (None, false);
    }
    let Some(found) = words::<OF_SUDOG>(memory, sudog).filter(|found| found[0] == g) else {
        return (None, false);
    };
    let Some(first) = found[CHANNEL].iter().copied().find(|&word| near(word)) else { return (None, false) };
    let Some(channel) = words::<OF_CHANNEL>(memory, first) else { return (None, false) };
    if channel[0] != g {
        let [held, places] = [channel[0], channel[1]];
        let places = (held <= places && places < MAX_PLACES).then_some(places);
        return (places, places.is_some() && strikes_once(memory, &channel));
    }
    // The next of the list lies before the channel.
    let own = found[CHANNEL].iter().rev().copied().find(|&word| near(word) && word != first);
    let timer = own
        .and_then(|own| words::<OF_CHANNEL>(memory, own))
        .is_some_and(|channel| channel[0] <= channel[1] && strikes_once(memory, &channel));
    (None, timer || most > 0 && queued(memory, first, g, most - 1).1)
}

/// Whether a timer sends to a channel, and not again and again. Older versions of Go do not say: they have the type where the timer is.
fn strikes_once(memory: &Source, channel: &[u64; OF_CHANNEL]) -> bool {
    // Types lie with the program's data, below the heap.
    let (timer, of) = (channel[TIMER], channel[TYPE]);
    let is_known = of > 1 << 16 && timer != 0 && timer != of && timer.is_multiple_of(8);
    is_known
        && words::<OF_TIMER>(memory, timer).is_some_and(|timer| {
            let when = if timer[WHEN] == 0 { WHEN + 1 } else { WHEN };
            timer[when] != 0 && timer[when + 1] == 0
        })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use ncpu_files::reader::Whose;

    use super::*;
    use crate::go_wait_reasons;

    const PROGRAM: &str = r#"package main

import "time"

func take(places chan int) { places <- 1 }

func await(timer <-chan time.Time) { <-timer }

func main() {
	places := make(chan int, 3)
	for i := 0; i < 8; i++ {
		go take(places)
	}
	go func() { time.Sleep(time.Hour) }()
	go await(time.NewTimer(time.Hour).C)
	go await(time.NewTicker(time.Hour).C)
	for i := 0; i < 2; i++ {
		go func() {
			select {
			case <-time.NewTimer(time.Hour).C:
			case <-make(chan int):
			}
		}()
	}
	time.Sleep(300 * time.Millisecond)
	print("ready\n")
	select {}
}
"#;

    #[test]
    fn goroutines_that_wait_for_a_channel_are_found_with_its_places() {
        let dir = tempfile::tempdir().expect("a directory");
        let (source, program) = (dir.path().join("main.go"), dir.path().join("main"));
        std::fs::write(&source, PROGRAM).expect("room");
        let built =
            Command::new("go").args(["build", "-gcflags=-l", "-o"]).arg(&program).arg(&source).status();
        if !built.is_ok_and(|status| status.success()) {
            return println!("skipped: no go");
        }
        let mut child = Command::new(&program).stderr(Stdio::piped()).spawn().expect("the program");
        child.stderr.take().expect("its output").read_exact(&mut [0; 5]).expect("ready");
        let file = Source::open(&program).expect("its file");
        let memory =
            Source::of_proc(format!("/proc/{}/mem", child.id()).as_ref(), Whose::OWN).expect("memory");
        let list = goroutine_list(&file).expect("the list");
        let reasons = go_wait_reasons(&file);
        let (all, found) = goroutines(&memory, list, 3, 1000).expect("goroutines");
        let (of_all, some) = goroutines(&memory, list, all - 1, 2).expect("two of them");
        child.kill().expect("killed");
        child.wait().expect("ended");
        let waits =
            |g: &&Goroutine| matches!(g.state, GoState::Waits(r) if reasons[r as usize] == "chan send");
        let sends: Vec<_> = found.iter().filter(waits).collect();
        assert_eq!(sends.len(), 5, "{found:x?} {reasons:?}");
        assert!(sends.iter().all(|g| g.places == Some(3) && g.frames.len() >= 3), "{sends:x?}");
        // Known since Go 1.23: of two that receive, one from a timer and one from a ticker, and of two that select.
        let timers = |reason: &str| {
            let of = found
                .iter()
                .filter(|g| matches!(g.state, GoState::Waits(r) if reasons[r as usize] == reason && g.timer));
            of.count()
        };
        assert_eq!((timers("chan receive"), timers("select"), timers("chan send")), (1, 2, 0), "{found:x?}");
        assert!(of_all == all && some.len() <= 2 && found.len() as u64 <= all);
    }
}
