//! Queries to DuckDB: planted changes are found, and errors are one line.

mod common;

use std::collections::HashMap;
use std::path::Path;

use common::generate::{GROWTH, LOCK, OUTLIERS, Plan, REGRESSED, STRANGE, SUFFERS, UNLUCKY};
use common::{bad, engine, good, plan, run, said};
use ncpu_fleet::{compact, store, when};

/// Rows of comma-separated values by column.
fn rows(text: &str) -> Vec<HashMap<String, String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().unwrap().clone();
    let row = |r: csv::StringRecord| head.iter().map(String::from).zip(r.iter().map(String::from)).collect();
    reader.records().map(|r| row(r.unwrap())).collect()
}

fn number(row: &HashMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column}: {row:?}"))
}

fn fleet(place: &Path, plan: &Plan) -> String {
    let from = place.join("recordings");
    plan.write(&from, 2).unwrap();
    std::fs::write(place.join("hosts.csv"), plan.labels()).unwrap();
    let root = place.join("it's a [fleet]").to_str().unwrap().to_string();
    let hosts = place.join("hosts.csv");
    let add = ["add", &root, from.to_str().unwrap(), "--labels", hosts.to_str().unwrap(), "--no-compact"];
    let out = run(&add);
    assert!(out.status.success(), "{}", said(&out));
    root
}

