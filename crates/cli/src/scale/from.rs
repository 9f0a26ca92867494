//! Figures measured elsewhere.

use std::path::Path;

use anyhow::Context;
use ncpu_measure::scaling::{Curve, Point};
use ncpu_table::{Table, Type};

/// Reads curves from a file: its first column of numbers is N, each further one a curve. Rows of the same N are runs of
/// it; an empty cell is no run.
///
/// # Errors
/// The file cannot be read, or holds no two columns of numbers, or an N below 1.
pub fn read(path: &Path) -> anyhow::Result<Vec<Curve>> {
    let table = Table::read(path)?;
    let told = path.display();
    let numbers: Vec<&str> =
        table.columns().iter().filter(|c| c.ty != Type::Text).map(|c| c.name.as_str()).collect();
    let [n, curves @ ..] = numbers.as_slice() else {
        anyhow::bail!("{told}: no column of numbers; give N and throughput, with a line of names above them")
    };
    if curves.is_empty() {
        anyhow::bail!("{told}: only `{n}` is a column of numbers; give N and throughput");
    }
    let curve = |name: &&str| -> anyhow::Result<Curve> {
        let mut points: Vec<Point> = Vec::new();
        for row in 0..table.num_rows() {
            let Some(x) = table.number(row, name) else { continue };
            // The names are in line 1.
            let at = table.number(row, n).with_context(|| format!("{told}, row {}: no {n}", row + 1))?;
            if !(at >= 1.0 && at.is_finite() && x > 0.0 && x.is_finite()) {
                anyhow::bail!(
                    "{told}, row {}: {n} {at}, {name} {x}: give N of 1 or more and a throughput above 0",
                    row + 1
                );
            }
            match points.iter_mut().find(|p| p.n == at) {
                Some(point) => point.samples.push(x),
                None => points.push(Point { n: at, samples: vec![x], ..Point::default() }),
            }
        }
        if points.is_empty() {
            anyhow::bail!("{told}: `{name}` has no figure");
        }
        points.sort_by(|a, b| a.n.total_cmp(&b.n));
        let single = curves.len() == 1;
        let (name, metric) =
            if single { (String::new(), name.to_string()) } else { (name.to_string(), "throughput".into()) };
        Ok(Curve { name, metric, points, machine: None })
    };
    curves.iter().map(curve).collect()
}
