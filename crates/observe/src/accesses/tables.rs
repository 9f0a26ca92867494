//! Counted accesses as tables, with names.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use ncpu_machine::Topology;
use ncpu_table::{Builder, Column, Table};

use super::{Counted, Counts, Mappings};
use crate::symbols::{Kernel, LockNamer, ProcMaps, User, region};

/// Names of processes, threads, data and code.
pub(super) struct Names {
    pub mappings: Mappings,
    maps: ProcMaps,
    user: User,
    processes: HashMap<u32, String>,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            mappings: Mappings::default(),
            maps: ProcMaps::new(Path::new("/")),
            user: User::new(),
            processes: HashMap::new(),
        }
    }
}

impl Names {
    /// A process has samples: what it maps must be known before it ends.
    pub fn met(&mut self, pid: u32) {
        let known = self.mappings.text(pid).map(<[u8]>::len);
        self.mappings.look(pid);
        // More libraries than before.
        if self.mappings.text(pid).map(<[u8]>::len) != known {
            self.maps.note_process(pid);
        }
        if let Ok(name) = std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            self.processes.insert(pid, name.trim().to_owned());
        }
    }
}

/// The kernel's half of the address space.
fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

pub(super) fn of(counted: &Counted, names: &mut Names, line: u64) -> [Table; 2] {
    let moved: HashSet<(u32, u64)> = counted
        .accesses()
        .filter(|(_, n)| n.local + n.remote > 0)
        .map(|(a, _)| (space(a.pid, a.address), a.address & !(line - 1)))
        .collect();
    let mut rows: Vec<_> = counted
        .accesses()
        .filter(|(a, _)| moved.contains(&(space(a.pid, a.address), a.address & !(line - 1))))
        .collect();
    rows.sort_unstable_by_key(|(a, _)| **a);
    let topology = Topology::read(Path::new("/")).ok();
    let node = |cpu| Some(u64::from(topology.as_ref()?.node_of(cpu)?.id));
    let kernel = KernelNames::of(rows.iter().map(|(a, _)| [a.address, a.ip]));
    let mut sources: HashMap<(u32, u64), Option<String>> = HashMap::new();
    let mut out = accesses();
    for (a, n) in rows {
        let name = match is_kernel(a.address) {
            true => kernel.data(a.address),
            false => names
                .user
                .variable(&names.maps, a.pid, a.address)
                .or_else(|| region(names.mappings.text(a.pid)?, a.address)),
        };
        let code = match is_kernel(a.ip) {
            true => kernel.code(a.ip),
            false => names.user.symbolize(&mut names.maps, a.pid, &[a.ip]).pop().map(|n| n.to_string()),
        };
        let source = match is_kernel(a.ip) {
            true => None,
            false => sources
                .entry((a.pid, a.ip))
                .or_insert_with(|| names.user.source_line(&names.maps, a.pid, a.ip))
                .clone(),
        };
        out.row()
            .int(space(a.pid, a.address).into())
            .text(format!("{:#x}", a.address & !(line - 1)))
            .int(a.address & (line - 1))
            .text_opt(name)
            .int(a.pid.into())
            .text_opt(names.processes.get(&a.pid))
            .int(a.tid.into())
            .int(a.cpu.into())
            .int_opt(node(a.cpu))
            .text(format!("{:#x}", a.ip))
            .text_opt(code)
            .text_opt(source)
            .int(n.local)
            .int(n.remote)
            .int(n.loads)
            .int(n.stores)
            .int(n.locked)
            .int(n.cycles)
            .int(n.timed);
    }
    [out.finish(), totals(counted)]
}

/// The address space of an address: the kernel's is 0.
fn space(pid: u32, address: u64) -> u32 {
    if is_kernel(address) { 0 } else { pid }
}

fn counts() -> [Column; 7] {
    [
        Column::count("local", "loads of a line that another cache of the node had modified (HITM)"),
        Column::count("remote", "loads of a line that a cache of another node had modified (HITM)"),
        Column::count("loads", "loads sampled"),
        Column::count("stores", "stores sampled"),
        Column::count("locked", "samples of locked instructions"),
        Column::count("cycles", "cycles of the loads whose length was told"),
        Column::count("timed", "loads whose length was told"),
    ]
}

/// Accesses to lines that moved between CPUs.
pub fn accesses() -> Builder {
    let mut columns = vec![
        Column::id("space", "process whose memory it is; 0 is the kernel's"),
        Column::text("line", "address of the line"),
        Column::id("offset", "byte of the line"),
        Column::text("name", "variable or lock there, else the region of memory"),
        Column::id("pid", "process"),
        Column::text("process", "its name"),
        Column::id("tid", "thread"),
        Column::id("CPU", "where it ran"),
        Column::id("node", "the CPU's NUMA node"),
        Column::text("ip", "address of the instruction"),
        Column::text("code", "function"),
        Column::text("source", "line of the source, where debug information tells"),
    ];
    columns.extend(counts());
    Table::builder("accesses", &columns)
}

fn totals(counted: &Counted) -> Table {
    let mut columns = vec![
        Column::count("samples", "samples"),
        Column::count("without", "samples that are of no access, or whose address was not told"),
    ];
    columns.extend(counts());
    let mut out = Table::builder("access_totals", &columns);
    let t = counted.totals();
    let Counts { local, remote, loads, stores, locked, cycles, timed } = t.counts;
    let mut row = out.row().int(t.samples).int(t.without);
    for n in [local, remote, loads, stores, locked, cycles, timed] {
        row = row.int(n);
    }
    let _ = row;
    out.finish()
}

/// Names in the kernel, loaded only where something of it was sampled.
struct KernelNames {
    kernel: Option<Arc<Kernel>>,
    locks: Option<LockNamer>,
}

impl KernelNames {
    fn of(addresses: impl Iterator<Item = [u64; 2]>) -> KernelNames {
        let (mut data, mut code) = (Vec::new(), false);
        for [address, ip] in addresses {
            data.extend(Some(address).filter(|a| is_kernel(*a)));
            code |= is_kernel(ip);
        }
        data.sort_unstable();
        data.dedup();
        // Without symbols there are no names; the addresses are told.
        let kernel =
            (code || !data.is_empty()).then(|| Kernel::load(Path::new("/")).ok()).flatten().map(Arc::new);
        let locks = (!data.is_empty()).then(|| {
            let mut namer = LockNamer::open(kernel.clone());
            namer.resolve(&data);
            namer
        });
        KernelNames { kernel, locks }
    }

    fn data(&self, address: u64) -> Option<String> {
        self.locks.as_ref()?.name(address).map(str::to_owned)
    }

    fn code(&self, ip: u64) -> Option<String> {
        self.kernel.as_ref()?.lookup(ip).map(|(name, _)| name.to_owned())
    }
}
