//! Table `thread_time`: the lives of the program's threads by role, and by what they did.
//!
//! Lives are exact: they are the threads' own microstates. The BPF programs add up the reasons of time off CPU thread
//! by thread as well; rows by object divide those further. Sleeps of which only the time was taken are divided in
//! proportion to the sleeps chosen by chance. So the rows of an interval sum to the lives, whatever was sampled or
//! found no room.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;

use ncpu_schema::{Activity, Microstate, ON_QUEUE, thread_time};
use ncpu_symbols::Recent;
use ncpu_table::Table;

use super::ThreadKey;
use super::bounds::{Names, OTHERS_NAME};
use super::locks::LockTables;
use crate::engine::{FutexClass, Life, ThreadOut, TimeRow, role_hash};
use crate::names::{Symbols, call_name};

/// Roles of an interval that have rows of their own: those with most time.
const ROLES: usize = 48;
/// Objects of a role's activity, of which the largest have rows of their own.
const OBJECTS: usize = 8;
/// Chosen sleeps of a role that are kept for the next intervals.
const CHOSEN: usize = 64;
/// Names of roles of a generation.
const NAMES: usize = 1 << 12;

/// The name that backends of PostgreSQL begin with.
const POSTGRES: &str = "postgres";

/// The first thread of a process, as a role.
const MAIN: &str = "main";

const LIVES: usize = 16;

/// The code of call 0 (thread_time.h).
const CALL_CODE: u64 = 2;

/// A wait that an interval's end has cut in two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Wait {
    row: TimeRow,
    ns: u64,
}

/// The state of a thread as last reported.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    by: [u64; LIVES],
    /// On CPU, on run queues, asleep.
    micro: [u64; 3],
    /// Of the time on run queues, what the quota of its control group kept it there.
    held: u64,
    ticks: [u64; 2],
    wait: Option<Wait>,
    missing: u32,
}

impl Told {
    fn of(thread: &ThreadOut) -> Told {
        let ns = |states: &[Microstate]| states.iter().map(|s| thread.micro[*s as usize]).sum();
        use Microstate::{Dfl, Lat, Lck, Slp, Tfl};
        Told {
            by: thread.by,
            micro: [ns(&Microstate::ON_CPU), ns(&[Lat]), ns(&[Tfl, Dfl, Lck, Slp])],
            held: thread.held,
            ticks: [thread.utime, thread.stime],
            wait: (thread.asleep > 0).then(|| Wait {
                row: TimeRow {
                    tgid: thread.tgid,
                    life: Life::new(thread.life),
                    what: thread.what,
                    futex: thread.futex,
                    place: thread.place,
                    class: FutexClass::from(thread.class),
                    event: thread.event,
                    ..TimeRow::default()
                },
                ns: thread.asleep,
            }),
            missing: 0,
        }
    }
}

/// Process and role.
type Role = (String, String);

/// The time of a role's threads in an interval.
#[derive(Debug, Default)]
struct Lived {
    /// ns.
    by: [u64; LIVES],
    cpu: u64,
    queued: u64,
    held: u64,
    ticks: [u64; 2],
    threads: u64,
    /// It is a backend of PostgreSQL.
    latches: bool,
    /// By object: ns that were measured, and the waits' figures. Waits that go on count with what of them lies in the interval.
    objects: HashMap<(u32, Life, u64), Object>,
    /// The same of waits that stand for others.
    chosen: HashMap<(u32, Life, u64), Object>,
}

impl Lived {
    fn asleep(&self) -> u64 {
        self.by.iter().sum()
    }

    fn life(&self) -> u64 {
        self.cpu + self.queued + self.held + self.asleep()
    }

