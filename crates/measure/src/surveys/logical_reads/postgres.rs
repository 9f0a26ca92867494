//! PostgreSQL, as a server of our own in a private directory: made, started and stopped here.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ncpu_machine::process::{self, Stat};

use super::{Done, JOINED, Request, STRIDE, Work};
use crate::failure::Failure;
use crate::memory::room;
use crate::place::{self, Memory};
use crate::wait;

/// The message where PostgreSQL is missing.
const LACKS: &str = "PostgreSQL is not here (Debian: apt-get install postgresql)";

/// Runs each number of sessions.
pub fn run(r: &Request<'_>, work: &Work, take: &mut dyn FnMut(Done)) -> Result<Vec<String>, Failure> {
    let bin = programs("/".as_ref(), std::env::var_os("PATH")).ok_or_else(|| Failure::Lacks(LACKS.into()))?;
    let order = r.plan.place.order(r.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    let most = work.sessions.iter().max().copied().unwrap_or(1);
    // The table, its index and a working set of 8 MB for each session.
    room(2 * work.bytes + most * (8 << 20) + (256 << 20), r.plan.memory, r.machine, "/".as_ref())
        .map_err(|e| Failure::Failed(format!("postgres: {e}; give a smaller -s or -n")))?;
    (r.progress)("postgres: starting a server");
    let mut server = Server::start(&bin, r, work, most)?;
    (r.progress)("postgres: filling the table");
    let mut control = server.session()?;
    for sql in filling(work.rows) {
        control.ask(&sql)?;
    }
    if r.plan.memory == Memory::Local && r.machine.nodes.len() > 1 {
        drop(control);
        (r.progress)("postgres: dealing the buffer cache to the nodes");
        server.restart(r)?;
        deal(&server, r)?;
        control = server.session()?;
    }
    let version = control.ask("SHOW server_version;")?.join(" ");
    // All of it into the cache: an index that was just built is not there yet.
    control.ask(&format!("{PLAN} SELECT sum(v) FROM t WHERE k >= 0;"))?;
    let expected = reads_of_a_query(&mut control, work.rows)?;
    // A session reports its counts when it ends.
    drop(control);
    let mut control = server.session()?;
    let mut notes =
        vec![format!("PostgreSQL {version}: one buffer cache of {} for all sessions", server.buffers)];
    for &n in &work.sessions {
        if r.stopped() {
            break;
        }
        (r.progress)(&format!("postgres: {n} sessions"));
        let Some(done) = sessions(&server, &mut control, r, work, n, order.as_deref())? else { break };
        // What EXPLAIN (BUFFERS) says of a query; where in the table it begins makes a small difference.
        let counted = done.reads as f64 / done.queries.max(1) as f64;
        if (counted / expected - 1.0).abs() > 0.05 {
            notes.push(format!(
                "{n} sessions: {counted:.0} reads a query by pg_statio, but {expected:.0} by EXPLAIN (BUFFERS)"
            ));
        }
        take(done);
    }
    Ok(notes)
}

/// Where initdb, postgres and psql are: the newest of Debian's, or those of PATH.
fn programs(root: &Path, path: Option<OsString>) -> Option<PathBuf> {
    let has = |dir: &PathBuf| ["initdb", "postgres", "psql"].iter().all(|p| dir.join(p).is_file());
    let versions = std::fs::read_dir(root.join("usr/lib/postgresql")).into_iter().flatten().flatten();
    let number = |dir: &PathBuf| {
        dir.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let mut dirs: Vec<PathBuf> = versions.map(|d| d.path()).collect();
    dirs.sort_by(|a, b| number(b).total_cmp(&number(a)));
    let path = path.unwrap_or_default();
    dirs.into_iter().map(|d| d.join("bin")).chain(std::env::split_paths(&path)).find(has)
}

/// User and group to run the server as: it refuses to be root's.
fn user(passwd: &str, euid: u32) -> Option<(u32, u32)> {
    if euid != 0 {
        return None;
    }
    let of = |name: &str| {
        passwd.lines().find_map(|l| {
            let mut fields = l.split(':');
            (fields.next() == Some(name)).then_some(())?;
            Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
        })
    };
    // 65534 is nobody.
    of("postgres").or_else(|| of("nobody")).or(Some((65534, 65534)))
}

/// A server; with it go its processes and its directory.
struct Server {
    process: Option<Child>,
    bin: PathBuf,
    dir: tempfile::TempDir,
    user: Option<(u32, u32)>,
    buffers: String,
}

impl Server {
    fn start(bin: &Path, r: &Request<'_>, work: &Work, most: u64) -> Result<Server, Failure> {
        let dir = tempfile::Builder::new().prefix("ncpu-pg.").tempdir()?;
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        // SAFETY: no arguments.
        let user = user(&passwd, unsafe { libc::geteuid() });
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid))?;
        }
        // A scan of more than a quarter of the buffers would go round in a few of them.
        let megabytes = ((6 * work.bytes) >> 20).max(512);
        let buffers = format!("{megabytes} MiB");
        let mut server = Server { process: None, bin: bin.into(), dir, user, buffers };
        let data = server.data();
        let out = server
            .command("initdb", &Memory::Default, r)
            .args(["--no-sync", "--auth=trust", "--username=ncpu", "--locale=C", "--encoding=UTF8", "-D"])
            .arg(&data)
            .output()
            .map_err(|e| {
                let dir = server.dir.path().display();
                let user = user.map_or(String::new(), |(uid, _)| format!(" as user {uid}"));
                Failure::Failed(format!(
                    "initdb{user} in {dir}: {e}; TMPDIR must be a directory open to that user"
                ))
            })?;
        if !out.status.success() {
            return Err(Failure::Failed(format!(
                "initdb: {}",
                last_line(&String::from_utf8_lossy(&out.stderr))
            )));
        }
        let settings = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = {}\n\
             shared_buffers = {megabytes}MB\nfsync = off\nsynchronous_commit = off\nfull_page_writes = off\n\
             wal_level = minimal\nmax_wal_senders = 0\nmax_wal_size = 10GB\nautovacuum = off\njit = off\n\
             max_parallel_workers_per_gather = 0\nbgwriter_lru_maxpages = 0\n",
            server.dir.path().display(),
            most + 10,
        );
        let file = std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf"));
        file.and_then(|mut f| f.write_all(settings.as_bytes()))?;
        server.run(r)?;
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A program of the server's, as its user, with memory from there.
    fn command(&self, program: &str, memory: &Memory, r: &Request<'_>) -> Command {
        let mut command = Command::new(self.bin.join(program));
        // The terminal's Ctrl-C is for us.
        command.current_dir(self.dir.path()).stdin(Stdio::null()).process_group(0);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        let (memory, machine) = (*memory, r.machine.clone());
        // SAFETY: between fork and exec only system calls are made, beside the few words of a list of nodes.
        unsafe {
            command.pre_exec(move || {
                // SIGQUIT: an immediate shutdown, should we be killed.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGQUIT);
                memory.apply(&machine).map_err(std::io::Error::other)
            });
        }
        command
    }

    fn run(&mut self, r: &Request<'_>) -> Result<(), Failure> {
        let log = std::fs::File::create(self.dir.path().join("log"))?;
        let process = self
            .command("postgres", &r.plan.memory, r)
            .arg("-D")
            .arg(self.data())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|e| Failure::Failed(format!("postgres: {e}")))?;
        self.process = Some(process);
        let mut answers = false;
        wait::until(Duration::from_secs(60), Duration::from_millis(100), || {
            answers = self.session().and_then(|mut s| s.ask("SELECT 1;")).is_ok();
            let ended = self.process.as_mut().and_then(|p| p.try_wait().ok().flatten());
            Ok::<_, Failure>(answers || ended.is_some() || r.stopped())
        })?;
        if answers {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        Err(Failure::Failed(format!("postgres does not start: {}", last_line(&log))))
    }

    fn restart(&mut self, r: &Request<'_>) -> Result<(), Failure> {
        // SIGINT: a fast shutdown, which writes all that is in the cache.
        self.stop(libc::SIGINT);
        self.run(r)
    }

    fn stop(&mut self, signal: i32) {
        let Some(mut process) = self.process.take() else { return };
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(process.id() as i32, signal) };
        if !wait::ended(&mut process, Duration::from_secs(10), Duration::from_millis(10)) {
            // Its group, with the processes that it started. It may be gone by now.
            // SAFETY: the process group made for it.
            unsafe { libc::kill(-(process.id() as i32), libc::SIGKILL) };
            let _ = process.wait();
        }
    }

    fn session(&self) -> Result<Session, Failure> {
        let mut psql = Command::new(self.bin.join("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "ncpu", "-d", "postgres", "-h"])
            .arg(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| Failure::Failed(format!("psql: {e}")))?;
        let (Some(to), Some(out)) = (psql.stdin.take(), psql.stdout.take()) else {
            return Err(Failure::Failed("psql has no pipes".into()));
        };
        Ok(Session { psql, to: Some(to), from: BufReader::new(Box::new(out)) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(libc::SIGQUIT);
    }
}

/// CPU seconds that a process of one thread has used, from its /proc/PID/schedstat, or else from its stat.
fn cpu(pid: i32) -> f64 {
    let read = |name: &str| process::read(format!("/proc/{pid}/{name}").as_ref()).unwrap_or_default();
    let exact =
        String::from_utf8_lossy(&read("schedstat")).split(' ').next().and_then(|w| w.parse::<f64>().ok());
    if let Some(nanos) = exact {
        return nanos / 1e9;
    }
    // SAFETY: no pointers.
    ticks(&read("stat")) / unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64
}

/// Clock ticks of user and system time in a /proc/PID/stat.
fn ticks(stat: &[u8]) -> f64 {
    let times = Stat::parse(stat).and_then(|stat| stat.times());
    times.map_or(0.0, |[user, system, ..]| (user + system) as f64)
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("no word why")
}

/// A psql that is talked to.
struct Session {
    psql: Child,
    to: Option<ChildStdin>,
    from: BufReader<Box<dyn Read + Send>>,
}

const END: &str = "=== end of answer ===";

impl Session {
    fn send(&mut self, sql: &str) -> Result<(), Failure> {
        let to = self.to.as_mut().ok_or_else(|| Failure::Failed("psql is closed".into()))?;
        to.write_all(format!("{sql}\n\\echo {END}\n").as_bytes())
            .map_err(|e| Failure::Failed(format!("talking to psql: {e}")))
    }

    /// The lines of an answer.
    fn receive(&mut self) -> Result<Vec<String>, Failure> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line)? == 0 {
                let mut why = String::new();
                if let Some(mut err) = self.psql.stderr.take() {
                    err.read_to_string(&mut why)?;
                }
                let why = why.lines().find(|l| l.contains("ERROR")).unwrap_or(last_line(&why));
                return Err(Failure::Failed(format!("psql: {why}")));
            }
            let line = line.trim_end();
            if line == END {
                return Ok(lines);
            }
            if !line.is_empty() {
                lines.push(line.into());
            }
        }
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<String>, Failure> {
        self.send(sql)?;
        self.receive()
    }

    /// Answers of one number.
    fn number(&mut self, sql: &str) -> Result<u64, Failure> {
        let answer = self.ask(sql)?.join(" ");
        answer.parse().map_err(|_| Failure::Failed(format!("{sql}: no number but `{answer}`")))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // With its input closed psql ends, unless it waits for an answer.
        self.to = None;
        if !wait::ended(&mut self.psql, Duration::from_millis(500), Duration::from_millis(2)) {
            let _ = self.psql.kill();
            let _ = self.psql.wait();
        }
    }
}

/// The plan that is wanted: for each row of a range, the row it is joined with through the index.
const PLAN: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; \
     SET enable_bitmapscan = off; SET enable_memoize = off; SET enable_material = off; SET enable_sort = off;";

fn query(from: &str) -> String {
    let last = JOINED - 1;
    format!("SELECT sum(b.v) FROM t a JOIN t b ON b.k = a.other WHERE a.k BETWEEN {from} AND {from} + {last}")
}

fn filling(rows: u64) -> Vec<String> {
    let span = rows - JOINED;
    vec![
        "CREATE TABLE t (k int, other int, v int, pad char(80));".into(),
        format!(
            "INSERT INTO t SELECT k, (k::bigint * {STRIDE} % {rows})::int, 1, k::text \
             FROM generate_series(0, {rows} - 1) k;"
        ),
        "CREATE UNIQUE INDEX t_k ON t (k);".into(),
        "VACUUM (FREEZE, ANALYZE) t;".into(),
        "CHECKPOINT;".into(),
        format!(
            "CREATE FUNCTION work(seconds float8) RETURNS text LANGUAGE plpgsql AS $$ \
             DECLARE began timestamptz := clock_timestamp(); n bigint := 0; from_k int; total bigint; \
             BEGIN LOOP \
               from_k := floor(random() * {span})::int; \
               {}; \
               IF total <> {JOINED} THEN RAISE EXCEPTION '{JOINED} rows were to be joined, % were', total; END IF; \
               n := n + 1; \
               EXIT WHEN clock_timestamp() >= began + make_interval(secs => seconds); \
             END LOOP; \
             RETURN n || ' ' || extract(epoch FROM began) || ' ' || extract(epoch FROM clock_timestamp()); \
             END $$;",
            query("from_k").replacen("sum(b.v)", "sum(b.v) INTO total", 1)
        ),
    ]
}

/// Logical reads of a query from the middle of the table.
fn reads_of_a_query(control: &mut Session, rows: u64) -> Result<f64, Failure> {
    let explain =
        format!("{PLAN} EXPLAIN (ANALYZE, BUFFERS, TIMING off) {};", query(&(rows / 2).to_string()));
    // Twice: the first run reads what the planner needs, and sets hint bits.
    control.ask(&explain)?;
    let lines = control.ask(&explain)?;
    shared_buffers(&lines)
        .ok_or_else(|| Failure::Failed(format!("EXPLAIN tells no buffers: {}", lines.join("\n"))))
}

/// Hits and reads of the whole plan, which is the first line that has them.
fn shared_buffers(lines: &[String]) -> Option<f64> {
    let line = lines.iter().find_map(|l| l.trim().strip_prefix("Buffers: shared "))?;
    let of = |name: &str| line.split([' ', ',']).find_map(|w| w.strip_prefix(name)?.parse::<f64>().ok());
    Some(of("hit=").unwrap_or(0.0) + of("read=").unwrap_or(0.0))
}

/// Reads an equal part of the table and its index into the cache from each node, which so gets the memory.
fn deal(server: &Server, r: &Request<'_>) -> Result<(), Failure> {
    let usable = r.machine.online.and(&r.machine.allowed);
    let nodes: Vec<Vec<u32>> = r
        .machine
        .nodes
        .iter()
        .map(|n| n.cpus.and(&usable).iter().collect())
        .filter(|c: &Vec<u32>| !c.is_empty())
        .collect();
    server.session()?.ask("CREATE EXTENSION IF NOT EXISTS pg_prewarm;")?;
    for (i, cpus) in nodes.iter().enumerate() {
        let mut session = server.session()?;
        let pid = session.number("SELECT pg_backend_pid();")? as i32;
        place::bind_thread(pid, cpus).map_err(|e| Failure::Failed(e.to_string()))?;
        for relation in ["t", "t_k"] {
            // Blocks of this node's part, if it has any.
            let n = nodes.len();
            session.ask(&format!(
                "SELECT pg_prewarm('{relation}', 'buffer', 'main', n * {i} / {n}, n * ({i} + 1) / {n} - 1) \
                 FROM (SELECT pg_relation_size('{relation}') / 8192 AS n) size WHERE n >= {n};"
            ))?;
        }
    }
    Ok(())
}

/// Runs `n` sessions at once; `None` if it was stopped.
fn sessions(
    server: &Server,
    control: &mut Session,
    r: &Request<'_>,
    work: &Work,
    n: u64,
    order: Option<&[u32]>,
) -> Result<Option<Done>, Failure> {
    let read = |control: &mut Session| -> Result<(u64, u64), Failure> {
        let of = |what| format!("SELECT heap_blks_{what} + idx_blks_{what} FROM pg_statio_user_tables;");
        control.ask("SELECT pg_stat_clear_snapshot();")?;
        Ok((control.number(&of("hit"))?, control.number(&of("read"))?))
    };
    alone(control)?;
    let before = read(control)?;
    // All wait for a lock, and begin together when it is let go.
    control.ask("SELECT pg_advisory_lock(1);")?;
    let mut all = (0..n).map(|_| server.session()).collect::<Result<Vec<Session>, Failure>>()?;
    for session in &mut all {
        session.send(&format!(
            "{PLAN} SELECT pg_advisory_lock_shared(1);\nSELECT work({});",
            work.time.as_secs_f64()
        ))?;
    }
    let waiting = "FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    let all_wait = wait::until(Duration::from_secs(60), Duration::from_millis(20), || {
        Ok::<_, Failure>(r.stopped() || control.number(&format!("SELECT count(*) {waiting};"))? >= n)
    })?;
    if r.stopped() {
        return Ok(None);
    }
    if !all_wait {
        return Err(Failure::Failed(format!("postgres: {n} sessions did not come up in a minute")));
    }
    let pids: Vec<i32> = control
        .ask(&format!("SELECT pid {waiting} ORDER BY pid;"))?
        .iter()
        .filter_map(|p| p.parse().ok())
        .collect();
    for (i, &pid) in pids.iter().enumerate() {
        if let Some(order) = order {
            place::bind_thread(pid, &order[i % order.len()..][..1])
                .map_err(|e| Failure::Failed(e.to_string()))?;
        }
    }
    let used = || pids.iter().map(|&pid| cpu(pid)).sum::<f64>();
    let before_cpu = used();
    control.ask("SELECT pg_advisory_unlock(1);")?;
    let (tell, told) = mpsc::channel();
    for mut session in all {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let said = session.receive();
            // Given back: a session that ends takes its CPU time with it. Nobody listens after a stop.
            let _ = tell.send((session, said));
        });
    }
    drop(tell);
    let patience = work.time * 2 + Duration::from_secs(60);
    let (began, mut spans, mut queries, mut ended) = (Instant::now(), Vec::new(), 0, Vec::new());
    while (spans.len() as u64) < n {
        if r.stopped() {
            return Ok(None);
        }
        if began.elapsed() > patience {
            return Err(Failure::Failed(format!("postgres: no end after {} s", patience.as_secs())));
        }
        let lines = match told.recv_timeout(Duration::from_millis(100)) {
            Ok((session, said)) => {
                ended.push(session);
                said?
            }
            Err(mpsc::RecvTimeoutError::Timeout) => continue,
            Err(e) => return Err(Failure::Failed(format!("postgres: a session ended: {e}"))),
        };
        let said = lines.last().map_or("", String::as_str);
        let numbers: Vec<f64> = said.split(' ').filter_map(|w| w.parse().ok()).collect();
        let [n, begin, end] = numbers[..] else {
            return Err(Failure::Failed(format!("postgres: a session said `{said}`")));
        };
        queries += n as u64;
        spans.push((begin, end));
    }
    let cpu_seconds = used() - before_cpu;
    drop(ended);
    alone(control)?;
    let after = read(control)?;
    Ok(Some(Done {
        sessions: n,
        queries,
        reads: after.0 + after.1 - before.0 - before.1,
        misses: after.1 - before.1,
        seconds: super::elapsed(&spans),
        cpu_seconds,
    }))
}

