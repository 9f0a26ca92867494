//! Additions of recordings: each once, whatever fails.

#[path = "../../table/tests/bomb/mod.rs"]
mod bomb;
mod common;

use std::fs;
use std::path::{Path, PathBuf};

use bomb::Bomb;
use common::generate::Plan;
use common::{add, bad, fleet, good, once, plan, rows, run, said, seed};
use ncpu_fleet::parts;
use ncpu_fleet::rollup::{self, Rolled};

use ncpu_fleet::tables::{self, Kept};
use ncpu_record::Recording;
use ncpu_schema::{Layer, fleet as schema, locks, tenant_losses, tenant_names, user_locks};
use ncpu_table::{Column, Kind, Table, Unit};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

/// A seed, changed and saved elsewhere.
fn changed(at: &Path, change: impl FnOnce(&mut Recording)) {
    let mut recording = Recording::open(&seed("torture")).expect("a seed");
    change(&mut recording);
    recording.save(at).expect("saved");
}

fn roll(path: &Path) -> Rolled {
    // The tables that a fleet reads must be enough.
    let opened = ncpu_record::Opened::open(path).expect("a manifest");
    let recording = opened.tables(Some(rollup::READ)).expect("a recording");
    rollup::roll(recording, "x", String::new(), path).expect("rolled up")
}

#[test]
fn twice_and_by_two_at_once_is_once() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    plan(9, 4, true).write(&from, 2).unwrap();
    let root = place.path().join("fleet");
    let store = fleet(&root);
    // Three at once, of which none has all recordings: all of them begin each hour at the same time.
    let [few, rest] =
        [&["m0000", "m0001", "m0002", "m0003", "m0004", "m0005"][..], &["m0003", "m0006", "m0007", "m0008"]];
    let paths = |names: &[&str]| names.iter().map(|n| from.join(n)).collect::<Vec<_>>();
    let sets = [paths(few), paths(rest), vec![from.clone()]];
    std::thread::scope(|scope| {
        for set in &sets {
            let store = store.as_ref();
            scope.spawn(move || add(store, &set.iter().map(PathBuf::as_path).collect::<Vec<_>>()));
        }
    });
    // One recording is damaged.
    let before = once(store.as_ref(), 35);
    let again = add(store.as_ref(), &[&from, &from]);
    assert_eq!((again.added, again.known, again.left_out.len()), (0, 71, 1));
    assert_eq!(rows(store.as_ref()), before);
    // Copies of the files are the same recordings.
    let copy = place.path().join("copy");
    let copied =
        std::process::Command::new("cp").args(["-r", "--"]).arg(from.join("m0001")).arg(&copy).status();
    assert!(copied.unwrap().success());
    let again = add(store.as_ref(), &[&copy]);
    assert_eq!((again.added, again.known), (0, 4));
}

#[test]
fn a_corrupt_one_is_named_and_the_rest_is_taken() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    plan(3, 3, false).write(&from, 2).unwrap();
    let bytes = fs::read(from.join("m0001/00001.ncpu/samples.parquet")).unwrap();
    fs::write(from.join("m0001/00001.ncpu/samples.parquet"), &bytes[..bytes.len() - 1]).unwrap();
    fs::write(from.join("m0002/00000.ncpu/manifest.json"), "{").unwrap();
    fs::remove_file(from.join("m0002/00001.ncpu/summary.parquet")).unwrap();
    let root = place.path().join("fleet");
    let out = run(&["add", root.to_str().unwrap(), from.to_str().unwrap()]);
    let said = said(&out);
    assert!(out.status.success(), "{said}");
    for (name, why) in [
        ("m0001/00001.ncpu", "samples.parquet is damaged: it is truncated"),
        ("m0002/00000.ncpu", "not JSON"),
        ("m0002/00001.ncpu", "summary.parquet is missing"),
    ] {
        assert!(said.lines().any(|l| l.contains(name) && l.contains(why)), "{said}");
    }
    assert!(said.contains("6 added, 0 there already, 3 left out"), "{said}");
    once(fleet(&root).as_ref(), 6);
    // Repaired, it is added.
    fs::write(from.join("m0001/00001.ncpu/samples.parquet"), bytes).unwrap();
    assert_eq!(add(fleet(&root).as_ref(), &[&from]).added, 1);
}

