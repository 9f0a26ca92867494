//! Contents of the screen.

use std::collections::HashMap;

use ncpu_table::{Column, Compact, Kind, Select, SortKey, Table};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};

use crate::grid::{self, Grid, Unit};
use crate::{Key, Place};

/// Coloured by what is left of 100 % when idle time is taken off.
const BUSY: &str = "busy";

/// Blue to red, from the 256 colours every terminal has.
const HEAT: [u8; 9] = [238, 24, 31, 36, 71, 148, 220, 208, 196];

/// The same without colour.
const SHADES: [&str; 5] = ["·", "░", "▒", "▓", "█"];

/// Bands of the sorted CPUs shown above the grid.
const BANDS: usize = 4;

/// The state of the screen: the last table, and what the user chose to see of it.
pub struct View {
    places: Vec<Place>,
    color: bool,
    table: Option<Table>,
    /// Row of each CPU in the table.
    rows: HashMap<u32, usize>,
    metrics: Vec<String>,
    metric: usize,
    fold: bool,
    paused: bool,
    units: Vec<Unit>,
    selected: usize,
    scroll: usize,
    note: Option<String>,
    /// As last drawn, for the keys that move.
    grid: Grid,
    height: usize,
}

impl View {
    /// A view of these CPUs. Without `color` a cell's darkness alone tells its value.
    pub fn new(places: Vec<Place>, color: bool) -> View {
        let units = grid::units(&places, false);
        View {
            places,
            color,
            table: None,
            rows: HashMap::new(),
            metrics: vec![BUSY.into()],
            metric: 0,
            fold: false,
            paused: false,
            units,
            selected: 0,
            scroll: 0,
            note: None,
            grid: Grid::default(),
            height: 0,
        }
    }

    /// Whether samples are not wanted.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Takes the rates of an interval: a table with a column `CPU`.
    pub fn update(&mut self, table: Table, notes: Vec<String>) {
        self.rows =
            (0..table.num_rows()).filter_map(|row| Some((table.int(row, "CPU")? as u32, row))).collect();
        let names = table.columns().iter().map(|c| c.name.clone()).filter(|n| n != "CPU" && n != "time");
        let busy = table.index("idl").is_ok().then(|| BUSY.to_string());
        let chosen = self.metrics.get(self.metric).cloned();
        self.metrics = busy.into_iter().chain(names).collect();
        self.metric = self.metrics.iter().position(|m| Some(m) == chosen.as_ref()).unwrap_or(0);
        // CPUs that came since the machine was read.
        let known: std::collections::HashSet<u32> = self.places.iter().map(|p| p.cpu).collect();
        let new = self.rows.keys().filter(|c| !known.contains(c));
        let new: Vec<Place> = new.map(|&cpu| Place { package: u32::MAX, core: cpu, cpu }).collect();
        if !new.is_empty() {
            self.places.extend(new);
            self.place_units();
        }
        self.table = Some(table);
        if let Some(note) = notes.last() {
            self.note = Some(note.clone());
        }
    }

    fn place_units(&mut self) {
        let cpu = self.units.get(self.selected).and_then(|u| u.cpus.first().copied());
        self.units = grid::units(&self.places, self.fold);
        let same = |u: &Unit| cpu.is_some_and(|c| u.cpus.contains(&c));
        self.selected = self.units.iter().position(same).unwrap_or(0);
    }

    /// Does what the user asked.
    pub fn key(&mut self, key: Key) {
        self.note = None;
        let last = self.units.len().saturating_sub(1);
        match key {
            Key::Left => self.selected = self.selected.saturating_sub(1),
            Key::Right => self.selected = (self.selected + 1).min(last),
            Key::Up => self.move_lines(-1),
            Key::Down => self.move_lines(1),
            Key::PageUp => self.move_lines(-(self.height.max(1) as isize)),
            Key::PageDown => self.move_lines(self.height.max(1) as isize),
            Key::Home => self.selected = 0,
            Key::End => self.selected = last,
            Key::NextMetric => self.metric = (self.metric + 1) % self.metrics.len().max(1),
            Key::PreviousMetric => {
                let n = self.metrics.len().max(1);
                self.metric = (self.metric + n - 1) % n;
            }
            Key::Fold => {
                self.fold = !self.fold;
                self.place_units();
            }
            Key::Pause => self.paused = !self.paused,
            Key::Quit => {}
        }
    }

