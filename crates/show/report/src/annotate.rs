//! A function's instructions, each with its samples and what took their time, between the lines of source that they were made of.

use std::collections::BTreeMap;
use std::fmt::Write;

use ncpu_record::Recording;
use ncpu_schema::{UserCause, instructions, user_causes};
use ncpu_table::{safe, width};

use crate::findings::names::short;
use crate::wrap::wrap;

/// Said where no instruction has a line of source.
const NO_SOURCE: &str =
    "no lines of source: they take debug information (-g), and ncpu run with --annotate or --record";
/// Functions of one name that are printed, in several programs.
const MOST: usize = 4;
/// Functions that an error lists.
const LISTED: usize = 12;
/// A part of a function's samples that counts, and instructions around each such one that are printed without `-v`.
const COUNTS: f64 = 0.005;
const AROUND: usize = 4;
/// Causes of an instruction are named from this part of the function's samples on.
const NAMED: f64 = 0.01;
/// Bytes of the longest instruction of x86: a gap between two that is longer has instructions without rows.
const LONGEST: u64 = 15;
/// The longest text of a line of source.
const WIDEST: usize = 200;

/// Why a function cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The recording's tables cannot be read.
    #[error(transparent)]
    Table(#[from] ncpu_schema::Error),
    /// The recording has no instructions.
    #[error(
        "the recording has no instructions: too few samples fell in any function (12 are needed), or an older ncpu made it, or one without root"
    )]
    None,
    /// No function of this name has instructions.
    #[error("unknown function \"{}\"; those with instructions: {}", safe::line(.0), .1.join(", "))]
    Unknown(String, Vec<String>),
    /// Several functions' names hold this.
    #[error("several functions are called like \"{}\": {}", safe::line(.0), .1.join(", "))]
    Several(String, Vec<String>),
}

/// An instruction.
#[derive(Debug, Default)]
struct Line {
    text: String,
    /// Where it branches to, within the function.
    target: Option<u64>,
    source: Option<String>,
    inlined: Option<String>,
    causes: Vec<(UserCause, f64)>,
}

impl Line {
    fn samples(&self) -> f64 {
        self.causes.iter().map(|(_, samples)| samples).sum()
    }
}

/// A line of source, and the inlined function that it is in.
type Place<'a> = (Option<&'a str>, Option<&'a str>);

/// A function of a program.
#[derive(Debug, Default)]
struct Function {
    lines: BTreeMap<u64, Line>,
}

impl Function {
    fn samples(&self) -> f64 {
        self.lines.values().map(Line::samples).sum()
    }

    fn is_called(&self, is: &dyn Fn(&str) -> bool) -> bool {
        self.lines.values().any(|line| line.inlined.as_deref().is_some_and(is))
    }
}

/// By name and file.
type Functions = BTreeMap<(String, Option<String>), Function>;

fn read(recording: &Recording) -> Result<Functions, Error> {
    let mut functions = Functions::new();
    let Some(t) = instructions::Reader::open(recording)? else { return Ok(functions) };
    for row in t.rows() {
        let (Some(name), Some(address)) = (t.function.get(row), t.address.get(row)) else { continue };
        let key = (name.to_string(), t.file.get(row).map(String::from));
        let line = functions.entry(key).or_default().lines.entry(address).or_insert_with(|| {
            let mut text = t.text.get(row).unwrap_or("?").to_string();
            if let Some(name) = t.name.get(row) {
                let _ = write!(text, "  <{}>", short(name));
            }
            Line {
                text,
                target: t.target.get(row),
                source: t.source.get(row).map(String::from),
                inlined: t.inlined.get(row).map(String::from),
                causes: Vec::new(),
            }
        });
        if let (Some(cause), Some(samples)) = (t.cause.get(row), t.samples.get(row)) {
            line.causes.push((cause, samples));
        }
    }
    for line in functions.values_mut().flat_map(|function| function.lines.values_mut()) {
        line.causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    }
    Ok(functions)
}

