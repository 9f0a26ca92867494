//! Aligned text that fits the terminal.

use std::fmt::Write;

use arrow_array::{Array, Float64Array, StringArray, UInt64Array};

use crate::{Column, Kind, Table, Type, Unit, objects, safe, size, width};

/// Minimum width of a text column; below it the line exceeds the terminal.
const MIN_TEXT: usize = 7;

/// The layout of a table.
#[derive(Clone, Copy)]
struct Layout {
    /// Blanks between columns.
    gap: usize,
    /// Units follow the names.
    units: bool,
    /// Minimum length of a cut name that is still recognisable.
    legible: usize,
}

const WIDE: Layout = Layout { gap: 2, units: true, legible: 22 };

/// The steps that narrow a table, tried in order until it fits.
const STEPS: [Step; 9] = [
    Step::Leave(|kind| matches!(kind, Kind::Mean | Kind::Peak)),
    Step::Lay(Layout { gap: 1, units: false, legible: 22 }),
    Step::Lay(Layout { gap: 1, units: false, legible: 16 }),
    Step::SayOnce,
    Step::Leave(|kind| kind == Kind::Count),
    Step::Lay(Layout { gap: 1, units: false, legible: MIN_TEXT }),
    Step::Leave(|kind| kind == Kind::Gauge),
    Step::Leave(|kind| kind == Kind::Time),
    Step::Leave(|kind| kind == Kind::Share),
];

enum Step {
    /// Omit columns of such a kind, last first.
    Leave(fn(Kind) -> bool),
    /// Use a tighter layout.
    Lay(Layout),
    /// Put keys that are the same in all rows into a line above the table.
    SayOnce,
}

/// The most columns that shorter cells of a column are filled up to.
const MAX_ALIGNED: usize = 400;

/// Renders a table as aligned text of at most `width` columns, provided that its text columns can be
/// shortened enough. A shortened cell ends in `…`. Numbers are never cut. If names would become
/// unrecognisable, columns of means and peaks are omitted, last first, then units and blanks, then counts. Keys that all rows share
/// are said once before counts are omitted.
pub fn render(table: &Table, width: usize) -> String {
    let mut shown = table.clone();
    let mut layout = WIDE;
    let mut above = String::new();
    for step in &STEPS {
        match step {
            _ if least_width(&shown, layout) <= width => break,
            Step::Lay(tighter) => layout = *tighter,
            Step::SayOnce => {
                let (names, words) = said_once(&shown);
                if let Ok(fewer) = shown.project(&names)
                    && !words.is_empty()
                {
                    (above, shown) = (lines(&words, width), fewer);
                }
            }
            Step::Leave(gives_way) => {
                while least_width(&shown, layout) > width {
                    // The first column that is not a key stays: otherwise the table would show no values.
                    let first = shown.columns().iter().position(|c| c.kind != Kind::Key);
                    let last = shown.columns().iter().rposition(|c| gives_way(c.kind) && c.ty != Type::Text);
                    let Some(at) = last.filter(|at| Some(*at) != first) else { break };
                    let mut names: Vec<&str> = shown.columns().iter().map(|c| c.name.as_str()).collect();
                    names.remove(at);
                    match shown.project(&names) {
                        Ok(fewer) => shown = fewer,
                        Err(_) => break,
                    }
                }
            }
        }
    }
    above + &render_all(&shown, width, layout)
}

/// The cells that all rows share, in lines of at most `width` columns.
fn lines(words: &[String], width: usize) -> String {
    let (mut out, mut line) = (String::new(), String::from("all:"));
    for (n, word) in words.iter().enumerate() {
        let word = width::start(word, width.saturating_sub(5));
        let fits = width::columns(&line) + width::columns(&word) + 3 <= width;
        match (n, fits) {
            (0, _) => line.push(' '),
            (_, true) => line.push_str(" · "),
            (_, false) => {
                out += &line;
                line = "\n     ".into();
            }
        }
        line += &word;
    }
    out + &line + "\n"
}

/// The columns of a table, without keys that have the same cell in all rows. Of these keys the names and cells, but never of the first.
fn said_once(table: &Table) -> (Vec<&str>, Vec<String>) {
    let (mut names, mut words) = (Vec::new(), Vec::new());
    for (at, column) in table.columns().iter().enumerate() {
        let cells = format_column(table, at);
        match cells.first() {
            Some(first)
                if at > 0
                    && column.kind == Kind::Key
                    && cells.len() > 1
                    && cells.iter().all(|cell| cell == first) =>
            {
                words.push(format!("{} {first}", safe::line(&column.name)));
            }
            _ => names.push(column.name.as_str()),
        }
    }
    (names, words)
}

