//! `ncpu why`: evidence, stacks and what was ruled out, of a cause or a layer of a recording.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ncpu_machine::shell_word;
use ncpu_record::Recording;
use ncpu_report::findings::{Findings, render, why_cause, why_layer};
use ncpu_report::onion::Onion;
use ncpu_report::wrap;
use ncpu_schema::Layer;

use crate::causes::CausesArgs;
use crate::table_args::text_width;

/// Say why a cause or a layer of a recording is there: evidence, sampled stacks, what was ruled out
#[derive(Args, Debug)]
pub struct WhyArgs {
    #[command(flatten)]
    causes: CausesArgs,

    /// A cause by its number or id, or a layer by its name [default: all causes]; then the recording, a directory made by --record
    /// [default: the last `ncpu run` or `ncpu watch`]
    #[arg(value_names = ["WHAT", "DIR"], num_args = 0..)]
    words: Vec<OsString>,
}

/// Functions that a layer names.
const FUNCTIONS: usize = 6;

/// Whether a word means a recording, and not a cause or a layer: none of these has a slash or a dot, and few are directories.
fn is_path(word: &OsStr) -> bool {
    word.as_encoded_bytes().iter().any(|b| matches!(b, b'/' | b'.')) || Path::new(word).is_dir()
}

/// Runs the command.
pub fn run(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    args.causes.install()?;
    // Names of layers are of several words.
    let (dir, what) = match args.words.split_last() {
        Some((dir, what)) if is_path(dir) => (PathBuf::from(dir), what),
        _ => (crate::last::dir()?, &args.words[..]),
    };
    let recording = Recording::open(&dir)?;
    let (onion, findings) = (Onion::peel(&recording)?, Findings::of(&recording)?);
    let width = text_width().clamp(60, 100);
    let what: Vec<_> = what.iter().map(|word| word.to_string_lossy()).collect();
    let what = what.join(" ");
    let names = ncpu_report::annotate::names(&recording)?;
    let by_instruction = |names: &[&str]| match names {
        [] => String::new(),
        [first, others @ ..] => {
            let others =
                if others.is_empty() { String::new() } else { format!(" (also {})", others.join(", ")) };
            wrap(
                &format!("ncpu report --annotate {}{others}", shell_word(first)),
                width,
                "  by instruction: ",
                "    ",
            )
        }
    };
    let of = |n: usize| {
        let innermost = findings.list.get(n.checked_sub(1)?)?.stacks.first();
        let innermost = innermost.and_then(|(stack, _)| stack.split(" ← ").next());
        let name: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| Some(*name) == innermost).collect();
        Some(why_cause(&findings, &onion, n, width)? + &by_instruction(&name))
    };
    let text = if what.is_empty() {
        let all: Vec<String> = (1..=findings.list.len()).filter_map(of).collect();
        if all.is_empty() { render(&onion, &findings, width) } else { all.join("\n") }
    } else if let Ok(layer) = Layer::of_name(&what) {
        let none = || anyhow::anyhow!("nothing of the capacity went to \"{}\"", layer.name());
        let text = why_layer(&findings, &onion, layer, width).ok_or_else(none)?;
        let most: Vec<&str> = names.iter().take(FUNCTIONS).map(String::as_str).collect();
        if layer == Layer::User { text + &by_instruction(&most) } else { text }
    } else {
        let by_id = findings.list.iter().position(|found| found.id == what).map(|at| at + 1);
        let text = what.parse().ok().or(by_id).and_then(of);
        text.ok_or_else(|| {
            let causes =
                findings.list.iter().enumerate().map(|(i, found)| format!("{} ({})", i + 1, found.id));
            let layers = onion.rows.iter().map(|row| row.layer.name().to_string());
            let known: Vec<String> = causes.chain(layers).collect();
            let none = match findings.list.is_empty() {
                true => " (no cause was found in this recording)",
                false => "",
            };
            anyhow::anyhow!(
                "unknown cause or layer \"{}\"{none}; expected one of: {}",
                what.escape_debug(),
                known.join(", ")
            )
        })?
    };
    crate::out::put(&text)?;
    Ok(ExitCode::SUCCESS)
}
