//! `ncpu explain`, and the files of causes that users add.

mod common;

use std::process::{Command, Output};

use common::{err, out};
use ncpu_record::{Gather, Manifest};
use ncpu_schema::{CpuState, Layer, Per, Purpose, SampleClass, cpu_time, samples, summary};

fn ncpu(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ncpu")).args(arguments).env_remove("COLUMNS").output().unwrap()
}

fn explained(word: &str) -> String {
    let o = ncpu(&["explain", word]);
    assert_eq!(o.status.code(), Some(0), "{word}: {}", err(&o));
    out(&o)
}

#[test]
fn each_word_that_is_listed_can_be_asked_for() {
    let list = out(&ncpu(&["explain"])).replace("\n  ", " ");
    let kinds: Vec<(&str, &str)> = list.lines().filter_map(|line| line.split_once(": ")).collect();
    assert_eq!(kinds.len(), 8, "{list}");
    let words: Vec<&str> = kinds.iter().flat_map(|(_, words)| words.split(", ")).collect();
    assert!(words.len() > 200, "{list}");
    // One of each kind, and all layers.
    let layers = Layer::ALL.iter().map(|layer| layer.name()).filter(|name| !name.contains(", "));
    let firsts = kinds.iter().filter_map(|(_, words)| words.split(", ").next());
    for word in layers.chain(firsts) {
        let text = explained(word);
        assert!(text.lines().count() > 1 && text.starts_with(&format!("{word} (")), "{word}: {text}");
    }
    assert!(ncpu(&["explain", "system calls, faults and kernel locks"]).status.success());
}

#[test]
fn an_entry_has_its_grounds_and_sources() {
    let text = explained("descriptor-table");
    for part in [
        "layers: kernel lock spin, kernel lock block",
        "file_lock, close_fd",
        "grounds: All threads",
        "source: man 2 unshare",
    ] {
        assert!(text.replace("\n    ", " ").contains(part), "{part}: {text}");
    }
    // Words need no quotes and no capitals.
    let layer = out(&ncpu(&["explain", "Kernel", "lock", "spin"]));
    assert!(layer.contains("descriptor-table") && layer.contains("classes of samples: lock spin"), "{layer}");
    assert!(explained("GIL").contains("take_gil"), "{}", explained("GIL"));
    let idle = explained("idle");
    assert!(idle.contains("idle (layer)") && idle.contains("idle (state of a CPU)"), "{idle}");
}

#[test]
fn an_unknown_word_finds_those_like_it() {
    let o = ncpu(&["explain", "descriptor-tabel"]);
    assert_eq!((o.status.code(), out(&o)), (Some(2), String::new()));
    assert!(
        err(&o).contains("unknown word \"descriptor-tabel\"; did you mean \"descriptor-table\"?"),
        "{}",
        err(&o)
    );
    let o = ncpu(&["explain", "q\u{1b}[31mzzz"]);
    assert!(o.status.code() == Some(2) && !err(&o).contains('\u{1b}'), "{}", err(&o));
}

const OURS: &str = r#"[[cause]]
id = "our-calls"
layers = ["system calls"]
when = "call"
names = ["getpid"]
advice = "ours: {call} is cached by our library"
why = "Our runbook."
sources = ["runbook, section 7"]
example.samples = [{ at = "target", class = "syscall", detail = "getpid", process = "db", samples = 100 }]
look-alike.samples = [{ at = "target", class = "syscall", detail = "getppid", process = "db", samples = 100 }]
"#;

