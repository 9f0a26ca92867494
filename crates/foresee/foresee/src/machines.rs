//! The catalogue of machines, and machines by their shape or topology tree.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ncpu_machine::Topology;
use ncpu_table::{Column, Kind, Table, Unit};
use serde::Deserialize;

use crate::hardware::{Hardware, MOST_CPUS, Shape, ShapeError};

const DATA: &str = include_str!("../data/machines.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    machine: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    vendor: Option<String>,
    year: Option<u32>,
    shape: String,
    kin: Option<String>,
    sibling: Option<f64>,
    cluster: Option<f64>,
    package: Option<f64>,
    remote: Option<f64>,
    shared_reads: Option<bool>,
    memory_local: Option<f64>,
    memory_remote: Option<f64>,
    memory_bandwidth: Option<f64>,
    smt: Option<f64>,
    turbo: Option<f64>,
    switch: Option<f64>,
    wake: Option<f64>,
    halt: Option<f64>,
    handover: Option<f64>,
    source: String,
}

/// Errors in the description of a machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No shape, and no name of the catalogue.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A topology tree that cannot be read.
    #[error("{0}")]
    Tree(String),
    /// A file that does not describe a machine; the reason has line and column.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

static CATALOGUE: LazyLock<Vec<Hardware>> = LazyLock::new(|| {
    let file: File = toml::from_str(DATA).unwrap_or(File { machine: Vec::new() });
    let entry = |name: &str| file.machine.iter().find(|e| e.name == name);
    file.machine.iter().filter_map(|e| hardware(e, e.kin.as_deref().and_then(entry))).collect()
});

/// The catalogue.
pub fn all() -> &'static [Hardware] {
    &CATALOGUE
}

fn hardware(entry: &Entry, kin: Option<&Entry>) -> Option<Hardware> {
    let shape: Shape = entry.shape.parse().ok()?;
    let mut h = Hardware::of_shape(shape);
    h.name.clone_from(&entry.name);
    h.source.clone_from(&entry.source);
    for from in kin.into_iter().chain([entry]) {
        let set = |to: &mut f64, value: Option<f64>| *to = value.unwrap_or(*to);
        set(&mut h.transfer.sibling, from.sibling);
        set(&mut h.transfer.cluster, from.cluster);
        // One cluster a package: the next further distance is another package.
        set(&mut h.transfer.package, from.package.or(from.cluster));
        set(&mut h.transfer.remote, from.remote);
        h.shared_reads = from.shared_reads.unwrap_or(h.shared_reads);
        set(&mut h.memory.local_ns, from.memory_local);
        set(&mut h.memory.remote_ns, from.memory_remote);
        set(&mut h.memory.bandwidth, from.memory_bandwidth);
    }
    let own = |to: &mut f64, value: Option<f64>| *to = value.unwrap_or(*to);
    own(&mut h.smt, entry.smt);
    own(&mut h.turbo, entry.turbo);
    own(&mut h.switch_ns, entry.switch);
    own(&mut h.wake_ns, entry.wake);
    own(&mut h.halt_ns, entry.halt);
    own(&mut h.handover_ns, entry.handover);
    h.transfer.hop = h.transfer.remote / 2.0;
    if let Some(kin) = kin {
        h.source += &format!("; line transfers are those of {}", kin.name);
    }
    Some(h)
}

/// A machine: a name of the catalogue, a shape, a directory that holds a topology tree (`/sys` below it), or a file
/// `*.toml` that describes one as the catalogue does.
///
/// # Errors
/// It names no machine, or a tree whose packages or cores are not alike.
///
/// Latencies that are not known are those of a machine like it, of the maker of the processor `like` where that is given.
pub fn find(name: &str, like: Option<&str>) -> Result<Hardware, Error> {
    if let Some(found) = all().iter().find(|h| h.name == name) {
        return Ok(found.clone());
    }
    let path = Path::new(name);
    if path.extension().is_some_and(|e| e == "toml") {
        return described(path);
    }
    if name.contains('/') || path.is_dir() {
        return tree(path, like);
    }
    let shape: Shape = name.parse()?;
    Ok(of_kin(shape, like))
}