/// The planted change as if a remedy had caused it: on all machines that have it, on some by chance, and on none.
#[test]
fn a_remedy_is_judged_by_machine() {
    if !engine() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let root = fleet(place.path(), &plan(45, 6, true));
    let root = root.as_str();
    let before = ["--before", "2026-11-10T00..02"];
    let planned = |name: &str, more: &[&str]| {
        rows(&good(&[&["fix", root, name, "--remedy", "a setting", "-o", "csv"][..], &before, more].concat()))
    };
    let judged = |name: &str, more: &[&str]| {
        let args = [&["fix", root, name, "--after", "2026-11-10T03..", "-o", "csv"][..], more].concat();
        rows(&good(&args)).remove(2)
    };
    let all = planned("few", &["--canary", "10%"]);
    assert_eq!(all.len(), 45);
    assert_eq!(all.iter().filter(|r| r["role"] == "canary").count(), 5);
    let kind = format!("label:type = '{REGRESSED}'");
    let db = planned("alike", &["--canary", "40", "--where", &kind]);
    assert_eq!(db.len(), 15);
    // All of these changed alike, by 3 % of capacity, each with a tenth of that as spread.
    let nothing = judged("alike", &["--layer", "kernel lock spin"]);
    assert_ne!(nothing["verdict"], "adopt", "{nothing:?}");
    assert!(number(&nothing, "change").abs() < 1.0, "{nothing:?}");
    // The same plan as if all machines of the type were the canaries.
    let file = Path::new(root).join("fixes/alike.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut harm: serde_json::Value = serde_json::from_str(&text).unwrap();
    let few: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(Path::new(root).join("fixes/few.json")).unwrap())
            .unwrap();
    let list = |plan: &serde_json::Value, of: &str| plan[of].as_array().unwrap().clone();
    let canaries = [list(&harm, "canaries"), list(&harm, "others")].concat();
    let others = [list(&few, "canaries"), list(&few, "others")].concat();
    let others: Vec<_> = others.into_iter().filter(|one| !canaries.contains(one)).collect();
    assert_eq!((canaries.len(), others.len()), (15, 30));
    harm["canaries"] = canaries.into();
    harm["others"] = others.into();
    std::fs::write(Path::new(root).join("fixes/harm.json"), harm.to_string()).unwrap();
    let harm = judged("harm", &["--layer", "kernel lock spin"]);
    assert_eq!(harm["verdict"], "undo", "{harm:?}");
    // Other locks of the layer have noise of their own.
    assert!(number(&harm, "low") < 100.0 * GROWTH && 100.0 * GROWTH < number(&harm, "high"), "{harm:?}");
    for (args, why) in [
        (&["fix", root, "few", "--remedy", "x", "--before", "2026-11-10"][..], "already"),
        (&["fix", root, "none", "--after", "2026-11-10T03.."], "no fix `none`"),
        (&["fix", root, "few", "--after", "2026-11-10T01.."], "times in common"),
        (&["fix", root, "few", "--after", "2026-11-10T03..", "--layer", "x"], "unknown layer"),
        (&["fix", root, "a/b", "--remedy", "x", "--before", "2026-11-10"], "cannot name a fix"),
        (&["fix", root, "late", "--remedy", "x", "--before", "2027-01-01"], "0 machines"),
        (&["fix", root, "late", "--remedy", "x"], "--before"),
    ] {
        let said = bad(args);
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn what_was_planted_is_found() {
    if !engine() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    // Machines 17 and 42 differ from their kin.
    let root = fleet(place.path(), &plan(45, 6, true));
    let root = root.as_str();

    // Layers of a group sum to its capacity, to the microsecond.
    let onion = rows(&good(&["onion", root, "--by", "label:type", "-o", "csv"]));
    for group in ["web", "batch", "db"] {
        let of: Vec<_> = onion.iter().filter(|r| r["label:type"] == group).collect();
        let shares: f64 = of.iter().map(|r| number(r, "share")).sum();
        assert!((shares - 100.0).abs() < 1e-9, "{group}: {shares}");
        assert!(of.iter().any(|r| r["layer"] == "user code" && r["machines"] == "15"), "{of:?}");
    }
    let capacity = |text: String| rows(&text)[0].values().next().unwrap().parse::<f64>().unwrap() / 1e6;
    let whole = capacity(good(&["sql", root, "SELECT sum(capacity_us) AS us FROM recordings", "-o", "csv"]));
    let seconds: f64 = onion.iter().map(|r| number(r, "seconds")).sum();
    assert!((seconds / whole - 1.0).abs() < 1e-9);

    let locks = rows(&good(&["locks", root, "--by", "kernel,label:type", "--top", "5", "-o", "csv"]));
    assert_eq!(locks.len(), 5);
    assert!(locks.windows(2).all(|w| number(&w[0], "share") >= number(&w[1], "share")), "{locks:?}");
    assert!(locks[0]["label:type"] == "batch" && locks[0]["lock"] == "files_struct.file_lock", "{locks:?}");

    // The planted pair is found on all machines that have both tenants, and on no other machine.
    let pairs = rows(&good(&["tenants", root, "--by", "label:type", "-o", "csv"]));
    let pair = |r: &&HashMap<String, String>| (r["victim"].as_str(), r["culprit"].as_str()) == UNLUCKY;
    let unlucky: Vec<_> = pairs.iter().filter(pair).collect();
    assert_eq!(unlucky.len(), 1, "{pairs:?}");
    assert_eq!(pairs.iter().position(|r| pair(&r)), Some(0), "{pairs:?}");
    assert_eq!((unlucky[0]["label:type"].as_str(), unlucky[0]["cause"].as_str()), (REGRESSED, "run queue"));
    assert_eq!((unlucky[0]["machines"].as_str(), unlucky[0]["of"].as_str()), ("15", "15"));
    // 90 recordings, each within a tenth.
    assert!((number(unlucky[0], "lost") / (100.0 * SUFFERS) - 1.0).abs() < 0.1, "{unlucky:?}");
    assert!(unlucky[0]["worst"].starts_with('m') && number(unlucky[0], "there") > 0.0, "{unlucky:?}");
    assert!(pairs.iter().all(|r| r["victim"] != r["culprit"] && !r["culprit"].is_empty()), "{pairs:?}");
    let everywhere = rows(&good(&["tenants", root, "-o", "csv"]));
    let of_unlucky: Vec<_> = everywhere.iter().filter(pair).collect();
    assert_eq!((of_unlucky[0]["machines"].as_str(), of_unlucky[0]["of"].as_str()), ("15", "45"));

    // The six hours are 00 to 05; the planted change begins at 03.
    let periods = ["--before", "2026-11-10T00..02", "--after", "2026-11-10T03.."];
    let arguments = [&["regress", root, "--by", "label:type", "-o", "csv"][..], &periods].concat();
    let found = rows(&good(&arguments));
    let planted: Vec<_> = found.iter().filter(|r| r["name"].starts_with(LOCK)).collect();
    assert_eq!(planted.len(), 1, "{found:?}");
    assert_eq!((planted[0]["label:type"].as_str(), planted[0]["machines"].as_str()), (REGRESSED, "15"));
    assert!((number(planted[0], "change") - 100.0 * GROWTH).abs() < 0.3, "{planted:?}");
    assert!(number(planted[0], "low") > 0.0 && number(planted[0], "high") < 100.0 * GROWTH * 1.2);
    assert!(found.iter().all(|r| r["label:type"] == REGRESSED), "{found:?}");
    let arguments = [&["regress", root, "--machines", "-o", "csv"][..], &periods].concat();
    let machines = rows(&good(&arguments));
    let changed: Vec<_> =
        machines.iter().filter(|r| r["name"].starts_with(LOCK)).map(|r| r["host"].clone()).collect();
    let types = |host: &String| host[1..].parse::<usize>().unwrap() % 3;
    // Three recordings before and three after are little evidence for a single machine; every reported change
    // is real.
    assert!(!changed.is_empty() && changed.iter().all(|h| types(h) == 2), "{changed:?}");
    // Before 03 there is no planted change.
    let quiet = ["regress", root, "--before", "2026-11-10T00", "--after", "2026-11-10T01", "-o", "csv"];
    assert!(rows(&good(&quiet)).iter().all(|r| !r["name"].starts_with(LOCK)));

    let found =
        rows(&good(&["outliers", root, "--by", "label:type", "--until", "2026-11-10T03", "-o", "csv"]));
    let has = |machine: usize, name: &str| {
        found.iter().any(|r| r["host"] == Plan::host(machine) && r["name"].starts_with(name))
    };
    assert!(has(OUTLIERS[0], "interrupts") && has(OUTLIERS[1], STRANGE.0), "{found:?}");
    let hosts: std::collections::HashSet<_> = found.iter().map(|r| r["host"].as_str()).collect();
    assert_eq!(hosts.len(), 2, "{found:?}");

    let where_ = ["locks", root, "--where", "label:type = 'web' AND kernel LIKE '6.1.%'", "-o", "csv"];
    assert!(rows(&good(&where_)).iter().all(|r| number(r, "machines") <= 5.0));
    let days = rows(&good(&["onion", root, "--by", "day", "-o", "csv"]));
    assert!(days.iter().all(|r| r["day"] == "2026-11-10"));
    for question in ["user-locks", "calls", "machines"] {
        assert!(good(&[question, root, "--top", "3"]).lines().count() >= 2, "{question}");
    }
    assert!(rows(&good(&["machines", root, "-o", "csv"])).len() == 45);

    // By default kin have less in common if there are too few of them.
    let found = rows(&good(&["outliers", root, "--until", "2026-11-10T03", "-o", "csv"]));
    let hosts: std::collections::HashSet<_> = found.iter().map(|r| r["host"].as_str()).collect();
    let planted = OUTLIERS.map(Plan::host);
    assert!(planted.iter().all(|host| hosts.contains(host.as_str())) && hosts.len() <= 3, "{found:?}");
    assert!(found.iter().all(|r| r["labels"].contains("type=") && r["kernel"] == "any"), "{found:?}");

    // The obvious sum equals that of `onion`.
    let sum =
        "SELECT 100.0 * sum(us) / sum(capacity_us) AS percent FROM layers WHERE layer = 'kernel lock spin'";
    let percent = number(&rows(&good(&["sql", root, sum, "-o", "csv"]))[0], "percent");
    let onion = rows(&good(&["onion", root, "-o", "csv"]));
    let share = onion.iter().find(|r| r["layer"] == "kernel lock spin").map(|r| number(r, "share"));
    assert!((percent - share.unwrap()).abs() < 0.01, "{percent} {share:?}");
    // Time blocked in user locks takes no capacity, but is shown.
    let locks = rows(&good(&["user-locks", root, "-o", "csv"]));
    assert!(locks.iter().any(|r| number(r, "block") > 0.0 && number(r, "waited") > 0.0), "{locks:?}");

    let said = bad(&["onion", root, "--by", "label:nosuch"]);
    assert!(said.contains("unknown label `nosuch`; expected one of: type"), "{said}");
    let said = bad(&["locks", root, "--where", "label:nosuch = 'x'"]);
    assert!(said.contains("unknown label `nosuch`"), "{said}");
    let said = bad(&["sql", root, "SELECT nosuch FROM layers"]);
    assert!(said.contains("nosuch") && !said.contains("sqlstate"), "{said}");

    for question in ["locks", "outliers", "sql"] {
        let page = place.path().join("answer.html");
        let mut arguments = vec![question, root, "--html", page.to_str().unwrap()];
        arguments.extend((question == "sql").then_some("SELECT '<b>' AS name, count(*) AS rows FROM layers"));
        good(&arguments);
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("Content-Security-Policy") && page.contains("<th") && !page.contains("<b>"));
        assert!(question != "locks" || page.contains("file_lock"), "{page}");
        // The largest of a column of times or shares has the whole of a bar.
        assert_eq!(page.contains("style=--part:100.0%"), question != "sql", "{page}");
    }

    let page = place.path().join("fleet.html");
    good(&["onion", root, "--by", "label:type", "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Content-Security-Policy") && page.contains("m0044") && !page.contains("src="));

    // Compacted, everything is the same.
    let before = good(&["onion", root, "--by", "kernel,label:type", "-o", "csv"]);
    good(&["compact", root]);
    assert_eq!(good(&["onion", root, "--by", "kernel,label:type", "-o", "csv"]), before);
}

/// A single machine makes a part of each table per hour.
#[test]
fn many_small_files_are_one_table() {
    if !engine() {
        return;
    }
    const HOURS: usize = 150;
    let place = tempfile::tempdir().unwrap();
    let root = fleet(place.path(), &plan(1, HOURS, false));
    let parts = |table: &str| {
        std::fs::read_dir(Path::new(&root).join(table)).unwrap().fold(0, |sum, date| {
            let hours = std::fs::read_dir(date.unwrap().path()).unwrap();
            sum + hours.map(|h| std::fs::read_dir(h.unwrap().path()).unwrap().count()).sum::<usize>()
        })
    };
    assert_eq!(["recordings", "layers", "locks", "calls", "events"].map(parts), [HOURS; 5]);
    let ask = |question: &[&str]| rows(&good(&[question, &["-o", "csv"]].concat()));
    let count = ask(&["sql", &root, "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM recordings"]);
    assert_eq!((number(&count[0], "n"), number(&count[0], "ids")), (HOURS as f64, HOURS as f64));
    let days = ask(&["onion", &root, "--by", "day"]);
    let of = |day: &str| days.iter().filter(|r| r["day"] == day).map(|r| number(r, "share")).sum::<f64>();
    assert!(["2026-11-10", "2026-11-16"].iter().all(|day| (of(day) - 100.0).abs() < 1e-9), "{days:?}");
    // After merging, one part per day is left, and the answers are the same.
    let arguments = ["locks", &root, "--by", "day", "-o", "csv"];
    let apart = good(&arguments);
    // Within the month: a past one would be a part.
    let now = when::ago("2026-11-20", 0).unwrap();
    let how = compact::Options { take_over: false, threads: 1, now };
    let outcome = compact::compact(store::open_to_write(&root, 0o600).unwrap().as_ref(), &how).unwrap();
    assert_eq!((outcome.before, outcome.after), (750, 35));
    assert_eq!(parts("layers"), 7);
    assert_eq!((ask(&["onion", &root, "--by", "day"]), good(&arguments)), (days, apart));
    // For selected days, other files are not even opened.
    let day = "layers/date=2026-11-15/hour=__HIVE_DEFAULT_PARTITION__/part-000001.parquet";
    assert!(Path::new(&root).join(day).exists());
    std::fs::write(Path::new(&root).join(day), "x").unwrap();
    let week = ["onion", &root, "--since", "2026-11-10", "--until", "2026-11-14"];
    assert!(!ask(&week).is_empty());
    let said = bad(&["onion", &root]);
    assert!(said.contains(day), "{said}");
}

#[test]
fn engines_that_are_not_there() {
    if !engine() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let root = fleet(place.path(), &plan(2, 1, false));
    let root = root.as_str();
    for (engine, why) in [
        ("mysql", "expected duckdb, the path of its library, or grpc://HOST:PORT"),
        ("/nonexistent/libduckdb.so", "does not exist"),
        ("/etc/passwd", "cannot be loaded as DuckDB"),
    ] {
        let said = bad(&["onion", root, "--engine", engine]);
        assert!(said.contains(why), "{said}");
    }
    // A library that is not an engine.
    if let Some(other) = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"]
        .iter()
        .find(|p| Path::new(p).exists())
    {
        let said = bad(&["onion", root, "--engine", other]);
        assert!(said.contains("cannot be loaded as DuckDB"), "{said}");
    }
    let out = common::command(&["onion", root]).env("NCPU_DUCKDB", "/nonexistent").output().unwrap();
    assert!(said(&out).contains("NCPU_DUCKDB: /nonexistent does not exist"));
    let mut nowhere = common::command(&["onion", root]);
    nowhere.env("XDG_DATA_HOME", place.path()).env_remove("NCPU_DUCKDB");
    let out = nowhere.output().unwrap();
    assert!(
        out.status.success() || said(&out).contains("`ncpu fleet engine install` fetches it"),
        "{}",
        said(&out)
    );
    // Neither a server nor, perhaps, its driver exists.
    let said = bad(&["onion", root, "--engine", "grpc://127.0.0.1:9"]);
    assert!(said.contains("no engine answers") || said.contains("no ADBC driver of Flight SQL"), "{said}");
}

#[test]
fn wrong_questions_are_refused_in_a_line() {
    if !engine() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let root = fleet(place.path(), &plan(2, 1, false));
    let root = root.as_str();
    for (arguments, why) in [
        (&["onion", root, "--where", "nosuch = 1"][..], "nosuch"),
        (&["onion", root, "--where", "kernel = 'x"], "unclosed quote"),
        (&["sql", root, "SELECT * FROM nosuch"], "nosuch"),
        (&["sql", root, "SELEC"], "SELEC"),
        (&["onion", root, "--by", "color"], "--by color"),
        (&["onion", root, "--since", "soon"], "invalid time `soon`"),
        (&["regress", root, "--before", "2026-11-10", "--after", "2026-11-10"], "times in common"),
        (&["onion", root, "-k", "nosuch"], "nosuch"),
    ] {
        let said = bad(arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    // All recordings are newer: an empty answer says so.
    let out = run(&["onion", root, "--until", "2020-01-01"]);
    assert!(
        out.status.success() && said(&out).contains("no recording of the fleet matches"),
        "{}",
        said(&out)
    );
    assert!(good(&["locks", root, "--explain"]).contains("read_parquet(["));
    let json = good(&["onion", root, "-o", "json", "--top", "1"]);
    assert!(json.starts_with("{\"layer\":") && json.lines().count() == 1, "{json}");
}
