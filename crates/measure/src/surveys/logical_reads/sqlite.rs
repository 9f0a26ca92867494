//! SQLite, in threads of this process, each with a connection and a page cache of its own.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Done, JOINED, Request, STRIDE, Work};
use crate::failure::Failure;
use crate::library::Library;
use crate::memory::room;
use crate::place;
use crate::runner::{Barrier, cpu_time};

/// The few functions of its C interface that are needed here, as sqlite3.h has them.
#[derive(Clone, Copy)]
struct Api {
    config: unsafe extern "C" fn(c_int, ...) -> c_int,
    open: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    errmsg: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    prepare: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        c_int,
        *mut *mut c_void,
        *mut *const c_char,
    ) -> c_int,
    bind: unsafe extern "C" fn(*mut c_void, c_int, i64) -> c_int,
    step: unsafe extern "C" fn(*mut c_void) -> c_int,
    column: unsafe extern "C" fn(*mut c_void, c_int) -> i64,
    reset: unsafe extern "C" fn(*mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
    status: unsafe extern "C" fn(*mut c_void, c_int, *mut c_int, *mut c_int, c_int) -> c_int,
    version: unsafe extern "C" fn() -> *const c_char,
}

const ROW: c_int = 100;
const DONE: c_int = 101;
/// Read and write, create, no mutex: a connection is one thread's.
const FLAGS: c_int = 0x2 | 0x4 | 0x8000;
const CACHE_HIT: c_int = 7;
const CACHE_MISS: c_int = 8;

impl Api {
    fn load() -> Result<Api, Failure> {
        let library = Library::open("libsqlite3.so.0").map_err(|e| {
            Failure::Lacks(format!("SQLite is not here (Debian: apt-get install libsqlite3-0): {e}"))
        })?;
        let l = &library;
        // SAFETY: the functions of these names have these types since SQLite 3.6.
        let api = unsafe {
            Api {
                config: l.function(c"sqlite3_config")?,
                open: l.function(c"sqlite3_open_v2")?,
                close: l.function(c"sqlite3_close")?,
                errmsg: l.function(c"sqlite3_errmsg")?,
                prepare: l.function(c"sqlite3_prepare_v2")?,
                bind: l.function(c"sqlite3_bind_int64")?,
                step: l.function(c"sqlite3_step")?,
                column: l.function(c"sqlite3_column_int64")?,
                reset: l.function(c"sqlite3_reset")?,
                finalize: l.function(c"sqlite3_finalize")?,
                status: l.function(c"sqlite3_db_status")?,
                version: l.function(c"sqlite3_libversion")?,
            }
        };
        // No count of allocated memory, for all threads would share its lock. Refused once it is in use: then
        // it was set before.
        // SAFETY: option 9 takes an int.
        unsafe { (api.config)(9, 0 as c_int) };
        Ok(api)
    }
}

/// A connection.
struct Connection {
    api: Api,
    at: *mut c_void,
}

/// A prepared statement of a connection that lives longer.
struct Statement<'a> {
    of: &'a Connection,
    at: *mut c_void,
}

impl Connection {
    fn open(api: Api, file: &Path, cache: u64) -> Result<Connection, Failure> {
        use std::os::unix::ffi::OsStrExt;
        let path = CString::new(file.as_os_str().as_bytes()).map_err(|e| Failure::Failed(e.to_string()))?;
        let mut at = std::ptr::null_mut();
        // SAFETY: a text that ends in a zero, and room for the handle; no special file system.
        let code = unsafe { (api.open)(path.as_ptr(), &raw mut at, FLAGS, std::ptr::null()) };
        let connection = Connection { api, at };
        connection.check(code, "opening the database")?;
        // Negative: kilobytes.
        connection.execute(&format!("PRAGMA cache_size=-{}", cache >> 10))?;
        Ok(connection)
    }

