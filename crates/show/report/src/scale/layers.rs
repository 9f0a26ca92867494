//! Layers over N: CPU time of each layer for a unit of work, and which grows.

use ncpu_table::{Column, Kind, Table, Unit, objects};

use crate::onion::{self, Onion};

/// Layers that are not the program's.
const OTHERS: [onion::Layer; 4] =
    [onion::Layer::Others, onion::Layer::Ncpu, onion::Layer::Steal, onion::Layer::Unseen];

/// The onion of one point.
pub struct Peel {
    /// CPUs or threads.
    pub n: f64,
    /// Work done while it was observed: throughput × elapsed time.
    pub work: f64,
    /// Of the CPUs it was bound to.
    pub onion: Onion,
}

/// A row for each layer at each N. The capacity that a unit of work takes is N / throughput; were scaling linear it
/// would stay as it is at the smallest N, and what it grows by lies in the layers.
pub fn layers_table(peels: &[Peel]) -> Table {
    let mut out = Table::builder(
        "layers",
        &[
            Column::float("N", Unit::Figure, Kind::Key, "CPUs or threads"),
            Column::text("layer", "where capacity went"),
            Column::float("share", Unit::Percent, Kind::Share, "share of the capacity of the CPUs it ran on"),
            Column::float("seconds", Unit::CpuSeconds, Kind::Time, "CPU-seconds"),
            Column::float("work", Unit::Figure, Kind::Gauge, "throughput × elapsed time of the observed run"),
            Column::float(
                "cost",
                Unit::Percent,
                Kind::Gauge,
                "CPU time for a unit of work; that of the program's layers at the smallest N is 100",
            ),
            Column::float("growth", Unit::Percent, Kind::Gauge, "cost less that at the smallest N"),
            Column::float(
                "error",
                Unit::Percent,
                Kind::Gauge,
                "half-width of the growth's 95 % interval; 0 is exact",
            ),
            Column::text("recoverable", "whether it could come back"),
            Column::objects("evidence", "what it consists of"),
        ],
    );
    let Some(first) = peels.first() else { return out.finish() };
    let taken: f64 = first.onion.rows.iter().filter(|r| OTHERS.contains(&r.layer)).map(|r| r.seconds).sum();
    let whole = (first.onion.capacity - taken).max(f64::MIN_POSITIVE) / first.work;
    let cost = |p: &Peel, seconds: f64| 100.0 * seconds / p.work / whole;
    for p in peels {
        // A layer that is gone shrank: it has a row too.
        let gone = first.onion.rows.iter().filter(|r| !p.onion.rows.iter().any(|q| q.layer == r.layer));
        let rows = p.onion.rows.iter().map(|r| (r.layer, r.seconds, r.error, r.share, r.evidence_json()));
        let gone = gone.map(|r| (r.layer, 0.0, 0.0, 0.0, "[]".into()));
        for (layer, seconds, error, share, evidence) in rows.chain(gone) {
            let before = first.onion.rows.iter().find(|r| r.layer == layer).map_or(0.0, |r| r.error);
            let now = cost(p, seconds);
            out.row()
                .float(p.n)
                .text(layer.name())
                .float(100.0 * share)
                .float(seconds)
                .float(p.work)
                .float(now)
                .float(now - cost(first, first.onion.seconds(layer)))
                .float(cost(p, error).hypot(cost(first, before)))
                .text(if layer.recoverable() { "yes" } else { "no" })
                .text(evidence);
        }
    }
    out.finish()
}

/// A layer's cost at each N.
pub(super) struct Layer {
    pub name: String,
    pub costs: Vec<f64>,
    /// Half-width of the growth's interval.
    pub error: f64,
    pub evidence: String,
}

/// The layers of the table, that which grows most first, and the N.
pub(super) fn by_growth(table: &Table) -> (Vec<f64>, Vec<Layer>) {
    let mut ns: Vec<f64> = (0..table.num_rows()).filter_map(|r| table.number(r, "N")).collect();
    ns.sort_by(f64::total_cmp);
    ns.dedup();
    let mut layers: Vec<Layer> = Vec::new();
    for r in 0..table.num_rows() {
        let (Some(name), Some(n)) = (table.text(r, "layer"), table.number(r, "N")) else { continue };
        let at = layers.iter().position(|l| l.name == name).unwrap_or_else(|| {
            layers.push(Layer {
                name: name.into(),
                costs: vec![0.0; ns.len()],
                error: 0.0,
                evidence: String::new(),
            });
            layers.len() - 1
        });
        if let Some(i) = ns.iter().position(|x| *x == n) {
            layers[at].costs[i] = table.number(r, "cost").unwrap_or(0.0);
            // Those of the largest N, which the growth is to.
            layers[at].error = table.number(r, "error").unwrap_or(0.0);
            layers[at].evidence = table.text(r, "evidence").unwrap_or_default().into();
        }
    }
    layers.sort_by(|a, b| growth(b).total_cmp(&growth(a)));
    (ns, layers)
}

/// How much its cost grew from the smallest N to the largest.
pub(super) fn growth(layer: &Layer) -> f64 {
    layer.costs.last().unwrap_or(&0.0) - layer.costs.first().unwrap_or(&0.0)
}

/// Which layer grows, in a sentence.
pub(super) fn verdict(ns: &[f64], layers: &[Layer]) -> String {
    let (Some(first), Some(last)) = (ns.first(), ns.last()) else { return String::new() };
    if ns.len() < 2 {
        return "One point only: nothing to compare its layers with.".into();
    }
    let disturbs = |l: &&Layer| OTHERS.iter().any(|other| other.name() == l.name);
    let total: f64 = layers.iter().filter(|l| !disturbs(l)).map(growth).sum();
    let Some(most) = layers.iter().find(|l| !disturbs(l)) else { return String::new() };
    let span = format!("from N = {first} to {last}");
    let disturbed = layers.iter().filter(disturbs).find(|l| growth(l) > 10.0).map_or(String::new(), |l| {
        format!(
            " Of the growth, {} took {:+.0} %: that is not the program's, so measure where it is quiet.",
            l.name,
            growth(l)
        )
    });
    if growth(most) < 5.0 || growth(most) <= most.error {
        let sure = if growth(most) < 5.0 { "" } else { " and by more than the error of its samples" };
        return format!(
            "No layer of the program grows by more than 5 % of the CPU time that a unit of work takes {span}{sure}.{disturbed}"
        );
    }
    let evidence = match objects::word_list(&most.evidence).first() {
        Some(e) if !e.is_empty() => format!(" – {e}"),
        _ => String::new(),
    };
    if total < 5.0 {
        return format!(
            "A unit of work takes {total:+.0} % CPU time {span}: its layers change places, {} by {:+.0} %.{disturbed}",
            most.name,
            growth(most)
        );
    }
    // Another layer whose growth could be the same is named too.
    let next = layers.iter().filter(|l| !disturbs(l)).nth(1);
    let rival = next.filter(|l| growth(l) >= 5.0 && growth(most) - growth(l) <= most.error.hypot(l.error));
    let rival = rival.map_or(String::new(), |l| {
        format!("; {}, {:+.0} %, cannot be distinguished from it by its samples", l.name, growth(l))
    });
    format!(
        "A unit of work takes {:+.0} % CPU time {span}. The layer that grows most: {}, {:+.0} %{evidence}{rival}.{disturbed}",
        total,
        most.name,
        growth(most)
    )
}