/// A copy of a recording with one file replaced, and a correct manifest except for the rows.
fn replaced(from: &Path, to: &Path, table: &str, bytes: &[u8], rows: i64) {
    let copied = std::process::Command::new("cp").args(["-r", "--"]).arg(from).arg(to).status();
    assert!(copied.unwrap().success());
    let name = format!("{table}.parquet");
    fs::write(to.join(&name), bytes).unwrap();
    let text = fs::read_to_string(to.join("manifest.json")).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sha256: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    manifest["files"][name] = serde_json::json!({"rows": rows, "bytes": bytes.len(), "sha256": sha256});
    // A different recording than the one it was copied from.
    manifest["notes"] = serde_json::json!([to.display().to_string()]);
    fs::write(to.join("manifest.json"), manifest.to_string()).unwrap();
}

#[test]
fn a_recording_that_is_a_bomb_is_left_out_and_the_rest_is_taken() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    plan(2, 2, false).write(&from, 2).unwrap();
    let good = from.join("m0000/00000.ncpu");
    let many = Bomb::floats(300_000_000);
    replaced(&good, &from.join("many"), "idle_time", &many.file("t"), many.rows);
    let long = Bomb::texts(2000, 2_000_000);
    replaced(&good, &from.join("long"), "samples", &long.file("detail"), long.rows);
    let rows = Bomb::floats(10);
    replaced(&good, &from.join("rows"), "samples", &rows.file("t"), 11);
    let mut torn = Bomb::floats(10).file("t");
    torn.truncate(40);
    replaced(&good, &from.join("torn"), "samples", &torn, 10);
    let text = fs::read_to_string(good.join("manifest.json")).unwrap();
    let copied =
        std::process::Command::new("cp").args(["-r", "--"]).arg(&good).arg(from.join("name")).status();
    assert!(copied.unwrap().success());
    let mut manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    manifest["host"] = serde_json::Value::String("h".repeat(100_000));
    fs::write(from.join("name/manifest.json"), manifest.to_string()).unwrap();
    // The first alone would take 7 GB.
    let root = place.path().join("fleet");
    let program = format!("ulimit -v 1500000; exec {} add \"$@\"", env!("CARGO_BIN_EXE_ncpu-fleet"));
    let out = std::process::Command::new("sh")
        .args(["-c", &program, "sh", "-j", "2"])
        .arg(&root)
        .arg(&from)
        .output();
    let out = out.unwrap();
    let said = said(&out);
    assert!(out.status.success(), "{said}");
    for (name, why) in [
        ("many", "MiB of memory"),
        ("long", "MiB of memory"),
        ("rows", "it holds 10 rows and the manifest says 11"),
        ("torn", "it is not a Parquet file, or is cut off"),
        ("name", "a name of 100000 bytes"),
    ] {
        let line = |l: &&str| l.contains(&format!("/{name}")) && l.contains(why);
        assert_eq!(said.lines().filter(line).count(), 1, "{name}: {said}");
    }
    assert!(said.contains("4 added, 0 there already, 5 left out") && !said.contains("panicked"), "{said}");
    once(fleet(&root).as_ref(), 4);
}

/// A sum as users write it: no layer's capacity misses the recordings in which the layer is empty.
#[test]
fn every_recording_has_a_row_of_each_layer() {
    for name in ["build", "torture", "files"] {
        let rolled = roll(&seed(name));
        let rows = rollup::table(Kept::Layers, [&rolled].into_iter());
        let names: Vec<&str> = (0..rows.num_rows()).filter_map(|r| rows.text(r, "layer")).collect();
        let mut all: Vec<&str> = Layer::ALL.iter().map(|l| l.name()).collect();
        all.sort_unstable();
        assert_eq!(names, all, "{name}");
        let empty = (0..rows.num_rows()).filter(|r| rows.int(*r, "us") == Some(0)).count();
        assert!(empty > 0 && empty < names.len(), "{name}: {empty} of {} layers are empty", names.len());
        let capacity: u64 = (0..rows.num_rows()).filter_map(|r| rows.int(r, "us")).sum();
        assert!((0..rows.num_rows()).all(|r| rows.int(r, "capacity_us") == Some(capacity)), "{name}");
    }
}