    fn check(&self, code: c_int, doing: &str) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a handle, even one that failed to open, has a message that ends in a zero.
        let why = unsafe { CStr::from_ptr((self.api.errmsg)(self.at)) };
        Err(Failure::Failed(format!("{doing}: {}", why.to_string_lossy())))
    }

    fn prepare(&self, sql: &str) -> Result<Statement<'_>, Failure> {
        let text = CString::new(sql).map_err(|e| Failure::Failed(e.to_string()))?;
        let mut at = std::ptr::null_mut();
        // SAFETY: a live connection, a text that ends in a zero, room for the statement.
        let code =
            unsafe { (self.api.prepare)(self.at, text.as_ptr(), -1, &raw mut at, std::ptr::null_mut()) };
        self.check(code, sql)?;
        Ok(Statement { of: self, at })
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.prepare(sql)?.run(None).map(|_| ())
    }

    /// A counter of the page cache since it was last asked.
    fn counter(&self, which: c_int) -> u64 {
        let (mut now, mut peak) = (0, 0);
        // SAFETY: a live connection and room for both numbers.
        unsafe { (self.api.status)(self.at, which, &raw mut now, &raw mut peak, 1) };
        now as u32 as u64
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: its statements are gone, since they borrow it.
        unsafe { (self.api.close)(self.at) };
    }
}

impl Statement<'_> {
    /// Runs it to its end, with a parameter, and gives its last row's first number.
    fn run(&mut self, parameter: Option<i64>) -> Result<i64, Failure> {
        let api = self.of.api;
        let mut answer = 0;
        // SAFETY: a live statement; a row has a column where there is a row.
        unsafe {
            if let Some(p) = parameter {
                self.of.check((api.bind)(self.at, 1, p), "binding")?;
            }
            let code = loop {
                match (api.step)(self.at) {
                    ROW => answer = (api.column)(self.at, 0),
                    code => break code,
                }
            };
            if code != DONE {
                self.of.check(code, "a query")?;
            }
            (api.reset)(self.at);
        }
        Ok(answer)
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: a live statement, once.
        unsafe { (self.of.api.finalize)(self.at) };
    }
}

/// Results of a session: queries, hits, misses, begin and end, CPU seconds.
type Session = (u64, u64, u64, (f64, f64), f64);

