//! Pools of huge pages on NUMA nodes, made ahead of demand and undone at the end.

use std::path::{Path, PathBuf};

use ncpu_machine::CpuSet;

use crate::journal::{Journal, Undo};
use crate::{Error, Result};

/// Pages wanted on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Bytes of a page.
    pub page: u64,
    /// The node.
    pub node: u32,
    /// Pages to add.
    pub pages: u64,
}

/// The result for a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The pool that was asked for.
    pub pool: Pool,
    /// Pages of the node's pool before and after.
    pub before: u64,
    /// See `before`.
    pub after: u64,
}

/// `4g[:2m|1g][@NODES]`: this size on each of these nodes [default: all nodes with memory].
///
/// # Errors
/// In words for the user.
pub fn parse(text: &str, all: &CpuSet) -> std::result::Result<Vec<Pool>, String> {
    let wrong = || format!("{text}: give SIZE[:2m|1g][@NODES], as in 4g:2m@0-1");
    let (rest, nodes) = match text.split_once('@') {
        Some((rest, list)) => (rest, CpuSet::parse_list(list).map_err(|_| wrong())?),
        None => (text, all.clone()),
    };
    let (size, page) = match rest.split_once(':') {
        None | Some((_, "2m")) => (rest.split(':').next().unwrap_or(rest), 2 << 20),
        Some((size, "1g")) => (size, 1 << 30),
        Some(_) => return Err(wrong()),
    };
    let bytes = bytes(size).filter(|&b| b > 0).ok_or_else(wrong)?;
    if nodes.is_empty() || !nodes.is_subset(all) {
        return Err(format!(
            "nodes {} do not all have memory; those that do are {}",
            nodes.to_list(),
            all.to_list()
        ));
    }
    Ok(nodes.iter().map(|node| Pool { page, node, pages: bytes.div_ceil(page) }).collect())
}

fn bytes(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_lowercase() {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        b't' => 40,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn number(path: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
    text.trim().parse().map_err(|_| Error::Refused(format!("{} holds no number", path.display())))
}

/// Adds pages to pools: compacts the node's memory first, so that blocks are found.
///
/// # Errors
/// The machine has no such pool, or it may not be changed. Fewer pages than wanted are not an error: see
/// [`Filled`].
pub fn fill(journal: &mut Journal, root: &Path, pools: &[Pool]) -> Result<Vec<Filled>> {
    let mut out = Vec::new();
    for pool in pools {
        let node = root.join(format!("sys/devices/system/node/node{}", pool.node));
        let file: PathBuf = node.join(format!("hugepages/hugepages-{}kB/nr_hugepages", pool.page >> 10));
        let before = number(&file)?;
        let wanted = before + pool.pages;
        let setting =
            |new: u64| Undo::Setting { path: (&file).into(), old: before.to_string(), new: new.to_string() };
        journal.will(setting(wanted))?;
        let compact = node.join("compact");
        if compact.exists() {
            std::fs::write(&compact, "1").map_err(|e| Error::file(&compact, e))?;
        }
        std::fs::write(&file, wanted.to_string()).map_err(|e| Error::file(&file, e))?;
        let after = number(&file)?;
        if after != wanted {
            // The undo holds only while the file has the value it has now.
            journal.will(setting(after))?;
        }
        out.push(Filled { pool: pool.clone(), before, after });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::put;

    #[test]
    fn words() {
        let all: CpuSet = (0..4).collect();
        let one = |text: &str| parse(text, &all).map(|p| (p.len(), p[0].page, p[0].pages));
        assert_eq!(one("5m"), Ok((4, 2 << 20, 3)));
        assert_eq!(one("4g:2m@0-1"), Ok((2, 2 << 20, 2048)));
        assert_eq!(one("1g:1g@3"), Ok((1, 1 << 30, 1)));
        for wrong in ["", "0", "x", "1g:4k", "1g@9", "1g@", "@0", "g", "99999999999999t"] {
            assert!(parse(wrong, &all).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pools_are_filled_and_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
        put(dir.path(), file, "7\n");
        put(dir.path(), "sys/devices/system/node/node0/compact", "");
        let mut journal = Journal::begin(&dir.path().join("undo"), &[]).unwrap();
        let pool = Pool { page: 2 << 20, node: 0, pages: 5 };
        let filled = fill(&mut journal, dir.path(), std::slice::from_ref(&pool)).unwrap();
        assert_eq!((filled[0].before, filled[0].after), (7, 12));
        assert_eq!(
            std::fs::read_to_string(dir.path().join("sys/devices/system/node/node0/compact")).unwrap(),
            "1"
        );
        assert!(journal.finish().failed.is_empty());
        assert_eq!(std::fs::read_to_string(dir.path().join(file)).unwrap(), "7");
        let none = Pool { node: 1, ..pool };
        let mut journal = Journal::begin(&dir.path().join("undo"), &[]).unwrap();
        assert!(fill(&mut journal, dir.path(), &[none]).is_err());
    }
}
