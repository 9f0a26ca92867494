//! The plan: points and their CPUs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use ncpu_machine::{CpuSet, Topology};
use ncpu_measure::place::Place;

/// Placeholders for the count in a command. Help mentions the second, as clap takes the first for a line's end.
const COUNT: [&[u8]; 2] = [b"{n}", b"{N}"];

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
    /// The list makes no sense, or asks for more CPUs than the machine has.
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
        let filled = command.iter().any(|w| w.as_bytes().windows(3).any(|w| COUNT.contains(&w)));
        if let Some(most) = counts.iter().copied().max().filter(|&n| n as usize > room && !filled) {
            anyhow::bail!(
                "--cpus: {most} CPUs of {room} ({}); for more threads than CPUs put {{n}} where the command takes \
                 their number",
                order.map_or(usable.to_list(), |o| o.into_iter().collect::<CpuSet>().to_list())
            );
        }
        if place == "free" && !filled {
            usage!("--place free binds nothing, so the command must take the count: put {{n}} in it");
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
    let set = CpuSet::parse_list(list).map_err(|_| mistake!("{}", wrong()))?;
    let counts: Vec<u32> = set.iter().collect();
    require!(counts.first().is_some_and(|n| *n > 0), "{}", wrong());
    if counts.len() > 1000 {
        usage!("--cpus {list}: that is {} points; give 1000 at most", counts.len());
    }
    Ok(counts)
}

fn fill(word: &OsStr, n: u32) -> OsString {
    let (mut out, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(3).position(|w| COUNT.contains(&w)) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(n.to_string().as_bytes());
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::generate::{Shape, write};

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
        let p = plan(Some("4,1-2"), "cpus:1,3,5,7", &["x", "-j{n}", "{n}{N}"]).unwrap();
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
        assert!(
            e(Some("1"), "cpus:9-14", &["x"])
                .contains("not all available to this process; expected CPUs of 0-11")
        );
        for list in ["", "0,1", "x", "4-"] {
            assert!(e(Some(list), "spread", &["x"]).contains("as in 1,2,4-8"), "{list}");
        }
        assert!(e(Some("1-2000"), "spread", &["x", "{n}"]).contains("1000 at most"));
        assert!(e(None, "free", &["x"]).contains("put {n} in it"));
    }
}
