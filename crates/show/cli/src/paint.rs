//! Colour, where somebody looks at it: NO_COLOR turns it off, CLICOLOR_FORCE on.

use std::env::var_os;
use std::fmt::Write;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const OFF: &str = "\x1b[0m";

/// Whether to colour what goes to a terminal, or not to one.
pub fn wanted(terminal: bool) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!painted.contains(&format!("{RED}#####....")), "what is of use is no fault");
        assert_eq!(onion("Capacity\n"), "Capacity\n");
        assert_eq!(table("a  b\n1  2\n"), format!("{BOLD}a  b{OFF}\n1  2\n"));
    }
}
