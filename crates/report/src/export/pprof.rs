//! A profile as `go tool pprof` reads it (profile.proto of github.com/google/pprof).

use std::collections::HashMap;

use ncpu_record::Recording;
use ncpu_schema::{Error, StackKind, summary};

use super::wire::Message;
use super::{KERNEL, sums};

/// Words by number, as the profile holds them.
#[derive(Default)]
struct Words<'a> {
    numbers: HashMap<&'a str, u64>,
    all: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn number(&mut self, word: &'a str) -> u64 {
        let all = &mut self.all;
        *self.numbers.entry(word).or_insert_with(|| {
            all.push(word);
            all.len() as u64 - 1
        })
    }
}

/// Mappings: code of programs, whose addresses are not kept, and of the kernel.
const MAPPINGS: [&str; 2] = ["[programs]", "[kernel]"];

/// The stacks of a recording with four values each: timer samples, time on CPU, the part of that spinning in kernel locks,
/// and time off CPU, in nanoseconds. The process is a label. `first` is the one that is shown where none is asked for.
///
/// # Errors
/// A table is not as the schema has it.
pub fn pprof(recording: &Recording, first: StackKind) -> Result<Vec<u8>, Error> {
    let stacks = sums(recording)?;
    let summary = summary::Reader::open(recording)?;
    let elapsed = summary.as_ref().and_then(|s| s.elapsed.get(0)).unwrap_or(0.0);
    let hz = summary.as_ref().and_then(|s| s.hz.get(0)).unwrap_or(0);
    let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;

    let mut words = Words::default();
    // The first must be empty.
    words.number("");
    let value_type = |words: &mut Words<'_>, ty, unit| {
        Message::default().int(1, words.number(ty)).int(2, words.number(unit))
    };
    let mut out = Message::default();
    for (ty, unit) in
        [("samples", "count"), ("cpu", "nanoseconds"), ("spin", "nanoseconds"), ("off-cpu", "nanoseconds")]
    {
        out = out.message(1, value_type(&mut words, ty, unit));
    }
    let process = words.number("process");
    // A function has one place: there are no addresses.
    let mut places: HashMap<(&str, bool), u64> = HashMap::new();
    let mut order = Vec::new();
    for (stack, kinds) in &stacks {
        let (name, frames) = stack.split_once(';').unwrap_or((stack, stack));
        let mut locations: Vec<u64> = frames
            .split(';')
            .map(|frame| {
                let (name, kernel) = frame.strip_suffix(KERNEL).map_or((frame, false), |name| (name, true));
                *places.entry((name, kernel)).or_insert_with(|| {
                    order.push((name, kernel));
                    order.len() as u64
                })
            })
            .collect();
        locations.reverse();
        let of = |kind: StackKind| kinds[kind as usize];
        let (on, spin, off) = (of(StackKind::OnCpu), of(StackKind::Spin), of(StackKind::OffCpu));
        let values = [on.1 + spin.1, nanoseconds(on.0 + spin.0), nanoseconds(spin.0), nanoseconds(off.0)];
        let label = Message::default().int(1, process).int(2, words.number(name));
        out = out.message(2, Message::default().ints(1, locations).ints(2, values).message(3, label));
    }
    for (id, name) in (1..).zip(MAPPINGS) {
        let mapping = Message::default().int(1, id).int(5, words.number(name)).int(7, 1);
        out = out.message(3, mapping);
    }
    for (id, (name, kernel)) in (1..).zip(order) {
        let line = Message::default().int(1, id);
        let mapping = if kernel { 2 } else { 1 };
        out = out.message(4, Message::default().int(1, id).int(2, mapping).message(4, line));
        let name = words.number(name);
        out = out.message(5, Message::default().int(1, id).int(2, name).int(3, name));
    }
    let first = words.number(match first {
        StackKind::OnCpu => "cpu",
        StackKind::Spin => "spin",
        StackKind::OffCpu => "off-cpu",
    });
    let period = value_type(&mut words, "cpu", "nanoseconds");
    for word in words.all {
        out = out.text(6, word);
    }
    let out = out
        .int(9, nanoseconds(recording.manifest.created_unix))
        .int(10, nanoseconds(elapsed))
        .message(11, period)
        .int(12, 1_000_000_000u64.checked_div(hz).unwrap_or(0))
        .int(14, first);
    Ok(out.finish())
}
