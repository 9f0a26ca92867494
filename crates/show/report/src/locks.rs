//! Kernel locks by lock, caller or process, with the share of capacity spent spinning for each.

use std::collections::{BTreeMap, HashMap};

use ncpu_record::Recording;
use ncpu_schema::{
    CpuState, Error, SampleClass, cpu_time, lock_callers, locks, samples, summary, user_locks,
};
use ncpu_table::{Builder, Column, Kind, Table, Unit};

/// The unit that a row of the locks table is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A lock and the function that asked for it.
    #[default]
    LockAndCaller,
    /// A lock.
    Lock,
    /// A function that asks for locks.
    Caller,
    /// A process.
    Process,
}

/// Sums of one row.
#[derive(Clone, Debug, Default)]
struct Sums {
    count: f64,
    spin: f64,
    block: f64,
    max: f64,
    /// Variance of the count, of waits that were counted in windows.
    variance: f64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.count += other.count;
        self.spin += other.spin;
        self.block += other.block;
        self.max = self.max.max(other.max);
        self.variance += other.variance;
    }
}

/// The locks of a recording, most time spent waiting on CPU first.
///
/// Counts and times by lock and process are exact, or scaled from windows where there were too many. Callers are known of the
/// contentions whose stack was walked; each lock's exact totals are divided among its callers in the proportion of those
/// (`walked` says how many there were). `CPU-util` is `lockutil`'s:
/// count × mean spin / (elapsed × CPUs × 1e9).
///
/// `depth` > 0 adds a column `stack` with at most `depth` frames, innermost first, `;` between them.
///
/// # Errors
/// A table is not what the schema says.
pub fn table(recording: &Recording, by: By, depth: usize) -> Result<Table, Error> {
    let mut columns = Vec::new();
    if by != By::Caller && by != By::Process {
        columns.push(Column::text("lock", "name of the lock"));
        columns.push(Column::text("type", "spinlock, mutex, rwsem …; :R and :W are readers and writers"));
    }
    match by {
        By::LockAndCaller | By::Caller => {
            columns.push(Column::text("caller", "the function that asked for it"))
        }
        By::Process => columns.push(Column::text("process", "the waiting process")),
        By::Lock => {}
    }
    columns.extend([
        Column::float("CPU-util", Unit::Share, Kind::Share, "share of capacity spent spinning for it"),
        Column::count("count", "contended acquisitions"),
        Column::float("spin", Unit::Seconds, Kind::Time, "time waiting on CPU"),
        Column::float("spin_us", Unit::Microseconds, Kind::Mean, "mean of it"),
        Column::float("block", Unit::Seconds, Kind::Time, "time waiting off CPU"),
        Column::float("block_us", Unit::Microseconds, Kind::Mean, "mean of it"),
        Column::float("max", Unit::Microseconds, Kind::Peak, "longest wait"),
    ]);
    let with_callers = matches!(by, By::LockAndCaller | By::Caller);
    if with_callers {
        columns.push(Column::count("walked", "contentions behind the caller's share"));
    }
    // Where all were counted there is nothing to say.
    let scaled = is_scaled(recording)?;
    if scaled {
        let meaning =
            "half-width of the 95 % interval of count, which is scaled, as the times are; 0 is exact";
        columns.push(Column::float("+-", Unit::None, Kind::Count, meaning));
    }
    if depth > 0 && by == By::LockAndCaller {
        columns.push(Column::text("stack", "callers, innermost first"));
    }
    let mut out = Table::builder("locks", &columns);
    let capacity = capacity(recording);

    if !is_traced(recording) {
        return by_samples(recording, by, with_callers, depth, out);
    }
    let mut rows: Vec<(Vec<String>, Sums, u64, String)> = match by {
        By::Lock => exact(recording, LOCK)?.into_iter().map(plain).collect(),
        By::Process => exact(recording, PROCESS)?.into_iter().map(plain).collect(),
        By::LockAndCaller => divided(recording, depth)?,
        By::Caller => by_caller(divided(recording, 0)?),
    };
    rows.sort_by(|a, b| (b.1.spin + b.1.block).total_cmp(&(a.1.spin + a.1.block)));
    rows.sort_by(|a, b| b.1.spin.total_cmp(&a.1.spin));
    for (keys, sums, walked, stack) in rows {
        let mut row = out.row();
        for key in keys {
            row = row.text(key);
        }
        let mean = |s: f64| if sums.count > 0.0 { s * 1e6 / sums.count } else { 0.0 };
        row = row
            .float(sums.spin / capacity.max(f64::MIN_POSITIVE))
            .int(sums.count.round() as u64)
            .float(sums.spin)
            .float(mean(sums.spin))
            .float(sums.block)
            .float(mean(sums.block))
            .float(sums.max);
        if with_callers {
            row = row.int(walked);
        }
        if scaled {
            row = row.float(half_width(sums.variance));
        }
        if depth > 0 && by == By::LockAndCaller {
            row.text(stack);
        }
    }
    Ok(out.finish())
}

