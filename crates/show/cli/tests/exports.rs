//! `ncpu report --pprof`, `--otlp`, `--folded`, `--speedscope`, `--perfetto`: other tools get the figures of the tables.

mod common;

#[path = "../../http/tests/common/collector.rs"]
mod collector;

use std::collections::BTreeMap;
use std::process::Command;

use collector::{Collector, decode};
use common::{busy, err, ncpu, out, root};

#[test]
fn other_tools_are_given_what_the_tables_tell() {
    if !root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let busy = busy(place.path());
    let recording = path("busy.ncpu");
    let ran = ncpu(&["run", "-F", "499", "--record", &recording, "--", busy.to_str().unwrap(), "0.5"]);
    assert!(ran.status.success(), "{}", err(&ran));

    let report = |args: &[&str]| {
        let told = ncpu(&[&["report", &recording], args].concat());
        assert!(told.status.success(), "{}", err(&told));
        out(&told)
    };
    // Our own top: seconds by the innermost frame.
    let mut own: BTreeMap<String, f64> = BTreeMap::new();
    for line in report(&["--table", "stacks", "-o", "json"]).lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        if row["kind"] != "off-cpu" {
            let leaf = row["stack"].as_str().unwrap().rsplit(';').next().unwrap();
            *own.entry(leaf.trim_end_matches("_[k]").into()).or_default() += row["seconds"].as_f64().unwrap();
        }
    }
    let seconds = own["counts_and_counts"];
    assert!(seconds > 0.1, "{own:?}");

    let folded = report(&["--folded", "-"]);
    let microseconds = |words: &str| -> f64 {
        let of = folded.lines().filter(|line| line.contains(words));
        of.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    assert!((microseconds("") / 1e6 - own.values().sum::<f64>()).abs() < 1e-4);
    assert!((microseconds(";counts_and_counts ") / 1e6 - seconds).abs() < 1e-4);

    let scope: serde_json::Value = serde_json::from_str(&report(&["--speedscope", "-"])).unwrap();
    let sum: f64 =
        scope["profiles"][0]["weights"].as_array().unwrap().iter().map(|w| w.as_f64().unwrap()).sum();
    assert!((sum - own.values().sum::<f64>()).abs() < 1e-6, "{sum} {own:?}");

    let (profile, trace, otlp) = (path("busy.pb"), path("busy.perfetto-trace"), path("busy.otlp"));
    assert_eq!(report(&["--pprof", &profile, "--perfetto", &trace, "--otlp", &otlp]), "", "only files");
    let request = std::fs::read(&otlp).unwrap();
    assert!(request.windows(17).any(|name| name == b"counts_and_counts"));
    assert!(std::fs::metadata(&trace).unwrap().len() > 100);
    // A collector gets what the file has.
    let collector = Collector::start(&[
        "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 No\r\n\r\nno such tenant",
    ]);
    assert_eq!(report(&["--otlp", &collector.url]), "", "nothing is printed");
    let busy = collector.next();
    let (head, body) = collector.next();
    assert!(head.starts_with("POST /v1development/profiles HTTP/1."), "{head}");
    assert!(body == request && busy.1 == request, "the same message as in the file, again when it was busy");
    let decoded = decode(&body);
    assert!(decoded.functions.iter().any(|name| name == "counts_and_counts"), "{decoded:?}");
    let cpu: u64 = decoded.sums.iter().filter(|((_, ty), _)| ty == "cpu").map(|(_, n)| n).sum();
    assert!((cpu as f64 / 1e9 - own.values().sum::<f64>()).abs() < 1e-4, "{decoded:?}");
    let refused = ncpu(&["report", &recording, "--otlp", &collector.url]);
    assert!(
        !refused.status.success() && err(&refused).contains("status 403: no such tenant"),
        "{}",
        err(&refused)
    );
    let tls = ncpu(&["report", &recording, "--otlp", "https://127.0.0.1:1"]);
    assert!(!tls.status.success() && err(&tls).contains("--otlp https://127.0.0.1:1"), "{}", err(&tls));
    let packed = path("busy.pb.gz");
    assert_eq!(report(&["--pprof", &packed]), "");
    let unpacked = Command::new("gzip").args(["-dc", &packed]).output().unwrap();
    assert!(unpacked.status.success() && unpacked.stdout == std::fs::read(&profile).unwrap());
    let none = ncpu(&["report", &recording, "--stacks", "spin"]);
    assert_eq!(none.status.code(), Some(2), "{}", err(&none));
    let lost = ncpu(&["report", &recording, "--pprof", &path("no/such/file")]);
    assert_eq!(lost.status.code(), Some(1));

    let args = ["tool", "pprof", "-top", "-unit=ms", "-symbolize=none", "-sample_index=cpu", &profile];
    let Ok(top) = Command::new("go").args(args).output() else {
        eprintln!("skipped: no go tool pprof");
        return;
    };
    assert!(top.status.success(), "{}", err(&top));
    let text = out(&top);
    let line =
        text.lines().find(|line| line.ends_with(" counts_and_counts")).unwrap_or_else(|| panic!("{text}"));
    let flat: f64 = line.split_whitespace().next().unwrap().trim_end_matches("ms").parse().unwrap();
    assert!((flat / 1e3 - seconds).abs() < 0.01 * seconds + 1e-3, "{flat} ms of {seconds} s");

    // The file that has the code, and the process.
    let pprof = |args: &[&str]| {
        let args = [&["tool", "pprof", "-symbolize=none", "-sample_index=cpu"], args, &[&profile]].concat();
        let told = Command::new("go").args(args).output().unwrap();
        assert!(told.status.success(), "{}", err(&told));
        out(&told)
    };
    let raw = pprof(&["-raw"]);
    assert!(raw.lines().any(|line| line.contains(" busy ") && line.contains("[FN]")), "{raw}");
    let top = pprof(&["-top", "-tagfocus=process=^busy$"]);
    assert!(top.lines().any(|line| line.ends_with(" counts_and_counts")), "{top}");
}