/// The minimum width of a table with recognisable names.
fn least_width(table: &Table, layout: Layout) -> usize {
    let wide = |c: usize, column: &Column| {
        let cells = format_column(table, c);
        let full = cells
            .iter()
            .map(|s| width::columns(s))
            .chain([width::columns(&head(column, layout))])
            .max()
            .unwrap_or(0);
        if column.ty == Type::Text { full.min(layout.legible) } else { full }
    };
    let cells: usize = table.columns().iter().enumerate().map(|(c, column)| wide(c, column)).sum();
    cells + layout.gap * table.columns().len().saturating_sub(1)
}

fn render_all(table: &Table, width: usize, layout: Layout) -> String {
    let columns = table.columns();
    let heads: Vec<String> = columns.iter().map(|c| head(c, layout)).collect();
    let cells: Vec<Vec<String>> = (0..columns.len()).map(|c| format_column(table, c)).collect();
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|c| {
            cells[c].iter().map(|s| width::columns(s)).chain([width::columns(&heads[c])]).max().unwrap_or(0)
        })
        .collect();
    squeeze(&mut widths, columns, width, layout.gap);
    // Without a width nothing is cut, but a very long name widens its own line alone.
    let aligned = |c: usize| widths[c].min(MAX_ALIGNED);

    let blanks = " ".repeat(layout.gap);
    let mut out = String::new();
    let mut line = |cell: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for (c, column) in columns.iter().enumerate() {
            let cell = cut(&cell(c), widths[c]);
            let fill = " ".repeat(aligned(c).saturating_sub(width::columns(&cell)));
            let gap = if c == 0 { "" } else { &blanks };
            let _ = match column.ty {
                Type::Text => write!(text, "{gap}{cell}{fill}"),
                Type::Int | Type::Float => write!(text, "{gap}{fill}{cell}"),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&|c| heads[c].clone());
    (0..table.num_rows()).for_each(|row| line(&|c| cells[c][row].clone()));
    out
}

