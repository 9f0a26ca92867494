//! A table as lines of the screen: sorted, filtered, one of them selected.

use std::collections::{HashMap, VecDeque};

use ncpu_table::{Table, safe};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::view::write;

/// From this width on a screen has room for columns that others leave out.
const WIDE: u16 = 120;

/// Values of a trend that are kept.
const TREND: usize = 24;

/// Rows whose trends are kept at most.
const TRENDS: usize = 64;

/// How a cell is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// With this number of digits behind the point, where they fit.
    Number(usize),
    Whole,
    Text,
    /// As long as the value is of the largest, or of 100 %.
    Bar,
    /// The values so far.
    Trend,
}

/// A column on the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// The table's column.
    name: &'static str,
    head: &'static str,
    /// 0: what is left.
    width: u16,
    cell: Cell,
    wide: bool,
}

impl Shown {
    pub const fn new(name: &'static str, head: &'static str, width: u16, cell: Cell) -> Shown {
        Shown { name, head, width, cell, wide: false }
    }

    /// Left out on narrow screens.
    pub const fn wide(self) -> Shown {
        Shown { wide: true, ..self }
    }

    pub fn sorts(&self) -> bool {
        !matches!(self.cell, Cell::Bar | Cell::Trend)
    }
}

/// The lines.
pub(super) struct List {
    columns: &'static [Shown],
    /// The columns that tell rows apart.
    key: &'static [&'static str],
    /// Column to sort by [default: as the rows came].
    sort: Option<&'static str>,
    reverse: bool,
    color: bool,
    filter: String,
    table: Option<Table>,
    /// Rows of the table, in the order of the screen.
    rows: Vec<usize>,
    /// The key of the row that was chosen; none before one was.
    chosen: Option<String>,
    at: usize,
    scroll: usize,
    height: usize,
    trends: HashMap<String, VecDeque<f64>>,
}

