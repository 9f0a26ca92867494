//! A profile as `go tool pprof` reads it (profile.proto of github.com/google/pprof).

use std::collections::HashMap;

use ncpu_record::Recording;
use ncpu_schema::{Error, StackKind, summary};

use super::wire::Message;
use super::words::{Function, NO_FILE, Words, nanoseconds};
use super::{Parts, sums};

/// The stacks of a recording with four values each: timer samples, time on CPU, the part of that spinning in kernel locks,
/// and time off CPU, in nanoseconds. Labels are `process`, `thread` and `wait`, the reason to be off CPU. Off CPU the leaf is
/// the function that waits and not the scheduler. `first` is the value that is shown where none is asked for.
///
/// # Errors
/// A table is not as the schema has it.
pub fn pprof(recording: &Recording, first: StackKind) -> Result<Vec<u8>, Error> {
    let stacks = sums(recording)?;
    let summary = summary::Reader::open(recording)?;
    let elapsed = summary.as_ref().and_then(|s| s.elapsed.get(0)).unwrap_or(0.0);
    let hz = summary.as_ref().and_then(|s| s.hz.get(0)).unwrap_or(0);

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
    let keys = ["process", "thread", "wait"].map(|key| words.number(key));
    // A function has one place: there are no addresses.
    let mut places: HashMap<Function<'_>, u64> = HashMap::new();
    let mut order = Vec::new();
    for (parts @ Parts { process, thread, wait, .. }, kinds) in &stacks {
        let mut locations: Vec<u64> = parts
            .with_files()
            .map(|frame| {
                let function = Function::of(frame);
                *places.entry(function).or_insert_with(|| {
                    order.push(function);
                    order.len() as u64
                })
            })
            .collect();
        locations.reverse();
        let of = |kind: StackKind| kinds[kind as usize];
        let (on, spin, off) = (of(StackKind::OnCpu), of(StackKind::Spin), of(StackKind::OffCpu));
        let values = [on.1 + spin.1, nanoseconds(on.0 + spin.0), nanoseconds(spin.0), nanoseconds(off.0)];
        let mut sample = Message::default().ints(1, locations).ints(2, values);
        for (key, word) in keys.into_iter().zip([Some(*process), Some(*thread), *wait]) {
            let Some(word) = word.filter(|word| !word.is_empty()) else { continue };
            sample = sample.message(3, Message::default().int(1, key).int(2, words.number(word)));
        }
        out = out.message(2, sample);
    }
    let mut mappings: HashMap<&str, u64> = HashMap::new();
    // pprof takes the first for the program: no file is that of all stacks.
    for binary in [NO_FILE].into_iter().chain(order.iter().map(|function| function.binary)) {
        let next = mappings.len() as u64 + 1;
        if *mappings.entry(binary).or_insert(next) == next {
            // has_functions and has_filenames: there is nothing to be looked up in the file.
            let name = words.number(binary);
            out = out.message(3, Message::default().int(1, next).int(5, name).int(7, 1).int(8, 1));
        }
    }
    for (id, Function { name, binary, source }) in (1..).zip(order) {
        let (file, at) = source.unwrap_or(("", 0));
        let line = Message::default().int(1, id).int(2, at);
        let mapping = mappings.get(binary).copied().unwrap_or(0);
        out = out.message(4, Message::default().int(1, id).int(2, mapping).message(4, line));
        // Names are readable already. With the same system name pprof would take them for symbols and cut off all between < and >.
        let function = Message::default().int(1, id).int(2, words.number(name)).int(4, words.number(file));
        out = out.message(5, function);
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
