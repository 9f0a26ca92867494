//! The onion over time: the layers of each interval, held far longer than its tables.

use std::collections::VecDeque;

use ncpu_record::Recording;
use ncpu_schema::{Division, Error, Layer};
use ncpu_table::{Column, Kind, Table, Unit};

/// Layers.
const LAYERS: usize = Layer::ALL.len();

/// Intervals that are held: a day of seconds, in 8 MB.
const MOST: usize = 86_400;

/// An interval's layers.
#[derive(Clone, Copy)]
struct Band {
    start: f64,
    end: f64,
    capacity: f32,
    /// CPU-seconds.
    layers: [f32; LAYERS],
}

/// Those that are held.
#[derive(Default)]
pub struct Bands {
    held: VecDeque<Band>,
}

/// The layers of an observation in CPU-seconds, and its capacity.
///
/// # Errors
/// As [`Division::of`].
pub fn layers(recording: &Recording) -> Result<([f64; LAYERS], f64), Error> {
    let division = Division::of(recording)?;
    let mut layers = [0.0; LAYERS];
    for (layer, seconds, _) in division.layers {
        layers[layer as usize] += seconds;
    }
    Ok((layers, division.capacity))
}

impl Bands {
    /// Adds the newest, and forgets the oldest.
    pub fn add(&mut self, start: f64, end: f64, layers: &[f64; LAYERS], capacity: f64) {
        if self.held.len() == MOST {
            self.held.pop_front();
        }
        let layers = layers.map(|seconds| seconds as f32);
        self.held.push_back(Band { start, end, capacity: capacity as f32, layers });
    }

    /// From when there are any.
    pub fn since(&self) -> Option<f64> {
        self.held.front().map(|band| band.start)
    }

    /// Layers over time, in at most so many rows, each of as many intervals.
    pub fn table(&self, from: f64, to: f64, rows: usize) -> Table {
        let within: Vec<&Band> = self.held.iter().filter(|band| band.end > from && band.start < to).collect();
        let mut columns = vec![
            Column::float("t", Unit::Seconds, Kind::Key, "end, since 1970 UTC"),
            Column::float("length", Unit::Seconds, Kind::Time, "from the beginning to the end"),
            Column::float("capacity", Unit::CpuSeconds, Kind::Time, "CPUs x elapsed"),
        ];
        columns.extend(
            Layer::ALL
                .iter()
                .map(|layer| Column::float(layer.name(), Unit::CpuSeconds, Kind::Time, layer.meaning())),
        );
        let mut out = Table::builder("bands", &columns);
        for some in within.chunks(within.len().div_ceil(rows.max(1)).max(1)) {
            let (Some(first), Some(last)) = (some.first(), some.last()) else { continue };
            let sum =
                |value: &dyn Fn(&Band) -> f32| some.iter().map(|band| f64::from(value(band))).sum::<f64>();
            let row =
                out.row().float(last.end).float(last.end - first.start).float(sum(&|band| band.capacity));
            (0..LAYERS).fold(row, |row, layer| row.float(sum(&|band| band.layers[layer])));
        }
        out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_summed_to_the_rows_that_are_wanted() {
        let mut bands = Bands::default();
        let mut layers = [0.0; LAYERS];
        layers[Layer::User as usize] = 0.5;
        (0..100).for_each(|n| bands.add(f64::from(n), f64::from(n) + 1.0, &layers, 2.0));
        let table = bands.table(0.0, 1e9, 1000);
        assert_eq!(table.num_rows(), 100);
        let table = bands.table(10.0, 90.0, 8);
        assert_eq!(table.num_rows(), 8);
        assert_eq!(table.number(0, "t"), Some(20.0));
        assert_eq!(table.number(7, "t"), Some(90.0));
        assert_eq!(table.number(3, "length"), Some(10.0));
        assert_eq!(table.number(3, "capacity"), Some(20.0));
        assert_eq!(table.number(3, Layer::User.name()), Some(5.0));
        assert_eq!(bands.table(200.0, 300.0, 8).num_rows(), 0);
    }
}
