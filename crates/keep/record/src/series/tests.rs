use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::time::Duration;

use ncpu_schema::Purpose;
use ncpu_table::{Column, Kind, Unit};

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

/// A series of `count` complete recordings, a minute each.
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
    // Another run continues the numbers.
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
    // Killed before it got its name, and killed during a deletion and during creation.
    std::fs::rename(dir.join(&only), dir.join(only.replace(DONE, PART))).unwrap();
    std::fs::create_dir(dir.join("00000009-20240229T120003Z.gone")).unwrap();
    std::fs::create_dir(dir.join("00000008-20240229T120003Z.part")).unwrap();
    std::fs::write(dir.join("00000008-20240229T120003Z.part/manifest.json.tmp"), "{").unwrap();
    assert_eq!(whole(&dir, 1, Keep::default()), Vec::<String>::new());
    let all = recordings(&dir);
    assert_eq!(all.len(), 2, "{:?}", names(&dir));
    assert!(!all[0].manifest.complete);
    assert_eq!(all[0].tables["waits"].num_rows(), 7);
    assert_eq!(all[1].manifest.series.as_ref().unwrap().number, 10, "numbers are not reused");
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
    assert!(refused.contains("holds other files (passwd)"), "{refused}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    // A link with the name of the lock is not a lock.
    symlink("passwd", place.path().join(LOCK)).unwrap();
    assert!(Series::open(place.path(), Keep::default(), 0o600).is_err());
    assert_eq!(std::fs::read_to_string(place.path().join("passwd")).unwrap(), "root");
    // Only recordings of the series, with a deleted lock, and the entries of a file system.
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
    // A link named like a recording, a recording that contains a link, one with a user's notes, one copied to
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
    // These, the link, the copy, the other file and the last recording.
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
    // Their clock says 2024, and they were made just now: a clock that is years ahead deletes nothing of the
    // same boot.
    assert_eq!(left(&Now { unix: 4e9, ..now.clone() }), 4);
    assert_eq!(left(&Now { unix: 0.0, ..now.clone() }), 4);
    // After a reboot only the clock counts: the first ended an hour and a second ago.
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

/// A series like that of [`whole`], with the length that it claims, and `gap` seconds between the third and
/// the fourth.
fn timed(dir: &Path, gap: f64) -> Vec<String> {
    whole(dir, 5, Keep::default());
    let names: Vec<String> = names(dir).into_iter().collect();
    for (i, name) in names.iter().enumerate() {
        let file = dir.join(name).join(MANIFEST);
        let mut manifest = Manifest::read(&dir.join(name)).unwrap();
        let later = if i >= 3 { gap } else { 0.0 };
        manifest.created_unix += later;
        manifest.series.as_mut().unwrap().booted_s = 1000.0 + 60.0 * i as f64 + later;
        std::fs::write(file, serde_json::to_string(&manifest).unwrap()).unwrap();
    }
    names
}

/// The name of the recording's directory, or the end before and the start after the moment.
fn at(moments: &Moments, unix: f64) -> Result<String, (Option<f64>, Option<f64>)> {
    match moments.at(unix).unwrap() {
        Moment::Held(recording) => Ok(recording.name.rsplit('/').next().unwrap().into()),
        Moment::Not(before, after) => Err((before, after)),
    }
}

#[test]
fn a_moment_is_in_the_recording_that_was_written_then() {
    const FIRST: f64 = 1_709_208_000.0;
    let place = tempfile::tempdir().unwrap();
    let names = timed(place.path(), 0.0);
    let moments = Moments::read(place.path()).unwrap();
    for (i, name) in names[..4].iter().enumerate() {
        for second in [0.0, 0.5, 59.9] {
            assert_eq!(at(&moments, FIRST + 60.0 * i as f64 + second).as_ref(), Ok(name), "{i} {second}");
        }
    }
    assert_eq!(at(&moments, FIRST - 1.0), Err((None, Some(FIRST))));
    // The last is as long as its tables, and these have no times.
    assert_eq!(at(&moments, FIRST + 241.0), Err((Some(FIRST + 240.0), None)));
    assert_eq!(at(&moments, FIRST + 240.0), Err((Some(FIRST + 240.0), None)));
    assert_eq!(moments.span(), Some((FIRST, FIRST + 240.0)));
}

#[test]
fn a_moment_between_two_watches_is_in_none_and_one_of_a_clock_that_was_set_is_found() {
    const FIRST: f64 = 1_709_208_000.0;
    let place = tempfile::tempdir().unwrap();
    let names = timed(place.path(), 3600.0);
    // The third contains its length; without that table it would have lasted until the fourth.
    let table = |t: f64| {
        let mut table = Table::builder("cpu_time", &[Column::float("t", Unit::Seconds, Kind::Key, "")]);
        table.row().float(t);
        table.finish()
    };
    let third = place.path().join(&names[2]);
    let manifest = Manifest { files: Default::default(), complete: false, ..Manifest::read(&third).unwrap() };
    std::fs::remove_dir_all(&third).unwrap();
    let mut writer = Writer::create(&third, manifest).unwrap();
    writer.append(&table(60.0)).unwrap();
    writer.finish().unwrap();
    let moments = Moments::read(place.path()).unwrap();
    assert_eq!(at(&moments, FIRST + 150.0).as_ref(), Ok(&names[2]));
    for between in [180.0, 1000.0, 3779.0] {
        let ends = Err((Some(FIRST + 180.0), Some(FIRST + 3780.0)));
        assert_eq!(at(&moments, FIRST + between), ends, "{between}");
    }
    // The fourth and fifth began after the clock was set back by an hour: their numbers distinguish them from
    // the first.
    for name in &names[3..] {
        let file = place.path().join(name).join(MANIFEST);
        let mut manifest = Manifest::read(&place.path().join(name)).unwrap();
        manifest.created_unix -= 3780.0;
        std::fs::write(file, serde_json::to_string(&manifest).unwrap()).unwrap();
    }
    let moments = Moments::read(place.path()).unwrap();
    assert_eq!(at(&moments, FIRST + 30.0).as_ref(), Ok(&names[3]), "the later one");
    assert_eq!(at(&moments, FIRST + 90.0).as_ref(), Ok(&names[1]));
}

#[test]
fn what_others_put_there_is_left_out() {
    const FIRST: f64 = 1_709_208_000.0;
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("always");
    let names = timed(&dir, 0.0);
    let elsewhere = place.path().join("elsewhere");
    whole(&elsewhere, 1, Keep::default());
    let other = elsewhere.join(self::names(&elsewhere).first().unwrap());
    let hostile: Vec<String> = (10..17).map(|n| format!("{n:08}-20240229T120000Z.ncpu")).collect();
    // A link to a recording, one with another's number, broken manifests, a link and a pipe as manifest, a
    // file.
    symlink(&other, dir.join(&hostile[0])).unwrap();
    for name in &hostile[1..6] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    std::fs::copy(dir.join(&names[0]).join(MANIFEST), dir.join(&hostile[1]).join(MANIFEST)).unwrap();
    std::fs::write(dir.join(&hostile[2]).join(MANIFEST), "{\"format\":1").unwrap();
    symlink(other.join(MANIFEST), dir.join(&hostile[3]).join(MANIFEST)).unwrap();
    let pipe = dir.join(&hostile[4]).join(MANIFEST);
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let text = std::fs::read_to_string(dir.join(&names[0]).join(MANIFEST)).unwrap();
    let text = text.replace("\"number\":1,", "\"number\":15,").replace("1709208000.0", "1e999");
    std::fs::write(dir.join(&hostile[5]).join(MANIFEST), text).unwrap();
    std::fs::write(dir.join(&hostile[6]), "").unwrap();
    for foreign in ["web.ncpu", "..ncpu", "\u{1b}[31m.ncpu"] {
        std::fs::create_dir(dir.join(foreign)).unwrap();
    }
    let moments = Moments::read(&dir).unwrap();
    assert_eq!(moments.skipped, hostile);
    assert_eq!(at(&moments, FIRST + 90.0).as_ref(), Ok(&names[1]));
    assert!(Moments::read(&place.path().join("nothing")).is_err());
    assert!(Moments::read(place.path()).unwrap().is_empty());
}
