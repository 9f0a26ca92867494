//! Counted accesses as tables, with names.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use ncpu_instructions::lines::LINE;
use ncpu_machine::Topology;
use ncpu_schema::{access_totals, accesses};
use ncpu_symbols::{Kernel, SourceLine, region};
use ncpu_table::Table;

use super::names::Names;
use super::watching::{Effort, Watching};
use super::{Counted, Counts};
use crate::lock_names::LockNamer;

/// The kernel's half of the address space.
fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// Of a timer's samples, the part that must lie in a line for it to matter.
const LEAST: f64 = 0.01;

pub(super) fn of(counted: &Counted, watching: Option<&Watching>, names: &mut Names, line: u64) -> [Table; 2] {
    let mut moves: HashMap<(u32, u64), u64> = HashMap::new();
    for (a, n) in counted.accesses() {
        *moves.entry((space(a.pid, a.address), a.address & !(line - 1))).or_default() += n.local + n.remote;
    }
    // Memory that one thread hands over to another moves once.
    let least = if watching.is_some() { 2 } else { 1 };
    moves.retain(|_, n| *n >= least);
    let effort = watching.map(Watching::effort);
    let still = effort.map(|e| e.lines.saturating_sub(moves.len() as u64));
    let sampled = |pid, address| {
        // The user's line may hold several lines that are watched.
        let parts = (0..(line / LINE).max(1)).map(|n| (address & !(line - 1)) + n * LINE);
        watching.map(|watching| parts.map(|part| watching.sampled(pid, part)).sum::<u64>())
    };
    let matters = |(pid, address): &(u32, u64)| {
        sampled(*pid, *address).is_none_or(|n| n as f64 >= LEAST * counted.totals().timer as f64)
    };
    let moved: HashSet<(u32, u64)> = moves.into_keys().filter(matters).collect();
    let mut rows: Vec<_> = counted
        .accesses()
        .filter(|(a, _)| moved.contains(&(space(a.pid, a.address), a.address & !(line - 1))))
        .collect();
    rows.sort_unstable_by_key(|(a, _)| **a);
    let topology = Topology::read(Path::new("/")).ok();
    let node = |cpu| Some(u64::from(topology.as_ref()?.node_of(cpu)?.id));
    let kernel = KernelNames::of(rows.iter().map(|(a, _)| [a.address, a.ip]));
    let mut sources: HashMap<(u32, u64), Option<SourceLine>> = HashMap::new();
    let mut out = accesses::Rows::new();
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
                .or_insert_with(|| names.user.source_line(&names.maps, a.pid, a.ip, true))
                .as_ref()
                .map(ToString::to_string),
        };
        out.push(accesses::Row {
            space: Some(space(a.pid, a.address).into()),
            line: format!("{:#x}", a.address & !(line - 1)).into(),
            offset: Some(a.address & (line - 1)),
            name: name.into(),
            pid: Some(a.pid.into()),
            process: names.processes.get(&a.pid).into(),
            tid: Some(a.tid.into()),
            cpu: Some(a.cpu.into()),
            node: node(a.cpu),
            ip: format!("{:#x}", a.ip).into(),
            code: code.into(),
            source: source.into(),
            local: Some(n.local),
            remote: Some(n.remote),
            loads: Some(n.loads),
            stores: Some(n.stores),
            locked: Some(n.locked),
            cycles: Some(n.cycles),
            timed: Some(n.timed),
            timer: sampled(a.pid, a.address),
            same: watching.map(|_| n.same),
        });
    }
    [out.finish(), totals(counted, effort, still)]
}

/// The address space of an address: the kernel's is 0.
fn space(pid: u32, address: u64) -> u32 {
    if is_kernel(address) { 0 } else { pid }
}

fn totals(counted: &Counted, effort: Option<Effort>, still: Option<u64>) -> Table {
    let t = counted.totals();
    let Counts { local, remote, loads, stores, locked, cycles, timed, .. } = t.counts;
    let mut out = access_totals::Rows::new();
    out.push(access_totals::Row {
        samples: Some(t.samples),
        without: Some(t.without),
        local: Some(local),
        remote: Some(remote),
        loads: Some(loads),
        stores: Some(stores),
        locked: Some(locked),
        cycles: Some(cycles),
        timed: Some(timed),
        timer: effort.map(|_| t.timer),
        lines: effort.map(|e| e.lines),
        still,
        turns: effort.map(|e| e.turns),
        watched: effort.map(|e| e.watched.as_secs_f64()),
        own: effort.map(|e| e.own.as_secs_f64()),
    });
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
        // Without symbols there are no names, so the addresses are shown.
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
