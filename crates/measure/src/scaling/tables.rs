//! Analyses as tables.

use ncpu_table::{Column, Kind, Table, Unit};

use super::{Analysis, Law, Usl};

fn figure(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::Figure, Kind::Gauge, meaning)
}

fn share(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::Percent, Kind::Share, meaning)
}

fn finite(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite())
}

/// A row for each N of each curve.
pub fn points_table(analyses: &[Analysis]) -> Table {
    let mut out = Table::builder(
        "scale",
        &[
            Column::text("series", "which curve, where there are several"),
            Column::float("N", Unit::Figure, Kind::Key, "CPUs, threads or users"),
            Column::text("CPUs", "CPUs it ran on"),
            Column::count("runs", "runs that gave a figure"),
            Column::count("failed", "runs that gave none"),
            Column::count("out", "runs left out as outliers"),
            figure("throughput", "median over the runs"),
            figure("low", "lower end of the median's 95 % confidence interval; the least of under 6 runs"),
            figure("high", "upper end of it"),
            share("+-", "half of that interval, as a share of the throughput"),
            Column::float("speedup", Unit::None, Kind::Gauge, "throughput over that of one"),
            share("efficiency", "speedup over N"),
            figure("USL", "throughput by the Universal Scalability Law"),
            figure("Amdahl", "throughput by Amdahl's law"),
            Column::float(
                "off",
                Unit::Percent,
                Kind::Gauge,
                "measured over the fullest law that could be fitted, less 1",
            ),
            share("contention", "share of the capacity of N CPUs that went to waiting in turn, by that law"),
            share("coherency", "share that went to agreeing, by that law"),
            Column::text("metric", "what the throughput is of"),
            Column::text("notes", "what to beware of"),
        ],
    );
    for a in analyses {
        let one = a.one();
        for p in &a.curve.points {
            let row = out.row().text(&a.curve.name).float(p.n).text(&p.cpus);
            let row = row.int(p.samples.len() as u64).int(p.failed as u64);
            let best = a.fullest().map(|f| f.best);
            let of = |law| a.fitted(law).map(|f| f.best.at(p.n));
            let mut notes = vec![p.note.clone()];
            if p.oversubscribed {
                notes.push("more threads than CPUs".into());
            }
            notes.retain(|n| !n.is_empty());
            let row = if p.samples.is_empty() {
                (0..7).fold(row, |row, _| row.null())
            } else {
                let (s, out) = p.summary();
                let speedup = one.filter(|x| *x > 0.0).map(|x| s.median / x);
                row.int(out as u64)
                    .float(s.median)
                    .float(s.interval.0)
                    .float(s.interval.1)
                    .float_opt((s.n > 1).then(|| 100.0 * s.uncertainty()).and_then(finite))
                    .float_opt(speedup)
                    .float_opt(speedup.map(|x| 100.0 * x / p.n))
            };
            let row = row.float_opt(of(Law::Usl)).float_opt(of(Law::Amdahl));
            let row = match best {
                Some(u) => {
                    let off =
                        (!p.samples.is_empty()).then(|| 100.0 * (p.summary().0.median / u.at(p.n) - 1.0));
                    let (_, contention, coherency) = u.shares(p.n);
                    row.float_opt(off).float(100.0 * contention).float(100.0 * coherency)
                }
                None => row.null().null().null(),
            };
            row.text(&a.curve.metric).text(notes.join("; "));
        }
    }
    out.finish()
}

/// A row for each law fitted to each curve.
pub fn laws_table(analyses: &[Analysis]) -> Table {
    type Of = fn(&Usl) -> f64;
    let quantities: [(&str, &str, Of); 6] = [
        ("lambda", "throughput of one", |u| u.lambda),
        ("sigma", "contention: share of the work that waits its turn", |u| u.sigma),
        ("kappa", "coherency: cost of each pair to agree, in works of one", |u| u.kappa),
        ("peak", "N of the highest throughput; infinite where more is always better", Usl::peak),
        ("top", "the highest throughput, which is that at the peak", |u| u.lambda * u.limit()),
        ("limit", "speedup that no N exceeds", Usl::limit),
    ];
    let mut columns = vec![
        Column::text("series", "which curve, where there are several"),
        Column::text("law", "Amdahl, or the Universal Scalability Law"),
    ];
    for (name, meaning, _) in quantities {
        columns.push(figure(name, meaning));
        columns.push(figure(&format!("{name}_low"), "lower end of its 95 % confidence interval"));
        columns.push(figure(&format!("{name}_high"), "upper end of it"));
    }
    columns.push(figure("r2", "share of the throughput's variance that the law explains"));
    columns.push(figure("fitted_to", "largest N of the fit, where larger ones were left out"));
    columns.push(figure("machine", "CPUs of the machine, where known"));
    columns.push(figure("measured_to", "largest N measured"));
    columns.push(Column::text("notes", "what cannot be said, and what to beware of"));
    let mut out = Table::builder("laws", &columns);
    for a in analyses {
        let last = a.curve.points.iter().filter(|p| !p.samples.is_empty()).map(|p| p.n).reduce(f64::max);
        // A curve that no law fits keeps its notes.
        let fits: Vec<_> =
            if a.fits.is_empty() { vec![None] } else { a.fits.iter().map(Some).collect::<Vec<_>>() };
        for f in fits {
            let mut row = out.row().text(&a.curve.name).text(f.map_or("none", |f| f.law.name()));
            for (_, _, of) in quantities {
                // Text for machines has no infinity: null is «no such N».
                let value = |x: f64| finite(x);
                row = row.float_opt(f.and_then(|f| value(of(&f.best))));
                let band = f.and_then(|f| f.band(of));
                row = row.float_opt(band.and_then(|b| value(b.0))).float_opt(band.and_then(|b| value(b.1)));
            }
            row.float_opt(f.and_then(|f| finite(f.r_squared)))
                .float_opt(a.fitted_to)
                .float_opt(a.curve.machine)
                .float_opt(last)
                .text(a.notes.join("\n"));
        }
    }
    out.finish()
}

/// The laws as curves, with their bands: a row for each law at each of many N, up to `to` or a fifth beyond the
/// largest N measured.
pub fn curve_table(analyses: &[Analysis], to: Option<f64>) -> Table {
    const STEPS: usize = 120;
    let mut out = Table::builder(
        "curves",
        &[
            Column::text("series", "which curve, where there are several"),
            Column::text("law", "Amdahl, or the Universal Scalability Law"),
            Column::float("N", Unit::Figure, Kind::Key, "CPUs, threads or users"),
            figure("throughput", "by the law"),
            figure("low", "lower end of its 95 % confidence interval there"),
            figure("high", "upper end of it"),
            figure("speedup", "over the throughput of one"),
        ],
    );
    for a in analyses {
        let last = a.curve.points.iter().map(|p| p.n).fold(1.0, f64::max);
        let end = to.unwrap_or(1.2 * last).max(last).max(2.0);
        let one = a.one().filter(|x| *x > 0.0);
        for f in &a.fits {
            for i in 0..=STEPS {
                let n = 1.0 + (end - 1.0) * i as f64 / STEPS as f64;
                let x = f.best.at(n);
                let band = f.band(|u| u.at(n));
                out.row()
                    .text(&a.curve.name)
                    .text(f.law.name())
                    .float(n)
                    .float(x)
                    .float_opt(band.map(|b| b.0))
                    .float_opt(band.map(|b| b.1))
                    .float_opt(one.map(|o| x / o));
            }
        }
    }
    out.finish()
}
