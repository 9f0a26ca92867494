//! Memory follows the threads that use it: looked at one page in 256, moved where it lies elsewhere.

use std::io;
use std::time::Instant;

use ncpu_machine::process::{self, Mapping};

use crate::sys;

/// The node is read of one page in this many.
const EVERY: u64 = 256;
/// But of at least this many pages in a small mapping, as far as it has them: a node's share of it must be
/// visible.
const FEWEST: u64 = 256;
/// Mappings below this are left alone.
const SMALLEST: u64 = 1 << 20;
/// Memory is dealt out to nodes in pieces of a huge page, aligned to one: the kernel moves a huge page as a whole for
/// each of its small pages that is to go elsewhere, back and forth.
const PIECE: u64 = 2 << 20;
/// Up to one part in this many may lie elsewhere: a move must pay.
const PAYS: u64 = 20;
/// The most bytes moved between two looks at the threads.
pub const STEP: u64 = 64 << 20;

/// A mapping with pages that may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// The object it belongs to.
    pub name: String,
    /// Device and inode of memory that other processes can map too.
    pub shared: Option<((u32, u32), u64)>,
}

/// The mappings of a process that hold data of its own or shared memory; files are left out.
pub fn areas(maps: &[u8]) -> Vec<Area> {
    let one = |m: Mapping| {
        let name = m.text();
        let data = name.is_empty()
            || name.starts_with('[') && !name.starts_with("[v")
            || ["/dev/zero", "/dev/shm/", "/SYSV", "/memfd:"].iter().any(|p| name.starts_with(p));
        let name = if name.is_empty() { "anonymous" } else { &*name };
        (data && m.write && m.size() >= SMALLEST).then(|| Area {
            start: m.start,
            end: m.end,
            name: name.chars().filter(|c| !c.is_control()).take(60).collect(),
            shared: m.shared.then_some((m.device, m.inode)),
        })
    };
    process::mappings(maps).filter_map(one).collect()
}

/// Where an area lies: bytes by node number, by the sample.
pub fn sample(pid: u32, area: &Area, seed: u64) -> io::Result<Vec<(u32, u64)>> {
    let page = ncpu_machine::page_size();
    let every = ((area.end - area.start) / page / FEWEST).clamp(1, EVERY);
    let step = every * page;
    // Another page of each stretch each time, since programs have strides of their own.
    let first = area.start + seed % every * page;
    let pages: Vec<u64> = (0..).map(|i| first + i * step).take_while(|&a| a < area.end).collect();
    let mut out: Vec<(u32, u64)> = Vec::new();
    for status in sys::page_nodes(pid, &pages)? {
        let Ok(node) = u32::try_from(status) else { continue };
        match out.iter_mut().find(|(n, _)| *n == node) {
            Some((_, bytes)) => *bytes += step,
            None => out.push((node, step)),
        }
    }
    out.sort_unstable();
    Ok(out)
}

/// The new place of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The area.
    pub area: Area,
    /// Where it lies now.
    pub now: Vec<(u32, u64)>,
    /// The nodes it is to lie on: one, or dealt out to several.
    pub homes: Vec<u32>,
    /// Why.
    pub reason: &'static str,
}

/// The new places of a process's areas, given the nodes on which the users of each area run.
///
/// With one such node everything goes there. With several, nobody can tell from outside which thread uses which page:
/// an area that several processes share, or that is much larger than a node's fair share of the process, is taken to be
/// used by all and dealt out; one that lies on a node without running threads too; any other is taken to be the memory
/// of the threads beside it.
pub fn wishes(areas: &[Sampled]) -> Vec<Wish> {
    let total: u64 = areas.iter().map(Sampled::bytes).sum();
    let wish = |s: &Sampled| {
        let (own, away) = (s.bytes(), s.away());
        let most = s.now.iter().map(|n| n.1).max().unwrap_or(0);
        let reason = match s.homes[..] {
            [] => return None,
            [_] if away * PAYS > own => "its threads all run there",
            [_] => return None,
            _ if away * PAYS > own => "no thread runs where it lies",
            _ if s.used_by_all(total) && most > s.even() + own / 10 => "threads of all these nodes share it",
            _ => return None,
        };
        Some(Wish { area: s.area.clone(), now: s.now.clone(), homes: s.homes.clone(), reason })
    };
    areas.iter().filter_map(wish).collect()
}

