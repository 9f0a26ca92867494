//! Capacity over time, all CPUs together and each on its own.

use std::fmt::Write;

use ncpu_record::Recording;
use ncpu_table::Table;
use serde_json::{Value, json};

use super::layers::class;
use super::markup::{esc, sane, seconds};
use crate::onion::Layer;

/// More rows or columns than these are put together: a screen shows no more, and a page stays small.
const ROWS: usize = 256;
const COLUMNS: usize = 240;

/// What CPUs did: column of `cpu_time`, word, layer that lends its colour.
const BUSY: [(&str, &str, Layer); 7] = [
    ("target", "the program on CPU", Layer::User),
    ("spin", "kernel lock spin", Layer::KernelSpin),
    ("hardirq", "interrupts", Layer::Interrupts),
    ("softirq", "softirqs", Layer::Interrupts),
    ("tlb", "TLB shootdown", Layer::Tlb),
    ("other", "other programs", Layer::Others),
    ("ncpu", "ncpu itself", Layer::Own),
];

/// What idle CPUs were idle for, as `idle_time` tells it.
const IDLE: [(&str, &str, Layer); 6] = [
    ("runq", "idle: run-queue waiting", Layer::RunQueue),
    ("klock", "idle: kernel lock block", Layer::KernelBlock),
    ("ulock", "idle: user lock waiting", Layer::UserLock),
    ("io", "idle: I/O wait", Layer::Io),
    ("serial", "idle: serial phases", Layer::Serial),
    ("asleep", "idle", Layer::Asleep),
];

/// What the heat map can show: word, and the columns of `cpu_time` in it.
const HEAT: [(&str, &[&str]); 5] = [
    ("busy", &["target", "spin", "hardirq", "softirq", "tlb", "other", "ncpu"]),
    ("the program", &["target", "spin"]),
    ("kernel lock spin", &["spin"]),
    ("interrupts and TLB", &["hardirq", "softirq", "tlb"]),
    ("other programs", &["other", "ncpu"]),
];

const LEVELS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// `cpu_time` in bins of time and CPUs.
struct Bins {
    /// Ends of the intervals put together, in seconds.
    ends: Vec<f64>,
    /// First and last CPU of each row.
    rows: Vec<(u64, u64)>,
    /// Seconds by row, bin and column (`idle` first, then [`BUSY`]).
    cells: Vec<[f64; 8]>,
    intervals: usize,
    cpus: usize,
}

impl Bins {
    fn of(table: &Table) -> Option<Bins> {
        let mut ends: Vec<f64> = Vec::new();
        let mut cpus: Vec<u64> = Vec::new();
        let rows = table.num_rows();
        let at: Vec<Option<(f64, u64)>> = (0..rows)
            .map(|r| {
                let t = table.number(r, "t").filter(|t| t.is_finite() && *t > 0.0)?;
                Some((t, table.int(r, "CPU")?))
            })
            .collect();
        for (t, cpu) in at.iter().flatten() {
            ends.push(*t);
            cpus.push(*cpu);
        }
        ends.sort_by(f64::total_cmp);
        ends.dedup();
        cpus.sort_unstable();
        cpus.dedup();
        if ends.is_empty() {
            return None;
        }
        let (by_t, by_cpu) = (ends.len().div_ceil(COLUMNS), cpus.len().div_ceil(ROWS));
        let columns = ends.len().div_ceil(by_t);
        let mut cells = vec![[0.0; 8]; columns * cpus.len().div_ceil(by_cpu)];
        let names: Vec<&str> = std::iter::once("idle").chain(BUSY.map(|(name, ..)| name)).collect();
        for (row, at) in at.iter().enumerate() {
            let Some((t, cpu)) = at else { continue };
            let column = ends.partition_point(|e| e < t) / by_t;
            let line = cpus.partition_point(|c| c < cpu) / by_cpu;
            let cell = &mut cells[line * columns + column];
            for (sum, name) in cell.iter_mut().zip(&names) {
                *sum += sane(table.number(row, name));
            }
        }
        Some(Bins {
            rows: cpus.chunks(by_cpu).map(|c| (c[0], c[c.len() - 1])).collect(),
            intervals: ends.len(),
            cpus: cpus.len(),
            ends: ends.chunks(by_t).map(|c| c[c.len() - 1]).collect(),
            cells,
        })
    }

    fn columns(&self) -> usize {
        self.ends.len()
    }

    /// What was put together, for the reader.
    fn folded(&self) -> String {
        let mut words = Vec::new();
        if self.rows.len() < self.cpus {
            words.push(format!("each row is the mean of {} CPUs", self.cpus.div_ceil(self.rows.len())));
        }
        if self.columns() < self.intervals {
            words.push(format!(
                "each column is the mean of {} intervals",
                self.intervals.div_ceil(self.columns())
            ));
        }
        if words.is_empty() {
            String::new()
        } else {
            format!(" Too many to draw one by one: {}.", words.join(" and "))
        }
    }
}