/// Whether waits for kernel locks were traced, and not only sampled.
pub fn is_traced(recording: &Recording) -> bool {
    recording.manifest.view.is_none()
}

/// The name of locks that are known only by samples of waiting code.
const SAMPLED: &str = "[sampled]";

/// Time in the slow paths of kernel locks by the function that asked, where nothing was traced: neither locks nor counts are known.
fn by_samples(
    recording: &Recording,
    by: By,
    with_callers: bool,
    depth: usize,
    mut out: Builder,
) -> Result<Table, Error> {
    let hz = summary::Reader::open(recording)?.and_then(|s| s.hz.get(0)).unwrap_or(0);
    let mut spins: BTreeMap<String, u64> = BTreeMap::new();
    if let Some(t) = samples::Reader::open(recording)? {
        for r in t.rows() {
            if let (Some(CpuState::Program), Some(SampleClass::LockSpin)) = (t.at.get(r), t.class.get(r)) {
                let key = match by {
                    By::LockAndCaller | By::Caller => t.detail.get(r),
                    By::Process => t.process.get(r),
                    By::Lock => None,
                };
                *spins.entry(key.unwrap_or("").to_string()).or_default() += t.samples.get(r).unwrap_or(0);
            }
        }
    }
    let mut rows: Vec<(String, u64)> = spins.into_iter().collect();
    rows.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    let capacity = capacity(recording);
    for (key, samples) in rows.into_iter().filter(|_| hz > 0) {
        let mut row = out.row();
        if matches!(by, By::LockAndCaller | By::Lock) {
            row = row.text(SAMPLED).text_opt(None::<&str>);
        }
        if by != By::Lock {
            row = row.text(key);
        }
        let spin = samples as f64 / hz as f64;
        row = row.float(spin / capacity.max(f64::MIN_POSITIVE)).int_opt(None).float(spin);
        row = row.float_opt(None).float_opt(None).float_opt(None).float_opt(None);
        if with_callers {
            row = row.int_opt(None);
        }
        if depth > 0 && by == By::LockAndCaller {
            row.text_opt(None::<&str>);
        }
    }
    Ok(out.finish())
}

/// Columns of table `locks` that name a lock.
const LOCK: &[&str] = &[locks::col::lock, locks::col::ty];
/// The column that names a process.
const PROCESS: &[&str] = &[locks::col::process];

/// Keys, sums, contentions walked, stack.
type Counted = (Vec<String>, Sums, u64, String);
/// Caller, stack, sums of the walked contentions.
type Walked = (String, String, Sums);

fn plain((keys, sums): (Vec<String>, Sums)) -> Counted {
    (keys, sums, 0, String::new())
}

/// Whether waits for kernel locks were counted in windows and scaled.
///
/// # Errors
/// The table is not what the schema says.
pub(crate) fn is_scaled(recording: &Recording) -> Result<bool, Error> {
    let table = locks::Reader::open(recording)?;
    Ok(table.is_some_and(|t| t.error.max().is_some_and(|error| error > 0.0)))
}

/// Standard errors in the half-width of a 95 % interval.
const HALF_WIDTH: f64 = 1.96;

/// Half-width of the 95 % interval of what has this variance.
fn half_width(variance: f64) -> f64 {
    HALF_WIDTH * variance.sqrt()
}

