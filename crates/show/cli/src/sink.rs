//! Where an observation's tables go: into memory for the report, and to disk with `--record`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use ncpu_machine::{CpuSet, Topology};
use ncpu_record::{Gather, Manifest, Recording, Shape, Throughput, Writer};
use ncpu_schema::{Purpose, View};
use ncpu_table::Table;

/// Both ends of an observation's tables.
pub struct Sink {
    gather: Gather,
    writer: Option<Writer>,
    /// The recording on disk failed; the report still comes.
    failed: Option<String>,
    dir: Option<PathBuf>,
}

impl Sink {
    /// Opens the recording, where there is to be one.
    pub fn open(
        kind: Purpose,
        command: Vec<String>,
        interval_s: f64,
        record: Option<&Path>,
    ) -> anyhow::Result<Sink> {
        let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |c| c.len()) as u64;
        let manifest = Manifest::new(kind, cpus, command, interval_s);
        let writer = match record {
            Some(dir) => {
                Some(Writer::create_with(dir, manifest.clone(), crate::out::mode()).context("--record")?)
            }
            None => None,
        };
        Ok(Sink { gather: Gather::new(manifest), writer, failed: None, dir: record.map(Path::to_path_buf) })
    }

    /// Takes a table's new rows. A disk that fills up ends the recording, not the observation.
    pub fn table(&mut self, table: &Table) -> anyhow::Result<()> {
        self.gather.append(table)?;
        if let Some(writer) = &mut self.writer
            && let Err(e) = writer.append(table).and_then(|()| writer.flush())
        {
            say!("ncpu: recording stopped: {e}");
            self.failed = Some(e.to_string());
            self.writer = None;
        }
        Ok(())
    }

    /// Takes what the observer can see, where that is not everything.
    pub fn view(&mut self, view: View) {
        if let Some(writer) = &mut self.writer {
            writer.manifest_mut().view = Some(view);
            // A recording that is cut short has it too.
            if let Err(e) = writer.write_manifest() {
                self.failed = Some(e.to_string());
                self.writer = None;
            }
        }
        self.gather.manifest_mut().view = Some(view);
    }

    /// Takes the throughput that the command told.
    pub fn throughput(&mut self, throughput: Throughput) {
        if let Some(writer) = &mut self.writer {
            writer.manifest_mut().throughput = Some(throughput.clone());
        }
        self.gather.manifest_mut().throughput = Some(throughput);
    }

    /// Closes the recording; the error of one that failed comes with the report's data.
    pub fn finish(mut self, notes: Vec<String>) -> anyhow::Result<(Recording, Option<anyhow::Error>)> {
        let machine = Machine::here();
        machine.put(self.gather.manifest_mut());
        self.gather.manifest_mut().notes = notes.clone();
        let recording = self.gather.finish()?;
        let mut error = self.failed.map(|e| anyhow::anyhow!("the recording is not complete: {e}"));
        if let Some(mut writer) = self.writer {
            machine.put(writer.manifest_mut());
            writer.manifest_mut().notes = notes;
            if let Err(e) = writer.finish() {
                error = Some(anyhow::Error::new(e).context("the recording is not complete"));
            } else if let Some(dir) = self.dir {
                say!("ncpu: recorded in {}; `ncpu report {0}` prints it again", dir.display());
            }
        }
        Ok((recording, error))
    }
}

/// Records the tables of a command that looks once, where `--record` asks for it.
///
/// # Errors
/// The recording cannot be written.
pub fn record_once(
    record: Option<&Path>,
    kind: Purpose,
    words: Vec<String>,
    tables: &[Table],
    notes: Vec<String>,
) -> anyhow::Result<()> {
    if record.is_none() {
        return Ok(());
    }
    let mut sink = Sink::open(kind, words, 0.0, record)?;
    for table in tables {
        sink.table(table)?;
    }
    sink.finish(notes)?.1.map_or(Ok(()), Err)
}

/// What a manifest tells of the machine.
pub struct Machine {
    cpu_model: String,
    shape: Option<Shape>,
}

