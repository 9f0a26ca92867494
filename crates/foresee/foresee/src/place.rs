//! Where a file in TOML is wrong, in one line.

use toml::de::{DeTable, DeValue};

/// The line and column of an error, counted from 1, and what is wrong there.
pub fn wrong(text: &str, error: &toml::de::Error) -> String {
    let what: Vec<&str> = error.message().lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let what = what.join(", ");
    let Some(span) = error.span() else { return what };
    format!("{}: {what}", line_and_column(text, span.start))
}

/// Which value of a file: a key of its own, or of a table or of an entry of an array of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) table: Option<(&'static str, Option<usize>)>,
    pub(crate) name: &'static str,
}

impl Key {
    /// A key outside of any table.
    pub(crate) fn top(name: &'static str) -> Key {
        Key { table: None, name }
    }
}

/// The message for an invalid value, with its line and column in the file, or those of its table if it is not in the
/// file.
pub(crate) fn wrong_value(text: &str, key: Key, what: &str) -> String {
    let Ok(file) = DeTable::parse(text) else { return what.into() };
    let mut table = file.get_ref();
    let mut at = None;
    if let Some((name, index)) = key.table {
        let found = table.get(name).and_then(|value| match (index, value.get_ref()) {
            (Some(i), DeValue::Array(all)) => all.get(i),
            (None, _) => Some(value),
            _ => None,
        });
        if let Some(value) = found {
            at = Some(value.span().start);
            if let DeValue::Table(inside) = value.get_ref() {
                table = inside;
            }
        }
    }
    if let Some(value) = table.get(key.name) {
        at = Some(value.span().start);
    }
    match at {
        Some(at) => format!("{}: {what}", line_and_column(text, at)),
        None => what.into(),
    }
}

fn line_and_column(text: &str, at: usize) -> String {
    let (line, column) = ncpu_table::place(text, at);
    format!("line {line}, column {column}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Key, wrong, wrong_value};

    #[test]
    fn a_value_has_its_line_and_column() {
        let text = "work_ns = -4\n[[lock]]\nname = \"a\"\n[[lock]]\nname = \"b\"\nkind = \"magic\"\n[recorded]\ncpus = 0\n";
        let of = |table, name| wrong_value(text, Key { table, name }, "no");
        assert_eq!(of(None, "work_ns"), "line 1, column 11: no");
        assert_eq!(of(Some(("lock", Some(1))), "kind"), "line 6, column 8: no");
        assert_eq!(of(Some(("recorded", None)), "cpus"), "line 8, column 8: no");
        // Not in the file: its table is.
        assert_eq!(of(Some(("lock", Some(0))), "kind"), "line 2, column 1: no");
        assert_eq!(of(None, "cv"), "no");
    }

    #[test]
    fn an_error_has_its_line_and_column() {
        let said = |text: &str| match toml::from_str::<BTreeMap<String, u32>>(text) {
            Err(error) => wrong(text, &error),
            Ok(map) => panic!("{map:?}"),
        };
        let kind = said("cores = 4\nthreads = \"many\"\n");
        assert!(kind.starts_with("line 2, column 11: invalid type"), "{kind}");
        assert!(!kind.contains('\n'), "{kind}");
        // Columns are characters, and not bytes.
        let more = said("\"größe\" = 3 x\n");
        assert!(more.starts_with("line 1, column 11: "), "{more}");
    }
}
