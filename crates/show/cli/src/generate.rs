//! `ncpu completions` and `ncpu man`: what is generated from the arguments themselves.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

use crate::help;

/// Print the completion script of a shell
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell to complete in
    shell: Shell,
}

/// Write the man pages, one for each command
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Directory to write them to; made where it is missing
    dir: PathBuf,
}

/// `ncpu completions SHELL`.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    crate::out::stdout_is_open()?;
    std::io::stdout().lock().write_all(&script(args.shell))?;
    Ok(ExitCode::SUCCESS)
}

/// `ncpu man DIR`.
pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    pages(&args.dir).with_context(|| format!("writing man pages to {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> Vec<u8> {
    // Into memory, as clap panics where the reader of our output has gone away.
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut help::command(), "ncpu", &mut out);
    out
}

fn pages(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut whole = help::command();
    whole.build();
    std::fs::write(dir.join("ncpu.1"), help::page(&whole, None)?)?;
    for command in whole.get_subcommands().filter(|c| c.get_name() != "help") {
        let name = command.get_name();
        std::fs::write(dir.join(format!("ncpu-{name}.1")), help::page(&whole, Some(name))?)?;
        for below in command.get_subcommands().filter(|c| c.get_name() != "help") {
            let file = format!("ncpu-{name}-{}.1", below.get_name());
            std::fs::write(dir.join(file), help::page_below(command, below)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        help::command().debug_assert();
    }

    #[test]
    fn solaris_names_are_commands() {
        for (solaris, ours) in
            [("mpstat", "cpus"), ("lockstat", "locks"), ("prstat", "threads"), ("psrinfo", "topology")]
        {
            let cli = help::command();
            let command = cli.get_subcommands().find(|c| c.get_all_aliases().any(|a| a == solaris));
            assert_eq!(command.map(clap::Command::get_name), Some(ours), "{solaris}");
        }
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            for command in help::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let dir = tempfile::tempdir().unwrap();
        pages(&dir.path().join("new/man")).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join("new/man").join(name)).unwrap();
        let whole = read("ncpu.1");
        for command in help::command().get_subcommands() {
            let name = command.get_name();
            // In roff a hyphen is `\-`.
            assert!(whole.contains(&format!(r"ncpu\-{name}(1)")), "{name}");
            let page = read(&format!("ncpu-{name}.1"));
            for long in command.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long()) {
                assert!(page.contains(&format!(r"\-\-{}", long.replace('-', r"\-"))), "{name} --{long}");
            }
            for below in command.get_subcommands().filter(|c| c.get_name() != "help") {
                let page = read(&format!("ncpu-{name}-{}.1", below.get_name()));
                assert!(page.contains(".SH OPTIONS") || below.has_subcommands(), "{page}");
            }
        }
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let error = man(&ManArgs { dir: "/dev/null/man".into() }).unwrap_err();
        assert!(format!("{error:#}").contains("/dev/null/man"), "{error:#}");
    }

    #[test]
    fn the_readme_lists_every_command() {
        let readme = include_str!("../../../../README.md");
        for command in help::command().get_subcommands().filter(|c| c.get_name() != "help") {
            let name = command.get_name();
            assert!(readme.contains(&format!("`ncpu {name}")), "README.md has no row for `ncpu {name}`");
            for alias in command.get_visible_aliases() {
                assert!(readme.contains(&format!("{alias}`")), "README.md does not mention `{alias}`");
            }
        }
    }

    #[test]
    fn tables_are_completed() {
        let script = String::from_utf8(script(Shell::Bash)).unwrap();
        assert!(script.contains("lock_callers"), "{script}");
    }
}
