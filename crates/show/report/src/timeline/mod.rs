//! Layers over time, and the phases between which they change.

mod text;

use ncpu_record::Recording;
use ncpu_schema::{
    Counter, Counts, CpuState, Error, IdleReason, Layer, cpu_time, events, idle_time, layer_of, phases,
    samples, summary, timeline,
};
use ncpu_table::Table;

use crate::changes::changes;
use crate::onion::{Onion, during};

pub use text::render;

/// Columns in which changes are looked for, at most.
const COLUMNS: usize = 240;

/// Layers from the bottom of a chart to its top: what ran, what others ran, what idle CPUs idled for.
const ORDER: [Layer; Layer::ALL.len()] = [
    Layer::User,
    Layer::Calls,
    Layer::Faults,
    Layer::Tlb,
    Layer::Switches,
    Layer::OtherKernel,
    Layer::Kernel,
    Layer::KernelSpin,
    Layer::Interrupts,
    Layer::Others,
    Layer::Ncpu,
    Layer::Steal,
    Layer::UserLock,
    Layer::KernelBlock,
    Layer::LockOrSerial,
    Layer::KernelLockOrIo,
    Layer::Io,
    Layer::RunQueue,
    Layer::WakeUp,
    Layer::Serial,
    Layer::Unseen,
    Layer::Idle,
];

/// Layers outside the program; its own activity is in the other layers.
const NOT_THE_PROGRAMS: [Layer; 4] = [Layer::Others, Layer::Ncpu, Layer::Steal, Layer::Unseen];

/// A stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// When it begins, in seconds since the observation began.
    pub from: f64,
    /// When it ends.
    pub to: f64,
    /// CPU-seconds by layer, in the order of [`Timeline::layers`].
    pub seconds: Vec<f64>,
}

/// Layers over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The layers that have any time, from the bottom of a chart to its top.
    pub layers: Vec<Layer>,
    /// The intervals, put together where they are very many.
    pub columns: Vec<Column>,
    /// The first columns of all phases but the first.
    pub changes: Vec<usize>,
    cpus: u64,
}

impl Timeline {
    /// Of a recording; `None` where an older `ncpu` wrote it, which did not keep when samples were taken, or where there is
    /// no interval.
    ///
    /// # Errors
    /// A table is not what the schema says.
    pub fn of(recording: &Recording) -> Result<Option<Timeline>, Error> {
        let Some((cpus, intervals)) = intervals(recording)? else { return Ok(None) };
        let by = intervals.len().div_ceil(COLUMNS);
        let divided: Vec<Divided> = intervals
            .chunks(by)
            .filter_map(|part| {
                let (from, to) = (part.first()?.0, part.last()?.1);
                let mut counts = part.iter().fold(Counts::default(), |sum, (.., one)| together(sum, one));
                (counts.elapsed, counts.cpus) = (to - from, cpus);
                let layers = counts.divide().layers;
                Some((from, to, layers.into_iter().map(|(layer, s, _)| (layer, s)).collect()))
            })
            .collect();
        let has = |layer: &Layer| divided.iter().any(|(.., of)| of.iter().any(|(l, _)| l == layer));
        let layers: Vec<Layer> = ORDER.into_iter().filter(has).collect();
        let of =
            |of: &[(Layer, f64)], layer: Layer| of.iter().find(|(l, _)| *l == layer).map_or(0.0, |(_, s)| *s);
        let columns: Vec<Column> = divided
            .iter()
            .map(|(from, to, all)| Column {
                from: *from,
                to: *to,
                seconds: layers.iter().map(|layer| of(all, *layer)).collect(),
            })
            .collect();
        let told: Vec<usize> =
            (0..layers.len()).filter(|i| !NOT_THE_PROGRAMS.contains(&layers[*i])).collect();
        let shares = |c: &Column| {
            // Of what others left: how much they took says nothing of the program.
            let left = told.iter().map(|i| c.seconds[*i]).sum::<f64>().max(f64::MIN_POSITIVE);
            told.iter().map(|i| c.seconds[*i] / left).collect::<Vec<f64>>()
        };
        let changes = changes(&columns.iter().map(shares).collect::<Vec<_>>());
        Ok(Some(Timeline { layers, columns, changes, cpus }))
    }

    /// First column and the one after the last, of each phase.
    pub fn phases(&self) -> Vec<(usize, usize)> {
        let ends = self.changes.iter().copied().chain([self.columns.len()]);
        let begins = [0].into_iter().chain(self.changes.iter().copied());
        begins.zip(ends).collect()
    }

    /// Shares of capacity by layer, of the columns from one to before another.
    pub fn shares(&self, from: usize, to: usize) -> Vec<f64> {
        let part = &self.columns[from..to];
        let length: f64 = part.iter().map(|c| c.to - c.from).sum();
        let capacity = (self.cpus as f64 * length).max(f64::MIN_POSITIVE);
        (0..self.layers.len()).map(|i| part.iter().map(|c| c.seconds[i]).sum::<f64>() / capacity).collect()
    }

    /// The onion of each phase, with its beginning and end; none where there is but one.
    ///
    /// # Errors
    /// A table is not what the schema says.
    pub fn onions(&self, recording: &Recording) -> Result<Vec<(f64, f64, Onion)>, Error> {
        if self.changes.is_empty() {
            return Ok(Vec::new());
        }
        let last = self.columns.len();
        let peel = |(from, to): (usize, usize)| {
            let (begin, end) = (self.columns[from].from, self.columns[to - 1].to);
            let part = during(recording, begin, end, to == last)?;
            Ok((begin, end, Onion::peel(&part)?))
        };
        self.phases().into_iter().map(peel).collect()
    }