/// Lock, process, waits, time spinning and asleep in seconds, longest wait in microseconds.
type Waited = (usize, usize, u64, f64, f64, f64);

fn waits() -> impl Strategy<Value = Vec<Waited>> {
    let time = || 0.0..1e4f64;
    prop::collection::vec((0..3usize, 0..2usize, 0..1_000_000u64, time(), time(), 0.0..1e7f64), 0..40)
}

/// Names of tenants 4, `web.service`, and 5, `batch.service`, and the time that victims lost to culprits on
/// run queues, in seconds.
fn tenants(losses: &[(u64, Option<u64>, f64)]) -> [Table; 2] {
    let (mut names, mut lost) = (tenant_names::Rows::new(), tenant_losses::Rows::new());
    for (id, unit) in [(4, "web.service"), (5, "batch.service")] {
        names.push(tenant_names::Row { tenant: Some(id), unit: unit.into(), ..Default::default() });
    }
    for (victim, culprit, seconds) in losses {
        lost.push(tenant_losses::Row {
            time: Some(1.0),
            victim: Some(*victim),
            culprit: *culprit,
            cause: Some(ncpu_schema::Loss::RunQueue),
            threads: Some(*seconds),
            cpus: Some(seconds / 2.0),
            count: Some(1),
            ..Default::default()
        });
    }
    [names.finish(), lost.finish()]
}

/// A seed with these waits for locks of the kernel and of programs.
fn with_waits(waits: &[Waited]) -> Rolled {
    let mut recording = Recording::open(&seed("files")).expect("a seed");
    let (mut kernel, mut user) = (locks::Rows::new(), user_locks::Rows::new());
    for &(lock, process, count, spin, block, max) in waits {
        let (lock, process) = (["a", "b", "c"][lock], ["db", "web"][process]);
        let (count, spin, block, max) = (Some(count), Some(spin), Some(block), Some(max));
        let rest = locks::Row::default();
        kernel.push(locks::Row {
            lock: lock.into(),
            process: process.into(),
            count,
            spin,
            block,
            max,
            ..rest
        });
        let rest = user_locks::Row::default();
        user.push(user_locks::Row {
            lock: lock.into(),
            process: process.into(),
            count,
            spin,
            block,
            max,
            ..rest
        });
    }
    let mut lengths = ncpu_schema::lengths::Rows::new();
    lengths.push(ncpu_schema::lengths::Row {
        of: Some(ncpu_schema::Length::RunQueue),
        from: Some(1.0),
        to: Some(1.024),
        count: Some(3),
        ..Default::default()
    });
    let tables = [kernel.finish(), user.finish(), lengths.finish()];
    for table in tables.into_iter().chain(tenants(&[(4, Some(5), 0.25), (5, Some(4), 0.125), (4, None, 0.5)]))
    {
        recording.tables.insert(table.name().into(), table);
    }
    rollup::roll(recording, "x", String::new(), Path::new("x")).expect("rolled up")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whole microseconds of each row are summed: no wait is lost, none counted twice, in any order.
    #[test]
    fn sums_of_locks_are_exact_and_of_any_order(
        (waits, mixed) in waits().prop_flat_map(|w| (Just(w.clone()), Just(w).prop_shuffle())),
    ) {
        let us = |seconds: f64| (seconds * 1e6).round() as u64;
        let (ours, other) = (with_waits(&waits), with_waits(&mixed));
        for kept in [Kept::Locks, Kept::UserLocks] {
            let table = rollup::table(kept, [&ours].into_iter());
            let again = rollup::table(kept, [&other].into_iter());
            prop_assert_eq!(table.batch(), again.batch());
            let sum = |column: &str| (0..table.num_rows()).filter_map(|r| table.int(r, column)).sum::<u64>();
            prop_assert_eq!(sum("waits"), waits.iter().map(|w| w.2).sum::<u64>());
            prop_assert_eq!(sum("spin_us"), waits.iter().map(|w| us(w.3)).sum::<u64>());
            prop_assert_eq!(sum("block_us"), waits.iter().map(|w| us(w.4)).sum::<u64>());
            let longest = (0..table.num_rows()).filter_map(|r| table.int(r, "max_us")).max();
            prop_assert_eq!(longest, waits.iter().map(|w| w.5.round() as u64).max());
            let mut names: Vec<_> = (0..table.num_rows())
                .map(|r| (table.text(r, "lock").map(str::to_owned), table.text(r, "process").map(str::to_owned)))
                .collect();
            names.sort();
            names.dedup();
            prop_assert_eq!(names.len(), table.num_rows(), "a row for each lock");
        }
    }
}

