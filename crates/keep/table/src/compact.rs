//! Text as in the traditional stat tools: whole numbers in narrow columns, and a header of names only.

use arrow_array::{Array, Float64Array, StringArray, UInt64Array};

use crate::{Table, Type, Unit, safe, width};

/// The layout of a table as compact text.
#[derive(Clone, Copy, Debug)]
pub struct Compact<'a> {
    /// Minimum widths of columns by name, including the blank before each. Other columns are as wide as their
    /// name.
    pub widths: &'a [(&'a str, usize)],
    /// Width of the terminal.
    pub width: usize,
    /// Put blocks of rows side by side, up to the width, with this many blanks between them.
    pub side_by_side: Option<usize>,
}

impl Compact<'_> {
    /// Renders a table.
    ///
    /// Numbers are rounded to integers, except small numbers without a unit, which are ratios and have two
    /// decimal places. Numbers are right-aligned and never cut; the column grows with them. Unknown values
    /// are `-`. Text columns other than the first come last, cut to the width.
    pub fn render(&self, table: &Table) -> String {
        let columns = table.columns();
        let is_word = |c: usize| c > 0 && columns[c].ty == Type::Text;
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|&c| is_word(c));

        let cells: Vec<Cells> = order.iter().map(|&c| Cells::new(table, c)).collect();
        let mut widths: Vec<usize> = order
            .iter()
            .zip(&cells)
            .enumerate()
            .map(|(i, (&c, cells))| {
                let name = columns[c].name.as_str();
                let least = self.widths.iter().find(|(n, _)| *n == name).map_or(0, |(_, w)| *w);
                least.max(name.len().max(cells.longest()) + usize::from(i > 0))
            })
            .collect();
        let numbers = order.iter().filter(|&&c| !is_word(c)).count();
        // If the line would not fit, numbers too long for their columns are printed in thousands.
        if widths.iter().sum::<usize>() > self.width && self.side_by_side.is_none() {
            for (i, (width, &c)) in widths[..numbers].iter_mut().zip(&order).enumerate() {
                let name = columns[c].name.as_str();
                let least = self.widths.iter().find(|(n, _)| *n == name).map_or(0, |(_, w)| *w);
                *width = (*width).min(least.max(name.len() + usize::from(i > 0)).max(4));
            }
        }
        let taken: usize = widths[..numbers].iter().sum();
        let words = widths.len() - numbers;
        for (width, &c) in widths[numbers..].iter_mut().zip(&order[numbers..]) {
            let share = self.width.saturating_sub(taken) / words;
            *width = (*width).min(share.max(columns[c].name.len().max(8) + 1));
        }

        let line_width: usize = widths.iter().sum();
        let rows = table.num_rows();
        let blocks = match self.side_by_side {
            Some(gap) => self.width.saturating_add(gap) / (line_width + gap).max(1),
            None => 1,
        };
        let blocks = blocks.clamp(1, rows.max(1));
        let gap = " ".repeat(self.side_by_side.unwrap_or(0));
        let height = rows.div_ceil(blocks);

        let mut out = String::with_capacity((height + 1) * blocks * (line_width + gap.len() + 1));
        let write_line = |out: &mut String, cell: &dyn Fn(&mut String, usize, usize)| {
            for (i, &width) in widths.iter().enumerate() {
                let start = out.len();
                if i < numbers {
                    cell(out, i, width - usize::from(i > 0));
                    let written = out.len() - start;
                    pad(out, start, width.saturating_sub(written));
                } else {
                    out.push(' ');
                    cell(out, i, usize::MAX);
                    cut(out, start, width);
                }
            }
        };
        for block in 0..blocks {
            if block > 0 {
                out.push_str(&gap);
            }
            write_line(&mut out, &|out, i, _| out.push_str(&columns[order[i]].name));
        }
        end_line(&mut out);
        for line in 0..height {
            for block in 0..blocks {
                let row = block * height + line;
                if row >= rows {
                    continue;
                }
                if block > 0 {
                    out.push_str(&gap);
                }
                write_line(&mut out, &|out, i, room| cells[i].write(out, row, room));
            }
            end_line(&mut out);
        }
        out
    }
}