    /// Tables `timeline` and `phases`.
    pub fn tables(&self) -> [Table; 2] {
        let (mut over_time, mut by_phase) = (timeline::Rows::new(), phases::Rows::new());
        for (i, (from, to)) in self.phases().into_iter().enumerate() {
            let phase = Some(i as u64 + 1);
            for column in from..to {
                let c = &self.columns[column];
                for (layer, share) in self.layers.iter().zip(self.shares(column, column + 1)) {
                    over_time.push(timeline::Row {
                        time: Some(c.to),
                        phase,
                        layer: Some(*layer),
                        share: Some(100.0 * share),
                    });
                }
            }
            let (begin, end) = (self.columns[from].from, self.columns[to - 1].to);
            for (layer, share) in self.layers.iter().zip(self.shares(from, to)) {
                by_phase.push(phases::Row {
                    phase,
                    from: Some(begin),
                    to: Some(end),
                    layer: Some(*layer),
                    share: Some(100.0 * share),
                    seconds: Some(share * self.cpus as f64 * (end - begin)),
                });
            }
        }
        [over_time.finish(), by_phase.finish()]
    }
}

/// Beginning and end of a column, and its seconds by layer.
type Divided = (f64, f64, Vec<(Layer, f64)>);
/// Beginning and end of an interval, and what it counted.
type Interval = (f64, f64, Counts);

/// Both counts together; their lengths are set by the caller.
fn together(mut sum: Counts, one: &Counts) -> Counts {
    sum.at.iter_mut().zip(one.at).for_each(|(a, b)| *a += b);
    sum.idle.iter_mut().zip(one.idle).for_each(|(a, b)| *a += b);
    sum.kernel = match (sum.kernel, one.kernel) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
    };
    sum.steal += one.steal;
    sum.looks += one.looks;
    one.samples.iter().for_each(|(layer, n)| sum.add_samples(*layer, *n));
    sum
}

/// The CPUs, and for each interval its beginning, its end and what it counted.
fn intervals(recording: &Recording) -> Result<Option<(u64, Vec<Interval>)>, Error> {
    let Some(cpu_time) = cpu_time::Reader::open(recording)? else { return Ok(None) };
    let valid = |t: &f64| t.is_finite() && *t > 0.0;
    let mut ends: Vec<f64> = cpu_time.rows().filter_map(|r| cpu_time.time.get(r)).filter(valid).collect();
    ends.sort_by(f64::total_cmp);
    ends.dedup();
    let Some(last) = ends.len().checked_sub(1) else { return Ok(None) };
    let mut cpus: Vec<u64> = cpu_time.rows().filter_map(|r| cpu_time.cpu.get(r)).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let column = |t: f64| ends.partition_point(|end| *end < t - 1e-9).min(last);
    let mut out: Vec<Interval> = ends
        .iter()
        .enumerate()
        .map(|(i, end)| (if i == 0 { 0.0 } else { ends[i - 1] }, *end, Counts::default()))
        .collect();
    for row in cpu_time.rows() {
        let Some(t) = cpu_time.time.get(row).filter(valid) else { continue };
        let counts = &mut out[column(t)].2;
        for state in CpuState::ALL {
            counts.at[state as usize] += sane(cpu_time.spent.get(row, state));
        }
        if let Some(kernel) = cpu_time.kernel.get(row) {
            *counts.kernel.get_or_insert(0.0) += kernel;
        }
    }
    if let Some(samples) = samples::Reader::open(recording)? {
        for row in samples.rows() {
            let Some(layer) = layer_of(&samples, row) else { continue };
            let Some(t) = samples.time.get(row) else { return Ok(None) };
            out[column(t)].2.add_samples(layer, samples.samples.get(row).unwrap_or(0));
        }
        spread(&mut out);
    }
    if let Some(why) = idle_time::Reader::open(recording)? {
        for row in why.rows() {
            let counts = &mut out[column(sane(why.time.get(row)))].2;
            for reason in IdleReason::ALL {
                counts.idle[reason as usize] += sane(why.spent.get(row, reason));
            }
        }
    }
    if let Some(events) = events::Reader::open(recording)? {
        for row in events.rows().filter(|&r| events.event.get(r) == Some(Counter::IdleTicks)) {
            out[column(sane(events.time.get(row)))].2.looks += events.count.get(row).unwrap_or(0);
        }
    }
    // When it was stolen is not known.
    let steal = summary::Reader::open(recording)?.and_then(|s| s.steal.get(0)).unwrap_or(0.0);
    let length = ends[last];
    out.iter_mut().for_each(|(from, to, counts)| counts.steal = steal * (*to - *from) / length);
    Ok(Some((cpus.len().max(1) as u64, out)))
}

/// A long run keeps samples by coarser times than CPU time: intervals without any are divided as the next that has some.
fn spread(intervals: &mut [Interval]) {
    let mut next: Option<Vec<(Layer, u64)>> = None;
    for (.., counts) in intervals.iter_mut().rev() {
        match (counts.samples.is_empty(), &next) {
            (true, Some(samples)) => counts.samples.clone_from(samples),
            (true, None) => {}
            (false, _) => next = Some(counts.samples.clone()),
        }
    }
}

fn sane(x: Option<f64>) -> f64 {
    x.filter(|x| x.is_finite()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