/// An area and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The area.
    pub area: Area,
    /// Bytes by node, by the sample.
    pub now: Vec<(u32, u64)>,
    /// Nodes where threads run that can use it.
    pub homes: Vec<u32>,
}

impl Sampled {
    /// Bytes resident.
    pub fn bytes(&self) -> u64 {
        self.now.iter().map(|n| n.1).sum()
    }

    /// Bytes on nodes where nobody runs who uses it.
    fn away(&self) -> u64 {
        self.now.iter().filter(|(n, _)| !self.homes.contains(n)).map(|n| n.1).sum()
    }

    /// A home's share, were it dealt out.
    fn even(&self) -> u64 {
        self.bytes() / self.homes.len().max(1) as u64
    }

    /// Whether threads of all homes are taken to use it; `total` is the process's memory.
    fn used_by_all(&self, total: u64) -> bool {
        let fair = total / self.homes.len().max(1) as u64;
        // Too little to give each node a piece is left where it is.
        self.homes.len() > 1
            && self.bytes() >= self.homes.len() as u64 * PIECE
            && (self.area.shared.is_some() || self.bytes() > fair + fair / 2)
    }
}

/// How many of these areas' bytes lie where they should: at home, and of what all use, no more on a node than its share.
pub fn at_home(areas: &[Sampled]) -> u64 {
    let total: u64 = areas.iter().map(Sampled::bytes).sum();
    let one = |s: &Sampled| {
        let here = s.now.iter().filter(|(n, _)| s.homes.contains(n)).map(|n| n.1);
        match s.used_by_all(total) {
            // As much unevenness as is left alone.
            true => here.map(|b| b.min(s.even() + s.bytes() / 10)).sum::<u64>(),
            false => here.sum(),
        }
    };
    areas.iter().map(one).sum()
}

/// The node of an address that is dealt out.
fn home(wish: &Wish, address: u64) -> u32 {
    wish.homes[(address / PIECE) as usize % wish.homes.len()]
}

/// Moves pages from an address on, at most [`STEP`] bytes, and one piece more once it is `until`; where to go on, and how
/// many bytes were moved.
pub fn step(pid: u32, wish: &Wish, from: u64, until: Instant) -> io::Result<(u64, u64)> {
    let end = wish.area.end.min(from + STEP);
    let (mut at, mut moved) = (from, 0);
    loop {
        let next = end.min((at / PIECE + 1) * PIECE);
        moved += piece(pid, wish, at, next)?;
        at = next;
        if at >= end || Instant::now() >= until {
            return Ok((at, moved));
        }
    }
}