/// A machine from a file: an entry of the catalogue without `[[machine]]`.
fn described(path: &Path) -> Result<Hardware, Error> {
    let wrong = |why: String| Error::File { path: path.into(), why };
    let text = ncpu_files::text(path).map_err(|e| wrong(e.to_string()))?;
    let entry: Entry = toml::from_str(&text).map_err(|e| wrong(crate::place::wrong(&text, &e)))?;
    let value = |name, why: &str| crate::place::wrong_value(&text, crate::place::Key::top(name), why);
    entry.shape.parse::<Shape>().map_err(|e| wrong(value("shape", &e.to_string())))?;
    for (name, x, most) in [
        ("smt", entry.smt, 64.0),
        ("turbo", entry.turbo, 1.0),
        ("sibling", entry.sibling, 1e6),
        ("cluster", entry.cluster, 1e6),
        ("package", entry.package, 1e6),
        ("remote", entry.remote, 1e6),
        ("memory_local", entry.memory_local, 1e6),
        ("memory_remote", entry.memory_remote, 1e6),
        ("memory_bandwidth", entry.memory_bandwidth, 1e6),
        ("switch", entry.switch, 1e9),
        ("wake", entry.wake, 1e9),
        ("halt", entry.halt, 1e9),
        ("handover", entry.handover, 1e9),
    ] {
        if x.is_some_and(|x| !(x > 0.0 && x <= most)) {
            let why = format!("{name} = {}: give a number above 0, at most {most}", x.unwrap_or(0.0));
            return Err(wrong(value(name, &why)));
        }
    }
    let kin = match entry.kin.as_deref() {
        Some(kin) => {
            let file: File = toml::from_str(DATA).map_err(|e| wrong(e.to_string()))?;
            let known = file.machine.into_iter().find(|m| m.name == kin);
            Some(known.ok_or_else(|| {
                wrong(value("kin", &format!("kin = \"{kin}\": no such machine in the catalogue")))
            })?)
        }
        None => None,
    };
    hardware(&entry, kin.as_ref()).ok_or_else(|| wrong("no machine".into()))
}

/// How the source of a machine begins whose latencies are another's.
const KIN: &str = "line transfers are those of its nearest kin";

/// Whether nothing is known of a machine's own latencies.
pub fn has_kin(hardware: &Hardware) -> bool {
    hardware.source.starts_with(KIN)
}

/// Makers of processors, and words of the names that they give them.
const MAKERS: [(&str, &[&str]); 5] = [
    ("Intel", &["intel", "xeon", "core(tm)"]),
    ("AMD", &["amd", "epyc", "ryzen", "opteron", "threadripper"]),
    ("ARM", &["arm", "neoverse", "cortex", "graviton", "ampere", "kunpeng"]),
    ("SPARC", &["sparc", "ultrasparc", "niagara"]),
    ("POWER", &["power7", "power8", "power9", "power10", "ppc"]),
];

/// Series of processors that are unlike others of their maker.
const SERIES: [&str; 5] = ["xeon", "epyc", "ryzen", "threadripper", "opteron"];

/// Those of current servers.
const SERVERS: [&str; 2] = ["xeon-", "epyc"];

/// The maker of a processor of this name.
fn maker(model: &str) -> Option<&'static str> {
    let model = model.to_lowercase();
    let of = |words: &&[&str]| words.iter().any(|word| model.contains(word));
    MAKERS.iter().find(|(_, words)| of(words)).map(|(maker, _)| *maker)
}

/// Cores of one strand or two are those of servers, of whatever maker.
const STRANDS: u32 = 2;
/// Cores of a whole package.
const WHOLE: f64 = 48.0;
/// Weight of a year of age beside a factor of the shape.
const YEAR: f64 = 0.15;

