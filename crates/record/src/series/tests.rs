use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::time::Duration;

use ncpu_schema::Purpose;
use ncpu_table::Column;

use super::*;
use crate::Recording;

fn rows(values: std::ops::Range<u64>) -> Table {
    let mut table = Table::builder("waits", &[Column::id("n", "")]);
    values.for_each(|n| {
        table.row().int(n);
    });
    table.finish()
}

fn manifest(start: f64) -> Manifest {
    Manifest { created_unix: start, ..Manifest::new(Purpose::Watch, 2, vec!["the machine".into()], 1.0) }
}

fn names(dir: &Path) -> BTreeSet<String> {
    let all = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    all.filter(|n| n != LOCK).collect()
}

fn recordings(dir: &Path) -> Vec<Recording> {
    names(dir).iter().map(|n| Recording::open(&dir.join(n)).unwrap()).collect()
}

/// A series of so many whole recordings, a minute each.
fn whole(dir: &Path, count: u64, keep: Keep) -> Vec<String> {
    let mut series = Series::open(dir, keep, 0o600).unwrap();
    for i in 0..count {
        series.begin(manifest(1_709_208_000.0 + 60.0 * i as f64), Duration::ZERO).unwrap();
        series.append(&[rows(i * 10..i * 10 + 10)]).unwrap();
        series.end(|_| {});
    }
    series.close()
}

#[test]
fn each_is_whole_when_the_next_begins_and_no_row_is_lost_or_told_twice() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("always");
    assert_eq!(whole(&dir, 5, Keep::default()), Vec::<String>::new());
    // Another run takes up the numbers.
    assert_eq!(whole(&dir, 2, Keep::default()), Vec::<String>::new());
    let all = recordings(&dir);
    let numbers: Vec<_> = all.iter().map(|r| r.manifest.series.as_ref().unwrap().number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    assert!(all.iter().all(|r| r.manifest.complete && r.notes.is_empty()));
    let told: Vec<u64> =
        all[..5].iter().flat_map(|r| (0..10).map(|i| r.tables["waits"].int(i, "n").unwrap())).collect();
    assert_eq!(told, (0..50).collect::<Vec<_>>());
    assert!(names(&dir).iter().all(|n| Recording::verify(&dir.join(n)).is_ok()));
}

#[test]
fn a_killed_series_is_taken_up_and_has_lost_nothing_that_was_flushed() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("always");
    {
        let mut series = Series::open(&dir, Keep::default(), 0o600).unwrap();
        series.begin(manifest(1e9), Duration::ZERO).unwrap();
        series.append(&[rows(0..7)]).unwrap();
        // Neither ended nor finished, as after kill -9.
    }
    let only = names(&dir).into_iter().next().unwrap();
    // Killed before it got its name, and killed while one was deleted and while one was made.
    std::fs::rename(dir.join(&only), dir.join(only.replace(DONE, PART))).unwrap();
    std::fs::create_dir(dir.join("00000009-20240229T120003Z.gone")).unwrap();
    std::fs::create_dir(dir.join("00000008-20240229T120003Z.part")).unwrap();
    std::fs::write(dir.join("00000008-20240229T120003Z.part/manifest.json.tmp"), "{").unwrap();
    assert_eq!(whole(&dir, 1, Keep::default()), Vec::<String>::new());
    let all = recordings(&dir);
    assert_eq!(all.len(), 2, "{:?}", names(&dir));
    assert!(!all[0].manifest.complete);
    assert_eq!(all[0].tables["waits"].num_rows(), 7);
    assert_eq!(all[1].manifest.series.as_ref().unwrap().number, 10, "no number is used again");
}

#[test]
fn two_series_do_not_share_a_directory_and_none_lies_in_a_recording() {
    let place = tempfile::tempdir().unwrap();
    let series = Series::open(place.path(), Keep::default(), 0o600).unwrap();
    let second = Series::open(place.path(), Keep::default(), 0o600).err().unwrap().to_string();
    assert!(second.contains("another ncpu watch"), "{second}");
    drop(series);
    whole(place.path(), 1, Keep::default());
    let inner = place.path().join(names(place.path()).first().unwrap());
    assert!(matches!(Series::open(&inner, Keep::default(), 0o600), Err(Error::Exists(_))));
}

#[test]
fn a_directory_of_other_things_is_refused_and_left_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("passwd"), "root").unwrap();
    let refused = Series::open(place.path(), Keep::default(), 0o600).err().unwrap().to_string();
    assert!(refused.contains("holds other things (passwd)"), "{refused}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    // A link with the name of the lock is no lock.
    symlink("passwd", place.path().join(LOCK)).unwrap();
    assert!(Series::open(place.path(), Keep::default(), 0o600).is_err());
    assert_eq!(std::fs::read_to_string(place.path().join("passwd")).unwrap(), "root");
    // Recordings of the series alone, whose lock was deleted, and what a file system has.
    let dir = place.path().join("always");
    whole(&dir, 2, Keep::default());
    std::fs::remove_file(dir.join(LOCK)).unwrap();
    std::fs::create_dir(dir.join("lost+found")).unwrap();
    assert_eq!(whole(&dir, 1, Keep::default()), Vec::<String>::new());
}

