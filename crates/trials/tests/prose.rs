//! Plain words: README, the manual, and the comments and messages of the crates in `HELD` have no sentence that `RULES` refuse.
//!
//! `make prose` runs this test alone; `PROSE='docs/run.md crates/see/lines/src' make prose` looks at other files.
#![allow(clippy::unwrap_used)]

use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};

/// Files and directories whose prose is held to the rules. A crate is added once it has no findings.
const HELD: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs",
    "crates/fix/dump",
    "crates/fix/libncpu",
    "crates/fix/libncpu-c",
    "crates/fix/preload",
    "crates/keep/fleet",
    "crates/keep/fleet-args/src",
    "crates/keep/record",
    "crates/keep/schema/src",
    "crates/keep/table",
    "crates/see/lines",
    "crates/see/machine",
    "crates/see/observe-core",
    "crates/see/symbols",
    "crates/show/cli/src",
    "crates/show/daemon/src",
    "crates/show/feed/src",
    "crates/show/serve/src",
    "crates/show/tui/src",
];

/// A phrase that readers stumble over.
struct Rule {
    phrase: Regex,
    /// Where this matches the rest of the sentence, from the phrase on, the phrase is plain English.
    unless: Option<Regex>,
    instead: &'static str,
}

/// Phrases, their plain uses, and the words to write instead. Each phrase is looked for in one sentence at a time.
const RULES: &[(&str, &str, &str)] = &[
    (r"^(What|Whoever|Whom|Whose|Who) [a-z0-9`]", r"\?", "begin with the thing itself, not with a clause"),
    (r"\b[Tt]old\b", "", "shows, reports, says, names, distinguishes"),
    (
        r"\btells (of|how|which|what|whose|where|when|whether|why|apart|that)\b",
        "",
        "shows, reports, says, names",
    ),
    (r"\b[Ww]ho(m|se)?ever\b", "", "name the person or the program"),
    (r"\b(his|him|His|[Ss]omebody)\b", "", "their; the user; another process"),
    (
        r"\bso (many|much|long|few)\b",
        r"^so (many|much|long|few)\b.* (that|as)\b|^so much (for|more|the)|^so few",
        "the number or its noun: N, every N seconds, at most",
    ),
    (r"\bmanieth\b", "", "the Nth"),
    (r"\bas (many|much|long|often) (again|more)\b", "", "the factor: half longer, equally long"),
    (
        r", without[.;,)]|; without[,:]|[a-z0-9`] without[;.]",
        "",
        "[default: X], or name the thing that is missing",
    ),
    (
        r"\b(is|are) no [a-z]",
        r"^(is|are) no (longer|more|less|fewer|better|worse|different|need|way|reason|faster|slower|larger|smaller|other|such|slot|free)\b",
        "is not a …; unknown X; expected one of",
    ),
    (r"\bnone of those\b", "", "name them"),
    (r"\bthat there (is|are)[.,;]|\bthere (are|is)[.;]", "", "name them"),
    (r"\b[Ff]oret(ell|old)", "", "predict, predicted"),
    (r"\b(as|by|for|to|from) who (builds|runs|may|is|are|asks?|has|calls?)\b", "", "name the user"),
    (r"\bthe how m|\bwhat for\b|\bwhose it is\b|\bwhat is what\b", "", "name the thing"),
    (r"\b[Nn]obody (has )?ask", "", "any user; unused"),
];

/// "There is no X" and "it is no longer" are plain; "X is no Y" is not.
fn is_plain_denial(before: &str) -> bool {
    let word = before.trim_end().rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    matches!(word, "there" | "There" | "it" | "It")
}

/// One run of text with the line of each of its bytes.
#[derive(Default)]
struct Paragraph {
    text: String,
    lines: Vec<usize>,
}

impl Paragraph {
    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
            self.lines.push(line);
        }
        self.text.push_str(text);
        self.lines.resize(self.text.len(), line);
    }
}

/// Moves `paragraph` to `all` unless it is empty.
fn end(paragraph: &mut Paragraph, all: &mut Vec<Paragraph>) {
    if !paragraph.text.is_empty() {
        all.push(std::mem::take(paragraph));
    }
}

/// Code between backquotes becomes one letter, so that rules see words only.
fn without_code(text: &str) -> String {
    let mut out = String::new();
    let mut parts = text.split('`');
    out.push_str(parts.next().unwrap_or_default());
    while let Some(_code) = parts.next() {
        out.push('`');
        out.push_str(parts.next().unwrap_or_default());
    }
    out
}