/// The words of a row's key.
fn names(t: &locks::Reader<'_>, row: usize, keys: &[&str]) -> Vec<String> {
    let columns = [(locks::col::lock, t.lock), (locks::col::ty, t.ty), (locks::col::process, t.process)];
    let of_key = columns.iter().filter(|(name, _)| keys.contains(name));
    of_key.map(|(_, column)| column.get(row).unwrap_or("?").to_string()).collect()
}

/// The variance of each row of the exact table put together by `keys`. Rows of an interval were scaled by one factor,
/// so their errors add up; those of different intervals do not.
fn variances(recording: &Recording, keys: &[&str]) -> Result<HashMap<Vec<String>, f64>, Error> {
    let mut variances = HashMap::new();
    let by_time = [keys, &[locks::col::time]].concat();
    if !is_scaled(recording)? {
        return Ok(variances);
    }
    let Some(grouped) = ncpu_schema::grouped(recording, locks::NAME, &by_time)? else { return Ok(variances) };
    let t = locks::Reader::grouped(&grouped)?;
    for r in t.rows() {
        let error = t.error.get(r).unwrap_or(0.0) / HALF_WIDTH;
        *variances.entry(names(&t, r, keys)).or_default() += error * error;
    }
    Ok(variances)
}

/// Half-widths of the 95 % intervals of the counts of locks, by name and type.
///
/// # Errors
/// The table is not what the schema says.
pub(crate) fn errors(recording: &Recording) -> Result<HashMap<Vec<String>, f64>, Error> {
    Ok(variances(recording, LOCK)?.into_iter().map(|(k, v)| (k, half_width(v))).collect())
}

/// CPU-seconds observed.
pub fn capacity(recording: &Recording) -> f64 {
    match cpu_time::Reader::open(recording) {
        Ok(Some(times)) => CpuState::ALL.iter().map(|&state| times.spent.sum(state)).sum(),
        // A recording without it has no capacity to compare with.
        _ => 0.0,
    }
}

/// The exact table put together by `keys`.
fn exact(recording: &Recording, keys: &[&str]) -> Result<Vec<(Vec<String>, Sums)>, Error> {
    let Some(grouped) = ncpu_schema::grouped(recording, locks::NAME, keys)? else { return Ok(Vec::new()) };
    let variances = variances(recording, keys)?;
    let t = locks::Reader::grouped(&grouped)?;
    let row = |r| {
        let names = names(&t, r, keys);
        let sums = Sums {
            count: t.count.get(r).unwrap_or(0) as f64,
            spin: t.spin.get(r).unwrap_or(0.0),
            block: t.block.get(r).unwrap_or(0.0),
            max: t.max.get(r).unwrap_or(0.0),
            variance: variances.get(&names).copied().unwrap_or(0.0),
        };
        (names, sums)
    };
    Ok(t.rows().map(row).collect())
}

/// Each lock's exact totals, divided among its callers in proportion to its walked contentions.
fn divided(recording: &Recording, depth: usize) -> Result<Vec<Counted>, Error> {
    use lock_callers::col;
    let keys: &[&str] = match depth {
        0 => &[col::lock, col::ty, col::caller],
        _ => &[col::lock, col::ty, col::caller, col::stack],
    };
    let mut by_lock: HashMap<(String, String), Vec<Walked>> = HashMap::new();
    if let Some(grouped) = ncpu_schema::grouped(recording, lock_callers::NAME, keys)? {
        let t = lock_callers::Reader::grouped(&grouped)?;
        for r in t.rows() {
            let [lock, ty, caller] =
                [t.lock, t.ty, t.caller].map(|column| column.get(r).unwrap_or("?").to_string());
            let stack: Vec<&str> = t.stack.get(r).unwrap_or("").split(';').take(depth).collect();
            let stack = stack.join(";");
            let sums = Sums {
                count: t.walked.get(r).unwrap_or(0) as f64,
                spin: t.spin.get(r).unwrap_or(0.0),
                block: t.block.get(r).unwrap_or(0.0),
                ..Sums::default()
            };
            let callers = by_lock.entry((lock, ty)).or_default();
            // Stacks that differ only deeper than asked are one.
            match callers.iter_mut().find(|(c, s, _)| *c == caller && *s == stack) {
                Some((_, _, have)) => have.add(&sums),
                None => callers.push((caller, stack, sums)),
            }
        }
    }
    let mut out = Vec::new();
    for (keys, total) in exact(recording, LOCK)? {
        let (lock, kind) = (keys[0].clone(), keys[1].clone());
        let Some(callers) = by_lock.remove(&(lock.clone(), kind.clone())) else {
            out.push((vec![lock, kind, "[not walked]".into()], total, 0, String::new()));
            continue;
        };
        let mut all = Sums::default();
        callers.iter().for_each(|(_, _, s)| all.add(s));
        let part = |exact: f64, of: f64, all: f64, count: f64| {
            // Where the walked ones took no such time at all, their counts decide.
            if all > 0.0 { exact * of / all } else { exact * count }
        };
        for (caller, stack, s) in callers {
            let count = s.count / all.count.max(1.0);
            let sums = Sums {
                count: total.count * count,
                spin: part(total.spin, s.spin, all.spin, count),
                block: part(total.block, s.block, all.block, count),
                max: total.max,
                variance: total.variance * count * count,
            };
            out.push((vec![lock.clone(), kind.clone(), caller], sums, s.count as u64, stack));
        }
    }
    Ok(out)
}

