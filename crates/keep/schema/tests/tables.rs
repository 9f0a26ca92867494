//! What holds of all tables and all closed sets of words.

use std::collections::BTreeSet;
use std::fmt::Debug;

use ncpu_schema::{
    AskedBy, Counter, CpuState, Doing, Error, IdleReason, Label, Layer, Microstate, Per, Place, Purpose,
    SampleClass, StackKind, Tables, TimerKind, View, Vocabulary, WaitScope, cpu_time, idle_time, locks,
    samples, tables,
};
use ncpu_table::{Column, Kind, Table, Unit};

#[test]
fn tables_are_whole() {
    let mut names = BTreeSet::new();
    for table in tables() {
        assert!(names.insert(table.name), "{} twice", table.name);
        let (mut columns, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for c in (table.columns)() {
            assert!(columns.insert(c.name.clone()), "{}.{} twice", table.name, c.name);
            assert!(keys.insert(c.key()), "{}.{}: JSON has its key `{}` twice", table.name, c.name, c.key());
            assert!(!c.meaning.is_empty(), "{}.{} has no meaning", table.name, c.name);
        }
        let empty = table.builder().finish();
        (table.check)("x", ncpu_schema::VERSION, &empty).unwrap();
        // Without any one of its columns it is refused.
        let all: Vec<String> = empty.columns().iter().map(|c| c.name.clone()).collect();
        for gone in &all {
            let rest: Vec<&str> = all.iter().filter(|c| *c != gone).map(String::as_str).collect();
            let error =
                (table.check)("x.ncpu", ncpu_schema::VERSION, &empty.project(&rest).unwrap()).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("x.ncpu: table `{}` has no column `{gone}`", table.name))
            );
        }
    }
}

#[test]
fn words_are_unique_and_found_again() {
    fn check<V: Vocabulary + Debug>() {
        let mut words = BTreeSet::new();
        for (i, word) in V::ALL.iter().enumerate() {
            assert!(words.insert(word.name()), "{} `{}` twice", V::WHAT, word.name());
            assert!(!word.meaning().is_empty());
            assert_eq!((V::of_name(word.name()), word.index()), (Ok(*word), i));
        }
        let unknown = V::of_name("no such word").unwrap_err().to_string();
        assert_eq!(unknown, format!("unknown {} `no such word`", V::WHAT));
    }
    check::<CpuState>();
    check::<IdleReason>();
    check::<SampleClass>();
    check::<Microstate>();
    check::<StackKind>();
    check::<Counter>();
    check::<AskedBy>();
    check::<Doing>();
    check::<TimerKind>();
    check::<WaitScope>();
    check::<Place>();
    check::<Layer>();
    check::<Purpose>();
    check::<View>();
}

#[test]
fn every_reason_has_a_place_of_its_own_among_them() {
    let order = IdleReason::by_bearing();
    assert!(order.is_sorted_by(|a, b| a.bearing() < b.bearing()), "{order:?}");
    assert_eq!(order.len(), IdleReason::ALL.len());
    // Idle time of a reason is capacity, so it lies in a layer that idle time may lie in.
    assert!(IdleReason::ALL.into_iter().all(|r| Layer::from(r).recoverable() == (r != IdleReason::Asleep)));
}

struct Recording(Vec<Table>);

impl Tables for Recording {
    fn name(&self) -> &str {
        "a.ncpu"
    }

    fn schema(&self) -> u32 {
        1
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.0.iter().find(|t| t.name() == name)
    }
}

#[test]
fn null_is_not_measured_and_not_zero() {
    let mut rows = cpu_time::Rows::new();
    rows.push(cpu_time::Row {
        spent: Per::new(|s| (s == CpuState::Spin).then_some(2.0)),
        ..Default::default()
    });
    rows.push(cpu_time::Row::default());
    let recording = Recording(vec![rows.finish()]);
    ncpu_schema::check(&recording).unwrap();
    let cpu_time = cpu_time::Reader::need(&recording).unwrap();
    assert_eq!((cpu_time.len(), cpu_time.time.get(0), cpu_time.cpu.get(0)), (2, None, None));
    assert_eq!(cpu_time.spent.get(0, CpuState::Spin), Some(2.0));
    assert_eq!((cpu_time.spent.get(0, CpuState::Idle), cpu_time.spent.get(1, CpuState::Spin)), (None, None));
    assert_eq!((cpu_time.spent.sum(CpuState::Spin), cpu_time.spent.get(9, CpuState::Spin)), (2.0, None));
    assert!(idle_time::Reader::open(&recording).unwrap().is_none());
    let missing = idle_time::Reader::need(&recording).err().map(|e| e.to_string());
    assert!(missing.is_some_and(|m| m.starts_with("a.ncpu has no table `idle_time`")));
}