    /// To the cell nearest in another line.
    fn move_lines(&mut self, by: isize) {
        let Some(here) = self.grid.cells.get(self.selected) else { return };
        let line = here.line.saturating_add_signed(by).min(self.grid.lines.saturating_sub(1));
        let there = self.grid.cells.iter().filter(|c| c.line == line);
        if let Some(cell) = there.min_by_key(|c| c.column.abs_diff(here.column)) {
            self.selected = cell.unit;
        }
    }

    fn metric(&self) -> &str {
        self.metrics.get(self.metric).map_or(BUSY, String::as_str)
    }

    fn is_share(&self) -> bool {
        let share =
            |table: &Table| table.columns().iter().any(|c| c.name == self.metric() && c.kind == Kind::Share);
        self.metric() == BUSY || self.table.as_ref().is_some_and(share)
    }

    fn cpu_value(&self, table: &Table, cpu: u32) -> Option<f64> {
        let row = *self.rows.get(&cpu)?;
        match self.metric() {
            BUSY => Some((100.0 - table.number(row, "idl")?).max(0.0)),
            metric => table.number(row, metric),
        }
    }

    /// The metric for each cell: the mean of a core's shares, the sum of its rates.
    fn values(&self) -> Vec<Option<f64>> {
        let Some(table) = &self.table else { return vec![None; self.units.len()] };
        self.units
            .iter()
            .map(|unit| {
                let known: Vec<f64> = unit.cpus.iter().filter_map(|&c| self.cpu_value(table, c)).collect();
                let sum: f64 = known.iter().sum();
                match known.len() {
                    0 => None,
                    n if self.is_share() => Some(sum / n as f64),
                    _ => Some(sum),
                }
            })
            .collect()
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame) {
        let area = frame.area();
        let help = u16::from(area.height >= 3);
        let [grid, help] = Layout::vertical([Constraint::Min(0), Constraint::Length(help)]).areas(area);
        let buffer = frame.buffer_mut();
        self.draw_in(buffer, grid);
        let keys = "q quit  arrows move  k metric  f fold to cores  p pause";
        let dim = Style::new().add_modifier(Modifier::DIM);
        let (text, style) = match &self.note {
            Some(note) => (note.as_str(), Style::new().add_modifier(Modifier::BOLD)),
            None => (keys, dim),
        };
        write(buffer, help, 0, text, style);
    }