/// Each row of a part begins with its recording, and every cell is in its own column.
#[test]
fn every_cell_stands_in_its_column() {
    let rolled = with_waits(&[(0, 0, 7, 0.5, 0.25, 90.0)]);
    let table = rollup::table(Kept::UserLocks, [&rolled].into_iter());
    let t = schema::user_locks::Reader::of(&table).unwrap();
    assert_eq!(
        (t.len(), t.id.get(0), t.lock.get(0), t.process.get(0)),
        (1, Some("x"), Some("a"), Some("db"))
    );
    assert_eq!(
        (t.waits.get(0), t.spin_us.get(0), t.block_us.get(0)),
        (Some(7), Some(500_000), Some(250_000))
    );
    assert_eq!((t.max_us.get(0), t.labels.get(0)), (Some(90), Some("")));
    let table = rollup::table(Kept::Recordings, [&rolled].into_iter());
    let t = schema::recordings::Reader::of(&table).unwrap();
    let capacity: u64 = rolled.layers.iter().map(|(_, us, _)| us).sum();
    assert!(capacity > 0);
    let seen = [&t.capacity_us, &t.lock_capacity_us, &t.user_lock_capacity_us, &t.call_capacity_us];
    assert_eq!(seen.map(|column| column.get(0)), [Some(capacity); 4]);
    assert_eq!((t.source.get(0), t.schema_version.get(0).is_some()), (Some("x"), true));
    for kept in Kept::ALL {
        let table = rollup::table(kept, [&rolled, &rolled].into_iter());
        assert_eq!((table.name(), table.columns()), (kept.name(), &kept.columns()[..]));
        assert!(table.num_rows() > 0 && table.num_rows() % 2 == 0, "{}", kept.name());
    }
}

/// Losses have the names of tenants and sum to the microsecond.
#[test]
fn losses_are_summed_by_name() {
    let mut recording = Recording::open(&seed("files")).expect("a seed");
    let mut given = vec![(4, Some(5), 0.25), (4, Some(5), 0.5), (5, None, 0.125)];
    // Losses of tenants without a name.
    given.extend((0..5).map(|i| (100 + i, Some(4), 0.001)));
    for table in tenants(&given) {
        recording.tables.insert(table.name().into(), table);
    }
    let rolled = rollup::roll(recording, "x", String::new(), Path::new("x")).expect("rolled up");
    let table = rollup::table(Kept::Ledger, [&rolled].into_iter());
    let t = schema::ledger::Reader::of(&table).unwrap();
    let rows: Vec<_> = t
        .rows()
        .map(|r| {
            (
                t.victim.get(r).unwrap_or(""),
                t.culprit.get(r).unwrap_or(""),
                t.threads_us.get(r),
                t.times.get(r),
            )
        })
        .collect();
    let expected = [
        ("batch.service", "", Some(125_000), Some(1)),
        ("other", "web.service", Some(5_000), Some(5)),
        ("web.service", "batch.service", Some(750_000), Some(2)),
    ];
    assert_eq!(rows, expected);
    assert!(t.rows().all(|r| t.cause.get(r) == Some("run queue") && t.capacity_us.get(r) > Some(0)));
}

