//! Shared code of the fleet tests.
#![allow(dead_code)]

pub mod generate;
pub mod s3;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use generate::Plan;
use ncpu_fleet::add::{Options, Outcome};
use ncpu_fleet::parts;
use ncpu_fleet::store::{self, Store};
use ncpu_fleet::tables::Kept;
use ncpu_table::{Budget, read_parquet};

/// Seconds since 1970 of 2026-11-10.
pub const BEGIN: f64 = 1_794_268_800.0;

/// Real recordings, with the tables that fleets read.
pub fn seed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(name)
}

/// A small fleet's recordings, an hour apart.
pub fn plan(machines: usize, each: usize, planted: bool) -> Plan {
    let seeds = ["build", "torture", "files"].map(seed).to_vec();
    Plan { seeds, machines, each, begin: BEGIN, step: 3600.0, planted, seed: 7 }
}

/// Adds recordings, without merging small parts.
pub fn add(store: &dyn Store, dirs: &[&Path]) -> Outcome {
    let dirs: Vec<PathBuf> = dirs.iter().map(PathBuf::from).collect();
    let options = Options { threads: 2, ..Options::default() };
    ncpu_fleet::add::add(store, &dirs, &options, &|_, _| {}, &AtomicBool::new(false)).expect("added")
}

/// A fleet in a directory.
pub fn fleet(dir: &Path) -> Box<dyn Store> {
    store::open_or_make(dir.to_str().expect("a path"), 0o600).expect("a fleet")
}

/// The program, with an engine if one was found.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu-fleet"));
    command.args(arguments).env_remove("COLUMNS");
    if let Some(data) = data() {
        command.env("XDG_DATA_HOME", data);
    }
    command
}

/// Runs the program.
pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("ncpu-fleet runs")
}

/// Runs the program, which must succeed; its standard output.
pub fn good(arguments: &[&str]) -> String {
    let out = run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", said(&out));
    String::from_utf8(out.stdout).expect("text")
}

/// Its standard error.
pub fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Runs the program, which must fail with one line; returns that line.
pub fn bad(arguments: &[&str]) -> String {
    let out = run(arguments);
    assert!(!out.status.success(), "{arguments:?} succeeded: {}", String::from_utf8_lossy(&out.stdout));
    let said = said(&out);
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

/// The directory of DuckDB for these tests; it is fetched once if possible.
fn data() -> Option<&'static Path> {
    static DATA: OnceLock<Option<PathBuf>> = OnceLock::new();
    DATA.get_or_init(|| {
        let mut places: Vec<PathBuf> =
            std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).into_iter().collect();
        places.extend(std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share")));
        let there = |place: &PathBuf| {
            let mut which = Command::new(env!("CARGO_BIN_EXE_ncpu-fleet"));
            which.args(["engine", "which"]).env("XDG_DATA_HOME", place);
            which.output().is_ok_and(|out| out.status.success())
        };
        if let Some(place) = places.into_iter().find(there) {
            return Some(place);
        }
        // Several test programs may reach this at once; each installs the same complete file.
        let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("data");
        let mut install = Command::new("timeout");
        install
            .args(["120", env!("CARGO_BIN_EXE_ncpu-fleet"), "engine", "install"])
            .env("XDG_DATA_HOME", &own);
        (there(&own) || install.output().is_ok_and(|out| out.status.success())).then_some(own)
    })
    .as_deref()
}

/// Whether DuckDB exists; prints a line if it does not.
pub fn engine() -> bool {
    let there = data().is_some();
    if !there {
        println!("skipped: no DuckDB, and it cannot be fetched from the npm registry");
    }
    there
}

/// Whether the tests run as root; prints a line if they do not.
pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: no tmpfs can be mounted without root");
    }
    root
}

/// How often each recording's rows are in each table: by table and recording, the number of parts that have
/// it, and of all its rows.
pub fn rows(store: &dyn Store) -> HashMap<(Kept, String), (usize, usize)> {
    let mut out: HashMap<(Kept, String), (usize, usize)> = HashMap::new();
    for table in Kept::ALL {
        for part in parts::list(store, table, None).expect("parts") {
            let bytes = store.get(&part.name).expect("a part").expect("it is there");
            let mut budget = Budget::for_bytes(part.bytes);
            let rows = read_parquet("part", bytes, None, &mut budget, |c| c == "id", true).expect("a table");
            let mut here: HashMap<String, usize> = HashMap::new();
            for r in 0..rows.num_rows() {
                *here.entry(rows.text(r, "id").expect("an id").into()).or_default() += 1;
            }
            for (id, n) in here {
                let cell = out.entry((table, id)).or_default();
                *cell = (cell.0 + 1, cell.1 + n);
            }
        }
    }
    out
}

/// Checks that no recording's rows are in two parts of a table, and that this many recordings exist.
pub fn once(store: &dyn Store, recordings: usize) -> HashMap<(Kept, String), (usize, usize)> {
    let rows = rows(store);
    assert!(rows.values().all(|(parts, _)| *parts == 1), "{rows:?}");
    for table in [Kept::Recordings, Kept::Layers] {
        assert_eq!(rows.keys().filter(|(t, _)| *t == table).count(), recordings, "{table:?}");
    }
    rows
}