/// Runs each number of sessions.
pub fn run(r: &Request<'_>, work: &Work, take: &mut dyn FnMut(Done)) -> Result<Vec<String>, Failure> {
    let api = Api::load()?;
    let order = r.plan.place.order(r.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    // A cache for each session, with room to spare so that nothing is thrown out.
    let (most, cache) = (work.sessions.iter().max().copied().unwrap_or(1), 2 * work.bytes + (16 << 20));
    room(most * (work.bytes + work.bytes / 4), r.plan.memory, r.machine, "/".as_ref()).map_err(|e| {
        Failure::Failed(format!(
            "sqlite: {most} sessions, each with a cache of its own: {e}; give a smaller -s or -n"
        ))
    })?;
    let dir = tempfile::Builder::new().prefix("ncpu-sqlite.").tempdir()?;
    let file = dir.path().join("database");
    (r.progress)("sqlite: filling the table");
    fill(&Connection::open(api, &file, cache)?, work.rows)?;
    for &n in &work.sessions {
        if r.stopped() {
            break;
        }
        (r.progress)(&format!("sqlite: {n} sessions"));
        let usable = order.as_ref().map_or(r.machine.online.and(&r.machine.allowed).len(), Vec::len);
        let (barrier, spin, began) = (Barrier::default(), n as usize <= usable, Instant::now());
        let session = |i: usize| -> Result<Session, Failure> {
            let ready = prepare(r, order.as_deref(), i, || Connection::open(api, &file, cache));
            if ready.is_err() {
                barrier.break_up();
            }
            let connection = ready?;
            barrier.wait(n as u32, spin).map_err(|_| Failure::Failed(String::new()))?;
            hammer(r, &connection, work, i as u64, began)
        };
        let outcomes: Vec<Result<Session, Failure>> = std::thread::scope(|scope| {
            let session = &session;
            let started: Vec<_> = (0..n as usize)
                .map(|i| std::thread::Builder::new().spawn_scoped(scope, move || session(i)))
                .collect();
            if started.iter().any(Result::is_err) {
                barrier.break_up();
            }
            let dead = |_| Err(Failure::Failed("sqlite: a session panicked".into()));
            started.into_iter().map(|t| t?.join().unwrap_or_else(dead)).collect()
        });
        // The failure that has words is the one the others follow from.
        if let Some(Err(failure)) =
            outcomes.iter().find(|o| matches!(o, Err(f) if *f != Failure::Failed(String::new())))
        {
            return Err(failure.clone());
        }
        let all = outcomes.into_iter().collect::<Result<Vec<Session>, _>>()?;
        let spans: Vec<(f64, f64)> = all.iter().map(|s| s.3).collect();
        take(Done {
            sessions: n,
            queries: all.iter().map(|s| s.0).sum(),
            reads: all.iter().map(|s| s.1 + s.2).sum(),
            misses: all.iter().map(|s| s.2).sum(),
            seconds: super::elapsed(&spans),
            cpu_seconds: all.iter().map(|s| s.4).sum(),
        });
    }
    // SAFETY: a constant text that ends in a zero.
    let version = unsafe { CStr::from_ptr((api.version)()) };
    Ok(vec![format!("SQLite {}: a page cache for each session", version.to_string_lossy())])
}

fn fill(c: &Connection, rows: u64) -> Result<(), Failure> {
    for sql in [
        "PRAGMA page_size=8192".to_string(),
        "PRAGMA journal_mode=OFF".into(),
        "PRAGMA synchronous=OFF".into(),
        "CREATE TABLE t (k INT, other INT, v INT, pad TEXT)".into(),
        format!(
            "INSERT INTO t WITH RECURSIVE n(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k + 1 < {rows}) \
             SELECT k, k * {STRIDE} % {rows}, 1, printf('%080d', k) FROM n"
        ),
        "CREATE UNIQUE INDEX t_k ON t (k)".into(),
        "ANALYZE".into(),
    ] {
        c.execute(&sql)?;
    }
    Ok(())
}

/// Puts the session's thread in its place and its memory too, and reads the whole table and index into its cache.
fn prepare(
    r: &Request<'_>,
    order: Option<&[u32]>,
    index: usize,
    open: impl FnOnce() -> Result<Connection, Failure>,
) -> Result<Connection, Failure> {
    let told = |e: place::PlaceError| Failure::Failed(e.to_string());
    if let Some(order) = order {
        place::bind(order[index % order.len()]).map_err(told)?;
    }
    r.plan.memory.apply(r.machine).map_err(told)?;
    let connection = open()?;
    connection.execute("SELECT sum(v) FROM t NOT INDEXED")?;
    connection.execute("SELECT count(k) FROM t INDEXED BY t_k")?;
    Ok(connection)
}

fn hammer(
    r: &Request<'_>,
    c: &Connection,
    work: &Work,
    seed: u64,
    began: Instant,
) -> Result<Session, Failure> {
    // Cross join: SQLite takes the tables in this order.
    let sql = format!(
        "SELECT sum(b.v) FROM t a CROSS JOIN t b ON b.k = a.other WHERE a.k BETWEEN ?1 AND ?1 + {}",
        JOINED - 1
    );
    let mut query = c.prepare(&sql)?;
    let mut random = crate::random::Random::new(0x9e37_79b9_7f4a_7c15 ^ (seed + 1));
    let (_, _) = (c.counter(CACHE_HIT), c.counter(CACHE_MISS));
    let (mut queries, mut hits, mut misses) = (0, 0, 0);
    let at = |t: Instant| t.duration_since(began).as_secs_f64();
    let (begin, cpu) = (Instant::now(), cpu_time());
    let mut last = begin;
    while last - begin < work.time && !r.stopped() {
        let from = random.below((work.rows - JOINED) as usize) as i64;
        let sum = query.run(Some(from))?;
        if sum != JOINED as i64 {
            return Err(Failure::Failed(format!("sqlite: {JOINED} rows were to be joined, {sum} were")));
        }
        queries += 1;
        // Its counters have 32 bits.
        hits += c.counter(CACHE_HIT);
        misses += c.counter(CACHE_MISS);
        last = Instant::now();
    }
    let cpu = Duration::from_nanos(cpu_time() - cpu).as_secs_f64();
    Ok((queries, hits, misses, (at(begin), at(last)), cpu))
}
