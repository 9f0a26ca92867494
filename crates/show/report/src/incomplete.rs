//! Recordings whose writer did not finish.

use ncpu_record::Recording;
use ncpu_table::{Column, Table};

use ncpu_record::utc;

/// A note on a recording that was cut off, because its writer was killed or lost power: the missing part, and the
/// time until which it has tables. `None` for a whole one.
pub fn words(recording: &Recording) -> Option<String> {
    if recording.manifest.complete {
        return None;
    }
    let held = match recording.until() {
        Some(until) => {
            let clock = match utc(recording.manifest.created_unix + until) {
                clock if clock.is_empty() => clock,
                clock => format!(", until about {clock}"),
            };
            format!("It holds {until:.1} s{clock}")
        }
        None => "Until when it goes is not known".into(),
    };
    Some(format!(
        "the recording is incomplete: its writer did not finish. {held}; the facts of the end (exit status, user and \
         system time, steal, what was dropped) are missing"
    ))
}

/// A table of an incomplete recording with a column that says so in each row; any other as it is.
pub fn marked(recording: &Recording, table: Table) -> Table {
    let Some(words) = words(recording) else { return table };
    let column = Column::text("incomplete", "why rows are missing: the recording's writer did not finish");
    table.with_text(column, |_| Some(words.clone())).unwrap_or(table)
}

#[cfg(test)]
mod tests {
    use ncpu_record::Manifest;
    use ncpu_schema::Purpose;
    use ncpu_table::{Kind, Unit};

    use super::*;

    #[test]
    fn until_when_a_recording_goes_is_told() {
        let mut rows = Table::builder(
            "cpu_time",
            &[Column::float("t", Unit::Seconds, Kind::Key, ""), Column::id("CPU", "")],
        );
        for t in [1.0, 2.0, 3.0] {
            rows.row().float(t).int(0);
        }
        let mut manifest = Manifest::new(Purpose::Run, 1, vec!["make".into()], 1.0);
        manifest.created_unix = 1_709_208_000.0;
        let mut recording = Recording::new(manifest).with(rows.finish());
        recording.manifest.complete = false;
        let told = words(&recording).unwrap();
        assert!(told.contains("It holds 3.0 s, until about 2024-02-29 12:00:03 UTC;"), "{told}");
        let table = marked(&recording, recording.tables["cpu_time"].clone());
        assert_eq!((table.num_rows(), table.text(2, "incomplete")), (3, Some(told.as_str())));
        recording.manifest.complete = true;
        assert_eq!(words(&recording), None);
        assert_eq!(marked(&recording, table.clone()), table);
        recording.manifest.complete = false;
        recording.tables.clear();
        assert!(words(&recording).unwrap().contains("not known"));
    }
}