/// A recording whose program calls getpid half of the time.
fn recorded(dir: &std::path::Path) -> String {
    let mut times = cpu_time::Rows::new();
    let spent = Per::new(|state| Some(if state == CpuState::Program { 10.0 } else { 0.0 }));
    times.push(cpu_time::Row { time: Some(10.0), cpu: Some(0), spent, kernel: None });
    let mut sampled = samples::Rows::new();
    for (class, detail) in [(SampleClass::User, "work"), (SampleClass::Syscall, "getpid")] {
        sampled.push(samples::Row {
            at: Some(CpuState::Program),
            class: Some(class),
            detail: detail.into(),
            process: "db".into(),
            samples: Some(500),
            time: None,
        });
    }
    let mut whole = summary::Rows::new();
    whole.push(summary::Row { elapsed: Some(10.0), cpus: Some(1), ..Default::default() });
    let manifest = Manifest::new(Purpose::Run, 1, vec!["db".into()], 1.0);
    let tables = [times.finish(), sampled.finish(), whole.finish()];
    let mut gather = Gather::new(manifest);
    tables.iter().for_each(|table| gather.append(table).unwrap());
    let path = dir.join("db.ncpu");
    gather.finish().unwrap().save(&path).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn why_names_layers_and_what_else_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recorded(dir.path());
    let layer = out(&ncpu(&["why", "system", "calls", &recording]));
    assert!(layer.starts_with("system calls: ") && layer.contains("getpid"), "{layer}");
    assert!(layer.contains("belong to no listed cause") && layer.contains("ruled out"), "{layer}");
    let unknown = ncpu(&["why", "getpid", &recording]);
    let said = err(&unknown);
    assert!(
        !unknown.status.success() && said.contains("expected one of: ") && said.contains("system calls"),
        "{said}"
    );
    let steal = ncpu(&["why", "steal", &recording]);
    assert!(err(&steal).contains("nothing of the capacity went to \"steal\""), "{}", err(&steal));
    // Without a word, all causes; where there is none, the report.
    assert!(out(&ncpu(&["why", &recording])).contains("CPU-s of capacity"));
}

#[test]
fn a_user_s_causes_are_looked_up_first() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recorded(dir.path());
    let file = dir.path().join("ours.toml");
    std::fs::write(&file, OURS).unwrap();
    let file = file.to_str().unwrap();
    let own = out(&ncpu(&["report", "-v", &recording]));
    assert!(own.contains("-> most is getpid: call it less often"), "{own}");
    let text = out(&ncpu(&["report", "-v", "--causes", file, &recording]));
    assert!(text.contains("-> ours: getpid is cached by our library"), "{text}");
    let json = out(&ncpu(&["report", "--causes", file, "-o", "json", &recording]));
    let calls = json.lines().find(|line| line.contains("\"system calls\"")).unwrap();
    let calls: serde_json::Value = serde_json::from_str(calls).unwrap();
    assert_eq!(calls["advice"][0]["id"], "our-calls");
    assert_eq!(calls["advice"][0]["words"], "ours: getpid is cached by our library");
    assert_eq!(
        (&calls["evidence"][0]["kind"], &calls["evidence"][0]["calls"][0]["name"]),
        (&"calls".into(), &"getpid".into())
    );
    let explained = out(&ncpu(&["explain", "--causes", file, "our-calls"]));
    assert!(
        explained.contains("from a user's file") && explained.contains("runbook, section 7"),
        "{explained}"
    );
}

#[test]
fn a_file_of_causes_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ours.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        ncpu(&["explain", "--check", file.to_str().unwrap()])
    };
    let o = check(OURS);
    assert!(o.status.success() && out(&o).starts_with("1 of 1 causes"), "{}{}", out(&o), err(&o));
    // A look-alike that has the cause, an example that has not, and a column that is none.
    for (from, to, why) in [
        ("getppid", "getpid", "look-alike: system calls gets our-calls"),
        ("names = [\"getpid\"]", "names = [\"getuid\"]", "example: system calls gets one-call"),
        ("samples = 100 }]\nlook", "sample = 100 }]\nlook", "unknown column `sample` of `samples`"),
    ] {
        let o = check(&OURS.replace(from, to));
        assert!(o.status.code() == Some(1) && err(&o).contains(why), "{why}: {}", err(&o));
    }
    let o = check(&OURS.replace("when = \"call\"", "when = \"cal\""));
    assert!(
        o.status.code() == Some(1) && err(&o).contains("ours.toml:4:8: unknown evidence `cal`"),
        "{}",
        err(&o)
    );
    // Before a program runs.
    let ran = dir.path().join("ran");
    let o = ncpu(&["run", "--causes", file.to_str().unwrap(), "--", "touch", ran.to_str().unwrap()]);
    assert!(!o.status.success() && !ran.exists() && err(&o).contains("unknown evidence"), "{}", err(&o));
}
