//! Merging parts: no row is lost or doubled, during any addition and after any interruption.

mod common;

use std::any::Any;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::generate::Plan;
use common::{BEGIN, add, bad, command, fleet, good, once, plan, rows, said};
use ncpu_fleet::Result;
use ncpu_fleet::add::Options;
use ncpu_fleet::compact::{self, Outcome};
use ncpu_fleet::parts::{self, Span};
use ncpu_fleet::store::{Entry, Hold, Store};
use ncpu_fleet::tables::Kept;

const DAY: i64 = 86_400_000_000;

/// Microseconds since 1970, this many days after the first recording.
fn after(days: i64) -> i64 {
    BEGIN as i64 * 1_000_000 + days * DAY
}

fn compact(store: &dyn Store, now: i64) -> Result<Outcome> {
    compact::compact(store, &compact::Options { take_over: false, threads: 2, now })
}

/// Rows of each recording by table.
fn counted(rows: HashMap<(Kept, String), (usize, usize)>) -> Vec<((Kept, String), usize)> {
    let mut rows: Vec<_> = rows.into_iter().map(|(k, v)| (k, v.1)).collect();
    rows.sort();
    rows
}

fn spans(store: &dyn Store, table: Kept) -> Vec<Span> {
    parts::list(store, table, None).unwrap().into_iter().map(|p| p.span).collect()
}

fn parts(store: &dyn Store) -> usize {
    Kept::ALL.iter().map(|t| parts::list(store, *t, None).unwrap().len()).sum()
}

#[test]
fn hours_become_days_and_days_months() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    // 10 and 11 November, every other hour.
    Plan { step: 7200.0, ..plan(2, 20, false) }.write(&from, 2).unwrap();
    let root = place.path().join("fleet");
    let store = fleet(&root);
    add(store.as_ref(), &[&from.join("m0000")]);
    add(store.as_ref(), &[&from.join("m0001")]);
    let before = counted(once(store.as_ref(), 40));
    let small = parts(store.as_ref());

    // Until the second day is over, its hours stay.
    let outcome = compact(store.as_ref(), after(1)).unwrap();
    assert_eq!((outcome.before, outcome.after), (small, parts(store.as_ref())));
    let now = spans(store.as_ref(), Kept::Layers);
    assert_eq!(now[0], Span::Day("2026-11-10".into()));
    assert!(
        now.len() == 9 && now[1..].iter().all(|s| s.date() == Some("2026-11-11") && s.hour().is_some()),
        "{now:?}"
    );
    assert_eq!(counted(once(store.as_ref(), 40)), before);
    // Engines read every directory.
    assert!(!root.join("layers/date=2026-11-10/hour=00").exists());

    // A second run has nothing to do; no recording is added twice; a late one is found among the rest.
    assert_eq!(compact(store.as_ref(), after(1)).unwrap().after, outcome.after);
    assert_eq!(add(store.as_ref(), &[&from]).added, 0);
    Plan { seed: 9, step: 7200.0, ..plan(2, 13, false) }.write(&place.path().join("late"), 2).unwrap();
    assert_eq!(add(store.as_ref(), &[&place.path().join("late")]).added, 26);
    compact(store.as_ref(), after(2)).unwrap();
    let days = [Span::Day("2026-11-10".into()), Span::Day("2026-11-11".into())];
    assert_eq!(spans(store.as_ref(), Kept::Layers), days);
    let before = counted(once(store.as_ref(), 66));

    // A past month with little data.
    compact(store.as_ref(), after(40)).unwrap();
    for table in Kept::ALL {
        assert!(
            spans(store.as_ref(), table).iter().all(|s| *s == Span::Month("2026-11".into())),
            "{table:?}"
        );
    }
    assert!(!root.join("layers/date=2026-11-10").exists());
    assert_eq!(counted(once(store.as_ref(), 66)), before);
    assert_eq!(add(store.as_ref(), &[&from, &place.path().join("late")]).added, 0);
    assert_eq!(parts(store.as_ref()), compact(store.as_ref(), after(400)).unwrap().after);
}

