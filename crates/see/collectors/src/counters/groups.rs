//! The events of one CPU or thread, in groups.

use std::io;

use ncpu_machine::events::{Class, Encoding, Event};

use super::count::{Reading, parse_group, parse_single};
use super::kernel::{Inherit, Kernel, MAX_WORDS, Request, Who};

/// How events are opened.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Whose.
    pub who: Who,
    /// On which CPU.
    pub cpu: Option<u32>,
    /// Which of the target's new threads and processes count too.
    pub inherit: Inherit,
    /// From the `exec` on.
    pub from_exec: bool,
    /// Leave out the kernel.
    pub user_only: bool,
}

/// Why an event was not opened.
pub enum Refusal {
    /// The CPU is offline or the thread has ended.
    Gone,
    /// Not allowed.
    Denied,
    /// Something else.
    Other(io::Error),
}

/// Events counted at the same time.
struct Group<E> {
    /// The events allowed in it: software, or those of one PMU.
    domain: String,
    /// Whether one read gives all counts.
    together: bool,
    /// Which event, and the open file; the first leads.
    members: Vec<(usize, E)>,
    last: Vec<Reading>,
}

/// All groups of a CPU or thread.
pub struct Groups<E> {
    groups: Vec<Group<E>>,
}

/// No more hardware events than this are put into a group: with more, a group might never find enough
/// counters free, and then counts nothing. Intel has four programmable counters a strand (eight from Ice
/// Lake on), of which the NMI watchdog may hold one; cycles and instructions have theirs besides.
const HARDWARE_GROUP: usize = 4;
const SOFTWARE_GROUP: usize = MAX_WORDS - 3;

impl<E> Groups<E> {
    /// Opens every event but those found absent; those that nothing here counts are so from now on.
    pub fn open<K: Kernel<Event = E>>(
        kernel: &K,
        how: How,
        events: &[Event],
        absent: &mut [Option<String>],
    ) -> Result<Groups<E>, (usize, Refusal)> {
        let mut groups: Vec<Group<E>> = Vec::new();
        for (at, event) in events.iter().enumerate() {
            let here = |e: &&Encoding| match (how.cpu, &e.cpus) {
                (Some(cpu), Some(cpus)) => cpus.contains(cpu),
                _ => true,
            };
            let mut refused = None;
            let mut opened = false;
            for encoding in event.encodings.iter().filter(here) {
                if absent[at].is_some() {
                    break;
                }
                match add(kernel, how, event, encoding, at, &mut groups) {
                    Ok(()) => opened = true,
                    Err(e) => match verdict(&e, event) {
                        Verdict::Absent(why) => refused = Some(why),
                        Verdict::Refused(refusal) => return Err((at, refusal)),
                    },
                }
            }
            // One kind of core may lack what another has.
            if let (false, Some(why)) = (opened, refused) {
                absent[at] = Some(why);
            }
        }
        if !how.from_exec {
            for group in &groups {
                let (at, leader) = &group.members[0];
                kernel.enable(leader).map_err(|e| (*at, Refusal::Other(e)))?;
            }
        }
        Ok(Groups { groups })
    }

    /// Whether no event is open.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Reads all groups and gives, by event, what came since the reading before, one part for each of its
    /// encodings. A group that the kernel took apart gives nothing.
    pub fn read<K: Kernel<Event = E>>(
        &mut self,
        kernel: &K,
        mut take: impl FnMut(usize, &[Reading]),
    ) -> Result<(), (usize, io::Error)> {
        let mut deltas: Vec<(usize, Reading)> = Vec::with_capacity(16);
        let mut words = [0u64; MAX_WORDS];
        for group in &mut self.groups {
            let members = group.members.len();
            if group.together {
                let (event, leader) = &group.members[0];
                let n = kernel.read(leader, &mut words).map_err(|e| (*event, e))?;
                let Some(read) = parse_group(&words[..n], members) else { continue };
                for (i, now) in read.enumerate() {
                    deltas.push((group.members[i].0, now.since(group.last[i])));
                    group.last[i] = now;
                }
            } else {
                for ((event, file), last) in group.members.iter().zip(&mut group.last) {
                    let n = kernel.read(file, &mut words[..3]).map_err(|e| (*event, e))?;
                    let Some(now) = parse_single(&words[..n]) else { continue };
                    deltas.push((*event, now.since(*last)));
                    *last = now;
                }
            }
        }
        // Stable: encodings keep their order.
        deltas.sort_by_key(|(event, _)| *event);
        for same in deltas.chunk_by(|a, b| a.0 == b.0) {
            let readings: Vec<Reading> = same.iter().map(|(_, r)| *r).collect();
            take(same[0].0, &readings);
        }
        Ok(())
    }
}

/// Opens an encoding in the last group of its domain if that takes it, else in one of its own.
fn add<K: Kernel>(
    kernel: &K,
    how: How,
    event: &Event,
    encoding: &Encoding,
    at: usize,
    groups: &mut Vec<Group<K::Event>>,
) -> io::Result<()> {
    let mut exclude = event.exclude;
    if how.user_only {
        (exclude.kernel, exclude.hv) = (true, true);
    }
    let software = matches!(event.class, Class::Software | Class::Tracepoint);
    // A group's sum over inherited children fails as a whole (ECHILD) when one of them was started
    // while the group was being opened; single reads do not.
    let together = how.inherit == Inherit::None;
    let request = Request {
        kind: encoding.kind,
        config: encoding.config,
        exclude,
        who: how.who,
        cpu: how.cpu,
        inherit: how.inherit,
        from_exec: how.from_exec,
        together,
    };
    let domain = if software { "" } else { &encoding.pmu };
    let most = if software { SOFTWARE_GROUP } else { HARDWARE_GROUP };
    let fits = |g: &&mut Group<K::Event>| g.domain == domain && g.members.len() < most;
    if let Some(group) = groups.iter_mut().rev().find(|g| g.domain == domain).filter(fits) {
        match kernel.open(&request, group.members.first().map(|(_, leader)| leader)) {
            Ok(file) => {
                group.members.push((at, file));
                group.last.push(Reading::default());
                return Ok(());
            }
            // The PMU cannot count these together; alone it may.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => return Err(e),
        }
    }
    let file = kernel.open(&request, None)?;
    groups.push(Group {
        domain: domain.into(),
        together,
        members: vec![(at, file)],
        last: vec![Reading::default()],
    });
    Ok(())
}

enum Verdict {
    Absent(String),
    Refused(Refusal),
}

fn verdict(e: &io::Error, event: &Event) -> Verdict {
    let hardware = matches!(event.class, Class::Core | Class::Shared);
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP) if hardware => {
            Verdict::Absent("this machine's PMU does not count it".into())
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP) => Verdict::Absent("this kernel does not count it".into()),
        Some(libc::EINVAL) if event.class == Class::Shared => {
            Verdict::Absent("counts CPUs, not processes: count on the whole machine with -a".into())
        }
        Some(libc::EINVAL) => Verdict::Absent("this machine cannot count it so (EINVAL)".into()),
        Some(libc::ENODEV | libc::ENXIO | libc::ESRCH) => Verdict::Refused(Refusal::Gone),
        Some(libc::EACCES | libc::EPERM) => Verdict::Refused(Refusal::Denied),
        Some(errno) => Verdict::Refused(Refusal::Other(io::Error::from_raw_os_error(errno))),
        None => Verdict::Refused(Refusal::Other(io::Error::other(e.to_string()))),
    }
}
