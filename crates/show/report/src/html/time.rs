//! Capacity over time, all CPUs together and each on its own.

use std::fmt::Write;

use ncpu_record::Recording;
use ncpu_schema::{CpuState, Error, IdleReason, Layer, cpu_time, idle_time};
use serde_json::{Value, json};

use super::layers::waterfall;
use super::markup::{esc, percent, sane, seconds};
use crate::timeline::Timeline;

/// More rows or columns than these are put together: a screen shows no more, and a page stays small.
const ROWS: usize = 256;
const COLUMNS: usize = 240;

/// CPU states in the order of the chart, from the bottom; idle time, divided by reason, is above them.
const BUSY: [CpuState; 7] = [
    CpuState::Program,
    CpuState::Spin,
    CpuState::Hardirq,
    CpuState::Softirq,
    CpuState::Tlb,
    CpuState::Others,
    CpuState::Ncpu,
];

/// A busy state's word in the chart, and the layer that lends its colour.
fn busy(state: CpuState) -> (&'static str, Layer) {
    match state {
        CpuState::Program => ("the program on CPU", Layer::User),
        CpuState::Spin => ("kernel lock spin", Layer::KernelSpin),
        CpuState::Hardirq => ("interrupts", Layer::Interrupts),
        CpuState::Softirq => ("softirqs", Layer::Interrupts),
        CpuState::Tlb => ("TLB shootdown", Layer::Tlb),
        CpuState::Others => ("other programs", Layer::Others),
        CpuState::Ncpu => ("ncpu itself", Layer::Ncpu),
        CpuState::Idle => ("idle", Layer::Idle),
    }
}

/// Choices of the heat map: word, and the states in it.
const HEAT: [(&str, &[CpuState]); 5] = [
    ("busy", &BUSY),
    ("the program", &[CpuState::Program, CpuState::Spin]),
    ("kernel lock spin", &[CpuState::Spin]),
    ("interrupts and TLB", &[CpuState::Hardirq, CpuState::Softirq, CpuState::Tlb]),
    ("other programs", &[CpuState::Others, CpuState::Ncpu]),
];

const LEVELS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Seconds by state.
type Cell = [f64; CpuState::ALL.len()];

/// `cpu_time` in bins of time and CPUs.
struct Bins {
    /// Ends of the intervals put together, in seconds.
    ends: Vec<f64>,
    /// First and last CPU of each row.
    rows: Vec<(u64, u64)>,
    /// Seconds by row, bin and state.
    cells: Vec<Cell>,
    intervals: usize,
    cpus: usize,
}

