//! What holds of all tables and all closed sets of words.

use std::collections::BTreeSet;
use std::fmt::Debug;

use ncpu_schema::{
    AskedBy, Counter, CpuState, Doing, Error, IdleReason, Layer, Microstate, Per, Place, Purpose,
    SampleClass, StackKind, Tables, TimerKind, View, Vocabulary, WaitScope, cpu_time, idle_time, samples,
    tables,
};
use ncpu_table::{Kind, Table};

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
        assert_eq!(unknown, format!("`no such word` is no {} that this ncpu knows", V::WHAT));
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
