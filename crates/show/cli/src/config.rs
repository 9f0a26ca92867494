//! `/etc/ncpu.toml`: options that are given each time, for the commands that run for long.
//!
//! The file's values become defaults of options, so the command line wins, and values are read and checked as there.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::error::ErrorKind;
use ncpu_table::{place, safe};
use toml::de::{DeTable, DeValue};

/// Where it lies.
pub const FILE: &str = "/etc/ncpu.toml";

/// The commands that have a table in it, and the options that may stand there.
const TABLES: [(&str, &[&str]); 3] = [
    ("watch", &["interval", "freq", "probes", "keep", "max"]),
    (
        "serve",
        &[
            "listen",
            "token-file",
            "tls-cert",
            "tls-key",
            "user",
            "history",
            "mode",
            "interval",
            "freq",
            "probes",
            "keep",
            "max",
        ],
    ),
    ("top", &["interval", "freq", "probes"]),
];

/// The table of labels, the commands that write them into recordings (`--rotate`), and the option that it stands for.
const LABELS: (&str, [&str; 2], &str) = ("labels", ["watch", "serve"], "label");

/// An error in the file, and its place.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}", file = safe::os(file), what = safe::line(what))]
pub struct Wrong {
    file: PathBuf,
    line: usize,
    /// In characters, from 1.
    column: usize,
    what: String,
}

/// Options of one command, by the names of their arguments.
type Defaults = HashMap<String, Vec<String>>;

/// An error, and its place in the text.
type Fault = (Option<Range<usize>>, String);

/// The command line with defaults from the file for the command that `matches` chose; nothing where that takes none from it.
///
/// # Errors
/// The file that the command line names, or the one in its place, cannot be read or is wrong.
pub fn defaults(
    command: clap::Command,
    matches: &ArgMatches,
    named: Option<&Path>,
) -> anyhow::Result<Option<clap::Command>> {
    let file = named.unwrap_or(Path::new(FILE));
    let chosen = matches.subcommand_name().filter(|name| TABLES.iter().any(|(table, _)| table == name));
    let Some(chosen) = chosen else {
        let tables = TABLES.map(|(table, _)| format!("ncpu {table}")).join(", ");
        require!(named.is_none(), "--config: only {tables} take options from a file");
        return Ok(None);
    };
    if named.is_none() && !file.exists() {
        return Ok(None);
    }
    let text = ncpu_files::text(file).map_err(|e| anyhow::anyhow!("{}: {e}", safe::os(file)))?;
    let mut all = read(&text, &command).map_err(|(at, what)| {
        let (line, column) = place(&text, at.map_or(0, |at| at.start));
        Wrong { file: file.into(), line, column, what }
    })?;
    let given = all.remove(chosen).unwrap_or_default();
    Ok(Some(command.mut_subcommand(chosen, |command| {
        given.into_iter().fold(command, |command, (id, values)| {
            // Arguments live as long as the program does.
            let values: Vec<&'static str> = values.into_iter().map(|value| &*value.leak()).collect();
            command.mut_arg(&*id.leak(), |arg| arg.default_values(values))
        })
    })))
}

/// The defaults of each command.
pub fn read(text: &str, command: &clap::Command) -> Result<HashMap<&'static str, Defaults>, Fault> {
    let file = DeTable::parse(text).map_err(|e| (e.span(), e.message().to_string()))?;
    let mut all: HashMap<&'static str, Defaults> = HashMap::new();
    for (name, value) in file.get_ref() {
        let at = || Some(name.span());
        let known = TABLES.iter().map(|(table, _)| *table).chain([LABELS.0]);
        let DeValue::Table(table) = value.get_ref() else {
            let tables: Vec<String> = known.map(|table| format!("[{table}]")).collect();
            return Err((
                at(),
                format!("`{}` stands in no table: there are {}", name.get_ref(), tables.join(", ")),
            ));
        };
        if name.get_ref() == LABELS.0 {
            let mut labels = Vec::new();
            for (key, value) in table {
                let value = scalar(value.get_ref()).ok_or_else(|| no_scalar(value.span()))?;
                if key.get_ref().contains('=') {
                    return Err((Some(key.span()), "a label's name has no `=`".into()));
                }
                let label = format!("{}={value}", key.get_ref());
                let word = format!("--{}={label}", LABELS.2);
                check(command, &[LABELS.1[0], &word]).map_err(|why| (Some(key.span()), why))?;
                labels.push(label);
            }
            for command in LABELS.1 {
                all.entry(command).or_default().insert(LABELS.2.into(), labels.clone());
            }
            continue;
        }
        let Some((name, options)) = TABLES.iter().find(|(table, _)| *table == name.get_ref()) else {
            let known: Vec<&str> = known.collect();
            return Err((at(), unknown("table", name.get_ref(), &known)));
        };
        for (key, value) in table {
            let option = key.get_ref();
            if !options.contains(&&**option) {
                return Err((Some(key.span()), unknown("key", option, options)));
            }
            let value_at = value.span();
            let value = scalar(value.get_ref()).ok_or_else(|| no_scalar(value_at.clone()))?;
            let of = command.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
            let arg = of.into_iter().find(|arg| arg.get_long() == Some(option) || arg.get_id() == &**option);
            let Some(arg) = arg else { continue };
            let checked = match arg.is_positional() {
                true => check(command, &[name, "--", &value]),
                false => check(command, &[name, &format!("--{option}={value}")]),
            };
            checked.map_err(|why| (Some(value_at), why))?;
            all.entry(name).or_default().insert(arg.get_id().to_string(), vec![value]);
        }
        // As the command line has it: half of it would be no TLS.
        for [one, other] in [["tls-cert", "tls-key"], ["tls-key", "tls-cert"]] {
            if table.contains_key(one) && !table.contains_key(other) {
                return Err((at(), format!("`{one}` needs `{other}`")));
            }
        }
    }
    Ok(all)
}

