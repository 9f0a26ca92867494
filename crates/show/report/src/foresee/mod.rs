//! A forecast: a curve over CPUs with its bands, what comes first at each point, and the gains of fixes.

mod buy;
#[cfg(test)]
mod tests;
mod text;

use ncpu_record::Recording;
use ncpu_table::{Column, Kind, Table, Unit};

use crate::onion::{Layer, Onion};

pub use buy::{Instead, Offered, Purchase};
pub use text::render;

/// An answer of `ncpu foresee`.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Whether the machine of the recording was reproduced, and what to say of it.
    pub reproduced: Option<(bool, String)>,
    /// The program.
    pub name: String,
    /// The unit of work that throughput counts.
    pub unit: String,
    /// The machine.
    pub machine: String,
    /// The measured point: CPUs and throughput.
    pub recorded: Option<(f64, f64)>,
    /// Fixes that were made.
    pub fixes: Vec<String>,
    /// Points, by CPUs.
    pub points: Vec<Told>,
    /// Fixes tried at the largest point, best first.
    pub ranked: Vec<Fixed>,
    /// By what share two simulations of the same point differ.
    pub scatter: f64,
    /// Warnings.
    pub notes: Vec<String>,
}

/// A predicted point.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// CPUs in use.
    pub cpus: f64,
    /// Workers.
    pub threads: f64,
    /// Units a second.
    pub throughput: f64,
    /// 90 % band.
    pub band: (f64, f64),
    /// The largest layer that could come back.
    pub first: String,
    /// Its share of capacity, 0 to 1.
    pub share: f64,
    /// Share of capacity in user code and system calls: work.
    pub work: f64,
    /// How likely less is done than was recorded, 0 to 1; `None` of a model that was not recorded.
    pub slower: Option<f64>,
}

/// A fix that was tried.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// The fix.
    pub fix: String,
    /// Throughput with it.
    pub throughput: f64,
    /// Over the throughput without.
    pub gain: f64,
    /// Which layer is first then.
    pub first: String,
}

impl Told {
    /// Takes from a simulated observation what the curve shows of it.
    ///
    /// # Errors
    /// It holds no observation.
    pub fn of(
        recording: &Recording,
        cpus: usize,
        threads: u32,
        throughput: f64,
        band: (f64, f64),
    ) -> Result<Told, ncpu_schema::Error> {
        let onion = Onion::peel(recording)?;
        // The program's own work is in user code, calls and faults: what is lost is elsewhere.
        let works = |layer| matches!(layer, Layer::User | Layer::Calls | Layer::Faults | Layer::OtherKernel);
        let lost = onion.rows.iter().filter(|r| !works(r.layer)).max_by(|a, b| a.share.total_cmp(&b.share));
        Ok(Told {
            cpus: cpus as f64,
            threads: f64::from(threads),
            throughput,
            band,
            first: lost.filter(|r| r.share >= 0.005).map_or("none", |r| r.layer.name()).into(),
            share: lost.map_or(0.0, |r| r.share),
            work: onion.rows.iter().filter(|r| works(r.layer)).map(|r| r.share).sum(),
            slower: None,
        })
    }
}

/// Three digits, with a factor of a thousand as a letter: 1.25 G, 38.4, 0.00211.
pub(super) fn three(x: f64) -> String {
    let digits = |x: f64| {
        let decimals = (2 - x.abs().max(1e-300).log10().floor() as i32).clamp(0, 12) as usize;
        format!("{x:.decimals$}")
    };
    // 999.7 is a thousand in three digits.
    let rounded: f64 = digits(x).parse().unwrap_or(x);
    let (factor, letter) = match rounded.abs() {
        a if a >= 1e12 => return format!("{x:.2e}"),
        a if a >= 1e9 => (1e9, " G"),
        a if a >= 1e6 => (1e6, " M"),
        a if a >= 1e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    digits(rounded / factor) + letter
}

/// A table for people: its figures have three digits.
fn short(table: &Table) -> Table {
    let columns: Vec<Column> = table
        .columns()
        .iter()
        .map(|c| if c.unit == Unit::Figure { Column::text(&c.name, &c.meaning) } else { c.clone() })
        .collect();
    let text_of = |r: usize, name: &str| table.number(r, name).map_or("-".into(), three);
    let width = |name: &str| (0..table.num_rows()).map(|r| text_of(r, name).len()).max().unwrap_or(0);
    let mut out = Table::builder(table.name(), &columns);
    for r in 0..table.num_rows() {
        let mut row = out.row();
        for c in table.columns() {
            row = match c.unit {
                Unit::Figure => row.text(format!("{:>1$}", text_of(r, &c.name), width(&c.name))),
                _ => match (table.int(r, &c.name), table.number(r, &c.name)) {
                    (Some(n), _) => row.int(n),
                    (None, Some(x)) => row.float(x),
                    (None, None) => match table.text(r, &c.name) {
                        Some(text) => row.text(text),
                        None => row.float_opt(None),
                    },
                },
            };
        }
    }
    out.finish()
}

fn figure(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::Figure, Kind::Gauge, meaning)
}

