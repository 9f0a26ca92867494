//! `ncpu explain`: what a word of a report means, on what grounds, and from which sources.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ncpu_report::causes::{Cause, Causes};
use ncpu_report::examples;
use ncpu_report::onion::Evidence;
use ncpu_schema::{CpuState, IdleReason, Layer, Microstate, SampleClass};
use ncpu_table::safe;

use crate::causes::CausesArgs;
use crate::patterns::PatternArgs;

/// Explain a word of a report: a layer, a class of samples, a reason why CPUs idle, a lock pattern, a kind of evidence, the id
/// of an advice
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The word, which may be several: kernel lock spin [default: list all]
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    /// Check the examples of a file of causes, and end
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    check: Option<PathBuf>,

    #[command(flatten)]
    causes: CausesArgs,

    #[command(flatten)]
    patterns: PatternArgs,
}

/// A word with its explanation.
struct Entry {
    word: String,
    /// Its kind: a layer, a lock pattern.
    what: &'static str,
    text: String,
}

/// The exit status for an unknown word, as for an unknown argument.
const UNKNOWN: u8 = 2;

/// The widest that explanations are.
const WIDTH: usize = 100;

/// Runs the command.
pub fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let book = args.causes.read()?;
    if let Some(file) = &args.check {
        return check(file, &book);
    }
    let entries = entries(&book, args)?;
    let wanted = args.words.join(" ").trim().to_lowercase();
    if wanted.is_empty() {
        crate::out::put(&list(&entries))?;
        return Ok(ExitCode::SUCCESS);
    }
    let found: Vec<&Entry> = entries.iter().filter(|entry| entry.word.to_lowercase() == wanted).collect();
    if found.is_empty() {
        say!(
            "ncpu: unknown word \"{}\"{}; `ncpu explain` lists all",
            safe::line(&wanted),
            near(&wanted, &entries)
        );
        return Ok(ExitCode::from(UNKNOWN));
    }
    let texts: Vec<String> = found
        .iter()
        .map(|entry| format!("{} ({})\n{}", safe::line(&entry.word), entry.what, entry.text))
        .collect();
    crate::out::put(&texts.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the examples of a file's entries bear them out.
fn check(file: &PathBuf, book: &Causes) -> anyhow::Result<ExitCode> {
    let text = ncpu_files::text(file).with_context(|| format!("reading {}", safe::os(file)))?;
    let with = Causes::with([&*text]).map_err(|(_, bad)| anyhow::anyhow!("{}:{bad}", safe::os(file)))?;
    let causes = with.list().iter().filter(|cause| with.is_users(cause));
    let (mut good, mut bad) = (0, 0);
    for cause in causes {
        match examples::check(cause, &with) {
            Ok(()) => good += 1,
            Err(why) => {
                bad += 1;
                say!("ncpu: {}: {}: {}", safe::os(file), safe::line(&cause.id), safe::line(&why));
            }
        }
        if !book.is_users(cause) && book.list().iter().any(|other| other.id == cause.id) {
            say!("ncpu: {}: {} replaces ncpu's own entry", safe::os(file), safe::line(&cause.id));
        }
    }
    crate::out::put(&format!(
        "{good} of {} causes get their advice, and their look-alikes do not\n",
        good + bad
    ))?;
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All words that can be explained.
fn entries(book: &Causes, args: &ExplainArgs) -> anyhow::Result<Vec<Entry>> {
    let mut all = Vec::new();
    all.extend(Layer::ALL.iter().map(|&layer| of_layer(layer, book)));
    let sampled =
        |class: SampleClass| lines(&[class.meaning(), &format!("layer: {}", Layer::from(class).name())]);
    all.extend(SampleClass::ALL.iter().map(|&c| entry(c.name(), "class of samples", sampled(c))));
    let idle =
        |reason: IdleReason| lines(&[reason.meaning(), &format!("layer: {}", Layer::from(reason).name())]);
    all.extend(IdleReason::ALL.iter().map(|&r| entry(r.name(), "reason why CPUs idle", idle(r))));
    all.extend(CpuState::ALL.iter().map(|&s| entry(s.name(), "state of a CPU", lines(&[s.meaning()]))));
    all.extend(
        Microstate::ALL.iter().map(|&s| entry(s.name(), "microstate of a thread", lines(&[s.meaning()]))),
    );
    for pattern in args.patterns.read()?.list() {
        all.push(entry(&pattern.name, "lock pattern", of_pattern(pattern)));
    }
    for kind in Evidence::KINDS {
        let keys = kind.keys.iter().map(|(key, of, meaning)| format!("{key} ({of}): {}", meaning.trim()));
        let keys: Vec<String> = std::iter::once(kind.meaning.trim().to_string()).chain(keys).collect();
        all.push(entry(kind.word, "kind of evidence", lines(&keys)));
    }
    all.extend(book.list().iter().map(|cause| entry(&cause.id, "advice", of_cause(cause, book))));
    Ok(all)
}

fn entry(word: &str, what: &'static str, text: String) -> Entry {
    Entry { word: word.into(), what, text }
}

/// Indented lines, wrapped.
fn lines(texts: &[impl AsRef<str>]) -> String {
    let mut out = String::new();
    for text in texts {
        out.push_str(&ncpu_report::wrap(&safe::line(text.as_ref()), WIDTH, "  ", "    "));
    }
    out
}

fn of_layer(layer: Layer, book: &Causes) -> Entry {
    let mut texts = vec![layer.meaning().to_string()];
    let back = if layer.recoverable() { "can come back" } else { "cannot come back" };
    texts.push(format!("capacity in it {back} by a change of program, kernel or machine"));
    let classes: Vec<&str> =
        SampleClass::ALL.iter().filter(|&&c| Layer::from(c) == layer).map(|c| c.name()).collect();
    let reasons: Vec<&str> =
        IdleReason::ALL.iter().filter(|&&r| Layer::from(r) == layer).map(|r| r.name()).collect();
    for (what, words) in [("classes of samples", classes), ("reasons why CPUs idle", reasons)] {
        if !words.is_empty() {
            texts.push(format!("{what}: {}", words.join(", ")));
        }
    }
    let advice: Vec<&str> =
        book.list().iter().filter(|cause| cause.layers.contains(&layer)).map(|cause| &*cause.id).collect();
    if !advice.is_empty() {
        texts.push(format!("advice: {}", advice.join(", ")));
    }
    texts.push("source: docs/run.md".into());
    entry(layer.name(), "layer", lines(&texts))
}

fn of_pattern(pattern: &ncpu_engine::engine::Pattern) -> String {
    let mut texts = vec![format!("what is waited for: {}", pattern.wait.word())];
    if !pattern.advice.is_empty() {
        texts.push(format!("advice: {}", pattern.advice));
    }
    texts.push("grounds: one of these functions is on the stack that waits, nearest to the wait:".into());
    texts.extend(pattern.functions().map(|function| format!("  {function}")));
    texts.push("source: docs/locks.md".into());
    lines(&texts)
}

fn of_cause(cause: &Cause, book: &Causes) -> String {
    let layers: Vec<&str> = cause.layers.iter().map(|layer| layer.name()).collect();
    let mut needs = format!("needs: {}", cause.when.meaning());
    if let Some(subject) = cause.when.subject().filter(|_| !cause.names.is_empty()) {
        let _ = write!(needs, "; {subject} is one of: {}", cause.names.join(", "));
    }
    let mut texts = vec![cause.advice.clone()];
    texts.extend(cause.command.as_ref().map(|command| format!("command: {command}")));
    texts.push(format!("layers: {}", layers.join(", ")));
    texts.push(needs);
    texts.push(format!("grounds: {}", cause.why));
    texts.extend(cause.sources.iter().map(|source| format!("source: {source}")));
    if book.is_users(cause) {
        texts.push("from a user's file".into());
    }
    lines(&texts)
}

/// All words by what they are.
fn list(entries: &[Entry]) -> String {
    let mut kinds: Vec<(&str, Vec<String>)> = Vec::new();
    for entry in entries {
        let word = safe::line(&entry.word).into_owned();
        match kinds.last_mut() {
            Some((what, words)) if *what == entry.what => {
                // Patterns may share a name.
                if !words.contains(&word) {
                    words.push(word);
                }
            }
            _ => kinds.push((entry.what, vec![word])),
        }
    }
    let mut out = String::new();
    for (what, words) in kinds {
        out.push_str(&ncpu_report::wrap(&format!("{what}: {}", words.join(", ")), WIDTH, "", "  "));
    }
    out
}

/// The words most like an unknown one.
fn near(wanted: &str, entries: &[Entry]) -> String {
    let like = |entry: &Entry| strsim::jaro_winkler(wanted, &entry.word.to_lowercase());
    let contains = |entry: &Entry| wanted.len() >= 3 && entry.word.to_lowercase().contains(wanted);
    let mut near: Vec<(f64, &str)> = entries
        .iter()
        .map(|entry| (if contains(entry) { 1.0 } else { like(entry) }, &*entry.word))
        .filter(|(like, _)| *like > 0.8)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.dedup_by_key(|(_, word)| *word);
    let near: Vec<String> =
        near.iter().take(5).map(|(_, word)| format!("\"{}\"", safe::line(word))).collect();
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}