impl Bins {
    fn of(table: &cpu_time::Reader<'_>) -> Option<Bins> {
        let mut ends: Vec<f64> = Vec::new();
        let mut cpus: Vec<u64> = Vec::new();
        let at: Vec<Option<(f64, u64)>> = table
            .rows()
            .map(|r| {
                let t = table.time.get(r).filter(|t| t.is_finite() && *t > 0.0)?;
                Some((t, table.cpu.get(r)?))
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
        let mut cells = vec![Cell::default(); columns * cpus.len().div_ceil(by_cpu)];
        for (row, at) in at.iter().enumerate() {
            let Some((t, cpu)) = at else { continue };
            let column = ends.partition_point(|e| e < t) / by_t;
            let line = cpus.partition_point(|c| c < cpu) / by_cpu;
            let cell = &mut cells[line * columns + column];
            for state in CpuState::ALL {
                cell[state as usize] += sane(table.spent.get(row, state));
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

    /// Notes for the reader on rows and columns that were put together.
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
type Series = (String, Layer, Vec<f64>);

fn series(bins: &Bins, idle_time: Option<&idle_time::Reader<'_>>) -> Vec<Series> {
    let columns = bins.columns();
    let mut sums = vec![Cell::default(); columns];
    for (i, cell) in bins.cells.iter().enumerate() {
        for (sum, s) in sums[i % columns].iter_mut().zip(cell) {
            *sum += s;
        }
    }
    let mut why = vec![[0.0; IdleReason::ALL.len()]; columns];
    if let Some(table) = idle_time {
        for row in table.rows() {
            let t = sane(table.time.get(row));
            let column = bins.ends.partition_point(|e| *e < t).min(columns - 1);
            for reason in IdleReason::ALL {
                why[column][reason as usize] += sane(table.spent.get(row, reason));
            }
        }
    }
    let share = |column: usize, s: f64| {
        let total: f64 = sums[column].iter().sum();
        if total > 0.0 { s / total } else { 0.0 }
    };
    let mut out: Vec<Series> = Vec::new();
    for state in BUSY {
        let (word, layer) = busy(state);
        let shares = (0..columns).map(|c| share(c, sums[c][state as usize])).collect();
        out.push((word.into(), layer, shares));
    }
    for reason in IdleReason::ALL {
        let part = |c: usize| {
            let known: f64 = why[c].iter().sum();
            // Idle time without a reason is plain idle, as in the onion.
            let unexplained = f64::from(u8::from(reason == IdleReason::Asleep));
            let p = if known > 0.0 { why[c][reason as usize] / known } else { unexplained };
            share(c, sums[c][CpuState::Idle as usize] * p)
        };
        let layer = Layer::from(reason);
        let word = if layer == Layer::Idle { "idle".into() } else { format!("idle: {}", layer.name()) };
        out.push((word, layer, (0..columns).map(part).collect()));
    }
    out.retain(|(.., shares)| shares.iter().any(|s| *s > 0.0));
    out
}

/// Layers over time, as series.
fn layers(timeline: &Timeline) -> Vec<Series> {
    let shares: Vec<Vec<f64>> = (0..timeline.columns.len()).map(|c| timeline.shares(c, c + 1)).collect();
    let series = |(i, layer): (usize, &Layer)| {
        (layer.name().into(), *layer, shares.iter().map(|column| column[i]).collect())
    };
    timeline.layers.iter().enumerate().map(series).collect()
}

/// The onion of each phase, where there are several.
fn phases(out: &mut String, timeline: &Timeline, recording: &Recording) -> Result<(), Error> {
    let onions = timeline.onions(recording)?;
    if onions.is_empty() {
        return Ok(());
    }
    let _ = write!(
        out,
        "<h3 id=phases>Phases</h3><p class=lead>The layers change where the chart has a line: {} phases, each an onion of \
         its own.</p>",
        onions.len()
    );
    for (i, ((from, to, onion), (begin, end))) in onions.iter().zip(timeline.phases()).enumerate() {
        let mut most: Vec<(Layer, f64)> =
            timeline.layers.iter().copied().zip(timeline.shares(begin, end)).collect();
        most.sort_by(|a, b| b.1.total_cmp(&a.1));
        let most: Vec<String> = most
            .iter()
            .take(3)
            .map(|(layer, share)| format!("{} {}", layer.name(), percent(*share)))
            .collect();
        let _ = write!(
            out,
            "<details class=phase><summary><b>Phase {}</b>, {} – {} s: {}</summary>",
            i + 1,
            seconds(*from),
            seconds(*to),
            esc(&most.join(", "))
        );
        waterfall(out, onion, false);
        out.push_str("</details>");
    }
    Ok(())
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
            "<polygon class=l-{} points=\"{up}{}\"><title>{}</title></polygon>",
            layer.colour(),
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
        let colour = layer.colour();
        if colour != last {
            let word = if *layer == Layer::Interrupts { "interrupts and softirqs" } else { word };
            let _ = write!(out, "<span><i class=l-{colour}></i>{}</span>", esc(word));
        }
        last = colour;
    }
    out.push_str("</p>");
}

/// Shares 0–1 as letters, 64 levels; a blank where the CPU was not seen.
fn cells(bins: &Bins, of: &[CpuState]) -> String {
    bins.cells
        .iter()
        .map(|cell| {
            let total: f64 = cell.iter().sum();
            if total <= 0.0 {
                return ' ';
            }
            let part: f64 = of.iter().map(|state| cell[*state as usize]).sum();
            char::from(LEVELS[((part / total * 63.0).round() as usize).min(63)])
        })
        .collect()
}

/// The section, and what the script needs of it.
///
/// # Errors
/// A table is not what the schema says.
pub(super) fn section(out: &mut String, recording: &Recording) -> Result<Value, Error> {
    out.push_str("<section id=time><h2>Capacity over time</h2>");
    let Some(bins) = cpu_time::Reader::open(recording)?.as_ref().and_then(Bins::of) else {
        out.push_str("<p class=none>No interval was recorded.</p></section>");
        return Ok(Value::Null);
    };
    let timeline = Timeline::of(recording)?.filter(|t| t.columns.len() == bins.columns());
    let series = match &timeline {
        Some(timeline) => layers(timeline),
        None => series(&bins, idle_time::Reader::open(recording)?.as_ref()),
    };
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
    let end = bins.ends.last().copied().unwrap_or(1.0);
    for change in timeline.iter().flat_map(|t| t.changes.iter().map(|at| t.columns[*at].from)) {
        let _ = write!(out, "<div class=change style=\"left:{:.2}%\"></div>", 100.0 * change / end);
    }
    out.push_str("<div class=cursor hidden></div></div></div>");
    axis(out, &bins);
    out.push_str("<output class=read id=area-read aria-live=polite></output>");
    legend(out, &series);
    if let Some(timeline) = &timeline {
        phases(out, timeline, recording)?;
    }

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
    Ok(json!({
        "ends": bins.ends.iter().map(|t| (t * 1000.0).round() / 1000.0).collect::<Vec<_>>(),
        "series": series.iter().map(|(word, _, shares)| json!([word, thousandths(shares)])).collect::<Vec<_>>(),
        "rows": bins.rows,
        "heat": HEAT.iter().map(|(word, of)| json!([word, cells(&bins, of)])).collect::<Vec<_>>(),
        "levels": std::str::from_utf8(LEVELS).unwrap_or(""),
    }))
}

fn axis(out: &mut String, bins: &Bins) {
    let end = bins.ends.last().copied().unwrap_or(0.0);
    out.push_str("<div class=\"scale ticks\" aria-hidden=true>");
    for t in ticks(end) {
        let _ = write!(out, "<span style=\"left:{:.2}%\">{t}</span>", 100.0 * t / end);
    }
    let _ = write!(out, "<span style=\"left:100%\">{} s</span></div>", seconds(end));
}

/// Round times from 0, five to twelve, that leave room for the end's own label.
fn ticks(end: f64) -> Vec<f64> {
    if !(end.is_finite() && end > 0.0) {
        return Vec::new();
    }
    let power = 10f64.powf((end / 10.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| end / s <= 10.0).unwrap_or(end);
    // Multiplied, not added up, and told without the rest of a division.
    let round = |t: f64| (t / power).round() * power;
    (0..12)
        .map(|i| round(f64::from(i) * step))
        .map(|t| (t * 1e9).round() / 1e9)
        .filter(|t| *t <= 0.88 * end)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_schema::Per;
    use ncpu_table::Table;

    fn cpu_time(cpus: u64, intervals: usize) -> Table {
        let mut rows = cpu_time::Rows::new();
        for i in 0..intervals {
            for cpu in 0..cpus {
                let busy = if cpu % 4 == 0 { 1.0 } else { 0.0 };
                let spent = Per::new(|state| match state {
                    CpuState::Idle => Some(1.0 - busy),
                    CpuState::Program => Some(busy),
                    _ => None,
                });
                rows.push(cpu_time::Row { time: Some((i + 1) as f64), cpu: Some(cpu), spent, kernel: None });
            }
        }
        rows.finish()
    }

    fn bins(table: &Table) -> Option<Bins> {
        Bins::of(&cpu_time::Reader::of(table).unwrap())
    }

    #[test]
    fn an_axis_has_round_labels_enough() {
        assert_eq!(ticks(7.47), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(ticks(0.3), [0.0, 0.05, 0.1, 0.15, 0.2, 0.25]);
        assert_eq!(ticks(3600.0), [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0, 3000.0]);
        for end in [0.011, 0.1, 1.0, 9.99, 10.0, 59.0, 1234.5] {
            assert!((5..=12).contains(&ticks(end).len()), "{end}: {:?}", ticks(end));
        }
        assert!(ticks(0.0).is_empty() && ticks(f64::NAN).is_empty());
    }

    #[test]
    fn many_cpus_are_averaged_and_it_is_said() {
        let bins = bins(&cpu_time(1024, 500)).unwrap();
        assert_eq!((bins.rows.len(), bins.columns()), (256, 167));
        assert_eq!((bins.rows[1], bins.ends[0], bins.ends[166]), ((4, 7), 3.0, 500.0));
        assert!(bins.folded().contains("mean of 4 CPUs and each column is the mean of 3 intervals"));
        // One CPU in four is busy: a quarter of 63 levels.
        assert!(cells(&bins, &[CpuState::Program]).chars().all(|c| c == 'Q'));
    }

    #[test]
    fn shares_of_an_interval_sum_to_one() {
        let bins = bins(&cpu_time(8, 3)).unwrap();
        assert_eq!(bins.folded(), "");
        let series = series(&bins, None);
        for i in 0..3 {
            assert!((series.iter().map(|s| s.2[i]).sum::<f64>() - 1.0).abs() < 1e-9);
        }
        assert_eq!(series.iter().map(|s| s.0.as_str()).collect::<Vec<_>>(), ["the program on CPU", "idle"]);
    }

    #[test]
    fn nonsense_has_no_bins() {
        let mut b = cpu_time::Rows::new();
        for (time, cpu) in [(Some(f64::NAN), Some(0)), (Some(-1.0), Some(u64::MAX)), (None, None)] {
            b.push(cpu_time::Row { time, cpu, ..Default::default() });
        }
        assert!(bins(&b.finish()).is_none());
    }
}