fn by_caller(rows: Vec<Counted>) -> Vec<Counted> {
    let mut out: Vec<Counted> = Vec::new();
    for (keys, sums, walked, _) in rows {
        let caller = keys.into_iter().nth(2).unwrap_or_default();
        match out.iter_mut().find(|(k, ..)| k[0] == caller) {
            Some((_, have, n, _)) => {
                have.add(&sums);
                *n += walked;
            }
            None => out.push((vec![caller], sums, walked, String::new())),
        }
    }
    out
}

/// Whether a row of table `user_locks` is of a lock or semaphore, and not of what idle workers wait for.
pub fn is_user_lock(kind: &str) -> bool {
    !matches!(kind, "condition" | "barrier" | "unknown" | "")
}

/// [`is_user_lock`], without the semaphores by which idle workers may wait for work.
pub fn is_held_lock(kind: &str) -> bool {
    is_user_lock(kind) && kind != "semaphore"
}

/// A short name of a user lock: its symbol, else what it is to its users, else where it is waited for, else its address.
pub fn user_lock_name(lock: &str, kind: &str, caller: Option<&str>, pattern: Option<&str>) -> String {
    let known = |text: Option<&str>| text.filter(|t| !t.is_empty()).map(String::from);
    let (caller, pattern) = (known(caller), known(pattern));
    // A place within a larger variable says less than what the lock is.
    let symbol = !lock.is_empty() && !lock.starts_with("0x") && (pattern.is_none() || !lock.contains('+'));
    match (symbol, pattern, caller) {
        (true, Some(pattern), _) if pattern != lock => format!("{lock} ({pattern})"),
        (true, ..) => lock.into(),
        (false, Some(pattern), _) => pattern,
        (false, None, Some(caller)) => format!("{} in {caller}", if kind.is_empty() { "lock" } else { kind }),
        (false, None, None) => lock.into(),
    }
}

