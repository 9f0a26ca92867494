//! The table of cases for people: notes that have no room beside their row come under the table.

use ncpu_table::{Table, render_text};

use crate::table_args::{OutPrinter, text_width};

/// Prints it.
pub fn print(printer: &mut OutPrinter, table: &Table) -> anyhow::Result<()> {
    let width = text_width();
    if render_text(table, usize::MAX).lines().all(|l| ncpu_table::width::columns(l) <= width) {
        return Ok(printer.table(table)?);
    }
    let names: Vec<&str> =
        table.columns().iter().map(|c| c.name.as_str()).filter(|n| *n != "notes").collect();
    printer.table(&table.project(&names)?)?;
    crate::out::put(&under(table, width))
}

/// A paragraph for each row with notes. Rows without a time have said why already.
fn under(table: &Table, width: usize) -> String {
    let mut out = String::new();
    for row in 0..table.num_rows() {
        let (Some(name), Some(notes)) = (table.text(row, "benchmark"), table.text(row, "notes")) else {
            continue;
        };
        if notes.is_empty() || table.number(row, "time").is_none() {
            continue;
        }
        let mut line = format!("{name}: ");
        let mut empty = true;
        for note in notes.split("; ") {
            if !empty && ncpu_table::width::columns(&line) + ncpu_table::width::columns(note) + 2 > width {
                out += &format!("{};\n", line.trim_end());
                (line, empty) = ("  ".into(), true);
            }
            line += &if empty { note.to_string() } else { format!("; {note}") };
            empty = false;
        }
        out += &format!("{line}\n");
    }
    if out.is_empty() { out } else { format!("\n{out}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_table::{Column, Kind, Unit};

    #[test]
    fn notes_are_never_cut() {
        let columns = [
            Column::text("benchmark", ""),
            Column::float("time", Unit::None, Kind::Gauge, ""),
            Column::text("notes", ""),
        ];
        let mut t = Table::builder("bench", &columns);
        t.row().text("accept").float(1.0).text("evenness 0.25; most to one 1.000; wakeups 3.0");
        t.row().text("quiet").float(1.0).text("");
        t.row().text("absent").float_opt(None).text("skipped: no such thing");
        let t = t.finish();
        assert_eq!(under(&t, 80), "\naccept: evenness 0.25; most to one 1.000; wakeups 3.0\n");
        assert_eq!(under(&t, 30), "\naccept: evenness 0.25;\n  most to one 1.000;\n  wakeups 3.0\n");
    }
}