/// The functions that a user may mean by a name: those with it, whole or as reports print it, or that have one of this name inlined;
/// else the only one whose name holds it.
fn chosen(mut functions: Functions, name: &str) -> Result<Functions, Error> {
    if functions.is_empty() {
        return Err(Error::None);
    }
    let same = |known: &str| known == name || short(known) == name;
    if keep(&mut functions, |known, function| same(known) || function.is_called(&same)) {
        return Ok(functions);
    }
    let names = names_of(&functions);
    let listed = |names| by_samples(names).into_iter().take(LISTED).collect();
    let holding: BTreeMap<String, f64> =
        names.iter().filter(|(known, _)| known.contains(name)).map(|(n, s)| (n.clone(), *s)).collect();
    let holds = |known: &str| known.contains(name);
    match holding.len() {
        0 if keep(&mut functions, |_, function| function.is_called(&holds)) => Ok(functions),
        0 => Err(Error::Unknown(name.into(), listed(names))),
        1 => {
            functions.retain(|(known, _), _| holds(&short(known)));
            Ok(functions)
        }
        _ => Err(Error::Several(name.into(), listed(holding))),
    }
}

/// Keeps the functions that `is` chooses by name and inlined functions, where it chooses any; returns whether it does.
fn keep(functions: &mut Functions, is: impl Fn(&str, &Function) -> bool) -> bool {
    let any = functions.iter().any(|((known, _), function)| is(known, function));
    if any {
        functions.retain(|(known, _), function| is(known, function));
    }
    any
}

/// Names of the functions that can be shown, as reports print them, those with most samples first.
pub fn names(recording: &Recording) -> Result<Vec<String>, Error> {
    Ok(by_samples(names_of(&read(recording)?)))
}

fn names_of(functions: &Functions) -> BTreeMap<String, f64> {
    let mut names: BTreeMap<String, f64> = BTreeMap::new();
    for ((known, _), function) in functions {
        *names.entry(safe::line(&short(known)).into_owned()).or_default() += function.samples();
    }
    names
}

fn by_samples(names: BTreeMap<String, f64>) -> Vec<String> {
    let mut names: Vec<(String, f64)> = names.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    names.into_iter().map(|(name, _)| name).collect()
}

/// The text of a line of source: of a file's path, as debug information has it, and the line's number.
pub type Sources<'a> = dyn FnMut(&str, usize) -> Option<String> + 'a;

/// The function with its instructions, `width` columns wide; `all`: those far from any sample, too.
pub fn render(
    recording: &Recording,
    name: &str,
    all: bool,
    width: usize,
    sources: &mut Sources<'_>,
) -> Result<String, Error> {
    let functions = chosen(read(recording)?, name)?;
    let of_user = user_causes::Reader::open(recording)?
        .map_or(0.0, |t| t.rows().filter_map(|row| t.samples.get(row)).sum::<f64>());
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by(|a, b| b.1.samples().total_cmp(&a.1.samples()));
    let mut out = String::new();
    for ((name, file), function) in functions.iter().take(MOST) {
        if !out.is_empty() {
            out.push('\n');
        }
        let samples = function.samples();
        let of = file.as_ref().map_or_else(|| "made at run time".into(), |file| format!("of {file}"));
        let head = format!(
            "{} {of}: {samples:.0} samples, {:.1} % of user code",
            short(name),
            100.0 * samples / of_user
        );
        out += &wrap(&head, width, "", "  ");
        put(&mut out, function, all, width, sources);
        if function.lines.values().all(|line| line.source.is_none()) && file.is_some() {
            out += &wrap(NO_SOURCE, width, "", "");
        }
    }
    if functions.len() > MOST {
        let _ = writeln!(
            out,
            "\n{} further ones of this name: ncpu report --table instructions",
            functions.len() - MOST
        );
    }
    Ok(out)
}

/// Widths of the columns before the instruction.
const SHARE: usize = 7;
const CAUSE: usize = 20;

