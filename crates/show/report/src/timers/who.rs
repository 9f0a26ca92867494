//! The code that arms timers: exact counts by handler and process, divided among callers in proportion to
//! the walked stacks.

use ncpu_schema::{TimerKind, timer_arms, timer_callers};
use ncpu_table::{Column, Kind, Table, Unit};

/// The unit that a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A handler, process and caller.
    Caller,
    /// A handler.
    Function,
    /// A process.
    Process,
}

/// The owner of timers. Fields that a row sums over are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Key<'a> {
    function: Option<&'a str>,
    by: Option<TimerKind>,
    process: Option<&'a str>,
    pid: Option<u64>,
    caller: Option<&'a str>,
}

/// Sums of counts.
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

/// A row: whose timers, the first of their stacks, and what was counted.
type Armed<'a> = (Key<'a>, Option<&'a str>, Sums);

/// The key and the sums of a row; tables `timer_arms` and `timer_callers` share these columns.
macro_rules! armed {
    ($table:expr, $row:expr) => {{
        let (table, row) = ($table, $row);
        let count = |n: Option<u64>| n.unwrap_or(0) as f64;
        let key = Key {
            function: table.function.get(row),
            by: table.by.get(row),
            process: table.process.get(row),
            pid: table.pid.get(row),
            caller: None,
        };
        let sums = Sums {
            starts: count(table.starts.get(row)),
            cancels: count(table.cancels.get(row)),
            expires: count(table.expires.get(row)),
            distance: table.distance.get(row).unwrap_or(0.0),
            handler: table.handler.get(row).unwrap_or(0.0),
            longest: table.longest.get(row).unwrap_or(0.0),
        };
        (key, sums)
    }};
}

/// The table people see; rates are of `elapsed` seconds. With [`By::Caller`] there is a last column `stack`.
pub fn who<'a>(
    arms: &timer_arms::Reader<'a>,
    callers: &timer_callers::Reader<'a>,
    elapsed: f64,
    by: By,
) -> Table {
    let mut rows = match by {
        By::Caller => divided(arms, callers),
        By::Function => grouped(arms, |key| Key { function: key.function, by: key.by, ..Key::default() }),
        By::Process => grouped(arms, |key| Key { process: key.process, pid: key.pid, ..Key::default() }),
    };
    rows.sort_by(|(.., a), (.., b)| b.starts.total_cmp(&a.starts));
    let mut out = Table::builder("who", &columns(by));
    let elapsed = elapsed.max(f64::MIN_POSITIVE);
    for (key, stack, sums) in rows {
        let row = match by {
            By::Function => out.row().text_opt(key.function).text_opt(key.by.map(TimerKind::name)),
            By::Process => out.row().text_opt(key.process).int_opt(key.pid),
            By::Caller => {
                let row = out.row().text_opt(key.process).int_opt(key.pid);
                row.text_opt(key.function).text_opt(key.caller)
            }
        };
        let per = |sum: f64, of: f64| (of > 0.0).then(|| sum / of);
        let row = row
            .float(sums.starts / elapsed)
            .float_opt(per(sums.distance * 1e3, sums.starts))
            .float_opt(per(sums.cancels * 100.0, sums.starts))
            .float(100.0 * sums.handler / elapsed)
            .float_opt(per(sums.handler * 1e6, sums.expires))
            .float_opt((sums.expires > 0.0).then_some(sums.longest * 1e6));
        if by == By::Caller {
            row.text_opt(stack);
        }
    }
    out.finish()
}

fn columns(by: By) -> Vec<Column> {
    let process = || Column::text("process", "its name; [interrupt] where an interrupt armed it");
    let pid = || Column::id("pid", "process that armed it");
    let function = || Column::text("function", "the timer's handler");
    let mut columns = match by {
        By::Function => vec![function(), Column::text("by", "what expires it: hrtimer or tick")],
        By::Process => vec![process(), pid()],
        By::Caller => vec![
            process(),
            pid(),
            function(),
            Column::text("caller", "who arms it: the system call or kernel function, and the program's own"),
        ],
    };
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
    if by == By::Caller {
        columns.push(Column::text("stack", "frames, innermost first"));
    }
    columns
}

/// Rows of the same key put together.
fn grouped<'a>(arms: &timer_arms::Reader<'a>, of: impl Fn(Key<'a>) -> Key<'a>) -> Vec<Armed<'a>> {
    let mut rows: Vec<Armed<'a>> = Vec::new();
    for row in arms.rows() {
        let (key, sums) = armed!(arms, row);
        let key = of(key);
        match rows.iter_mut().find(|(known, ..)| *known == key) {
            Some((.., all)) => all.add(sums),
            None => rows.push((key, None, sums)),
        }
    }
    rows
}

