//! The instructions that samples fell on, as text.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use ncpu_instructions::{Code, Machine, text};
use ncpu_schema::{UserCause, instructions};
use ncpu_table::Table;

use super::{Function, UserCode};
use crate::names::Symbols;

/// Functions with rows, those with most samples, and their instructions in all.
const FUNCTIONS: usize = 32;
const ROWS: usize = 6000;
/// Functions up to this many instructions have rows of all; longer ones have rows of those with samples, and of this many before and behind
/// each.
const WHOLE: usize = 400;
const AROUND: usize = 16;

impl UserCode {
    /// The table `instructions`.
    pub(super) fn instructions(&self, t: f64, symbols: &mut Symbols) -> Table {
        let sampled = |f: &&Function| !f.causes.is_empty() && f.code.is_some();
        let mut functions: Vec<&Function> = self.functions.values().filter(sampled).collect();
        let samples = |f: &Function| f.causes.values().sum::<f64>();
        functions.sort_by_cached_key(|f| (Reverse(samples(f).to_bits()), f.place.key));
        let mut rows = instructions::Rows::new();
        let mut left = ROWS;
        for function in functions.into_iter().take(FUNCTIONS) {
            let Some(code) = &function.code else { continue };
            let shown = shown(function, code);
            let Some(rest) = left.checked_sub(shown.len()) else { continue };
            left = rest;
            self.add_rows(t, symbols, function, code, &shown, &mut rows);
        }
        rows.finish()
    }

    /// Adds the rows of a function: those of the instructions `shown`.
    fn add_rows(
        &self,
        t: f64,
        symbols: &mut Symbols,
        function: &Function,
        code: &Code,
        shown: &BTreeSet<usize>,
        rows: &mut instructions::Rows,
    ) {
        let place = function.place;
        let (tgid, known) = (function.of.0, &function.of.1);
        let machine = Machine::of_code(place.machine);
        // Code made at run time may be other code by now.
        let bytes = self.bytes(&place, symbols).filter(|bytes| {
            Code::of_file(place.machine, place.whole, bytes).instructions() == code.instructions()
        });
        let file = symbols.file_of_code(tgid, place.address);
        for &i in shown {
            let at = code.instructions()[i].at;
            let here = place.address.wrapping_add(at.into());
            let in_file = place.in_file.wrapping_add(at.into());
            let names = symbols.user(tgid, &[here]);
            let nearest = function.names.iter().min_by_key(|(at, _)| at.abs_diff(i)).map(|(_, name)| name);
            let name = nearest
                .or_else(|| names.last().filter(|name| !name.starts_with("[unknown")))
                .unwrap_or(known);
            let decoded = machine
                .zip(bytes.as_ref().and_then(|bytes| bytes.get(at as usize..)))
                .and_then(|(machine, bytes)| text(machine, bytes, in_file));
            let (text, target) = decoded.map(|decoded| (decoded.text, decoded.target)).unzip();
            let target = target.flatten();
            let in_process =
                target.map(|target| target.wrapping_sub(place.in_file).wrapping_add(place.address));
            let within = |target: u64| (place.address..place.address + place.length).contains(&target);
            let named =
                in_process.filter(|&target| !within(target)).and_then(|target| symbols.at(tgid, target));
            let source = symbols.source_line(tgid, here, self.source_lines);
            // Go's programs name them themselves.
            let of_go = names.split_last().map_or(&[][..], |(_, inlined)| inlined);
            let of_lines = source.as_ref().map_or(&[][..], |line| &line.inlined);
            let inlined: Vec<&str> = match of_go.is_empty() {
                true => of_lines.iter().map(String::as_str).collect(),
                false => of_go.iter().map(|name| &**name).collect(),
            };
            let around = inlined.get(1..).filter(|around| !around.is_empty()).map(|names| names.join(" ← "));
            let source = source.as_ref().map(|line| match line.line {
                Some(number) => format!("{}:{number}", line.path.display()),
                None => line.path.display().to_string(),
            });
            let causes: Vec<(Option<UserCause>, f64)> = function
                .causes
                .range((i, UserCause::Computing)..)
                .take_while(|((of, _), _)| *of == i)
                .map(|((_, cause), samples)| (Some(*cause), *samples))
                .collect();
            let none = [(None, 0.0)];
            for &(cause, samples) in if causes.is_empty() { &none[..] } else { &causes } {
                rows.push(instructions::Row {
                    time: Some(t),
                    function: Some(&**name).into(),
                    inlined: inlined.first().copied().into(),
                    around: around.as_deref().into(),
                    file: file.as_deref().into(),
                    address: Some(in_file),
                    text: text.as_deref().into(),
                    target,
                    name: named.as_deref().into(),
                    source: source.as_deref().into(),
                    cause,
                    samples: Some(samples),
                });
            }
        }
    }
}

/// The instructions of a function that have rows.
fn shown(function: &Function, code: &Code) -> BTreeSet<usize> {
    let count = code.instructions().len();
    if function.place.whole && count <= WHOLE {
        return (0..count).collect();
    }
    let around = |&(i, _): &(usize, UserCause)| i.saturating_sub(AROUND)..(i + AROUND + 1).min(count);
    function.causes.keys().flat_map(around).collect()
}
