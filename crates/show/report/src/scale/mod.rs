//! Scaling: throughput over N as text, plots and a page; the layer that grows.

mod layers;
mod plot;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use ncpu_table::{Table, figure};

pub use layers::{Peel, layers_table};
pub use text::render;

/// The contents of the tables `scale`, `laws`, `curves` and `layers`.
#[derive(Clone, Debug, Default)]
pub struct Scale {
    /// The command that was run.
    pub command: String,
    /// The metric of throughput.
    pub metric: String,
    /// The curves.
    pub series: Vec<Series>,
    /// The table of the points.
    pub points: Option<Table>,
    /// Layers at each point, where they were peeled.
    pub layers: Option<Table>,
    /// Warnings.
    pub notes: Vec<String>,
}

/// A curve.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name, where there are several.
    pub name: String,
    /// The measured points, in the order of N.
    pub points: Vec<Point>,
    /// The laws, Amdahl's first.
    pub laws: Vec<Law>,
    /// CPUs of the machine, where known.
    pub machine: Option<f64>,
}

/// A point that was measured.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// CPUs, threads or users.
    pub n: f64,
    /// Throughput, and its 95 % interval.
    pub x: (f64, f64, f64),
    /// Over the throughput of one.
    pub speedup: f64,
}

/// A law fitted to a curve; quantities with their bands.
#[derive(Clone, Debug, Default)]
pub struct Law {
    /// Its name.
    pub name: String,
    /// Throughput of one.
    pub lambda: Quantity,
    /// Contention.
    pub sigma: Quantity,
    /// Coherency.
    pub kappa: Quantity,
    /// N of the highest throughput; infinite without.
    pub peak: Quantity,
    /// The highest throughput.
    pub top: Quantity,
    /// The highest speedup.
    pub limit: Quantity,
    /// Explained share of the variance.
    pub r2: Option<f64>,
    /// Largest N measured.
    pub measured_to: f64,
    /// The curve.
    pub line: Vec<OnCurve>,
}

/// A point of a law's curve.
#[derive(Clone, Copy, Debug)]
pub struct OnCurve {
    /// CPUs, threads or users.
    pub n: f64,
    /// Throughput.
    pub x: f64,
    /// Its 95 % band.
    pub band: Option<(f64, f64)>,
    /// Over the throughput of one.
    pub speedup: f64,
}

/// A value and its band; infinite where the table has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    /// The best.
    pub best: f64,
    /// The 95 % confidence interval.
    pub band: Option<(f64, f64)>,
}

impl Quantity {
    /// `0.0267 (0.0251–0.0283)`, after `how` has put each number into words.
    fn told(&self, how: impl Fn(f64) -> String) -> String {
        let best = how(self.best);
        match self.band {
            Some((low, high)) => format!("{best} ({}–{})", how(low), how(high)),
            None => best,
        }
    }
}

/// A share of a law in per cent: a fit of a few runs has no more digits than these.
fn percent(share: f64) -> String {
    let digits = match share.abs() {
        x if x >= 0.1 => 0,
        x if x >= 0.01 => 1,
        _ => 3,
    };
    let text = format!("{:.digits$}", 100.0 * share);
    match digits {
        0 => format!("{text} %"),
        _ => format!("{} %", text.trim_end_matches('0').trim_end_matches('.')),
    }
}