#[test]
fn a_word_in_another_place_is_named_with_its_row() {
    let mut rows = samples::TABLE.builder();
    rows.row().text("target").text("user").text("f").text("p").int(1);
    rows.row().text("target").text("daydreaming").text("f").text("p").int(1);
    let error = ncpu_schema::check(&Recording(vec![rows.finish()])).unwrap_err();
    assert!(matches!(&error, Error::Word { row: 1, column, .. } if column == "class"), "{error}");
    let kinds = (samples::TABLE.columns)();
    assert_eq!(kinds.iter().filter(|c| c.kind == Kind::Count).count(), 1);
}

/// A recording of a schema version; only some columns of its tables were read.
struct Part(u32, Option<&'static [&'static str]>, Vec<Table>);

impl Tables for Part {
    fn name(&self) -> &str {
        "part.ncpu"
    }

    fn schema(&self) -> u32 {
        self.0
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.2.iter().find(|t| t.name() == name)
    }

    fn read(&self, _table: &str) -> Option<&'static [&'static str]> {
        self.1
    }
}

/// Locks without columns `process`, and `error`, which version 7 brought.
fn two_locks() -> Table {
    let mut rows = locks::Rows::new();
    for (lock, count) in [("a", Some(2)), ("b", None), ("a", Some(5))] {
        rows.push(locks::Row { lock: lock.into(), count, spin: Some(1.5), ..Default::default() });
    }
    assert!(!rows.is_empty() && rows.len() == 3);
    let all = rows.finish();
    let kept: Vec<&str> = all.columns().iter().map(|c| c.name.as_str()).collect();
    all.project(&kept.into_iter().filter(|c| !["process", "error"].contains(c)).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_column_may_be_missing_where_it_was_not_known_or_not_read() {
    let missing = |schema, read| {
        let recording = Part(schema, read, vec![two_locks()]);
        locks::Reader::need(&recording).err().map(|e| e.to_string())
    };
    let all: Option<&'static [&'static str]> = Some(&["lock", "process", "error"]);
    let some: Option<&'static [&'static str]> = Some(&["lock", "type"]);
    assert!(
        missing(7, None)
            .is_some_and(|e| e.contains("`locks` has no column `process`; its columns are lock, type,"))
    );
    assert!(missing(6, None).is_some_and(|e| e.contains("no column `process`")), "as old as the table");
    assert_eq!(missing(7, some), None, "neither was asked for");
    assert_eq!(missing(6, Some(&["lock", "error"])), None, "one was not asked for, the other not known");
    assert!(missing(7, Some(&["lock", "error"])).is_some_and(|e| e.contains("no column `error`")));
    assert!(missing(6, all).is_some_and(|e| e.contains("no column `process`")));
}

#[test]
fn cells_beyond_the_end_are_null_and_sums_are_of_those_that_are_not() {
    let table = two_locks();
    let t = locks::Reader::grouped(&table).unwrap();
    assert_eq!((t.len(), t.is_empty(), t.rows()), (3, false, 0..3));
    assert_eq!(
        [t.lock.get(0), t.lock.get(2), t.lock.get(3), t.ty.get(0)],
        [Some("a"), Some("a"), None, None]
    );
    assert_eq!([t.count.get(1), t.count.get(2), t.count.get(3)], [None, Some(5), None]);
    assert_eq!([t.spin.get(2), t.spin.get(3), t.error.get(0)], [Some(1.5), None, None]);
    assert_eq!((t.count.sum(), t.spin.sum(), t.error.sum()), (7, 4.5, 0.0));
    assert_eq!((t.spin.max(), t.error.max(), t.process.get(0)), (Some(1.5), None, None));
    let none = locks::Rows::default().finish();
    assert!(locks::Reader::of(&none).unwrap().is_empty());
    let mut words = samples::Rows::new();
    words.push(samples::Row { class: Some(SampleClass::User), ..Default::default() });
    let words = words.finish();
    let words = samples::Reader::of(&words).unwrap();
    assert_eq!(
        (words.class.get(0), words.at.get(0), words.class.get(1)),
        (Some(SampleClass::User), None, None)
    );
}