/// A value as it would stand on the command line.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().into()),
        DeValue::Float(number) => Some(number.as_str().into()),
        _ => None,
    }
}

fn no_scalar(at: Range<usize>) -> Fault {
    (Some(at), "give a text in quotes, or a decimal number".into())
}

/// Whether a command takes these words, whatever else it needs.
fn check(command: &clap::Command, words: &[&str]) -> Result<(), String> {
    let parsed = command.clone().no_binary_name(true).try_get_matches_from(words);
    let wrong = [
        ErrorKind::ValueValidation,
        ErrorKind::InvalidValue,
        ErrorKind::NoEquals,
        ErrorKind::UnknownArgument,
    ];
    match parsed {
        Err(e) if wrong.contains(&e.kind()) => {
            let text = crate::out::clap_words(&e);
            let first = text.lines().next().unwrap_or("");
            Err(first.strip_prefix("error: ").unwrap_or(first).to_string())
        }
        _ => Ok(()),
    }
}

/// Message for an unknown name.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let near = known.iter().map(|k| (strsim::jaro_winkler(k, name), k)).max_by(|a, b| a.0.total_cmp(&b.0));
    let near = near.filter(|(like, _)| *like > 0.7).map(|(_, k)| format!(", did you mean `{k}`?"));
    format!("unknown {what} `{name}`{}; expected one of: {}", near.unwrap_or_default(), known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::help;

    fn given(text: &str) -> Result<HashMap<&'static str, Defaults>, String> {
        read(text, &help::command()).map_err(|(at, what)| {
            let (line, column) = place(text, at.map_or(0, |at| at.start));
            format!("{line}:{column}: {what}")
        })
    }

    #[test]
    fn every_option_that_may_stand_there_is_one() {
        let whole = help::command();
        for (table, options) in TABLES {
            let command = whole.find_subcommand(table).unwrap();
            for option in options {
                let found =
                    command.get_arguments().any(|a| a.get_long() == Some(option) || a.get_id() == *option);
                assert!(found, "{table} {option}");
            }
        }
    }

    #[test]
    fn options_of_each_command() {
        let text = "[labels]\ntype = \"web\"\nrack = 12\n[watch]\nkeep = '7d'\nmax = \"20G\"\ninterval = 2\n\
                    [serve]\nlisten = \"unix:/run/ncpu.sock\"\nfreq = 49\ntoken-file = \"/t\"\nkeep = \"2d\"\n\
                    max = \"1G\"\n[top]\ninterval = 0.5\n";
        let all = given(text).unwrap();
        assert_eq!(all["watch"]["keep"], ["7d"]);
        assert_eq!(all["watch"]["label"], ["rack=12", "type=web"]);
        assert_eq!(all["serve"]["hz"], ["49"], "by the argument's own name");
        assert_eq!(
            (&all["serve"]["keep"][..], &all["serve"]["max"][..]),
            (&["2d".into()][..], &["1G".into()][..])
        );
        assert_eq!(all["serve"]["label"], all["watch"]["label"]);
        assert_eq!(all["serve"]["token_file"], ["/t"]);
        assert_eq!(all["top"]["interval"], ["0.5"]);
        assert!(given("").unwrap().is_empty());
    }

    /// The service that records for ever takes its limits from there.
    #[test]
    fn the_packaged_file_bounds_recordings_and_its_examples_are_taken() {
        let text = include_str!("../../../../packages/ncpu.toml");
        let all = given(text).unwrap();
        assert_eq!(
            (&all["watch"]["keep"][..], &all["watch"]["max"][..]),
            (&["7d".into()][..], &["20G".into()][..])
        );
        let example =
            |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
        let all: Vec<String> =
            text.lines().map(|line| example(line).unwrap_or_else(|| line.into())).collect();
        let all = given(&all.join("\n")).unwrap();
        assert!(all["serve"].contains_key("max") && all["serve"].contains_key("label"), "{all:?}");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, told) in [
            (
                "[watch]\nkeep = \"7x\"",
                "2:8: invalid value '7x' for '--keep <TIME>': give a time of a second or more",
            ),
            (
                "[watch]\n\n  kepe = 1",
                "3:3: unknown key `kepe`, did you mean `keep`?; expected one of: interval, freq, probes, keep, max",
            ),
            (
                "[sevre]",
                "1:2: unknown table `sevre`, did you mean `serve`?; expected one of: watch, serve, top, labels",
            ),
            ("[watch]\nrecord = \"/x\"", "2:1: unknown key `record`; expected one of: interval"),
            ("keep = 1", "1:1: `keep` stands in no table: there are [watch], [serve], [top], [labels]"),
            ("[watch]\nkeep = [1]", "2:8: give a text in quotes, or a decimal number"),
            ("[serve]\nmode = 0o600", "2:8: give a text in quotes, or a decimal number"),
            ("[serve]\ntls-cert = \"x\"", "1:2: `tls-cert` needs `tls-key`"),
            (
                "[labels]\n\"a b\" = \"x\"",
                "2:1: invalid value 'a b=x' for '--label <KEY=VALUE>': `a b` cannot name a label",
            ),
            ("[top]\ninterval = \"often\"", "2:12: invalid value 'often' for '[INTERVAL]'"),
            ("[top]\ninterval = \"--help\"", "2:12: invalid value"),
            ("[watch\nkeep = 1", "1:7: "),
            ("[watch]\nfreq = 1\nfreq = 2", "3:1: duplicate key"),
            ("[serve]\nfreq = 20000", "2:8: invalid value '20000' for '--freq <HZ>'"),
        ] {
            let wrong = given(text).unwrap_err();
            assert!(wrong.starts_with(told), "{text}\n{wrong}");
        }
    }

    #[test]
    fn the_command_line_wins_and_what_needs_more_stays_unused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ncpu.toml");
        std::fs::write(&file, "[labels]\ntype = \"web\"\n[watch]\nkeep = \"7d\"\nfreq = 49\n").unwrap();
        let parse = |words: &str| {
            let words = words.replace("FILE", file.to_str().unwrap());
            let words: Vec<&str> = words.split(' ').collect();
            let matches = help::command().try_get_matches_from(&words).unwrap();
            let named = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
            let with = defaults(help::command(), &matches, named).map_err(|e| e.to_string())?;
            let matches = with.map_or(Ok(matches), |with| with.try_get_matches_from(&words)).unwrap();
            let sub = matches.subcommand().unwrap().1.clone();
            Ok::<_, String>(sub)
        };
        let watch = parse("ncpu --config FILE watch 1").unwrap();
        assert_eq!(watch.get_one::<u32>("hz"), Some(&49));
        assert!(watch.contains_id("keep"), "without --rotate, which it would need on the command line");
        assert_eq!(parse("ncpu watch -F 7 --config FILE 1").unwrap().get_one::<u32>("hz"), Some(&7));
        let labels = |words: &str| {
            let sub = parse(words).unwrap();
            sub.get_many::<(String, String)>("label").unwrap().cloned().collect::<Vec<_>>()
        };
        assert_eq!(labels("ncpu watch --config FILE 1"), [("type".to_string(), "web".to_string())]);
        let own = labels("ncpu watch --config FILE --record x --rotate 1m --label a=b 1");
        assert_eq!(own, [("a".to_string(), "b".to_string())]);
        assert!(
            parse("ncpu cpus --config FILE").unwrap_err().contains("only ncpu watch, ncpu serve, ncpu top")
        );
        std::fs::write(&file, "[watch]\nx=1").unwrap();
        assert!(
            parse("ncpu watch --config FILE 1").unwrap_err().ends_with(
                "ncpu.toml:2:1: unknown key `x`; expected one of: interval, freq, probes, keep, max"
            )
        );
        std::fs::remove_file(&file).unwrap();
        assert!(parse("ncpu watch --config FILE 1").unwrap_err().contains("No such file"));
    }
}
