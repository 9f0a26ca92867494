//! Instructions that were sampled in the program's code.

use std::collections::HashMap;

use ncpu_record::Recording;
use ncpu_schema::instructions::Reader;

/// The instruction of the walk. The compilers have it for nothing else; they copy and fill by others.
const WALK: &str = "repne scas";

/// The part of a function's samples that the walk takes, and samples of it from which it is known.
const MUCH: f64 = 0.1;
const SAMPLES: f64 = 20.0;

/// An instruction that was sampled in the program's code.
pub(super) struct Instruction<'a> {
    pub function: &'a str,
    pub samples: f64,
    /// Its text in assembler.
    pub text: Option<&'a str>,
    /// Whether its code is in a file, and was not made at run time.
    pub in_file: bool,
    /// The function that it was inlined from, and the inlined functions around that one, innermost first.
    pub inlined: Option<&'a str>,
    pub around: Option<&'a str>,
    /// The line of source that it was made of, which is the innermost function's: `/src/app.c:12`.
    pub source: Option<&'a str>,
}

impl Instruction<'_> {
    /// The function of C's library that does what an instruction for many bytes does: compilers have it in place of a call.
    pub fn in_place_of(&self) -> Option<&'static str> {
        let text = self.text?;
        [("rep movs", "memcpy"), ("rep stos", "memset")]
            .into_iter()
            .find_map(|(start, function)| text.starts_with(start).then_some(function))
    }
}

/// Table `instructions`; empty where the recording has no such table.
pub(super) fn read(recording: &Recording) -> Vec<Instruction<'_>> {
    let Ok(Some(t)) = Reader::open(recording) else { return Vec::new() };
    t.rows()
        .filter_map(|row| {
            Some(Instruction {
                function: t.function.get(row)?,
                samples: t.samples.get(row)?,
                text: t.text.get(row),
                in_file: t.file.get(row).is_some(),
                inlined: t.inlined.get(row),
                around: t.around.get(row),
                source: t.source.get(row),
            })
        })
        .collect()
}

/// By function, the part of its samples in which code that HotSpot's compilers made walks through all interfaces of a class, and waits
/// for the line of the word that these walks write: of `shared`, by function, the samples in shared lines and all.
pub(super) fn walks<'a>(
    instructions: &[Instruction<'a>],
    shared: impl FnOnce() -> HashMap<&'a str, (f64, f64)>,
) -> HashMap<&'a str, f64> {
    let mut sums: HashMap<&str, (f64, f64)> = HashMap::new();
    // Code that was made at run time is in no file; functions of C++ have colons in their names.
    for at in instructions.iter().filter(|at| !at.in_file) {
        let (walk, all) = sums.entry(at.function).or_default();
        *walk += if at.text.is_some_and(|text| text.starts_with(WALK)) { at.samples } else { 0.0 };
        *all += at.samples;
    }
    sums.retain(|function, (walk, all)| *walk >= SAMPLES && *walk >= MUCH * *all && !function.contains("::"));
    if sums.is_empty() {
        return HashMap::new();
    }
    let shared = shared();
    let part = |function: &str, (walk, all): (f64, f64)| {
        let line = shared.get(function).map_or(0.0, |(line, all)| line / all.max(1.0));
        (walk / all + line).min(1.0)
    };
    sums.into_iter().map(|(function, sum)| (function, part(function, sum))).collect()
}
