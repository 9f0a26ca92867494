//! Colour on terminals: NO_COLOR turns it off, CLICOLOR_FORCE on, and `--color` decides over both.

use std::env::var_os;
use std::fmt::Write;
use std::sync::OnceLock;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const OFF: &str = "\x1b[0m";

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal
    Auto,
    /// Also in files and pipes
    Always,
    /// Nowhere
    Never,
}

/// The choice of `--color`.
static CHOICE: OnceLock<When> = OnceLock::new();

/// Takes the choice of the command line, once.
pub fn choose(when: When) {
    let _ = CHOICE.set(when);
}

/// Whether to colour text for a terminal, or for a file or pipe.
pub fn wanted(terminal: bool) -> bool {
    match CHOICE.get() {
        Some(When::Always) => return true,
        Some(When::Never) => return false,
        Some(When::Auto) | None => {}
    }
    let set = |name: &str| var_os(name).is_some_and(|v| !v.is_empty());
    let forced = set("CLICOLOR_FORCE") && var_os("CLICOLOR_FORCE").is_some_and(|v| v != "0");
    !set("NO_COLOR") && (forced || terminal && var_os("TERM").is_some_and(|t| t != "dumb"))
}

/// A table with its line of names in bold.
pub fn table(text: &str) -> String {
    match text.split_once('\n') {
        Some((head, rest)) => format!("{BOLD}{head}{OFF}\n{rest}"),
        None => text.into(),
    }
}

/// An onion: headlines bold, the bars of what could come back by their size, advice green, notes dim. Any other text
/// is left as it is. It is safe for a terminal before, so that the only escapes are these.
pub fn onion(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    if text.contains(" CPU-s of capacity") {
        return causes(text);
    }
    if !text.contains("\nCapacity: ") {
        return text.into();
    }
    let (mut back, mut advice, mut note) = (false, false, false);
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        match line {
            "could come back:" => back = true,
            "the rest:" => back = false,
            _ => {}
        }
        // Lines that go on are indented deeper than those they belong to.
        advice =
            line.trim_start().starts_with("-> ") || advice && line.starts_with("                           ");
        note = line.starts_with("note: ") || note && line.starts_with("      ");
        let share = line.get(..7).and_then(|s| s.trim().strip_suffix('%')?.trim().parse::<f64>().ok());
        let bar = line.find(['#']).filter(|_| back).and_then(|at| {
            let length = line[at..].chars().take_while(|c| *c == '#').count();
            Some((share?, at, length))
        });
        let _ = match (line, bar) {
            ("could come back:" | "the rest:", _) => write!(out, "{BOLD}{line}{OFF}{end}"),
            (_, Some((share, at, length))) => {
                let colour = if share >= 10.0 { RED } else { YELLOW };
                let (before, rest) = line.split_at(at);
                let (bar, after) = rest.split_at(length);
                write!(out, "{before}{colour}{bar}{OFF}{after}{end}")
            }
            _ if line.starts_with("Capacity: ") || line.trim_start().starts_with("share  ") => {
                write!(out, "{BOLD}{line}{OFF}{end}")
            }
            _ if advice => write!(out, "{GREEN}{line}{OFF}{end}"),
            _ if note => write!(out, "{DIM}{line}{OFF}{end}"),
            _ => write!(out, "{line}{end}"),
        };
    }
    out
}

/// The causes and layers in short: what is wrong and titles bold, remedies green, bars by their size, notes dim.
fn causes(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    // The command's line and what is wrong come before the first blank line; a remedy goes on until the next label.
    let (mut first, mut wrong, mut remedy, mut note) = (true, true, false, false);
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let goes_on = line.starts_with("              ");
        remedy = line.starts_with("    do ") || remedy && goes_on;
        note = ["note: ", "more: "].iter().any(|word| line.starts_with(word))
            || note && line.starts_with("      ");
        let numbered = line.split_once(' ').is_some_and(|(n, _)| n.parse::<u8>().is_ok());
        let bar = line
            .find('█')
            .map(|at| (at, line[at..].rfind('█').map_or(at, |last| at + last + '█'.len_utf8())));
        let headline = line.starts_with("causes  ") || line.starts_with("capacity  ");
        let _ = match bar {
            Some((from, to)) => {
                let long = line[from..to].chars().count() >= 2;
                let colour = if long { RED } else { YELLOW };
                write!(out, "{}{colour}{}{OFF}{}{end}", &line[..from], &line[from..to], &line[to..])
            }
            None if line.is_empty() => write!(out, "{end}"),
            None if headline || numbered || wrong && !first => write!(out, "{BOLD}{line}{OFF}{end}"),
            None if remedy => write!(out, "{GREEN}{line}{OFF}{end}"),
            None if note => write!(out, "{DIM}{line}{OFF}{end}"),
            None => write!(out, "{line}{end}"),
        };
        if line.is_empty() {
            wrong &= first;
        } else if line.contains(" · ") {
            first = first && !line.contains(" CPU-s of capacity");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_causes_the_sentence_and_titles_are_bold() {
        let text = "./x 4 · 4.0 s · 2 CPUs · 8.0 CPU-s of capacity · 1.2 % of it ncpu's own\nOne lock takes 41 %.\n\n\
                    causes      CPU-s\n1 lock x      3.28\n    do        cache\n              it\n\n\
                    capacity   share   belongs to\nuser code   50 %  ██████   → 1\nnote: x\n";
        let painted = onion(text);
        for bold in [
            "One lock takes 41 %.",
            "causes      CPU-s",
            "1 lock x      3.28",
            "capacity   share   belongs to",
        ] {
            assert!(painted.contains(&format!("{BOLD}{bold}{OFF}")), "{bold}: {painted}");
        }
        assert!(
            painted.contains(&format!("{GREEN}    do        cache{OFF}"))
                && painted.contains(&format!("{RED}██████{OFF}"))
        );
        let mut bare = painted;
        for code in [BOLD, DIM, GREEN, YELLOW, RED, OFF] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, text);
    }

    #[test]
    fn only_colours_are_added() {
        let text = "x: 1 s elapsed\nCapacity: 2 CPUs x 1 s = 2 CPU-seconds\n\n  share      CPU-s      +-  layer   gain\n\
                    could come back:\n 64.4 %      6.444    0.27  system calls             #############.......  x2.81\n\
                    \x20                          close 40 %\n                        -> call it less\n\
                    \x20                          often\nthe rest:\n 25.7 %      2.570    0.26  user code     #####....\n\
                    note: static\n      locks\n";
        let painted = onion(text);
        let plain =
            [BOLD, DIM, GREEN, YELLOW, RED, OFF].iter().fold(painted.clone(), |t, code| t.replace(code, ""));
        assert_eq!(plain, text);
        assert!(painted.contains(&format!("{RED}############# ").trim_end().to_string()), "{painted}");
        assert!(
            painted.contains(&format!("{GREEN}                        -> call it less{OFF}")),
            "{painted}"
        );
        assert!(painted.contains(&format!("{DIM}note: static{OFF}")), "{painted}");
        assert!(!painted.contains(&format!("{RED}#####....")), "useful time is not a fault");
        assert_eq!(onion("Capacity\n"), "Capacity\n");
        assert_eq!(table("a  b\n1  2\n"), format!("{BOLD}a  b{OFF}\n1  2\n"));
    }
}