#[test]
fn recordings_of_other_versions_are_taken() {
    let place = tempfile::tempdir().unwrap();
    let rows = |r: &Rolled, of: Kept| rollup::table(of, [r].into_iter());
    let sum = |r: &Rolled| r.layers.iter().map(|(_, us, _)| *us).sum::<u64>();
    let of = |r: &Rolled, layer: Layer| {
        r.layers.iter().find(|(name, ..)| *name == layer.name()).map_or(0, |(_, us, _)| *us)
    };
    let now = roll(&seed("torture"));
    // An old recording: columns added since version 1 are missing.
    changed(&place.path().join("old"), |r| {
        r.manifest.schema = 1;
        r.manifest.kind = None;
        let events = r.tables.remove("events").unwrap();
        r.tables.insert("counters".into(), events.renamed("counters"));
        for (table, gone) in
            [("cpu_time", "kernel"), ("idle_time", "ulock or serial"), ("idle_time", "klock or io")]
        {
            let old = r.tables[table].clone();
            let keep: Vec<&str> =
                old.columns().iter().map(|c| c.name.as_str()).filter(|c| *c != gone).collect();
            r.tables.insert(table.into(), old.project(&keep).unwrap());
        }
    });
    let old = roll(&place.path().join("old"));
    assert_eq!(old.layers, now.layers);
    assert_eq!(rows(&old, Kept::Events), rows(&now, Kept::Events));
    // Read whole, it is the same.
    let whole = Recording::open(&seed("torture")).unwrap();
    let whole = rollup::roll(whole, "x", String::new(), &seed("torture")).unwrap();
    for table in Kept::ALL {
        assert_eq!(rows(&whole, table), rows(&now, table), "{table:?}");
    }
    // A future recording: an unknown state of CPUs, reason to idle, class of samples and column.
    let idle = Recording::open(&seed("torture")).unwrap().tables["idle_time"].clone();
    let rows = idle.num_rows();
    changed(&place.path().join("new"), |r| {
        r.manifest.schema = ncpu_schema::VERSION + 1;
        let column = |name: &str| Column::float(name, Unit::CpuSeconds, Kind::Time, "of tomorrow");
        let time = r.tables["cpu_time"].clone();
        let more = time.with_numbers(column("dreaming"), &vec![Some(0.0); time.num_rows()], "none").unwrap();
        r.tables.insert("cpu_time".into(), more);
        let mut more = idle.with_numbers(column("bored"), &vec![Some(0.5); rows], "none").unwrap();
        // The seed is older than some of today's reasons.
        for reason in ncpu_schema::IdleReason::ALL.map(|reason| reason.name()) {
            if !more.columns().iter().any(|c| c.name == reason) {
                more = more.with_numbers(column(reason), &vec![Some(0.0); rows], "none").unwrap();
            }
        }
        r.tables.insert("idle_time".into(), more);
        let mut samples = Table::builder("samples", r.tables["samples"].columns());
        let old = r.tables["samples"].clone();
        let all: u64 = (0..old.num_rows())
            .filter(|&i| old.text(i, "at") == Some("target"))
            .filter_map(|i| old.int(i, "samples"))
            .sum();
        for i in 0..old.num_rows() {
            let cell = |c: &str| old.text(i, c).map(String::from);
            samples
                .row()
                .text_opt(cell("at"))
                .text_opt(cell("class"))
                .text_opt(cell("detail"))
                .text_opt(cell("process"))
                .int_opt(old.int(i, "samples"));
        }
        samples.row().text("target").text("quantum").text("x").text("y").int(all);
        r.tables.insert("samples".into(), samples.finish());
    });
    let new = roll(&place.path().join("new"));
    assert!(sum(&new).abs_diff(sum(&now)) <= 20, "{} {}", sum(&new), sum(&now));
    // Half of the samples had that class: half of the program's time is unattributed, and not spread over the
    // others.
    let calls = of(&now, Layer::Calls) as f64;
    assert!((of(&new, Layer::Calls) as f64 / calls - 0.5).abs() < 0.01, "{:?}", new.layers);
    assert!(of(&new, Layer::Unseen) as f64 > calls / 2.0, "{:?}", new.layers);
    // The same words in a recording of this version are an error.
    changed(&place.path().join("wrong"), |r| {
        let column = Column::float("dreaming", Unit::CpuSeconds, Kind::Time, "");
        let time = r.tables["cpu_time"].clone();
        let more = time.with_numbers(column, &vec![Some(0.0); time.num_rows()], "none").unwrap();
        r.tables.insert("cpu_time".into(), more);
    });
    let wrong = Recording::open(&place.path().join("wrong")).unwrap();
    let error = rollup::roll(wrong, "x", String::new(), Path::new("wrong")).unwrap_err().to_string();
    assert!(error.contains("`dreaming`"), "{error}");
}