fn put(out: &mut String, function: &Function, all: bool, width: usize, sources: &mut Sources<'_>) {
    let samples = function.samples();
    let lines: Vec<(&u64, &Line)> = function.lines.iter().collect();
    let shown = shown(&lines, COUNTS * samples, all);
    let digits = lines.last().map_or(1, |(address, _)| format!("{address:x}").len());
    let _ =
        writeln!(out, "{:>SHARE$}  {:CAUSE$}  {:>digits$}  instruction", "share", "what took the time", "at");
    let (mut before, mut hidden): (Place<'_>, usize) = ((None, None), 0);
    let indent = " ".repeat(SHARE + 2 + CAUSE + 2);
    let count_hidden = |out: &mut String, hidden: &mut usize| {
        if *hidden > 0 {
            let _ = writeln!(out, "{indent}… {hidden} instructions");
            *hidden = 0;
        }
    };
    for (i, (address, line)) in lines.iter().enumerate() {
        if !shown[i] {
            hidden += 1;
            continue;
        }
        count_hidden(out, &mut hidden);
        let gap = i.checked_sub(1).is_some_and(|i| address.saturating_sub(*lines[i].0) > LONGEST);
        if gap {
            let _ = writeln!(out, "{indent}…");
        }
        let place = (line.source.as_deref(), line.inlined.as_deref());
        if place != before {
            put_source(out, place, width, sources);
            before = place;
        }
        let share = match line.samples() / samples {
            share if share >= 0.0005 => format!("{:.1} %", 100.0 * share),
            share if share > 0.0 => "<0.1 %".into(),
            _ => String::new(),
        };
        let arrow = match line.target.filter(|target| function.lines.contains_key(target)) {
            Some(target) if target <= **address => " ↑",
            Some(_) => " ↓",
            None => "",
        };
        let named: Vec<&(UserCause, f64)> =
            line.causes.iter().filter(|(_, of)| *of >= NAMED * samples).collect();
        let cause = match (&named[..], line.causes.first()) {
            ([], None) => String::new(),
            ([], Some((cause, _))) | ([(cause, _)], _) => cause.name().into(),
            ([(cause, _), ..], _) => format!("{} …", cause.name()),
        };
        let text = safe::line(&format!("{address:>digits$x}  {}{arrow}", line.text)).into_owned();
        let row = format!("{share:>SHARE$}  {cause:CAUSE$}  {text}");
        let _ = writeln!(out, "{}", width::start(row.trim_end(), width));
        // Where one instruction's samples have several causes, the parts stand below.
        for (cause, of) in named.iter().skip(usize::from(named.len() == 1)) {
            let share = format!("{:.1} %", 100.0 * of / samples);
            let _ = writeln!(out, "{:>SHARE$}   {share:>6} {}", "", cause.name());
        }
    }
    count_hidden(out, &mut hidden);
}

/// Which instructions are printed: those with samples enough, and their neighbours.
fn shown(lines: &[(&u64, &Line)], enough: f64, all: bool) -> Vec<bool> {
    let mut shown = vec![all; lines.len()];
    for (i, (_, line)) in lines.iter().enumerate() {
        let samples = line.samples();
        if samples > 0.0 && samples >= enough {
            shown[i.saturating_sub(AROUND)..(i + AROUND + 1).min(lines.len())].fill(true);
        }
    }
    // The line that counts the others has their room.
    for i in 0..lines.len() {
        let next = shown.get(i + 1).is_none_or(|shown| *shown);
        if (i == 0 || shown[i - 1]) && next {
            shown[i] = true;
        }
    }
    shown
}

/// A line with the source of the instructions that follow.
fn put_source(out: &mut String, (source, inlined): Place<'_>, width: usize, sources: &mut Sources<'_>) {
    let source = source.unwrap_or("?");
    let (path, number) = match source.rsplit_once(':') {
        Some((path, number)) => (path, number.parse::<usize>().ok()),
        None => (source, None),
    };
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut text = number.map_or_else(|| name.to_string(), |number| format!("{name}:{number}"));
    if let Some(inlined) = inlined {
        let _ = write!(text, " in {}", short(inlined));
    }
    if let Some(line) = number.and_then(|number| sources(path, number)) {
        let line = line.replace('\t', "    ");
        let _ = write!(text, "  {}", safe::cut(line.trim_end(), WIDEST));
    }
    let _ = writeln!(out, "{}", width::start(&safe::line(&text), width));
}

#[cfg(test)]
mod tests {
    use ncpu_record::Manifest;
    use ncpu_table::Table;

    use super::*;
    use crate::fixtures::table;

    const TEXTS: [&str; 6] = ["function", "file", "text", "source", "cause", "name"];
    const NUMBERS: [&str; 4] = ["t", "address", "target", "samples"];

    fn recording(instructions: Table) -> Recording {
        let mut recording =
            Recording::new(Manifest::new(ncpu_schema::Purpose::Run, 2, vec!["walk".into()], 1.0));
        let user = table("user_causes", &["function"], &["samples"], &[(&["walk"], &[400.0])]);
        for table in [instructions, user] {
            recording.tables.insert(table.name().into(), table);
        }
        recording
    }

    fn walk() -> Recording {
        let row = |at: f64, text: &'static str, cause: &'static str, samples: f64| {
            (
                ["list::walk(list::Node*)", "walk", text, "/src/walk.cpp:7", cause, "next"],
                [1.0, at, 0.0, samples],
            )
        };
        let mut rows = vec![
            row(4096.0, "mov (%rdi),%rdi", "waiting for memory", 150.0),
            row(4096.0, "mov (%rdi),%rdi", "computing", 30.0),
        ];
        rows.extend((1..30).map(|i| row(4096.0 + 4.0 * f64::from(i), "nop", "computing", 0.0)));
        rows.push(row(4216.0, "jne 0x1000", "computing", 20.0));
        let rows: Vec<(&[&str], &[f64])> =
            rows.iter().map(|(texts, numbers)| (&texts[..], &numbers[..])).collect();
        recording(table("instructions", &TEXTS, &NUMBERS, &rows))
    }

    fn text(recording: &Recording, name: &str, all: bool) -> Result<String, Error> {
        let mut asked = Vec::new();
        let text = render(recording, name, all, 80, &mut |path, line| {
            asked.push((path.to_string(), line));
            Some("\tnode = node->next;\x1b[31m".into())
        });
        assert!(asked.iter().all(|one| *one == ("/src/walk.cpp".into(), 7)));
        text
    }

    #[test]
    fn each_instruction_has_its_samples_and_what_took_the_time() {
        let text = text(&walk(), "walk", false).unwrap();
        assert!(text.starts_with("list::walk of walk: 200 samples, 50.0 % of user code\n"), "{text}");
        assert!(text.contains("walk.cpp:7      node = node->next;\\x1b[31m\n"), "{text}");
        assert!(text.contains(" 90.0 %  waiting for memory …  1000  mov (%rdi),%rdi  <next>\n"), "{text}");
        assert!(
            text.contains("75.0 % waiting for memory\n") && text.contains("15.0 % computing\n"),
            "{text}"
        );
        assert!(text.contains("… 21 instructions\n"), "{text}");
        assert!(text.lines().all(|line| width::columns(line) <= 80), "{text}");
        assert!(!self::text(&walk(), "walk", true).unwrap().contains("instructions\n"));
    }

    #[test]
    fn a_name_means_one_function_or_the_error_lists_those_that_there_are() {
        assert!(text(&walk(), "list::walk(list::Node*)", false).is_ok());
        assert!(text(&walk(), "al", false).is_ok(), "no other holds it");
        let error = text(&walk(), "run\x1b", false).unwrap_err().to_string();
        assert_eq!(error, "unknown function \"run\\x1b\"; those with instructions: list::walk");
        let none = recording(table("instructions", &TEXTS, &NUMBERS, &[]));
        assert!(matches!(text(&none, "walk", false), Err(Error::None)));
    }
}
