//! Transcripts in README.md and the manual that are marked as such have the shape of real runs. `make transcripts`
//! makes them.

use std::path::Path;

struct Transcript {
    file: String,
    command: String,
    lines: Vec<String>,
}

fn transcripts() -> Vec<Transcript> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut files: Vec<_> =
        std::fs::read_dir(root.join("docs")).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "md"));
    files.push(root.join("README.md"));
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("<!-- transcript: ") else { continue };
            let command =
                command.strip_suffix(" -->").unwrap_or_else(|| panic!("{file}: {line}")).to_string();
            assert_eq!(lines.next(), Some("```console"), "{file}: after {line}");
            let lines: Vec<String> = lines.by_ref().take_while(|l| *l != "```").map(String::from).collect();
            found.push(Transcript { file: file.clone(), command, lines });
        }
    }
    found
}

/// Every number of a line, in order.
fn numbers(line: &str) -> Vec<f64> {
    line.split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .filter_map(|w| w.trim_end_matches('.').parse().ok())
        .collect()
}

#[test]
fn each_begins_with_its_command_and_is_whole() {
    let all = transcripts();
    assert!(all.iter().any(|t| t.file == "README.md"), "README.md shows what ncpu prints");
    for Transcript { file, command, lines } in &all {
        let first = &lines[0];
        assert!([format!("# {command}"), format!("$ {command}")].contains(first), "{file}: {first}");
        assert!(lines.len() > 1, "{file}: {command} printed nothing");
        assert!(lines.iter().all(|l| !l.contains('\x1b') && l.trim_end() == l), "{file}: {command}");
        let recorded = lines.iter().any(|l| l.contains("recorded in"));
        assert!(!recorded || command.contains("--record"), "{file}: {command} recorded nothing");
    }
}

/// The noisy neighbour of each run of workloads/tenants.sh is named for nine tenths of the loss, with its cause, and tenants share the
/// capacity.
#[test]
fn tenants_name_the_noisy_neighbour() {
    let all = transcripts();
    let runs: Vec<_> = all.iter().filter(|t| t.command.starts_with("tenants.sh ")).collect();
    assert!(runs.len() >= 3, "docs/tenants.md shows three causes");
    for Transcript { command, lines, .. } in runs {
        let cause = command.split(' ').nth(1).unwrap();
        let text = lines[1..].join(" ");
        let sentence = text.split("/web.service lost ").nth(1).unwrap_or_else(|| panic!("{command}: {text}"));
        let sentence = sentence.split(". ").next().unwrap();
        let named = match cause {
            "weight" => "behind /batch.service on run queues",
            "disk" => "which served /batch.service",
            _ => "held back by its own CPU limit",
        };
        let words = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(named), "{command}: {words}");
        let seconds = numbers(&words);
        assert!(seconds[1] >= 0.9 * seconds[0], "{command}: {words}");
        let at = lines.iter().position(|l| l.starts_with("capacity ")).expect("a table of tenants");
        let rows = lines[at + 1..].iter().take_while(|line| line.contains('%'));
        let shares: f64 = rows.filter_map(|line| numbers(line.split('%').next()?).pop()).sum();
        assert!((99.0..=101.0).contains(&shares), "{command}: {shares} %");
    }
}

/// `logger 4 5 · 5.0 s · 2 CPUs · 10.0 CPU-s of capacity …`, and a table of layers, of which small ones are left out.
fn short_form(file: &str, command: &str, lines: &[String]) {
    let words = lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let (head, _) = words
        .split_once(" CPU-s of capacity")
        .unwrap_or_else(|| panic!("{file}: {command} shows no capacity"));
    let mut parts = head.rsplit(" · ");
    let mut number = || numbers(parts.next().unwrap_or_default()).first().copied();
    let [capacity, cpus, elapsed] = [number(), number(), number()].map(|n| n.expect("a number"));
    assert!((cpus * elapsed - capacity).abs() <= 0.05 * cpus + 0.05, "{file}: {head}");
    let at = lines.iter().position(|l| l.starts_with("capacity ")).expect("a table of layers");
    let layers = lines[at + 1..].iter().take_while(|line| line.contains('%') && !line.starts_with("note"));
    let shares: f64 = layers.filter_map(|line| numbers(line.split('%').next()?).pop()).sum();
    assert!((80.0..=101.0).contains(&shares), "{file}: {command}: {shares} %");
}

#[test]
fn the_layers_of_an_onion_are_its_capacity() {
    let all = transcripts();
    let onions: Vec<_> = all
        .iter()
        .filter(|t| ["ncpu run ", "ncpu watch "].iter().any(|c| t.command.starts_with(c)))
        // Of a run that is only recorded for the next command nothing is shown.
        .filter(|t| !t.command.contains(" >/dev/null"))
        .collect();
    assert!(!onions.is_empty());
    for Transcript { file, command, lines } in onions {
        if !command.contains(" -v ") {
            short_form(file, command, lines);
            continue;
        }
        let at = lines.iter().position(|l| l.starts_with("Capacity: "));
        let at = at.unwrap_or_else(|| panic!("{file}: {command} shows no capacity"));
        let [cpus, elapsed, capacity] = numbers(&lines[at])[..] else { panic!("{file}: {}", lines[at]) };
        assert!((cpus * elapsed - capacity).abs() <= 0.01 * cpus + 0.01, "{file}: {}", lines[at]);
        let (mut shares, mut seconds) = (0.0, 0.0);
        for line in lines[at..].iter().take_while(|line| !line.starts_with("threads: ")) {
            // ` 64.4 %      6.444    0.27  system calls …`; small layers stand in one line together.
            if let Some(rest) = line.split_once("small, ").filter(|(before, _)| before.trim().is_empty()) {
                shares += numbers(rest.1)[0];
                continue;
            }
            let share = line.get(..7).and_then(|s| s.trim().strip_suffix('%')?.trim().parse::<f64>().ok());
            let Some(share) = share else { continue };
            let time = numbers(&line[7..])[0];
            assert!((100.0 * time / capacity - share).abs() < 0.15 + 0.1 / capacity, "{file}: {line}");
            shares += share;
            seconds += time;
        }
        assert!((shares - 100.0).abs() < 1.0, "{file}: {command}: the layers are {shares} % of the capacity");
        assert!(seconds <= capacity * 1.001, "{file}: {command}: {seconds} of {capacity}");
    }
}