    fn object(&mut self, row: &TimeRow, ns: i64) {
        let objects = if row.stands { &mut self.chosen } else { &mut self.objects };
        match objects.entry((row.tgid, row.life, row.what)) {
            Entry::Occupied(mut have) => {
                have.get_mut().row.add(row);
                let have = have.get_mut();
                have.ns = have.ns.saturating_add(ns);
            }
            Entry::Vacant(free) => {
                free.insert(Object { row: *row, ns });
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Object {
    row: TimeRow,
    ns: i64,
}

/// A part of a role's time.
#[derive(Clone, Debug, Default)]
struct Part {
    seconds: f64,
    sampled: f64,
    row: TimeRow,
}

/// Threads' time.
pub(super) struct ThreadTime {
    /// Threads that have ended since the last interval.
    pub ended: Vec<ThreadOut>,
    told: HashMap<ThreadKey, Told>,
    /// Names of roles by their hash.
    names: Recent<u64, String>,
    lived: HashMap<Role, Lived>,
    /// Sleeps that stood for others, of the last interval of a role in which there were some of their kind.
    chosen: Recent<Role, Vec<Object>>,
    /// Tables in which a thread may be missing before its last record comes.
    most_missing: u32,
}

/// A thread's name in which numbers are one character.
fn role_of(thread: &ThreadOut) -> String {
    if thread.tid == thread.tgid {
        return MAIN.into();
    }
    let mut role = String::new();
    for c in thread.name().chars() {
        match c {
            '0'..='9' if role.ends_with('#') => {}
            '0'..='9' => role.push('#'),
            c => role.push(c),
        }
    }
    role
}

/// The hash that the BPF programs know its role by.
fn hash_of(thread: &ThreadOut) -> u64 {
    let comm: Vec<u8> = thread.comm.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    role_hash(&comm, thread.tid == thread.tgid)
}

impl ThreadTime {
    /// `living` are the threads as the observation begins: their lives count from there.
    pub fn begin(living: &[ThreadOut], most_missing: u32) -> ThreadTime {
        ThreadTime {
            ended: Vec::new(),
            told: living.iter().map(|t| ((t.tid, t.start), Told::of(t))).collect(),
            names: Recent::new(NAMES),
            lived: HashMap::new(),
            chosen: Recent::new(NAMES),
            most_missing,
        }
    }

    /// Takes in what each thread did in the interval.
    pub fn threads(&mut self, once: &[(&ThreadOut, bool)]) {
        let mut before = std::mem::take(&mut self.told);
        for (thread, alive) in once {
            // Of threads of the kernel.
            if thread.allowed == 0 {
                continue;
            }
            let key = (thread.tid, thread.start);
            let was = before.remove(&key).unwrap_or_default();
            let now = Told::of(thread);
            if *alive {
                self.told.insert(key, now);
            }
            let role = role_of(thread);
            self.names.insert(hash_of(thread), role.clone());
            let lived = self.lived.entry((thread.process(), role)).or_default();
            lived.threads += 1;
            lived.latches |= thread.name().starts_with(POSTGRES);
            let [cpu, queued, asleep] = std::array::from_fn(|i| now.micro[i].saturating_sub(was.micro[i]));
            lived.cpu += cpu;
            let held = now.held.saturating_sub(was.held).min(queued);
            lived.queued += queued - held;
            lived.held += held;
            for (sum, i) in lived.ticks.iter_mut().zip(0..) {
                *sum += now.ticks[i].saturating_sub(was.ticks[i]);
            }
            let by = spent(&now.by, &was.by, asleep);
            lived.by.iter_mut().zip(by).for_each(|(sum, ns)| *sum += ns);
            // The part of a wait that was reported before is not reported again.
            for (wait, sign) in [(was.wait, -1), (now.wait, 1)] {
                if let Some(wait) = wait {
                    lived.object(&wait.row, sign * wait.ns as i64);
                }
            }
        }
        for (key, was) in before {
            if was.missing < self.most_missing {
                self.told.insert(key, Told { missing: was.missing + 1, ..was });
            }
        }
    }

    /// The table of the interval.
    pub fn table(
        &mut self,
        t: f64,
        rows: &[TimeRow],
        locks: &mut LockTables,
        symbols: &mut Symbols,
        processes: &Names,
        threads: &Names,
    ) -> Table {
        for row in rows {
            let process = processes.of(row.tgid).unwrap_or_default();
            let role = self.names.get(&row.role).cloned().unwrap_or_default();
            if let Some(lived) = self.lived.get_mut(&(process.to_owned(), role)) {
                lived.object(row, row.ns as i64);
            }
        }
        let mut lived: Vec<(Role, Lived)> = self.lived.drain().filter(|(_, l)| l.life() > 0).collect();
        lived.sort_by(|a, b| b.1.life().cmp(&a.1.life()).then_with(|| a.0.cmp(&b.0)));
        let all_ticks =
            lived.iter().fold([0, 0], |sum: [u64; 2], (_, l)| [sum[0] + l.ticks[0], sum[1] + l.ticks[1]]);
        let mut out = thread_time::Rows::new();
        let mut others: HashMap<Activity, (Part, u64)> = HashMap::new();
        for (at, ((process, role), lived)) in lived.into_iter().enumerate() {
            let pool = lived.threads > 1 && role != MAIN;
            let count = lived.threads;
            let mut parts: HashMap<(Activity, Option<String>), Part> = HashMap::new();
            let mut add = |doing: Activity, what: Option<String>, part: Part| {
                let sum = parts.entry((doing, what)).or_default();
                sum.seconds += part.seconds;
                sum.sampled += part.sampled;
                sum.row.add(&part.row);
            };
            for (doing, seconds) in on_cpu(&lived, all_ticks) {
                add(doing, None, Part { seconds, ..Part::default() });
            }
            for (doing, ns) in [(Activity::RunQueue, lived.queued), (Activity::Quota, lived.held)] {
                add(doing, None, Part { seconds: ns as f64 / 1e9, ..Part::default() });
            }
            let of = (process.clone(), role.clone());
            let before = self.chosen.get(&of).cloned().unwrap_or_default();
            if !lived.chosen.is_empty() {
                self.chosen.insert(of, newest(sorted(&lived.chosen), &before));
            }
            for (object, part) in divided(&lived, &before) {
                let (doing, what) = meaning(&object, pool, locks, symbols);
                add(doing, what, part);
            }
            let mut parts: Vec<_> =
                parts.into_iter().filter(|(_, part)| part.seconds > 0.0 || part.row.count > 0).collect();
            if at >= ROLES {
                for ((doing, _), part) in parts {
                    let (sum, threads) = others.entry(doing).or_default();
                    sum.seconds += part.seconds;
                    sum.sampled += part.sampled;
                    sum.row.add(&TimeRow { holder: 0, vote: 0, ..part.row });
                    *threads += count;
                }
                continue;
            }
            parts.sort_by(|a, b| {
                let by_size = b.1.seconds.total_cmp(&a.1.seconds);
                a.0.0.cmp(&b.0.0).then(by_size).then_with(|| a.0.1.cmp(&b.0.1))
            });
            let mut told: Option<(Activity, usize)> = None;
            let mut rest: Vec<(Activity, Part)> = Vec::new();
            for ((doing, what), part) in parts {
                let number = match told {
                    Some((same, n)) if same == doing => n + 1,
                    _ => 0,
                };
                told = Some((doing, number));
                if number >= OBJECTS {
                    match rest.last_mut().filter(|(same, _)| *same == doing) {
                        Some((_, sum)) => {
                            sum.seconds += part.seconds;
                            sum.sampled += part.sampled;
                            sum.row.add(&part.row);
                        }
                        None => rest.push((doing, part)),
                    }
                    continue;
                }
                push(&mut out, t, (&process, &role, count), doing, what.as_deref(), &part, threads);
            }
            for (doing, part) in rest {
                push(&mut out, t, (&process, &role, count), doing, Some(OTHERS_NAME), &part, threads);
            }
        }
        let mut others: Vec<_> = others.into_iter().collect();
        others.sort_by_key(|(doing, _)| *doing);
        for (doing, (part, count)) in others {
            push(&mut out, t, (OTHERS_NAME, OTHERS_NAME, count), doing, None, &part, threads);
        }
        out.finish()
    }
}

fn push(
    out: &mut thread_time::Rows,
    t: f64,
    (process, role, count): (&str, &str, u64),
    doing: Activity,
    what: Option<&str>,
    part: &Part,
    threads: &Names,
) {
    let row = &part.row;
    // In an interval in which a wait goes on, nobody has ended it yet.
    let holder = (row.holder != 0).then(|| threads.of(row.holder).map(String::from)).flatten();
    let slept = row.held_asleep > 0;
    out.push(thread_time::Row {
        time: Some(t),
        process: process.into(),
        role: role.into(),
        doing: Some(doing),
        what: what.into(),
        seconds: Some(part.seconds),
        sampled: Some(part.sampled),
        threads: Some(count),
        waits: Some(row.count),
        max: Some(row.max as f64 / 1e3),
        holder: holder.into(),
        held: Some(row.held as f64 / 1e9),
        held_asleep: Some(row.held_asleep as f64 / 1e9),
        holder_in: slept.then(|| holder_in(row)).into(),
    });
}

/// The reason of the holder's sleep while others waited for it, or its run queue.
fn holder_in(row: &TimeRow) -> String {
    let kind = match row.asleep_life {
        Life::Futex => "a futex",
        Life::KernelLock => "a kernel lock",
        Life::FileLock => "a file lock",
        Life::Semaphore => "a semaphore",
        Life::MessageQueue => "a message queue",
        Life::Fault => "a page fault",
        Life::Queued => ON_QUEUE,
        _ => {
            return match row.asleep_call.checked_sub(1) {
                Some(call) => call_name(call),
                None => "sleep".into(),
            };
        }
    };
    kind.into()
}

/// How `asleep` ns of an interval are spent by kind of wait. A wait that was reported as one kind while it lasted stays
/// that kind, should it turn out to have been another.
fn spent(now: &[u64; LIVES], was: &[u64; LIVES], asleep: u64) -> [u64; LIVES] {
    let mut by: [u64; LIVES] = std::array::from_fn(|i| now[i].saturating_sub(was[i]));
    let sum: u64 = by.iter().sum();
    if sum < asleep {
        by[Life::Rest as usize] += asleep - sum;
    }
    let mut excess = sum.saturating_sub(asleep);
    while excess > 0 {
        let Some(largest) = by.iter_mut().max() else { break };
        let taken = excess.min(*largest);
        if taken == 0 {
            break;
        }
        *largest -= taken;
        excess -= taken;
    }
    by
}

/// User and kernel code, seconds, as the kernel's ticks divide them; those of all threads where no tick has met the role.
fn on_cpu(lived: &Lived, all: [u64; 2]) -> [(Activity, f64); 2] {
    let part = |[user, system]: [u64; 2]| (user + system > 0).then(|| user as f64 / (user + system) as f64);
    let user = part(lived.ticks).or_else(|| part(all)).unwrap_or(1.0);
    let cpu = lived.cpu as f64 / 1e9;
    [(Activity::User, cpu * user), (Activity::System, cpu * (1.0 - user))]
}

/// Whether the call of a chosen sleep decides its kind. Then the kind of the sleeps that were only timed in this call is known as well,
/// and it stands for no others. The calls of rings (io_uring, libaio) decide nothing: a ring waits for anything.
fn told_by_call(chosen: &TimeRow) -> bool {
    let call = || call_name(chosen.what.saturating_sub(CALL_CODE) as u32);
    let ring = || ["io_uring_enter", "io_getevents", "io_pgetevents"].contains(&&*call());
    match chosen.life {
        Life::Futex | Life::FileLock | Life::Semaphore | Life::MessageQueue | Life::Child => true,
        Life::Timer => !ring(),
        Life::Events | Life::Device | Life::Rest => !ring() && Life::in_call(&call()) == chosen.life,
        _ => false,
    }
}

/// Whether a sleep that was chosen by chance stands for those of this kind that were only timed. A wait that its timeout
/// ended is known as such only where it was followed. With `latches`, no call decides the kind.
fn stands_for(chosen: &TimeRow, life: Life, latches: bool) -> bool {
    let of_call = || Life::in_call(&call_name(chosen.what.saturating_sub(CALL_CODE) as u32));
    match life {
        Life::Passed => latches || !told_by_call(chosen),
        Life::Events | Life::Futex => {
            chosen.life == life || (chosen.life == Life::Timer && of_call() == life)
        }
        life => chosen.life == life,
    }
}

fn sorted(objects: &HashMap<(u32, Life, u64), Object>) -> Vec<Object> {
    // A wait that was reported while it lasted still has to be counted, with the thread that ended it.
    let mut all: Vec<Object> = objects.values().filter(|o| o.ns > 0 || o.row.count > 0).copied().collect();
    all.iter_mut().for_each(|o| o.ns = o.ns.max(0));
    all.sort_by_key(|o| (o.row.tgid, o.row.life, o.row.what));
    all
}

/// Chosen sleeps, with those from before of kinds of which none were chosen since. Of those only what they were for and how long
/// they were is kept: they have been counted.
fn newest(chosen: Vec<Object>, before: &[Object]) -> Vec<Object> {
    let fresh = |life| chosen.iter().any(|o| o.row.life == life);
    let old = before.iter().filter(|o| !fresh(o.row.life)).copied();
    let counted = chosen.iter().map(|o| {
        let TimeRow { tgid, role, life, stands, what, futex, place, class, event, .. } = o.row;
        let row =
            TimeRow { tgid, role, life, stands, what, futex, place, class, event, ..TimeRow::default() };
        Object { row, ns: o.ns }
    });
    let mut all: Vec<Object> = counted.chain(old).collect();
    all.sort_by_key(|o| (std::cmp::Reverse(o.ns), o.row.tgid, o.row.life, o.row.what));
    all.truncate(CHOSEN);
    all
}

/// The sleeps of a role, divided: each part with an object, of which some may not be known. Where none of a kind was chosen in
/// the interval, those chosen `before` say what such sleeps are for.
fn divided(lived: &Lived, before: &[Object]) -> Vec<(TimeRow, Part)> {
    let mut out: Vec<(TimeRow, Part)> = Vec::new();
    let unknown = |life: Life| TimeRow { life, what: 1, stands: true, ..TimeRow::default() };
    let (rows, chosen) = (sorted(&lived.objects), sorted(&lived.chosen));
    for (life, whole) in (0..).map(Life::new).zip(lived.by) {
        let of: Vec<&Object> = rows.iter().filter(|o| o.row.life == life).collect();
        let sum: f64 = of.iter().map(|o| o.ns as f64).sum();
        let whole = whole as f64;
        let scale = if sum > whole { whole / sum } else { 1.0 };
        for object in of {
            let seconds = object.ns as f64 * scale / 1e9;
            out.push((object.row, Part { seconds, sampled: 0.0, row: object.row }));
        }
        let rest = (whole - sum).max(0.0) / 1e9;
        if rest == 0.0 {
            continue;
        }
        let stand = |o: &&Object| o.ns > 0 && stands_for(&o.row, life, lived.latches);
        let mut of: Vec<&Object> = chosen.iter().filter(stand).collect();
        if of.is_empty() {
            of = before.iter().filter(stand).collect();
        }
        let sum: f64 = of.iter().map(|o| o.ns as f64).sum();
        for object in &of {
            let seconds = rest * object.ns as f64 / sum;
            let row = TimeRow { stands: false, ..object.row };
            out.push((row, Part { seconds, sampled: seconds, row }));
        }
        if of.is_empty() {
            let life = if life == Life::Passed { Life::Rest } else { life };
            out.push((unknown(life), Part { seconds: rest, ..Part::default() }));
        }
    }
    out
}

/// The activity that an object stands for in the table, and its name.
pub(super) fn meaning(
    row: &TimeRow,
    pool: bool,
    locks: &mut LockTables,
    symbols: &mut Symbols,
) -> (Activity, Option<String>) {
    let known = row.what > 1;
    let call = || known.then(|| call_name((row.what - CALL_CODE) as u32));
    let lock = |locks: &mut LockTables, symbols: &mut Symbols| {
        // A bare address is not a name: the waiter has not been looked at yet.
        let name = known.then(|| locks.name_of(symbols, row.tgid, row.what).to_string());
        name.filter(|name| !name.starts_with("0x"))
    };
    match row.life {
        // A call that waits for several at a time has no futex that is known by its address.
        Life::Futex if known && row.futex == 0 => (Activity::Thread, Some("futex".into())),
        // A lock, a condition or a thread pool's futex: its waits were not followed.
        Life::Futex if !known && (row.stands || row.count > 0) => (Activity::Thread, Some("futex".into())),
        Life::Futex if !known => (Activity::Idle, None),
        Life::Futex => {
            let of = locks.futex(symbols, row);
            match of.class {
                FutexClass::Lock | FutexClass::SemaphoreLock => (Activity::Lock, Some(of.name)),
                FutexClass::Semaphore => (Activity::Semaphore, Some(of.name)),
                // The first thread of a program in Go is one of its runtime's workers.
                FutexClass::Condition
                    if (pool && !of.meets)
                        || of.caller.as_deref().is_some_and(|c| c.starts_with("runtime.")) =>
                {
                    (Activity::Idle, of.caller)
                }
                _ => (Activity::Thread, of.caller.or(Some("futex".into()))),
            }
        }
        Life::KernelLock => (Activity::KernelLock, known.then(|| locks.kernel_lock(row.what)).flatten()),
        Life::FileLock => (Activity::FileLock, lock(locks, symbols)),
        Life::Semaphore => (Activity::Semaphore, lock(locks, symbols)),
        Life::MessageQueue => (Activity::MessageQueue, lock(locks, symbols)),
        Life::Device => (Activity::Device, call()),
        Life::Fault => (Activity::Fault, None),
        Life::Socket => peer(row.what),
        Life::Pipe => (Activity::Pipe, call()),
        Life::Events => (Activity::Events, call()),
        Life::Timer => (Activity::Timer, call()),
        Life::Child => (Activity::Child, call()),
        Life::Stopped => (Activity::Stopped, None),
        Life::Rest | Life::Passed | Life::ByFile | Life::Queued => (Activity::Rest, call()),
    }
}

/// The peer of a socket, by the code of thread_time.h.
fn peer(code: u64) -> (Activity, Option<String>) {
    let port = code & 0xffff;
    let address = Ipv4Addr::from((code >> 16) as u32);
    match code >> 56 {
        3 => (Activity::Idle, Some(format!("connections to port {port}"))),
        4 => (Activity::Socket, Some(format!("clients of port {port}"))),
        // The kernel's stand-in for addresses of IPv6.
        5 if address == Ipv4Addr::new(127, 0, 0, 6) => (Activity::Socket, Some(format!("[IPv6]:{port}"))),
        5 => (Activity::Socket, Some(format!("{address}:{port}"))),
        _ => (Activity::Socket, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(life: Life, what: u64, ns: u64) -> TimeRow {
        TimeRow { tgid: 7, life, what, ns, count: 1, ..TimeRow::default() }
    }

    fn lived(by: &[(Life, u64)], rows: &[TimeRow]) -> Lived {
        let mut lived = Lived::default();
        by.iter().for_each(|(life, ns)| lived.by[*life as usize] += ns);
        rows.iter().for_each(|row| lived.object(row, row.ns as i64));
        lived
    }

    fn sum(parts: &[(TimeRow, Part)]) -> f64 {
        parts.iter().map(|(_, part)| part.seconds).sum()
    }

    #[test]
    fn what_found_no_room_is_a_part_without_a_name() {
        let parts = divided(
            &lived(&[(Life::FileLock, 3_000_000_000)], &[row(Life::FileLock, 9, 2_000_000_000)]),
            &[],
        );
        let of = |what| parts.iter().find(|(row, _)| row.what == what).map(|(_, part)| part.seconds);
        assert_eq!((of(9), of(1)), (Some(2.0), Some(1.0)));
    }

    #[test]
    fn sleeps_that_were_only_timed_are_divided_as_the_chosen_ones() {
        let stands = |row: TimeRow| TimeRow { stands: true, ..row };
        let call = |name| {
            let is = |nr: &u32| call_name(*nr) == name;
            u64::from((0..500).find(is).expect("a call")) + CALL_CODE
        };
        // The call of the last line decides the kind of all sleeps in it.
        let rows = [
            row(Life::Pipe, 1, 1_000_000_000),
            stands(row(Life::Pipe, 1, 30)),
            stands(row(Life::Device, call("read"), 10)),
            stands(row(Life::Timer, call("nanosleep"), 400)),
        ];
        let parts =
            divided(&lived(&[(Life::Pipe, 1_000_000_000), (Life::Passed, 4_000_000_000)], &rows), &[]);
        let of =
            |life| -> f64 { parts.iter().filter(|(row, _)| row.life == life).map(|(_, p)| p.seconds).sum() };
        assert!((of(Life::Pipe) - 4.0).abs() < 1e-9 && (of(Life::Device) - 1.0).abs() < 1e-9, "{parts:?}");
        assert!((sum(&parts) - 5.0).abs() < 1e-9);
        let sampled: f64 = parts.iter().map(|(_, part)| part.sampled).sum();
        assert!((sampled - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_sleep_that_timed_out_stands_for_those_in_the_same_call() {
        let epoll = (0..500).find(|nr| call_name(*nr) == "epoll_pwait").expect("a call");
        let stands = |life, what, ns| TimeRow { stands: true, ..row(life, what, ns) };
        let rows = [
            stands(Life::Timer, u64::from(epoll) + CALL_CODE, 30),
            stands(Life::Events, u64::from(epoll) + CALL_CODE, 10),
        ];
        let parts = divided(&lived(&[(Life::Events, 4_000_000_000)], &rows), &[]);
        let of =
            |life| -> f64 { parts.iter().filter(|(row, _)| row.life == life).map(|(_, p)| p.seconds).sum() };
        assert!((of(Life::Timer) - 3.0).abs() < 1e-9 && (of(Life::Events) - 1.0).abs() < 1e-9, "{parts:?}");
    }

    #[test]
    fn without_any_chosen_sleep_nothing_is_made_up() {
        let parts = divided(&lived(&[(Life::Passed, 2_000_000_000)], &[]), &[]);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].0.life, parts[0].1.seconds), (Life::Rest, 2.0));
    }

    #[test]
    fn sleeps_of_an_interval_in_which_none_was_chosen_are_for_what_they_were_before() {
        let chosen = |life, what, ns| Object {
            row: TimeRow { stands: true, holder: 3, held: 9, ..row(life, what, ns) },
            ns: ns as i64,
        };
        let first = newest(vec![chosen(Life::Futex, 77, 30), chosen(Life::Pipe, 1, 10)], &[]);
        let before = newest(vec![chosen(Life::Pipe, 2, 5)], &first);
        let kept: Vec<_> = before.iter().map(|o| (o.row.life, o.row.what, o.row.count, o.row.held)).collect();
        assert_eq!(kept, [(Life::Futex, 77, 0, 0), (Life::Pipe, 2, 0, 0)]);
        let parts = divided(&lived(&[(Life::Futex, 2_000_000_000)], &[]), &before);
        let [(of, part)] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!((of.what, part.seconds, part.sampled, part.row.count), (77, 2.0, 2.0, 0));
    }

    #[test]
    fn a_wait_that_turns_out_to_be_another_stays_what_was_told() {
        let mut was = [0; LIVES];
        was[Life::Events as usize] = 500;
        let mut now = [0; LIVES];
        now[Life::Timer as usize] = 800;
        let by = spent(&now, &was, 300);
        assert_eq!((by[Life::Timer as usize], by[Life::Events as usize]), (300, 0));
        assert_eq!(by.iter().sum::<u64>(), 300);
    }

    #[test]
    fn a_wait_that_was_told_while_it_lasted_is_counted_when_it_ends() {
        let mut all = lived(&[(Life::FileLock, 0)], &[TimeRow { holder: 3, ..row(Life::FileLock, 9, 500) }]);
        all.object(&TimeRow { count: 0, ..row(Life::FileLock, 9, 0) }, -500);
        let parts = divided(&all, &[]);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].1.seconds, parts[0].1.row.count, parts[0].1.row.holder), (0.0, 1, 3));
    }

    #[test]
    fn peers_are_named_by_the_servers_port() {
        let code = |kind: u64, address: [u8; 4], port: u64| {
            kind << 56 | u64::from(u32::from_be_bytes(address)) << 16 | port
        };
        let name = |code| peer(code).1;
        assert_eq!(name(code(5, [127, 0, 0, 1], 5432)).as_deref(), Some("127.0.0.1:5432"));
        assert_eq!(name(code(4, [0; 4], 80)).as_deref(), Some("clients of port 80"));
        assert_eq!(peer(code(3, [0; 4], 80)).0, Activity::Idle);
        assert_eq!(name(code(2, [0; 4], 0)), None);
    }

    #[test]
    fn time_on_cpu_is_divided_by_the_ticks_of_the_role_or_of_all() {
        let mut one = Lived { cpu: 4_000_000_000, ticks: [3, 1], ..Lived::default() };
        assert_eq!(on_cpu(&one, [0, 9])[0].1, 3.0);
        one.ticks = [0, 0];
        assert_eq!(on_cpu(&one, [1, 1])[1].1, 2.0);
    }
}
