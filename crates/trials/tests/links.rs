//! Links of README, the manual and the other documents lead somewhere, without a network: files exist, and so do the headings that
//! anchors name. Every page of the manual is in its table of contents, `docs/SUMMARY.md`, once.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The documents of the repository: those at its top, and the manual.
fn documents() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for dir in [root(), root().join("docs")] {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        all.extend(entries.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    all.sort();
    all
}

/// The lines of a text that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((at + 1, line))
    })
}

/// Targets of `[text](target)`, but not those in code.
fn targets(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A link may have code for its text, so code is left out by its backquotes and not by its contents.
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        let inside = rest[..at].matches('`').count() % 2 == 1;
        rest = &rest[at + 2..];
        if let (false, Some(end)) = (inside, rest.find(')')) {
            found.push(rest[..end].split_whitespace().next().unwrap_or_default().to_owned());
        }
    }
    found
}

/// The anchors that a Markdown reader makes of headings: lower case, blanks to hyphens, other marks left out.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let mut all = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let mut anchor = String::new();
        for c in heading.chars() {
            match c {
                ' ' => anchor.push('-'),
                '-' | '_' => anchor.push(c),
                c if c.is_alphanumeric() => anchor.push(c),
                _ => {}
            }
        }
        let times = seen.entry(anchor.clone()).or_default();
        all.insert(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
        *times += 1;
    }
    all
}

/// The relative links of `text`, a document at `path`, that lead nowhere.
fn broken(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (line, words) in prose(text) {
        for target in targets(words) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { path.to_owned() } else { path.parent().unwrap().join(file) };
            let there = if anchor.is_empty() {
                file.exists()
            } else {
                fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(anchor))
            };
            if !there {
                found.push(format!("{}:{line}: {target}", path.display()));
            }
        }
    }
    found
}

#[test]
fn links_lead_somewhere() {
    let (mut found, mut links) = (Vec::new(), 0);
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        links += prose(&text).map(|(_, line)| targets(line).len()).sum::<usize>();
        found.extend(broken(&path, &text));
    }
    assert!(links > 100, "{links} links: they were not found");
    assert!(found.is_empty(), "links that lead nowhere:\n{}", found.join("\n"));
}

#[test]
fn a_link_to_nowhere_is_found() {
    let page = root().join("docs/README.md");
    assert_eq!(broken(&page, "[a](no-such-page.md)\n[b](run.md#no-such-heading)\n").len(), 2);
    assert!(broken(&page, "[a](run.md)\n`[b](nowhere.md)`\n```\n[c](nowhere.md)\n```\n").is_empty());
}

#[test]
fn the_table_of_contents_has_each_page_once() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: Vec<String> = prose(&summary).flat_map(|(_, line)| targets(line)).collect();
    listed.sort();
    let mut pages: Vec<String> = fs::read_dir(&docs)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    pages.sort();
    assert_eq!(listed, pages);
}
