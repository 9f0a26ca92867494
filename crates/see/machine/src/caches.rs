//! Caches from `/sys/devices/system/cpu/cpuN/cache`.

use std::collections::HashMap;
use std::sync::mpsc::Receiver;

use crate::finds::{Finds, Object};
use crate::root::Dir;
use crate::{Cache, CacheType, CpuSet};

/// Finds the caches of the received CPUs, each sent with its core, in ascending order.
pub(crate) fn find(dir: &Dir, known: &CpuSet, knl: bool, cores: Receiver<(u32, CpuSet)>) -> Finds {
    let mut walk = Walk {
        dir,
        known,
        knl,
        settled: CpuSet::new(),
        last: Vec::new(),
        accepted: Vec::new(),
        shapes: HashMap::new(),
        finds: Finds::default(),
        buf: Vec::new(),
    };
    cores.iter().for_each(|(cpu, core)| walk.caches(cpu, &core));
    walk.finds
}

struct Walk<'a> {
    dir: &'a Dir,
    known: &'a CpuSet,
    /// Knights Landing lacks an L3 if its size is 0, whatever its kernel reports.
    knl: bool,
    /// CPUs whose caches are all known.
    settled: CpuSet,
    /// The caches of the last CPU examined, by index.
    last: Vec<Cache>,
    /// The caches found.
    accepted: Vec<Cache>,
    /// Line and ways of a level, type and size.
    shapes: HashMap<(u32, CacheType, u64), (u32, u32)>,
    finds: Finds,
    buf: Vec<u8>,
}

impl Walk<'_> {
    fn caches(&mut self, cpu: u32, core: &CpuSet) {
        if self.settled.contains(cpu) {
            return;
        }
        let before = std::mem::take(&mut self.last);
        let (mut alike, mut gap) = (true, false);
        let mut mates: Option<CpuSet> = None;
        for index in 0..10 {
            // If the outermost cache of the CPU before was accepted and names this CPU, and all inner caches
            // were alike, it is this CPU's cache too.
            if alike && index > 0 && index + 1 == before.len() {
                let outer = &before[index];
                if outer.level > 1
                    && outer.cpus.contains(cpu)
                    && self.accepted.iter().rev().any(|c| c == outer)
                    && !self.dir.has(&format!("cpu{cpu}/cache/index{}", index + 1))
                {
                    mates = mates.map(|m| m.and(&outer.cpus));
                    self.last.push(outer.clone());
                    break;
                }
            }
            let file = format!("cache/index{index}/shared_cpu_map");
            let Some(map) = self.finds.map(self.dir, cpu, &file, &mut self.buf) else {
                if index == 0 && !self.dir.has(&format!("cpu{cpu}/cache")) {
                    break;
                }
                continue;
            };
            // Old ia64 kernels leave the map of a core's own caches empty.
            let cpus = if map.is_empty() { core.clone() } else { map.and(self.known) };
            mates = Some(mates.map_or_else(|| cpus.clone(), |m| m.and(&cpus)));
            gap |= self.last.len() != index;
            let Some(cache) = self.cache(cpu, index, cpus, before.get(index).filter(|_| alike && !gap))
            else {
                continue;
            };
            alike &= before
                .get(index)
                .is_some_and(|b| (b.level, b.ty, b.size) == (cache.level, cache.ty, cache.size));
            self.last.push(cache.clone());
            if cache.cpus.first() != Some(cpu) || (self.knl && cache.level == 3 && cache.size == 0) {
                continue;
            }
            if !self
                .accepted
                .iter()
                .rev()
                .take(10)
                .any(|c| (c.level, c.ty) == (cache.level, cache.ty) && c.cpus == cache.cpus)
            {
                self.accepted.push(cache.clone());
                self.finds.objects.push((cpu, Object::Cache(cache)));
            }
        }
        if gap {
            self.last.clear();
        }
        // A strand whose core-mate's caches all name it does not have a cache of its own.
        if let Some(mates) = mates.filter(|_| core.contains(cpu)) {
            self.settled = self.settled.or(&mates.and(core));
        }
    }

    /// Reads a cache. Level and type come from the CPU before if its cache of this index has the same size
    /// and all earlier ones were alike.
    fn cache(&mut self, cpu: u32, index: usize, cpus: CpuSet, before: Option<&Cache>) -> Option<Cache> {
        let base = format!("cpu{cpu}/cache/index{index}");
        let mut get = |file: &str| self.dir.number::<u32>(&format!("{base}/{file}"), &mut self.buf);
        let size = u64::from(get("size").unwrap_or(0)) << 10;
        let (level, ty) = match before.filter(|b| b.size == size) {
            Some(b) => (b.level, b.ty),
            None => {
                let level = get("level")?;
                let ty = match self.dir.read(&format!("{base}/type"), &mut self.buf).unwrap_or_default() {
                    t if t.starts_with("Data") => CacheType::Data,
                    t if t.starts_with("Instruction") => CacheType::Instruction,
                    _ => CacheType::Unified,
                };
                (level, ty)
            }
        };
        if level == 0 || level > 5 || (level > 3 && ty == CacheType::Instruction) {
            return None;
        }
        let (line, ways) = match self.shapes.get(&(level, ty, size)) {
            Some(&shape) => shape,
            None => {
                let mut get = |file: &str| self.dir.number::<u32>(&format!("{base}/{file}"), &mut self.buf);
                let line = get("coherency_line_size").unwrap_or(0);
                let sets = get("number_of_sets").unwrap_or(0);
                let partition = get("physical_line_partition").unwrap_or(1);
                let across = u64::from(line) * u64::from(partition) * u64::from(sets);
                // Some kernels report a single set for "not known".
                let ways = if across == 0 || sets == 1 { 0 } else { size / across };
                let shape = (line, u32::try_from(ways).unwrap_or(0));
                self.shapes.insert((level, ty, size), shape);
                shape
            }
        };
        Some(Cache { level, ty, size, line, ways, cpus, memory_side: false })
    }
}
