//! A single JSON format for all tables: see [`Column::key`] and [`lines`].

use std::collections::HashMap;
use std::io::{self, Write};

use crate::{Cell, Column, Kind, Result, Table, Unit, objects};

impl Unit {
    /// The divisor from this unit to the one in JSON: durations are in seconds, and shares are fractions of
    /// 1.
    fn divisor(self) -> f64 {
        match self {
            Unit::Milliseconds => 1e3,
            Unit::Microseconds | Unit::MicrosecondsPerCall => 1e6,
            Unit::Nanoseconds => 1e9,
            Unit::Percent => 1e2,
            Unit::None
            | Unit::Figure
            | Unit::PerSecond
            | Unit::Seconds
            | Unit::CpuSeconds
            | Unit::Share
            | Unit::Bytes
            | Unit::Megahertz
            | Unit::Objects => 1.0,
        }
    }

    /// The unit in JSON.
    pub fn of_json(self) -> Unit {
        match self {
            Unit::Milliseconds | Unit::Microseconds | Unit::MicrosecondsPerCall | Unit::Nanoseconds => {
                Unit::Seconds
            }
            Unit::Percent => Unit::Share,
            unit => unit,
        }
    }
}

impl Column {
    /// The column's key in JSON: its name in lower case with `_` between words, and `time` for `t`, the time
    /// of a row. A unit at the end of the name is dropped because JSON uses another unit: `spin_us` becomes
    /// `spin_mean`, and `used_pct` becomes `used_share`.
    pub fn key(&self) -> String {
        if self.name == "t" && self.kind == Kind::Key {
            return "time".into();
        }
        if self.name == "+-" {
            return "uncertainty".into();
        }
        let mut key = String::new();
        for c in self.name.replace('/', "_per_").chars() {
            match c.is_ascii_alphanumeric() {
                true => key.push(c.to_ascii_lowercase()),
                false if key.ends_with('_') => {}
                false => key.push('_'),
            }
        }
        let key = key.trim_matches('_');
        let unit = ["_us", "_ms", "_ns", "_pct"].iter().find_map(|unit| key.strip_suffix(unit));
        match (unit, self.unit, self.kind) {
            (Some(stem), Unit::Percent, _) => format!("{stem}_share"),
            (Some(stem), unit, Kind::Mean) if unit.divisor() > 1.0 => format!("{stem}_mean"),
            (Some(stem), unit, _) if unit.divisor() > 1.0 => stem.into(),
            _ => key.into(),
        }
    }
}

/// The last key of each object: the version of the schema that the other keys are of.
pub const VERSION_KEY: &str = "ncpu_schema";