/// A cell of at most `most` columns. Addresses of a program are alike at their beginning and differ at their end.
fn cut(cell: &str, most: usize) -> String {
    let digits = cell.strip_prefix("0x").filter(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    match digits {
        Some(digits) if cell.len() > most && most >= MIN_TEXT => {
            format!("0x…{}", &digits[cell.len() - most + 1..])
        }
        _ => width::start(cell, most),
    }
}

/// The name, with its unit if the name does not include it: `elapsed s`, `usr %`.
fn head(column: &Column, layout: Layout) -> String {
    let symbol = column.unit.symbol();
    let name = safe::line(&column.name);
    match column.unit {
        _ if !layout.units => name.into_owned(),
        Unit::None | Unit::Share | Unit::Figure | Unit::Objects => name.into_owned(),
        _ if name.ends_with(symbol) => name.into_owned(),
        Unit::PerSecond => format!("{name}/s"),
        _ => format!("{name} {symbol}"),
    }
}

/// Narrows the widest text columns until the line fits or no column can be narrowed.
fn squeeze(widths: &mut [usize], columns: &[Column], width: usize, gap: usize) {
    loop {
        let line: usize = widths.iter().sum::<usize>() + gap * widths.len().saturating_sub(1);
        if line <= width {
            return;
        }
        let widest = (0..widths.len()).filter(|&c| columns[c].ty == Type::Text).max_by_key(|&c| widths[c]);
        match widest {
            Some(c) if widths[c] > MIN_TEXT => {
                // Down to the next widest first, so that two long columns are shortened equally.
                let next = (0..widths.len())
                    .filter(|&d| d != c && columns[d].ty == Type::Text)
                    .map(|d| widths[d])
                    .max()
                    .unwrap_or(MIN_TEXT)
                    .max(MIN_TEXT);
                widths[c] -= (line - width).min((widths[c] - next).max(1));
            }
            _ => return,
        }
    }
}

fn format_column(table: &Table, at: usize) -> Vec<String> {
    let column = &table.columns()[at];
    let array = table.batch().column(at);
    let any = array.as_any();
    let ints = any.downcast_ref::<UInt64Array>();
    let floats = any.downcast_ref::<Float64Array>();
    let texts = any.downcast_ref::<StringArray>();
    (0..table.num_rows())
        .map(|row| {
            if array.is_null(row) {
                return "-".into();
            }
            match (ints, floats, texts) {
                (Some(a), _, _) if column.unit == Unit::Bytes && column.kind != Kind::Key => {
                    size::compact(a.value(row))
                }
                (Some(a), _, _) => a.value(row).to_string(),
                (_, Some(a), _) if column.unit == Unit::Bytes => {
                    size::compact(a.value(row).max(0.0).round() as u64)
                }
                (_, Some(a), _) if column.unit == Unit::Figure => figure(a.value(row)),
                (_, Some(a), _) => format!("{:.*}", column.unit.decimals(), a.value(row)),
                (_, _, Some(a)) if column.unit == Unit::Objects => {
                    safe::line(&objects::words(a.value(row))).into_owned()
                }
                (_, _, Some(a)) => safe::line(a.value(row)).into_owned(),
                _ => String::new(),
            }
        })
        .collect()
}

/// Five significant digits: 0.0001044, 1.5, 12341.
pub fn figure(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    let decimals = (4 - x.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{x:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks() -> Table {
        let mut b = Table::builder(
            "locks",
            &[
                Column::float("CPU-util", Unit::Share, Kind::Share, "share of capacity"),
                Column::text("Lock", "name of the lock"),
                Column::text("Caller", "who asked for it"),
                Column::float("spin", Unit::Seconds, Kind::Time, "time spun"),
                Column::int("size", Unit::Bytes, Kind::Gauge, "size"),
            ],
        );
        b.row().float(0.866).text("pcf").text("page_create_wait").float(1.5).int(128 << 30);
        b.row()
            .float(0.004)
            .text("files_struct.file_lock with a long name")
            .text("x\x1b[2J")
            .float(0.25)
            .int(4198);
        b.row().null().text("mmap_lock");
        b.finish()
    }

    #[test]
    fn wide_names_do_not_shift_their_rows() {
        let columns = [Column::text("lock", ""), Column::count("count", ""), Column::text("caller", "")];
        let mut b = Table::builder("locks", &columns);
        b.row().text("锁锁锁锁").int(7).text("a");
        b.row().text("abcdefgh").int(8).text("b");
        assert_eq!(
            render(&b.finish(), 80),
            "lock      count  caller\n锁锁锁锁      7  a\nabcdefgh      8  b\n"
        );
    }

    /// A user may give a control group a name of thousands of characters.
    #[test]
    fn a_very_long_name_widens_its_own_line_alone() {
        let columns = [Column::text("tenant", ""), Column::count("count", "")];
        let mut b = Table::builder("tenants", &columns);
        b.row().text("x".repeat(3_000)).int(1);
        b.row().text("web").int(2);
        let text = render(&b.finish(), usize::MAX);
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(text.contains(&"x".repeat(3_000)), "nothing is cut");
        assert!(lengths[0] < 500 && lengths[2] < 500, "{lengths:?}");
    }

    proptest::proptest! {
        /// Only texts are narrowed, the widest first, none below the least, and no more than the line needs.
        #[test]
        fn texts_are_narrowed_evenly_and_no_more_than_necessary(
            before in proptest::collection::vec((proptest::bool::ANY, 1usize..60), 1..6),
            width in 0usize..200,
            gap in 1usize..4,
        ) {
            let columns: Vec<Column> = before.iter()
                .map(|(text, _)| if *text { Column::text("a", "") } else { Column::count("a", "") })
                .collect();
            let line = |widths: &[usize]| widths.iter().sum::<usize>() + gap * (widths.len() - 1);
            let whole: Vec<usize> = before.iter().map(|(_, width)| *width).collect();
            let mut widths = whole.clone();
            squeeze(&mut widths, &columns, width, gap);
            let narrowed = (0..widths.len()).filter(|&c| widths[c] != whole[c]).collect::<Vec<_>>();
            for &c in &narrowed {
                assert!(before[c].0 && widths[c] >= MIN_TEXT && widths[c] < whole[c], "{whole:?} {widths:?}");
                let wider = (0..widths.len()).filter(|&d| before[d].0 && widths[d] > widths[c] + 1);
                assert_eq!(wider.count(), 0, "{whole:?} {widths:?}: a wider one was spared");
            }
            let could = |c: usize| before[c].0 && widths[c] > MIN_TEXT;
            match line(&widths).cmp(&width) {
                std::cmp::Ordering::Greater => assert!(!(0..widths.len()).any(could), "{whole:?} {widths:?}"),
                std::cmp::Ordering::Less => assert!(narrowed.is_empty(), "{whole:?} {widths:?}"),
                std::cmp::Ordering::Equal => {}
            }
        }
    }

    #[test]
    fn addresses_keep_the_end_by_which_they_differ() {
        assert_eq!(cut("0x1b75a74c6538", 12), "0x…5a74c6538");
        assert_eq!(cut("0x1b75a74c6538", 14), "0x1b75a74c6538");
        assert_eq!(cut("0x1b75 of a heap", 12), "0x1b75 of a…");
    }

    #[test]
    fn keys_that_all_rows_share_are_said_once_where_names_would_be_cut() {
        let texts = ["lock", "process", "caller", "holder", "pattern"];
        let mut columns: Vec<Column> = texts.map(|name| Column::text(name, "")).into();
        columns.extend([Column::id("pid", ""), Column::count("count", "")]);
        let mut b = Table::builder("user_locks", &columns);
        for (caller, holder) in
            [("main.main.func1.of.a.package", "gobench/28307"), ("runtime.forEachPInternal", "-")]
        {
            let row = b.row().text("0x1acde39cb538").text("a server of many").text(caller);
            row.text(holder).text("lock of the runtime").int(28307).int(8);
        }
        let table = b.finish();
        let narrow = render(&table, 72);
        assert!(
            narrow.starts_with("all: process a server of many · pattern lock of the runtime · pid 28307\n"),
            "{narrow}"
        );
        assert!(narrow.contains("main.main.func1") && narrow.contains("count"), "{narrow}");
        assert!(narrow.lines().all(|line| width::columns(line) <= 72), "{narrow}");
        assert!(!render(&table, 200).contains("all: "), "there is room");
    }

    #[test]
    fn figures_have_the_digits_that_matter() {
        let told = [1.044e-4, 1.5, 12341.4, 0.0, f64::INFINITY, -0.25, 1e9].map(figure);
        assert_eq!(told, ["0.0001044", "1.5", "12341", "0", "inf", "-0.25", "1000000000"]);
    }

    #[test]
    fn microstates_fit_eighty_columns() {
        let share = |name: &str| Column::float(name, Unit::Percent, Kind::Share, "");
        let mut columns = vec![Column::id("PID", ""), Column::id("TID", "")];
        columns.extend(["USR", "SYS", "TRP", "TFL", "DFL", "LCK", "SLP", "LAT"].map(share));
        columns.extend(["VCX", "ICX", "SCL", "SIG", "minf", "majf"].map(|n| Column::count(n, "")));
        columns.extend([Column::float("time", Unit::Seconds, Kind::Time, ""), Column::text("process", "")]);
        columns.push(Column::text("thread", ""));
        let mut b = Table::builder("threads", &columns);
        let mut row = b.row().int(1_234_567).int(1_234_568);
        for _ in 0..8 {
            row = row.float(100.0);
        }
        for _ in 0..6 {
            row = row.int(987_654);
        }
        row.float(12.345).text("postgres: checkpointer").text("worker of a pool");
        let table = b.finish();
        for width in [80, 100, 132] {
            let text = render(&table, width);
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            assert!(text.contains("LAT") && text.contains("process") && text.contains("thread"), "{text}");
        }
        assert!(render(&table, usize::MAX).contains("USR %"));
    }

    #[test]
    fn aligned_and_fitted() {
        insta::assert_snapshot!(render(&locks(), 200), @r"
        CPU-util  Lock                                     Caller            spin s  size B
           0.866  pcf                                      page_create_wait   1.500    128G
           0.004  files_struct.file_lock with a long name  x\x1b[2J           0.250    4.1K
               -  mmap_lock                                -                      -       -
        ");
        let mut many = Table::builder(
            "locks",
            &[
                Column::text("lock", "name"),
                Column::float("spin", Unit::Seconds, Kind::Time, "time"),
                Column::float("mean", Unit::Microseconds, Kind::Mean, "mean"),
                Column::float("max", Unit::Microseconds, Kind::Peak, "peak"),
            ],
        );
        many.row().text("files_struct.file_lock").float(1.0).float(2.0).float(3.0);
        let many = many.finish();
        assert!(render(&many, 80).contains("max us"));
        let head = render(&many, 42).lines().next().unwrap().to_string();
        assert!(head.contains("mean us") && !head.contains("max us"), "{head}");
        assert!(render(&many, 30).contains("files_struct.file_lock"), "the name stays whole");
        let narrow = render(&locks(), 60);
        assert!(narrow.lines().all(|l| l.chars().count() <= 60), "{narrow}");
        assert!(narrow.contains('…'));
    }
}