/// Moves the pages between two addresses; how many bytes were moved.
fn piece(pid: u32, wish: &Wish, from: u64, end: u64) -> io::Result<u64> {
    let page = ncpu_machine::page_size();
    let pages: Vec<u64> = (from..end).step_by(page as usize).collect();
    let (mut list, mut nodes) = (Vec::new(), Vec::new());
    for (address, status) in pages.iter().zip(sys::page_nodes(pid, &pages)?) {
        let to = home(wish, *address) as i32;
        if status >= 0 && status != to {
            list.push(*address);
            nodes.push(to);
        }
    }
    if list.is_empty() {
        return Ok(0);
    }
    let after = sys::move_pages(pid, &list, &nodes, wish.area.shared.is_some())?;
    Ok(after.iter().zip(&nodes).filter(|(a, n)| a == n).count() as u64 * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_told_from_files() {
        let maps = "\
00400000-00800000 r-xp 00000000 08:01 1                                  /bin/x\n\
00a00000-00c00000 rw-p 00000000 08:01 1                                  /bin/x\n\
01000000-02000000 rw-p 00000000 00:00 0                                  [heap]\n\
7f0000000000-7f0004000000 rw-p 00000000 00:00 0 \n\
7f0010000000-7f0010010000 rw-p 00000000 00:00 0 \n\
7f0020000000-7f0024000000 ---p 00000000 00:00 0 \n\
7f0030000000-7f0034000000 rw-s 00000000 00:01 5                          /dev/shm/a b\n\
7ffc00000000-7ffc00200000 rw-p 00000000 00:00 0                          [vvar]\n";
        let all = areas(maps.as_bytes());
        let names: Vec<&str> = all.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["[heap]", "anonymous", "/dev/shm/a b"]);
        let shared: Vec<_> = all.iter().map(|a| a.shared).collect();
        assert_eq!(shared, [None, None, Some(((0, 1), 5))]);
    }

    fn sampled(mib: u64, shared: bool, now: &[(u32, u64)], homes: &[u32]) -> Sampled {
        let now = now.iter().map(|&(n, b)| (n, b << 20)).collect();
        let shared = shared.then_some(((0, 1), 5));
        Sampled {
            area: Area { start: 0, end: mib << 20, name: String::new(), shared },
            now,
            homes: homes.to_vec(),
        }
    }

    #[test]
    fn what_goes_where() {
        let reasons = |areas: &[(u64, &[(u32, u64)])], homes: &[u32]| -> (Vec<&'static str>, u64) {
            let areas: Vec<Sampled> =
                areas.iter().map(|(mib, now)| sampled(*mib, false, now, homes)).collect();
            (wishes(&areas).into_iter().map(|w| w.reason).collect(), at_home(&areas) >> 20)
        };
        // One process on one node: its memory comes along.
        assert_eq!(reasons(&[(100, &[(0, 100)])], &[3]), (vec!["its threads all run there"], 0));
        assert_eq!(reasons(&[(100, &[(3, 95), (0, 5)])], &[3]), (vec![], 95));
        // The Cyclops: everything on node 0, threads on all. Node 0's memory beyond its share is not at home.
        let shares = "threads of all these nodes share it";
        assert_eq!(reasons(&[(100, &[(0, 100)])], &[0, 1, 2, 3]), (vec![shares], 35));
        assert_eq!(reasons(&[(99, &[(0, 33), (1, 33), (2, 33)])], &[0, 1, 2]), (vec![], 99));
        // Each thread has an arena beside it.
        assert_eq!(reasons(&[(64, &[(0, 64)]), (64, &[(1, 64)])], &[0, 1]), (vec![], 128));
        let nobody = "no thread runs where it lies";
        assert_eq!(reasons(&[(64, &[(5, 64)]), (64, &[(1, 64)])], &[0, 1]), (vec![nobody], 64));
        assert_eq!(reasons(&[(64, &[])], &[0]), (vec![], 0));
        assert_eq!(reasons(&[(64, &[(0, 64)])], &[]), (vec![], 0));
    }

    #[test]
    fn what_processes_share_is_dealt_out_in_whole_huge_pages() {
        let small = sampled(16, true, &[(0, 16)], &[0, 1]);
        let own = sampled(64, false, &[(1, 64)], &[1]);
        let wishes = wishes(&[small, own]);
        assert_eq!(wishes.len(), 1);
        assert_eq!(wishes[0].reason, "threads of all these nodes share it");
        // Each huge page goes to one node.
        let homes = |page: u64| (page..page + PIECE).step_by(4096).map(|a| home(&wishes[0], a));
        assert!((0..8).all(|i| homes(i * PIECE).all(|h| h == home(&wishes[0], i * PIECE))));
        let bytes = (0..16 << 20).step_by(4096).filter(|&a| home(&wishes[0], a) == 1).count() * 4096;
        assert_eq!(bytes, 8 << 20);
        // Not a piece for each: left alone, and at home.
        let few = [sampled(2, true, &[(0, 2)], &[0, 1])];
        assert_eq!((super::wishes(&few).len(), at_home(&few)), (0, 2 << 20));
    }

    #[test]
    fn pages_of_ours_are_sampled() {
        let length = 8usize << 20;
        let mut memory = vec![0u8; length];
        memory.iter_mut().step_by(4096).for_each(|b| *b = 1);
        let start = memory.as_ptr() as u64 & !4095;
        let area = Area { start, end: start + length as u64, name: String::new(), shared: None };
        match sample(std::process::id(), &area, 1) {
            Ok(nodes) => {
                let bytes: u64 = nodes.iter().map(|n| n.1).sum();
                assert_eq!(bytes, length as u64, "{nodes:?}");
                let node = nodes[0].0;
                let wish = Wish { area: area.clone(), now: nodes, homes: vec![node], reason: "" };
                // Already there, as far as there is one node.
                let (at, moved) = step(
                    std::process::id(),
                    &wish,
                    area.start,
                    Instant::now() + std::time::Duration::from_secs(60),
                )
                .unwrap();
                assert_eq!(at, area.end);
                assert_eq!(moved % 4096, 0);
            }
            Err(e) => eprintln!("skipped: {e}"),
        }
    }
}