#[test]
fn months_are_asked_by_their_dates() {
    if !common::engine() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    // Six recordings, 12 hours apart, across the end of a month.
    let begin = BEGIN + 19.0 * 86_400.0;
    Plan { step: 43_200.0, begin, ..plan(1, 6, false) }.write(&from, 2).unwrap();
    let root = place.path().join("fleet");
    let store = fleet(&root);
    add(store.as_ref(), &[&from]);
    compact(store.as_ref(), after(60)).unwrap();
    let months = [Span::Month("2026-11".into()), Span::Month("2026-12".into())];
    assert_eq!(spans(store.as_ref(), Kept::Recordings), months);
    let root = root.to_str().unwrap();
    for (since, until, seen) in [
        ("2026-11-29", "2026-12-02", "6"),
        ("2026-11-30", "2026-12-01T06", "3"),
        ("2026-12-01", "2026-12-02", "2"),
        ("2026-11-28", "2026-11-29T06", "1"),
    ] {
        let arguments = ["machines", root, "--since", since, "--until", until, "-o", "csv"];
        let answer = good(&arguments);
        let column = answer.lines().next().unwrap().split(',').position(|c| c == "recordings").unwrap();
        assert_eq!(answer.lines().nth(1).unwrap().split(',').nth(column), Some(seen), "{since}: {answer}");
    }
}

/// A store that fails after this many changes, like a killed process.
struct Dying<'a> {
    store: &'a dyn Store,
    left: AtomicUsize,
}

impl Dying<'_> {
    fn live(&self) -> Result<()> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        left.map(drop).map_err(|_| ncpu_fleet::Error::Fleet("killed".into()))
    }
}

impl Store for Dying<'_> {
    fn root(&self) -> &str {
        self.store.root()
    }
    fn list(&self, below: &str) -> Result<Vec<Entry>> {
        self.store.list(below)
    }
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.store.get(name)
    }
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.live()?;
        self.store.put_new(name, bytes)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.live()?;
        self.store.remove(name)
    }
    fn directory(&self) -> Option<&Path> {
        self.store.directory()
    }
    fn lock(&self, hold: Hold) -> Result<Option<Box<dyn Any + Send>>> {
        self.store.lock(hold)
    }
}

#[test]
fn killed_at_any_moment() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    plan(1, 3, false).write(&from, 2).unwrap();
    let whole = place.path().join("fleet");
    add(fleet(&whole).as_ref(), &[&from]);
    let before = counted(once(fleet(&whole).as_ref(), 3));
    let (mut moments, mut doubled) = (0, 0);
    loop {
        let root = place.path().join(format!("killed{moments}"));
        assert!(std::process::Command::new("cp").arg("-r").args([&whole, &root]).status().unwrap().success());
        let store = fleet(&root);
        let dying = Dying { store: store.as_ref(), left: AtomicUsize::new(moments) };
        let result =
            compact::compact(&dying, &compact::Options { take_over: false, threads: 1, now: after(1) });
        // No row is lost at any moment; rows may be doubled until the next run.
        let left = rows(store.as_ref());
        assert_eq!(left.len(), before.len(), "after {moments} changes");
        doubled += usize::from(left.values().any(|(parts, _)| *parts > 1));
        drop(compact::not_compacted(store.as_ref(), Hold::Ask).unwrap());
        assert_eq!(counted(once(store.as_ref(), 3)), before, "after {moments} changes");
        compact(store.as_ref(), after(1)).unwrap();
        assert_eq!((counted(once(store.as_ref(), 3)), parts(store.as_ref())), (before.clone(), 5));
        if result.is_ok() {
            break;
        }
        moments += 1;
    }
    // A journal and its end, and for each of five tables a part and the removal of three.
    assert_eq!((moments, doubled), (2 + 5 * 4, 5 * 3));
}

