//! Tables for tests, in the shape that the schema gives them.

use ncpu_table::{Table, Type};

/// A table of the schema with these rows: texts, then numbers. Columns that are not named are null.
///
/// Panics where the schema has no such table or column, or the column has another type.
pub(crate) fn table(name: &str, texts: &[&str], numbers: &[&str], rows: &[(&[&str], &[f64])]) -> Table {
    let definition = ncpu_schema::definition(name).unwrap_or_else(|| panic!("no table `{name}`"));
    let columns = (definition.columns)();
    for column in texts.iter().chain(numbers) {
        assert!(columns.iter().any(|c| c.name == *column), "table `{name}` has no column `{column}`");
    }
    let mut out = definition.builder();
    for (words, values) in rows {
        assert_eq!((words.len(), values.len()), (texts.len(), numbers.len()), "a row of `{name}`");
        let mut row = out.row();
        for column in &columns {
            let value = numbers.iter().position(|n| *n == column.name).map(|i| values[i]);
            row = match column.ty {
                Type::Text => row.text_opt(texts.iter().position(|t| *t == column.name).map(|i| words[i])),
                Type::Int => row.int_opt(value.map(|v| v as u64)),
                Type::Float => row.float_opt(value),
            };
        }
    }
    out.finish()
}