#[test]
fn text_of_every_owner_is_a_cell() {
    let name = String::from("name");
    let shared: std::sync::Arc<str> = "name".into();
    let labels: [Label<'_>; 6] = [
        "name".into(),
        (&name).into(),
        (&shared).into(),
        std::borrow::Cow::Borrowed("name").into(),
        Some(name.as_str()).into(),
        name.clone().into(),
    ];
    assert!(labels.iter().all(|label| *label == labels[0] && *label != Label::default()));
    assert_eq!(Label::from(None::<&str>), Label::default());
}

#[test]
fn a_column_of_another_type_is_named_with_both() {
    for (column, found, wanted) in [
        (Column::float("lock", Unit::None, Kind::Key, ""), "a number", "text"),
        (Column::id("lock", ""), "a whole number", "text"),
        (Column::text("count", ""), "text", "a whole number"),
        (Column::text("spin", ""), "text", "a number"),
    ] {
        let table = Table::builder("locks", std::slice::from_ref(&column)).finish();
        let error = locks::Reader::grouped(&table).err().map(|e| e.to_string());
        let words = format!("column `{}` of table `locks` is {found} instead of {wanted}", column.name);
        assert_eq!(error, Some(format!("this observation: {words}")));
    }
}

#[test]
fn a_column_that_no_vocabulary_has_is_refused() {
    let mut columns = (cpu_time::TABLE.columns)();
    columns.push(Column::float("daydreaming", Unit::CpuSeconds, Kind::Time, ""));
    let table = Table::builder("cpu_time", &columns).finish();
    let error = cpu_time::Reader::of(&table).err().map(|e| e.to_string());
    assert!(error.is_some_and(|e| e.ends_with("unknown CPU state `daydreaming`")));
    // Words of a vocabulary that came later may be missing in what is older.
    let idle = idle_time::Rows::new().finish();
    let kept: Vec<&str> =
        idle.columns().iter().map(|c| c.name.as_str()).filter(|c| *c != "wake-up").collect();
    let old = idle.project(&kept).unwrap();
    assert_eq!(kept.len() + 1, idle.columns().len());
    assert!(idle_time::Reader::need(&Part(6, None, vec![old.clone()])).is_ok());
    assert!(idle_time::Reader::need(&Part(7, None, vec![old])).is_err());
}

#[test]
fn rows_are_put_together_by_columns_that_the_table_has() {
    let recording = vec![two_locks()];
    let grouped = ncpu_schema::grouped(&recording, locks::NAME, &[locks::col::lock]).unwrap().unwrap();
    let t = locks::Reader::grouped(&grouped).unwrap();
    assert_eq!((t.len(), t.lock.get(0), t.count.get(0), t.spin.get(0)), (2, Some("a"), Some(7), Some(3.0)));
    let lacking =
        ncpu_schema::grouped(&recording, locks::NAME, &[locks::col::process]).unwrap_err().to_string();
    assert!(
        lacking.starts_with("this observation: table `locks` has no column `process`; its columns are lock,")
    );
    assert!(ncpu_schema::grouped(&recording, cpu_time::NAME, &["CPU"]).unwrap().is_none());
}

#[test]
fn a_definition_is_found_by_name_and_completes_a_table() {
    assert_eq!(ncpu_schema::definition("locks").map(|d| d.name), Some("locks"));
    assert!(ncpu_schema::definition("no such table").is_none());
    let whole = locks::TABLE.complete(&two_locks()).unwrap();
    assert_eq!((whole.num_rows(), whole.columns()), (3, &(locks::TABLE.columns)()[..]));
    let t = locks::Reader::of(&whole).unwrap();
    assert_eq!((t.lock.get(2), t.process.get(2), t.error.get(2)), (Some("a"), None, None));
}

#[test]
fn layers_that_an_observer_cannot_tell_apart_are_one() {
    let colours: BTreeSet<&str> = Layer::ALL.iter().map(|layer| layer.colour()).collect();
    assert_eq!(colours.len(), Layer::ALL.len(), "each layer has a colour of its own");
    for layer in Layer::ALL {
        // A merged layer is never part of another, and is as recoverable as its parts.
        if let Some(merged) = layer.merged() {
            assert_eq!((merged.merged(), merged.recoverable()), (None, layer.recoverable()), "{layer:?}");
        }
    }
    let merged = [Layer::KernelSpin, Layer::Serial, Layer::Io, Layer::User].map(Layer::merged);
    assert_eq!(merged, [Some(Layer::Kernel), Some(Layer::LockOrSerial), Some(Layer::KernelLockOrIo), None]);
}