/// A series of the stacked chart: word, layer, shares of capacity by bin.
type Series = (&'static str, Layer, Vec<f64>);

fn series(bins: &Bins, idle_time: Option<&Table>) -> Vec<Series> {
    let columns = bins.columns();
    let mut sums = vec![[0.0; 8]; columns];
    for (i, cell) in bins.cells.iter().enumerate() {
        for (sum, s) in sums[i % columns].iter_mut().zip(cell) {
            *sum += s;
        }
    }
    let mut why = vec![[0.0; 6]; columns];
    if let Some(table) = idle_time {
        for row in 0..table.num_rows() {
            let t = sane(table.number(row, "t"));
            let column = bins.ends.partition_point(|e| *e < t).min(columns - 1);
            for (sum, (name, ..)) in why[column].iter_mut().zip(IDLE) {
                *sum += sane(table.number(row, name));
            }
        }
    }
    let share = |column: usize, s: f64| {
        let total: f64 = sums[column].iter().sum();
        if total > 0.0 { s / total } else { 0.0 }
    };
    let mut out: Vec<Series> = Vec::new();
    for (i, (_, word, layer)) in BUSY.iter().enumerate() {
        out.push((word, *layer, (0..columns).map(|c| share(c, sums[c][i + 1])).collect()));
    }
    for (i, (name, word, layer)) in IDLE.iter().enumerate() {
        let part = |c: usize| {
            let known: f64 = why[c].iter().sum();
            // Idle time nobody explained is plain idle, as in the onion.
            let p = if known > 0.0 { why[c][i] / known } else { f64::from(u8::from(*name == "asleep")) };
            share(c, sums[c][0] * p)
        };
        out.push((word, *layer, (0..columns).map(part).collect()));
    }
    out.retain(|(.., shares)| shares.iter().any(|s| *s > 0.0));
    out
}

/// Stepped areas on top of one another, in a box of 1000 × 100.
fn chart(out: &mut String, bins: &Bins, series: &[Series]) {
    let end = bins.ends.last().copied().unwrap_or(1.0);
    let x = |t: f64| 1000.0 * t / end;
    let mut below = vec![0.0; bins.columns()];
    out.push_str(
        "<svg class=area viewBox=\"0 0 1000 100\" preserveAspectRatio=none role=img \
         aria-label=\"Shares of capacity over time, stacked\">",
    );
    for (word, layer, shares) in series {
        let (mut up, mut down, mut from) = (String::new(), Vec::new(), 0.0);
        for (i, share) in shares.iter().enumerate() {
            let (x0, x1) = (x(from), x(bins.ends[i]));
            let (low, high) = (100.0 - 100.0 * below[i], 100.0 - 100.0 * (below[i] + share).min(1.0));
            let _ = write!(up, "{x0:.1},{high:.2} {x1:.1},{high:.2} ");
            down.push(format!("{x1:.1},{low:.2} {x0:.1},{low:.2} "));
            below[i] += share;
            from = bins.ends[i];
        }
        down.reverse();
        let _ = write!(
            out,
            "<polygon class={} points=\"{up}{}\"><title>{}</title></polygon>",
            class(*layer),
            down.concat().trim_end(),
            esc(word)
        );
    }
    out.push_str("</svg>");
}

fn legend(out: &mut String, series: &[Series]) {
    out.push_str("<p class=key>");
    let mut last = "";
    for (word, layer, _) in series {
        // Interrupts and softirqs share a layer, and so a colour.
        let colour = class(*layer);
        if colour != last {
            let word = if *layer == Layer::Interrupts { "interrupts and softirqs" } else { word };
            let _ = write!(out, "<span><i class={colour}></i>{}</span>", esc(word));
        }
        last = colour;
    }
    out.push_str("</p>");
}

/// Shares 0–1 as letters, 64 levels; a blank where the CPU was not seen.
fn cells(bins: &Bins, of: &[&str]) -> String {
    bins.cells
        .iter()
        .map(|cell| {
            let total: f64 = cell.iter().sum();
            if total <= 0.0 {
                return ' ';
            }
            let part: f64 =
                BUSY.iter().zip(&cell[1..]).filter(|((name, ..), _)| of.contains(name)).map(|(_, s)| s).sum();
            char::from(LEVELS[((part / total * 63.0).round() as usize).min(63)])
        })
        .collect()
}

/// The section, and what the script needs of it.
pub(super) fn section(out: &mut String, recording: &Recording) -> Value {
    out.push_str("<section id=time><h2>Capacity over time</h2>");
    let Some(bins) = recording.tables.get("cpu_time").and_then(Bins::of) else {
        out.push_str("<p class=none>No interval was recorded.</p></section>");
        return Value::Null;
    };
    let series = series(&bins, recording.tables.get("idle_time"));
    let single = if bins.intervals == 1 {
        " There is one interval only: give --interval a shorter one to see changes."
    } else {
        ""
    };
    let _ = write!(
        out,
        "<p class=lead>Where all CPUs were, interval by interval.{single}</p><div class=plot id=area><div class=y \
         aria-hidden=true><span>100 %</span><span>50</span><span>0</span></div><div class=box>"
    );
    chart(out, &bins, &series);
    out.push_str("<div class=cursor hidden></div></div></div>");
    axis(out, &bins);
    out.push_str("<output class=read id=area-read aria-live=polite></output>");
    legend(out, &series);

    let _ = write!(
        out,
        "<h3 id=cpus>Each CPU</h3><p class=lead>Share of each interval that a CPU was <label><select \
         id=heat-kind>"
    );
    for (i, (word, _)) in HEAT.iter().enumerate() {
        let _ =
            write!(out, "<option value={i}>{}</option>", if i == 0 { "busy, with anything" } else { word });
    }
    let _ = write!(
        out,
        "</select></label>, CPU by CPU.{}</p><div class=plot id=heat><div class=y aria-hidden=true></div>\
         <div class=box><canvas tabindex=0 role=img aria-label=\"Heat map: {} CPUs by {} intervals; arrow keys \
         read cells\"></canvas></div></div>",
        bins.folded(),
        bins.cpus,
        bins.intervals
    );
    axis(out, &bins);
    out.push_str(
        "<output class=read id=heat-read aria-live=polite></output><p class=key id=ramp>0 % <i></i> 100 %</p>\
         <noscript><p class=none>The heat map needs JavaScript.</p></noscript></section>",
    );
    let thousandths = |shares: &[f64]| shares.iter().map(|s| (s * 1000.0).round() as u32).collect::<Vec<_>>();
    json!({
        "ends": bins.ends.iter().map(|t| (t * 1000.0).round() / 1000.0).collect::<Vec<_>>(),
        "series": series.iter().map(|(word, _, shares)| json!([word, thousandths(shares)])).collect::<Vec<_>>(),
        "rows": bins.rows,
        "heat": HEAT.iter().map(|(word, of)| json!([word, cells(&bins, of)])).collect::<Vec<_>>(),
        "levels": std::str::from_utf8(LEVELS).unwrap_or(""),
    })
}

fn axis(out: &mut String, bins: &Bins) {
    let end = bins.ends.last().copied().unwrap_or(0.0);
    let _ = write!(
        out,
        "<div class=scale aria-hidden=true><span>0</span><span>{}</span><span>{} s</span></div>",
        seconds(end / 2.0),
        seconds(end)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_table::{Column, Kind, Unit};

    fn cpu_time(cpus: u64, intervals: usize) -> Table {
        let mut columns = vec![Column::float("t", Unit::Seconds, Kind::Key, ""), Column::id("CPU", "")];
        columns.extend(["idle", "target"].map(|c| Column::float(c, Unit::CpuSeconds, Kind::Time, "")));
        let mut b = Table::builder("cpu_time", &columns);
        for i in 0..intervals {
            for cpu in 0..cpus {
                let busy = if cpu % 4 == 0 { 1.0 } else { 0.0 };
                b.row().float((i + 1) as f64).int(cpu).float(1.0 - busy).float(busy);
            }
        }
        b.finish()
    }

    #[test]
    fn many_cpus_are_averaged_and_it_is_said() {
        let bins = Bins::of(&cpu_time(1024, 500)).unwrap();
        assert_eq!((bins.rows.len(), bins.columns()), (256, 167));
        assert_eq!((bins.rows[1], bins.ends[0], bins.ends[166]), ((4, 7), 3.0, 500.0));
        assert!(bins.folded().contains("mean of 4 CPUs and each column is the mean of 3 intervals"));
        // One CPU in four is busy: a quarter of 63 levels.
        assert!(cells(&bins, &["target"]).chars().all(|c| c == 'Q'));
    }

    #[test]
    fn shares_of_an_interval_sum_to_one() {
        let bins = Bins::of(&cpu_time(8, 3)).unwrap();
        assert_eq!(bins.folded(), "");
        let series = series(&bins, None);
        for i in 0..3 {
            assert!((series.iter().map(|s| s.2[i]).sum::<f64>() - 1.0).abs() < 1e-9);
        }
        assert_eq!(series.iter().map(|s| s.0).collect::<Vec<_>>(), ["the program on CPU", "idle"]);
    }

    #[test]
    fn nonsense_has_no_bins() {
        let mut b = Table::builder(
            "cpu_time",
            &[Column::float("t", Unit::Seconds, Kind::Key, ""), Column::id("CPU", "")],
        );
        b.row().float(f64::NAN).int(0);
        b.row().float(-1.0).int(u64::MAX);
        b.row().null().null();
        assert!(Bins::of(&b.finish()).is_none());
    }
}