impl Scale {
    /// Reads the tables of a run or a recording.
    pub fn read<'a>(tables: impl IntoIterator<Item = &'a Table>, command: &str, notes: &[String]) -> Scale {
        let mut scale = Scale { command: command.into(), notes: notes.to_vec(), ..Scale::default() };
        let tables: Vec<&Table> = tables.into_iter().collect();
        let find = |name: &str| tables.iter().copied().find(|t| t.name() == name);
        scale.points = find("scale").cloned();
        if let Some(t) = find("scale") {
            for r in 0..t.num_rows() {
                scale.metric = t.text(r, "metric").unwrap_or("throughput").into();
                let series = scale.series_mut(t.text(r, "series").unwrap_or_default());
                let number = |c: &str| t.number(r, c);
                if let (Some(n), Some(x)) = (number("N"), number("throughput")) {
                    series.points.push(Point {
                        n,
                        x: (x, number("low").unwrap_or(x), number("high").unwrap_or(x)),
                        speedup: number("speedup").unwrap_or(f64::NAN),
                    });
                }
            }
        }
        if let Some(t) = find("laws") {
            for r in 0..t.num_rows() {
                for note in t.text(r, "notes").unwrap_or_default().lines() {
                    let name = t.text(r, "series").unwrap_or_default();
                    let note = if name.is_empty() { note.to_string() } else { format!("{name}: {note}") };
                    if !scale.notes.contains(&note) {
                        scale.notes.push(note);
                    }
                }
                let series = scale.series_mut(t.text(r, "series").unwrap_or_default());
                series.machine = t.number(r, "machine");
                if t.number(r, "lambda").is_some() {
                    series.laws.push(law(t, r));
                }
            }
        }
        if let Some(t) = find("curves") {
            for r in 0..t.num_rows() {
                let number = |c: &str| t.number(r, c);
                let series = scale.series_mut(t.text(r, "series").unwrap_or_default());
                let law = series.laws.iter_mut().find(|l| Some(l.name.as_str()) == t.text(r, "law"));
                if let (Some(law), Some(n), Some(x)) = (law, number("N"), number("throughput")) {
                    let (band, speedup) = (number("low").zip(number("high")), number("speedup"));
                    law.line.push(OnCurve { n, x, band, speedup: speedup.unwrap_or(f64::NAN) });
                }
            }
        }
        scale.layers = find("layers").filter(|t| t.num_rows() > 0 && t.index("work").is_ok()).cloned();
        scale
    }

    fn series_mut(&mut self, name: &str) -> &mut Series {
        let at = self.series.iter().position(|s| s.name == name).unwrap_or_else(|| {
            self.series.push(Series { name: name.into(), ..Series::default() });
            self.series.len() - 1
        });
        &mut self.series[at]
    }
}

fn law(t: &Table, r: usize) -> Law {
    let quantity = |name: &str| {
        // A null has no such N: more is always better.
        let or = |c: &str| t.number(r, c).unwrap_or(f64::INFINITY);
        // λ is never infinite, so it says whether there are bands at all.
        let banded = t.number(r, "lambda_low").is_some();
        let band = banded.then(|| (or(&format!("{name}_low")), or(&format!("{name}_high"))));
        Quantity { best: or(name), band }
    };
    Law {
        name: t.text(r, "law").unwrap_or_default().into(),
        lambda: quantity("lambda"),
        sigma: quantity("sigma"),
        kappa: quantity("kappa"),
        peak: quantity("peak"),
        top: quantity("top"),
        limit: quantity("limit"),
        r2: t.number(r, "r2"),
        measured_to: t.number(r, "measured_to").unwrap_or(f64::NAN),
        line: Vec::new(),
    }
}

impl Series {
    /// The conclusions from the laws, a line each.
    pub fn lines(&self) -> Vec<String> {
        let whole = |x: f64| if x.is_finite() { figure(x) } else { "none".into() };
        let mut out = Vec::new();
        for law in &self.laws {
            let fits = law
                .r2
                .map(|r| format!("; it explains {:.1} % of the variance", 100.0 * r))
                .unwrap_or_default();
            if law.name == "Amdahl" {
                let limit = match law.limit.best.is_finite() {
                    true => format!(
                        "never above {} times one",
                        law.limit.told(|x| if x.is_finite() { format!("{x:.1}") } else { "∞".into() })
                    ),
                    false => "no limit".into(),
                };
                out.push(format!("Amdahl: serial share {}: {limit}{fits}", law.sigma.told(percent)));
                continue;
            }
            out.push(format!(
                "USL: contention (sigma) {}, coherency (kappa) {}, one does {}{fits}",
                law.sigma.told(percent),
                law.kappa.told(figure),
                law.lambda.told(figure)
            ));
            out.push(self.peak(law, whole));
        }
        out
    }

    fn peak(&self, law: &Law, whole: impl Fn(f64) -> String) -> String {
        let machine = self.machine.unwrap_or(f64::INFINITY);
        if law.peak.best.is_infinite() {
            let maybe = match law.peak.band {
                Some((low, _)) if low.is_finite() => {
                    format!("; the band does not rule one out from N = {} on", figure(low))
                }
                _ => String::new(),
            };
            return format!("Peak: none, more is always better{maybe}");
        }
        let n = law.peak.best;
        let place = if n > machine {
            format!("beyond the {} CPUs there are", figure(machine))
        } else if n > law.measured_to {
            format!("beyond what was measured (N = {})", figure(law.measured_to))
        } else {
            "more only slows it down".into()
        };
        let unsure = match law.peak.band {
            Some((_, high)) if high.is_infinite() => "; there may be none: the band of kappa holds 0",
            _ => "",
        };
        let top = law.top.told(|x| if x.is_finite() { figure(x) } else { "∞".into() });
        format!("Peak: {top} at N = {}: {place}{unsure}", law.peak.told(whole))
    }
}
