//! Past intervals, as they came but compressed, within a bound.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use ncpu_feed::{Head, Packed};
use ncpu_table::Table;

/// How hard to compress: the fastest makes a sixth of tables already.
const LEVEL: i32 = 1;

/// Bytes of an interval's tables at most, which its compressed form claims.
const MOST: usize = 1 << 30;

/// The limit of all tables' uncompressed bytes, as a multiple of the limit of their compressed bytes. Normal tables have a ratio of
/// 6; names that repeat one character have a ratio of 100 and more, and a request may decompress all intervals.
const UNPACKED: u64 = 16;

/// An interval.
pub struct Held {
    /// Its kind.
    pub head: Head,
    /// Its tables, compressed, one after the other: one block of exactly their size, so that intervals that come and go leave
    /// no holes between others that nothing fits into.
    body: Box<[u8]>,
    /// Where each ends there, and the length that it had.
    tables: Vec<(usize, usize)>,
}

impl Held {
    /// Compresses one.
    ///
    /// # Errors
    /// Compression fails, or its tables are not what the head says.
    pub fn new(interval: &Packed) -> io::Result<Held> {
        let parts = interval.parts()?;
        let mut tables = Vec::with_capacity(parts.len());
        let mut body = Vec::new();
        for (_, part) in parts {
            body.extend(zstd::bulk::compress(part, LEVEL)?);
            tables.push((body.len(), part.len()));
        }
        Ok(Held { head: interval.head.clone(), body: body.as_slice().into(), tables })
    }

    /// Its tables whose names are wanted, with all columns that the schema declares of them.
    ///
    /// # Errors
    /// They are not what they were.
    pub fn tables(&self, wanted: &dyn Fn(&str) -> bool) -> io::Result<Vec<Table>> {
        let mut out = Vec::new();
        let mut begin = 0;
        for ((name, _), (end, length)) in self.head.tables.iter().zip(&self.tables) {
            if wanted(name) {
                let body = zstd::bulk::decompress(&self.body[begin..*end], (*length).min(MOST))?;
                let table = ncpu_feed::table(name, &body)?;
                out.push(match ncpu_schema::definition(name) {
                    Some(declared) => declared.complete(&table).map_err(io::Error::other)?,
                    None => table,
                });
            }
            begin = *end;
        }
        Ok(out)
    }

    /// Bytes of its tables before they were compressed.
    fn unpacked(&self) -> u64 {
        self.tables.iter().map(|(_, length)| *length as u64).sum()
    }

    fn bytes(&self) -> u64 {
        let notes: usize = self.head.notes.iter().map(String::len).sum();
        (size_of::<Held>() + self.body.len() + notes + 96 * self.head.tables.len()) as u64
    }
}

/// Those that are held.
pub struct History {
    held: VecDeque<Arc<Held>>,
    bytes: u64,
    unpacked: u64,
    most: u64,
}

impl History {
    /// Holds at most this number of bytes, but always the newest.
    pub fn new(most: u64) -> History {
        History { held: VecDeque::new(), bytes: 0, unpacked: 0, most }
    }

    /// Adds the newest, and forgets the oldest.
    pub fn add(&mut self, one: Arc<Held>) {
        self.bytes += one.bytes();
        self.unpacked += one.unpacked();
        self.held.push_back(one);
        let too_much =
            |this: &History| this.bytes > this.most || this.unpacked > this.most.saturating_mul(UNPACKED);
        while too_much(self) && self.held.len() > 1 {
            if let Some(oldest) = self.held.pop_front() {
                self.bytes -= oldest.bytes();
                self.unpacked -= oldest.unpacked();
            }
        }
    }

    /// Those that overlap a time, in seconds since 1970.
    pub fn between(&self, from: f64, to: f64) -> Vec<Arc<Held>> {
        let within = |held: &&Arc<Held>| held.head.end > from && held.head.start < to;
        self.held.iter().filter(within).cloned().collect()
    }

    /// From when until when there are any, how many, and their bytes.
    pub fn extent(&self) -> Option<(f64, f64, usize, u64)> {
        let last = self.held.back()?;
        // The clock may have been set back since the first.
        let first = self.held.iter().map(|held| held.head.start).min_by(f64::total_cmp)?;
        Some((first, last.head.end, self.held.len(), self.bytes))
    }

    /// The newest.
    pub fn newest(&self) -> Option<&Arc<Held>> {
        self.held.back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_table::Column;

    fn interval(number: u64, rows: u64) -> Arc<Held> {
        let mut table = Table::builder("locks", &[Column::count("count", "waits")]);
        // Numbers that do not compress.
        for row in 0..rows {
            table.row().int((row + number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        let head = Head { start: number as f64, end: number as f64 + 1.0, ..Head::default() };
        Arc::new(Held::new(&Packed::new(head, &[table.finish()]).unwrap()).unwrap())
    }

    #[test]
    fn the_oldest_are_forgotten_and_the_newest_never() {
        let mut history = History::new(100_000);
        for number in 0..100 {
            history.add(interval(number, 1000));
        }
        let (start, end, count, bytes) = history.extent().unwrap();
        assert_eq!(end, 100.0);
        assert!(bytes <= 100_000 && (8..=13).contains(&count), "{bytes} {count}");
        assert_eq!(start, 100.0 - count as f64);
        history.add(interval(100, 100_000));
        assert_eq!(history.extent().unwrap().2, 1);
        assert_eq!(history.newest().unwrap().tables(&|_| true).unwrap()[0].num_rows(), 100_000);
    }

    #[test]
    fn tables_that_compress_well_are_no_bomb() {
        let mut history = History::new(100_000);
        for number in 0..50 {
            let mut table = Table::builder("stacks", &[Column::text("stack", "frames")]);
            table.row().text("n".repeat(500_000));
            let head = Head { start: f64::from(number), ..Head::default() };
            history.add(Arc::new(Held::new(&Packed::new(head, &[table.finish()]).unwrap()).unwrap()));
            let unpacked: u64 = history.held.iter().map(|held| held.unpacked()).sum();
            assert!(unpacked <= UNPACKED * 100_000 && unpacked == history.unpacked, "{unpacked}");
        }
        assert_eq!(history.extent().unwrap().2, 3);
    }

    #[test]
    fn intervals_are_found_by_time() {
        let mut history = History::new(1 << 20);
        (0..10).for_each(|number| history.add(interval(number, 1)));
        let starts =
            |from, to| -> Vec<f64> { history.between(from, to).iter().map(|held| held.head.start).collect() };
        assert_eq!(starts(2.5, 4.0), [2.0, 3.0]);
        assert_eq!(starts(9.0, 1e9), [9.0]);
        assert!(starts(10.0, 11.0).is_empty() && starts(3.0, 2.0).is_empty());
    }
}