/// The rows as JSON, one object per line: keys of [`Column::key`], seconds and fractions, and explicit nulls. With a version, each object
/// ends with [`VERSION_KEY`]: lines are read apart, so each has it.
pub(crate) fn lines(table: &Table, version: Option<u32>) -> Result<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut keys = Vec::new();
    for column in table.columns() {
        let mut key = column.key();
        let times = seen.entry(key.clone()).or_default();
        *times += 1;
        // Two names with one key: impossible in our tables, but possible in a recording.
        if *times > 1 {
            key = format!("{key}_{times}");
        }
        keys.push(serde_json::to_string(&key).map_err(io::Error::from)?);
    }
    let mut out = Vec::new();
    for row in 0..table.num_rows() {
        for (i, (key, column)) in keys.iter().zip(table.columns()).enumerate() {
            out.push(if i == 0 { b'{' } else { b',' });
            out.extend_from_slice(key.as_bytes());
            out.push(b':');
            let divisor = column.unit.divisor();
            match table.cell(row, i) {
                Cell::Null => out.extend_from_slice(b"null"),
                Cell::Int(n) if divisor == 1.0 => write!(out, "{n}")?,
                Cell::Int(n) => {
                    serde_json::to_writer(&mut out, &(n as f64 / divisor)).map_err(io::Error::from)?
                }
                // Infinities and NaN are null in JSON.
                Cell::Float(x) => serde_json::to_writer(&mut out, &(x / divisor)).map_err(io::Error::from)?,
                Cell::Text(text) if column.unit == Unit::Objects && objects::is_one_line(text) => {
                    out.extend_from_slice(text.as_bytes());
                }
                Cell::Text(text) => serde_json::to_writer(&mut out, text).map_err(io::Error::from)?,
            }
        }
        if keys.is_empty() {
            out.push(b'{');
        }
        if let Some(version) = version.filter(|_| !seen.contains_key(VERSION_KEY)) {
            let comma = if keys.is_empty() { "" } else { "," };
            write!(out, "{comma}\"{VERSION_KEY}\":{version}")?;
        }
        out.extend_from_slice(b"}\n");
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Printer};

    #[test]
    fn objects_are_objects_for_programs_and_words_for_readers() {
        let mut rows = Table::builder("x", &[Column::text("layer", ""), Column::objects("evidence", "")]);
        rows.row()
            .text("a")
            .text(r#"[{"kind":"zeroing","share":0.5,"words":"half"},{"words":"the\u001b rest"}]"#);
        rows.row().text("b").text(r#"{"words":"one"}"#);
        // An old recording holds words, and a foreign one any text.
        rows.row().text("c").text("words; more");
        rows.row().text("d").text("{\"a\":1}\n{\"b\":2}");
        rows.row().text("e").text("{\n}");
        rows.row().text("f").null();
        let table = rows.finish();
        let printed = |format| {
            let mut out = Vec::new();
            let mut printer = Printer::new(&mut out, format, 80);
            printer.table(&table).unwrap();
            printer.finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        let json = printed(Format::Json);
        let rows: Vec<serde_json::Value> = json.lines().map(|l| serde_json::from_str(l).expect(l)).collect();
        assert_eq!(rows.len(), 6, "{json}");
        assert_eq!(rows[0]["evidence"][0]["share"], 0.5);
        assert_eq!(rows[0]["evidence"][1]["words"], "the\u{1b} rest");
        assert_eq!(rows[1]["evidence"]["words"], "one");
        assert_eq!(rows[2]["evidence"], "words; more");
        assert!(
            rows[3]["evidence"].is_string()
                && rows[4]["evidence"].is_string()
                && rows[5]["evidence"].is_null()
        );
        let csv = printed(Format::Csv);
        assert!(csv.starts_with("layer,evidence\na,half; the\\x1b rest\nb,one\nc,words; more\n"), "{csv}");
        let text = printed(Format::Text);
        assert!(text.contains("a      half; the\\x1b rest\n"), "{text}");
    }

    /// Readers that know the keys of before find them as they were, at their places.
    #[test]
    fn the_version_is_the_last_key() {
        let mut rows = Table::builder("x", &[Column::text("a", "")]);
        rows.row().text("b");
        rows.row().null();
        let table = rows.finish();
        assert_eq!(lines(&table, None).unwrap(), "{\"a\":\"b\"}\n{\"a\":null}\n");
        let versioned = "{\"a\":\"b\",\"ncpu_schema\":7}\n{\"a\":null,\"ncpu_schema\":7}\n";
        assert_eq!(lines(&table, Some(7)).unwrap(), versioned);
        // A table that was read back and has it.
        let mut rows = Table::builder("x", &[Column::int("ncpu_schema", Unit::None, Kind::Key, "")]);
        rows.row().int(3);
        assert_eq!(lines(&rows.finish(), Some(7)).unwrap(), "{\"ncpu_schema\":3}\n");
    }

    fn key(name: &str, unit: Unit, kind: Kind) -> String {
        Column::float(name, unit, kind, "").key()
    }

    #[test]
    fn keys_are_words_in_lower_case_without_units() {
        for (name, unit, kind, expect) in [
            ("t", Unit::Seconds, Kind::Key, "time"),
            ("PID", Unit::None, Kind::Key, "pid"),
            ("CPU-util", Unit::Share, Kind::Share, "cpu_util"),
            ("spin", Unit::Seconds, Kind::Time, "spin"),
            ("spin_us", Unit::Microseconds, Kind::Mean, "spin_mean"),
            ("used_pct", Unit::Percent, Kind::Share, "used_share"),
            ("longest_ms", Unit::Milliseconds, Kind::Peak, "longest"),
            ("MB/s", Unit::None, Kind::Mean, "mb_per_s"),
            ("+-", Unit::Percent, Kind::Share, "uncertainty"),
            ("local_cpus", Unit::None, Kind::Key, "local_cpus"),
        ] {
            assert_eq!(key(name, unit, kind), expect, "{name}");
        }
    }

    #[test]
    fn durations_are_seconds_and_shares_fractions() {
        let mut rows = Table::builder(
            "x",
            &[
                Column::float("t", Unit::Seconds, Kind::Key, ""),
                Column::id("PID", ""),
                Column::float("USR", Unit::Percent, Kind::Share, ""),
                Column::float("max", Unit::Microseconds, Kind::Peak, ""),
                Column::int("slack", Unit::Nanoseconds, Kind::Gauge, ""),
                Column::int("size", Unit::Bytes, Kind::Gauge, ""),
                Column::text("usr", ""),
            ],
        );
        rows.row().float(1.0).int(7).float(25.0).float(90.0).int(50_000).int(4096).null();
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, Format::Json, 80);
        printer.table(&rows.finish()).unwrap();
        printer.finish().unwrap();
        let expect =
            r#"{"time":1.0,"pid":7,"usr":0.25,"max":0.00009,"slack":0.00005,"size":4096,"usr_2":null}"#;
        let value = |text: &str| text.trim().replace("9e-5", "0.00009").replace("5e-5", "0.00005");
        assert_eq!(value(&String::from_utf8(out).unwrap()), expect);
    }
}