fn end_line(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

/// Inserts blanks before the last written cell.
fn pad(out: &mut String, at: usize, blanks: usize) {
    const BLANKS: &str = "                                ";
    if let Some(blanks) = BLANKS.get(..blanks) {
        out.insert_str(at, blanks);
    } else {
        out.insert_str(at, &" ".repeat(blanks));
    }
}

/// Pads or shortens the last written cell.
fn cut(out: &mut String, start: usize, columns: usize) {
    let text = width::filled(&out[start..], columns);
    out.truncate(start);
    out.push_str(&text);
}

enum Cells<'a> {
    Int(&'a UInt64Array),
    Float(&'a Float64Array),
    /// Small numbers without a unit: ratios, whose decimal places matter.
    Ratio(&'a Float64Array),
    Text(&'a StringArray),
    Nothing,
}

impl<'a> Cells<'a> {
    fn new(table: &'a Table, column: usize) -> Cells<'a> {
        let any = table.batch().column(column).as_any();
        if let Some(a) = any.downcast_ref() {
            Cells::Int(a)
        } else if let Some(a) = any.downcast_ref::<Float64Array>() {
            let small = a.iter().flatten().any(|n| n < 100.0 && n.fract() != 0.0);
            if small && table.columns()[column].unit == Unit::None {
                Cells::Ratio(a)
            } else {
                Cells::Float(a)
            }
        } else {
            any.downcast_ref().map_or(Cells::Nothing, Cells::Text)
        }
    }

    fn longest(&self) -> usize {
        let digits = |n: u64| n.checked_ilog10().map_or(1, |d| d as usize + 1);
        let most = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(1);
        match self {
            Cells::Int(a) => most(&mut a.iter().map(|n| n.map_or(1, digits))),
            Cells::Float(a) => most(&mut a.iter().map(|n| n.map_or(1, |n| digits(n.round() as u64)))),
            Cells::Ratio(a) => most(&mut a.iter().map(|n| n.map_or(1, |n| format!("{n:.2}").len()))),
            Cells::Text(a) => most(&mut a.iter().map(|s| s.map_or(1, |s| width::columns(&safe::line(s))))),
            Cells::Nothing => 1,
        }
    }

    /// Prints a number longer than `room` in thousands, millions or more.
    fn write(&self, out: &mut String, row: usize, room: usize) {
        let number = match self {
            Cells::Int(a) if a.is_valid(row) => a.value(row),
            // Columns do not count below zero; the cast saturates, so a negative value prints as 0.
            Cells::Float(a) if a.is_valid(row) => a.value(row).round() as u64,
            Cells::Ratio(a) if a.is_valid(row) => {
                return out.push_str(&format!("{:.2}", a.value(row)));
            }
            Cells::Text(a) if a.is_valid(row) => {
                return out.push_str(&safe::line(a.value(row)));
            }
            _ => return out.push('-'),
        };
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut n = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        let digits = std::str::from_utf8(&digits[at..]).expect("digits are ASCII");
        if digits.len() <= room {
            return out.push_str(digits);
        }
        for (thousands, unit) in [(1, 'K'), (2, 'M'), (3, 'G'), (4, 'T'), (5, 'P'), (6, 'E')] {
            let left = digits.len().saturating_sub(3 * thousands);
            if left < room || left <= 1 {
                out.push_str(if left == 0 { "0" } else { &digits[..left] });
                return out.push(unit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Kind, Select};

    #[test]
    fn long_numbers_are_told_in_thousands_where_the_line_would_not_fit() {
        let count = |name: &str| Column::int(name, crate::Unit::None, Kind::Count, "");
        let mut b =
            Table::builder("cpus", &[Column::id("CPU", ""), count("minf"), count("csw"), count("migr")]);
        b.row().int(0).int(18_630).int(1_234_567).int(7);
        b.row().int(1).int(999).int(u64::MAX).int(12_345_678_901);
        let table = b.finish();
        let widths = &[("CPU", 3), ("minf", 5), ("csw", 5), ("migr", 5)];
        let compact = |width| Compact { widths, width, side_by_side: None }.render(&table);
        assert_eq!(compact(18), "CPU minf  csw migr\n  0  18K   1M    7\n  1  999  18E  12G\n");
        assert!(compact(200).contains("18630  "), "{}", compact(200));
    }

    const WIDTHS: &[(&str, usize)] = &[("CPU", 3), ("intr", 6), ("usr", 5)];

    fn cpus(rows: u64) -> Table {
        let mut b = Table::builder(
            "cpus",
            &[
                Column::id("CPU", ""),
                Column::float("intr", Unit::PerSecond, Kind::Count, ""),
                Column::float("usr", Unit::Percent, Kind::Share, ""),
            ],
        );
        for cpu in 0..rows {
            let row = b.row().int(cpu).float(cpu as f64 * 1000.4);
            if cpu == 1 {
                row.null()
            } else {
                row.float(2.6)
            };
        }
        b.finish()
    }

    fn render(table: &Table, width: usize, side_by_side: Option<usize>) -> String {
        Compact { widths: WIDTHS, width, side_by_side }.render(table)
    }

    #[test]
    fn whole_numbers_in_narrow_columns() {
        insta::assert_snapshot!(render(&cpus(3), 80, None), @r"
        CPU  intr  usr
          0     0    3
          1  1000    -
          2  2001    3
        ");
        assert_eq!(render(&cpus(0), 80, None), "CPU  intr  usr\n");
    }

    #[test]
    fn ratios_keep_their_hundredths() {
        let columns = [
            Column::id("CPU", ""),
            Column::float("IPC", Unit::None, Kind::Share, ""),
            Column::float("csw", Unit::None, Kind::Count, ""),
            Column::float("busy", Unit::Percent, Kind::Share, ""),
        ];
        let mut b = Table::builder("counters", &columns);
        b.row().int(0).float(1.234).float(1520.5).float(12.5);
        b.row().int(1).null().float(24.0).float(7.2);
        insta::assert_snapshot!(render(&b.finish(), 80, None), @r"
        CPU  IPC  csw busy
          0 1.23 1521   13
          1    -   24    7
        ");
    }

    #[test]
    fn blocks_side_by_side_fill_the_width() {
        insta::assert_snapshot!(render(&cpus(5), 40, Some(4)), @r"
        CPU  intr  usr    CPU  intr  usr
          0     0    3      3  3001    3
          1  1000    -      4  4002    3
          2  2001    3
        ");
        assert_eq!(render(&cpus(5), 10, Some(4)), render(&cpus(5), 10, None), "too narrow for two");
        assert!(render(&cpus(300), 200, Some(4)).lines().all(|l| l.len() <= 200));
    }

    #[test]
    fn sets_come_last_and_are_cut() {
        let select =
            Select { sort: Some("intr".parse().unwrap()), bands: Some(2), mean: true, ..Default::default() };
        let t = select.apply(cpus(20)).unwrap();
        insta::assert_snapshot!(render(&t, 80, None), @r"
        band rows  intr  usr CPU
         1/2   10 14506    3 10-19
         2/2   10  4502    3 0-9
        ");
        let t = cpus(400).merge_by(Column::id("core", ""), |r| Some(r as u64 % 2), true).unwrap();
        assert!(render(&t, 60, None).lines().all(|l| l.chars().count() <= 60));
        assert!(render(&t, 60, None).contains('…'));
    }
}