/// The paragraphs, list items and cells of a Markdown text, without headings, blocks of code and comments.
fn markdown(text: &str) -> Vec<Paragraph> {
    let (mut all, mut paragraph) = (Vec::new(), Paragraph::default());
    let (mut code, mut comment) = (false, false);
    for (at, line) in text.lines().enumerate() {
        let words = line.trim_start();
        if words.starts_with("```") {
            code = !code;
        }
        comment |= words.starts_with("<!--");
        let skipped =
            code || comment || words.is_empty() || words.starts_with(['#', '<']) || words.starts_with("```");
        comment &= !words.contains("-->");
        if skipped {
            end(&mut paragraph, &mut all);
        } else if words.starts_with('|') {
            end(&mut paragraph, &mut all);
            for cell in words.replace(r"\|", "/").split('|') {
                let mut one = Paragraph::default();
                one.push(at + 1, cell.trim());
                end(&mut one, &mut all);
            }
        } else {
            let item = words.strip_prefix("- ").or_else(|| words.strip_prefix("* ")).or_else(|| {
                words
                    .split_once(". ")
                    .filter(|(n, _)| n.chars().all(|c| c.is_ascii_digit()))
                    .map(|(_, rest)| rest)
            });
            if item.is_some() {
                end(&mut paragraph, &mut all);
            }
            paragraph.push(at + 1, item.unwrap_or(words));
        }
    }
    end(&mut paragraph, &mut all);
    all
}

/// The comments of a program in Rust or C, and those of its strings that are made of words.
fn program(text: &str) -> Vec<Paragraph> {
    let (mut all, mut paragraph) = (Vec::new(), Paragraph::default());
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0, 1);
    // Whether code stood on this line, which parts two comments.
    let mut last_comment = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            let stop = rest.find('\n').unwrap_or(rest.len());
            let words = rest[..stop].trim_start_matches(['/', '!']).trim();
            if words.is_empty() || last_comment + 1 != line {
                end(&mut paragraph, &mut all);
            }
            if !words.is_empty() {
                paragraph.push(line, words);
            }
            last_comment = line;
            at += stop;
        } else if rest.starts_with("/*") {
            end(&mut paragraph, &mut all);
            let stop = rest.find("*/").map_or(rest.len(), |n| n + 2);
            for words in rest[2..stop].trim_end_matches("*/").lines() {
                let words = words.trim().trim_start_matches('*').trim();
                if words.is_empty() {
                    end(&mut paragraph, &mut all);
                } else {
                    paragraph.push(line, words);
                }
                line += 1;
            }
            line -= 1;
            end(&mut paragraph, &mut all);
            at += stop;
        } else if bytes[at] == b'r'
            && (rest.starts_with("r\"") || rest.starts_with("r#"))
            && !after_word(bytes, at)
        {
            let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
            let close = format!("\"{}", "#".repeat(hashes));
            let Some(open) = rest.find('"').filter(|n| *n == 1 + hashes) else {
                at += 1;
                continue;
            };
            let stop = rest[open + 1..].find(&close).map_or(rest.len(), |n| open + 1 + n + close.len());
            line += rest[..stop].matches('\n').count();
            at += stop;
        } else if bytes[at] == b'"' {
            let mut stop = 1;
            while stop < rest.len() && rest.as_bytes()[stop] != b'"' {
                stop += if rest.as_bytes()[stop] == b'\\' { 2 } else { 1 };
            }
            let stop = (stop + 1).min(rest.len());
            let words = &rest[1..stop - 1];
            if words.split_whitespace().count() >= 3 {
                let mut one = Paragraph::default();
                for (n, part) in words.lines().enumerate() {
                    one.push(line + n, part.trim_end_matches('\\').trim());
                }
                end(&mut one, &mut all);
            }
            line += rest[..stop].matches('\n').count();
            at += stop;
        } else if bytes[at] == b'\'' {
            // A character, or the mark of a lifetime.
            let character = rest[1..].chars().next().map_or(1, |c| c.len_utf8());
            at += if rest[1..].starts_with('\\') {
                rest[2..].find('\'').map_or(1, |n| n + 3)
            } else if rest.as_bytes().get(1 + character) == Some(&b'\'') {
                2 + character
            } else {
                1
            };
        } else {
            if bytes[at] == b'\n' {
                line += 1;
            }
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    end(&mut paragraph, &mut all);
    all.sort_by_key(|paragraph| paragraph.lines[0]);
    all
}

/// Whether the byte at `at` goes on a name.
fn after_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// The sentences of `text`, each with its place.
fn sentences(text: &str) -> Vec<(usize, &str)> {
    let (mut all, mut from) = (Vec::new(), 0);
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        if c == ' '
            && matches!(previous, '.' | '!' | '?')
            && text[at + 1..].starts_with(|c: char| !c.is_lowercase())
        {
            all.push((from, &text[from..at]));
            from = at + 1;
        }
        previous = c;
    }
    all.push((from, &text[from..]));
    all
}