    /// Draws all but the last line, which tells the keys.
    pub(crate) fn draw_in(&mut self, buffer: &mut Buffer, area: Rect) {
        // The grid comes first: what stands about it goes where there is no room.
        let bands = if area.height >= 15 && self.table.is_some() { BANDS as u16 + 1 } else { 0 };
        let row = if area.height >= 5 { 2 } else { 0 };
        let [title, band_area, grid_area, row_area] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(bands),
            Constraint::Min(0),
            Constraint::Length(row),
        ])
        .areas(area);
        let values = self.values();
        self.grid = grid::fit(&self.units, grid_area.width.into(), grid_area.height.into());
        self.height = grid_area.height.into();
        self.follow_selection();

        self.draw_title(buffer, title, &values);
        self.draw_bands(buffer, band_area);
        self.draw_grid(buffer, grid_area, &values);
        self.draw_selected(buffer, row_area);
    }

    fn follow_selection(&mut self) {
        let Some(cell) = self.grid.cells.get(self.selected) else { return };
        if cell.line < self.scroll {
            self.scroll = cell.line;
        } else if cell.line >= self.scroll + self.height {
            self.scroll = cell.line + 1 - self.height;
        }
        self.scroll = self.scroll.min(self.grid.lines.saturating_sub(self.height));
    }

    fn draw_title(&self, buffer: &mut Buffer, area: Rect, values: &[Option<f64>]) {
        let mut title = match self.fold {
            true => format!("{} cores", self.units.len()),
            false => format!("{} CPUs", self.rows.len()),
        };
        let unit = if self.is_share() { "%" } else { "/s" };
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        let most = (0..values.len()).filter(|&i| values[i].is_some()).max_by(|&a, &b| {
            values[a].partial_cmp(&values[b]).unwrap_or(std::cmp::Ordering::Equal).then(b.cmp(&a))
        });
        title += &format!("   colour: {}", self.metric());
        if let Some(most) = most {
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            let who = self.units[most].cpus.first().copied().unwrap_or_default();
            let max = values[most].unwrap_or_default();
            title += &format!("   mean {mean:.0} {unit}   most {max:.0} {unit} at CPU {who}");
        }
        if self.grid.lines > self.height {
            let last = (self.scroll + self.height).min(self.grid.lines);
            title += &format!("   lines {}-{last} of {}", self.scroll + 1, self.grid.lines);
        }
        if self.paused {
            title += "   PAUSED";
        }
        write(buffer, area, 0, &title, Style::new().add_modifier(Modifier::BOLD));
    }

    fn draw_bands(&self, buffer: &mut Buffer, area: Rect) {
        let Some(table) = self.table.as_ref().filter(|_| area.height > 0) else { return };
        let sort = match self.metric() {
            BUSY => SortKey { column: "idl".into(), ascending: true, backwards: false },
            metric => SortKey { column: metric.into(), ascending: false, backwards: false },
        };
        let select = Select { sort: Some(sort), bands: Some(BANDS), mean: true, top: None };
        let Ok(bands) = select.apply(table.clone()) else { return };
        // Highest first; the numbers of these CPUs would not fit.
        let names: Vec<&str> = bands
            .columns()
            .iter()
            .map(|c| c.name.as_str())
            .filter(|n| !matches!(*n, "band" | "CPU" | "rows" | "time"))
            .collect();
        if let Ok(bands) = bands.project(&names) {
            self.draw_table(buffer, area, &bands);
        }
    }

    fn draw_selected(&self, buffer: &mut Buffer, area: Rect) {
        let (Some(table), Some(unit)) = (&self.table, self.units.get(self.selected)) else { return };
        if area.height == 0 {
            return;
        }
        let rows: Vec<usize> = unit.cpus.iter().filter_map(|c| self.rows.get(c).copied()).collect();
        let row = match rows[..] {
            [] => return write(buffer, area, 0, &format!("CPU {} is offline", unit.cpus[0]), Style::new()),
            [row] => Table::from_batch(table.name(), table.batch().slice(row, 1)),
            _ => self.merged(table, unit, &rows),
        };
        let Ok(row) = row else { return };
        let at = self.draw_table(buffer, area, &row);
        let place = format!("  package {}  core {}", unit.package, unit.core);
        if unit.package != u32::MAX && at + place.len() <= area.width.into() {
            write(buffer, Rect { y: area.y + 1, ..area }, at as u16, &place, Style::new());
        }
    }

    /// One row for the CPUs of a core.
    fn merged(&self, table: &Table, unit: &Unit, rows: &[usize]) -> ncpu_table::Result<Table> {
        let core = |row| rows.contains(&row).then_some(unit.core.into());
        let merged = table.merge_by(Column::id("core", ""), core, false)?;
        let names: Vec<&str> = merged.columns().iter().map(|c| c.name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().filter(|n| !matches!(*n, "rows" | "CPU" | "time")).collect();
        let merged = merged.project(&names)?;
        Table::from_batch(merged.name(), merged.batch().slice(0, 1))
    }

    /// Returns how wide it is.
    fn draw_table(&self, buffer: &mut Buffer, area: Rect, table: &Table) -> usize {
        let compact = Compact { widths: &[], width: area.width.into(), side_by_side: None };
        let text = compact.render(table);
        for (i, line) in text.lines().take(area.height.into()).enumerate() {
            let style = if i == 0 { Style::new().add_modifier(Modifier::DIM) } else { Style::new() };
            write(buffer, Rect { y: area.y + i as u16, ..area }, 0, line, style);
        }
        text.lines().map(|l| l.chars().count()).max().unwrap_or(0)
    }

    fn draw_grid(&self, buffer: &mut Buffer, area: Rect, values: &[Option<f64>]) {
        // Shares have a scale of their own; rates are set against the highest.
        let full = match self.is_share() {
            true => 100.0,
            false => values.iter().flatten().copied().fold(1.0, f64::max),
        };
        let visible = |line: usize| {
            let y = line.checked_sub(self.scroll).filter(|&y| y < area.height.into())?;
            Some(Rect { y: area.y + y as u16, height: 1, ..area })
        };
        for label in &self.grid.labels {
            if let Some(at) = visible(label.line) {
                write(buffer, at, label.column as u16, &label.text, Style::new().add_modifier(Modifier::DIM));
            }
        }
        let width = self.grid.cell_width;
        for cell in &self.grid.cells {
            let Some(at) = visible(cell.line) else { continue };
            let value = values[cell.unit];
            let selected = cell.unit == self.selected;
            let mut style = Style::new();
            let text = if width >= 4 {
                if let Some(heat) = value.map(|v| heat(v / full)).filter(|_| self.color) {
                    let ink = if heat >= 148 { Color::Black } else { Color::White };
                    style = style.bg(Color::Indexed(heat)).fg(ink);
                }
                if selected {
                    style = style.add_modifier(Modifier::REVERSED);
                }
                format!("{:>w$} ", short(value), w = width - 1)
            } else {
                if let Some(heat) = value.map(|v| heat(v / full)).filter(|_| self.color) {
                    style = style.fg(Color::Indexed(heat));
                }
                if selected {
                    style = style.add_modifier(Modifier::REVERSED);
                }
                let symbol = match value {
                    None => "-",
                    Some(_) if selected => "◆",
                    Some(v) => shade(v / full),
                };
                symbol.repeat(width)
            };
            write(buffer, at, cell.column as u16, &text, style);
        }
    }
}

pub(crate) fn write(buffer: &mut Buffer, area: Rect, column: u16, text: &str, style: Style) {
    if area.height > 0 && column < area.width {
        buffer.set_stringn(area.x + column, area.y, text, usize::from(area.width - column), style);
    }
}

fn step(fraction: f64, steps: usize) -> usize {
    if fraction < 0.005 {
        return 0;
    }
    // NaN and the like come out as 0.
    1 + ((fraction * (steps - 1) as f64) as usize).min(steps - 2)
}

fn heat(fraction: f64) -> u8 {
    HEAT[step(fraction, HEAT.len())]
}

fn shade(fraction: f64) -> &'static str {
    SHADES[step(fraction, SHADES.len())]
}

/// At most three characters: 7, 42, 999, 12k, 3M.
fn short(value: Option<f64>) -> String {
    let Some(v) = value else { return "-".into() };
    match v {
        v if v < 999.5 => format!("{v:.0}"),
        v if v < 99_500.0 => format!("{:.0}k", v / 1e3),
        v if v < 999_500.0 => format!(".{:.0}M", (v / 1e5).min(9.0)),
        v if v < 99.5e6 => format!("{:.0}M", v / 1e6),
        _ => "big".into(),
    }
}

#[cfg(test)]
mod tests;