impl List {
    pub fn new(
        columns: &'static [Shown],
        key: &'static [&'static str],
        sort: Option<&'static str>,
        color: bool,
    ) -> List {
        List {
            columns,
            key,
            sort,
            reverse: false,
            color,
            filter: String::new(),
            table: None,
            rows: Vec::new(),
            chosen: None,
            at: 0,
            scroll: 0,
            height: 0,
            trends: HashMap::new(),
        }
    }

    /// Takes another table of the same columns. The row that was chosen stays so wherever it goes.
    pub fn update(&mut self, table: Table) {
        self.follow_trends(&table);
        self.table = Some(table);
        self.arrange();
    }

    fn follow_trends(&mut self, table: &Table) {
        let Some(column) = self.columns.iter().find(|c| c.cell == Cell::Trend) else { return };
        let mut new: HashMap<String, f64> = (0..table.num_rows())
            .map(|r| (key(self.key, table, r), table.number(r, column.name).unwrap_or(0.0)))
            .collect();
        for (key, values) in &mut self.trends {
            values.push_back(new.remove(key).unwrap_or(0.0));
            if values.len() > TREND {
                values.pop_front();
            }
        }
        let room = TRENDS.saturating_sub(self.trends.len());
        self.trends.extend(new.into_iter().take(room).map(|(key, value)| (key, VecDeque::from([value]))));
    }

    fn arrange(&mut self) {
        let Some(table) = &self.table else { return };
        let wanted = self.filter.to_lowercase();
        let texts: Vec<&str> = self.columns.iter().filter(|c| c.cell == Cell::Text).map(|c| c.name).collect();
        let wholes: Vec<&str> =
            self.columns.iter().filter(|c| c.cell == Cell::Whole).map(|c| c.name).collect();
        let meets = |row: usize| {
            wanted.is_empty()
                || texts
                    .iter()
                    .any(|c| table.words(row, c).is_some_and(|t| t.to_lowercase().contains(&wanted)))
                || wholes.iter().any(|c| table.int(row, c).is_some_and(|n| n.to_string() == wanted))
        };
        let mut rows: Vec<usize> = (0..table.num_rows()).filter(|&row| meets(row)).collect();
        if let Some(name) = self.sort {
            let text = self.columns.iter().any(|c| c.name == name && c.cell == Cell::Text);
            // Most first, words in their order, and what is not known last.
            match text {
                true => rows.sort_by_cached_key(|&row| {
                    table.text(row, name).map_or((1, String::new()), |t| (0, t.to_lowercase()))
                }),
                false => rows.sort_by(|&a, &b| {
                    let value = |row| table.number(row, name).unwrap_or(f64::NEG_INFINITY);
                    value(b).total_cmp(&value(a))
                }),
            }
        }
        if self.reverse {
            rows.reverse();
        }
        self.rows = rows;
        let last = self.rows.len().saturating_sub(1);
        let found = self
            .chosen
            .as_ref()
            .and_then(|chosen| self.rows.iter().position(|&row| key(self.key, table, row) == *chosen));
        self.at = found.unwrap_or(self.at).min(last);
    }

    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Leaves out rows of which no text contains this.
    pub fn filter_by(&mut self, filter: String) {
        self.filter = filter;
        self.arrange();
    }

    /// The row that is selected.
    pub fn selected(&self) -> Option<(&Table, usize)> {
        self.table.as_ref().zip(self.rows.get(self.at).copied())
    }

    /// State of the rows: their number, order and filter.
    pub fn told(&self) -> String {
        let all = self.table.as_ref().map_or(0, Table::num_rows);
        let mut told = match self.rows.len() == all {
            true => format!("{all} rows"),
            false => format!("{} of {all} rows", self.rows.len()),
        };
        if let Some(shown) = self.sort.and_then(|name| self.columns.iter().find(|c| c.name == name)) {
            told += &format!(" by {}{}", shown.head, if self.reverse { ", least first" } else { "" });
        }
        if !self.filter.is_empty() {
            told += &format!(" /{}", self.filter);
        }
        told
    }

    pub fn press(&mut self, code: KeyCode) {
        let last = self.rows.len().saturating_sub(1);
        let page = self.height.max(1);
        self.at = match code {
            KeyCode::Up => self.at.saturating_sub(1),
            KeyCode::Down => (self.at + 1).min(last),
            KeyCode::PageUp => self.at.saturating_sub(page),
            KeyCode::PageDown => (self.at + page).min(last),
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Char('k') => return self.sort_by(1),
            KeyCode::Char('K') => return self.sort_by(-1),
            KeyCode::Char('r') => {
                self.reverse = !self.reverse;
                return self.arrange();
            }
            _ => return,
        };
        // The first row is whichever is first.
        self.chosen = match self.at {
            0 => None,
            _ => self.selected().map(|(table, row)| key(self.key, table, row)),
        };
    }

    /// Sorts by another column; those of the key besides texts are of no interest.
    fn sort_by(&mut self, step: isize) {
        let mut names: Vec<Option<&'static str>> = Vec::new();
        let there = |name: &str| self.table.as_ref().is_none_or(|t| t.index(name).is_ok());
        for column in self.columns.iter().filter(|c| c.sorts() && there(c.name)) {
            if !names.contains(&Some(column.name)) {
                names.push(Some(column.name));
            }
        }
        // Lists that come in an order of their own have it too.
        if self.columns.iter().any(|c| c.cell == Cell::Trend) {
            names.insert(0, None);
        }
        let at = names.iter().position(|name| *name == self.sort).unwrap_or(0);
        let n = names.len().max(1);
        self.sort = names.get((at + n).saturating_add_signed(step) % n).copied().flatten();
        self.arrange();
    }

    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect) {
        let Some(table) = &self.table else { return };
        self.height = usize::from(area.height).saturating_sub(1);
        if self.at < self.scroll {
            self.scroll = self.at;
        } else if self.at >= self.scroll + self.height {
            self.scroll = (self.at + 1).saturating_sub(self.height);
        }
        self.scroll = self.scroll.min(self.rows.len().saturating_sub(self.height));

        let shown: Vec<&Shown> = self
            .columns
            .iter()
            .filter(|c| (!c.wide || area.width >= WIDE) && table.index(c.name).is_ok())
            .collect();
        // The largest value that a bar stands for: shares of one thing have a scale of their own.
        let scale = |name: &str| {
            let all = (0..table.num_rows()).filter_map(|r| table.number(r, name));
            if name == "waiting" { all.fold(1e-9, f64::max) } else { 100.0 }
        };
        let scales: Vec<f64> =
            shown.iter().map(|c| if c.cell == Cell::Bar { scale(c.name) } else { 0.0 }).collect();
        for line in 0..=self.height {
            let at = Rect { y: area.y + line as u16, height: 1, ..area };
            let row = match line.checked_sub(1) {
                None => None,
                Some(line) => match self.rows.get(self.scroll + line) {
                    Some(row) => Some(*row),
                    None => break,
                },
            };
            let selected = row.is_some() && self.scroll + line == self.at + 1;
            if selected {
                buffer.set_style(at, Style::new().add_modifier(Modifier::REVERSED));
            }
            let mut x = 0;
            for (column, scale) in shown.iter().zip(&scales) {
                let width = match column.width {
                    0 => area.width.saturating_sub(x),
                    width => width.min(area.width.saturating_sub(x)),
                };
                if width == 0 {
                    break;
                }
                let (text, style) = match row {
                    None => (aligned(column.head, column, width), self.head(column)),
                    Some(row) => self.cell(table, row, column, width, *scale, selected),
                };
                let cell = Rect { x: area.x + x, width, ..at };
                write(buffer, cell, 0, &text, style);
                x += width + 1;
            }
        }
    }

    fn head(&self, column: &Shown) -> Style {
        match self.sort == Some(column.name) && column.sorts() {
            true => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            false => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    fn cell(
        &self,
        table: &Table,
        row: usize,
        column: &Shown,
        width: u16,
        scale: f64,
        selected: bool,
    ) -> (String, Style) {
        let plain = if selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let number = table.number(row, column.name);
        let text = match column.cell {
            Cell::Text => safe::line(&table.words(row, column.name).unwrap_or("-".into())).into_owned(),
            Cell::Whole => {
                aligned(&table.int(row, column.name).map_or("-".into(), |n| n.to_string()), column, width)
            }
            Cell::Number(decimals) => aligned(&figure(number, usize::from(width), decimals), column, width),
            Cell::Bar => {
                let share = number.unwrap_or(0.0) / scale;
                // Those that could come back stand out, by how much.
                let back = table.text(row, "recoverable").is_some_and(|word| word == "yes");
                let color = match share {
                    s if s >= 0.1 && back => Some(Color::Red),
                    _ if back => Some(Color::Yellow),
                    _ => None,
                };
                let style = color.filter(|_| self.color).map_or(plain, |color| plain.fg(color));
                return (bar(share, usize::from(width)), style);
            }
            Cell::Trend => self.trends.get(&key(self.key, table, row)).map(trend).unwrap_or_default(),
        };
        (text, plain)
    }
}

/// Key of a row.
fn key(columns: &[&str], table: &Table, row: usize) -> String {
    let cell = |c: &&str| {
        let number = || table.int(row, c).map(|n| n.to_string());
        table.text(row, c).map(str::to_string).or_else(number).unwrap_or_default()
    };
    columns.iter().map(cell).collect::<Vec<_>>().join("\0")
}

/// Numbers to the right, texts to the left.
fn aligned(text: &str, column: &Shown, width: u16) -> String {
    match column.cell {
        Cell::Number(_) | Cell::Whole => format!("{text:>w$}", w = usize::from(width)),
        _ => text.into(),
    }
}

/// A number in this number of characters: with fewer decimals, in thousands or millions where it has no room.
fn figure(value: Option<f64>, width: usize, decimals: usize) -> String {
    let Some(value) = value.filter(|v| v.is_finite()) else { return "-".into() };
    let plain = (0..=decimals).rev().map(|d| format!("{value:.d$}"));
    let scaled = [(1e3, 'k'), (1e6, 'M'), (1e9, 'G'), (1e12, 'T')]
        .into_iter()
        .flat_map(|(by, unit)| [1, 0].map(|d| format!("{:.d$}{unit}", value / by)));
    plain.chain(scaled).find(|text| text.len() <= width).unwrap_or_else(|| "+".repeat(width))
}

/// `█████▌..............` of a share.
fn bar(share: f64, width: usize) -> String {
    let width = width.saturating_sub(1);
    let halves = (share.clamp(0.0, 1.0) * (2 * width) as f64).round() as usize;
    let mut out = "█".repeat(halves / 2);
    if halves % 2 == 1 {
        out.push('▌');
    }
    let dots = width - halves.div_ceil(2);
    out + &"·".repeat(dots)
}

/// Shares so far, the newest to the right.
fn trend(values: &VecDeque<f64>) -> String {
    const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let step = |value: &f64| match *value {
        v if v < 0.5 => STEPS[0],
        v => STEPS[1 + ((v / 100.0 * 8.0) as usize).min(7)],
    };
    let blanks = TREND - values.len().min(TREND);
    " ".repeat(blanks) + &values.iter().map(step).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_to_their_width() {
        let figure = |value, width, decimals| figure(Some(value), width, decimals);
        assert_eq!(figure(99.96, 5, 1), "100.0");
        assert_eq!(figure(12_345.6, 5, 1), "12346");
        assert_eq!(figure(1_234_567.0, 4, 0), "1.2M");
        assert_eq!(figure(123_456.0, 5, 0), "123k");
        assert_eq!(figure(0.0125, 7, 3), "0.013");
        assert_eq!(super::figure(None, 5, 0), "-");
        for value in [0.0, 0.4, 9.99, 999.9, 12_345.0, 1e9, 1e14, 1e300] {
            assert!(figure(value, 5, 1).len() <= 5, "{value}");
        }
    }

    #[test]
    fn bars_and_trends_have_one_width() {
        for share in [0.0, 0.01, 0.5, 0.99, 1.0, 7.0] {
            assert_eq!(bar(share, 21).chars().count(), 20, "{share}");
        }
        assert_eq!(bar(0.525, 21), "██████████▌·········");
        let values = VecDeque::from([0.0, 12.0, 50.0, 100.0]);
        assert_eq!(trend(&values).trim_start(), "▁▅█");
        assert_eq!(trend(&values).chars().count(), TREND);
    }
}