/// Lines and rules that `paragraph` breaks, with the sentence.
fn findings(rules: &[Rule], paragraph: &Paragraph) -> Vec<(usize, String, &'static str)> {
    let mut found = Vec::new();
    for (from, sentence) in sentences(&paragraph.text) {
        let plain = without_code(sentence);
        let plain = plain.trim_start_matches(['(', '[']);
        for rule in rules {
            let Some(phrase) = rule.phrase.find(plain) else { continue };
            let rest = &plain[phrase.start()..];
            if rule.unless.as_ref().is_some_and(|unless| unless.is_match(rest))
                || phrase.as_str().contains(" no ") && is_plain_denial(&plain[..phrase.start()])
            {
                continue;
            }
            found.push((paragraph.lines[from], sentence.to_owned(), rule.instead));
            break;
        }
    }
    found
}

fn rules() -> Vec<Rule> {
    RULES
        .iter()
        .map(|(phrase, unless, instead)| Rule {
            phrase: Regex::new(phrase).unwrap(),
            unless: (!unless.is_empty()).then(|| Regex::new(unless).unwrap()),
            instead,
        })
        .collect()
}

/// The files below `path` that have prose, in order.
fn files(path: &Path, all: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for entry in entries {
            files(&entry, all);
        }
    } else if path.extension().is_some_and(|e| ["md", "rs", "c", "h"].iter().any(|known| e == *known)) {
        all.push(path.to_owned());
    }
}

#[test]
fn prose_is_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let chosen = std::env::var("PROSE").unwrap_or_default();
    let held: Vec<&str> = if chosen.is_empty() { HELD.to_vec() } else { chosen.split_whitespace().collect() };
    let mut all = Vec::new();
    for path in held {
        assert!(root.join(path).exists(), "no file or directory {path}");
        files(&root.join(path), &mut all);
    }
    assert!(!all.is_empty(), "no file with prose");
    let (rules, mut count, mut read) = (rules(), 0, 0);
    for file in &all {
        let text = fs::read_to_string(file).unwrap();
        let paragraphs =
            if file.extension().is_some_and(|e| e == "md") { markdown(&text) } else { program(&text) };
        for paragraph in &paragraphs {
            read += sentences(&paragraph.text).len();
            for (line, sentence, instead) in findings(&rules, paragraph) {
                println!(
                    "{}:{line}: {sentence}\n    -> {instead}",
                    file.strip_prefix(&root).unwrap().display()
                );
                count += 1;
            }
        }
    }
    assert!(read > all.len(), "{} files have {read} sentences: they were not read", all.len());
    assert_eq!(count, 0, "{count} of {read} sentences break a rule");
}

#[test]
fn rules_refuse_what_they_are_meant_for() {
    let rules = rules();
    let broken = |text: &str| {
        let mut paragraph = Paragraph::default();
        paragraph.push(1, text);
        findings(&rules, &paragraph).len()
    };
    for text in [
        "A list. What a thread waits for is shown.",
        "Run the command as user NAME; without, as root.",
        "X is no fix.",
        "whose rows are so many seconds apart",
        "Whoever finds nobody waiting waits.",
        "The lock is told by its address.",
        "This tells which lock it was.",
        "It takes half as long again.",
    ] {
        assert_eq!(broken(text), 1, "{text}");
    }
    for text in [
        "What costs the command time?",
        "There is no lock.",
        "It waits so long that the lease ends.",
        "`told` is a column.",
        "The thread is no longer there.",
        "It runs without a lock.",
        "Twice as many as before.",
    ] {
        assert_eq!(broken(text), 0, "{text}");
    }
}

#[test]
fn prose_is_found_in_markdown_and_programs() {
    let texts = |all: Vec<Paragraph>| all.into_iter().map(|p| (p.lines[0], p.text)).collect::<Vec<_>>();
    let found = texts(markdown(
        "# Who\n\nOne\ntwo.\n\n- item\n  goes on\n\n```\ncode\n```\n| a | b\\|c |\n<!-- not this -->\n",
    ));
    let expected = [(3, "One two."), (6, "item goes on"), (12, "a"), (12, "b/c")];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    let code = "/// One\n/// two.\nfn f<'a>(c: char) {\n    g('\"', \"three words \\\n        here\", r#\"raw \"words\" here\"#, \"one\");\n}\n/* in C */\n";
    let found = texts(program(code));
    assert_eq!(
        found,
        [(1, "One two."), (4, "three words here"), (7, "in C")].map(|(line, text)| (line, text.to_owned()))
    );
}
