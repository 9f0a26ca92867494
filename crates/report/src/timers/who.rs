//! Who arms timers: exact counts by handler and process, divided among callers as the walked stacks
//! divide.

use ncpu_table::{Column, Kind, Table, Unit};

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A handler, process and caller.
    Caller,
    /// A handler.
    Function,
    /// A process.
    Process,
}

/// Columns that are summed, as in table `timer_arms`.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    starts: f64,
    cancels: f64,
    expires: f64,
    distance: f64,
    handler: f64,
    longest: f64,
}

impl Sums {
    fn of(table: &Table, row: usize) -> Sums {
        let number = |column: &str| table.number(row, column).unwrap_or(0.0);
        Sums {
            starts: number("starts"),
            cancels: number("cancels"),
            expires: number("expires"),
            distance: number("distance"),
            handler: number("handler"),
            longest: number("longest"),
        }
    }

    fn add(&mut self, other: Sums) {
        self.starts += other.starts;
        self.cancels += other.cancels;
        self.expires += other.expires;
        self.distance += other.distance;
        self.handler += other.handler;
        self.longest = self.longest.max(other.longest);
    }

    fn scaled(self, by: f64) -> Sums {
        Sums {
            starts: self.starts * by,
            cancels: self.cancels * by,
            expires: self.expires * by,
            distance: self.distance * by,
            handler: self.handler * by,
            longest: self.longest,
        }
    }
}

/// The table people see. `arms` and `callers` are tables `timer_arms` and `timer_callers`; rates are of
/// `elapsed` seconds. With [`By::Caller`] there is a last column `stack`.
///
/// # Errors
/// The tables lack a column they are grouped by.
pub fn who(arms: &Table, callers: &Table, elapsed: f64, by: By) -> ncpu_table::Result<Table> {
    let keys: &[&str] = match by {
        By::Caller => &["process", "pid", "function", "caller"],
        By::Function => &["function", "by"],
        By::Process => &["process", "pid"],
    };
    let mut columns: Vec<Column> = keys
        .iter()
        .map(|&key| {
            let from = if key == "caller" { callers } else { arms };
            from.index(key).map(|i| from.columns()[i].clone())
        })
        .collect::<Result<_, _>>()?;
    let float = Column::float;
    columns.extend([
        float("starts", Unit::PerSecond, Kind::Count, "times armed"),
        float("for", Unit::Milliseconds, Kind::Mean, "mean time from arming to the time asked for"),
        float(
            "cancel",
            Unit::Percent,
            Kind::Share,
            "share that was taken off, or armed anew, before it expired",
        ),
        float("cpu", Unit::Percent, Kind::Time, "time in the handler, of one CPU"),
        float("mean", Unit::Microseconds, Kind::Mean, "mean run of the handler"),
        float("longest", Unit::Microseconds, Kind::Peak, "longest run of the handler"),
    ]);
    let rows: Vec<(Table, usize, Option<usize>, Sums)> = match by {
        By::Caller => divided(arms, callers),
        _ => {
            let grouped = arms.group_by(keys)?;
            (0..grouped.num_rows()).map(|r| (grouped.clone(), r, None, Sums::of(&grouped, r))).collect()
        }
    };
    if by == By::Caller {
        columns.push(Column::text("stack", "frames, innermost first"));
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| rows[b].3.starts.total_cmp(&rows[a].3.starts));
    let mut out = Table::builder("who", &columns);
    let elapsed = elapsed.max(f64::MIN_POSITIVE);
    for i in order {
        let (table, at, caller, sums) = &rows[i];
        let mut row = out.row();
        for &key in keys {
            row = match key {
                "pid" => row.int_opt(table.int(*at, key)),
                "caller" => row.text_opt(caller.and_then(|c| callers.text(c, key))),
                _ => row.text_opt(table.text(*at, key)),
            };
        }
        let per = |sum: f64, of: f64| (of > 0.0).then(|| sum / of);
        row = row
            .float(sums.starts / elapsed)
            .float_opt(per(sums.distance * 1e3, sums.starts))
            .float_opt(per(sums.cancels * 100.0, sums.starts))
            .float(100.0 * sums.handler / elapsed)
            .float_opt(per(sums.handler * 1e6, sums.expires))
            .float_opt((sums.expires > 0.0).then_some(sums.longest * 1e6));
        if by == By::Caller {
            row.text_opt(caller.and_then(|c| callers.text(c, "stack")));
        }
    }
    Ok(out.finish())
}

