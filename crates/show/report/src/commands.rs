//! The commands that reports print, in one place.
//!
//! All of them look and change nothing. A command that changes how a program runs (more instances, another placement, huge
//! pages, another allocator) helps some programs with a cause and harms others with the same figures, and a report cannot tell
//! which: such a command is printed by `ncpu fix` alone, which has tried it. One may be added here with a round in
//! `benches/advice.sh` that shows that it helps a program with the cause and does not hurt a look-alike.

/// As they are printed; `CMD` stands for the program's own command line.
pub const COMMANDS: [&str; 9] = [
    "ncpu crosscalls",
    "ncpu lines -- CMD",
    "ncpu locks",
    "ncpu locks -s 10",
    "ncpu locks --futexes",
    "ncpu locks --futexes -s 10",
    "ncpu numa",
    "ncpu timers",
    "ncpu watch -a",
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::COMMANDS;

    fn sources(dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).expect("sources").map(|entry| entry.expect("an entry").path());
        let all = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
        all.filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
    }

    /// Commands of ncpu in backquotes, outside of comments and tests.
    fn printed(text: &str) -> impl Iterator<Item = &str> {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
        code.lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .filter(|quoted| quoted.starts_with("ncpu "))
    }

    #[test]
    fn no_report_prints_a_command_that_is_not_listed() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut met = Vec::new();
        for path in sources(&src).iter().filter(|path| !path.ends_with("tests.rs")) {
            let text = fs::read_to_string(path).expect("a source");
            for command in printed(&text) {
                assert!(COMMANDS.contains(&command), "{}: `{command}`", path.display());
                met.push(command.to_string());
            }
        }
        for cause in crate::causes::Causes::default().list() {
            assert!(!cause.advice.contains("`ncpu "), "{}: a command belongs into `command`", cause.id);
            if let Some(command) = cause.command.as_ref().filter(|command| command.starts_with("ncpu ")) {
                assert!(COMMANDS.contains(&&**command), "{}: `{command}`", cause.id);
                met.push(command.clone());
            }
        }
        assert!(met.len() >= 10, "found only {met:?}");
    }

    #[test]
    fn commands_that_change_a_program_are_not_listed() {
        for command in COMMANDS {
            let verb = command.split(' ').nth(1).unwrap_or_default();
            assert!(["crosscalls", "lines", "locks", "numa", "timers", "watch"].contains(&verb), "{command}");
        }
        assert_eq!(
            printed("x(\"`ncpu place balance -- x`\") // `ncpu fix`").next(),
            Some("ncpu place balance -- x")
        );
    }
}