/// A shape with the latencies of the machine of the catalogue that is most like it: of the same maker and of these years first.
fn of_kin(shape: Shape, like: Option<&str>) -> Hardware {
    let far = |a: u32, b: u32| (f64::from(a) / f64::from(b)).ln().abs();
    let made = like.and_then(maker);
    let file: File = toml::from_str(DATA).unwrap_or(File { machine: Vec::new() });
    let words = like.unwrap_or_default().to_lowercase();
    let series = SERIES.iter().find(|series| words.contains(**series));
    let fits = |entry: &&Entry| match (made, entry.vendor.as_deref()) {
        (Some(made), Some(vendor)) => made == vendor && series.is_none_or(|s| entry.name.contains(*s)),
        // Of a maker that is not known.
        _ => shape.strands > STRANDS || SERVERS.iter().any(|series| entry.name.contains(series)),
    };
    let known = file.machine.iter().filter(|entry| entry.kin.is_none());
    let distance = |entry: &Entry| {
        let Ok(its) = entry.shape.parse::<Shape>() else { return f64::INFINITY };
        let newest = file.machine.iter().filter_map(|e| e.year).max().unwrap_or(0);
        far(its.clusters, shape.clusters)
            + far(its.cores_a_package(), shape.cores_a_package())
            + far(its.strands, shape.strands)
            + YEAR * f64::from(newest.saturating_sub(entry.year.unwrap_or(0)))
            // A machine of one package knows nothing of others.
            + if its.packages == 1 && shape.packages > 1 { 100.0 } else { 0.0 }
    };
    let nearest = |of: &dyn Fn(&&Entry) -> bool| {
        known.clone().filter(|e| of(e)).min_by(|a, b| distance(a).total_cmp(&distance(b))).map(|e| &e.name)
    };
    let name = nearest(&fits).or_else(|| nearest(&|_| true));
    let kin = name.and_then(|name| all().iter().find(|h| h.name == *name));
    let mut hardware = Hardware::of_shape(shape);
    if like.is_some() {
        // Packages with few cores are parts of larger ones, and how fast those are does not hang on this program.
        let part = (f64::from(shape.cores_a_package()) / WHOLE).min(1.0);
        hardware.turbo = 1.0 - (1.0 - hardware.turbo) * part;
    }
    if let Some(kin) = kin {
        hardware.transfer = kin.transfer.clone();
        hardware.shared_reads = kin.shared_reads;
        hardware.memory = kin.memory.clone();
        hardware.source = format!("{KIN} in the catalogue, {}", kin.name);
    }
    hardware
}

fn tree(root: &Path, like: Option<&str>) -> Result<Hardware, Error> {
    let path = root.display();
    let topology = Topology::read(root).map_err(|e| Error::Tree(e.to_string()))?;
    let same = |sizes: Vec<usize>, what: &str| -> Result<u32, Error> {
        let (least, most) = (sizes.iter().min().copied(), sizes.iter().max().copied());
        match (least, most) {
            (Some(a), Some(b)) if a == b && a > 0 => Ok(a as u32),
            (Some(a), Some(b)) => Err(Error::Tree(format!(
                "{path}: {what} have between {a} and {b} CPUs: only machines whose parts are alike can be simulated; give a shape, as in \
                 8x64x2"
            ))),
            _ => Err(Error::Tree(format!("{path}: no {what} in this topology tree"))),
        }
    };
    let strands = same(topology.cores.iter().map(|c| c.cpus.len()).collect(), "cores")?;
    let package = same(topology.packages.iter().map(|p| p.cpus.len()).collect(), "packages")?;
    let last = topology.caches.iter().map(|c| c.level).max().unwrap_or(0);
    let shared: Vec<usize> =
        topology.caches.iter().filter(|c| c.level == last).map(|c| c.cpus.len()).collect();
    let clusters = match same(shared, "last-level caches") {
        Ok(size) if package % size == 0 && size >= strands => package / size,
        _ => 1,
    };
    let shape = Shape {
        packages: topology.packages.len() as u32,
        clusters,
        cores: package / clusters / strands,
        strands,
    };
    if shape.cpus() as u64 > MOST_CPUS {
        return Err(ShapeError::Large {
            asked: path.to_string(),
            cpus: shape.cpus() as u64,
            most: MOST_CPUS,
        }
        .into());
    }
    let mut hardware = of_kin(shape, like);
    hardware.name = path.to_string();
    Ok(hardware)
}

