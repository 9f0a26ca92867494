//! CPU time of each process by node, exact, from `numa.bpf.c`.

use std::collections::HashMap;
use std::ffi::c_char;
use std::io::Read;

use libbpf_rs::{Iter, Link, MapCore};

use super::layout::{Cpu, NODES, Out};
use super::skel;
use super::times::Times;
use crate::bpf_support::{Error, Feature, Mapped, Result, comm, load, monotonic_ns, perf, read};

/// A program as an iterator over threads.
pub(super) fn iterator(program: &libbpf_rs::ProgramMut<'_>) -> Result<Link> {
    let link = program.attach_iter_with_opts(libbpf_rs::IterOpts::None);
    link.map_err(|source| Error::Bpf { doing: "attaching a thread iterator", source })
}

/// All that an iterator writes.
pub(super) fn all_of(link: &Link) -> Result<Vec<u8>> {
    let mut iter =
        Iter::new(link).map_err(|source| Error::Bpf { doing: "opening a thread iterator", source })?;
    let mut bytes = Vec::new();
    iter.read_to_end(&mut bytes)
        .map_err(|source| Error::Io { doing: "reading a thread iterator", source })?;
    Ok(bytes)
}

/// The programs, attached until dropped.
pub(super) struct NodeTime {
    skel: Box<skel::NumaSkel<'static>>,
    _links: Vec<Link>,
    cpus: Mapped<Cpu>,
    /// ns of threads that ended, by process and node, and the process's name: taken out of the kernel's
    /// table at each reading, so that it does not fill.
    gone: HashMap<(u32, u32), (u64, [c_char; 16])>,
}

impl NodeTime {
    /// Loads, attaches and begins.
    pub fn attach() -> Result<NodeTime> {
        let bpf = |doing| move |source| Error::Bpf { doing, source };
        libbpf_rs::set_print(None);
        let types = load::Types::read()?;
        types.require(&[Feature::TaskStorage])?;
        let mut open = types
            .open(skel::NumaSkelBuilder::default(), load::storage())
            .map_err(bpf("opening the BPF object"))?;
        let count = load::cpu_parts()?;
        open.maps.cpus.set_max_entries(count as u32).map_err(bpf("sizing the CPU slots"))?;
        open.progs.wants.set_autoload(false);
        let skel = open.load().map_err(|source| match source.kind() {
            // Root is denied only what the verifier refuses.
            libbpf_rs::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
                Error::NotPermitted
            }
            _ => Error::Bpf { doing: "loading the BPF programs", source },
        })?;
        let attach = |p: &libbpf_rs::ProgramMut<'_>| p.attach().map_err(bpf("attaching to sched_switch"));
        let links = vec![attach(&skel.progs.on_switch)?, attach(&skel.progs.on_exit)?];
        let cpus = Mapped::new(&skel.maps.cpus, count)
            .map_err(|source| Error::Io { doing: "mapping the CPU slots", source })?;
        load::run_on(&skel.progs.mark, &perf::online_cpus());
        Ok(NodeTime { skel: Box::new(skel), _links: links, cpus, gone: HashMap::new() })
    }

    /// Times since attaching, and ns that could not be charged.
    pub fn read(&mut self) -> Result<(Times, u64)> {
        self.take_gone();
        let mut times = Times::default();
        let mut add = |tgid: u32, tid: u32, name: &[c_char; 16], node: u32, ns: u64| {
            let process = times.processes.entry(tgid).or_default();
            if process.name.is_empty() {
                process.name = comm(name);
            }
            *process.nodes.entry(node).or_default() += ns;
            if tid != 0 {
                *process.threads.entry(tid).or_default().entry(node).or_default() += ns;
            }
        };
        let bytes = all_of(&iterator(&self.skel.progs.dump)?)?;
        let mut names: HashMap<u32, [c_char; 16]> = HashMap::new();
        for out in bytes.chunks_exact(size_of::<Out>()).filter_map(read::<Out>) {
            names.insert(out.tgid, out.comm);
            for (node, &ns) in out.time.iter().enumerate().filter(|(_, ns)| **ns > 0) {
                add(out.tgid, out.tid, &out.comm, node as u32, ns);
            }
        }
        // After the threads: what one has run since it was switched in is not in its record yet.
        let now = monotonic_ns();
        let mut dropped = 0;
        for i in 0..self.cpus.len() {
            let cpu = self.cpus.get(i);
            dropped += cpu.dropped;
            if cpu.tid != 0 && cpu.since != 0 && (cpu.node as usize) < NODES {
                let unknown = [0; 16];
                let name = names.get(&cpu.tgid).unwrap_or(&unknown);
                add(cpu.tgid, cpu.tid, name, cpu.node, now.saturating_sub(cpu.since));
            }
        }
        for ((tgid, node), (ns, name)) in &self.gone {
            add(*tgid, 0, name, *node, *ns);
        }
        Ok((times, dropped))
    }

    fn take_gone(&mut self) {
        let map = &self.skel.maps.gone;
        let keys: Vec<Vec<u8>> = map.keys().collect();
        for key in keys {
            // At once where the kernel can (5.14), so that no thread's end falls between.
            let value = match map.lookup_and_delete(&key) {
                Ok(value) => value,
                Err(_) => {
                    let value = map.lookup(&key, libbpf_rs::MapFlags::ANY);
                    let _ = map.delete(&key);
                    value.ok().flatten()
                }
            };
            let Some(value) = value else { continue };
            let word = |at: usize| Some(u32::from_ne_bytes(key.get(at..at + 4)?.try_into().ok()?));
            let name: Option<[u8; 16]> = value.get(8..24).and_then(|b| b.try_into().ok());
            let name = name.map(|name| name.map(|c| c as c_char));
            let ns = value.get(..8).and_then(|b| Some(u64::from_ne_bytes(b.try_into().ok()?)));
            if let (Some(tgid), Some(node), Some(ns), Some(name)) = (word(0), word(4), ns, name) {
                let sum = self.gone.entry((tgid, node)).or_insert((0, name));
                sum.0 += ns;
            }
        }
    }
}