/// The user locks of a recording (futexes that are locks or semaphores; all with `every`), longest
/// waited for first, semaphores behind the others. `depth` > 0 adds a column `stack` with at most `depth` frames of a
/// waiter. `None` where the recording has no such table.
///
/// # Errors
/// The table is not what the schema says.
pub fn user_table(recording: &Recording, every: bool, depth: usize) -> Result<Option<Table>, Error> {
    use user_locks::col;
    let Some(all) = recording.tables.get(user_locks::NAME) else { return Ok(None) };
    // A recording of an older version lacks some columns.
    let has = |name: &str| all.columns().iter().any(|c| c.name == name);
    let (patterns, stacks) = (has(col::pattern), depth > 0 && has(col::stack));
    let mut keys = vec![col::lock, col::ty, col::process, col::pid, col::caller];
    keys.extend(
        [(patterns, col::pattern), (stacks, col::stack)].iter().filter(|(is, _)| *is).map(|(_, c)| *c),
    );
    // A lock has one row however many held it; it names the one that most of the wait is blamed on.
    let by_holder = [&keys[..], &[col::holder]].concat();
    let grouped = |keys| ncpu_schema::grouped(recording, user_locks::NAME, keys);
    let (Some(grouped), Some(by_holder)) = (grouped(&keys)?, grouped(&by_holder)?) else { return Ok(None) };
    let (t, held) = (user_locks::Reader::grouped(&grouped)?, user_locks::Reader::grouped(&by_holder)?);
    // Where all were counted, that needs no column.
    let errors = user_locks::Reader::grouped(all)?.error;
    let scaled = errors.max().is_some_and(|error| error > 0.0);
    let waited = |t: &user_locks::Reader<'_>, r| t.block.get(r).unwrap_or(0.0) + t.spin.get(r).unwrap_or(0.0);
    let mut holders: HashMap<UserKey<'_>, usize> = HashMap::new();
    for r in held.rows().filter(|&r| held.holder.get(r).is_some()) {
        let most = holders.entry(user_key(&held, r)).or_insert(r);
        if waited(&held, r) > waited(&held, *most) {
            *most = r;
        }
    }
    let mut rows: Vec<usize> = t.rows().filter(|&r| every || t.ty.get(r).is_some_and(is_user_lock)).collect();
    // Most semaphores are where idle workers wait for work: no thread holds them as a lock.
    let for_work = |r: usize| t.ty.get(r) == Some("semaphore");
    rows.sort_by(|&a, &b| for_work(a).cmp(&for_work(b)).then(waited(&t, b).total_cmp(&waited(&t, a))));
    let mut columns = vec![
        Column::text("lock", "static variable, or address, of the lock or its futex word"),
        Column::text(
            "type",
            "of futexes: lock, semaphore, condition or unknown; mutex, queue lock and rwlock are libncpu's",
        ),
        Column::text("process", "the waiting process"),
        Column::id("pid", "its ID"),
        Column::text("caller", "where it waits"),
        Column::text("holder", "the thread most of the wait is blamed on: it ended the waits"),
        Column::count("count", "waits"),
    ];
    if scaled {
        columns.push(Column::float(
            "+-",
            Unit::None,
            Kind::Count,
            "half-width of the 95 % interval of count, which is scaled, as the times are; 0 is exact",
        ));
    }
    columns.extend([
        Column::float("spin", Unit::Seconds, Kind::Time, "time waiting on CPU, where the lock tells"),
        Column::float("spin_us", Unit::Microseconds, Kind::Mean, "mean of it"),
        Column::float("block", Unit::Seconds, Kind::Time, "time waiting off CPU, all threads"),
        Column::float("block_us", Unit::Microseconds, Kind::Mean, "mean of it"),
        Column::float("max", Unit::Microseconds, Kind::Peak, "longest wait"),
    ]);
    if patterns {
        columns.push(Column::text("pattern", "what the lock is to its users, by a waiter's stack"));
    }
    if stacks {
        columns.push(Column::text("stack", "callers of a waiter, innermost first"));
    }
    let mut out = Table::builder("user_locks", &columns);
    for r in rows {
        let n = t.count.get(r).unwrap_or(0);
        let mean = |s: f64| s * 1e6 / n.max(1) as f64;
        let spin = t.spin.get(r).filter(|_| !is_futex(t.ty.get(r).unwrap_or("")));
        let block = t.block.get(r).unwrap_or(0.0);
        let holder = holders.get(&user_key(&t, r)).and_then(|&h| held.holder.get(h));
        let mut cells = out
            .row()
            .text_opt(t.lock.get(r))
            .text_opt(t.ty.get(r))
            .text_opt(t.process.get(r))
            .int_opt(t.pid.get(r))
            .text_opt(t.caller.get(r))
            .text_opt(holder)
            .int(n);
        if scaled {
            cells = cells.float_opt(t.error.get(r));
        }
        let mut cells = cells
            .float_opt(spin)
            .float_opt(spin.map(mean))
            .float(block)
            .float(mean(block))
            .float_opt(t.max.get(r));
        if patterns {
            cells = cells.text_opt(t.pattern.get(r));
        }
        if stacks {
            let frames: Vec<&str> = t.stack.get(r).unwrap_or("").split(';').take(depth).collect();
            cells.text(frames.join(";"));
        }
    }
    Ok(Some(out.finish()))
}