/// Each exact row divided among its callers; whole where no stack of it was walked.
fn divided<'a>(arms: &timer_arms::Reader<'a>, callers: &timer_callers::Reader<'a>) -> Vec<Armed<'a>> {
    let mut rows = Vec::new();
    for row in arms.rows() {
        let (this, all) = armed!(arms, row);
        // Stacks of one caller are one row, which shows the first of them, the most frequent.
        let mut mine: Vec<Armed<'a>> = Vec::new();
        for c in callers.rows() {
            let (key, sums) = armed!(callers, c);
            if key != this {
                continue;
            }
            let caller = callers.caller.get(c);
            match mine.iter_mut().find(|(known, ..)| known.caller == caller) {
                Some((.., of)) => of.add(sums),
                None => mine.push((Key { caller, ..this }, callers.stack.get(c), sums)),
            }
        }
        let walked: f64 = mine.iter().map(|(.., of)| of.starts).sum();
        if walked <= 0.0 {
            rows.push((this, None, all));
            continue;
        }
        for (key, stack, of) in mine {
            // One caller has all of it, to the last event; of several each has its part of the sample.
            let sums = if of.starts >= walked { all } else { of.scaled(all.starts / walked) };
            rows.push((key, stack, sums));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> (Table, Table) {
        let mut arms = timer_arms::Rows::new();
        arms.push(timer_arms::Row {
            function: "wakeup".into(),
            by: Some(TimerKind::High),
            pid: Some(7),
            process: "db".into(),
            starts: Some(1000),
            cancels: Some(250),
            expires: Some(750),
            distance: Some(10.0),
            handler: Some(0.003),
            longest: Some(1e-5),
            ..Default::default()
        });
        arms.push(timer_arms::Row {
            function: "tick".into(),
            by: Some(TimerKind::High),
            process: "[interrupt]".into(),
            starts: Some(500),
            cancels: Some(0),
            expires: Some(500),
            distance: Some(2.0),
            handler: Some(0.001),
            longest: Some(2e-5),
            ..Default::default()
        });
        let mut callers = timer_callers::Rows::new();
        let mut caller = |caller: &str, stack: &str, [starts, cancels, expires]: [u64; 3], distance| {
            callers.push(timer_callers::Row {
                function: "wakeup".into(),
                by: Some(TimerKind::High),
                pid: Some(7),
                process: "db".into(),
                caller: caller.into(),
                stack: stack.into(),
                starts: Some(starts),
                cancels: Some(cancels),
                expires: Some(expires),
                distance: Some(distance),
                ..Default::default()
            });
        };
        caller("poll < a", "x;y", [30, 0, 30], 0.3);
        caller("futex < b", "x;z", [10, 10, 0], 0.1);
        (arms.finish(), callers.finish())
    }

    fn table(by: By) -> Table {
        let (arms, callers) = tables();
        let arms = timer_arms::Reader::of(&arms).unwrap();
        who(&arms, &timer_callers::Reader::of(&callers).unwrap(), 10.0, by)
    }

    #[test]
    fn callers_share_what_was_counted() {
        let t = table(By::Caller);
        assert_eq!(t.num_rows(), 3);
        let starts: f64 = (0..3).filter_map(|r| t.number(r, "starts")).sum();
        assert_eq!(starts, 150.0, "nothing is lost");
        assert_eq!((t.text(0, "caller"), t.number(0, "starts")), (Some("poll < a"), Some(75.0)));
        assert_eq!((t.text(0, "process"), t.text(0, "stack")), (Some("db"), Some("x;y")));
        assert_eq!((t.text(1, "caller"), t.number(1, "starts")), (None, Some(50.0)), "no stack was walked");
        assert_eq!((t.text(2, "caller"), t.number(2, "cancel")), (Some("futex < b"), Some(100.0)));
        assert!((t.number(0, "for").unwrap() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn grouped_by_handler_or_process() {
        let t = table(By::Function);
        assert_eq!(
            (t.num_rows(), t.text(0, "function"), t.text(0, "by"), t.number(0, "cancel")),
            (2, Some("wakeup"), Some("hrtimer"), Some(25.0))
        );
        assert!((t.number(1, "mean").unwrap() - 2.0).abs() < 1e-9);
        let t = table(By::Process);
        assert_eq!((t.num_rows(), t.text(1, "process"), t.int(1, "pid")), (2, Some("[interrupt]"), None));
    }
}