#[test]
fn a_roll_up_is_the_onion() {
    // The shares that `ncpu report` prints of this recording.
    let rolled = roll(&seed("torture"));
    let capacity: u64 = rolled.layers.iter().map(|(_, us, _)| us).sum();
    let division = ncpu_schema::Division::of(&Recording::open(&seed("torture")).unwrap()).unwrap();
    assert!((capacity as f64 / 1e6 / division.capacity - 1.0).abs() < 1e-3);
    for (layer, seconds, error) in &division.layers {
        let (_, us, variance) = rolled.layers.iter().find(|(name, ..)| *name == layer.name()).unwrap();
        assert!((*us as f64 / 1e6 - seconds).abs() < 1e-6 && (variance.sqrt() / 1e3 - error).abs() < 1e-3);
    }
}

#[test]
fn hosts_are_renamed_and_clocks_differ() {
    let place = tempfile::tempdir().unwrap();
    let machine = "0123456789abcdef0123456789abcdef";
    for (name, host, at) in [
        ("a", "old-name", common::BEGIN),
        ("b", "new-name", common::BEGIN + 60.0),
        ("c", "ahead", 4e9),
        ("d", "never", -5.0),
        ("e", "far", 1e300),
    ] {
        changed(&place.path().join("recordings").join(name).with_extension("ncpu"), |r| {
            fs::create_dir_all(place.path().join("recordings")).unwrap();
            r.manifest.host = host.into();
            r.manifest.machine = Some(machine.into());
            r.manifest.created_unix = at;
        });
    }
    let root = place.path().join("fleet");
    let out = run(&["add", root.to_str().unwrap(), place.path().join("recordings").to_str().unwrap()]);
    let said = said(&out);
    assert!(said.contains("3 added, 0 there already, 2 left out"), "{said}");
    assert!(said.contains("1 recordings began more than a day from now"), "{said}");
    assert!(said.contains("d.ncpu: its manifest says that it began -5e0 seconds"), "{said}");
    let store = fleet(&root);
    let (mut machines, mut hosts) = (Vec::new(), Vec::new());
    for part in parts::list(store.as_ref(), Kept::Recordings, None).unwrap() {
        let rows = Table::from_bytes("recordings", store.get(&part.name).unwrap().unwrap()).unwrap();
        for r in 0..rows.num_rows() {
            machines.push(rows.text(r, "machine").unwrap().to_string());
            hosts.push(rows.text(r, "host").unwrap().to_string());
        }
    }
    assert!(machines.len() == 3 && machines.iter().all(|m| m == machine), "{machines:?}");
    hosts.sort();
    assert_eq!(hosts, ["ahead", "new-name", "old-name"]);
}

#[test]
fn a_root_that_is_none() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_string();
    fs::write(path("file"), "x").unwrap();
    fs::create_dir(path("other")).unwrap();
    fs::write(place.path().join("other/letter.txt"), "x").unwrap();
    fs::create_dir(path("newer")).unwrap();
    fs::write(place.path().join("newer/ncpu-fleet.json"), "{\"ncpu_fleet\": 9}").unwrap();
    let seed = seed("build");
    let seed = seed.to_str().unwrap();
    for (root, add, ask) in [
        ("none", None, "does not exist"),
        ("file", Some("is not a directory"), "is not a directory"),
        (
            "other",
            Some("neither a fleet nor empty (it has letter.txt)"),
            "is not a fleet: it has no ncpu-fleet.json",
        ),
        ("newer", Some("format 9"), "format 9"),
    ] {
        if let Some(why) = add {
            let said = bad(&["add", &path(root), seed]);
            assert!(said.contains(why), "{said}");
        }
        for question in [&["onion"][..], &["locks"], &["outliers"], &["compact"], &["delta"]] {
            let said = bad(&[question, &[&path(root)]].concat());
            assert!(said.contains(ask) && said.contains(root), "{question:?}: {said}");
        }
    }
    assert!(fs::read_dir(path("other")).unwrap().count() == 1, "nothing was written there");
    for root in ["s3://fleet/x", "ftp://x/y", "s3://"] {
        let said = bad(&["onion", root]);
        assert!(
            said.contains("no credentials") || said.contains("unknown store") || said.contains("no bucket"),
            "{said}"
        );
    }
    // A fleet without recordings, and directories without any.
    fs::create_dir(path("empty")).unwrap();
    assert!(
        bad(&["add", &path("fleet"), &path("empty")])
            .contains("it is neither a recording nor a directory with recordings")
    );
    assert!(bad(&["add", &path("fleet"), &path("gone")]).contains("gone: cannot read the directory"));
    assert!(bad(&["onion", &path("fleet")]).contains("has no recordings yet"));
}