/// `ncpu report` of a recording, with programs of `programs` first and a display or none.
fn opened(recording: &str, args: &[&str], programs: &std::path::Path, display: &str) -> std::process::Output {
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut report = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    report.args(["report", recording, "--open"]).args(args).env_remove("WAYLAND_DISPLAY");
    report.env("PATH", path).env("DISPLAY", display).env("TMPDIR", programs).output().unwrap()
}

#[test]
fn a_page_is_opened_by_the_user_s_browser() {
    use std::os::unix::fs::PermissionsExt;
    if !root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let recording = place.path().join("true.ncpu");
    let recording = recording.to_str().unwrap();
    let ran = ncpu(&["run", "--record", recording, "--", "true"]);
    assert!(ran.status.success(), "{}", err(&ran));
    let (browser, asked) = (place.path().join("xdg-open"), place.path().join("asked"));
    let script = |status: u8| format!("#!/bin/sh\necho \"$1\" >>{}\nexit {status}\n", asked.display());
    let install = |status: u8| {
        std::fs::write(&browser, script(status)).unwrap();
        std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    install(0);
    let said = opened(recording, &[], place.path(), ":7");
    assert!(said.status.success(), "{}", err(&said));
    let page = std::fs::read_to_string(&asked).unwrap();
    assert!(page.trim().ends_with(".html") && err(&said).contains(page.trim()), "{page} {}", err(&said));
    assert!(std::fs::read_to_string(page.trim()).unwrap().contains("<html"));
    // A file that is named is the one that is opened.
    let named = place.path().join("named.html");
    let said = opened(recording, &["--html", named.to_str().unwrap()], place.path(), ":7");
    assert!(said.status.success() && std::fs::read_to_string(&asked).unwrap().contains("named.html"));
    // Without a display the page is there all the same.
    std::fs::remove_file(&asked).unwrap();
    let said = opened(recording, &[], place.path(), "");
    assert!(said.status.success() && err(&said).contains("no display"), "{}", err(&said));
    assert!(!asked.exists());
    install(3);
    let said = opened(recording, &[], place.path(), ":7");
    assert!(!said.status.success() && err(&said).contains("xdg-open"), "{}", err(&said));
    let said = opened(recording, &["--html", "-"], place.path(), ":7");
    assert!(!said.status.success() && err(&said).contains("--open needs a file"), "{}", err(&said));
}