/// Each exact row divided among its callers; whole where no stack of it was walked.
fn divided(arms: &Table, callers: &Table) -> Vec<(Table, usize, Option<usize>, Sums)> {
    let key = |t: &Table, r: usize| {
        let text = |column: &str| t.text(r, column).map(str::to_string);
        (text("function"), text("by"), t.int(r, "pid"), text("process"))
    };
    let mut out = Vec::new();
    for row in 0..arms.num_rows() {
        let (this, all) = (key(arms, row), Sums::of(arms, row));
        // Stacks of one caller are one row, which shows the first of them, the most frequent.
        let mut mine: Vec<(usize, Sums)> = Vec::new();
        for c in (0..callers.num_rows()).filter(|&c| key(callers, c) == this) {
            let (name, sums) = (callers.text(c, "caller"), Sums::of(callers, c));
            match mine.iter_mut().find(|(first, _)| callers.text(*first, "caller") == name) {
                Some((_, of)) => of.add(sums),
                None => mine.push((c, sums)),
            }
        }
        let walked: f64 = mine.iter().map(|(_, of)| of.starts).sum();
        if walked <= 0.0 {
            out.push((arms.clone(), row, None, all));
            continue;
        }
        for (c, of) in mine {
            // One caller has all of it, to the last event; of several each has its part of the sample.
            let sums = if of.starts >= walked { all } else { of.scaled(all.starts / walked) };
            out.push((arms.clone(), row, Some(c), sums));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arms(callers: bool) -> Vec<Column> {
        let mut columns = vec![
            Column::text("function", ""),
            Column::text("by", ""),
            Column::id("pid", ""),
            Column::text("process", ""),
        ];
        if callers {
            columns.extend([Column::text("caller", ""), Column::text("stack", "")]);
        }
        columns.extend(["starts", "cancels", "expires"].map(|n| Column::count(n, "")));
        columns.extend(["distance", "handler"].map(|n| Column::float(n, Unit::Seconds, Kind::Time, "")));
        columns.push(Column::float("longest", Unit::Seconds, Kind::Peak, ""));
        columns
    }

    fn tables() -> (Table, Table) {
        let mut a = Table::builder("timer_arms", &arms(false));
        a.row()
            .text("wakeup")
            .text("hrtimer")
            .int(7)
            .text("db")
            .int(1000)
            .int(250)
            .int(750)
            .float(10.0)
            .float(0.003)
            .float(1e-5);
        a.row()
            .text("tick")
            .text("hrtimer")
            .null()
            .text("[interrupt]")
            .int(500)
            .int(0)
            .int(500)
            .float(2.0)
            .float(0.001)
            .float(2e-5);
        let mut c = Table::builder("timer_callers", &arms(true));
        c.row()
            .text("wakeup")
            .text("hrtimer")
            .int(7)
            .text("db")
            .text("poll < a")
            .text("x;y")
            .int(30)
            .int(0)
            .int(30)
            .float(0.3)
            .float(0.0)
            .float(1e-5);
        c.row()
            .text("wakeup")
            .text("hrtimer")
            .int(7)
            .text("db")
            .text("futex < b")
            .text("x;z")
            .int(10)
            .int(10)
            .int(0)
            .float(0.1)
            .float(0.0)
            .float(0.0);
        (a.finish(), c.finish())
    }

    #[test]
    fn callers_share_what_was_counted() {
        let (arms, callers) = tables();
        let t = who(&arms, &callers, 10.0, By::Caller).unwrap();
        assert_eq!(t.num_rows(), 3);
        let starts: f64 = (0..3).filter_map(|r| t.number(r, "starts")).sum();
        assert_eq!(starts, 150.0, "nothing is lost");
        assert_eq!((t.text(0, "caller"), t.number(0, "starts")), (Some("poll < a"), Some(75.0)));
        assert_eq!((t.text(1, "caller"), t.number(1, "starts")), (None, Some(50.0)), "no stack was walked");
        assert_eq!((t.text(2, "caller"), t.number(2, "cancel")), (Some("futex < b"), Some(100.0)));
        assert!((t.number(0, "for").unwrap() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn grouped_by_handler_or_process() {
        let (arms, callers) = tables();
        let t = who(&arms, &callers, 10.0, By::Function).unwrap();
        assert_eq!(
            (t.num_rows(), t.text(0, "function"), t.number(0, "cancel")),
            (2, Some("wakeup"), Some(25.0))
        );
        assert!((t.number(1, "mean").unwrap() - 2.0).abs() < 1e-9);
        let t = who(&arms, &callers, 10.0, By::Process).unwrap();
        assert_eq!((t.num_rows(), t.text(1, "process"), t.int(1, "pid")), (2, Some("[interrupt]"), None));
    }
}