#[test]
fn links_others_and_strange_things_are_never_deleted() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("always");
    whole(&dir, 6, Keep::default());
    let precious = place.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("manifest.json"), "{}").unwrap();
    let all: Vec<String> = names(&dir).into_iter().collect();
    // A link that is named as a recording, a recording that holds a link, one with a user's notes, one copied to
    // another number.
    symlink(&precious, dir.join("00000000-20240229T120000Z.ncpu")).unwrap();
    symlink(precious.join("manifest.json"), dir.join(&all[0]).join("evil.parquet")).unwrap();
    std::fs::write(dir.join(&all[1]).join("notes.txt"), "3:12").unwrap();
    let copy = dir.join("00000002-20200101T000000Z.ncpu");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(dir.join(&all[2]).join("manifest.json"), copy.join("manifest.json")).unwrap();
    std::fs::write(dir.join("web.ncpu"), "").unwrap();
    let told = whole(&dir, 1, Keep { age: Some(Duration::ZERO), bytes: Some(0) });
    let left = names(&dir);
    assert_eq!(left.iter().filter(|n| all.contains(n)).cloned().collect::<Vec<_>>(), all[..2], "{told:?}");
    // Those, the link, the copy, the other file and the last recording.
    assert_eq!(left.len(), 6, "{left:?}");
    assert_eq!(std::fs::read_to_string(precious.join("manifest.json")).unwrap(), "{}");
    assert!(dir.join(&all[0]).join("waits.parquet").exists(), "left whole");
}

#[test]
fn what_is_kept_follows_age_whatever_the_clock_was_set_to() {
    let place = tempfile::tempdir().unwrap();
    whole(place.path(), 4, Keep::default());
    let dir = Arc::new(Dir::open(place.path()).unwrap());
    let keep = Keep { age: Some(Duration::from_secs(3600)), bytes: None };
    let left = |now: &Now| {
        let mut past = Past::take_up(Arc::clone(&dir), &mut |line| panic!("{line}")).unwrap();
        past.prune(&keep, now, &mut |line| panic!("{line}"));
        names(place.path()).len()
    };
    let now = Now::read();
    // They say 2024, and were made just now: a clock that is years ahead deletes nothing of the same boot.
    assert_eq!(left(&Now { unix: 4e9, ..now.clone() }), 4);
    assert_eq!(left(&Now { unix: 0.0, ..now.clone() }), 4);
    // After a reboot the clock is all there is: the first ended an hour and a second ago.
    let boot = String::from("another");
    assert_eq!(left(&Now { unix: 1_709_208_060.0 + 3601.0, boot: boot.clone(), booted: 1.0 }), 3);
    // They lie in the future.
    assert_eq!(left(&Now { unix: 1.0, boot, booted: 1.0 }), 3);
    assert_eq!(left(&Now { booted: now.booted + 4000.0, ..now }), 1, "never the last");
}

#[test]
fn together_they_take_no_more_than_is_allowed() {
    let place = tempfile::tempdir().unwrap();
    whole(place.path(), 8, Keep::default());
    let size = |dir: &Path| -> u64 {
        use std::os::unix::fs::MetadataExt;
        let files = names(dir).into_iter().flat_map(|n| std::fs::read_dir(dir.join(n)).unwrap());
        files.map(|f| f.unwrap().metadata().unwrap().blocks() * 512).sum()
    };
    let all = size(place.path());
    let bytes = all / 2;
    assert_eq!(whole(place.path(), 4, Keep { age: None, bytes: Some(bytes) }), Vec::<String>::new());
    assert!(size(place.path()) <= bytes, "{} of {bytes}", size(place.path()));
    assert!(names(place.path()).len() > 2);
    let newest = recordings(place.path()).last().unwrap().manifest.series.as_ref().unwrap().number;
    assert_eq!(newest, 12);
}

#[test]
fn one_that_grows_past_its_part_says_so() {
    let place = tempfile::tempdir().unwrap();
    let mut series = Series::open(place.path(), Keep { age: None, bytes: Some(64_000) }, 0o600).unwrap();
    series.begin(manifest(1e9), Duration::ZERO).unwrap();
    series.append(&[rows(0..900)]).unwrap();
    assert!(!series.is_full());
    series.append(&[rows(0..200)]).unwrap();
    assert!(series.is_full());
}
