//! Commands with remedies: as argument vectors, as lines to be typed, and as lines of a service.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::{Kind, Remedy};

/// The placeholder for the number of workers in a command.
const COUNT: &[u8] = b"{n}";

/// Whether a command takes the number of workers.
pub fn counts(command: &[OsString]) -> bool {
    command.iter().any(|w| w.as_bytes().windows(COUNT.len()).any(|w| w == COUNT))
}

/// A command with remedies: what is run, with `ncpu` for its own file, and what is to be typed.
pub fn applied(command: &[OsString], remedies: &[&Remedy], ncpu: &OsStr) -> (Vec<OsString>, String) {
    let workers = remedies.iter().find_map(|r| r.workers).unwrap_or(1);
    let mut argv: Vec<OsString> = Vec::new();
    // Variables first, so that what comes after adds to them.
    let mut sorted: Vec<&&Remedy> = remedies.iter().filter(|r| !r.prefix.is_empty()).collect();
    sorted.sort_by_key(|r| (r.prefix[0] != "env", r.kind));
    let mut libraries: Vec<&OsStr> = sorted.iter().filter_map(|r| r.library()).collect();
    let pages = sorted.iter().any(|r| r.kind == Kind::Pages);
    for remedy in sorted {
        // One `preload` for all. The argument after it may be `ncpu` itself, which need not take the
        // libraries.
        if remedy.library().is_some() {
            if !libraries.is_empty() {
                argv.extend(["ncpu", "preload"].map(Into::into));
                argv.extend(pages.then(|| "--anyway".into()));
                argv.push(std::mem::take(&mut libraries).join(OsStr::new(",")));
                argv.push("--".into());
            }
            continue;
        }
        // One `env` for all.
        let skip = usize::from(remedy.prefix[0] == "env" && argv.first().is_some_and(|a| a == "env"));
        argv.extend(remedy.prefix[skip..].iter().cloned());
    }
    let mut command: Vec<OsString> = command.iter().map(|w| fill(w, workers)).collect();
    extend_preloads(&mut argv, &mut command);
    let before = argv.len();
    argv.extend(command);
    let typed = argv.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ");
    for word in &mut argv[..before] {
        if word == "ncpu" {
            *word = ncpu.to_owned();
        }
    }
    (argv, typed)
}

pub(super) const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// `LD_PRELOAD=` a library before those that are preloaded already.
pub(super) fn preloading(library: &Path, already: Option<&OsStr>) -> String {
    let own = library.display().to_string();
    match already.map(OsStr::to_string_lossy).filter(|a| !a.is_empty()) {
        Some(already) if !already.split([':', ' ']).any(|a| a == own) => {
            format!("LD_PRELOAD={own}:{already}")
        }
        Some(already) => format!("LD_PRELOAD={already}"),
        None => format!("LD_PRELOAD={own}"),
    }
}

/// A command that begins with `env LD_PRELOAD=…` would replace what stands before it: its own is extended instead.
fn extend_preloads(before: &mut Vec<OsString>, command: &mut [OsString]) {
    if command.first().is_none_or(|c| c != "env" && !c.as_bytes().ends_with(b"/env")) {
        return;
    }
    let assigns = |w: &OsString| w.as_bytes().contains(&b'=') && !w.as_bytes().starts_with(b"-");
    let own = command[1..].iter_mut().take_while(|w| assigns(w)).find(|w| w.as_bytes().starts_with(PRELOAD));
    let Some(own) = own else { return };
    let Some(at) = before.iter().position(|w| w.as_bytes().starts_with(PRELOAD)) else { return };
    let ours = before.remove(at);
    // Without a variable, `env` would only stand in the way.
    if before.get(at.wrapping_sub(1)).is_some_and(|w| w == "env")
        && before.get(at).is_none_or(|w| !w.as_bytes().contains(&b'='))
    {
        before.remove(at - 1);
    }
    let first = ours.as_bytes()[PRELOAD.len()..].split(|&b| b == b':').next().unwrap_or_default().to_vec();
    let already = OsStr::from_bytes(&own.as_bytes()[PRELOAD.len()..]).to_owned();
    *own = preloading(Path::new(OsStr::from_bytes(&first)), Some(&already)).into();
}

/// A line `ExecStart=` of a service: the executable by its absolute path, and words as systemd takes them apart.
pub fn exec_start(argv: &[OsString]) -> String {
    argv.iter().map(|w| unit_word(w.as_bytes())).collect::<Vec<_>>().join(" ")
}

fn unit_word(word: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-+=./,:@{}".contains(b);
    let mut out = String::new();
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                // Specifiers and variables.
                '%' => out.push_str("%%"),
                '$' => out.push_str("$$"),
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    c.encode_utf8(&mut bytes).bytes().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
    }
    if !word.is_empty() && word.iter().all(plain) { out } else { format!("\"{out}\"") }
}

/// A command for a service: each program that it names by its absolute path.
///
/// # Errors
/// A program is not found.
pub fn absolute(
    command: &[OsString],
    remedies: &[&Remedy],
    ncpu: &OsStr,
) -> std::result::Result<Vec<OsString>, crate::program::Error> {
    let path = std::env::var_os("PATH");
    let find = |word: &OsStr| -> std::result::Result<OsString, crate::program::Error> {
        let found = crate::program::find(word, path.as_deref())?;
        Ok(std::path::absolute(&found).unwrap_or(found).into_os_string())
    };
    let mut command = command.to_vec();
    if let Some(first) = command.first_mut() {
        *first = find(first)?;
    }
    let (mut argv, _) = applied(&command, remedies, ncpu);
    // `env` and its like; within, the service's own PATH is for them to search.
    if let Some(first) = argv.first_mut() {
        *first = find(first)?;
    }
    Ok(argv)
}

fn fill(word: &OsStr, n: u32) -> OsString {
    let (mut out, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(COUNT.len()).position(|w| w == COUNT) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(n.to_string().as_bytes());
        rest = &rest[at + COUNT.len()..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// A word as a shell takes it.
pub fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./,:@%{}".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