/// Fixes as a table.
fn fixes<'a>(all: impl IntoIterator<Item = &'a Fixed>) -> Table {
    let mut fixes = Table::builder(
        "fixes",
        &[
            Column::text("fix", "what is changed"),
            figure("gain", "throughput with it over without"),
            figure("throughput", "units of work a second with it"),
            Column::text("then", "the layer that takes most then"),
        ],
    );
    for f in all {
        fixes.row().text(&f.fix).float(f.gain).float(f.throughput).text(&f.first);
    }
    fixes.finish()
}

impl Answer {
    /// CPUs of the highest throughput, where fewer than all give it.
    pub fn peak(&self) -> Option<&Told> {
        let best = self.points.iter().max_by(|a, b| a.throughput.total_cmp(&b.throughput))?;
        (best.cpus < self.points.last()?.cpus).then_some(best)
    }

    /// The first point below half of the first point's throughput times the ratio of CPUs: the knee.
    pub fn knee(&self) -> Option<&Told> {
        let first = self.points.first()?;
        let one = first.throughput / first.cpus;
        self.points.iter().find(|p| p.throughput < 0.5 * one * p.cpus)
    }

    /// The curve and the fixes as tables.
    pub fn tables(&self) -> Vec<Table> {
        let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Share, meaning);
        let mut points = Table::builder(
            "foresee",
            &[
                Column::id("CPUs", "CPUs in use"),
                Column::int("threads", Unit::None, Kind::Gauge, "worker threads"),
                figure("throughput", "units of work a second"),
                figure("low", "lower end of the 90 % band"),
                figure("high", "upper end of the 90 % band"),
                figure("speedup", "over the first point, each CPU of it counted"),
                percent("slower", "probability that less is done than was recorded"),
                percent("work", "share of capacity that does the program's work"),
                Column::text("first", "the layer that takes most of the rest"),
                percent("share", "its share of capacity"),
            ],
        );
        let one = self.points.first().map_or(1.0, |p| p.throughput / p.cpus);
        for p in &self.points {
            points
                .row()
                .int(p.cpus as u64)
                .int(p.threads as u64)
                .float(p.throughput)
                .float(p.band.0)
                .float(p.band.1)
                .float(p.throughput / one)
                .float_opt(p.slower.map(|p| 100.0 * p))
                .float(100.0 * p.work)
                .text(&p.first)
                .float(100.0 * p.share);
        }
        let mut out = vec![points.finish()];
        if !self.ranked.is_empty() {
            out.push(fixes(&self.ranked));
        }
        out
    }

    /// The conclusions from the curve, a line each.
    pub fn lines(&self) -> Vec<String> {
        let figure = three;
        let mut out = Vec::new();
        if let Some(k) = self.knee() {
            out.push(format!("Knee: at {} CPUs each does less than half of what one does alone", k.cpus));
        } else {
            out.push("Knee: none; each CPU does at least half of what one does alone".into());
        }
        match self.peak() {
            Some(p) => out.push(format!(
                "Peak: {} CPUs, {} {} a second; more only slow it down, first by {}",
                p.cpus,
                figure(p.throughput),
                self.unit,
                self.points.last().map_or("", |l| &l.first)
            )),
            None => out.push("Peak: none up to all CPUs".into()),
        }
        out
    }
}