impl Machine {
    /// This one. Read when the observation is over, so as to cost it nothing.
    pub fn here() -> Machine {
        let topology = Topology::read(Path::new("/")).ok();
        let model = |t: &Topology| t.packages.iter().find_map(|p| p.model.clone());
        Machine {
            cpu_model: topology.as_ref().and_then(model).unwrap_or_default(),
            shape: topology.as_ref().and_then(shape),
        }
    }

    /// Puts it into a manifest.
    pub fn put(&self, manifest: &mut Manifest) {
        manifest.cpu_model.clone_from(&self.cpu_model);
        manifest.shape.clone_from(&self.shape);
    }
}

/// How the CPUs lie; `None` where packages or cores are not alike.
fn shape(topology: &Topology) -> Option<Shape> {
    let of = |package: &CpuSet| -> Option<Vec<Vec<u32>>> {
        let cores: Vec<&CpuSet> =
            topology.cores.iter().map(|c| &c.cpus).filter(|c| c.is_subset(package)).collect();
        let strands = cores.first()?.len();
        let alike = cores.iter().all(|c| c.len() == strands) && cores.len() * strands == package.len();
        alike.then(|| cores.iter().map(|c| c.iter().collect()).collect())
    };
    let packages: Vec<Vec<Vec<u32>>> =
        topology.packages.iter().map(|p| of(&p.cpus)).collect::<Option<_>>()?;
    let first = packages.first()?;
    let (cores, strands) = (first.len(), first.first()?.len());
    if packages.iter().any(|p| p.len() != cores || p[0].len() != strands) {
        return None;
    }
    let list = |cores: &[Vec<u32>], strand: usize| {
        let cpus: Vec<u32> = cores.iter().map(|c| c[strand]).collect();
        // A list of the kernel's is in the order of its CPUs.
        cpus.is_sorted().then(|| cpus.into_iter().collect::<CpuSet>().to_list())
    };
    let lists = |cores: &Vec<Vec<u32>>| (0..strands).map(|s| list(cores, s)).collect::<Option<Vec<String>>>();
    let cpus = packages.iter().map(lists).collect::<Option<Vec<_>>>()?;
    Some(Shape {
        packages: packages.len() as u32,
        cores: cores as u32,
        strands: strands as u32,
        cpus: if packages.len() * strands > 1 { cpus } else { Vec::new() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_tells_which_cpus_share_a_core() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, nodes, cores, threads| {
            let root = dir.path().join(name);
            let generated = ncpu_machine::generate::Shape { nodes, cores, threads };
            ncpu_machine::generate::write(&root, &generated).unwrap();
            (shape(&Topology::read(&root).unwrap()), root)
        };
        let (Some(large), root) = of("large", 2, 3, 2) else { panic!("no shape") };
        assert_eq!((large.packages, large.cores, large.strands), (2, 3, 2));
        let all: CpuSet = large
            .cpus
            .iter()
            .flatten()
            .flat_map(|l| CpuSet::parse_list(l))
            .fold(CpuSet::new(), |all, some| all.or(&some));
        assert_eq!(all.len(), 12);
        let topology = Topology::read(&root).unwrap();
        for (package, lists) in large.cpus.iter().enumerate() {
            let cpus: Vec<Vec<u32>> =
                lists.iter().map(|l| CpuSet::parse_list(l).unwrap().iter().collect()).collect();
            for core in 0..3 {
                let strands: CpuSet = cpus.iter().map(|strand| strand[core]).collect();
                assert!(topology.cores.iter().any(|c| c.cpus == strands), "{package} {core}: {large:?}");
            }
        }
        let (plain, _) = of("plain", 1, 4, 1);
        assert_eq!(plain, Some(Shape { packages: 1, cores: 4, strands: 1, cpus: Vec::new() }));
        // A core that has lost a strand.
        let (_, root) = of("less", 1, 2, 2);
        let cpu = root.join("sys/devices/system/cpu");
        std::fs::write(cpu.join("online"), "0-2\n").unwrap();
        std::fs::remove_dir_all(cpu.join("cpu3")).unwrap();
        assert_eq!(shape(&Topology::read(&root).unwrap()), None);
    }
}