/// Names of a user lock, and the process that waits for it.
type UserKey<'a> = ([Option<&'a str>; 6], Option<u64>);

fn user_key<'a>(t: &user_locks::Reader<'a>, r: usize) -> UserKey<'a> {
    ([t.lock, t.ty, t.process, t.caller, t.pattern, t.stack].map(|column| column.get(r)), t.pid.get(r))
}

/// Of a lock known only by its futex, nobody knows how long its waiters spun.
pub(crate) fn is_futex(kind: &str) -> bool {
    matches!(kind, "lock" | "semaphore" | "condition" | "unknown" | "")
}

/// Samples in lock slow paths inside traced waits and outside them, in CPU-seconds: the second
/// estimate, with its own blind spots (code that runs with interrupts off) beside the first's (the
/// pending-bit waiter of a spinlock, an rwsem writer's spinning).
///
/// # Errors
/// A table is not what the schema says.
pub fn second_estimate(recording: &Recording) -> Result<Option<(f64, f64)>, Error> {
    let summary = summary::Reader::open(recording)?;
    let hz = summary.and_then(|s| s.hz.get(0)).filter(|hz| *hz > 0);
    let (Some(hz), Some(t)) = (hz, samples::Reader::open(recording)?) else { return Ok(None) };
    let (mut inside, mut outside) = (0, 0);
    for r in t.rows() {
        let n = t.samples.get(r).unwrap_or(0);
        match (t.at.get(r), t.class.get(r)) {
            (Some(CpuState::Spin), _) => inside += n,
            (Some(CpuState::Program), Some(SampleClass::LockSpin)) => outside += n,
            _ => {}
        }
    }
    Ok(Some((inside as f64 / hz as f64, outside as f64 / hz as f64)))
}

#[cfg(test)]
mod tests {
    use ncpu_record::Manifest;

    use ncpu_schema::user_locks;

    use super::*;
    use crate::fixtures;

    /// Two locks: one whose 1,000 waits were walked ten times, one never walked. 10 CPU-s observed.
    fn recording() -> Recording {
        let locks = fixtures::table(
            "locks",
            &["lock", "type", "process"],
            &["count", "spin", "block", "max"],
            &[
                (&["a", "mutex", "db"], &[600.0, 0.5, 3.0, 7.0]),
                (&["a", "mutex", "web"], &[400.0, 0.5, 1.0, 9.0]),
                (&["b", "spinlock", "web"], &[5.0, 0.25, 0.0, 1.0]),
            ],
        );
        let callers = fixtures::table(
            "lock_callers",
            &["lock", "type", "process", "caller", "stack"],
            &["walked", "spin", "block"],
            &[
                (&["a", "mutex", "db", "f", "f;g;h"], &[6.0, 0.003, 0.0]),
                (&["a", "mutex", "db", "f", "f;g;i"], &[2.0, 0.0, 0.0]),
                (&["a", "mutex", "web", "k", "k"], &[2.0, 0.001, 0.0]),
            ],
        );
        let cpu_time = fixtures::table(
            "cpu_time",
            &[],
            &["CPU", "idle", "target", "spin"],
            &[(&[], &[0.0, 5.0, 3.0, 2.0])],
        );
        [locks, callers, cpu_time].into_iter().fold(empty(), Recording::with)
    }

    fn empty() -> Recording {
        Recording::new(Manifest::new(ncpu_schema::Purpose::Locks, 1, Vec::new(), 1.0))
    }

    #[test]
    fn exact_totals_are_divided_among_callers_and_none_is_lost() {
        let t = table(&recording(), By::LockAndCaller, 0).unwrap();
        let row = |caller: &str| (0..t.num_rows()).find(|&r| t.text(r, "caller") == Some(caller)).unwrap();
        assert_eq!(t.int(row("f"), "count"), Some(800));
        assert_eq!(t.number(row("f"), "spin"), Some(0.75), "by the time walked, not by the count");
        assert_eq!(t.number(row("f"), "block"), Some(3.2), "none walked blocked: by the count");
        assert_eq!(t.int(row("f"), "walked"), Some(8));
        assert_eq!(t.text(row("[not walked]"), "lock"), Some("b"));
        let sum = |c: &str| (0..t.num_rows()).filter_map(|r| t.number(r, c)).sum::<f64>();
        assert!(
            (sum("spin") - 1.25).abs() < 1e-9 && (sum("block") - 4.0).abs() < 1e-9 && sum("count") == 1005.0
        );
        assert!((t.number(row("f"), "CPU-util").unwrap() - 0.075).abs() < 1e-9);
    }

