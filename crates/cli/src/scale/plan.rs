//! What is run: points and their CPUs, and what is measured of a run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::Context;
use ncpu_machine::{CpuSet, Topology};
use ncpu_measure::place::Place;
use regex::Regex;

use crate::command::Done;

/// What stands for the count in a command.
const COUNT: &[u8] = b"{n}";

/// A count and how it is run.
#[derive(Clone, Debug)]
pub struct Spot {
    /// CPUs, or threads where they are more.
    pub n: u32,
    /// The CPUs it is bound to; `None` where it is free.
    pub cpus: Option<CpuSet>,
    /// More threads than CPUs.
    pub oversubscribed: bool,
    /// The command with the count filled in.
    pub argv: Vec<OsString>,
}

/// All counts.
#[derive(Debug)]
pub struct Plan {
    /// In rising order.
    pub spots: Vec<Spot>,
    /// CPUs that can be used.
    pub usable: usize,
}

impl Plan {
    /// Plans the points of a command.
    ///
    /// # Errors
    /// The list makes no sense, or asks for more CPUs than there are.
    pub fn new(
        cpus: Option<&str>,
        place: &str,
        command: &[OsString],
        machine: &Topology,
    ) -> anyhow::Result<Plan> {
        let usable = machine.online.and(&machine.allowed);
        let order = match place {
            "free" => None,
            _ => place.parse::<Place>()?.order(machine)?,
        };
        let room = order.as_ref().map_or(usable.len(), Vec::len);
        let counts = match cpus {
            Some(list) => parse(list)?,
            None => default(room as u32),
        };
        let filled = command.iter().any(|w| w.as_bytes().windows(COUNT.len()).any(|w| w == COUNT));
        if let Some(most) = counts.iter().copied().max().filter(|&n| n as usize > room && !filled) {
            anyhow::bail!(
                "--cpus: {most} CPUs of {room} ({}); for more threads than CPUs put {{n}} where the command takes \
                 their number",
                order.map_or(usable.to_list(), |o| o.into_iter().collect::<CpuSet>().to_list())
            );
        }
        if place == "free" && !filled {
            anyhow::bail!("--place free binds nothing, so the command must take the count: put {{n}} in it");
        }
        let spots = counts
            .into_iter()
            .map(|n| Spot {
                n,
                cpus: order.as_ref().map(|o| o.iter().copied().take(n as usize).collect()),
                oversubscribed: n as usize > room,
                argv: command.iter().map(|w| fill(w, n)).collect(),
            })
            .collect();
        Ok(Plan { spots, usable: room })
    }
}

/// Powers of two, and all.
fn default(usable: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = (0..32).map(|i| 1 << i).take_while(|&n| n < usable).collect();
    counts.push(usable.max(1));
    counts
}

/// `1,2,4-8`, in rising order, each once.
fn parse(list: &str) -> anyhow::Result<Vec<u32>> {
    let wrong = || format!("--cpus {list}: give counts as in 1,2,4-8");
    let set = CpuSet::parse_list(list).ok().with_context(wrong)?;
    let counts: Vec<u32> = set.iter().collect();
    if counts.is_empty() || counts[0] == 0 {
        anyhow::bail!(wrong());
    }
    if counts.len() > 1000 {
        anyhow::bail!("--cpus {list}: that is {} points; give 1000 at most", counts.len());
    }
    Ok(counts)
}

