//! The time of each CPU by state in each interval of an observation, and its place: for pages that show CPUs by
//! their places.

use std::path::{Path, PathBuf};

use ncpu_machine::Topology;
use ncpu_schema::cpus::{Row, Rows};
use ncpu_table::Table;

use super::{Metric, Options, Result, Sampler, Shares, count};

/// Counts each CPU's events, interval by interval.
pub struct Intervals {
    sampler: Sampler,
    root: PathBuf,
    /// By CPU number: node, package, core.
    places: Vec<[Option<u64>; 3]>,
    /// CPUs there were when places were looked up.
    looked_at: usize,
    notes: Vec<String>,
    tick: f64,
}

impl Intervals {
    /// All of a CPU's columns but system calls: to count those, every call of every program would take the kernel's slow
    /// way in and out.
    pub const METRICS: [Metric; 15] = {
        use Metric::*;
        [Minf, Mjf, Xcal, Intr, Ithr, Csw, Icsw, Migr, Smtx, Srw, Usr, Sys, Wt, St, Idl]
    };

    /// Begins to count.
    ///
    /// # Errors
    /// See [`Sampler::new`].
    pub fn begin(metrics: &[Metric]) -> Result<Intervals> {
        Intervals::below(Path::new("/"), metrics)
    }

    fn below(root: &Path, metrics: &[Metric]) -> Result<Intervals> {
        let options = Options { root: root.into(), metrics: metrics.to_vec(), time: false };
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let mut sampler = Sampler::new(options)?;
        let notes = sampler.notes();
        Ok(Intervals { sampler, root: root.into(), places: Vec::new(), looked_at: 0, notes, tick })
    }

    /// Which columns are missing, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Ends an interval, and begins the next.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn turn(&mut self) -> Result<()> {
        self.sampler.step()
    }

    /// The time of each CPU by state in the last interval, at `time` seconds of the observation.
    pub fn table(&mut self, time: f64) -> Table {
        // The observation itself reports CPUs that came or went.
        self.sampler.notes.clear();
        let there = self.sampler.both().count();
        if there != self.looked_at {
            // Where a place is not known its columns are null.
            self.places = Topology::read(&self.root).map(|machine| places(&machine)).unwrap_or_default();
            self.looked_at = there;
        }
        let mut rows = Rows::new();
        for (cpu, old, new) in self.sampler.both() {
            let [node, package, core] = self.places.get(cpu).copied().unwrap_or_default();
            let n = |metric: Metric| count(old.counts[metric as usize], new.counts[metric as usize]);
            let spent = Shares::ticks(old, new, self.tick);
            rows.push(Row {
                time: Some(time),
                cpu: Some(cpu as u64),
                node,
                package,
                core,
                minf: n(Metric::Minf),
                mjf: n(Metric::Mjf),
                xcal: n(Metric::Xcal),
                intr: n(Metric::Intr),
                ithr: n(Metric::Ithr),
                csw: n(Metric::Csw),
                icsw: n(Metric::Icsw),
                migr: n(Metric::Migr),
                smtx: n(Metric::Smtx),
                srw: n(Metric::Srw),
                syscl: n(Metric::Syscl),
                usr: Some(spent.usr),
                sys: Some(spent.sys),
                wt: Some(spent.wt),
                st: Some(spent.st),
                idl: Some(spent.idl),
            });
        }
        rows.finish()
    }
}

/// Node, package and core of each CPU, by number. Packages and cores go by their place in the topology and their lowest CPU:
/// the kernel's own numbers come again in other packages.
fn places(machine: &Topology) -> Vec<[Option<u64>; 3]> {
    let most = machine.cpus.last().map_or(0, |cpu| cpu.id as usize + 1);
    let mut places = vec![[None; 3]; most];
    for cpu in &machine.cpus {
        let node = machine.node_of(cpu.id).map(|node| node.id.into());
        let package = cpu.package.map(|package| package as u64);
        let core = machine.core_of(cpu.id).and_then(|core| core.cpus.iter().next()).map(u64::from);
        places[cpu.id as usize] = [node, package, core];
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_the_interval_and_places_those_of_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let stat = |user: u64, idle: u64| {
            format!(
                "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {user} 0 5 {idle} 0 0 0 0 0 0\ncpu1 0 0 5 {idle} 0 0 0 0 0 0\n"
            )
        };
        write("proc/stat", &stat(100, 100));
        write("proc/interrupts", "      CPU0 CPU1\n 24: 10 20 ttyS0\n");
        write("proc/softirqs", "      CPU0 CPU1\n TIMER: 1 2\n");
        write("sys/devices/system/cpu/online", "0-1\n");
        write("sys/devices/system/cpu/present", "0-1\n");
        write("sys/devices/system/cpu/possible", "0-1\n");
        for cpu in 0..2 {
            let at = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            write(&format!("{at}/core_cpus"), "3\n");
            write(&format!("{at}/package_cpus"), "3\n");
            write(&format!("{at}/physical_package_id"), "7\n");
        }
        let mut intervals = Intervals::below(root.path(), &Intervals::METRICS).unwrap();
        write("proc/stat", &stat(130, 170));
        write("proc/interrupts", "      CPU0 CPU1\n 24: 15 120 ttyS0\n");
        intervals.turn().unwrap();
        let table = intervals.table(3.0);
        let table = ncpu_schema::cpus::Reader::of(&table).unwrap();
        assert_eq!(table.len(), 2);
        assert_eq!((table.time.get(1), table.cpu.get(1), table.core.get(1)), (Some(3.0), Some(1), Some(0)));
        assert_eq!((table.package.get(1), table.node.get(1)), (Some(0), Some(0)));
        assert_eq!((table.intr.get(0), table.intr.get(1), table.csw.get(0)), (Some(5), Some(100), None));
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        assert_eq!((table.usr.get(0), table.idl.get(1)), (Some(30.0 * tick), Some(70.0 * tick)));
    }
}