/// The catalogue as a table.
pub fn table() -> Table {
    let ns = |name: &str, meaning: &str| Column::float(name, Unit::Nanoseconds, Kind::Gauge, meaning);
    let mut out = Table::builder(
        "machines",
        &[
            Column::text("machine", "its name, for --on"),
            Column::text("shape", "packages x (last-level caches x) cores x strands"),
            Column::int("CPUs", Unit::None, Kind::Gauge, "strands"),
            ns("sibling", "line transfer between strands of a core"),
            ns("cache", "between cores of a last-level cache"),
            ns("package", "between caches of a package"),
            ns("remote", "between packages"),
            Column::text("source", "where the figures are from"),
        ],
    );
    for h in all() {
        let t = &h.transfer;
        let s = h.shape;
        out.row()
            .text(&h.name)
            .text(s.to_string())
            .int(s.cpus() as u64)
            .float_opt((s.strands > 1).then_some(t.sibling))
            .float_opt((s.cores > 1).then_some(t.cluster))
            .float_opt((s.clusters > 1).then_some(t.package))
            .float_opt((s.packages > 1).then_some(t.remote))
            .text(&h.source);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_whole_and_its_distances_grow() {
        let entries: File = toml::from_str(DATA).unwrap();
        assert_eq!(entries.machine.len(), all().len());
        for h in all() {
            let (t, s) = (&h.transfer, h.shape);
            let mut last = 0.0;
            for (there, x) in [
                (s.strands > 1, t.sibling),
                (s.cores > 1, t.cluster),
                (s.clusters > 1, t.package),
                (s.packages > 1, t.remote),
            ] {
                if there {
                    assert!(x > last, "{}: {t:?}", h.name);
                    last = x;
                }
            }
        }
    }

    #[test]
    fn trees_are_read_and_shapes_find_kin() {
        let dir = tempfile::tempdir().unwrap();
        let shape = ncpu_machine_trees::generate::Shape { nodes: 4, cores: 6, threads: 2 };
        ncpu_machine_trees::generate::write(dir.path(), &shape).unwrap();
        let find = |name: &str| find(name, None);
        let found = find(dir.path().to_str().unwrap()).unwrap();
        assert_eq!(found.shape.to_string(), "4x6x2");
        assert!(has_kin(&find("8x64x2").unwrap()) && !has_kin(&find("epyc-7r13").unwrap()));
        assert_eq!(find("epyc-7r13").unwrap().shape.cpus(), 192);
        assert!(find("epyc-9").unwrap_err().to_string().contains("unknown machine"));
        assert!(find("/nowhere").unwrap_err().to_string().contains("/nowhere"));
        let endless = dir.path().join("endless.toml");
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        assert!(find(endless.to_str().unwrap()).unwrap_err().to_string().contains("a device"));
    }

    #[test]
    fn kin_are_of_the_same_maker_and_of_current_servers() {
        for shape in ["1x8", "1x16x1", "2x8", "4x16", "1x64x1"] {
            let found = kin(shape, Some("Intel(R) Xeon(R) Processor"));
            assert_eq!(maker(&found.replace("core-", "core(tm)-")), Some("Intel"), "{shape}: {found}");
            let unknown = maker(&kin(shape, None));
            assert!(matches!(unknown, Some("Intel" | "AMD")), "{shape}: {unknown:?}");
        }
        assert!(["epyc-7r13", "epyc-7773x"].contains(&&*kin("1x8x8x2", Some("AMD EPYC 9R14"))));
        assert_eq!(kin("1x64", Some("Neoverse-N1")), "graviton2");
        assert!(kin("4x8x8", None).starts_with("sparc"));
    }

    fn kin(shape: &str, like: Option<&str>) -> String {
        find(shape, like).unwrap().source.rsplit(' ').next().unwrap().to_string()
    }
}