#[test]
fn recordings_that_are_still_written_wait() {
    let place = tempfile::tempdir().unwrap();
    let writing = place.path().join("now.ncpu");
    let whole = Recording::open(&seed("build")).unwrap();
    let mut writer = ncpu_record::Writer::create(&writing, whole.manifest.clone()).unwrap();
    whole.tables.values().for_each(|t| writer.append(t).unwrap());
    writer.flush().unwrap();
    let root = place.path().join("fleet").to_str().unwrap().to_string();
    let at = writing.to_str().unwrap();
    let out = run(&["add", &root, at]);
    assert!(!out.status.success() && said(&out).contains("it is unfinished, or still being written"));
    good(&["add", &root, at, "--unfinished"]);
    once(fleet(root.as_ref()).as_ref(), 1);
}

#[test]
fn a_full_disk_loses_nothing() {
    if !common::root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    plan(4, 6, false).write(&from, 2).unwrap();
    let disk = place.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = |options: &str| {
        std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(&disk)
            .output()
            .unwrap()
    };
    if !mount("size=192k").status.success() {
        println!("skipped: no tmpfs can be mounted here");
        return;
    }
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let mounted = Mounted(&disk);
    let root = disk.join("fleet");
    let arguments = ["add", root.to_str().unwrap(), from.to_str().unwrap()];
    let said = bad(&arguments);
    assert!(said.contains("No space left on device") && said.contains("run it again"), "{said}");
    assert!(rows(fleet(&root).as_ref()).values().all(|(parts, _)| *parts == 1));
    assert!(mount("remount,size=8m").status.success());
    good(&arguments);
    once(fleet(&root).as_ref(), 24);
    let left = || walk(&root).into_iter().filter(|n| n.ends_with(".tmp")).count();
    assert_eq!(left(), 0, "no partial file is left");

    // A full disk during a compaction: first without room for the journal, then with it.
    let more = place.path().join("more");
    Plan { seed: 8, ..plan(4, 6, false) }.write(&more, 2).unwrap();
    good(&["add", root.to_str().unwrap(), more.to_str().unwrap(), "--no-compact"]);
    let before = rows(fleet(&root).as_ref());
    for room in [0, 8192] {
        let at = rustix::fs::statvfs(&disk).unwrap();
        let used = (at.f_blocks - at.f_bfree) * at.f_frsize;
        assert!(mount(&format!("remount,size={}", used + room)).status.success());
        let said = bad(&["compact", root.to_str().unwrap()]);
        assert!(said.contains("No space left on device"), "{said}");
        assert!(mount("remount,size=8m").status.success());
        assert_eq!(rows(fleet(&root).as_ref()), before, "nothing is lost");
    }
    good(&["compact", root.to_str().unwrap()]);
    once(fleet(&root).as_ref(), 48);
    assert_eq!(left(), 0);
    drop(mounted);
}

fn walk(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p.display().to_string()] })
        .collect()
}

#[test]
fn engines_get_signed_numbers_and_zstd() {
    let part = |at_us| {
        let mut table = Kept::Events.builder();
        let row = table.row().text("id").text("m").text("h").text("k").text("c").int(2).int(at_us);
        row.text("").int(5).text("e").int(7);
        tables::parquet(Kept::Events, &table.finish())
    };
    let bytes = part(1).unwrap();
    assert_eq!(tables::ids("x", bytes).unwrap(), std::collections::HashSet::from(["id".to_string()]));
    assert!(part(u64::MAX).unwrap_err().to_string().contains("2^63"));
    for wrong in [&b""[..], b"PAR1", b"PAR1PAR1PAR1"] {
        assert!(
            tables::ids("layers/x", wrong.to_vec()).unwrap_err().to_string().contains("layers/x is damaged")
        );
    }
}