/// Waits until all other sessions have ended: then they have told what they counted.
fn alone(control: &mut Session) -> Result<(), Failure> {
    let others = "SELECT count(*) FROM pg_stat_activity \
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();";
    let none = || Ok::<_, Failure>(control.number(others)? == 0);
    match wait::until(Duration::from_secs(30), Duration::from_millis(10), none)? {
        true => Ok(()),
        false => Err(Failure::Failed("postgres: sessions do not end".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_several_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let put = |version: &str, programs: &[&str]| {
            let bin = dir.path().join("usr/lib/postgresql").join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            programs.iter().for_each(|p| std::fs::write(bin.join(p), "").unwrap());
            bin
        };
        assert_eq!(programs(dir.path(), None), None);
        let all = ["initdb", "postgres", "psql"];
        put("9.6", &all);
        let fifteen = put("15", &all);
        put("17", &["psql"]);
        assert_eq!(programs(dir.path(), None), Some(fifteen));
    }

    #[test]
    fn the_server_is_never_roots() {
        let passwd =
            "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\npostgres:x:109:117::/:/bin/sh\n";
        assert_eq!(user(passwd, 0), Some((109, 117)));
        assert_eq!(user("", 0), Some((65534, 65534)));
        assert_eq!(user(passwd, 1000), None);
    }

    #[test]
    fn the_kernels_and_the_planners_words_are_understood() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 5 6 7 8 90 91 120 30 20 0 1 0 5";
        assert_eq!(ticks(stat.as_bytes()), 181.0);
        assert_eq!(ticks(b""), 0.0);
        assert!(cpu(std::process::id() as i32) > 0.0);
        let lines = ["Aggregate (rows=1)".to_string(), "  Buffers: shared hit=4043 read=2".into()];
        assert_eq!(shared_buffers(&lines), Some(4045.0));
        assert_eq!(shared_buffers(&lines[..1]), None);
        assert_eq!(last_line("a\nb\n\n"), "b");
    }
}