    #[test]
    fn by_lock_by_caller_by_process() {
        let r = recording();
        let t = table(&r, By::Lock, 0).unwrap();
        assert_eq!((t.num_rows(), t.text(0, "lock"), t.number(0, "max")), (2, Some("a"), Some(9.0)));
        let t = table(&r, By::Process, 0).unwrap();
        assert_eq!((t.text(0, "process"), t.number(0, "spin")), (Some("web"), Some(0.75)));
        let t = table(&r, By::Caller, 0).unwrap();
        assert_eq!(t.num_rows(), 3);
    }

    #[test]
    fn user_locks_are_ranked_by_the_whole_wait() {
        let mut user = user_locks::Rows::new();
        let rows = [
            ("futex", "lock", None, 2.0, "db/8"),
            ("spun", "mutex", Some(3.0), 1.0, "db/8"),
            ("spun", "mutex", Some(0.5), 0.0, "db/9"),
            ("idle", "condition", None, 9.0, "db/8"),
        ];
        for (lock, ty, spin, block, holder) in rows {
            user.push(user_locks::Row {
                lock: lock.into(),
                ty: ty.into(),
                process: "db".into(),
                pid: Some(7),
                caller: "f".into(),
                holder: holder.into(),
                count: Some(2),
                wakes: Some(2),
                spin,
                block: Some(block),
                max: Some(9.0),
                stack: "a;b;c".into(),
                ..user_locks::Row::default()
            });
        }
        let recording = empty().with(user.finish());
        let t = user_table(&recording, false, 0).unwrap().unwrap();
        assert_eq!((t.num_rows(), t.text(0, "lock"), t.text(1, "lock")), (2, Some("spun"), Some("futex")));
        assert_eq!(
            (t.int(0, "count"), t.number(0, "spin"), t.number(0, "block")),
            (Some(4), Some(3.5), Some(1.0))
        );
        assert_eq!(t.text(0, "holder"), Some("db/8"), "who held it most, in the lock's one row");
        assert_eq!(t.number(0, "spin_us"), Some(875_000.0));
        assert_eq!(t.number(1, "spin"), None, "a futex does not tell");
        let t = user_table(&recording, true, 2).unwrap().unwrap();
        assert_eq!((t.num_rows(), t.text(0, "lock"), t.text(0, "stack")), (3, Some("idle"), Some("a;b")));
    }

    #[test]
    fn a_user_lock_has_the_name_that_says_most() {
        let name = |lock, caller, pattern| user_lock_name(lock, "lock", caller, pattern);
        assert_eq!(name("0x7f00", Some("take_gil"), Some("GIL")), "GIL");
        assert_eq!(name("_PyRuntime+0x1b8", None, Some("GIL")), "GIL");
        assert_eq!(name("table_lock", Some("f"), Some("Rust Mutex")), "table_lock (Rust Mutex)");
        assert_eq!(name("ProcArray", None, Some("ProcArray")), "ProcArray");
        assert_eq!(name("heap+0x8", Some("f"), None), "heap+0x8");
        assert_eq!(name("0x7f00", Some("push"), None), "lock in push");
        assert_eq!(name("0x7f00", None, None), "0x7f00");
    }

    #[test]
    fn stacks_are_told_apart_no_deeper_than_asked() {
        let t = table(&recording(), By::LockAndCaller, 2).unwrap();
        let stacks: Vec<_> = (0..t.num_rows()).filter_map(|r| t.text(r, "stack")).collect();
        assert!(stacks.contains(&"f;g") && !stacks.contains(&"f;g;h"), "{stacks:?}");
        let t = table(&recording(), By::LockAndCaller, 3).unwrap();
        assert_eq!((0..t.num_rows()).filter(|&r| t.text(r, "caller") == Some("f")).count(), 2);
    }
}