fn fill(word: &OsStr, n: u32) -> OsString {
    let (mut out, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(COUNT.len()).position(|w| w == COUNT) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(n.to_string().as_bytes());
        rest = &rest[at + COUNT.len()..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// What a run's throughput is.
#[derive(Debug)]
pub struct Measure {
    metric: Option<Regex>,
    lower: bool,
}

impl Measure {
    /// One over the elapsed time without a pattern.
    ///
    /// # Errors
    /// The pattern is none, or captures nothing or more than one thing.
    pub fn new(pattern: Option<&str>, lower: bool) -> anyhow::Result<Measure> {
        let metric = pattern
            .map(|p| {
                let regex = Regex::new(p).with_context(|| format!("--metric {p}"))?;
                match regex.captures_len() {
                    2 => Ok(regex),
                    n => anyhow::bail!(
                        "--metric {p}: it has {} capture groups; put the number, and nothing else, in one pair of \
                         parentheses, as in 'tps = ([0-9.]+)'",
                        n - 1
                    ),
                }
            })
            .transpose()?;
        Ok(Measure { metric, lower })
    }

    /// What it is called.
    pub fn name(&self) -> String {
        match (&self.metric, self.lower) {
            (None, _) => "runs/s".into(),
            (Some(r), false) => r.as_str().into(),
            (Some(r), true) => format!("1 / {}", r.as_str()),
        }
    }

    /// A run's throughput, or why it has none.
    pub fn of(&self, done: &Done) -> Result<f64, String> {
        if let Some(failure) = done.failure() {
            return Err(failure);
        }
        let Some(regex) = &self.metric else { return Ok(1.0 / done.elapsed) };
        let Some(found) = regex.captures_iter(&done.output).last() else {
            return Err(format!("no match of --metric in its output{}", done.last_words()));
        };
        let text = found.get(1).map_or("", |m| m.as_str()).replace(',', "");
        match text.trim().parse::<f64>() {
            Ok(x) if x > 0.0 && x.is_finite() => Ok(if self.lower { 1.0 / x } else { x }),
            _ => Err(format!("--metric captured `{text}`, which is no number above 0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine::generate::{Shape, write};
    use ncpu_observe::observation::Ended;

    fn plan(cpus: Option<&str>, place: &str, command: &[&str]) -> Result<Plan, String> {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 2, cores: 3, threads: 2 }).unwrap();
        let machine = Topology::read(dir.path()).unwrap();
        let command: Vec<OsString> = command.iter().map(Into::into).collect();
        Plan::new(cpus, place, &command, &machine).map_err(|e| e.to_string())
    }

    fn counts(plan: &Plan) -> Vec<u32> {
        plan.spots.iter().map(|s| s.n).collect()
    }

    #[test]
    fn counts_and_their_cpus() {
        let p = plan(None, "pack", &["x"]).unwrap();
        assert_eq!((counts(&p), p.usable), (vec![1, 2, 4, 8, 12], 12));
        assert_eq!(p.spots[1].cpus.as_ref().unwrap().to_list(), "0,6", "the SMT threads of a core");
        let p = plan(Some("4,1-2"), "cpus:1,3,5,7", &["x", "-j{n}", "{n}{n}"]).unwrap();
        assert_eq!(counts(&p), [1, 2, 4]);
        assert_eq!(p.spots[2].cpus.as_ref().unwrap().to_list(), "1,3,5,7");
        assert_eq!(p.spots[2].argv, ["x", "-j4", "44"]);
        let p = plan(Some("2,64"), "spread", &["x", "{n}"]).unwrap();
        assert_eq!((p.spots[0].oversubscribed, p.spots[1].oversubscribed), (false, true));
        assert_eq!(p.spots[1].cpus.as_ref().unwrap().len(), 12);
        assert!(plan(Some("2"), "free", &["x", "{n}"]).unwrap().spots[0].cpus.is_none());
    }

    #[test]
    fn what_cannot_be_planned_is_told() {
        let e = |cpus, place, command: &[&str]| plan(cpus, place, command).unwrap_err();
        assert!(e(Some("1,64"), "spread", &["x"]).contains("64 CPUs of 12 (0-11); for more threads"));
        assert!(e(Some("1"), "cpus:9-14", &["x"]).contains("not all there for us to use; those are 0-11"));
        for list in ["", "0,1", "x", "4-"] {
            assert!(e(Some(list), "spread", &["x"]).contains("as in 1,2,4-8"), "{list}");
        }
        assert!(e(Some("1-2000"), "spread", &["x", "{n}"]).contains("1000 at most"));
        assert!(e(None, "free", &["x"]).contains("put {n} in it"));
    }

    #[test]
    fn metrics() {
        let done = |status, output: &str| Done {
            elapsed: 0.5,
            ended: Ended { status, ..Ended::default() },
            output: output.into(),
            others: None,
        };
        let of = |pattern, lower, done: Done| Measure::new(pattern, lower).unwrap().of(&done);
        assert_eq!(of(None, false, done(0, "")), Ok(2.0));
        assert_eq!(of(Some("tps = ([0-9.,]+)"), false, done(0, "tps = 1\ntps = 1,234.5 x\n")), Ok(1234.5));
        assert_eq!(of(Some(r"([\d.]+) s"), true, done(0, "4 s")), Ok(0.25));
        assert_eq!(
            of(Some("x(.)"), false, done(0, "a\nb\n\n")).unwrap_err(),
            "no match of --metric in its output: b"
        );
        assert!(of(Some("x(.)"), false, done(0, "xy")).unwrap_err().contains("captured `y`"));
        assert_eq!(of(None, false, done(3, "oh\n")).unwrap_err(), "exit status 3: oh");
        assert_eq!(of(None, false, done(137, "")).unwrap_err(), "killed by signal 9");
        for wrong in ["tps", "(a)(b)", "("] {
            assert!(Measure::new(Some(wrong), false).is_err(), "{wrong}");
        }
    }
}