#[test]
fn questions_finish_what_was_cut_off() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    plan(3, 1, false).write(&from, 2).unwrap();
    let root = place.path().join("fleet");
    let store = fleet(&root);
    for m in 0..3 {
        add(store.as_ref(), &[&from.join(format!("m{m:04}"))]);
    }
    let before = counted(once(store.as_ref(), 3));
    let journal = |new: &str, old: &str| {
        let text =
            format!("{{\"by\": \"process 1\", \"steps\": [{{\"new\": \"{new}\", \"old\": [\"{old}\"]}}]}}");
        assert!(store.put_new("compacting.json", text.as_bytes()).unwrap());
    };

    // Interrupted between the new part and the removal of the old ones: rows are there twice, and no query
    // sees them.
    let last = parts::list(store.as_ref(), Kept::Layers, None).unwrap().pop().unwrap();
    let bytes = store.get(&last.name).unwrap().unwrap();
    let new = parts::name(Kept::Layers, &last.span.day().unwrap(), 1);
    store.put_new(&new, &bytes).unwrap();
    journal(&new, &last.name);
    assert_eq!(add(store.as_ref(), &[&from]).added, 0);
    assert_eq!(counted(once(store.as_ref(), 3)), before);
    assert!(store.get("compacting.json").unwrap().is_none());

    // Interrupted before its new part, whose number an addition then got: that part has other recordings, and
    // no part is removed.
    let all = parts::list(store.as_ref(), Kept::Layers, None).unwrap();
    journal(&all[0].name, &all[1].name);
    add(store.as_ref(), &[&from]);
    assert_eq!(counted(once(store.as_ref(), 3)), before);

    // An addition excludes a compaction, and the reverse.
    let root = root.to_str().unwrap();
    let held = store.lock(Hold::Add).unwrap().expect("shared");
    assert!(bad(&["compact", root]).contains("is in use by an addition or a query"));
    drop(held);
    let held = store.lock(Hold::Alone).unwrap().expect("alone");
    assert!(bad(&["onion", root]).contains("is being compacted; try again"));
    drop(held);
    // Files that are not parts; and a part that would be removed because it has its own rows.
    let own = &all[0].name;
    for (new, old) in [("layers/date=../../x", "/etc/passwd"), (own, own)] {
        journal(new, old);
        for question in ["compact", "onion"] {
            assert!(bad(&[question, root]).contains("names files that are not parts"));
        }
        store.remove("compacting.json").unwrap();
    }
    assert_eq!(counted(once(store.as_ref(), 3)), before);
}

#[test]
fn two_who_compact_and_one_who_adds() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    plan(4, 6, false).write(&from, 2).unwrap();
    let root = place.path().join("fleet");
    let store = fleet(&root);
    add(store.as_ref(), &[&from.join("m0000"), &from.join("m0001")]);
    let mut all: Vec<_> = (0..4)
        .map(|i| match i {
            0 => command(&["add", root.to_str().unwrap(), from.to_str().unwrap()]),
            _ => command(&["compact", root.to_str().unwrap()]),
        })
        .map(|mut c| c.stderr(std::process::Stdio::piped()).spawn().unwrap())
        .collect();
    let add = all.remove(0).wait_with_output().unwrap();
    // The fleet may have been in use for longer than it waits.
    assert!(add.status.success() || said(&add).contains("try again"), "{}", said(&add));
    for compaction in all {
        let out = compaction.wait_with_output().unwrap();
        assert!(out.status.success() || said(&out).contains("try again"), "{}", said(&out));
    }
    good(&["add", root.to_str().unwrap(), from.to_str().unwrap()]);
    once(store.as_ref(), 24);
}

/// One recording after the other to the same hour: with a part for each, all later ones would read it.
#[test]
fn single_additions_do_not_heap_up() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("recordings");
    plan(40, 1, false).write(&from, 2).unwrap();
    let root = place.path().join("fleet");
    let store = fleet(&root);
    let options = Options { threads: 1, tidy: true, ..Options::default() };
    let mut most = 0;
    for m in 0..40 {
        let dirs = [from.join(format!("m{m:04}"))];
        let stop = AtomicBool::new(false);
        ncpu_fleet::add::add(store.as_ref(), &dirs, &options, &|_, _| {}, &stop).unwrap();
        most = most.max(spans(store.as_ref(), Kept::Recordings).len());
    }
    assert!(most < 20, "{most} parts");
    once(store.as_ref(), 40);
    // During a query, merging is left for later.
    let held = store.lock(Hold::Ask).unwrap().expect("shared");
    plan(60, 1, false).write(&place.path().join("more"), 2).unwrap();
    let dirs = [place.path().join("more")];
    ncpu_fleet::add::add(store.as_ref(), &dirs, &options, &|_, _| {}, &AtomicBool::new(false)).unwrap();
    drop(held);
    once(store.as_ref(), 60);
}
