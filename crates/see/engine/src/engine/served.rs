//! Requests of clients, as the BPF programs counted them.

use std::collections::HashMap;

use super::functions::CalledFunction;
use super::layout::{ClientRequest, FutexClass, RequestSlot, quarter};
use super::thread_time::{Life, TimeRow};
use super::{Engine, layout};
use crate::names::call_name;

/// `LIFE_N` of engine.h.
const LIVES: u32 = layout::LIVES as u32;

/// A kind of wait of a request (`enum request_wait` of engine.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RequestWait {
    /// Its thread slept.
    Asleep(Life),
    /// For a CPU.
    Queued,
    /// For a CPU, while the quota of its thread's control group was used up.
    Held,
    /// In the socket.
    Unread,
    /// Read, while its thread did something else.
    Aside,
    /// From one thread to another.
    Handed,
    /// For another thread, which did not sleep meanwhile.
    Thread,
    /// All of a request.
    Whole,
}

impl RequestWait {
    /// By its number.
    pub fn new(raw: u32) -> RequestWait {
        match raw.checked_sub(LIVES) {
            None => RequestWait::Asleep(Life::new(raw)),
            Some(0) => RequestWait::Queued,
            Some(1) => RequestWait::Held,
            Some(2) => RequestWait::Unread,
            Some(3) => RequestWait::Aside,
            Some(4) => RequestWait::Handed,
            Some(5) => RequestWait::Thread,
            Some(_) => RequestWait::Whole,
        }
    }

    /// The reason for which the thread slept; [`Life::Rest`] where it did not sleep.
    fn life(self) -> Life {
        if let RequestWait::Asleep(life) = self { life } else { Life::Rest }
    }
}

/// `enum call_reads` of served.h.
fn call_kind(name: &str) -> u8 {
    match name {
        "read" | "recvfrom" => 1,
        "readv" => 2,
        "recvmsg" => 3,
        "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2"
        | "accept" | "accept4" | "exit" | "exit_group" => 4,
        _ => 0,
    }
}

/// `call_reads` of served.h.
pub(super) fn call_reads() -> [u8; 512] {
    std::array::from_fn(|nr| call_kind(&call_name(nr as u32)))
}

/// Protocol of a client (`enum protocol` of engine.h), and the verb of its request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Unknown,
    Http(String),
    Redis(String),
    Postgres(&'static str),
    Tls,
    Http2,
    /// A call of the function of this number.
    Call(usize),
}

impl Protocol {
    /// Protocol and port of a `kind` of engine.h; 0: a local socket.
    pub fn of(kind: u64) -> (Protocol, u16) {
        let mut verb = String::new();
        for i in (0..8).rev() {
            let letter = (kind >> (5 * i)) & 31;
            if (1..=26).contains(&letter) {
                verb.push(char::from(b'A' + letter as u8 - 1));
            }
        }
        let protocol = match (kind >> 56) & 0x7f {
            1 => Protocol::Http(verb),
            2 => Protocol::Redis(verb),
            3 => Protocol::Postgres(match kind & 0xff {
                1 => "query",
                2 => "statement",
                _ => "prepared statement",
            }),
            4 => Protocol::Tls,
            5 => Protocol::Http2,
            6 => Protocol::Call((kind & 0xffff) as usize),
            _ => Protocol::Unknown,
        };
        (protocol, (kind >> 40) as u16)
    }

    /// As tables have it. `functions` are those of [`Protocol::Call`].
    pub fn name(kind: u64, functions: &[CalledFunction]) -> String {
        let (protocol, port) = Protocol::of(kind);
        let what = match protocol {
            Protocol::Unknown => "requests".into(),
            Protocol::Http(verb) => format!("HTTP {verb}"),
            Protocol::Redis(verb) => format!("Redis {verb}"),
            Protocol::Postgres(what) => format!("PostgreSQL {what}"),
            Protocol::Tls => "TLS".into(),
            Protocol::Http2 => "HTTP/2, its streams as one".into(),
            Protocol::Call(function) => {
                let name = functions.get(function).map(ToString::to_string);
                return format!("calls of {}", name.unwrap_or_default());
            }
        };
        match port {
            0 => format!("{what} on a local socket"),
            port => format!("{what} on port {port}"),
        }
    }
}

/// The ends of a bin of latencies, ns.
pub(crate) fn latency_bin(bin: u32) -> (u64, u64) {
    quarter(bin >> 2, (bin & 3).into())
}

/// Requests of one kind and latency: all of them, or what they waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RequestRow {
    pub kind: u64,
    pub tgid: u32,
    /// See [`latency_bin`].
    pub bin: u32,
    pub wait: RequestWait,
    pub count: u64,
    pub ns: u64,
    pub max: u64,
    /// Of whole requests: ns on CPU.
    pub user: u64,
    pub system: u64,
    /// The object of the wait, with the thread that ended it.
    pub what: TimeRow,
}

