//! No two modules of a crate need each other: lists circles between siblings, at every level, and expects none.
//!
//! A module needs another where its code, tests left out, names a path that ends there. Re-exports are followed to the
//! module that defines the name. A parent and its children may need each other: they are one thing in several files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Module = Vec<String>;

/// Code without comments, string literals and tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let mut out = String::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or("");
        // Every other piece between quotes is a literal.
        out.extend(line.split('"').step_by(2).chain(["\n"]));
    }
    out
}

fn words(path: &str) -> Module {
    path.split("::").map(|w| w.trim().to_string()).filter(|w| !w.is_empty()).collect()
}

/// The paths of a use tree, `a::{b, c::{d, e}}`, with the name each gets.
fn tree(text: &str, before: &str, out: &mut Vec<(Module, String)>) {
    let (mut depth, mut from) = (0, 0);
    let mut parts = Vec::new();
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(&text[std::mem::replace(&mut from, i + 1)..i]),
            _ => {}
        }
    }
    parts.push(&text[from..]);
    for part in parts.iter().map(|p| p.trim()).filter(|p| !p.is_empty()) {
        if let Some((head, rest)) = part.split_once('{') {
            tree(rest.trim_end().trim_end_matches('}'), &format!("{before}{head}"), out);
        } else {
            let (path, name) = part.split_once(" as ").unwrap_or((part, ""));
            let mut path = words(&format!("{before}{path}"));
            if path.len() > 1 && path.last().is_some_and(|w| w == "self") {
                path.pop();
            }
            let last = path.last().cloned().unwrap_or_default();
            out.push((path, if name.is_empty() { last } else { name.trim().into() }));
        }
    }
}

/// The modules of a crate, by path: the names each imports or exports, and the paths its code names.
#[derive(Default)]
struct Crate {
    names: BTreeMap<Module, Vec<(Module, String)>>,
    paths: BTreeMap<Module, Vec<Module>>,
}

impl Crate {
    fn read(&mut self, dir: &Path, at: &Module) {
        for entry in fs::read_dir(dir).expect("sources").map(|e| e.expect("an entry").path()) {
            let stem = entry.file_stem().and_then(|s| s.to_str()).unwrap_or("").to_string();
            let below = [at.clone(), vec![stem.clone()]].concat();
            if entry.is_dir() {
                self.read(&entry, &below);
            } else if entry.extension().is_some_and(|e| e == "rs") && stem != "tests" {
                let own = matches!(stem.as_str(), "mod" | "lib" | "main");
                self.file(&fs::read_to_string(&entry).expect("source"), if own { at.clone() } else { below });
            }
        }
    }

    fn file(&mut self, text: &str, module: Module) {
        let code = code(text);
        let (names, paths) =
            (self.names.entry(module.clone()).or_default(), self.paths.entry(module).or_default());
        for (i, _) in code.match_indices("use ") {
            if code[..i].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_') {
                tree(code[i + 4..].split(';').next().unwrap_or(""), "", names);
            }
        }
        for start in ["crate::", "super::"] {
            for (i, _) in code.match_indices(start) {
                let end = code[i..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                paths.push(words(&code[i..end.map_or(code.len(), |end| i + end)]));
            }
        }
        paths.extend(names.iter().map(|(path, _)| path.clone()));
    }

    /// The module where a path that `from` names ends; `None` for other crates' and std's.
    fn ends(&self, from: &[String], path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = (from.to_vec(), path);
        match rest.first()?.as_str() {
            "crate" => at.clear(),
            "super" | "self" => {}
            first => {
                let child = [from, &[first.to_string()]].concat();
                (self.paths.contains_key(&child)).then_some(())?;
            }
        }
        while let Some(word) = rest.first() {
            match word.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                // Which of the names a glob brings is used is not known.
                "*" => break,
                word => {
                    let child = [at.clone(), vec![word.to_string()]].concat();
                    if self.paths.contains_key(&child) {
                        at = child;
                    } else {
                        let exported = self.names.get(&at)?.iter().find(|(_, name)| name == word);
                        let through =
                            exported.filter(|_| depth < 8).and_then(|(to, _)| self.ends(&at, to, depth + 1));
                        return Some(through.unwrap_or(at));
                    }
                }
            }
            rest = &rest[1..];
        }
        Some(at)
    }

    /// Which siblings each module needs.
    fn needs(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut out: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, paths) in &self.paths {
            for to in paths.iter().filter_map(|p| self.ends(from, p, 0)) {
                let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if same < from.len() && same < to.len() {
                    out.entry(from[..=same].to_vec()).or_default().insert(to[..=same].to_vec());
                }
            }
        }
        out
    }
}

#[test]
fn no_modules_need_each_other() {
    let (mut crates, mut rooms) = (Vec::new(), vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")]);
    while let Some(room) = rooms.pop() {
        for dir in fs::read_dir(&room).expect("a room").map(|e| e.expect("an entry").path()) {
            if dir.join("Cargo.toml").exists() {
                crates.push(dir);
            } else if dir.is_dir() {
                rooms.push(dir);
            }
        }
    }
    assert!(crates.len() > 20, "few crates were found: {crates:?}");
    let mut circles = Vec::new();
    for dir in crates {
        let mut read = Crate::default();
        read.read(&dir.join("src"), &Vec::new());
        let needs = read.needs();
        assert!(read.paths.len() < 6 || !needs.is_empty(), "{}: no paths were found", dir.display());
        for start in needs.keys() {
            // Each circle is found from the least of its modules.
            let (mut open, mut seen) = (vec![vec![start.clone()]], BTreeSet::new());
            while let Some(way) = open.pop() {
                for next in needs.get(&way[way.len() - 1]).into_iter().flatten().filter(|n| *n >= start) {
                    if next == start {
                        let way: Vec<String> = way.iter().chain([start]).map(|m| m.join("::")).collect();
                        circles.push(format!("{}: {}", dir.file_name().unwrap().display(), way.join(" -> ")));
                    } else if seen.insert(next.clone()) {
                        open.push([way.clone(), vec![next.clone()]].concat());
                    }
                }
            }
        }
    }
    assert!(circles.is_empty(), "modules that need each other:\n{}", circles.join("\n"));
}