impl RequestRow {
    fn of(row: &RequestSlot) -> RequestRow {
        let wait = RequestWait::new(row.bin >> 8);
        RequestRow {
            kind: row.kind,
            tgid: row.tgid,
            bin: row.bin & 0xff,
            wait,
            count: row.count,
            ns: row.ns,
            max: row.max,
            user: row.user,
            system: row.system,
            what: TimeRow {
                tgid: row.tgid,
                life: wait.life(),
                what: row.what,
                futex: row.futex,
                place: row.place,
                class: FutexClass::from(row.class),
                event: row.event,
                count: row.count,
                ns: row.ns,
                max: row.max,
                holder: row.holder,
                vote: row.vote,
                held: row.vote,
                ..TimeRow::default()
            },
        }
    }

    fn add(&mut self, other: &RequestRow) {
        self.count += other.count;
        self.ns += other.ns;
        self.max = self.max.max(other.max);
        self.user += other.user;
        self.system += other.system;
        self.what.add(&other.what);
    }
}

/// One of the slowest requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Slow {
    pub(crate) kind: u64,
    /// The process, and the thread that answered.
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    /// ns of the clock of BPF programs.
    pub(crate) began: u64,
    /// ns.
    pub(crate) took: u64,
    pub(crate) user: u64,
    pub(crate) system: u64,
    /// Its waits with their lengths.
    pub(crate) parts: Vec<(RequestWait, TimeRow)>,
}

impl Slow {
    pub(super) fn of(q: &ClientRequest) -> Slow {
        let took = q.answered.saturating_sub(q.began);
        let mut on = took;
        let parts: Vec<(RequestWait, TimeRow)> = q
            .part
            .iter()
            .take(q.parts as usize)
            .map(|p| {
                // Two threads may have worked for it at the same time.
                let ns = p.sent.min(on);
                on -= ns;
                let wait = RequestWait::new(p.life);
                let row = TimeRow {
                    tgid: q.tgid,
                    life: wait.life(),
                    what: p.what,
                    futex: p.futex,
                    place: p.place,
                    class: FutexClass::from(p.class),
                    event: p.event,
                    count: 1,
                    ns,
                    holder: p.holder,
                    vote: ns,
                    ..TimeRow::default()
                };
                (wait, row)
            })
            .filter(|(_, row)| row.ns > 0)
            .collect();
        let system = q.system_sent.min(on);
        Slow {
            kind: q.kind,
            tgid: q.tgid,
            tid: q.tid,
            began: q.began,
            took,
            user: on - system,
            system,
            parts,
        }
    }
}

impl Engine {
    /// Takes the requests of one half of the table out of it.
    pub(super) fn served_rows(&mut self, half: usize) -> Vec<RequestRow> {
        let mut sums: HashMap<(u64, u64, u32, u32), RequestRow> = HashMap::new();
        let rows = layout::of_half(self.tables.requests.len(), half);
        for row in self.tables.requests.take(rows) {
            let new = RequestRow::of(&row);
            sums.entry((row.kind, row.what, row.tgid, row.bin))
                .and_modify(|sum| sum.add(&new))
                .or_insert(new);
        }
        let mut all: Vec<RequestRow> = sums.into_values().collect();
        all.sort_by_key(|row| (row.tgid, row.kind, row.bin, row.wait, row.what.what));
        all
    }

    /// Seconds between the beginning of the observation and a moment of the BPF programs' clock.
    pub(crate) fn since_begin(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.began) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(protocol: u64, port: u64, verb: &str) -> u64 {
        let verb = verb.bytes().fold(0, |sum, c| sum << 5 | u64::from(c - b'A' + 1));
        1 << 63 | protocol << 56 | port << 40 | verb
    }

    #[test]
    fn requests_are_named_by_protocol_verb_and_port() {
        assert_eq!(Protocol::name(kind(1, 8080, "GET"), &[]), "HTTP GET on port 8080");
        assert_eq!(Protocol::name(kind(2, 6379, "ZRANGEBY"), &[]), "Redis ZRANGEBY on port 6379");
        assert_eq!(Protocol::name(kind(3, 5432, "") | 1, &[]), "PostgreSQL query on port 5432");
        assert_eq!(Protocol::name(kind(0, 0, ""), &[]), "requests on a local socket");
        assert_eq!(Protocol::name(kind(0, 65535, ""), &[]), "requests on port 65535");
        let functions = ["serve".parse().expect("a function")];
        assert_eq!(Protocol::name(kind(6, 0, ""), &functions), "calls of serve");
    }

    #[test]
    fn bins_of_latencies_follow_one_another() {
        let mut end = 4;
        for bin in 8..240 {
            let (from, to) = latency_bin(bin);
            assert_eq!(from, end);
            assert!((to - from) * 4 <= from);
            end = to;
        }
    }

    #[test]
    fn what_a_request_did_not_wait_for_it_ran() {
        let mut q =
            ClientRequest { began: 100, answered: 1100, system_sent: 300, parts: 1, ..Default::default() };
        q.part[0].sent = 600;
        q.part[0].life = LIVES;
        let slow = Slow::of(&q);
        assert_eq!((slow.took, slow.user, slow.system), (1000, 100, 300));
        assert_eq!(slow.parts[0].0, RequestWait::Queued);
        // Nor does a record that does not add up panic.
        q.part[0].sent = u64::MAX;
        assert_eq!((Slow::of(&q).user, Slow::of(&q).system), (0, 0));
        q.parts = u32::MAX;
        assert!(Slow::of(&q).parts.len() <= q.part.len());
    }
}
